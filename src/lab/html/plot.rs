//! The plots of an HTML page.
//!
//! Plots with lines or bars are drawn twice, for wide and for narrow pages. The style sheet shows
//! one of both drawings. One figure, scaled to a phone's width, would have letters too small to
//! read. Legends are lists beside the plots, so they never cover a line. Each line has a colour and
//! a marker shape, and bars follow the order of the legend.

use super::axis::{PlotAxis, Tick};
use super::table::Heat;
use super::{element, put};
use crate::lab::render::{clean, document, is_number, measured, number, width};
use crate::lab::table::{Cell, Measured, Plot, Row, Section};

/// The number of colours and of marker shapes of a plot's series. Series beyond this number repeat
/// the colours. The style sheet has a class for each colour.
const COLOURS: usize = 8;

/// An SVG drawing of a plot, with its size in pixels.
pub(super) struct Canvas {
    o: String,
    wide: bool,
    width: f64,
    height: f64,
}

/// The width of a letter in pixels, at a font size of 14 pixels. It is a digit's in DejaVu Sans,
/// which is wider than most fonts.
const LETTER: f64 = 9.0;

fn letters(s: &str) -> f64 {
    width(s) as f64 * LETTER
}

/// Returns a coordinate as text, rounded to a tenth of a pixel.
fn at(x: f64) -> String {
    let s = format!("{x:.1}");
    s.strip_suffix(".0").map_or(s.clone(), String::from)
}

/// Cuts a text to at most `most` characters, of which the last is then an ellipsis.
fn cut(s: &str, most: usize) -> String {
    if width(s) <= most {
        return s.into();
    }
    let kept: String = s.chars().take(most.saturating_sub(1)).collect();
    kept + "…"
}

/// A point of the drawing, in pixels.
#[derive(Clone, Copy)]
struct Pixel {
    x: f64,
    y: f64,
}

impl Canvas {
    fn new(wide: bool, width: f64, height: f64) -> Canvas {
        Canvas {
            o: String::new(),
            wide,
            width,
            height,
        }
    }

    fn line(&mut self, class: &str, [x1, y1, x2, y2]: [f64; 4]) {
        let (x1, y1, x2, y2) = (at(x1), at(y1), at(x2), at(y2));
        self.o += &format!("<path class=\"{class}\" d=\"M{x1} {y1}L{x2} {y2}\" />");
    }

    fn text(&mut self, class: &str, anchor: &str, x: f64, y: f64, text: &str) {
        let (x, y) = (at(x), at(y));
        self.o += &format!("<text class=\"{class}\" text-anchor=\"{anchor}\" x=\"{x}\" y=\"{y}\">");
        put(&mut self.o, text);
        self.o += "</text>";
    }

    /// Begins an SVG group in the colour of a series. The group has a tooltip unless `tip` is
    /// empty.
    fn group(&mut self, series: usize, tip: &str) {
        self.o += &format!("<g class=\"k{}\">", series % COLOURS);
        if !tip.is_empty() {
            element(&mut self.o, "title", tip);
        }
    }

    fn end_group(&mut self) {
        self.o += "</g>\n";
    }

    fn marker(&mut self, series: usize, hollow: bool, x: f64, y: f64) {
        let class = if hollow { "h" } else { "f" };
        // Series with the same colour have different marker shapes.
        let shape = MARKERS[(series + series / COLOURS) % MARKERS.len()];
        let (x, y) = (at(x), at(y));
        self.o +=
            &format!("<path class=\"{class}\" transform=\"translate({x} {y})\" d=\"{shape}\" />");
    }

    fn bar(&mut self, hollow: bool, [x, y, width, height]: [f64; 4]) {
        let class = if hollow { "h d" } else { "f" };
        let (x, y, width, height) = (at(x), at(y), at(width), at(height));
        self.o += &format!(
            "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" />"
        );
    }

    fn finish(self, label: &str, into: &mut String) {
        let class = if self.wide { "wide" } else { "narrow" };
        let (width, height) = (at(self.width), at(self.height));
        *into += &format!(
            "<svg class=\"{class}\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\""
        );
        put(into, label);
        *into += &format!("\">{}</svg>\n", self.o);
    }
}

/// The shapes of markers as SVG paths: circle, square, triangle, diamond, inverted triangle, plus,
/// cross, star.
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

/// A column of a section that has at least one value to draw.
pub(super) struct PlotSeries<'a> {
    name: &'a str,
    column: usize,
    /// True if all of the column's numbers come from a document and none was measured here.
    document: bool,
}

/// The number of a table's cell, as a plot draws it.
struct Drawn {
    value: f64,
    spread: f64,
    /// True if the value comes from a document. Such values are drawn hollow.
    document: bool,
}

/// Returns the value that a plot draws for a cell. `None` if the cell has no number, or if the
/// number is NaN or its magnitude is 1e300 or more.
fn drawn(row: &Row, column: usize) -> Option<Drawn> {
    let (value, spread, document) = match row.cells.get(column)? {
        Cell::Measured(m) => {
            let spread = m.spread.map(f64::abs).filter(|s| *s < 1e300);
            (m.value, spread.unwrap_or(0.0), false)
        }
        Cell::Document(x) => (*x, 0.0, true),
        _ => return None,
    };
    (value.abs() < 1e300).then_some(Drawn {
        value,
        spread,
        document,
    })
}

/// Returns the tooltip of a plotted point: its series, its row and its value in words.
fn tip(section: &Section, row: &Row, series: &PlotSeries) -> String {
    let mut s = format!("{}, {} {}: ", series.name, section.rows_are, row.label);
    match row.cells.get(series.column) {
        Some(Cell::Measured(m)) => {
            let Measured { runs, first, .. } = *m;
            let part = measured(m);
            s += &part.value;
            for more in [&part.spread, &section.unit] {
                if !more.is_empty() {
                    s += " ";
                    s += more;
                }
            }
            if !part.percent.is_empty() {
                s += &format!(", {} of peak", part.percent);
            }
            s += &format!(", {runs} run{}", if runs == 1 { "" } else { "s" });
            if let Some(first) = first {
                s += &format!(", first {}", number(first));
            }
        }
        Some(Cell::Document(x)) => {
            s += &format!("{} {}, document", document(*x), section.unit);
        }
        Some(Cell::Skipped(why)) => s += &format!("skipped, {why}"),
        _ => {}
    }
    s
}

/// A function that draws some columns of a report's section as lines or bars.
type Draw = fn(&mut Canvas, &Section, &[PlotSeries]);

/// Writes a plot with its legend and caption. Writes nothing if the section has no values to draw.
pub(super) fn figure(o: &mut String, section: &Section, draw: Draw) {
    let mut all = Vec::new();
    for (column, name) in section.columns.iter().enumerate() {
        let points: Vec<Drawn> = section
            .rows
            .iter()
            .filter_map(|r| drawn(r, column))
            .collect();
        if !points.is_empty() {
            let document = points.iter().all(|p| p.document);
            all.push(PlotSeries {
                name,
                column,
                document,
            });
        }
    }
    let bars = section.plot == Plot::Bars;
    if bars {
        // A document's figures may be in another unit than the measured bars, and would not fit
        // beside them. So a document's column is drawn only if it is named after a measured column:
        // that column's name and a comma.
        let measured: Vec<String> = all
            .iter()
            .filter(|s| !s.document)
            .map(|s| format!("{},", s.name))
            .collect();
        all.retain(|s| !s.document || measured.iter().any(|name| s.name.starts_with(name)));
    }
    if all.is_empty() {
        return;
    }
    *o += "<figure>\n";
    if all.len() > 1 || !bars {
        legend(o, &all, bars);
    }
    let Section {
        title,
        unit,
        rows_are,
        ..
    } = section;
    let label = format!("{title}: {unit} over {rows_are}");
    for wide in [true, false] {
        let mut c = Canvas::new(wide, if wide { 800.0 } else { 340.0 }, 0.0);
        draw(&mut c, section, &all);
        c.finish(&label, o);
    }
    *o += "<figcaption>";
    let by = if bars { "by" } else { "over" };
    put(o, &format!("{unit} {by} {rows_are}."));
    let points = || {
        let rows = section.rows.iter();
        rows.flat_map(|r| all.iter().filter_map(|s| drawn(r, s.column)))
    };
    if points().any(|p| p.spread > 0.0) {
        *o += " Whiskers: half the distance between the quartiles.";
    }
    if points().any(|p| p.document) {
        *o += match bars {
            true => " Dashed and hollow: figures of the document.",
            false => " Dashed with hollow marks: figures of the document.",
        };
    }
    *o += "</figcaption>\n</figure>\n";
}

/// The side of a square in a grid plot, in pixels.
const SQUARE: f64 = 40.0;

/// A number in a grid plot, with the centre of its square.
struct Square<'a> {
    value: f64,
    centre: Pixel,
    text: &'a str,
}

/// Writes a grid plot: a square for each cell, shaded by the cell's number. A line connects each
/// number to the next larger one.
pub(super) fn grid(o: &mut String, section: &Section) {
    let side = |count: usize| SQUARE * count as f64 + 2.0;
    let mut c = Canvas::new(true, side(section.columns.len()), side(section.rows.len()));
    let heat = Heat::of(section);
    let mut squares: Vec<Square> = Vec::new();
    for (row, y) in section.rows.iter().zip(0u32..) {
        for (cell, x) in row.cells.iter().zip(0u32..) {
            let Cell::Text(text) = cell else { continue };
            let Some(value) = text.trim().parse().ok().filter(|v: &f64| v.is_finite()) else {
                continue;
            };
            let (x, y) = (SQUARE * f64::from(x) + 1.0, SQUARE * f64::from(y) + 1.0);
            let shade = heat.map_or(0.0, |heat| heat.shade(value));
            c.o += &format!(
                "<rect class=\"g\" style=\"fill:rgba(var(--heat),{shade:.2})\" x=\"{}\" y=\"{}\" \
                 width=\"{SQUARE}\" height=\"{SQUARE}\" />",
                at(x),
                at(y)
            );
            let centre = Pixel {
                x: x + SQUARE / 2.0,
                y: y + SQUARE / 2.0,
            };
            squares.push(Square {
                value,
                centre,
                text,
            });
        }
    }
    if squares.is_empty() {
        return;
    }
    squares.sort_by(|a, b| a.value.total_cmp(&b.value));
    c.o += "<path class=\"l o\" d=\"";
    for (i, Square { centre, .. }) in squares.iter().enumerate() {
        let pen = if i == 0 { "M" } else { "L" };
        c.o += &format!("{pen}{} {}", at(centre.x), at(centre.y));
    }
    c.o += "\" />";
    for Square { centre, text, .. } in squares {
        c.text("", "middle", centre.x, centre.y + 5.0, text.trim());
    }
    let width = at(c.width);
    *o += &format!("<figure class=\"grid\" style=\"max-width:{width}px\">\n");
    c.finish(&section.title, o);
    *o += "<figcaption>The line goes from each number to the next.</figcaption>\n</figure>\n";
}

fn legend(o: &mut String, all: &[PlotSeries], bars: bool) {
    *o += "<ul class=\"legend\">\n";
    for (k, s) in all.iter().enumerate() {
        let mut c = Canvas::new(true, 36.0, 16.0);
        c.group(k, "");
        if bars {
            c.bar(s.document, [8.0, 1.0, 20.0, 14.0]);
        } else {
            c.line(if s.document { "l d" } else { "l" }, [0.0, 8.0, 36.0, 8.0]);
            c.marker(k, s.document, 18.0, 8.0);
        }
        let drawing = c.o;
        *o += &format!("<li><svg viewBox=\"0 0 36 16\" aria-hidden=\"true\">{drawing}</g></svg>");
        element(o, "span", s.name);
        *o += "</li>\n";
    }
    *o += "</ul>\n";
}

/// The area of a line plot on its canvas, in pixels, and the plot's axes.
struct Frame<'a> {
    section: &'a Section,
    /// The position of each row on the horizontal axis.
    xs: Vec<f64>,
    /// True if all rows' labels are numbers. The numbers are then the positions of the rows.
    /// Otherwise the rows are at equal distances.
    numbers: bool,
    horizontal: PlotAxis,
    vertical: PlotAxis,
    left: f64,
    right: f64,
    above: f64,
    below: f64,
}

impl<'a> Frame<'a> {
    fn new(c: &Canvas, section: &'a Section, all: &[PlotSeries]) -> Frame<'a> {
        let number = |r: &Row| is_number(&r.label) && r.label.trim().len() < 20;
        let numbers = section.rows.iter().all(number);
        let position = |(i, r): (usize, &Row)| match numbers {
            true => r.label.trim().parse().unwrap_or(0.0),
            false => i as f64,
        };
        let xs: Vec<f64> = section.rows.iter().enumerate().map(position).collect();
        let low = xs.iter().copied().fold(f64::INFINITY, f64::min);
        let high = xs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let horizontal = match numbers {
            true => size_axis(c, low, high, &xs),
            false => PlotAxis {
                low: -0.5,
                high: high + 0.5,
                step: 1.0,
            },
        };
        let (mut bottom, mut top) = (0.0f64, 0.0f64);
        for row in &section.rows {
            for p in all.iter().filter_map(|s| drawn(row, s.column)) {
                bottom = bottom.min(p.value - p.spread);
                top = top.max(p.value + p.spread);
            }
        }
        let vertical = PlotAxis::new(bottom, top, 8.0, false);
        let ticks = vertical.ticks();
        let labels = ticks.iter().map(|tick| letters(&tick.label));
        Frame {
            section,
            xs,
            numbers,
            horizontal,
            vertical,
            left: labels.fold(0.0, f64::max) + 10.0,
            right: c.width - 22.0,
            above: 34.0,
            below: c.height - 48.0,
        }
    }

    fn x(&self, x: f64) -> f64 {
        self.left + self.horizontal.share(x) * (self.right - self.left)
    }

    fn y(&self, y: f64) -> f64 {
        self.below - self.vertical.share(y) * (self.below - self.above)
    }

    /// Returns the ticks of the horizontal axis. Labels that are not numbers are shortened. If
    /// there is not enough room, some ticks are left out.
    fn horizontal_ticks(&self) -> Vec<Tick> {
        if self.numbers {
            return self.horizontal.ticks();
        }
        let (rows, width) = (&self.section.rows, self.right - self.left);
        let spacing = width / rows.len() as f64 / LETTER;
        let most = (spacing as usize).clamp(7, 25) - 1;
        let tick = |(i, r): (usize, &Row)| Tick {
            at: i as f64,
            label: cut(&r.label, most),
        };
        let all: Vec<Tick> = rows.iter().enumerate().map(tick).collect();
        let labels = all.iter().map(|tick| letters(&tick.label));
        let widest = labels.fold(1.0, f64::max) + LETTER;
        let fit = (width / widest).floor().max(1.0) as usize;
        let every = all.len().div_ceil(fit).max(1);
        all.into_iter().step_by(every).collect()
    }

    fn draw_axes(&self, c: &mut Canvas) {
        for tick in self.vertical.ticks() {
            let y = self.y(tick.at);
            let class = if tick.at == 0.0 { "a" } else { "g" };
            c.line(class, [self.left, y, self.right, y]);
            c.text("t", "end", self.left - 7.0, y + 5.0, &tick.label);
        }
        c.text("", "start", 0.0, 15.0, &self.section.unit);
        let bottom = c.height - 6.0;
        c.text("", "end", self.right, bottom, &self.section.rows_are);
        for tick in self.horizontal_ticks() {
            let x = self.x(tick.at);
            c.line("a", [x, self.below, x, self.below + 5.0]);
            c.text("t", "middle", x, self.below + 21.0, &tick.label);
        }
    }

    /// Draws the line of a series through its measured values. With `document` true, the line goes
    /// through the document's figures instead.
    fn draw_line(&self, c: &mut Canvas, s: &PlotSeries, document: bool) {
        c.o += if document {
            "<path class=\"l d\" d=\""
        } else {
            "<path class=\"l\" d=\""
        };
        let mut pen = "M";
        for (row, x) in self.section.rows.iter().zip(&self.xs) {
            match drawn(row, s.column) {
                Some(p) if p.document == document => {
                    c.o += &format!("{pen}{} {}", at(self.x(*x)), at(self.y(p.value)));
                    pen = "L";
                }
                // An empty cell does not interrupt the line. A skipped cell does, and so does a
                // cell whose value cannot be drawn.
                None if !matches!(row.cells.get(s.column), None | Some(Cell::Empty)) => pen = "M",
                _ => {}
            }
        }
        c.o += "\" />";
    }

    fn draw_points(&self, c: &mut Canvas, k: usize, s: &PlotSeries) {
        for (row, x) in self.section.rows.iter().zip(&self.xs) {
            let Some(p) = drawn(row, s.column) else {
                continue;
            };
            c.group(k, &tip(self.section, row, s));
            let x = self.x(*x);
            let (low, high) = (self.y(p.value - p.spread), self.y(p.value + p.spread));
            // A whisker of at most 10 pixels is not drawn, because the marker covers it.
            if low - high > 10.0 {
                c.line("e", [x, low, x, high]);
                c.line("e", [x - 3.5, low, x + 3.5, low]);
                c.line("e", [x - 3.5, high, x + 3.5, high]);
            }
            c.marker(k, p.document, x, self.y(p.value));
            c.end_group();
        }
    }
}

/// Returns the horizontal axis for matrix sizes from `low` to `high`. It starts at zero if `low` is
/// at most half of `high`. If there is only one size, the axis starts at zero and has the size in
/// its middle.
fn size_axis(c: &Canvas, low: f64, high: f64, xs: &[f64]) -> PlotAxis {
    let from_zero = low > 0.0 && (low <= high / 2.0 || low == high);
    let from = if from_zero { 0.0 } else { low };
    let to = if low == high { high * 2.0 } else { high };
    let binary = high >= 256.0 && xs.iter().all(|x| (x / 32.0).floor() * 32.0 == *x);
    PlotAxis::new(from, to, if c.wide { 9.0 } else { 4.5 }, binary)
}

/// Draws each column as a line. The rows' labels are the positions if they are numbers, else the
/// rows are at equal distances.
pub(super) fn lines(c: &mut Canvas, section: &Section, all: &[PlotSeries]) {
    c.height = if c.wide { 420.0 } else { 300.0 };
    let frame = Frame::new(c, section, all);
    frame.draw_axes(c);
    // Lines are drawn first, so that whiskers and markers are above all of them.
    for (k, s) in all.iter().enumerate() {
        c.group(k, "");
        frame.draw_line(c, s, false);
        frame.draw_line(c, s, true);
        c.end_group();
    }
    for (k, s) in all.iter().enumerate() {
        frame.draw_points(c, k, s);
    }
}

/// The thickness of a bar, and the distance between the tops of neighbouring bars, both in pixels.
const THICK: f64 = 16.0;
const PITCH: f64 = 19.0;

/// Draws each row as a group of horizontal bars, with the values at the ends of the bars.
pub(super) fn bars(c: &mut Canvas, section: &Section, all: &[PlotSeries]) {
    let mut top = 0.0f64;
    let (mut value_width, mut label_width) = (0.0f64, 0.0f64);
    for row in &section.rows {
        label_width = label_width.max(letters(&row.label));
        for s in all {
            if let Some(p) = drawn(row, s.column) {
                top = top.max(p.value + p.spread);
                value_width = value_width.max(letters(&bar_value(row, s)));
            }
        }
    }
    if top <= 0.0 {
        top = 1.0;
    }
    // Rows' labels are left of the bars. If they are too long, they are above the bars.
    let beside = label_width <= c.width * 0.34;
    let left = if beside { label_width + 8.0 } else { 1.0 };
    let scale = (c.width - value_width - 12.0 - left) / top;
    let gap = if all.len() > 1 || !beside { 14.0 } else { 5.0 };
    let mut y = 4.0;
    for row in &section.rows {
        if beside {
            let middle = y + PITCH * all.len() as f64 / 2.0 + 3.5;
            c.text("", "end", left - 8.0, middle, &row.label);
        } else {
            let most = (c.width / LETTER) as usize;
            c.text("", "start", 0.0, y + 13.0, &cut(&clean(&row.label), most));
            y += 20.0;
        }
        let start = y;
        for (k, s) in all.iter().enumerate() {
            draw_bar(c, section, row, k, s, scale, Pixel { x: left, y });
            y += PITCH;
        }
        c.line("a", [left, start - 2.0, left, y - 1.0]);
        y += gap;
    }
    c.height = y - gap + 4.0;
}

/// Draws the bar of series `k` in a row. `from` is the top left corner of the bar. A skipped cell
/// gets a word instead of a bar.
fn draw_bar(
    c: &mut Canvas,
    section: &Section,
    row: &Row,
    k: usize,
    s: &PlotSeries,
    scale: f64,
    from: Pixel,
) {
    let (left, middle) = (from.x, from.y + THICK / 2.0);
    if let Some(p) = drawn(row, s.column) {
        let end = left + p.value.max(0.0) * scale;
        c.group(k, &tip(section, row, s));
        c.bar(p.document, [left, from.y, (end - left).max(0.5), THICK]);
        let mut after = end;
        let spread = p.spread * scale;
        if spread >= 1.5 {
            let (low, high) = ((end - spread).max(left), end + spread);
            c.line("w", [low, middle, high, middle]);
            c.line("w", [low, middle - 4.0, low, middle + 4.0]);
            c.line("w", [high, middle - 4.0, high, middle + 4.0]);
            after = high;
        }
        c.text("", "start", after + 6.0, middle + 5.0, &bar_value(row, s));
        c.end_group();
    } else if let Some(Cell::Skipped(_)) = row.cells.get(s.column) {
        c.group(k, &tip(section, row, s));
        c.text("i", "start", left + 6.0, middle + 5.0, "skipped");
        c.end_group();
    }
}

/// Returns the text at the end of a bar: the value, followed by its percentage of the device's peak
/// if known. The text is empty for a cell without a value.
fn bar_value(row: &Row, series: &PlotSeries) -> String {
    match row.cells.get(series.column) {
        Some(Cell::Measured(m)) => match measured(m).percent {
            percent if percent.is_empty() => number(m.value),
            percent => format!("{} ({percent})", number(m.value)),
        },
        Some(Cell::Document(x)) => document(*x),
        _ => String::new(),
    }
}
