//! Tests of quantization by its settings, its messages, and the scores of the baked program.

use super::*;
use crate::bake::matrix::Files;
use crate::ir::network::ByteInput;

impl NetworkFolder {
    /// Bakes the network and quantizes it with the calibration records in `file`.
    fn quantize(&self, file: &str, weights: Option<&str>) -> Result<Baked, Vec<String>> {
        let baked = bake(&Settings {
            names: Names::Options,
            quantize: Some(self.path.join(file)),
            ..self.settings("host", weights)
        });
        let own = format!("{}/", self.path.display());
        baked.map_err(|e| {
            let lines = e.mistakes.lines.into_iter();
            lines.map(|m| m.replace(&own, "")).collect()
        })
    }

    fn records(&self, name: &str, n: usize) -> &Self {
        let x = |i: usize, k: usize| (i * (k + 3) % 97) as f32 / 96.0 - 0.25;
        let line = |i| format!("{},{},{}\n", x(i, 0), x(i, 1), x(i, 2));
        self.put(name, (0..n).map(line).collect::<String>())
    }
}

#[test]
fn a_network_is_quantized() {
    let f = NetworkFolder::new();
    f.tiny("").records("x.csv", 150);
    let float = f.bake().unwrap();
    let bytes = f.quantize("x.csv", None).unwrap();
    let floats = f.quantize("x.csv", Some("f32")).unwrap();
    assert_eq!(bytes.network.weights, Precision::I8);
    assert_eq!(floats.network.weights, Precision::F32);
    assert!(bytes.plan.constant_bytes() < floats.plan.constant_bytes());
    assert!(bytes.golden.given && bytes.golden.count > 2);
    assert_eq!(bytes.golden.scores, floats.golden.scores);
    let inputs = &bytes.golden.inputs;
    assert_eq!(inputs[..3], [-0.25, -0.25, -0.25]);
    let report = bytes.report("", "x86_64", 1000).join("\n");
    let expected = "quantized: 2 layers on 8-bit integers; 0 of 150 records change their class";
    assert!(report.contains(expected), "{report}");
    // The key `quantize` of the network does the same as the setting. If both are given, the
    // setting is used.
    f.tiny(r#","quantize":"x.csv""#);
    let by_key = bake(&f.settings("host", None)).unwrap();
    assert_eq!(by_key.network.hash, bytes.network.hash);
    assert_ne!(by_key.network.hash, float.network.hash);
    f.tiny(r#","quantize":"missing.csv""#);
    assert!(f.quantize("x.csv", None).is_ok());
    assert!(f.bake().err().unwrap()[0].contains("quantize: cannot read"));
}

#[test]
fn records_that_do_not_fit_are_refused() {
    let f = NetworkFolder::new();
    f.tiny("").records("few.csv", 99);
    let mut wide = String::new();
    (0..100).for_each(|_| wide += "1,2\n");
    let npy = |shape: &str, count: usize, number: f32| {
        let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}");
        let mut bytes = b"\x93NUMPY\x01\0".to_vec();
        bytes.extend((header.len() as u16).to_le_bytes());
        bytes.extend(header.as_bytes());
        bytes.extend((0..count).flat_map(|_| number.to_le_bytes()));
        bytes
    };
    f.put("wide.csv", wide)
        .put("shape.npy", npy("(100, 2, 2)", 400, 0.5))
        .put("nan.npy", npy("(100, 3)", 300, f32::NAN))
        .put("large.npy", npy("(100, 3)", 300, 3e38))
        .put("x.txt", "1,2,3\n");
    for (file, expected) in [
        (
            "few.csv",
            "few.csv: expected at least 100 records to quantize with, found 99",
        ),
        (
            "wide.csv",
            "wide.csv:1:3: expected 3 numbers, the line has 2",
        ),
        (
            "shape.npy",
            "shape.npy: expected the shape (N, 3), found [100, 2, 2]",
        ),
        (
            "nan.npy",
            "nan.npy: row 1, column 1: expected a finite number, found NaN",
        ),
        (
            "large.npy",
            "large.npy: record 1 of 100 makes numbers that leave the range of f32",
        ),
        (
            "x.txt",
            "--quantize: expected a .csv, .npy or .f32 file, found x.txt",
        ),
        ("no.npy", "--quantize: cannot read no.npy"),
    ] {
        let mistakes = f.quantize(file, None).err().unwrap().join("\n");
        assert!(mistakes.contains(expected), "{mistakes}");
    }
}

/// If the scores of two classes are closer than an 8-bit step, quantization changes classes. This
/// is refused unless the settings allow it.
#[test]
fn quantization_that_changes_classes_is_refused() {
    let f = NetworkFolder::new();
    f.matrix("w", 2, 2, |r, c| [[1.0, 0.003], [1.0, 0.0]][r][c])
        .matrix("b", 2, 1, |r, _| [0.0, 0.001][r])
        .matrix("v", 2, 2, |r, c| f32::from(u8::from(r == c)))
        .matrix("z", 2, 1, |_, _| 0.0);
    let layers = format!("{},{}", affine("w", "b"), affine("v", "z"));
    f.network(&layers, 2, "");
    let line = |i: usize| format!("1,{}\n", i as f32 / 300.0);
    f.put("x.csv", (0..300).map(line).collect::<String>());
    let mistakes = f.quantize("x.csv", None).err().unwrap().join("\n");
    let expected = "of 300 records change their class, at most 1 % are allowed; --weights=i8:";
    assert!(mistakes.contains(expected), "{mistakes}");
    let allowed = mistakes.split("i8:").nth(1).unwrap();
    let percent: u32 = allowed.split(' ').next().unwrap().parse().unwrap();
    assert!(f.quantize("x.csv", Some(&format!("i8:{percent}"))).is_ok());
    assert!(
        f.quantize("x.csv", Some(&format!("i8:{}", percent - 1)))
            .is_err()
    );
}

/// Depthwise convolutions and sums compute on integers too. A depthwise convolution behind a
/// function that does not commute with rounding stays in floats.
#[test]
fn a_residual_network_is_quantized() {
    let conv = |w: &str, name: &str| {
        format!(r#"{{"layer":"ConvLayer","weights":"{w}_w.json","kernel":1,"name":"{name}"}}"#)
    };
    let f = NetworkFolder::new();
    f.weights("a", 4, 2).weights("d", 4, 9).weights("e", 4, 4);
    let records = |i: usize| {
        let pixel = |k: usize| format!("{}", (i * (k + 3) % 97) as f32 / 96.0 - 0.25);
        (0..60).map(pixel).collect::<Vec<_>>().join(",") + "\n"
    };
    f.put("x.csv", (0..120).map(records).collect::<String>());
    for (function, expected, depthwise) in [
        ("ReLU", "4 layers and 1 sum on 8-bit integers", true),
        ("Tanh", "3 layers and 1 sum on 8-bit integers", false),
    ] {
        f.image(&[
            &conv("a", "a"),
            &format!(r#"{{"layer":"{function}Layer","name":"r"}}"#),
            r#"{"layer":"DepthwiseConvLayer","weights":"d_w.json","kernel":3,"pad":1}"#,
            &conv("e", "z"),
            r#"{"layer":"AddLayer","inputs":["z","r"]}"#,
            &conv("e", "last"),
        ]);
        let baked = f.quantize("x.csv", None).unwrap();
        let report = baked.report("", "x86_64", 1000).join("\n");
        assert!(report.contains(expected), "{report}");
        let graph = &baked.network.graph;
        let of_channels = |op: &Op| matches!(op, Op::Convolution { groups: 4, .. });
        let layer = graph.nodes.iter().find(|n| of_channels(&n.op)).unwrap();
        let before = graph.nodes.iter().find(|n| n.output == layer.inputs[0]);
        let before = before.unwrap().op.name();
        assert_eq!(before == "clip", depthwise, "{function}: {before}");
    }
}

/// The bytes of an npy file are the integers of the model's input, as in the program. Other numbers
/// are real.
#[test]
fn bytes_of_records_are_the_integers_of_the_input() {
    let f = NetworkFolder::new();
    let int8 = ByteInput {
        signed: true,
        scale: 0.5,
        first: -128.0 - -28.0,
    };
    let read = |descr: &str, numbers: &[u8], integers| {
        let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': (1, 2), }}\n");
        let mut file = b"\x93NUMPY\x01\0".to_vec();
        file.extend((header.len() as u16).to_le_bytes());
        file.extend(header.bytes().chain(numbers.iter().copied()));
        f.put("x.npy", file);
        let (mut seen, mut mistakes) = (Vec::new(), Mistakes::default());
        let mut files = Files {
            root: &f.path,
            read: &mut seen,
        };
        let path = f.path.join("x.npy");
        matrix::read_records(&path, (2, integers), "", &mut files, &mut mistakes)
            .unwrap()
            .data
    };
    assert_eq!(read("|u1", &[0, 110], Some(int8)), [-50.0, 5.0]);
    assert_eq!(read("|i1", &[0x80, 0xee], Some(int8)), [-50.0, 5.0]);
    assert_eq!(read("<i2", &[3, 0, 4, 0], Some(int8)), [3.0, 4.0]);
    assert_eq!(read("|u1", &[0, 110], None), [0.0, 110.0]);
}
