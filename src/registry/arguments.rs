//! The arguments of a kernel that precede its operands.

/// An argument before the operands. The thesis writes such arguments as letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeadingArgument {
    /// The common dimension of a product, padded.
    Depth,
    /// The width of the result, padded.
    Width,
    /// The height of the result, padded.
    Height,
    /// The height of the result without padding.
    Rows,
    /// The padded height of the result of a pair's first layer.
    Middle,
    /// The padded rows of the second of two operands.
    Second,
    /// The number of partial sums that the previous layer left, which this kernel adds up.
    Parts,
    /// The two parameters of an activation.
    Params,
    /// The shapes of images and of a window over them (kernels/common/geometry.cl).
    Geometry,
    /// The constant that a gather kernel writes into rows without a source.
    Value,
    /// The map of rows that are copied, or of the factors that belong to rows
    /// (kernels/common/moved.cl).
    Moved,
    /// The map of the summands that belong to rows (kernels/common/moved.cl).
    Added,
    /// The sizes and rows of a product of two values (kernels/product/any.cl).
    Product,
}

/// The name of each argument in `"args"`, its letter in `"arglist"`, and its declaration.
const ALL: [(LeadingArgument, &str, char, &str); 13] = [
    (LeadingArgument::Depth, "depth", 'l', "uint l"),
    (LeadingArgument::Width, "width", 'w', "uint w"),
    (LeadingArgument::Height, "height", 'h', "uint h"),
    (LeadingArgument::Rows, "rows", 'n', "uint n"),
    (LeadingArgument::Middle, "middle", 'm', "uint m"),
    (LeadingArgument::Second, "second", 's', "uint s"),
    (LeadingArgument::Parts, "parts", 'c', "uint c"),
    (LeadingArgument::Params, "params", 'p', "float2 params"),
    (
        LeadingArgument::Geometry,
        "geometry",
        'g',
        "uint16 geometry",
    ),
    (LeadingArgument::Value, "value", 'v', "float value"),
    (LeadingArgument::Moved, "moved", 'f', "uint16 moved"),
    (LeadingArgument::Added, "added", 'b', "uint16 added"),
    (LeadingArgument::Product, "product", 'k', "uint16 product"),
];

impl LeadingArgument {
    /// Returns the argument with this name.
    ///
    /// # Errors
    /// No argument has the name.
    pub(crate) fn named(name: &str) -> Result<LeadingArgument, String> {
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
    pub(crate) fn of_letter(letter: char) -> Result<LeadingArgument, String> {
        let known = ALL.iter().find(|(_, _, known, _)| *known == letter);
        known.map(|&(argument, ..)| argument).ok_or_else(|| {
            let letters: String = ALL.iter().map(|&(_, _, letter, _)| letter).collect();
            format!("expected letters of \"{letters}\", found '{letter}'")
        })
    }

    /// Returns true if the argument is a number of rows, columns or parts.
    pub(crate) fn is_size(self) -> bool {
        use LeadingArgument::{Depth, Height, Middle, Parts, Rows, Second, Width};
        matches!(
            self,
            Depth | Width | Height | Rows | Middle | Second | Parts
        )
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
            assert_eq!(LeadingArgument::named(name), Ok(argument));
            assert_eq!(LeadingArgument::of_letter(letter), Ok(argument));
        }
        assert!(LeadingArgument::named("l").is_err() && LeadingArgument::of_letter('x').is_err());
    }
}
