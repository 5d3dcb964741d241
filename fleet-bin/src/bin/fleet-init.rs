//! Entry point of `fleet-init`. See `docs/init.md`.

use std::env;
use std::process::ExitCode;

fn main() -> ExitCode {
    fleet_bin::fleet_init::run(env::args_os().collect())
}
