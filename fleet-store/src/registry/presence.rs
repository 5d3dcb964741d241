//! Presence: a machine's claim on its identity, and what it publishes while it has it.

use std::net::IpAddr;
use std::time::Duration;

use fleet_core::{MachineId, Metadata, Resources, Revision, Timestamp, UnitState};
use fleet_unitfile::UnitName;
use tokio::sync::RwLock;

use super::batch::pack;
use super::{Registry, RegistryError, unchanged};
use crate::codec::{Claim, decode_claim, encode_claim, encode_state};
use crate::{Commit, Condition, Entry, Key, LeaseId, StoreError, Transaction};

/// What a machine says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineRecord {
    /// Its identity.
    pub id: MachineId,
    /// The address at which other hosts reach it, if it has one.
    pub address: Option<IpAddr>,
    /// The URL at which other daemons reach the API of its own; empty if they cannot.
    pub api: String,
    /// The metadata of its configuration.
    pub metadata: Metadata,
    /// The version of the daemon that runs on it.
    pub version: String,
    /// What units may reserve of it in all.
    pub offers: Resources,
    /// Whether its own configuration keeps units away that are not placed there already.
    pub cordoned: bool,
    /// The name of its host; empty if it has none.
    pub host: String,
    /// When its daemon was started, since the beginning of 1970 in UTC; nothing if it does not say.
    pub started: Option<Timestamp>,
}

impl MachineRecord {
    /// A machine that says nothing of itself but its identity.
    #[must_use]
    pub fn new(id: MachineId) -> Self {
        Self {
            id,
            address: None,
            api: String::new(),
            metadata: Metadata::new(),
            version: String::new(),
            offers: Resources::ZERO,
            cordoned: false,
            host: String::new(),
            started: None,
        }
    }
}

/// A machine's presence in the cluster: it lasts while it is renewed within its time to live.
///
/// Dropping it does not end it. So a daemon that dies does not look like a machine that left until
/// the time to live is over.
#[derive(Debug)]
pub struct Presence {
    registry: Registry,
    lease: LeaseId,
    joined: Revision,
    token: String,
    /// The claim as it is stored: the condition of what is published, locked while it changes.
    claim: RwLock<StoredClaim>,
}

#[derive(Debug)]
struct StoredClaim {
    machine: MachineRecord,
    bytes: Vec<u8>,
}

impl Registry {
    /// Makes a machine present, for `ttl` and as long as it is renewed.
    ///
    /// `token` tells the machine from a copy of it: something that survives a restart of the daemon
    /// but is never copied with the disk, for example kept below `/run`. A claim under the same
    /// token is that of an earlier life of the daemon. It is taken over at once, and the states
    /// published by that life vanish with its lease: publish them again.
    ///
    /// # Errors
    ///
    /// [`RegistryError::MachineTaken`] when a machine with another token has this identity, or a
    /// version of fleet whose claim cannot be read; [`RegistryError::Conflict`] when the claim
    /// changed at this very moment.
    pub async fn join(
        &self,
        machine: MachineRecord,
        token: &str,
        ttl: Duration,
    ) -> Result<Presence, RegistryError> {
        let key = Key::Machine(machine.id.clone());
        let (found, _) = self.get(&key).await?;
        if let Some(entry) = &found {
            check_same_machine(&machine.id, token, entry)?;
        }
        let key = self.key(&key);
        let bytes = |lease| claim_bytes(&machine, token, lease);
        let claiming = |lease| {
            let free = unchanged(&key, found.as_ref());
            Transaction::new().when(free).put_leased(key.clone(), bytes(lease), lease)
        };
        let (lease, commit) = self.with_lease(ttl, claiming).await?;
        let Commit::Applied(joined) = commit else {
            return Err(RegistryError::Conflict);
        };
        if let Some(before) = found.and_then(|entry| entry.lease) {
            self.release_lease(before).await;
        }
        let bytes = bytes(lease);
        let claim = RwLock::new(StoredClaim { machine, bytes });
        let token = token.to_owned();
        Ok(Presence { registry: self.clone(), lease, joined, token, claim })
    }
}

impl Presence {
    /// The lease that the machine's claim and states are bound to.
    #[must_use]
    pub fn lease(&self) -> LeaseId {
        self.lease
    }

    /// The revision that it began with: what an earlier one shows of this machine was said in an
    /// earlier life.
    #[must_use]
    pub fn joined(&self) -> Revision {
        self.joined
    }

    /// Gives the presence its whole time to live again.
    ///
    /// # Errors
    ///
    /// [`RegistryError::PresenceLost`] when it has ended; [`RegistryError::Store`] says nothing of
    /// it, so try again.
    pub async fn renew(&self) -> Result<(), RegistryError> {
        match self.registry.store.renew(self.lease).await {
            Err(StoreError::LeaseLost(_)) => Err(self.lost().await),
            other => Ok(other?),
        }
    }

    /// Ends the presence: the machine is no longer there, and neither are the states it published.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Store`]; the presence ends in its time then.
    pub async fn leave(self) -> Result<(), RegistryError> {
        Ok(self.registry.store.revoke(self.lease).await?)
    }

    /// Publishes what the machine says of itself from now on. Its identity stays what it was.
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

    /// Publishes states of units on this machine, and takes others back. Many are written in
    /// several steps; each is whole. The result is the revision of the last step.
    ///
    /// The unit's own machine field is not looked at: a machine speaks for itself alone.
    ///
    /// # Errors
    ///
    /// [`RegistryError::PresenceLost`] when the presence has ended; some steps may be done then.
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

    /// Commits what has the claim as its only condition.
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

/// Lets pass only a claim of an earlier life of the same machine.
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
