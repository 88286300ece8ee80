//! The results of a benchmark, ready to be printed: sections of tables with numbers, their spread,
//! and the reasons why cells were skipped.

/// The results of one run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Report {
    /// Names and texts about the device and the program, in order.
    pub(crate) head: Vec<(String, String)>,
    pub(crate) sections: Vec<Section>,
}

/// The kind of plot that a section has on an HTML page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Plot {
    #[default]
    None,
    /// A line per column over the rows' labels (numbers), as the thesis's figures.
    Lines,
    /// A group of bars per row, a bar per column.
    Bars,
    /// A square per cell and a line through them in the order of their numbers, as the thesis draws
    /// layouts.
    Grid,
}

/// One table with its notes and its plot.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Section {
    /// Short name, unique in the report, for files and for comparing two reports: `thesis_8_2`.
    pub(crate) id: String,
    pub(crate) title: String,
    /// Heading of the rows' labels: `size`, `shape`, `kernel`.
    pub(crate) rows_are: String,
    /// Unit of the values: `GFLOPS`, `ms`, `pixels/s relative to char`.
    pub(crate) unit: String,
    /// True if larger values are better (GFLOPS), false if smaller ones are (ms).
    pub(crate) larger_is_better: bool,
    /// Headings of the columns.
    pub(crate) columns: Vec<String>,
    pub(crate) rows: Vec<Row>,
    /// Remarks below the table: conventions, and what was not reached and why.
    pub(crate) notes: Vec<String>,
    pub(crate) plot: Plot,
}

impl Section {
    /// An empty section without a plot, in which smaller values are better.
    pub(crate) fn new(id: &str, title: &str, rows_are: &str, unit: &str) -> Section {
        Section {
            id: id.into(),
            title: title.into(),
            rows_are: rows_are.into(),
            unit: unit.into(),
            ..Section::default()
        }
    }

    pub(crate) fn row(&mut self, label: impl Into<String>, cells: Vec<Cell>) {
        self.rows.push(Row::new(label, cells));
    }

    pub(crate) fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }
}

/// One row, with a cell for each column.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) label: String,
    pub(crate) cells: Vec<Cell>,
}

impl Row {
    pub(crate) fn new(label: impl Into<String>, cells: Vec<Cell>) -> Row {
        Row {
            label: label.into(),
            cells,
        }
    }
}

/// The content of a cell: a text, a measured value, a figure of the document, or the reason why
/// there is no value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cell {
    /// The row has no value in this column.
    Empty,
    Text(String),
    /// A value that was measured in this run.
    Measured(Measured),
    /// A figure of the document, for comparison.
    Document(f64),
    /// The reason why the value was not measured.
    Skipped(String),
}

impl Cell {
    /// Returns a cell with a value of one run.
    pub(crate) fn once(value: f64) -> Cell {
        Cell::Measured(Measured {
            value,
            runs: 1,
            ..Measured::default()
        })
    }

    pub(crate) fn text(text: impl Into<String>) -> Cell {
        Cell::Text(text.into())
    }
}

/// A measured value with its spread.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Measured {
    /// The median, in the section's unit.
    pub(crate) value: f64,
    /// Half the distance between the quartiles, in the section's unit. `None` if there was one run,
    /// or if the value is no median.
    pub(crate) spread: Option<f64>,
    /// Runs behind the median, without the first run.
    pub(crate) runs: u32,
    /// The value of the first run, which the median leaves out, in the section's unit.
    pub(crate) first: Option<f64>,
    /// The value in percent of the measured peak of this device.
    pub(crate) percent: Option<f64>,
    /// Largest error of the check, in units of the bound (at most 1).
    pub(crate) error: Option<f64>,
}
