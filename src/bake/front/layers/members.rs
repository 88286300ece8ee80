//! Reads the keys of one layer in a network JSON: window, border, axes, and numbers.

use super::form::Form;
use super::{FileArray, LayerKind, MOST_SIDE, shape};
use crate::bake::Mistakes;
use crate::bake::json::Object;
use crate::bake::matrix::Files;
use crate::ir::graph::Role;
use crate::ir::op::{Activation, Axis, Border, Float, Op, Padding, Pool, Window};
use std::fmt::Display;
use std::path::Path;

const AXES: [(&str, Axis); 3] = [
    ("channels", Axis::C),
    ("rows", Axis::Y),
    ("columns", Axis::X),
];

/// Reads the keys of one layer in a network JSON.
pub(super) struct MemberReader<'r, 'v, 'f> {
    pub(super) l: &'r Object<'v>,
    /// The folder to which paths in the file are relative.
    pub(super) folder: &'r Path,
    pub(super) files: &'r mut Files<'f>,
    pub(super) mistakes: &'r mut Mistakes,
}

impl MemberReader<'_, '_, '_> {
    /// Returns the operation of the layer. `None` after a mistake.
    pub(super) fn kind(&mut self, form: Form) -> Option<LayerKind> {
        let op = match form {
            Form::Affine => Op::Affine,
            Form::Convolution | Form::Depthwise => {
                let window = self.window(false);
                let groups = match form {
                    Form::Convolution => Some(self.groups()?),
                    _ => None,
                };
                return Some(LayerKind::Convolution {
                    window: window?,
                    groups,
                });
            }
            Form::Pool(kind) => self.pool(kind)?,
            Form::GlobalPool(kind) => return Some(LayerKind::GlobalPool(kind)),
            Form::BatchNorm | Form::Scale => Op::Scale,
            Form::PRelu => Op::PRelu,
            Form::Combine(arithmetic) => Op::Combine(arithmetic),
            Form::Concat if self.l.get("axis").is_none() => Op::Concat(Axis::C),
            Form::Concat => {
                let name = self.l.text("axis", self.mistakes)?;
                Op::Concat(self.axis("axis", name)?)
            }
            Form::Flatten => return Some(LayerKind::Flatten),
            Form::Reshape => {
                self.l.require("shape", self.mistakes);
                Op::Reshape(shape(self.l, self.mistakes)?)
            }
            Form::Transpose => self.transpose()?,
            Form::Pad => {
                self.l.require("pad", self.mistakes);
                let (border, value) = (self.border(), self.float("value", Some(0.0)));
                Op::Pad {
                    padding: Padding::of_border(border?),
                    value: value?,
                }
            }
            Form::Softmax => return Some(LayerKind::Softmax),
            _ => Op::Activation(self.activation(form)?),
        };
        Some(LayerKind::Op(op))
    }

    /// Reads the arrays of the layer, such as weights and biases.
    pub(super) fn arrays(&mut self, form: Form) -> Vec<FileArray> {
        match form {
            Form::Affine => self.weights_and_biases(true),
            Form::Convolution | Form::Depthwise => self.weights_and_biases(false),
            Form::BatchNorm => self.batch_norm(),
            Form::Scale => self.scale(),
            Form::PRelu => vec![self.column("slopes", Role::Factors)],
            _ => Vec::new(),
        }
    }

    /// Reports a mistake in the layer's key `key`.
    pub(super) fn report(&mut self, key: &str, message: impl Display) {
        self.mistakes.add(self.l.at(key), message);
    }

    /// Returns the element-wise function of a layer with its parameters. `None` after a mistake.
    fn activation(&mut self, form: Form) -> Option<Activation> {
        match form {
            Form::Activation(a) => Some(a),
            Form::LeakyRelu => self.float("slope", None).map(Activation::LeakyRelu),
            Form::Clip => {
                let (low, high) = (self.l.get("low").is_some(), self.l.get("high").is_some());
                if !low && !high {
                    self.mistakes
                        .add(self.l.place(), "expected low, high or both");
                }
                let low = self.float("low", Some(f32::NEG_INFINITY));
                let high = self.float("high", Some(f32::INFINITY));
                let (low, high) = (low?, high?);
                if low.get() > high.get() {
                    let (low, high) = (low.get(), high.get());
                    self.report(
                        "low",
                        format_args!("expected at most high, {high}, found {low}"),
                    );
                }
                Some(Activation::Clip { low, high })
            }
            Form::Elu => {
                let alpha = self.float("alpha", Some(1.0))?;
                Some(Activation::Elu {
                    alpha,
                    gamma: Float::new(1.0),
                })
            }
            Form::Gelu => {
                match self
                    .l
                    .get("approximate")
                    .map(|_| self.l.text("approximate", self.mistakes))
                {
                    None | Some(Some("none")) => Some(Activation::Gelu),
                    Some(Some("tanh")) => Some(Activation::GeluTanh),
                    Some(Some(other)) => {
                        let message = format!("expected none or tanh, found \"{other}\"");
                        self.report("approximate", message);
                        None
                    }
                    Some(None) => None,
                }
            }
            // Frameworks do not agree on α, so there is no default.
            Form::HardSigmoid => {
                let (alpha, beta) = (self.float("alpha", None), self.float("beta", None));
                Some(Activation::HardSigmoid {
                    alpha: alpha?,
                    beta: beta?,
                })
            }
            _ => None,
        }
    }

    fn pool(&mut self, kind: Pool) -> Option<Op> {
        let window = self.window(true);
        let mut flag = |key: &str| match self.l.get(key) {
            Some(_) => self.l.flag(key, self.mistakes),
            None => Some(false),
        };
        let (ceil, padded) = (flag("ceil"), flag("countIncludePad"));
        let kind = if padded? && kind == Pool::Mean {
            Pool::PaddedMean
        } else {
            kind
        };
        Some(Op::Pool {
            kind,
            window: Window {
                ceil: ceil?,
                ..window?
            },
        })
    }

    fn transpose(&mut self) -> Option<Op> {
        self.l.require("axes", self.mistakes);
        let names = self.l.texts("axes", self.mistakes)?;
        let axes: Vec<Option<Axis>> = names.iter().map(|name| self.axis("axes", name)).collect();
        let axes: Vec<Axis> = axes.into_iter().collect::<Option<_>>()?;
        let axes: Option<[Axis; 3]> = axes.try_into().ok();
        if axes.is_none_or(|axes| AXES.iter().any(|(_, a)| !axes.contains(a))) {
            self.report(
                "axes",
                "expected channels, rows and columns once each, in the new order",
            );
            return None;
        }
        axes.map(Op::Transpose)
    }

    fn axis(&mut self, key: &str, name: &str) -> Option<Axis> {
        let axis = AXES
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, axis)| *axis);
        if axis.is_none() {
            let message = format!("expected channels, rows or columns, found \"{name}\"");
            self.report(key, message);
        }
        axis
    }

    /// Reads a number in the range of f32. If the layer lacks the key, returns `default`. Without a
    /// default the key is required.
    fn float(&mut self, key: &str, default: Option<f32>) -> Option<Float> {
        if self.l.get(key).is_none() {
            if default.is_none() {
                self.l.require(key, self.mistakes);
            }
            return default.map(Float::new);
        }
        let x = self.l.number(key, self.mistakes)? as f32;
        if !x.is_finite() {
            self.report(key, "expected a number in the range of f32");
            return None;
        }
        Some(Float::new(x))
    }

    /// Reads whole numbers from `least` to [`MOST_SIDE`]. The key has one number, or a list with
    /// one of the `lengths`.
    fn counts(
        &mut self,
        key: &str,
        least: usize,
        lengths: &[usize],
        what: &str,
    ) -> Option<Vec<usize>> {
        let list = self.l.counts(key, self.mistakes)?;
        if !lengths.contains(&list.len()) && list.len() != 1 {
            let message = format!("expected a number or {what}, found {} numbers", list.len());
            self.report(key, message);
            return None;
        }
        if let Some(n) = list.iter().find(|n| !(least..=MOST_SIDE).contains(n)) {
            let message = format!("expected {least} to {MOST_SIDE}, found {n}");
            self.report(key, message);
            return None;
        }
        Some(list)
    }

    /// Reads a height and a width. If the layer lacks the key, returns `default`. Without a default
    /// the key is required.
    fn pair(&mut self, key: &str, default: Option<(usize, usize)>) -> Option<(usize, usize)> {
        if self.l.get(key).is_none() {
            if default.is_none() {
                self.l.require(key, self.mistakes);
            }
            return default;
        }
        match self.counts(key, 1, &[2], "[height, width]")?[..] {
            [n] => Some((n, n)),
            [h, w] => Some((h, w)),
            _ => None,
        }
    }

    /// Reads the key `pad`: one number, [rows, columns], or [top, left, bottom, right].
    fn border(&mut self) -> Option<Border> {
        if self.l.get("pad").is_none() {
            return Some(Border::default());
        }
        let expected = "[rows, columns] or [top, left, bottom, right]";
        let (top, left, bottom, right) = match self.counts("pad", 0, &[2, 4], expected)?[..] {
            [n] => (n, n, n, n),
            [y, x] => (y, x, y, x),
            [top, left, bottom, right] => (top, left, bottom, right),
            _ => return None,
        };
        Some(Border {
            top,
            left,
            bottom,
            right,
        })
    }

    /// Reads the window of a convolution or pooling. If `side_by_side` is true, the default stride
    /// is the size of the window. Otherwise it is 1.
    fn window(&mut self, side_by_side: bool) -> Option<Window> {
        let size = self.pair("kernel", None);
        let step = size.filter(|_| side_by_side).unwrap_or((1, 1));
        let (stride, dilation) = (
            self.pair("stride", Some(step)),
            self.pair("dilation", Some((1, 1))),
        );
        let border = self.border();
        Some(Window {
            size: size?,
            stride: stride?,
            dilation: dilation?,
            border: border?,
            ceil: false,
        })
    }

    fn groups(&mut self) -> Option<usize> {
        if self.l.get("groups").is_none() {
            return Some(1);
        }
        let groups = self.l.count("groups", self.mistakes)?;
        if groups == 0 {
            self.report("groups", "expected at least 1, found 0");
            return None;
        }
        Some(groups)
    }
}
