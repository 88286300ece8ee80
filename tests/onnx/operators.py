"""Writes operators.onnx and dynamic.onnx with inputs and outputs, for src/bake/front/onnx/tests.rs.

operators.onnx has an operator of each kind on quantised integers, as ONNX Runtime writes them.
dynamic.onnx has those whose scales are computed from the record. Each output of a node that is
tested is an output of the model, in the order of the outputs.npy.

    python tests/onnx/operators.py
"""

import os

import numpy as np
import onnx
import onnxruntime
from make import HERE, RECORDS, Model
from onnx import TensorProto, helper

MICROSOFT = "com.microsoft"


class Quantised(Model):
    """A model whose values are integers with a scale and a zero point."""

    def __init__(self, name, dims, kind=np.uint8):
        super().__init__(name, dims, version=13)
        self.own, self.integers, self.outputs = np.random.default_rng(71), kind, []

    def steps(self, scale, zero, kind=None):
        scale = self.constant(np.asarray(scale, np.float32))
        return scale, self.constant(np.asarray(zero, kind or self.integers))

    def given(self, value, kind=TensorProto.UINT8):
        """Makes a value an output."""
        self.outputs.append(helper.make_tensor_value_info(value, kind, None))
        return value

    def weights(self, shape, of=None):
        """Weights of int8, with a scale for each of `of`, or one for all."""
        q = self.constant(self.own.integers(-127, 128, shape).astype(np.int8))
        scale = self.own.uniform(0.004, 0.01, of or ()).astype(np.float32)
        return q, *self.steps(scale, np.zeros(scale.shape), np.int8)

    def biases(self, n):
        return self.constant(self.own.integers(-500, 500, n).astype(np.int32))

    def of(self, op, operands, steps, domain=MICROSOFT, more=(), **attributes):
        """An operator on integers: operands with their scales, the steps of the result."""
        steps = self.steps(*steps)
        flat = [part for operand in operands for part in operand]
        inputs = [*steps, *flat] if op == "QLinearConcat" else [*flat, *steps, *more]
        if op == "QGemm":
            inputs = [*flat, *more, *steps]
        y = self.given(self.add(op, *inputs, domain=domain, **attributes))
        return y, *steps

    def write(self):
        graph = helper.make_graph(
            self.nodes, self.name, self.inputs, self.outputs, self.initializers
        )
        sets = [helper.make_opsetid("", 13), helper.make_opsetid(MICROSOFT, 1)]
        model = helper.make_model(graph, opset_imports=sets, ir_version=8)
        path = os.path.join(HERE, self.name)
        onnx.save(model, path + ".onnx")
        options = onnxruntime.SessionOptions()
        options.add_session_config_entry("session.x64quantprecision", "1")
        session = onnxruntime.InferenceSession(path + ".onnx", options)
        dims = self.dims["x"]
        x = self.own.normal(0, 1, [RECORDS, *dims]).astype(np.float32)
        rows = []
        for i in range(RECORDS):
            results = session.run(None, {"x": x[i : i + 1]})
            rows.append(np.concatenate([r.reshape(-1).astype(np.float32) for r in results]))
        np.save(path + ".inputs.npy", x.reshape(RECORDS, -1))
        np.save(path + ".outputs.npy", np.stack(rows))


def operators():
    m = Quantised("operators", [2, 8, 6])
    steps = m.steps(0.0271, 121)
    x = m.given(m.add("QuantizeLinear", "x", *steps, domain=MICROSOFT)), *steps
    w = m.weights((6, 2, 3, 3), 6)
    x = m.of(
        "QLinearConv", [x, w], (0.0213, 17), "", [m.biases(6)], pads=[1] * 4, kernel_shape=[3, 3]
    )
    w = m.weights((6, 1, 3, 3))
    y = m.of("QLinearConv", [x, w], (0.0352, 120), "", strides=[1, 1], pads=[1] * 4, group=6)
    y = m.of("QLinearLeakyRelu", [y], (0.0301, 60), alpha=0.2)
    y = m.of("QLinearAdd", [x, y], (0.0411, 90))
    y = m.of("QLinearMul", [y, m.of("QLinearSigmoid", [y], (1 / 256, 0))], (0.033, 40))
    a = m.of("QLinearAveragePool", [y], (0.0283, 30), kernel_shape=[2, 2], strides=[2, 2])
    b = m.add("MaxPool", x[0], kernel_shape=[2, 2], strides=[2, 2]), *x[1:]
    y = m.of("QLinearConcat", [a, b], (0.0317, 35), axis=1)
    y = m.of("QLinearGlobalAveragePool", [y], (0.0201, 50), channels_last=0)
    y = m.add("Flatten", y[0]), *y[1:]
    w = m.weights((8, 12), 8)
    y = m.of("QGemm", [y, w], (0.0187, 130), more=[m.biases(8)], alpha=1.0, transB=1)
    # Without steps of a result, the result is real numbers.
    real = m.add("QGemm", *y, *m.weights((8, 3)), domain=MICROSOFT)
    m.given(real, TensorProto.FLOAT)
    mask = m.constant(m.own.integers(0, 2, (1, 8)) == 1)
    z = m.of("QLinearMatMul", [y, m.weights((8, 8), 8)], (0.0183, 128), "")
    y = m.of("QLinearWhere", [[mask], y, z], (0.0241, 120))
    y = m.of("QLinearMatMul", [y, m.weights((8, 5), 5)], (0.0183, 128), "")
    y = m.of("QLinearSoftmax", [y], (1 / 256, 0), axis=1, opset=13)
    m.given(m.add("DequantizeLinear", *y, domain=MICROSOFT), TensorProto.FLOAT)
    m.write()


def dynamic():
    m = Quantised("dynamic", [2, 7, 6])

    def quantised(x):
        """The integers of a value, and their scale times that of the weights."""
        m.add("DynamicQuantizeLinear", x, outputs=3)
        y = m.last
        return y, y + "_1", y + "_2"

    def scaled(sums, x, scale, bias):
        y = m.add("Cast", sums, to=TensorProto.FLOAT)
        y = m.add("Mul", y, m.add("Mul", x[1], scale))
        return m.given(m.add("Add", y, bias), TensorProto.FLOAT)

    x, w = quantised("x"), m.weights((5, 2, 3, 3))
    sums = m.add("ConvInteger", x[0], w[0], x[2], w[2], pads=[1, 0, 0, 1])
    y = scaled(sums, x, w[1], m.weight(1, 5, 1, 1, low=-1, high=1))
    y = m.add("Flatten", m.add("Relu", y))
    x, w = quantised(y), m.weights((150, 9), 9)
    sums = m.add("MatMulInteger", x[0], w[0], x[2], w[2])
    y = scaled(sums, x, w[1], m.weight(9, low=-1, high=1))
    w, bias = m.weights((9, 6)), m.weight(6, low=-1, high=1)
    y = m.add("DynamicQuantizeMatMul", y, *w, bias, domain=MICROSOFT)
    m.given(y, TensorProto.FLOAT)
    x, w = quantised(y), m.weights((6, 4), 4)
    parts = (x[0], w[0], x[1], w[1], x[2], w[2], m.weight(4, low=-1, high=1))
    m.given(m.add("MatMulIntegerToFloat", *parts, domain=MICROSOFT), TensorProto.FLOAT)
    m.write()


if __name__ == "__main__":
    operators()
    dynamic()
