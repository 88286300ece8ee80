"""A PyTorch network that gives values instead of a class: the position of a two-joint arm's hand.

    python examples/torch_values.py OUT_DIR

The inputs are the two joint angles in degrees (-90 to 90), the outputs x and y of the hand in
metres. Both links are 0.5 m long. Writes the model folder, `test.csv` (200 records, with a header
line) and `test_scores.csv` (the network's own outputs for them, in float64).
"""

import sys
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))
from mortonnet.exporter import csv_bytes, export


def hand(angles):
    """Position in metres, shape (n, 2), for joint angles in degrees, shape (n, 2)."""
    first, second = np.radians(angles).T
    return 0.5 * np.stack(
        [np.cos(first) + np.cos(first + second), np.sin(first) + np.sin(first + second)], axis=1
    )


def main(folder):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    random = np.random.default_rng(0)
    angles, test = (random.uniform(-90, 90, (n, 2)).round(2) for n in (2000, 200))
    x, y = (
        torch.tensor(angles / 90, dtype=torch.float32),
        torch.tensor(hand(angles), dtype=torch.float32),
    )

    nn = torch.nn
    model = nn.Sequential(
        nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 2)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 2000)
    for _ in range(2000):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()

    out = export(
        model, folder, inputs=angles, name="arm", output="values",
        input={"scale": 1 / 90}, features=["shoulder", "elbow"], labels=["x", "y"],
    )  # fmt: skip
    with torch.no_grad():
        scores = model.double()(torch.from_numpy(test / 90)).numpy()
    (out / "test.csv").write_bytes(b"shoulder,elbow\n" + csv_bytes(test))
    (out / "test_scores.csv").write_bytes(csv_bytes(scores))
    print(
        f"largest distance from the true position, {len(test)} test records: "
        f"{np.abs(scores - hand(test)).max():.4f} m"
    )


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
