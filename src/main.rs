//! The program. All of it is in the library beside it, whose one public function this calls.

fn main() -> std::process::ExitCode {
    mortonnet::main()
}
