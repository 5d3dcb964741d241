//! What either end of a connection needs for TLS, made of PEM texts that somebody has read.
//!
//! The library that encrypts is chosen here and nowhere else.

use std::fmt;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use crate::unverified::Unverified;

/// What a server shows to those who come by TLS, and whose certificates it knows.
#[derive(Clone)]
pub struct ServerTls {
    config: Arc<ServerConfig>,
    /// The authority of clients, as PEM.
    client_ca: Option<Arc<[u8]>>,
}

/// What a client trusts, and what it shows of itself.
#[derive(Clone)]
pub struct ClientTls(Arc<ClientConfig>);

/// A certificate, with those that lead from it to its authority, and its private key.
#[derive(Clone, Copy)]
pub struct PemIdentity<'a> {
    /// The certificates as PEM, its own first.
    pub certificate: &'a [u8],
    /// The key as PEM: PKCS #8, PKCS #1 or SEC 1.
    pub key: &'a [u8],
}

/// Why PEM texts cannot be used for TLS.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A text has no certificate in it.
    #[error("there is no certificate in it: it has to be PEM, with BEGIN CERTIFICATE")]
    NoCertificate,
    /// A text has no private key in it.
    #[error("there is no private key in it: it has to be PEM, with BEGIN PRIVATE KEY")]
    NoKey,
    /// A certificate is none, or not fit for what it is to do.
    #[error("the certificate cannot be used")]
    Certificate(#[source] rustls::Error),
    /// The key is none, or of another certificate.
    #[error("the private key does not go with the certificate")]
    Key(#[source] rustls::Error),
    /// This host knows no authority.
    #[error("this host trusts no authority: name one")]
    NoAuthority,
}

impl ServerTls {
    /// A server with that identity. Certificates of clients are known if `client_ca`, a PEM text,
    /// has the authority that signed them; others are refused.
    ///
    /// # Errors
    ///
    /// [`TlsError`] says what is wrong with which text.
    pub fn new(identity: PemIdentity<'_>, client_ca: Option<&[u8]>) -> Result<Self, TlsError> {
        let builder = ServerConfig::builder_with_provider(provider());
        let builder =
            builder.with_safe_default_protocol_versions().map_err(TlsError::Certificate)?;
        let builder = match client_ca {
            None => builder.with_no_client_auth(),
            Some(pem) => {
                let roots = Arc::new(roots(pem)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider());
                // Who shows none is let in as far as to be told what to show.
                let verifier = verifier.allow_unauthenticated().build().map_err(|error| {
                    TlsError::Certificate(rustls::Error::General(error.to_string()))
                })?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let (chain, key) = identity.read()?;
        let mut config = builder.with_single_cert(chain, key).map_err(unfit)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { config: Arc::new(config), client_ca: client_ca.map(Arc::from) })
    }

    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        self.config.clone()
    }

    /// Whether a client can be known by its certificate.
    #[must_use]
    pub fn knows_clients(&self) -> bool {
        self.client_ca.is_some()
    }

    /// Whether a client whose certificate `other` has let in is one that this knows.
    pub(crate) fn knows_those_of(&self, other: &Self) -> bool {
        self.knows_clients() && self.client_ca == other.client_ca
    }
}

impl ClientTls {
    /// A client that trusts the authorities in `ca`, a PEM text, or else those that this host
    /// trusts, and shows an identity if it has one.
    ///
    /// # Errors
    ///
    /// [`TlsError`] says what is wrong with which text.
    pub fn new(ca: Option<&[u8]>, identity: Option<PemIdentity<'_>>) -> Result<Self, TlsError> {
        let roots = ca.map_or_else(roots_of_this_host, roots)?;
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider());
        let verifier = verifier
            .build()
            .map_err(|error| TlsError::Certificate(rustls::Error::General(error.to_string())))?;
        Self::verifying(verifier, identity)
    }

    /// A client that takes any server for the one that it wants: whoever is on the way can be it,
    /// read everything and answer what it likes.
    ///
    /// # Errors
    ///
    /// [`TlsError`] says what is wrong with the identity.
    pub fn unverified(identity: Option<PemIdentity<'_>>) -> Result<Self, TlsError> {
        Self::verifying(Arc::new(Unverified::new(provider())), identity)
    }

    fn verifying(
        verifier: Arc<dyn ServerCertVerifier>,
        identity: Option<PemIdentity<'_>>,
    ) -> Result<Self, TlsError> {
        let builder = ClientConfig::builder_with_provider(provider());
        let builder =
            builder.with_safe_default_protocol_versions().map_err(TlsError::Certificate)?;
        let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
        let mut config = match identity {
            None => builder.with_no_client_auth(),
            Some(identity) => {
                let (chain, key) = identity.read()?;
                builder.with_client_auth_cert(chain, key).map_err(unfit)?
            }
        };
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(Arc::new(config)))
    }

    pub(crate) fn config(&self) -> Arc<ClientConfig> {
        self.0.clone()
    }
}

impl PemIdentity<'_> {
    fn read(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
        let key = PrivateKeyDer::from_pem_slice(self.key).map_err(|_no_key| TlsError::NoKey)?;
        Ok((certificates(self.certificate)?, key))
    }
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerTls").field("knows_clients", &self.knows_clients()).finish()
    }
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientTls")
    }
}

impl fmt::Debug for PemIdentity<'_> {
    /// Without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PemIdentity")
    }
}

/// Why a certificate and a key are of no use together.
fn unfit(error: rustls::Error) -> TlsError {
    match error {
        rustls::Error::InvalidCertificate(_) => TlsError::Certificate(error),
        error => TlsError::Key(error),
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    all.ok().filter(|all| !all.is_empty()).ok_or(TlsError::NoCertificate)
}

fn roots(pem: &[u8]) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(pem)? {
        roots.add(certificate).map_err(TlsError::Certificate)?;
    }
    Ok(roots)
}

fn roots_of_this_host() -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    // One that cannot be read is one that is not trusted.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() { Err(TlsError::NoAuthority) } else { Ok(roots) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_are_of_no_use_are_told_apart() {
        let both =
            |text: &'static str| PemIdentity { certificate: text.as_bytes(), key: text.as_bytes() };
        assert!(matches!(ServerTls::new(both(""), None), Err(TlsError::NoKey)));
        let ca = ClientTls::new(Some(b"-----BEGIN CERTIFICATE-----"), None);
        assert!(matches!(ca, Err(TlsError::NoCertificate)));
    }
}
