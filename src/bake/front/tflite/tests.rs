//! Models of `tests/tflite` against what the interpreter makes of the same records, and what is refused.

use crate::bake::front::fixtures::{self, Folder, Outputs, read_with_notes};
use crate::ir::network::{FinalActivation, InputOrder, Kind};

const CLASSES: (Kind, FinalActivation) = (Kind::Classes, FinalActivation::Softmax);

#[test]
fn networks_give_what_their_models_give() {
    use Outputs::*;
    let binary = (Kind::Binary, FinalActivation::Sigmoid);
    let list = [
        ("cnn", "", "", CLASSES, Activated),
        ("cnn_f16", "", "", CLASSES, Activated),
        ("residual", "", "", CLASSES, Scores),
        ("mobile", "", "", CLASSES, Scores),
        ("line", "", "", binary, Activated),
        ("functions", "", "", CLASSES, Logarithms),
        ("moves", "", "", CLASSES, Scores),
        ("slopes", "", "", CLASSES, Scores),
        ("image", "", "", (Kind::Values, FinalActivation::Sigmoid), Activated),
        ("label", "", "", CLASSES, Class),
        ("behind", "", "", CLASSES, Scores),
        ("fused", "", "", CLASSES, Scores),
    ];
    let mut wrong = Vec::new();
    for (name, shape, ops, meaning, how) in list {
        let path = fixtures::folder("tflite").join(format!("{name}.tflite"));
        let r = std::panic::catch_unwind(|| {
            fixtures::check(&path, (shape, ops), meaning, how, 1e-4);
        });
        if r.is_err() {
            wrong.push(name);
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn quantised() {
    for name in
        ["cnn_dynamic", "cnn_int8", "cnn_int8_ends", "cnn_uint8_ends", "residual_int8", "mobile_int8_ends"]
    {
        let path = fixtures::folder("tflite").join(format!("{name}.tflite"));
        let (read, _, mistakes) = read_with_notes(&path);
        let Some((network, tensors, ..)) = read else {
            println!("{name} {:?}", mistakes.0);
            continue;
        };
        println!("{name} {:?}", mistakes.notes());
        let (inputs, expected) = (
            fixtures::rows(&path.with_extension("inputs.npy")),
            fixtures::rows(&path.with_extension("outputs.npy")),
        );
        for (x, e) in inputs.iter().zip(&expected) {
            let mut f = network.scores(&tensors, x);
            if name.starts_with("cnn") {
                network.output.activation.apply(&mut f);
            }
            let worst = f.iter().zip(e).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            println!("{worst:.4} {:.3?} {:.3?}", f, e);
        }
    }
}

#[test]
fn refusals() {
    for name in [
        "operators",
        "options",
        "subgraphs",
        "inputs",
        "sparse",
        "four_bits",
        "open_size",
        "version",
        "outputs",
    ] {
        let f = Folder::new("tflite");
        f.copy(&format!("refused_{name}"));
        println!("{name}");
        for m in f.mistakes() {
            println!("    {m}");
        }
    }
}
