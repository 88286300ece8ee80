//! Facts that the kernel of a step is compiled for, besides the options of its library entry.
//!
//! Engines and the plan checker match on the fields. Only the `Display` of [`StepOptions`] writes
//! OpenCL compiler options.

use super::layout::{Layout, Order};
use super::op::{Activation, Arithmetic, Pool, SoftmaxOf};
use std::borrow::Cow;
use std::fmt;

/// Facts that the kernel of a step is compiled for. Most kernels need none.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct StepOptions {
    pub(crate) function: Function,
    /// True if the kernel adds a value with the result's layout before the activation.
    pub(crate) adds: bool,
    /// True if the kernel multiplies the layer's results by factors and adds summands, which are
    /// beside the biases.
    pub(crate) rescales: bool,
    /// True if the kernel rounds to whole numbers before the activation.
    pub(crate) rounds: bool,
    /// Layouts of the kernel's matrices, for kernels that support several.
    pub(crate) places: Places,
    /// Distance from each row of the operand to the next, in elements. `None` if distances differ
    /// or the kernel does not use them.
    pub(crate) row_step: Option<u32>,
    /// Rows of a panel of the weights. Only kernels for few records are compiled for it.
    pub(crate) panel: Option<usize>,
    /// Work-groups out of every 16 that ask the device's last cache to keep their weights. `None`
    /// if no work-group asks.
    pub(crate) kept: Option<usize>,
    /// The layers of a kernel that computes the whole network.
    pub(crate) layers: Option<LayersOptions>,
}

/// The function that a step computes, for operations that have several functions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Function {
    /// The operation has only one function.
    #[default]
    Only,
    /// The reduction over a pooling window.
    Pool(Pool),
    /// The `Scale` step is a PReLU, and its factors are the slopes.
    PRelu,
    Combine(Arithmetic),
    Softmax(SoftmaxOf),
}

/// The layouts that a kernel for several layouts is compiled for.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Places {
    /// The library entry of the kernel fixes its layouts.
    #[default]
    Fixed,
    /// Operands and result share one layout and one size, so the kernel works element by element.
    Alike,
    /// The operand has layout `from` and the result layout `to`. Both may be any layout.
    Levels { from: Layout, to: Layout },
}

/// Sizes and offsets for a kernel that computes the whole network. Offsets count vectors of the
/// length that the kernel uses.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LayersOptions {
    /// Number of classes, or 0 without an arg-max.
    pub(crate) classes: usize,
    /// Size of a work-group's part of the buffer between layers, in vectors. Without that buffer it
    /// is the most outputs of a layer before the last.
    pub(crate) hidden: usize,
    /// Size of a work-group's part of the scores, in vectors. For few records it is the rows of the
    /// scores.
    pub(crate) rows: usize,
    /// Columns of every matrix, one for each record. Only set for kernels of few records.
    pub(crate) width: Option<usize>,
    pub(crate) each: Cow<'static, [LayerOptions]>,
}

/// One layer of a kernel that computes the whole network.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LayerOptions {
    /// Columns of the weights with padding.
    pub(crate) columns: usize,
    /// Terms of each sum: the layer's inputs, rounded up to the kernel's column alignment.
    pub(crate) terms: usize,
    /// Groups of output rows. A group has the rows that a work-item computes at a time.
    pub(crate) groups: usize,
    pub(crate) activation: Activation,
    /// Offset of the weights in the buffer of all constants, in vectors.
    pub(crate) weights: usize,
    /// Offset of the biases in the buffer of all constants, in vectors.
    pub(crate) biases: usize,
    /// Offset of the layer's result in a work-group's part of the buffer between layers, in
    /// vectors. `None` if the kernel has no such buffer.
    pub(crate) start: Option<usize>,
    /// Row groups in a panel of the weights, for kernels that read panels.
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
            | Function::Softmax(SoftmaxOf::Linear) => None,
            Function::Pool(Pool::Mean) => Some(number("POOL", 1)),
            Function::Pool(Pool::PaddedMean) => Some(number("POOL", 2)),
            Function::PRelu => Some(number("PRELU", 1)),
            Function::Combine(Arithmetic::Subtract) => Some(number("COMBINE", 1)),
            Function::Combine(Arithmetic::Multiply) => Some(number("COMBINE", 2)),
            Function::Combine(Arithmetic::Divide) => Some(number("COMBINE", 3)),
            Function::Combine(Arithmetic::Maximum) => Some(number("COMBINE", 4)),
            Function::Combine(Arithmetic::Minimum) => Some(number("COMBINE", 5)),
            Function::Softmax(SoftmaxOf::Logarithm) => Some(number("LOGARITHM", 1)),
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

/// Returns the levels of a layout from the outside in. Each level has its order (0 row by row, 1
/// column by column), then rows and columns of its chunks. The innermost chunks are single
/// elements.
fn levels(layout: &Layout) -> String {
    let orders = std::iter::once(layout.outer).chain(layout.chunks.iter().map(|c| c.order));
    let sizes = layout.chunks.iter().map(|c| (c.rows, c.cols));
    let level = |(order, (y, x))| format!("{},{y},{x}", u8::from(order == Order::C));
    let all = orders.zip(sizes.chain([(1, 1)])).map(level);
    all.collect::<Vec<_>>().join(",")
}

/// Returns a float as OpenCL C source, with the fewest digits that give the same float.
fn float(x: f32) -> String {
    match x {
        f32::INFINITY => "INFINITY".into(),
        f32::NEG_INFINITY => "-INFINITY".into(),
        x => format!("{x:e}f"),
    }
}
