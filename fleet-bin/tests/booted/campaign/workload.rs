//! The units of the campaign, and what may happen to them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::LEASE;
use super::faults::{Effect, Fault};
use super::instances::{Instance, Instances, Observer, VARIABLE};
use crate::cluster::{Cluster, MACHINES, SLEEP};
use crate::observe::output_text;

/// Number of units that run anywhere.
pub(super) const PLAIN: usize = 9;
/// Number of units with `OnPartition=stop`.
const FENCED: usize = 5;

/// All units, by name.
pub(super) struct Workload {
    tag: String,
    units: BTreeMap<String, Policy>,
}

/// How many instances of a unit may run, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Policy {
    /// One, except on a machine without contact to the others.
    Plain,
    /// Never two.
    Fenced,
    /// One on this machine.
    Pinned(&'static str),
    /// One on each machine.
    Global,
}

impl Policy {
    fn rules(self) -> String {
        match self {
            Self::Plain => String::new(),
            Self::Fenced => "OnPartition=stop".to_owned(),
            Self::Pinned(machine) => format!("MachineMetadata=name={machine}"),
            Self::Global => "Global=true".to_owned(),
        }
    }
}

impl Workload {
    pub(super) fn start(cluster: &Cluster) -> Self {
        let mut units = BTreeMap::new();
        units.extend((0..PLAIN).map(|number| (plain(number), Policy::Plain)));
        units.extend((0..FENCED).map(|it| (format!("fenced-{it}.service"), Policy::Fenced)));
        let pinned = MACHINES.map(|it| (format!("pinned-{it}.service"), Policy::Pinned(it)));
        units.extend(pinned);
        units.insert("global.service".to_owned(), Policy::Global);
        let tag = std::process::id().to_string();
        for (unit, policy) in &units {
            let environment = format!("Environment=\"{VARIABLE}={tag} %n %H\"");
            let text = format!("{SLEEP}{environment}\n[X-Fleet]\n{}\n", policy.rules());
            cluster.write(unit, &text);
        }
        let start: Vec<_> = ["start"].into_iter().chain(units.keys().map(|it| &**it)).collect();
        cluster.succeed(&start);
        Self { tag, units }
    }

    /// Returns the text that marks the processes of this workload.
    pub(super) fn tag(&self) -> &str {
        &self.tag
    }

    /// Waits until each unit runs exactly as wanted, and each daemon reports just that. This must
    /// begin within `limit`, and must stay so for longer than a lease: a fault may show its effects
    /// only once a lease has ended. Returns when it began, as a time since the call.
    pub(super) fn wait_right(
        &self,
        cluster: &Cluster,
        observer: &Observer,
        limit: Duration,
    ) -> Duration {
        let called = Instant::now();
        let mut right: Option<(Duration, Instances)> = None;
        loop {
            let (now, wrong) = (observer.now(), self.wrong(cluster, observer));
            right = right.filter(|(_, instances)| *instances == now && wrong.is_empty());
            if right.is_none() && wrong.is_empty() {
                right = Some((called.elapsed(), now));
            }
            let since = right.as_ref().map(|(since, _)| *since).filter(|since| *since <= limit);
            if let Some(since) = since.filter(|it| called.elapsed() > *it + LEASE + LEASE / 2) {
                return since;
            }
            if since.is_none() && called.elapsed() > limit {
                let doctor = output_text(&cluster.fleetctl(&["doctor"]));
                let wrong = wrong.join("\n");
                panic!("not right within {limit:?}:\n{wrong}\ndoctor: {doctor}");
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    fn wrong(&self, cluster: &Cluster, observer: &Observer) -> Vec<String> {
        let now = observer.now();
        let mut wrong: Vec<String> = Vec::new();
        let nothing = BTreeSet::new();
        for (unit, policy) in &self.units {
            let on = machines(now.get(unit).unwrap_or(&nothing));
            let is_right = match policy {
                Policy::Plain | Policy::Fenced => on.len() == 1,
                Policy::Pinned(machine) => on == [*machine],
                Policy::Global => on == MACHINES,
            };
            if !is_right {
                wrong.push(format!("{unit} runs on {on:?}"));
            }
        }
        if !wrong.is_empty() {
            return wrong;
        }
        for machine in MACHINES {
            let listed = cluster.fleetctl_by(machine, &["list-units", "-o", "json"]);
            let rows: Vec<serde_json::Value> =
                serde_json::from_slice(&listed.stdout).unwrap_or_default();
            for unit in self.units.keys() {
                let mut on: Vec<_> = rows
                    .iter()
                    .filter(|row| row["unit"] == **unit && row["active"] == "active")
                    .filter_map(|row| cluster.name_of(row["machine"].as_str()?))
                    .collect();
                on.sort_unstable();
                if on != machines(&now[unit]) {
                    wrong.push(format!("{machine} reports {unit} on {on:?}"));
                }
            }
        }
        wrong
    }

    /// Checks one state during a fault or after it.
    pub(super) fn check(&self, fault: &Fault, machine: &str, before: &Instances, now: &Instances) {
        let nothing = BTreeSet::new();
        for (unit, policy) in &self.units {
            let (was, is) = (&before[unit], now.get(unit).unwrap_or(&nothing));
            let on = machines(is);
            let is_isolated = matches!(fault.effect, Effect::Isolated | Effect::LostIdentity);
            let most = match policy {
                Policy::Plain if is_isolated && machines(was).contains(&machine) => 2,
                Policy::Global => MACHINES.len(),
                _ => 1,
            };
            let mut distinct = on.clone();
            distinct.dedup();
            assert!(
                on.len() <= most && distinct.len() == on.len(),
                "{}: {unit} runs on {on:?}",
                fault.name
            );
            // Instances that the fault must not touch.
            let keeps = |instance: &&Instance| match fault.effect {
                Effect::None => true,
                Effect::Outage => *policy != Policy::Fenced,
                Effect::Requests => !is_plain(unit),
                Effect::Lost | Effect::LostIdentity => instance.machine != machine,
                Effect::Isolated => {
                    let stays = !matches!(policy, Policy::Plain | Policy::Fenced);
                    stays || instance.machine != machine
                }
            };
            for instance in was.iter().filter(keeps) {
                assert!(is.contains(instance), "{}: {unit} lost {instance:?}", fault.name);
            }
            assert!(fault.effect != Effect::None || is == was, "{}: {unit}: {is:?}", fault.name);
        }
    }
}

/// Returns the name of a unit that runs anywhere.
pub(super) fn plain(number: usize) -> String {
    format!("plain-{number}.service")
}

fn is_plain(unit: &str) -> bool {
    unit.starts_with("plain-")
}

fn machines(instances: &BTreeSet<Instance>) -> Vec<&str> {
    instances.iter().map(|instance| &*instance.machine).collect()
}
