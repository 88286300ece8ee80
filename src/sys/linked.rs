//! The block of baked data that the assembler included in the program.

#[cfg(target_endian = "big")]
compile_error!("the block is little-endian");

unsafe extern "C" {
    static mortonnet_block: [u8; 0];
    static mortonnet_block_end: [u8; 0];
}

/// Returns the block, which begins at a page boundary. In a program that `mortonnet-bake` fills
/// later, the bytes are a [`BlockSlot`](crate::block::BlockSlot) instead.
pub(crate) fn block() -> &'static [u8] {
    let (start, end) = (&raw const mortonnet_block, &raw const mortonnet_block_end);
    // SAFETY: the symbols stand at both ends of the bytes that the assembler included. They are
    // read-only and there for the whole run.
    unsafe { std::slice::from_raw_parts(start.cast(), end as usize - start as usize) }
}

/// Returns bytes of the block as f32.
///
/// # Panics
/// If the bytes are not aligned, or are not whole floats.
pub(crate) fn floats(bytes: &[u8]) -> &[f32] {
    // SAFETY: every bit pattern is an f32.
    let (before, floats, after) = unsafe { bytes.align_to::<f32>() };
    assert!(
        before.is_empty() && after.is_empty(),
        "floats stand aligned"
    );
    floats
}

/// Returns bytes of the block as i8.
pub(crate) fn signed(bytes: &[u8]) -> &[i8] {
    // SAFETY: every bit pattern is an i8.
    unsafe { bytes.align_to::<i8>() }.1
}

/// Returns bytes of the block as half-precision floats, each as its 16 bits.
///
/// # Panics
/// If the bytes are not aligned, or are not whole halves.
pub(crate) fn halves(bytes: &[u8]) -> &[u16] {
    // SAFETY: every bit pattern is a u16.
    let (before, halves, after) = unsafe { bytes.align_to::<u16>() };
    assert!(
        before.is_empty() && after.is_empty(),
        "halves stand aligned"
    );
    halves
}
