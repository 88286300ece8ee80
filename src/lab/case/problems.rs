//! The problems that a kernel is checked on: sizes around every edge of its tile, layouts, factors
//! and activations.

use super::WorkGroup;
use crate::ir::layout::Layout;
use crate::ir::network::Activation;
use crate::registry::{Kernel as Entry, Operation, Problem};

/// The layouts that a repack is checked with: those of its operand and of its result. They have
/// every nesting depth, with chunks along rows, along columns and both.
const REPACKED: [(&str, &str); 8] = [
    ("R", "C"),
    ("C", "R"),
    ("R", "C_4_2_C"),
    ("C_4_2_C", "C_1_16_R"),
    ("C_1_16_R", "R_16_1_C"),
    ("C_16_10_C", "R"),
    ("R_8_8_R_4_4_R_2_2_R", "R_2_4_R"),
    ("C", "C_16_8_R_4_8_C_2_2_R"),
];

/// The layouts of the right operand and the result in checks of kernels for few records. The first
/// two also determine panels of weights ([`with_layouts`]). In the last one, rows are at unequal
/// distances.
const OF_FEW: [(&str, &str); 3] = [("C", "R"), ("C_1_16_R", "C_1_16_R"), ("C_16_10_C", "C")];

/// Returns true if a kernel accepts any layout, so that its entry names none.
pub(super) fn takes_any_layouts(entry: &Entry) -> bool {
    let any = entry
        .restrictions
        .b
        .as_ref()
        .is_some_and(|b| b.representation.is_none());
    any && (entry.operation == Operation::Repack || entry.of_few())
}

/// Returns the layouts of b and of the result that a kernel which takes any layout is checked with.
pub(super) fn layouts(entry: &Entry) -> &'static [(&'static str, &'static str)] {
    match entry.of_few() {
        true => &OF_FEW,
        false => &REPACKED,
    }
}

/// Returns the entry with layout `from` for b and `to` for the result. A kernel for few records
/// also gets weights in panels that match `from`.
pub(super) fn with_layouts(entry: &Entry, from: &str, to: &str) -> Entry {
    let mut entry = entry.clone();
    let r = &mut entry.restrictions;
    for (operand, layout) in [(&mut r.b, from), (&mut r.r, to)] {
        operand
            .iter_mut()
            .for_each(|o| o.representation = Layout::parse(layout).ok());
    }
    let panels = match from {
        "C" => Some((140, "R_140_1_C")),
        "C_1_16_R" => Some((16, "R_16_1_C")),
        _ => None,
    };
    if let (Some(a), Some((rows, layout))) = (r.a.as_mut().filter(|a| a.panels && !a.image), panels)
    {
        (a.row_align, a.representation) = (rows, Layout::parse(layout).ok());
    }
    entry
}

/// Returns the rows of the first of two layers in checks of problem `p`, or 0 for one layer.
pub(super) fn middle(operation: Operation, p: Problem) -> usize {
    match operation {
        Operation::Pair => (p.l + p.h) / 2 + 3,
        Operation::ReducePair => p.l,
        _ => 0,
    }
}

/// Returns the number of parts that a `reducepair` kernel adds up in a check. It depends on `rows`,
/// the number of rows of each part.
pub(super) fn parts_before(rows: usize) -> usize {
    1 + rows / 4 % 13
}

/// Returns problems that hit every edge of a kernel: sizes below, at and above the size of its
/// tile.
pub(super) fn problems(entry: &Entry, group: WorkGroup) -> Vec<Problem> {
    let unit = entry.pad(Problem { h: 1, w: 1, l: 1 }, group);
    // A two-layer kernel's tile is as high as any network, so its edges are not tried.
    let tile = entry
        .restrictions
        .tile
        .filter(|_| entry.operation != Operation::Pair);
    let (tile_rows, tile_cols) = tile.unwrap_or((1, 1));
    let (h, w, l) = (unit.h.max(tile_rows), unit.w.max(tile_cols), unit.l);
    let sizes = match entry.operation {
        Operation::Sobel => images(),
        // These sizes hit the edges of both layouts of a repack. It writes as many rows as it
        // reads.
        Operation::Repack => [
            (1, 1),
            (17, 9),
            (9, 33),
            (h.max(l), w),
            (h + l - 1, w + 1),
            (3 * h, w.max(2) - 1),
        ]
        .map(|(rows, w)| (rows, w, rows))
        .to_vec(),
        Operation::Order => vec![(33, 33, 0)],
        Operation::Probe => vec![(1, 16, 1), (3, 32, 7), (33, 48, 20)],
        // These problems have more values, or more parts, than a work-group takes at a time. There
        // is no padding between parts.
        Operation::ReducePair => vec![
            (1, 1, 4),
            (16, 9, 740),
            (9, 3, 2672),
            (10, 33, 44),
            (13, 2, 1184),
        ],
        _ if entry.of_few() => of_few(entry),
        _ => {
            let least = entry.restrictions.least_l;
            [
                (1, 1, 1),
                (17, 9, 5),
                (9, 33, staged_terms(entry).max(18)),
                (h.max(2) - 1, w + 1, l),
                (h, w, l.max(2) - 1),
                (h + 1, w.max(2) - 1, l + 1),
                (3 * h, w, 2 * l),
            ]
            .map(|(h, w, l)| (h, w, l.max(least)))
            .to_vec()
        }
    };
    let problem = |(h, w, l)| Problem { h, w, l };
    sizes.into_iter().map(problem).collect()
}

/// Returns a common dimension that is long enough to use all stages of local memory.
fn staged_terms(entry: &Entry) -> usize {
    let define = |name: &str| entry.define(name).unwrap_or(1);
    match entry.restrictions.needs.warp {
        true => 5 * define("BK") + 2,
        false => (define("STAGES") - 1) * define("BK") + 2,
    }
}

/// Returns problems with few records. Their sums run with and without the unrolled loop. They have
/// more rows than a panel, and more values than local memory stages at a time. Sums shorter than
/// the kernels' `least_l` are slow but must be right, so they are checked, too.
fn of_few(entry: &Entry) -> Vec<(usize, usize, usize)> {
    let slices = entry.define("SLICES").unwrap_or(1);
    let mut sizes = vec![(1, 1, 1), (17, 3, 5), (9, 2, 5 * slices + 3), (145, 1, 3)];
    let staged = entry.define("STAGED");
    sizes.extend(staged.map(|staged| (5, 2, staged + 5 * slices + 3)));
    sizes
}

/// Returns sizes of images (rows, columns) around the edges of every Sobel filter's vectors.
fn images() -> Vec<(usize, usize, usize)> {
    [
        (1, 1),
        (2, 9),
        (3, 3),
        (4, 7),
        (5, 8),
        (3, 10),
        (9, 11),
        (7, 17),
        (6, 18),
        (5, 19),
        (33, 34),
        (16, 35),
    ]
    .map(|(h, w)| (h, w, 0))
    .to_vec()
}

/// Returns the factors α and β that a product kernel is checked with.
pub(super) fn factors(entry: &Entry) -> &'static [(f32, f32)] {
    match entry.restrictions.scaled {
        true => &[(1.0, 0.0), (1.0, 0.1), (-2.0, 1.0)],
        false => &[(1.0, 0.0)],
    }
}

/// Returns the activations that a kernel is checked with. Fused activations are included if
/// `fused`.
pub(super) fn activations(entry: &Entry, fused: bool) -> Vec<Activation> {
    match entry.operation {
        Operation::Activation => entry.activations().to_vec(),
        _ if entry.fuses() && fused => [&[Activation::None], entry.activations()].concat(),
        _ => vec![Activation::None],
    }
}
