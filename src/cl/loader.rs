//! Finds the OpenCL library at run time and loads its entry points.
//!
//! The program does not link against OpenCL, so it also starts on a machine without it. The error
//! lists every library that was tried and the reason why it failed: "no OpenCL" on a board is
//! nearly always a wrong file name, a missing `.icd` file or a library for the wrong word size.

use std::ffi::{CStr, c_void};
use std::fmt;
use std::path::Path;
use std::ptr;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use libloading::os::unix::{Library as Dl, RTLD_LOCAL, RTLD_NOW};
use opencl_sys::cl_function_types as types;

use super::error::ClError;
use super::nodes::nodes;
use crate::escape;

/// The environment variable that names the OpenCL library. If it is set, no other library is tried.
pub(crate) const VARIABLE: &str = "MORTONNET_OPENCL";

/// The file names to try, separated by blanks and in this order: an ICD loader first, then the
/// drivers' own libraries (Mali, PowerVR, VideoCore).
const NAMES: &str = "\
    libOpenCL.so.1 libOpenCL.so libmali.so libmali.so.1 libMali.so libMaliOpenCL.so.1 \
    libGLES_mali.so libPVROCL.so.1 libPVROCL.so libVC4CL.so";

/// Folders in which boards keep OpenCL libraries outside the dynamic loader's search path,
/// separated by blanks. They are those of distributions, board makers and Android.
const FOLDERS: &str = "\
    /usr/lib/arm-linux-gnueabihf /usr/lib/arm-linux-gnueabihf/mali-egl \
    /usr/lib/arm-linux-gnueabihf/mali /usr/lib/aarch64-linux-gnu \
    /usr/lib/aarch64-linux-gnu/mali-egl /usr/lib/aarch64-linux-gnu/mali /usr/lib/x86_64-linux-gnu \
    /usr/lib/riscv64-linux-gnu /usr/lib /usr/lib64 /usr/lib/mali-egl /usr/lib/mali \
    /usr/local/lib/arm-linux-gnueabihf /usr/local/lib/aarch64-linux-gnu /usr/local/lib \
    /usr/local/lib64 /opt/vc/lib /opt/mali/lib /opt/rocm/lib /system/vendor/lib64 \
    /system/vendor/lib64/egl /system/vendor/lib /system/vendor/lib/egl /vendor/lib64 \
    /vendor/lib64/egl /vendor/lib /vendor/lib/egl /system/lib64 /system/lib64/egl /system/lib \
    /system/lib/egl";

/// Turns `Option<F>` into `F`, because in opencl-sys the type of every entry point is optional.
pub(super) trait Pointer {
    type Fn;
}

impl<F> Pointer for Option<F> {
    type Fn = F;
}

macro_rules! api {
    (required { $($need:ident $need_type:ident)* } optional { $($may:ident $may_type:ident)* }) => {
        /// The entry points under their OpenCL names. The entry points of OpenCL 1.2 are optional.
        #[allow(non_snake_case)]
        pub(super) struct Api {
            $(pub(super) $need: <types::$need_type as Pointer>::Fn,)*
            $(pub(super) $may: types::$may_type,)*
        }

        impl Api {
            /// Loads all entry points. The error is the name of the first required one that is
            /// missing.
            fn load(library: &Dl) -> Result<Api, &'static str> {
                let mut missing = None;
                let api = Api {
                    $($need: {
                        type EntryPoint = <types::$need_type as Pointer>::Fn;
                        let found = needed(library, concat!(stringify!($need), "\0"), &mut missing);
                        // SAFETY: this is opencl-sys's type for the entry point of this name (a
                        // test compares the two columns of the table). If the entry point is
                        // missing, `load` fails and nothing is called.
                        unsafe { std::mem::transmute::<*const c_void, EntryPoint>(found) }
                    },)*
                    $($may: {
                        let found = symbol(library, concat!(stringify!($may), "\0"));
                        // SAFETY: this is opencl-sys's type for the entry point of this name, an
                        // `Option`. A null address, of a missing entry point, is its `None`.
                        unsafe { std::mem::transmute::<*const c_void, types::$may_type>(found) }
                    },)*
                };
                missing.map_or(Ok(api), Err)
            }
        }

        #[cfg(test)]
        pub(super) const PAIRS: &[(&str, &str)] = &[
            $((stringify!($need), stringify!($need_type)),)*
            $((stringify!($may), stringify!($may_type)),)*
        ];
    };
}

/// Returns the address of an entry point, or null if the library has none of this name. `name` ends
/// with a zero byte.
fn symbol(library: &Dl, name: &str) -> *const c_void {
    // SAFETY: an address is read, nothing is called. The library is never unloaded.
    unsafe { library.get::<*const c_void>(name.as_bytes()) }.map_or(ptr::null(), |found| *found)
}

/// Returns the address of a required entry point. If the library lacks it, returns the address of
/// an empty function. `missing` keeps the name of the first entry point that the library lacks.
fn needed(library: &Dl, name: &'static str, missing: &mut Option<&'static str>) -> *const c_void {
    extern "C" fn nothing() {}
    let found = symbol(library, name);
    if found.is_null() {
        missing.get_or_insert(name.trim_end_matches('\0'));
        return nothing as *const c_void;
    }
    found
}

api! {
    required {
        clGetPlatformIDs clGetPlatformIDs_fn
        clGetPlatformInfo clGetPlatformInfo_fn
        clGetDeviceIDs clGetDeviceIDs_fn
        clGetDeviceInfo clGetDeviceInfo_fn
        clCreateContext clCreateContext_fn
        clReleaseContext clReleaseContext_fn
        clCreateCommandQueue clCreateCommandQueue_fn
        clReleaseCommandQueue clReleaseCommandQueue_fn
        clCreateBuffer clCreateBuffer_fn
        clCreateSubBuffer clCreateSubBuffer_fn
        clCreateImage2D clCreateImage2D_fn
        clReleaseMemObject clReleaseMemObject_fn
        clCreateProgramWithSource clCreateProgramWithSource_fn
        clCreateProgramWithBinary clCreateProgramWithBinary_fn
        clBuildProgram clBuildProgram_fn
        clGetProgramBuildInfo clGetProgramBuildInfo_fn
        clGetProgramInfo clGetProgramInfo_fn
        clReleaseProgram clReleaseProgram_fn
        clCreateKernel clCreateKernel_fn
        clSetKernelArg clSetKernelArg_fn
        clGetKernelInfo clGetKernelInfo_fn
        clGetKernelWorkGroupInfo clGetKernelWorkGroupInfo_fn
        clReleaseKernel clReleaseKernel_fn
        clEnqueueNDRangeKernel clEnqueueNDRangeKernel_fn
        clEnqueueMapBuffer clEnqueueMapBuffer_fn
        clEnqueueMapImage clEnqueueMapImage_fn
        clEnqueueUnmapMemObject clEnqueueUnmapMemObject_fn
        clEnqueueReadBuffer clEnqueueReadBuffer_fn
        clEnqueueWriteBuffer clEnqueueWriteBuffer_fn
        clEnqueueCopyBuffer clEnqueueCopyBuffer_fn
        clWaitForEvents clWaitForEvents_fn
        clGetEventInfo clGetEventInfo_fn
        clGetEventProfilingInfo clGetEventProfilingInfo_fn
        clReleaseEvent clReleaseEvent_fn
        clFlush clFlush_fn
        clFinish clFinish_fn
    }
    optional {
        clCreateImage clCreateImage_fn
        clEnqueueFillBuffer clEnqueueFillBuffer_fn
    }
}

/// The loaded OpenCL library. It stays loaded until the process ends.
pub(crate) struct ClLibrary {
    pub(super) api: Api,
    path: String,
}

impl ClLibrary {
    /// Loads the library that `MORTONNET_OPENCL` names, or else the first of the search list that
    /// works and has at least one platform. Later calls return the same library.
    pub(crate) fn open() -> Result<&'static ClLibrary, LoadError> {
        static OPENED: OnceLock<&'static ClLibrary> = OnceLock::new();
        if let Some(library) = OPENED.get() {
            return Ok(library);
        }
        let library = match std::env::var_os(VARIABLE).filter(|v| !v.is_empty()) {
            Some(path) => {
                open_from(&[path.to_string_lossy().into_owned()]).map_err(|e| LoadError {
                    variable: true,
                    ..e
                })
            }
            None => open_from(&search_list()),
        };
        let library = library.map_err(|e| LoadError {
            nodes: nodes(false),
            ..e
        })?;
        Ok(OPENED.get_or_init(|| library))
    }

    /// Returns the name or path under which the library was found.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }
}

impl fmt::Debug for ClLibrary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClLibrary({})", self.path)
    }
}

/// Returns the libraries to try: the plain names of [`NAMES`], then each of these names in each of
/// [`FOLDERS`].
fn search_list() -> Vec<String> {
    let names = || NAMES.split_whitespace();
    let full = FOLDERS
        .split_whitespace()
        .flat_map(|folder| names().map(move |name| format!("{folder}/{name}")));
    names().map(str::to_string).chain(full).collect()
}

/// Opens the first library of the list that has every required entry point and a platform.
pub(super) fn open_from(list: &[String]) -> Result<&'static ClLibrary, LoadError> {
    let mut attempts = Vec::new();
    for path in list {
        match try_open(path) {
            // The library is never unloaded, because threads and exit handlers of drivers run its
            // code.
            Ok(api) => {
                return Ok(Box::leak(Box::new(ClLibrary {
                    api,
                    path: escape::line(path).into_owned(),
                })));
            }
            Err(reason) => attempts.push(Attempt {
                path: escape::line(path).into_owned(),
                reason,
            }),
        }
    }
    Err(LoadError {
        attempts,
        variable: false,
        nodes: Vec::new(),
    })
}

/// Returns a lock to hold while a driver may be starting. PoCL 3.1 sets up its devices without a
/// lock, at the first call. A second thread would find the devices half set up.
pub(super) fn starting() -> MutexGuard<'static, ()> {
    static STARTING: Mutex<()> = Mutex::new(());
    STARTING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn try_open(path: &str) -> Result<Api, Reason> {
    if path.starts_with('/') && !Path::new(path).exists() {
        return Err(Reason::Missing);
    }
    // On a FIFO the dynamic loader would wait for a writer.
    if path.contains('/')
        && Path::new(path)
            .metadata()
            .is_ok_and(|about| !about.is_file())
    {
        return Err(Reason::Failed("not a regular file".into()));
    }
    // SAFETY: loading runs the library's initialisers. The library is the system's or was named by
    // the user, and is trusted like any other library of the process.
    let library = unsafe { Dl::open(Some(path), RTLD_NOW | RTLD_LOCAL) }
        .map_err(|e| Reason::Failed(loader_message(path, &e)))?;
    // A refused library stays loaded too: unloading a driver is not safe.
    let library = std::mem::ManuallyDrop::new(library);
    let api =
        Api::load(&library).map_err(|name| Reason::Failed(format!("has no function {name}")))?;
    let _one_at_a_time = starting();
    // An ICD loader that finds no driver is refused, because a driver's own library may follow in
    // the search list.
    match platforms(&api) {
        Err(e) => Err(Reason::Failed(e.to_string())),
        Ok(platforms) if platforms.is_empty() => {
            Err(Reason::Failed("has no OpenCL platform".into()))
        }
        Ok(_) => Ok(api),
    }
}

pub(super) fn platforms(api: &Api) -> Result<Vec<Handle>, ClError> {
    // SAFETY: `handles` passes room for `room` entries.
    handles("clGetPlatformIDs", "", &|room, ids, found| unsafe {
        (api.clGetPlatformIDs)(room, ids, found)
    })
}

/// The most platforms, and the most devices of a platform, that a driver may report.
const MOST: usize = 1024;

/// Returns the handles that a clGet…IDs call lists. Already the first call has room for 16 handles,
/// because VC4CL does not count its platforms in a call without room.
pub(super) fn handles(
    call: &'static str,
    object: &str,
    get: &dyn Fn(u32, *mut *mut c_void, *mut u32) -> i32,
) -> Result<Vec<Handle>, ClError> {
    let mut room = 16;
    loop {
        let (mut ids, mut count) = (vec![ptr::null_mut(); room], 0);
        super::error::check(get(room as u32, ids.as_mut_ptr(), &mut count), call, object)?;
        let count = super::error::reported(count as usize, MOST, call, object)?;
        if count > room {
            room = count;
            continue;
        }
        ids.truncate(count);
        return Ok(ids.into_iter().map(|pointer| Handle { pointer }).collect());
    }
}

/// Returns the message of the dynamic loader, without the file name in front.
fn loader_message(path: &str, error: &libloading::Error) -> String {
    let text = error.to_string();
    let text = text
        .strip_prefix(path)
        .and_then(|t| t.strip_prefix(": "))
        .unwrap_or(&text);
    escape::line(text).into_owned()
}

/// A library that was tried, with the reason why it cannot be used.
#[derive(Clone)]
struct Attempt {
    path: String,
    reason: Reason,
}

#[derive(Clone)]
enum Reason {
    /// There is no file at the absolute path that was tried. The error lists only the path's
    /// folder.
    Missing,
    Failed(String),
}

/// The error that no OpenCL library can be used.
#[derive(Clone)]
pub(crate) struct LoadError {
    attempts: Vec<Attempt>,
    /// True if the environment variable [`VARIABLE`] named the library.
    variable: bool,
    /// The lines of [`nodes`] about the machine's GPUs.
    nodes: Vec<String>,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.tried(f)?;
        self.nodes
            .iter()
            .try_for_each(|line| write!(f, "\n  {line}"))
    }
}

impl LoadError {
    /// Writes the libraries that were tried. Libraries with the same reason share a line, and
    /// missing files are listed by folder.
    fn tried(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let (true, [only]) = (self.variable, &self.attempts[..]) {
            let reason = match &only.reason {
                Reason::Missing => "no such file",
                Reason::Failed(reason) => reason,
            };
            return write!(f, "{VARIABLE}={}: {reason}", only.path);
        }
        f.write_str("no usable OpenCL library (name one in MORTONNET_OPENCL); tried")?;
        let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
        let mut folders: Vec<&str> = Vec::new();
        for Attempt { path, reason } in &self.attempts {
            match reason {
                Reason::Failed(reason) => match reasons.iter_mut().find(|(r, _)| r == reason) {
                    Some((_, paths)) => paths.push(path),
                    None => reasons.push((reason, vec![path])),
                },
                Reason::Missing => {
                    let folder = path.rsplit_once('/').map_or("/", |(folder, _)| folder);
                    if !folders.contains(&folder) {
                        folders.push(folder);
                    }
                }
            }
        }
        for (reason, paths) in reasons {
            write!(f, "\n  {}: {reason}", paths.join(", "))?;
        }
        if !folders.is_empty() {
            write!(f, "\n  not found in: {}", folders.join(", "))?;
        }
        Ok(())
    }
}

impl fmt::Debug for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for LoadError {}

impl From<LoadError> for crate::error::Error {
    fn from(error: LoadError) -> Self {
        crate::error::Error::caused("", error)
    }
}

/// The handle of an OpenCL object.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Handle {
    pub(super) pointer: *mut c_void,
}

// SAFETY: OpenCL handles may be used from every thread. The one exception is clSetKernelArg on a
// shared kernel. Only `ClKernel::bind` calls it, which owns the kernel.
unsafe impl Send for Handle {}
// SAFETY: several threads may use a handle at once, with the exception that `Send` explains.
unsafe impl Sync for Handle {}

/// The most bytes that a driver may report for an answer. The longest answers are build logs and
/// program binaries.
pub(super) const LONGEST: usize = 16 << 20;

/// Spare bytes at the end of the buffer for an answer. Some drivers write more than the size that
/// they report.
const SPARE: usize = 4096;

/// Returns the answer of a clGet…Info call whose length the driver reports first.
pub(super) fn info_bytes(
    call: &'static str,
    object: &str,
    get: &dyn Fn(usize, *mut c_void, *mut usize) -> i32,
) -> Result<Vec<u8>, ClError> {
    let mut size = 0;
    super::error::check(get(0, ptr::null_mut(), &mut size), call, object)?;
    let mut bytes = vec![0u8; super::error::reported(size, LONGEST, call, object)? + SPARE];
    let mut written = size;
    super::error::check(
        get(size, bytes.as_mut_ptr().cast(), &mut written),
        call,
        object,
    )?;
    bytes.truncate(written.min(size));
    Ok(bytes)
}

/// Returns the text, possibly of several lines, that a clGet…Info call gives. The closing zero and
/// blanks at both ends are cut off, and control characters are escaped.
pub(super) fn info_lines(
    call: &'static str,
    object: &str,
    get: &dyn Fn(usize, *mut c_void, *mut usize) -> i32,
) -> Result<String, ClError> {
    let mut bytes = info_bytes(call, object, get)?;
    bytes.push(0);
    let text = CStr::from_bytes_until_nul(&bytes).unwrap_or_default();
    Ok(escape::lines(text.to_string_lossy().trim()).into_owned())
}

/// Returns the text of a clGet…Info call as one line, for a name or a version. Line ends and tabs
/// become blanks.
pub(super) fn info_text(
    call: &'static str,
    object: &str,
    get: &dyn Fn(usize, *mut c_void, *mut usize) -> i32,
) -> Result<String, ClError> {
    Ok(info_lines(call, object, get)?.replace(['\n', '\t'], " "))
}

/// Returns the bytes of a fixed-size answer of a clGet…Info call.
pub(super) fn info_fixed<const N: usize>(
    call: &'static str,
    object: &str,
    get: &dyn Fn(usize, *mut c_void, *mut usize) -> i32,
) -> Result<[u8; N], ClError> {
    let mut bytes = [0u8; N];
    super::error::check(
        get(N, bytes.as_mut_ptr().cast(), ptr::null_mut()),
        call,
        object,
    )?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_point_has_its_own_type() {
        for (name, kind) in PAIRS {
            assert_eq!(format!("{name}_fn"), *kind);
        }
    }

    #[test]
    fn a_failed_search_says_what_was_tried() {
        let list = [
            "libnowhere-a.so.1",
            "libnowhere-b.so",
            "/nowhere/libOpenCL.so",
            "/nowhere/libmali.so",
            "/void/libmali.so",
        ];
        let error = open_from(&list.map(str::to_string)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "no usable OpenCL library (name one in MORTONNET_OPENCL); tried\n  \
             libnowhere-a.so.1, libnowhere-b.so: cannot open shared object file: No such file or \
             directory\n  \
             not found in: /nowhere, /void"
        );
        let named = LoadError {
            variable: true,
            ..open_from(&["/nowhere/libmali.so".into()]).unwrap_err()
        };
        assert_eq!(
            named.to_string(),
            "MORTONNET_OPENCL=/nowhere/libmali.so: no such file"
        );
    }

    #[test]
    fn the_search_list_starts_with_plain_names() {
        let list = search_list();
        assert_eq!(list.len(), 10 * (31 + 1));
        assert_eq!(list[0], "libOpenCL.so.1");
        assert!(list[10..].iter().all(|p| p.starts_with('/')));
    }
}
