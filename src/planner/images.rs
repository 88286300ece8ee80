//! Which rows the elements of values are; steps that know of images, and steps that only move
//! elements.

use super::fuse::Chain;
use super::{Draft, Matrix, Planner, View};
use crate::ir::graph::Shape;
use crate::ir::layout::Layout;
use crate::ir::network::Kind;
use crate::ir::op::{Activation, Axis, Op, Window};
use crate::ir::view::{Geometry, Image, Moved, RowMap};
use crate::registry::{Kernel, Operation, Problem, lcm};

impl<'l> Planner<'l> {
    fn shape(&self, value: usize) -> Shape {
        self.network.graph.values[value].shape
    }

    /// The rows of a value that has been drafted.
    pub(super) fn view(&self, value: usize) -> &View {
        // Nodes are in topological order, and where one cannot be drafted the plan is refused.
        static NONE: View = View {
            matrix: 0,
            map: RowMap::vector(1),
        };
        self.views[value].as_ref().unwrap_or(&NONE)
    }

    /// `value` takes all rows of `matrix`: its pixels a multiple of `multiple` each.
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
        // Of the input the host writes every row.
        self.matrices[matrix].by_pixels = matrix > 0;
        self.matrices[matrix].rows = shape.h * shape.w * pixel;
        self.views[value] = Some(View {
            matrix,
            map: RowMap::image(Image::dense(shape, pixel), shape),
        });
    }

    /// Values whose pixels must be wider, and what their rows must be a multiple of.
    pub(super) fn wider_pixels(&self) -> Vec<(usize, usize)> {
        let wider = |m: &Matrix| {
            let value = m.pixels_of.filter(|_| m.by_pixels && m.padded() > m.rows)?;
            let Shape { h, w, .. } = self.shape(value);
            // The least that makes all pixels together a multiple.
            let factor = m.row_multiple / gcd(h * w, m.row_multiple);
            Some((value, lcm(self.known.pixels[value], factor)))
        };
        self.matrices.iter().filter_map(wider).collect()
    }

    /// A matrix for the value of node `last`, as `kernel` writes images: whole tiles of a pixel's
    /// channels.
    fn fresh(&mut self, kernel: &'l Kernel, last: usize) -> usize {
        let node = &self.network.graph.nodes[last];
        let r = &kernel.restrictions;
        // Tiles end where the image ends.
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
        self.pixels(matrix, node.output, aligned.0);
        self.demand(matrix, 1, aligned.1, layout.as_ref());
        if self.network.graph.outputs.first() == Some(&node.output) {
            self.last_values(matrix);
        }
        self.family(kernel, matrix);
        matrix
    }

    /// The network's last values stand as who looks for the largest of them takes them, if nothing
    /// else has been said.
    fn last_values(&mut self, matrix: usize) {
        let argmax = self
            .kernel(Operation::ArgMax)
            .filter(|_| self.network.output.kind == Kind::Classes);
        self.lay_out(matrix, argmax.and_then(layout_read));
    }

    /// A matrix that a kernel takes in any layout has the one that the plan's other kernels read,
    /// if nothing else has been said: so few steps have to repack.
    fn family(&mut self, kernel: &Kernel, matrix: usize) {
        if kernel.restrictions.needs.host || self.matrices[matrix].layout.is_some() {
            return;
        }
        let layout = self.kernels().find_map(layout_read);
        self.lay_out(matrix, layout);
    }

    /// A matrix of which nothing has been said stands in `layout`.
    fn lay_out(&mut self, matrix: usize, layout: Option<&Layout>) {
        if let (None, Some(layout)) = (&self.matrices[matrix].layout, layout) {
            self.matrices[matrix].layout = Some(layout.clone());
            self.demand(matrix, 1, 1, Some(layout));
        }
    }

    /// Work that only moves elements: a view of the same rows where one suffices, else a copy.
    /// Whether it was that.
    pub(super) fn moves(&mut self, i: usize) -> bool {
        let node = &self.network.graph.nodes[i];
        let (from, shape) = (node.inputs[0], self.shape(node.inputs[0]));
        let View { matrix, map } = *self.view(from);
        match node.op {
            Op::Reshape(_) => self.views[node.output] = Some(View { matrix, map }),
            Op::Transpose(_) | Op::Slice { .. } => {
                let to = self.shape(node.output);
                let moved = moved(&map, node.op, shape, to).or_else(|| {
                    // A copy whose rows do follow the axes.
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
                let to = self.fresh(kernel, i);
                let (all, map) = (self.shape(node.output), self.view(node.output).map);
                let mut first = 0;
                for (n, &input) in node.inputs.iter().enumerate() {
                    let part = self.shape(input);
                    let Some(rows) = map.sliced(all, along(axis, first), part) else {
                        return true;
                    };
                    let from = *self.view(input);
                    // The first one fills what none of them does.
                    self.move_rows(kernel, i, from, (to, rows), n == 0, 0.0);
                    first += part.along(axis);
                }
            }
            Op::Pad { border, value } => {
                let Some(kernel) = self.gather(i) else {
                    return true;
                };
                let to = self.fresh(kernel, i);
                let all = self.shape(node.output);
                let rows =
                    self.view(node.output)
                        .map
                        .sliced(all, [0, border.top, border.left], shape);
                let Some(rows) = rows else { return true };
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

    fn gather(&mut self, node: usize) -> Option<&'l Kernel> {
        let kernel = self.kernel(Operation::Gather);
        if kernel.is_none() {
            self.missing(node, "gather");
        }
        kernel
    }

    /// A step that copies rows. Where it fills, all rows of the result are written.
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
        // How many rows there are to fill is known with their padding.
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

    /// A copy of `value` for node `node` in rows of its own, as an image; its view is then that.
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

    /// The rows of `value` for node `node` to change: a copy where anybody else reads them later.
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
        // What is copied is read by others where it stood.
        let before = self.views[value];
        let copy = self.copy(value, node);
        self.views[value] = before;
        copy.unwrap_or(view)
    }

    /// The rows of `value` as an image, a copy if they are none.
    fn image(&mut self, value: usize, node: usize) -> Option<(usize, Image)> {
        let shape = self.shape(value);
        let as_image = |view: &View| view.map.as_image(shape).map(|image| (view.matrix, image));
        as_image(self.view(value)).or_else(|| as_image(&self.copy(value, node)?))
    }

    /// A step that reads and writes images; gives the nodes that are then done.
    pub(super) fn of_image(&mut self, kernel: &'l Kernel, i: usize, chain: Chain) -> Vec<usize> {
        let graph = &self.network.graph;
        let Chain {
            nodes,
            weighted,
            added,
        } = chain;
        let (node, last) = (&graph.nodes[i], nodes[nodes.len() - 1]);
        let activation = match graph.nodes[last].op {
            Op::Activation(a) => a,
            _ => Activation::None,
        };
        if let Some(mut drafted) = self.image_step(kernel, i, last) {
            let elements = graph.values[node.output].shape.len();
            let flop = match node.op {
                Op::Convolution { .. } if added.is_some() => graph.flop(i) + elements as u64,
                Op::Convolution { .. } => graph.flop(i),
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
                first: i,
                weighted,
                flop,
                added,
                ..drafted
            });
        }
        nodes
    }

    /// Additions whose value does not stand as the result does, so that they take a step of their
    /// own.
    pub(super) fn apart(&self) -> Vec<usize> {
        let stands = |matrix: usize| {
            let matrix = &self.matrices[matrix];
            (self.padded_rows(matrix), matrix.layout.as_ref())
        };
        let apart = |d: &Draft<'_>| {
            let (sum, value) = d.added?;
            let View { matrix, map } = self.view(value);
            // The step's own result: by now the view of an output may be that of a copy.
            let needed = d.geometry.map(|g| g.output.0);
            let found = map.as_image(self.shape(self.network.graph.nodes[d.node].output));
            // The step that wrote the operand may have written an image of another shape, which the
            // checker of plans takes for another place.
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
            Op::Convolution { window, groups } => (window, groups),
            Op::Pool { window, .. } => (window, 1),
            _ => (Window::of((1, 1)), 1),
        };
        let (matrix, image) = self.image(value, i)?;
        let input = self.reads(kernel, matrix, last);
        self.family(kernel, input);
        let output = self.fresh(kernel, last);
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

    /// A draft that knows of images.
    fn placed(
        &mut self,
        kernel: &'l Kernel,
        last: usize,
        matrices: (usize, usize),
        geometry: Geometry,
    ) -> Option<Draft<'l>> {
        if !geometry.fits() {
            self.mistake(last, "sizes of images and windows are below 32768");
            return None;
        }
        Some(Draft {
            geometry: Some(geometry),
            ..Draft::new(kernel, last, matrices)
        })
    }

    /// The view of a value that takes all rows of its matrix, a copy if it does not.
    fn whole(&mut self, value: usize, node: usize) -> Option<View> {
        let shape = self.shape(value);
        let view = *self.view(value);
        let rows = self.matrices[view.matrix].rows;
        let pixel = rows / (shape.h * shape.w);
        // A vector has no rows of others behind it.
        let own = pixel < rows || rows == shape.c;
        let whole = own && view.map == RowMap::image(Image::dense(shape, pixel), shape);
        if whole {
            Some(view)
        } else {
            self.copy(value, node)
        }
    }

    /// A matrix for the value of node `last` in which it stands as its operand does in `input`.
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

    /// A step with a factor for each element, and mostly a summand. Each array has a map of its
    /// own.
    fn scale_step(&mut self, kernel: &'l Kernel, i: usize, last: usize) -> Option<Draft<'l>> {
        let graph = &self.network.graph;
        let node = &graph.nodes[i];
        let View { matrix, map } = self.whole(node.inputs[0], i)?;
        let input = self.reads(kernel, matrix, last);
        self.family(kernel, input);
        let output = self.alike(input, last, map);
        // A PReLU has no summands: its kernel is given the slopes twice.
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

    /// A step with two operands, of which the first stands as the result does.
    fn combine_step(&mut self, kernel: &'l Kernel, i: usize, last: usize) -> Option<Draft<'l>> {
        let node = &self.network.graph.nodes[i];
        let (first, second) = (node.inputs[0], node.inputs[1]);
        let shape = self.shape(first);
        let (other, mut stands) = self.image(second, i)?;
        if self.shape(second) != shape {
            // One element for all pixels.
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
            // A vector's rows: behind the last pixel may be others, and its pixels cannot be made
            // wider.
            View { matrix, map } = self.copy(first, i)?;
        }
        let input = self.reads(kernel, matrix, last);
        self.family(kernel, input);
        // One layout for both.
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

    /// The last values stand in rows of their own, and those that an arg-max reads one after the
    /// other.
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
        if matrix == 0 || (classes && !plain) {
            let Some(kernel) = self.gather(nodes) else {
                return;
            };
            let n = map.len();
            self.matrices.push(Matrix::new("output".into(), n, 1, None));
            let to = self.matrices.len() - 1;
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

/// The layout in which a kernel reads activations; `None` where it takes any.
fn layout_read(kernel: &Kernel) -> Option<&Layout> {
    kernel
        .restrictions
        .b
        .as_ref()
        .and_then(|b| b.representation.as_ref())
}

/// The rows of a value that is turned or a part of another, of shape `from`, with rows `map`.
fn moved(map: &RowMap, op: Op, from: Shape, to: Shape) -> Option<RowMap> {
    match op {
        Op::Transpose(axes) => map.transposed(from, axes),
        Op::Slice { axis, first, .. } => map.sliced(from, along(axis, first), to),
        _ => None,
    }
}

/// The element `first` along an axis.
fn along(axis: Axis, first: usize) -> [usize; 3] {
    let mut at = [0; 3];
    at[axis as usize] = first;
    at
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}
