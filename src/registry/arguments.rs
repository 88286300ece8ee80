//! The arguments of a kernel that precede its operands.

/// An argument before the operands. Its letter is the thesis's name for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leading {
    /// The common dimension of a product, padded.
    Depth,
    /// The width of the result, padded.
    Width,
    /// The height of the result, padded.
    Height,
    /// The height of the result without padding.
    Rows,
    /// The height of a pair's first layer.
    Middle,
    /// Rows of a second operand.
    Second,
    /// The parts that the previous layer left, which this kernel adds up.
    Parts,
    /// The two parameters of an activation.
    Params,
    /// The geometry of images (kernels/common/geometry.cl).
    Geometry,
    /// A number.
    Value,
    /// The rows that are moved, or the factors that belong to rows (kernels/common/moved.cl).
    Moved,
    /// The summands that belong to rows (kernels/common/moved.cl).
    Added,
}

/// The name of each argument in `"args"`, its letter in `"arglist"`, and its declaration.
const ALL: [(Leading, &str, char, &str); 12] = [
    (Leading::Depth, "depth", 'l', "uint l"),
    (Leading::Width, "width", 'w', "uint w"),
    (Leading::Height, "height", 'h', "uint h"),
    (Leading::Rows, "rows", 'n', "uint n"),
    (Leading::Middle, "middle", 'm', "uint m"),
    (Leading::Second, "second", 's', "uint s"),
    (Leading::Parts, "parts", 'c', "uint c"),
    (Leading::Params, "params", 'p', "float2 params"),
    (Leading::Geometry, "geometry", 'g', "uint16 geometry"),
    (Leading::Value, "value", 'v', "float value"),
    (Leading::Moved, "moved", 'f', "uint16 moved"),
    (Leading::Added, "added", 'b', "uint16 added"),
];

impl Leading {
    /// Returns the argument with this name, and fails with the list of names.
    ///
    /// # Errors
    /// No argument has the name.
    pub(crate) fn named(name: &str) -> Result<Leading, String> {
        let known = ALL.iter().find(|(_, known, ..)| *known == name);
        known.map(|&(argument, ..)| argument).ok_or_else(|| {
            let names: Vec<&str> = ALL.iter().map(|&(_, name, ..)| name).collect();
            format!("expected one of {}, found \"{name}\"", names.join(", "))
        })
    }

    /// Returns the argument with this letter.
    ///
    /// # Errors
    /// No argument has the letter.
    pub(crate) fn of_letter(letter: char) -> Result<Leading, String> {
        let known = ALL.iter().find(|(_, _, known, _)| *known == letter);
        known.map(|&(argument, ..)| argument).ok_or_else(|| {
            let letters: String = ALL.iter().map(|&(_, _, letter, _)| letter).collect();
            format!("expected letters of \"{letters}\", found '{letter}'")
        })
    }

    pub(crate) fn name(self) -> &'static str {
        ALL[self as usize].1
    }

    /// Returns the parameter of the kernel in OpenCL C.
    pub(crate) fn declaration(self) -> &'static str {
        ALL[self as usize].3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_argument_stands_at_its_place_in_the_table() {
        for (at, &(argument, name, letter, _)) in ALL.iter().enumerate() {
            assert_eq!(argument as usize, at);
            assert_eq!(Leading::named(name), Ok(argument));
            assert_eq!(Leading::of_letter(letter), Ok(argument));
        }
        assert!(Leading::named("l").is_err() && Leading::of_letter('x').is_err());
    }
}
