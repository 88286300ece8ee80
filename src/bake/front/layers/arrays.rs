//! Reads the arrays of one layer (weights, biases, scales, slopes) from the matrix files that it
//! names.

use super::FileArray;
use super::members::MemberReader;
use crate::bake::matrix::{self, MatrixSize};
use crate::ir::graph::Role;

/// The end of a message about a matrix whose transpose would have the expected size.
const TRANSPOSED: &str = " (it would fit transposed)";

impl MemberReader<'_, '_, '_> {
    /// Reads the matrix file that the key `key` names. After a mistake the array has no numbers,
    /// and has a size only if the size is known.
    fn matrix(&mut self, key: &str, role: Role) -> FileArray {
        let unknown = FileArray {
            role,
            size: None,
            numbers: Vec::new(),
        };
        if !self.l.require(key, self.mistakes) {
            return unknown;
        }
        let Some(path) = self.l.text(key, self.mistakes) else {
            return unknown;
        };
        match matrix::read(
            &self.folder.join(path),
            &self.l.at(key),
            self.files,
            self.mistakes,
        ) {
            Ok(m) => FileArray {
                role,
                size: Some(m.size()),
                numbers: m.data.into_iter().map(f64::from).collect(),
            },
            Err(size) => FileArray { size, ..unknown },
        }
    }

    /// Reads the matrix file that the key `key` names. It must have one column.
    pub(super) fn column(&mut self, key: &str, role: Role) -> FileArray {
        let array = self.matrix(key, role);
        match array.size {
            Some(size) if size.cols != 1 => {
                let hint = if size.rows == 1 { TRANSPOSED } else { "" };
                let message = format!("expected N × 1, found {size}{hint}");
                self.report(key, message);
                FileArray {
                    size: None,
                    ..array
                }
            }
            _ => array,
        }
    }

    /// Reads a layer's weights, and a bias for each row of the weights. If biases are not
    /// `required` and are left out, they are zeros.
    pub(super) fn weights_and_biases(&mut self, required: bool) -> Vec<FileArray> {
        let weights = self.matrix("weights", Role::Weights);
        let outputs = weights.size.map(|size| size.rows);
        if !required && self.l.get("biases").is_none() {
            let zeros = FileArray::column(Role::Biases, vec![0.0; outputs.unwrap_or(0)]);
            return vec![weights, zeros];
        }
        let biases = self.matrix("biases", Role::Biases);
        if let (Some(outputs), Some(size)) = (outputs, biases.size) {
            let expected = MatrixSize::column(outputs);
            if size != expected {
                let hint = if size.transposed() == expected {
                    TRANSPOSED
                } else {
                    ""
                };
                let message = format!(
                    "expected {expected}, as the weights have {outputs} rows, found {size}{hint}"
                );
                self.report("biases", message);
            }
        }
        // The number of biases is taken from the weights, even if the biases have another size. So
        // later layers are checked against the weights.
        vec![
            weights,
            FileArray {
                size: outputs.map(MatrixSize::column),
                ..biases
            },
        ]
    }

    /// Reads the factors and summands of a layer that states both or one of them. Missing factors
    /// are 1, and missing summands are 0.
    pub(super) fn scale(&mut self) -> Vec<FileArray> {
        let keys = ["scale", "offset"].map(|key| self.l.get(key).is_some());
        if keys == [false, false] {
            self.mistakes
                .add(self.l.place(), "expected scale, offset or both");
        }
        let [scale, offset] = [
            ("scale", keys[0], Role::Factors),
            ("offset", keys[1], Role::Biases),
        ]
        .map(|(key, there, role)| there.then(|| self.column(key, role)));
        let like = |other: &Option<FileArray>, role, value| {
            let size = other.as_ref().and_then(|a| a.size);
            FileArray {
                role,
                size,
                numbers: vec![value; size.map_or(0, |s| s.rows)],
            }
        };
        let ones = like(&offset, Role::Factors, 1.0);
        let zeros = like(&scale, Role::Biases, 0.0);
        vec![scale.unwrap_or(ones), offset.unwrap_or(zeros)]
    }

    /// Reads a batch normalization, (x − mean) / √(variance + ε) · scale + offset. It becomes one
    /// factor and one summand for each channel.
    pub(super) fn batch_norm(&mut self) -> Vec<FileArray> {
        let before = self.mistakes.lines.len();
        let epsilon = match self.l.get("epsilon") {
            Some(_) => self.l.number("epsilon", self.mistakes),
            None => Some(1e-5),
        };
        if epsilon.is_some_and(|e| e < 0.0) {
            self.report("epsilon", "expected 0 or more");
        }
        let mean = self.column("mean", Role::Factors);
        let variance = self.column("variance", Role::Factors);
        let [scale, offset] = ["scale", "offset"].map(|key| {
            let there = self.l.get(key).is_some();
            there.then(|| self.column(key, Role::Factors))
        });
        for (key, array) in [
            ("variance", Some(&variance)),
            ("scale", scale.as_ref()),
            ("offset", offset.as_ref()),
        ] {
            let rows = |a: &FileArray| a.size.map(|size| size.rows);
            if let (Some(n), Some(rows)) = (rows(&mean), array.and_then(rows)) {
                if rows != n {
                    let message =
                        format!("expected {n} × 1, as the mean has {n} rows, found {rows} × 1");
                    self.report(key, message);
                }
            }
        }
        let negative = variance.numbers.iter().position(|&v| v < 0.0);
        if let Some(i) = negative {
            let v = variance.numbers[i];
            self.report(
                "variance",
                format_args!("row {}: expected 0 or more, found {v}", i + 1),
            );
        }
        let (Some(epsilon), true) = (epsilon, self.mistakes.lines.len() == before) else {
            let unknown = |role| FileArray {
                role,
                size: mean.size,
                numbers: Vec::new(),
            };
            return vec![unknown(Role::Factors), unknown(Role::Biases)];
        };
        let at =
            |a: &Option<FileArray>, i: usize, none: f64| a.as_ref().map_or(none, |a| a.numbers[i]);
        let (mut factors, mut summands) = (Vec::new(), Vec::new());
        for (i, (&mean, &variance)) in mean.numbers.iter().zip(&variance.numbers).enumerate() {
            let factor = at(&scale, i, 1.0) / (variance + epsilon).sqrt();
            factors.push(factor);
            summands.push(at(&offset, i, 0.0) - mean * factor);
        }
        let infinite = |(&f, &s): (&f64, &f64)| !(f as f32).is_finite() || !(s as f32).is_finite();
        if let Some(i) = factors.iter().zip(&summands).position(infinite) {
            let message = format!(
                "row {}: with variance {} and epsilon {epsilon} the factor or the summand leaves \
                 the range of f32",
                i + 1,
                variance.numbers[i]
            );
            self.report("variance", message);
        }
        vec![
            FileArray::column(Role::Factors, factors),
            FileArray::column(Role::Biases, summands),
        ]
    }
}
