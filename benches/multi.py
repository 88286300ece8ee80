#!/usr/bin/env python3
"""Measures two devices that share a stream, beside one of them.

usage: benches/multi.py [--runs 5] [--cores 0,1] [--records 16000] [--shape 784-2500-2000-10]
                        [--slow 4] [--program FILE]

Bakes a network of the shape with generated weights (in target/multi) and classifies random records
of bytes, whole processes in turns. The devices are PoCL's `basic` ones, which compute on one core
each. Times are milliseconds behind start-up. The classes of all runs are compared. Three pairs are
measured, each with the ratio that it must reach:

- `--device 0,1` beside half of `--device 0`: 1.15;
- `--device 0,1` with one device slowed down by tests/shim to `--slow` times its time, beside the
  faster one alone, wherever the slow one stands in the list: 1.00;
- `--device host,all`, on cores that all of them want, beside the host alone: 1.05.

Nobody else should use the cores meanwhile.
"""

import argparse
import array
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORK = ROOT / "target/multi"
DRIVERS = "/etc/OpenCL/vendors/pocl.icd"


def network(sizes):
    """Writes a model folder with weights that keep the activations' size."""
    folder = WORK / "model"
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(7)
    layers = []
    for i, (inputs, outputs) in enumerate(zip(sizes, sizes[1:]), 1):
        scale = (6 / inputs) ** 0.5
        values = {
            "w": array.array(
                "f", (scale * (rng.random() - 0.5) * 2 for _ in range(inputs * outputs))
            )
        }
        values["b"] = array.array("f", [0.01] * outputs)
        for name, cols in (("w", inputs), ("b", 1)):
            (folder / f"{i}_{name}.f32").write_bytes(values[name].tobytes())
            matrix = {"rows": outputs, "cols": cols, "data_type": "f32", "file": f"{i}_{name}.f32"}
            (folder / f"{i}_{name}.json").write_text(json.dumps(matrix))
        layers += [
            {"layer": "AffineLayer", "weights": f"{i}_w.json", "biases": f"{i}_b.json"},
            {"layer": "ReLULayer"},
        ]
    text = {
        "name": "multi",
        "layers": layers[:-1],
        "size": len(layers) - 1,
        "input": {"scale": 1 / 255},
    }
    (folder / "network.json").write_text(json.dumps(text))
    return folder


def build(shape):
    sizes = [int(n) for n in shape.split("-")]
    program = WORK / f"mortonnet-{shape}"
    environment = dict(os.environ, MORTONNET_MODEL=str(network(sizes)), MORTONNET_PLAN="cpu-simd")
    command = ["cargo", "build", "--quiet", "--release", "--target-dir", str(WORK)]
    subprocess.run(command, cwd=ROOT, env=environment, check=True)
    program.write_bytes((WORK / "release/mortonnet").read_bytes())
    program.chmod(0o755)
    return program, sizes[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--cores", default="0,1")
    parser.add_argument("--records", type=int, default=16000)
    parser.add_argument("--shape", default="784-2500-2000-10")
    parser.add_argument("--slow", type=float, default=4)
    parser.add_argument("--program", help="with the shape baked in")
    a = parser.parse_args()
    program, width = (a.program, int(a.shape.split("-")[0])) if a.program else build(a.shape)
    WORK.mkdir(parents=True, exist_ok=True)
    shim, records, profile = WORK / "libshim.so", WORK / "records.u8", WORK / "profile.json"
    source = str(ROOT / "tests/shim/opencl_shim.c")
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-O1", "-o", shim, source, "-ldl", "-lpthread"], check=True
    )
    records.write_bytes(random.Random(1).randbytes(a.records * width))
    cores = {int(c) for c in a.cores.split(",")}
    classes = set()

    def turn(devices, slow=None):
        environment = dict(
            os.environ,
            OCL_ICD_VENDORS=DRIVERS,
            POCL_DEVICES="basic basic",
            MORTONNET_OPENCL=str(shim),
        )
        environment.update(MORTONNET_CACHE="", MORTONNET_SHIM_REAL="libOpenCL.so.1")
        if slow is not None:
            environment["MORTONNET_SHIM_SLOW"] = f"{slow}:{a.slow}:0:1"
        command = [program, "--device", devices, "-f", "u8", f"--profile=json:{profile}", records]
        pin = lambda: os.sched_setaffinity(0, cores)
        done = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, check=True, preexec_fn=pin
        )
        classes.add(done.stdout)
        found = json.loads(profile.read_text())
        shares = [m["share"] for m in found.get("members", [])]
        return (found["elapsed_us"] - found["startup_us"]) / 1e3, shares

    sides = {
        "one": ("0",),
        "two": ("0,1",),
        "the second slow": ("0,1", 1),
        "the first slow": ("0,1", 0),
        "the host": ("host",),
        "host,all": ("host,all",),
    }
    times, shares = {side: [] for side in sides}, {}
    for _ in range(a.runs):
        for side, arguments in sides.items():
            ms, shares[side] = turn(*arguments)
            times[side].append(ms)
    if len(classes) != 1:
        sys.exit("the runs do not agree")
    one = statistics.median(times["one"])
    print(f"{a.shape}, {a.records} records, {a.runs} runs; slow: {a.slow:g} times as long\n")
    print(
        "| devices | ms (fastest to slowest) | against | ratio | shares, last run |\n"
        "|---|---|---|---|---|"
    )
    for side, t in times.items():
        host = statistics.median(times["the host"])
        against, of = ("half of one", one / 2) if side == "two" else ("one", one)
        if side in ("the host", "host,all"):
            against, of = ("the faster of the host and one", min(host, one))
        spread = f"{statistics.median(t):.1f} ({min(t):.1f} to {max(t):.1f})"
        share = ", ".join(f"{s:.2f}" for s in shares[side])
        print(f"| {side} | {spread} | {against} | {statistics.median(t) / of:.3f} | {share} |")


if __name__ == "__main__":
    main()
