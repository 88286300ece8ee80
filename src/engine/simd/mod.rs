//! The host's micro-kernels: one affine layer for a few records, with the widest vectors the CPU has.
//!
//! Weights are in panels of P rows (`R_P_1_C`): for each k, P weights are neighbours. A micro-tile is a few records by a
//! few vectors of rows; its sums stay in registers. Each sum adds its products in the order of k, so a record's scores
//! do not depend on the records beside it.
#![allow(unsafe_code)]

pub mod decode;

use crate::spec::network::Activation;

/// One affine layer on a block of records.
pub struct Affine<'a> {
    /// Weights, `rows`/P panels of `inputs` × P.
    pub weights: &'a [f32],
    /// Biases, `rows`.
    pub biases: &'a [f32],
    /// Rows of a panel, a multiple of 4.
    pub panel: usize,
    /// Columns of the weights: the padded common dimension.
    pub columns: usize,
    /// Common dimension: columns behind it are padding and not read.
    pub inputs: usize,
    /// Applied to each sum.
    pub activation: Activation,
}

/// The micro-kernels for one instruction set.
#[derive(Clone, Copy)]
pub struct Kernels {
    /// Name of the instruction set.
    pub name: &'static str,
    affine: fn(&Affine<'_>, Records<'_>, &mut [f32], usize),
}

/// Records, one after the other, `stride` apart.
#[derive(Clone, Copy)]
pub struct Records<'a> {
    /// Values.
    pub data: &'a [f32],
    /// Distance between the first values of neighbours.
    pub stride: usize,
    /// Number of records.
    pub count: usize,
}

impl Kernels {
    /// The best for this CPU, asked at run time: the binary runs on every CPU of its architecture.
    pub fn detect() -> Kernels {
        Kernels::all().next().unwrap_or(Kernels::PORTABLE)
    }

    /// Everything this CPU can run, the best first.
    pub fn all() -> impl Iterator<Item = Kernels> {
        #[cfg(target_arch = "x86_64")]
        let list = [
            #[cfg(mortonnet_avx512)]
            is_x86_feature_detected!("avx512f").then_some(x86::AVX512),
            (is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")).then_some(x86::AVX2),
            Some(Kernels::PORTABLE),
        ];
        #[cfg(target_arch = "aarch64")]
        let list = [Some(aarch64::NEON), Some(Kernels::PORTABLE)];
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        let list = [Some(Kernels::PORTABLE)];
        list.into_iter().flatten()
    }

    /// What every CPU runs: four lanes in plain Rust.
    pub const PORTABLE: Kernels = Kernels {
        name: "portable",
        // SAFETY: plain Rust needs no instruction set.
        affine: |layer, x, result, stride| unsafe { affine::<Lanes4, 4>(layer, x, result, stride) },
    };

    /// `result[n · result_stride + row] = activation(Σₖ W[row, k] · x[n, k] + b[row])` for every record n and every row
    /// (padding rows included).
    ///
    /// # Panics
    /// If a slice is too short for the sizes.
    pub fn affine(&self, layer: &Affine<'_>, x: Records<'_>, result: &mut [f32], result_stride: usize) {
        let rows = layer.biases.len();
        if x.count == 0 || rows == 0 {
            return;
        }
        assert!(layer.panel > 0 && layer.panel % 4 == 0 && rows % layer.panel == 0, "panels of 4 n rows");
        assert!(
            layer.weights.len() == rows * layer.columns && layer.inputs <= layer.columns,
            "weights of {rows} rows"
        );
        assert!(x.data.len() >= (x.count - 1) * x.stride + layer.inputs, "records");
        assert!(result_stride >= rows && result.len() >= (x.count - 1) * result_stride + rows, "results");
        (self.affine)(layer, x, result, result_stride);
        for n in 0..x.count {
            activate(layer.activation, &mut result[n * result_stride..][..rows]);
        }
    }
}

/// A vector of an instruction set. Everything is `inline(always)`, so that it becomes part of the function that
/// enables the instruction set.
///
/// SAFETY: the CPU has the instruction set; pointers are good for `LANES` values.
trait Vector: Copy {
    const LANES: usize;
    unsafe fn splat(x: f32) -> Self;
    unsafe fn load(from: *const f32) -> Self;
    unsafe fn store(self, to: *mut f32);
    /// a · b + self
    unsafe fn fma(self, a: Self, b: Self) -> Self;
}

/// Four lanes without any instruction set.
#[derive(Clone, Copy)]
struct Lanes4([f32; 4]);

impl Vector for Lanes4 {
    const LANES: usize = 4;

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        Lanes4([x; 4])
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the trait's promise.
        Lanes4(unsafe { from.cast::<[f32; 4]>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the trait's promise.
        unsafe { to.cast::<[f32; 4]>().write_unaligned(self.0) }
    }

    #[inline(always)]
    unsafe fn fma(self, a: Self, b: Self) -> Self {
        let (s, a, b) = (self.0, a.0, b.0);
        Lanes4([s[0] + a[0] * b[0], s[1] + a[1] * b[1], s[2] + a[2] * b[2], s[3] + a[3] * b[3]])
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Affine, Kernels, Lanes4, Records, Vector, affine};
    use std::arch::x86_64::*;

    /// For CPUs with AVX2 and FMA.
    pub(super) const AVX2: Kernels = Kernels {
        name: "avx2",
        // SAFETY: `Kernels::all` offers it where the CPU has the features.
        affine: |layer, x, result, stride| unsafe { avx2(layer, x, result, stride) },
    };

    #[target_feature(enable = "avx2,fma")]
    unsafe fn avx2(layer: &Affine<'_>, x: Records<'_>, result: &mut [f32], stride: usize) {
        // SAFETY: the caller's promise is passed on.
        unsafe {
            if layer.panel % 8 == 0 {
                affine::<F32x8, 6>(layer, x, result, stride);
            } else {
                affine::<Lanes4, 4>(layer, x, result, stride);
            }
        }
    }

    macro_rules! vector {
        ($name:ident, $type:ty, $lanes:literal, $splat:ident, $load:ident, $store:ident, $fma:ident) => {
            #[derive(Clone, Copy)]
            struct $name($type);

            impl Vector for $name {
                const LANES: usize = $lanes;

                #[inline(always)]
                unsafe fn splat(x: f32) -> Self {
                    // SAFETY: the trait's promise.
                    unsafe { $name($splat(x)) }
                }

                #[inline(always)]
                unsafe fn load(from: *const f32) -> Self {
                    // SAFETY: the trait's promise.
                    unsafe { $name($load(from)) }
                }

                #[inline(always)]
                unsafe fn store(self, to: *mut f32) {
                    // SAFETY: the trait's promise.
                    unsafe { $store(to, self.0) }
                }

                #[inline(always)]
                unsafe fn fma(self, a: Self, b: Self) -> Self {
                    // SAFETY: the trait's promise.
                    unsafe { $name($fma(a.0, b.0, self.0)) }
                }
            }
        };
    }

    vector!(F32x8, __m256, 8, _mm256_set1_ps, _mm256_loadu_ps, _mm256_storeu_ps, _mm256_fmadd_ps);

    #[cfg(mortonnet_avx512)]
    pub(super) use avx512::AVX512;

    /// Stable from Rust 1.89 on: build.rs sets the cfg for such compilers.
    #[cfg(mortonnet_avx512)]
    #[allow(clippy::incompatible_msrv)]
    mod avx512 {
        use super::*;

        /// For CPUs with AVX-512.
        pub(in super::super) const AVX512: Kernels = Kernels {
            name: "avx512",
            // SAFETY: `Kernels::all` offers it where the CPU has the features.
            affine: |layer, x, result, stride| unsafe { avx512(layer, x, result, stride) },
        };

        #[target_feature(enable = "avx512f,avx2,fma")]
        unsafe fn avx512(layer: &Affine<'_>, x: Records<'_>, result: &mut [f32], stride: usize) {
            // SAFETY: the caller's promise is passed on.
            unsafe {
                if layer.panel % 16 == 0 {
                    affine::<F32x16, 8>(layer, x, result, stride);
                } else {
                    avx2(layer, x, result, stride);
                }
            }
        }

        vector!(F32x16, __m512, 16, _mm512_set1_ps, _mm512_loadu_ps, _mm512_storeu_ps, _mm512_fmadd_ps);
    }
}

#[cfg(target_arch = "aarch64")]
mod aarch64 {
    use super::{Kernels, Vector, affine};
    use std::arch::aarch64::*;

    /// NEON is part of the architecture.
    pub(super) const NEON: Kernels = Kernels {
        name: "neon",
        // SAFETY: every aarch64 CPU has NEON.
        affine: |layer, x, result, stride| unsafe { affine::<F32x4, 8>(layer, x, result, stride) },
    };

    #[derive(Clone, Copy)]
    struct F32x4(float32x4_t);

    impl Vector for F32x4 {
        const LANES: usize = 4;

        #[inline(always)]
        unsafe fn splat(x: f32) -> Self {
            // SAFETY: the trait's promise.
            unsafe { F32x4(vdupq_n_f32(x)) }
        }

        #[inline(always)]
        unsafe fn load(from: *const f32) -> Self {
            // SAFETY: the trait's promise.
            unsafe { F32x4(vld1q_f32(from)) }
        }

        #[inline(always)]
        unsafe fn store(self, to: *mut f32) {
            // SAFETY: the trait's promise.
            unsafe { vst1q_f32(to, self.0) }
        }

        #[inline(always)]
        unsafe fn fma(self, a: Self, b: Self) -> Self {
            // SAFETY: the trait's promise.
            unsafe { F32x4(vfmaq_f32(self.0, a.0, b.0)) }
        }
    }
}

/// Runs the body for each `$i` below `$n` (a constant, at most 8), written out: the crate is compiled for size, and a
/// loop over registers must not stay a loop.
macro_rules! unrolled {
    ($i:ident < $n:expr, $body:block) => {
        unrolled!(@ $i, $n, $body, 0 1 2 3 4 5 6 7)
    };
    (@ $i:ident, $n:expr, $body:block, $($k:literal)*) => {
        $(if $k < $n {
            let $i = $k;
            $body
        })*
    };
}

/// All rows of a layer for all records, without the activation.
///
/// A tile is M records by two vectors of rows (a load of each vector serves M multiply-adds, a broadcast serves two).
/// All records pass by a pair of vectors before the next pair is read: weights come from memory once. For a single
/// record, eight vectors keep enough sums in flight.
///
/// SAFETY: `Kernels::affine` has checked the slices, V's lanes divide the panel, the CPU has V's instruction set.
#[inline(always)]
unsafe fn affine<V: Vector, const M: usize>(
    layer: &Affine<'_>,
    x: Records<'_>,
    result: &mut [f32],
    stride: usize,
) {
    let vectors = layer.biases.len() / V::LANES;
    let tiles = x.count / M * M;
    let mut v = 0;
    // SAFETY: tiles cover records n to n + M and vectors v to v + N, both inside; passed on.
    unsafe {
        while tiles > 0 && v + 2 <= vectors {
            (0..tiles).step_by(M).for_each(|n| tile::<V, M, 2>(layer, x, n, v, result, stride));
            v += 2;
        }
        while tiles > 0 && v < vectors {
            (0..tiles).step_by(M).for_each(|n| tile::<V, M, 1>(layer, x, n, v, result, stride));
            v += 1;
        }
        v = 0;
        while tiles < x.count && v + 8 <= vectors {
            (tiles..x.count).for_each(|n| tile::<V, 1, 8>(layer, x, n, v, result, stride));
            v += 8;
        }
        while tiles < x.count && v < vectors {
            (tiles..x.count).for_each(|n| tile::<V, 1, 1>(layer, x, n, v, result, stride));
            v += 1;
        }
    }
}

/// Records n to n + M by vectors v to v + N.
///
/// SAFETY: as `affine`; the records and vectors exist.
#[inline(always)]
unsafe fn tile<V: Vector, const M: usize, const N: usize>(
    layer: &Affine<'_>,
    x: Records<'_>,
    n: usize,
    v: usize,
    result: &mut [f32],
    stride: usize,
) {
    let (panel, columns, inputs) = (layer.panel, layer.columns, layer.inputs);
    let mut records = [std::ptr::null::<f32>(); M];
    unrolled!(m < M, { records[m] = x.data[(n + m) * x.stride..].as_ptr() });
    // Vector i covers rows i · LANES of the layer: a part of a panel.
    let mut weights = [std::ptr::null::<f32>(); N];
    unrolled!(i < N, {
        let row = (v + i) * V::LANES;
        weights[i] = layer.weights[row / panel * panel * columns + row % panel..].as_ptr();
    });
    // SAFETY: every pointer stays inside its slice: `inputs` values of a record; of the weights, `inputs` vectors that
    // are `panel` apart; LANES biases and results per vector.
    unsafe {
        let mut sums = [[V::splat(0.0); N]; M];
        for k in 0..inputs {
            let mut w = [V::splat(0.0); N];
            unrolled!(i < N, { w[i] = V::load(weights[i].add(k * panel)) });
            unrolled!(m < M, {
                let value = V::splat(*records[m].add(k));
                unrolled!(i < N, { sums[m][i] = sums[m][i].fma(w[i], value) });
            });
        }
        unrolled!(i < N, {
            let row = (v + i) * V::LANES;
            let bias = V::load(layer.biases[row..].as_ptr());
            unrolled!(m < M, {
                // Adding with a factor of one rounds once, as adding does.
                let sum = bias.fma(sums[m][i], V::splat(1.0));
                sum.store(result[(n + m) * stride + row..].as_mut_ptr());
            });
        });
    }
}

/// Applies an activation in place. NaN stays NaN.
pub fn activate(activation: Activation, values: &mut [f32]) {
    match activation {
        Activation::None => {}
        Activation::Sigmoid => values.iter_mut().for_each(|v| *v = 1.0 / (1.0 + (-*v).exp())),
        Activation::Relu => values.iter_mut().for_each(|v| *v = if *v < 0.0 { 0.0 } else { *v }),
        Activation::Tanh => values.iter_mut().for_each(|v| *v = v.tanh()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::layout::Layout;

    /// Every panel, every count of records to 19, odd sizes: against float64, and independent of the records beside.
    #[test]
    fn affine_agrees_with_float64() {
        let mut seed = 1u32;
        let mut random = || {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 8) as f32 / (1 << 24) as f32 - 0.5
        };
        for kernels in Kernels::all() {
            for (panel, outputs, inputs) in
                [(4, 10, 7), (8, 17, 33), (12, 25, 5), (16, 10, 64), (32, 31, 100), (48, 100, 3)]
            {
                let padded = usize::next_multiple_of(outputs, panel);
                let w: Vec<f32> = (0..outputs * inputs).map(|_| random()).collect();
                let layout = Layout::parse(&format!("R_{panel}_1_C")).unwrap();
                let columns = inputs + 2;
                let packed = layout.pack(&w, (outputs, inputs), (padded, columns), f32::NAN);
                let mut biases: Vec<f32> = (0..outputs).map(|_| random()).collect();
                biases.resize(padded, 0.0);
                let (x_stride, r_stride) = (inputs + 3, padded + 5);
                let x: Vec<f32> = (0..19 * x_stride).map(|_| random()).collect();
                let mut first: Vec<f32> = Vec::new();
                for count in 1..=19 {
                    for activation in
                        [Activation::None, Activation::Sigmoid, Activation::Relu, Activation::Tanh]
                    {
                        let layer =
                            Affine { weights: &packed, biases: &biases, panel, columns, inputs, activation };
                        let mut result = vec![f32::NAN; 19 * r_stride];
                        let records = Records { data: &x, stride: x_stride, count };
                        kernels.affine(&layer, records, &mut result, r_stride);
                        for n in 0..count {
                            for o in 0..outputs {
                                let sum: f64 = (0..inputs)
                                    .map(|k| f64::from(w[o * inputs + k]) * f64::from(x[n * x_stride + k]))
                                    .sum();
                                let expected = activation.apply(sum + f64::from(biases[o]));
                                let found = f64::from(result[n * r_stride + o]);
                                assert!((found - expected).abs() < 1e-5, "{} {panel} {count}", kernels.name);
                            }
                        }
                        for n in 0..19 {
                            let from = if n < count { padded } else { 0 };
                            assert!(
                                result[n * r_stride + from..(n + 1) * r_stride].iter().all(|v| v.is_nan())
                            );
                        }
                        if activation == Activation::None {
                            match first.is_empty() {
                                true => first = result[..outputs].to_vec(),
                                false => {
                                    assert_eq!(first, result[..outputs], "record 0 depends on its batch")
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn nan_stays_nan() {
        for a in [Activation::None, Activation::Sigmoid, Activation::Relu, Activation::Tanh] {
            let mut v = [f32::NAN];
            activate(a, &mut v);
            assert!(v[0].is_nan(), "{a:?}");
        }
    }
}
