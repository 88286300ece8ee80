//! Readiness of file descriptors (poll(2)), and other system calls around files.

use super::signal;
use libc::{POLLIN, POLLOUT, c_int, c_short, nfds_t, poll, pollfd};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// A bit for each of the descriptors 0 (stdin) and 1 (stdout). It is set if the descriptor was
/// closed when the process began.
static CLOSED: AtomicU8 = AtomicU8::new(0);

/// Sets `CLOSED` before Rust's runtime starts. The runtime opens /dev/null for a closed descriptor.
/// Then input would be empty, and results would be lost without an error.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = {
    extern "C" fn look() {
        for fd in 0..2 {
            // SAFETY: the call takes two numbers.
            if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
                CLOSED.fetch_or(1 << fd, Relaxed);
            }
        }
    }
    look
};

/// Returns an error if descriptor `fd`, 0 or 1, was closed when the process began.
pub(crate) fn was_open(fd: u8) -> io::Result<()> {
    match CLOSED.load(Relaxed) & 1 << fd {
        0 => Ok(()),
        _ => Err(io::Error::from_raw_os_error(libc::EBADF)),
    }
}

/// Returns true if a read of `fd` would return at once, with data, the end or an error.
pub(crate) fn ready(fd: BorrowedFd<'_>) -> bool {
    poll_one(fd, POLLIN, 0)
}

/// Waits until a read of `fd` would return at once. Returns false if one of the program's signals
/// came first.
pub(crate) fn wait_readable(fd: BorrowedFd<'_>) -> bool {
    let entry = |fd| pollfd {
        fd,
        events: POLLIN,
        revents: 0,
    };
    let mut entries = [entry(fd.as_raw_fd()), entry(signal::wake())];
    poll_all(&mut entries, -1);
    let signalled = entries[1].revents != 0;
    if signalled {
        signal::awake();
    }
    !signalled
}

/// Waits until a write to `fd` would return at once.
pub(crate) fn wait_writable(fd: BorrowedFd<'_>) {
    poll_one(fd, POLLOUT, -1);
}

/// Returns true if one of `events`, a hang-up or an error comes within `timeout` ms (-1: no limit).
/// Also returns true if the poll fails, because the read or write that follows reports the error.
fn poll_one(fd: BorrowedFd<'_>, events: c_short, timeout: c_int) -> bool {
    poll_all(
        &mut [pollfd {
            fd: fd.as_raw_fd(),
            events,
            revents: 0,
        }],
        timeout,
    )
}

/// Waits up to `timeout` ms (-1: no limit) for an event on one of `entries`. Returns true if there
/// is one, or if the poll fails. A signal does not end the wait.
fn poll_all(entries: &mut [pollfd], timeout: c_int) -> bool {
    loop {
        // SAFETY: the entries are valid and live through the call.
        let n = unsafe { poll(entries.as_mut_ptr(), entries.len() as nfds_t, timeout) };
        if n >= 0 {
            return n > 0;
        }
        if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return true;
        }
    }
}

/// Makes the pipe `fd` larger, so that its two ends wait for each other less often. Has no effect
/// on other kinds of files, or if the system does not allow it.
pub(crate) fn widen_pipe(fd: BorrowedFd<'_>) {
    const BYTES: c_int = 1 << 20;
    // SAFETY: the call takes two numbers.
    unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETPIPE_SZ, BYTES) };
}

/// Returns the position of the first `byte` in `bytes`. The search is the C library's memchr, which
/// is vector code.
pub(crate) fn find(bytes: &[u8], byte: u8) -> Option<usize> {
    // SAFETY: the call reads only inside the slice. A result that is not null points into it.
    unsafe {
        let found = libc::memchr(bytes.as_ptr().cast(), byte.into(), bytes.len()).cast::<u8>();
        (!found.is_null()).then(|| found.offset_from(bytes.as_ptr()) as usize)
    }
}

/// Returns the number of cores that this process may use (sched_getaffinity), at least 1.
///
/// `std::thread::available_parallelism` is not used, because it also reads cgroup quotas, which
/// boards do not set.
pub(crate) fn cores() -> usize {
    // SAFETY: an all-zero set is valid. The call writes no more than its size.
    let count = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        match libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) {
            0 => libc::CPU_COUNT(&set),
            _ => 1,
        }
    };
    count.max(1) as usize
}

/// Locks a whole file without waiting: `alone`, or shared with other processes. Returns false if
/// another process has the lock. The lock belongs to the descriptor, so the system releases it when
/// the process dies.
pub(crate) fn lock(fd: &impl AsRawFd, alone: bool) -> io::Result<bool> {
    let kind = if alone { libc::LOCK_EX } else { libc::LOCK_SH };
    // SAFETY: the call takes two numbers.
    if unsafe { libc::flock(fd.as_raw_fd(), kind | libc::LOCK_NB) } == 0 {
        return Ok(true);
    }
    match io::Error::last_os_error() {
        e if e.kind() == io::ErrorKind::WouldBlock => Ok(false),
        e => Err(e),
    }
}

/// Returns the effective user ID of this process.
pub(crate) fn user() -> u32 {
    // SAFETY: the call takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_byte_is_found_where_it_stands_first() {
        let bytes = *b"\0a\xffb\xff\0";
        for (byte, place) in [(0, Some(0)), (b'a', Some(1)), (255, Some(2)), (b'c', None)] {
            assert_eq!(find(&bytes, byte), place);
        }
        assert_eq!((find(&bytes[1..5], 0), find(&[], 0)), (None, None));
    }

    #[test]
    fn a_stream_is_ready_with_data_and_at_its_end() {
        let (mut near, mut far) = UnixStream::pair().unwrap();
        assert!(!ready(near.as_fd()));
        far.write_all(b"x").unwrap();
        assert!(ready(near.as_fd()));
        assert!(wait_readable(near.as_fd()));
        near.read_exact(&mut [0]).unwrap();
        assert!(!ready(near.as_fd()));
        wait_writable(near.as_fd());
        drop(far);
        assert!(ready(near.as_fd()));
    }
}
