//! A report as one HTML page: no script, no font, no file beside it. It reads on a phone, on paper
//! and in the dark.
//!
//! Each plot is drawn twice, for a wide and for a narrow page, since a figure that is scaled to a
//! phone's width has letters too small to read; the style sheet shows one of them. Legends are
//! lists beside the plots, so they never cover a line. Colours come with marker shapes: nothing is
//! told by colour alone.

use crate::lab::render::{
    add, align, clean, document, is_number, largest_error, measured, number, reading,
    reason_number, skips, width,
};
use crate::lab::table::{Cell, Measured, Plot, Report, Row, Section};

/// Colours before they repeat, and marker shapes as well.
const COLOURS: usize = 8;

/// Dark on light, light on dark: each at least 3:1 against its ground, and in an order in which
/// neighbours also differ for colour-blind readers (after Okabe and Ito).
const STYLE: &str = "
:root{color-scheme:light;--bg:#fff;--fg:#1c1c1e;--mu:#5c5f66;--ln:#d3d5d9;--st:#f5f6f7;--ac:#00599c;--heat:0,114,178;
--c0:#0072b2;--c1:#d55e00;--c2:#00845f;--c3:#a2478e;--c4:#222;--c5:#b07d00;--c6:#2f93cc;--c7:#8a1f4d}
@media screen and \
(prefers-color-scheme:dark){:root{color-scheme:dark;--bg:#141619;--fg:#e6e4e0;--mu:#a3a6ad;
--ln:#3b3f46;--st:#1d2024;--ac:#7fbcf0;--heat:77,163,224;
--c0:#4da3e0;--c1:#f58a42;--c2:#2fc79b;--c3:#e08fca;--c4:#f2f2f2;--c5:#e5bd3c;--c6:#9bd6f7;--c7:#d4688f}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%;text-size-adjust:100%}
body{margin:0;background:var(--bg);color:var(--fg);font:1.0625rem/1.5 \
system-ui,-apple-system,'Segoe UI',Roboto,
'Noto Sans','DejaVu Sans',sans-serif;overflow-wrap:break-word}
main{max-width:72rem;margin:0 auto;padding:1.5rem 1rem 4rem}
h1{font-size:1.75rem;line-height:1.2;margin:0 0 1rem}
h2{font-size:1.3rem;line-height:1.25;margin:0 0 .75rem}
section{margin-top:3rem;padding-top:1.5rem;border-top:1px solid var(--ln)}
a{color:var(--ac)}
p,ul.notes,ol.why{max-width:44rem}
dl{margin:0;display:grid;gap:.1rem 1.25rem}
dt{color:var(--mu)}
dd{margin:0 0 .4rem;overflow-wrap:anywhere}
nav{margin-top:2rem}
nav ol{margin:.5rem 0 0;padding-left:1.75rem}
nav li{padding:.15rem 0}
nav h2{margin:0;font-size:1.1rem}
figure{margin:0 0 1.75rem;max-width:50rem}
figure svg{display:block;width:100%;height:auto}
svg.narrow{max-width:27rem}
svg.wide{display:none}
figcaption,caption{color:var(--mu);text-align:left}
figcaption{margin-top:.5rem}
caption{padding:0 0 .5rem}
caption span{display:inline-block;position:sticky;left:0;max-width:min(44rem,calc(100vw - 2rem))}
caption.v{position:absolute;width:1px;height:1px;padding:0;overflow:hidden;clip-path:inset(50%)}
.legend{list-style:none;margin:0 0 .5rem;padding:0;display:flex;flex-wrap:wrap;gap:.15rem 1.25rem}
.legend li{display:flex;align-items:center;gap:.5rem}
figure .legend svg{flex:none;width:36px;height:16px}
.scroll{overflow-x:auto}
table{border-collapse:separate;border-spacing:0;font-size:1rem;line-height:1.35;font-variant-numeric:tabular-nums}
th,td{padding:.35rem .8rem;text-align:left;white-space:nowrap;border-bottom:1px solid var(--ln)}
th.n,td.n{text-align:right}
td.t{white-space:normal;min-width:18rem}
thead th{vertical-align:bottom;border-bottom:2px solid \
var(--mu);white-space:normal;min-width:5rem;max-width:12rem}
th{font-weight:600}
tbody th{font-weight:500}
tr>:first-child{position:sticky;left:0;background:var(--bg);padding-left:0;min-width:0}
.s,.u{color:var(--mu)}
.u{margin-left:.5ch}
.b{visibility:hidden}
.s{font-style:italic}
sup{font-size:.75em;line-height:0;margin-left:.15em}
.dense th,.dense td{padding:.15rem .35rem;min-width:2.2rem}
.dense tr>:first-child{padding-right:.6rem;white-space:nowrap}
ol.why,ul.notes{padding-left:1.5rem;margin:.75rem 0}
.why{color:var(--mu)}
li:target{background:var(--st);outline:.25rem solid var(--st)}
svg text{font:14px system-ui,-apple-system,'Segoe UI',Roboto,'Noto Sans','DejaVu \
Sans',sans-serif;fill:var(--fg);
font-variant-numeric:tabular-nums}
svg .t{fill:var(--mu)}
svg .i{font-style:italic;fill:var(--mu)}
.g{stroke:var(--ln);stroke-width:1}
.a{stroke:var(--mu);stroke-width:1}
.l{fill:none;stroke:var(--k);stroke-width:2;stroke-linejoin:round}
.e{fill:none;stroke:var(--k);stroke-width:1.25}
.f{fill:var(--k);stroke:var(--bg);stroke-width:1}
.h{fill:var(--bg);stroke:var(--k);stroke-width:1.75}
.d{stroke-dasharray:6 4}
.o{--k:var(--c1);opacity:.45}
.grid svg.wide{display:block}
.w{stroke:var(--fg);stroke-width:1.25;fill:none}
@media(max-width:37rem){tr>:first-child{max-width:9rem;white-space:normal}.dense \
tr>:first-child{white-space:nowrap}
th,td{padding:.35rem .5rem}td.t{min-width:14rem}}
@media(min-width:37.01rem){dl{grid-template-columns:max-content 1fr}dd{margin:0}
svg.wide{display:block}svg.narrow{display:none}h1{font-size:2.1rem}h2{font-size:1.5rem}}
@media print{:root{--bg:#fff;--fg:#000;--mu:#333;--ln:#aaa;--ac:#000}
@page{margin:15mm}body{font-size:10.5pt;line-height:1.35}main{max-width:none;padding:0}nav{display:none}
h1{font-size:18pt}h2{font-size:13pt;break-after:avoid}section{margin-top:18pt;padding-top:0;border:0}
dl{grid-template-columns:max-content 1fr}a{text-decoration:none}
figure,tr,li,dl{break-inside:avoid}table{font-size:9pt}table.short{break-inside:avoid}
thead{display:table-header-group}.scroll{break-after:avoid}.scroll{overflow:visible}caption{break-after:avoid;font-size:9pt}
caption span{max-width:none}th,td,thead th{padding:2pt 6pt;min-width:0;white-space:normal}
tr>:first-child{position:static}.u{white-space:nowrap}
td.t{min-width:0}.broad{font-size:7pt}.broad th,.broad td{padding:1.5pt 3pt}
.dense{font-size:5pt}.dense th,.dense td{padding:.8pt 1.1pt;min-width:0}
td[style]{-webkit-print-color-adjust:exact;print-color-adjust:exact}
svg.wide{display:block;max-width:165mm}svg.narrow{display:none}}
";

/// The report as a page.
pub(crate) fn page(report: &Report, title: &str) -> String {
    let mut o = String::from(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\" />\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\" />\n<title>",
    );
    put(&mut o, title);
    add(&mut o, "</title>\n<style>");
    add(&mut o, STYLE);
    for k in 0..COLOURS {
        add(&mut o, &format!(".k{k}{{--k:var(--c{k})}}"));
    }
    add(
        &mut o,
        "\n</style>\n</head>\n<body>\n<main>\n<header>\n<h1>",
    );
    put(&mut o, title);
    add(&mut o, "</h1>\n");
    if !report.head.is_empty() {
        add(&mut o, "<dl>\n");
        for (name, value) in &report.head {
            element(&mut o, "dt", name);
            element(&mut o, "dd", value);
            o.push('\n');
        }
        add(&mut o, "</dl>\n");
    }
    add(&mut o, "</header>\n");
    let anchors = anchors(report);
    if report.sections.is_empty() {
        add(&mut o, "<p>Nothing was measured.</p>\n");
    } else if report.sections.len() > 1 {
        add(
            &mut o,
            "<nav aria-labelledby=\"contents\">\n<h2 id=\"contents\">Contents</h2>\n<ol>\n",
        );
        for (section, anchor) in report.sections.iter().zip(&anchors) {
            add(&mut o, "<li><a href=\"#");
            add(&mut o, anchor);
            add(&mut o, "\">");
            put(&mut o, &section.title);
            add(&mut o, "</a></li>\n");
        }
        add(&mut o, "</ol>\n</nav>\n");
    }
    for (section, anchor) in report.sections.iter().zip(&anchors) {
        put_section(&mut o, section, anchor);
    }
    add(&mut o, "</main>\n</body>\n</html>\n");
    o
}

/// Text, escaped for elements and for attributes in double quotes.
fn put(o: &mut String, s: &str) {
    for c in clean(s).chars() {
        match c {
            '&' => add(o, "&amp;"),
            '<' => add(o, "&lt;"),
            '>' => add(o, "&gt;"),
            '"' => add(o, "&quot;"),
            // Not characters: HTML does not allow them even escaped.
            '\u{fffe}' | '\u{ffff}' => o.push('\u{fffd}'),
            _ => o.push(c),
        }
    }
}

fn element(o: &mut String, name: &str, text: &str) {
    o.push('<');
    add(o, name);
    o.push('>');
    put(o, text);
    add(o, "</");
    add(o, name);
    o.push('>');
}

/// An anchor for each section: its id, made unique where it has to be.
fn anchors(report: &Report) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for section in &report.sections {
        let mut a: String = section
            .id
            .chars()
            .map(|c| {
                if c.is_ascii_alphanumeric() || c == '_' {
                    c
                } else {
                    '-'
                }
            })
            .collect();
        // "contents" is taken by the table of contents.
        while a.is_empty() || a == "contents" || all.contains(&a) {
            add(&mut a, &format!("-{}", all.len() + 1));
        }
        all.push(a);
    }
    all
}

fn put_section(o: &mut String, section: &Section, anchor: &str) {
    add(o, "<section id=\"");
    add(o, anchor);
    add(o, "\">\n");
    element(o, "h2", &section.title);
    o.push('\n');
    match section.plot {
        Plot::None => {}
        Plot::Lines => figure(o, section, lines),
        Plot::Bars => figure(o, section, bars),
        Plot::Grid => grid(o, section),
    }
    table(o, section, anchor);
    let skips = skips(section);
    if !skips.is_empty() {
        add(o, "<ol class=\"why\">\n");
        for (i, why) in skips.iter().enumerate() {
            add(o, &format!("<li id=\"{anchor}.{}\">skipped: ", i + 1));
            put(o, why);
            add(o, "</li>\n");
        }
        add(o, "</ol>\n");
    }
    let error = largest_error(section);
    if error.is_some() || !section.notes.is_empty() {
        add(o, "<ul class=\"notes\">\n");
        for note in error.iter().chain(&section.notes) {
            element(o, "li", note);
            o.push('\n');
        }
        add(o, "</ul>\n");
    }
    add(o, "</section>\n");
}

// --- the table ---

/// Smallest and largest number of a grid: a table of nothing but numbers is shaded by them.
fn heat(section: &Section) -> Option<(f64, f64)> {
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
    (section.columns.len() > 7 && high > low).then_some((low, high))
}

/// What a column needs to know of its cells.
struct Column {
    /// Right-aligned, else words.
    numbers: bool,
    /// Sentences, which take several lines: a table is not to be wider than the page because of
    /// them.
    sentences: bool,
    values: Vec<String>,
    /// Spread and percentage of each row.
    beside: Vec<String>,
    /// The widest of them, for rows that have none, to keep the values below each other.
    widest: String,
}

/// Characters of words that stand in one line.
const SENTENCE: usize = 30;

fn column(section: &Section, i: usize) -> Column {
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
    for strings in [&mut values, &mut beside, &mut percents]
        .into_iter()
        .filter(|_| numbers)
    {
        // A punctuation space is as wide as a point, a figure space as a digit.
        align(
            &mut strings.iter_mut().collect::<Vec<_>>(),
            '\u{2008}',
            '\u{2007}',
        );
    }
    let mut widest = String::new();
    for (b, percent) in beside.iter_mut().zip(&percents) {
        if !b.is_empty() && !percent.is_empty() {
            b.push(' ');
        }
        add(b, percent);
        if b.len() > widest.len() {
            widest.clone_from(b);
        }
    }
    Column {
        numbers,
        sentences,
        values,
        beside,
        widest,
    }
}

fn table(o: &mut String, section: &Section, anchor: &str) {
    let heat = heat(section);
    let wide = section.columns.len();
    add(
        o,
        "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"",
    );
    put(o, &section.title);
    add(o, "\">\n<table class=\"");
    add(
        o,
        match wide {
            _ if wide > 16 => "dense",
            _ if wide > 6 => "broad",
            _ => "plain",
        },
    );
    add(
        o,
        if section.rows.len() <= 40 {
            " short\">\n"
        } else {
            "\">\n"
        },
    );
    let reading = reading(section, "in italics");
    // Every table has a caption; where it could only repeat the heading it is for screen readers.
    add(
        o,
        if reading.is_empty() {
            "<caption class=\"v\"><span>"
        } else {
            "<caption><span>"
        },
    );
    put(
        o,
        if reading.is_empty() {
            &section.title
        } else {
            &reading
        },
    );
    add(o, "</span></caption>\n<thead>\n<tr>");
    let numbers = section.rows.iter().all(|r| is_number(&r.label));
    let columns: Vec<Column> = (0..wide).map(|i| column(section, i)).collect();
    heading(o, &section.rows_are, "col", numbers);
    for (name, column) in section.columns.iter().zip(&columns) {
        heading(o, name, "col", column.numbers);
    }
    add(o, "</tr>\n</thead>\n<tbody>\n");
    let skips = skips(section);
    for (r, row) in section.rows.iter().enumerate() {
        add(o, "<tr>");
        heading(o, &row.label, "row", numbers);
        for (i, column) in columns.iter().enumerate() {
            let cell = row.cells.get(i).unwrap_or(&Cell::Empty);
            add(
                o,
                match (column.numbers, column.sentences) {
                    (true, _) => "<td class=\"n\"",
                    (false, true) => "<td class=\"t\"",
                    (false, false) => "<td",
                },
            );
            if let (Some((low, high)), Cell::Text(t)) = (heat, cell) {
                let x: f64 = t.trim().parse().unwrap_or(low);
                add(
                    o,
                    &format!(
                        " style=\"background:rgba(var(--heat),{:.2})\"",
                        (x - low) / (high - low) * 0.6
                    ),
                );
            }
            o.push('>');
            put_cell(o, cell, column, r, &skips, anchor);
            add(o, "</td>");
        }
        add(o, "</tr>\n");
    }
    add(o, "</tbody>\n</table>\n</div>\n");
}

fn heading(o: &mut String, text: &str, scope: &str, number: bool) {
    add(o, "<th scope=\"");
    add(o, scope);
    add(o, if number { "\" class=\"n\">" } else { "\">" });
    put(o, text);
    add(o, "</th>");
}

fn put_cell(o: &mut String, cell: &Cell, column: &Column, r: usize, skips: &[&str], anchor: &str) {
    let (value, beside) = (&column.values[r], &column.beside[r]);
    match cell {
        Cell::Empty => return,
        Cell::Skipped(why) => {
            let n = reason_number(skips, why);
            add(
                o,
                &format!(
                    "<span class=\"s\">skipped</span><sup><a href=\"#{anchor}.{n}\">{n}</a></sup>"
                ),
            );
            return;
        }
        Cell::Text(t) => put(o, if value.is_empty() { t } else { value }),
        Cell::Document(_) => element(o, "i", value),
        Cell::Measured(_) => put(o, value),
    }
    let blank = beside.is_empty();
    if !blank || column.numbers && !column.widest.is_empty() {
        add(
            o,
            if blank {
                "<span class=\"u b\">"
            } else {
                "<span class=\"u\">"
            },
        );
        put(o, if blank { &column.widest } else { beside });
        add(o, "</span>");
    }
}

// --- plots ---

/// A drawing surface.
struct Canvas {
    o: String,
    wide: bool,
    width: f64,
    height: f64,
}

/// Widths of a letter, at 14 pixels: a digit of DejaVu Sans, wider than most.
const LETTER: f64 = 9.0;

/// A coordinate: a tenth of a pixel is enough.
fn at(x: f64) -> String {
    let mut s = format!("{x:.1}");
    if s.ends_with(".0") {
        s.truncate(s.len() - 2);
    }
    s
}

impl Canvas {
    fn line(&mut self, class: &str, [x1, y1, x2, y2]: [f64; 4]) {
        add(&mut self.o, "<path class=\"");
        add(&mut self.o, class);
        add(&mut self.o, "\" d=\"M");
        for (i, x) in [x1, y1, x2, y2].into_iter().enumerate() {
            add(&mut self.o, ["", " ", "L", " "][i]);
            add(&mut self.o, &at(x));
        }
        add(&mut self.o, "\" />");
    }

    fn text(&mut self, class: &str, anchor: &str, x: f64, y: f64, text: &str) {
        add(&mut self.o, "<text class=\"");
        add(&mut self.o, class);
        add(&mut self.o, "\" text-anchor=\"");
        add(&mut self.o, anchor);
        self.place(x, y);
        add(&mut self.o, "\">");
        put(&mut self.o, text);
        add(&mut self.o, "</text>");
    }

    /// Ends an attribute, gives x and y, the second left open.
    fn place(&mut self, x: f64, y: f64) {
        add(&mut self.o, "\" x=\"");
        add(&mut self.o, &at(x));
        add(&mut self.o, "\" y=\"");
        add(&mut self.o, &at(y));
    }

    /// A group of a series' colour with a tooltip, left open.
    fn group(&mut self, series: usize, tip: &str) {
        add(&mut self.o, &format!("<g class=\"k{}\">", series % COLOURS));
        if !tip.is_empty() {
            element(&mut self.o, "title", tip);
        }
    }

    fn marker(&mut self, series: usize, hollow: bool, x: f64, y: f64) {
        add(
            &mut self.o,
            if hollow {
                "<path class=\"h\" transform=\"translate("
            } else {
                "<path class=\"f\" transform=\"translate("
            },
        );
        add(&mut self.o, &at(x));
        self.o.push(' ');
        add(&mut self.o, &at(y));
        add(&mut self.o, ")\" d=\"");
        // The second round of colours has other shapes.
        add(
            &mut self.o,
            MARKERS[(series + series / COLOURS) % MARKERS.len()],
        );
        add(&mut self.o, "\" />");
    }

    fn finish(self, label: &str, into: &mut String) {
        add(
            into,
            &format!(
                "<svg class=\"{}\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"",
                if self.wide { "wide" } else { "narrow" },
                at(self.width),
                at(self.height)
            ),
        );
        put(into, label);
        add(into, "\">");
        add(into, &self.o);
        add(into, "</svg>\n");
    }
}

/// Circle, square, triangle, diamond, triangle upside down, plus, cross, star.
const MARKERS: [&str; COLOURS] = [
    "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0z",
    "M-4.5-4.5h9v9h-9z",
    "M0-6L5.5 4.5h-11z",
    "M0-6.5L6 0L0 6.5L-6 0z",
    "M0 6L5.5-4.5h-11z",
    "M-2-6h4v4h4v4h-4v4h-4v-4h-4v-4h4z",
    "M0-2.6L3.4-6L6-3.4L2.6 0L6 3.4L3.4 6L0 2.6L-3.4 6L-6 3.4L-2.6 0L-6-3.4L-3.4-6z",
    "M0-7L1.9-2.3L6.7-2.2L2.9.9L4.1 5.7L0 3L-4.1 5.7L-2.9.9L-6.7-2.2L-1.9-2.3z",
];

/// A column that has something to draw.
struct Series<'a> {
    name: &'a str,
    column: usize,
    /// Nothing but figures of the document.
    document: bool,
}

/// What a cell draws: value, spread, whether it is the document's. Infinite values are not drawn.
fn drawn(row: &Row, column: usize) -> Option<(f64, f64, bool)> {
    match row.cells.get(column)? {
        Cell::Measured(m) if m.value.abs() < 1e300 => {
            let spread = m.spread.map(f64::abs).filter(|s| *s < 1e300);
            Some((m.value, spread.unwrap_or(0.0), false))
        }
        Cell::Document(x) if x.abs() < 1e300 => Some((*x, 0.0, true)),
        _ => None,
    }
}

/// What a point is, in words.
fn tip(section: &Section, row: &Row, series: &Series) -> String {
    let mut s = format!("{}, {} {}: ", series.name, section.rows_are, row.label);
    match row.cells.get(series.column) {
        Some(Cell::Measured(m)) => {
            let Measured { runs, first, .. } = *m;
            let part = measured(m);
            add(&mut s, &part.value);
            for more in [&part.spread, &section.unit] {
                if !more.is_empty() {
                    s.push(' ');
                    add(&mut s, more);
                }
            }
            if !part.percent.is_empty() {
                add(&mut s, &format!(", {} of peak", part.percent));
            }
            add(
                &mut s,
                &format!(", {runs} run{}", if runs == 1 { "" } else { "s" }),
            );
            if let Some(first) = first {
                add(&mut s, &format!(", first {}", number(first)));
            }
        }
        Some(Cell::Document(x)) => add(
            &mut s,
            &format!("{} {}, document", document(*x), section.unit),
        ),
        Some(Cell::Skipped(why)) => add(&mut s, &format!("skipped, {why}")),
        _ => {}
    }
    s
}

/// What draws a plot.
type Draw = fn(&mut Canvas, &Section, &[Series]);

fn figure(o: &mut String, section: &Section, draw: Draw) {
    let mut all = Vec::new();
    let mut documents = false;
    for (column, name) in section.columns.iter().enumerate() {
        let mut points = section
            .rows
            .iter()
            .filter_map(|r| drawn(r, column))
            .peekable();
        if points.peek().is_some() {
            let document = points.all(|(_, _, d)| d);
            all.push(Series {
                name,
                column,
                document,
            });
        }
        documents |= section
            .rows
            .iter()
            .any(|r| drawn(r, column).is_some_and(|(_, _, d)| d));
    }
    if all.is_empty() {
        return;
    }
    add(o, "<figure>\n");
    let bars = section.plot == Plot::Bars;
    if !(bars && all.len() == 1) {
        legend(o, &all, bars);
    }
    let label = format!(
        "Plot of the table below: {} over {}",
        section.unit, section.rows_are
    );
    for wide in [true, false] {
        let mut c = Canvas {
            o: String::new(),
            wide,
            width: if wide { 800.0 } else { 340.0 },
            height: 0.0,
        };
        draw(&mut c, section, &all);
        c.finish(&label, o);
    }
    add(o, "<figcaption>");
    put(o, &section.unit);
    add(o, if bars { " by " } else { " over " });
    put(o, &section.rows_are);
    o.push('.');
    let spread = section.rows.iter().any(|r| {
        all.iter()
            .any(|s| drawn(r, s.column).is_some_and(|d| d.1 > 0.0))
    });
    if spread {
        add(o, " Whiskers: the ± of the table.");
    }
    if documents {
        add(
            o,
            if bars {
                " Dashed and hollow: figures of the document."
            } else {
                " Dashed with hollow marks: figures of the document."
            },
        );
    }
    add(o, "</figcaption>\n</figure>\n");
}

/// Side of a grid's squares.
const SQUARE: f64 = 40.0;

/// A square per cell, shaded by its number, and a line from each number to the next.
fn grid(o: &mut String, section: &Section) {
    let side = |count: usize| SQUARE * count as f64 + 2.0;
    let (width, height) = (side(section.columns.len()), side(section.rows.len()));
    let mut c = Canvas {
        o: String::new(),
        wide: true,
        width,
        height,
    };
    let heat = heat(section);
    let mut centres: Vec<(f64, f64, f64, &str)> = Vec::new();
    for (row, y) in section.rows.iter().zip(0u32..) {
        for (cell, x) in row.cells.iter().zip(0u32..) {
            let Cell::Text(text) = cell else { continue };
            let Some(value) = text.trim().parse().ok().filter(|v: &f64| v.is_finite()) else {
                continue;
            };
            let (x, y) = (SQUARE * f64::from(x) + 1.0, SQUARE * f64::from(y) + 1.0);
            let shade = heat.map_or(0.0, |(low, high)| (value - low) / (high - low) * 0.6);
            add(
                &mut c.o,
                &format!("<rect class=\"g\" style=\"fill:rgba(var(--heat),{shade:.2})"),
            );
            c.place(x, y);
            add(
                &mut c.o,
                &format!("\" width=\"{SQUARE}\" height=\"{SQUARE}\" />"),
            );
            centres.push((value, x + SQUARE / 2.0, y + SQUARE / 2.0, text));
        }
    }
    if centres.is_empty() {
        return;
    }
    centres.sort_by(|a, b| a.0.total_cmp(&b.0));
    add(&mut c.o, "<path class=\"l o\" d=\"");
    for (i, (_, x, y, _)) in centres.iter().enumerate() {
        add(
            &mut c.o,
            &format!("{}{} {}", if i == 0 { "M" } else { "L" }, at(*x), at(*y)),
        );
    }
    add(&mut c.o, "\" />");
    for (_, x, y, text) in centres {
        c.text("", "middle", x, y + 5.0, text.trim());
    }
    add(
        o,
        &format!(
            "<figure class=\"grid\" style=\"max-width:{}px\">\n",
            at(width)
        ),
    );
    c.finish(&section.title, o);
    add(
        o,
        "<figcaption>The line goes from each number to the next.</figcaption>\n</figure>\n",
    );
}

fn legend(o: &mut String, all: &[Series], bars: bool) {
    add(o, "<ul class=\"legend\">\n");
    for (k, s) in all.iter().enumerate() {
        let mut c = Canvas {
            o: String::new(),
            wide: true,
            width: 36.0,
            height: 16.0,
        };
        c.group(k, "");
        if bars {
            bar(&mut c, s.document, [8.0, 1.0, 20.0, 14.0]);
        } else {
            c.line(if s.document { "l d" } else { "l" }, [0.0, 8.0, 36.0, 8.0]);
            c.marker(k, s.document, 18.0, 8.0);
        }
        add(o, "<li><svg viewBox=\"0 0 36 16\" aria-hidden=\"true\">");
        add(o, &c.o);
        add(o, "</g></svg>");
        element(o, "span", s.name);
        add(o, "</li>\n");
    }
    add(o, "</ul>\n");
}

fn bar(c: &mut Canvas, hollow: bool, [x, y, width, height]: [f64; 4]) {
    add(
        &mut c.o,
        if hollow {
            "<rect class=\"h d"
        } else {
            "<rect class=\"f"
        },
    );
    c.place(x, y);
    add(&mut c.o, "\" width=\"");
    add(&mut c.o, &at(width));
    add(&mut c.o, "\" height=\"");
    add(&mut c.o, &at(height));
    add(&mut c.o, "\" />");
}

/// A linear axis: from, to, and the distance of its ticks.
#[derive(Clone, Copy)]
struct Axis {
    low: f64,
    high: f64,
    step: f64,
}

impl Axis {
    /// An axis of about that many round ticks around two values. `binary` takes powers of two as
    /// round.
    fn new(low: f64, high: f64, ticks: f64, binary: bool) -> Axis {
        // Ticks need room to be told apart.
        let high = if high - low > low.abs().max(high.abs()) * 1e-9 {
            high
        } else {
            low + low.abs().max(1.0)
        };
        let raw = (high - low) / ticks;
        let step = if binary {
            raw.log2().ceil().exp2()
        } else {
            let magnitude = 10f64.powf(raw.log10().floor());
            let f = raw / magnitude;
            magnitude
                * if f <= 1.0 {
                    1.0
                } else if f <= 2.0 {
                    2.0
                } else if f <= 5.0 {
                    5.0
                } else {
                    10.0
                }
        };
        if !(step.is_normal() && (high / step).abs() < 1e15) {
            return Axis {
                low,
                high,
                step: high - low,
            };
        }
        // A hair of slack: 0.6 / 0.2 is a little less than 3.
        let slack = 1e-9;
        Axis {
            low: (low / step + slack).floor() * step,
            high: (high / step - slack).ceil() * step,
            step,
        }
    }

    fn ticks(&self) -> Vec<(f64, String)> {
        let count = ((self.high - self.low) / self.step).round().min(40.0) as usize;
        let digits = (-self.step.log10()).ceil().clamp(0.0, 9.0) as usize;
        let extreme = self.high.abs().max(self.low.abs()) >= 1e9 || self.step < 1e-8;
        let tick = |i| {
            let x = self.low + i as f64 * self.step;
            (
                x,
                if extreme && x != 0.0 {
                    format!("{x:.1e}")
                } else {
                    format!("{x:.digits$}")
                },
            )
        };
        (0..=count).map(tick).collect()
    }

    /// Where a value is, from 0 to 1.
    fn share(&self, x: f64) -> f64 {
        ((x - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }
}

fn letters(s: &str) -> f64 {
    width(s) as f64 * LETTER
}

/// At most so many characters.
fn cut(s: &str, most: usize) -> String {
    let mut t = String::from(s);
    if width(s) > most {
        t.truncate(s.char_indices().nth(most - 1).map_or(0, |(i, _)| i));
        t.push('…');
    }
    t
}

/// Lines over numbers, or over the rows in order where their labels are not numbers.
fn lines(c: &mut Canvas, section: &Section, all: &[Series]) {
    c.height = if c.wide { 420.0 } else { 300.0 };
    let numbers = section
        .rows
        .iter()
        .all(|r| is_number(&r.label) && r.label.trim().len() < 20);
    let xs: Vec<f64> = (section.rows.iter().enumerate())
        .map(|(i, r)| {
            if numbers {
                r.label.trim().parse().unwrap_or(0.0)
            } else {
                i as f64
            }
        })
        .collect();
    let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
    let (mut bottom, mut top) = (0.0f64, 0.0f64);
    for (row, x) in section.rows.iter().zip(&xs) {
        (low, high) = (low.min(*x), high.max(*x));
        for (value, spread, _) in all.iter().filter_map(|s| drawn(row, s.column)) {
            bottom = bottom.min(value - spread);
            top = top.max(value + spread);
        }
    }
    // Sizes start at zero unless they are far from it; single points stand in the middle.
    let from_zero = low > 0.0 && (low <= high / 2.0 || low == high);
    let x_low = if from_zero { 0.0 } else { low };
    let x_high = if low == high { high * 2.0 } else { high };
    let binary = numbers && high >= 256.0 && xs.iter().all(|x| (x / 32.0).floor() * 32.0 == *x);
    let x_axis = if numbers {
        Axis::new(x_low, x_high, if c.wide { 9.0 } else { 4.5 }, binary)
    } else {
        Axis {
            low: -0.5,
            high: high + 0.5,
            step: 1.0,
        }
    };
    let y_axis = Axis::new(bottom, top, 8.0, false);
    let ticks = y_axis.ticks();
    let left = ticks.iter().map(|(_, s)| letters(s)).fold(0.0, f64::max) + 10.0;
    let (right, above, below) = (c.width - 22.0, 34.0, c.height - 48.0);
    let px = |x: f64| left + x_axis.share(x) * (right - left);
    let py = |y: f64| below - y_axis.share(y) * (below - above);

    for (y, label) in &ticks {
        c.line(
            if *y == 0.0 { "a" } else { "g" },
            [left, py(*y), right, py(*y)],
        );
        c.text("t", "end", left - 7.0, py(*y) + 5.0, label);
    }
    c.text("", "start", 0.0, 15.0, &section.unit);
    c.text("", "end", right, c.height - 6.0, &section.rows_are);
    let x_ticks = if numbers {
        x_axis.ticks()
    } else {
        let spacing = (right - left) / section.rows.len() as f64 / LETTER;
        let most = (spacing as usize).clamp(7, 25) - 1;
        let label = |r: &Row| cut(&r.label, most);
        let all: Vec<(f64, String)> = section
            .rows
            .iter()
            .enumerate()
            .map(|(i, r)| (i as f64, label(r)))
            .collect();
        let widest = all.iter().map(|(_, s)| letters(s)).fold(1.0, f64::max) + LETTER;
        let fit = ((right - left) / widest).floor().max(1.0) as usize;
        let every = all.len().div_ceil(fit).max(1);
        all.into_iter().step_by(every).collect()
    };
    for (x, label) in &x_ticks {
        c.line("a", [px(*x), below, px(*x), below + 5.0]);
        c.text("t", "middle", px(*x), below + 21.0, label);
    }

    // Lines first, whiskers and marks above all of them.
    for (k, s) in all.iter().enumerate() {
        c.group(k, "");
        for of_document in [false, true] {
            add(
                &mut c.o,
                if of_document {
                    "<path class=\"l d\" d=\""
                } else {
                    "<path class=\"l\" d=\""
                },
            );
            let mut pen = "M";
            for (row, x) in section.rows.iter().zip(&xs) {
                match drawn(row, s.column) {
                    Some((y, _, d)) if d == of_document => {
                        add(&mut c.o, pen);
                        add(&mut c.o, &at(px(*x)));
                        c.o.push(' ');
                        add(&mut c.o, &at(py(y)));
                        pen = "L";
                    }
                    // The line runs on past sizes that the column does not have, but not past one
                    // that failed.
                    None if !matches!(row.cells.get(s.column), None | Some(Cell::Empty)) => {
                        pen = "M"
                    }
                    _ => {}
                }
            }
            add(&mut c.o, "\" />");
        }
        add(&mut c.o, "</g>\n");
    }
    for (k, s) in all.iter().enumerate() {
        for (row, x) in section.rows.iter().zip(&xs) {
            let Some((y, spread, hollow)) = drawn(row, s.column) else {
                continue;
            };
            c.group(k, &tip(section, row, s));
            let (x, lo, hi) = (px(*x), py(y - spread), py(y + spread));
            // A whisker inside its mark would only be dirt.
            if lo - hi > 10.0 {
                c.line("e", [x, lo, x, hi]);
                c.line("e", [x - 3.5, lo, x + 3.5, lo]);
                c.line("e", [x - 3.5, hi, x + 3.5, hi]);
            }
            c.marker(k, hollow, x, py(y));
            add(&mut c.o, "</g>\n");
        }
    }
}

/// Horizontal bars in groups, their values at their ends.
fn bars(c: &mut Canvas, section: &Section, all: &[Series]) {
    let mut top = 0.0f64;
    let (mut value_width, mut label_width) = (0.0f64, 0.0f64);
    for row in &section.rows {
        label_width = label_width.max(letters(&row.label));
        for s in all {
            if let Some((value, spread, _)) = drawn(row, s.column) {
                top = top.max(value + spread);
                value_width = value_width.max(letters(&bar_value(row, s)));
            }
        }
    }
    if top <= 0.0 {
        top = 1.0;
    }
    // Labels stand left of their bars, or above them where they are too long for that.
    let beside = label_width <= c.width * 0.34;
    let left = if beside { label_width + 8.0 } else { 1.0 };
    let right = c.width - value_width - 12.0;
    let scale = (right - left) / top;
    let (thick, pitch) = (16.0, 19.0);
    let gap = if all.len() > 1 || !beside { 14.0 } else { 5.0 };
    let mut y = 4.0;
    for row in &section.rows {
        if !beside {
            let most = (c.width / LETTER) as usize;
            c.text("", "start", 0.0, y + 13.0, &cut(&clean(&row.label), most));
            y += 20.0;
        } else {
            c.text(
                "",
                "end",
                left - 8.0,
                y + pitch * all.len() as f64 / 2.0 + 3.5,
                &row.label,
            );
        }
        let start = y;
        for (k, s) in all.iter().enumerate() {
            let middle = y + thick / 2.0;
            if let Some((value, spread, hollow)) = drawn(row, s.column) {
                let end = left + value.max(0.0) * scale;
                c.group(k, &tip(section, row, s));
                bar(c, hollow, [left, y, (end - left).max(0.5), thick]);
                let mut after = end;
                if spread * scale >= 1.5 {
                    let (lo, hi) = ((end - spread * scale).max(left), end + spread * scale);
                    c.line("w", [lo, middle, hi, middle]);
                    c.line("w", [lo, middle - 4.0, lo, middle + 4.0]);
                    c.line("w", [hi, middle - 4.0, hi, middle + 4.0]);
                    after = hi;
                }
                c.text("", "start", after + 6.0, middle + 5.0, &bar_value(row, s));
                add(&mut c.o, "</g>\n");
            } else if let Some(Cell::Skipped(_)) = row.cells.get(s.column) {
                c.group(k, &tip(section, row, s));
                c.text("i", "start", left + 6.0, middle + 5.0, "skipped");
                add(&mut c.o, "</g>\n");
            }
            y += pitch;
        }
        c.line("a", [left, start - 2.0, left, y - 1.0]);
        y += gap;
    }
    c.height = y - gap + 4.0;
}

fn bar_value(row: &Row, series: &Series) -> String {
    match row.cells.get(series.column) {
        Some(Cell::Measured(m)) => number(m.value),
        Some(Cell::Document(x)) => document(*x),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::render::tests::{hostile, sample};

    /// A sentence takes lines instead of making the table wider than the page; words do not.
    #[test]
    fn sentences_are_broken() {
        let mut report = sample();
        let row = |text: &str| Row {
            label: "a".into(),
            cells: vec![Cell::Text(text.into())],
        };
        report.sections.truncate(1);
        report.sections[0].columns.truncate(1);
        report.sections[0].rows = vec![row("right")];
        assert!(page(&report, "t").contains("<td>right</td>"));
        report.sections[0].rows.push(row(
            "rows of a and columns of b interleaved: consecutive reads",
        ));
        let page = page(&report, "t");
        assert!(
            page.contains("<td class=\"t\">right</td>")
                && STYLE.contains("td.t{white-space:normal")
        );
    }

    /// Every tag closed in order, every `&` an entity, attributes quoted, nothing fetched, anchors
    /// there and unique.
    fn check(page: &str) -> Result<(), String> {
        let (mut open, mut rest) = (
            Vec::new(),
            page.strip_prefix("<!DOCTYPE html>").ok_or("doctype")?,
        );
        let (mut ids, mut targets) = (Vec::new(), Vec::new());
        while let Some(i) = rest.find(['<', '&', '>']) {
            let (before, tag) = rest.split_at(i);
            if open.last() == Some(&"style") && tag.starts_with(['&', '>']) {
                rest = &tag[1..];
                continue;
            }
            if before.contains(|c: char| c.is_control() && c != '\n') {
                return Err(format!("control character in {before:?}"));
            }
            if let Some(entity) = tag.strip_prefix('&') {
                let end = entity.find(';').ok_or("entity")?;
                if !["amp", "lt", "gt", "quot"].contains(&&entity[..end]) {
                    return Err(format!("entity {}", &entity[..end]));
                }
                rest = &entity[end + 1..];
                continue;
            }
            let Some(tag) = tag.strip_prefix('<') else {
                return Err(format!("> after {before:?}"));
            };
            // A tag ends at the first > outside quotes.
            let mut quoted = false;
            let end = tag.find(|c| {
                quoted ^= c == '"';
                c == '>' && !quoted
            });
            let (inside, after) = tag.split_at(end.ok_or("unclosed tag")?);
            rest = &after[1..];
            if let Some(name) = inside.strip_prefix('/') {
                if open.pop() != Some(name) {
                    return Err(format!("</{name}> closes nothing"));
                }
                continue;
            }
            let void = inside.ends_with('/');
            let name = inside.split([' ', '/']).next().unwrap();
            if inside.contains('<')
                || inside.matches("=\"").count() * 2 != inside.matches('"').count()
                || inside
                    .split('"')
                    .step_by(2)
                    .any(|outside| outside.trim_end_matches('=').contains('='))
            {
                return Err(format!("attributes of {inside}"));
            }
            for (key, list) in [(" id=\"", &mut ids), (" href=\"#", &mut targets)] {
                if let Some((_, v)) = inside.split_once(key) {
                    list.push(v.split('"').next().unwrap().to_string());
                }
            }
            if !void {
                open.push(name);
            }
        }
        if !open.is_empty() {
            return Err(format!("open at the end: {open:?}"));
        }
        if let Some(t) = targets.iter().find(|t| !ids.contains(t)) {
            return Err(format!("#{t} leads nowhere"));
        }
        let count = ids.len();
        ids.sort();
        ids.dedup();
        if ids.len() != count {
            return Err("an id twice".into());
        }
        for fetched in ["src=", "@import", "url(", "<script", "<link"] {
            if page.contains(fetched) {
                return Err(format!("{fetched} in the page"));
            }
        }
        Ok(())
    }

    /// What the coordinates of paths and rectangles are made of.
    fn coordinates_are_finite(page: &str) {
        for name in [
            " d=\"",
            " x=\"",
            " y=\"",
            " width=\"",
            " height=\"",
            "viewBox=\"",
            "translate(",
        ] {
            for value in page
                .split(name)
                .skip(1)
                .filter_map(|v| v.split(['"', ')']).next())
            {
                assert!(
                    !value.contains("NaN") && !value.contains("inf"),
                    "{name}{value}"
                );
            }
        }
    }

    #[test]
    fn pages_are_well_formed() {
        for report in [sample(), hostile(), Report::default()] {
            let page = page(&report, "a <b> & \"c\"\u{1b}");
            check(&page).unwrap();
            coordinates_are_finite(&page);
            assert!(page.contains("<h1>a &lt;b&gt; &amp; &quot;c&quot; </h1>"));
        }
    }

    #[test]
    fn the_checker_checks() {
        for bad in [
            "<p>",
            "<p></b>",
            "a & b",
            "<p a=b></p>",
            "</p>",
            "<a href=\"#x\"></a>",
            "a > b",
        ] {
            assert!(check(&format!("<!DOCTYPE html>{bad}")).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_empty_report_says_so() {
        assert!(page(&Report::default(), "t").contains("Nothing was measured."));
    }

    #[test]
    fn skips_lead_to_their_reasons() {
        let page = page(&sample(), "t");
        assert!(
            page.contains("<span class=\"s\">skipped</span><sup><a href=\"#t_8_2.1\">1</a></sup>")
        );
        assert!(page.contains("<li id=\"t_8_2.1\">skipped: too large &amp; &lt;slow&gt;</li>"));
    }

    #[test]
    fn a_figure_of_the_document_is_hollow_and_dashed() {
        let page = page(&sample(), "t");
        assert!(page.contains("<path class=\"h\"") && page.contains("<path class=\"l d\""));
    }

    #[test]
    fn nothing_drawn_without_values() {
        let mut report = sample();
        report.sections.truncate(1);
        for row in &mut report.sections[0].rows {
            row.cells.fill(Cell::Skipped("no device".into()));
        }
        let page = page(&report, "t");
        check(&page).unwrap();
        assert!(!page.contains("<figure"));
        assert_eq!(page.matches("skipped: no device").count(), 1);
    }

    #[test]
    fn one_point_stands_in_the_middle() {
        let mut report = sample();
        report.sections.truncate(1);
        report.sections[0].rows.truncate(1);
        let page = page(&report, "t");
        check(&page).unwrap();
        coordinates_are_finite(&page);
    }

    #[test]
    fn axes_are_round_and_reach_around() {
        let a = Axis::new(0.0, 15.05, 8.0, false);
        assert_eq!((a.low, a.high, a.step), (0.0, 16.0, 2.0));
        let b = Axis::new(0.0, 2880.0, 9.0, true);
        assert_eq!((b.high, b.step), (3072.0, 512.0));
        let labels: Vec<String> = Axis::new(0.0, 0.6, 3.0, false)
            .ticks()
            .into_iter()
            .map(|t| t.1)
            .collect();
        assert_eq!(labels, ["0.0", "0.2", "0.4", "0.6"]);
        for (low, high) in [
            (0.0, 0.0),
            (0.0, 5e-324),
            (0.0, 1e299),
            (-1e299, 1e299),
            (-3.0, 7.0),
            (1e15, 1e15),
            (1e18, 1e18 + 256.0),
        ] {
            let a = Axis::new(low, high, 8.0, false);
            let ticks = a.ticks();
            assert!(
                a.low <= low && a.high >= high && a.high > a.low,
                "{low} {high}"
            );
            assert!(
                ticks.len() <= 41 && ticks.iter().all(|t| t.0.is_finite()),
                "{low} {high}"
            );
        }
    }

    #[test]
    fn a_grid_is_drawn_in_the_order_of_its_numbers() {
        let mut report = sample();
        report.sections.truncate(1);
        let s = &mut report.sections[0];
        let row = |cells: [&str; 2]| Row {
            label: "0".into(),
            cells: cells.map(|c| Cell::Text(c.into())).to_vec(),
        };
        (s.columns, s.plot) = (vec!["0".into(), "1".into()], Plot::Grid);
        s.rows = vec![row(["0", "2"]), row(["1", "3"])];
        let drawn = page(&report, "t");
        check(&drawn).unwrap();
        assert!(drawn.contains("d=\"M21 21L21 61L61 21L61 61\""));
        // What is no number has no square.
        report.sections[0].rows = vec![row(["<a>", "inf"]), row(["NaN", "7"])];
        let drawn = page(&report, "t");
        check(&drawn).unwrap();
        coordinates_are_finite(&drawn);
        assert_eq!(drawn.matches("<rect class=\"g\"").count(), 1);
        report.sections[0].rows.pop();
        assert!(!page(&report, "t").contains("<figure"));
    }

    #[test]
    fn a_grid_of_numbers_is_shaded() {
        let cell = |x: usize| Cell::Text(x.to_string());
        let rows = (0..9).map(|r| Row {
            label: r.to_string(),
            cells: (0..9).map(|c| cell(r * 9 + c)).collect(),
        });
        let mut report = sample();
        let s = &mut report.sections[0];
        (s.columns, s.rows, s.plot) = (
            (0..9).map(|c| c.to_string()).collect(),
            rows.collect(),
            Plot::None,
        );
        let page = page(&report, "t");
        check(&page).unwrap();
        assert!(page.contains("rgba(var(--heat),0.00)") && page.contains("rgba(var(--heat),0.60)"));
    }
}
