//! Checks of compiled programs in the cache folder.

use super::Folder;
use super::blobs::{Blobs, Key};
use crate::fuzzing::{Input, folder};
use std::fs;

/// A stored program loads. A changed file does not load.
pub fn programs(data: &[u8]) {
    let mut input = Input(data);
    let cache = Folder {
        path: folder().to_path_buf(),
    };
    let blobs = Blobs {
        folder: cache.clone(),
    };
    let key = Key::new(
        &[("device", "a"), ("driver", "1\n2")],
        &[("options", "-DA=1"), ("source", "x")],
    );
    let kind = input.below(3);
    let position = usize::from(input.byte()) << 8 | usize::from(input.byte());
    let change = input.byte();
    blobs
        .store(&key, input.0)
        .expect("the folder can be written");
    let loaded = || blobs.load(&key).map(|(found, _)| found.as_bytes().to_vec());
    assert_eq!(loaded().as_deref(), Ok(input.0));
    let names = cache.names("kernel-");
    let [name] = &names[..] else {
        panic!("{names:?}")
    };
    let path = cache.at(name);
    let mut whole = fs::read(&path).expect("it was stored");
    let stored = whole.clone();
    match kind {
        0 => {
            let at = position % whole.len();
            whole[at] ^= change;
        }
        1 => whole.truncate(position % whole.len()),
        // Any bytes after the right key. Their length and checksum are most likely wrong.
        _ => {
            let tail = whole
                .windows(6)
                .position(|w| w == b"\nbytes")
                .expect("the key is plain lines")
                + 1;
            whole.truncate(tail);
            whole.extend_from_slice(input.0);
        }
    }
    fs::write(&path, &whole).expect("it can be written");
    let found = loaded();
    match found {
        Ok(found) if whole == stored => assert_eq!(found, input.0),
        // The fuzzer has made a valid file. Then storing its program writes the same file.
        Ok(found) => {
            blobs
                .store(&key, &found)
                .expect("the folder can be written");
            assert_eq!(fs::read(&path).expect("it is there"), whole);
        }
        Err(why) => assert!(whole != stored && !why.contains(char::is_control), "{why}"),
    }
    assert_eq!(cache.names("kernel-"), names, "markers are gone");
}
