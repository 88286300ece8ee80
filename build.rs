//! Bakes a network: inputs, bake, report. The work is in `src/bake`, what the program shares in `src/ir`, `ops`, `registry`, `planner`.

#[path = "src/bake/mod.rs"]
#[allow(dead_code, unreachable_pub)]
mod bake;
#[path = "src/ir/mod.rs"]
#[allow(dead_code, unreachable_pub)]
mod ir;
#[path = "src/ops/mod.rs"]
#[allow(dead_code, unreachable_pub)]
mod ops;
#[path = "src/planner/mod.rs"]
#[allow(dead_code, unreachable_pub)]
mod planner;
#[path = "src/registry/mod.rs"]
#[allow(dead_code, unreachable_pub)]
mod registry;

use std::path::{Path, PathBuf};

fn main() {
    let variable = |name: &str| {
        println!("cargo::rerun-if-env-changed={name}");
        std::env::var_os(name).filter(|v| !v.is_empty())
    };
    let cargo = |name: &str| std::env::var(name).unwrap_or_default();
    let model = variable("MORTONNET_MODEL");
    let plan = variable("MORTONNET_PLAN");
    let weights = match variable("MORTONNET_WEIGHTS") {
        None => Some(ir::network::Precision::F32),
        Some(name) => name.to_str().and_then(ir::network::Precision::parse),
    };
    let Some(weights) = weights else {
        return println!("cargo::error=MORTONNET_WEIGHTS: expected f32 or f16");
    };
    let default_plan =
        if matches!(&*cargo("CARGO_CFG_TARGET_ARCH"), "arm" | "aarch64") { "mali-midgard" } else { "host" };
    let settings = bake::Settings {
        root: PathBuf::from(cargo("CARGO_MANIFEST_DIR")),
        model: model.clone().unwrap_or("model/digits".into()).into(),
        weights,
        plan: plan.map_or(default_plan.into(), |p| p.to_string_lossy().into_owned()),
        lab: std::env::var_os("CARGO_FEATURE_LAB").is_some(),
    };
    for path in ["build.rs", "src/bake", "src/ir", "src/ops", "src/planner", "src/registry", "kernels"] {
        println!("cargo::rerun-if-changed={path}");
    }
    let baked = bake::bake(&settings);
    let files = match &baked {
        Ok(baked) => &baked.files,
        Err((_, files)) => files,
    };
    files.iter().for_each(|f| println!("cargo::rerun-if-changed={}", one_line(f.display())));
    match baked {
        Ok(baked) => {
            let out = PathBuf::from(cargo("OUT_DIR"));
            write(&baked, &out);
            // Always, so that nobody ships the network of an earlier or a later build: all go into the same file. Cargo
            // repeats it when there is nothing to build.
            let (n, plan) = (&baked.network, &baked.plan);
            let (name, shape, bytes) = (one_line(&n.name), n.shape(), plan.constant_bytes());
            let why = match (&model, std::env::var_os("MORTONNET_MODEL")) {
                (Some(_), _) => "",
                (None, None) => " (the default: MORTONNET_MODEL is not set)",
                (None, Some(_)) => " (the default: MORTONNET_MODEL is empty)",
            };
            println!("cargo::warning=baked {name}{why}: {shape}, plan {}, {bytes} bytes", plan.name);
            if let Some(r) = &baked.rounding {
                println!(
                    "cargo::warning=weights as f16: rounded by at most {:.2e} of their value, those below 2^-14 by {:.2e}; \
                     golden scores change by at most {:.2e}, {} of {} classes",
                    r.weight.0, r.weight.1, r.score, r.classes, baked.golden.count
                );
            }
        }
        Err((mistakes, _)) => mistakes.0.iter().for_each(|m| println!("cargo::error={}", one_line(m))),
    }
}

/// Text for a directive to cargo: a line break would begin another directive.
fn one_line(text: impl std::fmt::Display) -> String {
    text.to_string().replace(|c: char| c.is_control(), " ")
}

/// Writes the generated files and compiles the constants.
fn write(baked: &bake::Baked, out: &Path) {
    let put = |name: &str, bytes: &[u8]| {
        if let Err(e) = std::fs::write(out.join(name), bytes) {
            println!("cargo::error=cannot write {}: {e}", out.join(name).display());
        }
    };
    put("baked.rs", bake::emit::rust(baked).as_bytes());
    put(bake::emit::LIBRARY_FILE, &bake::emit::library(baked));
    put(bake::emit::BLOB_FILE, &baked.blob);
    put("weights.s", bake::emit::assembly(baked).as_bytes());
    cc::Build::new().file(out.join("weights.s")).include(out).warnings(false).compile("mortonnet_weights");
}
