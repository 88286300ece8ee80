"""Bakes published networks and compares their outputs with ONNX Runtime's or LiteRT's.

usage: compare.py FOLDER [NAME]...

An output may differ by 1e-4 of its largest number, or by 1e-6. Records are random; each is run
alone by the judge, and in batches of 1 and of 4 by the program.
"""

import fnmatch
import json
import os
import subprocess
import sys
import tempfile
import time

import numpy as np

HERE = os.path.dirname(__file__)
RECORDS = 4
TIME_LIMIT = 300
TYPES = {
    "float": "f4",
    "double": "f8",
    "float16": "f2",
    "int64": "i8",
    "int32": "i4",
    "int16": "i2",
    "int8": "i1",
    "uint8": "u1",
    "bool": "?",
}


class OfOnnx:
    """A model judged by ONNX Runtime."""

    def __init__(self, path, sizes):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self.session = onnxruntime.InferenceSession(
            path, options, providers=["CPUExecutionProvider"]
        )
        self.inputs = []
        for i in self.session.get_inputs():
            dims = sizes.get(i.name) or [d if isinstance(d, int) and d > 0 else 1 for d in i.shape]
            self.inputs.append((i.name, TYPES[i.type[len("tensor(") : -1]], dims))

    def run(self, values):
        names = [name for name, _, _ in self.inputs]
        return self.session.run(None, dict(zip(names, values)))


class OfLite:
    """A model judged by LiteRT's plain kernels."""

    def __init__(self, path, sizes):
        from ai_edge_litert.interpreter import Interpreter, OpResolverType

        plain = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
        self.net = Interpreter(path, num_threads=1, experimental_op_resolver_type=plain)
        self.inputs = []
        for i in self.net.get_input_details():
            dims = sizes.get(i["name"]) or [int(d) for d in i["shape"]]
            self.net.resize_tensor_input(i["index"], dims)
            self.inputs.append((i["name"], i["dtype"], dims))
        self.net.allocate_tensors()

    def run(self, values):
        for i, value in zip(self.net.get_input_details(), values):
            self.net.set_tensor(i["index"], value)
        self.net.invoke()
        return [self.net.get_tensor(o["index"]) for o in self.net.get_output_details()]


def expectation(name, expected):
    """What expected.json says of a file: that of its name, or of a pattern."""
    for pattern, entry in expected.items():
        if fnmatch.fnmatch(name, pattern):
            return entry
    return {}


def records(judge, entry, random):
    low, high = entry.get("range", (-1, 1))
    made = []
    for _ in range(RECORDS):
        record = []
        for _, kind, dims in judge.inputs:
            kind = np.dtype(kind)
            if kind.kind == "f":
                record.append(random.uniform(low, high, dims).astype(np.float32).astype(kind))
            else:
                record.append(random.integers(low, high + 1, dims).astype(kind))
        made.append(record)
    return made


def flat(arrays):
    return np.concatenate([np.asarray(a, np.float64).ravel() for a in arrays])


def bake(path, entry, program):
    sizes = entry.get("sizes", {})
    stated = ";".join(f"{name}:" + ",".join(map(str, dims)) for name, dims in sizes.items())
    command = [os.environ["BAKE"], path, "-o", program, "--program", os.environ["PROGRAM"]]
    command += ["--sizes", stated] if stated else []
    start = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIME_LIMIT)
    return done, time.monotonic() - start


def outputs(program, inputs, batch, wanted, more):
    """The outputs of all records: probabilities, where the network has them."""
    command = [program, "-f", "f32", "--batch", str(batch), *more]
    for kind in ("probs", "scores"):
        done = subprocess.run(
            [*command, "-o", kind], input=inputs, capture_output=True, timeout=TIME_LIMIT
        )
        if done.returncode == 0:
            rows = done.stdout.decode().splitlines()
            found = np.array([[float(v) for v in row.split(",")] for row in rows])
            # The probabilities of a yes or no are those of both.
            return found[:, 1:] if found.shape[1] == 2 and wanted == 1 else found
    return done.stderr.decode().strip()


def difference(found, expected, sizes):
    """The largest difference in units of the bound."""
    worst, at = 0.0, 0
    for size in sizes:
        f, e = found[:, at : at + size], expected[:, at : at + size]
        bound = max(1e-4 * np.abs(e).max(), 1e-6)
        worst = max(worst, float(np.abs(f - e).max()) / bound)
        at += size
    return worst


def judged(path, entry, folder):
    """What happens to a file: refused, with the reason; wrong; or right, with the times."""
    program = os.path.join(folder, "program")
    done, seconds = bake(path, entry, program)
    if done.returncode != 0:
        return "refused", done.stderr.strip().splitlines()[0].split(": ", 2)[-1]
    make = OfLite if path.endswith(".tflite") else OfOnnx
    judge = make(path, entry.get("sizes", {}))
    made = records(judge, entry, np.random.default_rng(7))
    start = time.monotonic()
    results = [judge.run(record) for record in made]
    theirs = (time.monotonic() - start) / RECORDS
    expected = np.stack([flat(r) for r in results])
    inputs = b"".join(flat(r).astype("<f4").tobytes() for r in made)
    said = []
    engines = [[]] + ([["-d", "opencl"]] if os.environ.get("OPENCL") else [])
    for batch, more in [(b, e) for b in (1, RECORDS) for e in engines]:
        start = time.monotonic()
        found = outputs(program, inputs, batch, expected.shape[1], more)
        took = (time.monotonic() - start) / RECORDS
        if isinstance(found, str):
            return "failed", found.splitlines()[-1]
        if found.shape != expected.shape:
            return "wrong", f"{found.shape} numbers, expected {expected.shape}"
        worst = difference(found, expected, [np.size(o) for o in results[0]])
        if not worst <= 1:
            return "wrong", f"{worst:.3g} of the bound at batch {batch}"
        said.append(f"{worst:.2g} of the bound, {took * 1e3:.1f} ms")
    return "right", f"baked in {seconds:.1f} s; {said[0]} (judge {theirs * 1e3:.1f} ms)"


def main():
    models = os.path.join(sys.argv[1], "models")
    with open(os.path.join(HERE, "expected.json")) as f:
        expected = json.load(f)
    names = sorted(n for n in os.listdir(models) if n.endswith((".onnx", ".tflite")))
    if sys.argv[2:]:
        names = [n for n in names if any(wanted in n for wanted in sys.argv[2:])]
    counts, surprises = {}, []
    for name in names:
        entry = expectation(name, expected)
        with tempfile.TemporaryDirectory() as folder:
            try:
                what, said = judged(os.path.join(models, name), entry, folder)
            except subprocess.TimeoutExpired:
                what, said = "failed", f"longer than {TIME_LIMIT} s"
        counts[what] = counts.get(what, 0) + 1
        wanted = "refused" if "waits" in entry else "right"
        mark = "" if what == wanted else " (unexpected)"
        if mark:
            surprises.append(name)
        print(f"{what:8} {name}: {entry.get('waits', said)}{mark}", flush=True)
        if mark and "waits" in entry:
            print(f"         {said}", flush=True)
    print(", ".join(f"{count} {what}" for what, count in sorted(counts.items())))
    if surprises:
        sys.exit(f"other than tests/zoo/published/expected.json says: {', '.join(surprises)}")


if __name__ == "__main__":
    main()
