//! `logs` and `journal`: print the journals of units from all their machines.

use std::collections::{BTreeSet, VecDeque};
use std::future::ready;
use std::time::Duration;

use fleet_core::Timestamp;
use fleet_core::journal::JournalLine;
use fleet_http::client::{JournalLines, JournalOptions};
use fleet_http::merge::{Interrupted, merge_journals};
use fleet_http::wire::Time;
use fleet_unitfile::UnitName;
use futures_util::stream;
use futures_util::stream::{BoxStream, StreamExt as _};
use serde::Serialize;

use crate::fleetctl::Context;
use crate::fleetctl::args::subcommands::{JournalArgs, LogsArgs};
use crate::fleetctl::args::when::When;
use crate::fleetctl::concurrent::buffered;
use crate::fleetctl::format::short_machine;
use crate::fleetctl::select::{DesiredFilter, select};
use crate::fleetctl::session::{Session, next_dated};
use crate::ui::error::CliError;
use crate::ui::global_args::Format;
use crate::ui::names::unit_arg;
use crate::ui::output::Record;
use crate::ui::time::log_time;

/// Most journals to read, each over its own connection.
const MAX_JOURNALS: usize = 256;

/// Time to wait for a journal that sends no lines while other journals have lines to print.
///
/// A daemon forwards the journal of another machine with a shorter timeout. So the error message of
/// the daemon, which names the cause, arrives before this timeout ends.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(5);

/// Journal of one unit on one machine.
#[derive(Debug, Clone, PartialEq, Eq)]
struct JournalKey {
    unit: UnitName,
    machine: String,
}

/// A journal line with its time and origin.
#[derive(Debug, Serialize)]
struct Line {
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<Time>,
    unit: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    machine: String,
    line: String,
}

impl Record for Line {
    fn name(&self) -> &str {
        &self.unit
    }
}

/// Runs the command. Prints past lines in the order of their timestamps, and with `--follow` all
/// lines in the order of their arrival. Ctrl-C ends the program.
pub(super) async fn run(context: &mut Context, args: &LogsArgs) -> Result<(), CliError> {
    if args.follow && context.output.format() == Format::Json {
        return Err(endless_document("followed logs"));
    }
    let (keys, unknown) = journal_keys(context, args).await?;
    let label = if args.raw { Label::Nothing } else { Label::new(&keys) };
    let selection = Selection::new(args.lines, args.since, args.until);
    let options = selection.options(args.follow);
    let mut missing = FailedJournals { prints_at_once: args.follow, errors: Vec::new() };
    unknown.into_iter().for_each(|error| missing.add(context, error));
    let mut journals = Vec::new();
    for opened in open(&context.session, &keys, &options).await {
        match opened {
            Ok(journal) => journals.push(journal),
            Err(error) => missing.add(context, error),
        }
    }
    let mut all = match args.follow {
        true => as_they_come(journals),
        false => in_order(journals),
    };
    let mut last = LastLines::new(selection);
    while let Some((key, next)) = all.next().await {
        match next {
            Ok(line) => {
                let label = label.text(&key);
                if let Some((label, line)) = last.add((label, Line::new(key, line))) {
                    print(context, &label, &line, args.raw)?;
                }
            }
            Err(error) => missing.add(context, error),
        }
    }
    for (label, line) in last.lines {
        print(context, &label, &line, args.raw)?;
    }
    context.output.finish()?;
    CliError::combined(missing.errors)
}

fn print(context: &mut Context, label: &str, line: &Line, raw: bool) -> Result<(), CliError> {
    let label = format!("{}{label}", log_time(line.at));
    context.output.journal_line(&label, &line.line, raw, line)
}

/// Selection of lines by their number and time.
#[derive(Debug, Clone, Copy)]
struct Selection {
    lines: Option<u32>,
    since: Option<When>,
    until: Option<Timestamp>,
}

impl Selection {
    /// Without a number of lines, selects the last ten, or all of the given time.
    fn new(lines: Option<u32>, since: Option<When>, until: Option<When>) -> Self {
        let has_time = since.is_some() || until.is_some();
        let lines = lines.or_else(|| (!has_time).then_some(10));
        let until = until.map(|until| until.time(fleet_agent::wall_time()));
        Self { lines, since, until }
    }

    /// Returns the lines to request. The daemon does not know an end, so all lines before it are
    /// read.
    fn options(self, follow: bool) -> JournalOptions {
        let since = self.since.map(|since| since.age(fleet_agent::wall_time()));
        let is_bounded = self.until.is_some() && since.is_none();
        let lines = match (self.until, is_bounded) {
            (None, _) => self.lines,
            (Some(_), true) => Some(JournalOptions::MAX_LINES),
            (Some(_), false) => None,
        };
        JournalOptions::default().with_lines(lines).with_since(since).with_follow(follow)
    }
}

/// The last lines before the end of a selection, in order.
struct LastLines {
    selection: Selection,
    lines: VecDeque<(String, Line)>,
}

impl LastLines {
    fn new(selection: Selection) -> Self {
        Self { selection, lines: VecDeque::new() }
    }

    /// Adds the next line. Returns it at once, unless only the last lines are selected. A line
    /// without a time counts as early enough.
    fn add(&mut self, line: (String, Line)) -> Option<(String, Line)> {
        let Some(until) = self.selection.until else { return Some(line) };
        if line.1.at.is_some_and(|at| at.timestamp() > until) {
            return None;
        }
        let Some(most) = self.selection.lines else { return Some(line) };
        self.lines.push_back(line);
        if self.lines.len() > most as usize {
            self.lines.pop_front();
        }
        None
    }
}

/// Errors of journals that could not be read. With `--follow`, each error is also printed
/// immediately, because the command may run forever and would never print it at the end.
struct FailedJournals {
    prints_at_once: bool,
    errors: Vec<CliError>,
}

impl FailedJournals {
    fn add(&mut self, context: &mut Context, error: CliError) {
        if self.prints_at_once {
            context.progress.note(&format!("warning: {}", error.parts().0));
        }
        self.errors.push(error);
    }
}

/// Opens all journals concurrently, so that one machine that does not respond does not delay the
/// journals of the others.
async fn open(
    session: &Session,
    keys: &[JournalKey],
    options: &JournalOptions,
) -> Vec<Result<(JournalKey, Lines), CliError>> {
    let open = async |key: &JournalKey| {
        let options = options.clone().with_machine(key.machine.clone());
        let journal = session.dated_journal(&key.unit, &options).await?;
        Ok((key.clone(), read(key.unit.clone(), journal)))
    };
    buffered(keys.iter().map(open)).await
}

/// Merges journals in order of arrival.
fn as_they_come(journals: Vec<(JournalKey, Lines)>) -> MergedLines {
    let keyed = |(key, lines): (JournalKey, Lines)| lines.map(move |line| (key.clone(), line));
    stream::select_all(journals.into_iter().map(keyed)).boxed()
}

/// Merges journals in the order of their timestamps.
fn in_order(journals: Vec<(JournalKey, Lines)>) -> MergedLines {
    let opened = journals.into_iter().map(|(key, lines)| (key, ready(Ok(lines))));
    let why = |key: &JournalKey, missing| match missing {
        Interrupted::Failed(error) => error,
        Interrupted::TimedOut => silent(key),
    };
    let merged = merge_journals(opened.collect(), SILENCE_TIMEOUT);
    merged.map(move |(key, line)| (key.clone(), line.map_err(|it| why(&key, it)))).boxed()
}

fn silent(JournalKey { unit, machine }: &JournalKey) -> CliError {
    let (seconds, machine) = (SILENCE_TIMEOUT.as_secs(), short_machine(machine));
    CliError::failed(format!(
        "stopped reading the journal of {unit} on {machine}: no line arrived for {seconds} seconds"
    ))
    .help(format!("\"fleetctl journal {unit}\" reads it without a time limit"))
}

/// Returns the error for requesting an endless list as one JSON document.
pub(super) fn endless_document(what: &str) -> CliError {
    CliError::usage(format!("{what} have no end, so they cannot be one JSON document"))
        .help("use -o jsonl, which prints one document per line")
}

/// Returns the journals to read, and an error for each unit that the cluster does not know.
///
/// # Errors
///
/// There is no journal to read, or there are too many.
async fn journal_keys(
    context: &mut Context,
    args: &LogsArgs,
) -> Result<(Vec<JournalKey>, Vec<CliError>), CliError> {
    let session = &context.session;
    let only = match &args.machine {
        Some(start) => Some(session.machine_named(start).await?.id),
        None => None,
    };
    let units = select(session, &args.units, DesiredFilter::Placed).await?;
    let found = buffered(units.iter().map(|unit| keys_of_unit(session, &unit.name))).await;
    let (mut keys, mut unknown) = (Vec::new(), Vec::new());
    for (unit, found) in units.iter().zip(found) {
        match found {
            Ok(found) if found.is_empty() => {
                context.progress.note(&format!("{} is on no machine", unit.name));
            }
            Ok(found) => keys.extend(found),
            Err(error) => unknown.push(error),
        }
    }
    if keys.is_empty() {
        CliError::combined(std::mem::take(&mut unknown))?;
    }
    keys.retain(|key| only.as_ref().is_none_or(|only| *only == key.machine));
    match keys.len() {
        0 => Err(no_journals(&args.units, only.as_deref())
            .help("\"fleetctl list-units\" shows which unit is on which machine")),
        n if n > MAX_JOURNALS => Err(CliError::failed(format!(
            "{n} journals match, but at most {MAX_JOURNALS} can be read at a time"
        ))
        .help("give fewer units, or one machine with --machine")),
        _ => Ok((keys, unknown)),
    }
}

fn no_journals(units: &[String], only: Option<&str>) -> CliError {
    let units = units.join(", ");
    CliError::failed(match only {
        None => format!("no journal to read: no machine has {units}"),
        Some(id) => {
            format!("no journal to read: machine {} does not have {units}", short_machine(id))
        }
    })
}

/// Returns the journals of one unit: one for the machine on which the unit is placed, and one for
/// each other machine that reports a state of the unit.
async fn keys_of_unit(session: &Session, name: &UnitName) -> Result<Vec<JournalKey>, CliError> {
    let unit = session.known_unit(name).await?;
    let states = session.states_of(name).await?;
    let mut machines: BTreeSet<String> = states.into_iter().map(|it| it.machine_id).collect();
    machines.insert(unit.machine_id);
    machines.remove("");
    let key = |machine| JournalKey { unit: name.clone(), machine };
    Ok(machines.into_iter().map(key).collect())
}

/// Lines of a journal. An error is the last item.
type Lines = BoxStream<'static, Result<JournalLine, CliError>>;

/// Lines of all journals.
type MergedLines = BoxStream<'static, (JournalKey, Result<JournalLine, CliError>)>;

fn read(unit: UnitName, journal: JournalLines) -> Lines {
    let next = async |(unit, journal): (UnitName, Option<JournalLines>)| {
        let mut journal = journal?;
        match next_dated(&mut journal, &unit).await {
            Ok(line) => Some((Ok(line?), (unit, Some(journal)))),
            Err(error) => Some((Err(error), (unit, None))),
        }
    };
    stream::unfold((unit, Some(journal)), next).boxed()
}

impl Line {
    fn new(key: JournalKey, line: JournalLine) -> Self {
        let (at, line) = (line.at.map(Time::from), line.text);
        Self { at, unit: key.unit.to_string(), machine: key.machine, line }
    }
}

/// Prefix of each printed line. With one journal per unit, it is the name of the unit. With several
/// journals per unit, it also names the machine. With a single journal, it is empty.
#[derive(Debug, PartialEq, Eq)]
enum Label {
    Nothing,
    Unit,
    UnitAndMachine,
}

impl Label {
    fn new(keys: &[JournalKey]) -> Self {
        let units: BTreeSet<_> = keys.iter().map(|key| &key.unit).collect();
        match (keys.len(), units.len()) {
            (0 | 1, _) => Self::Nothing,
            (all, units) if all == units => Self::Unit,
            _ => Self::UnitAndMachine,
        }
    }

    fn text(&self, key: &JournalKey) -> String {
        match self {
            Self::Nothing => String::new(),
            Self::Unit => format!("{}: ", key.unit),
            Self::UnitAndMachine => {
                format!("{} on {}: ", key.unit, short_machine(&key.machine))
            }
        }
    }
}

/// Runs the command. Prints the lines as they arrive; Ctrl-C ends the program.
///
/// If the unit is on several machines, the daemon merges their journals and prefixes each line with
/// the ID of its machine.
pub(super) async fn journal(context: &mut Context, args: &JournalArgs) -> Result<(), CliError> {
    if args.follow && context.output.format() == Format::Json {
        return Err(endless_document("followed journals"));
    }
    let name = unit_arg(&args.unit)?.name;
    context.session.known_unit(&name).await?;
    let machine = match &args.machine {
        Some(start) => Some(context.session.machine_named(start).await?.id),
        None => None,
    };
    let selection = Selection::new(args.lines, args.since, args.until);
    let options = selection.options(args.follow).with_machine(machine.clone());
    let mut journal = context.session.dated_journal(&name, &options).await?;
    let key = JournalKey { unit: name.clone(), machine: machine.unwrap_or_default() };
    let mut last = LastLines::new(selection);
    while let Some(line) = next_dated(&mut journal, &name).await? {
        if let Some((_, line)) = last.add((String::new(), Line::new(key.clone(), line))) {
            print(context, "", &line, args.raw)?;
        }
    }
    for (_, line) in last.lines {
        print(context, "", &line, args.raw)?;
    }
    context.output.finish()
}
