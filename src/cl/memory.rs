//! Buffers, and the host's access to them.

use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use opencl_sys::*;

use super::error::{ClError, check, made};
use super::loader::Handle;
use super::queue::{Event, MapLock, Queue, Times, event_times, release_event, wait_event, wanted};

/// The access of kernels to a buffer or an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    ReadWrite,
    ReadOnly,
}

impl Access {
    pub(super) fn flags(self) -> cl_mem_flags {
        match self {
            Access::ReadWrite => CL_MEM_READ_WRITE,
            Access::ReadOnly => CL_MEM_READ_ONLY,
        }
    }
}

/// The memory in which a buffer lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BufferHome {
    /// Memory that the host can reach too (CL_MEM_ALLOC_HOST_PTR). On unified memory a map then
    /// costs no copy.
    Shared,
    /// The memory that the device prefers.
    Device,
}

/// The host's access to a mapped buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MapMode {
    /// The host only reads the mapped memory.
    Read,
    /// The host reads results of the device and may change them in place.
    ReadWrite,
    /// The host writes a part of the buffer. The rest of the buffer keeps its values.
    Write,
    /// The host writes the whole buffer, padding included. The old contents may be lost
    /// (CL_MAP_WRITE_INVALIDATE_REGION, if there is OpenCL 1.2).
    Overwrite,
}

impl MapMode {
    pub(super) fn flags(self, queue: &Queue) -> cl_map_flags {
        match self {
            MapMode::Read => CL_MAP_READ,
            MapMode::ReadWrite => CL_MAP_READ | CL_MAP_WRITE,
            MapMode::Overwrite if queue.device().has_1_2() => CL_MAP_WRITE_INVALIDATE_REGION,
            MapMode::Write | MapMode::Overwrite => CL_MAP_WRITE,
        }
    }
}

mod sealed {
    pub(crate) trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for u32 {}
    impl Sealed for i32 {}
    impl Sealed for u16 {}
    impl Sealed for u8 {}
    impl Sealed for i8 {}
}

/// A number type as which the host may view mapped memory. Every bit pattern must be a number of
/// the type. The alignment must be at most 4 bytes.
pub(crate) trait Element: Copy + sealed::Sealed + 'static {}

/// Returns the bytes of numbers, as they stand in memory.
pub(crate) fn bytes_of<T: Element>(data: &[T]) -> &[u8] {
    // SAFETY: an element is a plain number without padding, and the slice's memory is borrowed for
    // the result's life.
    unsafe { std::slice::from_raw_parts(data.as_ptr().cast(), size_of_val(data)) }
}

impl Element for f32 {}
impl Element for u32 {}
impl Element for i32 {}
impl Element for u16 {}
impl Element for u8 {}
impl Element for i8 {}

/// The alignment in bytes that every mapped pointer is checked for.
pub(super) const ALIGN: usize = 4;

/// An OpenCL memory object (cl_mem). It is released when its last user is dropped.
pub(super) struct MemoryObject {
    queue: Queue,
    raw: Handle,
    name: String,
    /// The buffer that contains this memory, if this memory is a sub-buffer.
    parent: Option<Arc<MemoryObject>>,
    /// True if any part of the memory is mapped for the host. A sub-buffer uses its parent's flag
    /// instead. The flag is read and written only under the queue's lock.
    mapped: AtomicBool,
}

impl MemoryObject {
    pub(super) fn new(
        queue: &Queue,
        raw: cl_mem,
        name: &str,
        parent: Option<Arc<MemoryObject>>,
    ) -> Arc<MemoryObject> {
        let (queue, name) = (queue.clone(), name.to_string());
        Arc::new(MemoryObject {
            queue,
            raw: Handle { pointer: raw },
            name,
            parent,
            mapped: AtomicBool::new(false),
        })
    }

    pub(super) fn queue(&self) -> &Queue {
        &self.queue
    }

    pub(super) fn raw(&self) -> &cl_mem {
        &self.raw.pointer
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    fn flag(&self) -> &AtomicBool {
        self.parent.as_ref().map_or(&self.mapped, |p| &p.mapped)
    }

    pub(super) fn is_mapped(&self, _: &MapLock<'_>) -> bool {
        self.flag().load(Relaxed)
    }

    pub(super) fn set_mapped(&self, mapped: bool, _: &MapLock<'_>) {
        self.flag().store(mapped, Relaxed);
    }

    /// Returns an error if the memory is mapped for the host.
    pub(super) fn free_for(&self, call: &'static str, lock: &MapLock<'_>) -> Result<(), ClError> {
        if self.is_mapped(lock) {
            return Err(ClError::new(call, CL_INVALID_OPERATION, &self.name)
                .detail("it is mapped for the host already"));
        }
        Ok(())
    }
}

impl Drop for MemoryObject {
    fn drop(&mut self) {
        // SAFETY: created by a clCreate… call, released once. The driver keeps it while enqueued
        // commands use it.
        unsafe { (self.queue.api().clReleaseMemObject)(self.raw.pointer) };
    }
}

/// A buffer in device memory, of a fixed size. A clone stands for the same buffer.
#[derive(Clone)]
pub(crate) struct ClBuffer {
    memory: Arc<MemoryObject>,
    bytes: usize,
    access: Access,
}

impl ClBuffer {
    /// Makes a buffer of `bytes` bytes on `queue`, with undefined contents. Errors contain `name`.
    pub(crate) fn new(
        queue: &Queue,
        name: &str,
        bytes: usize,
        access: Access,
        home: BufferHome,
    ) -> Result<ClBuffer, ClError> {
        const CALL: &str = "clCreateBuffer";
        let most = queue.device().max_alloc;
        if bytes as u64 > most || bytes > isize::MAX as usize {
            return Err(
                ClError::new(CALL, CL_INVALID_BUFFER_SIZE, name).detail(format!(
                    "{bytes} bytes; the device allows {most} in one buffer"
                )),
            );
        }
        let host = if home == BufferHome::Shared {
            CL_MEM_ALLOC_HOST_PTR
        } else {
            0
        };
        let mut code = CL_SUCCESS;
        // SAFETY: the context is alive; without USE_HOST_PTR or COPY_HOST_PTR the host pointer is
        // null.
        let raw = unsafe {
            (queue.api().clCreateBuffer)(
                queue.context().raw(),
                access.flags() | host,
                bytes,
                ptr::null_mut(),
                &mut code,
            )
        };
        made(raw, code, CALL, name).map_err(|e| e.detail(format!("{bytes} bytes")))?;
        Ok(ClBuffer {
            memory: MemoryObject::new(queue, raw, name, None),
            bytes,
            access,
        })
    }

    /// Makes a sub-buffer of `bytes` bytes from byte `origin` of this buffer on. `origin` must be a
    /// multiple of the device's `mem_align`. The sub-buffer keeps the whole buffer alive. It counts
    /// as mapped while any part of the buffer is mapped.
    pub(crate) fn sub_buffer(
        &self,
        name: &str,
        origin: usize,
        bytes: usize,
    ) -> Result<ClBuffer, ClError> {
        const CALL: &str = "clCreateSubBuffer";
        let queue = self.queue();
        let align = queue.device().mem_align;
        self.check_range(CALL, origin, bytes)?;
        if origin % align != 0 {
            return Err(ClError::new(CALL, CL_MISALIGNED_SUB_BUFFER_OFFSET, name)
                .detail(format!("origin {origin} is no multiple of {align}")));
        }
        let region = cl_buffer_region {
            origin,
            size: bytes,
        };
        let mut code = CL_SUCCESS;
        // SAFETY: `region` is what this create type reads, and lies within the buffer.
        let raw = unsafe {
            (queue.api().clCreateSubBuffer)(
                *self.memory.raw(),
                self.access.flags(),
                CL_BUFFER_CREATE_TYPE_REGION,
                (&raw const region).cast(),
                &mut code,
            )
        };
        made(raw, code, CALL, name)?;
        let memory = MemoryObject::new(queue, raw, name, Some(self.memory.clone()));
        Ok(ClBuffer {
            memory,
            bytes,
            access: self.access,
        })
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn name(&self) -> &str {
        self.memory.name()
    }

    /// Returns the queue that the buffer belongs to.
    pub(crate) fn queue(&self) -> &Queue {
        self.memory.queue()
    }

    pub(super) fn memory(&self) -> &Arc<MemoryObject> {
        &self.memory
    }

    /// Maps the whole buffer, lets `fill` write it, and unmaps it. `fill` gets as many elements as
    /// fit in the buffer. Their old values may be lost. Waits for all earlier commands of the
    /// queue.
    pub(crate) fn fill_with<T: Element>(&self, fill: impl FnOnce(&mut [T])) -> Result<(), ClError> {
        let (region, _) = self.map(MapMode::Overwrite, self.bytes, true)?;
        let mapped = Unmap {
            buffer: self,
            region: Some(region),
        };
        // SAFETY: the map is complete and allows writing. It is the only one until `mapped` is
        // gone.
        fill(unsafe { region.slice_mut() });
        mapped.now()
    }

    /// Writes `data` to the start of the buffer. The rest of the buffer becomes undefined.
    pub(crate) fn upload<T: Element>(&self, data: &[T]) -> Result<(), ClError> {
        self.check_range("clEnqueueMapBuffer", 0, size_of_val(data))?;
        self.fill_with(|all: &mut [T]| all[..data.len()].copy_from_slice(data))
    }

    /// Writes several arrays with one map. Each part is an offset in bytes, and the bytes to write
    /// from this offset on. Bytes of the buffer that no part covers become undefined.
    pub(crate) fn upload_parts<'d>(
        &self,
        parts: impl Iterator<Item = (usize, &'d [u8])>,
    ) -> Result<(), ClError> {
        let mut inside = Ok(());
        self.fill_with(|all: &mut [u8]| {
            for (start, bytes) in parts {
                match start
                    .checked_add(bytes.len())
                    .and_then(|end| all.get_mut(start..end))
                {
                    Some(to) => to.copy_from_slice(bytes),
                    None => inside = self.check_range("clEnqueueMapBuffer", start, bytes.len()),
                }
            }
        })?;
        inside
    }

    /// Writes `data` from byte `offset` of the buffer on, and waits for the write. The rest of the
    /// buffer keeps its values.
    pub(crate) fn write<T: Element>(&self, offset: usize, data: &[T]) -> Result<(), ClError> {
        const CALL: &str = "clEnqueueWriteBuffer";
        self.check_range(CALL, offset, size_of_val(data))?;
        if data.is_empty() {
            return Ok(());
        }
        let lock = self.queue().lock_maps();
        self.memory.free_for(CALL, &lock)?;
        // SAFETY: the range lies within the buffer. The call blocks until `data` is no longer read.
        let code = unsafe {
            (self.queue().api().clEnqueueWriteBuffer)(
                self.queue().raw(),
                *self.memory.raw(),
                CL_TRUE,
                offset,
                size_of_val(data),
                data.as_ptr().cast(),
                0,
                ptr::null(),
                ptr::null_mut(),
            )
        };
        check(code, CALL, self.name())
    }

    /// Copies the buffer's contents from byte `offset` on into `data`, and waits for the copy.
    pub(crate) fn read<T: Element>(&self, offset: usize, data: &mut [T]) -> Result<(), ClError> {
        const CALL: &str = "clEnqueueReadBuffer";
        self.check_range(CALL, offset, size_of_val(data))?;
        if data.is_empty() {
            return Ok(());
        }
        let lock = self.queue().lock_maps();
        self.memory.free_for(CALL, &lock)?;
        // SAFETY: the range lies within the buffer. The call blocks until `data` is written. Any
        // bit pattern is an element.
        let code = unsafe {
            (self.queue().api().clEnqueueReadBuffer)(
                self.queue().raw(),
                *self.memory.raw(),
                CL_TRUE,
                offset,
                size_of_val(data),
                data.as_mut_ptr().cast(),
                0,
                ptr::null(),
                ptr::null_mut(),
            )
        };
        check(code, CALL, self.name())
    }

    fn check_range(&self, call: &'static str, offset: usize, bytes: usize) -> Result<(), ClError> {
        if offset.checked_add(bytes).is_none_or(|end| end > self.bytes) {
            return Err(
                ClError::new(call, CL_INVALID_VALUE, self.name()).detail(format!(
                    "{bytes} bytes at {offset} are outside its {} bytes",
                    self.bytes
                )),
            );
        }
        Ok(())
    }

    /// Maps the first `bytes` bytes of the buffer for the host. Returns the mapped region, and the
    /// event to wait for before the host uses it. If `blocking`, this call waits itself, and the
    /// event is null.
    fn map(
        &self,
        mode: MapMode,
        bytes: usize,
        blocking: bool,
    ) -> Result<(Region, cl_event), ClError> {
        const CALL: &str = "clEnqueueMapBuffer";
        self.check_range(CALL, 0, bytes)?;
        let queue = self.queue();
        let lock = queue.lock_maps();
        self.memory.free_for(CALL, &lock)?;
        let mut code = CL_SUCCESS;
        let mut event = ptr::null_mut();
        let wanted = wanted(!blocking, &mut event);
        // SAFETY: the range lies within the buffer, and nothing else of it is mapped.
        let pointer = unsafe {
            (queue.api().clEnqueueMapBuffer)(
                queue.raw(),
                *self.memory.raw(),
                if blocking { CL_TRUE } else { CL_FALSE },
                mode.flags(queue),
                0,
                bytes,
                0,
                ptr::null(),
                wanted,
                &mut code,
            )
        };
        check(code, CALL, self.name())?;
        let region = NonNull::new(pointer.cast::<u8>()).map(|pointer| Region { pointer, bytes });
        match region {
            Some(region) if region.pointer.as_ptr().addr() % ALIGN == 0 => {
                self.memory.set_mapped(true, &lock);
                Ok((region, event))
            }
            _ => {
                if !event.is_null() {
                    release_event(queue, event);
                }
                Err(
                    ClError::new(CALL, CL_MAP_FAILURE, self.name()).detail(format!(
                        "expected an address that is a multiple of {ALIGN}, the driver returned \
                         {pointer:?}"
                    )),
                )
            }
        }
    }

    /// Enqueues the unmap of `region`. No reference into the region may be left.
    fn unmap(&self, region: Region, event: Option<&mut Event>) -> Result<(), ClError> {
        let lock = self.queue().lock_maps();
        unmap(&self.memory, region.pointer.as_ptr(), event, &lock)
    }
}

/// Enqueues the unmap of `pointer`, which a map of `memory` returned, and marks the memory as not
/// mapped.
pub(super) fn unmap(
    memory: &MemoryObject,
    pointer: *mut u8,
    event: Option<&mut Event>,
    lock: &MapLock<'_>,
) -> Result<(), ClError> {
    const CALL: &str = "clEnqueueUnmapMemObject";
    let queue = memory.queue();
    let mut raw = ptr::null_mut();
    let wanted = wanted(event.is_some(), &mut raw);
    // SAFETY: the pointer was mapped on this queue. It is unmapped once: the callers give it up.
    let code = unsafe {
        (queue.api().clEnqueueUnmapMemObject)(
            queue.raw(),
            *memory.raw(),
            pointer.cast(),
            0,
            ptr::null(),
            wanted,
        )
    };
    check(code, CALL, memory.name())?;
    memory.set_mapped(false, lock);
    if let Some(event) = event {
        event.hold(queue, raw, CALL);
    }
    Ok(())
}

impl fmt::Debug for ClBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClBuffer({}, {} bytes)", self.name(), self.bytes)
    }
}

/// The bytes of a buffer that are mapped for the host, from the start of the buffer on.
#[derive(Clone, Copy)]
struct Region {
    pointer: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapped pointer is ordinary memory of the process. The owner of the region decides who
// uses it.
unsafe impl Send for Region {}
// SAFETY: as for `Send`: the owner of the region decides which thread uses it.
unsafe impl Sync for Region {}

impl Region {
    /// # Safety
    /// The map is complete and not undone for `'a`, and nobody writes to it in `'a`.
    unsafe fn slice<'a, T: Element>(self) -> &'a [T] {
        // SAFETY: the pointer is not null and is aligned for every `Element`, which `map` checks.
        // `bytes` bytes are readable, and any bit pattern is a value. The caller promises the rest.
        unsafe {
            std::slice::from_raw_parts(self.pointer.as_ptr().cast(), self.bytes / size_of::<T>())
        }
    }

    /// # Safety
    /// The map is complete, for writing, and not undone for `'a`, and nobody else uses it in `'a`.
    unsafe fn slice_mut<'a, T: Element>(self) -> &'a mut [T] {
        // SAFETY: as for `slice`, and the bytes may be written. The caller promises that this is
        // the only view.
        unsafe {
            std::slice::from_raw_parts_mut(
                self.pointer.as_ptr().cast(),
                self.bytes / size_of::<T>(),
            )
        }
    }
}

/// Unmaps a buffer when it is dropped, if that has not happened before. So a panic in the closure
/// of [`ClBuffer::fill_with`] also unmaps the buffer.
struct Unmap<'a> {
    buffer: &'a ClBuffer,
    region: Option<Region>,
}

impl Unmap<'_> {
    fn now(mut self) -> Result<(), ClError> {
        self.region
            .take()
            .map_or(Ok(()), |region| self.buffer.unmap(region, None))
    }
}

impl Drop for Unmap<'_> {
    fn drop(&mut self) {
        if let Some(region) = self.region.take() {
            let _ = self.buffer.unmap(region, None);
        }
    }
}

/// A buffer that the host and the device use in turn. The text of the module `cl` explains its
/// states: unmapped, pending and mapped.
pub(crate) struct MappedBuffer {
    buffer: ClBuffer,
    mode: MapMode,
    state: MapState,
    staging: Option<Staging>,
    /// The event of the last copy from the staging memory to the buffer. The buffer's next map
    /// waits for this event.
    sent: Option<Handle>,
}

/// The host's view of a staged buffer: memory of the same size that is always mapped and is never
/// an argument of a kernel.
struct Staging {
    memory: ClBuffer,
    region: Region,
}

enum MapState {
    Unmapped,
    Pending { region: Region, event: Handle },
    Mapped { region: Region },
}

impl MappedBuffer {
    /// Makes an unmapped buffer. Its later maps use `mode`.
    pub(crate) fn new(buffer: ClBuffer, mode: MapMode) -> MappedBuffer {
        MappedBuffer {
            buffer,
            mode,
            state: MapState::Unmapped,
            staging: None,
            sent: None,
        }
    }

    /// Makes an unmapped buffer for a device with memory of its own. The host's view is page-locked
    /// memory at a fixed address. A map to read copies the buffer into the view. The unmap after a
    /// map to write copies the view to the buffer. A map of [`MapMode::Write`] copies nothing, so
    /// the view then shows what the host wrote last, not the results of kernels. With
    /// [`MapMode::ReadWrite`] the host's changes to the view do not reach the device.
    pub(crate) fn staged(buffer: ClBuffer, mode: MapMode) -> Result<MappedBuffer, ClError> {
        let queue = buffer.queue();
        let memory = ClBuffer::new(
            queue,
            buffer.name(),
            buffer.bytes,
            Access::ReadWrite,
            BufferHome::Shared,
        )?;
        let (region, _) = memory.map(MapMode::Write, buffer.bytes, true)?;
        Ok(MappedBuffer {
            buffer,
            mode,
            state: MapState::Unmapped,
            staging: Some(Staging { memory, region }),
            sent: None,
        })
    }

    /// Returns the buffer that kernels are bound to.
    #[cfg(test)]
    pub(crate) fn buffer(&self) -> &ClBuffer {
        &self.buffer
    }

    /// Unmapped → Pending: enqueues a map of the whole buffer. Does not allocate.
    pub(crate) fn enqueue_map(&mut self) -> Result<(), ClError> {
        self.enqueue_map_prefix(self.buffer.bytes)
    }

    /// Unmapped → Pending: enqueues a map of the first `bytes` bytes.
    pub(crate) fn enqueue_map_prefix(&mut self, bytes: usize) -> Result<(), ClError> {
        let (region, event) = match &self.staging {
            None => self.buffer.map(self.mode, bytes, false)?,
            Some(Staging { region: view, .. }) => {
                let region = Region { bytes, ..*view };
                self.buffer.check_range("clEnqueueReadBuffer", 0, bytes)?;
                let lock = self.buffer.queue().lock_maps();
                self.buffer.memory.free_for("clEnqueueReadBuffer", &lock)?;
                let event = match self.mode {
                    MapMode::Read | MapMode::ReadWrite => self.copy(region, &lock)?,
                    _ => self
                        .sent
                        .take()
                        .map_or(ptr::null_mut(), |event| event.pointer),
                };
                self.buffer.memory.set_mapped(true, &lock);
                (region, event)
            }
        };
        self.state = match event.is_null() {
            true => MapState::Mapped { region },
            false => MapState::Pending {
                region,
                event: Handle { pointer: event },
            },
        };
        Ok(())
    }

    /// Enqueues the copy between a staged buffer and the host's view of it, in the direction of the
    /// buffer's mode. Returns the copy's event.
    fn copy(&self, region: Region, _: &MapLock<'_>) -> Result<cl_event, ClError> {
        let queue = self.buffer.queue();
        let (api, raw, pointer) = (
            queue.api(),
            *self.buffer.memory.raw(),
            region.pointer.as_ptr().cast(),
        );
        let (bytes, none, mut event) = (region.bytes, ptr::null(), ptr::null_mut());
        // SAFETY: the view is as large as the buffer. It lives until its unmap, which the queue
        // orders behind this command. The host has no reference into it before the event is
        // complete: the next state is Pending (Read), or Unmapped, which keeps the event for the
        // next Pending.
        let code = unsafe {
            match self.mode {
                MapMode::Read | MapMode::ReadWrite => (api.clEnqueueReadBuffer)(
                    queue.raw(),
                    raw,
                    CL_FALSE,
                    0,
                    bytes,
                    pointer,
                    0,
                    none,
                    &mut event,
                ),
                _ => (api.clEnqueueWriteBuffer)(
                    queue.raw(),
                    raw,
                    CL_FALSE,
                    0,
                    bytes,
                    pointer,
                    0,
                    none,
                    &mut event,
                ),
            }
        };
        check(code, self.command(), self.buffer.name())?;
        Ok(event)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.buffer.bytes
    }

    /// Returns true if the buffer was made by [`staged`](Self::staged), so that the host's view is
    /// memory of its own.
    pub(crate) fn is_staged(&self) -> bool {
        self.staging.is_some()
    }

    /// Enqueues a copy of the first `bytes` bytes of `from` to this staged buffer. The host's view
    /// of this buffer keeps its old values. Does not allocate.
    pub(crate) fn enqueue_copy_of(&mut self, from: &ClBuffer, bytes: usize) -> Result<(), ClError> {
        const CALL: &str = "clEnqueueCopyBuffer";
        let queue = self.buffer.queue();
        self.buffer.check_range(CALL, 0, bytes)?;
        from.check_range(CALL, 0, bytes)?;
        let lock = queue.lock_maps();
        from.memory.free_for(CALL, &lock)?;
        if !self.is_staged()
            || !from.queue().same(queue)
            || Arc::ptr_eq(&from.memory, &self.buffer.memory)
        {
            return Err(ClError::new(
                CALL,
                CL_INVALID_MEM_OBJECT,
                self.buffer.name(),
            ));
        }
        // SAFETY: both ranges lie within their buffers, which are different ones on this queue. No
        // reference into them exists: the source is not mapped, and the view of a staged buffer is
        // memory of its own.
        let code = unsafe {
            (queue.api().clEnqueueCopyBuffer)(
                queue.raw(),
                *from.memory.raw(),
                *self.buffer.memory.raw(),
                0,
                0,
                bytes,
                0,
                ptr::null(),
                ptr::null_mut(),
            )
        };
        check(code, CALL, self.buffer.name())
    }

    /// Returns the name of the OpenCL call that the state Pending waits for. Errors contain this
    /// name.
    fn command(&self) -> &'static str {
        match (&self.staging, self.mode) {
            (None, _) => "clEnqueueMapBuffer",
            (_, MapMode::Read | MapMode::ReadWrite) => "clEnqueueReadBuffer",
            _ => "clEnqueueWriteBuffer",
        }
    }

    /// Pending → Mapped: waits for the map and releases its event. After an error the buffer is
    /// unmapped.
    pub(crate) fn wait(&mut self) -> Result<(), ClError> {
        self.settle(false).map(|_| ())
    }

    /// Like [`wait`](Self::wait), and returns the times of the map command. Needs a profiling
    /// queue. All times are zero if the driver gives none, as it may if nothing was copied.
    pub(crate) fn wait_timed(&mut self) -> Result<Times, ClError> {
        self.settle(true)
    }

    fn settle(&mut self, timed: bool) -> Result<Times, ClError> {
        let (region, event) = match &self.state {
            MapState::Pending { region, event } => (*region, event.pointer),
            MapState::Mapped { .. } if !timed => return Ok(Times::default()),
            MapState::Mapped { .. } => {
                return Err(ClError::new(
                    "clGetEventProfilingInfo",
                    CL_INVALID_EVENT,
                    self.buffer.name(),
                )
                .detail("the wait for its map is over, which has released the event"));
            }
            MapState::Unmapped => return Err(self.not_mapped("clWaitForEvents")),
        };
        let queue = self.buffer.queue();
        let waited = wait_event(queue, event, self.command(), self.buffer.name());
        let times = if timed {
            event_times(queue, event).unwrap_or_default()
        } else {
            Times::default()
        };
        release_event(queue, event);
        self.state = MapState::Mapped { region };
        if let Err(error) = waited {
            self.give_up();
            return Err(error);
        }
        Ok(times)
    }

    /// Mapped (or Pending) → Unmapped: enqueues the unmap. Later commands may use the buffer.
    /// `event` receives the event of the unmap. A staged buffer is not unmapped by an OpenCL call.
    /// So it leaves `event` as it is, and keeps the event of its copy for its next map.
    pub(crate) fn enqueue_unmap(&mut self, event: Option<&mut Event>) -> Result<(), ClError> {
        if let MapState::Pending { .. } = self.state {
            self.wait()?;
        }
        let MapState::Mapped { region } = self.state else {
            return Err(self.not_mapped("clEnqueueUnmapMemObject"));
        };
        if self.staging.is_none() {
            self.buffer.unmap(region, event)?;
        } else {
            let lock = self.buffer.queue().lock_maps();
            if !matches!(self.mode, MapMode::Read | MapMode::ReadWrite) {
                self.sent = Some(Handle {
                    pointer: self.copy(region, &lock)?,
                });
            }
            self.buffer.memory.set_mapped(false, &lock);
        }
        self.state = MapState::Unmapped;
        Ok(())
    }

    /// Returns true if the buffer is in the state Mapped, so that the host may use it.
    pub(crate) fn is_mapped(&self) -> bool {
        matches!(self.state, MapState::Mapped { .. })
    }

    /// Returns the mapped bytes as elements. A rest that is no whole element is left out.
    ///
    /// # Panics
    /// If the buffer is not mapped.
    #[inline]
    pub(crate) fn slice<T: Element>(&self) -> &[T] {
        let region = self.region();
        // SAFETY: in this state the map is complete. Only `&mut self` undoes it, which ends the
        // borrow. No other map of this memory exists, and the queue launches no kernel on it
        // (`MemoryObject::mapped`).
        unsafe { region.slice() }
    }

    /// Returns the mapped elements, for the host to write.
    ///
    /// # Panics
    /// If the buffer is not mapped, or mapped to be read.
    #[inline]
    pub(crate) fn slice_mut<T: Element>(&mut self) -> &mut [T] {
        let region = self.region();
        assert!(
            self.mode != MapMode::Read,
            "{} is mapped to be read only",
            self.buffer.name()
        );
        // SAFETY: as for `slice`. `&mut self` makes it the only view, and the mode allows writing.
        unsafe { region.slice_mut() }
    }

    #[inline]
    fn region(&self) -> Region {
        match self.state {
            MapState::Mapped { region } => region,
            _ => panic!(
                "{} is not mapped for the host: enqueue_map and wait first",
                self.buffer.name()
            ),
        }
    }

    fn not_mapped(&self, call: &'static str) -> ClError {
        ClError::new(call, CL_INVALID_OPERATION, self.buffer.name())
            .detail("it is not mapped for the host")
    }

    /// Any state → Unmapped. Ignores the driver's errors.
    fn give_up(&mut self) {
        let state = std::mem::replace(&mut self.state, MapState::Unmapped);
        let region = match state {
            MapState::Unmapped => return,
            MapState::Mapped { region } => region,
            MapState::Pending { region, event } => {
                release_event(self.buffer.queue(), event.pointer);
                region
            }
        };
        if self.staging.is_some() || self.buffer.unmap(region, None).is_err() {
            let lock = self.buffer.queue().lock_maps();
            self.buffer.memory.set_mapped(false, &lock);
        }
    }
}

impl Drop for MappedBuffer {
    fn drop(&mut self) {
        self.give_up();
        if let Some(event) = self.sent.take() {
            release_event(self.buffer.queue(), event.pointer);
        }
        if let Some(Staging { memory, region }) = self.staging.take() {
            let _ = memory.unmap(region, None);
        }
    }
}

impl fmt::Debug for MappedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            MapState::Unmapped => "unmapped",
            MapState::Pending { .. } => "pending",
            MapState::Mapped { .. } => "mapped",
        };
        write!(f, "MappedBuffer({}, {state})", self.buffer.name())
    }
}
