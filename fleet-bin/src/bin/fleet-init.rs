//! Entry point of `fleet-init`. See `docs/reference/fleet-init.md`.

use std::env;
use std::process::ExitCode;

fn main() -> ExitCode {
    fleet_agent::native::run_if_invoked();
    fleet_bin::fleet_init::run(env::args_os().collect())
}
