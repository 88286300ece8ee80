//! The constants that the assembler put into the binary.

#[cfg(target_endian = "big")]
compile_error!("the baked constants are little-endian");

unsafe extern "C" {
    static mortonnet_weights: [u8; 0];
}

/// The first `bytes` bytes of the baked constants, as f32. `bytes` must be the size that the build wrote: only
/// `crate::baked`, which is generated together with the constants, calls this.
pub(crate) fn weights(bytes: usize) -> &'static [f32] {
    // SAFETY: the symbol is `bytes` bytes long (build.rs writes both), page-aligned, read-only and there for the whole
    // run; every bit pattern is an f32.
    unsafe { std::slice::from_raw_parts((&raw const mortonnet_weights).cast::<f32>(), bytes / 4) }
}

/// The same as halves.
pub(crate) fn halves(bytes: usize) -> &'static [u16] {
    // SAFETY: as above; every bit pattern is a u16.
    unsafe { std::slice::from_raw_parts((&raw const mortonnet_weights).cast::<u16>(), bytes / 2) }
}
