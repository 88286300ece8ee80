//! The buffer between a source and the readers of the formats.

use super::source::Source;
use crate::observe::trace::{Name, Track};
use std::io;
use std::ops::Range;
use std::time::{Duration, Instant};

/// A buffer of bytes that were read from a source. `data[start..end]` holds the bytes that no
/// reader has consumed.
pub(super) struct ReadBuffer<S> {
    source: S,
    data: Box<[u8]>,
    start: usize,
    end: usize,
    /// The place in `data` of the record that was found last. It stays valid until the next read.
    record: Range<usize>,
    /// The place in `data` of the key of the record that was found last. The key is the fields that
    /// are copied to the answer, with a comma after each.
    key: Range<usize>,
    ended: bool,
    timed: bool,
    read_time: Duration,
    track: Option<Track>,
}

/// The result of [`ReadBuffer::more`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum More {
    /// The source was read. It gave more bytes or its end, or another process took the bytes.
    Read,
    /// Nothing was read, because a read would have to wait for input.
    NotReady,
    /// Nothing was read, because the source has ended.
    Ended,
    /// Nothing was read, because the buffer is full of unused bytes.
    Full,
}

impl<S: Source> ReadBuffer<S> {
    /// Makes a buffer of `capacity` bytes.
    pub(super) fn new(source: S, capacity: usize) -> Self {
        ReadBuffer {
            source,
            data: vec![0; capacity].into_boxed_slice(),
            start: 0,
            end: 0,
            record: 0..0,
            key: 0..0,
            ended: false,
            timed: false,
            read_time: Duration::ZERO,
            track: None,
        }
    }

    /// Replaces the source, and drops the bytes that no reader has consumed.
    pub(super) fn reopen(&mut self, source: S) {
        self.source = source;
        (self.start, self.end, self.ended) = (0, 0, false);
    }

    /// Switches the timing of reads on or off. Each read becomes a span on `track`.
    pub(super) fn set_timed(&mut self, timed: bool, track: Option<Track>) {
        self.timed = timed;
        self.track = track;
    }

    /// Returns the time spent in reads since the last call of this function. Waiting for input is
    /// not included.
    pub(super) fn take_read_time(&mut self) -> Duration {
        std::mem::take(&mut self.read_time)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.data[self.start..self.end]
    }

    /// Returns the bytes of the record that was found last, without its key.
    pub(super) fn record(&self) -> &[u8] {
        &self.data[self.record.clone()]
    }

    /// Returns the key of the record that was found last.
    pub(super) fn key(&self) -> &[u8] {
        &self.data[self.key.clone()]
    }

    pub(super) fn consume(&mut self, n: usize) {
        self.start += n;
    }

    /// Consumes `taken` bytes. The first `length` of them are a record without a key.
    pub(super) fn found(&mut self, length: usize, taken: usize) {
        self.found_behind(0, length, taken);
    }

    /// Consumes `taken` bytes. The first `key` of them are the key of a record, and the record goes
    /// on up to byte `length`.
    pub(super) fn found_behind(&mut self, key: usize, length: usize, taken: usize) {
        self.key = self.start..self.start + key;
        self.record = self.start + key..self.start + length;
        self.start += taken;
    }

    /// Consumes `taken` bytes that are no record and have no key.
    pub(super) fn skip(&mut self, taken: usize) {
        self.found(0, taken);
    }

    pub(super) fn capacity(&self) -> usize {
        self.data.len()
    }

    /// Returns true if the source has ended, so that `bytes` are the last.
    pub(super) fn ended(&self) -> bool {
        self.ended
    }

    /// Reads more bytes from the source, and appends them to the bytes in the buffer. Reads nothing
    /// if the read would have to wait.
    pub(super) fn more(&mut self) -> io::Result<More> {
        if self.ended {
            return Ok(More::Ended);
        }
        if self.bytes().len() == self.data.len() {
            return Ok(More::Full);
        }
        if !self.source.ready() {
            return Ok(More::NotReady);
        }
        let start = self.timed.then(Instant::now);
        self.read()?;
        if let Some(start) = start {
            let took = start.elapsed();
            self.read_time += took;
            self.track
                .iter()
                .for_each(|track| track.span(Name::Text("read"), 0, 0, start, took));
        }
        Ok(More::Read)
    }

    /// Waits for more bytes and reads them. A signal ends the wait.
    pub(super) fn wait(&mut self) -> io::Result<()> {
        match self.source.wait() {
            true => self.read(),
            false => Ok(()),
        }
    }

    /// Moves the unused bytes to the front of `data`, and reads once behind them.
    fn read(&mut self) -> io::Result<()> {
        if self.start > 0 {
            self.data.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        match self.source.read(&mut self.data[self.end..]) {
            Ok(n) => {
                self.end += n;
                self.ended = n == 0;
                Ok(())
            }
            // Nothing was read, because another process that shares the pipe or terminal took the
            // bytes.
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(e) => Err(e),
        }
    }
}
