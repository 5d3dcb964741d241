//! Writing on the condition that nobody else has written meanwhile.

use fleet_unitfile::UnitName;
use hyper::Method;
use hyper::header::{HeaderName, HeaderValue, IF_MATCH};

use super::{Client, ClientError, UnitUpload, found, unit_path};
use crate::wire::Unit;

/// A unit, with the tag of the moment at which it was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tagged {
    /// The unit with its source.
    pub unit: Unit,
    /// What to write on the condition of.
    pub tag: String,
}

impl Client {
    /// The unit of that name with its tag; `None` if there is none.
    ///
    /// # Errors
    ///
    /// [`ClientError`].
    pub async fn tagged_unit(&self, name: &UnitName) -> Result<Option<Tagged>, ClientError> {
        let Some((unit, tag)) = found(self.caller.get_tagged(&unit_path(name)).await)? else {
            return Ok(None);
        };
        let tag = tag.ok_or_else(|| self.caller.bad_answer("a unit without its tag"))?;
        Ok(Some(Tagged { unit, tag }))
    }

    /// Replaces the content of a unit, unless it was written after it had that tag. `false`: it
    /// was, or it is gone; look again and decide again.
    ///
    /// # Errors
    ///
    /// As [`put_unit`](Self::put_unit).
    pub async fn put_unit_if(
        &self,
        name: &UnitName,
        upload: &UnitUpload,
        tag: &str,
    ) -> Result<bool, ClientError> {
        let (header, entity) = (self.if_match(tag)?, upload.entity());
        let put = self.caller.send(Method::PUT, &unit_path(name), Some(header), &entity).await;
        unchanged(put.map(drop))
    }

    /// Forgets a unit, unless it was written after it had that tag. `false`: it was; look again
    /// and decide again.
    ///
    /// # Errors
    ///
    /// [`ClientError::Api`] with status 404 when there is no such unit.
    pub async fn destroy_if(&self, name: &UnitName, tag: &str) -> Result<bool, ClientError> {
        let header = Some(self.if_match(tag)?);
        let gone = self.caller.send_empty_with(Method::DELETE, &unit_path(name), header).await;
        unchanged(gone.map(drop))
    }

    fn if_match(&self, tag: &str) -> Result<(HeaderName, HeaderValue), ClientError> {
        let value = HeaderValue::try_from(tag);
        let value = value.map_err(|_| self.caller.bad_answer(format!("{tag:?} is no tag")))?;
        Ok((IF_MATCH, value))
    }
}

fn unchanged(written: Result<(), ClientError>) -> Result<bool, ClientError> {
    match written {
        Ok(()) => Ok(true),
        Err(ClientError::Api { status: 412, .. }) => Ok(false),
        Err(error) => Err(error),
    }
}
