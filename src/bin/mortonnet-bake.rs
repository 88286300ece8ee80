//! The program `mortonnet-bake`, which puts networks into finished programs. All its code is in the
//! library crate, whose function `bake` it calls.

fn main() -> std::process::ExitCode {
    mortonnet::bake()
}
