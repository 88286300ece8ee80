//! Finds and decodes binary records: raw u8, i8 and f32, idx, npy.

use super::buffer::{More, ReadBuffer};
use super::csv::plural;
use super::reader::{Coding, Next, ReaderContext, of_window};
use super::source::Source;
use crate::error::Error;
use crate::ir::npy::{self, Dtype, Header};
use crate::simd::deferred::Refusal;

/// The formats of binary records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BinaryFormat {
    /// Unsigned bytes without a header.
    U8,
    /// Signed bytes without a header.
    I8,
    /// Little-endian f32 without a header.
    F32,
    Idx,
    Npy,
}

/// The type and the byte order of the elements of binary records.
#[derive(Clone, Copy)]
pub(super) struct Elements {
    dtype: Dtype,
    big_endian: bool,
}

impl Elements {
    /// Returns the size of an element in bytes.
    pub(super) fn size(self) -> usize {
        self.dtype.size()
    }

    /// Returns true if the elements are signed bytes, and false if they are unsigned ones. `None`
    /// for other types.
    pub(super) fn byte(self) -> Option<bool> {
        match self.dtype {
            Dtype::U1 => Some(false),
            Dtype::I1 => Some(true),
            _ => None,
        }
    }

    /// Returns the element that `bytes` encode.
    pub(super) fn decode(self, bytes: &[u8]) -> f64 {
        self.dtype.decode(bytes, self.big_endian)
    }

    /// Decodes a record into `values`, with the transform of `coding`. The error is the index of
    /// the first number that is not finite.
    pub(super) fn decode_record(
        self,
        bytes: &[u8],
        coding: &Coding,
        values: &mut [f32],
    ) -> Result<(), usize> {
        if let Some(table) = &coding.table {
            let pairs = bytes.iter().zip(values);
            pairs.for_each(|(&byte, to)| *to = table[usize::from(byte)]);
            return Ok(());
        }
        let plain = coding.plain();
        if self.dtype == Dtype::U1 && plain {
            coding.decoder.widen(bytes, values);
            return Ok(());
        }
        if self.dtype == Dtype::F4 && plain && !self.big_endian {
            return copy_floats(bytes, values);
        }
        for (i, (b, to)) in bytes.chunks_exact(self.size()).zip(values).enumerate() {
            *to = if plain {
                self.dtype.decode_f32(b, self.big_endian)
            } else {
                coding.scaled(i, self.decode(b))
            };
            if !to.is_finite() {
                return Err(i);
            }
        }
        Ok(())
    }
}

/// Copies little-endian floats. The error is the index of the first one that is not finite.
///
/// The copy and the test for finite numbers are two loops that never end early, so compilers turn
/// both into vector code.
fn copy_floats(bytes: &[u8], values: &mut [f32]) -> Result<(), usize> {
    const EXPONENT: u32 = 0x7f80_0000;
    for (b, to) in bytes.chunks_exact(4).zip(&mut *values) {
        *to = f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
    }
    let lost = values
        .iter()
        .fold(false, |lost, x| lost | (x.to_bits() & EXPONENT == EXPONENT));
    if !lost {
        return Ok(());
    }
    let first = values.iter().position(|x| !x.is_finite());
    first.map_or(Ok(()), Err)
}

/// Returns the element type of an idx file, whose third byte is `code`. `None` if `code` stands for
/// no type.
pub(super) fn idx_type(code: u8) -> Option<Dtype> {
    Some(match code {
        0x08 => Dtype::U1,
        0x09 => Dtype::I1,
        0x0b => Dtype::I2,
        0x0c => Dtype::I4,
        0x0d => Dtype::F4,
        0x0e => Dtype::F8,
        _ => return None,
    })
}

/// A reader of binary records.
pub(super) struct Binary {
    kind: BinaryFormat,
    elements: Elements,
    /// The number of records, or of rows of a time series, that the header announces. `None` for
    /// formats without a header.
    count: Option<u64>,
    /// True once the header was read. Always true for formats without a header.
    begun: bool,
    /// The number of records, or of rows of a time series, found so far.
    record: u64,
}

impl Binary {
    pub(super) fn new(kind: BinaryFormat) -> Self {
        let dtype = match kind {
            BinaryFormat::U8 => Dtype::U1,
            BinaryFormat::I8 => Dtype::I1,
            _ => Dtype::F4,
        };
        let begun = !matches!(kind, BinaryFormat::Idx | BinaryFormat::Npy);
        Binary {
            kind,
            elements: Elements {
                dtype,
                big_endian: false,
            },
            count: None,
            begun,
            record: 0,
        }
    }

    /// Returns the number of the record, or of the row of a time series, that was found last. It
    /// counts from 1, and is 0 before the first.
    pub(super) fn record(&self) -> u64 {
        self.record
    }

    pub(super) fn elements(&self) -> Elements {
        self.elements
    }

    /// Returns true once the header was read. Always true for formats without a header.
    pub(super) fn begun(&self) -> bool {
        self.begun
    }

    /// Finds the next record. Must be called after the header was read.
    pub(super) fn next<S: Source>(
        &mut self,
        buffer: &mut ReadBuffer<S>,
        context: &ReaderContext<'_>,
    ) -> Result<Next, Error> {
        let size = context.shape.width * self.elements.size();
        loop {
            if self.count == Some(self.record) {
                if !buffer.bytes().is_empty() {
                    let message = format!(
                        "expected the end after {}, found more bytes",
                        plural(self.record, context.shape.unit())
                    );
                    return Err(Error::input(&context.place, message));
                }
            } else if buffer.bytes().len() >= size {
                self.record += 1;
                buffer.found(size, size);
                return Ok(Next::Record);
            }
            match buffer.more().map_err(|e| context.io(e))? {
                More::Read => {}
                More::NotReady => return Ok(Next::Idle),
                // `Full` does not occur here, because the buffer has room for any record of this
                // shape.
                More::Ended | More::Full => return self.end(buffer, context),
            }
        }
    }

    /// Returns [`Next::End`] if the input may end at this point, or else the error.
    pub(super) fn end<S: Source>(
        &self,
        buffer: &ReadBuffer<S>,
        context: &ReaderContext<'_>,
    ) -> Result<Next, Error> {
        let found = buffer.bytes().len();
        match (self.begun, self.count) {
            (false, _) => {
                let format = if self.kind == BinaryFormat::Idx {
                    "an idx"
                } else {
                    "an npy"
                };
                let message =
                    format!("expected {format} header, the input ends after {found} bytes");
                Err(Error::input(&context.place, message))
            }
            (true, Some(count)) if found == 0 && count > self.record => {
                let message = format!(
                    "expected {}, the input ends after {}",
                    plural(count, context.shape.unit()),
                    self.record
                );
                Err(context.at_record(self.record + 1, message))
            }
            (true, _) if found > 0 => {
                let size = context.shape.width * self.elements.size();
                let message = format!("expected {size} bytes, the input ends after {found}");
                Err(context.at_record(self.record + 1, message))
            }
            _ => Ok(Next::End),
        }
    }

    /// Reads the header. Returns false if more bytes of the header must be read first.
    pub(super) fn header<S: Source>(
        &mut self,
        buffer: &mut ReadBuffer<S>,
        context: &ReaderContext<'_>,
    ) -> Result<bool, Error> {
        let fail = |message: String| Err(Error::input(&context.place, message));
        let bytes = buffer.bytes();
        let header = match self.kind {
            BinaryFormat::Npy => npy::parse_header(bytes),
            _ => idx_header(bytes),
        };
        let header = match header {
            Ok(Some(header)) => header,
            Ok(None) => return Ok(false),
            Err(message) => return fail(message),
        };
        self.elements = Elements {
            dtype: header.dtype,
            big_endian: header.big_endian,
        };
        let width = context.shape.width;
        self.count = Some(match count(&header.shape, width, self.kind) {
            Ok(count) => count,
            Err(message) => return fail(message + &of_window(context.shape.rows, width)),
        });
        buffer.consume(header.data_offset);
        self.begun = true;
        Ok(true)
    }
}

/// Returns the reason why number `i` (from 0) of a record is refused. `raw` is the number before
/// the transform.
pub(super) fn not_finite(raw: f64, i: usize, coding: &Coding) -> Refusal {
    let message = match raw.is_finite() {
        false => format!("expected a finite number, found {raw}"),
        true if coding.plain() => format!("expected a number that fits f32, found {raw:e}"),
        true => format!("expected a number that fits f32 after the input scaling, found {raw:e}"),
    };
    Refusal {
        number: i + 1,
        message,
    }
}

/// Decodes an idx header. Returns `None` if more bytes are needed.
fn idx_header(bytes: &[u8]) -> Result<Option<Header>, String> {
    let Some(magic) = bytes.get(..4) else {
        return Ok(None);
    };
    let dtype = match magic {
        [0, 0, code, 1..=255] => idx_type(*code),
        _ => None,
    };
    let Some(dtype) = dtype else {
        let found: Vec<String> = magic.iter().map(|b| format!("{b:02x}")).collect();
        return Err(format!(
            "expected an idx file (it starts with 00 00 08 03 or alike), found {}",
            found.join(" ")
        ));
    };
    let offset = 4 + 4 * usize::from(magic[3]);
    let Some(sizes) = bytes.get(4..offset) else {
        return Ok(None);
    };
    let shape = sizes
        .chunks_exact(4)
        .map(|b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]) as usize)
        .collect();
    Ok(Some(Header {
        dtype,
        big_endian: true,
        shape,
        data_offset: offset,
    }))
}

/// Returns true if `bytes` begin with an idx header whose sizes fit records of `width` numbers. Raw
/// records hardly ever begin like this.
pub(super) fn is_idx_of(bytes: &[u8], width: usize) -> bool {
    idx_header(bytes).ok().flatten().is_some_and(|header| {
        header.shape.len() > 1 && count(&header.shape, width, BinaryFormat::Idx).is_ok()
    })
}

/// Returns the number of records in an array with these sizes of its axes. An npy array of `width`
/// numbers is one record, even if it has no axis for records.
fn count(sizes: &[usize], width: usize, kind: BinaryFormat) -> Result<u64, String> {
    let product = |sizes: &[usize]| sizes.iter().try_fold(1usize, |n, &s| n.checked_mul(s));
    if let [first, rest @ ..] = sizes {
        if product(rest) == Some(width) {
            return Ok(*first as u64);
        }
    }
    if kind == BinaryFormat::Npy {
        if product(sizes) == Some(width) {
            return Ok(1);
        }
        let list: Vec<String> = sizes.iter().map(usize::to_string).collect();
        let comma = if sizes.len() == 1 { "," } else { "" };
        return Err(format!(
            "expected an array of shape (N, {width}), found ({}{comma})",
            list.join(", ")
        ));
    }
    match sizes {
        [n] => Err(format!(
            "expected records of {width} numbers, found {n} single ones: this looks like a label \
             file, which --expect takes"
        )),
        _ => {
            let rest = sizes.get(1..).unwrap_or_default();
            let list: Vec<String> = rest.iter().map(usize::to_string).collect();
            let found = product(rest).map_or("too many".into(), |n| n.to_string());
            Err(format!(
                "expected records of {width} numbers, found {found} ({})",
                list.join(" × ")
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::reader::Format;
    use super::super::tests::{TestInput, idx, npy, read};
    use crate::ir::network::{ByteInput, Transform};
    use crate::stream::series::SeriesRows;

    fn bytes(format: Option<Format>, width: usize, bytes: &[u8]) -> Result<Vec<Vec<f32>>, String> {
        read(format, &TestInput::new(width), bytes)
    }

    #[test]
    fn raw_bytes() {
        assert_eq!(
            bytes(Some(Format::U8), 2, &[1, 2, 255, 0]),
            Ok(vec![vec![1.0, 2.0], vec![255.0, 0.0]])
        );
        assert_eq!(
            bytes(Some(Format::U8), 2, b"\x1f\x8b"),
            Ok(vec![vec![31.0, 139.0]])
        );
        assert_eq!(bytes(Some(Format::U8), 2, &[]), Ok(vec![]));
        let error = bytes(Some(Format::U8), 784, &[7; 884]).unwrap_err();
        assert_eq!(
            error,
            "stdin: record 2: expected 784 bytes, the input ends after 100"
        );
        let mut input = TestInput::new(2);
        input.transform = Transform::ScaleOffset {
            scale: vec![1.0 / 255.0].into(),
            offset: vec![0.0].into(),
        };
        assert_eq!(
            read(Some(Format::U8), &input, &[255, 51]),
            Ok(vec![vec![1.0, 0.2]])
        );
    }

    #[test]
    fn signed_bytes() {
        let i8s = Some(Format::I8);
        assert_eq!(
            bytes(i8s, 2, &[1, 0xff, 0x80, 0x7f]),
            Ok(vec![vec![1.0, -1.0], vec![-128.0, 127.0]])
        );
        let error = bytes(i8s, 2, &[0; 3]).unwrap_err();
        let expected = "stdin: record 2: expected 2 bytes, the input ends after 1";
        assert_eq!(error, expected);
        let error = bytes(i8s, 3, b"\x1f\x8b\x08").unwrap_err();
        assert!(error.ends_with("| mortonnet -f i8"), "{error}");
    }

    /// Bytes are the integers of a model's input, with signs or without. Other numbers are real
    /// numbers. A scaling comes behind.
    #[test]
    fn bytes_are_the_integers_of_a_model() {
        let uint8 = ByteInput {
            signed: false,
            scale: 0.5,
            first: -100.0,
        };
        let int8 = ByteInput {
            signed: true,
            scale: 0.5,
            first: -128.0 - -28.0,
        };
        let mut input = TestInput::new(2);
        let all = |input: &TestInput, expected: [f32; 2]| {
            let rows = Ok(vec![expected.to_vec()]);
            let read = |format, bytes: &[u8]| read(format, input, bytes);
            assert_eq!(read(Some(Format::U8), &[0, 110]), rows);
            assert_eq!(read(Some(Format::I8), &[0x80, 0xee]), rows);
            for (code, descr, bytes) in [(8, "|u1", [0, 110]), (9, "|i1", [0x80, 0xee])] {
                assert_eq!(read(None, &idx(code, &[1, 2], &bytes)), rows);
                assert_eq!(read(None, &npy(descr, "(1, 2)", &bytes)), rows);
            }
        };
        for bytes in [uint8, int8] {
            input.bytes = Some(bytes);
            all(&input, [-50.0, 5.0]);
            assert_eq!(read(None, &input, b"-50,5\n"), Ok(vec![vec![-50.0, 5.0]]));
        }
        input.transform = Transform::ScaleOffset {
            scale: vec![2.0].into(),
            offset: vec![1.0].into(),
        };
        all(&input, [-99.0, 11.0]);
        input.transform = Transform::ScaleOffset {
            scale: vec![2.0, 4.0].into(),
            offset: vec![1.0].into(),
        };
        all(&input, [-99.0, 21.0]);
        // In a time series the place of a row in the record decides the scaling.
        input.rows = Some(SeriesRows { window: 2, hop: 1 });
        input.width = 1;
        let found = read(Some(Format::U8), &input, &[0, 110, 0]);
        assert_eq!(found, Ok(vec![vec![-99.0, 21.0], vec![11.0, -199.0]]));
        input.transform = Transform::Identity;
        let found = read(Some(Format::I8), &input, &[0x80, 0xee, 0x80]);
        assert_eq!(found, Ok(vec![vec![-50.0, 5.0], vec![5.0, -50.0]]));
    }

    #[test]
    fn raw_floats() {
        let raw = |v: &[f32]| v.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
        let found = bytes(Some(Format::F32), 2, &raw(&[1.5, -2.0, 3e-40, 4.0]));
        assert_eq!(found, Ok(vec![vec![1.5, -2.0], vec![3e-40, 4.0]]));
        let error = bytes(
            Some(Format::F32),
            3,
            &raw(&[0.0, 1.0, 2.0, 1.0, 2.0, f32::NAN]),
        )
        .unwrap_err();
        assert_eq!(
            error,
            "stdin: record 2, value 3: expected a finite number, found NaN"
        );
        let error = bytes(Some(Format::F32), 2, &raw(&[f32::INFINITY, 1.0])).unwrap_err();
        assert_eq!(
            error,
            "stdin: record 1, value 1: expected a finite number, found inf"
        );
        let error = bytes(Some(Format::F32), 2, &raw(&[1.0, 1.0, 1.0])).unwrap_err();
        assert_eq!(
            error,
            "stdin: record 2: expected 8 bytes, the input ends after 4"
        );
    }

    #[test]
    fn idx_files() {
        let two = Ok(vec![vec![1.0, 2.0, 3.0, 255.0], vec![5.0, 6.0, 7.0, 8.0]]);
        let image = idx(8, &[2, 2, 2], &[1, 2, 3, 255, 5, 6, 7, 8]);
        for format in [None, Some(Format::Idx)] {
            assert_eq!(bytes(format, 4, &image), two);
            assert_eq!(bytes(format, 4, &idx(8, &[0, 2, 2], &[])), Ok(vec![]));
        }
        assert_eq!(
            bytes(None, 1, &idx(9, &[2], &[1, 0xff])),
            Ok(vec![vec![1.0], vec![-1.0]])
        );
        assert_eq!(
            bytes(None, 2, &idx(0x0b, &[1, 2], &[0xff, 0, 1, 0])),
            Ok(vec![vec![-256.0, 256.0]])
        );
        assert_eq!(
            bytes(None, 1, &idx(0x0c, &[1, 1], &[0, 1, 0, 0])),
            Ok(vec![vec![65536.0]])
        );
        assert_eq!(
            bytes(None, 1, &idx(0x0d, &[1, 1], &0.1f32.to_be_bytes())),
            Ok(vec![vec![0.1]])
        );
        assert_eq!(
            bytes(None, 1, &idx(0x0e, &[1, 1], &0.1f64.to_be_bytes())),
            Ok(vec![vec![0.1]])
        );
        let error = |width, data: &[u8]| bytes(Some(Format::Idx), width, data).unwrap_err();
        assert_eq!(
            error(1, &idx(0x0e, &[1, 1], &1e39f64.to_be_bytes())),
            "stdin: record 1, value 1: expected a number that fits f32, found 1e39"
        );
        assert_eq!(
            error(9, &image),
            "stdin: expected records of 9 numbers, found 4 (2 × 2)"
        );
        assert!(
            error(9, &idx(8, &[3], &[1, 2, 3]))
                .ends_with("this looks like a label file, which --expect takes")
        );
        assert_eq!(
            error(4, &image[..22]),
            "stdin: record 2: expected 4 bytes, the input ends after 2"
        );
        assert_eq!(
            error(4, &image[..20]),
            "stdin: record 2: expected 2 records, the input ends after 1"
        );
        let long = [image.clone(), vec![0]].concat();
        assert_eq!(
            error(4, &long),
            "stdin: expected the end after 2 records, found more bytes"
        );
        assert_eq!(
            error(4, &image[..9]),
            "stdin: expected an idx header, the input ends after 9 bytes"
        );
        assert!(error(4, b"1,2,3,4\n").starts_with("stdin: expected an idx file"));
        assert!(error(4, b"\x1f\x8b\x08").contains("gunzip"));
        assert!(
            error(4, &idx(8, &[1, u32::MAX, u32::MAX, u32::MAX], &[]))
                .contains("expected records of 4 numbers")
        );
    }

    #[test]
    fn npy_files() {
        let floats: Vec<u8> = [1.5f32, 2.0, 3.0, 4.0]
            .iter()
            .flat_map(|x| x.to_le_bytes())
            .collect();
        let two = Ok(vec![vec![1.5, 2.0], vec![3.0, 4.0]]);
        assert_eq!(bytes(None, 2, &npy("<f4", "(2, 2)", &floats)), two);
        assert_eq!(
            bytes(Some(Format::Npy), 2, &npy("<f4", "(2, 1, 2)", &floats)),
            two
        );
        let one = Ok(vec![vec![1.5, 2.0, 3.0, 4.0]]);
        for shape in ["(4,)", "(1, 4)", "(2, 2)", "(1, 2, 2)"] {
            assert_eq!(bytes(None, 4, &npy("<f4", shape, &floats)), one, "{shape}");
        }
        assert_eq!(
            bytes(None, 1, &npy("|b1", "(3,)", &[0, 1, 1])),
            Ok(vec![vec![0.0], vec![1.0], vec![1.0]])
        );
        assert_eq!(
            bytes(None, 1, &npy("<i8", "()", &(-7i64).to_le_bytes())),
            Ok(vec![vec![-7.0]])
        );
        assert_eq!(bytes(None, 1, &npy(">u2", "(0, 1)", &[])), Ok(vec![]));
        let error = |width, data: &[u8]| bytes(None, width, data).unwrap_err();
        assert_eq!(
            error(3, &npy("<f4", "(2, 2)", &floats)),
            "stdin: expected an array of shape (N, 3), found (2, 2)"
        );
        assert_eq!(
            error(3, &npy("<f4", "(4,)", &floats)),
            "stdin: expected an array of shape (N, 3), found (4,)"
        );
        assert!(error(3, &npy("<f2", "(2, 3)", &floats)).contains("astype(np.float32)"));
        let double = [1.0, f64::NAN].map(f64::to_le_bytes).concat();
        let nan = error(2, &npy("<f8", "(1, 2)", &double));
        assert_eq!(
            nan,
            "stdin: record 1, value 2: expected a finite number, found NaN"
        );
        assert!(
            error(2, b"\x93NUMPY\x01")
                .ends_with("expected an npy header, the input ends after 7 bytes")
        );
        let more = error(2, &npy("<f4", "(1, 2)", &floats));
        assert_eq!(
            more,
            "stdin: expected the end after 1 record, found more bytes"
        );
    }
}
