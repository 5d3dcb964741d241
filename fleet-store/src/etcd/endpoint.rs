//! One endpoint: a client of the library's own for it, which says who asks where etcd wants to
//! know.
//!
//! The library could hold several endpoints in one client. It would then choose one for each call,
//! by chance, the dead ones among them, and not say which one it was.

use etcd_client::proto::{PbRangeResponse, PbTxnResponse};
use etcd_client::{
    Client, Error, GetOptions, KvClient, Txn, WatchOptions, WatchResponse, WatchStream,
};
use tokio::sync::Mutex;
use tonic::Code;

use super::config::EtcdUser;

/// The largest response that is taken; a range is read in pages that keep below it, and etcd cuts the
/// changes of a watch into pieces that do.
const MAX_RESPONSE: usize = 16 << 20;

pub(super) struct Endpoint {
    pub(super) url: String,
    client: Client,
    user: Option<EtcdUser>,
    /// Whether etcd was told who asks. Locked while it is told, so that many calls tell it once.
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

    /// Makes a lease of `ttl` seconds, and says its name.
    pub(super) async fn grant(&self, ttl: i64) -> Result<i64, Error> {
        Ok(self.client.lease_client().grant(ttl, None).await?.id())
    }

    pub(super) async fn renew(&self, lease: i64) -> Result<(), Error> {
        self.client.lease_client().keep_alive(lease).await.map(|_kept| ())
    }

    pub(super) async fn revoke(&self, lease: i64) -> Result<(), Error> {
        self.client.lease_client().revoke(lease).await.map(|_revoked| ())
    }

    /// How many seconds a lease has left; none or fewer if it has ended.
    pub(super) async fn seconds_left(&self, lease: i64) -> Result<i64, Error> {
        Ok(self.client.lease_client().time_to_live(lease, None).await?.ttl())
    }

    /// Opens a watch, and waits for what etcd says of it.
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

    /// Whether it says who asks.
    pub(super) fn has_user(&self) -> bool {
        self.user.is_some()
    }

    /// Sees to it that calls say who asks. From then on the library gets a new token by itself
    /// where etcd says clearly that it no longer knows the old one.
    pub(super) async fn authenticate(&self) -> Result<(), Error> {
        let Some(EtcdUser { name, password }) = &self.user else { return Ok(()) };
        let mut authenticated = self.authenticated.lock().await;
        if *authenticated {
            return Ok(());
        }
        let user = Some((name.clone(), password.clone()));
        match self.client.clone().update_user(user).await {
            // Then it asks nobody who they are.
            Err(Error::GRpcStatus(status)) if status.code() == Code::FailedPrecondition => {}
            told => told?,
        }
        *authenticated = true;
        Ok(())
    }

    /// Says who asks once more before the next call, where etcd does not say clearly that this is
    /// what it wants.
    pub(super) async fn forget_token(&self) {
        *self.authenticated.lock().await = false;
    }
}
