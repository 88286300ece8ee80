//! The ONNX operations `Attention` and `RotaryEmbedding`, built from simpler operations.

use super::node::{OnnxNode, live};
use super::ops::NodeOutputs;
use super::values::operand;
use crate::bake::front::attention::{self, Mask, Past, Wishes};
use crate::bake::front::builder::Builder;
use crate::bake::front::constant::{ConstantTensor, Element};
use crate::bake::front::elementwise::Operand;
use crate::bake::front::fold;
use crate::bake::front::operations;
use crate::bake::front::value::{Live, ModelValue};

/// Returns an integer attribute as a count. It is 0 if the attribute is missing or negative.
fn count(node: &OnnxNode<'_>, name: &str) -> usize {
    usize::try_from(node.int(name, 0)).unwrap_or(0)
}

pub(super) fn attention(b: &mut Builder, node: &OnnxNode<'_>) -> NodeOutputs {
    if node.input(6).is_some() {
        return Err("nonpad_kv_seqlen is not supported: give a mask".into());
    }
    let (q, k, v) = (live(node, 0)?, live(node, 1)?, live(node, 2)?);
    let scale = node.float("scale", 0.0);
    let cap = node.float("softcap", 0.0);
    let wishes = Wishes {
        scale: (scale != 0.0).then_some(scale),
        causal: node.int("is_causal", 0) != 0,
        cap: (cap != 0.0).then_some(cap),
        heads: [count(node, "q_num_heads"), count(node, "kv_num_heads")],
    };
    let truth = |o: &Operand<'_>| match o {
        Operand::Live(x) => x.kind == Element::Bool,
        Operand::Constant(c) => c.kind == Element::Bool,
    };
    let mask = match node.input(3) {
        None => Mask::None,
        Some(_) => match operand(node, 3)? {
            o if truth(&o) => Mask::Seen(o),
            o => Mask::Summand(o),
        },
    };
    let hidden = wishes.causal || matches!(mask, Mask::Seen(_));
    if wishes.cap.is_some() && (hidden || !matches!(mask, Mask::None)) {
        return Err(
            "softcap with a mask: versions of the operation differ in which comes first".into(),
        );
    }
    let past: Past<'_> = match (node.input(4), node.input(5)) {
        (Some(_), Some(_)) => Some([operand(node, 4)?, operand(node, 5)?]),
        _ => None,
    };
    let found = attention::attention(b, &node.name, [q, k, v], &wishes, mask, past)?;
    let mode = count(node, "qk_matmul_output_mode");
    if node.gives(3) && hidden && (mode == 1 || mode == 2) {
        return Err(format!(
            "qk_matmul_output_mode: {mode} would be minus infinity behind a mask"
        ));
    }
    let products = found.products.get(mode).cloned();
    let products =
        products.ok_or_else(|| format!("qk_matmul_output_mode: expected 0 to 3, found {mode}"))?;
    let [keys, values] = found.present;
    let all = [found.result, keys, values, products];
    Ok(all.map(ModelValue::Live).to_vec())
}

/// `RotaryEmbedding`: rotates pairs of numbers by an angle that depends on their position in the
/// sequence.
pub(super) fn rotary(b: &mut Builder, node: &OnnxNode<'_>) -> Result<Live, String> {
    let (x, name) = (live(node, 0)?, &node.name);
    // The rotation works on the axes [batch, place, head, number].
    let (heads, four) = (count(node, "num_heads"), x.rank() == 4);
    let at = usize::from(x.records.is_none());
    if x.records.is_some_and(|r| r != 0) || !(3..=4).contains(&x.rank()) {
        return Err(format!(
            "expected [N, heads, places, numbers] or [N, places, numbers], found {}",
            x.shown()
        ));
    }
    let order: Vec<usize> = (0..at).chain([at + 1, at, at + 2]).collect();
    let placed = match four {
        true => b.transpose(name, x, &order)?,
        false => {
            let (all, ahead) = (x.dims[at + 1], &x.dims[..at + 1]);
            if heads == 0 || all % heads != 0 {
                return Err(format!(
                    "num_heads: {heads} do not divide {all} numbers of a place"
                ));
            }
            x.with_dims([ahead, &[heads, all / heads]].concat())
        }
    };
    let size = placed.dims[at + 2];
    let turned = match count(node, "rotary_embedding_dim") {
        0 => size,
        n if n <= size && n % 2 == 0 => n,
        n => {
            return Err(format!(
                "rotary_embedding_dim: expected an even number up to {size}, found {n}"
            ));
        }
    };
    let angles = |i: usize, what: &str| -> Result<ModelValue, String> {
        let cache = match operand(node, i)? {
            Operand::Live(x) => {
                if node.input(3).is_some() {
                    return Err(format!("position_ids: expected {what} that are constants"));
                }
                // All heads share the angles of a place, so the heads axis gets size 1.
                let at = x.rank() as i64 - 1;
                let x = operations::squeezed("Unsqueeze", x, Some(&[at]))?;
                return Ok(ModelValue::Live(x));
            }
            Operand::Constant(c) => c,
        };
        let cache = match node.constant(3, "places")? {
            Some(ids) => fold::gather(cache, &ids, 0)?,
            None => cache.clone(),
        };
        let mut dims = cache.dims.clone();
        if dims.len() < 2 {
            return Err(format!("expected {what} of each place, found {dims:?}"));
        }
        dims.insert(dims.len() - 1, 1);
        Ok(ModelValue::Constant(std::rc::Rc::new(
            cache.with_dims(dims),
        )))
    };
    let (cos, sin) = (angles(1, "cosines")?, angles(2, "sines")?);
    let interleaved = node.int("interleaved", 0) != 0;
    let both = [of(&cos)?, of(&sin)?];
    let y = attention::rotary(b, name, &placed, both, turned, interleaved)?;
    match four {
        true => b.transpose(name, &y, &order),
        false => Ok(y.with_dims(x.dims.clone())),
    }
}

/// Returns a constant, or a tensor computed from the record, as an operand.
fn of(value: &ModelValue) -> Result<Operand<'_>, String> {
    match value {
        ModelValue::Live(x) => Ok(Operand::Live(x)),
        ModelValue::Constant(c) => Ok(Operand::<'_>::Constant(c as &ConstantTensor)),
        _ => Err("expected numbers".into()),
    }
}
