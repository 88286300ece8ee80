//! Time series: each record consists of the latest rows of an input. A ring keeps these rows. So
//! each number is decoded only once, even if several records contain its row.

use super::binary;
use super::reader::{Coding, Position};
use crate::engine::RecordMut;
use crate::error::{Error, ErrorKind};
use crate::simd::deferred::{Decode, Refusal};

/// The rows that form a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SeriesRows {
    /// The number of rows of a record.
    pub(crate) window: usize,
    /// The number of rows from the start of a record to the start of the next.
    pub(crate) hop: usize,
}

struct KeptRow {
    position: Position,
    /// The reason why the row is bad, if it is. All records that contain the row are bad for this
    /// reason.
    bad: Option<BadRow>,
}

/// The place and the message of a bad row's error.
struct BadRow {
    place: String,
    message: String,
}

/// The latest rows of an input. The structure allocates when it is made and for bad rows, but not
/// for good rows.
pub(super) struct TimeSeries {
    rows: SeriesRows,
    /// The number of numbers of a row.
    width: usize,
    coding: Coding,
    numbers: Ring,
    kept: Box<[KeptRow]>,
    /// The index of the oldest row in the ring, which the next row replaces.
    next: usize,
    /// The number of rows that must still come until the next record is complete.
    missing: usize,
    /// The number of rows kept since the last record was complete.
    fresh: usize,
}

/// The numbers of the rows in the ring.
enum Ring {
    /// The numbers of an input that is not scaled.
    Plain(Box<[f32]>),
    /// The numbers before scaling. They are scaled when a record is written, because the scale of
    /// a number depends on the place of its row in the record.
    Raw(Box<[f64]>),
}

impl TimeSeries {
    pub(super) fn new(rows: SeriesRows, width: usize, coding: Coding) -> TimeSeries {
        let len = rows.window * width;
        let numbers = match coding.plain() {
            true => Ring::Plain(vec![0.0; len].into()),
            false => Ring::Raw(vec![0.0; len].into()),
        };
        let kept = (0..rows.window)
            .map(|_| KeptRow {
                position: Position::Row(0),
                bad: None,
            })
            .collect();
        TimeSeries {
            rows,
            width,
            coding,
            numbers,
            kept,
            next: 0,
            missing: rows.window,
            fresh: 0,
        }
    }

    /// Begins a new input, whose rows are decoded by `coding`. No record contains rows of two
    /// inputs.
    pub(super) fn begin(&mut self, coding: Coding) {
        self.coding = coding;
        (self.next, self.missing, self.fresh) = (0, self.rows.window, 0);
    }

    /// Returns true if no record contains the next row, because the hop is longer than a record.
    /// The row then counts as skipped.
    pub(super) fn skip(&mut self) -> bool {
        let skipped = self.missing > self.rows.window;
        self.missing -= usize::from(skipped);
        skipped
    }

    /// Decodes the next row into the ring. `spare` is scratch memory for the numbers of a row.
    pub(super) fn decode(&mut self, bytes: &[u8], spare: &mut [f32]) -> Result<(), Refusal> {
        let at = self.next * self.width..(self.next + 1) * self.width;
        match &mut self.numbers {
            Ring::Plain(numbers) => match self.coding.decode(bytes, &mut numbers[at]) {
                true => Ok(()),
                false => Err(self.coding.explain(bytes, self.width)),
            },
            Ring::Raw(numbers) => self.coding.decode_raw(bytes, &mut numbers[at], spare),
        }
    }

    /// Keeps the row that was decoded last, or a bad row. Returns true if the row completes a
    /// record.
    pub(super) fn keep(&mut self, position: Position, bad: Option<Error>) -> bool {
        let bad = bad.map(|why| match why.into_kind() {
            ErrorKind::Input { place, message } => BadRow { place, message },
            // Does not happen, because errors of rows are input errors.
            other => BadRow {
                place: String::new(),
                message: Error::from(other).to_string(),
            },
        });
        self.kept[self.next] = KeptRow { position, bad };
        self.next = (self.next + 1) % self.rows.window;
        self.fresh += 1;
        self.missing -= 1;
        let complete = self.missing == 0;
        if complete {
            (self.missing, self.fresh) = (self.rows.hop, 0);
        }
        complete
    }

    /// Writes the record that was completed last into `record`. `place` is the name of the input.
    /// Returns an error if one of the record's rows is bad, or if a scaled number does not fit f32.
    pub(super) fn write(&self, place: &str, record: &mut RecordMut<'_>) -> Result<(), Error> {
        let (newer, older) = self.kept.split_at(self.next);
        if let Some(bad) = older.iter().chain(newer).find_map(|row| row.bad.as_ref()) {
            return Err(Error::input(&bad.place, &bad.message));
        }
        let begin = self.next * self.width;
        match &self.numbers {
            Ring::Plain(numbers) => {
                let (newer, older) = numbers.split_at(begin);
                match record.contiguous() {
                    Some(to) => {
                        to[..older.len()].copy_from_slice(older);
                        to[older.len()..].copy_from_slice(newer);
                    }
                    None => older
                        .iter()
                        .chain(newer)
                        .enumerate()
                        .for_each(|(i, &x)| record.set(i, x)),
                }
            }
            Ring::Raw(numbers) => {
                let (newer, older) = numbers.split_at(begin);
                for (i, &raw) in older.iter().chain(newer).enumerate() {
                    let x = self.coding.scaled(i, raw);
                    if !x.is_finite() {
                        let row = &self.kept[(self.next + i / self.width) % self.rows.window];
                        let refusal = binary::not_finite(raw, i % self.width, &self.coding);
                        return Err(row.position.refused(place, refusal));
                    }
                    record.set(i, x);
                }
            }
        }
        Ok(())
    }

    /// Returns the number of rows kept since the last complete record. At the end of an input, no
    /// record contains these rows. Rows that `hop` skips are not counted.
    pub(super) fn left(&self) -> usize {
        self.fresh
    }
}
