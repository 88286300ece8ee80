#!/usr/bin/env python3
"""Trains small networks with scikit-learn, Keras and PyTorch, and exports them in all usual ways.

    tests/exporters/make.py FOLDER FRAMEWORK...

    sklearn     needs scikit-learn and skl2onnx
    keras       needs tensorflow and tf2onnx, and scikit-learn for its images of digits
    torch       needs torch and onnxscript, and scikit-learn for its images of digits

A folder FOLDER/FRAMEWORK-NAME for each network has the files of python/mortonnet and of the
framework's own exporters, and the framework's results for all records:

    network.json                    python/mortonnet: of scikit-learn
    net.onnx, net.json              python/mortonnet: of a torch.nn.Module
    net.tflite, net.json            python/mortonnet: of a Keras model
    skl2onnx.onnx, keras.onnx, keras.tflite, torch.onnx, torch_script.onnx
                                    the framework's own exporter, called as its documentation does
    keras.json, torch.json, …       facts that such a file lacks: the order of the input's values,
                                    their scaling
    inputs.npy                      all records in raw units, shape (n, values), float32
    scores.npy                      their scores before a final softmax or sigmoid, (n, outputs)
    results.npy                     their probabilities
    classes.npy                     the framework's class, as an index, shape (n, 1)
    labels.txt                      names of the classes, if it has any, a line each
"""

import contextlib
import io
import json
import os
import sys
import warnings
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "python"))

SEED = 1


def save(folder, inputs, scores, results, classes, labels=None):
    """Writes what a framework makes of the records."""
    for name, values in (
        ("inputs", inputs),
        ("scores", scores),
        ("results", results),
        ("classes", classes),
    ):
        np.save(folder / f"{name}.npy", np.asarray(values, np.float32).reshape(len(inputs), -1))
    if labels is not None:
        (folder / "labels.txt").write_text("".join(f"{label}\n" for label in labels))


def digits():
    """Images of digits, 8 × 8 pixels of 0 to 16, and the digits."""
    from sklearn.datasets import load_digits

    images, target = load_digits(return_X_y=True)
    return images.reshape(-1, 8, 8).astype(np.float32), target


def three_channels(images):
    """An image, how it changes from left to right and from top to bottom; channels last."""
    right, down = (np.diff(images, axis=axis, prepend=0) for axis in (2, 1))
    return np.stack([images, right, down], axis=3).astype(np.float32)


# ---- scikit-learn
# --------------------------------------------------------------------------------------------------


def sklearn(root):
    from mortonnet import export
    from skl2onnx import to_onnx
    from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MinMaxScaler, StandardScaler

    settings = {"random_state": SEED, "max_iter": 300}
    for name, load, named, model in [
        ("digits", load_digits, False, MLPClassifier((32,), **settings)),
        (
            "wine",
            load_wine,
            False,
            make_pipeline(StandardScaler(), MLPClassifier((16,), **settings)),
        ),
        (
            "cancer",
            load_breast_cancer,
            True,
            make_pipeline(StandardScaler(), MLPClassifier((12, 8), activation="tanh", **settings)),
        ),
        (
            "iris",
            load_iris,
            True,
            make_pipeline(MinMaxScaler(), MLPClassifier((10,), activation="logistic", **settings)),
        ),
    ]:
        data = load()
        target = data.target_names[data.target] if named else data.target
        records = data.data.astype(np.float32)
        model.fit(records.astype(np.float64), target)
        folder = export(model, root / f"sklearn-{name}", inputs=records)
        (folder / "skl2onnx.onnx").write_bytes(to_onnx(model, records[:1]).SerializeToString())
        # In float64, from the numbers that are piped into the program.
        seen = records.astype(np.float64)
        results, given = model.predict_proba(seen), model.predict(seen)
        if results.shape[1] == 2:  # of two classes the network has the second one's score
            results = results[:, 1:]
            scores = np.log(results) - np.log1p(-results)
        else:
            scores = before_softmax(model, seen)
        labels = list(model.classes_)
        save(folder, records, scores, results, [labels.index(c) for c in given], labels)


def before_softmax(model, records):
    """scikit-learn's own forward pass without the last function."""
    mlp = model
    if hasattr(model, "steps"):
        records, mlp = model[:-1].transform(records), model[-1]
    last, mlp.out_activation_ = mlp.out_activation_, "identity"
    scores = mlp._forward_pass_fast(records, check_input=False)
    mlp.out_activation_ = last
    return scores


# ---- Keras
# --------------------------------------------------------------------------------------------------


def keras(root):
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import tensorflow as tf
    from mortonnet import export
    from tensorflow import keras

    keras.utils.set_random_seed(SEED)
    images, target = digits()
    records = three_channels(images) / 16
    layers = keras.layers
    model = keras.Sequential(
        [
            layers.Input(records.shape[1:]),
            layers.Conv2D(12, 3, padding="same", use_bias=False),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.MaxPooling2D(),
            layers.SeparableConv2D(24, 3, strides=2, padding="same", activation="relu6"),
            layers.BatchNormalization(),
            layers.Dropout(0.1),
            layers.Flatten(),
            layers.Dense(24, activation="tanh"),
            layers.Dense(10),
            layers.Softmax(),
        ]
    )
    model.compile("adam", "sparse_categorical_crossentropy")
    model.fit(records, target, epochs=8, verbose=0)
    folder = root / "keras-cnn"
    export(model, folder, inputs=records)
    results = model.predict(records, verbose=0)
    scores = keras.Model(model.inputs, model.layers[-2].output).predict(records, verbose=0)
    save(folder, records, scores, results, results.argmax(1))
    (folder / "keras.tflite").write_bytes(tf.lite.TFLiteConverter.from_keras_model(model).convert())
    model.export(folder / "keras.onnx", format="onnx", verbose=False)


# ---- PyTorch
# --------------------------------------------------------------------------------------------------


def torch(root):
    import torch
    from mortonnet import export
    from torch import nn

    def conv(inputs, outputs, kernel=3, stride=1, groups=1):
        border = kernel // 2
        weights = nn.Conv2d(inputs, outputs, kernel, stride, border, groups=groups, bias=False)
        return nn.Sequential(weights, nn.BatchNorm2d(outputs))

    class Residual(nn.Module):
        """Two convolutions beside a value, or beside one of 1 × 1 where the size changes."""

        def __init__(self, inputs, outputs, stride):
            super().__init__()
            self.long = nn.Sequential(
                conv(inputs, outputs, 3, stride), nn.ReLU(), conv(outputs, outputs)
            )
            self.short = nn.Identity() if inputs == outputs else conv(inputs, outputs, 1, stride)

        def forward(self, x):
            return torch.relu(self.long(x) + self.short(x))

    class Cnn(nn.Module):
        """A module as tutorials write it: functions and a view in `forward`."""

        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Conv2d(1, 10, 3, padding=1), nn.Conv2d(10, 20, 3)
            self.third, self.fourth, self.dropout = (
                nn.Linear(80, 30),
                nn.Linear(30, 10),
                nn.Dropout(0.1),
            )

        def forward(self, x):
            x = nn.functional.max_pool2d(torch.relu(self.first(x)), 2)
            x = torch.relu(self.second(x))
            x = torch.relu(self.third(x.view(x.size(0), -1)))
            return self.fourth(self.dropout(x))

    def residual():
        blocks = [Residual(12, 12, 1), Residual(12, 20, 2)]
        end = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(20, 10)]
        return nn.Sequential(conv(3, 12), nn.ReLU(), *blocks, *end)

    def mobile():
        layers = [conv(3, 16, 3), nn.Hardswish()]
        for inputs, outputs, kernel, stride in ((16, 24, 3, 2), (24, 24, 5, 1), (24, 32, 3, 2)):
            layers += [conv(inputs, inputs, kernel, stride, inputs), nn.Hardswish()]
            layers += [conv(inputs, outputs, 1), nn.Hardswish()]
        return nn.Sequential(
            *layers, nn.AvgPool2d(2), nn.Flatten(), nn.Linear(32, 10), nn.Softmax(dim=1)
        )

    images, target = digits()
    for name, made, records, order in [
        ("cnn", Cnn, images[:, None], "chw"),
        ("residual", residual, three_channels(images), "hwc"),
        ("mobile", mobile, three_channels(images).transpose(0, 3, 1, 2), "chw"),
    ]:
        torch.manual_seed(SEED)
        model, records = made(), np.ascontiguousarray(records)
        # Trained on sixteenths: a scaling that rounds nothing.
        seen = np.moveaxis(records, 3, 1) if order == "hwc" else records
        seen = torch.from_numpy(np.ascontiguousarray(seen) / 16)
        last = model[-1] if name == "mobile" else nn.Identity()
        train(torch, model, seen, torch.from_numpy(target), isinstance(last, nn.Softmax))
        folder, key = root / f"torch-{name}", {"scale": 1 / 16, "order": order}
        export(model, folder, inputs=records, input=key)
        caught = []
        watch = last.register_forward_pre_hook(lambda _, given: caught.append(given[0]))
        with torch.no_grad():
            given = model(seen)
        watch.remove()
        scores, results = (caught[-1], given) if caught else (given, torch.softmax(given, 1))
        save(folder, records, scores, results, given.argmax(1))
        torch.onnx.export(model, (seen[:1],), str(folder / "torch.onnx"))
        torch.onnx.export(model, (seen[:1],), str(folder / "torch_script.onnx"), dynamo=False)
        for file in ("torch", "torch_script"):
            (folder / f"{file}.json").write_text(json.dumps({"input": key}) + "\n")


def train(torch, model, seen, target, probabilities):
    """Six epochs; leaves the model as it is used."""
    optimiser = torch.optim.Adam(model.parameters(), 3e-3)
    loss = torch.nn.NLLLoss() if probabilities else torch.nn.CrossEntropyLoss()
    model.train()
    for _ in range(6):
        for part in torch.randperm(len(seen)).split(64):
            optimiser.zero_grad()
            found = model(seen[part])
            loss(torch.log(found + 1e-9) if probabilities else found, target[part]).backward()
            optimiser.step()
    model.eval()


def main(arguments):
    known = {"sklearn": sklearn, "keras": keras, "torch": torch}
    if len(arguments) < 2 or any(name not in known for name in arguments[1:]):
        sys.exit(__doc__)
    warnings.simplefilter("ignore")
    for name in arguments[1:]:
        # The exporters tell of their progress.
        with contextlib.redirect_stdout(io.StringIO()):
            known[name](Path(arguments[0]))


if __name__ == "__main__":
    main(sys.argv[1:])
