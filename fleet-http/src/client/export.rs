//! Reading an export as it comes.

use bytes::Bytes;
use fleet_core::Strictness;
use http_body_util::BodyExt as _;
use hyper::Response;
use hyper::body::Incoming;

use super::{ClientError, Endpoint};
use crate::STRICTNESS;

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
