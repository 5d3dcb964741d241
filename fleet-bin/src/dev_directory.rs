//! Pure: default data directory of `fleetd dev`, where `fleetctl` looks for its socket.

use std::ffi::OsString;
use std::path::PathBuf;

/// Name of the socket in the data directory.
pub(crate) const SOCKET: &str = "fleet.sock";

/// Returns the default data directory: `fleet/dev` in the user's state directory.
///
/// `variable` looks up environment variables. The result is `None` if neither `XDG_STATE_HOME` nor
/// `HOME` is set.
pub(crate) fn default(variable: &dyn Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let path = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = || Some(path("HOME")?.join(".local/state"));
    Some(path("XDG_STATE_HOME").or_else(home)?.join("fleet/dev"))
}
