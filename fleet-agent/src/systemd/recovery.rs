//! Resolves pending requests: requests of an earlier daemon, and those whose response was lost.
//!
//! Adopts no processes, because systemd keeps the units of an earlier daemon running. The records
//! of these units (`record.rs`) are read when the service manager is opened (`manager.rs`).
//!
//! Until its pending request is resolved, the record of a unit does not show what systemd was asked
//! to do. The agent would then neither start a unit that a lost request has stopped, nor stop a
//! unit that a lost request has started.

use std::collections::BTreeMap;

use fleet_unitfile::UnitName;

use super::bus::{Bus, CallError, States};
use super::context::{ManagerContext, UnitLock};
use super::record::PendingOrder;
use super::refresh::refresh_details;

/// The units with a pending request that no call is making. They stay locked until their requests
/// are resolved.
pub(crate) struct PendingRequests<'a> {
    units: Vec<(UnitName, UnitLock<'a>)>,
}

impl<'a> PendingRequests<'a> {
    /// Locks the units. Skips each unit with a call in progress, because that call records the
    /// outcome.
    pub(crate) fn lock(context: &'a ManagerContext) -> Self {
        let lock = |unit: UnitName| {
            let turn = context.locks.try_lock_unit(&unit)?;
            let is_orphaned = context.units.is_pending(&unit) && !context.jobs.is_awaited(&unit);
            is_orphaned.then_some((unit, turn))
        };
        Self { units: context.units.pending().into_iter().filter_map(lock).collect() }
    }

    /// Resolves the requests by the states of the units, which were queried under the locks.
    pub(crate) async fn resolve(
        self,
        context: &ManagerContext,
        bus: &Bus,
        states: &BTreeMap<&UnitName, &States>,
    ) -> Result<(), CallError> {
        for (unit, _turn) in &self.units {
            let Some(record) = context.units.record(unit) else { continue };
            if let Some(PendingOrder::Start(_)) = record.order {
                // A refresh omits the details of an idle unit, which may have run meanwhile.
                refresh_details(context, bus, unit).await?;
            }
            if let Some(states) = states.get(unit) {
                resolve(context, unit, states);
            }
        }
        Ok(())
    }
}

/// Resolves the pending request of a unit.
fn resolve(context: &ManagerContext, unit: &UnitName, states: &States) {
    let Some(record) = context.units.record(unit) else { return };
    let observed = context.units.observed(unit);
    let Some(resolved) = record.resolve(states, observed.invocation()) else { return };
    tracing::info!(
        %unit,
        pending = ?record.order,
        requested = %resolved.known.requested,
        "found out whether systemd has received a request"
    );
    if let Err(error) = context.remember_received(unit, resolved) {
        tracing::warn!(
            %unit,
            error = &error as &dyn std::error::Error,
            "cannot save whether systemd has received a request: this program asks systemd again \
             after it restarts"
        );
    }
}

#[cfg(test)]
mod tests {
    use fleet_core::{Epoch, Generation, TargetState};
    use fleet_unitfile::UnitFile;
    use tempfile::TempDir;

    use super::super::record::Record;
    use super::*;
    use crate::ServiceError;
    use crate::systemd::SystemdConfig;

    const TEXT: &str = "[Service]\nExecStart=/bin/true\n";

    struct Bench {
        context: ManagerContext,
        unit: UnitName,
        directory: TempDir,
    }

    impl Bench {
        /// A launched unit, without a connection to systemd.
        fn new() -> Self {
            let directory = tempfile::tempdir().expect("a directory can be made");
            let folder = directory.path().to_owned();
            let context =
                ManagerContext::new(SystemdConfig { directory: folder, ..SystemdConfig::system() });
            let unit: UnitName = "a.service".parse().expect("it is a name");
            let hash = UnitFile::parse(TEXT).expect("it parses").hash();
            context.files.write_text(&unit, TEXT.as_bytes()).expect("it can be written");
            let record = Record::new(hash, Epoch(3)).launched(Generation(2));
            context.remember(&unit, record).expect("it can be stored");
            Self { context, unit, directory }
        }

        fn record(&self) -> Record {
            self.context.units.record(&self.unit).expect("the unit is known")
        }

        /// Reads the record as the next daemon does.
        fn stored(&self) -> Record {
            let units = self.context.files.read().expect("it can be read");
            units.into_iter().next().expect("the unit is stored").1
        }

        /// Makes writes of the record fail, or succeed again.
        fn break_disk(&self, broken: bool) {
            let aside = self.directory.path().join("a.service.json.new");
            let done = if broken { std::fs::create_dir(aside) } else { std::fs::remove_dir(aside) };
            done.expect("the directory can be changed");
        }

        fn resolve(&self, active: &str) {
            let [name, load, active, sub, job] =
                ["a.service", "loaded", active, "", ""].map(str::to_owned);
            resolve(&self.context, &self.unit, &States { name, load, active, sub, job });
        }
    }

    /// Regression: a daemon that ended after a stop was requested left a unit that counted as
    /// launched, and was never started again.
    #[test]
    fn stop_is_stored_before_it_is_requested() {
        for (active, requested) in
            [("inactive", TargetState::Loaded), ("active", TargetState::Launched)]
        {
            let bench = Bench::new();
            bench.context.remember_stop(&bench.unit, &bench.record());
            let stored = bench.stored();
            assert_eq!(stored.order, Some(PendingOrder::Stop), "the next daemon knows of it");
            assert_eq!(stored.known.requested, TargetState::Launched, "it may not be received");
            bench.resolve(active);
            assert_eq!(bench.record().known.requested, requested, "{active}");
            assert_eq!(bench.stored(), bench.record(), "{active}");
        }
    }

    /// Regression: after a stop on a full disk, the unit still counted as launched, and a start
    /// reported success without starting it.
    #[test]
    fn stop_on_full_disk_leaves_no_launched_record() {
        let bench = Bench::new();
        bench.break_disk(true);
        let record = bench.record();
        bench.context.remember_stop(&bench.unit, &record);
        assert_eq!(bench.stored().known.requested, TargetState::Inactive, "it is loaded again");
        let stored = bench.context.remember_received(&bench.unit, record.stopped());
        assert!(matches!(stored, Err(ServiceError::Io { .. })), "{stored:?}");
        assert_eq!(bench.record().known.requested, TargetState::Loaded, "a start is not skipped");
        assert_eq!(bench.record().order, None);
        bench.break_disk(false);
        let launched = bench.record().launched(Generation(3));
        bench.context.remember_received(&bench.unit, launched).expect("it can be stored");
        assert_eq!(bench.stored(), bench.record());
    }

    #[test]
    fn only_pending_requests_without_a_call_are_resolved() {
        let bench = Bench::new();
        let locked = |bench: &Bench| PendingRequests::lock(&bench.context).units.len();
        assert_eq!(locked(&bench), 0, "nothing is pending");
        bench.context.remember_stop(&bench.unit, &bench.record());
        assert_eq!(locked(&bench), 1);
        let call = bench.context.locks.try_lock_unit(&bench.unit).expect("it is free");
        assert_eq!(locked(&bench), 0, "a call holds the lock");
        drop(call);
        let end = bench.context.jobs.begin_call(&bench.unit).wait_for("/job/1".to_owned());
        assert_eq!(locked(&bench), 0, "a call waits for its job");
        drop(end);
        assert_eq!(locked(&bench), 1);
    }
}
