"""TensorFlow Lite graphs of which all values and weights are 8-bit integers.

`tflite` draws such graphs too, two in ten. Here are they alone, to compare many.
"""

import tflite_graphs
from tflite_graphs import promised, records

__all__ = ["draw", "promised", "records"]


def draw(random, aims=()):
    return tflite_graphs.draw(random, aims, ["int8"])
