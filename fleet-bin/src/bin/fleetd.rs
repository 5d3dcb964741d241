//! The daemon. Everything it does is in the library, so that it can be tested.

use std::process::ExitCode;

fn main() -> ExitCode {
    fleet_bin::fleetd::main()
}
