//! Reads FlatBuffers: the tables, vectors and texts of a TensorFlow Lite file. Every access is
//! checked against the length of the file.
//!
//! Reading always ends. The nesting depth is that of the schema, and a vector has no more elements
//! than the file has bytes.
//!
//! Many tables may refer to one vector, and each takes memory for a copy. So the bytes of all
//! vectors together are limited to `TIMES` times the bytes of the file.

use std::cell::Cell;

/// A FlatBuffers table: numbered fields, each of which may be left out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Table<'b> {
    bytes: &'b [u8],
    /// The index in the file of the table's first byte.
    at: usize,
    /// The offsets of the table's fields from its first byte, two bytes each. Offset 0 stands for a
    /// field that is left out.
    fields: &'b [u8],
    /// The number of bytes that all further vectors of the file may take together.
    left: Option<&'b Cell<usize>>,
}

/// The factor by which the bytes of all vectors together may exceed the bytes of the file.
const TIMES: usize = 16;

/// Returns the number of bytes that all vectors of a file may take together.
pub(super) fn most(bytes: &[u8]) -> Cell<usize> {
    Cell::new(bytes.len().saturating_mul(TIMES))
}

/// Returns the `N` bytes from the index `at` on.
fn part<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], String> {
    let found = at
        .checked_add(N)
        .and_then(|end| bytes.get(at..end))
        .and_then(|b| b.try_into().ok());
    found.ok_or_else(|| {
        format!(
            "cut off or damaged: data is missing at byte {at}, the file has {} bytes",
            bytes.len()
        )
    })
}

/// Returns the index to which the offset stored at `at` points.
fn follow(bytes: &[u8], at: usize) -> Result<usize, String> {
    let offset = u32::from_le_bytes(part(bytes, at)?) as usize;
    at.checked_add(offset)
        .ok_or_else(|| "damaged: an offset points outside the file".to_string())
}

/// The elements of a FlatBuffers vector.
#[derive(Default)]
struct Elements<'b> {
    /// The index in the file of the vector's first element.
    begin: usize,
    bytes: &'b [u8],
}

impl<'b> Table<'b> {
    /// A table without fields.
    pub(super) const EMPTY: Table<'static> = Table {
        bytes: &[],
        at: 0,
        fields: &[],
        left: None,
    };

    /// Returns the root table of a file. The file begins with the root's offset and `identifier`.
    /// `left` is the number of bytes that vectors may take ([`most`]).
    pub(super) fn root(
        bytes: &'b [u8],
        identifier: &[u8; 4],
        left: &'b Cell<usize>,
    ) -> Result<Table<'b>, String> {
        let found: [u8; 4] = part(bytes, 4)?;
        if found != *identifier {
            let name = |b: &[u8]| b.escape_ascii().to_string();
            return Err(format!(
                "not a TensorFlow Lite model: expected {} from byte 4 on, found {}",
                name(identifier),
                name(&found)
            ));
        }
        Table::at(bytes, follow(bytes, 0)?, Some(left))
    }

    fn at(bytes: &'b [u8], at: usize, left: Option<&'b Cell<usize>>) -> Result<Table<'b>, String> {
        let back = i64::from(i32::from_le_bytes(part(bytes, at)?));
        let table = usize::try_from(at as i64 - back)
            .map_err(|_| "damaged: an offset points outside the file")?;
        let size = usize::from(u16::from_le_bytes(part(bytes, table)?));
        let fields = bytes.get(table.saturating_add(4)..table.saturating_add(size));
        let fields = fields.ok_or("cut off or damaged: a table's fields are out of the file")?;
        Ok(Table {
            bytes,
            at,
            fields,
            left,
        })
    }

    /// Returns the index in the file of field `n`. `None` if the field is left out.
    fn field(&self, n: usize) -> Option<usize> {
        match part::<2>(self.fields, 2 * n).map(u16::from_le_bytes) {
            Ok(offset) if offset > 0 => self.at.checked_add(offset.into()),
            _ => None,
        }
    }

    fn scalar<const N: usize>(&self, n: usize) -> Result<Option<[u8; N]>, String> {
        self.field(n).map(|at| part(self.bytes, at)).transpose()
    }

    /// Returns field `n`, a byte. It is 0 if the field is left out.
    pub(super) fn byte(&self, n: usize) -> Result<u8, String> {
        Ok(self.scalar::<1>(n)?.map_or(0, |b| b[0]))
    }

    /// Returns field `n`, a truth value. It is false if the field is left out.
    pub(super) fn flag(&self, n: usize) -> Result<bool, String> {
        Ok(self.byte(n)? != 0)
    }

    pub(super) fn int(&self, n: usize, default: i32) -> Result<i32, String> {
        Ok(self.scalar(n)?.map_or(default, i32::from_le_bytes))
    }

    /// Returns field `n`, a u32. It is 0 if the field is left out.
    pub(super) fn unsigned(&self, n: usize) -> Result<u32, String> {
        Ok(self.scalar(n)?.map_or(0, u32::from_le_bytes))
    }

    /// Returns field `n`, a u64. It is 0 if the field is left out.
    pub(super) fn long(&self, n: usize) -> Result<u64, String> {
        Ok(self.scalar(n)?.map_or(0, u64::from_le_bytes))
    }

    /// Returns field `n`, an f32. It is 0 if the field is left out.
    pub(super) fn float(&self, n: usize) -> Result<f32, String> {
        Ok(self.scalar(n)?.map_or(0.0, f32::from_le_bytes))
    }

    /// Returns field `n`, which is a table. `None` if the field is left out.
    pub(super) fn table(&self, n: usize) -> Result<Option<Table<'b>>, String> {
        self.field(n)
            .map(|at| Table::at(self.bytes, follow(self.bytes, at)?, self.left))
            .transpose()
    }

    /// Returns the elements of field `n`, a vector whose elements have `size` bytes each. `None` if
    /// the field is left out.
    fn elements(&self, n: usize, size: usize) -> Result<Option<Elements<'b>>, String> {
        let Some(at) = self.field(n) else {
            return Ok(None);
        };
        let from = follow(self.bytes, at)?;
        let count = u32::from_le_bytes(part(self.bytes, from)?) as usize;
        let begin = from.saturating_add(4);
        let end = count.checked_mul(size).and_then(|n| begin.checked_add(n));
        let elements = end.and_then(|end| self.bytes.get(begin..end));
        let elements = elements.ok_or_else(|| {
            format!(
                "cut off or damaged: {count} elements from byte {begin} on, of {}",
                self.bytes.len()
            )
        })?;
        Ok(Some(Elements {
            begin,
            bytes: elements,
        }))
    }

    /// Returns the bytes of field `n`, a vector of bytes, without copying them. `None` if the field
    /// is left out.
    pub(super) fn bytes(&self, n: usize) -> Result<Option<&'b [u8]>, String> {
        Ok(self.elements(n, 1)?.map(|e| e.bytes))
    }

    /// Returns the elements of field `n`, a vector that the caller copies. So their bytes count
    /// against the limit of all vectors. Empty if the field is left out.
    fn taken(&self, n: usize, size: usize) -> Result<Elements<'b>, String> {
        let elements = self.elements(n, size)?.unwrap_or_default();
        if let Some(left) = self.left {
            let rest = left
                .get()
                .checked_sub(elements.bytes.len())
                .ok_or_else(|| {
                    format!(
                        "damaged: its vectors have more than {TIMES} times its {} bytes",
                        self.bytes.len()
                    )
                })?;
            left.set(rest);
        }
        Ok(elements)
    }

    /// Returns field `n`, a text. It is empty if the field is left out.
    pub(super) fn text(&self, n: usize) -> Result<String, String> {
        Ok(String::from_utf8_lossy(self.taken(n, 1)?.bytes).into_owned())
    }

    fn numbers<const N: usize, T>(
        &self,
        n: usize,
        number: fn([u8; N]) -> T,
    ) -> Result<Vec<T>, String> {
        let found = self.taken(n, N)?.bytes;
        found
            .chunks_exact(N)
            .map(|b| Ok(number(part(b, 0)?)))
            .collect()
    }

    /// Returns field `n`, a vector of u16. It is empty if the field is left out.
    pub(super) fn shorts(&self, n: usize) -> Result<Vec<u16>, String> {
        self.numbers(n, u16::from_le_bytes)
    }

    /// Returns field `n`, a vector of i32. It is empty if the field is left out.
    pub(super) fn ints(&self, n: usize) -> Result<Vec<i32>, String> {
        self.numbers(n, i32::from_le_bytes)
    }

    /// Returns field `n`, a vector of i32, as i64. It is empty if the field is left out.
    pub(super) fn longs_of_ints(&self, n: usize) -> Result<Vec<i64>, String> {
        self.numbers(n, |b| i32::from_le_bytes(b).into())
    }

    /// Returns field `n`, a vector of i64. It is empty if the field is left out.
    pub(super) fn longs(&self, n: usize) -> Result<Vec<i64>, String> {
        self.numbers(n, i64::from_le_bytes)
    }

    /// Returns field `n`, a vector of f32. It is empty if the field is left out.
    pub(super) fn floats(&self, n: usize) -> Result<Vec<f32>, String> {
        self.numbers(n, f32::from_le_bytes)
    }

    /// Returns field `n`, a vector of tables. It is empty if the field is left out.
    pub(super) fn tables(&self, n: usize) -> Result<Vec<Table<'b>>, String> {
        let Elements { begin, bytes } = self.taken(n, 4)?;
        (0..bytes.len() / 4)
            .map(|i| Table::at(self.bytes, follow(self.bytes, begin + 4 * i)?, self.left))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a file whose root has a vector of `tables` offsets that all point to the same table.
    /// The shared table has a vector of `numbers` integers.
    fn shared(tables: u32, numbers: u32) -> Vec<u8> {
        let table = 28 + 4 * tables;
        // First come the root's offset and the identifier. Then comes a vtable that both tables
        // share: its size 6, the table size 8, and the field offset 4. The root table follows.
        let mut words = vec![
            16,
            u32::from_le_bytes(*b"TEST"),
            8 << 16 | 6,
            4,
            8,
            4,
            tables,
        ];
        words.extend((0..tables).map(|i| table - (28 + 4 * i)));
        words.extend([table - 8, 4, numbers]);
        words.resize(words.len() + numbers as usize, 7);
        words.into_iter().flat_map(u32::to_le_bytes).collect()
    }

    #[test]
    fn many_tables_with_one_vector_take_no_more_memory_than_the_file_can_ask_for() {
        let read = |tables, numbers| {
            let bytes = shared(tables, numbers);
            let left = most(&bytes);
            let found = Table::root(&bytes, b"TEST", &left)?.tables(0)?;
            assert_eq!(found.len(), tables as usize);
            found
                .iter()
                .map(|table| table.ints(0))
                .collect::<Result<Vec<_>, String>>()
                .map(|all| all.concat())
        };
        assert_eq!(read(3, 2), Ok(vec![7; 6]));
        let why = read(1000, 1000).unwrap_err();
        assert_eq!(
            why,
            "damaged: its vectors have more than 16 times its 8040 bytes"
        );
    }
}
