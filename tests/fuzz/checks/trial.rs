//! Checks of the files of trials.

use super::{FIRST_LINE, Trial, TrialKey};
use crate::engine::cache;
use crate::escape;
use crate::fuzzing::Input;

/// A written file reads back, a trial has one text, and other texts are refused.
pub fn trial(data: &[u8]) {
    let mut input = Input(data);
    let kind = input.below(3);
    let parts = (0..input.below(4)).map(|_| {
        let length = input.below(12);
        String::from_utf8_lossy(input.bytes(length)).into_owned()
    });
    let key = TrialKey {
        parts: parts.collect(),
    };
    if kind == 2 {
        let about: Vec<_> = key.parts.iter().map(|part| escape::line(part)).collect();
        let text = format!(
            "{FIRST_LINE}{}\n{}",
            about.join("\n"),
            String::from_utf8_lossy(input.0)
        );
        let text = format!("{text}\nchecksum {:016x}\n", cache::hash(&[&text]));
        if let Some(found) = key.parse(&text) {
            assert_eq!(key.text(&found), text);
            assert_eq!(key.parse(&text), Some(found));
        }
        return;
    }
    let trial = match kind {
        0 => {
            let mut time = || {
                let bits = input.bytes(8).iter().fold(0, |n, &b| n << 8 | u64::from(b));
                let us = f64::from_bits(bits);
                if us.is_finite() && us > 0.0 { us } else { 1.0 }
            };
            Trial::Right {
                device: time(),
                host: time(),
            }
        }
        _ => Trial::Wrong(escape::line(&String::from_utf8_lossy(input.0)).into_owned()),
    };
    let text = key.text(&trial);
    assert_eq!(key.parse(&text), Some(trial));
}
