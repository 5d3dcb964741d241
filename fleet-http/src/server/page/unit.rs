//! The page of one unit: its states with reasons, actions, placement, journal, history and file.

use axum::extract::State;
use axum::response::Response;
use fleet_core::Snapshot;
use fleet_unitfile::UnitName;
use maud::{Markup, html};

use super::actions::notice;
use super::layout::{
    Access, Frame, Section, Tone, action, badge, line, machine_link, page, text, time, unit_url,
    usage,
};
use super::units::{Row, rows_of};
use crate::client::query::escape;
use crate::server::api::SharedApi;
use crate::server::auth::tokens::Rights;
use crate::server::failure::Failure;
use crate::server::handlers::extract::{Name, Params};
use crate::server::handlers::plan;
use crate::server::handlers::units::show_unit;
use crate::wire;
use crate::wire::{
    JobView, PlacementExplanation, ScheduleView, UnitEntity, UnitHistoryEntity, UnitRevisionEntity,
    UnitStateEntity,
};

pub(super) async fn show(
    State(api): State<SharedApi>,
    Name(name): Name,
    Access(rights): Access,
    params: Params,
) -> Result<Response, Failure> {
    let snapshot = api.view()?;
    let unit = show_unit(&api, &snapshot, &name)?;
    let explained = match params.flag("explain")? {
        true => Some(plan::explain(State(api.clone()), Name(name.clone())).await?.0),
        false => None,
    };
    let name: UnitName = name.parse().map_err(Failure::bad_request)?;
    // A page without them is better than none.
    let events = api.registry.history(&name).await.map(UnitHistoryEntity::from);
    let revisions = api.registry.revisions(&name).await.unwrap_or_default();
    let revisions: Vec<_> = revisions.into_iter().map(UnitRevisionEntity::from).collect();
    let main = html! {
        (status(&api, &snapshot, name.as_str()))
        @if rights == Rights::Write { (actions(&unit)) }
        (placement(&unit, explained.as_ref()))
        @if !unit.machine_id.is_empty() { (usage(&unit.machine_id, &unit.name)) }
        (journal(&unit))
        (history(&events.unwrap_or_default()))
        (earlier_files(&revisions))
        (file(&unit))
    };
    let frame = Frame::new(&api, rights, &unit.name, Section::Units)
        .following(format!("view=unit&name={}", escape(&unit.name)), snapshot.revision)
        .with_notice(notice(&params));
    Ok(page(frame.render(&main).into_string()))
}

/// The name and the state of a unit. Rendered again after each change.
pub(super) fn status(api: &SharedApi, snapshot: &Snapshot, name: &str) -> Markup {
    let unit = show_unit(api, snapshot, name).unwrap_or_default();
    let rows = rows_of(api, snapshot, name);
    let states: Vec<UnitStateEntity> =
        snapshot.states_of(name).map(|state| wire::state(state)).collect();
    html! {
        section #status aria-label="Status" {
            div.title {
                h1 { (name) }
                @for row in rows.iter().take(1) { (summary(&rows, row)) }
                @if rows.is_empty() { (badge(Tone::Idle, "destroyed", "")) }
            }
            dl.facts {
                (line("Desired", &text(&unit.desired_state)))
                (line("Current", &text(&unit.current_state)))
                (line("Machine", &machine(&unit)))
                (line("Reason", &text(reason(&unit, &rows))))
                (line("Failures", &text(&unit.failures)))
                (line("Job", &job(snapshot, name)))
                (line("Schedule", &schedule(snapshot, name)))
                @if unit.generation > 0 { (line("Generation", &generation(unit.generation))) }
            }
            @if !states.is_empty() { (state_table(&states)) }
        }
    }
}

/// The state of the only row, or the number of rows in each state.
fn summary(rows: &[Row], first: &Row) -> Markup {
    let active = rows.iter().filter(|row| row.row.active == "active").count();
    match rows.len() {
        1 => first.badge(),
        all if active == all => badge(Tone::Good, "active", &format!("on {all} machines")),
        all => badge(Tone::Busy, &format!("active on {active} of {all} machines"), ""),
    }
}

fn machine(unit: &UnitEntity) -> Markup {
    match (unit.global, unit.machine_id.as_str()) {
        (true, _) => text("every eligible machine"),
        (false, "") => text(""),
        (false, id) => machine_link(id),
    }
}

/// Returns the whole reason, of the unit or of its first state.
fn reason<'a>(unit: &'a UnitEntity, rows: &'a [Row]) -> &'a str {
    let of_row = rows.first().map_or("", |row| row.row.reason.as_str());
    match (unit.problem.as_str(), unit.reason.as_str()) {
        ("", "") => of_row,
        ("", reason) => reason,
        (problem, _) => problem,
    }
}

fn job(snapshot: &Snapshot, name: &str) -> Markup {
    let unit = snapshot.unit(name);
    let job = unit.and_then(|unit| JobView::new(unit, snapshot)).map(|job| job.summary());
    text(job.as_ref().map_or("", |job| &job.text))
}

fn schedule(snapshot: &Snapshot, name: &str) -> Markup {
    let unit = snapshot.unit(name);
    let schedule = unit.and_then(|unit| ScheduleView::new(unit, snapshot));
    let summary = schedule.map(|schedule| schedule.summary());
    html! {
        @if let Some(schedule) = summary {
            (schedule.state)
            @if let Some(next) = schedule.next { ", next run " (time(next)) }
        }
    }
}

fn generation(generation: u64) -> Markup {
    html! { (generation) }
}

fn state_table(states: &[UnitStateEntity]) -> Markup {
    let columns = ["Machine", "State", "Since", "PID", "Restarts", "Last exit", "Problem"];
    html! {
        table.states role="table" aria-label="States on machines" {
            thead role="rowgroup" {
                tr role="row" {
                    @for column in columns { th role="columnheader" scope="col" { (column) } }
                }
            }
            tbody role="rowgroup" {
                @for state in states { (state_row(state)) }
            }
        }
    }
}

fn state_row(state: &UnitStateEntity) -> Markup {
    let active = state.systemd_active_state.as_str();
    let sub = Some(state.systemd_sub_state.as_str()).filter(|sub| *sub != active);
    let detail = match (sub.unwrap_or_default(), state.health.as_str()) {
        (sub, "") => sub.to_owned(),
        (sub, health) => format!("{sub} ({health})"),
    };
    let exit = [state.exit.as_str(), state.result.as_str()];
    let exit: Vec<&str> =
        exit.into_iter().filter(|text| !matches!(*text, "" | "success")).collect();
    let problems = [state.problem.as_str(), state.health_problem.as_str()];
    let problems: Vec<&str> = problems.into_iter().filter(|text| !text.is_empty()).collect();
    html! {
        tr role="row" {
            th role="rowheader" scope="row" { (machine_link(&state.machine_id)) }
            td role="cell" { (badge(Tone::of_active(active), active, &detail)) }
            td role="cell" { @if let Some(since) = state.since { (time(since)) } }
            td role="cell" { @if let Some(pid) = state.main_pid { (pid) } }
            td role="cell" { (state.restarts) }
            td role="cell" { (exit.join(", ")) }
            td role="cell" { (problems.join("; ")) }
        }
    }
}

/// The buttons that change the unit. They do not depend on its state, so that a change never moves
/// them under the pointer.
fn actions(unit: &UnitEntity) -> Markup {
    let url = unit_url(&unit.name);
    html! {
        section.actions aria-label="Actions" {
            (action(&url, "start", "Start", "main"))
            (action(&url, "stop", "Stop", ""))
            (action(&url, "restart", "Restart", ""))
            (action(&url, "unload", "Unload", ""))
            details.confirm {
                summary { "Destroy…" }
                p { "This stops " (unit.name) " and removes its file from the cluster." }
                (action(&url, "destroy", "Destroy the unit", "danger"))
            }
        }
    }
}

/// The verdicts of all machines on the unit, if they are requested.
fn placement(unit: &UnitEntity, explained: Option<&PlacementExplanation>) -> Markup {
    let Some(explained) = explained else {
        return html! {
            @if unit.problem.is_empty() {
                p { a href={ (unit_url(&unit.name)) "?explain=1#placement" } {
                    "Explain the placement"
                } }
            }
        };
    };
    html! {
        section #placement {
            h2 { "Placement" }
            @if !explained.reason.is_empty() { p { (explained.reason) } }
            @if !explained.group.is_empty() {
                p { "Placed together: " (explained.group.join(", ")) }
            }
            table {
                thead { tr { th { "Machine" } th { "Verdict" } th { "Reason" } } }
                tbody {
                    @for verdict in &explained.machines {
                        tr {
                            th scope="row" { (machine_link(&verdict.machine_id)) }
                            td { (verdict.verdict) }
                            td {
                                (verdict.text)
                                @if let Some(load) = verdict.load { (load) " units" }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The place of the journal. The script follows it; without the script, a link leads to it.
fn journal(unit: &UnitEntity) -> Markup {
    let url = format!("/fleet/v1/units/{}/journal", escape(&unit.name));
    html! {
        section aria-labelledby="journal-title" {
            div.title {
                h2 #journal-title { "Journal" }
                span #journal-state.sub role="status" {}
                button #journal-pause type="button" hidden { "Pause" }
            }
            noscript { p { a href={ (url) "?lines=200" } { "Show the last lines" } } }
            pre #journal.log data-url=(url) tabindex="0" role="log" aria-live="off"
                aria-label="Lines of the journal" {}
        }
    }
}

/// The last events of the unit, the latest first.
fn history(history: &UnitHistoryEntity) -> Markup {
    html! {
        section #history aria-label="History" {
            @if !history.events.is_empty() {
                h2 { "History" }
                ul {
                    @for event in history.events.iter().rev() {
                        li {
                            (time(event.at)) " " (event.text)
                            @if event.count > 1 { " (" (event.count) " times)" }
                        }
                    }
                }
            }
        }
    }
}

/// The files that the unit has had.
fn earlier_files(revisions: &[UnitRevisionEntity]) -> Markup {
    html! {
        @if revisions.len() > 1 {
            section {
                h2 { "Earlier files" }
                ol.history reversed {
                    @for revision in revisions.iter().rev() {
                        li value=(revision.number) {
                            details {
                                summary {
                                    code { (revision.hash.get(..7).unwrap_or_default()) }
                                    @if let Some(at) = revision.written_at { " " (time(at)) }
                                }
                                pre { (revision.source.as_deref().unwrap_or("not UTF-8")) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn file(unit: &UnitEntity) -> Markup {
    html! {
        @if let Some(source) = &unit.source {
            section {
                h2 { "Unit file" }
                pre #file tabindex="0" role="region" aria-label="Unit file" { (source) }
            }
        }
    }
}
