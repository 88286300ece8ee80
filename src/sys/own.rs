//! Files that nobody but this user and root could write: what stands in them may be handed to a
//! driver.

use super::io::user;
use std::fs::{File, Metadata};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// A plain file of this user's or root's that nobody else may write, opened for reading.
#[derive(Debug)]
pub(crate) struct OwnFile {
    file: File,
    about: Metadata,
}

impl OwnFile {
    /// Opens `path`. Neither links are followed nor the other end of a FIFO waited for.
    pub(crate) fn open(path: &Path) -> Result<OwnFile, ReadError> {
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
        let file = match File::options().read(true).custom_flags(flags).open(path) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Err(ReadError::Missing),
            Err(e) if e.raw_os_error() == Some(libc::ELOOP) => {
                return Err(ReadError::Refused("it is a link".into()));
            }
            file => file.map_err(|e| ReadError::Refused(e.to_string()))?,
        };
        let about = file
            .metadata()
            .map_err(|e| ReadError::Refused(e.to_string()))?;
        if !about.is_file() {
            return Err(ReadError::Refused("it is no plain file".into()));
        }
        own(&about).map_err(|why| ReadError::Refused(why.text()))?;
        Ok(OwnFile { file, about })
    }

    /// All of it, if it has at most `most` bytes.
    pub(crate) fn read(&self, most: u64) -> Result<OwnBytes, ReadError> {
        let mut bytes = Vec::new();
        // A length that was true a moment ago bounds nothing.
        let read = match self.about.len() > most {
            true => Ok(0),
            false => (&self.file).take(most + 1).read_to_end(&mut bytes),
        };
        match read {
            Err(e) => Err(ReadError::Refused(e.to_string())),
            Ok(_) if self.about.len() > most || bytes.len() as u64 > most => {
                Err(ReadError::Refused(format!("it has more than {most} bytes")))
            }
            Ok(_) => Ok(OwnBytes(bytes)),
        }
    }

    /// The file.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// What the system knew of it when it was opened.
    pub(crate) fn about(&self) -> &Metadata {
        &self.about
    }
}

/// Bytes of an [`OwnFile`]; nothing else makes them.
#[derive(Debug)]
pub(crate) struct OwnBytes(Vec<u8>);

impl OwnBytes {
    /// Those from `start` on.
    pub(crate) fn behind(mut self, start: usize) -> OwnBytes {
        self.0.drain(..start);
        self
    }

    /// As any others.
    pub(crate) fn into_vec(self) -> Vec<u8> {
        self.0
    }
}

impl std::ops::Deref for OwnBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// Why a file is not read.
#[derive(Debug)]
pub(crate) enum ReadError {
    /// It is not there.
    Missing,
    /// What is wrong with it.
    Refused(String),
}

/// Why a folder or a file may hold what this user did not put there.
#[derive(Debug)]
pub(crate) enum Foreign {
    /// Whose it is.
    Owner(u32),
    /// Its permissions.
    Mode(u32),
}

impl Foreign {
    /// In words.
    pub(crate) fn text(&self) -> String {
        match self {
            Foreign::Owner(owner) => {
                format!("it belongs to another user ({owner}, this is {})", user())
            }
            Foreign::Mode(mode) => format!("others may write to it (mode {:03o})", mode & 0o7777),
        }
    }
}

/// Whether nobody but this user and root could write it.
pub(crate) fn own(about: &Metadata) -> Result<(), Foreign> {
    match about.uid() {
        owner if owner != 0 && owner != user() => Err(Foreign::Owner(owner)),
        _ if about.mode() & 0o022 != 0 => Err(Foreign::Mode(about.mode())),
        _ => Ok(()),
    }
}
