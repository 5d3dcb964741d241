//! Authentication of requests on TCP ports: decides whether a request needs a client certificate or
//! a token, what a read-only token may do, and how many connections such tokens may occupy.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use axum::extract::Request;
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, Method};

use super::auth::tokens::{Rights, Tokens};
use crate::ServerTls;
use crate::server::handlers::extract::Params;

pub(super) mod tokens;

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

/// Writes that support `dryRun=1`, as methods and route patterns below the prefix of the API.
///
/// A write is only listed if its handler decides by [`Params::dry_run`], as [`is_preview`] does.
const DRY_RUNS: [(Method, &str); 11] = [
    (Method::POST, "/units"),
    (Method::PUT, "/units/{name}"),
    (Method::DELETE, "/units/{name}"),
    (Method::POST, "/units/{name}/restart"),
    (Method::POST, "/units/{name}/stop"),
    (Method::PATCH, "/machines"),
    (Method::POST, "/machines/{id}/cordon"),
    (Method::POST, "/machines/{id}/uncordon"),
    (Method::POST, "/machines/{id}/drain"),
    (Method::POST, "/rebalance"),
    (Method::DELETE, "/rebalance"),
];

/// Returns whether a request is a preview: a plan, a check, or the dry run of a write. `route` is
/// its route pattern below the prefix of the API.
///
/// Any other request may write, whatever its parameters are.
pub(crate) fn is_preview(request: &Request, route: &str) -> bool {
    let method = request.method();
    if method == Method::POST && matches!(route, "/plan" | "/check") {
        return true;
    }
    let supports_dry_run = DRY_RUNS.iter().any(|(known, path)| (known, *path) == (method, route));
    supports_dry_run && Params::of(request.uri()).dry_run().unwrap_or(false)
}

/// Read-only requests in progress on one listener. Limits the share of its connections that they
/// occupy.
///
/// Followed journals and event streams occupy their connections for as long as their clients like.
/// Without this limit, the owner of one read-only token could keep all other clients away.
#[derive(Debug)]
pub(crate) struct ReadShare {
    max: usize,
    max_per_token: usize,
    /// Number of requests in progress for each token, by a hash of the token.
    in_progress: Mutex<HashMap<u64, usize>>,
}

impl ReadShare {
    /// Limits all read-only requests to half of the connections, and those of one token to a
    /// quarter. At least one request is always possible.
    pub(crate) fn new(connections: usize) -> Arc<Self> {
        let (max, max_per_token) = ((connections / 2).max(1), (connections / 4).max(1));
        Arc::new(Self { max, max_per_token, in_progress: Mutex::default() })
    }

    /// Begins a request with this token. Returns `None` if too many are in progress.
    pub(crate) fn begin(self: &Arc<Self>, token: &[u8]) -> Option<ReadPermit> {
        let mut hasher = DefaultHasher::new();
        token.hash(&mut hasher);
        let token = hasher.finish();
        let mut in_progress = self.in_progress();
        let own = in_progress.get(&token).copied().unwrap_or_default();
        if own >= self.max_per_token || in_progress.values().sum::<usize>() >= self.max {
            return None;
        }
        in_progress.insert(token, own + 1);
        Some(ReadPermit { share: self.clone(), token })
    }

    /// Ignores poisoning: no panic can leave the map partially modified.
    fn in_progress(&self) -> MutexGuard<'_, HashMap<u64, usize>> {
        self.in_progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A read-only request in progress, until its response is sent.
#[derive(Debug)]
pub(crate) struct ReadPermit {
    share: Arc<ReadShare>,
    token: u64,
}

impl Drop for ReadPermit {
    fn drop(&mut self) {
        let mut in_progress = self.share.in_progress();
        let left = in_progress.remove(&self.token).unwrap_or_default().saturating_sub(1);
        if left > 0 {
            in_progress.insert(self.token, left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_share_half_of_the_connections() {
        let share = ReadShare::new(8);
        let begin = |token: &str| share.begin(token.as_bytes());
        let first = [begin("a"), begin("a")];
        assert!(first.iter().all(Option::is_some) && begin("a").is_none(), "a quarter each");
        let others = [begin("b"), begin("c")];
        assert!(others.iter().all(Option::is_some) && begin("d").is_none(), "half for all");
        drop(first);
        assert!(begin("d").is_some());
        drop(others);
        assert!(share.in_progress().is_empty());
    }

    #[test]
    fn single_connection_serves_readers() {
        let share = ReadShare::new(1);
        let permit = share.begin(b"a");
        assert!(permit.is_some() && share.begin(b"a").is_none());
    }
}
