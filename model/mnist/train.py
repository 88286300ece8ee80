"""Trains the 784-100-100-10 sigmoid network on MNIST and writes this folder's model files.

    python model/mnist/train.py MNIST_FOLDER             trains on all 60000 images, writes, tests
    python model/mnist/train.py MNIST_FOLDER --held-out  trains on the first 50000, tests on the
    other
                                                       10000, writes nothing

MNIST_FOLDER holds the four IDX files as .gz. No image of MNIST is written. The golden vectors are
drawn here.
"""

import gzip
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "python"))
from mortonnet.exporter import export

SEED = 0
EPOCHS, BATCH, RATE, DECAY, DROPOUT = 20, 128, 0.01, 0.1, 0.1  # chosen with --held-out: README.md


def idx(file):
    """The array of unsigned bytes in a gzipped IDX file."""
    data = gzip.decompress(file.read_bytes())
    if data[:3] != b"\0\0\x08":
        sys.exit(
            f"{file}: expected an IDX file of unsigned bytes, found the first bytes "
            f"{data[:3].hex()}"
        )
    dimensions = data[3]
    shape = np.frombuffer(data, ">u4", dimensions, 4)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * dimensions).reshape(shape)


def load(folder, part):
    """Images (n, 784) from 0 to 1 and labels (n,) of "train" or "t10k"."""
    images = idx(folder / f"{part}-images-idx3-ubyte.gz").reshape(-1, 784)
    labels = idx(folder / f"{part}-labels-idx1-ubyte.gz")
    return torch.from_numpy(images / np.float32(255)), torch.from_numpy(labels.astype(np.int64))


def train(images, labels):
    """Trains by AdamW with one warm-up and cool-down, and dropout, on one thread: it repeats."""
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    model = nn.Sequential(
        nn.Linear(784, 100),
        nn.Sigmoid(),
        nn.Dropout(DROPOUT),
        nn.Linear(100, 100),
        nn.Sigmoid(),
        nn.Linear(100, 10),
    )
    for module in model:
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight, gain=2)  # a sigmoid's slope is 1/4 at most
    steps = len(images) // BATCH
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps * EPOCHS)
    for _ in range(EPOCHS):
        order = torch.randperm(len(images))
        for batch in order[: steps * BATCH].view(steps, BATCH):
            loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return model.eval()


def report(what, model, images, labels):
    with torch.no_grad():
        right = int((model(images).argmax(1) == labels).sum())
    print(f"{what}: {right} of {len(labels)} right, {100 * right / len(labels):.2f} %")


def drawings(count):
    """Byte images (count, 784) of one to three curved pen strokes, every fourth with noise."""
    random = np.random.default_rng(SEED)
    row, col = np.mgrid[:28, :28]
    t = np.linspace(0, 1, 40)
    bezier = np.stack([(1 - t) ** 2, 2 * t * (1 - t), t**2], axis=1)
    images = np.empty((count, 28, 28))
    for i, image in enumerate(images):
        points = np.concatenate(
            [bezier @ random.uniform(4, 24, (3, 2)) for _ in range(random.integers(1, 4))]
        )
        distance = np.hypot(row[..., None] - points[:, 0], col[..., None] - points[:, 1]).min(
            axis=2
        )
        image[:] = 255 * np.clip(random.uniform(1.5, 2.5) - distance, 0, 1)
        if i % 4 == 3:
            image += random.uniform(0, 60, image.shape)
    return np.clip(images, 0, 255).round().astype(np.uint8).reshape(count, 784)


def main(folder, held_out):
    images, labels = load(folder, "train")
    if held_out:
        model = train(images[:50000], labels[:50000])
        report("held-out part of the training set", model, images[50000:], labels[50000:])
        return
    model = train(images, labels)
    scaling = {"scale": 1 / 255}  # bytes come in
    export(model, HERE, inputs=drawings(64), name="mnist", labels=range(10), input=scaling)
    report("training set", model, images, labels)
    report("test set", model, *load(folder, "t10k"))


if __name__ == "__main__":
    arguments = sys.argv[1:]
    held_out = "--held-out" in arguments
    folders = [a for a in arguments if a != "--held-out"]
    if len(folders) != 1:
        sys.exit(__doc__)
    main(Path(folders[0]), held_out)
