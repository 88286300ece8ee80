//! Decodes the launch of a step's kernel: sizes, words, compiler options, operands and work-items.

use crate::ir::layout::{Chunk, Layout, Order};
use crate::ir::network::Precision;
use crate::ir::op::{Activation, Float, Math};
use crate::ir::options::Function;
use crate::ir::plan::{Arg, Constant, EngineKind, Plan, Step};
use crate::registry::{Kernel, LeadingArgument, Library, Operation, Parameter};

/// A pair of numbers, one for the rows and one for the columns of an image.
#[derive(Clone, Copy)]
pub(super) struct Axes {
    pub(super) y: usize,
    pub(super) x: usize,
}

/// The kernel argument of an image operation, decoded from its words
/// (`kernels/common/geometry.cl`).
#[derive(Clone, Copy)]
pub(super) struct DecodedGeometry {
    /// The place of the operand's image in its matrix, in rows. The numbers are the row of the
    /// first pixel, the distance between pixels, and the distance between lines. `output` has the
    /// same for the result.
    pub(super) input: [usize; 3],
    pub(super) output: [usize; 3],
    /// The height and width of the operand, in pixels. `to` and `window` have those of the result
    /// and the window, `stride` and `dilation` the steps of the window.
    pub(super) from: Axes,
    pub(super) to: Axes,
    pub(super) window: Axes,
    pub(super) stride: Axes,
    pub(super) dilation: Axes,
    /// The border of the operand's image: at top and left in `before`, at bottom and right in
    /// `after`.
    pub(super) before: Axes,
    pub(super) after: Axes,
    /// The input channels of a group. `group_outputs` has the output channels of a group, and
    /// `outputs` those of all groups.
    pub(super) group_channels: usize,
    pub(super) group_outputs: usize,
    pub(super) outputs: usize,
}

impl DecodedGeometry {
    fn of(words: [u32; 16]) -> DecodedGeometry {
        let two = |i: usize| Axes {
            y: (words[i] & 0xffff) as usize,
            x: (words[i] >> 16) as usize,
        };
        let [a, b, c, _, d, e, f, ..] = words.map(|w| w as usize);
        DecodedGeometry {
            input: [a, b, c],
            output: [d, e, f],
            from: two(3),
            to: two(7),
            window: two(8),
            stride: two(9),
            dilation: two(10),
            before: two(11),
            after: two(12),
            group_channels: words[13] as usize,
            group_outputs: words[14] as usize,
            outputs: words[15] as usize,
        }
    }

    /// Returns the number of pixels in the result's image.
    pub(super) fn pixels(&self) -> usize {
        self.to.y * self.to.x
    }

    /// Returns the row that the first channel of a pixel has in the result's matrix.
    pub(super) fn written(&self, pixel: usize) -> usize {
        let [first, step, line] = self.output;
        first + pixel / self.to.x * line + pixel % self.to.x * step
    }

    /// Returns the row that the first channel of a pixel has in the operand's matrix. The pixel is
    /// at the position that pixel `pixel` has in the result.
    pub(super) fn read(&self, pixel: usize) -> usize {
        let [first, step, line] = self.input;
        first + pixel / self.to.x * line + pixel % self.to.x * step
    }

    /// Returns the row in the operand's matrix of the pixel that window element (ky, kx) covers,
    /// for pixel `pixel` of the result. It is the row of the first channel. `None` if the element
    /// is outside of the image.
    pub(super) fn under(&self, pixel: usize, (ky, kx): (usize, usize)) -> Option<usize> {
        let (y, x) = (pixel / self.to.x, pixel % self.to.x);
        let y = (y * self.stride.y + ky * self.dilation.y).checked_sub(self.before.y)?;
        let x = (x * self.stride.x + kx * self.dilation.x).checked_sub(self.before.x)?;
        let [first, step, line] = self.input;
        (y < self.from.y && x < self.from.x).then_some(first + y * line + x * step)
    }

    /// Returns the positions (ky, kx) of the window's elements, line by line.
    pub(super) fn taps(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let Axes { y, x } = self.window;
        (0..y).flat_map(move |ky| (0..x).map(move |kx| (ky, kx)))
    }

    /// Returns one more than the last row of the operand's matrix that windows over `channels`
    /// channels read.
    pub(super) fn end_read(&self, channels: usize) -> usize {
        let [first, step, line] = self.input;
        first + (self.from.y - 1) * line + (self.from.x - 1) * step + channels
    }
}

/// A kernel argument that maps elements to the rows where the kernel reads and writes them, decoded
/// from its words (`kernels/common/moved.cl`).
#[derive(Clone, Copy)]
pub(super) struct DecodedMap {
    words: [usize; 16],
}

impl DecodedMap {
    /// Returns the element that work-item `item` computes, and the element's row in the result. The
    /// element is `None` if the row is filled without a source.
    pub(super) fn to(&self, item: usize) -> (Option<usize>, usize) {
        let w = &self.words;
        let by_rows = w[3] > 0;
        // The difference is unsigned, as in the kernel. A row before the first row of the map
        // becomes a large number, which is outside of all loops of the map.
        let mut rest = if by_rows {
            (item as u32).wrapping_sub(w[1] as u32) as usize
        } else {
            item
        };
        let mut turns = [0; 3];
        for (turn, divisor) in turns.iter_mut().zip([w[2], w[5], w[8]]) {
            (*turn, rest) = (rest / divisor.max(1), rest % divisor.max(1));
        }
        let [i, j, k] = turns;
        let other = i * w[4] + j * w[7] + k * w[10];
        let inside = i < w[3] && j < w[6] && k < w[9] && rest == 0;
        match by_rows {
            true => (inside.then_some(other), item),
            false => (Some(item), w[1] + other),
        }
    }

    /// Returns the row of the operand, or the index in the constant array, that `element` is read
    /// from.
    pub(super) fn from(&self, element: usize) -> usize {
        let w = &self.words;
        let (first, second) = (w[11].max(1), w[13].max(1));
        let rest = element % first;
        w[0] + element / first * w[12] + rest / second * w[14] + rest % second * w[15]
    }
}

/// The decoded arguments that a kernel gets before its operands.
#[derive(Default)]
pub(super) struct DecodedArguments {
    sizes: Vec<(LeadingArgument, usize)>,
    params: [f32; 2],
    /// The factors of both operands of a rounded sum.
    factors: [f32; 2],
    /// The number that a gather kernel writes to rows without a source.
    pub(super) value: f64,
    /// The map of a gather kernel, or the maps of the factors and summands of a scale kernel.
    pub(super) moved: Vec<DecodedMap>,
    image: Option<DecodedGeometry>,
    /// The argument that describes a product of two values, as its words.
    pub(super) product: Option<[usize; 16]>,
}

impl DecodedArguments {
    /// Decodes the arguments before the operands. `expected` lists the kinds of arguments that the
    /// kernel takes.
    ///
    /// # Errors
    /// An argument is missing, or has another type than the kernel takes.
    fn new<'a>(
        expected: &[LeadingArgument],
        args: &mut impl Iterator<Item = &'a Arg>,
    ) -> Result<DecodedArguments, String> {
        let mut all = DecodedArguments::default();
        for &leading in expected {
            match (leading, args.next()) {
                (LeadingArgument::Moved | LeadingArgument::Added, Some(Arg::Moved(m))) => {
                    let words = m.words().map(|w| w as usize);
                    all.moved.push(DecodedMap { words });
                }
                (LeadingArgument::Geometry, Some(Arg::Geometry(g))) => {
                    all.image = Some(DecodedGeometry::of(g.words()));
                }
                (LeadingArgument::Product, Some(Arg::Product(p))) => {
                    all.product = Some(p.words().map(|w| w as usize));
                }
                (LeadingArgument::Params, Some(&Arg::Pair((x, y)))) => all.params = [x, y],
                (LeadingArgument::Factors, Some(&Arg::Pair((x, y)))) => all.factors = [x, y],
                (LeadingArgument::Value, Some(&Arg::Scalar(x))) => all.value = x.into(),
                (size, Some(&Arg::Size(n))) if size.is_size() => all.sizes.push((size, n as usize)),
                (_, found) => {
                    let name = leading.name();
                    return Err(format!("argument {name} of the kernel: found {found:?}"));
                }
            }
        }
        Ok(all)
    }
}

/// The numbers of work-items, or of work-items in a work-group, over rows and over columns.
#[derive(Clone, Copy)]
struct WorkItems {
    rows: usize,
    columns: usize,
}

/// One kernel launch, decoded from a step as the kernel sees its arguments.
pub(super) struct Call<'p> {
    pub(super) step: &'p Step,
    pub(super) kernel: &'p Kernel,
    /// True if the host engine executes the step. It has no work-items, and uses the layouts of the
    /// plan.
    pub(super) host: bool,
    /// The compiler options of the step, as text.
    options: String,
    pub(super) leading: DecodedArguments,
    /// The factor of a matrix product's sums. `beta` is the factor of the result's old numbers.
    pub(super) alpha: f64,
    pub(super) beta: f64,
    operands: Vec<(&'static Parameter, Arg)>,
    /// The number format of weights that the kernel is compiled for.
    pub(super) stored: Precision,
    items: WorkItems,
    /// The number of work-items in a work-group. `None` if the step leaves it to the driver.
    group: Option<WorkItems>,
    records: usize,
}

impl<'p> Call<'p> {
    /// Decodes a step of the plan, for a batch of `records` records.
    ///
    /// # Errors
    /// The arguments or the work-groups of the step do not match its kernel.
    pub(super) fn new(
        plan: &'p Plan,
        library: &'p Library,
        step: &'p Step,
        records: usize,
    ) -> Result<Call<'p>, String> {
        let (_, kernel) = library
            .kernel(&step.kernel)
            .ok_or("the library has no such kernel")?;
        if kernel.operation != step.operation {
            let (found, expected) = (step.operation.name(), kernel.operation.name());
            return Err(format!("the step computes {found}, the kernel {expected}"));
        }
        let r = &kernel.restrictions;
        let mut args = step.args.iter();
        let leading = DecodedArguments::new(&r.args, &mut args)?;
        let (mut alpha, mut beta) = (1.0, 0.0);
        if r.scaled {
            match (args.next(), args.next()) {
                (Some(&Arg::Scalar(a)), Some(&Arg::Scalar(b))) => {
                    (alpha, beta) = (a.into(), b.into());
                }
                found => return Err(format!("expected alpha and beta, found {found:?}")),
            }
        }
        let args = args.as_slice();
        let parameters = [false, true].map(|more| kernel.operation.operands(more));
        let parameters = parameters.into_iter().find(|p| p.len() == args.len());
        let parameters = parameters
            .ok_or_else(|| format!("the kernel does not take {} operands", args.len()))?;
        let stored = plan
            .constants_of(step)
            .map(Constant::weights)
            .max_by_key(|&p| p as u8);
        let (x, y) = step.global;
        let (items_x, items_y) = (x.items(records), y.items(records));
        if let Some((x, y)) = step
            .local
            .filter(|&(x, y)| items_x % x.max(1) != 0 || items_y % y.max(1) != 0)
        {
            return Err(format!(
                "{items_x} × {items_y} work-items in groups of {x} × {y}"
            ));
        }
        let dimensions = |sizes| {
            let (rows, columns) = r.dimensions(sizes);
            WorkItems { rows, columns }
        };
        Ok(Call {
            step,
            kernel,
            host: plan.engine == EngineKind::Host,
            options: step.options.to_string(),
            leading,
            alpha,
            beta,
            operands: parameters.iter().zip(args.iter().copied()).collect(),
            stored: stored.unwrap_or_default(),
            items: dimensions((items_x, items_y)),
            group: step.local.map(dimensions),
            records,
        })
    }

    pub(super) fn size(&self, argument: LeadingArgument) -> Option<usize> {
        let mut sizes = self.leading.sizes.iter();
        sizes.find(|(a, _)| *a == argument).map(|&(_, n)| n)
    }

    /// Returns the argument with the given size.
    ///
    /// # Errors
    /// The kernel does not get this size.
    pub(super) fn needed(&self, argument: LeadingArgument) -> Result<usize, String> {
        self.size(argument)
            .ok_or_else(|| format!("the kernel gets no size {}", argument.name()))
    }

    /// Returns the geometry argument, which describes images and a window.
    ///
    /// # Errors
    /// The kernel gets no geometry, or a geometry without pixels.
    pub(super) fn image(&self) -> Result<DecodedGeometry, String> {
        let image = self.leading.image.ok_or("the kernel gets no geometry")?;
        let DecodedGeometry { from, to, .. } = image;
        if [from.y, from.x, to.y, to.x, image.group_outputs].contains(&0) {
            Err("an image without pixels".into())
        } else {
            Ok(image)
        }
    }

    /// Returns the kernel parameter with this name, and the argument that the step gives for it.
    pub(super) fn operand(&self, name: &str) -> Option<(&'static Parameter, Arg)> {
        self.operands.iter().find(|(p, _)| p.name == name).copied()
    }

    /// Returns the value of the compiler option `-D` with this name. The step's options count
    /// first, then those of the kernel's library entry.
    pub(super) fn option(&self, name: &str) -> Option<String> {
        let of_step = self.options.split_whitespace().find_map(|option| {
            let (found, value) = option
                .strip_prefix("-D")?
                .split_once('=')
                .unwrap_or((&option[2..], "1"));
            (found == name).then(|| value.to_string())
        });
        let entry = self.kernel.defines.iter().find(|d| d.name == name);
        of_step.or_else(|| entry.map(|d| d.value.to_string()))
    }

    /// Returns the whole number in the compiler option `-D` with this name. `None` if neither the
    /// step nor the kernel's library entry sets it.
    ///
    /// # Errors
    /// The value of the option is not a whole number.
    pub(super) fn number(&self, name: &str) -> Result<Option<usize>, String> {
        let number = |text: String| {
            text.parse()
                .map_err(|_| format!("-D{name}={text}: expected a number"))
        };
        self.option(name).map(number).transpose()
    }

    /// Returns the whole number in the compiler option `-D` with this name, which must be set.
    ///
    /// # Errors
    /// The option is missing, or its value is not a whole number.
    pub(super) fn known(&self, name: &str) -> Result<usize, String> {
        self.number(name)?
            .ok_or_else(|| format!("the kernel is compiled without -D{name}"))
    }

    /// Returns the layout in the compiler option `name` (`FROM` or `TO`). `kernels/common/place.cl`
    /// defines its form.
    ///
    /// # Errors
    /// The numbers in the option do not describe a layout.
    pub(super) fn place(&self, name: &str) -> Result<Layout, String> {
        let text = self
            .option(name)
            .unwrap_or(if name == "FROM" { "0,1,1" } else { "1,1,1" }.into());
        let wrong = || format!("-D{name}={text} is no layout");
        let numbers = text
            .split(',')
            .map(|n| n.parse::<usize>().map_err(|_| wrong()));
        let numbers = numbers.collect::<Result<Vec<_>, _>>()?;
        let levels: Vec<&[usize]> = numbers.chunks(3).collect();
        let order = |level: &&[usize]| if level[0] == 0 { Order::R } else { Order::C };
        match levels.last() {
            Some([_, 1, 1]) => {}
            _ => return Err(wrong()),
        }
        let chunks = levels.windows(2).map(|pair| Chunk {
            rows: pair[0][1],
            cols: pair[0][2],
            order: order(&pair[1]),
        });
        let layout = Layout {
            outer: order(&levels[0]),
            chunks: chunks.collect::<Vec<_>>().into(),
        };
        if layout.chunks.iter().any(|c| c.rows == 0 || c.cols == 0) {
            Err(wrong())
        } else {
            Ok(layout)
        }
    }

    /// Returns the activation that the kernel applies to its result, with its parameters.
    pub(super) fn activation(&self) -> Activation {
        match self.step.operation {
            _ if self.host => self.step.activation,
            Operation::Sigmoid => Activation::Sigmoid,
            Operation::Relu => Activation::Relu,
            _ => self.step.activation.with(self.leading.params),
        }
    }

    /// Returns the factors of both operands of a rounded sum.
    pub(super) fn factors(&self) -> [Float; 2] {
        match self.step.options.function {
            Function::Combine(arithmetic) if self.host => arithmetic.factors(),
            _ => self.leading.factors.map(Float::new),
        }
    }

    /// Returns the nearest whole number if the step rounds, otherwise `x`.
    pub(super) fn rounded(&self, x: f64) -> f64 {
        match self.step.options.rounds {
            true => Activation::Math(Math::Round).apply(x),
            false => x,
        }
    }

    /// Returns the result for a number: it is rounded if the step rounds, and then the activation
    /// is applied.
    pub(super) fn finished(&self, x: f64) -> f64 {
        self.activation().apply(self.rounded(x))
    }

    pub(super) fn all_items(&self) -> usize {
        self.items.rows * self.items.columns
    }

    /// Returns the number of work-items over the rows of the result.
    pub(super) fn items_down(&self) -> usize {
        self.items.rows
    }

    /// Returns the number of partial results that work-groups compute for one result with `h` rows.
    /// It is 1 if work-groups do not share the common dimension.
    pub(super) fn parts(&self, h: usize) -> usize {
        match (self.kernel.restrictions.tile, self.group) {
            (Some((y, _)), Some(group)) if self.kernel.restrictions.split > 0 && !self.host => {
                (self.items.rows / group.rows / h.div_ceil(y).max(1)).max(1)
            }
            _ => 1,
        }
    }

    /// Returns how many of the result's `rows` rows the work-items compute.
    ///
    /// # Errors
    /// Work-items would write behind the last row, and the kernel has no bounds check.
    pub(super) fn rows(&self, rows: usize) -> Result<usize, String> {
        let r = &self.kernel.restrictions;
        let reached = match (r.tile, self.group) {
            _ if self.host => return Ok(rows),
            (Some((y, _)), Some(group)) => return Ok(rows.min(self.items.rows / group.rows * y)),
            _ => {
                let (scale, _) = r.scale;
                self.items.rows * scale.max(1)
            }
        };
        if reached > rows && !r.guarded {
            return Err(format!("work-items for {reached} rows, there are {rows}"));
        }
        Ok(rows.min(reached))
    }

    /// Returns true if the launch has work-items that compute the record of this column.
    pub(super) fn reaches(&self, column: usize) -> bool {
        let r = &self.kernel.restrictions;
        let (_, scale) = r.scale;
        let reached = match (r.tile, self.group) {
            _ if self.host => self.records,
            (Some((_, x)), Some(group)) => self.items.columns / group.columns * x,
            _ => self.items.columns * scale.max(1),
        };
        column < reached
    }

    /// Returns how many of the `pixels` pixels of this column's record the work-items compute.
    pub(super) fn reached_pixels(&self, column: usize, pixels: usize) -> usize {
        let r = &self.kernel.restrictions;
        let (_, scale) = r.scale;
        match (r.tile, self.group) {
            _ if self.host => pixels,
            // In a kernel for few records, no work-group computes pixels of two records.
            (Some((_, x)), Some(group)) if self.kernel.of_few() => {
                let (groups, each) = (self.items.columns / group.columns, pixels.div_ceil(x));
                pixels.min(groups.saturating_sub(column * each) * x)
            }
            (Some((_, x)), Some(group)) => {
                pixels.min((self.items.columns / group.columns * x).saturating_sub(column * pixels))
            }
            _ if column < self.items.columns / pixels * scale.max(1) => pixels,
            _ => 0,
        }
    }
}
