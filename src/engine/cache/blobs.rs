//! Compiled programs in the cache folder, called blobs.
//!
//! ```text
//! kernel-DRIVER-HASH              key, length, checksum, an empty line, the driver's bytes
//! kernel-DRIVER-HASH.WHO.loading  locked by the process that is loading the blob
//! kernel-DRIVER-HASH.bad          a process died of this blob; it is not loaded again
//! ```
//!
//! A driver may crash while it loads a binary, even one that it made. The next process would then
//! crash on the same blob. Therefore a marker file exists while a blob is loaded. The system
//! releases a dead process's locks, so a marker that can be locked was left by a process that died.
//! Process ids would not tell, because they are reused and differ between containers.
//!
//! A blob that is marked bad stays bad, and a driver with two bad blobs gets none at all. The
//! driver's version is part of the name, so a new driver starts afresh. Otherwise somebody must
//! remove the files by hand.

use super::{Folder, START, create, fnv, hash, unique};
use crate::cl::ProgramBinary;
use crate::ir::order::ascending;
use crate::sys::io::lock;
use crate::sys::own::{OwnFile, ReadError, own};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

/// The limits for the number and the bytes of blobs and markers in the cache folder. The least
/// recently used files are removed first. The programs of one network are 2 to 5 blobs of some ten
/// kilobytes.
const MOST_FILES: usize = 100;
const MOST_BYTES: u64 = 16 << 20;

/// The time of a blob's last use is renewed only if it is older than this, to spare flash memory.
const USED: Duration = Duration::from_secs(24 * 3600);

/// The suffix of the marker of a bad blob.
const BAD: &str = ".bad";

const FIRST_LINE: &str = "mortonnet kernel 1";

/// A driver with at least this number of bad blobs gets no blobs at all.
const MOST_BAD: usize = 2;

/// The key of a blob: everything that a compiled program depends on.
#[derive(Debug)]
pub(crate) struct Key {
    head: String,
    driver: String,
    name: String,
}

impl Key {
    /// Makes the key of a program for a driver. `driver` and `program` describe both by (name,
    /// value) lines. The key also includes the version of mortonnet.
    pub(crate) fn new(driver: &[(&str, &str)], program: &[(&str, &str)]) -> Key {
        let mut head = format!("{FIRST_LINE}\nmortonnet {}\n", env!("CARGO_PKG_VERSION"));
        let mut add = |lines: &[(&str, &str)]| {
            for (name, value) in lines {
                [name, " ", &value.replace('\n', " "), "\n"]
                    .iter()
                    .for_each(|part| head.push_str(part));
            }
            hash(&[&head])
        };
        let (driver, all) = (add(driver), add(program));
        let driver = format!("kernel-{:08x}-", driver as u32);
        Key {
            name: format!("{driver}{all:016x}"),
            driver,
            head,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Blobs {
    pub(super) folder: Folder,
}

/// Keeps the marker file of a blob while the driver loads the blob. Dropping it removes the marker.
#[derive(Debug)]
pub(crate) struct Loading {
    marker: Option<(PathBuf, File)>,
}

impl Drop for Loading {
    fn drop(&mut self) {
        // The marker is removed before it is unlocked. So a process that gets its lock afterwards
        // sees that the file is gone, and does not take this process for dead.
        if let Some((path, _file)) = self.marker.take() {
            let _ = fs::remove_file(path);
        }
    }
}

impl Blobs {
    /// Opens the user's cache folder. The error is the reason why it cannot be used.
    pub(crate) fn open() -> Result<Blobs, String> {
        let folder = Folder::named()?;
        folder.check().map(|()| Blobs { folder })
    }

    /// Returns the folder's path, for messages.
    pub(crate) fn folder(&self) -> String {
        self.folder.name()
    }

    /// Returns a line for each file with a marker's name that is not a valid marker.
    pub(crate) fn ignored(&self) -> Vec<String> {
        let marker = |name: &String| {
            kind_of(name).is_some_and(|(_, kind)| kind != FileKind::Blob) && !self.is_own(name)
        };
        let names = self.folder.names("kernel-").into_iter().filter(marker);
        let line = |name: String| {
            format!(
                "{} is ignored: it is no plain file of this user's",
                self.shown(&name, "")
            )
        };
        names.map(line).collect()
    }

    /// Returns the compiled program stored for `key`, and the marker that the caller holds while
    /// the driver loads the program. The error is the reason why there is no program.
    pub(crate) fn load(&self, key: &Key) -> Result<(ProgramBinary, Loading), String> {
        self.condemn(key);
        let is_bad = |name: &&String| name.ends_with(BAD) && self.is_own(name);
        let bad = self.folder.names(&key.driver).iter().filter(is_bad).count();
        if self.is_bad(key) || bad >= MOST_BAD {
            let here = self.shown(&key.driver, "*.bad");
            return Err(format!(
                "off: a process died while this driver loaded one; remove {here} to try again"
            ));
        }
        let bytes = self.bytes(key).map_err(|e| match e {
            ReadError::Missing => "not there yet".into(),
            ReadError::Refused(why) => format!("{}: {why}", self.shown(&key.name, "")),
        })?;
        let loading = self
            .mark(key)
            .map_err(|e| format!("no marker in {}: {e}", self.folder()))?;
        Ok((bytes, loading))
    }

    /// Reads the blob of `key` and checks that it is complete and has exactly this key.
    fn bytes(&self, key: &Key) -> Result<ProgramBinary, ReadError> {
        let off = |why: &str| Err(ReadError::Refused(why.into()));
        // The driver runs these bytes, so only this user or root may have written them.
        let file = self.folder.open(&key.name)?;
        let all = file.read(MOST_BYTES)?;
        let Some(rest) = all.strip_prefix(key.head.as_bytes()) else {
            return match all.starts_with(FIRST_LINE.as_bytes()) {
                true => off("it is of another device, driver or version"),
                false => off("it is no blob"),
            };
        };
        let place = rest.windows(2).position(|w| w == b"\n\n").map(|i| i + 2);
        let (sizes, bytes) = place.map_or((&rest[..0], &rest[..0]), |i| rest.split_at(i));
        if sizes != tail(bytes).as_bytes() {
            return off("it is damaged");
        }
        if file
            .metadata()
            .modified()
            .ok()
            .and_then(|t| t.elapsed().ok())
            .is_some_and(|age| age > USED)
        {
            let _ = file.file().set_modified(std::time::SystemTime::now());
        }
        let start = all.len() - bytes.len();
        Ok(all.behind(start).into())
    }

    /// Creates a marker. It is locked before it gets its final name.
    fn mark(&self, key: &Key) -> io::Result<Loading> {
        let who = unique();
        let new = self.at(&key.name, &format!(".{who}.new"));
        let file = match create(&new) {
            Ok(file) => file,
            // In a folder that this process cannot write, blobs are loaded without a marker. If
            // such a blob crashes the driver, the folder's owner must remove it.
            Err(e)
                if matches!(
                    e.kind(),
                    ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem
                ) =>
            {
                return Ok(Loading { marker: None });
            }
            Err(e) => return Err(e),
        };
        let path = self.at(&key.name, &format!(".{who}.loading"));
        let marked = lock(&file, true).and_then(|_| fs::rename(&new, &path));
        if marked.is_err() {
            let _ = fs::remove_file(&new);
        }
        marked.map(|()| Loading {
            marker: Some((path, file)),
        })
    }

    /// Marks blobs of the key's driver as bad if the process that loaded them has died meanwhile.
    fn condemn(&self, key: &Key) {
        for name in self.folder.names(&key.driver) {
            let Some((blob, FileKind::Loading)) = kind_of(&name) else {
                continue;
            };
            let Ok(own) = self.folder.open(&name) else {
                continue;
            };
            let file = own.file();
            // The lock is shared, so that several processes that look at the same time all see the
            // dead process's marker.
            let dead = lock(file, false).unwrap_or(false);
            // A marker without links was removed after this process opened it, so its process has
            // not died.
            if dead && file.metadata().is_ok_and(|m| m.nlink() > 0) {
                let _ = fs::rename(self.at(&name, ""), self.at(blob, BAD));
                let _ = fs::remove_file(self.at(blob, ""));
            }
        }
    }

    /// Stores `bytes` for later runs, unless the folder has the same bytes already or the blob is
    /// marked bad. After storing, removes old files.
    pub(crate) fn store(&self, key: &Key, bytes: &[u8]) -> io::Result<()> {
        let mut all = key.head.clone().into_bytes();
        all.extend_from_slice(tail(bytes).as_bytes());
        all.extend_from_slice(bytes);
        if all.len() as u64 > MOST_BYTES {
            return Err(ErrorKind::FileTooLarge.into());
        }
        // If a driver refuses its own binaries, each start would store the same bytes again. This
        // check spares the memory card.
        let there = self
            .folder
            .open(&key.name)
            .and_then(|file| file.read(MOST_BYTES));
        if self.is_bad(key) || there.is_ok_and(|there| *there == all[..]) {
            return Ok(());
        }
        self.folder.write(&key.name, &all)?;
        self.tidy(&key.name);
        Ok(())
    }

    /// Removes the least recently used files beyond the limits, but never the file named `keep`.
    fn tidy(&self, keep: &str) {
        let mut all = Vec::new();
        for name in self.folder.names("kernel-") {
            let path = self.at(&name, "");
            if let (true, Ok(about)) = (
                name != keep && self.was_left_here(&name),
                path.symlink_metadata(),
            ) {
                all.push((about.mtime(), about.len(), path));
            }
        }
        let by_age = |&(used, ..): &(i64, u64, PathBuf)| [u64::MAX - used.max(0) as u64, 0, 0];
        let newest_first = ascending(all.iter().map(by_age));
        let mut bytes = self.at(keep, "").symlink_metadata().map_or(0, |m| m.len());
        for (i, (_, len, path)) in newest_first.into_iter().map(|i| &all[i]).enumerate() {
            bytes += len;
            if i + 1 >= MOST_FILES || bytes > MOST_BYTES {
                let _ = fs::remove_file(path);
            }
        }
    }

    /// Returns true if mortonnet left this blob or marker. The folder may have other files, such as
    /// /boot with its kernels. The whole name must match, and the file begins as a blob does or is
    /// empty as a marker is.
    fn was_left_here(&self, name: &str) -> bool {
        let begins = |file: OwnFile| {
            let mut head = Vec::new();
            let read = file
                .file()
                .take(FIRST_LINE.len() as u64)
                .read_to_end(&mut head);
            read.is_ok() && FIRST_LINE.as_bytes().starts_with(&head)
        };
        kind_of(name).is_some() && self.folder.open(name).is_ok_and(begins)
    }

    fn is_bad(&self, key: &Key) -> bool {
        self.is_own(&[&key.name, BAD].concat())
    }

    /// Returns true if the file is a plain file that only this user or root could put there.
    fn is_own(&self, name: &str) -> bool {
        fs::symlink_metadata(self.folder.at(name))
            .is_ok_and(|about| about.is_file() && own(&about).is_ok())
    }

    fn at(&self, name: &str, end: &str) -> PathBuf {
        self.folder.at(&[name, end].concat())
    }

    /// Returns the path of a file in the folder, whose name is `name` and `end`, for messages.
    fn shown(&self, name: &str, end: &str) -> String {
        crate::escape::path(&self.at(name, end))
    }
}

/// The kind of a file in the folder, known from its name.
#[derive(Debug, PartialEq)]
enum FileKind {
    Blob,
    Loading,
    Bad,
    /// A blob or marker under its temporary name, before it is complete.
    New,
}

/// Parses a name that [`Key`] and [`Blobs`] write, into the blob's name and the kind of this file.
/// Returns `None` for all other names.
fn kind_of(name: &str) -> Option<(&str, FileKind)> {
    let (blob, end) = name
        .split_once('.')
        .map_or((name, None), |(blob, end)| (blob, Some(end)));
    let (driver, program) = blob.strip_prefix("kernel-")?.split_once('-')?;
    let hex = |text: &str, digits| {
        text.len() == digits
            && text
                .bytes()
                .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    };
    if !hex(driver, 8) || !hex(program, 16) {
        return None;
    }
    // The part between the dots is from `unique`: three numbers, the last in hexadecimal.
    let who = |who: &str| {
        who.split('-').count() == 3 && who.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-')
    };
    let kind = match end.map(|end| end.rsplit_once('.').unwrap_or(("", end))) {
        None => FileKind::Blob,
        Some(("", "bad")) => FileKind::Bad,
        Some((w, "loading")) if who(w) => FileKind::Loading,
        Some((w, "new")) if who(w) => FileKind::New,
        Some(_) => return None,
    };
    Some((blob, kind))
}

/// Returns the lines of a blob between its key and the driver's `bytes`. They give the length and
/// the checksum of `bytes`.
fn tail(bytes: &[u8]) -> String {
    format!(
        "bytes {}\nchecksum {:016x}\n\n",
        bytes.len(),
        fnv(START, bytes)
    )
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Temporary, fifo, soon};
    use super::*;
    use std::os::unix::fs::symlink;

    struct Test {
        blobs: Blobs,
        _temporary: Temporary,
    }

    impl Test {
        fn new() -> Test {
            let _temporary = Temporary::new();
            let folder = _temporary.folder.clone();
            let blobs = Blobs { folder };
            Test { blobs, _temporary }
        }

        fn names(&self) -> Vec<String> {
            let mut names = self.blobs.folder.names("");
            names.sort();
            names
        }
    }

    fn key(device: &str) -> Key {
        Key::new(&[("device", device)], &[("options", "-DA=1\n-DB")])
    }

    #[test]
    fn a_blob_comes_back_and_everything_else_does_not() {
        let f = Test::new();
        let (blobs, key) = (&f.blobs, key("a"));
        assert_eq!(blobs.load(&key).unwrap_err(), "not there yet");
        for bytes in [&b"\n\nbytes of a driver\n\n\0"[..], b"x"] {
            blobs.store(&key, bytes).unwrap();
            let (found, loading) = blobs.load(&key).unwrap();
            assert_eq!((found.as_bytes(), f.names().len()), (bytes, 2));
            drop(loading);
            assert_eq!(f.names(), [&*key.name]);
        }
        let path = blobs.folder.at(&key.name);
        let whole = fs::read(&path).unwrap();
        // The wrong files: each truncation, each changed byte, and a byte after the end.
        let mut wrong: Vec<Vec<u8>> = (0..whole.len()).map(|n| whole[..n].to_vec()).collect();
        wrong.extend((0..whole.len()).map(|i| {
            let mut bytes = whole.clone();
            bytes[i] ^= 1;
            bytes
        }));
        wrong.push([&whole[..], b"\0"].concat());
        for bytes in wrong {
            fs::write(&path, &bytes).unwrap();
            let why = blobs.load(&key).unwrap_err();
            let known = [
                "no blob",
                "is damaged",
                "of another device, driver or version",
            ];
            assert!(known.iter().any(|k| why.ends_with(k)), "{why}");
        }
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(blobs.load(&key).is_err());
        assert!(blobs.store(&key, b"x").is_err());
        assert_eq!(f.names(), [&*key.name], "a failed write leaves nothing");
    }

    #[test]
    fn keys_differ_in_every_line() {
        let name = |lines: &[(&str, &str)]| Key::new(&[("driver", "1")], lines).name;
        assert_eq!(name(&[("a", "1")]), name(&[("a", "1")]));
        for other in [
            &[("a", "2")][..],
            &[("b", "1")],
            &[],
            &[("a", "1"), ("b", "")],
        ] {
            assert_ne!(name(&[("a", "1")]), name(other));
        }
        let driver = |text| Key::new(&[("driver", text)], &[("a", "1")]).name;
        assert_ne!(driver("1"), driver("2"));
        let f = Test::new();
        let (mine, other) = (key("a"), key("b"));
        f.blobs.store(&mine, b"x").unwrap();
        fs::rename(
            f.blobs.folder.at(&mine.name),
            f.blobs.folder.at(&other.name),
        )
        .unwrap();
        let why = f.blobs.load(&other).unwrap_err();
        assert!(
            why.ends_with("it is of another device, driver or version"),
            "{why}"
        );
    }

    #[test]
    fn a_marker_of_a_dead_process_condemns_and_one_at_work_does_not() {
        let f = Test::new();
        let (blobs, key) = (&f.blobs, key("a"));
        blobs.store(&key, b"x").unwrap();
        let several: Vec<_> = (0..5).map(|_| blobs.load(&key).unwrap()).collect();
        assert_eq!(f.names().len(), 6);
        drop(several);
        assert_eq!(f.names(), [&*key.name]);
        // Imitates a process that dies while it loads a blob: the lock is released and the marker
        // stays.
        let die = |key: &Key| {
            blobs.store(key, b"x").unwrap();
            let (_, mut loading) = blobs.load(key).unwrap();
            let (_, file) = loading.marker.take().unwrap();
            drop(file);
        };
        die(&key);
        let why = blobs.load(&key).unwrap_err();
        assert!(
            why.contains("a process died while this driver loaded one; remove "),
            "{why}"
        );
        let bad = format!("{}.bad", key.name);
        assert_eq!(f.names(), [&*bad]);
        // The bad blob is neither stored nor loaded again. Other blobs are.
        blobs.store(&key, b"x").unwrap();
        assert!(blobs.load(&key).is_err());
        assert_eq!(f.names(), [&*bad]);
        let same = |text| Key::new(&[("device", "a")], &[("options", text)]);
        blobs.store(&same("1"), b"y").unwrap();
        blobs.load(&same("1")).unwrap();
        // After a second bad blob, no blob of this driver is loaded. Blobs of another driver still
        // are.
        die(&same("2"));
        assert!(blobs.load(&same("1")).is_err());
        let other = self::key("b");
        blobs.store(&other, b"y").unwrap();
        blobs.load(&other).unwrap();
        fs::remove_file(blobs.folder.at(&bad)).unwrap();
        blobs.load(&same("1")).unwrap();
    }

    #[test]
    fn what_is_no_plain_file_is_neither_waited_for_nor_believed() {
        let f = Test::new();
        let key = key("a");
        let load = || {
            let blobs = Blobs {
                folder: f.blobs.folder.clone(),
            };
            let key = self::key("a");
            soon(move || blobs.load(&key).map(|(found, _)| found))
        };
        let (blob, bad) = (f.blobs.at(&key.name, ""), f.blobs.at(&key.name, BAD));
        let loading = f.blobs.at(&key.name, ".1-1-1.loading");
        let store = || {
            let blobs = Blobs {
                folder: f.blobs.folder.clone(),
            };
            let key = self::key("a");
            soon(move || blobs.store(&key, b"x").unwrap());
        };
        store();
        for attack in [fifo, |p: &std::path::Path| symlink("/dev/zero", p).unwrap()] {
            fs::remove_file(&blob).unwrap();
            attack(&blob);
            let why = load().unwrap_err();
            assert!(
                why.ends_with("it is no plain file") || why.ends_with("it is a link"),
                "{why}"
            );
            store();
            assert_eq!(load().unwrap().as_bytes(), b"x");
            for marker in [&bad, &loading] {
                attack(marker);
                assert_eq!(load().unwrap().as_bytes(), b"x");
                let line = format!(
                    "{} is ignored: it is no plain file of this user's",
                    marker.display()
                );
                assert_eq!(f.blobs.ignored(), [line]);
                fs::remove_file(marker).unwrap();
            }
        }
        // A stored file of 3 GB is not read for the comparison with the new bytes.
        fs::remove_file(&blob).unwrap();
        File::create(&blob).unwrap().set_len(3 << 30).unwrap();
        assert!(load().unwrap_err().contains("it has more than "));
        store();
        assert!(fs::metadata(&blob).unwrap().len() < 1000);
        assert_eq!(load().unwrap().as_bytes(), b"x");
        assert!(f.blobs.ignored().is_empty());
    }

    #[test]
    fn the_folder_stays_small() {
        let f = Test::new();
        let time = |n: u64| std::time::UNIX_EPOCH + Duration::from_secs(1_000_000 + n);
        for n in 0..130 {
            let key = key(&n.to_string());
            f.blobs.store(&key, &[0; 10]).unwrap();
            File::options()
                .append(true)
                .open(f.blobs.folder.at(&key.name))
                .unwrap()
                .set_modified(time(n))
                .unwrap();
        }
        assert_eq!(f.names().len(), MOST_FILES);
        // Loading the oldest file makes it the newest, so the next store keeps it.
        let oldest = key("30");
        f.blobs.load(&oldest).unwrap();
        f.blobs.store(&key("new"), b"x").unwrap();
        f.blobs.load(&oldest).unwrap();
        assert!(f.blobs.load(&key("31")).is_err() && f.blobs.load(&key("32")).is_ok());
        // Large blobs evict more files.
        for n in 0..3 {
            f.blobs
                .store(
                    &key(&format!("large {n}")),
                    &vec![0; MOST_BYTES as usize * 2 / 5],
                )
                .unwrap();
        }
        assert!(f.names().len() < 10, "{:?}", f.names());
        assert!(f.blobs.load(&key("large 2")).is_ok());
    }

    /// MORTONNET_CACHE may name a folder with other files. Files that mortonnet did not write stay,
    /// whatever their names are.
    #[test]
    fn files_of_others_stay() {
        let f = Test::new();
        let foreign = [
            ("kernel-6.1.0-30-amd64", "ELF"),
            ("kernel-6.1.0.img", ""),
            ("kernel-", ""),
            ("kernel-0123abcd", "mortonnet kernel 1"),
            (
                "kernel-0123abcd-0123456789abcdef",
                "vmlinuz of somebody who hashes his names",
            ),
            (
                "kernel-0123abcd-0123456789abcdef.bad",
                "mortonnet is not what I am",
            ),
            ("kernel-0123abcd-0123456789abcdef.old", ""),
            ("kernel-0123abcd-0123456789abcdef.me.loading", ""),
            ("kernel-0123abcd-0123456789ABCDEF", "mortonnet kernel 1"),
        ];
        for (name, text) in foreign {
            fs::write(f.blobs.folder.at(name), text).unwrap();
            let file = File::options()
                .append(true)
                .open(f.blobs.folder.at(name))
                .unwrap();
            file.set_modified(std::time::UNIX_EPOCH).unwrap();
        }
        for left in [".bad", ".1-2-3f.loading", ".1-2-3f.new"] {
            fs::write(f.blobs.folder.at(&[&*key("gone").name, left].concat()), "").unwrap();
        }
        for n in 0..2 * MOST_FILES {
            f.blobs.store(&key(&n.to_string()), b"x").unwrap();
        }
        f.blobs
            .store(&key("large"), &vec![0; MOST_BYTES as usize - 1000])
            .unwrap();
        for (name, text) in foreign {
            assert_eq!(
                fs::read_to_string(f.blobs.folder.at(name)).ok().as_deref(),
                Some(text),
                "{name}"
            );
        }
        assert!(f.names().len() < foreign.len() + 10, "{:?}", f.names());
        assert_eq!(f.blobs.ignored(), [""; 0]);
    }
}
