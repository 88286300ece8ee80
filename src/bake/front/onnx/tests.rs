//! Compares the models of `tests/onnx` with ONNX Runtime or scikit-learn on the same records. Also
//! tests models that the build refuses.

use super::OPS;
use crate::bake::front::fixtures::{self, ModelFolder, Outputs, read};
use crate::bake::front::functions;
use crate::bake::model::ReadModel;
use crate::ir::network::{FinalActivation, InputOrder, Kind, Network, named};
use crate::ir::op::Op;
use rten_onnx::onnx::{
    AttributeProto, AttributeType, DataLocation, DataType, Dimension, GraphProto, ModelProto,
    NodeProto, OperatorSetIdProto, StringStringEntryProto, TensorProto, TensorShapeProto,
    TypeProto, TypeProtoTensor, ValueInfoProto,
};
use std::path::{Path, PathBuf};

/// The folder with the ONNX test models.
pub(super) fn folder() -> PathBuf {
    fixtures::folder("onnx")
}

/// Returns the rows of the matrix in an .npy file of that folder.
fn rows(name: &str) -> Vec<Vec<f64>> {
    fixtures::rows(&folder().join(name))
}

/// Checks a model of the ONNX test folder against its stored outputs.
fn check(
    name: &str,
    shape: &str,
    ops: &str,
    meaning: (Kind, FinalActivation),
    how: Outputs,
) -> Network {
    fixtures::check(
        &folder().join(format!("{name}.onnx")),
        (shape, ops),
        meaning,
        how,
        1e-4,
    )
}

const CLASSES: (Kind, FinalActivation) = (Kind::Classes, FinalActivation::Softmax);

const BINARY: (Kind, FinalActivation) = (Kind::Binary, FinalActivation::Sigmoid);

/// Layers between quantized tensors are computed on the integers, whose sums fit in an f32 exactly.
#[test]
fn layers_between_quantised_values_are_of_integers() {
    let path = fixtures::folder("onnx").join("integers.onnx");
    let ReadModel {
        network, tensors, ..
    } = fixtures::read(&path).unwrap();
    let layer = |op: Op| matches!(op, Op::Affine | Op::Convolution { .. });
    let layers = network.graph.nodes.iter().filter(|n| layer(n.op));
    let arrays: Vec<usize> = layers.flat_map(|n| n.tensors.to_vec()).collect();
    assert_eq!(arrays.len(), 6);
    for t in arrays {
        assert!(tensors[t].iter().all(|w| w.fract() == 0.0), "{t}");
    }
    let rows = |what: &str| fixtures::rows(&path.with_extension(what));
    for (x, expected) in rows("inputs.npy").iter().zip(rows("outputs.npy")) {
        for (found, expected) in network.scores(&tensors, x).iter().zip(expected) {
            assert!((found - expected).abs() < 1e-6, "{found} {expected}");
        }
    }
}

#[test]
fn networks_give_what_their_models_give() {
    use Outputs::*;
    let list = [
        (
            "mlp",
            "6-8-5 relu",
            "affine relu affine",
            CLASSES,
            Logarithms,
        ),
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
            "convolution relu convolution relu convolution add relu convolution relu convolution \
             convolution add relu average_pool affine",
            CLASSES,
            Scores,
        ),
        (
            "mobile",
            "3×16×16-8×8×8-8×8×8-4-8-16×8×8-5 hard_swish,clip,relu,hard_sigmoid,hard_swish",
            "convolution hard_swish convolution clip average_pool affine relu affine hard_sigmoid \
             multiply convolution hard_swish average_pool affine",
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
        (
            "pixels_last",
            "3×9×7-4×5×4-6 relu",
            "convolution relu average_pool affine",
            CLASSES,
            Activated,
        ),
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
            "convolution convolution relu max_pool average_pool concat prelu pad scale \
             convolution elu affine",
            CLASSES,
            Scores,
        ),
        (
            "functions",
            "5-7-7-7-7-7-7-7-7-7-3 \
             gelu,elu,hard_swish,leaky_relu,tanh,hard_sigmoid,gelu_tanh,sigmoid,clip,mish,softplus,\
             silu",
            "affine gelu affine elu affine elu affine hard_swish affine leaky_relu affine tanh \
             affine hard_sigmoid affine gelu_tanh affine scale multiply scale sigmoid divide \
             subtract scale prelu clip clip mish softplus silu affine",
            CLASSES,
            Scores,
        ),
        (
            "sequence",
            "4×1×6-5×1×6-3×1×6-4 relu",
            "convolution relu convolution softmax transpose reshape average_pool affine",
            CLASSES,
            Scores,
        ),
        (
            "quantised",
            "1×6×6-4×4×4-3 relu",
            "convolution relu affine",
            CLASSES,
            Scores,
        ),
        (
            "halves",
            "3-4-2 tanh",
            "affine tanh affine",
            CLASSES,
            Scores,
        ),
        (
            "external",
            "4-6-3 relu",
            "affine relu affine",
            CLASSES,
            Scores,
        ),
        (
            "old",
            "2×4×4-4×4×4-5 clip",
            "convolution clip affine",
            CLASSES,
            Activated,
        ),
        (
            "image",
            "2×6×6-3×6×6",
            "convolution",
            (Kind::Values, FinalActivation::Sigmoid),
            Activated,
        ),
        (
            "bytes",
            "3×4×4-4×2×2-2 relu",
            "convolution relu affine",
            CLASSES,
            Scores,
        ),
    ];
    for (name, shape, ops, meaning, how) in list {
        let network = check(name, shape, ops, meaning, how);
        assert!(network.labels.is_empty() && network.name == name);
        assert_eq!(
            network.order == InputOrder::Hwc,
            matches!(name, "pixels_last" | "sequence"),
            "{name}"
        );
        assert_eq!(
            network.folded,
            matches!(name, "borders" | "bytes"),
            "{name}"
        );
    }
}

/// Tests models of corner cases, of `If` branches and of operators on integers. The scripts
/// `corners.py`, `branches.py` and `operators.py` in `tests/onnx` describe them.
#[test]
fn corners_are_what_onnx_runtime_makes_of_them() {
    for (name, values) in [
        ("corners", 21),
        ("twice", 4),
        ("branches", 3),
        ("operators", 17),
        ("dynamic", 4),
    ] {
        let path = folder().join(format!("{name}.onnx"));
        let ReadModel {
            network, tensors, ..
        } = read(&path).unwrap();
        assert_eq!(network.outputs.len(), values, "{name}");
        let expected = rows(&format!("{name}.outputs.npy"));
        for (record, expected) in rows(&format!("{name}.inputs.npy")).iter().zip(&expected) {
            let found = network.scores(&tensors, record);
            assert_eq!(found.len(), expected.len(), "{name}");
            let mut at = 0;
            for value in network.outputs.iter() {
                for i in at..at + value.shape.len() {
                    let near = (found[i] - expected[i]).abs() <= 1e-5 * expected[i].abs().max(1.0);
                    assert!(
                        near,
                        "{name}, {} {}: {} {}",
                        value.name,
                        i - at,
                        found[i],
                        expected[i]
                    );
                }
                at += value.shape.len();
            }
        }
    }
}

/// With several inputs, a record has a part for each input. Its scores have a part for each output.
#[test]
fn several_inputs_and_outputs_are_parts_of_one() {
    use Outputs::*;
    let values = (Kind::Values, FinalActivation::None);
    let check = |name: &str, shape: &str, ops: &str, meaning, how, [inputs, outputs]: [&str; 2]| {
        let network = check(name, shape, ops, meaning, how);
        assert_eq!(
            (
                named(&network.inputs).as_str(),
                named(&network.outputs).as_str()
            ),
            (inputs, outputs),
            "{name}"
        );
        assert_eq!(network.order, InputOrder::Chw);
        network
    };
    check(
        "added",
        "12-8-3 relu",
        "slice slice add affine relu affine",
        CLASSES,
        Scores,
        ["left 6, right 6", ""],
    );
    check(
        "sensors",
        "89-4×7×6-8-8-4 relu,tanh",
        "slice reshape slice convolution relu max_pool affine affine tanh concat affine",
        CLASSES,
        Activated,
        ["camera 2×7×6, state 5", ""],
    );
    let outputs = "softmax4 3, relu2 6";
    check(
        "embedding",
        "7-6-3 relu",
        "affine relu affine softmax concat",
        values,
        Scores,
        ["", outputs],
    );
    check(
        "fusion",
        "120-4×6×5-4×6×5-2×6×5-3 relu,sigmoid",
        "slice reshape slice reshape convolution relu convolution relu add convolution sigmoid \
         average_pool affine reshape concat",
        values,
        Scores,
        ["near 3×6×5, far 1×6×5", "sigmoid7 2×6×5, gemm10 3"],
    );
    check(
        "parts",
        "4×6×6-6×6×6-3×3×3-4 relu",
        "convolution slice slice slice slice slice relu slice slice concat convolution reshape \
         slice slice multiply affine",
        CLASSES,
        Scores,
        ["", ""],
    );
}

/// A model with one of several outputs selected gives the same network as a model with that output
/// alone.
#[test]
fn a_json_beside_the_model_chooses_an_output() {
    let f = ModelFolder::new("onnx");
    f.copy("embedding").put(
        "net.json",
        r#"{"output": {"name": "softmax4"}, "labels": ["a", "b", "c"]}"#,
    );
    let ReadModel {
        network, tensors, ..
    } = f.read().unwrap();
    assert_eq!((network.output.kind, network.output.activation), CLASSES);
    assert!(network.outputs.is_empty());
    for (x, expected) in rows("embedding.inputs.npy")
        .iter()
        .zip(rows("embedding.outputs.npy"))
    {
        let mut found = network.scores(&tensors, x);
        FinalActivation::Softmax.apply(&mut found);
        for (f, e) in found.iter().zip(&expected[..3]) {
            assert!((f - e).abs() < 1e-5, "{found:?} {expected:?}");
        }
    }
    f.put(
        "net.json",
        r#"{"output": {"name": "relu2", "kind": "values"}}"#,
    );
    let ReadModel { network, .. } = f.read().unwrap();
    assert_eq!(
        (
            network.output.kind,
            network.outputs(),
            network.shape().as_str()
        ),
        (Kind::Values, 6, "7-6 relu")
    );
    let said = |json: &str| f.put("net.json", json).mistakes();
    assert_eq!(
        said(r#"{"output": {"name": "relu3"}}"#),
        [
            "net.onnx: output: name: expected one of the model's outputs (softmax4, relu2) or \
             of its inner tensors, found \"relu3\""
        ]
    );
    assert_eq!(
        said(r#"{"output": {"kind": "classes"}, "labels": ["a", "b", "c"]}"#),
        [
            "net.json: output: kind: expected values, as the network has 2 outputs, found \
             classes; \"name\" beside it selects one of them",
            "net.json: labels: expected 9 names, found 3",
        ]
    );
    assert_eq!(
        said(r#"{"output": {"name": "softmax4", "threshold": 0.5}}"#),
        ["net.json: output: threshold: expected the key \"kind\" beside it"]
    );
    assert_eq!(
        said(r#"{"output": {"name": 3}}"#)[0],
        "net.json: output: name: expected a string, found 3"
    );
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
        (
            "sk_mlp",
            "4-8-3 relu",
            "affine relu affine",
            CLASSES,
            Activated,
            names,
        ),
        (
            "sk_mlp_tensor",
            "4-6-5-3 relu",
            "affine relu affine relu affine",
            CLASSES,
            Activated,
            &["10", "11", "12"],
        ),
        (
            "sk_mlp_two",
            "4-6-1 tanh",
            "affine tanh affine",
            BINARY,
            Pair,
            two,
        ),
        (
            "sk_pca",
            "4-2-5-3 sigmoid",
            "affine affine sigmoid affine",
            CLASSES,
            Activated,
            &[],
        ),
        (
            "sk_columns",
            "4-2-2-5-3 relu",
            "affine affine concat affine relu affine",
            CLASSES,
            Activated,
            &[],
        ),
        (
            "sk_many",
            "4-5-3 relu",
            "affine relu affine",
            many,
            Activated,
            &[],
        ),
        (
            "sk_number",
            "4-5-1 relu",
            "affine relu affine",
            numbers,
            Scores,
            &[],
        ),
        ("sk_line", "4-1", "affine", numbers, Scores, &[]),
        ("sk_logistic", "4-3", "affine", CLASSES, Activated, names),
        ("sk_logistic_two", "4-1", "affine", BINARY, Pair, two),
        (
            "sk_rest",
            "4-1-1-1 sigmoid",
            "affine sigmoid affine sigmoid affine sigmoid concat reshape average_pool scale \
             reshape divide",
            rest,
            Scores,
            &[],
        ),
    ];
    for (name, shape, ops, meaning, how, labels) in list {
        let network = check(name, shape, ops, meaning, how);
        assert_eq!(
            network.labels.iter().map(|l| &**l).collect::<Vec<_>>(),
            labels,
            "{name}"
        );
    }
}

fn text(s: &str) -> Option<String> {
    Some(s.to_string())
}

/// Makes a node of the model, with a name and the output `NAME_out`.
fn node(op: &str, name: &str, inputs: &[&str]) -> NodeProto {
    NodeProto {
        op_type: text(op),
        name: text(name),
        input: inputs.iter().map(|i| i.to_string()).collect(),
        output: vec![format!("{name}_out")],
        ..NodeProto::default()
    }
}

fn with_int(mut node: NodeProto, name: &str, i: i64) -> NodeProto {
    let attribute = AttributeProto {
        name: text(name),
        i: Some(i),
        r#type: Some(AttributeType::INT),
        ..AttributeProto::default()
    };
    node.attribute.push(attribute);
    node
}

fn with_ints(mut node: NodeProto, name: &str, ints: &[i64]) -> NodeProto {
    node.attribute.push(AttributeProto {
        name: text(name),
        ints: ints.to_vec(),
        r#type: Some(AttributeType::INTS),
        ..AttributeProto::default()
    });
    node
}

/// Makes a tensor of floats that are all 0.5.
fn weights(name: &str, dims: &[i64]) -> TensorProto {
    TensorProto {
        name: text(name),
        dims: dims.to_vec(),
        data_type: Some(DataType::FLOAT),
        float_data: vec![0.5; dims.iter().product::<i64>() as usize],
        ..TensorProto::default()
    }
}

fn info(name: &str, dims: &[Option<i64>]) -> ValueInfoProto {
    let dim = |d: &Option<i64>| Dimension {
        dim_value: *d,
        dim_param: None,
    };
    let tensor = TypeProtoTensor {
        elem_type: Some(DataType::FLOAT),
        shape: Some(TensorShapeProto {
            dim: dims.iter().map(dim).collect(),
        }),
    };
    ValueInfoProto {
        name: text(name),
        r#type: Some(TypeProto {
            tensor_type: Some(tensor),
            ..TypeProto::default()
        }),
    }
}

fn model(
    inputs: &[(&str, &[Option<i64>])],
    nodes: Vec<NodeProto>,
    initializer: Vec<TensorProto>,
    outputs: &[&str],
    set: i64,
) -> Vec<u8> {
    stating(inputs, nodes, initializer, outputs, (set, Vec::new()))
}

/// Makes a model that also states the sizes of inner tensors (`value_info`).
fn stating(
    inputs: &[(&str, &[Option<i64>])],
    nodes: Vec<NodeProto>,
    initializer: Vec<TensorProto>,
    outputs: &[&str],
    (set, value_info): (i64, Vec<ValueInfoProto>),
) -> Vec<u8> {
    let graph = GraphProto {
        node: nodes,
        initializer,
        input: inputs.iter().map(|(name, dims)| info(name, dims)).collect(),
        output: outputs.iter().map(|name| info(name, &[])).collect(),
        value_info,
    };
    let set = OperatorSetIdProto {
        domain: text(""),
        version: Some(set),
    };
    let model = ModelProto {
        ir_version: Some(8),
        graph: Some(graph),
        opset_import: vec![set],
        ..ModelProto::default()
    };
    model.write_buf().unwrap()
}

const IMAGE: (&str, &[Option<i64>]) = ("x", &[None, Some(3), Some(8), Some(8)]);

const VECTOR: (&str, &[Option<i64>]) = ("x", &[None, Some(4)]);

#[test]
fn every_node_that_is_not_supported_is_named_at_once() {
    let f = ModelFolder::new("onnx");
    let mut strange = node("Gelu", "gelu", &["a_out"]);
    strange.domain = text("com.example");
    let nodes = vec![
        with_int(node("Relu", "a", &["x"]), "consumed_inputs", 0),
        strange,
        node("DynamicQuantizeLSTM", "", &["gelu_out", "w"]),
        with_int(node("Gemm", "c", &["_out", "w"]), "transC", 1),
        node("Pool", "d", &["c_out"]),
        node("Erf", "e", &["missing"]),
        node("Add", "f", &["d_out", "e_out"]),
    ];
    f.put(
        "net.onnx",
        model(&[IMAGE], nodes, vec![weights("w", &[4, 4])], &["f_out"], 17),
    );
    assert_eq!(
        f.mistakes(),
        [
            "net.onnx: node a (Relu): the attribute consumed_inputs is not supported",
            "net.onnx: node gelu (Gelu): it is not supported: its domain is com.example",
            "net.onnx: node _out (DynamicQuantizeLSTM): it is not supported: export the model \
             before quantisation: weights can be stored as f16 or i8 when it is baked",
            "net.onnx: node c (Gemm): the attribute transC is not supported",
            "net.onnx: node d (Pool): it is not supported: docs/ONNX.md lists what is",
            "net.onnx: node e (Erf): its input missing is no input, no initialiser and no output \
             of an earlier node",
        ]
    );
}

/// ONNX defines one dynamic scale for all records of a batch. So a model that states the number of
/// records is taken as one record. In other models, each record has its own scale.
#[test]
fn a_dynamic_scale_is_of_a_record() {
    let mut dynamic = node("DynamicQuantizeLinear", "d", &["x"]);
    dynamic.output.extend(["s", "z"].map(String::from));
    let nodes = vec![dynamic, node("Mul", "m", &["x", "s"])];
    for (records, width) in [(None, 4), (Some(1), 4), (Some(3), 12)] {
        let f = ModelFolder::new("onnx");
        let x = [records, Some(4)];
        let model = model(&[("x", &x)], nodes.clone(), vec![], &["m_out"], 17);
        f.put("net.onnx", model);
        f.put("net.json", r#"{"output": {"kind": "values"}}"#);
        let read = f.read().unwrap();
        assert_eq!(read.network.width, width);
        let x: Vec<f64> = (0..width).map(|i| i as f64 - 2.0).collect();
        // The scale divides the range from the smallest to the largest number into 255 steps.
        let scale = (width - 1) as f64 / 255.0;
        let found = read.network.scores(&read.tensors, &x);
        for (found, x) in found.iter().zip(x) {
            assert!((found - x * scale).abs() < 1e-6, "{found} {x}");
        }
    }
}

#[test]
fn what_does_not_meet_is_refused_by_name() {
    let refused = |input, nodes, w: &[TensorProto], outputs: &[&str], expected: &str| {
        let f = ModelFolder::new("onnx");
        f.put("net.onnx", model(&[input], nodes, w.to_vec(), outputs, 17));
        assert_eq!(f.mistakes(), [expected]);
    };
    refused(
        VECTOR,
        vec![node("MatMul", "m", &["x", "w"])],
        &[weights("w", &[5, 2])],
        &["m_out"],
        "net.onnx: node m (MatMul): values of [N, 4] and weights [5, 2] do not match",
    );
    // ONNX allows these sizes, but this product is not supported.
    refused(
        IMAGE,
        vec![node("MatMul", "m", &["x", "w"])],
        &[weights("w", &[2, 1, 8, 5])],
        &["m_out"],
        "net.onnx: node m (MatMul): values of [N, 3, 8, 8] with weights [2, 1, 8, 5]: expected \
         one matrix of weights, or a matrix for each n of values of [N, n, rows, columns]",
    );
    let pool = |sizes: [i64; 2]| with_ints(node("MaxPool", "p", &["x"]), "kernel_shape", &sizes);
    refused(
        IMAGE,
        vec![pool([2, 8]), node("Add", "a", &["x", "p_out"])],
        &[],
        &["a_out"],
        "net.onnx: node a (Add): the sizes of [N, 3, 8, 8] and [N, 3, 7, 1] do not match",
    );
    refused(
        IMAGE,
        vec![
            with_int(node("Flatten", "f", &["x"]), "axis", 1),
            node("Add", "a", &["x", "f_out"]),
        ],
        &[],
        &["a_out"],
        "net.onnx: node a (Add): values of [N, 3, 8, 8] and [N, 192]: axes are matched from the \
         last one on, so the axis of the records would be matched with another axis; give both as \
         many axes",
    );
    let mut last = with_int(node("QLinearSigmoid", "s", &["x", "w", "", "w"]), "axis", 1);
    last.domain = text("com.microsoft");
    refused(
        IMAGE,
        vec![last],
        &[weights("w", &[1])],
        &["s_out"],
        "net.onnx: node s (QLinearSigmoid): the attribute axis is not supported",
    );
    refused(
        VECTOR,
        vec![node("MatMul", "m", &["x", "x"])],
        &[],
        &["m_out"],
        "net.onnx: node m (MatMul): the product of values of [N, 4] and [N, 4] would mix records",
    );
    refused(
        IMAGE,
        vec![node("Conv", "c", &["x", "w"])],
        &[weights("w", &[4, 2, 3, 3])],
        &["c_out"],
        "net.onnx: node c (Conv): [N, 3, 8, 8] with weights [4, 2, 3, 3] and group 1: channels do \
         not match",
    );
    refused(
        IMAGE,
        vec![node("Conv", "c", &["x", "w"])],
        &[weights("w", &[4, 3, 9, 1])],
        &["c_out"],
        "net.onnx: node c (Conv): a window that covers 9 does not fit on 8 with a border of 0 and \
         0",
    );
    refused(
        IMAGE,
        vec![node("Add", "a", &["x", "w"])],
        &[weights("w", &[2, 3, 8, 8])],
        &["a_out"],
        "net.onnx: node a (Add): a constant of sizes [2, 3, 8, 8] does not match a value of [N, \
         3, 8, 8]: it has a row for each record",
    );
    refused(
        IMAGE,
        vec![with_int(node("Flatten", "f", &["x"]), "axis", 2)],
        &[],
        &["f_out"],
        "net.onnx: node f (Flatten): axis 2 of [N, 3, 8, 8] would mix records and values",
    );
    refused(
        VECTOR,
        vec![node("Relu", "r", &["y"])],
        &[],
        &["r_out"],
        "net.onnx: node r (Relu): its input y is no input, no initialiser and no output of an \
         earlier node",
    );
    let mut infinite = weights("w", &[4, 2]);
    infinite.float_data[3] = f32::INFINITY;
    refused(
        VECTOR,
        vec![node("MatMul", "m", &["x", "w"])],
        &[infinite],
        &["m_out"],
        "net.onnx: node m (MatMul): expected finite weights, found inf",
    );
    let mut short = weights("w", &[4, 2]);
    short.float_data.pop();
    refused(
        VECTOR,
        vec![node("MatMul", "m", &["x", "w"])],
        &[short],
        &["m_out"],
        "net.onnx: initialiser w: expected 8 numbers of type FLOAT, found 7",
    );
    refused(
        VECTOR,
        vec![
            node("Relu", "a", &["x"]),
            node("MatMul", "m", &["x", "w"]),
            with_int(node("ArgMax", "b", &["m_out"]), "axis", 1),
            with_int(node("ArgMax", "c", &["x"]), "axis", 1),
        ],
        &[weights("w", &[4, 2])],
        &["a_out", "b_out", "m_out", "c_out"],
        "net.onnx: expected 4 outputs of numbers, or a label and its probabilities, found classes \
         (b_out, c_out); \"output\": {\"name\": …} in the JSON beside the model selects one \
         output",
    );
    let open: (&str, &[Option<i64>]) = ("x", &[None, Some(3), None, Some(8)]);
    refused(
        open,
        vec![node("Relu", "a", &["x"])],
        &[],
        &["a_out"],
        "net.onnx: input x: expected fixed sizes above 0, but for the number of records, found \
         [?, 3, ?, 8]: set all sizes by MORTONNET_SIZES, in this form: \"x:1,3,1,8\"",
    );
    refused(
        VECTOR,
        vec![
            with_int(node("ArgMax", "a", &["x"]), "axis", 1),
            node("Relu", "b", &["a_out"]),
        ],
        &[],
        &["b_out"],
        "net.onnx: node b (Relu): a predicted class cannot be the input of another operation",
    );
}

/// Behind a node with a mistake, sizes are assumed if the model states them or the operation keeps
/// them. So one build reports all mistakes.
#[test]
fn mistakes_behind_mistakes_are_named_at_once() {
    let f = ModelFolder::new("onnx");
    let nodes = vec![
        node("IsInf", "a", &["x"]),
        node("Conv", "b", &["a_out", "w"]),
        node("Resize", "c", &["x"]),
        node("Conv", "d", &["c_out", "w"]),
        node("Unheard", "e", &["x"]),
        node("Conv", "f", &["e_out", "w"]),
        node("Sum", "s", &["b_out", "d_out", "f_out"]),
    ];
    let stated = vec![info("c_out", &[None, Some(5), Some(16), Some(16)])];
    f.put(
        "net.onnx",
        stating(
            &[IMAGE],
            nodes,
            vec![weights("w", &[4, 2, 3, 3])],
            &["s_out"],
            (17, stated),
        ),
    );
    let found = f.mistakes();
    let wrong = |node: &str, sizes: &str| {
        format!(
            "net.onnx: node {node} (Conv): {sizes} with weights [4, 2, 3, 3] and group 1: \
             channels do not match"
        )
    };
    // The output of an unsupported operation has no known size, so nodes behind it report nothing.
    assert_eq!(found.len(), 5, "{found:?}");
    assert!(
        found.contains(&wrong("b", "[N, 3, 8, 8]"))
            && found.contains(&wrong("d", "[N, 5, 16, 16]")),
        "{found:?}"
    );
    for (node, wrong) in [
        ("a (IsInf)", "it is not supported"),
        ("c (Resize)", "expected scales or sizes"),
        ("e (Unheard)", "it is not supported"),
    ] {
        let named = format!("net.onnx: node {node}: {wrong}");
        assert!(found.iter().any(|m| m.starts_with(&named)), "{found:?}");
    }
}

#[test]
fn what_is_no_model_or_of_another_kind_is_refused() {
    let f = ModelFolder::new("onnx");
    f.put("net.onnx", "not a model");
    assert!(
        f.mistakes()[0].starts_with("net.onnx: not an ONNX model"),
        "{:?}",
        f.mistakes()
    );
    f.put("net.onnx", "");
    assert!(
        f.mistakes()[0].ends_with(", found an empty file; export the model as ONNX"),
        "{:?}",
        f.mistakes()
    );
    f.put("net.onnx", [8, 8]);
    assert_eq!(
        f.mistakes(),
        ["net.onnx: not an ONNX model: it has no graph"]
    );
    f.put(
        "net.onnx",
        model(
            &[VECTOR],
            vec![node("Relu", "a", &["x"])],
            vec![],
            &["a_out"],
            6,
        ),
    );
    assert_eq!(
        f.mistakes(),
        ["net.onnx: expected operation set 7 to 26, found 6: onnx.version_converter converts it"]
    );
    // Inputs whose types or sizes a record cannot have. All of them are reported.
    let inputs: [(&str, &[Option<i64>]); 3] = [VECTOR, ("y", &[]), ("z", &[None, Some(3), None])];
    f.put(
        "net.onnx",
        model(
            &inputs,
            vec![node("Add", "a", &["x", "y"])],
            vec![],
            &["a_out"],
            17,
        ),
    );
    assert_eq!(
        f.mistakes(),
        [
            "net.onnx: input z: expected fixed sizes above 0, but for the number of records, \
             found [?, 3, ?]: set all sizes by MORTONNET_SIZES, in this form: \"z:1,3,1\"",
        ]
    );
    let inputs: [(&str, &[Option<i64>]); 3] =
        [VECTOR, ("y", &[Some(1), Some(4)]), ("z", &[None, Some(4)])];
    f.put(
        "net.onnx",
        model(
            &inputs,
            vec![node("Add", "a", &["x", "y"])],
            vec![],
            &["a_out"],
            17,
        ),
    );
    assert_eq!(
        f.mistakes(),
        [
            "net.onnx: expected inputs with the same number of records, found x [N, 4] and y [1, \
             4]: a record has a part of every input; set all sizes for one record by \
             MORTONNET_SIZES"
        ]
    );
    f.put(
        "net.onnx",
        model(
            &[],
            vec![node("Add", "a", &["x", "y"])],
            vec![],
            &["a_out"],
            17,
        ),
    );
    assert_eq!(f.mistakes()[0], "net.onnx: expected an input, found none");
    f.put(
        "net.onnx",
        model(
            &[VECTOR],
            vec![node("Sigmoid", "a", &["x"])],
            vec![],
            &["a_out"],
            17,
        ),
    );
    assert_eq!(
        f.mistakes(),
        ["net.onnx: it has no layers: scaling its input and a final function are all that it does"]
    );
    // Nodes on which no output depends are not read, so their mistakes do not matter.
    let nodes = vec![node("Relu", "a", &["x"]), node("LSTM", "b", &["x"])];
    f.put("net.onnx", model(&[VECTOR], nodes, vec![], &["a_out"], 17));
    assert!(f.read().is_ok());
    for (name, part) in [
        ("net.keras", "model.export"),
        ("net.PT", "torch.onnx.export"),
        ("net.joblib", "skl2onnx"),
    ] {
        let said = read(&f.path.join(name)).map(|_| ()).unwrap_err();
        assert!(said.len() == 1 && said[0].contains(part), "{said:?}");
    }
}

/// Reads prefixes of every model, and models with one byte changed. They are read or refused, and
/// never cause a panic.
#[test]
fn no_bytes_are_too_bad() {
    let f = ModelFolder::new("onnx");
    let (mut read, mut refused) = (0, 0);
    for name in ["cnn", "sk_mlp", "halves"] {
        let bytes = std::fs::read(folder().join(format!("{name}.onnx"))).unwrap();
        for i in (0..bytes.len()).step_by(37) {
            let mut changed = bytes.clone();
            changed[i] ^= 1 << (i % 8);
            read += usize::from(f.put("net.onnx", &changed).read().is_ok());
            refused += usize::from(f.put("net.onnx", &bytes[..i]).read().is_err());
        }
    }
    assert!(read > 20 && refused > 100, "{read} {refused}");
}

#[test]
fn data_beside_the_model_is_read_watched_and_kept_inside() {
    let path = folder().join("external.onnx");
    let ReadModel {
        network, tensors, ..
    } = read(&path).unwrap();
    let files = fixtures::outcome(&path).files;
    let names: Vec<_> = files
        .iter()
        .map(|f| f.file_name().unwrap().to_str().unwrap())
        .collect();
    assert_eq!(names, ["external.onnx", "external.weights"]);
    assert_eq!((network.width, tensors.len()), (4, 4));
    let outside = |location: &str, more: &[(&str, &str)]| {
        let f = ModelFolder::new("onnx");
        let mut w = weights("w", &[4, 2]);
        w.float_data.clear();
        w.data_location = Some(DataLocation::EXTERNAL);
        let entry = |(key, value): (&str, &str)| StringStringEntryProto {
            key: text(key),
            value: text(value),
        };
        w.external_data = std::iter::once(("location", location))
            .chain(more.iter().copied())
            .map(entry)
            .collect();
        f.put("data", [0; 40]);
        let bytes = model(
            &[VECTOR],
            vec![node("MatMul", "m", &["x", "w"])],
            vec![w],
            &["m_out"],
            17,
        );
        f.put("net.onnx", bytes);
        std::os::unix::fs::symlink("/etc/hostname", f.path.join("link")).unwrap();
        f.read()
            .map(|_| ())
            .map_err(|m| m.join("; ").replace(&format!("{}/", f.path.display()), ""))
    };
    let refused = "net.onnx: initialiser w: its data is in a file outside of the model's folder, \
                   which is not read: ";
    for location in ["../data", "/etc/hostname", "a/../../data", "link"] {
        assert_eq!(outside(location, &[]), Err(format!("{refused}{location}")));
    }
    assert_eq!(
        outside("data", &[("offset", "8"), ("length", "32")]),
        Ok(())
    );
    assert_eq!(
        outside("data", &[("offset", "16"), ("length", "32")]).unwrap_err(),
        "net.onnx: initialiser w: its data: expected 32 bytes from 16 on in data, which has 40"
    );
    assert_eq!(
        outside("data", &[]).unwrap_err(),
        "net.onnx: initialiser w: expected 32 bytes (8 of type FLOAT), found 40"
    );
    assert!(
        outside("none", &[])
            .unwrap_err()
            .starts_with("net.onnx: initialiser w: cannot read none: ")
    );
}

#[test]
fn a_json_beside_the_model_says_what_it_cannot() {
    let f = ModelFolder::new("onnx");
    f.copy("pixels_last");
    let ReadModel {
        network: plain,
        tensors,
        ..
    } = f.read().unwrap();
    f.put(
        "net.json",
        r#"{"name": "animals", "labels": ["a","b","c","d","e","f"],
            "input": {"order": "chw", "mean": [1, 2, 3], "std": [2, 4, 8]}}"#,
    );
    let ReadModel {
        network: said,
        tensors: scaled,
        ..
    } = f.read().unwrap();
    let files = f.files();
    assert!(
        files.iter().any(|f| f.ends_with("net.json")),
        "it is watched"
    );
    assert_eq!(
        (&*said.name, said.labels.len(), said.order),
        ("animals", 6, InputOrder::Chw)
    );
    // Records of unscaled values give the same scores as records that are scaled here and stored in
    // the model's own order.
    let raw: Vec<f64> = (0..189).map(|i| f64::from(i % 17)).collect();
    let mut own = vec![0.0; 189];
    for (i, v) in raw.iter().enumerate() {
        let (c, pixel) = (i / 63, i % 63);
        own[pixel * 3 + c] = (v - [1.0, 2.0, 3.0][c]) / [2.0, 4.0, 8.0][c];
    }
    for (a, b) in said
        .scores(&scaled, &raw)
        .iter()
        .zip(plain.scores(&tensors, &own))
    {
        assert!((a - b).abs() < 1e-4, "{a} {b}");
    }
    f.put(
        "net.json",
        r#"{"input": {"order": "cwh"}, "labels": ["a"], "layers": []}"#,
    );
    assert_eq!(
        f.mistakes(),
        [
            "net.json: unknown key \"layers\"; expected name, labels, features, input, output, \
             check, quantize, sizes",
            "net.json: input: order: expected chw or hwc, found \"cwh\"",
            "net.json: labels: expected 6 names, found 1",
        ]
    );
    f.put("net.json", r#"{"input": {"scale": [1, 2]}}"#);
    assert_eq!(
        f.mistakes(),
        [
            "net.json: input: scale: expected one number or 189, one per input, or 3, one per \
             channel, found 2"
        ]
    );
    f.copy("sk_number").put("net.json", "{}");
    assert_eq!(
        f.mistakes(),
        [
            "net.json: one output without a final Sigmoid: say what it means with \"output\": \
             {\"kind\": \"binary\"} (a score, class 1 above the threshold) or \"output\": \
             {\"kind\": \"values\"} (a number), in net.json beside the model"
        ]
    );
    // The JSON beside the model names golden vectors that the framework computed.
    let copy = |from: &str, to: &str| f.put(to, std::fs::read(folder().join(from)).unwrap());
    f.copy("mobile").put(
        "net.json",
        r#"{"check": {"inputs": "in.npy", "scores": "out.npy"}}"#,
    );
    copy("mobile.inputs.npy", "in.npy");
    copy("mobile.outputs.npy", "out.npy");
    let golden = f.read().unwrap().golden;
    assert!(golden.given && golden.count == 4);
    let mut wrong = std::fs::read(folder().join("mobile.outputs.npy")).unwrap();
    let last = wrong.len() - 1;
    wrong[last] ^= 0x40;
    f.put("out.npy", wrong);
    let said = f.mistakes();
    assert!(
        said.len() == 1 && said[0].starts_with("net.json: check: scores: record 4, output 4: "),
        "{said:?}"
    );
}

/// A final log-softmax stays in a network of numbers, and is removed from a network of classes.
#[test]
fn a_final_log_softmax_is_kept_for_numbers() {
    let f = ModelFolder::new("onnx");
    f.copy("mlp")
        .put("net.json", r#"{"output": {"kind": "values"}}"#);
    let ReadModel {
        network, tensors, ..
    } = f.read().unwrap();
    assert_eq!(network.graph.nodes.last().unwrap().op.name(), "log_softmax");
    let (x, expected) = (&rows("mlp.inputs.npy")[0], &rows("mlp.outputs.npy")[0]);
    for (f, e) in network.scores(&tensors, x).iter().zip(expected) {
        assert!((f - e).abs() < 1e-4, "{f} {e}");
    }
}

fn with_text(mut node: NodeProto, name: &str, s: &str) -> NodeProto {
    let attribute = AttributeProto {
        name: text(name),
        s: text(s),
        ..AttributeProto::default()
    };
    node.attribute.push(attribute);
    node.domain = text("ai.onnx.ml");
    node
}

fn with_texts(mut node: NodeProto, name: &str, list: &[&str]) -> NodeProto {
    let strings = list.iter().map(|s| s.to_string()).collect();
    node.attribute.push(AttributeProto {
        name: text(name),
        strings,
        ..AttributeProto::default()
    });
    node.domain = text("ai.onnx.ml");
    node
}

/// The model divides sigmoids by their sum, and looks up its class label in two tables.
#[test]
fn normalised_sigmoids_are_classes_with_the_names_of_their_label() {
    let f = ModelFolder::new("onnx");
    let normalizer =
        |norm: &str, input: &str| with_text(node("Normalizer", "n", &[input]), "norm", norm);
    let mut ints = with_texts(
        node("LabelEncoder", "e", &["a_out"]),
        "values_strings",
        &["low", "mid", "high"],
    );
    ints.attribute.push(AttributeProto {
        name: text("keys_int64s"),
        ints: vec![0, 1, 2],
        ..AttributeProto::default()
    });
    let again = with_texts(
        node("LabelEncoder", "e2", &["e_out"]),
        "keys_strings",
        &["high", "mid", "low"],
    );
    let again = with_texts(again, "values_strings", &["HIGH", "MID", "LOW"]);
    let mut w = weights("w", &[4, 3]);
    w.float_data = vec![
        0.1, -0.2, 0.3, 0.5, -0.6, 0.7, 0.2, 0.4, -0.8, 1.0, -1.5, 0.25,
    ];
    let nodes = vec![
        node("MatMul", "m", &["x", "w"]),
        node("Sigmoid", "s", &["m_out"]),
        normalizer("L1", "s_out"),
        with_int(node("ArgMax", "a", &["n_out"]), "axis", 1),
        ints,
        again,
    ];
    f.put(
        "net.onnx",
        model(&[VECTOR], nodes, vec![w], &["e2_out", "n_out"], 17),
    );
    let ReadModel {
        network, tensors, ..
    } = f.read().unwrap();
    assert_eq!(
        (network.output.kind, network.output.activation),
        (Kind::Classes, FinalActivation::None)
    );
    assert_eq!(
        network.labels.iter().map(|l| &**l).collect::<Vec<_>>(),
        ["LOW", "MID", "HIGH"]
    );
    let scores = network.scores(&tensors, &[1.0, -1.0, 0.5, 2.0]);
    let sigmoid = |z: f64| 1.0 / (1.0 + (-z).exp());
    let z = [
        0.1 - 0.5 + 0.1 + 2.0,
        -0.2 + 0.6 + 0.2 - 3.0,
        0.3 - 0.7 - 0.4 + 0.5,
    ]
    .map(sigmoid);
    for (found, z1) in scores.iter().zip(z) {
        assert!(
            (found - z1 / z.iter().sum::<f64>()).abs() < 1e-6,
            "{scores:?} {z:?}"
        );
    }
    for (norm, input, said) in [
        (
            "L2",
            "s_out",
            "norm: expected L1 (of probabilities), found L2",
        ),
        (
            "L1",
            "x",
            "norm L1: expected values that are never below 0 (behind a sigmoid or a softmax)",
        ),
    ] {
        let nodes = vec![node("Sigmoid", "s", &["x"]), normalizer(norm, input)];
        f.put("net.onnx", model(&[VECTOR], nodes, vec![], &["n_out"], 17));
        assert_eq!(
            f.mistakes(),
            [format!("net.onnx: node n (Normalizer): {said}")]
        );
    }
}

/// If the label is a model's only output, the network's scores are the values that the label is the
/// arg-max of.
#[test]
fn a_label_alone_is_a_class() {
    let f = ModelFolder::new("onnx");
    let nodes = vec![
        node("MatMul", "m", &["x", "w"]),
        with_int(node("Softmax", "s", &["m_out"]), "axis", 1),
        with_int(node("ArgMax", "a", &["s_out"]), "axis", 1),
    ];
    f.put(
        "net.onnx",
        model(
            &[VECTOR],
            nodes,
            vec![weights("w", &[4, 3])],
            &["a_out"],
            17,
        ),
    );
    let ReadModel { network, .. } = f.read().unwrap();
    assert_eq!(
        (network.output.kind, network.output.activation),
        (Kind::Classes, FinalActivation::Softmax)
    );
    assert_eq!(network.graph.nodes.len(), 1);
    // The label is not the arg-max of these scores, so the model is refused.
    let nodes = vec![
        node("MatMul", "m", &["x", "w"]),
        with_int(node("ArgMax", "a", &["m_out"]), "axis", 1),
        node("Relu", "r", &["m_out"]),
    ];
    f.put(
        "net.onnx",
        model(
            &[VECTOR],
            nodes,
            vec![weights("w", &[4, 3])],
            &["a_out", "r_out"],
            17,
        ),
    );
    assert_eq!(
        f.mistakes(),
        ["net.onnx: outputs a_out, r_out: the class is computed from other values than the scores"]
    );
}

/// Fails if a file differs from its expected text. With `MORTONNET_BLESS=1` it writes that text to
/// the file first.
pub(super) fn agrees(path: &Path, expected: &str) {
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

/// Compares the table in docs/ONNX.md with the list of node tests. For each operation the table has
/// the number of passing tests, and the reasons why others are refused.
#[test]
fn the_table_of_the_document_is_that_of_the_manifest() {
    let manifest = std::fs::read_to_string(folder().join("nodes.txt")).unwrap();
    let mut rows: Vec<(&str, usize, Vec<String>)> = Vec::new();
    for line in manifest.lines() {
        let mut words = line.splitn(3, ' ');
        let (op, _, verdict) = (
            words.next().unwrap(),
            words.next().unwrap(),
            words.next().unwrap(),
        );
        if rows.last().is_none_or(|r| r.0 != op) {
            rows.push((op, 0, Vec::new()));
        }
        let row = rows.last_mut().unwrap();
        match verdict.strip_prefix("refused: ") {
            None => row.1 += 1,
            Some(why) => {
                let first = why
                    .split("; model.onnx: ")
                    .next()
                    .unwrap()
                    .trim_start_matches("model.onnx: ");
                let placed = ["node ", "input ", "initialiser "]
                    .iter()
                    .any(|p| first.starts_with(p));
                let why = first
                    .split_once(": ")
                    .filter(|_| placed)
                    .map_or(first, |w| w.1);
                row.2.push(why.replace('|', "\\|"));
            }
        }
    }
    let mut table = String::from("| operation | pass | refused | why |\n|---|---|---|---|\n");
    for (op, passed, mut refused) in rows {
        let count = refused.len();
        refused.sort();
        refused.dedup();
        let more = refused.len().saturating_sub(3);
        refused.truncate(3);
        let more = if more > 0 {
            format!("; and {more} more")
        } else {
            String::new()
        };
        table += &format!(
            "| {op} | {passed} | {count} | {}{more} |\n",
            refused.join("; ")
        );
    }
    let counted = || manifest.lines().filter(|l| !l.starts_with("(PyTorch)"));
    let (passed, all) = (
        counted().filter(|l| l.ends_with(" passes")).count(),
        counted().count(),
    );
    let share = format!(
        "Of the other {all} tests {passed} pass ({:.1} %); no other gives a wrong number, they are \
         refused.\n",
        100.0 * passed as f64 / all as f64
    );
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("docs/ONNX.md");
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains(&share), "docs/ONNX.md lacks: {share}");
    let (head, rest) = text.split_once("<!-- nodes -->\n").unwrap();
    let tail = rest.split_once("<!-- end of nodes -->").unwrap().1;
    agrees(
        &path,
        &format!("{head}<!-- nodes -->\n{table}<!-- end of nodes -->{tail}"),
    );
    // The document must name every supported operation.
    let with_attributes = OPS.iter().chain(&super::OF_CONSTANTS).map(|(op, _)| *op);
    let quantised = super::quantised::OPS.iter().map(|(op, ..)| *op);
    for op in with_attributes
        .chain(quantised)
        .chain(functions::onnx_names())
    {
        assert!(
            head.contains(&format!("`{op}`")),
            "docs/ONNX.md does not name {op}"
        );
    }
}

/// Makes a tensor of integers.
fn integers(name: &str, kind: DataType, numbers: &[i32]) -> TensorProto {
    TensorProto {
        name: text(name),
        dims: vec![numbers.len() as i64],
        data_type: Some(kind),
        int32_data: numbers.to_vec(),
        ..TensorProto::default()
    }
}

/// Makes the declaration of an input of integers.
fn whole(name: &str, kind: DataType, dims: &[Option<i64>]) -> ValueInfoProto {
    let mut info = info(name, dims);
    info.r#type
        .as_mut()
        .unwrap()
        .tensor_type
        .as_mut()
        .unwrap()
        .elem_type = Some(kind);
    info
}

/// Returns the mistakes in a model after `change` has modified its graph.
fn mistakes(bytes: Vec<u8>, change: impl Fn(&mut GraphProto)) -> Vec<String> {
    let mut model = ModelProto::parse_buf(&bytes).unwrap();
    change(model.graph.as_mut().unwrap());
    let f = ModelFolder::new("onnx");
    f.put("net.onnx", model.write_buf().unwrap());
    f.mistakes()
}

#[test]
fn invalid_files_are_refused_by_name() {
    let relu = || {
        model(
            &[VECTOR],
            vec![node("Relu", "a", &["x"])],
            vec![],
            &["a_out"],
            17,
        )
    };
    let twice = |g: &mut GraphProto| g.node.push(node("Neg", "a", &["x"]));
    let message = "net.onnx: node a (Neg): its output a_out is also an input, an initialiser or \
                   the output of an earlier node";
    assert_eq!(mistakes(relu(), twice), [message]);
    let twice = |g: &mut GraphProto| {
        g.initializer
            .extend([weights("w", &[2]), weights("w", &[2])])
    };
    let message = "net.onnx: initialiser w: expected one initialiser of this name, found another";
    assert_eq!(mistakes(relu(), twice), [message]);
    let other = |g: &mut GraphProto| g.output = vec![info("a_out", &[None, Some(5)])];
    let message =
        "net.onnx: output a_out: the model declares [N, 5], its nodes give [N, 4]: export it anew";
    assert_eq!(mistakes(relu(), other), [message]);
    let alpha =
        |g: &mut GraphProto| g.node = vec![with_int(node("LeakyRelu", "a", &["x"]), "alpha", 1)];
    let message =
        "net.onnx: node a (LeakyRelu): alpha: expected an attribute of type FLOAT, found INT";
    assert_eq!(mistakes(relu(), alpha), [message]);
}

#[test]
fn integers_that_floats_would_compute_differently_are_refused() {
    let of = |op: &str, kind: DataType| {
        let nodes = vec![node("Relu", "r", &["x"]), node(op, "a", &["r_out", "w"])];
        let w = integers("w", kind, &[2, 2, 2, 2]);
        mistakes(model(&[VECTOR], nodes, vec![w], &["a_out"], 17), move |g| {
            g.input = vec![whole("x", kind, &[None, Some(4)])];
        })
    };
    for op in ["Add", "Sub", "Mul", "Div", "MatMul"] {
        let message = format!(
            "net.onnx: node a ({op}): INT32 values are computed as floats, which neither wrap nor \
             truncate: Cast them to FLOAT before it"
        );
        assert_eq!(of(op, DataType::INT32), [message]);
    }
    let narrow = vec![with_int(node("Cast", "a", &["x"]), "to", 2)];
    let found = mistakes(model(&[VECTOR], narrow, vec![], &["a_out"], 17), |g| {
        g.input = vec![whole("x", DataType::INT32, &[None, Some(4)])];
    });
    assert!(
        found[0].contains("INT32 to UINT8: expected a type of floats, or a wider one of integers"),
        "{found:?}"
    );
}

/// Integers that a matrix product selects are still integers. So operations on them that may wrap
/// are refused.
#[test]
fn picked_elements_keep_their_type() {
    for dims in [
        &[None, Some(4)][..],
        &[None, Some(4), Some(3)],
        &[None, Some(3), Some(4)],
    ] {
        let axis = dims.iter().position(|d| *d == Some(4)).unwrap() as i64;
        let gather = with_int(node("Gather", "g", &["x", "at"]), "axis", axis);
        let narrow = with_int(node("Cast", "c", &["g_out"]), "to", 2);
        let at = integers("at", DataType::INT32, &[3, 0, 2]);
        let found = mistakes(
            model(&[VECTOR], vec![gather, narrow], vec![at], &["c_out"], 17),
            |g| {
                g.input = vec![whole("x", DataType::INT32, dims)];
            },
        );
        assert!(found[0].contains("INT32 to UINT8"), "{dims:?}: {found:?}");
    }
}

#[test]
fn training_mode_of_old_sets_is_refused() {
    let mut norm = node("BatchNormalization", "b", &["x", "w", "w", "w", "w"]);
    norm.output
        .extend(["mean", "var", "saved_mean", "saved_var"].map(String::from));
    let found = mistakes(
        model(
            &[VECTOR],
            vec![norm],
            vec![weights("w", &[4])],
            &["b_out"],
            9,
        ),
        |_| (),
    );
    assert!(found[0].contains("as in training mode"), "{found:?}");
}

#[test]
fn constants_that_grow_without_bound_are_refused() {
    let sizes = integers("s", DataType::INT32, &[1 << 14, 1 << 14]);
    let cast = with_int(node("Cast", "c", &["s"]), "to", 7);
    let nodes = vec![
        cast,
        node("Expand", "e", &["w", "c_out"]),
        node("Add", "a", &["x", "e_out"]),
    ];
    let found = mistakes(
        model(
            &[VECTOR],
            nodes,
            vec![sizes, weights("w", &[1])],
            &["a_out"],
            17,
        ),
        |_| (),
    );
    assert!(
        found[0].starts_with("net.onnx: node e (Expand): a constant of sizes [16384, 16384] is"),
        "{found:?}"
    );
}

/// A reduction whose result leaves the integer type is refused, because programs disagree. ONNX
/// Runtime gives the largest integer, and ONNX's reference wraps around.
#[test]
fn reductions_that_leave_their_type_are_refused() {
    for op in ["ReduceSum", "ReduceProd"] {
        let of = |numbers: &[i32]| {
            let cast = with_int(node("Cast", "c", &["r_out"]), "to", 1);
            let nodes = vec![
                node(op, "r", &["w"]),
                cast,
                node("Add", "a", &["x", "c_out"]),
            ];
            let w = integers("w", DataType::INT32, numbers);
            let f = ModelFolder::new("onnx");
            f.put("net.onnx", model(&[VECTOR], nodes, vec![w], &["a_out"], 17));
            f.read().err().map(|_| f.mistakes())
        };
        let message = format!(
            "net.onnx: node r ({op}): {op} of INT32: the result leaves the range of the type"
        );
        assert_eq!(of(&[i32::MAX, 2]), Some(vec![message]));
        // A result in range is computed. The model is then refused for another reason, because it
        // only adds a constant to its input.
        let within = of(&[i32::MAX / 2, 1, 2]).unwrap_or_default().concat();
        assert!(!within.contains("leaves the range"), "{op}: {within}");
    }
}

/// Tests every operation on constants, in every type for which ONNX Runtime has it.
#[test]
fn constants_are_computed_in_their_own_types() {
    fixtures::check(
        &folder().join("folding.onnx"),
        ("1-1688", "affine"),
        CLASSES,
        Outputs::Scores,
        1e-4,
    );
}

/// A side of a window has at most 15 bits. A longer axis is reduced in two steps.
#[test]
fn long_axes_are_reduced_in_steps() {
    let f = ModelFolder::new("onnx");
    let input: (&str, &[Option<i64>]) = ("x", &[Some(1), Some(200), Some(250)]);
    for (op, expected) in [
        ("ReduceMean", 0.5),
        ("ReduceSum", 25000.0),
        ("ReduceMax", 1.0),
    ] {
        let nodes = vec![node(op, "a", &["x"])];
        f.put("net.onnx", model(&[input], nodes, vec![], &["a_out"], 12));
        f.put("net.json", r#"{"output": {"kind": "values"}}"#);
        let ReadModel {
            network, tensors, ..
        } = f.read().unwrap();
        let record: Vec<f64> = (0..50000).map(|i| f64::from(i % 2)).collect();
        let found = network.scores(&tensors, &record);
        assert_eq!(found.len(), 1, "{op}");
        assert!(
            (found[0] - expected).abs() < 1e-6 * expected,
            "{op}: {}",
            found[0]
        );
    }
}
