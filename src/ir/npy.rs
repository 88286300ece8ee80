//! Parses the header of NumPy's .npy format (versions 1 to 3), and decodes the array's elements.
//!
//! A header has the magic, a version, a length and a Python dictionary with the keys `descr`,
//! `fortran_order` and `shape`. The format is defined at
//! <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>.

/// The first bytes of every .npy file.
pub(crate) const MAGIC: &[u8; 6] = b"\x93NUMPY";

/// The most bytes that a header's dictionary may have. Only structured types need more, and they
/// are not supported.
const LONGEST: usize = 1 << 16;

/// The type of the array's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dtype {
    F4,
    F8,
    I1,
    I2,
    I4,
    I8,
    U1,
    U2,
    U4,
    U8,
    /// A boolean in one byte. It is decoded as 0 if the byte is 0, and as 1 otherwise.
    Bool,
}

impl Dtype {
    /// The size of an element in bytes.
    pub(crate) fn size(self) -> usize {
        match self {
            Dtype::I1 | Dtype::U1 | Dtype::Bool => 1,
            Dtype::I2 | Dtype::U2 => 2,
            Dtype::F4 | Dtype::I4 | Dtype::U4 => 4,
            Dtype::F8 | Dtype::I8 | Dtype::U8 => 8,
        }
    }

    /// Decodes an element from `size()` bytes.
    pub(crate) fn decode(self, bytes: &[u8], big_endian: bool) -> f64 {
        match self {
            Dtype::F8 => f64::from_bits(unsigned(bytes, big_endian)),
            Dtype::F4 => f64::from(f32::from_bits(unsigned(bytes, big_endian) as u32)),
            Dtype::Bool => f64::from(u8::from(bytes[0] != 0)),
            Dtype::U1 | Dtype::U2 | Dtype::U4 | Dtype::U8 => unsigned(bytes, big_endian) as f64,
            Dtype::I1 | Dtype::I2 | Dtype::I4 | Dtype::I8 => signed(bytes, big_endian) as f64,
        }
    }

    /// Decodes an element as f32 and rounds only once. A 64-bit integer is not converted to f64
    /// first, because it would then be rounded twice.
    pub(crate) fn decode_f32(self, bytes: &[u8], big_endian: bool) -> f32 {
        match self {
            Dtype::U8 => unsigned(bytes, big_endian) as f32,
            Dtype::I8 => signed(bytes, big_endian) as f32,
            _ => self.decode(bytes, big_endian) as f32,
        }
    }
}

/// Decodes 1 to 8 bytes as an unsigned integer.
fn unsigned(bytes: &[u8], big_endian: bool) -> u64 {
    let join = |n: u64, b: &u8| n << 8 | u64::from(*b);
    if big_endian {
        bytes.iter().fold(0, join)
    } else {
        bytes.iter().rev().fold(0, join)
    }
}

/// Decodes 1 to 8 bytes as a signed integer.
fn signed(bytes: &[u8], big_endian: bool) -> i64 {
    let unused = 64 - 8 * bytes.len() as u32;
    (unsigned(bytes, big_endian) << unused) as i64 >> unused
}

/// A parsed .npy header. The elements are in C order (row-major), because `parse_header` refuses
/// Fortran order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) dtype: Dtype,
    pub(crate) big_endian: bool,
    /// The sizes of the array's dimensions, the outermost first. Empty for a single number.
    pub(crate) shape: Vec<usize>,
    /// The number of bytes in the file before the first element.
    pub(crate) data_offset: usize,
}

impl Header {
    /// Decodes an element from `dtype.size()` bytes.
    pub(crate) fn decode(&self, bytes: &[u8]) -> f64 {
        self.dtype.decode(bytes, self.big_endian)
    }

    /// Decodes an element from `dtype.size()` bytes as f32, rounded once.
    pub(crate) fn decode_f32(&self, bytes: &[u8]) -> f32 {
        self.dtype.decode_f32(bytes, self.big_endian)
    }
}

/// Parses the .npy header at the start of `bytes`. Returns `None` if the header needs more bytes
/// than these. The error message says what to do.
pub(crate) fn parse_header(bytes: &[u8]) -> Result<Option<Header>, String> {
    let seen = bytes.len().min(MAGIC.len());
    if bytes[..seen] != MAGIC[..seen] {
        return Err(
            "expected an npy file (it starts with \\x93NUMPY), found something else".into(),
        );
    }
    let (Some(&major), Some(&minor)) = (bytes.get(6), bytes.get(7)) else {
        return Ok(None);
    };
    let length_bytes = match (major, minor) {
        (1, 0) => 2,
        (2 | 3, 0) => 4,
        _ => {
            return Err(format!(
                "expected npy format version 1.0, 2.0 or 3.0, found {major}.{minor}"
            ));
        }
    };
    let start = 8 + length_bytes;
    let Some(length) = bytes.get(8..start) else {
        return Ok(None);
    };
    let length = unsigned(length, false) as usize;
    if length > LONGEST {
        return Err(format!(
            "expected an npy header of at most {LONGEST} bytes, found {length}"
        ));
    }
    let Some(text) = bytes.get(start..start + length) else {
        return Ok(None);
    };
    let text = String::from_utf8_lossy(text);
    let fields = Python { rest: &text }.dictionary().ok_or_else(|| {
        format!(
            "expected an npy header with descr, fortran_order and shape, found {:?}",
            shorten(&text)
        )
    })?;
    let (dtype, big_endian) = dtype(&fields.descr)?;
    // If at most one dimension is larger than 1, Fortran order and C order are the same. Such an
    // array is accepted.
    if fields.fortran && fields.shape.iter().filter(|&&n| n > 1).count() > 1 {
        return Err(
            "expected an array in C order, found Fortran order: save np.ascontiguousarray(array)"
                .into(),
        );
    }
    Ok(Some(Header {
        dtype,
        big_endian,
        shape: fields.shape,
        data_offset: start + length,
    }))
}

/// Parses an element type in NumPy's notation, such as `<f4`. Returns the type, and true if the
/// numbers are big-endian.
fn dtype(descr: &str) -> Result<(Dtype, bool), String> {
    let refused = |what: &str| {
        let advice = "save array.astype(np.float32)";
        Err(format!(
            "expected numbers (float32, float64, integers or bool), found {what}: {advice}"
        ))
    };
    if descr.starts_with('[') {
        return refused("a structured type");
    }
    let big_endian = descr.starts_with('>');
    let code = descr.trim_start_matches(['<', '>', '|', '=']);
    let dtype = match code {
        "f4" => Dtype::F4,
        "f8" => Dtype::F8,
        "i1" => Dtype::I1,
        "i2" => Dtype::I2,
        "i4" => Dtype::I4,
        "i8" => Dtype::I8,
        "u1" => Dtype::U1,
        "u2" => Dtype::U2,
        "u4" => Dtype::U4,
        "u8" => Dtype::U8,
        "b1" => Dtype::Bool,
        _ => {
            let kind = match code.chars().next() {
                Some('f') if code == "f2" => "float16",
                Some('f') => "a long double",
                Some('c') => "complex numbers",
                Some('O') => "Python objects",
                Some('S' | 'U' | 'a') => "text",
                Some('M' | 'm') => "dates or times",
                Some('V') => "raw bytes",
                _ => "another type",
            };
            return refused(&format!("{kind} ('{}')", shorten(descr)));
        }
    };
    Ok((dtype, big_endian))
}

fn shorten(text: &str) -> String {
    let mut cut: String = text.trim().chars().take(60).collect();
    if cut.len() < text.trim().len() {
        cut.push('…');
    }
    cut
}

struct Fields {
    descr: String,
    fortran: bool,
    shape: Vec<usize>,
}

/// A parser of the part of Python's literal syntax that .npy headers use.
struct Python<'a> {
    rest: &'a str,
}

impl<'a> Python<'a> {
    fn dictionary(mut self) -> Option<Fields> {
        let (mut descr, mut fortran, mut shape) = (None, None, None);
        self.sign('{')?;
        while self.sign('}').is_none() {
            let key = self.text()?;
            self.sign(':')?;
            match key {
                "descr" => descr = Some(self.descr()?),
                "fortran_order" => fortran = Some(self.truth()?),
                "shape" => shape = Some(self.shape()?),
                _ => return None,
            }
            if self.sign(',').is_none() {
                self.sign('}')?;
                break;
            }
        }
        // The header ends with blanks and a line end as padding.
        self.rest.trim_start().is_empty().then_some(())?;
        Some(Fields {
            descr: descr?,
            fortran: fortran?,
            shape: shape?,
        })
    }

    /// Removes the next character that is not a blank from the input, if it is `c`. Otherwise
    /// returns `None` and removes nothing.
    fn sign(&mut self, c: char) -> Option<()> {
        self.rest = self.rest.trim_start().strip_prefix(c)?;
        Some(())
    }

    fn text(&mut self) -> Option<&'a str> {
        let rest = self.rest.trim_start();
        let quote = rest.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
        let (text, rest) = rest[1..].split_once(quote)?;
        self.rest = rest;
        Some(text)
    }

    /// Parses the element type, which is a string. A structured type is a list, and is returned as
    /// `[`.
    fn descr(&mut self) -> Option<String> {
        if !self.rest.trim_start().starts_with('[') {
            return self.text().map(String::from);
        }
        let mut depth = 0usize;
        for (i, c) in self.rest.char_indices() {
            match c {
                '[' => depth += 1,
                ']' => depth -= 1,
                _ => continue,
            }
            if depth == 0 {
                self.rest = &self.rest[i + 1..];
                return Some("[".into());
            }
        }
        None
    }

    fn truth(&mut self) -> Option<bool> {
        let rest = self.rest.trim_start();
        let (value, rest) = match rest.strip_prefix("True") {
            Some(rest) => (true, rest),
            None => (false, rest.strip_prefix("False")?),
        };
        self.rest = rest;
        Some(value)
    }

    fn shape(&mut self) -> Option<Vec<usize>> {
        self.sign('(')?;
        let mut shape = Vec::new();
        while self.sign(')').is_none() {
            let rest = self.rest.trim_start();
            let digits = rest.find(|c: char| !c.is_ascii_digit())?;
            shape.push(rest[..digits].parse().ok()?);
            // Python 2 wrote the sizes of dimensions like 3L.
            self.rest = rest[digits..].trim_start_matches('L');
            if self.sign(',').is_none() {
                self.sign(')')?;
                break;
            }
        }
        Some(shape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_header_panics(
            dictionary in "[{}()\\[\\]:,'\"0-9a-zL ]{0,40}|\\PC{0,40}",
            cut in 0usize..60,
        ) {
            let text = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {dictionary}");
            for bytes in [file(1, &dictionary), file(2, &text)] {
                let _ = parse_header(&bytes);
                let _ = parse_header(&bytes[..cut.min(bytes.len())]);
            }
        }
    }

    fn file(version: u8, dictionary: &str) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend([version, 0]);
        match version {
            1 => bytes.extend((dictionary.len() as u16).to_le_bytes()),
            _ => bytes.extend((dictionary.len() as u32).to_le_bytes()),
        }
        bytes.extend(dictionary.as_bytes());
        bytes
    }

    fn parse(dictionary: &str) -> Result<Header, String> {
        parse_header(&file(1, dictionary)).map(Option::unwrap)
    }

    #[test]
    fn the_header_that_numpy_writes() {
        for version in [1, 2, 3] {
            let text =
                "{'descr': '<f4', 'fortran_order': False, 'shape': (597, 64), }            \n";
            let mut bytes = file(version, text);
            let data_offset = bytes.len();
            bytes.extend([0; 4]);
            let expected = Header {
                dtype: Dtype::F4,
                big_endian: false,
                shape: vec![597, 64],
                data_offset,
            };
            assert_eq!(parse_header(&bytes), Ok(Some(expected)));
            for cut in 0..data_offset {
                assert_eq!(parse_header(&bytes[..cut]), Ok(None), "{cut} bytes");
            }
        }
    }

    #[test]
    fn shapes_and_types() {
        let shape = |s: &str| {
            parse(&format!(
                "{{'descr':'>u2','fortran_order':False,'shape':{s}}}"
            ))
            .unwrap()
            .shape
        };
        assert_eq!(shape("()"), Vec::<usize>::new());
        assert_eq!(shape("(7,)"), [7]);
        assert_eq!(shape("(3L, 4L)"), [3, 4]);
        assert_eq!(shape("(2, 3, 4)"), [2, 3, 4]);
        for (descr, dtype, size) in [
            ("|b1", Dtype::Bool, 1),
            ("|u1", Dtype::U1, 1),
            ("<u2", Dtype::U2, 2),
            ("<u4", Dtype::U4, 4),
            ("<u8", Dtype::U8, 8),
            ("|i1", Dtype::I1, 1),
            ("<i2", Dtype::I2, 2),
            ("<i4", Dtype::I4, 4),
            ("<i8", Dtype::I8, 8),
            ("<f4", Dtype::F4, 4),
            ("<f8", Dtype::F8, 8),
        ] {
            let text = format!("{{'shape': (1,), \"descr\": '{descr}', 'fortran_order': False}}");
            assert_eq!(parse(&text).unwrap().dtype, dtype);
            assert_eq!(dtype.size(), size);
        }
    }

    #[test]
    fn refusals_say_what_to_do() {
        let text = |d: &str, f: &str, s: &str| {
            format!("{{'descr': {d}, 'fortran_order': {f}, 'shape': {s}, }}")
        };
        let refused = |d: &str| parse(&text(d, "False", "(2, 2)")).unwrap_err();
        assert_eq!(
            refused("'<f2'"),
            "expected numbers (float32, float64, integers or bool), found float16 ('<f2'): save \
             array.astype(np.float32)"
        );
        assert!(refused("'|O'").contains("Python objects"));
        assert!(refused("'<c8'").contains("complex numbers"));
        assert!(refused("'<U5'").contains("text"));
        assert!(
            refused("[('a', '<f4', (2,)), ('b', [('c', '<i4')])]").contains("a structured type")
        );
        assert!(
            parse(&text("'<f4'", "True", "(2, 2)"))
                .unwrap_err()
                .contains("np.ascontiguousarray")
        );
        assert_eq!(
            parse(&text("'<f4'", "True", "(1, 5)")).unwrap().shape,
            [1, 5]
        );
        assert!(
            parse_header(b"\x93NUMPX")
                .unwrap_err()
                .starts_with("expected an npy file")
        );
        assert!(
            parse_header(b"\x93NUMPY\x04\x00")
                .unwrap_err()
                .contains("found 4.0")
        );
        assert!(
            parse_header(b"\x93NUMPY\x02\x00\xff\xff\xff\x7f")
                .unwrap_err()
                .contains("at most")
        );
        for broken in [
            "",
            "{",
            "{}",
            "{'descr': '<f4'",
            "{'descr': ]]]",
            "{'shape': (-1,)}",
            "{'shape': (99999999999999999999,)",
        ] {
            assert!(parse(broken).is_err(), "{broken}");
        }
    }

    #[test]
    fn elements() {
        let header = |dtype, big_endian| Header {
            dtype,
            big_endian,
            shape: vec![],
            data_offset: 0,
        };
        assert_eq!(header(Dtype::F4, false).decode(&1.5f32.to_le_bytes()), 1.5);
        assert_eq!(
            header(Dtype::F8, true).decode(&(-0.1f64).to_be_bytes()),
            -0.1
        );
        assert_eq!(header(Dtype::I1, false).decode(&[0xfe]), -2.0);
        assert_eq!(
            header(Dtype::I2, true).decode(&(-300i16).to_be_bytes()),
            -300.0
        );
        assert_eq!(
            header(Dtype::I4, false).decode(&i32::MIN.to_le_bytes()),
            -2147483648.0
        );
        assert_eq!(
            header(Dtype::I8, false).decode(&(-5i64).to_le_bytes()),
            -5.0
        );
        assert_eq!(header(Dtype::U1, false).decode(&[255]), 255.0);
        assert_eq!(
            header(Dtype::U4, true).decode(&4_000_000_000u32.to_be_bytes()),
            4e9
        );
        assert_eq!(header(Dtype::Bool, false).decode(&[2]), 1.0);
        // 2^60 + 2^36 + 1 is just above the middle between two f32. As an f64 it loses the 1.
        let n = (1u64 << 60) + (1 << 36) + 1;
        assert_eq!(
            header(Dtype::U8, false).decode_f32(&n.to_le_bytes()),
            n as f32
        );
        assert_ne!(
            header(Dtype::U8, false).decode(&n.to_le_bytes()) as f32,
            n as f32
        );
        assert_eq!(
            header(Dtype::I8, true).decode_f32(&(n as i64).to_be_bytes()),
            n as f32
        );
    }
}
