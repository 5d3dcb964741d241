//! Containers of podman's Quadlet. Only the last case needs podman.

use fleet_agent::ServiceManager as _;
use fleet_agent::journal::JournalReader as _;
use fleet_core::journal::JournalQuery;
use fleet_core::{ActiveState, Epoch, Generation, TargetState};
use fleet_unitfile::UnitFile;

use crate::bench::{Bench, DEADLINE, name, shell, show, wait_until};

/// Stands in for podman's generator.
const GENERATOR: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/quadlet-generator"));

const GENERATORS: &str = "/run/systemd/system-generators";
const WEB: &str = "[Container]\nImage=localhost/web\nExec=echo serving; exec sleep 100000\n";

fn install_generator() {
    std::fs::create_dir_all(GENERATORS).expect("it can be made");
    let path = format!("{GENERATORS}/podman-system-generator");
    std::fs::write(&path, GENERATOR).expect("it can be written");
    shell(&format!("chmod +x {path}"));
}

/// Returns the first line of a unit's journal that contains this text.
async fn wait_for_line(bench: &Bench, unit: &str, text: &str) -> String {
    let query = JournalQuery::default().with_follow(true);
    let mut journal = bench.manager.journal(&name(unit), query).await.expect("it is loaded");
    loop {
        let line = tokio::time::timeout(DEADLINE, journal.next()).await.expect("it comes in time");
        let line = line.expect("it is followed");
        if line.contains(text) {
            return line;
        }
    }
}

pub(crate) async fn containers_run_as_their_services() {
    install_generator();
    let bench = Bench::new().await;
    let instance = WEB.replace("serving", "serving %i");
    bench.load(&[("web.container", WEB), ("web@1.container", &instance)]).await;
    assert_eq!(show("web.service", "ActiveState"), "inactive");
    for unit in ["web.container", "web@1.container"] {
        bench.start(unit).await.unwrap_or_else(|error| panic!("{unit}: {error}"));
        let state = bench.wait_for(unit, |it| it.active == ActiveState::Active).await;
        let service = unit.replace("container", "service");
        let pid = state.main_pid.expect("it has a process").to_string();
        assert_eq!(show(&service, "MainPID"), pid, "{unit}");
    }
    assert_eq!(wait_for_line(&bench, "web@1.container", "serving").await, "serving 1");

    let pid = show("web.service", "MainPID");
    bench.manager.restart(&name("web.container"), Generation(2)).await.expect("it is");
    assert_ne!(show("web.service", "MainPID"), pid, "it was restarted");
    shell("kill -9 $(systemctl show --value -p MainPID web.service)");
    let state = bench.wait_for("web.container", |it| it.active == ActiveState::Failed).await;
    assert_eq!(state.result.as_deref(), Some("signal"));
    bench.manager.stop(&name("web@1.container")).await.expect("it stops");
    assert_eq!(show("web@1.service", "ActiveState"), "inactive");

    bench.unload("web.container").await;
    bench.unload("web@1.container").await;
    assert_eq!(bench.manager.list().await.expect("the call succeeds"), []);
    let left = "find /run/containers/systemd /run/fleet/units -name '*.container*'";
    assert_eq!(shell(left), "");
    for service in ["web.service", "web@1.service"] {
        assert_eq!(show(service, "LoadState"), "not-found", "{service}");
    }
}

pub(crate) async fn new_content_of_a_container_is_used() {
    install_generator();
    let bench = Bench::new().await;
    bench.run("web.container", WEB).await;
    let pid = show("web.service", "MainPID");
    bench.load(&[("web.container", &WEB.replace("serving", "better"))]).await;
    assert_eq!(show("web.service", "MainPID"), pid, "it keeps running");
    let bad = bench.try_load("web.container", "[Container]\nExec=a\n").await;
    assert!(bad.is_err(), "it has no image");
    shell("systemctl daemon-reload");
    assert_eq!(show("web.service", "LoadState"), "loaded", "the good file is still there");
    bench.load(&[("web.container", &WEB.replace("serving", "best"))]).await;
    bench.manager.restart(&name("web.container"), Generation(2)).await.expect("it is");
    assert_eq!(wait_for_line(&bench, "web.container", "best").await, "best");
    bench.unload("web.container").await;
}

/// Each refusal names the unit and a remedy, and leaves nothing behind.
pub(crate) async fn container_that_cannot_run_is_refused() {
    let bench = Bench::new().await;
    let refused = async |unit: &str, text: &str| {
        let error = bench.try_load(unit, text).await.expect_err("it is refused").to_string();
        assert_eq!(bench.manager.get(&name(unit)).await.expect("the call succeeds"), None);
        error
    };
    let expected = "web.container: this machine has no podman-system-generator, which runs \
                    .container units: install podman 5.4 or later, or place the unit on another \
                    machine";
    assert_eq!(refused("web.container", WEB).await, expected);

    install_generator();
    let expected = "bad.container, line 1: the container has no image: add Image= to [Container]";
    assert_eq!(refused("bad.container", "[Container]\nExec=a\n").await, expected);
    assert_eq!(shell("ls /run/containers/systemd/fleet"), "");

    bench.load(&[("web.service", "[Service]\nExecStart=/bin/true\n")]).await;
    let error = refused("web.container", WEB).await;
    assert!(error.contains("web.service is on this machine too"), "{error}");
    bench.load(&[("db.container", WEB)]).await;
    let error = refused("db.service", "[Service]\nExecStart=/bin/true\n").await;
    assert!(error.contains("db.container is on this machine too"), "{error}");
    bench.unload("web.service").await;
    bench.load(&[("web.container", WEB)]).await;
    bench.unload("web.container").await;
    bench.unload("db.container").await;

    // The machine's own container.
    shell("mkdir -p /etc/containers/systemd");
    std::fs::write("/etc/containers/systemd/own.container", WEB).expect("it can be written");
    shell("systemctl daemon-reload");
    let error = refused("own.container", WEB).await;
    assert!(error.contains("a unit file (generated) with this name"), "{error}");
    assert_eq!(show("own.service", "SourcePath"), "/etc/containers/systemd/own.container");
}

/// The next daemon finds the containers of the last one, and those of a removed directory.
pub(crate) async fn containers_outlive_the_daemon() {
    install_generator();
    let bench = Bench::new().await;
    let text = format!("{WEB}[Install]\nWantedBy=multi-user.target\n");
    bench.load(&[("web.container", &text), ("idle.container", &text)]).await;
    bench.start("web.container").await.expect("it starts");
    let pid = show("web.service", "MainPID");
    drop(bench);
    let bench = Bench::new().await;
    let state = bench.wait_for("web.container", |it| it.active == ActiveState::Active).await;
    assert_eq!(state.main_pid.map(|pid| pid.to_string()), Some(pid.clone()));
    assert_eq!(bench.get("web.container").await.known.requested, TargetState::Launched);
    let file = UnitFile::parse(&text).expect("it is well formed");
    bench.manager.load(&name("web.container"), &file, Epoch(2)).await.expect("it is the same");
    bench.manager.reload().await.expect("the files are read");
    assert_eq!(show("web.service", "MainPID"), pid);
    drop(bench);

    shell("rm -r /run/fleet/units");
    let bench = Bench::new().await;
    for unit in ["web.container", "idle.container"] {
        assert_eq!(bench.get(unit).await.known.requested, TargetState::Inactive, "{unit}");
        bench.unload(unit).await;
        let service = unit.replace("container", "service");
        wait_until("it is gone", async || show(&service, "LoadState") == "not-found").await;
    }
}

/// Runs a container with the podman of another Debian, whose root tree the test has booted.
pub(crate) async fn podman_runs_a_container() {
    shell(
        "rm -f /etc/systemd/system-generators/podman-system-generator
        printf '[storage]\\ndriver=\"vfs\"\\nrunroot=\"/run/containers/storage\"\\n' \
            >/etc/containers/storage.conf
        printf 'graphroot=\"/var/lib/containers/storage\"\\n' >>/etc/containers/storage.conf
        printf '[containers]\\npids_limit=0\\ndefault_sysctls=[]\\n[engine]\\nevents_logger=%s\\n' \
            '\"none\"' >/etc/containers/containers.conf
        mkdir -p /srv/image/bin
        cp /usr/bin/busybox /srv/image/bin/
        ln -s busybox /srv/image/bin/sh
        tar -C /srv/image -c . | podman import -q - localhost/busybox:latest",
    );
    let bench = Bench::new().await;
    let text = "[Container]\nImage=localhost/busybox:latest\nNetwork=none\nStopTimeout=1\n\
                Exec=sh -c \"echo inside %i; ls /; exec busybox sleep 100000\"\n\
                [Install]\nWantedBy=multi-user.target\n[X-Fleet]\nConflicts=other\n";
    let unit = "web@1.container";
    bench.load(&[(unit, text)]).await;
    assert_eq!(bench.state(unit).await.active, ActiveState::Inactive, "a reload starts nothing");
    bench.start(unit).await.expect("it starts");
    bench.wait_for(unit, |it| it.active == ActiveState::Active).await;
    let running = shell("podman ps --format '{{.Image}} {{.Names}}'");
    assert_eq!(running, "localhost/busybox:latest systemd-web_1");
    assert_eq!(wait_for_line(&bench, unit, "inside").await, "inside 1");
    assert_eq!(wait_for_line(&bench, unit, "proc").await, "proc", "it has its own root");

    let typo = bench.try_load("typo.container", "[Container]\nImage=a\nExce=b\n").await;
    let error = typo.expect_err("podman has no such key").to_string();
    assert!(error.contains("podman refuses the file: unsupported key 'Exce'"), "{error}");
    bench.load(&[("next.container", text)]).await;
    assert_eq!(show("web@1.service", "ActiveState"), "active", "the reload has not disturbed it");
    bench.manager.stop(&name(unit)).await.expect("it stops");
    assert_eq!(shell("podman ps -a --format '{{.Names}}'"), "");
    bench.unload(unit).await;
    bench.unload("next.container").await;
    assert_eq!(show("web@1.service", "LoadState"), "not-found");
}
