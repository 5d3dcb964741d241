//! Asking what every machine says to a unit, and what a write would lead to.

use fleet_core::MachineId;
use fleet_store::MetadataChange;
use fleet_unitfile::UnitName;
use hyper::Method;

use super::machines::path as machine_path;
use super::query::Query;
use super::{Client, ClientError, UnitUpload, found, unit_path};
use crate::wire::{Explanation, MetadataOp, Plan, PlanRequest, PutUnit};

impl Client {
    /// What every machine says to a unit; `None` if there is no such unit.
    ///
    /// # Errors
    ///
    /// [`ClientError::Api`] with status 409 when the stored unit cannot be understood.
    pub async fn explain(&self, name: &UnitName) -> Result<Option<Explanation>, ClientError> {
        let path = format!("{}/explain", unit_path(name));
        found(self.caller.get(&path, &Query::new()).await)
    }

    /// What [`put_unit`](Self::put_unit) would lead to. Nothing is changed.
    ///
    /// # Errors
    ///
    /// [`ClientError::Api`] with status 400 and details when the unit file is not acceptable, 412
    /// when the unit exists and was only to be created.
    pub async fn try_put_unit(
        &self,
        name: &UnitName,
        upload: &UnitUpload,
    ) -> Result<Plan, ClientError> {
        let path = format!("{}?dryRun=1", unit_path(name));
        let (entity, header) = (upload.entity(), upload.header());
        let (_, body) = self.caller.send(Method::PUT, &path, header, &entity).await?;
        self.caller.decode(&body)
    }

    /// What all these writes together would lead to: units put there, the others destroyed. With
    /// none of either it is what an engine would do as things are. Nothing is changed.
    ///
    /// # Errors
    ///
    /// [`ClientError::Api`] with status 400 and details when a unit file is not acceptable beside
    /// the others, 404 when one to be destroyed is not known.
    pub async fn plan(
        &self,
        puts: &[(UnitName, UnitUpload)],
        destroy: &[UnitName],
    ) -> Result<Plan, ClientError> {
        let named = |(name, upload): &(UnitName, UnitUpload)| PutUnit {
            name: Some(name.to_string()),
            ..upload.entity()
        };
        let units = puts.iter().map(named).collect();
        let destroy = destroy.iter().map(ToString::to_string).collect();
        let asked = PlanRequest { destroy, units };
        let (_, body) = self.caller.send(Method::POST, "plan", None, &asked).await?;
        self.caller.decode(&body)
    }

    /// What [`destroy`](Self::destroy) would lead to; `None` if there is no such unit. Nothing is
    /// changed.
    ///
    /// # Errors
    ///
    /// [`ClientError`].
    pub async fn try_destroy(&self, name: &UnitName) -> Result<Option<Plan>, ClientError> {
        let path = format!("{}?dryRun=1", unit_path(name));
        let body = found(self.caller.send_empty(Method::DELETE, &path).await)?;
        body.map(|body| self.caller.decode(&body)).transpose()
    }

    /// What [`cordon`](Self::cordon) would lead to. Nothing is changed.
    ///
    /// # Errors
    ///
    /// [`ClientError::Api`] with status 404 when it is not present.
    pub async fn try_cordon(&self, id: &MachineId) -> Result<Plan, ClientError> {
        self.try_post(&format!("{}/cordon", machine_path(id))).await
    }

    /// What [`uncordon`](Self::uncordon) would lead to. Nothing is changed.
    ///
    /// # Errors
    ///
    /// [`ClientError`].
    pub async fn try_uncordon(&self, id: &MachineId) -> Result<Plan, ClientError> {
        self.try_post(&format!("{}/uncordon", machine_path(id))).await
    }

    /// What [`patch_machines`](Self::patch_machines) would lead to. Nothing is changed.
    ///
    /// # Errors
    ///
    /// [`ClientError::Api`] with status 400 when a change cannot be understood.
    pub async fn try_patch_machines(
        &self,
        changes: &[MetadataChange],
    ) -> Result<Plan, ClientError> {
        let ops: Vec<MetadataOp> = changes.iter().map(MetadataOp::from).collect();
        let (_, body) = self.caller.send(Method::PATCH, "machines?dryRun=1", None, &ops).await?;
        self.caller.decode(&body)
    }

    async fn try_post(&self, path: &str) -> Result<Plan, ClientError> {
        let body = self.caller.send_empty(Method::POST, &format!("{path}?dryRun=1")).await?;
        self.caller.decode(&body)
    }
}
