//! Collects all mistakes of a file, so that they are reported at once.

#[derive(Debug, Default)]
pub(crate) struct Mistakes {
    /// The mistakes, a line each: `FILE: PLACE: expected …, found …`.
    pub(crate) lines: Vec<String>,
    /// Remarks that are no mistakes, a line each. The author of a model should know them.
    pub(crate) notes: Vec<String>,
}

impl Mistakes {
    pub(crate) fn add(&mut self, place: impl std::fmt::Display, message: impl std::fmt::Display) {
        self.lines.push(line(place, message));
    }

    pub(crate) fn note(&mut self, place: impl std::fmt::Display, message: impl std::fmt::Display) {
        self.notes.push(line(place, message));
    }
}

/// The most characters of a mistake or note. A longer one is cut, because names in files may be
/// long.
pub(crate) const LONGEST: usize = 2000;

/// Formats a line without control characters. The build prints it in a directive to cargo, which a
/// line break would end.
fn line(place: impl std::fmt::Display, message: impl std::fmt::Display) -> String {
    let mut text = format!("{place}: {message}").replace(|c: char| c.is_control(), " ");
    if let Some((end, _)) = text.char_indices().nth(LONGEST) {
        text.truncate(end);
        text.push('…');
    }
    text
}
