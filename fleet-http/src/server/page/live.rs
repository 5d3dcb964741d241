//! Changes for open pages, as server-sent events with rendered rows and sections.
//!
//! An event names the rows of a unit, a single row, or a section by its ID, each with its HTML. The
//! same functions render the pages. Changes of the lists are rendered once for all open pages.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use axum::body::Bytes;
use axum::extract::{Extension, State};
use axum::http::HeaderMap;
use axum::response::Response;
use fleet_core::{MachineId, Snapshot};
use fleet_unitfile::UnitName;
use serde::Serialize;

use super::units::{row_on, rows_of};
use super::{machines, unit, units};
use crate::server::api::SharedApi;
use crate::server::failure::Failure;
use crate::server::handlers::extract::Params;
use crate::server::net::connection::Shutdown;
use crate::server::stream::events::{
    Batch, EncodedEvent, follow as follow_batches, id_lines, position,
};

/// The page whose changes a stream contains.
enum View {
    Units,
    Machines,
    Unit(UnitName),
    Machine(MachineId),
}

impl View {
    fn read(params: &Params) -> Result<Self, Failure> {
        let text = |name| params.first(name).unwrap_or_default();
        match text("view") {
            "units" => Ok(Self::Units),
            "machines" => Ok(Self::Machines),
            "unit" => Ok(Self::Unit(text("name").parse().map_err(Failure::bad_request)?)),
            "machine" => Ok(Self::Machine(text("id").parse().map_err(Failure::bad_request)?)),
            other => Err(Failure::bad_request(format!("no page {other:?} has changes"))),
        }
    }
}

/// Follows the changes of one page, after the revision `since`.
pub(super) async fn follow(
    State(api): State<SharedApi>,
    shutdown: Option<Extension<Shutdown>>,
    headers: HeaderMap,
    params: Params,
) -> Result<Response, Failure> {
    let (view, seen) = (View::read(&params)?, position(&headers, &params)?);
    let shared = api.clone();
    follow_batches(&api, seen, shutdown, move |batch| encode(&shared, &view, batch))
}

/// Changes of the lists in a batch, encoded when the first page needs them. `None` if nothing
/// changes.
#[derive(Debug, Default)]
pub(in crate::server) struct ListPatches {
    units: OnceLock<Option<Bytes>>,
    machines: OnceLock<Option<Bytes>>,
}

/// The object that an event is about.
#[derive(Clone, Copy)]
enum Subject<'a> {
    Unit(&'a UnitName),
    State(&'a UnitName, &'a MachineId),
    Machine(&'a MachineId),
    Rebalancing,
}

impl<'a> Subject<'a> {
    fn of(event: &'a EncodedEvent) -> Self {
        match (&event.unit, &event.machines[0]) {
            (Some(unit), Some(machine)) if event.is_state => Self::State(unit, machine),
            (Some(unit), _) => Self::Unit(unit),
            (None, Some(machine)) => Self::Machine(machine),
            (None, None) => Self::Rebalancing,
        }
    }
}

fn encode(api: &SharedApi, view: &View, batch: &Batch) -> Option<Bytes> {
    if batch.is_resync {
        return Some(lines(api, batch, "reload", "{}"));
    }
    let snapshot = api.mirror.snapshot();
    let patch = |patch: Patch<'_>| patch.lines(api, batch);
    let shared = |once: &OnceLock<Option<Bytes>>, render: &dyn Fn() -> Option<Bytes>| {
        once.get_or_init(render).clone()
    };
    match view {
        View::Units => shared(&batch.patches.units, &|| patch(Patch::units(api, &snapshot, batch))),
        View::Machines => {
            shared(&batch.patches.machines, &|| patch(Patch::machines(&snapshot, batch)))
        }
        View::Unit(name) => patch(Patch::unit(api, &snapshot, batch, name)),
        View::Machine(id) => patch(Patch::machine(api, &snapshot, batch, id)),
    }
}

/// Encodes an event, followed by its position.
fn lines(api: &SharedApi, batch: &Batch, event: &str, data: &str) -> Bytes {
    let lineage = api.mirror.lineage().map(|lineage| lineage.to_string());
    let id = id_lines(batch.revision, lineage.as_deref());
    format!("event: {event}\ndata: {data}\n{id}").into()
}

/// Rows of one unit: the machine and the HTML of each.
type UnitRows<'a> = (&'a str, Vec<(String, String)>);

/// Changes of a page.
#[derive(Default, Serialize)]
struct Patch<'a> {
    /// All rows of these units. A row that is not listed is to be removed.
    units: Vec<UnitRows<'a>>,
    /// Single rows: the unit, the machine and the HTML, which is empty for a row to remove.
    rows: Vec<(&'a str, &'a str, String)>,
    /// Sections or texts: the ID of the element, and its HTML.
    parts: Vec<(&'static str, String)>,
}

impl<'a> Patch<'a> {
    /// A global unit has a row for each machine, so a change of one state renders only its row.
    fn units(api: &SharedApi, snapshot: &Snapshot, batch: &'a Batch) -> Self {
        let (mut whole, mut single) = (BTreeSet::new(), BTreeSet::new());
        let is_global =
            |name: &UnitName| snapshot.unit(name.as_str()).is_some_and(|unit| unit.is_global());
        for event in &batch.events {
            match Subject::of(event) {
                Subject::State(name, machine) if is_global(name) => {
                    single.insert((name, machine));
                }
                Subject::Unit(name) | Subject::State(name, _) => {
                    whole.insert(name);
                }
                Subject::Machine(_) | Subject::Rebalancing => {}
            }
        }
        single.retain(|(name, _)| !whole.contains(name));
        let single = single.into_iter().map(|(name, machine)| {
            (name.as_str(), machine.as_str(), single_row(api, snapshot, name, machine))
        });
        let rows = |name: &UnitName| {
            let rows = rows_of(api, snapshot, name.as_str()).into_iter();
            rows.map(|row| (row.machine().to_owned(), row.render().into_string())).collect()
        };
        let numbers = [
            ("count-units", units::units(snapshot).to_string()),
            ("count-machines", snapshot.machines().len().to_string()),
        ];
        Self {
            rows: single.collect(),
            units: whole.into_iter().map(|name| (name.as_str(), rows(name))).collect(),
            parts: numbers.into(),
        }
    }

    fn machines(snapshot: &Snapshot, batch: &'a Batch) -> Self {
        let ids = batch.events.iter().flat_map(|event| event.machines.iter().flatten());
        let ids: BTreeSet<&MachineId> = ids.collect();
        let row = |id: &MachineId| {
            let machine = snapshot.machine(id.as_str());
            let row = machine.map(|machine| machines::row(snapshot, machine).into_string());
            row.into_iter().map(|html| (String::new(), html)).collect()
        };
        Self {
            units: ids.into_iter().map(|id| (id.as_str(), row(id))).collect(),
            ..Self::default()
        }
    }

    fn unit(api: &SharedApi, snapshot: &Snapshot, batch: &Batch, wanted: &UnitName) -> Self {
        let mut patch = Self::default();
        if batch.events.iter().any(|event| event.unit.as_ref() == Some(wanted)) {
            let status = unit::status(api, snapshot, wanted.as_str()).into_string();
            patch.parts.push(("status", status));
        }
        patch
    }

    fn machine(
        api: &SharedApi,
        snapshot: &Snapshot,
        batch: &'a Batch,
        wanted: &'a MachineId,
    ) -> Self {
        let mut patch = Self::default();
        let mut names = BTreeSet::new();
        for event in &batch.events {
            match Subject::of(event) {
                Subject::Unit(name) => drop(names.insert(name)),
                Subject::State(name, id) if id == wanted => drop(names.insert(name)),
                Subject::Machine(id) if id == wanted && patch.parts.is_empty() => {
                    let status = machines::status(snapshot, wanted).into_string();
                    patch.parts.push(("status", status));
                }
                _ => {}
            }
        }
        let row = |name: &'a UnitName| {
            (name.as_str(), wanted.as_str(), single_row(api, snapshot, name, wanted))
        };
        patch.rows = names.into_iter().map(row).collect();
        patch
    }

    /// Returns the encoded patch, or `None` if it changes nothing.
    fn lines(&self, api: &SharedApi, batch: &Batch) -> Option<Bytes> {
        if self.units.is_empty() && self.rows.is_empty() && self.parts.is_empty() {
            return None;
        }
        let data = serde_json::to_string(self).expect("a patch holds nothing but text");
        Some(lines(api, batch, "patch", &data))
    }
}

fn single_row(
    api: &SharedApi,
    snapshot: &Snapshot,
    name: &UnitName,
    machine: &MachineId,
) -> String {
    let row = row_on(api, snapshot, name, machine);
    row.map_or_else(String::new, |row| row.render().into_string())
}
