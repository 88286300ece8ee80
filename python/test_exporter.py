"""Tests of the exporter: a small reader of its own gets the framework's scores from the files.

python -m unittest python/test_exporter.py
"""

import json
import sys
import tempfile
import unittest
import warnings
from pathlib import Path

import numpy as np
from sklearn.compose import ColumnTransformer, make_column_transformer
from sklearn.datasets import (
    load_breast_cancer,
    load_diabetes,
    load_digits,
    load_iris,
    load_wine,
    make_multilabel_classification,
)
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    PolynomialFeatures,
    RobustScaler,
    StandardScaler,
)

sys.path.insert(0, str(Path(__file__).resolve().parent))
from mortonnet.exporter import ExportError, csv_bytes, export

try:
    import torch
    from torch import nn
except ImportError:
    torch = None
try:
    import onnx
    import onnxruntime
except ImportError:
    onnx = None
if torch is None:
    print("note: torch is not installed; the PyTorch tests are skipped", file=sys.stderr)


class Reader:
    """A model folder, read by model/README.md and computed in float64."""

    def __init__(self, folder):
        self.folder = folder
        self.json = json.loads((folder / "network.json").read_text("utf-8"))
        assert self.json["size"] == len(self.json["layers"])

    def matrix(self, file):
        d = json.loads((self.folder / file).read_text())
        shape, path = (d["rows"], d["cols"]), self.folder / d["file"]
        if d["data_type"] == "csv":
            values = np.array(
                [[np.float32(v) for v in line.split(",")] for line in path.read_text().splitlines()]
            )
        elif d["data_type"] == "npy":
            values = np.load(path)
        else:
            values = np.fromfile(path, "<f4").reshape(shape)
        assert values.shape == shape and values.dtype == np.float32, (values.shape, values.dtype)
        return values.astype(float)

    def records(self, file):
        return np.array(
            [
                [float(np.float32(v)) for v in line.split(",")]
                for line in (self.folder / file).read_text().splitlines()
            ]
        )

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
            if (
                last
                and kind in ("SoftmaxLayer", "SigmoidLayer", "TanhLayer")
                and self.json["output"]["kind"] != "values"
            ):
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
        model = make_pipeline(
            StandardScaler(), MLPClassifier((8,), max_iter=60, random_state=0)
        ).fit(d.data, names)
        r = self.export(model, d.data, features=d.feature_names)
        self.assertEqual(r.layers(), ["Affine", "ReLU", "Affine", "Sigmoid"])
        self.assertEqual(
            (r.json["output"], r.json["labels"]), ({"kind": "binary"}, ["benign", "malignant"])
        )
        self.assertEqual(r.json["features"], list(d.feature_names))
        probability = 1 / (1 + np.exp(-r.scores(d.data)[:, 0]))
        self.assertLess(np.abs(probability - model.predict_proba(d.data)[:, 1]).max(), 1e-4)
        self.assertTrue(
            (model.classes_[(probability > 0.5).astype(int)] == model.predict(d.data)).all()
        )

    def test_multi_class(self):
        d = load_iris()
        for activation, layer in (
            ("tanh", "Tanh"),
            ("logistic", "Sigmoid"),
            ("relu", "ReLU"),
            ("identity", None),
        ):
            model = make_pipeline(
                MinMaxScaler(),
                MLPClassifier((6, 5), activation=activation, max_iter=80, random_state=1),
            )
            model.fit(d.data, d.target)
            r = self.export(model, d.data)
            hidden = ["Affine", layer] if layer else ["Affine"]
            self.assertEqual(r.layers(), [*hidden, *hidden, "Affine", "Softmax"])
            self.assertEqual(
                (r.json["output"], r.json["labels"]), ({"kind": "classes"}, ["0", "1", "2"])
            )
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
        for scaler in (
            StandardScaler(with_mean=False),
            StandardScaler(with_std=False),
            "passthrough",
        ):
            model = make_pipeline(
                scaler,
                MLPRegressor(
                    hidden_layer_sizes=(6,), activation="tanh", max_iter=40, random_state=0
                ),
            )
            model.fit(d.data, np.stack([d.target, -d.target], 1))
            r = self.export(model, d.data)
            self.assertEqual(
                (r.layers(), r.json["output"]), (["Affine", "Tanh", "Affine"], {"kind": "values"})
            )
            self.assertClose(r.scores(d.data), model.predict(d.data))

    def test_names_of_a_fitted_frame_and_a_float32_model(self):
        x, y = load_iris(return_X_y=True)
        model = make_pipeline(StandardScaler(), MLPClassifier((4,), max_iter=5)).fit(
            x.astype(np.float32), y
        )
        model[0].feature_names_in_ = np.array(["a", "b", "c", "d"], object)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.assertEqual(self.export(model, x).json["features"], ["a", "b", "c", "d"])

    def test_numbers_are_no_names(self):
        """pandas' default columns, as numbers and as text; one name is enough for a header."""
        x, y = load_iris(return_X_y=True)
        model = make_pipeline(StandardScaler(), MLPClassifier((4,), max_iter=5)).fit(x, y)
        for names in (range(4), ["0", "1", "2", "3"], np.arange(4), [" 1", "-2.5", "1e3", "nan"]):
            with self.assertWarnsRegex(
                UserWarning, "features: .* are all numbers.*left out.*header=False"
            ):
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

    def test_records_to_quantize_with_are_written(self):
        x, y = load_digits(return_X_y=True)
        model = MLPClassifier((8,), max_iter=20, random_state=0).fit(x, y)
        reader = self.export(model, x, quantize=x.reshape(-1, 8, 8)[:150])
        records = np.load(self.folder / reader.json["quantize"])
        np.testing.assert_array_equal(records, x[:150].astype(np.float32))
        self.assertNotIn("quantize", Reader(export(model, self.folder, inputs=x)).json)
        self.folder = self.folder / "other"
        self.refused(["quantize", "100", "(99, 64)"], model, x, quantize=x[:99])
        self.refused(["quantize", "64 values", "(150, 63)"], model, x, quantize=x[:150, 1:])
        self.refused(["quantize", "finite"], model, x, quantize=np.where(x > 15, np.nan, x))

    def test_csv_reads_back_bit_exactly(self):
        bits = np.random.default_rng(0).integers(0, 2**32, 20000, dtype=np.uint64).astype(np.uint32)
        values = bits.view(np.float32)
        values = np.append(
            values[np.isfinite(values)], np.float32([0, 1, -1, 16, 0.1, 1e-45, 3.4028235e38])
        )
        read = np.array([np.float32(t) for t in csv_bytes(values[:, None]).decode().split()])
        self.assertTrue((read.view(np.uint32) == values.view(np.uint32)).all())

    def test_vanished_weights_are_zero(self):
        x, y = load_iris(return_X_y=True)
        model = MLPClassifier((5,), max_iter=20, random_state=0).fit(x, y)
        model.coefs_[0][0, :2] = 1e-39, -1e-200
        w = self.export(model, x).matrix("1_w.json")
        self.assertTrue((w[:2, 0] == 0).all() and (w[2:] != 0).all())


def classifier(*steps, seed=0):
    """A pipeline of these steps and a small network, which need not be good."""
    return make_pipeline(*steps, MLPClassifier((6,), max_iter=40, random_state=seed))


class Pipelines(Case):
    """Steps before a model."""

    def setUp(self):
        super().setUp()
        self.x, self.y = load_wine(return_X_y=True)

    def same(self, model, x=None):
        """The exported model, whose classes and scores are the model's on all records."""
        x = self.x if x is None else x
        r = self.export(model, x)
        ours = np.exp(r.scores(x))
        self.assertClose(ours / ours.sum(1, keepdims=True), model.predict_proba(x))
        self.assertTrue((ours.argmax(1) == model.predict(x)).all())
        return r

    def test_scalers_are_the_input_key(self):
        for scaler, keys in (
            (RobustScaler(), ["mean", "std"]),
            (RobustScaler(with_centering=False, unit_variance=True), ["mean", "std"]),
            (RobustScaler(with_scaling=False), ["mean", "std"]),
            (MaxAbsScaler(), ["mean", "std"]),
            (make_pipeline(StandardScaler(), "passthrough", MinMaxScaler()), ["scale", "offset"]),
            (
                make_pipeline(MaxAbsScaler(), make_pipeline(RobustScaler(), StandardScaler())),
                ["scale", "offset"],
            ),
        ):
            r = self.same(classifier(scaler).fit(self.x, self.y))
            self.assertEqual((list(r.json["input"]), r.matrix("1_w.json").shape), (keys, (6, 13)))

    def test_pca_is_part_of_the_first_layer_where_that_is_smaller(self):
        for whiten in (False, True):
            model = classifier(StandardScaler(), PCA(9, whiten=whiten), MinMaxScaler()).fit(
                self.x, self.y
            )
            r = self.same(model)
            self.assertEqual(
                (r.layers(), r.matrix("1_w.json").shape),
                (["Affine", "ReLU", "Affine", "Softmax"], (6, 13)),
            )
            r = self.same(
                make_pipeline(
                    PCA(2, whiten=whiten), MLPClassifier((9,), max_iter=9, random_state=0)
                ).fit(self.x, self.y)
            )
            self.assertEqual(r.layers(), ["Affine", "Affine", "ReLU", "Affine", "Softmax"])
            self.assertEqual(
                (r.matrix("1_w.json").shape, r.matrix("2_w.json").shape), ((2, 13), (9, 2))
            )
            self.assertEqual(r.json["input"]["scale"], [1.0] * 13)
        self.same(classifier(PCA(5), StandardScaler(), PCA(3)).fit(self.x, self.y))

    def test_columns(self):
        """Scalers of some columns: in another order, left out, twice, with weights of their own."""
        for transformer, width in (
            (
                make_column_transformer(
                    (StandardScaler(), [4, 0]),
                    (MinMaxScaler(), slice(7, 10)),
                    remainder="passthrough",
                ),
                13,
            ),
            (
                make_column_transformer(
                    (RobustScaler(), [12, 1, 3]), ("passthrough", [5]), ("drop", [6])
                ),
                4,
            ),
            (make_column_transformer((StandardScaler(), [2, 3]), (MaxAbsScaler(), [3, 4])), 4),
            (
                make_column_transformer(
                    (make_pipeline(StandardScaler(), PCA(2)), [2, 3, 9, 11]), (MaxAbsScaler(), [0])
                ),
                3,
            ),
            (
                ColumnTransformer(
                    [("a", StandardScaler(), [1, 2]), ("b", MinMaxScaler(), np.arange(13) > 6)],
                    transformer_weights={"a": 2.5},
                ),
                8,
            ),
            (make_column_transformer((StandardScaler(), lambda x: [0, 12])), 2),
        ):
            model = classifier(transformer).fit(self.x, self.y)
            self.assertEqual(model[-1].coefs_[0].shape[0], width)
            r = self.same(model)
            # The PCA keeps so few values that it is a layer of its own.
            self.assertEqual(r.matrix("1_w.json").shape, (3 if width == 3 else 6, 13))

    def test_columns_far_from_zero_keep_their_digits(self):
        x = self.x.copy()
        x[:, 3] = 101325 + x[:, 3] / 100
        self.same(
            classifier(make_column_transformer((StandardScaler(), [3, 1, 0]))).fit(x, self.y), x
        )

    def test_columns_by_name(self):
        try:
            import pandas
        except ImportError:
            self.skipTest("pandas is not installed")
        names = load_wine().feature_names
        frame = pandas.DataFrame(self.x, columns=names)
        for columns in ([names[3], names[0]], slice(names[2], names[5])):
            transformer = make_column_transformer(
                (StandardScaler(), columns), (MinMaxScaler(), names[8:9]), remainder="passthrough"
            )
            model = classifier(transformer).fit(frame, self.y)
            r = self.export(model, frame)
            self.assertEqual(r.json["features"], names)
            self.assertTrue((r.scores(self.x).argmax(1) == model.predict(frame)).all())

    def test_linear_models(self):
        for model, kind in (
            (make_pipeline(StandardScaler(), LogisticRegression(max_iter=200)), "classes"),
            (
                make_pipeline(RobustScaler(), PCA(4), LogisticRegression(fit_intercept=False)),
                "classes",
            ),
        ):
            r = self.same(model.fit(self.x, self.y))
            self.assertEqual(
                (r.layers()[-2:], r.json["output"]), (["Affine", "Softmax"], {"kind": kind})
            )
        d = load_breast_cancer()
        model = make_pipeline(StandardScaler(), LogisticRegression()).fit(
            d.data, d.target_names[d.target]
        )
        r = self.export(model, d.data)
        self.assertEqual(
            (r.layers(), r.json["output"]), (["Affine", "Sigmoid"], {"kind": "binary"})
        )
        self.assertEqual(r.json["labels"], ["benign", "malignant"])
        self.assertClose(r.scores(d.data)[:, 0], model.decision_function(d.data))
        d = load_diabetes()
        for target in (d.target, np.stack([d.target, -d.target], 1)):
            for model in (
                LinearRegression(),
                make_pipeline(MaxAbsScaler(), LinearRegression(fit_intercept=False)),
            ):
                r = self.export(model.fit(d.data, target), d.data)
                self.assertEqual((r.layers(), r.json["output"]), (["Affine"], {"kind": "values"}))
                self.assertClose(r.scores(d.data), model.predict(d.data).reshape(len(d.data), -1))

    def test_searches(self):
        pipeline = Pipeline([("scale", StandardScaler()), ("net", LogisticRegression())])
        search = GridSearchCV(pipeline, {"net__C": [0.01, 1]}, cv=2).fit(self.x, self.y)
        r = self.same(search)
        self.assertClose(r.scores(self.x), search.best_estimator_.decision_function(self.x))
        inner = RandomizedSearchCV(
            LogisticRegression(), {"C": [0.01, 1]}, n_iter=2, cv=2, random_state=0
        )
        self.same(make_pipeline(StandardScaler(), inner).fit(self.x, self.y))

    def test_refused(self):
        fit = lambda *steps: make_pipeline(*steps, LogisticRegression()).fit(
            self.x[:60], self.y[:60]
        )
        self.refused(
            ["step 1 (polynomialfeatures)", "PCA", "found PolynomialFeatures"],
            fit(StandardScaler(), PolynomialFeatures()),
        )
        columns = make_column_transformer((PolynomialFeatures(), [0, 1]))
        self.refused(
            ["step 0 (columntransformer), polynomialfeatures:", "found PolynomialFeatures"],
            fit(columns),
        )
        columns = make_column_transformer((MaxAbsScaler(), [0]), (MinMaxScaler(clip=True), [1]))
        self.refused(["minmaxscaler: MinMaxScaler(clip=True)"], fit(columns))
        self.refused(
            ["LogisticRegression or LinearRegression, found Ridge"],
            make_pipeline(StandardScaler(), Ridge()).fit(self.x, self.y),
        )
        self.refused(
            ["step 0 (pca)", "this PCA has not seen data"],
            make_pipeline(PCA(), fit(StandardScaler())[-1]),
        )
        self.refused(["found StandardScaler"], make_pipeline(StandardScaler()))
        self.refused(
            ["GridSearchCV has no best estimator", "fit"], GridSearchCV(LogisticRegression(), {})
        )
        model = LogisticRegression().fit(self.x, self.y)
        model.solver = "liblinear"
        self.refused(["one class against the rest"], model)


class Refused(Case):
    def setUp(self):
        super().setUp()
        self.x, self.y = load_iris(return_X_y=True)
        self.model = MLPClassifier((5,), max_iter=5, random_state=0).fit(self.x, self.y)

    def test_models(self):
        self.refused(["MLPClassifier", "torch.nn.Module", "found dict"], {})
        self.refused(["no weights yet", "fit"], MLPClassifier())
        self.refused(["no weights yet", "fit"], LogisticRegression())
        pipeline = make_pipeline(MinMaxScaler(clip=True), self.model).fit(self.x, self.y)
        self.refused(["clip=True", "expected clip=False"], pipeline)
        pipeline = make_pipeline(StandardScaler(), self.model).fit(self.x, self.y)
        self.refused(
            ["pipeline already scales", "StandardScaler"], pipeline, self.x, input={"scale": 2}
        )

    def test_files(self):
        for file, way in (
            ("a/net.onnx", "MORTONNET_MODEL"),
            ("net.tflite", "MORTONNET_MODEL"),
            ("net.keras", "load_model"),
            ("net.H5", "load_model"),
            (Path("net.pt"), "torch.nn.Module"),
            ("net.pkl", "load it"),
            ("net", "load it"),
        ):
            self.refused(["found the path of a file", str(file), way], file)

    def test_weights(self):
        self.model.coefs_[1][3, 2] = np.nan
        self.refused(
            ["affine layer 1", "weights", "output 2, input 3", "found nan"], self.model, self.x
        )
        self.model.coefs_[1][3, 2] = 0
        self.model.intercepts_[0][4] = 1e39  # finite in float64 only
        self.refused(["affine layer 0", "biases", "output 4", "found inf"], self.model, self.x)

    def test_what_the_caller_says(self):
        self.refused(["labels: expected 3 names, found 2"], self.model, self.x, labels=["a", "b"])
        self.refused(["labels[1]", "one line"], self.model, self.x, labels=["a", "b\nc", "d"])
        self.refused(["features: expected 4 names, found 1"], self.model, self.x, features=["a"])
        self.refused(["inputs: expected 4 values a record, found 3"], self.model, self.x[:, :3])
        self.refused(
            ["inputs: expected finite numbers, found nan", "value 2"],
            self.model,
            [[1, 2, np.nan, 4]],
        )
        self.refused(["inputs", "check=0", "None"], self.model, None)
        self.refused(["data", "csv, npy, f32", "'txt'"], self.model, self.x, data="txt")
        self.refused(["gives classes", "'values'"], self.model, self.x, output="values")
        self.refused(
            ["expected a kind of classes", "'klasses'"], self.model, self.x, output="klasses"
        )
        self.refused(
            ["threshold", "'classes'"],
            self.model,
            self.x,
            output={"kind": "classes", "threshold": 0.5},
        )
        self.refused(
            ["input: expected scale and offset, or mean and std"],
            self.model,
            self.x,
            input={"scale": 1, "mean": 0},
        )
        self.refused(
            ["input.std", "other than 0", "feature 2"],
            self.model,
            self.x,
            input={"mean": 0, "std": [1, 1, 0, 1]},
        )
        self.refused(
            ["input.scale", "4 of them", "(3,)"], self.model, self.x, input={"scale": [1, 2, 3]}
        )

    def test_precision(self):
        self.model.coefs_[0] = np.ones((4, 5))
        self.model.intercepts_[0][
            :
        ] = -1e7  # cancels against inputs around 1e7: float32 weights cannot hold it
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
        model = nn.Sequential(
            nn.Flatten(),
            inner,
            nn.Linear(9, 7, bias=False),
            nn.Tanh(),
            nn.Identity(),
            nn.Linear(7, 3),
        )
        r = self.export(
            model, self.x.reshape(-1, 1, 3, 4), input={"scale": 1 / 255}, labels=list("abc")
        )
        self.assertTrue(model.training and inner[2].training)
        self.assertEqual(r.layers(), ["Affine", "ReLU", "Affine", "Tanh", "Affine"])
        self.assertEqual(r.json["output"], {"kind": "classes", "activation": "softmax"})
        self.assertClose(r.scores(self.x), self.forward(model))

    def test_leaky_relu(self):
        model = nn.Sequential(nn.Linear(12, 9), nn.LeakyReLU(0.3), nn.Linear(9, 3), nn.LeakyReLU())
        r = self.export(model, self.x, input={"scale": 1 / 255}, output="values")
        self.assertEqual(r.layers(), ["Affine", "LeakyReLU", "Affine", "LeakyReLU"])
        self.assertEqual(
            [layer.get("slope") for layer in r.json["layers"]], [None, 0.3, None, 0.01]
        )
        self.assertClose(r.scores(self.x), self.forward(model))

    def test_classes_from_softmax(self):
        for dim in (1, -1):
            model = nn.Sequential(
                nn.Linear(12, 5), nn.Sigmoid(), nn.Linear(5, 4), nn.Softmax(dim=dim)
            )
            r = self.export(model, self.x, input={"mean": 127.5, "std": [100.0] * 12})
            self.assertEqual((r.layers()[-1], r.json["output"]), ("Softmax", {"kind": "classes"}))
            e = np.exp(r.scores(self.x))
            theirs = (
                model(torch.tensor((self.x - 127.5) / 100, dtype=torch.float32))
                .detach()
                .double()
                .numpy()
            )
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
        self.assertEqual(
            r.json["output"], {"kind": "binary", "activation": "sigmoid", "threshold": 0.25}
        )
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
        self.refused(["module 1", "dim=0"], seq(nn.Linear(2, 2), nn.Softmax(0)))
        self.refused(["module 1", "Flatten(1, -1)"], seq(nn.Linear(2, 2), nn.Flatten(0)))
        self.refused(
            ["module 2", "takes 4", "gives 3"], seq(nn.Linear(2, 3), nn.ReLU(), nn.Linear(4, 2))
        )
        self.refused(
            ["module 1", "1 output;", '"values" or "binary"'], seq(nn.Linear(2, 3), nn.Linear(3, 1))
        )
        self.refused(['"multilabel" or "classes" or "values"'], seq(nn.Linear(2, 3), nn.Sigmoid()))
        self.refused(["1 output:", "'classes'"], seq(nn.Linear(2, 1)), output="classes")
        bad = nn.Linear(2, 2)
        bad.weight.data[1, 0] = float("inf")
        self.refused(["affine layer 0", "weights", "output 1, input 0", "found inf"], seq(bad))

    def test_golden_vectors_are_of_the_model_as_given(self):
        """A module that is left out of the layers, but changes values after all, is found."""
        for end in ([], [nn.Softmax(1)], [nn.Softmax(1), nn.Identity()]):
            changed = nn.Dropout(0.5)
            changed.register_forward_hook(lambda module, given, result: result + 1)
            model = nn.Sequential(nn.Linear(12, 5), changed, nn.ReLU(), nn.Linear(5, 4), *end)
            self.refused(
                ["check: record", "the framework gives"], model, self.x, input={"scale": 1 / 255}
            )

    def test_an_activation_that_is_there_twice(self):
        for act, output in ((nn.Sigmoid(), "multilabel"), (nn.Tanh(), "values")):
            model = nn.Sequential(nn.Linear(12, 5), act, nn.Linear(5, 4), act)
            r = self.export(model, self.x, output=output, input={"scale": 1 / 255})
            self.assertClose(
                r.scores(self.x), self.forward(model if output == "values" else model[:-1])
            )

    def test_what_is_no_chain_goes_through_onnx(self):
        class Linear(nn.Linear):
            def forward(self, x):
                return 2 * super().forward(x)

        for model in (
            nn.Sequential(Linear(2, 2)),
            nn.Sequential(nn.Linear(2, 2), nn.GELU()),
            nn.Linear(2, 2),
            nn.Sequential(nn.ReLU(), nn.Linear(2, 2)),
            nn.Sequential(nn.Linear(2, 2), nn.Softmax(1), nn.Linear(2, 2)),
        ):
            self.refused(["inputs", "torch.onnx.export", "None"], model, None)


@unittest.skipIf(torch is None or onnx is None, "torch, onnx and onnxruntime are not all installed")
class Onnx(Case):
    """Modules that go through torch.onnx.export."""

    def setUp(self):
        super().setUp()
        if torch:
            torch.manual_seed(0)
        self.images = np.random.default_rng(0).integers(0, 256, (9, 3, 8, 6)).astype(np.uint8)

    def network(self, *end):
        norm = nn.BatchNorm2d(4)
        norm.running_mean.uniform_(-1, 1)
        norm.running_var.uniform_(0.5, 2)
        front = [nn.Conv2d(3, 4, 3, padding=1), norm, nn.Hardswish(), nn.AvgPool2d(2), nn.Flatten()]
        return nn.Sequential(*front, nn.Linear(48, 5), *end)

    def written(self, model, inputs, **said):
        """net.json, and ONNX Runtime's scores and results for the scaled golden vectors."""
        file = export(model, self.folder, inputs=inputs, **said)
        self.assertEqual(file, self.folder / "net.onnx")
        self.assertFalse((self.folder / "network.json").exists())
        definition = json.loads((self.folder / "net.json").read_text("utf-8"))
        raw = np.load(self.folder / "check_inputs.npy").astype(float).reshape(-1, *inputs.shape[1:])
        self.assertEqual(len(raw), min(said.get("check", 64), len(inputs)))
        i = definition.get("input", {})
        axis = {"chw": 1, "hwc": 3}.get(i.get("order"), 1)

        def at(key, otherwise):
            v = np.array(i.get(key, otherwise), float)
            if v.size == raw[0].size:
                return v.reshape(raw.shape[1:])
            return v.reshape([-1 if a == axis else 1 for a in range(raw.ndim)])

        x = (
            raw * at("scale", 1) + at("offset", 0)
            if "mean" not in i
            else (raw - at("mean", 0)) / at("std", 1)
        )
        x = x.transpose(0, 3, 1, 2) if i.get("order") == "hwc" else x
        session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
        results = session.run(None, {session.get_inputs()[0].name: x.astype(np.float32)})[0]
        for part in onnx.load(file).graph.node:
            self.assertFalse(part.metadata_props)
        self.assertNotIn(str(Path(__file__).parent).encode(), file.read_bytes())
        return definition, np.load(self.folder / "check_scores.npy"), results

    def test_scores_are_those_of_onnx_runtime(self):
        model = self.network()
        self.assertTrue(model.training)
        for said in (
            {"scale": 1 / 255},
            {"mean": [120.0, 90.0, 30.0], "std": [50.0, 60.0, 70.0]},
            {"scale": [0.01] * 144},
        ):
            d, scores, results = self.written(
                model, self.images, input=said, labels="abcde", check=7
            )
            self.assertTrue(model.training)
            self.assertClose(results, scores)
            self.assertEqual(
                (d["output"], d["labels"]),
                ({"kind": "classes", "activation": "softmax"}, list("abcde")),
            )
            self.assertEqual(d["input"]["order"], "chw")
        last = self.images.transpose(0, 2, 3, 1)
        d, hwc, results = self.written(
            model,
            last,
            input={"order": "hwc", "mean": [120.0, 90.0, 30.0], "std": [50.0, 60.0, 70.0]},
        )
        self.assertClose(results, hwc)
        _, chw, _ = self.written(
            model, self.images, input={"mean": [120.0, 90.0, 30.0], "std": [50.0, 60.0, 70.0]}
        )
        self.assertTrue((hwc == chw).all())
        self.assertEqual(
            d["input"], {"order": "hwc", "mean": [120.0, 90.0, 30.0], "std": [50.0, 60.0, 70.0]}
        )

    def test_the_last_activation_is_no_part_of_the_scores(self):
        class Functional(nn.Module):
            def __init__(self, network, function):
                super().__init__()
                self.network, self.function = network, function

            def forward(self, x):
                return self.function(self.network(x))

        scaled = {"input": {"scale": 1 / 255}}
        for end in (nn.Softmax(1), nn.Softmax(-1)):
            for model in (
                self.network(end),
                Functional(self.network(), lambda x, end=end: torch.softmax(x, dim=end.dim)),
            ):
                d, scores, results = self.written(model, self.images, **scaled)
                e = np.exp(scores)
                self.assertClose(e / e.sum(1, keepdims=True), results)
                self.assertEqual(d["output"], {"kind": "classes"})
                d, scores, results = self.written(model, self.images, output="values", **scaled)
                self.assertClose(scores, results)
        d, scores, results = self.written(
            Functional(self.network(), torch.sigmoid), self.images, output="multilabel", **scaled
        )
        self.assertClose(1 / (1 + np.exp(-scores)), results)
        self.assertEqual(d["output"], {"kind": "multilabel"})

    def test_records_that_are_rows(self):
        x = np.random.default_rng(1).normal(size=(20, 4))
        model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.GELU(), nn.Linear(6, 2))
        d, scores, results = self.written(model, x, features=list("abcd"), name="rows")
        self.assertClose(results, scores)
        self.assertEqual((d["name"], d["features"], "input" in d), ("rows", list("abcd"), False))
        files = {p.name: p.read_bytes() for p in self.folder.iterdir()}
        self.written(model, x, features=list("abcd"), name="rows")
        self.assertEqual(files, {p.name: p.read_bytes() for p in self.folder.iterdir()})

    def test_refused(self):
        model = self.network()
        self.refused(
            ["does not take inputs of shape (9, 3, 8, 5)"],
            nn.Sequential(model),
            self.images[..., :5],
        )
        self.refused(
            ["ends in Sigmoid with 5 outputs", '"multilabel"'],
            self.network(nn.Sigmoid()),
            self.images,
        )
        self.refused(["inputs", "the shape (9,)"], model, np.zeros(9))
        self.refused(["input.order", "'whc'"], model, self.images, input={"order": "whc"})
        self.refused(
            ["input.scale", "3 or 144", "(2,)"], model, self.images, input={"scale": [1, 2]}
        )
        self.refused(["labels: expected 5 names, found 2"], model, self.images, labels=["a", "b"])
        model[5].weight.data[0, 0] = float("nan")
        self.refused(["parameter 5.weight", "finite"], model, self.images)

        class Two(nn.Module):
            def forward(self, x):
                return x, x

        self.refused(["expected one tensor", "found tuple"], Two(), self.images)


if __name__ == "__main__":
    unittest.main()
