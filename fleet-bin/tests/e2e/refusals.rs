//! Refused commands: each has a clear error, and changes nothing.

use crate::daemon::{Cluster, output_text};

/// A unit file with the parts that its error must contain.
struct Case {
    file: &'static str,
    text: &'static str,
    expected: &'static [&'static str],
}

const CASES: &[Case] = &[
    Case {
        file: "broken.service",
        text: "[Service]\nExecStart /bin/true\n",
        expected: &["broken.service:2:1:", "help: "],
    },
    Case {
        file: "unknown.service",
        text: "[Service]\nExecStart=/bin/true\n[X-Fleet]\nMachineMetaData=a=b\n",
        expected: &["unknown.service:4:1:", "MachineMetaData", "MachineMetadata"],
    },
    Case {
        file: "metadata.service",
        text: "[Service]\nExecStart=/bin/true\n[X-Fleet]\nMachineMetadata=a=b c=d\n",
        expected: &["metadata.service:4:", "\"a=b\" \"c=d\""],
    },
    Case {
        file: "bad name.service",
        text: "[Service]\nExecStart=/bin/true\n",
        expected: &["bad name"],
    },
];

#[test]
fn invalid_unit_files_are_refused_without_changes() {
    let cluster = Cluster::start(&[]);
    for case in CASES {
        let path = cluster.write(case.file, case.text);
        for command in ["submit", "load", "start"] {
            let output = cluster.fleetctl(&[command.as_ref(), path.as_os_str()]);
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(matches!(output.status.code(), Some(1 | 2)), "{}", output_text(&output));
            for expected in case.expected {
                assert!(errors.contains(expected), "{} lacks {expected}: {errors}", case.file);
            }
        }
    }
    assert!(cluster.units().is_empty());
}

#[test]
fn one_broken_file_fails_the_whole_command() {
    let cluster = Cluster::start(&[]);
    let sound = cluster.write("sound.service", "[Service]\nExecStart=/bin/true\n");
    let broken = cluster.write("broken.service", "[Service\n");
    let output = cluster.fleetctl(&["submit".as_ref(), sound.as_os_str(), broken.as_os_str()]);
    assert_eq!(output.status.code(), Some(1), "{}", output_text(&output));
    assert!(cluster.units().is_empty());
}

#[test]
fn different_content_of_a_known_unit_is_not_submitted() {
    let cluster = Cluster::start(&[]);
    let first = "[Service]\nExecStart=/bin/sleep 1000\n";
    let path = cluster.write("taken.service", first);
    cluster.succeed(&["submit".as_ref(), path.as_os_str()]);
    cluster.write("taken.service", "[Service]\nExecStart=/bin/sleep 2000\n");
    let output = cluster.fleetctl(&["submit".as_ref(), path.as_os_str()]);
    assert_eq!(output.status.code(), Some(0), "{}", output_text(&output));
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("--replace"),
        "{}",
        output_text(&output)
    );
    assert_eq!(cluster.succeed(&["cat", "taken.service"]), first);
}

#[test]
fn machine_of_cycle_is_printed() {
    let cluster = Cluster::start(&[]);
    let unit =
        |other: &str| format!("[Service]\nExecStart=/bin/true\n[X-Fleet]\nMachineOf={other}\n");
    let one = cluster.write("one.service", &unit("two.service"));
    let two = cluster.write("two.service", &unit("one.service"));
    cluster.succeed(&["submit".as_ref(), one.as_os_str()]);
    let output = cluster.fleetctl(&["submit".as_ref(), two.as_os_str()]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{}", output_text(&output));
    assert!(errors.contains("two.service -> one.service -> two.service"), "{errors}");
    assert_eq!(cluster.units(), ["one.service"]);
}

#[test]
fn unsupported_unit_does_not_affect_others() {
    let cluster = Cluster::start(&[]);
    let bad = cluster.write("old.service", "[Service]\nKillMode=some\nExecStart=/bin/true\n");
    let sound = cluster.write("sound.service", "[Service]\nExecStart=/bin/sleep infinity\n");
    let output = cluster.fleetctl(&["start".as_ref(), bad.as_os_str()]);
    assert_eq!(output.status.code(), Some(1), "{}", output_text(&output));
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("KillMode"),
        "{}",
        output_text(&output)
    );
    cluster.succeed(&["start".as_ref(), sound.as_os_str()]);
}

#[test]
fn usage_errors_exit_with_2() {
    let cluster = Cluster::start(&[]);
    for args in
        [&["no-such-command"][..], &["start", "--no-such-flag"], &["-o", "yaml", "list-units"]]
    {
        let output = cluster.fleetctl(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", output_text(&output));
    }
}

#[test]
fn dev_starts_nothing_if_a_unit_file_is_wrong() {
    let home = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = home.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let broken = write("broken.service", "[Service]\nExecStart /bin/true\n");
    let one = write("one.service", "[X-Fleet]\nMachineOf=two.service\n");
    let two = write("two.service", "[X-Fleet]\nMachineOf=one.service\n");
    let cases = [(vec![broken], "broken.service:2:1:"), (vec![one, two], "dependency cycle")];
    for (files, expected) in cases {
        let mut fleetd = std::process::Command::new(env!("CARGO_BIN_EXE_fleetd"));
        fleetd.args(["dev", "--data-dir"]).arg(home.path().join("data")).args(files);
        let output = fleetd.output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", output_text(&output));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains("nothing was started") && errors.contains(expected), "{errors}");
        assert!(!home.path().join("data").exists(), "the data folder was created");
    }
}
