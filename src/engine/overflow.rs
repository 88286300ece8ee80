//! Tests of numbers near the limit of f32, on every engine and plan. A record is refused, or has
//! the same class as in float64. A record that stays far from the limit is never refused.

use super::host::HostEngine;
use super::opencl::{OpenClEngine, Wanted};
use super::{Engine, NAN_CLASS};
use crate::baked::library;
use crate::cl;
use crate::engine::model::Model;
use crate::engine::sources::Sources;
use crate::ir::graph::{Graph, Role, Shape};
use crate::ir::network::{Kind, Network, Output, Transform};
use crate::ir::op::{Activation, Op};
use crate::observe::profile::Phases;
use crate::ops::random::Random;
use crate::registry::EngineKind;

/// The float64 answer for a record.
struct Truth {
    /// Each float64 score, with the largest error that rounding in f32 can cause.
    scores: Vec<(f64, f64)>,
    /// True if no sum of the record can overflow f32, in any order of its terms.
    harmless: bool,
}

struct Case {
    network: Network,
    tensors: Vec<Vec<f32>>,
    records: Vec<Vec<f32>>,
}

impl Case {
    fn new(rows: &[(Vec<f32>, Vec<f32>)], activation: Activation, records: Vec<Vec<f32>>) -> Case {
        let mut graph = Graph::new(Shape::vector(records[0].len()));
        let (mut tensors, mut value) = (Vec::new(), 0);
        for (i, (w, b)) in rows.iter().enumerate() {
            if i > 0 {
                value = graph
                    .push("activation", Op::Activation(activation), &[value], &[])
                    .unwrap();
            }
            let arrays = [
                (Role::Weights, b.len(), w.len() / b.len()),
                (Role::Biases, b.len(), 1),
            ];
            value = graph.push("affine", Op::Affine, &[value], &arrays).unwrap();
            tensors.extend([w.clone(), b.clone()]);
        }
        let network = Network {
            width: records[0].len(),
            graph,
            output: Output {
                kind: Kind::Classes,
                ..crate::baked::network().output
            },
            labels: Vec::new().into(),
            features: Vec::new().into(),
            transform: Transform::Identity,
            ..crate::baked::network().clone()
        };
        Case {
            network,
            tensors,
            records,
        }
    }

    /// Makes a case with random weights of sizes from 0.001 to 10, and inputs up to the largest
    /// f32.
    fn random(sizes: &[usize], activation: Activation, count: usize, seed: u64) -> Case {
        let mut random = Random::new(seed);
        let mut number = |low: f32, high: f32| {
            let exponent = low + (high - low) * (random.float() + 1.0) / 2.0;
            (f64::from(random.float().signum()) * 10f64.powf(exponent.into()))
                .clamp(f32::MIN.into(), f32::MAX.into()) as f32
        };
        let mut numbers =
            |n: usize, low: f32, high: f32| (0..n).map(|_| number(low, high)).collect::<Vec<f32>>();
        let rows: Vec<_> = sizes
            .windows(2)
            .map(|s| (numbers(s[0] * s[1], -3.0, 1.0), numbers(s[1], -2.0, 1.0)))
            .collect();
        let records = (0..count).map(|n| {
            let most = 38.6 - [0.0, 0.5, 1.5, 6.0, 38.0][n % 5];
            numbers(sizes[0], most - 2.0, most)
        });
        let records = records.collect();
        Case::new(&rows, activation, records)
    }

    fn truth(&self, record: &[f32]) -> Truth {
        let mut values: Vec<(f64, f64)> = record.iter().map(|&x| (x.into(), 0.0)).collect();
        let mut harmless = true;
        for node in self.network.graph.nodes.iter() {
            match node.op {
                Op::Affine => {
                    let (weights, biases) = (
                        &self.tensors[node.tensors[0]],
                        &self.tensors[node.tensors[1]],
                    );
                    let inputs = values.len();
                    let sum = |(row, &b): (&[f32], &f32)| {
                        let (mut sum, mut size, mut error) =
                            (f64::from(b), f64::from(b).abs(), 0.0);
                        for (&w, &(x, e)) in row.iter().zip(&values) {
                            let product = f64::from(w) * x;
                            (sum, size, error) = (
                                sum + product,
                                size + product.abs(),
                                error + f64::from(w).abs() * e,
                            );
                        }
                        harmless &= size + error < 0.9 * f64::from(f32::MAX);
                        // Each rounding costs a relative error of 2⁻²³. Denormal numbers may be
                        // flushed to zero.
                        let steps = (inputs + 2) as f64;
                        (
                            sum,
                            error + steps * (2f64.powi(-23) * size + f64::from(f32::MIN_POSITIVE)),
                        )
                    };
                    values = weights.chunks_exact(inputs).zip(biases).map(sum).collect();
                }
                Op::Activation(a) => {
                    for (x, e) in &mut values {
                        (*x, *e) = (a.apply(*x), a.error(*e));
                    }
                }
                op => panic!("{op:?}: these networks are chains of affine layers"),
            }
        }
        Truth {
            scores: values,
            harmless,
        }
    }

    /// Runs the records in batches, some of them partial. Asserts that each answer is right within
    /// the float64 bounds, and that only records near the limit are refused. Returns the numbers of
    /// answered and of refused records.
    fn run(&self, engine: &mut dyn Engine, what: &str) -> (usize, usize) {
        let (mut answered, mut refused) = (0, 0);
        for (n, some) in self.records.chunks(engine.batch().min(29)).enumerate() {
            let slot = n % super::SLOTS;
            for (i, record) in some.iter().enumerate() {
                engine.record(slot, i).unwrap().fill(record);
            }
            engine.submit(slot, some.len()).unwrap();
            engine.collect(slot).unwrap();
            for (i, record) in some.iter().enumerate() {
                let (answer, truth) = (engine.answer(slot, i), self.truth(record));
                let scores: Vec<f32> = answer.scores.iter().collect();
                let say = || {
                    format!(
                        "{what}: {record:?}: class {:?}, {scores:?}, {:?}",
                        answer.class, truth.scores
                    )
                };
                // The class alone must report an overflow too, because some callers read only the
                // class.
                assert_eq!(
                    answer.class == Some(NAN_CLASS),
                    !answer.scores.is_finite(),
                    "{}",
                    say()
                );
                if answer.overflowed() {
                    refused += 1;
                    assert!(!truth.harmless, "refused: {}", say());
                    continue;
                }
                answered += 1;
                let class = answer.class.unwrap() as usize;
                let (score, error) = truth.scores[class];
                assert!(
                    truth.scores.iter().all(|(s, e)| s - e <= score + error),
                    "wrong class: {}",
                    say()
                );
                for (&found, (s, e)) in scores.iter().zip(&truth.scores) {
                    assert!((f64::from(found) - s).abs() <= *e, "wrong score: {}", say());
                }
            }
        }
        (answered, refused)
    }

    fn on_the_host(&self, what: &str) -> (usize, usize) {
        let recipe = crate::engine::model::recipe("host", EngineKind::Host).unwrap();
        let run = |threads| {
            let model =
                Model::new(self.network.clone(), &self.tensors, recipe, library(), None).unwrap();
            self.run(
                &mut HostEngine::new(model, threads, false).unwrap(),
                &format!("{what}, {threads} threads"),
            )
        };
        let one = run(1);
        assert_eq!(run(3), one, "{what}");
        one
    }

    /// Runs the case on the first OpenCL device under every plan. Returns the numbers of answered
    /// and refused records for each plan.
    fn on_opencl(&self, what: &str) -> Vec<(usize, usize)> {
        let all = cl::devices(cl::ClLibrary::open().expect("the tests need OpenCL")).unwrap();
        let device = &all.devices[0];
        let plans = library()
            .plans
            .iter()
            .filter(|p| p.engine == EngineKind::OpenCl);
        plans
            .map(|recipe| {
                let model =
                    Model::new(self.network.clone(), &self.tensors, recipe, library(), None)
                        .unwrap();
                let wanted = Wanted {
                    scores: true,
                    classes: true,
                };
                let sources = Sources::default().uncached();
                let engine = OpenClEngine::new(
                    device,
                    &model,
                    wanted,
                    false,
                    &sources,
                    &mut Phases::default(),
                );
                self.run(&mut engine.unwrap(), &format!("{what}, {}", recipe.name))
            })
            .collect()
    }
}

/// Makes a network of two inputs, two hidden values and three classes. `w1` has the weights of the
/// hidden layer.
fn small(w1: [f32; 4], activation: Activation, records: &[[f32; 2]]) -> Case {
    let layers = [
        (w1.to_vec(), vec![0.0; 2]),
        (vec![1.0, 0.1, 2.0, 0.1, 3.0, 0.1], vec![1.0, 0.0, 0.0]),
    ];
    Case::new(
        &layers,
        activation,
        records.iter().map(|r| r.to_vec()).collect(),
    )
}

/// Two networks that once gave wrong answers, because infinities met a ReLU or each other. Each
/// comes with the number of its ordinary records, which must be answered.
fn known() -> [(Case, usize); 2] {
    let ordinary = [[1.0, 2.0], [-3.0, 0.5], [1e30, -1e30], [0.0, 0.0]];
    // An infinite hidden value makes all scores infinite. A plain arg-max would then give the first
    // class.
    let first = [&[[1e38, 0.0], [3e38, 3e38], [-3e38, -3e38]], &ordinary[..]].concat();
    // A partial sum is −∞. ReLU turns it into 0, and the scores are finite.
    let second = [&[[2e38, 2e38], [3.4e38, 3.3e38]], &ordinary[..]].concat();
    [
        (small([10.0, 10.0, 0.1, -0.1], Activation::Relu, &first), 4),
        (small([-2.0, 2.1, 0.1, -0.1], Activation::Relu, &second), 4),
    ]
}

/// The widths of the random networks' layers. They lie around the tile sizes of kernels.
const SHAPES: [&[usize]; 5] = [
    &[2, 2, 3],
    &[7, 5],
    &[5, 33, 4],
    &[40, 17, 20, 5],
    &[3, 6, 6, 6, 6, 2],
];

#[test]
fn the_host_refuses_what_overflows_and_answers_all_else() {
    for (case, ordinary) in known() {
        let (answered, refused) = case.on_the_host("known");
        assert!(answered >= ordinary && refused > 0, "{answered} {refused}");
    }
    let (mut answered, mut refused) = (0, 0);
    for activation in Activation::BEHIND_LAYERS {
        for seed in 0..20 {
            let shape = SHAPES[seed % SHAPES.len()];
            let case = Case::random(shape, activation, 60, seed as u64 + 1);
            let (a, r) = case.on_the_host(&format!("{shape:?} {activation:?} {seed}"));
            (answered, refused) = (answered + a, refused + r);
        }
    }
    assert!(
        answered > 1000 && refused > 500,
        "{answered} answered, {refused} refused"
    );
}

#[test]
fn opencl_refuses_what_overflows_and_answers_all_else_under_every_plan() {
    for (case, ordinary) in known() {
        let found = case.on_opencl("known");
        assert!(
            found
                .iter()
                .all(|&(answered, refused)| answered >= ordinary && refused > 0),
            "{found:?}"
        );
    }
    for (n, activation) in Activation::BEHIND_LAYERS.into_iter().enumerate() {
        let case = Case::random(SHAPES[2 + n % 3], activation, 120, n as u64 + 100);
        let found = case.on_opencl(&format!("{activation:?}"));
        assert!(
            found
                .iter()
                .all(|&(answered, refused)| answered > 40 && refused >= 10),
            "{activation:?} {found:?}"
        );
    }
}
