//! All mistakes of a file at once.

/// Mistakes found so far, one line each: `FILE: PLACE: expected …, found …`; and notes on what is
/// none.
#[derive(Debug, Default)]
pub(crate) struct Mistakes(pub(crate) Vec<String>, pub(crate) Vec<String>);

impl Mistakes {
    /// Adds a mistake at `place`.
    pub(crate) fn add(&mut self, place: impl std::fmt::Display, message: impl std::fmt::Display) {
        self.0.push(line(place, message));
    }

    /// Adds a note: what whoever builds should know of a model that is fine.
    pub(crate) fn note(&mut self, place: impl std::fmt::Display, message: impl std::fmt::Display) {
        self.1.push(line(place, message));
    }

    /// The notes.
    pub(crate) fn notes(&self) -> &[String] {
        &self.1
    }
}

/// Most characters of a mistake or a note: sizes and names out of a file may be of any length.
pub(crate) const LONGEST: usize = 2000;

/// A line of the build's output: a line break would cut the message there.
fn line(place: impl std::fmt::Display, message: impl std::fmt::Display) -> String {
    let mut text = format!("{place}: {message}").replace(|c: char| c.is_control(), " ");
    if let Some((end, _)) = text.char_indices().nth(LONGEST) {
        text.truncate(end);
        text.push('…');
    }
    text
}
