//! Set-associative caches with LRU replacement.

use super::shape::CacheShape;

/// A set-associative cache with LRU replacement. Each set lists its lines from the most to the
/// least recently used.
pub(super) struct Cache {
    ways: usize,
    sets: u32,
    lines: Vec<u32>,
}

impl Cache {
    pub(super) fn new(lines: usize, ways: usize) -> Cache {
        Cache {
            ways,
            sets: (lines / ways) as u32,
            lines: vec![u32::MAX; lines],
        }
    }

    /// Uses a cache line, which becomes the most recently used one of its set. Returns true if the
    /// cache held the line. If not, the set evicts its least recently used line.
    pub(super) fn hit(&mut self, line: u32) -> bool {
        let set = if self.sets.is_power_of_two() {
            line & (self.sets - 1)
        } else {
            line % self.sets
        } as usize;
        let mut moved = line;
        for place in &mut self.lines[set * self.ways..][..self.ways] {
            std::mem::swap(place, &mut moved);
            if moved == line {
                return true;
            }
        }
        false
    }
}

/// Counts of cache misses: `l1` sums those of all cores' L1, `l2` has those of the shared L2.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Count {
    pub(super) l1: u64,
    pub(super) l2: u64,
}

impl Count {
    pub(super) fn add(&mut self, more: Count, times: u64) {
        self.l1 += more.l1 * times;
        self.l2 += more.l2 * times;
    }
}

/// The caches of a device.
pub(super) struct Caches {
    l1: Vec<Cache>,
    l2: Cache,
}

impl Caches {
    pub(super) fn new(shape: &CacheShape) -> Caches {
        Caches {
            l1: (0..shape.cores)
                .map(|_| Cache::new(shape.l1_lines, shape.l1_ways))
                .collect(),
            l2: Cache::new(shape.l2_lines, shape.l2_ways),
        }
    }

    /// Accesses a cache line from a core: first in the core's L1, and after a miss there in the L2.
    /// Adds the misses to `count`.
    pub(super) fn use_line(&mut self, core: usize, line: u32, count: &mut Count) {
        if !self.l1[core].hit(line) {
            count.l1 += 1;
            count.l2 += u64::from(!self.l2.hit(line));
        }
    }
}
