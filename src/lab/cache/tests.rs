use super::footprint::*;
use super::lru::Cache;
use super::misses::misses;
use super::pattern::*;
use super::report::{arm_1_2, arm_loads, thesis_8_1};
use super::walk::{Walk, vector};
use super::*;
use crate::baked::library;
use crate::lab::table::Cell;
use crate::registry::{Kernel, Operation};
use std::collections::HashSet;

/// Returns the next pseudo-random number (xorshift).
fn random(state: &mut u32) -> u32 {
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    *state
}

/// A textbook LRU cache to compare with. Each set keeps its lines with the time of their last use.
struct Naive {
    ways: usize,
    time: u64,
    sets: Vec<Vec<(u32, u64)>>,
}

impl Naive {
    fn new(lines: usize, ways: usize) -> Naive {
        Naive {
            ways,
            time: 0,
            sets: vec![Vec::new(); lines / ways],
        }
    }

    fn hit(&mut self, line: u32) -> bool {
        self.time += 1;
        let sets = self.sets.len();
        let set = &mut self.sets[line as usize % sets];
        if let Some(entry) = set.iter_mut().find(|e| e.0 == line) {
            entry.1 = self.time;
            return true;
        }
        if set.len() == self.ways {
            let oldest = (0..set.len()).min_by_key(|&i| set[i].1).unwrap();
            set.remove(oldest);
        }
        set.push((line, self.time));
        false
    }
}

#[test]
fn lru_is_lru() {
    for (lines, ways) in [(16, 1), (16, 4), (24, 8), (12, 4), (16, 16)] {
        let (mut cache, mut naive) = (Cache::new(lines, ways), Naive::new(lines, ways));
        let mut seed = 0x2545_F491;
        for i in 0..20_000 {
            let line = random(&mut seed) % 40;
            assert_eq!(
                cache.hit(line),
                naive.hit(line),
                "{lines} lines, {ways} ways, access {i}"
            );
        }
    }
}

#[test]
fn associativity() {
    let misses = |ways: usize, lines: u32, stride: u32| {
        let mut cache = Cache::new(64, ways);
        (0..10)
            .flat_map(|_| 0..lines)
            .filter(|i| !cache.hit(i * stride))
            .count()
    };
    // 64 neighbouring lines fill any cache of 64 lines. With a 65th line, a fully associative cache
    // misses every access.
    assert_eq!(
        [misses(1, 64, 1), misses(4, 64, 1), misses(64, 64, 1)],
        [64; 3]
    );
    assert_eq!([misses(1, 65, 1), misses(64, 65, 1)], [65 + 9 * 2, 650]);
    // 8 lines at a distance of 64 fall into one set, and fit only if it has 8 ways.
    assert_eq!(
        [
            misses(1, 8, 64),
            misses(4, 8, 64),
            misses(8, 8, 64),
            misses(64, 8, 64)
        ],
        [80, 80, 8, 8]
    );
}

/// Returns the L1 and L2 misses by a model without shortcuts. It simulates every load of every
/// thread, with addresses from the layout's own index.
fn plain(pattern: &Pattern, n: usize, shape: &CacheShape) -> [u64; 2] {
    let mut l1: Vec<Naive> = (0..shape.cores)
        .map(|_| Naive::new(shape.l1_lines, shape.l1_ways))
        .collect();
    let mut l2 = Naive::new(shape.l2_lines, shape.l2_ways);
    let mut count = [0, 0];
    let mut fetch = |core: usize, element: usize| {
        let line = (element * 4 / shape.line) as u32;
        if !l1[core].hit(line) {
            count[0] += 1;
            count[1] += u64::from(!l2.hit(line));
        }
    };
    let sizes = pattern.sizes(n);
    let [h, l, w] = [0, 1, 2].map(|i| sizes[i].next_multiple_of(pattern.align[i]));
    let [a, b, r] = &pattern.layouts;
    let start = [h * l, l * w].map(|floats| floats.next_multiple_of(1024));
    let a = |row: usize, k: usize| a.index(h, l, row.min(h - 1), k);
    let b = |k: usize, col: usize| start[0] + b.index(l, w, k, col.min(w - 1));
    let r = |row: usize, col: usize| {
        start[0] + start[1] + r.index(h, w, row.min(h - 1), col.min(w - 1))
    };

    let Pattern {
        group,
        row_dimension,
        ..
    } = *pattern;
    let (k_step, block) = (pattern.k_step.min(l), pattern.block.min(l));
    let tile = [pattern.tile[0].min(h), pattern.tile[1].min(w)];
    let units = [h.div_ceil(tile[0]), w.div_ceil(tile[1])];
    // Reorders a pair from rows and columns to dimensions 0 and 1, and back.
    let turned = |pair: [usize; 2]| {
        if row_dimension == 0 {
            pair
        } else {
            [pair[1], pair[0]]
        }
    };
    let range = turned(units);
    let turns = turned(pattern.turns);
    let turns = [0, 1].map(|d| turns[d].min(range[d].div_ceil(group[d])));
    let grid = [0, 1].map(|d| range[d].div_ceil(group[d] * turns[d]));
    let threads = |g: usize, turn: usize| -> Vec<[usize; 2]> {
        let at = |d: usize, place: usize, turn: usize| (place * turns[d] + turn) * group[d];
        let from = [
            at(0, g % grid[0], turn % turns[0]),
            at(1, g / grid[0], turn / turns[0]),
        ];
        let items =
            (0..group[0] * group[1]).map(|i| [from[0] + i % group[0], from[1] + i / group[0]]);
        items
            .filter(|p| p[0] < range[0] && p[1] < range[1])
            .map(turned)
            .collect()
    };
    // Returns the elements of a tile in the order of the kernel's loads. A second use of the line
    // used last always hits. So a vector may be fetched float by float where threads take turns by
    // vector.
    let order = |tile: usize, wide: usize, deep: usize| -> Vec<Vec<(usize, usize)>> {
        let (mut loads, along) = (Vec::new(), deep >= wide);
        let (outer, inner) = if along {
            (tile, k_step)
        } else {
            (k_step, tile)
        };
        for o in 0..outer {
            for i in (0..inner).step_by(wide.max(deep)) {
                let all = i..i + wide.max(deep);
                loads.push(all.map(|i| if along { (o, i) } else { (i, o) }).collect());
            }
        }
        loads
    };
    let side = |n: usize, at: &dyn Fn(usize) -> usize| {
        [4, 2]
            .into_iter()
            .find(|&v| n >= v && (1..v).all(|i| at(i) == at(0) + i))
            .unwrap_or(1)
    };
    let order_a = order(
        tile[0],
        side(tile[0], &|i| a(i, 0)),
        side(k_step, &|k| a(0, k)),
    );
    let order_b = order(
        tile[1],
        side(tile[1], &|i| b(0, i)),
        side(k_step, &|k| b(k, 0)),
    );
    let held = shape.resident(pattern);
    let groups: Vec<usize> = (0..grid[0] * grid[1]).collect();
    for wave in groups.chunks(held * shape.cores) {
        for first in (0..l).step_by(block) {
            for turn in 0..turns[0] * turns[1] {
                for from in (first..l.min(first + block)).step_by(k_step) {
                    for (core, groups) in wave.chunks(held).enumerate() {
                        let all: Vec<_> = groups.iter().flat_map(|&g| threads(g, turn)).collect();
                        for (right, loads) in [(false, &order_a), (true, &order_b)] {
                            for load in loads {
                                for thread in &all {
                                    for &(t, k) in load.iter().filter(|e| from + e.1 < l) {
                                        fetch(
                                            core,
                                            match right {
                                                false => a(thread[0] * tile[0] + t, from + k),
                                                true => b(from + k, thread[1] * tile[1] + t),
                                            },
                                        );
                                    }
                                }
                            }
                        }
                    }
                }
                for (core, groups) in wave.chunks(held).enumerate() {
                    for (i, j) in (0..tile[0]).flat_map(|i| (0..tile[1]).map(move |j| (i, j))) {
                        for thread in groups.iter().flat_map(|&g| threads(g, turn)) {
                            fetch(core, r(thread[0] * tile[0] + i, thread[1] * tile[1] + j));
                        }
                    }
                }
            }
        }
    }
    count
}

#[test]
fn shortcuts_are_exact() {
    let small = CacheShape {
        l1_lines: 32,
        l1_ways: 2,
        l2_lines: 128,
        l2_ways: 4,
        cores: 3,
        ..CacheShape::default()
    };
    let odd = CacheShape {
        l1_lines: 48,
        l1_ways: 4,
        cores: 2,
        threads: 300,
        line: 32,
        ..small
    };
    for pattern in patterns() {
        for (n, shape) in [(64, small), (80, odd)] {
            let found = misses(&pattern, n, &shape, Sample::default()).unwrap();
            let counted = [found.l1.round(), found.l2.round()];
            assert_eq!(
                counted,
                plain(&pattern, n, &shape).map(|c| c as f64),
                "{} {n}",
                pattern.codename
            );
            assert_eq!((found.counted, found.spread), (found.groups, [0.0; 2]));
        }
    }
}

#[test]
fn arm_table_1_2() {
    let shape = CacheShape::default();
    let nn = [513, 258, 132, 72, 48, 48, 72, 132];
    let nt = [258, 132, 72, 48, 48, 72, 132, 258];
    // The lines that NN loads. Groups narrower than a line's 4 vectors cannot use the lines of B in
    // full.
    let nn_lines = [513, 258, 132, 72, 48, 48, 80, 144];
    let section = arm_1_2(&shape);
    for (i, row) in section.rows.iter().enumerate() {
        for (codename, table, lines, column) in [
            ("matmul_blocked_nn", nn, nn_lines, 0),
            ("matmul_blocked_nt", nt, nt, 4),
        ] {
            let (lines, full) = (lines[i], table[i] as f64);
            let found = four_iterations(&arm(codename, 1 << i, &shape).unwrap(), &shape);
            assert_eq!(
                found,
                LoadedLines { lines, full },
                "{codename} {}",
                row.label
            );
            assert_eq!(row.cells[column], Cell::Document(full));
        }
    }
    // ARM says of the formulas: "This expression is independent of λ0."
    for (codename, table) in [("matmul_blocked_nn", nn), ("matmul_blocked_nt", nt)] {
        for (i, wide) in (0..6).flat_map(|i| [4, 8, 16, 32, 64, 128].map(|w| (i, w))) {
            if (wide << i) <= 128 {
                let mut p = pattern(codename).unwrap();
                p.group = [wide, 1 << i];
                p.items = wide << i;
                let (lines, full) = (table[i], table[i] as f64);
                let found = four_iterations(&p, &shape);
                assert_eq!(
                    found,
                    LoadedLines { lines, full },
                    "{codename} {:?}",
                    p.group
                );
            }
        }
    }
}

#[test]
fn thesis_table_8_1() {
    for (codename, lines, period) in [
        ("matmul_blocked_rmcm", 40, 4),
        ("matmul_morton_4_2", 20, 2),
        ("matmul_morton_4_4", 10, 1),
    ] {
        let pattern = pattern(codename).unwrap();
        let found = bulk_and_period(&pattern, &CacheShape::default());
        assert_eq!(found, Bulk { lines, period }, "{codename}");
        assert_eq!(alone(&pattern, &CacheShape::default()), 10.0);
    }
    for row in &thesis_8_1(&CacheShape::default()).rows {
        let value = |i: usize| match &row.cells[i] {
            Cell::Measured(m) => m.value,
            Cell::Document(d) => *d,
            _ => f64::NAN,
        };
        assert_eq!((value(0), value(2)), (value(1), value(3)), "{}", row.label);
    }
}

/// A sample's misses are within 5 % (L1) and 8 % (L2) of the whole product's, from size 192 on.
/// Size 96 is never sampled.
#[test]
fn a_sample_is_like_the_whole() {
    let shape = CacheShape::default();
    let sample = Sample {
        full: 1,
        ..Sample::default()
    };
    for (codename, n) in [
        ("matmul_naive_grouped", 240),
        ("matmul_rmcm_vector", 240),
        ("matmul_blocked_rmcm", 240),
        ("matmul_naive_grouped", 192),
        ("matmul_rmcm_vector", 192),
        ("matmul_blocked_rmrm", 192),
        ("matmul_blocked_rmcm", 192),
        ("matmul_morton_4_2", 192),
        ("matmul_morton_4_4", 192),
    ] {
        let pattern = pattern(codename).unwrap();
        let (part, all) = (
            misses(&pattern, n, &shape, sample),
            misses(&pattern, n, &shape, Sample::default()),
        );
        let (part, all) = (part.unwrap(), all.unwrap());
        assert!(all.counted == all.groups && part.counted < part.groups);
        assert!(
            (part.l1 / all.l1 - 1.0).abs() < 0.05,
            "{codename} {n}: {} of {}",
            part.l1,
            all.l1
        );
        assert!(
            (part.l2 / all.l2 - 1.0).abs() < 0.08,
            "{codename} {n}: {} of {}",
            part.l2,
            all.l2
        );
    }
}

/// At size 4096, rows are 16 KiB apart and compete for few cache sets. Compares the misses in L1
/// and L2 with those at 4000.
#[test]
fn powers_of_two() {
    let collapse = |codename: &str, shape: &CacheShape| {
        let pattern = pattern(codename).unwrap();
        let sample = Sample {
            places: 1,
            ..Sample::default()
        };
        let [even, odd] = [4096, 4000].map(|n| misses(&pattern, n, shape, sample).unwrap());
        assert!(even.counted < even.groups);
        [even.l1 / odd.l1, even.l2 / odd.l2]
            .map(|r| r * (even.iterations / odd.iterations).recip() * (4096.0f64 / 4000.0).powi(3))
    };
    let mali = CacheShape::default();
    let [l1, l2] = collapse("matmul_blocked_rmcm", &mali);
    assert!(l1 > 5.0 && l2 > 10.0, "blocked: {l1} {l2}");
    // Morton 4-2 needs half as many lines of a set as the blocked kernel. That is too many for 4
    // ways.
    let [l1, l2] = collapse("matmul_morton_4_2", &mali);
    assert!(l1 > 5.0 && l2 > 10.0, "Morton 4-2: {l1} {l2}");
    // 32 ways hold the 24 lines that Morton 4-2 needs, but not the 48 of the blocked kernel.
    // Kernels that keep more rows side by side do not need the ways.
    let wide = CacheShape {
        l1_ways: 32,
        l2_ways: 32,
        ..mali
    };
    assert!(
        collapse("matmul_morton_4_2", &wide)
            .iter()
            .all(|r| *r < 1.1)
    );
    assert!(
        collapse("matmul_blocked_rmcm", &wide)
            .iter()
            .all(|r| *r > 3.0)
    );
    assert!(collapse("matmul_morton_4_4", &mali)[0] < 3.5);
    assert!(collapse(MORTON_8_2, &mali).iter().all(|r| *r < 1.1));
}

/// The packed kernels never miss more often than Morton 4-2. At size 4096 they miss no more often
/// than at 4000.
#[test]
fn packed_operands() {
    let shape = CacheShape::default();
    let sample = Sample {
        places: 1,
        ..Sample::default()
    };
    let per_madd = |codename: &str, n: usize| {
        let m = misses(&pattern(codename).unwrap(), n, &shape, sample).unwrap();
        [m.l1 / m.madds, m.l2 / m.madds]
    };
    for codename in ["matmul_packed_4x4", "matmul_packed_4x4_k4"] {
        for n in [96, 192, 384, 768, 1440, 2880] {
            let (packed, morton) = (per_madd(codename, n), per_madd("matmul_morton_4_2", n));
            assert!(
                packed[0] < 0.65 * morton[0] && packed[1] <= morton[1],
                "{n}: {packed:?} {morton:?}"
            );
        }
        let (even, odd) = (per_madd(codename, 4096), per_madd(codename, 4000));
        assert!(
            (0..2).all(|level| even[level] < 1.01 * odd[level]),
            "{even:?} {odd:?}"
        );
    }
}

/// The sizes h, l and w of a product, and the unit that reads. `row` and `col` number its tile
/// along rows and columns, as the kernel's ids count tiles.
struct At {
    h: usize,
    l: usize,
    w: usize,
    row: usize,
    col: usize,
}

/// Returns the elements of a and of b that one unit (a work-item, or a work-group that stages)
/// reads for the terms from k on. The addresses are those that the kernel's source computes.
fn kernel_reads(kernel: &Kernel, at: &At, k: usize) -> Option<[Vec<usize>; 2]> {
    let &At { h, l, w, row, col } = at;
    let four = |starts: &[usize]| {
        starts
            .iter()
            .flat_map(|s| 4 * s..4 * s + 4)
            .collect::<Vec<_>>()
    };
    let define = |name: &str| {
        kernel
            .defines
            .iter()
            .find(|d| d.name == name)
            .map_or(0, |d| d.value as usize)
    };
    let (l4, w4, k4) = (l / 4, w / 4, k / 4);
    // The blocked kernels read four rows of float4, which are w4 float4 apart in b.
    let down = |p: usize| four(&[p, p + w4, p + 2 * w4, p + 3 * w4]);
    Some(match &*kernel.function {
        "matmul_naive" | "matmul_scalar_nn" => [vec![row * l + k], vec![k * w + col]],
        "matmul_rmcm" | "matmul_scalar_nt" => [vec![row * l + k], vec![col * l + k]],
        "matmul_columns" => [vec![row + h * k], vec![k + l * col]],
        "matmul_rmcm_vector" => [four(&[row * l4 + k4]), four(&[col * l4 + k4])],
        "matmul_sgemm" => [
            (row * l + k..row * l + k + 4).collect(),
            (0..4).map(|i| col + k * w + i * w).collect(),
        ],
        "matmul_blocked_rmrm" | "matmul_blocked_nn" | "matmul_cacheblocked_nn" => {
            [four(&[row * l4 + k4]), down(col + 4 * w4 * k4)]
        }
        "matmul_blocked_rmcm" | "matmul_blocked_nt" | "matmul_cacheblocked_nt" => [
            four(&[2 * row * l4 + k4, 2 * row * l4 + k4 + l4]),
            four(&[2 * col * l4 + k4, 2 * col * l4 + k4 + l4]),
        ],
        "matmul_blocked_nt_1x4x4" | "matmul_cacheblocked_nt_1x4x4" => [
            four(&[row * l4 + k4]),
            four(&[0, 1, 2, 3].map(|i| 4 * col * l4 + k4 + i * l4)),
        ],
        "matmul_image" => [
            (0..8)
                .map(|i| (8 * row + i).min(h - 1) * l + k)
                .flat_map(|s| s..s + 4)
                .collect(),
            // Pixel (x, y) of the image holds columns 4x to 4x + 3 of row y of the matrix.
            four(&[0, 1, 2, 3].map(|i| (k + i) * w4 + col)),
        ],
        "affine_image" => [
            four(&[0, 1, 2, 3].map(|i| (k + i) * (h / 4) + row)),
            (0..8)
                .map(|i| (8 * col + i) * l + k)
                .flat_map(|s| s..s + 4)
                .collect(),
        ],
        "matmul_morton_4_2" | "affine_morton_4_2" => {
            let (a, b) = (row * l / 2 + 2 * k4, col * l / 2 + 2 * k4);
            [four(&[a, a + 1]), four(&[b, b + 1])]
        }
        "matmul_morton_4_4" => {
            let place = |i: usize| (i >> 1) * l + (i & 1) * 2 + k;
            [
                four(&[place(row), place(row) + 1]),
                four(&[place(col), place(col) + 1]),
            ]
        }
        "matmul_packed_4x4" | "affine_packed_4x4" | "layers_packed_4x4" => {
            let ks = k..k + define("K_STEP");
            let place = |i: usize, k: usize| (i >> 2) * 4 * l + 4 * k + (i & 3);
            let of = |i: usize| four(&ks.clone().map(|k| place(i, k)).collect::<Vec<_>>());
            // The work-items of the kernel count down a panel first, then along the records, then
            // along the panels.
            let t = row / 4 * 16 + col % 4 * 4 + row % 4;
            let layers = &*kernel.function == "layers_packed_4x4";
            if layers {
                [of((t >> 4) * 4 + (t & 3)), of(col / 4 * 4 + (t >> 2 & 3))]
            } else {
                [of(row), of(col)]
            }
        }
        "matmul_panel" | "affine_panel" => {
            let a = |k: usize| 16 * (2 * (row * l) + 2 * k)..16 * (2 * (row * l) + 2 * k + 2);
            let b = |n: usize| 10 * col * l + 10 * k + 16 * n..10 * col * l + 10 * k + 16 * n + 16;
            [
                (k..k + 16).flat_map(a).collect(),
                (0..10).flat_map(b).collect(),
            ]
        }
        "matmul_columns_local" | "matmul_columns_local_vector" => {
            let tile = define("TILE");
            let pairs = || (0..tile).flat_map(|j| (0..tile).map(move |i| (i, j)));
            [
                pairs().map(|(i, j)| row * tile + i + h * (k + j)).collect(),
                pairs().map(|(i, j)| k + i + l * (col * tile + j)).collect(),
            ]
        }
        "matmul_tiled" | "matmul_mma" | "affine_tiled" | "affine_mma" => {
            let tile = kernel.restrictions.tile?;
            let mma = kernel.restrictions.needs.warp;
            let ks = k..l.min(k + define("BK"));
            // A work-group's tile has one panel, or one for each of its warps.
            let panels = define("WARPS").max(1);
            let fours = tile.0 / panels / 4;
            let quads = |panel: usize| {
                ks.clone()
                    .flat_map(move |k| (0..fours).map(move |i| (panel * l + k) * fours + i))
            };
            let a = (row * panels..(row + 1) * panels)
                .filter(|p| 4 * p * fours < h)
                .flat_map(quads);
            let a = four(&a.collect::<Vec<_>>());
            let cols = || (0..tile.1).map(|c| (col * tile.1 + c).min(w - 1));
            let b = if define("RECORDS") == 1 || mma {
                cols()
                    .flat_map(|c| ks.clone().map(move |k| c * l + k))
                    .collect()
            } else {
                let quads = (0..tile.1 / 4).map(|q| (col * tile.1 / 4 + q).min(w4 - 1));
                four(
                    &quads
                        .flat_map(|q| ks.clone().map(move |k| k * w4 + q))
                        .collect::<Vec<_>>(),
                )
            };
            [a, b]
        }
        "affine_narrow" => {
            let ks = k..l.min(k + 256);
            let b = match define("RECORDS") {
                1 => (0..4)
                    .flat_map(|c| ks.clone().map(move |k| (4 * col + c) * l + k))
                    .collect(),
                _ => four(&ks.clone().map(|k| k * w4 + col).collect::<Vec<_>>()),
            };
            [four(&ks.map(|k| k * (h / 4) + row).collect::<Vec<_>>()), b]
        }
        "affine_few" | "affine_few_image" => {
            let (quads, slices) = (define("QUADS"), define("SLICES"));
            let ks = k..l.min(k + slices);
            let rows = row * quads..(h / 4).min((row + 1) * quads);
            let a = rows.flat_map(|quad| ks.clone().map(move |k| k * (h / 4) + quad));
            [
                four(&a.collect::<Vec<_>>()),
                ks.clone().map(|k| col * l + k).collect(),
            ]
        }
        "pair_records" | "layers_few" => {
            let a = (0..l).flat_map(|k| (0..h / 4).map(move |quad| quad + k * (h / 4)));
            [
                four(&a.collect::<Vec<_>>()),
                (col * l..col * l + l).collect(),
            ]
        }
        _ => return None,
    })
}

/// For every product of the library, the model reads the same elements as the kernel's address
/// formulas, unit by unit and iteration by iteration.
#[test]
fn patterns_read_what_kernels_read() {
    let mut products = 0;
    for kernel in library()
        .kernels
        .iter()
        .filter(|k| k.operation.is_product() && k.source.is_some())
    {
        let name = &kernel.codename;
        let pattern = pattern(name).unwrap_or_else(|| panic!("{name} has no row"));
        products += 1;
        for size in [32, 100, 160] {
            let walk = Walk::new(&pattern, size, 0);
            let [h, l, w] =
                [0, 1, 2].map(|i| pattern.sizes(size)[i].next_multiple_of(pattern.align[i]));
            let start = (h * l).next_multiple_of(1024);
            let tiles: HashSet<[usize; 2]> = (0..walk.groups())
                .flat_map(|g| (0..walk.turns[0] * walk.turns[1]).map(move |t| (g, t)))
                .flat_map(|(g, t)| walk.tiles(g, t, 0).map(move |x| (g, t, x)))
                .flat_map(|(g, t, x)| walk.tiles(g, t, 1).map(move |y| [x, y]))
                .collect();
            assert_eq!(
                tiles.len(),
                walk.range[0] * walk.range[1],
                "{name} {size}: each tile once"
            );
            let ends = [
                [0, 0],
                [walk.range[0] - 1, walk.range[1] - 1],
                [walk.range[0] / 2, walk.range[1] / 2],
            ];
            for (tile, step) in ends
                .iter()
                .flat_map(|t| walk.iterations.iter().map(move |s| (t, s)))
            {
                let (row, col) = (tile[pattern.row_dimension], tile[1 - pattern.row_dimension]);
                let kernel_reads = kernel_reads(kernel, &At { h, l, w, row, col }, step.k)
                    .unwrap_or_else(|| panic!("{name}: its addresses are not written down here"));
                let mut model = [HashSet::new(), HashSet::new()];
                let k_step = pattern.k_step.min(walk.l);
                let wide = |tile: &[u32], ks: &[u32], d: usize| {
                    vector(&tile[..walk.tile[d]]).max(vector(&ks[..k_step]))
                };
                let wide = [
                    wide(&walk.at[0].rows, &walk.at[0].cols, 0),
                    wide(&walk.at[1].cols, &walk.at[1].rows, 1),
                ];
                for load in &walk.loads {
                    let (parts, unit) = if load.right {
                        (&walk.at[1].cols, col)
                    } else {
                        (&walk.at[0].rows, row)
                    };
                    let place =
                        parts[unit * walk.tile[usize::from(load.right)] + load.tile] as usize;
                    if let Some(k) = walk.k_part(load, *step) {
                        let base = if load.right { start } else { 0 };
                        let first = place + k as usize - base;
                        let operand = usize::from(load.right);
                        // A tile that extends beyond the matrix reads its last row or column again.
                        let hangs = unit * walk.tile[operand] + load.tile >= [h, w][operand];
                        model[operand].extend(first..first + if hangs { 1 } else { wide[operand] });
                    }
                }
                for (i, elements) in kernel_reads.iter().enumerate() {
                    let elements: HashSet<usize> = elements.iter().copied().collect();
                    assert!(
                        model[i] == elements,
                        "{name} {size} {tile:?} k {}: operand {i}",
                        step.k
                    );
                }
            }
        }
    }
    assert_eq!(products + 1, patterns().len());
}

/// `row_dimension` agrees with the ids from which the kernel's source takes its row and column.
#[test]
fn dimension_0_is_the_kernels() {
    for (path, text) in library_sources() {
        let ids = |names: &[&str]| {
            names.iter().find_map(|name| {
                ["get_global_id(", "get_group_id("].iter().find_map(|f| {
                    let rest =
                        &text[text.find(&format!("{name}={f}"))? + name.len() + 1 + f.len()..];
                    rest.chars().next()?.to_digit(10)
                })
            })
        };
        for kernel in library()
            .kernels
            .iter()
            .filter(|k| k.source.as_deref() == Some(path))
        {
            let Some(p) = Pattern::of(kernel) else {
                continue;
            };
            let panel = kernel.function.ends_with("_panel");
            // The work-items of a panel kernel renumber themselves, and the kernel for all layers
            // has only one dimension.
            assert_eq!(
                p.row_dimension == 1,
                kernel.restrictions.columns_first || panel,
                "{path}"
            );
            let found = [
                ids(&["row", "i", "x", "panel"]),
                ids(&["col", "j", "first"]),
            ];
            let expected = [p.row_dimension as u32, 1 - p.row_dimension as u32];
            let any = found.iter().any(Option::is_some);
            assert!(
                any || panel || kernel.operation == Operation::Layers,
                "{path}: no ids found"
            );
            for (found, expected) in found.iter().zip(expected) {
                assert!(found.is_none_or(|f| f == expected), "{path}: {found:?}");
            }
        }
    }
    assert_eq!(pattern("matmul_blocked_nt").unwrap().row_dimension, 0);
    assert_eq!(pattern("matmul_cacheblocked_nt").unwrap().row_dimension, 1);
}

fn library_sources() -> impl Iterator<Item = (&'static str, &'static str)> {
    crate::baked::sources()
        .unwrap()
        .iter()
        .map(|(path, text)| (&**path, &**text))
}

/// The NN kernel loads whole columns of a row-major B, so it needs a page per row. NT does not. A
/// barrier bounds the pages that are needed at a time (ARM, §1.4.9).
#[test]
fn pages_are_arms() {
    let shape = CacheShape::default();
    let of = |codename: &str| pages(&pattern(codename).unwrap(), 1024, &shape);
    // The 1024 rows of B have 4096 bytes, so each is a page. A adds one page for each of the 16
    // rows that the core's groups load.
    assert_eq!(of("matmul_scalar_nn"), [1024.0 + 16.0, 128.0 + 16.0]);
    // The core's groups load 8 columns of B (two groups of 4) and 16 rows of A, a page each.
    assert_eq!(of("matmul_scalar_nt"), [8.0 + 16.0; 2]);
    let large = CacheShape {
        page: 1 << 16,
        ..shape
    };
    assert_eq!(
        pages(&pattern("matmul_scalar_nt").unwrap(), 1024, &large),
        [2.0; 2]
    );
}

#[test]
fn a_device_tells_line_cache_and_cores() {
    let s = CacheShape::told(64, 128 << 10, 4).unwrap();
    assert_eq!(s, CacheShape::default());
    let s = CacheShape::told(128, 50 << 20, 132).unwrap();
    assert_eq!(
        (s.line, s.l1_lines, s.l2_lines, s.cores),
        (128, 128, 409_600, 132)
    );
    assert_eq!(
        CacheShape::told(64, 3 * 64 * 1024, 2).map(|s| (s.l2_ways, s.check())),
        Some((8, Ok(())))
    );
    assert_eq!(
        CacheShape::told(64, 64 * 7, 2).map(|s| (s.l2_ways, s.check())),
        Some((7, Ok(())))
    );
    for (line, bytes) in [(0, 1 << 20), (64, 0), (48, 1 << 20)] {
        assert_eq!(CacheShape::told(line, bytes, 4), None, "{line} {bytes}");
    }
    // A sample cannot fill so large a cache within the limit. The product is left out, with a
    // reason.
    let large = CacheShape {
        l2_lines: 1 << 20,
        ..CacheShape::default()
    };
    let sample = Sample {
        most: 1_000_000,
        ..Sample::default()
    };
    let why = misses(&pattern("matmul_naive").unwrap(), 1024, &large, sample).unwrap_err();
    assert!(
        why.contains("an L2 of 65536 KiB") && why.contains("--cache l2_lines"),
        "{why}"
    );
}

#[test]
fn shapes_are_read() {
    let read = |text: &str| {
        let mut s = CacheShape::default();
        s.set(text).and_then(|()| s.check()).map(|()| s)
    };
    let mali =
        "line=64,l1_lines=256,l1_ways=4,l2_lines=2048,l2_ways=8,cores=4,threads=128,page=4096";
    assert_eq!(read(mali), Ok(CacheShape::default()));
    assert_eq!(read(""), Ok(CacheShape::default()));
    assert_eq!(read("cores=2").unwrap().cores, 2);
    for (text, part) in [
        ("l1=3", "expected one of line, l1_lines"),
        ("line=48", "power of two"),
        (
            "page=32",
            "page=32: expected a power of two from line=64 on",
        ),
        ("line", "found \"\""),
        ("cores=0", "found \"0\""),
        ("l1_ways=3", "does not divide l1_lines=256"),
        ("l2_lines=100000000", "at most"),
    ] {
        let error = read(text).unwrap_err();
        assert!(error.contains(part), "{text}: {error}");
    }
}

/// Barriers change nothing as long as threads do not drift apart. So a cache-blocked kernel misses
/// as often as its plain counterpart in a work-group of the same shape. The 2×4×2 pair has its
/// dimensions the other way round, as ARM's listings have.
#[test]
fn barriers_change_no_misses() {
    let shape = CacheShape::default();
    for kind in ["nn", "nt", "nt_1x4x4"] {
        let [plain, barriers] = ["", "cache"].map(|cache| {
            let pattern = pattern(&format!("matmul_{cache}blocked_{kind}")).unwrap();
            misses(&pattern, 192, &shape, Sample::default()).unwrap()
        });
        for (plain, barriers) in [(plain.l1, barriers.l1), (plain.l2, barriers.l2)] {
            let ratio = barriers / plain;
            let near = if kind == "nt" {
                0.5..2.0
            } else {
                1.0..1.0 + f64::EPSILON
            };
            assert!(near.contains(&ratio), "{kind}: {ratio}");
        }
    }
}

/// The table has the figures that ARM gives: 5 and 4 loads an iteration, 1.25 and 1 elements a
/// multiply-add, 16 iterations, ΔK above 16.
#[test]
fn loads_and_barriers_are_arms() {
    let s = arm_loads(&CacheShape::default());
    let cell = |kernel: &str, column: usize| match &s
        .rows
        .iter()
        .find(|r| r.label == kernel)
        .unwrap()
        .cells[column]
    {
        Cell::Measured(m) => m.value,
        Cell::Document(v) => *v,
        _ => f64::NAN,
    };
    for row in &s.rows {
        assert_eq!(cell(&row.label, 0), cell(&row.label, 1), "{}", row.label);
    }
    assert_eq!(
        [0, 2, 3].map(|i| cell("matmul_blocked_nn", i)),
        [1.25, 5.0, 16.0]
    );
    assert_eq!(
        [0, 2, 4, 5].map(|i| cell("matmul_blocked_nt", i)),
        [1.0, 4.0, 16.0, 32.0]
    );
}

#[test]
fn a_report_is_whole() {
    let sections = report(
        &CacheShape::default(),
        &[96, 200],
        Sample {
            full: 1,
            places: 1,
            ..Sample::default()
        },
    );
    let mut ids: Vec<&str> = sections.iter().map(|s| s.id.as_str()).collect();
    for s in &sections {
        assert!(
            !s.rows.is_empty() && s.rows.iter().all(|r| r.cells.len() == s.columns.len()),
            "{}",
            s.id
        );
        for cell in s.rows.iter().flat_map(|r| &r.cells) {
            assert!(
                !matches!(cell, Cell::Measured(m) if !m.value.is_finite() || m.value <= 0.0),
                "{}",
                s.id
            );
        }
    }
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), sections.len());
    let misses = sections.iter().find(|s| s.id == "cache_misses_l1").unwrap();
    assert!(misses.notes.iter().any(|n| n.contains("96 in full")));
}
