#!/usr/bin/env python3
"""Warns where the last complete run of the tests (tests/durations.txt) is older than ten days or two hundred commits."""
import datetime
import re
import subprocess
from pathlib import Path

DAYS, COMMITS = 10, 200


def main():
    line = re.search(r"^commit (\w+) on (\S+),", Path("tests/durations.txt").read_text(), re.M)
    commit, day = line.groups()
    days = (datetime.date.today() - datetime.date.fromisoformat(day)).days
    count = subprocess.run(["git", "rev-list", "--count", f"{commit}..HEAD"], capture_output=True, text=True)
    commits = int(count.stdout) if count.returncode == 0 else None
    since = "an unknown number of" if commits is None else commits
    print(f"tests/all was last run {days} days and {since} commits ago ({commit[:9]})")
    if days > DAYS or commits is None or commits > COMMITS:
        print("WARNING: tests/all has to be run: expected at most "
              f"{DAYS} days and {COMMITS} commits since its last complete run")


if __name__ == "__main__":
    main()
