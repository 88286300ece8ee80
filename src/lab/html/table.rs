//! The tables of an HTML page.

use super::{element, put};
use crate::lab::render::{
    align, document, is_number, measured, reading, reason_number, skips, width,
};
use crate::lab::table::{Cell, Section};

/// The smallest and the largest number of a table that has only numbers. The larger a cell's
/// number, the darker its background.
#[derive(Clone, Copy)]
pub(super) struct Heat {
    low: f64,
    high: f64,
}

impl Heat {
    /// Returns the range of a section's numbers. `None` if the section's cells are not shaded.
    /// Sections are not shaded if they have other cells than numbers, at most 7 columns, or equal
    /// numbers only.
    pub(super) fn of(section: &Section) -> Option<Heat> {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for cell in section.rows.iter().flat_map(|r| &r.cells) {
            match cell {
                Cell::Empty => {}
                Cell::Text(t) if is_number(t) => {
                    let x = t.trim().parse().unwrap_or(low);
                    low = low.min(x);
                    high = high.max(x);
                }
                _ => return None,
            }
        }
        (section.columns.len() > 7 && high > low).then_some(Heat { low, high })
    }

    /// Returns the opacity of a cell's background, from 0 for the smallest number to 0.6 for the
    /// largest.
    pub(super) fn shade(self, x: f64) -> f64 {
        (x - self.low) / (self.high - self.low) * 0.6
    }
}

/// A column of an HTML table: the texts of its numbers, and how it is aligned.
struct PageColumn {
    /// True if all texts in the column's cells are numbers. The column is then aligned at the
    /// right.
    numbers: bool,
    /// True if some text of the column is no number and has more than [`SENTENCE`] characters. The
    /// column's texts are then broken into lines, so that the table does not get wider than the
    /// page.
    sentences: bool,
    values: Vec<String>,
    /// For each row, the text after the value: the spread and the percentage of the device's peak.
    beside: Vec<String>,
    /// The longest text of `beside`. A cell without such a text gets this one hidden, so that the
    /// values of the column are aligned.
    widest: String,
}

/// The largest number of characters of a text that is not broken into lines.
const SENTENCE: usize = 30;

impl PageColumn {
    /// Returns column `i` of a section, prepared for the HTML table.
    fn new(section: &Section, i: usize) -> PageColumn {
        let blank = || vec![String::new(); section.rows.len()];
        let (mut values, mut beside, mut percents) = (blank(), blank(), blank());
        let (mut numbers, mut sentences) = (true, false);
        for (r, row) in section.rows.iter().enumerate() {
            match row.cells.get(i) {
                Some(Cell::Measured(m)) => {
                    let part = measured(m);
                    (values[r], beside[r], percents[r]) = (part.value, part.spread, part.percent);
                }
                Some(Cell::Document(x)) => values[r] = document(*x),
                Some(Cell::Text(t)) if is_number(t) => t.trim().clone_into(&mut values[r]),
                Some(Cell::Text(t)) => {
                    numbers = false;
                    sentences |= width(t) > SENTENCE;
                }
                _ => {}
            }
        }
        if numbers {
            for strings in [&mut values, &mut beside, &mut percents] {
                // Numbers are padded with blanks that are as wide as the missing characters. A
                // punctuation space is as wide as a point, and a figure space as a digit.
                let mut strings: Vec<&mut String> = strings.iter_mut().collect();
                align(&mut strings, '\u{2008}', '\u{2007}');
            }
        }
        let mut widest = String::new();
        for (b, percent) in beside.iter_mut().zip(&percents) {
            if !b.is_empty() && !percent.is_empty() {
                b.push(' ');
            }
            *b += percent;
            if b.len() > widest.len() {
                widest.clone_from(b);
            }
        }
        PageColumn {
            numbers,
            sentences,
            values,
            beside,
            widest,
        }
    }

    fn class(&self) -> &'static str {
        match (self.numbers, self.sentences) {
            (true, _) => " class=\"n\"",
            (false, true) => " class=\"t\"",
            (false, false) => "",
        }
    }

    /// Writes the HTML content of this column's cell in row `r`.
    fn put(&self, o: &mut String, cell: &Cell, r: usize, skips: &[&str], anchor: &str) {
        let (value, beside) = (&self.values[r], &self.beside[r]);
        match cell {
            Cell::Empty => return,
            Cell::Skipped(why) => {
                let n = reason_number(skips, why);
                *o += &format!(
                    "<span class=\"s\">skipped</span><sup><a href=\"#{anchor}.{n}\">{n}</a></sup>"
                );
                return;
            }
            Cell::Text(t) => put(o, if value.is_empty() { t } else { value }),
            Cell::Document(_) => element(o, "i", value),
            Cell::Measured(_) => put(o, value),
        }
        let blank = beside.is_empty();
        if !blank || self.numbers && !self.widest.is_empty() {
            *o += if blank {
                "<span class=\"u b\">"
            } else {
                "<span class=\"u\">"
            };
            put(o, if blank { &self.widest } else { beside });
            *o += "</span>";
        }
    }
}

/// Writes the HTML table of a section. A skipped cell links to its reason, which has the id
/// `anchor.n`.
pub(super) fn table(o: &mut String, section: &Section, anchor: &str) {
    let wide = section.columns.len();
    *o += "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"";
    put(o, &section.title);
    let class = match wide {
        _ if wide > 16 => "dense",
        _ if wide > 6 => "broad",
        _ => "plain",
    };
    let short = if section.rows.len() <= 40 {
        " short"
    } else {
        ""
    };
    *o += &format!("\">\n<table class=\"{class}{short}\">\n");
    // Every table has a caption. If the caption only repeats the section's heading, it is hidden
    // from view and only read by screen readers.
    let reading = reading(section, "in italics");
    let (class, caption) = match reading.is_empty() {
        true => (" class=\"v\"", &section.title),
        false => ("", &reading),
    };
    *o += &format!("<caption{class}>");
    element(o, "span", caption);
    *o += "</caption>\n<thead>\n<tr>";
    let numbers = section.rows.iter().all(|r| is_number(&r.label));
    let columns: Vec<PageColumn> = (0..wide).map(|i| PageColumn::new(section, i)).collect();
    heading(o, &section.rows_are, "col", numbers);
    for (name, column) in section.columns.iter().zip(&columns) {
        heading(o, name, "col", column.numbers);
    }
    *o += "</tr>\n</thead>\n<tbody>\n";
    let (heat, skips) = (Heat::of(section), skips(section));
    for (r, row) in section.rows.iter().enumerate() {
        *o += "<tr>";
        heading(o, &row.label, "row", numbers);
        for (i, column) in columns.iter().enumerate() {
            let cell = row.cells.get(i).unwrap_or(&Cell::Empty);
            *o += &format!("<td{}", column.class());
            if let (Some(heat), Cell::Text(t)) = (heat, cell) {
                let shade = heat.shade(t.trim().parse().unwrap_or(heat.low));
                *o += &format!(" style=\"background:rgba(var(--heat),{shade:.2})\"");
            }
            o.push('>');
            column.put(o, cell, r, &skips, anchor);
            *o += "</td>";
        }
        *o += "</tr>\n";
    }
    *o += "</tbody>\n</table>\n</div>\n";
}

fn heading(o: &mut String, text: &str, scope: &str, number: bool) {
    let class = if number { " class=\"n\"" } else { "" };
    *o += &format!("<th scope=\"{scope}\"{class}>");
    // Browsers break lines behind hyphens and slashes. A CSS class keeps such a word of a column's
    // heading on one line.
    for (i, word) in text.split(' ').enumerate() {
        o.push_str(if i > 0 { " " } else { "" });
        let whole = scope == "col" && word.contains(['-', '/']);
        *o += if whole { "<span class=\"word\">" } else { "" };
        put(o, word);
        *o += if whole { "</span>" } else { "" };
    }
    *o += "</th>";
}
