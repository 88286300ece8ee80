"""Drives baked programs as co-processes: NumPy arrays in, NumPy arrays out."""

import io
import json
import os
import subprocess
import tempfile
import threading

import numpy as np

OUTPUTS = ("class", "label", "scores", "probs")

# Options that leave the answers as they are, with whether a value follows.
ALLOWED = {
    "-b": True,
    "--batch": True,
    "--max-memory": True,
    "-d": True,
    "--device": True,
    "--compute-units": True,
    "--plan": True,
    "--kernels": True,
    "--verify": True,
    "--timeout": True,
    "--profile": False,
    "-v": False,
    "--verbose": False,
}


class ProgramError(RuntimeError):
    """The program ended. The text is its message; `answers` has its answers to the array so far."""

    answers = None


def _checked(arguments):
    """The arguments as text. An option that would change the answers' form is a ValueError."""
    arguments = [str(argument) for argument in arguments]
    words = iter(arguments)
    for word in words:
        # `--batch=16` and `-b16` have their value with them.
        name, value = word.partition("=")[::2] if word.startswith("--") else (word[:2], word[2:])
        if name not in ALLOWED or (value and not ALLOWED[name] and name != "--profile"):
            raise ValueError(
                "arguments: expected options that leave the answers as they are "
                f"({', '.join(ALLOWED)}), found {word!r}"
            )
        if ALLOWED[name] and not value and next(words, None) is None:
            raise ValueError(f"arguments: expected a value behind {word!r}")
    return arguments


def _typed(labels):
    """The labels as an array of their framework's type: whole numbers, numbers, bool or text."""
    for numbers in (np.int64, np.float64):
        try:
            found = np.array([numbers(label) for label in labels])
        except (ValueError, OverflowError):
            continue
        if np.isfinite(found).all() and [str(number) for number in found.tolist()] == labels:
            return found
    if set(labels) <= {"False", "True"}:
        return np.array([label == "True" for label in labels])
    return np.array(labels, str)


def _real(records, type, scale, zero):
    """The real numbers of bytes that are a model's integers (docs/INPUT.md)."""
    step = records.astype(float) + (128 if records.dtype == np.int8 else 0)
    first = (-128 if type == "int8" else 0) - zero
    return (step + first) * float(np.float32(scale))


class Program:
    """A baked program that stays open for several arrays:

        with Program("./classify") as classify:
            classes = classify(records)

    path:      the program. A name without a slash is a file of the current folder.
    output:    its results: "class", "label", "scores" or "probs". None: the label of the class if
               the network has labels, else "class". For several labels it is "class", for values
               "scores".
    device:    the device, as --device names it. None: "auto".
    arguments: more options, for example ["--batch", "16"]. Options that change the results are a
               ValueError.
    launcher:  a command that starts a program which this machine cannot run: ["ssh", "board"]. Then
               `path` is one of the board.

    Attributes: `model` (the network's name), `inputs` and `outputs` (values of a record and of its
                scores), `labels` (the names of the classes, as an array of int64, float64 or bool
                if all of them are written so; None without names).

    Threads may share it: calls take turns. A call that is interrupted (Ctrl-C, an exception of a
    signal handler) ends the program.
    """

    def __init__(self, path, output=None, *, device=None, arguments=(), launcher=()):
        path = str(path)
        command = [*map(str, launcher), path if "/" in path else f"./{path}"]
        if output not in (None, *OUTPUTS):
            raise ValueError(f"output: expected one of {', '.join(OUTPUTS)}, found {output!r}")
        arguments = _checked(arguments)
        asked = subprocess.run(
            [*command, "--info", "-o", "json", "-d", "host"],
            capture_output=True,
            stdin=subprocess.DEVNULL,
        )
        if asked.returncode:
            raise ProgramError(
                asked.stderr.decode(errors="replace").strip()
                or f"{path} ended with {asked.returncode}"
            )
        info = json.loads(asked.stdout)
        self.model, self.inputs, self.outputs, self._kind = (
            info[key] for key in ("model", "inputs", "outputs", "output")
        )
        self._integers = info.get("input_integers")
        names = info.get("labels")  # Programs of before have no such key.
        self.labels = _typed(names) if names else None
        if output == "label" and self._kind == "multilabel":
            raise ValueError(
                'output: of a network with several labels expected "class", "scores" or "probs"'
            )
        self.output = output or ("scores" if self._kind == "values" else "class")
        self._named = (
            output is None and self.labels is not None and self._kind in ("classes", "binary")
        )
        self._lock = threading.Lock()
        # True if records are on their way whose answers nobody has read.
        self._busy = False
        self._owner = os.getpid()
        self._said = tempfile.TemporaryFile()
        options = ["-f", "f32", "-o", self.output, *(["-d", device] if device is not None else [])]
        self._process = subprocess.Popen(
            [*command, *options, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            bufsize=0,
        )
        self._lines = io.BufferedReader(self._process.stdout)

    def __call__(self, array):
        """The answers to records of `inputs` values, shape (n, …), or to one record.

        Classes come as their labels (n,), as `labels` has them. Without labels, or with "class",
        they are an array (n,) of int64; for several labels (n, outputs) of bool. "label" gives the
        text, an array of str. Scores are (n, outputs) of float32, and so are probabilities, the
        first of two classes included. One record may have any shape, and its answer no axis n. A
        value that is masked, or that is NaN or infinite as float32, is a ValueError, and the
        program goes on. If the model's input is 8-bit integers, values of uint8 and int8 are these
        integers, as in files. All other values are real numbers.

        Raises ProgramError if the program ends.
        """
        if np.ma.is_masked(array):
            place = np.argwhere(np.ma.getmaskarray(array))[0].tolist()
            raise ValueError(
                f"expected values that are there, found a masked one: {place} (from 0)"
            )
        records = np.asarray(array)
        if records.dtype.kind in "cmMV":
            raise ValueError(
                f"expected numbers that float32 can hold, found the type {records.dtype}"
            )
        if self._integers and records.dtype in (np.uint8, np.int8):
            records = _real(records, **self._integers)
        single = records.size == self.inputs and (records.ndim == 0 or len(records) != 1)
        if not single and (records.ndim == 0 or records.size != len(records) * self.inputs):
            raise ValueError(
                f"expected records of {self.inputs} values, shape (n, {self.inputs}), found the "
                f"shape {records.shape}"
            )
        with np.errstate(over="ignore"):
            records = np.ascontiguousarray(records.reshape(-1, self.inputs), "<f4")
        if not np.isfinite(records).all():
            record, value = np.argwhere(~np.isfinite(records))[0]
            raise ValueError(
                f"expected finite numbers of float32, found another: record {record}, value "
                f"{value} (from 0)"
            )
        if os.getpid() != self._owner:
            raise ProgramError(
                "the program belongs to the process that started it: start another Program in "
                "this one"
            )
        with self._lock:
            if self._process.stdin.closed:
                raise ProgramError("the program has ended")
            # Set until every answer is read: an interruption may come at any place.
            if self._busy:
                self._give_up()
                raise ProgramError(
                    "the program was ended, as an earlier call was interrupted: start another "
                    "Program"
                )
            self._busy = True
            try:
                lines = self._exchange(records)
            except BaseException:
                self._give_up()
                raise
            answers = self._answers(lines)
            if len(lines) < len(records):
                self._end(answers)
            self._busy = False
        return answers[0] if single else answers

    def _exchange(self, records):
        """Writes records, reads as many lines, or those before the program's end."""
        writer = threading.Thread(target=self._write, args=(records.reshape(-1),), daemon=True)
        writer.start()
        lines = []
        while len(lines) < len(records) and (line := self._lines.readline()):
            lines.append(line.decode().rstrip("\n"))
        writer.join()
        return lines

    def _write(self, records):
        left = records.data.cast("B") if len(records) else b""
        try:
            while len(left):
                left = left[self._process.stdin.write(left) :]
        except (OSError, ValueError):
            pass  # The program ended: its answers do too.

    def _give_up(self):
        """Ends the program without asking for its answers."""
        self._process.kill()
        try:
            self._end()
        except ProgramError:
            pass  # It was killed.

    def _answers(self, lines):
        """The array that lines stand for."""
        if self.output == "label":
            return np.array(lines, str)
        if self.output == "class" and self._kind != "multilabel":
            classes = np.array(lines, np.int64)
            return self.labels[classes] if self._named else classes
        rows = [
            np.array(line.split(",") if line else [], "<f4" if self.output != "class" else int)
            for line in lines
        ]
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
        self._lines.close()
        self._said.seek(0)
        said = self._said.read().decode(errors="replace").strip()
        self._said.close()
        if status or answers is not None:
            error = ProgramError(said or f"the program ended with {status}")
            error.answers = answers
            raise error

    def close(self):
        """Ends the program. Raises ProgramError where it told of an error."""
        with self._lock:
            if not self._said.closed:
                self._end()

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if kind is None:
            return self.close()
        # A thread that waits for answers sees the end, and gives the lock back.
        self._process.kill()
        with self._lock:
            if not self._said.closed:
                self._give_up()  # The first error counts.


def run(path, array, output=None, *, device=None, arguments=(), launcher=()):
    """The answers of the program at `path` to `array`; see Program."""
    with Program(path, output, device=device, arguments=arguments, launcher=launcher) as program:
        return program(array)
