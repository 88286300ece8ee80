"""Writes folding.onnx, whose constants go through every operation × type that is computed of
constants, with its inputs and what ONNX Runtime makes of them. Each result becomes FLOAT and is a
bias of one layer.

Needs numpy, onnx, onnxruntime:
    python tests/onnx/folding.py
"""

import os

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

HERE = os.path.dirname(os.path.abspath(__file__))
nodes, initializers, names_of, parts, results, size = [], [], {}, [], [], 0


def constant(values):
    tensor = numpy_helper.from_array(np.asarray(values), "")
    key = tensor.SerializeToString()
    if key not in names_of:
        names_of[key] = tensor.name = f"c{len(initializers)}"
        initializers.append(tensor)
    return names_of[key]


def case(op, *inputs, **attributes):
    """A node of constants; it is left out where ONNX Runtime has no kernel of the type."""
    global size
    n = len(nodes)
    names = ["" if i is None else constant(i) for i in inputs]
    own = [
        helper.make_node(op, names, [f"r{n}"], **attributes),
        helper.make_node("Cast", [f"r{n}"], [f"f{n}"], to=TensorProto.FLOAT),
        helper.make_node("Reshape", [f"f{n}", constant(np.array([1, -1]))], [f"p{n}"]),
    ]
    used = [i for i in initializers if i.name in names]
    # Alone: ONNX Runtime leaves out the rounding to FLOAT16 where a Cast to FLOAT follows.
    alone = "f" if attributes.get("to") == TensorProto.BFLOAT16 else "r"
    last = [onnx.ValueInfoProto(name=f"{alone}{n}")]
    graph = helper.make_graph(own[: 1 + (alone == "f")], "one", [], last, used)
    try:
        found = run(graph, {}).astype(np.float32).reshape(1, -1)
    except Exception:
        return
    if not np.isfinite(found).all():
        # Biases must be finite.
        return
    nodes.extend(own)
    parts.append(f"p{n}")
    results.append(found)
    size += found.size


def run(graph, feeds):
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=8)
    data = model.SerializeToString()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    run.data = data
    return session.run(None, feeds)[0]


INTS = [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64]
FLOATS = [np.float32, np.float64, np.float16]
for t in INTS:
    high = np.iinfo(t).max
    low = np.iinfo(t).min
    small = np.array([7, 5, 3, 100], t)
    signed = np.array([7, -7, 7, -7] if low < 0 else [7, 8, 9, 250], t)
    by = np.array([3, 3, -3, -3] if low < 0 else [3, 5, 2, 7], t)
    for op in ("Add", "Sub", "Mul"):
        case(op, np.array([high, low, high, 5], t), np.array([1, 1, 3, 7], t))
    for op in ("Div", "Mod"):
        case(op, signed, by)
    case("Mod", signed, by, fmod=1)
    for op in ("Max", "Min", "Equal", "Greater", "Less"):
        case(op, signed, by)
    for op in ("Abs", "Relu") + (("Neg",) if low < 0 else ()):
        case(op, signed)
    case("Clip", signed, np.array(3, t), np.array(8, t))
    for op in ("ReduceSum", "ReduceProd", "ReduceMean", "ReduceMax"):
        # Within the range of the type: ONNX Runtime 1.32 gives the largest number for sums of 32
        # and 64 bits that overflow, where integers of ONNX wrap.
        case(op, np.array([[high // 8, 2, 3], [4, 5, 8]], t), np.array([1]))
        case(op, small, keepdims=0)
        case(op, small, noop_with_empty_axes=1)
    case("Pow", np.array([2, 3, 5], t), np.array([3, 2, 1], t))
    case("MatMul", np.array([[1, 2], [3, 4]], t), np.array([5, 6], t))
    case("Tile", small, np.array([2]))
    for to in [1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 16]:
        case("Cast", np.array([high, low, 1, 77], t), to=to)
for t in FLOATS:
    x = np.array([[0.1, -2.7, 3.3], [1.5, 7.9, -0.4]], t)
    y = np.array([0.3, -1.1, 2.5], t)
    for op in ("Add", "Sub", "Mul", "Div", "Max", "Min", "Equal", "Greater", "Less"):
        case(op, x, y)
    case("Mod", x, y, fmod=1)
    case("Pow", np.abs(x), y)
    for op in (
        "Abs",
        "Neg",
        "Ceil",
        "Floor",
        "Exp",
        "Reciprocal",
        "Relu",
        "LeakyRelu",
        "Elu",
        "Selu",
        "Sigmoid",
        "HardSigmoid",
        "HardSwish",
        "Tanh",
        "Softmax",
        "Gelu",
    ):
        case(op, x)
    for op in ("Sqrt", "Log"):
        case(op, np.abs(x))
    case("Clip", x, np.array(-1, t), np.array(2, t))
    for op in ("ReduceSum", "ReduceProd", "ReduceMean", "ReduceMax"):
        case(op, x, np.array([1]))
        case(op, x, np.array([0]), keepdims=0)
        case(op, x, noop_with_empty_axes=1)
    case("MatMul", y, np.ones([3, 2], t))
    for to in [2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 16]:
        case("Cast", np.abs(x) if to in (2, 4, 12) else x, to=to)
x = np.array([150.0, -150.0, 0.25, 0.75, 12.5, 12.7], np.float32)
case("QuantizeLinear", x, np.float32(0.5))
for t in (np.int8, np.uint8):
    case("QuantizeLinear", x, np.float32(0.5), np.array(3, t))
case("Conv", np.arange(9, dtype=np.float32).reshape(1, 1, 3, 3), np.ones([1, 1, 2, 2], np.float32))
case("MaxPool", np.arange(9, dtype=np.float32).reshape(1, 1, 3, 3), kernel_shape=[2, 2])

nodes.append(helper.make_node("Concat", parts, ["all"], axis=1))
nodes.append(
    helper.make_node(
        "Expand", [constant(np.ones([1, 1], np.float32)), constant(np.array([1, size]))], ["w"]
    )
)
nodes.append(helper.make_node("Gemm", ["x", "w", "all"], ["y"]))
infos = [
    helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", d])
    for n, d in (("x", 1), ("y", size))
]
initializers = [i for i in initializers if any(i.name in n.input for n in nodes)]
graph = helper.make_graph(nodes, "folding", infos[:1], infos[1:], initializers)
inputs = np.random.default_rng(3).normal(0, 1, (4, 1)).astype(np.float32)
run(graph, {"x": inputs})
outputs = inputs + np.concatenate(results, axis=1)
with open(os.path.join(HERE, "folding.onnx"), "wb") as file:
    file.write(run.data)
np.save(os.path.join(HERE, "folding.inputs.npy"), inputs)
np.save(os.path.join(HERE, "folding.outputs.npy"), outputs)
print(len(parts), size)
