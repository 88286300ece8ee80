"""Trained networks as programs for Linux boards, without a compiler.

    import mortonnet
    mortonnet.bake("net.onnx", "classify", target="armv7")    # or .tflite, network.json
    mortonnet.bake(model, "classify", inputs=x)    # scikit-learn, PyTorch, Keras; x in raw units
    classes = mortonnet.run("./classify", x)       # NumPy in, NumPy out

`python -m mortonnet bake net.onnx --target armv7 -o classify` does the first of these. `export`
writes a folder for `MORTONNET_MODEL=FOLDER cargo build` instead. NumPy is needed, and the framework
of the model.
"""

from .baking import BakeError, bake
from .exporter import ExportError, export
from .running import Program, ProgramError, run

__all__ = ["BakeError", "ExportError", "Program", "ProgramError", "bake", "export", "run"]
