//! The order in which each matrix-product kernel of the library reads and writes its matrices.

use crate::baked::library;
use crate::ir::layout::Layout;
use crate::registry::{Kernel, Most, Operand, Operation, lcm};

/// The order in which a kernel reads and writes its matrices. A unit computes one tile of the
/// result at a time. It is a work-item, or a work-group that stages its operands in local memory.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pattern {
    /// Name of the kernel in the library.
    pub(super) codename: String,
    /// Layouts of the left operand, the right operand and the result.
    pub(super) layouts: [Layout; 3],
    /// Multiples that the height, the common dimension and the width of a product are padded to.
    pub(super) align: [usize; 3],
    /// The largest problem that the kernel is meant for.
    pub(super) most: Most,
    /// The rows and columns of the result tile that a unit (work-item or staging work-group)
    /// computes at a time.
    pub(super) tile: [usize; 2],
    /// The size of a work-group in units (work-items or one staging group), along dimension 0,
    /// which runs fastest, and along dimension 1.
    pub(super) group: [usize; 2],
    /// The number of work-items of a work-group. They count against the threads that a core holds
    /// at a time.
    pub(super) items: usize,
    /// The dimension of the work-group, 0 or 1, in which neighbouring units compute different rows
    /// of the result. In the other dimension they compute different columns.
    pub(super) row_dimension: usize,
    /// The terms of each dot product that one iteration of the k loop adds.
    pub(super) k_step: usize,
    /// The number of tiles that a unit (work-item or staging work-group) computes one after the
    /// other, along rows and columns. Between two of them lie the tiles of its group's other units.
    pub(super) turns: [usize; 2],
    /// The terms of each dot product that a unit (work-item or staging work-group) adds for one
    /// tile before it goes to its next tile.
    pub(super) block: usize,
}

/// A count in a [`Pattern`] that means all work-items, tiles or terms, however many there are.
pub(super) const WHOLE: usize = usize::MAX;

/// The value of BLOCK in the `panel.cl` sources of matmul and affine. A unit adds this many terms
/// for one panel before it goes to its next tile.
const PANEL_BLOCK: usize = 512;

impl Pattern {
    /// Returns the pattern of `kernel` from its entry in the library. For a kernel that computes
    /// several layers it is the pattern of the first layer. `None` if the kernel computes no
    /// product, or runs on the host engine, whose loops depend on the processor.
    ///
    /// A kernel whose work-group the driver chooses gets 32 × 1 work-items. A kernel that the lab
    /// times with many work-groups gets 4 × 16, which ARM (table 1.2) and the thesis choose.
    pub(super) fn of(kernel: &Kernel) -> Option<Pattern> {
        let r = &kernel.restrictions;
        let (Some(a), Some(b), Some(to), true) = (&r.a, &r.b, &r.r, kernel.operation.is_product())
        else {
            return None;
        };
        kernel.source.as_ref()?;
        // Kernels for few records accept any layout. Plans store records one after the other, which
        // is the layout `C`, so the model uses `C`.
        let layout = |o: &&Operand| {
            o.representation
                .clone()
                .or(kernel.of_few().then_some(Layout::C))
        };
        let layouts = [a, b, to].iter().map(layout).collect::<Option<Vec<_>>>()?;
        let (down, across) = match r.work_group {
            _ if !r.sweep.is_empty() => (4, 16),
            Some(group) => r.dimensions(group),
            None => (32, 1),
        };
        let (scale_rows, scale_cols) = r.scale;
        let mut pattern = Pattern {
            codename: kernel.codename.to_string(),
            layouts: layouts.try_into().ok()?,
            align: [
                lcm(a.row_align, to.row_align),
                lcm(a.col_align, b.row_align),
                lcm(b.col_align, to.col_align),
            ],
            most: r.most,
            tile: [scale_rows, scale_cols],
            group: [down, across],
            items: down * across,
            row_dimension: usize::from(r.columns_first),
            k_step: a.col_align,
            turns: [1, 1],
            block: WHOLE,
        };
        pattern.follow_tile(kernel);
        Some(pattern)
    }

    /// Adapts the pattern, which describes single work-items so far, to a kernel whose work-groups
    /// have a tile.
    fn follow_tile(&mut self, kernel: &Kernel) {
        let r = &kernel.restrictions;
        let [scale_rows, scale_cols] = self.tile;
        let panel = kernel
            .source
            .as_ref()
            .is_some_and(|s| s.ends_with("panel.cl"));
        match (r.tile, kernel.operation) {
            // A work-group that stages its operands in local memory reads each element once. It
            // takes BK, TILE or SLICES terms at a time. Without such a define it takes all terms of
            // a record, or one term for each work-item.
            (tile, operation) if r.needs.local_bytes > 0 => {
                let [down, across] = self.group;
                let (rows, cols) = r.dimensions((down, across));
                let (rows, cols) = tile.unwrap_or((scale_rows * rows, scale_cols * cols));
                self.tile = [rows, cols];
                self.group = [1, 1];
                let of_record = matches!(operation, Operation::Pair | Operation::Layers);
                let all = if of_record { WHOLE } else { self.items };
                let define = |name: &str| kernel.define(name);
                let step = define("BK").or(define("TILE")).or(define("SLICES"));
                self.k_step = step.unwrap_or(all);
            }
            // In a kernel that computes all layers, a work-group takes the records of its tile and
            // goes down all rows.
            (Some((_, cols)), Operation::Layers) => {
                self.group = [self.items * scale_cols / cols, cols / scale_cols];
                self.turns = [WHOLE, 1];
            }
            // Kernels of `panel.cl` are for CPUs, where a core runs one work-group at a time. They
            // renumber their work-items so that records run fastest. A work-item computes one tile
            // for each panel of its work-group.
            (Some((rows, _)), _) if panel => {
                self.items = WHOLE;
                self.row_dimension = 1;
                self.turns = [1, rows / scale_rows];
                self.block = PANEL_BLOCK;
            }
            _ => {}
        }
    }

    /// Returns the height, the common dimension and the width of the product that is simulated for
    /// `size`. It is square unless it exceeds the kernel's largest problem.
    pub(super) fn sizes(&self, size: usize) -> [usize; 3] {
        let within = |n: usize, most: usize| if most == 0 { n } else { n.min(most) };
        let l = within(size, self.most.l);
        let mut h = within(within(size, self.most.h), self.most.weights / l);
        if h < size {
            h = h / self.align[0] * self.align[0];
        }
        [h, l, size]
    }
}

/// The name of a pattern that no kernel has. It is matmul_morton_4_2 with each four chunks in a
/// larger chunk. At sizes with many factors 2, distant rows would compete for few cache sets.
pub(super) const MORTON_8_2: &str = "(morton_8_2)";

/// Returns the pattern of the kernel with this codename, or [`MORTON_8_2`]'s. `None` if
/// [`Pattern::of`] has none.
pub(super) fn pattern(codename: &str) -> Option<Pattern> {
    if codename == MORTON_8_2 {
        let mut p = pattern("matmul_morton_4_2")?;
        p.codename = codename.to_string();
        p.layouts[0] = Layout::parse("R_8_4_R_2_4_R").ok()?;
        p.layouts[1] = Layout::parse("C_4_8_C_4_2_C").ok()?;
        p.align = [8, 4, 8];
        return Some(p);
    }
    let (_, kernel) = library().kernel(codename)?;
    Pattern::of(kernel)
}

/// Returns the patterns of all products of the library, in its order, followed by [`MORTON_8_2`]'s.
pub(super) fn patterns() -> Vec<Pattern> {
    library()
        .kernels
        .iter()
        .filter_map(Pattern::of)
        .chain(pattern(MORTON_8_2))
        .collect()
}
