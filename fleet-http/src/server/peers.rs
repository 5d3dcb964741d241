//! The daemons of other machines, which are asked for what is on them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{Client, Credentials, EndpointError};

/// How the daemons of other machines are asked for what is on those. Clones are one and the same.
#[derive(Debug, Clone, Default)]
pub struct Peers(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    credentials: Credentials,
    /// Those that were asked already, by their URLs.
    clients: BTreeMap<String, Client>,
}

/// How many daemons are kept in mind; past that all are forgotten, with the connections to them.
const MOST: usize = 1024;

impl Peers {
    /// Daemons that are shown this.
    #[must_use]
    pub fn new(credentials: Credentials) -> Self {
        Self(Arc::new(Mutex::new(Known { credentials, clients: BTreeMap::new() })))
    }

    /// Shows them something else from now on.
    pub fn change(&self, credentials: Credentials) {
        *self.known() = Known { credentials, clients: BTreeMap::new() };
    }

    /// The daemon at that URL.
    pub(super) fn client(&self, url: &str) -> Result<Client, EndpointError> {
        let mut known = self.known();
        if let Some(client) = known.clients.get(url) {
            return Ok(client.clone());
        }
        let client = Client::proxying(&url.parse()?, known.credentials.clone());
        if known.clients.len() >= MOST {
            known.clients.clear();
        }
        known.clients.insert(url.to_owned(), client.clone());
        Ok(client)
    }

    /// Panics while it is locked cannot leave a map half changed.
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
