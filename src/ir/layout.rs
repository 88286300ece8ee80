//! The grammar of layouts. A layout maps element (row, column) of a matrix to an index in memory.
//!
//! The source is the thesis, §8.2, with misprints corrected. A layout is
//!
//! ```text
//! Y0 X0 Base0  Y1 X1 Base1  …  1 1 A
//! ```
//!
//! where Y0×X0 is the size of the matrix and Yk×Xk the size of the chunks of level k. `Base` (R or
//! C) is the order in which the next smaller chunks stand inside a chunk. The first pair (the
//! matrix) and the last pair (1×1) are redundant and are not written:
//!
//! | written       | meaning                                                                      |
//! |---------------|------------------------------------------------------------------------------|
//! | `R`, `C`      | row major, column major                                                      |
//! | `R_2_4_R`     | chunks of 2 rows × 4 columns in row-major order, row major inside            |
//! | `C_4_2_C`     | chunks of 4 rows × 2 columns in column-major order, column major inside      |
//! | `R_16_1_C`    | panels of 16 rows, each of a panel's columns contiguous (BLIS-style packing) |
//! | `R_8_8_R_4_4_R_2_2_R` | Z-order of a 16×16 matrix                                            |

use std::borrow::Cow;
use std::fmt;

/// The order in which smaller chunks, or elements, stand inside a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Row major: neighbours in a row are neighbours in memory.
    R,
    /// Column major: neighbours in a column are neighbours in memory.
    C,
}

/// The size of the chunks of one level of a layout, and the order inside them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    /// The number of rows of a chunk, in elements (Y in the grammar).
    pub(crate) rows: usize,
    /// The number of columns of a chunk, in elements (X in the grammar).
    pub(crate) cols: usize,
    /// The order in which the next smaller chunks stand inside a chunk.
    pub(crate) order: Order,
}

/// A layout: the order of a matrix's elements in memory.
///
/// Two layouts are equal if they are written the same. [`Layout::same_placement`] instead compares
/// where elements stand.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Layout {
    /// The order in which the largest chunks stand in the matrix (Base0 in the grammar above).
    pub(crate) outer: Order,
    /// The levels of chunks, from the largest to the smallest. The rows and columns of each level
    /// divide those of the level before.
    pub(crate) chunks: Cow<'static, [Chunk]>,
}

/// The two summands of every index in a matrix. Element (r, c) has the index `rows[r] + cols[c]`.
///
/// Every level of the grammar places chunk (i, j) at i·a + j·b, where i depends only on r and j
/// only on c. An index is therefore the sum of a row part and a column part in every layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Offsets {
    pub(crate) rows: Vec<u32>,
    pub(crate) cols: Vec<u32>,
}

impl Layout {
    pub(crate) const R: Layout = Layout {
        outer: Order::R,
        chunks: Cow::Borrowed(&[]),
    };
    pub(crate) const C: Layout = Layout {
        outer: Order::C,
        chunks: Cow::Borrowed(&[]),
    };

    /// Parses the text of a layout. The error message names the part that was expected.
    pub(crate) fn parse(text: &str) -> Result<Layout, String> {
        let fail = |what: String| format!("layout \"{text}\": {what}");
        let parts: Vec<&str> = text.split('_').collect();
        if parts.len() % 3 != 1 {
            return Err(fail(
                "expected ORDER or ORDER_ROWS_COLS_ORDER…, for example R or C_4_2_C".to_string(),
            ));
        }
        let order = |part: &str| match part {
            "R" => Ok(Order::R),
            "C" => Ok(Order::C),
            _ => Err(fail(format!("expected the order R or C, found \"{part}\""))),
        };
        let size = |part: &str| match part.parse::<u32>() {
            Ok(n) if n > 0 && !part.starts_with('+') => Ok(n as usize),
            _ => Err(fail(format!(
                "expected a chunk size above 0, found \"{part}\""
            ))),
        };
        let outer = order(parts[0])?;
        let mut chunks: Vec<Chunk> = Vec::with_capacity(parts.len() / 3);
        for level in parts[1..].chunks_exact(3) {
            let chunk = Chunk {
                rows: size(level[0])?,
                cols: size(level[1])?,
                order: order(level[2])?,
            };
            if let Some(above) = chunks.last() {
                if above.rows % chunk.rows != 0 || above.cols % chunk.cols != 0 {
                    return Err(fail(format!(
                        "chunks of {}×{} do not divide the chunks of {}×{} around them",
                        chunk.rows, chunk.cols, above.rows, above.cols
                    )));
                }
            }
            chunks.push(chunk);
        }
        Ok(Layout {
            outer,
            chunks: Cow::Owned(chunks),
        })
    }

    /// Returns the rows and columns of the largest chunk. The rows and columns of a matrix in this
    /// layout must be multiples of them.
    pub(crate) fn granularity(&self) -> (usize, usize) {
        self.chunks.first().map_or((1, 1), |c| (c.rows, c.cols))
    }

    /// Checks that a `rows` × `cols` matrix can be stored in this layout. The largest chunk must
    /// divide the matrix, and the number of elements must fit 32 bits. The error message names the
    /// sizes.
    pub(crate) fn fits(&self, rows: usize, cols: usize) -> Result<(), String> {
        let (y, x) = self.granularity();
        if rows % y != 0 || cols % x != 0 {
            return Err(format!(
                "layout {self}: chunks of {y} rows × {x} columns do not divide a matrix of {rows} \
                 × {cols}"
            ));
        }
        if rows.checked_mul(cols).is_none_or(|n| n > u32::MAX as usize) {
            return Err(format!(
                "layout {self}: a matrix of {rows} × {cols} has 2^32 elements or more"
            ));
        }
        Ok(())
    }

    /// Returns the index in memory of element (`row`, `col`) of a `rows` × `cols` matrix, which
    /// must pass [`Layout::fits`]. This is `MIndex` of the thesis, §8.2, with `MIndex(1, 1) = 0`.
    pub(crate) fn index(&self, rows: usize, cols: usize, row: usize, col: usize) -> usize {
        let (mut index, mut order) = (0, self.outer);
        let (mut y, mut x, mut r, mut c) = (rows, cols, row, col);
        let element = Chunk {
            rows: 1,
            cols: 1,
            order: Order::R,
        };
        for chunk in self.chunks.iter().chain(std::iter::once(&element)) {
            let (i, j) = (r / chunk.rows, c / chunk.cols);
            let place = match order {
                Order::R => i * (x / chunk.cols) + j,
                Order::C => j * (y / chunk.rows) + i,
            };
            index += place * chunk.rows * chunk.cols;
            (r, c) = (r % chunk.rows, c % chunk.cols);
            (y, x, order) = (chunk.rows, chunk.cols, chunk.order);
        }
        index
    }

    /// Returns the row and column parts of the indices of a `rows` × `cols` matrix, which must pass
    /// [`Layout::fits`].
    pub(crate) fn offsets(&self, rows: usize, cols: usize) -> Offsets {
        Offsets {
            rows: (0..rows)
                .map(|r| self.index(rows, cols, r, 0) as u32)
                .collect(),
            cols: (0..cols)
                .map(|c| self.index(rows, cols, 0, c) as u32)
                .collect(),
        }
    }

    /// Returns two lists of nested loops, outermost first. The first list gives the row parts of
    /// indices, the second the column parts. A loop is its number of turns, and the summand that
    /// each turn adds to the index. Loops are merged where possible, so layouts that place all
    /// elements alike have equal loops. The matrix must pass [`Layout::fits`].
    fn loops(&self, rows: usize, cols: usize) -> [Vec<(usize, usize)>; 2] {
        let mut loops = [Vec::new(), Vec::new()];
        let (mut y, mut x, mut order) = (rows, cols, self.outer);
        let element = Chunk {
            rows: 1,
            cols: 1,
            order: Order::R,
        };
        for chunk in self.chunks.iter().chain(std::iter::once(&element)) {
            let (down, along, size) = (y / chunk.rows, x / chunk.cols, chunk.rows * chunk.cols);
            let (row_step, col_step) = match order {
                Order::R => (along * size, size),
                Order::C => (size, down * size),
            };
            let [rows, cols] = &mut loops;
            add_loop(rows, down, row_step);
            add_loop(cols, along, col_step);
            (y, x, order) = (chunk.rows, chunk.cols, chunk.order);
        }
        loops
    }

    /// Returns the distance in memory, in elements, between an element and the element below it.
    /// `None` if the distance is not the same for all rows of a `rows` × `cols` matrix, or if the
    /// matrix has only one row.
    pub(crate) fn row_step(&self, rows: usize, cols: usize) -> Option<u32> {
        match self.loops(rows, cols)[0][..] {
            [(_, step)] => Some(step as u32),
            _ => None,
        }
    }

    /// Returns true if every element of a `rows` × `cols` matrix has the same index in both
    /// layouts.
    pub(crate) fn same_placement(&self, other: &Layout, rows: usize, cols: usize) -> bool {
        self == other || self.loops(rows, cols) == other.loops(rows, cols)
    }

    /// Returns the layout `R_P_1_C`: panels of P rows, where each column of a panel is contiguous.
    pub(crate) fn panels(rows: usize) -> Layout {
        Layout {
            outer: Order::R,
            chunks: Cow::Owned(vec![Chunk {
                rows,
                cols: 1,
                order: Order::C,
            }]),
        }
    }

    /// Returns the number of rows P of a panel, if the layout places elements as `R_P_1_C` does and
    /// P is a multiple of 4. Such panels have contiguous columns.
    pub(crate) fn panel_rows(&self) -> Option<usize> {
        let (p, columns) = self.granularity();
        let panels = self.same_placement(&Layout::panels(p), 2 * p, 3 * columns);
        (p % 4 == 0 && panels).then_some(p)
    }

    /// Returns a number of columns. For each multiple `n` of this number, the first `n` columns of
    /// a matrix are the first `n · rows` elements in memory. `None` if the largest chunks stand row
    /// by row.
    pub(crate) fn column_prefix(&self) -> Option<usize> {
        let (_, columns) = self.granularity();
        (self.outer == Order::C).then_some(columns)
    }

    /// Copies a row-major `rows` × `cols` matrix into this layout. The padded matrix must be at
    /// least as large, and must pass [`Layout::fits`]. Its additional elements are set to `pad`.
    pub(crate) fn pack<T: Copy>(
        &self,
        matrix: &[T],
        (rows, cols): (usize, usize),
        (padded_rows, padded_cols): (usize, usize),
        pad: T,
    ) -> Vec<T> {
        assert!(
            matrix.len() == rows * cols && rows <= padded_rows && cols <= padded_cols,
            "not of this size"
        );
        let at = self.offsets(padded_rows, padded_cols);
        let mut packed = vec![pad; padded_rows * padded_cols];
        for (line, &r) in matrix.chunks_exact(cols).zip(&at.rows) {
            for (&value, &c) in line.iter().zip(&at.cols) {
                packed[(r + c) as usize] = value;
            }
        }
        packed
    }

    /// Copies a matrix from this layout back into row-major order, without padding. It is the
    /// inverse of [`Layout::pack`].
    pub(crate) fn unpack<T: Copy>(
        &self,
        packed: &[T],
        (rows, cols): (usize, usize),
        (padded_rows, padded_cols): (usize, usize),
    ) -> Vec<T> {
        assert!(
            packed.len() == padded_rows * padded_cols && rows <= padded_rows && cols <= padded_cols,
            "not of this size"
        );
        let at = self.offsets(padded_rows, padded_cols);
        let mut matrix = Vec::with_capacity(rows * cols);
        for &r in &at.rows[..rows] {
            matrix.extend(at.cols[..cols].iter().map(|&c| packed[(r + c) as usize]));
        }
        matrix
    }
}

/// Adds an innermost loop to the nested loops, unless it has only one turn. If a turn of the loop
/// around it steps over exactly all its turns, both loops are merged.
fn add_loop(loops: &mut Vec<(usize, usize)>, turns: usize, step: usize) {
    match loops.last_mut() {
        _ if turns == 1 => {}
        Some((outer, before)) if *before == turns * step => {
            (*outer, *before) = (*outer * turns, step);
        }
        _ => loops.push((turns, step)),
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Order::R => "R",
            Order::C => "C",
        })
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.outer)?;
        self.chunks
            .iter()
            .try_for_each(|c| write!(f, "_{}_{}_{}", c.rows, c.cols, c.order))
    }
}

impl fmt::Debug for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn layout(text: &str) -> Layout {
        Layout::parse(text).unwrap()
    }

    const LAYOUTS: [&str; 13] = [
        "R",
        "C",
        "R_2_4_R",
        "C_4_2_C",
        "R_4_4_R",
        "C_4_4_C",
        "R_16_1_C",
        "C_1_4_R",
        "R_4_1_C",
        "R_2_2_C",
        "C_8_4_R_2_4_C_1_2_R",
        "R_6_4_C_3_2_R",
        "R_8_8_R_4_4_R_2_2_R",
    ];

    #[test]
    fn every_size_to_33_is_a_permutation_that_packs_and_unpacks() {
        for text in LAYOUTS {
            let l = layout(text);
            assert_eq!(l.to_string(), text);
            let (y, x) = l.granularity();
            for rows in 1..=33usize {
                for cols in 1..=33usize {
                    let (h, w) = (rows.next_multiple_of(y), cols.next_multiple_of(x));
                    l.fits(h, w).unwrap();
                    let at = l.offsets(h, w);
                    let mut seen = vec![false; h * w];
                    for r in 0..h {
                        for c in 0..w {
                            let i = l.index(h, w, r, c);
                            assert_eq!(
                                i,
                                (at.rows[r] + at.cols[c]) as usize,
                                "{text} {h}×{w} ({r}, {c})"
                            );
                            assert!(
                                !std::mem::replace(&mut seen[i], true),
                                "{text} {h}×{w}: {i} twice"
                            );
                        }
                    }
                    let matrix: Vec<u32> = (1..=(rows * cols) as u32).collect();
                    let packed = l.pack(&matrix, (rows, cols), (h, w), 0);
                    assert_eq!(
                        l.unpack(&packed, (rows, cols), (h, w)),
                        matrix,
                        "{text} {rows}×{cols}"
                    );
                    assert_eq!(
                        packed.iter().filter(|&&v| v != 0).count(),
                        rows * cols,
                        "{text}: padding"
                    );
                }
            }
        }
    }

    /// `same_placement` compares loops, and agrees with a comparison of all indices. `row_step` is
    /// the distance of neighbouring rows if all these distances are equal, and `None` otherwise.
    #[test]
    fn placements_are_compared_by_loops() {
        let mut counts = [0, 0];
        for (a, b) in LAYOUTS
            .iter()
            .flat_map(|a| LAYOUTS.map(|b| (layout(a), layout(b))))
        {
            for (rows, cols) in
                (1..=48).flat_map(|rows| [1, 2, 4, 5, 8, 16].map(|cols| (rows, cols)))
            {
                if a.fits(rows, cols).and(b.fits(rows, cols)).is_err() {
                    continue;
                }
                let same = a.offsets(rows, cols) == b.offsets(rows, cols);
                assert_eq!(
                    a.same_placement(&b, rows, cols),
                    same,
                    "{a} {b} {rows}×{cols}"
                );
                counts[usize::from(same)] += 1;
                let down = a.offsets(rows, cols).rows;
                let step = down.get(1).map(|next| next - down[0]);
                let alike = down.windows(2).all(|w| w[1].checked_sub(w[0]) == step);
                assert_eq!(
                    a.row_step(rows, cols),
                    step.filter(|_| alike),
                    "{a} {rows}×{cols}"
                );
            }
        }
        assert!(counts.iter().all(|&n| n > 300), "{counts:?}");
    }

    /// Layouts give the addresses that the kernels of the thesis (§12.6 and §12.7) compute. These
    /// kernels load `a` and `b` as float4 and store `c` as float2.
    #[test]
    fn morton_kernels_address_these_layouts() {
        let (h, w, l) = (16usize, 12usize, 20usize);
        // Morton 4-2: a R_2_4_R, b and c C_4_2_C.
        let (a, b, c) = (layout("R_2_4_R"), layout("C_4_2_C"), layout("C_4_2_C"));
        for row in 0..h / 2 {
            for col in 0..w / 2 {
                for k in 0..l / 4 {
                    for half in 0..2 {
                        for lane in 0..4 {
                            let ai = (row * l / 2 + 2 * k + half) * 4 + lane;
                            assert_eq!(ai, a.index(h, l, 2 * row + half, 4 * k + lane));
                            let bi = (col * l / 2 + 2 * k + half) * 4 + lane;
                            assert_eq!(bi, b.index(l, w, 4 * k + lane, 2 * col + half));
                        }
                    }
                }
                let ix = (h / 4) * col * 4 + (row / 2) * 4 + (row & 1);
                for lane in 0..2 {
                    assert_eq!(ix * 2 + lane, c.index(h, w, 2 * row + lane, 2 * col));
                    assert_eq!(
                        (ix + 2) * 2 + lane,
                        c.index(h, w, 2 * row + lane, 2 * col + 1)
                    );
                }
            }
        }
        // Morton 4-4: a R_4_4_R, b and c C_4_4_C.
        let (a, b, c) = (layout("R_4_4_R"), layout("C_4_4_C"), layout("C_4_4_C"));
        for row in 0..h / 2 {
            for col in 0..w / 2 {
                let (row_chunk, col_chunk) = (row / 2, col / 2);
                for k in (0..l).step_by(4) {
                    for half in 0..2 {
                        for lane in 0..4 {
                            let ai = (row_chunk * l + k + ((row * 2) & 3) + half) * 4 + lane;
                            assert_eq!(ai, a.index(h, l, 2 * row + half, k + lane));
                            let bi = (col_chunk * l + k + ((col * 2) & 3) + half) * 4 + lane;
                            assert_eq!(bi, b.index(l, w, k + lane, 2 * col + half));
                        }
                    }
                }
                let ix = (h * 4 / 2) * col_chunk + row_chunk * 8 + ((col * 2) & 3) * 2 + (row & 1);
                for lane in 0..2 {
                    assert_eq!(ix * 2 + lane, c.index(h, w, 2 * row + lane, 2 * col));
                    assert_eq!(
                        (ix + 2) * 2 + lane,
                        c.index(h, w, 2 * row + lane, 2 * col + 1)
                    );
                }
            }
        }
    }

    #[test]
    fn known_placements() {
        let at = |text: &str, rows, cols, r, c| layout(text).index(rows, cols, r, c);
        assert_eq!(at("R", 3, 5, 2, 1), 11);
        assert_eq!(at("C", 3, 5, 2, 1), 5);
        // In panels of 16 rows over 3 columns, element (19, 2) is in panel 1, at row 3 and column 2
        // of the panel.
        assert_eq!(at("R_16_1_C", 32, 3, 19, 2), (3 + 2) * 16 + 3);
        // Z-order interleaves the bits of the row and the column. Each bit of the row is above the
        // same bit of the column.
        for (r, c) in [(0usize, 1usize), (1, 0), (5, 3), (15, 9)] {
            let z = (0..4)
                .map(|b| ((c >> b & 1) << (2 * b)) | ((r >> b & 1) << (2 * b + 1)))
                .sum::<usize>();
            assert_eq!(at("R_8_8_R_4_4_R_2_2_R", 16, 16, r, c), z);
        }
    }

    #[test]
    fn column_prefixes() {
        for (text, prefix) in [
            ("R", None),
            ("C", Some(1)),
            ("C_4_2_C", Some(2)),
            ("R_2_4_R", None),
        ] {
            assert_eq!(layout(text).column_prefix(), prefix, "{text}");
        }
        for text in LAYOUTS
            .map(layout)
            .iter()
            .filter(|l| l.column_prefix().is_some())
        {
            let (y, x) = text.granularity();
            let at = text.offsets(3 * y, 4 * x);
            for n in 1..4 {
                let last = at.cols[..n * x].iter().max().unwrap() + at.rows.iter().max().unwrap();
                assert_eq!(
                    last as usize + 1,
                    n * x * 3 * y,
                    "{text}: {n} chunk columns are a prefix"
                );
            }
        }
    }

    #[test]
    fn panels_are_recognised() {
        for (text, rows) in [
            ("R_16_1_C", Some(16)),
            ("R_4_1_R", Some(4)),
            ("R_12_1_C", Some(12)),
            ("R_16_2_C", Some(16)),
            ("R", None),
            ("C", None),
            ("R_6_1_C", None),
            ("C_16_1_C", None),
            ("R_2_4_R", None),
            ("R_16_2_R", None),
        ] {
            assert_eq!(layout(text).panel_rows(), rows, "{text}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (text, part) in [
            ("", "expected the order R or C, found \"\""),
            ("Q", "expected the order R or C, found \"Q\""),
            ("R_2", "expected ORDER or ORDER_ROWS_COLS_ORDER"),
            ("R_2_4", "expected ORDER or ORDER_ROWS_COLS_ORDER"),
            ("R_0_4_R", "expected a chunk size above 0, found \"0\""),
            ("R_-2_4_R", "found \"-2\""),
            ("R_2_x_R", "found \"x\""),
            (
                "R_4_4_R_3_2_R",
                "chunks of 3×2 do not divide the chunks of 4×4 around them",
            ),
        ] {
            let e = Layout::parse(text).unwrap_err();
            assert!(e.contains(part), "{text}: {e}");
        }
        let e = layout("C_4_2_C").fits(10, 4).unwrap_err();
        assert!(
            e.contains("4 rows × 2 columns do not divide a matrix of 10 × 4"),
            "{e}"
        );
    }

    #[test]
    fn same_placement_looks_through_the_spelling() {
        assert!(layout("R_4_1_C").same_placement(&layout("R_4_1_R"), 8, 5));
        assert!(layout("C_1_1_R").same_placement(&Layout::C, 7, 5));
        assert!(!layout("C_4_2_C").same_placement(&layout("C_4_4_C"), 8, 8));
    }

    proptest! {
        /// Layouts of random depth and chunk sizes are permutations of the elements. Their texts
        /// are printed as they were parsed.
        #[test]
        fn any_depth(factors in prop::collection::vec((1usize..4, 1usize..4, any::<bool>()), 0..5),
                     outer: bool, (down, along) in (1usize..4, 1usize..4)) {
            let name = |b: bool| if b { "R" } else { "C" };
            let (mut y, mut x, mut tail) = (1, 1, String::new());
            for (fy, fx, o) in factors {
                (y, x) = (y * fy, x * fx);
                tail = format!("_{y}_{x}_{}{tail}", name(o));
            }
            let text = format!("{}{tail}", name(outer));
            let l = Layout::parse(&text).unwrap();
            prop_assert_eq!(l.to_string(), text);
            let (rows, cols) = (y * down, x * along);
            let mut all: Vec<usize> =
                (0..rows * cols).map(|i| l.index(rows, cols, i / cols, i % cols)).collect();
            all.sort_unstable();
            prop_assert!(all.iter().enumerate().all(|(i, &v)| i == v));
        }

        #[test]
        fn never_panics(text in "[RC0-9_x+-]{0,12}") {
            let _ = Layout::parse(&text);
        }
    }
}
