#!/usr/bin/env python3
"""Measures the start to the first class of one vector, with and without the kernel-binary cache.

usage: benches/startup.py [--runs N] [--device DEV] [--plan NAME] [--opencl LIBRARY] [--cores 0,1]

Builds the program with model/mnist and runs whole processes of these sides in turns, one vector
each, on an OpenCL device:

  hit           the cache folder has the programs
  miss          the cache folder is empty: compiled, tried once, and stored
  off           no cache folder: compiled

The driver's own caches are emptied before each run (POCL_CACHE_DIR and HOME are new folders,
CUDA_CACHE_DISABLE=1), as on a driver that has none, like Mali's. `hit, driver's cache` and `off,
driver's cache` keep the driver's caches of the run before.

Then the host engine runs beside an empty Rust program.

Prints medians of the wall time of the process, the spread (fastest to slowest) and the ratio to
`hit` (or to the empty program). It also prints the median of the start-up that the program reports,
from the start of `main` until the first record could be read. All sides' classes are compared.
"""

import argparse
import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
WIDTH = 784


def run(command, record, settings):
    """Wall time in ms, and the output."""
    start = time.perf_counter()
    done = subprocess.run(
        command, input=record, stdout=subprocess.PIPE, check=True, env={**os.environ, **settings}
    )
    return (time.perf_counter() - start) * 1e3, done.stdout


class Bench:
    def __init__(self, program, work, arguments):
        self.work, self.record = work, random.Random(1).randbytes(WIDTH)
        self.command = [program, "-f", "u8", f"--profile=json:{work / 'profile'}"]
        self.opencl = ["--device", arguments.device] + (
            ["--plan", arguments.plan] if arguments.plan else []
        )
        self.library = {"MORTONNET_OPENCL": arguments.opencl} if arguments.opencl else {}

    def once(self, side):
        """One run of a side: wall and start-up time in ms, and the class."""
        driver = self.work / "driver"
        if "driver's" not in side:
            shutil.rmtree(driver, ignore_errors=True)
        driver.mkdir(exist_ok=True)
        cache = self.work / "cache"
        if side == "miss":
            cache = self.work / "empty"
            shutil.rmtree(cache, ignore_errors=True)
        settings = {"POCL_CACHE_DIR": str(driver), "HOME": str(driver), **self.library}
        settings["CUDA_CACHE_DISABLE"] = "0" if "driver's" in side else "1"
        settings["MORTONNET_CACHE"] = "" if side.startswith("off") else str(cache)
        wall, answer = run(self.command + self.opencl, self.record, settings)
        profile = json.loads((self.work / "profile").read_text())
        found = profile["kernel_cache"]["result"]
        if found != ("HIT" if side.startswith("hit") else "MISS"):
            sys.exit(f"{side}: the program says {profile['kernel_cache']}")
        return wall, profile["startup_us"] / 1e3, answer


def line(what, side, walls, starts, base):
    start = f"{statistics.median(starts):.2f}" if starts else ""
    ratio = statistics.median(walls) / base
    print(
        f"{what},{side},{statistics.median(walls):.2f},{min(walls):.2f},{max(walls):.2f},"
        f"{ratio:.2f},{start}",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--device", default="opencl")
    parser.add_argument("--plan")
    parser.add_argument("--opencl", help="OpenCL library instead of the one that the program finds")
    parser.add_argument("--program", help="a program with model/mnist, instead of building it")
    parser.add_argument("--cores", default="0,1")
    a = parser.parse_args()
    program = a.program or str(ROOT / "target/mnist/release/mortonnet")
    if not a.program:
        build = ["cargo", "build", "--quiet", "--release", "--target-dir", "target/mnist"]
        subprocess.run(
            build, cwd=ROOT, env={**os.environ, "MORTONNET_MODEL": "model/mnist"}, check=True
        )
    os.sched_setaffinity(0, {int(c) for c in a.cores.split(",")})
    print("what,side,median_ms,fastest_ms,slowest_ms,ratio,startup_ms")
    with tempfile.TemporaryDirectory() as work:
        bench = Bench(program, pathlib.Path(work), a)
        sides = ["hit", "hit, driver's cache", "miss", "off", "off, driver's cache"]
        # The first turn fills the cache.
        settings = {**bench.library, "MORTONNET_CACHE": str(bench.work / "cache")}
        run(bench.command + bench.opencl, bench.record, settings)
        walls, starts, answers = {s: [] for s in sides}, {s: [] for s in sides}, set()
        for _ in range(a.runs):
            for side in sides:
                wall, start, answer = bench.once(side)
                walls[side].append(wall)
                starts[side].append(start)
                answers.add(answer)
        if len(answers) != 1:
            sys.exit(f"the sides differ: {answers}")
        for side in sides:
            line("OpenCL", side, walls[side], starts[side], statistics.median(walls["hit"]))
        if not shutil.which("rustc"):
            return
        empty = bench.work / "program"
        (bench.work / "empty.rs").write_text("fn main() {}\n")
        subprocess.run(["rustc", "-O", "-o", empty, bench.work / "empty.rs"], check=True)
        times = {"empty Rust program": [], "mortonnet": []}
        for _ in range(3 * a.runs):
            times["empty Rust program"].append(run([empty], b"", {})[0])
            times["mortonnet"].append(
                run([program, "-f", "u8", "--device", "host"], bench.record, {})[0]
            )
        base = statistics.median(times["empty Rust program"])
        for side, walls in times.items():
            line("host engine", side, walls, [], base)


if __name__ == "__main__":
    main()
