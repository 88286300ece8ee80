//! OpenCL errors: call, code, object, and what to do.

use std::fmt;

use opencl_sys::*;

/// A failed OpenCL call.
///
/// This module refuses some calls itself, for example a write outside a buffer. Such an error has
/// the code that the OpenCL specification gives to the case. The content is boxed, so that results
/// stay small.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ClError {
    failed: Box<Failed>,
}

impl fmt::Debug for ClError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The content of a [`ClError`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failed {
    /// The entry point, for example `clBuildProgram`.
    pub(crate) call: &'static str,
    /// The error code that the call returned.
    pub(crate) code: i32,
    /// The name of the buffer, kernel or other object of the failed call; may be empty.
    pub(crate) object: String,
    /// One line about the cause, or the driver's build log; may be empty.
    pub(crate) detail: String,
}

impl ClError {
    /// Makes an error of `call` on `object`.
    pub(crate) fn new(call: &'static str, code: i32, object: impl Into<String>) -> Self {
        let failed = Box::new(Failed {
            call,
            code,
            object: object.into(),
            detail: String::new(),
        });
        ClError { failed }
    }

    pub(crate) fn detail(mut self, detail: impl Into<String>) -> Self {
        self.failed.detail = detail.into();
        self
    }

    /// Returns the error code's name in the OpenCL headers, if it has one.
    pub(crate) fn name(&self) -> Option<&'static str> {
        code_name(self.code)
    }
}

impl std::ops::Deref for ClError {
    type Target = Failed;

    fn deref(&self) -> &Failed {
        &self.failed
    }
}

/// Returns an error unless `code` is `CL_SUCCESS`. Only an error allocates.
pub(super) fn check(code: i32, call: &'static str, object: &str) -> Result<(), ClError> {
    if code == CL_SUCCESS {
        Ok(())
    } else {
        Err(ClError::new(call, code, object))
    }
}

/// Checks a call that has created the object `raw`. Drivers may return null without an error code.
pub(super) fn made<T>(
    raw: *mut T,
    code: i32,
    call: &'static str,
    object: &str,
) -> Result<(), ClError> {
    check(code, call, object)?;
    match raw.is_null() {
        true => Err(ClError::new(call, code, object)
            .detail("the driver returned neither an object nor an error")),
        false => Ok(()),
    }
}

/// Returns the size or count `n` that a driver reports, or an error if it exceeds `most`. A broken
/// driver must not make the program allocate any amount.
pub(super) fn reported(
    n: usize,
    most: usize,
    call: &'static str,
    object: &str,
) -> Result<usize, ClError> {
    match n <= most {
        true => Ok(n),
        false => Err(ClError::new(call, CL_SUCCESS, object).detail(format!(
            "the driver reports a size of {n}, expected at most {most}"
        ))),
    }
}

impl fmt::Display for ClError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.call)?;
        if !self.object.is_empty() {
            write!(f, " of {}", self.object)?;
        }
        write!(
            f,
            ": {} ({})",
            self.name().unwrap_or("unknown code"),
            self.code
        )?;
        let detail = self.detail.trim_end();
        if detail.contains('\n') || (self.code == CL_BUILD_PROGRAM_FAILURE && !detail.is_empty()) {
            write!(f, "\n{detail}")?;
            // A PoCL that cannot write its cache only logs that the device failed to build the
            // program. So a build log that has only such lines gets the advice about PoCL's cache.
            return if detail
                .lines()
                .all(|line| line.ends_with(" failed to build the program"))
            {
                write!(f, "\n{POCL_CACHE}")
            } else {
                Ok(())
            };
        }
        let advice = match self.code {
            CL_DEVICE_NOT_FOUND if self.object.contains("Portable Computing Language") => {
                Some(POCL_CACHE)
            }
            code => advice(code),
        };
        match (detail, advice) {
            ("", None) => Ok(()),
            ("", Some(advice)) => write!(f, ": {advice}"),
            (detail, None) => write!(f, ": {detail}"),
            (detail, Some(advice)) => write!(f, ": {detail}; {advice}"),
        }
    }
}

impl std::error::Error for ClError {}

impl From<ClError> for crate::error::Error {
    fn from(error: ClError) -> Self {
        crate::error::Error::caused("", error)
    }
}

/// The advice if PoCL has no device or fails to build a program. PoCL's device is the CPU, which is
/// always there, so PoCL's cache folder is the likely cause.
const POCL_CACHE: &str = "PoCL works only where it can write its cache: POCL_CACHE_DIR, else \
    XDG_CACHE_HOME/pocl, else HOME/.cache/pocl; set POCL_CACHE_DIR to a folder that this user may \
    write to";

/// Returns advice for the user about an OpenCL error code, if the code is one that users meet.
fn advice(code: i32) -> Option<&'static str> {
    Some(match code {
        CL_PLATFORM_NOT_FOUND_KHR => {
            "the OpenCL loader found no driver; install the device's driver, with its .icd file in \
             /etc/OpenCL/vendors, or name the driver's own library in MORTONNET_OPENCL"
        }
        CL_DEVICE_NOT_FOUND => {
            "this driver sees no device; is the GPU's device file (/dev/mali0, \
             /dev/dri/renderD128, ...) there, and may this user open it?"
        }
        CL_DEVICE_NOT_AVAILABLE => "the device is in use or switched off",
        CL_COMPILER_NOT_AVAILABLE => "this driver cannot compile kernels",
        CL_OUT_OF_RESOURCES => {
            "the device ran out of registers, local memory or time; a smaller batch or work-group \
             may fit"
        }
        CL_OUT_OF_HOST_MEMORY => "too little memory on the host; a smaller batch may fit",
        CL_MEM_OBJECT_ALLOCATION_FAILURE => {
            "too little memory for the device; a smaller batch may fit"
        }
        CL_INVALID_WORK_GROUP_SIZE => {
            "the work-group is larger than this kernel may have on this device, or does not \
             divide the global size"
        }
        _ => return None,
    })
}

macro_rules! names {
    ($code:expr, $($name:ident)*) => {
        match $code {
            $($name => Some(stringify!($name)),)*
            _ => None,
        }
    };
}

/// Returns the name of an OpenCL 1.2 error code, or `None` for any other code.
pub(crate) fn code_name(code: i32) -> Option<&'static str> {
    names!(code,
        CL_SUCCESS CL_DEVICE_NOT_FOUND CL_DEVICE_NOT_AVAILABLE CL_COMPILER_NOT_AVAILABLE
        CL_MEM_OBJECT_ALLOCATION_FAILURE CL_OUT_OF_RESOURCES CL_OUT_OF_HOST_MEMORY
        CL_PROFILING_INFO_NOT_AVAILABLE CL_MEM_COPY_OVERLAP CL_IMAGE_FORMAT_MISMATCH
        CL_IMAGE_FORMAT_NOT_SUPPORTED CL_BUILD_PROGRAM_FAILURE CL_MAP_FAILURE
        CL_MISALIGNED_SUB_BUFFER_OFFSET CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST
        CL_COMPILE_PROGRAM_FAILURE CL_LINKER_NOT_AVAILABLE CL_LINK_PROGRAM_FAILURE
        CL_DEVICE_PARTITION_FAILED CL_KERNEL_ARG_INFO_NOT_AVAILABLE CL_INVALID_VALUE
        CL_INVALID_DEVICE_TYPE CL_INVALID_PLATFORM CL_INVALID_DEVICE CL_INVALID_CONTEXT
        CL_INVALID_QUEUE_PROPERTIES CL_INVALID_COMMAND_QUEUE CL_INVALID_HOST_PTR
        CL_INVALID_MEM_OBJECT CL_INVALID_IMAGE_FORMAT_DESCRIPTOR CL_INVALID_IMAGE_SIZE
        CL_INVALID_SAMPLER CL_INVALID_BINARY CL_INVALID_BUILD_OPTIONS CL_INVALID_PROGRAM
        CL_INVALID_PROGRAM_EXECUTABLE CL_INVALID_KERNEL_NAME CL_INVALID_KERNEL_DEFINITION
        CL_INVALID_KERNEL CL_INVALID_ARG_INDEX CL_INVALID_ARG_VALUE CL_INVALID_ARG_SIZE
        CL_INVALID_KERNEL_ARGS CL_INVALID_WORK_DIMENSION CL_INVALID_WORK_GROUP_SIZE
        CL_INVALID_WORK_ITEM_SIZE CL_INVALID_GLOBAL_OFFSET CL_INVALID_EVENT_WAIT_LIST
        CL_INVALID_EVENT CL_INVALID_OPERATION CL_INVALID_GL_OBJECT CL_INVALID_BUFFER_SIZE
        CL_INVALID_MIP_LEVEL CL_INVALID_GLOBAL_WORK_SIZE CL_INVALID_PROPERTY
        CL_INVALID_IMAGE_DESCRIPTOR CL_INVALID_COMPILER_OPTIONS CL_INVALID_LINKER_OPTIONS
        CL_INVALID_DEVICE_PARTITION_COUNT CL_PLATFORM_NOT_FOUND_KHR
    )
}
