//! The head of a report: device, driver, board, clocks and temperatures, as far as the system
//! reports them.

use crate::baked::{block, library, network};
use crate::cl::Device;
use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the first lines of a report, about the device, the machine and the program.
pub(crate) fn head(device: &Device) -> Vec<(String, String)> {
    let mut head = vec![
        ("device".to_string(), device.name.clone()),
        (
            "driver".into(),
            format!("{}, {}, {}", device.vendor, device.version, device.driver),
        ),
        (
            "limits".into(),
            format!(
                "{} compute units at {} MHz at most, work-groups of {} work-items, {} KiB local \
                 memory, {} MiB global memory",
                device.compute_units,
                device.max_clock,
                device.max_work_group,
                device.local_mem / 1024,
                device.global_mem >> 20
            ),
        ),
    ];
    if let Some(model) =
        read("/proc/device-tree/model").or_else(|| read("/sys/class/dmi/id/product_name"))
    {
        head.push(("board".into(), model));
    }
    head.extend(frequencies());
    head.extend(temperatures("before"));
    head.extend(origin());
    head
}

/// Returns the lines of a report's head about the program, its command line, and the date.
pub(crate) fn origin() -> Vec<(String, String)> {
    let seconds = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_secs());
    let arguments = std::env::args_os()
        .skip(1)
        .map(|a| quoted(&a.to_string_lossy()));
    let command: Vec<String> = std::iter::once("mortonnet".to_string())
        .chain(arguments)
        .collect();
    let program = format!(
        "mortonnet {}, library {}, network {} {}, constants {}",
        env!("CARGO_PKG_VERSION"),
        library().hash,
        network().name,
        network().hash,
        &block().hash()[..16]
    );
    vec![
        ("program".into(), program),
        ("command".into(), command.join(" ")),
        ("date".into(), date(seconds)),
    ]
}

/// Returns a command-line argument, in single quotes if a shell needs them.
fn quoted(argument: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./,:=+@%×".contains(c);
    match !argument.is_empty() && argument.chars().all(plain) {
        true => argument.into(),
        false => format!("'{}'", argument.replace('\'', "'\\''")),
    }
}

/// Returns a date like `2026-11-23 19:21 UTC`. It is in UTC because boards seldom know their time
/// zone.
fn date(seconds: u64) -> String {
    let (days, minutes) = (seconds / 86_400, seconds % 86_400 / 60);
    // Years are counted from March, so that a leap day is the last day of its year. 400 years
    // always have the same number of days.
    let since = days + 719_468;
    let (era, day) = (since / 146_097, since % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (day, late) = (day - (153 * month + 2) / 5 + 1, u64::from(month >= 10));
    let (year, month) = (
        era * 400 + year + late,
        if late == 1 { month - 9 } else { month + 3 },
    );
    format!(
        "{year}-{month:02}-{day:02} {:02}:{:02} UTC",
        minutes / 60,
        minutes % 60
    )
}

fn read(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = crate::escape::lines(text.trim_matches(['\0', '\n', ' '])).into_owned();
    (!text.is_empty()).then_some(text)
}

/// Returns the frequency and the governor of each device in `/sys/class/devfreq`, such as the GPU.
fn frequencies() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/sys/class/devfreq")
        .into_iter()
        .flatten()
        .flatten()
    {
        let folder = entry.path().display().to_string();
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(hz) = read(&format!("{folder}/cur_freq")).and_then(|t| t.parse::<u64>().ok())
        else {
            continue;
        };
        let governor = read(&format!("{folder}/governor")).unwrap_or_default();
        found.push((
            format!("clock {name}"),
            format!("{} MHz, governor {governor}", hz / 1_000_000),
        ));
    }
    found
}

/// Returns one line with the temperatures of all thermal zones, or none. The line's name contains
/// `when`.
pub(crate) fn temperatures(when: &str) -> Vec<(String, String)> {
    let mut zones = Vec::new();
    for entry in fs::read_dir("/sys/class/thermal")
        .into_iter()
        .flatten()
        .flatten()
    {
        let folder = entry.path().display().to_string();
        let Some(t) = read(&format!("{folder}/temp")).and_then(|t| t.parse::<f64>().ok()) else {
            continue;
        };
        let kind = read(&format!("{folder}/type")).unwrap_or_default();
        zones.push(format!("{kind} {:.1} °C", t / 1000.0));
    }
    if zones.is_empty() {
        Vec::new()
    } else {
        vec![(format!("temperature {when}"), zones.join(", "))]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, expected) in [
            (0, "1970-01-01 00:00 UTC"),
            (951_782_400, "2000-02-29 00:00 UTC"),
            (951_868_799, "2000-02-29 23:59 UTC"),
            (1_709_251_200, "2024-03-01 00:00 UTC"),
            (1_735_689_540, "2024-12-31 23:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00 UTC"),
        ] {
            assert_eq!(date(seconds), expected);
        }
    }

    #[test]
    fn arguments_are_as_a_shell_takes_them() {
        assert_eq!(quoted("--sizes=96,1000"), "--sizes=96,1000");
        assert_eq!(quoted("my board.html"), "'my board.html'");
        assert_eq!(quoted("it's"), "'it'\\''s'");
        assert_eq!(quoted(""), "''");
    }
}
