//! The allowed difference between a score that an engine computes in f32 and the same score in
//! float64.

/// Returns the largest allowed error of a score: 1e-4 · max(1, |score|).
pub(crate) fn score_bound(score: f64) -> f64 {
    1e-4 * score.abs().max(1.0)
}

/// Returns the largest error of a record's scores, as a multiple of [`score_bound`]. A NaN counts
/// as an infinite error.
pub(crate) fn excess(expected: &[f64], found: impl Iterator<Item = f32>) -> f64 {
    expected
        .iter()
        .zip(found)
        .map(|(&e, f)| (f64::from(f) - e).abs() / score_bound(e))
        .map(|x| if x.is_nan() { f64::INFINITY } else { x })
        .fold(0.0, f64::max)
}

/// Returns true if the two largest scores are so close that rounding may swap them. Callers then do
/// not compare the predicted class.
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
