//! Reads one entry of `layers` in a network JSON: its name, its form and its inputs.

use super::form::{Form, layers};
use super::members::MemberReader;
use super::{FileLayer, INPUT};
use crate::bake::Mistakes;
use crate::bake::json::{Json, Object, found};
use crate::bake::matrix::Files;
use std::path::Path;

/// The layers that come before the layer being read.
pub(super) struct Earlier<'e> {
    pub(super) layers: &'e [FileLayer],
    /// The number of layers at the beginning that cut the record into the network's named inputs.
    /// They are not in the file.
    pub(super) inputs: usize,
}

impl Earlier<'_> {
    /// Returns the index of the value named `name`: 0 for the network's input, i + 1 for layer i.
    fn value(&self, name: &str) -> Option<usize> {
        match name == INPUT && self.inputs == 0 {
            true => Some(0),
            false => self
                .layers
                .iter()
                .position(|l| l.name == name)
                .map(|i| i + 1),
        }
    }
}

/// Reads the layer that follows `earlier`. `last` is true if the layer may be a softmax.
pub(super) fn read(
    value: &Json,
    file: &str,
    earlier: &Earlier<'_>,
    last: bool,
    folder: &Path,
    files: &mut Files<'_>,
    mistakes: &mut Mistakes,
) -> FileLayer {
    let number = format!("layers[{}]", earlier.layers.len() - earlier.inputs);
    let mut layer = FileLayer {
        shown: number.clone(),
        name: number,
        kind: None,
        inputs: None,
        arrays: Vec::new(),
    };
    if let Some(name) = value.get("name").and_then(Json::as_str) {
        layer.shown += &format!(" ({name})");
        layer.name = name.to_string();
    }
    let place = format!("{file}: {}", layer.shown);
    let kind = value.get("layer").and_then(Json::as_str);
    let Some((_, form)) = layers().find(|(name, _)| Some(*name) == kind) else {
        let names: Vec<&str> = layers().map(|(name, _)| name).collect();
        mistakes.add(
            place,
            format_args!(
                "expected a layer ({}), found {}",
                names.join(", "),
                found(value.get("layer").unwrap_or(value))
            ),
        );
        return layer;
    };
    let inputs_key = match form.inputs() == (1..=1) {
        true => "input",
        false => "inputs",
    };
    let keys = [&["layer", "name", inputs_key], form.keys()].concat();
    let Some(l) = Object::new(value, place, &keys, mistakes) else {
        return layer;
    };
    if l.text("name", mistakes).is_some() {
        check_name(&l, &layer.name, mistakes);
    }
    if let Some(twice) = earlier.layers.iter().find(|e| e.name == layer.name) {
        mistakes.add(l.place(), format_args!("{} has the same name", twice.shown));
    }
    layer.inputs = inputs(&l, form, earlier, mistakes);
    if form == Form::Softmax && !last {
        mistakes.add(l.place(), "a SoftmaxLayer can only be the last layer");
        return layer;
    }
    let mut reader = MemberReader {
        l: &l,
        folder,
        files,
        mistakes,
    };
    (layer.kind, layer.arrays) = (reader.kind(form), reader.arrays(form));
    layer
}

/// Reports a name that no layer or input may have.
pub(super) fn check_name(o: &Object<'_>, name: &str, mistakes: &mut Mistakes) {
    if name.is_empty() || name.contains(|c: char| c.is_control()) {
        mistakes.add(
            o.at("name"),
            "expected a name without line breaks and control characters",
        );
    } else if name == INPUT {
        mistakes.add(
            o.at("name"),
            "\"input\" is the network's input; give another name",
        );
    }
}

/// Returns the indices of the values that a layer reads. A layer that names no input reads the
/// layer before it. `None` after a mistake.
fn inputs(
    l: &Object<'_>,
    form: Form,
    earlier: &Earlier<'_>,
    mistakes: &mut Mistakes,
) -> Option<Vec<usize>> {
    let expected = form.inputs();
    let (key, names) = if *expected.end() == 1 {
        let Some(name) = l.get("input") else {
            if earlier.inputs > 0 && earlier.layers.len() == earlier.inputs {
                mistakes.add(
                    l.place(),
                    "expected the key \"input\" with the name of one of the network's inputs",
                );
                return None;
            }
            return Some(vec![earlier.layers.len()]);
        };
        l.text("input", mistakes)?;
        let names: Vec<String> = name.as_str().into_iter().map(String::from).collect();
        ("input", names)
    } else {
        if !l.require("inputs", mistakes) {
            return None;
        }
        ("inputs", l.texts("inputs", mistakes)?)
    };
    if !expected.contains(&names.len()) {
        let least = expected.start();
        let expected = match least == expected.end() {
            true => format!("{least}"),
            false => format!("at least {least}"),
        };
        mistakes.add(
            l.at(key),
            format_args!("expected {expected} names, found {}", names.len()),
        );
        return None;
    }
    let value = |name: &String| {
        let value = earlier.value(name);
        if value.is_none() {
            let message = match earlier.inputs {
                0 => "expected \"input\" or the name of a layer before this one",
                _ => "expected the name of an input or of a layer before this one",
            };
            mistakes.add(l.at(key), format_args!("{message}, found \"{name}\""));
        }
        value
    };
    let values: Vec<Option<usize>> = names.iter().map(value).collect();
    values.into_iter().collect()
}
