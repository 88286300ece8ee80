//! The pages of `--info` and `--version`.

use crate::baked::{self, library, network};
use crate::engine::model::{Model, planned};
use crate::engine::opencl::with_bytes;
use crate::engine::select::{self, Decision, Request};
use crate::error::Error;
use crate::escape;
use crate::ir::graph::{Node, Value};
use crate::ir::network::{Activation, Kind, Network, Transform, named};
use crate::ir::op::{Op, Operation};
use crate::ir::plan::{Arg, Buffer, BufferRole, EngineKind, Extent, Plan, Step};
use crate::ir::whole_numbers::ranges;
use crate::observe::profile::Phases;
use crate::observe::report::quoted;
use crate::planner::fit::{Fit, Memory};
use crate::registry::PlanRecipe;
use std::borrow::Cow;
use std::fmt::{self, Write};

/// Returns the line of `--version`, for example `mortonnet 0.1.0, digits 0123456789abcdef`.
pub(crate) fn version() -> String {
    format!(
        "mortonnet {}, {} {}",
        env!("CARGO_PKG_VERSION"),
        network().name,
        network().hash
    )
}

/// Returns the page of `--info`.
///
/// # Errors
/// The baked data is damaged.
pub(crate) fn page(request: &Request) -> Result<String, Error> {
    baked::verify()?;
    let mut s = String::new();
    // Names and labels in the model may contain line breaks, which are escaped here.
    let mut row = |name: &str, text: String| line(&mut s, name, &escape::line(&text));
    describe_network(&mut row);
    describe_golden(&mut row);
    let plans: Vec<&str> = library().plans.iter().map(|p| &*p.name).collect();
    row(
        "plans",
        format!(
            "{} (baked: {}); library {}",
            plans.join(", "),
            baked::plan().name,
            library().hash
        ),
    );
    // A program without the lab is meant for a board and does not compare plans.
    if cfg!(feature = "lab") {
        write_fits(&mut s, request);
    }
    let mut phases = Phases::default();
    match select::decide(request, &mut phases) {
        Ok(decisions) => {
            let request = &Request {
                grows: decisions.len() == 1,
                ..request.clone()
            };
            for decision in decisions {
                s.push_str(&decided(request, decision));
            }
        }
        Err(e) => line(&mut s, "runs on", &format!("nothing: {e}")),
    }
    Ok(s)
}

fn describe_network(row: &mut impl FnMut(&str, String)) {
    let (network, block) = (network(), baked::block());
    row(
        "program",
        format!("mortonnet {}", env!("CARGO_PKG_VERSION")),
    );
    row("model", format!("{}, hash {}", network.name, network.hash));
    let bytes = baked::plan().constant_bytes();
    row("constants", format!("{bytes} bytes"));
    let place = if cfg!(feature = "appended") {
        "appended"
    } else {
        "linked"
    };
    row(
        "block",
        format!(
            "{} bytes, {place}, SHA-256 {}, as it was written",
            block.len(),
            &block.hash()[..16]
        ),
    );
    row("input", input(network));
    row("output", output(network));
    row("layers", layers(network));
    let integers = Integers::of(network);
    if integers.layers + integers.sums > 0 {
        row("integers", integers.to_string());
    }
    row("work", format!("{} flop a record", network.flop()));
}

/// The steps of a network that compute on integers.
struct Integers {
    /// The layers that read whole numbers.
    layers: usize,
    /// All layers.
    all: usize,
    /// The sums of two values of whole numbers.
    sums: usize,
}

impl Integers {
    fn of(network: &Network) -> Integers {
        let graph = &network.graph;
        let whole = ranges(graph);
        let layers = |n: &&Node| matches!(n.op, Op::Affine | Op::Convolution { .. });
        let on_integers = |n: &&Node| whole[n.inputs[0]].is_some();
        let sum = |n: &&Node| matches!(n.op, Op::Combine(arithmetic) if arithmetic.rounds());
        Integers {
            layers: graph
                .nodes
                .iter()
                .filter(layers)
                .filter(on_integers)
                .count(),
            all: graph.nodes.iter().filter(layers).count(),
            sums: graph.nodes.iter().filter(sum).count(),
        }
    }
}

impl fmt::Display for Integers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} layers", self.layers, self.all)?;
        match self.sums {
            0 => {}
            1 => f.write_str(" and 1 sum")?,
            n => write!(f, " and {n} sums")?,
        }
        f.write_str(" compute on integers")
    }
}

fn describe_golden(row: &mut impl FnMut(&str, String)) {
    let given = if baked::golden_given() {
        "given with the network"
    } else {
        "computed by the build in float64"
    };
    let golden = baked::golden();
    let overflow = match golden.overflow.len() / network().width {
        0 => "none that overflows f32".to_string(),
        n => format!("{n} more overflow f32: a device must refuse them"),
    };
    row(
        "golden",
        format!("{} vectors, {given}; {overflow}", golden.count),
    );
    row("range", baked::range().to_string());
}

/// Returns the memory, launches and modelled time of every plan of the library that can run the
/// network. A plan has an entry for single records and one for batches of `batch` records. The
/// second is missing if `batch` is 1. `None` stands for the plan's own batch size.
fn table(batch: Option<usize>) -> impl Iterator<Item = (&'static PlanRecipe, Fit<'static>)> {
    let host = (std::env::consts::ARCH, select::threads());
    let of = move |(recipe, batch)| {
        let plan = planned(network(), recipe, library(), batch).ok()?;
        Some((recipe, Fit::of(&plan, library(), host, network().flop())))
    };
    let sizes = [Some(1), batch]
        .into_iter()
        .take(if batch == Some(1) { 1 } else { 2 });
    library()
        .plans
        .iter()
        .flat_map(move |recipe| sizes.clone().map(move |batch| (recipe, batch)))
        .filter_map(of)
}

/// Writes a table with the memory, launches, programs and modelled time of each plan.
fn write_fits(s: &mut String, request: &Request) {
    let row = |name: &str, numbers: [String; 8], class: &str| {
        let numbers: Vec<String> = numbers.iter().map(|n| format!("{n:>11}")).collect();
        format!("{name:<16}{} {class}", numbers.join(" "))
    };
    let head = [
        "records",
        "memory",
        "constants",
        "arena",
        "at least",
        "launches",
        "programs",
        "µs a record",
    ];
    line(
        s,
        "fits",
        &row("plan, in bytes", head.map(str::to_string), "modelled on"),
    );
    for (recipe, fit) in table(request.batch) {
        let (class, us) = match fit.modelled {
            Some((class, us)) => (class, format!("{us:.2}")),
            None => ("", "-".to_string()),
        };
        let (launches, programs) = match recipe.engine {
            EngineKind::Host => ("-".to_string(), "-".to_string()),
            EngineKind::OpenCl => (fit.steps.to_string(), fit.programs.to_string()),
        };
        let [batch, total, constants] =
            [fit.batch as u64, fit.memory.total(), fit.memory.constants].map(|n| n.to_string());
        let (bound, arena) = fit.arena;
        let numbers = [
            batch,
            total,
            constants,
            arena.to_string(),
            bound.to_string(),
            launches,
            programs,
            us,
        ];
        line(s, "", row(&recipe.name, numbers, class).trim_end());
    }
}

/// Returns the page of `--info` as JSON. Later versions may add keys, but never remove one.
///
/// # Errors
/// The baked data is damaged.
pub(crate) fn json(request: &Request) -> Result<String, Error> {
    baked::verify()?;
    let n = network();
    let fits = if cfg!(feature = "lab") {
        fits_json(request.batch)
    } else {
        String::new()
    };
    let names = |names: &[Cow<'static, str>]| {
        names
            .iter()
            .map(|n| quoted(n))
            .collect::<Vec<_>>()
            .join(",")
    };
    Ok(format!(
        "{{\"program\":\"{}\",\"model\":{},\"hash\":\"{}\",\"shape\":\"{}\",\"inputs\":{},\
         \"outputs\":{},\"output\":\"{}\",\"flop\":{},\"constants\":{},\"block\":{},\"plan\":{},\
         \"fits\":[{}],\"labels\":[{}],\"features\":[{}],\"no_overflow_up_to\":{},\
         \"integer_layers\":{},\"input_integers\":{}}}\n",
        env!("CARGO_PKG_VERSION"),
        quoted(&n.name),
        n.hash,
        n.shape(),
        n.width,
        n.outputs(),
        n.output.kind.name(),
        n.flop(),
        baked::plan().constant_bytes(),
        baked::block().len(),
        quoted(&baked::plan().name),
        fits,
        names(&n.labels),
        names(&n.features),
        // Inputs up to this magnitude cannot make a sum overflow. It is null if no limit is known.
        Some(baked::range().up_to)
            .filter(|&r| r > 0.0)
            .map_or("null".into(), |r| format!("{r:e}")),
        Integers::of(n).layers,
        n.bytes.map_or("null".into(), |bytes| format!(
            "{{\"type\":{},\"scale\":{:e},\"zero\":{}}}",
            quoted(bytes.name()),
            bytes.scale,
            bytes.zero()
        ))
    ))
}

/// Returns the table of [`write_fits`] as JSON objects, separated by commas.
fn fits_json(batch: Option<usize>) -> String {
    let plans: Vec<String> = table(batch)
        .map(|(recipe, fit)| {
            let (class, us) = fit
                .modelled
                .map_or(("null".into(), "null".into()), |(class, us)| {
                    (quoted(class), format!("{us:.3}"))
                });
            let Memory {
                constants,
                arena,
                batch,
            } = fit.memory;
            let (arena_bound, arena_bytes) = fit.arena;
            format!(
                "{{\"plan\":{},\"engine\":\"{}\",\"batch\":{},\"memory\":{},\
                 \"constants\":{constants},\"between_steps\":{arena},\"input_and_results\":{batch},\
                 \"arena\":{},\"arena_bound\":{},\"steps\":{},\"programs\":{},\
                 \"class\":{class},\"record_us\":{us}}}",
                quoted(&recipe.name),
                recipe.engine,
                fit.batch,
                fit.memory.total(),
                arena_bytes,
                arena_bound,
                fit.steps,
                fit.programs,
            )
        })
        .collect();
    plans.join(",")
}

fn line(s: &mut String, name: &str, text: &str) {
    let _ = writeln!(s, "{name:<10}{text}");
}

/// Returns lines about the plan that one device would run: the reasons for both, and the memory.
fn decided(request: &Request, decision: Decision) -> String {
    let mut s = String::new();
    decision
        .why
        .iter()
        .for_each(|why| line(&mut s, "runs on", why));
    if let Some(warning) = &decision.warning {
        line(&mut s, "", &warning.replace('\n', "\n          "));
    }
    let made = select::model(request, &decision);
    let for_device = |model: Model| match &decision.device {
        Some(device) => with_bytes(device, &model).map(|whole| whole.unwrap_or(model)),
        None => Ok(model),
    };
    match made.and_then(for_device) {
        Ok(model) => {
            s.push_str(&plan(&model.plan, model.laid_out_again));
            let apart = decision.device.as_ref().is_some_and(|d| !d.unified_memory);
            let Memory {
                constants,
                arena,
                batch,
            } = Memory::of(&model.plan, apart);
            let total = constants + arena + batch;
            let of =
                format!("constants {constants}, between steps {arena}, input and results {batch}");
            line(&mut s, "memory", &format!("{total} bytes: {of}"));
        }
        Err(e) => line(&mut s, "plan", &e.to_string()),
    }
    s
}

fn input(n: &Network) -> String {
    let mut text = format!("{} numbers a record", n.width);
    if !n.features.is_empty() {
        let names: Vec<&str> = n.features.iter().map(|f| &**f).collect();
        let _ = write!(text, " ({})", names.join(", "));
    }
    several(&mut text, &n.inputs);
    if let Some(bytes) = n.bytes {
        let (name, scale, zero) = (bytes.name(), bytes.scale, bytes.zero());
        let _ = write!(
            text,
            "; bytes are the model's {name} (scale {scale}, zero point {zero}), other numbers are \
             real"
        );
    }
    text.push_str(match (&n.transform, n.folded) {
        (_, true) => "; scaling folded into the first layer",
        (Transform::Identity, _) => "",
        (Transform::ScaleOffset { .. }, _) => "; scale and offset applied by the reader",
        (Transform::MeanStd { .. }, _) => "; mean and std applied by the reader",
    });
    text
}

/// Appends the names of a network's inputs or outputs, if it has several. Otherwise the list is
/// empty, and nothing is appended.
fn several(text: &mut String, values: &[Value]) {
    if !values.is_empty() {
        *text += ": ";
        *text += &named(values);
    }
}

fn output(n: &Network) -> String {
    let o = n.output;
    let mut text = match o.kind {
        Kind::Classes => format!(
            "{} classes, probabilities by {}",
            n.outputs(),
            o.activation.name()
        ),
        Kind::Binary => format!(
            "binary: class 1 where {} is above {}",
            o.activation.name(),
            o.threshold
        ),
        Kind::Multilabel => {
            format!(
                "{} labels, each where {} is above {}",
                n.outputs(),
                o.activation.name(),
                o.threshold
            )
        }
        Kind::Values => format!("{} values, activation {}", n.outputs(), o.activation.name()),
    };
    if !n.labels.is_empty() {
        let names: Vec<&str> = n.labels.iter().map(|l| &**l).collect();
        let _ = write!(text, " ({})", names.join(", "));
    }
    several(&mut text, &n.outputs);
    text
}

fn layers(n: &Network) -> String {
    let mut text = n.input().to_string();
    for node in n.graph.nodes.iter() {
        let _ = match node.op {
            Op::Affine => write!(text, " → {}", n.graph.values[node.output].shape),
            Op::Activation(a) => write!(text, " {}", a.name()),
            op => write!(
                text,
                " → {} {}",
                op.name(),
                n.graph.values[node.output].shape
            ),
        };
    }
    text
}

/// Returns lines about the sizes, constants and steps of a plan. At start, `again` of its constants
/// are converted to another layout.
fn plan(p: &Plan, again: usize) -> String {
    let mut s = String::new();
    let _ = writeln!(
        s,
        "plan      {} on the {} engine, batches of {} records (padded to {}, part batches to a \
         multiple of {})",
        p.name, p.engine, p.batch, p.padded_batch, p.granule
    );
    if again > 0 {
        let _ = writeln!(
            s,
            "          {again} constants are laid out again at start: the baked plan is {}",
            baked::plan().name
        );
    }
    let hidden = |b: &&Buffer| b.role == BufferRole::Hidden;
    let _ = writeln!(
        s,
        "          {} hidden buffers in an arena of {} bytes{} (at least {} are needed)",
        p.buffers.iter().filter(hidden).count(),
        p.arena_bytes,
        if p.engine == EngineKind::Host {
            " for a record"
        } else {
            ""
        },
        p.arena_bound
    );
    for c in p.constants.iter() {
        let ((rows, cols), (padded_rows, padded_cols)) = (c.size, c.padded);
        let _ = writeln!(
            s,
            "  constant  {} {:<8} {rows:>5}×{cols:<5} padded {padded_rows:>5}×{padded_cols:<5} \
             {:<10} {} bytes{}",
            c.name,
            c.role.name(),
            c.layout.to_string(),
            c.bytes(),
            if c.image { ", an image" } else { "" }
        );
    }
    for (i, step) in p.steps.iter().enumerate() {
        if let Some(few) = p.few.filter(|few| few.first == i) {
            let _ = writeln!(s, "  batches of {} records and fewer:", few.records);
        }
        describe_step(&mut s, p, step);
    }
    s
}

/// Appends the line that `--info` prints for one step of a plan.
fn describe_step(s: &mut String, p: &Plan, step: &Step) {
    let _ = write!(s, "  step      {:<24}", step.kernel);
    if step.options.adds {
        s.push_str(" + add");
    }
    let fused = step.operation.activation().is_none();
    if fused && step.activation != Activation::None {
        let _ = write!(s, " + {}", step.activation.name());
    }
    if let (Operation::Repack, [.., Arg::Buffer(from), Arg::Buffer(to)]) =
        (step.operation, &*step.args)
    {
        let (from, to) = (&p.buffers[*from].layout, &p.buffers[*to].layout);
        let _ = write!(s, " {from} → {to}");
    }
    if p.engine == EngineKind::OpenCl {
        let (first, second) = step.global;
        let _ = write!(s, "  work-items {} × {}", items(first), items(second));
        if let Some((y, x)) = step.local {
            let _ = write!(s, ", groups {y}×{x}");
        }
    }
    let _ = writeln!(s, "  {} flop a record", step.flop);
}

/// Returns in words how many work-items a launch has along one dimension.
fn items(extent: Extent) -> String {
    match extent {
        Extent::Fixed(n) => n.to_string(),
        Extent::Records { records: 1, items } => format!("{items} a record"),
        Extent::Records { records, items } => format!("{items} every {records} records"),
        Extent::Columns {
            columns,
            tile,
            group,
        } => format!("{group} for {tile} of {columns} columns a record"),
    }
}
