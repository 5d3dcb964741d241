//! Unit uploads and conditional writes. A conditional write changes a unit only if no other client
//! has modified it in the meantime.

use fleet_core::TargetState;
use fleet_unitfile::{UnitFile, UnitName};
use hyper::Method;
use hyper::header::{HeaderName, HeaderValue, IF_MATCH, IF_NONE_MATCH};

use super::{Client, ClientError, none_if_not_found, unit_path};
use crate::setters::setters;
use crate::wire::{PutUnit, UnitEntity};

/// A unit with its entity tag.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WithEtag {
    /// The unit with its source.
    pub unit: UnitEntity,
    /// The entity tag, for conditional writes.
    pub etag: String,
}

impl Client {
    /// Returns the unit of that name with its entity tag, or `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// Returns [`ClientError`] if the request fails.
    pub async fn unit_with_etag(&self, name: &UnitName) -> Result<Option<WithEtag>, ClientError> {
        let Some((unit, etag)) =
            none_if_not_found(self.caller.get_with_etag(&unit_path(name)).await)?
        else {
            return Ok(None);
        };
        let etag = etag.ok_or_else(|| self.caller.bad_response("the unit has no entity tag"))?;
        Ok(Some(WithEtag { unit, etag }))
    }

    /// Replaces the content of a unit, provided that the unit is still as it was when `etag` was
    /// returned. Returns `false` if the unit was modified or destroyed since then. In that case,
    /// read the unit again before retrying.
    ///
    /// # Errors
    ///
    /// As for [`put_unit`](Self::put_unit).
    pub async fn put_unit_if(
        &self,
        name: &UnitName,
        upload: &UnitUpload,
        etag: &str,
    ) -> Result<bool, ClientError> {
        let (header, entity) = (self.if_match(etag)?, upload.entity());
        let put = self.caller.send(Method::PUT, &unit_path(name), Some(header), &entity).await;
        unchanged(put.map(drop))
    }

    /// Destroys a unit, provided that the unit is still as it was when `etag` was returned. Returns
    /// `false` if the unit was modified or destroyed since then. In that case, read the unit again
    /// before retrying.
    ///
    /// # Errors
    ///
    /// Returns [`ClientError`] if the request fails.
    pub async fn destroy_if(&self, name: &UnitName, etag: &str) -> Result<bool, ClientError> {
        let header = Some(self.if_match(etag)?);
        let gone = self.caller.send_empty_with(Method::DELETE, &unit_path(name), header).await;
        unchanged(gone.map(drop))
    }

    fn if_match(&self, etag: &str) -> Result<(HeaderName, HeaderValue), ClientError> {
        let value = HeaderValue::try_from(etag);
        let value =
            value.map_err(|_| self.caller.bad_response(format!("invalid entity tag {etag:?}")))?;
        Ok((IF_MATCH, value))
    }
}

fn unchanged(written: Result<(), ClientError>) -> Result<bool, ClientError> {
    match written {
        Ok(()) => Ok(true),
        Err(ClientError::Api { status: 412, .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// A unit to create, or new content for an existing unit.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct UnitUpload {
    /// The unit file.
    pub file: UnitFile,
    /// The desired state. If `None`, an existing unit keeps its desired state, and a new unit
    /// becomes inactive.
    pub desired: Option<TargetState>,
    /// Whether an existing unit must stay unchanged.
    pub create_only: bool,
}

impl UnitUpload {
    /// Creates an upload that may replace an existing unit, and keeps its desired state.
    #[must_use]
    pub fn new(file: UnitFile) -> Self {
        Self { file, desired: None, create_only: false }
    }

    setters! {
        optional:
            with_desired = desired: TargetState;
        plain:
            with_create_only = create_only: bool;
    }
}

impl UnitUpload {
    pub(super) fn entity(&self) -> PutUnit {
        let (source, source_base64) = match self.file.source_str() {
            Some(text) => (Some(text.to_owned()), None),
            None => (None, Some(base64_of(self.file.source()))),
        };
        let desired_state = self.desired.map(|desired| desired.to_string());
        PutUnit { desired_state, source, source_base64, ..PutUnit::default() }
    }

    pub(super) fn named_entity(&self, name: &UnitName) -> PutUnit {
        PutUnit { name: Some(name.to_string()), ..self.entity() }
    }

    pub(super) fn header(&self) -> Option<(HeaderName, HeaderValue)> {
        self.create_only.then_some((IF_NONE_MATCH, HeaderValue::from_static("*")))
    }
}

fn base64_of(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}
