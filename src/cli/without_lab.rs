//! Replaces the commands of the lab in a program without the cargo feature `lab`.

use super::Command;
use super::arguments::{Arguments, CommandSpec};
use super::help::OptionSpec;
use crate::error::Error;
use std::ffi::OsStr;

pub(super) const SYNOPSIS: &str = "";

pub(super) static COMMANDS: [CommandSpec; 0] = [];

pub(super) fn options() -> impl Iterator<Item = OptionSpec> {
    std::iter::empty()
}

#[derive(Clone, Copy)]
pub(super) enum Subcommand {}

pub(super) fn subcommand(value: &OsStr) -> Result<Option<Subcommand>, Error> {
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

pub(super) fn help(subcommand: Subcommand) -> &'static str {
    match subcommand {}
}

pub(super) fn command(subcommand: Subcommand, _: &Arguments) -> &'static CommandSpec {
    match subcommand {}
}

pub(super) fn take_block(_: &mut Arguments) -> Result<Command, Error> {
    Err(Error::usage(
        "--info=block: this program was built without the lab: build it without \
         --no-default-features",
    ))
}
