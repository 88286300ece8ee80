//! The program `mortonnet-bake`, which puts a network into a finished program. All its code is in
//! the library crate, in the function `bake`.

fn main() -> std::process::ExitCode {
    mortonnet::bake()
}
