//! Reads a report back from its JSON and puts two reports side by side.

use crate::lab::render::number;
use crate::lab::table::{Cell, Measured, Plot, Report, Row, Section};

/// How deep unknown values may be nested.
const DEPTH: usize = 32;

/// The report that `-o json` printed. Unknown keys are passed over (keys are only ever added); every other deviation
/// is an error `line:column: what`.
pub(crate) fn read(json_text: &str) -> Result<Report, String> {
    let mut p = Parser { text: json_text, at: 0 };
    let mut report = Report::default();
    let mut seen = [false; 2];
    p.object(&mut |p, key| match key {
        "head" => {
            p.once(&mut seen[0], key)?;
            p.object(&mut |p, name| {
                let value = p.string()?;
                report.head.push((name.into(), value));
                Ok(())
            })
        }
        "sections" => {
            p.once(&mut seen[1], key)?;
            p.array(&mut |p| {
                report.sections.push(section(p)?);
                Ok(())
            })
        }
        _ => p.skip(DEPTH),
    })?;
    p.all(&seen, &["head", "sections"])?;
    p.blanks();
    if p.peek().is_some() {
        return Err(p.fail("expected nothing after the report"));
    }
    Ok(report)
}

const SECTION: [&str; 9] =
    ["id", "title", "rows_are", "unit", "larger_is_better", "columns", "rows", "notes", "plot"];

fn section(p: &mut Parser) -> Result<Section, String> {
    let mut texts: [String; 4] = Default::default();
    let (mut columns, mut notes, mut rows) = (Vec::new(), Vec::new(), Vec::new());
    let (mut larger_is_better, mut plot) = (false, Plot::None);
    let mut seen = [false; SECTION.len()];
    p.object(&mut |p, key| {
        let Some(i) = SECTION.iter().position(|k| *k == key) else { return p.skip(DEPTH) };
        p.once(&mut seen[i], key)?;
        match i {
            0..4 => texts[i] = p.string()?,
            4 => larger_is_better = p.truth()?,
            5 => columns = p.strings()?,
            6 => {
                return p.array(&mut |p| {
                    rows.push(row(p)?);
                    Ok(())
                });
            }
            7 => notes = p.strings()?,
            _ => {
                let start = p.start();
                plot = match p.string()?.as_str() {
                    "none" => Plot::None,
                    "lines" => Plot::Lines,
                    "bars" => Plot::Bars,
                    "grid" => Plot::Grid,
                    _ => return Err(p.fail_at(start, "expected \"none\", \"lines\", \"bars\" or \"grid\"")),
                }
            }
        }
        Ok(())
    })?;
    p.all(&seen, &SECTION)?;
    let [id, title, rows_are, unit] = texts;
    Ok(Section { id, title, rows_are, unit, larger_is_better, columns, rows, notes, plot })
}

fn row(p: &mut Parser) -> Result<Row, String> {
    let mut row = Row { label: String::new(), cells: Vec::new() };
    let mut seen = [false; 2];
    p.object(&mut |p, key| match key {
        "label" => {
            p.once(&mut seen[0], key)?;
            row.label = p.string()?;
            Ok(())
        }
        "cells" => {
            p.once(&mut seen[1], key)?;
            p.array(&mut |p| {
                row.cells.push(cell(p)?);
                Ok(())
            })
        }
        _ => p.skip(DEPTH),
    })?;
    p.all(&seen, &["label", "cells"])?;
    Ok(row)
}

const CELL: [&str; 8] = ["document", "skipped", "value", "spread", "runs", "first", "percent", "error"];

fn cell(p: &mut Parser) -> Result<Cell, String> {
    let start = p.start();
    match p.peek() {
        Some(b'n') => return p.word("null").map(|()| Cell::Empty),
        Some(b'"') => return Ok(Cell::Text(p.string()?)),
        _ => {}
    }
    let mut m = Measured::default();
    let (mut document, mut skipped) = (0.0, String::new());
    let mut seen = [false; CELL.len()];
    p.object(&mut |p, key| {
        let Some(i) = CELL.iter().position(|k| *k == key) else { return p.skip(DEPTH) };
        p.once(&mut seen[i], key)?;
        match i {
            0 => document = p.number()?,
            1 => skipped = p.string()?,
            2 => m.value = p.number()?,
            3 => m.spread = Some(p.number()?).filter(|s| !s.is_nan()),
            4 => {
                let at = p.start();
                let x = p.number()?;
                m.runs = x as u32;
                if f64::from(m.runs) != x {
                    return Err(p.fail_at(at, "expected a count"));
                }
            }
            5 => m.first = Some(p.number()?),
            6 => m.percent = Some(p.number()?),
            _ => m.error = Some(p.number()?),
        }
        Ok(())
    })?;
    // A cell is one thing: a figure, a reason, or a measurement with value, spread and runs.
    match seen {
        [true, false, false, false, false, false, false, false] => Ok(Cell::Document(document)),
        [false, true, false, false, false, false, false, false] => Ok(Cell::Skipped(skipped)),
        [false, false, true, true, true, ..] => {
            // Older reports say 0 where there was one run.
            m.spread = m.spread.filter(|_| m.runs > 1);
            Ok(Cell::Measured(m))
        }
        _ => Err(
            p.fail_at(start, "expected a cell: null, a string, document, skipped, or value, spread and runs")
        ),
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl Parser<'_> {
    fn fail(&self, what: &str) -> String {
        self.fail_at(self.at, what)
    }

    /// `line:column: what`, columns counted in characters.
    fn fail_at(&self, at: usize, what: &str) -> String {
        let before = self.text.get(..at).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().map_or(0, |l| l.chars().count()) + 1;
        format!("{line}:{column}: {what}")
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn blanks(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    /// Where the next value starts.
    fn start(&mut self) -> usize {
        self.blanks();
        self.at
    }

    /// Takes that byte if it is next.
    fn take(&mut self, byte: u8) -> bool {
        self.blanks();
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, byte: u8, what: &str) -> Result<(), String> {
        if self.take(byte) { Ok(()) } else { Err(self.fail(what)) }
    }

    fn word(&mut self, word: &str) -> Result<(), String> {
        self.blanks();
        if !self.text[self.at..].starts_with(word) {
            return Err(self.fail("expected a value"));
        }
        self.at += word.len();
        Ok(())
    }

    fn truth(&mut self) -> Result<bool, String> {
        self.blanks();
        match self.peek() {
            Some(b't') => self.word("true").map(|()| true),
            Some(b'f') => self.word("false").map(|()| false),
            _ => Err(self.fail("expected true or false")),
        }
    }

    /// A key may stand once.
    fn once(&self, seen: &mut bool, key: &str) -> Result<(), String> {
        if std::mem::replace(seen, true) { Err(self.fail(&format!("\"{key}\" twice"))) } else { Ok(()) }
    }

    /// Every one of these keys must have been there.
    fn all(&self, seen: &[bool], keys: &[&str]) -> Result<(), String> {
        match seen.iter().position(|s| !s) {
            Some(i) => Err(self.fail(&format!("\"{}\" is missing", keys[i]))),
            None => Ok(()),
        }
    }

    fn object(&mut self, each: &mut dyn FnMut(&mut Self, &str) -> Result<(), String>) -> Result<(), String> {
        self.expect(b'{', "expected {")?;
        if self.take(b'}') {
            return Ok(());
        }
        loop {
            let key = self.string()?;
            self.expect(b':', "expected :")?;
            each(self, &key)?;
            if self.take(b'}') {
                return Ok(());
            }
            self.expect(b',', "expected , or }")?;
        }
    }

    fn array(&mut self, each: &mut dyn FnMut(&mut Self) -> Result<(), String>) -> Result<(), String> {
        self.expect(b'[', "expected [")?;
        if self.take(b']') {
            return Ok(());
        }
        loop {
            each(self)?;
            if self.take(b']') {
                return Ok(());
            }
            self.expect(b',', "expected , or ]")?;
        }
    }

    fn strings(&mut self) -> Result<Vec<String>, String> {
        let mut all = Vec::new();
        self.array(&mut |p| {
            all.push(p.string()?);
            Ok(())
        })?;
        Ok(all)
    }

    fn string(&mut self) -> Result<String, String> {
        self.expect(b'"', "expected a string")?;
        let mut s = String::new();
        loop {
            // Everything up to the next quote, backslash or control character is taken as it is: all three are ASCII.
            let rest = &self.text[self.at..];
            let plain = rest.bytes().position(|b| b == b'"' || b == b'\\' || b < b' ').unwrap_or(rest.len());
            s.push_str(&rest[..plain]);
            self.at += plain;
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(s);
                }
                Some(b'\\') => s.push(self.escape()?),
                _ => return Err(self.fail("a string that does not end on its line")),
            }
        }
    }

    fn escape(&mut self) -> Result<char, String> {
        let start = self.at;
        self.at += 2;
        let c = match self.text.as_bytes().get(start + 1) {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                let mut code = self.hex(start)?;
                if (0xd800..0xdc00).contains(&code) && self.text[self.at..].starts_with("\\u") {
                    self.at += 2;
                    let low = self.hex(start)?.wrapping_sub(0xdc00);
                    if low < 0x400 {
                        code = 0x10000 + ((code - 0xd800) << 10 | low);
                    }
                }
                match char::from_u32(code) {
                    Some(c) => c,
                    None => return Err(self.fail_at(start, "half of a character")),
                }
            }
            _ => return Err(self.fail_at(start, "an unknown escape")),
        };
        Ok(c)
    }

    /// Four hexadecimal digits.
    fn hex(&mut self, start: usize) -> Result<u32, String> {
        let mut code = 0;
        for _ in 0..4 {
            match self.peek().and_then(|b| char::from(b).to_digit(16)) {
                Some(d) => code = code * 16 + d,
                None => return Err(self.fail_at(start, "expected four hexadecimal digits")),
            }
            self.at += 1;
        }
        Ok(code)
    }

    fn digits(&mut self) -> usize {
        let start = self.at;
        while self.peek().is_some_and(|b| b.is_ascii_digit()) {
            self.at += 1;
        }
        self.at - start
    }

    /// A number as JSON spells it; null is NaN.
    fn number(&mut self) -> Result<f64, String> {
        let start = self.start();
        if self.peek() == Some(b'n') {
            return self.word("null").map(|()| f64::NAN);
        }
        self.at += usize::from(self.peek() == Some(b'-'));
        let zero = self.peek() == Some(b'0');
        let whole = self.digits();
        let mut fine = whole > 0 && !(zero && whole > 1);
        if self.peek() == Some(b'.') {
            self.at += 1;
            fine &= self.digits() > 0;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            self.at += usize::from(matches!(self.peek(), Some(b'+' | b'-')));
            fine &= self.digits() > 0;
        }
        match self.text[start..self.at].parse::<f64>() {
            Ok(x) if fine && x.is_finite() => Ok(x),
            _ => Err(self.fail_at(start, "expected a number")),
        }
    }

    /// Any value.
    fn skip(&mut self, depth: usize) -> Result<(), String> {
        self.blanks();
        if depth == 0 {
            return Err(self.fail("nested too deeply"));
        }
        match self.peek() {
            Some(b'{') => self.object(&mut |p, _| p.skip(depth - 1)),
            Some(b'[') => self.array(&mut |p| p.skip(depth - 1)),
            Some(b'"') => self.string().map(drop),
            Some(b't' | b'f') => self.truth().map(drop),
            _ => self.number().map(drop),
        }
    }
}

/// The own report with a column `COLUMN / other` after each column that both measured: the own value divided by the
/// other's, in the rows that both have.
///
/// Ratios are words, not measurements: they have no unit and do not belong into the section's plot.
pub(crate) fn compare(own: &Report, other: &Report) -> Report {
    let device = other.head.iter().find(|(n, _)| n == "device").map_or("the other report", |(_, v)| v);
    let mut head = own.head.clone();
    head.push(("compared with".into(), device.into()));
    let section = |s: &Section| match other.sections.iter().find(|o| o.id == s.id) {
        Some(o) => compare_section(s, o, device),
        None => s.clone(),
    };
    Report { head, sections: own.sections.iter().map(section).collect() }
}

/// What was measured, where that can be divided.
fn measured(cell: Option<&Cell>) -> Option<f64> {
    match cell {
        Some(Cell::Measured(m)) if m.value.is_finite() && m.value > 0.0 => Some(m.value),
        _ => None,
    }
}

fn compare_section(own: &Section, other: &Section, device: &str) -> Section {
    let mut s = own.clone();
    if own.unit != other.unit || own.larger_is_better != other.larger_is_better {
        s.notes.push(format!("Not compared with {device}: its report has these values in {}.", other.unit));
        return s;
    }
    let mut added = 0;
    for (i, name) in own.columns.iter().enumerate() {
        let Some(theirs) = other.columns.iter().position(|c| c == name) else { continue };
        let ratios: Vec<Cell> = own
            .rows
            .iter()
            .map(|row| {
                let counterpart = other.rows.iter().find(|r| r.label == row.label);
                let there = measured(counterpart.and_then(|r| r.cells.get(theirs)));
                match (measured(row.cells.get(i)), there) {
                    (Some(here), Some(there)) => Cell::Text(number(here / there)),
                    _ => Cell::Empty,
                }
            })
            .collect();
        if ratios.iter().all(|c| *c == Cell::Empty) {
            continue;
        }
        added += 1;
        s.columns.insert(i + added, format!("{name} / other"));
        for (row, ratio) in s.rows.iter_mut().zip(ratios) {
            while row.cells.len() < i + added {
                row.cells.push(Cell::Empty);
            }
            row.cells.insert(i + added, ratio);
        }
    }
    if added > 0 {
        let better = if own.larger_is_better { "above" } else { "below" };
        s.notes.push(format!("/ other: divided by the value of {device}; {better} 1 is better here."));
    }
    s
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::render::tests::{hostile, sample};
    use crate::lab::render::{OutputFormat, text};
    use proptest::prelude::*;

    fn json(report: &Report) -> String {
        text(report, OutputFormat::Json)
    }

    #[test]
    fn reads_what_json_prints() {
        assert_eq!(read(&json(&sample())).unwrap(), sample());
        assert_eq!(read(&json(&Report::default())).unwrap(), Report::default());
        // What is not finite comes back as NaN, so compare the second print with the first.
        let once = json(&hostile());
        assert_eq!(json(&read(&once).unwrap()), once);
    }

    #[test]
    fn one_run_has_no_spread_whatever_an_older_report_says() {
        let text = json(&sample());
        assert!(text.contains("\"spread\":null,\"runs\":1}"));
        let older = text.replace("\"spread\":null,\"runs\":1}", "\"spread\":0,\"runs\":1}");
        assert_eq!(read(&older).unwrap(), sample());
    }

    #[test]
    fn unknown_keys_are_passed_over() {
        let text = r#"{"format":1,"head":{},"new":[{"a":[null,true,-1.5e3,"\u00e4\ud83d\ude00\/"]}],"sections":[]} "#;
        assert_eq!(read(text).unwrap(), Report::default());
    }

    #[test]
    fn errors_name_the_place() {
        let section = |cell: &str| {
            format!(
                "{{\"head\":{{}},\"sections\":[\n{{\"id\":\"ä\",\"title\":\"\",\"rows_are\":\"\",\"unit\":\"\",\
                 \"larger_is_better\":true,\"columns\":[],\"notes\":[],\"plot\":\"none\",\"rows\":[{{\"label\":\"\",\n\
                 \"cells\":[{cell}]}}]}}]}}"
            )
        };
        read(&section("null")).unwrap();
        for (text, error) in [
            (String::new(), "1:1: expected {"),
            ("{}".into(), "1:3: \"head\" is missing"),
            ("{\"head\":{}}".into(), "1:12: \"sections\" is missing"),
            ("{\"head\":{},\"head\":{}}".into(), "1:19: \"head\" twice"),
            ("{\"head\":{},\n\"sections\":[]}\nx".into(), "3:1: expected nothing after the report"),
            ("{\"head\":{\"ä\":1}".into(), "1:14: expected a string"),
            ("{\"head\":{\"a\":\"b".into(), "1:16: a string that does not end on its line"),
            ("{\"head\":{\"a\":\"\\q".into(), "1:15: an unknown escape"),
            ("{\"head\":{\"a\":\"\\ud800\"".into(), "1:15: half of a character"),
            ("{\"head\":{\"a\":\"\\ud800\\u0041\"".into(), "1:15: half of a character"),
            ("{\"head\":{\"a\":\"\\u00g0\"".into(), "1:15: expected four hexadecimal digits"),
            (section("01"), "3:10: expected {"),
            (section("{\"document\":01}"), "3:22: expected a number"),
            (section("{\"document\":1e999}"), "3:22: expected a number"),
            (section("{\"document\":+1}"), "3:22: expected a number"),
            (section("{\"document\":1.}"), "3:22: expected a number"),
            (section("{\"document\":1"), "3:23: expected , or }"),
            (section("{\"value\":1,\"spread\":0,\"runs\":1.5}"), "3:39: expected a count"),
            (section("{\"value\":1,\"spread\":0,\"runs\":-1}"), "3:39: expected a count"),
        ] {
            assert_eq!(read(&text).unwrap_err(), error, "{text}");
        }
        assert!(read(&section("{\"value\":1}")).unwrap_err().starts_with("3:10: expected a cell"));
        assert!(read(&section("{}")).unwrap_err().starts_with("3:10: expected a cell"));
    }

    #[test]
    fn deep_nesting_is_an_error() {
        let deep = format!("{{\"x\":{}", "[".repeat(1_000_000));
        assert_eq!(read(&deep).unwrap_err(), "1:38: nested too deeply");
        let deep = format!("{{\"x\":{}", "{\"a\":".repeat(1_000_000));
        assert!(read(&deep).unwrap_err().ends_with("nested too deeply"));
    }

    proptest! {
        #[test]
        fn junk_never_panics(s in "\\PC{0,80}", t in "[{}\\[\\]:,\"\\\\a-f0-9.e+ \n-]{0,80}") {
            let _ = read(&s);
            let _ = read(&t);
        }

        #[test]
        fn damage_never_panics(cut in 0usize..3000, at in 0usize..3000, junk in "\\PC") {
            let text = json(&sample());
            let floor = |i: usize| (0..=i.min(text.len())).rev().find(|i| text.is_char_boundary(*i)).unwrap();
            prop_assert!(read(&text[..floor(cut.min(text.len() - 3))]).is_err());
            let mut damaged = text.clone();
            damaged.insert_str(floor(at), &junk);
            if let Ok(report) = read(&damaged) {
                let _ = compare(&sample(), &report);
            }
        }

        #[test]
        fn strings_and_numbers_survive(s in any::<String>(), x in any::<f64>(), runs in any::<u32>()) {
            let mut report = sample();
            let m = Measured { value: x, runs, first: Some(-x), ..Measured::default() };
            report.sections[0].rows[0].cells[0] = Cell::Measured(m);
            report.sections[0].rows[0].cells[1] = Cell::Text(s.clone());
            report.head[0] = (s.clone(), s);
            let back = read(&json(&report)).unwrap();
            prop_assert!(back == report || !x.is_finite());
        }
    }

    #[test]
    fn ratios_stand_beside_their_columns() {
        let mut other = sample();
        other.head[0].1 = "slower".into();
        let rows = &mut other.sections[0].rows;
        rows[0].cells[1] = Cell::Measured(Measured { value: 6.52, runs: 3, ..Measured::default() });
        rows[1].cells[1] = Cell::Skipped("no".into());
        rows[2].label = "2881".into();
        let both = compare(&sample(), &other);
        let s = &both.sections[0];
        assert_eq!(s.columns, ["RM×RM", "RM×RM / other", "Morton 4-2", "Morton 4-2 / other", "document"]);
        assert_eq!(s.rows[0].cells[1], Cell::Text("1.000".into()));
        assert_eq!(s.rows[0].cells[3], Cell::Text("2.000".into()));
        assert_eq!(s.rows[0].cells[4], Cell::Document(13.04));
        assert_eq!((&s.rows[1].cells[3], &s.rows[2].cells[3]), (&Cell::Empty, &Cell::Empty));
        assert_eq!(s.notes[1], "/ other: divided by the value of slower; above 1 is better here.");
        assert!(both.sections[1].notes[0].contains("below 1 is better here"));
        assert_eq!(both.head.last().unwrap(), &("compared with".to_string(), "slower".to_string()));
    }

    #[test]
    fn other_units_and_sections_are_left_alone() {
        let mut other = sample();
        other.sections[0].unit = "ms".into();
        other.sections.truncate(1);
        let both = compare(&sample(), &other);
        assert_eq!(both.sections[0].columns, sample().sections[0].columns);
        assert!(both.sections[0].notes[1].contains("in ms"));
        assert_eq!(both.sections[1], sample().sections[1]);
        compare(&hostile(), &hostile());
    }
}
