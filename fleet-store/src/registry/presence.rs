//! Presence: a machine's claim to its identity, and its published states.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use fleet_core::manager::ManagerInfo;
use fleet_core::{MachineId, Metadata, Resources, Revision, Timestamp, UnitState};
use fleet_unitfile::UnitName;
use tokio::sync::RwLock;

use super::destroy::pack;
use super::{Registry, RegistryError, unchanged};
use crate::codec::{Claim, decode_claim, encode_claim, encode_state};
use crate::registry::Key;
use crate::{Commit, Condition, Entry, LeaseId, StoreError, Transaction};

/// A machine's description of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineRecord {
    /// Identity of the machine.
    pub id: MachineId,
    /// Address at which other hosts reach it, if it has one.
    pub address: Option<IpAddr>,
    /// URL of its API for other daemons; empty if there is none.
    pub api: String,
    /// Metadata from its configuration.
    pub metadata: Metadata,
    /// Version of its daemon.
    pub version: String,
    /// Total resources that units can reserve.
    pub offers: Resources,
    /// Its service manager, if known.
    pub manager: Option<Arc<ManagerInfo>>,
    /// Whether its configuration keeps new units away.
    pub cordoned: bool,
    /// Host name; empty if it has none.
    pub host: String,
    /// Start time of its daemon (Unix time), if known.
    pub started: Option<Timestamp>,
}

impl MachineRecord {
    /// Creates a record with only the identity.
    #[must_use]
    pub fn new(id: MachineId) -> Self {
        Self {
            id,
            address: None,
            api: String::new(),
            metadata: Metadata::new(),
            version: String::new(),
            offers: Resources::ZERO,
            manager: None,
            cordoned: false,
            host: String::new(),
            started: None,
        }
    }
}

/// A machine's presence in the cluster. It lasts while it is renewed within its time to live.
///
/// Dropping the value does not end the presence. So after a daemon dies, its machine counts as
/// present until the time to live is over.
#[derive(Debug)]
pub struct Presence {
    registry: Registry,
    lease: LeaseId,
    joined: Revision,
    token: String,
    /// Claim as stored. Every publication has the condition that the stored claim still equals it.
    /// The lock is held for writing while the claim changes.
    claim: RwLock<StoredClaim>,
}

#[derive(Debug)]
struct StoredClaim {
    machine: MachineRecord,
    bytes: Vec<u8>,
}

impl Presence {
    /// Implements [`Registry::join`].
    pub(super) async fn join(
        registry: &Registry,
        machine: MachineRecord,
        token: &str,
        ttl: Duration,
    ) -> Result<Self, RegistryError> {
        let key = Key::Machine(machine.id.clone());
        let (found, _) = registry.get(&key).await?;
        if let Some(entry) = &found {
            check_same_machine(&machine.id, token, entry)?;
        }
        let key = registry.key(&key);
        let bytes = |lease| claim_bytes(&machine, token, lease);
        let claiming = |lease| {
            let free = unchanged(&key, found.as_ref());
            Transaction::new().when(free).put_leased(key.clone(), bytes(lease), lease)
        };
        let (lease, commit) = registry.with_lease(ttl, claiming).await?;
        let Commit::Applied(joined) = commit else {
            return Err(RegistryError::Conflict);
        };
        if let Some(before) = found.and_then(|entry| entry.lease) {
            registry.release_lease(before).await;
        }
        let bytes = bytes(lease);
        let claim = RwLock::new(StoredClaim { machine, bytes });
        let token = token.to_owned();
        Ok(Self { registry: registry.clone(), lease, joined, token, claim })
    }

    /// Returns the lease of the machine's claim and states.
    #[must_use]
    pub fn lease(&self) -> LeaseId {
        self.lease
    }

    /// Returns the revision of the join. Snapshots of earlier revisions show states from an earlier
    /// presence of this machine.
    #[must_use]
    pub fn joined(&self) -> Revision {
        self.joined
    }

    /// Renews the presence for its full time to live.
    ///
    /// # Errors
    ///
    /// [`RegistryError::PresenceLost`] when the presence has ended. After [`RegistryError::Store`],
    /// the presence may or may not have ended, so try again.
    pub async fn renew(&self) -> Result<(), RegistryError> {
        match self.registry.store.renew(self.lease).await {
            Err(StoreError::LeaseLost(_)) => Err(self.lost().await),
            other => Ok(other?),
        }
    }

    /// Ends the presence and deletes the published states.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Store`] when the store fails; the presence then ends when it expires.
    pub async fn leave(self) -> Result<(), RegistryError> {
        Ok(self.registry.store.revoke(self.lease).await?)
    }

    /// Publishes a new description of the machine. The identity cannot change.
    ///
    /// # Errors
    ///
    /// [`RegistryError::PresenceLost`] when the presence has ended.
    pub async fn update_machine(&self, machine: MachineRecord) -> Result<Revision, RegistryError> {
        let mut claim = self.claim.write().await;
        let machine = MachineRecord { id: claim.machine.id.clone(), ..machine };
        let bytes = claim_bytes(&machine, &self.token, self.lease);
        let key = self.registry.key(&Key::Machine(machine.id.clone()));
        let transaction = Transaction::new()
            .when(Condition::value(&key, claim.bytes.clone()))
            .put_leased(key, bytes.clone(), self.lease);
        let revision = self.commit(transaction, &machine.id).await?;
        *claim = StoredClaim { machine, bytes };
        Ok(revision)
    }

    /// Publishes the states in `put`, and deletes the published states of the units in `remove`.
    /// Many states are written in several steps, each of which is atomic. Returns the revision of
    /// the last step.
    ///
    /// The machine field of the states is ignored, because a machine publishes only its own states.
    ///
    /// # Errors
    ///
    /// [`RegistryError::PresenceLost`] when the presence has ended; some steps may already be
    /// applied.
    pub async fn publish_states(
        &self,
        put: &[UnitState],
        remove: &[UnitName],
    ) -> Result<Revision, RegistryError> {
        let claim = self.claim.read().await;
        let id = &claim.machine.id;
        let key = |unit: &UnitName| self.registry.key(&Key::State(id.clone(), unit.clone()));
        let puts = put.iter().map(|state| {
            Transaction::new().put_leased(key(&state.unit), encode_state(state), self.lease)
        });
        let removes = remove.iter().map(|unit| Transaction::new().delete(key(unit)));
        let own = self.registry.key(&Key::Machine(id.clone()));
        let fence = Transaction::new().when(Condition::value(own, claim.bytes.clone()));
        let mut revision = Revision::ZERO;
        for transaction in pack(&fence, puts.chain(removes)) {
            revision = self.commit(transaction, id).await?;
        }
        Ok(revision)
    }

    /// Commits a transaction with the claim as its only condition.
    async fn commit(
        &self,
        transaction: Transaction,
        id: &MachineId,
    ) -> Result<Revision, RegistryError> {
        match self.registry.store.commit(transaction).await {
            Ok(Commit::Applied(revision)) => Ok(revision),
            Ok(Commit::Refused { .. }) | Err(StoreError::LeaseLost(_)) => {
                Err(RegistryError::PresenceLost { id: id.clone() })
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn lost(&self) -> RegistryError {
        RegistryError::PresenceLost { id: self.claim.read().await.machine.id.clone() }
    }
}

/// Returns an error unless the stored claim has the same token. A claim with the same token belongs
/// to an earlier process on the same machine.
fn check_same_machine(id: &MachineId, token: &str, entry: &Entry) -> Result<(), RegistryError> {
    let claim = decode_claim(&entry.value).ok();
    if claim.as_ref().is_some_and(|claim| claim.token == token) {
        return Ok(());
    }
    let holder = claim.map(|claim| Box::new(claim.machine));
    Err(RegistryError::MachineTaken { id: id.clone(), holder })
}

fn claim_bytes(machine: &MachineRecord, token: &str, lease: LeaseId) -> Vec<u8> {
    let (machine, token) = (machine.clone(), token.to_owned());
    encode_claim(&Claim { machine, token, joined: lease.0 })
}
