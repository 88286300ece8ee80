//! Facts of a step that its kernel is compiled for, beside the options of its library entry.
//!
//! Engines and the plan checker match on the fields. The text of compiler options is made in one
//! place, the `Display` of [`StepOptions`], for OpenCL.

use super::layout::{Layout, Order};
use super::op::{Activation, Arithmetic, Pool, SoftmaxOf};
use std::borrow::Cow;
use std::fmt;

/// Facts of a step that its kernel is compiled for. Most kernels need none.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct StepOptions {
    /// The function of the operands, where the operation leaves a choice.
    pub(crate) function: Function,
    /// True if the kernel adds a value with the result's layout before the activation.
    pub(crate) adds: bool,
    /// Layouts of the kernel's matrices, for kernels that take several.
    pub(crate) places: Places,
    /// Elements from a row of the operand to the next, where that is one number.
    pub(crate) row_step: Option<u32>,
    /// Rows of a panel of the weights.
    pub(crate) panel: Option<usize>,
    /// The number of work-groups, out of 16, that ask the last cache to keep their weights.
    pub(crate) kept: Option<usize>,
    /// The layers of a kernel that computes all of them.
    pub(crate) layers: Option<LayersOptions>,
}

/// The function of a step's operands, where its operation leaves a choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Function {
    /// The operation has one function.
    #[default]
    Only,
    /// The function of a pooling window.
    Pool(Pool),
    /// The `Scale` step is a PReLU: its factors are slopes.
    PRelu,
    /// The arithmetic of a `Combine` step.
    Combine(Arithmetic),
    /// The result of a softmax.
    Softmax(SoftmaxOf),
}

/// Layouts that a kernel for several layouts is compiled for.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Places {
    /// The kernel's entry in the library fixes its layouts.
    #[default]
    Fixed,
    /// Operands and result have one layout and one size: the kernel goes element by element.
    Alike,
    /// Any two layouts.
    Levels {
        /// The operand's layout.
        from: Layout,
        /// The result's layout.
        to: Layout,
    },
}

/// Sizes and places that a kernel for all layers is compiled for, in units of its vectors.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LayersOptions {
    /// Classes of the arg-max; 0 for none.
    pub(crate) classes: usize,
    /// Rows of the buffer between layers.
    pub(crate) hidden: usize,
    /// Rows of the scores.
    pub(crate) rows: usize,
    /// Columns of every matrix, for a kernel for few records.
    pub(crate) width: Option<usize>,
    /// The layers, in order.
    pub(crate) each: Cow<'static, [LayerOptions]>,
}

/// One layer of a kernel for all layers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LayerOptions {
    /// Columns of the weights, padded.
    pub(crate) columns: usize,
    /// Terms of each sum.
    pub(crate) terms: usize,
    /// Groups of rows, one a work-item.
    pub(crate) groups: usize,
    /// The function behind the sums.
    pub(crate) activation: Activation,
    /// The start of the weights in the buffer of all constants.
    pub(crate) weights: usize,
    /// The start of the biases there.
    pub(crate) biases: usize,
    /// The start of the layer's values in the buffer between layers, if there is one.
    pub(crate) start: Option<usize>,
    /// Groups of rows of a panel of the weights, for a kernel that takes panels.
    pub(crate) panel: Option<usize>,
}

impl fmt::Display for StepOptions {
    /// Writes compiler options, separated by spaces.
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
            Function::Softmax(SoftmaxOf::Logarithm) => Some(number("LOGARITHM", 1)),
        });
        all.extend(self.adds.then(|| number("ADD", 1)));
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

/// The levels of a layout from the outside in: order (0 row major, 1 column major), rows and
/// columns of the chunks inside. The last chunks are elements.
fn levels(layout: &Layout) -> String {
    let orders = std::iter::once(layout.outer).chain(layout.chunks.iter().map(|c| c.order));
    let sizes = layout.chunks.iter().map(|c| (c.rows, c.cols));
    let level = |(order, (y, x))| format!("{},{y},{x}", u8::from(order == Order::C));
    let all = orders.zip(sizes.chain([(1, 1)])).map(level);
    all.collect::<Vec<_>>().join(",")
}

/// A float as OpenCL C writes it: the shortest digits that are this float again.
fn float(x: f32) -> String {
    match x {
        f32::INFINITY => "INFINITY".into(),
        f32::NEG_INFINITY => "-INFINITY".into(),
        x => format!("{x:e}f"),
    }
}
