//! SIGINT and SIGTERM as a wish to stop, SIGUSR1 as a question, for the stream of records.
//!
//! The handler notes the signal and makes an eventfd readable; whoever waits for input waits for
//! that as well. An interrupted system call (EINTR) would not do: a signal between the look at the
//! note and the call is lost, and the system hands signals to any thread. So calls are restarted
//! (SA_RESTART): no driver sees a failure because of this.
//!
//! A write to a full pipe is waited for, since what it holds belongs to its reader. The second
//! signal to stop does what the first usually does, at once and in any place. One that comes with
//! the first is no second wish: timeout(1) signals its child, then its group.

use libc::{SIG_DFL, SIG_IGN, SIGINT, SIGTERM, SIGUSR1, c_int};
use std::io;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering::SeqCst};

/// The signal that wants the program to stop, or 0.
static STOP: AtomicI32 = AtomicI32::new(0);
/// When it came, in [`ticks`].
static SINCE: AtomicU32 = AtomicU32::new(0);
/// Whether somebody wants to know how far it is.
static ASKED: AtomicBool = AtomicBool::new(false);
/// The eventfd, once there is one.
static WAKE: AtomicI32 = AtomicI32::new(-1);

const ALL: [c_int; 3] = [SIGUSR1, SIGINT, SIGTERM];
/// Those of `ALL` that the program was not told to ignore, a bit each.
static HEARD: AtomicU32 = AtomicU32::new(0);
/// Those that have the handler.
static SERVED: AtomicU32 = AtomicU32::new(0);

/// From now on SIGUSR1 is a question: see [`asked`], and a file that may grow no further (SIGXFSZ)
/// is an error of the write, as a full disk is. To be called first, and before anything is started
/// that may have handlers of its own. What whoever started the program had it ignore (nohup, jobs
/// in the background) stays ignored.
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

/// From now on SIGINT and SIGTERM ask for an end: see [`stop`]. After [`serve_questions`].
pub(crate) fn serve_stops() {
    SERVED.store(HEARD.load(SeqCst), SeqCst);
    keep();
}

/// Installs the handler again: the compiler in many OpenCL drivers (LLVM in PoCL and Mesa) puts its
/// own in place when it first runs, which may be at a launch. It hands signals to stop on, and
/// drops questions.
pub(crate) fn keep() {
    let served = SERVED.load(SeqCst);
    ALL.into_iter()
        .filter(|signal| served & 1 << signal != 0)
        .for_each(handle);
}

/// The first signal that asked for an end, if there was one.
pub(crate) fn stop() -> Option<c_int> {
    Some(STOP.load(SeqCst)).filter(|&signal| signal != 0)
}

/// Whether somebody has asked since the last call.
pub(crate) fn asked() -> bool {
    ASKED.swap(false, SeqCst)
}

/// Ends the program by `signal`: whoever waits for it (a shell, systemd) learns that it was
/// stopped.
pub(crate) fn die(signal: c_int) -> ! {
    // SAFETY: the set is filled before it is used; the calls take numbers otherwise.
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

/// What to wait for besides input: a descriptor that poll(2) finds readable after a signal, -1
/// before [`serve_questions`] (poll leaves that out).
pub(super) fn wake() -> c_int {
    WAKE.load(SeqCst)
}

/// Makes `wake` wait for the next signal. What [`stop`] and [`asked`] say afterwards covers all
/// before.
pub(super) fn awake() {
    let mut count = 0u64;
    // SAFETY: the call writes no more than 8 bytes. It does not wait: where there is nothing to
    // read it fails.
    unsafe { libc::read(wake(), (&raw mut count).cast(), size_of_val(&count)) };
}

fn is_ignored(signal: c_int) -> bool {
    // SAFETY: all-zero is a valid sigaction; the pointers are valid or null.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0
            && action.sa_sigaction == SIG_IGN
    }
}

fn handle(signal: c_int) {
    let handler: extern "C" fn(c_int) = note;
    // SAFETY: as above, with an empty mask; the handler does what a handler may. The call fails for
    // no valid signal.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as libc::sighandler_t;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(signal, &raw const action, null_mut());
    }
}

/// A clock that a handler may read, and that no driver changes: tenths of a second, or a little
/// more.
fn ticks() -> u32 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the call writes a timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    (now.tv_sec as u32) << 3 | (now.tv_nsec >> 27) as u32
}

/// The handler: on any thread, in the middle of anything. Atomics and calls that signal-safety(7)
/// allows, no more.
extern "C" fn note(signal: c_int) {
    let now = ticks();
    // SAFETY: the location is this thread's; write reads 8 bytes, and fails without harm where the
    // count is full.
    unsafe {
        let errno = *libc::__errno_location();
        if signal == SIGUSR1 {
            ASKED.store(true, SeqCst);
        } else if STOP.swap(signal, SeqCst) == 0 {
            SINCE.store(now, SeqCst);
        } else if now.wrapping_sub(SINCE.load(SeqCst)) > 1 {
            // Takes effect when the handler returns.
            libc::signal(signal, SIG_DFL);
            libc::raise(signal);
        }
        let one = 1u64;
        libc::write(wake(), (&raw const one).cast(), size_of_val(&one));
        *libc::__errno_location() = errno;
    }
}
