//! Reads records of any format from any source.

use super::binary::{self, Binary, BinaryFormat, Elements};
use super::buffer::{More, ReadBuffer};
use super::csv::{self, Csv, plural};
use super::detect::{self, Start};
use super::series::{SeriesRows, TimeSeries};
use super::source::Source;
use crate::engine::RecordMut;
use crate::error::Error;
use crate::ir::network::{ByteInput, Network, Transform};
use crate::observe::trace::Track;
use crate::simd::decode::Decoder;
use crate::simd::deferred::{Decode, Refusal};
use std::borrow::Cow;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// The smallest size of a reader's buffer in bytes. For wide records the buffer has 64 bytes for
/// each number of a record instead.
const BUFFER: usize = if cfg!(fuzzing) { 1 << 8 } else { 1 << 20 };

/// The format of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// One record on each line: numbers separated by commas.
    Csv,
    /// Little-endian f32 without a header.
    F32,
    /// One unsigned byte a number, without a header.
    U8,
    /// One signed byte a number, without a header.
    I8,
    /// The format of the MNIST files.
    Idx,
    /// The format of NumPy's array files.
    Npy,
}

impl Format {
    /// Returns the format called `name` on the command line.
    pub(crate) fn parse(name: &str) -> Result<Self, String> {
        Ok(match name {
            "csv" => Format::Csv,
            "f32" => Format::F32,
            "u8" => Format::U8,
            "i8" => Format::I8,
            "idx" => Format::Idx,
            "npy" => Format::Npy,
            _ => {
                return Err(format!(
                    "expected csv, f32, u8, i8, idx or npy, found {name:?}"
                ));
            }
        })
    }
}

/// The form of a record in the input: the count, the names and the scaling of its numbers, its
/// rows, and its key fields.
#[derive(Clone, Copy)]
pub(crate) struct InputShape<'a> {
    /// The count of numbers of a record. In a time series it is the count of numbers of one row.
    pub(crate) width: usize,
    /// The names of a record's numbers, which a header must have. If empty, a header may have any
    /// names.
    pub(crate) features: &'a [Cow<'static, str>],
    /// The scaling of each number of a record. It is applied before a number is rounded to f32.
    pub(crate) transform: &'a Transform,
    /// The integers that binary records of bytes are, if the model's input is 8-bit integers.
    pub(crate) bytes: Option<ByteInput>,
    /// Set for a time series: the rows that form a record.
    pub(crate) rows: Option<SeriesRows>,
    /// The number of key fields. They are the first fields of a line, and are copied to the line's
    /// answer.
    pub(crate) keys: usize,
}

impl<'a> InputShape<'a> {
    /// Returns the form of the records of `network`, without rows and key fields.
    pub(crate) fn of(network: &'a Network) -> Self {
        InputShape {
            width: network.width,
            features: &network.features,
            transform: &network.transform,
            bytes: network.bytes,
            rows: None,
            keys: 0,
        }
    }

    /// Splits the record into rows of a time series. A network names each number of each row
    /// differently. So if a record has several rows, its names say nothing about a header and are
    /// left out.
    pub(crate) fn of_rows(self, rows: SeriesRows) -> Result<Self, String> {
        let width = self.width;
        if rows.window == 1 {
            return Ok(InputShape {
                rows: Some(rows),
                ..self
            });
        }
        match width % rows.window {
            0 => Ok(InputShape {
                width: width / rows.window,
                features: &[],
                rows: Some(rows),
                ..self
            }),
            _ => Err(format!(
                "--window {}: expected a divisor of {width}, because a record of this network has \
                 {width} numbers and all its rows are equally long",
                rows.window
            )),
        }
    }

    /// Returns the unit in which messages count an input: `record` or `row`.
    pub(super) fn unit(&self) -> &'static str {
        if self.rows.is_some() { "row" } else { "record" }
    }
}

/// Returns the end of a message about a wrong count of numbers. It explains why a row has `width`
/// numbers. Empty if the input is no time series.
pub(super) fn of_window(rows: Option<SeriesRows>, width: usize) -> String {
    rows.map_or(String::new(), |SeriesRows { window, .. }| {
        format!(
            " (--window {window}: a record of {} is {window} rows of {width})",
            plural((window * width) as u64, "number")
        )
    })
}

/// Decodes the bytes of a record into the network's input, as numbers that are scaled and rounded
/// to f32.
pub(super) struct Coding {
    /// The scaling of each number. It is applied before the number is rounded to f32.
    pub(super) transform: Transform,
    /// The model's integers, which the bytes of binary records are. `None` if the bytes are
    /// numbers, and for records that are no bytes.
    pub(super) bytes: Option<ByteInput>,
    /// The number that the network gets for each byte from 0 to 255, if all numbers of a record are
    /// scaled alike. `None` for numbers that are not scaled, and for records that are no bytes.
    pub(super) table: Option<Box<[f32; 256]>>,
    /// The type of the elements of binary records. `None` for text.
    pub(super) binary: Option<Elements>,
    pub(super) decoder: Decoder,
    /// The rows that form a record of a time series, which messages name. `None` for other inputs.
    pub(super) rows: Option<SeriesRows>,
    /// The number of key fields in front of the record's bytes. Messages count them, too.
    pub(super) keys: usize,
}

impl Coding {
    /// Returns number `i` of a record as the network gets it: the number `x` that was read, scaled
    /// and then rounded to f32.
    pub(super) fn scaled(&self, i: usize, x: f64) -> f32 {
        let signed = self.binary.is_some_and(|e| e.byte() == Some(true));
        let real = self.bytes.map_or(x, |bytes| bytes.real(x, signed));
        self.transform.apply(i, real) as f32
    }

    /// Returns the number that the network gets for each byte. `None` unless records are bytes
    /// whose numbers are all scaled alike.
    fn table(&self) -> Option<Box<[f32; 256]>> {
        let alike = match &self.transform {
            Transform::Identity => self.bytes.is_some(),
            Transform::ScaleOffset { scale, offset } => scale.len() == 1 && offset.len() == 1,
            Transform::MeanStd { mean, std } => mean.len() == 1 && std.len() == 1,
        };
        let elements = self.binary.filter(|e| alike && e.byte().is_some())?;
        let all = (0..=u8::MAX).map(|byte| self.scaled(0, elements.decode(&[byte])));
        let all: Box<[f32]> = all.collect();
        let finite = all.iter().all(|x| x.is_finite());
        all.try_into().ok().filter(|_| finite)
    }

    /// Returns true if the numbers of a record are not scaled.
    pub(super) fn plain(&self) -> bool {
        self.transform == Transform::Identity && self.bytes.is_none()
    }

    /// Decodes the numbers of `bytes` into `values`, without scaling them. `spare` is scratch
    /// memory of the same length.
    pub(super) fn decode_raw(
        &self,
        bytes: &[u8],
        values: &mut [f64],
        spare: &mut [f32],
    ) -> Result<(), Refusal> {
        let width = values.len();
        match self.binary {
            None => csv::decode_raw(bytes, self, values, spare)
                .map_err(|m| m.refusal(bytes, width, self)),
            Some(elements) => {
                bytes
                    .chunks_exact(elements.size())
                    .zip(values.iter_mut())
                    .for_each(|(b, x)| *x = elements.decode(b));
                match values.iter().position(|x| !x.is_finite()) {
                    Some(i) => Err(binary::not_finite(values[i], i, self)),
                    None => Ok(()),
                }
            }
        }
    }
}

impl Decode for Coding {
    fn decode(&self, bytes: &[u8], values: &mut [f32]) -> bool {
        match self.binary {
            None => csv::decode(bytes, self, values).is_ok(),
            Some(elements) => elements.decode_record(bytes, self, values).is_ok(),
        }
    }

    #[cold]
    fn explain(&self, bytes: &[u8], width: usize) -> Refusal {
        let mut values = vec![0.0; width];
        let refusal = match self.binary {
            None => {
                csv::decode(bytes, self, &mut values).map_err(|m| m.refusal(bytes, width, self))
            }
            Some(elements) => elements
                .decode_record(bytes, self, &mut values)
                .map_err(|i| {
                    let raw = elements.decode(&bytes[i * elements.size()..]);
                    binary::not_finite(raw, i, self)
                }),
        };
        refusal.expect_err("decode is the same each time")
    }
}

/// The result of [`RecordReader::advance`].
#[derive(Debug)]
pub(crate) enum Next {
    /// A whole record was found.
    Record,
    /// A bad record was skipped, for this reason. This occurs only if bad records are marked.
    Bad(Error),
    /// There is no whole record yet, and reading more would have to wait. The caller answers all
    /// earlier records, then calls [`RecordReader::wait`].
    Idle,
    /// The input has ended after a whole record.
    End,
}

/// The place of a record in its source, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Position {
    /// The line of a text file.
    Line(u64),
    /// The record of a binary file.
    Record(u64),
    /// The row of a binary file with a time series.
    Row(u64),
}

impl Position {
    /// Returns `PLACE:17` for line 17, or `PLACE: record 17` for a binary record.
    pub(crate) fn within(self, place: &str) -> String {
        match self {
            Position::Line(n) => format!("{place}:{n}"),
            Position::Record(n) => format!("{place}: record {n}"),
            Position::Row(n) => format!("{place}: row {n}"),
        }
    }

    /// Returns the error for a refused record at this position of the input `place`.
    pub(super) fn refused(self, place: &str, refusal: Refusal) -> Error {
        let number = match self {
            Position::Line(_) => format!(":{}", refusal.number),
            Position::Record(_) | Position::Row(_) => format!(", value {}", refusal.number),
        };
        Error::input(self.within(place) + &number, refusal.message)
    }
}

/// Facts about the input that the readers of all formats need.
pub(super) struct ReaderContext<'a> {
    /// The name of the input in messages.
    pub(super) place: String,
    pub(super) shape: InputShape<'a>,
    /// True if bad records are marked and skipped.
    pub(super) mark: bool,
}

impl ReaderContext<'_> {
    /// Returns the position of record `n`, or of row `n` in a time series. `n` counts from 1. The
    /// input is binary.
    pub(super) fn position(&self, n: u64) -> Position {
        if self.shape.rows.is_some() {
            Position::Row(n)
        } else {
            Position::Record(n)
        }
    }

    /// Returns an error about record `record` of a binary input, or about this row of a time
    /// series. Counts from 1.
    pub(super) fn at_record(&self, record: u64, message: impl Into<String>) -> Error {
        Error::input(self.position(record).within(&self.place), message)
    }

    pub(super) fn io(&self, e: io::Error) -> Error {
        Error::io(&self.place, e)
    }
}

fn coding(shape: InputShape<'_>, decoder: &InputDecoder) -> Coding {
    let binary = match decoder {
        InputDecoder::Binary(binary) => Some(binary.elements()),
        InputDecoder::Start | InputDecoder::Csv(_) => None,
    };
    let are_bytes = binary.is_some_and(|elements| elements.byte().is_some());
    let coding = Coding {
        transform: shape.transform.clone(),
        bytes: shape.bytes.filter(|_| are_bytes),
        table: None,
        binary,
        decoder: Decoder::detect(),
        rows: shape.rows,
        keys: shape.keys,
    };
    Coding {
        table: coding.table(),
        ..coding
    }
}

/// The reader for the format of the current input, chosen by the input's first bytes.
enum InputDecoder {
    /// The format is not known yet, because too few bytes were read.
    Start,
    Csv(Csv),
    Binary(Binary),
}

/// Finds and decodes records in a source. Allocates when it is made, for a file's header and for
/// errors, but not for records.
pub(crate) struct RecordReader<'a, S> {
    buffer: ReadBuffer<S>,
    context: ReaderContext<'a>,
    format: Option<Format>,
    decoder: InputDecoder,
    coding: Arc<dyn Decode>,
    /// Scratch memory for the numbers of one record or row. A record is decoded into it if its
    /// place in the batch is not contiguous.
    values: Box<[f32]>,
    series: Option<TimeSeries>,
}

impl<'a, S: Source> RecordReader<'a, S> {
    /// Returns the size of a reader's buffer in bytes, for records of `width` numbers.
    pub(crate) fn bytes(width: usize) -> usize {
        BUFFER.max(64 * width)
    }

    /// Makes a reader of `source`, called `place` in messages. Without a `format` the first bytes
    /// of the input tell it.
    pub(crate) fn new(
        source: S,
        place: String,
        format: Option<Format>,
        shape: InputShape<'a>,
    ) -> Self {
        let buffer = ReadBuffer::new(source, Self::bytes(shape.width));
        let context = ReaderContext {
            place,
            shape,
            mark: false,
        };
        let begin = || coding(shape, &InputDecoder::Start);
        let values = vec![0.0; shape.width].into_boxed_slice();
        let series = shape
            .rows
            .map(|rows| TimeSeries::new(rows, shape.width, begin()));
        let (decoder, coding) = (InputDecoder::Start, Arc::new(begin()));
        RecordReader {
            buffer,
            context,
            format,
            decoder,
            coding,
            values,
            series,
        }
    }

    /// Replaces the source by the next input, and drops the bytes left in the buffer. The format is
    /// detected again.
    pub(crate) fn reopen(&mut self, source: S, place: String) {
        self.buffer.reopen(source);
        self.context.place = place;
        self.decoder = InputDecoder::Start;
    }

    /// Switches the marking of bad records on or off. If marking is on, bad records are skipped. If
    /// it is off, a bad record is an error.
    pub(crate) fn set_mark(&mut self, mark: bool) {
        self.context.mark = mark;
    }

    /// Switches the timing of reads on or off. Each read becomes a span on `track`.
    pub(crate) fn set_timed(&mut self, timed: bool, track: Option<Track>) {
        self.buffer.set_timed(timed, track);
    }

    /// Returns the time spent in reads since the last call of this function. Waiting for input is
    /// not included.
    pub(crate) fn take_read_time(&mut self) -> Duration {
        self.buffer.take_read_time()
    }

    /// Returns the position of the record, or of the row of a time series, that was found last.
    pub(crate) fn position(&self) -> Position {
        match &self.decoder {
            InputDecoder::Start => Position::Record(0),
            InputDecoder::Csv(csv) => Position::Line(csv.line()),
            InputDecoder::Binary(binary) => self.context.position(binary.record()),
        }
    }

    /// Finds the next record, without waiting for input. In a time series, the position of a record
    /// is that of its last row.
    pub(crate) fn advance(&mut self) -> Result<Next, Error> {
        loop {
            let found = self.next()?;
            let position = self.position();
            let Some(series) = &mut self.series else {
                return Ok(found);
            };
            let bad = match found {
                Next::Idle | Next::End => return Ok(found),
                _ if series.skip() => continue,
                Next::Bad(why) => Some(why),
                Next::Record => {
                    let bytes = self.buffer.record();
                    let refusal = series.decode(bytes, &mut self.values).err();
                    refusal.map(|refusal| position.refused(&self.context.place, refusal))
                }
            };
            let bad = match bad {
                Some(why) if !self.context.mark => return Err(why),
                bad => bad,
            };
            if series.keep(position, bad) {
                return Ok(Next::Record);
            }
        }
    }

    /// Returns the number of rows at the end of a time series that were kept for a record that
    /// stayed incomplete. Rows that the hop skips are not counted. Valid after [`Next::End`].
    pub(crate) fn left(&self) -> usize {
        self.series.as_ref().map_or(0, TimeSeries::left)
    }

    /// Finds the next record, or the next row of a time series.
    fn next(&mut self) -> Result<Next, Error> {
        loop {
            let begun = match &mut self.decoder {
                InputDecoder::Csv(csv) => return csv.next(&mut self.buffer, &self.context),
                InputDecoder::Binary(binary) if binary.begun() => {
                    return binary.next(&mut self.buffer, &self.context);
                }
                InputDecoder::Binary(binary) => binary.header(&mut self.buffer, &self.context)?,
                InputDecoder::Start => match self.start()? {
                    Some(decoder) => {
                        self.decoder = decoder;
                        true
                    }
                    None => false,
                },
            };
            if begun {
                let coding = coding(self.context.shape, &self.decoder);
                match &mut self.series {
                    Some(series) => series.begin(coding),
                    None => self.coding = Arc::new(coding),
                }
                continue;
            }
            match self.buffer.more().map_err(|e| self.context.io(e))? {
                More::Read => {}
                More::NotReady => return Ok(Next::Idle),
                More::Ended | More::Full => return self.no_header(),
            }
        }
    }

    /// Returns the result for an input that ends before its header is complete.
    fn no_header(&self) -> Result<Next, Error> {
        match &self.decoder {
            InputDecoder::Binary(binary) => binary.end(&self.buffer, &self.context),
            // Never reached: `start` decides before the buffer is full and at the end of an input,
            // and text has no header that must be read first.
            InputDecoder::Start | InputDecoder::Csv(_) => {
                unreachable!("the start of text needs no header")
            }
        }
    }

    /// Returns the bytes of the record that was found last, and their decoder. The bytes stay in
    /// the buffer until `advance` or `wait`. Returns `None` for a time series, because its rows are
    /// decoded as they arrive.
    pub(crate) fn record(&self) -> Option<(&Arc<dyn Decode>, &[u8])> {
        let bytes = self.buffer.record();
        self.series.is_none().then_some((&self.coding, bytes))
    }

    /// Returns the key fields of the record that was found last, with a comma after each. Empty if
    /// the record's line has too few fields. The fields stay in the buffer as long as the record.
    pub(crate) fn key(&self) -> &[u8] {
        self.buffer.key()
    }

    /// Decodes the record that was found last into `record`. In a time series this is the record
    /// that ends with the latest row.
    pub(crate) fn decode(&mut self, record: &mut RecordMut<'_>) -> Result<(), Error> {
        if let Some(series) = &self.series {
            return series.write(&self.context.place, record);
        }
        let bytes = self.buffer.record();
        let good = match record.contiguous() {
            Some(values) => self.coding.decode(bytes, values),
            None => {
                let good = self.coding.decode(bytes, &mut self.values);
                record.scatter(&self.values);
                good
            }
        };
        if good {
            return Ok(());
        }
        let refusal = self.coding.explain(bytes, self.context.shape.width);
        Err(self.position().refused(&self.context.place, refusal))
    }

    /// Waits for more input, or for a signal. Must be called after [`Next::Idle`] only.
    pub(crate) fn wait(&mut self) -> Result<(), Error> {
        self.buffer.wait().map_err(|e| self.context.io(e))
    }

    /// Returns the reader for the format of the input. Returns `None` if more bytes are needed to
    /// tell the format.
    fn start(&self) -> Result<Option<InputDecoder>, Error> {
        let width = self.context.shape.width;
        let found = detect::start(self.buffer.bytes(), self.buffer.ended(), self.format, width);
        let kind = match found {
            None => return Ok(None),
            Some(Start::Text { mark }) => return Ok(Some(InputDecoder::Csv(Csv::new(mark)))),
            Some(Start::Binary(kind)) => kind,
            Some(Start::Foreign(foreign)) => {
                let file = if self.context.place == "stdin" {
                    "FILE"
                } else {
                    &self.context.place
                };
                let format = match self.format {
                    Some(Format::U8) => " -f u8",
                    Some(Format::I8) => " -f i8",
                    Some(Format::F32) => " -f f32",
                    _ => "",
                };
                return Err(Error::input(
                    &self.context.place,
                    foreign.advice(file, format),
                ));
            }
        };
        if self.context.shape.keys > 0 && matches!(kind, BinaryFormat::Npy | BinaryFormat::Idx) {
            let message =
                "--key needs lines of text: expected CSV, found a NumPy or idx file; omit --key";
            return Err(Error::input(&self.context.place, message));
        }
        Ok(Some(InputDecoder::Binary(Binary::new(kind))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_read_by_their_names_alone() {
        let all = [
            Format::Csv,
            Format::F32,
            Format::U8,
            Format::I8,
            Format::Idx,
            Format::Npy,
        ];
        assert_eq!(
            ["csv", "f32", "u8", "i8", "idx", "npy"].map(Format::parse),
            all.map(Ok)
        );
        for wrong in ["", "CSV", "f64"] {
            assert!(
                Format::parse(wrong)
                    .unwrap_err()
                    .contains("expected csv, f32, u8, i8, idx or npy")
            );
        }
    }

    /// In a time series, the names of the features are kept only if a record is a single row.
    #[test]
    fn rows_share_the_numbers_of_a_record() {
        let features = ["a", "b", "c", "d"].map(Cow::from);
        let transform = Transform::Identity;
        let shape = InputShape {
            width: 4,
            features: &features,
            transform: &transform,
            bytes: None,
            rows: None,
            keys: 0,
        };
        let of = |window: usize| shape.of_rows(SeriesRows { window, hop: 1 });
        for (window, width, names) in [(1, 4, 4), (2, 2, 0), (4, 1, 0)] {
            let rows = of(window).unwrap();
            assert_eq!(
                (rows.width, rows.features.len(), rows.unit()),
                (width, names, "row")
            );
        }
        assert_eq!(shape.unit(), "record");
        let refused = of(3).map(|shape| shape.width).unwrap_err();
        assert!(
            refused.starts_with("--window 3: expected a divisor of 4"),
            "{refused}"
        );
    }

    #[test]
    fn formats_have_names() {
        assert_eq!(Format::parse("idx"), Ok(Format::Idx));
        assert_eq!(
            Format::parse("f16").unwrap_err(),
            "expected csv, f32, u8, i8, idx or npy, found \"f16\""
        );
    }
}
