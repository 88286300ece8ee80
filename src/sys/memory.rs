//! Memory that may not be had.

use crate::error::Error;

/// Whether so many bytes can be had, for those who allocate as much next: an allocation that fails
/// ends the process without a word of ours.
pub(crate) fn check(bytes: usize, what: &str) -> Result<(), Error> {
    let mut room = Vec::<u8>::new();
    let had = room.try_reserve_exact(bytes);
    std::hint::black_box(&room);
    had.map_err(|_| Error::device(format!("not enough memory: {bytes} bytes for {what}")))
}
