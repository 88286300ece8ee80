//! Time series: records of the last rows of an input. A ring keeps the rows, so that each number is
//! decoded once, however many records have it.

use super::binary;
use super::reader::{Coding, Position};
use crate::engine::RecordMut;
use crate::engine::deferred::{Decode, Refusal};
use crate::error::{Error, ErrorKind};

/// Which rows are a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SeriesRows {
    /// Rows of a record.
    pub(crate) window: usize,
    /// From a record's first row to that of the next.
    pub(crate) hop: usize,
}

/// A row that is kept.
struct KeptRow {
    position: Position,
    /// Where and why it is none; the records that have it are bad for the same reason.
    bad: Option<(String, String)>,
}

/// The last rows of an input. Allocates when it is made and for bad rows, never for others.
pub(super) struct TimeSeries {
    rows: SeriesRows,
    /// Numbers of a row.
    width: usize,
    coding: Coding,
    /// The numbers of the rows; as they were read where the input is scaled: a column's scale may
    /// be another one in each row of a record.
    numbers: Ring,
    kept: Box<[KeptRow]>,
    /// Where the next row goes, which is where the oldest one is.
    next: usize,
    /// Rows until the next record is complete.
    missing: usize,
    /// Rows kept since the last record.
    fresh: usize,
}

enum Ring {
    Plain(Box<[f32]>),
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

    /// Begins anew, with rows of this coding.
    pub(super) fn begin(&mut self, coding: Coding) {
        self.coding = coding;
        (self.next, self.missing, self.fresh) = (0, self.rows.window, 0);
    }

    /// Counts a row that no record has; `false` where a record has the next one.
    pub(super) fn skip(&mut self) -> bool {
        let skipped = self.missing > self.rows.window;
        self.missing -= usize::from(skipped);
        skipped
    }

    /// Writes the numbers of the next row, whose bytes these are. `spare` has room for them.
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

    /// Keeps the next row; whether a record is complete with it.
    pub(super) fn keep(&mut self, position: Position, bad: Option<Error>) -> bool {
        let bad = bad.map(|why| match why.into_kind() {
            ErrorKind::Input { place, message } => (place, message),
            // Of bad rows there are no others.
            other => (String::new(), Error::from(other).to_string()),
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

    /// Writes the record that is complete; `place` is the input.
    pub(super) fn write(&self, place: &str, record: &mut RecordMut<'_>) -> Result<(), Error> {
        let (newer, older) = self.kept.split_at(self.next);
        if let Some((place, message)) = older.iter().chain(newer).find_map(|row| row.bad.as_ref()) {
            return Err(Error::input(place, message));
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

    /// Rows behind the last record that belong to none.
    pub(super) fn left(&self) -> usize {
        self.fresh
    }
}
