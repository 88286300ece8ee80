//! Sources of bytes: file descriptors, and memory in tests.

use crate::sys::io::{ready, wait_readable, was_open, widen_pipe};
use crate::sys::signal;
#[cfg(test)]
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// A source of bytes that can tell whether a read would have to wait.
pub(crate) trait Source {
    /// Waits for bytes and reads some. Returns the number of bytes, or 0 at the end. May fail with
    /// `WouldBlock` instead of waiting.
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize>;

    /// Returns true if `read` would return at once. Returns false once the program was asked to
    /// stop.
    fn ready(&self) -> bool;

    /// Waits until `read` would return at once. Returns false if a signal came first.
    fn wait(&mut self) -> bool {
        true
    }
}

impl<S: Source + ?Sized> Source for Box<S> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (**self).read(buf)
    }

    fn ready(&self) -> bool {
        (**self).ready()
    }

    fn wait(&mut self) -> bool {
        (**self).wait()
    }
}

/// A source of bytes that reads stdin or a file. It has no buffer of its own.
pub(crate) struct FileSource {
    file: File,
    /// True for a regular file. A read of such a file never has to wait.
    regular: bool,
}

impl FileSource {
    /// Opens stdin. Returns an error if it was closed when the process began.
    pub(crate) fn stdin() -> io::Result<Self> {
        was_open(0)?;
        Self::new(File::from(io::stdin().as_fd().try_clone_to_owned()?))
    }

    /// Opens the file at `path`. If it is a FIFO, does not wait for its writer. The first wait for
    /// input then waits for the writer, and a signal can end that wait.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Self::new(
            OpenOptions::new()
                .read(true)
                .custom_flags(libc::O_NONBLOCK)
                .open(path)?,
        )
    }

    fn new(file: File) -> io::Result<Self> {
        let regular = file.metadata()?.is_file();
        if !regular {
            widen_pipe(file.as_fd());
        }
        Ok(FileSource { file, regular })
    }
}

impl Source for FileSource {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.file.read(buf) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }

    fn ready(&self) -> bool {
        signal::stop().is_none() && (self.regular || ready(self.file.as_fd()))
    }

    fn wait(&mut self) -> bool {
        wait_readable(self.file.as_fd())
    }
}

/// A source of bytes in memory that arrive in given pieces, for tests.
#[cfg(test)]
pub(crate) struct MemorySource {
    pieces: VecDeque<Vec<u8>>,
    /// The number of bytes of the first remaining piece that were read already.
    read: usize,
}

#[cfg(test)]
impl MemorySource {
    /// Makes a source whose reads return at most one piece each. An empty piece is a pause: the
    /// source is not ready until the next read.
    pub(crate) fn new(pieces: impl IntoIterator<Item = Vec<u8>>) -> Self {
        MemorySource {
            pieces: pieces.into_iter().collect(),
            read: 0,
        }
    }
}

#[cfg(test)]
impl Source for MemorySource {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while let Some(piece) = self.pieces.front() {
            let left = &piece[self.read..];
            if left.is_empty() {
                self.pieces.pop_front();
                self.read = 0;
                continue;
            }
            let n = left.len().min(buf.len());
            buf[..n].copy_from_slice(&left[..n]);
            self.read += n;
            // A piece is removed as soon as its last byte is read. Otherwise it would look like an
            // empty piece, which is a pause.
            if self.read == piece.len() {
                self.pieces.pop_front();
                self.read = 0;
            }
            return Ok(n);
        }
        Ok(0)
    }

    fn ready(&self) -> bool {
        self.pieces.front().is_none_or(|p| !p.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn memory_pauses_at_an_empty_piece() {
        let mut s = MemorySource::new([b"abc".to_vec(), vec![], b"d".to_vec()]);
        let mut buf = [0; 2];
        assert!(s.ready());
        assert_eq!(s.read(&mut buf).unwrap(), 2);
        assert!(s.ready());
        assert_eq!(s.read(&mut buf).unwrap(), 1);
        assert!(!s.ready());
        assert_eq!(s.read(&mut buf).unwrap(), 1);
        assert!(s.ready());
        assert_eq!(s.read(&mut buf).unwrap(), 0);
    }

    #[test]
    fn a_non_blocking_descriptor_is_waited_for() {
        let (near, mut far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        let mut s = FileSource::new(File::from(OwnedFd::from(near))).unwrap();
        assert!(!s.ready());
        assert_eq!(
            s.read(&mut [0; 4]).unwrap_err().kind(),
            io::ErrorKind::WouldBlock
        );
        let writer = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(20));
            far.write_all(b"x").unwrap();
        });
        assert!(s.wait());
        assert_eq!(s.read(&mut [0; 4]).unwrap(), 1);
        writer.join().unwrap();
        assert!(s.ready());
        assert_eq!(s.read(&mut [0; 4]).unwrap(), 0);
    }

    #[test]
    fn a_regular_file_is_always_ready() {
        let s = FileSource::open(&std::env::current_exe().unwrap()).unwrap();
        assert!(s.regular && s.ready());
        assert!(FileSource::open(Path::new("/nonexistent")).is_err());
    }
}
