//! Parses the JSON files of models, libraries and plans with serde_json.

use super::Mistakes;
pub(crate) use crate::registry::json::{Json, Map, Object, found};
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// Parses the text of a JSON file. A syntax error is reported with its line and column.
pub(crate) fn parse(text: &str, file: &str, mistakes: &mut Mistakes) -> Option<Json> {
    match serde_json::from_str(text.trim_start_matches('\u{feff}')) {
        Ok(Unique(value)) => Some(value),
        Err(e) => {
            mistakes.add(
                format_args!("{file}:{}:{}", e.line(), e.column()),
                format_args!("not valid JSON: {e}"),
            );
            None
        }
    }
}

/// A JSON value in which no object has the same key twice. (serde_json's own type accepts such
/// objects and keeps the last value.)
struct Unique(Json);

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
                        return Err(A::Error::custom(format_args!(
                            "the key \"{key}\" appears twice"
                        )));
                    }
                    map.insert(key, value);
                }
                Ok(Unique(Json::Object(map)))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Unique, A::Error> {
                let mut list = Vec::new();
                while let Some(Unique(value)) = items.next_element()? {
                    list.push(value);
                }
                Ok(Unique(Json::Array(list)))
            }

            fn visit_str<E>(self, v: &str) -> Result<Unique, E> {
                Ok(Unique(Json::String(v.into())))
            }

            fn visit_bool<E>(self, v: bool) -> Result<Unique, E> {
                Ok(Unique(Json::Bool(v)))
            }

            fn visit_u64<E>(self, v: u64) -> Result<Unique, E> {
                Ok(Unique(Json::Whole(v)))
            }

            fn visit_i64<E>(self, v: i64) -> Result<Unique, E> {
                Ok(Unique(Json::Number(v as f64)))
            }

            fn visit_f64<E>(self, v: f64) -> Result<Unique, E> {
                Ok(Unique(Json::Number(v)))
            }

            fn visit_unit<E>(self) -> Result<Unique, E> {
                Ok(Unique(Json::Null))
            }
        }
        from.deserialize_any(Any)
    }
}
