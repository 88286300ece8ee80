//! Programs and kernels.

use std::ffi::{CString, c_void};
use std::fmt;
use std::ptr;
use std::sync::Arc;

use opencl_sys::*;

use super::error::{ClError, check};
use super::image::Image2d;
use super::loader::{Handle, info_fixed, info_lines};
use super::memory::{Buffer, Memory};
use super::queue::Context;

/// A program built for a context's device. Clones are the same program.
#[derive(Clone)]
pub struct Program(Arc<ProgramInner>);

struct ProgramInner {
    context: Context,
    raw: Handle,
    name: String,
}

impl Drop for ProgramInner {
    fn drop(&mut self) {
        // SAFETY: created by a clCreateProgram… call, released once; the driver keeps it while kernels of it exist.
        unsafe { (self.context.api().clReleaseProgram)(self.raw.0) };
    }
}

impl Program {
    /// Builds `source` with `options`. An error of the compiler carries the driver's log. The name appears in errors.
    pub fn from_source(
        context: &Context,
        name: &str,
        source: &str,
        options: &str,
    ) -> Result<Program, ClError> {
        const CALL: &str = "clCreateProgramWithSource";
        if source.is_empty() {
            // A length of 0 would mean that the text ends with a zero byte.
            return Err(ClError::new(CALL, CL_INVALID_VALUE, name).detail("the source is empty"));
        }
        let mut text = source.as_ptr().cast();
        let mut code = CL_SUCCESS;
        // SAFETY: one string with its length, not 0; the driver copies it.
        let raw = unsafe {
            (context.api().clCreateProgramWithSource)(context.raw(), 1, &mut text, &source.len(), &mut code)
        };
        check(code, CALL, name)?;
        Program::new(context, raw, name).build(options)
    }

    /// Builds what [`binary`](Self::binary) gave before, for this device and driver. A driver refuses what it does
    /// not know; the bytes are trusted like kernel sources, so keep them where only this user can write.
    pub fn from_binary(
        context: &Context,
        name: &str,
        binary: &[u8],
        options: &str,
    ) -> Result<Program, ClError> {
        const CALL: &str = "clCreateProgramWithBinary";
        if binary.is_empty() {
            return Err(ClError::new(CALL, CL_INVALID_VALUE, name).detail("the binary is empty"));
        }
        let mut bytes = binary.as_ptr();
        let (mut status, mut code) = (CL_SUCCESS, CL_SUCCESS);
        // SAFETY: one device and one binary with its length; the driver copies it.
        let raw = unsafe {
            (context.api().clCreateProgramWithBinary)(
                context.raw(),
                1,
                &context.device().raw.0,
                &binary.len(),
                &mut bytes,
                &mut status,
                &mut code,
            )
        };
        check(code, CALL, name)?;
        // Refused binaries come back as an object all the same, to be released.
        let program = Program::new(context, raw, name);
        check(status, CALL, name)?;
        program.build(options)
    }

    fn new(context: &Context, raw: cl_program, name: &str) -> Program {
        let (context, name) = (context.clone(), name.to_string());
        Program(Arc::new(ProgramInner { context, raw: Handle(raw), name }))
    }

    fn build(self, options: &str) -> Result<Program, ClError> {
        const CALL: &str = "clBuildProgram";
        let inner = &self.0;
        let options = CString::new(options).map_err(|_| {
            ClError::new(CALL, CL_INVALID_BUILD_OPTIONS, &inner.name).detail("a zero byte in the options")
        })?;
        // SAFETY: one device, of the program's context; without a callback the call waits for the build.
        let code = unsafe {
            (inner.context.api().clBuildProgram)(
                inner.raw.0,
                1,
                &inner.context.device().raw.0,
                options.as_ptr(),
                None,
                ptr::null_mut(),
            )
        };
        check(code, CALL, &inner.name).map_err(|e| e.detail(self.build_log().unwrap_or_default()))?;
        Ok(self)
    }

    /// What the driver's compiler said.
    pub fn build_log(&self) -> Result<String, ClError> {
        let inner = &self.0;
        info_lines("clGetProgramBuildInfo", &inner.name, &|size, value, needed| {
            // SAFETY: the program is alive and its context has this device; `value` has room for `size` bytes.
            unsafe {
                (inner.context.api().clGetProgramBuildInfo)(
                    inner.raw.0,
                    inner.context.device().raw.0,
                    CL_PROGRAM_BUILD_LOG,
                    size,
                    value,
                    needed,
                )
            }
        })
    }

    /// The built program in the driver's own form, for a cache; empty where the driver gives none.
    pub fn binary(&self) -> Result<Vec<u8>, ClError> {
        const CALL: &str = "clGetProgramInfo";
        let inner = &self.0;
        let ask = |what, size, value: *mut c_void, needed| {
            // SAFETY: the program is alive; `value` has room for `size` bytes.
            unsafe { (inner.context.api().clGetProgramInfo)(inner.raw.0, what, size, value, needed) }
        };
        // The context has one device, so each answer has one entry.
        let size = info_fixed(CALL, &inner.name, &|s, v, n| ask(CL_PROGRAM_BINARY_SIZES, s, v, n))?;
        let mut binary = vec![0u8; usize::from_ne_bytes(size)];
        if binary.is_empty() {
            return Ok(binary);
        }
        let mut places = [binary.as_mut_ptr()];
        let code =
            ask(CL_PROGRAM_BINARIES, size_of_val(&places), places.as_mut_ptr().cast(), ptr::null_mut());
        check(code, CALL, &inner.name)?;
        Ok(binary)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// A new kernel object for the function `function`, with its own arguments.
    pub fn kernel(&self, function: &str) -> Result<Kernel, ClError> {
        const CALL: &str = "clCreateKernel";
        let inner = &self.0;
        let object = || format!("{function} in {}", inner.name);
        let c_name =
            CString::new(function).map_err(|_| ClError::new(CALL, CL_INVALID_KERNEL_NAME, object()))?;
        let mut code = CL_SUCCESS;
        // SAFETY: the program is alive and the name ends with a zero.
        let raw = unsafe { (inner.context.api().clCreateKernel)(inner.raw.0, c_name.as_ptr(), &mut code) };
        check(code, CALL, "").map_err(|e| ClError { object: object(), ..e })?;
        Ok(Kernel { program: self.clone(), raw: Handle(raw), name: function.to_string(), memory: Vec::new() })
    }
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Program({})", self.0.name)
    }
}

/// A kernel with its arguments. Buffers and images that are bound stay alive with it, since clSetKernelArg does not
/// keep them.
pub struct Kernel {
    program: Program,
    raw: Handle,
    name: String,
    memory: Vec<Option<Arc<Memory>>>,
}

impl Drop for Kernel {
    fn drop(&mut self) {
        // SAFETY: created by clCreateKernel, released once; the driver keeps it while enqueued commands use it.
        unsafe { (self.context().api().clReleaseKernel)(self.raw.0) };
    }
}

impl Kernel {
    /// Binds a buffer, or a sub-buffer.
    pub fn set_arg_buffer(&mut self, index: u32, buffer: &Buffer) -> Result<(), ClError> {
        self.set_memory(index, buffer.memory())
    }

    /// Binds an image.
    pub fn set_arg_image(&mut self, index: u32, image: &Image2d) -> Result<(), ClError> {
        self.set_memory(index, image.memory())
    }

    /// Sets a `uint`.
    pub fn set_arg_u32(&mut self, index: u32, value: u32) -> Result<(), ClError> {
        self.set(index, 4, (&raw const value).cast(), None)
    }

    /// Sets an `int`.
    pub fn set_arg_i32(&mut self, index: u32, value: i32) -> Result<(), ClError> {
        self.set(index, 4, (&raw const value).cast(), None)
    }

    /// Sets a `float`.
    pub fn set_arg_f32(&mut self, index: u32, value: f32) -> Result<(), ClError> {
        self.set(index, 4, (&raw const value).cast(), None)
    }

    /// Gives a `__local` pointer `bytes` bytes.
    pub fn set_arg_local(&mut self, index: u32, bytes: usize) -> Result<(), ClError> {
        self.set(index, bytes, ptr::null(), None)
    }

    fn set_memory(&mut self, index: u32, memory: &Arc<Memory>) -> Result<(), ClError> {
        if !memory.queue().context().same(self.context()) {
            return Err(ClError::new("clSetKernelArg", CL_INVALID_MEM_OBJECT, self.arg(index))
                .detail(format!("{} belongs to another context", memory.name())));
        }
        let handle: *const cl_mem = memory.raw();
        self.set(index, size_of::<cl_mem>(), handle.cast(), Some(memory.clone()))
    }

    fn set(
        &mut self,
        index: u32,
        size: usize,
        value: *const c_void,
        memory: Option<Arc<Memory>>,
    ) -> Result<(), ClError> {
        // SAFETY: `&mut self` makes this the only call on the kernel; `value` points to `size` bytes, or is null for
        // local memory. The driver refuses an index or size that the kernel does not have.
        let code = unsafe { (self.context().api().clSetKernelArg)(self.raw.0, index, size, value) };
        check(code, "clSetKernelArg", "").map_err(|e| ClError { object: self.arg(index), ..e })?;
        let index = index as usize;
        if self.memory.len() <= index {
            self.memory.resize_with(index + 1, || None);
        }
        self.memory[index] = memory;
        Ok(())
    }

    fn arg(&self, index: u32) -> String {
        format!("argument {index} of {}", self.name)
    }

    /// Most work-items in a work-group of this kernel on this device (CL_KERNEL_WORK_GROUP_SIZE).
    pub fn work_group_limit(&self) -> Result<usize, ClError> {
        self.info(CL_KERNEL_WORK_GROUP_SIZE).map(usize::from_ne_bytes)
    }

    /// The work-group size written in the source; zeros where there is none.
    pub fn compile_work_group_size(&self) -> Result<[usize; 3], ClError> {
        const WORD: usize = size_of::<usize>();
        let bytes: [u8; 3 * WORD] = self.info(CL_KERNEL_COMPILE_WORK_GROUP_SIZE)?;
        let word = |i: usize| usize::from_ne_bytes(bytes[i * WORD..][..WORD].try_into().expect("a word"));
        Ok([word(0), word(1), word(2)])
    }

    /// Local memory per work-group in bytes, with the arguments set so far.
    pub fn local_mem(&self) -> Result<u64, ClError> {
        self.info(CL_KERNEL_LOCAL_MEM_SIZE).map(u64::from_ne_bytes)
    }

    /// Private memory per work-item in bytes: more than 0 often means spilled registers.
    pub fn private_mem(&self) -> Result<u64, ClError> {
        self.info(CL_KERNEL_PRIVATE_MEM_SIZE).map(u64::from_ne_bytes)
    }

    /// The work-group size should be a multiple of this.
    pub fn preferred_multiple(&self) -> Result<usize, ClError> {
        self.info(CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE).map(usize::from_ne_bytes)
    }

    fn info<const N: usize>(&self, what: cl_kernel_work_group_info) -> Result<[u8; N], ClError> {
        info_fixed("clGetKernelWorkGroupInfo", &self.name, &|size, value, needed| {
            // SAFETY: the kernel is alive and its context has this device; `value` has room for `size` bytes.
            unsafe {
                (self.context().api().clGetKernelWorkGroupInfo)(
                    self.raw.0,
                    self.context().device().raw.0,
                    what,
                    size,
                    value,
                    needed,
                )
            }
        })
    }

    /// Its function's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn raw(&self) -> cl_kernel {
        self.raw.0
    }

    pub(super) fn context(&self) -> &Context {
        &self.program.0.context
    }

    /// The bound buffers and images with their argument's index.
    pub(super) fn memory(&self) -> impl Iterator<Item = (usize, &Memory)> {
        self.memory.iter().enumerate().filter_map(|(i, m)| Some((i, &**m.as_ref()?)))
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kernel({})", self.name)
    }
}
