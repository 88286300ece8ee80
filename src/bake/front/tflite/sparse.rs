//! The positions of the numbers that a sparse TensorFlow Lite tensor stores. The format follows
//! TACO: Kjolstad et al., The Tensor Algebra Compiler, 2017.

use super::flat::Table;

/// One level of a sparse tensor's storage. It stands for an axis of the tensor or of its blocks.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Level {
    /// The level stores all indices of an axis of this size.
    Dense(usize),
    /// The level stores only some indices of an axis. Entry i of the level above has the indices at
    /// `segments[i]..segments[i + 1]` of `indices`.
    Sparse {
        segments: Vec<usize>,
        indices: Vec<usize>,
    },
}

/// The description of which elements a sparse tensor stores.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sparsity {
    /// The axis for which each level stands. Numbers below the tensor's rank are axes of the
    /// tensor. Higher numbers are axes of a block.
    order: Vec<usize>,
    /// For each axis of a block, the axis of the tensor that it divides.
    blocks: Vec<usize>,
    levels: Vec<Level>,
}

impl Sparsity {
    /// Reads the sparsity description of a tensor with `rank` axes.
    pub(super) fn read(table: &Table<'_>, rank: usize) -> Result<Sparsity, String> {
        // Field numbers of the schema's table `SparsityParameters`: 0 traversal_order, 1 block_map,
        // 2 dim_metadata.
        let axes = |n: usize| -> Result<Vec<usize>, String> {
            let list = table.ints(n)?.into_iter().map(usize::try_from);
            list.collect::<Result<_, _>>().map_err(|_| damaged())
        };
        let (order, blocks) = (axes(0)?, axes(1)?);
        let levels = table.tables(2)?;
        let levels = levels.iter().map(level).collect::<Result<Vec<_>, _>>()?;
        let all = rank + blocks.len();
        let permuted = (0..all).all(|a| order.contains(&a));
        if order.len() != all || !permuted || levels.len() != all {
            return Err(damaged());
        }
        if blocks.iter().any(|&a| a >= rank) {
            return Err(damaged());
        }
        Ok(Sparsity {
            order,
            blocks,
            levels,
        })
    }

    /// Returns for each stored number its index in a dense tensor of the sizes `dims`.
    pub(super) fn places(&self, dims: &[usize]) -> Result<Vec<usize>, String> {
        // The size of a block along each axis of the tensor. It is 1 along axes without blocks.
        let mut block = vec![1; dims.len()];
        for (b, &axis) in self.blocks.iter().enumerate() {
            let at = self.order.iter().position(|&o| o == dims.len() + b);
            match at.map(|at| &self.levels[at]) {
                Some(Level::Dense(size)) => block[axis] = *size,
                _ => return Err("blocks that are sparse are not supported".into()),
            }
        }
        // An entry stands for one element of the present level: its coordinates so far, and its
        // index in the level.
        let mut entries = vec![(vec![0usize; self.order.len()], 0usize)];
        for (level, &axis) in self.levels.iter().zip(&self.order) {
            let mut next = Vec::new();
            for (coordinates, number) in entries {
                let found: Vec<(usize, usize)> = match level {
                    Level::Dense(size) => (0..*size).map(|i| (i, number * size + i)).collect(),
                    Level::Sparse { segments, indices } => {
                        let [first, last] = segments.get(number..number + 2).ok_or_else(damaged)?
                        else {
                            return Err(damaged());
                        };
                        let part = indices.get(*first..*last).ok_or_else(damaged)?;
                        part.iter().copied().zip(*first..).collect()
                    }
                };
                for (index, number) in found {
                    let mut coordinates = coordinates.clone();
                    coordinates[axis] = index;
                    next.push((coordinates, number));
                }
            }
            if next.len() > dims.iter().product() {
                return Err(damaged());
            }
            entries = next;
        }
        let place = |(coordinates, _): (Vec<usize>, usize)| {
            let mut at = 0;
            for (axis, &size) in dims.iter().enumerate() {
                let inner = (0..self.blocks.len()).filter(|&b| self.blocks[b] == axis);
                let inner: usize = inner.map(|b| coordinates[dims.len() + b]).sum();
                let index = coordinates[axis] * block[axis] + inner;
                if index >= size {
                    return Err(damaged());
                }
                at = at * size + index;
            }
            Ok(at)
        };
        entries.into_iter().map(place).collect()
    }
}

fn damaged() -> String {
    "damaged: the description of its sparsity does not fit its sizes".into()
}

/// Reads a level of a sparse tensor. Field numbers of the schema's table `DimensionMetadata`: 0
/// format, 1 dense_size, 2 and 3 array_segments, 4 and 5 array_indices. An array is a code for its
/// type, then a table.
fn level(table: &Table<'_>) -> Result<Level, String> {
    match table.byte(0)? {
        0 => usize::try_from(table.int(1, 0)?)
            .map(Level::Dense)
            .map_err(|_| damaged()),
        1 => Ok(Level::Sparse {
            segments: indices(table, 2)?,
            indices: indices(table, 4)?,
        }),
        other => Err(format!(
            "expected a dense or sparse axis, found format {other}"
        )),
    }
}

/// Reads an array of integers. `field` is the code of their width, which is 1 for 32 bits, 2 for 16
/// bits and 3 for 8 bits. The next field is a table with the integers.
fn indices(table: &Table<'_>, field: usize) -> Result<Vec<usize>, String> {
    let kind = table.byte(field)?;
    let Some(values) = table.table(field + 1)? else {
        return Err(damaged());
    };
    let wide = |list: Vec<i32>| -> Result<Vec<usize>, String> {
        let list = list.into_iter().map(usize::try_from);
        list.collect::<Result<_, _>>().map_err(|_| damaged())
    };
    match kind {
        1 => wide(values.ints(0)?),
        2 => Ok(values.shorts(0)?.into_iter().map(usize::from).collect()),
        3 => Ok(values
            .bytes(0)?
            .unwrap_or(&[])
            .iter()
            .map(|&b| b.into())
            .collect()),
        other => Err(format!(
            "expected indices of 8, 16 or 32 bits, found kind {other}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_stored_numbers() {
        // A 3 × 4 matrix that stores three elements: columns 1 and 3 of row 0, and column 0 of row
        // 2.
        let rows = Sparsity {
            order: vec![0, 1],
            blocks: Vec::new(),
            levels: vec![
                Level::Dense(3),
                Level::Sparse {
                    segments: vec![0, 2, 2, 3],
                    indices: vec![1, 3, 0],
                },
            ],
        };
        assert_eq!(rows.places(&[3, 4]), Ok(vec![1, 3, 8]));
        assert!(rows.places(&[3, 2]).is_err());
        // A 4 × 2 matrix in blocks of 2 × 1 that stores one block: rows 0 and 1 of column 1.
        let blocks = Sparsity {
            order: vec![0, 1, 2, 3],
            blocks: vec![0, 1],
            levels: vec![
                Level::Dense(2),
                Level::Sparse {
                    segments: vec![0, 1, 1],
                    indices: vec![1],
                },
                Level::Dense(2),
                Level::Dense(1),
            ],
        };
        assert_eq!(blocks.places(&[4, 2]), Ok(vec![1, 3]));
        let cut = Sparsity {
            levels: vec![
                Level::Dense(3),
                Level::Sparse {
                    segments: vec![0, 2],
                    indices: vec![1, 3],
                },
            ],
            ..rows
        };
        assert!(cut.places(&[3, 4]).is_err());
    }
}
