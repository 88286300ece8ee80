//! The build's front ends read the fuzzer's bytes in place of a file. Other files are those of the
//! tests.

use super::{Files, Source, onnx, tflite, thesis};
use crate::bake::model::ReadModel;
use crate::bake::{Mistakes, Names, Settings};
use crate::baked::library;
use crate::engine::model;
use crate::fuzzing::{Input, canonical, edited, told};
use crate::ir::network::Precision;
use crate::planner;
use crate::registry::EngineKind;
use std::path::{Path, PathBuf};

type FrontEnd = fn(&Source<'_>, &mut Files<'_>, &mut Mistakes) -> Option<ReadModel>;

/// Reads `bytes` as the content of `file` below `tests`.
fn read(front_end: FrontEnd, file: &str, bytes: &[u8], weights: Precision) {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests");
    let path = root.join(file);
    let settings = Settings {
        names: Names::Variables,
        root: root.clone(),
        model: path.clone(),
        weights: Some(weights),
        sizes: Default::default(),
        arithmetic: Default::default(),
        quantize: None,
        changes: 1.0,
        plan: "host".into(),
        lab: true,
    };
    let (mut found, mut mistakes) = (Vec::new(), Mistakes::default());
    let source = Source {
        settings: &settings,
        path: &path,
        bytes,
    };
    let read = front_end(
        &source,
        &mut Files {
            root: &root,
            read: &mut found,
        },
        &mut mistakes,
    );
    told(read.is_some(), &mistakes);
    let Some(ReadModel {
        network,
        tensors,
        golden,
        ..
    }) = read
    else {
        return;
    };
    canonical(&network);
    let graph = &network.graph;
    assert_eq!(network.width, network.input().len());
    assert_eq!(tensors.len(), graph.tensors.len());
    for (numbers, tensor) in tensors.iter().zip(graph.tensors.iter()) {
        assert_eq!(numbers.len(), tensor.rows * tensor.cols, "{}", tensor.name);
        assert!(numbers.iter().all(|x| x.is_finite()), "{}", tensor.name);
    }
    assert_eq!(golden.inputs.len(), golden.count * network.width);
    assert_eq!(golden.scores.len(), golden.count * network.outputs());
    // The shapes that the build states equal those of the values, for the first golden vector.
    if let Some(record) = golden
        .inputs
        .get(..network.width)
        .filter(|_| golden.count > 0)
    {
        let raw: Vec<f64> = record.iter().map(|&x| x.into()).collect();
        let scores = network.scores(&tensors, &raw);
        assert_eq!(scores.len(), network.outputs());
        for (&score, &given) in scores.iter().zip(&golden.scores) {
            let near = (score - f64::from(given)).abs() <= 1e-4 * score.abs().max(1.0);
            assert!(
                near || weights == Precision::F16,
                "golden: {given}, in float64 {score}"
            );
        }
    }
    // The network is too large to plan, or its plan is right.
    let recipe = model::recipe("host", EngineKind::Host).expect("the library has it");
    if let Ok(plan) = planner::plan(&network, recipe, library(), Some(16)) {
        assert_eq!(
            planner::check::check(&plan, &network, library()),
            Vec::<String>::new()
        );
    }
}

pub fn onnx(data: &[u8]) {
    read(onnx::read, "onnx/fuzzed.onnx", data, Precision::F32);
}

pub fn tflite(data: &[u8]) {
    read(tflite::read, "tflite/fuzzed.tflite", data, Precision::F32);
}

/// Reads a network JSON of any bytes, or one of the tests with changed members.
pub fn network(data: &[u8]) {
    const FOLDERS: [&str; 4] = [
        "fixtures/torch_values",
        "fixtures/layers/residual",
        "fixtures/layers/elements",
        "fixtures/layers/mobile",
    ];
    let mut input = Input(data);
    let folder = FOLDERS[input.below(FOLDERS.len())];
    let (weights, changed) = (input.byte(), input.flag());
    let weights = if weights & 1 == 0 {
        Precision::F32
    } else {
        Precision::F16
    };
    let file = Path::new(folder).join("network.json");
    let text = match changed {
        true => {
            let path = Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("tests")
                .join(&file);
            let text = std::fs::read_to_string(path).expect("it is there");
            edited(serde_json::from_str(&text).expect("it is JSON"), &mut input)
        }
        false => input.0.to_vec(),
    };
    read(
        thesis::read,
        file.to_str().expect("it is ASCII"),
        &text,
        weights,
    );
}
