//! Reads matrices from files. A definition in JSON (thesis, fig. 5.1) names a file of numbers in
//! CSV, npy or raw f32.

use super::json::{self, Object};
use super::{Mistakes, shown};
use crate::ir::network::ByteInput;
use crate::ir::npy::{self, Dtype};
use std::fmt;
use std::path::{Path, PathBuf};

/// The size of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MatrixSize {
    pub(crate) rows: usize,
    pub(crate) cols: usize,
}

impl MatrixSize {
    pub(crate) fn column(rows: usize) -> MatrixSize {
        MatrixSize { rows, cols: 1 }
    }

    pub(crate) fn transposed(self) -> MatrixSize {
        MatrixSize {
            rows: self.cols,
            cols: self.rows,
        }
    }
}

impl fmt::Display for MatrixSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} × {}", self.rows, self.cols)
    }
}

/// A matrix that was read from a file, row by row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FileMatrix {
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    /// The elements in row-major order. All are finite.
    pub(crate) data: Vec<f32>,
}

impl FileMatrix {
    pub(crate) fn size(&self) -> MatrixSize {
        MatrixSize {
            rows: self.rows,
            cols: self.cols,
        }
    }
}

/// The formats of a file with numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DataType {
    Csv,
    Npy,
    F32,
}

impl DataType {
    /// Returns the format with this name, which is also the extension of its files.
    fn named(name: &str) -> Option<DataType> {
        Some(match name {
            "csv" => DataType::Csv,
            "npy" => DataType::Npy,
            "f32" => DataType::F32,
            _ => return None,
        })
    }
}

/// The largest number of elements that a matrix may have. Its size in bytes then fits in 32 bits.
pub(crate) const MOST_ELEMENTS: usize = (1 << 29) - 1;

/// The most wrong cells of one file that get a message each.
const MOST_CELLS: usize = 5;

/// Reads files for the build, and records the paths of all files that it has read.
pub(crate) struct Files<'f> {
    /// The folder that paths in messages are shown relative to.
    pub(crate) root: &'f Path,
    /// The files that were read successfully so far.
    pub(crate) read: &'f mut Vec<PathBuf>,
}

impl Files<'_> {
    /// Returns the content of a file. If it cannot be read, the mistake is reported at `asked`, the
    /// place that names the file.
    pub(crate) fn bytes(
        &mut self,
        path: &Path,
        asked: &str,
        mistakes: &mut Mistakes,
    ) -> Option<Vec<u8>> {
        // Only regular files are read, because reading a pipe or a device might never end.
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

    /// Returns the content of a file as text. If it cannot be read, the mistake is reported at
    /// `asked`, the place that names the file.
    pub(crate) fn text(
        &mut self,
        path: &Path,
        asked: &str,
        mistakes: &mut Mistakes,
    ) -> Option<String> {
        let bytes = self.bytes(path, asked, mistakes)?;
        utf8(&bytes, &self.shown(path), mistakes).map(String::from)
    }

    /// Returns the path in the form that messages show.
    pub(crate) fn shown(&self, path: &Path) -> String {
        shown(self.root, path)
    }
}

/// Decodes bytes as UTF-8, and reports a mistake at `file` if they are not.
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

/// The error for a matrix that cannot be read. The mistakes are already reported. It has the size
/// of the matrix if the size is known, so that neighbouring layers can still be checked against it.
pub(crate) type Unreadable = Option<MatrixSize>;

/// Reads the matrix that the JSON definition at `path` describes. `asked` is the place that names
/// `path`, for messages.
pub(crate) fn read(
    path: &Path,
    asked: &str,
    files: &mut Files<'_>,
    mistakes: &mut Mistakes,
) -> Result<FileMatrix, Unreadable> {
    const KEYS: [&str; 4] = ["rows", "cols", "data_type", "file"];
    let text = files.text(path, asked, mistakes).ok_or(None)?;
    let name = files.shown(path);
    let value = json::parse(&text, &name, mistakes).ok_or(None)?;
    let o = Object::new(&value, name, &KEYS, mistakes).ok_or(None)?;
    for key in KEYS {
        o.require(key, mistakes);
    }
    let rows = o.count("rows", mistakes);
    let cols = o.count("cols", mistakes);
    let data_type = o.text("data_type", mistakes).and_then(|t| {
        let known = DataType::named(t);
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
        return Err(Some(MatrixSize { rows, cols }));
    };
    let data = DataFile {
        path: &path.parent().unwrap_or(Path::new("")).join(file),
        rows: Some(rows),
        cols,
        integers: None,
        asked: &o.at("file"),
    };
    data.read(data_type, files, mistakes)
}

/// Reads records of `cols` numbers each from a file. The extension of the file is its format (csv,
/// npy or f32). If the records are inputs of a model of 8-bit integers, `integers` says which
/// integers the bytes of an npy file are, as in the program.
pub(crate) fn read_records(
    path: &Path,
    (cols, integers): (usize, Option<ByteInput>),
    asked: &str,
    files: &mut Files<'_>,
    mistakes: &mut Mistakes,
) -> Option<FileMatrix> {
    let ending = path.extension().and_then(|e| e.to_str()).unwrap_or("");
    let Some(data_type) = DataType::named(ending) else {
        mistakes.add(
            asked,
            format_args!(
                "expected a .csv, .npy or .f32 file, found {}",
                files.shown(path)
            ),
        );
        return None;
    };
    let data = DataFile {
        path,
        rows: None,
        cols,
        integers,
        asked,
    };
    data.read(data_type, files, mistakes).ok()
}

/// A file of numbers, and the size that its matrix must have.
struct DataFile<'d> {
    path: &'d Path,
    /// The number of rows that the matrix must have. `None` allows any number.
    rows: Option<usize>,
    cols: usize,
    /// The integers that the bytes of an npy file are. `None` if the bytes are numbers.
    integers: Option<ByteInput>,
    /// The place in a setting or a JSON that names the file, for messages.
    asked: &'d str,
}

impl DataFile<'_> {
    fn read(
        &self,
        data_type: DataType,
        files: &mut Files<'_>,
        mistakes: &mut Mistakes,
    ) -> Result<FileMatrix, Unreadable> {
        let cols = self.cols;
        let stated = self.rows.map(|rows| MatrixSize { rows, cols });
        let name = files.shown(self.path);
        if data_type == DataType::Csv {
            let text = files.text(self.path, self.asked, mistakes);
            return self.csv(&text.ok_or(stated)?, &name, mistakes);
        }
        let bytes = files.bytes(self.path, self.asked, mistakes).ok_or(stated)?;
        let numbers = match data_type {
            DataType::Npy => self.npy(&bytes),
            _ => self.raw(&bytes),
        };
        let data = numbers.map_err(|e| {
            mistakes.add(&name, e);
            None
        })?;
        let size = MatrixSize {
            rows: data.len() / cols,
            cols,
        };
        if let Some(i) = data.iter().position(|v| !v.is_finite()) {
            let (row, col) = (i / cols + 1, i % cols + 1);
            mistakes.add(
                name,
                format_args!(
                    "row {row}, column {col}: expected a finite number, found {}",
                    data[i]
                ),
            );
            return Err(Some(size));
        }
        Ok(FileMatrix {
            rows: size.rows,
            cols,
            data,
        })
    }

    /// Reads a CSV file. It has a line for each row, with commas between the numbers. Blank lines
    /// are skipped. Numbers are parsed as f32 directly, so that they are rounded only once.
    fn csv(
        &self,
        text: &str,
        name: &str,
        mistakes: &mut Mistakes,
    ) -> Result<FileMatrix, Unreadable> {
        let cols = self.cols;
        let stated = self.rows.unwrap_or(0) * cols;
        let mut data: Vec<f32> = Vec::with_capacity(stated.min(text.len() / 2 + 1));
        let (mut rows, mut wrong, mut ragged) = (0, 0, 0);
        let mut report = |place: String, message: String| {
            wrong += 1;
            if wrong <= MOST_CELLS {
                mistakes.add(place, message);
            }
        };
        for (number, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
            if line.trim().is_empty() {
                continue;
            }
            rows += 1;
            let mut fields = 0;
            for field in line.split(',') {
                fields += 1;
                let parsed = field.trim().parse::<f32>().ok().filter(|v| v.is_finite());
                if parsed.is_none() {
                    let cell: String = field.trim().chars().take(32).collect();
                    report(
                        format!("{name}:{}:{fields}", number + 1),
                        format!("expected a finite number, found \"{cell}\""),
                    );
                }
                data.push(parsed.unwrap_or(0.0));
            }
            if fields != cols {
                ragged += 1;
                report(
                    format!("{name}:{}:{}", number + 1, fields.min(cols) + 1),
                    format!("expected {cols} numbers, the line has {fields}"),
                );
            }
        }
        if wrong > MOST_CELLS {
            mistakes.add(
                name,
                format_args!("and {} more such mistakes", wrong - MOST_CELLS),
            );
        }
        if let Some(expected) = self.rows.filter(|&r| r != rows) {
            mistakes.add(
                name,
                format_args!("expected {expected} lines (rows), found {rows}"),
            );
            return Err(None);
        }
        match wrong {
            0 => Ok(FileMatrix { rows, cols, data }),
            // The matrix has mistakes, but its size may still be known. `cols` is trusted if fewer
            // than half of the lines have another number of columns.
            _ => Err((2 * ragged < rows).then_some(MatrixSize { rows, cols })),
        }
    }

    /// Decodes raw little-endian f32 numbers in row-major order.
    fn raw(&self, bytes: &[u8]) -> Result<Vec<f32>, String> {
        let (cols, found) = (self.cols, bytes.len());
        match self.rows {
            Some(rows) if found != rows * cols * 4 => {
                let expected = rows * cols * 4;
                return Err(format!(
                    "expected {expected} bytes ({rows} × {cols} f32), found {found}"
                ));
            }
            None if found % (cols * 4) != 0 => {
                let each = cols * 4;
                return Err(format!(
                    "expected a multiple of {each} bytes ({cols} f32 a record), found {found}"
                ));
            }
            _ => {}
        }
        let number = |b: &[u8]| f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
        Ok(bytes.chunks_exact(4).map(number).collect())
    }

    /// Decodes a NumPy array in C order. It has two dimensions, or one for a single column.
    fn npy(&self, bytes: &[u8]) -> Result<Vec<f32>, String> {
        let header = npy::parse_header(bytes)?.ok_or("the npy header is cut off")?;
        let rows = header.shape.first().copied().unwrap_or(1);
        let rest = header.shape.iter().skip(1);
        let cols = rest
            .copied()
            .try_fold(1usize, usize::checked_mul)
            .unwrap_or(0);
        let elements = rows.checked_mul(cols).filter(|&n| n <= MOST_ELEMENTS);
        let other = cols != self.cols || self.rows.is_some_and(|r| r != rows);
        let Some(elements) = elements.filter(|_| !other) else {
            let rows = self.rows.map_or("N".into(), |r| r.to_string());
            return Err(format!(
                "expected the shape ({rows}, {}), found {:?}",
                self.cols, header.shape
            ));
        };
        let size = header.dtype.size();
        let (body, expected) = (&bytes[header.data_offset..], elements * size);
        if body.len() != expected {
            return Err(format!(
                "expected {expected} bytes after the header, found {}",
                body.len()
            ));
        }
        let signed = match header.dtype {
            Dtype::U1 => Some(false),
            Dtype::I1 => Some(true),
            _ => None,
        };
        let integers = self.integers.zip(signed);
        let number = |b: &[u8]| {
            let number = header.decode(b);
            integers.map_or(number, |(i, signed)| i.real(number, signed)) as f32
        };
        Ok(body.chunks_exact(size).map(number).collect())
    }
}
