//! What heads a report: device, driver, board, clocks, temperatures, as far as the system tells.

use crate::baked::{block, library, network};
use crate::cl::Device;
use std::fs;

/// Device and machine, before the measurements.
pub(crate) fn head(device: &Device) -> Vec<(String, String)> {
    let mut head = vec![
        ("device".to_string(), device.name.clone()),
        ("driver".into(), format!("{}, {}, {}", device.vendor, device.version, device.driver)),
        (
            "limits".into(),
            format!(
                "{} compute units at {} MHz at most, work-groups of {} work-items, {} KiB local memory, {} MiB global memory",
                device.compute_units,
                device.max_clock,
                device.max_work_group,
                device.local_mem / 1024,
                device.global_mem >> 20
            ),
        ),
    ];
    if let Some(model) = read("/proc/device-tree/model").or_else(|| read("/sys/class/dmi/id/product_name")) {
        head.push(("board".into(), model));
    }
    head.extend(frequencies());
    head.extend(temperatures("before"));
    head.push((
        "program".into(),
        format!(
            "mortonnet {}, library {}, network {} {}, constants {}",
            env!("CARGO_PKG_VERSION"),
            library().hash,
            network().name,
            network().hash,
            &block().hash()[..16]
        ),
    ));
    head
}

fn read(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = crate::escape::lines(text.trim_matches(['\0', '\n', ' '])).into_owned();
    (!text.is_empty()).then_some(text)
}

/// Frequency and governor of the GPU, where the kernel shows them.
fn frequencies() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/sys/class/devfreq").into_iter().flatten().flatten() {
        let folder = entry.path().display().to_string();
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(hz) = read(&format!("{folder}/cur_freq")).and_then(|t| t.parse::<u64>().ok()) else {
            continue;
        };
        let governor = read(&format!("{folder}/governor")).unwrap_or_default();
        found.push((format!("clock {name}"), format!("{} MHz, governor {governor}", hz / 1_000_000)));
    }
    found
}

/// Temperatures of all thermal zones.
pub(crate) fn temperatures(when: &str) -> Vec<(String, String)> {
    let mut zones = Vec::new();
    for entry in fs::read_dir("/sys/class/thermal").into_iter().flatten().flatten() {
        let folder = entry.path().display().to_string();
        let Some(t) = read(&format!("{folder}/temp")).and_then(|t| t.parse::<f64>().ok()) else { continue };
        let kind = read(&format!("{folder}/type")).unwrap_or_default();
        zones.push(format!("{kind} {:.1} °C", t / 1000.0));
    }
    if zones.is_empty() { Vec::new() } else { vec![(format!("temperature {when}"), zones.join(", "))] }
}
