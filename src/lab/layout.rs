//! `bench --layout`: a layout drawn with its index numbers, as in figures 8.1 and 12.2 of the
//! thesis.

use super::Page;
use super::render::ReportFormat;
use super::table::{Cell, Plot, Report, Section};
use crate::error::Error;
use crate::ir::layout::Layout;

/// The largest number of rows, and of columns, of a matrix that `bench --layout` draws.
const MOST: usize = 256;

/// Returns the default size of a drawing in rows and columns: at least 8 × 8, in whole chunks.
pub(crate) fn usual(layout: &Layout) -> (usize, usize) {
    let (rows, cols) = layout.granularity();
    (8usize.next_multiple_of(rows), 8usize.next_multiple_of(cols))
}

/// Returns an error if a matrix of this size cannot be drawn.
pub(crate) fn check(layout: &Layout, (rows, cols): (usize, usize)) -> Result<(), String> {
    if rows > MOST || cols > MOST {
        return Err(format!(
            "{rows} × {cols}: at most {MOST} rows and columns are drawn"
        ));
    }
    layout.fits(rows, cols)
}

/// The options of `bench --layout`.
#[derive(Clone, Debug)]
pub(crate) struct Drawing {
    pub(crate) layout: Layout,
    /// Rows and columns of the drawn matrix, which [`check`] has allowed.
    pub(crate) size: (usize, usize),
    pub(crate) page: Page,
}

impl Drawing {
    pub(crate) fn run(
        &self,
        print: &mut dyn FnMut(&str) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let Drawing { layout, size, page } = self;
        let report = Report {
            head: Vec::new(),
            sections: vec![section(layout, *size)],
        };
        page.put(
            report,
            &format!("layout {layout}"),
            &mut |text| match page.output {
                ReportFormat::Table => print(&drawing(layout, *size)),
                _ => print(text),
            },
        )
    }
}

fn title(layout: &Layout, (rows, cols): (usize, usize)) -> String {
    format!("Layout {layout}: where the elements of a matrix of {rows} × {cols} stand")
}

fn section(layout: &Layout, size @ (rows, cols): (usize, usize)) -> Section {
    let mut s = Section {
        columns: (0..cols).map(|col| col.to_string()).collect(),
        plot: Plot::Grid,
        ..Section::new("layout", &title(layout, size), "row", "")
    };
    for row in 0..rows {
        let index = |col| Cell::text(layout.index(rows, cols, row, col).to_string());
        s.row(row.to_string(), (0..cols).map(index).collect());
    }
    s
}

/// Draws the layout of a matrix as text, with lines between the largest chunks.
fn drawing(layout: &Layout, size @ (rows, cols): (usize, usize)) -> String {
    // A layout without chunks counts as one chunk, so its drawing has no lines inside.
    let (chunk_rows, chunk_cols) = match layout.granularity() {
        (1, 1) => size,
        chunk => chunk,
    };
    let wide = (rows * cols - 1)
        .to_string()
        .len()
        .max((cols - 1).to_string().len());
    let label = (rows - 1).to_string().len();
    let line = |label: String, cell: &dyn Fn(usize) -> String, bar: &str, between: &str| {
        let mut line = label;
        for col in 0..cols {
            line += if col % chunk_cols == 0 { bar } else { between };
            line += &cell(col);
        }
        line + bar.trim_end() + "\n"
    };
    let head = line(" ".repeat(label), &|col| format!("{col:wide$}"), "   ", " ");
    let rule = line(" ".repeat(label), &|_| "-".repeat(wide), "-+-", "-").replacen("-+-", " +-", 1);
    let rule = rule
        .trim_end()
        .trim_end_matches('-')
        .trim_end_matches('+')
        .to_string()
        + "+\n";
    let mut text = format!("{}\n\n{}\n", title(layout, size), head.trim_end());
    for row in 0..rows {
        if row % chunk_rows == 0 {
            text += &rule;
        }
        let index = |col| format!("{:wide$}", layout.index(rows, cols, row, col));
        text += &line(format!("{row:label$}"), &index, " | ", " ");
    }
    text + &rule
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(text: &str) -> Layout {
        Layout::parse(text).unwrap()
    }

    #[test]
    fn chunks_and_numbers_are_drawn() {
        let expected = "\
Layout C_4_2_C: where the elements of a matrix of 8 × 4 stand

     0  1    2  3
  +-------+-------+
0 |  0  4 | 16 20 |
1 |  1  5 | 17 21 |
2 |  2  6 | 18 22 |
3 |  3  7 | 19 23 |
  +-------+-------+
4 |  8 12 | 24 28 |
5 |  9 13 | 25 29 |
6 | 10 14 | 26 30 |
7 | 11 15 | 27 31 |
  +-------+-------+
";
        assert_eq!(drawing(&layout("C_4_2_C"), (8, 4)), expected);
        // Figure 8.1 of the thesis: Z-order.
        let z = section(&layout("R_4_4_R_2_2_R"), (8, 8));
        let row = |i: usize| z.rows[i].cells.clone();
        let texts = |numbers: [u32; 8]| numbers.map(|n| Cell::Text(n.to_string())).to_vec();
        assert_eq!(row(0), texts([0, 1, 4, 5, 16, 17, 20, 21]));
        assert_eq!(row(7), texts([42, 43, 46, 47, 58, 59, 62, 63]));
    }

    #[test]
    fn sizes_are_whole_chunks() {
        for (text, size) in [
            ("R", (8, 8)),
            ("C_4_2_C", (8, 8)),
            ("R_16_1_C", (16, 8)),
            ("C_16_10_C", (16, 10)),
        ] {
            assert_eq!(usual(&layout(text)), size, "{text}");
            assert_eq!(check(&layout(text), size), Ok(()), "{text}");
        }
        assert!(check(&layout("R"), (257, 1)).is_err_and(|e| e.contains("at most 256")));
        // Matrices of one element, one row or one column are drawn without wide lines.
        for (text, size) in [("R", (1, 1)), ("C", (1, 3)), ("R_2_1_R", (2, 1))] {
            assert!(
                drawing(&layout(text), size)
                    .lines()
                    .skip(2)
                    .all(|l| l.len() < 20),
                "{text}"
            );
        }
    }
}
