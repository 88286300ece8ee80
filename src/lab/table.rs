//! What a benchmark found, ready to be printed: sections of tables with numbers, their spread, and
//! what was left out.

/// A report.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Report {
    /// The device and the program, a name and a text each, in order.
    pub(crate) head: Vec<(String, String)>,
    /// The tables.
    pub(crate) sections: Vec<Section>,
}

/// How a section is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plot {
    /// Not at all.
    None,
    /// A line per column over the rows' labels (numbers), as the thesis's figures.
    Lines,
    /// A group of bars per row, a bar per column.
    Bars,
    /// A square per cell and a line through them in the order of their numbers, as the thesis draws
    /// layouts.
    Grid,
}

/// One table.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Section {
    /// Short name, unique in the report, for files and for comparing two reports: `thesis_8_2`.
    pub(crate) id: String,
    /// Heading.
    pub(crate) title: String,
    /// What the rows are: `size`, `shape`, `kernel`.
    pub(crate) rows_are: String,
    /// Unit of the values: `GFLOPS`, `ms`, `pixels/s relative to char`.
    pub(crate) unit: String,
    /// Whether larger values are better (GFLOPS) or smaller ones (ms).
    pub(crate) larger_is_better: bool,
    /// Headings of the columns.
    pub(crate) columns: Vec<String>,
    /// Rows.
    pub(crate) rows: Vec<Row>,
    /// Remarks below the table: conventions, what was not reached and why.
    pub(crate) notes: Vec<String>,
    /// How it is drawn.
    pub(crate) plot: Plot,
}

/// One row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    /// Its label.
    pub(crate) label: String,
    /// A cell for each column.
    pub(crate) cells: Vec<Cell>,
}

/// One cell.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cell {
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
pub(crate) struct Measured {
    /// The median, in the section's unit.
    pub(crate) value: f64,
    /// Half the distance between the quartiles, in the section's unit; none where one run is all
    /// there is, or where the value is no median.
    pub(crate) spread: Option<f64>,
    /// Runs behind the median, the first one not among them.
    pub(crate) runs: u32,
    /// The first run, in the section's unit.
    pub(crate) first: Option<f64>,
    /// Percent of what this device can do at most (the measured peak).
    pub(crate) percent: Option<f64>,
    /// Largest error of the check, in units of the bound (at most 1).
    pub(crate) error: Option<f64>,
}
