//! Programs, kernels, and kernels with their arguments.

use std::ffi::{CString, c_void};
use std::fmt;
use std::ptr;
use std::sync::Arc;

use opencl_sys::*;

use super::error::{ClError, check, made, reported};
use super::image::Image2d;
use super::loader::{Handle, LONGEST, info_fixed, info_lines};
use super::memory::{ClBuffer, MemoryObject};
use super::queue::Context;
use crate::sys::own::OwnBytes;

/// A compiled program in the driver's own format. It comes from [`Program::binary`], or from a file
/// that only this user and root could write. A driver may run any code in it, so no other bytes are
/// accepted.
#[derive(Debug)]
pub(crate) struct ProgramBinary {
    bytes: Vec<u8>,
}

impl ProgramBinary {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl From<OwnBytes> for ProgramBinary {
    fn from(bytes: OwnBytes) -> ProgramBinary {
        let bytes = bytes.into_vec();
        ProgramBinary { bytes }
    }
}

/// A program built for a context's device. A clone stands for the same program.
#[derive(Clone)]
pub(crate) struct Program {
    inner: Arc<ProgramInner>,
}

struct ProgramInner {
    context: Context,
    raw: Handle,
    name: String,
}

impl Drop for ProgramInner {
    fn drop(&mut self) {
        // SAFETY: created by a clCreateProgram… call, released once; the driver keeps it while
        // kernels of it exist.
        unsafe { (self.context.api().clReleaseProgram)(self.raw.pointer) };
    }
}

/// Spare bytes at the end of the buffer for a program binary. Some drivers write more than the size
/// that they report.
const SPARE_OF_BINARY: usize = 1 << 20;

impl Program {
    /// Builds the OpenCL C text `source` with the compiler options `options`. The error of a failed
    /// build contains the driver's log. Errors contain `name`.
    pub(crate) fn from_source(
        context: &Context,
        name: &str,
        source: &str,
        options: &str,
    ) -> Result<Program, ClError> {
        const CALL: &str = "clCreateProgramWithSource";
        if source.is_empty() {
            // Refused here, because for OpenCL a length of 0 means that a zero byte ends the text.
            return Err(ClError::new(CALL, CL_INVALID_VALUE, name).detail("the source is empty"));
        }
        let mut text = source.as_ptr().cast();
        let mut code = CL_SUCCESS;
        // SAFETY: one string with its length, not 0; the driver copies it.
        let raw = unsafe {
            (context.api().clCreateProgramWithSource)(
                context.raw(),
                1,
                &mut text,
                &source.len(),
                &mut code,
            )
        };
        made(raw, code, CALL, name)?;
        Program::new(context, raw, name).build(options)
    }

    /// Builds a program from a binary that this driver made earlier, for this device. Drivers
    /// refuse other binaries.
    pub(crate) fn from_binary(
        context: &Context,
        name: &str,
        binary: &ProgramBinary,
        options: &str,
    ) -> Result<Program, ClError> {
        const CALL: &str = "clCreateProgramWithBinary";
        let binary = &binary.bytes;
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
                &context.device().raw.pointer,
                &binary.len(),
                &mut bytes,
                &mut status,
                &mut code,
            )
        };
        check(code, CALL, name)?;
        if raw.is_null() {
            check(status, CALL, name)?;
        }
        made(raw, code, CALL, name)?;
        // Some drivers return an object for a refused binary, which must be released.
        let program = Program::new(context, raw, name);
        check(status, CALL, name)?;
        program.build(options)
    }

    fn new(context: &Context, raw: cl_program, name: &str) -> Program {
        let inner = Arc::new(ProgramInner {
            context: context.clone(),
            raw: Handle { pointer: raw },
            name: name.to_string(),
        });
        Program { inner }
    }

    fn build(self, options: &str) -> Result<Program, ClError> {
        const CALL: &str = "clBuildProgram";
        let inner = &self.inner;
        let options = CString::new(options).map_err(|_| {
            ClError::new(CALL, CL_INVALID_BUILD_OPTIONS, &inner.name)
                .detail("the options contain a zero byte")
        })?;
        // SAFETY: one device, of the program's context; without a callback the call waits for the
        // build.
        let code = unsafe {
            (inner.context.api().clBuildProgram)(
                inner.raw.pointer,
                1,
                &inner.context.device().raw.pointer,
                options.as_ptr(),
                None,
                ptr::null_mut(),
            )
        };
        check(code, CALL, &inner.name)
            .map_err(|e| e.detail(self.build_log().unwrap_or_default()))?;
        Ok(self)
    }

    /// Returns the log of the driver's compiler for this program.
    pub(crate) fn build_log(&self) -> Result<String, ClError> {
        let inner = &self.inner;
        info_lines(
            "clGetProgramBuildInfo",
            &inner.name,
            &|size, value, needed| {
                // SAFETY: the program is alive and its context has this device; `value` has room
                // for `size` bytes.
                unsafe {
                    (inner.context.api().clGetProgramBuildInfo)(
                        inner.raw.pointer,
                        inner.context.device().raw.pointer,
                        CL_PROGRAM_BUILD_LOG,
                        size,
                        value,
                        needed,
                    )
                }
            },
        )
    }

    /// Returns the built program in the driver's own format, for the cache folder. The result is
    /// empty if the driver has no such format.
    pub(crate) fn binary(&self) -> Result<ProgramBinary, ClError> {
        const CALL: &str = "clGetProgramInfo";
        let inner = &self.inner;
        let ask = |what, size, value: *mut c_void, needed| {
            // SAFETY: the program is alive; `value` has room for `size` bytes.
            unsafe {
                (inner.context.api().clGetProgramInfo)(inner.raw.pointer, what, size, value, needed)
            }
        };
        // The context has one device, so each answer has one entry.
        let size = info_fixed(CALL, &inner.name, &|s, v, n| {
            ask(CL_PROGRAM_BINARY_SIZES, s, v, n)
        })?;
        let size = reported(usize::from_ne_bytes(size), LONGEST, CALL, &inner.name)?;
        if size == 0 {
            return Ok(ProgramBinary { bytes: Vec::new() });
        }
        let mut bytes = vec![0u8; size + SPARE_OF_BINARY];
        let mut places = [bytes.as_mut_ptr()];
        let code = ask(
            CL_PROGRAM_BINARIES,
            size_of_val(&places),
            places.as_mut_ptr().cast(),
            ptr::null_mut(),
        );
        check(code, CALL, &inner.name)?;
        bytes.truncate(size);
        Ok(ProgramBinary { bytes })
    }

    /// Makes a kernel of the program's function `function`.
    pub(crate) fn kernel(&self, function: &str) -> Result<ClKernel, ClError> {
        const CALL: &str = "clCreateKernel";
        let inner = &self.inner;
        let object = || format!("{function} in {}", inner.name);
        let c_name = CString::new(function)
            .map_err(|_| ClError::new(CALL, CL_INVALID_KERNEL_NAME, object()))?;
        let mut code = CL_SUCCESS;
        // SAFETY: the program is alive and the name ends with a zero.
        let raw = unsafe {
            (inner.context.api().clCreateKernel)(inner.raw.pointer, c_name.as_ptr(), &mut code)
        };
        made(raw, code, CALL, "")
            .map_err(|e| ClError::new(CALL, code, object()).detail(e.detail.clone()))?;
        Ok(ClKernel {
            program: self.clone(),
            raw: Handle { pointer: raw },
            name: function.to_string(),
        })
    }
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Program({})", self.inner.name)
    }
}

/// A kernel: a function of a program, whose arguments are not set yet. [`ClKernel::bind`] sets
/// them.
pub(crate) struct ClKernel {
    program: Program,
    raw: Handle,
    name: String,
}

impl Drop for ClKernel {
    fn drop(&mut self) {
        // SAFETY: created by clCreateKernel, released once; the driver keeps it while enqueued
        // commands use it.
        unsafe { (self.context().api().clReleaseKernel)(self.raw.pointer) };
    }
}

/// An argument of a kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Argument<'a> {
    U32(u32),
    F32(f32),
    F32x2([f32; 2]),
    /// OpenCL C's `uint16`: a vector of 16.
    U32x16([u32; 16]),
    Buffer {
        buffer: &'a ClBuffer,
        /// The number of bytes from the buffer's start that the kernel may touch.
        /// [`ClKernel::bind`] refuses a smaller buffer.
        bytes: usize,
    },
    Image(&'a Image2d),
    /// A `__local` pointer to this number of bytes.
    #[cfg(test)]
    Local(usize),
}

/// A kernel with all its arguments, ready to be launched. It keeps buffers and images alive, which
/// clSetKernelArg does not.
pub(crate) struct BoundKernel {
    kernel: ClKernel,
    /// The memory of each argument that is a buffer or an image, with the argument's index.
    memory: Vec<(usize, Arc<MemoryObject>)>,
}

impl std::ops::Deref for BoundKernel {
    type Target = ClKernel;

    fn deref(&self) -> &ClKernel {
        &self.kernel
    }
}

impl BoundKernel {
    /// Returns the memory of each argument that is a buffer or an image, with the argument's index.
    pub(super) fn memory(&self) -> impl Iterator<Item = (usize, &MemoryObject)> {
        self.memory.iter().map(|(i, m)| (*i, &**m))
    }
}

impl ClKernel {
    /// Sets all arguments of the kernel. Refuses a wrong number of arguments, a buffer that is
    /// smaller than the part that the kernel may touch, and memory of another context.
    pub(crate) fn bind(self, arguments: &[Argument<'_>]) -> Result<BoundKernel, ClError> {
        let count = info_fixed("clGetKernelInfo", &self.name, &|size, value, needed| {
            // SAFETY: the kernel is alive; `value` has room for `size` bytes.
            unsafe {
                (self.context().api().clGetKernelInfo)(
                    self.raw.pointer,
                    CL_KERNEL_NUM_ARGS,
                    size,
                    value,
                    needed,
                )
            }
        })
        .map(u32::from_ne_bytes)?;
        if count as usize != arguments.len() {
            return Err(
                ClError::new("clSetKernelArg", CL_INVALID_KERNEL_ARGS, &self.name).detail(format!(
                    "the kernel takes {count} arguments, found {}",
                    arguments.len()
                )),
            );
        }
        let mut memory = Vec::new();
        for (index, argument) in arguments.iter().enumerate() {
            let (size, value, of): (usize, *const c_void, _) = match argument {
                Argument::U32(value) => (4, (&raw const *value).cast(), None),
                Argument::F32(value) => (4, (&raw const *value).cast(), None),
                Argument::F32x2(values) => (8, values.as_ptr().cast(), None),
                Argument::U32x16(values) => (64, values.as_ptr().cast(), None),
                #[cfg(test)]
                Argument::Local(bytes) => (*bytes, ptr::null(), None),
                Argument::Buffer { buffer, bytes } if buffer.bytes() < *bytes => {
                    let (name, has) = (buffer.name(), buffer.bytes());
                    return Err(self.refused(index, CL_INVALID_BUFFER_SIZE).detail(format!(
                        "{name} has {has} bytes, the kernel may touch {bytes}"
                    )));
                }
                Argument::Buffer { buffer, .. } => handle(buffer.memory()),
                Argument::Image(image) => handle(image.memory()),
            };
            if let Some(of) = of {
                if !of.queue().context().same(self.context()) {
                    return Err(self
                        .refused(index, CL_INVALID_MEM_OBJECT)
                        .detail(format!("{} belongs to another context", of.name())));
                }
                memory.push((index, of.clone()));
            }
            // SAFETY: `self` is owned, so this is the only call on the kernel. `value` points to
            // `size` bytes, or is null for local memory.
            let code = unsafe {
                (self.context().api().clSetKernelArg)(self.raw.pointer, index as u32, size, value)
            };
            check(code, "clSetKernelArg", "").map_err(|e| self.refused(index, e.code))?;
        }
        Ok(BoundKernel {
            kernel: self,
            memory,
        })
    }

    fn refused(&self, index: usize, code: i32) -> ClError {
        ClError::new(
            "clSetKernelArg",
            code,
            format!("argument {index} of {}", self.name),
        )
    }

    /// Returns the most work-items in a work-group of this kernel on this device
    /// (CL_KERNEL_WORK_GROUP_SIZE). NVIDIA's driver reports 256 for every kernel (seen on an H200),
    /// but runs kernels in the larger work-groups that they were compiled for. On NVIDIA the result
    /// is therefore the larger of the reported and the compiled size.
    pub(crate) fn work_group_limit(&self) -> Result<usize, ClError> {
        let limit = self
            .info(CL_KERNEL_WORK_GROUP_SIZE)
            .map(usize::from_ne_bytes)?;
        if self.context().device().compute_capability.is_none() {
            return Ok(limit);
        }
        // The driver answers with the size in each of three dimensions.
        const SIZE: usize = size_of::<usize>();
        let sizes = self.info::<{ 3 * SIZE }>(CL_KERNEL_COMPILE_WORK_GROUP_SIZE)?;
        let compiled = sizes
            .chunks_exact(SIZE)
            .filter_map(|s| s.try_into().ok())
            .map(usize::from_ne_bytes);
        Ok(limit.max(compiled.product()))
    }

    fn info<const N: usize>(&self, what: cl_kernel_work_group_info) -> Result<[u8; N], ClError> {
        info_fixed(
            "clGetKernelWorkGroupInfo",
            &self.name,
            &|size, value, needed| {
                // SAFETY: the kernel is alive and its context has this device; `value` has room for
                // `size` bytes.
                unsafe {
                    (self.context().api().clGetKernelWorkGroupInfo)(
                        self.raw.pointer,
                        self.context().device().raw.pointer,
                        what,
                        size,
                        value,
                        needed,
                    )
                }
            },
        )
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn raw(&self) -> cl_kernel {
        self.raw.pointer
    }

    pub(super) fn context(&self) -> &Context {
        &self.program.inner.context
    }
}

/// Returns the size and the pointer that clSetKernelArg takes for a buffer or image, and the memory
/// object, which the bound kernel keeps alive.
fn handle(memory: &Arc<MemoryObject>) -> (usize, *const c_void, Option<&Arc<MemoryObject>>) {
    let handle: *const cl_mem = memory.raw();
    (size_of::<cl_mem>(), handle.cast(), Some(memory))
}

impl fmt::Debug for BoundKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BoundKernel({})", self.kernel.name)
    }
}

impl fmt::Debug for ClKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClKernel({})", self.name)
    }
}
