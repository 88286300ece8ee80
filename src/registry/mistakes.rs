//! Collects all mistakes of a file, so that they can be reported together.

#[derive(Debug, Default)]
pub(crate) struct Mistakes {
    /// The mistakes, one line each, in the form `FILE: PLACE: expected …, found …`.
    pub(crate) lines: Vec<String>,
    /// Notes for the author of a model, one line each. They are not mistakes.
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

/// The largest number of characters in a mistake or note. Longer ones are cut, because they may
/// contain long names from files.
pub(crate) const LONGEST: usize = 2000;

/// Formats a mistake or note as one line without control characters. The build prints the line in a
/// directive to cargo, which a line break would end.
fn line(place: impl std::fmt::Display, message: impl std::fmt::Display) -> String {
    let mut text = format!("{place}: {message}").replace(|c: char| c.is_control(), " ");
    if let Some((end, _)) = text.char_indices().nth(LONGEST) {
        text.truncate(end);
        text.push('…');
    }
    text
}
