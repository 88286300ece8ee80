//! Rounding of floats to 8-bit integers whose scale follows from the floats themselves. The rules
//! are those of XNNPACK's operators of dynamic range (`qd8`), which LiteRT runs. Each operation is
//! rounded to f32 as there.

/// The scale and the zero point of some floats that are rounded together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ByteSteps {
    /// The number of integers in 1.0.
    scale: f32,
    /// The distance of two neighbouring integers: 1 / scale.
    step: f32,
    /// The integer that stands for 0.
    zero: f32,
}

const LOW: f32 = -128.0;
const HIGH: f32 = 127.0;

impl ByteSteps {
    /// Returns the steps of floats from `least` to `most`. 0 is always in their range.
    pub(crate) fn between(least: f32, most: f32) -> ByteSteps {
        let (least, most) = (least.min(0.0), most.max(0.0));
        let scale = (HIGH - LOW) / (most - least);
        // All floats are 0, or so small that they become 0.
        let scale = if scale.is_infinite() { 1.0 } else { scale };
        let (first, last) = (least * scale, most * scale);
        // The zero point follows from the end of the range that has less error.
        let zero = match (LOW + first) + (HIGH + last) > 0.0 {
            true => LOW - first,
            false => HIGH - last,
        };
        ByteSteps {
            scale,
            step: 1.0 / scale,
            zero: nearest(limited(zero)),
        }
    }

    /// Returns the real number that the integer of `x` stands for. NaN stays NaN.
    #[inline(always)]
    pub(crate) fn rounded(&self, x: f32) -> f32 {
        (limited(nearest(x * self.scale) + self.zero) - self.zero) * self.step
    }
}

/// Returns the nearest whole number, of two the even one, for numbers below 2²². Baseline x86-64
/// has no instruction for that.
#[inline(always)]
fn nearest(x: f32) -> f32 {
    const ONE: f32 = (3 << 22) as f32;
    (x + ONE) - ONE
}

/// `clamp` as two comparisons, which vectors have.
#[inline(always)]
fn limited(x: f32) -> f32 {
    let x = if x < LOW { LOW } else { x };
    if x > HIGH { HIGH } else { x }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_and_zero_are_kept() {
        for (least, most) in [
            (-1.0, 3.0),
            (0.0, 6.0),
            (-2.0, 0.0),
            (0.5, 1.0),
            (-3.1, 3.1),
        ] {
            let steps = ByteSteps::between(least, most);
            assert_eq!(steps.rounded(0.0), 0.0);
            for x in [least, most, 0.3 * most] {
                let error = (steps.rounded(x) - x).abs();
                assert!(
                    error <= 0.51 * steps.step,
                    "{x} of {least}..{most}: {error}"
                );
            }
        }
    }

    #[test]
    fn equal_ends_round_to_the_lower_integer() {
        // 127.5 steps to both sides of 0: the zero point is 0, and 128 has no byte.
        let steps = ByteSteps::between(-2.0, 2.0);
        assert_eq!((steps.scale, steps.zero), (63.75, 0.0));
        let whole = [2.0, -2.0].map(|x| (steps.rounded(x) * 63.75).round());
        assert_eq!(whole, [127.0, -128.0]);
    }

    #[test]
    fn zeros_and_other_numbers() {
        assert_eq!(ByteSteps::between(0.0, 0.0).rounded(0.0), 0.0);
        assert!(ByteSteps::between(-1.0, 1.0).rounded(f32::NAN).is_nan());
        assert!(
            ByteSteps::between(-1.0, f32::INFINITY)
                .rounded(1.0)
                .is_nan()
        );
        assert_eq!(ByteSteps::between(-1e-40, 1e-38).rounded(1e-38), 0.0);
    }
}
