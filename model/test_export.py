"""Tests of export.py: what is written, read by a small reader of its own, gives the framework's scores and classes.

    python -m unittest model/test_export.py
"""

import json
import sys
import tempfile
import unittest
import warnings
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris, make_multilabel_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, RobustScaler, StandardScaler

sys.path.insert(0, str(Path(__file__).resolve().parent))
from export import ExportError, csv_bytes, export

try:
    import torch
    from torch import nn
except ImportError:
    torch = None
    print("note: torch is not installed; the PyTorch tests are skipped", file=sys.stderr)


class Reader:
    """A model folder, read and computed in float64, by model/README.md and without export.py."""

    def __init__(self, folder):
        self.folder = folder
        self.json = json.loads((folder / "network.json").read_text("utf-8"))
        assert self.json["size"] == len(self.json["layers"])

    def matrix(self, file):
        d = json.loads((self.folder / file).read_text())
        shape, path = (d["rows"], d["cols"]), self.folder / d["file"]
        if d["data_type"] == "csv":
            values = np.array([[np.float32(v) for v in line.split(",")] for line in path.read_text().splitlines()])
        elif d["data_type"] == "npy":
            values = np.load(path)
        else:
            values = np.fromfile(path, "<f4").reshape(shape)
        assert values.shape == shape and values.dtype == np.float32, (values.shape, values.dtype)
        return values.astype(float)

    def records(self, file):
        return np.array([[float(v) for v in line.split(",")] for line in (self.folder / file).read_text().splitlines()])

    def scores(self, raw):
        """Scores of raw records: without the final activation, except for values."""
        x, i = np.asarray(raw, float), self.json.get("input", {})
        if "scale" in i:
            x = x * np.array(i["scale"]) + np.array(i["offset"])
        elif i:
            x = (x - np.array(i["mean"])) / np.array(i["std"])
        for n, layer in enumerate(self.json["layers"]):
            kind = layer["layer"]
            last = n == len(self.json["layers"]) - 1
            if last and kind in ("SoftmaxLayer", "SigmoidLayer", "TanhLayer") and self.json["output"]["kind"] != "values":
                break
            if kind == "AffineLayer":
                x = x @ self.matrix(layer["weights"]).T + self.matrix(layer["biases"])[:, 0]
            elif kind == "ReLULayer":
                x = x * (x > 0)
            elif kind == "LeakyReLULayer":
                x = np.where(x < 0, layer["slope"] * x, x)
            elif kind == "TanhLayer":
                x = np.tanh(x)
            elif kind == "SigmoidLayer":
                x = 1 / (1 + np.exp(-x))
            elif kind == "SoftmaxLayer":
                x = np.exp(x) / np.exp(x).sum(1, keepdims=True)
            else:
                raise AssertionError(kind)
        return x

    def layers(self):
        return [layer["layer"].removesuffix("Layer") for layer in self.json["layers"]]


class Case(unittest.TestCase):
    """Checks that the folders of all tests have in common."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name) / "net"
        warnings.simplefilter("ignore", ConvergenceWarning)

    def export(self, model, inputs, **said):
        """The reader of the exported model; its golden vectors are checked."""
        reader = Reader(export(model, self.folder, inputs=inputs, **said))
        check = reader.json["check"]
        raw, given = reader.records(check["inputs"]), reader.records(check["scores"])
        self.assertEqual(len(raw), min(said.get("check", 64), len(inputs)))
        self.assertClose(reader.scores(raw), given)
        return reader

    def assertClose(self, ours, theirs):
        self.assertEqual(ours.shape, theirs.shape)
        error = np.abs(ours - theirs) / np.maximum(1, np.abs(theirs))
        self.assertLessEqual(error.max(), 1e-4)

    def refused(self, words, model, inputs=((0, 0),), **said):
        """The export ends in an error that has all `words`, and nothing was written."""
        with self.assertRaises(ExportError) as caught:
            export(model, self.folder, inputs=inputs, **said)
        for word in words:
            self.assertIn(word, str(caught.exception))
        self.assertFalse(self.folder.exists())


class ScikitLearn(Case):
    def test_binary_with_scaler(self):
        d = load_breast_cancer()
        names = d.target_names[d.target]
        model = make_pipeline(StandardScaler(), MLPClassifier((8,), max_iter=60, random_state=0)).fit(d.data, names)
        r = self.export(model, d.data, features=d.feature_names)
        self.assertEqual(r.layers(), ["Affine", "ReLU", "Affine", "Sigmoid"])
        self.assertEqual((r.json["output"], r.json["labels"]), ({"kind": "binary"}, ["benign", "malignant"]))
        self.assertEqual(r.json["features"], list(d.feature_names))
        probability = 1 / (1 + np.exp(-r.scores(d.data)[:, 0]))
        self.assertLess(np.abs(probability - model.predict_proba(d.data)[:, 1]).max(), 1e-4)
        self.assertTrue((model.classes_[(probability > 0.5).astype(int)] == model.predict(d.data)).all())

    def test_multi_class(self):
        d = load_iris()
        for activation, layer in (("tanh", "Tanh"), ("logistic", "Sigmoid"), ("relu", "ReLU"), ("identity", None)):
            model = make_pipeline(MinMaxScaler(), MLPClassifier((6, 5), activation=activation, max_iter=80, random_state=1))
            model.fit(d.data, d.target)
            r = self.export(model, d.data)
            hidden = ["Affine", layer] if layer else ["Affine"]
            self.assertEqual(r.layers(), [*hidden, *hidden, "Affine", "Softmax"])
            self.assertEqual((r.json["output"], r.json["labels"]), ({"kind": "classes"}, ["0", "1", "2"]))
            self.assertTrue((r.scores(d.data).argmax(1) == model.predict(d.data)).all())

    def test_scaling_by_the_caller(self):
        d = load_digits()
        model = MLPClassifier((8,), max_iter=15, random_state=0).fit(d.data / 16, d.target)
        r = self.export(model, d.data, input={"scale": 1 / 16}, check=7)
        self.assertEqual(r.json["input"], {"scale": 1 / 16, "offset": 0.0})
        self.assertTrue((r.scores(d.data).argmax(1) == model.predict(d.data / 16)).all())

    def test_multilabel(self):
        x, y = make_multilabel_classification(200, 6, n_classes=4, random_state=0)
        model = MLPClassifier((8,), max_iter=60, random_state=0).fit(x, y)
        r = self.export(model, x, labels=["a", "b", "c", "d"])
        self.assertEqual((r.layers()[-1], r.json["output"]), ("Sigmoid", {"kind": "multilabel"}))
        self.assertTrue(((r.scores(x) > 0) == model.predict(x)).all())

    def test_regressor(self):
        d = load_diabetes()
        for scaler in (StandardScaler(with_mean=False), StandardScaler(with_std=False), "passthrough"):
            model = make_pipeline(scaler, MLPRegressor(hidden_layer_sizes=(6,), activation="tanh", max_iter=40, random_state=0))
            model.fit(d.data, np.stack([d.target, -d.target], 1))
            r = self.export(model, d.data)
            self.assertEqual((r.layers(), r.json["output"]), (["Affine", "Tanh", "Affine"], {"kind": "values"}))
            self.assertClose(r.scores(d.data), model.predict(d.data))

    def test_names_of_a_fitted_frame_and_a_float32_model(self):
        x, y = load_iris(return_X_y=True)
        model = make_pipeline(StandardScaler(), MLPClassifier((4,), max_iter=5)).fit(x.astype(np.float32), y)
        model[0].feature_names_in_ = np.array(["a", "b", "c", "d"], object)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.assertEqual(self.export(model, x).json["features"], ["a", "b", "c", "d"])

    def test_numbers_are_no_names(self):
        """pandas' default columns, as numbers and as text; one name among them is enough for a header."""
        x, y = load_iris(return_X_y=True)
        model = make_pipeline(StandardScaler(), MLPClassifier((4,), max_iter=5)).fit(x, y)
        for names in (range(4), ["0", "1", "2", "3"], np.arange(4), [" 1", "-2.5", "1e3", "nan"]):
            with self.assertWarnsRegex(UserWarning, "features: .* are all numbers.*left out.*header=False"):
                self.assertNotIn("features", self.export(model, x, features=names).json)
        model[0].feature_names_in_ = np.array(["0", "1", "2", "3"], object)
        with self.assertWarns(UserWarning):
            self.assertNotIn("features", self.export(model, x).json)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for names in (["0", "1", "2", "width"], ["1_0", "1_1", "1_2", "1_3"]):
                self.assertEqual(self.export(model, x, features=names).json["features"], names)

    def test_data_types_agree_and_bytes_repeat(self):
        x, y = load_iris(return_X_y=True)
        model = MLPClassifier((5,), max_iter=20, random_state=0).fit(x, y)
        weights = []
        for data in ("csv", "npy", "f32"):
            r = self.export(model, x, data=data, name="Größe")
            first = {p.name: p.read_bytes() for p in self.folder.iterdir()}
            self.export(model, x, data=data, name="Größe")
            self.assertEqual(first, {p.name: p.read_bytes() for p in self.folder.iterdir()})
            weights.append(r.matrix("1_w.json"))
            self.assertTrue((weights[-1] == weights[0]).all())
        self.assertTrue((weights[0] == model.coefs_[0].T.astype(np.float32)).all())

    def test_csv_reads_back_bit_exactly(self):
        bits = np.random.default_rng(0).integers(0, 2**32, 20000, dtype=np.uint64).astype(np.uint32)
        values = bits.view(np.float32)
        values = np.append(values[np.isfinite(values)], np.float32([0, 1, -1, 16, 0.1, 1e-45, 3.4028235e38]))
        read = np.array([np.float32(t) for t in csv_bytes(values[:, None]).decode().split()])
        self.assertTrue((read.view(np.uint32) == values.view(np.uint32)).all())

    def test_vanished_weights_are_zero(self):
        x, y = load_iris(return_X_y=True)
        model = MLPClassifier((5,), max_iter=20, random_state=0).fit(x, y)
        model.coefs_[0][0, :2] = 1e-39, -1e-200
        w = self.export(model, x).matrix("1_w.json")
        self.assertTrue((w[:2, 0] == 0).all() and (w[2:] != 0).all())


class Refused(Case):
    def setUp(self):
        super().setUp()
        self.x, self.y = load_iris(return_X_y=True)
        self.model = MLPClassifier((5,), max_iter=5, random_state=0).fit(self.x, self.y)

    def test_models(self):
        self.refused(["MLPClassifier", "torch.nn.Sequential", "found dict"], {})
        self.refused(["model", "LogisticRegression"], LogisticRegression().fit(self.x, self.y))
        self.refused(["no weights yet", "fit"], MLPClassifier())
        pipeline = make_pipeline(RobustScaler(), self.model).fit(self.x, self.y)
        self.refused(["step 0 (robustscaler)", "StandardScaler or MinMaxScaler", "RobustScaler"], pipeline)
        pipeline = make_pipeline(MinMaxScaler(), StandardScaler(), self.model).fit(self.x, self.y)
        self.refused(["step 1 (standardscaler)", "one scaler", "found 2"], pipeline)
        pipeline = make_pipeline(MinMaxScaler(clip=True), self.model).fit(self.x, self.y)
        self.refused(["clip=True", "expected clip=False"], pipeline)
        pipeline = make_pipeline(StandardScaler(), self.model).fit(self.x, self.y)
        self.refused(["pipeline already scales", "StandardScaler"], pipeline, self.x, input={"scale": 2})

    def test_weights(self):
        self.model.coefs_[1][3, 2] = np.nan
        self.refused(["affine layer 1", "weights", "output 2, input 3", "found nan"], self.model, self.x)
        self.model.coefs_[1][3, 2] = 0
        self.model.intercepts_[0][4] = 1e39  # finite in float64 only
        self.refused(["affine layer 0", "biases", "output 4", "found inf"], self.model, self.x)

    def test_what_the_caller_says(self):
        self.refused(["labels: expected 3 names, found 2"], self.model, self.x, labels=["a", "b"])
        self.refused(["labels[1]", "one line"], self.model, self.x, labels=["a", "b\nc", "d"])
        self.refused(["features: expected 4 names, found 1"], self.model, self.x, features=["a"])
        self.refused(["inputs: expected 4 values a record, found 3"], self.model, self.x[:, :3])
        self.refused(["inputs: expected finite numbers, found nan", "value 2"], self.model, [[1, 2, np.nan, 4]])
        self.refused(["inputs", "check=0", "None"], self.model, None)
        self.refused(["data", "csv, npy, f32", "'txt'"], self.model, self.x, data="txt")
        self.refused(["gives classes", "'values'"], self.model, self.x, output="values")
        self.refused(["expected a kind of classes", "'klasses'"], self.model, self.x, output="klasses")
        self.refused(["threshold", "'classes'"], self.model, self.x, output={"kind": "classes", "threshold": 0.5})
        self.refused(["input: expected scale and offset, or mean and std"], self.model, self.x, input={"scale": 1, "mean": 0})
        self.refused(["input.std", "other than 0", "feature 2"], self.model, self.x, input={"mean": 0, "std": [1, 1, 0, 1]})
        self.refused(["input.scale", "4 of them", "(3,)"], self.model, self.x, input={"scale": [1, 2, 3]})

    def test_precision(self):
        self.model.coefs_[0] = np.ones((4, 5))
        self.model.intercepts_[0][:] = -1e7  # cancels against inputs around 1e7: float32 weights cannot hold it
        self.model.coefs_[0][0] += 1e-5
        inputs = np.array([[1e7, 0, 0, 0], [1e7, 1, 2, 3]])
        self.refused(["check: record", "float32 weights", "scale them"], self.model, inputs)


@unittest.skipIf(torch is None, "torch is not installed")
class PyTorch(Case):
    def setUp(self):
        super().setUp()
        if torch:
            torch.manual_seed(0)
        self.x = np.random.default_rng(0).uniform(0, 255, (90, 12)).round()

    def forward(self, model, scale=1 / 255):
        with torch.no_grad():
            return model.eval()(torch.tensor(self.x * scale, dtype=torch.float32)).double().numpy()

    def test_classes_from_logits(self):
        inner = nn.Sequential(nn.Linear(12, 9), nn.ReLU(), nn.Dropout(0.5))
        model = nn.Sequential(nn.Flatten(), inner, nn.Linear(9, 7, bias=False), nn.Tanh(), nn.Identity(), nn.Linear(7, 3))
        r = self.export(model, self.x.reshape(-1, 1, 3, 4), input={"scale": 1 / 255}, labels=list("abc"))
        self.assertTrue(model.training and inner[2].training)
        self.assertEqual(r.layers(), ["Affine", "ReLU", "Affine", "Tanh", "Affine"])
        self.assertEqual(r.json["output"], {"kind": "classes", "activation": "softmax"})
        self.assertClose(r.scores(self.x), self.forward(model))

    def test_leaky_relu(self):
        model = nn.Sequential(nn.Linear(12, 9), nn.LeakyReLU(0.3), nn.Linear(9, 3), nn.LeakyReLU())
        r = self.export(model, self.x, input={"scale": 1 / 255}, output="values")
        self.assertEqual(r.layers(), ["Affine", "LeakyReLU", "Affine", "LeakyReLU"])
        self.assertEqual([layer.get("slope") for layer in r.json["layers"]], [None, 0.3, None, 0.01])
        self.assertClose(r.scores(self.x), self.forward(model))

    def test_classes_from_softmax(self):
        for dim in (1, -1):
            model = nn.Sequential(nn.Linear(12, 5), nn.Sigmoid(), nn.Linear(5, 4), nn.Softmax(dim=dim))
            r = self.export(model, self.x, input={"mean": 127.5, "std": [100.0] * 12})
            self.assertEqual((r.layers()[-1], r.json["output"]), ("Softmax", {"kind": "classes"}))
            e = np.exp(r.scores(self.x))
            theirs = model(torch.tensor((self.x - 127.5) / 100, dtype=torch.float32)).detach().double().numpy()
            self.assertClose(e / e.sum(1, keepdims=True), theirs)

    def test_binary_and_multilabel(self):
        def linear(n):
            return nn.Sequential(nn.Linear(12, n), nn.Sigmoid())

        said = {"input": {"scale": 1 / 255}}
        model = linear(1)
        r = self.export(model, self.x, labels=["no", "yes"], **said)
        self.assertEqual(r.json["output"], {"kind": "binary"})
        self.assertClose(r.scores(self.x), self.forward(model[:-1]))
        r = self.export(model[:-1], self.x, output={"kind": "binary", "threshold": 0.25}, **said)
        self.assertEqual(r.json["output"], {"kind": "binary", "activation": "sigmoid", "threshold": 0.25})
        r = self.export(linear(3), self.x, output="multilabel", **said)
        self.assertEqual(r.json["output"], {"kind": "multilabel"})
        r = self.export(linear(3)[:-1], self.x, output="multilabel", **said)
        self.assertEqual(r.json["output"], {"kind": "multilabel", "activation": "sigmoid"})

    def test_values_keep_the_final_activation(self):
        for end in (nn.Tanh(), nn.Sigmoid(), nn.ReLU(), nn.Softmax(1), nn.Identity()):
            model = nn.Sequential(nn.Linear(12, 6), nn.Tanh(), nn.Linear(6, 2), end).double()
            r = self.export(model, self.x, output="values", input={"scale": 1 / 255})
            self.assertEqual(r.json["output"], {"kind": "values"})
            self.assertClose(r.scores(self.x), self.forward(model.float()))

    def test_refused(self):
        seq = nn.Sequential
        self.refused(["module 1", "found GELU"], seq(nn.Linear(2, 2), nn.GELU()))
        self.refused(["module 1.0", "found Conv2d"], seq(nn.Linear(2, 2), seq(nn.Conv2d(1, 1, 1))))
        self.refused(["module 1", "LogSoftmax", "leave it out"], seq(nn.Linear(2, 2), nn.LogSoftmax(1)))
        self.refused(["module 0", "Linear first", "ReLU"], seq(nn.ReLU(), nn.Linear(2, 2)))
        self.refused(["module 1", "Softmax", "at the end"], seq(nn.Linear(2, 2), nn.Softmax(1), nn.Linear(2, 2)))
        self.refused(["module 1", "dim=0"], seq(nn.Linear(2, 2), nn.Softmax(0)))
        self.refused(["module 0", "Flatten(1, -1)"], seq(nn.Flatten(0), nn.Linear(2, 2)))
        self.refused(["module 2", "takes 4", "gives 3"], seq(nn.Linear(2, 3), nn.ReLU(), nn.Linear(4, 2)))
        self.refused(["no Linear"], seq(nn.Flatten()))
        self.refused(["torch.nn.Sequential", "found Linear"], nn.Linear(2, 2))
        self.refused(["module 1", "1 output;", '"values" or "binary"'], seq(nn.Linear(2, 3), nn.Linear(3, 1)))
        self.refused(['"multilabel" or "classes" or "values"'], seq(nn.Linear(2, 3), nn.Sigmoid()))
        self.refused(["1 output:", "'classes'"], seq(nn.Linear(2, 1)), output="classes")
        bad = nn.Linear(2, 2)
        bad.weight.data[1, 0] = float("inf")
        self.refused(["affine layer 0", "weights", "output 1, input 0", "found inf"], seq(bad))

    def test_batch_normalisation(self):
        """Refused wherever it stands. (Folding it into the Linear before changes the network behind a ReLU.)"""
        norm, linear, relu = nn.BatchNorm1d(2), nn.Linear(2, 2), nn.ReLU()
        for before in ([linear], [linear, relu], []):
            with self.assertRaises(ExportError) as caught:
                export(nn.Sequential(*before, norm, linear), self.folder, inputs=[[0, 0]])
            for word in (f"module {len(before)}:", "BatchNorm1d", "cannot be exported"):
                self.assertIn(word, str(caught.exception))
            for word in ("fold", "fuse"):
                self.assertNotIn(word, str(caught.exception))

    def test_golden_vectors_are_of_the_model_as_given(self):
        """A module that is left out of the layers, but changes values after all, is found."""
        for end in ([], [nn.Softmax(1)], [nn.Softmax(1), nn.Identity()]):
            changed = nn.Dropout(0.5)
            changed.register_forward_hook(lambda module, given, result: result + 1)
            model = nn.Sequential(nn.Linear(12, 5), changed, nn.ReLU(), nn.Linear(5, 4), *end)
            self.refused(["check: record", "the framework gives"], model, self.x, input={"scale": 1 / 255})

    def test_an_activation_that_is_there_twice(self):
        for act, output in ((nn.Sigmoid(), "multilabel"), (nn.Tanh(), "values")):
            model = nn.Sequential(nn.Linear(12, 5), act, nn.Linear(5, 4), act)
            r = self.export(model, self.x, output=output, input={"scale": 1 / 255})
            self.assertClose(r.scores(self.x), self.forward(model if output == "values" else model[:-1]))

    def test_a_class_of_its_own(self):
        class Linear(nn.Linear):
            def forward(self, x):
                return 2 * super().forward(x)

        self.refused(["module 0", "found"], nn.Sequential(Linear(2, 2)))


if __name__ == "__main__":
    unittest.main()
