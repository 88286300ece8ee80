//! Decides which thread of the host engine computes which tile, and when.
//!
//! A job is a batch. It runs in phases, and a phase consists of tiles that any thread may take. A
//! phase begins when all tiles of the previous phase are done. A job begins when the previous job
//! is done. The ticket is a 64-bit number with the job, the phase, and the tiles of the phase that
//! are taken. A thread takes a tile by one compare-and-swap on the ticket, without a lock. `done`
//! counts the finished tiles of the phase. The thread that finishes the last tile opens the next
//! phase.
//!
//! In a phase of few tiles, each thread first takes those of its own part. The phases of a record
//! that threads share are cut in the same way. So a thread mostly reads what it has written, from
//! its core's cache.
//!
//! The submitting thread computes all tiles that no worker takes. So a job ends even if every
//! worker sleeps. The submitting thread only waits for tiles that a worker has begun.
//!
//! A thread without work looks for new work during [`SPIN`], or [`SPIN_IN_JOB`] within a job, and
//! then sleeps. A job wakes sleeping workers only if it was submitted with `wake`, because waking
//! takes longer than a small job.

use crate::ir::plan::SLOTS;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// The time for which a thread looks for work before it sleeps, if no job is under way. It is about
/// the time that falling asleep and waking up take.
const SPIN: Duration = Duration::from_micros(50);

/// The time for which a thread looks for work before it sleeps, if a job is under way. The job's
/// next phase is near. Falling asleep and waking up takes longer than most phases.
const SPIN_IN_JOB: Duration = Duration::from_micros(500);

/// The widths of the ticket's fields in bits. The taken tiles are in the lowest bits, then come the
/// phase and the job. With at most as many tiles as bits, a tile has a bit. Otherwise tiles are
/// taken in their order, and the field is their number.
const TILE_BITS: u32 = 24;
const PHASE_BITS: u32 = 12;
const JOB_BITS: u32 = 28;

/// The largest number of phases in a job.
pub(super) const MOST_PHASES: usize = 1 << PHASE_BITS;

/// The largest number of tiles in a phase.
pub(super) const MOST_TILES: usize = (1 << TILE_BITS) - 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tile {
    pub(super) slot: usize,
    /// The number of records in the tile's job.
    pub(super) records: usize,
    pub(super) phase: usize,
    pub(super) tile: usize,
}

/// A tile that a thread may take, and the ticket that it was read from. The thread gets the tile
/// only if the ticket has not changed meanwhile.
struct Claim {
    ticket: u64,
    /// The ticket with the tile taken.
    taken: u64,
    tile: Tile,
    /// True if the tile's job was submitted with `wake`, so that sleeping threads are woken for it.
    wake: bool,
}

/// The computation of a job. All jobs run the same computation, on another slot and number of
/// records.
pub(super) trait Work: Sync {
    /// Returns the number of phases of a job with `records` records, 1 to [`MOST_PHASES`].
    fn phases(&self, records: usize) -> usize;
    /// Returns the number of tiles in a phase, 1 to [`MOST_TILES`].
    fn tiles(&self, phase: usize, records: usize) -> usize;
    /// Returns true if threads take the tiles of a phase in their order, because large ones come
    /// first.
    fn ordered(&self, phase: usize, records: usize) -> bool;
    /// Computes one tile of a job on thread number `thread`.
    ///
    /// SAFETY: each tile of a job runs once, after all tiles of earlier phases and jobs. A thread
    /// runs one tile at a time, and no two threads have the same number.
    unsafe fn run(&self, tile: Tile, thread: usize);
}

/// The state of all jobs. One thread submits them, and at most [`SLOTS`] jobs are in flight.
pub(super) struct Schedule {
    threads: usize,
    /// The number of the next worker that begins. The submitting thread has number 0.
    worker: AtomicUsize,
    ticket: AtomicU64,
    /// The number of finished tiles in the phase that the ticket names.
    done: AtomicU32,
    /// The number that the next submitted job gets. If the ticket has this number, no job is under
    /// way.
    submitted: AtomicU32,
    /// The slot, wake flag and record count of each job in flight. Job j is at index j modulo
    /// SLOTS.
    orders: [AtomicU64; SLOTS],
    quit: AtomicBool,
    lock: Mutex<()>,
    /// The number of sleeping workers. The condition `work` wakes them.
    parked: AtomicU32,
    work: Condvar,
    /// True while the submitting thread sleeps. The condition `progress` wakes it.
    waiting: AtomicBool,
    progress: Condvar,
}

impl Schedule {
    /// The schedule of `threads` threads, the submitting one included.
    pub(super) fn new(threads: usize) -> Schedule {
        Schedule {
            threads,
            worker: AtomicUsize::new(1),
            ticket: AtomicU64::new(0),
            done: AtomicU32::new(0),
            submitted: AtomicU32::new(0),
            orders: Default::default(),
            quit: AtomicBool::new(false),
            lock: Mutex::new(()),
            parked: AtomicU32::new(0),
            work: Condvar::new(),
            waiting: AtomicBool::new(false),
            progress: Condvar::new(),
        }
    }

    /// Submits a job and returns its number. With `wake` true, sleeping workers are woken for the
    /// job.
    pub(super) fn submit(&self, slot: usize, records: usize, wake: bool) -> u32 {
        let job = self.submitted.load(SeqCst);
        let order = (records as u64) << 16 | u64::from(wake) << 8 | slot as u64;
        self.orders[job as usize % SLOTS].store(order, SeqCst);
        self.submitted.store(next(job), SeqCst);
        if wake {
            self.wake();
        }
        job
    }

    fn wake(&self) {
        // A thread that goes to sleep first counts itself in `parked`, then looks for work one last
        // time. So it either sees the new work then, or is counted here and woken.
        if self.parked.load(SeqCst) > 0 {
            drop(self.locked());
            self.work.notify_all();
        }
    }

    fn locked(&self) -> MutexGuard<'_, ()> {
        self.lock.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Ends the worker threads.
    pub(super) fn quit(&self) {
        self.quit.store(true, SeqCst);
        drop(self.locked());
        self.work.notify_all();
    }

    /// Runs tiles on a worker thread until `quit` is called.
    ///
    /// # Panics
    /// If more threads call it than there are.
    pub(super) fn serve(&self, work: &impl Work) {
        let thread = self.worker.fetch_add(1, SeqCst);
        assert!(thread < self.threads, "too many workers");
        self.compute(
            (work, thread),
            || self.quit.load(SeqCst),
            || {
                let mut guard = self.locked();
                self.parked.fetch_add(1, SeqCst);
                while !self.quit.load(SeqCst)
                    && self.next(work, thread).is_none_or(|claim| !claim.wake)
                {
                    guard = self.work.wait(guard).unwrap_or_else(|e| e.into_inner());
                }
                self.parked.fetch_sub(1, SeqCst);
            },
        );
    }

    /// Computes tiles until `job` is complete. Only the submitting thread calls this.
    pub(super) fn complete(&self, job: u32, work: &impl Work) {
        let complete = || {
            let at = (self.ticket.load(SeqCst) >> (TILE_BITS + PHASE_BITS)) as u32;
            // The job is complete if the ticket is at a later job. Job numbers wrap around, so the
            // top bit of their difference decides which is later.
            at.wrapping_sub(job).wrapping_sub(1) << (32 - JOB_BITS) >> 31 == 0
        };
        self.compute((work, 0), complete, || {
            let mut guard = self.locked();
            self.waiting.store(true, SeqCst);
            while !complete() && self.next(work, 0).is_none() {
                guard = self.progress.wait(guard).unwrap_or_else(|e| e.into_inner());
            }
            self.waiting.store(false, SeqCst);
        });
    }

    /// Takes and runs tiles on thread number `thread` until `end` returns true. After [`SPIN`]
    /// without work it calls `sleep`, or after [`SPIN_IN_JOB`] if a job is under way.
    fn compute(
        &self,
        (work, thread): (&impl Work, usize),
        end: impl Fn() -> bool,
        sleep: impl Fn(),
    ) {
        let mut idle: Option<Instant> = None;
        while !end() {
            if let Some(Claim {
                ticket,
                taken,
                tile,
                wake,
            }) = self.next(work, thread)
            {
                if self
                    .ticket
                    .compare_exchange(ticket, taken, SeqCst, SeqCst)
                    .is_ok()
                {
                    // SAFETY: the exchange succeeded, so no other thread can take this tile. Only
                    // the submitting thread has number 0, and each worker has its own.
                    unsafe { work.run(tile, thread) };
                    self.finish(ticket, tile, wake, work);
                    idle = None;
                }
                continue;
            }
            let since = *idle.get_or_insert_with(Instant::now);
            let limit = if self.under_way() { SPIN_IN_JOB } else { SPIN };
            if since.elapsed() < limit {
                // The thread waits a little before it looks again. One pause instruction on x86
                // takes as long as several on other CPUs. The wait must be short, because a step of
                // a single record takes only a few times longer.
                let pauses = if cfg!(target_arch = "x86_64") { 1 } else { 8 };
                (0..pauses).for_each(|_| std::hint::spin_loop());
            } else {
                sleep();
                idle = None;
            }
        }
    }

    /// Returns true if a submitted job is not complete yet.
    fn under_way(&self) -> bool {
        let job = (self.ticket.load(SeqCst) >> (TILE_BITS + PHASE_BITS)) as u32;
        job != self.submitted.load(SeqCst)
    }

    /// Returns the next tile for thread number `thread`, if there is one. The thread can take it
    /// only as long as the ticket has not changed.
    fn next(&self, work: &impl Work, thread: usize) -> Option<Claim> {
        let ticket = self.ticket.load(SeqCst);
        let job = (ticket >> (TILE_BITS + PHASE_BITS)) as u32;
        if job == self.submitted.load(SeqCst) {
            return None;
        }
        let order = self.orders[job as usize % SLOTS].load(SeqCst);
        // A later job may have overwritten this job's order. Then `work.tiles` below would get this
        // job's phase with the later job's number of records, for which that phase may not exist.
        // The ticket shows it: a later order is stored only after the ticket has left this job.
        if self.ticket.load(SeqCst) != ticket {
            return None;
        }
        let records = (order >> 16) as usize;
        let phase = (ticket >> TILE_BITS) as usize & (MOST_PHASES - 1);
        let (tiles, field) = (work.tiles(phase, records), ticket as usize & MOST_TILES);
        let (tile, taken) = if tiles <= TILE_BITS as usize {
            let free = !field & ((1 << tiles) - 1);
            // The tiles from the thread's own part on.
            let own = match work.ordered(phase, records) {
                true => 0,
                false => thread * tiles / self.threads,
            };
            let rest = free >> own << own;
            let tile = (if rest > 0 { rest } else { free }).trailing_zeros() as usize;
            (tile, ticket | 1u64.wrapping_shl(tile as u32))
        } else {
            (field, ticket + 1)
        };
        (tile < tiles).then_some(Claim {
            ticket,
            taken,
            tile: Tile {
                slot: order as usize & 0xFF,
                records,
                phase,
                tile,
            },
            wake: order >> 8 & 1 != 0,
        })
    }

    /// Counts a tile as done. After the last tile of a phase, it opens the next phase or the next
    /// job.
    fn finish(&self, ticket: u64, tile: Tile, wake: bool, work: &impl Work) {
        let tiles = work.tiles(tile.phase, tile.records);
        if self.done.fetch_add(1, SeqCst) as usize + 1 < tiles {
            return;
        }
        self.done.store(0, SeqCst);
        let job = (ticket >> (TILE_BITS + PHASE_BITS)) as u32;
        let (job, phase) = if tile.phase + 1 < work.phases(tile.records) {
            (job, tile.phase + 1)
        } else {
            (next(job), 0)
        };
        // All tiles of this phase are taken, so no other thread writes the ticket.
        self.ticket.store(
            (u64::from(job) << PHASE_BITS | phase as u64) << TILE_BITS,
            SeqCst,
        );
        if self.waiting.load(SeqCst) {
            drop(self.locked());
            self.progress.notify_one();
        }
        if wake {
            self.wake();
        }
    }
}

/// Returns the job number after `job`. Job numbers wrap around.
fn next(job: u32) -> u32 {
    (job + 1) & ((1 << JOB_BITS) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Work for tests: notes the tiles that have run, and checks the order of phases and jobs.
    struct Log {
        /// For each phase of the current job, the tiles that have run, a bit each.
        ran: [AtomicU64; 3],
        jobs: AtomicU32,
    }

    impl Work for Log {
        fn phases(&self, records: usize) -> usize {
            1 + records % 3
        }

        fn tiles(&self, phase: usize, records: usize) -> usize {
            [records, 1, 4 * records][..self.phases(records)][phase]
        }

        fn ordered(&self, phase: usize, _: usize) -> bool {
            phase == 2
        }

        unsafe fn run(&self, tile: Tile, _: usize) {
            assert_eq!(tile.slot as u32, self.jobs.load(SeqCst) % SLOTS as u32);
            if tile.tile % 5 == 3 {
                std::thread::sleep(Duration::from_micros(if tile.records == 7 {
                    300
                } else {
                    1
                }));
            }
            for before in 0..tile.phase {
                assert_eq!(
                    self.ran[before].load(SeqCst).count_ones() as usize,
                    self.tiles(before, tile.records)
                );
            }
            for after in tile.phase + 1..3 {
                assert_eq!(self.ran[after].load(SeqCst), 0);
            }
            let own = 1 << tile.tile;
            let ran = self.ran[tile.phase].fetch_or(own, SeqCst);
            assert_eq!(ran & own, 0, "a tile ran twice");
            let count = ran.count_ones() as usize + 1;
            let last = tile.phase + 1 == self.phases(tile.records);
            if last && count == self.tiles(tile.phase, tile.records) {
                self.ran.iter().for_each(|c| c.store(0, SeqCst));
                self.jobs.fetch_add(1, SeqCst);
            }
        }
    }

    /// Each tile runs once, and phases and jobs run in order. The test covers sleeping workers,
    /// small and large jobs, and job numbers that wrap around.
    #[test]
    fn tiles_run_once_and_in_order() {
        for threads in [0, 1, 3] {
            let schedule = Schedule::new(threads + 1);
            let first = (1 << JOB_BITS) - 40;
            schedule
                .ticket
                .store(u64::from(first) << (TILE_BITS + PHASE_BITS), SeqCst);
            schedule.submitted.store(first, SeqCst);
            let log = Log {
                ran: Default::default(),
                jobs: AtomicU32::new(0),
            };
            std::thread::scope(|s| {
                (0..threads).for_each(|_| drop(s.spawn(|| schedule.serve(&log))));
                let mut flying = None;
                for i in 0..200usize {
                    let job = schedule.submit(i % SLOTS, 1 + i % 9, i % 3 > 0);
                    if let Some(before) = flying.replace(job) {
                        schedule.complete(before, &log);
                        assert!(log.jobs.load(SeqCst) as usize >= i);
                    }
                    if i % 50 == 0 {
                        std::thread::sleep(4 * SPIN);
                    }
                }
                schedule.complete(flying.unwrap(), &log);
                assert_eq!(log.jobs.load(SeqCst), 200);
                schedule.quit();
            });
        }
    }
}
