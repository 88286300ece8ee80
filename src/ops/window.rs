//! Windows that move over an image: the size of the result, and the pixels that each window covers.

use crate::ir::graph::Shape;
use crate::ir::op::Window;

/// A window along one axis of an image: along its rows or along its columns.
#[derive(Clone, Copy)]
pub(super) struct WindowAxis {
    pub(super) size: usize,
    pub(super) stride: usize,
    pub(super) dilation: usize,
    /// The size of the border before the image. `after` is the size of the border behind it.
    pub(super) before: usize,
    pub(super) after: usize,
}

impl WindowAxis {
    /// The number of positions that the window takes along an axis on which the image has size `n`.
    fn positions(self, n: usize, ceil: bool) -> Result<usize, String> {
        let WindowAxis {
            size,
            stride,
            dilation,
            before,
            after,
        } = self;
        if size == 0 || stride == 0 || dilation == 0 {
            return Err("expected sizes, strides and dilations above 0".to_string());
        }
        let (all, covered) = (before + n + after, dilation * (size - 1) + 1);
        let room = all.checked_sub(covered).ok_or_else(|| {
            format!(
                "a window that covers {covered} does not fit on {n} with a border of {before} and \
                 {after}"
            )
        })?;
        let steps = if ceil {
            room.div_ceil(stride)
        } else {
            room / stride
        };
        // With `ceil`, the last window may reach beyond the border. A window that would begin
        // behind the image is left out.
        Ok(if ceil && steps * stride >= n + before {
            steps
        } else {
            steps + 1
        })
    }

    /// Returns the row or column of the image that element `k` of the window covers at position
    /// `at`. The image has size `n`. `None` if the element is outside of the image.
    pub(super) fn place(self, at: usize, k: usize, n: usize) -> Option<usize> {
        let place = (at * self.stride + k * self.dilation).checked_sub(self.before)?;
        (place < n).then_some(place)
    }

    /// The number of the window's elements that are inside the image or its border, for the window
    /// at position `at`.
    fn inside_border(self, at: usize, n: usize) -> usize {
        let all = self.before + n + self.after;
        let inside = |k: &usize| at * self.stride + k * self.dilation < all;
        (0..self.size).filter(inside).count()
    }
}

impl Window {
    /// For each pixel of the result, the number of window elements that are inside the image.
    pub(crate) fn counts(&self, image: Shape, result: Shape) -> Vec<f64> {
        let along = |axis: WindowAxis, n: usize, positions: usize| -> Vec<usize> {
            let inside = |at| {
                (0..axis.size)
                    .filter(|&k| axis.place(at, k, n).is_some())
                    .count()
            };
            (0..positions).map(inside).collect()
        };
        let rows = along(self.rows(), image.h, result.h);
        let columns = along(self.columns(), image.w, result.w);
        let pixels = rows
            .iter()
            .flat_map(|r| columns.iter().map(move |c| (r * c) as f64));
        let pixels: Vec<f64> = pixels.collect();
        pixels.repeat(result.c)
    }

    pub(super) fn rows(&self) -> WindowAxis {
        let ((size, _), (stride, _), (dilation, _)) = (self.size, self.stride, self.dilation);
        WindowAxis {
            size,
            stride,
            dilation,
            before: self.border.top,
            after: self.border.bottom,
        }
    }

    pub(super) fn columns(&self) -> WindowAxis {
        let ((_, size), (_, stride), (_, dilation)) = (self.size, self.stride, self.dilation);
        WindowAxis {
            size,
            stride,
            dilation,
            before: self.border.left,
            after: self.border.right,
        }
    }

    /// The number of elements that the window covers, height times width.
    pub(super) fn elements(&self) -> usize {
        self.rows().size * self.columns().size
    }

    /// Returns the height and the width of the result for an image of shape `input`.
    ///
    /// # Errors
    /// The window does not fit the image.
    pub(crate) fn output(&self, input: Shape) -> Result<(usize, usize), String> {
        let h = self.rows().positions(input.h, self.ceil)?;
        let w = self.columns().positions(input.w, self.ceil)?;
        Ok((h, w))
    }

    /// Returns the elements (ky, kx) of the window for pixel (y, x) of the result that are inside
    /// the image. Each comes with the row and the column of the image that it covers. The image has
    /// shape `input`.
    pub(super) fn inside(
        &self,
        input: Shape,
        (y, x): (usize, usize),
    ) -> impl Iterator<Item = ((usize, usize), (usize, usize))> + use<> {
        let (rows, columns) = (self.rows(), self.columns());
        (0..rows.size).flat_map(move |ky| {
            (0..columns.size).filter_map(move |kx| {
                let row = rows.place(y, ky, input.h)?;
                Some(((ky, kx), (row, columns.place(x, kx, input.w)?)))
            })
        })
    }

    /// Returns the pixel of the image that element `tap` of the window covers, for pixel (y, x) of
    /// the result. Pixels of the image are numbered row by row. `None` if the element is outside of
    /// the image, which has shape `input`.
    pub(super) fn pixel(&self, input: Shape, (y, x): (usize, usize), tap: usize) -> Option<usize> {
        let (rows, columns) = (self.rows(), self.columns());
        let row = rows.place(y, tap / columns.size, input.h)?;
        let column = columns.place(x, tap % columns.size, input.w)?;
        Some(row * input.w + column)
    }

    /// The number of window elements that are inside the image or its border, for pixel (y, x) of
    /// the result.
    pub(crate) fn inside_border(&self, input: Shape, (y, x): (usize, usize)) -> usize {
        self.rows().inside_border(y, input.h) * self.columns().inside_border(x, input.w)
    }
}
