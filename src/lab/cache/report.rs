//! The cache model's tables.

use super::footprint::{
    ARM_BARRIER, alone, arm, bulk_and_period, document, four_iterations, pages,
};
use super::misses::{Misses, MissesBySize, all_misses};
use super::pattern::{MORTON_8_2, Pattern, pattern, patterns};
use super::shape::{CacheShape, Sample};
use super::walk::Walk;
use crate::baked::library;
use crate::lab::table::{Cell, Plot, Section};

fn words(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|t| t.to_string()).collect()
}

/// Returns an empty section of a report, with these columns.
fn section(id: &str, title: &str, rows_are: &str, unit: &str, columns: Vec<String>) -> Section {
    Section {
        columns,
        ..Section::new(id, title, rows_are, unit)
    }
}

/// Returns the sections of the report. They hold ARM's figures, the thesis's table 8.1, the misses
/// and pages of every product, and a comparison of Morton 4-2 with the blocked kernel.
pub(crate) fn report(shape: &CacheShape, sizes: &[usize], sample: Sample) -> Vec<Section> {
    let known = patterns();
    let found = all_misses(&known, sizes, shape, sample);
    let mut sections = vec![arm_1_2(shape), arm_loads(shape), thesis_8_1(shape)];
    sections.extend(by_variant(shape, sizes, sample, &known, &found));
    sections.extend(by_page(shape, sizes, &known));
    sections.extend(morton_vs_blocked(sizes, &known, &found));
    sections
}

pub(super) fn arm_1_2(shape: &CacheShape) -> Section {
    let columns = words(&[
        "NN formula",
        "NN lines",
        "NN bytes/line",
        "NN share of L1",
        "NT formula",
        "NT lines",
        "NT bytes/line",
        "NT share of L1",
    ]);
    let title = "L1 lines that a core's threads need for four iterations (ARM, table 1.2)";
    let mut s = section(
        "cache_arm_1_2",
        title,
        "group dimension 1",
        "lines",
        columns,
    );
    for dimension_1 in (0..8).map(|p| 1 << p) {
        let mut cells = Vec::new();
        for (codename, rows) in [("matmul_blocked_nn", 1), ("matmul_blocked_nt", 2)] {
            // ARM's formulas for the lines that 128 threads load, with λ1 as dimension 1: λ1 +
            // 512/λ1 for NN and 2·λ1 + 256/λ1 for NT.
            cells.push(Cell::Document(
                (rows * dimension_1 + 512 / (rows * dimension_1)) as f64,
            ));
            let Some(pattern) = arm(codename, dimension_1, shape) else {
                cells.resize(cells.len() + 3, Cell::Empty);
                continue;
            };
            let loaded = four_iterations(&pattern, shape);
            let share = loaded.full / shape.l1_lines as f64;
            cells.extend([loaded.lines as f64, loaded.full, share].map(Cell::once));
        }
        s.row(dimension_1.to_string(), cells);
    }
    s.notes = words(&[
        "formula: λ1 + 512/λ1 for 1×4×4 NN, 2·λ1 + 256/λ1 for 2×4×2 NT, for 128 threads and \
         64-byte lines.",
        "lines: distinct lines, dimension 0 of the group being 4, or 2 and 1 where λ1 leaves no \
         more threads. bytes/line: the bytes loaded, in full lines; the formula counts these. They \
         differ for NN at λ1 = 64 and 128, where a group is too narrow to use the lines of B in \
         full: 80 and 144 lines instead of 72 and 132.",
    ]);
    s
}

/// Returns the table of ARM's figures for each kernel's blocking: the elements loaded (§1.4.5), the
/// iterations whose lines the L1 keeps (§1.4.6), and the smallest distance between barriers
/// (§1.4.8).
pub(super) fn arm_loads(shape: &CacheShape) -> Section {
    let columns = words(&[
        "1/ΔI + 1/ΔJ",
        "elements a multiply-add",
        "loads an iteration",
        "iterations kept in L1, formula",
        "ΔK of barriers, more than",
        "ΔK here",
    ]);
    let title = "Loads, reuse and barriers by blocking (ARM, §1.4.5, §1.4.6 and §1.4.8)";
    let mut s = section("cache_arm_loads", title, "kernel", "", columns);
    for (codename, barriers) in [
        ("matmul_scalar_nn", None),
        ("matmul_scalar_nt", None),
        ("matmul_blocked_nn", Some("matmul_cacheblocked_nn")),
        ("matmul_blocked_nt", Some("matmul_cacheblocked_nt")),
        (
            "matmul_blocked_nt_1x4x4",
            Some("matmul_cacheblocked_nt_1x4x4"),
        ),
    ] {
        let Some(pattern) = pattern(codename) else {
            continue;
        };
        let [rows, cols] = pattern.tile.map(|n| n as f64);
        let walk = Walk::new(&pattern, 1024, shape.shift());
        let k_step = pattern.k_step as f64;
        let elements = (rows + cols) * k_step;
        // `lines` counts what groups of 4 × 32 load in four iterations, `results` what they write.
        let wide = Pattern {
            group: [4, 32],
            items: 128,
            ..pattern.clone()
        };
        let lines = four_iterations(&wide, shape).lines;
        let results = Walk::new(&wide, 1024, shape.shift()).result_lines();
        let kept = 4 * (shape.l1_lines.saturating_sub(results) / lines);
        let mut cells = vec![Cell::Document(1.0 / rows + 1.0 / cols)];
        cells.push(Cell::once(elements / (rows * cols * k_step)));
        cells.push(Cell::once(walk.loads.len() as f64));
        cells.push(Cell::once(kept as f64));
        let own = barriers.and_then(|name| {
            let (_, kernel) = library().kernel(name)?;
            kernel.define("DELTA_K")
        });
        cells.push(Cell::once(2.0 * shape.threads as f64 / elements));
        cells.push(own.map_or(Cell::Empty, |own| Cell::once(own as f64)));
        s.row(codename, cells);
    }
    s.notes = words(&[
        "Iterations kept: 4 · ⌊(L1 lines − lines of the results) / lines of four iterations⌋, for \
         one group of 4×32 on a core. ARM has 16 for 1×4×4 NN: (256 − 32) / 48. Its next sentence \
         has 64 iterations and a matrix of 256×256; 16 iterations of four terms are one of 64×64.",
        "ΔK of barriers: 2·λ0·λ1 / (ΔI·K + K·ΔJ) with all threads of a core in one group, K terms \
         an iteration. ARM has 16 for 2×4×2, and takes 32.",
    ]);
    s
}

pub(super) fn thesis_8_1(shape: &CacheShape) -> Section {
    let columns = words(&[
        "bulk in thesis",
        "bulk",
        "period in thesis",
        "period",
        "per iteration",
    ]);
    let title = "Misses of one 4×16 group that come together, and iterations between them (thesis, \
                 table 8.1)";
    let mut s = section(
        "cache_thesis_8_1",
        title,
        "kernel",
        "lines, iterations",
        columns,
    );
    for (codename, bulk, period) in [
        ("matmul_blocked_rmcm", 40.0, 4.0),
        ("matmul_morton_4_2", 20.0, 2.0),
        ("matmul_morton_4_4", 10.0, 1.0),
    ] {
        let Some(pattern) = pattern(codename) else {
            continue;
        };
        let found = bulk_and_period(&pattern, shape);
        let cells = vec![
            Cell::Document(bulk),
            Cell::once(found.lines as f64),
            Cell::Document(period),
            Cell::once(found.period as f64),
            Cell::once(alone(&pattern, shape)),
        ];
        s.row(codename, cells);
    }
    s.notes = words(&[
        "bulk / period is the same for all three: without conflicts between rows, the layouts \
         change when the misses come, not how many there are.",
    ]);
    s
}

/// The unit in which a table gives numbers of cache misses.
#[derive(Clone, Copy, PartialEq)]
enum Per {
    MultiplyAdd,
    Iteration,
    Product,
}

/// Returns a table of the misses of L1 (`level` 0) or L2 (1) in the unit `per`, with a row for each
/// kernel's pattern.
fn misses_table(
    shape: &CacheShape,
    sizes: &[usize],
    level: usize,
    per: Per,
    rows: &[(&Pattern, &MissesBySize)],
) -> Section {
    let name = ["L1", "L2"][level];
    let (id, what, unit) = match per {
        Per::MultiplyAdd => ("cache_misses", "per multiply-add", "per 1000 multiply-adds"),
        Per::Iteration => {
            let unit = "per iteration of a group";
            ("cache_iteration", unit, unit)
        }
        Per::Product => ("cache_total", "in total", "millions"),
    };
    let mut columns = Vec::new();
    if per == Per::Iteration {
        columns = words(&["document", "one group alone"]);
    }
    columns.extend(sizes.iter().map(|n| n.to_string()));
    let id = format!("{id}_{}", name.to_ascii_lowercase());
    let mut s = section(
        &id,
        &format!("{name} misses {what}"),
        "kernel",
        unit,
        columns,
    );
    for (pattern, misses) in rows {
        let mut cells = Vec::new();
        if per == Per::Iteration {
            cells.push(document(pattern).map_or(Cell::Empty, Cell::Document));
            cells.push(Cell::once(alone(pattern, shape)));
        }
        cells.extend(misses.iter().map(|m| match (m, per) {
            (Err(why), _) => Cell::Skipped(why.clone()),
            (Ok(m), Per::Iteration) => m.cell(level, m.iterations),
            (Ok(m), Per::Product) => m.cell(level, 1e6),
            (Ok(m), Per::MultiplyAdd) => m.cell(level, m.madds / 1e3),
        }));
        s.row(&pattern.codename, cells);
    }
    s
}

/// Returns the tables of misses of all patterns, for two cache levels and in three units each.
fn by_variant(
    shape: &CacheShape,
    sizes: &[usize],
    sample: Sample,
    known: &[Pattern],
    found: &[MissesBySize],
) -> Vec<Section> {
    let rows: Vec<_> = known.iter().zip(found).collect();
    let mut sections = Vec::new();
    for level in [0, 1] {
        for per in [Per::MultiplyAdd, Per::Iteration, Per::Product] {
            sections.push(misses_table(shape, sizes, level, per, &rows));
        }
    }
    sections[0].notes = words(&[
        "Threads run in step, groups are dealt to the cores in order, dimension 0 first; LRU. \
         Drift and prefetching are left out, and with drift the barriers of the cache-blocked \
         kernels.",
        &sampled(sizes, sample, found),
        "An iteration is one of the k loop: of all work-items of a group, or of the group where it \
         stages its operands in local memory. A kernel that leaves its work-group to the driver \
         has 32×1, or 4×16 where it is measured with many. Of pair and layers kernels: the first \
         layer. Height and common dimension are at most what the kernel is for. Texture paths are \
         modelled as the other loads, work-groups that share the common dimension as one.",
        "(morton_8_2) is no kernel: matmul_morton_4_2 in the layouts R_8_4_R_2_4_R and \
         C_4_8_C_4_2_C.",
    ]);
    sections[1].notes = words(&[
        "document: (2·λ0 + 2·λ1)/4 in the thesis, (λ1 + 512/λ1)/4 and (2·λ1 + 256/λ1)/4 over the \
         groups of a core in ARM. one group alone: each line fetched once. The thesis counts one \
         group; where a core holds two groups, they share an operand, and 10 become 6.",
    ]);
    sections
}

/// Returns the two tables of memory pages that a core's groups load from: the figures behind ARM's
/// §1.4.9.
fn by_page(shape: &CacheShape, sizes: &[usize], known: &[Pattern]) -> [Section; 2] {
    let heading = format!(
        "of {} bytes that the groups of a core load from",
        shape.page
    );
    let new = |id: &str, what: &str| {
        let columns = sizes.iter().map(|n| n.to_string()).collect();
        section(
            id,
            &format!("Pages {heading}{what} (ARM, §1.4.9)"),
            "kernel",
            "pages",
            columns,
        )
    };
    let mut sections = [
        new("cache_pages", ", in all of the k loop"),
        new(
            "cache_pages_barrier",
            &format!(", in {ARM_BARRIER} terms of the sum"),
        ),
    ];
    for pattern in known {
        let found: Vec<[f64; 2]> = sizes.iter().map(|&n| pages(pattern, n, shape)).collect();
        for (i, s) in sections.iter_mut().enumerate() {
            let cells = found.iter().map(|pages| Cell::once(pages[i])).collect();
            s.row(&pattern.codename, cells);
        }
    }
    sections[0].notes = words(&[
        "Each page needs a look-up in the page tables before its first use. Groups that drift \
         apart may need all of these at a time: a row-major B (NN) costs a page for every one or \
         few of its rows, a column-major one (NT) for its columns alone. Counted: loads of the \
         groups that core 0 holds first; results are not.",
    ]);
    sections[1].notes = words(&[
        "What threads in step need between two of the barriers of ARM's cache-blocked kernels: 32 \
         iterations of four terms.",
    ]);
    sections
}

/// Returns a note for the report that says which share of the product was simulated at each size.
fn sampled(sizes: &[usize], sample: Sample, found: &[MissesBySize]) -> String {
    let share = |i: usize| {
        let all = found.iter().filter_map(|f| f[i].as_ref().ok());
        all.map(|m| m.counted as f64 / m.groups as f64)
            .fold(1.0, f64::min)
    };
    let shares = sizes.iter().enumerate().map(|(i, n)| match share(i) {
        all if all >= 1.0 => format!("{n} in full"),
        part => format!("{n} by 1 group in {:.0}", 1.0 / part),
    });
    format!(
        "Simulated, by size, for the variant with the smallest share: {}. Places of the grid in a \
         sample: {}; at each, waves (what all cores hold): {}, with the whole k loop, after a \
         warm-up that could fill the L2 twice. Totals are the mean over the places, times all \
         groups.",
        shares.collect::<Vec<_>>().join(", "),
        sample.places,
        sample.waves
    )
}

/// The speed of Morton 4-2 divided by that of the blocked kernel, by matrix size (thesis, table
/// 8.2).
const THESIS_8_2: [(usize, f64); 6] = [
    (96, 13.04 / 11.65),
    (192, 14.86 / 13.65),
    (384, 14.19 / 13.08),
    (768, 13.67 / 12.90),
    (1440, 13.61 / 12.98),
    (2880, 13.65 / 2.14),
];

/// Returns the misses of `of` in L1 and L2, divided by those of `over`.
fn ratios(of: &Misses, over: &Misses) -> [f64; 2] {
    [of.l1 / over.l1.max(1.0), of.l2 / over.l2.max(1.0)]
}

fn morton_vs_blocked(
    sizes: &[usize],
    known: &[Pattern],
    found: &[MissesBySize],
) -> Option<Section> {
    let of = |codename: &str| Some(&found[known.iter().position(|p| p.codename == codename)?]);
    let blocked = of("matmul_blocked_rmcm")?;
    let morton = of("matmul_morton_4_2")?;
    let deeper = of(MORTON_8_2)?;
    let columns = words(&[
        "L1",
        "L2",
        "speed in thesis 8.2",
        "L1, morton_8_2",
        "L2, morton_8_2",
    ]);
    let title =
        "Misses of blocked_rmcm over those of morton_4_2, and of morton_8_2: above 1, Morton wins";
    let mut s = section("cache_morton_vs_blocked", title, "size", "ratio", columns);
    s.larger_is_better = true;
    s.plot = Plot::Lines;
    let mut by_size = Vec::new();
    for (i, &n) in sizes.iter().enumerate() {
        let (Ok(blocked), Ok(morton), Ok(deeper)) = (&blocked[i], &morton[i], &deeper[i]) else {
            continue;
        };
        let over_morton = ratios(blocked, morton);
        let speed = THESIS_8_2.iter().find(|(size, _)| *size == n);
        let mut cells = over_morton.map(Cell::once).to_vec();
        cells.push(speed.map_or(Cell::Empty, |&(_, ratio)| Cell::Document(ratio)));
        cells.extend(ratios(blocked, deeper).map(Cell::once));
        s.row(n.to_string(), cells);
        by_size.push((n, over_morton));
    }
    s.notes = ["L1", "L2"]
        .into_iter()
        .enumerate()
        .map(|(level, name)| wins_and_losses(name, by_size.iter().map(|(n, r)| (*n, r[level]))))
        .collect();
    s.notes.extend(words(&[
        "Where rows are a power of two apart, all of them fall into a few cache sets. Morton 4-2 \
         halves the lines that compete there, which helps only as far as the ways reach; \
         morton_8_2 (R_8_4_R_2_4_R, C_4_8_C_4_2_C) puts the rows of a group side by side.",
        "The thesis's loss of the blocked kernel at 2880 is not one of cache sets: ARM ascribes it \
         to groups that drift apart, which this model leaves out.",
    ]));
    Some(s)
}

/// Returns the note that lists the sizes at which morton_4_2 misses less, and more, than
/// blocked_rmcm.
fn wins_and_losses(level: &str, by_size: impl Iterator<Item = (usize, f64)>) -> String {
    let (mut wins, mut losses) = (Vec::new(), Vec::new());
    for (n, ratio) in by_size {
        let text = format!("{n} ({:+.1} %)", 100.0 * (1.0 / ratio - 1.0));
        if ratio > 1.005 {
            wins.push(text);
        } else if ratio < 0.995 {
            losses.push(text);
        }
    }
    let list = |sizes: Vec<String>| match sizes.is_empty() {
        true => "no size".to_string(),
        false => sizes.join(", "),
    };
    format!(
        "{level}: morton_4_2 misses less than blocked_rmcm at {}; more at {}; the rest are within \
         0.5 %.",
        list(wins),
        list(losses)
    )
}
