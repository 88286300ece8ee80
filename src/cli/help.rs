//! Pages of `--help`. The options on a page are also what the parser knows and what `docs/CLI.md`
//! lists, so an option is described in one place.

use std::fmt;

/// An option of a command.
pub(super) struct OptionSpec {
    /// The option as it is typed, for example `-f, --format FMT`.
    syntax: &'static str,
    /// The meaning, in words that need no other line of the page.
    about: &'static str,
    /// The accepted values with ` | ` between them. Empty if the syntax says enough.
    values: &'static str,
    /// The value that holds without the option. Empty if there is none.
    default: &'static str,
    /// The value of `--name` alone, for an option `--name[=VALUE]`.
    implied: &'static str,
}

/// Makes an option from its syntax and meaning.
pub(super) const fn option(syntax: &'static str, about: &'static str) -> OptionSpec {
    OptionSpec {
        syntax,
        about,
        values: "",
        default: "",
        implied: "",
    }
}

impl OptionSpec {
    pub(super) const fn values(mut self, values: &'static str) -> OptionSpec {
        self.values = values;
        self
    }

    pub(super) const fn default(mut self, default: &'static str) -> OptionSpec {
        self.default = default;
        self
    }

    pub(super) const fn implied(mut self, value: &'static str) -> OptionSpec {
        self.implied = value;
        self
    }

    /// The long name without dashes, and what follows it in the syntax.
    fn long(&self) -> (&'static str, &'static str) {
        let long = self.syntax.split_once("--").map_or("", |(_, long)| long);
        long.split_at(long.find([' ', '[']).unwrap_or(long.len()))
    }

    pub(super) fn name(&self) -> &'static str {
        self.long().0
    }

    /// Returns true if `arg` is this option's long name or its letter.
    pub(super) fn is(&self, arg: &lexopt::Arg) -> bool {
        match arg {
            lexopt::Arg::Long(name) => *name == self.name(),
            lexopt::Arg::Short(letter) => {
                let mut short = self.syntax.chars().skip_while(|c| *c == '-');
                !self.syntax.starts_with("--") && short.next() == Some(*letter)
            }
            lexopt::Arg::Value(_) => false,
        }
    }

    /// Takes the option's value from the parser that has just returned its name. An option that
    /// takes no value has an empty one.
    pub(super) fn value(
        &self,
        parser: &mut lexopt::Parser,
    ) -> Result<std::ffi::OsString, lexopt::Error> {
        match self.long().1 {
            "" => Ok("".into()),
            optional if optional.starts_with('[') => {
                Ok(parser.optional_value().unwrap_or(self.implied.into()))
            }
            _ => parser.value(),
        }
    }
}

#[cfg(all(test, feature = "bake"))]
impl OptionSpec {
    /// Syntax, meaning and default as cells of a Markdown table.
    pub(super) fn markdown(&self) -> String {
        let values = self.values.replace(" | ", "`, `");
        let values = if values.is_empty() {
            values
        } else {
            format!(": `{values}`")
        };
        let about = self.about.replace('|', "\\|");
        format!("| `{}` | {about}{values} | {} |", self.syntax, self.default)
    }
}

/// The line of `--help`. The text begins at column 27.
impl fmt::Display for OptionSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let indent = if self.syntax.starts_with("--") { 6 } else { 2 };
        let width = 25 - indent;
        write!(f, "{:indent$}{:width$} {}", "", self.syntax, self.about)?;
        if !self.values.is_empty() {
            write!(f, ": {}", self.values)?;
        }
        if !self.default.is_empty() {
            write!(f, "  [{}]", self.default)?;
        }
        Ok(())
    }
}

/// Options that belong together.
pub(super) struct OptionGroup {
    pub(super) title: &'static str,
    pub(super) options: &'static [OptionSpec],
}

/// The page of a command.
pub(super) struct HelpPage {
    /// The synopsis, then what the command does. Each part ends with a line break.
    pub(super) head: &'static [&'static str],
    pub(super) groups: &'static [OptionGroup],
    /// Examples, exit codes and the environment.
    pub(super) foot: &'static str,
}

impl HelpPage {
    /// The options that commands take. `--help` and `--version` replace the command, so the parser
    /// handles them itself.
    pub(super) fn options(&self) -> impl Iterator<Item = &'static OptionSpec> + use<> {
        let options = self.groups.iter().flat_map(|group| group.options);
        options.filter(|option| !["help", "version"].contains(&option.name()))
    }
}

impl fmt::Display for HelpPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.head.iter().try_for_each(|part| f.write_str(part))?;
        for group in self.groups {
            writeln!(f, "\n{}:", group.title)?;
            for option in group.options {
                writeln!(f, "{option}")?;
            }
        }
        write!(f, "\n{}", self.foot)
    }
}

/// Returns the option that `arg` names.
pub(super) fn find(
    mut options: impl Iterator<Item = &'static OptionSpec>,
    arg: &lexopt::Arg,
) -> Option<&'static OptionSpec> {
    options.find(|option| option.is(arg))
}
