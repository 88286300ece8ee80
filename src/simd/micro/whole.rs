//! The micro-kernels for products of whole numbers, written once for all instruction sets that have
//! them.
//!
//! Values come as bytes, or as floats, which hold the whole numbers of a model of 8-bit integers.
//! Floats are packed into bytes or 16-bit integers, some thousand at a time, with the border of the
//! image. Bytes are copied or packed with the border. So a window is a few runs of packed values,
//! which are equally far from each other in all windows. If groups are bytes, windows of a single
//! pixel in bytes are not copied.
//!
//! The sums are 32-bit integers, so they are exact. A sum that exceeds 2²⁴ is rounded once, when it
//! becomes a float. Results are floats, or bytes again.

use super::Bounds;
use super::aligned::Aligned;
use super::bytes::{ByteKernels, Bytes};
use super::kernel::evenly;
use super::vector::Vector;
use crate::ir::op::{Border, Window};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering, compiler_fence};

/// The number of packed groups at a time: 32 KB, for which a thread's stack has room. Layers whose
/// window covers more have no kernel.
pub(crate) const ROOM: usize = 1 << 13;

/// The number of packed groups that leave half of a first-level cache to the weights.
const KEPT: usize = 1 << 12;

/// The channels of most pixels of bytes between layers are padded to a multiple of this.
const PADDED: usize = 16;

/// The most windows at a time.
const MOST: usize = 1 << 10;

/// The weights of a layer as whole numbers.
pub(crate) struct WholeWeights {
    /// Groups of consecutive columns of a row, in panels of `lanes` rows: the groups of all rows of
    /// a panel for the first columns, then those for the next. The last group of a run is filled up
    /// with zeros. A weight has [`WholeKernels::weight_size`] bytes.
    pub(crate) groups: Aligned<u8>,
    /// The columns of a run, which are contiguous packed values.
    pub(crate) run: usize,
    /// The start value of each row's sums.
    pub(crate) start: Vec<i32>,
    /// The number that packed values are counted from ([`WholeKernels::low`]).
    pub(crate) low: f32,
}

/// The multiplication of sums behind a layer, before they are rounded and clamped.
#[derive(Clone)]
pub(crate) struct Rescale {
    /// A factor for each row, padding included.
    pub(crate) factors: Vec<f32>,
    /// A summand for each row.
    pub(crate) summands: Vec<f32>,
    /// True if the results are rounded to whole numbers.
    pub(crate) rounds: bool,
    pub(crate) bounds: Bounds,
}

/// Some rows of a layer of whole numbers for some windows.
///
/// Safety of its computation: `windows` is sound. The rows are whole vectors, and `weights` and
/// `rescale` are for all rows of the layer and for runs of the windows' length. `result` is valid
/// for the rows of each window, `result_stride` values apart, and no other thread touches them. Its
/// values are bytes if there are `bytes`, else floats. Only kernels for bytes take and give them.
pub(crate) struct WholeSubproblem<'a> {
    pub(crate) windows: WholeWindows,
    pub(crate) weights: &'a WholeWeights,
    pub(crate) rescale: &'a Rescale,
    pub(crate) rows: Range<usize>,
    /// The address of row 0 for the first window. Those of further windows follow line by line.
    pub(crate) result: *mut f32,
    pub(crate) result_stride: usize,
    /// How results are stored as bytes. `None` for floats.
    pub(crate) bytes: Option<Bytes>,
    /// Marks for results in bytes, which cannot be NaN: one for each column of windows, or a single
    /// one for all. A mark is set if a window has a value that is no whole number in range.
    pub(crate) lost: &'a [AtomicBool],
}

impl WholeSubproblem<'_> {
    /// Returns the address of the value with index `at` behind an address in the result.
    #[inline(always)]
    pub(super) fn result_at(&self, result: *mut f32, at: usize) -> *mut f32 {
        match self.bytes {
            Some(_) => result.cast::<u8>().wrapping_add(at).cast(),
            None => result.wrapping_add(at),
        }
    }
}

/// Windows of an image: some columns of some lines of windows. The records of an affine layer are
/// the pixels of a line, with windows of one pixel.
///
/// Safety of its use: `x` is valid for the image's values that the windows cover. For bytes it is
/// valid for the pixels with their padding.
#[derive(Clone)]
pub(crate) struct WholeWindows {
    /// The address of the image's pixel (0, 0), which may not exist if no window covers it.
    pub(crate) x: *const f32,
    /// True if values are bytes, counted from [`WholeWeights::low`]. False for floats.
    pub(crate) bytes: bool,
    /// The distances of two pixels and of two lines of the image, in values.
    pub(crate) pixel: usize,
    pub(crate) line: usize,
    pub(crate) channels: usize,
    /// The size of the image, without its border.
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) window: Window,
    pub(crate) lines: Range<usize>,
    pub(crate) columns: Range<usize>,
}

/// The lines, or the columns, of the image that some windows need. If windows are further apart
/// than they reach, what is between them is left out.
struct Needed {
    /// The reach of a window, and the distance of windows in the image.
    reach: usize,
    stride: usize,
    /// The distance of windows in what is needed.
    step: usize,
    count: usize,
}

impl WholeWindows {
    /// The number of values in a run of a window.
    pub(crate) fn run(window: &Window, channels: usize) -> usize {
        let ((_, columns), (_, dilation)) = (window.size, window.dilation);
        if dilation == 1 {
            columns * channels
        } else {
            channels
        }
    }

    /// The number of values that one window covers, with those between its elements.
    pub(crate) fn covered(window: &Window, channels: usize) -> usize {
        Needed::lines(window, 1).count * Needed::columns(window, 1).count * channels
    }

    /// Returns the address of the value with index `at` in the image.
    #[inline(always)]
    fn x_at(&self, at: usize) -> *const f32 {
        match self.bytes {
            true => self.x.cast::<u8>().wrapping_add(at).cast(),
            false => self.x.wrapping_add(at),
        }
    }

    /// True if windows of bytes are used where they are, because each is a single pixel, and groups
    /// of `group` values are bytes. The last group of a pixel may read padding, but not the next
    /// pixel.
    fn stand(&self, group: usize) -> bool {
        let room = self.channels.next_multiple_of(4) <= self.pixel;
        self.bytes && group == 4 && room && self.are_pixels()
    }

    /// True if each window is a single pixel, and each pixel is a window.
    fn are_pixels(&self) -> bool {
        let Window {
            size,
            stride,
            border,
            ..
        } = self.window;
        size == (1, 1) && stride == (1, 1) && border == Border::default()
    }

    /// Returns the distance of two packed pixels, in values. Bytes with little padding are packed
    /// with it if each window is a single pixel: a line is then copied as a whole.
    fn packed(&self) -> usize {
        let padded = self.channels.next_multiple_of(PADDED);
        match self.bytes && self.pixel == padded && padded <= KEPT && self.are_pixels() {
            true => padded,
            false => self.channels,
        }
    }

    /// Returns the same windows as one line, if each is a single pixel and the lines have no gap.
    #[inline(always)]
    fn in_one_line(&self) -> WholeWindows {
        let all = self.columns == (0..self.width) && self.line == self.width * self.pixel;
        if !self.are_pixels() || !all {
            return self.clone();
        }
        WholeWindows {
            x: self.x_at(self.lines.start * self.line),
            width: self.width * self.lines.len(),
            height: 1,
            lines: 0..1,
            columns: 0..self.width * self.lines.len(),
            ..*self
        }
    }

    /// Returns how many lines and columns of windows are computed next, if the lines from `line` on
    /// and the columns from `column` on are left. `micro` is the most windows of a tile, and
    /// `group` the number of values in a group.
    fn next(&self, line: usize, column: usize, micro: usize, group: usize) -> (usize, usize) {
        let all = self.columns.end - column;
        let (lines, columns) = (
            Needed::lines(&self.window, 1),
            Needed::columns(&self.window, all),
        );
        let (kept, room) = (KEPT * group / self.packed(), ROOM * group / self.packed());
        // As many whole lines of windows as need at most `kept` pixels.
        let whole = column == self.columns.start && columns.count * lines.reach <= kept;
        if whole && all <= MOST {
            let more = (kept / columns.count - lines.reach) / lines.step;
            let count = (1 + more).min(MOST / all);
            return (count.min(self.lines.end - line), all);
        }
        let fit = |pixels: usize| {
            (pixels / lines.reach)
                .checked_sub(columns.reach)
                .map_or(0, |left| 1 + left / columns.step)
        };
        let count = (fit(kept) / micro * micro).max(fit(room).min(micro)).max(1);
        (1, count.min(MOST).min(all))
    }
}

impl Needed {
    /// The lines that `windows` windows below each other need.
    fn lines(window: &Window, windows: usize) -> Needed {
        let ((size, _), (stride, _), (dilation, _)) = (window.size, window.stride, window.dilation);
        Needed::by(size, stride, dilation, windows)
    }

    /// The columns that `windows` windows side by side need.
    fn columns(window: &Window, windows: usize) -> Needed {
        let ((_, size), (_, stride), (_, dilation)) = (window.size, window.stride, window.dilation);
        Needed::by(size, stride, dilation, windows)
    }

    fn by(size: usize, stride: usize, dilation: usize, windows: usize) -> Needed {
        let reach = (size - 1) * dilation + 1;
        let step = stride.min(reach);
        Needed {
            reach,
            stride,
            step,
            count: (windows - 1) * step + reach,
        }
    }

    /// The line or column of the image with its border that is needed number `at`, if window number
    /// `first` is the first.
    fn place(&self, first: usize, at: usize) -> usize {
        match self.stride > self.reach {
            true => (first + at / self.reach) * self.stride + at % self.reach,
            false => first * self.stride + at,
        }
    }
}

/// A set of micro-kernels for whole numbers.
#[derive(Clone, Copy)]
pub(crate) struct WholeKernels {
    pub(crate) name: &'static str,
    /// The number of 32-bit sums in a vector.
    pub(crate) lanes: usize,
    /// The number of values in a group of 32 bits: 4 bytes or 2 16-bit integers.
    pub(crate) group: usize,
    /// True if packed bytes are from −128 to 127, false if they are from 0 to 255.
    pub(crate) signed: bool,
    /// The smallest and the largest whole number that a weight may be.
    pub(crate) weights: [i32; 2],
    /// True if groups of weights are interleaved for products of matrices ([`interleave`]).
    pub(crate) matrices: bool,
    /// Computes a [`WholeSubproblem`].
    ///
    /// SAFETY: the subproblem is sound, and the CPU has the instruction set.
    pub(crate) affine: unsafe fn(&WholeSubproblem<'_>),
    /// The kernels for values that stay bytes between layers.
    pub(crate) bytes: ByteKernels,
}

impl WholeKernels {
    /// Returns the bytes of a weight.
    pub(crate) const fn weight_size(&self) -> usize {
        let [least, largest] = self.weights;
        match least < i8::MIN as i32 || largest > i8::MAX as i32 {
            true => size_of::<i16>(),
            false => size_of::<i8>(),
        }
    }

    /// Returns the groups of a record with `inputs` values in runs of `run`.
    pub(crate) fn groups(&self, inputs: usize, run: usize) -> usize {
        inputs / run * run.div_ceil(self.group)
    }

    /// Returns the number that the packed values of an operand are counted from, if its values are
    /// whole numbers in `values`. `None` if they do not fit.
    pub(crate) fn low(&self, values: &Range<i32>) -> Option<i32> {
        match self.group {
            4 => {
                let first = if self.signed { 128 } else { 0 };
                (values.len() <= 256).then_some(values.start + first)
            }
            // Bytes of pairs are counted from their smallest number too.
            _ if values.len() <= 256 => Some(values.start),
            _ => (values.start >= -256 && values.end <= 256).then_some(0),
        }
    }

    /// Returns the kernels that this CPU can run, fastest first.
    pub(crate) fn all() -> impl Iterator<Item = WholeKernels> {
        #[cfg(target_arch = "x86_64")]
        let special = match super::ANY_WEIGHTS || cfg!(mortonnet_whole) {
            true => super::x86::whole(),
            false => [None; 5],
        };
        #[cfg(target_arch = "aarch64")]
        let special = match super::ANY_WEIGHTS || cfg!(mortonnet_whole) {
            true => super::aarch64::whole(),
            false => [None; 3],
        };
        #[cfg(target_arch = "arm")]
        let special = match super::ANY_WEIGHTS || cfg!(mortonnet_whole) {
            true => super::arm::whole(),
            false => [None; 2],
        };
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "arm")))]
        let special = [None; 0];
        special.into_iter().flatten()
    }
}

/// Interleaves the groups of four rows for products of matrices. `groups` are those of a run, in
/// vectors of four rows. Of each four vectors, two in a row become the two groups of rows 0 and 1,
/// and those of rows 2 and 3. The vectors that are left at the end stay as they are.
pub(crate) fn interleave(groups: &mut [u8]) {
    for two in groups
        .chunks_exact_mut(64)
        .flat_map(|f| f.chunks_exact_mut(32))
    {
        let mut of_rows = [0; 32];
        for (row, to) in of_rows.chunks_exact_mut(8).enumerate() {
            to[..4].copy_from_slice(&two[4 * row..][..4]);
            to[4..].copy_from_slice(&two[16 + 4 * row..][..4]);
        }
        two.copy_from_slice(&of_rows);
    }
}

/// The functions of an instruction set that pack windows and multiply them, tile by tile.
///
/// SAFETY of all functions: the CPU has the instruction set.
pub(super) trait Tiles {
    /// The number of 32-bit sums in a vector.
    const LANES: usize;
    /// The number of values in a group.
    const GROUP: usize;
    /// The bits of packed values.
    type Bits: Copy;
    unsafe fn no_bits() -> Self::Bits;
    /// The bits that are set in any value.
    unsafe fn any(bits: Self::Bits) -> u32;
    /// Packs `count` floats less `low`. Adds their bits to `bits`: some beyond [`packed_bits`] say
    /// that one was NaN, infinite or out of range. Writes up to a vector of further values behind
    /// them.
    ///
    /// SAFETY: `from` is valid for `count` floats, and `to` for `count` packed ones and a vector.
    unsafe fn pack(
        bits: Self::Bits,
        from: *const f32,
        to: *mut u8,
        count: usize,
        low: f32,
    ) -> Self::Bits;
    /// Computes `count` tiles of M windows by N vectors of rows, and moves the place behind them.
    ///
    /// SAFETY: the tiles are inside a sound subproblem.
    unsafe fn tiles<const M: usize, const N: usize>(place: &mut WholePlace<'_>, count: usize);
    /// [`pack_windows`], compiled as a separate function.
    unsafe fn pack_windows(windows: &WholeWindows, low: f32, to: &mut Packed) -> (PackedRuns, u32);
}

/// Sums of 32 bits for a vector of rows, and the instructions that add products to them.
///
/// SAFETY of all functions: the CPU has the instruction set, and pointers are valid for `LANES`
/// values.
pub(super) trait Dot: Tiles + Copy {
    /// True if products are those of bytes from −128 to 127 with a lane of a vector of values
    /// ([`Dot::dot_of_lane`]).
    const OF_LANES: bool = false;
    /// True if two groups are multiplied at a time ([`Dot::dots_of_two`]).
    const OF_TWO: bool = false;
    /// True if four groups are multiplied at a time as matrices ([`Dot::add_fours`]).
    const OF_MATRICES: bool = false;
    type Float: Vector;
    /// A vector of groups of values or weights.
    type Groups: Copy;
    unsafe fn splat(group: u32) -> Self::Groups;
    unsafe fn load(from: *const u32) -> Self::Groups;
    /// The bytes of a weight, as in [`WholeKernels::weight_size`].
    const WEIGHT: usize = 4 / Self::GROUP;
    /// Loads a vector of groups of weights.
    #[inline(always)]
    unsafe fn load_weights(from: *const u8) -> Self::Groups {
        // SAFETY: the trait's promise.
        unsafe { Self::load(from.cast()) }
    }
    /// Loads the start values of sums.
    unsafe fn start(from: *const i32) -> Self;
    /// Adds the sum of a group's products to each lane.
    unsafe fn dot(self, values: Self::Groups, weights: Self::Groups) -> Self;
    /// Adds the sum of products with the group in a lane of `values` to each lane. Only for
    /// [`Dot::OF_LANES`].
    unsafe fn dot_of_lane(self, values: Self::Groups, weights: Self::Groups, lane: usize) -> Self {
        let _ = (values, weights, lane);
        unreachable!("only for products of lanes")
    }
    /// Adds the sums of the products of two groups to each lane of some vectors. Only for
    /// [`Dot::OF_TWO`].
    unsafe fn dots_of_two<const N: usize>(
        sums: &mut [Self; N],
        values: [Self::Groups; 2],
        weights: &[[Self::Groups; 2]; N],
    ) {
        let _ = (sums, values, weights);
        unreachable!("only for products of two groups")
    }
    /// Adds the products of some fours of groups of M windows with [interleaved](interleave) groups
    /// of weights to their sums. `run` has the address of each window's groups. The weights of two
    /// vectors of rows are `apart` bytes from each other. Only for [`Dot::OF_MATRICES`].
    unsafe fn add_fours<const M: usize, const N: usize>(
        sums: &mut [[Self; N]; M],
        run: [*const u8; M],
        weights: *const u8,
        apart: usize,
        fours: usize,
    ) {
        let _ = (sums, run, weights, apart, fours);
        unreachable!("only for products of matrices")
    }
    /// The sums as floats, rounded to the nearest.
    unsafe fn floats(self) -> Self::Float;
    /// Loads `count` floats, fewer than `LANES`. The other lanes are 0.
    unsafe fn load_first(from: *const f32, count: usize) -> Self::Float;
    /// Packs `LANES` floats, whose bits are those of [`ONE`] plus the number to pack. Returns bits
    /// of which those in [`packed_bits`] are allowed.
    unsafe fn pack_lanes(floats: Self::Float, to: *mut u8) -> Self::Groups;
    unsafe fn or(a: Self::Groups, b: Self::Groups) -> Self::Groups;
    /// Rounds N vectors of scaled sums and stores them as bytes.
    unsafe fn store_bytes<const N: usize>(values: [Self::Float; N], bytes: &Bytes, to: *mut u8);
    /// Rounds two vectors of scaled sums of each of two windows and stores them as bytes. Each
    /// address is valid for 2 · `LANES` bytes.
    unsafe fn store_windows(values: [[Self::Float; 2]; 2], bytes: &Bytes, to: [*mut u8; 2]);
}

/// Defines a vector of sums and of groups, as `$name($type)`, for an instruction set.
macro_rules! dot {
    ($name:ident, $features:literal, $type:ty, $float:ident, $group:literal, $splat:ident,
     $load:ident, $or:ident, $floats:ident, |$sums:ident, $values:ident, $weights:ident| $dot:expr,
     |$bits:ident, $to:ident| $pack:expr, |$from:ident, $count:ident| $some:expr
     $(, of_lanes(|$all:ident, $four:ident, $rows:ident, $lane:ident| $lanes:expr))?
     $(, bytes(|$bytes:ident| $weights_of_bytes:expr))?
) => {
        #[derive(Clone, Copy)]
        struct $name($type);

        // SAFETY of the bodies: the trait's promise.
        impl Dot for $name {
            $(
                const OF_LANES: bool = { stringify!($all); true };
            )?
            $(
                const WEIGHT: usize = 1;

                #[inline(always)]
                unsafe fn load_weights($bytes: *const u8) -> Self {
                    // SAFETY: the trait's promise.
                    unsafe { $name($weights_of_bytes) }
                }
            )?
            type Float = $float;
            type Groups = $name;

            inlined! {
                fn start(from: *const i32) { $name($load(from.cast())) }
                fn splat(group: u32) { $name($splat(group as i32)) }
                fn load(from: *const u32) { $name($load(from.cast())) }
                fn dot(self, $name($values): Self, $name($weights): Self) {
                    { let $sums = self.0; $name($dot) }
                }
                fn or($name(a): Self, $name(b): Self) { $name($or(a, b)) }
                fn pack_lanes($float($bits): $float, $to: *mut u8) { $name($pack) }
            }

            $(
                #[inline(always)]
                unsafe fn dot_of_lane(
                    self,
                    $name($four): Self,
                    $name($rows): Self,
                    $lane: usize,
                ) -> Self {
                    let $all = self.0;
                    // SAFETY: the trait's promise.
                    unsafe { $name($lanes) }
                }
            )?

            #[inline(always)]
            unsafe fn store_bytes<const N: usize>(
                values: [$float; N],
                bytes: &Bytes,
                to: *mut u8,
            ) {
                // SAFETY: the trait's promise.
                unsafe { bytes::store::<$name, N>(values, bytes, to) }
            }

            #[inline(always)]
            unsafe fn store_windows(
                values: [[$float; 2]; 2],
                bytes: &Bytes,
                to: [*mut u8; 2],
            ) {
                // SAFETY: the trait's promise.
                unsafe { bytes::store_windows::<$name>(values, bytes, to) }
            }

            #[inline(always)]
            unsafe fn floats(self) -> $float {
                // SAFETY: the trait's promise.
                unsafe { $float($floats(self.0)) }
            }

            #[inline(always)]
            unsafe fn load_first($from: *const f32, $count: usize) -> $float {
                // SAFETY: the trait's promise.
                unsafe { $float($some) }
            }
        }

        tiles_of_dot!($name, $features, $group);
    };
}
pub(super) use dot;

/// Implements [`Tiles`] for a type that implements [`Dot`].
macro_rules! tiles_of_dot {
    ($name:ident, $features:literal, $group:literal) => {
        // SAFETY of the bodies: the trait's promise.
        impl Tiles for $name {
            const LANES: usize = <$name as Dot>::Float::LANES;
            const GROUP: usize = $group;
            type Bits = <$name as Dot>::Groups;

            #[inline(always)]
            unsafe fn no_bits() -> Self::Bits {
                // SAFETY: the trait's promise.
                unsafe { $name::splat(0) }
            }

            #[inline(always)]
            unsafe fn any(bits: Self::Bits) -> u32 {
                // SAFETY: a vector is its lanes.
                let lanes: [u32; Self::LANES] = unsafe { std::mem::transmute(bits) };
                lanes.iter().fold(0, |all, bits| all | bits)
            }

            #[inline(always)]
            unsafe fn pack(
                bits: Self::Bits,
                from: *const f32,
                to: *mut u8,
                count: usize,
                low: f32,
            ) -> Self::Bits {
                // SAFETY: the trait's promise.
                unsafe { whole::pack::<$name>(bits, from, to, count, low) }
            }

            #[inline(always)]
            unsafe fn pack_windows(
                windows: &WholeWindows,
                low: f32,
                to: &mut Packed,
            ) -> (PackedRuns, u32) {
                #[target_feature(enable = $features)]
                #[inline(never)]
                unsafe fn pack(
                    windows: &WholeWindows,
                    low: f32,
                    to: &mut Packed,
                ) -> (PackedRuns, u32) {
                    // SAFETY: the caller's promise is passed on.
                    unsafe { whole::pack_windows::<$name>(windows, low, to) }
                }
                // SAFETY: the caller's promise is passed on.
                unsafe { pack(windows, low, to) }
            }

            // Without the features, so that no compiler inlines the inner function.
            #[inline(always)]
            unsafe fn tiles<const M: usize, const N: usize>(
                place: &mut WholePlace<'_>,
                count: usize,
            ) {
                #[target_feature(enable = $features)]
                #[inline(never)]
                unsafe fn tiles<const M: usize, const N: usize>(
                    place: &mut WholePlace<'_>,
                    count: usize,
                ) {
                    // SAFETY: the caller's promise is passed on.
                    unsafe { whole::tiles::<$name, M, N>(place, count) }
                }
                // SAFETY: the caller's promise is passed on.
                unsafe { tiles::<M, N>(place, count) }
            }
        }
    };
}
pub(super) use tiles_of_dot;

/// A float from which on floats are whole numbers. The bits of this float plus a whole number are
/// its bits plus the number.
pub(super) const ONE: f32 = (3 << 22) as f32;

/// The bits that a packed number of a group of `group` values may have, if 256 was added to each
/// 16-bit one.
const fn packed_bits(group: usize) -> u32 {
    match group {
        4 => 0xff,
        _ => 0x1ff,
    }
}

/// [`Tiles::pack`] with vectors.
///
/// SAFETY: as there.
#[inline(always)]
pub(super) unsafe fn pack<D: Dot>(
    bits: D::Groups,
    from: *const f32,
    to: *mut u8,
    count: usize,
    low: f32,
) -> D::Groups {
    let (size, mut bits) = (4 / D::GROUP, bits);
    // SAFETY: the caller's promise.
    unsafe {
        let (one, shift) = (D::Float::splat(1.0), D::Float::splat(ONE - low));
        let mut k = 0;
        while k + D::LANES <= count {
            let floats = shift.fma(D::Float::load(from.add(k)), one);
            bits = D::or(bits, D::pack_lanes(floats, to.add(k * size)));
            k += D::LANES;
        }
        if k < count {
            let floats = shift.fma(D::load_first(from.add(k), count - k), one);
            bits = D::or(bits, D::pack_lanes(floats, to.add(k * size)));
        }
        bits
    }
}

/// Packed values of some windows, on the stack of a thread.
pub(super) struct Packed {
    values: MaybeUninit<[u32; ROOM + SPARE]>,
    /// For each window, the place of its first byte.
    starts: MaybeUninit<[u16; MOST]>,
}

/// The groups that [`pack`] may write behind the last value.
const SPARE: usize = 16;

/// The runs of packed windows, or of windows that are used where they are.
#[derive(Clone, Copy)]
pub(super) struct PackedRuns {
    values: *const u8,
    /// For each window, the place of its first byte. Null if windows are `apart` bytes from each
    /// other.
    starts: *const u16,
    apart: usize,
    /// The lines of a window, and its runs in a line.
    pub(super) lines: usize,
    pub(super) runs: usize,
    /// The distances of lines and of runs of a window, in bytes.
    pub(super) line_apart: usize,
    pub(super) run_apart: usize,
    /// The number of groups in a run.
    pub(super) length: usize,
}

impl PackedRuns {
    /// The address of the first value of a window.
    ///
    /// SAFETY: the window is one of the packed ones.
    #[inline(always)]
    pub(super) unsafe fn window(&self, at: usize) -> *const u8 {
        let start = match self.starts.is_null() {
            true => at * self.apart,
            // SAFETY: the caller's promise.
            false => usize::from(unsafe { *self.starts.add(at) }),
        };
        self.values.wrapping_add(start)
    }
}

/// Packs the values that windows cover, and returns their bits as [`Tiles::pack`] does.
///
/// SAFETY: the windows are sound, and the CPU has the instruction set. The windows are at most
/// [`MOST`], and cover at most [`ROOM`] groups.
#[inline(always)]
pub(super) unsafe fn pack_windows<D: Tiles>(
    windows: &WholeWindows,
    low: f32,
    to: &mut Packed,
) -> (PackedRuns, u32) {
    let (size, window) = (4 / D::GROUP, &windows.window);
    let (lines, columns) = (windows.lines.len(), windows.columns.len());
    let needed_lines = Needed::lines(window, lines);
    let needed_columns = Needed::columns(window, columns);
    let (pixel, values) = (windows.packed() * size, to.values.as_mut_ptr().cast::<u8>());
    let line = needed_columns.count * pixel;
    let mut start = to.starts.as_mut_ptr().cast::<u16>();
    for y in 0..lines {
        for x in 0..columns {
            // SAFETY: there are at most MOST windows.
            unsafe {
                *start = (y * needed_lines.step * line + x * needed_columns.step * pixel) as u16;
                start = start.add(1);
            }
        }
    }
    let run = WholeWindows::run(window, windows.channels);
    let ((height, width), (dilation_y, dilation_x)) = (window.size, window.dilation);
    let packed = PackedRuns {
        values,
        starts: to.starts.as_ptr().cast(),
        apart: 0,
        lines: height,
        runs: width * windows.channels / run,
        line_apart: dilation_y * line,
        run_apart: dilation_x * pixel,
        length: run.div_ceil(D::GROUP),
    };
    // SAFETY: the caller's promise.
    unsafe {
        let mut bits = D::no_bits();
        for y in 0..needed_lines.count {
            let place = needed_lines.place(windows.lines.start, y);
            let to = values.add(y * line);
            bits = pack_line::<D>(bits, windows, &needed_columns, low, place, to);
        }
        // The last group may read bytes behind the values. Their weights are 0.
        values
            .add(needed_lines.count * line)
            .cast::<u32>()
            .write_unaligned(0);
        (packed, D::any(bits))
    }
}

/// Packs `count` zeros less `low` as numbers of `size` bytes.
///
/// SAFETY: `to` is valid for them.
#[inline(always)]
unsafe fn zeros(size: usize, to: *mut u8, count: usize, low: f32) {
    let (zero, mut i) = (-low as i32, 0);
    // SAFETY: the caller's promise.
    unsafe {
        if size == 1 {
            return to.write_bytes(zero as u8, count);
        }
        while i < count {
            to.cast::<i16>().add(i).write(zero as i16);
            i += 1;
        }
    }
}

/// Copies `count` bytes as numbers of `size` bytes.
///
/// SAFETY: `from` is valid for the bytes, and `to` for the numbers.
#[inline(always)]
unsafe fn copy(size: usize, from: *const u8, to: *mut u8, count: usize) {
    let mut i = 0;
    // SAFETY: the caller's promise.
    unsafe {
        if size == 1 {
            return to.copy_from_nonoverlapping(from, count);
        }
        while i < count {
            to.cast::<i16>().add(i).write((*from.add(i)).into());
            i += 1;
        }
    }
}

/// Packs line `y` of the image with its border, and adds its bits to `bits` as [`Tiles::pack`]
/// does.
///
/// SAFETY: as [`pack_windows`]. `to` has room for the line, and for a vector behind it.
#[inline(always)]
unsafe fn pack_line<D: Tiles>(
    mut bits: D::Bits,
    windows: &WholeWindows,
    needed: &Needed,
    low: f32,
    y: usize,
    to: *mut u8,
) -> D::Bits {
    let (size, channels, window) = (4 / D::GROUP, windows.packed(), &windows.window);
    // SAFETY: the caller's promise.
    unsafe {
        let fill = |at: usize, pixels: usize| {
            zeros(size, to.add(at * channels * size), pixels * channels, low);
        };
        let line = y.wrapping_sub(window.border.top);
        if line >= windows.height {
            fill(0, needed.count);
            return bits;
        }
        let start = line * windows.line;
        let first = windows.columns.start;
        if windows.pixel == channels && needed.stride <= needed.reach {
            let left = needed.place(first, 0);
            let begin = window.border.left.saturating_sub(left).min(needed.count);
            let end = (window.border.left + windows.width).saturating_sub(left);
            let end = end.clamp(begin, needed.count);
            fill(0, begin);
            if begin < end {
                let from = windows.x_at(start + (left + begin - window.border.left) * channels);
                let inside = to.add(begin * channels * size);
                let count = (end - begin) * channels;
                // The padding of the last pixel may be behind the image.
                let behind = channels - windows.channels;
                match windows.bytes {
                    true => {
                        copy(size, from.cast(), inside, count - behind);
                        zeros(size, inside.add((count - behind) * size), behind, low);
                    }
                    false => bits = D::pack(bits, from, inside, count, low),
                }
            }
            fill(end, needed.count - end);
        } else {
            for x in 0..needed.count {
                let column = needed.place(first, x).wrapping_sub(window.border.left);
                if column < windows.width {
                    let from = windows.x_at(start + column * windows.pixel);
                    let pixel = to.add(x * channels * size);
                    match windows.bytes {
                        true => copy(size, from.cast(), pixel, channels),
                        false => bits = D::pack(bits, from, pixel, channels, low),
                    }
                } else {
                    fill(x, 1);
                }
            }
        }
        bits
    }
}

/// The position of the next tile.
pub(super) struct WholePlace<'a> {
    pub(super) whole: &'a WholeSubproblem<'a>,
    pub(super) x: PackedRuns,
    /// The tile's first window, counted from the first packed one.
    pub(super) at: usize,
    /// The address of row 0 for the tile's first window.
    pub(super) result: *mut f32,
    /// The first row.
    pub(super) row: usize,
}

impl WholePlace<'_> {
    /// Moves the place by some windows.
    #[inline(always)]
    pub(super) fn advance(&mut self, windows: usize) {
        self.at += windows;
        let by = windows * self.whole.result_stride;
        self.result = self.whole.result_at(self.result, by);
    }
}

/// The most bytes of windows that are used where they are, at a time. A second-level cache holds
/// them beside the weights, which are read once for them.
const STANDING: usize = 1 << 17;

/// Computes a subproblem. A tile has at most M windows by N vectors of rows. At the end of the rows
/// it has at most K windows by W vectors or one. The tile of a single window has S vectors, because
/// the few sums of N would wait for each other. Results of windows with a value that is NaN or
/// infinite are NaN, or marked as lost.
///
/// SAFETY: the subproblem is sound, its rows are whole vectors, a window covers at most [`ROOM`]
/// groups, and the CPU has the instruction set.
pub(super) unsafe fn affine<
    D: Tiles,
    const M: usize,
    const N: usize,
    const K: usize,
    const W: usize,
    const S: usize,
>(
    whole: &WholeSubproblem<'_>,
) {
    let windows = &whole.windows.in_one_line();
    if windows.stand(D::GROUP) {
        // SAFETY: passed on.
        return unsafe { standing::<D, M, N, K, W, S>(whole, windows) };
    }
    let mut packed = Packed {
        values: MaybeUninit::uninit(),
        starts: MaybeUninit::uninit(),
    };
    let (mut line, mut column) = (windows.lines.start, windows.columns.start);
    let mut result = whole.result;
    while line < windows.lines.end {
        let (lines, columns) = windows.next(line, column, M, D::GROUP);
        let some = WholeWindows {
            lines: line..line + lines,
            columns: column..column + columns,
            ..*windows
        };
        column += columns;
        if column == windows.columns.end {
            (line, column) = (line + lines, windows.columns.start);
        }
        // SAFETY: `next` limits what the windows cover; passed on.
        unsafe {
            let (x, bits) = D::pack_windows(&some, whole.weights.low, &mut packed);
            block::<D, M, N, K, W, S>(whole, x, lines * columns, result);
            if bits & !packed_bits(D::GROUP) != 0 {
                refuse::<D>(whole, &some, &mut packed, result);
            }
        }
        result = whole.result_at(result, lines * columns * whole.result_stride);
    }
}

/// Computes a subproblem whose windows are used where they are. `windows` are those of the
/// subproblem.
///
/// SAFETY: as [`affine`].
#[inline(always)]
unsafe fn standing<
    D: Tiles,
    const M: usize,
    const N: usize,
    const K: usize,
    const W: usize,
    const S: usize,
>(
    whole: &WholeSubproblem<'_>,
    windows: &WholeWindows,
) {
    let (lines, columns) = (windows.lines.len(), windows.columns.len());
    let most = (STANDING / windows.pixel / M * M).max(M);
    let mut result = whole.result;
    for line in (windows.lines.start..).take(lines) {
        let first = line * windows.line + windows.columns.start * windows.pixel;
        for at in (0..columns).step_by(most) {
            let count = most.min(columns - at);
            let x = PackedRuns {
                values: windows.x_at(first + at * windows.pixel).cast(),
                starts: std::ptr::null(),
                apart: windows.pixel,
                lines: 1,
                runs: 1,
                line_apart: 0,
                run_apart: 0,
                length: windows.channels.div_ceil(D::GROUP),
            };
            // SAFETY: passed on.
            unsafe { block::<D, M, N, K, W, S>(whole, x, count, result) };
            result = whole.result_at(result, count * whole.result_stride);
        }
    }
}

/// Computes all rows of `count` packed windows.
///
/// SAFETY: as [`affine`].
#[inline(always)]
unsafe fn block<
    D: Tiles,
    const M: usize,
    const N: usize,
    const K: usize,
    const W: usize,
    const S: usize,
>(
    whole: &WholeSubproblem<'_>,
    x: PackedRuns,
    count: usize,
    result: *mut f32,
) {
    let mut row = whole.rows.start;
    let (wide, narrow) = (evenly(count, M), evenly(count, K));
    // SAFETY: passed on.
    unsafe {
        while row < whole.rows.end {
            let mut place = WholePlace {
                whole,
                x,
                at: 0,
                result,
                row,
            };
            let left = (whole.rows.end - row) / D::LANES;
            if count == 1 && left >= S {
                D::tiles::<1, S>(&mut place, 1);
                row += S * D::LANES;
                continue;
            }
            macro_rules! tiles {
                ($parts:ident of $most:ident by $vectors:expr, $($windows:literal)*) => {
                    for (tiles, windows) in $parts {
                        $(if $windows <= $most && windows == $windows && tiles > 0 {
                            D::tiles::<$windows, { $vectors }>(&mut place, tiles);
                        })*
                    }
                };
            }
            let vectors = [N, W, 1].into_iter().find(|&n| n <= left).unwrap_or(1);
            if vectors == N {
                tiles!(wide of M by N, 1 2 3 4 5 6 7 8);
            } else if vectors == W {
                tiles!(narrow of K by W, 1 2 3 4 5 6 7 8);
            } else {
                tiles!(narrow of K by 1, 1 2 3 4 5 6 7 8);
            }
            row += vectors * D::LANES;
        }
    }
}

/// Sets the results of windows with a value that is no whole number in range to NaN, or marks them
/// as lost.
///
/// SAFETY: as [`affine`].
#[cold]
unsafe fn refuse<D: Tiles>(
    whole: &WholeSubproblem<'_>,
    windows: &WholeWindows,
    packed: &mut Packed,
    mut result: *mut f32,
) {
    let Window {
        size,
        stride,
        dilation,
        border,
        ..
    } = windows.window;
    for (line, column) in windows
        .lines
        .clone()
        .flat_map(|y| windows.columns.clone().map(move |x| (y, x)))
    {
        let mut bits = 0;
        // Element by element, without the values between them.
        for element in 0..size.0 * size.1 {
            let y = line * stride.0 + element / size.1 * dilation.0;
            let x = column * stride.1 + element % size.1 * dilation.1;
            let one = WholeWindows {
                window: Window {
                    border,
                    ..Window::of((1, 1))
                },
                lines: y..y + 1,
                columns: x..x + 1,
                ..*windows
            };
            // SAFETY: the caller's promise.
            bits |= unsafe { D::pack_windows(&one, whole.weights.low, packed).1 };
        }
        let wrong = bits & !packed_bits(D::GROUP) != 0;
        if wrong && whole.bytes.is_some() {
            let mark = whole.lost.get(column - whole.windows.columns.start);
            let mark = mark.or(whole.lost.first());
            mark.inspect(|mark| mark.store(true, Ordering::Relaxed));
        } else if wrong {
            for row in whole.rows.clone() {
                // SAFETY: the caller's promise.
                unsafe { *result.add(row) = f32::NAN }
            }
        }
        result = whole.result_at(result, whole.result_stride);
    }
}

/// Computes `count` tiles of M windows by N vectors of rows. A call computes many, because for few
/// groups a call takes as long as the products.
///
/// SAFETY: as [`affine`]. The tiles are inside the subproblem.
#[inline(always)]
pub(super) unsafe fn tiles<D: Dot, const M: usize, const N: usize>(
    place: &mut WholePlace<'_>,
    count: usize,
) {
    for _ in 0..count {
        // SAFETY: passed on.
        unsafe { tile::<D, M, N>(place) }
        place.advance(M);
    }
}

/// Computes the next tile.
///
/// SAFETY: as [`tiles`].
#[inline(always)]
unsafe fn tile<D: Dot, const M: usize, const N: usize>(place: &WholePlace<'_>) {
    let (&WholePlace { at, row, .. }, packed) = (place, place.x);
    let weights = place.whole.weights;
    let groups = packed.lines * packed.runs * packed.length;
    // SAFETY: each pointer stays inside its array. Vectors of zero bytes are zeros.
    unsafe {
        let of_row = groups * D::GROUP * D::WEIGHT;
        let mut next = weights.groups.as_ptr().add(row * of_row);
        let (mut sums, mut x): ([[D; N]; M], _) = (std::mem::zeroed(), [packed.values; M]);
        unrolled!(m < M, { x[m] = packed.window(at + m) });
        unrolled!(i < N, {
            let start = D::start(weights.start.as_ptr().add(row + i * D::LANES));
            unrolled!(m < M, { sums[m][i] = start });
        });
        for line in 0..packed.lines {
            for run in 0..packed.runs {
                let first = line * packed.line_apart + run * packed.run_apart;
                let mut run = x;
                unrolled!(m < M, { run[m] = x[m].add(first) });
                next = add_run(&mut sums, run, next, of_row * D::LANES, packed.length);
            }
        }
        finish::<D, M, N>(place, sums);
    }
}

/// Adds the products of a run to the sums of a tile, and returns the address of the weights of the
/// next run. `run` has the address of the run of each window, and `length` its groups. The weights
/// of two vectors of rows are `apart` bytes from each other.
///
/// SAFETY: as [`tile`].
#[inline(always)]
unsafe fn add_run<D: Dot, const M: usize, const N: usize>(
    sums: &mut [[D; N]; M],
    run: [*const u8; M],
    mut next: *const u8,
    apart: usize,
    length: usize,
) -> *const u8 {
    let vector = D::LANES * D::GROUP * D::WEIGHT;
    let mut g = 0;
    // SAFETY: each pointer stays inside its array. Vectors of zero bytes are zeros.
    unsafe {
        if D::OF_MATRICES && length >= 4 {
            let fours = length / 4;
            D::add_fours(sums, run, next, apart, fours);
            next = next.add(4 * fours * vector);
            g = 4 * fours;
        }
        while D::OF_LANES && g + 4 <= length {
            let mut four: [D::Groups; M] = std::mem::zeroed();
            unrolled!(m < M, { four[m] = D::load(run[m].add(4 * g).cast()) });
            unrolled!(lane < 4, {
                let mut w: [D::Groups; N] = std::mem::zeroed();
                unrolled!(i < N, { w[i] = D::load_weights(next.add(i * apart)) });
                unrolled!(m < M, {
                    unrolled!(i < N, {
                        sums[m][i] = sums[m][i].dot_of_lane(four[m], w[i], lane);
                    });
                });
                next = next.add(vector);
            });
            g += 4;
        }
        while D::OF_TWO && g + 2 <= length {
            let mut w: [[D::Groups; 2]; N] = std::mem::zeroed();
            unrolled!(i < N, {
                let from = next.add(i * apart);
                w[i] = [D::load_weights(from), D::load_weights(from.add(vector))];
            });
            unrolled!(m < M, {
                let groups = run[m].add(4 * g).cast::<u32>();
                let second = groups.add(1).read_unaligned();
                let values = [D::splat(groups.read_unaligned()), D::splat(second)];
                D::dots_of_two(&mut sums[m], values, &w);
            });
            next = next.add(2 * vector);
            g += 2;
        }
        while g < length {
            let mut w: [D::Groups; N] = std::mem::zeroed();
            unrolled!(i < N, { w[i] = D::load_weights(next.add(i * apart)) });
            unrolled!(m < M, {
                let group = run[m].add(4 * g).cast::<u32>();
                let values = D::splat(group.read_unaligned());
                unrolled!(i < N, { sums[m][i] = sums[m][i].dot(values, w[i]) });
                compiler_fence(Ordering::SeqCst);
            });
            next = next.add(vector);
            g += 1;
        }
    }
    next
}

/// Scales, rounds and stores the sums of a tile.
///
/// SAFETY: as [`tile`].
#[inline(always)]
unsafe fn finish<D: Dot, const M: usize, const N: usize>(
    place: &WholePlace<'_>,
    sums: [[D; N]; M],
) {
    let &WholePlace {
        whole, row, result, ..
    } = place;
    let (factors, summands) = (&whole.rescale.factors, &whole.rescale.summands);
    // SAFETY: passed on. Vectors of zero bytes are zeros.
    unsafe {
        if let Some(bytes) = &whole.bytes {
            let mut numbers: [[D::Float; N]; 2] = std::mem::zeroed();
            unrolled!(i < N, {
                let at = row + i * D::LANES;
                numbers[0][i] = D::Float::load(factors.as_ptr().add(at));
                numbers[1][i] = D::Float::load(summands.as_ptr().add(at));
            });
            let mut values: [[D::Float; N]; M] = std::mem::zeroed();
            unrolled!(m < M, {
                unrolled!(i < N, {
                    values[m][i] = numbers[1][i].fma(sums[m][i].floats(), numbers[0][i]);
                });
            });
            let result = result.cast::<u8>().add(row);
            // Windows without a gap are stored together, if all of them fill whole vectors.
            if N < 4 && M * N % 4 == 0 && whole.result_stride == N * D::LANES {
                unrolled!(part < M * N / 4, {
                    let mut four: [D::Float; 4] = std::mem::zeroed();
                    unrolled!(i < 4, {
                        let at = 4 * part + i;
                        four[i] = values[at / N][at % N];
                    });
                    D::store_bytes(four, bytes, result.add(4 * part * D::LANES));
                });
                return;
            }
            // Otherwise two windows of two vectors, 0 and N − 1, are stored together.
            let at = |m: usize| result.add(m * whole.result_stride);
            unrolled!(pair < if N == 2 { M / 2 } else { 0 }, {
                let [m, n] = [2 * pair, 2 * pair + 1];
                let both = [
                    [values[m][0], values[m][N - 1]],
                    [values[n][0], values[n][N - 1]],
                ];
                D::store_windows(both, bytes, [at(m), at(n)]);
            });
            unrolled!(m < M, {
                if N != 2 || m >= M / 2 * 2 {
                    D::store_bytes(values[m], bytes, at(m));
                }
            });
            return;
        }
        let Bounds { least, largest } = whole.rescale.bounds;
        let (least, largest) = (D::Float::splat(least), D::Float::splat(largest));
        unrolled!(i < N, {
            let at = row + i * D::LANES;
            let factor = D::Float::load(factors.as_ptr().add(at));
            let summand = D::Float::load(summands.as_ptr().add(at));
            unrolled!(m < M, {
                let mut value = summand.fma(sums[m][i].floats(), factor);
                if whole.rescale.rounds {
                    value = value.round();
                }
                let value = largest.min(least.max(value));
                value.store(result.add(m * whole.result_stride + at));
            });
        });
    }
}
