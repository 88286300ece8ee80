//! The cache folder: what a run leaves for the next one. Nothing in it is needed: whatever is missing, foreign or
//! damaged is ignored and made again.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

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

/// Writes `name` in `folder` so that readers see the old file or the whole new one.
pub fn write(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<PathBuf> {
    fs::create_dir_all(folder)?;
    let (file, new) = (folder.join(name), folder.join(format!("{name}.{}.new", std::process::id())));
    let written = fs::File::create(&new)
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

/// FNV-1a of 64 bits, for file names.
pub fn hash(parts: &[&str]) -> u64 {
    let bytes = parts.iter().flat_map(|p| p.bytes().chain([0]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
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
