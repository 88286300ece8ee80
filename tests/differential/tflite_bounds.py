"""Bounds on the errors of TensorFlow Lite's operators of values, in the terms of bounds.py.

Results that jump (comparisons, FLOOR, conversions to integers) have no error of their own, but may
be anything for a record with a number that is no farther from the jump than twice its error.
"""

import numpy as np

import bounds
from bounds import FUNCTION, U, most

NOTHING = 1e9
"""The error of what may be either of two values."""
WHOLE = 2.0**24
"""Larger floats need not be converted to integers as they are."""


class Given:
    """A node with the values and errors of its inputs."""

    def __init__(self, node, graph, largest, error, constants, values):
        self.node, self.graph, self.constants, self.values = node, graph, constants, values
        self.largest, self.error = largest, error
        self.x = next(i for i in node.inputs if i in graph.live)
        self.most = largest(self.x)
        self.own = error(self.x) + np.zeros_like(self.most)
        self.out = largest(node.outputs[0]) if node.outputs[0] in values else self.most

    def array(self, name):
        return np.asarray(self.values.get(name, self.constants.get(name)), np.float64)

    def linear(self, gain, terms, bias=0.0):
        """The error of sums of so many products."""
        return gain * self.own + U * (terms + 4) * (gain * self.most + np.abs(bias))

    def least(self):
        """The smallest magnitude of each record."""
        return np.abs(self.array(self.x)).reshape(len(self.most), -1).min(1)


def jumps(distance, error):
    """0, or NOTHING for a record in which a number is so near to a jump that it may be beyond."""
    near = distance.reshape(len(distance), -1) <= 2 * error[:, None]
    return np.where((near & (error[:, None] > 0)).any(1), NOTHING, 0.0)


def compared(o):
    a, b = (o.array(name) for name in o.node.inputs)
    return jumps(np.abs(a - b), sum(o.error(name) for name in o.node.inputs) + 0 * o.own)


def whole(half):
    """The error of numbers rounded where they are so far from whole ones."""

    def bound(o):
        v = o.array(o.x) + half
        return jumps(np.abs(v - np.round(v)), o.own)

    return bound


def sign(o):
    return jumps(np.abs(o.array(o.x)), o.own)


def cast(o):
    kind = o.graph.kinds[o.node.outputs[0]]
    if kind == "float32" or o.graph.kinds[o.x] != "float32":
        return o.own
    if kind == "bool":
        return sign(o)
    v = o.array(o.x)
    # Numbers around 0 become 0 from both sides.
    far = np.where(np.round(v) == 0, 1 - np.abs(v), np.abs(v - np.round(v)))
    return np.where(o.most < WHOLE, jumps(far, o.own), NOTHING)


def one_hot(o):
    return np.where(o.own > 0, NOTHING, 0.0)


def exponential(o):
    return o.out * np.expm1(np.minimum(2 * o.own, 1.0)) + FUNCTION * o.out


def logarithm(o):
    least = o.least() - o.own
    return np.where(least > 0, o.own / np.maximum(least, 1e-30), NOTHING) + FUNCTION * (o.out + 1)


def power(exponent):
    """The error of a power; of an exponent below 1 where all numbers are 0 or above."""

    def bound(o):
        p = exponent if exponent is not None else float(np.max(o.constants[o.node.inputs[1]]))
        edge = o.most + o.own if p >= 1 else o.least() - o.own
        slope = abs(p) * np.maximum(edge, 1e-30) ** (p - 1)
        far = NOTHING if p < 0 else o.own**p
        carried = slope * o.own if p >= 1 else np.where(edge > 0, slope * o.own, far)
        # Between two numbers from 0 on, the difference of roots is at most the difference's root.
        carried = np.minimum(carried, far) if 0 < p < 1 else carried
        return carried + FUNCTION * o.out

    return bound


def wave(o):
    return o.own + FUNCTION * (2 + np.minimum(o.most, 10.0))


def squared_difference(o):
    size = sum(o.largest(i) for i in o.node.inputs)
    own = sum(o.error(i) for i in o.node.inputs) + 2 * U * size
    return 2 * size * own + own * own + 4 * U * size * size


def add_n(o):
    terms = len(o.node.inputs)
    return sum(o.error(i) + U * terms * o.largest(i) for i in o.node.inputs)


def cumulated(o):
    axis = int(o.constants[o.node.inputs[1]])
    n = o.graph.shapes[o.x][axis]
    return o.linear(n, n)


def normalised(o):
    """x / max(length, 1e-6) moves by the error's length over that, less the error's length."""
    v = o.array(o.x)
    n = v.shape[-1]
    lengths = np.sqrt((v * v).sum(-1)).reshape(len(v), -1).min(1)
    error = np.sqrt(n) * o.own
    return error / np.maximum(lengths - error, 1e-6) + U * (n + 8) + FUNCTION


def product(o):
    x, y = o.node.inputs
    if y in o.graph.live:
        k = o.graph.shapes[x][-2 if o.node.attrs.get("adjX") else -1]
        a, b = o.largest(x), o.largest(y)
        return k * (o.error(x) * b + o.error(y) * a + U * (k + 4) * a * b)
    w = np.abs(o.constants[y].astype(np.float64))
    axis = -1 if o.node.attrs.get("adjY") else -2
    return o.linear(w.sum(axis).max(), w.shape[axis]) + w.shape[axis] * o.error(y) * o.most


def resized(o):
    # Places of pixels are computed in float32 too.
    sizes = [*o.graph.shapes[o.x][1:], *o.graph.shapes[o.node.outputs[0]][1:]]
    return o.linear(1.0, 16 + 4 * max(sizes))


def enlarged(o):
    _, weights, _, *bias = o.node.inputs
    w = np.abs(o.constants[weights].astype(np.float64)).reshape(len(o.constants[weights]), -1)
    terms = w.shape[1]
    bias = o.largest(bias[0]) if bias else 0.0
    return o.linear(w.sum(1).max(), terms, bias) + terms * o.error(weights) * o.most


BOUNDS = {
    **dict.fromkeys(
        ("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL"), compared
    ),
    "FLOOR": whole(0.0),
    "CEIL": whole(0.0),
    "ROUND": whole(0.5),
    "SIGN": sign,
    "CAST": cast,
    "ONE_HOT": one_hot,
    "EXP": exponential,
    "LOG": logarithm,
    "POW": power(None),
    "SQRT": power(0.5),
    "RSQRT": power(-0.5),
    "SQUARE": power(2.0),
    "SIN": wave,
    "COS": wave,
    "SQUARED_DIFFERENCE": squared_difference,
    "ADD_N": add_n,
    "CUMSUM": cumulated,
    "L2_NORMALIZATION": normalised,
    "BATCH_MATMUL": product,
    "RESIZE_BILINEAR": resized,
    "TRANSPOSE_CONV": enlarged,
}
"""The operators whose errors are neither those of an operation of ONNX nor moved."""


def with_values(of_others):
    """The rule of bounds.py for all other nodes, extended by those of this file."""

    def one(node, *given):
        return (
            BOUNDS[node.op](Given(node, *given)) if node.op in BOUNDS else of_others(node, *given)
        )

    return one


def extend():
    """Lets bounds.py know the operators of this file."""
    bounds.one = with_values(bounds.one)
