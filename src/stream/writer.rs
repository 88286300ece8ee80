//! Writes answers as text, one line for each record.

use super::csv::CsvField;
use super::output::{AnswerFormat, ERROR, OutputSpec};
use super::stdout::write_error;
use super::text::{escaped, integer, json_label, label, list, number, numbers};
use crate::engine::Answer;
use crate::error::Error;
use crate::ir::network::{FinalActivation, Kind};
use std::cmp::Ordering;
use std::io;
use std::ops::Range;

#[cfg(test)]
mod tests;

/// When the buffer holds this many bytes, they are written to the output.
const BUFFER: usize = 1 << 16;

/// The class, or the set of classes, that the answer to a record gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prediction<'a> {
    Class(u32),
    /// The classes of a `Multilabel` network, in rising order.
    Set(&'a [u32]),
    /// No class: the network computes values, or the record is bad.
    None,
}

/// Writes one line for each record. After construction only keys and bad records can allocate.
pub(crate) struct ResultWriter<'a, W> {
    out: W,
    output: AnswerFormat,
    spec: OutputSpec<'a>,
    buffer: Vec<u8>,
    /// The current record's scores after the final activation, as probabilities or outputs. Empty
    /// if neither the line nor the prediction needs them.
    values: Vec<f64>,
    /// The current record's predicted classes. Used only for `Multilabel` networks.
    set: Vec<u32>,
    /// Scratch memory for `-o top=K`: the classes, the most likely one first.
    order: Vec<u32>,
    /// The key fields that begin the current line, with a comma after each.
    key: Vec<u8>,
    records: u64,
    marked: u64,
}

impl<'a, W: io::Write> ResultWriter<'a, W> {
    /// Makes a writer to `out`. [`check`](super::check) must have accepted `output`.
    pub(crate) fn new(out: W, output: AnswerFormat, spec: OutputSpec<'a>) -> Self {
        let classes = spec.classes();
        // The longest line has the index, escaped label, probability and score of each class. The
        // line must still fit in a buffer that is almost full.
        let labels: usize = spec.labels.iter().map(|l| 6 * l.len()).sum();
        let names: usize = spec.named.iter().map(|v| 8 + 6 * v.name.len()).sum();
        let line = 256 + 96 * classes + labels + names;
        ResultWriter {
            out,
            output,
            spec,
            buffer: Vec::with_capacity(BUFFER + line),
            values: Vec::with_capacity(classes),
            set: Vec::with_capacity(classes),
            order: Vec::with_capacity(classes),
            key: Vec::new(),
            records: 0,
            marked: 0,
        }
    }

    /// Returns the number of answers written, those to bad records included.
    pub(crate) fn records(&self) -> u64 {
        self.records
    }

    /// Returns the number of answers written to bad records.
    pub(crate) fn marked(&self) -> u64 {
        self.marked
    }

    /// Sets the key fields that begin the next line. They are copied as they were read, with a
    /// comma after each.
    pub(crate) fn set_key(&mut self, key: &[u8]) {
        self.key.clear();
        self.key.extend_from_slice(key);
    }

    /// Begins a line with the key fields. A line of JSON begins with the record's number, then has
    /// the key fields.
    fn begin_line(&mut self) {
        let b = &mut self.buffer;
        if self.output != AnswerFormat::Json {
            return b.extend_from_slice(&self.key);
        }
        b.extend_from_slice(b"{\"record\":");
        integer(b, self.records);
        if let Some((_, key)) = self.key.split_last() {
            b.extend_from_slice(b",\"key\":[");
            list(b, CsvField::all(key), |b, field| {
                b.push(b'"');
                escaped(b, &field.text());
                b.push(b'"');
            });
            b.push(b']');
        }
    }

    /// Writes the answer to one record and returns the prediction. If the record's scores are not
    /// all finite, writes nothing and returns an error. `place` names the input and the position of
    /// the record, for the error.
    pub(crate) fn write(
        &mut self,
        answer: Answer<'_>,
        place: impl FnOnce() -> String,
    ) -> Result<Prediction<'_>, Error> {
        if answer.overflowed() {
            let n = self.records + 1;
            let found = match answer.scores.iter().find(|v| !v.is_finite()) {
                Some(score) => format!("found a score of {score}"),
                None => "found one that is infinite or NaN".into(),
            };
            let why =
                "numbers of the record are too large for this network, or its weights are damaged";
            let message = format!(
                "record {n} of the run: overflow in f32: expected finite scores, {found} ({why})"
            );
            return Err(Error::input(place(), message));
        }
        self.activate(&answer);
        let one = self.decide(&answer);
        self.begin_line();
        match self.output {
            AnswerFormat::Class => self.class(one),
            AnswerFormat::Label => self.label(one),
            AnswerFormat::Scores => self.scores(&answer),
            AnswerFormat::Probs => {
                list(&mut self.buffer, &self.values, |b, &v| number(b, v as f32))
            }
            AnswerFormat::Top(k) => self.top(k, &answer),
            AnswerFormat::Json => self.json(one, &answer),
        }
        self.end_line()?;
        Ok(match (one, self.spec.kind) {
            (Some(c), _) => Prediction::Class(c),
            (None, Kind::Multilabel) => Prediction::Set(&self.set),
            (None, _) => Prediction::None,
        })
    }

    /// Writes the answer to a bad record. `why` is the reason, which only a JSON answer contains.
    pub(crate) fn mark(&mut self, why: &Error) -> Result<(), Error> {
        self.begin_line();
        let b = &mut self.buffer;
        if self.output == AnswerFormat::Json {
            b.extend_from_slice(b",\"");
            b.extend_from_slice(ERROR.as_bytes());
            b.extend_from_slice(b"\":\"");
            escaped(b, &why.to_string());
            b.extend_from_slice(b"\"}");
        } else {
            b.extend_from_slice(ERROR.as_bytes());
        }
        self.end_line()?;
        self.marked += 1;
        Ok(())
    }

    fn end_line(&mut self) -> Result<(), Error> {
        self.buffer.push(b'\n');
        self.records += 1;
        if self.buffer.len() >= BUFFER {
            self.drain()
        } else {
            Ok(())
        }
    }

    /// Returns the scores of the record that was written last, as `-o scores` writes them. `answer`
    /// is the same record's answer.
    pub(crate) fn last_scores<'b>(&'b self, answer: &Answer<'b>) -> impl Iterator<Item = f32> + 'b {
        outputs(&self.spec, &self.values, answer, 0..answer.scores.len())
    }

    /// Writes all buffered lines to the output. Dropping a writer does not write them.
    pub(crate) fn flush(&mut self) -> Result<(), Error> {
        self.drain()?;
        self.out.flush().map_err(write_error)
    }

    fn drain(&mut self) -> Result<(), Error> {
        let result = self.out.write_all(&self.buffer);
        // The buffer is also cleared after an error, because part of it may be written already.
        self.buffer.clear();
        result.map_err(write_error)
    }

    /// Fills `values` with the record's scores after the final activation, if the line or the
    /// prediction needs them.
    fn activate(&mut self, answer: &Answer<'_>) {
        let wanted = matches!(
            self.output,
            AnswerFormat::Probs | AnswerFormat::Top(_) | AnswerFormat::Json
        );
        self.values.clear();
        if wanted || self.spec.kind != Kind::Classes {
            self.values.extend(answer.scores.iter().map(f64::from));
            self.spec.activation.apply(&mut self.values);
        }
        if self.spec.kind == Kind::Binary {
            let p = self.values[0];
            self.values.clear();
            self.values.extend([1.0 - p, p]);
        }
    }

    /// Returns the predicted class of the record. For a `Multilabel` network puts the predicted
    /// classes into `set` and returns `None`. For a `Values` network returns `None`.
    fn decide(&mut self, answer: &Answer<'_>) -> Option<u32> {
        let threshold = self.spec.threshold;
        match self.spec.kind {
            Kind::Classes => Some(answer.class.unwrap_or_else(|| answer.scores.argmax())),
            Kind::Binary => Some(u32::from(self.values[1] > threshold)),
            Kind::Multilabel => {
                self.set.clear();
                self.set.extend(
                    (0u32..)
                        .zip(&self.values)
                        .filter(|(_, p)| **p > threshold)
                        .map(|(c, _)| c),
                );
                None
            }
            Kind::Values => None,
        }
    }

    fn class(&mut self, one: Option<u32>) {
        match one {
            Some(c) => integer(&mut self.buffer, c.into()),
            None => list(&mut self.buffer, &self.set, |b, &c| integer(b, c.into())),
        }
    }

    fn label(&mut self, one: Option<u32>) {
        let labels = self.spec.labels;
        match &one {
            Some(c) => label(&mut self.buffer, labels, *c),
            None => list(&mut self.buffer, &self.set, |b, &c| label(b, labels, c)),
        }
    }

    fn scores(&mut self, answer: &Answer<'_>) {
        let all = 0..answer.scores.len();
        let scores = outputs(&self.spec, &self.values, answer, all);
        numbers(&mut self.buffer, scores);
    }

    fn top(&mut self, k: usize, answer: &Answer<'_>) {
        let classes = self.values.len();
        let k = k.min(classes);
        self.order.clear();
        self.order.extend(0..classes as u32);
        // Different scores can have the same probability after rounding. So the order of the
        // classes is that of the scores.
        let binary = self.spec.kind == Kind::Binary;
        let key = |c: u32| {
            if binary {
                self.values[c as usize]
            } else {
                answer.scores.get(c as usize).into()
            }
        };
        let likelier = |a: &u32, b: &u32| {
            let by_key: Ordering = key(*b).partial_cmp(&key(*a)).unwrap_or(Ordering::Equal);
            by_key.then(a.cmp(b))
        };
        // For a small K, selecting the best K times is as fast as a sort, and has kilobytes less
        // code.
        for i in 0..k {
            let best = (i..classes).min_by(|&a, &b| likelier(&self.order[a], &self.order[b]));
            self.order.swap(i, best.unwrap_or(i));
        }
        list(&mut self.buffer, &self.order[..k], |b, &c| {
            integer(b, c.into());
            b.push(b':');
            number(b, self.values[c as usize] as f32);
        });
    }

    fn json(&mut self, one: Option<u32>, answer: &Answer<'_>) {
        let labels = self.spec.labels;
        let b = &mut self.buffer;
        if let Some(c) = one {
            b.extend_from_slice(b",\"class\":");
            integer(b, c.into());
            b.extend_from_slice(b",\"label\":");
            json_label(b, labels, c);
            b.extend_from_slice(b",\"probability\":");
            number(b, self.values[c as usize] as f32);
        } else if self.spec.kind == Kind::Multilabel {
            b.extend_from_slice(b",\"class\":[");
            list(b, &self.set, |b, &c| integer(b, c.into()));
            b.extend_from_slice(b"],\"label\":[");
            list(b, &self.set, |b, &c| json_label(b, labels, c));
            b.extend_from_slice(b"],\"probability\":[");
            list(b, &self.values, |b, &v| number(b, v as f32));
            b.push(b']');
        }
        b.extend_from_slice(b",\"scores\":[");
        let all = 0..answer.scores.len();
        numbers(b, outputs(&self.spec, &self.values, answer, all));
        b.push(b']');
        if !self.spec.named.is_empty() {
            b.extend_from_slice(b",\"outputs\":{");
            let mut end = 0;
            list(b, self.spec.named, |b, v| {
                b.push(b'"');
                escaped(b, &v.name);
                b.extend_from_slice(b"\":[");
                let first = end;
                end += v.shape.len();
                numbers(b, outputs(&self.spec, &self.values, answer, first..end));
                b.push(b']');
            });
            b.push(b'}');
        }
        b.push(b'}');
    }
}

/// Returns a record's outputs with the indices `which`. If the network computes values, its outputs
/// are its scores after the final activation. The outputs of a classifier are the scores
/// themselves.
fn outputs<'v>(
    spec: &OutputSpec<'_>,
    values: &'v [f64],
    answer: &Answer<'v>,
    which: Range<usize>,
) -> impl Iterator<Item = f32> + use<'v> {
    let activated = spec.kind == Kind::Values && spec.activation != FinalActivation::None;
    let scores = answer.scores;
    which.map(move |i| {
        if activated {
            values[i] as f32
        } else {
            scores.get(i)
        }
    })
}
