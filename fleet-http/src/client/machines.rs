//! Client methods for machines, rebalancing, explanations and dry runs.

use fleet_core::MachineId;
use fleet_core::rebalancing::RebalanceLimits;
use fleet_store::registry::MetadataChange;
use fleet_unitfile::UnitName;
use hyper::Method;

use super::machines::path as machine_path;
use super::query::Query;
use super::{Client, ClientError, UnitUpload, none_if_not_found, unit_path};
use crate::client::query;
use crate::wire::{
    CheckReport, CheckRequest, DrainReport, MachineEntity, MachineUsage, MetadataOp,
    PlacementExplanation, PlanReport, PlanRequest, PutUnit, RebalanceReport,
};

/// Start of the message of a daemon that does not know a resource.
const NO_RESOURCE: &str = "no such resource";

impl Client {
    /// Returns the machine with that ID, or `None` if it is not present.
    ///
    /// # Errors
    ///
    /// Returns [`ClientError`] if the request fails.
    pub async fn machine(&self, id: &MachineId) -> Result<Option<MachineEntity>, ClientError> {
        none_if_not_found(self.caller.get(&path(id), &Query::new()).await)
    }

    /// Returns the resources that a machine and its units use. Returns `None` if the machine is not
    /// present.
    ///
    /// # Errors
    ///
    /// Returns [`ClientError::Api`] with status 503 if the machine does not respond.
    pub async fn usage(&self, machine: &MachineId) -> Result<Option<MachineUsage>, ClientError> {
        let path = format!("{}/usage", machine_path(machine));
        none_if_not_found(self.caller.get(&path, &Query::new()).await)
    }

    /// Cordons a machine, so that the engine places no more units on it. If the machine is being
    /// drained, ends the drain.
    ///
    /// # Errors
    ///
    /// Returns [`ClientError::Api`] with status 404 if the machine is not present.
    pub async fn cordon(&self, id: &MachineId) -> Result<(), ClientError> {
        let path = format!("{}/cordon", path(id));
        self.caller.send_empty(Method::POST, &path).await.map(drop)
    }

    /// Uncordons a machine, so that it takes units again. If the machine is being drained, ends the
    /// drain. The machine need not be present.
    ///
    /// # Errors
    ///
    /// Returns [`ClientError`] if the request fails.
    pub async fn uncordon(&self, id: &MachineId) -> Result<(), ClientError> {
        let path = format!("{}/uncordon", path(id));
        self.caller.send_empty(Method::POST, &path).await.map(drop)
    }

    /// Drains a machine: orders the engine to move its units to other machines, and returns the
    /// first moves. The engine leaves at least `min_available` instances of each template up. A dry
    /// run returns the moves without ordering them.
    ///
    /// # Errors
    ///
    /// Returns [`ClientError::Api`] with status 404 if the machine is not present.
    pub async fn drain(
        &self,
        id: &MachineId,
        min_available: u32,
        dry_run: bool,
    ) -> Result<DrainReport, ClientError> {
        let query = Query::new().with("keepUp", Some(&min_available.to_string()));
        let query = query.with("dryRun", dry_run.then_some("1"));
        let path = format!("{}/drain{query}", path(id));
        let body = self.caller.send_empty(Method::POST, &path).await?;
        self.caller.decode(&body)
    }

    /// Returns the remaining work of a drain, or `None` if the machine is not being drained.
    ///
    /// # Errors
    ///
    /// Returns [`ClientError`] if the request fails.
    pub async fn drain_status(&self, id: &MachineId) -> Result<Option<DrainReport>, ClientError> {
        none_if_not_found(self.caller.get(&format!("{}/drain", path(id)), &Query::new()).await)
    }
}

pub(super) fn path(id: &MachineId) -> String {
    format!("machines/{}", query::escape(id.as_str()))
}

impl Client {
    /// Orders the engine to move units from loaded machines to less loaded ones, and returns the
    /// planned moves. A dry run returns the moves without ordering them. If no moves are planned,
    /// the report gives the reason.
    ///
    /// # Errors
    ///
    /// Returns [`ClientError::Api`] with status 400 if the limits are invalid.
    ///
    /// ```no_run
    /// use fleet_core::rebalancing::RebalanceLimits;
    /// use fleet_http::Client;
    ///
    /// # async fn example(client: Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let limits = RebalanceLimits { max_in_flight: 2, ..RebalanceLimits::default() };
    /// for it in client.rebalance(&limits, true).await?.moves {
    ///     println!("{} would go from {} to {}", it.unit, it.from, it.to);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn rebalance(
        &self,
        limits: &RebalanceLimits,
        dry_run: bool,
    ) -> Result<RebalanceReport, ClientError> {
        let RebalanceLimits { max_in_flight: at_once, gain, min_available, max_moves: most } =
            limits;
        let query = Query::new()
            .with("atOnce", Some(&at_once.to_string()))
            .with("gain", Some(&gain.to_string()))
            .with("keepUp", Some(&min_available.to_string()))
            .with("most", most.map(|most| most.to_string()).as_deref())
            .with("dryRun", dry_run.then_some("1"));
        let body = self.caller.send_empty(Method::POST, &format!("rebalance{query}")).await?;
        self.caller.decode(&body)
    }

    /// Returns the remaining work of a rebalancing, or `None` if none is in progress.
    ///
    /// # Errors
    ///
    /// Returns [`ClientError`] if the request fails.
    pub async fn rebalance_status(&self) -> Result<Option<RebalanceReport>, ClientError> {
        none_if_not_found(self.caller.get("rebalance", &Query::new()).await)
    }

    /// Cancels the rebalancing, if one is in progress. Units that were moved stay on their new
    /// machines, and no further units are moved.
    ///
    /// # Errors
    ///
    /// Returns [`ClientError`] if the request fails.
    pub async fn cancel_rebalance(&self) -> Result<(), ClientError> {
        self.caller.send_empty(Method::DELETE, "rebalance").await.map(drop)
    }
}

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
        let units = puts.iter().map(|(name, upload)| upload.named_entity(name)).collect();
        let destroy = destroy.iter().map(ToString::to_string).collect();
        let request = PlanRequest { destroy, units };
        let (_, body) = self.caller.send(Method::POST, "plan", None, &request).await?;
        self.caller.decode(&body)
    }

    /// Checks unit files as the service managers of the machines do. A unit without a file must
    /// exist, and its file is checked. Changes nothing. Returns `None` if the daemon is too old for
    /// this.
    ///
    /// # Errors
    ///
    /// Returns [`ClientError::Api`] with status 400 and details if a unit file is invalid, or with
    /// status 404 if a unit without a file does not exist.
    pub async fn check(
        &self,
        units: &[(UnitName, Option<UnitUpload>)],
    ) -> Result<Option<CheckReport>, ClientError> {
        let units = units.iter().map(|(name, upload)| PutUnit {
            name: Some(name.to_string()),
            ..upload.as_ref().map(UnitUpload::entity).unwrap_or_default()
        });
        let request = CheckRequest { units: units.collect() };
        match self.caller.send(Method::POST, "check", None, &request).await {
            Ok((_, body)) => self.caller.decode(&body).map(Some),
            Err(ClientError::Api { status: 404, message, .. })
                if message.starts_with(NO_RESOURCE) =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
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
