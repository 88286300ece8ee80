//! The allowed difference between an engine's scores and the scores in float64.

/// The largest allowed difference of a score: 1e-4 · max(1, |score|).
pub(crate) fn score_bound(score: f64) -> f64 {
    1e-4 * score.abs().max(1.0)
}

/// The largest difference of a record's scores, in multiples of [`score_bound`]. NaN counts as
/// infinite.
pub(crate) fn excess(expected: &[f64], found: impl Iterator<Item = f32>) -> f64 {
    expected
        .iter()
        .zip(found)
        .map(|(&e, f)| (f64::from(f) - e).abs() / score_bound(e))
        .map(|x| if x.is_nan() { f64::INFINITY } else { x })
        .fold(0.0, f64::max)
}

/// Returns true if the two largest scores are so close that rounding may swap them. Classes are not
/// compared then.
pub(crate) fn too_close(scores: &[f64]) -> bool {
    let (mut first, mut second) = (f64::NEG_INFINITY, f64::NEG_INFINITY);
    for &s in scores {
        if s > first {
            (first, second) = (s, first);
        } else if s > second {
            second = s;
        }
    }
    first - second <= 2.0 * score_bound(first)
}
