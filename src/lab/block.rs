//! The baked block as text, for `--info=block`.

use crate::block::{Block, NetworkSection, PlanSection, Section, SectionEntry, VERSION, hex};
use crate::ir::network::{Network, named};
use crate::ir::plan::Plan;
use crate::registry::Library;
use std::borrow::Cow;
use std::fmt::{Debug, Write};

/// Returns the baked block as text. It has a line for each section, value, node, constant, buffer,
/// step, kernel and source.
pub(crate) fn text(block: Block) -> Result<String, String> {
    block.verify()?;
    let (network, (given, range)): NetworkSection = block.read(Section::Network)?;
    let (plan, (offsets, steps)): PlanSection = block.read(Section::Plan)?;
    let library: Library = block.read(Section::Library)?;
    let mut s = format!(
        "block version {VERSION}, {} bytes, SHA-256 {}\n",
        block.len(),
        block.hash()
    );
    for section in Section::ALL {
        let SectionEntry {
            offset,
            bytes,
            hash,
        } = block.entry(section);
        let (name, hash) = (section.name(), hex(hash));
        let _ = writeln!(
            s,
            "section {name}: {bytes} bytes at {offset}, SHA-256 {hash}"
        );
    }
    put_network(&mut s, &network, format_args!("{given}, {range:?}"));
    put_plan(&mut s, &plan, &offsets);
    put_library(&mut s, &library, &steps);
    for (path, text) in block.sources()?.iter() {
        let _ = writeln!(s, "source {path}, {} bytes", text.len());
    }
    Ok(s)
}

/// Writes a line for each of `items`: `name`, the item's index and the item in Rust's debug format.
fn list<T: Debug>(s: &mut String, name: &str, items: &[T]) {
    for (i, item) in items.iter().enumerate() {
        let _ = writeln!(s, "{name} {i} {item:?}");
    }
}

fn put_network(s: &mut String, network: &Network, golden: std::fmt::Arguments) {
    let Network {
        name,
        hash,
        width,
        order,
        graph,
        output,
        labels,
        features,
        transform,
        bytes,
        folded,
        weights,
        tolerance,
        inputs,
        outputs,
    } = network;
    let _ = writeln!(
        s,
        "network {name:?}, hash {hash}, {width} inputs, weights {weights:?}, \
         tolerance {tolerance}\n\
         output {output:?}, labels {labels:?}\n\
         input {order:?}, {transform:?}, {bytes:?}, folded {folded}, features {features:?}\n\
         golden vectors given {golden}\n\
         graph inputs {:?} ({}), outputs {:?} ({})",
        graph.inputs,
        named(inputs),
        graph.outputs,
        named(outputs)
    );
    list(s, "value", &graph.values);
    list(s, "tensor", &graph.tensors);
    list(s, "node", &graph.nodes);
}

fn put_plan(s: &mut String, plan: &Plan, offsets: &[usize]) {
    let Plan {
        name,
        engine,
        batch,
        padded_batch,
        granule,
        arena_bytes,
        arena_bound,
        ..
    } = plan;
    let _ = writeln!(
        s,
        "plan {name:?} on {engine}, batch {batch}, padded {padded_batch}, granule {granule}, \
         arena {arena_bytes} bytes, bound {arena_bound}"
    );
    for (i, (c, offset)) in plan.constants.iter().zip(offsets).enumerate() {
        let _ = writeln!(s, "constant {i} at {offset} {c:?}");
    }
    list(s, "buffer", &plan.buffers);
    list(s, "step", &plan.steps);
    if let Some(few) = &plan.few {
        let _ = writeln!(s, "{few:?}");
    }
}

fn put_library(s: &mut String, library: &Library, steps: &[(Cow<'static, str>, usize)]) {
    let _ = writeln!(s, "library {}", library.hash);
    for k in library.kernels.iter() {
        let _ = writeln!(s, "kernel {k:?}");
    }
    for p in library.plans.iter() {
        let known = steps.iter().find(|(name, _)| *name == p.name);
        let n = known.map_or(0, |(_, n)| *n);
        let _ = writeln!(s, "recipe, {n} steps here, {p:?}");
    }
    for d in library.devices.iter() {
        let _ = writeln!(s, "device class {d:?}");
    }
    for h in library.hosts.iter() {
        let _ = writeln!(s, "host class {h:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    /// The text of a small network's block must equal `tests/golden/tiny.txt`, so that a change of
    /// the format is noticed. `MORTONNET_BLESS=1 cargo test` writes that file anew.
    #[test]
    fn the_block_as_text_is_the_golden_file() {
        let text = text(crate::bake::tests::tiny_block()).unwrap();
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/tiny.txt");
        if std::env::var_os("MORTONNET_BLESS").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let golden = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            text == golden,
            "{} differs; MORTONNET_BLESS=1 writes it anew, then read the change",
            path.display()
        );
        assert!(!text.contains(env!("CARGO_MANIFEST_DIR")));
    }
}
