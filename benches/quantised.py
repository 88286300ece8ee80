#!/usr/bin/env python3
"""Quantises networks to 8-bit integers with TensorFlow's converter, for benches/host.py.

    benches/quantised.py FLOATS FOLDER [NAME]...

FLOATS has networks as tests/zoo/make.py or benches/networks.py makes them. The converter reads the
TensorFlow Lite file of each NAME (default: all that have one), and takes the ranges of values from
its records. Needs tensorflow-cpu 2.21, tf2onnx 1.17 and ai-edge-litert 2.3. FOLDER gets

    NAME.tflite         the network: int8 in, inside and out, one scale for each output channel
    NAME.onnx           the same integers as ONNX, quantised and dequantised around each operator
    NAME_inputs.npy     records of int8, shape (n, values), images as height × width × channels
    NAME_results.npy    the network's results by LiteRT, (n, outputs), int8
"""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
from ai_edge_litert.interpreter import Interpreter

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf
from tensorflow.lite.python.optimize import calibrator


def quantise(name, floats, folder):
    model = (floats / f"{name}.tflite").read_bytes()
    records = np.load(floats / f"{name}_inputs.npy").astype(np.float32)
    interpreter = Interpreter(model_content=model)
    shape = [int(n) for n in interpreter.get_input_details()[0]["shape"][1:]]
    if len(shape) == 3:
        records = records.reshape(len(records), shape[2], *shape[:2]).transpose(0, 2, 3, 1)
    records = np.ascontiguousarray(records.reshape(len(records), *shape))
    made = calibrator.Calibrator(model).calibrate_and_quantize(
        lambda: ([record[None]] for record in records), tf.int8, tf.int8, False
    )
    (folder / f"{name}.tflite").write_bytes(made)
    interpreter = Interpreter(model_content=bytes(made))
    interpreter.allocate_tensors()
    place, result = interpreter.get_input_details()[0], interpreter.get_output_details()[0]
    scale, zero = place["quantization"]
    integers = np.clip(np.rint(records / scale + zero), -128, 127).astype(np.int8)
    results = []
    for record in integers:
        interpreter.set_tensor(place["index"], record[None])
        interpreter.invoke()
        results.append(interpreter.get_tensor(result["index"]).reshape(-1))
    np.save(folder / f"{name}_inputs.npy", integers.reshape(len(integers), -1))
    np.save(folder / f"{name}_results.npy", np.stack(results))
    command = [sys.executable, "-m", "tf2onnx.convert", "--tflite", folder / f"{name}.tflite"]
    command += ["--output", folder / f"{name}.onnx", "--opset", "17"]
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    share_nothing(folder / f"{name}.onnx")


def share_nothing(path):
    """Gives each operator constants of its own. ONNX Runtime 1.32 cannot make weights unsigned that
    several operators share, which it does on CPUs without VNNI."""
    model = onnx.load(path)
    constants = {c.name: c for c in model.graph.initializer}
    used = set()
    for number, node in enumerate(model.graph.node):
        for place, name in enumerate(node.input):
            if name in constants and name in used:
                copy = model.graph.initializer.add()
                copy.CopyFrom(constants[name])
                copy.name = node.input[place] = f"{name}:{number}:{place}"
            used.add(name)
    onnx.save(model, path)


def main():
    floats, folder, *names = sys.argv[1:]
    floats, folder = Path(floats), Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name in names or sorted(f.stem for f in floats.glob("*.tflite")):
        quantise(name, floats, folder)
        print(name, flush=True)


main()
