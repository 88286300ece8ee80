//! Records as text: a line each, numbers separated by commas.

use super::number::{self, Number};
use super::reader::{Coding, InputShape, More, Next, ReadBuffer, ReaderContext, of_window};
use super::series::SeriesRows;
use super::source::Source;
use crate::engine::deferred::Refusal;
use crate::error::Error;
use crate::sys::io::find;
use std::borrow::Cow;
use std::cell::Cell;

/// Characters of a field that a message shows.
const SHOWN: usize = 32;

/// A reader of lines.
pub(super) struct Csv {
    /// Bytes of the byte order mark that are still to be skipped.
    mark: usize,
    /// Lines read.
    line: u64,
    /// Whether the first line with something on it, which may be a header, is behind us.
    begun: bool,
    /// Bytes of the unfinished line that are known to hold no line end.
    searched: usize,
    /// Whether that line was too long, and what is left of it is skipped.
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

    /// The number of the last line, from 1.
    pub(super) fn line(&self) -> u64 {
        self.line
    }

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

    /// What `line` is, unless it is the header. Where bad records are marked, a first line of words
    /// that are more or less than the inputs may be anything: the records behind it are judged by
    /// themselves. As many words that are not the names of the inputs say that the columns of all
    /// records are others.
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

/// The line without its end.
fn line(bytes: &[u8]) -> &[u8] {
    let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    bytes.strip_suffix(b"\r").unwrap_or(bytes)
}

/// Bytes of the first `fields` fields of a line, with the comma behind each; `None` where no field
/// is behind them.
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

/// `text` without blanks around it.
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

/// The position of the first byte from `at` on that is no blank.
#[inline(always)]
fn skip_blanks(line: &[u8], mut at: usize) -> usize {
    while line.get(at).is_some_and(|&b| is_blank(b)) {
        at += 1;
    }
    at
}

/// Writes the numbers of a line.
pub(super) fn decode(line: &[u8], coding: &Coding, values: &mut [f32]) -> Result<(), Mistake> {
    if coding.plain() {
        numbers(line, coding, values, |_, x: f32| x)
    } else {
        numbers(line, coding, values, |i, x: f64| coding.scaled(i, x))
    }
}

/// Writes the numbers of a line as they stand there; `spare` has room for as many.
pub(super) fn decode_raw(
    line: &[u8],
    coding: &Coding,
    values: &mut [f64],
    spare: &mut [f32],
) -> Result<(), Mistake> {
    let values = Cell::from_mut(values).as_slice_of_cells();
    numbers(line, coding, spare, |i, x: f64| {
        values[i].set(x);
        // Whether it fits f32 is told by what becomes of it.
        if x.is_finite() { 0.0 } else { f32::NAN }
    })
}

/// Fields that are read one by one before a run of plain whole numbers is looked for again.
const ONE_BY_ONE: usize = 32;

/// Reads a number for each of `values`; `scaled` is what becomes of one.
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
            return Err(Mistake {
                field: i + 1,
                what: What::TooFew,
            });
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
                    value.ok_or(Mistake {
                        field: i + 1,
                        what: What::NotANumber,
                    })?,
                    field.end,
                )
            }
        };
        values[i] = finite(i, scaled(i, value))?;
        i += 1;
        // Behind the comma; behind the end of the line there is no further field.
        at = end + 1;
    }
    if at <= line.len() {
        return Err(Mistake {
            field: width + 1,
            what: What::TooMany,
        });
    }
    Ok(())
}

#[inline(always)]
fn finite(i: usize, x: f32) -> Result<f32, Mistake> {
    if x.is_finite() {
        Ok(x)
    } else {
        Err(Mistake {
            field: i + 1,
            what: What::NotFinite,
        })
    }
}

/// The piece of a line between two commas.
pub(super) struct CsvField<'a> {
    /// Without the blanks around, and without the quotes.
    content: &'a [u8],
    /// Position of the comma, or the end of the line.
    end: usize,
}

impl<'a> CsvField<'a> {
    /// The field that starts at `at`. One whose quotes are wrong is taken up to the next comma,
    /// quotes included.
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

    /// All fields of a line: at least one.
    pub(super) fn all(line: &'a [u8]) -> impl Iterator<Item = CsvField<'a>> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let field = (at <= line.len()).then(|| CsvField::at(line, at))?;
            at = field.end + 1;
            Some(field)
        })
    }

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

/// What programs write where a number is missing, in lower case.
const MISSING: [&[u8]; 8] = [
    b"na", b"n/a", b"nan", b"null", b"none", b"nil", b"?", b"inf",
];

/// Whether the first line is a header: one of its fields is the name of a feature and no number; or
/// no field is a number, and not all of them begin as numbers do or stand for a missing one (a
/// damaged first record shall be an error, not a header). The build sees to it that not all names
/// are numbers.
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

/// A header must have the names of the network's inputs, where it has names, and as many fields as
/// there are inputs.
fn check_header(line: &[u8], shape: &InputShape<'_>) -> Result<(), Mistake> {
    let mut found = 0;
    for field in CsvField::all(line) {
        if shape
            .features
            .get(found)
            .is_some_and(|name| *name != field.text())
        {
            return Err(Mistake {
                field: found + 1,
                what: What::OtherName,
            });
        }
        found += 1;
        if found > shape.width {
            return Err(Mistake {
                field: found,
                what: What::TooManyNames,
            });
        }
    }
    if found < shape.width {
        return Err(Mistake {
            field: found + 1,
            what: What::TooFewNames,
        });
    }
    Ok(())
}

/// What is wrong with a line. The message is only made for the line that ends the program.
pub(super) struct Mistake {
    /// The field, from 1.
    field: usize,
    what: What,
}

#[derive(Clone, Copy, PartialEq)]
enum What {
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
    /// What is wrong with `line`, a record of `width` numbers.
    pub(super) fn refusal(&self, line: &[u8], width: usize, coding: &Coding) -> Refusal {
        let message = self.message(line, width, &[], coding.plain(), coding.rows, coding.keys);
        Refusal {
            number: coding.keys + self.field,
            message,
        }
    }

    /// `plain`: numbers are taken as they are; `rows`: the line is one of several of a record;
    /// `keys`: fields in front of it.
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
            What::NotANumber => format!("expected a number, found {found}"),
            What::NotFinite => not_finite(text.trim(), &found, plain),
            What::TooFew => {
                format!(
                    "expected {}, the line has {}",
                    plural(width as u64, "number"),
                    self.field - 1
                )
            }
            What::TooMany => {
                format!(
                    "expected {}, found a {}: {found}",
                    plural(width as u64, "number"),
                    ordinal(self.field)
                )
            }
            What::OtherName => {
                let name = shown(&features[self.field - 1]);
                let names: Vec<Cow<'_, str>> = CsvField::all(line).map(|f| f.text()).collect();
                format!(
                    "expected the feature {name}, found {found}{}",
                    other_names(&names, features, keys)
                )
            }
            What::TooFewNames => {
                format!(
                    "expected {}, the header has {}",
                    plural(width as u64, "name"),
                    self.field - 1
                )
            }
            What::TooManyNames => {
                format!(
                    "expected {}, the header has a {}: {found}",
                    plural(width as u64, "name"),
                    ordinal(self.field)
                )
            }
        };
        let count = match self.what {
            What::TooFew | What::TooMany | What::TooFewNames | What::TooManyNames => {
                let behind = || {
                    let fields = plural(keys as u64, "key field");
                    format!(" (after {fields}: --key {keys})")
                };
                of_window(rows, width) + &(keys > 0).then(behind).unwrap_or_default()
            }
            What::NotANumber | What::NotFinite | What::OtherName => String::new(),
        };
        message + &count + advice(line, self.what, width)
    }
}

/// What the names of a header have to do with the features that they are not.
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

/// What to do about a line that is not separated by commas.
fn advice(line: &[u8], what: What, width: usize) -> &'static str {
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
        || matches!(what, What::TooMany | What::TooManyNames | What::NotFinite)
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

/// Control characters do not occur in text.
fn is_binary(bytes: &[u8]) -> bool {
    bytes.iter().any(|b| matches!(b, 0..=8 | 14..=31))
}

/// A text in quotes, escaped, shortened.
pub(super) fn shown(text: &str) -> String {
    let cut: String = text.chars().take(SHOWN).collect();
    let mut quoted = format!("{cut:?}");
    if cut.len() < text.len() {
        quoted.insert(quoted.len() - 1, '…');
    }
    quoted
}

/// `1 record`, `2 records`.
pub(super) fn plural(n: u64, what: &str) -> String {
    let s = if n == 1 { "" } else { "s" };
    format!("{n} {what}{s}")
}

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

#[cfg(test)]
mod tests {
    use super::super::tests::{TestInput, read};
    use super::*;
    use crate::ir::network::Transform;
    use proptest::prelude::*;

    #[test]
    fn fields() {
        let all = |line: &str| {
            CsvField::all(line.as_bytes())
                .map(|f| f.text().into_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(all("a,b"), ["a", "b"]);
        assert_eq!(all(" a\t, \"b,c\" ,"), ["a", "b,c", ""]);
        assert_eq!(all("\"say \"\"x\"\"\",2"), ["say \"x\"", "2"]);
        assert_eq!(all("\"open,2"), ["\"open", "2"]);
        assert_eq!(all("\"a\"b,2"), ["\"a\"b", "2"]);
        assert_eq!(all("\"\",\""), ["", "\""]);
    }

    #[test]
    fn headers() {
        for header in ["a,b", "\"1st\",mean (mm)", "größe,2nd", "# x,y"] {
            assert!(is_header(header.as_bytes(), &[]), "{header}");
        }
        for record in [
            "1,2", "a,2", "nan,inf", ",", "1.x,2.y", "1;2", "-,+", "\"3\",x", "a\0,b",
        ] {
            assert!(!is_header(record.as_bytes(), &[]), "{record}");
        }
    }

    /// Names that begin like numbers, or are numbers, next to ones that are not.
    #[test]
    fn headers_are_known_by_the_names_of_features() {
        let mut input = TestInput::new(2);
        for (names, swapped) in [
            (
                ["1stFlr", "2ndFlr"],
                "stdin:1:1: expected the feature \"1stFlr\", found \"2ndFlr\"",
            ),
            (
                ["0", "area"],
                "stdin:1:1: expected the feature \"0\", found \"area\"",
            ),
            (
                ["na", "?"],
                "stdin:1:1: expected the feature \"na\", found \"?\"",
            ),
        ] {
            input.features = names.map(Cow::from).to_vec();
            let read = |text: String| read(None, &input, text.as_bytes());
            assert_eq!(
                read(format!("{},{}\n1,2\n", names[0], names[1])),
                Ok(vec![vec![1.0, 2.0]])
            );
            let error = read(format!("{},{}\n1,2\n", names[1], names[0])).unwrap_err();
            assert!(
                error.starts_with(swapped) && error.contains(" in another order: "),
                "{error}"
            );
            assert_eq!(read("1,2\n".into()), Ok(vec![vec![1.0, 2.0]]));
            assert_eq!(
                read("1,x\n".into()).unwrap_err(),
                "stdin:1:2: expected a number, found \"x\""
            );
        }
    }

    #[test]
    fn words() {
        assert_eq!(shown("a\"'\t\u{7f}"), "\"a\\\"'\\t\\u{7f}\"");
        assert_eq!(shown(&"ä".repeat(40)), format!("\"{}…\"", "ä".repeat(32)));
        let n: Vec<String> = [1, 2, 3, 4, 11, 12, 13, 21, 65, 101, 111]
            .map(ordinal)
            .into();
        assert_eq!(
            n,
            [
                "1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "65th", "101st",
                "111th"
            ]
        );
    }

    /// The records of a text with `width` numbers a line, or the message.
    fn csv(width: usize, text: &[u8]) -> Result<Vec<Vec<f32>>, String> {
        read(None, &TestInput::new(width), text)
    }

    fn message(width: usize, text: &str) -> String {
        csv(width, text.as_bytes()).unwrap_err()
    }

    #[test]
    fn what_people_write() {
        let expected = vec![vec![1.0, 2.5], vec![-3.0, 4e-3]];
        for text in [
            "1,2.5\n-3,4e-3\n",
            "1,2.5\n-3,4e-3",
            "1,2.5\r\n-3,4e-3\r\n",
            "1,2.5\r\n-3,4e-3\r",
            "\u{feff}1,2.5\n-3,4e-3",
            "\n  \n\t\r\n1,2.5\n\n-3,4e-3\n\n",
            " 1\t, 2.5 \n\t-3 ,4e-3\t\n",
            "\"1\",\"2.5\"\n\" -3 \" , \"4e-3\"\n",
            "+1,+2.5\n-3.000,+.004\n",
            "a,b\n1,2.5\n-3,4e-3\n",
            "\u{feff}\n\"a, \"\"quoted\"\"\",b\r\n1,2.5\n-3,4e-3\n",
        ] {
            assert_eq!(csv(2, text.as_bytes()).as_ref(), Ok(&expected), "{text:?}");
        }
        for empty in ["", "\n", " \r\n\n", "a,b\n", "\u{feff}"] {
            assert_eq!(csv(2, empty.as_bytes()), Ok(vec![]), "{empty:?}");
        }
        let zero = csv(1, b"-0\n").unwrap();
        assert!(zero[0][0].is_sign_negative());
    }

    #[test]
    fn what_people_get_wrong() {
        let cases = [
            (
                2,
                "1,2\n3,1.x\n",
                "stdin:2:2: expected a number, found \"1.x\"",
            ),
            (2, "1,2\n\n3,\n", "stdin:3:2: expected a number, found \"\""),
            (2, "1,2\n3", "stdin:2:2: expected 2 numbers, the line has 1"),
            (
                1,
                "1\n3,4",
                "stdin:2:2: expected 1 number, found a 2nd: \"4\"",
            ),
            (
                2,
                "1,2,\n",
                "stdin:1:3: expected 2 numbers, found a 3rd: \"\"",
            ),
            (
                2,
                "1,2\n1,nan\n",
                "stdin:2:2: expected a finite number, found \"nan\"",
            ),
            (
                2,
                "nan,nan\n",
                "stdin:1:1: expected a finite number, found \"nan\"",
            ),
            (
                2,
                "1,\" -inf\"\n",
                "stdin:1:2: expected a finite number, found \" -inf\"",
            ),
            (
                2,
                "1,1e39\n",
                "stdin:1:2: expected a number that fits f32, found \"1e39\"",
            ),
            (2, "1,2\na,b\n", "stdin:2:1: expected a number, found \"a\""),
            (
                2,
                "1.x,2.x\n",
                "stdin:1:1: expected a number, found \"1.x\"",
            ),
            (
                2,
                "1,0x10\n",
                "stdin:1:2: expected a number, found \"0x10\"",
            ),
            (2, "1,2 3\n", "stdin:1:2: expected a number, found \"2 3\""),
            (
                2,
                "1,\"2\n",
                "stdin:1:2: expected a number, found \"\\\"2\"",
            ),
            (3, "a,b\n", "stdin:1:3: expected 3 names, the header has 2"),
            (
                1,
                "a,b\n",
                "stdin:1:2: expected 1 name, the header has a 2nd: \"b\"",
            ),
        ];
        for (width, text, expected) in cases {
            assert_eq!(message(width, text), expected, "{text:?}");
        }
        let long = format!("1,{}\n", "x".repeat(50));
        assert_eq!(
            message(2, &long),
            format!(
                "stdin:1:2: expected a number, found \"{}…\"",
                "x".repeat(32)
            )
        );
    }

    #[test]
    fn other_separators_are_named() {
        let semicolons = "expected commas between the numbers)";
        assert!(message(3, "1;2;3\n").contains("found \"1;2;3\" (the line has semicolons"));
        assert!(message(3, "1;2;3\n").ends_with(semicolons));
        assert!(message(3, "a;b;c\n1;2;3\n").ends_with(semicolons));
        assert!(message(2, "1,5;2,5\n").ends_with("before their decimals)"));
        assert!(message(3, "1\t2\t3\n").contains("(the line has tabs"));
        assert!(message(3, "1 2 3\n").contains("(the line has blanks"));
        assert!(message(3, "a b c\n").contains("(the line has blanks"));
    }

    #[test]
    fn other_files_are_recognised() {
        assert!(
            message(2, "1,2\n\0\u{1},2\n")
                .ends_with("(this looks like binary data: -f u8 or -f f32 reads raw records)")
        );
        assert!(csv(2, b"\0\0\0\0\0").unwrap_err().contains("binary data"));
        let gzip = csv(2, b"\x1f\x8b\x08\0").unwrap_err();
        assert_eq!(
            gzip,
            "stdin: this looks like gzip: gunzip -c FILE | mortonnet"
        );
        assert!(csv(2, b"\xff\xfe1\0").unwrap_err().contains("UTF-16"));
        assert!(csv(2, b"PK\x03\x04").unwrap_err().contains("npz"));
        assert!(
            csv(2, b"1,2\xff\n")
                .unwrap_err()
                .contains("found \"2\u{fffd}\"")
        );
    }

    #[test]
    fn names_that_stand_elsewhere_are_said() {
        let mut input = TestInput::new(3);
        input.features = ["a", "b", "c"].map(Cow::from).to_vec();
        let error = |text: &str| read(None, &input, text.as_bytes()).unwrap_err();
        assert_eq!(
            error("c,b,a\n"),
            "stdin:1:1: expected the feature \"a\", found \"c\" (the header has all features, but in \
             another order: put the columns in the order that --info shows)"
        );
        assert_eq!(
            error(",a,b,c\n0,1,2,3\n"),
            "stdin:1:1: expected the feature \"a\", found \"\" (one more column stands before the \
             features, perhaps an \
             index: --key 1 puts it in front of the answers)"
        );
        let more = " (2 more columns stand before the features: --key 2 puts them in front of the \
            answers)";
        assert!(error("t,id,a,b,c\n").ends_with(more));
        assert!(error("a,b,d\n").ends_with("found \"d\""));
        assert!(error(",a,b,d\n").ends_with("found \"\""));
    }

    #[test]
    fn the_header_must_have_the_names_of_the_features() {
        let mut input = TestInput::new(3);
        input.features = ["a", "say \"b\", c", "größe"].map(Cow::from).to_vec();
        let read = |text: &str| read(None, &input, text.as_bytes());
        let one = Ok(vec![vec![1.0, 2.0, 3.0]]);
        assert_eq!(read("a,\"say \"\"b\"\", c\", größe\n1,2,3\n"), one);
        assert_eq!(read("1,2,3\n"), one);
        let error = |text: &str| read(text).unwrap_err();
        assert_eq!(
            error("a,c,b\n"),
            "stdin:1:2: expected the feature \"say \\\"b\\\", c\", found \"c\""
        );
        assert_eq!(
            error("\nx\n"),
            "stdin:2:1: expected the feature \"a\", found \"x\""
        );
        assert_eq!(
            error("a\n"),
            "stdin:1:2: expected 3 names, the header has 1"
        );
        input.features = ["a", "b"].map(Cow::from).to_vec();
        input.width = 2;
        assert_eq!(
            super::super::tests::read(None, &input, b"a,b,c\n").unwrap_err(),
            "stdin:1:3: expected 2 names, the header has a 3rd: \"c\""
        );
    }

    #[test]
    fn the_transform_is_applied_before_rounding() {
        let mut input = TestInput::new(2);
        input.transform = Transform::MeanStd {
            mean: vec![101_325.0].into(),
            std: vec![300.0, 0.5].into(),
        };
        let expected = [((101_325.123_f64 - 101_325.0) / 300.0) as f32, 2e-5f32];
        let found = read(None, &input, b"101325.123,101325.00001\n").unwrap();
        assert_eq!(found[0][0].to_bits(), expected[0].to_bits());
        assert!((found[0][1] - expected[1]).abs() < 1e-9);
        let message = read(None, &input, b"1,1e300\n").unwrap_err();
        assert!(
            message
                .starts_with("stdin:1:2: expected a number that fits f32 after the input scaling"),
            "{message}"
        );
        input.transform = Transform::ScaleOffset {
            scale: vec![2.0].into(),
            offset: vec![1.0, -1.0].into(),
        };
        assert_eq!(read(None, &input, b"1,2\n"), Ok(vec![vec![3.0, 3.0]]));
    }

    #[test]
    fn a_line_may_fill_the_buffer_and_no_more() {
        let capacity = 1 << 20;
        let mut text = b"1,".to_vec();
        text.resize(capacity - 2, b' ');
        text.extend(b"2\n");
        assert_eq!(text.len(), capacity);
        let twice = [text.clone(), text.clone()].concat();
        assert_eq!(csv(2, &twice), Ok(vec![vec![1.0, 2.0]; 2]));
        text.insert(1, b' ');
        text.insert(0, b'\n');
        let expected = "stdin:2: expected a line of at most 1048575 bytes, found a longer one";
        assert_eq!(csv(2, &text).unwrap_err(), expected);
    }

    proptest! {
        #[test]
        fn numbers_have_the_bits_of_the_standard_library(bits in proptest::collection::vec(any::<u32>(), 1..20)) {
            let numbers: Vec<f32> = bits.into_iter().map(f32::from_bits).filter(|x| x.is_finite()).collect();
            prop_assume!(!numbers.is_empty());
            let text: Vec<String> = numbers.iter().map(|x| format!("{x:?}")).collect();
            let found = csv(numbers.len(), text.join(" ,").as_bytes()).unwrap();
            let bits = |v: &[f32]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            prop_assert_eq!(bits(&found[0]), bits(&numbers));
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(prop_oneof![
            Just(b','), Just(b'\n'), Just(b'"'), Just(b'1'), Just(b'-'), Just(b' '), Just(b'a'), any::<u8>()
        ], 0..60), width in 1usize..4) {
            let _ = csv(width, &bytes);
        }
    }
}
