//! The kernel library out of its file, `kernels/library.json`, and the kernel sources, checked
//! against each other: an entry, a name or a signature that disagrees is a mistake. For the build,
//! and for `bench --library`.

use super::json::{Object, Value};
use super::mistakes::Mistakes;
use super::{
    Covered, Covers, DRIVERS_CHOICE, DeviceClass, EngineKind, Few, Groups, Kernel, KernelSources,
    Library, Most, Needs, Operand, Operation, PlanRecipe, Restrictions,
};
use crate::ir::layout::Layout;
use crate::ir::plan::MOST_RECORDS;
use sha2::{Digest, Sha256};
use std::borrow::Cow;

/// The version of the file's format.
pub(crate) const FORMAT: usize = 1;

/// Largest size of a tile, a group or an operand's multiple: work-items are counted in 32 bits.
const MOST_SIZE: usize = 1 << 16;

/// Gives the text of a source by its path below the folder of kernels, and the name of its file;
/// the second argument is the place that asks for it.
pub(crate) type Texts<'t> =
    &'t mut dyn FnMut(&str, &str, &mut Mistakes) -> Option<(String, String)>;

/// What the file `name` says.
pub(crate) struct Found {
    /// The library.
    pub(crate) library: Library,
    /// The sources of its kernels: path below the folder of kernels, text.
    pub(crate) sources: KernelSources,
    /// Names of the kernels of the file itself.
    pub(crate) own: Vec<Cow<'static, str>>,
}

/// Reads the library that the file `name` is, whose text is `text` and whose value is `value`. On
/// top of a `base` its entries stand before those of the base, in place of those of the same names,
/// and it needs kernels only. `files` are those that must belong to a kernel.
pub(crate) fn read(
    (name, text, value): (&str, &str, &Value),
    base: Option<(&Library, &KernelSources)>,
    texts: Texts<'_>,
    files: &[String],
    mistakes: &mut Mistakes,
) -> Option<Found> {
    let before = mistakes.0.len();
    let keys = ["format", "sources", "plans", "devices", "hosts"];
    let o = Object::new(value, name.into(), &keys, mistakes)?;
    keys[..if base.is_some() { 2 } else { keys.len() }]
        .iter()
        .for_each(|k| {
            o.require(k, mistakes);
        });
    if let Some(format) = o.count("format", mistakes).filter(|&f| f != FORMAT) {
        mistakes.add(
            o.at("format"),
            format_args!("expected {FORMAT}, found {format}"),
        );
    }
    let items = |key: &str, mistakes: &mut Mistakes| -> Vec<(Value, String)> {
        let list = o.list(key, mistakes).cloned().unwrap_or_default();
        list.into_iter()
            .enumerate()
            .map(|(i, v)| (v, format!("{name}: {key}[{i}]")))
            .collect()
    };
    let own: Vec<Kernel> = items("sources", mistakes)
        .into_iter()
        .filter_map(|(v, p)| read_kernel(&v, p, mistakes))
        .collect();
    for (i, kernel) in own.iter().enumerate() {
        if own[..i].iter().any(|k| k.codename == kernel.codename) {
            mistakes.add(
                format_args!("{name}: sources[{i}]"),
                format_args!("{} is there twice", kernel.codename),
            );
        }
    }
    let names: Vec<_> = own.iter().map(|k| k.codename.clone()).collect();
    let mut kernels = own;
    let under = base
        .iter()
        .flat_map(|b| b.0.kernels.iter())
        .filter(|k| !names.contains(&k.codename));
    kernels.extend(under.cloned());
    let mut plans: Vec<PlanRecipe> = items("plans", mistakes)
        .into_iter()
        .filter_map(|(v, p)| read_plan(&v, p, &kernels, mistakes))
        .collect();
    let under: Vec<_> = base
        .iter()
        .flat_map(|b| b.0.plans.iter())
        .cloned()
        .collect();
    let under: Vec<_> = under
        .into_iter()
        .filter(|u| !plans.iter().any(|p| p.name == u.name))
        .collect();
    plans.extend(under);
    let classes = |key: &str, engine: EngineKind, mistakes: &mut Mistakes| -> Vec<DeviceClass> {
        let list = items(key, mistakes).into_iter();
        list.filter_map(|(v, p)| read_class(&v, p, engine, &plans, mistakes))
            .collect()
    };
    let mut devices = classes("devices", EngineKind::OpenCl, mistakes);
    let mut hosts = classes("hosts", EngineKind::Host, mistakes);
    let own = &kernels[..names.len()];
    let mut sources = read_sources(name, own, texts, mistakes);
    let shared = common(own);
    let used = |file: &str| {
        own.iter().any(|k| k.source.as_deref() == Some(file)) || shared.contains(&file)
    };
    for file in files.iter().filter(|file| !used(file)) {
        mistakes.add(
            format_args!("kernels/{file}"),
            format_args!("no entry of {name} uses this file"),
        );
    }
    if let Some((base, texts)) = base {
        devices.extend(base.devices.iter().cloned());
        hosts.extend(base.hosts.iter().cloned());
        let under: Vec<_> = texts
            .iter()
            .filter(|t| !sources.iter().any(|s| s.0 == t.0))
            .collect();
        sources.extend(
            under
                .into_iter()
                .map(|t| (t.0.to_string(), t.1.to_string())),
        );
    }
    for (i, plan) in plans
        .iter()
        .enumerate()
        .filter(|(_, p)| !p.without_lab.is_empty())
    {
        if !plans
            .iter()
            .any(|p| p.name == plan.without_lab && p.without_lab.is_empty())
        {
            mistakes.add(
                format_args!("{name}: plans[{i}].withoutLab"),
                format_args!(
                    "expected a plan of every program, found \"{}\"",
                    plan.without_lab
                ),
            );
        }
    }
    let mut sha = Sha256::new();
    sha.update(text);
    sources
        .iter()
        .for_each(|(path, text)| sha.update(format!("{path}\0{text}\0")));
    let hash: String = sha.finalize()[..8]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let library = Library {
        hash: hash.into(),
        kernels: kernels.into(),
        plans: plans.into(),
        devices: devices.into(),
        hosts: hosts.into(),
    };
    let sources: Vec<(Cow<'static, str>, Cow<'static, str>)> = sources
        .into_iter()
        .map(|(path, text)| (path.into(), text.into()))
        .collect();
    let found = Found {
        library,
        sources: sources.into(),
        own: names,
    };
    (mistakes.0.len() == before).then_some(found)
}

fn read_kernel(value: &Value, place: String, mistakes: &mut Mistakes) -> Option<Kernel> {
    let keys = [
        "codename",
        "aliases",
        "about",
        "document",
        "function",
        "source",
        "defines",
        "options",
        "covers",
        "epilogue",
        "restrictions",
    ];
    let o = Object::new(value, place, &keys, mistakes)?;
    o.require("codename", mistakes);
    o.require("restrictions", mistakes);
    let codename = o.text("codename", mistakes)?;
    let function = o.text("function", mistakes).unwrap_or("");
    let source = o.text("source", mistakes);
    let Some(operation) = Operation::ALL
        .into_iter()
        .find(|op| codename.starts_with(&format!("{}_", op.name())))
    else {
        let names: Vec<&str> = Operation::ALL.iter().map(|op| op.name()).collect();
        mistakes.add(
            o.at("codename"),
            format_args!(
                "expected OPERATION_VARIANT with one of {}, found \"{codename}\"",
                names.join(", ")
            ),
        );
        return None;
    };
    let keys = [
        "arglist",
        "scaled",
        "scale",
        "columnsFirst",
        "guarded",
        "flop",
        "workGroup",
        "half",
        "bytes",
        "sweep",
        "needs",
        "a",
        "b",
        "r",
        "tile",
        "most",
        "least",
        "split",
        "keeps",
    ];
    let r = Object::new(
        o.get("restrictions")?,
        o.at("restrictions"),
        &keys,
        mistakes,
    )?;
    ["arglist", "scale", "flop"].iter().for_each(|k| {
        r.require(k, mistakes);
    });
    let arglist = r.text("arglist", mistakes).unwrap_or("");
    if let Some(bad) = arglist.chars().find(|c| !"lwhnmscpgvfb".contains(*c)) {
        mistakes.add(
            r.at("arglist"),
            format_args!("expected letters of \"lwhnmscpgvfb\", found '{bad}'"),
        );
    }
    let scale = pair(r.get("scale"), &r.at("scale"), ["rows", "cols"], mistakes).unwrap_or((1, 1));
    let needs = r.get("needs").map_or(Some(Needs::default()), |v| {
        read_needs(v, r.at("needs"), mistakes)
    })?;
    if needs.host != source.is_none() || needs.host != function.is_empty() {
        mistakes.add(
            o.place(),
            "expected a function and a source, or needs.host (a kernel of the host engine)",
        );
    }
    if let Some(source) = source {
        let stem = source.strip_suffix(".cl").map(|s| s.replace('/', "_"));
        if stem.as_deref() != Some(function)
            || !source.starts_with(&format!("{}/", operation.name()))
        {
            mistakes.add(
                o.place(),
                format_args!(
                    "the function is FOLDER_FILE of the source and the folder is the \
                    operation; found {function} and {source}"
                ),
            );
        }
    }
    let mut operand = |key: &str| {
        r.get(key)
            .and_then(|v| read_operand(v, r.at(key), mistakes))
    };
    let (a, b, result) = (operand("a"), operand("b"), operand("r"));
    // The probes' operands are plain numbers, no matrices with a layout.
    let plain = matches!(operation, Operation::Order | Operation::Probe);
    let wants = |name: &str| !plain && operation.parameters().iter().any(|o| o.name == name);
    for (name, there) in [
        ("a", a.is_some()),
        ("b", b.is_some()),
        ("r", result.is_some()),
    ] {
        if wants(name) != there && r.get(name).is_some() == there {
            let what = if there { "takes no" } else { "needs an" };
            mistakes.add(
                r.place(),
                format_args!("{} {what} operand {name}", operation.name()),
            );
        }
    }
    if let (true, Operation::Affine, Some(l)) = (
        needs.host,
        operation,
        a.as_ref().and_then(|a| a.representation.as_ref()),
    ) {
        if l.panel_rows().is_none() {
            mistakes.add(
                r.at("a"),
                format_args!(
                    "the host engine takes weights in R_P_1_C, P a multiple of 4; found {l}"
                ),
            );
        }
    }
    let work_group = r
        .get("workGroup")
        .and_then(|v| sizes(v, &r.at("workGroup"), mistakes));
    let sweep = r.list("sweep", mistakes).map_or(&[][..], |l| l);
    let sweep: Vec<(usize, usize)> = sweep
        .iter()
        .filter_map(|v| sizes(v, &r.at("sweep"), mistakes))
        .collect();
    let tile = pair(r.get("tile"), &r.at("tile"), ["rows", "cols"], mistakes);
    let most = r.get("most").map_or(Some(Most::default()), |v| {
        read_most(v, r.at("most"), mistakes)
    })?;
    let least = r
        .get("least")
        .and_then(|v| Object::new(v, r.at("least"), &["l"], mistakes));
    let least_l = least
        .and_then(|least| least.count("l", mistakes))
        .unwrap_or(0);
    let defines: Vec<(String, u32)> = match o.get("defines") {
        None => Vec::new(),
        Some(Value::Object(map))
            if map
                .values()
                .all(|v| v.as_u64().is_some_and(|n| n <= u64::from(u32::MAX))) =>
        {
            map.iter()
                .map(|(name, v)| (name.clone(), v.as_u64().unwrap_or(0) as u32))
                .collect()
        }
        Some(_) => {
            mistakes.add(o.at("defines"), "expected {NAME: whole number, …}");
            Vec::new()
        }
    };
    let lab_options = o
        .get("options")
        .and_then(|_| o.text("options", mistakes))
        .unwrap_or("");
    if let Some(bad) = lab_options
        .split_whitespace()
        .find(|option| !option.starts_with("-cl-"))
    {
        mistakes.add(
            o.at("options"),
            format_args!(
                "expected options of OpenCL's compiler (-cl-…), found \"{bad}\"; constants are \
                 defines"
            ),
        );
    }
    let flop = r.count("flop", mistakes).unwrap_or(0) as u32;
    if operation.is_product() && r.get("flop").is_some() && flop == 0 {
        mistakes.add(r.at("flop"), "expected the flop of a multiply-add, found 0");
    }
    let text = |key: &str, mistakes: &mut Mistakes| o.text(key, mistakes).unwrap_or("").to_string();
    let (covers, epilogue) = (
        read_covers(&o, operation, mistakes),
        read_epilogue(&o, mistakes),
    );
    let kernel = Kernel {
        codename: codename.to_string().into(),
        aliases: o
            .texts("aliases", mistakes)
            .unwrap_or_default()
            .into_iter()
            .map(Into::into)
            .collect::<Vec<_>>()
            .into(),
        about: text("about", mistakes).into(),
        document: text("document", mistakes).into(),
        operation,
        covers,
        epilogue: epilogue.into(),
        function: function.to_string().into(),
        source: source.map(|s| s.to_string().into()),
        defines: defines
            .into_iter()
            .map(|(n, v)| (n.into(), v))
            .collect::<Vec<_>>()
            .into(),
        lab_options: lab_options.to_string().into(),
        restrictions: Restrictions {
            arglist: arglist.to_string().into(),
            scaled: r.flag("scaled", mistakes).unwrap_or(false),
            scale,
            columns_first: r.flag("columnsFirst", mistakes).unwrap_or(false),
            guarded: r.flag("guarded", mistakes).unwrap_or(false),
            half: r.flag("half", mistakes).unwrap_or(false),
            bytes: r.flag("bytes", mistakes).unwrap_or(false),
            a,
            b,
            r: result,
            flop,
            work_group,
            sweep: sweep.into(),
            needs,
            tile,
            most,
            least_l,
            split: r.count("split", mistakes).unwrap_or(0),
            keeps: r.count("keeps", mistakes).unwrap_or(0),
        },
    };
    use Operation::{Affine, Convolution, Layers, Pair, Reduce, ReducePair};
    let adds_biases = matches!(
        operation,
        Affine | Pair | Layers | Convolution | Reduce | ReducePair
    );
    if kernel.restrictions.bytes && !adds_biases {
        mistakes.add(
            o.at("restrictions"),
            "bytes: only a kernel that adds biases takes weights as bytes",
        );
    }
    if let Err(e) = kernel.check_covers() {
        mistakes.add(o.place(), e);
    }
    Some(kernel)
}

/// `"covers": ["affine", "activation?", "..."]`: nodes in order, `?` behind one that may be
/// missing, `...` at the end where the whole is repeated. Without it, what kernels of the operation
/// cover.
fn read_covers(o: &Object<'_>, operation: Operation, mistakes: &mut Mistakes) -> Covers {
    if o.get("covers").is_none() {
        return Covers::of(operation);
    }
    let mut names = o.texts("covers", mistakes).unwrap_or_default();
    let repeated = names.last().is_some_and(|name| name == "...");
    names.truncate(names.len() - usize::from(repeated));
    let node = |name: &String| {
        let required = name.trim_end_matches('?');
        Some((
            covered(required, o.at("covers"), mistakes)?,
            required.len() < name.len(),
        ))
    };
    Covers {
        chain: names.iter().filter_map(node).collect(),
        repeated,
    }
}

/// `"epilogue": ["activation"]`
fn read_epilogue(o: &Object<'_>, mistakes: &mut Mistakes) -> Vec<Covered> {
    let names = o
        .get("epilogue")
        .and_then(|_| o.texts("epilogue", mistakes))
        .unwrap_or_default();
    names
        .iter()
        .filter_map(|name| covered(name, o.at("epilogue"), mistakes))
        .collect()
}

fn covered(name: &str, place: String, mistakes: &mut Mistakes) -> Option<Covered> {
    let found = Covered::all().find(|c| c.0 == name).map(|c| c.1);
    if found.is_none() {
        let names: Vec<&str> = Covered::all().map(|c| c.0).collect();
        mistakes.add(
            place,
            format_args!(
                "expected nodes out of {}, found \"{name}\"",
                names.join(", ")
            ),
        );
    }
    found
}

/// `[rows, columns]`, both above 0.
fn sizes(value: &Value, place: &str, mistakes: &mut Mistakes) -> Option<(usize, usize)> {
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

/// `{"rows": …, "cols": …}`, both above 0.
fn pair(
    value: Option<&Value>,
    place: &str,
    keys: [&str; 2],
    mistakes: &mut Mistakes,
) -> Option<(usize, usize)> {
    let o = Object::new(value?, place.to_string(), &keys, mistakes)?;
    let mut size = |key| {
        o.require(key, mistakes);
        Some(from_one(&o, key, MOST_SIZE, mistakes)?.unwrap_or(1))
    };
    let (y, x) = (size(keys[0]), size(keys[1]));
    Some((y?, x?))
}

/// A number from 1 to `most`; the inner `None` is another one, which is reported.
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

fn read_needs(value: &Value, place: String, mistakes: &mut Mistakes) -> Option<Needs> {
    let o = Object::new(
        value,
        place,
        &["host", "images", "warp", "localBytes"],
        mistakes,
    )?;
    Some(Needs {
        host: o.flag("host", mistakes).unwrap_or(false),
        images: o.flag("images", mistakes).unwrap_or(false),
        warp: o.flag("warp", mistakes).unwrap_or(false),
        local_bytes: o.count("localBytes", mistakes).unwrap_or(0),
    })
}

fn read_most(value: &Value, place: String, mistakes: &mut Mistakes) -> Option<Most> {
    let o = Object::new(
        value,
        place,
        &["h", "l", "weights", "layers", "groups", "spread"],
        mistakes,
    )?;
    let mut size = |key| o.count(key, mistakes).unwrap_or(0);
    Some(Most {
        h: size("h"),
        l: size("l"),
        weights: size("weights"),
        layers: size("layers"),
        groups: size("groups"),
        spread: size("spread"),
    })
}

fn read_operand(value: &Value, place: String, mistakes: &mut Mistakes) -> Option<Operand> {
    let o = Object::new(
        value,
        place,
        &["representation", "rowAlign", "colAlign", "image", "panels"],
        mistakes,
    )?;
    let mut align = |key| {
        o.require(key, mistakes);
        Some(from_one(&o, key, MOST_SIZE, mistakes)?.unwrap_or(1))
    };
    let (row_align, col_align) = (align("rowAlign"), align("colAlign"));
    o.require("representation", mistakes);
    let representation = match o.text("representation", mistakes)? {
        "any" => None,
        text => match Layout::parse(text) {
            Ok(layout) => Some(layout),
            Err(e) => {
                mistakes.add(o.at("representation"), e);
                return None;
            }
        },
    };
    let (row_align, col_align) = (row_align?, col_align?);
    if let Some(Err(e)) = representation
        .as_ref()
        .map(|l| l.fits(row_align, col_align))
    {
        mistakes.add(
            o.place(),
            format_args!("rowAlign and colAlign allow sizes that the layout does not: {e}"),
        );
    }
    let panels = o.flag("panels", mistakes).unwrap_or(false);
    if panels && (representation != Some(Layout::C) || row_align % 4 != 0) {
        mistakes.add(
            o.at("panels"),
            "expected representation C and a rowAlign that is a multiple of 4",
        );
    }
    let image = o.flag("image", mistakes).unwrap_or(false);
    Some(Operand {
        representation,
        row_align,
        col_align,
        image,
        panels,
    })
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
    value: &Value,
    place: String,
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
    let o = Object::new(value, place, &keys, mistakes)?;
    let recipe = plan_recipe(&o, kernels, mistakes)?;
    let without_lab = o
        .get("withoutLab")
        .and_then(|_| o.text("withoutLab", mistakes))
        .unwrap_or("");
    Some(PlanRecipe {
        without_lab: without_lab.to_string().into(),
        ..recipe
    })
}

/// A plan of the library, or of a plan file that has more keys than these.
pub(crate) fn plan_recipe(
    o: &Object<'_>,
    kernels: &[Kernel],
    mistakes: &mut Mistakes,
) -> Option<PlanRecipe> {
    ["name", "engine", "batch", "about", "kernels"]
        .iter()
        .for_each(|k| {
            o.require(k, mistakes);
        });
    let engine = engine(o, mistakes);
    let names = o.texts("kernels", mistakes)?;
    let engine = engine?;
    read_kernels(o.at("kernels"), &names, engine, kernels, mistakes);
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

/// Whether there are such kernels, of the plan's engine, and one for each operation that is not
/// chosen by size.
fn read_kernels(
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

/// `"few": {"records": …, "kernels": […]}`
fn read_few(
    value: &Value,
    place: String,
    engine: EngineKind,
    kernels: &[Kernel],
    mistakes: &mut Mistakes,
) -> Option<Few> {
    let o = Object::new(value, place, &["records", "kernels"], mistakes)?;
    ["records", "kernels"].iter().for_each(|k| {
        o.require(k, mistakes);
    });
    let records = from_one(&o, "records", MOST_RECORDS, mistakes)?.unwrap_or(1);
    let names = o.texts("kernels", mistakes)?;
    if engine == EngineKind::Host {
        mistakes.add(o.place(), "expected a plan of the opencl engine");
    }
    read_kernels(o.at("kernels"), &names, engine, kernels, mistakes);
    Some(Few {
        records,
        kernels: names.into_iter().map(Into::into).collect(),
    })
}

/// `"workGroups": {"affine_…": [4, 16], …}`, each for a kernel of the plan.
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
    value: &Value,
    place: String,
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
    let o = Object::new(value, place, &keys, mistakes)?;
    keys[..5].iter().for_each(|k| {
        o.require(k, mistakes);
    });
    let plan = o.text("plan", mistakes)?;
    if !plans.iter().any(|p| p.name == plan && p.engine == engine) {
        mistakes.add(
            o.at("plan"),
            format_args!("no plan of the {engine} engine is called \"{plan}\""),
        );
    }
    let kind = o.get("kind").and_then(|_| o.text("kind", mistakes));
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
        compute_capability: o
            .get("leastComputeCapability")
            .and_then(|_| capability(&o, mistakes)),
        plan: plan.to_string().into(),
        launch_us: o.number("launchUs", mistakes)?,
        gflops: o.number("gflops", mistakes)?,
        flop_per_cycle: o
            .get("flopPerCycle")
            .and_then(|_| o.number("flopPerCycle", mistakes))
            .unwrap_or(0.0),
        stops_after_failure: o
            .get("stopsAfterFailure")
            .is_some_and(|_| o.flag("stopsAfterFailure", mistakes) == Some(true)),
    })
}

/// `"leastComputeCapability": "8.6"`; text, because 12.10 comes after 12.9.
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

/// Reads each source once, in the order of the library, and compares signatures.
fn read_sources(
    name: &str,
    kernels: &[Kernel],
    texts: Texts<'_>,
    mistakes: &mut Mistakes,
) -> Vec<(String, String)> {
    let mut sources: Vec<(String, String)> = Vec::new();
    let mut files: Vec<String> = Vec::new();
    for kernel in kernels {
        let Some(path) = &kernel.source else { continue };
        let place = format!("{name}: {}", kernel.codename);
        let at = match sources.iter().position(|s| s.0 == **path) {
            Some(at) => at,
            None => {
                let Some((file, text)) = texts(path, &place, mistakes) else {
                    continue;
                };
                files.push(file);
                sources.push((path.to_string(), without_comments(&text)));
                files.len() - 1
            }
        };
        if let Err(e) = kernel.check_source(&sources[at].1) {
            mistakes.add(&files[at], e);
        }
    }
    for path in common(kernels) {
        if let Some((_, text)) = texts(path, &format!("kernels/{path}"), mistakes) {
            sources.push((path.to_string(), without_comments(&text)));
        }
    }
    sources
}

/// The files that sources of these kernels share.
fn common(kernels: &[Kernel]) -> Vec<&str> {
    let mut common: Vec<&str> = Vec::new();
    for path in kernels
        .iter()
        .filter(|k| k.source.is_some())
        .flat_map(Kernel::common)
    {
        if !common.contains(&path) {
            common.push(path);
        }
    }
    common
}

/// The text without comments, indentation and blanks between tokens: a third of it goes to the
/// board. Lines keep their numbers.
fn without_comments(text: &str) -> String {
    let code = |line: &str| without_blanks(line.split("//").next().unwrap_or("").trim());
    text.lines().map(code).collect::<Vec<_>>().join("\n") + "\n"
}

/// A line without the blanks that no token needs. Texts and directives stay as they are, but for
/// what a macro stands for.
fn without_blanks(line: &str) -> String {
    let word = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
    let define = line
        .strip_prefix("#define ")
        .filter(|rest| !rest.contains(['"', '\'', '#']));
    if let Some((name, body)) =
        define.and_then(|rest| rest.split_at_checked(rest.find(|c| !word(c))?))
    {
        // A blank tells a macro without parameters from one with.
        let blank = if body.starts_with('(') { "" } else { " " };
        return format!("#define {name}{blank}{}", without_blanks(body));
    }
    if line.starts_with('#') || line.contains(['"', '\'']) {
        return line.into();
    }
    let operator = |c: char| "+-*/%&|^<>=!~?:".contains(c);
    let mut text = String::with_capacity(line.len());
    let mut blank = false;
    for c in line.chars() {
        if c == ' ' || c == '\t' {
            blank = true;
            continue;
        }
        let last = text.chars().next_back().unwrap_or('(');
        // An exponent's sign would join what is in front of it: 0xe + 1.
        let exponent = "eEpP".contains(last) && "+-".contains(c);
        if blank
            && (word(last) && word(c) || operator(last) && operator(c) || exponent || c == '\\')
        {
            text.push(' ');
        }
        blank = false;
        text.push(c);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_that_no_token_needs_go() {
        for (line, expected) in [
            (
                "const float4 a = b[i + 1] * -c ;",
                "const float4 a=b[i+1]* -c;",
            ),
            ("x = y - -1; z = a / *p;", "x=y- -1;z=a/ *p;"),
            ("i = 0xe + 3; f = 1.0e + e - 1;", "i=0xe +3;f=1.0e +e -1;"),
            ("return (int) -1 ? p->q : 2 .x;", "return(int)-1?p->q:2 .x;"),
            ("else if (a && !b) \\", "else if(a&& !b) \\"),
            ("#define F (x)  + 1", "#define F (x)+1"),
            ("#define F(a, b) (a) * - b", "#define F(a,b)(a)* -b"),
            ("#define F(a, b) \\", "#define F(a,b) \\"),
            ("#define N  (M - 1) / 2", "#define N (M-1)/2"),
            ("#define F(x) #x \"a  b\"", "#define F(x) #x \"a  b\""),
            ("#define EMPTY", "#define EMPTY"),
            ("#if A  && B", "#if A  && B"),
        ] {
            assert_eq!(without_blanks(line), expected);
        }
        assert_eq!(
            without_comments("a; // b\n  // c\n\td , e;\n"),
            "a;\n\nd,e;\n"
        );
    }
}
