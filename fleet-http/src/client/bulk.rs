//! Writes of several units that are made together, and rollouts.

use std::collections::BTreeMap;

use fleet_core::rollout::{RolloutId, RolloutRequest};
use fleet_core::{Generation, TargetState};
use fleet_unitfile::{UnitHash, UnitName};
use hyper::Method;

use super::query::Query;
use super::{Client, ClientError, UnitUpload, none_if_not_found};
use crate::wire::{
    BulkReport, BulkRequest, PutUnit, RolloutCommand, RolloutEntity, RolloutList, RolloutOptions,
};

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

    /// Updates units that change and are to run in batches, by a rollout.
    pub fn rollout(mut self, options: RolloutOptions) -> Self {
        self.0.rollout = Some(options);
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
    /// units, and the number of the [rollout](UnitWrites::rollout), if there is one.
    ///
    /// # Errors
    ///
    /// Returns [`ClientError::Api`] with one of these statuses:
    /// - 400 and details: a unit file is invalid, by itself or together with the others.
    /// - 404: a unit does not exist.
    /// - 409: a unit cannot be restarted, another rollout updates it, or other clients keep
    ///   changing the units.
    /// - 412: the cluster has changed, contrary to [`UnitWrites::expect`] or
    ///   [`UnitWrites::if_unchanged_since`].
    pub async fn write_units(&self, writes: &UnitWrites) -> Result<WrittenUnits, ClientError> {
        let (_, body) = self.caller.send(Method::POST, "units", None, &writes.0).await?;
        let report: BulkReport = self.caller.decode(&body)?;
        let generation = |unit: crate::wire::WrittenUnit| {
            Some((unit.name.parse().ok()?, Generation(unit.generation)))
        };
        Ok(WrittenUnits {
            generations: report.units.into_iter().filter_map(generation).collect(),
            rollout: report.rollout.map(RolloutId),
        })
    }
}

/// Result of [`Client::write_units`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WrittenUnits {
    /// Generations of the written units that exist.
    pub generations: BTreeMap<UnitName, Generation>,
    /// Rollout that updates units, if there is one.
    pub rollout: Option<RolloutId>,
}

/// Rollouts.
impl Client {
    /// Returns the rollouts, in the order of their numbers. They include the last ones that have
    /// ended.
    ///
    /// # Errors
    ///
    /// Returns [`ClientError`] if the request fails.
    pub async fn rollouts(&self) -> Result<Vec<RolloutEntity>, ClientError> {
        let list: RolloutList = self.caller.get("rollouts", &Query::new()).await?;
        Ok(list.rollouts)
    }

    /// Returns a rollout, or `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// Returns [`ClientError`] if the request fails.
    pub async fn rollout(&self, id: RolloutId) -> Result<Option<RolloutEntity>, ClientError> {
        none_if_not_found(self.caller.get(&format!("rollouts/{id}"), &Query::new()).await)
    }

    /// Sends a request to a rollout, and returns the rollout.
    ///
    /// # Errors
    ///
    /// Returns [`ClientError::Api`] with status 404 if the rollout does not exist, and 409 if its
    /// phase does not admit the request.
    pub async fn request_rollout(
        &self,
        id: RolloutId,
        request: RolloutRequest,
    ) -> Result<RolloutEntity, ClientError> {
        let command = RolloutCommand::new(request);
        let path = format!("rollouts/{id}");
        let (_, body) = self.caller.send(Method::POST, &path, None, &command).await?;
        self.caller.decode(&body)
    }
}
