//! Passes over a draft: each changes the graph, but not the results of the network. All front ends
//! share them.
//!
//! Each pass finds one place where it applies and changes the draft there. All passes are tried in
//! turn until none applies.

mod affine;
mod borders;
mod gates;
mod groups;
mod identities;
pub(crate) mod scaling;

use super::draft::Draft;
use crate::ir::network::{InputOrder, Transform};

/// Runs all passes except [`scaling::fold`]. Returns the changed draft and a transform. It is
/// `transform` followed by the input scalings that the passes have removed from the draft.
pub(crate) fn run(
    draft: Draft,
    mut transform: Transform,
    order: InputOrder,
) -> Result<(Draft, Transform), String> {
    let mut draft = draft.sweep()?;
    loop {
        let lifted = scaling::lift(&mut draft, order, &transform);
        let changed = lifted.is_some()
            || identities::remove(&mut draft)
            || identities::reroute(&mut draft)
            || identities::sink(&mut draft)
            || groups::dense(&mut draft)
            || gates::join(&mut draft)
            || scaling::merge(&mut draft)
            || scaling::behind(&mut draft)
            || scaling::before(&mut draft)
            || borders::finite(&mut draft)
            || borders::join(&mut draft)
            || affine::of_convolution(&mut draft);
        if !changed {
            return Ok((draft, transform));
        }
        transform = lifted.unwrap_or(transform);
        draft = draft.sweep()?;
    }
}

#[cfg(test)]
mod tests;
