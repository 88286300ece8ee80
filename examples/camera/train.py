"""A small convolutional network for the frames of frames.py.

    python examples/camera/train.py OUT_DIR

It has a convolution of 3 x 3 with four given filters for edges, ReLU, the mean of each channel, and
a layer that scikit-learn trains on these means. Writes the model folder. It needs NumPy and
scikit-learn only. A network that learns its filters would come from PyTorch (README.md).
"""

import sys
from pathlib import Path

import numpy as np
from frames import LABELS, draw
from sklearn.linear_model import LogisticRegression

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))
from mortonnet.exporter import network_json, npy_bytes, write_matrix

EDGE = np.array([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]])
FILTERS = np.stack([EDGE, -EDGE, EDGE.T, -EDGE.T])
"""Edges from dark to light and back, across and down: shape (filters, 3, 3) for each colour."""


def means(frames):
    """The values before the trained layer, in float64: shape (n, 4)."""
    grey = frames.astype(float).sum(axis=3) / 255
    windows = np.lib.stride_tricks.sliding_window_view(grey, (3, 3), axis=(1, 2))
    return np.maximum(np.einsum("nyxij,fij->nyxf", windows, FILTERS), 0).mean(axis=(1, 2))


def main(folder):
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    frames, classes = draw(3000, seed=1)
    model = LogisticRegression(max_iter=1000).fit(means(frames), classes)

    # A row a filter, columns in the order filter row, filter column, colour.
    convolution = np.repeat(FILTERS.reshape(4, 9, 1), 3, axis=2).reshape(4, 27)
    layers = [
        {
            "layer": "ConvLayer",
            "kernel": 3,
            "weights": write_matrix(folder, "1_w", convolution),
            "biases": write_matrix(folder, "1_b", np.zeros((4, 1))),
        },
        {"layer": "ReLULayer"},
        {"layer": "GlobalAveragePoolLayer"},
        {
            "layer": "AffineLayer",
            "weights": write_matrix(folder, "2_w", model.coef_),
            "biases": write_matrix(folder, "2_b", model.intercept_[:, None]),
        },
    ]
    check = frames[:24]
    (folder / "check_inputs.npy").write_bytes(npy_bytes(check))
    (folder / "check_scores.npy").write_bytes(
        npy_bytes(model.decision_function(means(check)).astype(np.float32))
    )
    definition = {
        "name": "camera",
        "labels": LABELS,
        # "hwc": pixel by pixel, as cameras and video tools give them. Bytes become 0 to 1.
        "input": {"shape": [3, 32, 32], "order": "hwc", "scale": 1 / 255},
        "layers": layers,
        "size": len(layers),
        "output": {"kind": "classes", "activation": "softmax"},
        "check": {"inputs": "check_inputs.npy", "scores": "check_scores.npy"},
    }
    (folder / "network.json").write_text(network_json(definition))
    print(
        f"scikit-learn: {model.score(means(frames), classes):.2%} of the frames it was trained on"
    )


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
