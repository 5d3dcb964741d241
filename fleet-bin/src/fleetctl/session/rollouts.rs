//! Requests about rollouts.

use fleet_core::rollout::{RolloutId, RolloutRequest};
use fleet_http::client::ClientError;
use fleet_http::wire::RolloutEntity;

use super::{Session, cannot};
use crate::ui::error::CliError;

impl Session {
    /// Returns all rollouts.
    pub(crate) async fn rollouts(&self) -> Result<Vec<RolloutEntity>, CliError> {
        match self.client.rollouts().await {
            Err(ClientError::Api { status: 404, .. }) => Err(CliError::failed(
                "cannot list the rollouts: this fleetd is older than fleetctl",
            )
            .help("upgrade fleetd, or use the fleetctl of its version")),
            rollouts => rollouts.map_err(|error| cannot("list the rollouts", error)),
        }
    }

    /// Returns a rollout.
    pub(crate) async fn rollout(&self, id: RolloutId) -> Result<RolloutEntity, CliError> {
        let rollout = self.client.rollout(id).await;
        let rollout = rollout.map_err(|error| cannot(format!("read rollout {id}"), error))?;
        rollout.ok_or_else(|| {
            CliError::failed(format!("there is no rollout {id}"))
                .final_answer()
                .help("\"fleetctl rollout status\" lists the rollouts")
        })
    }

    /// Sends a request to a rollout. `verb` is for messages.
    pub(crate) async fn request_rollout(
        &self,
        id: RolloutId,
        request: RolloutRequest,
        verb: &str,
    ) -> Result<RolloutEntity, CliError> {
        let rollout = self.client.request_rollout(id, request).await;
        rollout.map_err(|error| cannot(format!("{verb} rollout {id}"), error))
    }
}
