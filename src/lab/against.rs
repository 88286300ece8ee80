//! Reads a report back from its JSON and puts two reports side by side.

use crate::lab::json::Parser;
use crate::lab::render::number;
use crate::lab::table::{Cell, Measured, Plot, Report, Row, Section};

/// The maximum depth of nested arrays and objects in the value of an unknown JSON key.
const DEPTH: usize = 32;

/// Reads a report from the JSON that `-o json` printed. Unknown keys are skipped, because later
/// versions only add keys. Every other deviation is an error that begins with `line:column`.
pub(crate) fn read(json_text: &str) -> Result<Report, String> {
    let mut p = Parser::new(json_text);
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

const SECTION: [&str; 9] = [
    "id",
    "title",
    "rows_are",
    "unit",
    "larger_is_better",
    "columns",
    "rows",
    "notes",
    "plot",
];

fn section(p: &mut Parser) -> Result<Section, String> {
    let mut texts: [String; 4] = Default::default();
    let (mut columns, mut notes, mut rows) = (Vec::new(), Vec::new(), Vec::new());
    let (mut larger_is_better, mut plot) = (false, Plot::None);
    let mut seen = [false; SECTION.len()];
    p.object(&mut |p, key| {
        let Some(i) = SECTION.iter().position(|k| *k == key) else {
            return p.skip(DEPTH);
        };
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
                    _ => {
                        return Err(
                            p.fail_at(start, "expected \"none\", \"lines\", \"bars\" or \"grid\"")
                        );
                    }
                }
            }
        }
        Ok(())
    })?;
    p.all(&seen, &SECTION)?;
    let [id, title, rows_are, unit] = texts;
    Ok(Section {
        id,
        title,
        rows_are,
        unit,
        larger_is_better,
        columns,
        rows,
        notes,
        plot,
    })
}

fn row(p: &mut Parser) -> Result<Row, String> {
    let mut row = Row {
        label: String::new(),
        cells: Vec::new(),
    };
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

const CELL: [&str; 8] = [
    "document", "skipped", "value", "spread", "runs", "first", "percent", "error",
];

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
        let Some(i) = CELL.iter().position(|k| *k == key) else {
            return p.skip(DEPTH);
        };
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
    // The JSON object of a table cell holds a document's figure, the reason for skipping, or a
    // measurement with value, spread and runs.
    match seen {
        [true, false, false, false, false, false, false, false] => Ok(Cell::Document(document)),
        [false, true, false, false, false, false, false, false] => Ok(Cell::Skipped(skipped)),
        [false, false, true, true, true, ..] => {
            // A single run has no spread, but older reports give it a spread of 0.
            m.spread = m.spread.filter(|_| m.runs > 1);
            Ok(Cell::Measured(m))
        }
        _ => Err(p.fail_at(
            start,
            "expected a cell: null, a string, document, skipped, or value, spread and runs",
        )),
    }
}

/// Returns the name of a report's device.
pub(crate) fn device(report: &Report) -> &str {
    report
        .head
        .iter()
        .find(|(n, _)| n == "device")
        .map_or("the other report", |(_, v)| v)
}

/// Returns this run's section with ratios. After each column that both reports measured comes a
/// column `COLUMN / other`. It has this run's value divided by the other's, in the rows of both.
///
/// The ratios are text cells, not measurements. They have no unit and do not belong into the
/// section's plot.
pub(crate) fn beside(own: &Section, other: &Report) -> Section {
    match other.sections.iter().find(|o| o.id == own.id) {
        Some(section) => compare_section(own, section, device(other)),
        None => own.clone(),
    }
}

/// Returns the value of a measured cell, if it is finite and positive, so that a ratio can be
/// taken.
fn measured(cell: Option<&Cell>) -> Option<f64> {
    match cell {
        Some(Cell::Measured(m)) if m.value.is_finite() && m.value > 0.0 => Some(m.value),
        _ => None,
    }
}

fn compare_section(own: &Section, other: &Section, device: &str) -> Section {
    let mut s = own.clone();
    if own.unit != other.unit || own.larger_is_better != other.larger_is_better {
        s.notes.push(format!(
            "Not compared with {device}: its report has these values in {}.",
            other.unit
        ));
        return s;
    }
    let mut added = 0;
    for (i, name) in own.columns.iter().enumerate() {
        let Some(theirs) = other.columns.iter().position(|c| c == name) else {
            continue;
        };
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
        let better = if own.larger_is_better {
            "above"
        } else {
            "below"
        };
        s.notes.push(format!(
            "/ other: divided by the value of {device}; {better} 1 is better here."
        ));
    }
    s
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::render::tests::{hostile, sample};
    use crate::lab::render::{ReportFormat, text};
    use proptest::prelude::*;

    fn json(report: &Report) -> String {
        text(report, ReportFormat::Json)
    }

    fn compare(own: &Report, other: &Report) -> Report {
        let sections = own.sections.iter().map(|s| beside(s, other)).collect();
        Report {
            head: own.head.clone(),
            sections,
        }
    }

    #[test]
    fn reads_what_json_prints() {
        assert_eq!(read(&json(&sample())).unwrap(), sample());
        assert_eq!(read(&json(&Report::default())).unwrap(), Report::default());
        // JSON has no infinities, so they are read back as NaN. NaN is not equal to itself, so this
        // compares the printed texts.
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
        let text = r#"{"format":1,"head":{},
            "new":[{"a":[null,true,-1.5e3,"\u00e4\ud83d\ude00\/"]}],"sections":[]} "#;
        assert_eq!(read(text).unwrap(), Report::default());
    }

    #[test]
    fn errors_name_the_place() {
        let section = |cell: &str| {
            format!(
                "{{\"head\":{{}},\"sections\":[\n{{\"id\":\"ä\",\"title\":\"\",\"rows_are\":\"\",\
                 \"unit\":\"\",\"larger_is_better\":true,\"columns\":[],\"notes\":[],\
                 \"plot\":\"none\",\"rows\":[{{\"label\":\"\",\n\"cells\":[{cell}]}}]}}]}}"
            )
        };
        read(&section("null")).unwrap();
        for (text, error) in [
            (String::new(), "1:1: expected {"),
            ("{}".into(), "1:3: \"head\" is missing"),
            ("{\"head\":{}}".into(), "1:12: \"sections\" is missing"),
            ("{\"head\":{},\"head\":{}}".into(), "1:19: \"head\" twice"),
            (
                "{\"head\":{},\n\"sections\":[]}\nx".into(),
                "3:1: expected nothing after the report",
            ),
            ("{\"head\":{\"ä\":1}".into(), "1:14: expected a string"),
            (
                "{\"head\":{\"a\":\"b".into(),
                "1:16: a string that does not end on its line",
            ),
            ("{\"head\":{\"a\":\"\\q".into(), "1:15: an unknown escape"),
            (
                "{\"head\":{\"a\":\"\\ud800\"".into(),
                "1:15: half of a character",
            ),
            (
                "{\"head\":{\"a\":\"\\ud800\\u0041\"".into(),
                "1:15: half of a character",
            ),
            (
                "{\"head\":{\"a\":\"\\u00g0\"".into(),
                "1:15: expected four hexadecimal digits",
            ),
            (section("01"), "3:10: expected {"),
            (section("{\"document\":01}"), "3:22: expected a number"),
            (section("{\"document\":1e999}"), "3:22: expected a number"),
            (section("{\"document\":+1}"), "3:22: expected a number"),
            (section("{\"document\":1.}"), "3:22: expected a number"),
            (section("{\"document\":1"), "3:23: expected , or }"),
            (
                section("{\"value\":1,\"spread\":0,\"runs\":1.5}"),
                "3:39: expected a count",
            ),
            (
                section("{\"value\":1,\"spread\":0,\"runs\":-1}"),
                "3:39: expected a count",
            ),
        ] {
            assert_eq!(read(&text).unwrap_err(), error, "{text}");
        }
        assert!(
            read(&section("{\"value\":1}"))
                .unwrap_err()
                .starts_with("3:10: expected a cell")
        );
        assert!(
            read(&section("{}"))
                .unwrap_err()
                .starts_with("3:10: expected a cell")
        );
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
            let floor = |i: usize| {
                let mut below = (0..=i.min(text.len())).rev();
                below.find(|i| text.is_char_boundary(*i)).unwrap()
            };
            prop_assert!(read(&text[..floor(cut.min(text.len() - 3))]).is_err());
            let mut damaged = text.clone();
            damaged.insert_str(floor(at), &junk);
            if let Ok(report) = read(&damaged) {
                let _ = compare(&sample(), &report);
            }
        }

        #[test]
        fn strings_and_numbers_survive(
            s in any::<String>(),
            x in any::<f64>(),
            runs in any::<u32>(),
        ) {
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
        rows[0].cells[1] = Cell::Measured(Measured {
            value: 6.52,
            runs: 3,
            ..Measured::default()
        });
        rows[1].cells[1] = Cell::Skipped("no".into());
        rows[2].label = "2881".into();
        let both = compare(&sample(), &other);
        let s = &both.sections[0];
        assert_eq!(
            s.columns,
            [
                "RM×RM",
                "RM×RM / other",
                "Morton 4-2",
                "Morton 4-2 / other",
                "document"
            ]
        );
        assert_eq!(s.rows[0].cells[1], Cell::Text("1.000".into()));
        assert_eq!(s.rows[0].cells[3], Cell::Text("2.000".into()));
        assert_eq!(s.rows[0].cells[4], Cell::Document(13.04));
        assert_eq!(
            (&s.rows[1].cells[3], &s.rows[2].cells[3]),
            (&Cell::Empty, &Cell::Empty)
        );
        assert_eq!(
            s.notes[1],
            "/ other: divided by the value of slower; above 1 is better here."
        );
        assert!(both.sections[1].notes[0].contains("below 1 is better here"));
        assert_eq!(device(&other), "slower");
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
