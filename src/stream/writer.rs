//! Answers to text, one line a record.

use super::csv::CsvField;
use crate::engine::Answer;
use crate::error::{Error, ErrorKind};
use crate::ir::graph::Value;
use crate::ir::network::{FinalActivation, Kind, Network};
use crate::sys::io::{wait_writable, was_open};
use std::borrow::Cow;
use std::cmp::Ordering;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;

/// Bytes that are collected before they are written.
const BUFFER: usize = 1 << 16;

/// What a line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutputFormat {
    /// The class, as a number from 0.
    Class,
    /// The name of the class.
    Label,
    /// The network's last values.
    Scores,
    /// Probabilities.
    Probs,
    /// The most likely classes and their probabilities, at most so many.
    Top(usize),
    /// All of it, as JSON.
    Json,
}

impl OutputFormat {
    /// The output called `text` on the command line.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        Ok(match text {
            "class" => OutputFormat::Class,
            "label" => OutputFormat::Label,
            "scores" => OutputFormat::Scores,
            "probs" => OutputFormat::Probs,
            "json" => OutputFormat::Json,
            _ => match text.strip_prefix("top=").map(str::parse::<usize>) {
                Some(Ok(k)) if k > 0 => OutputFormat::Top(k),
                Some(_) => return Err(format!("expected top=K with K at least 1, found {text:?}")),
                None => {
                    return Err(format!(
                        "expected class, label, scores, probs, top=K or json, found {text:?}"
                    ));
                }
            },
        })
    }

    /// What is written where nothing was asked for.
    pub(crate) fn default_for(kind: Kind) -> Self {
        if kind == Kind::Values {
            OutputFormat::Scores
        } else {
            OutputFormat::Class
        }
    }
}

/// What the last values of the network mean.
#[derive(Clone, Copy)]
pub(crate) struct OutputSpec<'a> {
    /// What they are.
    pub(crate) kind: Kind,
    /// From values to probabilities (for [`Kind::Values`]: to outputs).
    pub(crate) activation: FinalActivation,
    /// Probability above which `Binary` and `Multilabel` give a class.
    pub(crate) threshold: f64,
    /// Number of last values.
    pub(crate) outputs: usize,
    /// Names of the classes, or nothing: then the index is the name.
    pub(crate) labels: &'a [Cow<'static, str>],
    /// The outputs that the last values are one behind the other; empty where they are one.
    pub(crate) named: &'a [Value],
}

impl<'a> OutputSpec<'a> {
    /// The output of `network`.
    pub(crate) fn of(network: &'a Network) -> Self {
        OutputSpec {
            kind: network.output.kind,
            activation: network.output.activation,
            threshold: network.output.threshold,
            outputs: network.outputs(),
            labels: &network.labels,
            named: &network.outputs,
        }
    }

    /// Number of classes: two for `Binary`.
    pub(crate) fn classes(&self) -> usize {
        if self.kind == Kind::Binary {
            2
        } else {
            self.outputs
        }
    }
}

/// Whether the lines of bad records can be told from those of others; the message is a usage error.
pub(crate) fn check_mark(output: OutputFormat, spec: &OutputSpec<'_>) -> Result<(), String> {
    match output == OutputFormat::Label && spec.labels.iter().any(|label| label == ERROR) {
        true => Err(format!(
            "--on-error mark: this network has a class called {ERROR:?}; use -o class or -o json"
        )),
        false => Ok(()),
    }
}

/// Whether `output` makes sense for this network; the message is a usage error.
pub(crate) fn check(output: OutputFormat, spec: &OutputSpec<'_>) -> Result<(), String> {
    if spec.kind != Kind::Values {
        return Ok(());
    }
    let name = match output {
        OutputFormat::Scores | OutputFormat::Json => return Ok(()),
        OutputFormat::Class => "class",
        OutputFormat::Label => "label",
        OutputFormat::Probs => "probs",
        OutputFormat::Top(_) => "top",
    };
    Err(format!(
        "-o {name}: this network computes values, no classes; use -o scores or -o json"
    ))
}

/// Whether the engine must hand out scores.
pub(crate) fn needs_scores(output: OutputFormat, spec: &OutputSpec<'_>) -> bool {
    spec.kind != Kind::Classes || !matches!(output, OutputFormat::Class | OutputFormat::Label)
}

/// Whether the engine must find the arg-max; `expect`: the classes are compared with expected ones.
pub(crate) fn needs_argmax(output: OutputFormat, spec: &OutputSpec<'_>, expect: bool) -> bool {
    spec.kind == Kind::Classes
        && (expect
            || matches!(
                output,
                OutputFormat::Class | OutputFormat::Label | OutputFormat::Json
            ))
}

/// What was decided about a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prediction<'a> {
    /// One class.
    Class(u32),
    /// The classes of a `Multilabel` network, in rising order.
    Set(&'a [u32]),
    /// Values have no class, bad records neither.
    None,
}

/// The line of a bad record; in JSON the key of the reason.
pub(crate) const ERROR: &str = "error";

/// Writes a line a record. Does not allocate after construction.
pub(crate) struct ResultWriter<'a, W> {
    out: W,
    output: OutputFormat,
    spec: OutputSpec<'a>,
    buffer: Vec<u8>,
    /// Of the record at hand: the probabilities (or outputs) of all classes where somebody wants
    /// them.
    values: Vec<f64>,
    /// Of the record at hand: its classes, for `Multilabel`.
    set: Vec<u32>,
    /// Classes by probability, for `top`.
    order: Vec<u32>,
    /// What stands in front of its line: fields, with a comma behind each.
    key: Vec<u8>,
    record: u64,
    marked: u64,
}

impl<'a, W: io::Write> ResultWriter<'a, W> {
    /// A writer to `out`. [`check`] must hold.
    pub(crate) fn new(out: W, output: OutputFormat, spec: OutputSpec<'a>) -> Self {
        let classes = spec.classes();
        // Room for the longest line behind a full buffer: of each class index, escaped label,
        // probability and score.
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
            record: 0,
            marked: 0,
        }
    }

    /// Records written.
    pub(crate) fn records(&self) -> u64 {
        self.record
    }

    /// Bad records among them.
    pub(crate) fn marked(&self) -> u64 {
        self.marked
    }

    /// The next line begins with `key`: fields with a comma behind each, as they were read.
    pub(crate) fn set_key(&mut self, key: &[u8]) {
        self.key.clear();
        self.key.extend_from_slice(key);
    }

    /// Begins a line: with its key, or in JSON with all that every line has.
    fn begin_line(&mut self) {
        let b = &mut self.buffer;
        if self.output != OutputFormat::Json {
            return b.extend_from_slice(&self.key);
        }
        b.extend_from_slice(b"{\"record\":");
        integer(b, self.record);
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

    /// Writes the line of one record and says what was decided. `place` names the input record in
    /// an error.
    pub(crate) fn write(
        &mut self,
        answer: Answer<'_>,
        place: impl FnOnce() -> String,
    ) -> Result<Prediction<'_>, Error> {
        if answer.overflowed() {
            let n = self.record + 1;
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
            OutputFormat::Class => self.class(one),
            OutputFormat::Label => self.label(one),
            OutputFormat::Scores => self.scores(&answer),
            OutputFormat::Probs => {
                list(&mut self.buffer, &self.values, |b, &v| number(b, v as f32))
            }
            OutputFormat::Top(k) => self.top(k, &answer),
            OutputFormat::Json => self.json(one, &answer),
        }
        self.end_line()?;
        Ok(match (one, self.spec.kind) {
            (Some(c), _) => Prediction::Class(c),
            (None, Kind::Multilabel) => Prediction::Set(&self.set),
            (None, _) => Prediction::None,
        })
    }

    /// Writes the line of a record that has no answer because of `why`.
    pub(crate) fn mark(&mut self, why: &Error) -> Result<(), Error> {
        self.begin_line();
        let b = &mut self.buffer;
        if self.output == OutputFormat::Json {
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
        self.record += 1;
        if self.buffer.len() >= BUFFER {
            self.drain()
        } else {
            Ok(())
        }
    }

    /// The scores of the record that was written last, whose `answer` this was, as `scores` writes
    /// them.
    pub(crate) fn last_scores<'b>(&'b self, answer: &Answer<'b>) -> impl Iterator<Item = f32> + 'b {
        outputs(&self.spec, &self.values, answer, 0..answer.scores.len())
    }

    /// Hands everything to the system. Must be called at the end: dropping a writer writes nothing.
    pub(crate) fn flush(&mut self) -> Result<(), Error> {
        self.drain()?;
        self.out.flush().map_err(output_error)
    }

    fn drain(&mut self) -> Result<(), Error> {
        let result = self.out.write_all(&self.buffer);
        // Emptied after an error as well: nobody shall write a part of it twice.
        self.buffer.clear();
        result.map_err(output_error)
    }

    /// Fills `values` where the line or the decision needs them.
    fn activate(&mut self, answer: &Answer<'_>) {
        let wanted = matches!(
            self.output,
            OutputFormat::Probs | OutputFormat::Top(_) | OutputFormat::Json
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

    /// The class of the kinds that have one; the set of classes for `Multilabel`.
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
        numbers(
            &mut self.buffer,
            outputs(&self.spec, &self.values, answer, 0..answer.scores.len()),
        );
    }

    fn top(&mut self, k: usize, answer: &Answer<'_>) {
        let classes = self.values.len();
        let k = k.min(classes);
        self.order.clear();
        self.order.extend(0..classes as u32);
        // Scores order classes that have the same probability after rounding.
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
        // K is small: a selection is as fast as a sort, and the standard library's brings kilobytes
        // of code.
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
        numbers(
            b,
            outputs(&self.spec, &self.values, answer, 0..answer.scores.len()),
        );
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

/// The last values of a record as they are, `which` of them; those of a network that computes
/// values, whose activated ones are `values`, with the final activation.
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

/// A closed pipe is the silent end; all else is an error.
fn output_error(e: io::Error) -> Error {
    if e.kind() == io::ErrorKind::BrokenPipe {
        ErrorKind::ClosedOutput.into()
    } else {
        Error::io("stdout", e)
    }
}

/// Numbers with commas between them.
fn numbers(b: &mut Vec<u8>, all: impl Iterator<Item = f32>) {
    list(b, all, number);
}

/// Items with commas between them.
fn list<T>(
    b: &mut Vec<u8>,
    items: impl IntoIterator<Item = T>,
    mut item: impl FnMut(&mut Vec<u8>, T),
) {
    for (i, x) in items.into_iter().enumerate() {
        if i > 0 {
            b.push(b',');
        }
        item(b, x);
    }
}

fn integer(b: &mut Vec<u8>, mut n: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (n % 10) as u8;
        n /= 10;
        if n == 0 {
            break;
        }
    }
    b.extend_from_slice(&digits[at..]);
}

/// The shortest text that reads back as the same f32, with an exponent where it would have many
/// zeros.
fn number(b: &mut Vec<u8>, x: f32) {
    // Writing to a Vec cannot fail.
    let _ = match x.abs() {
        0.0 | 1e-5..1e16 => io::Write::write_fmt(b, format_args!("{x}")),
        _ => io::Write::write_fmt(b, format_args!("{x:e}")),
    };
}

fn label(b: &mut Vec<u8>, labels: &[Cow<'static, str>], c: u32) {
    match labels.get(c as usize) {
        Some(text) => b.extend_from_slice(text.as_bytes()),
        None => integer(b, c.into()),
    }
}

/// A label as a JSON string; a class without one as a string with its number.
fn json_label(b: &mut Vec<u8>, labels: &[Cow<'static, str>], c: u32) {
    b.push(b'"');
    match labels.get(c as usize) {
        Some(text) => escaped(b, text),
        None => integer(b, c.into()),
    }
    b.push(b'"');
}

/// A text inside of a JSON string.
fn escaped(b: &mut Vec<u8>, text: &str) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => b.extend_from_slice(&[b'\\', byte]),
            b'\n' => b.extend_from_slice(b"\\n"),
            b'\r' => b.extend_from_slice(b"\\r"),
            b'\t' => b.extend_from_slice(b"\\t"),
            0..=31 => {
                b.extend_from_slice(b"\\u00");
                b.extend_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
            }
            _ => b.push(byte),
        }
    }
}

/// stdout without a buffer of its own.
pub(crate) struct Stdout {
    file: File,
}

impl Stdout {
    /// The standard output.
    pub(crate) fn new() -> io::Result<Self> {
        was_open(1)?;
        Ok(Stdout {
            file: File::from(io::stdout().as_fd().try_clone_to_owned()?),
        })
    }
}

impl io::Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match io::Write::write(&mut self.file, bytes) {
                // Another process that shares the pipe or terminal made it non-blocking.
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => wait_writable(self.file.as_fd()),
                result => return result,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{NAN_CLASS, Record};
    use crate::ir::graph;
    use proptest::prelude::*;
    use serde_json::Value;

    #[test]
    fn outputs_are_read_by_their_names_alone() {
        let all = [
            OutputFormat::Class,
            OutputFormat::Label,
            OutputFormat::Scores,
            OutputFormat::Probs,
            OutputFormat::Json,
            OutputFormat::Top(3),
        ];
        assert_eq!(
            ["class", "label", "scores", "probs", "json", "top=3"].map(OutputFormat::parse),
            all.map(Ok)
        );
        for wrong in ["", "Class", "top", "top=0", "top=x"] {
            assert!(
                OutputFormat::parse(wrong)
                    .unwrap_err()
                    .starts_with("expected "),
                "{wrong}"
            );
        }
        assert_eq!(
            OutputFormat::default_for(Kind::Values),
            OutputFormat::Scores
        );
        assert_eq!(
            [Kind::Classes, Kind::Binary, Kind::Multilabel].map(OutputFormat::default_for),
            [OutputFormat::Class; 3]
        );
    }

    /// Where another process made the output non-blocking it is waited for; where nobody reads it
    /// any more it is an error, at once.
    #[test]
    fn a_full_output_is_waited_for_and_a_closed_one_is_an_error() {
        use std::io::{Read, Write};
        use std::os::fd::OwnedFd;
        use std::os::unix::net::UnixStream;
        use std::sync::mpsc;
        use std::time::Duration;
        let (here, mut there) = UnixStream::pair().unwrap();
        here.set_nonblocking(true).unwrap();
        let mut out = Stdout {
            file: File::from(OwnedFd::from(here)),
        };
        let all = vec![7; 1 << 22];
        let (to, ended) = mpsc::channel();
        std::thread::spawn(move || {
            to.send(out.write_all(&all)).unwrap();
            to.send(out.write_all(&all)).unwrap();
        });
        let mut found = vec![0; 1 << 22];
        there.read_exact(&mut found).unwrap();
        assert!(found.iter().all(|&b| b == 7));
        drop(there);
        let end = || {
            ended
                .recv_timeout(Duration::from_secs(30))
                .expect("it ends")
        };
        assert_eq!(end().map_err(|e| e.kind()), Ok(()));
        let closed = [io::ErrorKind::BrokenPipe, io::ErrorKind::ConnectionReset];
        assert!(end().is_err_and(|e| closed.contains(&e.kind())));
    }

    struct OutputCase<'a> {
        kind: Kind,
        activation: FinalActivation,
        labels: &'a [Cow<'static, str>],
    }

    const CLASSES: OutputCase<'_> = OutputCase {
        kind: Kind::Classes,
        activation: FinalActivation::Softmax,
        labels: &[],
    };
    const BINARY: OutputCase<'_> = OutputCase {
        kind: Kind::Binary,
        activation: FinalActivation::Sigmoid,
        labels: &[],
    };
    const MULTILABEL: OutputCase<'_> = OutputCase {
        kind: Kind::Multilabel,
        activation: FinalActivation::Sigmoid,
        labels: &[],
    };
    const VALUES: OutputCase<'_> = OutputCase {
        kind: Kind::Values,
        activation: FinalActivation::None,
        labels: &[],
    };

    fn answer<'a>(class: Option<u32>, scores: &'a [f32], rows: &'a [u32]) -> Answer<'a> {
        Answer {
            class,
            scores: Record::new(scores, &rows[..scores.len()], 0),
        }
    }

    fn try_line(
        output: OutputFormat,
        case: &OutputCase<'_>,
        class: Option<u32>,
        scores: &[f32],
    ) -> Result<String, Error> {
        let rows: Vec<u32> = (0..scores.len() as u32).collect();
        let OutputCase {
            kind,
            activation,
            labels,
        } = *case;
        let spec = OutputSpec {
            kind,
            activation,
            threshold: 0.5,
            outputs: scores.len(),
            labels,
            named: &[],
        };
        check(output, &spec).map_err(Error::usage)?;
        let mut out = Vec::new();
        let mut writer = ResultWriter::new(&mut out, output, spec);
        assert_eq!((writer.records(), writer.marked()), (0, 0));
        writer.write(answer(class, scores, &rows), || "stdin:17".into())?;
        assert_eq!((writer.records(), writer.marked()), (1, 0));
        writer.flush()?;
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.matches('\n').count(), 1);
        Ok(text.trim_end_matches('\n').into())
    }

    fn line(output: OutputFormat, case: &OutputCase<'_>, scores: &[f32]) -> String {
        try_line(output, case, None, scores).unwrap()
    }

    /// Outputs by their names; the longest line that there may be does not grow the buffer.
    #[test]
    fn several_outputs() {
        use crate::ir::graph::Shape;
        let part = |name: &'static str, shape| graph::Value {
            name: name.into(),
            shape,
        };
        let named = [
            part("mask", Shape { c: 1, h: 2, w: 2 }),
            part("a\"\u{1}b", Shape::vector(1)),
            part("", Shape::vector(1)),
        ];
        let spec = OutputSpec {
            kind: Kind::Values,
            activation: FinalActivation::Tanh,
            threshold: 0.5,
            outputs: 6,
            labels: &[],
            named: &named,
        };
        let (scores, rows) = (
            [0.0, 0.5, -1.0, 100.0, f32::MIN_POSITIVE, -f32::MIN_POSITIVE],
            [0, 1, 2, 3, 4, 5],
        );
        let mut out = Vec::new();
        let mut writer = ResultWriter::new(&mut out, OutputFormat::Json, spec);
        let capacity = writer.buffer.capacity();
        writer
            .write(answer(None, &scores, &rows), String::new)
            .unwrap();
        assert_eq!(writer.buffer.capacity(), capacity);
        writer.flush().unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.len() < capacity - BUFFER, "{text}");
        let line: Value = serde_json::from_str(&text).unwrap();
        let keys: Vec<&String> = line.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["outputs", "record", "scores"]);
        let all = line["scores"].as_array().unwrap();
        assert_eq!(line["outputs"]["mask"].as_array().unwrap()[..], all[..4]);
        assert_eq!(
            line["outputs"]["a\"\u{1}b"].as_array().unwrap()[..],
            all[4..5]
        );
        assert_eq!(line["outputs"][""].as_array().unwrap()[..], all[5..]);
        assert_eq!(
            line["scores"][1].as_f64().unwrap() as f32,
            0.5f64.tanh() as f32
        );
        // In order, as of one output.
        let mut out = Vec::new();
        let mut writer = ResultWriter::new(&mut out, OutputFormat::Scores, spec);
        writer
            .write(answer(None, &scores[..4], &rows), String::new)
            .unwrap();
        writer.flush().unwrap();
        assert_eq!(out.split(|&b| b == b',').count(), 4);
    }

    #[test]
    fn classes() {
        let scores = [1.0, 3.5, -2.0, 3.5];
        assert_eq!(line(OutputFormat::Class, &CLASSES, &scores), "1");
        assert_eq!(
            try_line(OutputFormat::Class, &CLASSES, Some(4_000_000_000), &[]).unwrap(),
            "4000000000"
        );
        assert_eq!(line(OutputFormat::Label, &CLASSES, &scores), "1");
        let labels = ["a", "b\"c", "d", "e"].map(Cow::from);
        let named = OutputCase {
            labels: &labels,
            ..CLASSES
        };
        assert_eq!(line(OutputFormat::Label, &named, &scores), "b\"c");
        assert_eq!(
            line(OutputFormat::Scores, &CLASSES, &scores),
            "1,3.5,-2,3.5"
        );
        let probs = line(OutputFormat::Probs, &CLASSES, &[0.0, 0.0]);
        assert_eq!(probs, "0.5,0.5");
        assert_eq!(
            line(OutputFormat::Top(2), &CLASSES, &[0.0, 0.0, 0.0, 0.0]),
            "0:0.25,1:0.25"
        );
        assert_eq!(line(OutputFormat::Top(1), &CLASSES, &[0.0, 100.0]), "1:1");
        let elementwise = OutputCase {
            activation: FinalActivation::None,
            ..CLASSES
        };
        assert_eq!(
            line(OutputFormat::Top(9), &elementwise, &scores),
            "1:3.5,3:3.5,0:1,2:-2"
        );
        let json: Value = serde_json::from_str(&line(OutputFormat::Json, &named, &scores)).unwrap();
        assert_eq!(json["record"], 0);
        assert_eq!(json["class"], 1);
        assert_eq!(json["label"], "b\"c");
        assert_eq!(json["scores"], serde_json::json!([1, 3.5, -2, 3.5]));
        assert!((json["probability"].as_f64().unwrap() - 0.479).abs() < 1e-3);
        assert_eq!(
            line(OutputFormat::Json, &CLASSES, &[0.0, 0.0]),
            "{\"record\":0,\"class\":0,\"label\":\"0\",\"probability\":0.5,\"scores\":[0,0]}"
        );
    }

    #[test]
    fn binary() {
        for (score, class) in [
            (0.1, "1"),
            (0.0, "0"),
            (-3.0, "0"),
            (1e-7, "1"),
            (200.0, "1"),
        ] {
            assert_eq!(
                line(OutputFormat::Class, &BINARY, &[score]),
                class,
                "{score}"
            );
        }
        assert_eq!(line(OutputFormat::Probs, &BINARY, &[0.0]), "0.5,0.5");
        assert_eq!(line(OutputFormat::Scores, &BINARY, &[-3.0]), "-3");
        assert_eq!(line(OutputFormat::Top(5), &BINARY, &[0.0]), "0:0.5,1:0.5");
        assert_eq!(line(OutputFormat::Top(1), &BINARY, &[40.0]), "1:1");
        // 1 − p is computed before it is rounded.
        assert_eq!(
            line(OutputFormat::Probs, &BINARY, &[20.0]),
            "2.0611537e-9,1"
        );
        let labels = ["no", "yes"].map(Cow::from);
        let named = OutputCase {
            labels: &labels,
            ..BINARY
        };
        assert_eq!(line(OutputFormat::Label, &named, &[1.0]), "yes");
        let json: Value = serde_json::from_str(&line(OutputFormat::Json, &named, &[-1.0])).unwrap();
        assert_eq!((&json["class"], &json["label"]), (&0.into(), &"no".into()));
        assert!((json["probability"].as_f64().unwrap() - 0.731).abs() < 1e-3);
        assert_eq!(json["scores"], serde_json::json!([-1]));
    }

    #[test]
    fn multilabel() {
        let scores = [1.0, -1.0, 0.0, 2.0];
        assert_eq!(line(OutputFormat::Class, &MULTILABEL, &scores), "0,3");
        assert_eq!(line(OutputFormat::Class, &MULTILABEL, &[-1.0, -2.0]), "");
        let labels = ["a", "b", "c", "d"].map(Cow::from);
        let named = OutputCase {
            labels: &labels,
            ..MULTILABEL
        };
        assert_eq!(line(OutputFormat::Label, &named, &scores), "a,d");
        assert_eq!(line(OutputFormat::Label, &MULTILABEL, &scores), "0,3");
        assert_eq!(
            line(OutputFormat::Probs, &MULTILABEL, &[0.0, 100.0]),
            "0.5,1"
        );
        assert!(line(OutputFormat::Top(2), &MULTILABEL, &scores).starts_with("3:0.880797"));
        let json: Value = serde_json::from_str(&line(OutputFormat::Json, &named, &scores)).unwrap();
        assert_eq!(json["class"], serde_json::json!([0, 3]));
        assert_eq!(json["label"], serde_json::json!(["a", "d"]));
        assert_eq!(json["probability"].as_array().unwrap().len(), 4);
        let none: Value =
            serde_json::from_str(&line(OutputFormat::Json, &named, &[-1.0; 4])).unwrap();
        assert_eq!(none["class"], serde_json::json!([]));
    }

    #[test]
    fn values() {
        assert_eq!(line(OutputFormat::Scores, &VALUES, &[1.5, -2.0]), "1.5,-2");
        let sigmoid = OutputCase {
            activation: FinalActivation::Sigmoid,
            ..VALUES
        };
        assert_eq!(line(OutputFormat::Scores, &sigmoid, &[0.0]), "0.5");
        assert_eq!(
            line(OutputFormat::Json, &sigmoid, &[0.0]),
            "{\"record\":0,\"scores\":[0.5]}"
        );
        for output in [
            OutputFormat::Class,
            OutputFormat::Label,
            OutputFormat::Probs,
            OutputFormat::Top(1),
        ] {
            let error = try_line(output, &VALUES, None, &[1.0]).unwrap_err();
            assert_eq!(error.exit_code(), 2);
            assert!(error.to_string().ends_with("use -o scores or -o json"));
        }
    }

    #[test]
    fn an_overflow_is_an_error_for_every_output_and_kind() {
        let (inf, nan) = (f32::INFINITY, f32::NAN);
        for (class, scores, found) in [
            (
                Some(NAN_CLASS),
                &[][..],
                "found one that is infinite or NaN",
            ),
            (None, &[1.0, nan], "found a score of NaN"),
            (None, &[inf, 1.0], "found a score of inf"),
            (None, &[-inf, -inf], "found a score of -inf"),
            // A class of the device beside scores that are none.
            (Some(0), &[1.0, -inf], "found a score of -inf"),
        ] {
            for output in [
                OutputFormat::Class,
                OutputFormat::Label,
                OutputFormat::Scores,
                OutputFormat::Probs,
                OutputFormat::Top(1),
                OutputFormat::Json,
            ] {
                let error = try_line(output, &CLASSES, class, scores).unwrap_err();
                assert_eq!(error.exit_code(), 1);
                let error = error.to_string();
                let start =
                    "stdin:17: record 1 of the run: overflow in f32: expected finite scores, ";
                assert!(error.starts_with(&format!("{start}{found} (")), "{error}");
            }
        }
        for score in [inf, -inf, nan] {
            assert!(try_line(OutputFormat::Class, &BINARY, None, &[score]).is_err());
            assert!(try_line(OutputFormat::Class, &MULTILABEL, None, &[1.0, score]).is_err());
            for activation in [
                FinalActivation::None,
                FinalActivation::Sigmoid,
                FinalActivation::Tanh,
            ] {
                let values = OutputCase {
                    activation,
                    ..VALUES
                };
                assert!(try_line(OutputFormat::Scores, &values, None, &[score]).is_err());
            }
        }
        assert_eq!(
            line(OutputFormat::Scores, &VALUES, &[f32::MAX, f32::MIN]),
            "3.4028235e38,-3.4028235e38"
        );
    }

    /// The scores that `--expect-scores` compares are those that `-o scores` writes.
    #[test]
    fn the_last_scores_are_those_that_are_written() {
        let sigmoid = OutputCase {
            activation: FinalActivation::Sigmoid,
            ..VALUES
        };
        for (case, expected) in [
            (CLASSES, [0.0, 1.5]),
            (MULTILABEL, [0.0, 1.5]),
            (sigmoid, [0.5, 0.817_574_5]),
        ] {
            let OutputCase {
                kind,
                activation,
                labels,
            } = case;
            let spec = OutputSpec {
                kind,
                activation,
                threshold: 0.5,
                outputs: 2,
                labels,
                named: &[],
            };
            let mut writer = ResultWriter::new(Vec::new(), OutputFormat::Json, spec);
            let answer = answer(None, &[0.0, 1.5], &[0, 1]);
            writer.write(answer, String::new).unwrap();
            assert_eq!(writer.last_scores(&answer).collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn a_class_called_error_cannot_be_told_from_a_bad_record() {
        let labels = ["good", "error"].map(Cow::from);
        let OutputCase {
            kind, activation, ..
        } = CLASSES;
        let spec = OutputSpec {
            kind,
            activation,
            threshold: 0.5,
            outputs: 2,
            labels: &labels,
            named: &[],
        };
        assert!(
            check_mark(OutputFormat::Label, &spec)
                .unwrap_err()
                .contains("use -o class or -o json")
        );
        assert_eq!(check_mark(OutputFormat::Class, &spec), Ok(()));
        assert_eq!(
            check_mark(
                OutputFormat::Label,
                &OutputSpec {
                    labels: &labels[..1],
                    ..spec
                }
            ),
            Ok(())
        );
    }

    #[test]
    fn what_the_engine_must_deliver() {
        let spec = |c: OutputCase<'static>| OutputSpec {
            kind: c.kind,
            activation: c.activation,
            threshold: 0.5,
            outputs: 2,
            labels: c.labels,
            named: &[],
        };
        let (classes, binary) = (spec(CLASSES), spec(BINARY));
        for output in [OutputFormat::Class, OutputFormat::Label] {
            assert!(!needs_scores(output, &classes) && needs_argmax(output, &classes, false));
            assert!(needs_scores(output, &binary) && !needs_argmax(output, &binary, true));
        }
        assert!(
            needs_scores(OutputFormat::Json, &classes)
                && needs_argmax(OutputFormat::Json, &classes, false)
        );
        assert!(
            !needs_argmax(OutputFormat::Probs, &classes, false)
                && needs_argmax(OutputFormat::Probs, &classes, true)
        );
        assert_eq!(
            OutputFormat::default_for(Kind::Values),
            OutputFormat::Scores
        );
        assert_eq!(
            OutputFormat::default_for(Kind::Multilabel),
            OutputFormat::Class
        );
    }

    #[test]
    fn outputs_have_names() {
        assert_eq!(OutputFormat::parse("top=3"), Ok(OutputFormat::Top(3)));
        assert_eq!(OutputFormat::parse("json"), Ok(OutputFormat::Json));
        for bad in ["top=0", "top=x", "top="] {
            assert!(OutputFormat::parse(bad).unwrap_err().contains("at least 1"));
        }
        assert!(
            OutputFormat::parse("table")
                .unwrap_err()
                .contains("found \"table\"")
        );
    }

    struct Broken(io::ErrorKind);

    impl io::Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_closed_pipe_is_no_error_like_others() {
        let rows = [0];
        let spec = OutputSpec {
            kind: Kind::Values,
            activation: FinalActivation::None,
            threshold: 0.5,
            outputs: 1,
            labels: &[],
            named: &[],
        };
        let run = |kind| {
            let mut writer = ResultWriter::new(Broken(kind), OutputFormat::Scores, spec);
            // A buffer full of answers is written before the end.
            let mut write = || {
                writer
                    .write(answer(None, &[1.0], &rows), String::new)
                    .map(|_| ())
            };
            (0..1 << 16).try_for_each(|_| write()).unwrap_err()
        };
        assert!(matches!(
            run(io::ErrorKind::BrokenPipe).kind(),
            ErrorKind::ClosedOutput
        ));
        assert!(
            matches!(run(io::ErrorKind::StorageFull).kind(), ErrorKind::Io { place, .. } if place == "stdout")
        );
    }

    proptest! {
        #[test]
        fn numbers_read_back_as_they_were(bits in any::<u32>()) {
            let x = f32::from_bits(bits);
            prop_assume!(x.is_finite());
            let text = line(OutputFormat::Scores, &VALUES, &[x]);
            prop_assert!(text.len() <= 18, "{}", text);
            prop_assert_eq!(text.parse::<f32>().unwrap().to_bits(), x.to_bits());
            prop_assert!(serde_json::from_str::<Value>(&text).is_ok());
        }

        #[test]
        fn labels_survive_json(label in "\\PC{0,9}[\"\\\\\t\r\n\u{1}\u{1f}ä]?") {
            let labels = [Cow::from(label.clone())];
            let json = line(OutputFormat::Json, &OutputCase { labels: &labels, ..CLASSES }, &[1.0]);
            prop_assert_eq!(&serde_json::from_str::<Value>(&json).unwrap()["label"], &Value::from(label));
        }

        #[test]
        fn top_is_the_start_of_the_sorted_list(scores in proptest::collection::vec(-3i8..3, 1..20), k in 1usize..25) {
            let scores: Vec<f32> = scores.into_iter().map(f32::from).collect();
            let mut order: Vec<usize> = (0..scores.len()).collect();
            order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
            let text = line(OutputFormat::Top(k), &CLASSES, &scores);
            let found: Vec<usize> = text.split(',').map(|t| t.split_once(':').unwrap().0.parse().unwrap()).collect();
            prop_assert_eq!(&found[..], &order[..k.min(scores.len())]);
        }
    }
}
