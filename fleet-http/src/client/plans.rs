//! Explanations of placements, and dry runs of writes.

use fleet_core::MachineId;
use fleet_store::registry::MetadataChange;
use fleet_unitfile::UnitName;
use hyper::Method;

use super::machines::path as machine_path;
use super::query::Query;
use super::{Client, ClientError, UnitUpload, none_if_not_found, unit_path};
use crate::wire::{MetadataOp, PlacementExplanation, PlanReport, PlanRequest, PutUnit};

impl Client {
    /// Returns each machine's verdict on a unit, or `None` if the unit does not exist.
    ///
    /// # Errors
    ///
    /// Returns [`ClientError::Api`] with status 409 if the stored unit cannot be decoded.
    pub async fn explain(
        &self,
        name: &UnitName,
    ) -> Result<Option<PlacementExplanation>, ClientError> {
        let path = format!("{}/explain", unit_path(name));
        none_if_not_found(self.caller.get(&path, &Query::new()).await)
    }

    /// Returns the plan that would result from [`put_unit`](Self::put_unit). Changes nothing.
    ///
    /// # Errors
    ///
    /// Returns [`ClientError::Api`] with status 400 and details if the unit file is invalid. The
    /// status is 412 if the unit exists and `create_only` is set.
    pub async fn dry_run_put_unit(
        &self,
        name: &UnitName,
        upload: &UnitUpload,
    ) -> Result<PlanReport, ClientError> {
        let path = format!("{}?dryRun=1", unit_path(name));
        let (entity, header) = (upload.entity(), upload.header());
        let (_, body) = self.caller.send(Method::PUT, &path, header, &entity).await?;
        self.caller.decode(&body)
    }

    /// Returns the plan that would result from several writes together. First the units in `puts`
    /// would be created or replaced. Then the units in `destroy` would be destroyed. Without
    /// writes, returns the plan for the current state. Changes nothing.
    ///
    /// # Errors
    ///
    /// Returns [`ClientError::Api`] with status 400 and details if a unit file is invalid, by
    /// itself or together with the others. The status is 404 if a unit to destroy does not exist.
    pub async fn plan(
        &self,
        puts: &[(UnitName, UnitUpload)],
        destroy: &[UnitName],
    ) -> Result<PlanReport, ClientError> {
        let named = |(name, upload): &(UnitName, UnitUpload)| PutUnit {
            name: Some(name.to_string()),
            ..upload.entity()
        };
        let units = puts.iter().map(named).collect();
        let destroy = destroy.iter().map(ToString::to_string).collect();
        let request = PlanRequest { destroy, units };
        let (_, body) = self.caller.send(Method::POST, "plan", None, &request).await?;
        self.caller.decode(&body)
    }

    /// Returns the plan that would result from [`destroy`](Self::destroy), or `None` if the unit
    /// does not exist. Changes nothing.
    ///
    /// # Errors
    ///
    /// Returns [`ClientError`] if the request fails.
    pub async fn dry_run_destroy(
        &self,
        name: &UnitName,
    ) -> Result<Option<PlanReport>, ClientError> {
        let path = format!("{}?dryRun=1", unit_path(name));
        let body = none_if_not_found(self.caller.send_empty(Method::DELETE, &path).await)?;
        body.map(|body| self.caller.decode(&body)).transpose()
    }

    /// Returns the plan that would result from [`cordon`](Self::cordon). Changes nothing.
    ///
    /// # Errors
    ///
    /// Returns [`ClientError::Api`] with status 404 if the machine is not present.
    pub async fn dry_run_cordon(&self, id: &MachineId) -> Result<PlanReport, ClientError> {
        self.dry_run_post(&format!("{}/cordon", machine_path(id))).await
    }

    /// Returns the plan that would result from [`uncordon`](Self::uncordon). Changes nothing.
    ///
    /// # Errors
    ///
    /// Returns [`ClientError`] if the request fails.
    pub async fn dry_run_uncordon(&self, id: &MachineId) -> Result<PlanReport, ClientError> {
        self.dry_run_post(&format!("{}/uncordon", machine_path(id))).await
    }

    /// Returns the plan that would result from [`patch_machines`](Self::patch_machines). Changes
    /// nothing.
    ///
    /// # Errors
    ///
    /// Returns [`ClientError::Api`] with status 400 if a change is invalid.
    pub async fn dry_run_patch_machines(
        &self,
        changes: &[MetadataChange],
    ) -> Result<PlanReport, ClientError> {
        let ops: Vec<MetadataOp> = changes.iter().map(MetadataOp::from).collect();
        let (_, body) = self.caller.send(Method::PATCH, "machines?dryRun=1", None, &ops).await?;
        self.caller.decode(&body)
    }

    async fn dry_run_post(&self, path: &str) -> Result<PlanReport, ClientError> {
        let body = self.caller.send_empty(Method::POST, &format!("{path}?dryRun=1")).await?;
        self.caller.decode(&body)
    }
}
