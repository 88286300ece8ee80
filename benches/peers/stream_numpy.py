"""What a Python user writes to classify CSV vectors: NumPy, float32, sigmoid between the affine layers.

usage: stream_numpy.py FOLDER < vectors.csv      FOLDER is a model folder (network.json, 1_w.csv, 1_b.csv, ...)

The weights are parsed once and kept in FOLDER/peer_weights.npz, so that later runs start as fast as NumPy can.
"""
import json
import pathlib
import sys

import numpy as np

folder = pathlib.Path(sys.argv[1])
kept = folder / "peer_weights.npz"
if not kept.exists():
    arrays = {}
    for path in folder.glob("[0-9]*_[wb].csv"):
        arrays[path.stem] = np.loadtxt(path, delimiter=",", dtype=np.float32, ndmin=2)
    scale = json.loads((folder / "network.json").read_text()).get("input", {}).get("scale", 1.0)
    np.savez(kept, scale=np.float32(scale), **arrays)
weights = np.load(kept)
layers = len(weights.files) // 2
x = np.loadtxt(sys.stdin, delimiter=",", dtype=np.float32, ndmin=2) * weights["scale"]
for i in range(1, layers + 1):
    x = x @ weights[f"{i}_w"].T + weights[f"{i}_b"].reshape(-1)
    if i < layers:
        x = 1 / (1 + np.exp(-x))
sys.stdout.write("\n".join(map(str, x.argmax(1))) + "\n")
