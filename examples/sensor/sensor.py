"""A simulated accelerometer on a motor, for training the network and for trying the service.

    python examples/sensor/sensor.py           40 s of readings: off, running, unbalanced, off
    python examples/sensor/sensor.py --live    each reading at its time

Writes 50 readings a second to stdout: time, and the acceleration along two axes in m/s².
"""

import sys
import time
from datetime import datetime, timedelta

import numpy as np

LABELS = ("off", "running", "unbalanced")
RATE = 50
"""Readings a second."""


def readings(label, count, random):
    """`count` readings of a motor in this state, from any moment of its turn: shape (count, 2)."""
    noise = random.normal(0, 0.05, (count, 2))
    if label == "off":
        return noise
    turns = random.uniform(9, 11) * np.arange(count) / RATE + random.uniform()
    # A wheel out of balance pulls once a turn, along one axis a quarter of a turn later than along
    # the other.
    pull = random.uniform(1.0, 2.0) if label == "unbalanced" else random.uniform(0.1, 0.3)
    return pull * np.stack([np.sin(2 * np.pi * turns), np.cos(2 * np.pi * turns)], axis=1) + noise


def main(live):
    random = np.random.default_rng(7)
    start = datetime.now() if live else datetime(2026, 1, 1, 10)
    at = 0
    for label in ("off", "running", "unbalanced", "off"):
        for x, y in readings(label, 10 * RATE, random):
            moment = start + timedelta(seconds=at / RATE)
            if live:
                time.sleep(max(0, (moment - datetime.now()).total_seconds()))
            # A line in one call: never a part of a record in the pipe.
            sys.stdout.write(f"{moment.isoformat(timespec='milliseconds')},{x:.3f},{y:.3f}\n")
            sys.stdout.flush()
            at += 1


if __name__ == "__main__":
    if sys.argv[1:] not in ([], ["--live"]):
        sys.exit(__doc__)
    main(bool(sys.argv[1:]))
