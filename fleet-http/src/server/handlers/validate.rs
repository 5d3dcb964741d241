//! Validates submitted units, for creation and replacement alike.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fleet_core::{RequirementErrors, Requirements, Snapshot, Strictness, TargetState, Unit};
use fleet_core::{machine_of_cycle, replaces_cycle};
use fleet_unitfile::{Diagnostic, Severity, UnitFile, UnitName, UnitOption};

use crate::server::failure::Failure;
use crate::wire::{ErrorDetail, PutUnit};

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
pub(crate) fn unit_file(entity: &PutUnit) -> Result<Option<SubmittedFile>, Failure> {
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

/// Builds the requested unit and validates it together with the existing units.
pub(crate) fn unit(
    name: &UnitName,
    file: &UnitFile,
    desired: Option<TargetState>,
    strictness: Strictness,
    known: &Snapshot,
) -> Result<Unit, Failure> {
    let parsed = Requirements::parse(name, file, strictness).map_err(bad_requirements)?;
    for warning in &parsed.warnings {
        tracing::warn!(unit = %name, "{warning}");
    }
    let desired = desired.unwrap_or(TargetState::Inactive);
    let unit = Unit::new(name.clone(), file.clone(), parsed.requirements, desired);
    let cycle = machine_of_cycle(known, &unit).or_else(|| replaces_cycle(known, &unit));
    match cycle {
        Some(cycle) => Err(Failure::bad_request(cycle)),
        None => Ok(unit),
    }
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
