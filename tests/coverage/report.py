#!/usr/bin/env python3
"""Prints executed lines per room of src from a file of lcov's format, without test modules.

usage: tests/coverage/report.py FILE
"""

import collections
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ONLY_TESTS = ("src/models.rs", "src/allocations.rs")
"""Files that are compiled for tests only (src/lib.rs)."""


def product_lines(path):
    """The number of the first line of the file's test module, or one behind its last line."""
    lines = path.read_text("utf-8").splitlines()
    for number, (line, following) in enumerate(zip(lines, lines[1:]), 1):
        if line.strip() == "#[cfg(test)]" and re.match(
            r"\s*(pub(\(\w+\))? )?mod \w+ \{", following
        ):
            return number
    return len(lines) + 1


def main():
    files, counts = collections.defaultdict(dict), None
    for line in Path(sys.argv[1]).read_text("utf-8").splitlines():
        kind, _, rest = line.partition(":")
        if kind == "SF":
            counts = files[Path(rest).resolve().relative_to(ROOT).as_posix()]
        elif kind == "DA":
            number, count = map(int, rest.split(",")[:2])
            counts[number] = max(count, counts.get(number, 0))
    rows = []
    for name, counts in files.items():
        if re.search(r"/tests(/|\.rs)", name) or name in ONLY_TESTS:
            continue
        end = product_lines(ROOT / name)
        counts = [count for number, count in counts.items() if number < end]
        rows.append((name, sum(count > 0 for count in counts), len(counts)))
    rooms = collections.Counter(), collections.Counter()
    for name, executed, lines in rows:
        room = "/".join(name.split("/")[:2])
        for keys in (room, "" if room == "src/lab" else "src without src/lab"):
            rooms[0][keys] += executed
            rooms[1][keys] += lines
    for room in sorted(filter(None, rooms[1])):
        executed, lines = rooms[0][room], rooms[1][room]
        print(f"{100 * executed / max(lines, 1):6.1f} %  {executed:6} of {lines:6}  {room}")
    print("most that nothing executed:")
    for name, executed, lines in sorted(rows, key=lambda row: row[1] - row[2])[:10]:
        print(f"{lines - executed:6} of {lines:6}  {name}")


if __name__ == "__main__":
    main()
