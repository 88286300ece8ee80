//! The result of `mortonnet tune` in the cache folder: the fastest plan for a device or the host.
//!
//! A tuning record is valid for one model, kernel library, device and driver. It has lines `key
//! value` and a checksum. The program treats it as a hint: it must name a variant of a plan that
//! `tune` could have tried. The plan must be possible for the network and run on the device. Other
//! records are ignored, with a reason under `-v`.

use super::cache::{self, Folder};
use super::{host, model, opencl};
use crate::baked::{library, network};
use crate::cl::Device;
use crate::escape;
use crate::ir::plan::MOST_RECORDS;
use crate::planner;
use crate::registry::{EngineKind, Groups, PlanRecipe};
use std::borrow::Cow;
use std::fmt::Write;

#[cfg(fuzzing)]
#[path = "../../tests/fuzz/checks/tuning.rs"]
pub(crate) mod fuzzing;

/// A tuning record: the fastest variant of a plan for a device or the host.
#[derive(Clone, Debug)]
pub(crate) struct TuningRecord {
    /// The record's path, for messages.
    pub(crate) file: String,
    pub(crate) recipe: PlanRecipe,
    /// Name and driver of the device. For the host engine: `host`, and its number of threads with
    /// the architecture.
    pub(crate) device: (String, String),
    /// The median time of a full batch in microseconds, from its records to its classes.
    pub(crate) median_us: f64,
}

impl TuningRecord {
    /// Returns the time per record of a full batch, in microseconds.
    pub(crate) fn us_per_record(&self) -> f64 {
        self.median_us / self.recipe.batch as f64
    }
}

/// The name of the host in tuning records. No OpenCL device has this name, because the names of
/// devices end with the number of compute units.
const HOST: &str = "host";

/// Returns the two texts that identify a device in tuning records: its name with its compute units,
/// and its driver. For the host (`None`) they are [`HOST`], and its threads and architecture.
pub(crate) fn identity(device: Option<&Device>) -> (String, String) {
    match device {
        Some(d) => (
            format!("{}, {} compute units", d.name, d.compute_units),
            d.driver.clone(),
        ),
        None => (
            HOST.into(),
            format!(
                "{} threads, {}",
                crate::sys::io::cores(),
                std::env::consts::ARCH
            ),
        ),
    }
}

fn file_name((device, driver): &(String, String)) -> String {
    let model = &network().hash[..network().hash.len().min(16)];
    format!(
        "tune-{model}-{:016x}",
        cache::hash(&[&library().hash, device, driver])
    )
}

/// Returns the tuning record for a device (`None`: the host) with this model, library and driver.
/// The record's plan must run there in batches of `batch`, or of the size in the record if `batch`
/// is `None`. If a record is ignored, returns `None` and adds the reason to `notes`.
pub(crate) fn record(
    device: Option<&Device>,
    batch: Option<usize>,
    notes: &mut Vec<String>,
) -> Option<TuningRecord> {
    let folder = folder(notes)?;
    let name = file_name(&identity(device));
    let found = read(&folder, &name).and_then(|record| {
        let Some(record) = record else {
            return Ok(None);
        };
        let plan =
            planner::plan(network(), &record.recipe, library(), batch).map_err(|e| e.join("; "))?;
        let admitted = device.map_or_else(|| host::admits(&plan), |d| opencl::admits(d, &plan));
        admitted.map(|()| Some(record)).map_err(|e| e.to_string())
    });
    unless_ignored(&folder, &name, found, notes)
}

/// Returns the record of the fastest OpenCL device that was tuned for this model and library. Adds
/// a line to `notes` for each record that is ignored.
pub(crate) fn fastest_device(notes: &mut Vec<String>) -> Option<TuningRecord> {
    let folder = folder(notes)?;
    let host = file_name(&identity(None));
    let names = folder.names(&host[..host.len() - HASH]);
    // Longer names are records that another process is still writing, so they are skipped.
    let names = names
        .iter()
        .filter(|name| name.len() == host.len() && **name != host);
    let records =
        names.filter_map(|name| unless_ignored(&folder, name, read(&folder, name), notes));
    records
        .filter(|r| r.recipe.engine == EngineKind::OpenCl)
        .min_by(|a, b| a.us_per_record().total_cmp(&b.us_per_record()))
}

/// Returns the cache folder. `None` if there is none. Also `None` if other users may write to the
/// folder, which a line of `notes` then says.
fn folder(notes: &mut Vec<String>) -> Option<Folder> {
    let folder = Folder::named().ok()?;
    match folder.check() {
        Ok(()) => Some(folder),
        Err(why) => {
            note(notes, format!("tuning records: {why}"));
            None
        }
    }
}

fn unless_ignored(
    folder: &Folder,
    name: &str,
    found: Result<Option<TuningRecord>, String>,
    notes: &mut Vec<String>,
) -> Option<TuningRecord> {
    found.unwrap_or_else(|why| {
        note(
            notes,
            format!(
                "tuning record {} is ignored: {why}",
                escape::path(&folder.at(name))
            ),
        );
        None
    })
}

/// Adds `line` to `notes`, unless an equal line is there already.
pub(crate) fn note(notes: &mut Vec<String>, line: String) {
    if !notes.contains(&line) {
        notes.push(line);
    }
}

const FIRST_LINE: &str = "mortonnet tune 1\n";

/// The size limit of a tuning record, which has some hundred bytes.
const MOST_BYTES: u64 = 64 << 10;

/// The number of hash digits at the end of a record's name.
const HASH: usize = 16;

/// Reads a tuning record. Returns `None` if there is no file called `name`. The error is the reason
/// why the record cannot be used.
fn read(folder: &Folder, name: &str) -> Result<Option<TuningRecord>, String> {
    let Some(text) = folder.text(name, MOST_BYTES)? else {
        return Ok(None);
    };
    let (recipe, device, median_us) = parse(&text, name)?;
    model::planned(network(), &recipe, library(), None)?;
    Ok(Some(TuningRecord {
        file: escape::path(&folder.at(name)),
        recipe,
        device,
        median_us,
    }))
}

/// Parses the plan, the device and the time of the tuning record in the file called `name`.
fn parse(text: &str, name: &str) -> Result<(PlanRecipe, (String, String), f64), String> {
    const OTHER: &str = "it is of another version of the program; run mortonnet tune again";
    if !text.starts_with(FIRST_LINE) {
        return Err(OTHER.into());
    }
    let parts = text
        .strip_suffix('\n')
        .and_then(|t| t.rsplit_once("\nchecksum "));
    let (lines, _) = parts
        .filter(|(lines, sum)| *sum == format!("{:016x}", cache::hash(&[lines])))
        .filter(|(lines, _)| lines.split('\n').all(|line| escape::line(line) == line))
        .ok_or("it is damaged")?;
    let find = |key: &str| {
        lines
            .split('\n')
            .find_map(|l| l.split_once(' ').filter(|(k, _)| *k == key))
            .map(|(_, value)| value)
    };
    let value = |key: &str| find(key).ok_or_else(|| format!("it has no {key}"));
    if value("program")? != env!("CARGO_PKG_VERSION") {
        return Err(OTHER.into());
    }
    if value("model")? != network().hash || value("library")? != library().hash {
        return Err("it is of another network or other kernels".into());
    }
    let device = (value("device")?.to_string(), value("driver")?.to_string());
    if file_name(&device) != name {
        return Err("it is of another device or driver".into());
    }
    let base = library().plan(value("plan")?)?;
    if (device.0 == HOST) != (base.engine == EngineKind::Host) {
        return Err(format!(
            "plan {} is for the engine {}",
            base.name, base.engine
        ));
    }
    let number = |key: &str| {
        let found = value(key)?;
        let wrong = || format!("{key}: expected a number from 1 to {MOST_RECORDS}, found {found}");
        found
            .parse()
            .ok()
            .filter(|n| (1..=MOST_RECORDS).contains(n))
            .ok_or_else(wrong)
    };
    let found = value("median-us")?;
    let median_us: f64 = found
        .parse()
        .ok()
        .filter(|us: &f64| us.is_finite() && *us > 0.0)
        .ok_or_else(|| format!("median-us: expected a number above 0, found {found}"))?;
    let kernels = kernels(base, value("kernels")?)?;
    let groups = groups(base, &kernels, lines)?;
    let same = *kernels == *base.kernels && groups == base.groups;
    let name = if same {
        base.name.clone()
    } else {
        tuned_name(&base.name).into()
    };
    let batch = number("batch")?;
    let recipe = PlanRecipe {
        name,
        batch,
        kernels: kernels.into(),
        groups,
        ..base.clone()
    };
    Ok((recipe, device, median_us))
}

/// Parses the kernels that a record lists: some or all kernels of the plan `base`, in the plan's
/// order.
fn kernels(base: &PlanRecipe, text: &str) -> Result<Vec<Cow<'static, str>>, String> {
    let index = |name: &str| library().kernel(name).map(|(i, _)| i);
    let mut of_plan = base.kernels.iter();
    text.split(' ')
        .map(
            |name| match of_plan.find(|k| index(k).is_some() && index(k) == index(name)) {
                Some(kernel) => Ok(kernel.clone()),
                None => Err(format!(
                    "{name} is no kernel of plan {}, or not in its order",
                    base.name
                )),
            },
        )
        .collect()
}

/// Parses the work-groups of a record. There is at most one for each kernel, of a size that `tune`
/// tries.
fn groups(base: &PlanRecipe, kernels: &[Cow<'static, str>], lines: &str) -> Result<Groups, String> {
    let mut groups: Vec<(Cow<'static, str>, (usize, usize))> = Vec::new();
    for line in lines
        .split('\n')
        .filter_map(|l| l.strip_prefix("work-group "))
    {
        let mut words = line.split(' ');
        let kernel = words
            .next()
            .and_then(|name| kernels.iter().find(|k| **k == name));
        let kernel = kernel.and_then(|name| Some((name, library().kernel(name)?.1)));
        let sizes: Vec<usize> = words
            .map(str::parse)
            .collect::<Result<_, _>>()
            .unwrap_or_default();
        match (kernel, sizes.as_slice()) {
            (Some((name, kernel)), &[rows, cols])
                if groups.iter().all(|(other, _)| other != name)
                    && (kernel.restrictions.sweep.contains(&(rows, cols))
                        || base.group(kernel) == Some((rows, cols))
                        || base.groups.contains(&(name.clone(), (rows, cols)))) =>
            {
                groups.push((name.clone(), (rows, cols)));
            }
            _ => {
                return Err(format!(
                    "work-group {line} is none that tuning tries for plan {}",
                    base.name
                ));
            }
        }
    }
    Ok(groups.into())
}

pub(crate) fn tuned_name(plan: &str) -> String {
    format!("{}-tuned", plan.strip_suffix("-tuned").unwrap_or(plan))
}

/// Stores the tuning record of `recipe`, a variant of the library's plan `plan`. `times` has the
/// median and the spread in microseconds. Returns the file's path for messages, or the reason for
/// the failure.
pub(crate) fn remember(
    plan: &str,
    recipe: &PlanRecipe,
    identity: &(String, String),
    times: (f64, f64),
) -> Result<String, String> {
    let text = record_text(plan, recipe, identity, times);
    let folder = Folder::named().map_err(|why| {
        format!("there is no cache folder to remember it in (MORTONNET_CACHE): {why}")
    })?;
    let written = folder.write(&file_name(identity), text.as_bytes());
    written
        .map(|file| escape::path(&file))
        .map_err(|e| format!("it cannot be remembered in {}: {e}", folder.name()))
}

/// Returns the text of a tuning record, as [`parse`] reads it.
fn record_text(
    plan: &str,
    recipe: &PlanRecipe,
    identity: &(String, String),
    (median, spread): (f64, f64),
) -> String {
    let mut text = format!(
        "{FIRST_LINE}program {}\nmodel {}\nlibrary {}\ndevice {}\ndriver {}\nplan {plan}\nkernels \
         {}\n",
        env!("CARGO_PKG_VERSION"),
        network().hash,
        library().hash,
        identity.0,
        identity.1,
        recipe.kernels.join(" ")
    );
    for (kernel, (rows, cols)) in recipe.groups.iter() {
        let _ = writeln!(text, "work-group {kernel} {rows} {cols}");
    }
    let _ = write!(
        text,
        "batch {}\nmedian-us {median:.2}\nspread-us {spread:.2}",
        recipe.batch
    );
    let sum = cache::hash(&[&text]);
    let _ = writeln!(text, "\nchecksum {sum:016x}");
    text
}

#[cfg(test)]
/// Returns the file name and the text of a record of `recipe`, for the host or an example device.
fn of(plan: &str, recipe: &PlanRecipe) -> (String, String) {
    let host = identity(None);
    let device = ("Mali-T628, 4 compute units".to_string(), "1.1".to_string());
    let identity = if recipe.engine == EngineKind::Host {
        host
    } else {
        device
    };
    (
        file_name(&identity),
        record_text(plan, recipe, &identity, (12.5, 1.0)),
    )
}

/// Writes a record of `recipe` as text and parses it again. The tests of this file and of the lab
/// use it.
#[cfg(test)]
pub(crate) fn read_back(plan: &str, recipe: &PlanRecipe) -> Result<PlanRecipe, String> {
    let (name, text) = of(plan, recipe);
    parse(&text, &name).map(|(recipe, ..)| recipe)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::model::Model;

    #[test]
    fn what_tuning_writes_comes_back() {
        for plan in library().plans.iter() {
            assert_eq!(read_back(&plan.name, plan), Ok(plan.clone()));
            let batch = PlanRecipe {
                batch: 7,
                ..plan.clone()
            };
            assert_eq!(
                read_back(&plan.name, &batch),
                Ok(batch.clone()),
                "the name says nothing of the batch"
            );
        }
    }

    /// A record with kernels of another plan is refused. The host engine also refuses to run a plan
    /// with the kernels of an OpenCL plan.
    #[test]
    fn kernels_of_another_plan_are_refused() {
        let mut refused = 0;
        for plan in library().plans.iter() {
            for other in library()
                .plans
                .iter()
                .filter(|other| other.kernels != plan.kernels)
            {
                let mixed = PlanRecipe {
                    kernels: other.kernels.clone(),
                    groups: Cow::Borrowed(&[]),
                    few: None,
                    ..plan.clone()
                };
                let part_of = other.kernels.iter().all(|k| plan.kernels.contains(k));
                let found = read_back(&plan.name, &mixed);
                assert_eq!(
                    found.is_ok(),
                    part_of,
                    "{} {}: {found:?}",
                    plan.name,
                    other.name
                );
                let Ok(lowered) = planner::plan(network(), &mixed, library(), None) else {
                    continue;
                };
                assert_eq!(
                    host::admits(&lowered).is_ok(),
                    other.engine == EngineKind::Host,
                    "{}",
                    other.name
                );
                if plan.engine == EngineKind::Host {
                    let model = Model::baked(&mixed, None).unwrap();
                    let started = host::HostEngine::new(model, 1, false).map(drop);
                    assert!(
                        started
                            .unwrap_err()
                            .to_string()
                            .starts_with("host engine: ")
                    );
                    refused += 1;
                }
            }
        }
        assert!(refused >= 8, "{refused}");
    }

    #[test]
    fn every_changed_byte_is_seen() {
        let (name, text) = of("host", library().plan("host").unwrap());
        parse(&text, &name).unwrap();
        for i in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[i] ^= 1;
            if let Ok(text) = String::from_utf8(bytes) {
                assert!(parse(&text, &name).is_err(), "byte {i}");
            }
            assert!(parse(&text[..i], &name).is_err(), "{i} bytes");
        }
        assert!(
            parse(&text, "tune-0-0")
                .unwrap_err()
                .contains("of another device or driver")
        );
    }
}
