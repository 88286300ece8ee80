//! Runs safe code in a copy that is compiled for AVX, if the CPU has AVX.
//!
//! `build.rs` also compiles this file, but not the rest of the folder `simd`. So the file is the
//! separate module `crate::wide`, and uses nothing of `simd`.
#![allow(unsafe_code)]

/// Work that [`widest`] compiles twice, with and without AVX. It is a trait because a method can be
/// marked for inlining and a closure cannot. The crates `multiversion` and `pulp` use the same
/// technique.
pub(crate) trait WideWork {
    /// Runs the work. This method and all functions that it calls must be `#[inline(always)]`.
    fn run(self);
}

/// Runs `work`, with AVX if this CPU has it. The results are the same to the bit with and without
/// AVX, because neither copy fuses a product with a sum.
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
