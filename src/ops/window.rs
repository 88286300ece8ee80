//! Windows that run over an image: their sizes, and what is in them.

use crate::ir::graph::Shape;
use crate::ir::op::Window;

impl Window {
    /// Height and width of what it gives on an image of the size of `input`.
    ///
    /// # Errors
    /// A window without a place.
    pub(crate) fn output(&self, input: Shape) -> Result<(usize, usize), String> {
        let Window {
            size,
            stride,
            dilation,
            border,
            ceil,
        } = *self;
        let along = |n: usize,
                     size: usize,
                     stride: usize,
                     dilation: usize,
                     (before, after): (usize, usize)| {
            if size == 0 || stride == 0 || dilation == 0 {
                return Err("expected sizes, strides and dilations above 0".to_string());
            }
            let (all, covered) = (before + n + after, dilation * (size - 1) + 1);
            let room = all.checked_sub(covered).ok_or_else(|| {
                format!(
                    "a window that covers {covered} does not fit on {n} with a border of {before} \
                     and {after}"
                )
            })?;
            let steps = if ceil {
                room.div_ceil(stride)
            } else {
                room / stride
            };
            // The window that `ceil` adds is left out where it would begin behind the image and the
            // border before it.
            Ok(if ceil && steps * stride >= n + before {
                steps
            } else {
                steps + 1
            })
        };
        let h = along(
            input.h,
            size.0,
            stride.0,
            dilation.0,
            (border.top, border.bottom),
        )?;
        let w = along(
            input.w,
            size.1,
            stride.1,
            dilation.1,
            (border.left, border.right),
        )?;
        Ok((h, w))
    }

    /// The elements of the window at (y, x) of the result that are inside an image of the size of
    /// `input`: (ky, kx) with the pixel that it stands on.
    pub(super) fn inside(
        &self,
        input: Shape,
        (y, x): (usize, usize),
    ) -> impl Iterator<Item = ((usize, usize), (usize, usize))> {
        let (window, (top, left)) = (*self, (self.border.top, self.border.left));
        let at = |o: usize, stride: usize, k: usize, dilation: usize, before: usize, n: usize| {
            (o * stride + k * dilation)
                .checked_sub(before)
                .filter(|&i| i < n)
        };
        (0..window.size.0).flat_map(move |ky| {
            (0..window.size.1).filter_map(move |kx| {
                let iy = at(y, window.stride.0, ky, window.dilation.0, top, input.h)?;
                let ix = at(x, window.stride.1, kx, window.dilation.1, left, input.w)?;
                Some(((ky, kx), (iy, ix)))
            })
        })
    }

    /// The pixel, line by line, that element `tap` of the window at (y, x) of the result stands on,
    /// if that is inside an image of the size of `input`.
    pub(super) fn pixel(&self, input: Shape, (y, x): (usize, usize), tap: usize) -> Option<usize> {
        let (ky, kx) = (tap / self.size.1, tap % self.size.1);
        let row = (y * self.stride.0 + ky * self.dilation.0).checked_sub(self.border.top)?;
        let column = (x * self.stride.1 + kx * self.dilation.1).checked_sub(self.border.left)?;
        (row < input.h && column < input.w).then_some(row * input.w + column)
    }

    /// Elements of the window at (y, x) that are inside the image with its border.
    pub(crate) fn inside_border(&self, input: Shape, (y, x): (usize, usize)) -> usize {
        let Window {
            size,
            stride,
            dilation,
            border,
            ..
        } = *self;
        let along = |o: usize, size: usize, stride: usize, dilation: usize, all: usize| {
            (0..size)
                .filter(|k| o * stride + k * dilation < all)
                .count()
        };
        along(
            y,
            size.0,
            stride.0,
            dilation.0,
            border.top + input.h + border.bottom,
        ) * along(
            x,
            size.1,
            stride.1,
            dilation.1,
            border.left + input.w + border.right,
        )
    }
}
