//! Memory that the threads of a team share.

use super::deferred::Deferred;
use crate::error::Error;
use std::alloc::{alloc_zeroed, dealloc};
use std::cell::UnsafeCell;

/// The number of floats in a cache line.
pub(super) const LINE: usize = 16;

/// Floats on a cache line's boundary that several threads read and write. They are zero at first,
/// and take memory only once something was written.
pub(super) struct Floats {
    memory: *mut u8,
    pub(super) start: *mut f32,
    pub(super) len: usize,
}

// SAFETY: the pointer is to memory that this value owns. Its users agree on which thread may touch
// which floats when.
unsafe impl Send for Floats {}
// SAFETY: as above.
unsafe impl Sync for Floats {}

impl Floats {
    fn layout(len: usize) -> Option<std::alloc::Layout> {
        // With a small alignment, the allocator can use pages that the system has zeroed. So `new`
        // moves the start to a cache line's boundary itself, and the memory has an additional line.
        std::alloc::Layout::array::<f32>(len.checked_add(LINE)?).ok()
    }

    pub(super) fn new(len: usize) -> Result<Floats, Error> {
        // SAFETY: the size is not zero, because the layout has a line more than `len` floats.
        let memory =
            Floats::layout(len).map_or(std::ptr::null_mut(), |l| unsafe { alloc_zeroed(l) });
        if memory.is_null() {
            return Err(Error::device(
                "host engine: not enough memory for batches of this size; use a smaller --batch",
            ));
        }
        let start = memory.wrapping_add(memory.align_offset(4 * LINE)).cast();
        Ok(Floats { memory, start, len })
    }

    /// SAFETY: nobody writes to the floats as long as the slice lives.
    pub(super) unsafe fn slice(&self) -> &[f32] {
        // SAFETY: `start` has `len` floats behind it; the caller's promise.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }

    /// SAFETY: nobody else touches the floats as long as the slice lives.
    #[allow(clippy::mut_from_ref)]
    pub(super) unsafe fn slice_mut(&self) -> &mut [f32] {
        // SAFETY: `start` has `len` floats behind it; the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }
}

impl Drop for Floats {
    fn drop(&mut self) {
        if let Some(layout) = Floats::layout(self.len) {
            // SAFETY: allocated with this layout in `new`.
            unsafe { dealloc(self.memory, layout) };
        }
    }
}

/// Returns the address of the value with index `at` behind an address. Values are bytes or floats.
#[inline(always)]
pub(super) fn value_at(start: *mut f32, at: usize, bytes: bool) -> *mut f32 {
    match bytes {
        true => start.cast::<u8>().wrapping_add(at).cast(),
        false => start.wrapping_add(at),
    }
}

/// The addresses of a record's values: those that a step reads (`x`) and those that it writes.
#[derive(Clone, Copy)]
pub(super) struct Operands {
    pub(super) x: *const f32,
    pub(super) result: *mut f32,
}

#[cfg(test)]
impl Operands {
    pub(super) fn of(x: &[f32], result: &mut [f32]) -> Operands {
        Operands {
            x: x.as_ptr(),
            result: result.as_mut_ptr(),
        }
    }
}

/// A thread's memory within a step: for the windows of a convolution, or for the packed operands of
/// a product.
#[derive(Clone, Copy)]
pub(super) struct Scratch {
    /// Zeros that are only read: the values of runs in the border, or the biases of a product.
    pub(super) zeros: *const f32,
    /// Memory for windows that are copied or transformed, for run addresses, or for packed
    /// operands.
    pub(super) room: *mut f32,
}

/// A matrix of activations, records one after the other.
pub(super) struct Activations {
    pub(super) floats: Floats,
    /// The distance of two records, in floats. The values of a buffer that holds bytes take the
    /// first quarter of a record.
    pub(super) stride: usize,
}

impl Activations {
    pub(super) fn new(rows: usize, batch: usize) -> Result<Activations, Error> {
        let mut stride = rows.next_multiple_of(LINE);
        if stride % 256 == 0 {
            // With a stride of a multiple of 1 KB, records would compete for few sets of the cache.
            stride += LINE;
        }
        let floats = Floats::new(stride.saturating_mul(batch))?;
        Ok(Activations { floats, stride })
    }

    pub(super) fn record(&self, n: usize) -> *mut f32 {
        debug_assert!((n + 1) * self.stride <= self.floats.len);
        self.floats.start.wrapping_add(n * self.stride)
    }
}

/// The records of a slot that come as bytes, which the slot's job decodes.
pub(super) struct Undecoded {
    pub(super) records: UnsafeCell<Deferred>,
}

// SAFETY: nobody writes to it while a job of the slot is under way, and only the team has `&mut`
// outside of jobs.
unsafe impl Sync for Undecoded {}

/// The memory of each thread for a tile of a network with images: the tile's values between steps,
/// and room for windows and bands. Without images, only the number of records is used. The thread's
/// number is the index of its scratch memory and line windows. It is also that of its arena, unless
/// threads share records, which then have an arena each.
pub(super) struct Workspaces {
    /// For each workspace, the hidden values of a tile's records, one record after the other.
    pub(super) arenas: Vec<Floats>,
    /// For each workspace, memory within a step: run addresses, copied or transformed windows, or
    /// packed operands.
    pub(super) scratch: Vec<Floats>,
    /// For each workspace, the line windows of a band.
    pub(super) bands: Vec<Floats>,
    /// Zeros for runs in the border, and for the biases of products. All threads read them, and
    /// nobody writes to them.
    pub(super) zeros: Floats,
    /// The distance of two records in an arena, in floats.
    pub(super) stride: usize,
    /// The largest number of records in a tile.
    pub(super) records: usize,
}

/// The sizes of a workspace. All but `records` are in floats.
pub(super) struct Room {
    /// The distance of two records in an arena.
    pub(super) stride: usize,
    /// The largest number of records in a tile.
    pub(super) records: usize,
    /// The size of [`Scratch::room`], for the step that needs most.
    pub(super) scratch: usize,
    /// The line windows of the largest band.
    pub(super) bands: usize,
    /// The size of [`Scratch::zeros`], for the step that needs most.
    pub(super) zeros: usize,
}

impl Workspaces {
    pub(super) fn new(count: usize, room: Room) -> Result<Workspaces, Error> {
        let floats = |n: usize| (0..count).map(|_| Floats::new(n)).collect();
        let arenas: Result<Vec<Floats>, Error> = floats(room.stride * room.records + LINE);
        // A vector may read behind the last value.
        let scratch: Result<Vec<Floats>, Error> = floats(room.scratch + LINE);
        let bands: Result<Vec<Floats>, Error> = floats(room.bands);
        Ok(Workspaces {
            arenas: arenas?,
            scratch: scratch?,
            bands: bands?,
            zeros: Floats::new(room.zeros)?,
            stride: room.stride,
            records: room.records,
        })
    }
}
