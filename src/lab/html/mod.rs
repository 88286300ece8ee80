//! Writes a report as one HTML page, without scripts, fonts or other files. The page suits phones,
//! print and dark mode.
//!
//! The page begins with a summary of the device and its fastest kernels. The report's tables
//! follow. The checks come last and are folded.

mod axis;
mod plot;
mod table;
#[cfg(test)]
mod tests;

use super::render::{clean, largest_error, skips};
use super::summary;
use super::table::{Cell, Plot, Report, Section};

/// The style sheet of the page, for light and dark mode. Each colour has a contrast of at least 3:1
/// to its background. Neighbouring colours also differ for colour-blind readers (after Okabe and
/// Ito).
const STYLE: &str = include_str!("style.css");

/// Returns the report as an HTML page.
pub(crate) fn page(report: &Report, title: &str) -> String {
    let mut o = String::from(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\" />\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\" />\n<title>",
    );
    put(&mut o, title);
    o += "</title>\n<style>\n";
    o += STYLE;
    o += "</style>\n</head>\n<body>\n<main>\n<header>\n";
    element(&mut o, "h1", title);
    o += "\n";
    put_summary(&mut o, report);
    o += "</header>\n";
    // The section with the checks of kernels comes last on the page.
    let (checks, tables): (Vec<&Section>, Vec<&Section>) =
        report.sections.iter().partition(|s| s.id == "check");
    let sections = [tables, checks].concat();
    let anchors = anchors(&sections);
    if sections.is_empty() {
        o += "<p>Nothing was measured.</p>\n";
    } else if sections.len() > 1 {
        o += "<nav aria-labelledby=\"contents\">\n<h2 id=\"contents\">Contents</h2>\n<ol>\n";
        for (section, anchor) in sections.iter().zip(&anchors) {
            o += &format!("<li><a href=\"#{anchor}\">");
            put(&mut o, &section.title);
            o += "</a></li>\n";
        }
        o += "</ol>\n</nav>\n";
    }
    for (section, anchor) in sections.iter().zip(&anchors) {
        o += &format!("<section id=\"{anchor}\">\n");
        element(&mut o, "h2", &section.title);
        o += "\n";
        let folded = section.id == "check" && sections.len() > 1;
        if folded {
            o += &format!(
                "<details>\n<summary>{} rows</summary>\n",
                section.rows.len()
            );
        }
        put_section(&mut o, section, anchor);
        o += if folded {
            "</details>\n</section>\n"
        } else {
            "</section>\n"
        };
    }
    o += "</main>\n</body>\n</html>\n";
    o
}

/// Writes text, escaped for elements and for attributes in double quotes.
fn put(o: &mut String, s: &str) {
    for c in clean(s).chars() {
        match c {
            '&' => *o += "&amp;",
            '<' => *o += "&lt;",
            '>' => *o += "&gt;",
            '"' => *o += "&quot;",
            // HTML does not allow these non-characters even escaped.
            '\u{fffe}' | '\u{ffff}' => o.push('\u{fffd}'),
            _ => o.push(c),
        }
    }
}

fn element(o: &mut String, name: &str, text: &str) {
    *o += &format!("<{name}>");
    put(o, text);
    *o += &format!("</{name}>");
}

/// Returns true if the page's summary shows the line `name` of the report's head. The other lines
/// are folded below the summary.
fn leads(name: &str) -> bool {
    ["device", "incomplete", "compared with", "date"].contains(&name) || name.starts_with("peak")
}

/// Writes the summary: lines of the report's head, the result of the checks, and the fastest
/// kernels with their plots. If no kernel was timed, all lines of the head are shown and none is
/// folded.
fn put_summary(o: &mut String, report: &Report) {
    let fastest = summary::sections(report);
    let (first, rest): (Vec<_>, Vec<_>) = report
        .head
        .iter()
        .partition(|(name, _)| fastest.is_empty() || leads(name));
    let checks = report.sections.iter().find(|s| s.id == "check");
    let checked = checks.map(|s| ("checks".to_string(), checks_in_words(s)));
    definitions(o, first.into_iter().chain(&checked));
    if !rest.is_empty() {
        *o += "<details>\n<summary>Machine and program</summary>\n";
        definitions(o, rest.into_iter());
        *o += "</details>\n";
    }
    for section in &fastest {
        element(o, "h2", &section.title);
        *o += "\n";
        put_plot(o, section);
        if section.plot == Plot::None {
            table::table(o, section, &section.id);
        }
    }
}

fn definitions<'a>(o: &mut String, lines: impl Iterator<Item = &'a (String, String)>) {
    let mut lines = lines.peekable();
    if lines.peek().is_none() {
        return;
    }
    *o += "<dl>\n";
    for (name, value) in lines {
        element(o, "dt", name);
        element(o, "dd", value);
        *o += "\n";
    }
    *o += "</dl>\n";
}

/// Returns the result of the checks in words: how many kernels were right or skipped, and which
/// kernels were wrong or failed.
fn checks_in_words(checks: &Section) -> String {
    let (mut right, mut skipped, mut others) = (0, 0, Vec::new());
    for row in &checks.rows {
        match row.cells.first() {
            Some(Cell::Text(text)) if text.starts_with("right") => right += 1,
            Some(Cell::Text(_)) => others.push(&*row.label),
            _ => skipped += 1,
        }
    }
    let mut s = format!("{right} of {} kernels right", checks.rows.len());
    if skipped > 0 {
        s += &format!(", {skipped} skipped");
    }
    if !others.is_empty() {
        s += &format!(", {} wrong or failing: {}", others.len(), others.join(", "));
    }
    s
}

/// Returns an HTML anchor for each section: the section's id, made unique where needed.
fn anchors(sections: &[&Section]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for section in sections {
        let plain = |c: char| match c.is_ascii_alphanumeric() || c == '_' {
            true => c,
            false => '-',
        };
        let mut a: String = section.id.chars().map(plain).collect();
        // The page's table of contents already has the anchor "contents".
        while a.is_empty() || a == "contents" || all.contains(&a) {
            a += &format!("-{}", all.len() + 1);
        }
        all.push(a);
    }
    all
}

fn put_plot(o: &mut String, section: &Section) {
    match section.plot {
        Plot::None => {}
        Plot::Lines => plot::figure(o, section, plot::lines),
        Plot::Bars => plot::figure(o, section, plot::bars),
        Plot::Grid => plot::grid(o, section),
    }
}

/// Writes a section's plot, its table, the reasons of its skipped cells, and its notes.
fn put_section(o: &mut String, section: &Section, anchor: &str) {
    put_plot(o, section);
    table::table(o, section, anchor);
    let skips = skips(section);
    if !skips.is_empty() {
        *o += "<ol class=\"why\">\n";
        for (i, why) in skips.iter().enumerate() {
            *o += &format!("<li id=\"{anchor}.{}\">skipped: ", i + 1);
            put(o, why);
            *o += "</li>\n";
        }
        *o += "</ol>\n";
    }
    let error = largest_error(section);
    if error.is_some() || !section.notes.is_empty() {
        *o += "<ul class=\"notes\">\n";
        for note in error.iter().chain(&section.notes) {
            element(o, "li", note);
            *o += "\n";
        }
        *o += "</ul>\n";
    }
}
