//! A layer on 8-bit integers.

use super::grid::Grid;
use crate::bake::rounding::Columns;
use crate::ir::graph::Shape;
use crate::ir::op::Op;
use crate::ir::scale;
use crate::ops::evaluate::Computed;

/// An affine layer or a convolution whose input, weights and biases are whole numbers.
#[derive(Clone, Debug)]
pub(super) struct Layer {
    /// The whole numbers of the input.
    pub(super) grid: Grid,
    /// Whole numbers from −127 to 127.
    pub(super) weights: Vec<f32>,
    /// The layer's biases in units of the sums. They are rounded when the layer is stored.
    biases: Vec<f64>,
    /// The real number that 1 in the sums of a row stands for.
    pub(super) units: Vec<f64>,
    errors: Errors,
}

/// The differences of a quantized layer's sums from the sums of floats.
#[derive(Clone, Debug, Default)]
struct Errors {
    /// The sum of each row's differences.
    sums: Vec<f64>,
    /// The number of differences of each row.
    count: f64,
    squares: f64,
    /// The sum of the squares of the floats.
    of: f64,
}

/// The largest bias in units of the sums. It leaves digits to the products.
const MOST_BIAS: f64 = (1 << 22) as f64;

impl Layer {
    /// Quantizes a layer of these weights and biases. `columns` has the sizes of its inputs.
    pub(super) fn new(grid: Grid, weights: &[f32], biases: &[f32], columns: &Columns) -> Layer {
        let rows = biases.len();
        let (mut numbers, mut units) = (Vec::with_capacity(weights.len()), Vec::new());
        let rows_of = weights.chunks_exact(weights.len() / rows.max(1));
        for (i, (row, &bias)) in rows_of.zip(biases).enumerate() {
            let mut rounded = row.to_vec();
            scale::round(&mut rounded, &columns.of_row(i, rows));
            let least = f64::from(bias).abs() / MOST_BIAS / f64::from(grid.scale);
            let own = scale::of_row(&rounded);
            // Weights that are tiny beside the bias get fewer digits.
            let step = if f64::from(own) < least {
                least as f32
            } else {
                own
            };
            let step = if step > 0.0 { step } else { 1.0 };
            let number = |(&w, &r): (&f32, &f32)| match step == own {
                true => f32::from(scale::number(r, own)),
                false => (w / step).round(),
            };
            numbers.extend(row.iter().zip(&rounded).map(number));
            units.push(f64::from(step) * f64::from(grid.scale));
        }
        let in_units = |(&b, unit): (&f32, &f64)| f64::from(b) / unit;
        Layer {
            grid,
            weights: numbers,
            biases: biases.iter().zip(&units).map(in_units).collect(),
            errors: Errors {
                sums: vec![0.0; rows],
                ..Errors::default()
            },
            units,
        }
    }

    /// Returns the biases as whole numbers.
    pub(super) fn biases(&self) -> Vec<f64> {
        self.biases.iter().map(|&b| libm::rint(b)).collect()
    }

    /// Compares the layer's sums with those of floats, for one record.
    pub(super) fn compare(&mut self, op: Op, computed: &Computed<'_>, shape: Shape) {
        let (input, of_input) = computed.operands[0];
        let whole: Vec<f64> = input.iter().map(|&x| self.grid.whole(x)).collect();
        let biases: Vec<f32> = self.biases().iter().map(|&b| b as f32).collect();
        let arrays = [&self.weights[..], &biases];
        let sums = op.references(&[vec![(&whole, of_input)]], &arrays, shape);
        let pixels = shape.h * shape.w;
        let errors = &mut self.errors;
        for (i, (sum, real)) in sums[0].iter().zip(&*computed.numbers).enumerate() {
            let off = sum * self.units[i / pixels] - real;
            errors.sums[i / pixels] += off;
            errors.squares += off * off;
            errors.of += real * real;
        }
        errors.count += pixels as f64;
    }

    /// Takes the mean differences of [`Layer::compare`] out of the biases. Returns the size of the
    /// differences that are left, as a share of the size of the sums (root mean square).
    pub(super) fn correct(&mut self) -> f64 {
        let none = Errors {
            sums: vec![0.0; self.units.len()],
            ..Errors::default()
        };
        let errors = std::mem::replace(&mut self.errors, none);
        let count = errors.count.max(1.0);
        let mut left = errors.squares;
        for ((bias, unit), sum) in self.biases.iter_mut().zip(&self.units).zip(&errors.sums) {
            *bias = (*bias - sum / count / unit).clamp(-2.0 * MOST_BIAS, 2.0 * MOST_BIAS);
            left -= sum * sum / count;
        }
        (left.max(0.0) / errors.of.max(f64::MIN_POSITIVE)).sqrt()
    }
}
