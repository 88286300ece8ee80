//! Parses the numbers of CSV fields: a fast path for plain decimals, and the standard library for
//! all others.
//!
//! Both ways give the same bits. A decimal is m·10^e. If the result's type holds both m and 10^|e|
//! exactly, their product or quotient is rounded only once (Clinger, "How to read floating point
//! numbers accurately", 1990).

/// A decimal number: (−1)^negative · mantissa · 10^exponent.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Decimal {
    negative: bool,
    mantissa: u64,
    exponent: i32,
}

/// The largest number of decimal digits that always fit u64.
const DIGITS: usize = 19;
/// Every whole number up to `EXACT_F32` is exact in f32, and up to `EXACT_F64` in f64.
const EXACT_F32: u64 = 1 << 24;
const EXACT_F64: u64 = 1 << 53;
/// All powers of ten that are exact in f32.
const POWERS_F32: [f32; 11] = [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10];
/// All powers of ten that are exact in f64.
const POWERS_F64: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
];

/// The type to which the numbers of CSV fields are parsed: f64 if the input is scaled, else f32.
pub(super) trait Number: Copy {
    /// True if the input scaling is applied to the number before it is rounded to f32.
    const SCALED: bool;

    /// Returns the decimal number, rounded once. `None` if the mantissa or the power of ten is not
    /// exact in the type, so that the result could be rounded twice.
    fn quick(negative: bool, mantissa: u64, exponent: i32) -> Option<Self>;

    /// Converts a whole number below 2^24, for which the conversion is exact.
    fn small(value: f32) -> Self;

    /// Parses a number by the standard library.
    fn parse(text: &str) -> Option<Self>;
}

impl Number for f64 {
    const SCALED: bool = true;

    #[inline(always)]
    fn quick(negative: bool, mantissa: u64, exponent: i32) -> Option<Self> {
        if mantissa > EXACT_F64 {
            return None;
        }
        let power = *POWERS_F64.get(exponent.unsigned_abs() as usize)?;
        let m = mantissa as f64;
        let value = if exponent < 0 { m / power } else { m * power };
        Some(if negative { -value } else { value })
    }

    #[inline(always)]
    fn small(value: f32) -> Self {
        value.into()
    }

    fn parse(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

impl Number for f32 {
    const SCALED: bool = false;

    #[inline(always)]
    fn quick(negative: bool, mantissa: u64, exponent: i32) -> Option<Self> {
        if mantissa <= EXACT_F32 {
            if let Some(power) = POWERS_F32.get(exponent.unsigned_abs() as usize) {
                let m = mantissa as f32;
                let value = if exponent < 0 { m / power } else { m * power };
                return Some(if negative { -value } else { value });
            }
        }
        // Rounding to f64 and then to f32 equals rounding once, unless the f64 lies in the middle
        // of two f32. Subnormal f32 do not occur: the value is 0 or at least 1e-22.
        const HIDDEN: u64 = (1 << 29) - 1;
        let value = f64::quick(negative, mantissa, exponent)?;
        (value.to_bits() & HIDDEN != 1 << 28).then_some(value as f32)
    }

    #[inline(always)]
    fn small(value: f32) -> Self {
        value
    }

    fn parse(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

/// Parses the field that starts at `at` in a line, and returns its number and end. `None` unless it
/// is a whole number below ten million without a sign, and a comma follows. Pixels and counters
/// need no more.
#[inline(always)]
pub(super) fn small<N: Number>(line: &[u8], at: usize) -> Option<(N, usize)> {
    let mut value = 0u32;
    let mut end = at;
    // The loop uses plain indices. The crate is compiled for size, so chains of iterators are not
    // inlined.
    while end < line.len() && end < at + 8 {
        let b = line[end];
        let digit = b.wrapping_sub(b'0');
        if digit > 9 {
            return if b == b',' && end > at {
                Some((N::small(value as f32), end))
            } else {
                None
            };
        }
        value = value * 10 + u32::from(digit);
        end += 1;
    }
    // Either the line ends here, or the number is too long. The function `quick` reads both.
    None
}

/// Returns the number at the start of `bytes` and its length, if the fast path can read it. The
/// caller checks the bytes after the number.
#[inline(always)]
pub(super) fn quick<N: Number>(bytes: &[u8]) -> Option<(N, usize)> {
    let (d, length) = decimal(bytes)?;
    Some((N::quick(d.negative, d.mantissa, d.exponent)?, length))
}

/// Parses the whole `text` as a number, by the standard library. `None` if it is no number.
pub(super) fn parse<N: Number>(text: &[u8]) -> Option<N> {
    N::parse(std::str::from_utf8(text).ok()?)
}

#[inline(always)]
fn decimal(bytes: &[u8]) -> Option<(Decimal, usize)> {
    let (negative, mut at) = sign(bytes, 0);
    let mut mantissa = 0u64;
    let whole = at;
    at = digits(bytes, at, &mut mantissa);
    let mut count = at - whole;
    let mut exponent = 0;
    if at < bytes.len() && bytes[at] == b'.' {
        let point = at + 1;
        at = digits(bytes, point, &mut mantissa);
        count += at - point;
        // The exponent for 100 and more decimals is clamped. So many digits are refused below.
        exponent = -((at - point).min(100) as i32);
    }
    // Leading zeros count as digits. If they make too many, the standard library reads the number.
    if count == 0 || count > DIGITS {
        return None;
    }
    if at < bytes.len() && bytes[at] | 0x20 == b'e' {
        let (e, to) = power(bytes, at + 1)?;
        exponent += e;
        at = to;
    }
    Some((
        Decimal {
            negative,
            mantissa,
            exponent,
        },
        at,
    ))
}

/// Returns true if there is a minus at `at`. Also returns the position after the sign, or `at`
/// without a sign.
#[inline(always)]
fn sign(bytes: &[u8], at: usize) -> (bool, usize) {
    if at < bytes.len() && matches!(bytes[at], b'-' | b'+') {
        (bytes[at] == b'-', at + 1)
    } else {
        (false, at)
    }
}

/// Appends the digits from position `at` on to `number`, which wraps if there are too many. Returns
/// the position after the digits.
#[inline(always)]
fn digits(bytes: &[u8], mut at: usize, number: &mut u64) -> usize {
    // The loop uses plain indices for the same reason as that of `small`.
    while at < bytes.len() {
        let digit = bytes[at].wrapping_sub(b'0');
        if digit > 9 {
            break;
        }
        *number = number.wrapping_mul(10).wrapping_add(u64::from(digit));
        at += 1;
    }
    at
}

/// Returns the exponent that starts at `at`, and the position after it. `None` unless it has one to
/// three digits.
fn power(bytes: &[u8], at: usize) -> Option<(i32, usize)> {
    let (negative, from) = sign(bytes, at);
    let mut value = 0;
    let to = digits(bytes, from, &mut value);
    // An exponent of more than three digits is refused, because `value` may have wrapped.
    (to > from && to - from <= 3).then(|| {
        let value = value as i32;
        (if negative { -value } else { value }, to)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Checks that the fast path, if it accepts `text`, reads all of it and gives the same bits as
    /// the standard library.
    fn agrees(text: &str) -> Result<(), TestCaseError> {
        if let Some((value, length)) = quick::<f32>(text.as_bytes()) {
            let expected = text.parse::<f32>().unwrap().to_bits();
            prop_assert_eq!(
                (value.to_bits(), length),
                (expected, text.len()),
                "{}",
                text
            );
        }
        if let Some((value, length)) = quick::<f64>(text.as_bytes()) {
            let expected = text.parse::<f64>().unwrap().to_bits();
            prop_assert_eq!(
                (value.to_bits(), length),
                (expected, text.len()),
                "{}",
                text
            );
        }
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        #[test]
        fn decimals_have_the_bits_of_the_standard_library(
            text in "[+-]?(0{0,3}[0-9]{1,12}(\\.[0-9]{0,12})?|\\.[0-9]{1,12})([eE][+-]?[0-9]{1,2})?"
        ) {
            agrees(&text)?;
        }

        #[test]
        fn so_have_written_floats(
            bits in any::<u32>(),
            wide in any::<u64>(),
            digits in 0usize..12,
        ) {
            let (narrow, wide) = (f32::from_bits(bits), f64::from_bits(wide));
            prop_assume!(narrow.is_finite() && wide.is_finite());
            agrees(&format!("{narrow}"))?;
            agrees(&format!("{narrow:e}"))?;
            agrees(&format!("{narrow:.digits$}"))?;
            agrees(&format!("{wide:e}"))?;
        }

        #[test]
        fn and_texts_next_to_the_middle_of_two_f32(
            m in 1u32 << 23..1 << 24,
            shift in 0i32..24,
            change in -1i64..=1,
        ) {
            // The number (2m + 1) / 2 · 2^-shift needs 25 bits, so it is in the middle of two f32.
            let middle = (f64::from(m) + 0.5) * f64::from(-shift).exp2();
            let near = f64::from_bits((middle.to_bits() as i64 + change) as u64);
            agrees(&format!("{near}"))?;
            agrees(&format!("{middle:.16}"))?;
        }

        #[test]
        fn nothing_is_accepted_that_the_standard_library_refuses(text in "[-+.eE0-9xn]{0,7}") {
            if let Some((_, length)) = quick::<f32>(text.as_bytes()) {
                prop_assert!(text[..length].parse::<f32>().is_ok(), "{}", text);
            }
        }
    }

    #[test]
    fn small_numbers_end_at_a_comma() {
        assert_eq!(small::<f32>(b"1,007,", 2), Some((7.0, 5)));
        assert_eq!(small::<f64>(b"9999999,", 0), Some((9_999_999.0, 7)));
        for other in ["", ",", "1", "10000000,", "-1,", "1 ,", "1.5,"] {
            assert_eq!(small::<f32>(other.as_bytes(), 0), None, "{other}");
        }
    }

    #[test]
    fn plain_numbers_take_the_fast_path() {
        for text in "0 -0 +7 255 0.5 1. .5 -12.25 1e3 3.1415927 0.3000000000000001".split(' ') {
            let (value, length) = quick::<f32>(text.as_bytes()).expect(text);
            assert_eq!(length, text.len());
            assert_eq!(value.to_bits(), text.parse::<f32>().unwrap().to_bits());
        }
        // The digits of the last exponent are 2^31, which does not fit i32.
        let others = ",-,.,e5,x,1e,1e+,1e1000,123456789012345678901,nan,inf,1e-2147483648";
        for text in others.split(',') {
            assert_eq!(quick::<f32>(text.as_bytes()), None, "{text}");
        }
    }
}
