//! Sizes that a model leaves open, and inputs that become constants, as they are stated for a bake:
//! `x:1,3,320,320;height:64;rate=16000`.

/// All sizes that the user states for inputs and for named dimensions, and all inputs that become
/// constants.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sizes {
    stated: Vec<Stated>,
    constants: Vec<StatedConstant>,
}

/// The sizes that the user states for one input or one named dimension.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Stated {
    /// The name of an input or of a named dimension.
    pub(crate) name: String,
    pub(crate) sizes: Vec<Size>,
}

/// An input that becomes a constant, and its numbers: one for each element, or one for all
/// elements.
#[derive(Clone, Debug, PartialEq)]
struct StatedConstant {
    name: String,
    numbers: Vec<f64>,
}

/// The size of one axis of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    Known(usize),
    /// The axis of the records. Its size stays open.
    Records,
}

/// The largest size that an axis may have.
const MOST: usize = 1 << 24;

impl Size {
    /// Parses a size: a number from 1 to [`MOST`], or `N` for the number of records.
    pub(crate) fn parse(text: &str) -> Result<Size, String> {
        match text.trim() {
            "N" => Ok(Size::Records),
            text => match text.parse() {
                Ok(n) if (1..=MOST).contains(&n) => Ok(Size::Known(n)),
                _ => Err(format!(
                    "expected a size from 1 to {MOST}, or N for the number of records, found \
                     \"{text}\""
                )),
            },
        }
    }
}

impl Sizes {
    /// Parses the user's text, whose parts are separated by semicolons. `NAME:SIZE,SIZE…` states
    /// sizes, and `NAME=NUMBER,NUMBER…` makes an input constant. A name may contain `:` and `=`,
    /// because only the last such sign separates it from the list.
    pub(crate) fn parse(text: &str) -> Result<Sizes, String> {
        let mut sizes = Sizes::default();
        for part in text.split(';').filter(|part| !part.trim().is_empty()) {
            let Some(at) = part.rfind([':', '=']) else {
                return Err(format!(
                    "expected NAME:SIZE,SIZE… with the name of an input or of a dimension, or \
                     NAME=NUMBER,NUMBER… for an input that becomes a constant, found \"{part}\""
                ));
            };
            let (name, list) = (part[..at].trim(), part[at + 1..].split(','));
            if part[at..].starts_with(':') {
                sizes.add(name, list.map(Size::parse).collect::<Result<_, _>>()?)?;
            } else {
                sizes.add_constant(name, list.map(number).collect::<Result<_, _>>()?)?;
            }
        }
        Ok(sizes)
    }

    /// Adds the sizes of the input or dimension `name`.
    ///
    /// # Errors
    /// Sizes are already stated for the name.
    pub(crate) fn add(&mut self, name: &str, sizes: Vec<Size>) -> Result<(), String> {
        if self.of(name).is_some() {
            return Err(format!(
                "expected the sizes of \"{name}\" once, found them twice"
            ));
        }
        self.stated.push(Stated {
            name: name.into(),
            sizes,
        });
        Ok(())
    }

    /// Adds an input that becomes a constant with these numbers.
    ///
    /// # Errors
    /// Numbers are already stated for the name.
    pub(crate) fn add_constant(&mut self, name: &str, numbers: Vec<f64>) -> Result<(), String> {
        if self.constant(name).is_some() {
            return Err(format!(
                "expected the numbers of \"{name}\" once, found them twice"
            ));
        }
        let name = name.into();
        self.constants.push(StatedConstant { name, numbers });
        Ok(())
    }

    /// Merges two sets of stated sizes and numbers. If a name is in both, `other` is ignored for
    /// that name.
    pub(crate) fn or(&self, other: &Sizes) -> Sizes {
        let mut all = self.clone();
        let more = other.stated.iter().filter(|s| self.of(&s.name).is_none());
        all.stated.extend(more.cloned());
        let mut constants = other.constants.clone();
        constants.retain(|c| self.constant(&c.name).is_none());
        all.constants.extend(constants);
        all
    }

    /// Returns the sizes that are stated for an input or a dimension. `None` if none are stated.
    pub(crate) fn of(&self, name: &str) -> Option<&[Size]> {
        let stated = self.stated.iter().find(|s| s.name == name)?;
        Some(&stated.sizes)
    }

    /// Returns the numbers of an input that becomes a constant. `None` for other inputs.
    pub(crate) fn constant(&self, name: &str) -> Option<&[f64]> {
        let stated = self.constants.iter().find(|c| c.name == name)?;
        Some(&stated.numbers)
    }

    /// Returns all names for which sizes or numbers are stated.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let constants = self.constants.iter().map(|c| &*c.name);
        self.stated.iter().map(|s| &*s.name).chain(constants)
    }
}

/// Parses a number, which must be finite.
fn number(text: &str) -> Result<f64, String> {
    match text.trim().parse() {
        Ok(x) if f64::is_finite(x) => Ok(x),
        _ => Err(format!("expected a finite number, found \"{text}\"")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_sizes() {
        let sizes = Sizes::parse("x:N,3,320,320; a:b:1;").unwrap();
        let known = Size::Known;
        assert_eq!(
            sizes.of("x"),
            Some(&[Size::Records, known(3), known(320), known(320)][..])
        );
        assert_eq!(sizes.of("a:b"), Some(&[known(1)][..]));
        assert_eq!(sizes.of("a"), None);
        assert_eq!(Sizes::parse(""), Ok(Sizes::default()));
        let other = Sizes::parse("x:2;y:3").unwrap();
        assert_eq!(sizes.or(&other).of("x"), sizes.of("x"));
        assert_eq!(sizes.or(&other).of("y"), Some(&[known(3)][..]));
    }

    #[test]
    fn inputs_that_become_constants() {
        let sizes = Sizes::parse("rate=16000;x:1,2; a:b = 1, -2.5").unwrap();
        assert_eq!(sizes.constant("rate"), Some(&[16000.0][..]));
        assert_eq!(sizes.constant("a:b"), Some(&[1.0, -2.5][..]));
        assert_eq!((sizes.constant("x"), sizes.of("rate")), (None, None));
        let names: Vec<&str> = sizes.names().collect();
        assert_eq!(names, ["x", "rate", "a:b"]);
        let other = Sizes::parse("rate=8000;y=1").unwrap();
        let both = sizes.or(&other);
        assert_eq!(both.constant("rate"), Some(&[16000.0][..]));
        assert_eq!(both.constant("y"), Some(&[1.0][..]));
    }

    #[test]
    fn mistakes_say_what_was_found() {
        for (text, part) in [
            ("320", "expected NAME:SIZE"),
            ("x:", "found \"\""),
            ("x:0", "expected a size from 1"),
            ("x:-1", "found \"-1\""),
            ("x:1;x:2", "found them twice"),
            ("x=1;x=2", "the numbers of \"x\" once"),
            ("x=", "expected a finite number, found \"\""),
            ("x=inf", "found \"inf\""),
            ("x=1,N", "found \"N\""),
        ] {
            let e = Sizes::parse(text).unwrap_err();
            assert!(e.contains(part), "{text}: {e}");
        }
    }
}
