//! Compression of responses.

use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use tower_http::CompressionLevel;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{And, Predicate, SizeAbove};

/// Minimum size of a compressed response, in bytes.
const MIN_SIZE: u16 = 1024;

/// Compresses large JSON responses with gzip.
pub(crate) fn layer() -> CompressionLayer<And<SizeAbove, IsJson>> {
    CompressionLayer::new()
        .gzip(true)
        .quality(CompressionLevel::Fastest)
        .compress_when(SizeAbove::new(MIN_SIZE.into()).and(IsJson))
}

/// Matches JSON responses. Streams such as journals and events have other content types. They are
/// not compressed, because compression would delay their lines.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IsJson;

impl Predicate for IsJson {
    fn should_compress<B>(&self, response: &axum::http::Response<B>) -> bool
    where
        B: axum::body::HttpBody,
    {
        let content = response.headers().get(CONTENT_TYPE);
        content.is_some_and(|value| value == HeaderValue::from_static("application/json"))
    }
}
