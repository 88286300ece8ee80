//! `--expect`: the classes that should come out.

use super::csv::{plural, shown};
use super::writer::{OutputSpec, Verdict};
use crate::error::Error;
use crate::spec::network::Kind;
use std::fmt;
use std::fs;
use std::path::Path;

/// The first bytes of an idx file of labels: bytes, one dimension.
const IDX_LABELS: &[u8] = &[0, 0, 8, 1];

/// The expected classes of a run, and how many were met so far.
#[derive(Debug)]
pub struct Expected {
    place: String,
    classes: Classes,
    right: u64,
    seen: u64,
}

#[derive(Debug)]
enum Classes {
    One(Vec<u32>),
    /// For `Multilabel`: the text of each line.
    Sets(Vec<Box<str>>),
}

/// How many records of a run have the expected class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accuracy {
    /// Records with the expected class.
    pub right: u64,
    /// Records.
    pub total: u64,
}

impl Accuracy {
    /// The share of right records; 0 for a run without records.
    pub fn fraction(&self) -> f64 {
        if self.total == 0 { 0.0 } else { self.right as f64 / self.total as f64 }
    }
}

impl fmt::Display for Accuracy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.right, self.total)
    }
}

impl Expected {
    /// Reads a file with a class (index or label) a line, or an idx file of labels.
    ///
    /// Where every line is a label, the lines are labels, even if they look like indices.
    pub fn read(path: &Path, spec: &OutputSpec<'_>) -> Result<Self, Error> {
        let place = crate::escape::path(path);
        let bytes = fs::read(path).map_err(|e| Error::io(&place, e))?;
        Self::parse(&bytes, place, spec)
    }

    fn parse(bytes: &[u8], place: String, spec: &OutputSpec<'_>) -> Result<Self, Error> {
        if spec.kind == Kind::Values {
            return Err(Error::Usage("--expect: this network computes values, no classes".into()));
        }
        if bytes.starts_with(b"\x1f\x8b") {
            return Err(Error::input(&place, format!("this looks like gzip: gunzip {place}")));
        }
        let classes = if bytes.starts_with(IDX_LABELS) && spec.kind != Kind::Multilabel {
            Classes::One(idx_labels(bytes, &place, spec)?)
        } else {
            let text = std::str::from_utf8(bytes).map_err(|_| {
                Error::input(&place, "expected a class a line, or an idx file of labels; found other bytes")
            })?;
            let lines = text.strip_prefix('\u{feff}').unwrap_or(text).lines();
            match spec.kind {
                Kind::Multilabel => Classes::Sets(lines.map(Box::from).collect()),
                _ => Classes::One(one_a_line(lines.collect(), &place, spec)?),
            }
        };
        Ok(Expected { place, classes, right: 0, seen: 0 })
    }

    /// Compares the class of the next record.
    pub fn check(&mut self, verdict: Verdict<'_>) {
        let i = self.seen as usize;
        let right = match (&self.classes, verdict) {
            (Classes::One(classes), Verdict::Class(c)) => classes.get(i) == Some(&c),
            (Classes::Sets(sets), Verdict::Set(text)) => sets.get(i).is_some_and(|s| &**s == text),
            _ => false,
        };
        self.right += u64::from(right);
        self.seen += 1;
    }

    /// The result; an error where the run had more or fewer records than the file has classes.
    pub fn finish(&self) -> Result<Accuracy, Error> {
        let expected = match &self.classes {
            Classes::One(classes) => classes.len(),
            Classes::Sets(sets) => sets.len(),
        };
        if expected as u64 != self.seen {
            let message = format!(
                "{}: expected {}, the input has {}",
                self.place,
                plural(expected as u64, "record"),
                self.seen
            );
            return Err(Error::Check(message));
        }
        Ok(Accuracy { right: self.right, total: self.seen })
    }
}

fn idx_labels(bytes: &[u8], place: &str, spec: &OutputSpec<'_>) -> Result<Vec<u32>, Error> {
    let fail = |message: String| Err(Error::input(place, message));
    let Some((count, labels)) = bytes[IDX_LABELS.len()..].split_first_chunk::<4>() else {
        return fail("expected an idx file of labels, found only its first bytes".into());
    };
    let count = u32::from_be_bytes(*count) as usize;
    if labels.len() != count {
        return fail(format!("expected {}, found {}", plural(count as u64, "label"), labels.len()));
    }
    let classes = spec.classes();
    if let Some(i) = labels.iter().position(|&c| usize::from(c) >= classes) {
        let message = format!("expected a class from 0 to {}, found {}", classes - 1, labels[i]);
        return Err(Error::input(format!("{place}: record {}", i + 1), message));
    }
    Ok(labels.iter().map(|&c| c.into()).collect())
}

fn one_a_line(mut lines: Vec<&str>, place: &str, spec: &OutputSpec<'_>) -> Result<Vec<u32>, Error> {
    while lines.last().is_some_and(|l| l.trim().is_empty()) {
        lines.pop();
    }
    let label =
        |l: &&str| spec.labels.iter().position(|label| label == l || label == l.trim()).map(|i| i as u32);
    if let Some(classes) = lines.iter().map(label).collect() {
        return Ok(classes);
    }
    let highest = spec.classes() - 1;
    let index = |l: &str| l.trim().parse::<u32>().ok().filter(|&c| c as usize <= highest);
    // Without one common meaning for all lines the first line without any is the mistake.
    let class = |(i, l): (usize, &&str)| {
        index(l).ok_or_else(|| {
            let or_label = if spec.labels.is_empty() { "" } else { " or a label" };
            let message = format!("expected a class from 0 to {highest}{or_label}, found {}", shown(l));
            let other = label(l).map_or("", |_| " (a label, but other lines are none)");
            Error::input(format!("{place}:{}", i + 1), message + other)
        })
    };
    lines.iter().enumerate().map(class).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::network::FinalActivation;
    use std::borrow::Cow;

    fn spec<'a>(kind: Kind, labels: &'a [Cow<'static, str>]) -> OutputSpec<'a> {
        OutputSpec { kind, activation: FinalActivation::Sigmoid, threshold: 0.5, outputs: 3, labels }
    }

    fn parse(bytes: &[u8], spec: &OutputSpec<'_>) -> Result<Expected, String> {
        Expected::parse(bytes, "y.txt".into(), spec).map_err(|e| e.to_string())
    }

    /// How many of `classes` are right.
    fn run(bytes: &[u8], spec: &OutputSpec<'_>, classes: &[u32]) -> Result<String, String> {
        let mut expected = parse(bytes, spec)?;
        classes.iter().for_each(|&c| expected.check(Verdict::Class(c)));
        expected.finish().map(|a| a.to_string()).map_err(|e| e.to_string())
    }

    #[test]
    fn a_class_a_line() {
        let labels = ["a", "b c", "2"].map(Cow::from);
        let (plain, named) = (spec(Kind::Classes, &[]), spec(Kind::Classes, &labels));
        for text in ["0\n1\n2\n", "0\r\n1\r\n2", " 0\n1 \n2\n\n\n", "\u{feff}0\n1\n2"] {
            assert_eq!(run(text.as_bytes(), &plain, &[0, 1, 0]).unwrap(), "2 of 3", "{text:?}");
        }
        assert_eq!(run(b"a\nb c\n2\n", &named, &[0, 1, 2]).unwrap(), "3 of 3");
        assert_eq!(run(b"0\n1\n2\n", &named, &[0, 1, 2]).unwrap(), "3 of 3");
        assert_eq!(run(b"0\n1\n", &plain, &[0]).unwrap_err(), "y.txt: expected 2 records, the input has 1");
        assert_eq!(run(b"0\n", &plain, &[0, 0, 0]).unwrap_err(), "y.txt: expected 1 record, the input has 3");
        assert_eq!(
            run(b"0\n\n1\n", &plain, &[]).unwrap_err(),
            "y.txt:2: expected a class from 0 to 2, found \"\""
        );
        let high = "y.txt:1: expected a class from 0 to 2, found \"3\"";
        assert_eq!(run(b"3\n", &plain, &[]).unwrap_err(), high);
        let mixed = "y.txt:2: expected a class from 0 to 2 or a label, found \"a\" (a label, but other lines are none)";
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
        assert_eq!(run(b"0\n1\n2\n", &named, &[0, 1, 2]).unwrap(), "3 of 3");
    }

    #[test]
    fn idx_files_of_labels() {
        let plain = spec(Kind::Classes, &[]);
        assert_eq!(run(b"\0\0\x08\x01\0\0\0\x02\x01\x02", &plain, &[1, 0]).unwrap(), "1 of 2");
        assert_eq!(
            run(b"\0\0\x08\x01\0\0\0\x03\x01", &plain, &[]).unwrap_err(),
            "y.txt: expected 3 labels, found 1"
        );
        assert!(run(b"\0\0\x08\x01\0", &plain, &[]).is_err());
        let high = "y.txt: record 2: expected a class from 0 to 2, found 9";
        assert_eq!(run(b"\0\0\x08\x01\0\0\0\x02\x01\x09", &plain, &[]).unwrap_err(), high);
        assert!(run(b"\x1f\x8b\x08", &plain, &[]).unwrap_err().contains("gunzip"));
        assert!(run(b"\xff\xff", &plain, &[]).unwrap_err().contains("found other bytes"));
    }

    #[test]
    fn sets_are_compared_as_text() {
        let mut expected = parse(b"0,2\n\n1\n", &spec(Kind::Multilabel, &[])).unwrap();
        for set in ["0,2", "", "2"] {
            expected.check(Verdict::Set(set));
        }
        assert_eq!(expected.finish().unwrap(), Accuracy { right: 2, total: 3 });
        let error = Expected::parse(b"1\n", "y.txt".into(), &spec(Kind::Values, &[])).unwrap_err();
        assert_eq!(error.exit_code(), 2);
    }

    #[test]
    fn files_are_read() {
        let path = std::env::temp_dir().join(format!("mortonnet-expect-{}", std::process::id()));
        fs::write(&path, "1\n").unwrap();
        let mut expected = Expected::read(&path, &spec(Kind::Classes, &[])).unwrap();
        fs::remove_file(&path).unwrap();
        expected.check(Verdict::Class(1));
        assert_eq!(expected.finish().unwrap().fraction(), 1.0);
        assert!(matches!(Expected::read(&path, &spec(Kind::Classes, &[])), Err(Error::Io { .. })));
        assert_eq!(Accuracy { right: 0, total: 0 }.fraction(), 0.0);
    }
}
