"""What rules for random ONNX graphs ask of their operands."""

import numpy as np
from onnx import helper

from graph import Unfit
from onnx_constants import node, reduced, typed

EXACT = {
    "Identity",
    "Reshape",
    "Transpose",
    "Squeeze",
    "Unsqueeze",
    "Flatten",
    "Slice",
    "Gather",
    "Split",
    "Pad",
    "Concat",
    "MaxPool",
    "ReduceMax",
    "ReduceMin",
    "Relu",
    "Neg",
    "Abs",
    "Floor",
    "Ceil",
    "Round",
    "Sign",
    "Expand",
    "Tile",
    "Cast",
    "Equal",
    "Greater",
    "GreaterOrEqual",
    "Less",
    "LessOrEqual",
    "Not",
    "And",
    "Or",
    "Xor",
    "DepthToSpace",
    "SpaceToDepth",
    "OneHot",
    "TopK",
    "ArgMax",
    "ArgMin",
    "Hardmax",
    "GatherElements",
    "GatherND",
    "Scatter",
    "ScatterElements",
    "ScatterND",
    "Compress",
    "CenterCropPad",
    "CastLike",
}
"""Operations without a rounding."""


def code(kind):
    return 16 if kind == "bfloat16" else helper.np_dtype_to_tensor_dtype(np.dtype(kind))


def inner(g, x):
    """An axis but that of the records, from the front or the end."""
    rank = len(g.shapes[x])
    a = g.among(g.axes(x))
    return a, (a - rank if g.version >= 11 and g.chance(0.3) else a)


def positive(g, x):
    """Values that are not near 0, and not large."""
    way = g.among(["Sigmoid", "Exp", "Abs"])
    if way == "Exp":
        return node(g, "Exp", node(g, "Tanh", x))
    return node(g, "Add", node(g, way, x), typed(g, np.float32(g.among([0.5, 1.0]))))


def partner(g, x):
    """Another value as large as x, or one with size 1 along some axes."""
    same = sorted(
        n for n in g.live if n != x and g.shapes[n] == g.shapes[x] and g.kinds[n] == g.kinds[x]
    )
    if same and g.chance(0.6):
        return g.among(same)
    if len(g.axes(x)) >= 2 and g.chance(0.6):
        first = g.int(0, len(g.axes(x)) - 1)
        axes = g.axes(x)[first : None if g.chance(0.5) else g.int(first, 5) + 1]
        return reduced(g, g.among(["ReduceMean", "ReduceMax"]), x, axes, keepdims=1)
    return node(g, g.among(["Sigmoid", "Tanh", "Relu", "Neg"]), x)


def clean(g, name):
    """True if both sides have exactly the same numbers: those of an input, moved or rounded."""
    if name in g.inputs or name not in g.live:
        return True
    of = next(n for n in g.nodes if name in n.outputs)
    return of.op in EXACT and all(clean(g, i) for i in of.inputs if i and i not in g.sizes)


def sharp(g, **options):
    """An operand of an operation that jumps, mostly one with exact numbers."""
    for _ in range(6):
        before = len(g.nodes)
        x = g.operand(**options)
        if clean(g, x) or g.chance(0.1):
            return x
        for n in g.nodes[before:]:
            g.live -= set(n.outputs)
        del g.nodes[before:]
    return g.operand(**options)
