//! Memory of a device, a number a cell, and where the columns of matrices stand in it.

use crate::ir::layout::Layout;

/// The bits of a cell that nobody has written. A cell holds the bits of its number xor these, so that memory of zeros, which
/// the system gives page by page, is unwritten.
const UNWRITTEN: u64 = f64::NAN.to_bits();

/// A row of a result that the step does not write. No arithmetic gives this NaN.
pub(super) const UNTOUCHED: f64 = f64::from_bits(UNWRITTEN | 0x5eed);

/// Numbers in memory. They begin as NaN.
pub(super) struct Memory(Vec<u64>);

impl Memory {
    pub(super) fn new(cells: usize) -> Memory {
        Memory(vec![0; cells])
    }

    fn get(&self, cell: usize) -> f64 {
        f64::from_bits(self.0[cell] ^ UNWRITTEN)
    }

    fn set(&mut self, cell: usize, number: f64) {
        self.0[cell] = number.to_bits() ^ UNWRITTEN;
    }
}

/// The cells of a buffer for one of the records.
#[derive(Clone, Copy)]
pub(super) struct Span {
    /// Which memory.
    pub(super) memory: usize,
    /// First cell.
    pub(super) start: usize,
    /// The cell behind the last one.
    pub(super) end: usize,
    /// The record's column, and the columns of the matrix.
    pub(super) column: (usize, usize),
}

/// The distances of a column's rows from its first row, in cells.
enum Rows {
    Step(usize),
    Each(Vec<u32>),
}

/// The column of a matrix that belongs to one record.
struct Column {
    /// Cell of its first row.
    first: usize,
    /// The buffer that it is in.
    span: Span,
}

/// A matrix as a kernel addresses it.
pub(super) struct Matrix {
    /// Its buffer, for messages.
    name: String,
    /// Rows.
    pub(super) rows: usize,
    at: Rows,
    /// One for each record.
    columns: Vec<Column>,
}

impl Matrix {
    /// A matrix of these rows and columns in `layout`; `step` replaces the layout's distance between rows.
    ///
    /// # Errors
    /// A size that the chunks of the layout do not divide.
    pub(super) fn new(
        name: &str,
        layout: &Layout,
        (rows, cols): (usize, usize),
        spans: Vec<Span>,
        step: Option<usize>,
    ) -> Result<Matrix, String> {
        layout.fits(rows, cols).map_err(|e| format!("{name}: {e}"))?;
        let at = match step.or(layout.row_step(rows, cols).map(|step| step as usize)) {
            Some(step) => Rows::Step(step),
            None => Rows::Each((0..rows).map(|row| layout.index(rows, cols, row, 0) as u32).collect()),
        };
        let column = |span: Span| {
            let first = span.start + layout.index(rows, cols, 0, span.column.0);
            Column { first, span }
        };
        Ok(Matrix { name: name.into(), rows, at, columns: spans.into_iter().map(column).collect() })
    }

    /// The cell of a row.
    fn cell(&self, column: usize, row: usize) -> Result<usize, String> {
        let Column { first, span } = &self.columns[column];
        let cell = first
            + match &self.at {
                Rows::Step(step) => row * step,
                Rows::Each(at) => at[row] as usize,
            };
        if cell < span.end {
            return Ok(cell);
        }
        let (number, has) = (cell - span.start, span.end - span.start);
        Err(format!("row {row} of {} is number {number} of a buffer of {has}", self.name))
    }

    /// The first cell of a column and the cells from a row to the next, where that is the same and all rows are in the buffer.
    fn evenly(&self, column: usize) -> Option<(usize, usize)> {
        let &Column { first, span } = &self.columns[column];
        let Rows::Step(step) = self.at else { return None };
        (first + self.rows.saturating_sub(1) * step < span.end).then_some((first, step))
    }

    /// The numbers of a record's column.
    ///
    /// # Errors
    /// A row beyond the buffer.
    pub(super) fn read(&self, memories: &[Memory], column: usize) -> Result<Vec<f64>, String> {
        let memory = &memories[self.columns[column].span.memory];
        match self.evenly(column) {
            Some((first, step)) => Ok((0..self.rows).map(|row| memory.get(first + row * step)).collect()),
            None => (0..self.rows).map(|row| Ok(memory.get(self.cell(column, row)?))).collect(),
        }
    }

    /// Writes a record's column, but for rows that are [`UNTOUCHED`].
    ///
    /// # Errors
    /// A row beyond the buffer.
    pub(super) fn write(
        &self,
        memories: &mut [Memory],
        column: usize,
        numbers: &[f64],
    ) -> Result<(), String> {
        let memory = &mut memories[self.columns[column].span.memory];
        let evenly = self.evenly(column).filter(|_| numbers.len() <= self.rows);
        for (row, &number) in numbers.iter().enumerate() {
            if number.to_bits() != UNTOUCHED.to_bits() {
                let cell = match evenly {
                    Some((first, step)) => first + row * step,
                    None => self.cell(column, row)?,
                };
                memory.set(cell, number);
            }
        }
        Ok(())
    }

    /// The place of a row in its buffer: how many numbers stand before it.
    ///
    /// # Errors
    /// A row beyond the buffer.
    pub(super) fn place(&self, column: usize, row: usize) -> Result<usize, String> {
        Ok(self.cell(column, row)? - self.columns[column].span.start)
    }
}
