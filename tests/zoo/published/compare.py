"""Bakes published networks and compares their outputs with ONNX Runtime's or LiteRT's.

usage: compare.py FOLDER [--table FILE] [NAME]...

An output may differ by 1e-4 of its largest number, or by 1e-6. Records are random; each is run
alone by the judge, and in batches of 1 and of 4 by the program. With --table all is pinned to one
core, the time a record is measured too, and FILE becomes a table.
"""

import fnmatch
import json
import os
import shutil
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

    def __init__(self, path, sizes, fast=False):
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
    """A model judged by LiteRT's plain kernels; its fast ones are timed."""

    def __init__(self, path, sizes, fast=False):
        from ai_edge_litert.interpreter import Interpreter, OpResolverType

        kind = OpResolverType.BUILTIN if fast else OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
        self.net = Interpreter(path, num_threads=1, experimental_op_resolver_type=kind)
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
    constants = entry.get("constants", {})
    made = []
    for _ in range(RECORDS):
        record = []
        for name, kind, dims in judge.inputs:
            kind = np.dtype(kind)
            if name in constants:
                record.append(np.full(dims, constants[name], kind))
            elif kind.kind == "f":
                record.append(random.uniform(low, high, dims).astype(np.float32).astype(kind))
            else:
                record.append(random.integers(low, high + 1, dims).astype(kind))
        made.append(record)
    return made


def flat(arrays):
    return np.concatenate([np.asarray(a, np.float64).ravel() for a in arrays])


def bake(path, entry, program):
    if "json" in entry:
        path = shutil.copy(path, os.path.dirname(program))
        with open(os.path.splitext(path)[0] + ".json", "w") as f:
            json.dump(entry["json"], f)
    sizes, constants = entry.get("sizes", {}), entry.get("constants", {})
    stated = [f"{name}:" + ",".join(map(str, dims)) for name, dims in sizes.items()]
    stated = ";".join(stated + [f"{name}={number}" for name, number in constants.items()])
    command = [os.environ["BAKE"], path, "-o", program, "--program", os.environ["PROGRAM"]]
    command += ["--sizes", stated] if stated else []
    start = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIME_LIMIT)
    return done, time.monotonic() - start


def outputs(program, inputs, batch, wanted, more):
    """The outputs of all records: scores, and probabilities, which a model with a last softmax
    gives. A text if the program fails."""
    given, wrong = [], ""
    command = [program, "-f", "f32", "--batch", str(batch), *more]
    for kind in ("scores", "probs"):
        done = subprocess.run(
            [*command, "-o", kind], input=inputs, capture_output=True, timeout=TIME_LIMIT
        )
        if done.returncode == 0:
            rows = done.stdout.decode().splitlines()
            found = np.array([[float(v) for v in row.split(",")] for row in rows])
            # The probabilities of a yes or no are those of both.
            yes = found.shape[1] == 2 and wanted == 1
            given.append(found[:, 1:] if yes else found)
        elif not given:
            wrong = wrong or done.stderr.decode().strip()
    return given or wrong


def difference(found, expected, sizes):
    """The largest difference in units of the bound."""
    if found.shape != expected.shape:
        return np.inf
    worst, at = 0.0, 0
    for size in sizes:
        f, e = found[:, at : at + size], expected[:, at : at + size]
        bound = max(1e-4 * np.abs(e).max(), 1e-6)
        worst = max(worst, float(np.abs(f - e).max()) / bound)
        at += size
    return worst


def judged(path, entry, folder, table):
    """What happens to a file: refused, with the reason; wrong; or right, with the times."""
    program = os.path.join(folder, "program")
    done, seconds = bake(path, entry, program)
    if done.returncode != 0:
        said = done.stderr.strip() or f"mortonnet-bake ended with {done.returncode}"
        return "refused" if done.returncode > 0 else "failed", said.splitlines()[0].split(": ", 2)[
            -1
        ]
    if "unjudged" in entry:
        return "unjudged", entry["unjudged"]
    make = OfLite if path.endswith(".tflite") else OfOnnx
    judge = make(path, entry.get("sizes", {}))
    made = records(judge, entry, np.random.default_rng(7))
    results = [judge.run(record) for record in made]
    expected = np.stack([flat(r) for r in results])
    read = [i for i, (n, _, _) in enumerate(judge.inputs) if n not in entry.get("constants", {})]
    inputs = b"".join(flat([r[i] for i in read]).astype("<f4").tobytes() for r in made)
    worst = 0.0
    engines = [[]] + ([["-d", "opencl"]] if os.environ.get("OPENCL") else [])
    for batch, more in [(b, e) for b in (1, RECORDS) for e in engines]:
        found = outputs(program, inputs, batch, expected.shape[1], more)
        if isinstance(found, str):
            return "failed", found.splitlines()[-1] if found else "without a message"
        sizes = [np.size(o) for o in results[0]]
        worst = max(worst, min(difference(f, expected, sizes) for f in found))
        if not worst <= 1:
            shapes = f"{found[0].shape}, expected {expected.shape}"
            return "wrong", f"{worst:.3g} of the bound at batch {batch}, of {shapes}"
    if table is not None:
        ours = times_of_program(program, inputs)
        fast = make(path, entry.get("sizes", {}), fast=True)
        theirs = time_of_judge(fast, made)
        peer = "LiteRT" if make is OfLite else "ONNX Runtime"
        table.append((os.path.basename(path), worst, seconds, ours, peer, theirs))
    return "right", f"baked in {seconds:.1f} s; {worst:.2g} of the bound"


class Times:
    """The times of a record at batch 1, in seconds: all of it, and the network alone."""

    def __init__(self, profile):
        running = profile["elapsed_us"] - profile["startup_us"]
        self.all = running / profile["records"] / 1e6
        self.network = profile["engine_us"] / profile["records"] / 1e6


def times_of_program(program, inputs):
    """The medians of three runs of half a second and more."""

    def run(times):
        place = program + ".profile"
        command = [program, "-f", "f32", "--batch", "1", "-d", "host", "-o", "scores"]
        command.append(f"--profile=json:{place}")
        subprocess.run(command, input=inputs * times, check=True, stdout=subprocess.DEVNULL)
        with open(place) as f:
            return Times(json.load(f))

    times = 1
    while run(times).all * times * RECORDS < 0.5:
        times *= 2
    runs = [run(times) for _ in range(3)]
    middle = sorted(runs, key=lambda t: t.all)[1]
    return middle


def time_of_judge(judge, made):
    spans, begin = [], time.monotonic()
    while len(spans) < 2 * RECORDS or time.monotonic() - begin < 0.5:
        start = time.monotonic()
        judge.run(made[len(spans) % RECORDS])
        spans.append(time.monotonic() - start)
    return sorted(spans)[len(spans) // 2]


def write_table(path, table):
    lines = [
        "| network | of the bound | bake, s | a record, ms | network alone, ms | peer, ms | peer |",
        "|---|--:|--:|--:|--:|--:|---|",
    ]
    for name, worst, seconds, ours, peer, theirs in table:
        times = " | ".join(f"{t * 1e3:.3g}" for t in (ours.all, ours.network, theirs))
        lines.append(f"| {name} | {worst:.2g} | {seconds:.1f} | {times} | {peer} |")
    ratios = sorted(ours.network / theirs for *_, ours, _, theirs in table)
    median = ratios[len(ratios) // 2]
    lines += ["", f"The network alone takes {median:.2f} of the peer's time, median."]
    with open(path, "w") as f:
        f.write("\n".join(lines) + "\n")


def main():
    models = os.path.join(sys.argv[1], "models")
    table, only = None, sys.argv[2:]
    if only[:1] == ["--table"]:
        table, (place, *only) = [], only[1:]
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with open(os.path.join(HERE, "expected.json")) as f:
        expected = json.load(f)
    names = sorted(n for n in os.listdir(models) if n.endswith((".onnx", ".tflite")))
    if only:
        names = [n for n in names if any(wanted in n for wanted in only)]
    counts, surprises = {}, []
    for name in names:
        entry = expectation(name, expected)
        with tempfile.TemporaryDirectory() as folder:
            try:
                what, said = judged(os.path.join(models, name), entry, folder, table)
            except subprocess.TimeoutExpired:
                what, said = "failed", f"longer than {TIME_LIMIT} s"
        counts[what] = counts.get(what, 0) + 1
        wanted = "refused" if "waits" in entry else "unjudged" if "unjudged" in entry else "right"
        mark = "" if what == wanted else " (unexpected)"
        if mark:
            surprises.append(name)
        print(f"{what:8} {name}: {entry.get('waits', said)}{mark}", flush=True)
        if mark and "waits" in entry:
            print(f"         {said}", flush=True)
    print(", ".join(f"{count} {what}" for what, count in sorted(counts.items())))
    if table:
        write_table(place, table)
    if surprises:
        sys.exit(f"other than tests/zoo/published/expected.json says: {', '.join(surprises)}")


if __name__ == "__main__":
    main()
