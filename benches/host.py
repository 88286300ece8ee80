#!/usr/bin/env python3
"""Measures the host engine, or a plan on an OpenCL CPU, beside other software.

usage: benches/host.py [--python PYTHON] [--cores 0,1] [--turns 7] [--program FILE] [--peers LIST]
                       [--device host] [--plan PLAN] [--weights f16 | i8]
                       [--zoo FOLDER [--bake FILE | --footprint [--programs FOLDER]]]

The peers are NumPy, PyTorch and ONNX Runtime on the thesis's four networks. With --zoo they are
ONNX Runtime, LiteRT, ncnn, MNN, tract and RTen on four networks of images and sounds.

Builds the program (without --program) and pins everything to the same cores with as many threads.
The sides take turns on each network and batch, all in one run. A turn is half a second of forward
passes with resident input, and counts with its median. The table has, for each network and batch,
the median of the turns with the fastest and the slowest one, and mortonnet's time as a part of the
fastest peer's. Each side checks its results against float64: 1e-4 of max(1, |score|).

--zoo: networks of MLPerf Tiny's shapes in FOLDER, batches of 1 and 32. `tests/zoo/make.py FOLDER`
makes them as ONNX and TensorFlow Lite files. mortonnet runs those shapes with weights of its own.
All sides have floats and are compared with the results in FOLDER. "-" means that a peer failed;
stderr says why. LiteRT uses XNNPACK. ncnn's files are made in FOLDER; it has no batches and takes
the records of one after the other. tract and RTen are programs in Rust (benches/peers/rust) of the
libraries' own releases, which choose their kernels by the processor. tract is optimised for the
batch or for one record, whichever is faster, with its executor if there are several cores. RTen has
packed weights.

--bake: all networks of the folder, baked into the program by mortonnet-bake FILE. This is for
networks without a built-in shape, as benches/networks.py makes them. mortonnet's time is then that
of the baked network, whose scores the bake has compared with those in the folder. Networks of
benches/quantised.py are baked from their TensorFlow Lite files. Their peers are ONNX Runtime,
LiteRT and ncnn. All sides have the same integers, but ncnn only as weights: it has no zero points,
so its activations are integers of its own. benches/peers/ncnn8.py makes its files from the .onnx.
Each of its layers is checked alone against ONNX Runtime, to 10 %. It takes and gives floats.

--footprint: the time from the start of the process to the results of the first record, read through
a pipe, and the process's largest memory until then, for each network and side. That is VmHWM, which
counts the pages of files that the process touched, also of shared libraries. --programs has the
programs, named as the networks; missing ones are built into it. The peers in Python are measured as
well with only the package and NumPy imported: "above the package" is the difference. Files are in
the system's cache.

PYTHON is an interpreter with the peers (numpy, torch, onnx, onnxruntime, ai-edge-litert, ncnn, pnnx
and MNN). Missing ones are left out, and so are tract and RTen if they cannot be built (Rust 1.94).
Nobody else should use the cores meanwhile.
"""

import argparse
import array
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
NETWORKS = {
    "partial-mnist": "640-150-10",
    "partial-cifar": "256-128-10",
    "full-mnist": "784-2500-2000-10",
    "full-cifar": "3072-4096-3072-10",
}
RUST = ("tract", "rten")
ZOO = ("autoencoder", "ds-cnn", "resnet-8", "mobilenet-v1-0.25")
BOUND = 1e-4
SECONDS = 0.5


class Mortonnet:
    """One process a turn. It checks its answers itself, and ends with an error if one is wrong."""

    def __init__(self, program, where, pin, bake=None):
        """`bake` is a command to bake networks with, and the network that each name stands for."""
        self.program, self.where, self.pin = program, where, pin
        self.baked = self.bake(*bake) if bake else {}
        some = next(iter(self.baked.values()), program)
        version = subprocess.run([some, "--version"], stdout=subprocess.PIPE, check=True).stdout
        self.version = version.decode().split("\n")[0]

    def turn(self, name, batch):
        what = [self.baked[name], "bench", "network"] if name in self.baked else None
        what = what or [self.program, "bench", "network", "--shape", name]
        command = what + self.where + ["--batch", str(batch), "-o", "json"]
        done = subprocess.run(command, stdout=subprocess.PIPE, preexec_fn=self.pin, check=True)
        return json.loads(done.stdout)["median_us"]

    def bake(self, bake, files):
        """Bakes networks into copies of the program, beside their files."""
        for stem in files.values():
            # Only networks of integers have no facts beside them; their format says everything.
            model = stem + (".onnx" if os.path.exists(stem + ".json") else ".tflite")
            command = [bake, model, "--program", self.program, "-o", stem + ".program"]
            subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        return {name: stem + ".program" for name, stem in files.items()}


def in_python(python, peer, threads):
    return [python, str(ROOT / "benches/peers/host_peers.py"), peer, str(threads)]


def in_rust(peer, threads):
    """The command, or none if the program cannot be built."""
    place = ROOT / "benches/peers/rust"
    built = shutil.which("cargo") and subprocess.run(
        ["cargo", "build", "--quiet", "--release", "--locked"], cwd=place
    )
    return (
        [str(ROOT / "target/peers/release" / peer), str(threads)]
        if built and built.returncode == 0
        else None
    )


class Peer:
    """A server: imports its package once, keeps a network as long as the same one is asked for."""

    def __init__(self, command, pin):
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=pin
        )
        self.version = self.process.stdout.readline().strip()
        if not self.version and self.process.wait() != 3:
            sys.exit(f"{' '.join(command)}: failed")

    def turn(self, name, batch):
        """The median in µs; none if the peer cannot run the network."""
        self.process.stdin.write(f"{NETWORKS[name]} {batch} {SECONDS}\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        line = answer.split()
        if line[:1] == ["-"]:
            print(f"{self.version}: {name}, batch {batch}: {answer[2:].strip()}", file=sys.stderr)
            return None
        if len(line) != 3:
            sys.exit(f"{self.version}: failed on {name}")
        if not float(line[2]) <= BOUND:
            sys.exit(f"{self.version}: {name}: off by {line[2]}")
        return float(line[0])


def npy(path):
    """The rows of a .npy file of two dimensions and floats."""
    data = pathlib.Path(path).read_bytes()
    start = 10 + int.from_bytes(data[8:10], "little")
    values = array.array("f", data[start:])
    width = int(data[10:start].split(b"(")[1].split(b")")[0].split(b",")[1])
    return [values[i : i + width] for i in range(0, len(values), width)]


def first_result(command, record, settings):
    """Milliseconds from a process's start to its first line, its largest memory in MB, the line."""
    start = time.perf_counter()
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **settings}
    ) as process:
        process.stdin.write(record)
        process.stdin.flush()
        line = process.stdout.readline()
        ms = (time.perf_counter() - start) * 1e3
        # Not ru_maxrss: that of a child starts with its parent's.
        status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    if process.returncode != 0 or not line:
        return None
    peak = next(int(field.split()[1]) for field in status.splitlines() if field.startswith("VmHWM"))
    return ms, peak / 1024, line.decode()


def footprint(a, names, cores):
    """The table of time to the first result and memory."""
    programs = pathlib.Path(a.programs or ROOT / "target/zoo").resolve()
    programs.mkdir(parents=True, exist_ok=True)
    for name in names:
        if not (programs / name).exists():
            build = ["cargo", "build", "--quiet", "--release", "--target-dir", "target/zoo-build"]
            subprocess.run(
                build,
                cwd=ROOT,
                env={**os.environ, "MORTONNET_MODEL": NETWORKS[name] + ".onnx"},
                check=True,
            )
            shutil.copy(ROOT / "target/zoo-build/release/mortonnet", programs / name)
    os.sched_setaffinity(0, cores)
    # The command of a network's files; and what the process is without one.
    sides, settings = {"mortonnet": None}, {}
    for peer in ("onnxruntime", "litert", "ncnn", "mnn"):
        command = in_python(a.python, peer, len(cores))
        if first_result(command + ["-"], b"", {}):
            sides[f"{peer}, Python"] = command
    rust = {peer: in_rust(peer, len(cores)) for peer in ("onnxruntime", "tract", "rten")}
    where = (
        "import importlib.util as u; "
        "print(u.find_spec('onnxruntime').submodule_search_locations[0])"
    )
    found = subprocess.run(
        [a.python, "-c", where], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    library = list(pathlib.Path(found.stdout.strip() or ".", "capi").glob("libonnxruntime.so.*"))
    for peer, command in rust.items():
        if command and peer != "onnxruntime":
            sides[peer] = command
        elif command and library:
            sides["onnxruntime, C"], settings = command, {"ORT_DYLIB_PATH": str(library[0])}
    print(f"{len(cores)} cores, {a.turns} turns\n")
    print("| network | | first result ms | above the package | peak MB | above the package |")
    print("|---" * 6 + "|")
    for name in names:
        record, expected = (
            npy(NETWORKS[name] + "_inputs.npy")[0].tobytes(),
            npy(NETWORKS[name] + "_results.npy")[0],
        )
        kind = json.loads(pathlib.Path(NETWORKS[name] + ".json").read_text())["output"]["kind"]
        own = [
            str(programs / name),
            "-f",
            "f32",
            "-o",
            "probs" if kind == "classes" else "scores",
            "--device",
            a.device,
        ]
        runs = {side: ([], []) for side in sides}
        for turn in range(a.turns + 1):
            for side, command in list(sides.items()):
                if side not in runs:
                    continue
                commands = [command + [NETWORKS[name]] if command else own]
                commands += [command + ["-"]] if "Python" in side else []
                for which, command in enumerate(commands):
                    got = first_result(command, b"" if sides[side] else record, settings)
                    if not got:
                        print(f"{side}: failed on {name}", file=sys.stderr)
                        runs.pop(side)
                        break
                    if which == 0:
                        values = [float(v) for v in got[2].split(",")]
                        off = max(abs(v - e) for v, e in zip(values, expected)) / max(
                            map(abs, expected)
                        )
                        if len(values) != len(expected) or not off <= BOUND:
                            sys.exit(f"{side}: {name}: off by {off}")
                    if turn > 0:  # the first one fills the system's cache
                        runs[side][which].append(got[:2])
        for side in sides:
            cells = []
            for i in (0, 1):
                all_of = [run[i] for run in runs[side][0]] if side in runs else []
                bare = [run[i] for run in runs[side][1]] if side in runs else []
                median = statistics.median(all_of) if all_of else 0
                cells.append(
                    f"{median:.1f} ({min(all_of):.1f} to {max(all_of):.1f})" if all_of else "-"
                )
                cells.append(f"{median - statistics.median(bare):.1f}" if bare else "")
            print(f"| {name} | {side} | " + " | ".join(cells) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--cores", default="0,1")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--program")
    parser.add_argument(
        "--weights", choices=("f32", "f16", "i8"), default="f32", help="how mortonnet stores them"
    )
    parser.add_argument("--device", default="host")
    parser.add_argument("--plan")
    parser.add_argument("--zoo", help="a folder of networks of images")
    parser.add_argument("--bake", help="mortonnet-bake, for networks without a built-in shape")
    parser.add_argument(
        "--footprint", action="store_true", help="memory and time to the first result of these"
    )
    parser.add_argument(
        "--programs", help="a folder of programs with the networks, for --footprint [target/zoo]"
    )
    parser.add_argument("--networks")
    parser.add_argument("--batches")
    parser.add_argument("--peers", help="only these, for example onnxruntime,litert")
    a = parser.parse_args()
    if a.zoo:
        NETWORKS.clear()
        known = sorted(f.stem for f in pathlib.Path(a.zoo).glob("*.onnx")) if a.bake else ZOO
        NETWORKS.update((name, str(pathlib.Path(a.zoo, name).resolve())) for name in known)
    batches = a.batches or ("1,32" if a.zoo else "100,1")
    cores = {int(c) for c in a.cores.split(",")}
    names = a.networks.split(",") if a.networks else list(NETWORKS)
    if a.footprint:
        if not a.zoo:
            parser.error("--footprint is for the networks of --zoo")
        return footprint(a, names, cores)
    pin = lambda: os.sched_setaffinity(0, cores)
    if not a.program:
        subprocess.run(["cargo", "build", "--quiet", "--release"], cwd=ROOT, check=True)
    where = ["--device", a.device, "--weights", a.weights] + (["--plan", a.plan] if a.plan else [])
    program = a.program or str(ROOT / "target/release/mortonnet")
    bake = (a.bake, {name: NETWORKS[name] for name in names}) if a.bake else None
    sides = {"mortonnet": Mortonnet(program, where, pin, bake)}
    peers = (
        ("onnxruntime", "litert", "ncnn", "mnn", "tract", "rten")
        if a.zoo
        else ("numpy", "torch", "onnxruntime")
    )
    for peer in a.peers.split(",") if a.peers else peers:
        command = (
            in_rust(peer, len(cores)) if peer in RUST else in_python(a.python, peer, len(cores))
        )
        side = Peer(command, pin) if command else None
        if side and side.version:
            sides[peer] = side
        else:
            print(f"{peer} is missing: left out", file=sys.stderr)
    if len(sides) == 1:
        sys.exit("no peer: name an interpreter that has one with --python")
    print(", ".join(s.version for s in sides.values()) + f"; {len(cores)} cores, {a.turns} turns\n")
    print(
        "| network | batch | "
        + " | ".join(f"{s} µs" for s in sides)
        + " | mortonnet / fastest peer |"
    )
    print("|---" * (len(sides) + 3) + "|")
    for name in names:
        for batch in map(int, batches.split(",")):
            turns = {side: [] for side in sides}
            for turn in range(a.turns + 1):
                for side in sides:
                    if turn == 0 and side == "mortonnet" or turns[side] is None:
                        continue
                    us = sides[side].turn(name, batch)
                    if us is None:
                        turns[side] = None
                    elif turn > 0:  # the peers build the network in the first one
                        turns[side].append(us)
                    time.sleep(
                        0.05
                    )  # Threads that look for work fall asleep before the next side's turn.
            median = {side: statistics.median(t) for side, t in turns.items() if t}
            cells = [
                f"{median[s]:.1f} ({min(t):.1f} to {max(t):.1f})" if t else "-"
                for s, t in turns.items()
            ]
            fastest = min((m for s, m in median.items() if s != "mortonnet"), default=None)
            cells.append(f"{median['mortonnet'] / fastest:.2f}" if fastest else "-")
            print(f"| {name} | {batch} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
