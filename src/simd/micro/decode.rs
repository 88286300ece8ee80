//! Converts bytes and text to f32 with the widest vectors of the CPU. Readers of records spend most
//! of their time here.

#[derive(Clone, Copy)]
pub(crate) struct Decoder {
    widen: fn(&[u8], &mut [f32]),
    integers: fn(&[u8], &mut [f32]) -> (usize, usize),
}

impl Decoder {
    /// Returns the fastest decoder that this CPU can run.
    pub(crate) fn detect() -> Decoder {
        Decoder::all().next().unwrap_or(Decoder::PORTABLE)
    }

    /// Returns all decoders that this CPU can run, fastest first.
    pub(crate) fn all() -> impl Iterator<Item = Decoder> {
        #[cfg(target_arch = "x86_64")]
        let list = [
            #[cfg(mortonnet_avx512)]
            (is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512vbmi")
                && is_x86_feature_detected!("avx512vbmi2")
                && is_x86_feature_detected!("popcnt")
                && is_x86_feature_detected!("lzcnt")
                && is_x86_feature_detected!("bmi2")
                && is_x86_feature_detected!("avx2"))
            .then_some(x86::AVX512),
            is_x86_feature_detected!("avx2").then_some(x86::AVX2),
            Some(Decoder::PORTABLE),
        ];
        #[cfg(target_arch = "arm")]
        let list = [
            super::arm::has_neon().then_some(Decoder {
                widen: super::arm::widen,
                ..Decoder::PORTABLE
            }),
            Some(Decoder::PORTABLE),
        ];
        #[cfg(not(any(target_arch = "x86_64", target_arch = "arm")))]
        let list = [Some(Decoder::PORTABLE)];
        list.into_iter().flatten()
    }

    /// The decoder that runs on every CPU. Its `integers` reads nothing, so the caller must parse
    /// all text.
    pub(crate) const PORTABLE: Decoder = Decoder {
        widen,
        integers: |_, _| (0, 0),
    };

    /// Converts each byte to a float and writes it to `values`.
    ///
    /// # Panics
    /// If the lengths differ.
    #[inline]
    pub(crate) fn widen(&self, bytes: &[u8], values: &mut [f32]) {
        assert_eq!(bytes.len(), values.len());
        (self.widen)(bytes, values);
    }

    /// Reads integers of one to four digits, each followed by a comma, from the start of `text`
    /// into `values`. It stops at the first other field, or earlier. Returns the number of integers
    /// and the number of bytes read.
    #[inline]
    pub(crate) fn integers(&self, text: &[u8], values: &mut [f32]) -> (usize, usize) {
        (self.integers)(text, values)
    }
}

fn widen(bytes: &[u8], values: &mut [f32]) {
    bytes
        .iter()
        .zip(values)
        .for_each(|(&b, v)| *v = f32::from(b));
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::Decoder;
    use std::arch::x86_64::*;

    pub(super) const AVX2: Decoder = Decoder {
        widen,
        ..Decoder::PORTABLE
    };

    fn widen(bytes: &[u8], values: &mut [f32]) {
        // SAFETY: `Decoder::all` offers this only with AVX2.
        unsafe { avx2(bytes, values) }
    }

    #[target_feature(enable = "avx2")]
    unsafe fn avx2(bytes: &[u8], values: &mut [f32]) {
        let (bytes, bytes_left) = bytes.split_at(bytes.len() / 8 * 8);
        let (values, values_left) = values.split_at_mut(bytes.len());
        for (b, v) in bytes.chunks_exact(8).zip(values.chunks_exact_mut(8)) {
            // SAFETY: reads eight bytes and writes eight values, which need no alignment.
            unsafe {
                let wide = _mm256_cvtepu8_epi32(_mm_loadl_epi64(b.as_ptr().cast()));
                _mm256_storeu_ps(v.as_mut_ptr(), _mm256_cvtepi32_ps(wide));
            }
        }
        super::widen(bytes_left, values_left);
    }

    #[cfg(mortonnet_avx512)]
    pub(super) use avx512::AVX512;

    /// The AVX-512 intrinsics are stable since Rust 1.89. build.rs sets the cfg `mortonnet_avx512`
    /// for such compilers.
    #[cfg(mortonnet_avx512)]
    #[allow(clippy::incompatible_msrv)]
    mod avx512 {
        use super::*;

        pub(in super::super) const AVX512: Decoder = Decoder { integers, ..AVX2 };

        fn integers(text: &[u8], values: &mut [f32]) -> (usize, usize) {
            // SAFETY: `Decoder::all` offers this only with these features.
            unsafe { vbmi2(text, values) }
        }

        /// Reads 64 bytes of text at a time. Compressing byte positions by the mask of the commas
        /// gives the start and end of each field. Sixteen fields at a time are then right-aligned
        /// in lanes of four bytes. Their digits are multiplied by powers of ten and added.
        #[target_feature(enable = "avx512f,avx512bw,avx512vbmi,avx512vbmi2,popcnt,lzcnt,bmi2")]
        unsafe fn vbmi2(text: &[u8], values: &mut [f32]) -> (usize, usize) {
            const IOTA: [i8; 64] = {
                let mut bytes = [0; 64];
                let mut i = 0;
                while i < 64 {
                    bytes[i] = i as i8;
                    i += 1;
                }
                bytes
            };
            let (mut count, mut at) = (0, 0);
            while at < text.len() {
                let there = lowest(text.len() - at);
                // SAFETY: masked loads touch only bytes inside `text`. Masked stores touch only
                // `fields` values inside `values`.
                unsafe {
                    let iota = _mm512_loadu_epi8(IOTA.as_ptr());
                    let bytes = _mm512_maskz_loadu_epi8(there, text[at..].as_ptr().cast());
                    let digits = _mm512_sub_epi8(bytes, _mm512_set1_epi8(b'0' as i8));
                    let digit = _mm512_cmplt_epu8_mask(digits, _mm512_set1_epi8(10));
                    let comma = _mm512_cmpeq_epi8_mask(bytes, _mm512_set1_epi8(b',' as i8));
                    let start = comma << 1 | 1;
                    // The run of fields ends at a byte that is neither digit nor comma, at an empty
                    // field, and at the fifth digit of a field.
                    let pairs = digit & digit << 1;
                    let odd =
                        !(digit | comma) | (comma & start) | (pairs & pairs << 2 & digit << 4);
                    let comma = comma & (odd.wrapping_sub(1) & !odd);
                    let fields = comma.count_ones() as usize;
                    if fields == 0 || fields > values.len() - count {
                        break;
                    }
                    let ends = _mm512_maskz_compress_epi8(comma, iota);
                    let starts = _mm512_maskz_compress_epi8(start, iota);
                    let mut group = 0;
                    while group < fields {
                        // Bytes 4i to 4i + 3 of `place` are the text positions of the last four
                        // digits of field `group` + i. The mask `inside` excludes positions before
                        // the start of the field.
                        let lanes = _mm512_add_epi8(
                            _mm512_srli_epi16::<2>(_mm512_and_si512(iota, _mm512_set1_epi8(0x3c))),
                            _mm512_set1_epi8(group as i8),
                        );
                        let place = _mm512_add_epi8(
                            _mm512_permutexvar_epi8(lanes, ends),
                            _mm512_set1_epi32(i32::from_le_bytes([252, 253, 254, 255])),
                        );
                        let inside =
                            _mm512_cmpge_epi8_mask(place, _mm512_permutexvar_epi8(lanes, starts));
                        let four = _mm512_maskz_permutexvar_epi8(inside, place, digits);
                        let two = _mm512_maddubs_epi16(
                            four,
                            _mm512_set1_epi16(i16::from_le_bytes([10, 1])),
                        );
                        let one = _mm512_madd_epi16(two, _mm512_set1_epi32(100 | 1 << 16));
                        let left = lowest((fields - group).min(16)) as u16;
                        let to = values[count + group..].as_mut_ptr();
                        _mm512_mask_storeu_ps(to, left, _mm512_cvtepi32_ps(one));
                        group += 16;
                    }
                    count += fields;
                    at += 64 - comma.leading_zeros() as usize;
                }
            }
            (count, at)
        }

        /// Returns a mask with the lowest `n` bits set, or with all bits set if `n` is 64 or more.
        #[inline(always)]
        fn lowest(n: usize) -> u64 {
            if n >= 64 { u64::MAX } else { (1 << n) - 1 }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_byte_is_widened() {
        let bytes: Vec<u8> = (0..=255).cycle().skip(3).take(700).collect();
        for decoder in Decoder::all() {
            for n in (0..40).chain([256, 699]) {
                let mut values = vec![f32::NAN; n];
                decoder.widen(&bytes[..n], &mut values);
                assert!(
                    values.iter().zip(&bytes).all(|(&v, &b)| v == f32::from(b)),
                    "{n}"
                );
            }
        }
    }

    /// Returns the numbers of those fields at the start of `text` that `integers` may read.
    fn expected(text: &str) -> Vec<f32> {
        let (text, _) = text.rsplit_once(',').unwrap_or_default();
        let plain = |f: &&str| (1..=4).contains(&f.len()) && f.bytes().all(|b| b.is_ascii_digit());
        text.split(',')
            .take_while(plain)
            .map(|f| f.parse().unwrap())
            .collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn integers_are_read_up_to_the_first_other_field(
            fields in proptest::collection::vec(prop_oneof![
                60 => "[0-9]{1,3}", 20 => "[0-9]{4}", 1 => "[0-9]{5}", 1 => "",
                1 => "-?[0-9.]{1,5}", 1 => " 7"
            ], 0..300),
            spare in 0usize..3,
        ) {
            let text = fields.join(",");
            let all = expected(&text);
            for decoder in Decoder::all() {
                let mut values = vec![f32::NAN; fields.len().max(1) + spare];
                let (count, bytes) = decoder.integers(text.as_bytes(), &mut values);
                prop_assert_eq!(&values[..count], &all[..count]);
                prop_assert!(values[count..].iter().all(|v| v.is_nan()));
                let taken: usize = fields[..count].iter().map(|f| f.len() + 1).sum();
                prop_assert_eq!(bytes, taken);
                // If `values` is too short for all numbers, nothing is written outside of it.
                let mut few = vec![f32::NAN; count / 2];
                let (fewer, _) = decoder.integers(text.as_bytes(), &mut few);
                prop_assert_eq!(&few[..fewer], &all[..fewer]);
            }
        }
    }

    /// With AVX-512, the decoder reads all fields that it may, and does not stop early.
    #[test]
    fn the_vector_path_reads_all_it_may() {
        #[cfg(all(target_arch = "x86_64", mortonnet_avx512))]
        if is_x86_feature_detected!("avx512vbmi2") {
            let text: String = (0..2000).map(|n| format!("{},", n * 37 % 10_000)).collect();
            let mut values = vec![0.0; 2000];
            assert_eq!(
                Decoder::detect().integers(text.as_bytes(), &mut values),
                (2000, text.len())
            );
        }
    }
}
