"""Writes a trained scikit-learn, PyTorch or Keras network as a mortonnet model folder.

    from mortonnet import export
    export(model, "model/mine", inputs=X_test)      # then: MORTONNET_MODEL=model/mine cargo build

`model` is one of

* scikit-learn: MLPClassifier (one class of many, two classes, multilabel), MLPRegressor,
  LogisticRegression or LinearRegression, alone or as the last step of a Pipeline. A search
  (GridSearchCV and the like) stands for its best estimator. The other steps may be StandardScaler,
  MinMaxScaler, MaxAbsScaler, RobustScaler, PCA, ColumnTransformer and Pipelines of these. Scaling
  becomes the `input` key, the rest becomes part of the first layer, or a layer.
* PyTorch: Sequential of Linear, ReLU, LeakyReLU, Sigmoid, Tanh, Softmax, Flatten, Dropout,
  Identity. Any other torch.nn.Module goes through torch.onnx.export. The folder then holds
  `net.onnx`, and `net.json` with the facts that it lacks (MORTONNET_MODEL=model/mine/net.onnx).
* Keras 3 on TensorFlow: Sequential and functional models, through the TensorFlow Lite converter:
  `net.tflite`, `net.json`.

Anything else is an ExportError that names the unsupported part. The folder of scikit-learn or of a
chain of layers holds `network.json`, and a definition and a data file for each weight matrix (h ×
d: a row per output) and bias (h × 1). Both kinds of folders have golden vectors: records in raw
units, as they are piped into the program, and the framework's own scores for them. model/README.md
describes the files. The same model gives the same bytes. Needed are NumPy, the framework of the
model, and onnxscript for `net.onnx`.
"""

import copy
import io
import json
import sys
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np

KINDS = ("classes", "binary", "multilabel", "values")
DATA_TYPES = ("csv", "npy", "f32")
FINAL = ("SoftmaxLayer", "SigmoidLayer", "TanhLayer")
"""Final layers that scores leave out, except for `values`: the class does not depend on them."""

TOLERANCE = 1e-4
"""The largest error of a written network's score, times max(1, |score|), as in the build."""

VANISHED = 1e-30
"""Smaller weights are written as 0.

Weight decay leaves such weights on inputs that are always 0. No score depends on them, but float32
arithmetic is slow on them or loses them.
"""


class ExportError(ValueError):
    """The model or an argument cannot be written; the text says why and what to do."""


WAYS = {
    ".onnx": "the build reads it as it is: MORTONNET_MODEL=FILE",
    ".tflite": "the build reads it as it is: MORTONNET_MODEL=FILE",
    ".keras": "load it with keras.models.load_model and give the model",
    ".h5": "load it with keras.models.load_model and give the model",
    ".pt": "load it with PyTorch and give the torch.nn.Module",
    ".pth": "load it with PyTorch and give the torch.nn.Module",
    ".pkl": "load it and give the model",
    ".joblib": "load it and give the model",
}
"""The advice for a file that is no model yet, by its ending."""


@dataclass
class Network:
    """A network between its framework and the files.

    layers: "AffineLayer" entries are (W, b) with W of shape (h, d) and b of shape (h,), in float32.
            Others are names.
    scale:  the `input` key, or None.
    output: the `output` key: kind, and activation or threshold where they matter.
    scores: from raw records of shape (n, d), float64, to scores of shape (n, h), by the framework.
    """

    layers: list
    scale: dict | None
    output: dict
    labels: list | None
    features: list | None
    scores: object

    @property
    def affine(self):
        return [layer for layer in self.layers if isinstance(layer, tuple)]

    @property
    def width(self):
        """Values of one input record."""
        return self.affine[0][0].shape[1]

    @property
    def outputs(self):
        """Values of one result."""
        return self.affine[-1][0].shape[0]


def export(
    model,
    folder,
    *,
    inputs,
    name=None,
    labels=None,
    features=None,
    input=None,
    output=None,
    check=64,
    quantize=None,
    data="csv",
):
    """Writes `model` into `folder` and returns its path.

    The folder is made if it is missing. Files of the same names are replaced.

    inputs:   records in raw units, as the program will read them, shape (n, …); a record is
              flattened. `check` of them, evenly spread, become golden vectors. May be None if check
              is 0 and PyTorch needs no ONNX. Images for ONNX have the shape (n, channels, height,
              width), or (n, height, width, channels) with "order": "hwc". Images for Keras have the
              latter shape, or the former with "order": "chw".
    name:     name of the network. None: the folder's own.
    labels:   a name per class (per output for multilabel and values). None: scikit-learn's
              `classes_`, or no names.
    features: a name per value of a record. None: the names that a scikit-learn model was fitted
              with, or no names. Names that are all numbers (pandas' default) are left out, with a
              warning: such a header cannot be told from a record.
    input:    the *caller's* scaling of raw records before the model: {"scale": s, "offset": o} for
              x·s + o, or {"mean": m, "std": d} for (x − m) / d. Each is a number, one per channel
              of an image, or one per feature. "order": "hwc" (Keras: "chw") turns images for the
              model. A pipeline's scaler needs nothing.
    output:   the meaning of the last values: "classes", "binary", "multilabel" or "values", or
              {"kind": …, "threshold": t}. scikit-learn models know it. So do others that end in
              Softmax or in a Linear of several outputs (classes), or in one Sigmoid output
              (binary). Otherwise it must be given.
    check:    the largest number of golden vectors.
    quantize: 100 or more typical records in raw units, shaped like inputs, that are written into
              the folder. The build then quantizes the network to 8-bit integers. None: floats.
    data:     format of the weight files of a network.json: "csv" (numbers that read back as the
              same float32), "npy" or "f32" (raw).
    """
    folder = Path(folder)
    if data not in DATA_TYPES:
        raise ExportError(f"data: expected one of {', '.join(DATA_TYPES)}, found {data!r}")
    output = _output(output)
    kind = _framework_type(model)
    if kind == "torch" and _is_chain(model):
        network = _from_torch(model, input, output)
    elif kind in FRAMEWORKS:
        said = {"name": name or folder.resolve().name, "labels": labels, "features": features}
        return _through_file(
            FRAMEWORKS[kind](model), folder, inputs, said, input, output, check, quantize
        )
    elif kind == "sklearn":
        network = _from_sklearn(model, input, output)
    else:
        raise ExportError(_not_a_model(model))
    network.labels = _names(
        "labels", labels if labels is not None else network.labels, _label_count(network)
    )
    network.features = _features(
        features if features is not None else network.features, network.width
    )
    _check_weights(network)
    _check_scale(network)

    files, definition = {}, {"name": name or folder.resolve().name}
    definition["layers"] = _write_layers(network, data, files)
    definition["size"] = len(network.layers)
    for key, value in (
        ("labels", network.labels),
        ("features", network.features),
        ("input", network.scale),
    ):
        if value is not None:
            definition[key] = value
    definition["output"] = network.output
    if check:
        records, scores = _golden(network, inputs, check)
        definition["check"] = {"inputs": "check_inputs.csv", "scores": "check_scores.csv"}
        files["check_inputs.csv"], files["check_scores.csv"] = csv_bytes(records), csv_bytes(scores)
    _quantize(quantize, network.width, definition, files)
    files["network.json"] = network_json(definition).encode()

    folder.mkdir(parents=True, exist_ok=True)
    for file, content in files.items():
        (folder / file).write_bytes(content)
    return folder


# ---- scikit-learn
# --------------------------------------------------------------------------------------------------

SKLEARN_ACTIVATIONS = {
    "identity": None,
    "relu": "ReLULayer",
    "logistic": "SigmoidLayer",
    "tanh": "TanhLayer",
}
SKLEARN_MODELS = ("MLPClassifier", "MLPRegressor", "LogisticRegression", "LinearRegression")
SKLEARN_SCALERS = ("StandardScaler", "MinMaxScaler", "MaxAbsScaler", "RobustScaler")


def _from_sklearn(model, input, output):
    """The network of a model, or of a pipeline that ends in one."""
    names = getattr(model, "feature_names_in_", None)
    before, (where, last) = _pipeline(_best(model, "model"))
    if not hasattr(last, "coefs_") and not hasattr(last, "coef_"):
        raise ExportError(f"{where}: this {_type(last)} has no weights yet; call fit first")
    if before and input is not None:
        raise ExportError(
            f"input: the pipeline already scales with {_type(before[0][1])}; give one of the two"
        )

    layers, kind, of_prepared = (_mlp if hasattr(last, "coefs_") else _linear_model)(where, last)
    if output and output["kind"] != kind:
        raise ExportError(
            f"output: this {_type(last)} gives {kind}, found {output['kind']!r}; leave it out"
        )
    if before:
        input, layers = _prepared(before, layers)

    def scores(records):
        if not before:
            return of_prepared(_scaled(input, records))
        pandas = sys.modules.get("pandas")
        if (
            names is not None and pandas is not None
        ):  # a ColumnTransformer may ask for columns by name
            records = pandas.DataFrame(records, columns=names)
        with (
            warnings.catch_warnings()
        ):  # fitted with named columns, asked without: the order is the same
            warnings.filterwarnings("ignore", message="X does not have valid feature names")
            for _, step in before:
                records = step.transform(records)
        return of_prepared(np.asarray(records, np.float64))

    return Network(
        layers=[
            layer if isinstance(layer, str) else _affine(*layer)
            for layer in layers
            if layer is not None
        ],
        scale=input,
        output=output or {"kind": kind},
        labels=[str(c) for c in last.classes_] if hasattr(last, "classes_") else None,
        features=None if names is None else [str(n) for n in names],
        scores=scores,
    )


def _mlp(where, mlp):
    """Layers with (W, b) in float64, kind of output, and scores from what the network sees."""
    layers, hidden = [], SKLEARN_ACTIVATIONS[mlp.activation]
    for weights, biases in zip(mlp.coefs_, mlp.intercepts_):  # weights are d × h there
        layers += [(weights.T.astype(np.float64), biases.astype(np.float64)), hidden]
    layers[-1] = None
    if hasattr(mlp, "classes_"):
        layers[-1] = {"softmax": "SoftmaxLayer", "logistic": "SigmoidLayer"}[mlp.out_activation_]
        kind = (
            "classes"
            if mlp.out_activation_ == "softmax"
            else "binary"
            if mlp.n_outputs_ == 1
            else "multilabel"
        )
    elif mlp.out_activation_ == "identity":
        kind = "values"
    else:
        raise ExportError(
            f"{where}: the outputs of this MLPRegressor pass through {mlp.out_activation_!r}; "
            "expected loss='squared_error'"
        )
    without_output = copy.copy(
        mlp
    )  # scikit-learn's own forward pass, ended before the output activation
    without_output.out_activation_ = "identity"
    return layers, kind, lambda x: without_output._forward_pass_fast(x, check_input=False)


def _linear_model(where, model):
    """(layers, kind, scores) of a LogisticRegression or a LinearRegression."""
    weights = np.atleast_2d(np.asarray(model.coef_, np.float64))
    biases = np.broadcast_to(np.asarray(model.intercept_, np.float64), len(weights))
    if not hasattr(model, "classes_"):
        return (
            [(weights, biases)],
            "values",
            lambda x: np.asarray(model.predict(x)).reshape(len(x), -1),
        )
    if len(weights) > 1 and (
        model.solver == "liblinear" or getattr(model, "multi_class", "auto") == "ovr"
    ):
        raise ExportError(
            f"{where}: this LogisticRegression was fitted one class against the rest, whose "
            "probabilities are no softmax; "
            "expected another solver than liblinear, and multi_class left out"
        )
    end, kind = ("SoftmaxLayer", "classes") if len(weights) > 1 else ("SigmoidLayer", "binary")
    return (
        [(weights, biases), end],
        kind,
        lambda x: np.asarray(model.decision_function(x)).reshape(len(x), -1),
    )


def _best(model, where):
    """The best estimator of a search, else the model itself."""
    while _type(model).endswith("SearchCV"):
        if not hasattr(model, "best_estimator_"):
            raise ExportError(
                f"{where}: this {_type(model)} has no best estimator; call fit first, with "
                "refit=True"
            )
        model = model.best_estimator_
    return model


def _steps(pipeline, where):
    """(where, step) of a pipeline, those of pipelines in it too; "passthrough" left out."""
    for i, (name, step) in enumerate(pipeline.steps):
        at = f"step {i} ({name})" if where is None else f"{where}, step {i} ({name})"
        step = step if step is None or isinstance(step, str) else _best(step, at)
        if hasattr(step, "steps"):
            yield from _steps(step, at)
        elif step is not None and step != "passthrough":
            yield at, step


def _pipeline(model):
    """([(where, step)] before, (where, model)) of a model or a pipeline."""
    steps = list(_steps(model, None)) if hasattr(model, "steps") else [("model", model)]
    if not steps or _type(steps[-1][1]) not in SKLEARN_MODELS:
        where, last = steps[-1] if steps else ("model", model)
        raise ExportError(
            f"{where}: expected {', '.join(SKLEARN_MODELS[:-1])} or {SKLEARN_MODELS[-1]}, found "
            f"{_type(last)}"
        )
    return steps[:-1], steps[-1]


# The steps before a model are linear: they give M·(f∘x + s) + m of a record x. f and s are the
# reader's, in float64; they stay apart from M, because weights of float32 would lose the digits
# of a sensor far from zero.


@dataclass
class Linear:
    """M·(f∘x + s) + m; matrix M of None is the identity."""

    f: np.ndarray
    s: np.ndarray
    matrix: np.ndarray | None = None
    m: np.ndarray | None = None

    @staticmethod
    def identity(width):
        return Linear(np.ones(width), np.zeros(width))

    def dense(self):
        """(M, m) with M written out."""
        width = len(self.f)
        return (np.eye(width), np.zeros(width)) if self.matrix is None else (self.matrix, self.m)

    def then(self, other):
        """This, and `other` of what it gives."""
        if self.matrix is None:
            return Linear(self.f * other.f, self.s * other.f + other.s, other.matrix, other.m)
        matrix, m = other.dense()
        return Linear(
            self.f,
            self.s,
            matrix * other.f @ self.matrix,
            matrix @ (other.f * self.m + other.s) + m,
        )


def _prepared(steps, layers):
    """The `input` key for these steps, and the layers with what of the steps is left."""
    linear = _chained(steps)
    if len(steps) == 1 and _type(steps[0][1]) in SKLEARN_SCALERS:
        return _scaler_key(*steps[0]), layers
    plain = (linear.f == 1).all() and (linear.s == 0).all()
    key = None if plain else {"scale": linear.f.tolist(), "offset": linear.s.tolist()}
    if linear.matrix is None:
        return key, layers
    (weights, biases), *rest = layers
    outputs, (kept, width) = len(weights), linear.matrix.shape
    picks = (np.count_nonzero(linear.matrix, axis=1) <= 1).all()
    if picks or outputs * width <= outputs * kept + kept * width:
        return key, [(weights @ linear.matrix, weights @ linear.m + biases), *rest]
    return key, [(linear.matrix, linear.m), *layers]


def _chained(steps):
    """The linear function of some fitted steps, one after the other."""
    first, *rest = (_linear(where, step) for where, step in steps)
    for linear in rest:
        first = first.then(linear)
    return first


def _linear(where, step):
    """The linear function of a fitted step."""
    if hasattr(step, "steps"):
        steps = list(_steps(step, where))
        return _chained(steps) if steps else Linear.identity(step.n_features_in_)
    if (
        _type(step) == "FunctionTransformer" and step.func is None
    ):  # a ColumnTransformer's "passthrough"
        return Linear.identity(step.n_features_in_)
    if _type(step) in SKLEARN_SCALERS:
        key, width = _scaler_key(where, step), step.n_features_in_
        at = {k: np.broadcast_to(np.asarray(v, np.float64), width) for k, v in key.items()}
        return (
            Linear(at["scale"], at["offset"])
            if "scale" in at
            else Linear(1 / at["std"], -at["mean"] / at["std"])
        )
    if _type(step) == "PCA":
        if not hasattr(step, "components_"):
            raise ExportError(
                f"{where}: this PCA has not seen data yet; call fit on the whole pipeline"
            )
        matrix = np.asarray(step.components_, np.float64)
        if step.whiten:
            matrix = matrix / np.sqrt(np.asarray(step.explained_variance_, np.float64))[:, None]
        mean = np.asarray(step.mean_, np.float64)
        return Linear(np.ones(len(mean)), -mean, matrix, np.zeros(len(matrix)))
    if _type(step) == "ColumnTransformer":
        return _columns(where, step)
    known = ", ".join([*SKLEARN_SCALERS, "PCA", "ColumnTransformer"])
    raise ExportError(
        f"{where}: expected one of {known} or a Pipeline of them, found {_type(step)}; "
        "apply it before the program, or say what it does with input={...}"
    )


def _columns(where, transformer):
    """The function of a fitted ColumnTransformer: its parts one behind the other."""
    if not hasattr(transformer, "transformers_"):
        raise ExportError(
            f"{where}: this ColumnTransformer has not seen data yet; call fit on the whole pipeline"
        )
    width, names = transformer.n_features_in_, getattr(transformer, "feature_names_in_", None)
    all_columns, parts = np.arange(width), []
    for name, step, wanted in transformer.transformers_:
        if isinstance(step, str) and step == "drop":
            continue
        columns = _selected(all_columns, wanted, names)
        at = f"{where}, {name}"
        if not len(columns):
            continue
        step = step if isinstance(step, str) else _best(step, at)
        linear = Linear.identity(len(columns)) if isinstance(step, str) else _linear(at, step)
        factor = (transformer.transformer_weights or {}).get(name, 1.0)
        parts.append((columns, linear, factor))
    used = np.concatenate([columns for columns, _, _ in parts])
    f, s = np.ones(width), np.zeros(width)
    once = len(set(used.tolist())) == len(used)  # else the scaling of a column is not one
    rows, summands = [], []
    for columns, linear, factor in parts:
        matrix, m = linear.dense()
        if once:
            f[columns], s[columns] = linear.f, linear.s
        else:
            matrix, m = matrix * linear.f, matrix @ linear.s + m
        wide = np.zeros((len(matrix), width))
        np.add.at(wide, (slice(None), columns), matrix)
        rows.append(wide * factor)
        summands.append(m * factor)
    matrix, m = np.concatenate(rows), np.concatenate(summands)
    same = matrix.shape == (width, width) and (matrix == np.eye(width)).all() and not m.any()
    return Linear(f, s) if same else Linear(f, s, matrix, m)


def _selected(all_columns, wanted, names):
    """Numbers of a ColumnTransformer part's columns, given by number, name, slice or mask."""
    number = {} if names is None else {name: i for i, name in enumerate(names)}
    if isinstance(wanted, slice):
        start, stop = (
            number.get(v, v) if isinstance(v, str) else v for v in (wanted.start, wanted.stop)
        )
        return all_columns[
            start : stop + isinstance(wanted.stop, str) if stop is not None else None : wanted.step
        ]
    wanted = [wanted] if np.ndim(wanted) == 0 else list(wanted)
    if wanted and isinstance(wanted[0], str):
        return np.array([number[name] for name in wanted])
    return all_columns[
        np.array(wanted, bool if wanted and isinstance(wanted[0], (bool, np.bool_)) else int)
    ]


def _scaler_key(where, scaler):
    """The `input` key of a fitted scaler."""
    if not hasattr(scaler, "n_features_in_"):
        raise ExportError(
            f"{where}: this {_type(scaler)} has not seen data yet; call fit on the whole pipeline"
        )
    if getattr(scaler, "clip", False):
        raise ExportError(f"{where}: {_type(scaler)}(clip=True) is not linear; expected clip=False")
    if _type(scaler) == "MinMaxScaler":
        return {"scale": scaler.scale_.tolist(), "offset": scaler.min_.tolist()}
    if _type(scaler) == "RobustScaler":
        centred, scaled, mean = scaler.with_centering, scaler.with_scaling, scaler.center_
    elif _type(scaler) == "MaxAbsScaler":
        centred, scaled, mean = False, True, None
    else:
        centred, scaled, mean = scaler.with_mean, scaler.with_std, scaler.mean_
    return {
        "mean": mean.tolist() if centred else 0.0,
        "std": scaler.scale_.tolist() if scaled else 1.0,
    }


# ---- PyTorch
# --------------------------------------------------------------------------------------------------

TORCH_ACTIVATIONS = {
    "ReLU": "ReLULayer",
    "Sigmoid": "SigmoidLayer",
    "Tanh": "TanhLayer",
    "Softmax": "SoftmaxLayer",
    "LeakyReLU": "LeakyReLULayer",
}
TORCH_SKIPPED = ("Flatten", "Dropout", "Identity")
ENDS = {"softmax": "SoftmaxLayer", "sigmoid": "SigmoidLayer", "tanh": "TanhLayer"}
"""Functions that end a network, by their names in PyTorch and Keras."""


def _is_chain(model):
    """True if a network JSON can have all of it: a chain of Linear and element-wise functions."""
    torch = sys.modules["torch"]
    if type(model) is not torch.nn.Sequential:
        return False
    kinds = []
    for module in _flat(model):
        if not type(module[1]).__module__.startswith("torch.nn.modules."):
            return False
        kinds += [_type(module[1])] if _type(module[1]) not in TORCH_SKIPPED else []
    known = all(kind in ("Linear", *TORCH_ACTIVATIONS) for kind in kinds)
    return known and kinds[:1] == ["Linear"] and "Softmax" not in kinds[:-1]


def _from_torch(model, input, output):
    """The network of a torch.nn.Sequential that is a chain."""
    torch = sys.modules["torch"]
    _check_dimensions(model)
    kept = [(where, module) for where, module in _flat(model) if _type(module) not in TORCH_SKIPPED]
    layers = []
    for _, module in kept:
        if _type(module) == "Linear":
            biases = torch.zeros(module.out_features) if module.bias is None else module.bias
            layers.append(
                _affine(*(t.detach().cpu().double().numpy() for t in (module.weight, biases)))
            )
        elif _type(module) == "LeakyReLU":
            layers.append({"layer": "LeakyReLULayer", "slope": float(module.negative_slope)})
        else:
            layers.append(TORCH_ACTIVATIONS[_type(module)])
    linear = [(where, module) for where, module in kept if _type(module) == "Linear"]
    for (_, before), (where, module) in zip(linear, linear[1:]):
        if module.in_features != before.out_features:
            raise ExportError(
                f"module {where}: takes {module.in_features} values, the Linear before gives "
                f"{before.out_features}"
            )

    end = None if isinstance(layers[-1], tuple) else _type(kept[-1][1])
    end = end and TORCH_ACTIVATIONS[end]
    output = _torch_output(end, kept[-1], linear[-1][1].out_features, output)
    # The model as given, all of its modules: what is left out of the layers must not change the
    # scores. In float64, for the same bytes on every processor; the scores are what its last
    # activation sees, or what comes out.
    run = copy.deepcopy(model).cpu().double().eval()
    seen = []
    if end in FINAL and output["kind"] != "values":
        last = [module for _, module in _flat(run) if _type(module) not in TORCH_SKIPPED][-1]
        last.register_forward_pre_hook(lambda _, given: seen.append(given[0]))

    def scores(records):
        with torch.no_grad():
            result = run(torch.from_numpy(_scaled(input, records)))
        return (seen[-1] if seen else result).numpy()

    return Network(
        layers=layers, scale=input, output=output, labels=None, features=None, scores=scores
    )


def _flat(sequential, prefix=""):
    """(index, module) of every module; "2.0" is the first one in the third, a Sequential."""
    for i, module in enumerate(sequential):
        if _type(module) == "Sequential":
            yield from _flat(module, f"{prefix}{i}.")
        else:
            yield f"{prefix}{i}", module


def _check_dimensions(sequential):
    """Refuses modules that work across records."""
    for where, module in _flat(sequential):
        if _type(module) == "Softmax" and module.dim not in (1, -1):
            raise ExportError(
                f"module {where}: expected Softmax(dim=1) or Softmax(dim=-1), found "
                f"dim={module.dim}"
            )
        if _type(module) == "Flatten" and (module.start_dim, module.end_dim) != (1, -1):
            raise ExportError(
                f"module {where}: expected Flatten(1, -1), a whole record, found "
                f"Flatten({module.start_dim}, {module.end_dim})"
            )


# ---- by a file of the framework's
# -----------------------------------------------------------------------------------


def _through_file(framework, folder, inputs, said, input, output, check, quantize):
    """Writes the model of a Torch or a Keras as their file, with a net.json; returns the path."""
    framework.check_weights()
    if inputs is None:
        raw = framework.example() if not check else None
        if raw is None:
            raise ExportError(
                f"inputs: expected records in raw units, {framework.uses}, found None"
            )
    else:
        raw = _f32(inputs)
    shapes = {"chw": "(n, channels, height, width)", "hwc": "(n, height, width, channels)"}
    if raw.ndim not in (2, 3, 4) or len(raw) == 0:
        other = "hwc" if framework.order == "chw" else "chw"
        raise ExportError(
            "inputs: expected records as rows, shape (n, values), or images, shape "
            f"{shapes[framework.order]} or, with "
            f'input={{"order": "{other}"}}, {shapes[other]}; found the shape {raw.shape}'
        )
    if not np.isfinite(raw).all():
        raise ExportError("inputs: expected finite numbers, found others")
    if len(raw) > max(check, 1):
        raw = raw[np.linspace(0, len(raw) - 1, max(check, 1)).round().astype(int)]
    width, key, order = raw[0].size, dict(input or {}), None
    channels = width
    if raw.ndim == 4:
        order = key.pop("order", framework.order)
        if order not in ("chw", "hwc"):
            raise ExportError(f"input.order: expected chw or hwc, found {order!r}")
        channels = raw.shape[1 if order == "chw" else 3]
    key = _plain_scale(key, {width, channels}) if key else None

    def of_values(numbers):
        """Numbers for each value of a record, from one number, one per channel or one per value."""
        spread = np.repeat if order == "chw" else np.tile
        return (
            spread(numbers, width // channels) if np.size(numbers) == channels != width else numbers
        )

    every = key and {what: of_values(np.asarray(numbers)) for what, numbers in key.items()}
    seen = _scaled(every, raw.reshape(len(raw), -1).astype(np.float64)).reshape(raw.shape)
    if order not in (None, framework.order):
        seen = np.moveaxis(seen, 3, 1) if order == "hwc" else np.moveaxis(seen, 1, 3)
    seen = np.ascontiguousarray(seen)
    scores, end = framework.run(seen)

    outputs = scores["after"].shape[1]
    ends = (
        f"the model ends in {end[:-5] if end else 'no activation'} with {outputs} "
        f"output{'s' if outputs > 1 else ''}"
    )
    output = _output_of(ends, end, outputs, output)
    count = 2 if output["kind"] == "binary" else outputs
    definition = {"name": said["name"]}
    names = {
        "labels": _names("labels", said["labels"], count),
        "features": _features(said["features"], width),
    }
    definition |= {what: given for what, given in names.items() if given is not None}
    said_input = ({"order": order} if order else {}) | (key or {})
    definition |= {"input": said_input} if said_input else {}
    definition["output"] = output
    files = {}
    if check:
        definition["check"] = {"inputs": "check_inputs.npy", "scores": "check_scores.npy"}
        files["check_inputs.npy"] = npy_bytes(raw.reshape(len(raw), -1))
        before = end is not None and output["kind"] != "values"
        files["check_scores.npy"] = npy_bytes(_f32(scores["before" if before else "after"]))
    _quantize(quantize, width, definition, files)
    files[framework.file] = framework.bytes(seen[:1])
    files["net.json"] = network_json(definition).encode()
    folder.mkdir(parents=True, exist_ok=True)
    for file, content in files.items():
        (folder / file).write_bytes(content)
    return folder / framework.file


class Torch:
    """Any torch.nn.Module, through ONNX."""

    file, order = "net.onnx", "chw"
    uses = "which torch.onnx.export traces the module with"

    def __init__(self, model):
        self.model, self.torch = model, sys.modules["torch"]

    def check_weights(self):
        for name, values in [*self.model.named_parameters(), *self.model.named_buffers()]:
            if values.is_floating_point() and not self.torch.isfinite(values).all():
                raise ExportError(
                    f"parameter {name}: expected finite numbers, found others; did the training "
                    "diverge?"
                )

    def example(self):
        """Records for a model that has a shape of its own: a module has none."""

    def run(self, seen):
        """The results before and after the last softmax, sigmoid or tanh, and that one's name.

        Results have the shape (n, h). The name is None if the module ends in none of the three.
        Results are in float64 if the module can, for the same bytes on every processor.
        """
        from torch.overrides import TorchFunctionMode

        class Ends(TorchFunctionMode):
            last = None, None, None

            def __torch_function__(self, function, types, args=(), kwargs=None):
                result = function(*args, **(kwargs or {}))
                name = getattr(function, "__name__", "")
                if name in ENDS:
                    self.last = result, ENDS[name], args[0] if args else kwargs["input"]
                return result

        torch, model, seen = self.torch, self.model, self.torch.from_numpy(seen)
        for dtype in (torch.float64, torch.float32):
            run, ends = copy.deepcopy(model).cpu().to(dtype).eval(), Ends()
            try:
                with torch.no_grad(), ends:
                    result = run(seen.to(dtype))
                break
            except RuntimeError as e:  # constants of float32 in the module's own code, for one
                if dtype is torch.float32:
                    raise ExportError(
                        f"model: {_type(model)} does not take inputs of shape "
                        f"{tuple(seen.shape)}: {e}"
                    ) from e
        if not isinstance(result, torch.Tensor):
            raise ExportError(f"model: expected one tensor as its result, found {_type(result)}")
        if len(result) != len(seen):
            raise ExportError(
                f"model: expected a result for each of {len(seen)} records, found the shape "
                f"{tuple(result.shape)}"
            )
        same = ends.last[0] is result
        flat = [
            t.double().numpy().reshape(len(seen), -1)
            for t in (ends.last[2] if same else result, result)
        ]
        return dict(zip(("before", "after"), flat)), ends.last[1] if same else None

    def bytes(self, seen):
        """The module as ONNX with a free batch dimension, by the newer exporter if it is there."""
        import importlib.util

        torch = self.torch
        example = torch.from_numpy(
            np.repeat(_f32(seen), 2, axis=0)
        )  # an exporter may take a batch of 1 for a fixed one
        run = copy.deepcopy(self.model).cpu().float().eval()
        said = {"input_names": ["input"], "output_names": ["scores"], "verbose": False}
        if importlib.util.find_spec("onnxscript"):
            said |= {
                "dynamo": True,
                "external_data": False,
                "dynamic_shapes": ({0: torch.export.Dim("batch")},),
            }
        elif importlib.util.find_spec("onnx"):
            said |= {
                "dynamo": False,
                "dynamic_axes": {"input": {0: "batch"}, "scores": {0: "batch"}},
            }
        else:
            name = _type(self.model)
            raise ExportError(
                f"model: {name} goes through torch.onnx.export, which needs a package: pip "
                "install onnxscript"
            )
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the exporter about itself
            file = Path(folder) / "net.onnx"
            try:
                torch.onnx.export(run, (example,), str(file), **said)
            except Exception as e:
                raise ExportError(
                    f"model: torch.onnx.export does not take this {_type(self.model)}: {e}"
                ) from e
            return _without_traces(file)


def _without_traces(file):
    """The bytes of an ONNX file without the exporter's source lines, which name folders here."""
    import onnx

    written = onnx.load(file)
    for part in (
        written.graph,
        *written.graph.node,
        *written.graph.value_info,
        *written.graph.input,
        *written.graph.output,
        *written.graph.initializer,
    ):
        del part.metadata_props[:]
    return written.SerializeToString(deterministic=True)


class Keras:
    """A Sequential or functional model of Keras 3 on TensorFlow, through TensorFlow Lite."""

    file, order = "net.tflite", "hwc"
    uses = "of which some become golden vectors (check=0: none)"

    def __init__(self, model):
        self.model, self.keras = model, sys.modules["keras"]
        if self.keras.backend.backend() != "tensorflow":
            raise ExportError(
                "model: expected Keras on TensorFlow, which writes TensorFlow Lite, found it on "
                f"{self.keras.backend.backend()}; "
                "load the model with KERAS_BACKEND=tensorflow"
            )
        if len(getattr(model, "outputs", None) or ()) != 1 or len(model.inputs) != 1:
            raise ExportError(
                "model: expected a Sequential or functional model with an input and an output, "
                f"found {_type(model)}; a model that "
                "is not built yet has none: call it once"
            )

    def check_weights(self):
        for weight in self.model.weights:
            if not np.isfinite(np.asarray(weight)).all():
                raise ExportError(
                    f"weight {weight.path}: expected finite numbers, found others; did the "
                    "training diverge?"
                )

    def example(self):
        shape = self.model.inputs[0].shape[1:]
        return None if None in shape else np.zeros((1, *shape), np.float32)

    def run(self, seen):
        """Results like those of Torch.run, in float32."""
        keras = self.keras
        last = self.model.outputs[0]._keras_history.operation
        function = getattr(last, "activation", None)
        end = ENDS.get(
            getattr(
                function, "__name__", "softmax" if isinstance(last, keras.layers.Softmax) else ""
            )
        )

        def results(model):
            try:
                return np.asarray(
                    model(seen.astype(np.float32), training=False), np.float64
                ).reshape(len(seen), -1)
            except ValueError as e:
                raise ExportError(
                    f"model: {_type(self.model)} does not take inputs of shape {seen.shape}: {e}"
                ) from e

        scores = {"after": results(self.model)}
        if end and function is not None:
            last.activation = keras.activations.linear
            try:
                scores["before"] = results(self.model)
            finally:
                last.activation = function
        elif end:
            scores["before"] = results(keras.Model(self.model.inputs[0], last.input))
        return scores, end

    def bytes(self, seen):
        import contextlib

        import tensorflow

        with contextlib.redirect_stdout(io.StringIO()):  # the converter says where its files were
            return tensorflow.lite.TFLiteConverter.from_keras_model(self.model).convert()


FRAMEWORKS = {"torch": Torch, "keras": Keras}


def _torch_output(end, last, outputs, output):
    """The `output` key, from the last layer's name (None: affine), its module and the caller."""
    ends = (
        f"module {last[0]}: the network ends in {_type(last[1])} with {outputs} "
        f"output{'s' if outputs > 1 else ''}"
    )
    return _output_of(ends, end, outputs, output)


def _output_of(ends, end, outputs, output):
    """The `output` key. `ends` says in messages how the network ends."""
    possible = {
        ("SoftmaxLayer", True): ["classes", "values"],
        ("SoftmaxLayer", False): ["values"],
        ("SigmoidLayer", True): ["multilabel", "classes", "values"],
        ("SigmoidLayer", False): ["binary", "values"],
        (None, True): ["classes", "multilabel", "values"],
        (None, False): ["values", "binary"],
    }.get((end, outputs > 1), ["values", "classes"] if outputs > 1 else ["values"])
    choices = " or ".join(f'"{kind}"' for kind in possible)
    obvious = {
        ("SoftmaxLayer", True): "classes",
        ("SigmoidLayer", False): "binary",
        (None, True): "classes",
    }
    if output is None:
        if (end, outputs > 1) not in obvious:
            raise ExportError(f"{ends}; say what that means: output={choices}")
        output = {"kind": obvious[end, outputs > 1]}
    elif output["kind"] not in possible:
        raise ExportError(f"{ends}: expected output={choices}, found {output['kind']!r}")
    if end is None and output["kind"] != "values":
        activation = "softmax" if output["kind"] == "classes" else "sigmoid"
        output = {"kind": output["kind"], "activation": activation, **output}
    return output


# ---- what the caller says
# --------------------------------------------------------------------------------------------------


def _output(output):
    """The caller's `output` as a dictionary, or None."""
    if output is None:
        return None
    output = {"kind": output} if isinstance(output, str) else dict(output)
    unknown = sorted(set(output) - {"kind", "threshold"})
    if unknown:
        raise ExportError(f"output: expected the keys kind and threshold, found {unknown[0]!r}")
    if output.get("kind") not in KINDS:
        raise ExportError(
            f"output: expected a kind of {', '.join(KINDS)}, found {output.get('kind')!r}"
        )
    if "threshold" in output:
        if output["kind"] not in ("binary", "multilabel"):
            raise ExportError(
                "output: a threshold goes with binary and multilabel, found it with "
                f"{output['kind']!r}"
            )
        output["threshold"] = float(output["threshold"])
        if not 0 < output["threshold"] < 1:
            raise ExportError(
                f"output: expected a threshold between 0 and 1, found {output['threshold']}"
            )
    return output


def _names(what, names, count):
    """`names` as strings, one per output or input."""
    if names is None:
        return None
    names = [str(n) for n in names]
    if len(names) != count:
        raise ExportError(f"{what}: expected {count} names, found {len(names)}")
    for i, n in enumerate(names):
        if not n.strip() or len(n.splitlines()) != 1 or "\0" in n:
            raise ExportError(f"{what}[{i}]: expected a name on one line, found {n!r}")
    return names


def _features(names, count):
    """`names` as the `features` key. Numbers are left out: a header of them would be a record."""
    names = _names("features", names, count)
    if names and all(_is_number(n) for n in names):
        warnings.warn(
            f"features: {names[0]!r} to {names[-1]!r} are all numbers: a CSV header of them "
            "cannot be told from a record. They "
            "are left out; write the records without a header (pandas: header=False), or give "
            "names with features=[…]",
            stacklevel=3,
        )
        return None
    return names


def _is_number(text):
    """True if a CSV field with this text is a number (without Python's own underscores)."""
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text


def _label_count(network):
    return 2 if network.output["kind"] == "binary" else network.outputs


def _check_scale(network):
    """The `input` key in plain numbers. Refuses all but scale and offset, or mean and std."""
    if network.scale is not None:
        network.scale = _plain_scale(network.scale, {network.width})


def _plain_scale(scale, lengths):
    """The key with plain numbers; a list has one of `lengths`."""
    scale = {key: np.asarray(value, np.float64) for key, value in dict(scale).items()}
    keys = set(scale)
    if not keys or not (keys <= {"scale", "offset"} or keys <= {"mean", "std"}):
        raise ExportError(
            "input: expected scale and offset, or mean and std, found "
            f"{', '.join(sorted(keys)) or 'no key'}"
        )
    for key, value in scale.items():
        if value.ndim and value.shape not in {(n,) for n in lengths}:
            counts = " or ".join(str(n) for n in sorted(lengths))
            raise ExportError(
                f"input.{key}: expected a number or {counts} of them, found the shape {value.shape}"
            )
        wrong = np.flatnonzero(~np.isfinite(value) | ((value == 0) & (key in ("scale", "std"))))
        if wrong.size:
            rule = "a finite number other than 0" if key in ("scale", "std") else "a finite number"
            raise ExportError(
                f"input.{key}: expected {rule}, found {value.ravel()[wrong[0]]} for feature "
                f"{wrong[0]}"
            )
    other = {
        "scale": ("offset", 0.0),
        "offset": ("scale", 1.0),
        "mean": ("std", 1.0),
        "std": ("mean", 0.0),
    }
    for key in keys:
        scale.setdefault(other[key][0], np.float64(other[key][1]))
    return {key: scale[key].tolist() for key in ("scale", "offset", "mean", "std") if key in scale}


def _scaled(scale, records):
    """The network's inputs for raw records, in float64; `scale` is the `input` key or None."""
    if scale is None:
        return records
    if "mean" in scale or "std" in scale:
        return (records - np.asarray(scale.get("mean", 0.0), np.float64)) / np.asarray(
            scale.get("std", 1.0), np.float64
        )
    return records * np.asarray(scale.get("scale", 1.0), np.float64) + np.asarray(
        scale.get("offset", 0.0), np.float64
    )


def _check_weights(network):
    """Refuses weights that are not finite in float32."""
    for i, (weights, biases) in enumerate(network.affine):
        for what, array in (("weights", weights), ("biases", biases[:, None])):
            wrong = np.argwhere(~np.isfinite(array))
            if wrong.size:
                row, col = wrong[0]
                raise ExportError(
                    f"affine layer {i}, {what}, output "
                    f"{row}{f', input {col}' if what == 'weights' else ''}: "
                    f"expected a finite float32, found {array[row, col]} ({len(wrong)} such "
                    "values); did the training diverge?"
                )


# ---- golden vectors
# --------------------------------------------------------------------------------------------------


def _golden(network, inputs, count):
    """`count` of the raw records, shape (n, d), and the framework's scores of them, (n, h)."""
    if inputs is None:
        raise ExportError(
            "inputs: expected records in raw units for the golden vectors (or check=0), found None"
        )
    records = np.asarray(inputs, np.float64)
    if records.ndim < 2 or len(records) == 0:
        raise ExportError(
            f"inputs: expected records as rows, shape (n, {network.width}), found the shape "
            f"{records.shape}"
        )
    records = records.reshape(len(records), -1)
    if records.shape[1] != network.width:
        raise ExportError(
            f"inputs: expected {network.width} values a record, found {records.shape[1]}"
        )
    if len(records) > count:
        records = records[np.linspace(0, len(records) - 1, count).round().astype(int)]
    records = _f32(records)  # as the program reads them
    if not np.isfinite(records).all():
        row, col = np.argwhere(~np.isfinite(records))[0]
        raise ExportError(
            f"inputs: expected finite numbers, found {records[row, col]} in value {col} of a record"
        )
    scores = np.asarray(network.scores(records.astype(np.float64)), np.float64).reshape(
        len(records), -1
    )

    written = reference(network.layers, network.scale, network.output, records)
    error = np.abs(written - scores) / np.maximum(1, np.abs(scores))
    if not error.max() <= TOLERANCE:
        row, col = np.unravel_index(np.argmax(error), error.shape)
        raise ExportError(
            f"check: record {row}, output {col}: the framework gives {scores[row, col]:.9g}, the "
            "network with float32 weights "
            f"{written[row, col]:.9g}; expected a difference within {TOLERANCE:g}·max(1, |score|). "
            "If the inputs are large, scale them (input=…, StandardScaler) and train again"
        )
    return records, _f32(scores)


# The fewest records that the build quantizes a network with.
FEWEST = 100


def _quantize(records, width, definition, files):
    """Adds the records that the build quantizes the network with, if there are any."""
    if records is None:
        return
    records = _f32(records)
    if records.ndim < 2 or len(records) < FEWEST or records[0].size != width:
        raise ExportError(
            f"quantize: expected {FEWEST} records or more of {width} values, found the shape "
            f"{records.shape}"
        )
    if not np.isfinite(records).all():
        raise ExportError("quantize: expected finite numbers, found others")
    definition["quantize"] = "quantize.npy"
    files["quantize.npy"] = npy_bytes(records.reshape(len(records), -1))


def reference(layers, scale, output, records):
    """Scores of raw records in float64, without the final activation except for `values`."""
    if isinstance(layers[-1], str) and layers[-1] in FINAL and output["kind"] != "values":
        layers = layers[:-1]
    x = _scaled(scale, records.astype(np.float64))
    for layer in layers:
        if layer == "ReLULayer":
            x = np.maximum(x, 0)
        elif layer == "SigmoidLayer":
            x = 0.5 * (1 + np.tanh(0.5 * x))  # 1 / (1 + e^−x) that does not overflow
        elif layer == "TanhLayer":
            x = np.tanh(x)
        elif isinstance(layer, dict):
            x = np.where(x < 0, layer["slope"] * x, x)
        elif layer == "SoftmaxLayer":
            x = np.exp(x - x.max(axis=1, keepdims=True))
            x /= x.sum(axis=1, keepdims=True)
        elif isinstance(layer, str):
            raise ExportError(f"{layer} has no reference")
        else:
            weights, biases = layer
            x = x @ weights.T.astype(np.float64) + biases
    return x


# ---- files
# --------------------------------------------------------------------------------------------------


def _write_layers(network, data, files):
    """The `layers` key. The matrix files go into `files` (bytes by name), numbered from 1."""
    entries, number = [], 0
    for layer in network.layers:
        if isinstance(layer, (str, dict)):
            entries.append({"layer": layer} if isinstance(layer, str) else layer)
            continue
        number += 1
        weights, biases = layer
        for part, matrix in (("w", weights), ("b", biases[:, None])):
            files.update(_matrix_files(f"{number}_{part}", matrix, data))
        entries.append(
            {"layer": "AffineLayer", "weights": f"{number}_w.json", "biases": f"{number}_b.json"}
        )
    return entries


def _matrix_files(name, matrix, data):
    """Definition and data of a matrix: file name to bytes."""
    rows, cols = matrix.shape
    definition = {"rows": rows, "cols": cols, "data_type": data, "file": f"{name}.{data}"}
    content = {"csv": csv_bytes, "npy": lambda m: npy_bytes(_f32(m)), "f32": _raw}[data](matrix)
    return {f"{name}.json": f"{_json(definition)}\n".encode(), f"{name}.{data}": content}


def write_matrix(folder, name, matrix, data="npy"):
    """Writes a matrix as `name`.json with its data beside it, and returns what a layer calls it."""
    for file, content in _matrix_files(name, _f32(matrix), data).items():
        (folder / file).write_bytes(content)
    return f"{name}.json"


def csv_bytes(matrix):
    """A line per row, with commas, in the shortest digits that read back as the same number."""
    lines = (",".join(str(v).removesuffix(".0") for v in row) for row in np.asarray(matrix))
    return "".join(line + "\n" for line in lines).encode()


def npy_bytes(array):
    """NumPy's file of an array, in its own type."""
    file = io.BytesIO()
    np.save(file, np.ascontiguousarray(array))
    return file.getvalue()


def _raw(matrix):
    return np.ascontiguousarray(matrix, "<f4").tobytes()


def _json(value):
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def network_json(definition):
    """A key a line, and a line per layer."""
    lines = []
    for key, value in definition.items():
        text = _json(value)
        if key == "layers":
            text = "[\n" + ",\n".join(f"    {_json(layer)}" for layer in value) + "\n  ]"
        lines.append(f"  {_json(key)}: {text}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


# ---- small things
# --------------------------------------------------------------------------------------------------


def _f32(array):
    with np.errstate(over="ignore"):  # too large becomes infinite, and that is refused by name
        return np.ascontiguousarray(array, dtype=np.float32)


def _affine(weights, biases):
    """(W, b) in float32, without the remains of weight decay."""
    return tuple(_f32(np.where(np.abs(a) < VANISHED, 0, a)) for a in (weights, biases))


def _type(thing):
    return type(thing).__name__


def _framework_type(model):
    """The model's framework: "torch", "keras", "sklearn" or None. It is loaded already."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(model, torch.nn.Module):
        return "torch"
    keras = sys.modules.get("keras")
    if keras is not None and isinstance(model, keras.Model):
        return "keras"
    base = sys.modules.get("sklearn.base")
    return "sklearn" if base is not None and isinstance(model, base.BaseEstimator) else None


def _not_a_model(model):
    """The message for an argument that is no model of a known framework."""
    if isinstance(model, (str, Path)):
        way = WAYS.get(Path(model).suffix.lower(), "load it and give the model")
        return f"model: expected a model, found the path of a file, {str(model)!r}; {way}"
    if type(model).__module__.split(".")[0] in ("keras", "tensorflow"):
        way = (
            "tf.lite.TFLiteConverter makes a file of it, which the build reads: "
            "MORTONNET_MODEL=net.tflite"
        )
        found = f"{_type(model)} of {type(model).__module__}"
        return f"model: expected a model of scikit-learn, PyTorch or Keras 3, found {found}; {way}"
    known = (
        f"a scikit-learn {', '.join(SKLEARN_MODELS)} or Pipeline, a torch.nn.Module or a "
        "keras.Model"
    )
    return f"model: expected {known}, found {_type(model)}"
