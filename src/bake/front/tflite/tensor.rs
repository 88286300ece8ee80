//! Tensors of a TensorFlow Lite model: sizes, type, quantization, and the numbers of constants.

use super::flat::Table;
use super::sparse::Sparsity;
use crate::bake::front::constant::{ConstantTensor, Data, Element, Int, elements};
use crate::bake::front::fold;
use crate::bake::front::integers::Steps;
use crate::ir::half;
use crate::ir::network::ByteInput;

/// The element types that are supported. An entry has the code in the schema, the name, and the
/// bytes of an element.
const KINDS: [(u8, &str, usize); 9] = [
    (0, "FLOAT32", 4),
    (1, "FLOAT16", 2),
    (2, "INT32", 4),
    (3, "UINT8", 1),
    (4, "INT64", 8),
    (6, "BOOL", 1),
    (7, "INT16", 2),
    (9, "INT8", 1),
    (10, "FLOAT64", 8),
];

/// The element types that are not supported. An entry has the code in the schema and the name.
const OTHERS: [(u8, &str); 12] = [
    (5, "STRING"),
    (8, "COMPLEX64"),
    (11, "COMPLEX128"),
    (12, "UINT64"),
    (13, "RESOURCE"),
    (14, "VARIANT"),
    (15, "UINT32"),
    (16, "UINT16"),
    (17, "INT4"),
    (18, "BFLOAT16"),
    (19, "INT2"),
    (20, "UINT4"),
];

/// The quantization of a tensor's integers. An integer stands for (integer − zero point) · scale.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Quantised {
    /// One scale for all integers, or one for each index along `axis`.
    scales: Vec<f32>,
    /// A zero point for each scale, or one for all scales. Empty if the zero point is 0.
    zeros: Vec<i64>,
    /// The axis that the scales belong to.
    axis: i32,
}

/// Converts the integers of a tensor to real numbers: integer · scale + summand.
#[derive(Clone, Copy)]
pub(super) struct Conversion {
    pub(super) scale: f32,
    pub(super) summand: f32,
}

/// A tensor as the TensorFlow Lite file declares it.
#[derive(Clone, Debug)]
pub(super) struct TfliteTensor<'b> {
    /// The tensor's name, for messages.
    pub(super) name: String,
    /// The schema's code of the tensor's element type.
    kind: u8,
    /// The sizes of the tensor's axes.
    pub(super) dims: Vec<i32>,
    /// The sizes of the tensor's axes, with -1 for a size that is not fixed. Empty if the file has
    /// no such list.
    pub(super) signature: Vec<i32>,
    /// The scales and zero points of the tensor's integers. `None` if the tensor is not quantized.
    pub(super) quantised: Option<Quantised>,
    /// The reason why the tensor cannot be used, if there is one.
    refused: Option<&'static str>,
    /// The positions of the numbers that a sparse tensor stores. `None` if the tensor stores all
    /// numbers.
    sparsity: Option<Sparsity>,
    /// The bytes of a constant tensor's numbers. `None` if the file has no numbers for the tensor.
    data: Option<&'b [u8]>,
    /// True if 8-bit integers are computed as integers, false if as the real numbers that they
    /// stand for.
    whole: bool,
}

impl<'b> TfliteTensor<'b> {
    /// Reads tensor `i`. Its numbers are in `buffers`, or in the `file` behind the buffers.
    pub(super) fn read(
        i: usize,
        table: &Table<'b>,
        buffers: &[Table<'b>],
        file: &'b [u8],
        whole: bool,
    ) -> Result<TfliteTensor<'b>, String> {
        // Field numbers of the schema's table `Tensor`: 0 shape, 1 type, 2 buffer, 3 name, 4
        // quantization, 5 is_variable, 6 sparsity, 7 shape_signature, 10 external_buffer.
        let name = table.text(3)?;
        // The name of a fused tensor joins several names with semicolons. The first one is used.
        let name = match name.split(';').next().unwrap_or("") {
            "" => format!("tensor {i}"),
            name => name.to_string(),
        };
        let mut refused = None;
        let dims = table.ints(0)?;
        let sparsity = match table.table(6)? {
            Some(sparsity) => {
                let read = Sparsity::read(&sparsity, dims.len());
                Some(read.map_err(|e| format!("{name}: {e}"))?)
            }
            None => None,
        };
        if table.flag(5)? {
            refused =
                Some("it is a variable that is kept from record to record, which is not supported");
        } else if table.unsigned(10)? != 0 {
            refused = Some("its numbers are in another file, which is not read");
        }
        let mut quantised = None;
        if let Some(q) = table.table(4)? {
            // Field numbers of the schema's table `QuantizationParameters`: 2 scale, 3 zero_point,
            // 4 details_type, 6 quantized_dimension.
            let scales = q.floats(2)?;
            if q.byte(4)? != 0 {
                refused = Some("quantisation of another kind than one scale, or one along an axis");
            } else if !scales.is_empty() {
                quantised = Some(Quantised {
                    scales,
                    zeros: q.longs(3)?,
                    axis: q.int(6, 0)?,
                });
            }
        }
        let buffer = buffers.get(table.unsigned(2)? as usize);
        let data = match buffer {
            Some(buffer) => numbers_of(buffer, file).map_err(|e| format!("{name}: {e}"))?,
            None => None,
        };
        Ok(TfliteTensor {
            name,
            kind: table.byte(1)?,
            dims,
            sparsity,
            signature: table.ints(7)?,
            quantised,
            refused,
            data,
            whole,
        })
    }

    /// Returns the name of the tensor's element type.
    pub(super) fn kind(&self) -> String {
        let mut all = KINDS
            .iter()
            .map(|&(code, name, _)| (code, name))
            .chain(OTHERS);
        match all.find(|(code, _)| *code == self.kind) {
            Some((_, name)) => name.to_string(),
            None => format!("type {}", self.kind),
        }
    }

    /// Returns the tensor's element type. A type that is not supported gives `F32`.
    pub(super) fn element(&self) -> Element {
        match self.kind {
            1 => Element::F16,
            2 => Element::I32,
            3 => Element::U8,
            4 => Element::I64,
            6 => Element::Bool,
            7 => Element::I16,
            9 => Element::I8,
            10 => Element::F64,
            _ => Element::F32,
        }
    }

    /// Returns the type in which the tensor is computed. It is f32 for a quantized tensor.
    pub(super) fn computed(&self) -> Element {
        if self.quantised.is_some() {
            Element::F32
        } else {
            self.element()
        }
    }

    /// True if the tensor's elements are floats.
    pub(super) fn float(&self) -> bool {
        matches!(self.kind, 0 | 1 | 10)
    }

    /// True if the tensor's element type is supported.
    pub(super) fn readable(&self) -> bool {
        KINDS.iter().any(|(code, ..)| *code == self.kind)
    }

    /// Returns the reason why the tensor cannot be used, if there is one.
    pub(super) fn refused(&self) -> Option<&'static str> {
        self.refused
    }

    /// True if the file has the tensor's numbers, or if the tensor is empty because a size is 0.
    pub(super) fn known(&self) -> bool {
        self.data.is_some() || self.dims.contains(&0)
    }

    /// Returns the smallest and the largest real number that the tensor's integers stand for, if
    /// sums that are computed as real numbers have to be limited to them. These are 8-bit integers
    /// whose smallest number is 0, and 16-bit integers. `None` for other tensors.
    pub(super) fn limits(&self) -> Option<[f32; 2]> {
        let q = self.quantised.as_ref()?;
        let (&[scale], zero) = (&q.scales[..], q.zeros.first().copied().unwrap_or(0)) else {
            return None;
        };
        let of = |low: i64, high: i64| [low, high].map(|limit| scale * (limit - zero) as f32);
        match (self.kind, zero) {
            (3, 0) => Some(of(0, 255)),
            (9, -128) => Some(of(-128, 127)),
            (7, _) => Some(of(-32768, 32767)),
            _ => None,
        }
    }

    /// Returns the integers of an input of the model, if they are 8-bit integers with one scale.
    pub(super) fn byte_input(&self) -> Option<ByteInput> {
        let signed = match self.kind {
            3 => false,
            9 => true,
            _ => return None,
        };
        let q = self.quantised.as_ref()?;
        let &[scale] = &q.scales[..] else {
            return None;
        };
        let smallest = if signed { -128 } else { 0 };
        Some(ByteInput {
            signed,
            scale,
            first: (smallest - q.zeros.first().copied().unwrap_or(0)) as f64,
        })
    }

    /// Returns the conversion of the tensor's integers to real numbers. `None` unless there is a
    /// single scale.
    pub(super) fn transform(&self) -> Option<Conversion> {
        let q = self.quantised.as_ref()?;
        match q.scales[..] {
            [scale] => Some(Conversion {
                scale,
                summand: -scale * q.zeros.first().map_or(0.0, |&z| z as f32),
            }),
            _ => None,
        }
    }

    /// Returns the quantization of a tensor that is computed as 8-bit integers. `None` for a tensor
    /// that is computed as real numbers.
    pub(super) fn steps(&self) -> Option<Steps> {
        let (low, high) = match self.kind {
            3 => (0, 255),
            9 => (-128, 127),
            _ => return None,
        };
        let q = self.quantised.as_ref().filter(|_| self.whole)?;
        let (&[scale], zero) = (&q.scales[..], q.zeros.first().copied().unwrap_or(0)) else {
            return None;
        };
        let fits = scale.is_finite() && scale > 0.0 && (low..=high).contains(&zero);
        fits.then_some(Steps {
            scale,
            zero: zero as i32,
            low: low as i32,
            high: high as i32,
        })
    }

    /// Returns the scales of weights: one for all, or one for each index along `axis`. `None`
    /// unless the weights are 8-bit integers with equal zero points.
    pub(super) fn weight_scales(&self, axis: usize) -> Option<&[f32]> {
        let q = self.quantised.as_ref()?;
        let equal = q.zeros.windows(2).all(|pair| pair[0] == pair[1]);
        let of_axis = usize::try_from(q.axis) == Ok(axis)
            && self.dims.get(axis).map(|&n| usize::try_from(n)) == Some(Ok(q.scales.len()));
        let along = q.scales.len() == 1 || of_axis;
        let fits = along && q.scales.iter().all(|s| s.is_finite() && *s > 0.0);
        (matches!(self.kind, 3 | 9) && equal && fits).then_some(&q.scales)
    }

    /// Returns the scales of weights as [`TfliteTensor::weight_scales`] does, if values in front of
    /// them are rounded, as in a layer of dynamic range.
    pub(super) fn dynamic(&self, axis: usize) -> Option<&[f32]> {
        let zeros = &self.quantised.as_ref()?.zeros;
        let fits = self.whole && self.known() && self.kind == 9 && zeros.iter().all(|&z| z == 0);
        self.weight_scales(axis).filter(|_| fits)
    }

    /// Returns the integers of a constant tensor, each less the zero point.
    pub(super) fn integers(&self) -> Result<ConstantTensor, String> {
        let mut constant = self.stored()?;
        let zero = self.quantised.as_ref().and_then(|q| q.zeros.first());
        if let (Data::Ints(v), Some(&zero)) = (&mut constant.data, zero) {
            v.iter_mut().for_each(|i| {
                if let Int::Known(i) = i {
                    *i -= zero;
                }
            });
        }
        constant.cast(Element::F32)
    }

    /// Returns the numbers of a constant tensor. Quantized integers are converted to real numbers.
    pub(super) fn constant(&self) -> Result<ConstantTensor, String> {
        let constant = self.stored()?;
        let Some(q) = self.quantised.as_ref().filter(|_| !self.float()) else {
            return Ok(constant);
        };
        let scales = ConstantTensor::floats(
            vec![q.scales.len()],
            q.scales.iter().map(|&s| s.into()).collect(),
        );
        let zeros = match q.zeros[..] {
            [] => vec![0; q.scales.len()],
            [zero] => vec![zero; q.scales.len()],
            ref zeros => zeros.to_vec(),
        };
        let zeros = ConstantTensor::ints(vec![zeros.len()], zeros);
        // Converters give a vector of biases the scale axis of its weights, but a vector has only
        // axis 0.
        let axis = if constant.dims.len() == 1 { 0 } else { q.axis };
        fold::dequantize(&constant, &scales, Some(&zeros), axis.into(), 0)
    }

    /// Returns the numbers of a constant tensor as the file stores them.
    fn stored(&self) -> Result<ConstantTensor, String> {
        if let Some(refused) = self.refused {
            return Err(refused.into());
        }
        let dims: Option<Vec<usize>> = self.dims.iter().map(|&d| usize::try_from(d).ok()).collect();
        let dims =
            dims.ok_or_else(|| format!("expected sizes of 0 or more, found {:?}", self.dims))?;
        let count =
            elements(&dims).ok_or_else(|| format!("a tensor of {dims:?} has too many numbers"))?;
        let Some((_, _, size)) = KINDS.iter().find(|(code, ..)| *code == self.kind) else {
            return Err(format!("numbers of type {} are not supported", self.kind()));
        };
        let data = self.data.unwrap_or(&[]);
        let places = match &self.sparsity {
            Some(sparsity) => Some(sparsity.places(&dims)?),
            None => None,
        };
        let stored = places.as_ref().map_or(count, Vec::len);
        if data.len() != stored * size {
            return Err(format!(
                "expected {} bytes ({stored} of {}), found {}",
                stored * size,
                self.kind(),
                data.len()
            ));
        }
        let wide = |b: &[u8]| b.iter().rev().fold(0u64, |n, &b| n << 8 | u64::from(b));
        let signed = |b: &[u8]| {
            let unused = 64 - 8 * b.len() as u32;
            (wide(b) << unused) as i64 >> unused
        };
        let parts = data.chunks_exact(*size);
        let data = match self.kind {
            0 => Data::Floats(
                parts
                    .map(|b| f32::from_bits(wide(b) as u32).into())
                    .collect(),
            ),
            1 => Data::Floats(parts.map(|b| half::to_f32(wide(b) as u16).into()).collect()),
            10 => Data::Floats(parts.map(|b| f64::from_bits(wide(b))).collect()),
            3 | 6 => Data::Ints(parts.map(|b| Int::Known(wide(b) as i64)).collect()),
            _ => Data::Ints(parts.map(|b| Int::Known(signed(b))).collect()),
        };
        let data = match places {
            Some(places) => spread(data, &places, count),
            None => data,
        };
        Ok(ConstantTensor::new(self.element(), dims, data))
    }
}

/// Returns the bytes of a buffer. They may be in the file behind the FlatBuffers tables. `None` if
/// the buffer is empty.
fn numbers_of<'b>(buffer: &Table<'b>, file: &'b [u8]) -> Result<Option<&'b [u8]>, String> {
    // Field numbers of the schema's table `Buffer`: 0 data, 1 offset, 2 size.
    let (offset, size) = (buffer.long(1)?, buffer.long(2)?);
    if offset <= 1 {
        return Ok(buffer.bytes(0)?.filter(|d| !d.is_empty()));
    }
    let range = usize::try_from(offset)
        .ok()
        .zip(usize::try_from(offset.saturating_add(size)).ok());
    let found = range.and_then(|(from, to)| file.get(from..to));
    found.map(Some).ok_or_else(|| {
        format!(
            "expected {size} bytes from {offset} on, the file has {}",
            file.len()
        )
    })
}

/// Expands a sparse tensor to its `count` dense numbers. Each stored number goes to its place, and
/// all others are 0. Texts are returned unchanged.
fn spread(data: Data, places: &[usize], count: usize) -> Data {
    fn all<T: Copy>(numbers: &[T], places: &[usize], mut dense: Vec<T>) -> Vec<T> {
        places
            .iter()
            .zip(numbers)
            .for_each(|(&at, &n)| dense[at] = n);
        dense
    }
    match data {
        Data::Floats(v) => Data::Floats(all(&v, places, vec![0.0; count])),
        Data::Ints(v) => Data::Ints(all(&v, places, vec![Int::Known(0); count])),
        texts => texts,
    }
}
