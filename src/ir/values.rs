//! Packs the network's constant arrays, such as weights, in the layout and number format that a
//! plan's kernels read. Also unpacks them.

use super::graph::{Graph, Role};
use super::half;
use super::network::Precision;
use super::plan::{Constant, Placing, Rescaling};
use super::scale;
use std::borrow::Cow;

/// The numbers of one constant of a plan as they are stored: in the constant's layout, padded, and
/// in its number format.
#[derive(Clone, Debug)]
pub(crate) enum Values {
    F32(Cow<'static, [f32]>),
    /// Half-precision numbers, each as its bits.
    F16(Cow<'static, [u16]>),
    /// Whole numbers from −127 to 127. A weight is its whole number times the scale of its row of
    /// the matrix. The constant with the layer's biases also holds these scales.
    I8(Cow<'static, [i8]>),
}

impl Default for Values {
    fn default() -> Self {
        Values::F32(Cow::Borrowed(&[]))
    }
}

impl Values {
    /// Packs the array of constant `c` in its layout and precision. `array` returns the numbers of
    /// an array of the graph. Biases get further columns for the scales of byte weights, and for
    /// the factors and summands of a scaling behind the layer.
    pub(crate) fn pack<'a>(c: &Constant, array: &dyn Fn(usize) -> Cow<'a, [f32]>) -> Values {
        let plain = array(c.tensor);
        let (rows, columns) = placed_size(c);
        let mut placed = place(c, &plain);
        if c.has_columns() {
            let all = biases_with_numbers_beside(c, &placed, array);
            let packed = c
                .layout
                .pack(&all, (rows, c.columns_of_biases()), c.padded, 0.0);
            return Values::F32(Cow::Owned(packed));
        }
        if c.precision == Precision::I8 {
            let (_, plain_columns) = c.size;
            let placed = placed.to_mut().chunks_exact_mut(columns.max(1));
            for (placed, row) in placed.zip(plain.chunks_exact(plain_columns.max(1))) {
                let scale = scale::of_row(row);
                placed
                    .iter_mut()
                    .for_each(|w| *w = scale::number(*w, scale).into());
            }
        }
        let packed = c.layout.pack(&placed, (rows, columns), c.padded, 0.0);
        match c.precision {
            Precision::F32 => Values::F32(packed.into()),
            Precision::F16 => Values::F16(packed.into_iter().map(half::from_f32).collect()),
            Precision::I8 => Values::I8(packed.into_iter().map(|w| w as i8).collect()),
        }
    }

    /// Reads the stored numbers of constant `c` from little-endian bytes.
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

    /// Returns the array of constant `c` in row-major order without padding, the inverse of
    /// [`Values::pack`]. Weights that are stored as bytes stay whole numbers, because their scales
    /// are in another constant.
    pub(crate) fn unpack(&self, c: &Constant) -> Vec<f32> {
        let (rows, placed_columns) = placed_size(c);
        let stored: Cow<'_, [f32]> = match self {
            Values::F32(values) => Cow::Borrowed(values),
            Values::F16(halves) => halves.iter().map(|&h| half::to_f32(h)).collect(),
            Values::I8(numbers) => numbers.iter().map(|&n| n.into()).collect(),
        };
        if c.has_columns() {
            return column(c, &stored, 0);
        }
        let placed = c.layout.unpack(&stored, (rows, placed_columns), c.padded);
        let Placing::Columns(map) = &c.placing else {
            return placed;
        };
        let places: Vec<usize> = map.rows().collect();
        let (_, columns) = c.size;
        let mut plain = vec![0.0; rows * columns];
        let rows = plain.chunks_exact_mut(columns);
        for (row, from) in rows.zip(placed.chunks_exact(placed_columns)) {
            row.iter_mut()
                .zip(&places)
                .for_each(|(to, &place)| *to = from[place]);
        }
        plain
    }

    /// Returns the stored bytes, little-endian.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        match self {
            Values::F32(v) => v.iter().flat_map(|v| v.to_le_bytes()).collect(),
            Values::F16(v) => v.iter().flat_map(|v| v.to_le_bytes()).collect(),
            Values::I8(v) => v.iter().map(|&v| v as u8).collect(),
        }
    }
}

/// Rounds the weights of a graph in place to the nearest numbers that the precision `stored` can
/// represent. The rounded weights are still `f32`. Biases and other arrays are not rounded.
pub(crate) fn round(stored: Precision, graph: &Graph, tensors: &mut [Vec<f32>]) {
    let arrays = tensors.iter_mut().zip(graph.tensors.iter());
    for (weights, tensor) in arrays.filter(|(_, t)| t.role == Role::Weights) {
        match stored {
            Precision::F32 => {}
            Precision::F16 => weights
                .iter_mut()
                .for_each(|w| *w = half::to_f32(half::from_f32(*w))),
            Precision::I8 => {
                let sizes = vec![1.0; tensor.cols];
                weights
                    .chunks_exact_mut(tensor.cols.max(1))
                    .for_each(|row| scale::round(row, &sizes));
            }
        }
    }
}

/// Returns the biases of constant `c` row by row, each with the numbers beside it.
fn biases_with_numbers_beside<'a>(
    c: &Constant,
    biases: &[f32],
    array: &dyn Fn(usize) -> Cow<'a, [f32]>,
) -> Vec<f32> {
    let rows = biases.len().max(1);
    let scales = c.scales.map(|weights| {
        let weights = array(weights);
        let each = weights.chunks_exact((weights.len() / rows).max(1));
        each.map(scale::of_row).collect::<Vec<_>>()
    });
    let spread = |tensor: usize| {
        let numbers = array(tensor);
        match *numbers {
            [all] => vec![all; rows],
            _ => numbers.into_owned(),
        }
    };
    let factors = c.rescale.map(|r| spread(r.factors));
    let summands = c.rescale.map(|r| spread(r.summands));
    let beside: Vec<Vec<f32>> = [scales, factors, summands].into_iter().flatten().collect();
    let row = |(row, &bias): (usize, &f32)| {
        let beside = beside.iter().map(move |column| column[row]);
        std::iter::once(bias).chain(beside)
    };
    biases.iter().enumerate().flat_map(row).collect()
}

/// Returns a column of a constant with biases and other numbers.
fn column(c: &Constant, stored: &[f32], at: usize) -> Vec<f32> {
    let (rows, columns) = (c.size.0, c.columns_of_biases());
    let all = c.layout.unpack(stored, (rows, columns), c.padded);
    all.chunks_exact(columns).map(|row| row[at]).collect()
}

/// Returns the index of the constant that has array number `tensor` of the graph. If the array is
/// beside biases, also returns its column.
fn place_of(all: &[Constant], tensor: usize) -> Option<(usize, Option<usize>)> {
    if let Some(i) = all.iter().position(|c| c.tensor == tensor) {
        return Some((i, None));
    }
    let beside = |c: &Constant| {
        let Rescaling { factors, summands } = c.rescale?;
        let from_end = [summands, factors].iter().position(|&t| t == tensor)?;
        Some(c.columns_of_biases() - 1 - from_end)
    };
    let mut places = all.iter().enumerate();
    places.find_map(|(i, c)| Some((i, Some(beside(c)?))))
}

/// Returns true if a constant of `all` has array number `tensor` of the graph.
pub(crate) fn has_array(all: &[Constant], tensor: usize) -> bool {
    place_of(all, tensor).is_some()
}

/// Returns array number `tensor` of the graph, without padding. The array is empty if no constant
/// of `all` has it. `of` returns the stored numbers of a constant.
pub(crate) fn array(
    graph: &Graph,
    tensor: usize,
    all: &[Constant],
    of: &dyn Fn(usize) -> Values,
) -> Vec<f32> {
    match place_of(all, tensor) {
        None => Vec::new(),
        Some((i, None)) => array_of(all, i, of),
        Some((i, Some(at))) => {
            let Values::F32(stored) = of(i) else {
                return Vec::new();
            };
            let mut numbers = column(&all[i], &stored, at);
            // A single number for all rows was repeated.
            numbers.truncate(graph.tensors[tensor].rows * graph.tensors[tensor].cols);
            numbers
        }
    }
}

/// Returns all arrays of the graph. Those that no constant of `all` has are empty.
pub(crate) fn arrays(
    graph: &Graph,
    all: &[Constant],
    of: &dyn Fn(usize) -> Values,
) -> Vec<Vec<f32>> {
    let tensors = 0..graph.tensors.len();
    tensors.map(|t| array(graph, t, all, of)).collect()
}

/// Returns the array of constant `i` of `all`, without padding. `of` returns the stored numbers of
/// a constant. Byte weights are multiplied by the scales of their rows, which are stored beside the
/// biases.
fn array_of(all: &[Constant], i: usize, of: &dyn Fn(usize) -> Values) -> Vec<f32> {
    let c = &all[i];
    let mut array = of(i).unpack(c);
    let scales = all
        .iter()
        .position(|s| c.precision == Precision::I8 && s.scales == Some(c.tensor));
    if let Some((s, Values::F32(stored))) = scales.map(|at| (&all[at], of(at))) {
        let (_, columns) = c.size;
        let rows = array.chunks_exact_mut(columns.max(1));
        let scaled = rows.zip(column(s, &stored, 1));
        scaled.for_each(|(row, scale)| row.iter_mut().for_each(|w| *w *= scale));
    }
    array
}

/// Returns the rows and columns, without padding, that the array of constant `c` has after
/// [`place`] has moved its columns.
fn placed_size(c: &Constant) -> (usize, usize) {
    let (rows, columns) = c.size;
    match &c.placing {
        Placing::Plain => (rows, columns),
        Placing::Columns(map) => (rows, map.end()),
    }
}

/// Returns the constant's array with its columns moved to where the constant's [`Placing`] puts
/// them. The columns between them are zero.
fn place<'p>(c: &Constant, plain: &'p [f32]) -> Cow<'p, [f32]> {
    let Placing::Columns(map) = &c.placing else {
        return Cow::Borrowed(plain);
    };
    let places: Vec<usize> = map.rows().collect();
    let (rows, placed_columns) = placed_size(c);
    let (_, columns) = c.size;
    let mut placed = vec![0.0; rows * placed_columns];
    let rows = placed.chunks_exact_mut(placed_columns);
    for (row, from) in rows.zip(plain.chunks_exact(columns)) {
        places
            .iter()
            .zip(from)
            .for_each(|(&place, &v)| row[place] = v);
    }
    Cow::Owned(placed)
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
            rescale: None,
            role: Role::Weights,
            placing,
            size,
            padded,
            layout: Layout::parse(layout).unwrap(),
            precision: Precision::F32,
            image: false,
        }
    }

    /// Packing puts each number into the row and column that the constant's [`Placing`] gives, and
    /// zeros everywhere else. Unpacking returns the original array.
    #[test]
    fn numbers_stand_where_their_placing_says() {
        let shape = Shape { c: 3, h: 2, w: 2 };
        // The map of an image with rows of padding between pixels and lines. Its elements are in
        // the order c, y, x, but its rows are in the order y, x, c.
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
            let ((rows, columns), (padded_rows, padded_columns)) = (c.size, c.padded);
            let plain: Vec<f32> = (1..=rows * columns).map(|i| i as f32).collect();
            for precision in [Precision::F32, Precision::F16] {
                c.precision = precision;
                let packed = Values::pack(&c, &|_| Cow::Borrowed(&plain[..]));
                assert_eq!(packed.bytes().len(), c.bytes());
                assert_eq!(packed.unpack(&c), plain, "{:?}", c.placing);
                assert_eq!(Values::read(&c, &packed.bytes()).unpack(&c), plain);
                let number = |row: usize, col: usize| {
                    let at = c.layout.index(padded_rows, padded_columns, row, col);
                    match &packed {
                        Values::F32(v) => v[at],
                        Values::F16(v) => half::to_f32(v[at]),
                        Values::I8(_) => f32::NAN,
                    }
                };
                let mut expected = vec![vec![0.0; padded_columns]; padded_rows];
                for (i, &v) in plain.iter().enumerate() {
                    expected[i / columns][places[i % columns]] = v;
                }
                for (row, line) in expected.iter().enumerate() {
                    let found: Vec<f32> = (0..padded_columns).map(|col| number(row, col)).collect();
                    assert_eq!(&found, line, "{:?}, row {row}", c.placing);
                }
            }
        }
    }
}
