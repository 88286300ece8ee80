"""Writes corners.onnx: operations where few models go, side by side, each an output, with inputs
and what ONNX Runtime makes of them. twice.onnx gives one value by two names, and one name to two
outputs.

Needs numpy, onnx, onnxruntime:
    python tests/onnx/corners.py
"""

import os

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

HERE = os.path.dirname(os.path.abspath(__file__))
RECORDS = 4
random = np.random.default_rng(33)
nodes, initializers, outputs = [], [], []


def constant(values):
    name = f"c{len(initializers)}"
    initializers.append(numpy_helper.from_array(np.asarray(values), name))
    return name


def weights(*dims):
    return constant(random.normal(0, 1, dims).astype(np.float32))


def case(op, *inputs, results=("",), **attributes):
    """A node whose first named result is an output of the model."""
    names = [
        f"{op.lower()}{len(nodes)}_{i}" if r is not None else "" for i, r in enumerate(results)
    ]
    nodes.append(helper.make_node(op, list(inputs), names, **attributes))
    outputs.append(next(n for n in names if n))
    return outputs[-1]


def write(name, graph_outputs, opset=17):
    infos = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, 5, 4])]
    graph = helper.make_graph(nodes, name, infos, graph_outputs, initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    x = random.normal(0, 1, (RECORDS, 3, 5, 4)).astype(np.float32)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    # ONNX Runtime 1.32 crashes where an output of Split has no name.
    named = onnx.ModelProto.FromString(model.SerializeToString())
    for node in named.graph.node:
        for i, output in enumerate(node.output):
            node.output[i] = output or f"{node.op_type}_unnamed{i}"
    session = onnxruntime.InferenceSession(
        named.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    found = session.run(None, {"x": x})
    with open(os.path.join(HERE, f"{name}.onnx"), "wb") as file:
        file.write(model.SerializeToString())
    with open(os.path.join(HERE, f"{name}.json"), "w") as file:
        file.write('{"output": {"kind": "values"}}\n')
    np.save(os.path.join(HERE, f"{name}.inputs.npy"), x.reshape(RECORDS, -1))
    np.save(
        os.path.join(HERE, f"{name}.outputs.npy"),
        np.concatenate([y.reshape(RECORDS, -1).astype(np.float32) for y in found], axis=1),
    )
    print(name, len(found))


# Products with a list drop its axis.
case("MatMul", "x", weights(4))
case("MatMul", weights(5), "x")
case("MatMul", weights(7, 5), "x")
# A slice that names the axis of all records, and takes them all.
ints = lambda *v: constant(np.array(v, np.int64))
case("Slice", "x", ints(0, 1), ints(np.iinfo(np.int64).max, 3), ints(0, 2))
case("Slice", "x", ints(0), ints(np.iinfo(np.int32).max))
# Windows of ceil_mode: beyond the image, and beyond the border that counts.
for include in (0, 1):
    for kernel, strides, pads in [
        ((6, 6), (3, 4), (0, 0, 0, 0)),
        ((3, 3), (3, 2), (1, 0, 0, 1)),
        ((7, 4), (4, 3), (1, 0, 0, 0)),
        ((2, 2), (3, 3), (1, 1, 1, 1)),
    ]:
        case(
            "AveragePool",
            "x",
            kernel_shape=kernel,
            strides=strides,
            pads=pads,
            ceil_mode=1,
            count_include_pad=include,
        )
for kernel, strides in [((6, 6), (3, 4)), ((7, 4), (4, 3)), ((3, 3), (2, 2))]:
    case("MaxPool", "x", kernel_shape=kernel, strides=strides, ceil_mode=1)
# Names that are left out: a limit of Clip, a part of Split.
case("Clip", "x", "", constant(np.float32(0.5)))
case("Split", "x", ints(1, 2, 2), results=(None, "", None), axis=2)
# The largest of constants, which is an index of them.
nodes.append(helper.make_node("ArgMax", [weights(3, 4)], ["best"], axis=1, keepdims=0))
nodes.append(helper.make_node("Cast", ["best"], ["index"], to=TensorProto.FLOAT))
nodes.append(helper.make_node("Reshape", ["index", ints(3, 1, 1)], ["each"]))
case("Mul", "x", "each")
case(
    "Clip",
    constant(np.array([-2.0, 0.25, 9.0, 1.0], np.float32)),
    constant(np.float32(-1)),
    constant(np.float32(2)),
)
clipped = outputs.pop()
case("Add", "x", clipped)
# The mean of integers whose sum leaves their type.
nodes.append(
    helper.make_node(
        "ReduceMean", [constant(np.array([2**31 - 1, 3, 5], np.int32))], ["mean"], keepdims=1
    )
)
nodes.append(helper.make_node("Cast", ["mean"], ["real"], to=TensorProto.FLOAT))
case("Mul", "x", "real")
write("corners", [onnx.ValueInfoProto(name=n) for n in outputs])

nodes, initializers, outputs = [], [], []
twice = case("Conv", "x", weights(2, 3, 5, 4))
copy = case("Identity", twice)
half = case("Relu", twice)
write("twice", [onnx.ValueInfoProto(name=n) for n in (twice, copy, half, half)])
