"""Trained networks as programs for Linux boards, without a compiler.

    import mortonnet mortonnet.bake("net.onnx", "classify", target="armv7")          # a file: ONNX,
    TensorFlow Lite, network.json mortonnet.bake(model, "classify", inputs=x)                     #
    of scikit-learn, PyTorch or Keras; x in raw units classes = mortonnet.run("./classify", x)
    # NumPy in, NumPy out

`python -m mortonnet bake net.onnx --target armv7 -o classify` does the same as the first of these.
`export` writes a folder for `MORTONNET_MODEL=FOLDER cargo build` instead. NumPy is needed, and the
framework that a model comes from.
"""

from .baking import BakeError, bake
from .exporter import ExportError, export
from .running import Program, ProgramError, run

__all__ = ["BakeError", "ExportError", "Program", "ProgramError", "bake", "export", "run"]
