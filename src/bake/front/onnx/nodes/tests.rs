//! Runs the node tests of the ONNX package: small models with inputs and expected outputs.

use super::file::{OnnxModel, TensorRest};
use super::{lower, tensor as tensors};
use crate::bake::front::beside::{Lowered, ModelPlace};
use crate::bake::front::listed;
use crate::bake::matrix::Files;
use crate::bake::{Mistakes, passes};
use crate::ir::network::{Kind, Transform};
use rten_onnx::onnx::{
    DataType, Dimension, GraphProto, TensorProto, TensorShapeProto, TypeProto, TypeProtoTensor,
    ValueInfoProto,
};
use rten_onnx::protobuf::{DecodeMessage, ValueReader};
use std::path::{Path, PathBuf};

/// For each operation, the indices of inputs that are shapes, axes, sizes, indices or weights. A
/// test is first run with all inputs computed from the record. If it is refused, it is run again
/// with these inputs as constants.
const PARAMETERS: &[(&str, &[usize])] = &[
    ("AffineGrid", &[1]),
    ("ArrayFeatureExtractor", &[1]),
    ("BatchNormalization", &[1, 2, 3, 4]),
    ("CastLike", &[1]),
    ("CenterCropPad", &[1]),
    ("Clip", &[1, 2]),
    ("Col2Im", &[1, 2]),
    ("Compress", &[1]),
    ("ConstantOfShape", &[0]),
    ("Conv", &[1, 2]),
    ("ConvInteger", &[1, 2, 3]),
    ("ConvTranspose", &[1, 2]),
    ("CumSum", &[1]),
    ("DFT", &[1, 2]),
    ("DeformConv", &[1, 3]),
    ("DequantizeLinear", &[1, 2]),
    ("Dropout", &[1, 2]),
    ("Expand", &[1]),
    ("GRU", &[1, 2, 3, 4]),
    ("Gather", &[1]),
    ("GatherElements", &[1]),
    ("GatherND", &[1]),
    ("Gemm", &[1, 2]),
    ("GridSample", &[1]),
    ("GroupNormalization", &[1, 2]),
    ("HammingWindow", &[0]),
    ("HannWindow", &[0]),
    ("BlackmanWindow", &[0]),
    ("InstanceNormalization", &[1, 2]),
    ("LSTM", &[1, 2, 3, 4]),
    ("LayerNormalization", &[1, 2]),
    ("MatMul", &[1]),
    ("MatMulInteger", &[1, 2, 3]),
    ("MaxUnpool", &[1, 2]),
    ("MelWeightMatrix", &[0, 1, 2, 3, 4]),
    ("NegativeLogLikelihoodLoss", &[2]),
    ("NonMaxSuppression", &[2, 3, 4]),
    ("OneHot", &[1, 2]),
    ("PRelu", &[1]),
    ("Pad", &[1, 2, 3]),
    ("Pow", &[1]),
    ("QLinearConv", &[1, 2, 3, 4, 5, 6, 7, 8]),
    ("QLinearMatMul", &[1, 2, 3, 4, 5, 6, 7]),
    ("QuantizeLinear", &[1, 2]),
    ("RMSNormalization", &[1]),
    ("RNN", &[1, 2, 3, 4]),
    ("Range", &[0, 1, 2]),
    ("Reshape", &[1]),
    ("Resize", &[1, 2, 3]),
    ("RoiAlign", &[1, 2]),
    ("RotaryEmbedding", &[1, 2, 3]),
    ("STFT", &[1, 2, 3]),
    ("Scatter", &[1]),
    ("ScatterElements", &[1]),
    ("ScatterND", &[1]),
    ("Slice", &[1, 2, 3, 4]),
    ("SoftmaxCrossEntropyLoss", &[2]),
    ("Split", &[1]),
    ("Squeeze", &[1]),
    ("TensorScatter", &[2]),
    ("Tile", &[1]),
    ("TopK", &[1]),
    ("Trilu", &[1]),
    ("Unsqueeze", &[1]),
    ("Upsample", &[1]),
];

/// Returns the indices of an operation's inputs that may become constants.
fn parameters(op: &str) -> Vec<usize> {
    match PARAMETERS.iter().find(|(name, _)| *name == op) {
        Some((_, list)) => list.to_vec(),
        None if op.starts_with("Reduce") => vec![1],
        None => Vec::new(),
    }
}

/// Operations whose tests are not counted. They concern control flow, sequences, texts, random
/// numbers, training, bits and image files.
const NOT_COUNTED: &str = "Adagrad Adam Bernoulli BitShift BitwiseAnd BitwiseNot BitwiseOr \
                           BitwiseXor Gradient If ImageDecoder LabelEncoder Loop Momentum \
                           Multinomial RandomNormal RandomNormalLike RandomUniform \
                           RandomUniformLike RegexFullMatch Scan StringConcat StringNormalizer \
                           StringSplit TfIdfVectorizer";

/// Returns true if a node test is not counted.
fn not_counted(name: &str, graph: &GraphProto) -> bool {
    let op = |n: &rten_onnx::onnx::NodeProto| {
        let op = n.op_type.as_deref().unwrap_or("");
        let of = ["Sequence", "Optional"];
        listed(NOT_COUNTED, op)
            || of.iter().any(|o| op.contains(o))
            || super::set(n).contains("training")
    };
    let kind = |v: &ValueInfoProto| match &v.r#type {
        Some(t) => match &t.tensor_type {
            Some(t) => matches!(
                t.elem_type,
                Some(DataType::STRING | DataType::UINT4 | DataType::INT4 | DataType::FLOAT4E2M1)
            ),
            None => true,
        },
        None => true,
    };
    let words = [
        "bernoulli",
        "train",
        "INT4",
        "FLOAT4",
        "loop",
        "sequence",
        "optional",
        // These tests expect integers that wrap around. ONNX Runtime saturates them, as ONNX
        // defines.
        "qlinearmatmul_2D_int8",
        "qlinearmatmul_3D_int8",
    ];
    graph.node.iter().any(op)
        || graph.input.iter().chain(&graph.output).any(kind)
        || words.iter().any(|w| name.contains(w))
}

/// Reads a tensor file of a node test.
fn tensor(path: &Path) -> Option<TensorProto> {
    TensorProto::decode(ValueReader::from_buf(std::fs::read(path).ok()?)).ok()
}

/// The numbers of a tensor in a node test, with the tensor's sizes.
struct Numbers {
    dims: Vec<usize>,
    list: Vec<f64>,
    /// The allowed error, relative to the larger of 1 and the expected number. A model may compute
    /// in f16, to which this test does not round.
    bound: f64,
}

impl Numbers {
    fn read(path: &Path) -> Result<Numbers, String> {
        let tensor = tensor(path).ok_or("the test has no such file")?;
        let read = tensors::constant(&tensor, &TensorRest::default(), None)?;
        Ok(Numbers {
            list: read.numbers()?,
            dims: read.dims.clone(),
            bound: match tensor.data_type {
                Some(DataType::FLOAT16) => 2f64.powi(-11),
                Some(DataType::BFLOAT16) => 2f64.powi(-8),
                _ => 1e-4,
            },
        })
    }

    /// Returns the numbers at the index `i` along axis `a`.
    fn part(&self, a: usize, i: usize) -> Vec<f64> {
        let inner: usize = self.dims[a + 1..].iter().product();
        let at = |k: &usize| k / inner % self.dims[a] == i;
        let places = (0..self.list.len()).filter(at);
        places.map(|k| self.list[k]).collect()
    }

    /// Returns true if the results `found` of the records equal these numbers. If there are several
    /// records, the numbers have an axis of the records.
    fn are(&self, found: &[Vec<f64>]) -> bool {
        let close = |(f, e): (&f64, &f64)| {
            (f - e).abs() <= self.bound * e.abs().max(1.0) || f == e || (f.is_nan() && e.is_nan())
        };
        let same = |found: &[f64], expected: &[f64]| {
            found.len() == expected.len() && found.iter().zip(expected).all(close)
        };
        match found {
            [one] => same(one, &self.list),
            _ => (0..self.dims.len())
                .filter(|&a| self.dims[a] == found.len())
                .any(|a| (0..found.len()).all(|i| same(&found[i], &self.part(a, i)))),
        }
    }
}

/// The name of an extra input, which is added to a model whose other inputs are all constants.
const EXTRA: &str = "mortonnet_extra";

/// Makes the declaration of an input or output that is one number.
fn one_number(name: &str) -> ValueInfoProto {
    let one = Dimension {
        dim_value: Some(1),
        ..Dimension::default()
    };
    ValueInfoProto {
        name: Some(name.into()),
        r#type: Some(TypeProto {
            tensor_type: Some(TypeProtoTensor {
                elem_type: Some(DataType::FLOAT),
                shape: Some(TensorShapeProto { dim: vec![one] }),
            }),
            ..TypeProto::default()
        }),
    }
}

/// One node test of the ONNX package.
struct Test {
    folder: PathBuf,
    bytes: Vec<u8>,
    /// True for a test that an old PyTorch exported to operation set 6. The operations that it uses
    /// are the same in set 7, except slopes and old attributes.
    old: bool,
}

impl Test {
    fn read(folder: PathBuf, old: bool) -> Option<Test> {
        let bytes = std::fs::read(folder.join("model.onnx")).ok()?;
        Some(Test { folder, bytes, old })
    }

    fn name(&self) -> &str {
        self.folder.file_name().unwrap().to_str().unwrap()
    }

    fn model(&self) -> Option<OnnxModel> {
        let mut model = OnnxModel::parse(&self.bytes).ok()?;
        if self.old {
            let sets = &mut model.model.opset_import;
            sets.iter_mut()
                .for_each(|s| s.version = s.version.map(|v| v.max(7)));
        }
        Some(model)
    }

    /// Returns the operation that is tested. For an expanded function it is named in the test
    /// beside it.
    fn op(&self) -> Option<String> {
        if self.old {
            return Some("(PyTorch)".into());
        }
        let plain = self.name().split("_expanded").next().unwrap();
        let beside = Test::read(self.folder.with_file_name(plain), false);
        let model = beside.as_ref().unwrap_or(self).model()?;
        match &model.model.graph?.node[..] {
            [node] => node.op_type.clone(),
            _ => Some("(several)".into()),
        }
    }

    /// Returns the result line for the list of node tests. `None` if the test is not counted.
    fn result(&self, op: &str) -> Option<String> {
        let model = self.model()?;
        let graph = model.model.graph.as_ref()?;
        if !self.old && not_counted(self.name(), graph) {
            return None;
        }
        let first = self.attempt(&[], false);
        let constants = match self.old {
            true => (1..graph.input.len()).collect(),
            false => parameters(op),
        };
        let later = || {
            let beside = |e: &String| {
                e.contains("is a constant") || e.contains("expected an input, found none")
            };
            let second = match constants.is_empty() {
                true => first.clone(),
                false => self.attempt(&constants, false),
            };
            match second {
                Err(e) if beside(&e) => self.attempt(&constants, true),
                other => other,
            }
        };
        Some(match &first {
            Ok(verdict) => verdict.clone(),
            Err(_) => later().unwrap_or_else(|e| format!("refused: {e}")),
        })
    }

    /// Runs the test with the inputs `constants` as constants. If `beside` is true, adds an extra
    /// input and output of one number.
    ///
    /// # Errors
    /// The reason why the build refuses the model.
    fn attempt(&self, constants: &[usize], beside: bool) -> Result<String, String> {
        let mut model = self.model().ok_or("it cannot be parsed")?;
        let data = self.folder.join("test_data_set_0");
        let graph = model.model.graph.as_mut().unwrap();
        let mut inputs = Vec::new();
        for (i, input) in graph.input.iter().enumerate() {
            let path = data.join(format!("input_{i}.pb"));
            let known = graph.initializer.iter().any(|t| t.name == input.name);
            if known {
                continue;
            }
            if constants.contains(&i) {
                let mut tensor = tensor(&path).ok_or("the test has no such input")?;
                tensor.name = input.name.clone();
                graph.initializer.push(tensor);
                let rest = std::fs::read(&path).unwrap();
                let rest = TensorRest::decode(ValueReader::from_buf(rest)).unwrap();
                model.rest.graph.initializers.push(rest);
            } else {
                inputs.push(Numbers::read(&path)?);
            }
        }
        let mut expected = (0..graph.output.len())
            .map(|i| Numbers::read(&data.join(format!("output_{i}.pb"))))
            .collect::<Result<Vec<_>, _>>()?;
        if beside {
            graph.input.push(one_number(EXTRA));
            graph.output.push(one_number(EXTRA));
            for list in [&mut inputs, &mut expected] {
                list.push(Numbers {
                    dims: vec![1],
                    list: vec![3.0],
                    bound: 0.0,
                });
            }
        }
        if !inputs.is_empty() && inputs.iter().all(|i| i.list.is_empty()) {
            return Err("the test has no numbers".into());
        }
        run(&model, &self.folder, &inputs, &expected)
    }
}

/// Converts a model to a draft and compares its outputs with the expected ones, both before and
/// after the optimization passes.
fn run(
    model: &OnnxModel,
    folder: &Path,
    inputs: &[Numbers],
    expected: &[Numbers],
) -> Result<String, String> {
    let (mut read, mut mistakes) = (Vec::new(), Mistakes::default());
    let mut files = Files {
        root: folder,
        read: &mut read,
    };
    let place = ModelPlace {
        file: "model.onnx",
        folder,
        values: true,
        output: None,
        sizes: &Default::default(),
        sizes_by: "--sizes",
        arithmetic_by: "--arithmetic",
        integers: true,
    };
    let Some(lowered) = lower(model, &place, &mut files, &mut mistakes) else {
        assert!(!mistakes.lines.is_empty());
        return Err(mistakes.lines.join("; "));
    };
    let (draft, order) = (&lowered.draft, lowered.order);
    let all: usize = inputs.iter().map(|i| i.list.len()).sum();
    let length = draft.shape(draft.graph.inputs[0]).len();
    // If the model has no axis of the records, all numbers form one record.
    let records = all / length;
    let axis = |i: &Numbers| i.dims.iter().position(|&n| n == records).unwrap_or(0);
    let record = |r: usize| -> Vec<f64> {
        match records {
            1 => inputs.iter().flat_map(|i| i.list.clone()).collect(),
            _ => inputs.iter().flat_map(|i| i.part(axis(i), r)).collect(),
        }
    };
    let passed =
        passes::run(draft.clone(), Transform::Identity, order).map_err(|e| e.to_string())?;
    for (draft, transform) in [(draft.clone(), Transform::Identity), passed] {
        let shape = draft.shape(draft.graph.inputs[0]);
        let tensors = draft.rounded();
        let found: Vec<Vec<f64>> = (0..records)
            .map(|r| {
                let mut x = vec![0.0; shape.len()];
                for (i, v) in record(r).into_iter().enumerate() {
                    x[order.element(shape, i)] = transform.apply(i, v);
                }
                let mut values = draft.graph.evaluate(&tensors, x, |_, _| ());
                meant(&lowered, values.swap_remove(draft.graph.outputs[0]))
            })
            .collect();
        let mut at = 0;
        for (k, expected) in expected.iter().enumerate() {
            let length = match lowered.tail.outputs.is_empty() {
                true => found[0].len(),
                false => lowered.tail.outputs[k].shape.len(),
            };
            let part: Vec<Vec<f64>> = found.iter().map(|f| f[at..at + length].to_vec()).collect();
            at += length;
            if !expected.are(&part) {
                let list = &expected.list;
                return Ok(format!("FAILS: output {k}: {part:?}, expected {list:?}"));
            }
        }
    }
    Ok("passes".into())
}

/// Converts the outputs of a graph to the numbers that the program prints: classes, flags or
/// scores.
fn meant(lowered: &Lowered, mut found: Vec<f64>) -> Vec<f64> {
    if let Some(last) = lowered.tail.last {
        last.apply(&mut found);
    }
    match lowered.tail.output {
        Some(o) if o.kind == Kind::Classes => {
            vec![f64::from(crate::ir::network::argmax(&found))]
        }
        Some(o) if matches!(o.kind, Kind::Multilabel | Kind::Binary) => {
            let flag = |p: f64| f64::from(u8::from(p > o.threshold));
            found.into_iter().map(flag).collect()
        }
        _ => found,
    }
}

/// Compares the results of all node tests with the list in `tests/onnx/nodes.txt`.
#[test]
#[ignore = "long: tests/long.py"]
fn node_tests_of_the_package_are_as_listed() {
    let nodes = crate::models::needs("onnx");
    let mut lines = Vec::new();
    for (list, old) in [
        (nodes.clone(), false),
        // The package also has modules that an old PyTorch exported.
        (nodes.with_file_name("pytorch-converted"), true),
    ] {
        for folder in std::fs::read_dir(list).unwrap().flatten().map(|e| e.path()) {
            let Some(test) = Test::read(folder, old) else {
                continue;
            };
            let op = test.op().unwrap();
            if let Some(result) = test.result(&op) {
                lines.push(format!("{op} {} {result}", test.name()));
            }
        }
    }
    lines.sort();
    if let Some(path) = std::env::var_os("NODES") {
        std::fs::write(path, lines.join("\n")).unwrap();
    }
    let wrong: Vec<&String> = lines.iter().filter(|l| l.contains(" FAILS: ")).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(lines.len() > 1400, "{}", lines.len());
    super::tests::agrees(
        &super::tests::folder().join("nodes.txt"),
        &(lines.join("\n") + "\n"),
    );
}
