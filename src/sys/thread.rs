//! Threads that cost nothing but the system call.

use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
#[cfg(feature = "lab")]
use std::time::Duration;

/// The number of the calling thread: 1 for the first thread that asks.
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

/// CPU time that the threads of the process have taken.
#[cfg(feature = "lab")]
pub(crate) fn cpu_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the call writes a timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// What a thread runs.
pub(crate) trait Serve: Send + Sync + 'static {
    /// The thread's life.
    fn serve(&self);
}

/// A thread, started with pthread_create(3). The standard library's threads allocate when they come
/// to life, in whatever the starter has reached by then; waiting for it takes milliseconds on an
/// idle core.
pub(crate) struct Thread(libc::pthread_t);

impl Thread {
    /// Starts a thread that runs `serve`.
    pub(crate) fn start<T: Serve>(work: Arc<T>) -> io::Result<Thread> {
        extern "C" fn run<T: Serve>(work: *mut libc::c_void) -> *mut libc::c_void {
            // SAFETY: `start` gave this thread a count of an `Arc<T>`.
            unsafe { Arc::from_raw(work.cast_const().cast::<T>()) }.serve();
            std::ptr::null_mut()
        }
        let work = Arc::into_raw(work);
        let mut thread = std::mem::MaybeUninit::uninit();
        // SAFETY: the place for the thread is valid, no attributes are the defaults, `run` takes
        // what it is given.
        let error = unsafe {
            libc::pthread_create(
                thread.as_mut_ptr(),
                std::ptr::null(),
                run::<T>,
                work.cast_mut().cast(),
            )
        };
        if error != 0 {
            // SAFETY: no thread has it.
            drop(unsafe { Arc::from_raw(work) });
            return Err(io::Error::from_raw_os_error(error));
        }
        // SAFETY: pthread_create has succeeded.
        Ok(Thread(unsafe { thread.assume_init() }))
    }

    /// Waits for its end.
    pub(crate) fn join(self) {
        // SAFETY: joined once, as `self` is gone; never detached.
        unsafe { libc::pthread_join(self.0, std::ptr::null_mut()) };
    }
}
