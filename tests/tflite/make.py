"""Writes the TensorFlow Lite models of src/bake/front/tflite/tests.rs, with inputs and what the
interpreter makes of them, into this folder: NAME.tflite, NAME.inputs.npy (a record a row, real
numbers), NAME.outputs.npy (real numbers).

Weights are random, from a fixed seed. Needs numpy, tensorflow (Keras and its converter),
ai-edge-litert:
    python tests/tflite/make.py
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

import numpy as np
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from tensorflow.lite.python import schema_py_generated as schema
from tensorflow.lite.tools import flatbuffer_utils

HERE = os.path.dirname(os.path.abspath(__file__))
RECORDS = 6
layers = tf.keras.layers
random = np.random.default_rng(20241105)


def drawn(model):
    """Weights that keep the size of values from layer to layer, and statistics of batch norm."""
    for layer in model.layers:
        weights = []
        for variable in layer.weights:
            shape, name = tuple(variable.shape), variable.name
            if name in ("gamma", "moving_variance"):
                weights.append(random.uniform(0.5, 1.5, shape))
            elif len(shape) == 1:
                weights.append(random.normal(0, 0.3, shape))
            else:
                inputs = np.prod(shape[:-2]) if "depthwise" in layer.name else np.prod(shape[:-1])
                weights.append(random.normal(0, np.sqrt(2 / inputs), shape))
        layer.set_weights(weights)
    return model


def interpreter(model, whole=False):
    """LiteRT's own kernels, or XNNPACK for integers, whose rounding mortonnet has."""
    of = OpResolverType.AUTO if whole else OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    made = Interpreter(model_content=model, num_threads=1, experimental_op_resolver_type=of)
    made.allocate_tensors()
    return made


def real(detail, values):
    """The numbers that a tensor's integers stand for."""
    scale, zero = detail["quantization"]
    return (
        values.astype(np.float32)
        if scale == 0
        else ((values.astype(np.float64) - zero) * scale).astype(np.float32)
    )


def save(name, model, x, like=None, whole=False):
    """The model, its records and what the interpreter makes of them with it, or with a model `like`
    it, one at a time. Of several inputs, by their names, and outputs, one behind the other in the
    order of the file."""
    run = interpreter(like or model, whole)
    if isinstance(x, dict):
        return save_several(name, model, x, run)
    (into,) = run.get_input_details()
    scale, zero = into["quantization"]
    if scale != 0:
        limits = np.iinfo(into["dtype"])
        x = np.clip(np.round(x / scale) + zero, limits.min, limits.max)
    x = x.astype(into["dtype"])
    path = os.path.join(HERE, name)
    rows = answers(run, x)
    if "int8" in name or name == "implied":
        integers = answers(interpreter(model, whole=True), x)
        np.save(path + ".integers.npy", np.concatenate(integers).astype(np.float32))
    with open(path + ".tflite", "wb") as file:
        file.write(model)
    np.save(path + ".inputs.npy", real(into, x).reshape(len(x), -1))
    np.save(path + ".outputs.npy", np.concatenate(rows).astype(np.float32))
    describe(name, model)


def answers(run, x):
    (into,), (out,) = run.get_input_details(), run.get_output_details()
    rows = []
    for record in x:
        run.set_tensor(into["index"], record[None])
        run.invoke()
        rows.append(real(out, run.get_tensor(out["index"])).reshape(1, -1))
    return rows


def save_several(name, model, inputs, run):
    index = {
        name: detail["index"]
        for name, detail in run.get_signature_runner().get_input_details().items()
    }
    place = [detail["index"] for detail in run.get_input_details()]
    order = sorted(index, key=lambda name: place.index(index[name]))
    rows = []
    for i in range(RECORDS):
        for name_of in order:
            run.set_tensor(index[name_of], inputs[name_of][i][None])
        run.invoke()
        rows.append(
            np.concatenate(
                [run.get_tensor(d["index"]).reshape(1, -1) for d in run.get_output_details()],
                axis=1,
            )
        )
    path = os.path.join(HERE, name)
    with open(path + ".tflite", "wb") as file:
        file.write(model)
    np.save(
        path + ".inputs.npy",
        np.concatenate([inputs[n].reshape(RECORDS, -1) for n in order], axis=1),
    )
    np.save(path + ".outputs.npy", np.concatenate(rows).astype(np.float32))
    describe(name, model)


def describe(name, model):
    names = {v: k for k, v in vars(schema.BuiltinOperator).items() if isinstance(v, int)}
    made = flatbuffer_utils.convert_bytearray_to_object(bytearray(model))
    ops = [
        names[max(made.operatorCodes[o.opcodeIndex].builtinCode, 0)]
        for o in made.subgraphs[0].operators
    ]
    print(f"{name}: {len(model)} bytes, {' '.join(ops)}")


def records(*shape):
    return random.normal(0, 1, (RECORDS, *shape)).astype(np.float32)


def converted(model, x=None, kind="f32", **options):
    """A Keras model as TensorFlow Lite: f32, f16, dynamic (weights of int8), int8 (all of it), int8
    with integers for inputs and outputs too, or int16 (weights of int8, values of int16)."""
    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    if kind != "f32":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if kind == "f16":
        converter.target_spec.supported_types = [tf.float16]
    if kind.startswith("int8"):
        converter.representative_dataset = lambda: ([r[None]] for r in x)
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    if kind == "int16":
        of = tf.lite.OpsSet.EXPERIMENTAL_TFLITE_BUILTINS_ACTIVATIONS_INT16_WEIGHTS_INT8
        converter.representative_dataset = lambda: ([r[None]] for r in x)
        converter.target_spec.supported_ops = [of]
    if kind == "int8_ends":
        converter.inference_input_type = options.get("ends", tf.int8)
        converter.inference_output_type = options.get("ends", tf.int8)
    return converter.convert()


def function(f, *shape):
    """A function of one tensor with a free number of records."""
    concrete = tf.function(f).get_concrete_function(tf.TensorSpec([None, *shape], tf.float32))
    return tf.lite.TFLiteConverter.from_concrete_functions([concrete]).convert()


def cnn():
    """Convolutions, batch norm, pooling, a flatten; in every form that the converter writes."""
    model = drawn(
        tf.keras.Sequential(
            [
                tf.keras.Input((12, 10, 3)),
                layers.Conv2D(6, 3, padding="same", use_bias=False),
                layers.BatchNormalization(),
                layers.ReLU(),
                layers.MaxPooling2D(2),
                layers.Conv2D(8, 3, strides=2, padding="same", activation="relu6"),
                layers.Conv2D(40, 3, padding="same", activation="relu"),
                layers.Flatten(),
                layers.Dense(7, activation="softmax"),
            ]
        )
    )
    x = records(12, 10, 3)
    save("cnn", converted(model), x)
    save("cnn_f16", converted(model, kind="f16"), x)
    save("cnn_dynamic", converted(model, kind="dynamic"), x)
    # The converter sees smaller values than the records have, so some leave the range of int16.
    save("cnn_int16", converted(model, 0.6 * x, "int16"), x)
    save("cnn_int8", converted(model, x, "int8"), x)
    save("cnn_int8_ends", converted(model, x, "int8_ends"), x)
    save("cnn_uint8_ends", converted(model, x, "int8_ends", ends=tf.uint8), x)


def residual():
    """Two residual blocks, one with a convolution beside; a grouped and a dilated one; the mean."""
    start = tf.keras.Input((8, 8, 3), batch_size=1)
    y = layers.Conv2D(8, 3, padding="same", activation="relu")(start)
    z = layers.Conv2D(8, 3, padding="same", activation="relu")(y)
    z = layers.BatchNormalization()(layers.Conv2D(8, 3, padding="same")(z))
    y = layers.ReLU()(layers.Add()([z, y]))
    z = layers.Conv2D(12, 3, strides=2, padding="same", groups=2, activation="relu")(y)
    z = layers.Conv2D(12, 3, padding="same", dilation_rate=2)(z)
    y = layers.Add()([z, layers.Conv2D(12, 1, strides=2)(y)])
    y = layers.GlobalAveragePooling2D()(layers.ReLU()(y))
    model = drawn(tf.keras.Model(start, layers.Dense(10)(y)))
    x = records(8, 8, 3)
    save("residual", converted(model), x)
    save("residual_int8", converted(model, x, "int8"), x)


def mobile():
    """Depthwise convolutions, HardSwish, squeeze and excitation, a border before a stride."""
    swish = lambda x: layers.Activation("hard_swish")(x)
    start = tf.keras.Input((16, 16, 3), batch_size=1)
    y = swish(
        layers.BatchNormalization()(
            layers.Conv2D(8, 3, strides=2, padding="same", use_bias=False)(start)
        )
    )
    y = layers.DepthwiseConv2D(3, padding="same", depth_multiplier=2)(y)
    y = layers.ReLU(6.0)(layers.BatchNormalization()(y))
    s = layers.GlobalAveragePooling2D(keepdims=True)(y)
    s = layers.Conv2D(4, 1, activation="relu")(s)
    s = layers.Conv2D(16, 1, activation="hard_sigmoid")(s)
    y = layers.Multiply()([y, s])
    y = layers.ZeroPadding2D(((0, 1), (0, 1)))(y)
    y = swish(layers.DepthwiseConv2D(3, strides=2)(y))
    y = swish(layers.Conv2D(12, 1)(y))
    y = layers.AveragePooling2D(3, strides=2, padding="same")(y)
    y = layers.Flatten()(y)
    model = drawn(tf.keras.Model(start, layers.Dense(5)(y)))
    x = records(16, 16, 3)
    save("mobile", converted(model), x)
    save("mobile_int8_ends", converted(model, x, "int8_ends"), x)


def line():
    """Convolutions along a line, and one score behind a sigmoid."""
    model = drawn(
        tf.keras.Sequential(
            [
                tf.keras.Input((20, 4)),
                layers.Conv1D(8, 5, padding="same", activation="relu"),
                layers.MaxPooling1D(2),
                layers.Conv1D(6, 3, activation="tanh"),
                layers.GlobalMaxPooling1D(),
                layers.Dense(1, activation="sigmoid"),
            ]
        )
    )
    x = records(20, 4)
    save("line", converted(model), x)

    def implied(made):
        """Without the ReLU that the range of its output's integers implies."""
        codes = [c.builtinCode for c in made.operatorCodes]
        first = next(
            o
            for o in made.subgraphs[0].operators
            if codes[o.opcodeIndex] == schema.BuiltinOperator.CONV_2D
        )
        assert first.builtinOptions.fusedActivationFunction == schema.ActivationFunctionType.RELU
        first.builtinOptions.fusedActivationFunction = schema.ActivationFunctionType.NONE

    save("implied", changed("implied", converted(model, x, "int8"), implied), x)


def functions():
    """Every element-wise function, and constants on either side."""
    w = [tf.constant(random.normal(0, 0.5, (7, 7)), tf.float32) for _ in range(10)]
    c = [tf.constant(random.uniform(0.5, 1.5, 7), tf.float32) for _ in range(4)]

    def f(x):
        x = tf.nn.gelu(x @ w[0], approximate=False)
        x = tf.nn.gelu(x @ w[1], approximate=True)
        x = tf.nn.elu(x @ w[2])
        x = tf.nn.leaky_relu(x @ w[3], alpha=0.3)
        x = tf.minimum(tf.maximum(x @ w[4], -1.0), 1.0)
        x = tf.tanh(x @ w[5]) * c[0] - c[1]
        x = c[2] - tf.minimum(x @ w[6], 0.75)
        x = tf.maximum(x, -0.5) / (1.5 + tf.sigmoid(x))
        x = (x @ w[7] + x) * (x - tf.nn.relu6(x @ w[8])) / c[3]
        return tf.nn.log_softmax(-x @ w[9])

    save("functions", function(f, 7), records(7))


def moves():
    """Operators that move values: concatenations, borders, transpositions, slices, other shapes."""
    w = [
        tf.constant(random.normal(0, 0.3, s), tf.float32)
        for s in ((3, 3, 2, 4), (3, 2, 6, 3), (20, 5), (3, 6))
    ]

    def f(x):
        y = tf.nn.conv2d(x, w[0], 1, "SAME")
        y = tf.concat([y, x], 3)
        y = tf.pad(y, [[0, 0], [1, 0], [0, 2], [0, 0]], constant_values=0.25)
        y = tf.nn.softmax(tf.nn.conv2d(y, w[1], [1, 2], "VALID"))
        y = tf.transpose(y, [0, 3, 1, 2])
        y = tf.concat([y[:, 1:], y[:, :1]], 1)
        y = tf.reshape(y[:, :, 0:4:2, :], [-1, 6, 5])
        y = tf.transpose(y, [0, 2, 1])
        y = tf.reduce_mean(tf.reshape(y, [-1, 5, 2, 3]), [1, 2])
        y = tf.expand_dims(y, 1) @ w[3]
        return tf.squeeze(y, 1)

    save("moves", function(f, 5, 9, 2), records(5, 9, 2))


def slopes():
    """PReLU with a slope for each channel; products of pixels with a matrix; the sum of a line."""
    start = tf.keras.Input((4, 5, 3), batch_size=1)
    y = layers.PReLU(shared_axes=[1, 2])(layers.Conv2D(4, 2)(start))
    y = layers.Dense(6, activation="relu")(y)
    y = layers.PReLU()(layers.Dense(2)(y))
    model = drawn(tf.keras.Model(start, layers.Dense(3)(layers.Flatten()(y))))
    save("slopes", converted(model), records(4, 5, 3))


def image():
    """An image for an image."""
    model = drawn(
        tf.keras.Sequential(
            [tf.keras.Input((6, 5, 2)), layers.Conv2D(3, 3, padding="same", activation="sigmoid")]
        )
    )
    save("image", converted(model), records(6, 5, 2))


def label():
    """The index of the largest score."""
    w = tf.constant(random.normal(0, 1, (6, 4)), tf.float32)
    save("label", function(lambda x: tf.argmax(x @ w, 1, output_type=tf.int32), 6), records(6))


def changed(name, model, change):
    """A model with something in it that is refused, or that the converter does not write."""
    made = flatbuffer_utils.convert_bytearray_to_object(bytearray(model))
    change(made)
    content = bytes(flatbuffer_utils.convert_object_to_bytearray(made))
    with open(os.path.join(HERE, name + ".tflite"), "wb") as file:
        file.write(content)
    print(f"{name}: {len(content)} bytes")
    return content


def refused():
    """Models that are refused, out of one of six operators in a row."""
    w = [
        tf.constant(random.normal(0, 0.3, s), tf.float32)
        for s in ((3, 3, 2, 4), (3, 3, 4, 4), (4, 3))
    ]

    def f(x, behind=tf.identity):
        x = tf.nn.relu(tf.nn.conv2d(x, w[0], 1, "SAME"))
        x = tf.nn.elu(x)
        x = behind(tf.nn.max_pool2d(x, 2, 2, "VALID"))
        x = tf.tanh(tf.nn.conv2d(x, w[1], 1, "SAME"))
        x = tf.reduce_mean(x, [1, 2])
        return x @ w[2]

    whole = function(lambda x: f(x), 6, 6, 2)

    def code(number, custom=None):
        made = schema.OperatorCodeT()
        made.builtinCode = number
        made.deprecatedBuiltinCode = min(number, 127)
        made.customCode = custom
        return made

    def use(made, i, kind):
        """Gives operator i another code; options of its own go."""
        operator = made.subgraphs[0].operators[i]
        made.operatorCodes.append(kind)
        operator.opcodeIndex = len(made.operatorCodes) - 1
        operator.builtinOptionsType, operator.builtinOptions = 0, None

    def operators(made):
        made.subgraphs[0].operators[0].builtinOptions.fusedActivationFunction = 5
        use(made, 1, code(32, "Quaternion"))
        use(made, 2, code(23))
        use(made, 3, code(205))
        use(made, 4, code(44))

    def options(made):
        made.subgraphs[0].operators[0].builtinOptions.strideW = 0
        use(made, 2, code(67))
        made.subgraphs[0].operators[-1].builtinOptions.weightsFormat = 1

    def subgraphs(made):
        made.subgraphs.append(made.subgraphs[0])

    def inputs(made):
        graph = made.subgraphs[0]
        graph.inputs = [
            graph.inputs[0],
            graph.operators[0].outputs[0],
            graph.operators[2].outputs[0],
        ]
        graph.tensors[graph.inputs[0]].shapeSignature = [-1, -1, 6, 2]
        graph.tensors[graph.inputs[2]].type = schema.TensorType.BOOL

    def records_of_inputs(made):
        graph = made.subgraphs[0]
        graph.inputs = [graph.inputs[0], graph.operators[0].outputs[0]]
        tensor = graph.tensors[graph.inputs[1]]
        tensor.shapeSignature = [4, *tensor.shape[1:]]

    def weights_of(made):
        graph = made.subgraphs[0]
        return graph.tensors[graph.operators[0].inputs[1]]

    def sparse(made):
        weights_of(made).sparsity = schema.SparsityParametersT()

    def four_bits(made):
        weights_of(made).type = schema.TensorType.INT4

    def open_size(made):
        made.subgraphs[0].tensors[made.subgraphs[0].inputs[0]].shapeSignature = [-1, -1, 6, 2]

    def version(made):
        made.version = 2

    def outputs(made):
        graph = made.subgraphs[0]
        graph.outputs = [graph.outputs[0], graph.operators[2].outputs[0]]
        made.signatureDefs = []
        graph.tensors[graph.outputs[1]].name = graph.tensors[graph.outputs[0]].name

    changes = (
        operators,
        options,
        subgraphs,
        inputs,
        records_of_inputs,
        sparse,
        four_bits,
        open_size,
        version,
        outputs,
    )
    for change in changes:
        changed("refused_" + change.__name__, whole, change)

    # Weights behind the tables, as files of more than 2 GB have them.
    behind = bytearray(whole)
    made = flatbuffer_utils.convert_bytearray_to_object(behind)
    graph = made.subgraphs[0]
    number = graph.tensors[graph.operators[0].inputs[1]].buffer
    data = bytes(bytearray(made.buffers[number].data))
    made.buffers[number].data, made.buffers[number].size = None, len(data)
    for offset in (1 << 20, None):
        made.buffers[number].offset = offset or len(content)
        content = bytes(flatbuffer_utils.convert_object_to_bytearray(made))
    save("behind", content + data, records(6, 6, 2))

    # Activations that the converter does not fuse.
    kinds = schema.ActivationFunctionType

    def fused(made):
        made.subgraphs[0].operators[0].builtinOptions.fusedActivationFunction = kinds.RELU_N1_TO_1
        softmax = schema.SoftmaxOptionsT()
        softmax.beta = 0.5
        use(made, 1, code(25))
        operator = made.subgraphs[0].operators[1]
        operator.builtinOptionsType, operator.builtinOptions = (
            schema.BuiltinOptions.SoftmaxOptions,
            softmax,
        )

    def fused_tanh(made):
        made.subgraphs[0].operators[2].builtinOptions.fusedActivationFunction = kinds.TANH

    save("fused", changed("fused", whole, fused), records(6, 6, 2))
    # The interpreter's own kernels leave it out: it is what an operator behind does.
    apart = function(lambda x: f(x, tf.tanh), 6, 6, 2)
    save("fused_tanh", changed("fused_tanh", whole, fused_tanh), records(6, 6, 2), apart)


def several():
    """An image and a vector in, an image, what it is made of and a vector out."""
    camera, state = tf.keras.Input((6, 5, 2), name="camera"), tf.keras.Input((4,), name="state")
    y = layers.Conv2D(3, 3, padding="same", activation="relu")(camera)
    mask = layers.Conv2D(2, 1, activation="sigmoid")(y)
    z = layers.Concatenate()(
        [layers.GlobalAveragePooling2D()(y), layers.Dense(5, activation="tanh")(state)]
    )
    action = layers.Dense(3, activation="softmax")(z)
    model = drawn(tf.keras.Model([camera, state], {"mask": mask, "action": action, "features": y}))
    save("several", converted(model), {"camera": records(6, 5, 2), "state": records(4)})


def splits():
    """Parts of values: SPLIT, SPLIT_V, UNPACK, SLICE."""
    w = [
        tf.constant(random.normal(0, 0.3, s), tf.float32)
        for s in ((3, 3, 2, 6), (2, 2, 4, 3), (18, 5))
    ]

    def f(x):
        a, b = tf.split(tf.nn.conv2d(x, w[0], 1, "SAME"), 2, 3)
        c, d = tf.split(tf.nn.relu(a) - b, [1, 5], 1)
        e = tf.unstack(tf.slice(d, [0, 1, 1, 0], [-1, 4, 4, 2]), axis=3)
        y = tf.concat(
            [e[1][..., None], e[0][..., None], tf.slice(b, [0, 2, 0, 1], [-1, 4, 4, 2])], 3
        )
        y = tf.nn.tanh(tf.nn.conv2d(y, w[1], 1, "VALID"))
        return tf.reshape(y[:, 1:, :2, :], [-1, 12]) @ w[2][:12] + tf.reshape(c, [-1, 18]) @ w[2]

    save("splits", function(f, 6, 6, 2), records(6, 6, 2))


def choice():
    """IF inside IF: both branches of a condition that the record decides, and one of a constant."""
    w = [tf.constant(random.normal(0, 0.5, (9, 9)), tf.float32) for _ in range(5)]

    def inner(x, y):
        return tf.cond(x[0, 0] < 0.0, lambda: tf.nn.relu(y @ w[2]), lambda: tf.tanh(y @ w[3]) * 2.0)

    def f(x):
        y = x @ w[0]
        y = tf.cond(tf.reduce_sum(y) > 0.0, lambda: inner(x, tf.nn.relu(y)), lambda: y @ w[1] - x)
        return tf.nn.softmax(y @ w[4])

    concrete = tf.function(f).get_concrete_function(tf.TensorSpec([1, 9], tf.float32))
    converter = tf.lite.TFLiteConverter.from_concrete_functions([concrete])
    save("choice", converter.convert(), records(9))


def wide():
    """Integers in a convolution of many outputs and long sums, for kernels that multiply bytes."""
    model = drawn(
        tf.keras.Sequential(
            [
                tf.keras.Input((8, 8, 3)),
                layers.Conv2D(20, 3, padding="same", activation="relu"),
                layers.Conv2D(32, 3, padding="same"),
                layers.GlobalAveragePooling2D(),
                layers.Dense(5),
            ]
        )
    )
    x = records(8, 8, 3)
    save("wide_int8", converted(model, x, "int8"), x)


def one_channel():
    """Dynamic range from one channel to one. The converter leaves so few weights as floats."""
    model = tf.keras.Sequential(
        [tf.keras.Input((3, 5, 1)), layers.Conv2D(1, 1, activation="relu"), layers.Flatten()]
    )

    def bytes_of(made):
        graph = made.subgraphs[0]
        (conv,) = [o for o in graph.operators if len(o.inputs) == 3]
        weights = graph.tensors[conv.inputs[1]]
        weights.type = schema.TensorType.INT8
        weights.quantization = schema.QuantizationParametersT()
        weights.quantization.scale, weights.quantization.zeroPoint = [0.012], [0]
        made.buffers[weights.buffer].data = [127]

    quantised = changed("one_channel_dynamic", converted(drawn(model)), bytes_of)
    save("one_channel_dynamic", quantised, records(3, 5, 1), whole=True)


for make in (
    cnn,
    residual,
    mobile,
    line,
    functions,
    moves,
    slopes,
    image,
    label,
    refused,
    several,
    splits,
    choice,
    wide,
    one_channel,
):
    make()
