//! Places the hidden buffers in the arena. Buffers that are in use at the same time must not
//! overlap, and others share memory. Several orders of placing are tried, each greedy (arXiv
//! 2001.03288). The smallest arena wins.

use crate::ir::order::ascending;
use crate::ir::plan::{ARENA_ALIGN, Buffer, BufferRole};

/// The size of an arena in bytes. `bound` is the most that live at one step, which no arena can go
/// below.
pub(super) struct Arena {
    pub(crate) bytes: usize,
    pub(crate) bound: usize,
}

/// The bytes of a hidden buffer, and the indices of the first and last step that use it.
#[derive(Clone, Copy)]
pub(crate) struct Life {
    pub(crate) buffer: usize,
    pub(crate) first: usize,
    pub(crate) last: usize,
    pub(crate) bytes: usize,
}

impl Life {
    fn meets(&self, other: &Life) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

/// Sets the offset of each hidden buffer in the arena, and returns the size of the arena.
/// `uses(step, buffer)` returns true if the step accesses the buffer.
pub(super) fn place(
    buffers: &mut [Buffer],
    columns: usize,
    steps: usize,
    uses: impl Fn(usize, usize) -> bool,
) -> Arena {
    let hidden = buffers
        .iter()
        .enumerate()
        .filter(|(_, b)| b.role == BufferRole::Hidden);
    let lives: Vec<Life> = hidden
        .filter_map(|(buffer, b)| {
            let first = (0..steps).find(|&s| uses(s, buffer))?;
            let last = (0..steps).rfind(|&s| uses(s, buffer))?;
            let bytes = (b.len(columns) * 4).next_multiple_of(ARENA_ALIGN);
            Some(Life {
                buffer,
                first,
                last,
                bytes,
            })
        })
        .collect();
    let alive = |step: usize| {
        lives
            .iter()
            .filter(|l| l.first <= step && step <= l.last)
            .map(|l| l.bytes)
            .sum()
    };
    let bound = (0..steps).map(alive).max().unwrap_or(0);
    let (bytes, starts) = offsets(lives);
    starts
        .into_iter()
        .for_each(|(buffer, start)| buffers[buffer].arena = start);
    Arena { bytes, bound }
}

/// Tries several orders. Returns the bytes of the smallest arena, and each buffer with its offset
/// in bytes.
pub(crate) fn offsets(mut lives: Vec<Life>) -> (usize, Vec<(usize, usize)>) {
    let mut best: Option<(usize, Vec<(usize, usize)>)> = None;
    let mut attempt = |lives: &[Life]| {
        let found = arrange(lives);
        if best.as_ref().is_none_or(|b| found.0 < b.0) {
            best = Some(found);
        }
    };
    attempt(&lives);
    for by_length in [false, true] {
        let least = |n: usize| u64::MAX - n as u64;
        let key = |l: &Life| match by_length {
            true => [least(l.last - l.first), least(l.bytes), 0],
            false => [least(l.bytes), 0, 0],
        };
        let sorted: Vec<Life> = ascending(lives.iter().map(key))
            .into_iter()
            .map(|i| lives[i])
            .collect();
        attempt(&sorted);
        lives = sorted;
    }
    best.unwrap_or_default()
}

/// Places the buffers in the order of `lives`. Each gets the lowest offset that is free from its
/// first to its last use. Returns the total bytes, and each buffer with its offset.
fn arrange(lives: &[Life]) -> (usize, Vec<(usize, usize)>) {
    let mut placed: Vec<(&Life, usize)> = Vec::new();
    for life in lives {
        let mut start = 0;
        let in_the_way = |start: usize| {
            placed
                .iter()
                .filter(|(other, _)| life.meets(other))
                .find(|(other, at)| start < at + other.bytes && *at < start + life.bytes)
                .map(|(other, at)| at + other.bytes)
        };
        while let Some(end) = in_the_way(start) {
            start = end;
        }
        placed.push((life, start));
    }
    let bytes = placed
        .iter()
        .map(|(l, start)| start + l.bytes)
        .max()
        .unwrap_or(0);
    (
        bytes,
        placed
            .into_iter()
            .map(|(l, start)| (l.buffer, start))
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Buffers that are in use at the same time never overlap, and all end inside the arena.
        #[test]
        fn lives_that_meet_stand_apart(
            sizes in prop::collection::vec((0usize..9, 0usize..5, 1usize..9), 1..12),
        ) {
            let lives: Vec<Life> = sizes
                .iter()
                .enumerate()
                .map(|(buffer, &(first, more, units))| Life {
                    buffer,
                    first,
                    last: first + more,
                    bytes: units * ARENA_ALIGN,
                })
                .collect();
            let (bytes, starts) = arrange(&lives);
            let at = |life: &Life| starts.iter().find(|s| s.0 == life.buffer).unwrap().1;
            for (i, a) in lives.iter().enumerate() {
                prop_assert!(at(a) + a.bytes <= bytes);
                for b in lives[..i].iter().filter(|b| a.meets(b)) {
                    prop_assert!(at(a) + a.bytes <= at(b) || at(b) + b.bytes <= at(a));
                }
            }
        }
    }

    /// In the order of their indices, the third buffer would be placed behind the first two. In the
    /// order of size it is placed first, and the arena reaches its lower bound.
    #[test]
    fn the_best_of_several_orders_is_taken() {
        let hidden = |padded_rows: usize| Buffer {
            name: "".into(),
            role: BufferRole::Hidden,
            rows: padded_rows,
            map: crate::ir::view::RowMap::vector(padded_rows),
            padded_rows,
            layout: crate::ir::layout::Layout::C,
            arena: usize::MAX,
        };
        let mut buffers = [hidden(1024), hidden(1000), hidden(2048)];
        let lives = [0..=1, 0..=2, 2..=3];
        let arena = place(&mut buffers, 1, 4, |step, buffer| {
            lives[buffer].contains(&step)
        });
        assert_eq!(
            (arena.bytes, arena.bound),
            (3 * ARENA_ALIGN, 3 * ARENA_ALIGN)
        );
        let places: Vec<usize> = buffers.iter().map(|b| b.arena / ARENA_ALIGN).collect();
        assert_eq!(places, [0, 2, 0]);
    }
}
