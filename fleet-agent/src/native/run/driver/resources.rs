//! What a run has besides its processes: a dynamic user, descriptors, and files.

use fleet_core::graph::exec_options::DirectoryKind;
use fleet_core::graph::sandbox::SandboxSwitch;
use fleet_core::graph::{InitUnit, ServiceType};

use super::RunDriver;
use crate::native::linux::dynamic_user::DynamicIds;
use crate::native::linux::identity::look_up;
use crate::native::linux::process_info::LISTEN_PID;
use crate::native::run::descriptors::NamedDescriptor;
use crate::native::run::exec_resources::ExecResources;
use crate::native::run::machine::state::{Role, ServicePhase};
use crate::native::run::process::SpawnFailure;

impl RunDriver {
    /// Takes the dynamic user of the unit, unless the run has it already.
    pub(super) fn take_user(&mut self) -> Result<(), SpawnFailure> {
        let exec = &self.spec.run.exec_environment;
        let name = exec.user.as_ref().filter(|_| exec.sandbox.has(SandboxSwitch::DynamicUser));
        let Some(name) = name.filter(|_| self.dynamic.is_none()) else { return Ok(()) };
        // The owner of these directories need not change.
        let groups = DirectoryKind::ALL.map(|kind| (kind, exec.directories.of(kind)));
        let paths = groups.into_iter().flat_map(|(kind, group)| {
            let is_private = exec.directories.may_be_private(kind);
            let path = move |path: &String| match is_private {
                true => group.private_path(path).into(),
                false => path.into(),
            };
            let is_own = kind != DirectoryKind::Configuration;
            group.paths.iter().filter(move |_| is_own).map(move |(it, _)| path(it))
        });
        let users = &self.context.dynamic_users;
        let taken = users.take(name, exec.group.as_deref(), &paths.collect::<Vec<_>>());
        let taken = taken.map_err(|error| SpawnFailure::dynamic_user(name, &error))?;
        self.owner = pid_file_owner(&self.spec, Some(&taken));
        self.dynamic = Some(Box::new(taken));
        Ok(())
    }

    /// Returns the dynamic user of the run, if the unit still has one.
    pub(super) fn dynamic_ids(&self) -> Option<&DynamicIds> {
        let sandbox = &self.spec.run.exec_environment.sandbox;
        self.dynamic.as_deref().filter(|_| sandbox.has(SandboxSwitch::DynamicUser))
    }

    /// Continues to use the user of a run that an earlier daemon has started.
    pub(super) fn adopt_user(&mut self, dynamic: Option<Box<DynamicIds>>) {
        self.owner = pid_file_owner(&self.spec, dynamic.as_deref());
        self.dynamic = dynamic;
        if let Some(Err(error)) =
            self.dynamic.as_ref().map(|ids| self.context.dynamic_users.adopt(ids))
        {
            self.warn(&error, "cannot lock the number of a unit's dynamic user");
        }
    }

    /// Returns the places of the files that exist for this run.
    pub(super) fn resources(&self) -> ExecResources {
        ExecResources::new(&self.unit, &self.invocation, &self.context.credentials())
    }

    /// Releases the resources of a run that is over.
    pub(super) fn end_run(&mut self) {
        self.notify = None;
        if let ServiceType::BackgroundPidfile { path } = &self.spec.kind {
            // The file is stale now. Most services remove it themselves.
            drop(std::fs::remove_file(path));
        }
        let restarts = self.requested.should_run();
        self.resources().remove(&self.spec.run.exec_environment, restarts, |error, path| {
            let (unit, path) = (&self.unit, path.display());
            tracing::warn!(%error, %unit, %path, "cannot remove a file of a unit");
        });
        if let Some(ids) = self.dynamic.take() {
            self.context.dynamic_users.release(&ids);
        }
        self.remove_group();
    }

    /// Returns the descriptors that a command gets. Only the commands of `ExecStart=` get any.
    pub(super) fn descriptors(&self, role: Role) -> Vec<NamedDescriptor> {
        // The command of a forking service has the role of a control process.
        let is_start = self.service.run_state().phase == ServicePhase::Start;
        match role == Role::Main || is_start {
            true => self.context.descriptors.of_service(&self.unit),
            false => Vec::new(),
        }
    }
}

/// Returns the variables by which a command finds its descriptors.
pub(super) fn listen_variables(descriptors: &[NamedDescriptor]) -> Vec<(&'static str, String)> {
    if descriptors.is_empty() {
        return Vec::new();
    }
    let names: Vec<&str> = descriptors.iter().map(|it| it.name.as_str()).collect();
    vec![
        // The spawned process fills in its own process ID.
        (LISTEN_PID, String::new()),
        ("LISTEN_FDS", descriptors.len().to_string()),
        ("LISTEN_FDNAMES", names.join(":")),
    ]
}

/// Returns the user, besides root and our own user, that may own the pid file of a unit. Returns
/// `None` if the account of the unit cannot be looked up.
pub(crate) fn pid_file_owner(unit: &InitUnit, dynamic: Option<&DynamicIds>) -> Option<u32> {
    match unit.kind {
        ServiceType::BackgroundPidfile { .. } => {
            let identity = look_up(&unit.run.exec_environment, dynamic).ok()?;
            Some(identity.uid.unwrap_or(0))
        }
        _ => Some(0),
    }
}
