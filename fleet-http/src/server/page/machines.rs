//! The list of machines, the page of one machine, and the preview and progress of a drain.

use axum::extract::State;
use axum::response::Response;
use fleet_core::{ActiveState, Intent, Machine, MachineId, Snapshot, Unit};
use fleet_scheduler::share;
use maud::{Markup, PreEscaped, html};

use super::actions::notice;
use super::layout::{
    Access, Frame, Section, Tone, action, badge, line, machine_link, machine_url, page, text,
    unit_url, usage,
};
use super::units;
use super::units::row_on;
use crate::client::query::escape;
use crate::server::api::SharedApi;
use crate::server::auth::tokens::Rights;
use crate::server::failure::Failure;
use crate::server::handlers::extract::{Name, Params};
use crate::server::handlers::intents::{drain_preview, present_machine};
use crate::wire;
use crate::wire::{DrainReport, MachineEntity};

pub(super) async fn list(
    State(api): State<SharedApi>,
    Access(rights): Access,
    params: Params,
) -> Result<Response, Failure> {
    let snapshot = api.view()?;
    let query = params.first("q").unwrap_or_default();
    let columns = ["Machine", "State", "Units", "Failed", "Address", "Metadata", "Version"];
    let rows = snapshot.machines().map(|machine| row(&snapshot, machine).into_string());
    let main = html! {
        h1 { "Machines" }
        (units::filter("/ui/machines", query))
        table.machines role="table" aria-label="Machines" data-rows="" {
            thead role="rowgroup" {
                tr role="row" {
                    @for column in columns { th role="columnheader" scope="col" { (column) } }
                }
            }
            tbody role="rowgroup" { (PreEscaped(rows.collect::<String>())) }
        }
        (absent(&api))
    };
    let frame = Frame::new(&api, rights, "Machines", Section::Machines)
        .following("view=machines".to_owned(), snapshot.revision);
    Ok(page(frame.render(&main).into_string()))
}

/// Machines that were present while this daemon ran.
fn absent(api: &SharedApi) -> Markup {
    let absent = api.mirror.absent_machines();
    html! {
        @if !absent.is_empty() {
            section {
                h2 { "Absent machines" }
                ul {
                    @for (id, duration) in &absent {
                        li { (id) " was last present " (duration.as_secs()) " s ago" }
                    }
                }
            }
        }
    }
}

/// A row of the list of machines.
pub(super) fn row(snapshot: &Snapshot, machine: &Machine) -> Markup {
    let entity = wire::machine(machine);
    let (tone, state, detail) = state(snapshot, machine);
    let (count, failed) = load(snapshot, &machine.id);
    html! {
        tr role="row" data-unit=(entity.id) data-machine="" data-tone=(tone.as_str())
            data-state=(state) {
            th role="rowheader" scope="row" { (machine_link(&entity.id)) }
            td role="cell" { (badge(tone, state, detail)) }
            td role="cell" { (count) }
            td role="cell" { @if failed > 0 { span.badge data-tone="bad" { (failed) } } }
            td role="cell" { (entity.primary_ip) }
            td role="cell" { (metadata(&entity)) }
            td role="cell" { (entity.version) }
        }
    }
}

fn metadata(machine: &MachineEntity) -> Markup {
    html! {
        @for (index, (key, value)) in machine.metadata.iter().enumerate() {
            @if index > 0 { ", " }
            (key) "=" (value)
        }
    }
}

/// Returns the number of placed and global units on a machine, and of the failed ones among them.
fn load(snapshot: &Snapshot, id: &MachineId) -> (usize, usize) {
    let units = share(snapshot, id).units;
    let has_failed = |(unit, _): &&(std::sync::Arc<Unit>, _)| {
        let state = snapshot.state(unit.name.as_str(), id.as_str());
        state.is_some_and(|state| state.systemd.active == ActiveState::Failed)
    };
    (units.len(), units.values().filter(has_failed).count())
}

fn state(snapshot: &Snapshot, machine: &Machine) -> (Tone, &'static str, &'static str) {
    match machine.intent {
        Some(Intent::Drained { .. }) => {
            let left = snapshot.placements_on(&machine.id).next().is_some();
            if left { (Tone::Busy, "draining", "") } else { (Tone::Idle, "drained", "") }
        }
        Some(Intent::Cordoned) => (Tone::Idle, "cordoned", ""),
        None if machine.cordoned => (Tone::Idle, "cordoned", "by its configuration"),
        None => (Tone::Good, "ready", ""),
    }
}

pub(super) async fn show(
    State(api): State<SharedApi>,
    Name(id): Name,
    Access(rights): Access,
    params: Params,
) -> Result<Response, Failure> {
    let snapshot = api.view()?;
    let machine = present_machine(&snapshot, &id)?;
    let main = html! {
        (status(&snapshot, &machine.id))
        @if rights == Rights::Write { (actions(machine)) }
        (usage(&id, ""))
        h2 { "Units" }
        (units::filter(&machine_url(&id), params.first("q").unwrap_or_default()))
        (units::table("Units of the machine", &rows(&api, &snapshot, &machine.id), false))
    };
    let frame = Frame::new(&api, rights, &id, Section::Machines)
        .following(format!("view=machine&id={}", escape(&id)), snapshot.revision)
        .with_notice(notice(&params));
    Ok(page(frame.render(&main).into_string()))
}

/// The ID and the state of a machine. Rendered again after each change.
pub(super) fn status(snapshot: &Snapshot, id: &MachineId) -> Markup {
    let Some(machine) = snapshot.machine(id.as_str()) else {
        return html! {
            section #status aria-label="Status" {
                div.title { h1 { (id) } (badge(Tone::Unknown, "absent", "")) }
            }
        };
    };
    let entity = wire::machine(machine);
    let (tone, state, detail) = state(snapshot, machine);
    let manager = entity.service_manager.as_ref().map_or("", |manager| &manager.kind);
    html! {
        section #status aria-label="Status" {
            div.title { h1 { (id) } (badge(tone, state, detail)) }
            dl.facts {
                (line("Address", &text(&entity.primary_ip)))
                (line("Metadata", &metadata(&entity)))
                (line("Service manager", &text(manager)))
                (line("Version", &text(&entity.version)))
                (line("Offers", &offers(&entity)))
            }
        }
    }
}

fn offers(machine: &MachineEntity) -> Markup {
    const MIB: u64 = 1 << 20;
    let offers = &machine.offers;
    html! {
        @if !offers.is_nothing() {
            (offers.cpu) " m CPU, " (offers.memory / MIB) " MiB memory, "
            (offers.disk / MIB) " MiB disk"
        }
    }
}

/// The rows of all units that run on a machine, or that are placed there.
fn rows(api: &SharedApi, snapshot: &Snapshot, id: &MachineId) -> Markup {
    let units = share(snapshot, id).units;
    let leaving = snapshot.states().filter(|state| state.machine == *id);
    let leaving = leaving.map(|state| state.unit.clone());
    let names: std::collections::BTreeSet<_> = units.into_keys().chain(leaving).collect();
    html! {
        @for name in &names {
            @if let Some(row) = row_on(api, snapshot, name, id) { (row.render()) }
        }
    }
}

fn actions(machine: &Machine) -> Markup {
    let url = machine_url(machine.id.as_str());
    html! {
        section.actions aria-label="Actions" {
            @if machine.intent.is_none() {
                (action(&url, "cordon", "Cordon", ""))
            } @else {
                (action(&url, "uncordon", "Uncordon", "main"))
            }
            a.button href={ (url) "/drain" } { "Drain…" }
        }
    }
}

pub(super) async fn drain(
    State(api): State<SharedApi>,
    Name(id): Name,
    Access(rights): Access,
    params: Params,
) -> Result<Response, Failure> {
    let snapshot = api.view()?;
    let machine = present_machine(&snapshot, &id)?;
    let under_way = machine.intent.and_then(Intent::min_available);
    let report = drain_preview(&api, &id, &params).await?;
    let title = if under_way.is_some() { "Drain in progress" } else { "Plan of the drain" };
    let main = html! {
        p { a href=(machine_url(&id)) { "Back to the machine" } }
        h1 { (title) ": " (machine_link(&id)) }
        (drain_report(&report))
        @if rights == Rights::Write {
            @if under_way.is_some() {
                (action(&machine_url(&id), "uncordon", "End the drain", ""))
            } @else {
                (drain_forms(&id, &report))
            }
        }
    };
    let frame = Frame::new(&api, rights, "Drain", Section::Machines).with_notice(notice(&params));
    Ok(page(frame.render(&main).into_string()))
}

/// The forms that plan again with another limit, and that start the drain.
fn drain_forms(id: &str, report: &DrainReport) -> Markup {
    let url = format!("{}/drain", machine_url(id));
    html! {
        div.actions {
            form method="get" action=(url) {
                label for="keep-up" { "Instances of a template that stay up" }
                input #keep-up type="number" name="keepUp" min="0" value=(report.min_available);
                button { "Plan again" }
            }
            form method="post" action=(url) {
                input type="hidden" name="keepUp" value=(report.min_available);
                button.main #start-drain { "Start the drain" }
            }
        }
    }
}

fn drain_report(report: &DrainReport) -> Markup {
    html! {
        @if report.is_empty() { p { "No unit has to leave the machine." } }
        @if !report.moves.is_empty() {
            h2 { "Moves next" }
            table #moves {
                thead { tr { th { "Unit" } th { "To" } } }
                tbody {
                    @for step in &report.moves {
                        tr { th scope="row" { (unit(&step.unit)) } td { (machine_link(&step.to)) } }
                    }
                }
            }
        }
        @if !report.held.is_empty() {
            h2 { "Cannot move yet" }
            table #held {
                thead { tr { th { "Unit" } th { "Reason" } } }
                tbody {
                    @for held in &report.held {
                        tr { th scope="row" { (unit(&held.unit)) } td { (held.reason) } }
                    }
                }
            }
        }
        (names("Still stopping", &report.leaving))
        (names("Global units, which stay", &report.global))
    }
}

fn unit(name: &str) -> Markup {
    html! { a href=(unit_url(name)) { (name) } }
}

fn names(title: &str, units: &[String]) -> Markup {
    html! {
        @if !units.is_empty() {
            h2 { (title) }
            ul { @for name in units { li { (unit(name)) } } }
        }
    }
}
