//! Constants: tensors whose numbers are known at build time, and what is computed of them alone.
//!
//! The number of records is the one integer that is not known; it may be handed on, and multiplied
//! by 1.

use crate::bake::matrix::MOST_ELEMENTS;
use crate::ir::half;

/// The type of a tensor's elements, as the model's format has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Element {
    F32,
    F64,
    F16,
    Bf16,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    Bool,
    Text,
}

impl Element {
    /// True for floats of any width.
    pub(super) fn float(self) -> bool {
        matches!(
            self,
            Element::F32 | Element::F64 | Element::F16 | Element::Bf16
        )
    }

    /// ONNX's name, for messages.
    pub(super) fn name(self) -> &'static str {
        match self {
            Element::F32 => "FLOAT",
            Element::F64 => "DOUBLE",
            Element::F16 => "FLOAT16",
            Element::Bf16 => "BFLOAT16",
            Element::I8 => "INT8",
            Element::I16 => "INT16",
            Element::I32 => "INT32",
            Element::I64 => "INT64",
            Element::U8 => "UINT8",
            Element::U16 => "UINT16",
            Element::U32 => "UINT32",
            Element::U64 => "UINT64",
            Element::Bool => "BOOL",
            Element::Text => "STRING",
        }
    }

    /// Bits and sign of an integer type; `None` for the others.
    fn bits(self) -> Option<(u32, bool)> {
        Some(match self {
            Element::I8 => (8, true),
            Element::I16 => (16, true),
            Element::I32 => (32, true),
            Element::I64 => (64, true),
            Element::U8 => (8, false),
            Element::U16 => (16, false),
            Element::U32 => (32, false),
            Element::U64 => (64, false),
            Element::Bool => (1, false),
            _ => return None,
        })
    }

    /// The lowest and the highest integer; `None` for types that are none.
    pub(super) fn range(self) -> Option<(i128, i128)> {
        let (bits, signed) = self.bits()?;
        Some(if signed {
            (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
        } else {
            (0, (1 << bits) - 1)
        })
    }

    /// True where each of its integers is one of type `other`.
    pub(super) fn widens(self, other: Element) -> bool {
        match (self.range(), other.range()) {
            (Some((low, high)), Some(to)) => to.0 <= low && high <= to.1 && other != Element::Bool,
            _ => false,
        }
    }

    /// The integer of this type that `n` wraps around to.
    ///
    /// # Errors
    /// Of a UINT64 from 2^63 on, for which constants have no room, and of types that are no
    /// integers.
    pub(super) fn wrapped(self, n: i128) -> Result<i64, String> {
        let Some((low, high)) = self.range() else {
            return Err(format!("expected integers, found {}", self.name()));
        };
        let n = (n - low).rem_euclid(high - low + 1) + low;
        i64::try_from(n).map_err(|_| format!("a UINT64 of {n}: 2^63 and more is not supported"))
    }

    /// The float of this type that is nearest to `x`; other types leave it as it is.
    pub(super) fn rounded(self, x: f64) -> f64 {
        match self {
            Element::F32 => f64::from(x as f32),
            Element::F16 => f64::from(half::to_f32(half::from_f32(x as f32))),
            Element::Bf16 if x.is_finite() => {
                let bits = (x as f32).to_bits();
                let rounded = u64::from(bits) + 0x7fff + u64::from(bits >> 16 & 1);
                f64::from(f32::from_bits(rounded as u32 & 0xffff_0000))
            }
            _ => x,
        }
    }
}

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
    /// Floats of any width, rounded to it.
    Floats(Vec<f64>),
    /// Integers of any width, and truth values.
    Ints(Vec<Int>),
    /// Texts.
    Texts(Vec<String>),
}

/// A tensor that is known at build time.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Constant {
    /// The type of its elements.
    pub(super) kind: Element,
    /// Its sizes, outermost first.
    pub(super) dims: Vec<usize>,
    /// Its elements.
    pub(super) data: Data,
}

impl Constant {
    /// One of FLOAT.
    pub(super) fn floats(dims: Vec<usize>, numbers: Vec<f64>) -> Constant {
        Constant {
            kind: Element::F32,
            dims,
            data: Data::Floats(numbers),
        }
    }

    /// One of floats of type `kind`, each rounded to it.
    pub(super) fn rounded(
        kind: Element,
        dims: Vec<usize>,
        numbers: impl IntoIterator<Item = f64>,
    ) -> Constant {
        Constant {
            kind,
            dims,
            data: Data::Floats(numbers.into_iter().map(|x| kind.rounded(x)).collect()),
        }
    }

    /// One of INT64.
    pub(super) fn ints(dims: Vec<usize>, numbers: Vec<i64>) -> Constant {
        let data = Data::Ints(numbers.into_iter().map(Int::Known).collect());
        Constant {
            kind: Element::I64,
            dims,
            data,
        }
    }

    /// One of texts.
    pub(super) fn texts(dims: Vec<usize>, texts: Vec<String>) -> Constant {
        Constant {
            kind: Element::Text,
            dims,
            data: Data::Texts(texts),
        }
    }

    /// The elements as type `kind`, as ONNX casts them: integers wrap, floats are cut off towards
    /// 0.
    ///
    /// # Errors
    /// Of floats that become texts, texts that become numbers, and numbers that the type does not
    /// have.
    pub(super) fn cast(&self, kind: Element) -> Result<Constant, String> {
        let dims = self.dims.clone();
        if kind == self.kind {
            return Ok(self.clone());
        }
        if kind == Element::Text {
            let texts = match self.kind {
                Element::Bool => return Err("truth values do not become texts".into()),
                from if from.float() => return Err("floats do not become texts".into()),
                _ => self.integers()?.iter().map(i64::to_string).collect(),
            };
            return Ok(Constant::texts(dims, texts));
        }
        if kind.float() {
            return Ok(Constant::rounded(kind, dims, self.numbers()?));
        }
        let data = match &self.data {
            Data::Ints(ints) => {
                let cast = |i: &Int| match *i {
                    Int::Known(i) if kind == Element::Bool => Ok(Int::Known(i64::from(i != 0))),
                    Int::Known(i) => kind.wrapped(i.into()).map(Int::Known),
                    // There are no more records than fit in 31 bits, and at least one.
                    Int::Records if matches!(kind, Element::I32 | Element::I64) => Ok(Int::Records),
                    Int::Records => Err(format!(
                        "the number of records does not become {}",
                        kind.name()
                    )),
                };
                ints.iter().map(cast).collect::<Result<_, _>>()?
            }
            Data::Floats(floats) => {
                let (low, high) = kind.range().unwrap_or_default();
                let cast = |x: &f64| match kind {
                    Element::Bool => Ok(Int::Known(i64::from(*x != 0.0))),
                    _ if (low..=high).contains(&(x.trunc() as i128)) && !x.is_nan() => {
                        kind.wrapped(x.trunc() as i128).map(Int::Known)
                    }
                    // What comes of it depends on the machine.
                    _ => Err(format!(
                        "{x} does not become {}: it has no such number",
                        kind.name()
                    )),
                };
                floats.iter().map(cast).collect::<Result<_, _>>()?
            }
            Data::Texts(_) => return Err("texts do not become numbers".into()),
        };
        Ok(Constant {
            kind,
            dims,
            data: Data::Ints(data),
        })
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
        Constant {
            kind: self.kind,
            dims,
            data: self.data.clone(),
        }
    }

    /// Elements `at` of it, with sizes `dims`.
    pub(super) fn pick(&self, dims: Vec<usize>, at: &[usize]) -> Constant {
        let data = match &self.data {
            Data::Floats(v) => Data::Floats(at.iter().map(|&i| v[i]).collect()),
            Data::Ints(v) => Data::Ints(at.iter().map(|&i| v[i]).collect()),
            Data::Texts(v) => Data::Texts(at.iter().map(|&i| v[i].clone()).collect()),
        };
        Constant {
            kind: self.kind,
            dims,
            data,
        }
    }
}

/// The elements of sizes, if they are not too many.
pub(super) fn elements(dims: &[usize]) -> Option<usize> {
    dims.iter()
        .try_fold(1usize, |n, &d| n.checked_mul(d))
        .filter(|&n| n <= MOST_ELEMENTS)
}

/// For each element of a tensor of sizes `to`, the element of one of sizes `from` that stands there
/// when that is repeated along axes of size 1; `None` where the two do not meet.
pub(super) fn repeated(from: &[usize], to: &[usize]) -> Option<Vec<usize>> {
    let ahead = to.len().checked_sub(from.len())?;
    if from
        .iter()
        .zip(&to[ahead..])
        .any(|(&f, &t)| f != t && f != 1)
    {
        return None;
    }
    let mut at = vec![0; elements(to)?];
    let (mut stride, mut inner) = (1, 1);
    for axis in (0..to.len()).rev() {
        let size = if axis >= ahead { from[axis - ahead] } else { 1 };
        if size > 1 {
            at.iter_mut()
                .enumerate()
                .for_each(|(i, a)| *a += i / inner % to[axis] * stride);
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
