//! Tests that bake networks from small temporary folders. They check the block, the plan for each
//! device, the fusion of steps, and the message for each mistake.

mod layers;
mod quantize;
mod schemas;

use super::rounding::ClassChanges;
use super::*;
use crate::block::{Block, Section};
use crate::ir::graph::{Graph, Shape};
use crate::ir::half;
use crate::ir::layout::Layout;
use crate::ir::network::{Activation, FinalActivation, Kind, Precision, Transform};
use crate::ir::op::{Arithmetic, Float, Op, Pool, Window};
use crate::ir::options::Places;
use crate::ir::plan::{Arg, Buffer, Plan, Step};
use crate::ir::values::{self, Values};
use crate::registry::{
    Covered, CoveredNode, EngineKind, Kernel, Operation, PlanRecipe, Problem, Traits,
};
use std::borrow::Cow;
use std::sync::atomic::{AtomicU32, Ordering};

/// A temporary folder for a network. It is deleted when the test ends.
struct NetworkFolder {
    path: PathBuf,
}

static FOLDERS: AtomicU32 = AtomicU32::new(0);

impl NetworkFolder {
    fn new() -> NetworkFolder {
        let n = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("mortonnet-bake-{}-{n}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        NetworkFolder { path }
    }

    fn put(&self, name: &str, bytes: impl AsRef<[u8]>) -> &Self {
        std::fs::write(self.path.join(name), bytes).unwrap();
        self
    }

    /// Writes a JSON definition of a matrix, and a CSV file with its numbers.
    fn matrix(
        &self,
        name: &str,
        rows: usize,
        cols: usize,
        value: impl Fn(usize, usize) -> f32,
    ) -> &Self {
        let line = |r| {
            (0..cols)
                .map(|c| value(r, c).to_string())
                .collect::<Vec<_>>()
                .join(",")
        };
        let csv: String = (0..rows).map(|r| line(r) + "\n").collect();
        let json = format!(
            "{{\"rows\":{rows},\"cols\":{cols},\"data_type\":\"csv\",\"file\":\"{name}.csv\"}}"
        );
        self.put(&format!("{name}.json"), json)
            .put(&format!("{name}.csv"), csv)
    }

    /// Writes a network with 3 inputs, a layer of 4 outputs with ReLU, and a layer of 2 outputs.
    /// `extra` has additional members of the network's JSON.
    fn tiny(&self, extra: &str) -> &Self {
        self.matrix("1_w", 4, 3, |r, c| (r as f32 - 1.5) * 0.5 + c as f32 * 0.25)
            .matrix("1_b", 4, 1, |r, _| r as f32 * 0.125)
            .matrix(
                "2_w",
                2,
                4,
                |r, c| if r == 0 { 1.0 } else { -0.5 } * (c as f32 + 1.0),
            )
            .matrix("2_b", 2, 1, |r, _| r as f32);
        self.network(
            r#"{"layer":"AffineLayer","weights":"1_w.json",
                "biases":"1_b.json"},{"layer":"ReLULayer"},
               {"layer":"AffineLayer","weights":"2_w.json","biases":"2_b.json"}"#,
            3,
            extra,
        )
    }

    fn network(&self, layers: &str, size: usize, extra: &str) -> &Self {
        self.put(
            "network.json",
            format!("{{\"layers\":[{layers}],\"size\":{size}{extra}}}"),
        )
    }

    fn settings(&self, plan: &str, weights: Option<&str>) -> Settings {
        let (weights, changes) = stored(weights).unwrap();
        Settings {
            names: Names::Variables,
            root: PathBuf::from(env!("CARGO_MANIFEST_DIR")),
            model: self.path.clone(),
            plan: plan.into(),
            weights,
            sizes: Default::default(),
            arithmetic: Default::default(),
            quantize: None,
            changes,
            lab: true,
        }
    }

    /// Bakes the network with the stored number format that MORTONNET_WEIGHTS=`weights` sets.
    fn bake_stored(&self, plan: &str, weights: &str) -> Result<Baked, Vec<String>> {
        let settings = self.settings(plan, Some(weights));
        bake(&settings).map_err(|e| e.mistakes.lines)
    }

    fn bake_plan(&self, plan: &str) -> Result<Baked, Vec<String>> {
        self.bake_stored(plan, "f32")
    }

    fn bake_halves(&self, plan: &str) -> Result<Baked, Vec<String>> {
        self.bake_stored(plan, "f16")
    }

    fn bake(&self) -> Result<Baked, Vec<String>> {
        self.bake_plan("host")
    }

    /// Bakes the network, which must fail. Returns the mistakes without the path of the folder.
    fn mistakes(&self) -> Vec<String> {
        let own = format!("{}/", self.path.display());
        let list = self.bake().err().expect("the bake accepts it");
        list.into_iter().map(|m| m.replace(&own, "")).collect()
    }
}

impl Drop for NetworkFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

fn affine(w: &str, b: &str) -> String {
    format!("{{\"layer\":\"AffineLayer\",\"weights\":\"{w}.json\",\"biases\":\"{b}.json\"}}")
}

#[test]
fn the_thesis_own_file_shapes_are_enough() {
    let f = NetworkFolder::new();
    let baked = f.tiny("").bake().unwrap();
    let n = &baked.network;
    assert_eq!((n.width, n.outputs(), n.graph.nodes.len()), (3, 2, 3));
    assert_eq!(
        (n.output.kind, n.output.activation),
        (Kind::Classes, FinalActivation::Softmax)
    );
    assert_eq!(n.transform, Transform::Identity);
    assert_eq!(n.shape(), "3-4-2 relu");
    assert_eq!(n.flop(), 2 * (12 + 8));
}

#[test]
fn constants_are_packed_padded_and_page_aligned() {
    let f = NetworkFolder::new();
    for plan in [
        "host",
        "mali-midgard",
        "mali-bifrost",
        "mali-valhall",
        "thesis-morton",
        "thesis-baseline",
    ] {
        let baked = f.tiny("").bake_plan(plan).unwrap();
        assert_eq!(baked.plan.name, plan);
        for (c, &offset) in baked.plan.constants.iter().zip(&baked.constants.offsets) {
            assert_eq!(offset % PAGE, 0);
            let values: Vec<f32> = baked.constants.bytes[offset..offset + c.bytes()]
                .chunks_exact(4)
                .map(|b| f32::from_le_bytes(b.try_into().unwrap()))
                .collect();
            let plain = c.layout.unpack(&values, c.size, c.padded);
            if c.tensor == 0 {
                assert_eq!(plain[0..4], [-0.75, -0.5, -0.25, -0.25]);
            }
            let nonzero = |v: &[f32]| v.iter().filter(|x| **x != 0.0).count();
            assert_eq!(
                nonzero(&values),
                nonzero(&plain),
                "{plan}: the padding is zero"
            );
        }
    }
}

#[test]
fn the_same_inputs_give_the_same_bytes_and_a_changed_weight_others() {
    let f = NetworkFolder::new();
    let one = f.tiny("").bake().unwrap();
    let two = f.bake().unwrap();
    assert!(one.block() == two.block());
    f.matrix("2_b", 2, 1, |r, _| r as f32 + 0.5);
    let other = f.bake().unwrap();
    assert_ne!(opened(&one).hash(), opened(&other).hash());
    assert_ne!(one.network.hash, other.network.hash);
    assert_eq!(one.block().len(), other.block().len());
}

fn opened(baked: &Baked) -> Block {
    Block::open(baked.block().leak()).unwrap()
}

/// Reading the block gives back everything that was baked, under any plan.
#[test]
fn the_block_holds_what_was_baked() {
    let f = NetworkFolder::new();
    f.tiny(r#","name":"tiny","labels":["no","yes"]"#);
    for plan in ["host", "mali-midgard", "nvidia", "adreno", "thesis-morton"] {
        let baked = f.bake_plan(plan).unwrap();
        let block = opened(&baked);
        block.verify().unwrap();
        let (network, about): NetworkSection = block.read(Section::Network).unwrap();
        assert_eq!(network, baked.network);
        assert_eq!(about, (baked.golden.given, baked.golden.range));
        let (found, (offsets, steps)): PlanSection = block.read(Section::Plan).unwrap();
        assert_eq!(found, baked.plan);
        assert_eq!(
            (&*offsets, steps.len()),
            (&*baked.constants.offsets, baked.steps.len())
        );
        assert!(block.read::<Library>(Section::Library).unwrap() == baked.library);
        assert!(block.sources().unwrap() == baked.sources);
        assert_eq!(block.section(Section::Constants), baked.constants.bytes);
        let bytes: Vec<u8> = baked
            .golden
            .scores
            .iter()
            .flat_map(|v| v.to_le_bytes())
            .collect();
        assert_eq!(block.section(Section::GoldenScores), bytes);
    }
}

/// Returns a block with a small network and no kernels, so that its bytes do not change with kernel
/// files.
pub(crate) fn tiny_block() -> Block {
    let f = NetworkFolder::new();
    let mut baked = f
        .tiny(r#","name":"tiny","labels":["no","yes"]"#)
        .bake_plan("mali-midgard")
        .unwrap();
    // The hash of the kernel library would change with every change of the files in `kernels/`.
    baked.sources = Vec::new().into();
    baked.library = Library {
        hash: "0".into(),
        kernels: Vec::new().into(),
        plans: Vec::new().into(),
        devices: Vec::new().into(),
        hosts: Vec::new().into(),
    };
    opened(&baked)
}

/// Bytes times scales are the rounded weights, under any plan. Biases are not rounded. For a plan
/// whose kernels read floats, the rounded weights are stored as floats.
#[test]
fn weights_become_bytes() {
    let f = NetworkFolder::new();
    f.tiny("")
        .matrix("1_w", 4, 3, |r, c| 0.1 + (r * 3 + c) as f32 / 7.0);
    let (whole, bytes) = (f.bake().unwrap(), f.bake_stored("host", "i8").unwrap());
    assert_ne!(bytes.network.hash, whole.network.hash);
    let rounding = bytes.rounding.as_ref().unwrap();
    assert!(
        rounding.score > 0.0 && rounding.classes.is_none(),
        "{rounding}"
    );
    let arrays = |baked: &Baked| {
        let of = |i: usize| {
            let (c, at) = (&baked.plan.constants[i], baked.constants.offsets[i]);
            let bytes = &baked.constants.bytes[at..at + c.bytes()];
            match c.precision {
                Precision::I8 => Values::I8(bytes.iter().map(|&b| b as i8).collect()),
                _ => Values::F32(
                    bytes
                        .chunks(4)
                        .map(|b| f32::from_le_bytes(b.try_into().unwrap()))
                        .collect(),
                ),
            }
        };
        values::arrays(&baked.network.graph, &baked.plan.constants, &of)
    };
    let (given, rounded) = (arrays(&whole), arrays(&bytes));
    for (i, c) in bytes.plan.constants.iter().enumerate() {
        if c.role == Role::Biases {
            assert_eq!(
                (c.padded, c.layout.to_string()),
                ((16, 2), "R_16_1_C".to_string())
            );
            assert_eq!(rounded[c.tensor], given[c.tensor]);
            continue;
        }
        assert_eq!(
            (c.bytes(), c.precision),
            (whole.plan.constants[i].bytes() / 4, Precision::I8)
        );
        let given = given[c.tensor].chunks(c.size.1);
        for (rounded, given) in rounded[c.tensor].chunks(c.size.1).zip(given) {
            let scale = crate::ir::scale::of_row(rounded);
            assert!(
                rounded
                    .iter()
                    .zip(given)
                    .all(|(r, g)| (r - g).abs() <= scale),
                "{rounded:?} {given:?}"
            );
            assert!(
                rounded
                    .iter()
                    .all(|&w| f32::from(crate::ir::scale::number(w, scale)) * scale == w)
            );
        }
    }
    for plan in [
        "mali-midgard",
        "mali-bifrost",
        "adreno",
        "desktop",
        "cpu-simd",
        "nvidia",
        "generic",
    ] {
        assert_eq!(
            arrays(&f.bake_stored(plan, "i8").unwrap()),
            rounded,
            "{plan}"
        );
    }
    let mistakes = f.bake_stored("arm-nt", "i8").err().unwrap().join("\n");
    assert!(
        mistakes.contains("plan arm-nt does not read weights in i8; plans that do: host, "),
        "{mistakes}"
    );
}

/// If the user gives enough golden vectors and storing weights as bytes changes more than 1 % of
/// the classes, the bake fails. The settings may allow more changes.
#[test]
fn bytes_that_change_classes_are_refused() {
    let f = NetworkFolder::new();
    // The scores of both classes differ by less than half a quantization step.
    f.matrix("w", 2, 2, |r, c| [[1.0, 0.003], [1.0, 0.0]][r][c])
        .matrix("b", 2, 1, |r, _| [0.0, 0.001][r]);
    f.network(
        &affine("w", "b"),
        1,
        r#","check":{"inputs":"ci.csv","scores":"cs.csv"}"#,
    );
    let records = |n: usize| {
        let x = |i: usize| i as f32 / n as f32;
        let inputs: String = (0..n).map(|i| format!("1,{}\n", x(i))).collect();
        let scores: String = (0..n)
            .map(|i| format!("{},1.001\n", 1.0 + 0.003 * x(i)))
            .collect();
        f.put("ci.csv", inputs).put("cs.csv", scores);
    };
    records(199);
    assert_eq!(
        f.bake_stored("host", "i8")
            .unwrap()
            .rounding
            .unwrap()
            .classes,
        None
    );
    records(300);
    let mistakes = f.bake_stored("host", "i8").err().unwrap().join("\n");
    let expected = "weights: as i8 they change 200 of 300 classes, at most 1 % are allowed; \
                    MORTONNET_WEIGHTS=f16 stores more digits, MORTONNET_WEIGHTS=i8:67 allows that \
                    many changes";
    assert!(mistakes.contains(expected), "{mistakes}");
    assert!(f.bake_stored("host", "i8:66").is_err());
    assert_eq!(
        f.bake_stored("host", "i8:67")
            .unwrap()
            .rounding
            .unwrap()
            .classes,
        Some(ClassChanges {
            changed: 200,
            vectors: 300
        })
    );
    for wrong in ["i9", "f16:1", "i8:", "i8:-1", "i8:101", "i8:nan", "I8", ""] {
        assert!(stored(Some(wrong)).is_err(), "{wrong}");
    }
}

#[test]
fn weights_become_halves() {
    let f = NetworkFolder::new();
    f.tiny("");
    let (whole, halves) = (f.bake().unwrap(), f.bake_halves("host").unwrap());
    // These weights are multiples of 1/4, which halves represent exactly.
    let exactly = "rounded by at most 0.00e0 of their value, those below 2^-14 by 0.00e0; scores \
                   change by at most 0.00e0, 0 of 32 classes";
    assert_eq!(halves.rounding.as_ref().unwrap().to_string(), exactly);
    assert_eq!(halves.golden.scores, whole.golden.scores);
    for (a, b) in whole
        .plan
        .constants
        .iter()
        .zip(halves.plan.constants.iter())
    {
        let factor = if a.role == Role::Weights { 2 } else { 1 };
        assert_eq!(
            (a.bytes(), a.layout.clone()),
            (factor * b.bytes(), b.layout.clone())
        );
    }
    for plan in [
        "mali-midgard",
        "mali-bifrost",
        "adreno",
        "desktop",
        "cpu-simd",
        "nvidia",
    ] {
        let (whole, halves) = (f.bake_plan(plan).unwrap(), f.bake_halves(plan).unwrap());
        for (a, b) in whole
            .plan
            .constants
            .iter()
            .zip(halves.plan.constants.iter())
        {
            let factor = if a.role == Role::Weights { 2 } else { 1 };
            assert_eq!(
                (a.bytes(), a.tensor),
                (factor * b.bytes(), b.tensor),
                "{plan}"
            );
        }
    }
    let at = |b: &Baked, i: usize| {
        b.constants.bytes[b.constants.offsets[i]..][..b.plan.constants[i].bytes()].to_vec()
    };
    let floats: Vec<u8> = at(&halves, 0)
        .chunks(2)
        .flat_map(|h| half::to_f32(u16::from_le_bytes([h[0], h[1]])).to_le_bytes())
        .collect();
    assert_eq!(floats, at(&whole, 0));
    assert_eq!(at(&whole, 1), at(&halves, 1), "biases stay floats");

    f.matrix("1_w", 4, 3, |r, c| 0.1 + (r * 3 + c) as f32 / 7.0);
    let baked = f.bake_halves("mali-midgard").unwrap();
    let r = baked.rounding.unwrap();
    assert!(
        r.score > 0.0
            && r.weights.starts_with("rounded by at most 4.")
            && r.weights.contains("e-4"),
        "{r:?}"
    );
    assert_ne!(
        baked.network.hash,
        f.bake_plan("mali-midgard").unwrap().network.hash
    );

    let mistakes = f.bake_halves("thesis-baseline").err().unwrap().join("\n");
    let plans = "host, mali-midgard, mali-bifrost, mali-valhall, nvidia-mma, nvidia, adreno, \
                 generic, desktop, cpu-simd";
    let expected =
        format!("plan thesis-baseline does not read weights in f16; plans that do: {plans}");
    assert!(mistakes.contains(&expected), "{mistakes}");
    f.matrix("1_w", 4, 3, |_, _| 65520.0);
    let mistakes = f.bake_halves("host").err().unwrap().join("\n");
    assert!(
        mistakes.contains("layers[0]: weights: a half holds up to 65504, found 65520"),
        "{mistakes}"
    );
}

#[test]
fn every_mistake_is_reported_with_its_place() {
    let f = NetworkFolder::new();
    f.tiny(r#","nmae":1"#);
    f.put("1_w.csv", "1,2,3\n1,x,3\n1,2\n1,2,inf\n").put(
        "2_b.json",
        r#"{"rows":2,"cols":1,"data_type":"txt","file":"q"}"#,
    );
    let m = f.mistakes();
    for part in [
        "network.json: unknown key \"nmae\"",
        "1_w.csv:2:2: expected a finite number, found \"x\"",
        "1_w.csv:3:3: expected 3 numbers, the line has 2",
        "1_w.csv:4:3: expected a finite number, found \"inf\"",
        "2_b.json: data_type: expected csv, npy or f32, found \"txt\"",
    ] {
        assert!(
            m.iter().any(|m| m.contains(part)),
            "{part} is not in {m:#?}"
        );
    }
}

#[test]
fn mistakes_one_by_one() {
    type Change<'a> = &'a dyn Fn(&NetworkFolder);
    let cases: &[(&str, Change<'_>)] = &[
        ("network.json:1:1: not valid JSON", &|f| {
            f.put("network.json", "{");
        }),
        ("expected an object", &|f| {
            f.put("network.json", "[]");
        }),
        ("the key \"layers\" is missing", &|f| {
            f.put("network.json", "{\"size\":0}");
        }),
        (
            "network.json: size: expected 3, the number of layers, found 4",
            &|f| {
                f.network(
                    &format!(
                        "{},{{\"layer\":\"ReLULayer\"}},{}",
                        affine("1_w", "1_b"),
                        affine("2_w", "2_b")
                    ),
                    4,
                    "",
                );
            },
        ),
        (
            "layers[1]: expected a layer (AffineLayer, LeakyReLULayer",
            &|f| {
                f.network(
                    &format!("{},{{\"layer\":\"DropoutLayer\"}}", affine("1_w", "1_b")),
                    2,
                    "",
                );
            },
        ),
        ("layers[1]: the key \"slope\" is missing", &|f| {
            f.network(
                &format!("{},{{\"layer\":\"LeakyReLULayer\"}}", affine("1_w", "1_b")),
                2,
                "",
            );
        }),
        (
            "layers[1]: slope: expected a number in the range of f32",
            &|f| {
                let slope = "{\"layer\":\"LeakyReLULayer\",\"slope\":1e39}";
                f.network(&format!("{},{slope}", affine("1_w", "1_b")), 2, "");
            },
        ),
        (
            "layers[0]: a SoftmaxLayer can only be the last layer",
            &|f| {
                f.network(
                    &format!("{{\"layer\":\"SoftmaxLayer\"}},{}", affine("1_w", "1_b")),
                    2,
                    "",
                );
            },
        ),
        ("layers[1]: takes 3 inputs, layers[0] gives 4", &|f| {
            f.network(
                &format!("{},{}", affine("1_w", "1_b"), affine("1_w", "1_b")),
                2,
                "",
            );
        }),
        ("(its weights would fit transposed)", &|f| {
            f.matrix("t", 4, 2, |_, _| 1.0);
            f.network(
                &format!("{},{}", affine("1_w", "1_b"), affine("t", "1_b")),
                2,
                "",
            );
        }),
        (
            "biases: expected 4 × 1, as the weights have 4 rows, found 1 × 4 (it would fit \
             transposed)",
            &|f| {
                f.matrix("1_b", 1, 4, |_, _| 1.0);
            },
        ),
        (
            "layers[0]: weights: cannot read gone.json: No such file",
            &|f| {
                f.network(&affine("gone", "1_b"), 1, "");
            },
        ),
        ("1_w.json: file: cannot read", &|f| {
            std::fs::remove_file(f.path.join("1_w.csv")).unwrap();
        }),
        ("1_w.csv: expected 4 lines (rows), found 3", &|f| {
            f.put("1_w.csv", "1,2,3\n1,2,3\n1,2,3");
        }),
        ("1_w.f32: expected 48 bytes (4 × 3 f32), found 44", &|f| {
            f.put(
                "1_w.json",
                r#"{"rows":4,"cols":3,"data_type":"f32","file":"1_w.f32"}"#,
            )
            .put("1_w.f32", [0; 44]);
        }),
        (
            "row 2, column 3: expected a finite number, found NaN",
            &|f| {
                let mut values = [0f32; 12];
                values[5] = f32::NAN;
                let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
                f.put(
                    "1_w.json",
                    r#"{"rows":4,"cols":3,"data_type":"f32","file":"1_w.f32"}"#,
                )
                .put("1_w.f32", bytes);
            },
        ),
        ("1_w.json: a matrix of 0 × 3 is empty", &|f| {
            f.put(
                "1_w.json",
                r#"{"rows":0,"cols":3,"data_type":"csv","file":"1_w.csv"}"#,
            );
        }),
        (
            "1_w.json: a matrix of 1000000000000000000 × 64 has more than",
            &|f| {
                f.put(
                    "1_w.json",
                    r#"{"rows":1000000000000000000,"cols":64,"data_type":"csv","file":"1_w.csv"}"#,
                );
            },
        ),
        (
            "1_w.json: a matrix of 1 × 4611686018427387904 has more than",
            &|f| {
                f.put(
                    "1_w.json",
                    r#"{"rows":1,"cols":4611686018427387904,"data_type":"f32","file":"1_w.csv"}"#,
                );
            },
        ),
        (
            "expected the shape (4, 3), found [4, 9223372036854775809, 2]",
            &|f| {
                let mut npy = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
                let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (4, \
                              9223372036854775809, 2), }";
                npy.extend(format!("{header:<117}\n").bytes());
                f.put("1_w.npy", &npy).put(
                    "1_w.json",
                    r#"{"rows":4,"cols":3,"data_type":"npy","file":"1_w.npy"}"#,
                );
            },
        ),
        ("the key \"size\" appears twice", &|f| {
            f.tiny(r#","size":3"#);
        }),
        ("1_w.json: file: /dev/zero is not a regular file", &|f| {
            f.put(
                "1_w.json",
                r#"{"rows":4,"cols":3,"data_type":"f32","file":"/dev/zero"}"#,
            );
        }),
        (
            "name: \"n\\nx\": expected a name without line breaks",
            &|f| {
                f.tiny(r#","name":"n\nx""#);
            },
        ),
        ("labels: \"a\" appears twice", &|f| {
            f.tiny(r#","labels":["a","a"]"#);
        }),
        ("check the scaling and the weights", &|f| {
            f.tiny(r#","input":{"scale":1e-300}"#);
        }),
        ("labels: expected 2 names, found 1", &|f| {
            f.tiny(r#","labels":["a"]"#);
        }),
        ("features: expected 3 names, found 2", &|f| {
            f.tiny(r#","features":["a","b"]"#);
        }),
        (
            "input: expected scale and offset, or mean and std, found some of both",
            &|f| {
                f.tiny(r#","input":{"scale":1,"mean":2}"#);
            },
        ),
        ("input: std: entry 1 is 0", &|f| {
            f.tiny(r#","input":{"mean":2,"std":[1,0,1]}"#);
        }),
        (
            "input: scale: expected one number or 3, one per input, found 2",
            &|f| {
                f.tiny(r#","input":{"scale":[1,2]}"#);
            },
        ),
        (
            "output: kind: expected classes, binary, multilabel or values, found \"klass\"",
            &|f| {
                f.tiny(r#","output":{"kind":"klass"}"#);
            },
        ),
        (
            "output: kind: binary takes 1 output, the last layer has 2",
            &|f| {
                f.tiny(r#","output":{"kind":"binary"}"#);
            },
        ),
        ("output: threshold: only binary and multilabel", &|f| {
            f.tiny(r#","output":{"kind":"classes","threshold":0.3}"#);
        }),
        ("one output without a final SigmoidLayer", &|f| {
            f.matrix("3_w", 1, 3, |_, _| 1.0)
                .matrix("3_b", 1, 1, |_, _| 0.0);
            f.network(&affine("3_w", "3_b"), 1, "");
        }),
        (
            "check: scores: record 1, output 1: the network gives",
            &|f| {
                f.tiny(r#","check":{"inputs":"ci.csv","scores":"cs.csv"}"#)
                    .put("ci.csv", "0,0,0")
                    .put("cs.csv", "2.5,9");
            },
        ),
        ("expected as many inputs as scores", &|f| {
            f.tiny(r#","check":{"inputs":"ci.csv","scores":"cs.csv"}"#)
                .put("ci.csv", "0,0,0")
                .put("cs.csv", "1,1\n1,1");
        }),
    ];
    for (part, change) in cases {
        let f = NetworkFolder::new();
        f.tiny("");
        change(&f);
        let m = f.mistakes();
        assert!(
            m.iter().any(|m| m.contains(part)),
            "{part:?} is not in {m:#?}"
        );
        assert!(m.iter().all(|m| !m.contains('\n')));
    }
    let f = NetworkFolder::new();
    let e = f.mistakes();
    let expected = "expected network.json in this folder, found no model";
    assert!(
        e[0].starts_with("MORTONNET_MODEL=") && e[0].ends_with(expected),
        "{e:?}"
    );
    let f = NetworkFolder::new();
    let e = f.tiny("").bake_plan("fastest").err().unwrap();
    assert!(
        e[0].contains("no plan is called \"fastest\"; the library has host, mali-midgard"),
        "{e:?}"
    );
}

/// A matrix that cannot be read causes no mistakes in other layers. Mistakes in other layers are
/// still found.
#[test]
fn one_mistake_is_one_message() {
    type Change<'a> = &'a dyn Fn(&NetworkFolder);
    let definition = |name: &str, rows: usize, cols: usize, kind: &str| {
        format!(
            "{{\"rows\":{rows},\"cols\":{cols},\"data_type\":\"{kind}\",\"file\":\"{name}.csv\"}}"
        )
    };
    let act = |name: &str| format!("{{\"layer\":\"{name}\"}}");
    let extra = r#","features":["a","b","c"],"labels":["x","y"],"input":{"mean":[1,2,3],
        "std":[1,2,3]},
                   "output":{"kind":"classes"}"#;
    let cases: &[(&[&str], Change<'_>)] = &[
        (
            &["1_w.csv:2:2: expected a finite number, found \"x\""],
            &|f| {
                f.put("1_w.csv", "1,2,3\n1,x,3\n1,2,3\n1,2,3\n");
            },
        ),
        (&["1_w.csv:2:3: expected 3 numbers, the line has 2"], &|f| {
            f.put("1_w.csv", "1,2,3\n1,2\n1,2,3\n1,2,3\n");
        }),
        (&["1_w.csv: expected 4 lines (rows), found 3"], &|f| {
            f.put("1_w.csv", "1,2,3\n1,2,3\n1,2,3\n");
        }),
        // The JSON definition says 4 columns, but each line of the CSV file has 3. So each line
        // gets a message.
        (
            &[
                "1_w.csv:1:4: expected 4 numbers",
                "1_w.csv:2:4",
                "1_w.csv:3:4",
                "1_w.csv:4:4",
            ],
            &|f| {
                f.put("1_w.json", definition("1_w", 4, 4, "csv"));
            },
        ),
        (&["2_w.csv: expected 3 lines (rows), found 2"], &|f| {
            f.put("2_w.json", definition("2_w", 3, 4, "csv"));
        }),
        (&["1_w.csv: expected 48 bytes"], &|f| {
            f.put("1_w.json", definition("1_w", 4, 3, "f32"));
        }),
        (
            &["2_w.json: data_type: expected csv, npy or f32, found \"txt\""],
            &|f| {
                f.put("2_w.json", definition("2_w", 2, 4, "txt"));
            },
        ),
        (&["2_w.json: file: cannot read"], &|f| {
            std::fs::remove_file(f.path.join("2_w.csv")).unwrap();
        }),
        (&["layers[0]: weights: cannot read 1_w.json"], &|f| {
            std::fs::remove_file(f.path.join("1_w.json")).unwrap();
        }),
        (&["layers[2]: weights: cannot read 2_w.json"], &|f| {
            std::fs::remove_file(f.path.join("2_w.json")).unwrap();
        }),
        (
            &["2_b.csv:2:1: expected a finite number, found \"x\""],
            &|f| {
                f.put("2_b.csv", "0\nx\n");
            },
        ),
        // The size of the unreadable matrix in the middle of 3-4-4-2 is not known. So its
        // neighbours are not compared with each other.
        (&["layers[1]: weights: cannot read gone.json"], &|f| {
            f.matrix("2_w", 2, 5, |_, _| 1.0);
            let layers = [
                affine("1_w", "1_b"),
                affine("gone", "1_b"),
                affine("2_w", "2_b"),
            ];
            f.network(&layers.join(","), 3, extra);
        }),
        (&["layers[1]: expected a layer (AffineLayer"], &|f| {
            f.matrix("2_w", 2, 5, |_, _| 1.0);
            let layers = [affine("1_w", "1_b"), act("PoolLayer"), affine("2_w", "2_b")];
            f.network(&layers.join(","), 3, extra);
        }),
        // An unknown layer stands behind a layer with one output. The output of the network is then
        // not known, so only the unknown layer is reported.
        (&["layers[1]: expected a layer (AffineLayer"], &|f| {
            f.matrix("3_w", 1, 3, |_, _| 1.0)
                .matrix("3_b", 1, 1, |_, _| 0.0);
            f.network(&[affine("3_w", "3_b"), act("GeluLayer")].join(","), 2, "");
        }),
        // The size of the unreadable matrix is known, so the number of means is still checked
        // against it.
        (
            &[
                "1_w.csv:1:1: expected a finite",
                "input: mean: expected one number or 3, one per input, found 4",
            ],
            &|f| {
                f.tiny(r#","input":{"mean":[1,2,3,4]}"#)
                    .put("1_w.csv", "x,2,3\n1,2,3\n1,2,3\n1,2,3\n");
            },
        ),
        (
            &[
                "1_w.csv:1:1: expected a finite",
                "layers[0]: biases: expected 4 × 1, as the weights have 4 rows",
            ],
            &|f| {
                f.matrix("1_b", 5, 1, |_, _| 1.0)
                    .put("1_w.csv", "x,2,3\n1,2,3\n1,2,3\n1,2,3\n");
            },
        ),
        (
            &[
                "1_w.csv:1:1: expected a finite",
                "layers[2]: takes 5 inputs, layers[0] gives 4",
            ],
            &|f| {
                f.matrix("2_w", 2, 5, |_, _| 1.0)
                    .put("1_w.csv", "x,2,3\n1,2,3\n1,2,3\n1,2,3\n");
            },
        ),
        (
            &[
                "2_w.csv:1:1: expected a finite",
                "labels: expected 2 names, found 3",
            ],
            &|f| {
                f.tiny(r#","labels":["x","y","z"]"#)
                    .put("2_w.csv", "x,2,3,4\n1,2,3,4\n");
            },
        ),
    ];
    for (expected, change) in cases {
        let f = NetworkFolder::new();
        f.tiny(extra);
        change(&f);
        let found = f.mistakes();
        assert_eq!(found.len(), expected.len(), "{expected:?}: {found:#?}");
        for (found, expected) in found.iter().zip(*expected) {
            assert!(found.contains(expected), "{expected:?} is not in {found:?}");
        }
    }
}

/// A CSV header of numbers could not be told from a record. A header is recognized if one name is
/// not a number.
#[test]
fn features_must_not_all_be_numbers() {
    for names in [
        r#""0","1","2""#,
        r#""1.5","-2","nan""#,
        r#"" 1","2 ","+3e5""#,
    ] {
        let f = NetworkFolder::new();
        let [mistake] = &f.tiny(&format!(",\"features\":[{names}]")).mistakes()[..] else {
            panic!("{names}")
        };
        let expected = "network.json: features: expected names that are not all numbers, found \"";
        assert!(mistake.starts_with(expected), "{mistake}");
        assert!(
            mistake.contains("give names, or leave out both the key"),
            "{mistake}"
        );
    }
    for names in [r#""0","1","x2""#, r#""1st","2nd","3rd""#] {
        let f = NetworkFolder::new();
        f.tiny(&format!(",\"features\":[{names}]")).bake().unwrap();
    }
}

#[test]
fn npy_and_f32_give_what_csv_gives() {
    let f = NetworkFolder::new();
    let csv = f.tiny("").bake().unwrap();
    let values: Vec<f32> = (0..12)
        .map(|i| ((i / 3) as f32 - 1.5) * 0.5 + (i % 3) as f32 * 0.25)
        .collect();
    let le: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    f.put("1_w.f32", &le).put(
        "1_w.json",
        r#"{"rows":4,"cols":3,"data_type":"f32","file":"1_w.f32"}"#,
    );
    assert_eq!(f.bake().unwrap().constants.bytes, csv.constants.bytes);
    let mut npy = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
    let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (4, 3), }";
    npy.extend(format!("{header:<117}\n").bytes());
    npy.extend(&le);
    f.put("1_w.npy", &npy).put(
        "1_w.json",
        r#"{"rows":4,"cols":3,"data_type":"npy","file":"1_w.npy"}"#,
    );
    assert_eq!(f.bake().unwrap().constants.bytes, csv.constants.bytes);
}

#[test]
fn scaling_is_folded_where_it_costs_nothing_and_left_to_the_reader_elsewhere() {
    let f = NetworkFolder::new();
    let plain = f.tiny("").bake().unwrap();
    let images = f
        .tiny(r#","input":{"scale":0.00392156862745098}"#)
        .bake()
        .unwrap();
    assert!(images.network.folded && images.network.transform == Transform::Identity);
    let barometer = f
        .tiny(r#","input":{"mean":[101325,0,0],"std":[300,1,1]}"#)
        .bake()
        .unwrap();
    assert!(!barometer.network.folded);
    assert_eq!(barometer.network.transform.apply(0, 101625.0), 1.0);
    // Equal scaled inputs have equal scores, whether the scaling is folded or not. Golden vectors
    // have inputs in the raw range.
    let weights = |b: &Baked| {
        let mut w = vec![Vec::new(); b.network.graph.tensors.len()];
        for (c, &o) in b.plan.constants.iter().zip(&b.constants.offsets) {
            let v: Vec<f32> = b.constants.bytes[o..o + c.bytes()]
                .chunks_exact(4)
                .map(|b| f32::from_le_bytes(b.try_into().unwrap()))
                .collect();
            w[c.tensor] = c.layout.unpack(&v, c.size, c.padded);
        }
        w
    };
    let z = [0.25, 0.5, 1.0];
    let expected = plain.network.scores(&weights(&plain), &z);
    let raw = z.map(|v| v * 255.0);
    for (a, b) in expected
        .iter()
        .zip(images.network.scores(&weights(&images), &raw))
    {
        assert!((a - b).abs() < 1e-5, "{a} {b}");
    }
    let raw = [101325.0 + 300.0 * z[0], z[1], z[2]];
    for (a, b) in expected
        .iter()
        .zip(barometer.network.scores(&weights(&barometer), &raw))
    {
        assert!((a - b).abs() < 1e-6, "{a} {b}");
    }
    assert!(
        images.golden.inputs.iter().any(|&v| v > 200.0)
            && images.golden.inputs.iter().all(|&v| v <= 255.0)
    );
    assert!(
        barometer
            .golden
            .inputs
            .iter()
            .step_by(3)
            .all(|&v| (v - 101325.0).abs() <= 601.0)
    );
}

#[test]
fn outputs_mean_what_the_last_layer_says() {
    let f = NetworkFolder::new();
    f.tiny("")
        .matrix("s_w", 1, 4, |_, c| c as f32)
        .matrix("s_b", 1, 1, |_, _| 0.0);
    let end = |last: &str, w: &str, extra: &str| {
        let tail = if last.is_empty() {
            String::new()
        } else {
            format!(",{{\"layer\":\"{last}\"}}")
        };
        let size = 2 + usize::from(!last.is_empty());
        f.network(
            &format!(
                "{},{}{tail}",
                affine("1_w", "1_b"),
                affine(w, &w.replace("_w", "_b"))
            ),
            size,
            extra,
        );
        let o = f.bake().unwrap().network;
        (o.output.kind, o.output.activation, o.graph.nodes.len())
    };
    assert_eq!(
        end("", "2_w", ""),
        (Kind::Classes, FinalActivation::Softmax, 2)
    );
    assert_eq!(
        end("SoftmaxLayer", "2_w", ""),
        (Kind::Classes, FinalActivation::Softmax, 2)
    );
    assert_eq!(
        end("SigmoidLayer", "2_w", ""),
        (Kind::Classes, FinalActivation::Sigmoid, 2)
    );
    assert_eq!(
        end("ReLULayer", "2_w", ""),
        (Kind::Classes, FinalActivation::Softmax, 3)
    );
    assert_eq!(
        end("SigmoidLayer", "s_w", ""),
        (Kind::Binary, FinalActivation::Sigmoid, 2)
    );
    assert_eq!(
        end("", "s_w", r#","output":{"kind":"binary"}"#),
        (Kind::Binary, FinalActivation::Sigmoid, 2)
    );
    assert_eq!(
        end("", "s_w", r#","output":{"kind":"values"}"#),
        (Kind::Values, FinalActivation::None, 2)
    );
    assert_eq!(
        end("TanhLayer", "s_w", r#","output":{"kind":"values"}"#),
        (Kind::Values, FinalActivation::Tanh, 2)
    );
    assert_eq!(
        end("", "2_w", r#","output":{"kind":"multilabel"}"#),
        (Kind::Multilabel, FinalActivation::Sigmoid, 2)
    );
}

#[test]
fn a_leaky_relu_has_the_slope_of_its_layer() {
    let f = NetworkFolder::new();
    f.tiny("");
    let baked = |slope: &str| {
        let layer = format!("{{\"layer\":\"LeakyReLULayer\",\"slope\":{slope}}}");
        f.network(
            &format!("{},{layer},{}", affine("1_w", "1_b"), affine("2_w", "2_b")),
            3,
            "",
        );
        f.bake_plan("mali-midgard").unwrap()
    };
    let (tenth, one, none) = (baked("0.1"), baked("1"), baked("0"));
    let slope = Activation::LeakyRelu(Float::new(0.1));
    assert_eq!(tenth.network.graph.nodes[1].op, Op::Activation(slope));
    let options = tenth.plan.steps[0].options.to_string();
    assert!(options.contains("-DACT0=4"), "{options}");
    assert!(options.contains("-DPARAMS0=1e-1f,0e0f"), "{options}");
    // The scores are linear in the slope of the leaky ReLU. With slope 0 they are those of a ReLU.
    f.tiny("");
    assert_eq!(none.golden.scores, f.bake().unwrap().golden.scores);
    assert_ne!(one.golden.scores, none.golden.scores);
    for ((t, o), n) in tenth
        .golden
        .scores
        .iter()
        .zip(&one.golden.scores)
        .zip(&none.golden.scores)
    {
        assert!(
            (t - (0.1 * o + 0.9 * n)).abs() < 1e-4 * t.abs().max(1.0),
            "{t} {o} {n}"
        );
    }
}

/// Copies the kernel library to a folder of its own, changes it in one place, and returns the
/// mistakes that reading it reports.
fn library_mistakes(change: &dyn Fn(String) -> String, files: &[(&str, &str)]) -> Vec<String> {
    let f = NetworkFolder::new();
    f.tiny("");
    let from = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("kernels");
    let to = f.path.join("kernels");
    for entry in std::fs::read_dir(&from).unwrap().flatten() {
        if entry.path().is_dir() {
            std::fs::create_dir_all(to.join(entry.file_name())).unwrap();
            for file in std::fs::read_dir(entry.path()).unwrap().flatten() {
                std::fs::copy(
                    file.path(),
                    to.join(entry.file_name()).join(file.file_name()),
                )
                .unwrap();
            }
        }
    }
    let text = std::fs::read_to_string(from.join("library.json")).unwrap();
    std::fs::write(to.join("library.json"), change(text)).unwrap();
    for (name, text) in files {
        std::fs::write(to.join(name), text).unwrap();
    }
    let settings = Settings {
        names: Names::Variables,
        root: f.path.clone(),
        model: "network.json".into(),
        plan: "host".into(),
        weights: Some(Precision::F32),
        sizes: Default::default(),
        arithmetic: Default::default(),
        quantize: None,
        changes: 1.0,
        lab: true,
    };
    bake(&settings)
        .err()
        .map_or_else(Vec::new, |e| e.mistakes.lines)
}

#[test]
fn the_library_is_checked_too() {
    assert_eq!(library_mistakes(&|t| t, &[]), Vec::<String>::new());
    let replace = |from: &'static str, to: &'static str| move |t: String| t.replacen(from, to, 1);
    let width = "\"args\": [\"depth\", \"width\"]";
    let cases: Vec<(&str, Vec<String>)> = vec![
        (
            "chunks of 4×3 do not divide the chunks of 2×4",
            library_mistakes(&replace("\"R_2_4_R\"", "\"R_2_4_R_4_3_R\""), &[]),
        ),
        (
            "rowAlign and colAlign allow sizes that the layout does not",
            library_mistakes(
                &replace(
                    "\"R_2_4_R\", \"rowAlign\": 4",
                    "\"R_2_4_R\", \"rowAlign\": 3",
                ),
                &[],
            ),
        ),
        (
            "argmax_rm takes its operand in layout R, affine_packed_4x4 before it gives C_1_16_R",
            library_mistakes(
                &replace(
                    "\"affine_packed_4x4\", \"activation_unbound\", \"convolution_packed_4x4\", \
                     \"convolution_depthwise_packed\", \"convolution_any\", \"pool_packed\", \
                     \"scale_any\", \"combine_any\", \"resample_any\", \"product_any\", \
                     \"softmax_any\", \"gather_any\", \"argmax_packed\"",
                    "\"affine_packed_4x4\", \"activation_unbound\", \"convolution_packed_4x4\", \
                     \"convolution_depthwise_packed\", \"convolution_any\", \"pool_packed\", \
                     \"scale_any\", \"combine_any\", \"resample_any\", \"product_any\", \
                     \"softmax_any\", \"gather_any\", \"argmax_rm\"",
                ),
                &[],
            ),
        ),
        (
            "covers: expected nodes out of affine, convolution, dense_convolution, \
             depthwise_convolution, pool, scale, rescale, combine, add, resample, product, \
             softmax, ",
            library_mistakes(
                &replace("\"covers\": [\"affine\"", "\"covers\": [\"afine\""),
                &[],
            ),
        ),
        (
            "pair has weights of 2 nodes, its chain has 1",
            library_mistakes(
                &replace(
                    "[\"affine\", \"activation?\", \"affine\"]",
                    "[\"affine\", \"activation?\"]",
                ),
                &[],
            ),
        ),
        (
            "layers takes all constants at once, so it covers a repeated chain",
            library_mistakes(
                &replace(
                    "[\"affine\", \"activation?\", \"...\"]",
                    "[\"affine\", \"activation?\"]",
                ),
                &[],
            ),
        ),
        (
            "affine has operands for its layers, so it covers no repeated chain",
            library_mistakes(
                &replace(
                    "\"epilogue\"",
                    "\"covers\": [\"affine\", \"...\"], \"epilogue\"",
                ),
                &[],
            ),
        ),
        (
            "the chain begins with an affine node",
            library_mistakes(
                &replace(
                    "\"epilogue\"",
                    "\"covers\": [\"tanh\", \"affine\"], \"epilogue\"",
                ),
                &[],
            ),
        ),
        (
            "covers and epilogue have one activation at most",
            library_mistakes(
                &replace("\"epilogue\": [", "\"epilogue\": [\"relu\", "),
                &[],
            ),
        ),
        (
            "an epilogue may have \"rescale\", \"round\", \"add\" and an activation",
            library_mistakes(
                &replace("\"epilogue\": [\"activation\"", "\"epilogue\": [\"affine\""),
                &[],
            ),
        ),
        (
            "affine has no operand for what it adds",
            library_mistakes(
                &replace("\"epilogue\": [\"activation\"", "\"epilogue\": [\"add\""),
                &[],
            ),
        ),
        (
            "convolution_packed_4x4: expected the parameters (",
            library_mistakes(&replace("\"round\", \"add\", ", "\"round\", "), &[]),
        ),
        (
            "matmul covers no other node and has no epilogue",
            library_mistakes(
                &replace(
                    "\"about\": \"one element per work-item",
                    "\"epilogue\": [\"relu\"], \"about\": \"one element per work-item",
                ),
                &[],
            ),
        ),
        (
            "no kernel is called \"matmul_fast\"",
            library_mistakes(&replace("[\"matmul_naive\"", "[\"matmul_fast\""), &[]),
        ),
        (
            "needs an affine or matmul kernel",
            library_mistakes(&replace("[\"matmul_naive\", ", "["), &[]),
        ),
        (
            "leastComputeCapability: expected \"MAJOR.MINOR\", found \"8\"",
            library_mistakes(
                &replace(
                    "\"leastComputeCapability\": \"8.6\"",
                    "\"leastComputeCapability\": \"8\"",
                ),
                &[],
            ),
        ),
        (
            "withoutLab: expected a plan of every program, found \"nvidia-mma\"",
            library_mistakes(
                &replace(
                    "\"withoutLab\": \"nvidia\"",
                    "\"withoutLab\": \"nvidia-mma\"",
                ),
                &[],
            ),
        ),
        (
            "format: expected 1, found 2",
            library_mistakes(&replace("\"format\": 1", "\"format\": 2"), &[]),
        ),
        (
            "kernels/bias/new.cl: no entry of kernels/library.json uses this file",
            { library_mistakes(&|t| t, &[("bias/new.cl", "")]) },
        ),
        (
            "the function is FOLDER_FILE",
            library_mistakes(
                &replace("\"function\": \"bias_rm\"", "\"function\": \"b\""),
                &[],
            ),
        ),
        (
            "kernels/bias/rm.cl: bias_rm: expected the parameters (uint w, r, bias)",
            library_mistakes(
                &|t| t,
                &[(
                    "bias/rm.cl",
                    "kernel void bias_rm(uint h, global float *r, global const float *bias) {}",
                )],
            ),
        ),
        (
            "restrictions: arglist: expected letters of \"lwhnmscpgvfbkt\", found 'q'",
            library_mistakes(&replace(width, "\"arglist\": \"lq\""), &[]),
        ),
        (
            "restrictions: args: expected one of depth, width, height, rows, middle, second, \
             parts, params, geometry, value, moved, added, product, factors, found \"l\"",
            library_mistakes(&replace(width, "\"args\": [\"l\"]"), &[]),
        ),
        (
            "restrictions: expected either \"args\" or \"arglist\"",
            library_mistakes(&replace(width, "\"args\": [], \"arglist\": \"\""), &[]),
        ),
        (
            "cannot read",
            library_mistakes(&replace("bias/rm.cl", "bias/rn.cl"), &[]),
        ),
        (
            "plan thesis-baseline: matmul_image_relaxed is compiled with -cl-fast-relaxed-math, \
             which may change results",
            library_mistakes(
                &replace("[\"matmul_naive\"", "[\"matmul_image_relaxed\""),
                &[],
            ),
        ),
        (
            "options: expected options of OpenCL's compiler (-cl-…), found \"-O3\"",
            library_mistakes(
                &replace("\"-cl-fast-relaxed-math\"", "\"-cl-fast-relaxed-math -O3\""),
                &[],
            ),
        ),
        (
            "restrictions: flop: expected the flop of a multiply-add, found 0",
            library_mistakes(&replace("\"flop\": 2", "\"flop\": 0"), &[]),
        ),
        (
            "bias_rm does not run on the host engine",
            library_mistakes(&replace("\"argmax_host\"]", "\"bias_rm\"]"), &[]),
        ),
    ];
    for (part, m) in cases {
        assert!(
            m.iter().any(|m| m.contains(part)),
            "{part:?} is not in {m:#?}"
        );
    }
}

/// Some kernels come from documents that prescribe their work-groups, work-items and barriers. The
/// library's kernels have these.
#[test]
fn kernels_have_the_shapes_of_their_documents() {
    let f = NetworkFolder::new();
    let baked = f.tiny("").bake().unwrap();
    let kernel = |name: &str| baked.library.kernel(name).unwrap().1;
    let shape = |name: &str| {
        (
            kernel(name).restrictions.scale,
            kernel(name).restrictions.work_group,
        )
    };
    assert_eq!(shape("bias_morton_4_2"), ((4, 1), None));
    assert_eq!(shape("bias_morton_4_2_grouped"), ((4, 1), Some((1, 16))));
    assert_eq!(shape("sigmoid_morton_4_2_grouped"), ((1, 1), Some((4, 16))));
    assert_eq!(shape("relu_morton_4_2_grouped"), ((1, 1), Some((4, 16))));
    let sobel: Vec<&Kernel> = baked
        .library
        .kernels
        .iter()
        .filter(|k| k.operation == Operation::Sobel)
        .collect();
    assert!(sobel.len() == 8 && sobel.iter().all(|k| k.restrictions.columns_first));
    for (path, text) in baked
        .sources
        .iter()
        .filter(|s| s.0.starts_with("matmul/cacheblocked"))
    {
        assert!(
            text.contains("barrier(CLK_GLOBAL_MEM_FENCE)") && !text.contains("LOCAL_MEM"),
            "{path}"
        );
    }
    let local = baked
        .sources
        .iter()
        .find(|s| s.0 == "matmul/columns_local_vector.cl")
        .unwrap();
    assert_eq!(local.1.matches("barrier(CLK_LOCAL_MEM_FENCE)").count(), 2);
}

/// A program without the lab contains only the kernels that plans use, and their sources.
#[test]
fn without_the_lab_only_kernels_of_plans_are_baked() {
    let f = NetworkFolder::new();
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let model = f.tiny("").path.clone();
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
    let (with, without) = (
        f.bake().unwrap(),
        bake(&settings).map_err(|e| e.mistakes.lines).unwrap(),
    );
    assert_eq!(
        without.library.hash, with.library.hash,
        "the same kernels under the same names"
    );
    assert_eq!(without.plan, with.plan);
    // The variants of plans for few records use other kernels, which must be baked, too.
    let kernels = |plan: &PlanRecipe| -> Vec<Cow<'static, str>> {
        let few = plan.few.iter().flat_map(|few| few.kernels.iter());
        plan.kernels.iter().chain(few).cloned().collect()
    };
    assert!(without.library.plans.iter().any(|plan| plan.few.is_some()));
    for plan in without.library.plans.iter() {
        for name in kernels(plan) {
            let kernel = without.library.kernel(&name).unwrap().1;
            let there = |path: &str| without.sources.iter().any(|s| s.0 == path);
            let Some(own) = &kernel.source else { continue };
            assert!(there(own) && kernel.common().all(there), "{own}");
        }
    }
    let used = |name: &str| {
        without
            .library
            .plans
            .iter()
            .any(|p| kernels(p).iter().any(|k| k == name))
    };
    assert!(without.library.kernels.iter().all(|k| used(&k.codename)));
    assert!(!without.sources.iter().any(|s| s.0.starts_with("sobel/")));
    assert!(without.sources.len() < with.sources.len());

    // A plan for devices that are on no board is left out, unless the user asks for it. Its devices
    // get another plan instead.
    let class = |baked: &Baked| {
        let h200 = Traits {
            vendor: "NVIDIA Corporation",
            name: "NVIDIA H200",
            cpu: false,
            compute_capability: Some((9, 0)),
        };
        baked.library.device_class(h200).unwrap().plan.to_string()
    };
    let there = |baked: &Baked| baked.library.plan("nvidia-mma").is_ok();
    assert_eq!((class(&with), there(&with)), ("nvidia-mma".into(), true));
    assert_eq!((class(&without), there(&without)), ("nvidia".into(), false));
    assert!(without.steps.iter().all(|s| s.plan != "nvidia-mma"));
    let asked = bake(&Settings {
        plan: "nvidia-mma".into(),
        ..settings
    })
    .map_err(|e| e.mistakes.lines)
    .unwrap();
    assert_eq!((class(&asked), there(&asked)), ("nvidia-mma".into(), true));
}

/// The number of floating-point operations of a step follows from the kernel's entry in the
/// library.
#[test]
fn flop_are_counted_as_the_library_says() {
    let f = NetworkFolder::new();
    let baked = f.tiny("").bake().unwrap();
    let square = Problem {
        h: 96,
        w: 96,
        l: 96,
    };
    let flop = |name: &str| baked.library.kernel(name).unwrap().1.flop(square);
    assert_eq!(flop("matmul_naive"), 2 * 96 * 96 * 96);
    assert_eq!(
        flop("matmul_cacheblocked_nt"),
        2 * 96 * 96 * 97,
        "ARM: 2N²(N+1)"
    );
    assert_eq!(
        (flop("bias_rm"), flop("sigmoid_rm")),
        (96 * 96, 4 * 96 * 96)
    );
    for plan in ["thesis-baseline", "adreno", "nvidia", "mali-midgard"] {
        let recipe = baked.library.plan(plan).unwrap();
        let products = |library: &Library| -> u64 {
            let plan = planner::plan(&baked.network, recipe, library, None).unwrap();
            plan.full()
                .iter()
                .filter(|s| s.operation.is_product())
                .map(|s| s.flop)
                .sum()
        };
        assert_eq!(products(&baked.library), baked.network.flop(), "{plan}");
        let mut other = baked.library.clone();
        other
            .kernels
            .to_mut()
            .iter_mut()
            .for_each(|k| k.restrictions.flop = 3);
        assert_eq!(2 * products(&other), 3 * baked.network.flop(), "{plan}");
    }
}

/// If a kernel has a bounds check, its rows are not padded to whole work-groups. The launch still
/// has whole work-groups.
#[test]
fn guarded_rows_are_not_padded_to_work_groups() {
    let f = NetworkFolder::new();
    let baked = f.tiny("").bake_plan("adreno").unwrap();
    let recipe = baked.library.plan("adreno").unwrap();
    let sweep = &baked
        .library
        .kernel("affine_image")
        .unwrap()
        .1
        .restrictions
        .sweep;
    assert!(sweep.contains(&(16, 4)) && sweep.len() > 3);
    for &(rows, cols) in sweep.iter() {
        let groups = vec![("affine_image".into(), (rows, cols))].into();
        let plan = planner::plan(
            &baked.network,
            &PlanRecipe {
                groups,
                ..recipe.clone()
            },
            &baked.library,
            None,
        )
        .unwrap();
        let step = &plan.steps[0];
        assert_eq!((step.problem.h, step.local), (4, Some((rows, cols))));
        assert_eq!(
            (step.global.0.items(1), step.global.1.items(1)),
            (rows, cols)
        );
        assert_eq!(plan.granule, 8 * cols);
    }
}

#[test]
fn layers_are_fused_and_buffers_share_the_arena() {
    let f = NetworkFolder::new();
    f.tiny("");
    let layer_by_layer = |f: &NetworkFolder| {
        let b = f.bake_plan("mali-midgard").unwrap();
        let recipe = b
            .library
            .layer_by_layer(b.library.plan("mali-midgard").unwrap())
            .unwrap();
        planner::plan(&b.network, &recipe, &b.library, None).unwrap()
    };
    let fused = layer_by_layer(&f);
    assert_eq!(
        fused.full().iter().map(|s| &*s.kernel).collect::<Vec<_>>(),
        ["affine_packed_4x4", "affine_packed_4x4", "argmax_packed"]
    );
    assert_eq!(
        (fused.granule, fused.batch, fused.padded_batch),
        (32, 256, 256)
    );
    let thesis = f.bake_plan("thesis-baseline").unwrap().plan;
    assert_eq!(thesis.steps.len(), 6);
    assert_eq!(
        (thesis.granule, thesis.batch),
        (100, 100),
        "row major: a part batch is no prefix"
    );
    // In a chain of five affine layers, the hidden buffers alternate between two offsets in the
    // arena.
    let layers: Vec<String> = (0..5).map(|_| affine("q_w", "q_b")).collect();
    f.matrix("q_w", 3, 3, |_, _| 1.0)
        .matrix("q_b", 3, 1, |_, _| 0.0)
        .network(&layers.join(","), 5, "");
    let deep = layer_by_layer(&f);
    let hidden: Vec<_> = deep
        .buffers
        .iter()
        .filter(|b| b.role == crate::ir::plan::BufferRole::Hidden)
        .take(4)
        .collect();
    assert_eq!(hidden.len(), 4);
    assert_eq!(
        deep.arena_bytes,
        2 * (hidden[0].len(256) * 4).next_multiple_of(PAGE)
    );
    assert!(deep.layers_chain());
}

/// Small networks run in one launch of a kernel for the whole network. The test checks which
/// networks do, and the options of the kernel. The constants are the same as with one launch for
/// each layer.
#[test]
fn small_networks_are_one_launch() {
    let f = NetworkFolder::new();
    let baked = f.tiny("").bake_plan("mali-midgard").unwrap();
    let library = &baked.library;
    let recipe = library.plan("mali-midgard").unwrap();
    let separate = library.layer_by_layer(recipe).unwrap();
    let [step] = &*baked.plan.steps else {
        panic!("{:?}", baked.plan.steps)
    };
    assert_eq!(
        step.options.to_string(),
        "-DLAYERS=2 -DCLASSES=2 -DHIDDEN=64 -DROWS=64 -DL0=3 -DK0=3 -DQ0=1 -DACT0=2 -DA0=0 \
         -DB0=256 -DS0=0 -DPARAMS0=0e0f,0e0f -DL1=16 -DK1=4 -DQ1=1 -DACT1=0 -DA1=512 -DB1=768 \
         -DS1=0 -DPARAMS1=0e0f,0e0f"
    );
    let items = (step.global.0.items(17), step.global.1.items(17));
    assert_eq!(
        (items, step.local, baked.plan.granule),
        ((64, 2), Some((64, 1)), 16)
    );
    let full = PlanRecipe {
        few: None,
        ..separate.clone()
    };
    let other = planner::plan(&baked.network, &full, library, None).unwrap();
    assert_eq!(other.constants, baked.plan.constants);
    // Offsets count vectors of four numbers. With weights as halves, the weights take fewer bytes,
    // so the offsets are different.
    let halves = f.bake_halves("mali-midgard").unwrap().plan;
    let options = halves.steps[0].options.to_string();
    assert!(options.contains("-DA1=1024 -DB1=768"), "{options}");

    let network = |sizes: &[usize], activations: &[Activation]| {
        let mut graph = Graph::new(Shape::vector(sizes[0]));
        let mut value = 0;
        for pair in sizes.windows(2) {
            let arrays = [
                (Role::Weights, pair[1], pair[0]),
                (Role::Biases, pair[1], 1),
            ];
            value = graph.push("affine", Op::Affine, &[value], &arrays).unwrap();
            for &a in activations {
                value = graph
                    .push("activation", Op::Activation(a), &[value], &[])
                    .unwrap();
            }
        }
        Network {
            width: sizes[0],
            graph,
            ..baked.network.clone()
        }
    };
    let relu = [Activation::Relu];
    let steps = |sizes: &[usize], activations: &[Activation], recipe: &PlanRecipe, batch| {
        planner::plan(&network(sizes, activations), recipe, library, batch)
            .unwrap()
            .full()
            .len()
    };
    for name in ["mali-midgard", "mali-bifrost", "mali-valhall"] {
        let recipe = library.plan(name).unwrap();
        for small in [
            &[784, 100, 100, 10][..],
            &[640, 150, 10],
            &[256, 128, 10],
            &[7, 1],
        ] {
            assert_eq!(steps(small, &relu, recipe, None), 1, "{name} {small:?}");
        }
        for large in [
            &[784, 2500, 2000, 10][..],
            &[3072, 4096, 3072, 10],
            &[20, 50, 1025, 10],
        ] {
            assert_eq!(
                steps(large, &relu, recipe, None),
                large.len(),
                "{name} {large:?}"
            );
        }
    }
    // The kernel cannot be used for too many layers, two activations in succession, or too many
    // records.
    assert_eq!(steps(&[4; 9], &relu, recipe, None), 1);
    assert_eq!(steps(&[4; 10], &relu, recipe, None), 10);
    assert_eq!(
        steps(&[4; 3], &[Activation::Tanh, Activation::Relu], recipe, None),
        5
    );
    assert_eq!(steps(&[4; 3], &relu, recipe, Some(1 << 20)), 1);
    assert_eq!(steps(&[4; 3], &relu, recipe, Some((1 << 20) + 1)), 3);
    // If the plan has no other kernel, this kernel also takes large networks. Tuning tries this.
    let alone = PlanRecipe {
        kernels: vec!["layers_packed_4x4".into()].into(),
        ..recipe.clone()
    };
    assert_eq!(steps(&[784, 2500, 2000, 10], &relu, &alone, None), 1);
    // The values between layers alternate between two places in a buffer. The values of the last
    // layer are the scores, which have their own buffer.
    let plan = planner::plan(&network(&[5, 40, 20, 33, 8], &relu), recipe, library, None).unwrap();
    let layers = plan.steps[0].options.layers.as_ref().unwrap();
    let starts: Vec<Option<usize>> = layers.each.iter().map(|layer| layer.start).collect();
    assert_eq!(starts, [0, 192, 0, 0].map(Some));
    let rows: Vec<usize> = plan.buffers.iter().map(|b| b.padded_rows).collect();
    assert_eq!(rows, [5, 48 + 32, 16, 1]);
    // Tuning tries other work-group sizes for the kernel.
    let groups = vec![("layers_packed_4x4".into(), (256, 1))].into();
    let tuned = planner::plan(
        &baked.network,
        &PlanRecipe {
            groups,
            ..recipe.clone()
        },
        library,
        None,
    )
    .unwrap();
    let items = (
        tuned.steps[0].global.0.items(17),
        tuned.steps[0].global.1.items(17),
    );
    assert_eq!((items, tuned.steps[0].local), ((256, 2), Some((256, 1))));
}

impl Plan {
    /// Returns true if the hidden buffers of neighbouring layers have different offsets in the
    /// arena.
    fn layers_chain(&self) -> bool {
        let hidden: Vec<_> = self
            .buffers
            .iter()
            .filter(|b| b.role == crate::ir::plan::BufferRole::Hidden)
            .collect();
        hidden.windows(2).all(|w| w[0].arena != w[1].arena)
    }
}

/// Small batches are computed by steps of their own. These steps use the same weights, and the same
/// buffers for inputs and results, as full batches. A wrong panel height is found.
#[test]
fn few_records_have_kernels_of_their_own() {
    let f = NetworkFolder::new();
    let baked = f.tiny("").bake_plan("host").unwrap();
    let library = &baked.library;
    let network = |sizes: &[usize]| {
        let mut graph = Graph::new(Shape::vector(sizes[0]));
        let mut value = 0;
        for pair in sizes.windows(2) {
            let arrays = [
                (Role::Weights, pair[1], pair[0]),
                (Role::Biases, pair[1], 1),
            ];
            value = graph.push("affine", Op::Affine, &[value], &arrays).unwrap();
            value = graph
                .push(
                    "activation",
                    Op::Activation(Activation::Relu),
                    &[value],
                    &[],
                )
                .unwrap();
        }
        Network {
            width: sizes[0],
            graph,
            ..baked.network.clone()
        }
    };
    let kernels = |steps: &[crate::ir::plan::Step]| -> Vec<String> {
        steps.iter().map(|s| s.kernel.to_string()).collect()
    };
    let mut found = 0;
    for recipe in library.plans.iter().filter(|p| p.few.is_some()) {
        let few = recipe.few.as_ref().unwrap().records;
        for sizes in [
            &[784, 2500, 2000, 10][..],
            &[33, 1025, 7],
            &[640, 150, 10],
            &[5, 3, 2],
        ] {
            let network = network(sizes);
            let what = format!("{} {sizes:?}", recipe.name);
            let plan = planner::plan(&network, recipe, library, None).unwrap();
            let alone = planner::plan(&network, recipe, library, Some(few)).unwrap();
            assert!(alone.few.is_none() && alone.batch == few, "{what}");
            let Some(variant) = plan.few else {
                assert_eq!(kernels(&plan.steps), kernels(&alone.steps), "{what}");
                continue;
            };
            assert_eq!(variant.records, few);
            let own = &plan.steps[variant.first..];
            assert_ne!(kernels(own), kernels(plan.full()), "{what}");
            assert_eq!(kernels(own), kernels(&alone.steps), "{what}");
            assert_eq!(
                plan.variant(few),
                (variant.first..plan.steps.len(), variant.granule)
            );
            assert_eq!(plan.variant(few + 1), (0..variant.first, plan.granule));
            // A batch of a single record is not padded to a whole tile of records.
            let element = |s: &crate::ir::plan::Step| s.kernel.starts_with("argmax_packed");
            assert!(
                plan.columns(1) == 1 || own.iter().any(element),
                "{what}: {}",
                plan.columns(1)
            );
            // Large weights are stored only once for both variants of the plan.
            let of = |t: usize| {
                plan.constants
                    .iter()
                    .filter(move |c| c.tensor == t)
                    .map(|c| c.bytes())
            };
            let large = |t: &usize| {
                let t = &network.graph.tensors[*t];
                t.rows * t.cols > 1 << 20
            };
            let tensors = 0..network.graph.tensors.len();
            assert!(tensors.filter(large).all(|t| of(t).count() == 1), "{what}");
            assert!(
                planner::check::check(&plan, &network, library).is_empty(),
                "{what}"
            );
            let mut wrong = plan.clone();
            for step in wrong.steps.to_mut() {
                step.options.panel = step.options.panel.map(|rows| rows + 4);
            }
            let panels = plan.steps.iter().any(|s| s.options.panel.is_some());
            assert_eq!(
                planner::check::check(&wrong, &network, library).is_empty(),
                !panels,
                "{what}"
            );
            found += usize::from(panels);
        }
    }
    assert!(found >= 8, "{found}");
}

/// The names that Arm's and Mesa's drivers give to a device determine its class. G71 is not taken
/// for G710. An unknown Mali is treated as the newest.
#[test]
fn mali_devices_have_the_plan_of_their_generation() {
    let f = NetworkFolder::new();
    let library = f.tiny("").bake().unwrap().library;
    for (name, plan) in [
        ("Mali-T604", "mali-midgard"),
        ("Mali-T628", "mali-midgard"),
        ("Mali-T860 (Panfrost)", "mali-midgard"),
        ("Mali-G31", "mali-bifrost"),
        ("Mali-G51", "mali-bifrost"),
        ("Mali-G52 r1p0", "mali-bifrost"),
        ("Mali-G71", "mali-bifrost"),
        ("Mali-G72 (Panfrost)", "mali-bifrost"),
        ("Mali-G76", "mali-bifrost"),
        ("Mali-G57", "mali-valhall"),
        ("Mali-G68", "mali-valhall"),
        ("Mali-G77", "mali-valhall"),
        ("Mali-G78", "mali-valhall"),
        ("Mali-G310", "mali-valhall"),
        ("Mali-G510", "mali-valhall"),
        ("Mali-G610 r0p0", "mali-valhall"),
        ("Mali-G615", "mali-valhall"),
        ("Mali-G710", "mali-valhall"),
        ("Mali-G715", "mali-valhall"),
        ("Mali-G720", "mali-valhall"),
        ("Mali-G925", "mali-valhall"),
    ] {
        let device = Traits {
            vendor: "ARM",
            name,
            cpu: false,
            compute_capability: None,
        };
        assert_eq!(library.device_class(device).unwrap().plan, plan, "{name}");
    }
}

/// The compute capability determines the class of an NVIDIA device. The name does not tell the
/// generation. For example, a Quadro RTX 4000 is older than a GeForce RTX 3050. A device without a
/// known compute capability gets no kernels with asynchronous copies.
#[test]
fn nvidia_devices_have_the_plan_of_their_compute_capability() {
    let f = NetworkFolder::new();
    let library = f.tiny("").bake().unwrap().library;
    for (name, capability, class) in [
        ("Quadro RTX 3000", Some((7, 5)), "desktop"),
        ("Quadro RTX 4000", Some((7, 5)), "desktop"),
        ("Quadro RTX 5000", Some((7, 5)), "desktop"),
        ("Tesla T4", Some((7, 5)), "desktop"),
        ("Tesla V100-SXM2-16GB", Some((7, 0)), "desktop"),
        ("NVIDIA A100-SXM4-40GB", Some((8, 0)), "nvidia-a100"),
        ("NVIDIA A30", Some((8, 0)), "nvidia-a100"),
        ("NVIDIA A10", Some((8, 6)), "nvidia"),
        ("NVIDIA A40", Some((8, 6)), "nvidia"),
        ("NVIDIA RTX A4000", Some((8, 6)), "nvidia"),
        ("NVIDIA GeForce RTX 3050", Some((8, 6)), "nvidia"),
        ("Orin", Some((8, 7)), "nvidia"),
        ("NVIDIA L4", Some((8, 9)), "nvidia"),
        ("NVIDIA H200", Some((9, 0)), "nvidia-9"),
        ("NVIDIA B200", Some((10, 0)), "nvidia-10"),
        ("NVIDIA GeForce RTX 5090", Some((12, 0)), "nvidia-10"),
        ("NVIDIA GeForce RTX 3050", None, "desktop"),
        ("NVIDIA H200", None, "desktop"),
    ] {
        let device = Traits {
            vendor: "NVIDIA Corporation",
            name,
            cpu: false,
            compute_capability: capability,
        };
        assert_eq!(
            library.device_class(device).unwrap().name,
            class,
            "{name} {capability:?}"
        );
    }
    let others = Traits {
        vendor: "Intel",
        name: "Arc A30",
        cpu: false,
        compute_capability: None,
    };
    assert_eq!(library.device_class(others).unwrap().name, "desktop");
}

#[test]
fn standalone_activations_work_under_every_plan() {
    let f = NetworkFolder::new();
    f.tiny("");
    let act = |name: &str| format!("{{\"layer\":\"{name}\"}}");
    f.network(
        &[
            act("TanhLayer"),
            affine("1_w", "1_b"),
            act("SigmoidLayer"),
            act("ReLULayer"),
            affine("2_w", "2_b"),
        ]
        .join(","),
        5,
        "",
    );
    let b = f.bake().unwrap();
    assert_eq!(
        b.network.graph.nodes[0].op,
        Op::Activation(Activation::Tanh)
    );
    // The activation works in place. So the plan copies the input first, and the record that the
    // stream wrote is kept.
    assert_eq!(f.bake_plan("mali-midgard").unwrap().plan.full().len(), 6);
}

/// Returns a graph that is a chain of affine layers with these sizes. `activations` has the
/// activation behind each layer.
fn chain(sizes: &[usize], activations: &[Activation]) -> Graph {
    let (mut graph, mut value) = (Graph::new(Shape::vector(sizes[0])), 0);
    for (i, pair) in sizes.windows(2).enumerate() {
        let arrays = [
            (Role::Weights, pair[1], pair[0]),
            (Role::Biases, pair[1], 1),
        ];
        value = graph
            .push(format!("affine {i}"), Op::Affine, &[value], &arrays)
            .unwrap();
        if let Some(&a) = activations.get(i) {
            value = graph
                .push(format!("activation {i}"), Op::Activation(a), &[value], &[])
                .unwrap();
        }
    }
    graph
}

/// Returns the baked network with its graph replaced by `graph`.
fn network_of(baked: &Baked, graph: &Graph) -> Network {
    Network {
        width: graph.values[0].shape.len(),
        graph: graph.clone(),
        ..baked.network.clone()
    }
}

/// Returns the plan for `graph` by the recipe `name` of the library.
fn plan_of(baked: &Baked, graph: &Graph, name: &str, library: &Library) -> Plan {
    planner::plan(
        &network_of(baked, graph),
        library.plan(name).unwrap(),
        library,
        None,
    )
    .unwrap()
}

/// Returns the mistakes that the plan checker finds in a plan for `graph`.
fn wrong_of(baked: &Baked, graph: &Graph, plan: &Plan) -> Vec<String> {
    planner::check::check(plan, &network_of(baked, graph), &baked.library)
}

/// Changes the kernels of the library with `change`. Then returns the kernels in the steps of the
/// plan `name` for `graph`.
fn kernels_of(
    baked: &Baked,
    graph: &Graph,
    name: &str,
    change: impl Fn(&mut Kernel),
) -> Vec<String> {
    let mut library = baked.library.clone();
    library.kernels.to_mut().iter_mut().for_each(change);
    let plan = plan_of(baked, graph, name, &library);
    assert_eq!(
        planner::check::check(&plan, &network_of(baked, graph), &library),
        Vec::<String>::new()
    );
    plan.full().iter().map(|s| s.kernel.to_string()).collect()
}

/// The library entries of the kernels decide which operations are fused into one launch. With other
/// entries, other operations are fused.
#[test]
fn fusion_follows_the_entries() {
    let f = NetworkFolder::new();
    let baked = f.tiny("").bake().unwrap();
    let graph = chain(&[5, 4, 3], &[Activation::Relu, Activation::Tanh]);
    let plan = |name: &str, change: &dyn Fn(&mut Kernel)| {
        kernels_of(&baked, &graph, name, change).join(" ")
    };
    assert_eq!(
        plan("nvidia", &|_| ()),
        "pair_records activation_unbound argmax_rm"
    );
    assert_eq!(
        plan("desktop", &|_| ()),
        "affine_packed_4x4_k4 affine_packed_4x4_k4 argmax_packed"
    );
    let epilogue = |what: &'static [Covered]| {
        move |k: &mut Kernel| {
            if k.operation == Operation::Affine {
                k.epilogue = what.into();
            }
        }
    };
    assert_eq!(
        plan("desktop", &epilogue(&[])),
        "affine_packed_4x4_k4 activation_unbound affine_packed_4x4_k4 activation_unbound \
         argmax_packed"
    );
    assert_eq!(
        plan("desktop", &epilogue(&[Covered::Only(Activation::Tanh)])),
        "affine_packed_4x4_k4 activation_unbound affine_packed_4x4_k4 argmax_packed"
    );
    // The first change of the pair kernel's entry allows no activation between the two layers. The
    // second change also allows an activation behind them.
    let covers = |operation: Operation, what: &'static [(Covered, bool)]| {
        move |k: &mut Kernel| {
            if k.operation == operation {
                let chain = what.iter();
                k.covers.chain = chain
                    .map(|&(node, optional)| CoveredNode { node, optional })
                    .collect();
            }
        }
    };
    let pair = covers(
        Operation::Pair,
        &[(Covered::Affine, false), (Covered::Affine, false)],
    );
    assert!(
        !plan("nvidia", &pair).contains("pair"),
        "{}",
        plan("nvidia", &pair)
    );
    let behind = |k: &mut Kernel| {
        k.epilogue = if k.operation == Operation::Pair {
            vec![Covered::Activation].into()
        } else {
            k.epilogue.clone()
        };
    };
    assert_eq!(plan("nvidia", &behind), "pair_records argmax_rm");
    assert_eq!(plan("generic", &|_| ()), "layers_packed_4x4_k4");
    let sigmoids = covers(
        Operation::Layers,
        &[
            (Covered::Affine, false),
            (Covered::Only(Activation::Sigmoid), true),
        ],
    );
    assert_eq!(
        plan("generic", &sigmoids),
        "affine_packed_4x4_k4 affine_packed_4x4_k4 argmax_packed"
    );
}

/// Returns a graph of two convolutions in a chain. `add` combines the values of both, and a ReLU
/// and an affine layer follow.
fn residual(add: impl Fn(&mut Graph, [usize; 2]) -> usize) -> Graph {
    let mut graph = Graph::new(Shape { c: 4, h: 3, w: 3 });
    let arrays = |h, l| [(Role::Weights, h, l), (Role::Biases, h, 1)];
    let convolution = Op::Convolution {
        window: Window::of((1, 1)),
        groups: 1,
    };
    let before = graph
        .push("before", convolution, &[0], &arrays(4, 4))
        .unwrap();
    let value = graph
        .push("value", convolution, &[before], &arrays(4, 4))
        .unwrap();
    let sum = add(&mut graph, [before, value]);
    let sum = graph
        .push("relu", Op::Activation(Activation::Relu), &[sum], &[])
        .unwrap();
    graph
        .push("scores", Op::Affine, &[sum], &arrays(3, 36))
        .unwrap();
    graph
}

/// The later of two convolutions also computes the sum of their values, if three conditions hold.
/// The kernel's entry allows it, the other summand is computed before, and no other node reads the
/// later convolution's value.
#[test]
fn sums_are_computed_with_the_later_convolution() {
    let f = NetworkFolder::new();
    let baked = f.tiny("").bake().unwrap();
    let sum = Op::Combine(Arithmetic::Add);
    let combined = |graph: &Graph, name: &str, change: &dyn Fn(&mut Kernel)| {
        let kernels = kernels_of(&baked, graph, name, change);
        kernels
            .iter()
            .filter(|k| k.starts_with("combine") || k.starts_with("activation"))
            .count()
    };
    let either = [
        residual(|g, [before, value]| g.push("sum", sum, &[before, value], &[]).unwrap()),
        residual(|g, [before, value]| g.push("sum", sum, &[value, before], &[]).unwrap()),
    ];
    for (graph, recipe) in either
        .iter()
        .flat_map(|g| baked.library.plans.iter().map(move |r| (g, r)))
    {
        let of_host = usize::from(recipe.engine == EngineKind::Host);
        assert_eq!(
            combined(graph, &recipe.name, &|_| ()),
            of_host,
            "{}",
            recipe.name
        );
    }
    // The kernel's entry does not allow a summand, so the sum gets its own step.
    let without = |k: &mut Kernel| k.epilogue.to_mut().retain(|c| *c != Covered::Add);
    assert_eq!(combined(&either[0], "desktop", &without), 1);
    let kept = |add: &dyn Fn(&mut Graph, [usize; 2]) -> usize| {
        combined(&residual(add), "desktop", &|_| ())
    };
    let once =
        |g: &mut Graph, op: Op, inputs: &[usize]| g.push(op.name(), op, inputs, &[]).unwrap();
    // The sum is not fused in these cases: other arithmetic, the same value twice, a summand
    // computed later, a summand in another layout.
    assert_eq!(
        kept(&|g, v| once(g, Op::Combine(Arithmetic::Subtract), &v)),
        1
    );
    assert_eq!(kept(&|g, [_, value]| once(g, sum, &[value, value])), 1);
    let pool = |size| Op::Pool {
        kind: Pool::Max,
        window: Window::of(size),
    };
    let later = |g: &mut Graph, [before, value]: [usize; 2], size| {
        let pooled = once(g, pool(size), &[before]);
        once(g, sum, &[value, pooled])
    };
    assert_eq!(kept(&|g, v| later(g, v, (1, 1))), 1);
    assert_eq!(kept(&|g, v| later(g, v, (3, 3))), 1);
    assert_eq!(kept(&|g, [_, value]| once(g, sum, &[value, 0])), 0);
    // The sum is not fused if another node reads the convolution's value, or if the value is an
    // output.
    let again = |g: &mut Graph, v: [usize; 2]| {
        let both = once(g, sum, &v);
        once(g, Op::Combine(Arithmetic::Multiply), &[both, v[1]])
    };
    assert_eq!(kept(&again), 2);
    let mut out = either[0].clone();
    out.outputs = vec![out.outputs[0], out.nodes[1].output].into();
    assert_eq!(combined(&out, "desktop", &|_| ()), 1);
}

/// The plan checker finds mistakes in a fused sum. These are a summand with another size or layout,
/// a missing or overwritten summand, and a kernel compiled for another number of operands.
#[test]
fn a_wrong_sum_is_found() {
    let f = NetworkFolder::new();
    let baked = f.tiny("").bake().unwrap();
    let graph = residual(|g, v| {
        g.push("sum", Op::Combine(Arithmetic::Add), &v, &[])
            .unwrap()
    });
    type Change = dyn Fn(&mut Step, &mut [Buffer]);
    const ADDS: &str = "does not add a value that stands as its result";
    let wrong = |change: &Change| {
        let mut plan = plan_of(&baked, &graph, "mali-midgard", &baked.library);
        let step = plan
            .steps
            .to_mut()
            .iter_mut()
            .find(|s| s.options.adds)
            .unwrap();
        change(step, plan.buffers.to_mut());
        wrong_of(&baked, &graph, &plan).join("; ")
    };
    assert_eq!(wrong(&|_, _| ()), "");
    fn at(step: &Step) -> (usize, usize) {
        match step.args[step.args.len() - 2..] {
            [Arg::Buffer(added), Arg::Buffer(result)] => (added, result),
            _ => panic!("{:?}", step.args),
        }
    }
    let cases: [(&Change, &str); 7] = [
        (&|s, _| s.options.adds = false, ADDS),
        (
            &|s, _| {
                let n = s.args.len();
                s.args.to_mut().remove(n - 2);
            },
            ADDS,
        ),
        (&|s, b| b[at(s).0].padded_rows += 4, ADDS),
        (&|s, b| b[at(s).0].layout = Layout::C, ADDS),
        (
            &|s, b| b[at(s).1].arena = b[at(s).0].arena,
            "writes relu over before, which it also uses",
        ),
        (
            &|s, _| {
                let n = s.args.len();
                s.args.to_mut().swap(n - 2, n - 1);
            },
            "relu is read, but its values are not there",
        ),
        (
            &|s, _| {
                let wide = |a: &mut Arg| {
                    if let Arg::Geometry(g) = a {
                        g.output.0.line += 4
                    }
                };
                s.args.to_mut().iter_mut().for_each(wide);
            },
            ADDS,
        ),
    ];
    for (change, says) in cases {
        let found = wrong(change);
        assert!(found.contains(says), "{found}, expected {says}");
    }
}

/// A value is not fused into a launch if a second node reads it, or if it is an output of the
/// network.
#[test]
fn only_a_value_with_one_reader_is_fused_away() {
    let f = NetworkFolder::new();
    let baked = f.tiny("").bake().unwrap();
    let arrays = |h, l| [(Role::Weights, h, l), (Role::Biases, h, 1)];
    let mut graph = chain(&[5, 4], &[Activation::Relu]);
    let (hidden, activated) = (graph.nodes[0].output, graph.nodes[1].output);
    graph
        .push("other", Op::Affine, &[activated], &arrays(3, 4))
        .unwrap();
    let plan = |graph: &Graph, name: &str| kernels_of(&baked, graph, name, |_| ()).join(" ");
    assert_eq!(plan(&graph, "nvidia"), "pair_records argmax_rm");
    assert_eq!(plan(&graph, "generic"), "layers_packed_4x4_k4");
    // Two nodes read the value of the ReLU, so the launch that computes it must write it.
    graph
        .push("second", Op::Affine, &[activated], &arrays(2, 4))
        .unwrap();
    assert_eq!(
        plan(&graph, "nvidia")
            .split(' ')
            .filter(|k| k.starts_with("affine"))
            .count(),
        3
    );
    assert_eq!(
        plan(&graph, "generic"),
        ["affine_packed_4x4_k4"; 3].join(" ") + " argmax_packed"
    );
    // A value that is an output of the network must be written as well.
    let mut graph = chain(&[5, 4, 3], &[Activation::Relu]);
    let last = graph.nodes[2].output;
    graph.outputs = vec![last, activated].into();
    assert!(
        !plan(&graph, "nvidia").contains("pair") && !plan(&graph, "generic").contains("layers")
    );
    // Two nodes read the affine layer's value. The ReLU would overwrite it in place, so the plan
    // copies it first.
    let mut graph = chain(&[5, 4], &[Activation::Relu]);
    graph
        .push("other", Op::Affine, &[hidden], &arrays(3, 4))
        .unwrap();
    let copied =
        "affine_packed_4x4_k4 gather_any activation_unbound affine_packed_4x4_k4 argmax_packed";
    assert_eq!(plan(&graph, "generic"), copied);
}

/// The matrix products from ARM read their operand in column-major order, and write their result in
/// row-major order. So the plan has a copying step between two such products.
#[test]
fn layouts_that_do_not_meet_are_repacked() {
    let f = NetworkFolder::new();
    let baked = f.tiny("").bake().unwrap();
    let library = &baked.library;
    let recipe = library.plan("arm-nt").unwrap();
    let plan_of = |graph: &Graph, recipe: &PlanRecipe| {
        planner::plan(&network_of(&baked, graph), recipe, library, None)
    };
    let wrong = |graph: &Graph, plan: &Plan| wrong_of(&baked, graph, plan);
    let graph = chain(&[5, 6, 3], &[Activation::Relu]);
    let plan = plan_of(&graph, recipe).unwrap();
    assert_eq!(wrong(&graph, &plan), Vec::<String>::new());
    let kernels: Vec<&str> = plan.full().iter().map(|s| &*s.kernel).collect();
    assert_eq!(
        kernels.join(" "),
        "matmul_blocked_nt bias_rm relu_unbound repack_any matmul_blocked_nt bias_rm argmax_rm"
    );
    // The product behind the copy sums vectors of four, so the six rows are padded to eight.
    let copy = &plan.steps[3];
    assert_eq!(
        (&*copy.options.to_string(), copy.node),
        ("-DFROM=0,1,1 -DTO=1,1,1", 2)
    );
    let sizes = [6, 100, 8, 6].map(crate::ir::plan::Arg::Size);
    assert_eq!(copy.args[..4], sizes);
    let buffers: Vec<String> = plan
        .buffers
        .iter()
        .map(|b| format!("{} {} {}", b.name, b.padded_rows, b.layout))
        .collect();
    assert_eq!(
        buffers,
        [
            "input 8 C",
            "affine 0 6 R",
            "affine 0 as C 8 C",
            "affine 1 4 R",
            "classes 1 C"
        ]
    );

    // If the plan has no kernel for the copy, the bake reports a mistake with advice.
    let kernels = |without: &str| {
        recipe
            .kernels
            .iter()
            .filter(|k| **k != without)
            .cloned()
            .collect::<Vec<_>>()
    };
    let without = PlanRecipe {
        kernels: kernels("repack_any").into(),
        ..recipe.clone()
    };
    assert_eq!(
        plan_of(&graph, &without).unwrap_err(),
        [
            "plan arm-nt: affine 1: matmul_blocked_nt takes its operand in layout C, relu_unbound \
             before it gives R; use kernels whose layouts meet, or add a repack kernel to the plan"
        ]
    );
    // A matrix with one row has the same elements in both layouts, so the plan has no copy.
    let one = plan_of(&chain(&[5, 1], &[]), recipe).unwrap();
    assert!(one.full().iter().all(|s| s.operation != Operation::Repack));
    let with = |name: &str, kernels: &[&str]| {
        let kernels: Vec<_> = kernels.iter().map(|k| k.to_string().into()).collect();
        PlanRecipe {
            kernels: kernels.into(),
            ..library.plan(name).unwrap().clone()
        }
    };
    let packed = with(
        "desktop",
        &["affine_packed_4x4", "repack_any", "argmax_packed"],
    );
    assert_eq!(
        plan_of(&chain(&[5, 6, 3], &[]), &packed)
            .unwrap()
            .full()
            .len(),
        3
    );

    // Copying steps connect kernels with any layouts. Here chunks are copied to row-major order for
    // each bias. Rows are copied back to chunks for the next layer, and to other chunks for the
    // arg-max.
    let mixed = with(
        "desktop",
        &[
            "matmul_morton_4_2",
            "bias_rm",
            "repack_any",
            "argmax_packed",
        ],
    );
    let chained = chain(&[5, 6, 3], &[]);
    let plan = plan_of(&chained, &mixed).unwrap();
    assert_eq!(wrong(&chained, &plan), Vec::<String>::new());
    let copies: Vec<String> = plan
        .full()
        .iter()
        .filter(|s| s.operation == Operation::Repack)
        .map(|s| s.options.to_string())
        .collect();
    let [to_rows, to_chunks] = [
        "-DFROM=1,4,2,1,1,1 -DTO=0,1,1",
        "-DFROM=0,1,1 -DTO=1,4,2,1,1,1",
    ];
    assert_eq!(
        copies,
        [
            to_rows,
            to_chunks,
            to_rows,
            "-DFROM=0,1,1 -DTO=1,1,16,0,1,1"
        ]
    );

    // If two nodes read the same value in another layout, the plan copies the value only once.
    let mut fork = chain(&[5, 6], &[Activation::Relu]);
    let value = fork.nodes[1].output;
    for name in ["left", "right"] {
        fork.push(
            name,
            Op::Affine,
            &[value],
            &[(Role::Weights, 3, 6), (Role::Biases, 3, 1)],
        )
        .unwrap();
    }
    let plan = plan_of(&fork, recipe).unwrap();
    assert_eq!(wrong(&fork, &plan), Vec::<String>::new());
    assert_eq!(
        plan.full()
            .iter()
            .filter(|s| s.operation == Operation::Repack)
            .count(),
        1
    );
}

/// The plan checker finds a repack step that has wrong layouts or wrong sizes, or that copies too
/// few elements.
#[test]
fn a_wrong_repack_is_found() {
    let f = NetworkFolder::new();
    let baked = f.tiny("").bake_plan("arm-nt").unwrap();
    let wrong = |change: &dyn Fn(&mut Step)| {
        let mut plan = baked.plan.clone();
        plan.steps
            .to_mut()
            .iter_mut()
            .filter(|s| s.operation == Operation::Repack)
            .for_each(change);
        planner::check::check(&plan, &baked.network, &baked.library).join("; ")
    };
    assert_eq!(wrong(&|_| ()), "");
    for (change, says) in [
        (
            &(|s: &mut Step| {
                let (from, to) = (Layout::C, Layout::R);
                s.options.places = Places::Levels { from, to };
            }) as &dyn Fn(&mut Step),
            "expected R to C",
        ),
        (&|s| s.problem.l += 1, "its buffers are Problem"),
        (
            &|s| s.args.to_mut().swap(4, 5),
            "is read, but its values are not there",
        ),
        (
            &|s| s.global.0 = crate::ir::plan::Extent::Fixed(1),
            "work-items for 1 rows of 100 records, needed for 4",
        ),
    ] {
        let found = wrong(change);
        assert!(found.contains(says), "{found}");
    }
}

/// Bakes the tiny network with a plan file. `changed` replaces members of a plan file that is
/// otherwise correct.
fn plan_file(changed: &[(&str, serde_json::Value)]) -> Result<Baked, Vec<String>> {
    let f = NetworkFolder::new();
    let library = f.tiny("").bake().unwrap().library;
    let kernels = &library.plan("host").unwrap().kernels;
    let mut file = serde_json::json!({
        "format": 1, "name": "own", "engine": "host", "batch": 16, "about": "", "kernels": kernels,
    });
    changed
        .iter()
        .for_each(|(key, value)| file[key] = value.clone());
    let path = f.put("plan.json", file.to_string()).path.join("plan.json");
    f.bake_plan(path.to_str().unwrap())
}

#[test]
fn sizes_of_plan_files_have_bounds() {
    assert_eq!(plan_file(&[]).unwrap().plan.batch, 16);
    for batch in [0, 65537, u64::MAX] {
        let mistakes = plan_file(&[("batch", batch.into())])
            .err()
            .expect("the bake accepts it");
        let why = format!("batch: expected a number from 1 to 65536, found {batch}");
        assert!(
            mistakes.len() == 1 && mistakes[0].ends_with(&why),
            "{mistakes:?}"
        );
    }
}

/// A layout entry of a plan file that lacks a key is reported as a mistake.
#[test]
fn layouts_of_plan_files_are_whole() {
    for key in ["node", "role", "layout"] {
        let mut entry =
            serde_json::json!({ "node": "layers[0]", "role": "weights", "layout": "R" });
        entry.as_object_mut().unwrap().remove(key);
        let mistakes = plan_file(&[("layouts", [entry].into())])
            .err()
            .expect("the bake accepts it");
        let why = format!("layouts[0]: the key \"{key}\" is missing");
        assert!(
            mistakes.len() == 1 && mistakes[0].ends_with(&why),
            "{mistakes:?}"
        );
    }
}

#[test]
fn mistakes_are_no_longer_than_people_read() {
    let f = NetworkFolder::new();
    f.network(&affine(&"w".repeat(1 << 20), "b"), 1, "");
    let mistakes = f.bake().err().expect("the bake accepts it");
    assert!(
        mistakes
            .iter()
            .all(|m| m.chars().count() <= crate::registry::mistakes::LONGEST + 1),
        "{mistakes:?}"
    );
    assert!(mistakes.iter().any(|m| m.ends_with('…')), "{mistakes:?}");
}

/// The bake interprets the plan. It refuses a plan that passes the checker but computes something
/// else.
#[test]
fn a_plan_that_computes_something_else_is_refused() {
    use crate::planner::bind::fault::{Fault, with};
    let f = NetworkFolder::new();
    f.tiny("");
    let layers = [
        affine("1_w", "1_b"),
        "{\"layer\":\"LeakyReLULayer\",\"slope\":0.25}".into(),
        affine("2_w", "2_b"),
    ];
    f.network(&layers.join(","), 3, "");
    assert!(f.bake_plan("desktop").is_ok());
    let mistakes = with(Fault::Parameters, || f.bake_plan("desktop"))
        .err()
        .expect("the bake accepts it");
    let [mistake] = &mistakes[..] else {
        panic!("{mistakes:?}")
    };
    for part in [
        "plan desktop does not compute the network",
        "golden vector ",
        "step 0, affine_packed_4x4_k4 of layers[1]: number ",
        "expected",
        "please report it",
    ] {
        assert!(mistake.contains(part), "{part}: {mistake}");
    }
}

/// JSON that is nested too deeply is reported as one mistake with its place.
#[test]
fn json_that_is_nested_deeply() {
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let deep = |close: &str| open.repeat(100_000) + "1" + &close.repeat(100_000);
        for text in [deep(close), deep("")] {
            let f = NetworkFolder::new();
            let mistakes = f.put("network.json", &text).mistakes();
            let [one] = &mistakes[..] else {
                panic!("{mistakes:?}")
            };
            assert!(one.starts_with("network.json:1:"), "{one}");
            assert!(
                one.contains("not valid JSON: recursion limit exceeded at line 1 column "),
                "{one}"
            );
        }
    }
}

#[test]
fn matrices_that_claim_more_than_they_have() {
    let f = NetworkFolder::new();
    f.tiny("");
    let npy = |shape: &str| {
        let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}\n");
        let mut bytes = b"\x93NUMPY\x01\0".to_vec();
        bytes.extend((header.len() as u16).to_le_bytes());
        bytes.extend(header.bytes());
        bytes.extend([0; 48]);
        bytes
    };
    let define = |rows: u64, cols: u64, kind: &str| {
        format!(
            "{{\"rows\":{rows},\"cols\":{cols},\"data_type\":\"{kind}\",\"file\":\"1_w.{kind}\"}}"
        )
    };
    for (definition, shape, why) in [
        (
            define(1 << 40, 3, "npy"),
            "(1099511627776, 3)",
            "1_w.json: a matrix of 1099511627776 × 3 has more than",
        ),
        (
            define(1 << 32, 1 << 32, "npy"),
            "(4, 3)",
            "1_w.json: a matrix of 4294967296 × 4294967296 has more than",
        ),
        (
            define(4, 3, "npy"),
            "(4294967296, 4294967296)",
            "1_w.npy: expected the shape (4, 3), found [",
        ),
        (
            define(1 << 27, 3, "npy"),
            "(134217728, 3)",
            "1_w.npy: expected 1610612736 bytes after the header, found 48",
        ),
        (
            define(1 << 27, 3, "f32"),
            "(4, 3)",
            "1_w.f32: expected 1610612736 bytes (134217728 × 3 f32), found ",
        ),
        (
            define(1 << 27, 3, "csv"),
            "(4, 3)",
            "1_w.csv: expected 134217728 lines (rows), found 4",
        ),
    ] {
        f.put("1_w.json", &definition)
            .put("1_w.npy", npy(shape))
            .put("1_w.f32", npy(shape));
        let mistakes = f.mistakes();
        assert!(mistakes[0].starts_with(why), "{mistakes:?}, expected {why}");
    }
}

/// The weights are close to the limit of f32. A ReLU hides a sum of −6e38, so the scores look
/// ordinary, but engines refuse such a record.
#[test]
fn golden_vectors_that_overflow_are_refused() {
    let folder = NetworkFolder::new();
    folder.tiny("").matrix("1_w", 4, 3, |_, _| -2e38);
    let mistakes = folder.bake().err().unwrap();
    assert!(
        mistakes.len() == 1 && mistakes[0].contains("leave the range of f32"),
        "{mistakes:?}"
    );
    assert!(
        mistakes[0].contains("layers[0]") && mistakes[0].contains(" reaches -"),
        "{mistakes:?}"
    );
    assert!(folder.matrix("1_w", 4, 3, |_, _| -1e37).bake().is_ok());
}

/// Labels that differ only in blanks are refused. Labels that are numbers get a note if they might
/// be read as class indices.
#[test]
fn labels_that_confuse_are_said() {
    let folder = NetworkFolder::new();
    let bake = |labels: &str| folder.tiny(&format!(",\"labels\":[{labels}]")).bake();
    assert!(
        bake(r#""a","a ""#).err().unwrap()[0].contains("\"a \" appears twice, with other blanks")
    );
    assert!(bake(r#""a","a""#).err().unwrap()[0].ends_with("\"a\" appears twice"));
    assert!(bake(r#""0","1""#).ok().unwrap().notes.is_empty());
    let numbers = bake("3, 8").err().unwrap();
    assert!(
        numbers[0].ends_with(
            "labels: expected a list of strings (numbers in quotes: \"3\"), found [3,8]"
        ),
        "{numbers:?}"
    );
    let notes = bake(r#""3","8""#).ok().unwrap().notes;
    assert!(
        notes.len() == 1 && notes[0].contains("class 0 is called \"3\""),
        "{notes:?}"
    );
}
