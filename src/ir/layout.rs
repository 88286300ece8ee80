//! The layout grammar: where element (row, column) of a matrix stands in memory.
//!
//! Source: the thesis, §8.2, with its misprints corrected. A layout is
//!
//! ```text
//! Y0 X0 Base0  Y1 X1 Base1  …  1 1 A
//! ```
//!
//! where Y0×X0 is the matrix, Yk×Xk the chunks of level k, and `Base` (R or C) the order in which
//! the chunks of the next level stand inside a chunk of this one. The first and the last pair are
//! redundant and not written:
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

/// Order of the chunks (or elements) inside a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Row major: the columns of a row are neighbours.
    R,
    /// Column major: the rows of a column are neighbours.
    C,
}

/// One level of a layout: chunks of `rows` × `cols` elements, and the order of what is inside them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    /// Rows of the chunk, in elements (Y of the grammar).
    pub(crate) rows: usize,
    /// Columns of the chunk, in elements (X of the grammar).
    pub(crate) cols: usize,
    /// Order of the next smaller chunks inside.
    pub(crate) order: Order,
}

/// A layout: the order of the outermost chunks, then the levels from the outside in.
///
/// Two layouts are equal when they are written equally; [`Layout::same_placement`] compares what
/// they do.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Order of the outermost chunks in the matrix (Base0).
    pub(crate) outer: Order,
    /// Chunks from the largest to the smallest; each size divides the one before it.
    pub(crate) chunks: Cow<'static, [Chunk]>,
}

/// The two parts of an index: element (r, c) stands at `rows[r] + cols[c]`.
///
/// Every level of the grammar places chunk (i, j) at i·a + j·b, and (i, j) depend on r and c
/// separately, so an index is always the sum of a row part and a column part. This makes packing,
/// reading records and printing scores one addition for every layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Offsets {
    /// Row part of the index, one for each row.
    pub(crate) rows: Vec<u32>,
    /// Column part of the index, one for each column.
    pub(crate) cols: Vec<u32>,
}

impl Layout {
    /// Plain row-major order.
    pub(crate) const R: Layout = Layout {
        outer: Order::R,
        chunks: Cow::Borrowed(&[]),
    };
    /// Plain column-major order.
    pub(crate) const C: Layout = Layout {
        outer: Order::C,
        chunks: Cow::Borrowed(&[]),
    };

    /// Reads a layout; the error says what was expected at which part.
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

    /// Rows and columns of the largest chunk: a matrix's size must be a multiple of both.
    pub(crate) fn granularity(&self) -> (usize, usize) {
        self.chunks.first().map_or((1, 1), |c| (c.rows, c.cols))
    }

    /// Whether a `rows` × `cols` matrix can be stored in this layout; the error names sizes and
    /// chunks.
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
                "layout {self}: a matrix of {rows} × {cols} has more than 2^32 elements"
            ));
        }
        Ok(())
    }

    /// Where element (`row`, `col`) of a `rows` × `cols` matrix stands; `fits(rows, cols)` must
    /// hold.
    ///
    /// `MIndex` of the thesis, §8.2, with `MIndex(1, 1) = 0`.
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

    /// The row and column parts of every index of a `rows` × `cols` matrix; `fits(rows, cols)` must
    /// hold.
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

    /// The row and the column parts of every index of a `rows` × `cols` matrix as nested loops from
    /// the outermost in: how often each turns, and by how much the index grows from a turn to the
    /// next. There are as few of them as possible, so that equal placements have equal loops,
    /// without a look at each of a million rows. `fits(rows, cols)` must hold.
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
            let steps = match order {
                Order::R => (along * size, size),
                Order::C => (size, down * size),
            };
            for (loops, (n, step)) in loops.iter_mut().zip([(down, steps.0), (along, steps.1)]) {
                match loops.last_mut() {
                    _ if n == 1 => {}
                    // The outer loop steps over whole inner ones.
                    Some((outer, before)) if *before == n * step => {
                        (*outer, *before) = (*outer * n, step)
                    }
                    _ => loops.push((n, step)),
                }
            }
            (y, x, order) = (chunk.rows, chunk.cols, chunk.order);
        }
        loops
    }

    /// From an element of a column to the next below it, where that is the same in all of a `rows`
    /// × `cols` matrix.
    pub(crate) fn row_step(&self, rows: usize, cols: usize) -> Option<u32> {
        match self.loops(rows, cols)[0][..] {
            [(_, step)] => Some(step as u32),
            _ => None,
        }
    }

    /// Whether both layouts place every element of a `rows` × `cols` matrix at the same index.
    pub(crate) fn same_placement(&self, other: &Layout, rows: usize, cols: usize) -> bool {
        self == other || self.loops(rows, cols) == other.loops(rows, cols)
    }

    /// `R_rows_1_C`
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

    /// Rows of a panel, where the layout is `R_P_1_C` (panels whose columns are contiguous) and P a
    /// multiple of 4.
    pub(crate) fn panel_rows(&self) -> Option<usize> {
        let p = self.granularity().0;
        let cols = 3 * self.granularity().1;
        (p % 4 == 0 && self.same_placement(&Layout::panels(p), 2 * p, cols)).then_some(p)
    }

    /// How many columns at a time form a prefix of the memory, if columns are outermost: the first
    /// `n` columns of a matrix, `n` a multiple of this, are its first `n · rows` elements.
    pub(crate) fn column_prefix(&self) -> Option<usize> {
        (self.outer == Order::C).then(|| self.granularity().1)
    }

    /// Lays a row-major `rows` × `cols` matrix out, in a padded matrix whose other elements are
    /// `pad`.
    ///
    /// `fits(padded.0, padded.1)` must hold, and the padded size must cover the matrix.
    pub(crate) fn pack<T: Copy>(
        &self,
        matrix: &[T],
        (rows, cols): (usize, usize),
        padded: (usize, usize),
        pad: T,
    ) -> Vec<T> {
        assert!(
            matrix.len() == rows * cols && rows <= padded.0 && cols <= padded.1,
            "not of this size"
        );
        let at = self.offsets(padded.0, padded.1);
        let mut packed = vec![pad; padded.0 * padded.1];
        for (line, &r) in matrix.chunks_exact(cols).zip(&at.rows) {
            for (&value, &c) in line.iter().zip(&at.cols) {
                packed[(r + c) as usize] = value;
            }
        }
        packed
    }

    /// The row-major `rows` × `cols` matrix inside a padded, laid-out one: undoes [`Layout::pack`].
    pub(crate) fn unpack<T: Copy>(
        &self,
        packed: &[T],
        (rows, cols): (usize, usize),
        padded: (usize, usize),
    ) -> Vec<T> {
        assert!(
            packed.len() == padded.0 * padded.1 && rows <= padded.0 && cols <= padded.1,
            "not of this size"
        );
        let at = self.offsets(padded.0, padded.1);
        let mut matrix = Vec::with_capacity(rows * cols);
        for &r in &at.rows[..rows] {
            matrix.extend(at.cols[..cols].iter().map(|&c| packed[(r + c) as usize]));
        }
        matrix
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
                    let padded = (rows.next_multiple_of(y), cols.next_multiple_of(x));
                    l.fits(padded.0, padded.1).unwrap();
                    let at = l.offsets(padded.0, padded.1);
                    let mut seen = vec![false; padded.0 * padded.1];
                    for r in 0..padded.0 {
                        for c in 0..padded.1 {
                            let i = l.index(padded.0, padded.1, r, c);
                            assert_eq!(
                                i,
                                (at.rows[r] + at.cols[c]) as usize,
                                "{text} {padded:?} ({r}, {c})"
                            );
                            assert!(
                                !std::mem::replace(&mut seen[i], true),
                                "{text} {padded:?}: {i} twice"
                            );
                        }
                    }
                    let matrix: Vec<u32> = (1..=(rows * cols) as u32).collect();
                    let packed = l.pack(&matrix, (rows, cols), padded, 0);
                    assert_eq!(
                        l.unpack(&packed, (rows, cols), padded),
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

    /// Loops are equal where every index is, and a step down is the same where there is one.
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

    /// Addresses of the thesis's kernels (§12.6 and §12.7), as float4 loads of `a` and `b` and
    /// float2 stores of `c`.
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
        // Panels of 16 rows over 3 columns: panel 1, column 2, row 3 of the panel.
        assert_eq!(at("R_16_1_C", 32, 3, 19, 2), (3 + 2) * 16 + 3);
        // Z-order of 16×16 interleaves the bits of row and column, row above column.
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
        /// Random depth and chunk factors: still a permutation, still printed as read.
        #[test]
        fn any_depth(factors in prop::collection::vec((1usize..4, 1usize..4, any::<bool>()), 0..5), outer: bool,
                     reps in (1usize..4, 1usize..4)) {
            let name = |b: bool| if b { "R" } else { "C" };
            let (mut y, mut x, mut tail) = (1, 1, String::new());
            for (fy, fx, o) in factors {
                (y, x) = (y * fy, x * fx);
                tail = format!("_{y}_{x}_{}{tail}", name(o));
            }
            let text = format!("{}{tail}", name(outer));
            let l = Layout::parse(&text).unwrap();
            prop_assert_eq!(l.to_string(), text);
            let (rows, cols) = (y * reps.0, x * reps.1);
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
