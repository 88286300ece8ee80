//! Tests whole models on every engine. The expected answers come from other programs, such as ONNX
//! Runtime.

use crate::bake::front::fixtures::{self, rows};
use crate::baked::library;
use crate::cl::{self, Device};
use crate::engine::host::HostEngine;
use crate::engine::model::{Model, recipe};
use crate::engine::opencl::{OpenClEngine, Wanted};
use crate::engine::sources::Sources;
use crate::engine::{Engine, SLOTS};
use crate::ir::graph::Tensors;
use crate::ir::network::{Kind, Network};
use crate::observe::profile::Phases;
use crate::ops::bound::score_bound;
use crate::registry::EngineKind;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The predicted class and the scores of each record. The class is `None` if the network predicts
/// none.
type ModelAnswers = Vec<(Option<u32>, Vec<f64>)>;

/// Runs the script `tests/needs NAME`, which installs what a test needs. Returns the folder whose
/// path the script prints.
pub(crate) fn needs(name: &str) -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/needs");
    let made = std::process::Command::new(script)
        .arg(name)
        .output()
        .unwrap();
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    PathBuf::from(String::from_utf8(made.stdout).unwrap().trim_end())
}

/// A network with its weights, and the records that tests compute with it.
struct TestedModel {
    network: Network,
    tensors: Tensors,
    records: Vec<Vec<f64>>,
}

impl TestedModel {
    /// Reads a model file as the build does, which also checks the model's golden vectors.
    fn read(model: &Path, records: Vec<Vec<f64>>) -> TestedModel {
        let read = fixtures::read(model)
            .unwrap_or_else(|e| panic!("{}: {}", model.display(), e.join("\n")));
        assert!(read.golden.count > 1, "{}", model.display());
        TestedModel {
            network: read.network,
            tensors: read.tensors,
            records,
        }
    }

    /// Returns the answers to all records, computed in float64 without an engine.
    fn reference(&self) -> ModelAnswers {
        let scores = self
            .records
            .iter()
            .map(|x| self.network.scores(&self.tensors, x));
        scores
            .map(|scores| (self.network.class(&scores), scores))
            .collect()
    }

    /// Returns the answers of an engine to all records. The engine gets batches of at most `batch`
    /// records, in both slots in turn.
    fn run(&self, engine: &mut dyn Engine, batch: usize) -> ModelAnswers {
        let mut answers = ModelAnswers::new();
        for (turn, part) in self.records.chunks(batch.min(engine.batch())).enumerate() {
            let slot = turn % SLOTS;
            for (n, raw) in part.iter().enumerate() {
                let mut record = engine.record(slot, n).unwrap();
                let seen = raw
                    .iter()
                    .enumerate()
                    .map(|(i, &x)| self.network.transform.apply(i, x) as f32);
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

    fn on_opencl(&self, device: &Device, model: &Model, batch: usize) -> ModelAnswers {
        let wanted = Wanted {
            scores: true,
            classes: self.network.output.kind == Kind::Classes,
        };
        let sources = Sources::default().uncached();
        let engine = OpenClEngine::new(
            device,
            model,
            wanted,
            false,
            &sources,
            &mut Phases::default(),
        );
        self.run(
            &mut engine.unwrap_or_else(|e| panic!("{}: {e}", model.plan.name)),
            batch,
        )
    }

    fn on_host(&self, threads: usize, batch: usize) -> ModelAnswers {
        let recipe = recipe("host", EngineKind::Host).unwrap();
        let model =
            Model::new(self.network.clone(), &self.tensors, recipe, library(), None).unwrap();
        self.run(&mut HostEngine::new(model, threads, false).unwrap(), batch)
    }
}

/// The answers that an engine's answers are compared with. They come from another program, or from
/// the same network computed in float64.
struct ExpectedAnswers {
    scores: Vec<Vec<f64>>,
    /// The scores after the final activation.
    results: Vec<Vec<f64>>,
    classes: Vec<Option<u32>>,
}

impl ExpectedAnswers {
    /// Computes the expected answers from the network in float64.
    fn of(given: &TestedModel) -> ExpectedAnswers {
        let (classes, scores): (_, Vec<Vec<f64>>) = given.reference().into_iter().unzip();
        let mut results = scores.clone();
        results
            .iter_mut()
            .for_each(|values| given.network.output.activation.apply(values));
        ExpectedAnswers {
            scores,
            results,
            classes,
        }
    }

    /// Compares predicted classes, scores, and results of the final activation with the expected
    /// ones. Adds each wrong class to `failed`, and the worst number if its error exceeds `bound`.
    /// `bound` gets the largest expected number of all records, the expected numbers of the record,
    /// and the expected number. Returns the largest error as a multiple of its bound.
    fn compare(
        &self,
        given: &TestedModel,
        answers: &ModelAnswers,
        bound: fn(f64, &[f64], f64) -> f64,
        place: &str,
        failed: &mut Vec<String>,
    ) -> f64 {
        assert_eq!(
            (answers.len(), self.scores.len()),
            (self.classes.len(), self.results.len()),
            "{place}"
        );
        let (mut worst, mut message) = (0.0, String::new());
        let [most_score, most_result] =
            [&self.scores, &self.results].map(|records| largest(&records.concat()));
        for (n, (class, scores)) in answers.iter().enumerate() {
            if *class != self.classes[n] {
                failed.push(format!(
                    "{place}: record {n}: class {class:?}, expected {:?}",
                    self.classes[n]
                ));
            }
            let mut results = scores.clone();
            given.network.output.activation.apply(&mut results);
            let pairs = [
                (scores, &self.scores[n], most_score),
                (&results, &self.results[n], most_result),
            ];
            for (found, expected, most) in pairs {
                assert_eq!(found.len(), expected.len(), "{place}");
                for (f, &e) in found.iter().zip(expected) {
                    let excess = (f - e).abs() / bound(most, expected, e);
                    let excess = if excess.is_nan() {
                        f64::INFINITY
                    } else {
                        excess
                    };
                    if excess > worst {
                        worst = excess;
                        message = format!("{place}: record {n}: {f}, expected {e}");
                    }
                }
            }
        }
        failed.extend((worst > 1.0).then_some(message));
        worst
    }
}

/// Returns the largest absolute value, or 0 for an empty slice.
fn largest(values: &[f64]) -> f64 {
    values.iter().fold(0.0, |most, v| most.max(v.abs()))
}

/// The folders of networks that machine-learning frameworks trained. Each folder is listed with the
/// model files that exporters wrote into it.
const TRAINED: [(&str, &[&str]); 8] = [
    ("sklearn-digits", &["network.json", "skl2onnx.onnx"]),
    ("sklearn-wine", &["network.json", "skl2onnx.onnx"]),
    ("sklearn-cancer", &["network.json", "skl2onnx.onnx"]),
    ("sklearn-iris", &["network.json", "skl2onnx.onnx"]),
    ("keras-cnn", &["net.tflite", "keras.tflite", "keras.onnx"]),
    (
        "torch-cnn",
        &["net.onnx", "torch.onnx", "torch_script.onnx"],
    ),
    (
        "torch-residual",
        &["net.onnx", "torch.onnx", "torch_script.onnx"],
    ),
    (
        "torch-mobile",
        &["net.onnx", "torch.onnx", "torch_script.onnx"],
    ),
];

/// Tests that all records get the class that the framework predicts. Scores and probabilities must
/// differ from the framework's by at most 1e-4 · max(1, |value|). The networks are computed in
/// float64 and on the host engine.
#[test]
#[ignore = "long: tests/long.py"]
fn networks_of_frameworks_give_what_their_frameworks_give() {
    let root = needs("exporters");
    // The file `missing` lists the frameworks that `tests/needs` could not install. Their networks
    // are skipped.
    let missing = std::fs::read_to_string(root.join("missing")).unwrap_or_default();
    let mut failed = Vec::new();
    for (name, files) in TRAINED {
        if missing.lines().any(|framework| name.starts_with(framework)) {
            continue;
        }
        let folder = root.join(name);
        let [inputs, scores, results, classes] = ["inputs", "scores", "results", "classes"]
            .map(|what| rows(&folder.join(format!("{what}.npy"))));
        let classes: Vec<Option<u32>> = classes.iter().map(|c| Some(c[0] as u32)).collect();
        assert!(
            inputs.len() >= 150 && classes.iter().any(|c| *c != classes[0]),
            "{name}"
        );
        let expected = ExpectedAnswers {
            scores,
            results,
            classes,
        };
        let labels = std::fs::read_to_string(folder.join("labels.txt")).unwrap_or_default();
        for file in files {
            let given = TestedModel::read(&folder.join(file), inputs.clone());
            // A class without a name has its index as its label.
            let names = &given.network.labels;
            let label = |i: usize| names.get(i).map_or(i.to_string(), |l| l.to_string());
            if !labels.lines().enumerate().all(|(i, l)| l == label(i)) {
                failed.push(format!(
                    "{name}/{file}: labels {names:?}, expected {labels}"
                ));
            }
            let mut most = 0f64;
            for (engine, answers) in [
                ("float64", given.reference()),
                ("host, batches", given.on_host(2, 256)),
                ("host, single records", given.on_host(1, 1)),
            ] {
                let place = format!("{name}/{file}, {engine}");
                let bound = |_: f64, _: &[f64], e: f64| score_bound(e);
                most = most.max(expected.compare(&given, &answers, bound, &place, &mut failed));
            }
            println!(
                "{name}/{file}: {} records, at most {most:.3} of the bound off",
                inputs.len()
            );
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

/// Tests networks with the shapes of MLPerf Tiny, read from ONNX and from TensorFlow Lite files.
/// They run on the host engine and on PoCL with every plan, record by record and in one batch.
/// Classes must equal those of ONNX Runtime. Numbers may differ from ONNX Runtime's by 1e-4 of its
/// largest number. From the results in float64 they may differ by 1e-4 · max(1, largest number of
/// the record).
#[test]
#[ignore = "long: tests/long.py"]
fn networks_of_the_zoo_are_right_on_every_engine_and_plan() {
    let root = needs("zoo");
    let all = cl::devices(cl::ClLibrary::open().expect("the tests need OpenCL")).unwrap();
    let mut failed = Vec::new();
    for name in ["autoencoder", "ds-cnn", "resnet-8", "mobilenet-v1-0.25"] {
        let [inputs, scores, results] = ["inputs", "scores", "results"]
            .map(|what| rows(&root.join(format!("{name}_{what}.npy"))));
        let most = inputs.len();
        for format in ["onnx", "tflite"] {
            let start = Instant::now();
            let given = TestedModel::read(&root.join(format!("{name}.{format}")), inputs.clone());
            let network = &given.network;
            let classes = scores.iter().map(|s| network.class(s)).collect();
            let expected = ExpectedAnswers {
                scores: scores.clone(),
                results: results.clone(),
                classes,
            };
            let own = ExpectedAnswers::of(&given);
            let mut check = |place: &str, answers: ModelAnswers| {
                let place = format!("{name}.{format}, {place}");
                let theirs = expected.compare(
                    &given,
                    &answers,
                    |most, _, _| 1e-4 * most,
                    &place,
                    &mut failed,
                );
                let bound = |_: f64, record: &[f64], _: f64| score_bound(largest(record));
                let ours = own.compare(&given, &answers, bound, &place, &mut failed);
                let took = start.elapsed().as_secs_f64();
                println!("{place}: {theirs:.3} and {ours:.3} of the bounds off, {took:.1} s");
            };
            check("float64", given.reference());
            for (threads, batch) in [(1, 1), (1, most), (2, 1), (2, most)] {
                let place = format!("host, {threads} threads, batches of {batch}");
                check(&place, given.on_host(threads, batch));
            }
            for recipe in library()
                .plans
                .iter()
                .filter(|p| p.engine == EngineKind::OpenCl)
            {
                for batch in [1, most] {
                    let model = Model::new(
                        network.clone(),
                        &given.tensors,
                        recipe,
                        library(),
                        Some(batch),
                    );
                    let model = model.unwrap_or_else(|e| panic!("{name}.{format}: {e}"));
                    // If one launch computes all layers of the model, the plan with one launch for
                    // each layer is checked, too.
                    let single = model.simpler().last().map(|(_, simpler)| simpler);
                    for model in [Some(model), single].iter().flatten() {
                        let place = format!("{}, batches of {batch}", model.plan.name);
                        check(&place, given.on_opencl(&all.devices[0], model, batch));
                    }
                }
            }
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}
