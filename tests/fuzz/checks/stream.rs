//! Checks of the readers of records.

use super::number::{self, Number};
use super::output::OutputSpec;
use super::reader::{Coding, Format, InputShape, Next, Position, RecordReader};
use super::source::Source;
use super::writer::Prediction;
use super::{ExpectedClasses, SeriesRows, csv};
use crate::engine::{RecordMut, RecordRows};
use crate::fuzzing::Input;
use crate::ir::network::{FinalActivation, Kind, Transform};
use crate::simd::decode::Decoder;
use std::borrow::Cow;
use std::fmt::Debug;
use std::io;
use std::iter::{Copied, Cycle};
use std::slice::Iter;

/// Compares the parser of numbers with `str::parse` bit by bit, and checks all decoders of whole
/// numbers.
pub fn number(data: &[u8]) {
    fn agrees<N: Number + Debug>(data: &[u8], bits: fn(N) -> u64) {
        let parsed = |length: usize| number::parse::<N>(&data[..length]).map(bits);
        if let Some((value, length)) = number::quick::<N>(data) {
            assert_eq!(
                Some(bits(value)),
                parsed(length),
                "{:?}",
                data[..length].escape_ascii()
            );
        }
        if let Some((value, end)) = number::small::<N>(data, 0) {
            assert_eq!((Some(bits(value)), data[end]), (parsed(end), b','));
        }
    }
    agrees::<f32>(data, |x| x.to_bits().into());
    agrees::<f64>(data, f64::to_bits);
    for decoder in Decoder::all() {
        let mut values = [f32::NAN; 80];
        let (count, length) = decoder.integers(data, &mut values);
        let mut fields = data[..length].split(|&b| b == b',');
        for &value in &values[..count] {
            let field = fields.next().unwrap_or_default();
            assert!(
                field.len() <= 4 && field.iter().all(u8::is_ascii_digit),
                "{}",
                field.escape_ascii()
            );
            assert_eq!(number::parse::<f32>(field), Some(value));
        }
        assert_eq!(
            fields.next().map_or(0, <[u8]>::len),
            0,
            "more bytes than fields"
        );
    }
}

/// Compares a line with its fields parsed by `str::parse`, under every decoder.
pub fn line(data: &[u8]) {
    let mut input = Input(data);
    let width = 1 + input.below(70);
    let scaled = input.flag();
    let transform = match scaled {
        true => Transform::ScaleOffset {
            scale: vec![0.1].into(),
            offset: vec![-3.0].into(),
        },
        false => Transform::Identity,
    };
    let line = input.0;
    let fields: Vec<String> = csv::CsvField::all(line)
        .map(|field| field.text().into_owned())
        .collect();
    if !line.contains(&b'"') {
        let plain = line
            .split(|&b| b == b',')
            .map(|field| String::from_utf8_lossy(field));
        assert!(
            plain
                .map(|f| f.trim_matches([' ', '\t']).to_string())
                .eq(fields.iter().cloned())
        );
    }
    // The numbers, or the position of the wrong field.
    let read = || {
        let mut values = Vec::new();
        for i in 0..width {
            let text = fields.get(i).ok_or(i + 1)?.trim_matches([' ', '\t']);
            let value = match scaled {
                true => transform.apply(i, text.parse::<f64>().map_err(|_| i + 1)?) as f32,
                false => text.parse::<f32>().map_err(|_| i + 1)?,
            };
            values.push(if value.is_finite() {
                value.to_bits()
            } else {
                return Err(i + 1);
            });
        }
        if fields.len() > width {
            Err(width + 1)
        } else {
            Ok(values)
        }
    };
    let expected = read();
    for decoder in Decoder::all() {
        let coding = Coding {
            transform: transform.clone(),
            binary: None,
            decoder,
            rows: None,
            keys: 0,
        };
        let mut values = vec![f32::NAN; width];
        let found = csv::decode(line, &coding, &mut values)
            .map(|()| values.iter().map(|x| x.to_bits()).collect())
            .map_err(|mistake| mistake.refusal(line, width, &coding).number);
        assert_eq!(found, expected, "{}", line.escape_ascii());
    }
}

/// Names of the inputs, for networks with names.
const FEATURES: [Cow<'static, str>; 24] = [
    Cow::Borrowed("a"),
    Cow::Borrowed("b"),
    Cow::Borrowed("c, d"),
    Cow::Borrowed("1"),
    Cow::Borrowed("é"),
    Cow::Borrowed("\""),
    Cow::Borrowed("g"),
    Cow::Borrowed("h"),
    Cow::Borrowed("i"),
    Cow::Borrowed("j"),
    Cow::Borrowed("k"),
    Cow::Borrowed("l"),
    Cow::Borrowed("m"),
    Cow::Borrowed("n"),
    Cow::Borrowed("o"),
    Cow::Borrowed("p"),
    Cow::Borrowed("q"),
    Cow::Borrowed("r"),
    Cow::Borrowed("s"),
    Cow::Borrowed("t"),
    Cow::Borrowed("u"),
    Cow::Borrowed("v"),
    Cow::Borrowed("w"),
    Cow::Borrowed("x"),
];

/// The format of a stream of records, and its data.
struct Setting<'a> {
    format: Option<Format>,
    /// The number of values in a record.
    width: usize,
    features: &'a [Cow<'static, str>],
    transform: Transform,
    rows: Option<SeriesRows>,
    keys: usize,
    mark: bool,
    data: &'a [u8],
}

/// Bytes that arrive in pieces of the given sizes, cyclically. Half of a size is the number of
/// bytes. Its lowest bit adds a pause after them. Without sizes all bytes arrive at once.
struct Pieces<'a> {
    data: &'a [u8],
    sizes: Cycle<Copied<Iter<'a, u8>>>,
    paused: bool,
}

impl<'a> Pieces<'a> {
    fn new(data: &'a [u8], sizes: &'a [u8]) -> Self {
        Pieces {
            data,
            sizes: sizes.iter().copied().cycle(),
            paused: false,
        }
    }
}

impl Source for Pieces<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let size = self.sizes.next();
        self.paused = size.is_some_and(|size| size & 1 != 0);
        let most = size.map_or(usize::MAX, |size| usize::from(size >> 1) + 1);
        let (piece, rest) = self.data.split_at(most.min(buf.len()).min(self.data.len()));
        buf[..piece.len()].copy_from_slice(piece);
        self.data = rest;
        Ok(piece.len())
    }

    fn ready(&self) -> bool {
        !self.paused
    }
}

#[derive(Debug, Default, PartialEq)]
struct Events {
    /// The results in order, with their positions.
    found: Vec<(What, Position)>,
    /// The numbers of all records, as bits.
    numbers: Vec<u32>,
    keys: Vec<u8>,
    messages: Vec<String>,
}

#[derive(Debug, PartialEq)]
enum What {
    Record,
    Refused,
    Bad,
    Failed,
    /// The end of input, with the number of rows after the last record.
    End(usize),
}

impl<'a> Setting<'a> {
    fn new(input: &mut Input<'a>, formats: &[Option<Format>]) -> Setting<'a> {
        let format = formats[input.below(formats.len())];
        let (mut width, choices) = (1 + input.below(6), input.byte());
        let rows = (choices & 1 != 0).then(|| SeriesRows {
            window: 1 + input.below(4),
            hop: 1 + input.below(5),
        });
        width *= rows.map_or(1, |rows| rows.window);
        let transform = match choices & 6 {
            2 => Transform::ScaleOffset {
                scale: vec![0.5].into(),
                offset: vec![1e30].into(),
            },
            4 => Transform::MeanStd {
                mean: vec![101_325.0].into(),
                std: vec![1e-3].into(),
            },
            _ => Transform::Identity,
        };
        let features: &[Cow<'static, str>] = if choices & 8 != 0 {
            &FEATURES[..width]
        } else {
            &[]
        };
        let keys = if choices & 16 != 0 { input.below(3) } else { 0 };
        Setting {
            format,
            width,
            features,
            transform,
            rows,
            keys,
            mark: choices & 32 != 0,
            data: &[],
        }
    }

    fn shape(&self) -> InputShape<'_> {
        let Setting {
            width,
            keys,
            features,
            ..
        } = *self;
        let shape = InputShape {
            width,
            features,
            transform: &self.transform,
            bytes: None,
            rows: None,
            keys,
        };
        self.rows.map_or(shape, |rows| {
            shape.of_rows(rows).expect("the width is a multiple")
        })
    }

    fn reader(&self, sizes: &'a [u8]) -> RecordReader<'_, Pieces<'a>> {
        let source = Pieces::new(self.data, sizes);
        let mut reader = RecordReader::new(source, "stdin".into(), self.format, self.shape());
        reader.set_mark(self.mark);
        reader
    }

    /// Reads the whole source and returns the results.
    fn events(&self, reader: &mut RecordReader<'_, Pieces<'_>>) -> Events {
        let rows = RecordRows::first(self.width);
        // Non-contiguous, to cover the other way of writing.
        let reversed = RecordRows::new((0..self.width as u32).rev().collect());
        let (mut values, mut others) = (vec![f32::NAN; self.width], vec![f32::NAN; self.width]);
        let mut events = Events::default();
        loop {
            let (what, why) = match reader.advance() {
                Ok(Next::Record) => {
                    let decoded = reader.decode(&mut RecordMut::new(&mut values, &rows, 0));
                    let again = reader.decode(&mut RecordMut::new(&mut others, &reversed, 0));
                    match (decoded, again) {
                        (Err(why), Err(again)) => {
                            assert_eq!(why.to_string(), again.to_string());
                            (What::Refused, Some(why))
                        }
                        (Ok(()), Ok(())) => {
                            assert!(values.iter().all(|x| x.is_finite()), "{values:?}");
                            let first = events.numbers.len();
                            events.numbers.extend(values.iter().map(|x| x.to_bits()));
                            let others = others.iter().rev().map(|x| x.to_bits());
                            assert!(
                                events.numbers[first..].iter().copied().eq(others),
                                "{values:?}"
                            );
                            (What::Record, None)
                        }
                        (decoded, again) => panic!("{decoded:?}, and then {again:?}"),
                    }
                }
                Ok(Next::Bad(why)) => {
                    assert!(self.mark, "{why}");
                    (What::Bad, Some(why))
                }
                Ok(Next::Idle) => {
                    reader.wait().expect("memory can be read");
                    continue;
                }
                Ok(Next::End) => (What::End(reader.left()), None),
                Err(why) => (What::Failed, Some(why)),
            };
            if let Some(why) = why {
                let text = why.to_string();
                assert!(
                    text.starts_with("stdin") && !text.contains(char::is_control),
                    "{text:?}"
                );
                events.messages.push(text);
            }
            events.keys.extend_from_slice(reader.key());
            let last = matches!(what, What::Failed | What::End(_));
            events.found.push((what, reader.position()));
            if last {
                return events;
            }
        }
    }

    /// Compares the results when all bytes arrive at once, byte by byte with pauses, in pieces, and
    /// after another input in the same reader.
    fn check(&self, sizes: &'a [u8]) {
        let whole = self.events(&mut self.reader(&[]));
        assert_eq!(self.events(&mut self.reader(&[1])), whole, "byte by byte");
        let mut reader = self.reader(sizes);
        assert_eq!(self.events(&mut reader), whole, "in pieces of {sizes:?}");
        reader.reopen(Pieces::new(self.data, &[]), "stdin".into());
        assert_eq!(self.events(&mut reader), whole, "opened again");
    }
}

fn records(data: &[u8], formats: &[Option<Format>]) {
    let mut input = Input(data);
    let mut setting = Setting::new(&mut input, formats);
    let sizes = input.bytes(4);
    setting.data = input.0;
    setting.check(if sizes.is_empty() { &[7] } else { sizes });
}

pub fn csv(data: &[u8]) {
    records(data, &[Some(Format::Csv), None]);
}

/// The format of the MNIST files.
pub fn idx(data: &[u8]) {
    records(data, &[Some(Format::Idx), None]);
}

pub fn npy(data: &[u8]) {
    records(data, &[Some(Format::Npy), None]);
}

pub fn raw(data: &[u8]) {
    records(
        data,
        &[Some(Format::U8), Some(Format::I8), Some(Format::F32)],
    );
}

/// Compares the reader of expected classes with a reader that accepts only valid files.
pub fn expect(data: &[u8]) {
    let mut input = Input(data);
    let (multilabel, labels) = (input.flag(), input.below(3));
    // Labels in their order, and numeric labels that differ from their indices.
    let reversed = ["2", "1", "0"].map(Cow::from);
    let labels: &[Cow<'static, str>] = [&FEATURES[..0], &FEATURES[..5], &reversed][labels];
    let kind = if multilabel {
        Kind::Multilabel
    } else {
        Kind::Classes
    };
    let outputs = if labels.is_empty() { 4 } else { labels.len() };
    let (activation, threshold) = (FinalActivation::None, 0.5);
    let spec = OutputSpec {
        kind,
        activation,
        threshold,
        outputs,
        labels,
        named: &[],
    };
    let found = ExpectedClasses::parse(input.0, "y.txt".into(), &spec);
    match (found, plain_classes(input.0, &spec)) {
        (Err(why), None) => {
            let text = why.to_string();
            assert!(
                text.starts_with("y.txt") && !text.contains(char::is_control),
                "{text:?}"
            );
        }
        (Ok(mut found), Some(sets)) => {
            for set in &sets {
                found.check(if multilabel {
                    Prediction::Set(set)
                } else {
                    Prediction::Class(set[0])
                });
            }
            let accuracy = found.finish().expect("the files are as long");
            assert_eq!(
                (accuracy.right, accuracy.total),
                (sets.len() as u64, sets.len() as u64)
            );
        }
        (found, plain) => panic!("{found:?}, expected {plain:?}"),
    }
}

/// Returns the classes of each record in ascending order, for a file without mistakes.
fn plain_classes(bytes: &[u8], spec: &OutputSpec<'_>) -> Option<Vec<Vec<u32>>> {
    let one = spec.kind != Kind::Multilabel;
    if one && bytes.starts_with(&[0, 0, 8, 1]) {
        let labels = bytes.get(8..)?;
        let count = u32::from_be_bytes(bytes[4..8].try_into().expect("four bytes"));
        let whole =
            count as usize == labels.len() && labels.iter().all(|&l| usize::from(l) < spec.outputs);
        return whole.then(|| labels.iter().map(|&label| vec![label.into()]).collect());
    }
    let text = std::str::from_utf8(bytes)
        .ok()
        .filter(|_| !bytes.starts_with(b"\x1f\x8b"))?;
    let mut lines: Vec<&str> = text
        .strip_prefix('\u{feff}')
        .unwrap_or(text)
        .lines()
        .collect();
    while one && lines.last().is_some_and(|line| line.trim().is_empty()) {
        lines.pop();
    }
    let fields = |line: &str| match one {
        true => vec![line.to_string()],
        false if line.trim().is_empty() => Vec::new(),
        false => csv::CsvField::all(line.as_bytes())
            .map(|field| field.text().into_owned())
            .collect(),
    };
    let texts: Vec<Vec<String>> = lines.into_iter().map(fields).collect();
    let label = |text: &String| {
        let mut names = (0..).zip(spec.labels);
        names
            .find(|(_, label)| *label == text || *label == text.trim())
            .map(|(i, _)| i)
    };
    let index = |text: &String| {
        text.trim()
            .parse()
            .ok()
            .filter(|&class: &u32| (class as usize) < spec.outputs)
    };
    let all = |meaning: &dyn Fn(&String) -> Option<u32>| {
        texts
            .iter()
            .map(|set| set.iter().map(meaning).collect::<Option<Vec<u32>>>())
            .collect::<Option<Vec<_>>>()
    };
    let mut sets = all(&label).or_else(|| all(&index))?;
    sets.iter_mut().for_each(|set| set.sort_unstable());
    sets.iter()
        .all(|set| set.windows(2).all(|pair| pair[0] != pair[1]))
        .then_some(sets)
}
