//! Number of generated cases, and a short notation for units.

use fleet_core::graph::{Command, EdgeKind, InitUnit, Name, Readiness, Run, ServiceType, Target};
use proptest::test_runner::{Config, contextualize_config};

/// Returns a configuration with this many thousand cases, or more if `PROPTEST_CASES` is set.
/// `FLEET_FEWER_CASES=10` runs a tenth of the cases. A small `PROPTEST_CASES` is refused, because
/// it would weaken each property by another factor.
#[expect(clippy::disallowed_methods, reason = "the environment sets the number of cases")]
pub(crate) fn cases(thousands: u32) -> Config {
    let divisor = std::env::var("FLEET_FEWER_CASES").map_or(1, |text| text.parse().unwrap());
    let asked = thousands * 1000 / divisor;
    let config = Config { cases: asked, failure_persistence: None, ..Config::default() };
    let config = contextualize_config(config);
    assert!(
        config.cases >= asked,
        "PROPTEST_CASES is {}, and this property takes {asked}: unset it; FLEET_FEWER_CASES=10 \
         runs a tenth of the cases",
        config.cases,
    );
    config
}

pub(super) fn name(text: &str) -> Name {
    text.parse().unwrap()
}

pub(super) fn target(text: &str) -> Target {
    text.parse().unwrap()
}

/// Parses a unit from name, type and dependencies, as in `a oneshot on:b ms:c wf:d`.
pub(super) fn unit(text: &str) -> InitUnit {
    let mut words = text.split_whitespace();
    let called = words.next().unwrap();
    let mut unit = InitUnit::new_virtual(name(called), [target(called)]);
    for word in words {
        match word.split_once(':') {
            None => unit.kind = kind(word),
            Some(("also", also)) => unit.provides.push(target(also)),
            Some((kind, on)) => unit.edges.push((edge_kind(kind), target(on))),
        }
    }
    if unit.kind != ServiceType::Virtual {
        let command = || vec![Command::new("/bin/it", [])];
        let stop =
            if unit.kind == ServiceType::BackgroundScripted { command() } else { Vec::new() };
        unit.run = Run { start: command(), reload: command(), stop, ..Run::default() };
    }
    unit
}

/// Parses one unit per line.
pub(super) fn units(text: &str) -> Vec<InitUnit> {
    text.lines().filter(|line| !line.trim().is_empty()).map(unit).collect()
}

fn kind(word: &str) -> ServiceType {
    match word {
        "virtual" => ServiceType::Virtual,
        "notified" => ServiceType::ForegroundNotified,
        "supervised" => ServiceType::ForegroundSupervised(Readiness::Executed),
        "pidfile" => ServiceType::BackgroundPidfile { path: "/run/it.pid".to_owned() },
        "scripted" => ServiceType::BackgroundScripted,
        "oneshot" => ServiceType::Oneshot { remain: true },
        "passing" => ServiceType::Oneshot { remain: false },
        other => panic!("no kind {other}"),
    }
}

fn edge_kind(word: &str) -> EdgeKind {
    match word {
        "on" => EdgeKind::DependsOn,
        "ms" => EdgeKind::DependsMs,
        "req" => EdgeKind::Requisite,
        "wf" => EdgeKind::WaitsFor,
        "pulls" => EdgeKind::Pulls,
        "after" => EdgeKind::After,
        other => panic!("no kind of edge {other}"),
    }
}
