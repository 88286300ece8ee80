//! Matrices on disk: definition JSON (the thesis, fig. 5.1) and the data as CSV, npy or raw f32.

use super::json::{self, Object};
use super::{Mistakes, shown};
use crate::ir::npy;
use std::path::{Path, PathBuf};

/// A row-major matrix.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Matrix {
    /// Rows.
    pub(crate) rows: usize,
    /// Columns.
    pub(crate) cols: usize,
    /// Elements, all finite.
    pub(crate) data: Vec<f32>,
}

/// The formats of a data file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DataType {
    Csv,
    Npy,
    F32,
}

const DATA_TYPES: [(&str, DataType); 3] = [
    ("csv", DataType::Csv),
    ("npy", DataType::Npy),
    ("f32", DataType::F32),
];

/// Most elements of a matrix: its bytes stay within 32 bits.
pub(crate) const MOST_ELEMENTS: usize = (1 << 29) - 1;

/// Most cells of one file that are reported one by one.
const MOST_CELLS: usize = 5;

/// Reads files below a root, and remembers which.
pub(crate) struct Files<'f> {
    /// Paths are shown relative to this.
    pub(crate) root: &'f Path,
    /// What was read.
    pub(crate) read: &'f mut Vec<PathBuf>,
}

impl Files<'_> {
    /// The bytes of a file; a failure names the file and where it was asked for.
    pub(crate) fn bytes(
        &mut self,
        path: &Path,
        asked: &str,
        mistakes: &mut Mistakes,
    ) -> Option<Vec<u8>> {
        // A pipe or a device would never end.
        if std::fs::metadata(path).is_ok_and(|m| !m.is_file()) {
            mistakes.add(
                asked,
                format_args!("{} is not a regular file", self.shown(path)),
            );
            return None;
        }
        match std::fs::read(path) {
            Ok(bytes) => {
                self.read.push(path.to_path_buf());
                Some(bytes)
            }
            Err(e) => {
                mistakes.add(asked, format_args!("cannot read {}: {e}", self.shown(path)));
                None
            }
        }
    }

    /// The text of a file.
    pub(crate) fn text(
        &mut self,
        path: &Path,
        asked: &str,
        mistakes: &mut Mistakes,
    ) -> Option<String> {
        let bytes = self.bytes(path, asked, mistakes)?;
        utf8(&bytes, &self.shown(path), mistakes).map(String::from)
    }

    /// How a path is shown.
    pub(crate) fn shown(&self, path: &Path) -> String {
        shown(self.root, path)
    }
}

/// The text that the bytes of `file` are.
pub(crate) fn utf8<'b>(bytes: &'b [u8], file: &str, mistakes: &mut Mistakes) -> Option<&'b str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Some(text),
        Err(e) => {
            mistakes.add(
                file,
                format_args!("expected text in UTF-8, byte {} is not", e.valid_up_to()),
            );
            None
        }
    }
}

/// A matrix that cannot be used, for reasons that are reported: its rows and columns where they are
/// beyond doubt, so that the network around it is checked all the same. Where its definition and
/// its data disagree, they are not.
pub(crate) type Unreadable = Option<(usize, usize)>;

/// Reads the matrix that the definition at `path` describes; `asked` is the place that names it.
pub(crate) fn read(
    path: &Path,
    asked: &str,
    files: &mut Files<'_>,
    mistakes: &mut Mistakes,
) -> Result<Matrix, Unreadable> {
    let text = files.text(path, asked, mistakes).ok_or(None)?;
    let name = files.shown(path);
    let value = json::parse(&text, &name, mistakes).ok_or(None)?;
    let o = Object::new(
        &value,
        name,
        &["rows", "cols", "data_type", "file"],
        mistakes,
    )
    .ok_or(None)?;
    for key in ["rows", "cols", "data_type", "file"] {
        o.require(key, mistakes);
    }
    let rows = o.count("rows", mistakes);
    let cols = o.count("cols", mistakes);
    let data_type = o.text("data_type", mistakes).and_then(|t| {
        let known = DATA_TYPES.iter().find(|d| d.0 == t).map(|d| d.1);
        if known.is_none() {
            mistakes.add(
                o.at("data_type"),
                format_args!("expected csv, npy or f32, found \"{t}\""),
            );
        }
        known
    });
    let file = o.text("file", mistakes);
    let (Some(rows), Some(cols)) = (rows, cols) else {
        return Err(None);
    };
    if rows == 0 || cols == 0 {
        mistakes.add(
            o.place(),
            format_args!("a matrix of {rows} × {cols} is empty"),
        );
        return Err(None);
    }
    if rows.checked_mul(cols).is_none_or(|n| n > MOST_ELEMENTS) {
        let message = format!("a matrix of {rows} × {cols} has more than {MOST_ELEMENTS} elements");
        mistakes.add(o.place(), message);
        return Err(None);
    }
    let (Some(data_type), Some(file)) = (data_type, file) else {
        return Err(Some((rows, cols)));
    };
    let data = path.parent().unwrap_or(Path::new("")).join(file);
    let place = o.at("file");
    match data_type {
        DataType::Csv => csv(&data, Some(rows), cols, &place, files, mistakes),
        DataType::Npy => npy(&data, Some(rows), cols, &place, files, mistakes),
        DataType::F32 => raw(&data, Some(rows), cols, &place, files, mistakes),
    }
}

/// Reads records of `cols` values from a data file whose format is its extension (csv, npy or f32).
pub(crate) fn read_records(
    path: &Path,
    cols: usize,
    asked: &str,
    files: &mut Files<'_>,
    mistakes: &mut Mistakes,
) -> Option<Matrix> {
    let extension = path.extension().and_then(|e| e.to_str()).unwrap_or("");
    match DATA_TYPES.iter().find(|d| d.0 == extension) {
        Some((_, DataType::Csv)) => csv(path, None, cols, asked, files, mistakes).ok(),
        Some((_, DataType::Npy)) => npy(path, None, cols, asked, files, mistakes).ok(),
        Some((_, DataType::F32)) => raw(path, None, cols, asked, files, mistakes).ok(),
        None => {
            mistakes.add(
                asked,
                format_args!(
                    "expected a .csv, .npy or .f32 file, found {}",
                    files.shown(path)
                ),
            );
            None
        }
    }
}

/// CSV: a line per row, commas between numbers; blank lines are skipped. Numbers are parsed
/// straight to f32.
fn csv(
    path: &Path,
    rows: Option<usize>,
    cols: usize,
    asked: &str,
    files: &mut Files<'_>,
    mistakes: &mut Mistakes,
) -> Result<Matrix, Unreadable> {
    let text = files
        .text(path, asked, mistakes)
        .ok_or(rows.map(|r| (r, cols)))?;
    let name = files.shown(path);
    let mut data: Vec<f32> = Vec::with_capacity((rows.unwrap_or(0) * cols).min(text.len() / 2 + 1));
    let (mut found_rows, mut bad, mut ragged) = (0, 0, 0);
    let mut report = |place: String, message: String, mistakes: &mut Mistakes| {
        bad += 1;
        if bad <= MOST_CELLS {
            mistakes.add(place, message);
        }
    };
    for (number, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        found_rows += 1;
        let mut fields = 0;
        for field in line.split(',') {
            fields += 1;
            match field.trim().parse::<f32>() {
                Ok(v) if v.is_finite() => data.push(v),
                _ => {
                    let cell: String = field.trim().chars().take(32).collect();
                    report(
                        format!("{name}:{}:{fields}", number + 1),
                        format!("expected a finite number, found \"{cell}\""),
                        mistakes,
                    );
                    data.push(0.0);
                }
            }
        }
        if fields != cols {
            ragged += 1;
            report(
                format!("{name}:{}:{}", number + 1, fields.min(cols) + 1),
                format!("expected {cols} numbers, the line has {fields}"),
                mistakes,
            );
        }
    }
    if bad > MOST_CELLS {
        mistakes.add(
            &name,
            format_args!("and {} more such mistakes", bad - MOST_CELLS),
        );
    }
    if let Some(rows) = rows.filter(|&r| r != found_rows) {
        mistakes.add(
            &name,
            format_args!("expected {rows} lines (rows), found {found_rows}"),
        );
        return Err(None);
    }
    match bad {
        0 => Ok(Matrix {
            rows: found_rows,
            cols,
            data,
        }),
        // A line with a comma too many says nothing about the columns; most of the lines do.
        _ => Err((2 * ragged < found_rows).then_some((found_rows, cols))),
    }
}

/// Raw little-endian f32, row major.
fn raw(
    path: &Path,
    rows: Option<usize>,
    cols: usize,
    asked: &str,
    files: &mut Files<'_>,
    mistakes: &mut Mistakes,
) -> Result<Matrix, Unreadable> {
    let bytes = files
        .bytes(path, asked, mistakes)
        .ok_or(rows.map(|r| (r, cols)))?;
    let name = files.shown(path);
    let expected = rows.map(|r| r * cols * 4);
    if expected.is_some_and(|e| e != bytes.len()) || bytes.len() % (cols * 4) != 0 {
        let what = match expected {
            Some(e) => format!("{e} bytes ({} × {cols} f32)", e / cols / 4),
            None => format!("a multiple of {} bytes ({cols} f32 a record)", cols * 4),
        };
        mistakes.add(
            &name,
            format_args!("expected {what}, found {}", bytes.len()),
        );
        return Err(None);
    }
    let data: Vec<f32> = bytes
        .chunks_exact(4)
        .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
        .collect();
    finite(data, cols, &name, mistakes)
}

/// NumPy's format, two-dimensional (or one-dimensional for a column) in C order.
fn npy(
    path: &Path,
    rows: Option<usize>,
    cols: usize,
    asked: &str,
    files: &mut Files<'_>,
    mistakes: &mut Mistakes,
) -> Result<Matrix, Unreadable> {
    let bytes = files
        .bytes(path, asked, mistakes)
        .ok_or(rows.map(|r| (r, cols)))?;
    let name = files.shown(path);
    let header = match npy::parse_header(&bytes) {
        Ok(Some(header)) => header,
        Ok(None) => {
            mistakes.add(&name, "the npy header is cut off");
            return Err(None);
        }
        Err(e) => {
            mistakes.add(&name, e);
            return Err(None);
        }
    };
    let product = header
        .shape
        .iter()
        .skip(1)
        .try_fold(1usize, |n, &s| n.checked_mul(s));
    let shape = (
        header.shape.first().copied().unwrap_or(1),
        product.unwrap_or(0),
    );
    let elements = shape.0.checked_mul(shape.1).filter(|&n| n <= MOST_ELEMENTS);
    if elements.is_none() || shape.1 != cols || rows.is_some_and(|r| r != shape.0) {
        let rows = rows.map_or("N".into(), |r| r.to_string());
        mistakes.add(
            &name,
            format_args!(
                "expected the shape ({rows}, {cols}), found {:?}",
                header.shape
            ),
        );
        return Err(None);
    }
    let size = header.dtype.size();
    let body = &bytes[header.data_offset..];
    if body.len() != shape.0 * shape.1 * size {
        let expected = shape.0 * shape.1 * size;
        mistakes.add(
            &name,
            format_args!(
                "expected {expected} bytes after the header, found {}",
                body.len()
            ),
        );
        return Err(None);
    }
    let data = body
        .chunks_exact(size)
        .map(|b| header.decode(b) as f32)
        .collect();
    finite(data, cols, &name, mistakes)
}

fn finite(
    data: Vec<f32>,
    cols: usize,
    name: &str,
    mistakes: &mut Mistakes,
) -> Result<Matrix, Unreadable> {
    if let Some(i) = data.iter().position(|v| !v.is_finite()) {
        let (row, col) = (i / cols + 1, i % cols + 1);
        mistakes.add(
            name,
            format_args!(
                "row {row}, column {col}: expected a finite number, found {}",
                data[i]
            ),
        );
        return Err(Some((data.len() / cols, cols)));
    }
    Ok(Matrix {
        rows: data.len() / cols,
        cols,
        data,
    })
}
