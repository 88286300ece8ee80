//! Measures the peak rate of multiply-adds on one core.

use super::micro::{INDEPENDENT, Kernels};
use crate::sys::thread::cpu_time;

/// Returns the floating-point operations per second of a core that only computes multiply-adds in
/// registers. It is the fastest of five measurements of about 0.1 ms of CPU time.
pub(crate) fn peak() -> f64 {
    const TURNS: usize = 20_000;
    let kernels = Kernels::detect(MOST_LANES);
    let flop = (2 * TURNS * INDEPENDENT * kernels.lanes) as f64;
    let slices = (0..5).map(|_| {
        let start = cpu_time();
        // SAFETY: `detect` offers what the CPU has.
        unsafe { (kernels.peak)(TURNS) }
        flop / (cpu_time() - start).as_secs_f64()
    });
    slices.fold(0.0, f64::max)
}

/// A panel size that the lanes of every instruction set divide. With it, `detect` returns the CPU's
/// fastest kernels.
const MOST_LANES: usize = 16;
