//! The memory of a simulated device, made of numbered cells, and the cells that each column of a
//! matrix occupies.

use crate::ir::layout::Layout;

/// The bits of a cell that was not written yet. A cell is stored as the bits of its number xor
/// these bits, so a stored 0 means unwritten. So unwritten cells are zero pages, which the system
/// does not allocate.
const UNWRITTEN: u64 = f64::NAN.to_bits();

/// Marks a row of a result that the step does not write. No arithmetic results in this NaN.
pub(super) const UNTOUCHED: f64 = f64::from_bits(UNWRITTEN | 0x5eed);

/// A memory of cells, each with a number. Cells that are not written yet read as NaN.
///
/// Only some records of a batch are computed, so most cells are never written. Cells whose distance
/// is `columns` are stored side by side, because they are often the rows of one record. So whole
/// pages are never written, and the system does not allocate them.
pub(super) struct Memory {
    numbers: Vec<u64>,
    columns: usize,
}

impl Memory {
    /// Returns a memory with at least `cells` unwritten cells, for matrices with `columns` columns.
    pub(super) fn new(cells: usize, columns: usize) -> Memory {
        let columns = columns.max(1);
        Memory {
            numbers: vec![0; cells.next_multiple_of(columns)],
            columns,
        }
    }

    /// Returns the index in `numbers` where the number of a cell is stored.
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

/// The cells of a buffer, and the column in it that belongs to one record.
#[derive(Clone, Copy)]
pub(super) struct Span {
    /// The index of the memory that has these cells, among all memories of the simulated device.
    pub(super) memory: usize,
    /// The index of the first cell of the buffer.
    pub(super) start: usize,
    /// The index of the cell behind the last cell of the buffer.
    pub(super) end: usize,
    /// The column of the record in the buffer's matrix.
    pub(super) column: usize,
    /// The number of columns of the buffer's matrix.
    pub(super) columns: usize,
}

/// The distance of each row of a column from its first row, in cells: either a constant step or one
/// number for each row.
enum Rows {
    Step(usize),
    Each(Vec<u32>),
}

/// The method to find a column's numbers in memory.
enum Way<'m> {
    /// The index in [`Memory::numbers`] of the first row's number, and the distance from row to
    /// row.
    Even(usize, usize),
    /// The first cell of the column, and the distance of each row from it in cells.
    Each(usize, &'m [u32]),
    /// [`Matrix::cell`] finds each row, and checks that it is inside the buffer.
    Checked,
}

/// The column of a matrix that holds one record.
struct Column {
    /// The cell of the column's first row.
    first: usize,
    span: Span,
}

/// A matrix in memory, addressed in the layout that a kernel assumes.
pub(super) struct Matrix {
    /// The name of the matrix's buffer, for messages.
    name: String,
    pub(super) rows: usize,
    at: Rows,
    /// One column for each record that the interpreter computes.
    columns: Vec<Column>,
}

impl Matrix {
    /// Returns a matrix in `layout`. If `step` is given, it replaces the distance between rows that
    /// the layout gives.
    ///
    /// # Errors
    /// The chunks of the layout do not divide the rows or columns.
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

    /// Returns the cell of a row, or an error if the cell is outside of the buffer.
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

    /// Returns the fastest method to find the numbers of a column. If a row is outside of the
    /// buffer, the method with checks is needed.
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

    /// Returns all numbers in the column of a record.
    ///
    /// # Errors
    /// A row is outside of the buffer.
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

    /// Writes the column of a record. Rows whose number is [`UNTOUCHED`] are not written.
    ///
    /// # Errors
    /// A row is outside of the buffer.
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

    /// Returns the index in the buffer of a row's number, counted from the first cell of the
    /// buffer.
    ///
    /// # Errors
    /// The row is outside of the buffer.
    pub(super) fn place(&self, column: usize, row: usize) -> Result<usize, String> {
        Ok(self.cell(column, row)? - self.columns[column].span.start)
    }
}
