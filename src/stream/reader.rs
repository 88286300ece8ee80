//! Bytes to records: a fixed buffer, detection of the format, and the face that the pipeline uses.

use super::binary::{self, Binary, BinaryFormat};
use super::csv::{self, Csv, plural};
use super::series::{SeriesRows, TimeSeries};
use super::source::Source;
use crate::engine::RecordMut;
use crate::engine::deferred::{Decode, Refusal};
use crate::engine::simd::decode::Decoder;
use crate::error::Error;
use crate::ir::network::{Network, Transform};
use crate::ir::npy::{self, Dtype};
use crate::observe::trace::{Name, Track};
use std::borrow::Cow;
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of the buffer at least; a wide record gets room for 64 bytes a number.
const BUFFER: usize = if cfg!(fuzzing) { 1 << 8 } else { 1 << 20 };

/// How the input is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// Numbers as text, separated by commas, a record a line.
    Csv,
    /// f32, little-endian.
    F32,
    /// One byte a number.
    U8,
    /// The format of the MNIST files.
    Idx,
    /// NumPy's array file.
    Npy,
}

impl Format {
    /// The format called `name` on the command line.
    pub(crate) fn parse(name: &str) -> Result<Self, String> {
        Ok(match name {
            "csv" => Format::Csv,
            "f32" => Format::F32,
            "u8" => Format::U8,
            "idx" => Format::Idx,
            "npy" => Format::Npy,
            _ => return Err(format!("expected csv, f32, u8, idx or npy, found {name:?}")),
        })
    }
}

/// What a record is made of.
#[derive(Clone, Copy)]
pub(crate) struct InputShape<'a> {
    /// Numbers of a record, or of a row of it.
    pub(crate) width: usize,
    /// Their names, or nothing: then a header may hold any names.
    pub(crate) features: &'a [Cow<'static, str>],
    /// What happens to each number of a record before it is rounded to f32.
    pub(crate) transform: &'a Transform,
    /// Of a time series: which rows are a record.
    pub(crate) rows: Option<SeriesRows>,
    /// Fields in front of the numbers of a line, which stand in front of its answer.
    pub(crate) keys: usize,
}

impl<'a> InputShape<'a> {
    /// The input of `network`.
    pub(crate) fn of(network: &'a Network) -> Self {
        let Network {
            width,
            features,
            transform,
            ..
        } = network;
        InputShape {
            width: *width,
            features,
            transform,
            rows: None,
            keys: 0,
        }
    }

    /// The same record as rows of a time series. A network's features are named once for each row,
    /// all differently: they say nothing about a header.
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

    /// What is counted in an input: `record` or `row`.
    pub(super) fn unit(&self) -> &'static str {
        if self.rows.is_some() { "row" } else { "record" }
    }
}

/// Behind a wrong count of numbers in a row of `width`: where the right one comes from.
pub(super) fn of_window(rows: Option<SeriesRows>, width: usize) -> String {
    rows.map_or(String::new(), |SeriesRows { window, .. }| {
        format!(
            " (--window {window}: a record of {} is {window} rows of {width})",
            plural((window * width) as u64, "number")
        )
    })
}

/// How the bytes of a record become the network's input.
pub(super) struct Coding {
    /// What happens to each number before it is rounded to f32.
    pub(super) transform: Transform,
    /// The elements of binary records, and whether their highest byte comes first; `None`: text.
    pub(super) binary: Option<(Dtype, bool)>,
    pub(super) decoder: Decoder,
    /// Of a time series: which rows are a record.
    pub(super) rows: Option<SeriesRows>,
    /// Fields in front of the numbers, which are not among the bytes.
    pub(super) keys: usize,
}

impl Coding {
    /// The network's input for number `x`, read as f64, at `i`.
    pub(super) fn scaled(&self, i: usize, x: f64) -> f32 {
        self.transform.apply(i, x) as f32
    }

    /// Whether numbers are taken as they are.
    pub(super) fn plain(&self) -> bool {
        self.transform == Transform::Identity
    }

    /// Writes the numbers of `bytes` as they are there. `spare` has room for as many.
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
            Some((dtype, big)) => {
                bytes
                    .chunks_exact(dtype.size())
                    .zip(values.iter_mut())
                    .for_each(|(b, x)| *x = dtype.decode(b, big));
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
            Some((dtype, big)) => binary::decode(bytes, dtype, big, self, values).is_ok(),
        }
    }

    #[cold]
    fn explain(&self, bytes: &[u8], width: usize) -> Refusal {
        let mut values = vec![0.0; width];
        let refusal = match self.binary {
            None => {
                csv::decode(bytes, self, &mut values).map_err(|m| m.refusal(bytes, width, self))
            }
            Some((dtype, big)) => {
                binary::decode(bytes, dtype, big, self, &mut values).map_err(|i| {
                    binary::not_finite(dtype.decode(&bytes[i * dtype.size()..], big), i, self)
                })
            }
        };
        refusal.expect_err("decode is the same each time")
    }
}

/// What [`RecordReader::advance`] found.
#[derive(Debug)]
pub(crate) enum Next {
    /// A whole record.
    Record,
    /// Something in place of a record that the reader can skip, and why it is none. Only where bad
    /// records are marked.
    Bad(Error),
    /// No whole record is there and the source is not ready: answer what there is, then
    /// [`RecordReader::wait`].
    Idle,
    /// The input has ended after a whole record.
    End,
}

/// Where in a source a record stands, both counted from 1.
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
    /// `place:17` or `place: record 17`.
    pub(crate) fn within(self, place: &str) -> String {
        match self {
            Position::Line(n) => format!("{place}:{n}"),
            Position::Record(n) => format!("{place}: record {n}"),
            Position::Row(n) => format!("{place}: row {n}"),
        }
    }

    /// The error that the record here is refused.
    pub(super) fn refused(self, place: &str, refusal: Refusal) -> Error {
        let number = match self {
            Position::Line(_) => format!(":{}", refusal.number),
            Position::Record(_) | Position::Row(_) => format!(", value {}", refusal.number),
        };
        Error::input(self.within(place) + &number, refusal.message)
    }
}

/// The bytes that were read and not yet used.
pub(super) struct ReadBuffer<S> {
    source: S,
    data: Box<[u8]>,
    start: usize,
    end: usize,
    /// The record that was found last; it stays until the next read.
    record: Range<usize>,
    /// What stands in front of it, where that goes in front of its answer, and with a comma behind
    /// each field.
    key: Range<usize>,
    ended: bool,
    timed: bool,
    time: Duration,
    track: Option<Track>,
}

/// What [`ReadBuffer::more`] did.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum More {
    /// There are more bytes, or the end was found.
    Read,
    /// A read would have to wait.
    NotReady,
    /// There is nothing more.
    Ended,
    /// The buffer is full.
    Full,
}

impl<S: Source> ReadBuffer<S> {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.data[self.start..self.end]
    }

    pub(super) fn consume(&mut self, n: usize) {
        self.start += n;
    }

    /// Consumes `taken` bytes; the first `length` of them are a record.
    pub(super) fn found(&mut self, length: usize, taken: usize) {
        self.found_behind(0, length, taken);
    }

    /// The same where the first `key` bytes of the `length` are its key.
    pub(super) fn found_behind(&mut self, key: usize, length: usize, taken: usize) {
        self.key = self.start..self.start + key;
        self.record = self.start + key..self.start + length;
        self.start += taken;
    }

    /// Consumes `taken` bytes that are no record and have no key.
    pub(super) fn skip(&mut self, taken: usize) {
        self.found(0, taken);
    }

    pub(super) fn capacity(&self) -> usize {
        self.data.len()
    }

    /// Whether the source has ended, so that `bytes` are the last.
    pub(super) fn ended(&self) -> bool {
        self.ended
    }

    /// Reads more bytes, if that needs no waiting.
    pub(super) fn more(&mut self) -> io::Result<More> {
        if self.ended {
            return Ok(More::Ended);
        }
        if self.bytes().len() == self.data.len() {
            return Ok(More::Full);
        }
        if !self.source.ready() {
            return Ok(More::NotReady);
        }
        let start = self.timed.then(Instant::now);
        self.fill()?;
        if let Some(start) = start {
            let took = start.elapsed();
            self.time += took;
            self.track
                .iter()
                .for_each(|track| track.span(Name::Text("read"), 0, 0, start, took));
        }
        Ok(More::Read)
    }

    /// One read, behind what there is.
    fn fill(&mut self) -> io::Result<()> {
        if self.start > 0 {
            self.data.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        match self.source.read(&mut self.data[self.end..]) {
            Ok(n) => {
                self.end += n;
                self.ended = n == 0;
                Ok(())
            }
            // Somebody who shares the pipe or terminal was faster.
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(e) => Err(e),
        }
    }
}

/// What the readers of the formats need to know of their surroundings.
pub(super) struct ReaderContext<'a> {
    pub(super) place: String,
    pub(super) shape: InputShape<'a>,
    /// Whether bad records are marked and skipped.
    pub(super) mark: bool,
}

impl ReaderContext<'_> {
    /// Record `n` of a binary input, from 1, or row.
    pub(super) fn position(&self, n: u64) -> Position {
        if self.shape.rows.is_some() {
            Position::Row(n)
        } else {
            Position::Record(n)
        }
    }

    /// An error at a record (from 1).
    pub(super) fn at_record(&self, record: u64, message: impl Into<String>) -> Error {
        Error::input(self.position(record).within(&self.place), message)
    }

    pub(super) fn io(&self, e: io::Error) -> Error {
        Error::io(&self.place, e)
    }
}

/// What the records of an input are made of.
fn coding(shape: InputShape<'_>, decoder: &InputDecoder) -> Coding {
    let binary = match decoder {
        InputDecoder::Binary(binary) => Some(binary.elements()),
        InputDecoder::Start | InputDecoder::Csv(_) => None,
    };
    Coding {
        transform: shape.transform.clone(),
        binary,
        decoder: Decoder::detect(),
        rows: shape.rows,
        keys: shape.keys,
    }
}

/// How the bytes of an input become records.
enum InputDecoder {
    /// The format is not known yet.
    Start,
    Csv(Csv),
    Binary(Binary),
}

/// Finds records in a source. Allocates when it is made, for a file's header and for an error,
/// never for a record.
pub(crate) struct RecordReader<'a, S> {
    buffer: ReadBuffer<S>,
    context: ReaderContext<'a>,
    format: Option<Format>,
    decoder: InputDecoder,
    coding: Arc<dyn Decode>,
    /// The record at hand, where its place in the batch is not one piece.
    values: Box<[f32]>,
    series: Option<TimeSeries>,
}

impl<'a, S: Source> RecordReader<'a, S> {
    /// Bytes of its buffer, for records of `width` numbers.
    pub(crate) fn bytes(width: usize) -> usize {
        BUFFER.max(64 * width)
    }

    /// A reader of `source`, called `place` in messages. Without a `format` the first bytes tell
    /// it.
    pub(crate) fn new(
        source: S,
        place: String,
        format: Option<Format>,
        shape: InputShape<'a>,
    ) -> Self {
        let data = vec![0; Self::bytes(shape.width)].into_boxed_slice();
        let buffer = ReadBuffer {
            source,
            data,
            start: 0,
            end: 0,
            record: 0..0,
            key: 0..0,
            ended: false,
            timed: false,
            time: Duration::ZERO,
            track: None,
        };
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

    /// Goes on with another source, in the same buffer.
    pub(crate) fn reopen(&mut self, source: S, place: String) {
        let w = &mut self.buffer;
        w.source = source;
        (w.start, w.end, w.ended) = (0, 0, false);
        self.context.place = place;
        self.decoder = InputDecoder::Start;
    }

    /// Says from now on what is none where a record should be, and goes on behind it, or not.
    pub(crate) fn set_mark(&mut self, mark: bool) {
        self.context.mark = mark;
    }

    /// Takes the time of reads from now on, or not, and keeps each on `track`.
    pub(crate) fn set_timed(&mut self, timed: bool, track: Option<Track>) {
        self.buffer.timed = timed;
        self.buffer.track = track;
    }

    /// Time spent in reads that did not have to wait, since the last call.
    pub(crate) fn take_read_time(&mut self) -> Duration {
        std::mem::take(&mut self.buffer.time)
    }

    /// Where the last record stands.
    pub(crate) fn position(&self) -> Position {
        match &self.decoder {
            InputDecoder::Start => Position::Record(0),
            InputDecoder::Csv(csv) => Position::Line(csv.line()),
            InputDecoder::Binary(binary) => self.context.position(binary.record()),
        }
    }

    /// Finds the next record, without waiting for input. Of a time series that is the last of its
    /// rows.
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
                    let bytes = &self.buffer.data[self.buffer.record.clone()];
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

    /// Rows at the end of a time series that are part of no record. After [`Next::End`].
    pub(crate) fn left(&self) -> usize {
        self.series.as_ref().map_or(0, TimeSeries::left)
    }

    /// Finds the next record, or row of a record.
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

    /// The input ends before its header does.
    fn no_header(&self) -> Result<Next, Error> {
        match &self.decoder {
            InputDecoder::Binary(binary) => binary.end(&self.buffer, &self.context),
            // `start` decides at the end, and needs few bytes.
            InputDecoder::Start | InputDecoder::Csv(_) => {
                unreachable!("the start of text needs no header")
            }
        }
    }

    /// The bytes of the record that was found last, and what they mean. They stay until `advance`
    /// or `wait`. `None` where a record has several rows, which are decoded as they come.
    pub(crate) fn record(&self) -> Option<(&Arc<dyn Decode>, &[u8])> {
        let bytes = &self.buffer.data[self.buffer.record.clone()];
        self.series.is_none().then_some((&self.coding, bytes))
    }

    /// The first fields of the line that was found last, with a comma behind each, where they go in
    /// front of its answer; of a line that has too few nothing. They stay as long as the record.
    pub(crate) fn key(&self) -> &[u8] {
        &self.buffer.data[self.buffer.key.clone()]
    }

    /// Writes the numbers of the record that was found last.
    pub(crate) fn decode(&mut self, record: &mut RecordMut<'_>) -> Result<(), Error> {
        if let Some(series) = &self.series {
            return series.write(&self.context.place, record);
        }
        let bytes = &self.buffer.data[self.buffer.record.clone()];
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

    /// Waits for more input, or for a signal. After [`Next::Idle`] only.
    pub(crate) fn wait(&mut self) -> Result<(), Error> {
        if !self.buffer.source.wait() {
            return Ok(());
        }
        self.buffer.fill().map_err(|e| self.context.io(e))
    }

    /// How the input is decoded, once the bytes tell it.
    fn start(&self) -> Result<Option<InputDecoder>, Error> {
        let (bytes, ended) = (self.buffer.bytes(), self.buffer.ended());
        let found = match self.format {
            Some(Format::U8) => raw(bytes, ended, BinaryFormat::U8, self.context.shape.width),
            Some(Format::F32) => raw(bytes, ended, BinaryFormat::F32, self.context.shape.width),
            Some(format) => known(bytes, ended, format),
            None => detect(bytes, ended),
        };
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
            let message = "--key needs lines of text: expected CSV, found a NumPy or idx file; leave out --key";
            return Err(Error::input(&self.context.place, message));
        }
        Ok(Some(InputDecoder::Binary(Binary::new(kind))))
    }
}

/// What an input begins with.
#[derive(Debug, PartialEq, Eq)]
enum Start {
    /// Text, after a byte order mark of `mark` bytes.
    Text {
        mark: usize,
    },
    Binary(BinaryFormat),
    Foreign(ForeignFile),
}

/// Files that people pass by mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ForeignFile {
    Gzip,
    Zip,
    Utf16,
    /// Packed in another way: its name, and the program that unpacks it.
    Packed(&'static str, &'static str),
    /// An image, a film or a sound.
    Media(&'static str),
    Other(&'static str),
    /// A file with a header where raw records were asked for.
    Headed(&'static str),
}

const GZIP: &[u8] = b"\x1f\x8b";
const UTF16: [&[u8]; 2] = [b"\xff\xfe", b"\xfe\xff"];
const UTF8_MARK: &[u8] = b"\xef\xbb\xbf";

/// Beginnings that neither text nor, by any likelihood, raw records have.
const FOREIGN: [(&[u8], ForeignFile); 16] = [
    (b"PK\x03\x04", ForeignFile::Zip),
    (b"\xfd7zXZ\0", ForeignFile::Packed("xz", "xz -dc")),
    (b"\x28\xb5\x2f\xfd", ForeignFile::Packed("zstd", "zstd -dc")),
    (b"BZh91AY&SY", ForeignFile::Packed("bzip2", "bzip2 -dc")),
    (b"\x89PNG\r\n\x1a\n", ForeignFile::Media("a PNG image")),
    (b"\xff\xd8\xff\xe0", ForeignFile::Media("a JPEG image")),
    (b"\xff\xd8\xff\xe1", ForeignFile::Media("a JPEG image")),
    (b"\xff\xd8\xff\xdb", ForeignFile::Media("a JPEG image")),
    (b"GIF89a", ForeignFile::Media("a GIF image")),
    (b"GIF87a", ForeignFile::Media("a GIF image")),
    (b"II*\0\x08\0\0\0", ForeignFile::Media("a TIFF image")),
    (b"RIFF", ForeignFile::Media("a RIFF file (WAV, AVI, WebP)")),
    (b"\x1aE\xdf\xa3", ForeignFile::Media("a Matroska film")),
    (b"\x89HDF\r\n\x1a\n", ForeignFile::Other("an HDF5 file")),
    (b"%PDF-", ForeignFile::Other("a PDF")),
    (b"\x7fELF", ForeignFile::Other("a program")),
];

impl ForeignFile {
    /// What to do with `file`; `format` is the option that goes on with what is made of it.
    fn advice(self, file: impl fmt::Display, format: &str) -> String {
        let next = format!("| mortonnet{format}");
        match self {
            ForeignFile::Gzip => format!("this looks like gzip: gunzip -c {file} {next}"),
            ForeignFile::Zip => {
                format!(
                    "this looks like a zip or npz archive: unzip -p {file} NAME.npy | mortonnet"
                )
            }
            ForeignFile::Utf16 => {
                format!("this looks like UTF-16: iconv -f UTF-16 -t UTF-8 {file} | mortonnet")
            }
            ForeignFile::Packed(name, program) => {
                format!("this looks like {name}: {program} {file} {next}")
            }
            ForeignFile::Media(name) => format!(
                "this looks like {name}, expected the numbers of records; the gray pixels of an \
                 image that has the network's size: ffmpeg -i {file} -f rawvideo -pix_fmt gray - \
                 | mortonnet -f u8"
            ),
            ForeignFile::Other(name) => {
                format!("this looks like {name}, expected the numbers of records")
            }
            ForeignFile::Headed(name) => {
                format!(
                    "this looks like {name} file, expected raw records without a header; without\
                     {format} the header is read"
                )
            }
        }
    }
}

/// Whether `bytes` start with `magic`; `None` where more bytes must tell.
fn starts(bytes: &[u8], magic: &[u8], ended: bool) -> Option<bool> {
    let n = bytes.len().min(magic.len());
    if bytes[..n] != magic[..n] || (n < magic.len() && ended) {
        Some(false)
    } else {
        (n == magic.len()).then_some(true)
    }
}

/// The first of a table whose beginning `bytes` have; `None` where more bytes must tell.
fn one_of(
    table: &[(&[u8], ForeignFile)],
    bytes: &[u8],
    ended: bool,
) -> Option<Option<ForeignFile>> {
    for (magic, foreign) in table {
        if starts(bytes, magic, ended)? {
            return Some(Some(*foreign));
        }
    }
    Some(None)
}

fn foreign(bytes: &[u8], ended: bool) -> Option<Option<ForeignFile>> {
    const ENCODED: [(&[u8], ForeignFile); 3] = [
        (GZIP, ForeignFile::Gzip),
        (UTF16[0], ForeignFile::Utf16),
        (UTF16[1], ForeignFile::Utf16),
    ];
    match one_of(&ENCODED, bytes, ended)? {
        None => one_of(&FOREIGN, bytes, ended),
        found => Some(found),
    }
}

/// How an input of raw records of `width` numbers begins. The first record tells, and is not kept
/// waiting. Bytes behind it are not looked at, even where they are there: the answer must not
/// depend on how fast they come.
fn raw(bytes: &[u8], ended: bool, kind: BinaryFormat, width: usize) -> Option<Start> {
    // More bytes than those of text: a record may well begin with two of them.
    const HEADED: [(&[u8], ForeignFile); 2] = [
        (b"\x1f\x8b\x08", ForeignFile::Gzip),
        (npy::MAGIC, ForeignFile::Headed("an npy")),
    ];
    let size = if kind == BinaryFormat::U8 {
        width
    } else {
        4 * width
    };
    let ended = ended || bytes.len() >= size;
    let bytes = &bytes[..bytes.len().min(size)];
    for table in [&HEADED[..], &FOREIGN] {
        if let Some(foreign) = one_of(table, bytes, ended)? {
            return Some(Start::Foreign(foreign));
        }
    }
    Some(match super::binary::is_idx_of(bytes, width) {
        true => Start::Foreign(ForeignFile::Headed("an idx")),
        false => Start::Binary(kind),
    })
}

fn text(bytes: &[u8], ended: bool) -> Option<Start> {
    if let Some(foreign) = foreign(bytes, ended)? {
        return Some(Start::Foreign(foreign));
    }
    let mark = if starts(bytes, UTF8_MARK, ended)? {
        UTF8_MARK.len()
    } else {
        0
    };
    Some(Start::Text { mark })
}

/// How an input of `format` (a text or one with a header) begins.
fn known(bytes: &[u8], ended: bool, format: Format) -> Option<Start> {
    let kind = match format {
        Format::Npy => BinaryFormat::Npy,
        Format::Idx => BinaryFormat::Idx,
        _ => return text(bytes, ended),
    };
    let foreign = foreign(bytes, ended)?;
    Some(foreign.map_or(Start::Binary(kind), Start::Foreign))
}

/// How an input of unknown format begins: `None` until enough bytes are there.
fn detect(bytes: &[u8], ended: bool) -> Option<Start> {
    if starts(bytes, npy::MAGIC, ended)? {
        return Some(Start::Binary(BinaryFormat::Npy));
    }
    if starts(bytes, &[0, 0], ended)? {
        match bytes.get(2..4) {
            Some(&[code, 1..=255]) if super::binary::idx_type(code).is_some() => {
                return Some(Start::Binary(BinaryFormat::Idx));
            }
            None if !ended => return None,
            _ => {}
        }
    }
    text(bytes, ended)
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
            Format::Idx,
            Format::Npy,
        ];
        assert_eq!(
            ["csv", "f32", "u8", "idx", "npy"].map(Format::parse),
            all.map(Ok)
        );
        for wrong in ["", "CSV", "f64"] {
            assert!(
                Format::parse(wrong)
                    .unwrap_err()
                    .contains("expected csv, f32, u8, idx or npy")
            );
        }
    }

    /// The names of a record's numbers are no names of columns, unless a record is one row.
    #[test]
    fn rows_share_the_numbers_of_a_record() {
        let features = ["a", "b", "c", "d"].map(Cow::from);
        let transform = Transform::Identity;
        let shape = InputShape {
            width: 4,
            features: &features,
            transform: &transform,
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
    fn the_format_is_told_as_soon_as_the_bytes_allow() {
        let csv = Some(Start::Text { mark: 0 });
        let cases: [(&[u8], usize, Option<Start>); 11] = [
            (b"1,2", 1, csv),
            (b"\x93NUMPY\x01", 6, Some(Start::Binary(BinaryFormat::Npy))),
            (b"\x93NUMBER", 5, Some(Start::Text { mark: 0 })),
            (b"\0\0\x08\x03\0", 4, Some(Start::Binary(BinaryFormat::Idx))),
            (b"\0\0\x0a\x03\0", 4, Some(Start::Text { mark: 0 })),
            (b"\x1f\x8b\x08", 2, Some(Start::Foreign(ForeignFile::Gzip))),
            (b"\xef\xbb\xbf1", 3, Some(Start::Text { mark: 3 })),
            (b"PK\x03\x04", 4, Some(Start::Foreign(ForeignFile::Zip))),
            (b"\xff\xfe1\0", 2, Some(Start::Foreign(ForeignFile::Utf16))),
            (
                b"\xff\xd8\xff\xdb",
                4,
                Some(Start::Foreign(ForeignFile::Media("a JPEG image"))),
            ),
            (
                b"\x7fELF",
                4,
                Some(Start::Foreign(ForeignFile::Other("a program"))),
            ),
        ];
        for (bytes, needed, expected) in cases {
            for n in 0..needed {
                assert_eq!(detect(&bytes[..n], false), None, "{bytes:?} {n}");
                assert!(detect(&bytes[..n], true).is_some(), "{bytes:?} {n}");
            }
            assert_eq!(detect(&bytes[..needed], false), expected, "{bytes:?}");
            assert_eq!(detect(bytes, true), expected, "{bytes:?}");
        }
    }

    /// Files with a magic number are no raw records; a record that is there as a whole is not kept
    /// waiting for one.
    #[test]
    fn raw_records_are_told_from_files() {
        let idx = b"\0\0\x08\x03\0\0\0\x05\0\0\0\x04\0\0\0\x04rest";
        let told = |bytes: &[u8], kind| raw(bytes, false, kind, 16);
        for kind in [BinaryFormat::U8, BinaryFormat::F32] {
            for (magic, found) in FOREIGN {
                let bytes = [
                    magic,
                    b"more than a record of sixteen numbers, which may be floats",
                ]
                .concat();
                assert_eq!(told(&bytes, kind), Some(Start::Foreign(found)));
            }
            assert_eq!(
                told(b"\x93NUMPY\x01\0v\0", kind),
                Some(Start::Foreign(ForeignFile::Headed("an npy")))
            );
            assert_eq!(
                told(b"\x1f\x8b\x08\0....", kind),
                Some(Start::Foreign(ForeignFile::Gzip))
            );
            assert_eq!(
                told(idx, kind),
                Some(Start::Foreign(ForeignFile::Headed("an idx")))
            );
            // An image that begins alike, but has other sizes behind it.
            assert_eq!(
                told(b"\0\0\x08\x03\0\0\0\x05\0\0\0\x04\0\0\0\x05rest", kind),
                Some(Start::Binary(kind))
            );
            assert_eq!(told(b"\x1f\x8b\x07", kind), Some(Start::Binary(kind)));
            assert_eq!(told(b"\0", kind), Some(Start::Binary(kind)));
            assert_eq!(told(b"\x89PN", kind), None);
            assert_eq!(raw(b"\x89PN", true, kind, 8), Some(Start::Binary(kind)));
        }
        assert_eq!(
            raw(b"\x89PN", false, BinaryFormat::U8, 3),
            Some(Start::Binary(BinaryFormat::U8))
        );
        // Bytes behind the first record do not matter: they may come later.
        assert_eq!(
            raw(b"RIFF....", false, BinaryFormat::U8, 3),
            Some(Start::Binary(BinaryFormat::U8))
        );
        assert_eq!(
            raw(b"RIFF....", false, BinaryFormat::U8, 4)
                .map(|s| s != Start::Binary(BinaryFormat::U8)),
            Some(true)
        );
    }

    #[test]
    fn formats_have_names() {
        assert_eq!(Format::parse("idx"), Ok(Format::Idx));
        assert_eq!(
            Format::parse("f16").unwrap_err(),
            "expected csv, f32, u8, idx or npy, found \"f16\""
        );
    }
}
