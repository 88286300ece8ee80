//! Verifies a finished plan from its steps alone, without the planner's intermediate data. It finds
//! values that are read before they are written, or overwritten before their last use. It also
//! checks that layouts, operand sizes and work-items are those that the kernels need.

use super::bind;
use super::contents::BufferContents;
use crate::ir::layout::Layout;
use crate::ir::network::{Network, Precision};
use crate::ir::options::Places;
use crate::ir::plan::{Arg, Buffer, BufferRole, Constant, Extent, Placing, Plan, Step};
use crate::ir::scale::BESIDE;
use crate::ir::view::{Geometry, Moved};
use crate::registry::{EngineKind, Kernel, Library, Operation, Problem, operands};

/// Returns the mistakes of a plan for `network`, one text each. A correct plan has none.
pub(crate) fn check(plan: &Plan, network: &Network, library: &Library) -> Vec<String> {
    let mut check = Check {
        plan,
        library,
        columns: plan.engine.arena_columns(plan.padded_batch),
        arena: Vec::new(),
        contents: BufferContents::of_input(plan, network),
        wrong: Vec::new(),
    };
    for (i, step) in plan.steps.iter().enumerate() {
        if plan.few.is_some_and(|few| i == few.first) {
            // The steps of the variant for few records start with an empty arena.
            check.arena.clear();
            check.contents = BufferContents::of_input(plan, network);
        }
        check.step(i, step);
    }
    check.wrong
}

/// The range of bytes in the arena that a buffer occupies.
#[derive(Clone, Copy, PartialEq)]
struct ArenaRange {
    start: usize,
    end: usize,
    buffer: usize,
}

impl ArenaRange {
    fn overlaps(&self, other: &ArenaRange) -> bool {
        self.start < other.end && other.start < self.end
    }
}

/// The state of a plan before one of its steps, and the mistakes in earlier steps.
struct Check<'p> {
    plan: &'p Plan,
    library: &'p Library,
    /// The number of columns that a buffer in the arena has.
    columns: usize,
    arena: Vec<ArenaRange>,
    contents: BufferContents<'p>,
    wrong: Vec<String>,
}

impl Check<'_> {
    fn say(&mut self, step: &Step, text: impl std::fmt::Display) {
        let text = format!("plan {}: {}: {text}", self.plan.name, step.kernel);
        self.wrong.push(text);
    }

    /// Checks step `i` and applies its effect on the arena and the buffers.
    fn step(&mut self, i: usize, step: &Step) {
        let (plan, library) = (self.plan, self.library);
        let Some((_, kernel)) = library.kernel(&step.kernel) else {
            return self.say(step, "no kernel of the library");
        };
        let outside = |a: &Arg| match *a {
            Arg::Buffer(i) => i >= plan.buffers.len(),
            Arg::Constant(i) => i >= plan.constants.len(),
            _ => false,
        };
        if step.args.iter().any(outside) {
            return self.say(step, "an argument that the plan does not have");
        }
        let (parameters, args) = operands(step);
        let more = parameters.len() > step.operation.parameters().len();
        let (adds, compiled) = (more && !kernel.takes_hidden(), step.options.adds);
        if (adds || compiled) && !(adds && compiled && kernel.adds() && adds_alike(plan, step, i)) {
            self.say(step, "does not add a value that stands as its result");
        }
        // The step before a reduce step reads weights in bytes. The reduce step reads their scales.
        let reads = |step, what: fn(&Constant) -> bool| plan.constants_of(step).any(what);
        let reduces = matches!(step.operation, Operation::Reduce | Operation::ReducePair);
        let weighted = if reduces {
            &plan.steps[i.saturating_sub(1)]
        } else {
            step
        };
        let bytes = reads(weighted, |c| c.precision == Precision::I8);
        if bytes != reads(step, |c| c.scales.is_some()) && !kernel.whole() {
            self.say(step, "bytes without scales");
        }
        let (rescales, compiled) = (reads(step, |c| c.rescale.is_some()), step.options.rescales);
        if (rescales || compiled) && !(rescales && compiled && kernel.rescales()) {
            self.say(
                step,
                "a scaling behind the layer that its kernel does not compute",
            );
        }
        if step.options.rounds && !kernel.rounds() {
            self.say(step, "does not round before its activation");
        }
        let operands: Vec<(&str, &Arg)> = parameters.iter().map(|p| p.name).zip(args).collect();
        for &(name, arg) in &operands {
            self.operand(step, kernel, name, arg);
        }
        for &(name, arg) in &operands {
            self.result(step, name, arg);
        }
        let mistakes = moved(plan, step, &self.contents);
        mistakes.into_iter().for_each(|t| self.say(step, t));
        let mistakes = product(plan, step);
        mistakes.into_iter().for_each(|t| self.say(step, t));
        self.contents.follow(step);
        if kernel.operation == Operation::Repack {
            let mistakes = repack(plan, step, &step.buffers().collect::<Vec<_>>());
            mistakes.into_iter().for_each(|t| self.say(step, t));
        }
        if plan.engine == EngineKind::OpenCl {
            // In programs without the lab, the engine checks the sizes of arguments at start
            // instead.
            if cfg!(any(test, fuzzing, feature = "lab")) {
                for (arg, bytes) in step.args.iter().zip(bind::touched(plan, step, library)) {
                    let mistakes = small(plan, arg, bytes);
                    mistakes.into_iter().for_each(|t| self.say(step, t));
                }
            }
            let mistakes = ranges(plan, step, kernel);
            mistakes.into_iter().for_each(|t| self.say(step, t));
        }
    }

    /// Returns the bytes of the arena that buffer `i` occupies, or `None` if it is not in the
    /// arena.
    fn range(&self, i: usize) -> Option<ArenaRange> {
        let buffer = &self.plan.buffers[i];
        (buffer.role == BufferRole::Hidden).then(|| ArenaRange {
            start: buffer.arena,
            end: buffer.arena + buffer.len(self.columns) * 4,
            buffer: i,
        })
    }

    /// Checks that an operand has the layout that the kernel reads, and lies inside the arena. If
    /// the step reads the operand, an earlier step must have written it.
    fn operand(&mut self, step: &Step, kernel: &Kernel, name: &str, arg: &Arg) {
        let plan = self.plan;
        let i = match *arg {
            Arg::Buffer(i) => i,
            Arg::Constant(c) => {
                let mistakes = constant(&plan.constants[c], kernel, name, step, plan);
                return mistakes.into_iter().for_each(|t| self.say(step, t));
            }
            _ => return,
        };
        let buffer = &plan.buffers[i];
        let mistakes = layout(buffer, kernel, name, plan);
        mistakes.into_iter().for_each(|t| self.say(step, t));
        let Some(range) = self.range(i) else { return };
        if range.end > plan.arena_bytes {
            let (end, bytes) = (range.end, plan.arena_bytes);
            let text = format!("{} ends at byte {end} of an arena of {bytes}", buffer.name);
            self.say(step, text);
        }
        let result = matches!(name, "r" | "classes" | "hidden");
        let in_place = name == "r" && kernel.restrictions.b.is_none();
        if (!result || in_place) && !self.arena.contains(&range) {
            let text = format!("{} is read, but its values are not there", buffer.name);
            self.say(step, text);
        }
    }

    /// Records that a result overwrites its bytes of the arena. The result must not overlap another
    /// buffer of the step.
    fn result(&mut self, step: &Step, name: &str, arg: &Arg) {
        let Arg::Buffer(i) = *arg else { return };
        let Some(range) = self.range(i).filter(|_| matches!(name, "r" | "hidden")) else {
            return;
        };
        for other in step.buffers().filter(|&other| other != i) {
            if self.range(other).is_some_and(|o| o.overlaps(&range)) {
                let [name, other] = [i, other].map(|b| &self.plan.buffers[b].name);
                let text = format!("writes {name} over {other}, which it also uses");
                self.say(step, text);
            }
        }
        self.arena.retain(|held| !held.overlaps(&range));
        self.arena.push(range);
    }
}

/// Returns an error if an argument has fewer bytes than the kernel may touch.
fn small(plan: &Plan, arg: &Arg, bytes: usize) -> Option<String> {
    let (name, has) = match *arg {
        Arg::Buffer(i) => (
            &plan.buffers[i].name,
            plan.buffers[i].len(plan.padded_batch) * 4,
        ),
        Arg::Constant(i) => (&plan.constants[i].name, plan.constants[i].bytes()),
        _ => return None,
    };
    (has < bytes).then(|| format!("{name} has {has} bytes, the kernel may touch {bytes}"))
}

/// Returns true if a convolution's buffers have the layouts that `kernel` takes.
pub(super) fn layouts(step: &Step, kernel: &Kernel, plan: &Plan) -> bool {
    let mut buffers = step.buffers().map(|b| &plan.buffers[b]);
    let read = buffers.next().map(|b| layout(b, kernel, "b", plan));
    let mut others = buffers.map(|b| layout(b, kernel, "r", plan));
    read.flatten().is_none() && others.all(|wrong| wrong.is_none())
}

/// Returns an error if a buffer's layout differs from the one that the kernel takes.
fn layout(buffer: &Buffer, kernel: &Kernel, operand: &str, plan: &Plan) -> Option<String> {
    let r = &kernel.restrictions;
    let takes = match operand {
        "b" => r.b.as_ref(),
        "r" => r.r.as_ref(),
        _ => None,
    }?;
    let takes = takes.representation.as_ref()?;
    let (rows, cols) = (buffer.padded_rows, plan.padded_batch);
    let meets = takes.fits(rows, cols).is_ok()
        && buffer.layout.fits(rows, cols).is_ok()
        && takes.same_placement(&buffer.layout, rows, cols);
    (!meets).then(|| {
        format!(
            "{} stands as {}, the kernel takes {takes}",
            buffer.name, buffer.layout
        )
    })
}

/// Returns true if the operand that `step` adds to its sums has the layout, size and geometry of
/// the result. `at` is the index of the step.
fn adds_alike(plan: &Plan, step: &Step, at: usize) -> bool {
    let &[.., Arg::Buffer(added), Arg::Buffer(result)] = &*step.args else {
        return false;
    };
    // The geometry of the step that wrote the added operand, if that step has one.
    let writer = plan
        .steps
        .iter()
        .take(at)
        .rfind(|s| s.args.last() == Some(&Arg::Buffer(added)));
    let image = writer.and_then(Step::geometry).map(|g| g.output);
    let (other, r) = (&plan.buffers[added], &plan.buffers[result]);
    other.layout == r.layout
        && other.padded_rows == r.padded_rows
        && (image.is_none() || image == step.geometry().map(|g| g.output))
}

/// Returns an error if a repack step is compiled for other layouts or sizes than its buffers have.
fn repack(plan: &Plan, step: &Step, buffers: &[usize]) -> Option<String> {
    let [from, to] = *buffers else {
        return Some(format!("expected two buffers, found {}", buffers.len()));
    };
    let (from, to) = (&plan.buffers[from], &plan.buffers[to]);
    let expected = Places::Levels {
        from: from.layout.clone(),
        to: to.layout.clone(),
    };
    if step.options.places != expected {
        let (from, to) = (&from.layout, &to.layout);
        return Some(format!(
            "is compiled with {:?}, expected {from} to {to}",
            step.options.places
        ));
    }
    let fits = [from, to].map(|b| b.layout.fits(b.padded_rows, plan.padded_batch));
    if let Some(e) = fits.into_iter().find_map(Result::err) {
        return Some(e);
    }
    let sizes = Problem {
        h: to.padded_rows,
        w: plan.padded_batch,
        l: from.padded_rows,
    };
    (step.problem != sizes || from.rows != to.rows).then(|| {
        let (from, to, padded) = (from.rows, to.rows, step.problem);
        format!("copies {from} of {to} rows, {padded:?}; its buffers are {sizes:?}")
    })
}

/// Returns an error if a step copies wrong rows, or gives rows the wrong elements of an array.
fn moved(plan: &Plan, step: &Step, contents: &BufferContents<'_>) -> Option<String> {
    let maps: Vec<Moved> = step.maps().collect();
    let &[.., Arg::Buffer(result)] = &*step.args else {
        return None;
    };
    let read = step.buffers().next()?;
    let (rows, written) = (
        plan.buffers[read].padded_rows,
        plan.buffers[result].padded_rows,
    );
    let expected = match step.operation {
        Operation::Scale => 2,
        Operation::Gather => 1,
        _ => 0,
    };
    if maps.len() != expected {
        return Some(format!("expected {expected} maps, found {}", maps.len()));
    }
    for m in &maps {
        let all = m.filled == 0 || m.filled == written;
        if m.from.len() != m.to.len() || !m.to.is_nested() || m.to.end() > written || !all {
            return Some(format!(
                "writes rows {:?} and fills {} of {written}",
                m.to, m.filled
            ));
        }
    }
    if step.operation == Operation::Gather {
        let end = maps[0].from.end();
        return (end > rows).then(|| format!("reads {end} rows of {rows}"));
    }
    for (n, (m, i)) in maps.iter().zip(step.constants()).enumerate() {
        let c = &plan.constants[i];
        let (numbers, _) = c.padded;
        if m.filled == 0
            || m.from.end() > numbers
            || c.placing != Placing::Plain
            || c.layout != Layout::C
        {
            return Some(format!(
                "{} {}: {:?} numbers for {m:?}",
                c.name,
                c.role.name(),
                c.padded
            ));
        }
        // Each element of the node's value must get its own element of the array.
        if let Some(wrong) = contents.reads(step, read, (n, c.tensor), m) {
            return Some(format!("{} {}: {wrong}", c.name, c.role.name()));
        }
    }
    None
}

/// Returns an error if a product of two values reads or writes rows that its buffers lack.
fn product(plan: &Plan, step: &Step) -> Option<String> {
    if step.operation != Operation::Product {
        return None;
    }
    let rows: Vec<usize> = step
        .buffers()
        .map(|i| plan.buffers[i].padded_rows)
        .collect();
    let (Some(product), &[a, b, r]) = (step.product(), &rows[..]) else {
        return Some("expected two operands, a result and their sizes".into());
    };
    let [first, second] = product.ends();
    let inside = first <= a && second <= b && product.len() <= r;
    (!inside).then(|| {
        let len = product.len();
        format!("reads rows up to {first} of {a} and {second} of {b}, writes {len} of {r}")
    })
}

/// Returns an error if a constant has another size, layout or number format than the kernel reads.
fn constant(
    c: &Constant,
    kernel: &Kernel,
    operand: &str,
    step: &Step,
    plan: &Plan,
) -> Option<String> {
    let (size_rows, size_columns) = c.size;
    let (padded_rows, padded_columns) = c.padded;
    let least_columns = match &c.placing {
        // Each kind of numbers beside the biases adds a column.
        _ if c.has_columns() && c.layout == Layout::panels(BESIDE) => c.columns_of_biases(),
        _ if c.has_columns() => usize::MAX,
        Placing::Plain => size_columns,
        Placing::Columns(map) => map.end(),
    };
    if padded_rows < size_rows
        || padded_columns < least_columns
        || c.layout.fits(padded_rows, padded_columns).is_err()
    {
        return Some(format!(
            "{} {}: {:?} does not hold {:?}",
            c.name,
            c.role.name(),
            c.padded,
            c.size
        ));
    }
    let a = kernel.restrictions.a.as_ref().filter(|_| operand == "a")?;
    if a.image != c.image {
        let what = |image: bool| if image { "an image" } else { "a buffer" };
        return Some(format!(
            "{} is {}, the kernel takes {}",
            c.name,
            what(c.image),
            what(a.image)
        ));
    }
    let takes = a.representation.as_ref()?;
    let (rows, columns) = match kernel.operation {
        Operation::Affine | Operation::Matmul => (step.problem.h, step.problem.l),
        Operation::Convolution => c.padded,
        _ => (padded_rows, step.problem.l),
    };
    let meets = match kernel.of_few() {
        // A kernel for few records is compiled for the height of the panels. More padding rows are
        // allowed.
        true => {
            let panel = if c.layout == *takes {
                Some(padded_rows)
            } else {
                c.layout.panel_rows()
            };
            panel.is_some()
                && panel == step.options.panel
                && padded_rows >= rows
                && padded_columns == columns
        }
        false => c.layout == *takes && c.padded == (rows, columns),
    };
    (!meets).then(|| {
        let (text, name) = (&c.layout, &c.name);
        format!(
            "plan {}: {name} stands as {text} of {:?}, the kernel takes {takes} of {:?}",
            plan.name,
            c.padded,
            (rows, columns)
        )
    })
}

/// Returns an error if an image of the step exceeds its buffer, or if the step leaves some rows of
/// its result unwritten.
fn image(plan: &Plan, step: &Step, geometry: &Geometry) -> Option<String> {
    let buffers: Vec<&Buffer> = step.buffers().map(|i| &plan.buffers[i]).collect();
    let ([first, ..], [.., last, written]) = (&buffers[..], &buffers[..]) else {
        return Some("reads and writes fewer than two buffers".into());
    };
    let read = if step.operation == Operation::Convolution {
        first
    } else {
        last
    };
    for ((image, shape), buffer) in [(geometry.input, read), (geometry.output, written)] {
        let end = image.first + (shape.h - 1) * image.line + (shape.w - 1) * image.pixel + shape.c;
        if end > buffer.padded_rows {
            let rows = buffer.padded_rows;
            return Some(format!(
                "an image of {shape} ends in row {end} of {}, which has {rows}",
                buffer.name
            ));
        }
    }
    // A kernel that works element by element also writes the rows behind the image.
    let (image, shape) = geometry.output;
    let rows = image.first + (shape.h - 1) * image.line + shape.w * image.pixel;
    (rows < written.padded_rows && !by_elements(step)).then(|| {
        let (name, all) = (&written.name, written.padded_rows);
        format!("writes {rows} rows of {name}, which has {all}: the others would hold anything")
    })
}

/// Returns true if each element of the result gets a work-item, because operands and result have
/// one layout.
fn by_elements(step: &Step) -> bool {
    let one = step.global.1 == Extent::Fixed(1);
    matches!(step.operation, Operation::Combine | Operation::Scale) && one
}

/// Returns an error if the work-items miss a row or a record. It tries batches of one record, of a
/// granule and of full size.
fn ranges(plan: &Plan, step: &Step, kernel: &Kernel) -> Option<String> {
    let r = &kernel.restrictions;
    let geometry = step.geometry();
    let pixels = geometry.map_or(1, |g| g.output.1.h * g.output.1.w);
    let moved = step.maps().next().map(|m| m.items());
    let rows = match kernel.operation {
        Operation::ArgMax | Operation::Softmax => 1,
        Operation::Gather => moved.unwrap_or(usize::MAX),
        _ => geometry.map_or(step.problem.h, |g| g.output.0.pixel),
    };
    if let Some(wrong) = geometry.and_then(|g| image(plan, step, &g)) {
        return Some(wrong);
    }
    for records in [1, plan.granule.min(plan.batch), plan.batch] {
        let (first, second) = (step.global.0.items(records), step.global.1.items(records));
        if let Some((x, y)) = step
            .local
            .filter(|&(x, y)| first % x != 0 || second % y != 0)
        {
            return Some(format!(
                "{first} × {second} work-items in groups of {x} × {y}"
            ));
        }
        let (down, along) = r.dimensions((first, second));
        let (computed_rows, computed_records) = match (r.tile, step.local.map(|l| r.dimensions(l)))
        {
            (Some((y, x)), Some((group_y, group_x))) => {
                (down / group_y * y, along / group_x * x / pixels)
            }
            _ if kernel.operation == Operation::ArgMax => (1, first),
            // Operands and result have one layout, and each element gets a work-item.
            _ if by_elements(step) => (rows, first / step.problem.h),
            _ if r.elementwise() => (rows, first / rows.max(1)),
            _ => (down * r.scale.0.max(1), along * r.scale.1.max(1) / pixels),
        };
        if computed_rows < rows || computed_records < records {
            return Some(format!(
                "work-items for {computed_rows} rows of {computed_records} records, needed for \
                 {rows} of {records}"
            ));
        }
    }
    None
}
