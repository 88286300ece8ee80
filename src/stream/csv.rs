//! Finds and decodes records of text: one on each line, numbers separated by commas.

use super::buffer::{More, ReadBuffer};
use super::number::{self, Number};
use super::reader::{Coding, InputShape, Next, ReaderContext, of_window};
use super::series::SeriesRows;
use super::source::Source;
use crate::error::Error;
use crate::simd::deferred::Refusal;
use crate::sys::io::find;
use std::borrow::Cow;
use std::cell::Cell;

#[cfg(test)]
mod tests;

/// The most characters of a field that an error message shows.
const SHOWN: usize = 32;

/// A reader of records that are lines of text.
pub(super) struct Csv {
    /// The number of bytes of a byte order mark at the start of the input that must still be
    /// skipped.
    mark: usize,
    /// The number of lines read so far.
    line: u64,
    /// True once the first line that is not blank was read. Only that line may be a header.
    begun: bool,
    /// The number of bytes of the unfinished line that were searched for a line end. They are not
    /// searched again.
    searched: usize,
    /// True if the unfinished line does not fit into the buffer. The rest of the line is skipped.
    skipping: bool,
}

impl Csv {
    pub(super) fn new(mark: usize) -> Self {
        Csv {
            mark,
            line: 0,
            begun: false,
            searched: 0,
            skipping: false,
        }
    }

    /// Returns the number of the line that was read last, from 1.
    pub(super) fn line(&self) -> u64 {
        self.line
    }

    /// Finds the next record.
    pub(super) fn next<S: Source>(
        &mut self,
        buffer: &mut ReadBuffer<S>,
        context: &ReaderContext<'_>,
    ) -> Result<Next, Error> {
        buffer.consume(std::mem::take(&mut self.mark));
        loop {
            let bytes = buffer.bytes();
            let end = find(&bytes[self.searched..], b'\n');
            let taken = end.map_or(bytes.len(), |n| self.searched + n + 1);
            if end.is_some() || (buffer.ended() && taken > 0) {
                self.searched = 0;
                self.line += 1;
                let text = line(&bytes[..taken]);
                let length = text.len();
                if std::mem::take(&mut self.skipping) || trim(text).is_empty() {
                    buffer.skip(taken);
                    continue;
                }
                let Some(key) = key(text, context.shape.keys) else {
                    let why = self.no_key(text, context);
                    buffer.skip(taken);
                    self.begun = true;
                    return if context.mark {
                        Ok(Next::Bad(why))
                    } else {
                        Err(why)
                    };
                };
                let found = self.header(&text[key..], context)?;
                buffer.found_behind(key, length, taken);
                match found {
                    Some(next) => return Ok(next),
                    None => continue,
                }
            }
            self.searched = taken;
            match buffer.more().map_err(|e| context.io(e))? {
                More::Read => {}
                More::NotReady => return Ok(Next::Idle),
                More::Ended => return Ok(Next::End),
                More::Full if self.skipping => {
                    buffer.skip(taken);
                    self.searched = 0;
                }
                More::Full => {
                    let why = self.too_long(buffer, context);
                    if !context.mark {
                        return Err(why);
                    }
                    buffer.skip(taken);
                    (self.searched, self.begun, self.skipping) = (0, true, true);
                    return Ok(Next::Bad(why));
                }
            }
        }
    }

    /// Decides if `line` is a record or a header. Returns [`Next::Record`] for a record, and `None`
    /// for a correct header. Returns [`Next::Bad`] or an error for a wrong header.
    ///
    /// A header of the right length with other names than the features is always an error, because
    /// the columns of all records would be wrong. A header of another length is a bad record if bad
    /// records are marked, because the length of each later record is checked, too.
    fn header(&mut self, line: &[u8], context: &ReaderContext<'_>) -> Result<Option<Next>, Error> {
        if std::mem::replace(&mut self.begun, true) || !is_header(line, context.shape.features) {
            return Ok(Some(Next::Record));
        }
        let Err(mistake) = check_header(line, &context.shape) else {
            return Ok(None);
        };
        let InputShape {
            width,
            features,
            rows,
            keys,
            ..
        } = context.shape;
        let message = mistake.message(line, width, features, true, rows, keys);
        let why = Error::input(
            format!("{}:{}:{}", context.place, self.line, keys + mistake.field),
            message,
        );
        if context.mark && CsvField::all(line).count() != context.shape.width {
            return Ok(Some(Next::Bad(why)));
        }
        Err(why)
    }

    #[cold]
    fn no_key(&self, line: &[u8], context: &ReaderContext<'_>) -> Error {
        let InputShape { width, keys, .. } = context.shape;
        let found = CsvField::all(line).count();
        let message = format!(
            "expected {} (--key {keys}) and {}, the line has {}",
            plural(keys as u64, "key field"),
            plural(width as u64, "number"),
            plural(found as u64, "field")
        );
        Error::input(
            format!("{}:{}:{}", context.place, self.line, found + 1),
            message,
        )
    }

    #[cold]
    fn too_long<S: Source>(&self, buffer: &ReadBuffer<S>, context: &ReaderContext<'_>) -> Error {
        let hint = if is_binary(buffer.bytes()) {
            BINARY
        } else {
            ""
        };
        let message = format!(
            "expected a line of at most {} bytes, found a longer one{hint}",
            buffer.capacity() - 1
        );
        Error::input(format!("{}:{}", context.place, self.line + 1), message)
    }
}

/// Returns a line without its line end (`\n` or `\r\n`).
fn line(bytes: &[u8]) -> &[u8] {
    let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    bytes.strip_suffix(b"\r").unwrap_or(bytes)
}

/// Returns the length of the first `fields` fields of a line, with the comma after each. `None` if
/// no field follows these fields.
fn key(line: &[u8], fields: usize) -> Option<usize> {
    let last = fields.checked_sub(1);
    let end = last.map_or(Some(0), |last| {
        CsvField::all(line).nth(last).map(|field| field.end + 1)
    });
    end.filter(|&end| end <= line.len())
}

fn is_blank(b: u8) -> bool {
    b == b' ' || b == b'\t'
}

/// Returns `text` without blanks around it.
fn trim(text: &[u8]) -> &[u8] {
    let from = text
        .iter()
        .position(|&b| !is_blank(b))
        .unwrap_or(text.len());
    let to = text
        .iter()
        .rposition(|&b| !is_blank(b))
        .map_or(from, |i| i + 1);
    &text[from..to]
}

/// Returns the position of the first byte from `at` on that is no blank.
#[inline(always)]
fn skip_blanks(line: &[u8], mut at: usize) -> usize {
    while line.get(at).is_some_and(|&b| is_blank(b)) {
        at += 1;
    }
    at
}

/// Decodes the numbers of a line into `values`, and applies the transform of `coding`.
pub(super) fn decode(line: &[u8], coding: &Coding, values: &mut [f32]) -> Result<(), Mistake> {
    if coding.plain() {
        numbers(line, coding, values, |_, x: f32| x)
    } else {
        numbers(line, coding, values, |i, x: f64| coding.scaled(i, x))
    }
}

/// Decodes the numbers of a line into `values`, without the transform of `coding`. `spare` is
/// scratch memory of the same length.
pub(super) fn decode_raw(
    line: &[u8],
    coding: &Coding,
    values: &mut [f64],
    spare: &mut [f32],
) -> Result<(), Mistake> {
    let values = Cell::from_mut(values).as_slice_of_cells();
    numbers(line, coding, spare, |i, x: f64| {
        values[i].set(x);
        // Numbers that do not fit f32 pass here, because the transform may make them fit.
        if x.is_finite() { 0.0 } else { f32::NAN }
    })
}

/// After vector code has read a run of fields, this number of fields is read one by one. Then
/// vector code is tried again. It reads only runs of short whole numbers.
const ONE_BY_ONE: usize = 32;

/// Decodes the fields of a line into `values`. The line must have exactly as many fields as
/// `values`. `scaled(i, x)` transforms number `i`, which is `x`.
#[inline(always)]
fn numbers<N: Number>(
    line: &[u8],
    coding: &Coding,
    values: &mut [f32],
    scaled: impl Fn(usize, N) -> f32,
) -> Result<(), Mistake> {
    let width = values.len();
    let (mut at, mut i, mut run) = (0, 0, 0);
    while i < width {
        if at > line.len() {
            return Err(Mistake::new(i + 1, MistakeKind::TooFew));
        }
        if i == run {
            let (count, bytes) = coding.decoder.integers(&line[at..], &mut values[i..]);
            if N::SCALED {
                for (j, value) in values.iter_mut().enumerate().skip(i).take(count) {
                    *value = finite(j, scaled(j, N::small(*value)))?;
                }
            }
            i += count;
            at += bytes;
            run = i + ONE_BY_ONE;
            continue;
        }
        let quick = number::small::<N>(line, at).or_else(|| {
            let start = skip_blanks(line, at);
            let (value, length) = number::quick::<N>(&line[start..])?;
            let end = skip_blanks(line, start + length);
            line.get(end)
                .is_none_or(|&b| b == b',')
                .then_some((value, end))
        });
        let (value, end) = match quick {
            Some(found) => found,
            None => {
                let field = CsvField::at(line, at);
                let value = number::parse::<N>(trim(field.content));
                (
                    value.ok_or(Mistake::new(i + 1, MistakeKind::NotANumber))?,
                    field.end,
                )
            }
        };
        values[i] = finite(i, scaled(i, value))?;
        i += 1;
        // Skips the comma. After the last field, `at` is now beyond the line's end, so no field
        // follows.
        at = end + 1;
    }
    if at <= line.len() {
        return Err(Mistake::new(width + 1, MistakeKind::TooMany));
    }
    Ok(())
}

#[inline(always)]
fn finite(i: usize, x: f32) -> Result<f32, Mistake> {
    if x.is_finite() {
        Ok(x)
    } else {
        Err(Mistake::new(i + 1, MistakeKind::NotFinite))
    }
}

/// A field of a line, between commas. Commas inside quotes do not end a field.
pub(super) struct CsvField<'a> {
    /// The text of the field without blanks and quotes around it.
    content: &'a [u8],
    /// The position of the comma behind the field, or the end of the line.
    end: usize,
}

impl<'a> CsvField<'a> {
    /// Returns the field that starts at position `at` of a line. A field with wrong quotes ends at
    /// the next comma and keeps its quotes.
    fn at(line: &'a [u8], at: usize) -> Self {
        let start = skip_blanks(line, at);
        if line.get(start) == Some(&b'"') {
            let mut i = start + 1;
            while let Some(&b) = line.get(i) {
                match (b, line.get(i + 1)) {
                    (b'"', Some(b'"')) => i += 2,
                    (b'"', _) => {
                        let end = skip_blanks(line, i + 1);
                        if line.get(end).is_none_or(|&b| b == b',') {
                            return CsvField {
                                content: &line[start + 1..i],
                                end,
                            };
                        }
                        break;
                    }
                    _ => i += 1,
                }
            }
        }
        let end = line[at..]
            .iter()
            .position(|&b| b == b',')
            .map_or(line.len(), |n| at + n);
        CsvField {
            content: trim(&line[at..end]),
            end,
        }
    }

    /// Returns all fields of a line. An empty line has one empty field.
    pub(super) fn all(line: &'a [u8]) -> impl Iterator<Item = CsvField<'a>> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let field = (at <= line.len()).then(|| CsvField::at(line, at))?;
            at = field.end + 1;
            Some(field)
        })
    }

    /// Returns the field's text. Doubled quotes become single ones.
    pub(super) fn text(&self) -> Cow<'a, str> {
        let text = String::from_utf8_lossy(self.content);
        if text.contains("\"\"") {
            text.replace("\"\"", "\"").into()
        } else {
            text
        }
    }

    fn is_number(&self) -> bool {
        number::parse::<f64>(trim(self.content)).is_some()
    }
}

/// The words that programs write in place of a missing number, in lower case.
const MISSING: [&[u8]; 8] = [
    b"na", b"n/a", b"nan", b"null", b"none", b"nil", b"?", b"inf",
];

/// Returns true if the first line is a header. A line that is not binary is a header in either of
/// two cases:
///
/// - One of its fields is the name of a feature and no number. The build refuses networks whose
///   features are all numbers.
/// - None of its fields is a number, and not all of them begin like numbers or stand for a missing
///   one. So a damaged first record is an error, not a header.
fn is_header(line: &[u8], features: &[Cow<'_, str>]) -> bool {
    let named = |f: CsvField<'_>| !f.is_number() && features.contains(&f.text());
    let like_a_number = |f: CsvField<'_>| {
        let text = trim(f.content);
        matches!(text.first(), None | Some(b'0'..=b'9' | b'+' | b'-' | b'.'))
            || MISSING.contains(&text.to_ascii_lowercase().as_slice())
    };
    let unnumbered =
        || !CsvField::all(line).any(|f| f.is_number()) && !CsvField::all(line).all(like_a_number);
    !is_binary(line) && (CsvField::all(line).any(named) || unnumbered())
}

/// Checks that a header has as many fields as a record has numbers. If the features have names, the
/// fields must be these names.
fn check_header(line: &[u8], shape: &InputShape<'_>) -> Result<(), Mistake> {
    let mut found = 0;
    for field in CsvField::all(line) {
        if shape
            .features
            .get(found)
            .is_some_and(|name| *name != field.text())
        {
            return Err(Mistake::new(found + 1, MistakeKind::OtherName));
        }
        found += 1;
        if found > shape.width {
            return Err(Mistake::new(found, MistakeKind::TooManyNames));
        }
    }
    if found < shape.width {
        return Err(Mistake::new(found + 1, MistakeKind::TooFewNames));
    }
    Ok(())
}

/// A mistake in a line. Its message is made only when it is printed.
pub(super) struct Mistake {
    /// The number of the wrong field, from 1. Key fields do not count.
    field: usize,
    what: MistakeKind,
}

#[derive(Clone, Copy, PartialEq)]
enum MistakeKind {
    NotANumber,
    NotFinite,
    TooFew,
    TooMany,
    OtherName,
    TooFewNames,
    TooManyNames,
}

const BINARY: &str = " (this looks like binary data: -f u8 or -f f32 reads raw records)";

impl Mistake {
    fn new(field: usize, what: MistakeKind) -> Mistake {
        Mistake { field, what }
    }

    /// Returns the reason why `line`, a record of `width` numbers, is refused.
    pub(super) fn refusal(&self, line: &[u8], width: usize, coding: &Coding) -> Refusal {
        let message = self.message(line, width, &[], coding.plain(), coding.rows, coding.keys);
        Refusal {
            number: coding.keys + self.field,
            message,
        }
    }

    /// Returns the message about this mistake. `plain` is true if numbers are not transformed.
    /// `rows` is set if the line is a row of a time series. `keys` is the number of key fields in
    /// front of `line`.
    #[cold]
    fn message(
        &self,
        line: &[u8],
        width: usize,
        features: &[Cow<'_, str>],
        plain: bool,
        rows: Option<SeriesRows>,
        keys: usize,
    ) -> String {
        let text = CsvField::all(line)
            .nth(self.field - 1)
            .map(|f| f.text())
            .unwrap_or_default();
        let found = shown(&text);
        let message = match self.what {
            MistakeKind::NotANumber => format!("expected a number, found {found}"),
            MistakeKind::NotFinite => not_finite(text.trim(), &found, plain),
            MistakeKind::TooFew => {
                format!(
                    "expected {}, the line has {}",
                    plural(width as u64, "number"),
                    self.field - 1
                )
            }
            MistakeKind::TooMany => {
                format!(
                    "expected {}, found a {}: {found}",
                    plural(width as u64, "number"),
                    ordinal(self.field)
                )
            }
            MistakeKind::OtherName => {
                let name = shown(&features[self.field - 1]);
                let names: Vec<Cow<'_, str>> = CsvField::all(line).map(|f| f.text()).collect();
                format!(
                    "expected the feature {name}, found {found}{}",
                    other_names(&names, features, keys)
                )
            }
            MistakeKind::TooFewNames => {
                format!(
                    "expected {}, the header has {}",
                    plural(width as u64, "name"),
                    self.field - 1
                )
            }
            MistakeKind::TooManyNames => {
                format!(
                    "expected {}, the header has a {}: {found}",
                    plural(width as u64, "name"),
                    ordinal(self.field)
                )
            }
        };
        let count = match self.what {
            MistakeKind::NotANumber | MistakeKind::NotFinite | MistakeKind::OtherName => {
                String::new()
            }
            _ => of_window(rows, width) + &of_keys(keys),
        };
        message + &count + advice(line, self.what, width)
    }
}

/// Returns the end of a message about a wrong count of numbers. It says that the key fields are not
/// counted. Empty without key fields.
fn of_keys(keys: usize) -> String {
    match keys {
        0 => String::new(),
        _ => format!(
            " (after {}: --key {keys})",
            plural(keys as u64, "key field")
        ),
    }
}

/// Returns a hint if a header has the names of all features, but in another order or after other
/// columns. Otherwise returns an empty text.
fn other_names(names: &[Cow<'_, str>], features: &[Cow<'_, str>], keys: usize) -> String {
    let sorted = |names: &[Cow<'_, str>]| {
        let mut names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
        names.sort_unstable();
        names
    };
    match names.len().checked_sub(features.len()) {
        Some(0) if sorted(names) == sorted(features) => {
            " (the header has all features, but in another order: put the columns in the order \
             that --info shows)"
                .into()
        }
        Some(more @ 1..) if names[more..] == *features => {
            let (columns, them) = match more {
                1 if names[0].is_empty() => (
                    "one more column stands before the features, perhaps \
                    an index"
                        .into(),
                    "it",
                ),
                1 => ("one more column stands before the features".into(), "it"),
                _ => (
                    format!("{more} more columns stand before the features"),
                    "them",
                ),
            };
            format!(
                " ({columns}: --key {} puts {them} in front of the answers)",
                keys + more
            )
        }
        _ => String::new(),
    }
}

fn not_finite(text: &str, found: &str, plain: bool) -> String {
    match text.parse::<f64>() {
        Ok(x) if x.is_finite() && plain => {
            format!("expected a number that fits f32, found {found}")
        }
        Ok(x) if x.is_finite() => {
            format!("expected a number that fits f32 after the input scaling, found {found}")
        }
        _ => format!("expected a finite number, found {found}"),
    }
}

/// Returns a hint if the line is binary, or if its numbers are not separated by commas. Otherwise
/// returns an empty text.
fn advice(line: &[u8], what: MistakeKind, width: usize) -> &'static str {
    if is_binary(line) {
        return BINARY;
    }
    let has = |b: u8| trim(line).contains(&b);
    if has(b';') {
        return if has(b',') {
            " (the line has semicolons and commas: expected commas between the numbers and points \
             before their decimals)"
        } else {
            " (the line has semicolons: expected commas between the numbers)"
        };
    }
    if has(b',')
        || width == 1
        || matches!(
            what,
            MistakeKind::TooMany | MistakeKind::TooManyNames | MistakeKind::NotFinite
        )
    {
        return "";
    }
    if has(b'\t') {
        " (the line has tabs: expected commas between the numbers)"
    } else if has(b' ') {
        " (the line has blanks: expected commas between the numbers)"
    } else {
        ""
    }
}

/// Returns true if `bytes` have control characters that do not occur in text.
fn is_binary(bytes: &[u8]) -> bool {
    bytes.iter().any(|b| matches!(b, 0..=8 | 14..=31))
}

/// Returns a text in quotes for a message, escaped and cut to [`SHOWN`] characters.
pub(super) fn shown(text: &str) -> String {
    let cut: String = text.chars().take(SHOWN).collect();
    let mut quoted = format!("{cut:?}");
    if cut.len() < text.len() {
        quoted.insert(quoted.len() - 1, '…');
    }
    quoted
}

/// Returns a count with its noun, such as `1 record` or `2 records`.
pub(super) fn plural(n: u64, what: &str) -> String {
    let s = if n == 1 { "" } else { "s" };
    format!("{n} {what}{s}")
}

/// Returns an ordinal number, such as `1st` or `2nd`.
fn ordinal(n: usize) -> String {
    let ending = match (n % 10, n % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{n}{ending}")
}
