//! `apply`, `diff` and `plan`: compare unit files with the cluster, and apply them.
//!
//! fleetctl checks each file, and then the daemon checks all files together and writes them
//! together.

use std::collections::BTreeSet;

use fleet_core::TargetState;
use fleet_core::rollout::RolloutId;
use fleet_http::client::UnitUpload;
use fleet_http::wire;
use fleet_http::wire::RolloutOptions;
use fleet_unitfile::UnitName;
use serde::Serialize;

use super::history::named_revision;
use super::rollout;
use super::start::needs_restart;
use super::upload::{UploadStep, writes};
use crate::fleetctl::Context;
use crate::fleetctl::args::subcommands::{ApplyArgs, ChangeOptions, ManifestArgs, PlanArgs};
use crate::fleetctl::args::{VerificationArgs, WaitUntil};
use crate::fleetctl::concurrent::buffered;
use crate::fleetctl::follow::follow;
use crate::fleetctl::format::MachineLabels;
use crate::fleetctl::local::LocalFile;
use crate::fleetctl::manager_check::{CheckedUnit, check_managers};
use crate::fleetctl::manifest_diff::{UnitChange, UnitDiff, compare, read};
use crate::fleetctl::report::{Action, UnitOutcome, UnitReport};
use crate::fleetctl::resolve::{ContentAction, ContentSource};
use crate::fleetctl::select::{DesiredFilter, select};
use crate::fleetctl::session::WriteOutcome;
use crate::fleetctl::session::machines::MachineCache;
use crate::fleetctl::wait::{Goal, Observation};
use crate::fleetctl::wait_state::WaitTarget;
use crate::ui::error::{CliError, Exit};
use crate::ui::global_args::Format;
use crate::ui::output::Record;

/// Runs `apply`.
pub(super) async fn run(context: &mut Context, args: ApplyArgs) -> Result<Exit, CliError> {
    let mut diffs = gather(context, &args.manifest).await?;
    add_instances(context, &mut diffs).await?;
    carry_out(context, diffs, args.options).await
}

/// Prints the changes, and makes them unless this is a dry run.
pub(super) async fn carry_out(
    context: &mut Context,
    diffs: Vec<UnitDiff>,
    args: ChangeOptions,
) -> Result<Exit, CliError> {
    let is_unchanged = |unit: &&UnitDiff| unit.change() == UnitChange::None;
    let (unchanged, changed): (Vec<_>, Vec<_>) = diffs.iter().partition(is_unchanged);
    ask_managers(context, &changed, args.verification).await?;
    let Preview { revision, changes: plan } = preview_plan(context, &changed, &[]).await?;
    let machines = machines_of(context, &plan).await?;
    let rollout = rollout::options_for(&args.rollout, &changed);
    if let Some(options) = rollout.as_ref().filter(|_| rollout::has_members(&changed)) {
        context.progress.note(&rollout::note(options));
    }
    if args.dry_run {
        let changes = diffs.iter().map(PlannedChange::from_diff).chain(plan.iter().cloned());
        context
            .output
            .list(&changes.collect::<Vec<_>>(), &preview_text(&diffs, &plan, &machines))?;
        return Ok(verdict(context, changed.is_empty()));
    }
    context.output.for_people(&preview_text(&diffs, &plan, &machines))?;
    let is_changed = !changed.is_empty();
    let mut errors = report_unchanged(context, &unchanged).await?;
    if is_changed {
        let revision = args.if_unchanged.then_some(revision.as_str());
        let (targets, rollout) = send(context, diffs, args.until.state, rollout, revision).await?;
        let followed = match rollout {
            Some(id) => rollout::follow(context, id, rollout::wait_timeout(args.wait)).await,
            None => follow(context, targets, args.wait.into()).await,
        };
        errors.splice(0..0, followed.err());
    } else {
        context.output.finish()?;
    }
    CliError::combined(errors)?;
    Ok(if is_changed { Exit::Success } else { verdict(context, true) })
}

/// Reports the units without changes. Returns an error for each of them that has failed or has no
/// machine. Otherwise, applying the same files a second time would report success for such a unit.
async fn report_unchanged(
    context: &mut Context,
    unchanged: &[&UnitDiff],
) -> Result<Vec<CliError>, CliError> {
    let states = async |unit: &&UnitDiff| match unit.desired {
        // The leader repeats the attempts of a job.
        TargetState::Launched if unit.is_job_or_schedule() => Ok(Vec::new()),
        TargetState::Launched => context.session.states_of(&unit.name).await,
        _ => Ok(Vec::new()),
    };
    let states = CliError::all_or_none(buffered(unchanged.iter().map(states)).await)?;
    let mut errors = Vec::new();
    for (unit, states) in unchanged.iter().zip(states) {
        if let Some(job) = unit.ended_job().filter(|job| job.phase != "succeeded") {
            let (name, text) = (&unit.name, &job.text);
            let help = format!("\"fleetctl run {name}\" runs the job again");
            context.progress.note(&format!("{name} is unchanged, and {text}\nhelp: {help}"));
        }
        let missed = missed_goal(unit, &states);
        let outcome = if missed.is_some() { UnitOutcome::Failed } else { UnitOutcome::Unchanged };
        let observation =
            Observation { unit: unit.known.clone(), states, ..Observation::default() };
        let report = UnitReport::new(unit.name.as_str(), Action::Apply, outcome)
            .with_observation(&observation);
        context.output.record(&report, "")?;
        errors.extend(missed);
    }
    Ok(errors)
}

/// Returns the error for a unit that matches its file, but has failed, was stopped by hand, or has
/// no machine.
fn missed_goal(unit: &UnitDiff, states: &[wire::UnitStateEntity]) -> Option<CliError> {
    let (name, known) = (&unit.name, unit.known.as_ref()?);
    let is = |what: &str| CliError::failed(format!("{name} matches its file, but {what}"));
    if unit.ended_job().is_some() {
        return None;
    }
    if needs_restart(states) {
        let help = format!("see \"fleetctl logs {name}\"; \"fleetctl start {name}\" tries again");
        let has_failed = states.iter().any(|state| state.systemd_active_state == "failed");
        let what = if has_failed { "has failed" } else { "was stopped on its machine" };
        return Some(is(what).help(help));
    }
    let is_unplaced = unit.desired > TargetState::Inactive && known.machine_id.is_empty();
    (is_unplaced && !known.reason.is_empty()).then(|| {
        let help = format!("\"fleetctl explain {name}\" shows the verdict of each machine");
        is(&format!("has no machine: {}", known.reason)).help(help)
    })
}

/// Runs `diff`.
pub(super) async fn diff(context: &mut Context, args: &ManifestArgs) -> Result<Exit, CliError> {
    let (mut diffs, mut paths) = (Vec::new(), Vec::new());
    for path in &args.paths {
        match named_revision(&context.session, path).await? {
            Some((name, file)) => {
                let known = context.session.unit(&name).await?;
                let desired = known.as_ref().and_then(wire::UnitEntity::desired);
                let file = LocalFile { path: path.as_str().into(), file };
                diffs.push(UnitDiff {
                    name,
                    file,
                    desired: desired.unwrap_or(TargetState::Inactive),
                    known,
                });
            }
            None => paths.push(path.clone()),
        }
    }
    if !paths.is_empty() {
        diffs.extend(gather(context, &ManifestArgs { paths, state: args.state }).await?);
    }
    let changed = diffs.iter().filter(|unit| unit.change() != UnitChange::None);
    let text = changed.clone().map(|unit| format!("# {}{}", unit.summary(), unit.diff()));
    let text = text.collect::<String>();
    let records: Vec<PlannedChange> = changed.map(PlannedChange::from_diff).collect();
    context.output.list(&records, &text)?;
    Ok(verdict(context, records.is_empty()))
}

/// Runs `plan`.
pub(super) async fn plan(context: &mut Context, args: &PlanArgs) -> Result<Exit, CliError> {
    let diffs = match args.paths.is_empty() {
        true => Vec::new(),
        false => {
            let (paths, state) = (args.paths.clone(), args.state);
            gather(context, &ManifestArgs { paths, state }).await?
        }
    };
    let changed: Vec<&UnitDiff> =
        diffs.iter().filter(|it| it.change() != UnitChange::None).collect();
    ask_managers(context, &changed, args.verification).await?;
    let destroyed = match args.destroy.is_empty() {
        true => Vec::new(),
        false => select(&context.session, &args.destroy, DesiredFilter::All).await?,
    };
    let destroyed: Vec<UnitName> = destroyed.into_iter().map(|unit| unit.name).collect();
    let plan = match preview_plan(context, &changed, &destroyed).await {
        Err(error) => return Err(unknown_of(context, &destroyed).await.unwrap_or(error)),
        Ok(preview) => preview.changes,
    };
    let machines = machines_of(context, &plan).await?;
    let text: String = plan.iter().map(|it| it.sentence(&machines)).collect();
    context.output.list(&plan, &text)?;
    if plan.iter().any(|it| it.is_change(&changed)) {
        return Ok(Exit::Changes);
    }
    context.progress.note(match changed.is_empty() {
        true => "nothing to do",
        false => "no placement would change; \"fleetctl diff\" shows the changed files",
    });
    Ok(Exit::Success)
}

/// Asks the machines about the files of changed units, unless the user has declined that.
async fn ask_managers(
    context: &mut Context,
    changed: &[&UnitDiff],
    VerificationArgs { no_verify }: VerificationArgs,
) -> Result<(), CliError> {
    if no_verify {
        return Ok(());
    }
    let units = changed.iter().map(|unit| CheckedUnit {
        name: unit.name.clone(),
        path: unit.file.path.clone(),
        file: Some(unit.file.file.clone()),
    });
    check_managers(context, units.collect()).await
}

/// Returns the error for unknown units among these, if any.
async fn unknown_of(context: &Context, units: &[UnitName]) -> Option<CliError> {
    let known = buffered(units.iter().map(|name| context.session.known_unit(name))).await;
    CliError::all_or_none(known).err()
}

/// Returns labels for the machines of a plan, if people see it.
async fn machines_of(context: &Context, plan: &[PlannedChange]) -> Result<MachineLabels, CliError> {
    let mut machines = MachineCache::default();
    if context.output.format() == Format::Table {
        machines.load(&context.session, plan.iter().flat_map(PlannedChange::machines)).await?;
    }
    Ok(machines.labels())
}

/// Returns the exit status of a preview.
fn verdict(context: &mut Context, is_unchanged: bool) -> Exit {
    if is_unchanged {
        context.progress.note("nothing to do");
        return Exit::Success;
    }
    Exit::Changes
}

async fn gather(context: &mut Context, args: &ManifestArgs) -> Result<Vec<UnitDiff>, CliError> {
    let units = read(&args.paths)?.checked(&mut context.progress)?;
    let units = units.into_iter().filter_map(|unit| Some((unit.name, unit.file?)));
    compare(&context.session, units.collect(), args.state.into()).await
}

/// Requests the engine's plan for uploading and destroying these units. If the daemon would reject
/// one of the uploads, it rejects this request with the same error.
async fn preview_plan(
    context: &Context,
    changed: &[&UnitDiff],
    destroyed: &[UnitName],
) -> Result<Preview, CliError> {
    let uploads: Vec<(UnitName, UnitUpload)> = changed.iter().map(|it| it.upload()).collect();
    let plan = context.session.plan(&uploads, destroyed).await?;
    Ok(Preview { changes: PlannedChange::from_plan(&plan), revision: plan.revision })
}

/// The engine's plan for some changes.
struct Preview {
    changes: Vec<PlannedChange>,
    /// State of the cluster that the plan is made for.
    revision: String,
}

/// Adds the instances of changed templates that have the present or an earlier file of their
/// template, and are not given themselves. Each gets the new file, and keeps its desired state.
pub(super) async fn add_instances(
    context: &mut Context,
    diffs: &mut Vec<UnitDiff>,
) -> Result<(), CliError> {
    let given: BTreeSet<UnitName> = diffs.iter().map(|unit| unit.name.clone()).collect();
    let mut added = Vec::new();
    for template in diffs.iter().filter(|unit| unit.name.is_template() && unit.known.is_some()) {
        let instances = context.session.instances(&template.name).await?;
        let new = template.file.file.hash().to_string();
        if instances.iter().all(|instance| instance.hash == new) {
            continue;
        }
        let revisions = context.session.revisions(&template.name).await?.unwrap_or_default();
        for known in instances {
            let Ok(name) = UnitName::parse(&known.name) else { continue };
            let is_of_template = revisions.iter().any(|it| it.hash == known.hash);
            if known.hash == new || !is_of_template || given.contains(&name) {
                continue;
            }
            // A list has no unit files.
            let Some(known) = context.session.unit(&name).await? else { continue };
            let desired = known.desired().unwrap_or(TargetState::Inactive);
            added.push(UnitDiff { name, file: template.file.clone(), desired, known: Some(known) });
        }
    }
    diffs.extend(added);
    Ok(())
}

/// Writes all units together. Returns the goals to wait for and, if a rollout updates units, its
/// number. With `revision`, fails if anything has changed since then that could change the plan.
async fn send(
    context: &mut Context,
    diffs: Vec<UnitDiff>,
    until: WaitUntil,
    rollout: Option<RolloutOptions>,
    revision: Option<&str>,
) -> Result<(Vec<WaitTarget>, Option<RolloutId>), CliError> {
    let targets: Vec<WaitTarget> = changed(&diffs).map(|it| wait_target(it, until)).collect();
    let steps: Vec<UploadStep> =
        diffs.into_iter().filter(|it| it.change() != UnitChange::None).map(step).collect();
    let writes = writes(&steps);
    let writes = match rollout {
        Some(options) => writes.rollout(options),
        None => writes,
    };
    let writes = match revision {
        Some(revision) => writes.if_unchanged_since(revision),
        None => writes,
    };
    match context.session.write("apply", &writes).await? {
        WriteOutcome::Written(written) => Ok((targets, written.rollout)),
        // The plan that was printed may no longer be right.
        WriteOutcome::Changed(error) => {
            Err(error.help("run the same command again to see the new plan"))
        }
    }
}

fn changed(diffs: &[UnitDiff]) -> impl Iterator<Item = &UnitDiff> {
    diffs.iter().filter(|it| it.change() != UnitChange::None)
}

fn step(unit: UnitDiff) -> UploadStep {
    let (change, moves) = (unit.change(), unit.changes_state());
    // A new unit is inactive until its desired state is set.
    let moves = moves && (unit.known.is_some() || unit.desired != TargetState::Inactive);
    let UnitDiff { name, file, desired, known } = unit;
    let content = match change {
        UnitChange::None | UnitChange::State => ContentAction::Keep,
        UnitChange::Create => ContentAction::Create(ContentSource::Local(file.clone())),
        UnitChange::Replace => ContentAction::Replace(ContentSource::Local(file.clone())),
    };
    let file = (!matches!(content, ContentAction::Keep)).then_some(file.file);
    UploadStep { name, known, content, file, goal: moves.then_some(desired) }
}

fn wait_target(unit: &UnitDiff, until: WaitUntil) -> WaitTarget {
    let goal = match (unit.desired, unit.current_desired()) {
        (TargetState::Launched, _) => Goal::for_start(until, 0),
        (TargetState::Loaded, "launched") => Goal::Stopped,
        (TargetState::Loaded, _) => Goal::Loaded,
        (TargetState::Inactive, _) => Goal::Unplaced,
    };
    WaitTarget { name: unit.name.clone(), action: Action::Apply, goal, is_settled: false }
}

/// Planned change of one unit, by a file or by the engine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct PlannedChange {
    unit: String,
    /// Change that the file makes: `create`, `replace`, `state` or `none`. Empty if the change is a
    /// step of the engine.
    #[serde(skip_serializing_if = "str::is_empty")]
    change: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    desired: String,
    /// The unit's present desired state.
    #[serde(skip_serializing_if = "String::is_empty")]
    was: String,
    /// Unified diff of its file.
    #[serde(skip_serializing_if = "String::is_empty")]
    diff: String,
    /// Machine that the engine would remove the unit from.
    #[serde(skip_serializing_if = "String::is_empty")]
    from: String,
    /// Machine that the engine would place the unit on.
    #[serde(skip_serializing_if = "String::is_empty")]
    to: String,
    /// Reason of the engine's step.
    #[serde(skip_serializing_if = "String::is_empty")]
    cause: String,
    /// Reason for having no machine.
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
}

impl Record for PlannedChange {
    fn name(&self) -> &str {
        &self.unit
    }
}

impl PlannedChange {
    /// Creates the change by a file.
    pub(crate) fn from_diff(unit: &UnitDiff) -> Self {
        Self {
            unit: unit.name.to_string(),
            change: unit.change().as_str(),
            desired: unit.desired.to_string(),
            was: unit.current_desired().to_owned(),
            diff: unit.diff(),
            ..Self::default()
        }
    }

    /// Creates the changes of an engine's plan.
    pub(crate) fn from_plan(plan: &wire::PlanReport) -> Vec<Self> {
        let steps = plan.steps.iter().map(|step| Self {
            unit: step.unit.clone(),
            from: step.from.clone(),
            to: step.to.clone(),
            cause: step.cause.clone(),
            ..Self::default()
        });
        let unplaced = plan.unplaced.iter().map(|it| Self {
            unit: it.unit.clone(),
            reason: it.reason.clone(),
            ..Self::default()
        });
        steps.chain(unplaced).collect()
    }

    /// Returns whether this changes the cluster. That is so for each step of the engine, and for a
    /// unit in `changed` that will have no machine. Any other unit without a machine in the plan
    /// has none now either, so it does not change.
    pub(crate) fn is_change(&self, changed: &[&UnitDiff]) -> bool {
        self.is_step() || changed.iter().any(|unit| unit.name.as_str() == self.unit)
    }

    fn is_step(&self) -> bool {
        !self.from.is_empty() || !self.to.is_empty()
    }

    /// Returns the machines of the step; unused ones are empty.
    pub(crate) fn machines(&self) -> [&str; 2] {
        [&self.from, &self.to]
    }

    /// Describes the engine's step in a line.
    pub(crate) fn sentence(&self, machines: &MachineLabels) -> String {
        let Self { unit, from, to, cause, reason, .. } = self;
        let at = |id: &str| machines.label(id, false);
        match (from.as_str(), to.as_str()) {
            ("", "") => format!("{unit} has no machine: {reason}\n"),
            ("", to) => format!("{unit} is placed on {}: {cause}\n", at(to)),
            (from, "") => format!("{unit} is removed from {}: {cause}\n", at(from)),
            (from, to) => format!("{unit} moves from {} to {}: {cause}\n", at(from), at(to)),
        }
    }
}

/// Describes the changes by files, and then the engine's steps. A unit that stays without a machine
/// is described only if a file or a step concerns it.
pub(crate) fn preview_text(
    diffs: &[UnitDiff],
    plan: &[PlannedChange],
    machines: &MachineLabels,
) -> String {
    let changes = diffs.iter().map(|unit| {
        let is_of_template = |other: &UnitDiff| {
            other.name != unit.name
                && Some(&other.name) == unit.name.template().as_ref()
                && other.file.path == unit.file.path
        };
        let diff = match unit.change() {
            // The diff of the template shows the change.
            UnitChange::Replace if diffs.iter().any(is_of_template) => String::new(),
            UnitChange::Replace => unit.diff(),
            // New files are not printed in full.
            _ => String::new(),
        };
        unit.summary() + &diff
    });
    let is_relevant = |it: &&PlannedChange| {
        let is_same = |unit: &str| unit == it.unit;
        it.is_step()
            || diffs.iter().any(|unit| is_same(unit.name.as_str()))
            || plan.iter().any(|step| step.is_step() && is_same(&step.unit))
    };
    let steps = plan.iter().filter(is_relevant).map(|it| it.sentence(machines));
    changes.chain(steps).collect()
}
