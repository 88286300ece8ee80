//! The block as text, for `--info=block`.

use crate::block::{Block, NetworkSection, PlanSection, Section, SectionEntry, VERSION, hex};
use crate::ir::network::{Network, named};
use crate::ir::plan::Plan;
use crate::registry::Library;
use std::fmt::Write;

/// All of it as text: a line for each section, value, node, constant, buffer and step.
///
/// # Errors
/// What is not as it was written.
pub(crate) fn text(block: Block) -> Result<String, String> {
    block.verify()?;
    let (network, (given, range)): NetworkSection = block.read(Section::Network)?;
    let (plan, (offsets, steps)): PlanSection = block.read(Section::Plan)?;
    let library: Library = block.read(Section::Library)?;
    let sources = block.sources()?;
    let mut s = String::new();
    let _ = writeln!(
        s,
        "block version {VERSION}, {} bytes, SHA-256 {}",
        block.len(),
        block.hash()
    );
    for section in Section::ALL {
        let SectionEntry {
            offset,
            bytes,
            hash,
        } = block.entry(section);
        let _ = writeln!(
            s,
            "section {}: {bytes} bytes at {offset}, SHA-256 {}",
            section.name(),
            hex(hash)
        );
    }
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
        folded,
        ..
    } = &network;
    let Network {
        weights,
        inputs,
        outputs,
        ..
    } = &network;
    let _ = writeln!(
        s,
        "network {name:?}, hash {hash}, {width} inputs, weights {weights:?}"
    );
    let _ = writeln!(s, "output {output:?}, labels {labels:?}");
    let _ = writeln!(
        s,
        "input {order:?}, {transform:?}, folded {folded}, features {features:?}"
    );
    let _ = writeln!(s, "golden vectors given {given}, {range:?}");
    let _ = writeln!(
        s,
        "graph inputs {:?} ({}), outputs {:?} ({})",
        graph.inputs,
        named(inputs),
        graph.outputs,
        named(outputs)
    );
    graph
        .values
        .iter()
        .enumerate()
        .for_each(|(i, v)| _ = writeln!(s, "value {i} {v:?}"));
    graph
        .tensors
        .iter()
        .enumerate()
        .for_each(|(i, t)| _ = writeln!(s, "tensor {i} {t:?}"));
    graph
        .nodes
        .iter()
        .enumerate()
        .for_each(|(i, n)| _ = writeln!(s, "node {i} {n:?}"));
    let Plan {
        name,
        engine,
        batch,
        padded_batch,
        granule,
        arena_bytes,
        arena_bound,
        ..
    } = &plan;
    let _ = writeln!(
        s,
        "plan {name:?} on {engine}, batch {batch}, padded {padded_batch}, granule {granule}, \
         arena {arena_bytes} bytes, \
         bound {arena_bound}"
    );
    for (i, (c, offset)) in plan.constants.iter().zip(offsets.iter()).enumerate() {
        let _ = writeln!(s, "constant {i} at {offset} {c:?}");
    }
    plan.buffers
        .iter()
        .enumerate()
        .for_each(|(i, b)| _ = writeln!(s, "buffer {i} {b:?}"));
    plan.steps
        .iter()
        .enumerate()
        .for_each(|(i, step)| _ = writeln!(s, "step {i} {step:?}"));
    plan.few.iter().for_each(|few| _ = writeln!(s, "{few:?}"));
    let _ = writeln!(s, "library {}", library.hash);
    library
        .kernels
        .iter()
        .for_each(|k| _ = writeln!(s, "kernel {k:?}"));
    for p in library.plans.iter() {
        let n = steps
            .iter()
            .find(|(name, _)| *name == p.name)
            .map_or(0, |n| n.1);
        let _ = writeln!(s, "recipe, {n} steps here, {p:?}");
    }
    library
        .devices
        .iter()
        .for_each(|d| _ = writeln!(s, "device class {d:?}"));
    library
        .hosts
        .iter()
        .for_each(|h| _ = writeln!(s, "host class {h:?}"));
    sources
        .iter()
        .for_each(|(path, text)| _ = writeln!(s, "source {path}, {} bytes", text.len()));
    Ok(s)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    /// The block of a small network as text, for readers. `MORTONNET_BLESS=1 cargo test` writes it
    /// anew.
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
