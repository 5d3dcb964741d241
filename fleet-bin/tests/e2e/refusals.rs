//! What is refused: each with a clear error, and nothing changed.

use crate::daemon::{Cluster, told};

/// What a person hands in, what must be said of it, and the exit status.
struct Case {
    file: &'static str,
    text: &'static str,
    said: &'static [&'static str],
}

const CASES: &[Case] = &[
    Case {
        file: "broken.service",
        text: "[Service]\nExecStart /bin/true\n",
        said: &["broken.service:2:1:", "help: "],
    },
    Case {
        file: "unknown.service",
        text: "[Service]\nExecStart=/bin/true\n[X-Fleet]\nMachineMetaData=a=b\n",
        said: &["unknown.service:4:1:", "MachineMetaData", "MachineMetadata"],
    },
    Case {
        file: "metadata.service",
        text: "[Service]\nExecStart=/bin/true\n[X-Fleet]\nMachineMetadata=a=b c=d\n",
        said: &["metadata.service:4:", "\"a=b\" \"c=d\""],
    },
    Case {
        file: "bad name.service",
        text: "[Service]\nExecStart=/bin/true\n",
        said: &["bad name"],
    },
];

#[test]
fn what_cannot_be_understood_is_refused_and_changes_nothing() {
    let cluster = Cluster::start(&[]);
    for case in CASES {
        let path = cluster.write(case.file, case.text);
        for command in ["submit", "load", "start"] {
            let output = cluster.fleetctl(&[command.as_ref(), path.as_os_str()]);
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(matches!(output.status.code(), Some(1 | 2)), "{}", told(&output));
            for said in case.said {
                assert!(errors.contains(said), "{} says nothing of {said}: {errors}", case.file);
            }
        }
    }
    assert!(cluster.units().is_empty());
}

#[test]
fn one_broken_file_keeps_all_of_an_invocation_away() {
    let cluster = Cluster::start(&[]);
    let sound = cluster.write("sound.service", "[Service]\nExecStart=/bin/true\n");
    let broken = cluster.write("broken.service", "[Service\n");
    let output = cluster.fleetctl(&["submit".as_ref(), sound.as_os_str(), broken.as_os_str()]);
    assert_eq!(output.status.code(), Some(1), "{}", told(&output));
    assert!(cluster.units().is_empty());
}

#[test]
fn other_content_under_a_taken_name_is_refused() {
    let cluster = Cluster::start(&[]);
    let first = "[Service]\nExecStart=/bin/sleep 1000\n";
    let path = cluster.write("taken.service", first);
    cluster.succeed(&["submit".as_ref(), path.as_os_str()]);
    cluster.write("taken.service", "[Service]\nExecStart=/bin/sleep 2000\n");
    let output = cluster.fleetctl(&["submit".as_ref(), path.as_os_str()]);
    assert_eq!(output.status.code(), Some(1), "{}", told(&output));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--replace"), "{}", told(&output));
    assert_eq!(cluster.succeed(&["cat", "taken.service"]), first);
}

#[test]
fn a_circle_of_machine_of_is_spelled_out() {
    let cluster = Cluster::start(&[]);
    let unit =
        |other: &str| format!("[Service]\nExecStart=/bin/true\n[X-Fleet]\nMachineOf={other}\n");
    let one = cluster.write("one.service", &unit("two.service"));
    let two = cluster.write("two.service", &unit("one.service"));
    cluster.succeed(&["submit".as_ref(), one.as_os_str()]);
    let output = cluster.fleetctl(&["submit".as_ref(), two.as_os_str()]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{}", told(&output));
    assert!(errors.contains("two.service -> one.service -> two.service"), "{errors}");
    assert_eq!(cluster.units(), ["one.service"]);
}

#[test]
fn a_unit_that_this_service_manager_cannot_run_harms_itself_alone() {
    let cluster = Cluster::start(&[]);
    let forking = cluster.write("old.service", "[Service]\nType=forking\nExecStart=/bin/true\n");
    let sound = cluster.write("sound.service", "[Service]\nExecStart=/bin/sleep infinity\n");
    let output = cluster.fleetctl(&["start".as_ref(), forking.as_os_str()]);
    assert_eq!(output.status.code(), Some(1), "{}", told(&output));
    assert!(String::from_utf8_lossy(&output.stderr).contains("forking"), "{}", told(&output));
    cluster.succeed(&["start".as_ref(), sound.as_os_str()]);
}

#[test]
fn wrong_usage_ends_with_status_2() {
    let cluster = Cluster::start(&[]);
    for args in
        [&["no-such-command"][..], &["start", "--no-such-flag"], &["-o", "yaml", "list-units"]]
    {
        let output = cluster.fleetctl(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", told(&output));
    }
}

#[test]
fn dev_starts_nothing_when_a_unit_file_is_wrong() {
    let home = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = home.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let broken = write("broken.service", "[Service]\nExecStart /bin/true\n");
    let one = write("one.service", "[X-Fleet]\nMachineOf=two.service\n");
    let two = write("two.service", "[X-Fleet]\nMachineOf=one.service\n");
    let cases = [(vec![broken], "broken.service:2:1:"), (vec![one, two], "leads in a circle")];
    for (files, said) in cases {
        let mut fleetd = std::process::Command::new(env!("CARGO_BIN_EXE_fleetd"));
        fleetd.args(["dev", "--data-dir"]).arg(home.path().join("data")).args(files);
        let output = fleetd.output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", told(&output));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains("nothing was started") && errors.contains(said), "{errors}");
        assert!(!home.path().join("data").exists(), "something was begun");
    }
}
