//! A benchmark's results before they are printed: tables with numbers, their spread, and the
//! reasons why cells were skipped.

/// The results of one run of a benchmark.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Report {
    /// Lines about the device and the program, each with a name and a text.
    pub(crate) head: Vec<(String, String)>,
    pub(crate) sections: Vec<Section>,
}

/// The kind of plot that a section has on an HTML page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Plot {
    #[default]
    None,
    /// One line for each column, over the numbers in the rows' labels, as in the thesis's figures.
    Lines,
    /// One bar for each cell. The bars of a row form a group.
    Bars,
    /// A grid of squares, one for each cell. A line runs through the cells in the order of their
    /// numbers, as the thesis draws layouts.
    Grid,
}

/// One table of a report, with its notes and its plot.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Section {
    /// Short name such as `thesis_8_2`, unique in the report. It identifies the section in files
    /// and when two reports are compared.
    pub(crate) id: String,
    pub(crate) title: String,
    /// Heading above the labels of the rows, such as `size`, `shape` or `kernel`.
    pub(crate) rows_are: String,
    /// Unit of the section's values, such as `GFLOPS`, `ms` or `pixels/s relative to char`.
    pub(crate) unit: String,
    /// True if larger values are better (as GFLOPS), false if smaller values are better (as ms).
    pub(crate) larger_is_better: bool,
    /// Headings of the columns.
    pub(crate) columns: Vec<String>,
    pub(crate) rows: Vec<Row>,
    /// Notes below the table: conventions, and which goals were missed for which reason.
    pub(crate) notes: Vec<String>,
    pub(crate) plot: Plot,
}

impl Section {
    /// Returns an empty section without a plot, in which smaller values are better.
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

/// One row of a table, with a cell for each column.
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

/// The content of a table's cell: a text, a measured value, a document's figure, or the reason why
/// there is no value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cell {
    /// A row that has no value in this column has this empty cell.
    Empty,
    Text(String),
    /// A value that was measured in this run.
    Measured(Measured),
    /// A figure that a document gives, for comparison with the measured values.
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

/// A value that a benchmark measured, with its spread.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Measured {
    /// The median of the runs, in the section's unit.
    pub(crate) value: f64,
    /// Half the interquartile range of the runs, in the section's unit. `None` if there was one
    /// run, or if the value is no median.
    pub(crate) spread: Option<f64>,
    /// The number of runs that the median is taken of. The first run is not among them.
    pub(crate) runs: u32,
    /// The value of the first run, in the section's unit. The median leaves this run out.
    pub(crate) first: Option<f64>,
    /// The value as a percentage of this device's measured peak.
    pub(crate) percent: Option<f64>,
    /// The largest error of the result's check, in units of the bound (at most 1).
    pub(crate) error: Option<f64>,
}
