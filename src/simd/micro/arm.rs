//! Micro-kernels for NEON on 32-bit ARM, with or without VFPv4's fused multiply-add. Not every
//! armv7 CPU has NEON, and Rust's intrinsics for it are not stable. The kernels are in `neon.c`,
//! the only code of the program that is compiled for NEON.

use super::bytes::{ByteKernels, ByteSum, Bytes, ChannelWindows, TapOrder};
use super::image::{self, Line, Scaling, SumPart, WholeSum};
use super::kernel::Subproblem;
use super::whole::{self, Packed, PackedRuns, Tiles, WholeKernels, WholePlace, WholeWindows};
use super::winograd::{Pixels, Steps, Transforms};
use super::{Affine, Bounds, Kernels, Lanes4, of_bytes, of_halves};
use crate::planner::tiles::TileSize;

/// Returns the kernels that this CPU can run, fastest first.
pub(super) fn available() -> [Option<Kernels>; 2] {
    let has = hardware();
    [
        (has & (NEON | VFPV4) == NEON | VFPV4).then_some(FUSED),
        (has & NEON != 0).then_some(PLAIN),
    ]
}

pub(super) fn has_neon() -> bool {
    hardware() & NEON != 0
}

/// Converts each byte to a float. The CPU must have NEON.
pub(super) fn widen(bytes: &[u8], values: &mut [f32]) {
    // SAFETY: there are as many values as bytes, and `Decoder::all` offers this only with NEON.
    unsafe {
        mortonnet_neon_widen(
            bytes.as_ptr(),
            values.as_mut_ptr(),
            bytes.len().min(values.len()),
        )
    }
}

/// Returns HWCAP, the bits in which Linux reports the features of the CPU.
fn hardware() -> usize {
    const AT_HWCAP: usize = 16;
    // SAFETY: any number may be passed.
    unsafe { getauxval(AT_HWCAP) }
}

/// The bit of HWCAP that reports NEON.
const NEON: usize = 1 << 12;
/// The bit of HWCAP that reports VFPv4, which has the fused multiply-add.
const VFPV4: usize = 1 << 16;

/// Returns the `Kernels` of one of the two objects that are compiled from `neon.c`. The names of
/// its functions begin with `mortonnet_$prefix`.
macro_rules! kernels {
    ($prefix:literal, $name:literal, $gflops:literal) => {{
        // SAFETY: as the functions of `Kernels`.
        unsafe extern "C" {
            #[link_name = concat!("mortonnet_", $prefix, "_peak")]
            fn peak(turns: usize);
            #[link_name = concat!("mortonnet_", $prefix, "_read")]
            fn read(values: *const f32, count: usize, turns: usize);
            #[link_name = concat!("mortonnet_", $prefix, "_affine")]
            fn affine(sub: &CSubproblem);
            #[link_name = concat!("mortonnet_", $prefix, "_affine_of_halves")]
            fn affine_of_halves(sub: &CSubproblem);
            #[link_name = concat!("mortonnet_", $prefix, "_affine_of_bytes")]
            fn affine_of_bytes(sub: &CSubproblem);
            #[link_name = concat!("mortonnet_", $prefix, "_activate")]
            fn activate(activation: u32, a: f32, b: f32, values: *mut f32, count: usize);
            #[link_name = concat!("mortonnet_", $prefix, "_line")]
            fn line(line: &CLine);
            #[link_name = concat!("mortonnet_", $prefix, "_combine")]
            fn combine(code: u32, a: *const f32, b: *const f32, result: *mut f32, count: usize);
            #[link_name = concat!("mortonnet_", $prefix, "_filters")]
            fn filters(from: *const f32, apart: usize, to: *mut f32, apart_to: usize, n: usize);
            #[link_name = concat!("mortonnet_", $prefix, "_spread")]
            fn spread(
                first: *const f32,
                line: usize,
                pixel: usize,
                channels: usize,
                to: *mut f32,
                apart: usize,
            );
            #[link_name = concat!("mortonnet_", $prefix, "_scale")]
            fn scale(scaling: &CScaling);
            #[link_name = concat!("mortonnet_", $prefix, "_sum")]
            fn sum(sum: &CSum);
            #[link_name = concat!("mortonnet_", $prefix, "_gather")]
            fn gather(from: *const f32, apart: usize, channels: usize, pixels: &CPixels);
        }
        Kernels {
            name: $name,
            gflops: $gflops,
            lanes: 4,
            tile_records: 6,
            tile_vectors: 2,
            // SAFETY: the caller's promise is passed on.
            affine: |sub| unsafe { affine(&sub.into()) },
            // The functions in C do not know added values.
            adds: false,
            // SAFETY: the caller's promise is passed on.
            affine_of_halves: of_halves(|sub| unsafe { affine_of_halves(&sub.into()) }),
            // SAFETY: the caller's promise is passed on.
            affine_of_bytes: of_bytes(|sub| unsafe { affine_of_bytes(&sub.into()) }),
            // SAFETY: the caller's promise is passed on.
            peak: |turns| unsafe { peak(turns) },
            // SAFETY: the caller's promise is passed on.
            read: |values, count, turns| unsafe { read(values, count, turns) },
            // SAFETY: the caller's promise is passed on.
            activate: |activation, values, count| unsafe {
                if activation.computed_each() {
                    return super::activate_each(activation, values, count);
                }
                let [a, b] = activation.parameters();
                activate(activation.code(), a, b, values, count)
            },
            // SAFETY: the caller's promise is passed on. The pixels of a line follow each other
            // without a gap.
            line: |some| unsafe {
                line(&some.into());
                for scaling in some.scalings() {
                    scaled(scale, &scaling);
                }
            },
            takes_lines: true,
            pairs: false,
            // SAFETY: the caller's promise is passed on.
            combine: |arithmetic, a, b, result, count| unsafe {
                if arithmetic.rounds() {
                    return image::combine::<Lanes4>(arithmetic, a, b, result, count);
                }
                combine(arithmetic.code(), a, b, result, count)
            },
            // SAFETY: the caller's promise is passed on.
            scale: |some| unsafe { scaled(scale, some) },
            // SAFETY: the caller's promise is passed on.
            sum: |some| unsafe { sum(&some.into()) },
            // F(4×4, 3×3) has no C version.
            transforms: &[Transforms {
                size: TileSize::Two,
                // SAFETY: the caller's promise is passed on.
                filters: |from, apart, to, apart_to, n| unsafe {
                    filters(from, apart, to, apart_to, n)
                },
                // SAFETY: the caller's promise is passed on.
                spread: |first, Steps { line, pixel }, channels, to, apart| unsafe {
                    spread(first, line, pixel, channels, to, apart)
                },
                // SAFETY: the caller's promise is passed on.
                gather: |from, apart, channels, pixels, bounds| unsafe {
                    gather(from, apart, channels, &(pixels, bounds).into())
                },
            }],
        }
    }};
}

const FUSED: Kernels = kernels!("vfpv4", "neon-vfpv4", 8);
const PLAIN: Kernels = kernels!("neon", "neon", 4);

/// The Rust copy of `struct subproblem` in `neon.c`, with the same fields.
#[repr(C)]
struct CSubproblem {
    weights: *const std::ffi::c_void,
    biases: *const f32,
    scales: *const f32,
    panel: usize,
    columns: usize,
    inputs: usize,
    row: usize,
    end_row: usize,
    records: usize,
    x: *const f32,
    x_stride: usize,
    table: *const *const f32,
    apart: usize,
    length: usize,
    result: *mut f32,
    result_stride: usize,
    bounds: [f32; 2],
}

impl<E> From<&Subproblem<'_, E>> for CSubproblem {
    fn from(sub: &Subproblem<'_, E>) -> CSubproblem {
        let &Affine {
            weights,
            biases,
            scales,
            panel,
            columns,
            inputs,
            activation,
        } = sub.layer;
        let bounds = Bounds::of(activation).unwrap_or(Bounds::NONE);
        CSubproblem {
            weights: weights.as_ptr().cast(),
            biases: biases.as_ptr(),
            scales: scales.as_ptr(),
            panel,
            columns,
            inputs,
            row: sub.rows.start,
            end_row: sub.rows.end,
            records: sub.records,
            x: sub.x,
            x_stride: sub.x_stride,
            table: sub.runs.map_or(std::ptr::null(), |r| r.table),
            apart: sub.runs.map_or(0, |r| r.apart),
            length: sub.runs.map_or(0, |r| r.length),
            result: sub.result,
            result_stride: sub.result_stride,
            bounds: [bounds.least, bounds.largest],
        }
    }
}

/// The Rust copy of `struct line` in `neon.c`, with the same fields.
#[repr(C)]
struct CLine {
    x: *const f32,
    x_pixel: usize,
    x_line: usize,
    width: usize,
    top: usize,
    turns: [usize; 2],
    columns: usize,
    stride: usize,
    dilation: [usize; 2],
    left: usize,
    weights: *const f32,
    biases: *const f32,
    lines: usize,
    next_windows: usize,
    next_result: usize,
    whole: [usize; 2],
    channels: usize,
    real: usize,
    pads: usize,
    pixels: usize,
    result: *mut f32,
    result_step: usize,
    bounds: [f32; 2],
    bordered_rows: usize,
    bordered_width: usize,
    operation: u32,
}

impl From<&Line> for CLine {
    fn from(line: &Line) -> CLine {
        CLine {
            x: line.x,
            x_pixel: line.x_pixel,
            x_line: line.x_line,
            width: line.width,
            top: line.top,
            turns: [line.turns.start, line.turns.end],
            columns: line.columns,
            stride: line.stride,
            dilation: line.dilation.into(),
            left: line.left,
            weights: line.weights,
            biases: line.biases,
            lines: line.lines,
            next_windows: line.next_windows,
            next_result: line.next_result,
            whole: [line.whole.start, line.whole.end],
            channels: line.channels,
            real: line.real,
            pads: line.pads.into(),
            pixels: line.pixels,
            result: line.result,
            result_step: line.result_step,
            bounds: match line.factors.is_null() {
                true => [line.bounds.least, line.bounds.largest],
                false => [f32::NEG_INFINITY, f32::INFINITY],
            },
            bordered_rows: line.bordered_rows,
            bordered_width: line.bordered_width,
            operation: line.operation as u32,
        }
    }
}

/// The Rust copy of `struct pixels` in `neon.c`, with the same fields.
#[repr(C)]
struct CPixels {
    first: *mut f32,
    line: usize,
    pixel: usize,
    lines: usize,
    columns: usize,
    bounds: [f32; 2],
}

impl From<(Pixels, Bounds)> for CPixels {
    fn from((pixels, bounds): (Pixels, Bounds)) -> CPixels {
        CPixels {
            first: pixels.first,
            line: pixels.steps.line,
            pixel: pixels.steps.pixel,
            lines: pixels.lines,
            columns: pixels.columns,
            bounds: [bounds.least, bounds.largest],
        }
    }
}

/// The Rust copy of `struct scaling` in `whole.c`, with the same fields.
#[repr(C)]
struct CScaling {
    x: *const f32,
    result: *mut f32,
    numbers: [*const f32; 2],
    count: usize,
    steps: [usize; 2],
    turns: usize,
    apart: [usize; 3],
    rounds: u32,
    bounds: [f32; 2],
}

/// Computes a [`Scaling`]: whole vectors by a function of `whole.c`, the rest in plain Rust.
///
/// SAFETY: as [`image::scale`].
unsafe fn scaled(scale: unsafe extern "C" fn(&CScaling), s: &Scaling) {
    let whole = s.count / 4 * 4;
    // SAFETY: the caller's promise.
    unsafe {
        scale(&CScaling {
            x: s.x,
            result: s.result,
            numbers: s.numbers,
            count: whole,
            steps: s.steps,
            turns: s.turns,
            apart: s.apart,
            rounds: u32::from(s.rounds),
            bounds: [s.bounds.least, s.bounds.largest],
        });
        if whole < s.count {
            image::scale_rest::<Lanes4>(s, whole);
        }
    }
}

/// The Rust copy of `struct sum` in `whole.c`, with the same fields.
#[repr(C)]
struct CSum {
    x: *const f32,
    y: *const f32,
    result: *mut f32,
    count: usize,
    lower: [f32; 3],
    upper: [f32; 3],
    factor: f32,
    summand: f32,
    bounds: [f32; 2],
}

impl From<&WholeSum> for CSum {
    fn from(sum: &WholeSum) -> CSum {
        let numbers = &sum.numbers;
        let part = |p: SumPart| [p.factors[0], p.factors[1], p.summand];
        CSum {
            x: sum.x,
            y: sum.y,
            result: sum.result,
            count: sum.count,
            lower: part(numbers.lower),
            upper: part(numbers.upper),
            factor: numbers.factor,
            summand: numbers.summand,
            bounds: [numbers.bounds.least, numbers.bounds.largest],
        }
    }
}

/// Returns the `WholeKernels` of one of the two objects that are compiled from `whole.c`. The names
/// of its functions begin with `mortonnet_$prefix`.
macro_rules! whole_kernels {
    ($prefix:literal, $name:literal, $tiles:ident) => {{
        // SAFETY: as the functions of `ByteKernels`.
        unsafe extern "C" {
            #[link_name = concat!("mortonnet_", $prefix, "_channels")]
            fn channels(windows: &CChannels);
            #[link_name = concat!("mortonnet_", $prefix, "_sum_of_bytes")]
            fn sum_of_bytes(sum: &CByteSum);
        }
        WholeKernels {
            name: $name,
            lanes: 4,
            group: 4,
            signed: true,
            // Without −128 among the weights, the sum of two products of bytes has 16 bits.
            weights: [-127, 127],
            matrices: false,
            affine: whole::affine::<$tiles, 2, 2, 2, 1, 2>,
            bytes: ByteKernels {
                block: 8,
                order: TapOrder::Tap,
                weights: [-127, 127],
                // SAFETY: the caller's promise is passed on.
                channels: |windows| unsafe { channels(&windows.into()) },
                // SAFETY: the caller's promise is passed on.
                sum: |sum| unsafe { sum_of_bytes(&sum.into()) },
            },
        }
    }};
}

/// Returns the kernels for whole numbers that this CPU can run, fastest first.
pub(super) fn whole() -> [Option<WholeKernels>; 2] {
    let has = hardware();
    [
        (has & (NEON | VFPV4) == NEON | VFPV4)
            .then(|| whole_kernels!("vfpv4", "neon-vfpv4", Fused)),
        (has & NEON != 0).then(|| whole_kernels!("neon", "neon", Plain)),
    ]
}

/// Returns the bounds of results in bytes, as whole numbers.
fn bounds_of(bytes: &Bytes) -> [f32; 2] {
    [bytes.least, bytes.largest].map(|byte| f32::from(byte) + f32::from(bytes.low))
}

/// The Rust copy of `struct channels` in `whole.c`, with the same fields.
#[repr(C)]
struct CChannels {
    x: *const u8,
    x_pixel: usize,
    x_line: usize,
    width: usize,
    height: usize,
    stride: [usize; 2],
    dilation: [usize; 2],
    top: usize,
    left: usize,
    result: *mut u8,
    pixel: usize,
    line: usize,
    columns: usize,
    lines: [usize; 2],
    inside: [usize; 2],
    weights: *const u32,
    start: *const i32,
    factors: *const f32,
    summands: *const f32,
    bounds: [f32; 2],
    low: i32,
    zero: u32,
}

impl From<&ChannelWindows<'_>> for CChannels {
    fn from(windows: &ChannelWindows<'_>) -> CChannels {
        let (weights, window, inside) = (windows.weights, windows.window, windows.inside());
        CChannels {
            x: windows.x,
            x_pixel: windows.x_pixel,
            x_line: windows.x_line,
            width: windows.width,
            height: windows.height,
            stride: window.stride.into(),
            dilation: window.dilation.into(),
            top: window.border.top,
            left: window.border.left,
            result: windows.result,
            pixel: windows.pixel,
            line: windows.line,
            columns: windows.columns,
            lines: [windows.lines.start, windows.lines.end],
            inside: [inside.start, inside.end],
            weights: weights.groups.as_ptr(),
            start: weights.start.as_ptr(),
            factors: weights.factors.as_ptr(),
            summands: weights.summands.as_ptr(),
            bounds: bounds_of(&weights.bytes),
            low: weights.bytes.low.into(),
            zero: weights.zero.into(),
        }
    }
}

/// The Rust copy of `struct byte_sum` in `whole.c`, with the same fields.
#[repr(C)]
struct CByteSum {
    x: *const u8,
    y: *const u8,
    result: *mut f32,
    count: usize,
    factors: [i32; 2],
    summand: i32,
    shift: u32,
    bytes: u32,
    low: i32,
    bytes_bounds: [i32; 2],
    bounds: [f32; 2],
}

impl From<&ByteSum> for CByteSum {
    fn from(sum: &ByteSum) -> CByteSum {
        let bytes = |number: fn(&Bytes) -> i16| sum.bytes.as_ref().map_or(0, number).into();
        CByteSum {
            x: sum.x,
            y: sum.y,
            result: sum.result,
            count: sum.count,
            factors: sum.integers.multipliers,
            summand: sum.integers.summand,
            shift: sum.integers.shift,
            bytes: sum.bytes.is_some().into(),
            low: bytes(|b| b.low),
            bytes_bounds: [bytes(|b| b.least), bytes(|b| b.largest)],
            bounds: [sum.bounds.least, sum.bounds.largest],
        }
    }
}

/// The Rust copy of `struct whole_tile` in `whole.c`, with the same fields.
#[repr(C)]
struct CWholeTile {
    x: [*const u8; 2],
    weights: *const u32,
    apart: usize,
    lines: usize,
    runs: usize,
    line_apart: usize,
    run_apart: usize,
    length: usize,
    start: *const i32,
    factors: *const f32,
    summands: *const f32,
    bounds: [f32; 2],
    rounds: u32,
    bytes: u32,
    low: i32,
    result: *mut f32,
    result_stride: usize,
}

impl CWholeTile {
    /// A tile of `windows` windows.
    ///
    /// SAFETY: the place is inside a sound subproblem, which has as many windows from there on.
    unsafe fn of(place: &WholePlace<'_>, windows: usize) -> CWholeTile {
        let &WholePlace { whole, x, row, .. } = place;
        let groups = x.lines * x.runs * x.length;
        let rescale = whole.rescale;
        // SAFETY: the caller's promise.
        let window = |m: usize| unsafe { x.window(place.at + m.min(windows - 1)) };
        CWholeTile {
            x: [0, 1].map(window),
            weights: whole
                .weights
                .groups
                .as_ptr()
                .cast::<u32>()
                .wrapping_add(row * groups),
            apart: groups * 16,
            lines: x.lines,
            runs: x.runs,
            line_apart: x.line_apart,
            run_apart: x.run_apart,
            length: x.length,
            start: whole.weights.start.as_ptr().wrapping_add(row),
            factors: rescale.factors.as_ptr().wrapping_add(row),
            summands: rescale.summands.as_ptr().wrapping_add(row),
            bounds: match &whole.bytes {
                Some(bytes) => bounds_of(bytes),
                None => [rescale.bounds.least, rescale.bounds.largest],
            },
            rounds: rescale.rounds.into(),
            bytes: whole.bytes.is_some().into(),
            low: whole.bytes.map_or(0, |bytes| bytes.low.into()),
            result: whole.result_at(place.result, row),
            result_stride: whole.result_stride,
        }
    }
}

/// Defines a type with the functions of `whole.c` whose names begin with `mortonnet_$prefix`.
macro_rules! tiles {
    ($name:ident, $prefix:literal) => {
        struct $name;

        // SAFETY of the bodies: the trait's promise.
        impl Tiles for $name {
            const LANES: usize = 4;
            const GROUP: usize = 4;
            type Bits = u32;

            unsafe fn no_bits() -> u32 {
                0
            }

            unsafe fn any(bits: u32) -> u32 {
                bits
            }

            unsafe fn pack(
                bits: u32,
                from: *const f32,
                to: *mut u8,
                count: usize,
                low: f32,
            ) -> u32 {
                // SAFETY: as `Tiles::pack`.
                unsafe extern "C" {
                    #[link_name = concat!("mortonnet_", $prefix, "_pack")]
                    fn pack(from: *const f32, to: *mut u8, count: usize, shift: f32) -> u32;
                }
                // SAFETY: the trait's promise.
                bits | unsafe { pack(from, to, count, whole::ONE - low) }
            }

            unsafe fn tiles<const M: usize, const N: usize>(
                place: &mut WholePlace<'_>,
                count: usize,
            ) {
                // SAFETY: as `Tiles::tiles`.
                unsafe extern "C" {
                    #[link_name = concat!("mortonnet_", $prefix, "_whole_1x1")]
                    fn tile_1x1(tile: &CWholeTile);
                    #[link_name = concat!("mortonnet_", $prefix, "_whole_1x2")]
                    fn tile_1x2(tile: &CWholeTile);
                    #[link_name = concat!("mortonnet_", $prefix, "_whole_2x1")]
                    fn tile_2x1(tile: &CWholeTile);
                    #[link_name = concat!("mortonnet_", $prefix, "_whole_2x2")]
                    fn tile_2x2(tile: &CWholeTile);
                }
                for _ in 0..count {
                    // SAFETY: the trait's promise.
                    unsafe {
                        let tile = CWholeTile::of(place, M);
                        match (M, N) {
                            (1, 1) => tile_1x1(&tile),
                            (1, 2) => tile_1x2(&tile),
                            (2, 1) => tile_2x1(&tile),
                            (2, 2) => tile_2x2(&tile),
                            _ => unreachable!("a tile of {M} by {N}"),
                        }
                    }
                    place.advance(M);
                }
            }

            unsafe fn pack_windows(
                windows: &WholeWindows,
                low: f32,
                to: &mut Packed,
            ) -> (PackedRuns, u32) {
                // SAFETY: the trait's promise.
                unsafe { whole::pack_windows::<$name>(windows, low, to) }
            }
        }
    };
}

tiles!(Fused, "vfpv4");
tiles!(Plain, "neon");

// SAFETY: `mortonnet_neon_widen` needs `count` bytes, room for as many values, and a CPU with NEON.
// `getauxval` takes any number.
unsafe extern "C" {
    fn mortonnet_neon_widen(bytes: *const u8, values: *mut f32, count: usize);
    fn getauxval(kind: usize) -> usize;
}
