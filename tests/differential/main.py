"""Compares programs of random graphs with ONNX Runtime, LiteRT, NumPy and scikit-learn.

`run` beside this file calls it.

Each graph is drawn from (seed, number), so `--seed S --graph I` repeats it. It is baked once. Its
program runs a single record, batches of 3, and 100 records at once, on the host and for some graphs
on OpenCL. bounds.py says how far an answer may be from the judge's. A graph is drawn again if its
judge gives NaN or an infinity, or if its bound says nothing. A refusal counts as a failure unless
refusals.py has the sentence of the documents that states it.
"""

import argparse
import collections
import concurrent.futures
import io
import json
import multiprocessing
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import warnings

import numpy as np

import bounds
from graph import Refused, Unfit
from refusals import problems, stated
from table import entries, print_table

warnings.filterwarnings("ignore")
RECORDS = 100
LOOSE = 0.02
"""A bound above this part of an output's largest magnitude says too little."""
FILLED_AT_A_TIME = 400
"""The graphs that are drawn for the same empty entries of the table."""
ALMOST = 1e37
"""Larger values may overflow float32. Records without a finite answer must be refused."""
LOOSE_OF_INTEGERS = 0.5
"""LOOSE for values that the judge rounds to integers."""


def normalised(message):
    """A message without names and numbers, to count it."""
    line = (problems(message) or ["(nothing)"])[0]
    line = re.sub(r"^.*?(node|operator) [^ ]+ ", r"\1 ", line)
    line = re.sub(r"^[^ ]*: [^ ]*/g\d+[^ ]*: ", "", line)
    line = re.sub(r"\[[^\]]*\]", "[…]", line)
    return re.sub(r"-?\d+(\.\d+)?(e-?\d+)?", "#", line)[:200]


def put(folder, g, data):
    """Writes a model into a folder, and gives the path of the file that is baked. `data`: what the
    format has written, the bytes of one file or several files by their names."""
    files = data if isinstance(data, dict) else {f"model.{g.format}": data}
    if g.settings and not isinstance(data, dict):
        files["model.json"] = json.dumps(g.settings).encode()
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder / next(iter(files))


class Tools:
    """The programs under test, and the folder for what they write."""

    def __init__(self, arguments, folder):
        self.bake, self.program, self.folder = (
            arguments.bake,
            arguments.program,
            pathlib.Path(folder),
        )
        self.kernels = arguments.kernels
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("MORTONNET_")}
        self.count = 0

    def path(self):
        self.count += 1
        return self.folder / f"g{self.count}"

    def baked(self, g, data):
        """The path of the program, or what mortonnet-bake says."""
        path = self.path()
        folder = path.with_suffix(".model")
        model = put(folder, g, data)
        command = [self.bake, str(model), "--program", self.program, "-o", str(path)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=300, env=self.environment
        )
        shutil.rmtree(folder)
        if done.returncode == 0:
            return path, None
        path.unlink(missing_ok=True)
        return (
            None,
            f"exit {done.returncode}: {done.stderr}" if done.returncode != 1 else done.stderr,
        )

    def answers(self, path, g, device, rows, batch):
        """The numbers of each record (None if it is refused), or a text with the reason."""
        data = io.BytesIO()
        np.save(data, rows)
        option = g.option or ("scores" if g.answer == "scores" else "class")
        command = [str(path), "-d", device, "-f", "npy", "-o", option, "--on-error", "mark"] + (
            ["-b", str(batch)] if batch else []
        )
        if self.kernels and device == "opencl":
            command += ["--kernels", self.kernels]
        # Kernels are compiled once for the three batches.
        environment = self.environment | {"MORTONNET_CACHE": f"{path}.cache"}
        if device == "host":
            environment["MORTONNET_OPENCL"] = "/nonexistent"
        try:
            done = subprocess.run(
                command, input=data.getvalue(), capture_output=True, timeout=240, env=environment
            )
        except subprocess.TimeoutExpired:
            return "no end after 240 s"
        lines = done.stdout.decode().splitlines()
        if done.returncode != (1 if "error" in lines else 0) or len(lines) != len(rows):
            return (
                f"exit {done.returncode}, {len(lines)} lines: {done.stderr.decode().strip()[-300:]}"
            )
        number = (
            {str(label): i for i, label in enumerate(g.labels)}.__getitem__
            if option == "label"
            else float
        )
        try:
            return [
                None if line == "error" else [number(x) for x in line.split(",") if x]
                for line in lines
            ]
        except (ValueError, KeyError):
            return f"neither numbers nor labels: {lines[:1]}"


class Drawn:
    """A graph with its records and the judge's values."""

    def __init__(self, g, data, feeds, values, errors, reference):
        self.g, self.data, self.feeds, self.values, self.errors, self.reference = (
            g,
            data,
            feeds,
            values,
            errors,
            reference,
        )
        flat = lambda n: np.asarray(values[n], np.float64).reshape(RECORDS, -1)
        outputs = [g.scores] if g.scores else g.outputs
        self.expected = np.concatenate([flat(n) for n in outputs], 1)
        if g.both:
            self.expected = np.concatenate([1 - self.expected, self.expected], 1)
        wide = [np.repeat(bounds.allowed(errors[n])[:, None], g.size(n), 1) for n in outputs]
        # The program prints the shortest decimals that stand for a float32.
        self.allowed = np.concatenate(wide * (1 + g.both), 1) + bounds.U * np.abs(self.expected)
        # If a value is almost infinite, it may be infinite in another order of sums.
        known = [n for n in g.live if n in values and n not in g.sizes | g.masked]
        most = [bounds.most(values[n]) for n in known]
        self.extreme = ~(np.max(most, 0) < ALMOST)
        self.must_fail = ~np.isfinite(self.expected).all(1)
        # A judge that adds up large numbers of both signs may overflow where their sum does not.
        unknown = np.zeros(RECORDS, bool)
        for node in g.nodes:
            if node.op in bounds.SUMS and node.outputs[0] in values:
                given = [values[i] for i in node.inputs if i in g.live and i in values]
                finite = np.all([np.isfinite(bounds.most(v)) for v in given], 0)
                unknown |= finite & ~np.isfinite(bounds.most(values[node.outputs[0]]))
        self.must_fail &= ~unknown
        self.allowed[unknown] = np.inf

    def rows(self):
        flat = [np.asarray(self.feeds[n], np.float32).reshape(RECORDS, -1) for n in self.g.inputs]
        return np.concatenate(flat, 1)


def judged(g, feeds):
    """The graph with the judge's values. Raises `Unfit` where they say nothing."""
    from formats import of

    if not g.fits():
        raise Unfit("a first size that may be a number of records")
    if g.masked & {*g.inputs, *g.outputs}:
        raise Unfit("minus infinity that no softmax takes")
    format = of(g)
    judge = format.Judge(g)
    with np.errstate(all="ignore"):
        values = judge.values(feeds)
        ordinary = np.ones(RECORDS, bool)
        for name in g.live:
            if (
                name in values
                and name not in g.sizes
                and np.shape(values[name])[1:] != tuple(g.dims(name))
            ):
                raise Unfit("the judge's sizes are not those that ONNX infers")
            if name in values and name not in g.sizes | g.masked:
                ordinary &= bounds.most(values[name]) < ALMOST
        if not (ordinary.all() or g.extreme and ordinary.sum() > RECORDS // 2):
            raise Unfit("not finite")
        errors = bounds.bounds(g, values, judge.constants, judge.stored)
        for name in [g.scores] if g.scores else g.outputs:
            loose = LOOSE_OF_INTEGERS if g.scales else LOOSE
            if np.max(bounds.allowed(errors[name])[ordinary]) > loose * max(
                1e-3, float(np.max(bounds.most(values[name])[ordinary]))
            ):
                raise Unfit("loose bound")
    return Drawn(g, format.written(g), feeds, values, errors, judge.reference)


def drawn_once(seed, index, formats, attempt, wanted=None):
    """An attempt to draw graph `index` of `seed`, or None if it has no entry that is wanted."""
    from formats import module

    random = np.random.default_rng([seed, index, attempt])
    format = module(formats[index % len(formats)])
    g = format.draw(random, wanted or ())
    g.number = index
    if wanted is not None and wanted.isdisjoint(entries(h for n in g.nodes for h in n.hits)):
        return None
    return judged(g, format.records(g, RECORDS, random))


def draw(seed, index, formats, said):
    """Graph `index` of `seed`. `said` counts why graphs were drawn again."""
    for attempt in range(200):
        try:
            return drawn_once(seed, index, formats, attempt)
        except Unfit as e:
            said[f"drawn again: {str(e) or 'no valid node'}"] += 1
        except Refused:
            raise
        except Exception as e:
            said[f"judge: {type(e).__name__}: " + normalised(str(e))[:150]] += 1
            if os.environ.get("TRACE"):
                import traceback

                traceback.print_exc()
    raise SystemExit(f"graph {index} of seed {seed}: nothing valid in 200 attempts")


def wrong(drawn, found, first, count):
    """None, or how the answers differ."""
    if isinstance(found, str):
        return found
    for r, answer in enumerate(found, first):
        if answer is None:
            why = None if drawn.extreme[r] else "refused"
        elif drawn.must_fail[r]:
            why = f"finite answer {answer[:3]}, expected {drawn.expected[r][:3]}"
        else:
            why = differs(drawn.g, answer, drawn.expected[r], drawn.allowed[r])
        if why:
            return f"record {r}: {why}"
    return None


def differs(g, answer, expected, allowed):
    """None, or how the answer for a record differs."""
    # A score has no bound if a value before it is almost infinite.
    allowed = np.where(np.isnan(allowed), np.inf, allowed)
    if g.answer == "scores":
        if len(answer) != len(expected):
            return f"{len(answer)} scores, expected {len(expected)}"
        far = np.flatnonzero(~(np.isinf(allowed) | (np.abs(answer - expected) <= allowed)))
        if not far.size:
            return None
        i = far[0]
        return (
            f"score {i}: {answer[i]:.9g}, expected {expected[i]:.9g} within {allowed[i]:.2g}; "
            f"{far.size} of {len(answer)} wrong"
        )
    if g.answer == "flags":
        above = np.isin(np.arange(len(expected)), answer)
        bad = (above != (expected > g.threshold)) & ~(np.abs(expected - g.threshold) <= allowed)
        return f"classes {answer}, values {expected}" if bad.any() else None
    if len(answer) != 1:
        return f"{len(answer)} classes"
    i = int(answer[0])
    if not 0 <= i < (2 if g.answer == "binary" else len(expected)):
        return f"class {i}"
    if g.answer == "binary":
        right = i == (expected[0] > g.threshold) or abs(expected[0] - g.threshold) <= allowed[0]
        return None if right else f"class {i}, value {expected} against {g.threshold}"
    return (
        None
        if expected.max() - expected[i] <= 2 * allowed.max()
        else f"class {i}, values {expected}"
    )


def failure(tools, drawn, devices):
    """(kind, text) of what is wrong with a graph, or None. A refusal has the kind `refused`."""
    g = drawn.g
    path, refusal = tools.baked(g, drawn.data)
    if refusal is not None:
        return (
            ("refused", refusal)
            if not refusal.startswith("exit") and "panicked" not in refusal
            else ("bake", refusal)
        )
    try:
        rows = drawn.rows()
        for device in devices:
            for batch, first, count in ((1, 0, 1), (3, 1, 10), (None, 0, RECORDS)):
                found = tools.answers(path, g, device, rows[first : first + count], batch)
                why = wrong(drawn, found, first, count)
                if why:
                    return f"wrong on {device}", f"batch {batch or RECORDS}: {why}"
    finally:
        path.unlink(missing_ok=True)
        shutil.rmtree(f"{path}.cache", ignore_errors=True)
    return None


def fails_alike(a, b):
    return a and b and a[0] == b[0] and (a[0] != "refused" or normalised(a[1]) == normalised(b[1]))


def shrunk(tools, drawn, first, devices):
    """A smaller graph that fails alike: fewer outputs, then nodes in front replaced by inputs."""
    best, said = drawn, first

    def attempt(change):
        nonlocal best, said
        try:
            g, feeds = change(best)
            smaller = judged(g, {n: feeds[n] for n in g.inputs})
            why = failure(tools, smaller, devices)
        except Exception:
            return False
        if not fails_alike(why, first):
            return False
        best, said = smaller, why
        return True

    def only(output):
        def change(d):
            g = d.g.cut([output])
            g.answer, g.option, g.scores, g.both = "scores", None, None, False
            g.settings = {"output": {"kind": "values"}}
            return g, d.feeds

        return change

    def from_here(name):
        def change(d):
            g = d.g.copy()
            g.nodes = [n for n in g.nodes if name not in n.outputs]
            g.inputs.append(name)
            g = g.cut(g.outputs)
            return g, {**d.feeds, **{name: d.values[name]}}

        return change

    if drawn.g.answer == "scores":
        made = [
            o
            for n in reversed(best.g.nodes)
            for o in n.outputs
            if o in best.g.live and o not in best.g.sizes
        ]
        for name in best.g.outputs if len(best.g.outputs) > 1 else []:
            if attempt(only(name)):
                break
        # Drop nodes from the end while what stands before them fails too.
        for name in [o for n in best.g.nodes for o in n.outputs if o in made]:
            if name not in best.g.outputs and attempt(only(name)):
                break
    for name in [
        o
        for n in reversed(best.g.nodes)
        for o in n.outputs
        if o in best.g.live and o not in best.g.sizes
    ]:
        if name not in best.g.outputs and any(name in n.outputs for n in best.g.nodes):
            attempt(from_here(name))
    return best, said


def shown(g):
    fixed = lambda n: n not in g.live or n in g.sizes
    size = lambda n, i: g.shapes[n][i] if fixed(n) or i != g.axis(n) else "N"
    shape = lambda n: "×".join(str(size(n, i)) for i in range(len(g.shapes[n]))) or "()"
    records = "1, fixed" if g.single else g.records or "N"
    lines = [
        f"  set {g.version}, {g.kind}, records {records}, inputs "
        f"{', '.join(f'{n} {g.kinds[n]} {shape(n)}' for n in g.inputs)}"
    ]
    for n in g.nodes:
        attrs = ", ".join(f"{k}={str(v)[:60]}" for k, v in n.attrs.items())
        inputs = ", ".join(f"{i} [{shape(i)}]" if i else "-" for i in n.inputs)
        lines.append(f"  {', '.join(n.outputs)} [{shape(n.outputs[0])}] = {n.op}({inputs}) {attrs}")
    return "\n".join(lines + [f"  outputs {', '.join(g.outputs)}"])


class Report:
    """Counts of a run, and the failures with what repeats them."""

    def __init__(self):
        self.counts, self.refusals = collections.Counter(), collections.Counter()
        self.again, self.hits, self.failures = collections.Counter(), collections.Counter(), []

    def add(self, outcome):
        self.counts.update(outcome.counts)
        self.refusals.update(outcome.refusals)
        self.again.update(outcome.again)
        self.hits.update(outcome.hits)
        if outcome.failure:
            self.failures.append(outcome.failure)
            print(outcome.text, flush=True)


class Outcome:
    """A process's report about one graph."""

    def __init__(self, again, drawn, opencl):
        self.again, self.refusals, self.failure, self.text = again, [], None, ""
        nodes = drawn.g.nodes if drawn else []
        self.counts = {
            "graphs": 1,
            "nodes": len(nodes),
            "on OpenCL": int(opencl),
            "judged by the reference implementation": int(bool(drawn and drawn.reference)),
        }
        self.hits = {h for n in nodes for h in n.hits}


class Worker:
    """Draws graphs and compares, in a process of its own: threads would wait for Python's lock."""

    def __init__(self, arguments, folder, number):
        self.arguments = arguments
        self.formats = arguments.formats.split(",")
        self.folder = pathlib.Path(folder) / str(number)
        self.folder.mkdir()
        self.tools = Tools(arguments, self.folder)

    def one(self, index, opencl):
        again = collections.Counter()
        try:
            drawn = draw(self.arguments.seed, index, self.formats, again)
        except Refused as e:
            outcome = Outcome(again, None, opencl)
            outcome.counts["refused"], outcome.refusals, outcome.failure = (
                1,
                [normalised(str(e))],
                None if stated(str(e)) else "refused",
            )
            outcome.text = f"\nFAILED {self.command(index, opencl)}\n  the exporter: {e}"
            return outcome
        return self.compared(index, drawn, again, opencl)

    def filling(self, index, wanted):
        """Compares graph `index` if it has a wanted entry of the table. Else gives None."""
        try:
            drawn = drawn_once(self.arguments.seed, index, self.formats, 0, wanted)
        except Exception:
            # `draw` reports what is wrong with a rule.
            return None
        return drawn and self.compared(index, drawn, collections.Counter(), False)

    def command(self, index, opencl):
        a = self.arguments
        return f"--seed {a.seed} --graph {index} --formats {a.formats}" + (
            " --opencl 1" if opencl else ""
        )

    def compared(self, index, drawn, again, opencl):
        a = self.arguments
        devices = ["host"] + (["opencl"] if opencl else [])
        outcome = Outcome(again, drawn, opencl)
        failed = failure(self.tools, drawn, devices)
        if failed and failed[0] == "refused":
            outcome.counts["refused"] = 1
            outcome.refusals = [normalised(failed[1])]
        if not failed or failed[0] == "refused" and stated(failed[1]):
            return outcome
        smallest, why = (
            (drawn, failed)
            if a.as_drawn or drawn.g.whole
            else shrunk(self.tools, drawn, failed, devices)
        )
        outcome.failure = failed[0]
        outcome.text = (
            f"\nFAILED {self.command(index, opencl)}\n  {why[0]}: {why[1].strip()[-2500:]}\n"
            f"{shown(smallest.g)}"
        )
        if a.save:
            save(pathlib.Path(a.save) / str(index), smallest)
        return outcome


WORKER = None
"""The worker of this process."""


def begin(arguments, folder, numbers):
    global WORKER
    WORKER = Worker(arguments, folder, numbers.get())


def one(index, opencl):
    return WORKER.one(index, opencl)


def filling(index, wanted):
    return WORKER.filling(index, wanted)


def fill(pool, report, first, count, wanted):
    """Draws `count` more graphs, and compares those with an entry of the table that no graph had
    yet. Drawing is quicker than comparing."""
    for start in range(first, first + count, FILLED_AT_A_TIME):
        empty = frozenset(wanted - entries(report.hits))
        if not empty:
            break
        numbers = range(start, min(start + FILLED_AT_A_TIME, first + count))
        for outcome in pool.map(filling, numbers, [empty] * len(numbers), chunksize=20):
            if outcome:
                report.add(outcome)


def save(folder, drawn):
    """A case as a folder: the model, its records, the scores expected."""
    g, expected = drawn.g, drawn.expected[:5]
    put(folder, g, drawn.data)
    np.save(folder / "in.npy", drawn.rows()[:5])
    if g.answer == "scores":
        return np.savetxt(folder / "expected.csv", expected, fmt="%.9g", delimiter=",")
    above = {"class": lambda e: [np.argmax(e)], "binary": lambda e: [int(e[0] > g.threshold)]}
    flags = lambda e: np.flatnonzero(e > g.threshold)
    lines = [",".join(str(i) for i in above.get(g.answer, flags)(e)) for e in expected]
    (folder / "classes.csv").write_text("".join(line + "\n" for line in lines))


def main():
    p = argparse.ArgumentParser(
        prog="tests/differential/run",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    p.add_argument("--graphs", type=int, default=150, help="how many  [150]")
    p.add_argument("--opencl", type=int, default=0, help="how many of them run on OpenCL too  [0]")
    p.add_argument(
        "--seed", type=lambda s: int(s, 0), default=0, help="what the graphs are drawn from  [0]"
    )
    p.add_argument(
        "--graph", type=int, help="this graph alone, on OpenCL too where --opencl is not 0"
    )
    p.add_argument("--first", type=int, default=0, help="the number of the first graph  [0]")
    p.add_argument("--jobs", type=int, default=os.cpu_count(), help="graphs at a time  [the CPUs]")
    p.add_argument(
        "--formats",
        default="onnx,tflite,json,exported",
        help="some of onnx, tflite, tflite_int8, tflite_dynamic, json, exported  "
        "[onnx,tflite,json,exported]",
    )
    p.add_argument(
        "--table",
        action="store_true",
        help="print how often each operation, attribute, rank and type occurred",
    )
    p.add_argument(
        "--fill",
        type=int,
        default=0,
        help="draw so many more graphs, and compare those with an entry of the table that is still "
        "empty  [0]",
    )
    p.add_argument("--save", help="a folder for shrunk failures")
    p.add_argument("--most", type=int, default=20, help="stop after so many failures  [20]")
    p.add_argument("--as-drawn", action="store_true", help="do not shrink graphs that fail")
    p.add_argument("--kernels", help="a folder of kernels instead of the baked ones")
    p.add_argument("--bake", required=True), p.add_argument("--program", required=True)
    a = p.parse_args()
    from formats import module

    formats = a.formats.split(",")
    modules = [module(f) for f in formats]
    numbers = [a.graph] if a.graph is not None else range(a.first, a.first + a.graphs)
    report, start = Report(), time.monotonic()
    place = "/dev/shm" if os.path.isdir("/dev/shm") else None
    processes = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory(dir=place, prefix="mortonnet-differential-") as folder:
        names = processes.Queue()
        for number in range(a.jobs):
            names.put(number)

        # Graphs on OpenCL are spread over the others.
        share = lambda i: i * a.opencl // len(numbers)
        opencl = [
            bool(a.opencl and (a.graph is not None or share(i) != share(i + 1)))
            for i in range(len(numbers))
        ]
        with concurrent.futures.ProcessPoolExecutor(
            a.jobs, processes, begin, (a, folder, names)
        ) as pool:
            for done in concurrent.futures.as_completed(
                pool.submit(one, *job) for job in zip(numbers, opencl)
            ):
                report.add(done.result())
                if len(report.failures) >= a.most:
                    pool.shutdown(cancel_futures=True)
                    break
            else:
                if a.fill:
                    wanted = {w for m in modules for w in m.promised()}
                    fill(pool, report, a.first + a.graphs, a.fill, wanted)
    seconds, n = time.monotonic() - start, report.counts["graphs"]
    accepted = 100 - 100 * report.counts["refused"] / max(1, n)
    print(
        f"\n{n} graphs of seed {a.seed} ({', '.join(formats)}), {report.counts['nodes']} nodes, "
        f"in {seconds:.0f} s, "
        f"{n / seconds:.1f} a second; {report.counts['on OpenCL']} on OpenCL too; "
        f"{report.counts['judged by the reference implementation']} judged by onnx.reference"
    )
    print(
        f"accepted: {accepted:.1f} %; failures: {len(report.failures)} "
        f"{dict(collections.Counter(report.failures))}"
    )
    for title, counts in (("refusals", report.refusals), ("drawn again", report.again)):
        for message, count in counts.most_common(40):
            print(f"{title:12} {count:6}  {message}")
    empty = 0
    if a.table:
        empty = print_table(report.hits, modules)
    few = n >= 100 and accepted < 90
    if few:
        print("fewer than 90 % of the graphs were accepted")
    sys.exit(1 if report.failures or few or empty else 0)


if __name__ == "__main__":
    main()
