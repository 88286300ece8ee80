//! Models of other formats, with a JSON of the same stem beside them that may say what they cannot: name, labels, features,
//! input, output, check.

use super::tail::Tail;
use super::{Source, default_name};
use crate::bake::Mistakes;
use crate::bake::draft::Draft;
use crate::bake::json::{self, Object};
use crate::bake::matrix::Files;
use crate::bake::model::{self, Given, Read};
use crate::ir::network::InputOrder;
use serde_json::{Map, Value as Json};
use std::path::Path;

/// A graph, the order of its input's values, and what its output means.
pub(super) type Lowered = (Draft, InputOrder, Tail);

/// Where a model is, and what the JSON beside it asks for.
pub(super) struct Place<'p> {
    /// Its file, for messages.
    pub(super) file: &'p str,
    /// Its folder.
    pub(super) folder: &'p Path,
    /// Whether its output is numbers, not classes.
    pub(super) values: bool,
}

/// Reads a model that `lower` makes a graph of, and the JSON beside it. `sigmoid`: what the format calls a sigmoid.
pub(super) fn read(
    source: &Source<'_>,
    sigmoid: &'static str,
    files: &mut Files<'_>,
    mistakes: &mut Mistakes,
    lower: impl FnOnce(&Place<'_>, &mut Files<'_>, &mut Mistakes) -> Option<Lowered>,
) -> Option<Read> {
    let before = mistakes.0.len();
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
    let values = json.get("output").and_then(|o| o.get("kind")).and_then(Json::as_str) == Some("values");

    let made = lower(&Place { file: &file, folder: &folder, values }, files, mistakes);
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
    if let Some((draft, order, tail)) = made {
        given.input = Some(draft.shape(draft.graph.inputs[0]));
        given.order = order;
        given.outputs = Some(draft.shape(tail.value));
        (given.last, given.output, given.labels) = (tail.last, tail.output, tail.labels);
        given.draft = Some(draft);
    }
    model::finish(source.settings, given, &o, before, files, mistakes)
}
