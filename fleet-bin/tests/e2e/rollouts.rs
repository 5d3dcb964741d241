//! Rolling updates by `fleetd dev`.

use crate::daemon::{Cluster, output_text};

fn template(command: &str) -> String {
    format!("[Service]\nExecStart={command}\n")
}

/// Writes a unit file, and returns its path.
fn write(cluster: &Cluster, name: &str, text: &str) -> String {
    cluster.write(name, text).display().to_string()
}

/// Runs fleetctl, which must fail. Returns its output.
fn fail(cluster: &Cluster, args: &[&str]) -> String {
    let output = cluster.fleetctl(args);
    assert!(!output.status.success(), "fleetctl {args:?}: {}", output_text(&output));
    output_text(&output)
}

/// Returns the versions of three instances and their template, by the argument of `sleep`.
fn versions(cluster: &Cluster) -> String {
    let units = ["web@1.service", "web@2.service", "web@3.service", "web@.service"];
    let version = |unit: &&str| {
        let text = cluster.succeed(&["cat", unit]);
        text.trim().rsplit([' ', '/']).next().unwrap_or_default().to_owned()
    };
    units.iter().map(version).collect::<Vec<_>>().join(" ")
}

#[test]
fn template_updates_its_instances_or_none() {
    let cluster = Cluster::start(&[]);
    let path = write(&cluster, "web@.service", &template("/bin/sleep 1001"));
    cluster.succeed(&["submit", &path]);
    cluster.succeed(&["start", "web@{1..3}"]);

    cluster.write("web@.service", &template("/bin/sleep 1002"));
    let output = cluster.succeed(&["apply", "--settle", "0", &path]);
    assert!(output.ends_with("rollout 1 is completed: 3 of 3 updated\n"), "{output}");
    assert_eq!(versions(&cluster), "1002 1002 1002 1002");

    cluster.write("web@.service", &template("/bin/false"));
    let error = fail(&cluster, &["apply", "--settle", "0", &path]);
    assert!(error.contains("rolled back: web@1.service failed: its process exited"), "{error}");
    assert_eq!(versions(&cluster), "1002 1002 1002 1002");
    let status = cluster.succeed(&["rollout", "status", "web@"]);
    // The second one may have begun, because the first one was up for an instant.
    assert!(status.contains("pending"), "{status}");

    let output = cluster.succeed(&["rollback", "--settle", "0", "web@"]);
    assert!(output.ends_with("rollout 3 is completed: 3 of 3 updated\n"), "{output}");
    assert_eq!(versions(&cluster), "1001 1001 1001 1001");
    let output = cluster.succeed(&["restart", "--at-once", "2", "--settle", "0", "web@*"]);
    assert!(output.ends_with("rollout 4 is completed: 3 of 3 updated\n"), "{output}");
}

#[test]
fn global_unit_is_updated_machine_by_machine() {
    let cluster = Cluster::start(&[]);
    let file = |command: &str| template(command) + "[X-Fleet]\nGlobal=true\n";
    let path = write(&cluster, "log.service", &file("/bin/sleep 1001"));
    cluster.succeed(&["apply", &path]);
    cluster.write("log.service", &file("/bin/sleep 1002"));
    let output = cluster.succeed(&["apply", "--at-once", "1", "--settle", "0", &path]);
    assert!(output.ends_with("rollout 1 is completed: 3 of 3 updated\n"), "{output}");

    cluster.write("log.service", &file("/bin/false"));
    let apply = ["apply", "--at-once", "1", "--settle", "0", "--on-failure", "stop", &path];
    let error = fail(&cluster, &apply);
    assert!(error.contains("each member keeps the version that it has"), "{error}");
    // The other machines do not start the new version later, either.
    let rows = cluster.rows("log.service");
    let active = rows.iter().filter(|row| row["active"] == "active").count();
    assert_eq!(active, 2, "{rows:?}");

    cluster.write("log.service", &file("/bin/sleep 1003"));
    cluster.succeed(&["apply", &path]);
    cluster.wait_for("all machines run the last version", |cluster| {
        let rows = cluster.rows("log.service");
        (rows.iter().filter(|row| row["active"] == "active").count() == 3).then_some(())
    });
}

#[test]
fn paused_rollout_waits_and_can_be_rolled_back() {
    let cluster = Cluster::start(&[]);
    let path = write(&cluster, "web@.service", &template("/bin/sleep 1001"));
    cluster.succeed(&["submit", &path]);
    cluster.succeed(&["start", "web@{1..3}"]);
    cluster.write("web@.service", &template("/bin/sleep 1002"));
    // The first batch never settles.
    cluster.succeed(&["apply", "--no-block", "--settle", "80000", &path]);
    cluster.wait_for("the first instance is updated", |cluster| {
        (versions(cluster) == "1002 1001 1001 1001").then_some(())
    });
    let second = fail(&cluster, &["apply", "--no-block", &path]);
    assert!(second.contains("is a member of rollout 1, which is running"), "{second}");
    cluster.succeed(&["rollout", "pause"]);
    cluster.succeed(&["rollout", "resume", "web@2"]);
    cluster.succeed(&["rollout", "abort", "--rollback", "1"]);
    cluster.wait_for("the first instance is restored", |cluster| {
        (versions(cluster) == "1001 1001 1001 1001").then_some(())
    });
    cluster.succeed(&["rollout", "abort", "1"]);
    let none = fail(&cluster, &["rollout", "pause"]);
    assert!(none.contains("no rollout is in progress"), "{none}");
}
