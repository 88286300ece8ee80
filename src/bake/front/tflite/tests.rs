//! Compares the models of `tests/tflite` with TensorFlow Lite's interpreter on the same records.
//! Also tests models that the build refuses.

use super::{INSTEAD, OPS};
use crate::bake::Arithmetic;
use crate::bake::front::fixtures::{self, ModelFolder, Outcome, Outputs, outcome, outcome_in};
use crate::bake::model::ReadModel;
use crate::ir::network::{FinalActivation, InputOrder, Kind, Network, named};
use std::path::PathBuf;

/// Checks a model of the TensorFlow Lite test folder against its stored outputs.
fn check(
    name: &str,
    shape: &str,
    ops: &str,
    meaning: (Kind, FinalActivation),
    how: Outputs,
    bound: f64,
) -> Network {
    let path = fixtures::folder("tflite").join(format!("{name}.tflite"));
    fixtures::check(&path, (shape, ops), meaning, how, bound)
}

const CLASSES: (Kind, FinalActivation) = (Kind::Classes, FinalActivation::Softmax);

const BINARY: (Kind, FinalActivation) = (Kind::Binary, FinalActivation::Sigmoid);

const CNN: (&str, &str) = (
    "3×12×10-6×12×10-8×3×3-40×3×3-7 relu,clip,relu",
    "convolution relu max_pool convolution clip convolution relu affine",
);

const RESIDUAL: (&str, &str) = (
    "3×8×8-8×8×8-8×8×8-8×8×8-12×4×4-12×4×4-12×4×4-10 relu",
    "convolution relu convolution relu convolution add relu convolution relu convolution \
     convolution add relu average_pool affine",
);

const MOBILE: (&str, &str) = (
    "3×16×16-8×8×8-16×8×8-4-16-16×4×4-12×4×4-5 hard_swish,clip,relu,clip,hard_swish",
    "convolution hard_swish convolution clip average_pool affine relu affine clip scale multiply \
     convolution hard_swish convolution hard_swish average_pool affine",
);

#[test]
fn networks_give_what_their_models_give() {
    use Outputs::*;
    let list = [
        ("cnn", CNN, CLASSES, Activated),
        ("cnn_f16", CNN, CLASSES, Activated),
        ("residual", RESIDUAL, CLASSES, Scores),
        ("mobile", MOBILE, CLASSES, Scores),
        (
            "line",
            (
                "4×1×20-8×1×20-6×1×8-1 relu,tanh",
                "convolution relu max_pool convolution tanh max_pool affine",
            ),
            BINARY,
            Activated,
        ),
        (
            "functions",
            (
                "7-7-7-7-7-7-7-7-7-7-7 gelu,gelu_tanh,elu,leaky_relu,clip,tanh,clip,sigmoid,clip",
                "affine gelu affine gelu_tanh affine elu affine leaky_relu affine clip affine \
                 tanh affine clip scale clip sigmoid scale divide affine add affine clip subtract \
                 multiply affine",
            ),
            CLASSES,
            Logarithms,
        ),
        (
            "moves",
            (
                "2×5×9-4×5×9-3×4×5-6",
                "convolution concat pad convolution softmax slice slice concat resample reshape \
                 transpose reshape average_pool affine",
            ),
            CLASSES,
            Scores,
        ),
        (
            "slopes",
            (
                "3×4×5-4×3×4-6×3×4-2×3×4-3 relu",
                "convolution prelu convolution relu convolution prelu affine",
            ),
            CLASSES,
            Scores,
        ),
        (
            "image",
            ("2×6×5-3×6×5 sigmoid", "convolution sigmoid transpose"),
            (Kind::Values, FinalActivation::None),
            Scores,
        ),
        ("label", ("6-4", "affine"), CLASSES, Class),
        (
            "behind",
            (
                "2×6×6-4×6×6-4×3×3-3 relu,elu,tanh",
                "convolution relu elu max_pool convolution tanh average_pool affine",
            ),
            CLASSES,
            Scores,
        ),
        (
            "fused",
            (
                "2×6×6-4×6×6-4×3×3-3 clip,tanh",
                "convolution clip scale softmax max_pool convolution tanh average_pool affine",
            ),
            CLASSES,
            Scores,
        ),
        (
            "fused_tanh",
            (
                "2×6×6-4×6×6-4×3×3-3 relu,elu,tanh",
                "convolution relu elu max_pool tanh convolution tanh average_pool affine",
            ),
            CLASSES,
            Scores,
        ),
    ];
    let checked = |(name, (shape, ops), meaning, how): (&str, (&str, &str), _, _)| {
        let network = check(name, shape, ops, meaning, how, 1e-4);
        assert!(network.labels.is_empty() && network.name == name);
        let image = !matches!(name, "functions" | "label");
        assert_eq!(network.order == InputOrder::Hwc, image, "{name}");
    };
    let wrong: Vec<&str> = list
        .into_iter()
        .filter_map(|l| std::panic::catch_unwind(|| checked(l)).err().map(|_| l.0))
        .collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// With several inputs, a record has a part for each input, and its scores a part for each output.
/// The parts have the names in the model's signature.
#[test]
fn several_inputs_and_outputs_are_parts_of_one() {
    let network = check(
        "several",
        "64-3×6×5-2×6×5-5-3 relu,sigmoid,tanh",
        "slice slice reshape transpose convolution relu convolution sigmoid average_pool affine \
         tanh concat affine softmax transpose transpose reshape reshape concat",
        (Kind::Values, FinalActivation::None),
        Outputs::Scores,
        1e-4,
    );
    assert_eq!((named(&network.inputs), named(&network.outputs)), {
        (
            "state 4, camera 6×5×2".into(),
            "action 3, mask 6×5×2, features 6×5×3".into(),
        )
    });
    assert_eq!(network.order, InputOrder::Chw);
    let network = check(
        "splits",
        "2×6×6-6×6×6-5-3×3×3-5 relu,tanh",
        "convolution slice slice relu subtract slice slice affine slice slice slice slice slice \
         slice slice slice transpose reshape reshape reshape concat reshape transpose convolution \
         tanh slice slice affine add",
        CLASSES,
        Outputs::Scores,
        1e-4,
    );
    assert!(network.inputs.is_empty() && network.outputs.is_empty());
}

/// A condition that is computed from the record selects between the outputs of two subgraphs.
#[test]
fn both_branches_are_computed() {
    check(
        "choice",
        "9-9-9-9-9-9 above,relu,above,tanh",
        "affine reshape average_pool scale above relu slice scale above affine affine tanh scale \
         scale reshape multiply reshape multiply add affine subtract scale multiply reshape \
         multiply add affine",
        CLASSES,
        Outputs::Activated,
        1e-4,
    );
}

/// The interpreter rounds activations to integers. The scores must agree within that rounding. The
/// classes must agree if the two best scores are farther apart.
#[test]
fn quantised_models_are_computed_in_floats() {
    use Outputs::*;
    let list = [
        ("cnn_dynamic", CNN, CLASSES, Activated, 0.004, false),
        // Some values leave the range of the 16-bit integers, and are limited to it.
        (
            "cnn_int16",
            (
                "3×12×10-6×12×10-8×3×3-40×3×3-7 clip",
                "clip convolution clip max_pool convolution clip convolution clip affine clip",
            ),
            CLASSES,
            Activated,
            0.0001,
            false,
        ),
        ("cnn_int8", CNN, CLASSES, Activated, 0.015, false),
        ("cnn_int8_ends", CNN, CLASSES, Activated, 0.015, true),
        ("cnn_uint8_ends", CNN, CLASSES, Activated, 0.015, true),
        ("residual_int8", RESIDUAL, CLASSES, Scores, 0.04, false),
        ("mobile_int8_ends", MOBILE, CLASSES, Scores, 0.01, true),
        (
            "implied",
            (
                "4×1×20-8×1×20-6×1×8-1 clip,tanh",
                "convolution clip max_pool convolution tanh max_pool affine",
            ),
            BINARY,
            Activated,
            0.01,
            false,
        ),
    ];
    let checked =
        |(name, (shape, ops), meaning, how, bound, ends): (&str, (&str, &str), _, _, f64, bool)| {
            let network = check(name, shape, ops, meaning, how, bound);
            let path = fixtures::folder("tflite").join(format!("{name}.tflite"));
            let Outcome { read, mistakes, .. } = outcome_in(Arithmetic::Float, &path);
            let tensors = read.unwrap().tensors;
            let rows = |what: &str| fixtures::rows(&path.with_extension(what));
            let mut compared = 0;
            for (x, expected) in rows("inputs.npy").iter().zip(rows("outputs.npy")) {
                let mut sorted = expected.clone();
                sorted.sort_by(|a, b| b.total_cmp(a));
                if sorted.len() > 1 && sorted[0] - sorted[1] > 2.0 * bound {
                    let largest = expected.iter().position(|&v| v == sorted[0]).unwrap();
                    assert_eq!(
                        network.class(&network.scores(&tensors, x)),
                        Some(largest as u32),
                        "{name}"
                    );
                    compared += 1;
                }
            }
            assert!(compared > 2 || name == "implied", "{name}: {compared}");
            let notes = mistakes.notes;
            assert_eq!(notes.len(), 1 + usize::from(ends), "{notes:?}");
            assert!(notes[0].contains("computed as the real numbers that they stand for, in f32"));
            assert!(
                !ends || notes[1].contains("{\"input\": {\"scale\": 0.0"),
                "{notes:?}"
            );
        };
    let wrong: Vec<&str> = list
        .into_iter()
        .filter_map(|l| std::panic::catch_unwind(|| checked(l)).err().map(|_| l.0))
        .collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    let path = fixtures::folder("tflite").join("cnn_f16.tflite");
    assert!(
        outcome(&path).mistakes.notes.is_empty(),
        "halves are no integers"
    );
}

/// Layers of dynamic range round their operands as the interpreter does. The bound is far below a
/// step of these integers.
#[test]
fn models_of_dynamic_range_give_the_interpreters_scores() {
    let path = fixtures::folder("tflite").join("cnn_dynamic.tflite");
    let Outcome { read, mistakes, .. } = outcome(&path);
    let ReadModel {
        network, tensors, ..
    } = read.unwrap();
    assert!(mistakes.notes[0].contains("rounded to 8-bit integers in front of 2 layers"));
    let rows = |what: &str| fixtures::rows(&path.with_extension(what));
    // Rounding changes scores, and checks allow for a part of that. Floats get no such bound.
    let raw: Vec<f32> = rows("inputs.npy")[0].iter().map(|&x| x as f32).collect();
    assert!((2.0..1000.0).contains(&network.slack(&tensors, &raw)));
    let ReadModel {
        network: floats, ..
    } = outcome_in(Arithmetic::Float, &path).read.unwrap();
    assert_eq!(floats.slack(&tensors, &raw), 1.0);
    for (x, mut expected) in rows("inputs.npy").iter().zip(rows("outputs.npy")) {
        let mut found = network.scores(&tensors, x);
        network.output.activation.apply(&mut found);
        for (f, e) in found.iter().zip(&mut expected) {
            assert!((f - *e).abs() < 1e-6, "{found:?}");
        }
    }
}

/// A convolution of 1 × 1 from one channel to one has a scale for each record, where others have
/// one for each pixel.
#[test]
fn one_channel_of_dynamic_range_has_one_scale() {
    let path = fixtures::folder("tflite").join("one_channel_dynamic.tflite");
    let ReadModel {
        network, tensors, ..
    } = outcome(&path).read.unwrap();
    let rows = |what: &str| fixtures::rows(&path.with_extension(what));
    for (x, expected) in rows("inputs.npy").iter().zip(rows("outputs.npy")) {
        let found = network.scores(&tensors, x);
        assert_eq!(found.len(), expected.len());
        for (f, e) in found.iter().zip(&expected) {
            assert!((f - e).abs() < 1e-6, "{found:?} {expected:?}");
        }
    }
}

/// Models of 8-bit integers give exactly the integers of TensorFlow Lite's interpreter.
#[test]
fn models_of_integers_give_the_interpreters_integers() {
    // The softmax is computed inside the network, because the model rounds its result.
    let inside = (Kind::Classes, FinalActivation::None);
    let list = [
        ("cnn_int8", inside),
        ("cnn_int8_ends", inside),
        ("cnn_uint8_ends", inside),
        ("residual_int8", CLASSES),
        ("mobile_int8_ends", CLASSES),
        ("implied", (Kind::Binary, FinalActivation::None)),
        ("wide_int8", CLASSES),
    ];
    for (name, meaning) in list {
        let path = fixtures::folder("tflite").join(format!("{name}.tflite"));
        let ReadModel {
            network, tensors, ..
        } = fixtures::read(&path).unwrap();
        let output = &network.output;
        assert_eq!((output.kind, output.activation), meaning, "{name}");
        let rows = |what: &str| fixtures::rows(&path.with_extension(what));
        for (x, expected) in rows("inputs.npy").iter().zip(rows("integers.npy")) {
            let found = network.scores(&tensors, x);
            assert_eq!(found.len(), expected.len(), "{name}");
            for (f, e) in found.iter().zip(&expected) {
                assert!(
                    (f - e).abs() < 1e-6 * e.abs().max(1.0),
                    "{name}: {found:?} {expected:?}"
                );
            }
        }
    }
}

/// The build's note suggests keys for the JSON beside the model. With these keys, a record consists
/// of the integers of the model's input.
#[test]
fn a_json_beside_the_model_makes_records_of_integers() {
    let path = fixtures::folder("tflite").join("cnn_uint8_ends.tflite");
    let Outcome { read, mistakes, .. } = outcome(&path);
    let ReadModel {
        network: real,
        tensors,
        ..
    } = read.unwrap();
    let note = &mistakes.notes[1];
    let json = &note[note.find('{').unwrap()..=note.rfind('}').unwrap()];
    let f = ModelFolder::new("tflite");
    f.copy("cnn_uint8_ends").put("net.json", json);
    let ReadModel {
        network: whole,
        tensors: scaled,
        ..
    } = f.read().unwrap();
    let files = f.files();
    assert!(
        files.iter().any(|f| f.ends_with("net.json")),
        "it is watched"
    );
    let value: serde_json::Value = serde_json::from_str(json).unwrap();
    let number = |key: &str| value["input"][key].as_f64().unwrap();
    for x in fixtures::rows(&path.with_extension("inputs.npy")) {
        let integers: Vec<f64> = x
            .iter()
            .map(|v| ((v - number("offset")) / number("scale")).round())
            .collect();
        assert!(integers.iter().all(|i| (0.0..=255.0).contains(i)));
        for (a, b) in real
            .scores(&tensors, &x)
            .iter()
            .zip(whole.scores(&scaled, &integers))
        {
            assert!((a - b).abs() < 1e-3, "{a} {b}");
        }
    }
    // The JSON may state that records come channel by channel.
    f.copy("cnn")
        .put("net.json", r#"{"input": {"order": "chw"}}"#);
    let ReadModel { network, .. } = f.read().unwrap();
    assert_eq!(network.order, InputOrder::Chw);
}

#[test]
fn all_that_is_not_supported_is_named_at_once() {
    let refused = |name: &str, expected: &[&str]| {
        let f = ModelFolder::new("tflite");
        let expected: Vec<String> = expected
            .iter()
            .map(|e| format!("net.tflite: {e}"))
            .collect();
        assert_eq!(f.copy(&format!("refused_{name}")).mistakes(), expected);
    };
    refused(
        "operators",
        &[
            "operator 0 (CONV_2D), output Relu: fused_activation_function: expected NONE, RELU, \
             RELU_N1_TO_1, RELU6 or TANH, found SIGN_BIT",
            "operator 1 (custom Quaternion), output Elu: it is not supported: convert the model \
             with builtin operators only",
            "operator 2 (RESIZE_BILINEAR), output MaxPool2d: expected sizes, found nothing",
            "operator 3 (operator code 205), output Conv2D_11: it is not supported: \
             docs/TFLITE.md lists what is",
            "operator 4 (UNIDIRECTIONAL_SEQUENCE_LSTM), output Tanh: it is not supported: use \
             convolutions over a window of time instead",
        ],
    );
    refused(
        "options",
        &[
            "operator 0 (CONV_2D), output Relu: stride_w: expected a number from 1 to 1048576, \
             found 0",
            "operator 2 (TRANSPOSE_CONV), output MaxPool2d: expected sizes that is a constant, \
             found a value computed from the record",
            // This operator comes behind both operators above, and its mistake is reported too.
            "operator 6 (FULLY_CONNECTED), output Identity_1: weights_format: expected DEFAULT, \
             found SHUFFLED4x16INT8",
        ],
    );
    refused(
        "subgraphs",
        &[
            "expected one subgraph, or branches of IF behind it, found 2: convert a model of one \
             function (one signature), without loops",
        ],
    );
    refused(
        "inputs",
        &[
            "input MaxPool2d: expected numbers, found BOOL",
            "input x: expected fixed sizes above 0, but for the number of records, found [?, ?, \
             6, 2]: set all sizes by MORTONNET_SIZES, in this form: \"x:1,1,6,2\"",
        ],
    );
    refused(
        "records_of_inputs",
        &[
            "expected inputs with the same number of records, found x [N, 6, 6, 2] and Relu [4, 6, \
             6, 4]: a record has a part of every input; set all sizes for one record by \
             MORTONNET_SIZES",
        ],
    );
    refused(
        "sparse",
        &["Conv2D: damaged: the description of its sparsity does not fit its sizes"],
    );
    refused(
        "four_bits",
        &[
            "operator 0 (CONV_2D), output Relu: input Conv2D: numbers of type INT4 are not \
             supported",
        ],
    );
    refused(
        "open_size",
        &[
            "input x: expected fixed sizes above 0, but for the number of records, found [?, ?, \
             6, 2]: set all sizes by MORTONNET_SIZES, in this form: \"x:1,1,6,2\"",
        ],
    );
    refused("version", &["expected version 3 of the schema, found 2"]);
    refused(
        "outputs",
        &["two outputs are called Identity_1: their values could not be told apart"],
    );
    let f = ModelFolder::new("tflite");
    f.put("net.tflite", "no model at all");
    assert_eq!(
        f.mistakes(),
        ["net.tflite: not a TensorFlow Lite model: expected TFL3 from byte 4 on, found odel"]
    );
    f.put("net.tflite", "");
    assert!(
        f.mistakes()[0].ends_with(", found an empty file; export the model as ONNX"),
        "{:?}",
        f.mistakes()
    );
    f.put("net.tflite", [8, 0, 0]);
    assert_eq!(
        f.mistakes(),
        ["net.tflite: cut off or damaged: data is missing at byte 4, the file has 3 bytes"]
    );
}

/// Reads prefixes of every model, and models with one byte changed. They are read or refused, and
/// never cause a panic.
#[test]
fn no_bytes_are_too_bad() {
    let f = ModelFolder::new("tflite");
    let (mut read, mut refused) = (0, 0);
    for (name, step) in [
        ("label", 1),
        ("slopes", 29),
        ("line", 47),
        ("cnn_int8_ends", 211),
        ("behind", 7),
    ] {
        let bytes =
            std::fs::read(fixtures::folder("tflite").join(format!("{name}.tflite"))).unwrap();
        for i in (0..bytes.len()).step_by(step) {
            let mut changed = bytes.clone();
            changed[i] ^= 1 << (i % 8);
            read += usize::from(f.put("net.tflite", &changed).read().is_ok());
            refused += usize::from(f.put("net.tflite", &bytes[..i]).read().is_err());
        }
    }
    assert!(read > 200 && refused > 1000, "{read} {refused}");
}

/// docs/TFLITE.md names every operator that is supported or for which the build gives advice.
#[test]
fn the_document_names_every_operator() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("docs/TFLITE.md");
    let text = std::fs::read_to_string(path).unwrap();
    for name in OPS
        .iter()
        .map(|(_, name, _)| *name)
        .chain(INSTEAD.iter().map(|(_, name, _)| *name))
    {
        assert!(
            text.contains(&format!("`{name}`")),
            "docs/TFLITE.md does not name {name}"
        );
    }
}

/// Networks with the shapes of MLPerf Tiny, which `tests/zoo/make.py` writes in both formats. The
/// build compares their scores with the scores stored beside each file.
#[test]
#[ignore = "long: tests/long.py"]
fn networks_of_the_zoo_are_the_same_in_either_format() {
    let folder = crate::models::needs("zoo");
    for name in ["autoencoder", "ds-cnn", "resnet-8", "mobilenet-v1-0.25"] {
        let [onnx, lite] = ["onnx", "tflite"].map(|format| {
            let ReadModel {
                network, golden, ..
            } = fixtures::read(&folder.join(format!("{name}.{format}")))
                .unwrap_or_else(|e| panic!("{e:?}"));
            assert!(golden.given && golden.count > 2, "{name}.{format}");
            assert_eq!(network.order, InputOrder::Chw, "{name}.{format}");
            let ops: Vec<&str> = network.graph.nodes.iter().map(|n| n.op.name()).collect();
            (network.shape(), ops.join(" "))
        });
        assert_eq!(onnx, lite, "{name}");
    }
}
