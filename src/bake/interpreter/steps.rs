//! Executes every operation of the kernel registry in float64, as the kernel sources define it.

use super::call::{Axes, Call, DecodedGeometry};
use super::memory::{Matrix, Memory, Span, UNTOUCHED};
use crate::ir::graph::Shape;
use crate::ir::half;
use crate::ir::layout::Layout;
use crate::ir::network::{Precision, argmax};
use crate::ir::op::{Activation, Arithmetic};
use crate::ir::options::Function;
use crate::ir::plan::{Arg, BufferRole, EngineKind, Plan, places};
use crate::ir::scale::BESIDE;
use crate::ir::taps::Taps;
use crate::ir::values::Values;
use crate::ops::elements::{linear, of_pixel};
use crate::ops::products::{Panels, with_one};
use crate::registry::{Covered, LeadingArgument, Library, Operation};

/// The number that stands in padding rows whose content a kernel leaves open. Results must not
/// depend on it.
pub(super) const PADDING: f64 = 1234.5;

/// The class that kernels give to a record whose scores are not all finite.
const REFUSED: f64 = u32::MAX as f64;

/// A simulated device that executes the steps of a plan, for some records of a batch.
pub(super) struct Machine<'p> {
    plan: &'p Plan,
    library: &'p Library,
    constants: &'p [Values],
    /// The bytes of the buffer that holds all constants. Empty if no step uses that buffer.
    all: Vec<u8>,
    memories: Vec<Memory>,
    /// True if each hidden buffer has its own memory. Otherwise hidden buffers share the arena.
    apart: bool,
    /// The number of records in the batch.
    records: usize,
    /// The columns (indices in the batch) of the records that are computed.
    columns: Vec<usize>,
}

/// The weights of a layer row by row, and the numbers of each row.
struct Layer {
    weights: Vec<f32>,
    depth: usize,
    rows: RowNumbers,
}

/// The numbers that a kernel finishes the sums of rows with. A sum is multiplied by its scale, and
/// its bias is added. Then follow the factor and the summand of a scaling behind the layer.
#[derive(Default)]
struct RowNumbers {
    bias: Vec<f64>,
    scale: Vec<f64>,
    /// Empty, as are the summands, if no scaling is behind the layer.
    factor: Vec<f64>,
    summand: Vec<f64>,
}

impl RowNumbers {
    /// Returns the result of a row for its sum of products.
    fn finished(&self, row: usize, sum: f64) -> f64 {
        let sum = sum * self.scale[row] + self.bias[row];
        match self.factor.get(row) {
            Some(&factor) => linear(sum, factor, self.summand[row]),
            None => sum,
        }
    }
}

impl Layer {
    /// Returns for each column the sum of products of every row. Only the terms in `range` are
    /// added.
    fn sums(&self, columns: &[Vec<f64>], range: std::ops::Range<usize>) -> Vec<Vec<f64>> {
        let rows = self.weights.len() / self.depth.max(1);
        let part: Vec<f32>;
        let weights = if range.len() == self.depth {
            &self.weights
        } else {
            part = self
                .weights
                .chunks_exact(self.depth)
                .flat_map(|row| &row[range.clone()])
                .copied()
                .collect();
            &part
        };
        if range.is_empty() {
            return vec![vec![0.0; rows]; columns.len()];
        }
        if let [column] = columns {
            return vec![with_one(weights, &column[range])];
        }
        let count = columns.len();
        let mut sums = vec![0.0; rows * count];
        Panels::new(weights, range.len()).add(count, &mut sums, |some, width, laid| {
            for (j, column) in columns[some].iter().enumerate() {
                laid.iter_mut()
                    .skip(j)
                    .step_by(width)
                    .zip(&column[range.clone()])
                    .for_each(|(to, &x)| *to = x);
            }
        });
        (0..count)
            .map(|n| sums.iter().skip(n).step_by(count).copied().collect())
            .collect()
    }

    /// Returns the results of all rows for each column: sums, the numbers of their rows, and then
    /// `finish`.
    fn results(&self, columns: &[Vec<f64>], finish: impl Fn(f64) -> f64) -> Vec<Vec<f64>> {
        let mut all = self.sums(columns, 0..self.depth);
        for values in &mut all {
            for (row, x) in values.iter_mut().enumerate() {
                *x = finish(self.rows.finished(row, *x));
            }
        }
        all
    }
}

impl<'p> Machine<'p> {
    /// Returns a simulated device with the plan's constants. All other memory is still unwritten.
    pub(super) fn new(
        plan: &'p Plan,
        library: &'p Library,
        constants: &'p [Values],
        (records, apart): (usize, bool),
        columns: &[usize],
    ) -> Machine<'p> {
        let mut all = Vec::new();
        if plan.steps.iter().any(|s| s.args.contains(&Arg::Constants)) {
            let (starts, bytes) = places(&plan.constants);
            all = vec![0; bytes];
            for (start, values) in starts.into_iter().zip(constants) {
                let bytes = values.bytes();
                all[start..start + bytes.len()].copy_from_slice(&bytes);
            }
        }
        // In the host engine each record is computed in its own arena.
        let arenas = if plan.engine == EngineKind::Host {
            columns.len()
        } else {
            1
        };
        let of_arena = (0..arenas).map(|_| {
            (
                plan.arena_bytes / 4,
                plan.engine.arena_columns(plan.padded_batch),
            )
        });
        let apart = apart && plan.engine == EngineKind::OpenCl;
        let of_buffers = plan.buffers.iter().map(|b| match b.role {
            BufferRole::Hidden if !apart => (0, 1),
            _ => (b.len(plan.padded_batch), plan.padded_batch),
        });
        let memories = of_arena
            .chain(of_buffers)
            .map(|(cells, columns)| Memory::new(cells, columns));
        let memories = memories.collect();
        Machine {
            plan,
            library,
            constants,
            all,
            memories,
            apart,
            records,
            columns: columns.to_vec(),
        }
    }

    /// Returns the cells that buffer `i` has for each computed record.
    fn spans(&self, i: usize) -> Result<Vec<Span>, String> {
        let (plan, host) = (self.plan, self.plan.engine == EngineKind::Host);
        let buffer = plan
            .buffers
            .get(i)
            .ok_or_else(|| format!("buffer {i} is none of the plan's"))?;
        let arenas = if host { self.columns.len() } else { 1 };
        let hidden = buffer.role == BufferRole::Hidden && !self.apart;
        let (start, cols) = match hidden {
            true => (
                buffer.arena / 4,
                plan.engine.arena_columns(plan.padded_batch),
            ),
            false => (0, plan.padded_batch),
        };
        let end = start + buffer.len(cols);
        if hidden && end > plan.arena_bytes / 4 {
            return Err(format!("{} ends behind the arena", buffer.name));
        }
        let span = |(n, &column): (usize, &usize)| {
            let memory = match (hidden, host) {
                (true, true) => n,
                (true, false) => 0,
                (false, _) => arenas + i,
            };
            let column = if hidden && host { 0 } else { column };
            Span {
                memory,
                start,
                end,
                column,
                columns: cols,
            }
        };
        let columns = self.columns.iter().find(|&&c| c >= plan.padded_batch);
        match columns {
            Some(column) => Err(format!(
                "column {column} of a batch of {}",
                plan.padded_batch
            )),
            None => Ok(self.columns.iter().enumerate().map(span).collect()),
        }
    }

    /// Returns buffer `i` as a matrix in the layout that the plan declares.
    pub(super) fn declared(&self, i: usize) -> Result<Matrix, String> {
        let spans = self.spans(i)?;
        let buffer = &self.plan.buffers[i];
        let cols = spans.first().map_or(1, |s| s.columns);
        Matrix::new(
            &buffer.name,
            &buffer.layout,
            (buffer.padded_rows, cols),
            spans,
            None,
        )
    }

    /// Writes a value of the n-th computed record into buffer `i`. The elements go to the rows that
    /// the buffer's map gives, and all other rows get [`PADDING`].
    pub(super) fn put(&mut self, i: usize, n: usize, values: &[f64]) -> Result<(), String> {
        let (matrix, map) = (self.declared(i)?, self.plan.buffers[i].map);
        if map.len() != values.len() || map.end() > matrix.rows {
            return Err(format!(
                "{} values in rows {map:?} of {}",
                values.len(),
                matrix.rows
            ));
        }
        let mut rows = vec![PADDING; matrix.rows];
        map.rows().zip(values).for_each(|(row, &x)| rows[row] = x);
        matrix.write(&mut self.memories, n, &rows)
    }

    /// Returns all rows of the n-th computed record in buffer `i`.
    pub(super) fn column(&self, i: usize, n: usize) -> Result<Vec<f64>, String> {
        self.declared(i)?.read(&self.memories, n)
    }

    /// Returns the kernel's operand `name` as a matrix in the layout that the kernel assumes. It
    /// has `rows` rows, or with `None` all rows of the buffer.
    fn matrix(&self, call: &Call<'_>, name: &str, rows: Option<usize>) -> Result<Matrix, String> {
        let Some((parameter, Arg::Buffer(i))) = call.operand(name) else {
            return Err(format!("operand {name} is no buffer"));
        };
        let spans = self.spans(i)?;
        let buffer = &self.plan.buffers[i];
        let entry = &call.kernel.restrictions;
        // A summand that the kernel adds, and the buffer between layers, have the layout of the
        // result.
        let combined = matches!(call.step.operation, Operation::Combine | Operation::Product);
        let reads = name == "b" || name == "c" && combined;
        let of = if reads { &entry.b } else { &entry.r };
        let fixed = of.as_ref().and_then(|o| o.representation.clone());
        let any = of.as_ref().is_some_and(|o| o.representation.is_none());
        let layout = match fixed {
            _ if call.host => Layout::C,
            Some(layout) => layout,
            // An element-wise kernel works in any layout, so it uses the layout of the buffer.
            None if any && (entry.elementwise() || call.option("ALIKE").is_some()) => {
                buffer.layout.clone()
            }
            None if any => call.place(if reads { "FROM" } else { "TO" })?,
            None => call.kernel.layout(parameter),
        };
        let cols = spans.first().map_or(1, |s| s.columns);
        let meets = layout.fits(buffer.padded_rows, cols).is_ok()
            && buffer.layout.fits(buffer.padded_rows, cols).is_ok()
            && layout.same_placement(&buffer.layout, buffer.padded_rows, cols);
        if !meets {
            return Err(format!(
                "{} stands as {}, the kernel takes {layout}",
                buffer.name, buffer.layout
            ));
        }
        let step = if name == "b" {
            call.number("STEP")?
        } else {
            None
        };
        let size = (
            rows.unwrap_or(buffer.padded_rows),
            call.size(LeadingArgument::Width).unwrap_or(cols),
        );
        Matrix::new(&buffer.name, &layout, size, spans, step)
    }

    /// Returns all rows of operand `name` for each computed record.
    fn read(
        &self,
        call: &Call<'_>,
        name: &str,
        rows: Option<usize>,
    ) -> Result<Vec<Vec<f64>>, String> {
        let matrix = self.matrix(call, name, rows)?;
        (0..self.columns.len())
            .map(|n| matrix.read(&self.memories, n))
            .collect()
    }

    /// Writes the kernel's result, operand `r`, with `rows` rows or all. For each computed record,
    /// `result` sets the rows. Rows that it leaves [`UNTOUCHED`] keep their old numbers.
    fn write(
        &mut self,
        call: &Call<'_>,
        rows: Option<usize>,
        mut result: impl FnMut(usize, &mut [f64]) -> Result<(), String>,
    ) -> Result<(), String> {
        let matrix = self.matrix(call, "r", rows)?;
        for n in 0..self.columns.len() {
            let mut numbers = vec![UNTOUCHED; matrix.rows];
            result(n, &mut numbers)?;
            matrix.write(&mut self.memories, n, &numbers)?;
        }
        Ok(())
    }

    /// Returns true if the kernel launch computes the n-th of the computed records.
    fn reaches(&self, call: &Call<'_>, n: usize) -> bool {
        call.reaches(self.columns[n])
    }

    /// Returns `count` numbers of constant `i`. Number n is read from index `at(n)` of the
    /// constant.
    fn numbers(
        &self,
        i: usize,
        stored: Precision,
        count: usize,
        at: impl Fn(usize) -> usize,
    ) -> Result<Vec<f32>, String> {
        let (c, values) = (&self.plan.constants[i], &self.constants[i]);
        if c.precision != stored {
            let (found, expected) = (c.precision.name(), stored.name());
            return Err(format!(
                "{} {} are {found}, the kernel reads {expected}",
                c.name,
                c.role.name()
            ));
        }
        if let Some(at) = (0..count).map(&at).find(|&at| at >= c.len()) {
            return Err(format!(
                "reads number {at} of {} {} of {}",
                c.name,
                c.role.name(),
                c.len()
            ));
        }
        Ok(match values {
            Values::F32(v) => (0..count).map(|n| v[at(n)]).collect(),
            Values::F16(v) => (0..count).map(|n| half::to_f32(v[at(n)])).collect(),
            Values::I8(v) => (0..count).map(|n| v[at(n)].into()).collect(),
        })
    }

    /// Returns the weights in the constant of operand `name` as a row-major matrix of `rows` ×
    /// `cols`. The constant is in `layout`.
    fn weights(
        &self,
        call: &Call<'_>,
        name: &str,
        layout: &Layout,
        (rows, cols): (usize, usize),
    ) -> Result<Vec<f32>, String> {
        let Some((_, Arg::Constant(i))) = call.operand(name) else {
            return Err(format!("operand {name} is no constant"));
        };
        // The constant has all rows of its last panel, even rows behind the last row of the layer.
        let (granule, _) = layout.granularity();
        let padded = rows.next_multiple_of(granule);
        layout
            .fits(padded, cols)
            .map_err(|e| format!("operand {name}: {e}"))?;
        let at = layout.offsets(padded, cols);
        let stored = call.stored;
        self.numbers(i, stored, rows * cols, |n| {
            (at.rows[n / cols] + at.cols[n % cols]) as usize
        })
    }

    /// Returns the biases of `rows` rows and the numbers beside them. Without scales, all scales
    /// are 1.
    fn beside(&self, call: &Call<'_>, name: &str, rows: usize) -> Result<RowNumbers, String> {
        let Some((_, Arg::Constant(i))) = call.operand(name) else {
            return Err(format!("operand {name} is no constant"));
        };
        let (bytes, rescales) = (
            call.stored == Precision::I8,
            call.option("RESCALE").is_some(),
        );
        let columns = 1 + usize::from(bytes) + 2 * usize::from(rescales);
        let part = |column: usize| {
            let at = move |n: usize| match columns {
                1 => n,
                _ => (n / BESIDE * columns + column) * BESIDE + n % BESIDE,
            };
            let numbers = self.numbers(i, Precision::F32, rows, at)?;
            Ok::<Vec<f64>, String>(numbers.into_iter().map(f64::from).collect())
        };
        Ok(RowNumbers {
            bias: part(0)?,
            scale: if bytes { part(1)? } else { vec![1.0; rows] },
            factor: match rescales {
                true => part(columns - 2)?,
                false => Vec::new(),
            },
            summand: match rescales {
                true => part(columns - 1)?,
                false => Vec::new(),
            },
        })
    }

    /// Returns the weights, biases and scales of the first `rows` rows of a layer.
    fn layer(
        &self,
        call: &Call<'_>,
        (name, bias): (&str, &str),
        layout: &Layout,
        (rows, depth): (usize, usize),
    ) -> Result<Layer, String> {
        Ok(Layer {
            weights: self.weights(call, name, layout, (rows, depth))?,
            depth,
            rows: self.beside(call, bias, rows)?,
        })
    }

    /// Returns the layout in which the kernel reads its weights, which are operand `a`.
    fn layout_of_weights(&self, call: &Call<'_>) -> Result<Layout, String> {
        let Some((parameter, Arg::Constant(i))) = call.operand("a") else {
            return Err("operand a is no constant".into());
        };
        let c = &self.plan.constants[i];
        let layout = call.kernel.layout(parameter);
        if call.host {
            // A kernel of the host engine that reads panels accepts panels of any height, so it
            // uses the constant's height.
            return match (layout.panel_rows(), c.layout.panel_rows()) {
                (Some(_), Some(rows)) => Ok(Layout::panels(rows)),
                (None, _) => Ok(layout),
                (Some(_), None) => Err(format!(
                    "{} stands as {}, the kernel takes panels",
                    c.name, c.layout
                )),
            };
        }
        if call.kernel.of_few() {
            return Ok(Layout::panels(call.known("PANEL")?));
        }
        Ok(layout)
    }

    /// Executes a step. Returns false if the step computes only a part of its node's value, such as
    /// partial sums.
    ///
    /// # Errors
    /// The kernel cannot compute with its arguments.
    pub(super) fn run(&mut self, step: &'p crate::ir::plan::Step) -> Result<bool, String> {
        let call = Call::new(self.plan, self.library, step, self.records)?;
        self.apart(&call)?;
        match step.operation {
            Operation::Matmul | Operation::Affine => return self.product(&call),
            Operation::Bias => self.bias(&call)?,
            Operation::Reduce => self.reduce(&call)?,
            Operation::Pair => self.pair(&call)?,
            Operation::ReducePair => self.reduce_pair(&call)?,
            Operation::Layers => self.layers(&call)?,
            Operation::Convolution => self.convolution(&call)?,
            Operation::Pool => self.pool(&call)?,
            Operation::Sigmoid | Operation::Relu | Operation::Activation => self.in_place(&call)?,
            Operation::Scale => self.scale(&call)?,
            Operation::Combine => self.combine(&call)?,
            Operation::Resample => self.resample(&call)?,
            Operation::Product => self.product_of_values(&call)?,
            Operation::Softmax => self.softmax(&call)?,
            Operation::Gather => self.gather(&call)?,
            Operation::Repack => self.repack(&call)?,
            Operation::ArgMax => self.argmax(&call)?,
            Operation::Sobel | Operation::Order | Operation::Probe => {
                return Err(format!("{} is of no network", step.operation.name()));
            }
        }
        Ok(true)
    }

    /// Returns an error if a step's result overlaps an operand in memory. Other work-items might
    /// still read that operand.
    fn apart(&self, call: &Call<'_>) -> Result<(), String> {
        let buffer = |name: &str| match call.operand(name) {
            Some((_, Arg::Buffer(i))) => Some(i),
            _ => None,
        };
        let cells = |i: usize| {
            self.spans(i)
                .map(|s| s.first().map_or((0, 0..0), |s| (s.memory, s.start..s.end)))
        };
        // A network of a single layer does not use the buffer between layers.
        let single = call.number("LAYERS")? == Some(1);
        for name in ["r", "hidden"] {
            let others = ["b", "c", "hidden"]
                .into_iter()
                .filter(|&other| other != name);
            let others = others.filter(|other| !single || ![name, other].contains(&"hidden"));
            for (r, other) in others.filter_map(|other| Some((buffer(name)?, buffer(other)?))) {
                let ((memory, written), (place, read)) = (cells(r)?, cells(other)?);
                if memory == place && written.start < read.end && read.start < written.end {
                    let name = |i: usize| &self.plan.buffers[i].name;
                    return Err(format!(
                        "writes {} over {}, which it uses too",
                        name(r),
                        name(other)
                    ));
                }
            }
        }
        Ok(())
    }

    /// Executes `kernels/matmul` and `kernels/affine`, which compute sums of products. An affine
    /// kernel whose sums are not split into parts also applies bias and activation. Only then the
    /// method returns true, because the value of the node is complete.
    fn product(&mut self, call: &Call<'_>) -> Result<bool, String> {
        let affine = call.step.operation == Operation::Affine;
        let Some((_, Arg::Constant(a))) = call.operand("a") else {
            return Err("a is no constant".into());
        };
        let (b, r) = (buffer(call, "b")?, buffer(call, "r")?);
        let (c, layout) = (&self.plan.constants[a], self.layout_of_weights(call)?);
        let rows_of_r = self.plan.buffers[r].padded_rows;
        let (l, h) = match call.host {
            true => (call.step.problem.l, c.padded.0),
            false => (
                call.needed(LeadingArgument::Depth)?,
                call.size(LeadingArgument::Height).unwrap_or(rows_of_r),
            ),
        };
        let image = call.kernel.restrictions.a.as_ref().is_some_and(|o| o.image);
        let parts = call.parts(h);
        // In an OpenCL image the places of weights depend on the number of padded rows.
        let high = if image { c.padded.0.max(h) } else { h };
        let mut weights = self.weights(call, "a", &layout, (high, l))?;
        weights.truncate(h * l);
        let layer = Layer {
            weights,
            depth: l,
            rows: match affine && parts == 1 {
                true => self.beside(call, "bias", h)?,
                false => RowNumbers::default(),
            },
        };
        // The host engine does not read padding rows of the operand.
        let terms = if call.host {
            self.plan.buffers[b].rows
        } else {
            l
        };
        let mut columns = self.read(call, "b", Some(terms))?;
        columns.iter_mut().for_each(|x| x.resize(l, 0.0));
        let rows = call.rows(h)?;
        // Work-groups share whole blocks of the common dimension evenly.
        let block = if parts > 1 { call.known("BK")? } else { 1 };
        let depth = l.div_ceil(block).div_ceil(parts) * block;
        let old = (call.beta != 0.0)
            .then(|| self.read(call, "r", Some(h)))
            .transpose()?;
        for part in 0..parts {
            let sums = layer.sums(&columns, (part * depth).min(l)..((part + 1) * depth).min(l));
            let reached: Vec<bool> = (0..sums.len()).map(|n| self.reaches(call, n)).collect();
            let all_rows = if call.host { rows_of_r } else { h * parts };
            self.write(call, Some(all_rows), |n, result| {
                if !reached[n] {
                    return Ok(());
                }
                for (row, &sum) in sums[n][..rows].iter().enumerate() {
                    let number = match (affine, parts) {
                        (true, 1) => call.finished(layer.rows.finished(row, sum)),
                        (true, _) => sum,
                        (false, _) => {
                            let before = old.as_ref().map_or(0.0, |old| call.beta * old[n][row]);
                            call.alpha * sum + before
                        }
                    };
                    set(result, part * h + row, number)?;
                }
                Ok(())
            })?;
        }
        Ok(affine && parts == 1)
    }

    /// Executes `kernels/bias`, which adds a number to each row in place.
    fn bias(&mut self, call: &Call<'_>) -> Result<(), String> {
        let columns = self.read(call, "r", call.size(LeadingArgument::Height))?;
        let rows = columns.first().map_or(0, Vec::len);
        let computed = call.rows(rows)?;
        let RowNumbers { bias, .. } = self.beside(call, "bias", computed)?;
        let reached: Vec<bool> = (0..columns.len()).map(|n| self.reaches(call, n)).collect();
        self.write(call, Some(rows), |n, result| {
            if reached[n] {
                bias.iter()
                    .enumerate()
                    .for_each(|(row, bias)| result[row] = columns[n][row] + bias);
            }
            Ok(())
        })
    }

    /// Adds up partial results. Each column has `parts` of them, one after the other, with `rows`
    /// rows each.
    fn added(columns: &[Vec<f64>], parts: usize, rows: usize) -> Vec<Vec<f64>> {
        let sum = |x: &Vec<f64>, row: usize| (0..parts).map(|part| x[part * rows + row]).sum();
        columns
            .iter()
            .map(|x| (0..rows).map(|row| sum(x, row)).collect())
            .collect()
    }

    /// Executes `kernels/reduce`, which adds partial sums and then applies bias and activation.
    fn reduce(&mut self, call: &Call<'_>) -> Result<(), String> {
        let (parts, h) = (
            call.needed(LeadingArgument::Depth)?,
            call.needed(LeadingArgument::Height)?,
        );
        let sums = Self::added(&self.read(call, "b", Some(h * parts))?, parts, h);
        let (numbers, rows) = (self.beside(call, "bias", h)?, call.rows(h)?);
        let reached: Vec<bool> = (0..sums.len()).map(|n| self.reaches(call, n)).collect();
        self.write(call, Some(h), |n, result| {
            for row in (0..rows).filter(|_| reached[n]) {
                result[row] = call.finished(numbers.finished(row, sums[n][row]));
            }
            Ok(())
        })
    }

    /// Computes an affine layer with few outputs and writes its result. It has weights `a2`, biases
    /// `bias2`, the operand `x` and no activation.
    fn narrow(
        &mut self,
        call: &Call<'_>,
        x: &[Vec<f64>],
        h: usize,
        depth: usize,
    ) -> Result<(), String> {
        let layer = self.layer(call, ("a2", "bias2"), &Layout::R, (h, depth))?;
        let sums = layer.sums(x, 0..depth);
        let rows = call.rows(h)?;
        let reached: Vec<bool> = (0..sums.len()).map(|n| self.reaches(call, n)).collect();
        self.write(call, Some(h), |n, result| {
            for row in (0..rows).filter(|_| reached[n]) {
                result[row] = layer.rows.finished(row, sums[n][row]);
            }
            Ok(())
        })
    }

    /// Executes `kernels/pair`: two affine layers with an activation between them.
    fn pair(&mut self, call: &Call<'_>) -> Result<(), String> {
        let (l, m, h) = (
            call.needed(LeadingArgument::Depth)?,
            call.needed(LeadingArgument::Middle)?,
            call.needed(LeadingArgument::Height)?,
        );
        let layout = self.layout_of_weights(call)?;
        let first = self.layer(call, ("a", "bias"), &layout, (m, l))?;
        let columns = self.read(call, "b", Some(l))?;
        let middle = first.results(&columns, |x| call.activation().apply(x));
        self.narrow(call, &middle, h, m)
    }

    /// Executes `kernels/reducepair`. It adds partial sums, applies bias and activation, and then
    /// computes an affine layer with few outputs.
    fn reduce_pair(&mut self, call: &Call<'_>) -> Result<(), String> {
        let (l, h, parts) = (
            call.needed(LeadingArgument::Depth)?,
            call.needed(LeadingArgument::Height)?,
            call.needed(LeadingArgument::Parts)?,
        );
        let mut middle = Self::added(&self.read(call, "b", Some(l * parts))?, parts, l);
        let (numbers, activation) = (self.beside(call, "bias", l)?, call.activation());
        for values in &mut middle {
            let each = values.iter_mut().enumerate();
            each.for_each(|(k, x)| *x = activation.apply(numbers.finished(k, *x)));
        }
        self.narrow(call, &middle, h, l)
    }

    /// Returns the number that begins at byte `byte` of the buffer with all constants.
    fn number_of_all(&self, precision: Precision, byte: usize) -> Result<f32, String> {
        let bytes = self.all.get(byte..byte + precision.bytes());
        let bytes = bytes
            .ok_or_else(|| format!("reads byte {byte} of {} of all constants", self.all.len()))?;
        Ok(match *bytes {
            [a, b, c, d] => f32::from_le_bytes([a, b, c, d]),
            [a, b] => half::to_f32(u16::from_le_bytes([a, b])),
            [a] => (a as i8).into(),
            _ => f32::NAN,
        })
    }

    /// Returns the constants of layer `n`, for a kernel that computes the whole network. The
    /// kernel's options count rows and offsets in units of four. The weights are in panels of
    /// `panel` rows.
    fn layer_of_all(&self, call: &Call<'_>, n: usize, panel: usize) -> Result<Layer, String> {
        let known = |letter: &str| call.known(&format!("{letter}{n}"));
        let (columns, terms, rows) = (known("L")?, known("K")?, 4 * known("Q")?);
        let (a, b, stored) = (4 * known("A")?, 4 * known("B")?, call.stored);
        if terms > columns || terms == 0 {
            return Err(format!("{terms} terms of {columns} columns"));
        }
        let weight = |i: usize| {
            let (row, k) = (i / terms, i % terms);
            let at = a + row / panel * (panel * columns) + k * panel + row % panel;
            self.number_of_all(stored, at * stored.bytes())
        };
        let float = |i: usize| {
            self.number_of_all(Precision::F32, 4 * (b + i))
                .map(f64::from)
        };
        let beside = |row: usize| row / BESIDE * (2 * BESIDE) + row % BESIDE;
        let (bias, scale) = match stored {
            Precision::I8 => (
                (0..rows)
                    .map(|row| float(beside(row)))
                    .collect::<Result<_, _>>()?,
                (0..rows)
                    .map(|row| float(beside(row) + BESIDE))
                    .collect::<Result<_, _>>()?,
            ),
            _ => (
                (0..rows).map(float).collect::<Result<_, _>>()?,
                vec![1.0; rows],
            ),
        };
        let weights = (0..rows * terms).map(weight).collect::<Result<_, _>>()?;
        Ok(Layer {
            weights,
            depth: terms,
            rows: RowNumbers {
                bias,
                scale,
                factor: Vec::new(),
                summand: Vec::new(),
            },
        })
    }

    /// Returns the activation of layer `n`, for a kernel that computes the whole network.
    fn activation_of_all(call: &Call<'_>, n: usize) -> Result<Activation, String> {
        let (code, name) = (call.known(&format!("ACT{n}"))?, format!("PARAMS{n}"));
        let text = call
            .option(&name)
            .ok_or_else(|| format!("the kernel is compiled without -D{name}"))?;
        let parameter = |text: &str| match text.trim_end_matches('f') {
            "INFINITY" => Some(f32::INFINITY),
            "-INFINITY" => Some(f32::NEG_INFINITY),
            digits => digits.parse().ok(),
        };
        let found: Vec<Option<f32>> = text.split(',').map(parameter).collect();
        let &[Some(a), Some(b)] = &found[..] else {
            return Err(format!("-D{name}={text}"));
        };
        let known = Activation::of_code(code as u32)
            .filter(|known| *known == Activation::None || Activation::FUSED.contains(known));
        known
            .map(|known| known.with([a, b]))
            .ok_or_else(|| format!("-DACT{n}={code} is no activation of the kernel"))
    }

    /// Executes `kernels/layers`, which computes all layers and the arg-max in one launch.
    fn layers(&mut self, call: &Call<'_>) -> Result<(), String> {
        let (layers, classes) = (call.known("LAYERS")?, call.known("CLASSES")?);
        let (few, lanes) = (call.kernel.of_few(), 4);
        // For full batches the option ROWS counts vectors of four records. Records are in groups of
        // 16, so each row of a group has four vectors. For few records ROWS counts rows.
        let unit = if few { 1 } else { lanes };
        let (hidden_rows, rows) = (call.known("HIDDEN")?, call.known("ROWS")? / unit);
        if few {
            self.check_layers_of_few(call, layers)?;
        }
        let rows_of_input = call.known("L0")?;
        let mut columns = self.read(call, "b", Some(rows_of_input))?;
        let hidden = match few || layers == 1 {
            false => Some(self.matrix(call, "hidden", Some(hidden_rows / unit))?),
            true => None,
        };
        let reached: Vec<bool> = (0..columns.len()).map(|n| self.reaches(call, n)).collect();
        for n in 0..layers {
            let panel = match few {
                true => 4 * call.known(&format!("P{n}"))?,
                false => 16,
            };
            let layer = self
                .layer_of_all(call, n, panel.max(1))
                .map_err(|e| format!("layer {n}: {e}"))?;
            let activation = Self::activation_of_all(call, n)?;
            let terms = layer.depth;
            if columns.iter().any(|x| x.len() < terms) {
                return Err(format!(
                    "layer {n}: {terms} terms of {} values",
                    columns[0].len()
                ));
            }
            columns.iter_mut().for_each(|x| x.truncate(terms));
            let values = layer.results(&columns, |x| activation.apply(x));
            let count = layer.rows.bias.len();
            let start = match few {
                true => 0,
                false => call.known(&format!("S{n}"))? / unit,
            };
            if n + 1 < layers {
                if few && count > hidden_rows.next_multiple_of(lanes) {
                    return Err(format!("layer {n}: {count} rows, room for {hidden_rows}"));
                }
                columns = values;
                if let Some(hidden) = &hidden {
                    self.between(hidden, start, &reached, &mut columns)?;
                }
                continue;
            }
            // The kernel for few records does not write padding rows of the scores.
            let written = if few { count.min(rows) } else { count };
            self.write(call, Some(rows), |n, result| {
                for (row, &x) in values[n][..written].iter().enumerate() {
                    if reached[n] {
                        set(result, start + row, x)?;
                    }
                }
                Ok(())
            })?;
            if classes > 0 {
                if classes > count {
                    return Err(format!("{classes} classes of {count} rows"));
                }
                let of = |n: usize| class(&values[n][..classes]);
                self.write_classes(call, &reached, of)?;
            }
        }
        Ok(())
    }

    /// Checks that the options of a whole-network kernel for few records agree with the plan.
    fn check_layers_of_few(&self, call: &Call<'_>, layers: usize) -> Result<(), String> {
        if call.known("LAST_LAYER")? + 1 != layers {
            return Err("-DLAST_LAYER is not the last layer".into());
        }
        if call.known("WIDTH")? != self.plan.padded_batch {
            return Err(format!("-DWIDTH is not {}", self.plan.padded_batch));
        }
        Ok(())
    }

    /// Writes the values between two layers into the matrix `hidden`, from row `start` on. Then
    /// reads `columns` back from there, as the next layer does. It also reads the rows behind these
    /// values.
    fn between(
        &mut self,
        hidden: &Matrix,
        start: usize,
        reached: &[bool],
        columns: &mut [Vec<f64>],
    ) -> Result<(), String> {
        for (n, values) in columns.iter_mut().enumerate().filter(|(n, _)| reached[*n]) {
            let mut numbers = vec![UNTOUCHED; hidden.rows];
            let room = numbers.get_mut(start..start + values.len());
            room.ok_or("values between layers have no room")?
                .copy_from_slice(values);
            hidden.write(&mut self.memories, n, &numbers)?;
            *values = hidden.read(&self.memories, n)?.split_off(start);
        }
        Ok(())
    }

    /// Writes the class of each record that the kernel launch computes. `class(n)` returns the
    /// class of the n-th computed record.
    fn write_classes(
        &mut self,
        call: &Call<'_>,
        reached: &[bool],
        class: impl Fn(usize) -> f64,
    ) -> Result<(), String> {
        let Some((_, Arg::Buffer(i))) = call.operand("classes") else {
            return Err("operand classes is no buffer".into());
        };
        let matrix = self.declared(i)?;
        for n in (0..reached.len()).filter(|&n| reached[n]) {
            matrix.write(&mut self.memories, n, &[class(n)])?;
        }
        Ok(())
    }

    fn argmax(&mut self, call: &Call<'_>) -> Result<(), String> {
        let b = buffer(call, "b")?;
        let columns = self.read(call, "b", call.size(LeadingArgument::Depth))?;
        let rows = if call.host {
            self.plan.buffers[b].rows
        } else {
            call.needed(LeadingArgument::Rows)?
        };
        if columns.iter().any(|x| x.len() < rows || rows == 0) {
            return Err(format!(
                "the largest of {rows} rows of {}",
                columns[0].len()
            ));
        }
        let all = if call.host {
            usize::MAX
        } else {
            call.all_items()
        };
        let reached: Vec<bool> = self.columns.iter().map(|&column| column < all).collect();
        self.write_classes(call, &reached, |n| class(&columns[n][..rows]))
    }

    /// Writes the pixels of an image as the kernel's result. `value(n, pixel, o)` returns output
    /// `o` of a pixel of the n-th computed record. Padding rows of a pixel get [`PADDING`].
    fn write_image(
        &mut self,
        call: &Call<'_>,
        image: &DecodedGeometry,
        mut value: impl FnMut(usize, usize, usize) -> f64,
    ) -> Result<(), String> {
        let wide = if call.step.operation == Operation::Softmax {
            image.output[1]
        } else {
            call.rows(image.output[1])?
        };
        let columns = self.columns.clone();
        self.write(call, call.size(LeadingArgument::Height), |n, result| {
            let rows = result.len();
            let pixels: Vec<usize> = (0..call.reached_pixels(columns[n], image.pixels())).collect();
            // The callers store the sums of neighbouring pixels side by side. So each output is
            // written for up to 16 pixels before the next output.
            for pixels in pixels.chunks(16) {
                let first: Vec<usize> = pixels.iter().map(|&pixel| image.written(pixel)).collect();
                if let Some(end) = first
                    .iter()
                    .map(|first| first + wide)
                    .find(|&end| end > rows)
                {
                    return Err(format!("writes row {end} of {rows}"));
                }
                for o in 0..wide {
                    for (&pixel, &first) in pixels.iter().zip(&first) {
                        result[first + o] = if o < image.outputs {
                            value(n, pixel, o)
                        } else {
                            PADDING
                        };
                    }
                }
            }
            Ok(())
        })
    }

    fn convolution(&mut self, call: &Call<'_>) -> Result<(), String> {
        let image = call.image()?;
        let covers = |what: Covered| call.kernel.covers.chain.iter().any(|c| c.node == what);
        let columns = self.read(call, "b", call.size(LeadingArgument::Depth))?;
        let depthwise = covers(Covered::Depthwise);
        let (outputs, pixels) = (image.outputs, image.pixels());
        let channels = if depthwise {
            outputs
        } else {
            image.group_channels
        };
        let groups = if covers(Covered::Convolution) {
            outputs.div_ceil(image.group_outputs)
        } else {
            1
        };
        let end = image.end_read(channels * groups);
        if columns.iter().any(|x| x.len() < end) {
            return Err(format!("reads row {end} of {}", columns[0].len()));
        }
        let (layer, mut all) = if depthwise {
            self.depthwise_sums(call, &image, &columns)?
        } else {
            self.grouped_sums(call, &image, groups, &columns)?
        };
        let added = match call.operand("c") {
            Some(_) => Some(self.read(call, "c", call.size(LeadingArgument::Height))?),
            None => None,
        };
        if added.is_some() != call.option("ADD").is_some() {
            return Err("the kernel is compiled for other operands".into());
        }
        let activation = call.activation();
        let of_output = if depthwise { 1 } else { pixels };
        let of_pixel = if depthwise { outputs } else { 1 };
        for (n, sums) in all.iter_mut().enumerate() {
            for (line, sums) in sums.chunks_exact_mut(of_output.max(of_pixel)).enumerate() {
                for (at, sum) in sums.iter_mut().enumerate() {
                    let row = if depthwise { at } else { line };
                    *sum = call.rounded(layer.rows.finished(row, *sum));
                }
            }
            if let Some(added) = &added {
                let end = image.written(pixels - 1) + outputs;
                if added[n].len() < end {
                    return Err(format!("reads row {end} of {}", added[n].len()));
                }
                for (pixel, o) in
                    (0..pixels).flat_map(|pixel| (0..outputs).map(move |o| (pixel, o)))
                {
                    sums[pixel * of_pixel + o * of_output] += added[n][image.written(pixel) + o];
                }
            }
            activation.apply_all(sums);
        }
        self.write_image(call, &image, |n, pixel, o| {
            all[n][pixel * of_pixel + o * of_output]
        })
    }

    /// Returns the constants of a depthwise convolution, and its sums for each record. The sums are
    /// stored pixel by pixel.
    fn depthwise_sums(
        &self,
        call: &Call<'_>,
        image: &DecodedGeometry,
        columns: &[Vec<f64>],
    ) -> Result<(Layer, Vec<Vec<f64>>), String> {
        let (outputs, pixels) = (image.outputs, image.pixels());
        let taps = image.window.y * image.window.x;
        // The kernels read whole vectors of rows of the weights, so the rows are rounded up.
        let weights = call.kernel.restrictions.a.as_ref();
        let align = weights.map_or(1, |a| a.row_align);
        let rows = if call.host {
            image.output[1]
        } else {
            outputs.next_multiple_of(align)
        };
        let layout = self.layout_of_weights(call)?;
        let layer = self.layer(call, ("a", "bias"), &layout, (rows, taps))?;
        let weight = |o: usize, tap: usize| f64::from(layer.weights[o * taps + tap]);
        let weights: Vec<Vec<f64>> = (0..taps)
            .map(|tap| (0..outputs).map(|o| weight(o, tap)).collect())
            .collect();
        let sums = |x: &Vec<f64>| {
            let mut sums = vec![0.0; outputs * pixels];
            for (pixel, sums) in sums.chunks_exact_mut(outputs).enumerate() {
                for (tap, weights) in image.taps().zip(&weights) {
                    let Some(row) = image.under(pixel, tap) else {
                        continue;
                    };
                    let terms = weights.iter().zip(&x[row..row + outputs]);
                    sums.iter_mut()
                        .zip(terms)
                        .for_each(|(sum, (w, x))| *sum += w * x);
                }
            }
            sums
        };
        let all = columns.iter().map(sums).collect();
        Ok((layer, all))
    }

    /// Returns the constants of a convolution with groups, and its sums for each record. The sums
    /// are stored output by output.
    fn grouped_sums(
        &self,
        call: &Call<'_>,
        image: &DecodedGeometry,
        groups: usize,
        columns: &[Vec<f64>],
    ) -> Result<(Layer, Vec<Vec<f64>>), String> {
        let (outputs, pixels, channels) = (image.outputs, image.pixels(), image.group_channels);
        let depth = image.window.y * image.window.x * channels;
        let layout = self.layout_of_weights(call)?;
        let layer = self.layer(call, ("a", "bias"), &layout, (outputs, depth))?;
        let of_group = outputs.div_ceil(groups);
        let panels: Vec<Panels> = layer
            .weights
            .chunks(of_group * depth)
            .map(|weights| Panels::new(weights, depth))
            .collect();
        let sums = |x: &Vec<f64>| {
            let mut all = vec![0.0; outputs * pixels];
            let of_groups = panels.iter().zip(all.chunks_mut(of_group * pixels));
            for (g, (panels, sums)) in of_groups.enumerate() {
                panels.add(pixels, sums, |some, width, laid| {
                    let mut lines = laid.chunks_exact_mut(width);
                    for tap in image.taps() {
                        let rows: Vec<Option<usize>> =
                            some.clone().map(|pixel| image.under(pixel, tap)).collect();
                        for c in g * channels..(g + 1) * channels {
                            let Some(line) = lines.next() else { return };
                            line.iter_mut()
                                .zip(&rows)
                                .for_each(|(to, row)| *to = row.map_or(0.0, |row| x[row + c]));
                        }
                    }
                });
            }
            all
        };
        let all = columns.iter().map(sums).collect();
        Ok((layer, all))
    }

    fn pool(&mut self, call: &Call<'_>) -> Result<(), String> {
        let image = call.image()?;
        let columns = self.read(call, "b", call.size(LeadingArgument::Depth))?;
        let end = image.end_read(image.outputs);
        if columns.iter().any(|x| x.len() < end) {
            return Err(format!("reads row {end} of {}", columns[0].len()));
        }
        let (kind, activation) = (call.number("POOL")?.unwrap_or(0), call.activation());
        // Counts the window's elements along an axis that are inside the image or its border. `all`
        // is the size of the image with its border.
        let before = |at: usize, stride: usize, dilation: usize, size: usize, all: usize| {
            (0..size)
                .filter(|k| at * stride + k * dilation < all)
                .count()
        };
        let (high, wide) = (
            image.before.y + image.from.y + image.after.y,
            image.before.x + image.from.x + image.after.x,
        );
        self.write_image(call, &image, |n, pixel, c| {
            let inside = image
                .taps()
                .filter_map(|tap| image.under(pixel, tap))
                .map(|row| columns[n][row + c]);
            let found = match kind {
                0 => inside.fold(
                    f64::NEG_INFINITY,
                    |a, b| if b > a || b.is_nan() { b } else { a },
                ),
                1 => {
                    let (sum, count) =
                        inside.fold((0.0, 0.0), |(sum, count), x| (sum + x, count + 1.0));
                    sum / count
                }
                _ => {
                    let (y, x) = (pixel / image.to.x, pixel % image.to.x);
                    let down = before(y, image.stride.y, image.dilation.y, image.window.y, high);
                    let along = before(x, image.stride.x, image.dilation.x, image.window.x, wide);
                    inside.sum::<f64>() / (down * along) as f64
                }
            };
            activation.apply(found)
        })
    }

    /// Executes a kernel that applies an activation in place. Element-wise kernels do so in any
    /// layout.
    fn in_place(&mut self, call: &Call<'_>) -> Result<(), String> {
        let columns = self.read(call, "r", None)?;
        let matrix = self.matrix(call, "r", None)?;
        let activation = call.activation();
        let by_numbers = call.kernel.restrictions.elementwise();
        let items = if call.host {
            usize::MAX
        } else {
            call.all_items()
        };
        for (n, column) in columns.iter().enumerate() {
            let mut numbers = vec![UNTOUCHED; column.len()];
            let rows = if by_numbers {
                column.len()
            } else {
                call.rows(column.len())?
            };
            for (row, &x) in column[..rows].iter().enumerate() {
                if if by_numbers {
                    matrix.place(n, row)? < items
                } else {
                    self.reaches(call, n)
                } {
                    numbers[row] = activation.apply(x);
                }
            }
            matrix.write(&mut self.memories, n, &numbers)?;
        }
        Ok(())
    }

    /// Executes `kernels/scale`. It multiplies each element by a factor and adds a summand, or it
    /// multiplies negative elements by a slope (PReLU).
    fn scale(&mut self, call: &Call<'_>) -> Result<(), String> {
        let &[factors_of, summands_of] = &call.leading.moved[..] else {
            return Err("it takes two maps".into());
        };
        let rows = self.plan.buffers[buffer(call, "r")?].padded_rows;
        let h = call.size(LeadingArgument::Height).unwrap_or(rows);
        let columns = self.read(call, "b", call.size(LeadingArgument::Depth))?;
        // For a PReLU the host engine gets the same constant as `factors` and as `bias`.
        let slopes = match (call.host, call.operand("factors"), call.operand("bias")) {
            (true, Some((_, a)), Some((_, b))) => a == b,
            _ => call.option("PRELU").is_some(),
        };
        let constant = |name: &str| match call.operand(name) {
            Some((_, Arg::Constant(i))) => {
                self.numbers(i, Precision::F32, self.plan.constants[i].len(), |n| n)
            }
            _ => Err(format!("operand {name} is no constant")),
        };
        let (factors, summands) = (constant("factors")?, constant("bias")?);
        let alike = call.option("ALIKE").is_some();
        let rows = if alike { h } else { call.rows(h)? };
        let matrix = self.matrix(call, "r", None)?;
        // Element by element, work-items count the numbers of the matrix.
        let reached: Vec<bool> = (0..columns.len())
            .map(|n| match alike {
                true => matrix
                    .place(n, rows - 1)
                    .is_ok_and(|at| at < call.all_items()),
                false => self.reaches(call, n),
            })
            .collect();
        let number = |array: &[f32], i: usize, name: &str| match array.get(i) {
            Some(&x) => Ok(f64::from(x)),
            None => Err(format!("reads number {i} of {} {name}", array.len())),
        };
        self.write(call, Some(h), |n, result| {
            for item in (0..rows).filter(|_| reached[n]) {
                let (element, row) = match alike {
                    true => (Some(0), item),
                    false => factors_of.to(item),
                };
                let mut x = 0.0;
                if let Some(element) = element {
                    x = *columns[n]
                        .get(row)
                        .ok_or_else(|| format!("reads row {row}"))?;
                    let factor = number(&factors, factors_of.from(element), "factors")?;
                    x = match slopes {
                        true if x < 0.0 => x * factor,
                        true => x,
                        false => {
                            let summand = number(&summands, summands_of.from(element), "summands")?;
                            linear(x, factor, summand)
                        }
                    };
                }
                set(result, row, call.finished(x))?;
            }
            Ok(())
        })
    }

    fn combine(&mut self, call: &Call<'_>) -> Result<(), String> {
        let kind = call.number("COMBINE")?.unwrap_or(0);
        let [a, b] = call.factors();
        let kind = Arithmetic::ALL
            .into_iter()
            .chain([Arithmetic::RoundedSum { a, b }])
            .nth(kind)
            .ok_or_else(|| format!("-DCOMBINE={kind}"))?;
        let (a, b) = (
            self.read(call, "b", call.size(LeadingArgument::Depth))?,
            self.read(call, "c", call.size(LeadingArgument::Second))?,
        );
        let image = call.image()?;
        if call.option("ALIKE").is_some() {
            let matrix = self.matrix(call, "r", None)?;
            for n in 0..a.len() {
                let mut numbers = vec![UNTOUCHED; matrix.rows];
                for (row, number) in numbers.iter_mut().enumerate() {
                    let (Some(&x), Some(&y)) = (a[n].get(row), b[n].get(row)) else {
                        return Err(format!("row {row} is not in both operands"));
                    };
                    if matrix.place(n, row)? < call.all_items() {
                        *number = call.finished(kind.apply(x, y));
                    }
                }
                matrix.write(&mut self.memories, n, &numbers)?;
            }
            return Ok(());
        }
        let last = image.pixels() - 1;
        let end_a = image.written(last) + image.outputs;
        let end_b = image.read(last) + image.outputs;
        if a.iter().any(|x| x.len() < end_a) || b.iter().any(|x| x.len() < end_b) {
            let (len_a, len_b) = (a[0].len(), b[0].len());
            return Err(format!(
                "reads rows {end_a} and {end_b} of {len_a} and {len_b}"
            ));
        }
        self.write_image(call, &image, |n, pixel, c| {
            let (x, y) = (a[n][image.written(pixel) + c], b[n][image.read(pixel) + c]);
            call.finished(kind.apply(x, y))
        })
    }

    fn resample(&mut self, call: &Call<'_>) -> Result<(), String> {
        let image = call.image()?;
        let columns = self.read(call, "b", call.size(LeadingArgument::Depth))?;
        let end = image.end_read(image.outputs);
        if columns.iter().any(|x| x.len() < end) {
            return Err(format!("reads row {end} of {}", columns[0].len()));
        }
        let Some((_, Arg::Constant(i))) = call.operand("taps") else {
            return Err("operand taps is no constant".into());
        };
        let shape = |axes: Axes| Shape {
            c: image.outputs,
            h: axes.y,
            w: axes.x,
        };
        let Axes { y: down, x: along } = image.window;
        let count = 2 * (image.to.y * down + image.to.x * along);
        let array = self.numbers(i, Precision::F32, count, |n| n)?;
        let shapes = (shape(image.from), shape(image.to));
        let taps = Taps::read(&array, shapes, (down, along))?;
        let [first, step, line] = image.input;
        self.write_image(call, &image, |n, pixel, c| {
            let mut sum = 0.0;
            for row in &taps.rows[pixel / image.to.x] {
                for column in &taps.columns[pixel % image.to.x] {
                    let at = first + row.position * line + column.position * step + c;
                    sum += f64::from(row.weight) * f64::from(column.weight) * columns[n][at];
                }
            }
            sum
        })
    }

    fn product_of_values(&mut self, call: &Call<'_>) -> Result<(), String> {
        let words = call.leading.product.ok_or("the kernel gets no product")?;
        let [first, group, row, term, second, rest @ ..] = words;
        let [
            other_group,
            other_term,
            column,
            groups,
            rows,
            columns,
            terms,
            ..,
        ] = rest;
        let (a, b) = (
            self.read(call, "b", call.size(LeadingArgument::Depth))?,
            self.read(call, "c", call.size(LeadingArgument::Second))?,
        );
        let items = match call.size(LeadingArgument::Height) {
            Some(h) => call.rows(h)?,
            None => call.step.problem.h,
        };
        let reached: Vec<bool> = (0..a.len()).map(|n| self.reaches(call, n)).collect();
        let width = groups * columns;
        self.write(call, call.size(LeadingArgument::Height), |n, result| {
            for item in (0..items).filter(|_| reached[n]) {
                let (i, g, j) = (item / width, item % width / columns, item % columns);
                let mut sum = 0.0;
                for k in (0..terms).filter(|_| i < rows) {
                    let x = first + g * group + i * row + k * term;
                    let y = second + g * other_group + k * other_term + j * column;
                    let (Some(x), Some(y)) = (a[n].get(x), b[n].get(y)) else {
                        return Err(format!("reads rows {x} and {y}"));
                    };
                    sum += x * y;
                }
                set(result, item, sum)?;
            }
            Ok(())
        })
    }

    fn softmax(&mut self, call: &Call<'_>) -> Result<(), String> {
        let image = call.image()?;
        let columns = self.read(call, "b", call.size(LeadingArgument::Depth))?;
        let end = image.read(image.pixels() - 1) + image.outputs;
        if columns.iter().any(|x| x.len() < end) {
            return Err(format!("reads row {end} of {}", columns[0].len()));
        }
        let of = match call.step.options.function {
            Function::OfChannels(of) => of,
            _ => return Err("it computes no function of channels".into()),
        };
        let of_record = |x: &Vec<f64>| -> Vec<Vec<f64>> {
            let pixels = (0..image.pixels()).map(|p| &x[image.read(p)..][..image.outputs]);
            pixels.map(|channels| of_pixel(channels, of)).collect()
        };
        let all: Vec<Vec<Vec<f64>>> = columns.iter().map(of_record).collect();
        self.write_image(call, &image, |n, pixel, c| all[n][pixel][c])
    }

    fn gather(&mut self, call: &Call<'_>) -> Result<(), String> {
        let &[moved] = &call.leading.moved[..] else {
            return Err("it takes one map".into());
        };
        let columns = self.read(call, "b", call.size(LeadingArgument::Depth))?;
        let items = match (call.host, call.step.args.iter().find_map(moved_items)) {
            (true, Some(items)) => items,
            (true, None) => return Err("it takes one map".into()),
            (false, _) => call.items_down(),
        };
        let reached: Vec<bool> = (0..columns.len()).map(|n| self.reaches(call, n)).collect();
        self.write(call, call.size(LeadingArgument::Height), |n, result| {
            for item in (0..items).filter(|_| reached[n]) {
                let (element, row) = moved.to(item);
                let x = match element.map(|element| moved.from(element)) {
                    Some(from) => *columns[n]
                        .get(from)
                        .ok_or_else(|| format!("reads row {from}"))?,
                    None => call.leading.value,
                };
                set(result, row, x)?;
            }
            Ok(())
        })
    }

    fn repack(&mut self, call: &Call<'_>) -> Result<(), String> {
        let (count, h) = (
            call.needed(LeadingArgument::Rows)?,
            call.needed(LeadingArgument::Height)?,
        );
        let columns = self.read(call, "b", call.size(LeadingArgument::Depth))?;
        let rows = call.rows(h)?;
        let reached: Vec<bool> = (0..columns.len()).map(|n| self.reaches(call, n)).collect();
        self.write(call, Some(h), |n, result| {
            for row in (0..rows).filter(|_| reached[n]) {
                result[row] = match row < count {
                    true => *columns[n]
                        .get(row)
                        .ok_or_else(|| format!("reads row {row}"))?,
                    false => 0.0,
                };
            }
            Ok(())
        })
    }
}

/// Returns the index of the buffer that is operand `name`.
fn buffer(call: &Call<'_>, name: &str) -> Result<usize, String> {
    match call.operand(name) {
        Some((_, Arg::Buffer(i))) => Ok(i),
        _ => Err(format!("{name} is no buffer")),
    }
}

/// Writes `number` into row `row` of a result. Returns an error if there is no such row.
fn set(result: &mut [f64], row: usize, number: f64) -> Result<(), String> {
    let rows = result.len();
    let place = result
        .get_mut(row)
        .ok_or_else(|| format!("writes row {row} of {rows}"))?;
    *place = number;
    Ok(())
}

/// If `arg` describes copied rows, returns the number of rows that the step writes.
fn moved_items(arg: &Arg) -> Option<usize> {
    if let Arg::Moved(moved) = arg {
        Some(moved.items())
    } else {
        None
    }
}

/// Returns the class that kernels compute from the scores of a record.
fn class(scores: &[f64]) -> f64 {
    if scores.iter().all(|x| x.is_finite()) {
        argmax(scores).into()
    } else {
        REFUSED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kernels round the product of a sum and its factor to f32. Such a product may lie in the
    /// middle of two whole numbers where the exact one does not.
    #[test]
    fn products_with_a_factor_are_those_of_floats() {
        let mut rows = RowNumbers {
            bias: vec![5.0],
            scale: vec![1.0],
            factor: vec![f64::from(0.1f32)],
            summand: vec![0.0],
        };
        assert!(85.0 * rows.factor[0] > 8.5);
        assert_eq!(rows.finished(0, 80.0), 8.5);
        (rows.factor, rows.summand) = (Vec::new(), Vec::new());
        assert_eq!(rows.finished(0, 1e-9), 5.000000001);
    }
}
