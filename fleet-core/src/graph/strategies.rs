//! Generators of units, for [proptest](https://docs.rs/proptest).
//!
//! Generated graphs are small, so that interactions between a few units are likely. Unit names are
//! shuffled, so they do not follow the order of the dependencies. A failing case is printed with
//! one line per unit.
//!
//! ```
//! use fleet_core::graph::strategies::units;
//! use fleet_core::graph::{Graph, Settings};
//! use proptest::prelude::*;
//!
//! proptest!(|(units in units(6))| {
//!     prop_assert!(Graph::strict(units.0, &Settings::default()).is_ok());
//! });
//! ```

use std::fmt;
use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::{Index, select};

use crate::graph::model::{
    Command, EdgeKind, InitUnit, Name, OnCleanExit, Readiness, Restart, RestartLimit, RestartWhen,
    Run, ServiceType, StatusSet, Target, Timeouts,
};

/// Generated units.
#[derive(Clone, PartialEq, Eq)]
pub struct Units(pub Vec<InitUnit>);

/// Generates 1 to `most` units that form a valid graph.
pub fn units(most: usize) -> impl Strategy<Value = Units> {
    drafts(most).prop_map(|(names, drafts)| Units(assemble(&names, &drafts, true)))
}

/// Generates 1 to `most` units that may form cycles, depend on missing targets, or provide the same
/// targets.
pub fn cyclic_units(most: usize) -> impl Strategy<Value = Units> {
    drafts(most).prop_map(|(names, drafts)| Units(assemble(&names, &drafts, false)))
}

/// A unit without a name. In a valid graph each unit depends only on units earlier in the list.
#[derive(Debug, Clone)]
struct Draft {
    kind: ServiceType,
    edges: Vec<(EdgeKind, Index, bool)>,
    second: bool,
    restart: Restart,
    on_clean_exit: OnCleanExit,
    success: bool,
    reloads: bool,
    stops: bool,
}

fn drafts(most: usize) -> impl Strategy<Value = (Vec<String>, Vec<Draft>)> {
    let names: Vec<String> = (0..most).map(letter).collect();
    (Just(names).prop_shuffle(), prop::collection::vec(draft(), 1..=most))
}

/// Returns `a`, `b`, … and then numbered names.
fn letter(at: usize) -> String {
    let letter = u8::try_from(at).ok().filter(|at| *at < 26).map(|at| char::from(b'a' + at));
    letter.map_or_else(|| format!("unit-{at:06}"), String::from)
}

fn draft() -> impl Strategy<Value = Draft> {
    let edge_kinds = vec![
        EdgeKind::DependsOn,
        EdgeKind::DependsOn,
        EdgeKind::DependsMs,
        EdgeKind::Requisite,
        EdgeKind::WaitsFor,
        EdgeKind::Pulls,
        EdgeKind::After,
    ];
    let edge = (select(edge_kinds), any::<Index>(), any::<bool>());
    let edges = prop::collection::vec(edge, 0..4);
    let on_clean_exit = select(vec![OnCleanExit::Fail, OnCleanExit::Complete, OnCleanExit::Remain]);
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    (kind(), edges, restart(), on_clean_exit, flags).prop_map(
        |(kind, edges, restart, on_clean_exit, (second, success, reloads, stops))| Draft {
            restart: if matches!(kind, ServiceType::Oneshot { .. } | ServiceType::Virtual) {
                Restart { when: meant_to_end(restart.when), ..restart }
            } else {
                restart
            },
            kind,
            edges,
            second,
            on_clean_exit,
            success,
            reloads,
            stops,
        },
    )
}

fn kind() -> impl Strategy<Value = ServiceType> {
    let path = "/run/it.pid".to_owned();
    select(vec![
        ServiceType::Virtual,
        ServiceType::ForegroundNotified,
        ServiceType::ForegroundSupervised(Readiness::Executed),
        ServiceType::ForegroundSupervised(Readiness::Alive(Duration::from_secs(2))),
        ServiceType::BackgroundPidfile { path },
        ServiceType::BackgroundForking,
        ServiceType::BackgroundScripted,
        ServiceType::Oneshot { remain: true },
        ServiceType::Oneshot { remain: false },
    ])
}

fn restart() -> impl Strategy<Value = Restart> {
    let when = select(vec![
        RestartWhen::Never,
        RestartWhen::OnFailure,
        RestartWhen::OnFailure,
        RestartWhen::OnAbnormal,
        RestartWhen::Always,
    ]);
    let limit = select(vec![
        RestartLimit::None,
        RestartLimit::Failures(2),
        RestartLimit::Starts { burst: 3, interval: Duration::from_secs(10) },
    ]);
    let delay = select(vec![0, 500, 1000]).prop_map(Duration::from_millis);
    (when, limit, delay).prop_map(|(when, limit, delay)| Restart {
        when,
        limit,
        delay,
        ..Restart::default()
    })
}

fn meant_to_end(when: RestartWhen) -> RestartWhen {
    if when == RestartWhen::Always { RestartWhen::OnFailure } else { when }
}

fn assemble(names: &[String], drafts: &[Draft], valid: bool) -> Vec<InitUnit> {
    let targets: Vec<Vec<Target>> = names
        .iter()
        .zip(drafts)
        .map(|(name, draft)| {
            let second = draft.second.then(|| format!("{name}2"));
            std::iter::once(name.clone()).chain(second).filter_map(|it| it.parse().ok()).collect()
        })
        .collect();
    let units = names.iter().zip(drafts).enumerate();
    units.filter_map(|(at, (name, draft))| draft.unit(name, at, &targets, valid)).collect()
}

impl Draft {
    fn unit(
        &self,
        name: &str,
        at: usize,
        targets: &[Vec<Target>],
        valid: bool,
    ) -> Option<InitUnit> {
        let edge = |(kind, index, second): &(EdgeKind, Index, bool)| {
            let kind = *kind;
            let reach = if valid && kind.orders() { at } else { targets.len() };
            if !valid && *second && index.index(7) == 0 {
                return Some((kind, "missing".parse().ok()?));
            }
            let of = targets.get(index.index(reach.max(1))).filter(|_| reach > 0)?;
            Some((kind, of[usize::from(*second) % of.len()].clone()))
        };
        let mut provides = targets[at].clone();
        if !valid && self.second {
            provides.push("common".parse().ok()?);
        }
        Some(InitUnit {
            kind: self.kind.clone(),
            edges: self.edges.iter().filter_map(edge).collect(),
            restart: self.restart.clone(),
            timeouts: Timeouts::default(),
            run: if self.kind == ServiceType::Virtual { Run::default() } else { self.run() },
            ..InitUnit::new_virtual(name.parse::<Name>().ok()?, provides)
        })
    }

    fn run(&self) -> Run {
        let command = || vec![Command::new("/bin/true", [])];
        let stops = self.stops || self.kind == ServiceType::BackgroundScripted;
        let codes = if self.success { [3].into() } else { [].into() };
        Run {
            start: command(),
            stop: if stops { command() } else { Vec::new() },
            reload: if self.reloads { command() } else { Vec::new() },
            on_clean_exit: self.on_clean_exit,
            success: StatusSet { codes, ..StatusSet::default() },
            ..Run::default()
        }
    }
}

impl fmt::Debug for Units {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|unit| {
            let provides = unit.provides.iter().map(Target::as_str).collect::<Vec<_>>();
            write!(f, "\n  {} {:?} provides {}", unit.name, unit.kind, provides.join(" "))?;
            unit.edges.iter().try_for_each(|(kind, target)| write!(f, ", {kind} {target}"))?;
            let Restart { when, limit, delay, .. } = &unit.restart;
            write!(f, "; {when:?} {limit:?} {delay:?}, {:?}", unit.run.on_clean_exit)
        })
    }
}
