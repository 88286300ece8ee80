//! Constants: tensors whose numbers are known at build time, and what is computed of them alone.
//!
//! The number of records is the one integer that is not known; it may be handed on, and multiplied by 1.

use super::file::TensorRest;
use crate::bake::Mistakes;
use crate::bake::matrix::Files;
use crate::ir::half;
use rten_onnx::onnx::{DataLocation, DataType, TensorProto};
use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};

/// Most elements of a tensor: its bytes stay within 32 bits.
const MOST: usize = (1 << 29) - 1;

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
    dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d)).filter(|&n| n <= MOST)
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

/// Reads tensors of a model, with the files beside it that hold their numbers.
pub(super) struct Tensors<'t, 'f> {
    /// The model's folder.
    pub(super) folder: &'t Path,
    /// Files that are read.
    pub(super) files: &'t mut Files<'f>,
    /// What is in those that hold numbers.
    pub(super) data: HashMap<PathBuf, Option<Vec<u8>>>,
}

impl Tensors<'_, '_> {
    /// A tensor of the file as a constant; what keeps it from being one is reported at `place`.
    pub(super) fn read(
        &mut self,
        tensor: &TensorProto,
        rest: &TensorRest,
        place: &str,
        mistakes: &mut Mistakes,
    ) -> Option<Constant> {
        let before = mistakes.0.len();
        let external = if tensor.data_location == Some(DataLocation::EXTERNAL) {
            match self.external(tensor, place, mistakes) {
                Some(bytes) => Some(bytes),
                None => {
                    if mistakes.0.len() == before {
                        mistakes.add(place, "its data cannot be read");
                    }
                    return None;
                }
            }
        } else {
            None
        };
        match constant(tensor, rest, external.as_deref()) {
            Ok(constant) => Some(constant),
            Err(e) => {
                mistakes.add(place, e);
                None
            }
        }
    }

    /// Its bytes in a file beside the model's.
    fn external(&mut self, tensor: &TensorProto, place: &str, mistakes: &mut Mistakes) -> Option<Vec<u8>> {
        let entry = |key: &str| {
            let found = tensor.external_data.iter().find(|e| e.key.as_deref() == Some(key));
            found.and_then(|e| e.value.as_deref())
        };
        let Some(location) = entry("location") else {
            mistakes.add(place, "its data is in another file, which is not named");
            return None;
        };
        let mut number = |key: &str| match entry(key).map(str::parse::<usize>) {
            None => Some(None),
            Some(Ok(n)) => Some(Some(n)),
            Some(Err(_)) => {
                mistakes.add(place, format_args!("its data: expected a number for {key}"));
                None
            }
        };
        let (offset, length) = (number("offset")?.unwrap_or(0), number("length")?);
        let inside =
            Path::new(location).components().all(|c| matches!(c, Component::Normal(_) | Component::CurDir));
        let path = self.folder.join(location);
        // A link may lead out of the folder too.
        let linked = || match (path.canonicalize(), self.folder.canonicalize()) {
            (Ok(path), Ok(folder)) => !path.starts_with(folder),
            _ => false,
        };
        if !inside || linked() {
            let what = "its data is in a file outside of the model's folder, which is not read";
            mistakes.add(place, format_args!("{what}: {location}"));
            return None;
        }
        if !self.data.contains_key(&path) {
            let bytes = self.files.bytes(&path, place, mistakes);
            self.data.insert(path.clone(), bytes);
        }
        let bytes = self.data.get(&path)?.as_deref()?;
        let end = length.map_or(Some(bytes.len()), |l| offset.checked_add(l));
        match end.and_then(|end| bytes.get(offset..end)) {
            Some(bytes) => Some(bytes.to_vec()),
            None => {
                mistakes.add(
                    place,
                    format_args!(
                        "its data: expected {} bytes from {offset} on in {location}, which has {}",
                        length.unwrap_or(0),
                        bytes.len()
                    ),
                );
                None
            }
        }
    }
}

/// A tensor of the file as a constant.
pub(super) fn constant(
    tensor: &TensorProto,
    rest: &TensorRest,
    external: Option<&[u8]>,
) -> Result<Constant, String> {
    let dims: Option<Vec<usize>> = tensor.dims.iter().map(|&d| usize::try_from(d).ok()).collect();
    let dims = dims.ok_or_else(|| format!("expected sizes of 0 or more, found {:?}", tensor.dims))?;
    let count =
        elements(&dims).ok_or_else(|| format!("a tensor of {dims:?} has more than {MOST} elements"))?;
    let kind = tensor.data_type.unwrap_or(DataType(0));
    let size = match kind {
        DataType::FLOAT | DataType::INT32 | DataType::UINT32 => 4,
        DataType::DOUBLE | DataType::INT64 | DataType::UINT64 => 8,
        DataType::FLOAT16 | DataType::BFLOAT16 | DataType::INT16 | DataType::UINT16 => 2,
        DataType::INT8 | DataType::UINT8 | DataType::BOOL => 1,
        DataType::STRING => 0,
        other => return Err(format!("numbers of type {other} are not supported")),
    };
    if kind == DataType::STRING {
        return match rest.texts.len() == count {
            true => Ok(Constant { dims, data: Data::Texts(rest.texts.clone()) }),
            false => Err(format!("expected {count} texts, found {}", rest.texts.len())),
        };
    }
    let raw = tensor.raw_data.as_ref().map(|raw| raw.borrow());
    let bytes = external.or(raw.as_ref().map(|raw| &raw[..]).filter(|raw| !raw.is_empty()));
    let Some(bytes) = bytes else { return of_fields(tensor, rest, dims, count, kind) };
    if bytes.len() != count * size {
        return Err(format!(
            "expected {} bytes ({count} of type {kind}), found {}",
            count * size,
            bytes.len()
        ));
    }
    let parts = bytes.chunks_exact(size);
    let wide = |b: &[u8]| b.iter().rev().fold(0u64, |n, &b| n << 8 | u64::from(b));
    let signed = |b: &[u8]| {
        let unused = 64 - 8 * b.len() as u32;
        (wide(b) << unused) as i64 >> unused
    };
    let float = |b: &[u8]| match kind {
        DataType::FLOAT => f64::from(f32::from_bits(wide(b) as u32)),
        DataType::DOUBLE => f64::from_bits(wide(b)),
        DataType::BFLOAT16 => f64::from(f32::from_bits((wide(b) as u32) << 16)),
        _ => f64::from(half::to_f32(wide(b) as u16)),
    };
    let int = |b: &[u8]| match kind {
        DataType::INT8 | DataType::INT16 | DataType::INT32 | DataType::INT64 => signed(b),
        _ => wide(b) as i64,
    };
    let data = match kind {
        DataType::FLOAT | DataType::DOUBLE | DataType::FLOAT16 | DataType::BFLOAT16 => {
            Data::Floats(parts.map(float).collect())
        }
        _ => Data::Ints(parts.map(|b| Int::Known(int(b))).collect()),
    };
    Ok(Constant { dims, data })
}

/// The same from the fields of numbers.
fn of_fields(
    tensor: &TensorProto,
    rest: &TensorRest,
    dims: Vec<usize>,
    count: usize,
    kind: DataType,
) -> Result<Constant, String> {
    let of_words = |f: fn(u16) -> f32| tensor.int32_data.iter().map(|&i| f64::from(f(i as u16))).collect();
    let data = match kind {
        DataType::FLOAT => Data::Floats(tensor.float_data.iter().map(|&v| v.into()).collect()),
        DataType::DOUBLE => Data::Floats(tensor.double_data.clone()),
        DataType::FLOAT16 => Data::Floats(of_words(half::to_f32)),
        DataType::BFLOAT16 => Data::Floats(of_words(|h| f32::from_bits(u32::from(h) << 16))),
        DataType::INT64 => Data::Ints(tensor.int64_data.iter().map(|&i| Int::Known(i)).collect()),
        DataType::UINT32 | DataType::UINT64 => {
            Data::Ints(rest.unsigned.iter().map(|&i| Int::Known(i as i64)).collect())
        }
        _ => Data::Ints(tensor.int32_data.iter().map(|&i| Int::Known(i.into())).collect()),
    };
    let constant = Constant { dims, data };
    if constant.len() != count {
        return Err(format!("expected {count} numbers of type {kind}, found {}", constant.len()));
    }
    Ok(constant)
}
