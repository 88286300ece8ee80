//! Measures the peak rate of multiply-adds of a core.

use super::micro::{INDEPENDENT, Kernels};
use crate::sys::thread::cpu_time;

/// Returns the flop per second of a core that computes only multiply-adds in registers. This is the
/// fastest of five slices of about 0.1 ms of CPU time.
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

/// A panel size that the lanes of every instruction set divide. So `detect` returns the fastest
/// kernels.
const MOST_LANES: usize = 16;
