//! The environment of a unit's process, which inherits nothing else from fleet.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use fleet_core::graph::ExecEnvironment;
use rustix::io::Errno;

use crate::native::linux::descriptors::is_out_of_descriptors;
use crate::native::linux::environment_file::parse_file;
use crate::native::linux::identity::User;
use crate::native::linux::nonblocking_open::read_text;
use crate::native::linux::process_info::{INVOCATION_ID, SYSTEMD_EXEC_PID};

/// Limit on the size of an environment file in bytes.
const MAX_BYTES: u64 = 1024 * 1024;

/// Search path for programs without a path, as in systemd.
pub(crate) const SEARCH_PATH: [&str; 6] =
    ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// Collects the environment of one process. Each source overrides the sources before it.
///
/// | order | source |
/// |---|---|
/// | 1 | `PATH`, and variables that the service manager passes to all units |
/// | 2 | `extra`: variables about the service |
/// | 3 | `HOME`, `USER`, `LOGNAME`, `SHELL` if `User=` is set |
/// | 4 | `PassEnvironment=` from fleet's own environment |
/// | 5 | `Environment=` |
/// | 6 | `EnvironmentFile=` |
/// | 7 | removals by `UnsetEnvironment=` |
/// | 8 | variables of `extra` that identify processes: `INVOCATION_ID`, `SYSTEMD_EXEC_PID` |
pub(crate) fn collect(
    exec_env: &ExecEnvironment,
    passed: &[(String, String)],
    user: Option<&User>,
    extra: &[(&str, String)],
) -> Result<BTreeMap<String, String>, String> {
    let mut all = BTreeMap::from([("PATH".to_owned(), SEARCH_PATH.join(":"))]);
    all.extend(passed.iter().cloned());
    let own = |(name, value): &(&str, String)| ((*name).to_owned(), value.clone());
    all.extend(extra.iter().map(own));
    if let Some(user) = user {
        all.extend(user.variables());
    }
    for name in &exec_env.pass_environment {
        if let Ok(value) = std::env::var(name) {
            all.insert(name.clone(), value);
        }
    }
    all.extend(exec_env.environment.iter().cloned());
    for file in &exec_env.environment_files {
        match read_text(Path::new(&file.path), MAX_BYTES).and_then(without_zero) {
            Ok(text) => all.extend(parse_file(&text)),
            // A temporary shortage of descriptors is no property of the file.
            Err(error)
                if file.optional
                    && !Errno::from_io_error(&error).is_some_and(is_out_of_descriptors) => {}
            Err(error) => {
                return Err(format!("cannot read its environment file {}: {error}", file.path));
            }
        }
    }
    for unset in &exec_env.unset_environment {
        match unset.split_once('=') {
            Some((name, value)) if all.get(name).is_some_and(|set| set == value) => {
                all.remove(name);
            }
            Some(_) => {}
            None => {
                all.remove(unset);
            }
        }
    }
    let finds = |name: &str| [INVOCATION_ID, SYSTEMD_EXEC_PID].contains(&name);
    all.extend(extra.iter().filter(|it| finds(it.0)).map(own));
    Ok(all)
}

/// Returns the text, or an error if it contains NUL, which variables cannot contain.
fn without_zero(text: String) -> io::Result<String> {
    if text.contains('\0') { Err(io::Error::other("it contains a NUL byte")) } else { Ok(text) }
}

#[cfg(test)]
mod tests {
    use fleet_core::graph::EnvironmentFile;

    use super::*;

    #[test]
    fn later_sources_override_and_identity_is_last() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let exec_env = ExecEnvironment {
            environment: vec![
                pair("A", "unit"),
                pair("B", "b"),
                pair("MAINPID", "1"),
                pair(INVOCATION_ID, "8"),
            ],
            unset_environment: ["B", "A=other", INVOCATION_ID, SYSTEMD_EXEC_PID, "NOTIFY_SOCKET"]
                .map(str::to_owned)
                .into(),
            ..ExecEnvironment::default()
        };
        let extra = [
            (INVOCATION_ID, "7".to_owned()),
            (SYSTEMD_EXEC_PID, String::new()),
            ("MAINPID", "2".to_owned()),
            ("NOTIFY_SOCKET", "@x".to_owned()),
            ("PIDFILE", "/run/x".to_owned()),
        ];
        let all = collect(&exec_env, &[pair("A", "machine")], None, &extra);
        let all = all.expect("no file is read");
        let of = |name: &str| all.get(name).map(String::as_str);
        assert_eq!((of("A"), of("B"), of("PIDFILE")), (Some("unit"), None, Some("/run/x")));
        assert_eq!((of("MAINPID"), of("NOTIFY_SOCKET")), (Some("1"), None));
        assert_eq!((of(INVOCATION_ID), of(SYSTEMD_EXEC_PID)), (Some("7"), Some("")));
        assert!(of("PATH").is_some_and(|path| path.starts_with("/usr/local/sbin:")));
    }

    #[test]
    fn optional_environment_file_is_ignored_on_error() {
        let home = tempfile::tempdir().expect("a directory can be made");
        let path = |name: &str| home.path().join(name).display().to_string();
        for (name, bytes) in [("good", &b"A=1\n"[..]), ("bytes", b"A=\xff\n"), ("zero", b"A=\0\n")]
        {
            std::fs::write(path(name), bytes).expect("it can be written");
        }
        let read = |path: String, optional: bool| {
            let environment_files = vec![EnvironmentFile { path, optional }];
            let exec_env = ExecEnvironment { environment_files, ..ExecEnvironment::default() };
            collect(&exec_env, &[], None, &[]).map(|all| all.get("A").cloned())
        };
        for optional in [true, false] {
            assert_eq!(read(path("good"), optional), Ok(Some("1".to_owned())));
        }
        for name in ["none", "bytes", "zero", "", "good/none"] {
            assert_eq!(read(path(name), true), Ok(None), "{name}");
            read(path(name), false).expect_err(name);
        }
    }
}
