"""Rules for TensorFlow Lite's operators of values: functions, comparisons, choices, repetitions,
resized images. Each adds nodes of what docs/TFLITE.md promises."""

import numpy as np

from graph import Node, Unfit

NUMBERS = ("float32", "int32", "int64")
EVERY = (*NUMBERS, "bool")
COMPARISONS = ("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL")


def function(op):
    def rule(g):
        x = g.operand()
        g.node(op, [x], g.shapes[x][1:])

    return rule


def small(g, x):
    """Numbers of a function whose results are near 0."""
    return g.node(g.among(["TANH", "LOGISTIC", "RELU6"]), [x], g.shapes[x][1:])


def positive(g, x):
    """Numbers above 0.1 made of others."""
    y = g.node(g.among(["ABS", "LOGISTIC", "RELU"]), [x], g.shapes[x][1:])
    return g.node(
        "ADD", [y, g.weight(np.float32(0.25))], g.shapes[x][1:], {"fusedActivationFunction": 0}
    )


def exponential(g):
    x = small(g, g.operand())
    g.node("EXP", [x], g.shapes[x][1:])


def of_positive(op):
    def rule(g):
        x = g.operand()
        if op == "SQRT" and g.chance(0.3):
            x = g.node("RELU", [x], g.shapes[x][1:])
        else:
            x = positive(g, x)
        g.node(op, [x], g.shapes[x][1:])

    return rule


def power(g):
    x = g.operand((1, 2, 3, 4))
    exponent = g.among([-1, -0.5, 0.5, 0.75, 1, 2, 3, 4])
    x = positive(g, x) if exponent < 1 else small(g, x) if exponent > 2 else x
    shape = g.among([[], [1], [1, *g.shapes[x][1:]]])
    c = g.weight(np.full(shape, exponent, np.float32))
    g.node("POW", [x, c], g.shapes[x][1:], tags=[f"exponent {exponent}"])


def repeated(g, dims):
    """Sizes of a constant that goes with a value of [N, *dims]."""
    whole = [1, *dims]
    return [1 if g.chance(0.3) else d for d in whole[g.int(0, len(whole)) :]]


def constant(g, shape, kind):
    """A constant of this type: floats, small integers or truth values."""
    if kind == "float32":
        return g.floats(shape)
    if kind == "bool":
        return g.weight(g.random.random(shape) < 0.5)
    return g.weight(g.random.integers(-3, 4, shape).astype(kind))


def partner(g, x):
    """Another value of the type of x: as large, or with size 1 along some axes."""
    dims, kind = g.shapes[x][1:], g.kinds[x]
    same = sorted(
        n
        for n in g.live
        if n != x and g.shapes[n] == g.shapes[x] and g.kinds[n] == kind and n not in g.sizes
    )
    if same and g.chance(0.5):
        return g.among(same)
    if dims and g.chance(0.6) and kind != "bool":
        axes = sorted({g.int(1, len(dims)) for _ in range(g.int(1, len(dims)))})
        shape = [1 if i + 1 in axes else d for i, d in enumerate(dims)]
        return g.node("REDUCE_MAX", [x, g.ints(axes)], shape, {"keepDims": True})
    if kind == "float32":
        return g.node(g.among(["TANH", "ABS", "NEG"]), [x], dims)
    return g.node("LOGICAL_NOT", [x], dims) if kind == "bool" else x


def pair(g, op, x, result=None, attrs=None):
    """An operator on a value and a constant or another value, in any order."""
    if g.chance(0.5):
        shape = repeated(g, g.shapes[x][1:])
        both = [x, constant(g, shape, g.kinds[x])]
        tag = f"constant of {len(shape)} axes"
    else:
        both = [x, partner(g, x)]
        tag = "two values" if g.shapes[both[0]] == g.shapes[both[1]] else "one repeated"
    if g.chance(0.4):
        both.reverse()
    return g.node(op, both, g.shapes[x][1:], attrs, [tag], result or g.kinds[x])


def crossed(g, op, x, result=None, attrs=None):
    """An operator on two values of which each is repeated along an axis of the other."""
    rank = len(g.shapes[x])
    first = g.int(1, rank - 2)
    reduced = lambda axes: g.node(
        "REDUCE_MAX",
        [x, g.ints(axes)],
        [1 if i + 1 in axes else d for i, d in enumerate(g.shapes[x][1:])],
        {"keepDims": True},
    )
    both = [reduced([first]), reduced(list(range(first + 1, rank)))]
    g.random.shuffle(both)
    g.node(op, both, g.shapes[x][1:], attrs, ["both repeated"], result or g.kinds[x])


def two(op, kinds=("float32",), ranks=(1, 2, 3, 4), result=None):
    def rule(g):
        x = g.operand(ranks, kinds)
        if len(g.shapes[x]) >= 3 and g.kinds[x] != "bool" and g.chance(0.15):
            return crossed(g, op, x, result)
        pair(g, op, x, result)

    return rule


def repeated_arithmetic(g):
    x = g.operand((3, 4))
    crossed(g, g.among(["ADD", "SUB", "MUL"]), x, attrs={"fusedActivationFunction": 0})


def reciprocal(g):
    x = positive(g, g.operand((1, 2, 3, 4)))
    c = g.floats(repeated(g, g.shapes[x][1:]))
    g.node(
        "DIV",
        [c, x],
        g.shapes[x][1:],
        {"fusedActivationFunction": 0},
        [f"constant of {len(g.shapes[c])} axes, first"],
    )


def add_n(g):
    x = g.operand()
    dims = g.shapes[x][1:]
    same = sorted(n for n in g.live if g.shapes[n] == g.shapes[x] and g.kinds[n] == "float32")
    parts = [x, *(g.among(same) for _ in range(g.int(1, 2)))]
    if g.records and g.chance(0.3):
        parts.append(g.floats([1, *dims]))
    g.random.shuffle(parts)
    g.node("ADD_N", parts, dims, tags=[f"{len(parts)} inputs"])


def truth(g, x=None):
    """Truth values, of the sizes of x if it is given."""
    found = sorted(
        n for n in g.live if g.kinds[n] == "bool" and (x is None or g.shapes[n] == g.shapes[x])
    )
    if found and g.chance(0.5):
        return g.among(found)
    if x is None:
        x = g.operand((1, 2, 3, 4), NUMBERS)
    return pair(g, g.among(COMPARISONS), x, "bool")


def logic(op):
    def rule(g):
        x = truth(g)
        if len(g.shapes[x]) > 4:
            raise Unfit
        if op == "LOGICAL_NOT":
            return g.node(op, [x], g.shapes[x][1:])
        pair(g, op, x)

    return rule


def choice_of_repeated(g):
    """A choice between values and constants, by truth values along some axes."""
    x = g.operand((2, 3, 4))
    dims = g.shapes[x][1:]
    axes, _ = some_axes(g, x)
    shape = [1 if i + 1 in axes else d for i, d in enumerate(dims)]
    condition = truth(g, g.node("MEAN", [x, g.ints(axes)], shape, {"keepDims": True}))
    if condition in g.live and g.shapes[condition][1:] != shape:
        raise Unfit
    other = g.among([g.node("TANH", [x], dims), constant(g, repeated(g, dims), "float32")])
    both = [x, other]
    g.random.shuffle(both)
    g.node("SELECT_V2", [condition, *both], dims, tags=["condition repeated"], kind="float32")


def choice(op):
    def rule(g):
        x = g.operand((1, 2, 3, 4), NUMBERS)
        dims, kind = g.shapes[x][1:], g.kinds[x]
        condition = truth(g, x)
        if op == "SELECT":
            y = g.node("TANH", [x], dims) if kind == "float32" else partner(g, x)
            if g.shapes[y] != g.shapes[x]:
                raise Unfit
        else:
            y = partner(g, x) if g.chance(0.5) else constant(g, repeated(g, dims), kind)
            if y in g.live and g.chance(0.2):
                condition = constant(g, repeated(g, dims), "bool")
        both = [x, y]
        g.random.shuffle(both)
        tag = "two values" if y in g.live else "a constant"
        g.node(op, [condition, *both], dims, tags=[tag], kind=kind)

    return rule


def conversion(g):
    x = truth(g) if g.chance(0.4) else g.operand()
    if g.kinds[x] == "float32" and g.chance(0.3):
        # Each type has numbers as small as these.
        return g.cast_to(small(g, x), g.among(["uint8", "int8", "int16"]))
    kinds = ("int32", "int64", "bool") if g.kinds[x] == "float32" else NUMBERS
    g.cast_to(x, g.among(kinds))


def through_integers(g):
    """Integers of numbers whose range is known, and back."""
    x = g.operand()
    x = g.node(g.among(["LOGISTIC", "TANH"]), [x], g.shapes[x][1:])
    # Numbers at the ends of the integers' range would be cut off.
    scale, zero = (1 / 100, g.int(-20, 20)) if g.nodes[-1].op == "TANH" else (1 / 200, -100)
    name = g.name("quantised")
    g.shapes[name], g.kinds[name] = g.shapes[x], "int8"
    g.scales[name] = (np.array([scale], np.float32), np.array([zero]), 0)
    g.live.add(name)
    made = Node("QUANTIZE", [x], [name])
    g.hit(made, [], len(g.shapes[x]), "float32")
    g.nodes.append(made)
    g.node("DEQUANTIZE", [name], g.shapes[x][1:], kind="float32")


def whole_record(g):
    """A product with all values of a record."""
    x = g.operand((3, 4))
    k, m = g.size(x), g.int(1, 9)
    w = g.floats([m, k], 1 / np.sqrt(k))
    bias = g.weight(g.random.normal(0, 0.3, m).astype(np.float32))
    g.node("FULLY_CONNECTED", [x, w, bias], [m], g.fused(), ["whole record"])


def joined(g):
    """Values beside constants, which have a row for each record."""
    if not g.records:
        raise Unfit
    x = g.operand((2, 3, 4))
    a, written = g.inner(x)
    shape = [1, *g.shapes[x][1:]]
    parts = [x]
    for _ in range(g.int(1, 2)):
        shape[a] = g.int(1, 3)
        alike = g.chance(0.3)
        parts.append(g.weight(np.full(shape, 0.5, np.float32)) if alike else g.floats(shape))
    if g.chance(0.3):
        parts.append(x)
    g.random.shuffle(parts)
    shape[a] = sum(g.shapes[p][a] for p in parts)
    attrs = {"axis": written, "fusedActivationFunction": 0}
    g.node("CONCATENATION", parts, shape[1:], attrs, ["with constants"])


def counted(g):
    """A flatten to the number of records that is a product of sizes."""
    x = g.operand((2, 3, 4))
    if g.records:
        raise Unfit
    dims = g.shapes[x][1:]
    int32 = {"outType": g.code("int32")}
    sizes = g.node("SHAPE", [x], [1 + len(dims)], int32, kind="int32")
    part = g.node(
        "STRIDED_SLICE",
        [sizes, g.ints([0]), g.ints([1]), g.ints([1])],
        [1],
        {"endMask": 0},
        kind="int32",
    )
    keep = g.chance(0.5)
    first = g.node(
        "REDUCE_PROD",
        [part, g.ints([0])],
        [1] if keep else [],
        {"keepDims": keep},
        kind="int32",
    )
    g.sizes = g.sizes | {sizes, part, first}
    size = g.ints([g.size(x)] if keep else g.size(x))
    op, attrs = ("CONCATENATION", {"axis": 0}) if keep else ("PACK", {"valuesCount": 2, "axis": 0})
    shape = g.node(op, [first, size], [2], attrs, kind="int32")
    g.sizes = g.sizes | {shape}
    g.node("RESHAPE", [x, shape], [g.size(x)], tags=["counted"])


def some_axes(g, x):
    """Axes behind the records in any order, from the front or from the end."""
    rank = len(g.shapes[x])
    axes = [a for a in range(1, rank) if g.chance(0.5)] or [rank - 1]
    return axes, [int(a) - rank * g.chance(0.3) for a in g.random.permutation(axes)]


def reduce(op, kinds=("float32",), ranks=(2, 3, 4, 5)):
    def rule(g):
        x = g.operand(ranks, kinds)
        axes, written = some_axes(g, x)
        keep = g.chance(0.5)
        shape = [
            1 if i in axes else d
            for i, d in enumerate(g.shapes[x])
            if i and (keep or i not in axes)
        ]
        g.node(op, [x, g.ints(written)], shape, {"keepDims": keep})

    return rule


def cumulated(g):
    x = g.operand((2, 3, 4))
    _, written = g.inner(x)
    g.node(
        "CUMSUM",
        [x, g.ints(written)],
        g.shapes[x][1:],
        {"exclusive": g.chance(0.5), "reverse": g.chance(0.5)},
    )


def normalised(g):
    # Rows are so long that none is divided by the least length.
    x = g.operand((2, 3, 4))
    if g.chance(0.5):
        x = positive(g, x)
    else:
        sides = [[0, 0]] * (len(g.shapes[x]) - 1) + [[1, 0]]
        shape = [*g.shapes[x][1:-1], g.shapes[x][-1] + 1]
        x = g.node("PADV2", [x, g.ints(sides), g.weight(np.float32(0.75))], shape)
    g.node("L2_NORMALIZATION", [x], g.shapes[x][1:], {"fusedActivationFunction": 0})


def tile(g):
    x = g.operand((2, 3, 4), EVERY)
    times = [g.among([1, 1, 2, 3]) for _ in g.shapes[x][1:]]
    shape = [d * t for d, t in zip(g.shapes[x][1:], times)]
    g.node("TILE", [x, g.counts([1, *times])], shape)


def broadcast(g):
    """A shape of constants states the number of records."""
    if not g.records:
        raise Unfit
    x = g.operand((2, 3, 4), NUMBERS)
    shape = [g.int(1, 4) if d == 1 else d for d in g.shapes[x][1:]]
    if g.chance(0.3):
        # The axis of the only record may be repeated behind a new one.
        shape = [g.int(1, 3), *shape]
    g.node("BROADCAST_TO", [x, g.counts([1, *shape])], shape)


def gather(g):
    x = g.operand((2, 3, 4), NUMBERS)
    a, written = g.inner(x)
    count = g.among([[], [1], [g.int(1, 5)], [2, 2]])
    at = g.random.integers(0, g.shapes[x][a], count).astype(g.among(["int32", "int64"]))
    shape = [*g.shapes[x][1:a], *count, *g.shapes[x][a + 1 :]]
    g.node("GATHER", [x, g.weight(at)], shape, {"axis": written}, [f"{len(count)} axes"])


def pack(g):
    x = g.operand((1, 2, 3), NUMBERS)
    dims, rank = g.shapes[x][1:], len(g.shapes[x])
    same = sorted(
        n
        for n in g.live
        if g.shapes[n] == g.shapes[x] and g.kinds[n] == g.kinds[x] and n not in g.sizes
    )
    parts = [x, *(g.among(same) for _ in range(g.int(0, 2)))]
    if g.records and g.chance(0.3):
        parts.append(constant(g, [1, *dims], g.kinds[x]))
    g.random.shuffle(parts)
    a = g.int(1, rank)
    attrs = {"valuesCount": len(parts), "axis": a - (rank + 1) * g.chance(0.3)}
    g.node("PACK", parts, [*dims[: a - 1], len(parts), *dims[a - 1 :]], attrs)


def reverse(g):
    x = g.operand((2, 3, 4), EVERY)
    first = g.int(1, len(g.shapes[x]) - 1)
    # LiteRT turns axes around that are neighbours.
    axes = list(range(first, g.int(first, len(g.shapes[x]) - 1) + 1))
    written = [a - len(g.shapes[x]) * g.chance(0.3) for a in axes]
    g.node("REVERSE_V2", [x, g.ints(written)], g.shapes[x][1:])


def one_hot(g):
    x = g.operand((1, 2, 3))
    # No index is below 0, where mortonnet counts from the end.
    x = g.node("RELU6", [x], g.shapes[x][1:])
    x = g.cast_to(x, g.among(["int32", "int64"]))
    depth, rank = g.int(1, 6), len(g.shapes[x])
    a = g.int(1, rank)
    kind = g.among(["float32", "float32", "int32"])
    on, off = g.among([(1, 0), (1, 0), (3, -2)])
    shape = [*g.shapes[x][1:a], depth, *g.shapes[x][a:]]
    g.node(
        "ONE_HOT",
        [x, g.ints(depth), g.weight(np.array(on, kind)), g.weight(np.array(off, kind))],
        shape,
        {"axis": -1 if a == rank and g.chance(0.5) else a},
        kind=kind,
    )


def product(g):
    x = g.operand((3, 4))
    *ahead, rows, inner = g.shapes[x][1:]
    attrs = {"adjX": g.chance(0.3), "adjY": g.chance(0.4)}
    if attrs["adjX"]:
        rows, inner = inner, rows
    if g.chance(0.5):
        columns = g.int(1, 8)
        shape = [columns, inner] if attrs["adjY"] else [inner, columns]
        shape = g.among([[], [1] * (1 + len(ahead))]) + shape
        y, tag = (
            g.weight(g.random.normal(0, 1 / np.sqrt(inner), shape).astype(np.float32)),
            "matrix",
        )
    else:
        y, tag = small(g, x), "two values"
        if len(ahead) == 1 and g.chance(0.4):
            # The matrices of one side are repeated.
            tag, shape = "one repeated", [1, *g.shapes[x][2:]]
            y = g.node("REDUCE_MAX", [y, g.ints([1])], shape, {"keepDims": True})
        if attrs["adjX"] == attrs["adjY"]:
            order = [*range(len(ahead) + 1), len(ahead) + 2, len(ahead) + 1]
            y = g.node("TRANSPOSE", [y, g.ints(order)], [g.shapes[y][p] for p in order[1:]])
        columns = rows
    g.node("BATCH_MATMUL", [x, y], [*ahead, rows, columns], attrs, [tag])


def mirrored(g):
    x = g.operand((2, 3, 4))
    mode = g.int(0, 1)
    most = lambda n: min(2, n - 1 + mode)
    sides = [[0, 0]] + [[g.int(0, most(n)), g.int(0, most(n))] for n in g.shapes[x][1:]]
    shape = [a + d + b for (a, b), d in zip(sides, g.shapes[x])][1:]
    g.node("MIRROR_PAD", [x, g.counts(sides)], shape, {"mode": mode}, [f"mode {mode}"])


def resize(op):
    def rule(g):
        x = g.operand((4,))
        corners, centres = g.among([(False, False), (True, False), (False, True)])
        to = [g.int(1, 9), g.int(1, 9)]
        g.node(
            op,
            [x, g.ints(to)],
            [*to, g.shapes[x][3]],
            {"alignCorners": corners, "halfPixelCenters": centres},
            ["corners" if corners else "centres" if centres else "plain"],
        )

    return rule


def depth_to_space(g):
    x = g.operand((4,))
    h, w, c = g.shapes[x][1:]
    block = g.among([b for b in (1, 2, 3) if c % (b * b) == 0])
    g.node("DEPTH_TO_SPACE", [x], [h * block, w * block, c // block**2], {"blockSize": block})


def space_to_depth(g):
    x = g.operand((4,))
    h, w, c = g.shapes[x][1:]
    block = g.among([b for b in (1, 2, 3) if h % b == 0 and w % b == 0])
    g.node("SPACE_TO_DEPTH", [x], [h // block, w // block, c * block**2], {"blockSize": block})


def enlarged(g):
    """A shape of constants states the number of records."""
    if not g.records:
        raise Unfit
    x = g.operand((4,))
    h, w, c = g.shapes[x][1:]
    attrs = {"padding": g.int(0, 1), "strideH": g.int(1, 3), "strideW": g.int(1, 3)}
    size, outputs, to = [g.int(1, 3), g.int(1, 3)], g.int(1, 6), []
    for n, k, s in zip((h, w), size, (attrs["strideH"], attrs["strideW"])):
        # The convolution of the result has one of several sizes that give the image's.
        least = (n - 1) * s + (1 if attrs["padding"] == 0 else k)
        to.append(least + g.int(0, s - 1))
    attrs |= g.fused()
    scale = 1 / np.sqrt(c * size[0] * size[1])
    weights = g.weight(g.random.normal(0, scale, [outputs, *size, c]).astype(np.float32))
    bias = [g.weight(g.random.normal(0, 0.3, outputs).astype(np.float32))] if g.chance(0.5) else []
    tags = ["biases"] if bias else []
    g.node(
        "TRANSPOSE_CONV",
        [g.ints([1, *to, outputs]), weights, x, *bias],
        [*to, outputs],
        attrs,
        tags,
    )


RULES = {
    **{
        op: function(op) for op in ("ABS", "SIN", "COS", "FLOOR", "CEIL", "ROUND", "SIGN", "SQUARE")
    },
    **{op: of_positive(op) for op in ("SQRT", "RSQRT", "LOG")},
    "EXP": exponential,
    "POW": power,
    "SQUARED_DIFFERENCE": two("SQUARED_DIFFERENCE"),
    "MAXIMUM of values": two("MAXIMUM", NUMBERS),
    "MINIMUM of values": two("MINIMUM", NUMBERS),
    "ADD, SUB, MUL, both repeated": repeated_arithmetic,
    "DIV of a constant": reciprocal,
    "ADD_N": add_n,
    **{op: two(op, NUMBERS, result="bool") for op in COMPARISONS[2:]},
    **{op: two(op, EVERY, result="bool") for op in COMPARISONS[:2]},
    **{op: logic(op) for op in ("LOGICAL_AND", "LOGICAL_OR", "LOGICAL_NOT")},
    "SELECT": choice("SELECT"),
    "SELECT_V2": choice("SELECT_V2"),
    "SELECT_V2 by repeated truth": choice_of_repeated,
    "CAST to integers": conversion,
    "QUANTIZE and DEQUANTIZE": through_integers,
    "FULLY_CONNECTED of a record": whole_record,
    "CONCATENATION with constants": joined,
    "REDUCE_PROD of sizes": counted,
    "REDUCE_MIN": reduce("REDUCE_MIN", NUMBERS),
    "REDUCE_MAX along any axes": reduce("REDUCE_MAX", NUMBERS),
    "MEAN along any axes": reduce("MEAN"),
    "SUM along any axes": reduce("SUM"),
    "CUMSUM": cumulated,
    "L2_NORMALIZATION": normalised,
    "TILE": tile,
    "BROADCAST_TO": broadcast,
    "GATHER": gather,
    "PACK": pack,
    "REVERSE_V2": reverse,
    "ONE_HOT": one_hot,
    "BATCH_MATMUL": product,
    "MIRROR_PAD": mirrored,
    "RESIZE_BILINEAR": resize("RESIZE_BILINEAR"),
    "RESIZE_NEAREST_NEIGHBOR": resize("RESIZE_NEAREST_NEIGHBOR"),
    "DEPTH_TO_SPACE": depth_to_space,
    "SPACE_TO_DEPTH": space_to_depth,
    "TRANSPOSE_CONV": enlarged,
    "TRANSPOSE_CONV again": enlarged,
}


def promised():
    """The entries of the table for these rules."""
    every, most, three = (1, 2, 3, 4, 5), (1, 2, 3, 4), (2, 3, 4)
    plain = {op: every for op in ("ABS", "FLOOR", "CEIL", "ROUND", "SIGN", "SQUARE", "SIN", "COS")}
    plain |= {op: every for op in ("EXP", "LOG", "SQRT", "RSQRT")}
    plain |= {op: three for op in ("REVERSE_V2", "TILE")}
    of = {op: {"-": ranks} for op, ranks in plain.items()}
    two_sides = {"one repeated": (3,), "two values": (3,), "constant of 2 axes": (3,)}
    for op in ("SQUARED_DIFFERENCE", "MAXIMUM", "MINIMUM", *COMPARISONS):
        of[op] = two_sides
    for op in ("ADD", "SUB", "MUL"):
        of[op] = {"both repeated": (3, 4)}
    of |= {
        "POW": {f"exponent {p}": (2,) for p in (-1, -0.5, 0.5, 0.75, 1, 2, 3, 4)},
        "ADD_N": {"2 inputs": (3,), "3 inputs": (3,)},
        "CONCATENATION": {"with constants": three},
        "REDUCE_MIN": {"keepDims": (2, 3, 4, 5)},
        "CUMSUM": {"exclusive": three, "reverse": three},
        "L2_NORMALIZATION": {"fusedActivationFunction": three},
        "GATHER": {"axis": three, "0 axes": (3,), "1 axes": (3,), "2 axes": (3,)},
        "PACK": {"axis": (2, 3)},
        "BATCH_MATMUL": {"adjX": (3, 4), "adjY": (3, 4), "matrix": (3,), "two values": (3,)}
        | {"one repeated": (4,)},
        "MIRROR_PAD": {"mode 0": three, "mode 1": three},
        "DEPTH_TO_SPACE": {"blockSize": (4,)},
        "SPACE_TO_DEPTH": {"blockSize": (4,)},
        "FULLY_CONNECTED": {"whole record": (3, 4)},
        "RESHAPE": {"counted": (3,)},
    }
    for op in ("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"):
        of[op] = {"plain": (4,), "corners": (4,), "centres": (4,)}
    of["TRANSPOSE_CONV"] = {t: (4,) for t in ("padding", "fusedActivationFunction", "biases")}
    wanted = [
        (op, tag, rank, "float32")
        for op, tags in of.items()
        for tag, ranks in tags.items()
        for rank in ranks
    ]
    truth = ("LOGICAL_AND", "LOGICAL_OR", "LOGICAL_NOT", "SELECT", "SELECT_V2", "CAST")
    wanted += [(op, "type", "", "bool") for op in truth]
    wanted += [("ONE_HOT", "type", "", kind) for kind in ("int32", "int64")]
    moves = ("REDUCE_MAX", "GATHER", "TILE", "CONCATENATION", "MAXIMUM", "SLICE")
    wanted += [(op, "type", "", "int32") for op in moves]
    return wanted + [("DENSIFY", "type", "", "float32"), ("BROADCAST_TO", "type", "", "float32")]
