#!/usr/bin/env python3
"""The peers of benches/host.py that run in Python.

usage: host_peers.py PEER THREADS [STEM]

These are NumPy, PyTorch and ONNX Runtime on a network of affine layers with ReLU between, and ONNX
Runtime, LiteRT, ncnn and MNN on a network of tests/zoo/make.py. rust/ has peers without Python.

The program is a server. It prints the version of the peer first, and ends with status 3 if the
package is missing. It reads lines "SIZES BATCH SECONDS" (784-2500-10 100 0.5, or a network's files
without their ending). For each it prints the median microseconds of a forward pass, the number of
passes and the largest error against float64, or "-" and the reason.

With STEM, a network's files, it answers the first record, prints the results, and stays until the
end of stdin. With "-" it has only imported the package.

ncnn reads files of its own, which pnnx makes of the .onnx and leaves beside it (`pip install
--no-deps pnnx`; only the program in the package is used). It has floats like the others, and its
own settings for packed layouts, Winograd and the rest. It has no batches: a batch is that many
passes, one after the other. For networks of 8-bit integers ncnn8.py makes the files. ncnn then has
the same integers as weights and its own ones as activations, and its records and results are
floats.

MNN reads a file that its own converter makes of the .onnx and leaves beside it. It has floats
(precision "high") and chooses its algorithms itself.
"""

import importlib.metadata
import importlib.util
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

PEER, THREADS = sys.argv[1], int(sys.argv[2])
CPU = pathlib.Path("/proc/cpuinfo").read_text().split()
VNNI = "avx512_vnni" in CPU or "avx_vnni" in CPU
# What libraries print goes to stderr, as stdout has the answers.
sys.stdout = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
STEM = sys.argv[3] if len(sys.argv) > 3 else None
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = str(THREADS)

try:
    import numpy as np

    if PEER == "torch":
        import torch
    elif PEER == "onnxruntime":
        import onnxruntime

        if not STEM:
            import onnx
    elif PEER == "litert":
        import ai_edge_litert
        from ai_edge_litert.interpreter import Interpreter
    elif PEER == "ncnn":
        import ncnn
    elif PEER == "mnn":
        import MNN
except ImportError:
    sys.exit(3)


def with_numpy(weights, biases, x):
    def forward():
        h = x
        for i, (w, b) in enumerate(zip(weights, biases)):
            h = h @ w.T + b
            if i + 1 < len(weights):
                np.maximum(h, 0, out=h)
        return h

    return forward


def with_torch(weights, biases, x):
    torch.set_num_threads(THREADS)
    modules = []
    for i, (w, b) in enumerate(zip(weights, biases)):
        layer = torch.nn.Linear(w.shape[1], w.shape[0])
        layer.weight.data, layer.bias.data = torch.from_numpy(w), torch.from_numpy(b)
        modules += [layer] + ([torch.nn.ReLU()] if i + 1 < len(weights) else [])
    model, x = torch.nn.Sequential(*modules).eval(), torch.from_numpy(x)

    def forward():
        with torch.inference_mode():
            return model(x).numpy()

    return forward


def with_onnxruntime(weights, biases, x):
    from onnx import TensorProto, helper, numpy_helper

    nodes, constants, at = [], [], "x"
    for i, (w, b) in enumerate(zip(weights, biases)):
        constants += [numpy_helper.from_array(w, f"w{i}"), numpy_helper.from_array(b, f"b{i}")]
        nodes.append(helper.make_node("Gemm", [at, f"w{i}", f"b{i}"], [f"g{i}"], transB=1))
        at = f"g{i}"
        if i + 1 < len(weights):
            nodes.append(helper.make_node("Relu", [at], [f"r{i}"]))
            at = f"r{i}"
    place = lambda name, size: helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", size])
    graph = helper.make_graph(
        nodes,
        "network",
        [place("x", weights[0].shape[1])],
        [place(at, weights[-1].shape[0])],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return lambda: session.run(None, {"x": x})[0]


def file_with_onnxruntime(stem, x):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    # Without this, sums of two products of bytes saturate on CPUs without VNNI. Other CPUs are
    # exact as they are, and this makes them slower.
    if not VNNI:
        options.add_session_config_entry("session.x64quantprecision", "1")
    session = onnxruntime.InferenceSession(
        stem + ".onnx", options, providers=["CPUExecutionProvider"]
    )
    value = session.get_inputs()[0]
    x = x.reshape(len(x), *value.shape[1:])
    return lambda: session.run(None, {value.name: x})[0]


def file_with_litert(stem, x):
    interpreter = Interpreter(stem + ".tflite", num_threads=THREADS)
    value, result = interpreter.get_input_details()[0], interpreter.get_output_details()[0]
    shape = [int(n) for n in value["shape"][1:]]
    if len(shape) == 3 and x.dtype == np.float32:
        # The records' values are channel by channel. Those of integers are in the model's order.
        x = np.ascontiguousarray(x.reshape(len(x), shape[2], *shape[:2]).transpose(0, 2, 3, 1))
    x = x.reshape(len(x), *shape)
    interpreter.resize_tensor_input(value["index"], x.shape)
    interpreter.allocate_tensors()

    def forward():
        interpreter.set_tensor(value["index"], x)
        interpreter.invoke()
        return interpreter.get_tensor(result["index"])

    return forward


def ncnn_files(stem):
    """A network's .param and .bin, with the record's width, height and channels for its input."""
    param, weights = stem + ".ncnn.param", stem + ".ncnn.bin"
    if not (os.path.exists(param) and os.path.exists(weights)):
        import onnx

        found = importlib.util.find_spec("pnnx")  # to import it would take PyTorch
        if not found:
            raise RuntimeError("no package pnnx, which makes ncnn's files")
        dims = onnx.load(stem + ".onnx").graph.input[0].type.tensor_type.shape.dim[1:]
        shape = [d.dim_value for d in dims]
        with tempfile.TemporaryDirectory() as folder:
            of = lambda ending: os.path.join(folder, "network" + ending)
            os.symlink(stem + ".onnx", of(".onnx"))
            program = os.path.join(found.submodule_search_locations[0], "pnnx")
            command = [
                program,
                of(".onnx"),
                f"inputshape=[{','.join(map(str, [1, *shape]))}]",
                "fp16=0",
            ]
            subprocess.run(
                command,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                check=True,
                cwd=folder,
            )
            lines = pathlib.Path(of(".ncnn.param")).read_text().splitlines()
            lines[2] += "".join(f" {i}={n}" for i, n in enumerate(reversed(shape)))
            pathlib.Path(weights).write_bytes(pathlib.Path(of(".ncnn.bin")).read_bytes())
            pathlib.Path(param).write_text("\n".join(lines) + "\n")
    with open(param) as file:
        place = file.read(1000).splitlines()[2].split()[5:]
    return param, weights, [int(p.split("=")[1]) for p in reversed(place)]


def file_with_ncnn(stem, x):
    param, weights, shape = ncnn_files(stem)
    ncnn.set_omp_num_threads(THREADS)
    net = ncnn.Net()
    net.opt.num_threads = THREADS
    for what in ("fp16_packed", "fp16_storage", "fp16_arithmetic", "bf16_packed", "bf16_storage"):
        setattr(net.opt, "use_" + what, False)
    if net.load_param(param) or net.load_model(weights):
        raise RuntimeError(f"{param}: not loaded")
    x = x.reshape(len(x), *shape)
    places = [ncnn.Mat(record) for record in x]  # of the values in x, not of copies

    def forward():
        results = []
        for place in places:
            extractor = net.create_extractor()
            extractor.input("in0", place)
            results.append(np.array(extractor.extract("out0")[1]))
        return np.stack(results) if len(results) > 1 else results[0][None]

    # The extractors read x as long as the pass is used.
    forward.records, forward.net = x, net
    return forward


def integers_with_ncnn(stem, some, at):
    """The forward pass of a network of 8-bit integers with ncnn, and its error.

    The results cannot be exact, as ncnn's activations have no zero points: their steps are up to
    twice as wide as LiteRT's. Networks of random weights increase such differences from layer to
    layer, until results of correct files have little to do with LiteRT's. So each layer is checked
    alone, with the inputs that it has in ONNX Runtime. Differences are at most 8 % of its values.
    A wrong border, activation, operation or order of weights makes them 25 % and more, and a scale
    that is 30 % off makes them 13 %. A missing bias is not noticed if it is small. An error of 1e-4
    is 10 %.
    """
    import ncnn8

    network = ncnn8.Network(stem + ".onnx")
    network.write(stem + ".ncnn.param", stem + ".ncnn.bin")
    forward = file_with_ncnn(stem, network.floats(some[at]))
    return forward, network.error(forward.net, some[:4]) * 1e-4 / 0.1


def file_with_mnn(stem, x):
    model = stem + ".mnn"
    if not os.path.exists(model):
        command = [os.path.join(os.path.dirname(sys.executable), "mnnconvert"), "-f", "ONNX"]
        command += ["--modelFile", stem + ".onnx", "--MNNModel", model, "--bizCode", "peer"]
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    interpreter = MNN.Interpreter(model)
    session = interpreter.createSession(
        {"numThread": THREADS, "backend": "CPU", "precision": "high"}
    )
    place = interpreter.getSessionInput(session)
    shape = (len(x), *place.getShape()[1:])
    interpreter.resizeTensor(place, shape)
    interpreter.resizeSession(session)
    x = np.ascontiguousarray(x.reshape(shape))
    of = lambda array: MNN.Tensor(
        array.shape, MNN.Halide_Type_Float, array, MNN.Tensor_DimensionType_Caffe
    )
    values, found = of(x), interpreter.getSessionOutput(session)
    room = np.zeros(found.getShape(), np.float32)

    def forward():
        place.copyFrom(values)
        interpreter.runSession(session)
        results = of(room)
        found.copyToHostTensor(results)
        return np.array(results.getNumpyData(), np.float32)

    # The tensors read x and the session as long as the pass is used.
    forward.kept = x, interpreter, session
    return forward


BUILD = {"numpy": with_numpy, "torch": with_torch, "onnxruntime": with_onnxruntime}.get(PEER)
OF_FILE = {
    "onnxruntime": file_with_onnxruntime,
    "litert": file_with_litert,
    "ncnn": file_with_ncnn,
    "mnn": file_with_mnn,
}.get(PEER)


def of_file(stem, batch):
    """The forward pass of a file, and its largest error relative to the largest result.

    Records of int8 stay integers. Peers round the sums of layers differently, so their results may
    be some steps from LiteRT's. An error of 1e-4 is then ten steps.
    """
    some, expected = np.load(stem + "_inputs.npy"), np.load(stem + "_results.npy")
    at = np.arange(batch) % len(some)
    whole = some.dtype == np.int8
    if whole and PEER == "ncnn":
        return integers_with_ncnn(stem, some, at)
    if whole and PEER == "mnn":
        raise RuntimeError("reads floats, and these records are integers")
    forward = OF_FILE(stem, some[at] if whole else some[at].astype(np.float32))
    expected = expected.reshape(len(expected), -1)[at].astype(np.float32)
    largest = 1e5 if whole else np.abs(expected).max()
    error = np.abs(forward().reshape(batch, -1) - expected).max() / largest
    return forward, float(error)


def measure(sizes, batch, seconds, built):
    key = (sizes, batch)
    if key not in built:
        built.clear()
    if key not in built and isinstance(sizes, str):
        built[key] = of_file(sizes, batch)
    elif key not in built:
        rng = np.random.default_rng(0)
        pairs = list(zip(sizes, sizes[1:]))
        weights = [(rng.standard_normal((o, i)) / np.sqrt(i)).astype(np.float32) for i, o in pairs]
        biases = [rng.standard_normal(o).astype(np.float32) for _, o in pairs]
        x = rng.random((batch, sizes[0]), dtype=np.float32)
        forward = BUILD(weights, biases, x)
        # The first and the last record, as mortonnet checks its own.
        h = x[[0, -1]].astype(np.float64)
        for i, (w, b) in enumerate(zip(weights, biases)):
            h = h @ w.T.astype(np.float64) + b
            h = np.maximum(h, 0) if i + 1 < len(weights) else h
        error = float(np.max(np.abs(forward()[[0, -1]] - h) / np.maximum(1, np.abs(h))))
        built[key] = forward, error
    forward, error = built[key]
    forward(), forward()
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 5:
        start = time.perf_counter()
        forward()
        times.append((time.perf_counter() - start) * 1e6)
    return statistics.median(times), len(times), error


if STEM:
    if STEM == "-":
        print(flush=True)
    else:
        first = np.load(STEM + "_inputs.npy", mmap_mode="r")[:1].astype(np.float32)
        print(",".join(map(str, OF_FILE(STEM, first)().ravel().tolist())), flush=True)
    sys.stdin.read()
    sys.exit()

PACKAGES = {"litert": "ai-edge-litert", "mnn": "MNN"}
version = importlib.metadata.version(PACKAGES.get(PEER, PEER))
print(f"{PEER} {version}", flush=True)
built = {}
for line in sys.stdin:
    sizes, batch, seconds = line.split()
    sizes = sizes if pathlib.PurePath(sizes).is_absolute() else tuple(map(int, sizes.split("-")))
    try:
        median, passes, error = measure(sizes, int(batch), float(seconds), built)
        print(f"{median:.3f} {passes} {error:.3e}", flush=True)
    except Exception as problem:
        built.clear()
        print("-", " ".join(f"{type(problem).__name__}: {problem}".split()), flush=True)
