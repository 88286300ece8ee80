//! From a recipe and a network to a plan: chooses the kernel of each step, finds the padded sizes that all kernels
//! around a buffer accept, checks that layouts chain, and places the hidden buffers in the arena.

use super::layout::Layout;
use super::library::{Kernel, Library, Operation, PlanRecipe, Problem, lcm};
use super::network::{Activation, Kind, Layer, Network, Precision};
use super::plan::{
    ARENA_ALIGN, Arg, Buffer, BufferRole, Constant, Extent, Plan, Step, Tensor, TensorRole, places,
};
use std::fmt::Write;

/// Largest buffer of a plan.
const MOST_BYTES: u64 = (1 << 31) - 1;

/// Fewest columns of the weights that a work-group of a split layer adds up: below, its overhead is larger.
const LEAST_PART: usize = 48;

/// A step before sizes are known.
struct Draft<'l> {
    kernel: &'l Kernel,
    activation: Activation,
    layer: usize,
    /// The affine layer whose constants it reads.
    tensor_layer: Option<usize>,
    /// The second affine layer of a pair.
    second_layer: Option<usize>,
    /// Of a step for all layers.
    all: Option<AllLayers>,
    /// Parts of the common dimension that work-groups share: as many results stand in `output` (or in `input`).
    parts: usize,
    /// Buffer it reads (`b`); in-place steps have the same as `output`.
    input: usize,
    /// Buffer it writes (`r`).
    output: usize,
    flop: u64,
}

/// All affine layers of a network in one step.
struct AllLayers {
    /// Index in `Network::layers` and activation.
    layers: Vec<(usize, Activation)>,
    /// Buffer of the values between them: of each record those of even layers first, then those of odd ones.
    hidden: usize,
    /// Where those of odd layers start.
    odd: usize,
}

/// Most groups of records that a step for all layers numbers in half a word.
const MOST_GROUPS: usize = 1 << 16;

/// A buffer before sizes are known.
struct Room {
    name: String,
    rows: usize,
    row_multiple: usize,
    layout: Option<Layout>,
    /// It holds this many results of the shape of another room.
    parts_of: Option<(usize, usize)>,
}

/// Who last touched a buffer and in which layout, to be compared with the next one.
struct Link {
    room: usize,
    gives: Layout,
    takes: Layout,
    text: String,
}

struct Lowering<'l> {
    library: &'l Library,
    recipe: &'l PlanRecipe,
    batch: usize,
    drafts: Vec<Draft<'l>>,
    rooms: Vec<Room>,
    links: Vec<Link>,
    /// Columns of every buffer are a multiple of this.
    col_multiple: usize,
    errors: Vec<String>,
}

/// Lowers `recipe` for `network`; `batch` overrides the recipe's. All mistakes at once.
pub fn lower(
    network: &Network,
    recipe: &PlanRecipe,
    library: &Library,
    batch: Option<usize>,
) -> Result<Plan, Vec<String>> {
    let batch = batch.unwrap_or(recipe.batch).max(1);
    let mut l = Lowering {
        library,
        recipe,
        batch,
        drafts: Vec::new(),
        rooms: vec![Room {
            name: "input".into(),
            rows: network.width,
            row_multiple: 1,
            layout: None,
            parts_of: None,
        }],
        links: Vec::new(),
        col_multiple: 1,
        errors: Vec::new(),
    };
    l.for_plans();
    l.choose(network);
    if !l.errors.is_empty() {
        return Err(l.errors);
    }
    l.place(network, batch)
}

impl<'l> Lowering<'l> {
    /// Kernels that are compiled with more than a plan's options stay out of plans.
    fn for_plans(&mut self) {
        for name in self.recipe.kernels.iter() {
            if let Some((_, k)) = self.library.kernel(name).filter(|(_, k)| !k.lab_options.is_empty()) {
                self.errors.push(format!(
                    "plan {}: {name} is compiled with {}, which may change results: it is for bench, not for plans",
                    self.recipe.name, k.lab_options
                ));
            }
        }
    }

    fn kernels(&self, operation: Operation) -> impl Iterator<Item = &'l Kernel> + use<'l> {
        let (library, recipe) = (self.library, self.recipe);
        recipe
            .kernels
            .iter()
            .filter_map(|name| library.kernel(name))
            .map(|(_, k)| k)
            .filter(move |k| k.operation == operation)
    }

    fn kernel(&self, operation: Operation) -> Option<&'l Kernel> {
        self.kernels(operation).next()
    }

    /// Whether `kernel` can read the last room as it is.
    fn meets(&self, kernel: &Kernel) -> bool {
        let takes = kernel.restrictions.b.as_ref().and_then(|b| b.representation.as_ref());
        let gives = self.rooms.last().and_then(|r| r.layout.as_ref());
        takes.is_none() || gives.is_none() || takes == gives
    }

    /// The kernel of an affine layer: see [`PlanRecipe::kernels`].
    fn affine(&self, outputs: usize, inputs: usize) -> Option<&'l Kernel> {
        // Multiply-adds of a work-group; where there are more than run at a time, of the last to end.
        let longest = |k: &Kernel| {
            let Some((y, x)) = k.restrictions.tile else { return 0 };
            let turns = match k.restrictions.split {
                0 => 1,
                groups => (outputs.div_ceil(y) * self.batch.div_ceil(x)).div_ceil(groups),
            };
            y * x * inputs.div_ceil(self.parts(k, outputs, inputs)) * turns
        };
        self.kernels(Operation::Affine)
            .filter(|k| k.restrictions.most.admits(outputs, inputs) && self.meets(k))
            .min_by_key(|k| longest(k))
            .or_else(|| self.kernel(Operation::Affine))
    }

    /// Parts that the common dimension of a layer is split into: until there are as many work-groups as the kernel
    /// wants, but no part shorter than [`LEAST_PART`].
    fn parts(&self, kernel: &Kernel, outputs: usize, inputs: usize) -> usize {
        let r = &kernel.restrictions;
        let Some((y, x)) = r.tile.filter(|_| self.kernel(Operation::Reduce).is_some()) else { return 1 };
        let tiles = outputs.div_ceil(y) * self.batch.div_ceil(x);
        (r.split / tiles).min(inputs / LEAST_PART).max(1)
    }

    /// All layers and the arg-max as one step, where the plan has a kernel for that and the network suits it: affine
    /// layers with an activation each, as many as it takes and, if the plan can do without, no larger than it is for.
    fn whole(&mut self, network: &Network) -> Option<()> {
        let kernel = self.kernel(Operation::Layers)?;
        let r = &kernel.restrictions;
        let mut layers: Vec<(usize, Activation)> = Vec::new();
        let (mut h, mut l, mut weights, mut flop) = (0, 0, 0, 0);
        for (i, layer) in network.layers.iter().enumerate() {
            match (*layer, layers.last_mut()) {
                (Layer::Affine { outputs, inputs }, _) => {
                    (h, l, weights) = (h.max(outputs), l.max(inputs), weights + outputs * inputs);
                    flop += kernel.flop(Problem { h: outputs, w: 1, l: inputs });
                    layers.push((i, Activation::None));
                }
                (Layer::Activation(a), Some((_, none @ Activation::None))) => *none = a,
                _ => return None,
            }
        }
        let others = self.kernel(Operation::Affine).or(self.kernel(Operation::Matmul));
        let (records, a) = (r.tile?.1, r.a.as_ref()?);
        if layers.len() > r.most.layers
            || self.batch.div_ceil(records) > MOST_GROUPS
            || (others.is_some() && !r.most.admits_layers(h, l, weights))
        {
            return None;
        }
        let last = network.layers.len() - usize::from(network.output.kind != Kind::Classes);
        self.reads(kernel, 0, last);
        self.rooms[0].row_multiple = lcm(self.rooms[0].row_multiple, a.col_align);
        let height = |i: usize| match network.layers[i] {
            Layer::Affine { outputs, .. } => outputs.next_multiple_of(a.row_align),
            Layer::Activation(_) => 0,
        };
        // The last layer's values are the scores.
        let between = &layers[..layers.len() - 1];
        let most = |first| between.iter().skip(first).step_by(2).map(|l| height(l.0)).max().unwrap_or(0);
        let room = |name: &str, rows, row_multiple| Room {
            name: name.into(),
            rows,
            row_multiple,
            layout: r.r.as_ref().and_then(|o| o.representation.clone()),
            parts_of: None,
        };
        let odd = most(0);
        self.rooms.push(room("between layers", (odd + most(1)).max(a.row_align), 1));
        self.rooms.push(room("scores", network.outputs(), a.row_align));
        self.covers(kernel, 2);
        self.drafts.push(Draft {
            kernel,
            activation: Activation::None,
            layer: last,
            tensor_layer: None,
            second_layer: None,
            all: Some(AllLayers { layers, hidden: 1, odd }),
            parts: 1,
            input: 0,
            output: 2,
            flop,
        });
        Some(())
    }

    /// First pass: kernels and their demands.
    fn choose(&mut self, network: &Network) {
        if self.whole(network).is_some() {
            return;
        }
        let mut layers = network.layers.iter().copied().enumerate().peekable();
        while let Some((i, layer)) = layers.next() {
            match layer {
                Layer::Affine { outputs, inputs } => {
                    let flop = |kernel: &Kernel, h, l| kernel.flop(Problem { h, w: 1, l });
                    if let Some((pair, activation, second)) = self.pair(network, i) {
                        let Layer::Affine { outputs: last, .. } = network.layers[second] else { continue };
                        let flop = flop(pair, outputs, inputs) + flop(pair, last, outputs);
                        self.product(pair, activation, second, i, last, flop);
                        self.drafts.iter_mut().last().into_iter().for_each(|d| d.second_layer = Some(second));
                        layers.by_ref().take(second - i).for_each(|_| {});
                    } else if let Some(affine) = self.affine(outputs, inputs) {
                        let (mut activation, mut last) = (Activation::None, i);
                        if let Some(&(next, Layer::Activation(a))) = layers.peek() {
                            (activation, last) = (a, next);
                            layers.next();
                        }
                        let parts = self.parts(affine, outputs, inputs);
                        let flop = flop(affine, outputs, inputs);
                        match self.kernel(Operation::Reduce).filter(|_| parts > 1) {
                            None => self.product(affine, activation, last, i, outputs, flop),
                            Some(reduce) => {
                                self.split(affine, reduce, parts, activation, (last, i), outputs, flop)
                            }
                        }
                    } else if let Some(matmul) = self.kernel(Operation::Matmul) {
                        let flop = flop(matmul, outputs, inputs);
                        self.product(matmul, Activation::None, i, i, outputs, flop);
                        self.in_place(Operation::Bias, i, Some(i));
                    } else {
                        self.missing(i, "affine or matmul");
                    }
                }
                Layer::Activation(a) => {
                    if let Some(operation) = Operation::of_activation(a) {
                        self.in_place(operation, i, None);
                    }
                }
            }
        }
        if network.output.kind == Kind::Classes {
            let input = self.rooms.len() - 1;
            match self.kernel(Operation::ArgMax) {
                Some(kernel) => {
                    self.reads(kernel, input, network.layers.len());
                    self.drafts.push(Draft {
                        kernel,
                        activation: Activation::None,
                        layer: network.layers.len(),
                        tensor_layer: None,
                        second_layer: None,
                        all: None,
                        parts: 1,
                        input,
                        output: input,
                        flop: 0,
                    });
                }
                None => self.missing(network.layers.len(), "argmax"),
            }
        }
    }

    fn missing(&mut self, layer: usize, what: &str) {
        self.errors.push(format!(
            "plan {}: layers[{layer}] needs {} {what} kernel, the plan has none",
            self.recipe.name,
            if what.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" }
        ));
    }

    /// A step with a result of its own: matmul or fused affine.
    fn product(
        &mut self,
        kernel: &'l Kernel,
        activation: Activation,
        layer: usize,
        tensor_layer: usize,
        outputs: usize,
        flop: u64,
    ) {
        let r = &kernel.restrictions;
        let input = self.rooms.len() - 1;
        self.reads(kernel, input, layer);
        let mut rows = 1;
        if let Some(a) = &r.a {
            let (y, x) = a.representation.as_ref().map_or((1, 1), Layout::granularity);
            self.rooms[input].row_multiple = lcm(self.rooms[input].row_multiple, lcm(a.col_align, x));
            rows = lcm(a.row_align, y);
        }
        self.rooms.push(Room {
            name: format!("layer {layer}"),
            rows: outputs,
            row_multiple: rows,
            layout: r.r.as_ref().and_then(|o| o.representation.clone()),
            parts_of: None,
        });
        let output = self.rooms.len() - 1;
        self.covers(kernel, output);
        self.drafts.push(Draft {
            kernel,
            activation,
            layer,
            tensor_layer: Some(tensor_layer),
            second_layer: None,
            all: None,
            parts: 1,
            input,
            output,
            flop,
        });
    }

    /// The pair kernel, its activation and the second layer, where layer `i` and the next affine layer make a pair.
    fn pair(&self, network: &Network, i: usize) -> Option<(&'l Kernel, Activation, usize)> {
        let Layer::Affine { outputs, inputs } = network.layers[i] else { return None };
        let fits = |k: &&Kernel| k.restrictions.most.admits(outputs, inputs) && self.meets(k);
        let kernel = self.kernel(Operation::Pair).filter(fits)?;
        match network.layers.get(i + 1..)? {
            [Layer::Affine { .. }, ..] => Some((kernel, Activation::None, i + 1)),
            [Layer::Activation(a), Layer::Affine { .. }, ..] => Some((kernel, *a, i + 2)),
            _ => None,
        }
    }

    /// An affine layer in two steps: parts of the common dimension, then their sum with bias and activation.
    #[allow(clippy::too_many_arguments)]
    fn split(
        &mut self,
        affine: &'l Kernel,
        reduce: &'l Kernel,
        parts: usize,
        activation: Activation,
        (layer, tensor_layer): (usize, usize),
        outputs: usize,
        flop: u64,
    ) {
        self.product(affine, Activation::None, layer, tensor_layer, outputs, flop);
        let between = self.rooms.len() - 1;
        self.rooms[between].name = format!("parts of layer {layer}");
        self.drafts.iter_mut().last().into_iter().for_each(|d| d.parts = parts);
        let row_multiple = self.rooms[between].row_multiple;
        self.product(reduce, activation, layer, tensor_layer, outputs, 0);
        let output = between + 1;
        self.rooms[output].row_multiple = row_multiple;
        self.rooms[between].parts_of = Some((parts, output));
        self.drafts.iter_mut().last().into_iter().for_each(|d| d.parts = parts);
    }

    /// A step that changes a buffer where it is: bias or activation.
    fn in_place(&mut self, operation: Operation, layer: usize, tensor_layer: Option<usize>) {
        let Some(kernel) = self.kernel(operation) else {
            return self.missing(layer, operation.name());
        };
        let room = self.rooms.len() - 1;
        if let Some(takes) = kernel.restrictions.r.as_ref().and_then(|o| o.representation.clone()) {
            self.link(kernel, room, takes, layer);
        }
        self.covers(kernel, room);
        let flop = kernel.flop(Problem { h: self.rooms[room].rows, w: 1, l: 0 });
        self.drafts.push(Draft {
            kernel,
            activation: Activation::None,
            layer,
            tensor_layer,
            second_layer: None,
            all: None,
            parts: 1,
            input: room,
            output: room,
            flop,
        });
    }

    /// The demands of `kernel` on the buffer it reads.
    fn reads(&mut self, kernel: &'l Kernel, room: usize, layer: usize) {
        let Some(b) = &kernel.restrictions.b else { return };
        self.demands(room, b.row_align, b.col_align, b.representation.as_ref());
        if let Some(takes) = b.representation.clone() {
            self.link(kernel, room, takes, layer);
        }
    }

    /// The demands of `kernel` on the buffer it writes: alignment, and whole work-groups of whole tiles.
    fn covers(&mut self, kernel: &'l Kernel, room: usize) {
        let r = &kernel.restrictions;
        if let Some(o) = &r.r {
            self.demands(room, o.row_align, o.col_align, o.representation.as_ref());
        }
        if r.r.as_ref().is_some_and(|o| o.representation.is_some()) {
            let group = self.recipe.group(kernel).filter(|_| r.tile.is_none());
            let (rows, cols) = r.covers(group.unwrap_or((1, 1)));
            self.demands(room, rows, cols, None);
        }
    }

    fn demands(&mut self, room: usize, rows: usize, cols: usize, layout: Option<&Layout>) {
        let (y, x) = layout.map_or((1, 1), Layout::granularity);
        self.rooms[room].row_multiple = lcm(self.rooms[room].row_multiple, lcm(rows, y));
        self.col_multiple = lcm(self.col_multiple, lcm(cols, x));
    }

    /// Remembers that `kernel` takes buffer `room` in layout `takes`.
    fn link(&mut self, kernel: &Kernel, room: usize, takes: Layout, layer: usize) {
        match &self.rooms[room].layout {
            None => self.rooms[room].layout = Some(takes),
            Some(gives) => {
                let before = self.drafts.last().map_or("the input".into(), |d| d.kernel.codename.clone());
                let text = format!(
                    "plan {}: layers[{layer}]: {} takes its operand in layout {takes}, {before} before it gives {gives}; \
                     use kernels whose layouts meet",
                    self.recipe.name, kernel.codename
                );
                self.links.push(Link { room, gives: gives.clone(), takes, text });
            }
        }
    }

    /// Second pass: sizes, checks, arena, arguments.
    fn place(mut self, network: &Network, batch: usize) -> Result<Plan, Vec<String>> {
        let padded_batch = batch.max(1).next_multiple_of(self.col_multiple);
        let shape = |room: &Room| room.rows.next_multiple_of(room.row_multiple);
        let rows = |room: &Room| {
            room.parts_of.map_or_else(|| shape(room), |(parts, of)| parts * shape(&self.rooms[of]))
        };
        for link in &self.links {
            let padded = rows(&self.rooms[link.room]);
            let fits = link.gives.fits(padded, padded_batch).and(link.takes.fits(padded, padded_batch));
            if fits.is_err() || !link.gives.same_placement(&link.takes, padded, padded_batch) {
                self.errors.push(link.text.clone());
            }
        }
        // A part batch is a prefix where every buffer keeps its records outermost; else every batch is a full one.
        let layouts: Vec<Layout> = self.rooms.iter().map(|r| r.layout.clone().unwrap_or(Layout::C)).collect();
        let granule = layouts
            .iter()
            .try_fold(self.col_multiple, |g, l| l.column_prefix().map(|p| lcm(g, p)))
            .unwrap_or(padded_batch);

        let last = self.rooms.len() - 1;
        let mut buffers: Vec<Buffer> = self
            .rooms
            .iter()
            .zip(&layouts)
            .enumerate()
            .map(|(i, (room, layout))| Buffer {
                name: room.name.clone().into(),
                role: match i {
                    0 => BufferRole::Input,
                    _ if i == last => BufferRole::Scores,
                    _ => BufferRole::Hidden,
                },
                rows: room.rows,
                padded_rows: rows(room),
                layout: layout.clone(),
                arena: 0,
            })
            .collect();
        let classes = buffers.len();
        if network.output.kind == Kind::Classes {
            buffers.push(Buffer {
                name: "classes".into(),
                role: BufferRole::Classes,
                rows: 1,
                padded_rows: 1,
                layout: Layout::C,
                arena: 0,
            });
        }

        // Sizes stay within 32 bits, whatever the board's pointers are.
        for b in &buffers {
            let bytes = b.padded_rows as u64 * padded_batch as u64 * 4;
            if bytes > MOST_BYTES {
                self.errors.push(format!(
                    "plan {}: {} records of {} values need a buffer of {bytes} bytes, at most {MOST_BYTES} are possible; \
                     use a smaller batch",
                    self.recipe.name, padded_batch, b.padded_rows
                ));
            }
        }
        if !self.errors.is_empty() {
            return Err(self.errors);
        }
        let arena_bytes = self.arena(&mut buffers, padded_batch);
        let mut constants: Vec<Constant> = Vec::new();
        let mut steps = Vec::new();
        for d in &self.drafts {
            let (b, r) = (&buffers[d.input], &buffers[d.output]);
            // Of a row-major operand only the rows that count are read: the others stand behind them.
            let depth = match &d.kernel.restrictions.a {
                Some(a) if b.layout == Layout::R => {
                    let x = a.representation.as_ref().map_or(1, |l| l.granularity().1);
                    b.rows.next_multiple_of(lcm(a.col_align, x))
                }
                _ => b.padded_rows,
            };
            let mut middle = 0;
            if let (Some(_), Some(i), Some(a)) = (d.second_layer, d.tensor_layer, &d.kernel.restrictions.a) {
                if let Layer::Affine { outputs, .. } = network.layers[i] {
                    middle = outputs.next_multiple_of(a.row_align);
                }
            }
            let problem = match d.kernel.operation {
                Operation::ArgMax => Problem { h: 1, w: padded_batch, l: b.padded_rows },
                Operation::Reduce => Problem { h: r.padded_rows, w: padded_batch, l: d.parts },
                Operation::Matmul | Operation::Affine | Operation::Pair | Operation::Layers => {
                    Problem { h: r.padded_rows / d.parts, w: padded_batch, l: depth }
                }
                _ => Problem { h: r.padded_rows, w: padded_batch, l: 0 },
            };
            if let Err(failed) = d.kernel.admits(problem, None) {
                self.errors.extend(
                    failed.iter().map(|f| format!("plan {}: layers[{}]: {f}", self.recipe.name, d.layer)),
                );
            }
            let mut args: Vec<Arg> = Vec::new();
            for letter in d.kernel.restrictions.arglist.chars() {
                args.push(Arg::Size(match letter {
                    'l' => problem.l,
                    'w' => problem.w,
                    'h' => problem.h,
                    'm' => middle,
                    _ => b.rows,
                } as u32));
            }
            if d.kernel.restrictions.scaled {
                args.extend([Arg::Scalar(1.0), Arg::Scalar(0.0)]);
            }
            if d.kernel.restrictions.b.as_ref().is_some_and(|b| b.image) {
                self.errors.push(format!(
                    "plan {}: {} takes activations as an image",
                    self.recipe.name, d.kernel.codename
                ));
            }
            let mut options = String::new();
            for operand in d.kernel.operation.operands() {
                args.push(match *operand {
                    "a" if d.all.is_some() => {
                        options = layers_options(network, d, &buffers, problem.l, &mut constants);
                        Arg::Constants
                    }
                    "hidden" => Arg::Buffer(d.all.as_ref().map_or(d.output, |all| all.hidden)),
                    // Without an arg-max it is not written.
                    "classes" if network.output.kind != Kind::Classes => Arg::Buffer(d.output),
                    "b" => Arg::Buffer(d.input),
                    "r" => Arg::Buffer(d.output),
                    "classes" => Arg::Buffer(classes),
                    name => {
                        let role =
                            if name.starts_with('a') { TensorRole::Weights } else { TensorRole::Biases };
                        let layer = d.tensor_layer.unwrap_or(d.layer);
                        let (layer, sizes) = match d.second_layer {
                            Some(second) if name.ends_with('2') => (second, (problem.h, middle)),
                            Some(_) => (layer, (middle, problem.l)),
                            None => (layer, (problem.h, problem.l)),
                        };
                        let of_a = d.kernel.restrictions.a.as_ref().filter(|_| name == "a");
                        let layout = of_a.and_then(|o| o.representation.clone()).unwrap_or(Layout::R);
                        let halves = d.kernel.restrictions.half && network.weights == Precision::F16;
                        let precision = if halves { Precision::F16 } else { Precision::F32 };
                        constants.push(constant(network, layer, role, sizes, layout, precision));
                        Arg::Constant(constants.len() - 1)
                    }
                });
            }
            let group = self.recipe.group(d.kernel);
            steps.push(Step {
                layer: d.layer,
                operation: d.kernel.operation,
                kernel: d.kernel.codename.clone(),
                activation: d.activation,
                options: options.into(),
                args: args.into(),
                global: global(d.kernel, group, problem, granule, d.parts),
                local: group.map(|g| d.kernel.restrictions.dimensions(g)),
                problem,
                flop: d.flop,
            });
        }
        if !self.errors.is_empty() {
            return Err(self.errors);
        }
        Ok(Plan {
            name: self.recipe.name.clone(),
            engine: self.recipe.engine,
            batch: padded_batch.min(batch.max(1)),
            padded_batch,
            granule,
            constants: constants.into(),
            buffers: buffers.into(),
            arena_bytes,
            steps: steps.into(),
        })
    }

    /// Gives each hidden buffer the lowest place in the arena that is free from its first step to its last.
    fn arena(&self, buffers: &mut [Buffer], columns: usize) -> usize {
        let mut taken: Vec<(usize, usize, usize, usize)> = Vec::new(); // first step, last step, start, end
        let mut bytes = 0;
        for (i, buffer) in buffers.iter_mut().enumerate().filter(|(_, b)| b.role == BufferRole::Hidden) {
            let hidden = |d: &Draft| d.all.as_ref().is_some_and(|all| all.hidden == i);
            let uses = |d: &Draft| d.input == i || d.output == i || hidden(d);
            let first = self.drafts.iter().position(uses).unwrap_or(0);
            let last = self.drafts.iter().rposition(uses).unwrap_or(0);
            let size = (buffer.len(columns) * 4).next_multiple_of(ARENA_ALIGN);
            let mut start = 0;
            // Move behind whatever is in the way, until nothing is.
            let in_use = |t: &&(usize, usize, usize, usize)| t.0 <= last && first <= t.1;
            let overlaps =
                |start: usize| taken.iter().filter(in_use).find(|t| start < t.3 && t.2 < start + size);
            while let Some(t) = overlaps(start) {
                start = t.3;
            }
            buffer.arena = start;
            taken.push((first, last, start, start + size));
            bytes = bytes.max(start + size);
        }
        bytes
    }
}

/// What a kernel for all layers is compiled with. The constants of all layers join `constants`, which has no others;
/// the input has `l` rows.
fn layers_options(
    network: &Network,
    d: &Draft,
    buffers: &[Buffer],
    mut l: usize,
    constants: &mut Vec<Constant>,
) -> String {
    let r = &d.kernel.restrictions;
    let (Some(all), Some(a)) = (&d.all, &r.a) else { return String::new() };
    let precision = if r.half { network.weights } else { Precision::F32 };
    let sizes = |i: usize| match network.layers[i] {
        Layer::Affine { outputs, inputs } => (outputs, inputs),
        Layer::Activation(_) => (0, 0),
    };
    for &(i, _) in &all.layers {
        let h = sizes(i).0.next_multiple_of(a.row_align);
        for role in [TensorRole::Weights, TensorRole::Biases] {
            let layout = a.representation.clone().unwrap_or(Layout::R);
            constants.push(constant(network, i, role, (h, l), layout, precision));
        }
        l = h;
    }
    let (starts, _) = places(constants);
    let classes = if network.output.kind == Kind::Classes { network.outputs() } else { 0 };
    // Numbers are in fours of values; a chunk of a buffer has 16 records, so a row of it is four fours.
    let rows = |i: usize| 4 * buffers[i].padded_rows;
    let (hidden, rows) = (rows(all.hidden), rows(d.output));
    let mut text =
        format!("-DLAYERS={} -DCLASSES={classes} -DHIDDEN={hidden} -DROWS={rows}", all.layers.len());
    for (n, &(i, activation)) in all.layers.iter().enumerate() {
        let ((outputs, inputs), weights) = (sizes(i), &constants[2 * n]);
        let last = n + 1 == all.layers.len();
        for (letter, value) in [
            ("L", weights.padded.1),
            ("K", inputs.next_multiple_of(a.col_align)),
            ("Q", outputs.div_ceil(r.scale.0)),
            ("ACT", activation.code() as usize),
            ("A", starts[2 * n] / (4 * weights.precision.bytes())),
            ("B", starts[2 * n + 1] / 16),
            ("S", if last { 0 } else { n % 2 * 4 * all.odd }),
        ] {
            let _ = write!(text, " -D{letter}{n}={value}");
        }
    }
    text
}

fn constant(
    network: &Network,
    layer: usize,
    role: TensorRole,
    padded: (usize, usize),
    layout: Layout,
    precision: Precision,
) -> Constant {
    let size = match network.layers[layer] {
        Layer::Affine { outputs, inputs } => (outputs, inputs),
        Layer::Activation(_) => (0, 0),
    };
    let tensor = Tensor { layer, role };
    match role {
        TensorRole::Weights => Constant { tensor, size, padded, layout, precision },
        TensorRole::Biases => {
            let (size, padded) = ((size.0, 1), (padded.0, 1));
            Constant { tensor, size, padded, layout: Layout::C, precision: Precision::F32 }
        }
    }
}

/// Work-items of a full-granule launch: one per tile, one per element for kernels that take any layout, one per column
/// for the arg-max; or whole work-groups over tiles.
fn global(
    kernel: &Kernel,
    group: Option<(usize, usize)>,
    p: Problem,
    granule: usize,
    parts: usize,
) -> (Extent, Extent) {
    let per_granule = |items| Extent::Records { records: granule, items };
    let r = &kernel.restrictions;
    if let (Some((y, x)), Some(group)) = (r.tile, group) {
        let shared = if kernel.operation == Operation::Reduce { 1 } else { parts };
        let items = p.h.div_ceil(y) * group.0 * shared;
        return (Extent::Fixed(items), per_granule(granule.div_ceil(x) * group.1));
    }
    match kernel.operation {
        Operation::ArgMax => (per_granule(granule), Extent::Fixed(1)),
        _ if r.r.as_ref().is_some_and(|o| o.representation.is_none()) => {
            (per_granule(granule * p.h), Extent::Fixed(1))
        }
        _ => {
            let rows = p.h.div_ceil(r.scale.0).next_multiple_of(group.map_or(1, |g| g.0));
            r.dimensions((Extent::Fixed(rows), per_granule(granule / r.scale.1)))
        }
    }
}
