//! A layer that computes with 8-bit integers, and its error compared with the layer of floats.

use super::grid::Grid;
use crate::bake::rounding::Columns;
use crate::ir::graph::Shape;
use crate::ir::op::Op;
use crate::ir::scale;
use crate::ops::evaluate::Computed;

/// An affine layer or a convolution with whole numbers as input, weights and biases.
#[derive(Clone, Debug)]
pub(super) struct Layer {
    /// The grid of whole numbers that represent the layer's input.
    pub(super) grid: Grid,
    /// The weights as whole numbers from −127 to 127, row by row.
    pub(super) weights: Vec<f32>,
    /// The biases, in units of the layer's integer sums. They are rounded to whole numbers only
    /// when the layer is written.
    biases: Vec<f64>,
    /// For each row, the real number that the integer sum 1 represents.
    pub(super) units: Vec<f64>,
    errors: Errors,
}

/// The differences between the sums of a quantized layer, as real numbers, and those of the layer
/// of floats.
#[derive(Clone, Debug, Default)]
struct Errors {
    /// For each row, the sum of all differences.
    sums: Vec<f64>,
    /// The number of differences that were added for each row.
    count: f64,
    squares: f64,
    /// The sum of the squares of the sums that the layer of floats computes.
    of: f64,
}

/// The largest size of a bias, in units of the integer sums. Floats hold whole numbers exactly up
/// to 2^24, so this leaves room for the products.
const MOST_BIAS: f64 = (1 << 22) as f64;

impl Layer {
    /// Quantizes a layer with the given float weights and biases. `columns` has the mean sizes of
    /// the layer's inputs.
    pub(super) fn new(grid: Grid, weights: &[f32], biases: &[f32], columns: &Columns) -> Layer {
        let rows = biases.len();
        let (mut numbers, mut units) = (Vec::with_capacity(weights.len()), Vec::new());
        let rows_of = weights.chunks_exact(weights.len() / rows.max(1));
        for (i, (row, &bias)) in rows_of.zip(biases).enumerate() {
            let mut rounded = row.to_vec();
            scale::round(&mut rounded, &columns.of_row(i, rows));
            let least = f64::from(bias).abs() / MOST_BIAS / f64::from(grid.scale);
            let own = scale::of_row(&rounded);
            // Weights that are tiny compared with the row's bias are rounded more coarsely, so that
            // the bias stays small enough.
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

    /// Returns the biases rounded to whole numbers, in units of the integer sums.
    pub(super) fn biases(&self) -> Vec<f64> {
        self.biases.iter().map(|&b| libm::rint(b)).collect()
    }

    /// Computes one record with the quantized layer, and adds the differences from the sums of
    /// floats to the layer's errors.
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

    /// Subtracts each row's mean difference, which [`Layer::compare`] has collected, from the row's
    /// bias. Returns the remaining error as a share of the size of the float sums (root mean
    /// square).
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
