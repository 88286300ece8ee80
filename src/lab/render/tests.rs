use super::*;

fn table(report: &Report) -> String {
    text(report, ReportFormat::Table)
}

fn md(report: &Report) -> String {
    text(report, ReportFormat::Md)
}

fn csv(report: &Report) -> String {
    text(report, ReportFormat::Csv)
}

fn cell(value: f64, spread: f64) -> Cell {
    let percent = Some(value * 5.0);
    Cell::Measured(Measured {
        value,
        spread: Some(spread),
        runs: 20,
        first: Some(value - 1.0),
        percent,
        error: Some(0.25),
    })
}

/// Returns a report with every kind of cell.
pub(crate) fn sample() -> Report {
    let skip = || Cell::Skipped("too large & <slow>".into());
    let row = |label: &str, cells: [Cell; 3]| Row {
        label: label.into(),
        cells: cells.into(),
    };
    let text = |s: &str| Cell::Text(s.into());
    let once = Cell::Measured(Measured {
        value: 1316.41,
        runs: 1,
        ..Measured::default()
    });
    Report {
        head: vec![
            ("device".into(), "Mali-T628 \"rev\" <1>".into()),
            ("peak".into(), "17.1 GFLOPS".into()),
        ],
        sections: vec![
            Section {
                id: "t_8_2".into(),
                title: "Table 8.2".into(),
                rows_are: "size".into(),
                unit: "GFLOPS".into(),
                larger_is_better: true,
                columns: vec!["RM×RM".into(), "Morton 4-2".into(), "document".into()],
                rows: vec![
                    row(
                        "96",
                        [cell(0.304, 0.01), cell(13.04, 0.05), Cell::Document(13.04)],
                    ),
                    row(
                        "192",
                        [cell(2.516, 0.002), cell(9.9996, 0.5), Cell::Document(10.8)],
                    ),
                    row("2880", [skip(), cell(13.65, 0.0), Cell::Empty]),
                ],
                notes: vec!["2N³ | a_b *c*".into()],
                plot: Plot::Lines,
            },
            Section {
                id: "steps".into(),
                title: "Steps".into(),
                rows_are: "step".into(),
                unit: "ms".into(),
                larger_is_better: false,
                columns: vec![
                    "kernel".into(),
                    "first run, cold".into(),
                    "share, of, all".into(),
                ],
                rows: vec![
                    row("a|b", [text("mat, \"mul\""), once, text("12.5")]),
                    row("_c_", [text("two\nlines"), Cell::Empty, text("7")]),
                ],
                notes: vec![],
                plot: Plot::Bars,
            },
        ],
    }
}

/// Returns a report with everything that could break a format: values that are no numbers, ragged
/// rows, and markup and control characters everywhere.
pub(crate) fn hostile() -> Report {
    let odd = "<&\"'>|,\\\u{0}\u{1b}[31m\n\t\u{ffff}\u{2028}ä😀]]>";
    let values = [
        f64::NAN,
        f64::INFINITY,
        -f64::INFINITY,
        0.0,
        -0.0,
        -7.5,
        1e-300,
        5e-324,
        1e300,
        f64::MAX,
    ];
    let mut rows = Vec::new();
    for value in values {
        let some = Some(value);
        let m = Measured {
            value,
            spread: some,
            runs: 20,
            first: some,
            percent: some,
            error: some,
        };
        let cells = vec![
            Cell::Measured(m),
            Cell::Document(value),
            Cell::Text(odd.into()),
            Cell::Skipped(odd.into()),
        ];
        rows.push(Row {
            label: odd.into(),
            cells: cells.clone(),
        });
        rows.push(Row {
            label: value.to_string(),
            cells: cells[..1].to_vec(),
        });
        rows.push(Row {
            label: "7".into(),
            cells: [&cells[..], &cells[..]].concat(),
        });
    }
    let mut sections = Vec::new();
    for plot in [Plot::None, Plot::Lines, Plot::Bars, Plot::Grid] {
        for id in ["", "contents", "a.1", odd] {
            let all = if id.is_empty() {
                Vec::new()
            } else {
                rows.clone()
            };
            let s = || odd.to_string();
            let columns = if id == "a.1" {
                Vec::new()
            } else {
                vec![s(), s(), s(), s()]
            };
            sections.push(Section {
                id: id.into(),
                title: s(),
                rows_are: s(),
                unit: s(),
                larger_is_better: true,
                columns,
                rows: if id == "contents" {
                    all[3..6].to_vec()
                } else {
                    all
                },
                notes: vec![s(), String::new()],
                plot,
            });
        }
    }
    Report {
        head: vec![(odd.into(), odd.into()), (odd.into(), String::new())],
        sections,
    }
}

#[test]
fn numbers_have_three_or_four_digits() {
    for (x, s) in [
        (0.0, "0"),
        (-0.0, "0"),
        (0.304, "0.304"),
        (0.0425, "0.0425"),
        (0.000123, "0.000123"),
        (2.516, "2.516"),
        (9.9996, "10.00"),
        (13.0, "13.00"),
        (129.33, "129.3"),
        (1316.41, "1316"),
        (123456789.0, "123456789"),
        (-13.037, "-13.04"),
        (1e-7, "1.00e-7"),
        (3e15, "3.00e15"),
        (f64::NAN, "NaN"),
        (f64::INFINITY, "inf"),
    ] {
        assert_eq!(number(x), s);
    }
    assert_eq!(document(10.8), "10.8");
    assert_eq!(document(0.1 + 0.2), "0.300");
}

#[test]
fn what_has_no_spread_shows_none() {
    let m = Measured {
        value: 2.5,
        runs: 7,
        ..Measured::default()
    };
    assert_eq!(measured(&m).spread, "");
    assert_eq!(
        measured(&Measured {
            spread: Some(0.0),
            ..m
        })
        .spread,
        "±0.000"
    );
    let mut report = sample();
    report.sections.truncate(1);
    report.sections[0].rows.truncate(1);
    report.sections[0].rows[0].cells = vec![Cell::Measured(m); 3];
    for s in [
        table(&report),
        md(&report),
        crate::lab::html::page(&report, "t"),
    ] {
        assert!(!s.contains('±'), "{s}");
    }
    assert!(csv(&report).contains("t_8_2,96,RM×RM,2.5,GFLOPS,,7,,,,"));
    assert!(json(&report).contains("{\"value\":2.5,\"spread\":null,\"runs\":7}"));
}

#[test]
fn formats_have_names() {
    for name in ["table", "md", "csv", "json"] {
        assert!(ReportFormat::parse(name).is_some());
    }
    assert_eq!(ReportFormat::parse("yaml"), None);
}

#[test]
fn table_reads_like_this() {
    let expected = "\
device  Mali-T628 \"rev\" <1>
peak    17.1 GFLOPS


Table 8.2
GFLOPS, larger is better; median ± half the distance between the quartiles; % of this device's
measured peak; (in parentheses): a figure of the document

size               RM×RM         Morton 4-2  document
----  ------------------  -----------------  --------
  96  0.304 ±0.010  1.5%  13.04 ±0.05 65.2%   (13.04)
 192  2.516 ±0.002 12.6%  10.00 ±0.50 50.0%   (10.8)
2880    [1]               13.65 ±0.00 68.2%

[1] skipped: too large & <slow>
- Largest error of the check: 0.250 of the bound (96, RM×RM).
- 2N³ | a_b *c*


Steps
ms, smaller is better

                  first  share,
                   run,     of,
step  kernel       cold     all
----  ----------  -----  ------
a|b   mat, \"mul\"   1316    12.5
_c_   two lines             7
";
    assert_eq!(table(&sample()), expected);
}

#[test]
fn markdown_reads_like_this() {
    let expected = "\
- **device**: Mali-T628 \"rev\" &lt;1>
- **peak**: 17.1 GFLOPS

## Table 8.2

GFLOPS, larger is better; median ± half the distance between the quartiles; % of this device's \
measured peak; in italics: a figure of the document

| size | RM×RM | Morton 4-2 | document |
| ---: | ---: | ---: | ---: |
| 96 | 0.304 ±0.010 (1.5%) | 13.04 ±0.05 (65.2%) | *13.04* |
| 192 | 2.516 ±0.002 (12.6%) | 10.00 ±0.50 (50.0%) | *10.8* |
| 2880 | skipped<sup>1</sup> | 13.65 ±0.00 (68.2%) |  |

- <sup>1</sup> skipped: too large &amp; &lt;slow>
- Largest error of the check: 0.250 of the bound (96, RM×RM).
- 2N³ \\| a_b \\*c\\*

## Steps

ms, smaller is better

| step | kernel | first run, cold | share, of, all |
| --- | --- | ---: | ---: |
| a\\|b | mat, \"mul\" | 1316 | 12.5 |
| \\_c\\_ | two lines |  | 7 |
";
    assert_eq!(md(&sample()), expected);
}

#[test]
fn csv_reads_like_this() {
    let expected = "\
section,row,column,value,unit,spread,runs,first,percent,error,note
t_8_2,96,RM×RM,0.304,GFLOPS,0.01,20,-0.696,1.52,0.25,
t_8_2,96,Morton 4-2,13.04,GFLOPS,0.05,20,12.04,65.19999999999999,0.25,
t_8_2,96,document,13.04,GFLOPS,,,,,,document
t_8_2,192,RM×RM,2.516,GFLOPS,0.002,20,1.516,12.58,0.25,
t_8_2,192,Morton 4-2,9.9996,GFLOPS,0.5,20,8.9996,49.998,0.25,
t_8_2,192,document,10.8,GFLOPS,,,,,,document
t_8_2,2880,RM×RM,,,,,,,,skipped: too large & <slow>
t_8_2,2880,Morton 4-2,13.65,GFLOPS,0,20,12.65,68.25,0.25,
steps,a|b,kernel,\"mat, \"\"mul\"\"\",,,,,,,text
steps,a|b,\"first run, cold\",1316.41,ms,,1,,,,
steps,a|b,\"share, of, all\",12.5,,,,,,,text
steps,_c_,kernel,\"two
lines\",,,,,,,text
steps,_c_,\"share, of, all\",7,,,,,,,text
";
    assert_eq!(csv(&sample()), expected);
}

#[test]
fn csv_lines_have_eleven_fields() {
    let text = csv(&hostile());
    let (mut fields, mut quoted) = (1, false);
    for c in text.chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => fields += 1,
            '\n' if !quoted => {
                assert_eq!(fields, 11);
                fields = 1;
            }
            _ => {}
        }
    }
    assert!(!quoted);
}

#[test]
fn json_is_json() {
    for report in [sample(), hostile(), Report::default()] {
        let v: serde_json::Value = serde_json::from_str(&json(&report)).unwrap();
        assert_eq!(
            v["sections"].as_array().unwrap().len(),
            report.sections.len()
        );
    }
    let text = json(&sample());
    assert!(text.starts_with("{\"head\":{\n\"device\":\"Mali-T628 \\\"rev\\\" <1>\",\n"));
    assert!(text.contains(
        "{\"label\":\"2880\",\"cells\":[{\"skipped\":\"too large & \
         <slow>\"},{\"value\":13.65,\"spread\":0,\
         \"runs\":20,\"first\":12.65,\"percent\":68.25,\"error\":0.25},null]}"
    ));
}

#[test]
fn nothing_gives_something_printable() {
    let empty = Report::default();
    assert_eq!((table(&empty), md(&empty)), (String::new(), String::new()));
    assert_eq!(csv(&empty).lines().count(), 1);
    assert_eq!(json(&empty), "{\"head\":{},\n\"sections\":[]}\n");
}

/// Escape sequences in a driver's strings do not reach the terminal, and a row stays on one line.
#[test]
fn hostile_text_stays_in_its_place() {
    let report = hostile();
    for s in [table(&report), md(&report)] {
        assert!(!s.contains(|c: char| c.is_control() && c != '\n'));
    }
    let rows: usize = report.sections.iter().map(|s| s.rows.len() + 2).sum();
    assert_eq!(
        md(&report).lines().filter(|l| l.starts_with('|')).count(),
        rows
    );
}
