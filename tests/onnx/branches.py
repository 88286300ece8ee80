"""Writes branches.onnx: choices (`If`) whose condition is an input that becomes a constant, a size,
or computed from the record, with inputs and what ONNX Runtime makes of them. branches.json states
the constant.

Needs numpy, onnx, onnxruntime:
    python tests/onnx/branches.py
"""

import os

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

HERE = os.path.dirname(os.path.abspath(__file__))
RECORDS = 6
RATE = 16000
random = np.random.default_rng(36)


def array(name, values):
    return numpy_helper.from_array(np.asarray(values), name)


def floats(name, *dims):
    return array(name, random.normal(0, 1, dims).astype(np.float32))


def branch(name, nodes, output, initializers=(), rank=3):
    info = helper.make_tensor_value_info(output, TensorProto.FLOAT, [None] * rank)
    return helper.make_graph(nodes, name, [], [info], initializers)


def choice(condition, then_branch, else_branch, output):
    branches = {"then_branch": then_branch, "else_branch": else_branch}
    return helper.make_node("If", [condition], [output], **branches)


def layer(name, columns):
    """A branch with a layer of its own, which reads x. All branches use the same names."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"]), helper.make_node("Tanh", ["y"], ["z"])]
    return branch(name, nodes, "z", [floats("w", 4, columns)])


def nested():
    """A choice by a size, within a choice by the rate."""
    shape = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "at"], ["rows"]),
        helper.make_node("Equal", ["rows", "three"], ["same"]),
    ]
    inner = choice("same", layer("three rows", 3), layer("others", 5), "inner")
    outer = [*shape, inner, helper.make_node("Neg", ["inner"], ["outer"])]
    constants = [array("at", np.int64(1)), array("three", np.int64(3))]
    return branch("16 kHz", outer, "outer", constants)


largest = helper.make_node("ReduceMax", ["x"], ["m"], axes=[2], keepdims=0)
nodes = [
    helper.make_node("Equal", ["rate", "wide"], ["is wide"]),
    choice("is wide", nested(), layer("8 kHz", 2), "by the rate"),
    helper.make_node("ReduceMean", ["x"], ["mean"], keepdims=0),
    helper.make_node("Greater", ["mean", "zero"], ["above"]),
    choice("above", layer("above", 2), layer("below", 2), "by the mean"),
    choice(
        "above",
        branch("numbers", [helper.make_node("Neg", ["c"], ["n"])], "n", [floats("c", 1, 3)], 2),
        branch("largest", [largest], "m", rank=2),
        "by the mean too",
    ),
]
x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 4])
rate = helper.make_tensor_value_info("rate", TensorProto.INT64, [])
outputs = {"by the rate": 3, "by the mean": 3, "by the mean too": 2}
graph = helper.make_graph(
    nodes,
    "branches",
    [x, rate],
    [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [None] * rank)
        for name, rank in outputs.items()
    ],
    [array("wide", np.int64(RATE)), array("zero", np.float32(0))],
)
proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
onnx.checker.check_model(proto)
path = os.path.join(HERE, "branches")
onnx.save(proto, path + ".onnx")
with open(path + ".json", "w") as f:
    f.write('{"sizes": {"rate": {"constant": %d}}}\n' % RATE)
records = random.normal(0, 1, [RECORDS, 1, 3, 4]).astype(np.float32)
session = onnxruntime.InferenceSession(path + ".onnx", providers=["CPUExecutionProvider"])
rows = []
for record in records:
    found = session.run(None, {"x": record, "rate": np.array(RATE, np.int64)})
    rows.append(np.concatenate([f.ravel() for f in found]))
means = records.mean((1, 2, 3))
assert (means > 0.01).any() and (means < -0.01).any()
np.save(path + ".inputs.npy", records.reshape(RECORDS, -1))
np.save(path + ".outputs.npy", np.stack(rows).astype(np.float32))
print("wrote", path)
