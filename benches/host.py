"""The host engine, or a plan on an OpenCL CPU, against NumPy, PyTorch and ONNX Runtime on the thesis's four networks.

usage: benches/host.py [--python PYTHON] [--cores 0,1] [--turns 7] [--program FILE] [--device host] [--plan PLAN]
                       [--weights f16] [--zoo FOLDER]

Builds the program (without --program), pins everything to the same cores with as many threads, and lets the sides take
turns on each network and batch, all in one run: a turn is half a second of forward passes with resident input, and
counts with its median.
Prints, for each network and batch, the median of the turns with the fastest and the slowest one, and mortonnet's time as
a part of the fastest peer's; as Markdown. Results are checked against float64 by each side: 1e-4 of max(1, |score|).
With --zoo: the networks of MLPerf Tiny's shapes in FOLDER (`tests/zoo/make.py FOLDER` makes them as ONNX and TensorFlow
Lite files; mortonnet runs the same shapes with weights of its own), batches of 1 and 32, against ONNX Runtime and LiteRT
with XNNPACK, both compared with the results in FOLDER.
PYTHON is an interpreter with the peers (numpy, torch, onnx, onnxruntime, ai-edge-litert); those that it lacks are left out. Nobody
else should use the cores meanwhile.
"""
import argparse
import json
import os
import pathlib
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
ZOO = ("autoencoder", "ds-cnn", "resnet-8", "mobilenet-v1-0.25")
BOUND = 1e-4
SECONDS = 0.5


class Mortonnet:
    """One process a turn: it checks its answers itself, and ends with an error where they are wrong."""

    def __init__(self, program, where, pin):
        self.program, self.where, self.pin = program, where, pin
        version = subprocess.run([program, "--version"], stdout=subprocess.PIPE, check=True).stdout
        self.version = version.decode().split("\n")[0]

    def turn(self, name, batch):
        command = [self.program, "bench", "network", "--shape", name] + self.where
        command += ["--batch", str(batch), "-o", "json"]
        done = subprocess.run(command, stdout=subprocess.PIPE, preexec_fn=self.pin, check=True)
        return json.loads(done.stdout)["median_us"]


class Peer:
    """A server in Python: imports its package once, keeps a network as long as the same one is asked for."""

    def __init__(self, python, peer, threads, pin):
        command = [python, str(ROOT / "benches/peers/host_peers.py"), peer, str(threads)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=pin
        )
        self.version = self.process.stdout.readline().strip()
        if not self.version and self.process.wait() != 3:
            sys.exit(f"{peer}: failed")

    def turn(self, name, batch):
        self.process.stdin.write(f"{NETWORKS[name]} {batch} {SECONDS}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline().split()
        if len(line) != 3:
            sys.exit(f"{self.version}: failed on {name}")
        if float(line[2]) > BOUND:
            sys.exit(f"{self.version}: {name}: off by {line[2]}")
        return float(line[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--cores", default="0,1")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--program")
    parser.add_argument("--weights", choices=("f32", "f16"), default="f32", help="how mortonnet stores them")
    parser.add_argument("--device", default="host")
    parser.add_argument("--plan")
    parser.add_argument("--zoo", help="a folder of networks of images")
    parser.add_argument("--networks")
    parser.add_argument("--batches")
    a = parser.parse_args()
    if a.zoo:
        NETWORKS.clear()
        NETWORKS.update((name, str(pathlib.Path(a.zoo, name).resolve())) for name in ZOO)
    batches = a.batches or ("1,32" if a.zoo else "100,1")
    cores = {int(c) for c in a.cores.split(",")}
    pin = lambda: os.sched_setaffinity(0, cores)
    if not a.program:
        subprocess.run(["cargo", "build", "--quiet", "--release"], cwd=ROOT, check=True)
    where = ["--device", a.device, "--weights", a.weights] + (["--plan", a.plan] if a.plan else [])
    sides = {"mortonnet": Mortonnet(a.program or str(ROOT / "target/release/mortonnet"), where, pin)}
    for peer in ("onnxruntime", "litert") if a.zoo else ("numpy", "torch", "onnxruntime"):
        side = Peer(a.python, peer, len(cores), pin)
        if side.version:
            sides[peer] = side
        else:
            print(f"{peer} is missing: left out", file=sys.stderr)
    if len(sides) == 1:
        sys.exit("no peer: name an interpreter that has one with --python")
    print(", ".join(s.version for s in sides.values()) + f"; {len(cores)} cores, {a.turns} turns\n")
    print("| network | batch | " + " | ".join(f"{s} µs" for s in sides) + " | mortonnet / fastest peer |")
    print("|---" * (len(sides) + 3) + "|")
    for name in a.networks.split(",") if a.networks else NETWORKS:
        for batch in map(int, batches.split(",")):
            turns = {side: [] for side in sides}
            for turn in range(a.turns + 1):
                for side in sides:
                    if turn == 0 and side == "mortonnet":
                        continue
                    us = sides[side].turn(name, batch)
                    if turn > 0:  # the peers build the network in the first one
                        turns[side].append(us)
                    time.sleep(0.05)  # threads that look for work have fallen asleep when the next side's turn comes
            median = {side: statistics.median(t) for side, t in turns.items()}
            cells = [f"{median[s]:.1f} ({min(t):.1f} to {max(t):.1f})" for s, t in turns.items()]
            ratio = median["mortonnet"] / min(m for s, m in median.items() if s != "mortonnet")
            print(f"| {name} | {batch} | " + " | ".join(cells) + f" | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
