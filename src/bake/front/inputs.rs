//! The inputs of a model: the sizes of their axes, and the choice of the axis of the records.

use super::constant::{self, ConstantTensor, Data, Element, Int};
use super::value::Live;
use crate::bake::Mistakes;
use crate::bake::sizes::{Size, Sizes};

/// An input as the model declares it.
pub(super) struct DeclaredInput {
    pub(super) name: String,
    /// A second name by which the user may state the input's sizes.
    pub(super) also: Option<String>,
    /// The sizes of the input's axes. `None` if the model states none.
    pub(super) axes: Option<Vec<AxisSize>>,
    /// The element type of the input in the model.
    pub(super) kind: Element,
}

/// The size of one axis of a model's input.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum AxisSize {
    Known(usize),
    /// A size that the model leaves open. The text is the dimension's name and may be empty.
    Open(String),
}

impl AxisSize {
    fn known(&self) -> Option<usize> {
        match self {
            AxisSize::Known(n) => Some(*n),
            AxisSize::Open(_) => None,
        }
    }
}

/// The inputs of a model after all their sizes are known.
pub(super) struct Arranged {
    /// The inputs that stay inputs, in the order of the model. `Live::value` is 0 in all of them,
    /// because they have no index in the draft yet.
    pub(super) values: Vec<Live>,
    /// For each input of the model, the constant that replaces it. `None` if it stays an input.
    pub(super) constants: Vec<Option<ConstantTensor>>,
    /// The number of records, if the model states it.
    pub(super) records: Option<usize>,
    /// True if the first axis has a fixed size above 1 and is taken as the axis of the records.
    pub(super) supposed: bool,
}

/// Finds the sizes of all inputs and the axis of the records, which is an input's one open axis. A
/// model whose sizes are all fixed computes one record at a time, without such an axis.
///
/// There is an exception. If all inputs have the same first size above 1, it is taken as the number
/// of records, unless `single` is true.
///
/// # Errors
/// A list of mistakes, each with the name of its input. The name is empty if no single input is
/// wrong.
pub(super) fn arrange(
    mut inputs: Vec<DeclaredInput>,
    sizes: &Sizes,
    sizes_by: &str,
    single: bool,
) -> Result<Arranged, Vec<(String, String)>> {
    let mut mistakes = stated(&mut inputs, sizes, sizes_by);
    let numbers_of = |input: &DeclaredInput| of_names(input, |name| sizes.constant(name));
    let mut constants = Vec::new();
    for input in &inputs {
        let made = numbers_of(input).map(|(_, numbers)| constant(input, numbers));
        match made.transpose() {
            Ok(made) => constants.push(made),
            Err(e) => mistakes.push((input.name.clone(), format!("{sizes_by}: {e}"))),
        }
    }
    inputs.retain(|i| numbers_of(i).is_none());
    if inputs.is_empty() && mistakes.is_empty() {
        let e = format!("{sizes_by}: expected an input that stays an input, found constants only");
        mistakes.push((String::new(), e));
    }
    let mut values = Vec::new();
    for input in &inputs {
        match value(input, sizes_by) {
            Ok(live) => values.push(live),
            Err(e) => mistakes.push((input.name.clone(), e)),
        }
    }
    if !mistakes.is_empty() || values.is_empty() {
        return Err(mistakes);
    }
    let with_records = |live: &&Live| live.records.is_some();
    let open = values.iter().filter(with_records).count();
    if let (true, Some(other)) = (open > 0, values.iter().position(|v| v.records.is_none())) {
        let one = values.iter().position(|v| v.records.is_some()).unwrap_or(0);
        let shown = |i: usize| format!("{} {}", inputs[i].name, values[i].shown());
        let (first, second) = (shown(one.min(other)), shown(one.max(other)));
        let mistake = format!(
            "expected inputs with the same number of records, found {first} and {second}: a \
             record has a part of every input; set all sizes for one record by {sizes_by}",
        );
        return Err(vec![(String::new(), mistake)]);
    }
    let first = values[0].dims.first().copied();
    let same = |live: &Live| live.records.is_none() && live.dims.first().copied() == first;
    let supposed = !single && first.is_some_and(|n| n > 1) && values.iter().all(same);
    if supposed {
        for live in &mut values {
            live.dims.remove(0);
            live.records = Some(0);
        }
    }
    Ok(Arranged {
        records: first.filter(|_| supposed),
        values,
        constants,
        supposed,
    })
}

/// Reports the mistakes that [`arrange`] returns.
pub(super) fn report(list: Vec<(String, String)>, file: &str, mistakes: &mut Mistakes) {
    for (name, mistake) in list {
        match name.is_empty() {
            true => mistakes.add(file, mistake),
            false => mistakes.add(format_args!("{file}: input {name}"), mistake),
        }
    }
}

/// Calls `stated` with each name of an input, until it returns something. Returns that name and the
/// result. `None` if `stated` returns nothing for any name.
fn of_names<T>(input: &DeclaredInput, stated: impl Fn(&str) -> Option<T>) -> Option<(String, T)> {
    let names = [Some(&input.name), input.also.as_ref()];
    let mut names = names.into_iter().flatten();
    names.find_map(|name| Some((name.clone(), stated(name)?)))
}

/// Makes the constant that replaces an input, from the numbers that the user states. A single
/// number is repeated for every element.
fn constant(input: &DeclaredInput, numbers: &[f64]) -> Result<ConstantTensor, String> {
    let axes = input.axes.iter().flatten().map(AxisSize::known);
    let dims: Option<Vec<usize>> = axes.collect();
    let dims = dims.filter(|_| input.axes.is_some());
    let Some((elements, dims)) = dims.and_then(|d| Some((constant::elements(&d)?, d))) else {
        return Err("an input that becomes a constant needs sizes: state them too".into());
    };
    let numbers = match numbers {
        &[one] => vec![one; elements],
        all if all.len() == elements => all.to_vec(),
        all => {
            return Err(format!(
                "expected 1 or {elements} numbers, found {}",
                all.len()
            ));
        }
    };
    if input.kind.float() {
        return Ok(ConstantTensor::rounded(input.kind, dims, numbers));
    }
    let (low, high) = input.kind.range().unwrap_or_default();
    let whole = |x: f64| {
        let n = x as i64;
        let fits = n as f64 == x && (low..=high).contains(&i128::from(n));
        let kind = input.kind.name();
        fits.then_some(Int::Known(n))
            .ok_or_else(|| format!("expected numbers of type {kind}, found {x}"))
    };
    let data = Data::Ints(numbers.into_iter().map(whole).collect::<Result<_, _>>()?);
    Ok(ConstantTensor::new(input.kind, dims, data))
}

/// Sets the sizes that the user states. Returns mistakes, each with the name of its input.
fn stated(inputs: &mut [DeclaredInput], sizes: &Sizes, by: &str) -> Vec<(String, String)> {
    let mut mistakes = Vec::new();
    let mut used: Vec<String> = Vec::new();
    for input in &mut *inputs {
        used.extend(of_names(input, |name| sizes.constant(name)).map(|(name, _)| name));
        let Some((name, list)) = of_names(input, |name| sizes.of(name)) else {
            continue;
        };
        used.push(name);
        if let Err(e) = set(input, list) {
            mistakes.push((input.name.clone(), format!("{by}: {e}")));
        }
    }
    for axis in inputs.iter_mut().filter_map(|i| i.axes.as_mut()).flatten() {
        if let AxisSize::Open(name) = axis {
            if let Some(list) = sizes.of(name) {
                used.push(name.clone());
                match list {
                    [Size::Known(n)] => *axis = AxisSize::Known(*n),
                    [Size::Records] => {}
                    _ => {
                        let e = format!("{by}: expected one size of the dimension {name}");
                        mistakes.push((String::new(), e));
                    }
                }
            }
        }
    }
    for name in sizes.names().filter(|name| !used.iter().any(|u| u == name)) {
        let known: Vec<&str> = inputs.iter().map(|i| &*i.name).collect();
        let e = format!(
            "{by}: expected the name of an input ({}) or of an open dimension, found \"{name}\"",
            known.join(", ")
        );
        mistakes.push((String::new(), e));
    }
    mistakes
}

/// Sets the sizes that the user states for one input.
fn set(input: &mut DeclaredInput, list: &[Size]) -> Result<(), String> {
    let open = || vec![AxisSize::Open(String::new()); list.len()];
    let axes = input.axes.get_or_insert_with(open);
    if axes.len() != list.len() {
        return Err(format!(
            "expected {} sizes, found {}",
            axes.len(),
            list.len()
        ));
    }
    for (axis, &size) in axes.iter_mut().zip(list) {
        match (&axis, size) {
            (AxisSize::Known(n), Size::Known(asked)) if *n != asked => {
                return Err(format!("the model has the fixed size {n}, found {asked}"));
            }
            (AxisSize::Known(n), Size::Records) => {
                return Err(format!("the model has the fixed size {n}, found N"));
            }
            (_, Size::Known(n)) => *axis = AxisSize::Known(n),
            (AxisSize::Open(_), Size::Records) => {}
        }
    }
    Ok(())
}

/// Makes the tensor of an input. Its first open axis becomes the axis of the records. Without an
/// open axis, the tensor has no axis of the records.
fn value(input: &DeclaredInput, sizes_by: &str) -> Result<Live, String> {
    let Some(axes) = &input.axes else {
        return Err(format!(
            "expected sizes, found none: set them by {sizes_by}=\"{}:1,…\"",
            input.name
        ));
    };
    let records = axes.iter().position(|a| a.known().is_none());
    let dims = axes.iter().enumerate();
    let dims = dims.filter(|(i, _)| Some(*i) != records);
    let dims: Option<Vec<usize>> = dims.map(|(_, a)| a.known()).collect();
    match dims.filter(|d| constant::elements(d).is_some_and(|n| n > 0)) {
        Some(dims) => Ok(Live {
            records,
            ..Live::new(0, dims, input.kind)
        }),
        None => {
            let name = |a: &AxisSize| match a {
                AxisSize::Known(n) => n.to_string(),
                AxisSize::Open(name) if name.is_empty() => "?".into(),
                AxisSize::Open(name) => name.clone(),
            };
            let example = |a: &AxisSize| a.known().map_or("1".into(), |n| n.to_string());
            let shown: Vec<String> = axes.iter().map(name).collect();
            let example: Vec<String> = axes.iter().map(example).collect();
            Err(format!(
                "expected fixed sizes above 0, but for the number of records, found [{}]: set all \
                 sizes by {sizes_by}, in this form: \"{}:{}\"",
                shown.join(", "),
                input.name,
                example.join(",")
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(name: &str, axes: &[&str]) -> DeclaredInput {
        let axis = |a: &&str| match a.parse() {
            Ok(n) => AxisSize::Known(n),
            Err(_) => AxisSize::Open(a.to_string()),
        };
        DeclaredInput {
            name: name.into(),
            also: None,
            axes: Some(axes.iter().map(axis).collect()),
            kind: Element::F32,
        }
    }

    /// Formats the arranged inputs as messages show them, or the mistakes of [`arrange`].
    fn shown(inputs: Vec<DeclaredInput>, sizes: &str, single: bool) -> String {
        let sizes = Sizes::parse(sizes).unwrap();
        match arrange(inputs, &sizes, "--sizes", single) {
            Ok(a) => a
                .values
                .iter()
                .map(Live::shown)
                .collect::<Vec<_>>()
                .join(" "),
            Err(e) => e
                .into_iter()
                .map(|(name, e)| format!("{name}: {e}"))
                .collect(),
        }
    }

    #[test]
    fn the_axis_of_the_records() {
        let x = |axes: &[&str]| vec![input("x", axes)];
        assert_eq!(shown(x(&["n", "3"]), "", false), "[N, 3]");
        assert_eq!(shown(x(&["3", "n", "2"]), "", false), "[3, N, 2]");
        assert_eq!(shown(x(&["1", "3"]), "", false), "[1, 3]");
        assert_eq!(shown(x(&["5", "3"]), "", false), "[N, 3]");
        assert_eq!(shown(x(&["5", "3"]), "", true), "[5, 3]");
        assert_eq!(shown(x(&[]), "", false), "[]");
        let two = || vec![input("x", &["n", "4"]), input("s", &["2", "n", "3"])];
        assert_eq!(shown(two(), "", false), "[N, 4] [2, N, 3]");
        assert_eq!(shown(two(), "n:1", false), "[1, 4] [2, 1, 3]");
    }

    #[test]
    fn inputs_become_constants() {
        let rate = || DeclaredInput {
            kind: Element::I64,
            ..input("rate", &[])
        };
        let both = |sizes: &str| {
            let sizes = Sizes::parse(sizes).unwrap();
            arrange(
                vec![input("x", &["n", "4"]), rate()],
                &sizes,
                "--sizes",
                false,
            )
        };
        let arranged = both("rate=16000").unwrap_or_else(|e| panic!("{e:?}"));
        let constant =
            ConstantTensor::new(Element::I64, vec![], Data::Ints(vec![Int::Known(16000)]));
        assert_eq!(arranged.constants, [None, Some(constant)]);
        assert_eq!(arranged.values.len(), 1);
        let filled = both("rate=1;x:2,2;x=3");
        for (sizes, part) in [
            ("rate=1.5", "expected numbers of type INT64, found 1.5"),
            ("rate=1,2", "expected 1 or 1 numbers, found 2"),
            ("rate=1;x=0", "needs sizes"),
            ("rate=1;x:2,4;x=0", "found constants only"),
            ("other=1", "found \"other\""),
        ] {
            let mistakes = both(sizes).err().unwrap_or_default();
            assert!(
                mistakes.iter().any(|(_, e)| e.contains(part)),
                "{sizes}: {mistakes:?}"
            );
        }
        assert!(filled.is_err(), "x has 4 columns");
    }

    #[test]
    fn stated_sizes() {
        let x = || vec![input("x", &["n", "3", "h", "w"])];
        assert_eq!(shown(x(), "x:1,3,8,9", false), "[1, 3, 8, 9]");
        assert_eq!(shown(x(), "x:N,3,8,9", false), "[N, 3, 8, 9]");
        assert_eq!(shown(x(), "h:8;w:9", false), "[N, 3, 8, 9]");
        assert_eq!(shown(x(), "h:8;w:9;n:1", false), "[1, 3, 8, 9]");
        for (sizes, part) in [
            ("", "\"x:1,3,1,1\""),
            ("x:1,3", "expected 4 sizes, found 2"),
            ("x:1,4,8,9", "the model has the fixed size 3, found 4"),
            ("x:N,N,8,9", "the model has the fixed size 3, found N"),
            ("x:N,3,N,9", "found [n, 3, h, 9]"),
            ("h:8;w:1,2", "expected one size of the dimension w"),
            ("h:8;w:9;y:1", "found \"y\""),
        ] {
            let e = shown(x(), sizes, false);
            assert!(e.contains(part), "{sizes}: {e}");
        }
        let mixed = vec![input("x", &["n", "4"]), input("rate", &["1"])];
        assert!(shown(mixed, "", false).contains("x [N, 4] and rate [1]"));
    }
}
