//! The fastest kernel of each operation in a report, for the summary on an HTML page.

use super::render::{measured, number};
use super::table::{Cell, Measured, Plot, Report, Row, Section};
use crate::baked::library;
use crate::registry::{Kernel, Operation};
use std::collections::BTreeMap;

/// The largest number of kernels that the summary shows in its bar plot.
const MOST_BARS: usize = 12;

/// A kernel of the report that was timed on a problem of one size.
#[derive(Clone)]
struct TimedKernel<'a> {
    kernel: &'a Kernel,
    /// The size or shape of the timed problem, as the report prints it.
    size: &'a str,
    measured: Measured,
    /// The measured value with its unit, as text.
    speed: String,
}

/// Returns the sections of a summary: the fastest kernel of each operation, the GFLOPS of these
/// kernels by size, and the best GFLOPS of each kernel. Sections without rows are left out.
pub(super) fn sections(report: &Report) -> Vec<Section> {
    let products: Vec<TimedKernel> = report.sections.iter().flat_map(products).collect();
    let mut fastest: Vec<TimedKernel> = Vec::new();
    for operation in Operation::ALL {
        let of_operation = |t: &&TimedKernel| t.kernel.operation == operation;
        let best = products.iter().filter(of_operation);
        let best = best.max_by(|a, b| a.measured.value.total_cmp(&b.measured.value));
        let other = || {
            report
                .sections
                .iter()
                .find_map(|s| fastest_row(s, operation))
        };
        fastest.extend(best.cloned().or_else(other));
    }
    let mut all = vec![table(&fastest), by_size(&products), by_kernel(&products)];
    all.retain(|section| !section.rows.is_empty());
    all
}

fn kernel(name: &str) -> Option<&'static Kernel> {
    library().kernel(name).map(|(_, kernel)| kernel)
}

/// Returns the measured kernels of a section that is in GFLOPS and has a column for each kernel.
/// The list is empty for other sections.
fn products(section: &Section) -> Vec<TimedKernel<'_>> {
    let mut found = Vec::new();
    if section.unit != "GFLOPS" {
        return found;
    }
    for (i, name) in section.columns.iter().enumerate() {
        let Some(kernel) = kernel(name) else { continue };
        for row in &section.rows {
            if let Some(Cell::Measured(m)) = row.cells.get(i) {
                found.push(TimedKernel {
                    kernel,
                    size: &row.label,
                    measured: *m,
                    speed: format!("{} {}", number(m.value), section.unit),
                });
            }
        }
    }
    found
}

/// Returns an operation's fastest kernel in a section that has a row for each kernel. Kernels are
/// compared by the time at the first shape. Sobel filters are compared by the speed on the largest
/// image.
fn fastest_row(section: &Section, operation: Operation) -> Option<TimedKernel<'_>> {
    let images = operation == Operation::Sobel;
    if images != section.larger_is_better || section.rows_are != "kernel" {
        return None;
    }
    let measured_at = |i: &usize| {
        let mut cells = section.rows.iter().map(|row| row.cells.get(*i));
        section.columns[*i].contains('×') && cells.any(|c| matches!(c, Some(Cell::Measured(_))))
    };
    let mut columns = (0..section.columns.len()).filter(measured_at);
    let column = match images {
        true => columns.next_back(),
        false => columns.next(),
    }?;
    let mut best: Option<(&Kernel, &Row, Measured)> = None;
    for row in &section.rows {
        let of_operation = kernel(&row.label).filter(|k| k.operation == operation);
        let (Some(kernel), Some(Cell::Measured(m))) = (of_operation, row.cells.get(column)) else {
            continue;
        };
        let faster = |than: f64| match images {
            true => m.value > than,
            false => m.value < than,
        };
        if best.is_none_or(|(.., than)| faster(than.value)) {
            best = Some((kernel, row, *m));
        }
    }
    let (kernel, row, measured) = best?;
    // The section has another column for a Sobel filter's speed in pixels per second.
    let size = &section.columns[column];
    let rate = format!("{size}, million pixels/s");
    let rate = section.columns.iter().position(|name| *name == rate);
    let speed = match rate.and_then(|i| row.cells.get(i)) {
        Some(Cell::Text(rate)) => format!("{rate} million pixels/s"),
        _ => format!("{} {}", number(measured.value), section.unit),
    };
    Some(TimedKernel {
        kernel,
        size,
        measured,
        speed,
    })
}

fn table(fastest: &[TimedKernel]) -> Section {
    let title = "Fastest kernel of each operation";
    let mut s = Section::new("fastest", title, "operation", "");
    s.columns = ["kernel", "size", "speed", "share of peak"]
        .map(String::from)
        .to_vec();
    for t in fastest {
        s.row(
            t.kernel.operation.name(),
            vec![
                Cell::text(&*t.kernel.codename),
                Cell::text(t.size),
                Cell::text(&*t.speed),
                Cell::Text(measured(&t.measured).percent),
            ],
        );
    }
    s
}

/// Returns the GFLOPS of each operation's fastest kernel at each size. The section has no rows
/// unless there are several sizes.
fn by_size(products: &[TimedKernel]) -> Section {
    let mut s = Section {
        larger_is_better: true,
        plot: Plot::Lines,
        ..Section::new(
            "fastest_by_size",
            "Fastest kernel by size",
            "size",
            "GFLOPS",
        )
    };
    let mut by_size: BTreeMap<usize, BTreeMap<&str, Measured>> = BTreeMap::new();
    for t in products {
        let Ok(size) = t.size.parse() else { continue };
        let best = by_size.entry(size).or_default();
        let best = best.entry(t.kernel.operation.name()).or_insert(t.measured);
        if t.measured.value > best.value {
            *best = t.measured;
        }
    }
    if by_size.len() < 2 {
        return s;
    }
    let names = Operation::ALL.iter().map(|o| o.name());
    let known = names.filter(|name| by_size.values().any(|best| best.contains_key(name)));
    s.columns = known.map(String::from).collect();
    for (size, best) in by_size {
        let cell = |name: &String| {
            best.get(&**name)
                .map_or(Cell::Empty, |m| Cell::Measured(*m))
        };
        let cells = s.columns.iter().map(cell).collect();
        s.row(size.to_string(), cells);
    }
    s
}

/// Returns the GFLOPS of each kernel at its best size. The section has no rows unless there are
/// several kernels.
fn by_kernel(products: &[TimedKernel]) -> Section {
    let mut s = Section {
        larger_is_better: true,
        plot: Plot::Bars,
        columns: vec!["best".into()],
        ..Section::new("best", "Best of each kernel", "kernel", "GFLOPS")
    };
    let mut sorted: Vec<&TimedKernel> = products.iter().collect();
    sorted.sort_by(|a, b| b.measured.value.total_cmp(&a.measured.value));
    for t in sorted {
        let name = &*t.kernel.codename;
        if s.rows.len() < MOST_BARS && !s.rows.iter().any(|row| row.label == name) {
            s.row(name, vec![Cell::Measured(t.measured)]);
        }
    }
    if s.rows.len() < 2 {
        s.rows.clear();
    }
    s
}
