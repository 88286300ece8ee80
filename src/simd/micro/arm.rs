//! Micro-kernels for NEON on 32-bit ARM, with or without VFPv4's fused multiply-add. Not every
//! armv7 CPU has NEON, and Rust's intrinsics for it are not stable. The kernels are in `neon.c`,
//! the only code of the program that is compiled for NEON.

use super::image::Line;
use super::kernel::Subproblem;
use super::winograd::{Pixels, Steps, Transforms};
use super::{Activation, Affine, Bounds, Kernels, of_bytes, of_halves};

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
            // SAFETY: the caller's promise is passed on.
            affine_of_halves: of_halves(|sub| unsafe { affine_of_halves(&sub.into()) }),
            // SAFETY: the caller's promise is passed on.
            affine_of_bytes: of_bytes(|sub| unsafe { affine_of_bytes(&sub.into()) }),
            // SAFETY: the caller's promise is passed on.
            peak: |turns| unsafe { peak(turns) },
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
                    super::image::scale::<super::Lanes4>(&scaling);
                }
            },
            takes_lines: true,
            // SAFETY: the caller's promise is passed on.
            combine: |arithmetic, a, b, result, count| unsafe {
                if arithmetic.rounds() {
                    return super::image::combine::<super::Lanes4>(arithmetic, a, b, result, count);
                }
                combine(arithmetic.code(), a, b, result, count)
            },
            scale: super::image::scale::<super::Lanes4>,
            sum: super::image::sum::<super::Lanes4>,
            transforms: Some(Transforms {
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
            }),
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
    length: usize,
    result: *mut f32,
    result_stride: usize,
    activation: u32,
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
            length: sub.runs.map_or(0, |r| r.length),
            result: sub.result,
            result_stride: sub.result_stride,
            activation: activation.code(),
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

// SAFETY: `mortonnet_neon_widen` needs `count` bytes, room for as many values, and a CPU with NEON.
// `getauxval` takes any number.
unsafe extern "C" {
    fn mortonnet_neon_widen(bytes: *const u8, values: *mut f32, count: usize);
    fn getauxval(kind: usize) -> usize;
}
