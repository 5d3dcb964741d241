//! Which answers are sent compressed to those who accept it.

use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use tower_http::CompressionLevel;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{And, Predicate, SizeAbove};

/// From how many bytes on it is worth the work.
const WORTH_IT: u16 = 1024;

/// Compresses what is JSON and large, as gzip.
pub(super) fn layer() -> CompressionLayer<And<SizeAbove, IsJson>> {
    CompressionLayer::new()
        .gzip(true)
        .quality(CompressionLevel::Fastest)
        .compress_when(SizeAbove::new(WORTH_IT.into()).and(IsJson))
}

/// What is followed, as journals and events are, is not JSON: its lines would be held back.
#[derive(Debug, Clone, Copy)]
pub(super) struct IsJson;

impl Predicate for IsJson {
    fn should_compress<B>(&self, response: &axum::http::Response<B>) -> bool
    where
        B: axum::body::HttpBody,
    {
        let content = response.headers().get(CONTENT_TYPE);
        content.is_some_and(|value| value == HeaderValue::from_static("application/json"))
    }
}
