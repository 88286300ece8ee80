//! Sorting by numbers, in one place: the standard library's sort is compiled anew for every type
//! and key.

/// The places of `keys` in ascending order, those of equal ones as they stand.
pub(crate) fn ascending(keys: impl Iterator<Item = [u64; 3]>) -> Vec<usize> {
    let mut all: Vec<[u64; 4]> = keys
        .zip(0..)
        .map(|([a, b, c], place)| [a, b, c, place])
        .collect();
    all.sort_unstable();
    all.into_iter().map(|key| key[3] as usize).collect()
}
