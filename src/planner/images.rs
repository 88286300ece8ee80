//! Assigns matrix rows to the elements of values. Drafts steps over images, and steps that only
//! move elements.

use super::fuse::Chain;
use super::{Draft, Matrix, Planner, View};
use crate::ir::graph::Shape;
use crate::ir::layout::Layout;
use crate::ir::network::Kind;
use crate::ir::op::{Activation, Axis, Math, Op, Window};
use crate::ir::plan::BufferRole;
use crate::ir::product::{Product, Strides};
use crate::ir::view::{Geometry, Image, Moved, RowMap};
use crate::registry::{Kernel, Operation, Problem, gcd, lcm};

impl<'l> Planner<'l> {
    fn shape(&self, value: usize) -> Shape {
        self.network.graph.values[value].shape
    }

    /// Returns the matrix that holds a drafted value, and the rows of its elements.
    pub(super) fn view(&self, value: usize) -> &View {
        // If a node cannot be drafted, planning fails. So no step uses this default.
        static NONE: View = View {
            matrix: 0,
            map: RowMap::vector(1),
        };
        self.views[value].as_ref().unwrap_or(&NONE)
    }

    /// Sizes `matrix` for `value` alone, and records the rows of the value's elements. The rows of
    /// each pixel are padded to a multiple of `multiple`.
    pub(super) fn pixels(&mut self, matrix: usize, value: usize, multiple: usize) {
        let shape = self.shape(value);
        if shape.h * shape.w == 1 {
            self.matrices[matrix].rows = shape.c;
            self.demand(matrix, multiple, 1, None);
            self.views[value] = Some(View {
                matrix,
                map: RowMap::vector(shape.c),
            });
            return;
        }
        let pixel = shape
            .c
            .next_multiple_of(lcm(multiple, self.known.pixels[value]));
        self.matrices[matrix].pixels_of = Some(value);
        // Other matrices must consist of whole pixels. The input need not, because the host writes
        // every row of it.
        self.matrices[matrix].by_pixels = matrix > 0;
        self.matrices[matrix].rows = shape.h * shape.w * pixel;
        self.views[value] = Some(View {
            matrix,
            map: RowMap::image(Image::dense(shape, pixel), shape),
        });
    }

    /// Returns the number of rows that a copy of `value` would have.
    pub(super) fn rows_of_copy(&self, value: usize) -> usize {
        let Shape { c, h, w } = self.shape(value);
        match h * w {
            1 => c,
            pixels => pixels * c.next_multiple_of(self.known.pixels[value]),
        }
    }

    /// Returns each value whose pixels need more padding. With it comes the number that the rows of
    /// one of its pixels must become a multiple of.
    pub(super) fn wider_pixels(&self) -> Vec<(usize, usize)> {
        let wider = |m: &Matrix| {
            let value = m.pixels_of.filter(|_| m.by_pixels && m.padded() > m.rows)?;
            let Shape { h, w, .. } = self.shape(value);
            // The smallest factor per pixel that makes the rows of all pixels a multiple of
            // `row_multiple`.
            let factor = m.row_multiple / gcd(h * w, m.row_multiple);
            Some((value, lcm(self.known.pixels[value], factor)))
        };
        self.matrices.iter().filter_map(wider).collect()
    }

    /// Adds a matrix for the value of node `last`, which `kernel` writes. Its pixels are padded to
    /// the alignment of the kernel, to whole work-groups, and to `multiple`.
    fn fresh(&mut self, kernel: &'l Kernel, last: usize, multiple: usize) -> usize {
        let node = &self.network.graph.nodes[last];
        let r = &kernel.restrictions;
        // Kernels with tiles write nothing outside the image, so they need no padding to
        // work-groups.
        let group = self.recipe.group(kernel).filter(|_| r.tile.is_none());
        let (rows, cols) = r.whole_groups(group.unwrap_or((1, 1)));
        let (aligned, layout) = match &r.r {
            Some(o) => (
                (lcm(rows, o.row_align), lcm(cols, o.col_align)),
                o.representation.clone(),
            ),
            None => ((rows, cols), None),
        };
        self.matrices
            .push(Matrix::new(node.name.to_string(), 0, 1, layout.clone()));
        let matrix = self.matrices.len() - 1;
        self.pixels(matrix, node.output, lcm(aligned.0, multiple));
        self.demand(matrix, 1, aligned.1, layout.as_ref());
        if self.network.graph.outputs.first() == Some(&node.output) {
            if layout.is_none() {
                self.stands_as(matrix, BufferRole::Scores);
            }
            self.last_values(matrix);
        }
        self.family(kernel, matrix);
        matrix
    }

    /// Gives the network's output the layout that the arg-max reads, if the output has no layout
    /// yet.
    fn last_values(&mut self, matrix: usize) {
        let argmax = self
            .kernel(Operation::ArgMax)
            .filter(|_| self.network.output.kind == Kind::Classes);
        self.lay_out(matrix, argmax.and_then(layout_read));
    }

    /// Gives a matrix without a layout the one that other kernels of the plan read. This avoids
    /// repack steps. Matrices of the host engine stay without a layout.
    fn family(&mut self, kernel: &Kernel, matrix: usize) {
        if kernel.restrictions.needs.host || self.matrices[matrix].layout.is_some() {
            return;
        }
        let layout = self.kernels().find_map(layout_read);
        self.lay_out(matrix, layout);
    }

    /// Gives `layout` to a matrix that has no layout yet.
    fn lay_out(&mut self, matrix: usize, layout: Option<&Layout>) {
        if let (None, Some(layout)) = (&self.matrices[matrix].layout, layout) {
            self.matrices[matrix].layout = Some(layout.clone());
            self.demand(matrix, 1, 1, Some(layout));
        }
    }

    /// Drafts node `i` if it only moves elements, and returns true. A view of the same rows is
    /// preferred to a copy. Returns false for other nodes.
    pub(super) fn moves(&mut self, i: usize) -> bool {
        let node = &self.network.graph.nodes[i];
        let (from, shape) = (node.inputs[0], self.shape(node.inputs[0]));
        let View { matrix, map } = *self.view(from);
        match node.op {
            Op::Reshape(_) => self.views[node.output] = Some(View { matrix, map }),
            Op::Transpose(_) | Op::Slice { .. } => {
                let to = self.shape(node.output);
                let moved = moved(&map, node.op, shape, to).or_else(|| {
                    // A copy is an image, so its rows follow the axes.
                    self.copy(from, i)?;
                    moved(&self.view(from).map, node.op, shape, to)
                });
                let matrix = self.view(from).matrix;
                self.views[node.output] = moved.map(|map| View { matrix, map });
            }
            Op::Concat(axis) => {
                let Some(kernel) = self.gather(i) else {
                    return true;
                };
                let to = self.fresh(kernel, i, 1);
                let (all, map) = (self.shape(node.output), self.view(node.output).map);
                let mut first = 0;
                for (n, &input) in node.inputs.iter().enumerate() {
                    let part = self.shape(input);
                    let Some(rows) = map.sliced(all, along(axis, first), part) else {
                        return true;
                    };
                    let from = *self.view(input);
                    // The first copy also fills the rows that no input writes.
                    self.move_rows(kernel, i, from, (to, rows), n == 0, 0.0);
                    first += part.along(axis);
                }
            }
            Op::Pad { padding, value } => {
                let Some(kernel) = self.gather(i) else {
                    return true;
                };
                let all = self.shape(node.output);
                let multiple = match (all.h, all.w) == (shape.h, shape.w) {
                    true => self.rows_of_convolution(node.output),
                    false => 1,
                };
                let to = self.fresh(kernel, i, multiple);
                let rows = self.view(node.output).map;
                let Some(rows) = rows.sliced(all, padding.before, shape) else {
                    return true;
                };
                self.move_rows(
                    kernel,
                    i,
                    View { matrix, map },
                    (to, rows),
                    true,
                    value.get(),
                );
            }
            _ => return false,
        }
        true
    }

    /// Returns a number that the rows of a padded value's pixels should be a multiple of: as many
    /// as a convolution of the host writes, unless that doubles the pixels. A sum of the value and
    /// a convolution's result is then computed in vectors.
    fn rows_of_convolution(&self, value: usize) -> usize {
        let convolution = self.kernel(Operation::Convolution);
        let written = convolution.filter(|k| k.restrictions.needs.host);
        let written = written.and_then(|k| k.restrictions.r.as_ref());
        let (align, c) = (written.map_or(1, |r| r.row_align), self.shape(value).c);
        match c.next_multiple_of(align) < 2 * c {
            true => align,
            false => 1,
        }
    }

    fn gather(&mut self, node: usize) -> Option<&'l Kernel> {
        let kernel = self.kernel(Operation::Gather);
        if kernel.is_none() {
            self.missing(node, "gather");
        }
        kernel
    }

    /// Drafts a step that copies rows into matrix `to`. With `fills` it also writes `value` into
    /// all rows without a source.
    fn move_rows(
        &mut self,
        kernel: &'l Kernel,
        node: usize,
        from: View,
        (to, rows): (usize, RowMap),
        fills: bool,
        value: f32,
    ) {
        let input = self.reads(kernel, from.matrix, node);
        self.family(kernel, input);
        // `place` later replaces the 1 by the number of padded rows.
        let moved = [Moved {
            from: from.map,
            to: rows,
            filled: usize::from(fills),
        }; 2];
        self.drafts.push(Draft {
            moved,
            value,
            ..Draft::new(kernel, node, (input, to))
        });
    }

    /// Drafts a copy of `value` as an image in its own matrix, for node `node`. From then on,
    /// readers of the value use the copy.
    pub(super) fn copy(&mut self, value: usize, node: usize) -> Option<View> {
        let kernel = self.gather(node)?;
        let from = *self.view(value);
        let name = format!("copy of {}", self.network.graph.values[value].name);
        self.matrices.push(Matrix::new(name, 0, 1, None));
        let to = self.matrices.len() - 1;
        self.pixels(to, value, 1);
        self.family(kernel, to);
        let rows = self.view(value).map;
        self.move_rows(kernel, node, from, (to, rows), true, 0.0);
        self.views[value]
    }

    /// Returns rows of `value` that node `node` may overwrite. It copies the value if the rows are
    /// the network's input, or if another node or the output still needs them.
    pub(super) fn own(&mut self, value: usize, node: usize) -> View {
        let (graph, view) = (&self.network.graph, *self.view(value));
        let there = |v: &usize| {
            self.views[*v]
                .as_ref()
                .is_some_and(|other| other.matrix == view.matrix)
        };
        let read = |v: usize| {
            graph.outputs.contains(&v) || graph.consumers(v).any(|n| n != node && !self.done[n])
        };
        let shared = (0..graph.values.len()).filter(there).any(read);
        if !shared && view.matrix > 0 {
            return view;
        }
        // Other nodes keep reading the original value.
        let before = self.views[value];
        let copy = self.copy(value, node);
        self.views[value] = before;
        copy.unwrap_or(view)
    }

    /// Returns `value` as an image in a matrix. The value is copied if its rows do not form an
    /// image.
    fn image(&mut self, value: usize, node: usize) -> Option<(usize, Image)> {
        let shape = self.shape(value);
        let as_image = |view: &View| view.map.as_image(shape).map(|image| (view.matrix, image));
        as_image(self.view(value)).or_else(|| as_image(&self.copy(value, node)?))
    }

    /// Drafts a step over images. Returns the nodes that the step computes.
    pub(super) fn of_image(&mut self, kernel: &'l Kernel, i: usize, chain: Chain) -> Vec<usize> {
        let graph = &self.network.graph;
        let Chain {
            nodes,
            weighted,
            added,
            rescaled,
            rounds,
        } = chain;
        let (node, last) = (&graph.nodes[i], nodes[nodes.len() - 1]);
        let activation = match graph.nodes[last].op {
            Op::Activation(a) if a != Activation::Math(Math::Round) || nodes.len() == 1 => a,
            _ => Activation::None,
        };
        if let Some(mut drafted) = self.image_step(kernel, i, last) {
            let elements = graph.values[node.output].shape.len();
            let flop = match node.op {
                Op::Convolution { .. } if added.is_some() => graph.flop(i) + elements as u64,
                Op::Convolution { .. } | Op::Resample { .. } | Op::Product { .. } => graph.flop(i),
                _ => kernel.flop(Problem {
                    h: elements,
                    w: 1,
                    l: 0,
                }),
            };
            if let Some((_, value)) = added {
                drafted.second = Some(self.view(value).matrix);
            }
            self.drafts.push(Draft {
                activation,
                rescaled,
                rounds,
                first: i,
                weighted,
                flop,
                added,
                ..drafted
            });
        }
        nodes
    }

    /// Returns the fused additions whose operand has another layout or other rows than the result.
    /// Such an addition needs its own step.
    pub(super) fn apart(&self) -> Vec<usize> {
        let stands = |matrix: usize| {
            let matrix = &self.matrices[matrix];
            (self.padded_rows(matrix), matrix.layout.as_ref())
        };
        let apart = |d: &Draft<'_>| {
            let (sum, value) = d.added?;
            let View { matrix, map } = self.view(value);
            // The rows come from the step's geometry, because the view of an output may already be
            // that of a copy.
            let needed = d.geometry.map(|g| g.output.0);
            let found = map.as_image(self.shape(self.network.graph.nodes[d.node].output));
            // The plan's check compares whole geometries. So the operand must have been written as
            // an image of the same shape.
            let writers = self
                .drafts
                .iter()
                .take_while(|other| !std::ptr::eq(*other, d));
            let written = writers
                .filter(|other| other.output == *matrix)
                .last()
                .and_then(|other| other.geometry);
            let same = written.is_none_or(|g| Some(g.output) == d.geometry.map(|g| g.output));
            let alike =
                same && found.is_some() && found == needed && stands(*matrix) == stands(d.output);
            (!alike).then_some(sum)
        };
        self.drafts.iter().filter_map(apart).collect()
    }

    fn image_step(&mut self, kernel: &'l Kernel, i: usize, last: usize) -> Option<Draft<'l>> {
        let graph = &self.network.graph;
        let node = &graph.nodes[i];
        let (value, result) = (node.inputs[0], graph.nodes[last].output);
        let (from, to) = (self.shape(value), self.shape(result));
        let (window, groups) = match node.op {
            Op::Scale | Op::PRelu => return self.scale_step(kernel, i, last),
            Op::Combine(_) => return self.combine_step(kernel, i, last),
            Op::Product { transposed } => return self.product_step(kernel, i, transposed),
            Op::Convolution { window, groups } => (window, groups),
            Op::Pool { window, .. } => (window, 1),
            // The taps of a resampled pixel count as the elements of its window, although they need
            // not be neighbours.
            Op::Resample { taps, .. } => (Window::of(taps), 1),
            _ => (Window::of((1, 1)), 1),
        };
        let (matrix, image) = self.image(value, i)?;
        let input = self.reads(kernel, matrix, last);
        self.family(kernel, input);
        let output = self.fresh(kernel, last, 1);
        let made = self.view(result).map.as_image(to)?;
        self.placed(
            kernel,
            last,
            (input, output),
            Geometry {
                input: (image, from),
                output: (made, to),
                window,
                groups,
            },
        )
    }

    /// Returns a draft of a step with images and a window. If a size is too large for the kernel's
    /// argument, records a mistake and returns `None`.
    fn placed(
        &mut self,
        kernel: &'l Kernel,
        last: usize,
        matrices: (usize, usize),
        geometry: Geometry,
    ) -> Option<Draft<'l>> {
        if !geometry.fits() {
            self.mistake(last, "sizes of images and windows are below 65536");
            return None;
        }
        Some(Draft {
            geometry: Some(geometry),
            ..Draft::new(kernel, last, matrices)
        })
    }

    /// Returns a view of `value` that occupies all rows of its matrix. The value is copied if
    /// necessary.
    fn whole(&mut self, value: usize, node: usize) -> Option<View> {
        let shape = self.shape(value);
        let view = *self.view(value);
        let rows = self.matrices[view.matrix].rows;
        let pixel = rows / (shape.h * shape.w);
        // Rows of other values must not count as padding. So a vector needs a matrix without
        // further rows. The pixels of an image must divide all rows of the matrix equally.
        let own = pixel < rows && pixel * shape.h * shape.w == rows || rows == shape.c;
        let whole = own && view.map == RowMap::image(Image::dense(shape, pixel), shape);
        if whole {
            Some(view)
        } else {
            self.copy(value, node)
        }
    }

    /// Adds a matrix for the value of node `last`, with as many rows and the same layout as matrix
    /// `input`.
    fn alike(&mut self, input: usize, last: usize, map: RowMap) -> usize {
        let name = self.network.graph.nodes[last].name.to_string();
        let Matrix {
            rows,
            ref layout,
            pixels_of,
            ..
        } = self.matrices[input];
        let layout = layout.clone();
        self.matrices.push(Matrix {
            pixels_of,
            ..Matrix::new(name, rows, 1, layout.clone())
        });
        let matrix = self.matrices.len() - 1;
        self.demand(matrix, 1, 1, layout.as_ref());
        self.views[self.network.graph.nodes[last].output] = Some(View { matrix, map });
        matrix
    }

    /// Drafts a step that multiplies each element by a factor, and adds a summand if the node has
    /// summands. One map leads from elements to their factors in the array, another to their
    /// summands.
    fn scale_step(&mut self, kernel: &'l Kernel, i: usize, last: usize) -> Option<Draft<'l>> {
        let graph = &self.network.graph;
        let node = &graph.nodes[i];
        let View { matrix, map } = self.whole(node.inputs[0], i)?;
        let input = self.reads(kernel, matrix, last);
        self.family(kernel, input);
        let output = self.alike(input, last, map);
        // A PReLU has no summands. Its kernel gets the slopes in both maps.
        let arrays =
            [node.tensors.first(), node.tensors.last()].map(|t| t.map(|&t| &graph.tensors[t]));
        let moved = arrays.map(|array| Moved {
            from: array.and_then(|a| a.map).unwrap_or_default(),
            to: map,
            filled: 0,
        });
        Some(Draft {
            moved,
            ..Draft::new(kernel, last, (input, output))
        })
    }

    /// Drafts an element-wise operation on two values. The result has the rows and the layout of
    /// the first value.
    fn combine_step(&mut self, kernel: &'l Kernel, i: usize, last: usize) -> Option<Draft<'l>> {
        let node = &self.network.graph.nodes[i];
        let (first, second) = (node.inputs[0], node.inputs[1]);
        let shape = self.shape(first);
        let (other, mut stands) = self.image(second, i)?;
        if self.shape(second) != shape {
            // The second operand has one pixel, which combines with every pixel of the first
            // operand.
            stands = Image {
                pixel: 0,
                line: 0,
                ..stands
            };
        }
        let View {
            mut matrix,
            mut map,
        } = self.whole(first, i)?;
        if shape.h * shape.w > 1 && self.matrices[matrix].pixels_of.is_none() {
            // An image in the matrix of a vector may have padding rows behind its last pixel. A
            // copy gives each pixel its own padding.
            View { matrix, map } = self.copy(first, i)?;
        }
        let input = self.reads(kernel, matrix, last);
        self.family(kernel, input);
        // The kernel needs the same layout for both operands.
        self.family(kernel, other);
        let layout = self.matrices[input].layout.clone();
        let other = self.link(kernel, other, layout.as_ref(), last);
        let image = map.as_image(shape)?;
        let output = self.alike(input, last, map);
        self.matrices[output].by_pixels = true;
        let geometry = Geometry {
            input: (stands, shape),
            output: (image, shape),
            window: Window::of((1, 1)),
            groups: 1,
        };
        let drafted = self.placed(kernel, last, (input, output), geometry)?;
        Some(Draft {
            second: Some(other),
            ..drafted
        })
    }

    /// Drafts the matrix product of two values. An operand is read in place if its rows follow the
    /// axes.
    fn product_step(
        &mut self,
        kernel: &'l Kernel,
        i: usize,
        transposed: bool,
    ) -> Option<Draft<'l>> {
        let node = &self.network.graph.nodes[i];
        let (first, second) = (node.inputs[0], node.inputs[1]);
        let (matrix, a) = self.strides(first, i)?;
        let (other, b) = self.strides(second, i)?;
        let input = self.reads(kernel, matrix, i);
        self.family(kernel, input);
        // The kernel needs the same layout for both operands.
        self.family(kernel, other);
        let layout = self.matrices[input].layout.clone();
        let other = self.link(kernel, other, layout.as_ref(), i);
        let columns = self.shape(node.output).w;
        let product = Product::new(self.shape(first), columns, (a, b), transposed);
        let name = node.name.to_string();
        self.matrices
            .push(Matrix::new(name, product.len(), 1, None));
        let output = self.matrices.len() - 1;
        self.writes(kernel, output);
        self.family(kernel, output);
        self.views[node.output] = Some(View {
            matrix: output,
            map: product.result(),
        });
        Some(Draft {
            product: Some(product),
            second: Some(other),
            ..Draft::new(kernel, i, (input, output))
        })
    }

    /// Returns the matrix of `value`, and the distances in rows between its elements along the
    /// axes. The value is copied if its rows do not follow the axes.
    fn strides(&mut self, value: usize, node: usize) -> Option<(usize, Strides)> {
        let shape = self.shape(value);
        let strides = |view: &View| Some((view.matrix, Strides::of(&view.map, shape)?));
        strides(self.view(value)).or_else(|| strides(&self.copy(value, node)?))
    }

    /// Copies the network's output if it is in the input's matrix, or if an arg-max needs its
    /// elements in consecutive rows.
    pub(super) fn outputs(&mut self) {
        let Some(&value) = self.network.graph.outputs.first() else {
            return;
        };
        let Some(View { matrix, map }) = self.views[value] else {
            return;
        };
        let nodes = self.network.graph.nodes.len();
        let classes = self.network.output.kind == Kind::Classes;
        let plain = map.is_plain() && map.len() == self.matrices[matrix].rows;
        let elsewhere = self.otherwise(matrix, BufferRole::Scores);
        if matrix == 0 || elsewhere || (classes && !plain) {
            let Some(kernel) = self.gather(nodes) else {
                return;
            };
            let n = map.len();
            self.matrices.push(Matrix::new("output".into(), n, 1, None));
            let to = self.matrices.len() - 1;
            self.stands_as(to, BufferRole::Scores);
            self.last_values(to);
            self.family(kernel, to);
            self.move_rows(
                kernel,
                nodes,
                View { matrix, map },
                (to, RowMap::vector(n)),
                true,
                0.0,
            );
            self.views[value] = Some(View {
                matrix: to,
                map: RowMap::vector(n),
            });
        }
    }
}

/// Returns the layout in which a kernel reads its operand `b`, or `None` if it accepts any.
fn layout_read(kernel: &Kernel) -> Option<&Layout> {
    kernel
        .restrictions
        .b
        .as_ref()
        .and_then(|b| b.representation.as_ref())
}

/// Returns the rows of a transposed or sliced value. Its operand has shape `from` and rows `map`.
/// `None` if the operand's rows do not follow the axes.
fn moved(map: &RowMap, op: Op, from: Shape, to: Shape) -> Option<RowMap> {
    match op {
        Op::Transpose(axes) => map.transposed(from, axes),
        Op::Slice { axis, first, .. } => map.sliced(from, along(axis, first), to),
        _ => None,
    }
}

/// Returns an index (c, y, x) that is `first` along `axis` and 0 along the other axes.
fn along(axis: Axis, first: usize) -> [usize; 3] {
    let mut at = [0; 3];
    at[axis as usize] = first;
    at
}
