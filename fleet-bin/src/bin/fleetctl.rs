//! Entry point of `fleetctl`. See `docs/reference/fleetctl.md`.

use std::env;
use std::process::ExitCode;

fn main() -> ExitCode {
    fleet_bin::fleetctl::run(env::args_os().collect(), |name| env::var_os(name))
}
