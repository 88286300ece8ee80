//! Tests that the JSON schemas in docs/schemas allow exactly the keys that the build reads.

use super::*;
use serde_json::Value;
use std::collections::BTreeSet;

type Keys = BTreeSet<String>;

fn schema(name: &str) -> Value {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("docs/schemas/{name}.json"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Returns the keys that the schema allows in the object at `pointer`.
fn known(schema: &Value, pointer: &str) -> Keys {
    let object = schema
        .pointer(pointer)
        .unwrap_or_else(|| panic!("the schema has no {pointer}"));
    assert_eq!(object["additionalProperties"], false, "{pointer}");
    object["properties"]
        .as_object()
        .unwrap()
        .keys()
        .cloned()
        .collect()
}

/// Returns the keys that a message about the unknown key `zzz` lists as allowed.
fn expected(mistakes: &[String]) -> Keys {
    let list = mistakes
        .iter()
        .find_map(|m| m.split_once("unknown key \"zzz\"; expected "));
    let list = list.unwrap_or_else(|| panic!("{mistakes:?}")).1;
    assert!(!list.ends_with('…'), "{list}");
    list.split(", ").map(String::from).collect()
}

#[test]
fn of_the_library() {
    let library = schema("library");
    for (pointer, object) in [
        ("", "{\n  \"format\""),
        ("/$defs/kernel", "{\n      \"codename\""),
        (
            "/$defs/kernel/properties/restrictions",
            "\"restrictions\": {",
        ),
        (
            "/$defs/kernel/properties/restrictions/properties/scale",
            "\"scale\": {",
        ),
        (
            "/$defs/kernel/properties/restrictions/properties/tile",
            "\"tile\": {",
        ),
        (
            "/$defs/kernel/properties/restrictions/properties/a",
            "\"a\": {",
        ),
        (
            "/$defs/kernel/properties/restrictions/properties/needs",
            "\"needs\": {",
        ),
        (
            "/$defs/kernel/properties/restrictions/properties/most",
            "\"most\": {",
        ),
        (
            "/$defs/kernel/properties/restrictions/properties/least",
            "\"least\": {",
        ),
        ("/$defs/plan", "{\n      \"name\": \"host\", \"engine\""),
        ("/$defs/plan/properties/few", "\"few\": {"),
        ("/$defs/class", "\"devices\": [\n    {"),
    ] {
        let change = |text: String| {
            assert!(text.contains(object), "{object}");
            let brace = object.find('{').unwrap() + 1;
            text.replacen(
                object,
                &format!("{}\"zzz\": 1, {}", &object[..brace], &object[brace..]),
                1,
            )
        };
        assert_eq!(
            known(&library, pointer),
            expected(&library_mistakes(&change, &[])),
            "{pointer}"
        );
    }

    let restrictions = &library["$defs"]["kernel"]["properties"]["restrictions"]["properties"];
    let expected_where = |arguments: &str, before: &str, after: char| {
        let change = |text: String| text.replacen("\"args\": [\"depth\", \"width\"]", arguments, 1);
        let mistakes = library_mistakes(&change, &[]);
        let found = mistakes
            .iter()
            .find_map(|m| m.split_once(before)?.1.split(after).next());
        found.unwrap_or_else(|| panic!("{mistakes:?}")).to_string()
    };
    let letters = expected_where("\"arglist\": \"?\"", "expected letters of \"", '"');
    assert_eq!(
        restrictions["arglist"]["pattern"],
        format!("^[{letters}]*$")
    );
    let names = expected_where("\"args\": [\"?\"]", "expected one of ", '"');
    let names: Vec<&str> = names.trim_end_matches(", found ").split(", ").collect();
    assert_eq!(
        restrictions["args"]["items"]["enum"],
        serde_json::json!(names)
    );
}

#[test]
fn of_plan_files() {
    let file = plan_file(&[("zzz", 1.into())]).err().unwrap();
    assert_eq!(known(&schema("plan"), ""), expected(&file));
    let layouts = plan_file(&[("layouts", serde_json::json!([{ "zzz": 1 }]))])
        .err()
        .unwrap();
    assert_eq!(
        known(&schema("plan"), "/properties/layouts/items"),
        expected(&layouts)
    );
}

#[test]
fn of_networks_and_matrices() {
    let network = schema("network");
    let f = NetworkFolder::new();
    let own = "/$defs/network";
    for (pointer, extra) in [
        (own, ",\"zzz\":1"),
        ("/$defs/network/properties/input", ",\"input\":{\"zzz\":1}"),
        ("/$defs/network/properties/check", ",\"check\":{\"zzz\":1}"),
        (
            "/$defs/network/properties/inputs/items",
            ",\"inputs\":[{\"zzz\":1},{}]",
        ),
    ] {
        assert_eq!(
            known(&network, pointer),
            expected(&f.tiny(extra).mistakes()),
            "{pointer}"
        );
    }
    // The key `name` of an output is only for JSON files beside a model, where it selects one of
    // several outputs.
    let mut output = known(&network, "/$defs/network/properties/output");
    assert!(output.remove("name"));
    assert_eq!(
        output,
        expected(&f.tiny(",\"output\":{\"zzz\":1}").mistakes())
    );
    let beside: Keys = crate::bake::meaning::BESIDE
        .iter()
        .map(|key| key.to_string())
        .collect();
    assert_eq!(known(&network, "/$defs/beside"), beside);

    let layers = network["$defs"]["layer"]["oneOf"].as_array().unwrap();
    for (number, layer) in layers.iter().enumerate() {
        let pointer = format!("/$defs/layer/oneOf/{number}");
        let name = layer["properties"]["layer"]["const"].as_str().unwrap();
        let f = NetworkFolder::new();
        f.network(&format!("{{\"layer\":\"{name}\",\"zzz\":1}}"), 1, "");
        assert_eq!(known(&network, &pointer), expected(&f.mistakes()), "{name}");
    }
    // The schema has every layer that the message about an unknown layer lists.
    let unknown = NetworkFolder::new();
    unknown.network("{\"layer\":\"Zzz\"}", 1, "");
    let names: Keys = layers
        .iter()
        .map(|l| {
            l["properties"]["layer"]["const"]
                .as_str()
                .unwrap()
                .to_string()
        })
        .collect();
    let message = unknown.mistakes().join(" ");
    let words = message.split(|c: char| !c.is_alphanumeric());
    let read: Keys = words
        .filter(|word| word.ends_with("Layer"))
        .map(String::from)
        .collect();
    assert_eq!(names, read, "{message}");

    let f = NetworkFolder::new();
    f.tiny("").put("1_w.json", "{\"zzz\":1}");
    assert_eq!(known(&schema("matrix"), ""), expected(&f.mistakes()));
}
