//! The micro-kernels for whole numbers that stay bytes between layers, written once for all
//! instruction sets that have them: depthwise convolutions, sums of two values, and the storing of
//! results. Those of 32-bit ARM are in `whole.c`.
//!
//! A byte holds a whole number, counted from one that suits the buffer and the instruction set:
//! the smallest one of the buffer where bytes are from 0 to 255, and 128 more where they are
//! from −128 to 127. A depthwise convolution treats as many bytes of a pixel at a time as four
//! vectors of sums have lanes, or two on 32-bit ARM. Most instruction sets interleave the bytes of
//! three neighbouring pixels, so that each 32 bits have the three values of a channel in a line of
//! the window. One instruction then adds three products to each sum. AVX2 makes two 16-bit pairs of
//! the three ([`TapOrder::Pair`]). ARM without dot products multiplies pixel by pixel
//! ([`TapOrder::Tap`]).

use super::aligned::Aligned;
use super::vector::Vector;
use super::whole::{Dot, Rescale};
use super::{Bounds, SumNumbers};
use crate::ir::op::Window;
use std::ops::Range;

/// The kernels for values that are bytes between layers.
#[derive(Clone, Copy)]
pub(crate) struct ByteKernels {
    /// The number of channels that a depthwise convolution treats at a time.
    pub(crate) block: usize,
    /// The order of a block's weights in a depthwise convolution.
    pub(crate) order: TapOrder,
    /// The smallest and the largest whole number that such a weight may be.
    pub(crate) weights: [i32; 2],
    /// Computes some lines of a depthwise convolution.
    ///
    /// SAFETY: the [`ChannelWindows`] are sound, and the CPU has the instruction set.
    pub(crate) channels: unsafe fn(&ChannelWindows<'_>),
    /// Computes a [`ByteSum`].
    ///
    /// SAFETY: the sum is sound, and the CPU has the instruction set.
    pub(crate) sum: unsafe fn(&ByteSum),
}

/// The order of the weights of a block of channels, for each line of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TapOrder {
    /// The three weights of a channel and a zero, then those of the next channel. Channels are in
    /// the order of [`WholeVector::quads`].
    Channel,
    /// The first weights of all channels, then the second ones, the third ones, and zeros. No
    /// weight is −128.
    Tap,
    /// 16-bit weights: the first and the second weight of each channel, then the third weight of
    /// each channel and a zero. Channels are in the order of [`WholeVector::quads`].
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    Pair,
}

impl TapOrder {
    /// Returns the channel at `place` of all blocks, which have `block` channels each.
    pub(crate) fn channel(self, place: usize, block: usize) -> usize {
        if self == TapOrder::Tap {
            return place;
        }
        let (lanes, first) = (block / 4, place / block * block);
        let (vector, lane) = (place % block / lanes, place % lanes);
        first + lane / 4 * 16 + vector * 4 + lane % 4
    }

    /// The number of 32-bit words that a line's weights of a channel take.
    pub(crate) fn words(self) -> usize {
        match self {
            TapOrder::Channel | TapOrder::Tap => 1,
            TapOrder::Pair => 2,
        }
    }

    /// Writes the weight of a column to a line's weights, for the channel at `place` of a block.
    pub(crate) fn write(self, weight: i32, place: usize, column: usize, line: &mut [u32]) {
        let block = line.len() / self.words();
        let (word, shift, bits) = match self {
            TapOrder::Channel => (place, 8 * column, 8),
            TapOrder::Tap => {
                let byte = block * column + place;
                (byte / 4, 8 * (byte % 4), 8)
            }
            TapOrder::Pair => (column / 2 * block + place, 16 * (column % 2), 16),
        };
        line[word] |= (weight as u32 & u32::MAX >> (32 - bits)) << shift;
    }
}

/// How results are stored as bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bytes {
    /// The whole number whose byte is 0.
    pub(crate) low: i16,
    /// The bytes of the smallest and of the largest result: from 0 to 255, or from −128 to 127 if
    /// the kernels' bytes are ([`WholeKernels::signed`](super::WholeKernels)).
    pub(crate) least: i16,
    pub(crate) largest: i16,
}

impl Bytes {
    /// Returns the bytes of whole numbers in bounds, counted from `low`. `None` if the bounds are
    /// no whole numbers or exceed the bytes, which are `signed` or not.
    pub(crate) fn of(bounds: Bounds, low: i32, signed: bool) -> Option<Bytes> {
        let bytes = if signed { -128..128 } else { 0..256 };
        let byte = |x: f32| {
            let number = x as i32;
            let byte = number.checked_sub(low).filter(|b| bytes.contains(b))?;
            (number as f32 == x).then_some(byte as i16)
        };
        Some(Bytes {
            low: i16::try_from(low).ok()?,
            least: byte(bounds.least)?,
            largest: byte(bounds.largest)?,
        })
    }

    /// The byte of 0.
    pub(crate) fn zero(self) -> u8 {
        0i16.wrapping_sub(self.low) as u8
    }
}

/// True if scaled sums of 32 bits, before they are clamped, are whole numbers of 32 bits too.
pub(crate) fn scales_to_numbers(rescale: &Rescale) -> bool {
    const MOST: f32 = (1 << 30) as f32;
    let Rescale {
        factors, summands, ..
    } = rescale;
    let small = factors.iter().all(|f| f.abs() <= 0.5);
    small && summands.iter().all(|s| s.abs() < MOST)
}

/// A vector of whole numbers: of bytes, or of 32-bit numbers.
///
/// SAFETY of all functions: the CPU has the instruction set, and pointers are valid for the bytes.
pub(super) trait WholeVector: Copy {
    type Float: Vector;
    /// Rounds to the nearest whole numbers, of two to the even one. They have 32 bits.
    unsafe fn nearest(floats: Self::Float) -> Self;
    /// Packs the whole numbers of four vectors, less the 16-bit ones in `low`, into bytes. Numbers
    /// beyond a byte become the smallest or the largest byte. Each 128 bits get four bytes of each
    /// vector.
    unsafe fn narrow(numbers: [Self; 4], low: Self) -> Self;
    /// Moves bytes from the order of [`WholeVector::narrow`] to that of the vectors.
    unsafe fn in_order(self) -> Self;
    unsafe fn max_bytes(self, other: Self) -> Self;
    unsafe fn min_bytes(self, other: Self) -> Self;
    /// Loads `count` bytes. The other bytes of the vector are 0.
    unsafe fn load_bytes(from: *const u8, count: usize) -> Self;
    /// Stores the first `count` bytes.
    unsafe fn store_first(self, to: *mut u8, count: usize);
    /// Stores each half of the vector at an address.
    unsafe fn store_halves(self, to: [*mut u8; 2]);
    /// Interleaves three vectors of bytes and one of zeros. The four results are in the order that
    /// [`WholeVector::narrow`] undoes.
    unsafe fn quads(three: [Self; 3]) -> [Self; 4];
    /// The bytes as 32-bit numbers, in the order that [`WholeVector::narrow`] undoes. Kernels with
    /// bytes from −128 to 127 have a function of their own.
    #[inline(always)]
    unsafe fn widen(self) -> [Self; 4] {
        // SAFETY: the trait's promise. A vector of zero bytes is zeros.
        unsafe {
            let zero = std::mem::zeroed();
            Self::quads([self, zero, zero])
        }
    }
    /// Loads pixels of `pixel` bytes, which fill a vector together, `apart` bytes from each
    /// other. A pixel has 16 or 32 bytes.
    unsafe fn load_pixels(from: *const u8, pixel: usize, apart: usize) -> Self;
    /// Loads as many bytes as the vector has 32-bit numbers, as such numbers.
    unsafe fn load_numbers(from: *const u8) -> Self;
    /// The 32-bit numbers as floats, rounded to the nearest.
    unsafe fn to_floats(self) -> Self::Float;
    /// Sums and products of 32-bit numbers, of which the lowest 32 bits are kept.
    unsafe fn add(self, other: Self) -> Self;
    unsafe fn times(self, other: Self) -> Self;
    /// Divides 32-bit numbers by 2 to the power of `count`, rounded down.
    unsafe fn shift(self, count: u32) -> Self;
}

/// Sums of products whose operands are [`WholeVector`].
pub(super) trait ByteDot: Dot<Groups = Self::Numbers> {
    type Numbers: WholeVector<Float = Self::Float>;
}

impl<D: Dot> ByteDot for D
where
    D::Groups: WholeVector<Float = D::Float>,
{
    type Numbers = D::Groups;
}

/// [`Bytes`] in vectors.
#[derive(Clone, Copy)]
struct Limits<N> {
    low: N,
    least: N,
    largest: N,
}

impl<N: WholeVector> Limits<N> {
    /// SAFETY: the CPU has the instruction set.
    #[inline(always)]
    unsafe fn of<D: ByteDot<Numbers = N>>(bytes: &Bytes) -> Limits<N> {
        let low = u32::from(bytes.low as u16);
        let four = |byte: i16| u32::from(byte as u8) * 0x0101_0101;
        // SAFETY: the caller's promise.
        unsafe {
            Limits {
                low: D::splat(low | low << 16),
                least: D::splat(four(bytes.least)),
                largest: D::splat(four(bytes.largest)),
            }
        }
    }

    /// SAFETY: the CPU has the instruction set.
    #[inline(always)]
    unsafe fn clamp(&self, bytes: N) -> N {
        // SAFETY: the caller's promise.
        unsafe { bytes.max_bytes(self.least).min_bytes(self.largest) }
    }
}

/// Rounds N vectors of numbers, at most eight, and stores them as bytes.
///
/// SAFETY: the numbers have 32 bits, and `to` is valid for N · `LANES` bytes.
#[inline(always)]
pub(super) unsafe fn store<D: ByteDot, const N: usize>(
    values: [D::Float; N],
    bytes: &Bytes,
    to: *mut u8,
) {
    // SAFETY: the caller's promise. A vector of zero bytes is zeros.
    unsafe {
        let limits = Limits::of::<D>(bytes);
        let mut numbers: [[D::Numbers; 4]; 2] = std::mem::zeroed();
        unrolled!(i < N, {
            numbers[i / 4][i % 4] = D::Numbers::nearest(values[i])
        });
        unrolled!(part < 2, {
            if 4 * part < N {
                let bytes = D::Numbers::narrow(numbers[part], limits.low).in_order();
                let count = (N - 4 * part).min(4) * D::LANES;
                limits
                    .clamp(bytes)
                    .store_first(to.add(4 * part * D::LANES), count);
            }
        });
    }
}

/// Rounds two vectors of numbers of each of two windows, and stores them as bytes.
///
/// SAFETY: the numbers have 32 bits, and each address is valid for 2 · `LANES` bytes.
#[inline(always)]
pub(super) unsafe fn store_windows<D: ByteDot>(
    [[a, b], [c, d]]: [[D::Float; 2]; 2],
    bytes: &Bytes,
    to: [*mut u8; 2],
) {
    // SAFETY: the caller's promise.
    unsafe {
        let limits = Limits::of::<D>(bytes);
        let numbers = [
            D::Numbers::nearest(a),
            D::Numbers::nearest(b),
            D::Numbers::nearest(c),
            D::Numbers::nearest(d),
        ];
        let bytes = D::Numbers::narrow(numbers, limits.low).in_order();
        limits.clamp(bytes).store_halves(to);
    }
}

/// The weights of a depthwise convolution with windows of 3 × 3 elements, in blocks of channels.
pub(crate) struct ChannelWeights {
    /// For each block, the weights of the window's first line in a [`TapOrder`], then those of the
    /// next lines.
    pub(crate) groups: Aligned<u32>,
    /// The start value, the factor and the summand of each sum.
    pub(crate) start: Vec<i32>,
    pub(crate) factors: Vec<f32>,
    pub(crate) summands: Vec<f32>,
    pub(crate) order: TapOrder,
    /// The kernel that computes the convolution, and its number of channels in a block.
    pub(crate) kernel: unsafe fn(&ChannelWindows<'_>),
    pub(crate) block: usize,
    /// The number of pixels in a block. If it is above 1, there is one block. It has the channels
    /// of neighbouring pixels of the result.
    pub(crate) pixels: usize,
    /// The byte of a 0 of the operand.
    pub(crate) zero: u8,
    pub(crate) bytes: Bytes,
}

/// Some lines of the result of a depthwise convolution of bytes.
///
/// Safety of its computation: `x` is valid for the image's pixels, each with `pixel` bytes.
/// `weights` has blocks for `pixel` bytes. `result` is valid for the lines, and no other thread
/// touches them.
pub(crate) struct ChannelWindows<'a> {
    pub(crate) weights: &'a ChannelWeights,
    /// The address of the image's pixel (0, 0), and the distances of its pixels and lines.
    pub(crate) x: *const u8,
    pub(crate) x_pixel: usize,
    pub(crate) x_line: usize,
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) window: Window,
    /// The address of the result's pixel (0, 0). `pixel` is the distance of pixels, and the number
    /// of bytes that are written.
    pub(crate) result: *mut u8,
    pub(crate) pixel: usize,
    pub(crate) line: usize,
    /// The number of pixels in a line of the result.
    pub(crate) columns: usize,
    pub(crate) lines: Range<usize>,
}

impl ChannelWindows<'_> {
    /// Returns the columns whose windows are inside the image's lines.
    pub(super) fn inside(&self) -> Range<usize> {
        let Window {
            stride: (_, stride),
            border,
            dilation: (_, dilation),
            ..
        } = self.window;
        let end = (border.left + self.width + stride).saturating_sub(2 * dilation + 1) / stride;
        let end = end.min(self.columns);
        border.left.div_ceil(stride).min(end)..end
    }
}

/// The lines of the image that some windows cover: for each the address of its pixel 0, and the
/// distance of pixels. Lines in the border are a vector of zeros again and again.
#[derive(Clone, Copy)]
struct Covered {
    first: *const u8,
    apart: usize,
}

/// The bytes of a vector of the widest instruction set.
const WIDEST: usize = 64;

/// The products of windows in one [`TapOrder`].
///
/// SAFETY of all functions: the CPU has the instruction set, and pointers are valid for the weights
/// of a line.
pub(super) trait Taps<D: ByteDot> {
    const ORDER: TapOrder;
    /// The weights of a line of the window.
    type Weights: Copy;
    unsafe fn weights(from: *const u32) -> Self::Weights;
    /// Adds the products of line `k` of the image, with its three pixels, to the sums of P lines of
    /// results, of which each has a window of three lines.
    unsafe fn line<const P: usize>(
        sums: &mut [[D; 4]; P],
        three: [D::Groups; 3],
        weights: &[Self::Weights; 3],
        k: usize,
    );
}

/// [`TapOrder::Channel`].
pub(super) struct ByChannel;

// SAFETY of the bodies: the trait's promise.
impl<D: ByteDot> Taps<D> for ByChannel {
    const ORDER: TapOrder = TapOrder::Channel;
    type Weights = [D::Groups; 4];

    #[inline(always)]
    unsafe fn weights(from: *const u32) -> [D::Groups; 4] {
        // SAFETY: the trait's promise.
        unsafe { four::<D>(from) }
    }

    #[inline(always)]
    unsafe fn line<const P: usize>(
        sums: &mut [[D; 4]; P],
        three: [D::Groups; 3],
        weights: &[[D::Groups; 4]; 3],
        k: usize,
    ) {
        // SAFETY: the trait's promise.
        unsafe {
            let quads = D::Groups::quads(three);
            unrolled!(p < P, {
                if p <= k && k < p + 3 {
                    unrolled!(i < 4, {
                        sums[p][i] = sums[p][i].dot(quads[i], weights[k - p][i]);
                    });
                }
            });
        }
    }
}

/// Loads four vectors of weights.
///
/// SAFETY: as [`Taps`].
#[inline(always)]
pub(super) unsafe fn four<D: Dot>(from: *const u32) -> [D::Groups; 4] {
    // SAFETY: the caller's promise. A vector of zero bytes is zeros.
    unsafe {
        let mut four: [D::Groups; 4] = std::mem::zeroed();
        unrolled!(i < 4, { four[i] = D::load(from.add(i * D::LANES)) });
        four
    }
}

/// Computes some lines of a depthwise convolution.
///
/// SAFETY: the windows are sound, their weights have the order of `T`, and the CPU has the
/// instruction set.
#[inline(always)]
pub(super) unsafe fn channels<D: ByteDot, T: Taps<D>>(w: &ChannelWindows<'_>) {
    let block = 4 * D::LANES;
    let zeros = [w.weights.zero; WIDEST];
    let Window {
        stride: (stride_y, _),
        border,
        dilation: (dilation_y, _),
        ..
    } = w.window;
    let inside = w.inside();
    let mut y = w.lines.start;
    while y < w.lines.end {
        let two = (stride_y, dilation_y) == (1, 1) && y + 1 < w.lines.end;
        for first in (0..w.pixel).step_by(block) {
            let mut lines = [Covered {
                first: zeros.as_ptr(),
                apart: 0,
            }; 4];
            for (k, line) in lines.iter_mut().enumerate() {
                let at = (y * stride_y + k * dilation_y).wrapping_sub(border.top);
                if at < w.height {
                    line.first = w.x.wrapping_add(at * w.x_line + first);
                    line.apart = w.x_pixel;
                }
            }
            let part = Part {
                w,
                lines,
                zeros: zeros.as_ptr(),
                y,
                first,
                inside: inside.clone(),
            };
            // SAFETY: passed on.
            unsafe {
                match two {
                    true => part.columns::<D, T, 2>(),
                    false => part.columns::<D, T, 1>(),
                }
            }
        }
        y += if two { 2 } else { 1 };
    }
}

/// The ways in which bytes of a block lie: a whole vector, fewer bytes, or a whole vector in pixels
/// that are apart.
const FULL: u8 = 0;
const SOME: u8 = 1;
const APART: u8 = 2;

/// A block of channels of some lines.
struct Part<'a> {
    w: &'a ChannelWindows<'a>,
    lines: [Covered; 4],
    zeros: *const u8,
    /// The first line of the result.
    y: usize,
    /// The first channel.
    first: usize,
    /// The columns whose windows are inside the image's lines.
    inside: Range<usize>,
}

impl Part<'_> {
    /// Computes P lines of the block.
    ///
    /// SAFETY: as [`channels`].
    #[inline(always)]
    unsafe fn columns<D: ByteDot, T: Taps<D>, const P: usize>(&self) {
        let Part {
            w,
            ref lines,
            ref inside,
            ..
        } = *self;
        let Window {
            stride: (_, stride),
            border,
            dilation: (_, dilation),
            ..
        } = w.window;
        let pixels = w.weights.pixels;
        let size = w.pixel - self.first;
        // SAFETY: `weights` has groups for all blocks.
        let weights = unsafe {
            let words = T::ORDER.words();
            let (from, line) = (w.weights.groups.as_ptr(), words * 4 * D::LANES);
            let from = from.add(3 * words * self.first);
            [
                T::weights(from),
                T::weights(from.add(line)),
                T::weights(from.add(2 * line)),
            ]
        };
        let (full, apart) = (4 * D::LANES, stride * w.x_pixel);
        let beside = apart == w.pixel;
        let mut column = 0;
        while column < w.columns {
            if !inside.contains(&column) {
                let (places, bytes) = (self.bordered(column), size.min(full));
                // SAFETY: passed on. The places are pixels of the image, or zeros.
                unsafe { self.some::<D, T, P, SOME>(&places, &weights, column, bytes) };
                column += 1;
                continue;
            }
            let mut places = [[self.zeros; 3]; 4];
            let at = column * stride - border.left;
            unrolled!(k < 4, {
                let first = lines[k].first.wrapping_add(at * lines[k].apart);
                unrolled!(i < 3, {
                    places[k][i] = first.wrapping_add(i * dilation * lines[k].apart);
                });
            });
            let left = inside.end - column;
            let bytes = (pixels.min(left) * size).min(full);
            // SAFETY: passed on. The places are pixels of the image that the windows of the columns
            // begin with, or zeros.
            unsafe {
                if pixels > 1 && !beside && pixels <= left {
                    self.some::<D, T, P, APART>(&places, &weights, column, full);
                    column += pixels;
                } else if pixels > 1 && !beside {
                    self.some::<D, T, P, SOME>(&places, &weights, column, size);
                    column += 1;
                } else if bytes == full {
                    self.some::<D, T, P, FULL>(&places, &weights, column, full);
                    column += pixels;
                } else {
                    self.some::<D, T, P, SOME>(&places, &weights, column, bytes);
                    column += pixels.min(left);
                }
            }
        }
    }

    /// Returns the addresses of the window columns of a result column, some of which are in the
    /// border. As a function of its own, with loops, it made the depthwise layers of ds-cnn's shape
    /// take 1.5 times as long.
    #[inline(always)]
    fn bordered(&self, column: usize) -> [[*const u8; 3]; 4] {
        let Window {
            stride: (_, stride),
            border,
            dilation: (_, dilation),
            ..
        } = self.w.window;
        let mut places = [[self.zeros; 3]; 4];
        unrolled!(i < 3, {
            let at = (column * stride + i * dilation).wrapping_sub(border.left);
            if at < self.w.width {
                unrolled!(k < 4, {
                    let line = self.lines[k];
                    places[k][i] = line.first.wrapping_add(at * line.apart);
                });
            }
        });
        places
    }

    /// Computes `count` bytes from a column on, in P lines. `places` has the addresses of the three
    /// window columns in each of the P + 2 lines. `LOAD` says how bytes lie there.
    ///
    /// SAFETY: as [`channels`]. The places are valid for the bytes.
    #[inline(always)]
    unsafe fn some<D: ByteDot, T: Taps<D>, const P: usize, const LOAD: u8>(
        &self,
        places: &[[*const u8; 3]; 4],
        weights: &[T::Weights; 3],
        column: usize,
        count: usize,
    ) {
        let (w, numbers) = (self.w, self.w.weights);
        let Window {
            stride: (_, stride),
            ..
        } = w.window;
        // A constant number of bytes needs no branches.
        let count = if LOAD == SOME { count } else { 4 * D::LANES };
        // SAFETY: the caller's promise. A vector of zero bytes is zeros.
        unsafe {
            let mut sums: [[D; 4]; P] = std::mem::zeroed();
            unrolled!(i < 4, {
                let start = numbers.start.as_ptr().add(self.first + i * D::LANES);
                unrolled!(p < P, { sums[p][i] = D::start(start) });
            });
            unrolled!(k < 4, {
                if k < P + 2 {
                    let mut three: [D::Groups; 3] = std::mem::zeroed();
                    // In the border, all pixels are the same zeros.
                    let apart = stride * self.lines[k].apart;
                    unrolled!(i < 3, {
                        three[i] = match LOAD {
                            APART => D::Groups::load_pixels(places[k][i], w.pixel, apart),
                            _ => D::Groups::load_bytes(places[k][i], count),
                        };
                    });
                    T::line(&mut sums, three, weights, k);
                }
            });
            let limits = Limits::of::<D>(&numbers.bytes);
            unrolled!(p < P, {
                let mut four: [D::Groups; 4] = std::mem::zeroed();
                unrolled!(i < 4, {
                    let at = self.first + i * D::LANES;
                    let factor = D::Float::load(numbers.factors.as_ptr().add(at));
                    let summand = D::Float::load(numbers.summands.as_ptr().add(at));
                    four[i] = D::Groups::nearest(summand.fma(sums[p][i].floats(), factor));
                });
                let bytes = limits.clamp(D::Groups::narrow(four, limits.low));
                let at = (self.y + p) * w.line + column * w.pixel + self.first;
                bytes.store_first(w.result.add(at), count);
            });
        }
    }
}

/// The numbers of a sum of two values as 32-bit integers. For multipliers a and b, the result is
/// x · a + y · b + `summand`, divided by 2 to the power of `shift` and rounded down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SumIntegers {
    pub(crate) multipliers: [i32; 2],
    pub(crate) summand: i32,
    pub(crate) shift: u32,
}

impl SumIntegers {
    /// Returns the integers of a sum. `None` if its terms exceed 32 bits for values of 9 bits, or
    /// if its factors are beyond those of
    /// [`RoundedSum`](crate::ir::op::Arithmetic::RoundedSum).
    pub(crate) fn of(numbers: &SumNumbers) -> Option<SumIntegers> {
        let SumNumbers { lower, upper, .. } = numbers;
        let digits = 12 - libm::ilogbf(numbers.factor);
        let multipliers = [0, 1].map(|i| {
            let multiplier = f64::from(lower.factors[i]) + f64::from(upper.factors[i]);
            multiplier * f64::from(1 << 12)
        });
        let whole = |m: &f64| libm::trunc(*m) == *m && m.abs() < f64::from(1 << 30);
        if !multipliers.iter().all(whole) || !(1..=40).contains(&digits) {
            return None;
        }
        let [a, b] = multipliers.map(|m| m as i64);
        // Small numbers fit more often.
        let zeros = (a | b).trailing_zeros().min(digits as u32 - 1);
        let ([a, b], shift) = ([a >> zeros, b >> zeros], digits as u32 - zeros);
        let summand = 1 << (shift - 1);
        let most = 256 * (a.abs() + b.abs()) + summand;
        (most < 1 << 31).then_some(SumIntegers {
            multipliers: [a as i32, b as i32],
            summand: summand as i32,
            shift,
        })
    }
}

/// A sum of two values of bytes.
///
/// Safety of its computation: `x`, `y` and `result` are valid for `count` values, a multiple of the
/// lanes, and nobody else touches `result`. It has bytes if there are `bytes`, else floats.
pub(crate) struct ByteSum {
    pub(crate) x: *const u8,
    pub(crate) y: *const u8,
    pub(crate) result: *mut f32,
    pub(crate) bytes: Option<Bytes>,
    pub(crate) count: usize,
    /// The summand is for the bytes of `x` and `y`, not for the numbers that they stand for.
    pub(crate) integers: SumIntegers,
    pub(crate) bounds: Bounds,
}

/// Computes a [`ByteSum`].
///
/// SAFETY: the sum is sound, and the CPU has the instruction set.
#[inline(always)]
pub(super) unsafe fn sum<D: ByteDot>(s: &ByteSum) {
    let SumIntegers {
        multipliers: [a, b],
        summand,
        shift,
    } = s.integers;
    // SAFETY: the caller's promise.
    unsafe {
        let (a, b) = (D::splat(a as u32), D::splat(b as u32));
        let summand = D::splat(summand as u32);
        macro_rules! value {
            ($x:expr, $y:expr) => {
                $x.times(a).add(summand).add($y.times(b)).shift(shift)
            };
        }
        let Some(bytes) = &s.bytes else {
            let least = D::Float::splat(s.bounds.least);
            let largest = D::Float::splat(s.bounds.largest);
            for at in (0..s.count).step_by(D::LANES) {
                let x = D::Groups::load_numbers(s.x.add(at));
                let y = D::Groups::load_numbers(s.y.add(at));
                let clamped = largest.min(least.max(value!(x, y).to_floats()));
                clamped.store(s.result.add(at));
            }
            return;
        };
        let (result, limits) = (s.result.cast::<u8>(), Limits::of::<D>(bytes));
        let block = 4 * D::LANES;
        for at in (0..s.count).step_by(block) {
            let count = block.min(s.count - at);
            let x = D::Groups::load_bytes(s.x.add(at), count).widen();
            let y = D::Groups::load_bytes(s.y.add(at), count).widen();
            let mut four = x;
            unrolled!(i < 4, { four[i] = value!(x[i], y[i]) });
            let bytes = limits.clamp(D::Groups::narrow(four, limits.low));
            bytes.store_first(result.add(at), count);
        }
    }
}
