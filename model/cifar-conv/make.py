"""Writes this folder's network: its structure, weights drawn at random, golden vectors.

python model/cifar-conv/make.py         needs NumPy and PyTorch; a second run writes the same bytes
"""

import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1] / "python")]
from mortonnet.exporter import network_json, npy_bytes
from sequential import write_layers

SEED = 0
RECORDS = 24


def network():
    """The network whose tail is the thesis's 256-128-10."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 32, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 16, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(256, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


def draw(model, random):
    """Random weights by He et al. (2015), which keep the size of values from layer to layer."""
    for module in model:
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            inputs = module.weight[0].numel()
            weights = random.normal(0, np.sqrt(2 / inputs), module.weight.shape)
            biases = random.normal(0, 0.1, module.bias.shape)
            module.weight.data = torch.from_numpy(weights.astype(np.float32))
            module.bias.data = torch.from_numpy(biases.astype(np.float32))
    return model.eval()


def images(random):
    """Byte images of shape (n, 32, 32, 3): smooth colours, every third with noise."""
    y, x = np.mgrid[:32, :32] / 32
    phase, along, down = random.uniform(-8, 8, (3, RECORDS, 3, 1, 1))
    values = np.sin(phase + along * x + down * y)
    values[::3] += random.normal(0, 0.3, values[::3].shape)
    return np.clip(values * 90 + 128, 0, 255).round().astype(np.uint8).transpose(0, 2, 3, 1)


def main():
    random = np.random.default_rng(SEED)
    model = draw(network(), random)
    layers = write_layers(model, HERE)
    records = images(random)
    scaled = (torch.from_numpy(records.astype(np.float64)).permute(0, 3, 1, 2) - 128) / 64
    with torch.no_grad():
        scores = model.double()(scaled).numpy().astype(np.float32)
    (HERE / "check_inputs.npy").write_bytes(npy_bytes(records))
    (HERE / "check_scores.npy").write_bytes(npy_bytes(scores))
    definition = {
        "name": "cifar-conv",
        "input": {"shape": [3, 32, 32], "order": "hwc", "mean": 128.0, "std": 64.0},
        "layers": layers,
        "size": len(layers),
        "output": {"kind": "classes", "activation": "softmax"},
        "check": {"inputs": "check_inputs.npy", "scores": "check_scores.npy"},
    }
    (HERE / "network.json").write_text(network_json(definition))


if __name__ == "__main__":
    main()
