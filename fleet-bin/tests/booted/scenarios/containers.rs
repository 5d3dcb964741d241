//! Containers of podman's Quadlet in a cluster, with a generator that stands in for podman's.

use crate::cluster::Cluster;
use crate::observe::{output_text, wait_for};

/// Stands in for podman's generator.
const GENERATOR: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/quadlet-generator"));

/// Script that installs the generator until the machine is removed.
const INSTALL: &str =
    "install -D /srv/share/generator /etc/systemd/system-generators/podman-system-generator";

/// Returns the file of a container for one machine.
fn container(machine: &str, command: &str) -> String {
    format!(
        "[Container]\nImage=localhost/web\nExec={command}\n[Install]\nWantedBy=multi-user.target\n\
         [X-Fleet]\nMachineMetadata=name={machine}\n"
    )
}

/// Waits until the container is active on exactly these machines, according to the cluster, and its
/// service according to each machine's systemd.
fn wait_runs(cluster: &Cluster, stem: &str, machines: &[&str]) {
    wait_for(&format!("{stem} is active on {machines:?} alone"), || {
        let mut runs = cluster.runs(&format!("{stem}.service"));
        runs.retain(|_, run| run.active == "active");
        let there = runs.keys().map(|(machine, _)| *machine).eq(machines.iter().copied());
        (there && cluster.active_on(&format!("{stem}.container")) == machines).then_some(())
    });
}

// `fleetd` of m3 runs in the sandbox, and m2 has no generator.
#[test]
#[ignore = "boots machines: run by scripts/test --full"]
fn containers_run_where_the_cluster_places_them() {
    let cluster = Cluster::boot("5s");
    std::fs::write(cluster.kit.share("generator"), GENERATOR).unwrap();
    for machine in ["m1", "m3"] {
        cluster.kit.exec(machine, INSTALL);
    }
    let sleep = "echo serving; exec sleep 100000";
    cluster.start("web.container", &container("m3", sleep));
    wait_runs(&cluster, "web", &["m3"]);
    let rows = cluster.rows("web.container");
    assert_eq!((rows.len(), &rows[0]["active"]), (1, &"active".into()), "{rows:?}");
    wait_for("its output can be read", || {
        let printed = cluster.fleetctl_by("m3", &["journal", "--raw", "web.container"]);
        output_text(&printed).contains("serving").then_some(())
    });
    assert!(cluster.succeed(&["status", "web.container"]).contains("active"));
    let pid = cluster.show("m3", "web.service", "MainPID");
    cluster.kit.exec("m3", "systemctl restart fleet.service");
    cluster.wait_present(&["m1", "m2", "m3"]);
    cluster.succeed(&["stop", "web.container"]);
    wait_runs(&cluster, "web", &[]);
    cluster.succeed(&["start", "web.container"]);
    assert_ne!(cluster.show("m3", "web.service", "MainPID"), pid);

    // Templates.
    cluster.write("job@.container", &container("m1", sleep));
    cluster.succeed(&["start", "job@1.container", "job@2.container"]);
    wait_runs(&cluster, "job@1", &["m1"]);
    cluster.succeed(&["stop", "job@2.container"]);
    wait_runs(&cluster, "job@2", &[]);

    // Refusals.
    cluster.write(
        "web.service",
        "[Service]\nExecStart=/bin/true\n[X-Fleet]\nMachineOf=web.container\n",
    );
    let printed = cluster.refused(1, &["start", "web.service"]);
    assert!(printed.contains("web.container is on this machine too"), "{printed}");
    cluster.write("far.container", &container("m2", sleep));
    let printed = cluster.refused(1, &["start", "far.container"]);
    assert!(printed.contains("this machine has no podman-system-generator"), "{printed}");
    cluster.succeed(&["destroy", "web.service", "far.container"]);
    cluster.write("front.network", "[Network]\n");
    let printed = cluster.refused(1, &["submit", "front.network"]);
    assert!(printed.contains("only .container files are units"), "{printed}");

    // After a reboot, `[Install]` starts nothing that the cluster has stopped.
    cluster.kit.run(&["crash", "m1"]);
    cluster.kit.run(&["boot", "m1"]);
    wait_runs(&cluster, "job@1", &["m1"]);
    wait_for("the stopped one is loaded again", || {
        (cluster.show("m1", "job@2.service", "LoadState") == "loaded").then_some(())
    });
    assert_eq!(cluster.show("m1", "job@2.service", "ActiveState"), "inactive");

    cluster.succeed(&["destroy", "web.container", "job@1.container", "job@2.container"]);
    wait_for("nothing is left", || {
        let left = |machine| cluster.kit.exec(machine, "ls /run/containers/systemd/fleet");
        let state = cluster.show("m3", "web.service", "LoadState");
        (left("m1").is_empty() && left("m3").is_empty() && state == "not-found").then_some(())
    });
}
