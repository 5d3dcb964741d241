//! Serves requests to a running fleet-init.

use std::collections::BTreeSet;
use std::error::Error;
use std::sync::Arc;

use async_trait::async_trait;
use fleet_agent::journal::Journal;
use fleet_agent::native::{InitDryRun, InitSnapshot, InitSupervisor, SupervisorError};
use fleet_agent::remote::{
    InitFileWire, InitRequest, ManagerRequest, Request, RequestError, RequestHandler,
    ResponseSender, ServiceManagerHandler,
};
use fleet_agent::{NativeManager, ServiceError};
use fleet_core::graph::format::InitFile;
use fleet_core::graph::{GraphError, Name, ServiceType, Target};
use fleet_core::journal::JournalQuery;

use super::client::{StatusHeader, Targets};
use super::files;
use super::sources::{Definitions, Sources};
use crate::fleet_init::{plan, status};
use crate::ui::error;
use crate::ui::error::CliError;
use crate::ui::names::nearest;

/// A fleet-init that runs the units of fleetd.
pub(super) struct FleetServer {
    pub(super) units: ServiceManagerHandler,
    pub(super) manager: Arc<NativeManager>,
}

#[async_trait]
impl RequestHandler for FleetServer {
    async fn handle(
        &self,
        request: Request,
        response: &mut ResponseSender,
    ) -> Result<(), RequestError> {
        match request {
            Request::Init(InitRequest::Status) => {
                let snapshot = self.manager.snapshot().await.map_err(|error| because(&error))?;
                let header = status::header_for_fleet(&snapshot);
                send_units(header, &snapshot, response).await;
                Ok(())
            }
            request => self.units.handle(request, response).await,
        }
    }
}

/// A fleet-init that runs the units of files.
pub(super) struct FilesServer {
    pub(super) supervisor: Arc<InitSupervisor>,
    pub(super) sources: Sources,
}

impl FilesServer {
    /// Reads the files again. If they have errors, nothing changes.
    ///
    /// # Errors
    ///
    /// The files have errors; the error lists all of them.
    pub(super) async fn reload(&self) -> Result<(), CliError> {
        let read = self.sources.reread().await?;
        let done = self.supervisor.reload(read.graph.clone(), &read.settings).await;
        done.map_err(cannot_replace)?;
        self.sources.store(&read);
        drop(read);
        Ok(())
    }

    /// Responds with the goal and the extra targets.
    async fn send_targets(&self, response: &mut ResponseSender) -> Result<(), RequestError> {
        let wanted = self.supervisor.snapshot().await.map_err(|error| because(&error))?.desired;
        let goal = wanted.goal.as_ref().map(ToString::to_string);
        let extra_targets = wanted.extra_targets.iter().map(ToString::to_string).collect();
        response.send(&Targets { goal, extra_targets }).await;
        Ok(())
    }

    /// Sends a plan for other files, for another goal, or for a reload of this fleet-init's own
    /// files.
    async fn plan(
        &self,
        given: Option<Vec<InitFileWire>>,
        goal: Option<String>,
        extra_targets: &[String],
        response: &mut ResponseSender,
    ) -> Result<(), RequestError> {
        let goal = goal.as_deref().map(target).transpose()?;
        let extra_targets: BTreeSet<Target> =
            extra_targets.iter().map(|it| target(it)).collect::<Result<_, _>>()?;
        let wants = goal.is_some() || !extra_targets.is_empty();
        let is_own = given.is_none();
        let files = match given {
            None if wants => None,
            None => Some(self.sources.reread().await),
            Some(sources) => {
                let files = sources.into_iter().map(InitFile::from).collect();
                Some(Definitions::of(
                    files::of(files),
                    goal.as_ref().or(self.sources.goal.as_ref()),
                ))
            }
        };
        let files = files.transpose().map_err(|error| of(&error))?;
        let files = files.map(|read| (read.graph, read.settings));
        let tried =
            self.supervisor.dry_run(InitDryRun::new(files, goal.clone(), extra_targets)).await;
        let tried = tried.map_err(|error| match is_own && wants {
            true => invalid_targets(&error, goal.as_ref()),
            false => of(&cannot_replace(error)),
        })?;
        let (goals, rows) = plan::describe_plan(Some(&tried.before), tried.after, tried.now);
        response.send(&(goals, rows)).await;
        Ok(())
    }

    async fn serve(
        &self,
        request: InitRequest,
        response: &mut ResponseSender,
    ) -> Result<(), RequestError> {
        let refused = |error: SupervisorError| because(&error);
        match request {
            InitRequest::Status => {
                let snapshot = self.supervisor.snapshot().await.map_err(refused)?;
                send_units(status::header(&snapshot), &snapshot, response).await;
            }
            InitRequest::SetTarget { goal, extra_targets } => {
                let goal = target(&goal)?;
                let extra_targets: Result<BTreeSet<Target>, RequestError> =
                    extra_targets.iter().map(|it| target(it)).collect();
                let done = self.supervisor.set_goal(Some(goal.clone()), extra_targets?).await;
                done.map_err(|error| invalid_targets(&error, Some(&goal)))?;
                self.send_targets(response).await?;
            }
            InitRequest::Reload => {
                self.reload().await.map_err(|error| of(&error))?;
                self.send_targets(response).await?;
            }
            InitRequest::Plan { files, goal, extra_targets } => {
                self.plan(files, goal, &extra_targets, response).await?;
            }
            InitRequest::ReloadUnit { unit } => {
                let done = self.supervisor.reload_unit(&self.target_of(&unit).await?).await;
                done.map_err(refused)?;
            }
            InitRequest::Restart { unit } => {
                let restarted = self.supervisor.restart(&self.target_of(&unit).await?).await;
                response.send(&restarted.map_err(refused)?).await;
            }
            InitRequest::ResetFailed { unit } => {
                let reset = self.supervisor.reset_failed(&self.target_of(&unit).await?).await;
                response.send(&reset.map_err(refused)?).await;
            }
            InitRequest::Mask { unit } => {
                let masked = self.supervisor.mask(&self.target_of(&unit).await?).await;
                response.send(&masked.map_err(refused)?).await;
            }
            InitRequest::Unmask { unit } => {
                let unmasked = self.supervisor.unmask(&self.target_of(&unit).await?).await;
                response.send(&unmasked.map_err(refused)?).await;
            }
        }
        Ok(())
    }

    /// Returns a target by which the supervisor can identify a unit. `name` is the name of the unit
    /// or of a target that it provides; any other name is refused.
    ///
    /// A unit that is no longer in any file may provide no target. The result is then a target with
    /// the unit's own name.
    async fn target_of(&self, name: &str) -> Result<Target, RequestError> {
        let snapshot = self.supervisor.snapshot().await.map_err(|error| because(&error))?;
        let unit = snapshot.units.iter().find(|unit| unit.unit.as_str() == name);
        let by_unit = unit.and_then(|unit| unit.provides.first().cloned());
        let by_target = || {
            let mut all = snapshot.units.iter().flat_map(|unit| &unit.provides);
            all.find(|target| target.as_str() == name).cloned()
        };
        let by_name = || unit.map(|unit| Target::from(&unit.unit));
        by_unit.or_else(by_target).or_else(by_name).ok_or_else(|| {
            let problem = format!("no such unit or target: {name}");
            let mut help = did_you_mean(&snapshot, name);
            help.push("list the units with `fleet-init status -o name`".to_owned());
            RequestError::Problem { problem, help }
        })
    }

    /// Returns the name of a unit. `text` is that name, or a target that the unit provides.
    ///
    /// If no unit fits, returns `text` itself, because a unit that is no longer in any file may
    /// still have a log.
    async fn unit_of(&self, text: &str) -> Result<Name, RequestError> {
        let name = Name::new(text).map_err(|error| {
            RequestError::InvalidArgument(format!("invalid unit {text:?}: {error}"))
        })?;
        let snapshot = self.supervisor.snapshot().await.map_err(|error| because(&error))?;
        if snapshot.units.iter().any(|unit| unit.unit == name) {
            return Ok(name);
        }
        let mut units = snapshot.units.into_iter();
        let provider = units.find(|unit| unit.provides.iter().any(|it| it.as_str() == text));
        Ok(provider.map_or(name, |unit| unit.unit))
    }

    /// Returns the log of a unit. To follow a unit that has not run yet, waits for its first run.
    async fn journal(&self, name: &Name, query: &JournalQuery) -> Result<Journal, RequestError> {
        let mut changes = self.supervisor.changes();
        loop {
            changes.borrow_and_update();
            let error = match self.supervisor.journal(name, query) {
                Ok(journal) => return Ok(journal),
                Err(error) => error,
            };
            let waits = query.follow && self.may_get_log(name, &error).await;
            if !waits || changes.changed().await.is_err() {
                return Err(self.no_log(name, &error).await);
            }
        }
    }

    /// Returns whether a unit has no log because it has never run.
    async fn may_get_log(&self, name: &Name, error: &SupervisorError) -> bool {
        let snapshot = self.supervisor.snapshot().await;
        matches!(error, SupervisorError::NoLog { .. })
            && snapshot.is_ok_and(|snapshot| {
                let unit = snapshot.planner.graph().unit(name);
                unit.is_some_and(|unit| unit.kind != ServiceType::Virtual)
            })
    }

    /// Returns the reason why a unit has no log.
    async fn no_log(&self, name: &Name, error: &SupervisorError) -> RequestError {
        let RequestError::Problem { problem, mut help } = because(error) else {
            return because(error);
        };
        if matches!(error, SupervisorError::NoLog { .. })
            && let Ok(snapshot) = self.supervisor.snapshot().await
        {
            match snapshot.planner.graph().unit(name) {
                Some(unit) if unit.kind == ServiceType::Virtual => {
                    let problem = format!("{name} is virtual: it runs nothing and has no log");
                    return RequestError::Problem { problem, help };
                }
                Some(_) => {}
                None => help = did_you_mean(&snapshot, name.as_str()),
            }
            help.push(
                "`fleet-init status` shows the units; a unit that never ran has no log".to_owned(),
            );
        }
        RequestError::Problem { problem, help }
    }
}

#[async_trait]
impl RequestHandler for FilesServer {
    async fn handle(
        &self,
        request: Request,
        response: &mut ResponseSender,
    ) -> Result<(), RequestError> {
        match request {
            Request::Init(request) => self.serve(request, response).await,
            Request::Manager(ManagerRequest::Journal { unit, query }) => {
                let name = self.unit_of(&unit).await?;
                let journal = self.journal(&name, &query.into()).await?;
                response.send_journal(journal).await
            }
            Request::Manager(_) => Err(RequestError::Service(ServiceError::Unavailable(
                "the fleet-init at this socket runs the units of files, not those of fleetd: start \
                 another one with --fleet and its own --socket and --state-dir"
                    .to_owned(),
            ))),
        }
    }
}

async fn send_units(header: StatusHeader, snapshot: &InitSnapshot, response: &mut ResponseSender) {
    let unit = |status| status::unit(status, &snapshot.planner, snapshot.now);
    response.send(&(header, snapshot.units.iter().map(unit).collect::<Vec<_>>())).await;
}

fn cannot_replace(error: SupervisorError) -> CliError {
    let text = "cannot replace the running units by the units of the files";
    let error = CliError::failed(text).because(error);
    error.help(
        "first choose a goal that the running units and the files both provide: \
         `fleet-init set-target GOAL`",
    )
}

/// Returns the error for a goal or extra targets that cannot be chosen. If no unit provides one of
/// the extra targets, the error names that target instead of the goal.
fn invalid_targets(error: &SupervisorError, goal: Option<&Target>) -> RequestError {
    match error {
        SupervisorError::InvalidTargets(GraphError::NoGoal { goal: missing, near })
            if Some(missing) != goal =>
        {
            let near = near.as_ref().map(|near| format!("did you mean {near}?"));
            RequestError::Problem {
                problem: format!("no unit provides the extra target {missing}"),
                help: near.into_iter().collect(),
            }
        }
        _ => because(error),
    }
}

fn target(text: &str) -> Result<Target, RequestError> {
    Target::new(text).map_err(|error| because(&error))
}

fn because(error: &dyn Error) -> RequestError {
    RequestError::Problem {
        problem: error::in_one_line(&error.to_string(), error.source()),
        help: vec![],
    }
}

/// Suggests a unit or target with a similar name.
fn did_you_mean(snapshot: &InitSnapshot, name: &str) -> Vec<String> {
    let targets = snapshot.units.iter().flat_map(|unit| &unit.provides).map(Target::as_str);
    let all = snapshot.units.iter().map(|unit| unit.unit.as_str()).chain(targets);
    let near = nearest(name, all.filter(|known| *known != name));
    near.map(|near| format!("did you mean {near}?")).into_iter().collect()
}

fn of(error: &CliError) -> RequestError {
    let (problem, help) = error.parts();
    RequestError::Problem { problem, help }
}
