//! Files that only this user and root could write. Their contents may be passed to a driver.

use super::io::user;
use std::fs::{File, Metadata};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// A plain file of this user or root that nobody else may write, opened for reading.
#[derive(Debug)]
pub(crate) struct OwnFile {
    file: File,
    metadata: Metadata,
}

impl OwnFile {
    /// Opens `path`. Does not follow links, and does not wait for the other end of a FIFO.
    pub(crate) fn open(path: &Path) -> Result<OwnFile, ReadError> {
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
        let file = match File::options().read(true).custom_flags(flags).open(path) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Err(ReadError::Missing),
            Err(e) if e.raw_os_error() == Some(libc::ELOOP) => {
                return Err(ReadError::Refused("it is a link".into()));
            }
            file => file.map_err(|e| ReadError::Refused(e.to_string()))?,
        };
        let metadata = file
            .metadata()
            .map_err(|e| ReadError::Refused(e.to_string()))?;
        if !metadata.is_file() {
            return Err(ReadError::Refused("it is no plain file".into()));
        }
        own(&metadata).map_err(|why| ReadError::Refused(why.text()))?;
        Ok(OwnFile { file, metadata })
    }

    /// Reads the whole file. Returns an error if it has more than `most` bytes.
    pub(crate) fn read(&self, most: u64) -> Result<OwnBytes, ReadError> {
        let mut bytes = Vec::new();
        // The file may have grown since it was opened, so the read has a limit too.
        let read = match self.metadata.len() > most {
            true => Ok(0),
            false => (&self.file).take(most + 1).read_to_end(&mut bytes),
        };
        match read {
            Err(e) => Err(ReadError::Refused(e.to_string())),
            Ok(_) if self.metadata.len() > most || bytes.len() as u64 > most => {
                Err(ReadError::Refused(format!("it has more than {most} bytes")))
            }
            Ok(_) => Ok(OwnBytes { bytes }),
        }
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Returns the metadata as they were when the file was opened.
    pub(crate) fn metadata(&self) -> &Metadata {
        &self.metadata
    }
}

/// Bytes that were read from an [`OwnFile`].
#[derive(Debug)]
pub(crate) struct OwnBytes {
    bytes: Vec<u8>,
}

impl OwnBytes {
    /// Drops the bytes before position `start`.
    pub(crate) fn behind(mut self, start: usize) -> OwnBytes {
        self.bytes.drain(..start);
        self
    }

    pub(crate) fn into_vec(self) -> Vec<u8> {
        self.bytes
    }
}

impl std::ops::Deref for OwnBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The reason why a file is not opened or not read.
#[derive(Debug)]
pub(crate) enum ReadError {
    /// There is no such file.
    Missing,
    /// Any reason other than a missing file, as a message.
    Refused(String),
}

/// The reason why other users may have written a folder or a file.
#[derive(Debug)]
pub(crate) enum Foreign {
    /// The owner is neither this user nor root, but the user with this ID.
    Owner(u32),
    /// The permissions allow the group or all users to write. Holds the mode.
    Mode(u32),
}

impl Foreign {
    pub(crate) fn text(&self) -> String {
        match self {
            Foreign::Owner(owner) => {
                format!("it belongs to another user ({owner}, this is {})", user())
            }
            Foreign::Mode(mode) => format!("others may write to it (mode {:03o})", mode & 0o7777),
        }
    }
}

/// Returns an error unless only this user and root could write the file or folder.
pub(crate) fn own(metadata: &Metadata) -> Result<(), Foreign> {
    match metadata.uid() {
        owner if owner != 0 && owner != user() => Err(Foreign::Owner(owner)),
        _ if metadata.mode() & 0o022 != 0 => Err(Foreign::Mode(metadata.mode())),
        _ => Ok(()),
    }
}
