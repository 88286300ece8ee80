"""Refusals that the documents state. Any other refusal is a failure."""

import re

STATED = [
    # (part of the message, the sentence of docs/ONNX.md or docs/TFLITE.md that states it)
    (
        "it has no layers: scaling its input and a final function are all",
        "A model that computes nothing is refused",
    ),
    (r"axes of .* change places, at most 3 can", "at most three groups of axes change places"),
    (
        r"the window at row \d+, column \d+ is outside of the image",
        "each window reaches at least one pixel",
    ),
]


def problems(message):
    """The lines of a message that name a problem each."""
    lines = [l for l in message.strip().splitlines() if l.strip()]
    return [l for l in lines if "nothing was written" not in l] or lines


def stated(message):
    """True if the documents state this refusal."""
    return bool(message) and all(
        any(re.search(part, line) for part, _ in STATED) for line in problems(message)
    )
