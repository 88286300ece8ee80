//! The constants that the assembler put into the binary.

#[cfg(target_endian = "big")]
compile_error!("the baked constants are little-endian");

unsafe extern "C" {
    static mortonnet_weights: [u8; 0];
    static mortonnet_weights_end: [u8; 0];
}

/// The baked constants as f32.
pub(crate) fn weights() -> &'static [f32] {
    let (start, bytes) = range();
    // SAFETY: the assembler put `bytes` bytes there, page-aligned, read-only and there for the whole run; every bit
    // pattern is an f32.
    unsafe { std::slice::from_raw_parts(start.cast::<f32>(), bytes / 4) }
}

/// The same as halves.
pub(crate) fn halves() -> &'static [u16] {
    let (start, bytes) = range();
    // SAFETY: as above; every bit pattern is a u16.
    unsafe { std::slice::from_raw_parts(start.cast::<u16>(), bytes / 2) }
}

/// Where they start, and their bytes: the symbols stand at both ends of what the assembler included.
fn range() -> (*const u8, usize) {
    let (start, end) = (&raw const mortonnet_weights, &raw const mortonnet_weights_end);
    (start.cast(), end as usize - start as usize)
}
