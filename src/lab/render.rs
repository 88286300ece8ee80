//! Renders a report as text: a table for a terminal, Markdown, CSV or JSON.
//!
//! Tables are for people and round numbers to three or four digits. CSV and JSON have every digit.
//! Cells of a column are aligned on the decimal point, so that sizes that differ by orders of
//! magnitude can be compared at a glance.

use crate::escape;
use crate::lab::table::{Cell, Measured, Plot, Report, Row, Section};

/// The largest number of characters in a line of running text on the terminal.
const LINE: usize = 100;

/// The format in which a report is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ReportFormat {
    /// Aligned text for a terminal.
    #[default]
    Table,
    /// Markdown with tables, as GitHub shows them.
    Md,
    /// CSV, one flat table with a line for each cell.
    Csv,
    /// JSON with every digit, which [`read`](crate::lab::against::read) reads back.
    Json,
}

impl ReportFormat {
    pub(crate) fn parse(name: &str) -> Option<ReportFormat> {
        match name {
            "table" => Some(ReportFormat::Table),
            "md" => Some(ReportFormat::Md),
            "csv" => Some(ReportFormat::Csv),
            "json" => Some(ReportFormat::Json),
            _ => None,
        }
    }
}

/// Returns the report in this format, with a newline at its end.
pub(crate) fn text(report: &Report, format: ReportFormat) -> String {
    if format == ReportFormat::Json {
        return json(report);
    }
    let mut parts = Parts::new(format);
    let mut text = parts.head(&report.head);
    report
        .sections
        .iter()
        .for_each(|section| text += &parts.section(section));
    text
}

/// Prints a report part by part, as it grows. A report in JSON is one document without parts.
pub(crate) struct Parts {
    format: ReportFormat,
    /// True if some part of the report was already printed.
    begun: bool,
}

impl Parts {
    pub(crate) fn new(format: ReportFormat) -> Parts {
        Parts {
            format,
            begun: false,
        }
    }

    /// Returns lines of the report's head as text. More head lines may follow between tables. In
    /// CSV the text is only the names of the fields.
    pub(crate) fn head(&mut self, lines: &[(String, String)]) -> String {
        match self.format {
            ReportFormat::Csv => self.begin(CSV),
            _ if lines.is_empty() => String::new(),
            ReportFormat::Table => {
                let mut o = self.begin("");
                table_head(&mut o, lines);
                // Lines may have text from the report of `--against`, which may contain any
                // character.
                escape::lines(&o).into_owned()
            }
            ReportFormat::Md => {
                let mut o = self.begin("");
                md_head(&mut o, lines);
                escape::lines(&o).into_owned()
            }
            ReportFormat::Json => String::new(),
        }
    }

    pub(crate) fn section(&mut self, section: &Section) -> String {
        match self.format {
            ReportFormat::Table => {
                let mut o = self.begin("");
                table_section(&mut o, section);
                escape::lines(&o).into_owned()
            }
            ReportFormat::Md => {
                let mut o = self.begin("");
                md_section(&mut o, section);
                escape::lines(&o).into_owned()
            }
            ReportFormat::Csv => {
                let mut o = self.begin(CSV);
                csv_section(&mut o, section);
                o
            }
            ReportFormat::Json => String::new(),
        }
    }

    /// Returns the text that comes before a part: `first` before the first part, else a separator.
    fn begin(&mut self, first: &str) -> String {
        let between = match self.format {
            ReportFormat::Table => "\n\n",
            ReportFormat::Md => "\n",
            ReportFormat::Csv | ReportFormat::Json => "",
        };
        let begun = std::mem::replace(&mut self.begun, true);
        String::from(if begun { between } else { first })
    }
}

// --- shared by all formats ---

/// Returns how many digits after the decimal point give `x` three or four significant digits.
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

/// Returns a number with `decimals` digits after the point. Very small and very large numbers are
/// in scientific notation.
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

/// Returns a number with three or four significant digits.
pub(crate) fn number(x: f64) -> String {
    if x == 0.0 {
        "0".into()
    } else {
        fixed(x, decimals(x))
    }
}

/// Returns a figure of a document as the document prints it, without more digits.
pub(crate) fn document(x: f64) -> String {
    let rounded = number(x);
    let exact = exact(x);
    if exact.len() <= rounded.len().max(7) && !exact.contains('e') {
        exact
    } else {
        rounded
    }
}

/// Returns a number with every digit that it needs to be read back.
fn exact(x: f64) -> String {
    let mut s = format!("{x:?}");
    if s.ends_with(".0") {
        s.truncate(s.len() - 2);
    }
    s
}

/// The text of a table's cell, in parts.
#[derive(Default)]
pub(crate) struct Shown {
    /// The number of a measured cell, the words of a text cell, or the mark of a skipped cell.
    pub(crate) value: String,
    /// The spread of a measured value, like `±0.05`; empty if there is none.
    pub(crate) spread: String,
    /// The percentage of the device's peak, like `77.1%`; empty if there is none.
    pub(crate) percent: String,
}

pub(crate) fn measured(m: &Measured) -> Shown {
    let value = number(m.value);
    let spread = m.spread.map_or(String::new(), |spread| {
        // The spread gets as many digits after the point as the value, unless one of both is
        // extreme.
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

/// Returns the text of a cell. A skipped cell shows the number of its reason.
fn shown(cell: &Cell, skips: &[&str]) -> Shown {
    let value = match cell {
        Cell::Empty => String::new(),
        Cell::Text(t) => clean(t),
        Cell::Measured(m) => return measured(m),
        Cell::Document(x) => format!("({})", document(*x)),
        Cell::Skipped(why) => format!("[{}]", reason_number(skips, why)),
    };
    Shown {
        value,
        ..Shown::default()
    }
}

/// Returns the reasons why cells of a section were skipped. Each is listed once, in order.
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

/// Returns the number of the reason `why` in `skips`, counted from 1.
pub(crate) fn reason_number(skips: &[&str], why: &str) -> usize {
    skips.iter().position(|s| *s == why).map_or(0, |i| i + 1)
}

/// Replaces control characters with blanks, since the strings of a driver may contain them.
pub(crate) fn clean(s: &str) -> String {
    s.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

/// Returns true if a text is a finite number.
pub(crate) fn is_number(s: &str) -> bool {
    s.trim().parse::<f64>().is_ok_and(f64::is_finite)
}

/// Returns the line that explains a section's numbers: their unit, if larger or smaller is better,
/// and the marks in the table. `document` describes the mark of a document's figures.
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
            s += ", ";
        }
        s += if section.larger_is_better {
            "larger is better"
        } else {
            "smaller is better"
        };
    }
    if spread {
        s += "; median ± half the distance between the quartiles";
    }
    if percent {
        s += "; % of this device's measured peak";
    }
    if figures {
        s += "; ";
        s += document;
        s += ": a figure of the document";
    }
    s
}

/// Returns the note about the largest error of all measured cells of the section, with its row and
/// column. NaN counts as the largest error.
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

fn pad(s: &mut String, count: usize, with: char) {
    s.extend(std::iter::repeat_n(with, count));
}

/// Returns the number of characters in a text.
pub(crate) fn width(s: &str) -> usize {
    s.chars().count()
}

fn right(s: &str, wide: usize) -> String {
    format!("{s:>wide$}")
}

fn left(s: &str, wide: usize) -> String {
    format!("{s:<wide$}")
}

/// Returns the number of characters before the decimal point and the number from the point on.
fn halves(s: &str) -> (usize, usize) {
    let point = s.find('.').unwrap_or(s.len());
    (width(&s[..point]), width(&s[point..]))
}

/// Pads the numbers of a column so that their decimal points are aligned. `point` and `digit` are
/// blanks as wide as a point and a digit. Empty strings stay empty.
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
        padded += s;
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
        line += word;
    }
    lines.push(line);
    lines
}

// --- table ---

/// Writes a paragraph with `mark` before its first line. The other lines are indented by its width.
fn paragraph(o: &mut String, mark: &str, text: &str) {
    for (i, line) in wrap(&clean(text), LINE - width(mark)).iter().enumerate() {
        *o += &if i == 0 {
            mark.into()
        } else {
            left("", width(mark))
        };
        *o += line;
        o.push('\n');
    }
}

fn end_line(o: &mut String, line: &str) {
    *o += line.trim_end();
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

/// A column of a table on the terminal: the lines of its heading, and its cells, padded to `wide`.
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
        // A long heading is broken into up to three lines, so that it does not widen the column.
        let wide = cell.max(words).max(width(&heading).div_ceil(3));
        Printed {
            heading: wrap(&heading, wide),
            cells,
            wide,
            to_right,
        }
    }

    fn put(&self, line: &mut String, s: &str) {
        *line += &if self.to_right {
            right(s, self.wide)
        } else {
            left(s, self.wide)
        };
        *line += "  ";
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
            // A heading with fewer lines than others is at the bottom, next to the cells.
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
        rule += "  ";
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

/// Returns column `i` of a section for the terminal, with its cells aligned.
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
                    s += &right(text, wide);
                }
            }
            s
        })
        .collect();
    Printed::new(heading, cells, !words || numbers)
}

// --- Markdown ---

/// Returns true if a character is part of a word: a letter, a digit, or not ASCII.
fn in_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || !c.is_ascii()
}

/// Escapes text so that Markdown shows it unchanged.
fn md_text(s: &str) -> String {
    let mut o = String::new();
    let mut before = ' ';
    let mut rest = s.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '&' => o += "&amp;",
            '<' => o += "&lt;",
            '\\' | '|' | '*' | '`' | '[' | ']' | '~' | '$' => {
                o.push('\\');
                o.push(c);
            }
            // An underscore inside a word has no meaning in Markdown.
            '_' if !(in_word(before) && rest.peek().is_some_and(|c| in_word(*c))) => {
                o += "\\_";
            }
            // At the start of a line, these characters begin headings, lists and quotations.
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

fn md_cell(cell: &Cell, skips: &[&str]) -> String {
    match cell {
        Cell::Empty => String::new(),
        Cell::Text(t) => md_text(t),
        Cell::Document(x) => format!("*{}*", document(*x)),
        Cell::Skipped(why) => format!("skipped<sup>{}</sup>", reason_number(skips, why)),
        Cell::Measured(m) => {
            let p = measured(m);
            let mut s = p.value;
            if !p.spread.is_empty() {
                s += &format!(" {}", p.spread);
            }
            if !p.percent.is_empty() {
                s += &format!(" ({})", p.percent);
            }
            s
        }
    }
}

fn md_head(o: &mut String, lines: &[(String, String)]) {
    for (name, value) in lines {
        *o += &format!("- **{}**: {}\n", md_text(name), md_text(value));
    }
}

fn md_section(o: &mut String, section: &Section) {
    *o += &format!("## {}\n\n", md_text(&section.title));
    let reading = reading(section, "in italics");
    if !reading.is_empty() {
        *o += &format!("{}\n\n", md_text(&reading));
    }
    let skips = skips(section);
    *o += &format!("| {}", md_text(&section.rows_are));
    for column in &section.columns {
        *o += &format!(" | {}", md_text(column));
    }
    let numbers = section.rows.iter().all(|r| is_number(&r.label));
    *o += if numbers {
        " |\n| ---: |"
    } else {
        " |\n| --- |"
    };
    for i in 0..section.columns.len() {
        let words = section
            .rows
            .iter()
            .any(|r| matches!(r.cells.get(i), Some(Cell::Text(t)) if !is_number(t)));
        *o += if words { " --- |" } else { " ---: |" };
    }
    o.push('\n');
    for row in &section.rows {
        *o += &format!("| {}", md_text(&row.label));
        for i in 0..section.columns.len() {
            let cell = row.cells.get(i).unwrap_or(&Cell::Empty);
            *o += " | ";
            *o += &md_cell(cell, &skips);
        }
        *o += " |\n";
    }
    let error = largest_error(section);
    if !skips.is_empty() || error.is_some() || !section.notes.is_empty() {
        o.push('\n');
    }
    for (i, why) in skips.iter().enumerate() {
        *o += &format!("- <sup>{}</sup> skipped: {}\n", i + 1, md_text(why));
    }
    for note in error.iter().chain(&section.notes) {
        *o += &format!("- {}\n", md_text(note));
    }
}

// --- CSV ---

pub(super) fn csv_field(s: &str) -> String {
    match s.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", s.replace('"', "\"\"")),
        false => s.into(),
    }
}

/// The first line of a report as CSV: the names of the fields.
const CSV: &str = "section,row,column,value,unit,spread,runs,first,percent,error,note\n";

fn csv_section(o: &mut String, section: &Section) {
    let (id, unit) = (csv_field(&section.id), csv_field(&section.unit));
    for row in &section.rows {
        let label = csv_field(&row.label);
        for (cell, column) in row.cells.iter().zip(&section.columns) {
            let fields = match cell {
                Cell::Empty => continue,
                Cell::Text(t) => format!("{},,,,,,,text", csv_field(t)),
                Cell::Document(x) => format!("{},{unit},,,,,,document", exact(*x)),
                Cell::Skipped(why) => {
                    format!(",,,,,,,{}", csv_field(&format!("skipped: {why}")))
                }
                Cell::Measured(m) => {
                    let runs = Some(f64::from(m.runs));
                    let numbers = [m.spread, runs, m.first, m.percent, m.error]
                        .map(|x| x.map_or(String::new(), exact));
                    format!("{},{unit},{},", exact(m.value), numbers.join(","))
                }
            };
            *o += &format!("{id},{label},{},{fields}\n", csv_field(column));
        }
    }
}

// --- JSON ---

pub(crate) fn json_string(s: &str) -> String {
    let mut o = String::from('"');
    for c in s.chars() {
        match c {
            '"' | '\\' => o.extend(['\\', c]),
            '\n' => o += "\\n",
            '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}' => {
                o += &format!("\\u{:04x}", u32::from(c));
            }
            _ => o.push(c),
        }
    }
    o + "\""
}

/// Returns a number as JSON. An infinity or NaN becomes null, which is read back as NaN.
fn json_number(x: f64) -> String {
    match x.is_finite() {
        true => exact(x),
        false => "null".into(),
    }
}

/// Returns the items as JSON, separated by commas.
fn json_list<T>(items: &[T], json: impl Fn(&T) -> String) -> String {
    items.iter().map(json).collect::<Vec<_>>().join(",")
}

fn json_strings(all: &[String]) -> String {
    json_list(all, |s| json_string(s))
}

/// Returns a cell as JSON. An empty cell is null, a text is a string, and other cells are objects.
fn json_cell(cell: &Cell) -> String {
    match cell {
        Cell::Empty => "null".into(),
        Cell::Text(t) => json_string(t),
        Cell::Document(x) => format!("{{\"document\":{}}}", json_number(*x)),
        Cell::Skipped(why) => format!("{{\"skipped\":{}}}", json_string(why)),
        Cell::Measured(m) => {
            // A missing spread is written as null, because the reader of `--against` requires the
            // key.
            let spread = json_number(m.spread.unwrap_or(f64::NAN));
            let (value, runs) = (json_number(m.value), m.runs);
            let mut o = format!("{{\"value\":{value},\"spread\":{spread},\"runs\":{runs}");
            for (name, x) in [
                ("first", m.first),
                ("percent", m.percent),
                ("error", m.error),
            ] {
                if let Some(x) = x {
                    o += &format!(",\"{name}\":{}", json_number(x));
                }
            }
            o + "}"
        }
    }
}

fn json(report: &Report) -> String {
    let line = |(name, value): &(String, String)| {
        format!("\n{}:{}", json_string(name), json_string(value))
    };
    format!(
        "{{\"head\":{{{}}},\n\"sections\":[{}]}}\n",
        json_list(&report.head, line),
        json_list(&report.sections, json_section)
    )
}

fn json_section(section: &Section) -> String {
    let row = |row: &Row| {
        let (label, cells) = (json_string(&row.label), json_list(&row.cells, json_cell));
        format!("\n{{\"label\":{label},\"cells\":[{cells}]}}")
    };
    let plot = match section.plot {
        Plot::None => "none",
        Plot::Lines => "lines",
        Plot::Bars => "bars",
        Plot::Grid => "grid",
    };
    format!(
        "\n{{\"id\":{},\"title\":{},\"rows_are\":{},\"unit\":{},\"larger_is_better\":{},\n\
         \"columns\":[{}],\n\"rows\":[{}],\n\"notes\":[{}],\"plot\":\"{plot}\"}}",
        json_string(&section.id),
        json_string(&section.title),
        json_string(&section.rows_are),
        json_string(&section.unit),
        section.larger_is_better,
        json_strings(&section.columns),
        json_list(&section.rows, row),
        json_strings(&section.notes),
    )
}

#[cfg(test)]
pub(crate) mod tests;
