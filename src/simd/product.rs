//! The matrix product of two computed values of a record, in independent groups.
//!
//! The second operand of a group is packed into strips with as many columns as a vector has lanes.
//! It then serves as the weights of a layer, and the rows of the first operand as the layer's
//! records. So the micro-kernels of layers compute the product, in every instruction set. Packing
//! costs one pass over the operand, and each packed number serves all rows of the group.

use super::buffers::{Operands, Scratch};
use super::micro::{Affine, Kernels, Subproblem};
use crate::ir::network::Activation;
use crate::ir::product::Product;
use std::ops::Range;

/// The number of rows of a group that are computed together, as a block. It is a multiple of the
/// records of every micro-tile.
const ROWS: usize = 48;

/// Returns the number of blocks of [`ROWS`] rows in a group.
fn blocks(product: &Product) -> usize {
    product.rows.div_ceil(ROWS)
}

/// Returns the number of row blocks in all groups. Each block can be computed separately.
pub(super) fn units(product: &Product) -> usize {
    product.groups * blocks(product)
}

/// Returns the number of columns of a group, rounded up to whole vectors.
pub(super) fn padded_columns(product: &Product, lanes: usize) -> usize {
    product.columns.next_multiple_of(lanes)
}

/// Returns true if the terms of a row are contiguous, so that the row can be read in place.
fn in_place(product: &Product) -> bool {
    let [_, _, step] = product.a.steps;
    step == 1 || product.terms == 1
}

/// Returns the number of floats in the scratch memory of [`compute`]. It holds a packed group, a
/// copied block of rows, and the block's last columns.
pub(super) fn scratch(product: &Product, lanes: usize) -> usize {
    let rows = if in_place(product) { 0 } else { ROWS };
    product.terms * (padded_columns(product, lanes) + rows) + ROWS * lanes
}

/// Computes the row blocks `units`. If the last block of the last group is among them, it also sets
/// the padding behind the result's last element to 0. With this padding, the result has `rows`
/// values.
///
/// SAFETY: both operands and the result are valid for the rows that the product names, the result
/// for `rows`. `scratch` has the memory that [`scratch`] returns, and zeros for the padded columns.
/// No other thread touches the units or the scratch memory. The CPU has the kernels' instruction
/// set.
pub(super) unsafe fn compute(
    kernels: &Kernels,
    product: &Product,
    units: Range<usize>,
    (operands, other): (Operands, *const f32),
    scratch: Scratch,
    rows: usize,
) {
    let lanes = kernels.lanes;
    let padded = padded_columns(product, lanes);
    let packed = scratch.room;
    let copied = packed.wrapping_add(product.terms * padded);
    let end = copied.wrapping_add(if in_place(product) {
        0
    } else {
        ROWS * product.terms
    });
    let mut group = None;
    for unit in units {
        let (g, first) = (unit / blocks(product), unit % blocks(product) * ROWS);
        let count = ROWS.min(product.rows - first);
        // SAFETY: the caller's promise.
        unsafe {
            if group != Some(g) {
                pack_group(product, g, lanes, (other, packed));
                group = Some(g);
            }
            let (x, x_stride) = rows_of(product, [g, first], count, (operands.x, copied));
            let layer = Affine {
                weights: std::slice::from_raw_parts(packed.cast_const(), product.terms * padded),
                biases: std::slice::from_raw_parts(scratch.zeros, padded),
                scales: &[],
                panel: lanes,
                columns: product.terms,
                inputs: product.terms,
                activation: Activation::None,
            };
            let block = Block {
                layer: &layer,
                columns: product.columns,
                count,
                x,
                x_stride,
                result: operands.result.add(product.row_of_result(g, first)),
                result_stride: product.groups * product.columns,
            };
            block.compute(kernels, end);
            if unit + 1 == self::units(product) {
                let padding = rows - product.len();
                operands.result.add(product.len()).write_bytes(0, padding);
            }
        }
    }
}

/// A block of rows in a group, with the packed second operand as a layer.
struct Block<'a> {
    layer: &'a Affine<'a>,
    columns: usize,
    /// The number of rows in the block.
    count: usize,
    x: *const f32,
    x_stride: usize,
    /// The address where the first element of the block's first result row is written.
    result: *mut f32,
    result_stride: usize,
}

impl Block<'_> {
    /// Computes the block. A whole vector at the end of a row would write behind the row. So the
    /// columns after the last whole vector are computed in `end` and copied from there.
    ///
    /// SAFETY: as declared for [`compute`].
    unsafe fn compute(&self, kernels: &Kernels, end: *mut f32) {
        let lanes = kernels.lanes;
        let whole = self.columns / lanes * lanes;
        let part = |rows: Range<usize>, result, result_stride| Subproblem {
            layer: self.layer,
            rows,
            records: self.count,
            x: self.x,
            x_stride: self.x_stride,
            runs: None,
            result,
            result_stride,
            added: None,
        };
        // SAFETY: the caller's promise.
        unsafe {
            if whole > 0 {
                (kernels.affine)(&part(0..whole, self.result, self.result_stride));
            }
            if whole < self.columns {
                let rows = whole..whole + lanes;
                (kernels.affine)(&part(rows, end.wrapping_sub(whole), lanes));
                for i in 0..self.count {
                    let to = self.result.add(i * self.result_stride + whole);
                    to.copy_from_nonoverlapping(end.add(i * lanes), self.columns - whole);
                }
            }
        }
    }
}

/// Returns the address of the first term of `count` rows, and the distance between rows in floats.
/// If a row's terms are not contiguous, the rows are copied into `copied`.
///
/// SAFETY: as declared for [`compute`].
unsafe fn rows_of(
    product: &Product,
    [group, first]: [usize; 2],
    count: usize,
    (x, copied): (*const f32, *mut f32),
) -> (*const f32, usize) {
    let Product { a, terms, .. } = product;
    let [_, row, term] = a.steps;
    let x = x.wrapping_add(a.row([group, first, 0]));
    if in_place(product) {
        return (x, row);
    }
    for k in 0..*terms {
        for i in 0..count {
            // SAFETY: the caller's promise.
            unsafe { *copied.add(i * terms + k) = *x.add(i * row + k * term) };
        }
    }
    (copied, *terms)
}

/// Packs the second operand of a group into strips of `lanes` columns. Missing columns of the last
/// strip become 0.
///
/// SAFETY: as declared for [`compute`].
unsafe fn pack_group(
    product: &Product,
    group: usize,
    lanes: usize,
    (b, packed): (*const f32, *mut f32),
) {
    let b = b.wrapping_add(product.b.row([group, 0, 0]));
    // SAFETY: the caller's promise.
    unsafe {
        match lanes {
            4 => pack::<4>(product, b, packed),
            8 => pack::<8>(product, b, packed),
            _ => pack::<16>(product, b, packed),
        }
    }
}

/// Packs the operand into strips of `L` columns. `b` is the address of the group's first element.
///
/// SAFETY: as declared for [`compute`].
unsafe fn pack<const L: usize>(product: &Product, b: *const f32, packed: *mut f32) {
    let &Product { columns, terms, .. } = product;
    let [_, term, column] = product.b.steps;
    for first in (0..columns).step_by(L) {
        let strip = packed.wrapping_add(first * terms).cast::<[f32; L]>();
        let from = b.wrapping_add(first * column);
        let count = L.min(columns - first);
        for k in 0..terms {
            let from = from.wrapping_add(k * term);
            // SAFETY: the caller's promise.
            let value = |j: usize| unsafe { *from.add(j * column) };
            let values = match (count == L, column) {
                // SAFETY: the caller's promise.
                (true, 1) => unsafe { from.cast::<[f32; L]>().read_unaligned() },
                (true, _) => std::array::from_fn(value),
                _ => std::array::from_fn(|j| if j < count { value(j) } else { 0.0 }),
            };
            // SAFETY: the caller's promise.
            unsafe { strip.add(k).write_unaligned(values) };
        }
    }
}
