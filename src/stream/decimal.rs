//! Writes the shortest decimals of floats. Arithmetic in f64 finds them in less than half of the
//! standard library's time, which counts for networks with thousands of scores a record. If f64 is
//! not exact enough to find the text of a float, the standard library writes it.

/// Powers of ten. All are exact.
const POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
];

/// Numbers with a lower decimal exponent are written with an exponent.
const PLAIN: i32 = -5;

/// The powers of ten from 10^0 down to 10^-8, rounded to f64.
const PARTS: [f64; 9] = [1e0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8];

/// This is more than the rounding errors of this module's numbers. They are below 1e9, where
/// neighbouring f64 are 1.2e-7 apart. A comparison that is closer than this decides nothing.
const UNSURE: f64 = 1e-6;

/// Appends the shortest text that reads back as `x`, the nearest one if there are several. Numbers
/// below 1e-5 get an exponent. Returns false and appends nothing if `x` is 1e9 or larger or below
/// 1.1e-14, or if f64 cannot tell which text that is.
///
/// `x` and the middles between it and its neighbours are scaled so that `x` has nine digits before
/// the point. Then digits are cut off as long as the nearest remaining number is between the
/// middles.
pub(super) fn append(b: &mut Vec<u8>, x: f32) -> bool {
    let size = x.abs();
    // A power of two is not equally far from its two neighbours, but `room` holds one distance for
    // both.
    if !(1.1e-14..1e9).contains(&size) || size.to_bits() & 0x7f_ffff == 0 {
        return false;
    }
    let wide = f64::from(size);
    let half_unit = (f64::from(f32::from_bits(size.to_bits() + 1)) - wide) / 2.0;
    // The decimal exponent, -14 to 8, is log10(2) times the binary one, rounded down, or one more.
    let binary = (size.to_bits() >> 23) as i32 - 127;
    let least = (binary * 1233) >> 12;
    let exponent = least + i32::from(wide >= power(least + 1));
    let scale = POWERS[(8 - exponent) as usize];
    let (scaled, room) = (wide * scale, half_unit * scale);
    let Some((number, cut)) = shortest(scaled, room) else {
        return false;
    };
    let mut text = [b'0'; 24];
    text[0] = b'-';
    let plain = if exponent < PLAIN { 0 } else { exponent };
    let mut end = 1 + write(&mut text[1..], number, 9 - cut, plain);
    if exponent < PLAIN {
        text[end..end + 2].copy_from_slice(b"e-");
        end += 2;
        let size = exponent.unsigned_abs() as u8;
        if size >= 10 {
            text[end] = b'1';
            end += 1;
        }
        text[end] = b'0' + size % 10;
        end += 1;
    }
    b.extend_from_slice(&text[usize::from(x > 0.0)..end]);
    true
}

/// Returns 10^`exponent`, rounded to f64. The result is exact enough to compare a float with it.
fn power(exponent: i32) -> f64 {
    match usize::try_from(exponent) {
        Ok(n) => POWERS[n],
        Err(_) => 1.0 / POWERS[exponent.unsigned_abs() as usize],
    }
}

/// Rounds `scaled`, which has nine digits before the point, to as few digits as possible. The
/// result must be less than `room` away. Returns the digits as a number, and how many of the nine
/// were cut off. `None` if f64 cannot tell, or if the number was rounded up to ten digits.
fn shortest(scaled: f64, room: f64) -> Option<(u32, usize)> {
    let mut found = None;
    for (cut, (unit, part)) in POWERS.iter().zip(PARTS).enumerate() {
        let parts = scaled * part;
        // Casts are quicker than `floor`, which is a call on x86-64.
        let nearest = (parts + 0.5) as u32;
        let distance = (f64::from(nearest) * unit - scaled).abs();
        if distance > room + UNSURE {
            break;
        }
        let tie = (parts - f64::from(parts as u32) - 0.5).abs() * unit < UNSURE;
        if distance > room - UNSURE || tie {
            return None;
        }
        found = Some((nearest, cut));
    }
    // A number that was rounded up to ten digits is left to the standard library.
    found.filter(|&(number, cut)| f64::from(number) < POWERS[9 - cut])
}

/// Writes `number`, which has `digits` digits, into `text`, which holds only characters `0`. The
/// first digit counts 10^`exponent`. Returns the length of the written text.
fn write(text: &mut [u8], mut number: u32, digits: usize, exponent: i32) -> usize {
    // If all digits stand on one side of the point, they are written in place. If the point is
    // among them, all are written one place late, and those before the point then move forward.
    let whole = usize::try_from(exponent + 1).unwrap_or(0);
    let first = match whole {
        0 => 2 + (-1 - exponent) as usize,
        _ if digits <= whole => 0,
        _ => 1,
    };
    for place in text[first..first + digits].iter_mut().rev() {
        *place = b'0' + (number % 10) as u8;
        number /= 10;
    }
    match first {
        0 => whole,
        1 => {
            for i in 0..whole {
                text[i] = text[i + 1];
            }
            text[whole] = b'.';
            digits + 1
        }
        _ => {
            text[1] = b'.';
            first + digits
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Checks that `append` writes the standard library's text for `x`, or nothing. Returns true if
    /// it writes a text.
    fn agrees(x: f32) -> Result<bool, TestCaseError> {
        let mut text = Vec::new();
        let done = append(&mut text, x);
        if done {
            let expected = match x.abs() {
                1e-5.. => format!("{x}"),
                _ => format!("{x:e}"),
            };
            prop_assert_eq!(String::from_utf8_lossy(&text), expected);
        } else {
            prop_assert!(text.is_empty());
        }
        Ok(done)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200_000))]

        #[test]
        fn any_bits(bits in any::<u32>()) {
            agrees(f32::from_bits(bits))?;
        }

        #[test]
        fn sizes_of_scores(bits in 0x2834_24dcu32..0x4e6e_6b28, negative in any::<bool>()) {
            let x = f32::from_bits(bits);
            agrees(if negative { -x } else { x })?;
        }

        #[test]
        fn short_decimals(digits in 1u32..10_000_000, exponent in 0usize..8) {
            agrees((f64::from(digits) / POWERS[exponent]) as f32)?;
        }
    }

    #[test]
    fn most_scores_are_told() {
        let all = (0..100_000u32).map(|i| (i as f32 + 0.37) * 1e-3);
        let told = all.filter(|&x| agrees(x).unwrap()).count();
        assert!(told > 99_000, "{told}");
    }
}
