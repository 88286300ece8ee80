//! Devices and what they can do, asked once.

use std::cell::OnceCell;
use std::ffi::c_void;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use opencl_sys::*;

use super::error::ClError;
use super::loader::{
    ClLibrary, Handle, handles, info_bytes, info_fixed, info_text, platforms, starting,
};

/// All devices of all platforms, and what could not be asked.
#[derive(Debug)]
pub(crate) struct Devices {
    /// The devices, in the order of the INDEX that users see.
    pub(crate) devices: Vec<Device>,
    /// Platforms without a device and devices that could not be asked.
    pub(crate) errors: Vec<ClError>,
}

/// The kind of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeviceKind {
    /// A graphics processor.
    Gpu,
    /// The host's processor.
    Cpu,
    /// A dedicated accelerator.
    Accelerator,
    /// Anything else; it may not accept kernels in OpenCL C.
    Custom,
}

impl fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            DeviceKind::Gpu => "GPU",
            DeviceKind::Cpu => "CPU",
            DeviceKind::Accelerator => "accelerator",
            DeviceKind::Custom => "custom",
        })
    }
}

/// Where local memory lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LocalMemory {
    /// In storage of its own, faster than global memory.
    Dedicated,
    /// In global memory: copying into it gains nothing (Mali).
    Global,
    /// There is none (custom devices).
    None,
}

/// A device; a copy is the same one.
#[derive(Clone)]
pub(crate) struct Device(Arc<Properties>);

impl Deref for Device {
    type Target = Properties;

    fn deref(&self) -> &Properties {
        &self.0
    }
}

/// What a device is, and its limits.
pub(crate) struct Properties {
    pub(super) library: &'static ClLibrary,
    pub(super) raw: Handle,
    pub(super) platform: Handle,
    /// Its place in the list of all devices.
    pub(crate) index: usize,
    /// CL_DEVICE_NAME.
    pub(crate) name: String,
    /// CL_DEVICE_VENDOR.
    pub(crate) vendor: String,
    /// CL_DEVICE_VERSION, as the driver writes it.
    pub(crate) version: String,
    /// The same as (major, minor); (0, 0) where it does not parse.
    pub(crate) opencl: (u32, u32),
    /// CL_DEVICE_OPENCL_C_VERSION, as the driver writes it.
    pub(crate) c_version: String,
    /// CL_DRIVER_VERSION.
    pub(crate) driver: String,
    /// Its platform's name.
    pub(crate) platform_name: String,
    /// Its platform's version.
    pub(crate) platform_version: String,
    /// GPU, CPU, …
    pub(crate) kind: DeviceKind,
    /// Number of compute units.
    pub(crate) compute_units: u32,
    /// Most work-items in a work-group; a kernel's own limit may be lower.
    pub(crate) max_work_group: usize,
    /// Most work-items of a work-group in each dimension.
    pub(crate) max_work_items: Vec<usize>,
    /// Local memory in bytes.
    pub(crate) local_mem: u64,
    /// Where it lives.
    pub(crate) local_mem_kind: LocalMemory,
    /// Global memory in bytes.
    pub(crate) global_mem: u64,
    /// The largest buffer in bytes.
    pub(crate) max_alloc: u64,
    /// What the origin of a sub-buffer must be a multiple of, in bytes.
    pub(crate) mem_align: usize,
    /// Highest clock in MHz.
    pub(crate) max_clock: u32,
    /// Whether it has images.
    pub(crate) images: bool,
    /// Largest width and height of a 2D image; (0, 0) without images.
    pub(crate) image2d_max: (usize, usize),
    /// Whether kernels may compute in half precision (cl_khr_fp16).
    pub(crate) fp16: bool,
    /// CL_DEVICE_SINGLE_FP_CONFIG: what floats can do.
    pub(crate) floats: u64,
    /// Whether host and device share their memory.
    pub(crate) unified_memory: bool,
    /// Resolution of event times in ns.
    pub(crate) timer_resolution: usize,
    /// Whether it stores numbers with the low byte first, as the baked constants are.
    pub(crate) little_endian: bool,
    /// CL_DEVICE_EXTENSIONS, separated by blanks.
    pub(crate) extensions: String,
    /// The NVIDIA compute capability as (major, minor), where the device offers
    /// cl_nv_device_attribute_query.
    pub(crate) compute_capability: Option<(u32, u32)>,
    /// CL_DEVICE_AVAILABLE.
    pub(crate) available: bool,
    /// Whether the driver can compile kernels.
    pub(crate) compiler_available: bool,
}

/// What only a listing shows: nothing is chosen by it. `None` where the driver has no answer.
#[derive(Debug, Clone)]
pub(crate) struct Details {
    /// Bytes of the cache of global memory.
    pub(crate) cache: Option<u64>,
    /// Whether it caches nothing, reads, or reads and writes.
    pub(crate) cache_kind: Option<&'static str>,
    /// Bytes of a cache line.
    pub(crate) cache_line: Option<u32>,
    /// A type, and the vector widths that the driver prefers for it and that the hardware has; 0:
    /// no such type.
    pub(crate) vectors: [(&'static str, Option<u32>, Option<u32>); 7],
}

/// Lists the devices of all platforms. A platform that fails does not hide the others.
pub(crate) fn devices(library: &'static ClLibrary) -> Result<Devices, ClError> {
    let _one_at_a_time = starting();
    let mut all = Devices {
        devices: Vec::new(),
        errors: Vec::new(),
    };
    for platform in platforms(&library.api)? {
        let (ids, name) = match platform_devices(library, platform) {
            Ok(found) => found,
            Err(error) => {
                all.errors.push(error);
                continue;
            }
        };
        for id in ids {
            match Device::ask(library, platform, id, all.devices.len()) {
                Ok(device) => all.devices.push(device),
                Err(error) => all
                    .errors
                    .push(error.detail(format!("a device of {name} is left out"))),
            }
        }
    }
    Ok(all)
}

/// The devices of one platform, and its name.
fn platform_devices(
    library: &ClLibrary,
    platform: Handle,
) -> Result<(Vec<Handle>, String), ClError> {
    let name = platform_text(library, platform, CL_PLATFORM_NAME)?;
    let ids = handles(
        "clGetDeviceIDs",
        &format!("platform {name}"),
        &|room, ids, found| {
            // SAFETY: `platform` comes from clGetPlatformIDs; `handles` passes room for `room`
            // entries.
            unsafe {
                (library.api.clGetDeviceIDs)(platform.0, CL_DEVICE_TYPE_ALL, room, ids, found)
            }
        },
    )?;
    Ok((ids, name))
}

fn platform_text(
    library: &ClLibrary,
    platform: Handle,
    what: cl_platform_info,
) -> Result<String, ClError> {
    info_text("clGetPlatformInfo", "a platform", &|size, value, needed| {
        // SAFETY: `platform` comes from clGetPlatformIDs; `value` has room for `size` bytes.
        unsafe { (library.api.clGetPlatformInfo)(platform.0, what, size, value, needed) }
    })
}

/// Asks one device; every answer is checked.
struct Questions {
    library: &'static ClLibrary,
    raw: Handle,
    name: String,
    /// The first question that had no answer but must have.
    failed: OnceCell<ClError>,
}

impl Questions {
    /// The answer of a question that must have one; the caller looks at `failed` in the end.
    fn must<T: Default>(&self, answer: Result<T, ClError>) -> T {
        answer.unwrap_or_else(|e| {
            let _ = self.failed.set(e);
            T::default()
        })
    }

    fn ask(
        &self,
        what: cl_device_info,
        size: usize,
        value: *mut c_void,
        needed: *mut usize,
    ) -> i32 {
        // SAFETY: `raw` comes from clGetDeviceIDs; the info functions pass room for `size` bytes.
        unsafe { (self.library.api.clGetDeviceInfo)(self.raw.0, what, size, value, needed) }
    }

    fn text(&self, what: cl_device_info) -> Result<String, ClError> {
        info_text("clGetDeviceInfo", &self.name, &|s, v, n| {
            self.ask(what, s, v, n)
        })
    }

    fn uint(&self, what: cl_device_info) -> Result<u32, ClError> {
        info_fixed("clGetDeviceInfo", &self.name, &|s, v, n| {
            self.ask(what, s, v, n)
        })
        .map(u32::from_ne_bytes)
    }

    fn ulong(&self, what: cl_device_info) -> Result<u64, ClError> {
        info_fixed("clGetDeviceInfo", &self.name, &|s, v, n| {
            self.ask(what, s, v, n)
        })
        .map(u64::from_ne_bytes)
    }

    fn size(&self, what: cl_device_info) -> Result<usize, ClError> {
        info_fixed("clGetDeviceInfo", &self.name, &|s, v, n| {
            self.ask(what, s, v, n)
        })
        .map(usize::from_ne_bytes)
    }

    fn sizes(&self, what: cl_device_info) -> Result<Vec<usize>, ClError> {
        let bytes = info_bytes("clGetDeviceInfo", &self.name, &|s, v, n| {
            self.ask(what, s, v, n)
        })?;
        let words = bytes.chunks_exact(size_of::<usize>());
        Ok(words
            .map(|w| usize::from_ne_bytes(w.try_into().expect("a chunk of this size")))
            .collect())
    }

    fn flag(&self, what: cl_device_info) -> Result<bool, ClError> {
        Ok(self.uint(what)? != CL_FALSE)
    }
}

impl Device {
    fn ask(
        library: &'static ClLibrary,
        platform: Handle,
        raw: Handle,
        index: usize,
    ) -> Result<Device, ClError> {
        let mut q = Questions {
            library,
            raw,
            name: format!("device {index}"),
            failed: OnceCell::new(),
        };
        let name = q.text(CL_DEVICE_NAME)?;
        q.name = format!("device {index} ({name})");
        let version = q.must(q.text(CL_DEVICE_VERSION));
        // Some OpenCL 1.0 platforms and emulators do not know the question.
        let c_version = q.text(CL_DEVICE_OPENCL_C_VERSION).unwrap_or_default();
        let extensions = q.must(q.text(CL_DEVICE_EXTENSIONS));
        let images = q.must(q.flag(CL_DEVICE_IMAGE_SUPPORT));
        let offers = |extension: &str| extensions.split_whitespace().any(|e| e == extension);
        let capability = |what| {
            q.uint(what)
                .ok()
                .filter(|_| offers("cl_nv_device_attribute_query"))
        };
        let properties = Properties {
            library,
            raw,
            platform,
            index,
            name,
            vendor: q.must(q.text(CL_DEVICE_VENDOR)),
            opencl: parse_version(&version),
            version,
            c_version,
            driver: q.must(q.text(CL_DRIVER_VERSION)),
            platform_name: q.must(platform_text(library, platform, CL_PLATFORM_NAME)),
            platform_version: q.must(platform_text(library, platform, CL_PLATFORM_VERSION)),
            kind: device_kind(q.must(q.ulong(CL_DEVICE_TYPE))),
            compute_units: q.must(q.uint(CL_DEVICE_MAX_COMPUTE_UNITS)),
            max_work_group: q.must(q.size(CL_DEVICE_MAX_WORK_GROUP_SIZE)),
            max_work_items: q.must(q.sizes(CL_DEVICE_MAX_WORK_ITEM_SIZES)),
            local_mem: q.must(q.ulong(CL_DEVICE_LOCAL_MEM_SIZE)),
            local_mem_kind: match q.must(q.uint(CL_DEVICE_LOCAL_MEM_TYPE)) {
                CL_LOCAL => LocalMemory::Dedicated,
                CL_GLOBAL => LocalMemory::Global,
                _ => LocalMemory::None,
            },
            global_mem: q.must(q.ulong(CL_DEVICE_GLOBAL_MEM_SIZE)),
            max_alloc: q.must(q.ulong(CL_DEVICE_MAX_MEM_ALLOC_SIZE)),
            // The driver counts in bits.
            mem_align: (q.must(q.uint(CL_DEVICE_MEM_BASE_ADDR_ALIGN)) as usize / 8).max(1),
            max_clock: q.uint(CL_DEVICE_MAX_CLOCK_FREQUENCY).unwrap_or(0),
            images,
            image2d_max: match images {
                true => (
                    q.must(q.size(CL_DEVICE_IMAGE2D_MAX_WIDTH)),
                    q.must(q.size(CL_DEVICE_IMAGE2D_MAX_HEIGHT)),
                ),
                false => (0, 0),
            },
            fp16: offers("cl_khr_fp16"),
            compute_capability: capability(CL_DEVICE_COMPUTE_CAPABILITY_MAJOR_NV)
                .zip(capability(CL_DEVICE_COMPUTE_CAPABILITY_MINOR_NV)),
            floats: q
                .ulong(CL_DEVICE_SINGLE_FP_CONFIG)
                .unwrap_or(CL_FP_INF_NAN | CL_FP_ROUND_TO_NEAREST),
            unified_memory: q.flag(CL_DEVICE_HOST_UNIFIED_MEMORY).unwrap_or(false),
            timer_resolution: q.must(q.size(CL_DEVICE_PROFILING_TIMER_RESOLUTION)),
            little_endian: q.must(q.flag(CL_DEVICE_ENDIAN_LITTLE)),
            extensions,
            available: q.must(q.flag(CL_DEVICE_AVAILABLE)),
            compiler_available: q.must(q.flag(CL_DEVICE_COMPILER_AVAILABLE)),
        };
        q.failed
            .into_inner()
            .map_or_else(|| Ok(Device(Arc::new(properties))), Err)
    }

    /// Asks for what only a listing shows.
    pub(crate) fn details(&self) -> Details {
        let (name, failed) = (self.name.clone(), OnceCell::new());
        let q = Questions {
            library: self.library,
            raw: self.raw,
            name,
            failed,
        };
        let widths = |name, preferred, native| (name, q.uint(preferred).ok(), q.uint(native).ok());
        Details {
            cache: q.ulong(CL_DEVICE_GLOBAL_MEM_CACHE_SIZE).ok(),
            cache_kind: match q.uint(CL_DEVICE_GLOBAL_MEM_CACHE_TYPE) {
                Ok(CL_NONE) => Some("none"),
                Ok(CL_READ_ONLY_CACHE) => Some("of reads"),
                Ok(CL_READ_WRITE_CACHE) => Some("of reads and writes"),
                _ => None,
            },
            cache_line: q.uint(CL_DEVICE_GLOBAL_MEM_CACHELINE_SIZE).ok(),
            vectors: [
                widths(
                    "char",
                    CL_DEVICE_PREFERRED_VECTOR_WIDTH_CHAR,
                    CL_DEVICE_NATIVE_VECTOR_WIDTH_CHAR,
                ),
                widths(
                    "short",
                    CL_DEVICE_PREFERRED_VECTOR_WIDTH_SHORT,
                    CL_DEVICE_NATIVE_VECTOR_WIDTH_SHORT,
                ),
                widths(
                    "int",
                    CL_DEVICE_PREFERRED_VECTOR_WIDTH_INT,
                    CL_DEVICE_NATIVE_VECTOR_WIDTH_INT,
                ),
                widths(
                    "long",
                    CL_DEVICE_PREFERRED_VECTOR_WIDTH_LONG,
                    CL_DEVICE_NATIVE_VECTOR_WIDTH_LONG,
                ),
                widths(
                    "half",
                    CL_DEVICE_PREFERRED_VECTOR_WIDTH_HALF,
                    CL_DEVICE_NATIVE_VECTOR_WIDTH_HALF,
                ),
                widths(
                    "float",
                    CL_DEVICE_PREFERRED_VECTOR_WIDTH_FLOAT,
                    CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT,
                ),
                widths(
                    "double",
                    CL_DEVICE_PREFERRED_VECTOR_WIDTH_DOUBLE,
                    CL_DEVICE_NATIVE_VECTOR_WIDTH_DOUBLE,
                ),
            ],
        }
    }

    /// Whether `extension` is among its extensions.
    pub(crate) fn offers(&self, extension: &str) -> bool {
        self.extensions.split_whitespace().any(|e| e == extension)
    }

    /// Why no network can run on it, if none can.
    pub(crate) fn unusable(&self) -> Option<&'static str> {
        if !self.little_endian {
            return Some(
                "it stores numbers with the high byte first (CL_DEVICE_ENDIAN_LITTLE is false), \
                 but the baked constants have the low byte first",
            );
        }
        if self.floats & CL_FP_INF_NAN == 0 {
            return Some(
                "its floats have neither infinities nor NaN (CL_DEVICE_SINGLE_FP_CONFIG), so an \
                 overflow would look like an answer",
            );
        }
        (!self.available).then_some("it is in use or switched off (CL_DEVICE_AVAILABLE is false)")
    }

    /// What its floats can do, in words.
    pub(crate) fn float_rules(&self) -> String {
        let has = |bit: u64| self.floats & bit != 0;
        let rounding = match (has(CL_FP_ROUND_TO_NEAREST), has(CL_FP_ROUND_TO_ZERO)) {
            (true, _) => "rounded to the nearest",
            (false, true) => "rounded to zero",
            (false, false) => "rounding not told",
        };
        let infinities = if has(CL_FP_INF_NAN) {
            "infinities and NaN"
        } else {
            "neither infinities nor NaN"
        };
        let small = if has(CL_FP_DENORM) {
            "denormal numbers"
        } else {
            "no denormal numbers"
        };
        format!("{rounding}, {infinities}, {small}")
    }

    /// Whether the device and the library both know OpenCL 1.2.
    pub(crate) fn has_1_2(&self) -> bool {
        self.opencl >= (1, 2) && self.library.api.clEnqueueFillBuffer.is_some()
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Device({} {:?}, {} compute units)",
            self.index, self.name, self.compute_units
        )
    }
}

fn device_kind(bits: cl_device_type) -> DeviceKind {
    match bits {
        b if b & CL_DEVICE_TYPE_GPU != 0 => DeviceKind::Gpu,
        b if b & CL_DEVICE_TYPE_CPU != 0 => DeviceKind::Cpu,
        b if b & CL_DEVICE_TYPE_ACCELERATOR != 0 => DeviceKind::Accelerator,
        _ => DeviceKind::Custom,
    }
}

/// `OpenCL 1.2 v1.r12p0` and `OpenCL C 1.2 v1.r12p0` to (1, 2).
fn parse_version(text: &str) -> (u32, u32) {
    let number = |t: &str| {
        let (major, minor) = t.split_once('.')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    };
    text.split_whitespace()
        .take(3)
        .find_map(number)
        .unwrap_or((0, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        assert_eq!(parse_version("OpenCL 1.2 v1.r12p0-04rel0"), (1, 2));
        assert_eq!(parse_version("OpenCL C 1.1 "), (1, 1));
        assert_eq!(parse_version("OpenCL 3.0 PoCL HSTR: x"), (3, 0));
        assert_eq!(parse_version("nonsense"), (0, 0));
    }
}
