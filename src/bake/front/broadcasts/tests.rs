//! Tests every broadcast of a constant, in every operation that takes one. They run both formats on
//! both engines. The expected results are computed here from the sizes alone.

use crate::bake::front::fixtures::{self, ModelFolder};
use crate::baked::library;
use crate::cl;
use crate::engine::Engine;
use crate::engine::host::HostEngine;
use crate::engine::model::{Model, recipe};
use crate::engine::opencl::{OpenClEngine, Wanted};
use crate::engine::sources::Sources;
use crate::ir::graph::Tensors;
use crate::ir::network::Network;
use crate::observe::profile::Phases;
use crate::ops::random::Random;
use crate::registry::EngineKind;

/// An operation of which one operand is a constant.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Of {
    Add,
    Sub,
    /// Subtraction with the constant as the first operand: c − x.
    SubFrom,
    Mul,
    Div,
    PRelu,
    BatchNorm,
}

impl Of {
    fn apply(self, x: f64, c: f64) -> f64 {
        match self {
            Of::Add => x + c,
            Of::Sub => x - c,
            Of::SubFrom => c - x,
            Of::Mul | Of::BatchNorm => x * c,
            Of::Div => x / c,
            Of::PRelu if x < 0.0 => x * c,
            Of::PRelu => x,
        }
    }
}

/// A constant of random numbers, with its sizes in the model.
struct RandomConstant {
    dims: Vec<usize>,
    numbers: Vec<f32>,
}

impl RandomConstant {
    /// Returns the constant's number for an element of the tensor. `element` has the index along
    /// each axis, the record's first.
    fn at(&self, element: &[usize]) -> f64 {
        let ahead = element.len() - self.dims.len();
        let index = self
            .dims
            .iter()
            .zip(&element[ahead..])
            .fold(0, |at, (&d, &i)| at * d + i % d);
        self.numbers[index].into()
    }
}

/// A chain of operations with constants. A tanh before each operation keeps the optimizer from
/// joining the operations.
struct RandomChain {
    /// The sizes of the chain's tensor, the number of records first.
    dims: Vec<usize>,
    of: Of,
    constants: Vec<RandomConstant>,
}

impl RandomChain {
    /// Makes a chain with a constant for every subset of the axes, with sizes of 1 in front and
    /// without.
    fn new(dims: &[usize], of: Of, random: &mut Random) -> RandomChain {
        let rank = dims.len();
        let mut constant = |dims: Vec<usize>| {
            // Numbers far from 0, because tensors are divided by them.
            let numbers = (0..dims.iter().product())
                .map(|_| 1.25 + 0.75 * random.float())
                .collect();
            RandomConstant { dims, numbers }
        };
        let mut constants = Vec::new();
        if of == Of::BatchNorm {
            // A constant with one number for each channel.
            constants.push(constant(
                (1..rank)
                    .map(|a| if a == 1 { dims[1] } else { 1 })
                    .collect(),
            ));
        }
        for kept in 0..if of == Of::BatchNorm {
            0
        } else {
            1 << (rank - 1)
        } {
            let size = |a: usize| {
                if a > 0 && kept >> (a - 1) & 1 == 1 {
                    dims[a]
                } else {
                    1
                }
            };
            let full: Vec<usize> = (0..rank).map(size).collect();
            let ones = full.iter().take_while(|&&d| d == 1).count();
            let short = full[ones..].to_vec();
            constants.extend([full, short].map(&mut constant));
        }
        RandomChain {
            dims: dims.to_vec(),
            of,
            constants,
        }
    }

    /// Returns the expected result of the chain for one record.
    fn expected(&self, record: &[f32]) -> Vec<f64> {
        let element = |mut i: usize| {
            let mut at = vec![0; self.dims.len()];
            for axis in (1..self.dims.len()).rev() {
                (at[axis], i) = (i % self.dims[axis], i / self.dims[axis]);
            }
            at
        };
        let value = |(i, &x): (usize, &f32)| {
            let at = element(i);
            self.constants
                .iter()
                .fold(f64::from(x), |x, c| self.of.apply(x.tanh(), c.at(&at)))
        };
        record.iter().enumerate().map(value).collect()
    }

    /// Returns the chain as the bytes of an ONNX model.
    fn onnx(&self) -> Vec<u8> {
        use protobuf::{float_tensor, ints, message, text};
        let (mut graph, mut value) = (Vec::new(), "x".to_string());
        for (n, c) in self.constants.iter().enumerate() {
            let (tanh, constant, next) = (format!("t{n}"), format!("c{n}"), format!("y{n}"));
            let node = |op: &str, inputs: &[&str], output: &str| {
                let inputs: Vec<u8> = inputs.iter().flat_map(|i| text(1, i)).collect();
                message(
                    1,
                    &[inputs, text(2, output), text(3, output), text(4, op)].concat(),
                )
            };
            graph.extend(node("Tanh", &[&value], &tanh));
            let (op, inputs) = match self.of {
                Of::Add => ("Add", vec![&*tanh, &*constant]),
                Of::Sub => ("Sub", vec![&*tanh, &*constant]),
                Of::SubFrom => ("Sub", vec![&*constant, &*tanh]),
                Of::Mul => ("Mul", vec![&*constant, &*tanh]),
                Of::Div => ("Div", vec![&*tanh, &*constant]),
                Of::PRelu => ("PRelu", vec![&*tanh, &*constant]),
                Of::BatchNorm => (
                    "BatchNormalization",
                    vec![&*tanh, &*constant, "zeros", "zeros", "ones"],
                ),
            };
            graph.extend(node(op, &inputs, &next));
            if self.of == Of::BatchNorm {
                let channels = self.dims[1];
                graph.extend(float_tensor(&constant, &[channels], &c.numbers));
                graph.extend(float_tensor("zeros", &[channels], &vec![0.0; channels]));
                // The variance plus the epsilon of 1e-5 is 1.
                graph.extend(float_tensor(
                    "ones",
                    &[channels],
                    &vec![1.0 - 1e-5; channels],
                ));
            } else {
                graph.extend(float_tensor(&constant, &c.dims, &c.numbers));
            }
            value = next;
        }
        let info = |field: u64, name: &str| {
            let records = message(1, &text(2, "N"));
            let sizes = self.dims[1..]
                .iter()
                .flat_map(|&d| message(1, &ints(1, d as u64)));
            let shape: Vec<u8> = records.into_iter().chain(sizes).collect();
            let tensor = [ints(1, 1), message(2, &shape)].concat();
            message(
                field,
                &[text(1, name), message(2, &message(1, &tensor))].concat(),
            )
        };
        graph.extend([text(2, "graph"), info(11, "x"), info(12, &value)].concat());
        [ints(1, 8), message(8, &ints(2, 15)), message(7, &graph)].concat()
    }

    /// Returns the chain as the bytes of a TensorFlow Lite model.
    fn tflite(&self) -> Vec<u8> {
        use flatbuffer::Field::{Bytes, Int, Ints, None, Table, Tables, Text};
        // The codes of TANH and of the chain's operation.
        let code = match self.of {
            Of::Add => 0,
            Of::Sub | Of::SubFrom => 41,
            Of::Mul => 18,
            Of::Div => 42,
            Of::PRelu | Of::BatchNorm => 54,
        };
        let of_code = |code: u32| vec![Int(code), None, Int(1), Int(code)];
        let dims = |dims: &[usize]| Ints(dims.iter().map(|&d| d as u32).collect());
        let tensor = |sizes: &[usize], buffer: u32, name: String| {
            vec![dims(sizes), Int(0), Int(buffer), Text(name)]
        };
        let mut buffers = vec![vec![None]];
        let mut tensors = vec![tensor(&self.dims, 0, "x".into())];
        let (mut operators, mut value) = (Vec::new(), 0);
        for (n, c) in self.constants.iter().enumerate() {
            buffers.push(vec![Bytes(
                c.numbers.iter().flat_map(|v| v.to_le_bytes()).collect(),
            )]);
            let first = tensors.len() as u32;
            tensors.push(tensor(&self.dims, 0, format!("t{n}")));
            tensors.push(tensor(&c.dims, buffers.len() as u32 - 1, format!("c{n}")));
            tensors.push(tensor(&self.dims, 0, format!("y{n}")));
            operators.push(vec![Int(0), Ints(vec![value]), Ints(vec![first])]);
            let operands = if self.of == Of::SubFrom {
                [first + 1, first]
            } else {
                [first, first + 1]
            };
            operators.push(vec![Int(1), Ints(operands.to_vec()), Ints(vec![first + 2])]);
            value = first + 2;
        }
        let graph = vec![
            Tables(tensors),
            Ints(vec![0]),
            Ints(vec![value]),
            Tables(operators),
            Text("main".into()),
        ];
        flatbuffer::file(
            b"TFL3",
            &Table(vec![
                Int(3),
                Tables(vec![of_code(28), of_code(code)]),
                Tables(vec![graph]),
                Text("broadcasts".into()),
                Tables(buffers),
            ]),
        )
    }
}

/// Writes just enough of Protocol Buffers for these models.
mod protobuf {
    fn varint(mut n: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        while n > 0x7f {
            bytes.push(n as u8 | 0x80);
            n >>= 7;
        }
        bytes.push(n as u8);
        bytes
    }

    pub(super) fn ints(field: u64, n: u64) -> Vec<u8> {
        [varint(field << 3), varint(n)].concat()
    }

    pub(super) fn message(field: u64, bytes: &[u8]) -> Vec<u8> {
        [
            varint(field << 3 | 2),
            varint(bytes.len() as u64),
            bytes.to_vec(),
        ]
        .concat()
    }

    pub(super) fn text(field: u64, text: &str) -> Vec<u8> {
        message(field, text.as_bytes())
    }

    /// Encodes an initializer: a constant tensor of an ONNX graph.
    pub(super) fn float_tensor(name: &str, dims: &[usize], numbers: &[f32]) -> Vec<u8> {
        let sizes: Vec<u8> = dims.iter().flat_map(|&d| ints(1, d as u64)).collect();
        let raw: Vec<u8> = numbers.iter().flat_map(|v| v.to_le_bytes()).collect();
        message(
            5,
            &[sizes, ints(2, 1), text(8, name), message(9, &raw)].concat(),
        )
    }
}

/// Writes just enough of FlatBuffers for these models. Every field of a table takes four bytes.
mod flatbuffer {
    pub(super) enum Field {
        None,
        Int(u32),
        Text(String),
        Ints(Vec<u32>),
        Bytes(Vec<u8>),
        Table(Vec<Field>),
        Tables(Vec<Vec<Field>>),
    }

    pub(super) fn file(identifier: &[u8; 4], root: &Field) -> Vec<u8> {
        let mut out = vec![0; 4];
        out.extend(identifier);
        refer(&mut out, 0, root);
        out
    }

    /// Appends the content of a table's field to `out`, and writes its offset into the field.
    fn refer(out: &mut Vec<u8>, slot: usize, field: &Field) {
        out.resize(out.len().next_multiple_of(4), 0);
        let at = match field {
            Field::Table(fields) => table(out, fields),
            Field::Text(text) => vector(out, text.len(), &[text.as_bytes(), &[0]].concat()),
            Field::Bytes(bytes) => vector(out, bytes.len(), bytes),
            Field::Ints(ints) => vector(
                out,
                ints.len(),
                &ints
                    .iter()
                    .flat_map(|i| i.to_le_bytes())
                    .collect::<Vec<_>>(),
            ),
            Field::Tables(tables) => {
                let at = vector(out, tables.len(), &vec![0; 4 * tables.len()]);
                for (i, fields) in tables.iter().enumerate() {
                    out.resize(out.len().next_multiple_of(4), 0);
                    let table = table(out, fields);
                    point(out, at + 4 + 4 * i, table);
                }
                at
            }
            Field::None | Field::Int(_) => return,
        };
        point(out, slot, at);
    }

    fn point(out: &mut [u8], slot: usize, at: usize) {
        out[slot..slot + 4].copy_from_slice(&((at - slot) as u32).to_le_bytes());
    }

    fn vector(out: &mut Vec<u8>, n: usize, bytes: &[u8]) -> usize {
        let at = out.len();
        out.extend((n as u32).to_le_bytes());
        out.extend(bytes);
        at
    }

    /// Appends a table behind its vtable, the list of its fields' offsets.
    fn table(out: &mut Vec<u8>, fields: &[Field]) -> usize {
        let (size, list) = (4 + 4 * fields.len(), out.len());
        out.extend(((4 + 2 * fields.len()) as u16).to_le_bytes());
        out.extend((size as u16).to_le_bytes());
        for (i, field) in fields.iter().enumerate() {
            let place = if matches!(field, Field::None) {
                0
            } else {
                4 + 4 * i
            };
            out.extend((place as u16).to_le_bytes());
        }
        out.resize(out.len().next_multiple_of(4), 0);
        let at = out.len();
        out.extend(((at - list) as u32).to_le_bytes());
        for field in fields {
            let value = if let Field::Int(n) = field { *n } else { 0 };
            out.extend(value.to_le_bytes());
        }
        for (i, field) in fields.iter().enumerate() {
            refer(out, at + 4 + 4 * i, field);
        }
        at
    }
}

/// Returns the scores that an engine computes for some records.
fn scores(engine: &mut dyn Engine, records: &[Vec<f32>]) -> Vec<Vec<f32>> {
    records
        .iter()
        .enumerate()
        .for_each(|(n, record)| engine.record(0, n).unwrap().fill(record));
    engine.submit(0, records.len()).unwrap();
    engine.collect(0).unwrap();
    (0..records.len())
        .map(|n| engine.answer(0, n).scores.iter().collect())
        .collect()
}

/// Builds the network of every chain in both formats, and runs `check` on each.
fn chains(mut check: impl FnMut(&str, Network, Tensors, &RandomChain)) {
    let mut random = Random::new(33);
    let mut count = 0;
    for dims in [&[1, 5][..], &[1, 3, 7], &[1, 4, 3, 5], &[1, 2, 3, 2, 3]] {
        for of in [
            Of::Add,
            Of::Sub,
            Of::SubFrom,
            Of::Mul,
            Of::Div,
            Of::PRelu,
            Of::BatchNorm,
        ] {
            let chain = RandomChain::new(dims, of, &mut random);
            for format in ["onnx", "tflite"] {
                if (of, format) == (Of::BatchNorm, "tflite") {
                    continue;
                }
                let what = format!("{format}, {of:?}, {dims:?}");
                let folder = ModelFolder::new(format);
                let path = folder.path.join(format!("net.{format}"));
                let model = if format == "onnx" {
                    chain.onnx()
                } else {
                    chain.tflite()
                };
                std::fs::write(&path, model).unwrap();
                // For a single output the meaning must be stated, so a JSON beside the model states
                // it.
                let meaning = "{\"output\": {\"kind\": \"values\"}}";
                std::fs::write(folder.path.join("net.json"), meaning).unwrap();
                let read =
                    fixtures::read(&path).unwrap_or_else(|e| panic!("{what}: {}", e.join("\n")));
                check(&what, read.network, read.tensors, &chain);
                count += chain.constants.len();
            }
        }
    }
    assert!(count > 700, "{count}");
}

fn agree(what: &str, chain: &RandomChain, records: &[Vec<f32>], found: &[Vec<f32>]) {
    for (n, (record, found)) in records.iter().zip(found).enumerate() {
        let expected = chain.expected(record);
        assert_eq!(found.len(), expected.len(), "{what}");
        for (i, (&f, e)) in found.iter().zip(expected).enumerate() {
            let near = (f64::from(f) - e).abs() <= 1e-4 * e.abs().max(1.0);
            assert!(near, "{what}: record {n}, value {i}: {f}, not {e}");
        }
    }
}

fn records(random: &mut Random, network: &Network) -> Vec<Vec<f32>> {
    (0..3)
        .map(|_| (0..network.width).map(|_| 2.0 * random.float()).collect())
        .collect()
}

#[test]
fn constants_of_every_broadcast_are_right_on_the_host() {
    let mut random = Random::new(1);
    let recipe = recipe("host", EngineKind::Host).unwrap();
    chains(|what, network, tensors, chain| {
        let records = records(&mut random, &network);
        for (record, expected) in records.iter().map(|r| (r, chain.expected(r))) {
            let raw: Vec<f64> = record.iter().map(|&x| x.into()).collect();
            let found = network.scores(&tensors, &raw);
            assert!(
                found
                    .iter()
                    .zip(&expected)
                    .all(|(f, e)| (f - e).abs() < 1e-5),
                "{what}: float64"
            );
        }
        let model = Model::new(network, &tensors, recipe, library(), None).unwrap();
        let mut engine = HostEngine::new(model, 1, false).unwrap();
        agree(what, chain, &records, &scores(&mut engine, &records));
    });
}

#[test]
fn constants_of_every_broadcast_are_right_on_opencl() {
    let mut random = Random::new(2);
    let all = cl::devices(cl::ClLibrary::open().expect("the tests need OpenCL")).unwrap();
    let recipe = recipe("cpu-simd", EngineKind::OpenCl).unwrap();
    chains(|what, network, tensors, chain| {
        let records = records(&mut random, &network);
        let model = Model::new(network, &tensors, recipe, library(), Some(5)).unwrap();
        let wanted = Wanted {
            scores: true,
            classes: false,
        };
        let sources = Sources::default().uncached();
        let engine = OpenClEngine::new(
            &all.devices[0],
            &model,
            wanted,
            false,
            &sources,
            &mut Phases::default(),
        );
        let mut engine = engine.unwrap_or_else(|e| panic!("{what}: {e}"));
        agree(what, chain, &records, &scores(&mut engine, &records));
    });
}
