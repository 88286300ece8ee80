"""Random operators on quantised integers, with bounds of their errors.

ONNX Runtime adds such operators as floats, or has tables for them. So an integer may be the next
one where the real number is near the middle of two. All others must be the same.
"""

import numpy as np
from onnx import TensorProto, defs, helper
from onnx.reference import ReferenceEvaluator

from graph import Node, Unfit
from onnx_bounds import NOTHING, U, jumps
from onnx_constants import node, stored
from onnx_operands import sharp

MICROSOFT = "com.microsoft"
REAL = {
    "QLinearConv": "Conv",
    "QLinearMatMul": "MatMul",
    "QGemm": "Gemm",
    "QLinearAdd": "Add",
    "QLinearMul": "Mul",
    "QLinearConcat": "Concat",
    "QLinearAveragePool": "AveragePool",
    "QLinearGlobalAveragePool": "GlobalAveragePool",
    "QLinearLeakyRelu": "LeakyRelu",
    "QLinearSigmoid": "Sigmoid",
    "QLinearSoftmax": "Softmax",
}
"""The operations on the real numbers."""
OF_MICROSOFT = set(REAL) - {"QLinearConv", "QLinearMatMul"}
MOST = 500
"""Elements of a value."""


def steps(g, scale, kind):
    """A scale and a zero point."""
    zero = g.int(100, 150) if kind == "uint8" else g.int(-20, 20)
    return [stored(g, np.float32(scale)), stored(g, np.array(zero, kind))]


def integers(g, kind, **options):
    """Integers of a value, with their scale and zero point. The scale is a power of 2, by which
    numbers are divided exactly."""
    x = sharp(g, first=True, **options)
    of = steps(g, g.among([2.0**-6, 2.0**-5]), kind)
    return [node(g, "QuantizeLinear", x, *of), *of]


def weights(g, shape, axis=None):
    """Weights of 7 bits, as 8 bits saturate on some CPUs. One scale, or one for each of an axis."""
    q = g.random.integers(-64, 64, shape).astype(np.int8)
    count = max(1, q.size // (1 if axis is None else shape[axis]))
    of = () if axis is None or g.chance(0.5) else (shape[axis],)
    scale = (g.random.uniform(0.5, 1.5, of) / 40 / np.sqrt(count)).astype(np.float32)
    return [stored(g, q), stored(g, scale), stored(g, np.zeros(of, np.int8))]


def added(g, op, inputs, shape, kind, attrs=None):
    """Adds an operator whose sizes ONNX does not infer, and the real numbers of its result."""
    name = g.name(op)
    made = Node(op, inputs, [name], attrs or {}, MICROSOFT if op in OF_MICROSOFT else "")
    g.shapes[name], g.kinds[name] = list(shape), kind
    g.live.add(name)
    if g.size(name) > MOST:
        raise Unfit
    first = next(i for i in inputs if i in g.live)
    g.hit(made, list(attrs or {}), len(g.shapes[first]), kind)
    if op not in OF_MICROSOFT:
        since = defs.get_schema(op, g.version).since_version
        made.hits.append((op, f"set {since}", "", ""))
    g.nodes.append(made)
    return name


def layer(op):
    """A layer with weights, and biases in the steps of the sums."""

    def rule(g):
        kind, attrs = g.among(["uint8", "uint8", "int8"]), {}
        if op == "QLinearConv":
            x = integers(g, kind, ranks=(4,))
            n, c, h, w = g.shapes[x[0]]
            outputs, size = g.among([2, 3]), g.among([1, 3])
            groups = c if g.chance(0.3) else 1
            outputs *= groups
            of = weights(g, (outputs, c // groups, size, size), 0)
            attrs = {"pads": [size // 2] * 4, "group": groups}
            shape = [n, outputs, h, w]
        else:
            ranks = (2,) if op == "QGemm" else (2, 3)
            x = integers(g, kind, ranks=ranks)
            shape = g.shapes[x[0]]
            outputs = g.int(2, 6)
            turned = op == "QGemm" and g.chance(0.5)
            sizes = (outputs, shape[-1]) if turned else (shape[-1], outputs)
            of = weights(g, sizes, 0 if turned else 1)
            attrs = {"transB": int(turned)} if op == "QGemm" else {}
            shape = [*shape[:-1], outputs]
        result = steps(g, g.random.uniform(0.015, 0.03), kind)
        biases = [stored(g, g.random.integers(-900, 900, outputs).astype(np.int32))]
        parts = [*x, *of]
        order = {"QLinearConv": [*parts, *result, *biases], "QGemm": [*parts, *biases, *result]}
        y = added(g, op, order.get(op, [*parts, *result]), shape, kind, attrs)
        node(g, "DequantizeLinear", y, *result)

    return checked(rule)


def two(op):
    """An operation on two values of the same sizes."""

    def rule(g):
        kind = g.among(["uint8", "int8"])
        x = integers(g, kind, ranks=(2, 3, 4))
        shape = g.shapes[x[0]]
        of = steps(g, g.random.uniform(0.02, 0.05), kind)
        y = [node(g, "QuantizeLinear", g.operand((len(shape),), lambda d: d == shape), *of), *of]
        if g.shapes[y[0]] != shape:
            raise Unfit
        result = steps(g, g.random.uniform(0.02, 0.04), kind)
        attrs, inputs = {}, [*x, *y, *result]
        if op == "QLinearConcat":
            a = g.among(g.axes(x[0]))
            shape = [2 * d if i == a else d for i, d in enumerate(shape)]
            attrs, inputs = {"axis": a}, [*result, *x, *y]
        z = added(g, op, inputs, shape, kind, attrs)
        node(g, "DequantizeLinear", z, *result)

    return checked(rule)


def one(op):
    """An operation on one value."""

    def rule(g):
        kind, attrs = g.among(["uint8", "int8"]), {}
        image = "Pool" in op
        x = integers(g, kind, ranks=(4,) if image else (2, 3, 4))
        shape = list(g.shapes[x[0]])
        result = steps(g, g.random.uniform(0.011, 0.03), kind)
        if op in ("QLinearSigmoid", "QLinearSoftmax"):
            zero = stored(g, np.array(0 if kind == "uint8" else -128, kind))
            result = [stored(g, np.float32(1 / 256)), zero]
        if op == "QLinearLeakyRelu":
            attrs = {"alpha": float(np.float32(g.random.uniform(0.05, 0.5)))}
        if op == "QLinearSoftmax":
            if g.version < 13:
                raise Unfit
            attrs = {"axis": g.among(g.axes(x[0])[-1:]), "opset": 13}
        if op == "QLinearGlobalAveragePool":
            shape[2:] = [1, 1]
        if op == "QLinearAveragePool":
            size = [g.int(1, min(3, d)) for d in shape[2:]]
            attrs = {"kernel_shape": size}
            shape[2:] = [d - s + 1 for d, s in zip(shape[2:], size)]
        y = added(g, op, [*x, *result], shape, kind, attrs)
        node(g, "DequantizeLinear", y, *result)

    return checked(rule)


def checked(rule):
    """The rule, in graphs of float32 whose axis of the records does not move."""

    def draw(g):
        if g.kind != "float32" or g.moves or g.version < 10:
            raise Unfit
        rule(g)

    return draw


GRIDS = set("DequantizeLinear Cast CastLike Floor Ceil Round Sign".split())


def on_a_grid(g, x):
    """True if a value has steps. Many of them may be in the middle of two others' steps."""
    made = [n for n in g.nodes if x in n.outputs]
    return any(n.op in GRIDS or any(on_a_grid(g, i) for i in n.inputs if i in g.live) for n in made)


def dynamic(op):
    """Integers with the scale of the record, and a layer of them."""

    def rule(g):
        if not g.single or g.version < 11:
            raise Unfit
        image = op == "ConvInteger"
        x = sharp(g, ranks=(4,) if image else (2, 3), first=image)
        if on_a_grid(g, x):
            raise Unfit
        q, scale, zero = g.node("DynamicQuantizeLinear", [x], outputs=3)
        shape = g.shapes[x]
        outputs = g.int(2, 5)
        w = weights(g, (outputs, shape[1], 2, 2) if image else (shape[-1], outputs))
        attrs = {"pads": [1, 0, 0, 1]} if image else {}
        y = g.node(op, [q, w[0], zero, w[2]], attrs)[0]
        y = node(g, "Cast", y, to=TensorProto.FLOAT)
        node(g, "Mul", y, node(g, "Mul", scale, w[1]))

    return checked(rule)


RULES = {
    **{op: layer(op) for op in ("QLinearConv", "QLinearMatMul", "QGemm")},
    **{op: two(op) for op in ("QLinearAdd", "QLinearMul", "QLinearConcat")},
    **{op: one(op) for op in REAL if "Pool" in op or op.endswith(("Relu", "moid", "max"))},
    **{op: dynamic(op) for op in ("ConvInteger", "MatMulInteger")},
}
LEAST = dict.fromkeys(RULES, 10) | dict.fromkeys(["ConvInteger", "MatMulInteger"], 11)
KINDS = dict.fromkeys(RULES, "uint8")
"""The type of the first operand."""


def real(v, x, scale, zero, axis):
    """The real numbers of integers, in float64."""
    x, scale, zero = (v.array(n) for n in (x, scale, zero))
    if scale.size > 1:
        sizes = [-1 if i == axis else 1 for i in range(x.ndim)]
        scale, zero = scale.reshape(sizes), zero.reshape(sizes)
    return (x - zero) * scale


def exact(v):
    """The real numbers of a result, in float64 and in its steps, a record each."""
    op, inputs, attrs = v.node.op, v.node.inputs, dict(v.node.attrs)
    attrs.pop("opset", None)
    first = 2 if op == "QLinearConcat" else 0
    result = inputs[:2] if first else inputs[-2:]
    if op == "QLinearConv":
        result = inputs[6:8]
    count = 2 if op in ("QGemm", "QLinearConcat", "QLinearAdd", "QLinearMul") else 1
    count = 2 if op in ("QLinearConv", "QLinearMatMul") else count
    axis = 0 if op == "QLinearConv" or attrs.get("transB") else 1
    parts = [inputs[first + 3 * i :][:3] for i in range(count)]
    operands = [real(v, *part, axis) for part in parts]
    live = [part[0] in v.graph.live for part in parts]
    biases = {"QLinearConv": inputs[8:9], "QGemm": inputs[6:7]}.get(op, [])
    for name in biases:
        scale = v.array(inputs[1]) * v.array(inputs[4])
        operands.append(v.array(name) * scale)
        live.append(False)
    names = [f"x{i}" for i in range(len(operands))]
    info = lambda n: helper.make_tensor_value_info(n, TensorProto.DOUBLE, None)
    graph = helper.make_graph(
        [helper.make_node(REAL[op], names, ["y"], **attrs)], "r", [*map(info, names)], [info("y")]
    )
    runner = ReferenceEvaluator(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    )
    found = []
    for r in range(len(v.m)):
        part = lambda x: x[r] if v.graph.single else x[r : r + 1]
        feeds = {n: part(x) if l else x for n, x, l in zip(names, operands, live)}
        found.append(runner.run(None, feeds)[0].reshape(-1))
    return np.stack(found) / v.array(result[0])


def of_operator(v):
    """One step where the real number is near the middle of two integers."""
    y = exact(v)
    half = np.abs(y - np.floor(y) - 0.5)
    near = (half <= 1e-3 + 8 * U * np.abs(y)).any(1)
    if v.node.op == "QLinearSoftmax":
        # ONNX Runtime adds up the numbers of a table.
        near |= True
    uncertain = np.max([v.error(i) + np.zeros_like(v.m) for i in v.inputs if i in v.graph.live], 0)
    return np.where(uncertain > 0, NOTHING, np.where(near, 0.5, 0.0))


def of_dynamic(v):
    """`DynamicQuantizeLinear`: an integer may be the next one, where it is near the middle."""
    x = v.array(v.x)
    flat = x.reshape(len(v.m), -1)
    most, least = np.maximum(flat.max(1), 0), np.minimum(flat.min(1), 0)
    scale = np.where(most > least, (most - least) / 255, 1.0)
    error = v.e / scale + 8 * U * 256
    wide = lambda y: jumps(np.abs(y - np.floor(y) - 0.5), error) > 0
    zero = wide((-least / scale)[:, None]) * 1.0
    numbers = zero + wide(flat / scale[:, None])
    return dict(zip(v.node.outputs, (numbers, 2 * v.e / 255 + 4 * U * scale, zero)))


def of_sums(v):
    """Sums of products of integers, which are exact."""
    w = np.abs(v.array(v.inputs[1]))
    gain = w.reshape(len(w), -1).sum(1).max() if v.node.op == "ConvInteger" else w.sum(0).max()
    return gain * (v.e + v.error(v.inputs[2]))


BOUNDS = {
    **dict.fromkeys(REAL, of_operator),
    "DynamicQuantizeLinear": of_dynamic,
    **dict.fromkeys(["ConvInteger", "MatMulInteger"], of_sums),
}
