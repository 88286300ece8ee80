//! Reads the kernel library from a file like `kernels/library.json`, and the kernel sources, and
//! checks one against the other. The build reads the library that it bakes. `bench --library` reads
//! a file on top of the baked library.

mod kernel;
mod source;

use super::json::{Json, Object};
use super::mistakes::Mistakes;
use super::{
    DRIVERS_CHOICE, DeviceClass, EngineKind, FewRecords, Groups, Kernel, KernelSources, Library,
    Operation, PlanRecipe,
};
use crate::ir::plan::MOST_RECORDS;
use sha2::{Digest, Sha256};
use std::borrow::Cow;

/// The version of the library file's format.
pub(crate) const FORMAT: usize = 1;

/// The largest tile, work-group or alignment. Kernels count work-items in 32 bits.
const MOST_SIZE: usize = 1 << 16;

/// A function that finds a kernel source by its path below the folder of kernels. The second
/// argument is the place that messages name. Returns the source file's name and its text.
pub(crate) type FindSource<'t> =
    &'t mut dyn FnMut(&str, &str, &mut Mistakes) -> Option<(String, String)>;

/// A file that holds a kernel library.
pub(crate) struct LibraryFile<'f> {
    /// The name of the file in messages.
    pub(crate) name: &'f str,
    pub(crate) text: &'f str,
    /// The JSON value of the text.
    pub(crate) value: &'f Json,
}

/// A library that a file of `--library` extends, with its sources.
pub(crate) struct BaseLibrary<'b> {
    pub(crate) library: &'b Library,
    pub(crate) sources: &'b KernelSources,
}

/// The kernel library that was read from a file.
pub(crate) struct LoadedLibrary {
    pub(crate) library: Library,
    pub(crate) sources: KernelSources,
    /// Codenames of the kernels that the file itself has, without those of a base library.
    pub(crate) own: Vec<Cow<'static, str>>,
}

/// Reads a library. With a `base` library the file needs only kernels. The file's entries come
/// before those of the base, and replace entries of the same name. Each path in `files` must be
/// used, as the source of a kernel or by several sources. Returns `None` after a mistake.
pub(crate) fn read(
    file: &LibraryFile<'_>,
    base: Option<&BaseLibrary<'_>>,
    find: FindSource<'_>,
    files: &[String],
    mistakes: &mut Mistakes,
) -> Option<LoadedLibrary> {
    const KEYS: [&str; 5] = ["format", "sources", "plans", "devices", "hosts"];
    let before = mistakes.lines.len();
    let name = file.name;
    let o = Object::new(file.value, name.into(), &KEYS, mistakes)?;
    o.require_all(if base.is_some() { &KEYS[..2] } else { &KEYS }, mistakes);
    if let Some(format) = o.count("format", mistakes).filter(|&f| f != FORMAT) {
        mistakes.add(
            o.at("format"),
            format_args!("expected {FORMAT}, found {format}"),
        );
    }
    let mut kernels = read_own_kernels(&o, mistakes);
    let names: Vec<_> = kernels.iter().map(|k| k.codename.clone()).collect();
    let library = base.map(|b| b.library);
    extend_missing(&mut kernels, library.map(|l| &*l.kernels), |a, b| {
        a.codename == b.codename
    });
    let mut plans: Vec<PlanRecipe> = entries(&o, "plans", mistakes)
        .into_iter()
        .filter_map(|entry| read_plan(entry, &kernels, mistakes))
        .collect();
    extend_missing(&mut plans, library.map(|l| &*l.plans), |a, b| {
        a.name == b.name
    });
    let mut classes = |key: &str, engine: EngineKind| -> Vec<DeviceClass> {
        let own = entries(&o, key, mistakes).into_iter();
        own.filter_map(|entry| read_class(entry, engine, &plans, mistakes))
            .collect()
    };
    let mut devices = classes("devices", EngineKind::OpenCl);
    let mut hosts = classes("hosts", EngineKind::Host);
    let own = &kernels[..names.len()];
    let mut sources = source::read(name, own, find, mistakes);
    check_files(name, own, files, mistakes);
    if let Some(base) = base {
        devices.extend(base.library.devices.iter().cloned());
        hosts.extend(base.library.hosts.iter().cloned());
    }
    extend_missing(
        &mut sources,
        base.map(|b| &**b.sources),
        |(a, _), (b, _)| a == b,
    );
    check_without_lab(name, &plans, mistakes);
    let library = Library {
        hash: hash(file.text, &sources).into(),
        kernels: kernels.into(),
        plans: plans.into(),
        devices: devices.into(),
        hosts: hosts.into(),
    };
    let loaded = LoadedLibrary {
        library,
        sources: sources.into(),
        own: names,
    };
    (mistakes.lines.len() == before).then_some(loaded)
}

/// One entry of a list in the library file.
struct ListEntry<'v> {
    value: &'v Json,
    /// The place of the entry in messages, for example `kernels/library.json: plans[3]`.
    place: String,
}

fn entries<'v>(o: &Object<'v>, key: &str, mistakes: &mut Mistakes) -> Vec<ListEntry<'v>> {
    let list = o.list(key, mistakes).into_iter().flatten().enumerate();
    list.map(|(i, value)| ListEntry {
        value,
        place: format!("{}[{i}]", o.at(key)),
    })
    .collect()
}

/// Appends those items of `base` that `own` lacks. The function `same` compares two items.
fn extend_missing<T: Clone>(own: &mut Vec<T>, base: Option<&[T]>, same: impl Fn(&T, &T) -> bool) {
    let base = base.unwrap_or_default().iter();
    let missing: Vec<T> = base
        .filter(|b| !own.iter().any(|o| same(o, b)))
        .cloned()
        .collect();
    own.extend(missing);
}

fn read_own_kernels(o: &Object<'_>, mistakes: &mut Mistakes) -> Vec<Kernel> {
    let kernels: Vec<Kernel> = entries(o, "sources", mistakes)
        .into_iter()
        .filter_map(|entry| kernel::read(entry, mistakes))
        .collect();
    for (i, kernel) in kernels.iter().enumerate() {
        if kernels[..i].iter().any(|k| k.codename == kernel.codename) {
            mistakes.add(
                format_args!("{}[{i}]", o.at("sources")),
                format_args!("{} is there twice", kernel.codename),
            );
        }
    }
    kernels
}

/// Checks that the library uses each path in `files`: as the source of a kernel, or as a file that
/// sources share.
fn check_files(name: &str, kernels: &[Kernel], files: &[String], mistakes: &mut Mistakes) {
    let shared = source::common(kernels);
    for file in files {
        let own = kernels.iter().any(|k| k.source.as_deref() == Some(file));
        if !own && !shared.contains(&&**file) {
            mistakes.add(
                format_args!("kernels/{file}"),
                format_args!("no entry of {name} uses this file"),
            );
        }
    }
}

/// Checks that each `withoutLab` names a plan that programs without the lab also have.
fn check_without_lab(name: &str, plans: &[PlanRecipe], mistakes: &mut Mistakes) {
    for (i, plan) in plans.iter().enumerate() {
        let other = &plan.without_lab;
        let everywhere = |p: &PlanRecipe| p.name == *other && p.without_lab.is_empty();
        if !other.is_empty() && !plans.iter().any(everywhere) {
            mistakes.add(
                format_args!("{name}: plans[{i}].withoutLab"),
                format_args!("expected a plan of every program, found \"{other}\""),
            );
        }
    }
}

/// Returns a hash of the library's text and all sources: the first 8 bytes of a SHA-256, in
/// hexadecimal.
fn hash(text: &str, sources: &[(Cow<'static, str>, Cow<'static, str>)]) -> String {
    let mut sha = Sha256::new();
    sha.update(text);
    for (path, text) in sources {
        sha.update(format!("{path}\0{text}\0"));
    }
    let bytes = sha.finalize();
    bytes[..8]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn engine(o: &Object<'_>, mistakes: &mut Mistakes) -> Option<EngineKind> {
    o.require("engine", mistakes);
    match o.text("engine", mistakes)? {
        "host" => Some(EngineKind::Host),
        "opencl" => Some(EngineKind::OpenCl),
        other => {
            mistakes.add(
                o.at("engine"),
                format_args!("expected host or opencl, found \"{other}\""),
            );
            None
        }
    }
}

fn read_plan(
    entry: ListEntry<'_>,
    kernels: &[Kernel],
    mistakes: &mut Mistakes,
) -> Option<PlanRecipe> {
    let keys = [
        "name",
        "engine",
        "batch",
        "about",
        "kernels",
        "few",
        "workGroups",
        "withoutLab",
    ];
    let o = Object::new(entry.value, entry.place, &keys, mistakes)?;
    let recipe = plan_recipe(&o, kernels, mistakes)?;
    let without_lab = o.text("withoutLab", mistakes).unwrap_or("");
    Some(PlanRecipe {
        without_lab: without_lab.to_string().into(),
        ..recipe
    })
}

/// Reads the keys that are common to plans of the library and plan files.
pub(crate) fn plan_recipe(
    o: &Object<'_>,
    kernels: &[Kernel],
    mistakes: &mut Mistakes,
) -> Option<PlanRecipe> {
    o.require_all(&["name", "engine", "batch", "about", "kernels"], mistakes);
    let engine = engine(o, mistakes);
    let names = o.texts("kernels", mistakes)?;
    let engine = engine?;
    check_kernels(o.at("kernels"), &names, engine, kernels, mistakes);
    let few = o
        .get("few")
        .and_then(|value| read_few(value, o.at("few"), engine, kernels, mistakes));
    let batch = from_one(o, "batch", MOST_RECORDS, mistakes)?.unwrap_or(1);
    Some(PlanRecipe {
        name: o.text("name", mistakes)?.to_string().into(),
        about: o.text("about", mistakes)?.to_string().into(),
        engine,
        batch,
        groups: read_groups(o, &names, mistakes),
        few,
        without_lab: "".into(),
        kernels: names.into_iter().map(Into::into).collect::<Vec<_>>().into(),
    })
}

/// Checks that the kernels exist and run on the plan's engine. The planner chooses between kernels
/// by size only for affine and convolution nodes. So a plan may have only one kernel of each other
/// operation.
fn check_kernels(
    place: String,
    names: &[String],
    engine: EngineKind,
    kernels: &[Kernel],
    mistakes: &mut Mistakes,
) {
    let mut operations = Vec::new();
    for name in names {
        match kernels.iter().find(|k| k.codename == *name) {
            None => mistakes.add(&place, format_args!("no kernel is called \"{name}\"")),
            Some(k) if k.restrictions.needs.host != (engine == EngineKind::Host) => {
                mistakes.add(
                    &place,
                    format_args!("{name} does not run on the {engine} engine"),
                );
            }
            Some(k)
                if !matches!(k.operation, Operation::Affine | Operation::Convolution)
                    && operations.contains(&k.operation) =>
            {
                mistakes.add(
                    &place,
                    format_args!("{name}: a second kernel for {}", k.operation.name()),
                );
            }
            Some(k) => operations.push(k.operation),
        }
    }
}

/// Reads the variant for few records, `"few": {"records": …, "kernels": […]}`.
fn read_few(
    value: &Json,
    place: String,
    engine: EngineKind,
    kernels: &[Kernel],
    mistakes: &mut Mistakes,
) -> Option<FewRecords> {
    let o = Object::new(value, place, &["records", "kernels"], mistakes)?;
    o.require_all(&["records", "kernels"], mistakes);
    let records = from_one(&o, "records", MOST_RECORDS, mistakes)?.unwrap_or(1);
    let names = o.texts("kernels", mistakes)?;
    if engine == EngineKind::Host {
        mistakes.add(o.place(), "expected a plan of the opencl engine");
    }
    check_kernels(o.at("kernels"), &names, engine, kernels, mistakes);
    Some(FewRecords {
        records,
        kernels: names.into_iter().map(Into::into).collect(),
    })
}

/// Reads the work-groups, `"workGroups": {"affine_…": [4, 16], …}`. The keys must be kernels of the
/// plan.
fn read_groups(o: &Object<'_>, names: &[String], mistakes: &mut Mistakes) -> Groups {
    let place = o.at("workGroups");
    let Some(value) = o.get("workGroups") else {
        return Groups::default();
    };
    let Some(map) = value.as_object() else {
        mistakes.add(place, "expected {KERNEL: [rows, columns] or null, …}");
        return Groups::default();
    };
    let mut groups = Vec::new();
    for (name, value) in map {
        if !names.contains(name) {
            mistakes.add(&place, format_args!("the plan has no kernel {name}"));
        }
        let group = if value.is_null() {
            Some(DRIVERS_CHOICE)
        } else {
            sizes(value, &place, mistakes)
        };
        groups.extend(group.map(|group| (name.clone().into(), group)));
    }
    groups.into()
}

fn read_class(
    entry: ListEntry<'_>,
    engine: EngineKind,
    plans: &[PlanRecipe],
    mistakes: &mut Mistakes,
) -> Option<DeviceClass> {
    let keys = [
        "name",
        "matches",
        "plan",
        "launchUs",
        "gflops",
        "flopPerCycle",
        "stopsAfterFailure",
        "kind",
        "leastComputeCapability",
    ];
    let o = Object::new(entry.value, entry.place, &keys, mistakes)?;
    o.require_all(&keys[..5], mistakes);
    let plan = o.text("plan", mistakes)?;
    if !plans.iter().any(|p| p.name == plan && p.engine == engine) {
        mistakes.add(
            o.at("plan"),
            format_args!("no plan of the {engine} engine is called \"{plan}\""),
        );
    }
    let kind = o.text("kind", mistakes);
    if kind.is_some_and(|k| k != "cpu") {
        mistakes.add(o.at("kind"), "expected \"cpu\"");
    }
    Some(DeviceClass {
        name: o.text("name", mistakes)?.to_string().into(),
        cpu: kind.is_some(),
        matches: o
            .texts("matches", mistakes)?
            .into_iter()
            .map(Into::into)
            .collect::<Vec<_>>()
            .into(),
        compute_capability: capability(&o, mistakes),
        plan: plan.to_string().into(),
        launch_us: o.number("launchUs", mistakes)?,
        gflops: o.number("gflops", mistakes)?,
        flop_per_cycle: o.number("flopPerCycle", mistakes).unwrap_or(0.0),
        stops_after_failure: o.flag("stopsAfterFailure", mistakes).unwrap_or(false),
    })
}

/// Reads `"leastComputeCapability": "8.6"`. The value is text, because 12.10 comes after 12.9.
fn capability(o: &Object<'_>, mistakes: &mut Mistakes) -> Option<(u32, u32)> {
    let text = o.text("leastComputeCapability", mistakes)?;
    let found = text
        .split_once('.')
        .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    if found.is_none() {
        let place = o.at("leastComputeCapability");
        mistakes.add(
            place,
            format_args!("expected \"MAJOR.MINOR\", found \"{text}\""),
        );
    }
    found
}

/// Reads `[rows, columns]`, both from 1 to [`MOST_SIZE`].
fn sizes(value: &Json, place: &str, mistakes: &mut Mistakes) -> Option<(usize, usize)> {
    let list = value.as_array().map_or(&[][..], |l| l);
    let sizes: Vec<usize> = list
        .iter()
        .filter_map(|v| usize::try_from(v.as_u64()?).ok())
        .filter(|n| (1..=MOST_SIZE).contains(n))
        .collect();
    if let (2, [y, x]) = (list.len(), sizes.as_slice()) {
        return Some((*y, *x));
    }
    mistakes.add(
        place,
        format_args!("expected two sizes from 1 to {MOST_SIZE}"),
    );
    None
}

/// Reads a number from 1 to `most`. The outer `None` means that the key is missing or its value no
/// number. The inner `None` means a number out of range, which is reported.
fn from_one(
    o: &Object<'_>,
    key: &str,
    most: usize,
    mistakes: &mut Mistakes,
) -> Option<Option<usize>> {
    let n = o.count(key, mistakes)?;
    let fits = (1..=most).contains(&n);
    if !fits {
        mistakes.add(
            o.at(key),
            format_args!("expected a number from 1 to {most}, found {n}"),
        );
    }
    Some(fits.then_some(n))
}
