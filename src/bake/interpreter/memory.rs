//! The memory of a device as numbered cells, and the cells of each matrix column.

use crate::ir::layout::Layout;

/// The bits of an unwritten cell. A cell stores the bits of its number xor these. Untouched zero
/// pages of the system therefore read as unwritten cells.
const UNWRITTEN: u64 = f64::NAN.to_bits();

/// Marks a row of a result that the step does not write. No arithmetic gives this NaN.
pub(super) const UNTOUCHED: f64 = f64::from_bits(UNWRITTEN | 0x5eed);

/// Numbers in memory, NaN at first.
///
/// Most records of a batch are not computed, so most cells are never touched. Cells at a distance
/// of `columns` are stored side by side, because they are often the rows of one record. Whole pages
/// then stay untouched and take no memory.
pub(super) struct Memory {
    numbers: Vec<u64>,
    columns: usize,
}

impl Memory {
    /// Returns memory for matrices with `columns` columns.
    pub(super) fn new(cells: usize, columns: usize) -> Memory {
        let columns = columns.max(1);
        Memory {
            numbers: vec![0; cells.next_multiple_of(columns)],
            columns,
        }
    }

    /// Returns the index in `numbers` of a cell's number.
    fn place(&self, cell: usize) -> usize {
        cell % self.columns * (self.numbers.len() / self.columns) + cell / self.columns
    }

    fn get(&self, place: usize) -> f64 {
        f64::from_bits(self.numbers[place] ^ UNWRITTEN)
    }

    fn set(&mut self, place: usize, number: f64) {
        self.numbers[place] = number.to_bits() ^ UNWRITTEN;
    }
}

/// The cells of a buffer for one record.
#[derive(Clone, Copy)]
pub(super) struct Span {
    /// The index of the memory with these cells, among all memories of the device.
    pub(super) memory: usize,
    /// The first cell of the buffer.
    pub(super) start: usize,
    /// The cell behind the last one.
    pub(super) end: usize,
    /// The record's column.
    pub(super) column: usize,
    /// The number of columns of the matrix.
    pub(super) columns: usize,
}

/// Distances of a column's rows from its first row, in cells.
enum Rows {
    Step(usize),
    Each(Vec<u32>),
}

/// A method to find the rows of a column in memory.
enum Way<'m> {
    /// Index of the first row's number in the memory, and distance from row to row.
    Even(usize, usize),
    /// First cell of the column, and distance of each row from it.
    Each(usize, &'m [u32]),
    /// [`Matrix::cell`] finds and checks each row.
    Checked,
}

/// The column of a matrix that belongs to one record.
struct Column {
    /// Cell of the first row.
    first: usize,
    span: Span,
}

/// A matrix as a kernel addresses it.
pub(super) struct Matrix {
    /// Name of its buffer, for messages.
    name: String,
    pub(super) rows: usize,
    at: Rows,
    /// One column for each record that is computed.
    columns: Vec<Column>,
}

impl Matrix {
    /// Returns a matrix in `layout`. `step` overrides the distance between rows.
    ///
    /// # Errors
    /// The chunks of the layout do not divide a size.
    pub(super) fn new(
        name: &str,
        layout: &Layout,
        (rows, cols): (usize, usize),
        spans: Vec<Span>,
        step: Option<usize>,
    ) -> Result<Matrix, String> {
        layout
            .fits(rows, cols)
            .map_err(|e| format!("{name}: {e}"))?;
        let at = match step.or(layout.row_step(rows, cols).map(|step| step as usize)) {
            Some(step) => Rows::Step(step),
            None => Rows::Each(
                (0..rows)
                    .map(|row| layout.index(rows, cols, row, 0) as u32)
                    .collect(),
            ),
        };
        let column = |span: Span| {
            let first = span.start + layout.index(rows, cols, 0, span.column);
            Column { first, span }
        };
        Ok(Matrix {
            name: name.into(),
            rows,
            at,
            columns: spans.into_iter().map(column).collect(),
        })
    }

    /// Returns the cell of a row, or an error if it is outside the buffer.
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
        Err(format!(
            "row {row} of {} is number {number} of a buffer of {has}",
            self.name
        ))
    }

    /// Returns the fastest way to the rows of a column. Rows outside the buffer need checks.
    fn way(&self, memory: &Memory, column: usize) -> Way<'_> {
        let &Column { first, span } = &self.columns[column];
        let last = match &self.at {
            Rows::Step(step) => self.rows.saturating_sub(1) * step,
            Rows::Each(at) => at.iter().max().map_or(0, |&last| last as usize),
        };
        match &self.at {
            _ if first + last >= span.end => Way::Checked,
            Rows::Step(step) if step % memory.columns == 0 => {
                Way::Even(memory.place(first), step / memory.columns)
            }
            Rows::Step(_) => Way::Checked,
            Rows::Each(at) => Way::Each(first, at),
        }
    }

    /// Returns the numbers of a record's column.
    ///
    /// # Errors
    /// A row is outside the buffer.
    pub(super) fn read(&self, memories: &[Memory], column: usize) -> Result<Vec<f64>, String> {
        let memory = &memories[self.columns[column].span.memory];
        let rows = 0..self.rows;
        Ok(match self.way(memory, column) {
            Way::Even(first, step) => rows.map(|row| memory.get(first + row * step)).collect(),
            Way::Each(first, at) => at
                .iter()
                .map(|&row| memory.get(memory.place(first + row as usize)))
                .collect(),
            Way::Checked => {
                return rows
                    .map(|row| Ok(memory.get(memory.place(self.cell(column, row)?))))
                    .collect();
            }
        })
    }

    /// Writes a record's column, except rows that are [`UNTOUCHED`].
    ///
    /// # Errors
    /// A row is outside the buffer.
    pub(super) fn write(
        &self,
        memories: &mut [Memory],
        column: usize,
        numbers: &[f64],
    ) -> Result<(), String> {
        let memory = &mut memories[self.columns[column].span.memory];
        let way = if numbers.len() <= self.rows {
            self.way(memory, column)
        } else {
            Way::Checked
        };
        let written = |(_, number): &(usize, &f64)| number.to_bits() != UNTOUCHED.to_bits();
        let numbers = numbers.iter().enumerate().filter(written);
        match way {
            Way::Even(first, step) => {
                numbers.for_each(|(row, &x)| memory.set(first + row * step, x))
            }
            Way::Each(first, at) => {
                numbers.for_each(|(row, &x)| memory.set(memory.place(first + at[row] as usize), x));
            }
            Way::Checked => {
                for (row, &x) in numbers {
                    memory.set(memory.place(self.cell(column, row)?), x);
                }
            }
        }
        Ok(())
    }

    /// Returns the index of a row's number in its buffer.
    ///
    /// # Errors
    /// The row is outside the buffer.
    pub(super) fn place(&self, column: usize, row: usize) -> Result<usize, String> {
        Ok(self.cell(column, row)? - self.columns[column].span.start)
    }
}
