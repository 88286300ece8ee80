//! Models of `tests/onnx` against what ONNX Runtime (or scikit-learn) makes of the same records, and what is refused.

use super::file::{Model, TensorRest};
use super::{OPS, constant, lower};
use crate::bake::matrix::Files;
use crate::bake::model::Read;
use crate::bake::{Mistakes, Settings, front, passes};
use crate::ir::network::{FinalActivation, InputOrder, Kind, Network, Precision, Transform};
use crate::ir::npy;
use rten_onnx::onnx::{DataType, TensorProto};
use rten_onnx::protobuf::{DecodeMessage, ValueReader};
use std::path::{Path, PathBuf};

/// The folder of the models.
fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/onnx")
}

/// A model as the build reads it, and the files that it read.
fn read(path: &Path) -> Result<(Read, Vec<PathBuf>), Vec<String>> {
    let settings = Settings {
        root: folder(),
        model: path.into(),
        weights: Precision::F32,
        plan: "host".into(),
        lab: true,
    };
    let (mut files, mut mistakes) = (Vec::new(), Mistakes::default());
    match front::read(&settings, &mut files, &mut mistakes) {
        Some(read) if mistakes.0.is_empty() => Ok((read, files)),
        _ => Err(mistakes.0),
    }
}

/// The rows of an .npy.
fn rows(name: &str) -> Vec<Vec<f64>> {
    let bytes = std::fs::read(folder().join(name)).unwrap();
    let header = npy::parse_header(&bytes).unwrap().unwrap();
    let body = bytes[header.data_offset..].chunks_exact(header.dtype.size());
    let values: Vec<f64> = body.map(|b| header.decode(b)).collect();
    values.chunks(header.shape[1]).map(<[f64]>::to_vec).collect()
}

/// How the outputs of a model follow from the scores of the network that it became.
#[derive(Clone, Copy, PartialEq)]
enum Outputs {
    /// They are its scores.
    Scores,
    /// They are its scores behind the final function.
    Activated,
    /// The logarithms of those.
    Logarithms,
    /// 1 − p and p.
    Pair,
}

fn outputs(network: &Network, mut scores: Vec<f64>, how: Outputs) -> Vec<f64> {
    if how != Outputs::Scores {
        network.output.activation.apply(&mut scores);
    }
    match how {
        Outputs::Logarithms => scores.iter().map(|p| p.ln()).collect(),
        Outputs::Pair => vec![1.0 - scores[0], scores[0]],
        _ => scores,
    }
}

/// Checks a model: its shape in words, the operations of its graph, what its output means, its scores.
fn check(name: &str, shape: &str, ops: &str, (kind, last): (Kind, FinalActivation), how: Outputs) -> Network {
    let ((network, tensors, golden, _), _) = read(&folder().join(format!("{name}.onnx"))).unwrap();
    assert_eq!((network.output.kind, network.output.activation), (kind, last), "{name}");
    let (inputs, expected) = (rows(&format!("{name}.inputs.npy")), rows(&format!("{name}.outputs.npy")));
    assert!(inputs.len() >= 4 && inputs.len() == expected.len());
    for (record, (x, expected)) in inputs.iter().zip(&expected).enumerate() {
        let found = outputs(&network, network.scores(&tensors, x), how);
        assert_eq!(found.len(), expected.len(), "{name}");
        for (f, e) in found.iter().zip(expected) {
            assert!(
                (f - e).abs() <= 1e-4 * e.abs().max(1.0),
                "{name}, record {record}: {found:?} {expected:?}"
            );
        }
    }
    assert!(golden.count > 0 && golden.scores.iter().any(|s| *s != golden.scores[0]));
    let found: Vec<&str> = network.graph.nodes.iter().map(|n| n.op.name()).collect();
    assert_eq!((network.shape().as_str(), found.join(" ").as_str()), (shape, ops), "{name}");
    network
}

const CLASSES: (Kind, FinalActivation) = (Kind::Classes, FinalActivation::Softmax);

const BINARY: (Kind, FinalActivation) = (Kind::Binary, FinalActivation::Sigmoid);

#[test]
fn networks_give_what_their_models_give() {
    use Outputs::*;
    let list = [
        ("mlp", "6-8-5 relu", "affine relu affine", CLASSES, Logarithms),
        (
            "cnn",
            "3×12×10-6×12×10-8×3×1-7 relu",
            "convolution relu max_pool convolution relu affine",
            CLASSES,
            Activated,
        ),
        (
            "residual",
            "3×8×8-8×8×8-8×8×8-8×8×8-12×4×4-12×4×4-12×4×4-10 relu",
            "convolution relu convolution relu convolution add relu convolution relu convolution convolution add relu \
             average_pool affine",
            CLASSES,
            Scores,
        ),
        (
            "mobile",
            "3×16×16-8×8×8-8×8×8-4-8-16×8×8-5 hard_swish,clip,relu,hard_sigmoid,hard_swish",
            "convolution hard_swish convolution clip average_pool affine relu affine hard_sigmoid multiply convolution \
             hard_swish average_pool affine",
            CLASSES,
            Scores,
        ),
        (
            "line",
            "4×1×20-8×1×20-8×1×5-1 leaky_relu,tanh",
            "convolution leaky_relu average_pool convolution tanh max_pool affine",
            BINARY,
            Activated,
        ),
        ("pixels_last", "3×9×7-4×5×4-6 relu", "convolution relu average_pool affine", CLASSES, Activated),
        (
            "shuffle",
            "6×5×5-12×5×5-6×5×5-12×3×3-3 relu,elu",
            "convolution relu reshape transpose reshape convolution elu convolution affine",
            CLASSES,
            Scores,
        ),
        (
            "borders",
            "2×9×9-4×8×8-4×7×8-3×3×4-4 relu,elu",
            "convolution convolution relu max_pool average_pool concat prelu reshape pad reshape scale convolution elu \
             affine",
            CLASSES,
            Scores,
        ),
        (
            "functions",
            "5-7-7-7-7-7-7-7-7-7-3 gelu,elu,hard_swish,leaky_relu,tanh,hard_sigmoid,gelu_tanh,sigmoid,clip",
            "affine gelu affine elu affine elu affine hard_swish affine leaky_relu affine tanh affine hard_sigmoid \
             affine gelu_tanh affine scale multiply scale sigmoid divide subtract scale prelu clip clip affine",
            CLASSES,
            Scores,
        ),
        (
            "sequence",
            "6×1×4-5×1×6-3×1×6-4 relu",
            "transpose convolution relu convolution softmax transpose reshape average_pool affine",
            CLASSES,
            Scores,
        ),
        ("quantised", "1×6×6-4×4×4-3 relu", "convolution relu affine", CLASSES, Scores),
        ("halves", "3-4-2 tanh", "affine tanh affine", CLASSES, Scores),
        ("external", "4-6-3 relu", "affine relu affine", CLASSES, Scores),
        ("old", "2×4×4-4×4×4-5 clip", "convolution clip affine", CLASSES, Activated),
        ("image", "2×6×6-3×6×6", "convolution", (Kind::Values, FinalActivation::Sigmoid), Activated),
        ("bytes", "3×4×4-4×2×2-2 relu", "convolution relu affine", CLASSES, Scores),
    ];
    for (name, shape, ops, meaning, how) in list {
        let network = check(name, shape, ops, meaning, how);
        assert!(network.labels.is_empty() && network.name == name);
        assert_eq!(network.order == InputOrder::Hwc, name == "pixels_last", "{name}");
        assert_eq!(network.folded, matches!(name, "borders" | "bytes"), "{name}");
    }
}

#[test]
fn scikit_learns_pipelines_become_networks_with_labels() {
    use Outputs::*;
    let names: &[&str] = &["setosa", "versicolor", "virginica"];
    let two: &[&str] = &["other", "virginica"];
    let numbers = (Kind::Values, FinalActivation::None);
    let many = (Kind::Multilabel, FinalActivation::Sigmoid);
    let rest = (Kind::Classes, FinalActivation::None);
    let list: [(&str, &str, &str, _, _, &[&str]); 11] = [
        ("sk_mlp", "4-8-3 relu", "affine relu affine", CLASSES, Activated, names),
        (
            "sk_mlp_tensor",
            "4-6-5-3 relu",
            "affine relu affine relu affine",
            CLASSES,
            Activated,
            &["10", "11", "12"],
        ),
        ("sk_mlp_two", "4-6-1 tanh", "affine tanh affine", BINARY, Pair, two),
        ("sk_pca", "4-2-5-3 sigmoid", "affine affine sigmoid affine", CLASSES, Activated, &[]),
        ("sk_columns", "4-2-2-5-3 relu", "affine affine concat affine relu affine", CLASSES, Activated, &[]),
        ("sk_many", "4-5-3 relu", "affine relu affine", many, Activated, &[]),
        ("sk_number", "4-5-1 relu", "affine relu affine", numbers, Scores, &[]),
        ("sk_line", "4-1", "affine", numbers, Scores, &[]),
        ("sk_logistic", "4-3", "affine", CLASSES, Activated, names),
        ("sk_logistic_two", "4-1", "affine", BINARY, Pair, two),
        (
            "sk_rest",
            "4-1-1-1 sigmoid",
            "affine sigmoid affine sigmoid affine sigmoid concat reshape average_pool scale reshape divide",
            rest,
            Scores,
            &[],
        ),
    ];
    for (name, shape, ops, meaning, how, labels) in list {
        let network = check(name, shape, ops, meaning, how);
        assert_eq!(network.labels.iter().map(|l| &**l).collect::<Vec<_>>(), labels, "{name}");
    }
}

/// Where the numbers of the package's node tests are: the folder `onnx/backend/test/data/node` of its release 1.19.1, the
/// last but a few that has them.
const NODES: &str = "MORTONNET_ONNX_NODES";

/// Refused operations that are listed too.
const REFUSED: [&str; 8] = ["ConvTranspose", "GRU", "If", "LSTM", "Loop", "RNN", "Resize", "Scan"];

/// The operation of a node test, where it is a listed one; `None` for others, and for what is made of several nodes.
fn tested(model: &Model) -> Option<String> {
    let graph = model.model.graph.as_ref()?;
    let [node] = &graph.node[..] else { return None };
    let op = node.op_type.clone()?;
    let listed = OPS.iter().any(|o| o.0 == op) || REFUSED.contains(&op.as_str());
    let training = super::set(node).contains("training");
    (listed && !training).then_some(op)
}

/// A tensor of a file of a node test.
fn tensor(path: &Path) -> Option<TensorProto> {
    TensorProto::decode(ValueReader::from_buf(std::fs::read(path).ok()?)).ok()
}

/// Runs a node test: every input but the first is an initialiser. What it says is a line of the manifest.
fn node_test(folder: &Path, mut model: Model) -> String {
    let data = folder.join("test_data_set_0");
    let graph = model.model.graph.as_mut().unwrap();
    let first = tensor(&data.join("input_0.pb"));
    for (i, input) in graph.input.iter().enumerate().skip(1) {
        if let Some(mut tensor) = tensor(&data.join(format!("input_{i}.pb"))) {
            tensor.name = input.name.clone();
            graph.initializer.push(tensor);
            let texts = std::fs::read(data.join(format!("input_{i}.pb"))).unwrap();
            let rest = TensorRest::decode(ValueReader::from_buf(texts)).unwrap();
            model.rest.graph.initializers.push(rest);
        }
    }
    let (mut files, mut mistakes) = (Vec::new(), Mistakes::default());
    let mut files = Files { root: folder, read: &mut files };
    let lowered = lower(&model, "model.onnx", folder, true, &mut files, &mut mistakes);
    let Some((draft, order, tail)) = lowered else {
        assert!(!mistakes.0.is_empty());
        return format!("refused: {}", mistakes.0.join("; "));
    };
    let (first, output) = (first.unwrap(), tensor(&data.join("output_0.pb")).unwrap());
    let numbers = |tensor: &TensorProto| {
        let read = constant::constant(tensor, &TensorRest::default(), None).unwrap();
        (read.dims.first().copied().unwrap_or(1), read.numbers().unwrap())
    };
    let ((records, input), (rows, expected)) = (numbers(&first), numbers(&output));
    if records != rows {
        return format!("FAILS: {records} records, expected {rows}");
    }
    let (passed, transform) =
        passes::run(draft.clone(), Transform::Identity, order).unwrap_or_else(|e| panic!("{e}"));
    for (draft, transform) in [(draft, Transform::Identity), (passed, transform)] {
        let input_shape = draft.shape(draft.graph.inputs[0]);
        let tensors = draft.rounded();
        for record in 0..records {
            let raw = &input[record * input_shape.len()..][..input_shape.len()];
            let mut x = vec![0.0; raw.len()];
            for (i, &v) in raw.iter().enumerate() {
                x[order.element(input_shape, i)] = transform.apply(i, v);
            }
            let mut found = draft.graph.evaluate(&tensors, x).swap_remove(draft.graph.outputs[0]);
            if let Some(last) = tail.last {
                last.apply(&mut found);
            }
            match tail.output {
                Some(o) if o.kind == Kind::Classes => {
                    found = vec![f64::from(crate::ir::network::argmax(&found))];
                }
                Some(o) if matches!(o.kind, Kind::Multilabel | Kind::Binary) => {
                    found.iter_mut().for_each(|p| *p = f64::from(u8::from(*p > o.threshold)));
                }
                _ => {}
            }
            let expected = &expected[record * (expected.len() / rows)..][..expected.len() / rows];
            // Values are not rounded to the halves that a model may ask for.
            let bound = match output.data_type {
                Some(DataType::FLOAT16) => 2f64.powi(-11),
                Some(DataType::BFLOAT16) => 2f64.powi(-8),
                _ => 1e-4,
            };
            let close = |(f, e): (&f64, &f64)| {
                (f - e).abs() <= bound * e.abs().max(1.0) || f == e || (f.is_nan() && e.is_nan())
            };
            if found.len() != expected.len() || !found.iter().zip(expected).all(close) {
                return format!("FAILS: record {record}: {found:?}, expected {expected:?}");
            }
        }
    }
    "passes".into()
}

/// The node tests of the ONNX package, as `tests/onnx/nodes.txt` lists them.
#[test]
#[ignore = "needs the folder onnx/backend/test/data/node of onnx 1.19.1 in MORTONNET_ONNX_NODES"]
fn node_tests_of_the_package_are_as_listed() {
    let nodes = PathBuf::from(std::env::var_os(NODES).unwrap_or_else(|| panic!("{NODES} is not set")));
    let mut folders: Vec<PathBuf> = std::fs::read_dir(nodes).unwrap().flatten().map(|e| e.path()).collect();
    folders.sort();
    let mut lines = Vec::new();
    for folder in folders {
        let Ok(bytes) = std::fs::read(folder.join("model.onnx")) else { continue };
        let Ok(model) = Model::parse(&bytes) else { continue };
        let name = folder.file_name().unwrap().to_str().unwrap().to_string();
        if let (Some(op), false) = (tested(&model), name.contains("_expanded")) {
            lines.push(format!("{op} {name} {}", node_test(&folder, model)));
        }
    }
    lines.sort();
    let wrong: Vec<&String> = lines.iter().filter(|l| l.contains(" FAILS: ")).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(lines.len() > 500, "{}", lines.len());
    agrees(&folder().join("nodes.txt"), &(lines.join("\n") + "\n"));
}

/// Whether a file is as it should be; `MORTONNET_BLESS=1` writes it anew.
fn agrees(path: &Path, expected: &str) {
    if std::env::var_os("MORTONNET_BLESS").is_some() {
        std::fs::write(path, expected).unwrap();
    }
    let found = std::fs::read_to_string(path).unwrap_or_default();
    let differs = found.lines().zip(expected.lines()).find(|(f, e)| f != e);
    let place = path.display();
    assert!(
        found == expected,
        "{place} differs: {differs:?}; MORTONNET_BLESS=1 writes it anew, then read the change"
    );
}
