//! Memory that the threads of a team share.

use super::deferred::Deferred;
use crate::error::Error;
use std::alloc::{alloc_zeroed, dealloc};
use std::cell::UnsafeCell;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

/// Floats of a cache line.
pub(super) const LINE: usize = 16;

/// Floats on a cache line's boundary that several threads read and write. They are zero at first,
/// and take memory only once something was written.
pub(super) struct Floats {
    memory: *mut u8,
    pub(super) start: *mut f32,
    pub(super) len: usize,
}

// SAFETY: it is memory; those who use the pointer agree on who may touch it when.
unsafe impl Send for Floats {}
// SAFETY: as above.
unsafe impl Sync for Floats {}

impl Floats {
    fn layout(len: usize) -> Option<std::alloc::Layout> {
        // Small alignments get pages that the system has zeroed; the start is aligned here.
        std::alloc::Layout::array::<f32>(len.checked_add(LINE)?).ok()
    }

    pub(super) fn new(len: usize) -> Result<Floats, Error> {
        // SAFETY: the size is not zero.
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

    /// SAFETY: nobody writes to it as long as the slice lives.
    pub(super) unsafe fn slice(&self) -> &[f32] {
        // SAFETY: `start` has `len` floats behind it; the caller's promise.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }

    /// SAFETY: nobody else touches it as long as the slice lives.
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

/// The values of a record that a step reads and writes.
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

/// A thread's memory for the windows of a convolution.
#[derive(Clone, Copy)]
pub(super) struct Scratch {
    /// Zeros for windows in the border.
    pub(super) zeros: *const f32,
    /// Memory for copied windows and their addresses.
    pub(super) room: *mut f32,
}

/// A matrix of activations, records one after the other.
pub(super) struct Activations {
    pub(super) floats: Floats,
    /// Floats from a record to the next.
    pub(super) stride: usize,
}

impl Activations {
    pub(super) fn new(rows: usize, batch: usize) -> Result<Activations, Error> {
        let mut stride = rows.next_multiple_of(LINE);
        if stride % 256 == 0 {
            // Records a multiple of a page apart would share the few ways of the same set of the
            // cache.
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

/// The records of a slot that are still bytes.
pub(super) struct Undecoded {
    pub(super) records: UnsafeCell<Deferred>,
}

// SAFETY: nobody writes to it while a job of the slot is under way, and only the team has `&mut`
// outside of jobs.
unsafe impl Sync for Undecoded {}

/// Which of at most 64 things are free: a bit for each.
struct FreeSet {
    bits: AtomicU64,
}

impl FreeSet {
    const MOST: usize = u64::BITS as usize;

    fn new(count: usize) -> FreeSet {
        let bits = AtomicU64::new((0..count).fold(0, |free, i| free | 1 << i));
        FreeSet { bits }
    }

    /// Takes the lowest free one, until it is given back. A thread gets the one that it had before,
    /// unless another took it in between.
    fn borrow(&self) -> Option<usize> {
        let lowest_taken = |free: u64| (free > 0).then(|| free & (free - 1));
        let before = self.bits.fetch_update(Acquire, Relaxed, lowest_taken);
        before.ok().map(|free| free.trailing_zeros() as usize)
    }

    fn give_back(&self, one: usize) {
        self.bits.fetch_or(1 << one, Release);
    }
}

/// Buffers for the input of a tile. The thread that decodes a tile's records borrows one, which
/// stays in its core's cache. The slots' inputs go from core to core.
pub(super) struct TileInputs {
    pub(super) buffers: Vec<Activations>,
    free: FreeSet,
}

impl TileInputs {
    pub(super) fn new(count: usize, rows: usize, records: usize) -> Result<TileInputs, Error> {
        let count = count.min(FreeSet::MOST);
        let buffers: Result<_, _> = (0..count)
            .map(|_| Activations::new(rows, records))
            .collect();
        Ok(TileInputs {
            buffers: buffers?,
            free: FreeSet::new(count),
        })
    }

    pub(super) fn borrow(&self) -> Option<usize> {
        self.free.borrow()
    }

    pub(super) fn give_back(&self, buffer: usize) {
        self.free.give_back(buffer);
    }
}

/// Memory of each thread for a tile of a network with images: its values between steps, and room
/// for windows.
pub(super) struct Workspaces {
    /// Values of the records of a tile, one after the other.
    pub(super) arenas: Vec<Floats>,
    /// Starts of the runs of windows, and runs across an edge.
    pub(super) scratch: Vec<Floats>,
    /// Lines of the values between the steps of a band.
    pub(super) bands: Vec<Floats>,
    /// The values of runs in the border. Nobody writes to it.
    pub(super) zeros: Floats,
    /// Floats from a record of a tile to the next.
    pub(super) stride: usize,
    /// Most records of a tile.
    pub(super) records: usize,
    free: FreeSet,
}

/// Sizes of a workspace, in floats.
pub(super) struct Room {
    /// Values of a record between steps.
    pub(super) stride: usize,
    /// Most records of a tile.
    pub(super) records: usize,
    /// Memory for windows: addresses, and copied runs or strips.
    pub(super) scratch: usize,
    /// Lines between the steps of a band.
    pub(super) bands: usize,
    /// The longest run of a window.
    pub(super) zeros: usize,
}

impl Workspaces {
    /// Most threads of a network with images.
    pub(super) const MOST: usize = FreeSet::MOST;

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
            free: FreeSet::new(count),
        })
    }

    /// A workspace that nobody else has until it is given back. There are as many as threads.
    pub(super) fn borrow(&self) -> usize {
        loop {
            match self.free.borrow() {
                Some(workspace) => return workspace,
                None => std::hint::spin_loop(),
            }
        }
    }

    pub(super) fn give_back(&self, workspace: usize) {
        self.free.give_back(workspace);
    }
}
