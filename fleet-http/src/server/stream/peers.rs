//! Clients of the daemons of other machines.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{Client, Credentials, EndpointError};

/// Clients of the daemons of other machines. Clones share their state.
#[derive(Debug, Clone, Default)]
pub struct Peers(Arc<Mutex<PeerClients>>);

#[derive(Debug, Default)]
struct PeerClients {
    credentials: Credentials,
    /// Clients by URL.
    clients: BTreeMap<String, Client>,
}

/// Maximum number of cached clients. Beyond it all are dropped, with their connections.
const MAX_CLIENTS: usize = 1024;

impl Peers {
    /// Creates clients with these credentials.
    #[must_use]
    pub fn new(credentials: Credentials) -> Self {
        Self(Arc::new(Mutex::new(PeerClients { credentials, clients: BTreeMap::new() })))
    }

    /// Replaces the credentials.
    pub fn set_credentials(&self, credentials: Credentials) {
        *self.peers() = PeerClients { credentials, clients: BTreeMap::new() };
    }

    /// Returns the client of the daemon at that URL.
    pub(crate) fn client(&self, url: &str) -> Result<Client, EndpointError> {
        let mut peers = self.peers();
        if let Some(client) = peers.clients.get(url) {
            return Ok(client.clone());
        }
        let client = Client::proxying(&url.parse()?, peers.credentials.clone());
        if peers.clients.len() >= MAX_CLIENTS {
            peers.clients.clear();
        }
        peers.clients.insert(url.to_owned(), client.clone());
        Ok(client)
    }

    /// Ignores poisoning: no panic can leave the map partially modified.
    fn peers(&self) -> MutexGuard<'_, PeerClients> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
