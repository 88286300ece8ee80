//! The cache folder: what a run leaves for the next one. Nothing in it is needed: whatever is missing, foreign or
//! damaged is ignored and made again.

mod blobs;

pub use blobs::{Blobs, Key, Loading};

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The folder: MORTONNET_CACHE (empty switches caching off), else CACHE_DIRECTORY (systemd), XDG_CACHE_HOME/mortonnet,
/// HOME/.cache/mortonnet, else none.
pub fn folder() -> Option<PathBuf> {
    folder_of(|name| std::env::var_os(name))
}

fn folder_of(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let filled = |name: &str| variable(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    if let Some(own) = variable("MORTONNET_CACHE") {
        return (!own.is_empty()).then(|| own.into());
    }
    // systemd separates several folders by colons.
    let systemd = filled("CACHE_DIRECTORY").map(|p| match p.to_str().and_then(|p| p.split_once(':')) {
        Some((first, _)) => first.into(),
        None => p,
    });
    systemd
        .or_else(|| filled("XDG_CACHE_HOME").filter(|p| p.is_absolute()).map(|p| p.join("mortonnet")))
        .or_else(|| filled("HOME").map(|p| p.join(".cache/mortonnet")))
}

/// Writes `name` in `folder` so that readers see the old file or the whole new one. A folder that is not there is made
/// for this user alone: what stands in it may be run.
pub fn write(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<PathBuf> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let (file, new) = (folder.join(name), folder.join(format!("{name}.{}.new", unique())));
    let written = fs::File::create_new(&new)
        .and_then(|mut f| f.write_all(bytes).and_then(|()| f.sync_data()))
        .and_then(|()| fs::rename(&new, &file));
    match written {
        Ok(()) => Ok(file),
        Err(e) => {
            let _ = fs::remove_file(&new);
            Err(e)
        }
    }
}

/// A part of a file name that no other process and no other thread uses at this time.
fn unique() -> String {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    // A process that had this number before may have left files: the time tells them apart.
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_nanos());
    format!("{}-{}-{now:x}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// FNV-1a of 64 bits, for file names.
pub fn hash(parts: &[&str]) -> u64 {
    parts.iter().fold(START, |h, p| fnv(fnv(h, p.as_bytes()), &[0]))
}

/// FNV-1a of 64 bits of no bytes.
const START: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a, continued with these bytes.
fn fnv(start: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(start, |h, &b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_variable_that_is_set_names_the_folder() {
        let of = |set: &[(&str, &str)]| {
            folder_of(|name| set.iter().find(|s| s.0 == name).map(|s| s.1.into()))
                .map(|p| p.display().to_string())
        };
        let home = ("HOME", "/h");
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[home]).as_deref(), Some("/h/.cache/mortonnet"));
        assert_eq!(of(&[home, ("XDG_CACHE_HOME", "/x")]).as_deref(), Some("/x/mortonnet"));
        assert_eq!(of(&[home, ("XDG_CACHE_HOME", "relative")]).as_deref(), Some("/h/.cache/mortonnet"));
        assert_eq!(of(&[home, ("CACHE_DIRECTORY", "/c:/d")]).as_deref(), Some("/c"));
        assert_eq!(of(&[home, ("MORTONNET_CACHE", "m")]).as_deref(), Some("m"));
        assert_eq!(of(&[home, ("MORTONNET_CACHE", "")]), None);
    }
}
