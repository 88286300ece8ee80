"""Random scikit-learn models that python/mortonnet exports, judged by themselves in float64.

The graph is read from the files that the exporter writes. Only the bounds come from it. The
expected answers are what the model's predict, predict_proba and decision_function make of the raw
records.
"""

import io
import json
import pathlib
import sys
import tempfile
import warnings

import numpy as np
from sklearn import (
    compose,
    decomposition,
    linear_model,
    model_selection,
    neural_network,
    pipeline,
    preprocessing,
)

import json_graphs
from graph import Refused, Unfit
from json_graphs import JsonGraph

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))
from mortonnet import ExportError, export

DATA = ("csv", "npy", "f32")
LABELS = {
    "texts": lambda n: [f"class {i}" for i in range(n)],
    "integers": lambda n: [3 * i - 2 for i in range(n)],
    "floats": lambda n: [i + 1.0 for i in range(n)],
    "booleans": lambda n: [False, True],
}


class ExportedGraph(JsonGraph):
    format = "exported"

    def __init__(self, random):
        super().__init__(random)
        self.whole, self.tags = True, []

    def said(self, op, *tags):
        """Notes what a model has."""
        self.tags += [(op, tag, "", "float64") for tag in tags or ["-"]]

    def seed(self):
        return self.int(0, 2**31 - 1)


def scaler(g, width):
    op = g.among(["StandardScaler", "MinMaxScaler", "MaxAbsScaler", "RobustScaler"])
    keys = {
        "StandardScaler": lambda: {"with_mean": g.chance(0.7), "with_std": g.chance(0.7)},
        "MinMaxScaler": lambda: {"feature_range": g.among([(0, 1), (-1, 1), (2, 5)])},
        "MaxAbsScaler": dict,
        "RobustScaler": lambda: {
            "with_centering": g.chance(0.7),
            "with_scaling": g.chance(0.7),
            "unit_variance": g.chance(0.3),
        },
    }[op]()
    tags = [
        f"range {v[0]} to {v[1]}" if k == "feature_range" else f"{k} {v}" for k, v in keys.items()
    ]
    g.said(op, *tags)
    return getattr(preprocessing, op)(**keys), width


def pca(g, width):
    kept, whiten = g.int(1, width), g.chance(0.3)
    g.said("PCA", f"whiten {whiten}", "all components" if kept == width else "some components")
    return decomposition.PCA(kept, whiten=whiten, random_state=0), kept


def columns(g, width):
    """A ColumnTransformer of two parts. A column may be in both."""
    if width < 2:
        return scaler(g, width)
    parts, total, used = [], 0, set()
    for name in ("first", "second"):
        way = g.among(["numbers", "slice", "mask", "one number"])
        a = g.int(0, width - 1)
        b = g.int(a, width - 1) + 1
        chosen = np.sort(g.random.permutation(width)[: g.int(1, width)])
        given, taken = {
            "numbers": lambda: ([int(i) for i in g.random.permutation(chosen)], chosen),
            "slice": lambda: (slice(a, b), np.arange(a, b)),
            "mask": lambda: (np.isin(np.arange(width), chosen), chosen),
            "one number": lambda: ([a], [a]),
        }[way]()
        what = g.among(["scaler", "scaler", "pca", "pipeline", "passthrough", "drop"])
        step, count = {
            "scaler": lambda: scaler(g, len(taken)),
            "pca": lambda: pca(g, len(taken)),
            "pipeline": lambda: chain(g, len(taken)),
            "passthrough": lambda: ("passthrough", len(taken)),
            "drop": lambda: ("drop", 0),
        }[what]()
        g.said("ColumnTransformer", f"columns by {way}", what)
        parts.append((name, step, given))
        used |= {int(i) for i in taken}
        total += count
    rest = g.among(["drop", "passthrough"])
    total += len(set(range(width)) - used) if rest == "passthrough" else 0
    weights = {"first": 0.5, "second": -2.0} if g.chance(0.3) else None
    g.said("ColumnTransformer", f"remainder {rest}", *(["transformer_weights"] if weights else []))
    if not total:
        raise Unfit
    return compose.ColumnTransformer(parts, remainder=rest, transformer_weights=weights), total


def chain(g, width):
    steps = []
    for _ in range(g.int(1, 2)):
        step, width = g.among([scaler, scaler, pca])(g, width)
        steps.append(step)
    if g.chance(0.3):
        steps.insert(0, "passthrough")
        g.said("Pipeline", "passthrough")
    g.said("Pipeline", "within")
    return pipeline.make_pipeline(*steps), width


def centres(step):
    """True if a step takes the mean, or the like, off each column."""
    return isinstance(step, preprocessing.MinMaxScaler) or any(
        getattr(step, key, False) for key in ("with_mean", "with_centering")
    )


def learner(g):
    """A model without weights, its kind, its number of outputs, and a function for targets."""
    models = ["MLPClassifier", "MLPRegressor", "LogisticRegression", "LinearRegression"]
    op = g.among(["MLPClassifier", *models])
    if op in ("MLPClassifier", "LogisticRegression"):
        kind = g.among(["classes", "binary"] + (["multilabel"] if op == "MLPClassifier" else []))
        n = g.int(3, 6) if kind == "classes" else 2 if kind == "binary" else g.int(2, 5)
        g.said(op, kind)
        # Each class, and each of several labels, occurs.
        target = lambda count: (np.arange(count)[:, None] >> np.arange(n)) & 1
        if kind != "multilabel":
            names = g.among([k for k in LABELS if k != "booleans" or kind == "binary"])
            labels = np.array(LABELS[names](n))
            g.said(op, f"labels {names}")
            target = lambda count: labels[np.arange(count) % n]
    else:
        kind, n = "values", g.int(1, 4)
        flat = n == 1 and g.chance(0.5)
        g.said(op, "one value" if n == 1 else "several values")
        target = lambda count: g.random.normal(0, 1, count if flat else (count, n))
    if op.startswith("MLP"):
        hidden = tuple(g.int(1, 20) for _ in range(g.int(1, 3)))
        activation = g.among(["identity", "relu", "logistic", "tanh"])
        g.said(op, f"activation {activation}", f"hidden layers {len(hidden)}")
        keys = {"hidden_layer_sizes": hidden, "activation": activation, "random_state": g.seed()}
        keys["max_iter"] = g.among([1, 10])
        return getattr(neural_network, op)(**keys), kind, n, target
    keys = {"fit_intercept": g.chance(0.7)}
    if op == "LogisticRegression":
        keys |= {"max_iter": g.among([1, 20]), "C": g.among([0.1, 10.0]), "solver": "lbfgs"}
        if kind == "binary" and g.chance(0.3):
            keys["solver"] = "liblinear"
    g.said(op, *[f"{k} {v}" for k, v in keys.items() if k in ("fit_intercept", "solver")])
    return getattr(linear_model, op)(**keys), kind, n, target


def with_weights(g, model):
    """Random weights instead of those that were learned."""
    normal = lambda a: g.random.normal(0, 2 / np.sqrt(a.shape[0] if a.ndim > 1 else 4), a.shape)
    if hasattr(model, "coefs_"):
        model.coefs_ = [normal(a) for a in model.coefs_]
        model.intercepts_ = [normal(a) for a in model.intercepts_]
    else:
        model.coef_ = np.asarray(normal(np.asarray(model.coef_)))
    g.said(type(model).__name__, "weights set")


def fitted(step):
    """A step with the steps within it."""
    inner = [s for _, s in getattr(step, "steps", [])]
    inner += [s for _, s, _ in getattr(step, "transformers_", [])]
    inner += [step.best_estimator_] if hasattr(step, "best_estimator_") else []
    return [step] + [found for s in inner for found in fitted(s)]


def draw(random, aims=()):
    """A model, or `Unfit`."""
    g = ExportedGraph(random)
    width = g.int(1, 16)
    g.model, kind, outputs, target = learner(g)
    steps, kept = [], width
    for _ in range(g.among([0, 0, 1, 1, 2, 3])):
        step, kept = g.among([scaler, scaler, pca, columns, chain])(g, kept)
        steps.append(step)
    g.spread = g.random.uniform(0.2, 2, width) * g.among([1, 50])
    g.centre = g.random.normal(0, g.among([0, 1, 30]), width)
    if steps and centres(steps[0]) and g.chance(0.5):
        # Sensors far from 0, like a barometer's 101 325 ± 300 Pa.
        g.centre = g.random.normal(0, 1e4, width)
        g.said("input", "far from 0")
    arguments = {"data": g.among(DATA), "check": g.among([0, 8, 64])}
    if steps:
        g.model = pipeline.make_pipeline(*steps, g.model)
        g.said("Pipeline", f"{len(steps)} steps before")
    elif g.chance(0.5):
        arguments["input"] = scaling(g, width)
    g.input_key = arguments.get("input")
    if g.chance(0.1):
        g.model = model_selection.GridSearchCV(g.model, {}, cv=2)
        g.said("GridSearchCV")
    count = 40
    raw = rows(g, count, g.random)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        g.model.fit(scaled(g, raw), target(count))
    for step in fitted(g.model):
        variances = getattr(step, "explained_variance_", np.ones(1))
        if variances.min() < 1e-6 * variances.max():
            # Columns that depend on each other: whitening, or a scaler behind it, divides by what
            # is left of rounding.
            raise Unfit("whitened rounding")
    last = fitted(g.model)[-1]
    if g.chance(0.5):
        with_weights(g, last)
    if kind in ("binary", "multilabel") and g.chance(0.3):
        threshold = round(float(g.random.uniform(0.2, 0.8)), 2)
        arguments["output"] = {"kind": kind, "threshold": threshold}
        g.said("output", "threshold")
    if g.chance(0.2):
        arguments["labels"] = [f"name {i}" for i in range(outputs)]
        g.said("output", "labels given")
    if g.chance(0.3):
        arguments["features"] = [f"feature {i}" for i in range(width)]
        g.said("input", "features")
    g.said("files", f"data {arguments['data']}", f"check {arguments['check']}")
    with tempfile.TemporaryDirectory() as folder:
        try:
            export(g.model, folder, inputs=raw, **arguments)
        except ExportError as e:
            raise Refused(f"{e} ({g.model}, {arguments})") from e
        paths = [pathlib.Path(folder) / "network.json", *sorted(pathlib.Path(folder).glob("[!n]*"))]
        g.files = {path.name: path.read_bytes() for path in paths}
    read(g, width)
    answers(g, last, kind, arguments)
    g.nodes[-1].hits = g.tags + [(op, "type", "", "float64") for op in {t[0] for t in g.tags}]
    return g


def scaling(g, width):
    """The scaling of records that the caller does before the model sees them."""
    keys = g.among([["scale"], ["scale", "offset"], ["mean", "std"], ["offset"]])
    each, key = g.chance(0.5), {}
    for k in keys:
        values = g.random.uniform(0.3, 1.5, width if each else 1)
        values *= -1 if k != "std" and g.chance(0.5) else 1
        key[k] = values.tolist() if each else float(values[0])
        g.said("input", f"{k} {'values' if each else 'number'}")
    return key


def scaled(g, raw):
    """The model's inputs for raw records, in float64."""
    x, key = raw.astype(np.float64), g.input_key or {}
    if "mean" in key or "std" in key:
        return (x - np.asarray(key.get("mean", 0.0))) / np.asarray(key.get("std", 1.0))
    return x * np.asarray(key.get("scale", 1.0)) + np.asarray(key.get("offset", 0.0))


def rows(g, count, random):
    return (random.normal(0, 1, (count, len(g.centre))) * g.spread + g.centre).astype(np.float32)


def read(g, width):
    """The layers of the files, for the bounds."""
    definition = json.loads(g.files["network.json"])

    def matrix(name):
        said = json.loads(g.files[name])
        data, kind = g.files[said["file"]], said["data_type"]
        if kind == "npy":
            return np.load(io.BytesIO(data))
        if kind == "f32":
            return np.frombuffer(data, "<f4").reshape(said["rows"], said["cols"])
        return np.array([line.split(",") for line in data.decode().split()], np.float32)

    key = definition.get("input", {})
    wide = lambda k, default: np.broadcast_to(np.asarray(key.get(k, default), np.float64), width)
    factor = wide("scale", 1.0) / wide("std", 1.0)
    summand = wide("offset", 0.0) - wide("mean", 0.0) / wide("std", 1.0)
    raw = g.input([width], "float32")
    x = g.layer("input", [raw], [width, 1, 1], {}, [g.weight(factor), g.weight(summand)])
    for layer in definition["layers"]:
        arrays = [g.matrix(matrix(layer[k])) for k in ("weights", "biases") if k in layer]
        shape = [len(g.weights[arrays[0]]), 1, 1] if arrays else g.shapes[x][1:]
        x = g.layer(layer["layer"], [x], shape, {}, arrays)
    g.outputs = [x]


def answers(g, last, kind, arguments):
    """The form of the answers, and which of the model's functions gives them."""
    node = g.nodes[-1]
    g.function, g.final = "predict", kind
    if kind == "values":
        return g.said("predict", "values")
    option = g.among(["probs", "class", "label"] + ["scores"] * hasattr(last, "decision_function"))
    if option == "scores":
        g.function, g.scores = "decision_function", node.inputs[0]
    else:
        g.function, g.option, g.scores = "predict_proba", option, node.outputs[0]
        g.both = option == "probs" and kind == "binary"
    g.said(g.function if option in ("probs", "scores") else "predict", kind, f"-o {option}")
    if option in ("class", "label"):
        g.answer = {"classes": "class", "multilabel": "flags"}.get(kind, kind)
        g.threshold = arguments.get("output", {}).get("threshold", 0.5)
        g.labels = arguments.get("labels") or [str(c) for c in last.classes_]


def records(g, count, random):
    """Raw records of the distribution that the model was fitted with."""
    return {g.inputs[0]: rows(g, count, random)}


def written(g):
    return g.files


class Judge(json_graphs.Judge):
    def values(self, feeds):
        g = self.g
        found = super().values(feeds)
        x = scaled(g, feeds[g.inputs[0]])
        given = getattr(g.model, g.function)(x).reshape(len(x), -1)
        if g.function == "predict_proba" and g.final != "multilabel":
            # predict says the same, and so `class` and `label` are judged by it.
            labels = list(g.model.classes_)
            if [labels[i] for i in given.argmax(1)] != g.model.predict(x).tolist():
                raise Unfit("predict is not the likeliest class")
        name = g.scores or g.outputs[0]
        given = given[:, 1:] if g.final == "binary" and g.function == "predict_proba" else given
        found[name] = given.reshape(found[name].shape)
        return found


PROMISED = """
MLPClassifier: classes, binary, multilabel, weights set
MLPClassifier: hidden layers 1, hidden layers 2, hidden layers 3
MLPClassifier: activation identity, activation relu, activation logistic, activation tanh
MLPClassifier: labels texts, labels integers, labels floats, labels booleans
MLPRegressor: one value, several values, weights set
MLPRegressor: activation identity, activation relu, activation logistic, activation tanh
LogisticRegression: classes, binary, weights set, fit_intercept True, fit_intercept False
LogisticRegression: solver lbfgs, solver liblinear
LogisticRegression: labels texts, labels integers, labels floats, labels booleans
LinearRegression: one value, several values, fit_intercept True, fit_intercept False, weights set
StandardScaler: with_mean True, with_mean False, with_std True, with_std False
MinMaxScaler: range 0 to 1, range -1 to 1, range 2 to 5
MaxAbsScaler: -
RobustScaler: with_centering True, with_centering False, with_scaling True, with_scaling False
RobustScaler: unit_variance True, unit_variance False
PCA: whiten True, whiten False, all components, some components
GridSearchCV: -
ColumnTransformer: columns by numbers, columns by slice, columns by mask, columns by one number
ColumnTransformer: scaler, pca, pipeline, passthrough, drop, transformer_weights
ColumnTransformer: remainder drop, remainder passthrough
Pipeline: within, passthrough, 1 steps before, 2 steps before, 3 steps before
input: scale number, scale values, offset number, offset values, mean number, mean values
input: std number, std values, features, far from 0
output: threshold, labels given
files: data csv, data npy, data f32, check 0, check 8, check 64
predict: values, classes, binary, multilabel, -o class, -o label
predict_proba: classes, binary, multilabel
decision_function: classes, binary
"""
"""The models, the steps and their tags that the exporter takes."""


def promised():
    """The entries of the table that must not be empty."""
    lines = [line.split(": ") for line in PROMISED.strip().splitlines()]
    return [(op, tag, "", "float64") for op, tags in lines for tag in tags.split(", ")]
