//! Network JSON (the thesis, fig. 5.3, extended): layers, their weights in files of their own, and
//! what they mean.

use super::layers::{self, Layers};
use super::tail::NUMBERS;
use super::{Source, default_name};
use crate::bake::Mistakes;
use crate::bake::json::{self, Object};
use crate::bake::matrix::{self, Files};
use crate::bake::model::{self, Given, Read};
use std::path::Path;

/// Reads a network JSON.
pub(super) fn read(
    source: &Source<'_>,
    files: &mut Files<'_>,
    mistakes: &mut Mistakes,
) -> Option<Read> {
    let before = mistakes.lines.len();
    let file = files.shown(source.path);
    let text = matrix::utf8(source.bytes, &file, mistakes)?;
    let value = json::parse(text, &file, mistakes)?;
    let keys: Vec<&str> = ["layers", "size", "inputs", "outputs"]
        .into_iter()
        .chain(model::KEYS)
        .collect();
    let o = Object::new(&value, file.clone(), &keys, mistakes)?;

    let folder = source.path.parent().unwrap_or(Path::new("")).to_path_buf();
    // Whether it is an object, and what else is in it, is seen to where the scaling is read.
    let image = o
        .get("input")
        .and_then(|value| Object::any(value, o.at("input")).ok());
    let image = image.and_then(|i| layers::shape(&i, mistakes));
    let layers = Layers::read(&o, image, &folder, files, mistakes);
    let given = Given {
        folder,
        name: default_name(source.path),
        input: layers.input,
        shaped: true,
        outputs: layers.output,
        last: layers.last,
        output: Some(NUMBERS).filter(|_| !layers.several.1.is_empty()),
        several: layers.several.clone(),
        sigmoid: "SigmoidLayer",
        ..Given::default()
    };
    let draft = match given.input {
        Some(input) if mistakes.lines.len() == before => layers
            .draft(input)
            .map_err(|e| mistakes.add(o.place(), e))
            .ok(),
        _ => None,
    };
    model::finish(
        source.settings,
        Given { draft, ..given },
        &o,
        before,
        files,
        mistakes,
    )
}
