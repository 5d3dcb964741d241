//! `logs`: what many units wrote on many machines, and write.

use std::collections::BTreeSet;
use std::future::ready;
use std::time::Duration;

use fleet_http::{CutOff, JournalLine, JournalLines, JournalOptions, merge_journals};
use fleet_unitfile::UnitName;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use serde::Serialize;

use crate::fleetctl::at_once::at_once;
use crate::fleetctl::context::Context;
use crate::fleetctl::error::CliError;
use crate::fleetctl::global_args::Format;
use crate::fleetctl::look_args::LogsArgs;
use crate::fleetctl::output::Record;
use crate::fleetctl::select::{Fits, select};
use crate::fleetctl::session::{Session, next_dated};
use crate::fleetctl::words::short_machine;

/// How many journals are read at a time at most, each over a connection of its own.
const MOST: usize = 256;

/// How long others are kept waiting by one that is open and says nothing: longer than a daemon
/// waits for another one, so that whoever knows why has said so by then.
const PATIENCE: Duration = Duration::from_secs(5);

/// A journal: that of one unit on one machine.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    unit: UnitName,
    machine: String,
}

/// One line, and where it was written.
#[derive(Debug, Serialize)]
struct Line {
    unit: String,
    machine: String,
    line: String,
}

impl Record for Line {
    fn name(&self) -> &str {
        &self.unit
    }
}

/// Runs the command. Lines of the past are printed in the order in which they were written, and
/// those that are followed as they come; Ctrl-C ends the program as it ends any.
pub(super) async fn run(context: &mut Context, args: &LogsArgs) -> Result<(), CliError> {
    if args.follow && context.output.format() == Format::Json {
        return Err(never_whole("logs that are followed"));
    }
    let places = places(context, args).await?;
    let label = if args.raw { Label::Nothing } else { Label::of(&places) };
    let lines = args.lines.or_else(|| args.since.is_none().then_some(10));
    let options = JournalOptions { lines, since: args.since, follow: args.follow, machine: None };
    let mut missing = Missing { is_told: args.follow, errors: Vec::new() };
    let mut journals = Vec::new();
    for opened in open(&context.session, &places, &options).await {
        match opened {
            Ok(journal) => journals.push(journal),
            Err(error) => missing.add(context, error),
        }
    }
    let mut all = match args.follow {
        true => as_they_come(journals),
        false => in_order(journals),
    };
    while let Some((place, next)) = all.next().await {
        match next {
            Ok(JournalLine { text, .. }) => {
                let (label, line) = (label.text(&place), Line::of(place, text));
                context.output.written(&label, &line.line, args.raw, &line)?;
            }
            Err(error) => missing.add(context, error),
        }
    }
    context.output.finish()?;
    CliError::of_all(missing.errors)
}

/// Why some journals cannot be read. Whoever follows the others is told at once: the end, where
/// errors are told, may never come.
struct Missing {
    is_told: bool,
    errors: Vec<CliError>,
}

impl Missing {
    fn add(&mut self, context: &mut Context, error: CliError) {
        if self.is_told {
            context.progress.note(&format!("warning: {}", error.parts().0));
        }
        self.errors.push(error);
    }
}

/// Opens all journals at a time, so that a machine that does not answer holds no other up.
async fn open(
    session: &Session,
    places: &[Place],
    options: &JournalOptions,
) -> Vec<Result<(Place, Lines), CliError>> {
    let open = async |place: &Place| {
        let options = JournalOptions { machine: Some(place.machine.clone()), ..options.clone() };
        let journal = session.dated_journal(&place.unit, &options).await?;
        Ok((place.clone(), read(place.unit.clone(), journal)))
    };
    at_once(places.iter().map(open)).await
}

/// The lines of all journals, each when it is there.
fn as_they_come(journals: Vec<(Place, Lines)>) -> All {
    let placed = |(place, lines): (Place, Lines)| lines.map(move |line| (place.clone(), line));
    stream::select_all(journals.into_iter().map(placed)).boxed()
}

/// The lines of all journals in the order in which they were written.
fn in_order(journals: Vec<(Place, Lines)>) -> All {
    let opened = journals.into_iter().map(|(place, lines)| (place, ready(Ok(lines))));
    let why = |place: &Place, missing| match missing {
        CutOff::Failed(error) => error,
        CutOff::Late => silent(place),
    };
    let merged = merge_journals(opened.collect(), PATIENCE);
    merged.map(move |(place, line)| (place.clone(), line.map_err(|it| why(&place, it)))).boxed()
}

fn silent(Place { unit, machine }: &Place) -> CliError {
    let (seconds, machine) = (PATIENCE.as_secs(), short_machine(machine));
    CliError::failed(format!(
        "nothing more came of the journal of {unit} on {machine} within {seconds} seconds"
    ))
    .help(format!("\"fleetctl journal {unit}\" waits for it alone"))
}

/// The error for a list without an end that is to be one document.
pub(super) fn never_whole(what: &str) -> CliError {
    CliError::usage(format!("{what} are never one whole document"))
        .help("use -o jsonl, which prints one document a line")
}

/// The journals to read.
async fn places(context: &mut Context, args: &LogsArgs) -> Result<Vec<Place>, CliError> {
    let session = &context.session;
    let only = match &args.machine {
        Some(start) => Some(session.machine_named(start).await?.id),
        None => None,
    };
    let units = select(session, &args.units, Fits::Placed).await?;
    let found = at_once(units.iter().map(|unit| of_unit(session, &unit.name))).await;
    let found = CliError::all_or_none(found)?;
    for (unit, _) in units.iter().zip(&found).filter(|(_, places)| places.is_empty()) {
        context.progress.note(&format!("{} is on no machine", unit.name));
    }
    let mut places = found.concat();
    places.retain(|place| only.as_ref().is_none_or(|only| *only == place.machine));
    match places.len() {
        0 => Err(CliError::failed("none of these units has a journal there")
            .help("\"fleetctl list-units\" shows which unit is on which machine")),
        n if n > MOST => Err(CliError::failed(format!(
            "these are {n} journals, and {MOST} are read at a time at most"
        ))
        .help("name fewer units, or one machine with --machine")),
        _ => Ok(places),
    }
}

/// The journals of one unit: where it is placed, and wherever it is reported.
async fn of_unit(session: &Session, name: &UnitName) -> Result<Vec<Place>, CliError> {
    let unit = session.known_unit(name).await?;
    let states = session.states_of(name).await?;
    let mut machines: BTreeSet<String> = states.into_iter().map(|it| it.machine_id).collect();
    machines.insert(unit.machine_id);
    machines.remove("");
    let place = |machine| Place { unit: name.clone(), machine };
    Ok(machines.into_iter().map(place).collect())
}

/// The lines of a journal; an error is the last of them.
type Lines = BoxStream<'static, Result<JournalLine, CliError>>;

/// The lines of all journals.
type All = BoxStream<'static, (Place, Result<JournalLine, CliError>)>;

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
    fn of(place: Place, line: String) -> Self {
        Self { unit: place.unit.to_string(), machine: place.machine, line }
    }
}

/// What stands before each line, so that it is clear who wrote it, and no more than that.
#[derive(Debug, PartialEq, Eq)]
enum Label {
    Nothing,
    Unit,
    UnitAndMachine,
}

impl Label {
    fn of(places: &[Place]) -> Self {
        let units: BTreeSet<_> = places.iter().map(|place| &place.unit).collect();
        match (places.len(), units.len()) {
            (0 | 1, _) => Self::Nothing,
            (all, units) if all == units => Self::Unit,
            _ => Self::UnitAndMachine,
        }
    }

    fn text(&self, place: &Place) -> String {
        match self {
            Self::Nothing => String::new(),
            Self::Unit => format!("{}: ", place.unit),
            Self::UnitAndMachine => {
                format!("{} on {}: ", place.unit, short_machine(&place.machine))
            }
        }
    }
}
