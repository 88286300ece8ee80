"""Random networks in mortonnet's own JSON over what model/README.md promises, judged by NumPy.

The judge computes in float64. A value is an image of channels, rows and columns, a vector has one
row and one column. Each input has a node `input` in front, which scales the raw record and puts its
numbers in order.
"""

import io
import json
import math
import re

import numpy as np

from graph import BATCH, Graph, Node, Unfit

MOST = 500
"""Most numbers of a value."""
TYPES = ("csv", "npy", "f32")
AXES = ("channels", "rows", "columns")
FINAL = ("SoftmaxLayer", "SigmoidLayer", "TanhLayer")
"""Layers that are left out of the scores where they end a network, except for values."""
ACTIVATIONS = {"SoftmaxLayer": "softmax", "SigmoidLayer": "sigmoid"}


class JsonGraph(Graph):
    format = "json"
    sizes = frozenset()

    def __init__(self, random):
        super().__init__(random, 1, "float32")
        self.types = {}
        """The data type of each matrix file."""
        self.hwc = False
        """True if a record has its image pixel by pixel."""
        self.scaling = ()
        """The keys of `input` that scale: scale and offset, mean and std, or one of them."""
        self.keys = {}
        """Further keys of the network."""
        self.nameless = set()
        """Values whose layers have no name."""
        self.explicit = set()
        """Values whose layers name their input although it is the layer before."""
        self.listed = set()
        """Vectors of the input whose shape is a list of one number."""
        self.beyond = set()
        """Values that the program computes behind the last layer."""
        self.before = None
        """The scores, where a final function follows them."""
        self.shapeless = self.chance(0.5)
        """True if the file does not say the length of a vector that the first weights say."""
        self.check = None
        """The data type of the golden vectors, where the network has some."""

    def cut(self, outputs):
        g = super().cut(outputs)
        g.keys.pop("features", None)
        g.check = None
        if g.outputs != self.outputs:
            g.keys.pop("labels", None)
            g.before = None
        return g

    def layer(self, op, inputs, shape, attrs=None, arrays=(), tags=()):
        """Adds a layer. `arrays`: the constants that the bounds read, in their order."""
        name = self.name(op)
        made = Node(op, [*inputs, *arrays], [name], attrs or {})
        self.nodes.append(made)
        self.shapes[name], self.kinds[name] = [BATCH, *shape], "float32"
        self.live.add(name)
        if self.size(name) > MOST or min(shape) < 1:
            raise Unfit
        if self.chance(0.5):
            self.nameless.add(name)
        if self.chance(0.5):
            self.explicit.add(name)
        files = [v for v in made.attrs.values() if isinstance(v, str) and v in self.types]
        keys = [form(k, v) for k, v in made.attrs.items()]
        self.hit(made, [*keys, *tags], rank(self, inputs[0]), "float32")
        made.hits += [(op, "type", "", self.types[a]) for a in files]
        return name

    def matrix(self, values):
        """A matrix file; a list becomes one column."""
        values = np.asarray(values, np.float32)
        name = self.weight(values.reshape(len(values), -1))
        self.types[name] = self.among(TYPES)
        return name

    def operand(self, image=None):
        """A value: an image, a vector, or any; rather one that nothing reads yet."""
        good = sorted(self.live - set(self.inputs))
        good = [n for n in good if image is None or image == (rank(self, n) == 3)]
        if not good and image:
            x = self.operand()
            return self.layer(
                "ReshapeLayer", [x], dims := factors(self, self.size(x)), {"shape": dims}
            )
        if not good:
            x = self.operand()
            return self.layer("FlattenLayer", [x], [self.size(x), 1, 1])
        new = [n for n in good if not self.readers(n)]
        return self.among(new if new and self.chance(0.7) else good)


def rank(g, name):
    """1 for a vector, 3 for an image."""
    return 1 if g.shapes[name][2:] in ([1, 1], []) else 3


def form(key, value):
    """A key, with the form of its value where there are several."""
    if key in ("kernel", "stride", "dilation", "pad", "scale", "offset", "mean", "std", "shape"):
        if isinstance(value, str):
            return key
        return f"{key} {len(value) if isinstance(value, list) else 'number'}"
    return f"{key} {value}" if key in ("axis", "approximate", "ceil", "countIncludePad") else key


def factors(g, n):
    """Channels, rows and columns of n numbers."""
    dims = [1, 1, 1]
    for p in (2, 3, 5, 7, 11, 13):
        while n % p == 0:
            dims[g.int(0, 2)] *= p
            n //= p
    dims[g.int(0, 2)] *= n
    return dims


def pair(value):
    """A number for both directions, or one for each."""
    return value if isinstance(value, list) else [value, value]


def sides(pad):
    """Top, left, bottom and right of a border in one of its three forms."""
    if not isinstance(pad, list):
        return [pad] * 4
    return pad if len(pad) == 4 else [*pad, *pad]


# Layers.


def drawn_pair(g, low, high):
    return g.int(low, high) if g.chance(0.5) else [g.int(low, high), g.int(low, high)]


def drawn_border(g, most):
    way = g.among([1, 2, 4])
    return g.int(0, most) if way == 1 else [g.int(0, most) for _ in range(way)]


def window(g, x, pool):
    """Keys of a window, and the rows and columns that it gives."""
    attrs = {"kernel": drawn_pair(g, 1, 3)}
    for key, most in (("stride", 3), ("dilation", 2)):
        if g.chance(0.4):
            attrs[key] = drawn_pair(g, 1, most)
    if g.chance(0.5):
        # A window of a pool that lies within the border has no value.
        attrs["pad"] = drawn_border(g, min(pair(attrs["kernel"])) - 1 if pool else 2)
    if pool and g.chance(0.5):
        attrs["ceil"] = g.chance(0.7)
    return attrs, counts(attrs, g.shapes[x][2:], pool)


def counts(attrs, image, pool):
    """How many windows a direction has."""
    kernel, dilation = pair(attrs["kernel"]), pair(attrs.get("dilation", 1))
    stride, border = pair(attrs.get("stride", kernel if pool else 1)), sides(attrs.get("pad", 0))
    found = []
    for a in (0, 1):
        size = image[a] + border[a] + border[a + 2]
        rest = size - (dilation[a] * (kernel[a] - 1) + 1)
        if rest < 0:
            raise Unfit
        n = rest // stride[a] + 1
        if attrs.get("ceil") and rest % stride[a]:
            # The documents do not say if a window may begin behind the image.
            if n * stride[a] >= image[a] + border[a]:
                raise Unfit
            n += 1
        found.append(n)
    return found


def weights_and_biases(g, outputs, columns, must):
    """The two as keys; biases may be left out unless they must be there."""
    attrs = {"weights": g.matrix(g.random.normal(0, 1 / np.sqrt(columns), (outputs, columns)))}
    if must or g.chance(0.6):
        attrs["biases"] = g.matrix(g.random.normal(0, 0.3, outputs))
    return attrs


def affine(g):
    x = g.operand()
    outputs, n = g.among([1, g.int(1, 17), g.int(1, 17), g.int(18, 70)]), g.size(x)
    attrs = weights_and_biases(g, outputs, n, True)
    g.layer("AffineLayer", [x], [outputs, 1, 1], attrs, attrs.values())


def convolution(op):
    def rule(g):
        x = g.operand(image=True if g.chance(0.9) else None)
        c = g.shapes[x][1]
        attrs, size = window(g, x, False)
        if op == "ConvLayer":
            groups = g.among([1, 1] + [d for d in range(2, c + 1) if c % d == 0])
            outputs = groups * g.int(1, 4) if groups > 1 else g.int(1, 17)
            if groups > 1 or g.chance(0.3):
                attrs["groups"] = groups
        else:
            groups, outputs = c, c * g.int(1, 3)
        columns = int(np.prod(pair(attrs["kernel"]))) * (c // groups)
        matrices = weights_and_biases(g, outputs, columns, False)
        tags = ["several for a channel"] if op != "ConvLayer" and outputs > c else []
        g.layer(op, [x], [outputs, *size], attrs | matrices, matrices.values(), tags)

    return rule


def pool(op):
    def rule(g):
        x = g.operand(image=True)
        attrs, size = window(g, x, True)
        if op == "AveragePoolLayer" and g.chance(0.5):
            attrs["countIncludePad"] = g.chance(0.7)
        g.layer(op, [x], [g.shapes[x][1], *size], attrs)

    return rule


def global_pool(op):
    def rule(g):
        x = g.operand(image=True)
        g.layer(op, [x], [g.shapes[x][1], 1, 1])

    return rule


def batch_norm(g):
    x = g.operand()
    n = g.shapes[x][1]
    made = {
        "mean": g.random.normal(0, 0.5, n),
        "variance": g.random.uniform(0.2, 2, n),
        "scale": g.random.normal(1, 0.3, n),
        "offset": g.random.normal(0, 0.3, n),
    }
    attrs, defaults = {}, {"scale": 1.0, "offset": 0.0}
    for key, values in made.items():
        if key in defaults and g.chance(0.4):
            made[key] = g.weight(np.full(n, defaults[key], np.float32))
        else:
            made[key] = attrs[key] = g.matrix(values)
    if g.chance(0.5):
        attrs["epsilon"] = g.among([1e-3, 0.1, 0])
    g.layer(
        "BatchNormLayer",
        [x],
        g.shapes[x][1:],
        attrs,
        [made[k] for k in ("scale", "offset", "mean", "variance")],
    )


def scale(g):
    x = g.operand()
    each = g.chance(0.5)
    n = g.size(x) if each else g.shapes[x][1]
    keys = g.among([["scale"], ["offset"], ["scale", "offset"]])
    attrs = {k: g.matrix(g.random.normal(k == "scale", 0.5, n)) for k in keys}
    both = [
        attrs.get(k) or g.weight(np.full(n, k == "scale", np.float32)) for k in ("scale", "offset")
    ]
    g.layer("ScaleLayer", [x], g.shapes[x][1:], attrs, both, ["each value" if each else "channels"])


def prelu(g):
    x = g.operand()
    each = g.chance(0.5)
    slopes = g.matrix(g.random.normal(0.2, 0.3, g.size(x) if each else g.shapes[x][1]))
    g.layer(
        "PReLULayer",
        [x],
        g.shapes[x][1:],
        {"slopes": slopes},
        [slopes],
        ["each value" if each else "channels"],
    )


def two(op):
    def rule(g):
        x = g.operand()
        c, h, w = g.shapes[x][1:]
        channels = h * w > 1 and g.chance(0.5)
        dims = [c, 1, 1] if channels else [c, h, w]
        if op == "DivideLayer":
            # The divisor is far from 0.
            y = g.layer("GlobalMaxPoolLayer", [x], dims) if channels else x
            y = g.layer("SigmoidLayer", [y], dims)
            attrs = {"offset": g.matrix(np.full(c, 0.5))}
            y = g.layer(
                "ScaleLayer",
                [y],
                dims,
                attrs,
                [g.weight(np.ones(c, np.float32)), attrs["offset"]],
                ["channels"],
            )
        else:
            same = sorted(n for n in g.live - set(g.inputs) if g.shapes[n][1:] == dims and n != x)
            if same and g.chance(0.7):
                y = g.among(same)
            elif channels:
                y = g.layer("GlobalAveragePoolLayer", [x], dims)
            else:
                y = x if g.chance(0.2) else g.layer("TanhLayer", [x], dims)
        g.layer(op, [x, y], [c, h, w], tags=["channels" if channels else "each value"])

    return rule


def concat(g):
    x = g.operand()
    axis = g.among(AXES)
    a = AXES.index(axis) + 1
    fits = lambda n: all(i == a or d == e for i, (d, e) in enumerate(zip(g.shapes[n], g.shapes[x])))
    others = sorted(n for n in g.live - set(g.inputs) if fits(n))
    parts = [x, *[g.among(others) for _ in range(g.int(1, 3))]]
    g.random.shuffle(parts)
    shape = list(g.shapes[x])
    shape[a] = sum(g.shapes[p][a] for p in parts)
    g.layer(
        "ConcatLayer",
        parts,
        shape[1:],
        {} if a == 1 and g.chance(0.5) else {"axis": axis},
        tags=[f"{len(parts)} inputs"],
    )


def flatten(g):
    x = g.operand()
    g.layer("FlattenLayer", [x], [g.size(x), 1, 1])


def reshape(g):
    x = g.operand()
    n = g.size(x)
    dims = factors(g, n) if g.chance(0.7) else [n, 1, 1]
    way = g.among([n, [n]]) if dims[1:] == [1, 1] and g.chance(0.7) else dims
    g.layer("ReshapeLayer", [x], dims, {"shape": way})


def transpose(g):
    x = g.operand(image=True if g.chance(0.8) else None)
    order = [int(i) for i in g.random.permutation(3)]
    g.layer(
        "TransposeLayer",
        [x],
        [g.shapes[x][1 + i] for i in order],
        {"axes": [AXES[i] for i in order]},
        tags=[str(order)],
    )


def pad(g):
    x = g.operand(image=True if g.chance(0.8) else None)
    attrs = {"pad": drawn_border(g, 2)}
    if g.chance(0.6):
        attrs["value"] = round(float(g.random.normal()), 3)
    top, left, bottom, right = sides(attrs["pad"])
    c, h, w = g.shapes[x][1:]
    g.layer("PadLayer", [x], [c, h + top + bottom, w + left + right], attrs)


def element_wise(op):
    def rule(g):
        x = g.operand()
        number = lambda mean, spread=0.5: round(float(g.random.normal(mean, spread)), 4)
        attrs = {}
        if op == "LeakyReLULayer":
            attrs = {"slope": number(0.1)}
        if op == "ELULayer" and g.chance(0.6):
            attrs = {"alpha": abs(number(1.0)) + 0.01}
        if op == "GELULayer" and g.chance(0.7):
            attrs = {"approximate": g.among(["none", "tanh"])}
        if op == "HardSigmoidLayer":
            attrs = {"alpha": g.among([0.2, 1 / 6, 0.35]), "beta": g.among([0.5, 0.3])}
        if op == "ClipLayer":
            attrs = {"low": number(-0.8, 0.2), "high": number(0.8, 0.2)}
            if g.chance(0.5):
                attrs.pop(g.among(["low", "high"]))
        g.layer(op, [x], g.shapes[x][1:], attrs)

    return rule


def softmax(g):
    x = g.operand(image=False)
    g.layer("SoftmaxLayer", [x], g.shapes[x][1:])


FUNCTIONS = [
    "ReLULayer",
    "SigmoidLayer",
    "TanhLayer",
    "ReLU6Layer",
    "SELULayer",
    "HardSwishLayer",
    "SiLULayer",
    "MishLayer",
    "SoftplusLayer",
    "LeakyReLULayer",
    "ELULayer",
    "ClipLayer",
    "GELULayer",
    "HardSigmoidLayer",
]
TWO = ["AddLayer", "SubtractLayer", "MultiplyLayer", "DivideLayer"]
WITH_FILES = [
    "AffineLayer",
    "ConvLayer",
    "DepthwiseConvLayer",
    "BatchNormLayer",
    "ScaleLayer",
    "PReLULayer",
]
RULES = {
    "AffineLayer": affine,
    "AffineLayer again": affine,
    "ConvLayer": convolution("ConvLayer"),
    "ConvLayer again": convolution("ConvLayer"),
    "DepthwiseConvLayer": convolution("DepthwiseConvLayer"),
    "MaxPoolLayer": pool("MaxPoolLayer"),
    "AveragePoolLayer": pool("AveragePoolLayer"),
    "GlobalMaxPoolLayer": global_pool("GlobalMaxPoolLayer"),
    "GlobalAveragePoolLayer": global_pool("GlobalAveragePoolLayer"),
    "BatchNormLayer": batch_norm,
    "ScaleLayer": scale,
    "PReLULayer": prelu,
    "ConcatLayer": concat,
    "FlattenLayer": flatten,
    "ReshapeLayer": reshape,
    "TransposeLayer": transpose,
    "PadLayer": pad,
    "SoftmaxLayer": softmax,
    **{op: two(op) for op in TWO},
    **{op: element_wise(op) for op in FUNCTIONS},
}


PROMISED = """
1 3, AffineLayer: weights, biases
3, ConvLayer DepthwiseConvLayer: WINDOW, weights, biases
3, ConvLayer: groups
3, DepthwiseConvLayer: several for a channel
3, MaxPoolLayer AveragePoolLayer: WINDOW, ceil True, ceil False
3, AveragePoolLayer: countIncludePad True, countIncludePad False
3, GlobalMaxPoolLayer GlobalAveragePoolLayer: -
1 3, BatchNormLayer: mean, variance, scale, offset, epsilon
1 3, ScaleLayer: scale, offset, each value, channels
1 3, PReLULayer: slopes, each value, channels
1 3, ConcatLayer: axis channels, axis rows, axis columns, 2 inputs, 3 inputs, 4 inputs
1 3, FlattenLayer: -
1 3, ReshapeLayer: shape number, shape 1, shape 3
1 3, TransposeLayer: axes
1 3, PadLayer: pad number, pad 2, pad 4, value
1 3, ReLULayer SigmoidLayer TanhLayer ReLU6Layer SELULayer HardSwishLayer ELULayer GELULayer: -
1 3, SiLULayer MishLayer SoftplusLayer: -
1 3, LeakyReLULayer: slope
1 3, ELULayer: alpha
1 3, ClipLayer: low, high
1 3, GELULayer: approximate none, approximate tanh
1 3, HardSigmoidLayer: alpha, beta
1 3, AddLayer SubtractLayer MultiplyLayer DivideLayer: each value
3, AddLayer SubtractLayer MultiplyLayer DivideLayer: channels
1, SoftmaxLayer: -
1 3, input: scale number, scale values, offset number, offset values, mean number, mean values
1 3, input: std number, std values, order chw, order hwc, one of several
3, input: scale channels, offset channels, mean channels, std channels
-, output: classes scores, classes class, classes label, classes probs
-, output: binary scores, binary class, binary label, binary probs
-, output: multilabel scores, multilabel class, multilabel label, multilabel probs
-, output: values scores, kind left out, threshold, several, labels, features
-, output: activation softmax, activation sigmoid, activation none
-, output: ends in SoftmaxLayer, ends in SigmoidLayer, ends in TanhLayer
-, output: check csv, check npy, check f32
"""
"""The ranks, the layers and their tags that model/README.md promises."""


def promised():
    """The entries of the table that must not be empty."""
    window = "kernel number, kernel 2, stride number, stride 2, dilation number, dilation 2"
    text = PROMISED.replace("WINDOW", f"{window}, pad number, pad 2, pad 4")
    wanted = []
    for line in text.strip().splitlines():
        ranks, ops, tags = re.fullmatch("(.*?), (.*?): (.*)", line).groups()
        ranks = [int(r) if r.isdigit() else "" for r in ranks.split()]
        for op in ops.split():
            wanted += [(op, tag, r, "float32") for tag in tags.split(", ") for r in ranks]
    return wanted + [(op, "type", "", t) for op in WITH_FILES for t in TYPES]


# Drawing.


def drawn_inputs(g, all_dims):
    """The inputs, each with its part of the scaling."""
    sizes = [int(np.prod(dims)) for dims in all_dims]
    total, several, (c, h, w) = sum(sizes), len(sizes) > 1, all_dims[0]
    factor, summand, given, ways = np.ones(total), np.zeros(total), {}, {}
    for key in g.scaling:
        channels = h * w > 1 and c > 1 and not several
        ways[key] = way = g.among(["number", "values"] + ["channels"] * channels)
        count = {"number": 1, "values": total, "channels": c}[way]
        unit = g.among([1 / 255, 0.5, 3.0, 40.0])
        if key in ("scale", "std"):
            given[key] = g.random.uniform(0.5, 1.5, count) * unit
        else:
            given[key] = g.random.normal(0, g.among([1, 1, 300]), count)
        channel = np.arange(total) % c if g.hwc else np.arange(total) // (h * w)
        wide = given[key][channel] if way == "channels" else np.broadcast_to(given[key], total)
        if key == "scale":
            factor = wide
        elif key == "std":
            factor, summand = 1 / wide, summand / wide
        else:
            summand = wide if key == "offset" else -wide
    first = 0
    for n, dims in zip(sizes, all_dims):
        part = slice(first, first + n)
        attrs = {
            "number": lambda v: float(v[0]),
            "values": lambda v: v[part].tolist(),
            "channels": lambda v: v.tolist(),
        }
        attrs = {k: attrs[ways[k]](v) for k, v in given.items()}
        tags = [f"{key} {way}" for key, way in ways.items()]
        if several:
            tags.append("one of several")
        elif g.ordered:
            tags.append(f"order {'hwc' if g.hwc else 'chw'}")
        name, raw = g.name("input"), g.input([n], "float32")
        node = Node("input", [raw, g.weight(factor[part]), g.weight(summand[part])], [name], attrs)
        g.nodes.append(node)
        g.shapes[name], g.kinds[name] = [BATCH, *dims], "float32"
        g.live.add(name)
        if g.chance(0.5):
            g.listed.add(name)
        g.hit(node, tags, rank(g, name), "float32")
        first += n


def draw(random, aims=()):
    """A network, or `Unfit`."""
    g = JsonGraph(random)
    several, many = g.among([1, 1, 1, 2, 3]), g.chance(0.5)
    g.scaling = g.among(
        [(), ("scale",), ("offset",), ("scale", "offset"), ("mean",), ("std",), ("mean", "std")]
    )
    g.ordered = several == 1 and g.chance(0.5)
    g.hwc = g.ordered and g.chance(0.6)
    all_dims = []
    while len(all_dims) < several:
        dims = [g.int(1, 40), 1, 1] if g.chance(0.35) else [g.int(1, 6), g.int(1, 9), g.int(1, 9)]
        if np.prod(dims) <= 200:
            all_dims.append(dims)
    drawn_inputs(g, all_dims)
    # A softmax within the network goes with the key `outputs` alone.
    names = [n for n in RULES if many or n != "SoftmaxLayer"]
    wanted, failures = g.int(2, 8), 0
    while wanted:
        before = (list(g.nodes), dict(g.shapes), dict(g.kinds), set(g.live), dict(g.weights))
        try:
            RULES[g.among(names)](g)
            wanted -= 1
        except Unfit:
            g.nodes, g.shapes, g.kinds, g.live, g.weights = before
            failures += 1
            if failures > 100:
                raise
    layers = [n.outputs[0] for n in g.nodes if n.op != "input"]
    g.outputs = [n for n in layers if not g.readers(n)]
    if many:
        inside = [n for n in layers if g.readers(n)]
        if inside and (len(g.outputs) == 1 or g.chance(0.3)):
            g.outputs.append(g.among(inside))
        g.random.shuffle(g.outputs)
        g = g.cut(g.outputs)
        if len(g.outputs) == 1:
            raise Unfit
        meaning(g, "values", ["several"])
    else:
        g = g.cut(g.outputs[-1:])
        one_output(g)
    # A network without weights is refused.
    if not any(n.op in ("AffineLayer", "ConvLayer", "DepthwiseConvLayer") for n in g.nodes):
        raise Unfit
    if g.chance(0.3):
        g.keys["features"] = [f"feature {i}" for i in range(sum(g.size(n) for n in g.inputs))]
    if g.chance(0.2):
        g.keys["name"] = "a network"
    if g.chance(0.2):
        g.check = g.among(TYPES)
    of_output(g, [*["features"] * ("features" in g.keys), *[f"check {g.check}"] * bool(g.check)])
    return g


def of_output(g, tags):
    """Notes what a network says beside its layers."""
    g.nodes[-1].hits += [("output", tag, "", "float32") for tag in tags]


def meaning(g, kind, tags, **more):
    """Says what the output means: the key `output`, which may be left out."""
    left_out = kind is None or kind == "values" and len(g.outputs) > 1 and g.chance(0.5)
    if not left_out:
        g.keys["output"] = {"kind": kind} | more
    of_output(g, [*tags, *["kind left out"] * left_out])


def one_output(g):
    """The end of a network with one output, and the form of its answers."""
    last = g.outputs[0]
    if rank(g, last) == 3:
        return meaning(g, "values", ["values scores"])
    n = g.size(last)
    kind = g.among(
        ["classes", "classes", "multilabel", "values"] if n > 1 else ["binary", "binary", "values"]
    )
    if kind == "values":
        return meaning(g, kind, ["values scores"])
    ends = {"classes": ["SoftmaxLayer", "SigmoidLayer", "TanhLayer"]}.get(kind, ["SigmoidLayer"])
    if g.chance(0.5):
        last = g.layer(g.among(ends), [last], g.shapes[last][1:])
        g.outputs = [last]
    node, more, tags = g.nodes[-1], {}, []
    if node.op == "TanhLayer" and kind != "classes":
        # The documents do not say what the probability of a tanh is.
        raise Unfit
    function = ACTIVATIONS.get(node.op, "none" if node.op == "TanhLayer" else None)
    if node.op in FINAL:
        g.before = node.inputs[0]
        tags.append(f"ends in {node.op}")
    else:
        function = "softmax" if kind == "classes" else "sigmoid"
        if g.chance(0.5):
            function = g.among(["softmax"] * (kind == "classes") + ["sigmoid", "none"])
            more["activation"] = function
            tags.append(f"activation {function}")
    g.scores = g.before or g.outputs[0]
    if is_input(g, g.scores):
        raise Unfit
    options = ["scores", "class", "label"] + (["probs"] if function != "none" else [])
    g.option = g.among(options)
    tags.append(f"{kind} {g.option}")
    if kind in ("binary", "multilabel"):
        t = 0.5
        if g.chance(0.5):
            more["threshold"] = t = round(float(g.random.uniform(0.1, 0.9)), 2)
            tags.append("threshold")
        g.threshold = t if function == "none" else math.log(t / (1 - t))
    if g.option == "label" or g.chance(0.2):
        names = ["on", "off"] if kind == "binary" else [f"class {i}" for i in range(n)]
        g.labels = [str(name) for name in g.random.permutation(names)]
        g.keys["labels"] = g.labels
        tags.append("labels")
    if g.option == "probs" and node.op not in FINAL:
        # The program's function behind the layers, as a node for the judge alone.
        op = {v: k for k, v in ACTIVATIONS.items()}[function]
        g.beyond.add(g.layer(op, [g.scores], g.shapes[g.scores][1:]))
    if g.option == "probs":
        g.scores, g.both = g.nodes[-1].outputs[0], kind == "binary"
    if g.option in ("class", "label"):
        g.answer = {"classes": "class", "multilabel": "flags"}.get(kind, kind)
    plain = not more and (kind == "classes" or kind == "binary" and node.op == "SigmoidLayer")
    meaning(g, None if plain and g.chance(0.5) else kind, tags, **more)


def is_input(g, name):
    return any(n.op == "input" and name in n.outputs for n in g.nodes)


# Writing.


def matrix_file(array, data_type):
    """The bytes of a matrix's data."""
    if data_type == "csv":
        return "".join(",".join(repr(float(v)) for v in row) + "\n" for row in array).encode()
    if data_type == "npy":
        data = io.BytesIO()
        np.save(data, array.astype("<f4"))
        return data.getvalue()
    return array.astype("<f4").tobytes()


def scaling(g, nodes):
    """The keys that scale. `nodes`: those of the inputs, None for an input that has none."""
    said = {}
    for key in g.scaling if any(nodes) else ():
        values = [node.attrs[key] if node else float(key in ("scale", "std")) for node in nodes]
        if all(v == values[0] for v in values):
            said[key] = values[0]
            continue
        wide = [v if isinstance(v, list) else [v] * g.size(raw) for v, raw in zip(values, g.inputs)]
        if [len(v) for v in wide] != [g.size(raw) for raw in g.inputs]:
            raise Unfit
        said[key] = [v for part in wide for v in part]
    return said


def written(g):
    """The files by their names, network.json first."""
    files, definition = {"network.json": b""}, {"layers": [], "size": 0} | g.keys | g.settings
    read = {n.inputs[0]: n for n in g.nodes if n.op == "input"}
    nodes = [read.get(raw) for raw in g.inputs]
    values = [node.outputs[0] if node else raw for node, raw in zip(nodes, g.inputs)]
    layers = [n for n in g.nodes if n.op != "input" and n.outputs[0] not in g.beyond]
    dims = [g.shapes[v][1:] for v in values]
    of_vector = lambda v, n: [n] if v in g.listed else n
    shapes = [d if d[1:] != [1, 1] else of_vector(v, d[0]) for v, d in zip(values, dims)]
    said = scaling(g, nodes)
    if len(values) > 1:
        if g.hwc:
            raise Unfit
        called, before = {v: v for v in values}, None
        definition["inputs"] = [{"name": v, "shape": shape} for v, shape in zip(values, shapes)]
    else:
        called, before = {values[0]: "input"}, values[0]
        if g.ordered and nodes[0]:
            said["order"] = "hwc" if g.hwc else "chw"
        # The weights of a first AffineLayer say how long a vector is.
        if not (layers[0].op == "AffineLayer" and dims[0][1:] == [1, 1] and g.shapeless):
            said["shape"] = shapes[0]
    if said:
        definition["input"] = said
    for node in layers:
        name, (x, *others) = node.outputs[0], [i for i in node.inputs if i in g.live]
        layer = {"layer": node.op}
        called[name] = f"layers[{len(definition['layers'])}]" if name in g.nameless else name
        if name not in g.nameless:
            layer["name"] = name
        if node.op in TWO or node.op == "ConcatLayer":
            layer["inputs"] = [called[i] for i in (x, *others)]
        elif x != before or name in g.explicit:
            layer["input"] = called[x]
        for key, value in node.attrs.items():
            if isinstance(value, str) and value in g.weights:
                array, kind = g.weights[value], g.types[value]
                files[f"matrices/{value}.{kind}"] = matrix_file(array, kind)
                matrix = {
                    "rows": len(array),
                    "cols": array.shape[1],
                    "data_type": kind,
                    "file": f"{value}.{kind}",
                }
                value = f"matrices/{value}.json"
                files[value] = json.dumps(matrix).encode()
            layer[key] = value
        definition["layers"].append(layer)
        before = name
    definition["size"] = len(layers)
    if len(g.outputs) > 1:
        definition["outputs"] = [called[name] for name in g.outputs]
    if g.check:
        feeds = records(g, 4, np.random.default_rng(1))
        of_values = Judge(g).values(feeds)
        for key, names in (("inputs", g.inputs), ("scores", [g.before] if g.before else g.outputs)):
            array = np.concatenate([of_values[n].reshape(4, -1) for n in names], 1)
            files[f"{key}.{g.check}"] = matrix_file(array.astype(np.float32), g.check)
        definition["check"] = {key: f"{key}.{g.check}" for key in ("inputs", "scores")}
    files["network.json"] = json.dumps(definition, indent=1).encode()
    return files


def records(g, count, random):
    """Raw numbers that the scaling maps to a normal distribution."""
    found = {}
    for node in (n for n in g.nodes if n.op == "input"):
        raw, factor, summand = node.inputs
        x = random.normal(0, 1, (count, g.size(raw)))
        x[random.random(x.shape) < 0.05] = 0
        found[raw] = ((x - g.weights[summand]) / g.weights[factor]).astype(np.float32)
    return found


# Judging.


def windows(x, attrs, pool, filler):
    """The row, the column and the values of each window."""
    (kh, kw), (dh, dw) = pair(attrs["kernel"]), pair(attrs.get("dilation", 1))
    sh, sw = pair(attrs.get("stride", attrs["kernel"] if pool else 1))
    top, left, bottom, right = sides(attrs.get("pad", 0))
    rows, columns = counts(attrs, x.shape[2:], pool)
    # Behind the border there is room for a last window that reaches over it.
    around = ((0, 0), (0, 0), (top, bottom + kh * dh + sh), (left, right + kw * dw + sw))
    wide = np.pad(x, around, constant_values=filler)
    for i in range(rows):
        for j in range(columns):
            y = slice(i * sh, i * sh + (kh - 1) * dh + 1, dh)
            yield i, j, wide[:, :, y, j * sw : j * sw + (kw - 1) * dw + 1 : dw]


def convolved(x, w, b, attrs, groups):
    rows, columns = counts(attrs, x.shape[2:], False)
    kh, kw = pair(attrs["kernel"])
    given, made = x.shape[1] // groups, len(w) // groups
    out = np.zeros((len(x), len(w), rows, columns))
    for i, j, patch in windows(x, attrs, False, 0.0):
        for k in range(groups):
            of_group = w[k * made : (k + 1) * made].reshape(made, kh, kw, given)
            part = patch[:, k * given : (k + 1) * given]
            out[:, k * made : (k + 1) * made, i, j] = np.einsum("ncyx,oyxc->no", part, of_group)
    return out + b


def pooled(x, attrs, mean):
    rows, columns = counts(attrs, x.shape[2:], True)
    out = np.zeros((*x.shape[:2], rows, columns))
    padded = {k: v for k, v in attrs.items() if k != "countIncludePad"}
    for i, j, patch in windows(x, padded, True, np.nan):
        out[:, :, i, j] = np.nanmean(patch, (2, 3)) if mean else np.nanmax(patch, (2, 3))
    return out


def mean_with_border(x, attrs):
    """The mean of a window with zeros for the border. Pixels behind the border do not count."""
    top, left, bottom, right = sides(attrs.get("pad", 0))
    with_zeros = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
    stride = attrs.get("stride", attrs["kernel"])
    return pooled(with_zeros, {**attrs, "pad": 0, "stride": stride}, True)


def phi(x):
    """The distribution function of the normal distribution."""
    return 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def gelu(x, approximate):
    if approximate == "tanh":
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return x * phi(x)


def elu(x, alpha):
    return np.where(x > 0, x, alpha * (np.exp(np.minimum(x, 0)) - 1))


def softmaxed(x):
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def each(array, x):
    """A list with a number for each channel, or for each value."""
    channels = x.shape[1]
    return array.reshape(x.shape[1:]) if array.size == x[0].size else array.reshape(channels, 1, 1)


def computed(op, x, others, arrays, attrs, shape):
    """The result of a layer for its first input, its other inputs and its matrices."""
    n = len(x)
    if op == "AffineLayer":
        w, b = arrays
        return np.einsum("oi,ni->no", w, x.reshape(n, -1)).reshape(n, -1, 1, 1) + b.reshape(
            -1, 1, 1
        )
    if op in ("ConvLayer", "DepthwiseConvLayer"):
        w, *b = arrays
        groups = x.shape[1] if op == "DepthwiseConvLayer" else attrs.get("groups", 1)
        return convolved(x, w, b[0].reshape(-1, 1, 1) if b else 0.0, attrs, groups)
    if op == "BatchNormLayer":
        factor, offset, mean, variance = (a.reshape(-1, 1, 1) for a in arrays)
        return (x - mean) / np.sqrt(variance + attrs.get("epsilon", 1e-5)) * factor + offset
    if op == "ScaleLayer":
        return x * each(arrays[0], x) + each(arrays[1], x)
    if op == "PReLULayer":
        return np.where(x > 0, x, each(arrays[0], x) * x)
    if op == "TransposeLayer":
        return x.transpose(0, *[1 + AXES.index(a) for a in attrs["axes"]])
    if op == "ConcatLayer":
        return np.concatenate([x, *others], 1 + AXES.index(attrs.get("axis", "channels")))
    if op == "PadLayer":
        top, left, bottom, right = sides(attrs["pad"])
        return np.pad(
            x,
            ((0, 0), (0, 0), (top, bottom), (left, right)),
            constant_values=attrs.get("value", 0.0),
        )
    if op == "AveragePoolLayer" and attrs.get("countIncludePad"):
        return mean_with_border(x, attrs)
    return {
        "MaxPoolLayer": lambda: pooled(x, attrs, False),
        "AveragePoolLayer": lambda: pooled(x, attrs, True),
        "GlobalMaxPoolLayer": lambda: x.max((2, 3), keepdims=True),
        "GlobalAveragePoolLayer": lambda: x.mean((2, 3), keepdims=True),
        "AddLayer": lambda: x + others[0],
        "SubtractLayer": lambda: x - others[0],
        "MultiplyLayer": lambda: x * others[0],
        "DivideLayer": lambda: x / others[0],
        "FlattenLayer": lambda: x.reshape(n, -1, 1, 1),
        "ReshapeLayer": lambda: x.reshape(n, *shape),
        "ReLULayer": lambda: np.maximum(x, 0),
        "SigmoidLayer": lambda: 1 / (1 + np.exp(-x)),
        "TanhLayer": lambda: np.tanh(x),
        "ReLU6Layer": lambda: np.clip(x, 0, 6),
        # α and γ of Klambauer et al., Self-Normalizing Neural Networks, 2017.
        "SELULayer": lambda: 1.0507009873554805 * elu(x, 1.6732632423543772),
        "HardSwishLayer": lambda: x * np.clip(x + 3, 0, 6) / 6,
        "SiLULayer": lambda: x / (1 + np.exp(-x)),
        "MishLayer": lambda: x * np.tanh(np.logaddexp(0, x)),
        "SoftplusLayer": lambda: np.logaddexp(0, x),
        "LeakyReLULayer": lambda: np.where(x > 0, x, attrs["slope"] * x),
        "ELULayer": lambda: elu(x, attrs.get("alpha", 1.0)),
        "ClipLayer": lambda: np.clip(x, attrs.get("low", -np.inf), attrs.get("high", np.inf)),
        "GELULayer": lambda: gelu(x, attrs.get("approximate", "none")),
        "HardSigmoidLayer": lambda: np.clip(attrs["alpha"] * x + attrs["beta"], 0, 1),
        "SoftmaxLayer": lambda: softmaxed(x),
    }[op]()


def placed(x, shape, hwc):
    """A scaled record as an image."""
    c, h, w = shape
    return x.reshape(-1, h, w, c).transpose(0, 3, 1, 2) if hwc else x.reshape(-1, c, h, w)


class Judge:
    reference = False

    def __init__(self, g):
        self.g, self.stored = g, set(g.weights)
        self.constants = {n: w.astype(np.float64) for n, w in g.weights.items()}

    def values(self, feeds):
        g = self.g
        found = {name: feeds[name].astype(np.float64) for name in g.inputs}
        for node in g.nodes:
            x, *others = [found[i] for i in node.inputs if i in g.live]
            arrays, name = (
                [self.constants[i] for i in node.inputs if i in self.constants],
                node.outputs[0],
            )
            if node.op == "input":
                found[name] = placed(x * arrays[0] + arrays[1], g.shapes[name][1:], g.hwc)
            else:
                found[name] = computed(node.op, x, others, arrays, node.attrs, g.shapes[name][1:])
        return found
