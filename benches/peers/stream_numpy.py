#!/usr/bin/env python3
"""Classifies CSV vectors as a Python user would: NumPy, float32, sigmoid between the affine layers.

usage: stream_numpy.py FOLDER < vectors.csv

FOLDER holds 1_w.csv, 1_b.csv, 2_w.csv, … (rows are outputs). The weights are parsed once and kept
in FOLDER/weights.npz, so that later runs start as fast as NumPy can.
"""

import pathlib
import sys

import numpy as np

folder = pathlib.Path(sys.argv[1])
kept = folder / "weights.npz"
if not kept.exists():
    arrays = {}
    for path in folder.glob("[0-9]*_[wb].csv"):
        values = np.loadtxt(path, delimiter=",", dtype=np.float32, ndmin=2)
        arrays[path.stem] = values if path.stem.endswith("w") else values.reshape(-1)
    np.savez(kept, **arrays)
weights = np.load(kept)
layers = len(weights.files) // 2
x = np.loadtxt(sys.stdin, delimiter=",", dtype=np.float32, ndmin=2)
for i in range(1, layers + 1):
    x = x @ weights[f"{i}_w"].T + weights[f"{i}_b"]
    if i < layers:
        x = 1 / (1 + np.exp(-x))
sys.stdout.write("\n".join(map(str, x.argmax(1))) + "\n")
