//! Runs safe code in a copy that is compiled for AVX, if this CPU has it.
//!
//! `build.rs` also compiles this file, but not the rest of the folder `simd`. So the file is a
//! module of its own, `crate::wide`, and uses nothing of `simd`.
#![allow(unsafe_code)]

/// Code that [`widest`] compiles twice, with and without AVX. It is a trait instead of a closure
/// because only a method can be made to be inlined. The technique is that of the crates
/// `multiversion` and `pulp`.
pub(crate) trait WideWork {
    /// Does the work. It must be `#[inline(always)]`, as must be the functions that it calls.
    fn run(self);
}

/// Does `work`, with AVX if this CPU has it. The results are the same to the bit with and without:
/// neither code fuses a product with a sum.
pub(crate) fn widest(work: impl WideWork) {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: the CPU has AVX.
        #[target_feature(enable = "avx")]
        unsafe fn with_avx(work: impl WideWork) {
            work.run();
        }
        if std::arch::is_x86_feature_detected!("avx") {
            // SAFETY: the CPU has AVX.
            return unsafe { with_avx(work) };
        }
    }
    work.run();
}
