//! Safe code, compiled once more for the vectors that this CPU has.

/// What [`widest`] compiles twice. (A trait instead of a closure, as only a method can be made to be inlined. The technique
/// is that of the crates `multiversion` and `pulp`.)
pub(crate) trait Work {
    /// Does it: `#[inline(always)]`, as all that it calls should be.
    fn run(self);
}

/// Does `work` with the code for CPUs with AVX where this is one, else with that for every CPU of the target. The results
/// are the same to the bit: neither may fuse a product with a sum.
pub(crate) fn widest(work: impl Work) {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: the CPU has AVX.
        #[target_feature(enable = "avx")]
        unsafe fn with_avx(work: impl Work) {
            work.run();
        }
        if std::arch::is_x86_feature_detected!("avx") {
            // SAFETY: the CPU has AVX.
            return unsafe { with_avx(work) };
        }
    }
    work.run();
}
