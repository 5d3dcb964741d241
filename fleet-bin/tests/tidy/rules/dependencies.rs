//! Allowed dependencies between crates: the table of `docs/explain/architecture.md`, checked
//! against `cargo metadata`.

use std::collections::BTreeSet;

use cargo_metadata::{Dependency, DependencyKind};

use crate::report::{Finding, fail_on};
use crate::workspace::metadata;

/// The allowed dependencies of one crate, without tests and examples.
struct CrateRule {
    name: &'static str,
    internal: &'static [&'static str],
    external: External,
}

/// Allowed crates from outside the workspace.
enum External {
    /// Only these; a name that ends in `?` must be optional.
    Only(&'static [&'static str]),
    /// Any except these.
    AllExcept(&'static [&'static str]),
}

const CRATES: [CrateRule; 8] = [
    CrateRule {
        name: "fleet-unitfile",
        internal: &[],
        external: External::Only(&["jiff?", "sha1_smol", "thiserror", "serde?", "proptest?"]),
    },
    CrateRule {
        name: "fleet-core",
        internal: &["fleet-unitfile"],
        external: External::Only(&[
            "glob",
            "immutable-chunkmap",
            "proptest?",
            "regex?",
            "regex-syntax?",
            "thiserror",
        ]),
    },
    CrateRule {
        name: "fleet-scheduler",
        internal: &["fleet-core", "fleet-unitfile"],
        external: External::Only(&["hashbrown", "proptest?", "rustc-hash", "thiserror"]),
    },
    CrateRule {
        name: "fleet-store",
        internal: &["fleet-core", "fleet-unitfile"],
        external: External::AllExcept(&["axum"]),
    },
    CrateRule {
        name: "fleet-agent",
        internal: &["fleet-core", "fleet-unitfile", "fleet-scheduler", "fleet-store"],
        external: External::AllExcept(&["axum", "hyper", "hyper-util"]),
    },
    CrateRule {
        name: "fleet-http",
        internal: &["fleet-core", "fleet-unitfile", "fleet-scheduler", "fleet-store"],
        external: External::AllExcept(&[]),
    },
    CrateRule { name: "fleet-bin", internal: &LIBRARIES, external: External::AllExcept(&[]) },
    CrateRule { name: "fleet-examples", internal: &LIBRARIES, external: External::AllExcept(&[]) },
];

const LIBRARIES: [&str; 6] =
    ["fleet-unitfile", "fleet-core", "fleet-scheduler", "fleet-store", "fleet-agent", "fleet-http"];

/// The features of `fleet-store` that choose a backend. Only a program may enable them.
const BACKENDS: [&str; 4] = ["default", "memory", "embedded", "etcd"];

#[test]
fn every_workspace_member_is_listed() {
    let found: BTreeSet<String> =
        metadata().packages.iter().map(|package| package.name.to_string()).collect();
    let listed: BTreeSet<String> = CRATES.iter().map(|rule| rule.name.to_owned()).collect();
    let unlisted = found.symmetric_difference(&listed);
    let findings = unlisted.map(|name| Finding::whole("Cargo.toml", format!("member {name}")));
    fail_on(findings.collect(), "put the code into one of the seven crates; there is no eighth");
}

/// The documentation of a published crate shows the items behind its features.
#[test]
fn published_crates_document_all_features() {
    let published = metadata().packages.iter().filter(|it| it.publish != Some(Vec::new()));
    let silent = published.filter(|it| it.metadata["docs"]["rs"]["all-features"] != true);
    let findings = silent.map(|it| {
        let manifest = format!("{}/Cargo.toml", it.name);
        Finding::whole(&manifest, "does not document all features".to_owned())
    });
    fail_on(findings.collect(), "set all-features = true in [package.metadata.docs.rs]");
}

#[test]
fn crates_depend_only_on_what_they_may() {
    let findings = over_all(|rule, dependency| {
        let allowed = rule.allows(&dependency.name, dependency.optional);
        (dependency.kind != DependencyKind::Development && !allowed)
            .then(|| format!("must not depend on {}", dependency.name))
    });
    fail_on(findings, "move the code to a crate that may, or pass in what it needs as a value");
}

#[test]
fn agent_and_http_do_not_know_each_other() {
    let findings = over_all(|rule, dependency| {
        let pair = (rule.name, dependency.name.as_str());
        let meet = matches!(pair, ("fleet-agent", "fleet-http") | ("fleet-http", "fleet-agent"));
        meet.then(|| format!("must not know {}, not even in its tests", dependency.name))
    });
    fail_on(findings, "test them together in fleet-bin");
}

#[test]
fn libraries_choose_no_backend() {
    let findings = over_all(|rule, dependency| {
        let chooses = dependency.kind == DependencyKind::Normal
            && dependency.name == "fleet-store"
            && rule.internal != LIBRARIES
            && features(dependency).any(|feature| BACKENDS.contains(&feature));
        chooses.then(|| "chooses a store backend by a feature of fleet-store".to_owned())
    });
    fail_on(findings, "take a `dyn Store`; choose the backend in fleet-bin");
}

impl CrateRule {
    fn allows(&self, name: &str, optional: bool) -> bool {
        if name.starts_with("fleet-") {
            return self.internal.contains(&name);
        }
        match self.external {
            External::Only(names) => names.iter().any(|allowed| match allowed.strip_suffix('?') {
                Some(allowed) => optional && allowed == name,
                None => *allowed == name,
            }),
            External::AllExcept(names) => !names.contains(&name),
        }
    }
}

fn over_all(check: impl Fn(&CrateRule, &Dependency) -> Option<String>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in &metadata().packages {
        let Some(rule) = CRATES.iter().find(|rule| rule.name == package.name.as_str()) else {
            continue;
        };
        let manifest = match rule.name {
            "fleet-examples" => "examples/Cargo.toml".to_owned(),
            name => format!("{name}/Cargo.toml"),
        };
        let found = package.dependencies.iter().filter_map(|dependency| check(rule, dependency));
        findings.extend(found.map(|what| Finding::whole(&manifest, what)));
    }
    findings
}

fn features(dependency: &Dependency) -> impl Iterator<Item = &str> {
    let default = dependency.uses_default_features.then_some("default");
    default.into_iter().chain(dependency.features.iter().map(String::as_str))
}

#[test]
fn a_crate_rule_refuses_other_dependencies() {
    let [unitfile, core, ..] = &CRATES;
    let table = [
        (unitfile, "thiserror", false, true),
        (unitfile, "serde", true, true),
        (unitfile, "serde", false, false),
        (unitfile, "fleet-core", false, false),
        (core, "fleet-unitfile", false, true),
        (core, "tokio", true, false),
    ];
    for (rule, name, optional, allowed) in table {
        assert_eq!(rule.allows(name, optional), allowed, "{}: {name}", rule.name);
    }
    let agent = CRATES.iter().find(|rule| rule.name == "fleet-agent").expect("it is listed");
    assert!(agent.allows("tokio", false) && !agent.allows("axum", false));
}
