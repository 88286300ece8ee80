//! Models of `tests/onnx` against what ONNX Runtime (or scikit-learn) makes of the same records, and what is refused.

use crate::bake::model::Read;
use crate::bake::{Mistakes, Settings, front};
use crate::ir::network::{FinalActivation, InputOrder, Kind, Network, Precision, Transform};
use crate::ir::npy;
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

#[test]
fn try_all() {
    let mut names: Vec<String> = std::fs::read_dir(folder())
        .unwrap()
        .flatten()
        .filter_map(|e| e.file_name().to_str()?.strip_suffix(".onnx").map(String::from))
        .collect();
    names.sort();
    for name in names {
        match read(&folder().join(format!("{name}.onnx"))) {
            Err(m) => println!("{name}: {m:#?}"),
            Ok(((network, tensors, ..), files)) => {
                let ops: Vec<&str> = network.graph.nodes.iter().map(|n| n.op.name()).collect();
                println!(
                    "{name}: {:?} {:?} {:?} {:?} {} {:?} [{}] {}",
                    network.output.kind,
                    network.output.activation,
                    network.labels,
                    network.order,
                    network.transform != Transform::Identity,
                    network.folded,
                    network.shape(),
                    ops.join(" "),
                );
                let _ = (files.len(), InputOrder::Chw);
                let (x, e) = (rows(&format!("{name}.inputs.npy")), rows(&format!("{name}.outputs.npy")));
                for how in [Outputs::Scores, Outputs::Activated, Outputs::Logarithms, Outputs::Pair] {
                    let worst = x
                        .iter()
                        .zip(&e)
                        .map(|(x, e)| {
                            let f = outputs(&network, network.scores(&tensors, x), how);
                            if f.len() != e.len() {
                                return f64::INFINITY;
                            }
                            f.iter().zip(e).map(|(a, b)| (a - b).abs() / b.abs().max(1.0)).fold(0.0, f64::max)
                        })
                        .fold(0.0, f64::max);
                    println!("   {worst:.2e}");
                }
            }
        }
    }
    let _ = check;
}
