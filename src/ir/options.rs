//! The options that the kernel of a plan's step is compiled with, besides the options of its
//! library entry.
//!
//! The engines and the plan checker use the fields of [`StepOptions`]. Only its `Display` turns
//! them into OpenCL compiler options.

use super::layout::{Layout, Order};
use super::op::{Activation, Arithmetic, OfChannels, Pool};
use std::borrow::Cow;
use std::fmt;

/// The options that the kernel of one step is compiled with. Most kernels need none.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct StepOptions {
    pub(crate) function: Function,
    /// True if the kernel also adds the elements of another value before the activation, as in a
    /// residual block. That value has the result's layout.
    pub(crate) adds: bool,
    /// True if the kernel multiplies the layer's results by factors and adds summands, which are
    /// beside the biases.
    pub(crate) rescales: bool,
    /// True if the kernel rounds to whole numbers before the activation.
    pub(crate) rounds: bool,
    /// The layouts of the kernel's matrices, for kernels that are compiled for given layouts.
    pub(crate) places: Places,
    /// The distance from each row of the step's operand to the next, in elements. `None` if the
    /// distance varies or the kernel does not use it.
    pub(crate) row_step: Option<u32>,
    /// The number of rows in a panel of the step's weights. Only set for kernels for few records.
    pub(crate) panel: Option<usize>,
    /// The number of work-groups, out of every 16, that ask the device's last-level cache to keep
    /// their weights. `None` if no work-group asks.
    pub(crate) kept: Option<usize>,
    /// The layers of the network, for a kernel that computes the whole network. `None` for other
    /// kernels.
    pub(crate) layers: Option<LayersOptions>,
}

/// The function that a step computes, where one kernel serves several functions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Function {
    /// The kernel has only one function.
    #[default]
    Only,
    /// The maximum or the mean of each window, for a pooling kernel.
    Pool(Pool),
    /// PReLU, computed by a `Scale` kernel. The factors of the kernel are the slopes.
    PRelu,
    Combine(Arithmetic),
    OfChannels(OfChannels),
}

/// The layouts that a kernel is compiled for, if the same source serves several layouts.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Places {
    /// The kernel is written for the layouts in its library entry.
    #[default]
    Fixed,
    /// All operands and the result have the same layout and the same size. So the kernel works
    /// element by element and needs to know no layout.
    Alike,
    /// The operand has layout `from`, and the result has layout `to`. The kernel's source can be
    /// compiled for any two layouts.
    Levels { from: Layout, to: Layout },
}

/// The sizes and offsets for a kernel that computes the whole network. Offsets count vectors, which
/// have the vector length that the kernel uses.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LayersOptions {
    /// The number of classes that the kernel's arg-max compares. 0 if the kernel computes no
    /// arg-max.
    pub(crate) classes: usize,
    /// The size of a work-group's part of the buffer that holds values between layers, in vectors.
    /// A kernel without that buffer gets the largest number of outputs of all layers but the last.
    pub(crate) hidden: usize,
    /// The size of a work-group's part of the scores, in vectors. For kernels of few records it is
    /// the number of rows of the scores.
    pub(crate) rows: usize,
    /// The number of columns of every matrix, one column for each record. Only set for kernels of
    /// few records.
    pub(crate) width: Option<usize>,
    pub(crate) each: Cow<'static, [LayerOptions]>,
}

/// The sizes and offsets of one layer, for a kernel that computes the whole network.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LayerOptions {
    /// The number of columns of the layer's weights, padding included.
    pub(crate) columns: usize,
    /// The number of terms of each sum. It is the number of the layer's inputs, rounded up to the
    /// kernel's column alignment.
    pub(crate) terms: usize,
    /// The number of groups of output rows. A work-item computes one group at a time.
    pub(crate) groups: usize,
    pub(crate) activation: Activation,
    /// The offset of the layer's weights in the buffer of all constants, in vectors.
    pub(crate) weights: usize,
    /// The offset of the layer's biases in the buffer of all constants, in vectors.
    pub(crate) biases: usize,
    /// The offset of the layer's result in the work-group's part of the buffer that holds values
    /// between layers. It counts vectors. `None` if the kernel has no such buffer.
    pub(crate) start: Option<usize>,
    /// The number of row groups in a panel of the layer's weights, for kernels that read panels.
    pub(crate) panel: Option<usize>,
}

impl fmt::Display for StepOptions {
    /// Writes the OpenCL compiler options, separated by spaces.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all: Vec<String> = Vec::new();
        match &self.places {
            Places::Fixed => {}
            Places::Alike => all.push("-DALIKE".into()),
            Places::Levels { from, to } => {
                all.push(format!("-DFROM={} -DTO={}", levels(from), levels(to)));
            }
        }
        let number = |name: &str, value: usize| format!("-D{name}={value}");
        all.extend(match self.function {
            Function::Only
            | Function::Pool(Pool::Max)
            | Function::Combine(Arithmetic::Add)
            | Function::OfChannels(OfChannels::Softmax) => None,
            Function::Pool(Pool::Mean) => Some(number("POOL", 1)),
            Function::Pool(Pool::PaddedMean) => Some(number("POOL", 2)),
            Function::PRelu => Some(number("PRELU", 1)),
            Function::Combine(arithmetic) => Some(number("COMBINE", arithmetic.code() as usize)),
            Function::OfChannels(OfChannels::LogSoftmax) => Some(number("LOGARITHM", 1)),
            Function::OfChannels(OfChannels::ByteSteps) => Some(number("BYTE_STEPS", 1)),
            Function::OfChannels(OfChannels::IntegerSoftmax(factor)) => {
                Some(format!("-DFACTOR={}", float(factor.get())))
            }
        });
        all.extend(self.adds.then(|| number("ADD", 1)));
        all.extend(self.rescales.then(|| number("RESCALE", 1)));
        all.extend(self.rounds.then(|| number("ROUNDS", 1)));
        all.extend(self.row_step.map(|n| number("STEP", n as usize)));
        all.extend(self.panel.map(|n| number("PANEL", n)));
        all.extend(self.kept.map(|n| number("KEPT", n)));
        all.extend(self.layers.iter().map(LayersOptions::to_string));
        f.write_str(&all.join(" "))
    }
}

impl fmt::Display for LayersOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layers = self.each.len();
        write!(f, "-DLAYERS={layers} -DCLASSES={}", self.classes)?;
        write!(f, " -DHIDDEN={} -DROWS={}", self.hidden, self.rows)?;
        if let Some(width) = self.width {
            write!(f, " -DLAST_LAYER={} -DWIDTH={width}", layers - 1)?;
        }
        for (n, layer) in self.each.iter().enumerate() {
            for (name, value) in [
                ("L", Some(layer.columns)),
                ("K", Some(layer.terms)),
                ("Q", Some(layer.groups)),
                ("ACT", Some(layer.activation.code() as usize)),
                ("A", Some(layer.weights)),
                ("B", Some(layer.biases)),
                ("S", layer.start),
                ("P", layer.panel),
            ] {
                if let Some(value) = value {
                    write!(f, " -D{name}{n}={value}")?;
                }
            }
            let [a, b] = layer.activation.parameters().map(float);
            write!(f, " -DPARAMS{n}={a},{b}")?;
        }
        Ok(())
    }
}

/// Returns the levels of a layout as text, from the outermost in. Each level has its order (0 row
/// by row, 1 column by column), then the rows and columns of its chunks. The chunks of the last
/// level are single elements.
fn levels(layout: &Layout) -> String {
    let orders = std::iter::once(layout.outer).chain(layout.chunks.iter().map(|c| c.order));
    let sizes = layout.chunks.iter().map(|c| (c.rows, c.cols));
    let level = |(order, (y, x))| format!("{},{y},{x}", u8::from(order == Order::C));
    let all = orders.zip(sizes.chain([(1, 1)])).map(level);
    all.collect::<Vec<_>>().join(",")
}

/// Returns a float as OpenCL C source, with the fewest digits that read back as the same float.
fn float(x: f32) -> String {
    match x {
        f32::INFINITY => "INFINITY".into(),
        f32::NEG_INFINITY => "-INFINITY".into(),
        x => format!("{x:e}f"),
    }
}
