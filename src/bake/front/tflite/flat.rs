//! FlatBuffers: tables, vectors and texts of a file, every access checked against its bytes. Depth
//! is that of the schema, and a vector has no more elements than the file has bytes for: nothing
//! recurses, nothing runs without end. All vectors together have no more than several times the
//! file's bytes: many tables may share one, and would take memory for each.

use std::cell::Cell;

/// A table: fields by number, each of which may be left out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Table<'b> {
    bytes: &'b [u8],
    /// Where it begins.
    at: usize,
    /// Where each field stands behind that, two bytes each; 0 for one that is left out.
    fields: &'b [u8],
    /// Bytes that vectors of the file may have from here on.
    left: Option<&'b Cell<usize>>,
}

/// Times that the bytes of a file may be read as elements of vectors.
const TIMES: usize = 16;

/// Bytes that all vectors of a file of `bytes` may have.
pub(super) fn most(bytes: &[u8]) -> Cell<usize> {
    Cell::new(bytes.len().saturating_mul(TIMES))
}

/// `N` bytes at a place.
fn part<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], String> {
    let found = at
        .checked_add(N)
        .and_then(|end| bytes.get(at..end))
        .and_then(|b| b.try_into().ok());
    found.ok_or_else(|| {
        format!(
            "cut off or damaged: something should stand at byte {at} of {}",
            bytes.len()
        )
    })
}

/// Where the offset at a place leads.
fn follow(bytes: &[u8], at: usize) -> Result<usize, String> {
    let offset = u32::from_le_bytes(part(bytes, at)?) as usize;
    at.checked_add(offset)
        .ok_or_else(|| "damaged: an offset leads nowhere".to_string())
}

impl<'b> Table<'b> {
    /// A table without fields.
    pub(super) const EMPTY: Table<'static> = Table {
        bytes: &[],
        at: 0,
        fields: &[],
        left: None,
    };

    /// The root of a file that begins with an offset and an identifier.
    ///
    /// # Errors
    /// Another identifier, or offsets out of the file.
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
        let table =
            usize::try_from(at as i64 - back).map_err(|_| "damaged: an offset leads nowhere")?;
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

    /// Where a field stands, if it is there.
    fn field(&self, n: usize) -> Option<usize> {
        match part::<2>(self.fields, 2 * n).map(u16::from_le_bytes) {
            Ok(offset) if offset > 0 => self.at.checked_add(offset.into()),
            _ => None,
        }
    }

    fn scalar<const N: usize>(&self, n: usize) -> Result<Option<[u8; N]>, String> {
        self.field(n).map(|at| part(self.bytes, at)).transpose()
    }

    /// A byte; 0 where it is left out.
    pub(super) fn byte(&self, n: usize) -> Result<u8, String> {
        Ok(self.scalar::<1>(n)?.map_or(0, |b| b[0]))
    }

    /// A truth value; false where it is left out.
    pub(super) fn flag(&self, n: usize) -> Result<bool, String> {
        Ok(self.byte(n)? != 0)
    }

    /// An i32.
    pub(super) fn int(&self, n: usize, default: i32) -> Result<i32, String> {
        Ok(self.scalar(n)?.map_or(default, i32::from_le_bytes))
    }

    /// A u32; 0 where it is left out.
    pub(super) fn unsigned(&self, n: usize) -> Result<u32, String> {
        Ok(self.scalar(n)?.map_or(0, u32::from_le_bytes))
    }

    /// A u64; 0 where it is left out.
    pub(super) fn long(&self, n: usize) -> Result<u64, String> {
        Ok(self.scalar(n)?.map_or(0, u64::from_le_bytes))
    }

    /// An f32; 0 where it is left out.
    pub(super) fn float(&self, n: usize) -> Result<f32, String> {
        Ok(self.scalar(n)?.map_or(0.0, f32::from_le_bytes))
    }

    /// A table.
    pub(super) fn table(&self, n: usize) -> Result<Option<Table<'b>>, String> {
        self.field(n)
            .map(|at| Table::at(self.bytes, follow(self.bytes, at)?, self.left))
            .transpose()
    }

    /// Where the elements of a vector begin, and their bytes, `size` each.
    fn elements(&self, n: usize, size: usize) -> Result<Option<(usize, &'b [u8])>, String> {
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
        Ok(Some((begin, elements)))
    }

    /// A vector of bytes.
    pub(super) fn bytes(&self, n: usize) -> Result<Option<&'b [u8]>, String> {
        Ok(self.elements(n, 1)?.map(|e| e.1))
    }

    /// Elements that take memory of their own.
    fn taken(&self, n: usize, size: usize) -> Result<(usize, &'b [u8]), String> {
        let (begin, elements) = self.elements(n, size)?.unwrap_or_default();
        if let Some(left) = self.left {
            let rest = left.get().checked_sub(elements.len()).ok_or_else(|| {
                format!(
                    "damaged: its vectors have more than {TIMES} times its {} bytes",
                    self.bytes.len()
                )
            })?;
            left.set(rest);
        }
        Ok((begin, elements))
    }

    /// A text; none where it is left out.
    pub(super) fn text(&self, n: usize) -> Result<String, String> {
        Ok(String::from_utf8_lossy(self.taken(n, 1)?.1).into_owned())
    }

    fn numbers<const N: usize, T>(
        &self,
        n: usize,
        number: fn([u8; N]) -> T,
    ) -> Result<Vec<T>, String> {
        let found = self.taken(n, N)?.1;
        found
            .chunks_exact(N)
            .map(|b| Ok(number(part(b, 0)?)))
            .collect()
    }

    /// A vector of i32, empty where it is left out.
    pub(super) fn ints(&self, n: usize) -> Result<Vec<i32>, String> {
        self.numbers(n, i32::from_le_bytes)
    }

    /// A vector of i64, empty where it is left out.
    pub(super) fn longs(&self, n: usize) -> Result<Vec<i64>, String> {
        self.numbers(n, i64::from_le_bytes)
    }

    /// A vector of f32, empty where it is left out.
    pub(super) fn floats(&self, n: usize) -> Result<Vec<f32>, String> {
        self.numbers(n, f32::from_le_bytes)
    }

    /// A vector of tables, empty where it is left out.
    pub(super) fn tables(&self, n: usize) -> Result<Vec<Table<'b>>, String> {
        let (begin, found) = self.taken(n, 4)?;
        (0..found.len() / 4)
            .map(|i| Table::at(self.bytes, follow(self.bytes, begin + 4 * i)?, self.left))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file whose root has a vector of `tables` times one table, which has a vector of `numbers`.
    fn shared(tables: u32, numbers: u32) -> Vec<u8> {
        let table = 28 + 4 * tables;
        // The root's place; the identifier; sizes and the one field of both tables, which are alike
        // (6, 8 and 4); the root.
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
