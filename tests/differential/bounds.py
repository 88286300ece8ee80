"""How far a right answer may be from the judge's.

Each value of a record has a bound on its error, carried from node to node as in a running error
analysis. A node makes errors larger by its Lipschitz constant in the maximum norm, and adds its own
rounding: u times the number of terms times the largest magnitude that it adds up, with u = 2^-23.
The magnitudes are those of this record, from the judge. Both sides round in float32 and may sum in
any order, so that twice the bound is allowed, and 1e-7 for values near 0. Functions (exp, tanh and
the like) may be off by 16 u. A quantised tensor adds one step of its integers: the interpreter
rounds to them, mortonnet does not.
"""

import numpy as np

import onnx_bounds
import onnx_integers
from onnx_bounds import FUNCTION, NOTHING, U, View, jumps

FOLDED = 2e-5
"""The error of a scaled value of size 1 where the first layer's weights do the scaling."""
MOVES = {
    "Identity",
    "Dropout",
    "Reshape",
    "Transpose",
    "Squeeze",
    "Unsqueeze",
    "Flatten",
    "Slice",
    "Gather",
    "Split",
    "Pad",
    "Concat",
    "Cast",
    "MaxPool",
    "ReduceMax",
    "Max",
    "Min",
    "Clip",
    "Relu",
    "Neg",
    "GlobalMaxPool",
    "ArrayFeatureExtractor",
    "ZipMap",
    "Shape",
    "ArgMax",
    "Binarizer",
    "LabelEncoder",
    "Not",
    "And",
    "Or",
    "Xor",
    "Expand",
    "Tile",
    "Trilu",
    "ReduceMin",
    "DepthToSpace",
    "SpaceToDepth",
    "Abs",
    "GatherElements",
    "GatherND",
    "Scatter",
    "ScatterElements",
    "ScatterND",
    "Compress",
    "CenterCropPad",
}
LIKE = {
    "CONV_2D": "Conv",
    "DEPTHWISE_CONV_2D": "Conv",
    "FULLY_CONNECTED": "Conv",
    "AVERAGE_POOL_2D": "AveragePool",
    "MAX_POOL_2D": "MaxPool",
    "MEAN": "ReduceMean",
    "SUM": "ReduceSum",
    "REDUCE_MAX": "ReduceMax",
    "ADD": "Add",
    "SUB": "Sub",
    "MUL": "Mul",
    "DIV": "Div",
    "MAXIMUM": "Max",
    "MINIMUM": "Min",
    "PRELU": "PRelu",
    "LEAKY_RELU": "LeakyRelu",
    "ELU": "Elu",
    "GELU": "Gelu",
    "HARD_SWISH": "HardSwish",
    "LOGISTIC": "Sigmoid",
    "TANH": "Tanh",
    "SOFTMAX": "Softmax",
    "LOG_SOFTMAX": "LogSoftmax",
    "AffineLayer": "Conv",
    "ConvLayer": "Conv",
    "DepthwiseConvLayer": "Conv",
    "BatchNormLayer": "BatchNormalization",
    "MaxPoolLayer": "MaxPool",
    "AveragePoolLayer": "AveragePool",
    "GlobalMaxPoolLayer": "MaxPool",
    "GlobalAveragePoolLayer": "AveragePool",
    "PReLULayer": "PRelu",
    "LeakyReLULayer": "LeakyRelu",
    "ELULayer": "Elu",
    "SELULayer": "Selu",
    "GELULayer": "Gelu",
    "HardSigmoidLayer": "HardSigmoid",
    "HardSwishLayer": "HardSwish",
    "SiLULayer": "Swish",
    "MishLayer": "Mish",
    "SoftplusLayer": "Softplus",
    "SigmoidLayer": "Sigmoid",
    "TanhLayer": "Tanh",
    "SoftmaxLayer": "Softmax",
    "AddLayer": "Add",
    "SubtractLayer": "Sub",
    "MultiplyLayer": "Mul",
    "DivideLayer": "Div",
    "ConcatLayer": "Concat",
    "FlattenLayer": "Reshape",
    "ReshapeLayer": "Reshape",
    "TransposeLayer": "Transpose",
    "PadLayer": "Pad",
    "ReLULayer": "Relu",
    "ReLU6Layer": "Clip",
    "ClipLayer": "Clip",
}
"""The operations of ONNX whose errors those of TensorFlow Lite, and the layers of the network JSON,
have. Other operations of TensorFlow Lite move values, or cut them off."""
SUMS = {
    "ReduceMean",
    "ReduceSum",
    "GlobalAveragePool",
    "AveragePool",
    "ReduceL1",
    "MeanVarianceNormalization",
    "LayerNormalization",
    "InstanceNormalization",
    "GroupNormalization",
    "MEAN",
    "SUM",
    "AVERAGE_POOL_2D",
    "Gelu",
    "DFT",
    "STFT",
    "Einsum",
}
"""Operations that add up numbers of both signs without weights, or double a number on their way."""
FUNCTIONS = {
    "Sigmoid": 0.25,
    "Tanh": 1.0,
    "Gelu": 1.2,
    "HardSwish": 1.5,
    "Swish": 1.1,
    "Mish": 1.1,
    "Softplus": 1.0,
    "HardSigmoid": 1.0,
    "Elu": 1.0,
    "Selu": 1.0,
    "Erf": 1.2,
    "Sin": 1.0,
    "Cos": 1.0,
    "Softsign": 1.0,
    "Celu": 1.0,
}
NORMALISATIONS = {
    "LayerNormalization",
    "RMSNormalization",
    "InstanceNormalization",
    "GroupNormalization",
    "MeanVarianceNormalization",
}


def most(values):
    """The largest magnitude of each record."""
    v = np.abs(np.asarray(values, np.float64))
    return v.reshape(len(v), -1).max(1) if v.size else np.zeros(len(v))


def bounds(graph, values, constants, stored):
    """The bound for each record of every live tensor. `constants` has the values of all others."""
    errors, sizes = {}, {}
    records = len(next(iter(values.values())))

    def largest(name):
        if name not in sizes:
            v = values.get(name)
            if v is None:
                # Minus infinity leaves out an element, and is no magnitude.
                c = constants[name].astype(np.float64)
                sizes[name] = float(np.abs(c[~np.isneginf(c)]).max(initial=0))
            else:
                sizes[name] = most(np.where(np.isneginf(v), 0, v) if name in graph.masked else v)
        return sizes[name]

    def error(name):
        if name in errors:
            return errors[name]
        # Constants that are computed are rounded in their own order.
        return 0.0 if name in stored else 8 * U * largest(name)

    def step(name):
        """One step of a quantised tensor's integers."""
        return float(np.max(graph.scales[name][0])) if name in graph.scales else 0.0

    for name in graph.inputs:
        errors[name] = np.zeros(records) + step(name)
    for node in graph.nodes:
        if not any(i in graph.live for i in node.inputs) or node.outputs[0] in graph.sizes:
            continue
        own = one(node, graph, largest, error, constants, values)
        for name in node.outputs:
            if name:
                bound = own[name] if isinstance(own, dict) else own
                errors[name] = bound + step(name) + np.zeros(records)
    if getattr(graph, "mode", "") == "int8":
        # Integers are exact. The real numbers that they stand for are rounded once.
        errors |= {name: 2 * U * largest(name) + np.zeros(records) for name in graph.outputs}
    return errors


def gain_of_rows(w):
    """The largest sum of magnitudes of a row, and the terms of one."""
    w = np.abs(w.astype(np.float64)).reshape(len(w), -1)
    return w.sum(1).max(), w.shape[1]


def one(node, graph, largest, error, constants, values):
    op, attrs = node.op, node.attrs
    inputs = [i for i in node.inputs if i and i not in graph.sizes]
    op = LIKE.get(op, "Identity" if op.isupper() and op not in ("LRN", "DFT", "STFT") else op)
    live = [i for i in inputs if i in graph.live]
    x = live[0]
    if op == "CastLike":
        to = {"bool": 9, "int32": 6, "int64": 7}.get(graph.kinds[node.outputs[0]], 1)
        op, attrs, inputs = "Cast", {"to": to}, [x]
    m, e = largest(x), error(x)
    out = largest(node.outputs[0]) if node.outputs[0] in values else m
    fixed = [constants[i] for i in inputs if i in constants]
    if op == "Conv" and graph.kinds[x] == "float32" and graph.kinds[inputs[1]] == "int8":
        # Values are rounded to 8 bits, and an error may round one to the next integer. LiteRT's own
        # kernel, which computes depthwise convolutions, has another scale in the last digit.
        exact = np.max(e) == 0 and node.op != "DEPTHWISE_CONV_2D"
        e = e + (4 * U * m if exact else m / 127)

    def linear(gain, terms, bias=0.0, bias_error=0.0):
        return gain * e + U * (terms + 4) * (gain * m + np.abs(bias)) + bias_error

    array = lambda name: np.asarray(values.get(name, constants.get(name)), np.float64)
    rules = onnx_bounds.RULES | onnx_integers.BOUNDS
    if op in rules:
        return rules[op](View(node, graph, inputs, x, m, e, out, largest, error, array))
    if op == "Pow" and inputs[1] in graph.live:
        return onnx_bounds.of_power(View(node, graph, inputs, x, m, e, out, largest, error, array))
    if op in ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"):
        a, b = inputs
        both = error(a) + error(b) + np.zeros_like(m)
        if graph.single:
            wide = lambda n: array(n) if n in graph.live else array(n)[None]
            pair = [wide(a), wide(b)]
            rank = max(p.ndim for p in pair)
            pair = [p.reshape(len(p), *[1] * (rank - p.ndim), *p.shape[1:]) for p in pair]
            return jumps(np.abs(pair[0] - pair[1]), both)
        place = graph.axis(node.outputs[0])
        front = lambda n: np.moveaxis(array(n), 0, graph.axis(n)) if n in graph.live else array(n)
        return jumps(np.moveaxis(np.abs(front(a) - front(b)), place, 0), both)
    if op in ("Floor", "Ceil", "Round"):
        half = 0.5 if op == "Round" else 0.0
        v = array(x) + half
        return jumps(np.abs(v - np.round(v)), e + np.zeros_like(m))
    if op == "Sign" or op == "Cast" and attrs.get("to") == 9:
        return jumps(np.abs(array(x)), e + np.zeros_like(m))
    if op == "Cast" and attrs.get("to") in (2, 3, 4, 5, 6, 7, 12, 13) and np.any(e):
        v = array(x)
        far = np.where(np.round(v) == 0, np.inf, np.abs(v - np.round(v)))
        return jumps(far, e + np.zeros_like(m))
    if op == "OneHot":
        return np.where(e > 0, NOTHING, 0.0)
    if op == "ThresholdedRelu":
        limit = attrs.get("alpha", 1.0)
        return e + jumps(np.abs(array(x) - limit), e + U * (abs(limit) + m) / 4)
    if op == "Shrink":
        limit, bias = attrs.get("lambd", 0.5), attrs.get("bias", 0.0)
        near = jumps(np.abs(np.abs(array(x)) - limit), e + U * (limit + m) / 4)
        return e + near + 2 * U * (m + bias)
    if op == "QuantizeLinear":
        scale = fixed[0].astype(np.float64)
        # A scale that is a power of 2 divides exactly.
        exact = np.all(np.frexp(scale)[0] == 0.5)
        least = scale.min()
        if scale.ndim:
            rank = len(graph.shapes[x])
            at = graph.axes(x).index(attrs.get("axis", 1) % rank) + 1
            scale = scale.reshape([-1 if i == at else 1 for i in range(array(x).ndim)])
        v = array(x) / scale
        half = np.abs(v - np.floor(v) - 0.5)
        return jumps(half, e / least + (0 if exact else 2 * U * most(v)))
    if op == "DequantizeLinear":
        return largest(inputs[1]) * e + 4 * U * (out + largest(inputs[1]) * 256)
    if op == "Exp":
        return out * np.expm1(np.minimum(2 * e, 1.0)) + FUNCTION * out
    if op in ("Log", "Sqrt", "Reciprocal", "Pow"):
        least = np.abs(array(x)).reshape(len(m), -1).min(1)
        p = {"Log": 0.0, "Sqrt": 0.5, "Reciprocal": -1.0}.get(op)
        if op == "Sqrt" and not np.any(e):
            return FUNCTION * out
        powers = np.unique(fixed[0].astype(np.float64)) if p is None else [p]
        each = []
        for p in powers:
            edge = np.where(p < 1, least - e, m + e)
            slope = (abs(p) or 1.0) * np.maximum(edge, 1e-30) ** (p - 1)
            free = op == "Pow" and p in (0, 1)
            each.append(abs(p) * e if free else np.where(edge <= 0, NOTHING, slope * e))
        logs = 1 + (np.abs(np.log(np.maximum(np.maximum(m, 1 / np.maximum(least, 1e-30)), 1))))
        logs = np.where(np.all(np.equal(powers, np.round(powers))), 1, np.minimum(logs, 100))
        return np.max(each, 0) + FUNCTION * (out * logs + (op == "Log"))
    if op == "Where":
        return sum(error(i) + np.zeros_like(m) for i in inputs)
    if op == "Mean":
        return sum(error(i) + U * len(inputs) * largest(i) for i in inputs)
    if op == "CumSum":
        n = max(graph.dims(x))
        return linear(n, n)
    if op in ("ReduceL1", "ReduceSumSquare", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp"):
        n = graph.size(x) / max(1, graph.size(node.outputs[0]))
        if op == "ReduceL1":
            return linear(n, n)
        if op == "ReduceSumSquare":
            return n * m * 2 * e + U * (n + 4) * n * m * m
        if op == "ReduceL2":
            return np.sqrt(n) * e + (U * (n + 4) + FUNCTION) * out
        if op == "ReduceLogSum":
            least = np.exp(array(node.outputs[0]).reshape(len(m), -1).min(1))
            return 2 * linear(n, n) / least + FUNCTION * (out + 1)
        return 2 * e + U * (n + 16) * (m + out + 1)
    if op in NORMALISATIONS:
        v, axes, kept = array(x), None, graph.axes(x)
        rank = len(graph.shapes[x])
        if op == "InstanceNormalization":
            axes = list(range(2, rank))
        elif op == "MeanVarianceNormalization":
            axes = [a % rank for a in attrs.get("axes", [0, 2, 3])]
        elif op != "GroupNormalization":
            axes = list(range(attrs.get("axis", -1) % rank, rank))
        if op == "GroupNormalization":
            v = v.reshape(len(m), attrs["num_groups"], -1)
            along = (2,)
        else:
            along = tuple(kept.index(a) + 1 for a in axes)
        n = np.prod([v.shape[a] for a in along])
        epsilon = 1e-9 if op == "MeanVarianceNormalization" else attrs.get("epsilon", 1e-5)
        if op != "RMSNormalization":
            v = v - v.mean(along, keepdims=True)
        s = np.sqrt((v * v).mean(along, keepdims=True) + epsilon)
        q = np.abs(v / s).reshape(len(m), -1).max(1)
        s = s.reshape(len(m), -1).min(1)
        own = (2 * e + U * (n + 4) * m) / s
        result = own * (1 + q) + q * (U * (n + 8) * m * m / (s * s) + FUNCTION)
        scale = largest(inputs[1]) if len(inputs) > 1 else 1.0
        bias = largest(inputs[2]) if len(inputs) > 2 else 0.0
        summand = error(inputs[2]) if len(inputs) > 2 else 0.0
        factor = error(inputs[1]) if len(inputs) > 1 else 0.0
        own = scale * result + (q + result) * factor + summand
        return own + 4 * U * (scale * q + bias)
    if op == "LRN":
        alpha, beta, bias = (
            attrs.get("alpha", 1e-4),
            attrs.get("beta", 0.75),
            attrs.get("bias", 1.0),
        )
        relative = beta * (2 * alpha * m * e + U * (attrs["size"] + 4) * alpha * m * m) / bias
        return (e + m * (relative + 2 * FUNCTION)) / min(1.0, bias) ** beta
    if op in ("Resize", "Upsample"):
        if attrs.get("mode", "nearest") == "nearest":
            return e
        gain = 4.0 if attrs["mode"] == "cubic" else 1.0
        return linear(gain, 16 + 4 * max(graph.dims(x)))
    if op == "ConvTranspose":
        groups = attrs.get("group", 1)
        w = np.abs(fixed[0].astype(np.float64))
        w = w.reshape(groups, len(w) // groups, w.shape[1], -1)
        bias = largest(inputs[2]) if len(inputs) > 2 else 0.0
        return linear(w.sum((1, 3)).max(), w.shape[1] * w.shape[3], bias)
    if op in MOVES:
        return np.max(
            [
                error(i) + np.zeros_like(m)
                for i in inputs
                if i in graph.live or constants[i].dtype.kind == "f"
            ],
            0,
        )
    if op in FUNCTIONS:
        gain = FUNCTIONS[op]
        if op in ("Elu", "Selu"):
            gain = max(1.0, attrs.get("alpha", 1.6733)) * max(1.0, attrs.get("gamma", 1.0507))
        if op == "HardSigmoid":
            gain = attrs.get("alpha", 0.2)
        return gain * e + FUNCTION * (out + gain + np.minimum(m, 10.0))
    if op in ("LeakyRelu", "PRelu"):
        slope = (
            abs(attrs.get("slope", attrs.get("alpha", 0.01)))
            if op == "LeakyRelu"
            else np.abs(fixed[0]).max(initial=0)
        )
        return max(1.0, float(slope)) * e + 2 * U * out
    if op in ("Add", "Sub", "Sum"):
        return sum(error(i) + U * len(inputs) * largest(i) for i in inputs)
    if op == "Mul":
        a, b = inputs
        return error(a) * largest(b) + error(b) * largest(a) + 4 * U * largest(a) * largest(b)
    if op == "Div":
        a, b = inputs
        d = np.abs(np.asarray(values.get(b, constants.get(b)), np.float64))
        least = d.reshape(len(d), -1).min(1) if b in graph.live else d.min()
        top = largest(a) / least
        return error(a) / least + error(b) * top / least + 4 * U * top
    if op == "BatchNormalization":
        s, b, mean, var = (f.astype(np.float64) for f in fixed)
        f = s / np.sqrt(var + attrs.get("epsilon", 1e-5))
        return linear(np.abs(f).max(), 4, np.abs(b).max() + np.abs(mean * f).max())
    if op == "Scaler":
        f = np.abs(np.asarray(attrs.get("scale", [1.0]), np.float64))
        return linear(f.max(), 4, np.max(f * np.abs(attrs.get("offset", [0.0]))))
    if op == "ScaleLayer":
        return linear(largest(inputs[1]), 4, largest(inputs[2]))
    if op == "input":
        # The scaling of a record, in float64 or in the weights of the first layer. A sensor far
        # from 0 keeps its digits: weights take up a scaling only where that costs less than FOLDED.
        factor, summand = fixed
        in_weights = U * 8 * most(np.abs(factor * values[x]) + np.abs(summand))
        return np.minimum(in_weights, 4 * U * out + FOLDED * np.maximum(1.0, out))
    if op == "Conv":
        bias = largest(inputs[2]) if len(inputs) > 2 else 0.0
        w = np.moveaxis(fixed[0], -1, 0) if node.op == "DEPTHWISE_CONV_2D" else fixed[0]
        return linear(*gain_of_rows(w), bias)
    if op == "Gemm":
        w = fixed[0] if attrs.get("transB", 0) else fixed[0].T
        gain, terms = gain_of_rows(w)
        beta = abs(attrs.get("beta", 1.0))
        c = inputs[2] if len(inputs) > 2 else None
        return linear(
            gain * abs(attrs.get("alpha", 1.0)),
            terms,
            beta * largest(c) if c else 0.0,
            beta * error(c) if c else 0.0,
        )
    if op == "MatMul":
        w = fixed[0].astype(np.float64)
        if inputs[1] in constants:
            sums, terms = (
                np.abs(w).sum(-2 if w.ndim > 1 else 0),
                w.shape[-2] if w.ndim > 1 else len(w),
            )
        else:
            sums, terms = np.abs(w).sum(-1), w.shape[-1]
        return linear(np.max(sums), terms)
    if op in ("LinearRegressor", "LinearClassifier"):
        w = np.reshape(
            attrs["coefficients"], (-1, graph.shapes[x][1] if len(graph.shapes[x]) > 1 else 1)
        )
        return linear(*gain_of_rows(w), np.abs(attrs.get("intercepts", [0.0])).max()) + FUNCTION
    if op in ("AveragePool", "ReduceMean", "GlobalAveragePool"):
        return linear(1.0, graph.size(x))
    if op == "ReduceSum":
        ratio = graph.size(x) / max(1, graph.size(node.outputs[0]))
        return linear(ratio, ratio)
    if op == "Softmax":
        return attrs.get("beta", 1.0) * (e + 4 * U * m) + U * (16 + graph.size(x))
    if op == "LogSoftmax":
        return 2 * e + 8 * U * (m + out) + U * (16 + graph.size(x))
    if op == "Normalizer":
        s = np.abs(np.asarray(values[x], np.float64)).reshape(len(m), -1).sum(1)
        return 2 * e * graph.size(x) / np.maximum(s, 1e-30) + U * (16 + graph.size(x))
    raise KeyError(f"bounds.py has no rule for {op}")


def allowed(error):
    """The distance that is allowed to an answer with this bound."""
    return 2 * error + 1e-7
