//! What an etcd cluster is reached by, checked before anything is sent.

use std::fmt;
use std::time::Duration;

use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

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
            tls: EtcdTls::default(),
            user: None,
            key_prefix: String::new(),
            time_limit: Self::DEFAULT_TIME_LIMIT,
        }
    }

    /// A channel for each endpoint, which connects when it is first used.
    pub(super) fn channels(&self) -> Result<Vec<(String, Channel)>, EtcdConfigError> {
        if self.endpoints.is_empty() {
            return Err(EtcdConfigError::NoEndpoint);
        }
        let channel = |url: &String| Ok((url.clone(), self.endpoint(url)?.connect_lazy()));
        self.endpoints.iter().map(channel).collect()
    }

    fn endpoint(&self, url: &str) -> Result<Endpoint, EtcdConfigError> {
        let wrong = || EtcdConfigError::Endpoint(url.to_owned());
        let endpoint = Endpoint::from_shared(url.to_owned()).map_err(|_| wrong())?;
        endpoint.uri().host().filter(|host| !host.is_empty()).ok_or_else(wrong)?;
        let endpoint = match endpoint.uri().scheme_str() {
            Some("http") if self.tls.is_empty() => endpoint,
            Some("http") => return Err(EtcdConfigError::NotEncrypted(url.to_owned())),
            Some("https") => {
                let certificates = |error| EtcdConfigError::Certificates(Box::new(error));
                endpoint.tls_config(self.tls.client()).map_err(certificates)?
            }
            _ => return Err(wrong()),
        };
        Ok(tuned(endpoint, self.time_limit))
    }
}

/// Values that fit etcd's server, which cuts off whoever pings more often than every five seconds.
fn tuned(endpoint: Endpoint, limit: Duration) -> Endpoint {
    const PINGS: Duration = Duration::from_secs(10);
    endpoint
        .connect_timeout(limit)
        .http2_keep_alive_interval(PINGS)
        .keep_alive_timeout(limit)
        .initial_stream_window_size(1 << 21)
        .initial_connection_window_size(1 << 23)
}

impl EtcdTls {
    fn is_empty(&self) -> bool {
        self.ca.is_none() && self.identity.is_none()
    }

    fn client(&self) -> ClientTlsConfig {
        let mut tls = ClientTlsConfig::new();
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
