//! Conditions with a root directory that holds the files of another machine.

mod cgroups;
mod hardware;
mod paths;
mod virtualization;

use std::fs;
use std::path::PathBuf;

use nix::unistd::{Gid, Uid};
use tempfile::TempDir;

use super::*;

/// Files of a machine with their contents. A path that ends with a slash is a directory.
type Files<'a> = &'a [(&'a str, &'a str)];

/// Facts of a physical machine without anything special.
fn machine(root: PathBuf) -> Machine {
    Machine {
        root,
        architecture: "x86_64".to_owned(),
        hypervisor: None,
        cpus: 4,
        environment: vec![("A".to_owned(), "b=c".to_owned())],
        credentials: Vec::new(),
        has_audit: || true,
    }
}

fn with_files(files: Files<'_>) -> (TempDir, Machine) {
    let directory = tempfile::tempdir().expect("a directory can be made");
    for (path, text) in files {
        let place = directory.path().join(path);
        fs::create_dir_all(if path.ends_with('/') {
            &place
        } else {
            place.parent().expect("root")
        })
        .expect("a directory can be made");
        if !path.ends_with('/') {
            fs::write(place, text).expect("it can be written");
        }
    }
    let machine = machine(directory.path().to_owned());
    (directory, machine)
}

/// Evaluates a setting such as `Memory=>1G`.
fn check(machine: &Machine, setting: &str) -> Option<bool> {
    let (name, argument) = setting.split_once('=').expect("it is an assignment");
    let kind = ConditionKind::of_option(name).expect("it is a condition");
    machine.check(&ConditionTest::new(kind, argument).expect("the argument is fine"))
}

/// Checks settings on a machine with these files: those that hold, and those that do not.
fn expect(files: Files<'_>, holding: &[&str], others: &[&str]) {
    let (_directory, machine) = with_files(files);
    for setting in holding {
        assert_eq!(check(&machine, setting), Some(true), "{setting} with {files:?}");
    }
    for setting in others {
        assert_eq!(check(&machine, setting), Some(false), "{setting} with {files:?}");
    }
}

#[test]
fn kernel_conditions_read_kernel_and_system() {
    expect(
        &[("proc/cmdline", "BOOT_IMAGE=/vmlinuz quiet root=/dev/x \"a=b c\"\n")],
        &["quiet", "root", "root=/dev/x", "a=b c"]
            .map(|it| format!("KernelCommandLine={it}"))
            .each_ref()
            .map(String::as_str),
        &["qui", "roots", "root=/dev", "vmlinuz"]
            .map(|it| format!("KernelCommandLine={it}"))
            .each_ref()
            .map(String::as_str),
    );
    let container =
        [("proc/cmdline", "quiet"), ("proc/1/cmdline", "init\0x=1"), (".dockerenv", "")];
    expect(&container, &["KernelCommandLine=x"], &["KernelCommandLine=quiet"]);
    expect(
        &[("proc/sys/kernel/osrelease", "6.1.0-9-amd64\n")],
        &[
            "KernelVersion=>=6.1 <6.2",
            "KernelVersion=6.1*",
            "Version=>=6.1",
            "Version=systemd>=252",
        ],
        &["KernelVersion=>6.2", "KernelVersion=6.1", "Version=kernel <6.1", "Version=systemd>252"],
    );
    expect(
        &[
            ("sys/module/loop/initstate", "live\n"),
            ("sys/module/nf_tables/initstate", "coming\n"),
            ("sys/module/tcp_cubic/parameters/x", ""),
        ],
        &["KernelModuleLoaded=loop", "KernelModuleLoaded=tcp-cubic"],
        &["KernelModuleLoaded=nf_tables", "KernelModuleLoaded=none", "KernelModuleLoaded=../x"],
    );
    let release = "NAME=\"Debian GNU/Linux\"\nVERSION_ID='12'\nID=debian\n";
    let holding = ["OSRelease=ID=debian VERSION_ID>=9", "OSRelease='NAME$=Debian*'"];
    let others = ["OSRelease=ID=fedora", "OSRelease=ID=debian VERSION_ID<12", "OSRelease=NONE=1"];
    expect(&[("etc/os-release", release)], &holding, &others);
    expect(&[("usr/lib/os-release", release)], &holding, &others);
    assert_eq!(check(&with_files(&[]).1, holding[0]), None);
    let first = ["FirstBoot=yes", "FirstBoot=no"];
    expect(&[("run/systemd/first-boot", "")], &first[..1], &first[1..]);
    expect(&[("proc/cmdline", "systemd.condition-first-boot=1")], &first[..1], &first[1..]);
    expect(&[], &first[1..], &first[..1]);
}

#[test]
fn security_conditions_read_kernel_and_firmware() {
    let efi = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c";
    let tpm = ("sys/class/tpmrm/tpmrm0/dev", "");
    let table = ("sys/firmware/acpi/tables/TPM2", "");
    let firmware = ("sys/firmware/efi/systab", "");
    let cases: [(&str, Files<'_>, Files<'_>); 8] = [
        (
            "selinux",
            &[("sys/fs/selinux/enforce", "1"), ("etc/selinux/config", "")],
            &[("etc/selinux/config", "")],
        ),
        (
            "apparmor",
            &[("sys/module/apparmor/parameters/enabled", "Y\n")],
            &[("sys/module/apparmor/parameters/enabled", "N\n")],
        ),
        ("tomoyo", &[("sys/kernel/security/tomoyo/version", "1")], &[]),
        ("ima", &[("sys/kernel/security/ima/x", "")], &[]),
        ("smack", &[("sys/fs/smackfs/x", "")], &[]),
        ("uefi-secureboot", &[(efi, "\x06\0\0\0\x01")], &[(efi, "\x06\0\0\0\0")]),
        ("tpm2", &[tpm, table, firmware], &[tpm, table]),
        ("tpm2", &[tpm, table, firmware], &[tpm, table, firmware, (".dockerenv", "")]),
    ];
    for (name, present, absent) in cases {
        let setting = [&*format!("Security={name}")];
        expect(present, &setting, &["Security=unheard-of"]);
        expect(absent, &[], &setting);
    }
    let (_directory, mut machine) = with_files(&[]);
    assert_eq!(check(&machine, "Security=audit"), Some(true));
    machine.has_audit = || false;
    assert_eq!(check(&machine, "Security=audit"), Some(false));
}

#[test]
fn capability_is_in_the_bounding_set() {
    let (_directory, machine) = with_files(&[("proc/self/status", "CapBnd:\t0000000000200001\n")]);
    for (name, expected) in [
        ("CAP_SYS_ADMIN", Some(true)),
        ("cap_chown", Some(true)),
        ("21", Some(true)),
        ("CAP_MKNOD", Some(false)),
        ("CAP_CHECKPOINT_RESTORE", Some(false)),
        ("SYS_ADMIN", None),
        ("CAP_UNHEARD_OF", None),
    ] {
        assert_eq!(check(&machine, &format!("Capability={name}")), expected, "{name}");
    }
}

#[test]
fn supervisor_conditions_read_the_process() {
    let id = "0123456789abcdef0123456789abcdef";
    expect(
        &[("etc/machine-id", &format!("{id}\n")), ("proc/sys/kernel/hostname", "Web-1\n")],
        &["Host=web-1", "Host=WEB-[0-9]", "Host=*", &format!("Host={}", id.to_ascii_uppercase())],
        &["Host=web", "Host=web-[!1]", &format!("Host={}", id.replace('0', "1"))],
    );
    expect(
        &[],
        &["Environment=A", "Environment=A=b=c"],
        &["Environment=B", "Environment=A=b", "Environment=a"],
    );
    let (directory, mut machine) = with_files(&[("credentials/key", "")]);
    machine.credentials = vec!["/no such path".into(), directory.path().join("credentials")];
    for (name, expected) in [("key", true), ("none", false), ("../credentials/key", false)] {
        assert_eq!(check(&machine, &format!("Credential={name}")), Some(expected), "{name}");
    }
    let (uid, gid) = (Uid::effective().as_raw(), Gid::effective().as_raw());
    for (setting, expected) in [
        (format!("User={uid}"), true),
        (format!("User={}", uid + 1), false),
        ("User=no such user".to_owned(), false),
        ("User=@system".to_owned(), uid < 1000),
        (format!("Group={gid}"), true),
        ("Group=4294967294".to_owned(), false),
        ("Group=no such group".to_owned(), false),
    ] {
        assert_eq!(check(&machine, &setting), Some(expected), "{setting}");
    }
    if Uid::effective().is_root() {
        assert_eq!(check(&machine, "User=root"), Some(true));
        assert_eq!(check(&machine, "Group=root"), Some(true));
    }
}

/// Each kind has a result on this machine, whatever it is.
#[test]
fn conditions_of_all_kinds_are_evaluated() {
    let machine = Machine::this();
    for kind in ConditionKind::ALL {
        let argument = match kind {
            kind if kind.takes_path() => "/",
            ConditionKind::AcPower | ConditionKind::FirstBoot => "yes",
            ConditionKind::Memory | ConditionKind::Cpus => ">0",
            ConditionKind::OsRelease => "ID=x",
            ConditionKind::Capability => "CAP_CHOWN",
            ConditionKind::MemoryPressure
            | ConditionKind::CpuPressure
            | ConditionKind::IoPressure => "100%",
            _ => "x",
        };
        let test = ConditionTest::new(*kind, argument).expect("the argument is fine");
        assert!(machine.check(&test).is_some(), "{test:?}");
    }
}

#[test]
fn a_false_condition_is_named() {
    let condition = |assert| UnitCondition {
        test: ConditionTest::new(ConditionKind::PathExists, "/").expect("it is a path"),
        negated: true,
        any: false,
        assert,
    };
    let told = check_conditions(&[condition(false)], false, &[]);
    assert_eq!(told, Err(("its ConditionPathExists=!/ does not hold".into(), false)));
    let told = check_conditions(&[condition(true)], false, &[]);
    assert_eq!(told, Err(("its AssertPathExists=!/ does not hold".into(), true)));
    assert_eq!(check_conditions(&[], false, &[]), Ok(()));
}

/// Regression: the condition of a stanza was named as in a systemd unit file.
#[test]
fn false_condition_of_a_stanza_has_the_key_of_stanzas() {
    let test = ConditionTest::new(ConditionKind::PathExists, "/").expect("it is a path");
    let condition = UnitCondition { test, negated: true, any: false, assert: true };
    let told = check_conditions(&[condition], true, &[]);
    assert_eq!(told, Err(("its `assert: !path-exists /` does not hold".into(), true)));
}

#[test]
fn variables_of_units_count_as_environment() {
    let test = ConditionTest::new(ConditionKind::Environment, "FLEET_CONDITION=1");
    let test = test.expect("it is an assignment");
    let condition = UnitCondition { test, negated: false, any: false, assert: false };
    let condition = [condition];
    let variable = ("FLEET_CONDITION".to_owned(), "1".to_owned());
    assert_eq!(check_conditions(&condition, false, &[variable]), Ok(()));
    assert!(check_conditions(&condition, false, &[]).is_err());
}
