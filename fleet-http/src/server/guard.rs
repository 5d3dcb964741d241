//! Who is let in at a port.

use std::sync::{Arc, PoisonError, RwLock};

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;

use super::tokens::{Rights, Tokens};
use crate::ServerTls;

/// Who is let in at the ports of a server: by TLS or not, with which certificates and tokens.
///
/// Clones are one and the same guard, so it can be told something else while it is at work. Unix
/// sockets need none: their files say who may use them.
#[derive(Debug, Clone, Default)]
pub struct Guard(Arc<RwLock<Arc<Orders>>>);

#[derive(Debug, Default)]
pub(super) struct Orders {
    pub(super) tls: Option<ServerTls>,
    pub(super) tokens: Option<Tokens>,
}

impl Guard {
    /// A guard that lets in who shows one of the tokens, or a certificate that `tls` knows. Without
    /// either it lets in everybody.
    #[must_use]
    pub fn new(tls: Option<ServerTls>, tokens: Option<Tokens>) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(Orders { tls, tokens }))))
    }

    /// Goes by something else from now on. What is being answered goes on; each further request on
    /// a connection has to show a token that counts then, or comes by a certificate of an authority
    /// that still counts.
    pub fn change(&self, tls: Option<ServerTls>, tokens: Option<Tokens>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(Orders { tls, tokens });
    }

    pub(super) fn orders(&self) -> Arc<Orders> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Orders {
    /// Whether there is anything that somebody could show.
    pub(super) fn knows_anybody(&self) -> bool {
        self.tokens.is_some() || self.knows_certificates()
    }

    fn knows_certificates(&self) -> bool {
        self.tls.as_ref().is_some_and(ServerTls::knows_clients)
    }

    /// What who sends these headers may do, or what is to be shown by who is not let in with them.
    pub(super) fn rights(
        &self,
        is_tls: bool,
        shown_to: Option<&ServerTls>,
        headers: &HeaderMap,
    ) -> Result<Rights, String> {
        let by_certificate = is_tls && self.knows_certificates();
        // Another authority may count by now than when the certificate was shown.
        let is_known = |tls: &ServerTls| shown_to.is_some_and(|other| tls.knows_those_of(other));
        let is_in = match by_certificate {
            true => self.tls.as_ref().is_some_and(is_known),
            false => self.tokens.is_none(),
        };
        if is_in {
            return Ok(Rights::Write);
        }
        let shown = bearer(headers);
        if let (Some(tokens), Some(token)) = (&self.tokens, shown)
            && let Some(rights) = tokens.admit(token)
        {
            return Ok(rights);
        }
        let what = match (by_certificate, self.tokens.is_some()) {
            (true, true) => "a client certificate, or a token as Authorization: Bearer TOKEN",
            (true, false) => "a client certificate",
            (false, _) => "a token as Authorization: Bearer TOKEN",
        };
        let why = if shown.is_some() { "the token is none that is known" } else { "who are you" };
        Err(format!("{why}: show {what}"))
    }
}

/// The token that a request shows.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}
