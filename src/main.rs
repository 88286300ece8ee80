//! The program `mortonnet`. All its code is in the library crate, whose function `main` it calls.

fn main() -> std::process::ExitCode {
    mortonnet::main()
}
