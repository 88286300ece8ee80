"""10 000 MNIST vectors as CSV, whole process, and start to first class: mortonnet against NumPy, in one run.

usage: MNIST_DIR=FOLDER benches/stream.py [--python PYTHON] [--runs N] [--cores 0,1]

Builds the program with model/mnist, writes the vectors as CSV into a temporary folder, and runs both sides in turns,
pinned to the same cores. Prints medians, the spread (fastest to slowest) and the ratio; the classes of both sides are
compared after each run. Peak memory is of a run of its own under GNU time (a child of Python would start with
Python's own peak). PYTHON is an interpreter with NumPy.
"""
import argparse
import gzip
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent


def run(command, stdin, cores):
    """Wall time in seconds, output."""
    with open(stdin, "rb") as source:
        start = time.perf_counter()
        done = subprocess.run(
            command, stdin=source, stdout=subprocess.PIPE, preexec_fn=lambda: os.sched_setaffinity(0, cores), check=True
        )
        return time.perf_counter() - start, done.stdout


def peak_memory(command, stdin, work):
    """Peak resident bytes."""
    with open(stdin, "rb") as source:
        subprocess.run(
            ["/usr/bin/time", "-f", "%M", "-o", work / "peak", *command], stdin=source, stdout=subprocess.DEVNULL, check=True
        )
    return int((work / "peak").read_text()) * 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--cores", default="0,1")
    a = parser.parse_args()
    cores = {int(c) for c in a.cores.split(",")}
    mnist = os.environ.get("MNIST_DIR") or sys.exit("set MNIST_DIR to the folder of the MNIST files")
    build = ["cargo", "build", "--quiet", "--release", "--target-dir", "target/mnist"]
    environment = {**os.environ, "MORTONNET_MODEL": "model/mnist"}
    subprocess.run(build, cwd=ROOT, env=environment, check=True)
    program = str(ROOT / "target/mnist/release/mortonnet")
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        images = gzip.open(pathlib.Path(mnist) / "t10k-images-idx3-ubyte.gz").read()[16:]
        lines = [",".join(map(str, images[i : i + 784])) for i in range(0, len(images), 784)]
        (work / "many.csv").write_text("\n".join(lines) + "\n")
        (work / "one.csv").write_text(lines[0] + "\n")
        shutil.copytree(ROOT / "model/mnist", work / "model")
        peer = [a.python, str(ROOT / "benches/peers/stream_numpy.py"), str(work / "model")]
        sides = {"mortonnet": [program, "--device", "host"], "numpy": peer}
        print("what,side,median_ms,fastest_ms,slowest_ms,peak_MB,ratio_time,ratio_memory")
        for what, file in (("10000 vectors as CSV", "many.csv"), ("start to first class", "one.csv")):
            times, answers = {s: [] for s in sides}, {}
            for turn in range(a.runs + 1):
                for side, command in sides.items():
                    elapsed, answers[side] = run(command, work / file, cores)
                    if turn > 0:  # the first turn warms the file cache
                        times[side].append(elapsed * 1e3)
                if answers["mortonnet"] != answers["numpy"]:
                    sys.exit(f"{what}: the classes differ")
            memory = {side: peak_memory(command, work / file, work) / 1e6 for side, command in sides.items()}
            median = {s: statistics.median(t) for s, t in times.items()}
            for side in sides:
                t = times[side]
                ratio = median[side] / median["numpy"]
                share = memory[side] / memory["numpy"]
                print(f"{what},{side},{median[side]:.2f},{min(t):.2f},{max(t):.2f},{memory[side]:.1f},{ratio:.4f},{share:.3f}")


if __name__ == "__main__":
    main()
