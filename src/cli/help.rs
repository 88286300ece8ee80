//! Reads the options from the pages of `--help`. The parser and `docs/CLI.md` take the options from
//! here, so each option is described in one place.
//!
//! An option has a line like `  -f, --format FMT        input format: csv | f32  [csv]`. The
//! meaning begins at a fixed column, the values follow `: `, and the default is in brackets.

use std::ffi::OsString;

/// The column at which the meaning of an option begins, counted from 0.
const ABOUT: usize = 26;

/// An option, as its line on a page of `--help` describes it.
#[derive(Clone, Copy)]
pub(super) struct OptionSpec {
    /// The option as it is typed, for example `-f, --format FMT`.
    syntax: &'static str,
    about: &'static str,
}

/// Returns the options that a page describes, except `--help` and `--version`. These two replace
/// the command instead of belonging to it.
pub(super) fn options(page: &'static str) -> impl Iterator<Item = OptionSpec> {
    let options = page.lines().filter_map(OptionSpec::of_line);
    options.filter(|option| !["help", "version"].contains(&option.name()))
}

/// Returns the option that `arg` names. `None` for an unknown option.
pub(super) fn find(
    mut options: impl Iterator<Item = OptionSpec>,
    arg: &lexopt::Arg,
) -> Option<OptionSpec> {
    options.find(|option| option.is(arg))
}

impl OptionSpec {
    /// Returns the option that a line of a page describes. `None` for any other line.
    pub(super) fn of_line(line: &'static str) -> Option<OptionSpec> {
        let (syntax, about) = line.split_at_checked(ABOUT)?;
        let syntax = syntax.trim();
        syntax
            .starts_with('-')
            .then_some(OptionSpec { syntax, about })
    }

    /// Returns the option's long name without dashes, and the rest of its syntax, for example `
    /// FMT`.
    fn long(self) -> (&'static str, &'static str) {
        let long = self.syntax.split_once("--").map_or("", |(_, long)| long);
        long.split_at(long.find([' ', '[']).unwrap_or(long.len()))
    }

    #[cfg(all(test, feature = "bake"))]
    pub(super) fn syntax(self) -> &'static str {
        self.syntax
    }

    pub(super) fn name(self) -> &'static str {
        let (name, _) = self.long();
        name
    }

    /// Returns true if `arg` is this option's long name or its one-letter name.
    pub(super) fn is(self, arg: &lexopt::Arg) -> bool {
        match arg {
            lexopt::Arg::Long(name) => *name == self.name(),
            lexopt::Arg::Short(letter) => {
                let mut short = self.syntax.chars().skip(1);
                !self.syntax.starts_with("--") && short.next() == Some(*letter)
            }
            lexopt::Arg::Value(_) => false,
        }
    }

    /// Returns the option's meaning, the text that lists its values (`csv | f32`), and its default.
    /// The default is empty for an option without one.
    pub(super) fn parts(self) -> (&'static str, Option<&'static str>, &'static str) {
        let (text, default) = match self.about.split_once("  [") {
            Some((text, default)) => (text, default.trim_end_matches(']')),
            None => (self.about, ""),
        };
        match text.rsplit_once(": ").filter(|(_, v)| v.contains(" | ")) {
            Some((about, values)) => (about, Some(values), default),
            None => (text, None, default),
        }
    }

    /// Takes the option's value from the parser, which has just returned the option's name. An
    /// option without a value gets an empty one. The value of an option `--name[=VALUE]` may be
    /// missing. It is then the first value that the page lists.
    pub(super) fn value(self, parser: &mut lexopt::Parser) -> Result<OsString, lexopt::Error> {
        let (_, argument) = self.long();
        if argument.is_empty() {
            return Ok(OsString::new());
        }
        if !argument.starts_with('[') {
            return parser.value();
        }
        let (_, values, _) = self.parts();
        let first = values.and_then(|values| values.split(' ').next());
        Ok(parser
            .optional_value()
            .unwrap_or(first.unwrap_or_default().into()))
    }
}
