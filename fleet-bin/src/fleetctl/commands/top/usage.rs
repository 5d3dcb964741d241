//! Pure: the use of CPU and memory, from counters that machines report.

use std::collections::BTreeMap;

use fleet_core::Timestamp;
use fleet_http::wire;

/// Current use of a machine.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct MachineRate {
    /// Percent of one CPU.
    pub(super) cpu: Option<f64>,
    /// Load average.
    pub(super) load: Option<f64>,
    /// Memory in use.
    pub(super) memory_used: Option<f64>,
    /// Memory of the machine.
    pub(super) memory_total: Option<f64>,
}

/// Current use of a unit.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct UnitRate {
    /// Percent of one CPU.
    pub(super) cpu: Option<f64>,
    /// Memory in use.
    pub(super) memory: Option<f64>,
    /// Number of processes and threads.
    pub(super) tasks: Option<f64>,
}

/// Report of a machine, with its time by the clock of this program.
pub(super) type Sample = (Timestamp, wire::MachineUsage);

/// The last two samples of each machine, by ID. Their difference gives the use of CPU.
#[derive(Debug, Default)]
pub(super) struct Rates(BTreeMap<String, (Option<Sample>, Sample)>);

impl Rates {
    /// Records a sample.
    pub(super) fn add(&mut self, machine: &str, sample: Sample) {
        let former = self.0.remove(machine).map(|(_, last)| last);
        self.0.insert(machine.to_owned(), (former, sample));
    }

    /// Removes the samples of machines that have left.
    pub(super) fn retain(&mut self, present: &[wire::MachineEntity]) {
        self.0.retain(|id, _| present.iter().any(|machine| machine.id == *id));
    }

    /// Returns the current use of a machine.
    pub(super) fn machine(&self, id: &str) -> MachineRate {
        let Some((former, (at, last))) = self.0.get(id) else { return MachineRate::default() };
        let former = former.as_ref().map(|(at, former)| (*at, former.cpu_nanoseconds));
        let used = last.memory_total.zip(last.memory_available);
        MachineRate {
            cpu: percent(former, (*at, last.cpu_nanoseconds)),
            load: last.load_average.map(|[one, ..]| one),
            memory_used: used.map(|(total, free)| number(total.saturating_sub(free))),
            memory_total: last.memory_total.map(number),
        }
    }

    /// Returns the current use of a unit.
    pub(super) fn unit(&self, machine: &str, unit: &str) -> UnitRate {
        let known = self.0.get(machine);
        let Some((former, (at, last))) = known else { return UnitRate::default() };
        let Some(now) = find(last, unit) else { return UnitRate::default() };
        let former = former
            .as_ref()
            .and_then(|(at, former)| find(former, unit).map(|unit| (*at, unit.cpu_nanoseconds)));
        UnitRate {
            cpu: percent(former, (*at, now.cpu_nanoseconds)),
            memory: now.memory.map(number),
            tasks: now.tasks.map(number),
        }
    }
}

fn find<'a>(machine: &'a wire::MachineUsage, unit: &str) -> Option<&'a wire::UnitUsage> {
    machine.units.iter().find(|it| it.name == unit)
}

/// Returns the use of CPU between two readings of a counter, in percent of one CPU. Returns `None`
/// if a reading is missing, or if the counter began again.
fn percent(
    former: Option<(Timestamp, Option<u64>)>,
    last: (Timestamp, Option<u64>),
) -> Option<f64> {
    let ((former_at, former), (last_at, last)) = (former?, last);
    let (used, elapsed) = (last?.checked_sub(former?)?, last_at.since(former_at));
    (!elapsed.is_zero()).then(|| number(used) / 1e9 / elapsed.as_secs_f64() * 100.0)
}

#[expect(clippy::cast_precision_loss, reason = "amounts are shown with three digits")]
fn number(amount: u64) -> f64 {
    amount as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_is_the_difference_of_two_samples() {
        let sample = |seconds: u64, cpu: Option<u64>| {
            let mut usage = wire::MachineUsage::default();
            usage.cpu_nanoseconds = cpu.map(|cpu| cpu * 1_000_000_000);
            (usage.memory_total, usage.memory_available) = (Some(100), Some(30));
            usage.units = vec![wire::UnitUsage {
                name: "a.service".to_owned(),
                cpu_nanoseconds: cpu.map(|cpu| cpu * 500_000_000),
                ..wire::UnitUsage::default()
            }];
            (Timestamp::from_millis(seconds * 1000), usage)
        };
        for (samples, machine, unit) in [
            (&[] as &[_], None, None),
            (&[sample(1, Some(7))], None, None),
            (&[sample(1, Some(7)), sample(3, Some(10))], Some(150.0), Some(75.0)),
            (&[sample(1, Some(7)), sample(3, Some(10)), sample(4, Some(10))], Some(0.0), Some(0.0)),
            // The machine was restarted.
            (&[sample(1, Some(7)), sample(3, Some(1))], None, None),
            (&[sample(1, None), sample(3, Some(1))], None, None),
            (&[sample(1, Some(1)), sample(1, Some(1))], None, None),
        ] {
            let mut rates = Rates::default();
            samples.iter().for_each(|sample| rates.add("m1", sample.clone()));
            assert_eq!(rates.machine("m1").cpu, machine, "{samples:?}");
            assert_eq!(rates.unit("m1", "a.service").cpu, unit, "{samples:?}");
            assert_eq!(rates.unit("m1", "b.service"), UnitRate::default());
            let used = (!samples.is_empty()).then_some(70.0);
            assert_eq!(rates.machine("m1").memory_used, used);
        }
    }

    #[test]
    fn samples_of_machines_that_left_are_removed() {
        let mut rates = Rates::default();
        let mut usage = wire::MachineUsage::default();
        usage.memory_total = Some(1);
        rates.add("m1", (Timestamp::from_millis(1), usage));
        rates.retain(&[]);
        assert_eq!(rates.machine("m1"), MachineRate::default());
    }
}
