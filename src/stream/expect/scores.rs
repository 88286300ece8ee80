//! Compares the scores of a run with those of a file (`--expect-scores`).

use super::same_length;
use crate::engine::{RecordMut, RecordRows};
use crate::error::Error;
use crate::ir::network::Transform;
use crate::stream::output::OutputSpec;
use crate::stream::reader::{InputShape, Next, RecordReader};
use crate::stream::source::{FileSource, Source};
use std::fmt;
use std::path::Path;

/// The expected scores of a run, and the number of records so far whose scores agree.
#[derive(Debug)]
pub(crate) struct ExpectedScores {
    place: String,
    /// The expected scores of all records, read from the file. They stand one record after the
    /// other, as `-o scores` writes them.
    scores: Vec<f32>,
    /// The number of scores of a record.
    width: usize,
    tolerance: f64,
    seen: usize,
    right: u64,
    worst: Option<Difference>,
}

/// The difference between a computed score and the expected one, and its place.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Difference {
    /// The error of the score: |found − expected| / max(1, |expected|).
    error: f64,
    record: usize,
    output: usize,
    expected: f32,
    found: f32,
}

/// The result of a comparison with expected scores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Agreement {
    right: u64,
    total: u64,
    tolerance: f64,
    worst: Option<Difference>,
}

impl Agreement {
    /// Returns true if the scores of all records are within the tolerance.
    pub(crate) fn complete(&self) -> bool {
        self.right == self.total
    }
}

impl fmt::Display for Agreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "scores: {} of {} within {}",
            self.right, self.total, self.tolerance
        )?;
        if let Some(Difference {
            error,
            record,
            output,
            expected,
            found,
        }) = self.worst
        {
            let (record, output) = (record + 1, output + 1);
            write!(
                f,
                "; largest error {error:.2e}, record {record}, output {output}: expected \
                 {expected}, found {found}"
            )?;
        }
        Ok(())
    }
}

impl ExpectedScores {
    /// The default tolerance, relative to max(1, |expected|). All kernels keep within this bound.
    pub(crate) const TOLERANCE: f64 = 1e-4;

    /// Reads a file with the scores of one record on each line, or an npy or idx file of them.
    pub(crate) fn read(path: &Path, tolerance: f64, spec: &OutputSpec<'_>) -> Result<Self, Error> {
        let place = crate::escape::path(path);
        let source = FileSource::open(path).map_err(|e| Error::io(&place, e))?;
        Self::from(source, place, tolerance, spec.outputs)
    }

    fn from<S: Source>(
        source: S,
        place: String,
        tolerance: f64,
        width: usize,
    ) -> Result<Self, Error> {
        let rows = RecordRows::first(width);
        let shape = InputShape {
            width,
            features: &[],
            transform: &Transform::Identity,
            bytes: None,
            rows: None,
            keys: 0,
        };
        let mut reader = RecordReader::new(source, place.clone(), None, shape);
        let mut scores = Vec::new();
        loop {
            match reader.advance()? {
                Next::Record => {
                    let start = scores.len();
                    scores.resize(start + width, 0.0);
                    reader.decode(&mut RecordMut::new(&mut scores, &rows, start))?;
                }
                Next::Bad(why) => return Err(why),
                Next::Idle => reader.wait()?,
                Next::End => break,
            }
        }
        Ok(ExpectedScores {
            place,
            scores,
            width,
            tolerance,
            seen: 0,
            right: 0,
            worst: None,
        })
    }

    /// Compares the computed scores of the next record with the file.
    pub(crate) fn check(&mut self, scores: impl Iterator<Item = f32>) {
        let record = self.seen;
        self.seen += 1;
        let Some(expected) = self
            .scores
            .get(record * self.width..(record + 1) * self.width)
        else {
            return;
        };
        let mut right = true;
        for (output, (&expected, found)) in expected.iter().zip(scores).enumerate() {
            let (e, f) = (f64::from(expected), f64::from(found));
            let error = (f - e).abs() / e.abs().max(1.0);
            right &= error <= self.tolerance;
            if self.worst.is_none_or(|w| error > w.error) {
                self.worst = Some(Difference {
                    error,
                    record,
                    output,
                    expected,
                    found,
                });
            }
        }
        self.right += u64::from(right);
    }

    /// Counts a bad record. It has no scores, so it counts as not agreeing.
    pub(crate) fn miss(&mut self) {
        self.seen += 1;
    }

    /// Returns the result of the comparison. It is an error if the run had more or fewer records
    /// than the file.
    pub(crate) fn finish(&self) -> Result<Agreement, Error> {
        same_length(
            &self.place,
            self.scores.len() / self.width,
            self.seen as u64,
        )?;
        let ExpectedScores {
            right,
            tolerance,
            worst,
            ..
        } = *self;
        Ok(Agreement {
            right,
            total: self.seen as u64,
            tolerance,
            worst,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scores(tolerance: f64, bytes: &[u8]) -> Result<ExpectedScores, String> {
        let source = crate::stream::MemorySource::new([bytes.to_vec()]);
        ExpectedScores::from(source, "s.csv".into(), tolerance, 2).map_err(|e| e.to_string())
    }

    #[test]
    fn scores_are_compared() {
        let text = b"1,2\n-1000,0.5\n";
        for (tolerance, found, line) in [
            (
                1e-4,
                [[1.0, 2.0], [-1000.0, 0.5]],
                "2 of 2 within 0.0001; largest error 0.00e0, record 1, output 1",
            ),
            // The error is relative for expected scores above 1, and absolute below.
            (
                1e-3,
                [[1.0, 2.0], [-1000.5, 0.5]],
                "2 of 2 within 0.001; largest error 5.00e-4, record 2, output 1",
            ),
            (
                1e-3,
                [[1.0, 2.0], [-1000.5, 0.625]],
                "1 of 2 within 0.001; largest error 1.25e-1, record 2, output 2",
            ),
            (
                0.0,
                [[1.0, 2.0], [-1000.0, 0.5]],
                "2 of 2 within 0; largest error 0.00e0, record 1, output 1",
            ),
        ] {
            let mut expected = scores(tolerance, text).unwrap();
            found
                .iter()
                .for_each(|record| expected.check(record.iter().copied()));
            let agreement = expected.finish().unwrap();
            assert!(
                agreement
                    .to_string()
                    .starts_with(&format!("scores: {line}: expected")),
                "{agreement}"
            );
            assert_eq!(agreement.complete(), line.starts_with("2 of 2"));
        }
        let mut expected = scores(1.0, text).unwrap();
        expected.check([1.0, 2.0].into_iter());
        assert_eq!(
            expected.finish().unwrap_err().to_string(),
            "s.csv: this file lists 2 records, the input has 1"
        );
        expected.miss();
        assert!(!expected.finish().unwrap().complete());
        expected.check([1.0, 2.0].into_iter());
        assert_eq!(
            expected.finish().unwrap_err().to_string(),
            "s.csv: this file lists 2 records, the input has 3"
        );
        assert_eq!(
            scores(0.0, b"1,2\n3\n").unwrap_err(),
            "s.csv:2:2: expected 2 numbers, the line has 1"
        );
        assert_eq!(
            scores(0.0, b"1,nan\n").unwrap_err(),
            "s.csv:1:2: expected a finite number, found \"nan\""
        );
        let array = crate::stream::tests::npy(
            "<f8",
            "(1, 2)",
            &[0.5f64, -0.25].map(f64::to_le_bytes).concat(),
        );
        let mut expected = scores(0.0, &array).unwrap();
        expected.check([0.5, -0.25].into_iter());
        assert!(expected.finish().unwrap().complete());
    }
}
