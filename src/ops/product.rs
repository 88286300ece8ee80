//! Matrix products of two computed values, one product for each group (channel).

use crate::ir::graph::Shape;

/// Returns the shape of the product. Both values must have as many groups (channels), and the same
/// number of terms along the common dimension.
pub(super) fn shape(inputs: &[Shape], transposed: bool) -> Result<Shape, String> {
    let &[a, b] = inputs else {
        return Err(format!("a product has two inputs, found {}", inputs.len()));
    };
    let (terms, columns, expected) = match transposed {
        true => (b.w, b.h, format!("{}×n×{}", a.c, a.w)),
        false => (b.h, b.w, format!("{}×{}×n", a.c, a.w)),
    };
    if b.c != a.c || terms != a.w {
        return Err(format!(
            "the product with a value of shape {a} expects a second one of {expected}, found {b}"
        ));
    }
    Shape {
        c: a.c,
        h: a.h,
        w: columns,
    }
    .bounded()
}

/// The floating-point operations of the product for one record: two for each term of each element,
/// a multiplication and an addition.
pub(super) fn flop(a: Shape, output: Shape) -> u64 {
    2 * output.len() as u64 * a.w as u64
}

pub(super) fn reference([(a, of), (b, other)]: [(&[f64], Shape); 2], transposed: bool) -> Vec<f64> {
    let columns = if transposed { other.h } else { other.w };
    let mut result = Vec::with_capacity(of.c * of.h * columns);
    for (g, i) in (0..of.c).flat_map(|g| (0..of.h).map(move |i| (g, i))) {
        let row = &a[of.index(g, i, 0)..][..of.w];
        let at = |k, j| match transposed {
            true => b[other.index(g, j, k)],
            false => b[other.index(g, k, j)],
        };
        let sum = |j| {
            row.iter()
                .enumerate()
                .map(|(k, x)| x * at(k, j))
                .sum::<f64>()
        };
        result.extend((0..columns).map(sum));
    }
    result
}
