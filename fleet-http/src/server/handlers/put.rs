//! `PUT /units/<name>`: creates a unit, replaces its content or sets its desired state. Submitted
//! units pass the same checks in each case.

use axum::extract::{Request, State};
use axum::http::header::{CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fleet_core::cycle::{machine_of_cycle, replaces_cycle, start_after_cycle};
use fleet_core::requirements::RequirementErrors;
use fleet_core::{
    Generation, Requirements, Revision, Snapshot, Strictness, TargetState, Timestamp, Unit,
};
use fleet_store::RegistryError;
use fleet_store::registry::{ExpectUnit, NewUnit};
use fleet_unitfile::calendar::Zone;
use fleet_unitfile::{Diagnostic, Severity, UnitFile, UnitName, UnitOption};
use jiff::tz::TimeZone;

use super::extract::{Condition, Name, Params, dry_run, read_body};
use super::openapi::{self as path, DryRun, DryRunResult, Failures};
use super::units;
use crate::clock::wall_time;
use crate::server::api::SharedApi;
use crate::server::failure::Failure;
use crate::server::handlers::extract;
use crate::wire::{ErrorDetail, PutUnit, decode_put};

/// Create a unit, replace its unit file, or set its desired state.
///
/// Returns 201 if the unit was created or its content was replaced. Returns 204 if only its desired
/// state was set. With `dryRun=1` nothing is changed, and the response is the plan with status 200.
#[utoipa::path(
    put,
    path = "/units/{name}",
    operation_id = "putUnit",
    tag = "units",
    params(
        path::UnitName,
        DryRun,
        (
            "If-Match" = Option<String>, Header,
            description = "Entity tag; the write fails if the unit was modified since",
        ),
        (
            "If-None-Match" = Option<String>, Header,
            description = "With *, the write fails if the unit exists",
        ),
    ),
    request_body = PutUnit,
    responses(
        DryRunResult,
        (status = 201, description = "The unit was created or its file replaced"),
        (status = 204, description = "The desired state was set"),
        Failures,
    ),
)]
pub(crate) async fn put(
    State(api): State<SharedApi>,
    Name(name): Name,
    params: Params,
    request: Request,
) -> Result<Response, Failure> {
    let is_dry = params.dry_run()?;
    let (head, body) = request.into_parts();
    check_content_type(&head.headers)?;
    let create_only = create_only(&head.headers)?;
    let condition = Condition::read(&head.headers, &api.mirror);
    if create_only && condition != Condition::None {
        return Err(Failure::bad_request(
            "the headers If-Match and If-None-Match cannot be combined: send one of them",
        ));
    }
    let entity = decode_put(&read_body(&head, body).await?).map_err(Failure::bad_request)?;
    let name = unit_name(&name, &entity)?;
    let desired = desired_state(&name, &entity)?;
    let known = api.view()?;
    if !condition.holds(&api.mirror, &known, &name) {
        return Err(units::precondition_failed_at(&api, &known, &name));
    }
    let write = match validated_file(&entity)? {
        None => change_state(&api, name, desired, create_only)?,
        Some(sent) => {
            let generation = generation(&entity)?;
            put_file(&api, name, sent, generation, desired, create_only)?
        }
    };
    if is_dry { write.preview(&*api.view()?).await } else { write.apply(&api, condition).await }
}

/// Largest generation of a created unit, which leaves room for later ones.
const MAX_GENERATION: u64 = 1 << 53;

/// A validated write.
enum Write {
    /// Sets the desired state of an existing unit.
    State(UnitName, TargetState),
    /// Stores a unit with its file. `unchanged` is `true` if the existing unit already has this
    /// file.
    /// A created unit gets the generation of `unit`.
    File { unit: Box<Unit>, expect: ExpectUnit, unchanged: bool },
}

impl Write {
    async fn apply(self, api: &SharedApi, condition: Condition) -> Result<Response, Failure> {
        let written = match self {
            Self::State(name, desired) => {
                let set = set_desired(api, &name, desired, condition).await;
                set.map(|revision| (revision, StatusCode::NO_CONTENT))
                    .map_err(|error| (error, name))
            }
            Self::File { unit, expect, unchanged } => {
                let Unit { name, file, desired, generation, .. } = *unit;
                let new = NewUnit { name: name.clone(), file, desired };
                let status = if unchanged { StatusCode::NO_CONTENT } else { StatusCode::CREATED };
                let put =
                    api.registry.put_imported_unit(new, generation, condition.expect(expect)).await;
                put.map(|revision| (revision, status)).map_err(|error| (error, name))
            }
        };
        let (revision, status) = match written {
            Ok(written) => written,
            Err((RegistryError::Changed { modified, .. }, name)) => {
                return Err(units::precondition_failed(api, &name, modified).await);
            }
            Err((RegistryError::NotFound { .. }, name)) if condition != Condition::None => {
                return Err(units::precondition_failed_at(api, &*api.view()?, &name));
            }
            Err((RegistryError::NotFound { .. }, _)) => return Err(nothing_to_create()),
            Err((RegistryError::AlreadyExists { modified, .. }, _)) => {
                // The client is likely to read the existing unit next.
                api.wait_until_visible(modified).await;
                return Err(Failure::already_exists());
            }
            Err((error, _)) => return Err(error.into()),
        };
        api.wait_until_visible(revision).await;
        Ok((status, [(ETAG, extract::etag_of(&api.mirror, revision))]).into_response())
    }

    async fn preview(self, known: &Snapshot) -> Result<Response, Failure> {
        let unit = match self {
            Self::State(name, desired) => {
                let Some(unit) = known.unit(name.as_str()) else {
                    return Err(match known.fault(name.as_str()) {
                        Some(_) => unreadable(&name),
                        None => nothing_to_create(),
                    });
                };
                Unit { desired, ..Unit::clone(unit) }
            }
            Self::File { unit, .. } => *unit,
        };
        dry_run(known, |after| after.put_unit(unit)).await
    }
}

async fn set_desired(
    api: &SharedApi,
    name: &UnitName,
    desired: TargetState,
    condition: Condition,
) -> Result<Revision, RegistryError> {
    if let Condition::UnchangedSince(seen) = condition {
        return api.registry.set_desired_if_unchanged(name, desired, seen).await;
    }
    match api.mirror.snapshot().unit(name.as_str()) {
        Some(unit) => api.registry.set_desired_optimistic(unit, desired).await,
        None => api.registry.set_desired(name, desired).await,
    }
}

/// Prepares the write for a request without a unit file. The write sets the desired state of an
/// existing unit.
fn change_state(
    api: &SharedApi,
    name: UnitName,
    desired: Option<TargetState>,
    create_only: bool,
) -> Result<Write, Failure> {
    let snapshot = api.view()?;
    let known = snapshot.unit(name.as_str()).is_some() || snapshot.fault(name.as_str()).is_some();
    if create_only {
        return Err(if known { Failure::already_exists() } else { nothing_to_create() });
    }
    match desired {
        Some(desired) => Ok(Write::State(name, desired)),
        None if known => Err(no_state()),
        None => Err(nothing_to_create()),
    }
}

/// Prepares the write for a request with a unit file. The write creates a unit or replaces its
/// content.
fn put_file(
    api: &SharedApi,
    name: UnitName,
    sent: SubmittedFile,
    generation: Option<Generation>,
    desired: Option<TargetState>,
    create_only: bool,
) -> Result<Write, Failure> {
    let snapshot = api.view()?;
    // The schedule of an imported unit may have elapsed.
    let now = if generation.is_some() { Timestamp::default() } else { wall_time() };
    let checks = (api.strictness, now);
    let mut unit = validated_unit(&name, &sent.file, desired, checks, &snapshot)?;
    unit.generation = generation.unwrap_or_default();
    let mut after = Snapshot::clone(&snapshot);
    after.put_unit(unit.clone());
    check_start_order(&after, [&name])?;
    let known = snapshot.unit(name.as_str());
    if create_only && (known.is_some() || snapshot.fault(name.as_str()).is_some()) {
        return Err(Failure::already_exists());
    }
    let unchanged = known.filter(|known| sent.matches(&known.file));
    if unchanged.is_some() && desired.is_none() {
        return Err(no_state());
    }
    // The snapshot may be older than the store, so unchanged content is stored again.
    if let Some(known) = unchanged {
        unit.file = known.file.clone();
    }
    let expect = if create_only { ExpectUnit::Absent } else { ExpectUnit::Any };
    Ok(Write::File { unit: unit.into(), expect, unchanged: unchanged.is_some() })
}

/// Returns the generation for a created unit, which an import gives.
fn generation(entity: &PutUnit) -> Result<Option<Generation>, Failure> {
    match entity.generation {
        Some(generation) if generation > MAX_GENERATION => {
            Err(Failure::bad_request(format!("generation {generation} is larger than 2^53")))
        }
        generation => Ok(generation.map(Generation)),
    }
}

fn nothing_to_create() -> Failure {
    Failure::conflict("unit does not exist and options field empty")
}

fn unreadable(name: &UnitName) -> Failure {
    Failure::conflict(format!(
        "unit {name} cannot be read from the store: include its unit file in the request"
    ))
}

fn no_state() -> Failure {
    Failure::conflict("must provide DesiredState to update existing unit")
}

fn check_content_type(headers: &HeaderMap) -> Result<(), Failure> {
    let refused = |message: String| Failure::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message);
    let values: Vec<_> = headers.get_all(CONTENT_TYPE).iter().collect();
    let [value] = values[..] else {
        return Err(refused(format!("expected 1 Content-Type, got {}", values.len())));
    };
    let media_type = value.to_str().unwrap_or_default().split(';').next().unwrap_or_default();
    if media_type.trim() != "application/json" {
        return Err(refused("only acceptable Content-Type is application/json".to_owned()));
    }
    Ok(())
}

/// Whether the request must not modify an existing unit.
fn create_only(headers: &HeaderMap) -> Result<bool, Failure> {
    match headers.get(IF_NONE_MATCH) {
        None => Ok(false),
        Some(value) if value == "*" => Ok(true),
        Some(_) => Err(Failure::bad_request(
            "the header If-None-Match must be *: for a conditional write, send the tag as If-Match",
        )),
    }
}

fn unit_name(in_url: &str, entity: &PutUnit) -> Result<UnitName, Failure> {
    let in_body = entity.name.as_deref().unwrap_or_default();
    if !in_body.is_empty() && in_body != in_url {
        return Err(Failure::bad_request(format!(
            "name in URL {in_url:?} differs from unit name in request body {in_body:?}"
        )));
    }
    UnitName::parse(in_url).map_err(Failure::bad_request)
}

/// Returns the requested desired state, or `None` if the request contains none. For a template,
/// only inactive is allowed, because a template never runs.
pub(crate) fn desired_state(
    name: &UnitName,
    entity: &PutUnit,
) -> Result<Option<TargetState>, Failure> {
    let Some(text) = entity.desired_state.as_deref().filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let desired: TargetState = text.parse().map_err(Failure::bad_request)?;
    if name.is_template() && desired != TargetState::Inactive {
        return Err(Failure::bad_request(format!(
            "cannot activate template {:?}: activate an instance of it",
            name.as_str()
        )));
    }
    Ok(Some(desired))
}

/// A submitted unit file.
pub(crate) struct SubmittedFile {
    /// The unit file.
    pub(crate) file: UnitFile,
    /// Whether its bytes were submitted, rather than only its options.
    by_source: bool,
}

impl SubmittedFile {
    /// Returns whether storing the submitted file would leave the unit's `file` unchanged. If a
    /// source was submitted, every byte must be equal. If only options were submitted, the options
    /// must be equal.
    pub(crate) fn matches(&self, file: &UnitFile) -> bool {
        let same = self.file.hash() == file.hash();
        same && (!self.by_source || self.file.source() == file.source())
    }
}

/// Returns the submitted unit file, read from its source or its options. Returns `None` if neither
/// was submitted. If both were, they must contain the same options.
pub(crate) fn validated_file(entity: &PutUnit) -> Result<Option<SubmittedFile>, Failure> {
    let options = entity.options.as_deref().filter(|options| !options.is_empty());
    let from_options = options.map(file_from_options).transpose()?;
    let from_source = source(entity)?.map(|source| file_from_source(&source)).transpose()?;
    if let (Some(one), Some(other)) = (&from_source, &from_options)
        && one.hash() != other.hash()
    {
        return Err(Failure::bad_request(
            "the fields source and options have different contents: send only one of them",
        ));
    }
    let by_source = from_source.is_some();
    Ok(from_source.or(from_options).map(|file| SubmittedFile { file, by_source }))
}

fn source(entity: &PutUnit) -> Result<Option<Vec<u8>>, Failure> {
    match (&entity.source, &entity.source_base64) {
        (None, None) => Ok(None),
        (Some(text), None) => Ok(Some(text.clone().into_bytes())),
        (None, Some(text)) => match STANDARD.decode(text) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) => Err(Failure::bad_request(format!(
                "the field sourceBase64 cannot be decoded: {error}"
            ))),
        },
        (Some(_), Some(_)) => Err(Failure::bad_request(
            "the fields source and sourceBase64 cannot be combined: send one of them",
        )),
    }
}

fn file_from_source(source: &[u8]) -> Result<UnitFile, Failure> {
    let (file, diagnostics) = UnitFile::parse_collecting(source);
    let errors: Vec<&Diagnostic> =
        diagnostics.iter().filter(|diagnostic| diagnostic.severity() == Severity::Error).collect();
    if !errors.is_empty() {
        let message = lines(errors.iter());
        return Err(Failure::invalid(message, errors.into_iter().map(syntax_detail).collect()));
    }
    if file.options().is_empty() {
        return Err(Failure::bad_request("the unit file has no options: write at least one"));
    }
    Ok(file)
}

fn file_from_options(options: &[crate::wire::UnitOptionEntity]) -> Result<UnitFile, Failure> {
    let options = options.iter().map(|o| UnitOption::new(&o.section, &o.name, &o.value));
    UnitFile::from_options(options).map_err(Failure::bad_request)
}

/// Builds the requested unit and validates it together with the existing units, except for its
/// `StartAfter=`, which [`check_start_order`] checks once for all written units.
///
/// A schedule of a new file must elapse after `now`.
pub(crate) fn validated_unit(
    name: &UnitName,
    file: &UnitFile,
    desired: Option<TargetState>,
    (strictness, now): (Strictness, Timestamp),
    known: &Snapshot,
) -> Result<Unit, Failure> {
    let requirements = requirements(name, file, strictness)?;
    check_schedule(name, file, &requirements, now, known)?;
    let desired = desired.unwrap_or(TargetState::Inactive);
    let unit = Unit::new(name.clone(), file.clone(), requirements, desired);
    let cycle = machine_of_cycle(known, &unit).or_else(|| replaces_cycle(known, &unit));
    match cycle {
        Some(cycle) => Err(Failure::bad_request(cycle)),
        None => Ok(unit),
    }
}

/// Refuses a cycle of `StartAfter=` that one of these units is part of, or waits for.
pub(crate) fn check_start_order<'a>(
    after: &'a Snapshot,
    written: impl IntoIterator<Item = &'a UnitName>,
) -> Result<(), Failure> {
    start_after_cycle(after, written).map_or(Ok(()), |cycle| Err(Failure::bad_request(cycle)))
}

/// Parses the requirements of a unit file, and logs the warnings.
pub(crate) fn requirements(
    name: &UnitName,
    file: &UnitFile,
    strictness: Strictness,
) -> Result<Requirements, Failure> {
    let parsed = Requirements::parse(name, file, strictness).map_err(bad_requirements)?;
    for warning in &parsed.warnings {
        tracing::warn!(unit = %name, "{warning}");
    }
    Ok(parsed.requirements)
}

/// Refuses a schedule whose time zone this machine does not know. Also refuses one that never
/// elapses after `now`, unless the unit has it already.
pub(crate) fn check_schedule(
    name: &UnitName,
    file: &UnitFile,
    requirements: &Requirements,
    now: Timestamp,
    known: &Snapshot,
) -> Result<(), Failure> {
    let schedule = requirements.job.as_ref().and_then(|job| job.schedule.as_ref());
    let Some(schedule) = schedule else { return Ok(()) };
    let stored = known.unit(name.as_str()).and_then(|unit| unit.requirements.job.as_ref());
    let stored = stored.and_then(|job| job.schedule.as_ref());
    let is_known = stored.is_some_and(|stored| stored.calendar == schedule.calendar);
    let now = if is_known { Timestamp::default() } else { now };
    let zone = schedule.calendar.time_zone(&TimeZone::UTC, jiff::tz::db()).ok();
    let zone = zone.as_ref().map(|zone| zone as &dyn Zone);
    requirements.check_schedule(file, zone, now).map_err(bad_requirements)
}

fn bad_requirements(errors: RequirementErrors) -> Failure {
    let details = errors.iter().map(|error| ErrorDetail {
        column: error.location.column,
        help: error.help(),
        line: error.location.line,
        message: error.message(),
    });
    Failure::invalid(&errors, details.collect())
}

fn syntax_detail(diagnostic: &Diagnostic) -> ErrorDetail {
    ErrorDetail {
        column: diagnostic.location().column,
        help: diagnostic.help().to_owned(),
        line: diagnostic.location().line,
        message: diagnostic.message(),
    }
}

fn lines<T: ToString>(items: impl Iterator<Item = T>) -> String {
    items.map(|item| item.to_string()).collect::<Vec<_>>().join("\n")
}
