#!/usr/bin/env python3
"""Measures whole processes beside other software: CSV, first class, bytes through a pipe.

usage: MNIST_DIR=FOLDER benches/stream.py [--python PYTHON] [--runs N] [--cores 0,1]
                                          [--records N] [--peer SCRIPT]

Builds the program with model/mnist and runs all sides in turns, pinned to the same cores.

- 10 000 MNIST vectors as CSV, and one vector: the peer is NumPy (benches/peers/stream_numpy.py, or
  any SCRIPT with that usage). Its weights have the input scaling folded in, as the program's have.
  The classes of both sides are compared after each run.
- a million vectors of 784 random bytes: `cat FILE | mortonnet -f u8` against `cat FILE | wc -c` and
  against the bare host engine, whose rate on resident data `mortonnet bench network` prints.

Prints medians, the spread (fastest to slowest), and the ratio to each peer. Peak memory is of a run
of its own under GNU time, since a child of Python would start with Python's own peak. PYTHON is an
interpreter with NumPy.
"""

import argparse
import csv
import gzip
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
WIDTH = 784
BATCH = 256  # of the plan


def run(command, file, cat=False):
    """Wall time in ms, and the output. Input is `file`, or `cat` of it through a pipe."""
    start = time.perf_counter()
    if cat:
        source = subprocess.Popen(["cat", file], stdout=subprocess.PIPE)
        done = subprocess.run(command, stdin=source.stdout, stdout=subprocess.PIPE, check=True)
        source.stdout.close()
        source.wait()
    else:
        with open(file, "rb") as source:
            done = subprocess.run(command, stdin=source, stdout=subprocess.PIPE, check=True)
    return (time.perf_counter() - start) * 1e3, done.stdout


def peak_memory(command, file, work):
    """Peak resident megabytes."""
    run(["/usr/bin/time", "-f", "%M", "-o", work / "peak", *command], file)
    return int((work / "peak").read_text()) * 1024 / 1e6


def engine(program, records):
    """Milliseconds that the bare engine takes for so many records."""
    command = [program, "bench", "network", "--device", "host", "--batch", str(BATCH), "-o", "csv"]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    (row,) = csv.DictReader(done.stdout.splitlines())
    return float(row["median_us"]) / 1e3 * records / BATCH


def report(what, times, memory):
    """A line a side; the first side is the program."""
    ours = next(iter(times))
    for side, t in times.items():
        m = memory.get(side)
        ratio = statistics.median(times[ours]) / statistics.median(t)
        share = f"{memory[ours] / m:.3f}" if m else ""
        shown = f"{m:.1f}" if m else ""
        print(
            f"{what},{side},{statistics.median(t):.2f},{min(t):.2f},{max(t):.2f},{ratio:.4f},"
            f"{shown},{share}",
            flush=True,
        )


def prepare(mnist, work):
    """Writes the vectors, and the peer's weights with the input's scaling in the first layer."""
    images = gzip.open(pathlib.Path(mnist) / "t10k-images-idx3-ubyte.gz").read()[16:]
    lines = [",".join(map(str, images[i : i + WIDTH])) for i in range(0, len(images), WIDTH)]
    (work / "many.csv").write_text("\n".join(lines) + "\n")
    (work / "one.csv").write_text(lines[0] + "\n")
    shutil.copytree(ROOT / "model/mnist", work / "model")
    scale = json.loads((work / "model/network.json").read_text())["input"]["scale"]
    first = work / "model/1_w.csv"
    rows = [[repr(float(x) * scale) for x in line.split(",")] for line in first.read_text().split()]
    first.write_text("".join(",".join(row) + "\n" for row in rows))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--cores", default="0,1")
    parser.add_argument(
        "--records", type=int, default=1_000_000, help="of the pipe; 0: leave it out"
    )
    parser.add_argument("--peer", default=str(ROOT / "benches/peers/stream_numpy.py"))
    a = parser.parse_args()
    mnist = os.environ.get("MNIST_DIR") or sys.exit(
        "set MNIST_DIR to the folder of the MNIST files"
    )
    build = ["cargo", "build", "--quiet", "--release", "--target-dir", "target/mnist"]
    subprocess.run(
        build, cwd=ROOT, env={**os.environ, "MORTONNET_MODEL": "model/mnist"}, check=True
    )
    program = str(ROOT / "target/mnist/release/mortonnet")
    os.sched_setaffinity(0, {int(c) for c in a.cores.split(",")})
    print("what,side,median_ms,fastest_ms,slowest_ms,ratio_time,peak_MB,ratio_memory")
    memory_folder = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(dir=memory_folder) as work:
        work = pathlib.Path(work)
        prepare(mnist, work)
        sides = {
            "mortonnet": [program, "--device", "host"],
            "numpy": [a.python, a.peer, str(work / "model")],
        }
        for what, name in (
            ("10000 vectors as CSV", "many.csv"),
            ("start to first class", "one.csv"),
        ):
            file, times, answers = work / name, {s: [] for s in sides}, {}
            for turn in range(a.runs + 1):
                for side, command in sides.items():
                    elapsed, answers[side] = run(command, file)
                    if turn > 0:  # the first turn warms the file cache
                        times[side].append(elapsed)
                if answers["mortonnet"] != answers["numpy"]:
                    sys.exit(f"{what}: the classes differ")
            report(
                what,
                times,
                {side: peak_memory(command, file, work) for side, command in sides.items()},
            )
        if a.records == 0:
            return
        file = work / "bytes"
        with open(file, "wb") as out:
            for start in range(0, a.records, 10_000):
                out.write(os.urandom(WIDTH * min(10_000, a.records - start)))
        ours = [program, "--device", "host", "-f", "u8"]
        times = {"mortonnet": [], "cat | wc -c": [], "bare engine": []}
        for turn in range(a.runs + 1):
            found = [run(ours, file, cat=True), run(["wc", "-c"], file, cat=True)]
            if found[0][1].count(b"\n") != a.records or int(found[1][1]) != WIDTH * a.records:
                sys.exit("the pipe lost records")
            if turn > 0:
                for side, elapsed in zip(
                    times, [found[0][0], found[1][0], engine(program, a.records)]
                ):
                    times[side].append(elapsed)
        report(f"{a.records} vectors as bytes", times, {"mortonnet": peak_memory(ours, file, work)})


if __name__ == "__main__":
    main()
