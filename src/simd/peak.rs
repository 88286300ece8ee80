//! Measures the peak rate of multiply-adds of cores, and the rate at which they read memory.

use super::micro::{INDEPENDENT, Kernels, READ_AT_ONCE};
use crate::sys::thread::own_cpu_time;
use std::sync::Barrier;

/// Returns the floating-point operations per second of a core that only computes multiply-adds in
/// registers. It is the fastest of five measurements of about 0.1 ms of CPU time.
pub(crate) fn peak() -> f64 {
    const TURNS: usize = 20_000;
    let kernels = Kernels::detect(MOST_LANES);
    let flop = (2 * TURNS * INDEPENDENT * kernels.lanes) as f64;
    fastest(flop, 5, || {
        // SAFETY: `detect` offers what the CPU has.
        unsafe { (kernels.peak)(TURNS) }
    })
}

/// Returns the sum of the [`peak`] of `threads` threads that run at the same time.
pub(crate) fn peak_of(threads: usize) -> f64 {
    together(vec![(); threads], |()| peak())
}

/// Returns the bytes per second that `threads` threads read together from a buffer of `bytes`
/// bytes. Each thread reads its part of the buffer again and again. A part is at least
/// [`LEAST_BYTES`]. The result is the fastest of seven measurements of about 0.1 ms of CPU time,
/// or longer if a part takes longer.
pub(crate) fn bandwidth(bytes: usize, threads: usize) -> f64 {
    const SLICE: usize = 1 << 23;
    const UNIT: usize = READ_AT_ONCE * MOST_LANES;
    let kernels = Kernels::detect(MOST_LANES);
    let floats = bytes.div_ceil(threads).max(LEAST_BYTES) / size_of::<f32>();
    let count = floats.next_multiple_of(UNIT);
    let (turns, read) = (SLICE.div_ceil(4 * count), 4 * count);
    // The memory has room to begin the part on a cache line. Nonzero values make the system give
    // each page memory of its own.
    let parts: Vec<Vec<f32>> = vec![vec![1.0; count + MOST_LANES]; threads];
    together(parts, |part| {
        let start = part.as_ptr().align_offset(CACHE_LINE).min(MOST_LANES);
        let values = &part[start..start + count];
        // The first turn brings the part into the cache.
        // SAFETY: there are `count` values, and `detect` offers what the CPU has.
        unsafe { (kernels.read)(values.as_ptr(), count, 1) };
        fastest((turns * read) as f64, 7, || {
            // SAFETY: as above.
            unsafe { (kernels.read)(values.as_ptr(), count, turns) }
        })
    })
}

/// The least bytes that a thread reads for [`bandwidth`]. Every first-level cache holds them.
pub(crate) const LEAST_BYTES: usize = 1 << 14;

/// A panel size that the lanes of every instruction set divide. With it, `detect` returns the CPU's
/// fastest kernels.
const MOST_LANES: usize = 16;

/// The bytes of a cache line.
const CACHE_LINE: usize = 64;

/// Returns the largest rate of several runs of `work`: `amount` per second of CPU time.
fn fastest(amount: f64, runs: usize, work: impl Fn()) -> f64 {
    let rates = (0..runs).map(|_| {
        let start = own_cpu_time();
        work();
        amount / (own_cpu_time() - start).as_secs_f64()
    });
    rates.fold(0.0, f64::max)
}

/// Runs `rate` for each part at the same time, each in a thread of its own. Returns the sum of the
/// rates. The calling thread has the first part.
fn together<T: Send>(parts: Vec<T>, rate: impl Fn(T) -> f64 + Sync) -> f64 {
    let barrier = Barrier::new(parts.len().max(1));
    let run = |part| {
        barrier.wait();
        rate(part)
    };
    let (run, mut parts) = (&run, parts.into_iter());
    let Some(own) = parts.next() else { return 0.0 };
    std::thread::scope(|scope| {
        let others: Vec<_> = parts.map(|part| scope.spawn(move || run(part))).collect();
        let own = run(own);
        let rates = others.into_iter().map(|t| t.join().unwrap_or(0.0));
        own + rates.sum::<f64>()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The parts run at the same time, and their rates are added.
    #[test]
    fn threads_run_together() {
        let (barrier, parts) = (Barrier::new(3), vec![1.0, 2.0, 4.0]);
        let rate = |part| {
            barrier.wait();
            part
        };
        assert_eq!(together(parts, rate), 7.0);
        assert_eq!(together(Vec::<f64>::new(), |rate| rate), 0.0);
    }

    #[test]
    fn rates_are_those_of_cpus() {
        for threads in [1, 2] {
            for bytes in [1, 100_000, 1 << 20] {
                let rate = bandwidth(bytes, threads);
                assert!((1e6..1e14).contains(&rate), "{rate}");
            }
            assert!((1e6..1e14).contains(&peak_of(threads)));
        }
    }
}
