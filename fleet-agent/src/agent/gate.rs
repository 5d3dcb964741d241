//! Pure: no I/O, no clock. Whether a unit with `OnPartition=stop` may be started here.
//!
//! A unit's published state is its machine's word that it may run there. It is published before the
//! unit is started and taken back after it has ended, and the store puts all that is published in
//! one order. So of two machines that were both given a unit, the one that published later sees the
//! other's word, and waits. A word that vanishes with its machine's presence says nothing of the
//! unit's end; then the time counts after which the machine must have stopped it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use fleet_core::{MachineId, Revision, Snapshot, Timestamp, Unit};
use fleet_unitfile::UnitName;

use crate::limit::must_have_ended;

/// Remembers where units were that wait to be started here.
#[derive(Debug)]
pub(crate) struct Gate {
    machine: MachineId,
    ttl: Duration,
    others: BTreeMap<UnitName, Other>,
    gaps: u64,
}

/// Another machine that has, or had, a unit that waits here.
#[derive(Debug)]
struct Other {
    machine: MachineId,
    /// Its presence began anew since its word was first seen, so if that vanishes, it need not
    /// have been taken back.
    shaken: bool,
    /// When its word had vanished with its presence.
    lost: Option<Timestamp>,
}

/// What an agent knows of its place in the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Standing {
    /// The fence: until when the machine is certainly present.
    pub(crate) until: Timestamp,
    /// The revision at which its presence began.
    pub(crate) joined: Revision,
}

/// What is seen at a look.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Look<'a> {
    pub(crate) snapshot: &'a Snapshot,
    /// The machines that may be different from the look before; nothing if that is not known.
    pub(crate) machines: Option<&'a BTreeSet<MachineId>>,
    pub(crate) gaps: u64,
    pub(crate) now: Timestamp,
    pub(crate) standing: Option<Standing>,
}

/// Why a unit must not be started yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Shut {
    /// The machine is not certainly present.
    CutOff,
    /// The other machines cannot know yet that it may run here.
    NotPublished,
    /// Another machine says that it may run there.
    Elsewhere(MachineId),
    /// Another machine was lost that may run it until that moment; nothing if nobody knows.
    MayRun(MachineId, Option<Timestamp>),
}

impl Gate {
    pub(crate) fn new(machine: MachineId, ttl: Duration) -> Self {
        Self { machine, ttl, others: BTreeMap::new(), gaps: 0 }
    }

    /// Takes in what is different since the look before.
    pub(crate) fn notice(&mut self, look: Look<'_>) {
        let gap = std::mem::replace(&mut self.gaps, look.gaps) != look.gaps;
        for other in self.others.values_mut() {
            let changed = look.machines.is_none_or(|machines| machines.contains(&other.machine));
            other.shaken |= gap || changed;
        }
    }

    /// Forgets all units but those that `keep` holds on to.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&UnitName) -> bool) {
        self.others.retain(|unit, _| keep(unit));
    }

    /// Why the unit must not be started here; nothing if it may be.
    pub(crate) fn shut(&mut self, unit: &Unit, look: Look<'_>) -> Option<Shut> {
        let Some(standing) = look.standing.filter(|standing| look.now < standing.until) else {
            return Some(Shut::CutOff);
        };
        let own = look.snapshot.state(unit.name.as_str(), self.machine.as_str());
        // An older snapshot shows a word that was given in an earlier life.
        let published = own.is_some() && look.snapshot.revision >= standing.joined;
        let elsewhere = if unit.is_global() { None } else { self.elsewhere(unit, look) };
        elsewhere.or_else(|| (!published).then_some(Shut::NotPublished))
    }

    fn elsewhere(&mut self, unit: &Unit, look: Look<'_>) -> Option<Shut> {
        let states = look.snapshot.states_of(unit.name.as_str());
        let mut machines = states.map(|state| &state.machine);
        if let Some(machine) = machines.find(|machine| **machine != self.machine) {
            let (shaken, lost) = (false, None);
            let seen = || Other { machine: machine.clone(), shaken, lost };
            let other = self.others.entry(unit.name.clone()).or_insert_with(seen);
            if other.machine != *machine || other.lost.is_some() {
                *other = seen();
            }
            return Some(Shut::Elsewhere(machine.clone()));
        }
        let other = self.others.get_mut(&unit.name)?;
        let gone = other.shaken || look.snapshot.machine(other.machine.as_str()).is_none();
        if other.lost.is_none() && gone {
            other.lost = Some(look.now);
        }
        let (machine, lost) = (other.machine.clone(), other.lost);
        let ended = lost.map(|lost| must_have_ended(unit, self.ttl).map(|it| lost.after(it)));
        match ended {
            Some(ended) if ended.is_none_or(|ended| look.now < ended) => {
                Some(Shut::MayRun(machine, ended))
            }
            _ => {
                self.others.remove(&unit.name);
                None
            }
        }
    }
}

impl Shut {
    /// When it may be over without anything else happening.
    pub(crate) fn until(&self) -> Option<Timestamp> {
        match self {
            Self::MayRun(_, until) => *until,
            _ => None,
        }
    }
}

impl fmt::Display for Shut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnPartition=stop keeps it from being started ")?;
        match self {
            Self::CutOff => f.write_str("while the cluster cannot be reached"),
            Self::NotPublished => f.write_str("until the cluster knows that it may run here"),
            Self::Elsewhere(machine) => write!(f, "until it has ended on {}", machine.short()),
            Self::MayRun(machine, Some(_)) => {
                write!(f, "until it must have ended on {}, which was lost", machine.short())
            }
            Self::MayRun(machine, None) => {
                write!(f, "until {} is back, where nothing limits its stop", machine.short())
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

    /// A machine `here`, which is present, and what it sees.
    struct Seen {
        gate: Gate,
        snapshot: Snapshot,
        machines: BTreeSet<MachineId>,
        standing: Option<Standing>,
    }

    impl Seen {
        fn new() -> Self {
            let mut snapshot = Snapshot::default();
            snapshot.revision = Revision(9);
            snapshot.put_machine(Machine::new(id("here")));
            snapshot.put_machine(Machine::new(id("there")));
            let standing = Some(Standing { until: at(1000), joined: Revision(5) });
            Self { gate: Gate::new(id("here"), TTL), snapshot, machines: BTreeSet::new(), standing }
        }

        fn publish(&mut self, machine: &str) {
            self.snapshot.put_state(UnitState {
                unit: "a.service".parse().unwrap(),
                machine: id(machine),
                hash: unit("").hash(),
                asked: TargetState::Loaded,
                epoch: Epoch(1),
                generation: Generation(0),
                systemd: SystemdState::loaded(),
                problem: None,
            });
        }

        fn told_of(&mut self, unit: &Unit, now: u64) -> String {
            let machines = std::mem::take(&mut self.machines);
            let look = Look {
                snapshot: &self.snapshot,
                machines: Some(&machines),
                gaps: 0,
                now: at(now),
                standing: self.standing,
            };
            self.gate.notice(look);
            let shut = self.gate.shut(unit, look);
            shut.map_or_else(|| "open".to_owned(), |shut| shut.to_string().split_off(45))
        }

        fn told(&mut self, now: u64) -> String {
            self.told_of(&unit("OnPartition=stop\n"), now)
        }
    }

    #[test]
    fn a_unit_starts_once_its_state_is_published_and_the_machine_is_present() {
        let mut seen = Seen::new();
        assert_eq!(seen.told(1), "until the cluster knows that it may run here");
        seen.publish("here");
        assert_eq!(seen.told(2), "open");
        assert_eq!(seen.told(1000), "while the cluster cannot be reached");
        seen.standing = Some(Standing { until: at(2000), joined: Revision(10) });
        assert_eq!(seen.told(1001), "until the cluster knows that it may run here");
        seen.snapshot.revision = Revision(10);
        assert_eq!(seen.told(1002), "open");
        seen.standing = None;
        assert_eq!(seen.told(1003), "while the cluster cannot be reached");
    }

    #[test]
    fn a_unit_waits_for_another_machine_to_say_that_it_has_ended() {
        let mut seen = Seen::new();
        seen.publish("here");
        seen.publish("there");
        assert_eq!(seen.told(1), "until it has ended on there");
        assert_eq!(seen.told_of(&unit("Global=true\nOnPartition=stop\n"), 1), "open");
        seen.snapshot.remove_state("a.service", "there");
        assert_eq!(seen.told(2), "open");
    }

    #[test]
    fn of_a_machine_that_was_lost_a_unit_waits_for_the_time_to_pass() {
        type Loss = fn(&mut Seen);
        let gone: Loss = |seen| seen.snapshot.remove_machine("there");
        // Its presence is a new one, which has not published anything yet.
        let anew: Loss = |seen| seen.machines = [id("there")].into();
        for loss in [gone, anew] {
            let mut seen = Seen::new();
            seen.publish("here");
            seen.publish("there");
            assert_eq!(seen.told(1), "until it has ended on there");
            seen.snapshot.remove_state("a.service", "there");
            loss(&mut seen);
            let waits = "until it must have ended on there, which was lost";
            assert_eq!((seen.told(2).as_str(), seen.told(17).as_str()), (waits, waits));
            assert_eq!(seen.told(18), "open");
        }
    }
}
