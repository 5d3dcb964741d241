//! Lists that the server answers in pages.

use serde::de::DeserializeOwned;

use super::query::Query;
use super::{Client, ClientError};

/// How often a listing is begun anew that the server did not keep to its end.
const RELISTS: usize = 3;

impl Client {
    /// All pages of a list. When the server no longer keeps the listing it is begun anew.
    pub(super) async fn list<P: DeserializeOwned, T>(
        &self,
        path: &str,
        query: &Query,
        split: impl Fn(P) -> (Vec<T>, String),
    ) -> Result<Vec<T>, ClientError> {
        let mut tries = 0;
        loop {
            match self.list_once(path, query, &split).await {
                Err(ClientError::Api { status: 400, .. }) if tries < RELISTS => tries += 1,
                answer => return answer,
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
                return Err(self.caller.bad_answer("the list does not go on after a page"));
            }
            token = next;
        }
    }
}
