//! Checks of kernels at sizes that hit every edge of their tiles.

use super::judge::{judge, layout_of_result, shape, wrong_at};
use super::operands::Operands;
use super::problems::{self, takes_any_layouts, with_layouts};
use super::setup::KernelRun;
use super::{Lab, Trouble, WorkGroup, nodes};
use crate::ir::layout::Layout;
use crate::ir::network::{Activation, Precision};
use crate::lab::reference;
use crate::registry::{Kernel as Entry, Operation, Problem};

/// A kernel and everything that its checks vary, except factors and activation.
struct Check<'a> {
    entry: &'a Entry,
    group: WorkGroup,
    /// Index into [`problems::layouts`] for a kernel that takes any layouts, else 0. Fused
    /// activations do not depend on layouts, so they are checked only with index 0.
    layouts: usize,
    /// Types that the kernel's weights may be stored as.
    stored: Vec<Precision>,
    problems: Vec<Problem>,
}

/// One variant of a check: a problem, the factors α and β, and an activation.
#[derive(Clone, Copy)]
struct CheckVariant {
    /// Index of the problem in [`Check::problems`].
    problem: usize,
    factors: (f32, f32),
    /// Index among the kernel's checked activations. From 1 on, `activation` is fused if the kernel
    /// fuses any.
    index: usize,
    activation: Activation,
}

impl Lab {
    /// Checks a kernel at sizes that hit every edge of its tiles. Without a fused activation, each
    /// size runs with canaries and with buffers of the exact size. A simulator runs the exact
    /// buffers only. Returns the largest error in units of the bound.
    pub(crate) fn check(&mut self, entry: &Entry, group: WorkGroup) -> Result<f64, Trouble> {
        if entry.operation == Operation::Layers {
            return self.check_layers(entry, group);
        }
        if nodes::of_image(entry.operation) {
            return self.check_nodes(entry, group);
        }
        let mut worst = 0.0f64;
        if takes_any_layouts(entry) {
            for (i, (from, to)) in problems::layouts(entry).iter().enumerate() {
                let entry = with_layouts(entry, from, to);
                worst = worst.max(self.check_layouts(&entry, group, i)?);
            }
        } else {
            worst = self.check_layouts(entry, group, 0)?;
        }
        if entry.rescales() {
            worst = worst.max(self.check_rescaled(entry, group)?);
        }
        Ok(worst)
    }

    fn check_layouts(
        &mut self,
        entry: &Entry,
        group: WorkGroup,
        layouts: usize,
    ) -> Result<f64, Trouble> {
        let stored = |&w: &Precision| entry.restrictions.weights(w) == w;
        let check = Check {
            entry,
            group,
            layouts,
            stored: Precision::ALL.into_iter().filter(stored).collect(),
            problems: problems::problems(entry, group),
        };
        let activations = problems::activations(entry, layouts == 0);
        let mut worst = 0.0f64;
        for problem in 0..check.problems.len() {
            for &factors in problems::factors(entry) {
                for (index, &activation) in activations.iter().enumerate() {
                    let variant = CheckVariant {
                        problem,
                        factors,
                        index,
                        activation,
                    };
                    worst = worst.max(self.check_variant(&check, variant)?);
                }
            }
        }
        Ok(worst)
    }

    fn check_variant(&mut self, check: &Check, variant: CheckVariant) -> Result<f64, Trouble> {
        let Check { entry, group, .. } = *check;
        let CheckVariant {
            problem: i,
            index: n,
            activation,
            ..
        } = variant;
        // Checks without an activation cover the edges of the sums, and a fused activation follows
        // the same sums. So two problems suffice, one inside a tile and one across several. A
        // simulator runs one of both.
        let fused = n > 0 && entry.fuses();
        let at = |problem: usize, odd: usize| i == problem && (!self.simulated || n % 2 == odd);
        if fused && !at(1, 0) && !at(check.problems.len() - 2, 1) {
            return Ok(0.0);
        }
        let split = entry.restrictions.split > 1 && activation == Activation::None;
        let canaries = match (self.simulated, fused) {
            (true, _) => &[false][..],
            (false, true) => &[true],
            (false, false) => &[true, false],
        };
        let mut worst = 0.0f64;
        for &weights in &check.stored {
            let all = !fused && check.layouts == 0;
            if !all && !self.tries(i + n + check.layouts, weights, &check.stored) {
                continue;
            }
            for &canaries in canaries {
                let mut random = self.random();
                let mut data =
                    Operands::draw(&mut random, entry, check.problems[i], variant.factors);
                data.store_as(weights);
                let overflows = entry.common().next().is_some()
                    || matches!(entry.operation, Operation::ArgMax | Operation::Repack);
                if overflows {
                    data.overflow();
                }
                let run = KernelRun {
                    entry,
                    activation,
                    group,
                    parts: 1,
                    canaries,
                };
                let setup = self.setup(&run, &data)?;
                if self.run(&setup)? {
                    worst = worst.max(judge(&run, &setup, &data)?);
                }
                if split && !canaries && self.tries(i, weights, &check.stored) {
                    worst = worst.max(self.check_parts(entry, group, data)?);
                }
            }
        }
        Ok(worst)
    }

    /// Returns true if check number `n` runs with weights stored as `weights`. A simulator takes
    /// the types that the kernel stores weights as in turn, one for each check. Other devices take
    /// all.
    pub(super) fn tries(&self, n: usize, weights: Precision, stored: &[Precision]) -> bool {
        !self.simulated || weights == stored[n % stored.len()]
    }

    /// Checks a launch whose work-groups split the common dimension and each write a partial sum.
    /// The sum of these parts must be the product.
    fn check_parts(
        &mut self,
        entry: &Entry,
        group: WorkGroup,
        mut data: Operands,
    ) -> Result<f64, Trouble> {
        const PARTS: usize = 3;
        let real = data.real;
        data.first.biases.fill(0.0);
        if data.weights == Precision::I8 {
            // Another kernel later adds up the parts and multiplies them with the quantization
            // scales. This kernel only sums products of integer weights and values.
            data.first.weights = data.first.numbers();
        }
        let run = KernelRun {
            entry,
            activation: Activation::None,
            group,
            parts: PARTS,
            canaries: !self.simulated,
        };
        let setup = self.setup(&run, &data)?;
        let Problem { h, w, .. } = setup.padded;
        if !self.run(&setup)? {
            return Ok(0.0);
        }
        let Some(parts) = setup.buffer("r") else {
            return Ok(0.0);
        };
        if !parts.intact()? {
            return Err(wrong_at(real, "wrote outside its parts"));
        }
        let size = (PARTS * h, w);
        let all = parts.read::<f32>(PARTS * h * w)?;
        let all = layout_of_result(entry).unpack(&all, size, size);
        let sum: Vec<f32> = (0..h * w)
            .map(|i| all[i] + all[h * w + i] + all[2 * h * w + i])
            .collect();
        let found = Layout::R.unpack(&sum, (real.h, real.w), (h, w));
        let product = reference::Product {
            real,
            a: &data.first.weights,
            b: &data.b,
            c: &data.r,
            bias: None,
            alpha: 1.0,
            beta: 0.0,
            activation: Activation::None,
        };
        match product.excess(&found) {
            excess if excess <= 1.0 => Ok(excess),
            excess => Err(Trouble::Wrong(format!(
                "the sum of {PARTS} parts is {excess:.2} times the bound off at {}",
                shape(real)
            ))),
        }
    }
}
