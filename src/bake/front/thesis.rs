//! The network JSON (fig. 5.3 of the thesis, extended). It lists the layers, whose weights are in
//! separate files, and the meaning of input and output.

use super::layers::{self, Layers};
use super::tail::NUMBERS;
use super::{Source, default_name};
use crate::bake::Mistakes;
use crate::bake::json::{self, Object};
use crate::bake::matrix::{self, Files};
use crate::bake::meaning::KEYS;
use crate::bake::model::{self, ModelFacts, ReadModel};
use std::path::Path;

/// Reads a network JSON.
pub(super) fn read(
    source: &Source<'_>,
    files: &mut Files<'_>,
    mistakes: &mut Mistakes,
) -> Option<ReadModel> {
    let before = mistakes.lines.len();
    let file = files.shown(source.path);
    let text = matrix::utf8(source.bytes, &file, mistakes)?;
    let value = json::parse(text, &file, mistakes)?;
    let keys: Vec<&str> = ["layers", "size", "inputs", "outputs"]
        .into_iter()
        .chain(KEYS)
        .collect();
    let o = Object::new(&value, file.clone(), &keys, mistakes)?;

    let folder = source.path.parent().unwrap_or(Path::new("")).to_path_buf();
    // Only the shape in `input` is read here. The other keys of `input` are checked later, with the
    // input's scaling.
    let image = o
        .get("input")
        .and_then(|value| Object::any(value, o.at("input")).ok())
        .and_then(|i| layers::shape(&i, mistakes));
    let layers = Layers::read(&o, image, &folder, files, mistakes);
    let facts = ModelFacts {
        folder,
        name: default_name(source.path),
        input_shape: layers.input_shape,
        shaped: true,
        output_shape: layers.output_shape,
        last: layers.last,
        output: Some(NUMBERS).filter(|_| !layers.outputs.is_empty()),
        inputs: layers.inputs,
        outputs: layers.outputs,
        draft: layers.draft,
        sigmoid: "SigmoidLayer",
        ..ModelFacts::default()
    };
    model::finish(source.settings, facts, &o, before, files, mistakes)
}
