#!/usr/bin/env python3
"""Builds networks of MLPerf Tiny's shapes as ONNX and TensorFlow Lite files, with random weights.

    tests/zoo/make.py FOLDER [NAME]...

Needs NumPy, onnx, onnxruntime and ai-edge-litert (with flatbuffers). A second run writes the same
bytes. For each NAME (default: the first four) FOLDER gets

    NAME.onnx           the network, a free batch dimension, images as channels × height × width
    NAME.tflite         the network with images as height × width × channels, batch norm in the
                        weights as converters leave it; LiteRT's results are compared with ONNX
                        Runtime's
    NAME.json           facts for the build: the order of the inputs, the meaning of the output,
                        golden vectors
    NAME_inputs.npy     records, shape (n, values), images as channels × height × width
    NAME_scores.npy     their scores before a final softmax by ONNX Runtime, (n, outputs), float32
    NAME_results.npy    the network's results: probabilities, or the scores

    autoencoder             640, then 128 four times, 8, 128 four times, 640, with batch norm and
                            ReLU (ToyADMOS)
    ds-cnn                  keywords in 49 × 10 values: one convolution, four depthwise-separable
                            ones of 64 channels
    resnet-8                3 × 32 × 32: three residual blocks of 16, 32 and 64 channels
    mobilenet-v1-0.25       3 × 96 × 96, two classes
    mobilenet-v1-1.0        3 × 224 × 224, 1000 classes: 17 MB

benches/networks.py makes larger ones in the same way.

The shapes follow the reference models' descriptions; no weight is theirs. Borders are those of
"same" padding if an even size meets a stride of 2: more below and to the right.
"""

import json
import sys
from pathlib import Path

import flatbuffers
import numpy as np
import onnx
import onnxruntime
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from onnx import TensorProto, helper, numpy_helper

RECORDS = 12
FEW = 3
"""Records of a network that takes half a second for one in float64, as the build computes them."""


def rounded(numbers):
    """To four digits, so that the last bits of a processor's sums do not matter."""
    return np.array([float(f"{x:.3e}") for x in numbers])


def records(shape, random):
    """Waves, of another length and direction in each channel of each record, with some noise."""
    size, count = shape[1:] or shape, RECORDS if np.prod(shape) < 100000 else FEW
    places = np.meshgrid(*(np.linspace(0, 1, n) for n in size), indexing="ij")
    channels = (count, shape[0] if len(shape) > 1 else 1, *[1] * len(size))
    waves = np.sin(
        random.uniform(-3, 3, channels) + sum(random.uniform(-12, 12, channels) * p for p in places)
    )
    return (waves.reshape(count, *shape) + random.normal(0, 0.2, (count, *shape))).astype(
        np.float32
    )


class Network:
    """An ONNX graph under construction. `value` and `shape` (of a record) are its last node's."""

    def __init__(self, shape, seed):
        self.random = np.random.default_rng(seed)
        self.nodes, self.weights = [], []
        self.value, self.shape, self.input = "input", shape, shape
        self.records = records(shape, np.random.default_rng(seed + 100))

    def node(self, op, *inputs, **attributes):
        output = f"{op.lower()}_{len(self.nodes)}"
        self.nodes.append(
            helper.make_node(
                op, list(inputs), [output], name=f"{op}_{len(self.nodes)}", **attributes
            )
        )
        self.value = output
        return output

    def array(self, values):
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(values, np.float32), name))
        return name

    def drawn(self, *shape):
        """Weights that keep the size of the values from layer to layer (He et al., 2015)."""
        return self.array(self.random.normal(0, np.sqrt(2 / np.prod(shape[1:])), shape))

    def seen(self):
        """The values here of all records, as a training would see them."""
        return run(self.model(self.value), self.records).astype(np.float64)

    def dense(self, outputs, last=False):
        """An affine layer. The last one's scores are small, so that many classes occur."""
        c, biases = self.shape[0], self.random.normal(0, 0.1, outputs)
        weights = self.random.normal(0, np.sqrt(2 / c), (outputs, c))
        if last:
            scores = self.seen() @ weights.T
            factor = float(f"{3 / scores.std():.3e}")
            weights, biases = weights * factor, biases - factor * scores.mean(0)
        self.node("Gemm", self.value, self.array(weights), self.array(rounded(biases)), transB=1)
        self.shape = (outputs,)

    def conv(self, channels, kernel, stride=(1, 1), groups=1, bias=False):
        """A convolution with the borders of "same" padding."""
        c, *size = self.shape
        out = [-(-n // s) for n, s in zip(size, stride)]
        total = [max((o - 1) * s + k - n, 0) for o, s, k, n in zip(out, stride, kernel, size)]
        pads = [t // 2 for t in total] + [t - t // 2 for t in total]
        weights = [self.drawn(channels, c // groups, *kernel)]
        weights += [self.array(self.random.normal(0, 0.1, channels))] if bias else []
        self.node(
            "Conv",
            self.value,
            *weights,
            kernel_shape=kernel,
            strides=stride,
            pads=pads,
            group=groups,
        )
        self.shape = (channels, *out)

    def norm(self):
        """Batch normalisation with the statistics of the records, as training leaves them."""
        values = self.seen()
        axes = (0, *range(2, values.ndim))
        c, r = self.shape[0], self.random
        numbers = (
            r.uniform(0.7, 1.3, c),
            r.normal(0, 0.2, c),
            values.mean(axes),
            values.var(axes) + 1e-3,
        )
        self.node(
            "BatchNormalization",
            self.value,
            *(self.array(rounded(n)) for n in numbers),
            epsilon=1e-3,
        )

    def relu(self):
        self.node("Relu", self.value)

    def pool(self):
        """The mean of all pixels, as a vector."""
        self.node("GlobalAveragePool", self.value)
        self.node("Flatten", self.value, axis=1)
        self.shape = self.shape[:1]

    def model(self, output):
        """The network up to `output`, of which a record has shape `self.shape`."""
        kept = self.nodes[: 1 + next(i for i, n in enumerate(self.nodes) if n.output[0] == output)]
        value = [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["N", *self.input])]
        result = [helper.make_tensor_value_info(output, TensorProto.FLOAT, ["N", *self.shape])]
        graph = helper.make_graph(kept, "network", value, result, self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
        onnx.checker.check_model(model, full_check=True)
        return model


def autoencoder():
    n = Network((640,), 1)
    for width in (128, 128, 128, 128, 8, 128, 128, 128, 128):
        n.dense(width)
        n.norm()
        n.relu()
    n.dense(640, last=True)
    return n, False


def ds_cnn():
    n = Network((1, 49, 10), 2)
    n.conv(64, (10, 4), (2, 2), bias=True)
    n.norm()
    n.relu()
    for _ in range(4):
        separable(n, 64, (1, 1), bias=True)
    n.pool()
    n.dense(12, last=True)
    return n, True


def separable(n, channels, stride, bias=False):
    """A depthwise convolution and one of 1 × 1, each with batch norm and ReLU."""
    for kernel, outputs, step, groups in (
        ((3, 3), n.shape[0], stride, n.shape[0]),
        ((1, 1), channels, (1, 1), 1),
    ):
        n.conv(outputs, kernel, step, groups, bias)
        n.norm()
        n.relu()


def resnet_8():
    n = Network((3, 32, 32), 3)
    n.conv(16, (3, 3), bias=True)
    n.norm()
    n.relu()
    for channels, stride in ((16, 1), (32, 2), (64, 2)):
        value, shape = n.value, n.shape
        n.conv(channels, (3, 3), (stride, stride), bias=True)
        n.norm()
        n.relu()
        n.conv(channels, (3, 3), bias=True)
        n.norm()
        long, shape_after = n.value, n.shape
        if stride != 1:
            n.value, n.shape = value, shape
            n.conv(channels, (1, 1), (stride, stride), bias=True)
            value = n.value
        n.shape = shape_after
        n.node("Add", value, long)
        n.relu()
    n.pool()
    n.dense(10, last=True)
    return n, True


def mobilenet(width, size, classes, seed):
    n = Network((3, size, size), seed)
    of = lambda channels: int(channels * width)
    n.conv(of(32), (3, 3), (2, 2))
    n.norm()
    n.relu()
    blocks = [
        (64, 1),
        (128, 2),
        (128, 1),
        (256, 2),
        (256, 1),
        (512, 2),
        *[(512, 1)] * 5,
        (1024, 2),
        (1024, 1),
    ]
    for channels, stride in blocks:
        separable(n, of(channels), (stride, stride))
    n.pool()
    n.dense(classes, last=True)
    return n, True


NETWORKS = {
    "autoencoder": autoencoder,
    "ds-cnn": ds_cnn,
    "resnet-8": resnet_8,
    "mobilenet-v1-0.25": lambda: mobilenet(0.25, 96, 2, 4),
    "mobilenet-v1-1.0": lambda: mobilenet(1.0, 224, 1000, 5),
}


def run(model, inputs):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, {"input": inputs})[0]


class Lite:
    """A TensorFlow Lite model under construction."""

    def __init__(self):
        self.graph, self.buffers, self.codes = schema.SubGraphT(), [schema.BufferT()], []
        self.graph.tensors, self.graph.operators = [], []

    def tensor(self, name, shape, data=None, free=False):
        made = schema.TensorT()
        made.name, made.shape, made.buffer = name, list(shape), 0
        made.shapeSignature = [-1, *shape[1:]] if free else None
        made.type = (
            schema.TensorType.INT32
            if data is not None and data.dtype == np.int32
            else schema.TensorType.FLOAT32
        )
        if data is not None:
            buffer = schema.BufferT()
            buffer.data, made.buffer = np.frombuffer(data.tobytes(), np.uint8), len(self.buffers)
            self.buffers.append(buffer)
        self.graph.tensors.append(made)
        return len(self.graph.tensors) - 1

    def constant(self, values, kind=np.float32):
        values = np.ascontiguousarray(values, kind)
        return self.tensor(f"w{len(self.graph.tensors)}", values.shape, values)

    def operator(self, code, inputs, name, shape, options=None):
        """An operator with its options; gives the number of its output."""
        if code not in self.codes:
            self.codes.append(code)
        made = schema.OperatorT()
        made.opcodeIndex, made.inputs = self.codes.index(code), inputs
        made.outputs = [self.tensor(name, (1, *shape), free=True)]
        if options is not None:
            made.builtinOptionsType = getattr(schema.BuiltinOptions, type(options).__name__[:-1])
            made.builtinOptions = options
        self.graph.operators.append(made)
        return made.outputs[0]

    def bytes(self, first, last):
        self.graph.inputs, self.graph.outputs = [first], [last]
        model = schema.ModelT()
        model.version, model.subgraphs, model.buffers, model.operatorCodes = (
            3,
            [self.graph],
            self.buffers,
            [],
        )
        for code in self.codes:
            made = schema.OperatorCodeT()
            made.builtinCode = made.deprecatedBuiltinCode = code
            made.version = 1
            model.operatorCodes.append(made)
        builder = flatbuffers.Builder(1024)
        builder.Finish(model.Pack(builder), b"TFL3")
        return bytes(builder.Output())


def lite(model):
    """The network as TensorFlow Lite, with batch norm and ReLU in each convolution or product."""
    code = schema.BuiltinOperator
    weights = {w.name: numpy_helper.to_array(w).astype(np.float64) for w in model.graph.initializer}
    inferred = onnx.shape_inference.infer_shapes(model).graph
    shapes = {
        v.name: [d.dim_value for d in v.type.tensor_type.shape.dim][1:]
        for v in [*inferred.value_info, *inferred.input, *inferred.output]
    }
    image = lambda name: (
        [*shapes[name][1:], shapes[name][0]] if len(shapes[name]) == 3 else shapes[name]
    )
    made, nodes, known = Lite(), list(model.graph.node), {}
    known["input"] = made.tensor("input", (1, *image("input")), free=True)
    while nodes:
        node = nodes.pop(0)
        kind, inputs, output = node.op_type, node.input, node.output[0]
        given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        follows = lambda op: bool(nodes) and nodes[0].op_type == op and nodes[0].input[0] == output
        if kind in ("Conv", "Gemm"):
            w = weights[inputs[1]]
            b = weights[inputs[2]] if len(inputs) > 2 else np.zeros(len(w))
            if follows("BatchNormalization"):
                norm = nodes.pop(0)
                scale, bias, mean, variance = (weights[i] for i in norm.input[1:])
                factor = scale / np.sqrt(variance + helper.get_attribute_value(norm.attribute[0]))
                w, b = w * factor.reshape(-1, *[1] * (w.ndim - 1)), (b - mean) * factor + bias
                output = norm.output[0]
            # The second is a clip at 6.
            activation = 1 if follows("Relu") else 3 if follows("Clip") else 0
            if activation:
                output = nodes.pop(0).output[0]
            depthwise = given.get("group", 1) > 1
            if kind == "Gemm":
                options, number = schema.FullyConnectedOptionsT(), code.FULLY_CONNECTED
            else:
                options = schema.DepthwiseConv2DOptionsT() if depthwise else schema.Conv2DOptionsT()
                number = code.DEPTHWISE_CONV_2D if depthwise else code.CONV_2D
                w = w.transpose(1, 2, 3, 0) if depthwise else w.transpose(0, 2, 3, 1)
                options.padding = schema.Padding.SAME
                options.strideH, options.strideW = given["strides"]
                options.dilationHFactor = options.dilationWFactor = options.depthMultiplier = 1
            options.fusedActivationFunction = activation
            known[output] = made.operator(
                number,
                [known[inputs[0]], made.constant(w), made.constant(b)],
                output,
                image(output),
                options,
            )
        elif kind == "Add":
            options = schema.AddOptionsT()
            options.fusedActivationFunction = int(follows("Relu"))
            output = nodes.pop(0).output[0] if follows("Relu") else output
            known[output] = made.operator(
                code.ADD, [known[i] for i in inputs], output, image(output), options
            )
        elif kind == "GlobalAveragePool":
            output = nodes.pop(0).output[0]
            axes = made.constant([1, 2], np.int32)
            known[output] = made.operator(
                code.MEAN, [known[inputs[0]], axes], output, image(output), schema.ReducerOptionsT()
            )
        elif kind == "Softmax":
            options = schema.SoftmaxOptionsT()
            options.beta = 1.0
            known[output] = made.operator(
                code.SOFTMAX, [known[inputs[0]]], output, image(output), options
            )
        elif kind == "MaxPool":
            options = schema.Pool2DOptionsT()
            options.padding = schema.Padding.SAME
            options.strideH, options.strideW = given["strides"]
            options.filterHeight, options.filterWidth = given["kernel_shape"]
            known[output] = made.operator(
                code.MAX_POOL_2D, [known[inputs[0]]], output, image(output), options
            )
        elif kind == "Concat":
            options = schema.ConcatenationOptionsT()
            # The channels of an image come last, here; of lists of values the first axis is joined.
            options.axis = 3 if len(shapes[output]) == 3 else 1
            known[output] = made.operator(
                code.CONCATENATION, [known[i] for i in inputs], output, image(output), options
            )
        elif kind in ("Sigmoid", "Mul", "Relu"):
            number = {"Sigmoid": code.LOGISTIC, "Mul": code.MUL, "Relu": code.RELU}[kind]
            options = schema.MulOptionsT() if kind == "Mul" else None
            known[output] = made.operator(
                number, [known[i] for i in inputs], output, image(output), options
            )
        elif kind == "Pad":
            # Channels are added behind the others.
            pads = weights[inputs[1]]
            channels = made.constant([[0, 0], [0, 0], [0, 0], [0, int(pads[5])]], np.int32)
            known[output] = made.operator(
                code.PAD, [known[inputs[0]], channels], output, image(output), schema.PadOptionsT()
            )
        elif kind == "Transpose":
            # To the order that an image has here.
            known[output] = known[inputs[0]]
        elif kind == "Reshape":
            shape = made.constant([-1, *shapes[output]], np.int32)
            known[output] = made.operator(
                code.RESHAPE,
                [known[inputs[0]], shape],
                output,
                shapes[output],
                schema.ReshapeOptionsT(),
            )
        else:
            raise ValueError(f"{kind} has no counterpart here")
    return made.bytes(known["input"], known[model.graph.output[0].name])


def run_lite(model, inputs):
    """LiteRT's results, record by record, without delegates."""
    plain = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    session = Interpreter(model_content=model, num_threads=1, experimental_op_resolver_type=plain)
    session.allocate_tensors()
    (into,), (out,) = session.get_input_details(), session.get_output_details()
    results = []
    for record in inputs.transpose(0, 2, 3, 1) if inputs.ndim == 4 else inputs:
        session.set_tensor(into["index"], record[None])
        session.invoke()
        results.append(session.get_tensor(out["index"])[0])
    return np.array(results)


def write(folder, name):
    network, classes = NETWORKS[name]()
    scores = network.seen().astype(np.float32)
    if classes:
        network.node("Softmax", network.value, axis=1)
    model = network.model(network.value)
    results = run(model, network.records)
    (folder / f"{name}.onnx").write_bytes(model.SerializeToString(deterministic=True))
    try:
        small = lite(model)
    except ValueError as no_counterpart:
        print(f"{name}: {no_counterpart}: no .tflite")
        error = np.nan
    else:
        error = np.abs(run_lite(small, network.records) - results).max() / np.abs(results).max()
        if error > 1e-4:
            sys.exit(f"{name}.tflite: LiteRT's results differ by {error:.2g} of the largest")
        (folder / f"{name}.tflite").write_bytes(small)
    for what, values in (
        ("inputs", network.records.reshape(len(network.records), -1)),
        ("scores", scores),
        ("results", results),
    ):
        np.save(folder / f"{name}_{what}.npy", values)
    definition = {
        "name": name,
        "input": {"order": "chw"},
        "output": {"kind": "classes" if classes else "values"},
        "check": {"inputs": f"{name}_inputs.npy", "scores": f"{name}_scores.npy"},
    }
    (folder / f"{name}.json").write_text(json.dumps(definition, indent=2) + "\n")
    weights = sum(np.prod(w.dims) for w in network.weights)
    largest = np.sort(scores, 1)[:, ::-1]
    print(
        f"{name}: {weights} weights, scores from {scores.min():.3g} to {scores.max():.3g}", end=""
    )
    print(f", LiteRT differs by {error:.1g} of the largest result", end="")
    print(
        f", classes {sorted(set(scores.argmax(1).tolist()))}, top two differ by "
        f"{(largest[:, 0] - largest[:, 1]).min():.2g} or more"
        if classes
        else ""
    )


def main(arguments, default):
    unknown = [name for name in arguments[1:] if name not in NETWORKS]
    if not arguments or unknown:
        sys.exit(
            f"unknown: {', '.join(unknown)}; there are {', '.join(NETWORKS)}"
            if unknown
            else __doc__
        )
    folder = Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    for name in arguments[1:] or default:
        write(folder, name)


if __name__ == "__main__":
    main(sys.argv[1:], list(NETWORKS)[:4])
