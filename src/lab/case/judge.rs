//! Compares the results of kernels with references in float64.

use super::Trouble;
use super::guarded::written_outside;
use super::operands::{BORDER, Operands, power};
use super::problems::parts_before;
use super::setup::{KernelRun, Setup};
use crate::cl::Element;
use crate::engine::NAN_CLASS;
use crate::ir::layout::Layout;
use crate::ir::network::{Activation, Precision, argmax};
use crate::lab::reference;
use crate::ops::bound;
use crate::registry::{Kernel as Entry, Operation, Problem};
use std::ops::Range;

/// Returns the sizes of a problem in words, for example `17×9, common dimension 5`.
pub(crate) fn shape(p: Problem) -> String {
    if p.l == 0 {
        format!("{}×{}", p.h, p.w)
    } else {
        format!("{}×{}, common dimension {}", p.h, p.w, p.l)
    }
}

/// Returns the error for a wrong result on problem `p`.
pub(super) fn wrong_at(p: Problem, what: impl std::fmt::Display) -> Trouble {
    Trouble::Wrong(format!("{what} at {}", shape(p)))
}

/// Returns the layout of a kernel's result, which is row major if its entry names none.
pub(super) fn layout_of_result(entry: &Entry) -> Layout {
    let r = entry.restrictions.r.as_ref();
    r.and_then(|o| o.representation.clone())
        .unwrap_or(Layout::R)
}

/// Compares the results of a run with a reference in float64, and checks the canaries. Returns the
/// largest error in units of the bound.
pub(super) fn judge(run: &KernelRun, setup: &Setup, data: &Operands) -> Result<f64, Trouble> {
    let real = data.real;
    if let Some(name) = written_outside(&setup.buffers)? {
        return Err(wrong_at(real, format!("wrote outside {name}")));
    }
    let results = Results {
        entry: run.entry,
        activation: run.activation,
        setup,
        data,
    };
    let excess = match run.entry.operation {
        Operation::Matmul | Operation::Affine => results.product()?,
        Operation::Reduce => results.reduce()?,
        Operation::Pair | Operation::ReducePair => results.pair()?,
        Operation::Bias => {
            let biases = &data.first.biases;
            let exact = |i: usize| f64::from(data.r[i]) + f64::from(biases[i / real.w]);
            reference::elementwise(&results.matrix()?, exact, 2f64.powi(-24))
        }
        Operation::Sigmoid | Operation::Relu | Operation::Activation => results.activation()?,
        Operation::Repack => results.repack()?,
        Operation::ArgMax => results.classes()?,
        Operation::Sobel => results.sobel()?,
        Operation::Probe => results.probe()?,
        Operation::Order => results.order()?,
        // `Lab::check_layers` and `Lab::check_nodes` check these operations instead.
        Operation::Layers
        | Operation::Convolution
        | Operation::Pool
        | Operation::Scale
        | Operation::Combine
        | Operation::Resample
        | Operation::Product
        | Operation::Softmax
        | Operation::Gather => 0.0,
    };
    match excess {
        e if e <= 1.0 => Ok(excess),
        e if e.is_finite() => {
            let what = format!("an error of {excess:.2} times the bound");
            Err(wrong_at(real, what))
        }
        _ => Err(wrong_at(real, "NaN, or an overflow that was lost,")),
    }
}

/// The results of a run and the operands that they come from. Each check of an operation returns
/// the largest error in units of the bound.
struct Results<'a> {
    entry: &'a Entry,
    activation: Activation,
    setup: &'a Setup,
    data: &'a Operands,
}

impl Results<'_> {
    fn wrong(&self, what: String) -> Trouble {
        wrong_at(self.data.real, what)
    }

    fn read<T: Element + Default>(&self, name: &str, count: usize) -> Result<Vec<T>, Trouble> {
        match self.setup.buffer(name) {
            Some(buffer) => Ok(buffer.read(count)?),
            None => Ok(Vec::new()),
        }
    }

    /// Reads the result matrix, row major and without padding.
    fn matrix(&self) -> Result<Vec<f32>, Trouble> {
        let (real, Problem { h, w, .. }) = (self.data.real, self.setup.padded);
        if self.setup.buffer("r").is_none() {
            return Ok(Vec::new());
        }
        let packed = self.read("r", h * w)?;
        Ok(layout_of_result(self.entry).unpack(&packed, (real.h, real.w), (h, w)))
    }

    /// Returns the factor for a row's sum of parts: the quantization scale of the row if weights
    /// are bytes, else 1.
    fn scale(&self, row: usize) -> f32 {
        match self.data.weights {
            Precision::I8 => power(row),
            _ => 1.0,
        }
    }

    fn product(&self) -> Result<f64, Trouble> {
        let data = self.data;
        let affine = self.entry.operation == Operation::Affine;
        let product = reference::Product {
            real: data.real,
            a: &data.first.weights,
            b: &data.b,
            c: &data.r,
            bias: affine.then_some(&*data.first.biases),
            alpha: data.alpha,
            beta: data.beta,
            activation: self.activation,
        };
        Ok(product.excess(&self.matrix()?))
    }

    /// Checks the sums of a `reduce` kernel as a product: a row of ones times the parts.
    fn reduce(&self) -> Result<f64, Trouble> {
        let (data, Problem { h, w, l }) = (self.data, self.data.real);
        let scaled = |(i, x): (usize, &f32)| x * self.scale(i / w % h);
        let biases = data.first.biases.iter();
        let product = reference::Product {
            real: Problem { h: 1, w: h * w, l },
            a: &vec![1.0; l],
            b: &data.b.iter().enumerate().map(scaled).collect::<Vec<_>>(),
            c: &biases.flat_map(|&x| vec![x; w]).collect::<Vec<_>>(),
            bias: None,
            alpha: 1.0,
            beta: 1.0,
            activation: self.activation,
        };
        Ok(product.excess(&self.matrix()?))
    }

    fn pair(&self) -> Result<f64, Trouble> {
        let (data, Problem { h, w, .. }) = (self.data, self.data.real);
        let found = self.matrix()?;
        let finite = |c: &usize| data.b.iter().skip(*c).step_by(w).all(|v| v.is_finite());
        let (finite, overflowed): (Vec<usize>, Vec<usize>) = (0..w).partition(finite);
        let column = |c: usize| {
            let scores = self.pair_scores(c);
            bound::excess(&scores, (0..h).map(|i| found[i * w + c]))
        };
        let lost = overflowed
            .into_iter()
            .flat_map(|c| found.iter().skip(c).step_by(w))
            .map(|&v| reference::lost(v));
        let all = finite.into_iter().map(column).chain(lost);
        Ok(all.fold(0.0, f64::max))
    }

    /// Computes column `c` of the result of two layers in float64.
    fn pair_scores(&self, c: usize) -> Vec<f64> {
        let (data, Problem { h, w, l }) = (self.data, self.data.real);
        let m = data.middle();
        let ones = vec![1.0; parts_before(l)];
        let dot = |a: &[f32], b: &dyn Fn(usize) -> f64| -> f64 {
            let terms = a.iter().enumerate();
            terms.map(|(i, &x)| f64::from(x) * b(i)).sum()
        };
        let b = |row: usize| f64::from(data.b[row * w + c]);
        let between = |i: usize| {
            let x = match data.first.weights.get(i * l..(i + 1) * l) {
                Some(row) => dot(row, &b),
                // A `reducepair` kernel has no weights of the first layer. There the sum of the
                // parts is a product with ones.
                None => f64::from(self.scale(i)) * dot(&ones, &|k| b(k * m + i)),
            };
            self.activation.apply(x + f64::from(data.first.biases[i]))
        };
        let between: Vec<f64> = (0..m).map(between).collect();
        let score = |i: usize| {
            let row = &data.second.weights[i * m..][..m];
            dot(row, &|k| between[k]) + f64::from(data.second.biases[i])
        };
        (0..h).map(score).collect()
    }

    fn activation(&self) -> Result<f64, Trouble> {
        let own = self.entry.operation.activation();
        let activation = own.unwrap_or(self.activation);
        let exact = |i: usize| match self.data.r[i] {
            x if x.is_finite() => activation.apply(f64::from(x)),
            _ => f64::NAN,
        };
        Ok(reference::elementwise(
            &self.matrix()?,
            exact,
            2f64.powi(-20),
        ))
    }

    /// Checks that a repack copied every element unchanged. It must also put zeros into the
    /// padding, which held NaN.
    fn repack(&self) -> Result<f64, Trouble> {
        let (real, Problem { h, w, .. }) = (self.data.real, self.setup.padded);
        let found: Vec<f32> = self.read("r", h * w)?;
        let layout = self.entry.layout(&self.entry.operation.parameters()[1]);
        let expected = layout.pack(&self.data.b, (real.h, real.w), (h, w), 0.0);
        match (0..h * w).find(|&i| found[i].to_bits() != expected[i].to_bits()) {
            Some(i) => Err(self.wrong(format!("element {i} is {}, not {}", found[i], expected[i]))),
            None => Ok(0.0),
        }
    }

    fn classes(&self) -> Result<f64, Trouble> {
        let Problem { w, l, .. } = self.data.real;
        for (column, class) in self.read::<u32>("classes", w)?.into_iter().enumerate() {
            let value = |i: usize| f64::from(self.data.b[i * w + column]);
            let values: Vec<f64> = (0..l).map(value).collect();
            let expected = match values.iter().all(|v| v.is_finite()) {
                true => argmax(&values),
                false => NAN_CLASS,
            };
            if class != expected {
                let what = format!("column {column} has class {class}, not {expected}");
                return Err(self.wrong(what));
            }
        }
        Ok(0.0)
    }

    fn sobel(&self) -> Result<f64, Trouble> {
        let Problem { h, w, .. } = self.data.real;
        for (name, horizontal) in [("dx", true), ("dy", false)] {
            let found: Vec<u8> = self.read(name, h * w)?;
            for band in bands(self.data.real) {
                let (first, last) = (band.start * w, band.end * w);
                let image = &self.data.image[first..last];
                let expected = reference::sobel(image, band.len(), w, horizontal, BORDER);
                // The reference treats the first and last row of a band as the image's border.
                // Inside the image they are not, so they are not compared.
                let from = if band.start == 0 { 0 } else { w };
                let to = expected.len() - if band.end == h { 0 } else { w };
                if let Some(i) = (from..to).find(|&i| found[first + i] != expected[i]) {
                    let (y, x) = ((first + i) / w, i % w);
                    return Err(self.wrong(format!(
                        "{name}({y}, {x}) is {}, not {}",
                        found[first + i] as i8,
                        expected[i] as i8
                    )));
                }
            }
        }
        Ok(0.0)
    }

    fn probe(&self) -> Result<f64, Trouble> {
        let data = self.data;
        let copy = self.entry.restrictions.args.is_empty();
        let exact = |i: usize| match data.first.weights[i] {
            x if copy => x.into(),
            x => reference::probe(x, data.real.l),
        };
        Ok(reference::elementwise(&self.matrix()?, exact, 1e-5))
    }

    fn order(&self) -> Result<f64, Trouble> {
        let Problem { h, w, .. } = self.data.real;
        let mut seen: Vec<u32> = self.read("r", h * w)?;
        seen.sort_unstable();
        match seen.iter().zip(1..).all(|(&found, n)| found == n) {
            true => Ok(0.0),
            false => Err(self.wrong("the numbers are not 1 to the number of work-items".into())),
        }
    }
}

/// Returns the rows of a Sobel result that are compared: all rows, or eight bands of a large image.
fn bands(real: Problem) -> Vec<Range<usize>> {
    const ROWS: usize = 64;
    if real.h * real.w <= 1 << 22 || real.h <= 8 * ROWS {
        return std::iter::once(0..real.h).collect();
    }
    (0..8)
        .map(|i| i * (real.h - ROWS) / 7)
        .map(|start| start..start + ROWS)
        .collect()
}
