"""Trains a convolutional network on MNIST and writes this folder's model files.

    python model/mnist-conv/train.py MNIST_FOLDER             trains on all 60000 images, writes,
    tests python model/mnist-conv/train.py MNIST_FOLDER --held-out  trains on the first 50000, tests
    on the other
                                                       10000, writes nothing

MNIST_FOLDER holds the four IDX files as .gz. No image of MNIST is written. The golden vectors are
drawn here.
"""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1] / "python")]
from mortonnet.exporter import network_json, npy_bytes
from sequential import write_layers

# Files and drawings as for the thesis's network of affine layers.
_spec = importlib.util.spec_from_file_location("mnist_affine", HERE.parent / "mnist" / "train.py")
mnist = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(mnist)

SEED = 0
EPOCHS, BATCH, RATE, DECAY, DROPOUT = 12, 128, 0.003, 0.02, 0.3
SHIFT, TURN, SIZE = (
    2.0,
    0.17,
    0.1,
)  # of the training images, at most: pixels, radians, share of their size


def network():
    """The network whose tail is the thesis's 640-150-10."""
    return nn.Sequential(
        nn.Conv2d(1, 20, 5),
        nn.MaxPool2d(2),
        nn.Conv2d(20, 40, 5),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(DROPOUT),
        nn.Linear(640, 150),
        nn.ReLU(),
        nn.Dropout(DROPOUT),
        nn.Linear(150, 10),
    )


def distorted(images):
    """Each image shifted, turned and made larger or smaller a little, anew at every call."""
    n = len(images)

    def draw(most):
        return (torch.rand(n) * 2 - 1) * most

    angle, size = draw(TURN), 1 + draw(SIZE)
    cos, sin = angle.cos() * size, angle.sin() * size
    move = SHIFT / 14  # the grid goes from −1 to 1
    rows = [torch.stack([cos, -sin, draw(move)], 1), torch.stack([sin, cos, draw(move)], 1)]
    grid = nn.functional.affine_grid(torch.stack(rows, 1), images.shape, align_corners=False)
    return nn.functional.grid_sample(images, grid, align_corners=False)


def train(images, labels):
    """AdamW with one warm-up and cool-down of the learning rate, on one thread: it repeats."""
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    model = network()
    steps = len(images) // BATCH
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps * EPOCHS)
    for epoch in range(EPOCHS):
        total = 0.0
        for batch in torch.randperm(len(images))[: steps * BATCH].view(steps, BATCH):
            loss = nn.functional.cross_entropy(model(distorted(images[batch])), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item()
        print(f"epoch {epoch + 1} of {EPOCHS}: loss {total / steps:.4f}", flush=True)
    return model.eval()


def report(what, model, images, labels):
    with torch.no_grad():
        right = sum(
            int((model(i).argmax(1) == l).sum())
            for i, l in zip(images.split(1000), labels.split(1000))
        )
    print(f"{what}: {right} of {len(labels)} right, {100 * right / len(labels):.2f} %")


def write(model):
    """network.json, the matrices and the golden vectors."""
    layers = write_layers(model, HERE)
    drawings = mnist.drawings(48)
    with torch.no_grad():
        scores = (
            model.double()(torch.from_numpy(drawings / 255.0).view(-1, 1, 28, 28))
            .numpy()
            .astype(np.float32)
        )
    (HERE / "check_inputs.npy").write_bytes(npy_bytes(drawings))
    (HERE / "check_scores.npy").write_bytes(npy_bytes(scores))
    definition = {
        "name": "mnist-conv",
        "input": {"shape": [1, 28, 28], "scale": 1 / 255},
        "layers": layers,
        "size": len(layers),
        "labels": [str(i) for i in range(10)],
        "output": {"kind": "classes", "activation": "softmax"},
        "check": {"inputs": "check_inputs.npy", "scores": "check_scores.npy"},
    }
    (HERE / "network.json").write_text(network_json(definition))


def main(folder, held_out):
    images, labels = mnist.load(folder, "train")
    images = images.view(-1, 1, 28, 28)
    if held_out:
        model = train(images[:50000], labels[:50000])
        report("held-out part of the training set", model, images[50000:], labels[50000:])
        return
    model = train(images, labels)
    report("training set", model, images, labels)
    test, test_labels = mnist.load(folder, "t10k")
    report("test set", model, test.view(-1, 1, 28, 28), test_labels)
    write(model)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    held_out = "--held-out" in arguments
    folders = [a for a in arguments if a != "--held-out"]
    if len(folders) != 1:
        sys.exit(__doc__)
    main(Path(folders[0]), held_out)
