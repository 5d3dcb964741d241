//! The beginning and end of a run, and its stored state.

use std::io;

use fleet_core::graph::{InitUnit, ServiceType};

use super::RunDriver;
use crate::native::linux::identity::look_up;
use crate::native::run::conditions::check_conditions;
use crate::native::state::unit_directory::RunRecord;

impl RunDriver {
    pub(crate) fn begin_run(&mut self) {
        self.has_run = true;
        self.remove_group();
        self.invocation = new_invocation();
        self.group = self.context.group(&self.unit, &self.invocation);
        self.leaders.clear();
        self.problem = None;
        self.owner = pid_file_owner(&self.spec);
        self.limit_log(self.file_size_limit());
        self.end_log_line();
        self.log_from = self.log.end().unwrap_or(0);
        self.notify = None;
        let in_stanza = !self.directory.has_unit_file();
        if let Err((why, is_failure)) = check_conditions(&self.spec.run.conditions, in_stanza) {
            self.problem = Some(why);
            self.service.on_condition(is_failure, self.context.now());
        }
    }

    /// Releases the resources of a run that is over.
    fn end_run(&mut self) {
        self.notify = None;
        if let ServiceType::BackgroundPidfile { path } = &self.spec.kind {
            // The file is stale now. Most services remove it themselves.
            drop(std::fs::remove_file(path));
        }
        self.remove_group();
    }

    pub(crate) fn update_active(&mut self) {
        let active = !self.service.is_idle();
        if active != self.active {
            self.active = active;
            if !active {
                self.end_run();
            }
        }
    }

    pub(crate) fn save(&mut self) -> io::Result<()> {
        let run = RunRecord {
            requested: self.requested,
            invocation: self.invocation.clone(),
            leaders: self.leaders.clone(),
            log_from: self.log_from,
            group: self.group.clone(),
            run_state: self.service.run_state().clone(),
            timer: None,
        };
        if !self.has_run && self.written.is_none() || self.written.as_ref() == Some(&run) {
            return Ok(());
        }
        self.directory.write_run(&run)?;
        self.written = Some(run);
        Ok(())
    }

    /// Returns the file size limit of the unit's processes.
    pub(crate) fn file_size_limit(&self) -> Option<u64> {
        self.spec.run.exec_environment.limits.get("fsize").and_then(|&(soft, _)| soft)
    }

    pub(crate) fn limit_log(&self, longest: Option<u64>) {
        if let Err(error) = self.log.limit_length(longest) {
            self.warn(&error, "cannot keep a unit's log below the unit's file size limit");
        }
    }

    /// Ends the last line of the log, which the previous process may have left without a newline.
    pub(crate) fn end_log_line(&self) {
        if let Err(error) = self.log.end_line() {
            self.warn(&error, "cannot end the last line of a unit's log");
        }
    }

    /// Removes the control group of a run that is over. The group stays if it still has processes,
    /// which is possible because `KillMode=` may spare some.
    fn remove_group(&self) {
        let Some(group) = &self.group else { return };
        if let Err(error) = group.remove() {
            let (unit, group) = (&self.unit, group.path().display());
            tracing::warn!(%error, %unit, %group, "cannot remove the control group of a unit");
        }
    }
}

/// Returns the user, besides root and our own user, that may own the pid file of a unit. Returns
/// `None` if the account of the unit cannot be looked up.
pub(crate) fn pid_file_owner(unit: &InitUnit) -> Option<u32> {
    match unit.kind {
        ServiceType::BackgroundPidfile { .. } => {
            let identity = look_up(&unit.run.exec_environment).ok()?;
            Some(identity.uid.unwrap_or(0))
        }
        _ => Some(0),
    }
}

/// Returns a random invocation ID in systemd's format.
fn new_invocation() -> String {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the kernel gives random bytes to every process");
    format!("{:032x}", u128::from_ne_bytes(bytes))
}
