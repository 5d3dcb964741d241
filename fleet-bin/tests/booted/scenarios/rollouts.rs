//! Rolling updates of an HTTP service, as its clients see them.

use std::fs;
use std::path::Path;
use std::process::Output;

use serde_json::Value;

use crate::cluster::{Cluster, MACHINES, STORE, print_line};
use crate::observe::{output_text, wait_for};

const INSTANCES: usize = 6;

/// Update that brings a version that fails its health checks.
const BAD: usize = 5;

/// Updates during which the leader is killed.
const KILLS: [usize; 3] = [2, 6, 9];

const READ_LEADER: &str = "ETCDCTL_API=3 etcdctl --endpoints=http://10.77.0.10:2379 get \
                           --print-value-only /fleet/engine/leader";

fn service(version: usize) -> String {
    let bad = if version == BAD { " bad" } else { "" };
    format!(
        "[Service]\n\
         ExecStart=/usr/bin/perl /srv/share/web-server.pl 808%i v{version}{bad}\n\
         [X-Fleet]\n\
         HealthCheck=http://127.0.0.1:808%i/\n\
         HealthInterval=1s\n\
         HealthThreshold=2\n"
    )
}

/// Kills the daemon that leads the cluster.
fn kill_leader(cluster: &Cluster) {
    let claim = cluster.kit.exec(STORE, READ_LEADER);
    let leader = MACHINES.into_iter().find(|machine| claim.contains(cluster.id(machine)));
    let leader = leader.expect("a machine leads the cluster");
    cluster.kit.exec(leader, "systemctl kill --signal=KILL fleet.service");
}

fn rollout(cluster: &Cluster, number: usize) -> Option<Value> {
    let shown =
        cluster.fleetctl_by("m2", &["rollout", "status", &number.to_string(), "-o", "json"]);
    let rollouts: Vec<Value> = serde_json::from_slice(&shown.stdout).ok()?;
    rollouts.into_iter().next()
}

/// Counts the members in this state.
fn members(rollout: &Value, state: &str) -> usize {
    let members = rollout["members"].as_array().expect("a rollout has members");
    members.iter().filter(|member| member["state"] == state).count()
}

/// Updates the service, and kills the leader in the middle of some updates.
fn update(cluster: &Cluster, version: usize) -> Output {
    cluster.write("web@.service", &service(version));
    let options = ["--at-once", "2", "--min-available", "4", "--settle", "1", "--deadline", "60"];
    let apply = [&["apply", "web@.service"][..], &options].concat();
    std::thread::scope(|scope| {
        let update = scope.spawn(|| cluster.fleetctl(&apply));
        if KILLS.contains(&version) {
            wait_for("the first batch is updated", || {
                let rollout = rollout(cluster, version)?;
                (members(&rollout, "updated") >= 2).then_some(())
            });
            kill_leader(cluster);
        }
        update.join().expect("fleetctl can be run")
    })
}

// Holds: I-27, I-29
#[test]
#[ignore = "boots machines: run by scripts/test --full"]
fn service_is_updated_without_failed_requests() {
    let cluster = Cluster::boot("5s");
    for script in ["web-server.pl", "web-client.pl"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/booted");
        fs::copy(folder.join(script), cluster.kit.share(script)).unwrap();
    }
    cluster.write("web@.service", &service(0));
    cluster.succeed(&["submit", "web@.service"]);
    cluster.succeed(&["start", "web@{1..6}"]);
    wait_for("all instances are healthy", || {
        let rows = cluster.listed("list-units");
        (rows.iter().filter(|row| row["health"] == "healthy").count() == INSTANCES).then_some(())
    });
    let script = format!("timeout 300 perl /srv/share/web-client.pl {INSTANCES}");
    std::thread::scope(|scope| {
        let client = scope.spawn(|| cluster.kit.try_exec(STORE, &script));
        for version in 1..=10 {
            let output = update(&cluster, version);
            let text = output_text(&output);
            let last = rollout(&cluster, version).expect("the rollout exists");
            if version == BAD {
                assert_eq!(output.status.code(), Some(1), "{text}");
                assert_eq!(last["phase"], "rolled back", "{text}");
                assert_eq!(members(&last, "restored"), 2, "one batch: {last}");
                assert_eq!(members(&last, "pending"), INSTANCES - 2, "{last}");
            } else {
                assert!(output.status.success(), "update {version}: {text}");
                assert_eq!(last["phase"], "completed", "{text}");
                assert_eq!(members(&last, "updated"), INSTANCES, "{last}");
            }
        }
        fs::write(cluster.kit.share("results").join("stop"), "").unwrap();
        let result = client.join().expect("the client can be run");
        let text = output_text(&result);
        print_line(&text);
        assert!(text.contains(" failed=0 "), "{text}");
        let requests = text.split_once("requests=").and_then(|(_, rest)| rest.split_once(' '));
        let requests = requests.and_then(|(count, _)| count.parse().ok());
        assert!(requests.is_some_and(|count: u32| count > 1000), "{text}");
        let (_, versions) = text.split_once("versions=").expect("the client lists versions");
        let mut versions: Vec<&str> = versions.split_whitespace().collect();
        versions.sort_by_key(|version| version.len());
        assert_eq!(versions.join(" "), "v0 v1 v2 v3 v4 v6 v7 v8 v9 v10");
    });
}
