//! The device and the plan that the command line asks for.

use crate::baked;
use crate::engine::opencl::Wanted;
use crate::engine::sources::Sources;
use crate::observe::trace::Track;
use crate::registry::EngineKind;

/// The value of `--device`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DeviceWish {
    /// The faster one of host and GPU, according to tuning records, a trial or the estimate.
    Auto,
    Host,
    /// Any OpenCL device: the first GPU, else the first accelerator, else the first CPU.
    OpenCl,
    /// The OpenCL device with this index.
    Index(usize),
    /// The OpenCL device whose name contains this text, ignoring case.
    Name(String),
    /// All GPUs and accelerators. If there are none, all devices of the best other kind.
    All,
    /// Several devices. Each entry of the list is one device or `All`.
    List(Vec<DeviceWish>),
}

impl DeviceWish {
    /// Parses the value of `--device`.
    ///
    /// # Errors
    /// An entry is empty, or is there twice, or is `auto` in a list.
    pub(crate) fn parse(text: &str) -> Result<DeviceWish, String> {
        let one = |text: &str| match text.trim() {
            "" => Err("expected auto, host, opencl, all, an index or part of a name".to_string()),
            "auto" => Ok(DeviceWish::Auto),
            "host" => Ok(DeviceWish::Host),
            "opencl" => Ok(DeviceWish::OpenCl),
            "all" => Ok(DeviceWish::All),
            _ => Ok(text
                .trim()
                .parse()
                .map_or_else(|_| DeviceWish::Name(text.to_string()), DeviceWish::Index)),
        };
        if !text.contains(',') {
            return one(text);
        }
        let list: Vec<DeviceWish> = text
            .split(',')
            .map(|t| one(t.trim()))
            .collect::<Result<_, _>>()?;
        if list.contains(&DeviceWish::Auto) {
            return Err(format!("auto stands alone, found \"{text}\""));
        }
        if list
            .iter()
            .enumerate()
            .any(|(i, wish)| list[..i].contains(wish))
        {
            return Err(format!("a device can take part once, found \"{text}\""));
        }
        Ok(DeviceWish::List(list))
    }

    /// Returns true if the wish can be several devices.
    pub(crate) fn is_several(&self) -> bool {
        matches!(self, DeviceWish::All | DeviceWish::List(_))
    }

    /// Returns the entries of a list, or the wish itself as the only entry.
    pub(super) fn each(&self) -> &[DeviceWish] {
        match self {
            DeviceWish::List(list) => list,
            one => std::slice::from_ref(one),
        }
    }
}

/// The part of the command line that decides what runs the network.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) device: DeviceWish,
    pub(crate) compute_units: Option<u32>,
    /// The value of `--plan`. `baked` stands for the plan that the build chose.
    pub(crate) plan: Option<String>,
    pub(crate) batch: Option<usize>,
    /// `--max-memory`, in bytes.
    pub(crate) max_memory: Option<u64>,
    /// The kinds of results that the host reads back from the device.
    pub(crate) wanted: Wanted,
    pub(crate) timed: bool,
    /// The track of the trace that gets each measured time. `None` without `--profile=trace`.
    pub(crate) track: Option<Track>,
    /// The kernel sources: the baked ones, or those in the folder of `--kernels`.
    pub(crate) sources: Sources,
    /// True if `auto` runs a trial of a device at its first start. Otherwise the estimate decides.
    pub(crate) tries: bool,
    /// True if a host with many threads may take larger batches than the plan says.
    pub(crate) grows: bool,
}

/// Returns true if the user named no device, no number of compute units and no plan that only one
/// engine runs.
pub(crate) fn is_auto(request: &Request) -> bool {
    request.device == DeviceWish::Auto
        && request.compute_units.is_none()
        && wished_engine(request).is_none()
}

/// Returns the engine of the plan that `--plan` names. `None` without `--plan`, or for `tuned`,
/// which either engine may have.
pub(super) fn wished_engine(request: &Request) -> Option<EngineKind> {
    match request.plan.as_deref()? {
        "baked" => Some(baked::plan().engine),
        "tuned" => None,
        name => baked::library().plan(name).ok().map(|r| r.engine),
    }
}
