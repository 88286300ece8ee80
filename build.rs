//! Bakes a network into the program. The work is in `src/bake`, and `src/shared.rs` lists what the
//! program shares with it.

#[path = "src/bake/mod.rs"]
#[allow(dead_code)] // `mortonnet-bake` and tests use the rest.
mod bake;
#[path = "src/shared.rs"]
#[allow(dead_code)] // The program uses the rest.
mod shared;

use shared::*;
use std::path::{Path, PathBuf};

fn main() {
    let variable = |name: &str| {
        println!("cargo::rerun-if-env-changed={name}");
        std::env::var_os(name).filter(|v| !v.is_empty())
    };
    let cargo = |name: &str| std::env::var(name).unwrap_or_default();
    let model = variable("MORTONNET_MODEL");
    let sizes = variable("MORTONNET_SIZES").unwrap_or_default();
    let sizes = match bake::sizes::Sizes::parse(&sizes.to_string_lossy()) {
        Ok(sizes) => sizes,
        Err(e) => return println!("cargo::error=MORTONNET_SIZES: {}", one_line(e)),
    };
    let arithmetic = variable("MORTONNET_ARITHMETIC").unwrap_or("model".into());
    let arithmetic = match bake::Arithmetic::parse(&arithmetic.to_string_lossy()) {
        Ok(arithmetic) => arithmetic,
        Err(e) => return println!("cargo::error=MORTONNET_ARITHMETIC: {}", one_line(e)),
    };
    let plan = variable("MORTONNET_PLAN");
    let quantize = variable("MORTONNET_QUANTIZE");
    let stored = variable("MORTONNET_WEIGHTS").map(|w| w.to_string_lossy().into_owned());
    let (weights, changes) = match bake::stored(stored.as_deref()) {
        Ok(stored) => stored,
        Err(e) => return println!("cargo::error=MORTONNET_WEIGHTS: {}", one_line(e)),
    };
    println!("cargo::rustc-check-cfg=cfg(mortonnet_weights, values(\"f32\", \"f16\", \"i8\"))");
    println!("cargo::rustc-check-cfg=cfg(mortonnet_whole)");
    let default_plan = if matches!(&*cargo("CARGO_CFG_TARGET_ARCH"), "arm" | "aarch64") {
        "mali-midgard"
    } else {
        "host"
    };
    let settings = bake::Settings {
        names: bake::Names::Variables,
        root: PathBuf::from(cargo("CARGO_MANIFEST_DIR")),
        model: model.clone().unwrap_or("model/digits".into()).into(),
        sizes,
        arithmetic,
        quantize: quantize.map(PathBuf::from),
        weights,
        changes,
        plan: plan.map_or(default_plan.into(), |p| p.to_string_lossy().into_owned()),
        lab: std::env::var_os("CARGO_FEATURE_LAB").is_some(),
    };
    let shared = include_str!("src/shared.rs")
        .lines()
        .filter_map(|line| line.strip_prefix("#[path = \"")?.strip_suffix("\"]"))
        .map(|path| format!("src/{}", path.trim_end_matches("/mod.rs")));
    let others = ["build.rs", "src/shared.rs", "src/bake", "kernels"].map(String::from);
    for path in shared.chain(others) {
        println!("cargo::rerun-if-changed={path}");
    }
    micro_kernels();
    let out = PathBuf::from(cargo("OUT_DIR"));
    if std::env::var_os("CARGO_FEATURE_APPENDED").is_some() {
        if std::env::var_os("CARGO_FEATURE_BAKE").is_some() {
            println!(
                "cargo::error=features appended and bake: mortonnet-bake needs the kernel library \
                 of a block"
            );
        }
        return write(block::BlockSlot::empty(settings.lab).leak(), &out);
    }
    let baked = bake::bake(&settings);
    let files = match &baked {
        Ok(baked) => &baked.files,
        Err(failed) => &failed.files,
    };
    files
        .iter()
        .for_each(|f| println!("cargo::rerun-if-changed={}", one_line(f.display())));
    match baked {
        Ok(baked) => {
            // A program has only the host's kernels for the precision of its weights. The lab has
            // all.
            let weights = baked.network.weights.name();
            println!("cargo::rustc-cfg=mortonnet_weights=\"{weights}\"");
            // Only models of integers round, and only they need the kernels for whole numbers.
            if baked.plan.steps.iter().any(|step| step.options.rounds) {
                println!("cargo::rustc-cfg=mortonnet_whole");
            }
            let block = baked.block();
            let why = match (&model, std::env::var_os("MORTONNET_MODEL")) {
                (Some(_), _) => "",
                (None, None) => " (the example network: MORTONNET_MODEL is not set)",
                (None, Some(_)) => " (the example network: MORTONNET_MODEL is empty)",
            };
            // All builds write the same file, so each build says which network the file has. Cargo
            // repeats the lines when there is nothing to build.
            for line in baked.report(why, &cargo("CARGO_CFG_TARGET_ARCH"), block.len()) {
                println!("cargo::warning={}", one_line(line));
            }
            write(block.leak(), &out);
        }
        Err(failed) => failed
            .mistakes
            .lines
            .iter()
            .for_each(|m| println!("cargo::error={}", one_line(m))),
    }
}

/// Compiles the micro-kernels that are C, and sets the `cfg` of those that need a recent compiler.
fn micro_kernels() {
    const NEON: [&str; 2] = ["src/simd/micro/neon.c", "src/simd/micro/whole.c"];
    for file in NEON.iter().chain(&["src/simd/micro/neon.h"]) {
        println!("cargo::rerun-if-changed={file}");
    }
    println!("cargo::rustc-check-cfg=cfg(mortonnet_avx512)");
    // The package compiles from Rust 1.85 on, but AVX-512 is stable only from 1.89 on.
    if compiler_minor().is_some_and(|minor| minor >= 89) {
        println!("cargo::rustc-cfg=mortonnet_avx512");
    }
    if std::env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| arch == "arm") {
        // Compiled for NEON alone and with VFPv4. zig takes the unit from the CPU, other compilers
        // take it from -mfpu.
        for (name, unit, cpu, fused) in [
            ("mortonnet_neon", "neon", "neon", "0"),
            ("mortonnet_vfpv4", "neon-vfpv4", "neon+vfp4", "1"),
        ] {
            cc::Build::new()
                .files(NEON)
                .flag_if_supported(format!("-mfpu={unit}"))
                .flag_if_supported(format!("-mcpu=generic+v7a+{cpu}"))
                .flag("-ffp-contract=off")
                .define("FUSED", fused)
                .compile(name);
        }
    }
}

/// Returns N of Rust 1.N.
fn compiler_minor() -> Option<u32> {
    let output = std::process::Command::new(std::env::var_os("RUSTC")?)
        .arg("--version")
        .output()
        .ok()?;
    String::from_utf8(output.stdout)
        .ok()?
        .split('.')
        .nth(1)?
        .parse()
        .ok()
}

/// Returns text for a directive to cargo, in which a line break would begin another directive.
fn one_line(text: impl std::fmt::Display) -> String {
    text.to_string().replace(|c: char| c.is_control(), " ")
}

/// Writes the block or its slot, and the assembly that puts it into the program as one
/// page-aligned, read-only symbol.
fn write(block: &'static [u8], out: &Path) {
    // The hash makes the text differ for each block. Compilers' caches see only the text, not the
    // file that `.incbin` includes.
    let hash = block::Block::open(block).map_or("slot".into(), block::Block::hash);
    let assembly = format!(
        ".section .rodata.mortonnet,\"a\",%progbits\n\
         .balign {}\n\
         .globl mortonnet_block\n\
         .hidden mortonnet_block\n\
         .type mortonnet_block, %object\n\
         mortonnet_block:\n\
         .incbin \"block.bin\"\n\
         .globl mortonnet_block_end\n\
         .hidden mortonnet_block_end\n\
         mortonnet_block_end:\n\
         .size mortonnet_block, {}\n\
         .ascii \"mortonnet block {hash}\\0\"\n\
         .section .note.GNU-stack,\"\",%progbits\n",
        block::PAGE,
        block.len(),
    );
    for (name, bytes) in [("block.bin", block), ("block.s", assembly.as_bytes())] {
        if let Err(e) = std::fs::write(out.join(name), bytes) {
            println!(
                "cargo::error=cannot write {}: {e}",
                out.join(name).display()
            );
        }
    }
    cc::Build::new()
        .file(out.join("block.s"))
        .include(out)
        .warnings(false)
        .compile("mortonnet_block");
}
