//! Configuration of an etcd cluster, checked before any connection.

use std::fmt;
use std::time::Duration;

use etcd_client::{Certificate, Client, ConnectOptions, Error, Identity, TlsOptions};
use futures_util::FutureExt as _;
use tonic::transport::Uri;

/// Interval of keep-alive pings. etcd disconnects clients that ping more often than every five
/// seconds.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// Address of an etcd cluster, and how to connect.
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
    /// Client URLs of the members, such as `http://127.0.0.1:2379`. The client stays with the first
    /// member that responds until a call to that member fails.
    pub endpoints: Vec<String>,
    /// Random number that determines the order in which this client tries the endpoints. Different
    /// seeds spread clients with the same configuration over all members. Without a seed, the
    /// configured order is used.
    pub shuffle_seed: Option<u64>,
    /// Certificates for `https` endpoints. Without a CA, the system's trusted certificates are
    /// used.
    pub tls: EtcdTls,
    /// User to authenticate as, if etcd requires it.
    pub user: Option<EtcdUser>,
    /// Prefix that the store adds to all its keys in etcd. Several stores with different prefixes
    /// can share an etcd cluster. The etcd user needs permissions for this prefix only.
    pub key_prefix: String,
    /// Timeout of a call to an endpoint.
    pub time_limit: Duration,
}

/// TLS certificates in PEM.
#[derive(Debug, Clone, Default)]
pub struct EtcdTls {
    /// CA certificate of the servers.
    pub ca: Option<Vec<u8>>,
    /// Client certificate to present.
    pub identity: Option<EtcdIdentity>,
}

/// A client certificate and its key, in PEM.
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

/// Error of an unusable configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EtcdConfigError {
    /// There is no endpoint.
    #[error("no etcd endpoint is configured")]
    NoEndpoint,
    /// An endpoint is not a valid URL.
    #[error("{0:?} is not an etcd endpoint: use a URL such as https://10.0.0.1:2379")]
    Endpoint(String),
    /// Certificates are configured, but an endpoint is not encrypted.
    #[error("etcd endpoint {0:?} is not encrypted, but certificates are configured: use https://")]
    NotEncrypted(String),
    /// The certificates cannot be used.
    #[error("the certificates for etcd cannot be used")]
    Certificates(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl EtcdConfig {
    /// Default timeout of a call.
    pub const DEFAULT_TIME_LIMIT: Duration = Duration::from_secs(2);

    /// Configures a cluster without certificates and without a user.
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

    /// Creates a client for each endpoint, in order of preference. Each client connects at its
    /// first call.
    pub(super) fn clients(&self) -> Result<Vec<(String, Client)>, EtcdConfigError> {
        if self.endpoints.is_empty() {
            return Err(EtcdConfigError::NoEndpoint);
        }
        let client = |url: &String| Ok((url.clone(), self.client(url)?));
        self.order().into_iter().map(client).collect()
    }

    /// Returns the endpoints in the order that the seed determines. Each seed below the number of
    /// permutations gives a different order; larger seeds wrap around.
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
        // A client without a user connects lazily, so this future is ready.
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
    /// Omits the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdIdentity").finish_non_exhaustive()
    }
}

impl fmt::Debug for EtcdUser {
    /// Omits the password.
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
    fn seeds_give_every_order_of_endpoints() {
        assert_eq!(order(None), "abc");
        let orders: BTreeSet<String> = (0..6).map(|number| order(Some(number))).collect();
        assert_eq!(orders.len(), 6, "{orders:?}");
        assert_eq!(order(Some(6)), order(Some(0)));
    }

    #[tokio::test]
    async fn invalid_configuration_is_refused_before_connecting() {
        let broken = b"-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n".to_vec();
        let certificate = EtcdTls { ca: Some(broken), identity: None };
        let none = EtcdTls::default;
        let refused = |urls: &[&str], tls| {
            let config = EtcdConfig { tls, ..EtcdConfig::new(urls.iter().copied()) };
            config.clients().err().map_or_else(String::new, |error| error.to_string())
        };
        let table = [
            (&[][..], none(), "no etcd endpoint is configured"),
            (&["http://a:1", "https://b:1"], none(), ""),
            (
                &["http://a:1", "a:1"],
                none(),
                "\"a:1\" is not an etcd endpoint: use a URL such as https://10.0.0.1:2379",
            ),
            (
                &["http://"],
                none(),
                "\"http://\" is not an etcd endpoint: use a URL such as https://10.0.0.1:2379",
            ),
            (
                &["http://a:1"],
                certificate.clone(),
                "etcd endpoint \"http://a:1\" is not encrypted, but certificates are configured: \
                 use https://",
            ),
            (&["https://a:1"], certificate, "the certificates for etcd cannot be used"),
        ];
        for (urls, tls, complaint) in table {
            assert_eq!(refused(urls, tls), complaint, "of {urls:?}");
        }
    }
}
