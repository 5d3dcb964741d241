//! A client for a single endpoint, which authenticates if etcd requires it.
//!
//! The `etcd-client` library can also use several endpoints in one client. But such a client
//! chooses a random endpoint for each call, even if that endpoint has just failed, and does not
//! report its choice.

use etcd_client::proto::{PbRangeResponse, PbTxnResponse};
use etcd_client::{
    Client, Error, GetOptions, KvClient, Txn, WatchOptions, WatchResponse, WatchStream,
};
use tokio::sync::Mutex;
use tonic::Code;

use super::config::EtcdUser;

/// Maximum size of a response. Ranges are read in pages smaller than this, and etcd splits the
/// changes of a watch into fragments smaller than this.
const MAX_RESPONSE: usize = 16 << 20;

pub(super) struct Endpoint {
    pub(super) url: String,
    client: Client,
    user: Option<EtcdUser>,
    /// Whether the client has authenticated. Locked during authentication, so that concurrent calls
    /// authenticate only once.
    authenticated: Mutex<bool>,
}

impl Endpoint {
    pub(super) fn new(url: String, client: Client, user: Option<EtcdUser>) -> Self {
        Self { url, client, user, authenticated: Mutex::new(false) }
    }

    /// Reads a range.
    pub(super) async fn get(
        &self,
        key: &[u8],
        options: &GetOptions,
    ) -> Result<PbRangeResponse, Error> {
        Ok(self.kv().get(key, Some(options.clone())).await?.0)
    }

    pub(super) async fn txn(&self, txn: &Txn) -> Result<PbTxnResponse, Error> {
        Ok(self.kv().txn(txn.clone()).await?.0)
    }

    /// Grants a lease of `ttl` seconds and returns its ID.
    pub(super) async fn grant(&self, ttl: i64) -> Result<i64, Error> {
        Ok(self.client.lease_client().grant(ttl, None).await?.id())
    }

    pub(super) async fn renew(&self, lease: i64) -> Result<(), Error> {
        self.client.lease_client().keep_alive(lease).await.map(|_kept| ())
    }

    pub(super) async fn revoke(&self, lease: i64) -> Result<(), Error> {
        self.client.lease_client().revoke(lease).await.map(|_revoked| ())
    }

    /// Returns the remaining seconds of a lease. The result is zero or negative if the lease has
    /// ended.
    pub(super) async fn seconds_left(&self, lease: i64) -> Result<i64, Error> {
        Ok(self.client.lease_client().time_to_live(lease, None).await?.ttl())
    }

    /// Opens a watch and waits for the first response.
    pub(super) async fn watch(
        &self,
        key: &[u8],
        options: &WatchOptions,
    ) -> Result<(WatchStream, WatchResponse), Error> {
        let mut watches = self.client.watch_client().max_decoding_message_size(MAX_RESPONSE);
        let mut stream = watches.watch(key, Some(options.clone())).await?;
        match stream.message().await? {
            Some(first) => Ok((stream, first)),
            None => Err(Error::WatchError("it ended with no response".to_owned())),
        }
    }

    fn kv(&self) -> KvClient {
        self.client.kv_client().max_decoding_message_size(MAX_RESPONSE)
    }

    /// Returns whether the client authenticates.
    pub(super) fn has_user(&self) -> bool {
        self.user.is_some()
    }

    /// Authenticates if the client has a user and has not authenticated yet. Afterwards the library
    /// renews the token itself, but only when etcd's error clearly reports an invalid token.
    pub(super) async fn authenticate(&self) -> Result<(), Error> {
        let Some(EtcdUser { name, password }) = &self.user else { return Ok(()) };
        let mut authenticated = self.authenticated.lock().await;
        if *authenticated {
            return Ok(());
        }
        let user = Some((name.clone(), password.clone()));
        match self.client.clone().update_user(user).await {
            // Authentication is disabled in etcd.
            Err(Error::GRpcStatus(status)) if status.code() == Code::FailedPrecondition => {}
            response => response?,
        }
        *authenticated = true;
        Ok(())
    }

    /// Makes the next call authenticate again. This is needed when a token has expired but the
    /// library does not recognize that from etcd's error.
    pub(super) async fn forget_token(&self) {
        *self.authenticated.lock().await = false;
    }
}
