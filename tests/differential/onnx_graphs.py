"""Random ONNX graphs of what docs/ONNX.md promises, and their judge, ONNX Runtime."""

import itertools

import ml_dtypes
import numpy as np
import onnx
import onnx.reference
import onnxruntime
from onnx import defs, helper, numpy_helper, shape_inference

from graph import BATCH, Graph, Node, Unfit
import onnx_integers
import onnx_rules
from onnx_operands import code, inner, partner, positive, sharp
from onnx_constants import expression, floats, node, normal, reduced, squeeze, stored, typed, whole

SETS = (7, 26)
FLOATS = ("float32", "float64", "float16", "bfloat16")
INTEGERS = ("int8", "uint8", "int16", "int32", "int64")
EVERY = 9
"""Each so many records are extreme, where any are."""
MOST = 500
"""Elements of a value."""
TO_SIZES = {"Reshape", "Expand", "Resize"}
"""Operations that read the sizes of their results."""
ML = "ai.onnx.ml"
FAR = 2**31 - 1


class OnnxGraph(Graph):
    format = "onnx"

    def __init__(self, random, version, kind):
        super().__init__(random, version, kind)
        self.declared = self.extreme = self.listed = False
        self.ml = 3
        """The version of ai.onnx.ml."""
        self.known = {}
        """Numbers of constants that shape inference reads."""

    def weight(self, array):
        name = super().weight(array)
        self.known[name] = self.weights[name]
        return name

    def node(self, op, inputs, attrs=None, outputs=1, domain="", tags=(), shape=None):
        """Adds a node; gives the names of its outputs. `shape`: the sizes of the result, where ONNX
        infers none."""
        if self.masked & set(inputs) and op != "Softmax":
            raise Unfit
        attrs = attrs or {}
        names = [self.name(op) for _ in range(outputs)]
        made = Node(op, list(inputs), names, attrs, domain)
        schema = defs.get_schema(op, self.version if not domain else 3, domain)
        types, data = {}, {}
        for i in inputs:
            if i:
                types[i] = helper.make_tensor_type_proto(code(self.kinds[i]), self.shapes[i])
                if i in self.known and self.known[i].dtype.kind != "V":
                    data[i] = numpy_helper.from_array(self.known[i], i)
        proto = helper.make_node(op, inputs, names, domain=domain, **attrs)
        opsets = [helper.make_opsetid("", self.version), helper.make_opsetid(ML, 3)]
        found = shape_inference.infer_node_outputs(
            schema, proto, types, data, opset_imports=opsets, ir_version=8
        )
        for name in names:
            if name not in found:
                raise Unfit
            t = found[name].tensor_type
            dims = [d.dim_value if d.HasField("dim_value") else -1 for d in t.shape.dim]
            if op in ("GroupNormalization", "MeanVarianceNormalization"):
                # ONNX infers no sizes of it.
                dims = list(self.shapes[inputs[0]])
            if op in ("GreaterOrEqual", "LessOrEqual") and self.version < 16:
                dims = list(np.broadcast_shapes(*(self.shapes[i] for i in inputs)))
            dims = shape or dims
            if -1 in dims or (np.prod(dims) == 0 and dims != [0]):
                raise Unfit
            self.shapes[name] = dims
            self.kinds[name] = (
                "bfloat16"
                if t.elem_type == 16
                else helper.tensor_dtype_to_np_dtype(t.elem_type).name
            )
        live = [i for i in inputs if i in self.live]
        if live:
            self.live |= set(names)
            for name in names:
                if 0 in self.shapes[name]:
                    raise Unfit
                of_sizes = op == "Shape" or self.sizes & set(live)
                if of_sizes and op not in TO_SIZES:
                    continue
                if self.size(name) > MOST or not self.placed(self.shapes[name]):
                    raise Unfit
            self.hit(made, [*attrs, *tags], len(self.shapes[live[0]]), self.kinds[live[0]])
            made.hits.append((op, f"set {schema.since_version}", "", ""))
        elif op == "Constant":
            self.hit(made, attrs, "constant", self.kinds[names[0]])
            value = attrs.get("value")
            value = (
                numpy_helper.to_array(value)
                if value is not None
                else np.asarray(next(iter(attrs.values())))
            )
            self.known[names[0]] = (
                value if value.dtype != np.float64 or "value" in attrs else value.astype(np.float32)
            )
        else:
            self.hit(made, attrs, "constant", self.kinds[names[0]])
        self.nodes.append(made)
        return names

    def placed(self, shape):
        """True if a value of these sizes has the axis of the records where it may be."""
        if self.single:
            return len(shape) < 7
        return shape.count(BATCH) == 1 if self.moves else shape[:1] == [BATCH]

    def operand(
        self,
        ranks=(1, 2, 3, 4, 5),
        any_kind=False,
        fits=lambda dims: True,
        first=False,
        truth=False,
    ):
        """A live tensor of one of these ranks, reshaped if there is none of the drawn rank.

        `fits` says which sizes behind the first may be. With `first` the first axis is that of the
        records, or has size 1 in its place. With `truth` and `any_kind` truth values are right too.
        """
        rank = self.among(ranks)
        right = lambda k: k == self.kind or any_kind and (truth or k != "bool")
        tensors = [n for n in self.live if right(self.kinds[n]) and n not in self.sizes]
        if not tensors:
            ints = sorted(n for n in self.live if n not in self.sizes)
            tensors = [node(self, "Cast", self.among(ints), to=code(self.kind))]
        front = 1 if self.single else BATCH
        ahead = lambda n: not first or self.shapes[n][:1] == [front]
        found = sorted(
            n
            for n in tensors
            if len(self.shapes[n]) == rank and ahead(n) and fits(self.shapes[n][1:])
        )
        if found:
            new = [n for n in found if not self.readers(n)]
            return self.among(new if new and self.chance(0.7) else found)
        for _ in range(5):
            x = self.among(sorted(tensors))
            if self.single:
                dims = self.split(self.size(x), rank - first)
                dims = [1, *dims] if first and dims is not None else dims
                if dims is not None and fits(dims[1:]):
                    return reshape_to(self, x, dims)
                continue
            dims = self.split(self.size(x), rank - 1)
            if dims is not None and fits(dims):
                return reshape_to(self, x, dims)
        raise Unfit

    def split(self, n, count):
        """`count` sizes whose product is n."""
        if count == 0:
            return [] if n == 1 else None
        dims = [1] * count
        for p in (2, 3, 5, 7, 11, 13):
            while n % p == 0:
                dims[self.int(0, count - 1)] *= p
                n //= p
        dims[self.int(0, count - 1)] *= n
        return dims

    sizes = frozenset()


def reshape_to(g, x, dims):
    """`Reshape` to [N, *dims], with one of the forms that exporters write. A model of one record
    has no N."""
    if g.single:
        return reshape_all(g, x, dims)
    if g.axis(x):
        x = node(g, "Transpose", x, perm=[g.axis(x), *g.axes(x)])
    ways = ["zero", "minus", "shape"] + (["fixed"] if g.records else [])
    way, attrs = g.among(ways), {}
    target = [0, *dims]
    if way == "minus":
        target[0] = -1
    elif way == "fixed":
        target[0] = g.records
    elif dims and g.chance(0.5):
        target[g.int(1, len(dims))] = -1
    if g.version >= 14 and g.chance(0.2) and 0 not in target:
        attrs["allowzero"] = 1
    if way == "shape":
        shape = sizes_of(g, x, dims)
    else:
        shape = whole(g, target)
        # Shapes are inferred with another number of records.
        g.known[shape] = np.array(
            [BATCH if (i, d) == (0, g.records) else d for i, d in enumerate(target)]
        )
    y = node(g, "Reshape", x, shape, **attrs)
    if g.shapes[y] != [BATCH, *dims]:
        raise Unfit
    return y


def sizes_of(g, x, dims):
    """The sizes [N, *dims], with the number of records of x."""
    sizes = node(
        g, "Shape", x, **({"start": 0, "end": 1} if g.version >= 15 and g.chance(0.5) else {})
    )
    g.sizes = g.sizes | {sizes}
    if "end" not in str(g.nodes[-1].attrs):
        sizes = node(g, "Gather", sizes, stored(g, np.array([0])), axis=0)
        g.sizes = g.sizes | {sizes}
    shape = node(g, "Concat", sizes, stored(g, np.array(dims, np.int64)), axis=0) if dims else sizes
    g.sizes = g.sizes | {shape}
    g.known[shape] = np.array([g.shapes[x][0], *dims])
    return shape


def reshape_all(g, x, dims):
    """`Reshape` to these sizes in a model of one record."""
    target, attrs = list(dims), {}
    for i, d in enumerate(g.shapes[x][: len(dims)]):
        if d == dims[i] and g.chance(0.3):
            target[i] = 0
    if target and g.chance(0.4):
        target[g.int(0, len(target) - 1)] = -1
    if g.version >= 14 and g.chance(0.2) and 0 not in target:
        attrs["allowzero"] = 1
    shape = whole(g, target) if target else stored(g, np.array([], np.int64))
    y = node(g, "Reshape", x, shape, **attrs)
    if g.shapes[y] != list(dims):
        raise Unfit
    return y


def dims_of(g, count):
    while True:
        dims = [
            g.among([1, 2, 3, 4, 5, 6, 8, 9, 12]) if count > 1 else g.int(1, 40)
            for _ in range(count)
        ]
        if np.prod(dims) <= 200:
            return dims


def broadcast(g, x):
    """Sizes of a constant that goes with x."""
    suffix = g.plain(x)[g.int(0, len(g.shapes[x])) :]
    return [1 if g.chance(0.3) else d for d in suffix]


# The rules. Each adds a node of what docs/ONNX.md promises.


def activation(op, least=7, **draws):
    def rule(g):
        x = g.operand()
        attrs = {
            k: round(float(g.random.uniform(*v)), 3) for k, v in draws.items() if g.chance(0.6)
        }
        node(g, op, x, **attrs)

    rule.least = least
    return rule


def gelu(g):
    node(g, "Gelu", g.operand(), **g.among([{}, {"approximate": "none"}, {"approximate": "tanh"}]))


def clip(g):
    x = g.operand(any_kind=g.version >= 12)
    integer = g.kinds[x] in INTEGERS
    low, high = (g.int(0, 20), g.int(30, 90)) if integer else (-0.75, 0.5)
    if g.version < 11:
        return node(
            g, "Clip", x, **g.among([{}, {"min": low}, {"max": high}, {"min": low, "max": high}])
        )
    number = lambda v: (
        stored(g, np.array(v, g.kinds[x])) if g.kinds[x] != "bfloat16" else typed(g, np.float32(v))
    )
    form = g.among(["", "low", "high", "both"])
    inputs = {
        "": [x],
        "low": [x, number(low)],
        "high": [x, "", number(high)],
        "both": [x, number(low), number(high)],
    }[form]
    g.node("Clip", inputs, tags=[f"limits: {form or 'none'}"])


def least_or_most(op):
    def rule(g):
        x = g.operand(any_kind=g.version >= 12)
        count = 1 if g.chance(0.8) else 2
        values = (
            g.random.normal(0, 0.7, count)
            if g.kinds[x] == g.kind
            else g.random.integers(0, 50, count)
        )
        of = lambda v: (
            stored(g, np.array(v, g.kinds[x]))
            if g.kinds[x] != "bfloat16"
            else typed(g, np.float32(v))
        )
        inputs = [x, *[of(v if g.chance(0.5) else [v]) for v in values]]
        g.random.shuffle(inputs)
        g.node(op, inputs)

    rule.least = 8
    return rule


def prelu(g):
    x = g.operand()
    node_tags(g, "PRelu", x, broadcast(g, x))


def shape_tag(shape):
    return f"constant of {len(shape)} axes"


def node_tags(g, op, x, shape, first=False, **options):
    c = floats(g, shape, **options)
    g.node(op, [c, x] if first else [x, c], tags=[shape_tag(shape) + (", first" if first else "")])


def arithmetic(op):
    def rule(g):
        x = g.operand()
        if g.chance(0.55):
            first = g.chance(0.4)
            if op == "Div" and first:
                x = positive(g, x)
            return node_tags(
                g, op, x, broadcast(g, x), first, positive=op == "Div" or g.chance(0.3)
            )
        if g.chance(0.3):
            return repeated(g, op, x)
        y = partner(g, x)
        if op == "Div":
            y = node(g, "Add", node(g, "Sigmoid", y), typed(g, np.float32(0.5)))
            return g.node(op, [x, y], tags=["two values"])
        pair = [x, y] if g.chance(0.6) else [y, x]
        g.node(op, pair, tags=["two values" if g.shapes[x] == g.shapes[y] else "one repeated"])

    return rule


def repeated(g, op, x):
    """Two values that both are repeated along axes, or one that a constant repeats."""
    axes = g.axes(x)
    if not axes:
        raise Unfit
    some = lambda: sorted(a for a in axes if g.chance(0.5)) or [g.among(axes)]
    reduce = lambda along: reduced(
        g, g.among(["ReduceMean", "ReduceMax"]), x, [int(a) for a in along], keepdims=1
    )
    a = reduce(some())
    if g.chance(0.5):
        shape = g.plain(x)
        for i in axes:
            if g.chance(0.2):
                shape[i] = 1
        if len(shape) < 5 and (g.single or g.moves) and g.chance(0.4):
            shape = [g.int(1, 4), *shape]
        c = floats(g, shape, positive=op == "Div" or g.chance(0.3))
        pair = [a, c] if op == "Div" or g.chance(0.5) else [c, a]
        return g.node(op, pair, tags=["repeated by a constant"])
    b = reduce(some())
    if op == "Div":
        b = positive(g, b)
    if g.single and g.chance(0.3) and len(g.shapes[b]) > 1 and g.shapes[b][0] == 1:
        # One of fewer axes.
        b = squeeze(g, b, [0], "Squeeze")
    pair = [a, b] if op == "Div" or g.chance(0.5) else [b, a]
    g.node(op, pair, tags=["both repeated"])


def folded(g):
    """A sum with what is computed of constants alone."""
    x = g.operand()
    if g.kind != "float32" or g.version < 9:
        raise Unfit
    g.node("Add", [x, expression(g, g.plain(x), 3)])


def total(g):
    x = g.operand()
    parts = [x]
    for _ in range(g.int(0, 2)):
        if g.version >= 8 and g.chance(0.4):
            parts.append(floats(g, broadcast(g, x)))
        else:
            parts.append(node(g, g.among(["Sigmoid", "Tanh"]), x))
    g.random.shuffle(parts)
    g.node("Sum", parts, tags=[f"{len(parts)} inputs"])


def neg(g):
    node(g, "Neg", g.operand())


def identity(g):
    node(g, "Identity", g.operand(any_kind=True, truth=True))


def dropout(g):
    x = g.operand()
    if g.version < 12:
        return node(g, "Dropout", x, **g.among([{}, {"ratio": 0.3}]))
    inputs = g.among(
        [
            [x],
            [x, stored(g, np.float32(0.3))],
            [x, stored(g, np.float32(0.3)), stored(g, np.bool_(False))],
        ]
    )
    names = g.node(
        "Dropout",
        inputs,
        {"seed": 3} if g.chance(0.2) else {},
        g.int(1, 2),
        tags=[f"{len(inputs)} inputs"],
    )
    # Nobody reads the mask.
    g.live -= set(names[1:])


def cast(g):
    if g.chance(0.5):
        ints = sorted(n for n in g.live if g.kinds[n] in INTEGERS and n not in g.sizes)
        if ints:
            x = g.among(ints)
            wider = {
                "int8": [5, 6, 7],
                "uint8": [5, 6, 7],
                "int16": [6, 7],
                "int32": [7],
                "int64": [7],
            }[g.kinds[x]]
            return node(g, "Cast", x, to=g.among([code(g.kind), *wider]))
    x = g.operand()
    if g.kind == "float32" and g.chance(0.5):
        # Through a type that holds the numbers, and back.
        return node(g, "Cast", node(g, "Cast", x, to=11), to=1)
    node(
        g,
        "Cast",
        x,
        to=code(g.kind),
        **({"saturate": 1} if g.version >= 19 and g.chance(0.3) else {}),
    )


def batch_norm(g):
    x = g.operand((2, 3, 4, 5), first=True)
    c = [g.shapes[x][1]]
    parts = [floats(g, c, positive=True), floats(g, c), floats(g, c), floats(g, c, positive=True)]
    attrs = {}
    if g.chance(0.5):
        attrs["epsilon"] = g.among([1e-3, 0.1])
    if g.chance(0.3):
        attrs["momentum"] = 0.8
    if g.version < 9 and g.chance(0.3):
        attrs["spatial"] = 1
    if g.version >= 14 and g.chance(0.3):
        attrs["training_mode"] = 0
    node(g, "BatchNormalization", x, *parts, **attrs)


def gemm(g):
    turned = (g.single or g.moves) and g.chance(0.4)
    x = g.operand((2,), first=not g.single and not turned)
    if g.axis(x) == (0 if turned else 1):
        raise Unfit
    k, m = g.shapes[x][0 if turned else 1], g.int(1, 20)
    attrs = {"transA": 1} if turned else {}
    if g.chance(0.5):
        attrs["transB"] = g.int(0, 1)
    if g.chance(0.3):
        attrs["alpha"] = 0.7
    if g.chance(0.3):
        attrs["beta"] = 1.5
    if g.chance(0.2) and not turned:
        attrs["transA"] = 0
    w = floats(g, [m, k] if attrs.get("transB") else [k, m], 1 / np.sqrt(k))
    form = g.among(
        (["none"] if g.version >= 11 else []) + ["[]", "[1]", "[M]", "[1, M]", "[1, 1]", "value"]
    )
    if form == "value":
        if turned:
            raise Unfit
        attrs.pop("beta", None)
        c = node(g, "MatMul", x, floats(g, [k, m], 1 / np.sqrt(k)))
    elif form != "none":
        c = floats(g, {"[]": [], "[1]": [1], "[M]": [m], "[1, M]": [1, m], "[1, 1]": [1, 1]}[form])
    rows = g.shapes[x][1 if turned else 0]
    if g.single and form == "[1, M]" and g.chance(0.5):
        form = "[n, M]"
        c = floats(g, g.among([[rows, m], [rows, 1]]))
    g.node("Gemm", [x, w] if form == "none" else [x, w, c], attrs, tags=[f"summand {form}"])


def matmul(g):
    form = g.among(["matrix", "list", "[1, K, M]", "left", "left list", "batch"])
    m = g.int(1, 12)
    if form == "batch":
        x = g.operand((4,), first=True)
        c, _, k = g.shapes[x][1:]
        w = floats(g, [c, k, m] if g.chance(0.5) else [1, c, k, m], 1 / np.sqrt(k))
        return g.node("MatMul", [x, w], tags=[form])
    if form.startswith("left"):
        x = g.operand((2, 3, 4, 5) if g.single else (3, 4, 5))
        k = g.shapes[x][-2]
        if (g.axis(x) or 0) >= len(g.shapes[x]) - 2 and not g.single:
            raise Unfit
        w = floats(g, [k] if form == "left list" else [m, k], 1 / np.sqrt(k))
        return g.node("MatMul", [w, x], tags=[form])
    x = g.operand((3, 4, 5) if form == "[1, K, M]" else (2, 3, 4, 5))
    k = g.shapes[x][-1]
    if g.axis(x) == len(g.shapes[x]) - 1:
        raise Unfit
    shape = {"matrix": [k, m], "list": [k], "[1, K, M]": [1, k, m]}[form]
    g.node("MatMul", [x, floats(g, shape, 1 / np.sqrt(k))], tags=[form])


def window(g, dims, attrs, pool, dilated):
    """Attributes of a window over an image of these sizes; gives the kernel's sizes."""
    axes = len(dims)
    size = [g.int(1, min(3, d + 1)) for d in dims]
    # With SAME_* and dilations ONNX Runtime refuses convolutions, and its pools give fewer windows
    # than ONNX says.
    same = ["SAME_UPPER", "SAME_LOWER"]
    if g.chance(0.6):
        attrs["strides"] = [g.int(1, 3) for _ in dims]
    dilation = [1] * axes
    if dilated and g.chance(0.3):
        dilation = attrs["dilations"] = [g.int(1, 2) for _ in dims]
    way = g.among(
        ["none", "none", "pads", "pads", "VALID", "NOTSET"] + (same if max(dilation) == 1 else [])
    )
    if way == "pads":
        # A border as large as a pool's window holds no value.
        most = lambda i: min(size[i] - 1, 1 + (dilation[i] == 1)) if pool else 2
        attrs["pads"] = [g.int(0, most(i)) for i in range(axes)] + [
            g.int(0, most(i)) for i in range(axes)
        ]
    elif way != "none":
        attrs["auto_pad"] = way
    pads = attrs.get("pads", [0] * 2 * axes)
    if way.startswith("SAME") and pool:
        # A stride larger than its window: ONNX Runtime begins inside of the image, where others pad
        # with nothing.
        if any(
            (-(-n // s) - 1) * s + k < n
            for n, s, k in zip(dims, attrs.get("strides", [1] * axes), size)
        ):
            raise Unfit
    elif not way.startswith("SAME"):
        for i in range(axes):
            if dims[i] + pads[i] + pads[axes + i] < (size[i] - 1) * dilation[i] + 1:
                raise Unfit
    return size


def conv(g):
    x = g.operand((3, 4), first=True)
    c, *dims = g.shapes[x][1:]
    attrs = {}
    size = window(g, dims, attrs, False, True)
    groups = g.among([1, 1, c] + [d for d in range(2, c) if c % d == 0])
    outputs = groups * g.int(1, 4) if groups > 1 else g.int(1, 17)
    if groups > 1 or g.chance(0.2):
        attrs["group"] = groups
    if g.chance(0.6):
        attrs["kernel_shape"] = size
    w = floats(g, [outputs, c // groups, *size], 1 / np.sqrt(c // groups * np.prod(size)))
    bias = [floats(g, [outputs])] if g.chance(0.6) else []
    node(g, "Conv", x, w, *bias, **attrs)


def pool(op):
    def rule(g):
        integers = op == "MaxPool" and g.version >= 12
        x = g.operand((3, 4, 5), any_kind=integers and g.chance(0.5), first=True)
        if g.kinds[x] in INTEGERS and g.kinds[x] not in ("int8", "uint8"):
            raise Unfit
        attrs = {}
        dilated = g.version >= (10 if op == "MaxPool" else 19)
        attrs["kernel_shape"] = window(g, g.shapes[x][2:], attrs, True, dilated)
        if g.version >= 10 and g.chance(0.3):
            attrs["ceil_mode"] = g.int(0, 1)
        if op == "AveragePool" and g.chance(0.4):
            attrs["count_include_pad"] = g.int(0, 1)
        if op == "MaxPool" and g.version >= 8 and g.chance(0.2):
            attrs["storage_order"] = 0
        node(g, op, x, **attrs)

    return rule


def global_pool(op):
    def rule(g):
        node(g, op, g.operand((3, 4, 5), first=True))

    return rule


def reduce(op):
    def rule(g):
        x = g.operand(any_kind=op in ("ReduceMax", "ReduceMin") and g.version >= 12)
        if g.kinds[x] in ("int16",):
            raise Unfit
        if op == "ReduceLogSum":
            x = positive(g, x)
        rank = len(g.shapes[x])
        attrs = {} if g.chance(0.4) else {"keepdims": g.int(0, 1)}
        if g.version >= (13 if op == "ReduceSum" else 18) and g.chance(0.15):
            return node(g, op, x, **(attrs | {"noop_with_empty_axes": 1}))
        if g.single and g.chance(0.15):
            return node(g, op, x, **attrs)
        axes = [a for a in g.axes(x) if g.chance(0.5)] or [g.among(g.axes(x))]
        far = max(axes) - min(axes) >= len(axes)
        if g.version >= 11 and g.chance(0.3):
            axes = [a - rank for a in axes]
        g.random.shuffle(axes)
        reduced(g, op, x, [int(a) for a in axes], **attrs)
        g.nodes[-1].hits.append((op, "axes", rank, g.kinds[x]))
        if far:
            g.nodes[-1].hits.append((op, "axes apart", rank, g.kinds[x]))

    return rule


def softmax(op):
    def rule(g):
        x = g.operand((2, 3, 4, 5), first=g.version < 13 and not g.single)
        if g.axis(x) == len(g.shapes[x]) - 1 or g.single and g.version < 13 and g.shapes[x][0] > 1:
            raise Unfit
        _, a = inner(g, x)
        node(g, op, x, **({} if g.chance(0.3) else {"axis": a}))

    return rule


def flatten(g):
    x = g.operand(any_kind=g.version >= 9, truth=True, first=not g.single)
    rank = len(g.shapes[x])
    if g.single:
        a = g.int(-rank if g.version >= 11 else 0, rank)
        return node(g, "Flatten", x, **({} if g.chance(0.2) else {"axis": a}))
    ways = [{}, {"axis": 1}] if rank > 1 else [{}]
    if rank > 1 and g.version >= 11:
        ways.append({"axis": 1 - rank})
    if rank > 2 and g.shapes[x][1] == 1:
        ways.append({"axis": 2})
    node(g, "Flatten", x, **g.among(ways))


def reshape(g):
    x = g.operand(any_kind=True, truth=True)
    dims = g.split(g.size(x), g.int(0 if g.single and g.size(x) == 1 else 1, 4))
    reshape_to(g, x, dims)


def unsqueeze(g):
    x = g.operand((1, 2, 3, 4), any_kind=True, truth=True)
    rank = len(g.shapes[x])
    least = 0 if g.single or g.moves else 1
    one = g.chance(0.6) or rank > 3
    axes = [g.int(least, rank)] if one else [least, g.int(least + 1, rank + 1)]
    if g.version >= 11 and g.chance(0.3):
        axes = [a - rank - len(axes) for a in axes]
    y = squeeze(g, x, axes, "Unsqueeze")
    g.nodes[-1].hits.append(("Unsqueeze", "axes", rank, g.kinds[x]))
    if g.chance(0.5):
        rank = len(g.shapes[y])
        ones = [i for i in g.axes(y) if g.shapes[y][i] == 1]
        ones = ones if g.chance(0.5) else [g.among(ones)]
        if g.version >= 11 and g.chance(0.3):
            ones = [a - rank for a in ones]
        squeeze(g, y, ones, "Squeeze")
        g.nodes[-1].hits.append(("Squeeze", "axes", rank, g.kinds[x]))


def transpose(g):
    x = g.operand(any_kind=True, truth=True)
    rank = len(g.shapes[x])
    if g.single or g.moves:
        perm = [int(p) for p in g.random.permutation(rank)]
        return node(g, "Transpose", x, **({} if g.chance(0.2) else {"perm": perm}))
    node(g, "Transpose", x, perm=[0, *(int(p) + 1 for p in g.random.permutation(rank - 1))])


def concat(g):
    x = g.operand((2, 3, 4, 5), any_kind=True, truth=True)
    a, written = inner(g, x)
    fit = lambda n: (
        [d for i, d in enumerate(g.shapes[n]) if i != a]
        == [d for i, d in enumerate(g.shapes[x]) if i != a]
    )
    others = sorted(
        n
        for n in g.live
        if g.kinds[n] == g.kinds[x]
        and n not in g.sizes
        and len(g.shapes[n]) == len(g.shapes[x])
        and fit(n)
    )
    parts = [x, *[g.among(others) for _ in range(g.int(0, 2))]]
    if g.chance(0.3) and g.kinds[x] == g.kind:
        parts.append(node(g, "Tanh", x))
    g.random.shuffle(parts)
    if not g.single or g.kinds[x] != g.kind or g.chance(0.5):
        return node(g, "Concat", *parts, axis=written)
    for _ in range(g.int(1, 3)):
        shape = [g.int(1, 3) if i == a else d for i, d in enumerate(g.shapes[x])]
        one = typed(g, np.full(shape, g.among([0.0, 0.5, -1.0]), np.float32))
        parts.insert(g.int(0, len(parts)), one if g.chance(0.5) else floats(g, shape))
    g.node("Concat", parts, {"axis": written}, tags=["constants"])


def pad(g):
    x = g.operand(any_kind=g.version >= 13)
    rank = len(g.shapes[x])
    mode = g.among(["constant", "constant", "edge", "reflect"] + ["wrap"] * (g.version >= 19))
    most = lambda a: {"reflect": min(3, g.shapes[x][a] - 1), "wrap": min(3, g.shapes[x][a])}
    sides = lambda axes: [
        0 if a == g.axis(x) or g.chance(0.3) else g.int(0, most(a).get(mode, 2)) for a in axes
    ]
    attrs = {"mode": mode} if mode != "constant" or g.chance(0.3) else {}
    every = list(range(rank))
    if g.version < 11:
        if g.chance(0.5):
            attrs["value"] = 0.5
        node(g, "Pad", x, pads=sides(every) + sides(every), **attrs)
        return g.nodes[-1].hits.append(("Pad", mode, rank, g.kinds[x]))
    kind = g.kinds[x]
    value = [
        stored(g, np.array(3, kind))
        if kind in INTEGERS
        else typed(g, np.float32(0.5))
        if kind == g.kind
        else ""
    ]
    if mode != "constant":
        value = [""]
    if g.version >= 18 and rank > 1 and g.chance(0.4):
        axes = [a for a in g.axes(x) if g.chance(0.6)] or g.axes(x)[:1]
        written = [a - rank * g.int(0, 1) for a in axes]
        inputs = [
            x,
            whole(g, sides(axes) + sides(axes)),
            *(value if g.chance(0.5) else [""]),
            whole(g, written),
        ]
        return g.node("Pad", inputs, attrs, tags=["axes", mode])
    inputs = [x, whole(g, sides(every) + sides(every)), *(value if g.chance(0.6) else [])]
    g.node("Pad", inputs, attrs, tags=[f"{len(inputs)} inputs", mode])


def slice_(g):
    x = g.operand((2, 3, 4, 5), any_kind=True, truth=True)
    shape = g.shapes[x]
    rank = len(shape)
    axes = sorted({g.among(g.axes(x)) for _ in range(g.int(1, 2))})
    starts, ends, steps = [], [], []
    for a in axes:
        n = shape[a]
        step = g.among([1, 1, 1, 2, 3, -1, -2]) if g.version >= 10 else 1
        low, high = sorted([g.int(0, n - 1), g.int(0, n - 1)])
        first, last = (low, high + 1) if step > 0 else (high, low - 1)
        if g.chance(0.3):
            first -= n
        last = g.among([last, last - n if 0 <= last < n else last, FAR if step > 0 else -FAR])
        if step < 0 and last == -1:
            last = -n - 1
        starts.append(first), ends.append(last), steps.append(step)
    written = [a - rank * (g.version >= 10 and g.chance(0.3)) for a in axes]
    if g.chance(0.15):
        # Without axes: from the first on.
        axes = list(range(rank))
        starts, ends, steps = [0] * rank, [FAR] * rank, None
        ends[g.axes(x)[0]] = g.int(1, shape[g.axes(x)[0]])
        if g.version < 10:
            return node(g, "Slice", x, starts=starts, ends=ends)
        return g.node("Slice", [x, whole(g, starts), whole(g, ends)], tags=["starts", "ends"])
    if g.version < 10:
        return node(g, "Slice", x, starts=starts, ends=ends, axes=written)
    inputs = [x, whole(g, starts), whole(g, ends), whole(g, written)]
    if steps != [1] * len(axes) or g.chance(0.3):
        inputs.append(whole(g, steps))
    g.node("Slice", inputs, tags=["starts", "ends", "axes", "steps"][: len(inputs) - 1])


def gather(g):
    x = g.operand((2, 3, 4, 5), any_kind=True, truth=True)
    a, written = inner(g, x)
    n = g.shapes[x][a]
    count = g.among([(), (1,), (g.int(1, 4),), (2, 2)])
    at = g.random.integers(-n if g.version >= 11 else 0, n, count)
    kind = g.among(["int64", "int32"])
    g.node(
        "Gather",
        [
            x,
            whole(g, at, kind)
            if len(count) == 1 and kind == "int64"
            else stored(g, at.astype(kind)),
        ],
        {"axis": written},
        tags=[f"indices of {len(count)} axes"],
    )


def split(g):
    x = g.operand((2, 3, 4, 5), any_kind=True, truth=True)
    a, written = inner(g, x)
    n = g.shapes[x][a]
    parts = g.int(1, min(3, n))
    even = n % parts == 0
    if g.version >= 18 and (even or g.chance(0.3)) and g.chance(0.5):
        if -(-n // parts) * (parts - 1) >= n:
            raise Unfit
        return g.node("Split", [x], {"axis": written, "num_outputs": parts}, parts)
    if even and g.version < 18 and g.chance(0.4):
        return g.node("Split", [x], {"axis": written}, parts)
    cuts = sorted(g.random.permutation(n - 1)[: parts - 1] + 1)
    sizes = [int(s) for s in np.diff([0, *cuts, n])]
    if g.version < 13:
        return g.node("Split", [x], {"axis": written, "split": sizes}, parts)
    g.node("Split", [x, whole(g, sizes)], {"axis": written}, parts, tags=["split"])


def of_ml(g, op, inputs, attrs, shapes):
    """Adds a node of ai.onnx.ml, of whose results ONNX infers no sizes."""
    x = inputs[0]
    names = [g.name(op) for _ in shapes]
    g.nodes.append(Node(op, inputs, names, attrs, ML))
    g.hit(g.nodes[-1], attrs, 2, g.kinds[x])
    for name, dims in zip(names, shapes):
        front = [1 if g.single else BATCH]
        g.shapes[name], g.kinds[name] = [*front, *dims], "float32" if dims else "int64"
        g.live.add(name)
    return names


def scaler(g):
    x = g.operand((2,), first=True)
    n = g.among([1, g.shapes[x][1]])
    list_of = lambda low, high: [round(float(v), 3) for v in g.random.uniform(low, high, n)]
    of_ml(
        g, "Scaler", [x], {"offset": list_of(-1, 1), "scale": list_of(0.5, 1.5)}, [g.shapes[x][1:]]
    )


def normalizer(g):
    x = g.operand((2,), first=True)
    attrs = {} if g.version < 13 else {"axis": 1}
    x = node(g, "Sigmoid", x) if g.chance(0.5) else node(g, "Softmax", x, **attrs)
    of_ml(g, "Normalizer", [x], {"norm": "L1"}, [g.shapes[x][1:]])


def regressor(g):
    x = g.operand((2,), first=True)
    targets, n = g.int(1, 4), g.shapes[x][1]
    attrs = {"coefficients": normal(g, targets * n, 1 / np.sqrt(n)).tolist(), "targets": targets}
    if g.chance(0.6):
        attrs["intercepts"] = normal(g, targets).tolist()
    of_ml(g, "LinearRegressor", [x], attrs, [[targets]])


def extract(g):
    x = g.operand((2,), first=True)
    at = g.random.integers(0, g.shapes[x][1], g.int(1, 4))
    of_ml(g, "ArrayFeatureExtractor", [x, g.weight(at)], {}, [[len(at)]])


def jump(op, any_kind=False, **draws):
    def rule(g):
        x = sharp(g, any_kind=any_kind and g.version >= 13)
        attrs = {
            k: round(float(g.random.uniform(*v)), 3) for k, v in draws.items() if g.chance(0.7)
        }
        node(g, op, x, **attrs)

    return rule


def absolute(g):
    node(g, "Abs", g.operand(any_kind=True))


def exponential(g):
    x = g.operand()
    node(g, "Exp", x if g.chance(0.2) else node(g, "Tanh", x))


def steep(op):
    def rule(g):
        node(g, op, positive(g, g.operand()))

    return rule


def power(g):
    x = g.operand()
    exponent = g.among([-1, -0.5, 0.5, 0.75, 1, 2, 3, 4])
    if exponent < 1:
        x = positive(g, x)
    elif g.chance(0.7):
        x = node(g, "Tanh", x)
    whole_one = g.version >= 12 and exponent == int(exponent) and exponent > 0 and g.chance(0.4)
    shape = g.among([[], [1], broadcast(g, x)])
    e = np.full(shape, exponent)
    e = stored(g, e.astype(g.among(["int64", "int32"]))) if whole_one else typed(g, e.astype("f4"))
    g.node("Pow", [x, e], tags=[f"exponent {exponent}"])


def several(op):
    """`Max`, `Min` and `Mean` of several values and constants of any sizes."""

    def rule(g):
        x = g.operand()
        parts = [x]
        for _ in range(g.int(1, 2)):
            if g.chance(0.5):
                parts.append(floats(g, broadcast(g, x)))
            else:
                parts.append(partner(g, x))
        g.random.shuffle(parts)
        g.node(op, parts, tags=[f"{len(parts)} inputs of any sizes"])

    return rule


def whole_numbers(g, x):
    """Whole numbers of a few values."""
    op = g.among(["Floor", "Ceil"] + (["Round"] if g.version >= 11 else []))
    return node(g, op, x)


def compare(op):
    def rule(g):
        x = sharp(g)
        if op.endswith("Equal") and g.chance(0.7) or op == "Equal":
            x = whole_numbers(g, x)
        form = g.among(["constant", "constant", "value", "small"])
        if form == "constant":
            y = typed(g, (g.random.integers(-2, 3, broadcast(g, x)) / 1).astype(np.float32))
        elif form == "value":
            y = partner(g, x) if g.chance(0.3) else node(g, g.among(["Neg", "Abs"]), x)
        else:
            along = [g.among(g.axes(x))]
            y = reduced(g, "ReduceMax", x, [int(a) for a in along], keepdims=1)
        pair = [x, y] if g.chance(0.5) else [y, x]
        g.node(op, pair, tags=[f"with a {form}"])

    return rule


def truth_of(g):
    """A truth value of the record."""
    found = sorted(n for n in g.live if g.kinds[n] == "bool")
    if found and g.chance(0.7):
        return g.among(found)
    RULES[g.among(["Greater", "Less"])](g)
    return g.nodes[-1].outputs[0]


def truths(g, shape):
    return stored(g, g.random.random(shape) < 0.5)


def negate(g):
    node(g, "Not", truth_of(g))


def logic(op):
    def rule(g):
        x = truth_of(g)
        same = sorted(n for n in g.live if g.kinds[n] == "bool" and g.shapes[n] == g.shapes[x])
        way = g.among(["constant", "value", "not"])
        if way == "constant":
            y = truths(g, broadcast(g, x))
        else:
            y = g.among(same) if way == "value" else node(g, "Not", x)
        g.node(
            op, [x, y] if g.chance(0.5) else [y, x], tags=["constant"] if way == "constant" else []
        )

    return rule


def truth_as_number(g):
    x = truth_of(g)
    node(g, "Cast", x, to=code(g.kind))


def number_as_truth(g):
    x = sharp(g, any_kind=True)
    node(g, "Cast", x, to=9)


def whole_cast(g):
    """Floats to integers, of which the fraction is left out."""
    x = sharp(g)
    if g.chance(0.5):
        x = node(g, "Mul", x, typed(g, np.float32(4)))
    node(g, "Cast", x, to=g.among([6, 7]))


def where(g):
    side = lambda like: (
        floats(g, broadcast(g, like))
        if g.chance(0.4)
        else partner(g, like)
        if g.chance(0.5)
        else like
    )
    if g.chance(0.35):
        x = g.operand()
        c, y = truths(g, broadcast(g, x)), side(x)
        pair = [x, y] if g.chance(0.5) else [y, x]
        return g.node("Where", [c, *pair], tags=["constant condition"])
    c = truth_of(g)
    same = sorted(
        n
        for n in g.live
        if g.kinds[n] == g.kind and g.shapes[n] == g.shapes[c] and n not in g.sizes
    )
    x = g.among(same) if same and g.chance(0.8) else node(g, "Cast", c, to=code(g.kind))
    if g.chance(0.3):
        along = [g.among(g.axes(x))]
        x = reduced(g, "ReduceMax", x, [int(a) for a in along], keepdims=1)
    y = side(x)
    if g.chance(0.2):
        x = floats(g, broadcast(g, x))
    g.node("Where", [c, *([x, y] if g.chance(0.5) else [y, x])], tags=["computed condition"])


def with_ones(g, x):
    """x, or what has size 1 along some of its axes."""
    axes = [a for a in g.axes(x) if g.chance(0.5)]
    if not axes or g.chance(0.2):
        return x
    return reduced(g, g.among(["ReduceMean", "ReduceMax"]), x, [int(a) for a in axes], keepdims=1)


def expand(g):
    x = g.operand((1, 2, 3, 4))
    whole_one = g.plain(x)
    y = with_ones(g, x)
    if g.chance(0.25):
        sizes = node(g, "Shape", x)
        g.sizes = g.sizes | {sizes}
        g.known[sizes] = np.array(g.shapes[x])
        return g.node("Expand", [y, sizes], tags=["sizes of a value"])
    shape = [
        g.int(1, 4) if d == 1 and i in g.axes(y) and g.chance(0.3) else w
        for i, (d, w) in enumerate(zip(g.shapes[y], whole_one))
    ]
    if (g.single or g.moves) and g.chance(0.3):
        shape = [g.int(1, 3), *shape]
    elif g.chance(0.2):
        # What is left out stays.
        shape = shape[g.int(0, len(shape) - 1) :]
    if not shape:
        raise Unfit
    g.node("Expand", [y, whole(g, shape)], tags=["sizes"])


def tile(g):
    x = g.operand((1, 2, 3, 4), any_kind=g.version >= 13, truth=True)
    repeats = [g.int(1, 3) if i in g.axes(x) else 1 for i in range(len(g.shapes[x]))]
    node(g, "Tile", x, whole(g, repeats))


def cumulated(g):
    x = g.operand()
    a, _ = inner(g, x)
    a -= len(g.shapes[x]) * g.int(0, 1)
    axis = stored(g, np.array(a if g.chance(0.6) else [a], g.among(["int64", "int32"])))
    attrs = {k: g.int(0, 1) for k in ("exclusive", "reverse") if g.chance(0.5)}
    node(g, "CumSum", x, axis, **attrs)


def triangle(g):
    x = g.operand((3, 4, 5) if not g.single else (2, 3, 4))
    if not g.single and g.axis(x) >= len(g.shapes[x]) - 2:
        raise Unfit
    attrs = {} if g.chance(0.3) else {"upper": g.int(0, 1)}
    more = [stored(g, np.array(g.int(-3, 3)))] if g.chance(0.6) else []
    node(g, "Trilu", x, *more, **attrs)


def one_hot(g):
    x = sharp(g, ranks=(1, 2, 3))
    depth = g.int(1, 5)
    if g.version < 11:
        # Other indices have no meaning yet.
        x = node(g, "Clip", x, min=0.0, max=depth - 1.0)
    else:
        x = node(g, "Mul", x, typed(g, np.float32(2)))
    index = node(g, "Cast", x, to=7)
    rank = len(g.shapes[x]) + 1
    least = 0 if g.single else g.axis(x) + 1
    at = g.int(least, rank - 1)
    attrs = {} if at == rank - 1 and g.chance(0.5) else {"axis": g.among([at, at - rank])}
    many = stored(g, np.array(depth if g.chance(0.5) else [depth], "int64"))
    values = stored(g, np.array(g.among([[0, 1], [-0.5, 2.0]]), np.float32))
    node(g, "OneHot", index, many, values, **attrs)


def layer_norm(op):
    def rule(g):
        x = g.operand((2, 3, 4, 5) if not g.single else (1, 2, 3, 4))
        rank = len(g.shapes[x])
        least = 0 if g.single else g.axis(x) + 1
        if least >= rank:
            raise Unfit
        a = g.int(least, rank - 1)
        attrs = {} if a == rank - 1 and g.chance(0.4) else {"axis": g.among([a, a - rank])}
        if g.chance(0.6):
            attrs["epsilon"] = g.among([1e-3, 0.1])
        shape = g.shapes[x][a:]
        inputs = [floats(g, shape, positive=g.chance(0.5))]
        if op == "LayerNormalization" and g.chance(0.6):
            inputs.append(floats(g, shape))
        node(g, op, x, *inputs, **attrs)

    return rule


def instance_norm(g):
    x = g.operand((3, 4, 5), first=True)
    c = [g.shapes[x][1]]
    attrs = {"epsilon": g.among([1e-3, 0.1])} if g.chance(0.6) else {}
    node(g, "InstanceNormalization", x, floats(g, c, positive=True), floats(g, c), **attrs)


def group_norm(g):
    x = g.operand((3, 4), first=True)
    c = g.shapes[x][1]
    groups = g.among([d for d in range(1, c + 1) if c % d == 0])
    attrs = {"epsilon": g.among([1e-3, 0.1])} if g.chance(0.6) else {}
    parts = [floats(g, [c], positive=True), floats(g, [c])]
    node(g, "GroupNormalization", x, *parts, num_groups=groups, **attrs)


def mean_variance(g):
    x = g.operand((2, 3, 4))
    if g.single and len(g.shapes[x]) == 4 and g.chance(0.3):
        return node(g, "MeanVarianceNormalization", x)
    axes = [a for a in g.axes(x) if g.chance(0.6)] or g.axes(x)[-1:]
    node(g, "MeanVarianceNormalization", x, axes=axes)


def local_response(g):
    x = g.operand((4,), first=True)
    attrs = {"size": g.among([1, 3, 5])}
    for key, values in (("alpha", [0.1, 0.5]), ("beta", [0.5, 1.0, 2.0]), ("bias", [0.5, 2.0])):
        if g.chance(0.6):
            attrs[key] = g.among(values)
    node(g, "LRN", x, **attrs)


def resize(g):
    mode = g.among(["nearest", "nearest", "linear", "linear", "cubic"])
    if g.version < 11 and mode == "cubic":
        raise Unfit
    ranks = {"nearest": (1, 2, 3, 4, 5), "linear": (2, 3, 4), "cubic": (4,)}[mode]
    x = g.operand(ranks)
    shape, rank = g.shapes[x], len(g.shapes[x])
    axes = g.axes(x)
    if mode != "nearest":
        axes = [a for a in axes if a >= rank - 2] if rank != 2 or g.single else axes
    axes = [a for a in axes if g.chance(0.8)] or axes[-1:]
    if not axes:
        raise Unfit
    attrs = {} if mode == "nearest" and g.chance(0.3) else {"mode": mode}
    factor = lambda: g.among([0.5, 0.6, 0.75, 1.0, 1.3, 1.5, 2.0, 2.0, 2.5, 3.0])
    scales = [factor() if i in axes else 1.0 for i in range(rank)]
    if g.version < 10:
        scales = [max(1.0, s) for s in scales]
        if g.version < 9:
            return g.node("Upsample", [x], {"scales": scales} | attrs, tags=[mode])
        return g.node("Upsample", [x, stored(g, np.array(scales, "f4"))], attrs, tags=[mode])
    if g.version < 11:
        y = g.node("Resize", [x, stored(g, np.array(scales, "f4"))], attrs, tags=[mode])[0]
        if g.shapes[y] == shape and set(scales) != {1.0}:
            raise Unfit("ONNX Runtime copies a value whose sizes stay, whatever the scales")
        return
    places = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"]
    places += ["tf_half_pixel_for_nn"] if g.version < 13 else []
    places += ["half_pixel_symmetric"] if g.version >= 19 else []
    place = g.among(places)
    if place != "half_pixel" or g.chance(0.4):
        attrs["coordinate_transformation_mode"] = place
    nearest = g.among(["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
    if mode == "nearest" and (nearest != "round_prefer_floor" or g.chance(0.5)):
        attrs["nearest_mode"] = nearest
    if mode == "cubic":
        if g.chance(0.5):
            attrs["cubic_coeff_a"] = g.among([-0.5, -0.6])
        if g.chance(0.5):
            attrs["exclude_outside"] = g.int(0, 1)
    if g.version >= 18 and g.chance(0.2):
        attrs["antialias"] = 0
    roi = "" if g.version >= 13 else g.weight(np.array([], np.float32))
    named = list(range(rank))
    if g.version >= 18 and g.chance(0.4):
        named = axes
        attrs["axes"] = [int(a) for a in axes]
    tags = [mode, place]
    # Corners need whole sizes, and the middle of a part of a pixel may be a tie.
    wholes = place == "align_corners" or (mode, place) == ("nearest", "half_pixel_symmetric")
    parts = wholes and any(s * n % 1 for s, n in zip(scales, shape))
    if not parts and g.chance(0.6):
        c = stored(g, np.array([scales[a] for a in named], np.float32))
        y = g.node("Resize", [x, roi, c], attrs, tags=[*tags, "scales"])[0]
        if g.shapes[y] == shape and set(scales) != {1.0}:
            raise Unfit("ONNX Runtime copies a value whose sizes stay, whatever the scales")
        return
    to = [g.int(1, 2 * shape[a] + 1) if a in axes else shape[a] for a in range(rank)]
    none = "" if g.version >= 13 else g.weight(np.array([], np.float32))
    if g.single or g.axis(x) not in named:
        sizes = whole(g, [to[a] for a in named])
    elif g.axis(x) == 0:
        sizes = sizes_of(g, x, to[1:])
    else:
        raise Unfit
    g.node("Resize", [x, roi, none, sizes], attrs, tags=[*tags, "sizes"])


def enlarge(g):
    x = g.operand((3, 4), first=True)
    c, *dims = g.shapes[x][1:]
    n, attrs = len(dims), {}
    groups = g.among([1, 1] + [d for d in range(2, c + 1) if c % d == 0])
    each = g.int(1, 4)
    size = [g.int(1, 3) for _ in dims]
    strides = [g.int(1, 3) for _ in dims] if g.chance(0.7) else [1] * n
    dilations = [g.int(1, 2) for _ in dims] if g.chance(0.3) else [1] * n
    if strides != [1] * n or g.chance(0.3):
        attrs["strides"] = strides
    if dilations != [1] * n:
        attrs["dilations"] = dilations
    if groups > 1 or g.chance(0.2):
        attrs["group"] = groups
    if g.chance(0.5):
        attrs["kernel_shape"] = size
    wide = [(k - 1) * d + 1 for k, d in zip(size, dilations)]
    more = [g.int(0, max(s, d) - 1) for s, d in zip(strides, dilations)]
    if any(more) and g.chance(0.3):
        attrs["output_padding"] = more
    way = g.among(["none", "pads", "pads", "output_shape", "SAME_UPPER", "SAME_LOWER", "VALID"])
    if way == "pads":
        attrs["pads"] = [g.int(0, min(2, w - 1)) for w in wide + wide]
    elif way == "output_shape":
        attrs["output_shape"] = [
            max(1, s * (d - 1) + w + m - g.int(0, 2))
            for s, d, w, m in zip(strides, dims, wide, attrs.get("output_padding", [0] * n))
        ]
        if g.chance(0.3):
            attrs["auto_pad"] = g.among(["SAME_UPPER", "SAME_LOWER"])
    elif way != "none":
        attrs["auto_pad"] = way
    w = floats(g, [c, each, *size], 1 / np.sqrt(c // groups * np.prod(size)))
    bias = [floats(g, [each * groups])] if g.chance(0.6) else []
    node(g, "ConvTranspose", x, w, *bias, **attrs)


def depth_to_space(g):
    b = g.among([1, 2, 2, 2, 3])
    x = g.operand((4,), fits=lambda d: d[0] % (b * b) == 0, first=True)
    attrs = {"mode": g.among(["DCR", "CRD"])} if g.version >= 11 and g.chance(0.7) else {}
    node(g, "DepthToSpace", x, blocksize=b, **attrs)


def space_to_depth(g):
    b = g.among([1, 2, 2, 2, 3])
    x = g.operand((4,), fits=lambda d: d[1] % b == 0 and d[2] % b == 0, first=True)
    node(g, "SpaceToDepth", x, blocksize=b)


def quantise(g):
    """Rounds to one scale's steps and back."""
    if g.kind != "float32":
        raise Unfit
    x = sharp(g)
    kind = g.among(["int8", "uint8"])
    scale = stored(g, np.float32(g.among([0.125, 0.03125, 0.02])))
    zero = stored(g, np.array(g.int(100, 150) if kind == "uint8" else g.int(-20, 20), kind))
    if kind == "uint8" and g.chance(0.2):
        y = node(g, "QuantizeLinear", x, scale)
        return node(g, "DequantizeLinear", y, scale)
    y = node(g, "QuantizeLinear", x, scale, zero)
    if g.chance(0.3):
        shape = g.shapes[y]
        y = node(g, "Transpose", y, perm=list(range(len(shape)))) if g.version >= 21 else y
    node(g, "DequantizeLinear", y, scale, zero)


def swish(g):
    node(g, "Swish", g.operand())


def computed_limits(g):
    """`Clip` with a bound that is computed from the record."""
    if not g.single or g.version < 11:
        raise Unfit
    x = g.operand()
    low = node(g, "ReduceMean", g.operand(), keepdims=0)
    g.node("Clip", g.among([[x, low], [x, "", low]]), tags=["limits: computed"])


RULES = {
    "Relu": activation("Relu"),
    "LeakyRelu": activation("LeakyRelu", alpha=(0.05, 0.5)),
    "Elu": activation("Elu", alpha=(0.5, 1.5)),
    "Selu": activation("Selu", alpha=(1.2, 2.0), gamma=(0.8, 1.2)),
    "Sigmoid": activation("Sigmoid"),
    "Tanh": activation("Tanh"),
    "HardSigmoid": activation("HardSigmoid", alpha=(0.1, 0.4), beta=(0.3, 0.6)),
    "HardSwish": activation("HardSwish", 14),
    "Mish": activation("Mish", 18),
    "Softplus": activation("Softplus"),
    "Gelu": gelu,
    "Clip": clip,
    "Max": least_or_most("Max"),
    "Min": least_or_most("Min"),
    "PRelu": prelu,
    "Add": arithmetic("Add"),
    "Sub": arithmetic("Sub"),
    "Mul": arithmetic("Mul"),
    "Div": arithmetic("Div"),
    "Sum": total,
    "Neg": neg,
    "Identity": identity,
    "Dropout": dropout,
    "Cast": cast,
    "BatchNormalization": batch_norm,
    "Gemm": gemm,
    "MatMul": matmul,
    "Conv": conv,
    "Conv again": conv,
    "folded": folded,
    "folded again": folded,
    "folded once more": folded,
    "MaxPool": pool("MaxPool"),
    "AveragePool": pool("AveragePool"),
    "GlobalAveragePool": global_pool("GlobalAveragePool"),
    "GlobalMaxPool": global_pool("GlobalMaxPool"),
    "ReduceMean": reduce("ReduceMean"),
    "ReduceMax": reduce("ReduceMax"),
    "ReduceSum": reduce("ReduceSum"),
    "Softmax": softmax("Softmax"),
    "LogSoftmax": softmax("LogSoftmax"),
    "Flatten": flatten,
    "Reshape": reshape,
    "Unsqueeze": unsqueeze,
    "Transpose": transpose,
    "Concat": concat,
    "Pad": pad,
    "Slice": slice_,
    "Gather": gather,
    "Split": split,
    "Scaler": scaler,
    "Normalizer": normalizer,
    "LinearRegressor": regressor,
    "ArrayFeatureExtractor": extract,
    "Abs": absolute,
    "Exp": exponential,
    "Log": steep("Log"),
    "Sqrt": steep("Sqrt"),
    "Reciprocal": steep("Reciprocal"),
    "Erf": activation("Erf"),
    "Sin": activation("Sin"),
    "Cos": activation("Cos"),
    "Softsign": activation("Softsign"),
    "Celu": activation("Celu", alpha=(0.5, 2.0)),
    "Swish": swish,
    "ThresholdedRelu": jump("ThresholdedRelu", alpha=(-0.5, 0.7)),
    "Shrink": jump("Shrink", lambd=(0.1, 0.8), bias=(0.0, 0.5)),
    "Floor": jump("Floor"),
    "Ceil": jump("Ceil"),
    "Round": jump("Round"),
    "Sign": jump("Sign", True),
    "Pow": power,
    "Max of several": several("Max"),
    "Min of several": several("Min"),
    "Mean": several("Mean"),
    "Equal": compare("Equal"),
    "Greater": compare("Greater"),
    "GreaterOrEqual": compare("GreaterOrEqual"),
    "Less": compare("Less"),
    "LessOrEqual": compare("LessOrEqual"),
    "Not": negate,
    "And": logic("And"),
    "Or": logic("Or"),
    "Xor": logic("Xor"),
    "Cast of truth": truth_as_number,
    "Cast to truth": number_as_truth,
    "Cast to whole": whole_cast,
    "Where": where,
    "Where again": where,
    "Expand": expand,
    "Tile": tile,
    "CumSum": cumulated,
    "Trilu": triangle,
    "OneHot": one_hot,
    "ReduceMin": reduce("ReduceMin"),
    "ReduceL1": reduce("ReduceL1"),
    "ReduceL2": reduce("ReduceL2"),
    "ReduceSumSquare": reduce("ReduceSumSquare"),
    "ReduceLogSum": reduce("ReduceLogSum"),
    "ReduceLogSumExp": reduce("ReduceLogSumExp"),
    "LayerNormalization": layer_norm("LayerNormalization"),
    "RMSNormalization": layer_norm("RMSNormalization"),
    "InstanceNormalization": instance_norm,
    "GroupNormalization": group_norm,
    "MeanVarianceNormalization": mean_variance,
    "LRN": local_response,
    "Resize": resize,
    "Resize again": resize,
    "ConvTranspose": enlarge,
    "ConvTranspose again": enlarge,
    "DepthToSpace": depth_to_space,
    "SpaceToDepth": space_to_depth,
    "QuantizeLinear": quantise,
    "Clip with computed limits": computed_limits,
    "LpPool": onnx_rules.lp_pool(window),
    **onnx_rules.RULES,
    **onnx_integers.RULES,
}
LEAST = onnx_rules.LEAST | {
    **onnx_integers.LEAST,
    "Celu": 12,
    "CumSum": 11,
    "DequantizeLinear": 10,
    "Equal": 11,
    "Erf": 9,
    "Expand": 8,
    "Gelu": 20,
    "GreaterOrEqual": 12,
    "GroupNormalization": 21,
    "HardSwish": 14,
    "LayerNormalization": 17,
    "LessOrEqual": 12,
    "Max": 8,
    "Max of several": 8,
    "Mean": 8,
    "MeanVarianceNormalization": 9,
    "Min": 8,
    "Min of several": 8,
    "Mish": 18,
    "OneHot": 9,
    "QuantizeLinear": 10,
    "RMSNormalization": 23,
    "Resize": 10,
    "Resize again": 7,
    "Round": 11,
    "Shrink": 9,
    "Sign": 9,
    "Swish": 24,
    "ThresholdedRelu": 10,
    "Trilu": 14,
    "Where": 9,
    "Where again": 9,
}
MOST_OF = {"Upsample": 9, "Scatter": 10}
"""The last set of operations that later ones replace."""
OF_INTEGERS = {
    "Clip",
    "Concat",
    "Flatten",
    "Gather",
    "Identity",
    "Max",
    "MaxPool",
    "Min",
    "Pad",
    "ReduceMax",
    "Relu",
    "Reshape",
    "Slice",
    "Split",
    "Squeeze",
    "Transpose",
    "Unsqueeze",
    "Cast",
}


def combined(*axes):
    return [tuple(c) for c in itertools.product(*axes)]


ANY, WINDOW = (1, 2, 3, 4, 5), (3, 4)
CONSTANTS = [f"constant of {n} axes" for n in range(5)]
ATTRIBUTES = {
    "-": ("Relu Sigmoid Tanh HardSwish Mish Softplus Max Min Neg Identity", ANY),
    "alpha": ("LeakyRelu Elu Selu HardSigmoid", ANY),
    "gamma": ("Selu", ANY),
    "beta": ("HardSigmoid", ANY),
    "approximate": ("Gelu", ANY),
    "limits: none": ("Clip", ANY),
    "limits: low": ("Clip", ANY),
    "limits: high": ("Clip", ANY),
    "limits: both": ("Clip", ANY),
    "min": ("Clip", ANY),
    "max": ("Clip", ANY),
    "1 inputs": ("Sum Dropout", ANY),
    "2 inputs": ("Sum Dropout Pad", ANY),
    "3 inputs": ("Sum Dropout Pad", ANY),
    "ratio": ("Dropout", ANY),
    "seed": ("Dropout", ANY),
    "to": ("Cast", ANY),
    "two values": ("Add Sub Mul Div", ANY),
    "one repeated": ("Add Sub Mul", (3, 4, 5)),
    "epsilon": ("BatchNormalization", (2, 3, 4, 5)),
    "momentum": ("BatchNormalization", (2, 3, 4, 5)),
    "training_mode": ("BatchNormalization", (2, 3, 4, 5)),
    "transB": ("Gemm", (2,)),
    "transA": ("Gemm", (2,)),
    "summand none": ("Gemm", (2,)),
    "summand []": ("Gemm", (2,)),
    "summand [1]": ("Gemm", (2,)),
    "summand [M]": ("Gemm", (2,)),
    "summand [1, M]": ("Gemm", (2,)),
    "summand value": ("Gemm", (2,)),
    "matrix": ("MatMul", (2, 3, 4, 5)),
    "list": ("MatMul", (2, 3, 4, 5)),
    "left": ("MatMul", (3, 4, 5)),
    "left list": ("MatMul", (3, 4, 5)),
    "batch": ("MatMul", (4,)),
    "[1, K, M]": ("MatMul", (3, 4, 5)),
    "kernel_shape": ("Conv MaxPool AveragePool", WINDOW),
    "strides": ("Conv MaxPool AveragePool", WINDOW),
    "dilations": ("Conv MaxPool AveragePool", WINDOW),
    "pads": ("Conv MaxPool AveragePool", WINDOW),
    "group": ("Conv", WINDOW),
    "auto_pad": ("Conv MaxPool AveragePool", WINDOW),
    "ceil_mode": ("MaxPool AveragePool", WINDOW),
    "count_include_pad": ("AveragePool", WINDOW),
    "storage_order": ("MaxPool", WINDOW),
    "axes": ("ReduceMean ReduceMax ReduceSum Unsqueeze Squeeze", (2, 3, 4)),
    "keepdims": ("ReduceMean ReduceMax ReduceSum", (2, 3, 4, 5)),
    "noop_with_empty_axes": ("ReduceMean ReduceMax ReduceSum", ANY),
    "axis": ("Softmax LogSoftmax Concat Gather Split", (2, 3, 4, 5)),
    "allowzero": ("Reshape", (2, 3, 4)),
    "start": ("Shape", (2, 3, 4)),
    "end": ("Shape", (2, 3, 4)),
    "perm": ("Transpose", ANY),
    "mode": ("Pad", ANY),
    "value": ("Pad", ANY),
    "starts": ("Slice", (2, 3, 4, 5)),
    "ends": ("Slice", (2, 3, 4, 5)),
    "steps": ("Slice", (2, 3, 4, 5)),
    "num_outputs": ("Split", (2, 3, 4, 5)),
    "split": ("Split", (2, 3, 4, 5)),
    "indices of 0 axes": ("Gather", (2, 3, 4, 5)),
    "indices of 1 axes": ("Gather", (2, 3, 4, 5)),
    "indices of 2 axes": ("Gather", (2, 3, 4)),
    "offset": ("Scaler", (2,)),
    "scale": ("Scaler", (2,)),
    "norm": ("Normalizer", (2,)),
    "coefficients": ("LinearRegressor LinearClassifier", (2,)),
    "intercepts": ("LinearRegressor LinearClassifier", (2,)),
    "targets": ("LinearRegressor", (2,)),
    "post_transform": ("LinearClassifier", (2,)),
    "select_last_index": ("ArgMax", (2,)),
}
FOLDED = (
    "Abs And Ceil Constant ConstantOfShape DequantizeLinear Equal Exp Expand Floor Greater Less "
    "Log Mod Not Or Pow QuantizeLinear Range "
    "Reciprocal ReduceProd Size Sqrt Tile Where"
).split()


def promised():
    """The entries of the table that must not be empty: what docs/ONNX.md promises, in float32;
    other types and sets once for each operation."""
    wanted = [
        e
        for tag, (ops, ranks) in ATTRIBUTES.items()
        for e in combined(ops.split(), [tag], ranks, ["float32"])
    ]
    for op in ("Add", "Sub", "Mul", "Div", "PRelu"):
        wanted += [(op, tag, rank, "float32") for rank in ANY for tag in CONSTANTS[: rank + 1]]
    of_values = {e[0] for e in wanted} - {
        "Scaler",
        "Normalizer",
        "LinearRegressor",
        "LinearClassifier",
    }
    wanted += combined(of_values - {"Shape", "ArgMax"}, ["type"], [""], FLOATS)
    wanted += combined(
        OF_INTEGERS - {"Clip", "Max", "MaxPool", "Min", "Pad", "ReduceMax", "Relu"},
        ["type"],
        [""],
        INTEGERS,
    )
    wanted += combined(
        ["Clip", "Max", "Min", "Pad", "ReduceMax"], ["type"], [""], ["int32", "int64"]
    )
    wanted += [("MaxPool", "type", "", "int8"), ("MaxPool", "type", "", "uint8")]
    wanted += onnx_rules.expected()
    others = {name.split()[0] for name in RULES} | {"DequantizeLinear", "Scatter", "Upsample"}
    others -= {"Scaler", "Normalizer", "LinearRegressor", "ArrayFeatureExtractor", "folded"}
    kinds = dict.fromkeys(("Not", "And", "Or", "Xor"), "bool") | {"DequantizeLinear": "int8"}
    kinds |= onnx_integers.KINDS | {"OneHot": "int64"}
    wanted += [(op, "type", "", kinds.get(op, "float32")) for op in others - of_values]
    for op in sorted((of_values | others) - onnx_integers.OF_MICROSOFT):
        versions = sorted(
            {
                defs.get_schema(op, v).since_version
                for v in range(LEAST.get(op, 7), MOST_OF.get(op, SETS[1]) + 1)
            }
        )
        wanted += [(op, f"set {v}", "", "") for v in versions]
    return wanted + [(op, "constant", "", "") for op in FOLDED]


def classes(g):
    """An end that gives classes: their numbers, other names, or a decision for each value."""
    way = g.among(["ArgMax", "ArgMax", "LinearClassifier", "ZipMap", "LabelEncoder", "Binarizer"])
    x = g.operand((2,), first=True)
    n = g.shapes[x][1]
    if n > 20 or n < 2:
        raise Unfit

    g.scores = x
    if way == "Binarizer":
        g.answer, g.threshold = "flags", 0.25
        g.outputs = of_ml(g, way, [x], {"threshold": 0.25}, [[n]])
        return
    g.answer = "class"
    if way in ("LinearClassifier", "ZipMap"):
        count = g.int(3, 5)
        attrs = {
            "coefficients": normal(g, count * n, 1 / np.sqrt(n)).tolist(),
            "intercepts": normal(g, count).tolist(),
            "classlabels_ints": list(range(count)),
            "post_transform": g.among(["NONE", "SOFTMAX", "LOGISTIC"]),
        }
        g.outputs = of_ml(g, "LinearClassifier", [x], attrs, [[], [count]])
        g.scores = g.outputs[1]
        if way == "ZipMap":
            g.outputs = [
                g.outputs[0],
                *of_ml(g, way, [g.scores], {"classlabels_int64s": list(range(count))}, [[count]]),
            ]
        return
    attrs = {"axis": g.among([1, -1] if g.version >= 11 else [1])}
    if g.chance(0.5):
        attrs["keepdims"] = g.int(0, 1)
    if g.version >= 12 and g.chance(0.3):
        attrs["select_last_index"] = 0
    y = node(g, "ArgMax", x, **attrs)
    if way == "LabelEncoder":
        g.option, g.labels = "label", [int(v) for v in g.random.permutation(n) + 50]
        y = of_ml(g, way, [y], {"keys_int64s": list(range(n)), "values_int64s": g.labels}, [[]])[0]
    g.outputs = [y]


def mixed(g, x):
    """A value that is none of single records where the first axis is theirs."""
    op = g.among(["ReduceMean", "ReduceSum", "Gather", "Reshape", "Slice"])
    if g.shapes[x][0] < 2 or g.kinds[x] != g.kind:
        raise Unfit
    if op == "Gather":
        return node(g, op, x, stored(g, np.array([1, 0, 1])), axis=0)
    if op == "Reshape":
        if len(g.shapes[x]) == 1:
            raise Unfit
        return node(g, op, x, whole(g, [-1]))
    if op == "Slice":
        if g.version < 10:
            return node(g, op, x, starts=[1], ends=[FAR], axes=[0])
        return node(g, op, x, whole(g, [1]), whole(g, [FAR]), whole(g, [0]))
    return reduced(g, op, x, [0], keepdims=g.int(0, 1))


def draw_inputs(g):
    """Adds one to three inputs."""
    several = g.single and g.chance(0.2)
    count = g.among([1, 1, 1, 2, 3])
    for i in range(count):
        integer = g.kind == "float32" and g.chance(0.25)
        of = g.among(INTEGERS) if integer else g.kind
        dims = dims_of(g, g.among([0, 1, 2, 3, 4]))
        if not g.single:
            if BATCH in dims:
                raise Unfit
            name = g.input(dims, of)
            if g.moves and g.chance(0.5):
                at = g.int(0, len(dims))
                g.shapes[name] = [*dims[:at], BATCH, *dims[at:]]
            continue
        name = g.input([], of)
        if several:
            if len({g.shapes[n][0] for n in g.inputs[:-1] if g.shapes[n]}) == 1:
                dims = [g.shapes[g.inputs[0]][0], *dims[1:]]
            g.shapes[name] = [2, *dims] if not dims else dims
            g.mixers |= {mixed(g, name)}
        else:
            g.shapes[name] = [1, *dims] if i == 0 and g.chance(0.8) else dims


def draw(random, aims=()):
    """A graph, or `Unfit`. It is more likely to have one of the entries `aims`."""
    version = int(random.integers(SETS[0], SETS[1] + 1))
    aims = [(op, tag) for op, tag, *_ in sorted(aims, key=str) if op in RULES]
    aim, tag = aims[random.integers(len(aims))] if aims else (None, "")
    if tag.startswith("set "):
        version = int(tag[4:])
    kind = FLOATS[random.choice(4, p=[0.76, 0.08, 0.08, 0.08])]
    if kind == "bfloat16" and version < 13:
        kind = "float32"
    g = OnnxGraph(random, version, kind)
    way = g.among(["records"] * 5 + ["one", "moves", "single", "single", "single"])
    g.records = 1 if way == "one" or way == "moves" and g.chance(0.3) else None
    g.moves, g.single = way == "moves", way == "single"
    draw_inputs(g)
    names = [n for n in RULES if version >= LEAST.get(n, 7)]
    if kind != "float32":
        names = [
            n
            for n in names
            if n not in ("Scaler", "Normalizer", "LinearRegressor", "ArrayFeatureExtractor")
        ]
    wanted, failures = g.int(3, 9), 0
    if aim in names:
        names = names + [aim] * (len(names) // 3)
    while wanted:
        before = (
            list(g.nodes),
            dict(g.shapes),
            dict(g.kinds),
            set(g.live),
            dict(g.weights),
            g.sizes,
        )
        try:
            RULES[g.among(names)](g)
            wanted -= 1
        except (Unfit, shape_inference.InferenceError, onnx.checker.ValidationError, ValueError):
            g.nodes, g.shapes, g.kinds, g.live, g.weights, g.sizes = before
            failures += 1
            if failures > 100:
                raise Unfit
    if not g.fits():
        raise Unfit
    g.declared, g.listed, g.ml = g.chance(0.3), g.chance(0.15), g.int(2, 5)
    # Records that leave the range of float32 on their way.
    # What an integer makes of them is nobody's promise.
    whole_ones = any(
        n.op in onnx_integers.BOUNDS
        or n.op in ("Cast", "CastLike")
        and g.kinds[n.outputs[0]] in INTEGERS
        for n in g.nodes
    )
    g.extreme = kind == "float32" and g.chance(0.05) and not whole_ones
    if kind == "float32" and g.chance(0.1):
        classes(g)
        return g.cut(g.outputs)
    g.outputs = [n for n in g.leaves() if n not in g.sizes and n not in g.inputs]
    if not g.outputs:
        raise Unfit
    if g.chance(0.1):
        g.outputs = g.outputs[:1]
    if len(g.outputs) == 1:
        g.settings = {"output": {"kind": "values"}}
    g.random.shuffle(g.outputs)
    return g.cut(g.outputs)


# Writing and judging.


def proto(node_):
    return helper.make_node(
        node_.op, node_.inputs, node_.outputs, domain=node_.domain, **node_.attrs
    )


def model(g, nodes, inputs, outputs, weights, kinds, records="N", declared=False):
    sizes = lambda n: [records if i == g.axis(n) else d for i, d in enumerate(g.shapes[n])]
    info = lambda n: helper.make_tensor_value_info(n, code(kinds[n]), sizes(n))
    of_output = info if declared else helper.make_empty_tensor_value_info
    made = helper.make_graph(
        nodes,
        "random",
        [info(n) for n in inputs],
        [of_output(n) for n in outputs],
        [numpy_helper.from_array(w, n) for n, w in weights.items()],
    )
    opsets = [helper.make_opsetid("", g.version), helper.make_opsetid(ML, g.ml)]
    if any(n.domain == onnx_integers.MICROSOFT for n in nodes):
        opsets.append(helper.make_opsetid(onnx_integers.MICROSOFT, 1))
    return helper.make_model(made, opset_imports=opsets, ir_version=8)


def written(g):
    """The bytes of the model."""
    nodes = [proto(n) for n in g.nodes]
    made = model(
        g,
        nodes,
        g.inputs,
        g.outputs,
        g.weights,
        g.kinds,
        g.records or "N",
        g.declared and g.answer == "scores",
    )
    if g.listed:
        # Old files name initializers among the inputs, and have numbers in fields of their types.
        graph = made.graph
        graph.input.extend(
            helper.make_tensor_value_info(n, code(w.dtype.name), w.shape)
            for n, w in g.weights.items()
        )
        for tensor, (name, w) in zip(graph.initializer, g.weights.items()):
            if w.dtype in (np.float32, np.float64, np.int64, np.int32, np.int8, np.uint8):
                tensor.CopyFrom(
                    helper.make_tensor(name, code(w.dtype.name), w.shape, w.flatten().tolist())
                )
    return made.SerializeToString()


def records(g, count, random):
    """Values of each input, in types that NumPy has."""
    found = {}
    for name in g.inputs:
        shape, kind = [count, *g.dims(name)], g.kinds[name]
        if kind in INTEGERS:
            low, high = {"int8": (-100, 100), "uint8": (0, 200)}.get(kind, (-1000, 1000))
            found[name] = random.integers(low, high, shape).astype(kind)
            continue
        x = random.normal(0, 1, shape)
        x[random.random(shape) < 0.05] = 0
        exact = (
            ml_dtypes.bfloat16
            if kind == "bfloat16"
            else np.float16
            if kind == "float16"
            else np.float32
        )
        found[name] = x.astype(exact).astype(np.float32)
        if g.extreme:
            found[name][::EVERY] *= np.float32(5e37)
    return found


OPTIONS = onnxruntime.SessionOptions()
OPTIONS.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
OPTIONS.log_severity_level = 4
OPTIONS.intra_op_num_threads = 1


def evaluated(made, feeds):
    """All outputs by ONNX Runtime, or by the reference implementation if that has no kernel."""
    try:
        session = onnxruntime.InferenceSession(
            made.SerializeToString(), OPTIONS, providers=["CPUExecutionProvider"]
        )
    except Exception as e:
        if "NOT_IMPLEMENTED" not in str(e) and "NotImplemented" not in type(e).__name__:
            raise
        return onnx.reference.ReferenceEvaluator(made).run(None, feeds), True
    return session.run(None, feeds), False


class Judge:
    """Values of all tensors: constants in their own types, values of records in float32."""

    def __init__(self, g):
        self.reference = False
        fixed = [n for n in g.nodes if not any(i in g.live for i in n.inputs)]
        self.constants = dict(g.weights)
        if fixed:
            outputs = [o for n in fixed for o in n.outputs if o]
            made = model(g, [proto(n) for n in fixed], [], outputs, g.weights, g.kinds)
            results, self.reference = evaluated(made, {})
            self.constants |= dict(zip(outputs, results))
        self.stored = set(g.weights)
        self.g = g

    def values(self, feeds):
        g = self.g
        count = len(next(iter(feeds.values())))
        # Maps and other names of classes are no numbers.
        nodes = [
            n
            for n in g.nodes
            if any(i in g.live for i in n.inputs) and n.op not in ("ZipMap", "LabelEncoder")
        ]
        as_float = lambda k: "float32" if k in FLOATS else k
        kinds = {n: as_float(k) for n, k in g.kinds.items()}
        needed = {i for n in nodes for i in n.inputs}
        weights = {}
        for n, w in self.constants.items():
            if n in needed:
                w = np.asarray(w)
                weights[n] = (
                    w.astype(np.float32)
                    if w.dtype.kind in "fV" or w.dtype.name == "bfloat16"
                    else w
                )
        outputs = [o for n in nodes for o in n.outputs if o]
        protos = []
        for n in nodes:
            attrs = dict(n.attrs)
            if n.op == "Cast" and attrs["to"] in (10, 11, 16):
                attrs["to"] = 1
            protos.append(proto(Node(n.op, n.inputs, n.outputs, attrs, n.domain)))
        made = model(g, protos, g.inputs, outputs, weights, kinds)
        if g.single:
            parts = [{k: np.asarray(v[i]) for k, v in feeds.items()} for i in range(count)]
        else:
            step = 1 if g.records else count
            parts = [
                {k: np.moveaxis(v[i : i + step], 0, g.axis(k)) for k, v in feeds.items()}
                for i in range(0, count, step)
            ]
        found = {n: [] for n in outputs}
        runner = None
        for part in parts:
            if runner is None:
                try:
                    session = onnxruntime.InferenceSession(
                        made.SerializeToString(), OPTIONS, providers=["CPUExecutionProvider"]
                    )
                    runner = lambda f: session.run(None, f)
                except Exception as e:
                    if "NOT_IMPLEMENTED" not in str(e):
                        raise
                    if g.version < 14 and any(n.op == "BatchNormalization" for n in nodes):
                        raise Unfit("the reference implementation trains old BatchNormalization")
                    if any(n.op == "LRN" and n.attrs["size"] % 2 for n in nodes):
                        raise Unfit("the reference implementation leaves out a channel of LRN")
                    self.reference = True
                    evaluator = onnx.reference.ReferenceEvaluator(made)
                    runner = lambda f: evaluator.run(None, f)
            for name, value in zip(outputs, runner(part)):
                found[name].append(value)
        return {**feeds, **{n: joined(g, n, v) for n, v in found.items()}}


def joined(g, name, parts):
    """The parts of a value that records have, with the records in front."""
    if name in g.sizes or not g.single and not np.ndim(parts[0]):
        return parts[0]
    if g.single:
        return np.stack(parts)
    return np.concatenate([np.moveaxis(p, g.axis(name), 0) for p in parts])
