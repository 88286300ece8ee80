//! Concatenations without copies: a convolution writes its channels to their place in the
//! concatenation, instead of into a buffer of its own from which they are copied.

use super::check::BufferRows;
use super::steps::{Action, HostStep, Place};
use crate::ir::network::Activation;
use crate::ir::view::Geometry;
use std::mem::replace;

/// Lets convolutions write into the buffers of concatenations where they can. The copies then do
/// nothing. A buffer that is written earlier takes memory for longer, so `fits` says whether the
/// buffers of some steps still fit their memory.
pub(super) fn write_in_place(
    steps: &mut [HostStep],
    rows: BufferRows<'_>,
    fits: impl Fn(&[HostStep]) -> bool,
) {
    for buffer in (0..rows.hidden.len()).map(Place::Hidden) {
        let copies = copies(steps, buffer);
        if !are_all(steps, buffer, &copies) {
            continue;
        }
        for &copy in &copies {
            // The other copies write what this one would fill.
            if let Action::Gather { moves, .. } = &mut steps[copy].action {
                moves.fill_nothing();
            }
        }
        for copy in copies {
            move_result(steps, copy, &fits);
        }
    }
}

/// Returns the steps that copy rows into a buffer.
fn copies(steps: &[HostStep], buffer: Place) -> Vec<usize> {
    let copies = |s: &HostStep| s.to == buffer && matches!(s.action, Action::Gather { .. });
    (0..steps.len()).filter(|&i| copies(&steps[i])).collect()
}

/// True if some copies write all rows of a buffer, each once, and no other step touches the buffer
/// before the last of them.
fn are_all(steps: &[HostStep], buffer: Place, copies: &[usize]) -> bool {
    let Some(&last) = copies.last() else {
        return false;
    };
    let mut before = (0..last).filter(|&i| steps[i].touches(buffer));
    let moves = copies.iter().filter_map(|&i| match &steps[i].action {
        Action::Gather { moves, .. } => Some(moves),
        _ => None,
    });
    // One of the copies fills all rows that it does not write. The copies of a concatenation or of
    // a padding write different rows.
    let filled = moves.clone().map(|m| m.filled()).max();
    let written = moves.map(|m| m.len()).sum();
    filled == Some(written) && before.all(|i| copies.contains(&i) && steps[i].from != buffer)
}

/// Moves the result of the convolution that writes what step `copy` copies, if that is possible and
/// fits.
fn move_result(steps: &mut [HostStep], copy: usize, fits: &impl Fn(&[HostStep]) -> bool) {
    let (between, to) = (steps[copy].from, steps[copy].to);
    let touching: Vec<usize> = (0..copy).filter(|&i| steps[i].touches(between)).collect();
    let later = steps[copy + 1..].iter().any(|s| s.touches(between));
    let (&[layer], Place::Hidden(_), false) = (&touching[..], between, later) else {
        return;
    };
    if steps[layer].to != between || steps[layer].touches(to) {
        return;
    }
    let Some(moved) = moved(&steps[layer].action, &steps[copy].action) else {
        return;
    };
    let before = swap_output(&mut steps[layer].action, moved);
    let nothing = Action::Activate(Activation::None);
    let gather = replace(&mut steps[copy].action, nothing);
    steps[layer].to = to;
    steps[copy].from = to;
    if !fits(steps) {
        swap_output(&mut steps[layer].action, before);
        steps[layer].to = between;
        steps[copy].from = between;
        steps[copy].action = gather;
    }
}

/// Returns the geometry with which a layer writes its result where the copy writes it. `None` if
/// the layer is no convolution, or also writes padding.
fn moved(layer: &Action, copy: &Action) -> Option<Geometry> {
    let (rows, geometry) = match layer {
        // Integer layers are joined with the steps around them in another way.
        Action::Convolution(dense, geometry) if dense.whole.is_none() => {
            (dense.biases.len(), geometry)
        }
        Action::Tiles(dense, geometry, size) => (Action::rows_of_tile(dense, *size), geometry),
        _ => return None,
    };
    let Action::Gather { moves, .. } = copy else {
        return None;
    };
    let (mut image, shape) = geometry.output;
    let pixels = shape.w * shape.h;
    if rows != shape.c || image.pixel != shape.c || image.line != shape.w * image.pixel {
        return None;
    }
    (image.first, image.pixel) = moves.spread(image.first, pixels, shape.c)?;
    image.line = shape.w * image.pixel;
    Some(Geometry {
        output: (image, shape),
        ..*geometry
    })
}

/// Gives a convolution another geometry, and returns the one that it had.
fn swap_output(layer: &mut Action, geometry: Geometry) -> Geometry {
    match layer {
        Action::Convolution(_, of) | Action::Tiles(_, of, _) => replace(of, geometry),
        _ => geometry,
    }
}
