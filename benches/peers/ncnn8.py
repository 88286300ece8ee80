"""Writes ncnn's files of a network of 8-bit integers, as benches/quantised.py makes them.

The source is the .onnx, which has explicit borders, and weights with the output channels first.
ncnn gets the same integers as weights. Its activations have no zero points, so each one gets the
range -m to m, where m is the largest magnitude in the range of the source. As after ncnn's own tool
ncnn2int8, only convolutions and affine layers compute with integers. A convolution writes integers
if only convolutions read them. All other values are floats.
"""

import collections
import pathlib

import ncnn
import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

MAGIC = "7767517"  # the first line of a .param
INT8 = np.uint32(0x000D4B38)  # in front of weights of int8
# The kinds of activation, which is parameter 9 of layers with weights.
ACTIVATION, RELU, CLIP = 9, 1, 3
INTEGERS, REQUANTISED = 8, 100
CONVOLUTIONS = ("Convolution", "ConvolutionDepthWise")


class Layer:
    """A layer of ncnn and its parameters by number. Weights are int8 with a scale for each output
    channel. The bias has floats."""

    def __init__(self, kind, inputs, output, keys, weights=None, scales=None):
        self.kind, self.inputs, self.output, self.keys = kind, inputs, output, keys
        self.weights, self.scales, self.bias = weights, scales, None


def line(kind, inputs, outputs, keys):
    counts = [str(len(inputs)), str(len(outputs))]
    keys = [f"{key}={value}" for key, value in keys.items()]
    return " ".join([kind, outputs[0], *counts, *inputs, *outputs, *keys])


class Network:
    """The layers of a network. A method with the name of an ONNX operation translates its nodes.

    A blob is a value of ncnn, and has the name of a value in the .onnx. Quantising a value and
    dequantising it give the same blob. ValueError says what cannot be translated.
    """

    def __init__(self, path):
        self.model = onnx.load(path)
        graph = self.model.graph
        self.constants = {c.name: numpy_helper.to_array(c) for c in graph.initializer}
        self.dequantised = {}  # weights and biases with their scales
        self.blobs, self.layers = {}, []
        self.quantised = {}  # scale and zero point of a blob in the source
        self.flat = set()  # blobs of one dimension
        self.uses = collections.Counter(name for node in graph.node for name in node.input)
        self.input = graph.input[0].name
        self.shape = [d.dim_value for d in graph.input[0].type.tensor_type.shape.dim[1:]]
        if len(self.shape) == 1:
            self.blobs[self.input] = "in0"
            self.flat.add("in0")
        for node in graph.node:
            translate = getattr(self, node.op_type, None)
            if not translate:
                raise ValueError(f"{node.name}: unknown operation {node.op_type}")
            keys = {a.name: helper.get_attribute_value(a) for a in node.attribute}
            translate(node.output[0], *node.input, **keys)
        if self.blobs[graph.output[0].name] != self.layers[-1].output:
            raise ValueError("the result is not that of the last layer")

    def floats(self, records):
        """The records for ncnn: floats, images with the channels first."""
        scale, zero = self.quantised["in0"]
        records = (records.reshape(len(records), *self.shape).astype(np.float32) - zero) * scale
        return np.ascontiguousarray(np.moveaxis(records, -1, 1), np.float32)

    def blob(self, value):
        if value not in self.blobs:
            raise ValueError(f"{value}: a constant, or an image whose channels are last")
        return self.blobs[value]

    def constant(self, value):
        if value not in self.dequantised:
            raise ValueError(f"{value}: not a constant of integers")
        return self.dequantised[value]

    def add(self, kind, output, values, keys, *weights):
        self.layers.append(Layer(kind, [self.blob(v) for v in values], output, keys, *weights))
        self.blobs[output] = output

    def fused(self, output, value):
        """The layer of the value, which becomes that of the output. None if they stay two."""
        layer, blob = self.layers[-1], self.blob(value)
        whole = layer.weights is None or ACTIVATION in layer.keys or blob in self.quantised
        if layer.output != blob or whole or self.uses[value] > 1:
            return None
        if blob in self.flat:
            self.flat.add(output)
        self.blobs[output] = layer.output = output
        return layer

    def add_bias(self, layer, bias):
        integers, scales = self.constant(bias)
        layer.bias = (integers * scales).astype(np.float32)

    def QuantizeLinear(self, output, value, scale, zero, axis=None):
        blob = self.blobs[output] = self.blob(value)
        pair = float(self.constants[scale]), int(self.constants[zero])
        different = self.quantised.setdefault(blob, pair) != pair
        if different or self.constants[zero].dtype != np.int8:
            raise ValueError(f"{value}: quantised twice, or not to int8")

    def DequantizeLinear(self, output, value, scale, zero, axis=None):
        if value not in self.constants:
            self.QuantizeLinear(output, value, scale, zero)
        elif self.constants[zero].any():
            raise ValueError(f"{value}: a constant with a zero point")
        else:
            self.dequantised[output] = self.constants[value], self.constants[scale]

    def Transpose(self, output, value, perm):
        if value != self.input or perm != [0, 3, 1, 2]:
            raise ValueError(f"{output}: only an image as input can be transposed")
        self.blobs[output] = "in0"

    def Reshape(self, output, value, shape):
        if value == self.input and self.shape[-1] == 1:
            # A single channel is the first and the last dimension.
            if [*self.constants[shape][1:]] != [1, *self.shape[:-1]]:
                raise ValueError(f"{output}: the input is reshaped")
            self.blobs[output] = "in0"
        else:
            self.Squeeze(output, value)

    def Squeeze(self, output, value, axes=None):
        blob = self.blobs[output] = self.blob(value)
        if blob not in self.flat:
            raise ValueError(f"{output}: a value of several dimensions is reshaped")

    def Conv(
        self, output, value, weights, bias, strides, kernel_shape, pads, group=1, dilations=(1, 1)
    ):
        integers, scales = self.constant(weights)
        if group not in (1, len(integers)):
            raise ValueError(f"{output}: {group} groups of several channels")
        keys = {0: len(integers), 5: 1, 6: integers.size}
        # Vertical and horizontal sizes, then the borders above, left, below and right.
        keys |= dict(zip((11, 1, 12, 2, 13, 3), (*kernel_shape, *dilations, *strides)))
        keys |= dict(zip((14, 4, 16, 15), pads))
        keys |= {7: group} if group > 1 else {}
        self.add(CONVOLUTIONS[group > 1], output, [value], keys, integers, scales)
        self.add_bias(self.layers[-1], bias)

    def MatMul(self, output, value, weights):
        integers, scales = self.constant(weights)
        if self.blob(value) not in self.flat:
            raise ValueError(f"{output}: a product of several dimensions")
        keys = {0: integers.shape[1], 1: 0, 2: integers.size}
        self.add("InnerProduct", output, [value], keys, integers.T, scales)
        self.flat.add(output)

    def Add(self, output, value, other):
        if other in self.dequantised:
            layer = self.fused(output, value)
            if not layer or layer.bias is not None:
                raise ValueError(f"{output}: a constant is added to something else than a product")
            layer.keys[1] = 1
            self.add_bias(layer, other)
        else:
            self.add("BinaryOp", output, [value, other], {0: 0})

    def Relu(self, output, value):
        layer = self.fused(output, value)
        if layer:
            layer.keys[ACTIVATION] = RELU
        else:
            self.add("ReLU", output, [value], {})

    def Clip(self, output, value, least, most):
        layer, (least, most) = self.fused(output, value), map(self.constants.get, (least, most))
        if layer:
            layer.keys |= {ACTIVATION: CLIP, -23310: f"2,{least},{most}"}
        else:
            self.add("Clip", output, [value], {0: least, 1: most})

    def GlobalAveragePool(self, output, value):
        self.add("Pooling", output, [value], {0: 1, 4: 1})
        self.flat.add(output)

    def Softmax(self, output, value, axis=-1):
        if self.blob(value) not in self.flat:
            raise ValueError(f"{output}: a softmax of several dimensions")
        self.add("Softmax", output, [value], {0: 0, 1: 1})

    def steps(self, blob):
        """The steps of ncnn's integers in a blob for a difference of 1."""
        if blob not in self.quantised:
            raise ValueError(f"{blob}: not quantised")
        scale, zero = self.quantised[blob]
        return np.float32(127 / (scale * max(127 - zero, zero + 128)))

    def numbers(self, layer, readers):
        """The bytes of a layer in the .bin. Sets the parameter that says which scales they have."""
        kinds = {reader.kind for reader in readers}
        requantised = layer.kind in CONVOLUTIONS and kinds and kinds <= {*CONVOLUTIONS}
        layer.keys[INTEGERS] = 1 if layer.kind == CONVOLUTIONS[1] else 2
        weights = layer.weights.tobytes()
        parts = [INT8, weights, bytes(-len(weights) % 4)]
        parts += [] if layer.bias is None else [layer.bias]
        parts += [1 / np.broadcast_to(layer.scales, layer.keys[0]), self.steps(layer.inputs[0])]
        if requantised:
            layer.keys[INTEGERS] += REQUANTISED
            parts.append(self.steps(layer.output))
        return b"".join(p if isinstance(p, bytes) else p.tobytes() for p in parts)

    def write(self, param, numbers):
        """Writes the two files. A blob that several layers read is split, as ncnn wants it."""
        size = reversed([self.shape[-1], *self.shape[:-1]])
        layers = [Layer("Input", [], "in0", dict(enumerate(size))), *self.layers]
        readers = {layer.output: [] for layer in layers}
        for layer in layers:
            for blob in layer.inputs:
                readers[blob].append(layer)
        lines, parts, copies = [], [], {}
        for layer in layers:
            blob, count = layer.output, len(readers[layer.output])
            if layer.weights is not None:
                parts.append(self.numbers(layer, readers[blob]))
            inputs = [copies[name].pop() for name in layer.inputs]
            lines.append(line(layer.kind, inputs, [blob if count else "out0"], layer.keys))
            copies[blob] = [blob]
            if count > 1:
                copies[blob] = [f"{blob}_{i}" for i in range(count)]
                lines.append(line("Split", [blob], copies[blob], {}))
        blobs = len(layers) + sum(len(r) for r in readers.values() if len(r) > 1)
        pathlib.Path(param).write_text("\n".join([MAGIC, f"{len(lines)} {blobs}", *lines, ""]))
        pathlib.Path(numbers).write_bytes(b"".join(parts))

    def reference(self, records):
        """The values of all blobs as ONNX Runtime computes them, quantised as in the source."""
        model, names = onnx.ModelProto(), [layer.output for layer in self.layers]
        model.CopyFrom(self.model)
        values = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, None) for n in names]
        model.graph.output.extend(values)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        # As it is written in the file: floats between quantising and dequantising.
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        shape = (len(records), *self.shape)
        values = dict(zip(names, session.run(names, {self.input: records.reshape(shape)})))
        return {**values, "in0": self.floats(records)}

    def error(self, net, records):
        """The largest error of a layer in the loaded network: the root of the mean square of the
        differences, as a part of that of the values. Each layer gets the reference's inputs."""
        reference, worst = self.reference(records), 0
        for layer in self.layers:
            expected = reference[layer.output].reshape(len(records), -1)
            found = []
            for i in range(len(records)):
                extractor = net.create_extractor()
                for blob in layer.inputs:
                    value = reference[blob][i]
                    if blob in self.quantised:
                        scale, zero = self.quantised[blob]
                        value = np.clip(np.rint(value / scale), -128 - zero, 127 - zero) * scale
                    value = np.ascontiguousarray(value, np.float32)
                    value = value.ravel() if blob in self.flat else value
                    # The copy has ncnn's alignment of channels, which its layers rely on.
                    extractor.input(blob, ncnn.Mat(value).clone())
                last = layer is self.layers[-1]
                found.append(np.array(extractor.extract("out0" if last else layer.output)[1]))
            found = np.stack(found).reshape(expected.shape).astype(np.float32)
            if layer.keys.get(INTEGERS, 0) > REQUANTISED:
                found /= self.steps(layer.output)
            worst = max(worst, np.linalg.norm(found - expected) / np.linalg.norm(expected))
        return float(worst)
