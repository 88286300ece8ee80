//! NEON on 32-bit ARM, alone or with the fused multiply-add of VFPv4. Not every armv7 CPU has NEON,
//! and its intrinsics are not stable in Rust. The kernels are in `neon.c`, the only code of the
//! program that is compiled for NEON.

use super::image;
use super::kernel::Subproblem;
use super::vector::{Lanes4, Vector};
use super::{Affine, Kernels, of_bytes, of_halves};

/// Returns the kernels that this CPU can run, best first.
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

/// Converts bytes to floats. The CPU must have NEON.
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

/// Returns HWCAP, the Linux kernel's word of CPU features.
fn hardware() -> usize {
    const AT_HWCAP: usize = 16;
    // SAFETY: any number may be passed.
    unsafe { getauxval(AT_HWCAP) }
}

/// The feature bits of HWCAP.
const NEON: usize = 1 << 12;
const VFPV4: usize = 1 << 16;

const FUSED: Kernels = Kernels {
    name: "neon-vfpv4",
    gflops: 8,
    lanes: 4,
    tile_records: 6,
    tile_vectors: 2,
    // SAFETY: the caller's promise is passed on.
    affine: |sub| unsafe { mortonnet_vfpv4_affine(&sub.into()) },
    // SAFETY: the caller's promise is passed on.
    affine_of_halves: of_halves(|sub| unsafe { mortonnet_vfpv4_affine_of_halves(&sub.into()) }),
    // SAFETY: the caller's promise is passed on.
    affine_of_bytes: of_bytes(|sub| unsafe { mortonnet_vfpv4_affine_of_bytes(&sub.into()) }),
    // SAFETY: the caller's promise is passed on.
    peak: |turns| unsafe { mortonnet_vfpv4_peak(turns) },
    // SAFETY: the caller's promise is passed on.
    activate: |activation, values, count| unsafe {
        {
            let [a, b] = activation.parameters();
            mortonnet_vfpv4_activate(activation.code(), a, b, values, count)
        }
    },
    line: image::line::<Lanes4>,
    takes_lines: Lanes4::REGISTERS,
    combine: image::combine::<Lanes4>,
    transforms: None,
};

const PLAIN: Kernels = Kernels {
    name: "neon",
    gflops: 4,
    lanes: 4,
    tile_records: 6,
    tile_vectors: 2,
    // SAFETY: the caller's promise is passed on.
    affine: |sub| unsafe { mortonnet_neon_affine(&sub.into()) },
    // SAFETY: the caller's promise is passed on.
    affine_of_halves: of_halves(|sub| unsafe { mortonnet_neon_affine_of_halves(&sub.into()) }),
    // SAFETY: the caller's promise is passed on.
    affine_of_bytes: of_bytes(|sub| unsafe { mortonnet_neon_affine_of_bytes(&sub.into()) }),
    // SAFETY: the caller's promise is passed on.
    peak: |turns| unsafe { mortonnet_neon_peak(turns) },
    // SAFETY: the caller's promise is passed on.
    activate: |activation, values, count| unsafe {
        {
            let [a, b] = activation.parameters();
            mortonnet_neon_activate(activation.code(), a, b, values, count)
        }
    },
    line: image::line::<Lanes4>,
    takes_lines: Lanes4::REGISTERS,
    combine: image::combine::<Lanes4>,
    transforms: None,
};

/// The mirror of `struct subproblem` in `neon.c`.
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

// SAFETY: as the functions of `Kernels`.
unsafe extern "C" {
    fn mortonnet_vfpv4_peak(turns: usize);
    fn mortonnet_vfpv4_affine(sub: &CSubproblem);
    fn mortonnet_vfpv4_affine_of_halves(sub: &CSubproblem);
    fn mortonnet_vfpv4_affine_of_bytes(sub: &CSubproblem);
    fn mortonnet_vfpv4_activate(activation: u32, a: f32, b: f32, values: *mut f32, count: usize);
    fn mortonnet_neon_peak(turns: usize);
    fn mortonnet_neon_affine(sub: &CSubproblem);
    fn mortonnet_neon_affine_of_halves(sub: &CSubproblem);
    fn mortonnet_neon_affine_of_bytes(sub: &CSubproblem);
    fn mortonnet_neon_activate(activation: u32, a: f32, b: f32, values: *mut f32, count: usize);
    fn mortonnet_neon_widen(bytes: *const u8, values: *mut f32, count: usize);
    fn getauxval(kind: usize) -> usize;
}
