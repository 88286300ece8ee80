//! Writes numbers, lists and labels as text. Each function appends to a buffer, and allocates only
//! if the buffer is full.

use super::decimal;
use std::borrow::Cow;
use std::io::Write;

/// Writes numbers with commas between them.
pub(super) fn numbers(b: &mut Vec<u8>, all: impl Iterator<Item = f32>) {
    list(b, all, number);
}

/// Writes items with commas between them. `item` writes one item.
pub(super) fn list<T>(
    b: &mut Vec<u8>,
    items: impl IntoIterator<Item = T>,
    mut item: impl FnMut(&mut Vec<u8>, T),
) {
    for (i, x) in items.into_iter().enumerate() {
        if i > 0 {
            b.push(b',');
        }
        item(b, x);
    }
}

pub(super) fn integer(b: &mut Vec<u8>, mut n: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (n % 10) as u8;
        n /= 10;
        if n == 0 {
            break;
        }
    }
    b.extend_from_slice(&digits[at..]);
}

/// Writes the shortest text that reads back as the same f32. Very large and very small numbers get
/// an exponent.
pub(super) fn number(b: &mut Vec<u8>, x: f32) {
    if decimal::append(b, x) {
        return;
    }
    // Writing to a Vec cannot fail.
    let _ = match x.abs() {
        0.0 | 1e-5..1e16 => b.write_fmt(format_args!("{x}")),
        _ => b.write_fmt(format_args!("{x:e}")),
    };
}

/// Writes the name of class `c`, or its index if it has no name.
pub(super) fn label(b: &mut Vec<u8>, labels: &[Cow<'static, str>], c: u32) {
    match labels.get(c as usize) {
        Some(text) => b.extend_from_slice(text.as_bytes()),
        None => integer(b, c.into()),
    }
}

/// Writes the name of class `c` as a JSON string. If the class has no name, the string holds its
/// index.
pub(super) fn json_label(b: &mut Vec<u8>, labels: &[Cow<'static, str>], c: u32) {
    b.push(b'"');
    match labels.get(c as usize) {
        Some(text) => escaped(b, text),
        None => integer(b, c.into()),
    }
    b.push(b'"');
}

/// Writes `text` with the escapes of a JSON string, without the quotes around it.
pub(super) fn escaped(b: &mut Vec<u8>, text: &str) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => b.extend_from_slice(&[b'\\', byte]),
            b'\n' => b.extend_from_slice(b"\\n"),
            b'\r' => b.extend_from_slice(b"\\r"),
            b'\t' => b.extend_from_slice(b"\\t"),
            0..=31 => {
                b.extend_from_slice(b"\\u00");
                b.extend_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
            }
            _ => b.push(byte),
        }
    }
}
