//! Models of other formats, with a JSON of the same name beside them that may state what they
//! cannot: name, labels, features, input, output, check.

use super::tail::Tail;
use super::{Source, default_name};
use crate::bake::draft::Draft;
use crate::bake::json::{self, Json, Map, Object, found};
use crate::bake::matrix::Files;
use crate::bake::meaning::BESIDE;
use crate::bake::model::{self, ModelFacts, ReadModel};
use crate::bake::sizes::{Size, Sizes};
use crate::bake::{Arithmetic, Mistakes};
use crate::ir::graph::Value;
use crate::ir::network::InputOrder;
use crate::ir::op::{Axis, Op};
use std::path::Path;

/// A model as a draft.
pub(super) struct Lowered {
    pub(super) draft: Draft,
    /// The order of the values in a record.
    pub(super) order: InputOrder,
    /// The output and its meaning.
    pub(super) tail: Tail,
    /// The inputs by name, where there are several.
    pub(super) inputs: Vec<Value>,
}

/// The location of a model, and the outputs and sizes that the JSON beside it asks for.
pub(super) struct ModelPlace<'p> {
    /// The file, for messages.
    pub(super) file: &'p str,
    pub(super) folder: &'p Path,
    /// True if the JSON asks for numbers instead of classes.
    pub(super) values: bool,
    /// The one output that the JSON asks for. `None` for all outputs.
    pub(super) output: Option<&'p str>,
    /// Sizes that the model leaves open.
    pub(super) sizes: &'p Sizes,
    /// The name of the setting that states such sizes, for messages.
    pub(super) sizes_by: &'static str,
    /// The name of the setting of the arithmetic, for messages.
    pub(super) arithmetic_by: &'static str,
    /// True if values of 8-bit integers are computed as integers.
    pub(super) integers: bool,
}

impl ModelPlace<'_> {
    /// Keeps the one output that the JSON names, or all outputs if it names none. The named one may
    /// be among `inner`, the other tensors that the model computes.
    ///
    /// # Errors
    /// The model has no such output.
    pub(super) fn wanted<T: Copy>(
        &self,
        outputs: impl IntoIterator<Item = (T, String)>,
        inner: impl IntoIterator<Item = (T, String)>,
    ) -> Result<Vec<(T, String)>, String> {
        let all: Vec<(T, String)> = outputs.into_iter().collect();
        let Some(output) = self.output else {
            return Ok(all);
        };
        let named = |(_, name): &(T, String)| name == output;
        let found = all.iter().find(|o| named(o)).cloned();
        match found.or_else(|| inner.into_iter().find(named)) {
            Some(one) => Ok(vec![one]),
            None => {
                let names: Vec<&str> = all.iter().map(|(_, name)| &**name).collect();
                Err(format!(
                    "output: name: expected one of the model's outputs ({}) or of its inner \
                     tensors, found \"{output}\"",
                    names.join(", ")
                ))
            }
        }
    }
}

/// The sizes that the JSON states: numbers, or "N" for the number of records. An object with
/// `constant` states the numbers of an input that becomes a constant.
fn sizes(o: &Object<'_>, mistakes: &mut Mistakes) -> Option<Sizes> {
    let mut sizes = Sizes::default();
    let Some(value) = o.get("sizes") else {
        return Some(sizes);
    };
    let place = o.at("sizes");
    let Some(names) = value.as_object() else {
        mistakes.add(
            place,
            format_args!("expected an object, found {}", found(value)),
        );
        return None;
    };
    for (name, value) in names {
        stated(&mut sizes, name, value)
            .map_err(|e| mistakes.add(format_args!("{place}.{name}"), e))
            .ok()?;
    }
    Some(sizes)
}

/// Adds to `sizes` what the JSON states for this name: sizes, or the numbers of a constant.
fn stated(sizes: &mut Sizes, name: &str, value: &Json) -> Result<(), String> {
    let list = |value: &Json| match value.as_array() {
        Some(list) => list.clone(),
        None => vec![value.clone()],
    };
    if let Some(value) = value.get("constant") {
        let numbers: Option<Vec<f64>> = list(value).iter().map(Json::as_f64).collect();
        let numbers =
            numbers.ok_or_else(|| format!("constant: expected numbers, found {}", found(value)))?;
        return sizes.add_constant(name, numbers);
    }
    let one = |v: &Json| match (v.as_u64(), v.as_str()) {
        (Some(n), _) => Size::parse(&n.to_string()),
        (None, Some(text)) => Size::parse(text),
        (None, None) => Err(format!("expected sizes, found {}", found(v))),
    };
    sizes.add(name, list(value).iter().map(one).collect::<Result<_, _>>()?)
}

/// Reads a model, which `lower` makes a draft of, and the JSON beside it. `sigmoid` is the format's
/// word for a sigmoid.
pub(super) fn read(
    source: &Source<'_>,
    sigmoid: &'static str,
    files: &mut Files<'_>,
    mistakes: &mut Mistakes,
    lower: impl FnOnce(&ModelPlace<'_>, &mut Files<'_>, &mut Mistakes) -> Option<Lowered>,
) -> Option<ReadModel> {
    let before = mistakes.lines.len();
    let file = files.shown(source.path);
    let folder = source.path.parent().unwrap_or(Path::new("")).to_path_buf();
    let beside = source.path.with_extension("json");
    let (place, json) = if beside.is_file() {
        let text = files.text(&beside, &file, mistakes)?;
        let place = files.shown(&beside);
        let json = json::parse(&text, &place, mistakes)?;
        (place, json)
    } else {
        (file.clone(), Json::Object(Map::new()))
    };
    let o = Object::new(&json, place, &BESIDE, mistakes)?;
    let sizes = source.settings.sizes.or(&sizes(&o, mistakes)?);
    let stated = |key: &str| json.get("output")?.get(key)?.as_str();
    let place = ModelPlace {
        file: &file,
        folder: &folder,
        values: stated("kind") == Some("values"),
        output: stated("name"),
        sizes: &sizes,
        sizes_by: source.settings.names.sizes(),
        arithmetic_by: source.settings.names.arithmetic(),
        integers: source.settings.arithmetic == Arithmetic::Model,
    };
    let lowered = lower(&place, files, mistakes);
    let beside = beside.file_name().unwrap_or_default().to_string_lossy();
    let mut facts = ModelFacts {
        folder,
        name: default_name(source.path),
        sigmoid,
        keys_in: format!(", in {beside} beside the model"),
        ..ModelFacts::default()
    };
    if let Some(Lowered {
        draft,
        order,
        tail,
        inputs,
    }) = lowered
    {
        facts.input_shape = Some(draft.shape(draft.graph.inputs[0]));
        facts.order = order;
        facts.output_shape = Some(draft.shape(tail.value));
        (facts.last, facts.output, facts.labels) = (tail.last, tail.output, tail.labels);
        (facts.inputs, facts.outputs) = (inputs, tail.outputs);
        facts.draft = Some(draft);
    }
    model::finish(source.settings, facts, &o, before, files, mistakes)
}

/// Removes nodes whose values nothing reads, and a transposition of the input. An image that comes
/// pixel by pixel and is transposed at once is the same image in another order of the record's
/// values, as is one that comes channel by channel and is transposed back.
pub(super) fn finished(
    draft: Draft,
    mut order: InputOrder,
    mut tail: Tail,
    inputs: Vec<Value>,
) -> Result<Lowered, String> {
    let mut draft = draft.sweep()?;
    let input = draft.graph.inputs[0];
    let reader = |value: usize| {
        let node = draft
            .graph
            .only_consumer(value)
            .map(|i| &draft.graph.nodes[i]);
        node.map(|n| (n.op, n.output))
    };
    // A reshape may stand before the transposition.
    let from = match (order, reader(input)) {
        (InputOrder::Chw, Some((Op::Reshape(_), reshaped))) => reshaped,
        _ => input,
    };
    let first = reader(from);
    // True if the values before the transposition are the image pixel by pixel.
    let pixels_last = |axes: [Axis; 3]| {
        let long = |a: &Axis| draft.shape(from).along(*a) > 1;
        [axes[1], axes[2], axes[0]]
            .into_iter()
            .filter(long)
            .map(|a| a as usize)
            .is_sorted()
    };
    let other = match (order, first) {
        (InputOrder::Chw, Some((Op::Transpose(axes), turned))) if pixels_last(axes) => {
            Some((InputOrder::Hwc, turned))
        }
        // If the image is only flattened, the columns of the weights are permuted instead.
        (InputOrder::Hwc, Some((Op::Transpose([Axis::Y, Axis::X, Axis::C]), turned))) => {
            let flat = matches!(reader(turned), Some((Op::Reshape(_) | Op::Affine, _)));
            (!flat).then_some((InputOrder::Chw, turned))
        }
        _ => None,
    };
    if let Some((turned_order, turned)) = other {
        let shape = draft.shape(turned);
        draft.graph.values.to_mut()[input].shape = shape;
        draft.redirect(turned, input);
        draft = draft.sweep()?;
        order = turned_order;
    }
    tail.value = draft.graph.outputs[0];
    Ok(Lowered {
        draft,
        order,
        tail,
        inputs,
    })
}
