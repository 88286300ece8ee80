#!/usr/bin/env python3
"""Runs the long tests: Rust tests with `#[ignore = "long: …"]`, and the scripts of SCRIPTS.

usage: tests/long.py --all               tests/run and all of them; the oldest passes come first
       tests/long.py --shard COMMIT      the shard that a commit draws
       tests/long.py --list              every shard with its parts and their seconds
       tests/long.py PART...             these parts

A shard is a set of parts that takes about eight minutes on two cores; every part is in one. The
seconds of parts come from tests/durations.txt; a part that is not in it counts as three minutes.
Where MORTONNET_RECORD is set, as tests/all does, parts that passed are written into that file.
`--all` writes it after each shard, and leaves out what is recorded for the commit of today: started
again, it goes on where it was interrupted. What a test reads that has to be fetched or trained
comes from tests/needs, which the test calls.
"""

import datetime
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
SHORT = "tests/run"
SHARD = 480.0
UNKNOWN = 180.0


def shards(seconds, most=SHARD):
    """Puts parts into as few sets as `most` seconds allow, the longest first.

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
    """The seconds of each part, and the commit and the day on which it passed last."""
    if not path.exists():
        return {}
    lines = [
        line.split(None, 3) for line in path.read_text().splitlines() if line and line[0] != "#"
    ]
    return {part: (float(took), commit, day) for took, commit, day, part in lines}


def record(took, commit, parts, path=DURATIONS):
    """Writes down that parts passed. Parts that are no longer there are forgotten."""
    known = recorded(path) | {
        part: (seconds, commit, str(datetime.date.today())) for part, seconds in took.items()
    }
    lines = [
        f"{known[part][0]:9.1f}  {known[part][1]}  {known[part][2]}  {part}"
        for part in sorted(known)
        if part in parts
    ]
    head = (
        "# What tests/all ran: seconds, the commit and the day on which a part passed last. "
        "tests/all writes this file."
    )
    path.write_text("\n".join([head, *lines]) + "\n")


def binaries():
    """The test programs of the package: name and path."""
    build = ["cargo", "test", "--quiet", *FEATURES, "--no-run", "--message-format", "json"]
    messages = subprocess.run(build, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    found = {}
    for line in messages.splitlines():
        message = json.loads(line)
        target = message.get("target", {})
        # The packages' programs have unit tests of their own, none of them long.
        if (
            message.get("profile", {}).get("test")
            and message.get("executable")
            and "bin" not in target["kind"]
        ):
            name = target["name"] if "test" in target["kind"] else "lib"
            if name != "lib" or target["name"] == "mortonnet":
                found[name] = message["executable"]
    return found


def long_tests(programs):
    """The parts of the test programs: those tests that are left out without being asked for."""
    parts = []
    for name, program in programs.items():
        listed = subprocess.run(
            [program, "--list", "--ignored", "--format", "terse"],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        ).stdout
        parts += [
            f"{name}::{line.removesuffix(': test')}"
            for line in listed.splitlines()
            if line.endswith(": test")
        ]
    return parts


def run(parts):
    """Runs parts; gives the seconds of each and those that failed."""
    took, failed = {}, []
    for name in dict.fromkeys(p.split("::")[0] for p in parts if p not in SCRIPTS and p != SHORT):
        tests = [p.split("::", 1)[1] for p in parts if p.startswith(name + "::")]
        file = ROOT / "target/times.json"
        target = ["--lib"] if name == "lib" else ["--test", name]
        # Not quiet: the names of tests are how their times are known, and that they ran.
        command = [
            "tests/times.py",
            *FEATURES,
            *target,
            "--",
            "--include-ignored",
            "--exact",
            *tests,
        ]
        if subprocess.run(
            command, cwd=ROOT, env={**os.environ, **PYTHON, "MORTONNET_TIMES": str(file)}
        ).returncode:
            failed.append(f"{name}: {', '.join(tests)}")
        times = json.loads(file.read_text())
        took.update({f"{name}::{test}": times[test] for test in tests if test in times})
        lost = [test for test in tests if test not in times]
        if lost:
            failed.append(f"{name}: did not run: {', '.join(lost)}")
    for script in [p for p in parts if p in SCRIPTS or p == SHORT]:
        print(f"tests/long.py: {script}", flush=True)
        begin = time.monotonic()
        if subprocess.run(script.split(), cwd=ROOT).returncode:
            failed.append(script)
        took[script] = time.monotonic() - begin
    return took, failed


def head():
    """The commit that is tested."""
    command = ["git", "rev-parse", "--short=9", "HEAD"]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def run_and_record(chosen, parts):
    """Runs parts; records them if asked and all passed. Returns seconds and failures."""
    took, failed = run(chosen)
    # A test program that failed says nothing of its other tests.
    if os.environ.get("MORTONNET_RECORD") and not failed:
        record(took, head(), [SHORT, *parts])
    return took, failed


def everything(sets, known, parts):
    """Runs the short tests and every shard, what passed longest ago first. Gives what failed."""
    commit = head()
    day = lambda part: known[part][2] if part in known else ""
    done = {part for part in known if known[part][1] == commit}
    failed = []
    for shard in [[SHORT], *sorted(sets, key=lambda shard: min(map(day, shard)))]:
        chosen = [part for part in shard if part not in done]
        if chosen:
            print(f"tests/long.py: {', '.join(chosen)}", flush=True)
            failed += run_and_record(chosen, parts)[1]
    return failed


def main(arguments):
    os.chdir(ROOT)
    tests = long_tests(binaries())
    parts = tests + SCRIPTS
    known = recorded()
    seconds = {part: known[part][0] if part in known else UNKNOWN for part in parts}
    sets = shards(seconds)
    match arguments:
        case ["--all"]:
            failed = everything(sets, known, parts)
            for what in failed:
                print(f"tests/long.py: failed: {what}", file=sys.stderr)
            return 1 if failed else 0
        case ["--list"]:
            for number, shard in enumerate(sets):
                print(f"shard {number}: {sum(seconds[p] for p in shard):.0f} s")
                for part in shard:
                    passed = (
                        f"passed on {known[part][2]}, {known[part][1]}"
                        if part in known
                        else "not measured"
                    )
                    print(f"{seconds[part]:9.1f}  {part} ({passed})")
            return 0
        case ["--shard", commit]:
            number = int(commit[:8], 16) % len(sets)
            chosen = sets[number]
            print(f"tests/long.py: shard {number} of {len(sets)}: {', '.join(chosen)}", flush=True)
        case [] | ["--help"]:
            print(__doc__)
            return 0 if arguments else 2
        case _:
            chosen = arguments
            unknown = [p for p in chosen if p not in parts]
            if unknown:
                print(
                    f"tests/long.py: no such part: {', '.join(unknown)}; tests/long.py --list has "
                    "all",
                    file=sys.stderr,
                )
                return 2
    took, failed = run_and_record(chosen, parts)
    print("tests/long.py: seconds of each part:")
    for part, seconds in sorted(took.items(), key=lambda t: -t[1]):
        print(f"{seconds:8.1f} s  {part}")
    for what in failed:
        print(f"tests/long.py: failed: {what}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
