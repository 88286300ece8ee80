//! Sizes that a model leaves open, as whoever bakes states them: `x:1,3,320,320;height:64`.

/// The sizes of inputs and of named dimensions.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sizes {
    stated: Vec<Stated>,
}

/// The sizes of one name.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Stated {
    /// The name of an input or of a dimension.
    pub(crate) name: String,
    pub(crate) sizes: Vec<Size>,
}

/// A size of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    Known(usize),
    /// The number of records, which stays open.
    Records,
}

/// The largest size of an axis.
const MOST: usize = 1 << 24;

impl Size {
    /// Parses a number from 1 to [`MOST`], or `N`.
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
    /// Parses names with their sizes: `NAME:SIZE,SIZE…;NAME:…`. A name may have colons.
    pub(crate) fn parse(text: &str) -> Result<Sizes, String> {
        let mut sizes = Sizes::default();
        for part in text.split(';').filter(|part| !part.trim().is_empty()) {
            let Some((name, list)) = part.rsplit_once(':') else {
                return Err(format!(
                    "expected NAME:SIZE,SIZE… with the name of an input or of a dimension, found \
                     \"{part}\""
                ));
            };
            let list = list.split(',').map(Size::parse);
            sizes.add(name.trim(), list.collect::<Result<_, _>>()?)?;
        }
        Ok(sizes)
    }

    /// Adds the sizes of a name.
    ///
    /// # Errors
    /// The name is there already.
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

    /// These sizes, and those of `other` whose names are not among them.
    pub(crate) fn or(&self, other: &Sizes) -> Sizes {
        let mut all = self.clone();
        let more = other.stated.iter().filter(|s| self.of(&s.name).is_none());
        all.stated.extend(more.cloned());
        all
    }

    /// The sizes of an input or of a dimension.
    pub(crate) fn of(&self, name: &str) -> Option<&[Size]> {
        let stated = self.stated.iter().find(|s| s.name == name)?;
        Some(&stated.sizes)
    }

    /// The names that are stated.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.stated.iter().map(|s| &*s.name)
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
    fn mistakes_say_what_was_found() {
        for (text, part) in [
            ("320", "expected NAME:SIZE"),
            ("x:", "found \"\""),
            ("x:0", "expected a size from 1"),
            ("x:-1", "found \"-1\""),
            ("x:1;x:2", "found them twice"),
        ] {
            let e = Sizes::parse(text).unwrap_err();
            assert!(e.contains(part), "{text}: {e}");
        }
    }
}
