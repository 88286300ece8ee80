//! What the compiler can do, and the kernels that are in C.

fn main() {
    for path in ["build.rs", "neon.c"] {
        println!("cargo::rerun-if-changed={path}");
    }
    if std::env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| arch == "arm") {
        compile_neon();
    }
    println!("cargo::rustc-check-cfg=cfg(mortonnet_avx512)");
    if compiler_minor().is_some_and(|minor| minor >= 89) {
        println!("cargo::rustc-cfg=mortonnet_avx512");
    }
}

/// N of Rust 1.N: AVX-512 is stable from 1.89 on, the package compiles from 1.85 on.
fn compiler_minor() -> Option<u32> {
    let output = std::process::Command::new(std::env::var_os("RUSTC")?).arg("--version").output().ok()?;
    String::from_utf8(output.stdout).ok()?.split('.').nth(1)?.parse().ok()
}

/// The kernels for 32-bit ARM, twice: for NEON alone, and with VFPv4. Compilers other than zig take the unit from
/// -mfpu, zig from the CPU.
fn compile_neon() {
    for (name, unit, cpu, fused) in
        [("mortonnet_neon", "neon", "neon", "0"), ("mortonnet_vfpv4", "neon-vfpv4", "neon+vfp4", "1")]
    {
        cc::Build::new()
            .file("neon.c")
            .flag_if_supported(format!("-mfpu={unit}"))
            .flag_if_supported(format!("-mcpu=generic+v7a+{cpu}"))
            .flag("-ffp-contract=off")
            .define("FUSED", fused)
            .compile(name);
    }
}
