//! TLS configuration of servers and clients, built from PEM texts. The configuration of a server
//! decides which CA must have signed the certificates of clients.
//!
//! Only this module selects the cryptography provider.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{
    ClientConfig, DigitallySignedStruct, Error, RootCertStore, ServerConfig, SignatureScheme,
};

/// TLS configuration of a server: its identity, and optionally the CA of client certificates.
#[derive(Clone)]
pub struct ServerTls {
    config: Arc<ServerConfig>,
    /// CA of client certificates, as PEM.
    client_ca: Option<Arc<[u8]>>,
}

/// TLS configuration of a client: its trusted CAs, and optionally its identity.
#[derive(Clone)]
pub struct ClientTls(Arc<ClientConfig>);

/// A certificate with its chain and its private key.
#[derive(Clone, Copy)]
pub struct PemIdentity<'a> {
    /// Certificates as PEM, beginning with the leaf.
    pub certificate: &'a [u8],
    /// Private key as PEM: PKCS #8, PKCS #1 or SEC 1.
    pub key: &'a [u8],
}

/// Error of PEM texts that cannot be used for TLS.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A text contains no certificate.
    #[error("no readable PEM certificate: expected a block that starts with BEGIN CERTIFICATE")]
    NoCertificate,
    /// A text contains no private key.
    #[error("no readable PEM private key: expected a block that starts with BEGIN PRIVATE KEY")]
    NoKey,
    /// A certificate is invalid or not suited to its purpose.
    #[error("the certificate cannot be used")]
    Certificate(#[source] Error),
    /// The private key is invalid or does not match the certificate.
    #[error("the private key does not match the certificate")]
    Key(#[source] Error),
    /// This host has no trusted CA.
    #[error("this host has no trusted CA certificates: specify a CA file")]
    NoAuthority,
}

impl ServerTls {
    /// Creates the configuration of a server with this identity. If `client_ca` (PEM) is given, the
    /// server accepts client certificates signed by this CA and refuses all others.
    ///
    /// # Errors
    ///
    /// Returns [`TlsError`] if one of the PEM texts cannot be used.
    pub fn new(identity: PemIdentity<'_>, client_ca: Option<&[u8]>) -> Result<Self, TlsError> {
        let builder = ServerConfig::builder_with_provider(provider());
        let builder =
            builder.with_safe_default_protocol_versions().map_err(TlsError::Certificate)?;
        let builder = match client_ca {
            None => builder.with_no_client_auth(),
            Some(pem) => {
                let roots = Arc::new(roots(pem)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider());
                // A client without a certificate completes the handshake, so that it gets an error
                // response.
                let verifier = verifier
                    .allow_unauthenticated()
                    .build()
                    .map_err(|error| TlsError::Certificate(Error::General(error.to_string())))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let (chain, key) = identity.read()?;
        let mut config = builder.with_single_cert(chain, key).map_err(identity_error)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { config: Arc::new(config), client_ca: client_ca.map(Arc::from) })
    }

    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        self.config.clone()
    }

    /// Whether the server verifies client certificates.
    #[must_use]
    pub fn verifies_clients(&self) -> bool {
        self.client_ca.is_some()
    }

    /// Returns whether this configuration accepts client certificates that `other` has verified.
    /// This is so if both have the same client CA.
    pub(crate) fn verifies_clients_of(&self, other: &Self) -> bool {
        self.verifies_clients() && self.client_ca == other.client_ca
    }
}

impl ClientTls {
    /// Creates the configuration of a client. The client trusts the CAs in `ca` (PEM), or the CAs
    /// of this host if `ca` is `None`. If `identity` is given, the client presents it to the
    /// server.
    ///
    /// # Errors
    ///
    /// Returns [`TlsError`] if one of the PEM texts cannot be used.
    pub fn new(ca: Option<&[u8]>, identity: Option<PemIdentity<'_>>) -> Result<Self, TlsError> {
        let roots = ca.map_or_else(native_roots, roots)?;
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider());
        let verifier = verifier
            .build()
            .map_err(|error| TlsError::Certificate(Error::General(error.to_string())))?;
        Self::verifying(verifier, identity)
    }

    /// Creates the configuration of a client that accepts any server certificate. This is insecure:
    /// an attacker on the network can impersonate the server, read everything and forge responses.
    ///
    /// # Errors
    ///
    /// Returns [`TlsError`] if the identity cannot be used.
    pub fn without_server_verification(
        identity: Option<PemIdentity<'_>>,
    ) -> Result<Self, TlsError> {
        Self::verifying(Arc::new(NoServerVerification::new(provider())), identity)
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
                builder.with_client_auth_cert(chain, key).map_err(identity_error)?
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
        f.debug_struct("ServerTls").field("verifies_clients", &self.verifies_clients()).finish()
    }
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientTls")
    }
}

impl fmt::Debug for PemIdentity<'_> {
    /// Omits the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PemIdentity")
    }
}

/// Returns whether clients that connect to `host` accept the name in a server certificate (PEM,
/// beginning with the leaf). `host` is a name or an IP address.
///
/// # Errors
///
/// Returns [`TlsError`] if the text contains no certificate that can be parsed.
pub fn certificate_covers(certificate: &[u8], host: &str) -> Result<bool, TlsError> {
    let chain = certificates(certificate)?;
    let leaf = ParsedCertificate::try_from(&chain[0]).map_err(TlsError::Certificate)?;
    let name = ServerName::try_from(host);
    Ok(name.is_ok_and(|name| verify_server_name(&leaf, &name).is_ok()))
}

/// Maps an error of a certificate and its private key.
fn identity_error(error: Error) -> TlsError {
    match error {
        Error::InvalidCertificate(_) => TlsError::Certificate(error),
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

fn native_roots() -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    // Certificates that cannot be parsed are skipped, and thus not trusted.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() { Err(TlsError::NoAuthority) } else { Ok(roots) }
}

/// Verifier that accepts every server certificate, but checks that the server holds the
/// certificate's private key.
#[derive(Debug)]
pub(crate) struct NoServerVerification(Arc<CryptoProvider>);

impl NoServerVerification {
    pub(crate) fn new(provider: Arc<CryptoProvider>) -> Self {
        Self(provider)
    }
}

impl ServerCertVerifier for NoServerVerification {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_pem_errors_are_distinct() {
        let both =
            |text: &'static str| PemIdentity { certificate: text.as_bytes(), key: text.as_bytes() };
        assert!(matches!(ServerTls::new(both(""), None), Err(TlsError::NoKey)));
        let ca = ClientTls::new(Some(b"-----BEGIN CERTIFICATE-----"), None);
        assert!(matches!(ca, Err(TlsError::NoCertificate)));
    }
}
