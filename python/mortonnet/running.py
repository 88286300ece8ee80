"""Drives baked programs as co-processes: NumPy arrays in, NumPy arrays out."""

import json
import subprocess
import tempfile
import threading

import numpy as np

OUTPUTS = ("class", "label", "scores", "probs")


class ProgramError(RuntimeError):
    """The program ended; the text is what it said. `answers` has what it had answered of the array."""

    answers = None


class Program:
    """A baked program that stays open for several arrays:

        with Program("./classify") as classify:
            classes = classify(records)

    path:      the program.
    output:    what it gives: "class", "label", "scores" or "probs". None: "class", or "scores" where the network has values
               instead of classes.
    device:    the device, as --device names it. None: "auto".
    arguments: more options, for example ["--batch", "16"].
    launcher:  what starts it, for a program that this machine cannot run: ["ssh", "board"], then `path` is one of the board.

    Attributes: `model` (the network's name), `inputs` and `outputs` (values of a record and of its scores).
    """

    def __init__(self, path, output=None, *, device=None, arguments=(), launcher=()):
        command = [*map(str, launcher), str(path)]
        if output not in (None, *OUTPUTS):
            raise ValueError(f"output: expected one of {', '.join(OUTPUTS)}, found {output!r}")
        asked = subprocess.run([*command, "--info", "-o", "json", "-d", "host"], capture_output=True, stdin=subprocess.DEVNULL)
        if asked.returncode:
            raise ProgramError(asked.stderr.decode(errors="replace").strip() or f"{path} ended with {asked.returncode}")
        info = json.loads(asked.stdout)
        self.model, self.inputs, self.outputs, self._kind = (info[key] for key in ("model", "inputs", "outputs", "output"))
        if output == "label" and self._kind == "multilabel":
            raise ValueError('output: of a network with several labels expected "class", "scores" or "probs"')
        self.output = output or ("scores" if self._kind == "values" else "class")
        self._said = tempfile.TemporaryFile()
        options = ["-f", "f32", "-o", self.output, *(["-d", device] if device is not None else [])]
        self._process = subprocess.Popen(
            [*command, *options, *map(str, arguments)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said
        )

    def __call__(self, array):
        """The answers to records, shape (n, …) of `inputs` values each, or to one, of any shape with so many values.

        Of classes an array (n,) of int64, of networks with several labels (n, outputs) of bool; of labels one of str. Of scores (n, outputs) float32; of probabilities the same, the first of two classes included. One record has
        no axis n. A value that is NaN or infinite as float32 is a ValueError, and the program goes on.

        Raises ProgramError where the program ends.
        """
        records = np.asarray(array)
        single = records.size == self.inputs and (records.ndim == 0 or len(records) != 1)
        if not single and (records.ndim == 0 or records.size != len(records) * self.inputs):
            raise ValueError(
                f"expected records of {self.inputs} values, shape (n, {self.inputs}), found the shape {records.shape}"
            )
        with np.errstate(over="ignore"):
            records = np.ascontiguousarray(records.reshape(-1, self.inputs), "<f4")
        if not np.isfinite(records).all():
            record, value = np.argwhere(~np.isfinite(records))[0]
            raise ValueError(f"expected finite numbers of float32, found another: record {record}, value {value} (from 0)")
        if self._process.stdin.closed:
            raise ProgramError("the program has ended")
        writer = threading.Thread(target=self._write, args=(records.reshape(-1),))
        writer.start()
        lines = []
        while len(lines) < len(records) and (line := self._process.stdout.readline()):
            lines.append(line.decode().rstrip("\n"))
        writer.join()
        answers = self._answers(lines)
        if len(lines) < len(records):
            self._end(answers)
        return answers[0] if single else answers

    def _write(self, records):
        try:
            self._process.stdin.write(records.data.cast("B") if len(records) else b"")
            self._process.stdin.flush()
        except OSError:
            pass  # The program ended: its answers do too.

    def _answers(self, lines):
        """The array that lines stand for."""
        if self.output == "label":
            return np.array(lines, str)
        if self.output == "class" and self._kind != "multilabel":
            return np.array(lines, np.int64)
        rows = [np.array(line.split(",") if line else [], "<f4" if self.output != "class" else int) for line in lines]
        if self.output != "class":
            return np.array(rows) if rows else np.empty((0, self.outputs), np.float32)
        all_labels = np.zeros((len(rows), self.outputs), bool)
        for row, found in zip(all_labels, rows):
            row[found] = True
        return all_labels

    def _end(self, answers=None):
        """Waits for the end; an error where the program told of one, or answers are missing."""
        try:
            self._process.stdin.close()
        except OSError:
            pass
        status = self._process.wait()
        self._process.stdout.close()
        self._said.seek(0)
        said = self._said.read().decode(errors="replace").strip()
        self._said.close()
        if status or answers is not None:
            error = ProgramError(said or f"the program ended with {status}")
            error.answers = answers
            raise error

    def close(self):
        """Ends the program. Raises ProgramError where it told of an error."""
        if not self._said.closed:
            self._end()

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if kind is not None and not self._said.closed:
            self._process.kill()
            try:
                self._end()
            except ProgramError:
                pass  # The first error counts.
        else:
            self.close()


def run(path, array, output=None, *, device=None, arguments=(), launcher=()):
    """The answers of the program at `path` to `array`; see Program."""
    with Program(path, output, device=device, arguments=arguments, launcher=launcher) as program:
        return program(array)
