//! The check for enough memory before a large allocation.

use crate::error::Error;

/// Returns an error if `bytes` bytes for `what` cannot be allocated. The caller allocates this
/// number of bytes next. Without this check, a failed allocation would end the process without a
/// message of this program.
pub(crate) fn check(bytes: usize, what: &str) -> Result<(), Error> {
    let mut room = Vec::<u8>::new();
    let had = room.try_reserve_exact(bytes);
    std::hint::black_box(&room);
    had.map_err(|_| Error::device(format!("not enough memory: {bytes} bytes for {what}")))
}
