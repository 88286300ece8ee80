//! Reads a kernel's entry in `library.json` and checks it.

use super::{ListEntry, MOST_SIZE, from_one, sizes};
use crate::ir::layout::Layout;
use crate::registry::json::{Json, Object};
use crate::registry::mistakes::Mistakes;
use crate::registry::{
    Covered, CoveredNode, Covers, Define, Kernel, LeadingArgument, Most, Needs, Operand, Operation,
    Restrictions,
};

const KEYS: [&str; 11] = [
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

const RESTRICTIONS: [&str; 20] = [
    "args",
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

pub(super) fn read(entry: ListEntry<'_>, mistakes: &mut Mistakes) -> Option<Kernel> {
    let o = Object::new(entry.value, entry.place, &KEYS, mistakes)?;
    o.require_all(&["codename", "restrictions"], mistakes);
    let codename = o.text("codename", mistakes)?;
    let operation = operation(&o, codename, mistakes)?;
    let place = o.at("restrictions");
    let r = Object::new(o.get("restrictions")?, place, &RESTRICTIONS, mistakes)?;
    let restrictions = read_restrictions(&r, operation, mistakes)?;
    let function = o.text("function", mistakes).unwrap_or("");
    let source = o.text("source", mistakes);
    if restrictions.needs.host != source.is_none() || restrictions.needs.host != function.is_empty()
    {
        mistakes.add(
            o.place(),
            "expected a function and a source, or needs.host (a kernel of the host engine)",
        );
    }
    if let Some(source) = source {
        check_source_name(&o, source, function, operation, mistakes);
    }
    let aliases = o.texts("aliases", mistakes).unwrap_or_default();
    let mut text = |key| o.text(key, mistakes).unwrap_or("").to_string().into();
    let (about, document) = (text("about"), text("document"));
    let kernel = Kernel {
        codename: codename.to_string().into(),
        aliases: aliases.into_iter().map(Into::into).collect(),
        about,
        document,
        operation,
        function: function.to_string().into(),
        source: source.map(|s| s.to_string().into()),
        defines: read_defines(&o, mistakes).into(),
        lab_options: read_options(&o, mistakes).to_string().into(),
        covers: read_covers(&o, operation, mistakes),
        epilogue: read_epilogue(&o, mistakes).into(),
        restrictions,
    };
    check_operands(&kernel, &r, mistakes);
    if let Err(e) = kernel.check_covers() {
        mistakes.add(o.place(), e);
    }
    Some(kernel)
}

/// Returns the operation whose name begins the codename.
fn operation(o: &Object<'_>, codename: &str, mistakes: &mut Mistakes) -> Option<Operation> {
    let mut all = Operation::ALL.into_iter();
    let found = all.find(|op| codename.starts_with(&format!("{}_", op.name())));
    if found.is_none() {
        let names: Vec<&str> = Operation::ALL.iter().map(|op| op.name()).collect();
        mistakes.add(
            o.at("codename"),
            format_args!(
                "expected OPERATION_VARIANT with one of {}, found \"{codename}\"",
                names.join(", ")
            ),
        );
    }
    found
}

fn check_source_name(
    o: &Object<'_>,
    source: &str,
    function: &str,
    operation: Operation,
    mistakes: &mut Mistakes,
) {
    let stem = source.strip_suffix(".cl").map(|s| s.replace('/', "_"));
    let folder = format!("{}/", operation.name());
    if stem.as_deref() != Some(function) || !source.starts_with(&folder) {
        mistakes.add(
            o.place(),
            format_args!(
                "the function is FOLDER_FILE of the source and the folder is the operation; \
                 found {function} and {source}"
            ),
        );
    }
}

fn read_restrictions(
    r: &Object<'_>,
    operation: Operation,
    mistakes: &mut Mistakes,
) -> Option<Restrictions> {
    r.require_all(&["scale", "flop"], mistakes);
    let args = read_arguments(r, mistakes);
    let scale = read_tile(r, "scale", mistakes).unwrap_or((1, 1));
    let needs = read_needs(r, mistakes)?;
    let [a, b, result] = ["a", "b", "r"].map(|key| {
        let value = r.get(key)?;
        read_operand(value, r.at(key), mistakes)
    });
    let group = r.get("workGroup");
    let work_group = group.and_then(|v| sizes(v, &r.at("workGroup"), mistakes));
    let sweep = r.list("sweep", mistakes).into_iter().flatten();
    let sweep: Vec<_> = sweep
        .filter_map(|v| sizes(v, &r.at("sweep"), mistakes))
        .collect();
    let tile = read_tile(r, "tile", mistakes);
    let most = read_most(r, mistakes)?;
    let least = r.get("least");
    let least = least.and_then(|v| Object::new(v, r.at("least"), &["l"], mistakes));
    let least_l = least.and_then(|least| least.count("l", mistakes));
    let flop = r.count("flop", mistakes).unwrap_or(0) as u32;
    if operation.is_product() && r.get("flop").is_some() && flop == 0 {
        mistakes.add(r.at("flop"), "expected the flop of a multiply-add, found 0");
    }
    let mut flag = |key| r.flag(key, mistakes).unwrap_or(false);
    Some(Restrictions {
        args: args.into(),
        scale,
        scaled: flag("scaled"),
        columns_first: flag("columnsFirst"),
        guarded: flag("guarded"),
        half: flag("half"),
        bytes: flag("bytes"),
        a,
        b,
        r: result,
        flop,
        work_group,
        sweep: sweep.into(),
        needs,
        tile,
        most,
        least_l: least_l.unwrap_or(0),
        split: r.count("split", mistakes).unwrap_or(0),
        keeps: r.count("keeps", mistakes).unwrap_or(0),
    })
}

/// Reads the arguments that come before the operands. They are the list of names `args`, or the
/// same arguments as the letters of `arglist`.
fn read_arguments(r: &Object<'_>, mistakes: &mut Mistakes) -> Vec<LeadingArgument> {
    let (key, read) = match (r.get("args"), r.get("arglist")) {
        (Some(_), None) => {
            let names = r.texts("args", mistakes).unwrap_or_default();
            let read: Vec<_> = names
                .iter()
                .map(|name| LeadingArgument::named(name))
                .collect();
            ("args", read)
        }
        (None, Some(_)) => {
            let letters = r.text("arglist", mistakes).unwrap_or("");
            (
                "arglist",
                letters.chars().map(LeadingArgument::of_letter).collect(),
            )
        }
        _ => {
            let expected = "expected either \"args\" or \"arglist\"";
            mistakes.add(r.place(), expected);
            return Vec::new();
        }
    };
    let mut arguments = Vec::new();
    for argument in read {
        match argument {
            Ok(argument) => arguments.push(argument),
            Err(mistake) => mistakes.add(r.at(key), mistake),
        }
    }
    arguments
}

/// Checks that the entry describes exactly the operands that the operation has.
fn check_operands(kernel: &Kernel, r: &Object<'_>, mistakes: &mut Mistakes) {
    use Operation::{Affine, Convolution, Layers, Pair, Reduce, ReducePair};
    let operation = kernel.operation;
    let restrictions = &kernel.restrictions;
    // Kernels of `Order` and `Probe` have operands without layouts, so their entries describe none.
    let plain = matches!(operation, Operation::Order | Operation::Probe);
    let wants = |name: &str| !plain && operation.parameters().iter().any(|o| o.name == name);
    for (name, operand) in [
        ("a", &restrictions.a),
        ("b", &restrictions.b),
        ("r", &restrictions.r),
    ] {
        let there = operand.is_some();
        if wants(name) != there && r.get(name).is_some() == there {
            let what = if there { "takes no" } else { "needs an" };
            mistakes.add(
                r.place(),
                format_args!("{} {what} operand {name}", operation.name()),
            );
        }
    }
    let weights = restrictions
        .a
        .as_ref()
        .and_then(|a| a.representation.as_ref());
    match weights {
        Some(layout)
            if restrictions.needs.host && operation == Affine && layout.panel_rows().is_none() =>
        {
            mistakes.add(
                r.at("a"),
                format_args!(
                    "the host engine takes weights in R_P_1_C, P a multiple of 4; found {layout}"
                ),
            );
        }
        _ => {}
    }
    let adds_biases = matches!(
        operation,
        Affine | Pair | Layers | Convolution | Reduce | ReducePair
    );
    if restrictions.bytes && !adds_biases {
        mistakes.add(
            r.place(),
            "bytes: only a kernel that adds biases takes weights as bytes",
        );
    }
}

/// Reads the constants of a source, `"defines": {NAME: number, …}`.
fn read_defines(o: &Object<'_>, mistakes: &mut Mistakes) -> Vec<Define> {
    let Some(value) = o.get("defines") else {
        return Vec::new();
    };
    let define = |(name, value): (&String, &Json)| {
        Some(Define {
            name: name.clone().into(),
            value: value.as_u64()?.try_into().ok()?,
        })
    };
    let map = value.as_object();
    let defines = map.and_then(|map| map.iter().map(define).collect());
    defines.unwrap_or_else(|| {
        mistakes.add(o.at("defines"), "expected {NAME: whole number, …}");
        Vec::new()
    })
}

fn read_options<'v>(o: &Object<'v>, mistakes: &mut Mistakes) -> &'v str {
    let options = o.text("options", mistakes).unwrap_or("");
    let mut words = options.split_whitespace();
    if let Some(bad) = words.find(|option| !option.starts_with("-cl-")) {
        mistakes.add(
            o.at("options"),
            format_args!(
                "expected options of OpenCL's compiler (-cl-…), found \"{bad}\"; constants are \
                 defines"
            ),
        );
    }
    options
}

/// Reads the nodes that a kernel covers, in order: `"covers": ["affine", "activation?", "..."]`. A
/// `?` marks a node that a network may lack. A `...` at the end marks a repeated chain. The default
/// depends on the operation.
fn read_covers(o: &Object<'_>, operation: Operation, mistakes: &mut Mistakes) -> Covers {
    if o.get("covers").is_none() {
        return Covers::of(operation);
    }
    let mut names = o.texts("covers", mistakes).unwrap_or_default();
    let repeated = names.last().is_some_and(|name| name == "...");
    names.truncate(names.len() - usize::from(repeated));
    let node = |name: &String| {
        let required = name.trim_end_matches('?');
        Some(CoveredNode {
            node: covered(required, o.at("covers"), mistakes)?,
            optional: required.len() < name.len(),
        })
    };
    Covers {
        chain: names.iter().filter_map(node).collect(),
        repeated,
    }
}

fn read_epilogue(o: &Object<'_>, mistakes: &mut Mistakes) -> Vec<Covered> {
    let names = o.texts("epilogue", mistakes).unwrap_or_default();
    names
        .iter()
        .filter_map(|name| covered(name, o.at("epilogue"), mistakes))
        .collect()
}

fn covered(name: &str, place: String, mistakes: &mut Mistakes) -> Option<Covered> {
    let found = Covered::named(name);
    if found.is_none() {
        let names: Vec<&str> = Covered::all().map(|(name, _)| name).collect();
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

/// Reads `{"rows": …, "cols": …}`, both from 1 to [`MOST_SIZE`].
fn read_tile(o: &Object<'_>, key: &str, mistakes: &mut Mistakes) -> Option<(usize, usize)> {
    let tile = Object::new(o.get(key)?, o.at(key), &["rows", "cols"], mistakes)?;
    let (rows, cols) = (
        required_size(&tile, "rows", mistakes),
        required_size(&tile, "cols", mistakes),
    );
    Some((rows?, cols?))
}

/// Reads a size from 1 to [`MOST_SIZE`]. A size out of range is reported and replaced by 1. A
/// missing size is reported and gives `None`.
fn required_size(o: &Object<'_>, key: &str, mistakes: &mut Mistakes) -> Option<usize> {
    o.require(key, mistakes);
    Some(from_one(o, key, MOST_SIZE, mistakes)?.unwrap_or(1))
}

fn read_needs(r: &Object<'_>, mistakes: &mut Mistakes) -> Option<Needs> {
    let Some(value) = r.get("needs") else {
        return Some(Needs::default());
    };
    let keys = ["host", "images", "warp", "localBytes"];
    let o = Object::new(value, r.at("needs"), &keys, mistakes)?;
    Some(Needs {
        host: o.flag("host", mistakes).unwrap_or(false),
        images: o.flag("images", mistakes).unwrap_or(false),
        warp: o.flag("warp", mistakes).unwrap_or(false),
        local_bytes: o.count("localBytes", mistakes).unwrap_or(0),
    })
}

fn read_most(r: &Object<'_>, mistakes: &mut Mistakes) -> Option<Most> {
    let Some(value) = r.get("most") else {
        return Some(Most::default());
    };
    let keys = ["h", "l", "weights", "layers", "groups", "spread"];
    let o = Object::new(value, r.at("most"), &keys, mistakes)?;
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

fn read_operand(value: &Json, place: String, mistakes: &mut Mistakes) -> Option<Operand> {
    let o = Object::new(
        value,
        place,
        &["representation", "rowAlign", "colAlign", "image", "panels"],
        mistakes,
    )?;
    let row_align = required_size(&o, "rowAlign", mistakes);
    let col_align = required_size(&o, "colAlign", mistakes);
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
