//! Selects the systemd instance of the settings.

use std::path::PathBuf;

use fleet_agent::SystemdConfig;

use super::StartError;
use super::config::SystemdSettings;

/// Returns the configuration for the systemd that these settings select for this process.
pub(crate) fn of_process(settings: &SystemdSettings) -> Result<SystemdConfig, StartError> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    config(settings, rustix::process::geteuid().is_root(), runtime)
}

/// Returns the configuration for the system's systemd or for a user's, as `systemd_user` in the
/// settings selects. If that is not set, root uses the system's, and any other user uses its own.
/// `runtime_directory` is the value of `XDG_RUNTIME_DIR`.
///
/// # Errors
///
/// A user's systemd is selected, but `runtime_directory` is `None`.
fn config(
    settings: &SystemdSettings,
    is_root: bool,
    runtime_directory: Option<PathBuf>,
) -> Result<SystemdConfig, StartError> {
    let mut config = match (settings.user.unwrap_or(!is_root), runtime_directory) {
        (false, _) => SystemdConfig::system(),
        (true, Some(directory)) => SystemdConfig::user(&directory),
        (true, None) => {
            return Err(StartError::new(
                "cannot find the user's systemd: XDG_RUNTIME_DIR is not set; log in as that user, \
                 or write systemd_user = false to use the system's",
            ));
        }
    };
    if let Some(directory) = &settings.directory {
        config.directory.clone_from(directory);
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selects_the_configured_systemd() {
        let here = || Some(PathBuf::from("/run/user/7"));
        let settings = |user| SystemdSettings { user, directory: None };
        let rows = [
            (settings(None), true, "/run/dbus/system_bus_socket", "/run/fleet/units"),
            (settings(None), false, "/run/user/7/bus", "/run/user/7/fleet/units"),
            (settings(Some(false)), false, "/run/dbus/system_bus_socket", "/run/fleet/units"),
            (settings(Some(true)), true, "/run/user/7/bus", "/run/user/7/fleet/units"),
        ];
        for (settings, is_root, socket, directory) in rows {
            let config = config(&settings, is_root, here()).expect("no systemd was selected");
            assert_eq!(config.socket, PathBuf::from(socket), "{settings:?}");
            assert_eq!(config.directory, PathBuf::from(directory), "{settings:?}");
        }
        let error = config(&settings(None), false, None).err().expect("a systemd was selected");
        assert!(error.to_string().contains("XDG_RUNTIME_DIR is not set"), "{error}");
        let own = SystemdSettings { directory: here(), ..settings(None) };
        let config = config(&own, true, None).expect("no systemd was selected");
        assert_eq!(Some(config.directory), here());
    }
}
