#!/usr/bin/env python3
"""Measures the time from the start of the process to its first class, beside an empty Rust program.

usage: benches/first_class.py [--program FILE] [--runs N] [--cores 0,1] [--most MS]

Builds the program with model/mnist (into target/mnist) and `fn main() {}` with `rustc -O`. Runs
both in turns, pinned to the same cores. The clock starts before posix_spawn. It stops when the
first line of the class can be read from the program's stdout, and when the process has ended. The
empty program has no line.

Records are of random bytes: one of 784 bytes from a file; one from a pipe that stays open, as a
sensor's does; one as text; a batch of 256.

Prints medians, quartiles and the difference to the empty program in ms. Fails if a first class
comes more than MS (default 5) after the empty program's end.
"""

import argparse
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
WIDTH = 784


def build(work):
    """The program and the empty one."""
    environment = {
        k: v for k, v in os.environ.items() if k not in ("MORTONNET_PLAN", "MORTONNET_WEIGHTS")
    }
    environment["MORTONNET_MODEL"] = str(ROOT / "model/mnist")
    cargo = ["cargo", "build", "--release", "--quiet", "--target-dir", str(ROOT / "target/mnist")]
    subprocess.run(cargo, cwd=ROOT, env=environment, check=True)
    return ROOT / "target/mnist/release/mortonnet", empty(work)


def empty(work):
    (work / "empty.rs").write_text("fn main() {}\n")
    subprocess.run(["rustc", "-O", "-o", work / "empty", work / "empty.rs"], check=True)
    return work / "empty"


def run(command, stdin, keep):
    """Milliseconds to the first line (None without one) and to the end, and the lines.

    `keep` closes a pipe's other end.
    """
    ours, theirs = os.pipe()
    actions = [
        (os.POSIX_SPAWN_DUP2, stdin, 0),
        (os.POSIX_SPAWN_DUP2, theirs, 1),
        (os.POSIX_SPAWN_CLOSE, ours),
    ]
    start = time.perf_counter()
    process = os.posix_spawn(command[0], command, os.environ, file_actions=actions)
    os.close(theirs)
    text, first = b"", None
    while part := os.read(ours, 1 << 16):
        if first is None:
            first = time.perf_counter() - start
            keep()
        text += part
    _, status = os.waitpid(process, 0)
    elapsed = time.perf_counter() - start
    os.close(ours)
    if status != 0:
        sys.exit(f"{command}: wait status {status}")
    return first and first * 1e3, elapsed * 1e3, text.count(b"\n")


def fed(command, file, pipe):
    """Runs with stdin from a file, or from a pipe that stays open until the first answer."""
    if not pipe:
        with open(file, "rb") as source:
            return run(command, source.fileno(), lambda: None)
    read, write = os.pipe()
    os.set_inheritable(write, False)
    os.write(write, file.read_bytes())
    try:
        return run(command, read, lambda: os.close(write))
    finally:
        os.close(read)


def main():
    a = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    a.add_argument("--program", help="a binary with model/mnist, instead of building it")
    a.add_argument("--runs", type=int, default=200)
    a.add_argument("--cores", default="0,1")
    a.add_argument("--most", type=float, default=5.0)
    a = a.parse_args()
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        program, nothing = (a.program, empty(work)) if a.program else build(work)
        os.sched_setaffinity(0, {int(c) for c in a.cores.split(",")})
        one, text, many = work / "one", work / "text", work / "many"
        many.write_bytes(random.Random(1).randbytes(WIDTH * 256))
        one.write_bytes(many.read_bytes()[:WIDTH])
        text.write_text(",".join(map(str, one.read_bytes())) + "\n")
        ours = [str(program), "--device", "host"]
        sides = {
            "an empty Rust program": ([str(nothing)], one, False, 0),
            "one record of bytes from a file": ([*ours, "-f", "u8"], one, False, 1),
            "one record from an open pipe": ([*ours, "-f", "u8"], one, True, 1),
            "one record as text": (ours, text, False, 1),
            "256 records of bytes": ([*ours, "-f", "u8"], many, False, 256),
        }
        os.environ["MORTONNET_CACHE"] = ""
        times = {name: ([], []) for name in sides}
        for turn in range(a.runs + 5):
            for name, (command, file, pipe, records) in sides.items():
                first, end, lines = fed(command, file, pipe)
                if lines != records:
                    sys.exit(f"{name}: {lines} answers, expected {records}")
                if turn >= 5:  # the first turns warm the file cache
                    times[name][0].append(end if first is None else first)
                    times[name][1].append(end)
    print(
        "| what | first class ms | quartiles | after the empty program | process ends ms |\n"
        "|---|---|---|---|---|"
    )
    nothing = statistics.median(times["an empty Rust program"][0])
    late = []
    for name, (first, end) in times.items():
        low, middle, high = statistics.quantiles(first, n=4)
        more = middle - nothing
        shown = (
            f"{middle:.2f} | {low:.2f} to {high:.2f} | {more:.2f}" if sides[name][3] else " | | "
        )
        print(f"| {name} | {shown} | {statistics.median(end):.2f} |")
        late += [name] if more > a.most else []
    if late:
        sys.exit(f"more than {a.most} ms after the empty program: {', '.join(late)}")


if __name__ == "__main__":
    main()
