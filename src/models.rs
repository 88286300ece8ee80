//! Whole models, as the build reads them, on every engine, against what other programs make of the same records.

use crate::bake::front::fixtures::{self, rows};
use crate::baked::library;
use crate::cl;
use crate::engine::host::HostEngine;
use crate::engine::model::{Model, recipe};
use crate::engine::opencl::{OpenClEngine, Wanted};
use crate::engine::sources::Sources;
use crate::engine::{Engine, SLOTS};
use crate::ir::graph::Tensors;
use crate::ir::network::{Kind, Network};
use crate::observe::profile::Phases;
use crate::ops::bound::{score_bound, too_close};
use crate::registry::EngineKind;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Classes and scores of records.
type Answers = Vec<(Option<u32>, Vec<f64>)>;

/// The folder that an environment variable names; `tests/run --all` sets it.
fn folder(variable: &str) -> PathBuf {
    PathBuf::from(std::env::var_os(variable).unwrap_or_else(|| panic!("{variable} is not set")))
}

/// A model's network and weights, with records.
struct Given {
    network: Network,
    tensors: Tensors,
    records: Vec<Vec<f64>>,
}

impl Given {
    /// Reads a model as the build does, which checks the golden vectors beside it.
    fn read(model: &Path, records: Vec<Vec<f64>>) -> Given {
        let ((network, tensors, golden, _), _) =
            fixtures::read(model).unwrap_or_else(|e| panic!("{}: {}", model.display(), e.join("\n")));
        assert!(golden.count > 1, "{}", model.display());
        Given { network, tensors, records }
    }

    /// In float64.
    fn reference(&self) -> Answers {
        let scores = self.records.iter().map(|x| self.network.scores(&self.tensors, x));
        scores.map(|scores| (self.network.class(&scores), scores)).collect()
    }

    /// By an engine, in batches of at most `batch`, both slots by turns.
    fn run(&self, engine: &mut dyn Engine, batch: usize) -> Answers {
        let mut answers = Answers::new();
        for (turn, part) in self.records.chunks(batch.min(engine.batch())).enumerate() {
            let slot = turn % SLOTS;
            for (n, raw) in part.iter().enumerate() {
                let mut record = engine.record(slot, n).unwrap();
                let seen = raw.iter().enumerate().map(|(i, &x)| self.network.transform.apply(i, x) as f32);
                seen.enumerate().for_each(|(i, x)| record.set(i, x));
            }
            engine.submit(slot, part.len()).unwrap();
            engine.collect(slot).unwrap();
            answers.extend((0..part.len()).map(|n| {
                let answer = engine.answer(slot, n);
                let scores: Vec<f64> = answer.scores.iter().map(f64::from).collect();
                let class = match self.network.output.kind {
                    Kind::Classes => answer.class,
                    _ => self.network.class(&scores),
                };
                (class, scores)
            }));
        }
        answers
    }

    fn on_host(&self, threads: usize, batch: usize) -> Answers {
        let recipe = recipe("host", EngineKind::Host).unwrap();
        let model = Model::new(self.network.clone(), &self.tensors, recipe, library(), None).unwrap();
        self.run(&mut HostEngine::new(model, threads, false).unwrap(), batch)
    }
}

/// The largest error in units of `bound` (of the record's expected values and one of them), and where it is.
fn worst(
    found: impl Iterator<Item = Vec<f64>>,
    expected: &[Vec<f64>],
    bound: impl Fn(&[f64], f64) -> f64,
) -> (f64, String) {
    let (mut worst, mut records) = ((0.0, String::new()), 0);
    for (found, expected) in found.zip(expected) {
        assert_eq!(found.len(), expected.len());
        for (i, (f, &e)) in found.iter().zip(expected).enumerate() {
            let excess = (f - e).abs() / bound(expected, e);
            if excess > worst.0 || excess.is_nan() {
                let text =
                    format!("record {records}, value {i}: {f}, expected {e}, {excess:.2} of the bound");
                worst = (if excess.is_nan() { f64::INFINITY } else { excess }, text);
            }
        }
        records += 1;
    }
    assert_eq!(records, expected.len());
    worst
}

/// Networks of frameworks, each with the files that exporters have made of it.
const TRAINED: [(&str, &[&str]); 8] = [
    ("sklearn-digits", &["network.json", "skl2onnx.onnx"]),
    ("sklearn-wine", &["network.json", "skl2onnx.onnx"]),
    ("sklearn-cancer", &["network.json", "skl2onnx.onnx"]),
    ("sklearn-iris", &["network.json", "skl2onnx.onnx"]),
    ("keras-cnn", &["keras.tflite", "keras.onnx"]),
    ("torch-cnn", &["net.onnx", "torch.onnx", "torch_script.onnx"]),
    ("torch-residual", &["net.onnx", "torch.onnx", "torch_script.onnx"]),
    ("torch-mobile", &["net.onnx", "torch.onnx", "torch_script.onnx"]),
];

/// Of all records: the classes of the framework, its scores and probabilities within 1e-4 · max(1, |value|), in float64 and
/// on the host.
#[test]
#[ignore = "needs the folder that tests/exporters/make.py has written in MORTONNET_EXPORTERS"]
fn networks_of_frameworks_give_what_their_frameworks_give() {
    let root = folder("MORTONNET_EXPORTERS");
    // Frameworks that tests/run could not install.
    let missing = std::fs::read_to_string(root.join("missing")).unwrap_or_default();
    let mut failed = Vec::new();
    for (name, files) in TRAINED {
        if missing.lines().any(|framework| name.starts_with(framework)) {
            continue;
        }
        let folder = root.join(name);
        let [inputs, scores, results, classes] =
            ["inputs", "scores", "results", "classes"].map(|what| rows(&folder.join(format!("{what}.npy"))));
        let classes: Vec<Option<u32>> = classes.iter().map(|c| Some(c[0] as u32)).collect();
        assert!(inputs.len() >= 150 && classes.iter().any(|c| *c != classes[0]), "{name}");
        let labels = std::fs::read_to_string(folder.join("labels.txt")).unwrap_or_default();
        for file in files {
            let given = Given::read(&folder.join(file), inputs.clone());
            let network = &given.network;
            // A class without a name is called by its index.
            let label = |i: usize| network.labels.get(i).map_or(i.to_string(), |l| l.to_string());
            if !labels.lines().enumerate().all(|(i, l)| l == label(i)) {
                failed.push(format!("{name}/{file}: labels {:?}, expected {labels}", network.labels));
            }
            for (where_, answers) in [
                ("float64", given.reference()),
                ("host, batches", given.on_host(2, 256)),
                ("host, single records", given.on_host(1, 1)),
            ] {
                let place = format!("{name}/{file}, {where_}");
                let found = answers.iter().map(|a| a.1.clone());
                let probabilities = found.clone().map(|mut values| {
                    network.output.activation.apply(&mut values);
                    values
                });
                let bound = |_: &[f64], e| score_bound(e);
                let activated = results != scores;
                let (first, last) = (
                    worst(found, &scores, bound),
                    if activated { worst(probabilities, &results, bound) } else { (0.0, String::new()) },
                );
                println!("{place}: scores {:.4} of the bound, probabilities {:.4}", first.0, last.0);
                failed.extend(
                    [first, last].into_iter().filter(|w| w.0 > 1.0).map(|w| format!("{place}: {}", w.1)),
                );
                let other = answers.iter().zip(&classes).filter(|(a, c)| a.0 != **c).count();
                if other > 0 {
                    failed.push(format!("{place}: {other} other classes of {}", classes.len()));
                }
            }
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

/// Networks of the shapes of MLPerf Tiny: ONNX Runtime's results within 1e-4 of a record's largest, and its classes, from
/// either format, on the host and on PoCL under every plan, record by record and in a batch.
#[test]
#[ignore = "needs the folder that tests/zoo/make.py has written in MORTONNET_ZOO"]
fn networks_of_the_zoo_are_right_on_every_engine_and_plan() {
    let root = folder("MORTONNET_ZOO");
    let all = cl::devices(cl::Library::open().expect("the tests need OpenCL")).unwrap();
    let mut failed = Vec::new();
    for name in ["autoencoder", "ds-cnn", "resnet-8", "mobilenet-v1-0.25"] {
        let [inputs, scores, results] =
            ["inputs", "scores", "results"].map(|what| rows(&root.join(format!("{name}_{what}.npy"))));
        for format in ["onnx", "tflite"] {
            let start = Instant::now();
            let given = Given::read(&root.join(format!("{name}.{format}")), inputs.clone());
            let network = &given.network;
            let mut check = |place: &str, answers: Answers| {
                let found = answers.iter().map(|a| a.1.clone());
                let last = found.clone().map(|mut values| {
                    network.output.activation.apply(&mut values);
                    values
                });
                let bound = |all: &[f64], _| 1e-4 * all.iter().fold(0.0, |a: f64, b| a.max(b.abs()));
                let errors = [worst(found, &scores, bound), worst(last, &results, bound)];
                let largest = errors[0].0.max(errors[1].0);
                let place = format!("{name}.{format}, {place}");
                println!("{place}: {largest:.3} of the bound, {:.1} s", start.elapsed().as_secs_f64());
                failed.extend(errors.into_iter().filter(|w| w.0 > 1.0).map(|w| format!("{place}: {}", w.1)));
                for (n, ((class, _), scores)) in answers.iter().zip(&scores).enumerate() {
                    if *class != network.class(scores) && !too_close(scores) {
                        failed.push(format!("{place}: record {n}: class {class:?}"));
                    }
                }
            };
            check("float64", given.reference());
            for (threads, batch) in [(1, 1), (1, 12), (2, 1), (2, 12)] {
                let place = format!("host, {threads} threads, batches of {batch}");
                check(&place, given.on_host(threads, batch));
            }
            for recipe in library().plans.iter().filter(|p| p.engine == EngineKind::OpenCl) {
                let single = library().layer_by_layer(recipe);
                for (recipe, kind) in [(Some(recipe.clone()), ""), (single, ", layer by layer")] {
                    let Some(recipe) = recipe else { continue };
                    for batch in [1, inputs.len()] {
                        let model = Model::new(
                            given.network.clone(),
                            &given.tensors,
                            &recipe,
                            library(),
                            Some(batch),
                        )
                        .unwrap();
                        let mut engine = OpenClEngine::new(
                            &all.devices[0],
                            &model,
                            Wanted { scores: true, classes: network.output.kind == Kind::Classes },
                            false,
                            &Sources::default().uncached(),
                            &mut Phases::default(),
                        )
                        .unwrap();
                        let place = format!("{}{kind}, batches of {batch}", recipe.name);
                        check(&place, given.run(&mut engine, batch));
                    }
                }
            }
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}
