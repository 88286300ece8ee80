//! Reads tensors of an ONNX file as constants. Their numbers may be in other files beside the
//! model.

use super::file::TensorRest;
use crate::bake::Mistakes;
use crate::bake::front::constant::{ConstantTensor, Data, Element, Int, elements};
use crate::bake::matrix::{Files, MOST_ELEMENTS};
use crate::ir::half;
use rten_onnx::onnx::{DataLocation, DataType, TensorProto};
use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};

/// Reads the tensors of an ONNX model as constants.
pub(super) struct Tensors<'t, 'f> {
    /// The folder that holds the model's file.
    pub(super) folder: &'t Path,
    /// Reads files, and lists the paths of all files that were read.
    pub(super) files: &'t mut Files<'f>,
    /// The contents of files with tensor data that were read so far. `None` for a file that cannot
    /// be read.
    pub(super) data: HashMap<PathBuf, Option<Vec<u8>>>,
}

impl Tensors<'_, '_> {
    /// Converts a tensor of the ONNX file to a constant. Mistakes are reported with the text
    /// `place`.
    pub(super) fn read(
        &mut self,
        tensor: &TensorProto,
        rest: &TensorRest,
        place: &str,
        mistakes: &mut Mistakes,
    ) -> Option<ConstantTensor> {
        let before = mistakes.lines.len();
        let external = if tensor.data_location == Some(DataLocation::EXTERNAL) {
            match self.external(tensor, place, mistakes) {
                Some(bytes) => Some(bytes),
                None => {
                    if mistakes.lines.len() == before {
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

    /// Returns the bytes of a tensor that are stored in another file of the model's folder. `None`
    /// after a mistake. A file that cannot be read is reported only once.
    fn external(
        &mut self,
        tensor: &TensorProto,
        place: &str,
        mistakes: &mut Mistakes,
    ) -> Option<Vec<u8>> {
        let entry = |key: &str| {
            let found = tensor
                .external_data
                .iter()
                .find(|e| e.key.as_deref() == Some(key));
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
        let inside = Path::new(location)
            .components()
            .all(|c| matches!(c, Component::Normal(_) | Component::CurDir));
        let path = self.folder.join(location);
        // A symbolic link may also lead out of the folder.
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

/// The message about integers that are too large for a constant's i64.
const LARGE: &str = "a UINT64 of 2^63 or more is not supported";

/// Returns the element type for an ONNX type code. `None` for types that are not supported.
pub(super) fn element(code: i64) -> Option<Element> {
    Some(match code {
        1 => Element::F32,
        2 => Element::U8,
        3 => Element::I8,
        4 => Element::U16,
        5 => Element::I16,
        6 => Element::I32,
        7 => Element::I64,
        8 => Element::Text,
        9 => Element::Bool,
        10 => Element::F16,
        11 => Element::F64,
        12 => Element::U32,
        13 => Element::U64,
        16 => Element::Bf16,
        _ => return None,
    })
}

/// Converts a tensor of the ONNX file to a constant. `external` has the tensor's bytes if another
/// file stores them.
pub(super) fn constant(
    tensor: &TensorProto,
    rest: &TensorRest,
    external: Option<&[u8]>,
) -> Result<ConstantTensor, String> {
    let sizes = tensor.dims.iter().map(|&d| usize::try_from(d).ok());
    let dims: Option<Vec<usize>> = sizes.collect();
    let dims =
        dims.ok_or_else(|| format!("expected sizes of 0 or more, found {:?}", tensor.dims))?;
    let count = elements(&dims)
        .ok_or_else(|| format!("a tensor of {dims:?} has more than {MOST_ELEMENTS} elements"))?;
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
            true => Ok(ConstantTensor::texts(dims, rest.texts.clone())),
            false => Err(format!(
                "expected {count} texts, found {}",
                rest.texts.len()
            )),
        };
    }
    let raw = tensor.raw_data.as_ref().map(|raw| raw.borrow());
    let bytes = external.or(raw
        .as_ref()
        .map(|raw| &raw[..])
        .filter(|raw| !raw.is_empty()));
    let data = match bytes {
        None => of_fields(tensor, rest, count, kind)?,
        Some(bytes) if bytes.len() == count * size => of_bytes(bytes, size, kind)?,
        Some(bytes) => {
            return Err(format!(
                "expected {} bytes ({count} of type {kind}), found {}",
                count * size,
                bytes.len()
            ));
        }
    };
    Ok(ConstantTensor::new(
        element(kind.0.into()).unwrap_or(Element::F32),
        dims,
        data,
    ))
}

/// Returns true for ONNX's floating-point types.
fn float(kind: DataType) -> bool {
    matches!(
        kind,
        DataType::FLOAT | DataType::DOUBLE | DataType::FLOAT16 | DataType::BFLOAT16
    )
}

/// Decodes the raw data of a tensor: little-endian numbers of `size` bytes each.
fn of_bytes(bytes: &[u8], size: usize, kind: DataType) -> Result<Data, String> {
    let parts = bytes.chunks_exact(size);
    let wide = |b: &[u8]| b.iter().rev().fold(0u64, |n, &b| n << 8 | u64::from(b));
    if float(kind) {
        let number = |b: &[u8]| match kind {
            DataType::FLOAT => f64::from(f32::from_bits(wide(b) as u32)),
            DataType::DOUBLE => f64::from_bits(wide(b)),
            DataType::BFLOAT16 => f64::from(f32::from_bits((wide(b) as u32) << 16)),
            _ => f64::from(half::to_f32(wide(b) as u16)),
        };
        return Ok(Data::Floats(parts.map(number).collect()));
    }
    let signed = matches!(
        kind,
        DataType::INT8 | DataType::INT16 | DataType::INT32 | DataType::INT64
    );
    let number = |b: &[u8]| match signed {
        true => {
            let unused = 64 - 8 * size as u32;
            (wide(b) << unused) as i64 >> unused
        }
        false => wide(b) as i64,
    };
    let numbers: Vec<i64> = parts.map(number).collect();
    if kind == DataType::UINT64 && numbers.iter().any(|&n| n < 0) {
        return Err(LARGE.into());
    }
    Ok(Data::Ints(numbers.into_iter().map(Int::Known).collect()))
}

/// Reads a tensor's numbers from the field for its type, such as `float_data`. Such a tensor has no
/// raw bytes.
fn of_fields(
    tensor: &TensorProto,
    rest: &TensorRest,
    count: usize,
    kind: DataType,
) -> Result<Data, String> {
    let of_words = |f: fn(u16) -> f32| {
        tensor
            .int32_data
            .iter()
            .map(|&i| f64::from(f(i as u16)))
            .collect()
    };
    let data = match kind {
        DataType::FLOAT => Data::Floats(tensor.float_data.iter().map(|&v| v.into()).collect()),
        DataType::DOUBLE => Data::Floats(tensor.double_data.clone()),
        DataType::FLOAT16 => Data::Floats(of_words(half::to_f32)),
        DataType::BFLOAT16 => Data::Floats(of_words(|h| f32::from_bits(u32::from(h) << 16))),
        DataType::INT64 => Data::Ints(tensor.int64_data.iter().map(|&i| Int::Known(i)).collect()),
        DataType::UINT32 | DataType::UINT64 => {
            let int = |&i: &u64| i64::try_from(i).map(Int::Known).map_err(|_| LARGE);
            Data::Ints(rest.unsigned.iter().map(int).collect::<Result<_, _>>()?)
        }
        _ => Data::Ints(
            tensor
                .int32_data
                .iter()
                .map(|&i| Int::Known(i.into()))
                .collect(),
        ),
    };
    match data.len() == count {
        true => Ok(data),
        false => Err(format!(
            "expected {count} numbers of type {kind}, found {}",
            data.len()
        )),
    }
}
