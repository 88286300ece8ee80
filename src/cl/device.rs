//! The OpenCL devices, with their properties and limits. The driver is asked once for each device,
//! when the devices are listed. Only [`Device::details`] asks it again later.

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

/// The devices of all platforms, and the errors of the devices that are left out.
#[derive(Debug)]
pub(crate) struct Devices {
    /// The devices that answered. A device's position is the INDEX that users see and `--device`
    /// takes.
    pub(crate) devices: Vec<Device>,
    /// The errors of platforms and devices that are left out.
    pub(crate) errors: Vec<ClError>,
}

/// The kind of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeviceKind {
    Gpu,
    Cpu,
    /// An accelerator, for example a DSP.
    Accelerator,
    /// Any other device. It may not accept kernels in OpenCL C.
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

/// The kind of a device's local memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LocalMemory {
    /// Local memory is storage of its own, faster than global memory.
    Dedicated,
    /// Local memory is a part of global memory, so copying into it gains nothing (Mali).
    Global,
    /// The device has no local memory (some custom devices).
    None,
}

/// An OpenCL device. A clone stands for the same device.
#[derive(Clone)]
pub(crate) struct Device {
    properties: Arc<Properties>,
}

impl Deref for Device {
    type Target = Properties;

    fn deref(&self) -> &Properties {
        &self.properties
    }
}

/// The properties and limits of an OpenCL device. Texts are kept as the driver writes them.
pub(crate) struct Properties {
    pub(super) library: &'static ClLibrary,
    pub(super) raw: Handle,
    pub(super) platform: Handle,
    /// The device's position in [`Devices::devices`], from 0.
    pub(crate) index: usize,
    pub(crate) name: String,
    pub(crate) vendor: String,
    /// The text of CL_DEVICE_VERSION, such as `OpenCL 1.2 v1.r12p0`.
    pub(crate) version: String,
    /// The major and minor OpenCL version in `version`; (0, 0) if that text has no version.
    pub(crate) opencl: (u32, u32),
    /// The text of CL_DEVICE_OPENCL_C_VERSION. Empty if the driver has no answer.
    pub(crate) c_version: String,
    /// The version of the driver.
    pub(crate) driver: String,
    pub(crate) platform_name: String,
    pub(crate) platform_version: String,
    pub(crate) kind: DeviceKind,
    pub(crate) compute_units: u32,
    /// The most work-items in a work-group. A kernel's own limit may be lower.
    pub(crate) max_work_group: usize,
    /// The most work-items of a work-group in each dimension.
    pub(crate) max_work_items: Vec<usize>,
    /// Bytes of local memory.
    pub(crate) local_mem: u64,
    pub(crate) local_mem_kind: LocalMemory,
    /// Bytes of global memory.
    pub(crate) global_mem: u64,
    /// Bytes of the largest possible buffer.
    pub(crate) max_alloc: u64,
    /// The number of bytes of which the origin of every sub-buffer must be a multiple.
    pub(crate) mem_align: usize,
    /// The highest clock of the device in MHz, or 0 if the driver does not tell it.
    pub(crate) max_clock: u32,
    /// True if the device has images.
    pub(crate) images: bool,
    /// Largest width and height of a 2D image; (0, 0) without images.
    pub(crate) image2d_max: (usize, usize),
    /// True if kernels may compute in half precision (cl_khr_fp16).
    pub(crate) fp16: bool,
    /// Bits of CL_DEVICE_SINGLE_FP_CONFIG: the rounding and the special values of floats.
    pub(crate) floats: u64,
    /// True if host and device share their memory.
    pub(crate) unified_memory: bool,
    /// The resolution of event times in nanoseconds.
    pub(crate) timer_resolution: usize,
    /// True if the device stores the low byte of a number first, as the baked constants do.
    pub(crate) little_endian: bool,
    /// The names of the device's extensions, separated by blanks.
    pub(crate) extensions: String,
    /// NVIDIA's compute capability as (major, minor), if the device has
    /// cl_nv_device_attribute_query.
    pub(crate) compute_capability: Option<(u32, u32)>,
    /// True if the device has an instruction for the sum of four products of signed bytes, which
    /// `kernels/common/dot.cl` uses. Some drivers have the functions of
    /// `cl_khr_integer_dot_product` on every device, so they are asked if these are fast.
    pub(crate) multiplies_bytes: bool,
    /// False if the device is in use or switched off.
    pub(crate) available: bool,
    /// True if the driver can compile kernels.
    pub(crate) compiler_available: bool,
}

/// Device properties that `--list-devices` shows, but that decide nothing. A property is `None` if
/// the driver has no answer.
#[derive(Debug, Clone)]
pub(crate) struct Details {
    /// Bytes of the cache of global memory.
    pub(crate) cache: Option<u64>,
    /// The accesses that the cache of global memory serves, in words: none, of reads, or of reads
    /// and writes.
    pub(crate) cache_kind: Option<&'static str>,
    /// Bytes of a line of the cache of global memory.
    pub(crate) cache_line: Option<u32>,
    /// For each element type: its name, the vector width that the driver prefers, and the vector
    /// width of the hardware. Widths are in elements. A width of 0 means that the device lacks the
    /// type.
    pub(crate) vectors: [(&'static str, Option<u32>, Option<u32>); 7],
}

/// Lists the devices of all platforms. If one platform fails, the devices of the others are still
/// listed.
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

/// Returns the devices of one platform, and its name.
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
                (library.api.clGetDeviceIDs)(platform.pointer, CL_DEVICE_TYPE_ALL, room, ids, found)
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
        unsafe { (library.api.clGetPlatformInfo)(platform.pointer, what, size, value, needed) }
    })
}

/// Asks the driver for the properties of one device.
struct Questions {
    library: &'static ClLibrary,
    raw: Handle,
    /// The name of the device in errors.
    name: String,
    /// The driver's error for the first required property that it did not tell.
    failed: OnceCell<ClError>,
}

impl Questions {
    /// Returns the driver's answer to a required question. If there is none, returns a default and
    /// keeps the error in `failed`, which the caller checks in the end.
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
        unsafe { (self.library.api.clGetDeviceInfo)(self.raw.pointer, what, size, value, needed) }
    }

    fn text(&self, what: cl_device_info) -> Result<String, ClError> {
        info_text("clGetDeviceInfo", &self.name, &|s, v, n| {
            self.ask(what, s, v, n)
        })
    }

    fn fixed<const N: usize>(&self, what: cl_device_info) -> Result<[u8; N], ClError> {
        info_fixed("clGetDeviceInfo", &self.name, &|s, v, n| {
            self.ask(what, s, v, n)
        })
    }

    fn uint(&self, what: cl_device_info) -> Result<u32, ClError> {
        self.fixed(what).map(u32::from_ne_bytes)
    }

    fn ulong(&self, what: cl_device_info) -> Result<u64, ClError> {
        self.fixed(what).map(u64::from_ne_bytes)
    }

    fn size(&self, what: cl_device_info) -> Result<usize, ClError> {
        self.fixed(what).map(usize::from_ne_bytes)
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

    /// Largest width and height of a 2D image.
    fn image_limits(&self) -> (usize, usize) {
        (
            self.must(self.size(CL_DEVICE_IMAGE2D_MAX_WIDTH)),
            self.must(self.size(CL_DEVICE_IMAGE2D_MAX_HEIGHT)),
        )
    }

    fn flag(&self, what: cl_device_info) -> Result<bool, ClError> {
        Ok(self.uint(what)? != CL_FALSE)
    }

    /// NVIDIA's compute capability. `offers` returns true for the names of the device's extensions.
    fn capability(&self, offers: impl Fn(&str) -> bool) -> Option<(u32, u32)> {
        let number = |what| self.uint(what).ok();
        if !offers("cl_nv_device_attribute_query") {
            return None;
        }
        let major = number(CL_DEVICE_COMPUTE_CAPABILITY_MAJOR_NV)?;
        Some((major, number(CL_DEVICE_COMPUTE_CAPABILITY_MINOR_NV)?))
    }

    /// True if the device has an instruction for the sum of four products of signed bytes.
    fn multiplies_bytes(
        &self,
        capability: Option<(u32, u32)>,
        offers: impl Fn(&str) -> bool,
    ) -> bool {
        // Six flags. The first one is for bytes with signs.
        const FAST: cl_device_info =
            CL_DEVICE_INTEGER_DOT_PRODUCT_ACCELERATION_PROPERTIES_4x8BIT_PACKED;
        let fast = || self.fixed::<24>(FAST).is_ok_and(|f| f[..4] != [0; 4]);
        capability.is_some_and(|c| c >= (6, 1))
            || offers("cl_khr_integer_dot_product") && fast()
            || offers("cl_arm_integer_dot_product_int8")
            || offers("cl_arm_integer_dot_product_accumulate_int8")
    }
}

/// Asks for the preferred and the native vector width of each type.
macro_rules! widths {
    ($questions:ident: $($name:literal $preferred:ident $native:ident)*) => {
        [$(($name, $questions.uint($preferred).ok(), $questions.uint($native).ok()),)*]
    };
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
        // Some OpenCL 1.0 platforms and emulators do not know CL_DEVICE_OPENCL_C_VERSION.
        let c_version = q.text(CL_DEVICE_OPENCL_C_VERSION).unwrap_or_default();
        let extensions = q.must(q.text(CL_DEVICE_EXTENSIONS));
        let images = q.must(q.flag(CL_DEVICE_IMAGE_SUPPORT));
        let offers = |extension: &str| extensions.split_whitespace().any(|e| e == extension);
        let compute_capability = q.capability(offers);
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
            local_mem_kind: local_memory(q.must(q.uint(CL_DEVICE_LOCAL_MEM_TYPE))),
            global_mem: q.must(q.ulong(CL_DEVICE_GLOBAL_MEM_SIZE)),
            max_alloc: q.must(q.ulong(CL_DEVICE_MAX_MEM_ALLOC_SIZE)),
            // The driver gives this alignment in bits.
            mem_align: (q.must(q.uint(CL_DEVICE_MEM_BASE_ADDR_ALIGN)) as usize / 8).max(1),
            max_clock: q.uint(CL_DEVICE_MAX_CLOCK_FREQUENCY).unwrap_or(0),
            images,
            image2d_max: if images { q.image_limits() } else { (0, 0) },
            fp16: offers("cl_khr_fp16"),
            compute_capability,
            multiplies_bytes: q.multiplies_bytes(compute_capability, offers),
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
        let properties = Arc::new(properties);
        q.failed.into_inner().map_or(Ok(Device { properties }), Err)
    }

    /// Asks the driver for the properties that only `--list-devices` shows.
    pub(crate) fn details(&self) -> Details {
        let (name, failed) = (self.name.clone(), OnceCell::new());
        let q = Questions {
            library: self.library,
            raw: self.raw,
            name,
            failed,
        };
        Details {
            cache: q.ulong(CL_DEVICE_GLOBAL_MEM_CACHE_SIZE).ok(),
            cache_kind: match q.uint(CL_DEVICE_GLOBAL_MEM_CACHE_TYPE) {
                Ok(CL_NONE) => Some("none"),
                Ok(CL_READ_ONLY_CACHE) => Some("of reads"),
                Ok(CL_READ_WRITE_CACHE) => Some("of reads and writes"),
                _ => None,
            },
            cache_line: q.uint(CL_DEVICE_GLOBAL_MEM_CACHELINE_SIZE).ok(),
            vectors: widths! { q:
                "char" CL_DEVICE_PREFERRED_VECTOR_WIDTH_CHAR CL_DEVICE_NATIVE_VECTOR_WIDTH_CHAR
                "short" CL_DEVICE_PREFERRED_VECTOR_WIDTH_SHORT CL_DEVICE_NATIVE_VECTOR_WIDTH_SHORT
                "int" CL_DEVICE_PREFERRED_VECTOR_WIDTH_INT CL_DEVICE_NATIVE_VECTOR_WIDTH_INT
                "long" CL_DEVICE_PREFERRED_VECTOR_WIDTH_LONG CL_DEVICE_NATIVE_VECTOR_WIDTH_LONG
                "half" CL_DEVICE_PREFERRED_VECTOR_WIDTH_HALF CL_DEVICE_NATIVE_VECTOR_WIDTH_HALF
                "float" CL_DEVICE_PREFERRED_VECTOR_WIDTH_FLOAT CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT
                "double"
                CL_DEVICE_PREFERRED_VECTOR_WIDTH_DOUBLE CL_DEVICE_NATIVE_VECTOR_WIDTH_DOUBLE
            },
        }
    }

    /// Returns true if the device has this extension.
    pub(crate) fn offers(&self, extension: &str) -> bool {
        self.extensions.split_whitespace().any(|e| e == extension)
    }

    /// Returns the reason why no network can run on the device, if there is one.
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

    /// Returns the rounding and the special values of the device's floats, in words.
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

    /// Returns true if the device and the library both support OpenCL 1.2.
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

fn local_memory(kind: u32) -> LocalMemory {
    match kind {
        CL_LOCAL => LocalMemory::Dedicated,
        CL_GLOBAL => LocalMemory::Global,
        _ => LocalMemory::None,
    }
}

/// Parses a version: (1, 2) for `OpenCL 1.2 v1.r12p0` and for `OpenCL C 1.2 v1.r12p0`. A text
/// without a version gives (0, 0).
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
