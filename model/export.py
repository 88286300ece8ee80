"""Writes a trained scikit-learn or PyTorch network as a mortonnet model folder.

    from export import export
    export(model, "model/mine", inputs=X_test)                      # then: MORTONNET_MODEL=model/mine cargo build

`model` is one of

* scikit-learn: MLPClassifier (one class of many, two classes, multilabel) or MLPRegressor, alone or as the last step of
  a Pipeline whose other step is a StandardScaler or a MinMaxScaler (it becomes the `input` key);
* PyTorch: Sequential of Linear, ReLU, LeakyReLU, Sigmoid, Tanh, Softmax, Flatten, Dropout, Identity.

Anything else is an ExportError that names the part it stumbled over. The folder holds `network.json`, a definition and a
data file for each weight matrix (h × d: a row per output) and bias (h × 1), and golden vectors: records in raw units, as
they are piped into the program, and the scores that the framework itself computes for them. model/README.md describes the
files. The same model gives the same bytes. Only NumPy is needed, and the framework that the model comes from.
"""

import copy
import io
import json
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np

KINDS = ("classes", "binary", "multilabel", "values")
DATA_TYPES = ("csv", "npy", "f32")
FINAL = ("SoftmaxLayer", "SigmoidLayer", "TanhLayer")
"""Layers that, at the end, are left out of the scores (except for `values`): the class does not depend on them."""

TOLERANCE = 1e-4
"""Most that a score of the written network may be off, times max(1, |score|). The build demands the same."""

VANISHED = 1e-30
"""Smaller weights are written as 0. Weight decay leaves such on inputs that are always 0; no score can depend on them,
but float32 arithmetic is slow on them or loses them."""


class ExportError(ValueError):
    """The model, or something that was said about it, cannot be written; the text says what and what to do."""


@dataclass
class Network:
    """A network between its framework and the files.

    layers: "AffineLayer" entries are (W, b) with W of shape (h, d) and b of shape (h,), in float32; others are names.
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


def export(model, folder, *, inputs, name=None, labels=None, features=None, input=None, output=None, check=64, data="csv"):
    """Writes `model` into `folder` (made where missing; files of the same names are replaced) and returns its path.

    inputs:   records in raw units, as the program will read them, shape (n, …); a record is flattened. `check` of them,
              evenly spread, become golden vectors. May be None if check is 0.
    name:     name of the network; the folder's own where None.
    labels:   a name per class (per output for multilabel and values). None: scikit-learn's `classes_`, or no names.
    features: a name per value of a record. None: those that a scikit-learn model was fitted with, or no names. Names
              that are all numbers (pandas' default) are left out, with a warning: no header can be told by them.
    input:    what the *caller* did to raw records before the model saw them: {"scale": s, "offset": o} for x·s + o, or
              {"mean": m, "std": d} for (x − m) / d, each a number or one per feature. A pipeline's scaler needs nothing.
    output:   what the last values mean: "classes", "binary", "multilabel" or "values", or {"kind": …, "threshold": t}.
              scikit-learn models know it themselves; so does PyTorch where the network ends in Softmax or in a Linear of
              several outputs (classes), or in one Sigmoid output (binary). Otherwise it must be given.
    check:    most golden vectors.
    data:     format of the weight files: "csv" (numbers that read back as the same float32), "npy" or "f32" (raw).
    """
    folder = Path(folder)
    if data not in DATA_TYPES:
        raise ExportError(f"data: expected one of {', '.join(DATA_TYPES)}, found {data!r}")
    output = _output(output)
    kind = _framework_type(model)
    if kind == "torch":
        network = _from_torch(model, input, output)
    elif kind == "sklearn":
        network = _from_sklearn(model, input, output)
    else:
        raise ExportError(
            "model: expected a scikit-learn MLPClassifier, MLPRegressor or Pipeline, or a torch.nn.Sequential, "
            f"found {_type(model)}"
        )
    network.labels = _names("labels", labels if labels is not None else network.labels, _label_count(network))
    network.features = _features(features if features is not None else network.features, network.width)
    _check_weights(network)
    _check_scale(network)

    files, definition = {}, {"name": name or folder.resolve().name}
    definition["layers"] = _write_layers(network, data, files)
    definition["size"] = len(network.layers)
    for key, value in (("labels", network.labels), ("features", network.features), ("input", network.scale)):
        if value is not None:
            definition[key] = value
    definition["output"] = network.output
    if check:
        records, scores = _golden(network, inputs, check)
        definition["check"] = {"inputs": "check_inputs.csv", "scores": "check_scores.csv"}
        files["check_inputs.csv"], files["check_scores.csv"] = csv_bytes(records), csv_bytes(scores)
    files["network.json"] = network_json(definition).encode()

    folder.mkdir(parents=True, exist_ok=True)
    for file, content in files.items():
        (folder / file).write_bytes(content)
    return folder


# ---- scikit-learn ---------------------------------------------------------------------------------------------------

SKLEARN_ACTIVATIONS = {"identity": None, "relu": "ReLULayer", "logistic": "SigmoidLayer", "tanh": "TanhLayer"}


def _from_sklearn(model, input, output):
    """The network of an MLP, or of a pipeline of a scaler and an MLP."""
    scaler, mlp = _pipeline(model)
    if not hasattr(mlp, "coefs_"):
        raise ExportError(f"model: this {_type(mlp)} has no weights yet; call fit first")
    if scaler is not None and input is not None:
        raise ExportError(f"input: the pipeline already scales with {_type(scaler)}; give one of the two")

    classifier = hasattr(mlp, "classes_")
    layers, hidden = [], SKLEARN_ACTIVATIONS[mlp.activation]
    for weights, biases in zip(mlp.coefs_, mlp.intercepts_):  # weights are d × h there
        layers += [_affine(weights.T, biases), hidden]
    layers[-1] = None
    if classifier:
        layers[-1] = {"softmax": "SoftmaxLayer", "logistic": "SigmoidLayer"}[mlp.out_activation_]
        kind = "classes" if mlp.out_activation_ == "softmax" else "binary" if mlp.n_outputs_ == 1 else "multilabel"
    elif mlp.out_activation_ == "identity":
        kind = "values"
    else:
        raise ExportError(
            f"model: the outputs of this MLPRegressor pass through {mlp.out_activation_!r}; expected loss='squared_error'"
        )
    if output and output["kind"] != kind:
        raise ExportError(f"output: this {_type(mlp)} gives {kind}, found {output['kind']!r}; leave it out")

    without_output = copy.copy(mlp)  # scikit-learn's own forward pass, ended before the output activation
    without_output.out_activation_ = "identity"

    def scores(records):
        if scaler is not None:
            with warnings.catch_warnings():  # fitted with named columns, asked without: the order is the same
                warnings.filterwarnings("ignore", message="X does not have valid feature names")
                records = scaler.transform(records)
        else:
            records = _scaled(input, records)
        return without_output._forward_pass_fast(records, check_input=False)

    names = getattr(model, "feature_names_in_", None)
    return Network(
        layers=[layer for layer in layers if layer is not None],
        scale=_scaler_key(scaler) if scaler is not None else input,
        output=output or {"kind": kind},
        labels=[str(c) for c in mlp.classes_] if classifier else None,
        features=None if names is None else [str(n) for n in names],
        scores=scores,
    )


def _pipeline(model):
    """(scaler or None, MLP) of an MLP or a pipeline."""
    steps = [("model", model)]
    if hasattr(model, "steps"):
        steps = [(f"step {i} ({name})", step) for i, (name, step) in enumerate(model.steps)]
        steps = [(where, step) for where, step in steps if step is not None and step != "passthrough"]
    for where, step in steps[:-1]:
        if _type(step) not in ("StandardScaler", "MinMaxScaler"):
            raise ExportError(
                f"{where}: expected StandardScaler or MinMaxScaler, found {_type(step)}; "
                "apply it before the program, or say what it does with input={...}"
            )
    where, mlp = steps[-1]
    if _type(mlp) not in ("MLPClassifier", "MLPRegressor"):
        raise ExportError(f"{where}: expected MLPClassifier or MLPRegressor, found {_type(mlp)}")
    if len(steps) > 2:
        raise ExportError(f"{steps[1][0]}: expected one scaler before the network, found {len(steps) - 1}")
    return (steps[0][1] if len(steps) == 2 else None), mlp


def _scaler_key(scaler):
    """The `input` key of a fitted scaler."""
    if not hasattr(scaler, "n_features_in_"):
        raise ExportError(f"model: this {_type(scaler)} has not seen data yet; call fit on the whole pipeline")
    if _type(scaler) == "MinMaxScaler":
        if scaler.clip:
            raise ExportError("model: MinMaxScaler(clip=True) is not linear; expected clip=False")
        return {"scale": scaler.scale_.tolist(), "offset": scaler.min_.tolist()}
    return {
        "mean": scaler.mean_.tolist() if scaler.with_mean else 0.0,
        "std": scaler.scale_.tolist() if scaler.with_std else 1.0,
    }


# ---- PyTorch --------------------------------------------------------------------------------------------------------

TORCH_ACTIVATIONS = {"ReLU": "ReLULayer", "Sigmoid": "SigmoidLayer", "Tanh": "TanhLayer", "Softmax": "SoftmaxLayer",
                     "LeakyReLU": "LeakyReLULayer"}
TORCH_SKIPPED = ("Flatten", "Dropout", "Identity")
TORCH_HINTS = {
    "LogSoftmax": "; leave it out: classes and probabilities follow from the Linear before it",
    "BatchNorm1d": "; a network with batch normalisation cannot be exported: train it without",
}


def _from_torch(model, input, output):
    """The network of a torch.nn.Sequential."""
    torch = sys.modules["torch"]
    if not isinstance(model, torch.nn.Sequential) or type(model).forward is not torch.nn.Sequential.forward:
        raise ExportError(f"model: expected a torch.nn.Sequential (or one of its own layers), found {_type(model)}")
    kept = [(where, module) for where, module in _flat(model, "") if _type(module) not in TORCH_SKIPPED]
    layers = []
    for i, (where, module) in enumerate(kept):
        if _type(module) == "Linear":
            biases = torch.zeros(module.out_features) if module.bias is None else module.bias
            layers.append(_affine(*(t.detach().cpu().double().numpy() for t in (module.weight, biases))))
        elif not layers:
            raise ExportError(f"module {where}: expected a Linear first, found {_type(module)}")
        elif _type(module) == "Softmax" and i < len(kept) - 1:
            raise ExportError(f"module {where}: Softmax is only possible at the end")
        elif _type(module) == "LeakyReLU":
            layers.append({"layer": "LeakyReLULayer", "slope": float(module.negative_slope)})
        else:
            layers.append(TORCH_ACTIVATIONS[_type(module)])
    if not layers:
        raise ExportError("model: the Sequential has no Linear")
    linear = [(where, module) for where, module in kept if _type(module) == "Linear"]
    for (_, before), (where, module) in zip(linear, linear[1:]):
        if module.in_features != before.out_features:
            raise ExportError(f"module {where}: takes {module.in_features} values, the Linear before gives {before.out_features}")

    end = None if isinstance(layers[-1], tuple) else _type(kept[-1][1])
    end = end and TORCH_ACTIVATIONS[end]
    output = _torch_output(end, kept[-1], linear[-1][1].out_features, output)
    # The model as given, all of its modules: what is left out of the layers must not change the scores. In float64, for
    # the same bytes on every processor; the scores are what its last activation sees, or what comes out.
    run = copy.deepcopy(model).cpu().double().eval()
    seen = []
    if end in FINAL and output["kind"] != "values":
        last = [module for _, module in _flat(run, "") if _type(module) not in TORCH_SKIPPED][-1]
        last.register_forward_pre_hook(lambda _, given: seen.append(given[0]))

    def scores(records):
        with torch.no_grad():
            result = run(torch.from_numpy(_scaled(input, records)))
        return (seen[-1] if seen else result).numpy()

    return Network(layers=layers, scale=input, output=output, labels=None, features=None, scores=scores)


def _flat(sequential, prefix):
    """(index, module) of every module, nested Sequentials opened: index "2.0" is the first module of the third."""
    for i, module in enumerate(sequential):
        where = f"{prefix}{i}"
        if _type(module) == "Sequential":
            yield from _flat(module, f"{where}.")
            continue
        known = type(module).__module__.startswith("torch.nn.modules.")
        if not known or _type(module) not in ("Linear", *TORCH_ACTIVATIONS, *TORCH_SKIPPED):
            hint = TORCH_HINTS.get(_type(module), "")
            known = ", ".join(["Linear", *TORCH_ACTIVATIONS, *TORCH_SKIPPED])
            raise ExportError(f"module {where}: expected one of {known}, found {_type(module)}{hint}")
        if _type(module) == "Softmax" and module.dim not in (1, -1):
            raise ExportError(f"module {where}: expected Softmax(dim=1) or Softmax(dim=-1), found dim={module.dim}")
        if _type(module) == "Flatten" and (module.start_dim, module.end_dim) != (1, -1):
            raise ExportError(
                f"module {where}: expected Flatten(1, -1), a whole record, found Flatten({module.start_dim}, {module.end_dim})"
            )
        yield where, module


def _torch_output(end, last, outputs, output):
    """The `output` key, from the last layer's name (None: affine), the last (index, module) and the caller's wish."""
    ends = f"module {last[0]}: the network ends in {_type(last[1])} with {outputs} output{'s' if outputs > 1 else ''}"
    possible = {
        ("SoftmaxLayer", True): ["classes", "values"],
        ("SoftmaxLayer", False): ["values"],
        ("SigmoidLayer", True): ["multilabel", "classes", "values"],
        ("SigmoidLayer", False): ["binary", "values"],
        (None, True): ["classes", "multilabel", "values"],
        (None, False): ["values", "binary"],
    }.get((end, outputs > 1), ["values", "classes"] if outputs > 1 else ["values"])
    choices = " or ".join(f'"{kind}"' for kind in possible)
    obvious = {("SoftmaxLayer", True): "classes", ("SigmoidLayer", False): "binary", (None, True): "classes"}
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


# ---- what the caller says -------------------------------------------------------------------------------------------


def _output(output):
    """The caller's `output` as a dictionary, or None."""
    if output is None:
        return None
    output = {"kind": output} if isinstance(output, str) else dict(output)
    unknown = sorted(set(output) - {"kind", "threshold"})
    if unknown:
        raise ExportError(f"output: expected the keys kind and threshold, found {unknown[0]!r}")
    if output.get("kind") not in KINDS:
        raise ExportError(f"output: expected a kind of {', '.join(KINDS)}, found {output.get('kind')!r}")
    if "threshold" in output:
        if output["kind"] not in ("binary", "multilabel"):
            raise ExportError(f"output: a threshold goes with binary and multilabel, found it with {output['kind']!r}")
        output["threshold"] = float(output["threshold"])
        if not 0 < output["threshold"] < 1:
            raise ExportError(f"output: expected a threshold between 0 and 1, found {output['threshold']}")
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
    """`names` as the `features` key. Numbers are a table's default, no names: a header of them would be a record."""
    names = _names("features", names, count)
    if names and all(_is_number(n) for n in names):
        warnings.warn(
            f"features: {names[0]!r} to {names[-1]!r} are all numbers: a CSV header of them cannot be told from a record. They "
            "are left out; write the records without a header (pandas: header=False), or give names with features=[…]",
            stacklevel=3,
        )
        return None
    return names


def _is_number(text):
    """Whether a field of a CSV file with this text is a number (Python's own underscores are none)."""
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text


def _label_count(network):
    return 2 if network.output["kind"] == "binary" else network.outputs


def _check_scale(network):
    """Refuses an `input` key that is not scale and offset, or mean and std, and makes plain numbers of it."""
    if network.scale is None:
        return
    scale = {key: np.asarray(value, np.float64) for key, value in dict(network.scale).items()}
    keys = set(scale)
    if not keys or not (keys <= {"scale", "offset"} or keys <= {"mean", "std"}):
        raise ExportError(f"input: expected scale and offset, or mean and std, found {', '.join(sorted(keys)) or 'no key'}")
    for key, value in scale.items():
        if value.ndim and value.shape != (network.width,):
            raise ExportError(f"input.{key}: expected a number or {network.width} of them, found the shape {value.shape}")
        wrong = np.flatnonzero(~np.isfinite(value) | ((value == 0) & (key in ("scale", "std"))))
        if wrong.size:
            rule = "a finite number other than 0" if key in ("scale", "std") else "a finite number"
            raise ExportError(f"input.{key}: expected {rule}, found {value.ravel()[wrong[0]]} for feature {wrong[0]}")
    other = {"scale": ("offset", 0.0), "offset": ("scale", 1.0), "mean": ("std", 1.0), "std": ("mean", 0.0)}
    for key in keys:
        scale.setdefault(other[key][0], np.float64(other[key][1]))
    network.scale = {key: scale[key].tolist() for key in ("scale", "offset", "mean", "std") if key in scale}


def _scaled(scale, records):
    """What the network sees of raw records, in float64; `scale` is the `input` key or None."""
    if scale is None:
        return records
    if "mean" in scale or "std" in scale:
        return (records - np.asarray(scale.get("mean", 0.0), np.float64)) / np.asarray(scale.get("std", 1.0), np.float64)
    return records * np.asarray(scale.get("scale", 1.0), np.float64) + np.asarray(scale.get("offset", 0.0), np.float64)


def _check_weights(network):
    """Refuses weights that are not finite in float32."""
    for i, (weights, biases) in enumerate(network.affine):
        for what, array in (("weights", weights), ("biases", biases[:, None])):
            wrong = np.argwhere(~np.isfinite(array))
            if wrong.size:
                row, col = wrong[0]
                raise ExportError(
                    f"affine layer {i}, {what}, output {row}{f', input {col}' if what == 'weights' else ''}: "
                    f"expected a finite float32, found {array[row, col]} ({len(wrong)} such values); did the training diverge?"
                )


# ---- golden vectors -------------------------------------------------------------------------------------------------


def _golden(network, inputs, count):
    """`count` of the raw records, shape (n, d), and the framework's scores of them, shape (n, h)."""
    if inputs is None:
        raise ExportError("inputs: expected records in raw units for the golden vectors (or check=0), found None")
    records = np.asarray(inputs, np.float64)
    if records.ndim < 2 or len(records) == 0:
        raise ExportError(f"inputs: expected records as rows, shape (n, {network.width}), found the shape {records.shape}")
    records = records.reshape(len(records), -1)
    if records.shape[1] != network.width:
        raise ExportError(f"inputs: expected {network.width} values a record, found {records.shape[1]}")
    if len(records) > count:
        records = records[np.linspace(0, len(records) - 1, count).round().astype(int)]
    records = _f32(records)  # as the program reads them
    if not np.isfinite(records).all():
        row, col = np.argwhere(~np.isfinite(records))[0]
        raise ExportError(f"inputs: expected finite numbers, found {records[row, col]} in value {col} of a record")
    scores = np.asarray(network.scores(records.astype(np.float64)), np.float64).reshape(len(records), -1)

    written = reference(network.layers, network.scale, network.output, records)
    error = np.abs(written - scores) / np.maximum(1, np.abs(scores))
    if not error.max() <= TOLERANCE:
        row, col = np.unravel_index(np.argmax(error), error.shape)
        raise ExportError(
            f"check: record {row}, output {col}: the framework gives {scores[row, col]:.9g}, the network with float32 weights "
            f"{written[row, col]:.9g}; expected a difference within {TOLERANCE:g}·max(1, |score|). "
            "If the inputs are large, scale them (input=…, StandardScaler) and train again"
        )
    return records, _f32(scores)


def reference(layers, scale, output, records):
    """Scores of raw records in float64, by the definition: without the final activation, except for `values`."""
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
        else:
            weights, biases = layer
            x = x @ weights.T.astype(np.float64) + biases
    return x


# ---- files ----------------------------------------------------------------------------------------------------------


def _write_layers(network, data, files):
    """The `layers` key; the matrix files go into `files` (name to bytes), numbered from 1 by affine layer."""
    entries, number = [], 0
    for layer in network.layers:
        if isinstance(layer, (str, dict)):
            entries.append({"layer": layer} if isinstance(layer, str) else layer)
            continue
        number += 1
        weights, biases = layer
        for part, matrix in (("w", weights), ("b", biases[:, None])):
            files.update(_matrix_files(f"{number}_{part}", matrix, data))
        entries.append({"layer": "AffineLayer", "weights": f"{number}_w.json", "biases": f"{number}_b.json"})
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
    """A line per row, commas between, the shortest digits that read back as the same number of the matrix's type."""
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


# ---- small things ---------------------------------------------------------------------------------------------------


def _f32(array):
    with np.errstate(over="ignore"):  # too large becomes infinite, and that is refused by name
        return np.ascontiguousarray(array, dtype=np.float32)


def _affine(weights, biases):
    """(W, b) in float32, without the remains of weight decay."""
    return tuple(_f32(np.where(np.abs(a) < VANISHED, 0, a)) for a in (weights, biases))


def _type(thing):
    return type(thing).__name__


def _framework_type(model):
    """The model's framework: "torch", "sklearn" or None. Imports neither: the one of a model is loaded already."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(model, torch.nn.Module):
        return "torch"
    base = sys.modules.get("sklearn.base")
    return "sklearn" if base is not None and isinstance(model, base.BaseEstimator) else None
