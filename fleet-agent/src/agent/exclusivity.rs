//! Rule that at most one machine runs a unit with `OnPartition=stop` at a time. Pure: no I/O, no
//! clock.
//!
//! A machine publishes a unit's state before it starts the unit, and removes the state after the
//! unit has ended. The store orders all published states. So if two machines were given the same
//! unit, the later publisher sees the other machine's state, and waits.
//!
//! A state that vanishes together with its machine's presence does not show that the unit has
//! ended. In that case this machine waits until the deadline by which the other machine must have
//! stopped the unit.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use fleet_core::{MachineId, Revision, Snapshot, Timestamp, Unit};
use fleet_unitfile::UnitName;

use crate::stop_deadline::stop_deadline;

/// Tracks the previous hosts of units that wait to be started here.
#[derive(Debug)]
pub(crate) struct Exclusivity {
    machine: MachineId,
    ttl: Duration,
    others: BTreeMap<UnitName, PreviousHost>,
    gaps: u64,
}

/// Another machine that has or had a unit that waits here.
#[derive(Debug)]
struct PreviousHost {
    machine: MachineId,
    /// Whether the other machine may have been absent since this machine first saw the unit's state
    /// from there. In that case, the disappearance of the state does not prove that the unit has
    /// ended: the state may have disappeared with the other machine's presence.
    rejoined: bool,
    /// Time at which this machine noticed that the unit's state from the other machine is gone, but
    /// perhaps only because the other machine was lost. `None` if that has not happened.
    lost: Option<Timestamp>,
}

/// The time during which this machine is certainly present in the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PresenceWindow {
    /// The fence: the end of that time.
    pub(crate) until: Timestamp,
    /// Revision at which this presence began.
    pub(crate) joined: Revision,
}

/// Cluster state of one evaluation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Observation<'a> {
    pub(crate) snapshot: &'a Snapshot,
    /// Machines that may have changed since the previous evaluation. `None` if any machine may have
    /// changed.
    pub(crate) machines: Option<&'a BTreeSet<MachineId>>,
    pub(crate) gaps: u64,
    pub(crate) now: Timestamp,
    pub(crate) window: Option<PresenceWindow>,
}

/// Reason why a unit must not be started yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BlockReason {
    /// This machine is not certainly present.
    CutOff,
    /// Other machines cannot know yet that the unit may run here.
    NotPublished,
    /// Another machine has published that the unit may run there.
    Elsewhere(MachineId),
    /// A machine that has lost its presence may run the unit until this time. `None` means that no
    /// time limit is known.
    MayRun(MachineId, Option<Timestamp>),
}

impl Exclusivity {
    pub(crate) fn new(machine: MachineId, ttl: Duration) -> Self {
        Self { machine, ttl, others: BTreeMap::new(), gaps: 0 }
    }

    /// Records the changes since the previous evaluation.
    pub(crate) fn record_changes(&mut self, observation: Observation<'_>) {
        let gap = std::mem::replace(&mut self.gaps, observation.gaps) != observation.gaps;
        for other in self.others.values_mut() {
            let changed =
                observation.machines.is_none_or(|machines| machines.contains(&other.machine));
            other.rejoined |= gap || changed;
        }
    }

    /// Drops all units for which `keep` returns `false`.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&UnitName) -> bool) {
        self.others.retain(|unit, _| keep(unit));
    }

    /// Returns the reason why the unit must not be started on this machine; `None` if the unit may
    /// be started.
    pub(crate) fn blocked_by(
        &mut self,
        unit: &Unit,
        observation: Observation<'_>,
    ) -> Option<BlockReason> {
        let Some(window) = observation.window.filter(|window| observation.now < window.until)
        else {
            return Some(BlockReason::CutOff);
        };
        let own = observation.snapshot.state(unit.name.as_str(), self.machine.as_str());
        // An older snapshot may show a state published under an earlier presence.
        let published = own.is_some() && observation.snapshot.revision >= window.joined;
        let elsewhere = if unit.is_global() { None } else { self.elsewhere(unit, observation) };
        elsewhere.or_else(|| (!published).then_some(BlockReason::NotPublished))
    }

    fn elsewhere(&mut self, unit: &Unit, observation: Observation<'_>) -> Option<BlockReason> {
        let states = observation.snapshot.states_of(unit.name.as_str());
        let mut machines = states.map(|state| &state.machine);
        if let Some(machine) = machines.find(|machine| **machine != self.machine) {
            let (rejoined, lost) = (false, None);
            let scenario = || PreviousHost { machine: machine.clone(), rejoined, lost };
            let other = self.others.entry(unit.name.clone()).or_insert_with(scenario);
            if other.machine != *machine || other.lost.is_some() {
                *other = scenario();
            }
            return Some(BlockReason::Elsewhere(machine.clone()));
        }
        let other = self.others.get_mut(&unit.name)?;
        let gone = other.rejoined || observation.snapshot.machine(other.machine.as_str()).is_none();
        if other.lost.is_none() && gone {
            other.lost = Some(observation.now);
        }
        let (machine, lost) = (other.machine.clone(), other.lost);
        let ended = lost.map(|lost| stop_deadline(unit, self.ttl).map(|it| lost.after(it)));
        match ended {
            Some(ended) if ended.is_none_or(|ended| observation.now < ended) => {
                Some(BlockReason::MayRun(machine, ended))
            }
            _ => {
                self.others.remove(&unit.name);
                None
            }
        }
    }
}

impl BlockReason {
    /// Returns the time at which the reason ends by itself; `None` if only a change in the cluster
    /// can end it.
    pub(crate) fn until(&self) -> Option<Timestamp> {
        match self {
            Self::MayRun(_, until) => *until,
            _ => None,
        }
    }
}

impl fmt::Display for BlockReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("start blocked by OnPartition=stop ")?;
        match self {
            Self::CutOff => f.write_str("while the cluster cannot be reached"),
            Self::NotPublished => f.write_str("until the cluster knows that it may run here"),
            Self::Elsewhere(machine) => write!(f, "until it has ended on {}", machine.short()),
            Self::MayRun(machine, Some(_)) => {
                write!(f, "until its stop deadline on {}, which was lost", machine.short())
            }
            Self::MayRun(machine, None) => {
                write!(
                    f,
                    "until {} is back, since its stop there has no time limit",
                    machine.short()
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use fleet_core::{
        Epoch, Generation, Machine, Requirements, Strictness, SystemdState, TargetState, UnitState,
    };
    use fleet_unitfile::UnitFile;

    use super::*;

    const TTL: Duration = Duration::from_secs(30);

    fn id(text: &str) -> MachineId {
        text.parse().unwrap()
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    fn unit(options: &str) -> Unit {
        let text = format!("[Service]\nTimeoutStopSec=10\nExecStart=/bin/a\n[X-Fleet]\n{options}");
        let (name, file) = ("a.service".parse().unwrap(), UnitFile::parse(text).unwrap());
        let parsed = Requirements::parse(&name, &file, Strictness::Refuse).unwrap();
        Unit::new(name, file, parsed.requirements, TargetState::Launched)
    }

    /// A present machine `here`, and its view of the cluster.
    struct Scenario {
        exclusivity: Exclusivity,
        snapshot: Snapshot,
        machines: BTreeSet<MachineId>,
        window: Option<PresenceWindow>,
    }

    impl Scenario {
        fn new() -> Self {
            let mut snapshot = Snapshot::default();
            snapshot.revision = Revision(9);
            snapshot.put_machine(Machine::new(id("here")));
            snapshot.put_machine(Machine::new(id("there")));
            let window = Some(PresenceWindow { until: at(1000), joined: Revision(5) });
            Self {
                exclusivity: Exclusivity::new(id("here"), TTL),
                snapshot,
                machines: BTreeSet::new(),
                window,
            }
        }

        fn publish(&mut self, machine: &str) {
            self.snapshot.put_state(UnitState {
                unit: "a.service".parse().unwrap(),
                machine: id(machine),
                hash: unit("").hash(),
                requested: TargetState::Loaded,
                epoch: Epoch(1),
                generation: Generation(0),
                systemd: SystemdState::loaded(),
                problem: None,
                health: None,
                output: Vec::new(),
            });
        }

        fn verdict_of(&mut self, unit: &Unit, now: u64) -> String {
            let machines = std::mem::take(&mut self.machines);
            let observation = Observation {
                snapshot: &self.snapshot,
                machines: Some(&machines),
                gaps: 0,
                now: at(now),
                window: self.window,
            };
            self.exclusivity.record_changes(observation);
            let blocked = self.exclusivity.blocked_by(unit, observation);
            blocked.map_or_else(|| "open".to_owned(), |blocked| blocked.to_string().split_off(34))
        }

        fn verdict(&mut self, now: u64) -> String {
            self.verdict_of(&unit("OnPartition=stop\n"), now)
        }
    }

    #[test]
    fn unit_starts_once_published_and_present() {
        let mut scenario = Scenario::new();
        assert_eq!(scenario.verdict(1), "until the cluster knows that it may run here");
        scenario.publish("here");
        assert_eq!(scenario.verdict(2), "open");
        assert_eq!(scenario.verdict(1000), "while the cluster cannot be reached");
        scenario.window = Some(PresenceWindow { until: at(2000), joined: Revision(10) });
        assert_eq!(scenario.verdict(1001), "until the cluster knows that it may run here");
        scenario.snapshot.revision = Revision(10);
        assert_eq!(scenario.verdict(1002), "open");
        scenario.window = None;
        assert_eq!(scenario.verdict(1003), "while the cluster cannot be reached");
    }

    #[test]
    fn unit_waits_for_state_on_other_machine_to_go() {
        let mut scenario = Scenario::new();
        scenario.publish("here");
        scenario.publish("there");
        assert_eq!(scenario.verdict(1), "until it has ended on there");
        assert_eq!(scenario.verdict_of(&unit("Global=true\nOnPartition=stop\n"), 1), "open");
        scenario.snapshot.remove_state("a.service", "there");
        assert_eq!(scenario.verdict(2), "open");
    }

    #[test]
    fn unit_waits_for_stop_deadline_of_lost_machine() {
        type Loss = fn(&mut Scenario);
        let gone: Loss = |scenario| scenario.snapshot.remove_machine("there");
        // It has a new presence, which has not published anything yet.
        let rejoins: Loss = |scenario| scenario.machines = [id("there")].into();
        for loss in [gone, rejoins] {
            let mut scenario = Scenario::new();
            scenario.publish("here");
            scenario.publish("there");
            assert_eq!(scenario.verdict(1), "until it has ended on there");
            scenario.snapshot.remove_state("a.service", "there");
            loss(&mut scenario);
            let waits = "until its stop deadline on there, which was lost";
            assert_eq!(
                (scenario.verdict(2).as_str(), scenario.verdict(17).as_str()),
                (waits, waits)
            );
            assert_eq!(scenario.verdict(18), "open");
        }
    }
}
