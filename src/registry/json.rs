//! Parsed JSON, and typed access to the members of an object. Each mistake is reported with its
//! place in the file. The build parses with serde_json. The program does not contain serde_json, so
//! `bench --library` uses the program's own parser.

use super::mistakes::Mistakes;
use std::collections::BTreeMap;
use std::fmt;

/// The members of a JSON object by key.
pub(crate) type Map = BTreeMap<String, Json>;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Json {
    Null,
    Bool(bool),
    /// A whole number from 0 on that is written without a point or an exponent.
    Whole(u64),
    /// A number that is not `Whole`: negative, or with a point or an exponent.
    Number(f64),
    String(String),
    Array(Vec<Json>),
    /// An object. The parser refuses objects with repeated keys.
    Object(Map),
}

impl Json {
    pub(crate) fn is_null(&self) -> bool {
        *self == Json::Null
    }

    pub(crate) fn as_bool(&self) -> Option<bool> {
        if let Json::Bool(truth) = self {
            Some(*truth)
        } else {
            None
        }
    }

    pub(crate) fn as_u64(&self) -> Option<u64> {
        if let Json::Whole(n) = self {
            Some(*n)
        } else {
            None
        }
    }

    pub(crate) fn as_f64(&self) -> Option<f64> {
        match self {
            Json::Whole(n) => Some(*n as f64),
            Json::Number(x) => Some(*x),
            _ => None,
        }
    }

    pub(crate) fn as_str(&self) -> Option<&str> {
        if let Json::String(text) = self {
            Some(text)
        } else {
            None
        }
    }

    pub(crate) fn as_array(&self) -> Option<&Vec<Json>> {
        if let Json::Array(list) = self {
            Some(list)
        } else {
            None
        }
    }

    pub(crate) fn is_object(&self) -> bool {
        matches!(self, Json::Object(_))
    }

    /// Returns the member `key` of an object. `None` if the value is no object or lacks the key.
    pub(crate) fn get(&self, key: &str) -> Option<&Json> {
        self.as_object()?.get(key)
    }

    pub(crate) fn as_object(&self) -> Option<&Map> {
        if let Json::Object(map) = self {
            Some(map)
        } else {
            None
        }
    }
}

/// Writes JSON for messages. In strings, `\n` is the only control character that is escaped. The
/// code that prints messages replaces all others.
impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let string = |s: &str| {
            format!(
                "\"{}\"",
                s.replace('\\', "\\\\")
                    .replace('"', "\\\"")
                    .replace('\n', "\\n")
            )
        };
        match self {
            Json::Null => f.write_str("null"),
            Json::Bool(truth) => truth.fmt(f),
            Json::Whole(n) => n.fmt(f),
            // A negative whole number is written without a point, as in the file.
            Json::Number(x) if x.fract() == 0.0 && *x < 0.0 && *x > -1e15 => write!(f, "{x}"),
            Json::Number(x) => write!(f, "{x:?}"),
            Json::String(s) => f.write_str(&string(s)),
            Json::Array(list) => {
                let items: Vec<String> = list.iter().map(Json::to_string).collect();
                write!(f, "[{}]", items.join(","))
            }
            Json::Object(map) => {
                let members: Vec<String> = map
                    .iter()
                    .map(|(k, v)| format!("{}:{v}", string(k)))
                    .collect();
                write!(f, "{{{}}}", members.join(","))
            }
        }
    }
}

/// An object of a JSON file, and its place in the file for messages.
pub(crate) struct Object<'v> {
    map: &'v Map,
    place: String,
}

/// Returns a JSON value as text for a message, shortened to at most 40 characters.
pub(crate) fn found(value: &Json) -> String {
    let text = value.to_string();
    if text.chars().count() > 40 {
        text.chars().take(37).chain("...".chars()).collect()
    } else {
        text
    }
}

impl<'v> Object<'v> {
    /// Reads `value` as an object. Keys other than `keys` are reported as mistakes.
    pub(crate) fn new(
        value: &'v Json,
        place: String,
        keys: &[&str],
        mistakes: &mut Mistakes,
    ) -> Option<Object<'v>> {
        let o = match Object::any(value, place.clone()) {
            Ok(o) => o,
            Err(e) => {
                mistakes.add(place, e);
                return None;
            }
        };
        for key in o.map.keys().filter(|k| !keys.contains(&k.as_str())) {
            mistakes.add(
                &o.place,
                format_args!("unknown key \"{key}\"; expected {}", keys.join(", ")),
            );
        }
        Some(o)
    }

    /// Reads `value` as an object that may have any keys.
    ///
    /// # Errors
    /// The value is no object.
    pub(crate) fn any(value: &'v Json, place: String) -> Result<Object<'v>, String> {
        match value {
            Json::Object(map) => Ok(Object { map, place }),
            _ => Err(format!("expected an object {{…}}, found {}", found(value))),
        }
    }

    /// Returns the place of the object in its file, as messages name it.
    pub(crate) fn place(&self) -> &str {
        &self.place
    }

    pub(crate) fn get(&self, key: &str) -> Option<&'v Json> {
        self.map.get(key)
    }

    /// Returns the place of a member in its file, as messages name it.
    pub(crate) fn at(&self, key: &str) -> String {
        format!("{}: {key}", self.place)
    }

    /// Returns member `key`, converted to a type. `None` if it is missing or cannot be converted. A
    /// failed conversion is also reported as a mistake.
    fn typed<T>(
        &self,
        key: &str,
        what: &str,
        mistakes: &mut Mistakes,
        convert: impl Fn(&'v Json) -> Option<T>,
    ) -> Option<T> {
        let value = self.map.get(key)?;
        let converted = convert(value);
        if converted.is_none() {
            mistakes.add(
                self.at(key),
                format_args!("expected {what}, found {}", found(value)),
            );
        }
        converted
    }

    /// Reports a mistake for each of `keys` that the object lacks.
    pub(crate) fn require_all(&self, keys: &[&str], mistakes: &mut Mistakes) {
        for key in keys {
            self.require(key, mistakes);
        }
    }

    /// Reports a mistake if the object lacks `key`. Returns true if it has `key`.
    pub(crate) fn require(&self, key: &str, mistakes: &mut Mistakes) -> bool {
        let there = self.map.contains_key(key);
        if !there {
            mistakes.add(&self.place, format_args!("the key \"{key}\" is missing"));
        }
        there
    }

    pub(crate) fn text(&self, key: &str, mistakes: &mut Mistakes) -> Option<&'v str> {
        self.typed(key, "a string", mistakes, Json::as_str)
    }

    pub(crate) fn count(&self, key: &str, mistakes: &mut Mistakes) -> Option<usize> {
        self.typed(key, "a whole number", mistakes, |v| {
            v.as_u64().and_then(|n| usize::try_from(n).ok())
        })
    }

    /// Returns a member as a list. The member may be a whole number or a list of whole numbers.
    pub(crate) fn counts(&self, key: &str, mistakes: &mut Mistakes) -> Option<Vec<usize>> {
        let count = |v: &Json| v.as_u64().and_then(|n| usize::try_from(n).ok());
        self.typed(
            key,
            "a whole number or a list of whole numbers",
            mistakes,
            |v| match v {
                Json::Array(list) => list.iter().map(count).collect(),
                one => count(one).map(|n| vec![n]),
            },
        )
    }

    pub(crate) fn number(&self, key: &str, mistakes: &mut Mistakes) -> Option<f64> {
        self.typed(key, "a number", mistakes, |v| {
            v.as_f64().filter(|x| x.is_finite())
        })
    }

    pub(crate) fn flag(&self, key: &str, mistakes: &mut Mistakes) -> Option<bool> {
        self.typed(key, "true or false", mistakes, Json::as_bool)
    }

    pub(crate) fn list(&self, key: &str, mistakes: &mut Mistakes) -> Option<&'v Vec<Json>> {
        self.typed(key, "a list […]", mistakes, Json::as_array)
    }

    pub(crate) fn texts(&self, key: &str, mistakes: &mut Mistakes) -> Option<Vec<String>> {
        let number = self
            .map
            .get(key)
            .and_then(Json::as_array)
            .and_then(|l| l.iter().find(|v| v.as_f64().is_some()));
        let quoted = number.map_or(String::new(), |n| {
            format!(" (numbers in quotes: \"{}\")", found(n))
        });
        self.typed(key, &format!("a list of strings{quoted}"), mistakes, |v| {
            v.as_array()?
                .iter()
                .map(|s| s.as_str().map(String::from))
                .collect()
        })
    }

    /// Returns a member as a list. The member may be a finite number or a list of finite numbers.
    pub(crate) fn numbers(&self, key: &str, mistakes: &mut Mistakes) -> Option<Vec<f64>> {
        let finite = |v: &Json| v.as_f64().filter(|x| x.is_finite());
        self.typed(
            key,
            "a number or a list of numbers",
            mistakes,
            |v| match v {
                Json::Array(list) => list.iter().map(finite).collect(),
                one => finite(one).map(|x| vec![x]),
            },
        )
    }
}
