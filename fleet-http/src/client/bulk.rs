//! Writes of several units that are made together.

use std::collections::BTreeMap;

use fleet_core::{Generation, TargetState};
use fleet_unitfile::{UnitHash, UnitName};
use hyper::Method;

use super::{Client, ClientError, UnitUpload};
use crate::wire::{BulkReport, BulkRequest, PutUnit};

/// Writes of several units, each named once.
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct UnitWrites(BulkRequest);

impl UnitWrites {
    /// Creates or replaces a unit. `upload.create_only` counts as [`expect`](Self::expect) without
    /// a hash.
    pub fn put(mut self, name: &UnitName, upload: &UnitUpload) -> Self {
        self.0.units.push(upload.named_entity(name));
        if upload.create_only { self.expect(name, None) } else { self }
    }

    /// Sets the desired state of an existing unit.
    pub fn set_desired(mut self, name: &UnitName, desired: TargetState) -> Self {
        let (name, desired_state) = (Some(name.to_string()), Some(desired.to_string()));
        self.0.units.push(PutUnit { name, desired_state, ..PutUnit::default() });
        self
    }

    /// Restarts a unit.
    pub fn restart(mut self, name: &UnitName) -> Self {
        self.0.restart.push(name.to_string());
        self
    }

    /// Destroys a unit.
    pub fn destroy(mut self, name: &UnitName) -> Self {
        self.0.destroy.push(name.to_string());
        self
    }

    /// Refuses all writes unless the unit's file has this hash. Without a hash, the unit must not
    /// exist.
    pub fn expect(mut self, name: &UnitName, hash: Option<UnitHash>) -> Self {
        let hash = hash.map(|hash| hash.to_string()).unwrap_or_default();
        self.0.expected_hashes.insert(name.to_string(), hash);
        self
    }

    /// Refuses all writes if anything has changed since this
    /// [revision](crate::wire::PlanReport::revision) of a plan that could change the plan.
    pub fn if_unchanged_since(mut self, revision: &str) -> Self {
        self.0.if_unchanged_since = Some(revision.to_owned());
        self
    }

    /// Returns the names of the units.
    #[must_use]
    pub fn names(&self) -> Vec<&str> {
        let BulkRequest { units, destroy, restart, .. } = &self.0;
        let put = units.iter().filter_map(|unit| unit.name.as_deref());
        put.chain(destroy.iter().chain(restart).map(String::as_str)).collect()
    }

    /// Returns whether there is nothing to write.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.units.is_empty() && self.0.restart.is_empty() && self.0.destroy.is_empty()
    }
}

impl Client {
    /// Writes several units together, all or nothing. More than about thirty units may take several
    /// steps, each of which is made entirely or not at all. Returns the generations of the written
    /// units.
    ///
    /// # Errors
    ///
    /// Returns [`ClientError::Api`] with one of these statuses:
    /// - 400 and details: a unit file is invalid, by itself or together with the others.
    /// - 404: a unit does not exist.
    /// - 409: a unit cannot be restarted, or other clients keep changing the units.
    /// - 412: the cluster has changed, contrary to [`UnitWrites::expect`] or
    ///   [`UnitWrites::if_unchanged_since`].
    pub async fn write_units(
        &self,
        writes: &UnitWrites,
    ) -> Result<BTreeMap<UnitName, Generation>, ClientError> {
        let (_, body) = self.caller.send(Method::POST, "units", None, &writes.0).await?;
        let report: BulkReport = self.caller.decode(&body)?;
        let generation = |unit: crate::wire::WrittenUnit| {
            Some((unit.name.parse().ok()?, Generation(unit.generation)))
        };
        Ok(report.units.into_iter().filter_map(generation).collect())
    }
}
