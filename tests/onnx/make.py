"""Writes the ONNX models of src/bake/front/onnx/tests.rs, with inputs and what ONNX Runtime makes
of them, into this folder: NAME.onnx, NAME.inputs.npy (a record a row), NAME.outputs.npy.

Weights are random, from a fixed seed. Needs numpy, onnx, onnxruntime, scikit-learn, skl2onnx:
    python tests/onnx/make.py
"""

import os
import warnings

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

HERE = os.path.dirname(os.path.abspath(__file__))
RECORDS = 4
random = np.random.default_rng(20240607)


class Model:
    """A graph under construction: nodes in order, weights as initialisers."""

    def __init__(self, name, dims, version=17, batch="N", kind=TensorProto.FLOAT):
        self.name, self.version, self.kind = name, version, kind
        self.nodes, self.initializers = [], []
        # Several inputs by their names.
        self.dims = dims if isinstance(dims, dict) else {"x": dims}
        self.inputs = [
            helper.make_tensor_value_info(name, kind, [batch, *d]) for name, d in self.dims.items()
        ]
        self.last, self.count = next(iter(self.dims)), 0

    def weight(self, *dims, low=None, high=None):
        scale = 1.0 / np.sqrt(max(1, np.prod(dims[1:]))) if low is None else None
        values = random.normal(0, scale, dims) if low is None else random.uniform(low, high, dims)
        return self.constant(values.astype(np.float32))

    def constant(self, values, name=None):
        name = name or f"w{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def ints(self, *values):
        return self.constant(np.array(values, dtype=np.int64))

    def add(self, op, *inputs, outputs=1, domain="", **attributes):
        """A node; without inputs it reads what the last one gave."""
        inputs = list(inputs) or [self.last]
        self.count += 1
        names = [f"{op.lower()}{self.count}" + ("" if i == 0 else f"_{i}") for i in range(outputs)]
        self.nodes.append(
            helper.make_node(op, inputs, names, f"{op}_{self.count}", domain=domain, **attributes)
        )
        self.last = names[0]
        return names[0]

    def conv(self, outputs, inputs, *size, bias=True, group=1, x=None, **attributes):
        more = [self.weight(outputs)] if bias else []
        weights = self.weight(outputs, inputs // group, *size)
        return self.add("Conv", x or self.last, weights, *more, group=group, **attributes)

    def norm(self, channels, x=None):
        parts = [self.weight(channels, low=0.5, high=1.5), self.weight(channels, low=-1, high=1)]
        parts += [self.weight(channels, low=-1, high=1), self.weight(channels, low=0.5, high=2)]
        return self.add("BatchNormalization", x or self.last, *parts)

    def gemm(self, outputs, inputs):
        return self.add(
            "Gemm", self.last, self.weight(outputs, inputs), self.weight(outputs), transB=1
        )

    def proto(self, outputs=None):
        infos = [
            helper.make_tensor_value_info(o, TensorProto.FLOAT, None)
            for o in outputs or [self.last]
        ]
        graph = helper.make_graph(self.nodes, self.name, self.inputs, infos, self.initializers)
        sets = [helper.make_opsetid("", self.version), helper.make_opsetid("ai.onnx.ml", 3)]
        model = helper.make_model(graph, opset_imports=sets, ir_version=8, producer_name="make.py")
        # The checker wants the sizes of outputs.
        return onnx.shape_inference.infer_shapes(model)

    def save(self, outputs=None):
        kind = helper.tensor_dtype_to_np_dtype(self.kind)
        x = [random.normal(0, 1, [RECORDS, *dims]).astype(kind) for dims in self.dims.values()]
        save(self.name, self.proto(outputs), *x, several=outputs is not None and len(outputs) > 1)


def run(model, *inputs, several=False):
    """The last output of floats (or all of several), as a row for each record. One record at a
    time, where that is what the model takes."""
    options = onnxruntime.SessionOptions()
    # Its optimisations would quantise products with weights of int8.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names, first = [i.name for i in session.get_inputs()], session.get_inputs()[0].shape[0]
    step = first if isinstance(first, int) else len(inputs[0])
    rows = []
    for i in range(0, len(inputs[0]), step):
        results = session.run(None, {name: x[i : i + step] for name, x in zip(names, inputs)})
        results = [r.reshape(step, -1) for r in results if getattr(r, "dtype", None) == np.float32]
        rows.append(np.concatenate(results if several else results[-1:], axis=1))
    return np.concatenate(rows)


def save(name, proto, *inputs, several=False):
    onnx.checker.check_model(proto)
    path = os.path.join(HERE, name)
    onnx.save(proto, path + ".onnx")
    rows = [x.reshape(len(x), -1).astype(np.float32) for x in inputs]
    np.save(path + ".inputs.npy", np.concatenate(rows, axis=1))
    np.save(path + ".outputs.npy", run(path + ".onnx", *inputs, several=several).astype(np.float32))


def mlp():
    """A Sequential of Linear and ReLU by torch.onnx.export."""
    m = Model("mlp", [6])
    m.gemm(8, 6), m.add("Relu"), m.gemm(5, 8), m.add("Dropout"), m.add("LogSoftmax", axis=1)
    m.save()


def cnn():
    """Convolution, batch norm, pooling, a flatten by Shape, Gather, Concat and Reshape."""
    m = Model("cnn", [3, 12, 10])
    m.conv(6, 3, 3, 3, bias=False, pads=[1, 1, 1, 1]), m.norm(6), m.add("Relu")
    m.add("MaxPool", kernel_shape=[2, 2], strides=[2, 2])
    m.conv(8, 6, 3, 3, strides=[2, 2], pads=[1, 0, 1, 0], dilations=[1, 2]), m.add("Relu")
    x = m.last
    batch = m.add("Gather", m.add("Shape", x), m.constant(np.array(0, np.int64)), axis=0)
    batch = m.add("Unsqueeze", batch, m.ints(0))
    shape = m.add("Concat", batch, m.ints(-1), axis=0)
    m.add("Reshape", x, shape), m.gemm(7, 24), m.add("Softmax", axis=-1)
    m.save()


def residual():
    """Two residual blocks, one of them with a convolution beside it, a global mean."""
    m = Model("residual", [3, 8, 8], batch=1, version=13)
    x = m.add("Relu", m.norm(8, m.conv(8, 3, 3, 3, bias=False, pads=[1] * 4)))
    m.add("Relu", m.norm(8, m.conv(8, 8, 3, 3, bias=False, pads=[1] * 4)))
    y = m.norm(8, m.conv(8, 8, 3, 3, bias=False, pads=[1] * 4))
    x = m.add("Relu", m.add("Add", y, x))
    m.add("Relu", m.norm(12, m.conv(12, 8, 3, 3, x=x, bias=False, pads=[1] * 4, strides=[2, 2])))
    y = m.norm(12, m.conv(12, 12, 3, 3, bias=False, pads=[1] * 4))
    z = m.norm(12, m.conv(12, 8, 1, 1, x=x, bias=False, strides=[2, 2]))
    m.add("Relu", m.add("Add", y, z))
    m.add("GlobalAveragePool"), m.add("Flatten", axis=1), m.gemm(10, 12)
    m.save()


def mobile():
    """Depthwise convolutions, HardSwish, Clip, squeeze and excitation, a mean over pixels."""
    m = Model("mobile", [3, 16, 16], version=14)
    m.norm(8, m.conv(8, 3, 3, 3, bias=False, strides=[2, 2], pads=[1] * 4)), m.add("HardSwish")
    m.norm(8, m.conv(8, 8, 3, 3, bias=False, group=8, pads=[1] * 4))
    zero, six = m.constant(np.array(0, np.float32)), m.constant(np.array(6, np.float32))
    x = m.add("Clip", m.last, zero, six)
    m.add("GlobalAveragePool", x), m.conv(4, 8, 1, 1), m.add("Relu"), m.conv(8, 4, 1, 1)
    m.add("Mul", m.add("HardSigmoid", alpha=1 / 6, beta=0.5), x)
    m.norm(16, m.conv(16, 8, 1, 1, bias=False)), m.add("HardSwish")
    m.add("ReduceMean", axes=[2, 3], keepdims=0), m.gemm(5, 16)
    m.save()


def line():
    """One-dimensional convolutions, as for a keyword or a sensor."""
    m = Model("line", [4, 20])
    m.conv(8, 4, 5, pads=[2, 2]), m.norm(8), m.add("LeakyRelu", alpha=0.1)
    m.add("AveragePool", kernel_shape=[3], strides=[2], pads=[1, 1], count_include_pad=1)
    m.conv(8, 8, 3, group=2, auto_pad="SAME_UPPER", strides=[2]), m.add("Tanh")
    m.add("GlobalMaxPool"), m.add("Squeeze", m.last, m.ints(2)), m.gemm(1, 8), m.add("Sigmoid")
    m.save()


def pixels_last():
    """A Keras model by tf2onnx: the input is turned once; a flatten with channels last."""
    m = Model("pixels_last", [9, 7, 3], version=11)
    (
        m.add("Transpose", perm=[0, 3, 1, 2]),
        m.conv(4, 3, 3, 3, auto_pad="SAME_LOWER", strides=[2, 2]),
        m.add("Relu"),
    )
    m.add("AveragePool", kernel_shape=[2, 2], auto_pad="SAME_UPPER", strides=[2, 2])
    m.add("Transpose", perm=[0, 2, 3, 1]), m.add("Reshape", m.last, m.ints(-1, 24))
    (
        m.add("MatMul", m.last, m.weight(24, 6)),
        m.add("Add", m.last, m.weight(6)),
        m.add("Softmax", axis=1),
    )
    m.save()


def shuffle():
    """Groups of channels, shuffled by a transposition of five axes."""
    m = Model("shuffle", [6, 5, 5])
    m.conv(12, 6, 3, 3, group=3, pads=[1] * 4), m.norm(12), m.add("Relu")
    m.add("Reshape", m.last, m.ints(0, 3, 4, 5, 5)), m.add("Transpose", perm=[0, 2, 1, 3, 4])
    (
        m.add("Reshape", m.last, m.ints(0, 12, 5, 5)),
        m.conv(6, 12, 1, 1, group=2),
        m.add("Elu", alpha=0.7),
    )
    m.conv(12, 6, 3, 3, group=6), m.add("Flatten"), m.gemm(3, 108)
    m.save()


def borders():
    """Borders, batch norm before a convolution, PRelu, concatenation, pooling with a border."""
    m = Model("borders", [2, 9, 9], version=15)
    m.norm(2), m.conv(4, 2, 2, 2)
    m.add("Pad", m.last, m.ints(0, 0, 1, 1, 0, 0, 0, 1))
    x = m.conv(4, 4, 3, 3)
    m.add("Relu"), m.add("Pad", m.last, m.ints(0, 0, 0, 0, 0, 0, 1, 1))
    y = m.add("MaxPool", kernel_shape=[3, 3], strides=[2, 2])
    m.add("Pad", x, m.ints(0, 0, 0, 0, 0, 0, 1, 1))
    z = m.add("AveragePool", kernel_shape=[3, 3], strides=[2, 2])
    m.add("Concat", y, z, axis=1), m.add("PRelu", m.last, m.weight(8, 1, 1))
    m.add("Pad", m.last, m.ints(0, 1, 0, 0, 0, 2, 0, 0), m.constant(np.array(0.5, np.float32)))
    (
        m.norm(11),
        m.conv(3, 11, 2, 2, pads=[1, 0, 0, 1]),
        m.add("Selu"),
        m.add("Flatten"),
        m.gemm(4, 36),
    )
    m.save()


def functions():
    """Every function of single elements, one behind the other, and arithmetic."""
    m = Model("functions", [5], version=20)
    m.gemm(7, 5)
    for op, attributes in [
        ("Gelu", {}),
        ("Elu", {"alpha": 0.5}),
        ("Selu", {}),
        ("HardSwish", {}),
        ("LeakyRelu", {"alpha": 0.2}),
        ("Tanh", {}),
        ("HardSigmoid", {}),
        ("Gelu", {"approximate": "tanh"}),
    ]:
        x = m.add(op, **attributes)
        m.add("Gemm", x, m.weight(7, 7), m.weight(7))
    x = m.last
    (
        m.add("Sub", m.weight(7), x),
        m.add("Mul", m.last, x),
        m.add("Div", m.last, m.constant(np.float32([4]))),
    )
    y = m.add("Add", m.last, m.weight(1, 7))
    s = m.add("Sigmoid", x)
    (
        m.add("Sub", m.add("Div", y, s), x),
        m.add("Neg"),
        m.add("PRelu", m.last, m.weight(7, low=0.1, high=0.4)),
    )
    (
        m.add("Max", m.last, m.constant(np.float32(-0.5))),
        m.add("Min", m.last, m.constant(np.float32(2.5))),
    )
    m.add("Mish"), m.add("Softplus"), m.add("Mul", m.last, m.add("Sigmoid"))
    m.gemm(3, 7)
    m.save()


def sequence():
    """Products over the last of two axes, as a dense layer on every step of time, and a softmax."""
    m = Model("sequence", [6, 4], version=13)
    m.add("MatMul", m.last, m.weight(4, 5)), m.add("Add", m.last, m.weight(5)), m.add("Relu")
    m.add("MatMul", m.last, m.weight(5, 3)), m.add("Add", m.last, m.weight(3))
    m.add("Softmax", axis=2), m.add("ReduceMean", axes=[1], keepdims=0), m.gemm(4, 3)
    m.save()


def quantised():
    """Weights of int8 with a scale for each output."""
    m = Model("quantised", [1, 6, 6], version=13)
    scale = random.uniform(0.01, 0.02, 4).astype(np.float32)
    q = m.constant(random.integers(-127, 128, (4, 1, 3, 3)).astype(np.int8))
    w = m.add("DequantizeLinear", q, m.constant(scale), m.constant(np.zeros(4, np.int8)), axis=0)
    m.add("Conv", "x", w), m.add("Relu"), m.add("Flatten")
    q = m.constant(random.integers(0, 256, (64, 3)).astype(np.uint8))
    w = m.add("DequantizeLinear", q, m.constant(np.float32(0.01)), m.constant(np.uint8(128)))
    m.add("MatMul", "flatten4", w)
    m.save()


def integers():
    """Layers of int8 between DequantizeLinear and QuantizeLinear, as quantisers write them."""
    m, own = Model("integers", [2, 9, 8], version=13), np.random.default_rng(37)

    def quantised(x, scale, zero):
        pair = m.constant(np.float32(scale)), m.constant(np.int8(zero))
        return m.add("DequantizeLinear", m.add("QuantizeLinear", x, *pair), *pair)

    def whole(shape, scale, kind=np.int8, axis=None):
        high = 128 if kind == np.int8 else 500
        q = m.constant(own.integers(1 - high, high, shape).astype(kind))
        scale = np.asarray(scale, np.float32)
        zero = np.zeros(scale.shape, kind)
        more = {} if axis is None else {"axis": axis}
        return m.add("DequantizeLinear", q, m.constant(scale), m.constant(zero), **more)

    def conv(x, of, outputs, inputs, size, scale, zero, relu=False, **attributes):
        scales = own.uniform(0.004, 0.01, outputs).astype(np.float32)
        w = whole((outputs, inputs, size, size), scales, axis=0)
        b = whole((outputs,), np.float32(of) * scales, np.int32, axis=0)
        y = m.add("Conv", x, w, b, **attributes)
        return quantised(m.add("Relu", y) if relu else y, scale, zero)

    x = quantised("x", 0.0301, 3)
    x = conv(x, 0.0301, 6, 2, 3, 0.0207, -128, relu=True, pads=[1, 1, 1, 1])
    y = conv(x, 0.0207, 6, 1, 3, 0.0313, 11, pads=[1, 1, 1, 1], group=6)
    y = quantised(m.add("Relu", m.add("Add", x, y)), 0.0411, -128)
    y = quantised(m.add("GlobalAveragePool", y), 0.0193, -128)
    y = quantised(m.add("Flatten", y), 0.0193, -128)
    w, b = whole((5, 6), 0.0083), whole((5,), np.float32(0.0193) * np.float32(0.0083), np.int32)
    quantised(m.add("Gemm", y, w, b, transB=1), 0.0487, -7)
    x = own.normal(0, 1, [RECORDS, 2, 9, 8]).astype(np.float32)
    save(m.name, m.proto(), x)


def halves():
    """Weights of float16 that are cast; a double; numbers in the fields of the tensor."""
    m = Model("halves", [3], version=13)
    w = m.add(
        "Cast", m.constant(random.normal(0, 1, (3, 4)).astype(np.float16)), to=TensorProto.FLOAT
    )
    m.add("MatMul", "x", w)
    w = m.add(
        "Cast", m.constant(random.normal(0, 1, (4,)).astype(np.float64)), to=TensorProto.FLOAT
    )
    m.add("Add", "matmul2", w), m.add("Tanh")
    values = random.normal(0, 1, 8)
    m.initializers.append(helper.make_tensor("fields", TensorProto.FLOAT, [4, 2], values))
    m.add("MatMul", m.last, "fields")
    m.save()


def external():
    """Weights in a file beside the model."""
    m = Model("external", [4])
    m.gemm(6, 4), m.add("Relu"), m.gemm(3, 6)
    proto, x = m.proto(), random.normal(0, 1, [RECORDS, 4]).astype(np.float32)
    path = os.path.join(HERE, "external")
    onnx.save(
        proto,
        path + ".onnx",
        save_as_external_data=True,
        location="external.weights",
        size_threshold=0,
    )
    np.save(path + ".inputs.npy", x)
    np.save(path + ".outputs.npy", run(path + ".onnx", x))


def old():
    """Operation set 7: attributes that became inputs later, a softmax of several axes."""
    m = Model("old", [2, 4, 4], version=7, batch=1)
    m.add("Pad", mode="constant", pads=[0, 0, 1, 1, 0, 0, 1, 1], value=0.0), m.conv(4, 2, 3, 3)
    m.add("Clip", min=-0.5, max=1.5), m.add("Unsqueeze", axes=[1]), m.add("Squeeze", axes=[1])
    m.add("Reshape", m.last, m.ints(1, 64)), m.gemm(5, 64)
    m.add("Softmax"), m.save()


def image():
    """A network whose output is an image."""
    m = Model("image", [2, 6, 6])
    m.conv(3, 2, 3, 3, pads=[1] * 4), m.add("Sigmoid")
    m.save()


def bytes_in():
    """An image of bytes, scaled inside of the model."""
    m = Model("bytes", [3, 4, 4], kind=TensorProto.UINT8)
    m.add("Cast", to=TensorProto.FLOAT), m.add("Div", m.last, m.constant(np.float32(255)))
    m.add("Sub", m.last, m.constant(np.float32([0.485, 0.456, 0.406]).reshape(1, 3, 1, 1)))
    m.add("Div", m.last, m.constant(np.float32([0.229, 0.224, 0.225]).reshape(1, 3, 1, 1)))
    m.conv(4, 3, 3, 3), m.add("Relu"), m.add("Flatten"), m.gemm(2, 16)
    x = random.integers(0, 256, [RECORDS, 3, 4, 4]).astype(np.uint8)
    save("bytes", m.proto(), x)


def added():
    """Two inputs that are added."""
    m = Model("added", {"left": [6], "right": [6]})
    m.add("Add", "left", "right"), m.gemm(8, 6), m.add("Relu"), m.gemm(3, 8)
    m.save()


def sensors():
    """An image and a vector, each with layers of its own, then side by side."""
    m = Model("sensors", {"camera": [2, 7, 6], "state": [5]})
    (
        m.conv(4, 2, 3, 3, pads=[1] * 4),
        m.add("Relu"),
        m.add("MaxPool", kernel_shape=[2, 2], strides=[2, 2]),
    )
    m.add("Flatten")
    image = m.gemm(8, 36)
    m.last = "state"
    m.gemm(8, 5)
    m.add("Concat", image, m.add("Tanh"), axis=1), m.gemm(4, 16), m.add("Softmax", axis=1)
    m.save()


def embedding():
    """Two outputs, one of which is computed with too."""
    m = Model("embedding", [7])
    m.gemm(6, 7)
    first = m.add("Relu")
    m.gemm(3, 6)
    m.save([m.add("Softmax", axis=1), first])


def fusion():
    """Two images in, an image and a vector out."""
    m = Model("fusion", {"near": [3, 6, 5], "far": [1, 6, 5]})
    near = m.add("Relu", m.conv(4, 3, 3, 3, x="near", pads=[1] * 4))
    far = m.add("Relu", m.conv(4, 1, 3, 3, x="far", pads=[1] * 4))
    both = m.add("Add", near, far)
    m.conv(2, 4, 1, 1, x=both)
    mask = m.add("Sigmoid")
    m.add("GlobalAveragePool", both), m.add("Flatten")
    m.save([mask, m.gemm(3, 4)])


def parts():
    """Parts of a value along each axis."""
    m = Model("parts", [4, 6, 6])
    m.conv(6, 4, 3, 3, pads=[1] * 4)
    low = m.add("Split", m.last, m.ints(2, 4), outputs=2, axis=1)
    m.add("Slice", low + "_1", m.ints(1, 2, 1), m.ints(3, 6, 5), m.ints(1, 2, 3))
    narrow = m.add("Relu")
    m.add("Slice", low, m.ints(-4), m.ints(100), m.ints(3))
    m.add("Concat", narrow, m.add("Slice", m.last, m.ints(2), m.ints(6), m.ints(2)), axis=1)
    m.conv(3, 4, 2, 2), m.add("Flatten")
    x = m.last
    first = m.add("Slice", x, m.ints(0), m.ints(9), m.ints(1))
    second = m.add("Slice", x, m.ints(9), m.ints(18), m.ints(1))
    m.add("Mul", first, second), m.gemm(4, 9)
    m.save()


def sklearn():
    """Pipelines as skl2onnx writes them."""
    from skl2onnx import to_onnx
    from sklearn.compose import ColumnTransformer
    from sklearn.datasets import load_iris
    from sklearn.decomposition import PCA
    from sklearn.linear_model import LinearRegression, LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.neural_network import MLPClassifier, MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MinMaxScaler, RobustScaler, StandardScaler

    iris = load_iris()
    x, y = iris.data.astype(np.float32), iris.target
    names = np.array(iris.target_names)[y]
    two = np.where(y == 2, "virginica", "other")
    columns = ColumnTransformer([("a", StandardScaler(), [0, 2]), ("b", MinMaxScaler(), [1, 3])])
    settings = dict(max_iter=60, random_state=1)
    for name, model, target, options in [
        ("sk_mlp", make_pipeline(StandardScaler(), MLPClassifier((8,), **settings)), names, {}),
        (
            "sk_mlp_tensor",
            make_pipeline(MinMaxScaler(), MLPClassifier((6, 5), **settings)),
            y + 10,
            {"zipmap": False},
        ),
        (
            "sk_mlp_two",
            make_pipeline(RobustScaler(), MLPClassifier((6,), activation="tanh", **settings)),
            two,
            {},
        ),
        (
            "sk_pca",
            make_pipeline(PCA(2), MLPClassifier((5,), activation="logistic", **settings)),
            y,
            {},
        ),
        ("sk_columns", make_pipeline(columns, MLPClassifier((5,), **settings)), y, {}),
        ("sk_many", MLPClassifier((5,), **settings), np.eye(3, dtype=int)[y], {}),
        (
            "sk_number",
            make_pipeline(StandardScaler(), MLPRegressor(hidden_layer_sizes=(5,), **settings)),
            x[:, 3],
            {},
        ),
        ("sk_line", LinearRegression(), x[:, 3] + x[:, 0] ** 2, {}),
        ("sk_logistic", make_pipeline(StandardScaler(), LogisticRegression()), names, {}),
        ("sk_logistic_two", LogisticRegression(), two, {}),
        ("sk_rest", OneVsRestClassifier(LogisticRegression()), y, {}),
    ]:
        model.fit(x, target)
        last = model.steps[-1][1] if hasattr(model, "steps") else model
        proto = to_onnx(model, x[:1], options={id(last): options} if options else None)
        path = os.path.join(HERE, name)
        onnx.save(proto, path + ".onnx")
        records = x[::15]
        predicted = (
            model.predict_proba(records)
            if hasattr(last, "predict_proba")
            else model.predict(records)
        )
        predicted = np.ascontiguousarray(predicted)
        np.save(path + ".inputs.npy", records)
        np.save(path + ".outputs.npy", predicted.reshape(len(records), -1).astype(np.float32))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for make in [
        mlp,
        cnn,
        residual,
        mobile,
        line,
        pixels_last,
        shuffle,
        borders,
        functions,
        sequence,
        quantised,
        integers,
        halves,
        external,
        old,
        image,
        bytes_in,
        added,
        sensors,
        embedding,
        fusion,
        parts,
        sklearn,
    ]:
        make()
