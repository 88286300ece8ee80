//! The cache folder, which holds files from one run for the next. Nothing in the folder is
//! required. Files that are missing, foreign or damaged are ignored and made again.
//!
//! Files in the folder are not trusted. The folder and every file must belong to this user or root,
//! and nobody else may write to them. Files are opened without following links and without
//! blocking, and only a limited number of bytes is read. Each file has a checksum and is compared
//! with the program before use.

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

/// The cache folder. It may not exist yet.
#[derive(Clone, Debug)]
pub(crate) struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Returns the folder that the environment names: MORTONNET_CACHE (empty turns caching off),
    /// else CACHE_DIRECTORY (systemd), XDG_CACHE_HOME/mortonnet or HOME/.cache/mortonnet. The error
    /// is the reason why there is no folder.
    pub(crate) fn named() -> Result<Folder, String> {
        folder_of(variable)
            .map(|path| Folder { path })
            .ok_or_else(|| match std::env::var_os("MORTONNET_CACHE") {
                Some(_) => "off: MORTONNET_CACHE is empty".into(),
                None => "off: no folder, as neither MORTONNET_CACHE nor HOME is set".into(),
            })
    }

    /// Returns the folder's path, for messages.
    pub(crate) fn name(&self) -> String {
        escape::path(&self.path)
    }

    /// Returns the path of the file `name` in the folder.
    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Checks that only this user or root can write to the folder, if it exists. Anybody who can
    /// write to a folder can replace its files. A sticky bit does not help, because it lets other
    /// users create the files first. The folder may be a link, as systemd's DynamicUser makes it.
    /// The error states the problem and the remedy.
    pub(crate) fn check(&self) -> Result<(), String> {
        // A missing or unreachable folder is reported by the later read or write.
        let Ok(about) = fs::metadata(&self.path) else {
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

    /// Opens a file for reading if only this user or root can write to it.
    fn open(&self, name: &str) -> Result<OwnFile, ReadError> {
        OwnFile::open(&self.at(name))
    }

    /// Reads a small text file of at most `most` bytes. Returns `None` if it does not exist. The
    /// error is the reason why the file cannot be used.
    pub(crate) fn text(&self, name: &str, most: u64) -> Result<Option<String>, String> {
        match self.open(name).and_then(|file| file.read(most)) {
            Ok(bytes) => String::from_utf8(bytes.into_vec())
                .map(Some)
                .map_err(|_| "it is no text".into()),
            Err(ReadError::Missing) => Ok(None),
            Err(ReadError::Refused(why)) => Err(why),
        }
    }

    /// Writes the file `name` atomically: readers see either the old file or the complete new one.
    /// A missing folder is created for this user alone, because the driver may run what is stored
    /// there.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> io::Result<PathBuf> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.path)?;
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

    /// Returns the names of the folder's files that begin with `start`, in no order.
    pub(crate) fn names(&self, start: &str) -> Vec<String> {
        let entries = fs::read_dir(&self.path)
            .into_iter()
            .flatten()
            .map_while(Result::ok);
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.filter(|name| name.starts_with(start)).collect()
    }
}

fn variable(name: &str) -> Option<OsString> {
    let value = std::env::var_os(name);
    // Unit tests have a folder of their own, because a tuning record in the user's folder changes
    // the plan.
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
    // systemd separates several folders in CACHE_DIRECTORY by colons.
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

/// Creates a file that only this user may write, whatever the umask is.
fn create(path: &Path) -> io::Result<File> {
    File::options()
        .write(true)
        .create_new(true)
        .mode(0o644)
        .open(path)
}

/// Returns a part of a file name that no other running process or thread uses.
fn unique() -> String {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    // An earlier process with the same id may have left files. The time tells their names from new
    // ones.
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |d| d.as_nanos());
    format!(
        "{}-{}-{now:x}",
        std::process::id(),
        COUNT.fetch_add(1, Ordering::Relaxed)
    )
}

/// Returns the 64-bit FNV-1a hash of `parts`, for file names and checksums.
pub(crate) fn hash(parts: &[&str]) -> u64 {
    parts
        .iter()
        .fold(START, |h, p| fnv(fnv(h, p.as_bytes()), &[0]))
}

/// The 64-bit FNV-1a hash of no bytes.
const START: u64 = 0xcbf2_9ce4_8422_2325;

/// Continues an FNV-1a hash with `bytes`.
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
            folder_of(|name| {
                set.iter()
                    .find(|(n, _)| *n == name)
                    .map(|(_, value)| value.into())
            })
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

    /// A folder that is deleted at the end of the test.
    pub(super) struct Temporary {
        pub(super) folder: Folder,
    }

    impl Temporary {
        pub(super) fn new() -> Temporary {
            let path = std::env::temp_dir().join(format!("mortonnet-cache-{}", unique()));
            DirBuilder::new().mode(0o700).create(&path).unwrap();
            let folder = Folder { path };
            Temporary { folder }
        }
    }

    impl Drop for Temporary {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.folder.path);
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

    /// Runs `work` on another thread and fails the test if that takes longer than 20 s.
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
        let temporary = Temporary::new();
        let f = &temporary.folder;
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
        // A sparse file of 3 GB is refused by its size, without reading it.
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
        let temporary = Temporary::new();
        let f = &temporary.folder;
        for bits in [0o777, 0o1777, 0o775, 0o770, 0o2775] {
            mode(&f.path, bits);
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
        mode(&f.path, 0o755);
        // systemd gives a service with DynamicUser a link to the folder.
        let link = Temporary::new();
        let path = link.folder.at("link");
        symlink(&f.path, &path).unwrap();
        let linked = Folder { path };
        linked.check().unwrap();
        linked.write("a", b"x").unwrap();
        assert_eq!(f.names(""), ["a"]);
        let path = link.folder.at("not there");
        Folder { path }.check().unwrap();
        let why = Folder { path: f.at("a") }.check().unwrap_err();
        assert!(why.ends_with("is not a folder"), "{why}");
        if user() == 0 {
            std::os::unix::fs::chown(&f.path, Some(65534), None).unwrap();
            let why = f.check().unwrap_err();
            assert!(
                why.contains("it belongs to another user (65534, this is 0); name a folder"),
                "{why}"
            );
        }
    }

    #[test]
    fn what_stands_in_the_way_of_a_file_is_replaced_and_not_written_through() {
        let temporary = Temporary::new();
        let f = temporary.folder.clone();
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
