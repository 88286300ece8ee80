//! Tests of the layers in network JSONs: their results against PyTorch's, the defaults of keys, and
//! the messages for mistakes.

use super::*;
use crate::bake::front;
use crate::bake::matrix::{self, Files};
use crate::ir::network::{InputOrder, named};
use crate::ir::op::{Border, Op, Pool, Window};

/// Reads a network from its files, without making a plan.
fn read(model: PathBuf) -> Result<ReadModel, Vec<String>> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let settings = Settings {
        names: Names::Variables,
        root,
        model,
        plan: "host".into(),
        weights: Some(Precision::F32),
        sizes: Default::default(),
        arithmetic: Default::default(),
        quantize: None,
        changes: 1.0,
        lab: false,
    };
    let mut mistakes = Mistakes::default();
    let read = front::read(&settings, &mut Vec::new(), &mut mistakes);
    let own = format!("{}/", settings.model.display());
    let without = |m: String| m.replace(&own, "");
    match read {
        Some(read) if mistakes.lines.is_empty() => Ok(read),
        _ => Err(mistakes.lines.into_iter().map(without).collect()),
    }
}

impl NetworkFolder {
    fn read(&self) -> Result<ReadModel, Vec<String>> {
        read(self.path.clone())
    }

    /// Writes a network that applies these layers to an image of 2×6×5.
    pub(super) fn image(&self, layers: &[&str]) -> &Self {
        self.network(
            &layers.join(","),
            layers.len(),
            r#","input":{"shape":[2,6,5]},"output":{"kind":"values"}"#,
        )
    }

    /// Writes the matrices `{name}_w` with weights and `{name}_b` with biases.
    pub(super) fn weights(&self, name: &str, outputs: usize, columns: usize) -> &Self {
        self.matrix(&format!("{name}_w"), outputs, columns, |r, c| {
            (r * 7 + c) as f32 % 5.0 - 2.0
        })
        .matrix(&format!("{name}_b"), outputs, 1, |r, _| r as f32)
    }
}

/// The script `tests/fixtures/layers/make.py` writes these networks, and the scores that PyTorch
/// computes.
#[test]
fn layers_compute_what_pytorch_computes() {
    let fixtures = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/layers");
    let mut layers = String::new();
    for (name, kind, activation) in [
        ("residual", Kind::Classes, FinalActivation::Softmax),
        ("mobile", Kind::Values, FinalActivation::Tanh),
        ("elements", Kind::Multilabel, FinalActivation::Sigmoid),
    ] {
        let folder = fixtures.join(name);
        let ReadModel {
            network,
            tensors,
            golden,
            ..
        } = read(folder.clone()).unwrap();
        assert_eq!(
            (network.output.kind, network.output.activation),
            (kind, activation)
        );
        assert!(golden.given, "{name}");
        let mut seen = Vec::new();
        let mut files = Files {
            root: &folder,
            read: &mut seen,
        };
        let mut records = |file: &str, cols| {
            let read = matrix::read_records(
                &folder.join(file),
                (cols, None),
                "",
                &mut files,
                &mut Mistakes::default(),
            );
            read.unwrap().data
        };
        let (inputs, scores) = (
            records("check_inputs.npy", network.width),
            records("check_scores.npy", network.outputs()),
        );
        for (x, theirs) in inputs
            .chunks(network.width)
            .zip(scores.chunks(network.outputs()))
        {
            let raw: Vec<f64> = x.iter().map(|&v| v.into()).collect();
            let mut ours = network.scores(&tensors, &raw);
            if network.output.kind == Kind::Values {
                network.output.activation.apply(&mut ours);
            }
            // The results may differ slightly, because golden scores are rounded to f32, and the
            // scaling is folded into f32 weights.
            for (ours, &theirs) in ours.iter().zip(theirs) {
                let theirs = f64::from(theirs);
                assert!(
                    (ours - theirs).abs() < 2e-6 * theirs.abs().max(1.0),
                    "{name}: {ours} {theirs}"
                );
            }
        }
        layers += &std::fs::read_to_string(folder.join("network.json")).unwrap();
    }
    // The three networks together have every layer of the format. The message about an unknown
    // layer lists these.
    let f = NetworkFolder::new();
    let [mistake] = &f.network(r#"{"layer":"?"}"#, 1, "").read().err().unwrap()[..] else {
        panic!()
    };
    let names = mistake
        .split_once("expected a layer (")
        .unwrap()
        .1
        .split_once(')')
        .unwrap()
        .0;
    for name in names.split(", ") {
        assert!(layers.contains(&format!("\"layer\": \"{name}\"")), "{name}");
    }
}

/// If keys for windows, borders and groups are left out or given in a short form, they have the
/// usual values.
#[test]
fn what_is_left_out_has_a_usual_value() {
    let f = NetworkFolder::new();
    f.weights("c", 4, 3 * 2 * 2)
        .weights("g", 2, 4)
        .weights("2", 2, 1)
        .weights("4", 4, 1);
    let op = |layer: &str, outputs: usize| {
        // A network without weights is refused, so each network ends in a layer with weights.
        let last =
            format!(r#"{{"layer":"DepthwiseConvLayer","weights":"{outputs}_w.json","kernel":1}}"#);
        let ReadModel {
            network, tensors, ..
        } = f.image(&[layer, &last]).read().unwrap();
        let node = &network.graph.nodes[0];
        (node.op, tensors, network.graph.values[node.output].shape)
    };
    let (found, tensors, shape) = op(
        r#"{"layer":"ConvLayer","weights":"c_w.json","kernel":[3,2]}"#,
        4,
    );
    assert_eq!(
        found,
        Op::Convolution {
            window: Window::of((3, 2)),
            groups: 1
        }
    );
    assert_eq!(
        (&*tensors[1], shape),
        (&[0.0; 4][..], Shape { c: 4, h: 4, w: 4 })
    );

    let (found, tensors, _) = op(
        r#"{"layer":"DepthwiseConvLayer","weights":"g_w.json","biases":"g_b.json","kernel":2,
            "pad":[1,2],
            "stride":[1,2],"dilation":2}"#,
        2,
    );
    let border = Border {
        top: 1,
        left: 2,
        bottom: 1,
        right: 2,
    };
    let window = Window {
        stride: (1, 2),
        dilation: (2, 2),
        border,
        ..Window::of((2, 2))
    };
    assert_eq!(found, Op::Convolution { window, groups: 2 });
    assert_eq!(tensors[1], [0.0, 1.0]);

    let (found, _, shape) = op(r#"{"layer":"MaxPoolLayer","kernel":[3,2]}"#, 2);
    let window = Window {
        stride: (3, 2),
        ..Window::of((3, 2))
    };
    assert_eq!(
        found,
        Op::Pool {
            kind: Pool::Max,
            window
        }
    );
    assert_eq!(shape, Shape { c: 2, h: 2, w: 2 });

    let (found, _, _) = op(
        r#"{"layer":"AveragePoolLayer","kernel":2,"stride":1,"pad":[1,0,0,1],"ceil":true}"#,
        2,
    );
    let border = Border {
        top: 1,
        left: 0,
        bottom: 0,
        right: 1,
    };
    let window = Window {
        border,
        ceil: true,
        ..Window::of((2, 2))
    };
    assert_eq!(
        found,
        Op::Pool {
            kind: Pool::Mean,
            window
        }
    );
    let (found, _, _) = op(
        r#"{"layer":"AveragePoolLayer","kernel":2,"countIncludePad":true}"#,
        2,
    );
    assert!(
        matches!(
            found,
            Op::Pool {
                kind: Pool::PaddedMean,
                ..
            }
        ),
        "{found:?}"
    );
}

#[test]
fn names_and_inputs_make_a_graph() {
    let f = NetworkFolder::new();
    f.weights("a", 3, 3);
    let affine = |keys: &str| {
        format!(r#"{{"layer":"AffineLayer","weights":"a_w.json","biases":"a_b.json"{keys}}}"#)
    };
    // The inputs of the first affine layer determine the length of a record, even if activations
    // stand in front of that layer.
    let layers = [
        r#"{"layer":"ReLULayer","name":"r"}"#,
        &affine(""),
        &affine(r#","input":"r","name":"second""#),
        r#"{"layer":"FlattenLayer","name":"flat"}"#,
        r#"{"layer":"AddLayer","inputs":["layers[1]","flat"]}"#,
        r#"{"layer":"ConcatLayer","inputs":["layers[4]","input","r"]}"#,
    ];
    let ReadModel { network, .. } = f.network(&layers.join(","), 6, "").read().unwrap();
    let nodes: Vec<(&str, &[usize])> = network
        .graph
        .nodes
        .iter()
        .map(|n| (&*n.name, &*n.inputs))
        .collect();
    let expected: [(&str, &[usize]); 5] = [
        ("r", &[0]),
        ("layers[1]", &[1]),
        ("second", &[1]),
        ("layers[4]", &[2, 3]),
        ("layers[5]", &[4, 0, 1]),
    ];
    assert_eq!(nodes, expected);
    assert_eq!(
        (network.width, network.outputs(), &*network.graph.outputs),
        (3, 9, &[5][..])
    );
}

#[test]
fn images_are_scaled_by_channel_or_by_value() {
    let f = NetworkFolder::new();
    let scales = |order: &str, scale: &str| {
        let input = format!(
            r#","input":{{"shape":[2,1,2],"order":"{order}","scale":{scale}}},
                "output":{{"kind":"values"}}"#
        );
        // Two layers read the input, so the input scaling cannot be folded into the first layer.
        let pools = r#"{"layer":"ConvLayer","weights":"c_w.json","kernel":1,"name":"a"},
                       {"layer":"ConvLayer","weights":"c_w.json","kernel":1,"name":"b",
                           "input":"input"},
                       {"layer":"AddLayer","inputs":["a","b"]}"#;
        let ReadModel { network, .. } = f
            .weights("c", 1, 2)
            .network(pools, 3, &input)
            .read()
            .unwrap();
        let order = network.order;
        (
            order,
            (0..4)
                .map(|i| network.transform.linear(i).0)
                .collect::<Vec<f64>>(),
        )
    };
    assert_eq!(
        scales("chw", "[2, 3]"),
        (InputOrder::Chw, vec![2.0, 2.0, 3.0, 3.0])
    );
    assert_eq!(
        scales("hwc", "[2, 3]"),
        (InputOrder::Hwc, vec![2.0, 3.0, 2.0, 3.0])
    );
    assert_eq!(
        scales("hwc", "[2, 3, 4, 5]"),
        (InputOrder::Hwc, vec![2.0, 3.0, 4.0, 5.0])
    );
    assert_eq!(scales("chw", "2").1, [2.0; 4]);
}

/// Each mistake in a layer is reported as one message, and causes no others.
#[test]
fn mistakes_of_layers() {
    let conv = |keys: &str| format!(r#"{{"layer":"ConvLayer","weights":"c_w.json"{keys}}}"#);
    let pool = |keys: &str| format!(r#"{{"layer":"MaxPoolLayer"{keys}}}"#);
    let norm = |keys: &str| format!(r#"{{"layer":"BatchNormLayer","mean":"zero.json"{keys}}}"#);
    let layer = |name: &str, keys: &str| format!(r#"{{"layer":"{name}"{keys}}}"#);
    let cases: &[(&str, String)] = &[
        ("the key \"kernel\" is missing", conv("")),
        (
            "kernel: expected a number or [height, width], found 3 numbers",
            conv(r#","kernel":[3,2,1]"#),
        ),
        (
            "kernel: expected a whole number or a list of whole numbers, found \"3\"",
            conv(r#","kernel":"3""#),
        ),
        (
            "kernel: expected 1 to 65536, found 0",
            conv(r#","kernel":[3,0]"#),
        ),
        (
            "stride: expected 1 to 65536, found 0",
            conv(r#","kernel":[3,2],"stride":0"#),
        ),
        (
            "pad: expected a number or [rows, columns] or [top, left, bottom, right], found 3 \
             numbers",
            { conv(r#","kernel":[3,2],"pad":[1,1,1]"#) },
        ),
        (
            "pad: expected 0 to 65536, found 9999999999",
            conv(r#","kernel":[3,2],"pad":9999999999"#),
        ),
        (
            "groups: expected at least 1, found 0",
            conv(r#","kernel":[3,2],"groups":0"#),
        ),
        (
            "3 groups do not divide 2 channels and 4 outputs",
            conv(r#","kernel":[3,2],"groups":3"#),
        ),
        (
            "expected 18 weights of an output (3×3 of 2 channels), found 12",
            conv(r#","kernel":3"#),
        ),
        ("found 4 (its weights would fit transposed)", {
            layer("ConvLayer", r#","weights":"t_w.json","kernel":[3,2]"#)
        }),
        (
            "a window that covers 11 does not fit on 6 with a border of 0 and 0",
            { conv(r#","kernel":[3,2],"dilation":5"#) },
        ),
        (
            "biases: expected 4 × 1, as the weights have 4 rows, found 3 × 1",
            { conv(r#","kernel":[3,2],"biases":"m.json""#) },
        ),
        (
            "unknown key \"padding\"; expected layer, name, input, weights, biases, kernel",
            { conv(r#","kernel":[3,2],"padding":1"#) },
        ),
        (
            "unknown key \"countIncludePad\"",
            pool(r#","kernel":2,"countIncludePad":true"#),
        ),
        (
            "ceil: expected true or false, found 1",
            pool(r#","kernel":2,"ceil":1"#),
        ),
        ("outside of the image", pool(r#","kernel":2,"pad":3"#)),
        ("the key \"variance\" is missing", norm("")),
        (
            "expected 2 × 1 numbers, one for each channel",
            norm(r#","variance":"m.json""#).replace("zero", "m"),
        ),
        (
            "variance: expected 2 × 1, as the mean has 2 rows, found 4 × 1",
            norm(r#","variance":"c_b.json""#),
        ),
        (
            "scale: expected N × 1, found 1 × 4 (it would fit transposed)",
            { norm(r#","variance":"zero.json","scale":"row.json""#) },
        ),
        ("variance: row 1: expected 0 or more, found -1", {
            norm(r#","variance":"negative.json""#)
        }),
        (
            "variance: row 1: with variance 0 and epsilon 0 the factor",
            { norm(r#","variance":"zero.json","epsilon":0"#) },
        ),
        ("epsilon: expected 0 or more", {
            norm(r#","variance":"zero.json","epsilon":-1"#)
        }),
        ("expected scale, offset or both", layer("ScaleLayer", "")),
        (
            "expected 2 × 1 numbers, one for each channel, or 60 × 1",
            { layer("PReLULayer", r#","slopes":"m.json""#) },
        ),
        ("expected low, high or both", layer("ClipLayer", "")),
        (
            "low: expected at most high, 1, found 2",
            layer("ClipLayer", r#","low":2,"high":1"#),
        ),
        (
            "the key \"alpha\" is missing",
            layer("HardSigmoidLayer", r#","beta":0.5"#),
        ),
        (
            "approximate: expected none or tanh, found \"fast\"",
            layer("GELULayer", r#","approximate":"fast""#),
        ),
        ("axis: expected channels, rows or columns, found \"1\"", {
            layer("ConcatLayer", r#","inputs":["input","input"],"axis":"1""#)
        }),
        ("axes: expected channels, rows and columns once each", {
            layer("TransposeLayer", r#","axes":["rows","rows","columns"]"#)
        }),
        ("the key \"inputs\" is missing", layer("AddLayer", "")),
        (
            "inputs: expected 2 names, found 1",
            layer("AddLayer", r#","inputs":["input"]"#),
        ),
        (
            "inputs: expected at least 2 names, found 1",
            layer("ConcatLayer", r#","inputs":["input"]"#),
        ),
        (
            "input: expected \"input\" or the name of a layer before this one, found \"last\"",
            { layer("ReLULayer", r#","input":"last""#) },
        ),
        (
            "\"input\" is the network's input",
            layer("ReLULayer", r#","name":"input""#),
        ),
        (
            "name: expected a name without line breaks",
            layer("ReLULayer", r#","name":"a\nb""#),
        ),
        (
            "layers[1] (last): layers[0] (last) has the same name",
            String::new(),
        ),
        (
            "shape: expected [channels, height, width], or the length of a vector, found 2 numbers",
            { layer("ReshapeLayer", r#","shape":[6,10]"#) },
        ),
        (
            "2×6×5 has 60 values, 3×6×5 has 90",
            layer("ReshapeLayer", r#","shape":[3,6,5]"#),
        ),
        (
            "expected at least one value, found 0×6×5",
            layer("ReshapeLayer", r#","shape":[0,6,5]"#),
        ),
        (
            "expected at most 65536 rows and columns",
            layer("ReshapeLayer", r#","shape":[1,99999,1]"#),
        ),
        (
            "expected at most 67108864 values of a record",
            layer("ReshapeLayer", r#","shape":[99999999,9999,9999]"#),
        ),
        (
            "expected at most 65536 rows and columns, found 2×65542×5",
            { layer("PadLayer", r#","pad":[65536,0,0,0]"#) },
        ),
    ];
    for (part, layer) in cases {
        let f = NetworkFolder::new();
        f.weights("c", 4, 12)
            .weights("t", 12, 4)
            .matrix("m", 3, 1, |_, _| 1.0)
            .matrix("row", 1, 4, |_, _| 1.0);
        f.matrix("zero", 2, 1, |_, _| 0.0)
            .matrix("negative", 2, 1, |_, _| -1.0);
        let last = r#"{"layer":"DepthwiseConvLayer","weights":"zero.json","kernel":1,
            "name":"last","input":"input"}"#;
        let twice = layer.is_empty();
        let layers = if twice {
            vec![last, last]
        } else {
            vec![layer, last]
        };
        let found = f.image(&layers).read().err().unwrap_or_default();
        let [mistake] = &found[..] else {
            panic!("{part}: {found:#?}")
        };
        assert!(mistake.contains(part), "{part:?} is not in {mistake:?}");
        let place = if twice {
            "network.json: layers[1] (last)"
        } else {
            "network.json: layers[0]"
        };
        assert!(mistake.starts_with(place), "{mistake}");
    }
}

#[test]
fn mistakes_of_networks() {
    let values = r#","output":{"kind":"values"}"#;
    let cases: &[(&[&str], &[&str], &str)] = &[
        // Layers behind a mistake are still checked, as far as their sizes are known.
        (
            &[
                "layers[1] (pool): kernel: expected 1 to 65536, found 0",
                "layers[3] (second): stride: expected 1 to 65536, found 0",
                "layers[0] (first): expected 18 weights of an output (3×3 of 2 channels), found 12",
                "layers[5] (end): takes 7 inputs, layers[4] (middle) gives 4",
            ],
            &[
                r#"{"layer":"ConvLayer","weights":"c_w.json","kernel":3,"name":"first"}"#,
                r#"{"layer":"MaxPoolLayer","kernel":0,"name":"pool"}"#,
                r#"{"layer":"ReLULayer"}"#,
                r#"{"layer":"ConvLayer","weights":"c_w.json","kernel":[3,2],"stride":0,
                    "name":"second"}"#,
                r#"{"layer":"AffineLayer","weights":"c_w.json","biases":"c_b.json",
                    "name":"middle"}"#,
                r#"{"layer":"AffineLayer","weights":"s_w.json","biases":"s_b.json","name":"end"}"#,
            ],
            r#","input":{"shape":[2,6,5]},"output":{"kind":"values"}"#,
        ),
        (
            &[
                "layers[1]: expected two values of the same shape, or the second of 2, found \
                 2×6×5 and 2×3×2",
            ],
            &[
                r#"{"layer":"MaxPoolLayer","kernel":2,"name":"small"}"#,
                r#"{"layer":"AddLayer","inputs":["input","small"]}"#,
                r#"{"layer":"DepthwiseConvLayer","weights":"d_w.json","kernel":1}"#,
            ],
            r#","input":{"shape":[2,6,5]},"output":{"kind":"values"}"#,
        ),
        (
            &["layers[1] (lost): no layer reads its output"],
            &[
                r#"{"layer":"ConvLayer","weights":"c_w.json","kernel":[3,2]}"#,
                r#"{"layer":"ReLULayer","name":"lost"}"#,
                r#"{"layer":"TanhLayer","input":"layers[0]"}"#,
            ],
            r#","input":{"shape":[2,6,5]},"output":{"kind":"values"}"#,
        ),
        (
            &[
                "layers[1]: the shape of the network's input is not known; expected \"input\": \
                 {\"shape\": [channels",
            ],
            &[
                r#"{"layer":"ReLULayer"}"#,
                r#"{"layer":"ConvLayer","weights":"c_w.json","kernel":[3,2]}"#,
            ],
            values,
        ),
        (
            &["layers: expected at least one AffineLayer or ConvLayer, found none"],
            &[
                r#"{"layer":"ReLULayer"}"#,
                r#"{"layer":"MaxPoolLayer","kernel":2}"#,
            ],
            r#","input":{"shape":[2,6,5]},"output":{"kind":"values"}"#,
        ),
        (
            &[
                "layers[1]: expected a vector, a value for each class, found 4×4×4; a \
                 GlobalAveragePoolLayer",
            ],
            &[
                r#"{"layer":"ConvLayer","weights":"c_w.json","kernel":[3,2]}"#,
                r#"{"layer":"SoftmaxLayer"}"#,
            ],
            r#","input":{"shape":[2,6,5]}"#,
        ),
        (
            &["layers[0]: takes 7 inputs, the input gives 60"],
            &[r#"{"layer":"AffineLayer","weights":"s_w.json","biases":"s_b.json"}"#],
            r#","input":{"shape":[2,6,5]},"output":{"kind":"values"}"#,
        ),
        (
            &[
                "input: shape: expected [channels, height, width], or the length of a vector, \
                 found 2 numbers",
            ],
            &[r#"{"layer":"AffineLayer","weights":"s_w.json","biases":"s_b.json"}"#],
            r#","input":{"shape":[1,7]},"output":{"kind":"values"}"#,
        ),
        (
            &["input: shape: expected a whole number or a list of whole numbers, found \"2×6×5\""],
            &[r#"{"layer":"ConvLayer","weights":"c_w.json","kernel":[3,2]}"#],
            r#","input":{"shape":"2×6×5"},"output":{"kind":"values"}"#,
        ),
        (
            &["input: expected an object {…}, found [2,6,5]"],
            &[r#"{"layer":"ConvLayer","weights":"c_w.json","kernel":[3,2]}"#],
            r#","input":[2,6,5],"output":{"kind":"values"}"#,
        ),
        (
            &["input: order: expected chw or hwc, found \"whc\""],
            &[r#"{"layer":"AffineLayer","weights":"s_w.json","biases":"s_b.json"}"#],
            r#","input":{"shape":[1,7,1],"order":"whc"},"output":{"kind":"values"}"#,
        ),
        (
            &[
                "input: scale: expected one number or 60, one per input, or 2, one per channel, \
                 found 3",
            ],
            &[r#"{"layer":"ConvLayer","weights":"c_w.json","kernel":[3,2]}"#],
            r#","input":{"shape":[2,6,5],"scale":[1,2,3]},"output":{"kind":"values"}"#,
        ),
    ];
    for (expected, layers, extra) in cases {
        let f = NetworkFolder::new();
        f.weights("c", 4, 12).weights("s", 2, 7).weights("d", 2, 1);
        let found = f
            .network(&layers.join(","), layers.len(), extra)
            .read()
            .err()
            .unwrap_or_default();
        assert_eq!(found.len(), expected.len(), "{expected:?}: {found:#?}");
        for (found, expected) in found.iter().zip(*expected) {
            assert!(found.contains(expected), "{expected:?} is not in {found:?}");
        }
    }
}

/// A network can have several inputs and outputs with names. Inputs are parts of the record, and
/// outputs are parts of the scores.
#[test]
fn several_inputs_and_outputs() {
    let f = NetworkFolder::new();
    f.weights("c", 4, 4).weights("m", 3, 5).weights("e", 2, 32);
    let layers = [
        r#"{"layer":"ConvLayer","weights":"c_w.json","biases":"c_b.json","kernel":2,
            "input":"camera","name":"edges"}"#,
        r#"{"layer":"FlattenLayer"}"#,
        r#"{"layer":"AffineLayer","weights":"e_w.json","biases":"e_b.json"}"#,
        r#"{"layer":"SoftmaxLayer","name":"kind"}"#,
        r#"{"layer":"AffineLayer","weights":"m_w.json","biases":"m_b.json","input":"state"}"#,
        r#"{"layer":"TanhLayer","name":"motion"}"#,
    ];
    let inputs = r#""inputs":[{"name":"camera","shape":[1,3,5]},{"name":"state","shape":5}]"#;
    let put = |extra: &str| f.network(&layers.join(","), layers.len(), &format!(",{extra}"));
    put(&format!(r#"{inputs},"outputs":["motion","edges","kind"]"#));
    let ReadModel {
        network,
        tensors,
        golden,
        ..
    } = f.read().unwrap();
    assert_eq!((named(&network.inputs), named(&network.outputs)), {
        (
            "camera 1×3×5, state 5".to_string(),
            "motion 3, edges 4×2×4, kind 2".to_string(),
        )
    });
    assert_eq!(
        (network.width, network.outputs(), network.output.kind),
        (20, 37, Kind::Values)
    );
    assert!(golden.count > 0);
    // These weights are the ones that `weights` writes into the files.
    let raw: Vec<f64> = (0..20).map(|i| f64::from(i * 7 % 11) / 8.0 - 0.5).collect();
    let weight = |r: usize, c: usize| (r * 7 + c) as f64 % 5.0 - 2.0;
    let (camera, state) = raw.split_at(15);
    let affine = |x: &[f64], r: usize| {
        x.iter()
            .enumerate()
            .map(|(c, x)| weight(r, c) * x)
            .sum::<f64>()
            + r as f64
    };
    let edges: Vec<f64> = (0..32)
        .map(|i| {
            let (r, y, x) = (i / 8, i / 4 % 2, i % 4);
            let window =
                [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(ky, kx)| camera[(y + ky) * 5 + x + kx]);
            affine(&window, r)
        })
        .collect();
    let kind = [0, 1].map(|r| affine(&edges, r));
    let softmax = [0, 1].map(|r: usize| 1.0 / (1.0 + (kind[1 - r] - kind[r]).exp()));
    let motion = [0, 1, 2].map(|r| affine(state, r).tanh());
    let expected = [&motion[..], &edges, &softmax].concat();
    let found = network.scores(&tensors, &raw);
    assert_eq!(found.len(), expected.len());
    for (f, e) in found.iter().zip(&expected) {
        assert!((f - e).abs() < 1e-6, "{found:?} {expected:?}");
    }
    // All plans of the library compute this network.
    let settings = Settings {
        names: Names::Variables,
        root: PathBuf::from(env!("CARGO_MANIFEST_DIR")),
        model: f.path.clone(),
        plan: "host".into(),
        weights: Some(Precision::F32),
        sizes: Default::default(),
        arithmetic: Default::default(),
        quantize: None,
        changes: 1.0,
        lab: true,
    };
    assert!(bake(&settings).is_ok());

    let outputs = r#""outputs":["edges","kind","motion"]"#;
    let two = r#"{"name":"camera","shape":[1,3,5]},{"name":"state","shape":5}"#;
    for (extra, expected) in [
        (
            format!(r#"{inputs},"outputs":["edges","lost","edges"]"#),
            &[
                "outputs: expected names of layers, found \"lost\"",
                "outputs: \"edges\" appears twice",
            ][..],
        ),
        (
            format!(r#"{inputs},"outputs":["kind"]"#),
            &[
                "outputs: expected the names of at least two layers (the last layer is the output \
                 of a network with one), found 1",
            ],
        ),
        (
            format!(r#"{inputs},"outputs":["edges","kind"]"#),
            &[
                "layers[5] (motion): no layer reads its output; leave the layer out, or name it \
                 as an input or in \"outputs\"",
            ],
        ),
        (
            format!(r#""inputs":[{two},{{"name":"lost","shape":2}}],{outputs}"#),
            &[
                "inputs[2] (lost): no layer reads its output; leave the layer out, or name it as \
                 an input or in \"outputs\"",
            ],
        ),
        (
            format!(
                r#""inputs":[{two},{{"name":"state","shape":0}}],{outputs},"input":{{"shape":20}}"#
            ),
            &[
                "input: expected no shape, as each of \"inputs\" has one",
                "inputs[2]: shape: expected at least one value, found 0",
                "inputs[2]: name: \"state\" appears twice",
            ],
        ),
        (
            format!(r#""inputs":[{{"name":"camera","shape":[1,3,5]}}],{outputs}"#),
            &[
                "inputs: expected at least two, found 1; the shape of a single input belongs in \
                 \"input\"",
                "layers[4]: input: expected the name of an input or of a layer before this one, \
                 found \"state\"",
            ],
        ),
        (
            format!(r#"{inputs},{outputs},"output":{{"kind":"classes"}}"#),
            &["output: kind: expected values, as the network has 3 outputs, found classes"],
        ),
    ] {
        let found = put(&extra).read().err().unwrap_or_default();
        assert_eq!(found.len(), expected.len(), "{extra}: {found:#?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.contains(expected), "{expected:?} is not in {found:?}");
        }
    }
    // The first layer must name its input, because the network has several. A single output needs
    // no name, so this network predicts classes.
    let layers = [
        r#"{"layer":"ReLULayer"}"#,
        r#"{"layer":"AffineLayer","weights":"m_w.json","biases":"m_b.json","input":"state"}"#,
        r#"{"layer":"ReLULayer","input":"input"}"#,
    ];
    f.network(&layers.join(","), 3, &format!(",{inputs}"));
    let found = f.read().err().unwrap_or_default();
    assert_eq!(found.len(), 2, "{found:#?}");
    assert!(found[0].contains(
        "layers[0]: expected the key \"input\" with the name of one of the network's inputs"
    ));
    assert!(
        found[1].contains(
            "layers[2]: input: expected the name of an input or of a layer before this one"
        )
    );
    let layers = [
        r#"{"layer":"FlattenLayer","input":"camera"}"#,
        r#"{"layer":"ConcatLayer","inputs":["layers[0]","state"]}"#,
        r#"{"layer":"AffineLayer","weights":"j_w.json","biases":"j_b.json"}"#,
        r#"{"layer":"SoftmaxLayer"}"#,
    ];
    f.weights("j", 3, 20)
        .network(&layers.join(","), 4, &format!(",{inputs}"));
    let ReadModel {
        network, tensors, ..
    } = f.read().unwrap();
    assert_eq!(
        (network.output.kind, network.output.activation),
        (Kind::Classes, FinalActivation::Softmax)
    );
    let found = network.scores(&tensors, &raw);
    (0..3).for_each(|r| assert!((found[r] - affine(&raw, r)).abs() < 1e-6, "{found:?}"));
}

/// Large records have fewer golden vectors, but at least two. Many golden vectors of full-HD images
/// would take most of the program's bytes.
#[test]
fn wide_records_have_fewer_golden_vectors() {
    for (size, expected) in [("3,8,8", 32), ("3,96,96", 4), ("3,540,960", 2)] {
        let f = NetworkFolder::new();
        f.weights("c", 1, 3);
        let layer = r#"{"layer":"ConvLayer","weights":"c_w.json","biases":"c_b.json","kernel":1,
            "stride":8}"#;
        f.network(
            layer,
            1,
            &format!(r#","input":{{"shape":[{size}]}},"output":{{"kind":"values"}}"#),
        );
        let ReadModel {
            network, golden, ..
        } = f.read().unwrap();
        assert_eq!(
            (golden.count, golden.inputs.len()),
            (expected, expected * network.width),
            "{size}"
        );
    }
}

/// The convolutional networks in this package are read with the expected shapes and golden vectors.
#[test]
fn the_packages_networks_are_read() {
    let model = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("model");
    let ReadModel {
        network, golden, ..
    } = read(model.join("mnist-conv")).unwrap();
    assert_eq!(network.shape(), "1×28×28-20×24×24-40×8×8-150-10 relu");
    assert_eq!(
        (network.labels.len(), golden.count, golden.given),
        (10, 48, true)
    );
    assert_eq!(network.flop(), {
        let affine = 640 * 150 + 150 * 10;
        2 * (20 * 24 * 24 * 25 + 40 * 8 * 8 * 25 * 20 + affine) + 4 * (20 * 12 * 12 + 40 * 4 * 4)
    });

    let ReadModel {
        network, golden, ..
    } = read(model.join("cifar-conv")).unwrap();
    assert_eq!(
        network.shape(),
        "3×32×32-32×32×32-32×16×16-16×8×8-128-10 relu"
    );
    assert_eq!(
        (network.order, golden.count, golden.given),
        (InputOrder::Hwc, 24, true)
    );
}
