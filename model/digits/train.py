"""Trains the 64-32-10 ReLU network on scikit-learn's digits; writes model files and test vectors.

python model/digits/train.py                     trains on 1200 images, writes, tests on the other
597 python model/digits/train.py --cross-validate    5-fold, four times, within the 1200 training
images;
                                                 writes nothing
"""

import sys
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import StratifiedKFold, train_test_split
from torch import nn

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "python"))
from mortonnet.exporter import csv_bytes, export

EPOCHS, BATCH, RATE, DECAY = 150, 64, 0.01, 0.1  # chosen with --cross-validate: README.md
SHIFT, TURN, STRETCH = 0.5, 0.15, 0.1  # standard deviations: pixels, radians, share of the size


def split():
    """(training images and labels, test images and labels); images (n, 64) from 0 to 16."""
    images, labels = load_digits(return_X_y=True)
    x, x_test, y, y_test = train_test_split(
        images.astype(int), labels, test_size=597, random_state=0, stratify=labels
    )
    return x, y, x_test, y_test


def distort(images):
    """Every image (n, 64) shifted, turned, stretched and slanted a little, at random."""
    n = len(images)

    def random(deviation):
        return torch.randn(n) * deviation

    turn, slant = random(TURN), random(STRETCH)
    right = torch.stack(
        [turn.cos() * (1 + random(STRETCH)), slant - turn.sin(), random(SHIFT / 4)], 1
    )  # 4: half a side
    down = torch.stack([turn.sin(), turn.cos() * (1 + random(STRETCH)), random(SHIFT / 4)], 1)
    grid = nn.functional.affine_grid(
        torch.stack([right, down], 1), (n, 1, 8, 8), align_corners=False
    )
    return nn.functional.grid_sample(images.view(n, 1, 8, 8), grid, align_corners=False).view(n, 64)


def train(images, labels, seed=0):
    """AdamW on newly distorted images in every epoch, on one thread: it repeats."""
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    images, labels = torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels)
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    steps = len(images) // BATCH
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps * EPOCHS)
    for _ in range(EPOCHS):
        distorted = distort(images)
        order = torch.randperm(len(images))
        for batch in order[: steps * BATCH].view(steps, BATCH):
            loss = nn.functional.cross_entropy(model(distorted[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return model


def right(model, images, labels):
    """How many images the model gives the right class."""
    with torch.no_grad():
        return int(
            (
                model(torch.tensor(images / 16, dtype=torch.float32)).argmax(1).numpy() == labels
            ).sum()
        )


def cross_validate():
    x, y, _, _ = split()
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    shares = [
        right(train(x[a], y[a], s), x[b], y[b]) / len(b)
        for s in range(4)
        for a, b in folds.split(x, y)
    ]
    error = np.std(shares) / len(shares) ** 0.5
    print(
        f"cross-validation within the training set: {100 * np.mean(shares):.2f} % ± "
        f"{100 * error:.2f}"
    )


def main():
    x, y, x_test, y_test = split()
    model = train(x, y)
    export(model, HERE, inputs=x, name="digits", labels=range(10), input={"scale": 1 / 16})
    (HERE / "test.csv").write_bytes(csv_bytes(x_test))
    (HERE / "test_labels.csv").write_bytes(csv_bytes(y_test[:, None]))
    for what, images, labels in (("training", x, y), ("test", x_test, y_test)):
        n = right(model, images, labels)
        print(f"{what} set: {n} of {len(labels)} right, {100 * n / len(labels):.2f} %")


if __name__ == "__main__":
    if sys.argv[1:] == ["--cross-validate"]:
        cross_validate()
    elif sys.argv[1:]:
        sys.exit(__doc__)
    else:
        main()
