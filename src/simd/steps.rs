//! The steps of a network as the host engine carries them out.

use super::buffers::Floats;
use super::dense::{Dense, Weights};
use super::images;
use super::micro::{
    ByteSum, Bytes, ChannelWeights, Kernels, Rescale, SumIntegers, SumNumbers, WindowOp,
};
use super::moves::{Moves, SHARED_ROWS};
use super::product;
use crate::error::Error;
use crate::ir::graph::Shape;
use crate::ir::network::Activation;
use crate::ir::op::{Arithmetic, Math, OfChannels};
use crate::ir::product::Product;
use crate::ir::taps::Taps;
use crate::ir::view::{Geometry, Image};
use crate::planner::tiles::{self, TileSize};
use std::borrow::Cow;

/// A step of the network.
pub(crate) struct HostStep {
    pub(crate) action: Action,
    /// The buffer of the first operand.
    pub(crate) from: Place,
    /// The buffer of the result. It is `from` for a step in place.
    pub(crate) to: Place,
}

impl HostStep {
    /// Returns a step that takes the place of one whose work has become part of another step.
    pub(super) fn nothing(place: Place) -> HostStep {
        HostStep {
            action: Action::Activate(Activation::None),
            from: place,
            to: place,
        }
    }

    /// Returns true if the step reads or writes the buffer `place`.
    pub(super) fn touches(&self, place: Place) -> bool {
        let touched = [Some(self.from), Some(self.to), self.action.other()];
        touched.contains(&Some(place)) && !self.action.is_nothing()
    }

    /// True if the step reads its operands as bytes.
    pub(super) fn reads_bytes(&self) -> bool {
        match &self.action {
            Action::Affine(Dense { whole, .. }) | Action::Convolution(Dense { whole, .. }, _) => {
                whole.as_ref().is_some_and(|w| w.reads_bytes)
            }
            Action::Windows { bytes, .. } => bytes.is_some(),
            Action::Sum { bytes, .. } => bytes.is_some(),
            _ => false,
        }
    }

    /// How the step writes its result as bytes. `None` for floats.
    pub(super) fn written_bytes(&self) -> Option<Bytes> {
        match &self.action {
            Action::Affine(Dense { whole, .. }) | Action::Convolution(Dense { whole, .. }, _) => {
                whole.as_ref()?.bytes
            }
            Action::Windows { bytes, .. } => Some(bytes.as_ref()?.bytes),
            Action::Sum { bytes, .. } => bytes.as_ref()?.result,
            _ => None,
        }
    }

    /// The number of bytes of each value of the step's result.
    pub(super) fn value_size(&self) -> usize {
        match self.written_bytes() {
            Some(_) => 1,
            None => size_of::<f32>(),
        }
    }
}

/// A buffer of activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The input of a slot: the records of its batch.
    Input,
    /// The buffer between steps that has this number.
    Hidden(usize),
    /// The scores of a slot.
    Scores,
}

/// The functions that an element-wise step applies to each element of its result.
#[derive(Clone, Copy)]
pub(crate) struct Finish {
    /// True if numbers are rounded to whole ones first.
    pub(crate) rounds: bool,
    pub(crate) activation: Activation,
}

impl Finish {
    /// The activations in their order.
    pub(super) fn activations(self) -> impl Iterator<Item = Activation> + Clone {
        let rounding = self.rounds.then_some(Activation::Math(Math::Round));
        let last = Some(self.activation).filter(|&a| a != Activation::None);
        rounding.into_iter().chain(last)
    }
}

/// How a sum of two values reads and writes bytes.
pub(crate) struct SumBytes {
    pub(super) kernel: unsafe fn(&ByteSum),
    /// The numbers of the sum, for bytes as they are stored.
    pub(super) integers: SumIntegers,
    /// How the result is stored. `None` for floats.
    pub(super) result: Option<Bytes>,
}

/// The computation of a step.
pub(crate) enum Action {
    Affine(Dense),
    /// A convolution of all channels. `Dense::inputs` are the elements of a window.
    Convolution(Dense, Geometry),
    /// A 3 × 3 convolution of all channels by Winograd's tiles. The weights are transformed: all
    /// rows for the first element of a tile, then those for the next. The activation is applied
    /// after the last transform.
    Tiles(Dense, Geometry, TileSize),
    /// Pooling or a depthwise convolution: a function of each window, channel by channel.
    Windows {
        operation: WindowOp,
        /// Weights (floats) of all channels, element by element of the window, and a bias for each
        /// channel. `None` for pooling.
        weights: Option<(Weights, Cow<'static, [f32]>)>,
        /// The function that is applied to each element of the result.
        activation: Activation,
        /// The scaling behind a depthwise convolution. `activation` is then `None`.
        rescale: Option<Rescale>,
        /// The images that are read and written, and the window.
        geometry: Geometry,
        /// True if the padding channels of floats are set to 0. False if no score depends on them.
        pads: bool,
        /// The weights of a depthwise convolution that reads and writes bytes. `None` if the step
        /// reads and writes floats.
        bytes: Option<ChannelWeights>,
    },
    /// Arithmetic of two values, element by element.
    Combine {
        arithmetic: Arithmetic,
        /// The buffer of the second operand.
        other: Place,
        /// The functions that are applied to each element of the result.
        finish: Finish,
        /// The images of the second operand and of the result. The first operand is laid out in its
        /// buffer as the result is in its own.
        geometry: Geometry,
    },
    /// Multiplies rows by factors and adds summands. Without summands, multiplies only values below
    /// 0 (PReLU).
    Scale {
        factors: Cow<'static, [f32]>,
        biases: Option<Cow<'static, [f32]>>,
        /// For each row, the index of its factor in `factors` and of its summand in `biases`.
        moves: Moves<3>,
        /// The functions that are applied to each element of the result.
        finish: Finish,
    },
    /// The sum of two values of whole numbers: the rows from the first on, `count` of them.
    Sum {
        /// The buffer of the second operand.
        other: Place,
        numbers: SumNumbers,
        first: usize,
        count: usize,
        /// Says how bytes are read and written. `None` if the step reads and writes floats.
        bytes: Option<SumBytes>,
    },
    /// Resampling: each pixel of the result is a weighted sum of pixels in a few rows and columns.
    Resample {
        taps: Taps,
        /// The images of the operand and of the result.
        geometry: Geometry,
    },
    /// The matrix product of two computed values, in groups.
    Product {
        product: Product,
        /// The buffer of the second operand.
        other: Place,
        /// Rows of the result, padding included.
        rows: usize,
    },
    /// A function of all channels of each pixel.
    OfChannels {
        /// The images of the operand and of the result.
        geometry: Geometry,
        of: OfChannels,
    },
    /// Copies rows to other rows.
    Gather {
        moves: Moves<2>,
        /// The value of filled rows, to which nothing is copied.
        value: f32,
    },
    /// An activation in place.
    Activate(Activation),
    /// Finds the index of the largest score, the class. The field is the number of scores.
    ArgMax(usize),
}

impl Action {
    /// Turns a convolution into [`Action::Tiles`], if [`tiles::by_tiles`] names a size of tiles.
    /// Leaves other steps as they are.
    pub(super) fn by_tiles(&mut self, kernels: &Kernels) -> Result<(), Error> {
        let Action::Convolution(dense, geometry) = self else {
            return Ok(());
        };
        let (rows, (_, from), panel) = (dense.biases.len(), geometry.input, dense.panel);
        let channels = from.c;
        let sizes = kernels.transforms.iter().map(|t| t.size);
        let size = tiles::by_tiles(geometry, rows, sizes);
        let Some(transforms) = size.and_then(|size| kernels.transforms_of(size)) else {
            return Ok(());
        };
        dense.check();
        // Sums of whole numbers are exact as long as they are small. The sums of tiles are larger.
        if dense.scaled_weights().iter().all(|w| w.fract() == 0.0) {
            return Ok(());
        }
        assert!(dense.inputs == 9 * channels && panel % kernels.lanes == 0);
        let size = transforms.size;
        let weights = Floats::new(size.elements() * rows * channels)?;
        // SAFETY: nobody else has the result yet; the sizes are those that were checked.
        unsafe {
            let places = (&*dense.scaled_weights(), weights.slice_mut());
            images::weights_of_tiles(transforms, places, (rows, channels), (panel, dense.columns));
        }
        let dense = Dense {
            weights: Weights::copied(weights),
            biases: images::biases_of_tiles(size, &dense.biases).into(),
            scales: Vec::new(),
            panel,
            data: size.elements() * rows,
            rows: size.elements() * rows,
            columns: channels,
            inputs: channels,
            activation: dense.activation,
            rescale: None,
            addend: None,
            whole: None,
        };
        *self = Action::Tiles(dense, *geometry, size);
        Ok(())
    }

    /// The rows of the result of a convolution by tiles.
    pub(super) fn rows_of_tile(tiles: &Dense, size: TileSize) -> usize {
        tiles.biases.len() / size.elements()
    }

    /// The buffer of the second operand.
    pub(super) fn other(&self) -> Option<Place> {
        match *self {
            Action::Combine { other, .. }
            | Action::Product { other, .. }
            | Action::Sum { other, .. } => Some(other),
            Action::Convolution(ref dense, _) => Some(dense.addend.as_ref()?.place),
            _ => None,
        }
    }

    /// True for a step whose work has become part of another one.
    pub(super) fn is_nothing(&self) -> bool {
        matches!(self, Action::Activate(Activation::None))
    }

    /// The layer of an affine step or of a convolution, if its weights are as the plan has them.
    /// `None` for convolutions by tiles and all other steps.
    pub(super) fn dense(&self) -> Option<&Dense> {
        match self {
            Action::Affine(dense) | Action::Convolution(dense, _) => Some(dense),
            _ => None,
        }
    }

    /// The number of pixels, tiles, lines or other parts of the result that can be computed one by
    /// one. It is 1 for steps that are not cut into such parts.
    pub(super) fn parts(&self) -> usize {
        match self {
            Action::Tiles(_, geometry, size) => size.count(geometry),
            Action::Convolution(_, Geometry { output, .. }) => {
                let (_, to) = output;
                to.h * to.w
            }
            Action::Windows { geometry, .. }
            | Action::Combine { geometry, .. }
            | Action::Resample { geometry, .. }
            | Action::OfChannels { geometry, .. } => {
                let (_, to) = geometry.output;
                to.h
            }
            Action::Product { product, .. } => product::units(product),
            Action::Gather { moves, .. } => moves.parts(),
            Action::Sum { count, .. } => count.div_ceil(SHARED_ROWS),
            Action::Affine(_) | Action::Scale { .. } | Action::Activate(_) | Action::ArgMax(_) => 1,
        }
    }

    /// The floating-point operations of a step on a record, padding included, or 0 for a step
    /// without parts. Operations that are slower than those of products count several times.
    pub(super) fn flop(&self) -> usize {
        let image = |(image, shape): (Image, Shape)| image.pixel * shape.w * shape.h;
        match self {
            Action::Convolution(dense, geometry) => 2 * dense.inputs * image(geometry.output),
            Action::Tiles(_, geometry, size) => {
                let ((Image { pixel: rows, .. }, _), (_, Shape { c, .. })) =
                    (geometry.output, geometry.input);
                let each = rows * c + 4 * (rows + c);
                2 * size.elements() * size.count(geometry) * each
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
            Action::OfChannels { geometry, of } => match of {
                OfChannels::ByteSteps => 30 * image(geometry.output),
                _ => 500 * image(geometry.output),
            },
            Action::Product { product, .. } => 2 * product.len() * product.terms,
            Action::Gather { moves, .. } => 40 * moves.len(),
            Action::Sum { count, .. } => 20 * count,
            Action::Affine(_) | Action::Scale { .. } | Action::Activate(_) | Action::ArgMax(_) => 0,
        }
    }

    /// True for all steps but affine layers, activations and arg-max. A network with such a step
    /// has workspaces.
    pub(super) fn of_image(&self) -> bool {
        !matches!(
            self,
            Action::Affine(_) | Action::Activate(_) | Action::ArgMax(_)
        )
    }
}
