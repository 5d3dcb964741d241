//! The home server example of fleet-init, with stand-ins for its programs.

use std::collections::BTreeSet;

use fleet_agent::native::UnitSnapshot;
use fleet_core::graph::{Activity, DerivedState, Retry};

use super::graph::{Stand, target};
use super::helper::stanza_with_steps;
use crate::support::{Home, signal};

const UNITS: &str = include_str!("../../../../examples/home/home.unit");

/// Returns the units of the example. Each announces its start; `ircd` are the steps of that unit.
fn units(home: &Home, ircd: &str) -> String {
    let order = home.path("order").display().to_string();
    let begins = |name: &str| format!("exec-start-pre: /bin/sh -c 'echo {name} >>{order}'\n");
    let sleeps = "exec-start: /bin/sleep 1000\nrestart: never\n";
    let line = "exec-start: /bin/sh -c 'echo connected to home; exec sleep 1000'\n";
    let of = |name: &str| match name {
        "maddy" => stanza_with_steps("say READY=1|sleep"),
        "netif" => "exec-start: /bin/true\n".to_owned(),
        "irc-bot" => line.to_owned(),
        "inspircd" => format!("exec-start: {ircd}\nrestart: never\n"),
        _ => sleeps.to_owned(),
    };
    let mut name = "";
    let mut text = String::new();
    for written in UNITS.lines() {
        name = written.strip_prefix("unit: ").unwrap_or(name);
        if written.starts_with("exec-start: ") {
            text += &(begins(name) + &of(name));
        } else {
            text += written;
            text += "\n";
        }
    }
    text
}

async fn want_mail(stand: &Stand) {
    let mail = BTreeSet::from([target("imapd")]);
    stand.supervisor.set_goal(Some(target("irc-bot")), mail).await.expect("it is provided");
}

fn is_degraded_by(unit: &UnitSnapshot, whom: &str) -> bool {
    unit.report.degraded && unit.degraded_by.contains(&target(whom))
}

#[tokio::test]
async fn home_example_starts_in_waves_and_survives_dns_loss() {
    let home = Home::new();
    let stand = Stand::new(&units(&home, "/bin/sleep 1000"), "irc-bot").await;
    let bot = stand.running("irc-bot").await;
    let order = std::fs::read_to_string(home.path("order")).expect("they have begun");
    let mut order: Vec<&str> = order.lines().collect();
    order[1..3].sort_unstable();
    assert_eq!(order, ["netif", "dhcpcd", "unbound", "inspircd", "irc-bot"]);
    assert_eq!(stand.unit("maddy").await.report.state, DerivedState::Disabled);

    want_mail(&stand).await;
    let mail = stand.running("maddy").await;
    assert_eq!(stand.unit("maddy").await.coincidental, [target("smtpd")]);
    assert!(!stand.unit("maddy").await.report.degraded);

    signal(stand.running("unbound").await, "KILL");
    stand
        .wait_for("network-online", |unit| matches!(unit.report.state, DerivedState::Waiting(_)))
        .await;
    for (name, pid) in [("maddy", mail), ("irc-bot", bot)] {
        stand.wait_for(name, |unit| is_degraded_by(unit, "network-online")).await;
        assert_eq!(stand.running(name).await, pid, "{name} runs on");
    }
    assert!(stand.supervisor.reset_failed(&target("dns")).await.expect("the call succeeds"));
    for (name, pid) in [("maddy", mail), ("irc-bot", bot)] {
        stand.wait_for(name, |unit| !unit.report.degraded).await;
        assert_eq!(stand.running(name).await, pid, "{name} has run on");
    }
    stand.clean_up().await;
}

#[tokio::test]
async fn home_example_bot_survives_loss_of_its_network() {
    let home = Home::new();
    let stand = Stand::new(&units(&home, "/bin/false"), "irc-bot").await;
    stand.running("irc-bot").await;
    let over = |unit: &UnitSnapshot| {
        matches!(unit.report.state, DerivedState::Failed { retry: Retry::Never, .. })
    };
    stand.wait_for("inspircd", over).await;
    stand.wait_for("irc-bot", |unit| is_degraded_by(unit, "ircd")).await;
    let network = stand.unit("network-online").await.report.state;
    assert_eq!(network, DerivedState::Active(Activity::Running));
    stand.clean_up().await;
}
