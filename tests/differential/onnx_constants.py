"""Constants of random ONNX graphs: stored, by nodes `Constant`, or computed of other constants."""

import ml_dtypes
import numpy as np
from onnx import numpy_helper

from graph import Unfit


def node(g, op, *inputs, **attrs):
    return g.node(op, list(inputs), attrs)[0]


def stored(g, array):
    """The array as an initializer or a node `Constant`."""
    array = np.asarray(array)
    if g.chance(0.75) or (g.version < 9 and array.dtype.kind != "f"):
        return g.weight(array)
    if g.version >= 12 and g.chance(0.5):
        if array.dtype in (np.float32, np.int64) and array.ndim < 2 and array.size:
            letter = "float" if array.dtype == np.float32 else "int"
            attrs = (
                {f"value_{letter}": array.item()}
                if array.ndim == 0
                else {f"value_{letter}s": array.tolist()}
            )
            return node(g, "Constant", **attrs)
    return node(g, "Constant", value=numpy_helper.from_array(array))


def whole(g, values, kind="int64"):
    """Whole numbers, stored or computed."""
    a = np.asarray(values, kind)
    if a.ndim != 1 or a.size == 0 or g.version < 9 or g.chance(0.6):
        return stored(g, a)
    ways = [
        "Add",
        "Sub",
        "Div",
        "Cast",
        "Concat",
        "Gather",
        "Slice",
        "Squeeze",
        "Shape",
        "Where",
        "Mul",
        "Neg",
        "Split",
    ]
    if g.version >= 10:
        ways += ["Mod"]
    if g.version >= 11:
        ways += ["Range", "Max", "Min", "Clip"] if g.version >= 12 else ["Range"]
    if g.version >= 13:
        ways += ["ReduceMax", "ReduceProd", "ReduceSum", "Expand", "Tile", "Abs"]
    way = g.among(ways)
    n = a.size
    try:
        name = computed(g, way, a, n)
    except Unfit:
        return stored(g, a)
    g.known[name] = a
    return name


def computed(g, way, a, n):
    i64 = lambda v: stored(g, np.asarray(v, np.int64))
    b = np.array([g.int(1, 9) for _ in range(n)], np.int64)
    if way == "Add":
        return node(g, "Add", i64(a - b), i64(b))
    if way == "Sub":
        return node(g, "Sub", i64(a + b[0]), i64(b[:1]))
    if way == "Mul":
        return node(g, "Mul", i64(a), i64(1))
    if way == "Neg":
        return node(g, "Neg", i64(-a))
    if way == "Abs":
        if (a < 0).any() or (a > 100).any():
            raise Unfit
        return node(g, "Abs", i64(-a))
    if way == "Div":
        # Truncated toward zero.
        return node(g, "Div", i64(a * 5 + np.sign(a) * 3), i64(5))
    if way == "Mod":
        if (a < 0).any() or (a > 90).any():
            raise Unfit
        return node(g, "Mod", i64(a - 97 * b), i64(97))
    if way == "Cast":
        if (np.abs(a) > 1000).any():
            raise Unfit
        kind, code = g.among([("float32", 1), ("int32", 6), ("float64", 11)])
        fraction = 0.25 * np.sign(a) if kind != "int32" else 0
        return node(g, "Cast", stored(g, (a + fraction).astype(kind)), to=7)
    if way == "Concat":
        cut = g.int(0, n)
        parts = [p for p in (a[:cut], a[cut:]) if p.size]
        return node(g, "Concat", *[i64(p) for p in parts], axis=0)
    if way == "Gather":
        order = g.random.permutation(n)
        back = np.argsort(order).astype(np.int64)
        return node(g, "Gather", i64(a[order]), i64(back - n * g.int(0, 1)), axis=0)
    if way == "Slice" and g.version >= 10:
        return node(
            g,
            "Slice",
            i64(np.concatenate([[9], a[::-1], [4]])),
            i64([n]),
            i64([0]),
            i64([0]),
            i64([-1]),
        )
    if way == "Slice":
        return node(g, "Slice", i64(np.concatenate([[9], a, [4]])), starts=[1], ends=[-1])
    if way == "Split" and g.version >= 13:
        both = i64(np.concatenate([b, a]))
        return g.node("Split", [both, i64([n, n])], {"axis": 0}, 2)[1]
    if way == "Squeeze":
        return squeeze(g, i64(a[None]), [0], "Squeeze")
    if way == "Shape":
        if (a < 1).any() or np.prod(a) > 500:
            raise Unfit
        value = numpy_helper.from_array(np.array([1], np.float32))
        return node(g, "Shape", node(g, "ConstantOfShape", i64(a), value=value))
    if way == "Where":
        if n < 2:
            raise Unfit
        pick = g.random.random(n) < 0.5
        return node(
            g, "Where", stored(g, pick), i64(np.where(pick, a, b)), i64(np.where(pick, b, a))
        )
    if way == "Range":
        step = int(a[1] - a[0]) if n > 1 else 1
        if step == 0 or (np.diff(a) != step).any():
            raise Unfit
        return node(g, "Range", i64(a[0]), i64(int(a[-1]) + (1 if step > 0 else -1)), i64(step))
    if way in ("Max", "Min"):
        return node(g, way, i64(a), i64(a - b if way == "Max" else a + b))
    if way == "Clip":
        return node(g, "Clip", i64(a), i64(a.min()), i64(a.max()))
    if way == "ReduceMax" and g.version >= 18:
        return node(g, "ReduceMax", i64(np.stack([a, a - b])), i64([0]), keepdims=0)
    if way == "ReduceProd" and g.version >= 18:
        return node(g, "ReduceProd", i64(np.stack([a, np.ones_like(a)])), i64([0]), keepdims=0)
    if way == "ReduceSum":
        return node(g, "ReduceSum", i64(np.stack([a - b, b])), i64([0]), keepdims=0)
    if way in ("Expand", "Tile"):
        if (a != a[0]).any():
            raise Unfit
        return node(g, way, i64(a[:1]), i64([n]))
    raise Unfit


def squeeze(g, x, axes, op):
    if g.version >= 13:
        return node(g, op, x, whole(g, axes))
    return node(g, op, x, axes=list(axes))


def normal(g, shape, scale=1.0):
    return g.random.normal(0, scale, shape).astype(np.float32)


def quarters(g, shape, low=-8, high=8):
    """Numbers that are exact, for functions that jump."""
    return (g.random.integers(low, high + 1, shape) / 4).astype(np.float32)


def floats(g, shape, scale=1.0, positive=False):
    """Random numbers of the graph's type: normal ones of this scale, or in [0.5, 1.5] times it."""
    shape = list(shape)
    simple = g.kind != "float32" or g.version < 9 or g.chance(0.6)
    if positive:
        a = (g.random.uniform(0.5, 1.5, shape) * scale).astype(np.float32)
    else:
        a = normal(g, shape, scale)
    if simple:
        return typed(g, a)
    if positive:
        return node(g, "Abs", stored(g, -a)) if g.chance(0.5) else node(g, "Sqrt", stored(g, a * a))
    x = expression(g, shape, 2)
    return node(g, "Mul", x, stored(g, np.float32(scale)))


def typed(g, a):
    """An array in the graph's type, at times cast from another."""
    if g.kind == "bfloat16":
        return g.weight(a.astype(ml_dtypes.bfloat16))
    if g.kind == "float32" and g.chance(0.1) and g.version >= 9:
        return node(g, "Cast", stored(g, a.astype(g.among(["float64", "float16"]))), to=1)
    if g.kind == "float32" and g.chance(0.1) and g.version >= 13:
        return quantised(g, a)
    return stored(g, a.astype(g.kind))


def quantised(g, a):
    """The numbers that stored integers stand for, by `DequantizeLinear`."""
    axis = g.int(0, a.ndim - 1) if a.ndim and g.chance(0.6) else None
    kind = g.among(["int8", "uint8"] if g.version < 21 else ["int8", "uint8", "int16", "uint16"])
    spread = float(np.abs(a).max(initial=1e-3)) / 100
    scale = (
        np.array(spread, np.float32)
        if axis is None
        else g.random.uniform(0.8, 1.25, a.shape[axis]).astype(np.float32) * np.float32(spread)
    )
    zero = np.zeros_like(scale, kind) + (
        g.int(-10, 10) if kind.startswith("i") else g.int(110, 140)
    )
    s, z = (
        v if axis is None else v.reshape([-1 if i == axis else 1 for i in range(a.ndim)])
        for v in (scale, zero)
    )
    if g.version >= 21 and axis is not None and a.shape[axis] % 2 == 0 and g.chance(0.5):
        # A scale for each two indices along the axis.
        some = [n // 2 if i == axis else n for i, n in enumerate(a.shape)]
        scale, zero = (
            (g.random.uniform(0.8, 1.25, some) * spread).astype(np.float32),
            np.full(some, zero.flat[0], kind),
        )
        s, z = np.repeat(scale, 2, axis), np.repeat(zero, 2, axis)
        q = np.clip(np.round(a / s) + z, np.iinfo(kind).min, np.iinfo(kind).max).astype(kind)
        return node(
            g,
            "DequantizeLinear",
            stored(g, q),
            stored(g, scale),
            stored(g, zero),
            axis=axis,
            block_size=2,
        )
    q = np.clip(np.round(a / s) + z, np.iinfo(kind).min, np.iinfo(kind).max).astype(kind)
    attrs = {} if axis is None else {"axis": axis - a.ndim * g.int(0, 1)}
    if g.chance(0.3) and kind in ("int8", "uint8"):
        # Exact numbers: nothing lies between two integers.
        x = node(
            g,
            "QuantizeLinear",
            stored(g, ((q.astype(np.float32) - z) * np.float32(0.25)).astype(np.float32)),
            stored(g, np.float32(0.25)),
            stored(g, np.array(zero.flat[0] if zero.ndim == 0 else 0, kind)),
        )
        if zero.ndim == 0:
            return node(g, "DequantizeLinear", x, stored(g, scale), stored(g, zero))
    return node(g, "DequantizeLinear", stored(g, q), stored(g, scale), stored(g, zero), **attrs)


def expression(g, shape, depth):
    """Numbers of about 1 with these sizes, computed of constants in float32."""
    if depth == 0 or g.chance(0.2):
        return stored(g, normal(g, shape))
    n, rank = int(np.prod(shape)), len(shape)
    sub = lambda s=shape: expression(g, list(s), depth - 1)
    positive = lambda s=shape: stored(g, g.random.uniform(0.5, 1.5, s).astype(np.float32))
    axis = g.int(0, rank - 1) if rank else 0
    ways = [
        "Add",
        "Sub",
        "Mul",
        "Div",
        "Neg",
        "Abs",
        "Ceil",
        "Floor",
        "Exp",
        "Log",
        "Sqrt",
        "Reciprocal",
        "Pow",
        "Where",
        "activation",
        "Cast",
        "Identity",
        "Compare",
        "Logic",
        "Reshape",
        "Min",
        "Max",
        "Sum",
        "Clip",
        "ConstantOfShape",
        "Mod",
        "Dropout",
    ]
    if rank:
        ways += [
            "Concat",
            "Slice",
            "Gather",
            "Transpose",
            "Unsqueeze",
            "Expand",
            "Tile",
            "Tile",
            "Split",
            "Squeeze",
            "Reduce",
            "Size",
        ]
    if rank == 2:
        ways += ["MatMul", "Gemm", "Flatten", "BatchNormalization", "Softmax", "Pad", "PRelu"]
    if rank == 4:
        ways += ["Conv", "Pool", "BatchNormalization"]
    way = g.among(ways)
    if way in ("Add", "Sub", "Mul", "Min", "Max", "Sum"):
        # At set 7 some of these do not broadcast yet.
        other = shape if g.version < 8 else g.among([shape, shape[1:], [1] * rank])
        pair = [sub(), sub(other)]
        return node(g, way, *(pair[::-1] if g.chance(0.5) else pair))
    if way == "Div":
        return node(g, "Div", sub(), positive(g.among([shape, []])))
    if way in ("Neg", "Abs", "Identity"):
        return node(g, way, sub())
    if way == "Dropout":
        return node(g, way, sub())
    if way in ("Ceil", "Floor"):
        return node(g, way, stored(g, quarters(g, shape)))
    if way == "Exp":
        return node(g, "Exp", stored(g, normal(g, shape, 0.3)))
    if way in ("Log", "Sqrt", "Reciprocal"):
        return node(g, way, positive())
    if way == "Pow":
        return node(g, "Pow", positive(), stored(g, np.float32(g.among([2, 3, 0.5, -1]))))
    if way == "Where":
        pick = stored(g, g.random.random(g.among([shape, shape[1:]])) < 0.5)
        return node(g, "Where", pick, sub(), sub())
    if way == "activation":
        ops = ["Relu", "LeakyRelu", "Elu", "Selu", "Sigmoid", "HardSigmoid", "Tanh"]
        ops += ["HardSwish"] if g.version >= 14 else []
        ops += ["Gelu"] if g.version >= 20 else []
        return node(g, g.among(ops), sub())
    if way == "Cast":
        kind, code = g.among(
            [
                ("int8", 3),
                ("uint8", 2),
                ("int32", 6),
                ("int64", 7),
                ("float64", 11),
                ("int16", 5),
                ("bool", 9),
            ]
        )
        numbers = g.random.integers(0, 3, shape)
        return node(
            g, "Cast", node(g, "Cast", stored(g, numbers.astype(np.float32)), to=code), to=1
        )
    if way == "Compare":
        a, b = (stored(g, quarters(g, shape, -2, 2)) for _ in range(2))
        return node(
            g,
            "Cast",
            node(
                g,
                g.among(["Greater", "Less", "Equal"] if g.version >= 11 else ["Greater", "Less"]),
                a,
                b,
            ),
            to=1,
        )
    if way == "Logic":
        a, b = (stored(g, g.random.random(shape) < 0.5) for _ in range(2))
        both = node(g, g.among(["And", "Or"]), a, b)
        return node(g, "Cast", node(g, "Not", both) if g.chance(0.5) else both, to=1)
    if way == "Reshape":
        attrs = {"allowzero": 1} if g.version >= 14 and g.chance(0.3) else {}
        return node(
            g,
            "Reshape",
            sub([n]),
            whole(g, shape) if shape else stored(g, np.array([], np.int64)),
            **attrs,
        )
    if way == "Clip":
        if g.version < 11:
            return node(g, "Clip", sub(), min=-0.5, max=0.75)
        bounds = g.among([("", 0.5), (-0.5, 0.75), (-0.25,)])
        return node(
            g, "Clip", sub(), *["" if b == "" else stored(g, np.float32(b)) for b in bounds]
        )
    if way == "ConstantOfShape":
        value = (
            {"value": numpy_helper.from_array(np.array([0.75], np.float32))}
            if g.chance(0.7)
            else {}
        )
        return node(
            g,
            "ConstantOfShape",
            whole(g, shape) if shape else stored(g, np.array([], np.int64)),
            **value,
        )
    if way == "Mod":
        if g.version < 10:
            return sub()
        if g.chance(0.5):
            return node(
                g,
                "Mod",
                stored(g, quarters(g, shape)),
                stored(g, np.float32(g.among([1.5, -1.25]))),
                fmod=1,
            )
        kind = g.among(["int32", "int64"] + (["int8", "uint8"] if g.version >= 13 else []))
        a = g.random.integers(0 if kind == "uint8" else -9, 10, shape).astype(kind)
        mod = node(
            g,
            "Mod",
            stored(g, a),
            stored(g, np.array(g.among([3, 4] if kind == "uint8" else [3, -4]), kind)),
            **({"fmod": 1} if g.chance(0.3) else {}),
        )
        return node(g, "Cast", mod, to=1)
    if way == "Size":
        total = node(g, "Cast", node(g, "Size", sub()), to=1)
        return node(g, "Div", sub(), total)
    if way == "Concat":
        if shape[axis] < 2:
            return sub()
        cut = g.int(1, shape[axis] - 1)
        part = lambda k: sub([*shape[:axis], k, *shape[axis + 1 :]])
        return node(
            g,
            "Concat",
            part(cut),
            part(shape[axis] - cut),
            axis=axis - rank * g.int(0, 1) if g.version >= 11 else axis,
        )
    if way == "Split":
        whole_one = sub([*shape[:axis], 2 * shape[axis], *shape[axis + 1 :]])
        attrs = {"axis": axis} | ({"num_outputs": 2} if g.version >= 18 else {})
        return g.node("Split", [whole_one], attrs, 2)[g.int(0, 1)]
    if way == "Slice":
        x, k = sub([*shape[:axis], shape[axis] + 2, *shape[axis + 1 :]]), g.int(0, 2)
        if g.version < 10:
            return node(g, "Slice", x, starts=[k], ends=[k + shape[axis]], axes=[axis])
        return node(g, "Slice", x, whole(g, [k]), whole(g, [k + shape[axis]]), whole(g, [axis]))
    if way == "Gather":
        at = g.random.integers(0, 4, shape[axis])
        return node(
            g, "Gather", sub([*shape[:axis], 4, *shape[axis + 1 :]]), whole(g, at), axis=axis
        )
    if way == "Transpose":
        perm = [int(p) for p in g.random.permutation(rank)]
        if g.chance(0.3):
            return node(g, "Transpose", sub(shape[::-1]))
        return node(g, "Transpose", sub([shape[perm.index(i)] for i in range(rank)]), perm=perm)
    if way == "Unsqueeze":
        if shape[axis] != 1:
            return sub()
        return squeeze(g, sub([*shape[:axis], *shape[axis + 1 :]]), [axis], "Unsqueeze")
    if way == "Squeeze":
        return squeeze(g, sub([*shape[:axis], 1, *shape[axis:]]), [axis], "Squeeze")
    parts = [(i, n) for i in range(rank) for n in range(2, shape[i]) if shape[i] % n == 0]
    if way == "Tile" and parts:
        axis, times = g.among(parts)
        part = sub([*shape[:axis], shape[axis] // times, *shape[axis + 1 :]])
        return node(g, way, part, whole(g, [times if i == axis else 1 for i in range(rank)]))
    if way in ("Expand", "Tile"):
        one = sub([*shape[:axis], 1, *shape[axis + 1 :]])
        return node(
            g,
            way,
            one,
            whole(
                g, shape if way == "Expand" else [shape[i] if i == axis else 1 for i in range(rank)]
            ),
        )
    if way == "Reduce":
        x = sub([*shape[:axis], g.int(1, 3), *shape[axis:]])
        return reduced(
            g,
            g.among(["ReduceMean", "ReduceSum", "ReduceMax", "ReduceProd"]),
            x,
            [axis],
            keepdims=0,
        )
    if way == "MatMul":
        k = g.int(1, 3)
        return node(g, "MatMul", sub([shape[0], k]), sub([k, shape[1]]))
    if way == "Gemm":
        k, b = g.int(1, 3), g.int(0, 1)
        return node(
            g,
            "Gemm",
            sub([shape[0], k]),
            sub([shape[1], k] if b else [k, shape[1]]),
            sub([shape[1]]),
            transB=b,
            alpha=0.5,
        )
    if way == "Flatten":
        return node(
            g, "Flatten", sub([shape[0], 1, shape[1]]), axis=g.among([1, 2]) if shape[0] else 1
        )
    if way == "BatchNormalization":
        numbers = [positive([shape[1]]), sub([shape[1]]), sub([shape[1]]), positive([shape[1]])]
        return node(g, "BatchNormalization", sub(), *numbers)
    if way == "Softmax":
        return node(g, g.among(["Softmax", "LogSoftmax"]), sub(), axis=1)
    if way == "Pad":
        x = sub([shape[0], shape[1] - 1]) if shape[1] > 1 else sub()
        if shape[1] < 2:
            return x
        if g.version < 11:
            return node(g, "Pad", x, pads=[0, 1, 0, 0], value=0.5)
        return node(g, "Pad", x, whole(g, [0, 0, 0, 1]), stored(g, np.float32(0.5)))
    if way == "PRelu":
        return node(g, "PRelu", sub(), sub([shape[1]]))
    if way == "Conv":
        return node(
            g,
            "Conv",
            sub([shape[0], 2, shape[2] + 1, shape[3]]),
            sub([shape[1], 2, 2, 1]),
            kernel_shape=[2, 1],
        )
    return node(
        g,
        g.among(["MaxPool", "AveragePool"]),
        sub([*shape[:2], shape[2] + 1, shape[3] + 1]),
        kernel_shape=[2, 2],
    )


def reduced(g, op, x, axes, **attrs):
    """A reduction along axes, which became an input at set 13 or 18."""
    if g.version >= (13 if op == "ReduceSum" else 18):
        return node(g, op, x, whole(g, axes), **attrs)
    return node(g, op, x, axes=list(axes), **attrs)
