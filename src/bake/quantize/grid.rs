//! The 8-bit integers that represent a value of the graph: their scale and their limits, chosen
//! from sample numbers.

use crate::ops::random::Random;
use libm::rint;

/// The whole numbers, from `low` to `high`, that represent real numbers. The whole number n
/// represents n · scale. A stored 8-bit integer would be n plus the zero point −128 − low.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Grid {
    pub(super) scale: f32,
    pub(super) low: i32,
    pub(super) high: i32,
}

/// The number of steps from the smallest to the largest 8-bit integer.
const STEPS: i32 = 255;

impl Grid {
    /// Returns the factor that turns a real number into its whole number: 1 / scale.
    pub(super) fn factor(self) -> f32 {
        1.0 / self.scale
    }

    /// Returns the whole number that represents `x`: x / scale, rounded to nearest (ties to even)
    /// and clamped to the limits. The product is rounded to f32 first, as in all engines.
    pub(super) fn whole(self, x: f64) -> f64 {
        let product = (x * f64::from(self.factor())) as f32;
        rint(product.into()).clamp(self.low.into(), self.high.into())
    }

    /// Returns the grid limited to the whole numbers that represent real numbers from `low` to
    /// `high`.
    pub(super) fn limited(self, low: f32, high: f32) -> Grid {
        let most = f64::from(self.high);
        let least = self.whole(low.into()).min(most);
        Grid {
            low: least as i32,
            high: self.whole(high.into()).max(least) as i32,
            ..self
        }
    }
}

/// Sample numbers of one value of the graph, collected over the calibration records.
#[derive(Clone, Debug, Default)]
pub(super) struct Samples {
    /// The smallest of 0 and all numbers seen. `high` is the largest of 0 and all numbers seen.
    low: f64,
    high: f64,
    /// A random selection of the numbers seen.
    some: Vec<f64>,
}

/// The number of sample numbers that are kept for each value of the graph, about.
const KEPT: usize = 1 << 14;

impl Samples {
    /// Adds the numbers that the value has in one record. `records` is the number of calibration
    /// records.
    pub(super) fn add(&mut self, numbers: &[f64], records: usize, random: &mut Random) {
        for &x in numbers {
            self.low = self.low.min(x);
            self.high = self.high.max(x);
        }
        let share = KEPT.div_ceil(records.max(1));
        match numbers.len() <= share {
            true => self.some.extend(numbers),
            false => {
                let some = (0..share).map(|_| numbers[random.below(numbers.len())]);
                self.some.extend(some);
            }
        }
    }

    /// Returns the grid with the smallest sum of squared errors over the samples. A range that cuts
    /// off the largest numbers rounds the others in smaller steps. The ranges that are tried go
    /// from the whole range down to an eighth of it.
    pub(super) fn grid(&self) -> Grid {
        let width = self.high - self.low;
        let of_share = |share: f64| {
            let scale = (width * share / f64::from(STEPS)) as f32;
            let scale = if scale.is_normal() { scale } else { 1.0 };
            let low = rint(self.low * share / f64::from(scale)) as i32;
            Grid {
                scale,
                low,
                high: low + STEPS,
            }
        };
        let error = |grid: Grid| {
            let errors = self
                .some
                .iter()
                .map(|&x| grid.whole(x) * f64::from(grid.scale) - x);
            errors.map(|e| e * e).sum::<f64>()
        };
        let shares = (0..=28).map(|step| of_share(1.0 - f64::from(step) / 32.0));
        let all = shares.map(|grid| (grid, error(grid)));
        let best = all.reduce(|best, other| if other.1 < best.1 { other } else { best });
        best.map_or_else(|| of_share(1.0), |(grid, _)| grid)
    }
}
