//! Contexts, queues and events.

use std::fmt;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use opencl_sys::*;

use super::device::Device;
use super::error::{ClError, check, made};
use super::loader::{Api, Handle, info_fixed};
use super::program::BoundKernel;

/// An OpenCL context with one device. A clone stands for the same context.
#[derive(Clone)]
pub(crate) struct Context {
    inner: Arc<ContextInner>,
}

struct ContextInner {
    device: Device,
    raw: Handle,
}

impl Context {
    pub(crate) fn new(device: &Device) -> Result<Context, ClError> {
        let properties = [CL_CONTEXT_PLATFORM, device.platform.pointer as isize, 0];
        let mut code = CL_SUCCESS;
        // SAFETY: the properties end with 0, one device is passed and there is no callback.
        let raw = unsafe {
            (device.library.api.clCreateContext)(
                properties.as_ptr(),
                1,
                &device.raw.pointer,
                None,
                ptr::null_mut(),
                &mut code,
            )
        };
        made(raw, code, "clCreateContext", &device.name)?;
        let inner = Arc::new(ContextInner {
            device: device.clone(),
            raw: Handle { pointer: raw },
        });
        Ok(Context { inner })
    }

    pub(crate) fn device(&self) -> &Device {
        &self.inner.device
    }

    pub(super) fn api(&self) -> &'static Api {
        &self.inner.device.library.api
    }

    pub(super) fn raw(&self) -> cl_context {
        self.inner.raw.pointer
    }

    pub(super) fn same(&self, other: &Context) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl Drop for ContextInner {
    fn drop(&mut self) {
        // SAFETY: created by clCreateContext, released once.
        unsafe { (self.device.library.api.clReleaseContext)(self.raw.pointer) };
    }
}

/// An in-order OpenCL command queue. A clone stands for the same queue. Each buffer and image
/// belongs to the queue that it was made on.
#[derive(Clone)]
pub(crate) struct Queue {
    inner: Arc<QueueInner>,
}

struct QueueInner {
    context: Context,
    raw: Handle,
    /// Guards the mapping states of the queue's memory. A thread holds it from reading a state
    /// until the command that depends on that state is enqueued.
    maps: Mutex<()>,
}

impl Queue {
    /// Makes a queue. With `profiling` the events of the queue's commands have times.
    pub(crate) fn new(context: &Context, profiling: bool) -> Result<Queue, ClError> {
        let properties = if profiling {
            CL_QUEUE_PROFILING_ENABLE
        } else {
            0
        };
        let mut code = CL_SUCCESS;
        // SAFETY: the context and its device are alive.
        let raw = unsafe {
            (context.api().clCreateCommandQueue)(
                context.raw(),
                context.device().raw.pointer,
                properties,
                &mut code,
            )
        };
        made(raw, code, "clCreateCommandQueue", &context.device().name)?;
        let inner = Arc::new(QueueInner {
            context: context.clone(),
            raw: Handle { pointer: raw },
            maps: Mutex::new(()),
        });
        Ok(Queue { inner })
    }

    pub(crate) fn context(&self) -> &Context {
        &self.inner.context
    }

    pub(crate) fn device(&self) -> &Device {
        self.inner.context.device()
    }

    /// Enqueues `kernel` over `global` work-items in work-groups of `local` (`None`: the driver
    /// chooses). `event` can be waited for and timed. Does not allocate.
    ///
    /// Refuses the kernel if a buffer or image among its arguments is mapped for the host, or
    /// belongs to another queue.
    pub(crate) fn launch(
        &self,
        kernel: &BoundKernel,
        global: &[usize],
        local: Option<&[usize]>,
        event: Option<&mut Event>,
    ) -> Result<(), ClError> {
        check_sizes(kernel, global, local)?;
        if !kernel.context().same(self.context()) {
            let why = "the kernel belongs to another context".into();
            return Err(refused(kernel, CL_INVALID_CONTEXT, why));
        }
        let mut raw = ptr::null_mut();
        let wanted = wanted(event.is_some(), &mut raw);
        let lock = self.lock_maps();
        self.check_memory(kernel, &lock)?;
        // SAFETY: queue and kernel are alive and of one context. Both size arrays have
        // `global.len()` entries. The kernel keeps the memory of its arguments alive, and the
        // driver keeps what an enqueued command uses. None of that memory is mapped, and the queue
        // orders later maps behind this command, so no reference into it exists while the kernel
        // runs. Kernels stay within their arguments by contract (module text).
        let code = unsafe {
            (self.api().clEnqueueNDRangeKernel)(
                self.raw(),
                kernel.raw(),
                global.len() as u32,
                ptr::null(),
                global.as_ptr(),
                local.map_or(ptr::null(), <[usize]>::as_ptr),
                0,
                ptr::null(),
                wanted,
            )
        };
        drop(lock);
        check(code, LAUNCH, kernel.name()).map_err(|e| match e.code {
            CL_INVALID_WORK_GROUP_SIZE | CL_INVALID_WORK_ITEM_SIZE | CL_OUT_OF_RESOURCES => {
                let groups = local.map_or("the driver's size".into(), |local| format!("{local:?}"));
                e.detail(format!("global {global:?}, work-groups of {groups}"))
            }
            _ => e,
        })?;
        if let Some(event) = event {
            event.hold(self, raw, LAUNCH);
        }
        Ok(())
    }

    /// Refuses a kernel whose memory belongs to another queue or is mapped for the host.
    fn check_memory(&self, kernel: &BoundKernel, lock: &MapLock<'_>) -> Result<(), ClError> {
        for (index, memory) in kernel.memory() {
            let argument = || format!("argument {index} ({})", memory.name());
            if !memory.queue().same(self) {
                let why = argument() + " belongs to another queue";
                return Err(refused(kernel, CL_INVALID_COMMAND_QUEUE, why));
            }
            if memory.is_mapped(lock) {
                let why = argument() + " is mapped for the host";
                return Err(refused(kernel, CL_INVALID_OPERATION, why));
            }
        }
        Ok(())
    }

    /// Submits all enqueued commands to the device.
    pub(crate) fn flush(&self) -> Result<(), ClError> {
        // SAFETY: the queue is alive.
        check(unsafe { (self.api().clFlush)(self.raw()) }, "clFlush", "")
    }

    /// Waits until all enqueued commands are done.
    pub(crate) fn finish(&self) -> Result<(), ClError> {
        // SAFETY: the queue is alive.
        check(unsafe { (self.api().clFinish)(self.raw()) }, "clFinish", "")
    }

    pub(super) fn api(&self) -> &'static Api {
        self.inner.context.api()
    }

    pub(super) fn raw(&self) -> cl_command_queue {
        self.inner.raw.pointer
    }

    pub(super) fn same(&self, other: &Queue) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Locks the mapping states of the queue's memory. The caller holds the lock until it has
    /// enqueued the command that depends on these states.
    pub(super) fn lock_maps(&self) -> MapLock<'_> {
        MapLock {
            _guard: self
                .inner
                .maps
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        }
    }
}

const LAUNCH: &str = "clEnqueueNDRangeKernel";

fn refused(kernel: &BoundKernel, code: i32, why: String) -> ClError {
    ClError::new(LAUNCH, code, kernel.name()).detail(why)
}

/// Refuses a number of dimensions that OpenCL does not have, and work-group sizes that do not
/// divide the numbers of work-items.
fn check_sizes(
    kernel: &BoundKernel,
    global: &[usize],
    local: Option<&[usize]>,
) -> Result<(), ClError> {
    if global.is_empty() || global.len() > 3 {
        let why = format!("expected 1 to 3 dimensions, found {}", global.len());
        return Err(refused(kernel, CL_INVALID_WORK_DIMENSION, why));
    }
    let divides = |(&l, &g): (&usize, &usize)| l != 0 && g % l == 0;
    match local {
        Some(local) if local.len() != global.len() || !local.iter().zip(global).all(divides) => {
            let why = format!("work-groups of {local:?} do not divide {global:?} work-items");
            Err(refused(kernel, CL_INVALID_WORK_GROUP_SIZE, why))
        }
        _ => Ok(()),
    }
}

/// Holds the lock on the mapping states of a queue's memory. Its owner may read and change them.
pub(super) struct MapLock<'a> {
    _guard: MutexGuard<'a, ()>,
}

impl Drop for QueueInner {
    fn drop(&mut self) {
        let api = self.context.api();
        // SAFETY: created by clCreateCommandQueue, released once. clFinish waits for the driver's
        // threads, which must not be at work when the process ends.
        unsafe {
            (api.clFinish)(self.raw.pointer);
            (api.clReleaseCommandQueue)(self.raw.pointer);
        }
    }
}

/// The times of one command in nanoseconds, on the device's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Times {
    /// When the host enqueued the command.
    pub(crate) queued: u64,
    /// When the driver submitted the command to the device.
    pub(crate) submit: u64,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// Holds the event of one command, or none. An event is released once: when the event of another
/// command replaces it, by [`Event::release`], or by drop.
#[derive(Default)]
pub(crate) struct Event {
    held: Option<HeldEvent>,
}

struct HeldEvent {
    queue: Queue,
    raw: Handle,
    /// The name of the OpenCL call that enqueued the command.
    command: &'static str,
}

impl Drop for HeldEvent {
    fn drop(&mut self) {
        release_event(&self.queue, self.raw.pointer);
    }
}

impl Event {
    pub(crate) fn new() -> Event {
        Event { held: None }
    }

    /// Returns true if the event of a command is held.
    pub(crate) fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// Waits until the command is done. Returns the command's error if it failed.
    pub(crate) fn wait(&self) -> Result<(), ClError> {
        let held = self.held("clWaitForEvents")?;
        wait_event(&held.queue, held.raw.pointer, held.command, "")
    }

    /// Returns an error that names `object` if the command failed. The caller has waited for a
    /// later command of the queue, which succeeds even if an earlier kernel failed. If the driver
    /// reports that the command has not ended, this waits. Does not allocate.
    pub(crate) fn ended(&self, object: &str) -> Result<(), ClError> {
        let held = self.held("clGetEventInfo")?;
        match event_status(&held.queue, held.raw.pointer)? {
            CL_COMPLETE => Ok(()),
            status @ ..0 => Err(ClError::new(held.command, status, object)),
            _ => wait_event(&held.queue, held.raw.pointer, held.command, object),
        }
    }

    /// Returns an error if the driver already reports that the command failed. Does not wait.
    /// Without an event there is no error.
    pub(crate) fn failed(&self, object: &str) -> Result<(), ClError> {
        let Some(held) = &self.held else {
            return Ok(());
        };
        match event_status(&held.queue, held.raw.pointer) {
            Ok(status @ ..0) => Err(ClError::new(held.command, status, object)),
            _ => Ok(()),
        }
    }

    /// Returns the times of the completed command. Needs a profiling queue.
    pub(crate) fn times(&self) -> Result<Times, ClError> {
        let held = self.held("clGetEventProfilingInfo")?;
        event_times(&held.queue, held.raw.pointer)
    }

    /// Releases the event, if there is one.
    pub(crate) fn release(&mut self) {
        self.held = None;
    }

    pub(super) fn hold(&mut self, queue: &Queue, raw: cl_event, command: &'static str) {
        self.held = Some(HeldEvent {
            queue: queue.clone(),
            raw: Handle { pointer: raw },
            command,
        });
    }

    fn held(&self, call: &'static str) -> Result<&HeldEvent, ClError> {
        self.held.as_ref().ok_or_else(|| {
            ClError::new(call, CL_INVALID_EVENT, "").detail("this event belongs to no command")
        })
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.held.is_some() {
            "Event(held)"
        } else {
            "Event(empty)"
        })
    }
}

/// Returns the pointer that a clEnqueue… call takes to store its event: `place`, or null if `event`
/// is false because the caller wants no event.
pub(super) fn wanted(event: bool, place: &mut cl_event) -> *mut cl_event {
    if event { place } else { ptr::null_mut() }
}

/// Waits for an event and checks how its command ended. Some drivers report no error when they wait
/// for a command that failed. The returned error has the command's own code, if there is one.
pub(super) fn wait_event(
    queue: &Queue,
    event: cl_event,
    command: &'static str,
    object: &str,
) -> Result<(), ClError> {
    // SAFETY: one event, alive.
    let code = unsafe { (queue.api().clWaitForEvents)(1, &event) };
    let waited = check(code, "clWaitForEvents", object);
    match event_status(queue, event) {
        Ok(status @ ..0) => Err(ClError::new(command, status, object)),
        // A positive status means that the command is not done. But the wait is over, so the driver
        // has only not updated the status.
        Ok(_) => waited,
        Err(unknown) => waited.and(Err(unknown)),
    }
}

/// Returns the status of an event's command: from CL_QUEUED to CL_COMPLETE, or the negative code of
/// its error.
fn event_status(queue: &Queue, event: cl_event) -> Result<i32, ClError> {
    const CALL: &str = "clGetEventInfo";
    let (what, mut status) = (CL_EVENT_COMMAND_EXECUTION_STATUS, i32::MAX);
    // SAFETY: the event is alive; the status has room for its own size.
    let code = unsafe {
        (queue.api().clGetEventInfo)(
            event,
            what,
            size_of::<i32>(),
            (&raw mut status).cast(),
            ptr::null_mut(),
        )
    };
    check(code, CALL, "")?;
    match status {
        ..=CL_QUEUED => Ok(status),
        _ => Err(ClError::new(CALL, code, "")
            .detail(format!("the driver reports the unknown status {status}"))),
    }
}

pub(super) fn event_times(queue: &Queue, event: cl_event) -> Result<Times, ClError> {
    let time = |what| {
        info_fixed("clGetEventProfilingInfo", "", &|size, value, needed| {
            // SAFETY: the event is alive; `value` has room for `size` bytes.
            unsafe { (queue.api().clGetEventProfilingInfo)(event, what, size, value, needed) }
        })
        .map(u64::from_ne_bytes)
    };
    Ok(Times {
        queued: time(CL_PROFILING_COMMAND_QUEUED)?,
        submit: time(CL_PROFILING_COMMAND_SUBMIT)?,
        start: time(CL_PROFILING_COMMAND_START)?,
        end: time(CL_PROFILING_COMMAND_END)?,
    })
}

pub(super) fn release_event(queue: &Queue, event: cl_event) {
    // SAFETY: the callers own the event and forget it after this.
    unsafe { (queue.api().clReleaseEvent)(event) };
}
