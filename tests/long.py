#!/usr/bin/env python3
"""Runs the long tests: Rust tests that are marked `#[ignore = "long: …"]`, and the scripts of SCRIPTS.

usage: tests/long.py                     all of them
       tests/long.py --shard COMMIT      the shard that a commit draws
       tests/long.py --list              every shard with its parts and their seconds
       tests/long.py PART...             these parts

A shard is a set of parts that takes about eight minutes on two cores; every part is in one. The seconds of parts come
from tests/durations.txt, which `tests/all` writes; a part that is not in it counts as three minutes. What a test reads that
has to be fetched or trained comes from tests/needs, which the test calls.
"""
import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DURATIONS = ROOT / "tests/durations.txt"
# The interpreter that tests/run has made for the tests.
PYTHON = {"MORTONNET_TEST_PYTHON": str(ROOT / "target/python/bin/python")}
# Cargo's features in tests/run: with others everything would be compiled again.
FEATURES = ["--workspace", "--features", "bake"]
SCRIPTS = ["tests/boards/run --all", "tests/release/run", "tests/fuzz/run", "tests/supply/run"]
SHARD = 480.0
UNKNOWN = 180.0


def shards(seconds, most=SHARD):
    """Parts in as few sets as `most` seconds allow, the longest part first, each into the emptiest set.

    >>> shards({"a": 300, "b": 200, "c": 250, "d": 10}, most=400)
    [['a', 'd'], ['c', 'b']]
    >>> shards({})
    [[]]
    """
    count = max(1, -(-int(sum(seconds.values())) // int(most)))
    sets = [[] for _ in range(count)]
    total = [0.0] * count
    for part, took in sorted(seconds.items(), key=lambda p: (-p[1], p[0])):
        emptiest = total.index(min(total))
        sets[emptiest].append(part)
        total[emptiest] += took
    return sets


def recorded(path=DURATIONS):
    """Seconds of each part, as tests/all found them."""
    if not path.exists():
        return {}
    lines = [line.split(None, 1) for line in path.read_text().splitlines() if line[:1] == " "]
    return {part: float(took) for took, part in lines}


def binaries():
    """The test programs of the package: name and path."""
    build = ["cargo", "test", "--quiet", *FEATURES, "--no-run", "--message-format", "json"]
    messages = subprocess.run(build, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    found = {}
    for line in messages.splitlines():
        message = json.loads(line)
        target = message.get("target", {})
        # The packages' programs have unit tests of their own, none of them long.
        if message.get("profile", {}).get("test") and message.get("executable") and "bin" not in target["kind"]:
            name = target["name"] if "test" in target["kind"] else "lib"
            if name != "lib" or target["name"] == "mortonnet":
                found[name] = message["executable"]
    return found


def long_tests(programs):
    """The parts of the test programs: those tests that are left out without being asked for."""
    parts = []
    for name, program in programs.items():
        listed = subprocess.run([program, "--list", "--ignored", "--format", "terse"], check=True,
                                stdout=subprocess.PIPE, text=True).stdout
        parts += [f"{name}::{line.removesuffix(': test')}" for line in listed.splitlines() if line.endswith(": test")]
    return parts


def run(parts):
    """Runs parts; gives the seconds of each and those that failed."""
    took, failed = {}, []
    for name in dict.fromkeys(p.split("::")[0] for p in parts if p not in SCRIPTS):
        tests = [p.split("::", 1)[1] for p in parts if p.startswith(name + "::")]
        file = ROOT / "target/times.json"
        target = ["--lib"] if name == "lib" else ["--test", name]
        # Not quiet: the names of tests are how their times are known, and that they ran.
        command = ["tests/times.py", *FEATURES, *target, "--", "--include-ignored", "--exact", *tests]
        if subprocess.run(command, cwd=ROOT, env={**os.environ, **PYTHON, "MORTONNET_TIMES": str(file)}).returncode:
            failed.append(f"{name}: {', '.join(tests)}")
        times = json.loads(file.read_text())
        took.update({f"{name}::{test}": times[test] for test in tests if test in times})
        lost = [test for test in tests if test not in times]
        if lost:
            failed.append(f"{name}: did not run: {', '.join(lost)}")
    for script in [p for p in parts if p in SCRIPTS]:
        print(f"tests/long.py: {script}", flush=True)
        begin = time.monotonic()
        if subprocess.run(script.split(), cwd=ROOT).returncode:
            failed.append(script)
        took[script] = time.monotonic() - begin
    return took, failed


def main(arguments):
    os.chdir(ROOT)
    tests = long_tests(binaries())
    parts = tests + SCRIPTS
    known = recorded()
    sets = shards({part: known.get(part, UNKNOWN) for part in parts})
    match arguments:
        case []:
            chosen = parts
        case ["--list"]:
            for number, shard in enumerate(sets):
                print(f"shard {number}: {sum(known.get(p, UNKNOWN) for p in shard):.0f} s")
                for part in shard:
                    print(f"{known.get(part, UNKNOWN):9.1f}  {part}{'' if part in known else ' (not measured)'}")
            return 0
        case ["--shard", commit]:
            number = int(commit[:8], 16) % len(sets)
            chosen = sets[number]
            print(f"tests/long.py: shard {number} of {len(sets)}: {', '.join(chosen)}", flush=True)
        case _:
            chosen = arguments
            unknown = [p for p in chosen if p not in parts]
            if unknown:
                print(f"tests/long.py: no such part: {', '.join(unknown)}; tests/long.py --list has all", file=sys.stderr)
                return 2
    took, failed = run(chosen)
    if out := os.environ.get("MORTONNET_LONG_TIMES"):
        Path(out).write_text(json.dumps(took))
    print("tests/long.py: seconds of each part:")
    for part, seconds in sorted(took.items(), key=lambda t: -t[1]):
        print(f"{seconds:8.1f} s  {part}")
    for what in failed:
        print(f"tests/long.py: failed: {what}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
