//! What a benchmark found, ready to be printed: sections of tables with numbers, their spread, and what was left out.

/// A report.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// The device and the program, a name and a text each, in order.
    pub head: Vec<(String, String)>,
    /// The tables.
    pub sections: Vec<Section>,
}

/// How a section is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plot {
    /// Not at all.
    None,
    /// A line per column over the rows' labels (numbers), as the thesis's figures.
    Lines,
    /// A group of bars per row, a bar per column.
    Bars,
    /// A square per cell and a line through them in the order of their numbers, as the thesis draws layouts.
    Grid,
}

/// One table.
#[derive(Clone, Debug, PartialEq)]
pub struct Section {
    /// Short name, unique in the report, for files and for comparing two reports: `thesis_8_2`.
    pub id: String,
    /// Heading.
    pub title: String,
    /// What the rows are: `size`, `shape`, `kernel`.
    pub rows_are: String,
    /// Unit of the values: `GFLOPS`, `ms`, `pixels/s relative to char`.
    pub unit: String,
    /// Whether larger values are better (GFLOPS) or smaller ones (ms).
    pub larger_is_better: bool,
    /// Headings of the columns.
    pub columns: Vec<String>,
    /// Rows.
    pub rows: Vec<Row>,
    /// Remarks below the table: conventions, what was not reached and why.
    pub notes: Vec<String>,
    /// How it is drawn.
    pub plot: Plot,
}

/// One row.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Its label.
    pub label: String,
    /// A cell for each column.
    pub cells: Vec<Cell>,
}

/// One cell.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// Nothing belongs here.
    Empty,
    /// Words.
    Text(String),
    /// Measured here.
    Measured(Measured),
    /// A figure of the document, for comparison.
    Document(f64),
    /// Not measured: why.
    Skipped(String),
}

/// A measured value.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measured {
    /// The median, in the section's unit.
    pub value: f64,
    /// Half the distance between the quartiles, in the section's unit; none where one run is all there is, or where the
    /// value is no median.
    pub spread: Option<f64>,
    /// Runs behind the median, the first one not among them.
    pub runs: u32,
    /// The first run, in the section's unit.
    pub first: Option<f64>,
    /// Percent of what this device can do at most (the measured peak).
    pub percent: Option<f64>,
    /// Largest error of the check, in units of the bound (at most 1).
    pub error: Option<f64>,
}
