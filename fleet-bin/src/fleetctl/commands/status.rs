//! `status`: shows the state of units, with their last journal lines.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use fleet_core::Timestamp;
use fleet_http::wire;
use fleet_unitfile::UnitName;
use serde::Serialize;

use super::job::{attempts, runs};
use super::list_unit_files::description;
use crate::fleet_init::format_duration;
use crate::fleetctl::Context;
use crate::fleetctl::args::subcommands::StatusArgs;
use crate::fleetctl::concurrent::buffered;
use crate::fleetctl::format::{
    MachineLabels, bytes, machine_label, short_hash, unknown_for, without_name,
};
use crate::fleetctl::select::{DesiredFilter, select};
use crate::fleetctl::session::Session;
use crate::fleetctl::session::machines::MachineCache;
use crate::fleetctl::wait::Observation;
use crate::ui::error::{CliError, Exit};
use crate::ui::global_args::Format;
use crate::ui::output::Record;
use crate::ui::sanitize::sanitize_line;
use crate::ui::table::{Colour, clean};
use crate::ui::time::{date, date_and_age, log_time};

/// Time limit for reading the journal on one machine. After this time, a note appears in place of
/// the journal.
const JOURNAL_TIMEOUT: Duration = Duration::from_secs(3);

/// A unit with its states on machines.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
struct Status {
    unit: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    description: String,
    hash: String,
    desired: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    current: String,
    global: bool,
    /// Reason for having no machine, or problem of a broken unit.
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    /// The job with its attempts, if the unit is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<wire::JobEntity>,
    /// The schedule with its runs, if the unit has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    schedule: Option<wire::ScheduleEntity>,
    /// Failures that count for `MoveAfterFailures=`.
    #[serde(skip_serializing_if = "String::is_empty")]
    failures: String,
    machines: Vec<OnMachine>,
}

/// State of a unit on one machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct OnMachine {
    machine: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    machine_name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    ip: String,
    load: String,
    active: String,
    sub: String,
    /// Time at which the unit entered its active state.
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<wire::Time>,
    /// `starting`, `healthy` or `unhealthy`; empty without a health check.
    #[serde(skip_serializing_if = "String::is_empty")]
    health: String,
    /// Failure of the health check that made the unit unhealthy.
    #[serde(skip_serializing_if = "String::is_empty")]
    health_problem: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    result: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    exit: String,
    #[serde(rename = "mainPID", skip_serializing_if = "Option::is_none")]
    main_pid: Option<u32>,
    restarts: u32,
    #[serde(skip_serializing_if = "String::is_empty")]
    problem: String,
    /// Time until the service manager restarts the unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_in_milliseconds: Option<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    degraded_by: Vec<String>,
    /// Options that the service manager does not honour, each with its line.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ignored_options: Vec<String>,
    /// Those of them that confine processes or change their privileges.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ignored_sandboxing: Vec<String>,
    /// Next elapse of a timer, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_elapse: Option<wire::Time>,
    /// Last elapse of a timer, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_elapse: Option<wire::Time>,
    /// Latest `STATUS=` message of the current run.
    #[serde(skip_serializing_if = "String::is_empty")]
    status_text: String,
    /// Memory in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<u64>,
    /// CPU time since the start of the unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_nanoseconds: Option<u64>,
    /// Number of processes and threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    tasks: Option<u64>,
    /// Method by which its processes are tracked.
    #[serde(skip_serializing_if = "String::is_empty")]
    tracking: String,
    /// Reason for staying on a machine that is drained.
    #[serde(skip_serializing_if = "String::is_empty")]
    held: String,
    journal: Vec<wire::LogLine>,
}

impl Record for Status {
    fn name(&self) -> &str {
        &self.unit
    }
}

/// Runs the command. The exit codes follow the LSB, as for `systemctl status`:
///
/// - 0: all units are active on all their machines.
/// - 3: some unit is not active.
/// - 4: some unit is unknown.
pub(super) async fn run(context: &mut Context, args: &StatusArgs) -> Result<Exit, CliError> {
    let mut drains = DrainCache::default();
    let lines = if context.output.format() == Format::Name { 0 } else { args.lines };
    let (mut exit, colour) = (Exit::Success, context.output.colour());
    let mut gap = "";
    for unit in select(&context.session, &args.units, DesiredFilter::All).await? {
        let Some(status) = load(&context.session, &mut drains, &unit.name, lines).await? else {
            context.progress.note(&format!("Unit {} does not exist.", unit.name));
            for hint in context.session.unknown(&unit.name).await.hints() {
                context.progress.note(&format!("help: {hint}"));
            }
            exit = Exit::Unknown;
            continue;
        };
        if !status.is_active() && exit == Exit::Success {
            exit = Exit::NotActive;
        }
        context
            .output
            .record(&status, &format!("{gap}{}", status.text(colour, fleet_agent::wall_time())))?;
        gap = "\n";
    }
    context.output.finish()?;
    Ok(exit)
}

/// Returns the text that `status` prints for a unit, without colours.
///
/// # Errors
///
/// The unit is unknown, or a request failed.
pub(super) async fn describe(
    session: &Session,
    name: &UnitName,
    lines: u32,
) -> Result<String, CliError> {
    match load(session, &mut DrainCache::default(), name, lines).await? {
        Some(status) => Ok(status.text(Colour::Off, fleet_agent::wall_time())),
        None => Err(session.unknown(name).await),
    }
}

/// Requests the status of a unit. Returns `None` for an unknown unit.
async fn load(
    session: &Session,
    drains: &mut DrainCache,
    name: &UnitName,
    lines: u32,
) -> Result<Option<Status>, CliError> {
    let Some((observation, details)) = observe(session, name, lines).await? else {
        return Ok(None);
    };
    let known = observation.unit.clone().unwrap_or_default();
    let on = observation.states.iter().map(|state| state.machine_id.as_str());
    drains.machines.load(session, on.chain([known.machine_id.as_str()])).await?;
    let mut status = Status::new(&known, &observation, &drains.machines.labels());
    drains.set_held_reasons(session, &mut status).await?;
    if known.job.is_some() {
        status.job = session.find_job(name).await?;
    }
    if known.schedule.is_some() {
        status.schedule = Some(session.schedule(name).await?);
    }
    status.add_details(&details);
    if lines > 0 {
        add_journals(session, name, &mut status, details, lines).await;
    }
    Ok(Some(status))
}

/// Returns a unit with all its states, and the last journal lines on its machine. There can be
/// several states, because a moved unit may still run on its old machine. Returns `None` for an
/// unknown unit.
async fn observe(
    session: &Session,
    name: &UnitName,
    lines: u32,
) -> Result<Option<(Observation, Vec<wire::MachineStatus>)>, CliError> {
    let (details, states) =
        futures_util::try_join!(session.status(name, lines), session.states_of(name))?;
    Ok(details.map(|status| {
        (Observation { unit: Some(status.unit), states, ..Observation::default() }, status.machines)
    }))
}

/// Reports of drained machines, each fetched once.
#[derive(Default)]
struct DrainCache {
    machines: MachineCache,
    known: BTreeMap<String, Option<wire::DrainReport>>,
}

impl DrainCache {
    /// Sets, for each drained machine of the unit, the reason why the unit is held back there,
    /// which means that it stays for now.
    async fn set_held_reasons(
        &mut self,
        session: &Session,
        status: &mut Status,
    ) -> Result<(), CliError> {
        let is_drained = |id: &str| {
            self.machines
                .present()
                .iter()
                .any(|machine| machine.id == id && machine.intent == "drained")
        };
        for on in status.machines.iter_mut().filter(|on| is_drained(&on.machine)) {
            if !self.known.contains_key(&on.machine) {
                let report = match on.machine.parse() {
                    Ok(id) => session.drain_status(&id).await?,
                    Err(_) => None,
                };
                self.known.insert(on.machine.clone(), report);
            }
            on.set_held_reason(&status.unit, self.known.get(&on.machine).and_then(Option::as_ref));
        }
        Ok(())
    }
}

/// Adds the last journal lines of each machine. `details` has the lines of some machines; for all
/// other machines, they are requested concurrently. If a journal cannot be read, the error is shown
/// instead.
async fn add_journals(
    session: &Session,
    name: &UnitName,
    status: &mut Status,
    details: Vec<wire::MachineStatus>,
    lines: u32,
) {
    let read = async |on: &OnMachine| {
        if let Some(details) = details.iter().find(|details| details.machine_id == on.machine) {
            let missing = Some(&details.journal_error).filter(|missing| !missing.is_empty());
            let missing = missing.map(note);
            return details.lines.iter().cloned().chain(missing).collect();
        }
        let read = session.last_lines(name, Some(on.machine.clone()), lines);
        match tokio::time::timeout(JOURNAL_TIMEOUT, read).await {
            Ok(Ok(lines)) => lines,
            Ok(Err(error)) => vec![note(error.nearest_cause())],
            Err(_elapsed) => vec![note("the journal could not be read in time")],
        }
    };
    let journals = buffered(status.machines.iter().map(read)).await;
    for (on, journal) in status.machines.iter_mut().zip(journals) {
        on.journal = journal;
    }
}

/// Returns a line in place of a journal that cannot be read.
fn note(text: impl std::fmt::Display) -> wire::LogLine {
    wire::LogLine { at: None, text: format!("({text})") }
}

impl Status {
    fn new(unit: &wire::UnitEntity, observation: &Observation, machines: &MachineLabels) -> Self {
        let mut on: Vec<OnMachine> =
            observation.states.iter().map(|state| OnMachine::new(state, machines)).collect();
        let is_reported = on.iter().any(|on| on.machine == unit.machine_id);
        if !unit.machine_id.is_empty() && !is_reported {
            let ip = machines.address(&unit.machine_id).to_owned();
            let machine_name = machines.name(&unit.machine_id).to_owned();
            let (active, sub) = match unit.unknown_for {
                Some(seconds) => ("unknown".to_owned(), unknown_for(seconds)),
                None => (String::new(), String::new()),
            };
            let machine = unit.machine_id.clone();
            on.push(OnMachine { machine, machine_name, ip, active, sub, ..OnMachine::default() });
        }
        let reason = if unit.problem.is_empty() { &unit.reason } else { &unit.problem };
        Self {
            unit: unit.name.clone(),
            description: description(unit),
            hash: unit.hash.clone(),
            desired: unit.desired_state.clone(),
            current: unit.current_state.clone(),
            global: unit.global,
            reason: reason.clone(),
            job: None,
            schedule: None,
            failures: unit.failures.clone(),
            machines: on,
        }
    }

    /// Adds the service managers' details of the unit.
    fn add_details(&mut self, details: &[wire::MachineStatus]) {
        for on in &mut self.machines {
            let details = details.iter().find(|details| details.machine_id == on.machine);
            let Some(details) = details.and_then(|details| details.details.clone()) else {
                continue;
            };
            on.retry_in_milliseconds = details.retry_in_milliseconds;
            (on.next_elapse, on.last_elapse) = (details.next_elapse, details.last_elapse);
            (on.degraded_by, on.tracking) = (details.degraded_by, details.tracking);
            on.ignored_options = details.ignored_options;
            on.ignored_sandboxing = details.ignored_sandboxing;
            on.status_text = details.status_text;
            let usage = details.usage.unwrap_or_default();
            (on.memory, on.tasks) = (usage.memory, usage.tasks);
            on.cpu_nanoseconds = usage.cpu_nanoseconds;
        }
    }

    fn is_active(&self) -> bool {
        if let Some(schedule) = &self.schedule {
            return schedule.summary.state == "on";
        }
        let is_up = |on: &OnMachine| matches!(on.active.as_str(), "active" | "reloading");
        !self.machines.is_empty() && self.machines.iter().all(is_up)
    }

    fn text(&self, colour: Colour, now: Timestamp) -> String {
        let mut text = self.unit.clone();
        if !self.description.is_empty() {
            let _infallible = write!(text, " - {}", clean(&self.description));
        }
        text.push('\n');
        line(&mut text, "Hash", &short_hash(&self.hash));
        line(&mut text, "Desired", &self.desired);
        line(&mut text, "Current", &self.current);
        line(&mut text, "Reason", &self.reason);
        line(&mut text, "Failures", &self.failures);
        let job = self.job.as_ref().map(|job| job.summary.text.as_str());
        line(&mut text, "Job", &clean(job.unwrap_or_default()));
        if let Some(schedule) = &self.schedule {
            line(
                &mut text,
                "Schedule",
                &format!("{} ({})", schedule.event, schedule.summary.state),
            );
            line(&mut text, "Next", &date(schedule.summary.next));
        }
        let has_ended = self.job.as_ref().is_some_and(|job| job.summary.has_ended);
        if self.machines.is_empty() && self.schedule.is_none() && !has_ended {
            line(&mut text, "Machine", if self.global { "none yet" } else { "none" });
        }
        let mut has_journal = false;
        for on in &self.machines {
            if has_journal {
                text.push('\n');
            }
            on.write(&mut text, &self.unit, colour, now);
            has_journal = !on.journal.is_empty();
        }
        text.extend(self.job.as_ref().map(|job| attempts(job, self.machines.is_empty())));
        text.extend(self.schedule.as_ref().map(runs));
        text
    }
}

impl OnMachine {
    fn new(state: &wire::UnitStateEntity, machines: &MachineLabels) -> Self {
        let state = state.clone();
        Self {
            ip: machines.address(&state.machine_id).to_owned(),
            machine_name: machines.name(&state.machine_id).to_owned(),
            machine: state.machine_id,
            load: state.systemd_load_state,
            active: state.systemd_active_state,
            sub: state.systemd_sub_state,
            since: state.since,
            health: state.health,
            health_problem: state.health_problem,
            result: state.result,
            exit: state.exit,
            main_pid: state.main_pid,
            restarts: state.restarts,
            problem: state.problem,
            ..Self::default()
        }
    }

    fn set_held_reason(&mut self, unit: &str, report: Option<&wire::DrainReport>) {
        let held = report.and_then(|report| report.held.iter().find(|held| held.unit == unit));
        self.held = held.map(|held| held.reason.clone()).unwrap_or_default();
    }

    fn write(&self, text: &mut String, unit: &str, colour: Colour, now: Timestamp) {
        line(text, "Machine", &machine_label(&self.machine, &self.machine_name, &self.ip, false));
        if self.active.is_empty() {
            line(text, "Active", "not reported yet");
        } else {
            line(text, "Loaded", &self.load);
            let since = match date_and_age(self.since, now) {
                none if none.is_empty() => none,
                since => format!(" since {since}"),
            };
            let active = format!("{} ({})", colour.state(&self.active), self.sub);
            line(text, "Active", &format!("{active}{since}"));
        }
        let health = [self.health.as_str(), self.health_problem.as_str()];
        line(text, "Health", &clean(health.join(": ").trim_end_matches(": ")));
        line(text, "Result", &self.result);
        line(text, "Exit", &self.exit);
        let main_pid = self.main_pid.map(|pid| pid.to_string());
        line(text, "Main PID", &main_pid.unwrap_or_default());
        line(text, "Status", &clean(&self.status_text));
        line(text, "Tasks", &self.tasks.map(|tasks| tasks.to_string()).unwrap_or_default());
        line(text, "Memory", &self.memory.map(bytes).unwrap_or_default());
        let cpu = self.cpu_nanoseconds.map(|nanos| format_duration(nanos / 1_000_000));
        line(text, "CPU", &cpu.unwrap_or_default());
        if self.restarts > 0 {
            line(text, "Restarts", &self.restarts.to_string());
        }
        let retry =
            self.retry_in_milliseconds.map(|millis| format!("in {}", format_duration(millis)));
        line(text, "Retry", &retry.unwrap_or_default());
        line(text, "Next", &date_and_age(self.next_elapse, now));
        line(text, "Last", &date_and_age(self.last_elapse, now));
        line(text, "Degraded", &clean(&self.degraded_by.join(", ")));
        line(text, "Ignored", &clean(&self.ignored_options.join(", ")));
        line(text, "Tracking", &clean(&self.tracking));
        line(text, "Problem", without_name(&self.problem, unit));
        line(text, "Held back", &self.held);
        if !self.journal.is_empty() {
            text.push('\n');
        }
        for line in &self.journal {
            let _infallible = writeln!(text, "{}{}", log_time(line.at), sanitize_line(&line.text));
        }
    }
}

/// Writes a line with a label; nothing for an empty value.
fn line(text: &mut String, label: &str, value: &str) {
    if !value.is_empty() {
        let _infallible = writeln!(text, "{label:>10}: {value}");
    }
}

#[cfg(test)]
mod tests;
