//! Layers of dynamic range, whose weights are 8-bit integers and whose values are floats. LiteRT
//! rounds the values in front of such a layer to 8-bit integers. Their scale follows from the
//! smallest and the largest of the values, so it differs from record to record.

use super::ops::{self, plain, straight};
use super::tensor::TfliteTensor;
use super::{OperatorNode, TfliteValue, Turned};
use crate::bake::front::builder::Builder;
use crate::bake::front::listed;
use crate::ir::op::OfChannels;

const LAYERS: &str = "CONV_2D DEPTHWISE_CONV_2D FULLY_CONNECTED TRANSPOSE_CONV";

/// Returns the index of the values among the inputs of an operator with these input tensors, if the
/// operator is a layer of dynamic range whose values are rounded.
pub(super) fn values(op: &str, tensors: &[Option<&TfliteTensor<'_>>]) -> Option<usize> {
    let values = if op == "TRANSPOSE_CONV" { 2 } else { 0 };
    let axis = if op == "DEPTHWISE_CONV_2D" { 3 } else { 0 };
    let tensor = |i: usize| tensors.get(i).copied().flatten();
    let (of, weights) = (tensor(values)?, tensor(1)?);
    let scales = weights.dynamic(axis)?;
    // LiteRT needs a scale for each output of a depthwise convolution.
    let each = i32::try_from(scales.len()).ok() == weights.dims.get(axis).copied();
    let fits = listed(LAYERS, op) && of.float() && !of.known() && (axis == 0 || each);
    fits.then_some(values)
}

/// Returns the inputs of a layer of dynamic range, with values that are rounded to 8-bit integers.
/// They are the real numbers that these integers stand for. `None` for other operators.
pub(super) fn rounded(
    b: &mut Builder,
    node: &OperatorNode<'_>,
) -> Result<Option<Vec<Option<TfliteValue>>>, String> {
    let Some(values) = values(node.op, &node.tensors) else {
        return Ok(None);
    };
    let (Some(TfliteValue::Live(x)), weights) = (node.input(values), node.needed(1, "weights")?)
    else {
        return Ok(None);
    };
    let (name, of) = (&node.name, OfChannels::ByteSteps);
    let rounded = match rows(b, node, &weights.dims, x)? {
        Some(rows) => ops::of_last_axis(b, name, &rows, of)?,
        // All values of a record have a common scale.
        None => {
            let all = straight(x.live.with_dims(vec![x.live.len()]));
            let rounded = ops::of_last_axis(b, name, &all, of)?;
            x.with(x.live.with_value(rounded.live.value))
        }
    };
    let mut inputs = node.inputs.clone();
    inputs[values] = Some(TfliteValue::Live(rounded));
    Ok(Some(inputs))
}

/// Returns the values `x` of a layer as rows along the last axis, if each row has a scale of its
/// own. `None` if there is one scale for each record. LiteRT computes convolutions of 1 × 1 as
/// products of rows, but not those from one channel to one.
fn rows(
    b: &mut Builder,
    node: &OperatorNode<'_>,
    weights: &[usize],
    x: &Turned,
) -> Result<Option<Turned>, String> {
    match (node.op, weights) {
        ("FULLY_CONNECTED", &[_, inputs]) if x.live.len() == inputs => Ok(None),
        ("FULLY_CONNECTED", &[_, inputs]) => {
            // Without `keep_num_dims`, rows may cover several axes.
            let any = !node.options.flag(2)? && x.live.records.is_none();
            let whole = x.live.len() % inputs.max(1) == 0;
            Ok(Some(match any && whole {
                true => {
                    let rows = vec![x.live.len() / inputs.max(1), inputs];
                    straight(plain(b, &node.name, x)?.with_dims(rows))
                }
                false => x.clone(),
            }))
        }
        // Field numbers of the schema's table `Conv2DOptions`: 1 stride_w, 2 stride_h.
        ("CONV_2D", &[outputs, 1, 1, channels]) if (outputs, channels) != (1, 1) => {
            let strides = [node.count(1, "stride_w", 0)?, node.count(2, "stride_h", 0)?];
            let last = x.order.len().wrapping_sub(1);
            let at = x.order.iter().position(|&o| o == last);
            let all = at.is_some_and(|at| x.live.dims[at] == channels);
            Ok((strides == [1, 1] && all).then(|| x.clone()))
        }
        _ => Ok(None),
    }
}
