"""TensorFlow Lite graphs with weights of 8-bit integers and values of floats.

`tflite` draws such graphs too, one in ten. Here are they alone, to compare many.
"""

import tflite_graphs
from tflite_graphs import promised, records

__all__ = ["draw", "promised", "records"]


def draw(random, aims=()):
    return tflite_graphs.draw(random, aims, ["dynamic"])
