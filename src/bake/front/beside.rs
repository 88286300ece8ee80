//! Models of other formats, with a JSON of the same stem beside them that may say what they cannot:
//! name, labels, features, input, output, check.

use super::tail::Tail;
use super::{Source, default_name};
use crate::bake::Mistakes;
use crate::bake::draft::Draft;
use crate::bake::json::{self, Json, Map, Object};
use crate::bake::matrix::Files;
use crate::bake::model::{self, Given, Read};
use crate::ir::graph::Value;
use crate::ir::network::InputOrder;
use crate::ir::op::{Axis, Op};
use std::path::Path;

/// A graph, the order of its input's values, what its output means, and the model's inputs, where
/// it has several.
pub(super) type Lowered = (Draft, InputOrder, Tail, Vec<Value>);

/// Where a model is, and what the JSON beside it asks for.
pub(super) struct Place<'p> {
    /// Its file, for messages.
    pub(super) file: &'p str,
    /// Its folder.
    pub(super) folder: &'p Path,
    /// Whether its output is numbers, not classes.
    pub(super) values: bool,
    /// The one output that is wanted.
    pub(super) output: Option<&'p str>,
}

impl Place<'_> {
    /// Those of a model's outputs, by their names, that are wanted.
    ///
    /// # Errors
    /// Of one that is not there.
    pub(super) fn wanted<T: Copy>(
        &self,
        outputs: impl IntoIterator<Item = (T, String)>,
    ) -> Result<Vec<(T, String)>, String> {
        let all: Vec<(T, String)> = outputs.into_iter().collect();
        let Some(output) = self.output else {
            return Ok(all);
        };
        let found = all.iter().find(|o| o.1 == output).cloned();
        let names = || all.iter().map(|o| &*o.1).collect::<Vec<_>>().join(", ");
        let expected = || {
            format!(
                "output: name: expected one of the model's outputs, {}, found \"{output}\"",
                names()
            )
        };
        found.map(|one| vec![one]).ok_or_else(expected)
    }
}

/// Reads a model that `lower` makes a graph of, and the JSON beside it. `sigmoid`: what the format
/// calls a sigmoid.
pub(super) fn read(
    source: &Source<'_>,
    sigmoid: &'static str,
    files: &mut Files<'_>,
    mistakes: &mut Mistakes,
    lower: impl FnOnce(&Place<'_>, &mut Files<'_>, &mut Mistakes) -> Option<Lowered>,
) -> Option<Read> {
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
    let o = Object::new(&json, place, &model::KEYS, mistakes)?;
    let said = |key: &str| {
        json.get("output")
            .and_then(|o| o.get(key))
            .and_then(Json::as_str)
    };
    let (values, output) = (said("kind") == Some("values"), said("name"));
    let made = lower(
        &Place {
            file: &file,
            folder: &folder,
            values,
            output,
        },
        files,
        mistakes,
    );
    let mut given = Given {
        folder,
        name: default_name(source.path),
        sigmoid,
        keys_in: format!(
            ", in {} beside the model",
            beside.file_name().unwrap_or_default().to_string_lossy()
        ),
        ..Given::default()
    };
    if let Some((draft, order, tail, inputs)) = made {
        given.input = Some(draft.shape(draft.graph.inputs[0]));
        given.order = order;
        given.outputs = Some(draft.shape(tail.value));
        (given.last, given.output, given.labels) = (tail.last, tail.output, tail.labels);
        given.several = (inputs, tail.outputs);
        given.draft = Some(draft);
    }
    model::finish(source.settings, given, &o, before, files, mistakes)
}

/// The draft without what nothing reads. An image that comes pixel by pixel and is turned at once
/// is the same image in another order of the record's values; so is one that comes channel by
/// channel and is turned back.
///
/// # Errors
/// What an operation says of shapes that do not meet.
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
    // The same values in another shape, and then turned.
    let from = match (order, reader(input)) {
        (InputOrder::Chw, Some((Op::Reshape(_), reshaped))) => reshaped,
        _ => input,
    };
    let first = reader(from);
    // Pixel by pixel the values of what is turned come in the order of what it is turned from.
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
        // Weights take up what is only flattened.
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
    Ok((draft, order, tail, inputs))
}
