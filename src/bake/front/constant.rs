//! Constants: tensors whose numbers are known at build time, and what is computed of them alone.
//!
//! The number of records is the one integer that is not known; it may be handed on, and multiplied by 1.

use crate::bake::matrix::MOST_ELEMENTS;

/// An integer of a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Int {
    /// A number.
    Known(i64),
    /// As many as there are records.
    Records,
}

/// The elements of a constant, row-major.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Data {
    /// Floats of any width.
    Floats(Vec<f64>),
    /// Integers of any width, and truth values.
    Ints(Vec<Int>),
    /// Texts.
    Texts(Vec<String>),
}

/// A tensor that is known at build time.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Constant {
    /// Its sizes, outermost first.
    pub(super) dims: Vec<usize>,
    /// Its elements.
    pub(super) data: Data,
}

impl Constant {
    /// One of floats.
    pub(super) fn floats(dims: Vec<usize>, numbers: Vec<f64>) -> Constant {
        Constant { dims, data: Data::Floats(numbers) }
    }

    /// One of integers.
    pub(super) fn ints(dims: Vec<usize>, numbers: Vec<i64>) -> Constant {
        Constant { dims, data: Data::Ints(numbers.into_iter().map(Int::Known).collect()) }
    }

    /// Its elements.
    pub(super) fn len(&self) -> usize {
        match &self.data {
            Data::Floats(v) => v.len(),
            Data::Ints(v) => v.len(),
            Data::Texts(v) => v.len(),
        }
    }

    /// Its numbers as floats.
    ///
    /// # Errors
    /// Of texts, and of the number of records.
    pub(super) fn numbers(&self) -> Result<Vec<f64>, String> {
        match &self.data {
            Data::Floats(v) => Ok(v.clone()),
            Data::Ints(_) => Ok(self.integers()?.into_iter().map(|i| i as f64).collect()),
            Data::Texts(_) => Err("expected numbers, found texts".into()),
        }
    }

    /// Its numbers as integers.
    ///
    /// # Errors
    /// Of texts and floats, and of the number of records.
    pub(super) fn integers(&self) -> Result<Vec<i64>, String> {
        let Data::Ints(v) = &self.data else {
            return Err("expected integers, found other numbers or texts".into());
        };
        let known = |i: &Int| match i {
            Int::Known(i) => Ok(*i),
            Int::Records => Err("it depends on the number of records".to_string()),
        };
        v.iter().map(known).collect()
    }

    /// Its one number.
    ///
    /// # Errors
    /// Of more than one.
    pub(super) fn number(&self) -> Result<f64, String> {
        match self.numbers()?[..] {
            [x] => Ok(x),
            _ => Err(format!("expected one number, found {}", self.len())),
        }
    }

    /// The same elements with other sizes.
    pub(super) fn with_dims(&self, dims: Vec<usize>) -> Constant {
        Constant { dims, data: self.data.clone() }
    }

    /// Elements `at` of it, with sizes `dims`.
    pub(super) fn pick(&self, dims: Vec<usize>, at: &[usize]) -> Constant {
        let data = match &self.data {
            Data::Floats(v) => Data::Floats(at.iter().map(|&i| v[i]).collect()),
            Data::Ints(v) => Data::Ints(at.iter().map(|&i| v[i]).collect()),
            Data::Texts(v) => Data::Texts(at.iter().map(|&i| v[i].clone()).collect()),
        };
        Constant { dims, data }
    }
}

/// The elements of sizes, if they are not too many.
pub(super) fn elements(dims: &[usize]) -> Option<usize> {
    dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d)).filter(|&n| n <= MOST_ELEMENTS)
}

/// For each element of a tensor of sizes `to`, the element of one of sizes `from` that stands there when that is repeated
/// along axes of size 1; `None` where the two do not meet.
pub(super) fn repeated(from: &[usize], to: &[usize]) -> Option<Vec<usize>> {
    let ahead = to.len().checked_sub(from.len())?;
    if from.iter().zip(&to[ahead..]).any(|(&f, &t)| f != t && f != 1) {
        return None;
    }
    let mut at = vec![0; elements(to)?];
    let (mut stride, mut inner) = (1, 1);
    for axis in (0..to.len()).rev() {
        let size = if axis >= ahead { from[axis - ahead] } else { 1 };
        if size > 1 {
            at.iter_mut().enumerate().for_each(|(i, a)| *a += i / inner % to[axis] * stride);
        }
        (stride, inner) = (stride * size, inner * to[axis]);
    }
    Some(at)
}

/// The sizes of two tensors that meet element by element.
pub(super) fn together(a: &[usize], b: &[usize]) -> Option<Vec<usize>> {
    let rank = a.len().max(b.len());
    let at = |d: &[usize], i: usize| (i + d.len()).checked_sub(rank).map_or(1, |i| d[i]);
    (0..rank)
        .map(|i| match (at(a, i), at(b, i)) {
            (x, y) if x == y || y == 1 => Some(x),
            (1, y) => Some(y),
            _ => None,
        })
        .collect()
}

/// The names of classes as texts; none where they are their indices.
pub(super) fn texts(labels: &Constant) -> Vec<String> {
    match &labels.data {
        Data::Texts(texts) => texts.clone(),
        Data::Ints(ints) => {
            let index = |(i, n): (usize, &Int)| *n == Int::Known(i as i64);
            if ints.iter().enumerate().all(index) {
                return Vec::new();
            }
            let text = |i: &Int| match i {
                Int::Known(i) => i.to_string(),
                Int::Records => "N".into(),
            };
            ints.iter().map(text).collect()
        }
        Data::Floats(numbers) => numbers.iter().map(f64::to_string).collect(),
    }
}
