//! A report as text: a table for a terminal, Markdown, CSV or JSON.
//!
//! Tables are for people and round to three or four digits; CSV and JSON carry every digit. Cells
//! of one column are aligned on the decimal point, so that sizes that differ by orders of magnitude
//! can be compared at a glance.

use crate::escape;
use crate::lab::table::{Cell, Measured, Plot, Report, Section};

/// Longest line of running text.
const LINE: usize = 100;

/// How a report is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum OutputFormat {
    /// Aligned text for a terminal.
    #[default]
    Table,
    /// Markdown with tables, as GitHub shows them.
    Md,
    /// One flat table, a line per cell.
    Csv,
    /// Everything; [`read`](crate::lab::against::read) takes it back.
    Json,
}

impl OutputFormat {
    /// The format of that name.
    pub(crate) fn parse(name: &str) -> Option<OutputFormat> {
        match name {
            "table" => Some(OutputFormat::Table),
            "md" => Some(OutputFormat::Md),
            "csv" => Some(OutputFormat::Csv),
            "json" => Some(OutputFormat::Json),
            _ => None,
        }
    }
}

/// The report in that format, ending with a newline.
pub(crate) fn text(report: &Report, format: OutputFormat) -> String {
    if format == OutputFormat::Json {
        return json(report);
    }
    let mut parts = Parts::new(format);
    let mut text = parts.head(&report.head);
    report
        .sections
        .iter()
        .for_each(|section| add(&mut text, &parts.section(section)));
    text
}

/// The text of a report in parts, in the order in which they are found. JSON is one document and
/// has none.
pub(crate) struct Parts {
    format: OutputFormat,
    /// Whether something stands before the next part.
    begun: bool,
}

impl Parts {
    /// The parts of an empty report.
    pub(crate) fn new(format: OutputFormat) -> Parts {
        Parts {
            format,
            begun: false,
        }
    }

    /// Lines of the head; more may come between tables.
    pub(crate) fn head(&mut self, lines: &[(String, String)]) -> String {
        match self.format {
            OutputFormat::Csv => self.begin(CSV),
            _ if lines.is_empty() => String::new(),
            OutputFormat::Table => {
                let mut o = self.begin("");
                table_head(&mut o, lines);
                // Of another report (`--against`), which may come from anywhere.
                escape::lines(&o).into_owned()
            }
            OutputFormat::Md => {
                let mut o = self.begin("");
                md_head(&mut o, lines);
                escape::lines(&o).into_owned()
            }
            OutputFormat::Json => String::new(),
        }
    }

    /// A table.
    pub(crate) fn section(&mut self, section: &Section) -> String {
        match self.format {
            OutputFormat::Table => {
                let mut o = self.begin("");
                table_section(&mut o, section);
                escape::lines(&o).into_owned()
            }
            OutputFormat::Md => {
                let mut o = self.begin("");
                md_section(&mut o, section);
                escape::lines(&o).into_owned()
            }
            OutputFormat::Csv => {
                let mut o = self.begin(CSV);
                csv_section(&mut o, section);
                o
            }
            OutputFormat::Json => String::new(),
        }
    }

    /// `first` before the first part, what separates parts before the others.
    fn begin(&mut self, first: &str) -> String {
        let between = match self.format {
            OutputFormat::Table => "\n\n",
            OutputFormat::Md => "\n",
            OutputFormat::Csv | OutputFormat::Json => "",
        };
        (if std::mem::replace(&mut self.begun, true) {
            between
        } else {
            first
        })
        .into()
    }
}

// --- what all formats share ---

/// Digits after the point that leave three or four significant ones.
fn decimals(x: f64) -> usize {
    let a = x.abs();
    match a {
        _ if a >= 999.95 => 0,
        _ if a >= 99.995 => 1,
        _ if a >= 9.9995 => 2,
        _ if a >= 0.09995 => 3,
        _ if a >= 0.009995 => 4,
        _ if a >= 0.0009995 => 5,
        _ => 6,
    }
}

/// A number with that many digits after the point, or in scientific notation where it is extreme.
fn fixed(x: f64, decimals: usize) -> String {
    let a = x.abs();
    if a == 0.0 || ((1e-4..1e12).contains(&a)) {
        format!("{x:.decimals$}")
    } else if a.is_finite() {
        format!("{x:.2e}")
    } else {
        format!("{x}")
    }
}

/// A number with three or four significant digits.
pub(crate) fn number(x: f64) -> String {
    if x == 0.0 {
        "0".into()
    } else {
        fixed(x, decimals(x))
    }
}

/// A figure as the document prints it: no digit added.
fn printed(x: f64) -> String {
    let rounded = number(x);
    let exact = exact(x);
    if exact.len() <= rounded.len().max(7) && !exact.contains('e') {
        exact
    } else {
        rounded
    }
}

/// A number with every digit that it needs to be read back.
fn exact(x: f64) -> String {
    let mut s = format!("{x:?}");
    if s.ends_with(".0") {
        s.truncate(s.len() - 2);
    }
    s
}

/// What a cell shows, in parts.
#[derive(Default)]
pub(crate) struct Shown {
    /// The value, the words, or the mark of a skipped cell.
    pub(crate) value: String,
    /// `±0.05`, or nothing.
    pub(crate) spread: String,
    /// `77.1%`, or nothing.
    pub(crate) percent: String,
}

/// A measured value in parts.
pub(crate) fn measured(m: &Measured) -> Shown {
    let value = number(m.value);
    let spread = m.spread.map_or(String::new(), |spread| {
        // The spread has the value's digits, unless one of them is extreme.
        let digits = decimals(m.value);
        let plain = spread.abs() < 1e12 && !value.contains('e');
        format!(
            "±{}",
            if plain {
                format!("{spread:.digits$}")
            } else {
                number(spread)
            }
        )
    });
    let percent = m
        .percent
        .map_or(String::new(), |p| format!("{}%", fixed(p, 1)));
    Shown {
        value,
        spread,
        percent,
    }
}

/// A cell in parts; skipped cells show the number of their reason.
fn shown(cell: &Cell, skips: &[&str]) -> Shown {
    let value = match cell {
        Cell::Empty => String::new(),
        Cell::Text(t) => clean(t),
        Cell::Measured(m) => return measured(m),
        Cell::Document(x) => format!("({})", printed(*x)),
        Cell::Skipped(why) => format!("[{}]", reason_number(skips, why)),
    };
    Shown {
        value,
        ..Shown::default()
    }
}

/// A document's figure without brackets.
pub(crate) fn document(x: f64) -> String {
    printed(x)
}

/// Why cells of a section were skipped: each reason once, in order.
pub(crate) fn skips(section: &Section) -> Vec<&str> {
    let mut all: Vec<&str> = Vec::new();
    for cell in section.rows.iter().flat_map(|r| &r.cells) {
        if let Cell::Skipped(why) = cell {
            if !all.contains(&why.as_str()) {
                all.push(why);
            }
        }
    }
    all
}

/// The number of a reason, from 1.
pub(crate) fn reason_number(skips: &[&str], why: &str) -> usize {
    skips.iter().position(|s| *s == why).map_or(0, |i| i + 1)
}

/// Text for one line: control characters (a driver's strings may hold any) become blanks.
pub(crate) fn clean(s: &str) -> String {
    s.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

/// Whether a word stands for a number.
pub(crate) fn is_number(s: &str) -> bool {
    s.trim().parse::<f64>().is_ok_and(f64::is_finite)
}

/// How the numbers of a section are to be read: unit, direction, and the marks that occur in it.
pub(crate) fn reading(section: &Section, document: &str) -> String {
    let (mut spread, mut percent, mut figures, mut values) = (false, false, false, false);
    for cell in section.rows.iter().flat_map(|r| &r.cells) {
        match cell {
            Cell::Measured(m) => {
                values = true;
                spread |= m.spread.is_some();
                percent |= m.percent.is_some();
            }
            Cell::Document(_) => figures = true,
            _ => {}
        }
    }
    let mut s = clean(&section.unit);
    if values || figures {
        if !s.is_empty() {
            add(&mut s, ", ");
        }
        add(
            &mut s,
            if section.larger_is_better {
                "larger is better"
            } else {
                "smaller is better"
            },
        );
    }
    if spread {
        add(&mut s, "; median ± half the distance between the quartiles");
    }
    if percent {
        add(&mut s, "; % of this device's measured peak");
    }
    if figures {
        add(&mut s, "; ");
        add(&mut s, document);
        add(&mut s, ": a figure of the document");
    }
    s
}

/// The largest error of the section's checks, and where. An error that is not a number is the
/// largest.
pub(crate) fn largest_error(section: &Section) -> Option<String> {
    let mut worst: Option<(f64, &str, &str)> = None;
    for row in &section.rows {
        for (cell, column) in row.cells.iter().zip(&section.columns) {
            let Cell::Measured(Measured { error: Some(e), .. }) = cell else {
                continue;
            };
            if worst.is_none_or(|(w, _, _)| *e > w || e.is_nan()) {
                worst = Some((*e, &row.label, column));
            }
        }
    }
    let (e, row, column) = worst?;
    Some(format!(
        "Largest error of the check: {} of the bound ({}, {}).",
        number(e),
        clean(row),
        clean(column)
    ))
}

/// `push_str` out of line: a report is made of hundreds of pieces, and speed does not matter here.
pub(crate) fn add(o: &mut String, s: &str) {
    o.push_str(s);
}

fn pad(s: &mut String, count: usize, with: char) {
    for _ in 0..count {
        s.push(with);
    }
}

/// Characters.
pub(crate) fn width(s: &str) -> usize {
    s.chars().count()
}

fn right(s: &str, wide: usize) -> String {
    let mut r = String::new();
    pad(&mut r, wide.saturating_sub(width(s)), ' ');
    add(&mut r, s);
    r
}

fn left(s: &str, wide: usize) -> String {
    let mut r = String::from(s);
    pad(&mut r, wide.saturating_sub(width(s)), ' ');
    r
}

/// Characters before the decimal point, and from it on.
fn halves(s: &str) -> (usize, usize) {
    // Numbers are ASCII but for the ± before the point.
    let point = s.find('.').unwrap_or(s.len());
    (width(&s[..point]), width(&s[point..]))
}

/// Numbers of one column, padded so that their points stand below each other. `point` and `digit`
/// are blanks as wide as those; empty strings stay empty.
pub(crate) fn align(column: &mut [&mut String], point: char, digit: char) {
    let (mut before, mut after) = (0, 0);
    for (b, a) in column.iter().filter(|s| !s.is_empty()).map(|s| halves(s)) {
        before = before.max(b);
        after = after.max(a);
    }
    for s in column.iter_mut() {
        let (b, mut a) = halves(s);
        if s.is_empty() {
            continue;
        }
        let mut padded = String::new();
        pad(&mut padded, before - b, digit);
        add(&mut padded, s);
        **s = padded;
        if a == 0 && after > 0 {
            s.push(point);
            a = 1;
        }
        pad(s, after - a, digit);
    }
}

/// Breaks text into lines of at most `wide` characters, at blanks.
fn wrap(text: &str, wide: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split(' ').filter(|w| !w.is_empty()) {
        if !line.is_empty() && width(&line) + 1 + width(word) > wide {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        add(&mut line, word);
    }
    lines.push(line);
    lines
}

// --- table ---

/// A paragraph with a mark before its first line, the others indented to match.
fn paragraph(o: &mut String, mark: &str, text: &str) {
    for (i, line) in wrap(&clean(text), LINE - width(mark)).iter().enumerate() {
        add(
            o,
            &if i == 0 {
                mark.into()
            } else {
                left("", width(mark))
            },
        );
        add(o, line);
        o.push('\n');
    }
}

fn end_line(o: &mut String, line: &str) {
    add(o, line.trim_end());
    o.push('\n');
}

fn table_head(o: &mut String, lines: &[(String, String)]) {
    let names = lines.iter().map(|(n, _)| width(n)).max().unwrap_or(0);
    for (name, value) in lines {
        end_line(
            o,
            &format!("{}  {}", left(&clean(name), names), clean(value)),
        );
    }
}

/// A column of the terminal's table: heading and cells, all lines equally wide.
struct Printed {
    heading: Vec<String>,
    cells: Vec<String>,
    wide: usize,
    to_right: bool,
}

impl Printed {
    fn new(heading: &str, cells: Vec<String>, to_right: bool) -> Printed {
        let heading = clean(heading);
        let words = heading.split(' ').map(width).max().unwrap_or(0);
        let cell = cells.iter().map(|c| width(c)).max().unwrap_or(0);
        // Long headings take up to three lines rather than a wide column.
        let wide = cell.max(words).max(width(&heading).div_ceil(3));
        Printed {
            heading: wrap(&heading, wide),
            cells,
            wide,
            to_right,
        }
    }

    fn put(&self, line: &mut String, s: &str) {
        add(
            line,
            &if self.to_right {
                right(s, self.wide)
            } else {
                left(s, self.wide)
            },
        );
        add(line, "  ");
    }
}

fn table_section(o: &mut String, section: &Section) {
    paragraph(o, "", &section.title);
    let reading = reading(section, "(in parentheses)");
    if !reading.is_empty() {
        paragraph(o, "", &reading);
    }
    o.push('\n');
    let skips = skips(section);
    let labels: Vec<String> = section.rows.iter().map(|r| clean(&r.label)).collect();
    let numbers = labels.iter().all(|l| is_number(l));
    let mut columns = vec![Printed::new(&section.rows_are, labels, numbers)];
    for (i, heading) in section.columns.iter().enumerate() {
        columns.push(table_column(section, i, heading, &skips));
    }
    let lines = columns.iter().map(|c| c.heading.len()).max().unwrap_or(0);
    let mut rule = String::new();
    for i in 0..lines {
        let mut line = String::new();
        for c in &columns {
            // Headings stand on the table.
            let above = lines - c.heading.len();
            c.put(
                &mut line,
                if i < above { "" } else { &c.heading[i - above] },
            );
        }
        end_line(o, &line);
    }
    for c in &columns {
        pad(&mut rule, c.wide, '-');
        add(&mut rule, "  ");
    }
    end_line(o, &rule);
    for i in 0..section.rows.len() {
        let mut line = String::new();
        for c in &columns {
            c.put(&mut line, &c.cells[i]);
        }
        end_line(o, &line);
    }
    let error = largest_error(section);
    if !skips.is_empty() || error.is_some() || !section.notes.is_empty() {
        o.push('\n');
    }
    for (i, why) in skips.iter().enumerate() {
        paragraph(o, &format!("[{}] ", i + 1), &format!("skipped: {why}"));
    }
    for note in error.iter().chain(&section.notes) {
        paragraph(o, "- ", note);
    }
}

/// The cells of column `i`, aligned.
fn table_column(section: &Section, i: usize, heading: &str, skips: &[&str]) -> Printed {
    let mut parts: Vec<Shown> = Vec::new();
    let mut words = false;
    let mut numeric = Vec::new();
    for row in &section.rows {
        let cell = row.cells.get(i).unwrap_or(&Cell::Empty);
        let part = shown(cell, skips);
        let number = match cell {
            Cell::Text(t) => is_number(t),
            Cell::Measured(_) | Cell::Document(_) => true,
            _ => false,
        };
        words |= !number && matches!(cell, Cell::Text(_));
        numeric.push(number);
        parts.push(part);
    }
    let mut values: Vec<&mut String> = parts
        .iter_mut()
        .zip(&numeric)
        .filter(|(_, n)| **n)
        .map(|(p, _)| &mut p.value)
        .collect();
    align(&mut values, ' ', ' ');
    let mut spreads: Vec<&mut String> = parts.iter_mut().map(|p| &mut p.spread).collect();
    align(&mut spreads, ' ', ' ');
    let value = parts.iter().map(|p| width(&p.value)).max().unwrap_or(0);
    let spread = parts.iter().map(|p| width(&p.spread)).max().unwrap_or(0);
    let percent = parts.iter().map(|p| width(&p.percent)).max().unwrap_or(0);
    let numbers = numeric.contains(&true);
    let cells = parts
        .iter()
        .map(|p| {
            let mut s = if words && !numbers {
                left(&p.value, value)
            } else {
                right(&p.value, value)
            };
            for (text, wide) in [(&p.spread, spread), (&p.percent, percent)] {
                if wide > 0 {
                    s.push(' ');
                    add(&mut s, &right(text, wide));
                }
            }
            s
        })
        .collect();
    Printed::new(heading, cells, !words || numbers)
}

// --- Markdown ---

/// Letters and digits, and whatever is not ASCII (tables of all letters would be larger than this
/// file's code).
fn in_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || !c.is_ascii()
}

/// Text that Markdown shows as it is.
fn md_text(s: &str) -> String {
    let mut o = String::new();
    let mut before = ' ';
    let mut rest = s.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '&' => add(&mut o, "&amp;"),
            '<' => add(&mut o, "&lt;"),
            '\\' | '|' | '*' | '`' | '[' | ']' | '~' | '$' => {
                o.push('\\');
                o.push(c);
            }
            // Inside a word it is only an underscore.
            '_' if !(in_word(before) && rest.peek().is_some_and(|c| in_word(*c))) => {
                add(&mut o, "\\_");
            }
            // At the start of a line these make headings, lists and quotations.
            '#' | '-' | '+' | '>' if o.is_empty() => {
                o.push('\\');
                o.push(c);
            }
            _ => o.push(if c.is_control() { ' ' } else { c }),
        }
        before = c;
    }
    o
}

fn md_head(o: &mut String, lines: &[(String, String)]) {
    for (name, value) in lines {
        add(o, &format!("- **{}**: {}\n", md_text(name), md_text(value)));
    }
}

fn md_section(o: &mut String, section: &Section) {
    add(o, "## ");
    add(o, &md_text(&section.title));
    add(o, "\n\n");
    let reading = reading(section, "in italics");
    if !reading.is_empty() {
        add(o, &md_text(&reading));
        add(o, "\n\n");
    }
    let skips = skips(section);
    add(o, "| ");
    add(o, &md_text(&section.rows_are));
    for column in &section.columns {
        add(o, " | ");
        add(o, &md_text(column));
    }
    let numbers = section.rows.iter().all(|r| is_number(&r.label));
    add(
        o,
        if numbers {
            " |\n| ---: |"
        } else {
            " |\n| --- |"
        },
    );
    for i in 0..section.columns.len() {
        let words = section
            .rows
            .iter()
            .any(|r| matches!(r.cells.get(i), Some(Cell::Text(t)) if !is_number(t)));
        add(o, if words { " --- |" } else { " ---: |" });
    }
    o.push('\n');
    for row in &section.rows {
        add(o, "| ");
        add(o, &md_text(&row.label));
        for i in 0..section.columns.len() {
            let cell = row.cells.get(i).unwrap_or(&Cell::Empty);
            add(o, " | ");
            add(
                o,
                &match cell {
                    Cell::Empty => String::new(),
                    Cell::Text(t) => md_text(t),
                    Cell::Document(x) => format!("*{}*", printed(*x)),
                    Cell::Skipped(why) => {
                        format!("skipped<sup>{}</sup>", reason_number(&skips, why))
                    }
                    Cell::Measured(m) => {
                        let p = measured(m);
                        let mut s = p.value;
                        if !p.spread.is_empty() {
                            s = s + " " + &p.spread;
                        }
                        if !p.percent.is_empty() {
                            s = s + " (" + &p.percent + ")";
                        }
                        s
                    }
                },
            );
        }
        add(o, " |\n");
    }
    let error = largest_error(section);
    if !skips.is_empty() || error.is_some() || !section.notes.is_empty() {
        o.push('\n');
    }
    for (i, why) in skips.iter().enumerate() {
        add(
            o,
            &format!("- <sup>{}</sup> skipped: {}\n", i + 1, md_text(why)),
        );
    }
    for note in error.iter().chain(&section.notes) {
        add(o, "- ");
        add(o, &md_text(note));
        o.push('\n');
    }
}

// --- CSV ---

fn csv_field(o: &mut String, s: &str) {
    if s.contains([',', '"', '\n', '\r']) {
        o.push('"');
        add(o, &s.replace('"', "\"\""));
        o.push('"');
    } else {
        add(o, s);
    }
}

/// Names of the fields.
const CSV: &str = "section,row,column,value,unit,spread,runs,first,percent,error,note\n";

fn csv_section(o: &mut String, section: &Section) {
    for row in &section.rows {
        for (cell, column) in row.cells.iter().zip(&section.columns) {
            if *cell != Cell::Empty {
                csv_line(o, section, [&section.id, &row.label, column], cell);
            }
        }
    }
}

fn csv_line(o: &mut String, section: &Section, names: [&str; 3], cell: &Cell) {
    for name in names {
        csv_field(o, name);
        o.push(',');
    }
    match cell {
        Cell::Empty => {}
        Cell::Text(t) => {
            csv_field(o, t);
            add(o, ",,,,,,,text");
        }
        Cell::Document(x) => {
            add(o, &exact(*x));
            o.push(',');
            csv_field(o, &section.unit);
            add(o, ",,,,,,document");
        }
        Cell::Skipped(why) => {
            add(o, ",,,,,,,");
            csv_field(o, &format!("skipped: {why}"));
        }
        Cell::Measured(m) => {
            add(o, &exact(m.value));
            o.push(',');
            csv_field(o, &section.unit);
            let runs = Some(f64::from(m.runs));
            for x in [m.spread, runs, m.first, m.percent, m.error] {
                o.push(',');
                if let Some(x) = x {
                    add(o, &exact(x));
                }
            }
            o.push(',');
        }
    }
    o.push('\n');
}

// --- JSON ---

pub(crate) fn json_string(o: &mut String, s: &str) {
    o.push('"');
    for c in s.chars() {
        match c {
            '"' => add(o, "\\\""),
            '\\' => add(o, "\\\\"),
            '\n' => add(o, "\\n"),
            '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}' => {
                add(o, "\\u00");
                pad(o, 1, char::from(b'0' + (c as u8 >> 4)));
                o.push(char::from_digit(u32::from(c) & 15, 16).unwrap_or('0'));
            }
            _ => o.push(c),
        }
    }
    o.push('"');
}

/// JSON has no word for what is not a finite number: null, read back as NaN.
fn json_number(o: &mut String, x: f64) {
    add(
        o,
        &if x.is_finite() {
            exact(x)
        } else {
            "null".into()
        },
    );
}

fn json_strings(o: &mut String, all: &[String]) {
    o.push('[');
    for (i, s) in all.iter().enumerate() {
        if i > 0 {
            o.push(',');
        }
        json_string(o, s);
    }
    o.push(']');
}

/// Nothing is null, words are a string, everything else an object.
fn json_cell(o: &mut String, cell: &Cell) {
    match cell {
        Cell::Empty => add(o, "null"),
        Cell::Text(t) => json_string(o, t),
        Cell::Document(x) => {
            add(o, "{\"document\":");
            json_number(o, *x);
            o.push('}');
        }
        Cell::Skipped(why) => {
            add(o, "{\"skipped\":");
            json_string(o, why);
            o.push('}');
        }
        Cell::Measured(m) => {
            add(o, "{\"value\":");
            json_number(o, m.value);
            add(o, ",\"spread\":");
            // null where there is none: reports were read that expect the key.
            json_number(o, m.spread.unwrap_or(f64::NAN));
            add(o, ",\"runs\":");
            add(o, &exact(f64::from(m.runs)));
            for (name, x) in [
                (",\"first\":", m.first),
                (",\"percent\":", m.percent),
                (",\"error\":", m.error),
            ] {
                if let Some(x) = x {
                    add(o, name);
                    json_number(o, x);
                }
            }
            o.push('}');
        }
    }
}

fn json(report: &Report) -> String {
    let mut o = String::from("{\"head\":{");
    for (i, (name, value)) in report.head.iter().enumerate() {
        add(&mut o, if i > 0 { ",\n" } else { "\n" });
        json_string(&mut o, name);
        o.push(':');
        json_string(&mut o, value);
    }
    add(&mut o, "},\n\"sections\":[");
    for (i, section) in report.sections.iter().enumerate() {
        add(&mut o, if i > 0 { ",\n" } else { "\n" });
        json_section(&mut o, section);
    }
    add(&mut o, "]}\n");
    o
}

fn json_section(o: &mut String, section: &Section) {
    for (name, value) in [
        ("{\"id\":", &section.id),
        (",\"title\":", &section.title),
        (",\"rows_are\":", &section.rows_are),
        (",\"unit\":", &section.unit),
    ] {
        add(o, name);
        json_string(o, value);
    }
    add(o, ",\"larger_is_better\":");
    add(
        o,
        if section.larger_is_better {
            "true"
        } else {
            "false"
        },
    );
    add(o, ",\n\"columns\":");
    json_strings(o, &section.columns);
    add(o, ",\n\"rows\":[");
    for (i, row) in section.rows.iter().enumerate() {
        add(
            o,
            if i > 0 {
                ",\n{\"label\":"
            } else {
                "\n{\"label\":"
            },
        );
        json_string(o, &row.label);
        add(o, ",\"cells\":[");
        for (i, cell) in row.cells.iter().enumerate() {
            if i > 0 {
                o.push(',');
            }
            json_cell(o, cell);
        }
        add(o, "]}");
    }
    add(o, "],\n\"notes\":");
    json_strings(o, &section.notes);
    add(
        o,
        match section.plot {
            Plot::None => ",\"plot\":\"none\"}",
            Plot::Lines => ",\"plot\":\"lines\"}",
            Plot::Bars => ",\"plot\":\"bars\"}",
            Plot::Grid => ",\"plot\":\"grid\"}",
        },
    );
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn table(report: &Report) -> String {
        text(report, OutputFormat::Table)
    }

    fn md(report: &Report) -> String {
        text(report, OutputFormat::Md)
    }

    fn csv(report: &Report) -> String {
        text(report, OutputFormat::Csv)
    }
    use crate::lab::table::Row;

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

    /// A report with one of everything.
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

    /// What no report should hold: values that are none, ragged rows, markup and control characters
    /// everywhere.
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
            assert!(OutputFormat::parse(name).is_some());
        }
        assert_eq!(OutputFormat::parse("yaml"), None);
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

    /// No escape sequence of a driver reaches the terminal, and rows stay rows.
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
}
