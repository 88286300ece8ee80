//! The formats of answers, and what each needs from the network and the engine.

use crate::ir::graph::Value;
use crate::ir::network::{FinalActivation, Kind, Network};
use std::borrow::Cow;

/// The format of an answer, which is one output line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnswerFormat {
    /// The index of the class, from 0.
    Class,
    /// The name of the class.
    Label,
    /// The scores of a network that has classes, or the outputs of a network that computes values.
    Scores,
    /// The probability of each class.
    Probs,
    /// The most likely classes with their probabilities. The number is the largest count of
    /// classes.
    Top(usize),
    /// Class, label, probability and scores as a JSON object.
    Json,
}

impl AnswerFormat {
    /// Returns the format called `text` on the command line.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        Ok(match text {
            "class" => AnswerFormat::Class,
            "label" => AnswerFormat::Label,
            "scores" => AnswerFormat::Scores,
            "probs" => AnswerFormat::Probs,
            "json" => AnswerFormat::Json,
            _ => match text.strip_prefix("top=").map(str::parse::<usize>) {
                Some(Ok(k)) if k > 0 => AnswerFormat::Top(k),
                Some(_) => return Err(format!("expected top=K with K at least 1, found {text:?}")),
                None => {
                    return Err(format!(
                        "expected class, label, scores, probs, top=K or json, found {text:?}"
                    ));
                }
            },
        })
    }

    /// Returns the format that is used without the option `-o`.
    pub(crate) fn default_for(kind: Kind) -> Self {
        if kind == Kind::Values {
            AnswerFormat::Scores
        } else {
            AnswerFormat::Class
        }
    }
}

/// The meaning of the scores that the network computes for a record.
#[derive(Clone, Copy)]
pub(crate) struct OutputSpec<'a> {
    pub(crate) kind: Kind,
    /// The function that turns scores into probabilities. For [`Kind::Values`] it turns scores into
    /// the network's outputs.
    pub(crate) activation: FinalActivation,
    /// The probability above which `Binary` and `Multilabel` networks choose a class.
    pub(crate) threshold: f64,
    /// The number of scores of a record.
    pub(crate) outputs: usize,
    /// The names of the classes. Empty if the network's classes have only numbers.
    pub(crate) labels: &'a [Cow<'static, str>],
    /// The network's named outputs. Their values follow each other in the scores. Empty if the
    /// network has only one output.
    pub(crate) named: &'a [Value],
}

impl<'a> OutputSpec<'a> {
    /// Describes the output of `network`.
    pub(crate) fn of(network: &'a Network) -> Self {
        OutputSpec {
            kind: network.output.kind,
            activation: network.output.activation,
            threshold: network.output.threshold,
            outputs: network.outputs(),
            labels: &network.labels,
            named: &network.outputs,
        }
    }

    /// Returns the number of classes. A `Binary` network has two classes, but only one score.
    pub(crate) fn classes(&self) -> usize {
        if self.kind == Kind::Binary {
            2
        } else {
            self.outputs
        }
    }
}

/// The answer to a bad record. In a JSON answer it is the key under which the reason stands.
pub(crate) const ERROR: &str = "error";

/// Returns an error if the answers are labels and a label equals [`ERROR`], which answers bad
/// records. The error is the message of a usage error.
pub(crate) fn check_mark(output: AnswerFormat, spec: &OutputSpec<'_>) -> Result<(), String> {
    match output == AnswerFormat::Label && spec.labels.iter().any(|label| label == ERROR) {
        true => Err(format!(
            "--on-error mark: this network has a class called {ERROR:?}; use -o class or -o json"
        )),
        false => Ok(()),
    }
}

/// Returns the message of a usage error if this network cannot give answers of the format `output`.
pub(crate) fn check(output: AnswerFormat, spec: &OutputSpec<'_>) -> Result<(), String> {
    if spec.kind != Kind::Values {
        return Ok(());
    }
    let name = match output {
        AnswerFormat::Scores | AnswerFormat::Json => return Ok(()),
        AnswerFormat::Class => "class",
        AnswerFormat::Label => "label",
        AnswerFormat::Probs => "probs",
        AnswerFormat::Top(_) => "top",
    };
    Err(format!(
        "-o {name}: this network computes values, no classes; use -o scores or -o json"
    ))
}

/// Returns true if the engine must hand out scores for answers of the format `output`.
pub(crate) fn needs_scores(output: AnswerFormat, spec: &OutputSpec<'_>) -> bool {
    spec.kind != Kind::Classes || !matches!(output, AnswerFormat::Class | AnswerFormat::Label)
}

/// Returns true if the engine must find the class, the index of the largest score. `expect` is true
/// if the classes are compared with those of `--expect`.
pub(crate) fn needs_argmax(output: AnswerFormat, spec: &OutputSpec<'_>, expect: bool) -> bool {
    spec.kind == Kind::Classes
        && (expect
            || matches!(
                output,
                AnswerFormat::Class | AnswerFormat::Label | AnswerFormat::Json
            ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_read_by_their_names_alone() {
        let all = [
            AnswerFormat::Class,
            AnswerFormat::Label,
            AnswerFormat::Scores,
            AnswerFormat::Probs,
            AnswerFormat::Json,
            AnswerFormat::Top(3),
        ];
        assert_eq!(
            ["class", "label", "scores", "probs", "json", "top=3"].map(AnswerFormat::parse),
            all.map(Ok)
        );
        for wrong in ["", "Class", "top", "top=0", "top=x", "top="] {
            let error = AnswerFormat::parse(wrong).unwrap_err();
            assert!(error.starts_with("expected "), "{wrong}");
            assert_eq!(error.contains("at least 1"), wrong.contains('='), "{wrong}");
        }
        let error = AnswerFormat::parse("table").unwrap_err();
        assert!(error.contains("found \"table\""), "{error}");
        assert_eq!(
            AnswerFormat::default_for(Kind::Values),
            AnswerFormat::Scores
        );
        assert_eq!(
            [Kind::Classes, Kind::Binary, Kind::Multilabel].map(AnswerFormat::default_for),
            [AnswerFormat::Class; 3]
        );
    }

    const CLASSES: OutputSpec<'_> = OutputSpec {
        kind: Kind::Classes,
        activation: FinalActivation::Softmax,
        threshold: 0.5,
        outputs: 2,
        labels: &[],
        named: &[],
    };

    #[test]
    fn a_class_called_error_cannot_be_told_from_a_bad_record() {
        let labels = ["good", "error"].map(Cow::from);
        let spec = OutputSpec {
            labels: &labels,
            ..CLASSES
        };
        assert!(
            check_mark(AnswerFormat::Label, &spec)
                .unwrap_err()
                .contains("use -o class or -o json")
        );
        assert_eq!(check_mark(AnswerFormat::Class, &spec), Ok(()));
        let good = OutputSpec {
            labels: &labels[..1],
            ..spec
        };
        assert_eq!(check_mark(AnswerFormat::Label, &good), Ok(()));
    }

    #[test]
    fn what_the_engine_must_deliver() {
        let binary = OutputSpec {
            kind: Kind::Binary,
            activation: FinalActivation::Sigmoid,
            ..CLASSES
        };
        for output in [AnswerFormat::Class, AnswerFormat::Label] {
            assert!(!needs_scores(output, &CLASSES) && needs_argmax(output, &CLASSES, false));
            assert!(needs_scores(output, &binary) && !needs_argmax(output, &binary, true));
        }
        let (json, probs) = (AnswerFormat::Json, AnswerFormat::Probs);
        assert!(needs_scores(json, &CLASSES) && needs_argmax(json, &CLASSES, false));
        assert!(!needs_argmax(probs, &CLASSES, false) && needs_argmax(probs, &CLASSES, true));
    }
}
