//! Tests of output lines in all formats, for all kinds of networks.

use super::super::check;
use super::*;
use crate::engine::{NAN_CLASS, Record};
use crate::error::ErrorKind;
use crate::ir::graph::{self, Shape};
use proptest::prelude::*;
use serde_json::Value;
use std::borrow::Cow;

const CLASSES: OutputSpec<'_> = OutputSpec {
    kind: Kind::Classes,
    activation: FinalActivation::Softmax,
    threshold: 0.5,
    outputs: 2,
    labels: &[],
    named: &[],
};
const BINARY: OutputSpec<'_> = OutputSpec {
    kind: Kind::Binary,
    activation: FinalActivation::Sigmoid,
    ..CLASSES
};
const MULTILABEL: OutputSpec<'_> = OutputSpec {
    kind: Kind::Multilabel,
    ..BINARY
};
const VALUES: OutputSpec<'_> = OutputSpec {
    kind: Kind::Values,
    activation: FinalActivation::None,
    ..CLASSES
};

fn answer<'a>(class: Option<u32>, scores: &'a [f32], rows: &'a [u32]) -> Answer<'a> {
    Answer {
        class,
        scores: Record::new(scores, &rows[..scores.len()], 0),
    }
}

fn try_line(
    output: AnswerFormat,
    spec: &OutputSpec<'_>,
    class: Option<u32>,
    scores: &[f32],
) -> Result<String, Error> {
    let rows: Vec<u32> = (0..scores.len() as u32).collect();
    let spec = OutputSpec {
        outputs: scores.len(),
        ..*spec
    };
    check(output, &spec).map_err(Error::usage)?;
    let mut out = Vec::new();
    let mut writer = ResultWriter::new(&mut out, output, spec);
    assert_eq!((writer.records(), writer.marked()), (0, 0));
    writer.write(answer(class, scores, &rows), || "stdin:17".into())?;
    assert_eq!((writer.records(), writer.marked()), (1, 0));
    writer.flush()?;
    let text = String::from_utf8(out).unwrap();
    assert_eq!(text.matches('\n').count(), 1);
    Ok(text.trim_end_matches('\n').into())
}

fn line(output: AnswerFormat, spec: &OutputSpec<'_>, scores: &[f32]) -> String {
    try_line(output, spec, None, scores).unwrap()
}

/// In JSON each output stands under its name. The longest possible line fits in the buffer.
#[test]
fn several_outputs() {
    let part = |name: &'static str, shape| graph::Value {
        name: name.into(),
        shape,
    };
    let named = [
        part("mask", Shape { c: 1, h: 2, w: 2 }),
        part("a\"\u{1}b", Shape::vector(1)),
        part("", Shape::vector(1)),
    ];
    let spec = OutputSpec {
        activation: FinalActivation::Tanh,
        outputs: 6,
        named: &named,
        ..VALUES
    };
    let (scores, rows) = (
        [0.0, 0.5, -1.0, 100.0, f32::MIN_POSITIVE, -f32::MIN_POSITIVE],
        [0, 1, 2, 3, 4, 5],
    );
    let mut out = Vec::new();
    let mut writer = ResultWriter::new(&mut out, AnswerFormat::Json, spec);
    let capacity = writer.buffer.capacity();
    writer
        .write(answer(None, &scores, &rows), String::new)
        .unwrap();
    assert_eq!(writer.buffer.capacity(), capacity);
    writer.flush().unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(text.len() < capacity - BUFFER, "{text}");
    let line: Value = serde_json::from_str(&text).unwrap();
    let keys: Vec<&String> = line.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["outputs", "record", "scores"]);
    let all = line["scores"].as_array().unwrap();
    assert_eq!(line["outputs"]["mask"].as_array().unwrap()[..], all[..4]);
    assert_eq!(
        line["outputs"]["a\"\u{1}b"].as_array().unwrap()[..],
        all[4..5]
    );
    assert_eq!(line["outputs"][""].as_array().unwrap()[..], all[5..]);
    assert_eq!(
        line["scores"][1].as_f64().unwrap() as f32,
        0.5f64.tanh() as f32
    );
    // Except in JSON, the values of all outputs stand in one list.
    let mut out = Vec::new();
    let mut writer = ResultWriter::new(&mut out, AnswerFormat::Scores, spec);
    writer
        .write(answer(None, &scores[..4], &rows), String::new)
        .unwrap();
    writer.flush().unwrap();
    assert_eq!(out.split(|&b| b == b',').count(), 4);
}

#[test]
fn classes() {
    let scores = [1.0, 3.5, -2.0, 3.5];
    assert_eq!(line(AnswerFormat::Class, &CLASSES, &scores), "1");
    assert_eq!(
        try_line(AnswerFormat::Class, &CLASSES, Some(4_000_000_000), &[]).unwrap(),
        "4000000000"
    );
    assert_eq!(line(AnswerFormat::Label, &CLASSES, &scores), "1");
    let labels = ["a", "b\"c", "d", "e"].map(Cow::from);
    let named = OutputSpec {
        labels: &labels,
        ..CLASSES
    };
    assert_eq!(line(AnswerFormat::Label, &named, &scores), "b\"c");
    assert_eq!(
        line(AnswerFormat::Scores, &CLASSES, &scores),
        "1,3.5,-2,3.5"
    );
    let probs = line(AnswerFormat::Probs, &CLASSES, &[0.0, 0.0]);
    assert_eq!(probs, "0.5,0.5");
    assert_eq!(
        line(AnswerFormat::Top(2), &CLASSES, &[0.0, 0.0, 0.0, 0.0]),
        "0:0.25,1:0.25"
    );
    assert_eq!(line(AnswerFormat::Top(1), &CLASSES, &[0.0, 100.0]), "1:1");
    let elementwise = OutputSpec {
        activation: FinalActivation::None,
        ..CLASSES
    };
    assert_eq!(
        line(AnswerFormat::Top(9), &elementwise, &scores),
        "1:3.5,3:3.5,0:1,2:-2"
    );
    let json: Value = serde_json::from_str(&line(AnswerFormat::Json, &named, &scores)).unwrap();
    assert_eq!(json["record"], 0);
    assert_eq!(json["class"], 1);
    assert_eq!(json["label"], "b\"c");
    assert_eq!(json["scores"], serde_json::json!([1, 3.5, -2, 3.5]));
    assert!((json["probability"].as_f64().unwrap() - 0.479).abs() < 1e-3);
    assert_eq!(
        line(AnswerFormat::Json, &CLASSES, &[0.0, 0.0]),
        "{\"record\":0,\"class\":0,\"label\":\"0\",\"probability\":0.5,\"scores\":[0,0]}"
    );
}

#[test]
fn binary() {
    for (score, class) in [
        (0.1, "1"),
        (0.0, "0"),
        (-3.0, "0"),
        (1e-7, "1"),
        (200.0, "1"),
    ] {
        assert_eq!(
            line(AnswerFormat::Class, &BINARY, &[score]),
            class,
            "{score}"
        );
    }
    assert_eq!(line(AnswerFormat::Probs, &BINARY, &[0.0]), "0.5,0.5");
    assert_eq!(line(AnswerFormat::Scores, &BINARY, &[-3.0]), "-3");
    assert_eq!(line(AnswerFormat::Top(5), &BINARY, &[0.0]), "0:0.5,1:0.5");
    assert_eq!(line(AnswerFormat::Top(1), &BINARY, &[40.0]), "1:1");
    // The probability 1 − p is computed in f64, before it is rounded to f32.
    assert_eq!(
        line(AnswerFormat::Probs, &BINARY, &[20.0]),
        "2.0611537e-9,1"
    );
    let labels = ["no", "yes"].map(Cow::from);
    let named = OutputSpec {
        labels: &labels,
        ..BINARY
    };
    assert_eq!(line(AnswerFormat::Label, &named, &[1.0]), "yes");
    let json: Value = serde_json::from_str(&line(AnswerFormat::Json, &named, &[-1.0])).unwrap();
    assert_eq!((&json["class"], &json["label"]), (&0.into(), &"no".into()));
    assert!((json["probability"].as_f64().unwrap() - 0.731).abs() < 1e-3);
    assert_eq!(json["scores"], serde_json::json!([-1]));
}

#[test]
fn multilabel() {
    let scores = [1.0, -1.0, 0.0, 2.0];
    assert_eq!(line(AnswerFormat::Class, &MULTILABEL, &scores), "0,3");
    assert_eq!(line(AnswerFormat::Class, &MULTILABEL, &[-1.0, -2.0]), "");
    let labels = ["a", "b", "c", "d"].map(Cow::from);
    let named = OutputSpec {
        labels: &labels,
        ..MULTILABEL
    };
    assert_eq!(line(AnswerFormat::Label, &named, &scores), "a,d");
    assert_eq!(line(AnswerFormat::Label, &MULTILABEL, &scores), "0,3");
    assert_eq!(
        line(AnswerFormat::Probs, &MULTILABEL, &[0.0, 100.0]),
        "0.5,1"
    );
    assert!(line(AnswerFormat::Top(2), &MULTILABEL, &scores).starts_with("3:0.880797"));
    let json: Value = serde_json::from_str(&line(AnswerFormat::Json, &named, &scores)).unwrap();
    assert_eq!(json["class"], serde_json::json!([0, 3]));
    assert_eq!(json["label"], serde_json::json!(["a", "d"]));
    assert_eq!(json["probability"].as_array().unwrap().len(), 4);
    let none: Value = serde_json::from_str(&line(AnswerFormat::Json, &named, &[-1.0; 4])).unwrap();
    assert_eq!(none["class"], serde_json::json!([]));
}

#[test]
fn values() {
    assert_eq!(line(AnswerFormat::Scores, &VALUES, &[1.5, -2.0]), "1.5,-2");
    let sigmoid = OutputSpec {
        activation: FinalActivation::Sigmoid,
        ..VALUES
    };
    assert_eq!(line(AnswerFormat::Scores, &sigmoid, &[0.0]), "0.5");
    assert_eq!(
        line(AnswerFormat::Json, &sigmoid, &[0.0]),
        "{\"record\":0,\"scores\":[0.5]}"
    );
    for name in ["class", "label", "probs", "top=1"] {
        let output = AnswerFormat::parse(name).unwrap();
        let error = try_line(output, &VALUES, None, &[1.0]).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().ends_with("use -o scores or -o json"));
    }
}

#[test]
fn an_overflow_is_an_error_for_every_output_and_kind() {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    for (class, scores, found) in [
        (
            Some(NAN_CLASS),
            &[][..],
            "found one that is infinite or NaN",
        ),
        (None, &[1.0, nan], "found a score of NaN"),
        (None, &[inf, 1.0], "found a score of inf"),
        (None, &[-inf, -inf], "found a score of -inf"),
        // The device gives a class, although the scores are not all finite.
        (Some(0), &[1.0, -inf], "found a score of -inf"),
    ] {
        for name in ["class", "label", "scores", "probs", "top=1", "json"] {
            let output = AnswerFormat::parse(name).unwrap();
            let error = try_line(output, &CLASSES, class, scores).unwrap_err();
            assert_eq!(error.exit_code(), 1);
            let error = error.to_string();
            let start = "stdin:17: record 1 of the run: overflow in f32: expected finite scores, ";
            assert!(error.starts_with(&format!("{start}{found} (")), "{error}");
        }
    }
    for score in [inf, -inf, nan] {
        assert!(try_line(AnswerFormat::Class, &BINARY, None, &[score]).is_err());
        assert!(try_line(AnswerFormat::Class, &MULTILABEL, None, &[1.0, score]).is_err());
        for activation in [
            FinalActivation::None,
            FinalActivation::Sigmoid,
            FinalActivation::Tanh,
        ] {
            let values = OutputSpec {
                activation,
                ..VALUES
            };
            assert!(try_line(AnswerFormat::Scores, &values, None, &[score]).is_err());
        }
    }
    assert_eq!(
        line(AnswerFormat::Scores, &VALUES, &[f32::MAX, f32::MIN]),
        "3.4028235e38,-3.4028235e38"
    );
}

/// `--expect-scores` compares the same scores that `-o scores` writes.
#[test]
fn the_last_scores_are_those_that_are_written() {
    let sigmoid = OutputSpec {
        activation: FinalActivation::Sigmoid,
        ..VALUES
    };
    for (spec, expected) in [
        (CLASSES, [0.0, 1.5]),
        (MULTILABEL, [0.0, 1.5]),
        (sigmoid, [0.5, 0.817_574_5]),
    ] {
        let mut writer = ResultWriter::new(Vec::new(), AnswerFormat::Json, spec);
        let answer = answer(None, &[0.0, 1.5], &[0, 1]);
        writer.write(answer, String::new).unwrap();
        assert_eq!(writer.last_scores(&answer).collect::<Vec<_>>(), expected);
    }
}

/// An output whose writes fail.
struct Broken {
    error: io::ErrorKind,
}

impl io::Write for Broken {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(self.error.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_closed_pipe_is_no_error_like_others() {
    let rows = [0];
    let spec = OutputSpec {
        outputs: 1,
        ..VALUES
    };
    let run = |error| {
        let mut writer = ResultWriter::new(Broken { error }, AnswerFormat::Scores, spec);
        // The buffer is full long before the last answer, and is then written to the broken output.
        let mut write = || {
            writer
                .write(answer(None, &[1.0], &rows), String::new)
                .map(|_| ())
        };
        (0..1 << 16).try_for_each(|_| write()).unwrap_err()
    };
    assert!(matches!(
        run(io::ErrorKind::BrokenPipe).kind(),
        ErrorKind::ClosedOutput
    ));
    let full = run(io::ErrorKind::StorageFull);
    assert!(matches!(full.kind(), ErrorKind::Io { place, .. } if place == "stdout"));
}

proptest! {
    #[test]
    fn numbers_read_back_as_they_were(bits in any::<u32>()) {
        let x = f32::from_bits(bits);
        prop_assume!(x.is_finite());
        let text = line(AnswerFormat::Scores, &VALUES, &[x]);
        prop_assert!(text.len() <= 18, "{}", text);
        prop_assert_eq!(text.parse::<f32>().unwrap().to_bits(), x.to_bits());
        prop_assert!(serde_json::from_str::<Value>(&text).is_ok());
    }

    #[test]
    fn labels_survive_json(label in "\\PC{0,9}[\"\\\\\t\r\n\u{1}\u{1f}ä]?") {
        let labels = [Cow::from(label.clone())];
        let json = line(AnswerFormat::Json, &OutputSpec { labels: &labels, ..CLASSES }, &[1.0]);
        let read: Value = serde_json::from_str(&json).unwrap();
        prop_assert_eq!(&read["label"], &Value::from(label));
    }

    #[test]
    fn top_is_the_start_of_the_sorted_list(
        scores in proptest::collection::vec(-3i8..3, 1..20),
        k in 1usize..25,
    ) {
        let scores: Vec<f32> = scores.into_iter().map(f32::from).collect();
        let mut order: Vec<usize> = (0..scores.len()).collect();
        order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
        let text = line(AnswerFormat::Top(k), &CLASSES, &scores);
        let class = |item: &str| item.split(':').next().unwrap().parse().unwrap();
        let found: Vec<usize> = text.split(',').map(class).collect();
        prop_assert_eq!(&found[..], &order[..k.min(scores.len())]);
    }
}
