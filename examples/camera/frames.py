"""Draws frames of a camera over a belt with parcels.

    python examples/camera/frames.py COUNT SEED LABELS > frames.u8

The bars of a parcel's label stand upright, are turned, or are missing. Writes raw frames of 32 x 32
pixels to stdout, red, green and blue a byte each (rgb24 for ffmpeg). The file LABELS gets the label
of each frame, a line a frame.
"""

import sys
from pathlib import Path

import numpy as np

LABELS = ("missing", "turned", "upright")
SIZE = 32


def draw(count, seed):
    """`count` frames, shape (count, 32, 32, 3), and the index into LABELS of each."""
    random = np.random.default_rng(seed)
    classes = random.integers(len(LABELS), size=count)
    return np.stack([_frame(random, LABELS[c]) for c in classes]), classes


def _frame(random, label):
    # Parcels are lighter than the belt, and light falls on them from one side.
    belt, parcel = random.uniform(20, 70, 3), random.uniform(120, 220, 3)
    frame = np.tile(belt, (SIZE, SIZE, 1))
    top, left = random.integers(1, 6, 2)
    frame[top : top + 25, left : left + 25] = parcel
    if label != "missing":
        along = np.arange(16)
        bars = (along + random.integers(4)) // random.integers(2, 5) % 2 * random.uniform(70, 110)
        at_y, at_x = top + random.integers(2, 8), left + random.integers(2, 8)
        frame[at_y : at_y + 16, at_x : at_x + 16] -= (
            bars[:, None, None] if label == "turned" else bars[None, :, None]
        )
    light = 1 + random.uniform(-0.2, 0.2) * np.linspace(-1, 1, SIZE)[:, None, None]
    return (
        np.clip(frame * light + random.normal(0, 4, frame.shape), 0, 255).round().astype(np.uint8)
    )


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    frames, classes = draw(int(sys.argv[1]), int(sys.argv[2]))
    Path(sys.argv[3]).write_text("".join(LABELS[c] + "\n" for c in classes))
    sys.stdout.buffer.write(frames.tobytes())
