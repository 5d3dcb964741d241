//! Reading an export as it comes, and handing over what of it is neither a unit nor metadata.

use bytes::Bytes;
use fleet_core::{Epoch, Intent, MachineId, Strictness};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::{Method, Response};

use super::{Client, ClientError, Endpoint};
use crate::STRICTNESS;
use crate::wire::HandOver;

impl Client {
    /// Lets what is placed from now on come after all that machines may remember of a cluster that
    /// has come to the epoch `past`, and notes what is to become of machines, present or not. To
    /// be asked before units of that cluster are brought in.
    ///
    /// # Errors
    ///
    /// [`ClientError::Api`] with status 409 when the server's store has no lineage.
    pub async fn hand_over(
        &self,
        past: Epoch,
        intents: &[(MachineId, Intent)],
    ) -> Result<(), ClientError> {
        let body = HandOver::new(past, intents);
        self.caller.send(Method::POST, "import", None, &body).await.map(drop)
    }
}

/// The bytes of an export as they come.
#[derive(Debug)]
pub struct ExportBytes {
    endpoint: Endpoint,
    strictness: Strictness,
    body: Incoming,
}

impl ExportBytes {
    pub(super) fn new(endpoint: Endpoint, answer: Response<Incoming>) -> Self {
        let warns = answer.headers().get(STRICTNESS).is_some_and(|value| value == "warn");
        let strictness = if warns { Strictness::Warn } else { Strictness::Refuse };
        Self { endpoint, strictness, body: answer.into_body() }
    }

    /// What the server does about unit files that the old program would have passed over in
    /// silence.
    #[must_use]
    pub fn strictness(&self) -> Strictness {
        self.strictness
    }

    /// The next bytes; `None` after the last ones.
    ///
    /// # Errors
    ///
    /// [`ClientError::Broken`] when the export was cut off.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        loop {
            match self.body.frame().await {
                None => return Ok(None),
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data() {
                        return Ok(Some(bytes));
                    }
                }
                Some(Err(cause)) => {
                    let endpoint = self.endpoint.clone();
                    return Err(ClientError::Broken { endpoint, cause: cause.into() });
                }
            }
        }
    }
}
