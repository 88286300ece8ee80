//! Signals: SIGINT and SIGTERM ask the stream of records to stop, SIGUSR1 asks for its progress.
//!
//! The handler notes the signal and makes an eventfd readable. A wait for input also waits for that
//! eventfd. Interrupted system calls (EINTR) would not be enough: a signal between the look at the
//! note and the call would be lost, and the system may hand signals to any thread. So calls are
//! restarted (SA_RESTART), and no driver sees a failed call.
//!
//! A write to a full pipe is not interrupted: the answers belong to the reader. A second signal to
//! stop ends the program at once. A signal that comes together with the first does not count as
//! second: timeout(1) signals its child, then its group.

use libc::{SIG_DFL, SIG_IGN, SIGINT, SIGTERM, SIGUSR1, c_int};
use std::io;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering::SeqCst};

/// The last signal that asked the program to stop, or 0.
static STOP: AtomicI32 = AtomicI32::new(0);
/// The time of the first signal that asked the program to stop, in [`ticks`].
static SINCE: AtomicU32 = AtomicU32::new(0);
/// True if SIGUSR1 came and [`asked`] has not reported it yet.
static ASKED: AtomicBool = AtomicBool::new(false);
/// The eventfd that each signal makes readable. It is -1 before [`serve_questions`].
static WAKE: AtomicI32 = AtomicI32::new(-1);

const ALL: [c_int; 3] = [SIGUSR1, SIGINT, SIGTERM];
/// A bit for each signal of `ALL` that was not ignored when the program started. Bit `n` stands for
/// signal number `n`.
static HEARD: AtomicU32 = AtomicU32::new(0);
/// A bit for each signal for which [`keep`] installs the handler. Bit `n` stands for signal number
/// `n`.
static SERVED: AtomicU32 = AtomicU32::new(0);

/// Makes SIGUSR1 ask for the progress ([`asked`]). Turns a write beyond the file size limit
/// (SIGXFSZ) into an error, like a full disk. Must be called first, before anything that may
/// install handlers. Signals that were ignored when the program started (nohup, jobs in the
/// background) stay ignored.
pub(crate) fn serve_questions() -> io::Result<()> {
    // SAFETY: the calls take two numbers.
    let fd = unsafe {
        libc::signal(libc::SIGXFSZ, SIG_IGN);
        libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK)
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    WAKE.store(fd, SeqCst);
    let heard = ALL
        .into_iter()
        .filter(|&signal| !is_ignored(signal))
        .fold(0, |set, signal| set | 1 << signal);
    HEARD.store(heard, SeqCst);
    SERVED.store(heard & 1 << SIGUSR1, SeqCst);
    keep();
    Ok(())
}

/// Makes SIGINT and SIGTERM ask the program to stop ([`stop`]). Must be called after
/// [`serve_questions`].
pub(crate) fn serve_stops() {
    SERVED.store(HEARD.load(SeqCst), SeqCst);
    keep();
}

/// Installs the handler again. The compiler in many OpenCL drivers (LLVM in PoCL and Mesa) installs
/// its own handler when it first runs, which may be at a launch. The compiler's handler passes on
/// SIGINT and SIGTERM, but drops SIGUSR1.
pub(crate) fn keep() {
    let served = SERVED.load(SeqCst);
    ALL.into_iter()
        .filter(|signal| served & 1 << signal != 0)
        .for_each(handle);
}

/// Returns the last signal that asked the program to stop, or `None` if none came.
pub(crate) fn stop() -> Option<c_int> {
    Some(STOP.load(SeqCst)).filter(|&signal| signal != 0)
}

/// Returns true if SIGUSR1 came since the last call of this function.
pub(crate) fn asked() -> bool {
    ASKED.swap(false, SeqCst)
}

/// Ends the program by `signal`, so that its parent (a shell, systemd) sees that a signal stopped
/// it.
pub(crate) fn die(signal: c_int) -> ! {
    // SAFETY: the set is filled before it is used. All other arguments are numbers.
    unsafe {
        let mut set = MaybeUninit::uninit();
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), signal);
        libc::signal(signal, SIG_DFL);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, set.as_ptr(), null_mut());
        libc::raise(signal);
    }
    std::process::exit(128 + signal)
}

/// Returns the descriptor that becomes readable after a signal. Before [`serve_questions`] it is
/// -1, which poll(2) ignores.
pub(super) fn wake() -> c_int {
    WAKE.load(SeqCst)
}

/// Makes the descriptor of [`wake`] unreadable until the next signal. Must be called before
/// [`stop`] and [`asked`], so that no signal is missed.
pub(super) fn awake() {
    let mut count = 0u64;
    // SAFETY: the call writes no more than 8 bytes. It fails instead of waiting.
    unsafe { libc::read(wake(), (&raw mut count).cast(), size_of_val(&count)) };
}

fn is_ignored(signal: c_int) -> bool {
    // SAFETY: all-zero is a valid sigaction. The pointers are valid or null.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0
            && action.sa_sigaction == SIG_IGN
    }
}

fn handle(signal: c_int) {
    let handler: extern "C" fn(c_int) = note;
    // SAFETY: all-zero is a valid sigaction, with an empty mask. The handler makes only calls that
    // handlers may make. The call cannot fail for a valid signal.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as libc::sighandler_t;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(signal, &raw const action, null_mut());
    }
}

/// Returns the time in ticks of about 1/8 s. It reads a clock that a signal handler may read.
fn ticks() -> u32 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the call writes a timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    (now.tv_sec as u32) << 3 | (now.tv_nsec >> 27) as u32
}

/// Returns true if a signal at tick `now` counts as a second one. A signal at most one tick after
/// the first, which came at tick `since`, is its twin and does not count. A `since` of 0 means that
/// the handler of the first signal has not stored its tick yet.
fn second(now: u32, since: u32) -> bool {
    since != 0 && now.wrapping_sub(since) > 1
}

/// The handler, which may interrupt any code of any thread. It uses only atomics and calls that
/// signal-safety(7) allows.
extern "C" fn note(signal: c_int) {
    let now = ticks();
    // SAFETY: the location of errno is this thread's. The write reads 8 bytes. It fails without
    // harm if the eventfd's count is full.
    unsafe {
        let errno = *libc::__errno_location();
        if signal == SIGUSR1 {
            ASKED.store(true, SeqCst);
        } else if STOP.swap(signal, SeqCst) == 0 {
            SINCE.store(now, SeqCst);
        } else if second(now, SINCE.load(SeqCst)) {
            // The raised signal is blocked until this handler returns. It then ends the program.
            libc::signal(signal, SIG_DFL);
            libc::raise(signal);
        }
        let one = 1u64;
        libc::write(wake(), (&raw const one).cast(), size_of_val(&one));
        *libc::__errno_location() = errno;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twins_are_no_second_signal() {
        for (now, since, expected) in [(9, 0, false), (9, 9, false), (9, 8, false), (9, 7, true)] {
            assert_eq!(second(now, since), expected, "{now} {since}");
        }
        assert!(second(1, u32::MAX - 3), "ticks wrap around");
    }
}
