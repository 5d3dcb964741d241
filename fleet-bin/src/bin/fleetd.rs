//! Entry point of `fleetd`. The library has the implementation, so that tests can use it.

use std::process::ExitCode;

fn main() -> ExitCode {
    fleet_bin::fleetd::main()
}
