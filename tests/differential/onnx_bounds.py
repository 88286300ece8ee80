"""Bounds of operations that look for elements, of attention, of signals and of other functions.

bounds.py says what a bound is. Each rule here gets a `View` of its node.
"""

from dataclasses import dataclass
from typing import Callable

import numpy as np

U = 2.0**-23
FUNCTION = 16 * U
NOTHING = 1e9
"""The error of what may be either of two values."""


def jumps(distance, error):
    """0, or NOTHING for a record in which a number is so near to a jump that it may be beyond."""
    d = np.asarray(distance, np.float64)
    near = d.reshape(len(d), -1) <= np.reshape(error, (-1, 1)) * 2
    return np.where((near & (np.reshape(error, (-1, 1)) > 0)).any(1), NOTHING, 0.0)


@dataclass
class View:
    """A node with the largest magnitudes, errors and values of what it reads."""

    node: object
    graph: object
    inputs: list
    x: str
    """The first input that is computed from the record."""
    m: object
    """The largest magnitudes of x, one for each record."""
    e: object
    """The bound of x."""
    out: object
    """The largest magnitudes of the first result."""
    largest: Callable
    error: Callable
    array: Callable

    @property
    def attrs(self):
        return self.node.attrs

    def linear(self, gain, terms):
        return gain * self.e + U * (terms + 4) * gain * self.m

    def along(self, axis):
        """The place of an axis of x in its values, which have the records in front."""
        return self.graph.axes(self.x).index(axis % len(self.graph.shapes[self.x])) + 1

    def ratio(self):
        """How many elements become one."""
        return self.graph.size(self.x) / max(1, self.graph.size(self.node.outputs[0]))


def gaps(values, axis):
    """The distances of the elements along an axis from their neighbours in order."""
    v = np.sort(np.moveaxis(values, axis, -1), -1)
    return np.diff(v, axis=-1)


def of_extreme(v):
    """`ArgMax` and `ArgMin`: the first two in order must not change places."""
    sign = 1 if v.node.op == "ArgMax" else -1
    near = gaps(sign * v.array(v.x), v.along(v.attrs.get("axis", 0)))
    return jumps(near[..., -1:], v.e + np.zeros_like(v.m))


def of_hardmax(v):
    values, rank = v.array(v.x), len(v.graph.shapes[v.x])
    axis = v.attrs.get("axis", -1 if v.graph.version >= 13 else 1)
    if v.graph.version < 13:
        at = v.along(axis)
        values = values.reshape(*values.shape[:at], -1)
        return jumps(gaps(values, at)[..., -1:], v.e + np.zeros_like(v.m))
    return jumps(gaps(values, v.along(axis % rank))[..., -1:], v.e + np.zeros_like(v.m))


def of_top(v):
    """The values in order move by no more than the largest error; their indices may jump."""
    near = gaps(v.array(v.x), v.along(v.attrs.get("axis", -1)))
    indices = jumps(near, v.e + np.zeros_like(v.m))
    return dict(zip(v.node.outputs, (v.e, indices)))


def of_normalised(v):
    """`LpNormalization`: division by a norm, which is largest where it is small."""
    p, axis = v.attrs.get("p", 2), v.along(v.attrs.get("axis", -1))
    values = np.abs(v.array(v.x))
    n = values.shape[axis]
    norm = (values**p).sum(axis) ** (1 / p)
    least = np.maximum(norm.reshape(len(v.m), -1).min(1), 1e-30)
    gain = 1 + n ** (1 / p) * v.out
    return gain * v.e / least + (U * (n + 8) + FUNCTION) * v.out


def of_product(v):
    n = v.ratio()
    top = v.m + v.e
    return n * v.e * top ** (n - 1) + U * (n + 4) * top**n


def of_remainder(v):
    """`Mod` of floats as C has it: it jumps at each multiple of the divisor but 0."""
    values, c = v.array(v.x), v.largest(v.inputs[1])
    if v.graph.kinds[v.x] not in ("float32", "float64", "float16", "bfloat16"):
        return 0.0
    whole = np.round(values / c)
    far = np.where(whole == 0, np.inf, np.abs(values - whole * c))
    # A quotient that is a whole number is exact.
    certain = np.reshape(v.e + np.zeros_like(v.m) == 0, (-1, *[1] * (far.ndim - 1)))
    far = np.where((far == 0) & certain, np.inf, far)
    return v.e + jumps(far, v.e + U * v.m) + 4 * U * v.m


def of_angle(v):
    """The functions of trigonometry, by their slopes over the numbers of a record."""
    op, m = v.node.op, v.m + v.e
    if op == "Tan":
        slope = 2 * (1 + v.out**2)
        return slope * v.e + (FUNCTION + U * m) * slope
    if op in ("Sinh", "Cosh"):
        slope = np.cosh(np.minimum(m, 80.0))
        return slope * v.e + FUNCTION * (slope + m * slope / 16)
    if op == "Acosh":
        least = v.array(v.x).reshape(len(v.m), -1).min(1) - v.e
        slope = 1 / np.sqrt(np.maximum(least**2 - 1, 1e-12))
    elif op == "Atanh":
        slope = 1 / np.maximum(1 - m**2, 1e-12)
    elif op in ("Asin", "Acos"):
        slope = 1 / np.sqrt(np.maximum(1 - m**2, 1e-12))
    else:
        slope = 1.0
    return slope * v.e + FUNCTION * (v.out + 1) * np.maximum(1.0, slope)


def of_lp_pool(v):
    p, n = v.attrs.get("p", 2), np.prod(v.attrs["kernel_shape"])
    return n ** (1 / p) * v.e + (U * (n + 4) + 3 * FUNCTION) * v.out


def of_einsum(v):
    """Sums of products along the letters that the result lacks."""
    given, made = v.attrs["equation"].replace(" ", "").split("->")
    sizes = {}
    for letters, name in zip(given.split(","), v.inputs):
        sizes |= dict(zip(letters, v.graph.shapes[name]))
    n = np.prod([d for letter, d in sizes.items() if letter not in made])
    if len(v.inputs) == 1:
        return v.linear(n, n)
    a, b = v.inputs
    both = v.error(a) * v.largest(b) + v.error(b) * (v.largest(a) + v.error(a))
    return n * both + U * (n + 4) * n * v.largest(a) * v.largest(b)


def of_fourier(v):
    """Sums of products with the cosines and sines of a circle."""
    if v.node.op == "STFT":
        n = 2 * v.graph.shapes[v.node.outputs[0]][-2]
        window = v.largest(v.node.inputs[2]) if v.node.inputs[2:3] > [""] else 1.0
        return v.linear(n * max(window, 1e-30), n) + FUNCTION * n * window * v.m
    n = max(v.graph.dims(v.x) + v.graph.dims(v.node.outputs[0])) + 4
    parts = v.graph.shapes[v.x][-1]
    gain = parts * (1 if v.attrs.get("inverse") else n)
    return v.linear(gain, parts * n) + FUNCTION * gain * v.m


def of_rotation(v):
    c, s = v.inputs[1:3]
    both = v.largest(c) + v.largest(s)
    angles = v.error(c) + v.error(s)
    return both * v.e + (v.m + v.e) * angles + 8 * U * both * v.m


def of_attention(v):
    """An error of the scores multiplies each probability by no more than exp of its double."""
    q, k, value = v.inputs[:3]
    shape = v.graph.shapes
    size = shape[q][-1] // (v.attrs["q_num_heads"] if len(shape[q]) == 3 else 1)
    places = shape[k][-2]
    scale = v.attrs.get("scale", 1 / np.sqrt(size))
    top = scale * size * v.largest(q) * v.largest(k)
    score = (
        scale * size * (v.error(q) * v.largest(k) + v.error(k) * (v.largest(q) + v.error(q)))
        + U * (size + 8) * top
    )
    for mask in v.inputs[3:4]:
        if v.graph.kinds[mask] != "bool":
            score = score + v.error(mask) + U * (v.largest(mask) + top)
    if v.attrs.get("softcap"):
        score = score + FUNCTION * v.attrs["softcap"]
    change = np.expm1(np.minimum(2 * score, 5.0))
    most = v.largest(value) + v.error(value)
    return v.error(value) + (change + U * (places + 16) + 2 * FUNCTION) * most


def of_power(v):
    """`Pow` of a base above 0 and an exponent that is computed."""
    x, y = v.inputs
    base = v.array(x)
    least = base.min() if x not in v.graph.live else base.reshape(len(v.m), -1).min(1)
    left = np.maximum(least - v.error(x), 1e-30)
    logs = np.maximum(np.abs(np.log(left)), np.abs(np.log(v.largest(x) + v.error(x))))
    relative = v.largest(y) * v.error(x) / left + logs * v.error(y)
    return v.out * (np.expm1(np.minimum(2 * relative, 5.0)) + 2 * FUNCTION * (1 + logs))


RULES = {
    "ArgMax": of_extreme,
    "ArgMin": of_extreme,
    "Hardmax": of_hardmax,
    "TopK": of_top,
    "LpNormalization": of_normalised,
    "ReduceProd": of_product,
    "Mod": of_remainder,
    "LpPool": of_lp_pool,
    "Einsum": of_einsum,
    "DFT": of_fourier,
    "STFT": of_fourier,
    "RotaryEmbedding": of_rotation,
    "Attention": of_attention,
    **dict.fromkeys("Tan Sinh Cosh Asinh Acosh Atanh Atan Asin Acos".split(), of_angle),
}
