"""Puts networks into finished programs, by the program `mortonnet-bake`."""

import logging
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from .exporter import export

NAME = "mortonnet-bake"


class BakeError(ValueError):
    """The network cannot be baked; the text has every mistake with its place, a line each."""


def tool():
    """The path of mortonnet-bake: the wheel's, or that of an installed package.

    Raises FileNotFoundError where neither is there.
    """
    own = Path(__file__).with_name("programs") / NAME
    found = str(own) if own.exists() else shutil.which(NAME)
    if found is None:
        raise FileNotFoundError(
            f"{NAME} is neither {own} nor on the PATH: install mortonnet's wheel or its Debian "
            "package (release/make makes both)"
        )
    return found


def bake(
    model,
    output="classify",
    *,
    target=None,
    plan=None,
    weights=None,
    program=None,
    quantize=None,
    **said,
):
    """Writes a program that runs `model` and returns its path; a file of that name is replaced.

    model:   the path of an ONNX or TensorFlow Lite model, of a network JSON, or of a folder with
             network.json. Or a trained model of scikit-learn, PyTorch or Keras.
    output:  the program.
    target:  the CPU that it is for: "x86_64", "aarch64" or "armv7". None: this machine's.
    plan:    a plan of the library, or a plan file.
             None: "host", for aarch64 and armv7 "mali-midgard".
    weights: their type: "f32", "f16", "i8", or "i8:PERCENT", where PERCENT of the classes may
             change. None: "f32", or "i8" with quantize.
    program: the finished program that is copied. None: the one that came with mortonnet-bake.
    quantize: 100 or more typical records in raw units. With them the network is quantized to 8-bit
             integers. None: floats.
    said:    more arguments of `export`, for a model that is no file. Without `inputs` none of the
             framework's answers are baked for --selftest.

    Raises BakeError with all mistakes, and ExportError for a model that cannot be written.
    """
    output = Path(output)
    options = {"--target": target, "--plan": plan, "--weights": weights, "--program": program}
    options = [
        str(word)
        for option, value in options.items()
        if value is not None
        for word in (option, value)
    ]
    if isinstance(model, (str, os.PathLike)):
        if said:
            raise TypeError(
                f"{next(iter(said))}: goes with a model that is no file; for {model} a JSON file "
                "beside it says that"
            )
        if quantize is None:
            return _bake(model, output, options)
        with tempfile.TemporaryDirectory() as folder:
            records = Path(folder) / "quantize.npy"
            array = np.asarray(quantize, np.float32)
            np.save(records, array.reshape(len(array), -1))
            return _bake(model, output, [*options, "--quantize", str(records)])
    if quantize is not None:
        said["quantize"] = quantize
    if said.get("inputs") is None:
        said = {"inputs": None, "check": 0} | said
    with tempfile.TemporaryDirectory() as folder:
        written = export(model, Path(folder) / "model", **({"name": output.name} | said))
        return _bake(written, output, options)


def _bake(model, output, options):
    ended = subprocess.run(
        [tool(), model, "-o", output, *options], capture_output=True, text=True, errors="replace"
    )
    lines = [line.removeprefix(f"{NAME}: ") for line in ended.stderr.splitlines()]
    if ended.returncode:
        raise BakeError("\n".join(lines) or f"{NAME} ended with {ended.returncode}")
    for line in lines:
        logging.getLogger("mortonnet").info(line)
    return output
