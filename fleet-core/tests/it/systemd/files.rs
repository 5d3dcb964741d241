//! Complete unit files: the compiled unit or the refusals.

use fleet_core::graph::{Command, InitUnit};

use super::{compiled, wrapped};

/// Formats the main settings of a unit.
fn output(unit: &InitUnit) -> String {
    let mut lines = vec![format!("{:?}", unit.kind)];
    let run = &unit.run;
    let lists: [(&str, &[Command]); 7] = [
        ("condition", &run.exec_condition),
        ("start-pre", &run.start_pre),
        ("start", &run.start),
        ("start-post", &run.start_post),
        ("reload", &run.reload),
        ("stop", &run.stop),
        ("stop-post", &run.stop_post),
    ];
    for (name, list) in lists {
        lines.extend(list.iter().map(|command| {
            let mark = if command.ignore_failure { "-" } else { "" };
            format!("{name}: {mark}{} {:?}", command.program, command.arguments)
        }));
    }
    lines.push(format!("restart: {:?} after {:?}", unit.restart.when, unit.restart.delay));
    let environment = &run.exec_environment.environment;
    lines.extend(environment.iter().map(|(name, value)| format!("{name}={value}")));
    lines.join("\n")
}

fn read(name: &str, text: &str) -> String {
    match compiled(name, text) {
        Ok(it) => {
            let relations = it.relations.iter().map(|it| format!("{:?} {}", it.kind, it.unit));
            let remarks = it.remarks.iter().map(ToString::to_string);
            let rest: Vec<String> = relations.chain(remarks).collect();
            format!("{}\n{}", output(&it.unit), rest.join("\n")).trim_end().to_owned()
        }
        Err(refusals) => refusals.to_string(),
    }
}

#[test]
fn docker_service_compiles() {
    let text = "[Unit]\nDescription=Apache web server service\nAfter=etcd.service\n\
                After=docker.service\n\n[Service]\nTimeoutStartSec=0\nKillMode=none\n\
                EnvironmentFile=/etc/environment\nExecStartPre=-/usr/bin/docker kill apache.%i\n\
                ExecStart=/usr/bin/docker run --name apache.%i \
                -p ${COREOS_PUBLIC_IPV4}:%i:80 apache\n\
                ExecStop=/usr/bin/docker stop apache.%i\n\n[X-Fleet]\nConflicts=apache@*.service\n";
    insta::assert_snapshot!(wrapped(&read("apache@80.service", text)), @"
    apache@80.service:8:1: Service.KillMode cannot be none, which leaves unsupervised
          processes behind: write process
    ");
    let mended = text.replace("none", "process");
    insta::assert_snapshot!(wrapped(&read("apache@80.service", &mended)), @r#"
    ForegroundSupervised(Executed)
    start-pre: -/usr/bin/docker ["kill", "apache.80"]
    start: /usr/bin/docker ["run", "--name", "apache.80", "-p",
          "${COREOS_PUBLIC_IPV4}:80:80", "apache"]
    stop: /usr/bin/docker ["stop", "apache.80"]
    restart: Never after 100ms
    After etcd.service
    After docker.service
    "#);
}

#[test]
fn sidekick_service_compiles() {
    let text = "[Unit]\nDescription=Announce %p\nBindsTo=apache@%i.service\n\
                After=apache@%i.service\n\n[Service]\nExecStart=/bin/sh -c \"while true; do \
                etcdctl set /services/%p/%i '{ \\\"host\\\": \\\"%H\\\" }' --ttl 60; \
                sleep 45; done\"\nExecStop=/usr/bin/etcdctl rm /services/%p/%i\n\n\
                [X-Fleet]\nMachineOf=apache@%i.service\n";
    insta::assert_snapshot!(wrapped(&read("announce@80.service", text)), @r#"
    ForegroundSupervised(Executed)
    start: /bin/sh ["-c", "while true; do etcdctl set /services/announce/80 '{ \"host\":
          \"web1.example.com\" }' --ttl 60; sleep 45; done"]
    stop: /usr/bin/etcdctl ["rm", "/services/announce/80"]
    restart: Never after 100ms
    BindsTo apache@80.service
    After apache@80.service
    "#);
}

#[test]
fn confined_daemon_is_refused() {
    let text = "[Unit]\nRebootArgument=now\nConditionVirtualization=!container\n\
                [Service]\nType=notify\nExecStart=/usr/sbin/named -f\n\
                ExecReload=/usr/sbin/rndc reload\n\
                ProtectSystem=strict\nCapabilityBoundingSet=CAP_NET_BIND_SERVICE\n\
                StateDirectory=named\nCPUAffinity=0\nSystemCallFilter=@system-service\n\
                MemorySwapMax=0\nLoadCredential=key:/etc/key\n\
                [Install]\nWantedBy=multi-user.target\n";
    insta::assert_snapshot!(wrapped(&read("named.service", text)), @r"
    named.service:2:1: Unit.RebootArgument is not supported: the supervisor cannot reboot
          or power off the machine: remove it, or run the unit under systemd
    ");
}

#[test]
fn a_target() {
    let text = "[Unit]\nDescription=All of it\nWants=a.service\nConflicts=shutdown.target\n\
                AllowIsolate=yes\n";
    insta::assert_snapshot!(wrapped(&read("all.target", text)), @r"
    Virtual
    restart: Never after 1s
    Wants a.service
    Conflicts shutdown.target
    5:1: Unit.AllowIsolate affects only `systemctl isolate`
    ");
}

macro_rules! examples {
    ($($name:literal)*) => {
        [$(($name, include_str!(concat!("../../../../examples/units/", $name)))),*]
    };
}

/// The example units have the same meaning here as under systemd.
#[test]
fn example_units_compile_without_refusals() {
    for (name, text) in examples!(
        "heartbeat.service" "migrate.service" "needs-gpu.service" "web-announce.service"
        "web.service" "worker@1.service" "worker@2.service" "worker@3.service"
    ) {
        let read = compiled(name, text).unwrap_or_else(|refusals| panic!("{refusals}"));
        assert_eq!(read.remarks, [], "{name}");
    }
}
