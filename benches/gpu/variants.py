#!/usr/bin/env python3
"""Measures plans and types of weights in turns on one device; prints CSV, a line for each run.

    python3 benches/gpu/variants.py PROGRAM [--device NVIDIA] [--turns 2]
                                    [--networks partial-mnist,…] [--plans generic,…]

Weights are floats and halves on the four networks, in batches of 100, and of 1 on the full
networks. Plans run the networks that one launch may take. Each run is `mortonnet bench network`,
which checks its answers before it times. A run that fails is named on stderr and left out.
"""

import argparse
import subprocess
import sys

parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
parser.add_argument("program")
parser.add_argument("--device", default="NVIDIA")
parser.add_argument("--turns", type=int, default=2)
parser.add_argument("--networks", default="partial-mnist,partial-cifar,full-mnist,full-cifar")
parser.add_argument("--plans", default="generic,desktop,nvidia")
a = parser.parse_args()

names = a.networks.split(",")
cases = [(name, 100, weights, None) for name in names for weights in ("f32", "f16")]
cases += [
    (name, 1, weights, None)
    for name in names
    if name.startswith("full")
    for weights in ("f32", "f16")
]
small = ["baseline", *(name for name in names if name.startswith("partial"))]
cases += [(name, 100, "f32", plan) for name in small for plan in a.plans.split(",")]

head, failed = None, 0
for turn in range(a.turns):
    for name, batch, weights, plan in cases:
        command = [
            a.program,
            "bench",
            "network",
            "--device",
            a.device,
            "--shape",
            name,
            "--batch",
            str(batch),
        ]
        command += ["--weights", weights, "-o", "csv", *(["--plan", plan] if plan else [])]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            failed += 1
            print(
                f"{' '.join(command)}: exit {done.returncode}: {done.stderr.strip()}",
                file=sys.stderr,
            )
            continue
        names_of, values = done.stdout.splitlines()
        if head != names_of:
            head = names_of
            print(f"turn,weights,{head}")
        print(f"{turn + 1},{weights},{values}", flush=True)
sys.exit(1 if failed else 0)
