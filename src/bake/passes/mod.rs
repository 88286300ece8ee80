//! Changes of a draft that keep what it computes: front ends only parse, what is the same for all
//! stands here.
//!
//! Each pass looks for one place where it applies and changes it. They are tried in turn until none
//! applies.

mod affine;
mod borders;
mod groups;
mod identities;
pub(crate) mod scaling;

use super::draft::Draft;
use crate::ir::network::{InputOrder, Transform};

/// All of them but the last, which folds the input's scaling ([`scaling::fold`]). The reader's
/// scaling comes back with what the draft had of it.
///
/// # Errors
/// What an operation says of shapes that do not meet.
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
