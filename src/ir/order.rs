//! Sorting by integer keys. All callers share one function, because the compiler generates the
//! standard library's sort anew for every type and key.

/// Returns the indices of `keys` in ascending order of the keys. Equal keys keep their order.
pub(crate) fn ascending(keys: impl Iterator<Item = [u64; 3]>) -> Vec<usize> {
    let mut all: Vec<[u64; 4]> = keys
        .zip(0..)
        .map(|([a, b, c], place)| [a, b, c, place])
        .collect();
    all.sort_unstable();
    all.into_iter().map(|key| key[3] as usize).collect()
}
