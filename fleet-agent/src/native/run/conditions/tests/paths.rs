//! Conditions on files and directories that the test creates.

use std::fs;
use std::os::unix::fs::symlink;

use super::super::paths;
use super::{check, with_files};

#[test]
fn path_conditions_look_at_files() {
    let (directory, machine) = with_files(&[
        ("empty", ""),
        ("full", "x"),
        ("hidden/.file", ""),
        ("hidden/old.bak", ""),
        ("hidden/x~", ""),
        ("shown/a.conf", ""),
        ("bare/", ""),
    ]);
    let root = directory.path().display().to_string();
    symlink("nowhere", directory.path().join("broken")).expect("a link can be made");
    symlink("full", directory.path().join("link")).expect("a link can be made");
    let _socket = std::os::unix::net::UnixListener::bind(directory.path().join("socket"))
        .expect("a socket can be made");
    for (setting, expected) in [
        ("PathExists=/empty", true),
        ("PathExists=/none", false),
        ("PathExists=/broken", false),
        ("PathExistsGlob=/shown/*.conf", true),
        ("PathExistsGlob=/*/a.[!d]onf", true),
        ("PathExistsGlob=/{none,shown/?.conf}", true),
        ("PathExistsGlob=/hidden/*file", false),
        ("PathExistsGlob=/hidden/.f*", true),
        ("PathExistsGlob=/brok*", true),
        ("PathExistsGlob=/full*/", false),
        ("PathExistsGlob=/show?/", true),
        ("PathExistsGlob=/none*", false),
        ("PathIsDirectory=/shown", true),
        ("PathIsDirectory=/full", false),
        ("PathIsSymbolicLink=/link", true),
        ("PathIsSymbolicLink=/broken", true),
        ("PathIsSymbolicLink=/full", false),
        ("PathIsMountPoint=/shown", false),
        ("PathIsReadWrite=/shown", true),
        ("PathIsReadWrite=/none", false),
        ("PathIsSocket=/socket", true),
        ("PathIsSocket=/full", false),
        ("DirectoryNotEmpty=/shown", true),
        ("DirectoryNotEmpty=/hidden", false),
        ("DirectoryNotEmpty=/bare", false),
        ("DirectoryNotEmpty=/full", false),
        ("DirectoryNotEmpty=/none", false),
        ("FileNotEmpty=/full", true),
        ("FileNotEmpty=/empty", false),
        ("FileNotEmpty=/shown", false),
        ("FileIsExecutable=/full", false),
        ("NeedsUpdate=/shown", true),
    ] {
        let setting = setting.replacen("=/", &format!("={root}/"), 1).replace("=/{", "={/");
        assert_eq!(check(&machine, &setting), Some(expected), "{setting}");
    }
    for (setting, expected) in [
        ("FileIsExecutable=/bin/sh", true),
        ("PathIsMountPoint=/", true),
        ("PathIsMountPoint=/proc", true),
        ("PathIsMountPoint=/proc/self", false),
        ("PathIsMountPoint=/no such path", false),
        ("PathIsEncrypted=/proc", false),
        ("PathIsEncrypted=/no such path", false),
    ] {
        assert_eq!(check(&machine, setting), Some(expected), "{setting}");
    }
}

#[test]
fn update_is_needed_if_usr_is_newer() {
    let (directory, machine) = with_files(&[("usr/", ""), ("etc/", "")]);
    let setting = format!("NeedsUpdate={}", directory.path().join("etc").display());
    let set = |path: &str, seconds| {
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
        let file = fs::File::open(directory.path().join(path)).expect("it can be opened");
        file.set_modified(time).expect("the time can be set");
    };
    fs::write(directory.path().join("etc/.updated"), "").expect("it can be written");
    for (usr, updated, expected) in [(20, 10, true), (10, 20, false), (10, 10, false)] {
        set("usr", usr);
        set("etc/.updated", updated);
        assert_eq!(check(&machine, &setting), Some(expected), "{usr} and {updated}");
    }
    fs::create_dir_all(directory.path().join("proc")).expect("a directory can be made");
    let line = "quiet systemd.condition-needs-update";
    fs::write(directory.path().join("proc/cmdline"), line).expect("it can be written");
    assert_eq!(check(&machine, &setting), Some(true));
}

#[test]
fn encryption_is_found_below_a_device() {
    let number = "1:1";
    let device = format!("sys/dev/block/{number}");
    for (files, expected) in [
        (&["dm/uuid CRYPT-LUKS2-x"][..], true),
        (&["dm/uuid LVM-x"], false),
        (&["dm/uuid LVM-x", "slaves/a/dm/uuid CRYPT-x"], true),
        (&["slaves/a/dm/uuid CRYPT-x", "slaves/b/size 1"], false),
        (&["slaves/a/slaves/b/dm/uuid CRYPT-x"], true),
        (&[], false),
    ] {
        let texts: Vec<_> = files.iter().filter_map(|file| file.split_once(' ')).collect();
        let texts: Vec<_> =
            texts.iter().map(|(path, text)| (format!("{device}/{path}"), *text)).collect();
        let texts: Vec<_> = texts.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        let (_directory, machine) = with_files(&texts);
        let place = machine.path(&device);
        assert_eq!(paths::is_encrypted_device(&place, 10), expected, "{files:?}");
    }
}
