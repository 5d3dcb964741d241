//! What a running fleet-init answers.

use std::collections::BTreeSet;
use std::error::Error;
use std::sync::Arc;

use async_trait::async_trait;
use fleet_agent::remote::{RequestHandler, ResponseSender, ServiceManagerHandler};
use fleet_agent::{
    InitDryRun, InitSnapshot, InitSupervisor, JournalQuery, NativeManager, SupervisorError,
    trim_heap,
};
use fleet_core::Timestamp;
use fleet_core::graph::{GraphError, Name, ServiceType, Target};
use serde_json::Value;
use tokio::sync::Notify;

use super::asks::{Ask, Given, Goals, Head, OfInit, Refusal, Source};
use super::origin::{Origin, ToRun};
use super::{files, foretold, shown};
use crate::chain;
use crate::fleetctl::error::CliError;
use crate::fleetctl::names::nearest;

/// Maximum number of units per item of a response.
const UNITS: usize = 64;

/// A fleet-init that runs the units of fleetd.
pub(super) struct ForFleet {
    pub(super) units: ServiceManagerHandler,
    pub(super) manager: Arc<NativeManager>,
    /// Notified at the end of each request.
    pub(super) asked: Arc<Notify>,
}

#[async_trait]
impl RequestHandler for ForFleet {
    async fn handle(&self, ask: Value, response: &mut ResponseSender) -> Result<(), Value> {
        let _told = OnEnd(&self.asked);
        self.carry_out(ask, response).await
    }
}

/// Notifies about the end of a request, also when its client is gone.
struct OnEnd<'a>(&'a Notify);

impl Drop for OnEnd<'_> {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

impl ForFleet {
    async fn carry_out(&self, ask: Value, response: &mut ResponseSender) -> Result<(), Value> {
        if ask.get("init").is_none() {
            return self.units.handle(ask, response).await;
        }
        match serde_json::from_value(ask) {
            Ok(OfInit { init: Ask::Status }) => {
                let snapshot = self.manager.snapshot().await;
                let snapshot = snapshot.map_err(|error| to_value(&because(&error)))?;
                tell_units(&shown::head_for_fleet(&snapshot), &snapshot, response).await;
                Ok(())
            }
            _ => Err(to_value(&Refusal::RunsForFleet)),
        }
    }
}

/// A fleet-init that runs the units of files.
pub(super) struct OfFiles {
    pub(super) supervisor: Arc<InitSupervisor>,
    pub(super) origin: Origin,
}

impl OfFiles {
    /// Reads the files again. If anything is wrong with them, nothing changes.
    ///
    /// # Errors
    ///
    /// Everything that is wrong.
    pub(super) async fn reload(&self) -> Result<(), CliError> {
        let read = self.origin.read_again().await?;
        let done = self.supervisor.reload(read.graph.clone(), &read.settings).await;
        done.map_err(not_instead)?;
        self.origin.keep(&read);
        drop(read);
        trim_heap();
        Ok(())
    }

    /// Responds with the goal and the extra targets.
    async fn tell_goals(&self, response: &mut ResponseSender) -> Result<(), Refusal> {
        let wanted = self.supervisor.snapshot().await.map_err(|error| because(&error))?.desired;
        let goal = wanted.goal.as_ref().map(ToString::to_string);
        let beside = wanted.extra_targets.iter().map(ToString::to_string).collect();
        response.send(&Goals { goal, beside }).await;
        Ok(())
    }

    /// Responds with a plan: for other files, another goal, or a reload of its own files.
    async fn plan(
        &self,
        given: Given,
        goal: Option<String>,
        beside: &[String],
        response: &mut ResponseSender,
    ) -> Result<(), Refusal> {
        let goal = goal.as_deref().map(target).transpose()?;
        let beside: BTreeSet<Target> =
            beside.iter().map(|it| target(it)).collect::<Result<_, _>>()?;
        let wants = goal.is_some() || !beside.is_empty();
        let is_own = matches!(given, Given::Own);
        let files = match given {
            Given::Own if wants => None,
            Given::Own => Some(self.origin.read_again().await),
            Given::These(sources) => {
                let files = sources.into_iter().map(Source::into_file).collect();
                Some(ToRun::of(files::of(files), goal.as_ref().or(self.origin.goal.as_ref())))
            }
        };
        let files = files.transpose().map_err(|error| of(&error))?;
        let files = files.map(|read| (read.graph, read.settings));
        let tried = self
            .supervisor
            .dry_run(InitDryRun { files, goal: goal.clone(), extra_targets: beside })
            .await;
        let tried = tried.map_err(|error| match is_own && wants {
            true => not_wanted(&error, goal.as_ref()),
            false => of(&not_instead(error)),
        })?;
        let (goals, rows) = foretold::foretell(Some(&tried.before), tried.after, tried.now);
        response.send(&goals).await;
        for part in rows.chunks(UNITS) {
            response.send(&part).await;
        }
        Ok(())
    }

    async fn carry_out(&self, ask: Ask, response: &mut ResponseSender) -> Result<(), Refusal> {
        match ask {
            Ask::Status => {
                let snapshot = self.supervisor.snapshot().await.map_err(|error| because(&error))?;
                tell_units(&shown::head(&snapshot), &snapshot, response).await;
            }
            Ask::SetTarget { goal, beside } => {
                let goal = target(&goal)?;
                let beside: Result<BTreeSet<Target>, Refusal> =
                    beside.iter().map(|it| target(it)).collect();
                let done = self.supervisor.set_goal(Some(goal.clone()), beside?).await;
                done.map_err(|error| not_wanted(&error, Some(&goal)))?;
                self.tell_goals(response).await?;
            }
            Ask::Reload => {
                self.reload().await.map_err(|error| of(&error))?;
                self.tell_goals(response).await?;
            }
            Ask::Plan { files, goal, beside } => self.plan(files, goal, &beside, response).await?,
            Ask::ReloadUnit { unit } => {
                let target = self.target_of(&unit).await?;
                let done = self.supervisor.reload_unit(&target).await;
                done.map_err(|error| because(&error))?;
            }
            Ask::Restart { unit } => {
                let target = self.target_of(&unit).await?;
                let restarted =
                    self.supervisor.restart(&target).await.map_err(|error| because(&error))?;
                response.send(&restarted).await;
            }
            Ask::ResetFailed { unit } => {
                let target = self.target_of(&unit).await?;
                let reset =
                    self.supervisor.reset_failed(&target).await.map_err(|error| because(&error))?;
                response.send(&reset).await;
            }
            Ask::Logs { unit, lines, since, follow } => {
                let name = self.unit_of(&unit).await?;
                let query =
                    JournalQuery { lines, since: since.map(Timestamp::from_millis), follow };
                match self.supervisor.journal(&name, query) {
                    Ok(journal) => {
                        response.send_journal(journal).await.map_err(|error| because(&error))?;
                    }
                    Err(error) => return Err(self.no_log(&name, &error).await),
                }
            }
        }
        Ok(())
    }

    /// Returns a target of the unit with that name, or the target with that name. A unit that is in
    /// no file any more is addressed by its name.
    async fn target_of(&self, name: &str) -> Result<Target, Refusal> {
        let snapshot = self.supervisor.snapshot().await.map_err(|error| because(&error))?;
        let unit = snapshot.units.iter().find(|unit| unit.unit.as_str() == name);
        let by_unit = unit.and_then(|unit| unit.provides.first().cloned());
        let by_target = || {
            let mut all = snapshot.units.iter().flat_map(|unit| &unit.provides);
            all.find(|target| target.as_str() == name).cloned()
        };
        let by_name = || unit.map(|unit| Target::from(&unit.unit));
        by_unit.or_else(by_target).or_else(by_name).ok_or_else(|| {
            let problem = format!("there is no unit or target {name}");
            let mut help = did_you_mean(&snapshot, name);
            help.push("`fleet-init status -o name` lists the units".to_owned());
            Refusal::Because { problem, help }
        })
    }

    /// Returns the unit with that name, or the provider of that target. A unit that is in no file
    /// any more may still have a log.
    async fn unit_of(&self, text: &str) -> Result<Name, Refusal> {
        let name = Name::new(text).map_err(|error| because(&error))?;
        let snapshot = self.supervisor.snapshot().await.map_err(|error| because(&error))?;
        if snapshot.units.iter().any(|unit| unit.unit == name) {
            return Ok(name);
        }
        let mut units = snapshot.units.into_iter();
        let provider = units.find(|unit| unit.provides.iter().any(|it| it.as_str() == text));
        Ok(provider.map_or(name, |unit| unit.unit))
    }

    /// Returns the reason why a unit has no log.
    async fn no_log(&self, name: &Name, error: &SupervisorError) -> Refusal {
        let Refusal::Because { problem, mut help } = because(error) else { return because(error) };
        if matches!(error, SupervisorError::NoLog { .. })
            && let Ok(snapshot) = self.supervisor.snapshot().await
        {
            match snapshot.planner.graph().unit(name) {
                Some(unit) if unit.kind == ServiceType::Virtual => {
                    let problem = format!("{name} is virtual: it runs nothing, and writes nothing");
                    return Refusal::Because { problem, help };
                }
                Some(_) => {}
                None => help = did_you_mean(&snapshot, name.as_str()),
            }
            help.push("`fleet-init status` shows the units; what never ran has no log".to_owned());
        }
        Refusal::Because { problem, help }
    }
}

#[async_trait]
impl RequestHandler for OfFiles {
    async fn handle(&self, ask: Value, response: &mut ResponseSender) -> Result<(), Value> {
        if ServiceManagerHandler::accepts(&ask) {
            return Err(ServiceManagerHandler::unavailable(
                "this fleet-init runs the units of files: start another one with --fleet and a \
                 socket and a --state-dir of its own",
            ));
        }
        let ask: OfInit =
            serde_json::from_value(ask).map_err(|error| to_value(&because(&error)))?;
        let done = self.carry_out(ask.init, response).await;
        trim_heap();
        done.map_err(|refusal| to_value(&refusal))
    }
}

async fn tell_units(head: &Head, snapshot: &InitSnapshot, response: &mut ResponseSender) {
    response.send(head).await;
    for part in snapshot.units.chunks(UNITS) {
        let unit = |status| shown::unit(status, &snapshot.planner, snapshot.now);
        response.send(&part.iter().map(unit).collect::<Vec<_>>()).await;
    }
}

fn not_instead(error: SupervisorError) -> CliError {
    let error = CliError::failed("the units cannot be run instead").because(error);
    error.help("choose a goal that both have by `fleet-init set-target GOAL` first")
}

/// Returns why targets cannot be chosen. An error about an extra target does not blame the goal.
fn not_wanted(error: &SupervisorError, goal: Option<&Target>) -> Refusal {
    match error {
        SupervisorError::InvalidTargets(GraphError::NoGoal { goal: missing, near })
            if Some(missing) != goal =>
        {
            let near = near.as_ref().map(|near| format!("did you mean {near}?"));
            Refusal::Because {
                problem: format!("no unit provides {missing}, to be wanted beside the goal"),
                help: near.into_iter().collect(),
            }
        }
        _ => because(error),
    }
}

fn target(text: &str) -> Result<Target, Refusal> {
    Target::new(text).map_err(|error| because(&error))
}

fn because(error: &dyn Error) -> Refusal {
    Refusal::Because {
        problem: chain::in_one_line(&error.to_string(), error.source()),
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

fn of(error: &CliError) -> Refusal {
    let (problem, help) = error.parts();
    Refusal::Because { problem, help }
}

fn to_value(refusal: &Refusal) -> Value {
    // JSON null is not understood by the client, and therefore also a refusal.
    serde_json::to_value(refusal).unwrap_or(Value::Null)
}
