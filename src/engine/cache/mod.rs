//! The cache folder: what a run leaves for the next one. Nothing in it is needed: whatever is
//! missing, foreign or damaged is ignored and made again.
//!
//! What stands there is not trusted to be what the program left. The folder and every file in it
//! must be this user's (or root's) and written by nobody else; files are opened without following a
//! link, without waiting, and are read up to a bound; what they hold has a checksum and is compared
//! with the program before it is used.

mod blobs;
#[cfg(fuzzing)]
#[path = "../../../tests/fuzz/checks/programs.rs"]
pub(crate) mod fuzzing;

pub(crate) use blobs::{Blobs, Key};

use crate::escape;
use crate::sys::own::{Foreign, OwnFile, ReadError, own};
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The cache folder. It need not be there yet.
#[derive(Clone, Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// The one that the environment names: MORTONNET_CACHE (empty switches caching off), else
    /// CACHE_DIRECTORY (systemd), XDG_CACHE_HOME/mortonnet, HOME/.cache/mortonnet. The error says
    /// why there is none.
    pub(crate) fn named() -> Result<Folder, String> {
        folder_of(variable)
            .map(Folder)
            .ok_or_else(|| match std::env::var_os("MORTONNET_CACHE") {
                Some(_) => "off: MORTONNET_CACHE is empty".into(),
                None => "off: no folder, as neither MORTONNET_CACHE nor HOME is set".into(),
            })
    }

    /// Its path, for messages.
    pub(crate) fn name(&self) -> String {
        escape::path(&self.0)
    }

    /// The path of a file in it.
    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Whether it may be used, where it is there: who may write in a folder may exchange what is in
    /// it (a sticky bit does not keep anybody from putting files there first). It may be reached
    /// through a link: systemd does that for DynamicUser. The error says what is wrong, and what to
    /// do.
    pub(crate) fn check(&self) -> Result<(), String> {
        // Where it is missing or out of reach, reading and writing will say so.
        let Ok(about) = fs::metadata(&self.0) else {
            return Ok(());
        };
        let name = self.name();
        if !about.is_dir() {
            return Err(format!("off: {name} is not a folder"));
        }
        own(&about).map_err(|why| {
            let remedy = match why {
                Foreign::Owner(_) => "name a folder of your own in MORTONNET_CACHE".to_string(),
                Foreign::Mode(_) => {
                    format!("chmod go-w {name}, or name another in MORTONNET_CACHE")
                }
            };
            format!("off: {name} is not used: {}; {remedy}", why.text())
        })
    }

    /// Opens a file for reading, if it is this user's or root's alone.
    fn open(&self, name: &str) -> Result<OwnFile, ReadError> {
        OwnFile::open(&self.at(name))
    }

    /// The text of a small file; `None` where it is not there. The error says what is wrong with
    /// it.
    pub(crate) fn text(&self, name: &str, most: u64) -> Result<Option<String>, String> {
        match self.open(name).and_then(|file| file.read(most)) {
            Ok(bytes) => String::from_utf8(bytes.into_vec())
                .map(Some)
                .map_err(|_| "it is no text".into()),
            Err(ReadError::Missing) => Ok(None),
            Err(ReadError::Refused(why)) => Err(why),
        }
    }

    /// Writes `name` so that readers see the old file or the whole new one. A folder that is not
    /// there is made for this user alone: what stands in it may be run.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> io::Result<PathBuf> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.0)?;
        self.check()
            .map_err(|why| io::Error::new(ErrorKind::PermissionDenied, why))?;
        let (path, new) = (self.at(name), self.at(&format!("{name}.{}.new", unique())));
        let written = create(&new)
            .and_then(|mut f| f.write_all(bytes).and_then(|()| f.sync_data()))
            .and_then(|()| fs::rename(&new, &path));
        match written {
            Ok(()) => Ok(path),
            Err(e) => {
                let _ = fs::remove_file(&new);
                Err(e)
            }
        }
    }

    /// Names in it that start like this, in no order.
    pub(crate) fn names(&self, start: &str) -> Vec<String> {
        let entries = fs::read_dir(&self.0)
            .into_iter()
            .flatten()
            .map_while(Result::ok);
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.filter(|name| name.starts_with(start)).collect()
    }
}

fn variable(name: &str) -> Option<OsString> {
    let value = std::env::var_os(name);
    // What somebody's tuning left at home changes what runs: unit tests have a folder of their own.
    #[cfg(test)]
    let value = value.or_else(|| {
        (name == "MORTONNET_CACHE")
            .then(|| concat!(env!("CARGO_MANIFEST_DIR"), "/target/tests-cache").into())
    });
    value
}

fn folder_of(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let filled = |name: &str| variable(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    if let Some(own) = variable("MORTONNET_CACHE") {
        return (!own.is_empty()).then(|| own.into());
    }
    // systemd separates several folders by colons.
    let systemd =
        filled("CACHE_DIRECTORY").map(|p| match p.to_str().and_then(|p| p.split_once(':')) {
            Some((first, _)) => first.into(),
            None => p,
        });
    systemd
        .or_else(|| {
            filled("XDG_CACHE_HOME")
                .filter(|p| p.is_absolute())
                .map(|p| p.join("mortonnet"))
        })
        .or_else(|| filled("HOME").map(|p| p.join(".cache/mortonnet")))
}

/// A new file that only this user may write, whatever the umask is.
fn create(path: &Path) -> io::Result<File> {
    File::options()
        .write(true)
        .create_new(true)
        .mode(0o644)
        .open(path)
}

/// A part of a file name that no other process and no other thread uses at this time.
fn unique() -> String {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    // A process that had this number before may have left files: the time tells them apart.
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |d| d.as_nanos());
    format!(
        "{}-{}-{now:x}",
        std::process::id(),
        COUNT.fetch_add(1, Ordering::Relaxed)
    )
}

/// FNV-1a of 64 bits, for file names and checksums.
pub(crate) fn hash(parts: &[&str]) -> u64 {
    parts
        .iter()
        .fold(START, |h, p| fnv(fnv(h, p.as_bytes()), &[0]))
}

/// FNV-1a of 64 bits of no bytes.
const START: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a, continued with these bytes.
fn fnv(start: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(start, |h, &b| {
        (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::io::user;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    use std::time::{Duration, Instant};

    #[test]
    fn the_first_variable_that_is_set_names_the_folder() {
        let of = |set: &[(&str, &str)]| {
            folder_of(|name| set.iter().find(|s| s.0 == name).map(|s| s.1.into()))
                .map(|p| p.display().to_string())
        };
        let home = ("HOME", "/h");
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[home]).as_deref(), Some("/h/.cache/mortonnet"));
        assert_eq!(
            of(&[home, ("XDG_CACHE_HOME", "/x")]).as_deref(),
            Some("/x/mortonnet")
        );
        assert_eq!(
            of(&[home, ("XDG_CACHE_HOME", "relative")]).as_deref(),
            Some("/h/.cache/mortonnet")
        );
        assert_eq!(
            of(&[home, ("CACHE_DIRECTORY", "/c:/d")]).as_deref(),
            Some("/c")
        );
        assert_eq!(of(&[home, ("MORTONNET_CACHE", "m")]).as_deref(), Some("m"));
        assert_eq!(of(&[home, ("MORTONNET_CACHE", "")]), None);
    }

    /// A folder of a test's own.
    pub(super) struct Temporary(pub(super) Folder);

    impl Temporary {
        pub(super) fn new() -> Temporary {
            let folder = std::env::temp_dir().join(format!("mortonnet-cache-{}", unique()));
            DirBuilder::new().mode(0o700).create(&folder).unwrap();
            Temporary(Folder(folder))
        }
    }

    impl Drop for Temporary {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0.0);
        }
    }

    pub(super) fn fifo(path: &Path) {
        assert!(
            std::process::Command::new("mkfifo")
                .arg(path)
                .status()
                .unwrap()
                .success()
        );
    }

    /// What `work` gives, which must not take long: a read that waits for ever fails the test
    /// instead.
    pub(super) fn soon<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || tell.send(work()));
        told.recv_timeout(Duration::from_secs(20))
            .expect("it waits for ever, or panicked")
    }

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn only_plain_small_files_of_this_user_are_read() {
        let folder = Temporary::new();
        let f = &folder.0;
        let read = |name: &'static str| {
            let f = f.clone();
            soon(move || f.text(name, 100))
        };
        assert_eq!(read("a"), Ok(None));
        f.write("a", b"text").unwrap();
        assert_eq!(read("a"), Ok(Some("text".into())));
        assert_eq!(fs::metadata(f.at("a")).unwrap().mode() & 0o777, 0o644);
        fs::write(f.at("bytes"), b"\xff").unwrap();
        assert_eq!(read("bytes"), Err("it is no text".into()));
        fs::write(f.at("large"), [b'x'; 101]).unwrap();
        assert_eq!(read("large"), Err("it has more than 100 bytes".into()));
        fs::write(f.at("full"), [b'x'; 100]).unwrap();
        assert!(read("full").is_ok());
        symlink("a", f.at("link")).unwrap();
        symlink("/dev/zero", f.at("zero")).unwrap();
        symlink("nowhere", f.at("dangling")).unwrap();
        for name in ["link", "zero", "dangling"] {
            assert_eq!(read(name), Err("it is a link".into()));
        }
        fifo(&f.at("fifo"));
        fs::create_dir(f.at("folder")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(f.at("socket")).unwrap();
        assert_eq!(read("fifo"), Err("it is no plain file".into()));
        assert_eq!(read("folder"), Err("it is no plain file".into()));
        assert!(read("socket").is_err());
        for bits in [0o664, 0o646] {
            mode(&f.at("a"), bits);
            assert_eq!(
                read("a"),
                Err(format!("others may write to it (mode {bits:03o})"))
            );
        }
        // A file of 3 GB that takes no place on the disk is not read at all.
        File::create(f.at("sparse"))
            .unwrap()
            .set_len(3 << 30)
            .unwrap();
        let start = Instant::now();
        assert_eq!(read("sparse"), Err("it has more than 100 bytes".into()));
        assert!(start.elapsed() < Duration::from_secs(1));
        if user() == 0 {
            std::os::unix::fs::chown(f.at("full"), Some(65534), None).unwrap();
            assert_eq!(
                read("full"),
                Err("it belongs to another user (65534, this is 0)".into())
            );
        }
    }

    #[test]
    fn a_folder_that_others_may_write_is_not_used() {
        let folder = Temporary::new();
        let f = &folder.0;
        for bits in [0o777, 0o1777, 0o775, 0o770, 0o2775] {
            mode(&f.0, bits);
            let why = f.check().unwrap_err();
            assert!(
                why.contains("others may write to it") && why.contains("; chmod go-w /"),
                "{why}"
            );
            assert_eq!(
                f.write("a", b"x").unwrap_err().kind(),
                ErrorKind::PermissionDenied
            );
        }
        mode(&f.0, 0o755);
        // As systemd gives it to a service with DynamicUser: a link to the folder.
        let link = Temporary::new();
        symlink(&f.0, link.0.at("link")).unwrap();
        let linked = Folder(link.0.at("link"));
        linked.check().unwrap();
        linked.write("a", b"x").unwrap();
        assert_eq!(f.names(""), ["a"]);
        Folder(link.0.at("not there")).check().unwrap();
        assert!(
            Folder(f.at("a"))
                .check()
                .unwrap_err()
                .ends_with("is not a folder")
        );
        if user() == 0 {
            std::os::unix::fs::chown(&f.0, Some(65534), None).unwrap();
            let why = f.check().unwrap_err();
            assert!(
                why.contains("it belongs to another user (65534, this is 0); name a folder"),
                "{why}"
            );
        }
    }

    #[test]
    fn what_stands_in_the_way_of_a_file_is_replaced_and_not_written_through() {
        let folder = Temporary::new();
        let f = folder.0.clone();
        fs::write(f.at("other"), "kept").unwrap();
        symlink("other", f.at("link")).unwrap();
        fifo(&f.at("fifo"));
        for name in ["link", "fifo"] {
            let f = f.clone();
            soon(move || f.write(name, b"new").unwrap());
        }
        assert_eq!(f.text("link", 10), Ok(Some("new".into())));
        assert_eq!(f.text("fifo", 10), Ok(Some("new".into())));
        assert_eq!(f.text("other", 10), Ok(Some("kept".into())));
    }
}
