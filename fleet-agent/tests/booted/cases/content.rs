//! Contents of unit files, and their effects.

use fleet_agent::{ServiceError, ServiceManager as _};
use fleet_core::unit::LoadState;
use fleet_core::{ActiveState, Generation};

use crate::bench::{Bench, SLEEP, name, shell, show};

/// Units that are referred to, and failed ones, stay in systemd's memory: both cases occur here.
// Holds: I-14
pub(crate) async fn new_content_is_used_every_time() {
    let bench = Bench::new().await;
    let other = "[Unit]\nWants=changing.service\nAfter=changing.service\n".to_owned() + SLEEP;
    bench.run("other.service", &other).await;
    for round in 0..100 {
        let text = match round % 3 {
            0 => format!("{SLEEP}Environment=ROUND={round}\n[Install]\nWantedBy=other.service\n"),
            1 => format!("{SLEEP}Environment=ROUND={round}\n"),
            _ => format!(
                "[Service]\nType=oneshot\nEnvironment=ROUND={round}\nExecStart=/bin/false\n"
            ),
        };
        bench.load(&[("changing.service", &text)]).await;
        let started = bench.start("changing.service").await;
        assert_eq!(started.is_err(), round % 3 == 2, "round {round}: {started:?}");
        let shown = show("changing.service", "Environment");
        assert_eq!(shown, format!("ROUND={round}"), "it runs with its new content");
        bench.unload("changing.service").await;
    }
    bench.unload("other.service").await;

    bench.run("known.service", SLEEP).await;
    bench.load(&[("known.service", &format!("{SLEEP}Environment=A=B\n"))]).await;
    bench.manager.restart(&name("known.service"), Generation(2)).await.expect("it restarts");
    assert_eq!(show("known.service", "Environment"), "A=B", "a known unit gets a new file, too");
    bench.unload("known.service").await;
}

const REFUSED: [&str; 8] = [
    "setting.service, line 1: the service has nothing to run: add ExecStart= to [Service]",
    "good.service: loaded",
    "wanted.service, line 4: systemd cannot enable it: \"no\" is not a valid unit name.",
    "slice.slice: loaded",
    "some.mount, line 3: Where: the path does not match the unit name, which stands for /some: \
     rename the unit to other.mount, or write Where=/some",
    "old.snapshot: systemd no longer supports units of this type",
    "running.scope: systemd cannot run a scope from a file: write a service",
    "template@.service: a template cannot be run: name an instance",
];

// Holds: I-12
pub(crate) async fn bad_file_affects_only_its_unit() {
    let bench = Bench::new().await;
    let mut problems = Vec::new();
    for (unit, text) in [
        ("setting.service", "[Service]\nRestart=always\n"),
        ("good.service", SLEEP),
        ("wanted.service", "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=no name\n"),
        ("slice.slice", "[Slice]\nMemoryMax=1G\n"),
        ("some.mount", "[Mount]\nWhat=/dev/null\nWhere=/other\n"),
        ("old.snapshot", "[Unit]\nDescription=a\n"),
        ("running.scope", "[Scope]\n"),
        ("template@.service", SLEEP),
    ] {
        match bench.try_load(unit, text).await {
            Ok(()) => problems.push(format!("{unit}: loaded")),
            Err(error @ ServiceError::BadSetting { .. }) => problems.push(error.to_string()),
            Err(error) => panic!("{unit}: {error:?}"),
        }
    }
    bench.manager.reload().await.expect("the files are read");
    bench.start("good.service").await.expect("the good one starts");
    assert_eq!(problems, REFUSED);
    let listed = bench.manager.list().await.expect("the call succeeds");
    let names: Vec<&str> = listed.iter().map(|found| found.unit.as_str()).collect();
    assert_eq!(names, ["good.service", "slice.slice"], "refused units are not known");
    bench.unload("good.service").await;
    bench.unload("slice.slice").await;

    // A file broken meanwhile shows its own state, and does not affect the others.
    bench.load(&[("broken.service", SLEEP)]).await;
    shell(
        "cd /run/systemd/system; mkdir -p broken.service.d; \
         printf '[Service]\\nExecStart=\\n' >broken.service.d/a.conf; systemctl daemon-reload",
    );
    let state = bench.wait_for("broken.service", |it| it.load != LoadState::Loaded).await;
    assert_eq!(state.load, LoadState::BadSetting);
    let error = bench.start("broken.service").await.expect_err("it cannot be started");
    assert!(matches!(error, ServiceError::StartFailed { .. }), "{error:?}");
    bench.unload("broken.service").await;
}

pub(crate) async fn units_of_the_machine_are_left_alone() {
    let bench = Bench::new().await;
    shell(
        "printf '[Service]\\nExecStart=/bin/sleep 1000\\n' >/etc/systemd/system/local@.service; \
         ln -s /dev/null /etc/systemd/system/masked.service; systemctl daemon-reload",
    );
    let alias = format!("{SLEEP}[Install]\nAlias=dbus.service\n");
    for (unit, text) in [
        ("dbus.service", SLEEP),
        ("local@1.service", SLEEP),
        ("masked.service", SLEEP),
        ("systemd-journald.service", SLEEP),
        ("-.slice", "[Slice]\n"),
        ("system.slice", "[Slice]\n"),
        ("tmp.mount", "[Mount]\nWhat=tmpfs\nWhere=/tmp\n"),
        ("alias.service", &*alias),
    ] {
        let error = bench.try_load(unit, text).await.expect_err(unit);
        assert!(matches!(error, ServiceError::BadSetting { .. }), "{unit}: {error:?}");
        assert!(error.to_string().contains("this machine has"), "{unit}: {error}");
        bench.unload(unit).await;
    }
    assert_eq!(show("dbus.service", "ActiveState"), "active", "the machine's unit goes on");
    let left = shell("find /run/systemd /run/fleet -name '*dbus.service*' -path '*fleet*'");
    assert_eq!(left, "", "nothing is left of a refused unit");
}

pub(crate) async fn unload_leaves_nothing_behind() {
    let bench = Bench::new().await;
    let text = "[Service]\nType=oneshot\nExecStart=/bin/false\n\
                [Install]\nWantedBy=multi-user.target other.service\nAlias=also.service\n";
    bench.load(&[("failing.service", text), ("running.service", SLEEP)]).await;
    bench.start("failing.service").await.expect_err("it fails");
    bench.start("running.service").await.expect("it starts");
    assert_eq!(bench.state("failing.service").await.active, ActiveState::Failed);
    assert!(bench.link("also.service").exists(), "its alias leads to it");
    for unit in ["failing.service", "running.service"] {
        bench.unload(unit).await;
        assert_eq!(bench.manager.get(&name(unit)).await.expect("the call succeeds"), None);
        assert_eq!(show(unit, "LoadState"), "not-found", "{unit}");
    }
    let left = "find /run/systemd/system /run/fleet /etc/systemd -name '*failing.service*' \
                -o -name '*running.service*' -o -name also.service -o -xtype l";
    assert_eq!(shell(left), "", "no file and no link is left");
    assert_eq!(shell("systemctl --failed --no-legend --plain list-units"), "");
}

/// systemd reports such a start as successful; without the check a caller would wait forever.
pub(crate) async fn unit_with_failed_condition_reports_it() {
    let bench = Bench::new().await;
    let text = "[Unit]\nConditionPathExists=/srv/there\n[Service]\nType=oneshot\n\
                RemainAfterExit=no\nExecStart=/bin/true\n";
    bench.load(&[("if.service", text)]).await;
    for _ in 0..2 {
        let error = bench.start("if.service").await.expect_err("it is ignored");
        let told = "if.service did not start: systemd skipped it, since one of its conditions \
                    does not hold";
        assert_eq!(error.to_string(), told);
    }
    shell("touch /srv/there");
    for _ in 0..2 {
        bench.start("if.service").await.expect("it runs, and is down again");
    }
    shell("rm /srv/there");
    bench.start("if.service").await.expect_err("an earlier run does not count");
    bench.unload("if.service").await;
}
