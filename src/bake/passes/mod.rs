//! Changes of a draft that keep what it computes: front ends only parse, what is the same for all stands here.

pub(crate) mod scaling;

use super::draft::Draft;
use crate::ir::network::{InputOrder, Transform};

/// All of them but the last, which folds the input's scaling ([`scaling::fold`]). The reader's scaling comes back with
/// what the draft had of it.
///
/// # Errors
/// What an operation says of shapes that do not meet.
pub(crate) fn run(
    draft: Draft,
    transform: Transform,
    _order: InputOrder,
) -> Result<(Draft, Transform), String> {
    Ok((draft.sweep()?, transform))
}
