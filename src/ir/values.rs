//! The numbers of constants, as they are stored.

use super::half;
use super::network::Precision;
use super::plan::Constant;
use std::borrow::Cow;

/// The values of a constant, as stored.
#[derive(Clone, Debug)]
pub(crate) enum Values {
    /// Floats.
    F32(Cow<'static, [f32]>),
    /// Halves, as bits.
    F16(Cow<'static, [u16]>),
}

impl Default for Values {
    fn default() -> Self {
        Values::F32(Cow::Borrowed(&[]))
    }
}

impl Values {
    /// A plain matrix in the layout of `c`, as what it is stored as.
    pub(crate) fn pack(c: &Constant, plain: &[f32]) -> Values {
        match c.precision {
            Precision::F32 => Values::F32(Cow::Owned(c.layout.pack(plain, c.size, c.padded, 0.0))),
            Precision::F16 => {
                let halves: Vec<u16> = plain.iter().map(|&w| half::from_f32(w)).collect();
                Values::F16(Cow::Owned(c.layout.pack(&halves, c.size, c.padded, 0)))
            }
        }
    }

    /// The plain matrix of `c`.
    pub(crate) fn unpack(&self, c: &Constant) -> Vec<f32> {
        match self {
            Values::F32(values) => c.layout.unpack(values, c.size, c.padded),
            Values::F16(halves) => {
                let halves = c.layout.unpack(halves, c.size, c.padded);
                halves.into_iter().map(half::to_f32).collect()
            }
        }
    }
}
