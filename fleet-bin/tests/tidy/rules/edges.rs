//! Which crate may see which: the table of `docs/architecture.md`, read off `cargo metadata`.

use std::collections::BTreeSet;

use cargo_metadata::{Dependency, DependencyKind};

use crate::report::{Finding, settle};
use crate::workspace::metadata;

/// What a crate may depend on, tests and examples aside.
struct Room {
    name: &'static str,
    ours: &'static [&'static str],
    outside: Outside,
}

/// The crates of others.
enum Outside {
    /// None but these; a name that ends in `?` has to be optional.
    Only(&'static [&'static str]),
    /// Any but these.
    AnyBut(&'static [&'static str]),
}

const ROOMS: [Room; 8] = [
    Room {
        name: "fleet-unitfile",
        ours: &[],
        outside: Outside::Only(&["sha1_smol", "thiserror", "serde?", "proptest?"]),
    },
    Room {
        name: "fleet-core",
        ours: &["fleet-unitfile"],
        outside: Outside::Only(&[
            "glob",
            "immutable-chunkmap",
            "proptest?",
            "regex",
            "regex-syntax",
            "strsim",
            "thiserror",
        ]),
    },
    Room {
        name: "fleet-scheduler",
        ours: &["fleet-core", "fleet-unitfile"],
        outside: Outside::Only(&["hashbrown", "proptest?", "rustc-hash"]),
    },
    Room {
        name: "fleet-store",
        ours: &["fleet-core", "fleet-unitfile"],
        outside: Outside::AnyBut(&["axum"]),
    },
    Room {
        name: "fleet-agent",
        ours: &["fleet-core", "fleet-unitfile", "fleet-scheduler", "fleet-store"],
        outside: Outside::AnyBut(&["axum", "hyper", "hyper-util"]),
    },
    Room {
        name: "fleet-http",
        ours: &["fleet-core", "fleet-unitfile", "fleet-scheduler", "fleet-store"],
        outside: Outside::AnyBut(&[]),
    },
    Room { name: "fleet-bin", ours: &LIBRARIES, outside: Outside::AnyBut(&[]) },
    Room { name: "fleet-examples", ours: &LIBRARIES, outside: Outside::AnyBut(&[]) },
];

const LIBRARIES: [&str; 6] =
    ["fleet-unitfile", "fleet-core", "fleet-scheduler", "fleet-store", "fleet-agent", "fleet-http"];

/// The features of `fleet-store` that choose a backend: a choice that only a program makes.
const BACKENDS: [&str; 4] = ["default", "memory", "embedded", "etcd"];

#[test]
fn the_members_are_the_rooms() {
    let found: BTreeSet<String> =
        metadata().packages.iter().map(|package| package.name.to_string()).collect();
    let rooms: BTreeSet<String> = ROOMS.iter().map(|room| room.name.to_owned()).collect();
    let strangers = found.symmetric_difference(&rooms);
    let findings = strangers.map(|name| Finding::whole("Cargo.toml", format!("member {name}")));
    settle(findings.collect(), "find the room among the seven crates where the code belongs");
}

#[test]
fn crates_see_only_what_they_may() {
    let findings = over_all(|room, dependency| {
        let allowed = room.allows(&dependency.name, dependency.optional);
        (dependency.kind != DependencyKind::Development && !allowed)
            .then(|| format!("must not depend on {}", dependency.name))
    });
    settle(findings, "move the code to a crate that may, or pass in what it needs as a value");
}

#[test]
fn agent_and_http_never_meet() {
    let findings = over_all(|room, dependency| {
        let pair = (room.name, dependency.name.as_str());
        let meet = matches!(pair, ("fleet-agent", "fleet-http") | ("fleet-http", "fleet-agent"));
        meet.then(|| format!("must not know {}, not even in its tests", dependency.name))
    });
    settle(findings, "test them together in fleet-bin");
}

#[test]
fn libraries_choose_no_backend() {
    let findings = over_all(|room, dependency| {
        let chooses = dependency.kind == DependencyKind::Normal
            && dependency.name == "fleet-store"
            && room.ours != LIBRARIES
            && features(dependency).any(|feature| BACKENDS.contains(&feature));
        chooses.then(|| "chooses a store backend by a feature of fleet-store".to_owned())
    });
    settle(findings, "take a `dyn Store`; choose the backend in fleet-bin");
}

impl Room {
    fn allows(&self, name: &str, optional: bool) -> bool {
        if name.starts_with("fleet-") {
            return self.ours.contains(&name);
        }
        match self.outside {
            Outside::Only(names) => names.iter().any(|allowed| match allowed.strip_suffix('?') {
                Some(allowed) => optional && allowed == name,
                None => *allowed == name,
            }),
            Outside::AnyBut(names) => !names.contains(&name),
        }
    }
}

fn over_all(rule: impl Fn(&Room, &Dependency) -> Option<String>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in &metadata().packages {
        let Some(room) = ROOMS.iter().find(|room| room.name == package.name.as_str()) else {
            continue;
        };
        let manifest = match room.name {
            "fleet-examples" => "examples/Cargo.toml".to_owned(),
            name => format!("{name}/Cargo.toml"),
        };
        let found = package.dependencies.iter().filter_map(|dependency| rule(room, dependency));
        findings.extend(found.map(|what| Finding::whole(&manifest, what)));
    }
    findings
}

fn features(dependency: &Dependency) -> impl Iterator<Item = &str> {
    let default = dependency.uses_default_features.then_some("default");
    default.into_iter().chain(dependency.features.iter().map(String::as_str))
}

#[test]
fn a_room_refuses_what_is_not_its_own() {
    let [unitfile, core, ..] = &ROOMS;
    let table = [
        (unitfile, "thiserror", false, true),
        (unitfile, "serde", true, true),
        (unitfile, "serde", false, false),
        (unitfile, "fleet-core", false, false),
        (core, "fleet-unitfile", false, true),
        (core, "tokio", true, false),
    ];
    for (room, name, optional, allowed) in table {
        assert_eq!(room.allows(name, optional), allowed, "{}: {name}", room.name);
    }
    let agent = ROOMS.iter().find(|room| room.name == "fleet-agent").expect("it is listed");
    assert!(agent.allows("tokio", false) && !agent.allows("axum", false));
}
