#!/usr/bin/env python3
"""Measures `mortonnet-bake`, and its program beside the one that cargo builds, in one run.

usage: benches/bake.py [--model FOLDER] [--runs N] [--cores 0,1]

Builds three programs into target/bench-bake, optimised and with the lab: mortonnet-bake, a program
without a network, and a program with MODEL [model/mnist] linked in. Bakes MODEL --runs times.

Then runs both programs in turns on the host engine, pinned to the same cores. Each reads one record
of zeros as text. The clock starts before the process and stops when its line can be read. The
classes are compared. Prints medians, the spread (fastest to slowest), and the sizes of the files.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGET = ROOT / "target/bench-bake"


def build(name, features, copy, **settings):
    """A program, copied to `copy`."""
    unset = ("MORTONNET_MODEL", "MORTONNET_PLAN", "MORTONNET_WEIGHTS")
    environment = {k: v for k, v in os.environ.items() if k not in unset} | settings
    command = [
        "cargo",
        "build",
        "--release",
        "--quiet",
        "--bin",
        name,
        "--target-dir",
        str(TARGET),
        *features,
    ]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, stderr=subprocess.DEVNULL)
    shutil.copy(TARGET / "release" / name, copy)


def first_line(program, record):
    """Milliseconds, and the line."""
    start = time.perf_counter()
    with subprocess.Popen(
        [program, "-d", "host"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        child.stdin.write(record)
        child.stdin.flush()
        line = child.stdout.readline()
        taken = 1e3 * (time.perf_counter() - start)
        child.stdin.close()
    return taken, line


def spread(what, values, unit):
    print(
        f"| {what} | {statistics.median(values):.2f} "
        f"| {min(values):.2f} to {max(values):.2f} {unit} |"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="model/mnist")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--cores", default="0,1")
    options = parser.parse_args()
    os.sched_setaffinity(0, {int(core) for core in options.cores.split(",")})
    model = (ROOT / options.model).resolve()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        arch = os.uname().machine
        tool, linked, appended = folder / "mortonnet-bake", folder / "linked", folder / "appended"
        build("mortonnet-bake", ["--features", "bake"], tool)
        build("mortonnet", ["--features", "appended"], folder / f"mortonnet-{arch}")
        start = time.perf_counter()
        build("mortonnet", [], linked, MORTONNET_MODEL=str(model))
        cargo = time.perf_counter() - start
        bakes = []
        for _ in range(max(options.runs // 20, 3)):
            start = time.perf_counter()
            subprocess.run([tool, model, "-o", appended], check=True, stderr=subprocess.DEVNULL)
            bakes.append(1e3 * (time.perf_counter() - start))
        info = subprocess.run([linked, "--info", "-o", "json"], check=True, capture_output=True)
        width = json.loads(info.stdout)["inputs"]
        record = ",".join(["0"] * width).encode() + b"\n"
        times = {linked: [], appended: []}
        for _ in range(options.runs):
            lines = []
            for program, found in times.items():
                taken, line = first_line(program, record)
                found.append(taken)
                lines.append(line)
            assert lines[0] == lines[1] and lines[0], lines
        print("| what | median | spread |\n|---|--:|--:|")
        spread("mortonnet-bake, ms", bakes, "ms")
        print(f"| cargo build, the second of this package, s | {cargo:.1f} | |")
        spread("first class, linked, ms", times[linked], "ms")
        spread("first class, appended, ms", times[appended], "ms")
        for program in (linked, appended, folder / f"mortonnet-{arch}", tool):
            print(f"| {program.name}, bytes | {program.stat().st_size} | |")


if __name__ == "__main__":
    main()
