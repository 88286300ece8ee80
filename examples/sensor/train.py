"""A network that tells the state of a motor from one second of the sensor's readings.

    python examples/sensor/train.py OUT_DIR

A record is 50 readings of two axes, the oldest first, like the records of `--window 50`. Writes the
model folder.
"""

import sys
from pathlib import Path

import numpy as np
from sensor import LABELS, RATE, readings
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))
from mortonnet.exporter import export


def seconds(count, random):
    """`count` seconds of readings, shape (count, 100), and the state of the motor in each."""
    labels = random.choice(LABELS, count)
    return np.stack([readings(label, RATE, random).ravel() for label in labels]), labels


def main(folder):
    random = np.random.default_rng(0)
    x, y = seconds(6000, random)
    x_test, y_test = seconds(1000, random)
    model = make_pipeline(StandardScaler(), MLPClassifier((32,), alpha=0.01, random_state=0)).fit(
        x, y
    )
    export(model, folder, inputs=x, name="motor")
    right = int((model.predict(x_test) == y_test).sum())
    print(f"scikit-learn: {right} of {len(x_test)} seconds that it was not trained on")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
