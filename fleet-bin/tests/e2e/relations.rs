//! Effects of a unit on other units: `OnFailure=`.

use std::path::Path;

use crate::daemon::{Cluster, wait_for};

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
    let path = cluster.write("notify@web.service.service", &handler);
    cluster.succeed(&["load".as_ref(), path.as_os_str()]);
    let web = "[Unit]\nOnFailure=notify@%n.service\nStartLimitBurst=2\n\
               [Service]\nExecStart=/bin/sh -c 'exit 7'\nRestart=on-failure\nRestartSec=10ms\n\
               [X-Fleet]\nMachineOf=notify@web.service.service\n";
    let path = cluster.write("web.service", web);
    // Whether the start fails depends on when its first run ends.
    cluster.fleetctl(&["start".as_ref(), path.as_os_str()]);
    assert_eq!(wait_for_lines(&report, 1), ["web.service exit-code exited 7\n"]);
    let status = cluster.fleetctl(&["status", "notify@web.service.service"]);
    let status = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(status.contains("Desired: loaded\n"), "{status}");
}
