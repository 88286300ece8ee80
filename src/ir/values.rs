//! The numbers of constants, as they are stored.

use super::graph::{Graph, Role};
use super::half;
use super::network::Precision;
use super::plan::{Constant, Placing};
use super::scale;
use std::borrow::Cow;

/// The values of a constant, as stored.
#[derive(Clone, Debug)]
pub(crate) enum Values {
    /// Floats.
    F32(Cow<'static, [f32]>),
    /// Halves, as bits.
    F16(Cow<'static, [u16]>),
    /// Numbers that the scales of their rows belong to.
    I8(Cow<'static, [i8]>),
}

impl Default for Values {
    fn default() -> Self {
        Values::F32(Cow::Borrowed(&[]))
    }
}

impl Values {
    /// The array of `c` in its layout, as what it is stored as. `array` gives the numbers of the
    /// graph's arrays.
    pub(crate) fn pack<'a>(c: &Constant, array: &dyn Fn(usize) -> Cow<'a, [f32]>) -> Values {
        let plain = array(c.tensor);
        let (mut placed, size) = place(c, &plain);
        if let Some(weights) = c.scales.map(array) {
            let rows = weights.chunks_exact((weights.len() / size.0.max(1)).max(1));
            let both: Vec<f32> = placed
                .iter()
                .zip(rows)
                .flat_map(|(&b, row)| [b, scale::of_row(row)])
                .collect();
            return Values::F32(Cow::Owned(c.layout.pack(&both, (size.0, 2), c.padded, 0.0)));
        }
        if c.precision == Precision::I8 {
            let rows = placed
                .to_mut()
                .chunks_exact_mut(size.1.max(1))
                .zip(plain.chunks_exact(c.size.1.max(1)));
            for (placed, row) in rows {
                let scale = scale::of_row(row);
                placed
                    .iter_mut()
                    .for_each(|w| *w = scale::number(*w, scale).into());
            }
        }
        let packed = c.layout.pack(&placed, size, c.padded, 0.0);
        match c.precision {
            Precision::F32 => Values::F32(packed.into()),
            Precision::F16 => Values::F16(packed.into_iter().map(half::from_f32).collect()),
            Precision::I8 => Values::I8(packed.into_iter().map(|w| w as i8).collect()),
        }
    }

    /// The values of `c` from its bytes as stored, little-endian.
    pub(crate) fn read(c: &Constant, bytes: &[u8]) -> Values {
        match c.precision {
            Precision::F32 => {
                let floats = bytes
                    .chunks_exact(4)
                    .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
                Values::F32(floats.collect())
            }
            Precision::F16 => Values::F16(
                bytes
                    .chunks_exact(2)
                    .map(|b| u16::from_le_bytes([b[0], b[1]]))
                    .collect(),
            ),
            Precision::I8 => Values::I8(bytes.iter().map(|&b| b as i8).collect()),
        }
    }

    /// The array of `c`. Of bytes the numbers, without the scales of their rows.
    pub(crate) fn unpack(&self, c: &Constant) -> Vec<f32> {
        let size = placed_size(c);
        let stored: Cow<'_, [f32]> = match self {
            Values::F32(values) => Cow::Borrowed(values),
            Values::F16(halves) => halves.iter().map(|&h| half::to_f32(h)).collect(),
            Values::I8(numbers) => numbers.iter().map(|&n| n.into()).collect(),
        };
        let columns = if c.scales.is_some() { 2 } else { size.1 };
        let mut placed = c.layout.unpack(&stored, (size.0, columns), c.padded);
        if c.scales.is_some() {
            // Without the scales.
            placed = placed.chunks_exact(2).map(|pair| pair[0]).collect();
        }
        let Placing::Columns(map) = &c.placing else {
            return placed;
        };
        let columns: Vec<usize> = map.rows().collect();
        let mut plain = vec![0.0; c.size.0 * c.size.1];
        for (row, from) in plain
            .chunks_exact_mut(c.size.1)
            .zip(placed.chunks_exact(size.1))
        {
            row.iter_mut()
                .zip(&columns)
                .for_each(|(to, &column)| *to = from[column]);
        }
        plain
    }

    /// The bytes as stored, little-endian.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        match self {
            Values::F32(v) => v.iter().flat_map(|v| v.to_le_bytes()).collect(),
            Values::F16(v) => v.iter().flat_map(|v| v.to_le_bytes()).collect(),
            Values::I8(v) => v.iter().map(|&v| v as u8).collect(),
        }
    }
}

/// Rounds the weights among a graph's arrays to what they are stored as, all columns alike.
pub(crate) fn round(stored: Precision, graph: &Graph, tensors: &mut [Vec<f32>]) {
    let arrays = tensors.iter_mut().zip(graph.tensors.iter());
    for (weights, tensor) in arrays.filter(|(_, t)| t.role == Role::Weights) {
        match stored {
            Precision::F32 => {}
            Precision::F16 => weights
                .iter_mut()
                .for_each(|w| *w = half::to_f32(half::from_f32(*w))),
            Precision::I8 => {
                let alike = vec![1.0; tensor.cols];
                weights
                    .chunks_exact_mut(tensor.cols.max(1))
                    .for_each(|row| scale::round(row, &alike));
            }
        }
    }
}

/// The array that constant `i` of `all` holds, whose values `of` gives: numbers stored as bytes
/// with the scales of their rows, which stand beside the biases.
pub(crate) fn array(all: &[Constant], i: usize, of: &dyn Fn(usize) -> Values) -> Vec<f32> {
    let c = &all[i];
    let mut array = of(i).unpack(c);
    let scales = all
        .iter()
        .position(|s| c.precision == Precision::I8 && s.scales == Some(c.tensor));
    if let Some((s, Values::F32(both))) = scales.map(|at| (&all[at], of(at))) {
        let both = s.layout.unpack(&both, (c.size.0, 2), s.padded);
        let rows = array
            .chunks_exact_mut(c.size.1.max(1))
            .zip(both.chunks_exact(2));
        rows.for_each(|(row, pair)| row.iter_mut().for_each(|w| *w *= pair[1]));
    }
    array
}

/// Rows and columns of an array once its numbers stand where they belong, without padding behind
/// them.
fn placed_size(c: &Constant) -> (usize, usize) {
    match &c.placing {
        Placing::Plain => c.size,
        Placing::Columns(map) => (c.size.0, map.end()),
    }
}

/// The numbers of an array where they belong, and rows and columns.
fn place<'p>(c: &Constant, plain: &'p [f32]) -> (Cow<'p, [f32]>, (usize, usize)) {
    let size = placed_size(c);
    let Placing::Columns(map) = &c.placing else {
        return (Cow::Borrowed(plain), size);
    };
    let columns: Vec<usize> = map.rows().collect();
    let mut placed = vec![0.0; size.0 * size.1];
    for (row, from) in placed
        .chunks_exact_mut(size.1)
        .zip(plain.chunks_exact(c.size.1))
    {
        columns
            .iter()
            .zip(from)
            .for_each(|(&column, &v)| row[column] = v);
    }
    (Cow::Owned(placed), size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::graph::{Role, Shape};
    use crate::ir::layout::Layout;
    use crate::ir::view::{Image, RowMap};

    fn constant(
        placing: Placing,
        size: (usize, usize),
        padded: (usize, usize),
        layout: &str,
    ) -> Constant {
        Constant {
            name: "".into(),
            tensor: 0,
            scales: None,
            role: Role::Weights,
            placing,
            size,
            padded,
            layout: Layout::parse(layout).unwrap(),
            precision: Precision::F32,
            image: false,
        }
    }

    /// Each number stands in the row and the column that its placing says, zeros stand everywhere
    /// else, and all come back.
    #[test]
    fn numbers_stand_where_their_placing_says() {
        let shape = Shape { c: 3, h: 2, w: 2 };
        // Images with gaps, whose rows are in another order than the elements.
        let map = RowMap::image(
            Image {
                first: 1,
                pixel: 4,
                line: 9,
            },
            shape,
        );
        let to: Vec<usize> = map.rows().collect();
        let all = [
            (
                constant(Placing::Plain, (5, 12), (8, 16), "R_4_4_C"),
                (0..12).collect::<Vec<_>>(),
            ),
            (
                constant(Placing::Columns(map), (5, 12), (6, 20), "C_2_4_R"),
                to,
            ),
        ];
        for (mut c, places) in all {
            let plain: Vec<f32> = (1..=c.size.0 * c.size.1).map(|i| i as f32).collect();
            for precision in [Precision::F32, Precision::F16] {
                c.precision = precision;
                let packed = Values::pack(&c, &|_| Cow::Borrowed(&plain[..]));
                assert_eq!(packed.bytes().len(), c.bytes());
                assert_eq!(packed.unpack(&c), plain, "{:?}", c.placing);
                assert_eq!(Values::read(&c, &packed.bytes()).unpack(&c), plain);
                let number = |row: usize, col: usize| {
                    let at = c.layout.index(c.padded.0, c.padded.1, row, col);
                    match &packed {
                        Values::F32(v) => v[at],
                        Values::F16(v) => half::to_f32(v[at]),
                        Values::I8(_) => f32::NAN,
                    }
                };
                let mut expected = vec![vec![0.0; c.padded.1]; c.padded.0];
                for (i, &v) in plain.iter().enumerate() {
                    expected[i / c.size.1][places[i % c.size.1]] = v;
                }
                for (row, line) in expected.iter().enumerate() {
                    let found: Vec<f32> = (0..c.padded.1).map(|col| number(row, col)).collect();
                    assert_eq!(&found, line, "{:?}, row {row}", c.placing);
                }
            }
        }
    }
}
