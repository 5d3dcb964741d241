//! Paginated lists.

use serde::de::DeserializeOwned;

use super::query::Query;
use super::{Client, ClientError};

/// Maximum number of times that the client starts a list again because the server has dropped its
/// snapshot.
const MAX_RELISTS: usize = 3;

impl Client {
    /// Returns the items of all pages of a list. Starts again if the server responds with status
    /// 400, because it may have dropped the snapshot of the list.
    pub(super) async fn list<P: DeserializeOwned, T>(
        &self,
        path: &str,
        query: &Query,
        split: impl Fn(P) -> (Vec<T>, String),
    ) -> Result<Vec<T>, ClientError> {
        let mut tries = 0;
        loop {
            match self.list_once(path, query, &split).await {
                Err(ClientError::Api { status: 400, .. }) if tries < MAX_RELISTS => tries += 1,
                response => return response,
            }
        }
    }

    async fn list_once<P: DeserializeOwned, T>(
        &self,
        path: &str,
        query: &Query,
        split: impl Fn(P) -> (Vec<T>, String),
    ) -> Result<Vec<T>, ClientError> {
        let mut items = Vec::new();
        let mut token = String::new();
        loop {
            let given = Some(token.as_str()).filter(|token| !token.is_empty());
            let query = query.clone().with("nextPageToken", given);
            let (page, next) = split(self.caller.get(path, &query).await?);
            items.extend(page);
            if next.is_empty() {
                return Ok(items);
            }
            if next == token {
                return Err(self
                    .caller
                    .bad_response("a page of the list refers to itself as the next one"));
            }
            token = next;
        }
    }
}
