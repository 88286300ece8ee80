//! Half-precision floats (IEEE 754 binary16) as bits. Weights may be stored as halves. Sums of
//! products are always f32.

/// Rounds a float to the nearest half, ties to even. Values that are too large for a half become
/// infinite.
pub(crate) fn from_f32(x: f32) -> u16 {
    let bits = x.to_bits();
    let (sign, magnitude) = ((bits >> 16 & 0x8000) as u16, bits & 0x7fff_ffff);
    if magnitude > 0x7f80_0000 {
        return sign | 0x7e00;
    }
    // Halves below 2^-14 are multiples of 2^-24. The last bit of the float 0.5 is worth 2^-24, so
    // adding 0.5 rounds to such a multiple.
    if magnitude < 0x3880_0000 {
        let rounded = f32::from_bits(magnitude) + 0.5;
        return sign | (rounded.to_bits() - 0.5f32.to_bits()) as u16;
    }
    let rounded = magnitude - 0x3800_0000 + 0xfff + (magnitude >> 13 & 1);
    sign | (rounded >> 13).min(0x7c00) as u16
}

pub(crate) fn to_f32(half: u16) -> f32 {
    let (sign, magnitude) = (
        u32::from(half & 0x8000) << 16,
        u32::from(half & 0x7fff) << 13,
    );
    let value = match magnitude {
        0x0f80_0000.. => f32::from_bits(magnitude | 0x7000_0000),
        // The exponent biases of half and float differ by 112. The factor 2^112 corrects this for
        // normal and subnormal halves.
        _ => f32::from_bits(magnitude) * f32::from_bits(0x7780_0000),
    };
    f32::from_bits(value.to_bits() | sign)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the value of a half, computed from the definition: a sign bit, five bits of
    /// exponent, ten bits of fraction.
    fn exact(half: u16) -> f64 {
        let (exponent, fraction) = (
            i32::from(half >> 10 & 0x1f),
            f64::from(half & 0x3ff) / 1024.0,
        );
        let magnitude = match exponent {
            0 => fraction * 2f64.powi(-14),
            31 => f64::INFINITY,
            e => (1.0 + fraction) * 2f64.powi(e - 15),
        };
        if half & 0x8000 == 0 {
            magnitude
        } else {
            -magnitude
        }
    }

    #[test]
    fn every_half_has_its_value_and_comes_back() {
        for half in 0..=u16::MAX {
            if half & 0x7c00 == 0x7c00 && half & 0x3ff != 0 {
                assert!(to_f32(half).is_nan() && to_f32(from_f32(to_f32(half))).is_nan());
                continue;
            }
            assert_eq!(f64::from(to_f32(half)), exact(half), "{half:#x}");
            assert_eq!(from_f32(to_f32(half)), half);
        }
    }

    #[test]
    fn rounding_is_to_the_nearest_and_to_even() {
        for half in 0..0x7bffu16 {
            let (low, high) = (exact(half), exact(half + 1));
            let middle = ((low + high) / 2.0) as f32;
            assert_eq!(from_f32(middle), half + (half & 1), "{half:#x}");
            assert_eq!(from_f32(f32::from_bits(middle.to_bits() - 1)), half);
            assert_eq!(
                from_f32(-f32::from_bits(middle.to_bits() + 1)),
                (half + 1) | 0x8000
            );
        }
        assert_eq!(
            (
                from_f32(65519.0),
                from_f32(65520.0),
                from_f32(f32::INFINITY)
            ),
            (0x7bff, 0x7c00, 0x7c00)
        );
        assert_eq!((from_f32(1e-8), from_f32(-0.0)), (0, 0x8000));
    }
}
