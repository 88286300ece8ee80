//! Models in formats other than the network JSON. A JSON with the same file name beside such a
//! model may state facts that the format cannot: name, labels, features, input, output, check.

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
use crate::ir::network::{ByteInput, InputOrder};
use crate::ir::op::{Axis, Op};
use std::path::Path;

/// A model that is converted to a draft, with the facts about its inputs and output.
pub(super) struct Lowered {
    pub(super) draft: Draft,
    /// The order of an image's values in a record: channel by channel or pixel by pixel.
    pub(super) order: InputOrder,
    /// The model's output and its meaning.
    pub(super) tail: Tail,
    /// The model's inputs by name, if there are several. Else empty.
    pub(super) inputs: Vec<Value>,
    /// The 8-bit integers of the model's input, if it is a single one of such integers.
    pub(super) bytes: Option<ByteInput>,
}

/// The location of a model, and the requests that the settings and the JSON beside it make.
pub(super) struct ModelPlace<'p> {
    /// The path of the model's file, for messages.
    pub(super) file: &'p str,
    pub(super) folder: &'p Path,
    /// True if the JSON beside the model asks for numbers instead of classes.
    pub(super) values: bool,
    /// The name of the one output that the JSON beside the model asks for. `None` for all outputs.
    pub(super) output: Option<&'p str>,
    /// Sizes that the user states for axes that the model leaves open.
    pub(super) sizes: &'p Sizes,
    /// The name of the setting for open sizes, for messages.
    pub(super) sizes_by: &'static str,
    /// The name of the setting for the arithmetic, for messages.
    pub(super) arithmetic_by: &'static str,
    /// True if the program must compute 8-bit integers of the model as integers, not as floats.
    pub(super) integers: bool,
}

impl ModelPlace<'_> {
    /// Keeps only the output that the JSON beside the model names, or all outputs if it names none.
    /// The named tensor may also be one of `inner`, the tensors inside the model.
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

/// Reads the `sizes` of the JSON beside a model. A size is a number, or "N" for the number of
/// records. An object with `constant` states the numbers of an input that becomes a constant.
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

/// Adds one entry of the JSON's `sizes` to `sizes`: the sizes of `name`, or the numbers of a
/// constant.
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

/// Reads a model and the JSON beside it. `lower` converts the model to a draft. `sigmoid` is the
/// format's name for a sigmoid, for messages.
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
        bytes,
    }) = lowered
    {
        facts.bytes = bytes;
        facts.input_shape = Some(draft.shape(draft.graph.inputs[0]));
        facts.order = order;
        facts.output_shape = Some(draft.shape(tail.value));
        (facts.last, facts.output, facts.labels) = (tail.last, tail.output, tail.labels);
        (facts.inputs, facts.outputs) = (inputs, tail.outputs);
        facts.draft = Some(draft);
    }
    model::finish(source.settings, facts, &o, before, files, mistakes)
}

/// Removes nodes whose results no node reads, and a transposition directly behind the input.
///
/// An image that comes pixel by pixel may be transposed at once. Then the record's values are only
/// read in another order, and no node is needed. The reverse transposition is removed too.
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
    // A reshape may come between the input and the transposition.
    let from = match (order, reader(input)) {
        (InputOrder::Chw, Some((Op::Reshape(_), reshaped))) => reshaped,
        _ => input,
    };
    let first = reader(from);
    // True if the values before the transposition are an image pixel by pixel, with the channels
    // last.
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
        // If the image is only flattened behind the transposition, it stays. A later pass permutes
        // the columns of the weights instead.
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
        bytes: None,
    })
}
