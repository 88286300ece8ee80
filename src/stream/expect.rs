//! Compares the classes of a run with those of a file (`--expect`).

mod scores;

use super::csv::{CsvField, plural, shown};
use super::output::OutputSpec;
use super::writer::Prediction;
use crate::error::Error;
use crate::ir::network::Kind;
use crate::ir::order::ascending;
use std::borrow::Cow;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

pub(crate) use scores::ExpectedScores;

/// The first bytes of an idx file of labels: bytes, one dimension.
const IDX_LABELS: &[u8] = &[0, 0, 8, 1];

/// The expected classes of a run, and the number of records so far whose prediction equals them.
#[derive(Debug)]
pub(crate) struct ExpectedClasses {
    place: String,
    classes: Classes,
    /// The way in which the class names in the file were read, as labels or as indices. `None` if
    /// only one way was possible, for example if every numeric label is the index of its class.
    reading: Option<NameReading>,
    /// The classes of the file if its names are read as indices. Set only if `reading` is set, and
    /// if all names can be read both as labels and as indices.
    otherwise: Option<Vec<u32>>,
    right: u64,
    right_otherwise: u64,
    seen: u64,
}

/// The way in which the names of classes in a file are read: all as labels, or all as indices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameReading {
    Labels,
    Indices,
}

#[derive(Debug)]
enum Classes {
    One(Vec<u32>),
    /// The classes of each record of a `Multilabel` network, in ascending order.
    Sets(Vec<Box<[u32]>>),
}

/// The result of a comparison with expected classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Accuracy {
    /// The number of records with the expected class.
    pub(crate) right: u64,
    pub(crate) total: u64,
    /// The way in which the class names in the file were read, as labels or as indices. `None` if
    /// only one way was possible, for example if every numeric label is the index of its class.
    pub(crate) reading: Option<NameReading>,
    /// The number of records with the expected class if the file's names are read as indices. Set
    /// only if all names can be read both as labels and as indices.
    pub(crate) right_otherwise: Option<u64>,
}

impl Accuracy {
    /// Returns the share (0 to 1) of records with the expected class. Returns 0 for a run without
    /// records.
    pub(crate) fn fraction(&self) -> f64 {
        if self.total == 0 {
            0.0
        } else {
            self.right as f64 / self.total as f64
        }
    }
}

impl fmt::Display for Accuracy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.right, self.total)?;
        match (self.reading, self.right_otherwise) {
            (None, _) => Ok(()),
            (Some(NameReading::Indices), _) => {
                f.write_str(" (the lines were read as class indices: not all of them are labels)")
            }
            (Some(NameReading::Labels), None) => {
                f.write_str(" (the lines were read as labels, not as class indices)")
            }
            (Some(NameReading::Labels), Some(right)) => {
                write!(
                    f,
                    " (the lines were read as labels; as class indices {right} of {})",
                    self.total
                )
            }
        }
    }
}

impl ExpectedClasses {
    /// Reads a file with one class (index or label) on each line, or an idx file of labels. For
    /// `Multilabel` networks a line has any number of classes with commas between them.
    ///
    /// If all names are labels, they are read as labels, even if they look like indices.
    pub(crate) fn read(path: &Path, spec: &OutputSpec<'_>) -> Result<Self, Error> {
        let place = crate::escape::path(path);
        let bytes = File::open(path)
            .and_then(contents)
            .map_err(|e| Error::io(&place, e))?;
        Self::parse(&bytes, place, spec)
    }

    pub(super) fn parse(bytes: &[u8], place: String, spec: &OutputSpec<'_>) -> Result<Self, Error> {
        if spec.kind == Kind::Values {
            let message = "--expect: this network computes values, no classes; use --expect-scores";
            return Err(Error::usage(message));
        }
        if bytes.starts_with(b"\x1f\x8b") {
            return Err(Error::input(
                &place,
                format!("this looks like gzip: gunzip {place}"),
            ));
        }
        let (mut reading, mut otherwise) = (None, None);
        let classes = if bytes.starts_with(IDX_LABELS) && spec.kind != Kind::Multilabel {
            Classes::One(idx_labels(bytes, &place, spec)?)
        } else {
            let text = std::str::from_utf8(bytes).map_err(|_| {
                Error::input(
                    &place,
                    "expected text with one class on each line, or an idx file of labels; found \
                     binary data",
                )
            })?;
            let lines = text.strip_prefix('\u{feff}').unwrap_or(text).lines();
            match spec.kind {
                Kind::Multilabel => {
                    let found = sets(lines, &place, spec)?;
                    reading = found.reading;
                    Classes::Sets(found.sets)
                }
                _ => {
                    let found = one_a_line(lines.collect(), &place, spec)?;
                    (reading, otherwise) = (found.told(), found.otherwise);
                    Classes::One(found.classes)
                }
            }
        };
        let reading = reading.filter(|_| numbers_differ(spec.labels));
        let otherwise = otherwise.filter(|_| reading.is_some());
        Ok(ExpectedClasses {
            place,
            classes,
            reading,
            otherwise,
            right: 0,
            right_otherwise: 0,
            seen: 0,
        })
    }

    /// Compares the prediction for the next record with the file's class.
    pub(crate) fn check(&mut self, verdict: Prediction<'_>) {
        let i = self.seen as usize;
        let right = match (&self.classes, verdict) {
            (Classes::One(classes), Prediction::Class(c)) => classes.get(i) == Some(&c),
            (Classes::Sets(sets), Prediction::Set(set)) => sets.get(i).is_some_and(|s| **s == *set),
            _ => false,
        };
        self.right += u64::from(right);
        if let (Some(classes), Prediction::Class(c)) = (&self.otherwise, verdict) {
            self.right_otherwise += u64::from(classes.get(i) == Some(&c));
        }
        self.seen += 1;
    }

    /// Returns the result of the comparison. It is an error if the run had more or fewer records
    /// than the file.
    pub(crate) fn finish(&self) -> Result<Accuracy, Error> {
        let expected = match &self.classes {
            Classes::One(classes) => classes.len(),
            Classes::Sets(sets) => sets.len(),
        };
        same_length(&self.place, expected, self.seen)?;
        let right_otherwise = self.otherwise.as_ref().map(|_| self.right_otherwise);
        Ok(Accuracy {
            right: self.right,
            total: self.seen,
            reading: self.reading,
            right_otherwise,
        })
    }
}

/// Reads a whole file of expected classes. Because the file may be a device without an end, reading
/// stops after a zero byte in text, or after more idx labels than announced. The parser refuses
/// both mistakes.
fn contents(mut file: impl Read) -> io::Result<Vec<u8>> {
    const PIECE: u64 = 1 << 16;
    let mut bytes = Vec::new();
    loop {
        let from = bytes.len();
        let read = file.by_ref().take(PIECE).read_to_end(&mut bytes)?;
        let ends = match bytes
            .strip_prefix(IDX_LABELS)
            .and_then(|rest| rest.first_chunk::<4>())
        {
            // One label more than announced is read, because the parser then sees that there are
            // too many.
            Some(count) => bytes.len() > IDX_LABELS.len() + 4 + u32::from_be_bytes(*count) as usize,
            None => bytes[from..].contains(&0),
        };
        if ends || (read as u64) < PIECE {
            return Ok(bytes);
        }
    }
}

fn idx_labels(bytes: &[u8], place: &str, spec: &OutputSpec<'_>) -> Result<Vec<u32>, Error> {
    let fail = |message: String| Err(Error::input(place, message));
    let Some((count, labels)) = bytes[IDX_LABELS.len()..].split_first_chunk::<4>() else {
        return fail("expected an idx file of labels, the file ends inside its header".into());
    };
    let count = u32::from_be_bytes(*count) as usize;
    if labels.len() != count {
        return fail(format!(
            "expected {}, found {}",
            plural(count as u64, "label"),
            labels.len()
        ));
    }
    let classes = spec.classes();
    if let Some(i) = labels.iter().position(|&c| usize::from(c) >= classes) {
        let message = format!(
            "expected a class from 0 to {}, found {}",
            classes - 1,
            labels[i]
        );
        return Err(Error::input(format!("{place}: record {}", i + 1), message));
    }
    Ok(labels.iter().map(|&c| c.into()).collect())
}

fn same_length(place: &str, expected: usize, found: u64) -> Result<(), Error> {
    if expected as u64 == found {
        return Ok(());
    }
    let listed = plural(expected as u64, "record");
    Err(Error::check(format!(
        "{place}: this file lists {listed}, the input has {found}"
    )))
}

/// Returns true if some label is a whole number that is not the index of its class.
pub(crate) fn numbers_differ(labels: &[Cow<'static, str>]) -> bool {
    let differs =
        |(i, label): (usize, &Cow<'_, str>)| label.trim().parse::<usize>().is_ok_and(|n| n != i);
    labels.iter().enumerate().any(differs)
}

fn one_a_line(mut lines: Vec<&str>, place: &str, spec: &OutputSpec<'_>) -> Result<Meanings, Error> {
    while lines.last().is_some_and(|l| l.trim().is_empty()) {
        lines.pop();
    }
    let names: Vec<ClassName<'_>> = (1..)
        .zip(lines)
        .map(|(line, text)| ClassName {
            line,
            text: text.into(),
        })
        .collect();
    meanings(&names, place, spec)
}

/// The classes of each line, for `Multilabel`.
struct Sets {
    sets: Vec<Box<[u32]>>,
    /// The way in which the names were read, as labels or as indices. `None` if only one way was
    /// possible.
    reading: Option<NameReading>,
}

/// Reads the classes of each line. A line may have no class.
fn sets<'t>(
    lines: impl Iterator<Item = &'t str>,
    place: &str,
    spec: &OutputSpec<'_>,
) -> Result<Sets, Error> {
    let mut names: Vec<ClassName<'t>> = Vec::new();
    let mut ends: Vec<usize> = Vec::new();
    for (line, text) in (1..).zip(lines) {
        if !text.trim().is_empty() {
            names.extend(CsvField::all(text.as_bytes()).map(|field| ClassName {
                line,
                text: field.text(),
            }));
        }
        ends.push(names.len());
    }
    let found = meanings(&names, place, spec)?;
    let (reading, classes) = (found.told(), found.classes);
    let mut start = 0;
    let set = |(line, end): (usize, usize)| {
        let found = &classes[start..end];
        let sorted = ascending(found.iter().map(|&class| [class.into(), 0, 0]));
        let set: Vec<u32> = sorted.into_iter().map(|i| found[i]).collect();
        start = end;
        if let Some(twice) = set.windows(2).find(|pair| pair[0] == pair[1]) {
            let message = format!("expected each class at most once, found {} twice", twice[0]);
            return Err(Error::input(format!("{place}:{line}"), message));
        }
        Ok(set.into())
    };
    let sets = (1..).zip(ends).map(set).collect::<Result<_, Error>>()?;
    Ok(Sets { sets, reading })
}

/// The name of a class in a file: a label or an index.
struct ClassName<'a> {
    /// The number of the name's line, from 1.
    line: usize,
    text: Cow<'a, str>,
}

/// The classes that the names in a file stand for.
struct Meanings {
    classes: Vec<u32>,
    reading: NameReading,
    /// The classes if the file's names are read as indices. Set only if all names can be read both
    /// as labels and as indices.
    otherwise: Option<Vec<u32>>,
}

impl Meanings {
    /// Returns the way in which the names were read. Returns `None` if all names are labels and not
    /// all are indices, because then no other way was possible.
    fn told(&self) -> Option<NameReading> {
        (self.reading == NameReading::Indices || self.otherwise.is_some()).then_some(self.reading)
    }
}

/// Finds the classes of the names in a file. All names are read as labels, or else all as indices.
fn meanings(
    names: &[ClassName<'_>],
    place: &str,
    spec: &OutputSpec<'_>,
) -> Result<Meanings, Error> {
    let highest = spec.classes() - 1;
    let label = |text: &str| {
        let found = spec
            .labels
            .iter()
            .position(|label| label == text || label == text.trim());
        found.map(|i| i as u32)
    };
    let index = |text: &str| {
        text.trim()
            .parse::<u32>()
            .ok()
            .filter(|&c| c as usize <= highest)
    };
    let labels: Option<Vec<u32>> = names.iter().map(|name| label(&name.text)).collect();
    let indices: Option<Vec<u32>> = names.iter().map(|name| index(&name.text)).collect();
    match (labels, indices) {
        (Some(classes), otherwise) => {
            return Ok(Meanings {
                classes,
                reading: NameReading::Labels,
                otherwise,
            });
        }
        (None, Some(classes)) => {
            return Ok(Meanings {
                classes,
                reading: NameReading::Indices,
                otherwise: None,
            });
        }
        (None, None) => {}
    }
    // The reported mistake is the first name that is neither a label nor an index. If there is
    // none, it is the first name up to which the names are neither all labels nor all indices.
    let kinds = |text: &str| (label(text).is_some(), index(text).is_some());
    let (mut labels, mut indices) = (true, true);
    let mut differs = |name: &&ClassName<'_>| {
        let (is_label, is_index) = kinds(&name.text);
        (labels, indices) = (labels && is_label, indices && is_index);
        !labels && !indices
    };
    let nothing = names
        .iter()
        .find(|name| kinds(&name.text) == (false, false));
    let mistake = nothing.or_else(|| names.iter().find(&mut differs));
    let ClassName { line, text } = mistake.expect("not all are labels, and not all are indices");
    let or_label = if spec.labels.is_empty() {
        ""
    } else {
        " or a label"
    };
    let why = match kinds(text) {
        (false, false) => "",
        (true, _) => " (a label, but class indices stand before it)",
        (false, true) => " (a class index, but labels stand before it)",
    };
    let message = format!(
        "expected a class from 0 to {highest}{or_label}, found {}{why}",
        shown(text)
    );
    Err(Error::input(format!("{place}:{line}"), message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::network::FinalActivation;
    use std::borrow::Cow;
    use std::fs;

    fn spec<'a>(kind: Kind, labels: &'a [Cow<'static, str>]) -> OutputSpec<'a> {
        OutputSpec {
            kind,
            activation: FinalActivation::Sigmoid,
            threshold: 0.5,
            outputs: 3,
            labels,
            named: &[],
        }
    }

    fn parse(bytes: &[u8], spec: &OutputSpec<'_>) -> Result<ExpectedClasses, String> {
        ExpectedClasses::parse(bytes, "y.txt".into(), spec).map_err(|e| e.to_string())
    }

    /// Compares `classes` with the file `bytes`. Returns the text with the number of right classes.
    fn run(bytes: &[u8], spec: &OutputSpec<'_>, classes: &[u32]) -> Result<String, String> {
        let mut expected = parse(bytes, spec)?;
        classes
            .iter()
            .for_each(|&c| expected.check(Prediction::Class(c)));
        expected
            .finish()
            .map(|a| a.to_string())
            .map_err(|e| e.to_string())
    }

    #[test]
    fn a_class_a_line() {
        let labels = ["a", "b c", "2"].map(Cow::from);
        let (plain, named) = (spec(Kind::Classes, &[]), spec(Kind::Classes, &labels));
        for text in [
            "0\n1\n2\n",
            "0\r\n1\r\n2",
            " 0\n1 \n2\n\n\n",
            "\u{feff}0\n1\n2",
        ] {
            assert_eq!(
                run(text.as_bytes(), &plain, &[0, 1, 0]).unwrap(),
                "2 of 3",
                "{text:?}"
            );
        }
        assert_eq!(run(b"a\nb c\n2\n", &named, &[0, 1, 2]).unwrap(), "3 of 3");
        assert_eq!(run(b"0\n1\n2\n", &named, &[0, 1, 2]).unwrap(), "3 of 3");
        assert_eq!(
            run(b"0\n1\n", &plain, &[0]).unwrap_err(),
            "y.txt: this file lists 2 records, the input has 1"
        );
        assert_eq!(
            run(b"0\n", &plain, &[0, 0, 0]).unwrap_err(),
            "y.txt: this file lists 1 record, the input has 3"
        );
        assert_eq!(
            run(b"0\n\n1\n", &plain, &[]).unwrap_err(),
            "y.txt:2: expected a class from 0 to 2, found \"\""
        );
        let high = "y.txt:1: expected a class from 0 to 2, found \"3\"";
        assert_eq!(run(b"3\n", &plain, &[]).unwrap_err(), high);
        let mixed = "y.txt:2: expected a class from 0 to 2 or a label, found \"a\" (a label, but \
            class indices stand before it)";
        assert_eq!(run(b"0\na\n", &named, &[]).unwrap_err(), mixed);
        assert_eq!(
            run(b"2\n", &spec(Kind::Binary, &[]), &[]).unwrap_err(),
            "y.txt:1: expected a class from 0 to 1, found \"2\""
        );
    }

    #[test]
    fn labels_that_are_numbers_win_where_all_lines_are_labels() {
        let labels = ["1", "2", "3"].map(Cow::from);
        let named = spec(Kind::Classes, &labels);
        assert_eq!(run(b"1\n2\n3\n", &named, &[0, 1, 2]).unwrap(), "3 of 3");
        let indices = "3 of 3 (the lines were read as class indices: not all of them are labels)";
        assert_eq!(run(b"0\n1\n2\n", &named, &[0, 1, 2]).unwrap(), indices);
        // These lines are class indices, as the program writes them. With these labels they are
        // also the labels of other classes.
        let both = "0 of 3 (the lines were read as labels; as class indices 3 of 3)";
        assert_eq!(run(b"1\n2\n1\n", &named, &[1, 2, 1]).unwrap(), both);
        // Labels that equal their indices, or are words, can be read in only one way.
        for labels in [["0", "1", "2"], ["a", "b", "c"]] {
            let labels = labels.map(Cow::from);
            assert_eq!(
                run(b"0\n1\n2\n", &spec(Kind::Classes, &labels), &[0, 1, 2]).unwrap(),
                "3 of 3"
            );
        }
    }

    #[test]
    fn idx_files_of_labels() {
        let plain = spec(Kind::Classes, &[]);
        assert_eq!(
            run(b"\0\0\x08\x01\0\0\0\x02\x01\x02", &plain, &[1, 0]).unwrap(),
            "1 of 2"
        );
        assert_eq!(
            run(b"\0\0\x08\x01\0\0\0\x03\x01", &plain, &[]).unwrap_err(),
            "y.txt: expected 3 labels, found 1"
        );
        assert!(run(b"\0\0\x08\x01\0", &plain, &[]).is_err());
        let high = "y.txt: record 2: expected a class from 0 to 2, found 9";
        assert_eq!(
            run(b"\0\0\x08\x01\0\0\0\x02\x01\x09", &plain, &[]).unwrap_err(),
            high
        );
        assert!(
            run(b"\x1f\x8b\x08", &plain, &[])
                .unwrap_err()
                .contains("gunzip")
        );
        assert!(
            run(b"\xff\xff", &plain, &[])
                .unwrap_err()
                .contains("found binary data")
        );
    }

    #[test]
    fn the_line_that_is_wrong_is_named() {
        let labels = ["cat", "dog", "2"].map(Cow::from);
        let named = spec(Kind::Classes, &labels);
        let error = |text: &str| run(text.as_bytes(), &named, &[]).unwrap_err();
        let expected = "expected a class from 0 to 2 or a label, found";
        assert_eq!(
            error("cat\ndog\nbird\n"),
            format!("y.txt:3: {expected} \"bird\"")
        );
        assert_eq!(
            error("0\n1\nbird\n"),
            format!("y.txt:3: {expected} \"bird\"")
        );
        assert_eq!(
            error("0\ncat\nbird\n"),
            format!("y.txt:3: {expected} \"bird\"")
        );
        let other = "(a class index, but labels stand before it)";
        assert_eq!(
            error("2\ncat\n1\n"),
            format!("y.txt:3: {expected} \"1\" {other}")
        );
    }

    /// Compares the sets `found` with the file `text`. Returns the text with the number of right
    /// sets.
    fn run_sets(
        text: &str,
        labels: &[Cow<'static, str>],
        found: &[&[u32]],
    ) -> Result<String, String> {
        let mut expected = parse(text.as_bytes(), &spec(Kind::Multilabel, labels))?;
        found
            .iter()
            .for_each(|set| expected.check(Prediction::Set(set)));
        expected
            .finish()
            .map(|a| a.to_string())
            .map_err(|e| e.to_string())
    }

    #[test]
    fn sets_are_compared_in_any_order() {
        let found: &[&[u32]] = &[&[0, 2], &[], &[2]];
        for text in [
            "0,2\n\n1\n",
            " 2 , 0\r\n \r\n1",
            "\u{feff}\"2\",0\n\n0,1,2\n",
        ] {
            assert_eq!(run_sets(text, &[], found).unwrap(), "2 of 3", "{text:?}");
        }
        let labels = ["a", "b, c", "1"].map(Cow::from);
        assert_eq!(
            run_sets("1,a\n\n\"b, c\"\n", &labels, found).unwrap(),
            "2 of 3"
        );
        assert!(
            run_sets("2,0\n\n2\n", &labels, found)
                .unwrap()
                .starts_with("3 of 3 (the lines were read as class indices")
        );
        // If all names are labels, they are read as labels, even if they look like indices.
        let labels_then = "2 of 3 (the lines were read as labels, not as class indices)";
        assert_eq!(run_sets("1\n\n1\n", &labels, found).unwrap(), labels_then);
        assert_eq!(
            run_sets("0\n", &[], found).unwrap_err(),
            "y.txt: this file lists 1 record, the input has 3"
        );
        let error = |text: &str, labels: &[_]| run_sets(text, labels, &[]).unwrap_err();
        let class = "expected a class from 0 to 2";
        assert_eq!(
            error("0\nhello\n", &[]),
            format!("y.txt:2: {class}, found \"hello\"")
        );
        assert_eq!(
            error("0\n\n1,3\n", &[]),
            format!("y.txt:3: {class}, found \"3\"")
        );
        assert_eq!(error("0,\n", &[]), format!("y.txt:1: {class}, found \"\""));
        assert_eq!(
            error("a\na,d\n", &labels),
            format!("y.txt:2: {class} or a label, found \"d\"")
        );
        let zeros_and_ones = "y.txt:2: expected each class at most once, found 1 twice";
        assert_eq!(error("0,2\n1,0,1\n", &[]), zeros_and_ones);
        let error =
            ExpectedClasses::parse(b"1\n", "y.txt".into(), &spec(Kind::Values, &[])).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("--expect-scores"), "{error}");
    }

    #[test]
    fn files_are_read() {
        let path = std::env::temp_dir().join(format!("mortonnet-expect-{}", std::process::id()));
        fs::write(&path, "1\n").unwrap();
        let mut expected = ExpectedClasses::read(&path, &spec(Kind::Classes, &[])).unwrap();
        fs::remove_file(&path).unwrap();
        expected.check(Prediction::Class(1));
        assert_eq!(expected.finish().unwrap().fraction(), 1.0);
        assert!(matches!(
            ExpectedClasses::read(&path, &spec(Kind::Classes, &[]))
                .unwrap_err()
                .kind(),
            crate::error::ErrorKind::Io { .. }
        ));
        assert_eq!(
            Accuracy {
                right: 0,
                total: 0,
                reading: None,
                right_otherwise: None
            }
            .fraction(),
            0.0
        );
    }
}
