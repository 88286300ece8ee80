//! The arguments of a kernel that come before its operands.

/// An argument that a kernel takes before its operands, such as a size. The thesis denotes such
/// arguments by letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeadingArgument {
    /// The padded common dimension of a product.
    Depth,
    /// The padded number of columns of the result.
    Width,
    /// The padded number of rows of the result.
    Height,
    /// The number of the result's rows without padding.
    Rows,
    /// The padded number of rows of the first layer's result, if the kernel computes a pair of
    /// layers.
    Middle,
    /// The padded number of rows of the second operand, if the kernel has two.
    Second,
    /// The number of partial sums from the previous step, which this kernel adds up.
    Parts,
    /// The two parameters of an activation.
    Params,
    /// The shapes of the input and output image, and the window that moves over the input
    /// (kernels/common/geometry.cl).
    Geometry,
    /// The constant that a gather kernel writes into result rows without a source row.
    Value,
    /// The map of copied rows in a gather kernel, or of the factor for each row in a scale kernel
    /// (kernels/common/moved.cl).
    Moved,
    /// The map of the summand for each row in a scale kernel (kernels/common/moved.cl).
    Added,
    /// The sizes and rows of a product of two computed values (kernels/product/any.cl).
    Product,
    /// The factors of both operands of a rounded sum (kernels/combine/any.cl).
    Factors,
}

/// For each argument its name in `"args"`, its letter in `"arglist"`, and its declaration in OpenCL
/// C.
const ALL: [(LeadingArgument, &str, char, &str); 14] = [
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
    (LeadingArgument::Factors, "factors", 't', "float2 factors"),
];

impl LeadingArgument {
    /// Returns the argument with this name in `library.json`.
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

    /// Returns the argument with this letter in `library.json`.
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

    /// Returns the declaration of this argument as a kernel's parameter in OpenCL C.
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
