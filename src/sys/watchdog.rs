//! A watchdog over calls of a driver that may hang.
//!
//! One thread makes the calls of a run, one at a time, within [`call`]. The count of begun and
//! ended calls is odd during a call. The watchdog's thread reads the count at every tick. If the
//! count stays the same for too long, the call hangs. Then the thread that changes the count first
//! owns the run. It is the calling thread if the call returns, or else the watchdog. If it is the
//! watchdog, the calling thread waits for ever as soon as its call returns.
//!
//! Time is counted in ticks that the watchdog has slept, so a stopped process or a sleeping board
//! is not taken for a hanging driver. Between calls the watchdog sleeps without ticks.

use super::thread::{self, Serve, Thread};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// Odd while a call runs: its begin and its end add 1 each, and a sign of life adds 2. [`TAKEN`]
/// once the watchdog owns the run.
static CALLS: AtomicU64 = AtomicU64::new(0);
const TAKEN: u64 = u64::MAX;

/// The number of calls of [`beat`] so far.
static BEATS: AtomicU64 = AtomicU64::new(0);

/// The name of the work that the current call is part of, such as `build`. The last call of
/// [`beat`] has set it.
static WORK: Mutex<&str> = Mutex::new("");

/// The time limit of a driver's call in ms, from `--timeout`. 0 means no limit.
static LIMIT: AtomicU32 = AtomicU32::new(10_000);

/// True while the watchdog watches driver calls. False before [`watch`], after [`stop`], and always
/// without a limit.
static WATCHED: AtomicBool = AtomicBool::new(false);

/// True once driver calls belong to batches of the stream, not to start-up. The slowest of the
/// stream's calls sets the time that later calls may take.
static STREAM: AtomicBool = AtomicBool::new(false);

/// True if a batch at least as large as the current one was computed before. If it is false, the
/// driver may have to compile, so the call may take longer.
static WARM: AtomicBool = AtomicBool::new(false);

/// The number of the watchdog's thread, from [`thread::number`].
static TAKER: AtomicU32 = AtomicU32::new(0);

/// True if a thread of this process hangs in a driver.
static ABANDONED: AtomicBool = AtomicBool::new(false);

/// True while the watchdog sleeps until a driver call begins. [`BEGUN`] wakes it.
static ASLEEP: AtomicBool = AtomicBool::new(false);
static BEGUN: Condvar = Condvar::new();
static IDLE: Mutex<()> = Mutex::new(());

/// The number of ticks in the time limit of a driver's call.
const TICKS: u32 = 10;

/// A call at start, or for a batch larger than all before it, may take this many times the limit.
const FIRST: u32 = 6;

/// The names of work at start during which drivers compile (Mali's driver when a kernel is
/// created).
const COMPILING: [&str; 2] = ["build", "kernels"];
/// A driver call in [`COMPILING`] work may take this many times the limit. VC4CL needs 105 s for a
/// kernel.
const COMPILE: u32 = 20;

/// A call for a batch may take this many times as long as the slowest call for a batch so far. It
/// may always take the limit.
const SLOWER: u32 = 10;

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

/// Sets the time limit of a driver's call. Zero means no limit. Must be called before [`watch`].
pub(crate) fn set_limit(limit: Duration) {
    let ms = limit.as_millis().min(u32::MAX.into()) as u32;
    LIMIT.store(if limit.is_zero() { 0 } else { ms.max(TICKS) }, SeqCst);
}

/// Returns the length of a tick, a tenth of the limit. `None` if there is no limit.
pub(crate) fn tick() -> Option<Duration> {
    match LIMIT.load(SeqCst) {
        0 => None,
        ms => Some(Duration::from_millis((ms / TICKS).into())),
    }
}

/// Returns the number of ticks that a driver's call may take. `slowest` is the number of ticks that
/// the slowest earlier call took. `None` stands for a call during which the driver may still
/// compile.
pub(crate) fn allowed(slowest: Option<u32>) -> u32 {
    let first = || {
        if COMPILING.contains(&work()) {
            COMPILE
        } else {
            FIRST
        }
    };
    slowest.map_or_else(
        || first() * TICKS,
        |slowest| TICKS.max(SLOWER.saturating_mul(slowest)),
    )
}

/// Returns a message about a call that has not returned for `ticks` ticks.
pub(crate) fn silence(ticks: u32) -> String {
    let seconds = tick().unwrap_or_default().as_secs_f64() * f64::from(ticks);
    format!("no answer for {seconds:.1} s")
}

/// Runs `work`, which may hang in a driver. If the watchdog takes over the run meanwhile, this
/// function never returns.
pub(crate) fn call<T>(work: impl FnOnce() -> T) -> T {
    if !WATCHED.load(SeqCst) {
        return work();
    }
    begin();
    let result = work();
    end();
    result
}

/// Waits for ever if the watchdog owns the run and the calling thread is not the watchdog's.
fn check() {
    while CALLS.load(SeqCst) == TAKEN && thread::number() != TAKER.load(SeqCst) {
        // SAFETY: the call takes nothing.
        unsafe { libc::pause() };
    }
}

/// Runs `work`, which waits for something else than a driver. If a driver call is under way, the
/// time of `work` does not count as the call's time.
pub(crate) fn outside<T>(work: impl FnOnce() -> T) -> T {
    check();
    let count = CALLS.load(SeqCst);
    if count % 2 == 0 || count == TAKEN {
        return work();
    }
    end();
    let result = work();
    begin();
    result
}

fn begin() {
    CALLS.fetch_add(1, SeqCst);
    if ASLEEP.load(SeqCst) {
        drop(locked(&IDLE));
        BEGUN.notify_one();
    }
}

fn end() {
    loop {
        check();
        let count = CALLS.load(SeqCst);
        if count != TAKEN
            && CALLS
                .compare_exchange(count, count + 1, SeqCst, SeqCst)
                .is_ok()
        {
            return;
        }
    }
}

/// Gives a sign of life from the current driver call, whose next part is `work`. If the watchdog
/// owns the run, this returns only on the watchdog's thread.
pub(crate) fn beat(work: &'static str) {
    check();
    *locked(&WORK) = work;
    BEATS.fetch_add(1, SeqCst);
    alive();
}

/// Gives a sign of life from the current driver call, which waits for another thread of this
/// program.
pub(crate) fn alive() {
    let _ = CALLS.fetch_update(SeqCst, SeqCst, |n| {
        (n % 2 == 1 && n != TAKEN).then(|| n + 2)
    });
}

/// Returns the number of calls of [`beat`] so far.
pub(crate) fn beats() -> u64 {
    BEATS.load(SeqCst)
}

/// Returns the name of the work that the current call is part of.
pub(crate) fn work() -> &'static str {
    *locked(&WORK)
}

/// Marks the following calls as driver calls for one batch of the stream. `warm` is true if a batch
/// at least as large was computed before.
pub(crate) fn batch(warm: bool) {
    STREAM.store(true, SeqCst);
    WARM.store(warm, SeqCst);
}

/// Stops watching, because the rest of the program calls no driver.
pub(crate) fn stop() {
    WATCHED.store(false, SeqCst);
}

/// Notes that a thread of this process hangs in a driver, so that [`exit`] must end the process.
pub(crate) fn abandon() {
    ABANDONED.store(true, SeqCst);
}

/// Ends the process at once if one of its threads hangs in a driver. A normal end would run the
/// driver's exit handlers, which wait for the hanging thread.
pub(crate) fn exit(code: u8) {
    if ABANDONED.load(SeqCst) {
        // SAFETY: the call takes a number and ends the process.
        unsafe { libc::_exit(code.into()) }
    }
}

/// A function that finishes a run whose driver call hangs. It takes the number of ticks that the
/// call has lasted, and returns the exit code.
type OnHang = Box<dyn Fn(u32) -> u8 + Send + Sync>;

struct Watchdog {
    on_hang: OnHang,
}

/// Starts the watchdog. If a driver call hangs, `hung` runs on the watchdog's thread and finishes
/// the run. Then the process ends, even if other threads still run.
pub(crate) fn watch(hung: impl Fn(u32) -> u8 + Send + Sync + 'static) -> io::Result<()> {
    let Some(_) = tick() else { return Ok(()) };
    let on_hang = Box::new(hung);
    Thread::start(Arc::new(Watchdog { on_hang }))?;
    WATCHED.store(true, SeqCst);
    Ok(())
}

impl Serve for Watchdog {
    fn serve(&self) {
        let Some(tick) = tick() else { return };
        let mut slowest = 0;
        loop {
            let count = begun();
            let (mut ticks, stream) = (0, STREAM.load(SeqCst));
            while CALLS.load(SeqCst) == count {
                std::thread::sleep(tick);
                ticks += 1;
                let most = allowed(WARM.load(SeqCst).then_some(slowest));
                TAKER.store(thread::number(), SeqCst);
                if ticks >= most && CALLS.compare_exchange(count, TAKEN, SeqCst, SeqCst).is_ok() {
                    stop();
                    abandon();
                    exit((self.on_hang)(ticks));
                }
            }
            if stream {
                slowest = slowest.max(whole(ticks));
            }
        }
    }
}

/// Returns the number of whole ticks that a driver's call lasted. `ticks` is the number of ticks
/// that began during the call. The last one may not have been whole. A call that ended before the
/// watchdog looked has none.
fn whole(ticks: u32) -> u32 {
    ticks.saturating_sub(1)
}

/// Waits until a driver call is under way. Returns the value of [`CALLS`], which is then odd.
fn begun() -> u64 {
    let mut idle = locked(&IDLE);
    loop {
        ASLEEP.store(true, SeqCst);
        let count = CALLS.load(SeqCst);
        if count % 2 == 1 {
            ASLEEP.store(false, SeqCst);
            return count;
        }
        idle = BEGUN.wait(idle).unwrap_or_else(|e| e.into_inner());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A call that ends before the watchdog's first tick counts as 0 ticks. If it counted as a huge
    /// number, later calls would have no limit.
    #[test]
    fn a_call_without_a_tick_lasts_no_time() {
        let slowest = [0, 1, 4].map(whole).into_iter().max();
        assert_eq!(slowest, Some(3));
        assert_eq!(allowed(Some(whole(0))), TICKS);
    }
}
