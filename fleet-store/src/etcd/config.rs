//! What an etcd cluster is reached by, checked before anything is sent.

use std::fmt;
use std::time::Duration;

use etcd_client::{Certificate, Client, ConnectOptions, Error, Identity, TlsOptions};
use futures_util::FutureExt as _;
use tonic::transport::Uri;

/// How often a connection in use is asked for a sign of life: etcd's server cuts off whoever asks
/// more often than every five seconds.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// Where an etcd cluster is, and how to talk to it.
///
/// ```
/// use fleet_store::{EtcdConfig, EtcdUser};
///
/// let config = EtcdConfig {
///     user: Some(EtcdUser { name: "fleet".to_owned(), password: "secret".to_owned() }),
///     ..EtcdConfig::new(["https://10.0.0.1:2379", "https://10.0.0.2:2379"])
/// };
/// assert_eq!(config.endpoints.len(), 2);
/// assert!(!format!("{config:?}").contains("secret"));
/// ```
#[derive(Debug, Clone)]
pub struct EtcdConfig {
    /// The members' client URLs, such as `http://127.0.0.1:2379`. The first one that answers is
    /// used until it fails.
    pub endpoints: Vec<String>,
    /// A number by chance, which chooses the order in which this client prefers the endpoints, so
    /// that many clients with one configuration share all members. Without it the order is the
    /// one given.
    pub shuffle_seed: Option<u64>,
    /// Certificates for endpoints of `https`; without any, the server's must be one that this
    /// machine trusts.
    pub tls: EtcdTls,
    /// Who to be, where etcd asks for it.
    pub user: Option<EtcdUser>,
    /// What stands before every key in etcd, and is not part of it here: several stores can share
    /// a cluster, and a user needs rights below it alone.
    pub key_prefix: String,
    /// How long one call to one endpoint may take.
    pub time_limit: Duration,
}

/// Certificates, in PEM.
#[derive(Debug, Clone, Default)]
pub struct EtcdTls {
    /// The authority that the servers' certificates must be from.
    pub ca: Option<Vec<u8>>,
    /// What this client shows the servers.
    pub identity: Option<EtcdIdentity>,
}

/// A client's certificate and its key, in PEM.
#[derive(Clone)]
pub struct EtcdIdentity {
    /// The certificate.
    pub certificate: Vec<u8>,
    /// Its private key.
    pub key: Vec<u8>,
}

/// A user of etcd.
#[derive(Clone)]
pub struct EtcdUser {
    /// The name.
    pub name: String,
    /// The password.
    pub password: String,
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EtcdConfigError {
    /// No endpoint is given.
    #[error("no endpoint of etcd is given")]
    NoEndpoint,
    /// An endpoint is no URL of the right kind.
    #[error("{0:?} is no endpoint of etcd: write a URL such as https://10.0.0.1:2379")]
    Endpoint(String),
    /// Certificates are given for an endpoint that does not use them.
    #[error("{0:?} is not encrypted, though certificates are given: write https://")]
    NotEncrypted(String),
    /// The certificates cannot be used.
    #[error("the certificates for etcd cannot be used")]
    Certificates(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl EtcdConfig {
    /// How long a call may take unless told otherwise.
    pub const DEFAULT_TIME_LIMIT: Duration = Duration::from_secs(2);

    /// A cluster that is reached without certificates of one's own and without a user.
    pub fn new<T: Into<String>>(endpoints: impl IntoIterator<Item = T>) -> Self {
        Self {
            endpoints: endpoints.into_iter().map(Into::into).collect(),
            shuffle_seed: None,
            tls: EtcdTls::default(),
            user: None,
            key_prefix: String::new(),
            time_limit: Self::DEFAULT_TIME_LIMIT,
        }
    }

    /// A client for each endpoint, which connects when it is first used, in the order in which
    /// they are preferred.
    pub(super) fn clients(&self) -> Result<Vec<(String, Client)>, EtcdConfigError> {
        if self.endpoints.is_empty() {
            return Err(EtcdConfigError::NoEndpoint);
        }
        let client = |url: &String| Ok((url.clone(), self.client(url)?));
        self.order().into_iter().map(client).collect()
    }

    /// Each number below the count of all orders chooses another one, and larger ones begin anew.
    fn order(&self) -> Vec<&String> {
        let mut order: Vec<_> = self.endpoints.iter().collect();
        let mut left = self.shuffle_seed.unwrap_or(0);
        for taken in 0..order.len().saturating_sub(1) {
            let count = order.len() - taken;
            let chosen = left % count as u64;
            left /= count as u64;
            order[taken..=taken + chosen as usize].rotate_right(1);
        }
        order
    }

    fn client(&self, url: &str) -> Result<Client, EtcdConfigError> {
        let options = self.options(url)?;
        let making = tokio::task::unconstrained(Client::connect([url], Some(options)));
        // A client that is told of no user yet has nothing to wait for.
        let made = making.now_or_never();
        let made = made.unwrap_or_else(|| Err(Error::Internal("it waits".to_owned())));
        made.map_err(|error| match error {
            Error::InvalidUri(_) => EtcdConfigError::Endpoint(url.to_owned()),
            Error::TransportError(error) => EtcdConfigError::Certificates(Box::new(error)),
            error => EtcdConfigError::Certificates(Box::new(error)),
        })
    }

    fn options(&self, url: &str) -> Result<ConnectOptions, EtcdConfigError> {
        let wrong = || EtcdConfigError::Endpoint(url.to_owned());
        let uri: Uri = url.parse().map_err(|_| wrong())?;
        uri.host().filter(|host| !host.is_empty()).ok_or_else(wrong)?;
        let options = ConnectOptions::new()
            .with_connect_timeout(self.time_limit)
            .with_keep_alive(KEEP_ALIVE_INTERVAL, self.time_limit)
            .with_keep_alive_while_idle(false)
            .with_require_leader(true)
            .with_auto_token_refresh(true);
        match url.split_once("://") {
            Some(("http", _)) if self.tls.is_empty() => Ok(options),
            Some(("http", _)) => Err(EtcdConfigError::NotEncrypted(url.to_owned())),
            Some(("https", _)) => Ok(options.with_tls(self.tls.options())),
            _ => Err(wrong()),
        }
    }
}

impl EtcdTls {
    fn is_empty(&self) -> bool {
        self.ca.is_none() && self.identity.is_none()
    }

    fn options(&self) -> TlsOptions {
        let mut tls = TlsOptions::new();
        tls = match &self.ca {
            Some(ca) => tls.ca_certificate(Certificate::from_pem(ca)),
            None => tls.with_native_roots(),
        };
        match &self.identity {
            Some(EtcdIdentity { certificate, key }) => {
                tls.identity(Identity::from_pem(certificate, key))
            }
            None => tls,
        }
    }
}

impl fmt::Debug for EtcdIdentity {
    /// Without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdIdentity").finish_non_exhaustive()
    }
}

impl fmt::Debug for EtcdUser {
    /// Without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdUser").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn order(shuffle_seed: Option<u64>) -> String {
        let config = EtcdConfig { shuffle_seed, ..EtcdConfig::new(["a", "b", "c"]) };
        config.order().into_iter().map(String::as_str).collect()
    }

    #[test]
    fn each_number_spreads_clients_over_the_endpoints_in_another_order() {
        assert_eq!(order(None), "abc");
        let orders: BTreeSet<String> = (0..6).map(|number| order(Some(number))).collect();
        assert_eq!(orders.len(), 6, "{orders:?}");
        assert_eq!(order(Some(6)), order(Some(0)));
    }

    #[tokio::test]
    async fn what_cannot_be_reached_is_refused_before_anything_is_sent() {
        let broken = b"-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n".to_vec();
        let certificate = EtcdTls { ca: Some(broken), identity: None };
        let none = EtcdTls::default;
        let refused = |urls: &[&str], tls| {
            let config = EtcdConfig { tls, ..EtcdConfig::new(urls.iter().copied()) };
            config.clients().err().map_or_else(String::new, |error| error.to_string())
        };
        let table = [
            (&[][..], none(), "no endpoint of etcd is given"),
            (&["http://a:1", "https://b:1"], none(), ""),
            (
                &["http://a:1", "a:1"],
                none(),
                "\"a:1\" is no endpoint of etcd: write a URL such as https://10.0.0.1:2379",
            ),
            (
                &["http://"],
                none(),
                "\"http://\" is no endpoint of etcd: write a URL such as https://10.0.0.1:2379",
            ),
            (
                &["http://a:1"],
                certificate.clone(),
                "\"http://a:1\" is not encrypted, though certificates are given: write https://",
            ),
            (&["https://a:1"], certificate, "the certificates for etcd cannot be used"),
        ];
        for (urls, tls, complaint) in table {
            assert_eq!(refused(urls, tls), complaint, "of {urls:?}");
        }
    }
}
