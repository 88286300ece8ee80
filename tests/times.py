#!/usr/bin/env python3
"""Runs `cargo test ARGUMENT...`; shows failures, sums and the ten tests that took longest.

usage: tests/times.py [ARGUMENT...]

MORTONNET_TIMES names a file for the seconds of every test, as JSON.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

THREADS = int(os.environ.get("RUST_TEST_THREADS") or len(os.sched_getaffinity(0)))
END = re.compile(r"test (.+) \.\.\. (?:ok|FAILED|ignored)")


def seconds(begin, ends, threads=THREADS):
    """Seconds of each test of a harness that began at `begin`, by the moments at which they ended.

    The harness starts its tests in the order of their names, the next one as soon as one has ended.

    >>> seconds(10, {"a": 40, "b": 15, "c": 16, "d": 50}, threads=2)
    {'a': 30, 'b': 5, 'c': 1, 'd': 34}
    """
    starts = [begin] * threads + sorted(ends.values())
    return {name: ends[name] - start for name, start in zip(sorted(ends), starts)}


def main():
    command = ["cargo", "test", *sys.argv[1:]]
    environment = {**os.environ, "RUST_TEST_THREADS": str(THREADS)}
    times, begin, ends = {}, 0.0, {}
    # A shell starts what goes to the background with SIGINT ignored, and whatever runs below would
    # inherit that.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, errors="replace", env=environment
    ) as process:
        for line in process.stdout:
            if end := END.match(line):
                ends[end[1]] = time.monotonic()
                if "FAILED" not in line:
                    continue
            elif re.match(r"running \d+ tests?$", line):
                begin, ends = time.monotonic(), {}
                continue
            elif line.startswith("test result:"):
                times.update(seconds(begin, ends))
            if line.strip():
                print(line, end="", flush=True)
    if file := os.environ.get("MORTONNET_TIMES"):
        Path(file).write_text(json.dumps(times))
    print("longest:")
    for name, took in sorted(times.items(), key=lambda t: -t[1])[:10]:
        print(f"{took:8.1f} s  {name}")
    return process.returncode


if __name__ == "__main__":
    sys.exit(main())
