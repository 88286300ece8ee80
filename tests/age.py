#!/usr/bin/env python3
"""Warns of parts of tests/all that passed last more than ten days or two hundred commits ago."""

import datetime
import subprocess
import sys

sys.dont_write_bytecode = True
import long

DAYS, COMMITS = 10, 200


def age(commit, day):
    """Days and commits since then. The commits are None if the commit is unknown here."""
    days = (datetime.date.today() - datetime.date.fromisoformat(day)).days
    count = subprocess.run(
        ["git", "rev-list", "--count", f"{commit}..HEAD"], capture_output=True, text=True
    )
    return days, int(count.stdout) if count.returncode == 0 else None


def main():
    ages = {part: age(commit, day) for part, (_, commit, day) in long.recorded().items()}
    old = [
        part
        for part, (days, commits) in ages.items()
        if days > DAYS or commits is None or commits > COMMITS
    ]
    days = max((days for days, _ in ages.values()), default=0)
    print(f"tests/all: {len(ages)} parts are recorded, the oldest passed {days} days ago")
    if not ages:
        print("WARNING: tests/all has never been run")
    for part in old:
        print(
            f"WARNING: {part} passed last more than {DAYS} days or {COMMITS} commits ago: "
            "tests/all has to be run"
        )


if __name__ == "__main__":
    main()
