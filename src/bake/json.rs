//! JSON with a place for every mistake: typed access to the members of an object.

use super::Mistakes;
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use std::fmt;

/// An object of a JSON file, and where it stands.
pub(crate) struct Object<'v> {
    map: &'v Map<String, Value>,
    place: String,
}

/// Parses a file's text; a syntax error names line and column.
pub(crate) fn parse(text: &str, file: &str, mistakes: &mut Mistakes) -> Option<Value> {
    match serde_json::from_str(text.trim_start_matches('\u{feff}')) {
        Ok(Unique(value)) => Some(value),
        Err(e) => {
            mistakes
                .add(format_args!("{file}:{}:{}", e.line(), e.column()), format_args!("not valid JSON: {e}"));
            None
        }
    }
}

/// A value none of whose objects has a key twice; plain `Value` keeps the last of them.
struct Unique(Value);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Unique;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON value")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Unique, A::Error> {
                let mut map = Map::new();
                while let Some((key, Unique(value))) = members.next_entry::<String, Unique>()? {
                    if map.contains_key(&key) {
                        return Err(A::Error::custom(format_args!("the key \"{key}\" is there twice")));
                    }
                    map.insert(key, value);
                }
                Ok(Unique(Value::Object(map)))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Unique, A::Error> {
                let mut list = Vec::new();
                while let Some(Unique(value)) = items.next_element()? {
                    list.push(value);
                }
                Ok(Unique(Value::Array(list)))
            }

            fn visit_str<E>(self, v: &str) -> Result<Unique, E> {
                Ok(Unique(v.into()))
            }

            fn visit_bool<E>(self, v: bool) -> Result<Unique, E> {
                Ok(Unique(v.into()))
            }

            fn visit_u64<E>(self, v: u64) -> Result<Unique, E> {
                Ok(Unique(v.into()))
            }

            fn visit_i64<E>(self, v: i64) -> Result<Unique, E> {
                Ok(Unique(v.into()))
            }

            fn visit_f64<E>(self, v: f64) -> Result<Unique, E> {
                Ok(Unique(v.into()))
            }

            fn visit_unit<E>(self) -> Result<Unique, E> {
                Ok(Unique(Value::Null))
            }
        }
        from.deserialize_any(Any)
    }
}

/// How a found value is shown in a message: short.
pub(crate) fn found(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() > 40 { text.chars().take(37).chain("...".chars()).collect() } else { text }
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
            mistakes.add(&o.place, format_args!("unknown key \"{key}\"; expected {}", keys.join(", ")));
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
            mistakes.add(self.at(key), format_args!("expected {what}, found {}", found(value)));
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
        self.typed(key, "a whole number", mistakes, |v| v.as_u64().and_then(|n| usize::try_from(n).ok()))
    }

    /// A whole number of 0 or more, or a list of such.
    pub(crate) fn counts(&self, key: &str, mistakes: &mut Mistakes) -> Option<Vec<usize>> {
        let count = |v: &Value| v.as_u64().and_then(|n| usize::try_from(n).ok());
        self.typed(key, "a whole number or a list of whole numbers", mistakes, |v| match v {
            Value::Array(list) => list.iter().map(count).collect(),
            one => count(one).map(|n| vec![n]),
        })
    }

    /// A finite number.
    pub(crate) fn number(&self, key: &str, mistakes: &mut Mistakes) -> Option<f64> {
        self.typed(key, "a number", mistakes, |v| v.as_f64().filter(|x| x.is_finite()))
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
        self.typed(key, "a list of strings", mistakes, |v| {
            v.as_array()?.iter().map(|s| s.as_str().map(String::from)).collect()
        })
    }

    /// A number, or a list of numbers; all finite.
    pub(crate) fn numbers(&self, key: &str, mistakes: &mut Mistakes) -> Option<Vec<f64>> {
        let finite = |v: &Value| v.as_f64().filter(|x| x.is_finite());
        self.typed(key, "a number or a list of numbers", mistakes, |v| match v {
            Value::Array(list) => list.iter().map(finite).collect(),
            one => finite(one).map(|x| vec![x]),
        })
    }
}
