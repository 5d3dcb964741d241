//! Timers, as `fleetctl` shows them.

use std::time::SystemTime;

use crate::daemon::Cluster;

const HOUR: u64 = 3_600_000;

fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    u64::try_from(since.as_millis()).unwrap()
}

/// Returns the next and the last elapse of a timer; `None` if there is no next one.
fn elapses(cluster: &Cluster, timer: &str) -> Option<(u64, Option<u64>)> {
    let output = cluster.fleetctl(&["status", "-o", "json", timer]);
    let shown: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
    let machine = &shown[0]["machines"][0];
    let millis = |elapse: &serde_json::Value| {
        let time: fleet_http::wire::Time = elapse.as_str()?.parse().ok()?;
        Some(time.as_millis())
    };
    Some((millis(&machine["nextElapse"])?, millis(&machine["lastElapse"])))
}

#[test]
fn status_shows_when_a_timer_elapses() {
    let cluster = Cluster::start(&[]);
    let start = |name: &str, text: &str| {
        let path = cluster.write(name, text);
        cluster.succeed(&["start", path.to_str().unwrap()]);
    };
    let job = cluster.write("job.service", "[Service]\nType=oneshot\nExecStart=/bin/true\n");
    cluster.succeed(&["load", job.to_str().unwrap()]);
    let with = "Unit=job.service\n[X-Fleet]\nMachineOf=job.service\n";
    let before = now();
    start("event.timer", &format!("[Timer]\nOnCalendar=2099-01-01 UTC\n{with}"));
    start("span.timer", &format!("[Timer]\nOnActiveSec=1ms\nOnUnitActiveSec=1h\n{with}"));
    let waits = |cluster: &Cluster| elapses(cluster, "event.timer");
    let event = cluster.wait_for("the next calendar event", waits);
    assert_eq!(event, (4_070_908_800_000, None));
    let has_elapsed = |cluster: &Cluster| {
        let (next, last) = elapses(cluster, "span.timer")?;
        Some((next, last?))
    };
    let (next, last) = cluster.wait_for("the elapse after the first one", has_elapsed);
    assert!(last >= before && last <= now(), "{last}");
    // Two clocks are compared, each in whole milliseconds.
    assert!(next + 2 >= last + HOUR && next <= now() + HOUR + 2, "{next}");
    let text = String::from_utf8(cluster.fleetctl(&["status", "span.timer"]).stdout).unwrap();
    assert!(text.contains("Next: ") && text.contains("Last: "), "{text}");
    cluster.succeed(&["stop", "span.timer"]);
    assert_eq!(elapses(&cluster, "span.timer"), None, "a stopped timer does not elapse");
}
