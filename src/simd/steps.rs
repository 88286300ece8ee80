//! The steps of a network as the host carries them out.

use super::buffers::Floats;
use super::dense::{Dense, Weights};
use super::images;
use super::micro::winograd;
use super::micro::{Kernels, WindowOp};
use super::moves::Moves;
use super::product;
use crate::error::Error;
use crate::ir::graph::Shape;
use crate::ir::network::Activation;
use crate::ir::op::Arithmetic;
use crate::ir::product::Product;
use crate::ir::taps::Taps;
use crate::ir::view::{Geometry, Image};
use crate::planner::fit;
use std::borrow::Cow;

/// A step of the network.
pub(crate) struct HostStep {
    pub(crate) action: Action,
    /// The buffer that it reads.
    pub(crate) from: Place,
    /// The buffer that it writes.
    pub(crate) to: Place,
}

impl HostStep {
    /// Returns true if the step reads or writes a buffer.
    pub(super) fn touches(&self, place: Place) -> bool {
        let other = match self.action {
            Action::Combine { other, .. } | Action::Product { other, .. } => Some(other),
            _ => None,
        };
        [Some(self.from), Some(self.to), other].contains(&Some(place))
    }
}

/// A buffer of activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The records of the batch.
    Input,
    /// A buffer between steps.
    Hidden(usize),
    /// The result of the last step.
    Scores,
}

/// The computation of a step.
pub(crate) enum Action {
    Affine(Dense),
    /// A convolution of all channels. `Dense::inputs` are the elements of a window.
    Convolution(Dense, Geometry),
    /// A convolution of all channels by 3 × 3, by tiles of 2 × 2 pixels. The rows of each element
    /// of a tile stand one after the other; the activation is applied behind the last transform.
    Tiles(Dense, Geometry),
    /// A function of windows, channel by channel.
    Windows {
        operation: WindowOp,
        /// Weights (floats) of all channels, element by element of the window, and a bias for each
        /// channel. Only products have them.
        weights: Option<(Weights, Cow<'static, [f32]>)>,
        /// Applied to each result.
        activation: Activation,
        /// Places of operand and result.
        geometry: Geometry,
    },
    /// Arithmetic of two values, element by element.
    Combine {
        arithmetic: Arithmetic,
        /// The buffer of the second operand.
        other: Place,
        /// Applied to each result.
        activation: Activation,
        /// Places of the second operand and of the result.
        geometry: Geometry,
    },
    /// Factors and summands of rows. Without summands the factors are for values below 0.
    Scale {
        factors: Cow<'static, [f32]>,
        biases: Option<Cow<'static, [f32]>>,
        /// The factor and the summand of each row.
        moves: Moves<3>,
        /// Applied to each result.
        activation: Activation,
    },
    /// Sums of pixels of few rows and columns, each by its weight.
    Resample {
        taps: Taps,
        /// Places of operand and result.
        geometry: Geometry,
    },
    /// The product of two values in groups.
    Product {
        product: Product,
        /// The buffer of the second operand.
        other: Place,
        /// Rows of the result, padding included.
        rows: usize,
    },
    /// Softmax over the channels of each pixel, or its logarithm.
    Softmax {
        /// Places of operand and result.
        geometry: Geometry,
        /// True for the logarithm.
        logarithm: bool,
    },
    /// Copies rows to other rows.
    Gather {
        moves: Moves<2>,
        /// Written where nothing is read.
        value: f32,
    },
    /// An activation in place.
    Activate(Activation),
    /// The class from so many scores.
    ArgMax(usize),
}

impl Action {
    /// Turns a convolution into one by tiles, where it can go by tiles and the instruction set has
    /// the transforms.
    pub(super) fn by_tiles(&mut self, kernels: &Kernels) -> Result<(), Error> {
        let Action::Convolution(dense, geometry) = self else {
            return Ok(());
        };
        let (rows, (_, from), panel) = (dense.biases.len(), geometry.input, dense.panel);
        let channels = from.c;
        let transforms = kernels.transforms.as_ref();
        let Some(transforms) = transforms.filter(|_| fit::by_tiles(geometry, rows)) else {
            return Ok(());
        };
        dense.check();
        assert!(dense.inputs == 9 * channels && panel % kernels.lanes == 0);
        let tiles = Floats::new(winograd::ELEMENTS * rows * channels)?;
        // SAFETY: nobody else has the result yet; the sizes are those that were checked.
        unsafe {
            let places = (&*dense.scaled_weights(), tiles.slice_mut());
            images::weights_of_tiles(transforms, places, (rows, channels), (panel, dense.columns));
        }
        let mut biases = vec![0.0; winograd::ELEMENTS * rows];
        biases[winograd::SHARED * rows..][..rows].copy_from_slice(&dense.biases);
        let dense = Dense {
            weights: Weights::copied(tiles),
            biases: biases.into(),
            scales: Vec::new(),
            panel,
            columns: channels,
            inputs: channels,
            activation: dense.activation,
        };
        *self = Action::Tiles(dense, *geometry);
        Ok(())
    }

    /// The weights of a dense step that is not made by this program.
    pub(super) fn dense(&self) -> Option<&Dense> {
        match self {
            Action::Affine(dense) | Action::Convolution(dense, _) => Some(dense),
            _ => None,
        }
    }

    /// Pixels, tiles or lines of the result that can be computed one by one; 1 where there are
    /// none.
    pub(super) fn parts(&self) -> usize {
        match self {
            Action::Tiles(_, geometry) => images::tiles(geometry),
            Action::Convolution(_, Geometry { output, .. }) => {
                let (_, to) = output;
                to.h * to.w
            }
            Action::Windows { geometry, .. }
            | Action::Combine { geometry, .. }
            | Action::Resample { geometry, .. }
            | Action::Softmax { geometry, .. } => {
                let (_, to) = geometry.output;
                to.h
            }
            Action::Product { product, .. } => product::units(product),
            Action::Gather { moves, .. } => moves.parts(),
            Action::Affine(_) | Action::Scale { .. } | Action::Activate(_) | Action::ArgMax(_) => 1,
        }
    }

    /// Floating-point operations of a step that has parts, padding included. Operations that are
    /// slower than those of products count several times.
    pub(super) fn flop(&self) -> usize {
        let image = |(image, shape): (Image, Shape)| image.pixel * shape.w * shape.h;
        match self {
            Action::Convolution(dense, geometry) => 2 * dense.inputs * image(geometry.output),
            Action::Tiles(_, geometry) => {
                let ((Image { pixel: rows, .. }, _), (_, Shape { c, .. })) =
                    (geometry.output, geometry.input);
                let each = rows * c + 4 * (rows + c);
                2 * winograd::ELEMENTS * images::tiles(geometry) * each
            }
            Action::Windows { geometry, .. } => {
                let (rows, columns) = geometry.window.size;
                8 * rows * columns * image(geometry.output)
            }
            Action::Resample { geometry, .. } => {
                let (down, along) = geometry.window.size;
                8 * down * along * image(geometry.output)
            }
            Action::Combine { geometry, .. } => 20 * image(geometry.output),
            Action::Softmax { geometry, .. } => 500 * image(geometry.output),
            Action::Product { product, .. } => 2 * product.len() * product.terms,
            Action::Gather { moves, .. } => 40 * moves.len(),
            Action::Affine(_) | Action::Scale { .. } | Action::Activate(_) | Action::ArgMax(_) => 0,
        }
    }

    /// True if the step knows of images, or moves rows.
    pub(super) fn of_image(&self) -> bool {
        !matches!(
            self,
            Action::Affine(_) | Action::Activate(_) | Action::ArgMax(_)
        )
    }
}
