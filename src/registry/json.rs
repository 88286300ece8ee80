//! The values of a JSON file, whoever has parsed it, with a place for every mistake: typed access
//! to the members of an object. The build parses with serde_json, the program, which has none, by
//! itself (`bench --library`).

use super::mistakes::Mistakes;
use std::collections::BTreeMap;
use std::fmt;

/// The members of an object.
pub(crate) type Map = BTreeMap<String, Value>;

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A whole number of 0 or more, without a point or an exponent.
    Whole(u64),
    /// Any other number.
    Number(f64),
    /// A string.
    String(String),
    /// A list.
    Array(Vec<Value>),
    /// An object, none of whose keys is there twice.
    Object(Map),
}

impl Value {
    /// Whether it is null.
    pub(crate) fn is_null(&self) -> bool {
        *self == Value::Null
    }

    /// The truth that it is.
    pub(crate) fn as_bool(&self) -> Option<bool> {
        if let Value::Bool(truth) = self {
            Some(*truth)
        } else {
            None
        }
    }

    /// The whole number of 0 or more that it is.
    pub(crate) fn as_u64(&self) -> Option<u64> {
        if let Value::Whole(n) = self {
            Some(*n)
        } else {
            None
        }
    }

    /// The number that it is.
    pub(crate) fn as_f64(&self) -> Option<f64> {
        match self {
            Value::Whole(n) => Some(*n as f64),
            Value::Number(x) => Some(*x),
            _ => None,
        }
    }

    /// The string that it is.
    pub(crate) fn as_str(&self) -> Option<&str> {
        if let Value::String(text) = self {
            Some(text)
        } else {
            None
        }
    }

    /// The list that it is.
    pub(crate) fn as_array(&self) -> Option<&Vec<Value>> {
        if let Value::Array(list) = self {
            Some(list)
        } else {
            None
        }
    }

    /// Whether it is an object.
    pub(crate) fn is_object(&self) -> bool {
        matches!(self, Value::Object(_))
    }

    /// A member, if it is an object that has it.
    pub(crate) fn get(&self, key: &str) -> Option<&Value> {
        self.as_object()?.get(key)
    }

    /// The members of the object that it is.
    pub(crate) fn as_object(&self) -> Option<&Map> {
        if let Value::Object(map) = self {
            Some(map)
        } else {
            None
        }
    }
}

/// As JSON; in strings only quotes and backslashes are escaped, since messages replace what else
/// would have to be.
impl fmt::Display for Value {
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
            Value::Null => f.write_str("null"),
            Value::Bool(truth) => truth.fmt(f),
            Value::Whole(n) => n.fmt(f),
            // Whole numbers below 0 have no point.
            Value::Number(x) if x.fract() == 0.0 && *x < 0.0 && *x > -1e15 => write!(f, "{x}"),
            Value::Number(x) => write!(f, "{x:?}"),
            Value::String(s) => f.write_str(&string(s)),
            Value::Array(list) => {
                let items: Vec<String> = list.iter().map(Value::to_string).collect();
                write!(f, "[{}]", items.join(","))
            }
            Value::Object(map) => {
                let members: Vec<String> = map
                    .iter()
                    .map(|(k, v)| format!("{}:{v}", string(k)))
                    .collect();
                write!(f, "{{{}}}", members.join(","))
            }
        }
    }
}

/// An object of a JSON file, and where it stands.
pub(crate) struct Object<'v> {
    map: &'v Map,
    place: String,
}

/// How a found value is shown in a message: short.
pub(crate) fn found(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() > 40 {
        text.chars().take(37).chain("...".chars()).collect()
    } else {
        text
    }
}

impl<'v> Object<'v> {
    /// `value` as an object with no other keys than `keys`.
    pub(crate) fn new(
        value: &'v Value,
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

    /// `value` as an object with any keys.
    ///
    /// # Errors
    /// It is none.
    pub(crate) fn any(value: &'v Value, place: String) -> Result<Object<'v>, String> {
        match value {
            Value::Object(map) => Ok(Object { map, place }),
            _ => Err(format!("expected an object {{…}}, found {}", found(value))),
        }
    }

    /// Where the object stands.
    pub(crate) fn place(&self) -> &str {
        &self.place
    }

    /// The member, if it is there.
    pub(crate) fn get(&self, key: &str) -> Option<&'v Value> {
        self.map.get(key)
    }

    /// The place of a member.
    pub(crate) fn at(&self, key: &str) -> String {
        format!("{}: {key}", self.place)
    }

    fn typed<T>(
        &self,
        key: &str,
        what: &str,
        mistakes: &mut Mistakes,
        convert: impl Fn(&'v Value) -> Option<T>,
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

    /// Reports a missing member.
    pub(crate) fn require(&self, key: &str, mistakes: &mut Mistakes) -> bool {
        let there = self.map.contains_key(key);
        if !there {
            mistakes.add(&self.place, format_args!("the key \"{key}\" is missing"));
        }
        there
    }

    /// A string member.
    pub(crate) fn text(&self, key: &str, mistakes: &mut Mistakes) -> Option<&'v str> {
        self.typed(key, "a string", mistakes, Value::as_str)
    }

    /// A whole number of 0 or more.
    pub(crate) fn count(&self, key: &str, mistakes: &mut Mistakes) -> Option<usize> {
        self.typed(key, "a whole number", mistakes, |v| {
            v.as_u64().and_then(|n| usize::try_from(n).ok())
        })
    }

    /// A whole number of 0 or more, or a list of such.
    pub(crate) fn counts(&self, key: &str, mistakes: &mut Mistakes) -> Option<Vec<usize>> {
        let count = |v: &Value| v.as_u64().and_then(|n| usize::try_from(n).ok());
        self.typed(
            key,
            "a whole number or a list of whole numbers",
            mistakes,
            |v| match v {
                Value::Array(list) => list.iter().map(count).collect(),
                one => count(one).map(|n| vec![n]),
            },
        )
    }

    /// A finite number.
    pub(crate) fn number(&self, key: &str, mistakes: &mut Mistakes) -> Option<f64> {
        self.typed(key, "a number", mistakes, |v| {
            v.as_f64().filter(|x| x.is_finite())
        })
    }

    /// true or false.
    pub(crate) fn flag(&self, key: &str, mistakes: &mut Mistakes) -> Option<bool> {
        self.typed(key, "true or false", mistakes, Value::as_bool)
    }

    /// A list.
    pub(crate) fn list(&self, key: &str, mistakes: &mut Mistakes) -> Option<&'v Vec<Value>> {
        self.typed(key, "a list […]", mistakes, Value::as_array)
    }

    /// A list of strings.
    pub(crate) fn texts(&self, key: &str, mistakes: &mut Mistakes) -> Option<Vec<String>> {
        let number = self
            .map
            .get(key)
            .and_then(Value::as_array)
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

    /// A number, or a list of numbers; all finite.
    pub(crate) fn numbers(&self, key: &str, mistakes: &mut Mistakes) -> Option<Vec<f64>> {
        let finite = |v: &Value| v.as_f64().filter(|x| x.is_finite());
        self.typed(
            key,
            "a number or a list of numbers",
            mistakes,
            |v| match v {
                Value::Array(list) => list.iter().map(finite).collect(),
                one => finite(one).map(|x| vec![x]),
            },
        )
    }
}
