//! Detects the format of an input by its first bytes. Also detects files that are passed by
//! mistake.
//!
//! A function that returns an `Option` returns `None` if it needs more bytes to decide. If `ended`
//! is true, no more bytes will come, so it must decide.

use super::binary::{self, BinaryFormat};
use super::reader::Format;
use crate::ir::npy;
use std::fmt;

/// The result of detection: the input's format, or the kind of a file that is passed by mistake.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// Text, after a byte order mark of `mark` bytes.
    Text {
        mark: usize,
    },
    Binary(BinaryFormat),
    Foreign(ForeignFile),
}

/// Kinds of files that people pass by mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ForeignFile {
    Gzip,
    Zip,
    Utf16,
    /// A file that another program compressed: the program's name, and the command that unpacks the
    /// file.
    Packed(&'static str, &'static str),
    /// An image, a film or a sound, with its description for a message.
    Media(&'static str),
    Other(&'static str),
    /// A file with a header, although the user has named a format without one.
    Headed(&'static str),
}

const GZIP: &[u8] = b"\x1f\x8b";
const UTF16: [&[u8]; 2] = [b"\xff\xfe", b"\xfe\xff"];
const UTF8_MARK: &[u8] = b"\xef\xbb\xbf";

/// The first bytes of foreign files. Text never begins with them, and raw records hardly ever do.
const FOREIGN: [(&[u8], ForeignFile); 16] = [
    (b"PK\x03\x04", ForeignFile::Zip),
    (b"\xfd7zXZ\0", ForeignFile::Packed("xz", "xz -dc")),
    (b"\x28\xb5\x2f\xfd", ForeignFile::Packed("zstd", "zstd -dc")),
    (b"BZh91AY&SY", ForeignFile::Packed("bzip2", "bzip2 -dc")),
    (b"\x89PNG\r\n\x1a\n", ForeignFile::Media("a PNG image")),
    (b"\xff\xd8\xff\xe0", ForeignFile::Media("a JPEG image")),
    (b"\xff\xd8\xff\xe1", ForeignFile::Media("a JPEG image")),
    (b"\xff\xd8\xff\xdb", ForeignFile::Media("a JPEG image")),
    (b"GIF89a", ForeignFile::Media("a GIF image")),
    (b"GIF87a", ForeignFile::Media("a GIF image")),
    (b"II*\0\x08\0\0\0", ForeignFile::Media("a TIFF image")),
    (b"RIFF", ForeignFile::Media("a RIFF file (WAV, AVI, WebP)")),
    (b"\x1aE\xdf\xa3", ForeignFile::Media("a Matroska film")),
    (b"\x89HDF\r\n\x1a\n", ForeignFile::Other("an HDF5 file")),
    (b"%PDF-", ForeignFile::Other("a PDF")),
    (b"\x7fELF", ForeignFile::Other("a program")),
];

impl ForeignFile {
    /// Returns the message that refuses `file`. `format` is the command-line option with which the
    /// unpacked file can be read.
    pub(super) fn advice(self, file: impl fmt::Display, format: &str) -> String {
        let next = format!("| mortonnet{format}");
        match self {
            ForeignFile::Gzip => format!("this looks like gzip: gunzip -c {file} {next}"),
            ForeignFile::Zip => {
                format!(
                    "this looks like a zip or npz archive: unzip -p {file} NAME.npy | mortonnet"
                )
            }
            ForeignFile::Utf16 => {
                format!("this looks like UTF-16: iconv -f UTF-16 -t UTF-8 {file} | mortonnet")
            }
            ForeignFile::Packed(name, program) => {
                format!("this looks like {name}: {program} {file} {next}")
            }
            ForeignFile::Media(name) => format!(
                "this looks like {name}, expected the numbers of records; the gray pixels of an \
                 image that has the network's size: ffmpeg -i {file} -f rawvideo -pix_fmt gray - \
                 | mortonnet -f u8"
            ),
            ForeignFile::Other(name) => {
                format!("this looks like {name}, expected the numbers of records")
            }
            ForeignFile::Headed(name) => {
                format!(
                    "this looks like {name} file, expected raw records without a header; without\
                     {format} the header is read"
                )
            }
        }
    }
}

/// Returns true if `bytes` start with `magic`. Returns `None` if more bytes are needed to tell.
fn starts(bytes: &[u8], magic: &[u8], ended: bool) -> Option<bool> {
    let n = bytes.len().min(magic.len());
    if bytes[..n] != magic[..n] || (n < magic.len() && ended) {
        Some(false)
    } else {
        (n == magic.len()).then_some(true)
    }
}

/// Returns the kind of file in `table` with whose first bytes `bytes` begin. Returns `Some(None)`
/// if there is no such kind, and `None` if more bytes are needed to tell.
fn one_of(
    table: &[(&[u8], ForeignFile)],
    bytes: &[u8],
    ended: bool,
) -> Option<Option<ForeignFile>> {
    for (magic, foreign) in table {
        if starts(bytes, magic, ended)? {
            return Some(Some(*foreign));
        }
    }
    Some(None)
}

fn foreign(bytes: &[u8], ended: bool) -> Option<Option<ForeignFile>> {
    const ENCODED: [(&[u8], ForeignFile); 3] = [
        (GZIP, ForeignFile::Gzip),
        (UTF16[0], ForeignFile::Utf16),
        (UTF16[1], ForeignFile::Utf16),
    ];
    match one_of(&ENCODED, bytes, ended)? {
        None => one_of(&FOREIGN, bytes, ended),
        found => Some(found),
    }
}

/// Detects the format of an input from its first bytes, or that it is a foreign file. `format` is
/// the format that the user has named. `width` is the count of numbers of a record.
pub(super) fn start(
    bytes: &[u8],
    ended: bool,
    format: Option<Format>,
    width: usize,
) -> Option<Start> {
    match format {
        Some(Format::U8) => raw(bytes, ended, BinaryFormat::U8, width),
        Some(Format::I8) => raw(bytes, ended, BinaryFormat::I8, width),
        Some(Format::F32) => raw(bytes, ended, BinaryFormat::F32, width),
        Some(format) => known(bytes, ended, format),
        None => unknown(bytes, ended),
    }
}

/// Tells raw records of `width` numbers from another file. Looks at the first record only and
/// ignores later bytes, so that the decision does not depend on how fast they come.
fn raw(bytes: &[u8], ended: bool, kind: BinaryFormat, width: usize) -> Option<Start> {
    // These are all three fixed bytes of gzip, because a raw record may well begin with the first
    // two.
    const HEADED: [(&[u8], ForeignFile); 2] = [
        (b"\x1f\x8b\x08", ForeignFile::Gzip),
        (npy::MAGIC, ForeignFile::Headed("an npy")),
    ];
    let size = match kind {
        BinaryFormat::F32 => 4 * width,
        _ => width,
    };
    let ended = ended || bytes.len() >= size;
    let bytes = &bytes[..bytes.len().min(size)];
    for table in [&HEADED[..], &FOREIGN] {
        if let Some(foreign) = one_of(table, bytes, ended)? {
            return Some(Start::Foreign(foreign));
        }
    }
    Some(match binary::is_idx_of(bytes, width) {
        true => Start::Foreign(ForeignFile::Headed("an idx")),
        false => Start::Binary(kind),
    })
}

fn text(bytes: &[u8], ended: bool) -> Option<Start> {
    if let Some(foreign) = foreign(bytes, ended)? {
        return Some(Start::Foreign(foreign));
    }
    let mark = if starts(bytes, UTF8_MARK, ended)? {
        UTF8_MARK.len()
    } else {
        0
    };
    Some(Start::Text { mark })
}

/// Detects the format of an input that the user says is csv, npy or idx. It may still be a foreign
/// file.
fn known(bytes: &[u8], ended: bool, format: Format) -> Option<Start> {
    let kind = match format {
        Format::Npy => BinaryFormat::Npy,
        Format::Idx => BinaryFormat::Idx,
        _ => return text(bytes, ended),
    };
    let foreign = foreign(bytes, ended)?;
    Some(foreign.map_or(Start::Binary(kind), Start::Foreign))
}

fn unknown(bytes: &[u8], ended: bool) -> Option<Start> {
    if starts(bytes, npy::MAGIC, ended)? {
        return Some(Start::Binary(BinaryFormat::Npy));
    }
    if starts(bytes, &[0, 0], ended)? {
        match bytes.get(2..4) {
            Some(&[code, 1..=255]) if binary::idx_type(code).is_some() => {
                return Some(Start::Binary(BinaryFormat::Idx));
            }
            None if !ended => return None,
            _ => {}
        }
    }
    text(bytes, ended)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_is_told_as_soon_as_the_bytes_allow() {
        let csv = Some(Start::Text { mark: 0 });
        let cases: [(&[u8], usize, Option<Start>); 11] = [
            (b"1,2", 1, csv),
            (b"\x93NUMPY\x01", 6, Some(Start::Binary(BinaryFormat::Npy))),
            (b"\x93NUMBER", 5, Some(Start::Text { mark: 0 })),
            (b"\0\0\x08\x03\0", 4, Some(Start::Binary(BinaryFormat::Idx))),
            (b"\0\0\x0a\x03\0", 4, Some(Start::Text { mark: 0 })),
            (b"\x1f\x8b\x08", 2, Some(Start::Foreign(ForeignFile::Gzip))),
            (b"\xef\xbb\xbf1", 3, Some(Start::Text { mark: 3 })),
            (b"PK\x03\x04", 4, Some(Start::Foreign(ForeignFile::Zip))),
            (b"\xff\xfe1\0", 2, Some(Start::Foreign(ForeignFile::Utf16))),
            (
                b"\xff\xd8\xff\xdb",
                4,
                Some(Start::Foreign(ForeignFile::Media("a JPEG image"))),
            ),
            (
                b"\x7fELF",
                4,
                Some(Start::Foreign(ForeignFile::Other("a program"))),
            ),
        ];
        for (bytes, needed, expected) in cases {
            for n in 0..needed {
                assert_eq!(unknown(&bytes[..n], false), None, "{bytes:?} {n}");
                assert!(unknown(&bytes[..n], true).is_some(), "{bytes:?} {n}");
            }
            assert_eq!(unknown(&bytes[..needed], false), expected, "{bytes:?}");
            assert_eq!(unknown(bytes, true), expected, "{bytes:?}");
        }
    }

    /// A file with a magic number is not taken for raw records. When a whole record has come, the
    /// decision waits for no more bytes.
    #[test]
    fn raw_records_are_told_from_files() {
        let idx = b"\0\0\x08\x03\0\0\0\x05\0\0\0\x04\0\0\0\x04rest";
        let told = |bytes: &[u8], kind| raw(bytes, false, kind, 16);
        for kind in [BinaryFormat::U8, BinaryFormat::I8, BinaryFormat::F32] {
            for (magic, found) in FOREIGN {
                let bytes = [
                    magic,
                    b"more than a record of sixteen numbers, which may be floats",
                ]
                .concat();
                assert_eq!(told(&bytes, kind), Some(Start::Foreign(found)));
            }
            assert_eq!(
                told(b"\x93NUMPY\x01\0v\0", kind),
                Some(Start::Foreign(ForeignFile::Headed("an npy")))
            );
            assert_eq!(
                told(b"\x1f\x8b\x08\0....", kind),
                Some(Start::Foreign(ForeignFile::Gzip))
            );
            assert_eq!(
                told(idx, kind),
                Some(Start::Foreign(ForeignFile::Headed("an idx")))
            );
            // These raw records begin like an idx file, but its sizes would not fit the network.
            assert_eq!(
                told(b"\0\0\x08\x03\0\0\0\x05\0\0\0\x04\0\0\0\x05rest", kind),
                Some(Start::Binary(kind))
            );
            assert_eq!(told(b"\x1f\x8b\x07", kind), Some(Start::Binary(kind)));
            assert_eq!(told(b"\0", kind), Some(Start::Binary(kind)));
            assert_eq!(told(b"\x89PN", kind), None);
            assert_eq!(raw(b"\x89PN", true, kind, 8), Some(Start::Binary(kind)));
        }
        assert_eq!(
            raw(b"\x89PN", false, BinaryFormat::U8, 3),
            Some(Start::Binary(BinaryFormat::U8))
        );
        // Bytes after the first record do not matter, because they may come later.
        assert_eq!(
            raw(b"RIFF....", false, BinaryFormat::U8, 3),
            Some(Start::Binary(BinaryFormat::U8))
        );
        assert_eq!(
            raw(b"RIFF....", false, BinaryFormat::U8, 4)
                .map(|s| s != Start::Binary(BinaryFormat::U8)),
            Some(true)
        );
    }
}
