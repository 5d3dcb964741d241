//! Entry point of `fleetd`. The implementation is in the library, so that tests can use it.

use std::process::ExitCode;

fn main() -> ExitCode {
    fleet_agent::native::run_if_invoked();
    fleet_bin::fleetd::main()
}
