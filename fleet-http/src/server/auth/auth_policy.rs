//! Authentication of requests on TCP ports: decides whether a request needs a client certificate or
//! a token, and whether it has one.
//!
//! A certificate that arrives here is valid. In the handshake (`handshake.rs`), rustls verifies it
//! against the CA of the port's `ServerTls` (`tls.rs`) and closes the connection if it is not.

use std::sync::{Arc, PoisonError, RwLock};

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;

use super::tokens::{Rights, Tokens};
use crate::ServerTls;

/// Authentication required at the TCP ports of a server: TLS, client certificates and tokens.
///
/// Clones share their configuration, so that [`replace`](Self::replace) takes effect while the
/// server runs. Unix sockets need no policy, because file permissions control access to them.
#[derive(Debug, Clone, Default)]
pub struct AuthPolicy(Arc<RwLock<Arc<AuthConfig>>>);

#[derive(Debug, Default)]
pub(crate) struct AuthConfig {
    pub(crate) tls: Option<ServerTls>,
    pub(crate) tokens: Option<Tokens>,
}

impl AuthPolicy {
    /// Creates a policy that accepts requests with one of the tokens, or with a client certificate
    /// that `tls` verifies. If neither tokens nor client certificates are configured, the policy
    /// accepts all requests.
    #[must_use]
    pub fn new(tls: Option<ServerTls>, tokens: Option<Tokens>) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(AuthConfig { tls, tokens }))))
    }

    /// Replaces the configuration. Requests in progress continue. Later requests must satisfy the
    /// new configuration, even on connections that are already open. For example, a client
    /// certificate is refused once its CA is no longer accepted.
    pub fn replace(&self, tls: Option<ServerTls>, tokens: Option<Tokens>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) =
            Arc::new(AuthConfig { tls, tokens });
    }

    pub(crate) fn config(&self) -> Arc<AuthConfig> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl AuthConfig {
    /// Whether clients can authenticate at all.
    pub(crate) fn has_credentials(&self) -> bool {
        self.tokens.is_some() || self.verifies_certificates()
    }

    fn verifies_certificates(&self) -> bool {
        self.tls.as_ref().is_some_and(ServerTls::verifies_clients)
    }

    /// Returns the rights of a request with these headers. If the request is refused, returns an
    /// error message that names the accepted credentials.
    ///
    /// `verified_by` is the configuration that verified the client's certificate in the TLS
    /// handshake; `None` if the client presented no certificate.
    pub(crate) fn rights(
        &self,
        is_tls: bool,
        verified_by: Option<&ServerTls>,
        headers: &HeaderMap,
    ) -> Result<Rights, String> {
        let by_certificate = is_tls && self.verifies_certificates();
        // The accepted CA may have changed since the certificate was verified.
        let is_known =
            |tls: &ServerTls| verified_by.is_some_and(|other| tls.verifies_clients_of(other));
        let is_in = match by_certificate {
            true => self.tls.as_ref().is_some_and(is_known),
            false => self.tokens.is_none(),
        };
        if is_in {
            return Ok(Rights::Write);
        }
        let presented = bearer(headers);
        if let (Some(tokens), Some(token)) = (&self.tokens, presented)
            && let Some(rights) = tokens.admit(token)
        {
            return Ok(rights);
        }
        let what = match (by_certificate, self.tokens.is_some()) {
            (true, true) => "a client certificate, or a token as Authorization: Bearer TOKEN",
            (true, false) => "a client certificate",
            (false, _) => "a token as Authorization: Bearer TOKEN",
        };
        let problem = if presented.is_some() { "unknown token" } else { "authentication required" };
        Err(format!("{problem}: present {what}"))
    }
}

/// Returns the bearer token of a request.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}
