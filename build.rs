//! Bakes a network: inputs, bake, report. The work is in `src/bake`, what the program shares in
//! `src/ir`, `ops`, `registry`, `planner`.

#[path = "src/bake/mod.rs"]
#[allow(dead_code)]
mod bake;
#[path = "src/block.rs"]
#[allow(dead_code)]
mod block;
#[path = "src/ir/mod.rs"]
#[allow(dead_code)]
mod ir;
#[path = "src/ops/mod.rs"]
#[allow(dead_code)]
mod ops;
#[path = "src/planner/mod.rs"]
#[allow(dead_code)]
mod planner;
#[path = "src/registry/mod.rs"]
#[allow(dead_code)]
mod registry;
#[path = "src/simd/mod.rs"]
mod simd;

use std::path::{Path, PathBuf};

fn main() {
    let variable = |name: &str| {
        println!("cargo::rerun-if-env-changed={name}");
        std::env::var_os(name).filter(|v| !v.is_empty())
    };
    let cargo = |name: &str| std::env::var(name).unwrap_or_default();
    let model = variable("MORTONNET_MODEL");
    let plan = variable("MORTONNET_PLAN");
    let stored = variable("MORTONNET_WEIGHTS").unwrap_or("f32".into());
    let (weights, changes) = match bake::stored(&stored.to_string_lossy()) {
        Ok(stored) => stored,
        Err(e) => return println!("cargo::error=MORTONNET_WEIGHTS: {}", one_line(e)),
    };
    // A program has the host's kernels for what its weights are stored as; with the lab, which
    // tries others, all.
    println!("cargo::rustc-check-cfg=cfg(mortonnet_weights, values(\"f32\", \"f16\", \"i8\"))");
    println!("cargo::rustc-cfg=mortonnet_weights=\"{}\"", weights.name());
    let default_plan = if matches!(&*cargo("CARGO_CFG_TARGET_ARCH"), "arm" | "aarch64") {
        "mali-midgard"
    } else {
        "host"
    };
    let settings = bake::Settings {
        names: bake::Names::Variables,
        root: PathBuf::from(cargo("CARGO_MANIFEST_DIR")),
        model: model.clone().unwrap_or("model/digits".into()).into(),
        weights,
        changes,
        plan: plan.map_or(default_plan.into(), |p| p.to_string_lossy().into_owned()),
        lab: std::env::var_os("CARGO_FEATURE_LAB").is_some(),
    };
    for path in [
        "build.rs",
        "src/bake",
        "src/block.rs",
        "src/ir",
        "src/ops",
        "src/planner",
        "src/registry",
        "src/simd",
        "kernels",
    ] {
        println!("cargo::rerun-if-changed={path}");
    }
    micro_kernels();
    if cargo("PROFILE") == "release"
        && ["OS", "ENV", "ARCH"].map(|about| cargo(&format!("CARGO_CFG_TARGET_{about}")))
            == ["linux", "gnu", "x86_64"]
    {
        // No index of unwinding tables, 12 KB: nothing unwinds where a panic ends the program, and
        // libraries have their own.
        println!("cargo::rustc-link-arg-bins=-Wl,--no-eh-frame-hdr");
    }
    let out = PathBuf::from(cargo("OUT_DIR"));
    if std::env::var_os("CARGO_FEATURE_APPENDED").is_some() {
        if std::env::var_os("CARGO_FEATURE_BAKE").is_some() {
            println!(
                "cargo::error=features appended and bake: mortonnet-bake needs the kernel library \
                 of a block"
            );
        }
        return write(block::Slot::empty(settings.lab).leak(), &out);
    }
    let baked = bake::bake(&settings);
    let files = match &baked {
        Ok(baked) => &baked.files,
        Err((_, files)) => files,
    };
    files
        .iter()
        .for_each(|f| println!("cargo::rerun-if-changed={}", one_line(f.display())));
    match baked {
        Ok(baked) => {
            let block = baked.block();
            let why = match (&model, std::env::var_os("MORTONNET_MODEL")) {
                (Some(_), _) => "",
                (None, None) => " (the default: MORTONNET_MODEL is not set)",
                (None, Some(_)) => " (the default: MORTONNET_MODEL is empty)",
            };
            // Always, so that nobody ships the network of an earlier or a later build: all go into
            // the same file. Cargo repeats it when there is nothing to build.
            for line in baked.report(why, &cargo("CARGO_CFG_TARGET_ARCH"), block.len()) {
                println!("cargo::warning={}", one_line(line));
            }
            write(block.leak(), &out);
        }
        Err((mistakes, _)) => mistakes
            .lines
            .iter()
            .for_each(|m| println!("cargo::error={}", one_line(m))),
    }
}

/// What the host's micro-kernels need of the compilers.
fn micro_kernels() {
    const NEON: &str = "src/engine/simd/micro/neon.c";
    println!("cargo::rerun-if-changed={NEON}");
    println!("cargo::rustc-check-cfg=cfg(mortonnet_avx512)");
    // AVX-512 is stable from Rust 1.89 on, the package compiles from 1.85 on.
    if compiler_minor().is_some_and(|minor| minor >= 89) {
        println!("cargo::rustc-cfg=mortonnet_avx512");
    }
    if std::env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| arch == "arm") {
        // Twice: for NEON alone, and with VFPv4. Compilers other than zig take the unit from -mfpu,
        // zig from the CPU.
        for (name, unit, cpu, fused) in [
            ("mortonnet_neon", "neon", "neon", "0"),
            ("mortonnet_vfpv4", "neon-vfpv4", "neon+vfp4", "1"),
        ] {
            cc::Build::new()
                .file(NEON)
                .flag_if_supported(format!("-mfpu={unit}"))
                .flag_if_supported(format!("-mcpu=generic+v7a+{cpu}"))
                .flag("-ffp-contract=off")
                .define("FUSED", fused)
                .compile(name);
        }
    }
}

/// N of Rust 1.N.
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

/// Text for a directive to cargo: a line break would begin another directive.
fn one_line(text: impl std::fmt::Display) -> String {
    text.to_string().replace(|c: char| c.is_control(), " ")
}

/// Writes the block (or the slot for one) and the assembly that includes it: one page-aligned,
/// read-only symbol.
fn write(block: &'static [u8], out: &Path) {
    // Its hash stands in the text because compilers' caches look at the text only, not at what
    // `.incbin` includes.
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
