//! What stands in for the commands of the lab in a program without it (cargo feature `lab`).

use super::Command;
use super::given::{Form, Given, Spec};
use crate::error::Error;
use std::ffi::OsStr;

pub(super) const SYNOPSIS: &str = "";

pub(super) const OPTIONS: &[Spec] = &[];

pub(super) static FORMS: [Form; 0] = [];

/// No word of the lab.
#[derive(Clone, Copy)]
pub(super) enum Word {}

pub(super) fn word(value: &OsStr) -> Result<Option<Word>, Error> {
    match value
        .to_str()
        .filter(|word| ["bench", "tune"].contains(word))
    {
        None => Ok(None),
        Some(word) => Err(Error::usage(format!(
            "{word}: this program was built without the lab: build it without \
             --no-default-features; a file of that name \
             is ./{word}"
        ))),
    }
}

pub(super) fn help(word: Word) -> String {
    match word {}
}

pub(super) fn form(word: Word, _: &Given) -> &'static Form {
    match word {}
}

pub(super) fn take_block(_: &mut Given) -> Result<Command, Error> {
    Err(Error::usage(
        "--info=block: this program was built without the lab: build it without \
         --no-default-features",
    ))
}
