//! `POST /check`: checks unit files as the service managers of the machines do.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use fleet_core::manager::{ManagerInfo, ManagerVerdict};
use fleet_core::{Requirements, Snapshot};
use fleet_unitfile::{UnitFile, UnitName};

use super::extract::read_body;
use super::openapi::Failures;
use super::put;
use crate::clock::wall_time;
use crate::server::api::{SharedApi, UnitChecker};
use crate::server::failure::Failure;
use crate::wire::{CheckReport, CheckRequest, PutUnit, UnitCheck, UnitFinding, decode_check};

/// Check unit files as the service managers of the machines do.
///
/// Nothing is changed. Each unit is checked for all present machines that pass its filters, whether
/// or not they have room for it.
#[utoipa::path(
    post,
    path = "/check",
    operation_id = "checkUnits",
    tag = "units",
    request_body = CheckRequest,
    responses(
        (status = 200, body = CheckReport, description = "Verdicts on all unit files"),
        Failures,
    ),
)]
pub(crate) async fn check(
    State(api): State<SharedApi>,
    request: Request,
) -> Result<Json<CheckReport>, Failure> {
    let (head, body) = request.into_parts();
    let request_body =
        decode_check(&read_body(&head, body).await?).map_err(Failure::bad_request)?;
    let snapshot = api.view()?;
    let mut units = Vec::new();
    for entity in &request_body.units {
        let name = entity.name.clone().unwrap_or_default();
        units.push(unit(&api, entity, &snapshot).map_err(|failure| failure.with_context(&name))?);
    }
    let (version, checker) = (api.version.clone(), Arc::clone(&api.unit_checker));
    let check = move || {
        let machines = Candidates { snapshot: &snapshot, version: &version };
        units.iter().map(|unit| machines.check(unit, &checker)).collect()
    };
    let units = tokio::task::spawn_blocking(check).await.map_err(|error| {
        Failure::new(StatusCode::INTERNAL_SERVER_ERROR, format!("the check failed: {error}"))
    })?;
    Ok(Json(CheckReport { units }))
}

/// A unit file to check.
struct CheckedFile {
    name: UnitName,
    file: UnitFile,
    requirements: Requirements,
}

/// Reads the unit file of a request, or that of the existing unit.
fn unit(api: &SharedApi, entity: &PutUnit, known: &Snapshot) -> Result<CheckedFile, Failure> {
    let name = UnitName::parse(entity.name.as_deref().unwrap_or_default());
    let name = name.map_err(Failure::bad_request)?;
    match put::validated_file(entity)? {
        Some(sent) => {
            let requirements = put::requirements(&name, &sent.file, api.strictness)?;
            put::check_schedule(&name, &sent.file, &requirements, wall_time(), known)?;
            Ok(CheckedFile { name, file: sent.file, requirements })
        }
        None => {
            let unit = known.unit(name.as_str()).ok_or_else(Failure::no_unit)?;
            let (file, requirements) = (unit.file.clone(), (*unit.requirements).clone());
            Ok(CheckedFile { name, file, requirements })
        }
    }
}

/// The machines for which units are checked.
struct Candidates<'a> {
    snapshot: &'a Snapshot,
    /// Version whose tables of options the check uses.
    version: &'a str,
}

impl Candidates<'_> {
    /// Checks a unit once for each distinct service manager of the machines that could run it.
    fn check(&self, unit: &CheckedFile, checker: &UnitChecker) -> UnitCheck {
        let mut machines = 0;
        let mut managers: BTreeMap<&ManagerInfo, usize> = BTreeMap::new();
        for machine in self.snapshot.machines().filter(|it| unit.requirements.admits(it)) {
            machines += 1;
            let is_comparable = machine.version == self.version;
            if let Some(manager) = machine.manager.as_deref().filter(|_| is_comparable) {
                *managers.entry(manager).or_default() += 1;
            }
        }
        let mut refused_by = 0;
        let mut counts: BTreeMap<UnitFinding, usize> = BTreeMap::new();
        for (manager, count) in managers {
            let ManagerVerdict { refusal, warnings } = checker(manager, &unit.name, &unit.file);
            refused_by += if refusal.is_some() { count } else { 0 };
            let refusal = refusal.into_iter().map(|finding| ("error", finding));
            for (severity, it) in refusal.chain(warnings.into_iter().map(|it| ("warning", it))) {
                let (severity, message) = (severity.to_owned(), it.text);
                let finding = UnitFinding { severity, line: it.line, message, machines: 0 };
                *counts.entry(finding).or_default() += count;
            }
        }
        let findings = counts.into_iter().map(|(it, machines)| UnitFinding { machines, ..it });
        let (name, findings) = (unit.name.to_string(), findings.collect());
        UnitCheck { findings, machines, name, refused_by }
    }
}
