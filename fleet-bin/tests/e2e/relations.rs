//! Effects of a unit on other units: `OnFailure=` and `PropagatesReloadTo=`.

use std::path::Path;

use crate::daemon::{Cluster, wait_for};

/// Loads or starts a unit.
fn submit(cluster: &Cluster, command: &str, name: &str, text: &str) {
    let path = cluster.write(name, text);
    cluster.succeed(&[command.as_ref(), path.as_os_str()]);
}

fn lines(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.split_inclusive('\n').filter(|line| line.ends_with('\n')).map(str::to_owned).collect()
}

/// Waits until a file has this many lines.
fn wait_for_lines(path: &Path, count: usize) -> Vec<String> {
    wait_for(&format!("{count} lines"), || Some(lines(path)).filter(|all| all.len() >= count))
}

#[test]
fn failure_starts_the_handler_with_the_result() {
    let cluster = Cluster::start(&[]);
    let report = cluster.path("report");
    let handler = format!(
        "[Service]\nType=oneshot\nExecStart=/bin/sh -c 'echo $$MONITOR_UNIT \
         $$MONITOR_SERVICE_RESULT $$MONITOR_EXIT_CODE $$MONITOR_EXIT_STATUS >> {}'\n",
        report.display()
    );
    submit(&cluster, "load", "notify@web.service.service", &handler);
    let web = "[Unit]\nOnFailure=notify@%n.service\nStartLimitBurst=2\n\
               [Service]\nExecStart=/bin/sh -c 'exit 7'\nRestart=on-failure\nRestartSec=10ms\n";
    let path = cluster.write("web.service", web);
    // Whether the start fails depends on when its first run ends.
    cluster.fleetctl(&["start".as_ref(), path.as_os_str()]);
    assert_eq!(wait_for_lines(&report, 1), ["web.service exit-code exited 7\n"]);
    let rows = cluster.rows("notify@web.service.service");
    assert_eq!(rows[0]["desiredState"], "loaded", "{rows:?}");
}

#[test]
fn reload_reaches_the_units_to_which_it_is_propagated() {
    let cluster = Cluster::start(&[]);
    let reloaded = cluster.path("reloaded");
    let unit = |name: &str, options: &str| {
        let text = format!(
            "[Unit]\n{options}\n[Service]\nExecStart=/bin/sleep infinity\n\
             ExecReload=/bin/sh -c 'echo {name} >> {}'\n",
            reloaded.display()
        );
        submit(&cluster, "start", &format!("{name}.service"), &text);
    };
    unit("web", "PropagatesReloadTo=worker.service");
    unit("worker", "");
    unit("other", "ReloadPropagatedFrom=worker.service");
    cluster.succeed(&["reload", "web.service"]);
    let mut all = wait_for_lines(&reloaded, 3);
    all.sort();
    assert_eq!(all, ["other\n", "web\n", "worker\n"]);
}
