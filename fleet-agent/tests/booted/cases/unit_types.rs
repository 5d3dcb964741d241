//! Units of all types, and the units that they start.

use std::time::Duration;

use fleet_agent::{ServiceError, ServiceManager as _, UnitDetails, wall_time};
use fleet_core::{ActiveState, TargetState, Timestamp};

use crate::bench::{Bench, name, print_line, shell, show, systemd_begins_anew, wait_until};

pub(crate) async fn units_of_all_types_run() {
    let bench = Bench::new().await;
    shell("mkdir -p /srv/watched /srv/mounted /srv/auto");
    let cat = "[Service]\nStandardInput=socket\nExecStart=/bin/cat\n";
    let task = "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true\n";
    let units = [
        ("echo.socket", "[Socket]\nListenStream=/run/echo\nAccept=yes\n", "listening"),
        ("echo@.service", cat, ""),
        ("tick.timer", "[Timer]\nOnActiveSec=1ms\nAccuracySec=1ms\n", "waiting elapsed running"),
        ("tick.service", task, ""),
        ("watch.path", "[Path]\nPathExists=/srv/watched/a\n", "waiting"),
        ("watch.service", task, ""),
        ("group.target", "[Unit]\nWants=member.service\n", "active"),
        ("member.service", task, ""),
        ("srv-mounted.mount", "[Mount]\nWhat=tmpfs\nType=tmpfs\nWhere=/srv/mounted\n", "mounted"),
        ("own.slice", "[Slice]\nTasksMax=100\n", "active"),
    ];
    for (unit, text, _) in units.iter().filter(|(unit, ..)| !unit.contains("@.")) {
        bench.load(&[(unit, text)]).await;
    }
    for (unit, _, subs) in units.iter().filter(|(.., subs)| !subs.is_empty()) {
        bench.start(unit).await.unwrap_or_else(|error| panic!("{unit}: {error}"));
        bench.wait_for(unit, |it| it.active == ActiveState::Active && subs.contains(&it.sub)).await;
    }
    bench.wait_for("tick.service", |it| it.active == ActiveState::Active).await;
    bench.wait_for("member.service", |it| it.active == ActiveState::Active).await;
    shell("touch /srv/watched/a");
    bench.wait_for("watch.service", |it| it.active == ActiveState::Active).await;
    for (unit, ..) in units.iter().filter(|(unit, ..)| !unit.contains("@.")) {
        bench.unload(unit).await;
        wait_until("it is gone", async || show(unit, "ActiveState") == "inactive").await;
    }
    assert_eq!(bench.manager.list().await.expect("the call succeeds"), []);
}

/// Units that need a missing kernel feature or device fail with a reason.
pub(crate) async fn unsupported_unit_is_reported() {
    let bench = Bench::new().await;
    let units = [
        ("srv-none.swap", "[Swap]\nWhat=/srv/none\n"),
        ("dev-none.device", "[Unit]\nDescription=it never comes\n"),
    ];
    for (unit, text) in units {
        bench.load(&[(unit, text)]).await;
        let error = bench.start(unit).await.expect_err("there is none here");
        let told = format!("{unit} did not start: this machine cannot run units of its type");
        assert_eq!(error.to_string(), told);
        assert_eq!(bench.state(unit).await.active, ActiveState::Inactive);
        bench.unload(unit).await;
    }
}

/// The case creates the autofs device; without kernel support there is nothing to test.
pub(crate) async fn automount_mounts_on_access() {
    if shell("grep -w autofs /proc/misc || true").is_empty() {
        return print_line("left out: this kernel has no autofs");
    }
    shell("mknod /dev/autofs c 10 $(awk '$2 == \"autofs\" {print $1}' /proc/misc)");
    shell("mkdir -p /srv/auto");
    systemd_begins_anew(); // it has looked for the device already
    let bench = Bench::new().await;
    let mount = "[Mount]\nWhat=tmpfs\nType=tmpfs\nWhere=/srv/auto\n";
    let auto = ("srv-auto.automount", "[Automount]\nWhere=/srv/auto\n");
    bench.load(&[auto, ("srv-auto.mount", mount)]).await;
    bench.start("srv-auto.automount").await.expect("it starts");
    assert_eq!(bench.state("srv-auto.automount").await.sub, "waiting");
    assert_eq!(bench.state("srv-auto.mount").await.active, ActiveState::Inactive);
    shell("ls /srv/auto/");
    bench.wait_for("srv-auto.mount", |it| it.active == ActiveState::Active).await;
    bench.wait_for("srv-auto.automount", |it| it.sub == "running").await;
    bench.unload("srv-auto.automount").await;
    bench.unload("srv-auto.mount").await;
    assert_eq!(shell("grep /srv/auto /proc/mounts || true"), "");
}

/// Regression: it counted as started forever, and never ran.
pub(crate) async fn timer_without_service_is_not_started() {
    let bench = Bench::new().await;
    let triggers = [
        ("early.timer", "[Timer]\nOnActiveSec=1h\n"),
        ("early.socket", "[Socket]\nListenStream=/run/early\n"),
        ("early.path", "[Path]\nPathExists=/srv/early\n"),
    ];
    for (unit, text) in triggers {
        bench.load(&[(unit, text)]).await;
        let error = bench.start(unit).await.expect_err("there is nothing to start");
        let ServiceError::NothingToTrigger { missing, .. } = &error else {
            panic!("another reason than the missing unit: {error}");
        };
        assert_eq!(missing, "early.service");
        assert_eq!(
            bench.get(unit).await.known.requested,
            TargetState::Loaded,
            "it was not started"
        );
    }
    bench.load(&[("early.service", "[Service]\nExecStart=/bin/sleep 100000\n")]).await;
    for (unit, _) in triggers {
        bench.start(unit).await.unwrap_or_else(|error| panic!("{unit}: {error}"));
        assert_eq!(bench.state(unit).await.active, ActiveState::Active, "{unit}");
        bench.unload(unit).await;
    }
    bench.unload("early.service").await;
}

pub(crate) async fn timer_elapses_are_read() {
    const HOUR: Duration = Duration::from_secs(3600);
    let bench = Bench::new().await;
    let before = wall_time();
    for (timer, text) in [
        ("event.timer", "[Timer]\nOnCalendar=2099-01-01 UTC\n"),
        ("span.timer", "[Timer]\nOnActiveSec=1ms\nOnUnitActiveSec=1h\nAccuracySec=1ms\n"),
    ] {
        let service = timer.replace("timer", "service");
        let task = "[Service]\nType=oneshot\nExecStart=/bin/true\n";
        bench.load(&[(timer, text), (&service, task)]).await;
        let details = bench.manager.details(&name(timer)).await.expect("it is loaded");
        assert_eq!(details, UnitDetails::default(), "{timer} is not active");
        bench.start(timer).await.expect("it starts");
    }
    let details = async |timer| bench.manager.details(&name(timer)).await.expect("it is loaded");
    let event = details("event.timer").await;
    let next = event.next_elapse.map(Timestamp::as_millis);
    assert_eq!((next, event.last_elapse), (Some(4_070_908_800_000), None));
    let is_waiting = async || {
        let span = details("span.timer").await;
        span.last_elapse.is_some() && span.next_elapse.is_some()
    };
    wait_until("it has elapsed", is_waiting).await;
    let span = details("span.timer").await;
    let (next, last) = (span.next_elapse.unwrap(), span.last_elapse.unwrap());
    assert!(last >= before && last <= wall_time(), "{last:?}");
    let tolerance = Duration::from_secs(1);
    assert!(next.after(tolerance) >= last.after(HOUR), "{next:?} after {last:?}");
    assert!(next <= wall_time().after(HOUR + tolerance), "{next:?}");
    for unit in ["event.timer", "span.timer", "event.service", "span.service"] {
        bench.unload(unit).await;
    }
}

pub(crate) async fn stop_timeout_includes_machine_settings() {
    shell(
        "mkdir -p /etc/systemd/system.conf.d /etc/systemd/system/dropped.service.d; \
         printf '[Manager]\\nDefaultTimeoutStopSec=7min\\n' >/etc/systemd/system.conf.d/stop.conf; \
         printf '[Service]\\nTimeoutStopSec=infinity\\n' \
             >/etc/systemd/system/dropped.service.d/stop.conf",
    );
    systemd_begins_anew();
    let bench = Bench::new().await;
    let service = "[Service]\nExecStart=/bin/sleep 100000\n".to_owned();
    let own = format!("{service}TimeoutStopSec=3\n");
    let rows = [
        ("plain.service", service.as_str(), Some(Duration::from_secs(420))),
        ("own.service", own.as_str(), Some(Duration::from_secs(3))),
        ("dropped.service", own.as_str(), Some(Duration::MAX)),
        ("group.target", "[Unit]\nDescription=it has no processes\n", None),
    ];
    for (unit, text, expected) in rows {
        bench.load(&[(unit, text)]).await;
        let found = bench.manager.stop_timeout(&name(unit)).await.expect("the call succeeds");
        assert_eq!(found, expected, "{unit}");
        bench.unload(unit).await;
    }
}
