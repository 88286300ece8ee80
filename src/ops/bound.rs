//! How far an engine's answer may be from that of the network in float64.

/// Largest difference that a score may have: 1e-4 · max(1, |score|).
pub(crate) fn score_bound(score: f64) -> f64 {
    1e-4 * score.abs().max(1.0)
}

/// How far `found` is from `expected` in units of the bound, over all scores of a record; NaN
/// counts as infinite.
pub(crate) fn excess(expected: &[f64], found: impl Iterator<Item = f32>) -> f64 {
    expected
        .iter()
        .zip(found)
        .map(|(&e, f)| (f64::from(f) - e).abs() / score_bound(e))
        .map(|x| if x.is_nan() { f64::INFINITY } else { x })
        .fold(0.0, f64::max)
}

/// Whether the two largest scores are so close that rounding may swap them: classes are compared
/// only where they are not.
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
