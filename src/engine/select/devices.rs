//! OpenCL devices: choosing among them, and describing them in words.

use super::wish::{DeviceWish, Request};
use crate::cl::{self, ClLibrary, Device, DeviceKind, Devices, LocalMemory};
use crate::engine::opencl;
use crate::error::Error;
use std::fmt::{Display, Write};

/// Returns the devices that `--device` names, in the same order. `None` in the result stands for
/// the host.
pub(super) fn chosen(
    request: &Request,
    devices: &Devices,
    library: &ClLibrary,
) -> Result<Vec<Option<Device>>, Error> {
    let (mut found, units) = (Vec::new(), request.compute_units);
    let named = |wish: &DeviceWish| !matches!(wish, DeviceWish::Host | DeviceWish::All);
    if units.is_some() && request.device.is_several() && request.device.each().iter().any(named) {
        return Err(Error::usage(
            "--compute-units chooses one device, or some of --device all; a list names its devices",
        ));
    }
    for wish in request.device.each() {
        match wish {
            DeviceWish::Host => found.push(None),
            DeviceWish::All => found.extend(all(devices, units, library)?.into_iter().map(Some)),
            wish => found.push(Some(choose(devices, wish, units, library)?)),
        }
    }
    for (i, device) in found.iter().enumerate() {
        let Some(device) = device else { continue };
        if found[..i]
            .iter()
            .flatten()
            .any(|d: &Device| d.index == device.index)
        {
            return Err(Error::usage(format!(
                "--device: a device can take part once, the list has {} twice",
                line(device)
            )));
        }
    }
    Ok(found)
}

/// Returns all usable GPUs and accelerators with `units` compute units (`None`: any number). If
/// there are none, returns all such CPUs, or else all such custom devices.
fn all(devices: &Devices, units: Option<u32>, library: &ClLibrary) -> Result<Vec<Device>, Error> {
    let fits = |d: &&Device| d.unusable().is_none() && units.is_none_or(|n| n == d.compute_units);
    let kind = |d: &&Device| rank(d).max(1);
    let best = devices.devices.iter().filter(fits).map(|d| kind(&d)).min();
    let all = devices
        .devices
        .iter()
        .filter(fits)
        .filter(|d| Some(kind(d)) == best);
    match best {
        Some(_) => Ok(all.cloned().collect()),
        None => Err(unfit(
            "no OpenCL device",
            &DeviceWish::All,
            units,
            devices,
            library,
        )),
    }
}

/// Returns the one device that `wish` names.
///
/// # Errors
/// No device or several devices match. The message lists all devices.
pub(crate) fn choose(
    devices: &Devices,
    wish: &DeviceWish,
    compute_units: Option<u32>,
    library: &ClLibrary,
) -> Result<Device, Error> {
    let units = |d: &&Device| compute_units.is_none_or(|n| n == d.compute_units);
    let matching: Vec<&Device> = match wish {
        DeviceWish::Index(i) => devices
            .devices
            .iter()
            .filter(|d| d.index == *i)
            .filter(units)
            .collect(),
        DeviceWish::Name(part) => {
            let part = part.to_ascii_lowercase();
            devices
                .devices
                .iter()
                .filter(|d| d.name.to_ascii_lowercase().contains(&part))
                .filter(units)
                .collect()
        }
        _ => {
            let usable = |d: &&Device| d.unusable().is_none();
            let mut all: Vec<&Device> = devices
                .devices
                .iter()
                .filter(units)
                .filter(usable)
                .collect();
            // Only devices of the best kind match. With --compute-units there must be exactly one
            // such device.
            let best = all.iter().map(|d| rank(d)).min();
            all.retain(|d| Some(rank(d)) == best);
            if compute_units.is_none() {
                all.truncate(1);
            }
            all
        }
    };
    if let [one] = matching.as_slice() {
        return match one.unusable() {
            None => Ok((*one).clone()),
            Some(why) => Err(Error::device(format!("{}: {why}", line(one)))),
        };
    }
    let count = if matching.is_empty() {
        "no OpenCL device"
    } else {
        "more than one OpenCL device"
    };
    Err(unfit(count, wish, compute_units, devices, library))
}

fn unfit(
    count: &str,
    wish: &DeviceWish,
    compute_units: Option<u32>,
    devices: &Devices,
    library: &ClLibrary,
) -> Error {
    let mut wishes = match wish {
        DeviceWish::Index(i) => vec![format!("index {i}")],
        DeviceWish::Name(part) => vec![format!("a name with \"{part}\"")],
        _ => Vec::new(),
    };
    wishes.extend(compute_units.map(|n| format!("{n} compute units")));
    let wishes = if wishes.is_empty() {
        "can be used".into()
    } else {
        format!("has {}", wishes.join(" and "))
    };
    Error::device(format!(
        "{count} {wishes}; {} offers\n{}",
        library.path(),
        listing(devices, false)
    ))
}

/// Returns the rank of a device's kind. Lower ranks are preferred, and 0 is the best.
fn rank(d: &Device) -> u32 {
    match d.kind {
        DeviceKind::Gpu => 0,
        DeviceKind::Accelerator => 1,
        DeviceKind::Cpu => 2,
        DeviceKind::Custom => 3,
    }
}

/// Returns true if `auto` may choose the device. It never chooses CPUs, which the user must name.
pub(super) fn serves(d: &Device) -> bool {
    matches!(d.kind, DeviceKind::Gpu | DeviceKind::Accelerator) && d.unusable().is_none()
}

/// Describes a device on one line: index, name, kind and compute units.
pub(super) fn line(d: &Device) -> String {
    format!(
        "{}: {} ({}, {} compute units)",
        d.index, d.name, d.kind, d.compute_units
    )
}

/// Lists all devices, with two lines for each. With `all` the list has every property of each
/// device.
pub(crate) fn listing(devices: &Devices, all: bool) -> String {
    let mut text = String::new();
    for d in &devices.devices {
        let _ = writeln!(text, "{}", line(d));
        let _ = writeln!(text, "   {}, {}, driver {}", d.vendor, d.version, d.driver);
        if let Some(why) = d.unusable() {
            let _ = writeln!(text, "   cannot be used: {why}");
        }
        if all {
            text.push_str(&facts(d));
        }
    }
    for e in &devices.errors {
        let _ = writeln!(text, "   a platform failed: {e}");
    }
    if devices.devices.is_empty() {
        text.push_str("no devices\n");
    }
    let served = devices.devices.iter().any(|d| d.kind == DeviceKind::Gpu);
    cl::nodes(served)
        .iter()
        .for_each(|line| text.extend([line, "\n"]));
    text.trim_end().to_string()
}

/// Lists the properties of a device, one on each line: those in table 2.1 of the thesis, and all
/// others that plans depend on.
fn facts(d: &Device) -> String {
    let details = d.details();
    let mut text = String::new();
    let mut row = |name: &str, value: &dyn Display| {
        let _ = writeln!(text, "   {name:<24}{value}");
    };
    fn told<T: Display>(value: Option<T>, unit: &str) -> String {
        let value = value.as_ref().map(|value| value as &dyn Display);
        value.map_or("not told".into(), |v| format!("{v}{unit}"))
    }
    let yes = |flag: bool| if flag { "yes" } else { "no" };
    row("global memory", &format_args!("{} bytes", d.global_mem));
    row(
        "  cache",
        &format_args!(
            "{}, {}",
            told(details.cache, " bytes"),
            told(details.cache_kind, "")
        ),
    );
    row("  cache line", &told(details.cache_line, " bytes"));
    let lines = details
        .cache
        .zip(details.cache_line.filter(|&line| line > 0));
    row(
        "  cache lines",
        &told(lines.map(|(cache, line)| cache / u64::from(line)), ""),
    );
    row("  largest buffer", &format_args!("{} bytes", d.max_alloc));
    row(
        "  sub-buffers start at",
        &format_args!("multiples of {} bytes", d.mem_align),
    );
    row("  shared with the host", &yes(d.unified_memory));
    let place = match d.local_mem_kind {
        LocalMemory::Dedicated => "of its own",
        LocalMemory::Global => "in global memory",
        LocalMemory::None => "none",
    };
    row(
        "local memory",
        &format_args!("{} bytes, {place}", d.local_mem),
    );
    for (name, preferred, native) in details.vectors {
        let widths = format!(
            "{} preferred, {} native",
            told(preferred, ""),
            told(native, "")
        );
        row(&format!("vectors of {name}"), &widths);
    }
    row("clock", &format_args!("{} MHz at most", d.max_clock));
    row("compute units", &d.compute_units);
    row(
        "work-group",
        &format_args!("{} work-items at most", d.max_work_group),
    );
    let sizes: Vec<String> = d.max_work_items.iter().map(usize::to_string).collect();
    row("  in each dimension", &sizes.join(", "));
    row("timer", &format_args!("{} ns", d.timer_resolution));
    row(
        "images",
        &match d.images {
            true => format!(
                "2D, {} × {} pixels at most",
                d.image2d_max.0, d.image2d_max.1
            ),
            false => "no".into(),
        },
    );
    row("floats", &d.float_rules());
    row("half precision", &yes(d.fp16));
    row(
        "double precision",
        &yes(d.offers("cl_khr_fp64") || d.offers("cl_amd_fp64")),
    );
    row("low byte first", &yes(d.little_endian));
    row(
        "compiler",
        &if d.compiler_available {
            d.c_version.clone()
        } else {
            "none".into()
        },
    );
    if let Some((major, minor)) = d.compute_capability {
        row("compute capability", &format_args!("{major}.{minor}"));
    }
    if let Some(class) = opencl::class(d) {
        row(
            "class",
            &format_args!("{}, plan {}", class.name, class.plan),
        );
    }
    row(
        "platform",
        &format_args!("{}, {}", d.platform_name, d.platform_version),
    );
    row(
        "extensions",
        &d.extensions
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" "),
    );
    text
}
