#!/usr/bin/env python3
"""Builds larger networks that people put on boards, with random weights, for benches/host.py --zoo.

    benches/networks.py FOLDER [NAME]...

Needs what tests/zoo/make.py needs, and writes the same files for each NAME (default: all).

    mobilenet-v1-1.0        3 × 224 × 224, 1000 classes
    mobilenet-v2            3 × 224 × 224, 1000 classes
    squeezenet-1.1          3 × 224 × 224, 1000 classes
    shufflenet-v2           3 × 224 × 224, 1000 classes; no .tflite
    efficientnet-lite0      3 × 224 × 224, 1000 classes
    blazeface               3 × 128 × 128, 896 boxes of 17 values
    ultraface               3 × 240 × 320, 4420 boxes of 6 values (the slim version)
    yolo-nano               3 × 320 × 320, a YOLO's backbone of 2023, then the mean of the pixels

The shapes follow the published descriptions; no weight is theirs. Batch norms are in the weights
already, as exporters leave them. Borders are those of "same" padding.
"""

import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests/zoo"))
import make
from onnx import TensorProto, helper


class Network(make.Network):
    """A network of convolutions with biases, and further operations."""

    gain = 2

    def drawn(self, *shape):
        return self.array(self.random.normal(0, np.sqrt(self.gain / np.prod(shape[1:])), shape))

    def integers(self, values):
        name = f"w{len(self.weights)}"
        values = list(values)
        self.weights.append(helper.make_tensor(name, TensorProto.INT64, [len(values)], values))
        return name

    def conv(self, channels, kernel, stride=1, groups=1):
        super().conv(channels, (kernel, kernel), (stride, stride), groups, bias=True)

    def clip(self):
        self.node("Clip", self.value, self.array(0.0), self.array(6.0))

    def silu(self):
        value = self.value
        self.node("Mul", value, self.node("Sigmoid", value))

    def max_pool(self, kernel, stride):
        c, h, w = self.shape
        out = [-(-n // stride) for n in (h, w)]
        total = [max((o - 1) * stride + kernel - n, 0) for o, n in zip(out, (h, w))]
        pads = [t // 2 for t in total] + [t - t // 2 for t in total]
        sizes = dict(kernel_shape=(kernel, kernel), strides=(stride, stride), pads=pads)
        self.node("MaxPool", self.value, **sizes)
        self.shape = (c, *out)

    def concat(self, *values):
        """Joins values along the first axis of a record. Each is a pair of name and shape."""
        self.node("Concat", *(name for name, _ in values), axis=1)
        self.shape = (sum(shape[0] for _, shape in values), *values[0][1][1:])

    def at(self):
        return self.value, self.shape

    def go(self, place):
        self.value, self.shape = place
        return self

    def boxes(self, values):
        """A list of boxes with so many values each, as detectors give them."""
        c, h, w = self.shape
        self.node("Transpose", self.value, perm=(0, 2, 3, 1))
        self.shape = (h * w * c // values, values)
        self.node("Reshape", self.value, self.integers((-1, *self.shape)))


def inverted(n, channels, expand, kernel, stride):
    """A bottleneck that widens, convolves channel by channel, and narrows."""
    start = n.at()
    if expand > 1:
        n.conv(n.shape[0] * expand, 1)
        n.clip()
    n.conv(n.shape[0], kernel, stride, groups=n.shape[0])
    n.clip()
    n.conv(channels, 1)
    if start[1] == n.shape:
        n.node("Add", start[0], n.value)


def bottlenecks(blocks):
    n = Network((3, 224, 224), 6)
    n.conv(32, 3, 2)
    n.clip()
    for expand, channels, count, stride, kernel in blocks:
        for i in range(count):
            inverted(n, channels, expand, kernel, stride if i == 0 else 1)
    n.conv(1280, 1)
    n.clip()
    n.pool()
    n.dense(1000, last=True)
    return n, True


def mobilenet_v2():
    blocks = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1))
    return bottlenecks([(*b, 3) for b in (*blocks, (6, 160, 3, 2), (6, 320, 1, 1))])


def efficientnet_lite0():
    blocks = ((1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3))
    return bottlenecks((*blocks, (6, 112, 3, 1, 5), (6, 192, 4, 2, 5), (6, 320, 1, 1, 3)))


def squeezenet():
    n = Network((3, 224, 224), 7)
    n.conv(64, 3, 2)
    n.relu()
    for pooled, squeeze, expand in (
        (True, 16, 64),
        (False, 16, 64),
        (True, 32, 128),
        (False, 32, 128),
        (True, 48, 192),
        (False, 48, 192),
        (False, 64, 256),
        (False, 64, 256),
    ):
        if pooled:
            n.max_pool(3, 2)
        n.conv(squeeze, 1)
        n.relu()
        start, ends = n.at(), []
        for kernel in (1, 3):
            n.go(start).conv(expand, kernel)
            n.relu()
            ends.append(n.at())
        n.concat(*ends)
    n.conv(1000, 1)
    n.relu()
    n.pool()
    return n, True


def shufflenet():
    n = Network((3, 224, 224), 8)
    n.conv(24, 3, 2)
    n.relu()
    n.max_pool(3, 2)

    def branch(channels, stride):
        n.conv(channels, 1)
        n.relu()
        n.conv(channels, 3, stride, groups=channels)
        n.conv(channels, 1)
        n.relu()
        return n.at()

    for channels, count in ((116, 4), (232, 8), (464, 4)):
        half = channels // 2
        for i in range(count):
            start, (c, h, w) = n.at(), n.shape
            if i == 0:
                n.conv(c, 3, 2, groups=c)
                n.conv(half, 1)
                n.relu()
                left = n.at()
                right = (n.go(start), branch(half, 2))[1]
            else:
                outputs = [f"left_{len(n.nodes)}", f"right_{len(n.nodes)}"]
                sizes = n.integers((half, half))
                n.nodes.append(
                    helper.make_node("Split", [start[0], sizes], outputs, axis=1, name=outputs[0])
                )
                left = outputs[0], (half, h, w)
                right = (n.go((outputs[1], (half, h, w))), branch(half, 1))[1]
            n.concat(left, right)
            _, h, w = shape = n.shape
            n.node("Reshape", n.value, n.integers((-1, 2, half, h, w)))
            n.node("Transpose", n.value, perm=(0, 2, 1, 3, 4))
            n.node("Reshape", n.value, n.integers((-1, *shape)))
    n.conv(1024, 1)
    n.relu()
    n.pool()
    n.dense(1000, last=True)
    return n, True


def blazeface():
    n = Network((3, 128, 128), 9)
    # Sixteen additions, one after the other: with a gain of 2 the values would double at each.
    n.gain = 0.5
    n.conv(24, 5, 2)
    n.relu()

    def block(channels, stride):
        start, before = n.at(), n.shape[0]
        n.conv(before, 3, stride, groups=before)
        n.conv(channels, 1)
        long = n.at()
        n.go(start)
        if stride > 1:
            n.max_pool(2, 2)
        if channels > before:
            n.node("Pad", n.value, n.integers((0, 0, 0, 0, 0, channels - before, 0, 0)))
        n.node("Add", long[0], n.value)
        n.shape = long[1]
        n.relu()

    for channels, stride in ((24, 1), (28, 1), (32, 2), (36, 1), (42, 1), (48, 2), (56, 1)):
        block(channels, stride)
    for channels in (64, 72, 80, 88):
        block(channels, 1)
    fine = n.at()
    for stride in (2, 1, 1, 1, 1):
        block(96, stride)
    parts = []
    for place, anchors in ((fine, 2), (n.at(), 6)):
        for values in (1, 16):
            n.go(place).conv(anchors * values, 1)
            n.boxes(values)
            parts.append(n.at())
    lists = []
    for one in (0, 1):
        n.concat(parts[one], parts[2 + one])
        n.node("Reshape", n.value, n.integers((-1, n.shape[0] * n.shape[1])))
        lists.append((n.value, (n.shape[0] * n.shape[1],)))
    n.concat(*lists)
    return n, False


def ultraface():
    n = Network((3, 240, 320), 10)
    n.conv(16, 3, 2)
    n.relu()

    def separable(channels, stride=1):
        n.conv(n.shape[0], 3, stride, groups=n.shape[0])
        n.relu()
        n.conv(channels, 1)

    places = []
    for channels, strides in ((32, (1, 2, 1)), (64, (2, 1, 1, 1)), (128, (2, 1, 1)), (256, (2, 1))):
        for stride in strides:
            separable(channels, stride)
            n.relu()
        places.append(n.at())
    lists = []
    for place, anchors in zip(places[1:], (3, 2, 3)):
        for values in (2, 4):
            n.go(place)
            separable(anchors * values)
            n.node("Transpose", n.value, perm=(0, 2, 3, 1))
            c, h, w = n.shape
            n.node("Reshape", n.value, n.integers((-1, c * h * w)))
            lists.append((n.value, (c * h * w,)))
    n.concat(*lists)
    return n, False


def yolo_nano():
    n = Network((3, 320, 320), 11)

    def conv(channels, kernel, stride=1):
        n.conv(channels, kernel, stride)
        n.silu()

    def half(start, channels):
        """Two of a value's halves would need Split; a convolution for each gives the same."""
        n.go(start)
        conv(channels, 1)
        return n.at()

    def stage(channels, count):
        start, c = n.at(), channels // 2
        ends = [half(start, c), half(start, c)]
        for _ in range(count):
            before = n.at()
            conv(c, 3)
            conv(c, 3)
            n.node("Add", before[0], n.value)
            ends.append(n.at())
        n.concat(*ends)
        conv(channels, 1)

    conv(16, 3, 2)
    for channels, count in ((32, 1), (64, 2), (128, 2), (256, 1)):
        conv(channels, 3, 2)
        stage(channels, count)
    conv(128, 1)
    ends = [n.at()]
    for _ in range(3):
        n.max_pool(5, 1)
        ends.append(n.at())
    n.concat(*ends)
    conv(256, 1)
    n.pool()
    return n, False


make.NETWORKS = {
    "mobilenet-v1-1.0": lambda: make.mobilenet(1.0, 224, 1000, 5),
    "mobilenet-v2": mobilenet_v2,
    "squeezenet-1.1": squeezenet,
    "shufflenet-v2": shufflenet,
    "efficientnet-lite0": efficientnet_lite0,
    "blazeface": blazeface,
    "ultraface": ultraface,
    "yolo-nano": yolo_nano,
}

if __name__ == "__main__":
    make.main(sys.argv[1:], list(make.NETWORKS))
