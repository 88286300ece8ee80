//! Models of other formats, with a JSON of the same name beside them that may state what they
//! cannot: name, labels, features, input, output, check.

use super::constant::Element;
use super::tail::Tail;
use super::{Source, default_name};
use crate::bake::Mistakes;
use crate::bake::draft::Draft;
use crate::bake::json::{self, Json, Map, Object};
use crate::bake::matrix::Files;
use crate::bake::meaning::KEYS;
use crate::bake::model::{self, ModelFacts, ReadModel};
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

/// An input of a model.
pub(super) struct ModelInput {
    /// The number of records, where the model states it.
    pub(super) records: Option<usize>,
    /// The sizes behind the number of records.
    pub(super) dims: Vec<usize>,
    /// The type that values are computed in.
    pub(super) kind: Element,
}

/// The place of a model, and the wishes of the JSON beside it.
pub(super) struct ModelPlace<'p> {
    /// The file, for messages.
    pub(super) file: &'p str,
    pub(super) folder: &'p Path,
    /// True if the JSON asks for numbers instead of classes.
    pub(super) values: bool,
    /// The one output that the JSON asks for.
    pub(super) output: Option<&'p str>,
}

impl ModelPlace<'_> {
    /// Keeps the one output that the JSON names, or all outputs if it names none.
    ///
    /// # Errors
    /// The model has no such output.
    pub(super) fn wanted<T: Copy>(
        &self,
        outputs: impl IntoIterator<Item = (T, String)>,
    ) -> Result<Vec<(T, String)>, String> {
        let all: Vec<(T, String)> = outputs.into_iter().collect();
        let Some(output) = self.output else {
            return Ok(all);
        };
        match all.iter().find(|(_, name)| name == output) {
            Some(one) => Ok(vec![one.clone()]),
            None => {
                let names: Vec<&str> = all.iter().map(|(_, name)| &**name).collect();
                Err(format!(
                    "output: name: expected one of the model's outputs, {}, found \"{output}\"",
                    names.join(", ")
                ))
            }
        }
    }
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
    let o = Object::new(&json, place, &KEYS, mistakes)?;
    let stated = |key: &str| json.get("output")?.get(key)?.as_str();
    let place = ModelPlace {
        file: &file,
        folder: &folder,
        values: stated("kind") == Some("values"),
        output: stated("name"),
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
