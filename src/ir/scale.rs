//! Quantization of weights to bytes: whole numbers from −127 to 127, times a scale for each row.
//!
//! Rounded weights are kept as floats, each the product of its whole number and the scale of its
//! row. The scale is not kept, but can be computed from the row. [`round`] chooses scales of at
//! most [`DIGITS`] binary digits, so that the products are exact in f32. The largest whole number
//! of such a row is 127. A model that was already quantized keeps its own whole numbers.

/// The largest whole number that a quantized weight is stored as.
pub(crate) const MOST: f32 = 127.0;

/// The number of rows in a panel of the constants that hold biases and scales. Each panel has the
/// biases of its rows, then the scales of the same rows. It is a multiple of every kernel's vector
/// length.
pub(crate) const BESIDE: usize = 16;

/// The most binary digits of a scale that [`round`] chooses. A stored whole number has 7, so its
/// product with the scale has at most 23 and is exact in f32.
const DIGITS: u32 = 16;

/// If all absolute values in a row of weights are smaller than this, [`round`] makes the row zero.
const LEAST: f32 = 1e-30;

/// Returns the scale of a row of rounded weights. It is 0 for a row of zeros.
pub(crate) fn of_row(row: &[f32]) -> f32 {
    of_numbers(row, 0.0).unwrap_or(largest(row) / MOST)
}

/// Returns the smallest scale such that each weight of the row is the scale times a whole number
/// from −127 to 127. A weight may differ from that product by the relative `error`. `None` if there
/// is no such scale.
fn of_numbers(row: &[f32], error: f32) -> Option<f32> {
    let largest = largest(row);
    let fits = |scale: f32| {
        scale >= f32::MIN_POSITIVE
            && row.iter().all(|&w| {
                let number = (w / scale).round();
                number.abs() <= MOST && (number * scale - w).abs() <= error * w.abs()
            })
    };
    // The division may differ from the row's original scale in its last bits, so the neighbouring
    // floats are tried, too.
    let near = |scale: f32| {
        [0, 1, -1, 2, -2].map(|i| f32::from_bits(scale.to_bits().wrapping_add_signed(i)))
    };
    let scales = (1..=MOST as u8)
        .rev()
        .flat_map(|n| near(largest / f32::from(n)));
    scales.into_iter().find(|&scale| fits(scale))
}

/// The largest relative difference with which a weight still counts as a whole number times a
/// scale. The weights of a quantized model are rounded products. A factor that the build folds into
/// a row rounds them once more.
const ROUNDED: f32 = 1.0 / (1 << 21) as f32;

/// Returns the whole number that a rounded weight is stored as, for the scale of its row.
pub(crate) fn number(weight: f32, scale: f32) -> i8 {
    if scale > 0.0 {
        (weight / scale).round() as i8
    } else {
        0
    }
}

fn largest(row: &[f32]) -> f32 {
    row.iter().fold(0.0, |most, w| w.abs().max(most))
}

/// Rounds each weight of a row to a whole number times a scale that the row shares. A row that
/// already has this form keeps its whole numbers. Otherwise several scales are tried, and the one
/// with the smallest weighted sum of squared errors wins. Each error is weighted with the column's
/// entry in `sizes`. A scale may be too small for the largest weights. It clips them, but rounds
/// the other weights better.
pub(crate) fn round(row: &mut [f32], sizes: &[f32]) {
    let largest = largest(row);
    if largest < LEAST {
        row.fill(0.0);
        return;
    }
    let rounded = |w: f32, scale: f32| (w / scale).round().clamp(-MOST, MOST) * scale;
    if let Some(scale) = of_numbers(row, ROUNDED) {
        row.iter_mut().for_each(|w| *w = rounded(*w, scale));
        return;
    }
    let error = |scale: f32| {
        let errors = row
            .iter()
            .zip(sizes)
            .map(|(&w, size)| (rounded(w, scale) - w) * size);
        errors.map(|e| f64::from(e) * f64::from(e)).sum::<f64>()
    };
    // The tries differ in the largest weight that the scale can represent. It goes from the row's
    // largest weight down to half of it, in steps of 1/32.
    let scales = (0..=16).map(|step| of_digits(largest * (1.0 - step as f32 / 32.0) / MOST));
    let errors = scales.map(|scale| (scale, error(scale)));
    let best = errors.reduce(|(scale, least), (other, error)| match error < least {
        true => (other, error),
        false => (scale, least),
    });
    let scale = best.map_or(1.0, |(scale, _)| scale);
    row.iter_mut().for_each(|w| *w = rounded(*w, scale));
}

/// Rounds a float to [`DIGITS`] binary digits.
fn of_digits(x: f32) -> f32 {
    let rest = 24 - DIGITS;
    f32::from_bits((x.to_bits() + (1 << (rest - 1))) >> rest << rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Rounded weights are exactly the products of their whole numbers and the scale. Rounding
        /// them again changes nothing.
        #[test]
        fn a_rounded_row_holds_its_scale(
            row in proptest::collection::vec(-2.0f32..2.0, 1..40),
            power in -60i32..60,
            seed: u32,
        ) {
            let row: Vec<f32> = row.iter().map(|w| w * 2f32.powi(power)).collect();
            // Without any size, every scale would be as good.
            let size = |i: usize| (seed >> (i % 20)).max(1) as f32 / u32::MAX as f32;
            let sizes: Vec<f32> = (0..row.len()).map(size).collect();
            let mut rounded = row.clone();
            round(&mut rounded, &sizes);
            let scale = of_row(&rounded);
            for &w in &rounded {
                prop_assert_eq!(f32::from(number(w, scale)) * scale, w);
            }
            // A short random row can have the form of a quantized one by chance, and keeps its
            // whole numbers then.
            if largest(&row) >= LEAST && of_numbers(&row, ROUNDED).is_none() {
                let numbers = rounded.iter().map(|&w| number(w, scale).unsigned_abs());
                prop_assert_eq!(numbers.max(), Some(127));
            }
            let mut plain = row.clone();
            round(&mut plain, &vec![1.0; row.len()]);
            let error = |r: &[f32], sizes: &[f32]| {
                let errors = r.iter().zip(&row).zip(sizes);
                errors.map(|((a, b), s)| f64::from((a - b) * s).powi(2)).sum::<f64>()
            };
            prop_assert!(error(&rounded, &sizes) <= error(&plain, &sizes) * 1.0001 + 1e-60);
            let mut again = rounded.clone();
            round(&mut again, &sizes);
            prop_assert_eq!(again, rounded);
        }
    }

    proptest! {
        /// The weights of an already quantized model keep their whole numbers. This holds even if
        /// the largest whole number is below 127, or if a factor was folded into the row.
        #[test]
        fn a_models_own_integers_stay(
            numbers in proptest::collection::vec(-90i8..=90, 3..40),
            scale in 1e-4f32..1.0,
            factor in 0.1f64..10.0,
        ) {
            prop_assume!(numbers.iter().filter(|&&n| n != 0).count() > 2);
            let weight = |&n: &i8| (f64::from(n) * f64::from(scale) * factor) as f32;
            let row: Vec<f32> = numbers.iter().map(weight).collect();
            let mut rounded = row.clone();
            // With these `sizes`, a search for the best scale would clip the largest weight, and
            // this test would fail.
            let size = |n: &i8| 1.0 / (1.0 + f32::from(n.unsigned_abs()));
            let sizes: Vec<f32> = numbers.iter().map(size).collect();
            round(&mut rounded, &sizes);
            for (&before, &after) in row.iter().zip(&rounded) {
                prop_assert!((before - after).abs() <= ROUNDED * before.abs(), "{before} {after}");
            }
            let scale = of_row(&rounded);
            for &w in &rounded {
                prop_assert_eq!(f32::from(number(w, scale)) * scale, w);
            }
        }
    }

    #[test]
    fn a_large_weight_that_does_not_count_is_cut() {
        let mut row: Vec<f32> = (0..100).map(|i| (i as f32 * 0.37).sin()).collect();
        row[7] = 1.9;
        let mut sizes = vec![1.0; 100];
        sizes[7] = 1e-3;
        round(&mut row, &sizes);
        assert!(
            row[7] < 1.1 && row.iter().all(|w| w.abs() <= row[7]),
            "{}",
            row[7]
        );
        let mut nothing = vec![1e-33, -1e-35];
        round(&mut nothing, &[1.0, 1.0]);
        assert_eq!((of_row(&nothing), number(0.0, 0.0)), (0.0, 0));
        assert_eq!(nothing, [0.0, 0.0]);
    }
}
