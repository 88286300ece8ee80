#!/usr/bin/env python3
"""Measures the way from a model file to its first class, and the files that it needs, in one run.

usage: target/zoo-python/bin/python benches/model_to_class.py [--models NAME...] [--runs N]
                                    [--cores 0,1] [--target aarch64]

The sides are mortonnet-bake, cargo build, ONNX Runtime, LiteRT, and emx-onnx-cgen with gcc, on the
same cores. Needs the networks of `tests/needs zoo`, target/dist of `release/make x86_64`, and gcc.
Installs emx-onnx-cgen into target/zoo-python. Each model reads, in turns, a first record from a
file, and its class is checked against the model's own result.

With --target aarch64 everything is made here for a board's CPU and started under qemu. The runtimes
are that CPU's wheels in that CPU's Python (tests/boards/setup and benches/peers/aarch64-python
fetch missing parts).

make    the work that is done once for a model: mortonnet-bake; `cargo build --release` with all
        other packages compiled; emx-onnx-cgen and `gcc -O3` of its C for this CPU (or a
        Cortex-A53), with a main that reads a record and prints the class. The runtimes read the
        model at each start.
start   from before the process starts to its first line on stdout
files   bytes that a machine needs, beside the C library and, for the runtimes, Python itself: the
        program, or the model and the installed wheels with those that they need

Prints medians and the spread (fastest to slowest).
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ZOO, PYTHON, DIST = ROOT / "target/zoo", ROOT / "target/zoo-python/bin/python", ROOT / "target/dist"

RUNTIMES = {
    "ONNX Runtime": (
        "onnx",
        ("onnxruntime", "numpy", "flatbuffers", "google", "packaging"),
        """
import sys, numpy, onnxruntime
options = onnxruntime.SessionOptions(); options.intra_op_num_threads = 2
session = onnxruntime.InferenceSession(sys.argv[1], options)
shape = [d if isinstance(d, int) else 1 for d in session.get_inputs()[0].shape]
x = numpy.fromfile(sys.argv[2], "f4").reshape(shape)
print(session.run(None, {session.get_inputs()[0].name: x})[0].argmax(), flush=True)
""",
    ),
    "LiteRT": (
        "tflite",
        ("ai_edge_litert", "numpy", "flatbuffers", "typing_extensions.py"),
        """
import sys, numpy
from ai_edge_litert.interpreter import Interpreter
net = Interpreter(sys.argv[1], num_threads=2); net.allocate_tensors()
i, o = net.get_input_details()[0], net.get_output_details()[0]
n, h, w, c = i["shape"]
x = numpy.fromfile(sys.argv[2], "f4").reshape(n, c, h, w).transpose(0, 2, 3, 1)
net.set_tensor(i["index"], x); net.invoke()
print(net.get_tensor(o["index"]).argmax(), flush=True)
""",
    ),
}


class Here:
    """This machine."""

    bake, cargo, folder, gcc = (), ["cargo", "build"], "release", ["gcc", "-march=native"]
    run, python = [], [PYTHON]
    site = next((ROOT / "target/zoo-python/lib").glob("python*/site-packages"))

    def ready(self):
        pass


class Aarch64:
    """A board's CPU, emulated, with its own Debian. mortonnet gets the oldest C library instead."""

    root = ROOT / "target/aarch64-python"
    bake, folder = ("--target", "aarch64"), "aarch64-unknown-linux-gnu/release"
    cargo = [
        ROOT / "target/boards/zigbuild",
        "zigbuild",
        "--offline",
        "--target",
        "aarch64-unknown-linux-gnu.2.19",
    ]
    gcc = ["aarch64-linux-gnu-gcc", "-mcpu=cortex-a53"]
    run = ["qemu-aarch64-static", "-L", root]
    python = [
        *run,
        "-E",
        f"PYTHONHOME={root}/usr",
        "-E",
        f"PYTHONPATH={root}/wheels",
        root / "usr/bin/python3.11",
    ]
    site = root / "wheels"

    def ready(self):
        subprocess.run([ROOT / "tests/boards/setup"], check=True)
        subprocess.run([ROOT / "benches/peers/aarch64-python"], check=True)


def timed(command, **how):
    """Seconds until it has ended, and what it printed."""
    start = time.perf_counter()
    ended = subprocess.run(list(map(str, command)), capture_output=True, text=True, **how)
    taken = time.perf_counter() - start
    if ended.returncode:
        sys.exit(f"{command}: {ended.stderr[-2000:]}")
    return taken, ended.stdout


def first_line(command):
    start = time.perf_counter()
    with subprocess.Popen(
        list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as child:
        line = child.stdout.readline()
        taken = time.perf_counter() - start
    return taken, line


def size(path):
    return (
        path.stat().st_size
        if path.is_file()
        else sum(f.stat().st_size for f in path.rglob("*") if f.is_file())
    )


def cargo(on, model, target):
    """`cargo build --release` of this package alone."""
    unset = ("MORTONNET_PLAN", "MORTONNET_WEIGHTS")
    environment = {k: v for k, v in os.environ.items() if k not in unset} | {
        "MORTONNET_MODEL": str(model)
    }
    return timed(
        [*on.cargo, "--release", "--quiet", "--target-dir", target], cwd=ROOT, env=environment
    )[0]


def emx(on, model, folder, values, outputs):
    """The model as C, with a main."""
    command = [
        PYTHON.with_name("emx-onnx-cgen"),
        "compile",
        model,
        folder / "net.c",
        "--model-name",
        "net",
    ]
    # All weights in the source, none in a file beside it; a batch of one (N is the dimension's name
    # in these models).
    taken, _ = timed([*command, "--large-weight-threshold", 10**9, "--input-dim", "N=1"])
    source = (folder / "net.c").read_text()
    (folder / "net.c").write_text(
        source
        + f"""
#include <stdio.h>
static float x[{values}], y[{outputs}];
int main(int n, char **a) {{
    FILE *f = fopen(a[1], "rb");
    if (!f || fread(x, 4, {values}, f) != {values}) return 1;
    net((void *)x, (void *)y);
    int best = 0;
    for (int i = 1; i < {outputs}; i++) if (y[i] > y[best]) best = i;
    printf("%d\\n", best);
    return 0;
}}
"""
    )
    return taken + timed([*on.gcc, "-O3", "-w", "-o", folder / "emx", folder / "net.c", "-lm"])[0]


def shown(values, factor, unit):
    low, middle, high = (
        float(f"{v * factor:.3g}") for v in (min(values), statistics.median(values), max(values))
    )
    return f"{middle:g} {unit} ({low:g} to {high:g})"


def measure(on, name, runs, work):
    import numpy as np

    inputs, results = np.load(ZOO / f"{name}_inputs.npy"), np.load(ZOO / f"{name}_results.npy")
    inputs, results = (
        inputs.reshape(len(inputs), -1).astype("<f4"),
        results.reshape(len(results), -1),
    )
    record = work / "record"
    record.write_bytes(inputs[0].tobytes())
    expected = int(results[0].argmax())
    models = {kind: ZOO / f"{name}.{kind}" for kind in ("onnx", "tflite")}
    made = {}
    bake = [
        DIST / "mortonnet-bake-x86_64",
        models["tflite"],
        "-o",
        work / "baked",
        "--plan",
        "host",
        *on.bake,
    ]
    bakes = [timed(bake)[0] for _ in range(runs)]
    made["mortonnet-bake"] = (
        bakes,
        [*on.run, work / "baked", "-d", "host", "-f", "f32", record],
        size(work / "baked"),
    )
    target = ROOT / "target/bench-model"
    cargo(on, ROOT / "model/digits", target)
    builds = [cargo(on, models["tflite"], target)]
    shutil.copy(target / on.folder / "mortonnet", work / "built")
    made["cargo build"] = (
        builds,
        [*on.run, work / "built", "-d", "host", "-f", "f32", record],
        size(work / "built"),
    )
    for runtime, (kind, packages, script) in RUNTIMES.items():
        (work / f"{kind}.py").write_text(script)
        parts = [
            part
            for package in packages
            for part in on.site.glob(f"{package}*")
            if ".dist-info" not in part.name
        ]
        made[runtime] = (
            [],
            [*on.python, work / f"{kind}.py", models[kind], record],
            size(models[kind]) + sum(map(size, parts)),
        )
    taken = emx(on, models["onnx"], work, inputs.shape[1], results.shape[1])
    made["emx-onnx-cgen, gcc"] = ([taken], [*on.run, work / "emx", record], size(work / "emx"))
    starts = {what: [] for what in made}
    for turn in range(runs + 2):
        for what, (_, command, _) in made.items():
            taken, line = first_line(command)
            found = line.decode().strip() or sys.exit(f"{name}: {what} ended without a class")
            if found != str(expected):
                print(
                    f"note: {name}: {what} says {found}, the model's own result is {expected}",
                    file=sys.stderr,
                )
            if turn >= 2:  # the first turns warm the file cache
                starts[what].append(taken)
    for what, (makes, _, files) in made.items():
        make = (
            shown(makes, 1e3, "ms")
            if makes and len(makes) > 1
            else f"{makes[0] * 1e3:.0f} ms"
            if makes
            else "–"
        )
        print(
            f"| {name} | {what} | {make} | {shown(starts[what], 1e3, 'ms')} "
            f"| {files / 1e6:.2f} MB |"
        )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="*", default=["mobilenet-v1-0.25", "ds-cnn"])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--cores", default="0,1")
    parser.add_argument("--target", choices=["aarch64"])
    options = parser.parse_args()
    on = Aarch64() if options.target else Here()
    on.ready()
    subprocess.run([PYTHON, "-m", "pip", "install", "--quiet", "emx-onnx-cgen"], check=True)
    os.sched_setaffinity(0, {int(core) for core in options.cores.split(",")})
    os.environ["MORTONNET_CACHE"] = ""
    print("| model | with | make | start to first class | files |\n|---|---|--:|--:|--:|")
    for name in options.models:
        with tempfile.TemporaryDirectory() as work:
            measure(on, name, options.runs, Path(work))


if __name__ == "__main__":
    main()
