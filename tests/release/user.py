#!/usr/bin/env python3
"""Uses the wheel without Rust and a C compiler; started by tests/release/run and tests/fresh.

usage: user.py FOLDER [--fresh] [CLASS]      FOLDER: the sources; CLASS: User, Torch or Keras
  --fresh     on a system that cannot run programs of boards, and has the Debian package installed.
              Otherwise target/boards of the sources runs them, and the package is unpacked in
              target/release-user/deb
"""

import logging
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import numpy as np

import mortonnet

ROOT, FRESH, CLASS = Path(sys.argv[1]), "--fresh" in sys.argv, sys.argv[-1]
BOARDS = (
    {} if FRESH else {board: ROOT / f"target/boards/run-{board}" for board in ("armv7", "aarch64")}
)
ABSENT = ("cc", "gcc", "clang", "cargo", "rustc", "zig", "ld", "as")


def on_board(board):
    """The launcher of a board's programs here; it may use what the user's PATH does not have."""
    return ["/usr/bin/env", "PATH=/usr/bin:/bin:/usr/sbin:/sbin", BOARDS[board]]


class Baking(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def everywhere(self, model, records, expected, *, device="host", **said):
        """Bakes `model` for three machines; compares classes with `expected`, and scores."""
        scores = {}
        for target in ("x86_64", *BOARDS):
            path = mortonnet.bake(model, self.folder / target, target=target, **said)
            how = {"device": device, "launcher": on_board(target) if target in BOARDS else ()}
            np.testing.assert_array_equal(mortonnet.run(path, records, **how), expected, target)
            scores[target] = mortonnet.run(path, records, "scores", **how)
            np.testing.assert_allclose(scores[target], scores["x86_64"], rtol=1e-4, atol=1e-4)
        told = subprocess.run(
            [self.folder / "x86_64", "--selftest", "-d", device], capture_output=True, text=True
        )
        self.assertEqual(told.returncode, 0, told.stderr)
        return scores["x86_64"]


class User(Baking):
    def test_no_compiler_is_there(self):
        self.assertEqual([name for name in ABSENT if shutil.which(name)], [])

    def test_scikit_learn(self):
        from sklearn.datasets import load_digits
        from sklearn.neural_network import MLPClassifier
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        x, y = load_digits(return_X_y=True)
        names = np.array(
            ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
        )[y]
        model = make_pipeline(
            StandardScaler(), MLPClassifier((32,), random_state=0, max_iter=60)
        ).fit(x, names)
        labels = model.predict(x)
        self.everywhere(model, x, labels, inputs=x)
        program = self.folder / "x86_64"
        np.testing.assert_array_equal(
            mortonnet.run(program, x[:50], "label", device="host"), labels[:50]
        )
        indices = mortonnet.run(program, x[:50], "class", device="host")
        np.testing.assert_array_equal(model.classes_[indices], labels[:50])
        probabilities = mortonnet.run(program, x[:50], "probs", device="host")
        np.testing.assert_allclose(probabilities, model.predict_proba(x[:50]), atol=1e-4)
        # Without anything said, and in bytes.
        with self.assertLogs("mortonnet", logging.INFO) as told:
            path = mortonnet.bake(model, self.folder / "bytes", weights="i8:20")
        self.assertIn("baked bytes: ", "".join(told.output))
        self.assertGreater((mortonnet.run(path, x, device="host") == labels).mean(), 0.97)

    def test_values_and_several_labels(self):
        from sklearn.datasets import load_diabetes, make_multilabel_classification
        from sklearn.neural_network import MLPClassifier, MLPRegressor

        x, y = load_diabetes(return_X_y=True)
        model = MLPRegressor(hidden_layer_sizes=(8,), random_state=0, max_iter=50).fit(x, y)
        path = mortonnet.bake(model, self.folder / "values", inputs=x)
        values = mortonnet.run(path, x, device="host")
        self.assertEqual((values.shape, values.dtype), ((len(x), 1), np.float32))
        np.testing.assert_allclose(values[:, 0], model.predict(x), rtol=1e-4)
        x, y = make_multilabel_classification(200, 12, n_classes=4, random_state=0)
        model = MLPClassifier((8,), random_state=0, max_iter=100).fit(x, y)
        path = mortonnet.bake(model, self.folder / "labels", inputs=x)
        np.testing.assert_array_equal(
            mortonnet.run(path, x, device="host"), model.predict(x).astype(bool)
        )
        with self.assertRaisesRegex(ValueError, "several labels"):
            mortonnet.run(path, x, "label")

    def test_files(self):
        for name in ("mlp", "cnn"):
            model = ROOT / f"tests/onnx/{name}.onnx"
            records = np.load(model.with_name(f"{name}.inputs.npy"))
            scores = np.load(model.with_name(f"{name}.outputs.npy")).reshape(len(records), -1)
            self.everywhere(model, records, scores.argmax(1))
        command = [
            sys.executable,
            "-m",
            "mortonnet",
            "bake",
            ROOT / "model/digits",
            "--target",
            "armv7",
            "-o",
            "classify",
        ]
        told = subprocess.run(command, cwd=self.folder, capture_output=True, text=True)
        self.assertEqual(told.returncode, 0, told.stderr)
        self.assertIn("classify: ", told.stderr)
        test = np.loadtxt(ROOT / "model/digits/test.csv", delimiter=",")
        labels = np.loadtxt(ROOT / "model/digits/test_labels.csv", dtype=int)
        if BOARDS:
            classes = mortonnet.run(
                self.folder / "classify", test, launcher=on_board("armv7"), device="host"
            )
            self.assertEqual((classes == labels).sum(), 587)

    def test_command_line(self):
        def python(*arguments):
            return subprocess.run(
                [sys.executable, "-m", "mortonnet", *arguments], capture_output=True, text=True
            )

        self.assertIn("bake MODEL", python("--help").stdout)
        self.assertRegex(python("--version").stdout, r"^mortonnet-bake \d")
        self.assertIn("--target", python("bake", "--help").stdout)
        self.assertEqual(
            [python().returncode, python("cake").returncode, python("bake").returncode], [2, 2, 2]
        )
        self.assertIn("found 'cake'", python("cake").stderr)

    def test_mistakes(self):
        with self.assertRaisesRegex(mortonnet.BakeError, "none.onnx"):
            mortonnet.bake("none.onnx", self.folder / "x")
        bad = self.folder / "network.json"
        bad.write_text('{"layers":[{"layer":"AffineLayer"},{"layer":"Other"}],"size":3}')
        with self.assertRaises(mortonnet.BakeError) as caught:
            mortonnet.bake(bad, self.folder / "x")
        self.assertGreater(len(str(caught.exception).splitlines()), 2)
        with self.assertRaisesRegex(TypeError, "labels: goes with a model that is no file"):
            mortonnet.bake(bad, self.folder / "x", labels=["a", "b"])
        with self.assertRaisesRegex(mortonnet.ExportError, "found the path of a file"):
            mortonnet.export("net.onnx", self.folder / "x", inputs=None)
        with self.assertRaisesRegex(mortonnet.BakeError, "--target: expected one of"):
            mortonnet.bake(ROOT / "model/digits", self.folder / "x", target="arm")
        self.assertFalse((self.folder / "x").exists())

    def test_a_program_answers_array_after_array(self):
        path = mortonnet.bake(ROOT / "model/digits", self.folder / "digits")
        test = np.loadtxt(ROOT / "model/digits/test.csv", delimiter=",")
        classes = mortonnet.run(path, test, device="host")
        self.assertEqual((classes.shape, classes.dtype), ((597,), np.int64))
        with mortonnet.Program(path, device="host", arguments=["-b", "7"]) as digits:
            self.assertEqual((digits.model, digits.inputs, digits.outputs), ("digits", 64, 10))
            for n in (0, 1, 3, 597):
                np.testing.assert_array_equal(digits(test[:n]), classes[:n])
            # One record, flat, as an image, and as an array of one.
            self.assertEqual(digits(test[5]), classes[5])
            self.assertEqual(digits(test[5].reshape(8, 8)), classes[5])
            self.assertEqual(digits(test[5:6].reshape(1, 8, 8)).tolist(), [classes[5]])
            for wrong, message in [
                (test[:, :63], r"shape \(n, 64\), found the shape \(597, 63\)"),
                (3.0, "found the shape"),
                (np.where(np.arange(64) == 3, np.nan, test[:2]), "record 0, value 3"),
                (np.full((1, 64), 1e300), "record 0, value 0"),
            ]:
                with self.assertRaisesRegex(ValueError, message):
                    digits(wrong)
            np.testing.assert_array_equal(digits(test[10:20]), classes[10:20])
            large = np.tile(test, (100, 1))  # more than any pipe holds, both ways
            np.testing.assert_array_equal(digits(large), np.tile(classes, 100))
        with self.assertRaisesRegex(mortonnet.ProgramError, "has ended"):
            digits(test)
        # A record that overflows ends the program: what was answered before it is there.
        bad = test[:9].copy()
        bad[6] = np.where(np.arange(64) // 2 % 2, 3e38, -3e38)
        with self.assertRaisesRegex(mortonnet.ProgramError, "record 7 .*overflow") as caught:
            mortonnet.run(path, bad, device="host")
        np.testing.assert_array_equal(caught.exception.answers, classes[:6])
        for wrong, error in [
            ({"output": "json"}, ValueError),
            ({"device": "none"}, mortonnet.ProgramError),
            ({"arguments": ["--none"]}, ValueError),
        ]:
            with self.assertRaises(error):
                mortonnet.run(path, test, **wrong)
        with self.assertRaises(mortonnet.ProgramError):
            mortonnet.run("/bin/false", test)
        with self.assertRaises(FileNotFoundError):
            mortonnet.run(self.folder / "none", test)

    def test_the_debian_package(self):
        command = [
            "/usr/bin/mortonnet-bake"
            if FRESH
            else ROOT / "target/release-user/deb/usr/bin/mortonnet-bake",
            ROOT / "model/digits",
            "-o",
            "digits",
        ]
        for target in ("x86_64", *BOARDS):
            told = subprocess.run(
                [*command, "--target", target], cwd=self.folder, capture_output=True, text=True
            )
            self.assertEqual(told.returncode, 0, told.stderr)
            start = on_board(target) if target in BOARDS else []
            line = [
                "-d",
                "host",
                "--expect",
                ROOT / "model/digits/test_labels.csv",
                ROOT / "model/digits/test.csv",
            ]
            run = subprocess.run(
                [*start, self.folder / "digits", *line], capture_output=True, text=True
            )
            self.assertEqual(run.stderr.splitlines()[-1], "mortonnet: 587 of 597")


class Torch(Baking):
    def test_torch(self):
        import torch
        from torch import nn

        torch.manual_seed(0)
        x = np.random.default_rng(0).uniform(0, 255, (200, 1, 8, 8)).astype(np.float32)
        for number, model in enumerate(
            [
                nn.Sequential(nn.Flatten(), nn.Linear(64, 20), nn.ReLU(), nn.Linear(20, 5)),
                nn.Sequential(
                    nn.Conv2d(1, 6, 3),
                    nn.BatchNorm2d(6),
                    nn.ReLU(),
                    nn.MaxPool2d(2),
                    nn.Flatten(),
                    nn.Linear(54, 5),
                ),
            ]
        ):
            model.eval()
            with torch.no_grad():
                expected = model(torch.from_numpy(x / 255)).numpy()
            records = x.reshape(200, 64) if number == 0 else x
            scores = self.everywhere(
                model, records, expected.argmax(1), inputs=records, input={"scale": 1 / 255}
            )
            np.testing.assert_allclose(scores, expected, atol=1e-4)


class Keras(Baking):
    """(In a process of its own: TensorFlow and PyTorch bring an LLVM each, which do not meet.)"""

    def test_keras(self):
        os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
        import keras
        from keras import layers

        keras.utils.set_random_seed(0)
        x = np.random.default_rng(0).uniform(0, 255, (100, 8, 8, 3)).astype(np.float32)
        head = [
            layers.Input((8, 8, 3)),
            layers.Conv2D(6, 3),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.Flatten(),
        ]
        for end, before in [
            ([layers.Dense(5, activation="softmax")], 0),
            ([layers.Dense(5), layers.Softmax()], 1),
            ([layers.Dense(5), layers.Activation("softmax")], 1),
            ([layers.Dense(5)], None),
        ]:
            model = keras.Sequential([*head, *end])
            expected = np.asarray(model(x / 255))
            self.everywhere(model, x, expected.argmax(1), inputs=x, input={"scale": 1 / 255})
            found = mortonnet.run(
                self.folder / "x86_64", x, "scores" if before is None else "probs", device="host"
            )
            np.testing.assert_allclose(found, expected, atol=1e-4)
        first = x.transpose(0, 3, 1, 2)
        path = mortonnet.bake(
            model, self.folder / "chw", inputs=first, input={"order": "chw", "scale": 1 / 255}
        )
        np.testing.assert_array_equal(mortonnet.run(path, first, device="host"), expected.argmax(1))
        path = mortonnet.bake(
            keras.Sequential([*head, layers.Dense(1, activation="sigmoid")]), self.folder / "binary"
        )
        self.assertEqual(set(mortonnet.run(path, x, device="host").tolist()) | {0, 1}, {0, 1})
        with self.assertRaisesRegex(mortonnet.ExportError, "inputs: expected records"):
            mortonnet.export(model, self.folder / "x", inputs=None)
        with self.assertRaisesRegex(mortonnet.ExportError, "not built yet"):
            mortonnet.bake(keras.Sequential([layers.Dense(3)]), self.folder / "x")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], defaultTest=CLASS)
