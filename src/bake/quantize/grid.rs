//! The 8-bit integers of a value: their scale and their limits, chosen from samples.

use crate::ops::random::Random;
use libm::rint;

/// The whole numbers that stand for a value. The number n stands for n · scale. A stored 8-bit
/// integer would be n and the zero point, which is −128 − low.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Grid {
    pub(super) scale: f32,
    pub(super) low: i32,
    pub(super) high: i32,
}

/// The steps between the smallest and the largest 8-bit integer.
const STEPS: i32 = 255;

impl Grid {
    /// Returns the factor from a real number to its whole number.
    pub(super) fn factor(self) -> f32 {
        1.0 / self.scale
    }

    /// Returns the whole number nearest to `x`, of two the even one. All engines compute the
    /// product as a float.
    pub(super) fn whole(self, x: f64) -> f64 {
        let product = (x * f64::from(self.factor())) as f32;
        rint(product.into()).clamp(self.low.into(), self.high.into())
    }

    /// Returns the grid without the numbers that a limit of real numbers cuts off.
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

/// Numbers of a value over the records.
#[derive(Clone, Debug, Default)]
pub(super) struct Samples {
    /// The limits of all numbers, 0 among them.
    low: f64,
    high: f64,
    /// Some of the numbers.
    some: Vec<f64>,
}

/// The numbers of a value that are kept.
const KEPT: usize = 1 << 14;

impl Samples {
    /// Adds the numbers of one of `records` records.
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

    /// Returns the grid with the least sum of squared errors. A range that cuts off the largest
    /// numbers has smaller steps for the others. Ranges go down to an eighth of all.
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
