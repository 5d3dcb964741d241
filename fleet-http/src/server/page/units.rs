//! The list of units: one row for each unit on each machine, and one for each other unit.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use fleet_core::{ActiveState, MachineId, Snapshot, TargetState, Unit};
use fleet_unitfile::UnitName;
use futures_util::{StreamExt as _, stream};
use maud::{Markup, PreEscaped, html};

use super::actions::notice;
use super::layout::{Access, Frame, Section, Tone, badge, machine_link, page, time, unit_url};
use crate::client::query::escape;
use crate::server::api::SharedApi;
use crate::server::failure::Failure;
use crate::server::handlers::extract::Params;
use crate::server::handlers::units::{entries, with_unknown_for};
use crate::wire;
use crate::wire::{JobView, ScheduleView, UnitEntity, UnitRow, unit_rows};

/// Maximum number of units on one page.
const MAX_UNITS: usize = 2000;

/// Number of units that are rendered at a time. The browser can show the first ones while the
/// server renders the next, and the server buffers only these.
const CHUNK: usize = 100;

/// Placeholder for the rows in the frame of the list. No escaped text contains it.
const ROWS: &str = "<!--rows-->";

pub(super) async fn list(
    State(api): State<SharedApi>,
    Access(rights): Access,
    params: Params,
) -> Result<Response, Failure> {
    let snapshot = api.view()?;
    let query = params.first("q").unwrap_or_default().to_owned();
    let names = Names::read(&api, &snapshot, &query, params.non_empty("from"));
    let main = html! {
        h1.aside { "Units" }
        (counts(&snapshot))
        (filter("/", &query))
        (table("All units", &PreEscaped(ROWS.to_owned()), names.next.is_some()))
        @if names.shown.is_empty() { p.empty { (nothing(&query)) } }
        @if let Some(next) = &names.next {
            p { a href={ "/?q=" (escape(&query)) "&from=" (escape(next.as_str())) } {
                "Next units, from " (next)
            } }
        }
    };
    let frame = Frame::new(&api, rights, "Units", Section::Units)
        .following("view=units".to_owned(), snapshot.revision)
        .with_notice(notice(&params));
    let whole = frame.render(&main).into_string();
    let (head, tail) = whole.split_once(ROWS).unwrap_or((&whole, ""));
    let (head, tail) = (head.to_owned(), tail.to_owned());
    let api = api.clone();
    let chunks = names.shown.into_chunks().map(move |names| {
        let rows = names.iter().flat_map(|name| rows_of(&api, &snapshot, name.as_str()));
        rows.map(|row| row.render().into_string()).collect::<String>()
    });
    let parts = std::iter::once(head).chain(chunks).chain(std::iter::once(tail));
    Ok(page(Body::from_stream(stream::iter(parts).map(Ok::<_, Infallible>))))
}

/// Names of the units on a page of the list.
struct Names {
    shown: NameList,
    /// First unit of the next page.
    next: Option<UnitName>,
}

struct NameList(Vec<UnitName>);

impl NameList {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn into_chunks(self) -> impl Iterator<Item = Vec<UnitName>> {
        let mut names = self.0.into_iter();
        std::iter::from_fn(move || {
            let chunk: Vec<UnitName> = names.by_ref().take(CHUNK).collect();
            (!chunk.is_empty()).then_some(chunk)
        })
    }
}

impl Names {
    fn read(api: &SharedApi, snapshot: &Snapshot, query: &str, from: Option<&str>) -> Self {
        let first = from.and_then(|name| UnitName::parse(name).ok());
        let words = words(query);
        let matches = |name: &UnitName| {
            words.is_empty()
                || rows_of(api, snapshot, name.as_str()).iter().any(|row| row.matches(&words))
        };
        let names = entries(snapshot, first.as_ref()).map(|entry| entry.name().clone());
        let mut names: Vec<UnitName> = names.collect();
        // Machines may still run units that were destroyed.
        let gone = snapshot.states().map(|state| &state.unit).filter(|name| {
            snapshot.unit(name.as_str()).is_none() && snapshot.fault(name.as_str()).is_none()
        });
        names.extend(gone.filter(|name| first.as_ref().is_none_or(|it| *name >= it)).cloned());
        names.sort();
        names.dedup();
        let mut names = names.into_iter().filter(matches);
        let shown = names.by_ref().take(MAX_UNITS).collect();
        Self { shown: NameList(shown), next: names.next() }
    }
}

fn words(query: &str) -> Vec<String> {
    query.to_lowercase().split_whitespace().map(str::to_owned).collect()
}

fn nothing(query: &str) -> &'static str {
    match query {
        "" => "The cluster has no units yet. Run fleetctl start, or open Apply.",
        _ => "No unit matches the filter.",
    }
}

/// Numbers of the cluster. The script counts the failed and the unplaced units again after changes.
fn counts(snapshot: &Snapshot) -> Markup {
    let failed =
        snapshot.states().filter(|state| state.systemd.active == ActiveState::Failed).count();
    let unplaced = snapshot.units().filter(|unit| is_unplaced(snapshot, unit)).count();
    let number = |id: &str, label: &str, href: &str, count: usize| {
        html! { li { a href=(href) { b id=(id) { (count) } " " (label) } } }
    };
    html! {
        ul.counts aria-label="Summary" {
            (number("count-units", "units", "/", units(snapshot)))
            (number("count-machines", "machines", "/ui/machines", snapshot.machines().len()))
            (number("count-failed", "failed", "/?q=failed", failed))
            (number("count-unplaced", "unplaced", "/?q=unplaced", unplaced))
        }
    }
}

/// Returns the number of units, including those that cannot be decoded.
pub(super) fn units(snapshot: &Snapshot) -> usize {
    snapshot.units().len() + snapshot.faults().len()
}

fn is_unplaced(snapshot: &Snapshot, unit: &Unit) -> bool {
    let name = unit.name.as_str();
    unit.is_wanted()
        && !unit.is_schedule()
        && snapshot.placement(name).is_none()
        && snapshot.states_of(name).next().is_none()
}

/// The field that filters the rows. Without the script, it is a search by the server.
pub(super) fn filter(url: &str, query: &str) -> Markup {
    html! {
        form.filter method="get" action=(url) role="search" {
            label for="filter" { "Filter" }
            input #filter type="search" name="q" value=(query) autocomplete="off"
                placeholder="name, machine, state or reason";
            span #matches role="status" {}
        }
    }
}

/// A table of units. `is_cut` is `true` if later rows are left out.
pub(super) fn table(caption: &str, rows: &Markup, is_cut: bool) -> Markup {
    let columns = ["Unit", "State", "Since", "Desired", "Current", "Machine", "Reason"];
    html! {
        table.units role="table" aria-label=(caption) data-rows="" data-cut[is_cut] {
            thead role="rowgroup" {
                tr role="row" {
                    @for column in columns {
                        th role="columnheader" scope="col" { (column) }
                    }
                }
            }
            tbody role="rowgroup" { (rows) }
        }
    }
}

/// A unit on a machine, or a unit without a machine.
pub(super) struct Row {
    pub(super) row: UnitRow,
    pub(super) desired: String,
    pub(super) current: String,
    is_broken: bool,
}

impl Row {
    /// Creates the row of `unit`, which is `None` if the unit was destroyed.
    fn new(row: UnitRow, unit: Option<&UnitEntity>) -> Self {
        let Some(unit) = unit else {
            let (desired, current) = ("destroyed".to_owned(), String::new());
            return Self { row, desired, current, is_broken: false };
        };
        let (desired, current) = (unit.desired_state.clone(), unit.current_state.clone());
        Self { row, desired, current, is_broken: !unit.problem.is_empty() }
    }

    pub(super) fn machine(&self) -> &str {
        &self.row.machine
    }

    /// Returns the state in one word, with its appearance.
    fn state(&self) -> (Tone, &str) {
        let UnitRow { active, machine, .. } = &self.row;
        let is_wanted =
            self.desired.parse().is_ok_and(|it: TargetState| it > TargetState::Inactive);
        match (active.as_str(), machine.as_str()) {
            _ if self.is_broken => (Tone::Bad, "broken"),
            ("", "") if is_wanted => (Tone::Busy, "unplaced"),
            ("", "") => (Tone::Idle, "inactive"),
            ("", _) => (Tone::Busy, "pending"),
            (active, _) => (Tone::of_active(active), active),
        }
    }

    /// Returns the detail of the state, with the result of the health check.
    fn detail(&self) -> String {
        let UnitRow { active, sub, health, unknown_for, .. } = &self.row;
        let sub = if sub == active { "" } else { sub };
        match (unknown_for, health.as_str()) {
            (Some(seconds), _) => format!("for {seconds} s"),
            (None, "") => sub.to_owned(),
            (None, health) => format!("{sub} ({health})"),
        }
    }

    pub(super) fn badge(&self) -> Markup {
        let (tone, text) = self.state();
        badge(tone, text, &self.detail())
    }

    fn reason(&self) -> &str {
        let UnitRow { reason, reason_summary, .. } = &self.row;
        if reason_summary.is_empty() { reason } else { reason_summary }
    }

    fn matches(&self, words: &[String]) -> bool {
        let (row, (_, state)) = (&self.row, self.state());
        let detail = self.detail();
        let fields =
            [&row.unit, state, &detail, &self.desired, &self.current, &row.machine, self.reason()];
        let text = fields.join(" ").to_lowercase();
        words.iter().all(|word| text.contains(word))
    }

    pub(super) fn render(&self) -> Markup {
        let UnitRow { unit, machine, since, reason, .. } = &self.row;
        let (tone, state) = self.state();
        let short = self.reason();
        let full = (short != reason).then_some(reason);
        // A phone shows the current state only if it differs.
        let same = (self.current == self.desired).then_some("same");
        html! {
            tr role="row" data-unit=(unit) data-machine=(machine) data-tone=(tone.as_str())
                data-state=(state) {
                th role="rowheader" scope="row" { a href=(unit_url(unit)) { (unit) } }
                td role="cell" { (self.badge()) }
                td role="cell" { @if let Some(since) = since { (time(*since)) } }
                td role="cell" { (self.desired) }
                td role="cell" class=[same] { (self.current) }
                td role="cell" { @if !machine.is_empty() { (machine_link(machine)) } }
                td role="cell" title=[full] { (short) }
            }
        }
    }
}

/// Returns the rows of a unit: one for each machine that reports it, otherwise one. A unit that
/// does not exist has a row for each machine that still reports it.
pub(super) fn rows_of(api: &SharedApi, snapshot: &Snapshot, name: &str) -> Vec<Row> {
    let unit = entity(api, snapshot, name);
    let states = snapshot.states_of(name).map(|state| wire::state(state)).collect();
    let mut rows = unit_rows(unit.iter().cloned().collect(), states);
    if let (true, Some(unit)) = (rows.is_empty(), &unit) {
        rows.push(UnitRow { unit: unit.name.clone(), ..UnitRow::default() });
    }
    rows.into_iter().map(|row| Row::new(row, unit.as_ref())).collect()
}

/// Returns the row of a unit on a machine, if it has one. The cost does not depend on the number of
/// machines.
pub(super) fn row_on(
    api: &SharedApi,
    snapshot: &Snapshot,
    name: &UnitName,
    machine: &MachineId,
) -> Option<Row> {
    let Some(state) = snapshot.state(name.as_str(), machine.as_str()) else {
        let placed = snapshot.placement(name.as_str());
        let is_here = placed.is_some_and(|placement| placement.machine == *machine);
        let rows = if is_here { rows_of(api, snapshot, name.as_str()) } else { Vec::new() };
        return rows.into_iter().find(|row| row.machine() == machine.as_str());
    };
    let unit = entity(api, snapshot, name.as_str());
    let row = unit_rows(unit.iter().cloned().collect(), vec![wire::state(state)]).pop()?;
    Some(Row::new(row, unit.as_ref()))
}

/// Returns a unit with its job and schedule, without its file.
fn entity(api: &SharedApi, snapshot: &Snapshot, name: &str) -> Option<UnitEntity> {
    let Some(unit) = snapshot.unit(name) else {
        let fault = snapshot.fault(name)?;
        return Some(wire::faulty_unit(&UnitName::parse(name).ok()?, fault));
    };
    let unit: &Arc<Unit> = unit;
    let job = JobView::new(unit, snapshot).map(|job| job.summary());
    let schedule = ScheduleView::new(unit, snapshot).map(|schedule| schedule.summary());
    let summary = UnitEntity { job, schedule, ..wire::unit_summary(snapshot, unit) };
    Some(with_unknown_for(api, summary))
}
