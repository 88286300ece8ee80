//! Reads `kernels/library.json` and the kernel sources, and checks them against each other: an orphan file, an orphan
//! entry, a name or a signature that disagrees are mistakes.

use super::Mistakes;
use super::json::{self, Object};
use super::matrix::Files;
use crate::block::hex;
use crate::ir::layout::Layout;
use crate::ir::plan::MOST_RECORDS;
use crate::registry::{
    Covered, Covers, DRIVERS_CHOICE, DeviceClass, EngineKind, Few, Groups, Kernel, KernelSources, Library,
    Most, Needs, Operand, Operation, PlanRecipe, Restrictions,
};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::path::{Path, PathBuf};

/// The version of the file's format.
const FORMAT: usize = 1;

/// Largest size of a tile, a group or an operand's multiple: work-items are counted in 32 bits.
const MOST_SIZE: usize = 1 << 16;

/// Reads the library below `root`; sources come back as (path below `kernels/`, text).
pub(crate) fn read(
    root: &Path,
    read: &mut Vec<PathBuf>,
    mistakes: &mut Mistakes,
) -> Option<(Library, KernelSources)> {
    let before = mistakes.0.len();
    let folder = root.join("kernels");
    let mut files = Files { root, read };
    let text = files.text(&folder.join("library.json"), "kernels", mistakes)?;
    let value = json::parse(&text, "kernels/library.json", mistakes)?;
    let keys = ["format", "sources", "plans", "devices", "hosts"];
    let o = Object::new(&value, "kernels/library.json".into(), &keys, mistakes)?;
    keys.iter().for_each(|k| {
        o.require(k, mistakes);
    });
    if let Some(format) = o.count("format", mistakes).filter(|&f| f != FORMAT) {
        mistakes.add(o.at("format"), format_args!("expected {FORMAT}, found {format}"));
    }
    let items = |key: &str, mistakes: &mut Mistakes| -> Vec<(Value, String)> {
        let list = o.list(key, mistakes).cloned().unwrap_or_default();
        list.into_iter().enumerate().map(|(i, v)| (v, format!("kernels/library.json: {key}[{i}]"))).collect()
    };
    let kernels: Vec<Kernel> =
        items("sources", mistakes).into_iter().filter_map(|(v, p)| read_kernel(&v, p, mistakes)).collect();
    let plans: Vec<PlanRecipe> = items("plans", mistakes)
        .into_iter()
        .filter_map(|(v, p)| read_plan(&v, p, &kernels, mistakes))
        .collect();
    let devices: Vec<DeviceClass> = items("devices", mistakes)
        .into_iter()
        .filter_map(|(v, p)| read_class(&v, p, EngineKind::OpenCl, &plans, mistakes))
        .collect();
    let hosts: Vec<DeviceClass> = items("hosts", mistakes)
        .into_iter()
        .filter_map(|(v, p)| read_class(&v, p, EngineKind::Host, &plans, mistakes))
        .collect();
    for (i, kernel) in kernels.iter().enumerate() {
        if kernels[..i].iter().any(|k| k.codename == kernel.codename) {
            mistakes.add(
                format_args!("kernels/library.json: sources[{i}]"),
                format_args!("{} is there twice", kernel.codename),
            );
        }
    }
    for (i, plan) in plans.iter().enumerate().filter(|(_, p)| !p.without_lab.is_empty()) {
        if !plans.iter().any(|p| p.name == plan.without_lab && p.without_lab.is_empty()) {
            mistakes.add(
                format_args!("kernels/library.json: plans[{i}].withoutLab"),
                format_args!("expected a plan of every program, found \"{}\"", plan.without_lab),
            );
        }
    }
    let sources = read_sources(&folder, &kernels, &mut files, mistakes);

    let mut sha = Sha256::new();
    sha.update(&text);
    sources.iter().for_each(|(path, text)| sha.update(format!("{path}\0{text}\0")));
    let library = Library {
        hash: hex(&sha.finalize()[..8]).into(),
        kernels: kernels.into(),
        plans: plans.into(),
        devices: devices.into(),
        hosts: hosts.into(),
    };
    let sources: Vec<(Cow<'static, str>, Cow<'static, str>)> =
        sources.into_iter().map(|(path, text)| (path.into(), text.into())).collect();
    (mistakes.0.len() == before).then_some((library, sources.into()))
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
    let Some(operation) =
        Operation::ALL.into_iter().find(|op| codename.starts_with(&format!("{}_", op.name())))
    else {
        let names: Vec<&str> = Operation::ALL.iter().map(|op| op.name()).collect();
        mistakes.add(
            o.at("codename"),
            format_args!("expected OPERATION_VARIANT with one of {}, found \"{codename}\"", names.join(", ")),
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
    ];
    let r = Object::new(o.get("restrictions")?, o.at("restrictions"), &keys, mistakes)?;
    ["arglist", "scale", "flop"].iter().for_each(|k| {
        r.require(k, mistakes);
    });
    let arglist = r.text("arglist", mistakes).unwrap_or("");
    if let Some(bad) = arglist.chars().find(|c| !"lwhnmspgv".contains(*c)) {
        mistakes.add(r.at("arglist"), format_args!("expected letters of \"lwhnmspgv\", found '{bad}'"));
    }
    let scale = pair(r.get("scale"), &r.at("scale"), ["rows", "cols"], mistakes).unwrap_or((1, 1));
    let needs = r.get("needs").map_or(Some(Needs::default()), |v| read_needs(v, r.at("needs"), mistakes))?;
    if needs.host != source.is_none() || needs.host != function.is_empty() {
        mistakes
            .add(o.place(), "expected a function and a source, or needs.host (a kernel of the host engine)");
    }
    if let Some(source) = source {
        let stem = source.strip_suffix(".cl").map(|s| s.replace('/', "_"));
        if stem.as_deref() != Some(function) || !source.starts_with(&format!("{}/", operation.name())) {
            mistakes.add(
                o.place(),
                format_args!("the function is FOLDER_FILE of the source and the folder is the operation; found {function} and {source}"),
            );
        }
    }
    let mut operand = |key: &str| r.get(key).and_then(|v| read_operand(v, r.at(key), mistakes));
    let (a, b, result) = (operand("a"), operand("b"), operand("r"));
    // The probes' operands are plain numbers, no matrices with a layout.
    let plain = matches!(operation, Operation::Order | Operation::Probe);
    let wants = |name: &str| !plain && operation.parameters().iter().any(|o| o.name == name);
    for (name, there) in [("a", a.is_some()), ("b", b.is_some()), ("r", result.is_some())] {
        if wants(name) != there && r.get(name).is_some() == there {
            let what = if there { "takes no" } else { "needs an" };
            mistakes.add(r.place(), format_args!("{} {what} operand {name}", operation.name()));
        }
    }
    if let (true, Operation::Affine, Some(l)) =
        (needs.host, operation, a.as_ref().and_then(|a| a.representation.as_ref()))
    {
        if l.panel_rows().is_none() {
            mistakes.add(
                r.at("a"),
                format_args!("the host engine takes weights in R_P_1_C, P a multiple of 4; found {l}"),
            );
        }
    }
    let work_group = r.get("workGroup").and_then(|v| sizes(v, &r.at("workGroup"), mistakes));
    let sweep = r.list("sweep", mistakes).map_or(&[][..], |l| l);
    let sweep: Vec<(usize, usize)> =
        sweep.iter().filter_map(|v| sizes(v, &r.at("sweep"), mistakes)).collect();
    let tile = pair(r.get("tile"), &r.at("tile"), ["rows", "cols"], mistakes);
    let most = r.get("most").map_or(Some(Most::default()), |v| read_most(v, r.at("most"), mistakes))?;
    let least = r.get("least").and_then(|v| Object::new(v, r.at("least"), &["l"], mistakes));
    let least_l = least.and_then(|least| least.count("l", mistakes)).unwrap_or(0);
    let defines: Vec<(String, u32)> = match o.get("defines") {
        None => Vec::new(),
        Some(Value::Object(map))
            if map.values().all(|v| v.as_u64().is_some_and(|n| n <= u64::from(u32::MAX))) =>
        {
            map.iter().map(|(name, v)| (name.clone(), v.as_u64().unwrap_or(0) as u32)).collect()
        }
        Some(_) => {
            mistakes.add(o.at("defines"), "expected {NAME: whole number, …}");
            Vec::new()
        }
    };
    let lab_options = o.get("options").and_then(|_| o.text("options", mistakes)).unwrap_or("");
    if let Some(bad) = lab_options.split_whitespace().find(|option| !option.starts_with("-cl-")) {
        mistakes.add(
            o.at("options"),
            format_args!(
                "expected options of OpenCL's compiler (-cl-…), found \"{bad}\"; constants are defines"
            ),
        );
    }
    let flop = r.count("flop", mistakes).unwrap_or(0) as u32;
    if operation.is_product() && r.get("flop").is_some() && flop == 0 {
        mistakes.add(r.at("flop"), "expected the flop of a multiply-add, found 0");
    }
    let text = |key: &str, mistakes: &mut Mistakes| o.text(key, mistakes).unwrap_or("").to_string();
    let (covers, epilogue) = (read_covers(&o, operation, mistakes), read_epilogue(&o, mistakes));
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
        defines: defines.into_iter().map(|(n, v)| (n.into(), v)).collect::<Vec<_>>().into(),
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
        },
    };
    use Operation::{Affine, Convolution, Layers, Pair, Reduce};
    if kernel.restrictions.bytes && !matches!(operation, Affine | Pair | Layers | Convolution | Reduce) {
        mistakes.add(o.at("restrictions"), "bytes: only a kernel that adds biases takes weights as bytes");
    }
    if let Err(e) = kernel.check_covers() {
        mistakes.add(o.place(), e);
    }
    Some(kernel)
}

/// `"covers": ["affine", "activation?", "..."]`: nodes in order, `?` behind one that may be missing, `...` at the end
/// where the whole is repeated. Without it, what kernels of the operation cover.
fn read_covers(o: &Object<'_>, operation: Operation, mistakes: &mut Mistakes) -> Covers {
    if o.get("covers").is_none() {
        return Covers::of(operation);
    }
    let mut names = o.texts("covers", mistakes).unwrap_or_default();
    let repeated = names.last().is_some_and(|name| name == "...");
    names.truncate(names.len() - usize::from(repeated));
    let node = |name: &String| {
        let required = name.trim_end_matches('?');
        Some((covered(required, o.at("covers"), mistakes)?, required.len() < name.len()))
    };
    Covers { chain: names.iter().filter_map(node).collect(), repeated }
}

/// `"epilogue": ["activation"]`
fn read_epilogue(o: &Object<'_>, mistakes: &mut Mistakes) -> Vec<Covered> {
    let names = o.get("epilogue").and_then(|_| o.texts("epilogue", mistakes)).unwrap_or_default();
    names.iter().filter_map(|name| covered(name, o.at("epilogue"), mistakes)).collect()
}

fn covered(name: &str, place: String, mistakes: &mut Mistakes) -> Option<Covered> {
    let found = Covered::all().find(|c| c.0 == name).map(|c| c.1);
    if found.is_none() {
        let names: Vec<&str> = Covered::all().map(|c| c.0).collect();
        mistakes.add(place, format_args!("expected nodes out of {}, found \"{name}\"", names.join(", ")));
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
    mistakes.add(place, format_args!("expected two sizes from 1 to {MOST_SIZE}"));
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
fn from_one(o: &Object<'_>, key: &str, most: usize, mistakes: &mut Mistakes) -> Option<Option<usize>> {
    let n = o.count(key, mistakes)?;
    let fits = (1..=most).contains(&n);
    if !fits {
        mistakes.add(o.at(key), format_args!("expected a number from 1 to {most}, found {n}"));
    }
    Some(fits.then_some(n))
}

fn read_needs(value: &Value, place: String, mistakes: &mut Mistakes) -> Option<Needs> {
    let o = Object::new(value, place, &["host", "images", "localBytes"], mistakes)?;
    Some(Needs {
        host: o.flag("host", mistakes).unwrap_or(false),
        images: o.flag("images", mistakes).unwrap_or(false),
        local_bytes: o.count("localBytes", mistakes).unwrap_or(0),
    })
}

fn read_most(value: &Value, place: String, mistakes: &mut Mistakes) -> Option<Most> {
    let o = Object::new(value, place, &["h", "l", "weights", "layers", "groups"], mistakes)?;
    let mut size = |key| o.count(key, mistakes).unwrap_or(0);
    Some(Most {
        h: size("h"),
        l: size("l"),
        weights: size("weights"),
        layers: size("layers"),
        groups: size("groups"),
    })
}

fn read_operand(value: &Value, place: String, mistakes: &mut Mistakes) -> Option<Operand> {
    let o =
        Object::new(value, place, &["representation", "rowAlign", "colAlign", "image", "panels"], mistakes)?;
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
    if let Some(Err(e)) = representation.as_ref().map(|l| l.fits(row_align, col_align)) {
        mistakes
            .add(o.place(), format_args!("rowAlign and colAlign allow sizes that the layout does not: {e}"));
    }
    let panels = o.flag("panels", mistakes).unwrap_or(false);
    if panels && (representation != Some(Layout::C) || row_align % 4 != 0) {
        mistakes.add(o.at("panels"), "expected representation C and a rowAlign that is a multiple of 4");
    }
    let image = o.flag("image", mistakes).unwrap_or(false);
    Some(Operand { representation, row_align, col_align, image, panels })
}

fn engine(o: &Object<'_>, mistakes: &mut Mistakes) -> Option<EngineKind> {
    o.require("engine", mistakes);
    match o.text("engine", mistakes)? {
        "host" => Some(EngineKind::Host),
        "opencl" => Some(EngineKind::OpenCl),
        other => {
            mistakes.add(o.at("engine"), format_args!("expected host or opencl, found \"{other}\""));
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
    let keys = ["name", "engine", "batch", "about", "kernels", "few", "workGroups", "withoutLab"];
    let o = Object::new(value, place, &keys, mistakes)?;
    let recipe = plan_recipe(&o, kernels, mistakes)?;
    let without_lab = o.get("withoutLab").and_then(|_| o.text("withoutLab", mistakes)).unwrap_or("");
    Some(PlanRecipe { without_lab: without_lab.to_string().into(), ..recipe })
}

/// A plan of the library, or of a plan file that has more keys than these.
fn plan_recipe(o: &Object<'_>, kernels: &[Kernel], mistakes: &mut Mistakes) -> Option<PlanRecipe> {
    ["name", "engine", "batch", "about", "kernels"].iter().for_each(|k| {
        o.require(k, mistakes);
    });
    let engine = engine(o, mistakes);
    let names = o.texts("kernels", mistakes)?;
    let engine = engine?;
    read_kernels(o.at("kernels"), &names, engine, kernels, mistakes);
    let few = o.get("few").and_then(|value| read_few(value, o.at("few"), engine, kernels, mistakes));
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

/// Whether there are such kernels, of the plan's engine, and one for each operation that is not chosen by size.
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
                mistakes.add(&place, format_args!("{name} does not run on the {engine} engine"));
            }
            Some(k)
                if !matches!(k.operation, Operation::Affine | Operation::Convolution)
                    && operations.contains(&k.operation) =>
            {
                mistakes.add(&place, format_args!("{name}: a second kernel for {}", k.operation.name()));
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
    Some(Few { records, kernels: names.into_iter().map(Into::into).collect() })
}

/// `"workGroups": {"affine_…": [4, 16], …}`, each for a kernel of the plan.
fn read_groups(o: &Object<'_>, names: &[String], mistakes: &mut Mistakes) -> Groups {
    let place = o.at("workGroups");
    let Some(value) = o.get("workGroups") else { return Groups::default() };
    let Some(map) = value.as_object() else {
        mistakes.add(place, "expected {KERNEL: [rows, columns] or null, …}");
        return Groups::default();
    };
    let mut groups = Vec::new();
    for (name, value) in map {
        if !names.contains(name) {
            mistakes.add(&place, format_args!("the plan has no kernel {name}"));
        }
        let group = if value.is_null() { Some(DRIVERS_CHOICE) } else { sizes(value, &place, mistakes) };
        groups.extend(group.map(|group| (name.clone().into(), group)));
    }
    groups.into()
}

/// A plan file, as `mortonnet tune --save` writes it: a plan, and the layouts it was tuned with.
pub(crate) struct PlanFile {
    /// The plan.
    pub(crate) recipe: PlanRecipe,
    /// Node, role (`weights`, `biases`) and layout of each constant.
    pub(crate) layouts: Vec<(String, String, String)>,
    /// Hash of the library it was made with.
    pub(crate) library: String,
}

/// Reads a plan file.
pub(crate) fn read_plan_file(
    path: &Path,
    library: &Library,
    files: &mut Files<'_>,
    mistakes: &mut Mistakes,
) -> Option<PlanFile> {
    let name = path.display().to_string();
    let text = files.text(path, "MORTONNET_PLAN", mistakes)?;
    let value = json::parse(&text, &name, mistakes)?;
    let keys = [
        "format",
        "name",
        "engine",
        "batch",
        "about",
        "kernels",
        "few",
        "workGroups",
        "layouts",
        "library",
        "model",
        "device",
        "driver",
        "medianUs",
    ];
    let o = Object::new(&value, name.clone(), &keys, mistakes)?;
    o.require("format", mistakes);
    if let Some(format) = o.count("format", mistakes).filter(|&f| f != FORMAT) {
        mistakes.add(o.at("format"), format_args!("expected {FORMAT}, found {format}"));
    }
    let recipe = plan_recipe(&o, &library.kernels, mistakes)?;
    if library.plans.iter().any(|p| p.name == recipe.name) {
        mistakes
            .add(o.at("name"), format_args!("the library has a plan {}: choose another name", recipe.name));
    }
    let mut layouts = Vec::new();
    for (i, entry) in o.list("layouts", mistakes).map_or(&[][..], |l| l).iter().enumerate() {
        let place = format!("{name}: layouts[{i}]");
        let entry = Object::new(entry, place, &["node", "role", "layout"], mistakes)?;
        let mut text = |key: &str| {
            entry.require(key, mistakes);
            entry.text(key, mistakes).map(String::from)
        };
        layouts.push((text("node")?, text("role")?, text("layout")?));
    }
    let made_with = o.text("library", mistakes).unwrap_or("").to_string();
    Some(PlanFile { recipe, layouts, library: made_with })
}

fn read_class(
    value: &Value,
    place: String,
    engine: EngineKind,
    plans: &[PlanRecipe],
    mistakes: &mut Mistakes,
) -> Option<DeviceClass> {
    let keys =
        ["name", "matches", "plan", "launchUs", "gflops", "flopPerCycle", "kind", "leastComputeCapability"];
    let o = Object::new(value, place, &keys, mistakes)?;
    keys[..5].iter().for_each(|k| {
        o.require(k, mistakes);
    });
    let plan = o.text("plan", mistakes)?;
    if !plans.iter().any(|p| p.name == plan && p.engine == engine) {
        mistakes.add(o.at("plan"), format_args!("no plan of the {engine} engine is called \"{plan}\""));
    }
    let kind = o.get("kind").and_then(|_| o.text("kind", mistakes));
    if kind.is_some_and(|k| k != "cpu") {
        mistakes.add(o.at("kind"), "expected \"cpu\"");
    }
    Some(DeviceClass {
        name: o.text("name", mistakes)?.to_string().into(),
        cpu: kind.is_some(),
        matches: o.texts("matches", mistakes)?.into_iter().map(Into::into).collect::<Vec<_>>().into(),
        compute_capability: o.get("leastComputeCapability").and_then(|_| capability(&o, mistakes)),
        plan: plan.to_string().into(),
        launch_us: o.number("launchUs", mistakes)?,
        gflops: o.number("gflops", mistakes)?,
        flop_per_cycle: o.get("flopPerCycle").and_then(|_| o.number("flopPerCycle", mistakes)).unwrap_or(0.0),
    })
}

/// `"leastComputeCapability": "8.6"`; text, because 12.10 comes after 12.9.
fn capability(o: &Object<'_>, mistakes: &mut Mistakes) -> Option<(u32, u32)> {
    let text = o.text("leastComputeCapability", mistakes)?;
    let found =
        text.split_once('.').and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    if found.is_none() {
        let place = o.at("leastComputeCapability");
        mistakes.add(place, format_args!("expected \"MAJOR.MINOR\", found \"{text}\""));
    }
    found
}

/// Reads each source once, in the order of the library, and compares signatures and files.
fn read_sources(
    folder: &Path,
    kernels: &[Kernel],
    files: &mut Files<'_>,
    mistakes: &mut Mistakes,
) -> Vec<(String, String)> {
    let mut sources: Vec<(String, String)> = Vec::new();
    for kernel in kernels {
        let Some(path) = &kernel.source else { continue };
        let place = format!("kernels/library.json: {}", kernel.codename);
        if !sources.iter().any(|s| s.0 == **path) {
            let Some(text) = files.text(&folder.join(&**path), &place, mistakes) else { continue };
            sources.push((path.to_string(), without_comments(&text)));
        }
        if let Some((_, text)) = sources.iter().find(|s| s.0 == **path) {
            if let Err(e) = kernel.check_source(text) {
                mistakes.add(format_args!("kernels/{path}"), e);
            }
        }
    }
    let mut common: Vec<&str> = Vec::new();
    for path in kernels.iter().filter(|k| k.source.is_some()).flat_map(Kernel::common) {
        if !common.contains(&path) {
            common.push(path);
        }
    }
    for path in &common {
        let place = format!("kernels/{path}");
        if let Some(text) = files.text(&folder.join(path), &place, mistakes) {
            sources.push((path.to_string(), without_comments(&text)));
        }
    }
    for path in cl_files(folder) {
        let name = path.strip_prefix(folder).unwrap_or(&path).display().to_string();
        if !kernels.iter().any(|k| k.source.as_deref() == Some(&name)) && !common.contains(&&*name) {
            mistakes.add(format_args!("kernels/{name}"), "no entry of kernels/library.json uses this file");
        }
    }
    sources
}

/// The text without comments, indentation and blanks between tokens: a third of it goes to the board. Lines keep their
/// numbers.
fn without_comments(text: &str) -> String {
    let code = |line: &str| without_blanks(line.split("//").next().unwrap_or("").trim());
    text.lines().map(code).collect::<Vec<_>>().join("\n") + "\n"
}

/// A line without the blanks that no token needs. Texts and directives stay as they are, but for what a macro stands for.
fn without_blanks(line: &str) -> String {
    let word = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
    let define = line.strip_prefix("#define ").filter(|rest| !rest.contains(['"', '\'', '#']));
    if let Some((name, body)) = define.and_then(|rest| rest.split_at_checked(rest.find(|c| !word(c))?)) {
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
        if blank && (word(last) && word(c) || operator(last) && operator(c) || exponent || c == '\\') {
            text.push(' ');
        }
        blank = false;
        text.push(c);
    }
    text
}

/// Drops the plans that a program without the lab has another one for, unless it is `asked` for; their devices get that.
pub(crate) fn drop_plans_of_the_lab(library: &mut Library, asked: &str) {
    let left_out = |p: &PlanRecipe| !p.without_lab.is_empty() && p.name != asked;
    for class in library.devices.to_mut() {
        if let Some(plan) = library.plans.iter().find(|p| p.name == class.plan && left_out(p)) {
            class.plan = plan.without_lab.clone();
        }
    }
    library.plans.to_mut().retain(|p| !left_out(p));
}

/// Drops the kernels that no plan uses, what only tables say of the others, and the sources that no other kernel is made
/// of.
pub(crate) fn keep_those_of_plans(library: &mut Library, sources: &mut KernelSources) {
    let plans = &library.plans;
    let uses = |p: &PlanRecipe, name: &Cow<'static, str>| {
        p.kernels.contains(name) || p.few.as_ref().is_some_and(|few| few.kernels.contains(name))
    };
    library.kernels.to_mut().retain(|k| plans.iter().any(|p| uses(p, &k.codename)));
    for kernel in library.kernels.to_mut() {
        // What tables say of them.
        (kernel.about, kernel.document) = ("".into(), "".into());
    }
    let kernels = &library.kernels;
    let made_of = |k: &Kernel, path: &str| k.source.as_deref() == Some(path) || k.common().any(|c| c == path);
    sources.to_mut().retain(|(path, _)| kernels.iter().any(|k| made_of(k, path)));
}

/// All `.cl` files below `folder`, sorted.
fn cl_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "cl") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_that_no_token_needs_go() {
        for (line, expected) in [
            ("const float4 a = b[i + 1] * -c ;", "const float4 a=b[i+1]* -c;"),
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
        assert_eq!(without_comments("a; // b\n  // c\n\td , e;\n"), "a;\n\nd,e;\n");
    }
}
