//! Reads an export, and prepares an import.

use bytes::Bytes;
use fleet_core::{Epoch, Intent, MachineId, Strictness};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::{Method, Response};

use super::{Client, ClientError, Endpoint};
use crate::headers::STRICTNESS;
use crate::wire::ImportRequest;

impl Client {
    /// Prepares the cluster for the import of another cluster's units. Call this method before you
    /// create the units.
    ///
    /// Raises the epoch above `past`, the latest epoch of the other cluster. As a result, new
    /// placements supersede the placements of the other cluster that machines still remember. Also
    /// records the given intents, even for machines that are not present.
    ///
    /// # Errors
    ///
    /// Returns [`ClientError::Api`] with status 409 if the server's store has no lineage.
    pub async fn prepare_import(
        &self,
        past: Epoch,
        intents: &[(MachineId, Intent)],
    ) -> Result<(), ClientError> {
        let body = ImportRequest::new(past, intents);
        self.caller.send(Method::POST, "import", None, &body).await.map(drop)
    }
}

/// Byte stream of an export.
#[derive(Debug)]
pub struct ExportBytes {
    endpoint: Endpoint,
    strictness: Strictness,
    body: Incoming,
}

impl ExportBytes {
    pub(super) fn new(endpoint: Endpoint, response: Response<Incoming>) -> Self {
        let warns = response.headers().get(STRICTNESS).is_some_and(|value| value == "warn");
        let strictness = if warns { Strictness::Warn } else { Strictness::Refuse };
        Self { endpoint, strictness, body: response.into_body() }
    }

    /// Returns the server's handling of unit files that fleet v1 silently accepted.
    #[must_use]
    pub fn strictness(&self) -> Strictness {
        self.strictness
    }

    /// Returns the next bytes of the export, or `None` at the end.
    ///
    /// # Errors
    ///
    /// Returns [`ClientError::Broken`] if the export was interrupted.
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
