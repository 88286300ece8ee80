"""Tests of the package's co-process: a call gives the answers to its array, or an error.

    python -m unittest python/test_running.py

MORTONNET_TEST_PROGRAM is a program with model/digits (else target/debug/mortonnet). mortonnet-bake
is found on the PATH (else beside target/debug/mortonnet, where tests/run builds it).
"""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "python"))
import mortonnet
from mortonnet.baking import tool

PROGRAM = os.environ.get("MORTONNET_TEST_PROGRAM", str(ROOT / "target/debug/mortonnet"))
RECORDS = np.loadtxt(ROOT / "model/digits/test.csv", delimiter=",")


class Interrupted(Exception):
    pass


class Digits(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.classes = mortonnet.run(PROGRAM, RECORDS, "class", device="host")

    def program(self, output="class", **how):
        program = mortonnet.Program(PROGRAM, output, **({"device": "host"} | how))
        self.addCleanup(program.close)
        return program

    def test_a_call_that_is_interrupted_ends_the_program(self):
        def interrupt(signal, frame):
            raise Interrupted

        before = signal.signal(signal.SIGALRM, interrupt)
        self.addCleanup(signal.signal, signal.SIGALRM, before)
        large, ended = np.tile(RECORDS, (400, 1)), 0
        for delay in (0.001, 0.03, 0.06, 0.1):
            program = self.program()
            np.testing.assert_array_equal(program(RECORDS[:10]), self.classes[:10])
            try:
                signal.setitimer(signal.ITIMER_REAL, delay)
                program(large)
                self.fail("it was not interrupted")
            except Interrupted:
                pass
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            # Nobody gets the answers to the records of before, nor waits for ever.
            begun = time.monotonic()
            for _ in range(2):
                try:
                    found = program(RECORDS[100:110])
                except mortonnet.ProgramError as e:
                    self.assertRegex(str(e), "has ended|interrupted")
                    self.assertIsNotNone(program._process.poll())
                    ended += 1
                else:
                    np.testing.assert_array_equal(found, self.classes[100:110])
            self.assertLess(time.monotonic() - begun, 10)
        self.assertGreaterEqual(ended, 2, "records were on their way")

    def test_threads_take_turns(self):
        wrong, errors = [], []

        def ask(program, first):
            try:
                for turn in range(20):
                    rows = slice(first + turn, first + turn + 40 + turn)
                    if not np.array_equal(program(RECORDS[rows]), self.classes[rows]):
                        wrong.append(rows)
            except Exception as e:
                errors.append(e)

        program = self.program()
        threads = [
            threading.Thread(target=ask, args=(program, 100 * n), daemon=True) for n in range(5)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        self.assertEqual((wrong, errors, [t.is_alive() for t in threads]), ([], [], [False] * 5))

    def test_another_process_does_not_share_it(self):
        program = self.program()
        child = os.fork()
        if child == 0:
            try:
                program(RECORDS[:2])
            except mortonnet.ProgramError:
                os._exit(7)
            os._exit(0)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 7)
        np.testing.assert_array_equal(program(RECORDS[:2]), self.classes[:2])

    def test_arguments_that_change_the_answers_are_refused(self):
        for arguments in (
            ["--hop", "1"],
            ["-f", "u8"],
            ["-fu8"],
            ["--format=u8"],
            ["--key", "1"],
            ["-o", "json"],
            ["-ojson"],
            ["--output=top=2"],
            ["--window", "2"],
            ["--on-error", "mark"],
            ["--selftest"],
            ["--info"],
            ["--expect", "f"],
            ["model/digits/test.csv"],
            ["-"],
            ["--"],
            ["bench"],
            ["--batch"],
            ["-v", "--batch"],
            ["--none"],
            ["-vojson"],
            ["--expect-scores", "f"],
            ["--list-devices"],
            ["--help"],
            ["--batch=4", "-o"],
        ):
            with self.assertRaisesRegex(ValueError, "^arguments: expected ", msg=arguments):
                mortonnet.Program(PROGRAM, device="host", arguments=arguments)
        for arguments in (
            ["-b", "7"],
            ["-b7"],
            ["--batch=7", "-v"],
            ["--max-memory", "64M", "--timeout", 5],
            ["--profile=json"],
        ):
            with self.program(arguments=arguments) as program:
                np.testing.assert_array_equal(program(RECORDS[:20]), self.classes[:20])

    def test_masked_values_are_refused(self):
        program = self.program()
        for masked, place in [
            (np.ma.masked_equal(RECORDS[:3], 16), r"\[0, "),
            (np.ma.masked_array(RECORDS[0], np.arange(64) == 5), r"\[5\]"),
        ]:
            with self.assertRaisesRegex(ValueError, f"masked one: {place}"):
                program(masked)
        np.testing.assert_array_equal(program(np.ma.masked_array(RECORDS[:3])), self.classes[:3])
        for array in (RECORDS[:2] + 1j, np.full((2, 64), "2020-01-01", "M8[D]")):
            with self.assertRaisesRegex(ValueError, "found the type"):
                program(array)

    def test_a_name_is_a_file_of_this_folder(self):
        with tempfile.TemporaryDirectory() as folder:
            here = os.getcwd()
            self.addCleanup(os.chdir, here)
            os.chdir(folder)
            # `test` is a program on every PATH, `classify` on none.
            for name in ("test", "classify"):
                os.symlink(PROGRAM, name)
                np.testing.assert_array_equal(
                    mortonnet.run(Path(name), RECORDS[:5], device="host"), self.classes[:5]
                )
                os.remove(name)
                with self.assertRaises(FileNotFoundError):
                    mortonnet.run(name, RECORDS[:5])
            os.chdir(here)

    def test_names_of_classes(self):
        # digits calls its classes 0 to 9.
        with self.program(None) as program:
            self.assertEqual(
                (program.labels.dtype, program.labels.tolist()), (np.int64, list(range(10)))
            )
            self.assertEqual(program(RECORDS[:7]).dtype, np.int64)
        self.assertEqual(
            mortonnet.run(PROGRAM, RECORDS[:2], "label", device="host").tolist(),
            [str(c) for c in self.classes[:2]],
        )


class Baked(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        try:
            tool()
        except FileNotFoundError:
            os.environ["PATH"] = f"{ROOT / 'target/tests-appended/debug'}:{os.environ['PATH']}"

    def test_answers_are_what_predict_gives(self):
        from sklearn.datasets import load_digits, load_wine
        from sklearn.linear_model import LogisticRegression
        from sklearn.neural_network import MLPClassifier
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        x, y = load_digits(return_X_y=True)
        some = (y >= 3) & (y <= 8)
        x, y = x[some] / 16, y[some]
        wine, kinds = load_wine(return_X_y=True)
        kinds = np.asarray(kinds)
        for name, data, labels in [
            ("qualities", x, y),
            ("floats", x, y.astype(float)),
            ("truth", x, y > 5),
            ("few", x, np.where(y > 5, 7, -3)),
            ("names", wine, np.array(["red", "white", "rosé "])[kinds]),
            ("indices", wine, kinds),
            ("padded", wine, np.array(["01", "02", "10"])[kinds]),
        ]:
            model = (
                MLPClassifier((16,), max_iter=40, random_state=0)
                if data is x
                else LogisticRegression(max_iter=200)
            )
            model = make_pipeline(StandardScaler(), model).fit(data, labels)
            with self.subTest(name):
                path = mortonnet.bake(model, self.folder / name, inputs=data)
                found, expected = mortonnet.run(path, data, device="host"), model.predict(data)
                self.assertEqual(found.dtype.kind, expected.dtype.kind)
                np.testing.assert_array_equal(found, expected)
                self.assertEqual(mortonnet.run(path, data[0], device="host"), expected[0])
                indices = mortonnet.run(path, data, "class", device="host")
                np.testing.assert_array_equal(model.classes_[indices], expected)

    def test_bytes_are_the_integers_of_a_model(self):
        for model in ["cnn_uint8_ends", "cnn_int8_ends"]:
            path = mortonnet.bake(ROOT / f"tests/tflite/{model}.tflite", self.folder / model)
            with mortonnet.Program(path, "scores", device="host") as program:
                records = np.random.default_rng(1).integers(0, 256, (20, program.inputs), np.uint8)
                command = [path, "-d", "host", "-f", "u8", "-o", "scores"]
                said = subprocess.run(command, input=records.tobytes(), capture_output=True)
                expected = [line.split(b",") for line in said.stdout.split()]
                expected = np.array(expected, np.float32)
                np.testing.assert_array_equal(program(records), expected)
                signed = (records ^ 0x80).view(np.int8)
                np.testing.assert_array_equal(program(signed), expected)
                plain = program(records.astype(np.float32))
                self.assertFalse(np.array_equal(plain, expected), model)

    def test_a_quantized_network_is_smaller(self):
        from sklearn.datasets import load_digits
        from sklearn.neural_network import MLPClassifier

        x, y = load_digits(return_X_y=True)
        model = MLPClassifier((512,), max_iter=20, random_state=0).fit(x / 16, y)
        sizes = []
        for quantize in [None, x / 16]:
            path = mortonnet.bake(model, self.folder / "net", inputs=x / 16, quantize=quantize)
            same = mortonnet.run(path, x / 16, device="host") == model.predict(x / 16)
            self.assertGreater(same.mean(), 0.99)
            sizes.append(path.stat().st_size)
        self.assertLess(sizes[1], sizes[0] - 60_000)


if __name__ == "__main__":
    unittest.main()
