use super::axis::{PlotAxis, Tick};
use super::*;
use crate::lab::render::tests::{hostile, sample};
use crate::lab::table::{Measured, Row};

/// A cell with a sentence is broken into lines instead of making the table wider than the page. A
/// single word is not.
#[test]
fn sentences_are_broken() {
    let mut report = sample();
    let row = |text: &str| Row {
        label: "a".into(),
        cells: vec![Cell::Text(text.into())],
    };
    report.sections.truncate(1);
    report.sections[0].columns.truncate(1);
    report.sections[0].rows = vec![row("right")];
    assert!(page(&report, "t").contains("<td>right</td>"));
    report.sections[0].rows.push(row(
        "rows of a and columns of b interleaved: consecutive reads",
    ));
    let page = page(&report, "t");
    assert!(
        page.contains("<td class=\"t\">right</td>") && STYLE.contains("td.t { white-space: normal")
    );
}

/// Checks the HTML of a page. Tags are closed in order, every `&` begins an entity and attributes
/// are quoted. Nothing is fetched, and the anchors of links exist and are unique.
fn check(page: &str) -> Result<(), String> {
    let (mut open, mut rest) = (
        Vec::new(),
        page.strip_prefix("<!DOCTYPE html>").ok_or("doctype")?,
    );
    let (mut ids, mut targets) = (Vec::new(), Vec::new());
    while let Some(i) = rest.find(['<', '&', '>']) {
        let (before, tag) = rest.split_at(i);
        if open.last() == Some(&"style") && tag.starts_with(['&', '>']) {
            rest = &tag[1..];
            continue;
        }
        if before.contains(|c: char| c.is_control() && c != '\n') {
            return Err(format!("control character in {before:?}"));
        }
        if let Some(entity) = tag.strip_prefix('&') {
            let end = entity.find(';').ok_or("entity")?;
            if !["amp", "lt", "gt", "quot"].contains(&&entity[..end]) {
                return Err(format!("entity {}", &entity[..end]));
            }
            rest = &entity[end + 1..];
            continue;
        }
        let Some(tag) = tag.strip_prefix('<') else {
            return Err(format!("> after {before:?}"));
        };
        // A tag ends at the first > outside quotes.
        let mut quoted = false;
        let end = tag.find(|c| {
            quoted ^= c == '"';
            c == '>' && !quoted
        });
        let (inside, after) = tag.split_at(end.ok_or("unclosed tag")?);
        rest = &after[1..];
        if let Some(name) = inside.strip_prefix('/') {
            if open.pop() != Some(name) {
                return Err(format!("</{name}> closes nothing"));
            }
            continue;
        }
        let void = inside.ends_with('/');
        let name = inside.split([' ', '/']).next().unwrap();
        if inside.contains('<')
            || inside.matches("=\"").count() * 2 != inside.matches('"').count()
            || inside
                .split('"')
                .step_by(2)
                .any(|outside| outside.trim_end_matches('=').contains('='))
        {
            return Err(format!("attributes of {inside}"));
        }
        for (key, list) in [(" id=\"", &mut ids), (" href=\"#", &mut targets)] {
            if let Some((_, v)) = inside.split_once(key) {
                list.push(v.split('"').next().unwrap().to_string());
            }
        }
        if !void {
            open.push(name);
        }
    }
    if !open.is_empty() {
        return Err(format!("open at the end: {open:?}"));
    }
    if let Some(t) = targets.iter().find(|t| !ids.contains(t)) {
        return Err(format!("#{t} leads nowhere"));
    }
    let count = ids.len();
    ids.sort();
    ids.dedup();
    if ids.len() != count {
        return Err("an id twice".into());
    }
    for fetched in ["src=", "@import", "url(", "<script", "<link"] {
        if page.contains(fetched) {
            return Err(format!("{fetched} in the page"));
        }
    }
    Ok(())
}

/// Checks that the coordinates of paths and rectangles are finite numbers.
fn coordinates_are_finite(page: &str) {
    for name in [
        " d=\"",
        " x=\"",
        " y=\"",
        " width=\"",
        " height=\"",
        "viewBox=\"",
        "translate(",
    ] {
        for value in page
            .split(name)
            .skip(1)
            .filter_map(|v| v.split(['"', ')']).next())
        {
            assert!(
                !value.contains("NaN") && !value.contains("inf"),
                "{name}{value}"
            );
        }
    }
}

#[test]
fn pages_are_well_formed() {
    for report in [sample(), hostile(), Report::default()] {
        let page = page(&report, "a <b> & \"c\"\u{1b}");
        check(&page).unwrap();
        coordinates_are_finite(&page);
        assert!(page.contains("<h1>a &lt;b&gt; &amp; &quot;c&quot; </h1>"));
    }
}

#[test]
fn the_checker_checks() {
    for bad in [
        "<p>",
        "<p></b>",
        "a & b",
        "<p a=b></p>",
        "</p>",
        "<a href=\"#x\"></a>",
        "a > b",
    ] {
        assert!(check(&format!("<!DOCTYPE html>{bad}")).is_err(), "{bad}");
    }
}

#[test]
fn an_empty_report_says_so() {
    assert!(page(&Report::default(), "t").contains("Nothing was measured."));
}

#[test]
fn skips_lead_to_their_reasons() {
    let page = page(&sample(), "t");
    assert!(page.contains("<span class=\"s\">skipped</span><sup><a href=\"#t_8_2.1\">1</a></sup>"));
    assert!(page.contains("<li id=\"t_8_2.1\">skipped: too large &amp; &lt;slow&gt;</li>"));
}

#[test]
fn a_figure_of_the_document_is_hollow_and_dashed() {
    let page = page(&sample(), "t");
    assert!(page.contains("<path class=\"h\"") && page.contains("<path class=\"l d\""));
}

#[test]
fn nothing_drawn_without_values() {
    let mut report = sample();
    report.sections.truncate(1);
    for row in &mut report.sections[0].rows {
        row.cells.fill(Cell::Skipped("no device".into()));
    }
    let page = page(&report, "t");
    check(&page).unwrap();
    assert!(!page.contains("<figure"));
    assert_eq!(page.matches("skipped: no device").count(), 1);
}

#[test]
fn one_point_stands_in_the_middle() {
    let mut report = sample();
    report.sections.truncate(1);
    report.sections[0].rows.truncate(1);
    let page = page(&report, "t");
    check(&page).unwrap();
    coordinates_are_finite(&page);
}

#[test]
fn axes_are_round_and_reach_around() {
    let a = PlotAxis::new(0.0, 15.05, 8.0, false);
    assert_eq!((a.low, a.high, a.step), (0.0, 16.0, 2.0));
    let b = PlotAxis::new(0.0, 2880.0, 9.0, true);
    assert_eq!((b.high, b.step), (3072.0, 512.0));
    let labels: Vec<String> = PlotAxis::new(0.0, 0.6, 3.0, false)
        .ticks()
        .into_iter()
        .map(|Tick { label, .. }| label)
        .collect();
    assert_eq!(labels, ["0.0", "0.2", "0.4", "0.6"]);
    for (low, high) in [
        (0.0, 0.0),
        (0.0, 5e-324),
        (0.0, 1e299),
        (-1e299, 1e299),
        (-3.0, 7.0),
        (1e15, 1e15),
        (1e18, 1e18 + 256.0),
    ] {
        let a = PlotAxis::new(low, high, 8.0, false);
        let ticks = a.ticks();
        assert!(
            a.low <= low && a.high >= high && a.high > a.low,
            "{low} {high}"
        );
        assert!(
            ticks.len() <= 41 && ticks.iter().all(|t| t.at.is_finite()),
            "{low} {high}"
        );
    }
}

#[test]
fn a_grid_is_drawn_in_the_order_of_its_numbers() {
    let mut report = sample();
    report.sections.truncate(1);
    let s = &mut report.sections[0];
    let row = |cells: [&str; 2]| Row {
        label: "0".into(),
        cells: cells.map(|c| Cell::Text(c.into())).to_vec(),
    };
    (s.columns, s.plot) = (vec!["0".into(), "1".into()], Plot::Grid);
    s.rows = vec![row(["0", "2"]), row(["1", "3"])];
    let drawn = page(&report, "t");
    check(&drawn).unwrap();
    assert!(drawn.contains("d=\"M21 21L21 61L61 21L61 61\""));
    // Cells whose texts are not finite numbers get no square.
    report.sections[0].rows = vec![row(["<a>", "inf"]), row(["NaN", "7"])];
    let drawn = page(&report, "t");
    check(&drawn).unwrap();
    coordinates_are_finite(&drawn);
    assert_eq!(drawn.matches("<rect class=\"g\"").count(), 1);
    report.sections[0].rows.pop();
    assert!(!page(&report, "t").contains("<figure"));
}

#[test]
fn a_grid_of_numbers_is_shaded() {
    let cell = |x: usize| Cell::Text(x.to_string());
    let rows = (0..9).map(|r| Row {
        label: r.to_string(),
        cells: (0..9).map(|c| cell(r * 9 + c)).collect(),
    });
    let mut report = sample();
    let s = &mut report.sections[0];
    (s.columns, s.rows, s.plot) = (
        (0..9).map(|c| c.to_string()).collect(),
        rows.collect(),
        Plot::None,
    );
    let page = page(&report, "t");
    check(&page).unwrap();
    assert!(page.contains("rgba(var(--heat),0.00)") && page.contains("rgba(var(--heat),0.60)"));
}

/// Returns a report with two products and a check of kernels.
fn products() -> Report {
    let measured = |value: f64| {
        Cell::Measured(Measured {
            value,
            percent: Some(value * 2.0),
            runs: 3,
            ..Measured::default()
        })
    };
    let mut checks = Section::new("check", "Checked against float64", "kernel", "");
    checks.columns.push("result".into());
    checks.row("matmul_naive", vec![Cell::text("right, largest error 0")]);
    checks.row("bias_rm", vec![Cell::text("WRONG: NaN")]);
    let mut table = Section {
        larger_is_better: true,
        plot: Plot::Lines,
        ..Section::new("thesis_8_2", "Table 8.2", "size", "GFLOPS")
    };
    table.columns = vec!["matmul_naive".into(), "matmul_morton_4_2".into()];
    table.row("96", vec![measured(7.0), measured(5.0)]);
    table.row("192", vec![measured(6.0), measured(9.0)]);
    Report {
        head: vec![
            ("device".into(), "Mali".into()),
            ("board".into(), "Odroid".into()),
        ],
        sections: vec![checks, table],
    }
}

#[test]
fn a_page_begins_with_its_fastest_kernels_and_ends_with_folded_checks() {
    let page = page(&products(), "t");
    check(&page).unwrap();
    let places = [
        "<dt>device</dt>",
        "<dd>1 of 2 kernels right, 1 wrong or failing: bias_rm</dd>",
        "<summary>Machine and program</summary>",
        "<dt>board</dt>",
        "<h2>Fastest kernel of each operation</h2>",
        "<td>matmul_morton_4_2</td><td class=\"n\">192</td><td>9.000 GFLOPS</td><td>18.0%</td>",
        "<h2>Fastest kernel by size</h2>\n<figure>",
        "<h2>Best of each kernel</h2>\n<figure>",
        "<nav",
        "<h2>Table 8.2</h2>",
        "<h2>Checked against float64</h2>\n<details>\n<summary>2 rows</summary>",
        "WRONG: NaN",
    ]
    .map(|part| page.find(part).unwrap_or_else(|| panic!("{part}: {page}")));
    assert!(places.is_sorted(), "{places:?}");
    // If the report has only checks, they are not folded.
    let mut alone = products();
    alone.sections.truncate(1);
    alone.head.truncate(1);
    assert!(!super::page(&alone, "t").contains("<details>"));
}

#[test]
fn headers_do_not_break_inside_words() {
    let mut report = products();
    report.sections[1].columns[0] = "largest work-group".into();
    let page = page(&report, "t");
    check(&page).unwrap();
    let word = "largest <span class=\"word\">work-group</span></th>";
    assert!(page.contains(word), "{page}");
}

/// All bars of a plot have one unit. The document's figures in other units are only in the table.
#[test]
fn bars_of_the_document_stand_beside_measured_ones() {
    let mut report = products();
    report.sections.remove(0);
    let table = &mut report.sections[0];
    table.plot = Plot::Bars;
    for name in ["matmul_naive, document", "words, document"] {
        table.columns.push(name.into());
    }
    for row in &mut table.rows {
        row.cells.extend([Cell::Document(3.0), Cell::Document(5.0)]);
    }
    let page = page(&report, "t");
    check(&page).unwrap();
    assert!(page.contains("<span>matmul_naive, document</span></li>"));
    assert!(!page.contains("<span>words, document</span></li>"));
}
