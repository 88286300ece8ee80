//! Constants of a model: tensors whose elements are known at build time.
//!
//! One integer is an exception: the number of records, which is known only at run time. Operations
//! may copy it, and compute with it if the result is a known integer or that number again.

use crate::bake::matrix::MOST_ELEMENTS;
use crate::ir::half;

/// The type of a tensor's elements, as the model's file states it.
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
    /// True for floating-point types of any width.
    pub(super) fn float(self) -> bool {
        matches!(
            self,
            Element::F32 | Element::F64 | Element::F16 | Element::Bf16
        )
    }

    /// The name of the type in ONNX, for messages.
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

    /// The number of bits of an integer type, and true if it is signed.
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

    /// The lowest and the highest number of an integer type. `None` for other types.
    pub(super) fn range(self) -> Option<(i128, i128)> {
        let (bits, signed) = self.bits()?;
        Some(if signed {
            (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
        } else {
            (0, (1 << bits) - 1)
        })
    }

    /// True if the type `other` can hold every integer of this type.
    pub(super) fn widens(self, other: Element) -> bool {
        match (self.range(), other.range()) {
            (Some((low, high)), Some((least, most))) => {
                least <= low && high <= most && other != Element::Bool
            }
            _ => false,
        }
    }

    /// Wraps `n` around into the range of this integer type.
    pub(super) fn wrapped(self, n: i128) -> Result<i64, String> {
        let Some((low, high)) = self.range() else {
            return Err(format!("expected integers, found {}", self.name()));
        };
        let n = (n - low).rem_euclid(high - low + 1) + low;
        i64::try_from(n).map_err(|_| format!("a UINT64 of {n}: 2^63 and more is not supported"))
    }

    /// Rounds `x` to the nearest float of this type. For other types, returns `x` unchanged.
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

/// An integer element of a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Int {
    Known(i64),
    /// The number of records, which is known at run time only.
    Records,
}

/// The elements of a constant, row-major.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Data {
    /// Floats, already rounded to the constant's element type.
    Floats(Vec<f64>),
    /// Integers, or truth values as 1 and 0.
    Ints(Vec<Int>),
    Texts(Vec<String>),
}

impl Data {
    /// The number of elements.
    pub(super) fn len(&self) -> usize {
        match self {
            Data::Floats(v) => v.len(),
            Data::Ints(v) => v.len(),
            Data::Texts(v) => v.len(),
        }
    }

    /// Appends the elements of `other`. Does nothing if they are of another variant.
    pub(super) fn extend(&mut self, other: &Data) {
        match (self, other) {
            (Data::Floats(own), Data::Floats(other)) => own.extend(other),
            (Data::Ints(own), Data::Ints(other)) => own.extend(other),
            (Data::Texts(own), Data::Texts(other)) => own.extend(other.iter().cloned()),
            _ => {}
        }
    }
}

/// A tensor whose elements are known at build time.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ConstantTensor {
    pub(super) kind: Element,
    /// The sizes of the axes, outermost first.
    pub(super) dims: Vec<usize>,
    pub(super) data: Data,
    /// The quantization scales, if the constant's numbers were dequantized from integers. `None`
    /// for other numbers, and once the numbers have been moved or changed.
    pub(super) scales: Option<Scales>,
}

/// The quantization scales of dequantized integers: one for all of them, or one for each index
/// along an axis.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Scales {
    pub(super) list: Vec<f64>,
    /// The axis that the scales belong to. With a single scale it is the last axis.
    pub(super) axis: usize,
}

impl ConstantTensor {
    pub(super) fn new(kind: Element, dims: Vec<usize>, data: Data) -> ConstantTensor {
        ConstantTensor {
            kind,
            dims,
            data,
            scales: None,
        }
    }

    /// Makes a constant of type FLOAT, which is f32.
    pub(super) fn floats(dims: Vec<usize>, numbers: Vec<f64>) -> ConstantTensor {
        ConstantTensor::new(Element::F32, dims, Data::Floats(numbers))
    }

    /// Makes a constant of the float type `kind`. The numbers are rounded to that type.
    pub(super) fn rounded(
        kind: Element,
        dims: Vec<usize>,
        numbers: impl IntoIterator<Item = f64>,
    ) -> ConstantTensor {
        ConstantTensor::new(
            kind,
            dims,
            Data::Floats(numbers.into_iter().map(|x| kind.rounded(x)).collect()),
        )
    }

    /// Makes a constant of type INT64.
    pub(super) fn ints(dims: Vec<usize>, numbers: Vec<i64>) -> ConstantTensor {
        let data = Data::Ints(numbers.into_iter().map(Int::Known).collect());
        ConstantTensor::new(Element::I64, dims, data)
    }

    /// Makes a constant of texts.
    pub(super) fn texts(dims: Vec<usize>, texts: Vec<String>) -> ConstantTensor {
        ConstantTensor::new(Element::Text, dims, Data::Texts(texts))
    }

    /// Converts the elements to the type `kind` as ONNX does. Integers wrap around into the new
    /// range. Floats are rounded towards 0, and a float out of range is an error.
    pub(super) fn cast(&self, kind: Element) -> Result<ConstantTensor, String> {
        let dims = self.dims.clone();
        if kind == self.kind {
            return Ok(self.clone());
        }
        if kind == Element::Text {
            let texts = match self.kind {
                Element::Bool => return Err("truth values cannot be converted to texts".into()),
                from if from.float() => return Err("floats cannot be converted to texts".into()),
                _ => self.integers()?.iter().map(i64::to_string).collect(),
            };
            return Ok(ConstantTensor::texts(dims, texts));
        }
        if kind.float() {
            return Ok(ConstantTensor::rounded(kind, dims, self.numbers()?));
        }
        let data = match &self.data {
            Data::Ints(ints) => {
                let cast = |i: &Int| match *i {
                    Int::Known(i) if kind == Element::Bool => Ok(Int::Known(i64::from(i != 0))),
                    Int::Known(i) => kind.wrapped(i.into()).map(Int::Known),
                    // The number of records is at least 1 and fits in 31 bits.
                    Int::Records if matches!(kind, Element::I32 | Element::I64) => Ok(Int::Records),
                    Int::Records => Err(format!(
                        "the number of records cannot be converted to {}",
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
                    // The result for a float out of range would depend on the machine.
                    _ => Err(format!(
                        "{x} cannot be converted to {}: it is out of range",
                        kind.name()
                    )),
                };
                floats.iter().map(cast).collect::<Result<_, _>>()?
            }
            Data::Texts(_) => return Err("texts cannot be converted to numbers".into()),
        };
        Ok(ConstantTensor::new(kind, dims, Data::Ints(data)))
    }

    /// The number of elements.
    pub(super) fn len(&self) -> usize {
        self.data.len()
    }

    /// Returns the elements as f64. Texts and the unknown number of records are errors.
    pub(super) fn numbers(&self) -> Result<Vec<f64>, String> {
        match &self.data {
            Data::Floats(v) => Ok(v.clone()),
            Data::Ints(_) => Ok(self.integers()?.into_iter().map(|i| i as f64).collect()),
            Data::Texts(_) => Err("expected numbers, found texts".into()),
        }
    }

    /// Returns the elements as i64. Floats, texts and the unknown number of records are errors.
    pub(super) fn integers(&self) -> Result<Vec<i64>, String> {
        let Data::Ints(v) = &self.data else {
            return Err("expected integers, found other numbers or texts".into());
        };
        let known = |i: &Int| match i {
            Int::Known(i) => Ok(*i),
            Int::Records => Err(
                "it depends on the number of records: state all sizes for one record \
                 (docs/ONNX.md, \"Sizes\")"
                    .to_string(),
            ),
        };
        v.iter().map(known).collect()
    }

    /// Returns the constant's element as f64. It is an error if there is not exactly one.
    pub(super) fn number(&self) -> Result<f64, String> {
        match self.numbers()?[..] {
            [x] => Ok(x),
            _ => Err(format!("expected one number, found {}", self.len())),
        }
    }

    /// Returns this constant with other sizes for the same elements.
    pub(super) fn with_dims(&self, dims: Vec<usize>) -> ConstantTensor {
        ConstantTensor::new(self.kind, dims, self.data.clone())
    }

    /// Makes a constant of sizes `dims` from the elements of this one with the indices `at`.
    pub(super) fn pick(&self, dims: Vec<usize>, at: &[usize]) -> ConstantTensor {
        let data = match &self.data {
            Data::Floats(v) => Data::Floats(at.iter().map(|&i| v[i]).collect()),
            Data::Ints(v) => Data::Ints(at.iter().map(|&i| v[i]).collect()),
            Data::Texts(v) => Data::Texts(at.iter().map(|&i| v[i].clone()).collect()),
        };
        ConstantTensor::new(self.kind, dims, data)
    }
}

/// The number of elements of a tensor. `None` if it is above [`MOST_ELEMENTS`].
pub(super) fn elements(dims: &[usize]) -> Option<usize> {
    dims.iter()
        .try_fold(1usize, |n, &d| n.checked_mul(d))
        .filter(|&n| n <= MOST_ELEMENTS)
}

/// Broadcasts a tensor of sizes `from` to sizes `to`. Returns for each element of the result the
/// index of its source element. `None` if the sizes do not match or the result is too large.
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

/// Returns the sizes to which two tensors are broadcast in an element-wise operation. `None` if
/// their sizes do not match.
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

/// Returns the names of a model's classes as texts. The list is empty if each name is the index of
/// its class.
pub(super) fn texts(labels: &ConstantTensor) -> Vec<String> {
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
