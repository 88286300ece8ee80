//! Puts networks into finished programs. All of it is in the library beside it, as of `mortonnet`.

fn main() -> std::process::ExitCode {
    mortonnet::bake()
}
