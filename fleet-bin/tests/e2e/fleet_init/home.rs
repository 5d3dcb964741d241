//! The home server of `examples/home`, with substitutes for its programs.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::Init;
use super::files::{succeed, unit, wait_state};
use crate::daemon::{is_alive, wait_for};

const UNITS: &str = include_str!("../../../../examples/home/home.unit");

/// Starts the units of the example. Each appends its name to a file when it starts.
fn start(goal: &str, ircd: &str) -> Init {
    let home = tempfile::tempdir().unwrap();
    let order = home.path().join("order").display().to_string();
    let of = |name: &str| match name {
        "netif" => "/bin/true",
        "irc-bot" => "/bin/sh -c 'echo connected to home; exec sleep 100000'",
        "inspircd" => ircd,
        _ => "/bin/sleep 100000",
    };
    let (mut name, mut text) = ("", String::new());
    for line in UNITS.lines() {
        name = line.strip_prefix("unit: ").unwrap_or(name);
        let line = if line.starts_with("exec-start: ") {
            let begins = format!("exec-start-pre: /bin/sh -c 'echo {name} >>{order}'");
            format!("{begins}\nexec-start: {}\nrestart: never", of(name))
        } else if name == "maddy" && line == "type: foreground-notified" {
            // A READY=1 notification needs a program that not every machine has.
            "type: foreground-supervised".to_owned()
        } else {
            line.to_owned()
        };
        text += &(line + "\n");
    }
    let units = home.path().join("units");
    std::fs::create_dir(&units).unwrap();
    std::fs::write(units.join("home.unit"), text).unwrap();
    std::fs::write(units.join("init.conf"), format!("goal: {goal}\nmax-starting: 4\n")).unwrap();
    let units = units.display().to_string();
    Init::start_in(home, &[], &[&units])
}

fn running(init: &Init, name: &str) -> Pid {
    wait_state(init, name, "running").expect("the unit has a main process")
}

fn wait_degraded(init: &Init, name: &str, by: &[&str]) -> Value {
    wait_for(&format!("{name} is degraded by {by:?}"), || {
        Some(unit(init, name)).filter(|unit| unit["degradedBy"] == serde_json::json!(by))
    })
}

#[test]
fn home_server_starts_in_waves_and_survives_dns_loss() {
    let init = start("irc-bot", "/bin/sleep 100000");
    let bot = running(&init, "irc-bot");
    let order = std::fs::read_to_string(init.home.path().join("order")).unwrap();
    let mut order: Vec<&str> = order.lines().collect();
    order[1..3].sort_unstable();
    assert_eq!(order, ["netif", "dhcpcd", "unbound", "inspircd", "irc-bot"]);
    assert_eq!(unit(&init, "maddy")["state"], "disabled");

    succeed(&init, &["set-target", "irc-bot", "--with", "imapd"]);
    let mail = running(&init, "maddy");
    assert_eq!(unit(&init, "maddy")["coincidental"], serde_json::json!(["smtpd"]));

    kill_process(running(&init, "unbound"), Signal::KILL).unwrap();
    wait_state(&init, "unbound", "failed");
    wait_state(&init, "network-online", "waiting");
    wait_degraded(&init, "maddy", &["network-online"]);
    // Its dependency ircd is degraded, too.
    wait_degraded(&init, "irc-bot", &["ircd", "network-online"]);
    let shown = succeed(&init, &["status"]);
    assert!(shown.contains("running, degraded") && shown.contains("SIGKILL"), "{shown}");
    succeed(&init, &["reset-failed", "dns"]);
    for (name, pid) in [("maddy", mail), ("irc-bot", bot)] {
        wait_degraded(&init, name, &[]);
        assert_eq!(wait_state(&init, name, "running"), Some(pid), "{name} was disturbed");
    }
}

#[test]
fn bot_starts_although_the_irc_daemon_fails() {
    let init = start("irc-bot", "/bin/false");
    let bot = running(&init, "irc-bot");
    wait_state(&init, "inspircd", "failed");
    wait_degraded(&init, "irc-bot", &["ircd"]);
    wait_state(&init, "network-online", "running");
    let shown = succeed(&init, &["status"]);
    assert!(shown.contains("ended with status 1; no retry"), "{shown}");
    assert!(is_alive(bot));
}
