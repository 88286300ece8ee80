//! Makes text from outside (drivers, file names, file contents) safe for messages and tables.
//!
//! A terminal obeys control characters: the name of a device could clear the screen, rename the
//! window or overwrite printed text. This module turns such characters into visible escapes. It
//! also escapes characters that change the order or the width of the text around them. Text is
//! escaped where it enters the program. Every message passes [`lines()`] once more before it is
//! printed.

use std::borrow::Cow;
use std::fmt::Write;
use std::path::Path;

/// Escapes a text for one line. Control characters, line ends included, become visible as Rust's
/// escapes (`\n`, `\u{1b}`).
pub(crate) fn line(text: &str) -> Cow<'_, str> {
    escaped(text, |_| false)
}

/// Escapes a text of several lines. Line ends and tabs stay. A line end of two characters (`\r\n`)
/// becomes `\n`.
pub(crate) fn lines(text: &str) -> Cow<'_, str> {
    match text.contains("\r\n") {
        true => escaped(&text.replace("\r\n", "\n"), is_layout)
            .into_owned()
            .into(),
        false => escaped(text, is_layout),
    }
}

/// Returns a file's path as text that is safe to print in one line.
pub(crate) fn path(path: &Path) -> String {
    line(&path.to_string_lossy()).into_owned()
}

fn is_layout(c: char) -> bool {
    matches!(c, '\n' | '\t')
}

/// Returns true if `c` controls the terminal or changes the text around it. Such are controls (C0,
/// DEL, C1), line and paragraph separators, marks of writing direction, and characters without a
/// width.
fn acts(c: char) -> bool {
    matches!(
        c,
        '\u{61c}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
    ) || c.is_control()
}

fn escaped(text: &str, keep: fn(char) -> bool) -> Cow<'_, str> {
    if !text.chars().any(|c| acts(c) && !keep(c)) {
        return Cow::Borrowed(text);
    }
    let mut found = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if acts(c) && !keep(c) {
            // `escape_default` gives `\t`, `\r`, `\n` or `\u{…}`. `escape_debug` would write a zero
            // as `\0`.
            let _ = write!(found, "{}", c.escape_default());
        } else {
            found.push(c);
        }
    }
    Cow::Owned(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_acts_on_a_terminal_becomes_visible() {
        for (text, expected) in [
            (
                "Mali-T628 r0p1 (größer, 8×8) \\ \"",
                "Mali-T628 r0p1 (größer, 8×8) \\ \"",
            ),
            ("\u{1b}[2J\u{1b}]0;x\u{7}", "\\u{1b}[2J\\u{1b}]0;x\\u{7}"),
            ("a\nb\r\tc\u{7f}", "a\\nb\\r\\tc\\u{7f}"),
            ("\u{9b}31m\u{85}", "\\u{9b}31m\\u{85}"),
            (
                "\u{202e}gpj.exe\u{2066}\u{200b}\u{feff}\u{2028}",
                "\\u{202e}gpj.exe\\u{2066}\\u{200b}\\u{feff}\\u{2028}",
            ),
        ] {
            assert_eq!(line(text), expected);
            assert_eq!(line(expected), expected, "once is enough");
        }
        assert_eq!(
            lines("1:2: error\r\n\tx \u{1b}[0m\r!\n"),
            "1:2: error\n\tx \\u{1b}[0m\\r!\n"
        );
        assert!(
            matches!(lines("a\n\tb"), Cow::Borrowed(_)),
            "usual text is not copied"
        );
        assert_eq!(path(Path::new("a\nmortonnet: fine")), "a\\nmortonnet: fine");
    }
}
