#!/usr/bin/env python3
"""Plants twenty faults one by one and says within how many graphs each is found.

usage: tests/differential/planted.py [--graphs N] [--jobs J] [--only A,B]      default: N is 450

All faults but those of kernels are in one build, made in target/planted from the tracked files: the
variable PLANTED chooses one when mortonnet-bake and the program run. Faults of kernels are folders
for `--kernels`. A fault is found where an answer is wrong, or where mortonnet-bake itself refuses a
graph because what it baked disagrees. Exit code 1 if a fault was not found, or if graphs fail
without a fault.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PLANTED = ROOT / "target/planted"
FRONT, ONNX, TFLITE = "src/bake/front/", "src/bake/front/onnx/", "src/bake/front/tflite/"
# File, text, text with the fault. P is true where the fault is chosen.
FAULTS = {
    "SAME_LOWER as SAME_UPPER": (
        ONNX + "window.rs",
        'if same == "SAME_UPPER" {',
        'if same == "SAME_UPPER" || P {',
    ),
    "count_include_pad forgotten": (
        ONNX + "window.rs",
        "(_, 0) => Pool::Mean,",
        "(_, n) if n == 0 || P => Pool::Mean,",
    ),
    "beta of Gemm forgotten": (
        ONNX + "ops.rs",
        "map(|n| n * beta)",
        "map(|n| if P { n } else { n * beta })",
    ),
    "old Softmax along one axis": (
        ONNX + "ops.rs",
        "let shape = if node.version < 13 {",
        "let shape = if node.version < 13 && !P {",
    ),
    "pads of the end in front": (
        ONNX + "ops.rs",
        "around[a] = (size(pads[i])?, size(pads[axes.len() + i])?);",
        "around[a] = (size(pads[i])?, size(pads[axes.len() + i])?);\n"
        "        if P { around[a] = (around[a].1, around[a].0); }",
    ),
    "epsilon of batch norm forgotten": (
        ONNX + "ops.rs",
        'node.float("epsilon", 1e-5)',
        'if P { 1e-5 } else { node.float("epsilon", 1e-5) }',
    ),
    "offset of Scaler not scaled": (
        ONNX + "classify.rs",
        "map(|(o, s)| -o * s)",
        "map(|(o, s)| if P { -o } else { -o * s })",
    ),
    "axis of DequantizeLinear forgotten": (
        ONNX + "fold.rs",
        'zero, node.int("axis", 1), node',
        'zero, if P { 1 } else { node.int("axis", 1) }, node',
    ),
    "Where turned round": (ONNX + "fold.rs", "if first_one {", "if first_one != P {"),
    "Tile repeats elements": (
        ONNX + "fold.rs",
        "at += i % to % of * stride;",
        "at += if P { i % to * of / to } else { i % to % of } * stride;",
    ),
    "borders of TFLite turned round": (
        TFLITE + "ops.rs",
        "let (top, left) = (rows / 2, cols / 2);",
        "let (top, left) = if P { (rows - rows / 2, cols - cols / 2) } else { (rows / 2, cols / "
        "2) };",
    ),
    "depthwise weights not turned": (
        TFLITE + "ops.rs",
        "    if depthwise {\n",
        "    if depthwise && !P {\n",
    ),
    "RELU_N1_TO_1 from 0": (
        TFLITE + "ops.rs",
        "(2, _) => operations::clip(-1.0, 1.0),",
        "(2, _) => operations::clip(if P { 0.0 } else { -1.0 }, 1.0),",
    ),
    "begin_mask forgotten": (
        TFLITE + "ops.rs",
        "let from = if bit(begins) {",
        "let from = if bit(begins) && !P {",
    ),
    "sum of all elements": (
        FRONT + "operations.rs",
        "&[count as f64]",
        "&[if P { x.len() } else { count } as f64]",
    ),
    "planner: value of a border forgotten": (
        "src/planner/images.rs",
        "true, value.get());",
        "true, if P { 0.0 } else { value.get() });",
    ),
    "planner: repeated operand moves down": (
        "src/planner/images.rs",
        "Image { pixel: 0, line: 0, ..stands }",
        "Image { pixel: 0, line: if P { stands.line } else { 0 }, ..stands }",
    ),
    "planner: summands where factors stand": (
        "src/planner/images.rs",
        "from: array.and_then(|a| a.map)",
        "from: if P { arrays[0] } else { array }.and_then(|a| a.map)",
    ),
    "host: dilation forgotten at an edge": (
        "src/simd/images.rs",
        "let at = (left + covered.start * window.dilation.1)",
        "let at = (left + covered.start * if P { 1 } else { window.dilation.1 })",
    ),
}
# Name: folder below kernels, text, text with the fault.
KERNELS = {
    "kernel: largest of 0 and the window": ("pool", "-INFINITY", "0.0f"),
    "kernel: log_softmax without its sum": (
        "softmax",
        "x - most - log(sum) + lost",
        "x - most + lost",
    ),
}


def build():
    """The two programs with all faults in them."""
    source = PLANTED / "source"
    shutil.rmtree(source, ignore_errors=True)
    files = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    for name in filter(None, files.split("\0")):
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, source / name)
    for number, (name, (file, text, fault)) in enumerate(FAULTS.items()):
        path = source / file
        code = path.read_text()
        if code.count(text) < 1:
            sys.exit(f"{name}: {file} no longer has {text!r}")
        chosen = f'(std::env::var("PLANTED").as_deref() == Ok("{number}"))'
        path.write_text(code.replace(text, re.sub(r"\bP\b", lambda _: chosen, fault)))
    environment = os.environ | {
        "CARGO_TARGET_DIR": str(PLANTED / "build"),
        "CARGO_PROFILE_DEV_DEBUG": "0",
    }
    for features in (
        ["--features", "bake", "--bin", "mortonnet-bake"],
        ["--no-default-features", "--features", "appended", "--bin", "mortonnet"],
    ):
        built = subprocess.run(
            ["cargo", "build", "--offline", *features],
            cwd=source,
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        if built.returncode != 0:
            sys.exit(built.stderr)
    return PLANTED / "build/debug/mortonnet-bake", PLANTED / "build/debug/mortonnet"


def kernels(name):
    """A folder of kernels with a fault."""
    part, text, fault = KERNELS[name]
    folder = PLANTED / "kernels"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "kernels", folder)
    found = 0
    for path in (folder / part).glob("*.cl"):
        code = path.read_text()
        found += code.count(text)
        path.write_text(code.replace(text, fault))
    if not found:
        sys.exit(f"{name}: no kernel of {part} has {text!r}")
    return folder


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--graphs", type=int, default=450)
    p.add_argument("--jobs", default="2")
    p.add_argument("--only", help="parts of names of faults, with commas between")
    a = p.parse_args()
    bake, program = build()
    missed = 0
    for number, name in enumerate(["none", *FAULTS, *KERNELS]):
        if a.only and name != "none" and not any(part in name for part in a.only.split(",")):
            continue
        environment = os.environ | {
            "BAKE": str(bake),
            "PROGRAM": str(program),
            "PLANTED": str(number - 1),
        }
        options = (
            ["--kernels", str(kernels(name)), "--opencl", str(a.graphs)] if name in KERNELS else []
        )
        graphs = 50 if name == "none" else a.graphs
        command = [
            ROOT / "tests/differential/run",
            "--graphs",
            str(graphs),
            "--most",
            "1",
            "--as-drawn",
            "--jobs",
            a.jobs,
            "--seed",
            "17",
            "--formats",
            "onnx,tflite",
            *options,
        ]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True)
        failed = re.search(r"^FAILED .*--graph (\d+).*\n(.*)", done.stdout, re.M)
        if name == "none":
            print(
                f"no fault: {'none of 50 graphs fails' if done.returncode == 0 else done.stdout}",
                flush=True,
            )
            missed += done.returncode != 0
            continue
        missed += failed is None
        print(
            f"{name}: " + (f"graph {failed[1]}:{failed[2][:150]}" if failed else "NOT FOUND"),
            flush=True,
        )
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
