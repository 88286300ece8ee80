#!/usr/bin/env python3
"""Measures two builds of mortonnet in turns on the same machine: the cost or gain of a change.

    python3 benches/before_after.py BEFORE AFTER [--device NVIDIA] [--plans a,b] [--shapes …]
                                    [--batches 100,1] [--turns 5]
    python3 benches/before_after.py BEFORE AFTER --stream [--turns 40]

The first form runs `bench network` for every plan that both programs have for the device. Each run
checks its answers before it times. The table has the median of the turns' medians, the ratio of
both, and the spread of the ratios of neighbouring turns. --stream measures the start to the first
class, and records as CSV and as f32 through a pipe, on the host engine. Markdown goes to stdout.
"""

import argparse
import json
import random
import statistics
import struct
import subprocess
import sys
import time

parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
parser.add_argument("before")
parser.add_argument("after")
parser.add_argument("--device", default="NVIDIA")
parser.add_argument("--plans", help="else all plans of both")
parser.add_argument("--shapes", default="baseline,partial-mnist,partial-cifar,full-mnist")
parser.add_argument("--batches", default="100,1")
parser.add_argument("--turns", type=int, default=5)
parser.add_argument(
    "--time-limit", type=float, default=1e9, help="seconds; what is left then is not measured"
)
parser.add_argument("--stream", action="store_true")
a = parser.parse_args()
programs = [a.before, a.after]
begin = time.monotonic()
failed = 0


def row(name, times):
    """A line: times is a list of (before, after)."""
    before, after = (statistics.median(t) for t in zip(*times))
    ratios = sorted(y / x for x, y in times)
    low, high = ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]
    print(
        f"| {name} | {before:.4g} | {after:.4g} | {after / before:.3f} | {low:.3f} to {high:.3f} |",
        flush=True,
    )


def head(what):
    print(f"| {what} | before | after | after / before | quartiles |\n|---|---|---|---|---|")


def network(program, plan, shape, batch):
    """Median time in µs of a batch; None if the plan does not run."""
    command = [program, "bench", "network", "--device", a.device, "--plan", plan, "--shape", shape]
    done = subprocess.run(
        [*command, "--batch", str(batch), "-o", "json"], capture_output=True, text=True
    )
    if done.returncode:
        print(
            f"{' '.join(command)}: exit {done.returncode}: {done.stderr.strip()}", file=sys.stderr
        )
        return None
    return json.loads(done.stdout)["median_us"]


def plans(program):
    """Names of the plans of a program."""
    page = subprocess.run([program, "--info"], capture_output=True, text=True, check=True).stdout
    line = next(line for line in page.splitlines() if line.startswith("plans"))
    return line.removeprefix("plans").split(" (")[0].strip().split(", ")


def piped(program, arguments, data):
    """Seconds until the program has answered `data`."""
    start = time.perf_counter()
    subprocess.run([program, *arguments], input=data, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start


if a.stream:
    chance = random.Random(1)
    records = [[chance.randint(0, 16) for _ in range(64)] for _ in range(30_000)]
    csv = "".join(",".join(map(str, r)) + "\n" for r in records).encode()
    floats = b"".join(struct.pack("<64f", *r) for r in records)
    head("host engine, ms")
    for name, arguments, data in [
        ("start to the first class", ["-d", "host"], csv[: csv.index(b"\n") + 1]),
        ("30000 records of 64 numbers, CSV", ["-d", "host"], csv),
        ("the same as f32", ["-d", "host", "-f", "f32"], floats),
        ("the same as f32, probabilities", ["-d", "host", "-f", "f32", "-o", "probs"], floats),
    ]:
        times = []
        for turn in range(a.turns):
            both = [
                1e3 * piped(p, arguments, data) for p in (programs if turn % 2 else programs[::-1])
            ]
            times.append(both if turn % 2 else both[::-1])
        row(name, times)
    sys.exit()

known = [plan for plan in plans(programs[0]) if plan in plans(programs[1])]
chosen = a.plans.split(",") if a.plans else [p for p in known if p != "host"]
head(f"plan, network, batch: µs on {a.device}")
for plan in chosen:
    for shape in a.shapes.split(","):
        for batch in map(int, a.batches.split(",")):
            times = []
            for turn in range(a.turns):
                if time.monotonic() - begin > a.time_limit:
                    break
                order = programs if turn % 2 else programs[::-1]
                both = [network(p, plan, shape, batch) for p in order]
                if None in both:
                    failed += 1
                    break
                times.append(both if turn % 2 else both[::-1])
            if times:
                row(f"{plan}, {shape}, {batch}", times)
sys.exit(1 if failed else 0)
