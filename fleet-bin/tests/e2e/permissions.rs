//! Access of other users to the files of a daemon.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::daemon::{Cluster, output_text};
use crate::run::Machine;

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
}

/// Returns a directory and everything below it.
fn walk(path: &Path) -> Vec<PathBuf> {
    let mut found = vec![path.to_owned()];
    let mut next = 0;
    while let Some(path) = found.get(next).cloned() {
        next += 1;
        if path.is_dir() {
            found.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    found
}

/// Returns the entries that other users can access, or that the group can change.
fn exposed(path: &Path) -> Vec<String> {
    let open = walk(path).into_iter().filter(|path| mode(path) & 0o027 != 0);
    open.map(|path| format!("{:04o} {}", mode(&path), path.display())).collect()
}

#[test]
fn data_directory_is_private_under_any_umask() {
    let mut machine = Machine::new();
    machine.umask = "0000";
    machine.start_with_unit();
    machine.end();
    let data = machine.path("data");
    assert!(walk(&data).len() > 10, "{:?}", walk(&data));
    assert_eq!(exposed(&data), [""; 0]);
    assert_eq!(mode(&data), 0o750);
}

#[test]
fn wide_modes_are_restricted_at_startup() {
    let mut machine = Machine::new();
    machine.start_with_unit();
    machine.end();
    let data = machine.path("data");
    for path in walk(&data) {
        let wide = if path.is_dir() { 0o755 } else { 0o644 };
        fs::set_permissions(&path, Permissions::from_mode(wide)).unwrap();
    }
    let own = machine.path("data/notes");
    fs::write(&own, "of the administrator").unwrap();
    fs::set_permissions(&own, Permissions::from_mode(0o644)).unwrap();
    machine.start();
    machine.end();
    assert_eq!(exposed(&data), [format!("0644 {}", own.display())]);
}

#[test]
fn data_directory_of_another_user_is_refused() {
    let machine = tempfile::tempdir().unwrap();
    let at = machine.path().display();
    let (data, config) = (machine.path().join("data"), machine.path().join("fleet.conf"));
    fs::create_dir(&data).unwrap();
    let text = format!("data_dir = \"{at}/data\"\nlisten = \"unix://{at}/fleet.sock\"\n");
    fs::write(&config, text).unwrap();
    let refused = |args: &[&Path]| {
        let mut fleetd = Command::new(env!("CARGO_BIN_EXE_fleetd"));
        let output = fleetd.args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", output_text(&output));
        String::from_utf8(output.stderr).unwrap()
    };
    let run = [Path::new("--config"), config.as_path()];
    let dev = [Path::new("dev"), Path::new("--data-dir"), data.as_path()];
    fs::set_permissions(&data, Permissions::from_mode(0o777)).unwrap();
    for args in [&run[..], &dev] {
        let error = refused(args);
        assert!(error.contains("data: every user can write to it (mode 0777)"), "{error}");
    }
    fs::set_permissions(&data, Permissions::from_mode(0o755)).unwrap();
    // Other users can give a directory only to themselves.
    if rustix::process::geteuid().is_root() && chown(&data, Some(65534), None).is_ok() {
        for args in [&run[..], &dev] {
            let error = refused(args);
            assert!(error.contains("data: it belongs to user 65534"), "{error}");
        }
    }
    assert_eq!(fs::read_dir(&data).unwrap().count(), 0, "nothing was created in it");
}

#[cfg(feature = "etcd")]
#[test]
fn readable_secret_of_etcd_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let path = |name: &str| home.path().join(name);
    for name in ["cert", "key", "password"] {
        fs::write(path(name), "secret\n").unwrap();
        fs::set_permissions(path(name), Permissions::from_mode(0o644)).unwrap();
    }
    let at = home.path().display();
    let user = format!("etcd_username = \"fleet\"\netcd_password_file = \"{at}/password\"\n");
    let key = format!("etcd_certfile = \"{at}/cert\"\netcd_keyfile = \"{at}/key\"\n");
    for (rest, expected) in [(user, "etcd_password_file: "), (key, "etcd_keyfile: ")] {
        let text = format!(
            "etcd_servers = \"https://127.0.0.1:1\"\n{rest}listen = \"unix://{at}/fleet.sock\"\n\
             data_dir = \"{at}/data\"\nruntime_dir = \"{at}/run\"\n"
        );
        fs::write(path("fleet.conf"), text).unwrap();
        for flag in ["check-config", "--config"] {
            let mut fleetd = Command::new(env!("CARGO_BIN_EXE_fleetd"));
            let output = fleetd.arg(flag).arg(path("fleet.conf")).output().unwrap();
            assert_eq!(output.status.code(), Some(2), "{}", output_text(&output));
            let errors = output_text(&output);
            let place = format!("fleet.conf:3:1: {expected}");
            assert!(errors.contains(&place) && errors.contains("chmod 0600"), "{errors}");
        }
    }
}

#[test]
fn dev_directory_is_for_its_user_alone() {
    let cluster = Cluster::start(&[]);
    assert_eq!(mode(&cluster.path("data")), 0o700);
    let machines = cluster.path("data/machines");
    assert_eq!(exposed(&machines), [""; 0]);
    assert_eq!(exposed(&cluster.path("data/store.redb")), [""; 0]);
}
