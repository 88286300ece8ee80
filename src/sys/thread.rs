//! Threads that do not allocate when they begin to run, and a number for each thread.

use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
#[cfg(feature = "lab")]
use std::time::Duration;

/// Returns the number of the calling thread. Threads are numbered from 1, in the order of their
/// first calls of this function.
pub(crate) fn number() -> u32 {
    static LAST: AtomicU32 = AtomicU32::new(0);
    thread_local!(static NUMBER: Cell<u32> = const { Cell::new(0) });
    NUMBER.with(|number| {
        if number.get() == 0 {
            number.set(LAST.fetch_add(1, Relaxed) + 1);
        }
        number.get()
    })
}

/// Returns the CPU time that all threads of the process have used so far.
#[cfg(feature = "lab")]
pub(crate) fn cpu_time() -> Duration {
    time_of(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// Returns the CPU time that the calling thread has used so far.
#[cfg(feature = "lab")]
pub(crate) fn own_cpu_time() -> Duration {
    time_of(libc::CLOCK_THREAD_CPUTIME_ID)
}

#[cfg(feature = "lab")]
fn time_of(clock: libc::clockid_t) -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the call writes a timespec.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The work of a [`Thread`].
pub(crate) trait Serve: Send + Sync + 'static {
    /// Runs on the thread. The thread ends when this returns.
    fn serve(&self);
}

/// A thread of pthread_create(3). A thread of the standard library allocates when it begins to run,
/// milliseconds after its start. By then a stream that must not allocate may be running.
pub(crate) struct Thread {
    id: libc::pthread_t,
}

impl Thread {
    /// Starts a thread that runs `work.serve()`.
    pub(crate) fn start<T: Serve>(work: Arc<T>) -> io::Result<Thread> {
        extern "C" fn run<T: Serve>(work: *mut libc::c_void) -> *mut libc::c_void {
            // SAFETY: `start` passes the ownership of an `Arc<T>` to this thread.
            unsafe { Arc::from_raw(work.cast_const().cast::<T>()) }.serve();
            std::ptr::null_mut()
        }
        let work = Arc::into_raw(work);
        let mut thread = std::mem::MaybeUninit::uninit();
        // SAFETY: the place for the thread's id is valid. Null attributes are the defaults. `run`
        // takes the pointer that is passed.
        let error = unsafe {
            libc::pthread_create(
                thread.as_mut_ptr(),
                std::ptr::null(),
                run::<T>,
                work.cast_mut().cast(),
            )
        };
        if error != 0 {
            // SAFETY: no thread was started, so the `Arc` is still owned here.
            drop(unsafe { Arc::from_raw(work) });
            return Err(io::Error::from_raw_os_error(error));
        }
        // SAFETY: pthread_create has succeeded.
        let id = unsafe { thread.assume_init() };
        Ok(Thread { id })
    }

    /// Waits for the end of the thread.
    pub(crate) fn join(self) {
        // SAFETY: joined once, since `self` is consumed, and never detached.
        unsafe { libc::pthread_join(self.id, std::ptr::null_mut()) };
    }
}
