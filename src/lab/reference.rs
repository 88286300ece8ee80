//! References in float64, mostly, that the results of kernels are compared with.

use crate::ir::network::Activation;
use crate::registry::Problem;

pub(crate) use crate::ops::random::Random;
use std::time::{SystemTime, UNIX_EPOCH};

/// Returns a generator whose random numbers differ in every run of the program.
pub(crate) fn fresh() -> Random {
    Random::new(
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(1, |d| d.as_nanos() as u64),
    )
}

/// The operands of the product R = activation(alpha·A·B + beta·C + bias), all row major.
pub(crate) struct Product<'a> {
    pub(crate) real: Problem,
    /// The left operand, h × l.
    pub(crate) a: &'a [f32],
    /// The right operand, l × w.
    pub(crate) b: &'a [f32],
    /// The summand C, h × w; not read if beta is 0.
    pub(crate) c: &'a [f32],
    /// One bias for each of the h rows, added to all elements of the row.
    pub(crate) bias: Option<&'a [f32]>,
    pub(crate) alpha: f32,
    pub(crate) beta: f32,
    pub(crate) activation: Activation,
}

/// A result with up to this many rows is checked completely. Larger results are checked in the
/// first row, the last row and six random rows.
const ALL_ROWS: usize = 96;

impl Product<'_> {
    /// Returns the largest error of `found` (h × w) in units of each element's bound, which is
    /// 2·l·2⁻²⁴·(|alpha|·(|A|·|B|)) + 4 ulp. Activations have slopes of at most 1, so they enlarge
    /// no error. Their own rounding is within the 4 ulp, or within 2⁻²⁰ more for exp and tanh.
    pub(crate) fn excess(&self, found: &[f32]) -> f64 {
        let Problem { h, w, l } = self.real;
        let mut random = Random::new(h as u64 * 31 + w as u64);
        let rows: Vec<usize> = match h {
            0..=ALL_ROWS => (0..h).collect(),
            _ => [0, h - 1]
                .into_iter()
                .chain((0..6).map(|_| random.below(h)))
                .collect(),
        };
        let mut worst = 0.0f64;
        let (mut sums, mut sizes) = (vec![0.0f64; w], vec![0.0f64; w]);
        for row in rows {
            sums.fill(0.0);
            sizes.fill(0.0);
            for k in 0..l {
                let a = f64::from(self.a[row * l + k]);
                for (j, &b) in self.b[k * w..(k + 1) * w].iter().enumerate() {
                    let product = a * f64::from(b);
                    sums[j] += product;
                    sizes[j] += product.abs();
                }
            }
            let alpha = f64::from(self.alpha);
            for j in 0..w {
                let mut sum = alpha * sums[j];
                if self.beta != 0.0 {
                    sum += f64::from(self.beta) * f64::from(self.c[row * w + j]);
                }
                sum += self.bias.map_or(0.0, |bias| f64::from(bias[row]));
                if !sum.is_finite() {
                    // If the exact sum is infinite or NaN, the result must not be finite. This
                    // holds even for an activation that turns infinities into finite numbers.
                    worst = worst.max(lost(found[row * w + j]));
                    continue;
                }
                let exact = self.activation.apply(sum);
                let own = if self.activation.bounded() {
                    2f64.powi(-20)
                } else {
                    0.0
                };
                let ulp =
                    2f64.powi(-23) * sum.abs().max(exact.abs()).max(f64::from(f32::MIN_POSITIVE));
                let bound =
                    2.0 * l as f64 * 2f64.powi(-24) * alpha.abs() * sizes[j] + 4.0 * ulp + own;
                worst = worst.max(ratio((f64::from(found[row * w + j]) - exact).abs(), bound));
            }
        }
        worst
    }
}

/// Returns `error` in units of `bound`. NaN counts as an infinite error.
fn ratio(error: f64, bound: f64) -> f64 {
    let r = error / bound;
    if r.is_nan() { f64::INFINITY } else { r }
}

/// Returns the error of a value that must be infinite or NaN: 0 if it is, else infinity.
pub(crate) fn lost(found: f32) -> f64 {
    if found.is_finite() {
        f64::INFINITY
    } else {
        0.0
    }
}

/// Returns the largest error of `found` against `exact(index)`, in units of 4 · `relative` · max(1,
/// |exact|). Where the exact value is infinite or NaN, the value in `found` must not be finite.
pub(crate) fn elementwise(found: &[f32], exact: impl Fn(usize) -> f64, relative: f64) -> f64 {
    let error = |(i, &f): (usize, &f32)| {
        let e = exact(i);
        if !e.is_finite() {
            return lost(f);
        }
        ratio((f64::from(f) - e).abs(), relative * e.abs().max(1.0) * 4.0)
    };
    found.iter().enumerate().map(error).fold(0.0, f64::max)
}

/// Returns the sum that the kernel which measures peak multiply-adds must compute. It adds eight
/// chains of `steps` multiply-adds each, which start at x, x + 1, ….
pub(crate) fn probe(x: f32, steps: usize) -> f64 {
    // Each step of a chain computes x·0.75 + 0.5. After n steps its value is 2 + (x − 2)·0.75ⁿ.
    let rest = 0.75f64.powi(steps.min(10_000) as i32);
    (0..8)
        .map(|c| 2.0 + (f64::from(x) + f64::from(c) - 2.0) * rest)
        .sum()
}

/// Returns the result of ARM's Sobel filter (§1): sums of 16 bits, shifted right by 3. Pixels on
/// the border keep the value `border`.
pub(crate) fn sobel(image: &[u8], h: usize, w: usize, horizontal: bool, border: u8) -> Vec<u8> {
    let mut out = vec![border; h * w];
    let at = |y: usize, x: usize| i16::from(image[y * w + x]);
    for y in 1..h.saturating_sub(1) {
        for x in 1..w.saturating_sub(1) {
            let sum = if horizontal {
                at(y - 1, x + 1) - at(y - 1, x - 1)
                    + 2 * (at(y, x + 1) - at(y, x - 1))
                    + at(y + 1, x + 1)
                    - at(y + 1, x - 1)
            } else {
                at(y - 1, x - 1) - at(y + 1, x - 1)
                    + 2 * (at(y - 1, x) - at(y + 1, x))
                    + at(y - 1, x + 1)
                    - at(y + 1, x + 1)
            };
            out[y * w + x] = (sum >> 3) as u8;
        }
    }
    out
}
