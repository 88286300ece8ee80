//! Dense steps of the host engine. Every output row is a sum over all inputs, or over all inputs in
//! a window.

use super::buffers::Floats;
use super::micro::{
    Added, Affine, Bounds, Byte, Half, Kernels, Rescale, Runs, Scaling, Subproblem,
    WholeSubproblem, WholeWindows,
};
use super::steps::Place;
use super::whole::WholeLayer;
use super::windows::Pixels;
use crate::error::Error;
use crate::ir::half;
use crate::ir::network::Activation;
use crate::ir::op::Window;
use crate::ir::values::Values;
use crate::ir::view::Image;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::atomic::AtomicBool;

/// The weights, biases and activation of an affine layer or a convolution.
pub(crate) struct Dense {
    /// The weights in panels. A panel has `panel` rows and `columns` columns.
    pub(crate) weights: Weights,
    /// One bias for each row of the weights.
    pub(crate) biases: Cow<'static, [f32]>,
    /// One quantization scale for each row if the weights are bytes, else empty.
    pub(crate) scales: Vec<f32>,
    /// The number of rows in a panel, a multiple of 4.
    pub(crate) panel: usize,
    /// The number of rows with data.
    pub(crate) data: usize,
    /// The number of rows that are computed: all, or those that
    /// [`padding::leave_out`](super::padding::leave_out) leaves.
    pub(crate) rows: usize,
    /// The number of columns of the weights, including padding.
    pub(crate) columns: usize,
    /// The number of columns that kernels read, which are the terms of each sum.
    pub(crate) inputs: usize,
    /// The activation that is applied to each sum.
    pub(crate) activation: Activation,
    /// A multiplication and addition per row that follows the layer. The layer's activation is then
    /// [`Activation::None`].
    pub(crate) rescale: Option<Rescale>,
    /// The value that a convolution adds to its sums before the activation.
    pub(crate) addend: Option<Addend>,
    /// The layer in integers. If present, integer kernels run it instead of those for `weights`.
    pub(crate) whole: Option<WholeLayer>,
}

/// An image of another step that a convolution adds to its result before the activation.
pub(crate) struct Addend {
    pub(super) place: Place,
    /// The place of the image in its buffer. Lines follow each other without a gap.
    pub(super) image: Image,
    /// The number of channels in a pixel of the image, with padding. It is a multiple of the lanes.
    /// Later channels of the result get 0.
    pub(super) channels: usize,
    /// True if the padding of the image's pixels is added, too, to channels that the image lacks.
    /// It must be zeros.
    pub(super) widened: bool,
}

impl Addend {
    /// Returns the values for some pixels. `values` is the address of the image's buffer.
    pub(super) fn values_of(&self, values: *const f32, pixels: Pixels) -> Added {
        Added {
            values: values.wrapping_add(self.image.first + pixels.first * self.image.pixel),
            stride: pixels.apart * self.image.pixel,
            rows: self.channels,
        }
    }
}

/// The part of a dense step that one call of a micro-kernel computes. [`Subproblem`] explains the
/// fields.
pub(super) struct Part {
    pub(super) rows: Range<usize>,
    pub(super) records: usize,
    pub(super) x: *const f32,
    pub(super) x_stride: usize,
    pub(super) runs: Option<Runs>,
    pub(super) result: *mut f32,
    pub(super) result_stride: usize,
    pub(super) added: Option<Added>,
}

impl Dense {
    /// Leaves out vectors of rows without data. Vectors are those of the kernels for floats, which
    /// also complete layers of whole numbers.
    pub(super) fn reduce(&mut self, kernels: &Kernels) {
        self.rows = self.data.next_multiple_of(kernels.lanes);
    }

    /// # Panics
    /// If the sizes of weights, biases and scales do not fit together.
    pub(super) fn check(&self) {
        let scaled = matches!(self.weights.stored(), StoredAs::Bytes(_));
        let scales = if scaled { self.biases.len() } else { 0 };
        assert!(self.scales.len() == scales, "a scale for each row");
        let (count, rows) = (self.weights.len(), self.biases.len());
        Affine::<f32>::fits(count, rows, self.panel, self.columns, self.inputs);
        let all = |r: &Rescale| r.factors.len() == rows && r.summands.len() == rows;
        assert!(
            self.rescale.as_ref().is_none_or(all),
            "a factor for each row"
        );
        if let Some(WholeLayer {
            kernels,
            weights,
            unscaled,
            bytes,
            ..
        }) = &self.whole
        {
            assert!(weights.run > 0 && self.inputs % weights.run == 0);
            let numbers = rows * kernels.groups(self.inputs, weights.run) * kernels.group;
            assert!(weights.groups.len() == numbers * kernels.weight_size());
            assert!(self.panel % kernels.lanes == 0);
            assert!(weights.start.len() == rows && all(unscaled));
            assert!(bytes.is_none() || self.activation == Activation::None);
        }
    }

    /// Returns the weights as floats, in the order in which they are stored. Weights in bytes are
    /// multiplied by the quantization scale of their row.
    pub(super) fn scaled_weights(&self) -> Cow<'_, [f32]> {
        match self.weights.stored() {
            StoredAs::Floats(w) => Cow::Borrowed(w),
            StoredAs::Halves(w) => w.iter().map(|&Half(bits)| half::to_f32(bits)).collect(),
            StoredAs::Bytes(w) => {
                let panel = self.panel;
                let row = |i: usize| i / (panel * self.columns) * panel + i % panel;
                let scaled = |(i, &Byte(w)): (usize, &Byte)| f32::from(w) * self.scales[row(i)];
                w.iter().enumerate().map(scaled).collect()
            }
        }
    }

    /// Returns the layer in the form that micro-kernels take, with `weights` as its weights.
    pub(super) fn layer<'a, E>(&'a self, weights: &'a [E]) -> Affine<'a, E> {
        Affine {
            weights,
            biases: &self.biases,
            scales: &self.scales,
            panel: self.panel,
            columns: self.columns,
            inputs: self.inputs,
            activation: self.activation,
        }
    }

    /// Computes a part of the step, activation included, with the micro-kernel for the type of its
    /// weights. `lost` has a mark for each record, for results in bytes.
    ///
    /// SAFETY: `check` has passed, the part is sound as [`Subproblem`] says, and the CPU has the
    /// kernels' instruction set.
    pub(super) unsafe fn product(&self, kernels: &Kernels, part: Part, lost: &[AtomicBool]) {
        if let Some(whole) = &self.whole {
            // Strides are in floats.
            let apart = |stride: usize, bytes: bool| if bytes { 4 * stride } else { stride };
            let windows = WholeWindows {
                x: part.x,
                bytes: whole.reads_bytes,
                pixel: apart(part.x_stride, whole.reads_bytes),
                line: 0,
                channels: self.inputs,
                width: part.records,
                height: 1,
                window: Window::of((1, 1)),
                lines: 0..1,
                columns: 0..part.records,
            };
            let stride = apart(part.result_stride, whole.bytes.is_some());
            let result = (part.result, stride);
            // SAFETY: the caller's promise.
            return unsafe { self.whole_product(kernels, whole, part.rows, windows, result, lost) };
        }
        // SAFETY: the caller's promise.
        unsafe {
            match (
                self.weights.stored(),
                kernels.affine_of_halves,
                kernels.affine_of_bytes,
            ) {
                (StoredAs::Floats(w), _, _) => self.run(kernels, kernels.affine, w, part),
                (StoredAs::Halves(w), Some(kernel), _) => self.run(kernels, kernel, w, part),
                (StoredAs::Bytes(w), _, Some(kernel)) => self.run(kernels, kernel, w, part),
                // `Team::new` has refused weights without a kernel.
                (StoredAs::Halves(_) | StoredAs::Bytes(_), _, _) => {}
            }
        }
    }

    /// Computes some rows for some windows, activation included, with the integer micro-kernel.
    /// `result` is the address for the first window's results. `result_stride` is the distance to
    /// those of the next window, in values. If the layer writes bytes, `lost` has a mark for each
    /// column of windows, or one for all.
    ///
    /// SAFETY: `check` has passed, the windows and their results are sound as [`WholeSubproblem`]
    /// says, and the CPU has the kernels' instruction set.
    pub(super) unsafe fn whole_product(
        &self,
        kernels: &Kernels,
        whole: &WholeLayer,
        rows: Range<usize>,
        windows: WholeWindows,
        (result, result_stride): (*mut f32, usize),
        lost: &[AtomicBool],
    ) {
        let records = windows.lines.len() * windows.columns.len();
        let run = WholeWindows::run(&windows.window, windows.channels);
        assert!(run == whole.weights.run, "runs as the weights have them");
        assert!(whole.bytes.is_none() || !lost.is_empty(), "marks for bytes");
        let some = WholeSubproblem {
            windows,
            weights: &whole.weights,
            rescale: self.rescale.as_ref().unwrap_or(&whole.unscaled),
            rows: rows.clone(),
            result,
            result_stride,
            bytes: whole.bytes,
            lost,
        };
        let layer = self.layer::<f32>(&[]);
        let rows = Subproblem {
            layer: &layer,
            rows,
            records,
            x: std::ptr::null(),
            x_stride: 0,
            runs: None,
            result,
            result_stride,
            added: None,
        };
        // SAFETY: the caller's promise. `check` has compared the sizes.
        unsafe {
            (whole.kernels.affine)(&some);
            if Bounds::of(self.activation).is_none() {
                kernels.complete(&rows);
            }
        }
    }

    /// SAFETY: as declared for `product`.
    #[inline(always)]
    unsafe fn run<E>(
        &self,
        kernels: &Kernels,
        kernel: unsafe fn(&Subproblem<'_, E>),
        weights: &[E],
        part: Part,
    ) {
        let layer = self.layer(weights);
        let sub = part.of(&layer);
        // SAFETY: the caller's promise.
        unsafe {
            kernel(&sub);
            kernels.complete(&sub);
        }
        if let Some(rescale) = &self.rescale {
            let (first, count) = (sub.rows.start, sub.rows.len());
            let result = sub.result.wrapping_add(first);
            let rows = rescale.of_pixels(result, first, count, sub.records, sub.result_stride);
            // SAFETY: the caller's promise. `check` has compared the sizes.
            unsafe { (kernels.scale)(&rows) }
        }
    }
}

impl Part {
    fn of<'a, E>(self, layer: &'a Affine<'a, E>) -> Subproblem<'a, E> {
        Subproblem {
            layer,
            rows: self.rows,
            records: self.records,
            x: self.x,
            x_stride: self.x_stride,
            runs: self.runs,
            result: self.result,
            result_stride: self.result_stride,
            added: self.added,
        }
    }
}

impl Rescale {
    /// Returns the scaling of `pixels` pixels in place. It applies to `count` channels from channel
    /// `first` on. `result` is the address of that channel in the first pixel.
    pub(super) fn of_pixels(
        &self,
        result: *mut f32,
        first: usize,
        count: usize,
        pixels: usize,
        apart: usize,
    ) -> Scaling {
        let numbers = [&self.factors, &self.summands].map(|n| n[first..first + count].as_ptr());
        Scaling {
            x: result.cast_const(),
            result,
            numbers,
            count,
            steps: [1, 1],
            turns: pixels,
            apart: [apart, 0, 0],
            rounds: self.rounds,
            bounds: self.bounds,
        }
    }
}

/// The weights of a dense layer. Floats begin at the boundary of a cache line. A vector that
/// crosses lines costs two accesses (8 % of the time of large layers).
pub(crate) struct Weights {
    storage: WeightStorage,
}

enum WeightStorage {
    /// Floats in the baked data, in the order that the build chose.
    Baked(&'static [f32]),
    /// Floats in the process's own memory. They were copied to a cache line's boundary, or computed
    /// at start.
    Copied(Floats),
    /// Half-precision weights, borrowed from the baked data or owned.
    Halves(Cow<'static, [u16]>),
    /// Weights in bytes, borrowed from the baked data or owned. Each row has a quantization scale.
    Bytes(Cow<'static, [i8]>),
}

impl Weights {
    /// Borrows baked values, and keeps owned halves and bytes. Owned floats are copied to the
    /// boundary of a cache line.
    pub(crate) fn new(weights: Values) -> Result<Weights, Error> {
        let storage = match weights {
            Values::F16(halves) => WeightStorage::Halves(halves),
            Values::I8(numbers) => WeightStorage::Bytes(numbers),
            Values::F32(Cow::Borrowed(baked)) => WeightStorage::Baked(baked),
            Values::F32(Cow::Owned(values)) => {
                let copy = Floats::new(values.len())?;
                // SAFETY: nobody else has the copy yet.
                unsafe { copy.slice_mut() }.copy_from_slice(&values);
                WeightStorage::Copied(copy)
            }
        };
        Ok(Weights { storage })
    }

    pub(super) fn copied(floats: Floats) -> Weights {
        let storage = WeightStorage::Copied(floats);
        Weights { storage }
    }

    /// Returns true if `kernels` has a micro-kernel for the type of the weights.
    pub(super) fn served(&self, kernels: &Kernels) -> bool {
        match self.stored() {
            StoredAs::Floats(_) => true,
            StoredAs::Halves(_) => kernels.affine_of_halves.is_some(),
            StoredAs::Bytes(_) => kernels.affine_of_bytes.is_some(),
        }
    }

    /// Returns the weights if they are stored as floats, else an empty slice.
    pub(super) fn floats(&self) -> &[f32] {
        match self.stored() {
            StoredAs::Floats(w) => w,
            StoredAs::Halves(_) | StoredAs::Bytes(_) => &[],
        }
    }

    fn len(&self) -> usize {
        match self.stored() {
            StoredAs::Floats(w) => w.len(),
            StoredAs::Halves(w) => w.len(),
            StoredAs::Bytes(w) => w.len(),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        match self.stored() {
            StoredAs::Floats(w) => size_of_val(w),
            StoredAs::Halves(w) => size_of_val(w),
            StoredAs::Bytes(w) => size_of_val(w),
        }
    }

    fn stored(&self) -> StoredAs<'_> {
        match &self.storage {
            WeightStorage::Baked(values) => StoredAs::Floats(values),
            // SAFETY: nobody writes to these floats any more.
            WeightStorage::Copied(floats) => StoredAs::Floats(unsafe { floats.slice() }),
            WeightStorage::Halves(h) => {
                // SAFETY: a Half is a u16 in another name.
                StoredAs::Halves(unsafe { std::slice::from_raw_parts(h.as_ptr().cast(), h.len()) })
            }
            WeightStorage::Bytes(b) => {
                // SAFETY: a Byte is an i8 in another name.
                StoredAs::Bytes(unsafe { std::slice::from_raw_parts(b.as_ptr().cast(), b.len()) })
            }
        }
    }
}

/// Weights in the types that the micro-kernels take.
enum StoredAs<'a> {
    Floats(&'a [f32]),
    Halves(&'a [Half]),
    Bytes(&'a [Byte]),
}
