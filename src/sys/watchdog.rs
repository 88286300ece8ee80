//! A watchdog over calls of a driver that may not come back.
//!
//! One thread makes the calls of a run, one call at a time, within [`call`]. They are counted where
//! they begin and end, so that the count is odd while one is on its way. The watchdog's thread
//! looks at the count once a tick: a call during which it stays the same for too long hangs.
//! Whoever changes the count then has the run: the thread that came back, or the watchdog, and a
//! thread that comes back later waits for ever. Time is counted in ticks that the watchdog has
//! waited: a process that is stopped, or a board that sleeps, is not taken for a driver that hangs.
//! While no call is on its way the watchdog sleeps.

use super::thread::{self, Serve, Thread};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// Calls begun and ended; [`TAKEN`] once the watchdog has the run.
static CALLS: AtomicU64 = AtomicU64::new(0);
const TAKEN: u64 = u64::MAX;

/// Signs of life at start.
static BEATS: AtomicU64 = AtomicU64::new(0);

/// What the call on its way is part of.
static WORK: Mutex<&str> = Mutex::new("");

/// The limit in ms; 0: none.
static LIMIT: AtomicU32 = AtomicU32::new(10_000);

/// Whether calls are watched.
static WATCHED: AtomicBool = AtomicBool::new(false);

/// Whether calls have to do with batches: the slowest of them counts.
static STREAM: AtomicBool = AtomicBool::new(false);

/// Whether a batch as large as the one at hand was computed: until then drivers compile, and have
/// more time.
static WARM: AtomicBool = AtomicBool::new(false);

/// The number of the watchdog's thread, once that has the run.
static TAKER: AtomicU32 = AtomicU32::new(0);

/// Whether a thread of this process hangs in a driver.
static ABANDONED: AtomicBool = AtomicBool::new(false);

/// Whether the watchdog sleeps until a call begins.
static IDLE: Mutex<()> = Mutex::new(());
static ASLEEP: AtomicBool = AtomicBool::new(false);
static BEGUN: Condvar = Condvar::new();

/// Ticks of the limit.
const TICKS: u32 = 10;

/// How many times the limit a call at start may take, and one of a batch that is larger than all
/// before it.
const FIRST: u32 = 6;

/// Work at start during which drivers compile (Mali's when a kernel is created), and how many times
/// the limit a call of it may take: VC4CL needs 105 s for a kernel.
const COMPILING: [&str; 2] = ["build", "kernels"];
const COMPILE: u32 = 20;

/// How many times as long as the slowest call so far another may take.
const SLOWER: u32 = 10;

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

/// Sets the limit of a call; zero: none. To be called before anything is watched.
pub(crate) fn set_limit(limit: Duration) {
    let ms = limit.as_millis().min(u32::MAX.into()) as u32;
    LIMIT.store(if limit.is_zero() { 0 } else { ms.max(TICKS) }, SeqCst);
}

/// A tick; `None`: nothing is watched.
pub(crate) fn tick() -> Option<Duration> {
    match LIMIT.load(SeqCst) {
        0 => None,
        ms => Some(Duration::from_millis((ms / TICKS).into())),
    }
}

/// Ticks that a call may take where the slowest before it took `slowest`, `None` being none.
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

/// For how long, in words, something did not answer that took so many ticks.
pub(crate) fn silence(ticks: u32) -> String {
    let seconds = tick().unwrap_or_default().as_secs_f64() * f64::from(ticks);
    format!("no answer for {seconds:.1} s")
}

/// Runs what may not come back. Where the watchdog has the run by then, this does not come back
/// either.
pub(crate) fn call<T>(work: impl FnOnce() -> T) -> T {
    if !WATCHED.load(SeqCst) {
        return work();
    }
    begin();
    let result = work();
    end();
    result
}

/// Waits for ever where the watchdog has the run and this is another thread: nobody needs what it
/// would do.
fn check() {
    while CALLS.load(SeqCst) == TAKEN && thread::number() != TAKER.load(SeqCst) {
        // SAFETY: the call takes nothing.
        unsafe { libc::pause() };
    }
}

/// Runs what waits for others than drivers: within a call it is no part of it.
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

/// The call has come back.
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

/// A sign of life from a call on its way, which goes on with `work`; a thread that has lost the run
/// goes no further.
pub(crate) fn beat(work: &'static str) {
    check();
    *locked(&WORK) = work;
    BEATS.fetch_add(1, SeqCst);
    alive();
}

/// A sign of life from a call on its way that waits for another thread.
pub(crate) fn alive() {
    let _ = CALLS.fetch_update(SeqCst, SeqCst, |n| {
        (n % 2 == 1 && n != TAKEN).then(|| n + 2)
    });
}

/// Signs of life so far: [`beat`].
pub(crate) fn beats() -> u64 {
    BEATS.load(SeqCst)
}

/// What the call on its way is part of.
pub(crate) fn work() -> &'static str {
    *locked(&WORK)
}

/// From now on calls have to do with batches; `warm`: with one that is no larger than those that
/// were computed.
pub(crate) fn batch(warm: bool) {
    STREAM.store(true, SeqCst);
    WARM.store(warm, SeqCst);
}

/// From now on no call is watched: no driver has to do with what is left.
pub(crate) fn stop() {
    WATCHED.store(false, SeqCst);
}

/// From now on a thread of this process hangs in a driver: [`exit`] must end it.
pub(crate) fn abandon() {
    ABANDONED.store(true, SeqCst);
}

/// Ends the process at once where a thread of it hangs in a driver: the driver's own end would wait
/// for it.
pub(crate) fn exit(code: u8) {
    if ABANDONED.load(SeqCst) {
        // SAFETY: ends the process; what was written is written.
        unsafe { libc::_exit(code.into()) }
    }
}

/// What ends a run whose call hangs: it is told for how many ticks, and gives the exit code.
type Hung = Box<dyn Fn(u32) -> u8 + Send + Sync>;

struct Watchdog(Hung);

/// Watches the calls from now on. Where one hangs `hung` runs on the watchdog's thread and does
/// what is left of the run; then the process ends, whatever its other threads do.
pub(crate) fn watch(hung: impl Fn(u32) -> u8 + Send + Sync + 'static) -> io::Result<()> {
    let Some(_) = tick() else { return Ok(()) };
    Thread::start(Arc::new(Watchdog(Box::new(hung))))?;
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
                    exit((self.0)(ticks));
                }
            }
            if stream {
                // The last tick was not a whole one.
                slowest = slowest.max(ticks - 1);
            }
        }
    }
}

/// Waits until a call is on its way; its count.
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
