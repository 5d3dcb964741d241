//! Routes of the API.

use std::sync::{Arc, LazyLock};

use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::http::header::{ALLOW, AUTHORIZATION, CONTENT_TYPE, IF_MATCH, LOCATION, ORIGIN, SERVER};
use axum::http::{HeaderValue, Method, StatusCode, Uri};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::MethodRouter;
use fleet_store::mirror::MirrorStatus;
use tower_http::CompressionLevel;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{And, Predicate, SizeAbove};
use utoipa::OpenApi as _;
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouterExt as _};
use utoipa_axum::routes;

use super::api::SharedApi;
use super::auth::tokens::Rights;
use super::auth::{ReadPermit, is_preview};
use super::failure::{Failure, FailureMessage};
use super::handlers::{
    bulk, check, export, health, intents, jobs, machines, openapi, plan, put, rebalance, revisions,
    rollouts, states, status, units,
};
use super::net::limits::ConnectionOrigin;
use super::page;
use super::stream::{events, journal};
use crate::clock::Stopwatch;
use crate::server::net::limits;
use crate::wire::BEHIND;

/// Path prefix of version 1, and its old alias.
const PREFIXES: [&str; 2] = ["/fleet/v1", "/v1-alpha"];

/// Builds the router of the whole API.
pub(super) fn router(api: SharedApi) -> Router {
    let server = HeaderValue::try_from(format!("fleetd/{}", api.version))
        .unwrap_or_else(|_| HeaderValue::from_static("fleetd"));
    let waiting = from_fn_with_state(api.clone(), wait_for_first_read);
    let root = Router::from(daemon()).merge(page::routes().route_layer(waiting));
    PREFIXES
        .into_iter()
        .fold(root, |router, prefix| router.merge(version_1(prefix, &api)))
        .fallback(not_found_or_redirect)
        .layer(from_fn_with_state((server, api.clone()), middleware))
        .layer(compression())
        .with_state(api)
}

/// Returns the OpenAPI description as JSON.
pub(super) fn described() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let version_1 = cluster().merge(about());
        let all = OpenApiRouter::with_openapi(openapi::ApiDoc::openapi()).merge(daemon());
        let api = all.nest(PREFIXES[0], version_1).into_openapi();
        api.to_json().expect("a description holds nothing but text and numbers")
    });
    &TEXT
}

/// Routes about the daemon itself, without a prefix.
fn daemon() -> OpenApiRouter<SharedApi> {
    OpenApiRouter::new()
        .routes(routes!(health::alive).map(only_get))
        .routes(routes!(health::metrics).map(only_get))
        .routes(routes!(health::ready).map(only_get))
}

fn version_1(prefix: &str, api: &SharedApi) -> Router<SharedApi> {
    let waiting = from_fn_with_state(api.clone(), wait_for_first_read);
    let all = Router::from(cluster()).route_layer(waiting).merge(Router::from(about()));
    Router::new().route(prefix, no_methods()).nest(prefix, all)
}

/// Routes that do not need the store.
fn about() -> OpenApiRouter<SharedApi> {
    OpenApiRouter::new()
        .routes(routes!(health::version).map(only_get))
        .routes(routes!(openapi::document).map(only_get))
        .routes(routes!(openapi::discovery_document).map(discovery_only))
}

/// Routes of the cluster: units, states, machines and operations.
fn cluster() -> OpenApiRouter<SharedApi> {
    OpenApiRouter::new()
        .merge(units())
        .routes(routes!(states::list).map(only_get))
        .routes(routes!(states::get).map(only_get))
        .merge(machines())
        .routes(routes!(events::events).map(only_get))
        .routes(routes!(export::export).map(only_get))
        .routes(routes!(export::import).map(only_post))
        .routes(routes!(rebalance::rebalance, rebalance::progress, rebalance::end).map(rebalancing))
        .routes(routes!(rollouts::list).map(only_get))
        .routes(routes!(rollouts::get, rollouts::request).map(get_or_post))
        .routes(routes!(jobs::list).map(only_get))
        .routes(routes!(jobs::get).map(only_get))
        .routes(routes!(jobs::list_schedules).map(only_get))
        .routes(routes!(jobs::get_schedule, jobs::request_schedule).map(get_or_post))
        .routes(routes!(plan::plan).map(only_post))
        .routes(routes!(check::check).map(only_post))
}

fn rebalancing(methods: MethodRouter<SharedApi>) -> MethodRouter<SharedApi> {
    let message = "only GET, POST and DELETE supported against this resource";
    only(methods, "GET, HEAD, POST, DELETE, OPTIONS", message)
}

fn units() -> OpenApiRouter<SharedApi> {
    let unit = |methods| {
        let message = "only GET, PUT and DELETE supported against this resource";
        only(methods, "GET, HEAD, PUT, DELETE, OPTIONS", message)
    };
    OpenApiRouter::new()
        .routes(routes!(units::list, bulk::write).map(get_or_post))
        .routes(routes!(put::put, units::get, units::delete).map(unit))
        .routes(routes!(plan::explain).map(only_get))
        .routes(routes!(revisions::list).map(only_get))
        .routes(routes!(revisions::history).map(only_get))
        .routes(routes!(units::restart).map(only_post))
        .routes(routes!(units::stop).map(only_post))
        .routes(routes!(journal::journal).map(only_get))
        .routes(routes!(status::status).map(only_get))
}

fn machines() -> OpenApiRouter<SharedApi> {
    let all = |methods| {
        let message = "only GET and PATCH supported against this resource";
        only(methods, "GET, HEAD, PATCH, OPTIONS", message)
    };
    OpenApiRouter::new()
        .routes(routes!(machines::list, machines::patch).map(all))
        .routes(routes!(machines::get).map(only_get))
        .routes(routes!(machines::usage).map(only_get))
        .routes(routes!(intents::cordon).map(only_post))
        .routes(routes!(intents::uncordon).map(only_post))
        .routes(routes!(intents::drain, intents::progress).map(get_or_post))
}

const GET: &str = "GET, HEAD, OPTIONS";

/// Restricts a resource to reads.
pub(super) fn only_get(methods: MethodRouter<SharedApi>) -> MethodRouter<SharedApi> {
    only(methods, GET, "only GET supported against this resource")
}

/// Restricts a resource to reads and `POST`.
pub(super) fn get_or_post(methods: MethodRouter<SharedApi>) -> MethodRouter<SharedApi> {
    let message = "only GET and POST supported against this resource";
    only(methods, "GET, HEAD, POST, OPTIONS", message)
}

/// Restricts a resource to `POST`.
fn only_post(methods: MethodRouter<SharedApi>) -> MethodRouter<SharedApi> {
    only(methods, "POST, OPTIONS", "only POST supported against this resource")
}

/// A path that is only a prefix of resources.
fn no_methods() -> MethodRouter<SharedApi> {
    only(MethodRouter::new(), "", "no resource has this path: see /fleet/v1/discovery")
}

/// Adds `OPTIONS` to a resource, and refuses other methods with `message`.
fn only(
    methods: MethodRouter<SharedApi>,
    allowed: &'static str,
    message: &'static str,
) -> MethodRouter<SharedApi> {
    refusing(methods, allowed, StatusCode::METHOD_NOT_ALLOWED, message)
}

/// The discovery document refuses other methods with 400, like in version 1.
fn discovery_only(methods: MethodRouter<SharedApi>) -> MethodRouter<SharedApi> {
    let message = "only HTTP GET supported against this resource";
    refusing(methods, GET, StatusCode::BAD_REQUEST, message)
}

fn refusing(
    methods: MethodRouter<SharedApi>,
    allowed: &'static str,
    status: StatusCode,
    message: &'static str,
) -> MethodRouter<SharedApi> {
    methods.fallback(async move |method: Method| {
        let mut response = match method {
            Method::OPTIONS if !allowed.is_empty() => StatusCode::NO_CONTENT.into_response(),
            _ => Failure::new(status, message).into_response(),
        };
        response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
        response
    })
}

/// Redirects a path with empty, `.` or `..` segments to its normalized form. For any other path,
/// responds with 404.
async fn not_found_or_redirect(uri: Uri) -> Response {
    let Some(path) = cleaned(uri.path()) else {
        return no_resource().into_response();
    };
    let query = uri.query().map_or_else(String::new, |query| format!("?{query}"));
    match HeaderValue::try_from(format!("{path}{query}")) {
        Ok(location) => (StatusCode::MOVED_PERMANENTLY, [(LOCATION, location)]).into_response(),
        Err(_) => no_resource().into_response(),
    }
}

/// Returns the error of an unknown path.
pub(super) fn no_resource() -> Failure {
    Failure::not_found("no such resource: see /fleet/v1/discovery")
}

/// Returns the path without empty, `.` and `..` segments, if it has any.
fn cleaned(path: &str) -> Option<String> {
    let mut segments: Vec<&str> = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => {
                segments.pop();
            }
            segment => segments.push(segment),
        }
    }
    let last = if path.ends_with('/') && !segments.is_empty() { "/" } else { "" };
    let clean = format!("/{}{last}", segments.join("/"));
    (clean != path).then_some(clean)
}

/// Delays a request until the store was read for the first time.
async fn wait_for_first_read(
    State(api): State<SharedApi>,
    request: Request,
    next: Next,
) -> Response {
    api.wait_for_first_read().await;
    next.run(request).await
}

/// Handles every request: authentication, metrics, logging and common response headers.
async fn middleware(
    State((server, api)): State<(HeaderValue, SharedApi)>,
    mut request: Request,
    next: Next,
) -> Response {
    let watch = Stopwatch::start();
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let route = route(&request);
    let mut response = match admit(&request) {
        Err(failure) => failure.into_response(),
        Ok((rights, permit)) => {
            request.extensions_mut().insert(rights);
            let mut response = next.run(request).await;
            response.extensions_mut().insert(permit);
            response
        }
    };
    let status = response.status().as_u16();
    let failure = response.extensions_mut().remove::<FailureMessage>();
    if let Some(FailureMessage(message)) = failure {
        if response.status().is_server_error() {
            tracing::warn!(%method, path, status, message, "request failed");
        }
        if page::is_page(&path) {
            response = page::failure_page(&api, response, &message);
        }
    }
    if page::is_page(&path) {
        page::secure(&mut response);
    }
    tracing::debug!(%method, path, status, "sent a response");
    api.metrics.request(&route, method_label(&method), status, watch.elapsed());
    response.headers_mut().insert(SERVER, server);
    if let MirrorStatus::Behind { duration } = api.mirror.status()
        && duration.as_secs() > 0
    {
        response.headers_mut().insert(BEHIND, duration.as_secs().into());
    }
    response
}

/// Returns the route pattern of a request (such as `/fleet/v1/units/{name}`), with the current API
/// prefix. There are few patterns, so they are suitable as a metrics label.
fn route(request: &Request) -> String {
    let pattern = request.extensions().get::<MatchedPath>().map_or("other", MatchedPath::as_str);
    let [today, before] = PREFIXES;
    match pattern.strip_prefix(before) {
        Some(rest) => format!("{today}{rest}"),
        None => pattern.to_owned(),
    }
}

/// Returns the method as a label, or `other` if no resource supports it.
fn method_label(method: &Method) -> &'static str {
    let methods = ["DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"];
    methods.into_iter().find(|known| *known == method.as_str()).unwrap_or("other")
}

/// Decides before routing whether a request is admitted, and with which rights. A request with a
/// read-only token gets a permit, to keep until its response is sent.
fn admit(request: &Request) -> Result<(Rights, Option<Arc<ReadPermit>>), Failure> {
    let (mut rights, mut permit) = (Rights::Write, None);
    if let Some(origin) = request.extensions().get::<ConnectionOrigin>() {
        limits::check(request, origin.limits.head_size)?;
        if let Some(message) =
            origin.needs_host_check().then(|| limits::misdirected(request)).flatten()
        {
            return Err(Failure::new(StatusCode::MISDIRECTED_REQUEST, message));
        }
        let admitted = origin.rights(request.headers());
        rights = admitted.map_err(|it| Failure::new(StatusCode::UNAUTHORIZED, it))?;
        if rights == Rights::Read {
            permit = Some(admit_reader(request, origin)?);
        }
    }
    if is_foreign_form(request) {
        let message = "forms are only accepted from this page: open it and try again";
        return Err(Failure::new(StatusCode::FORBIDDEN, message));
    }
    if is_cross_origin_write(request) {
        let message = "writes from web pages are not allowed: omit the header Origin";
        return Err(Failure::new(StatusCode::FORBIDDEN, message));
    }
    if has_unsupported_condition(request) {
        let message = "the header If-Match is only supported for units: omit the header";
        return Err(Failure::bad_request(message));
    }
    Ok((rights, permit))
}

/// Admits a request with a read-only token: a read, or the preview of a write.
fn admit_reader(request: &Request, origin: &ConnectionOrigin) -> Result<Arc<ReadPermit>, Failure> {
    let route = route(request);
    let below_prefix = route.strip_prefix(PREFIXES[0]).unwrap_or_default();
    if !request.method().is_safe() && !is_preview(request, below_prefix) {
        let message = "the token is read-only: use one without the prefix read:";
        return Err(Failure::new(StatusCode::FORBIDDEN, message));
    }
    let token = request.headers().get(AUTHORIZATION).map_or(&[][..], HeaderValue::as_bytes);
    origin.read_share.begin(token).map(Arc::new).ok_or_else(|| {
        let message = "too many requests with read-only tokens are in progress: end some event \
                       streams or followed journals, or try again later";
        Failure::new(StatusCode::TOO_MANY_REQUESTS, message)
    })
}

/// Returns whether a web page may have made a browser send this write. Without this check, any web
/// page that a user of this host visits could write to a loopback port. The forms of the server's
/// own page have a check of their own.
fn is_cross_origin_write(request: &Request) -> bool {
    let is_form = page::is_page(request.uri().path());
    !request.method().is_safe() && !is_form && request.headers().contains_key(ORIGIN)
}

/// Returns whether another site may have made a browser send a form of the page.
fn is_foreign_form(request: &Request) -> bool {
    let is_form = !request.method().is_safe() && page::is_page(request.uri().path());
    is_form && !limits::is_same_origin(request.headers())
}

/// Whether the request has an `If-Match` condition that its resource does not support.
fn has_unsupported_condition(request: &Request) -> bool {
    let is_kept = route(request) == format!("{}/units/{{name}}", PREFIXES[0]);
    !request.method().is_safe() && !is_kept && request.headers().contains_key(IF_MATCH)
}

/// Minimum size of a compressed response, in bytes.
const MIN_SIZE: u16 = 1024;

/// Compresses large JSON responses and pages with gzip.
fn compression() -> CompressionLayer<And<SizeAbove, IsDocument>> {
    CompressionLayer::new()
        .gzip(true)
        .quality(CompressionLevel::Fastest)
        .compress_when(SizeAbove::new(MIN_SIZE.into()).and(IsDocument))
}

/// Matches JSON and the files of the page. Streams such as journals and events have other content
/// types. They are not compressed, because compression would delay their lines.
#[derive(Debug, Clone, Copy)]
struct IsDocument;

impl Predicate for IsDocument {
    fn should_compress<B>(&self, response: &axum::http::Response<B>) -> bool
    where
        B: axum::body::HttpBody,
    {
        const TYPES: [&str; 4] = ["application/json", "text/html", "text/css", "text/javascript"];
        let content = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let media_type = content.and_then(|value| value.split(';').next());
        media_type.is_some_and(|found| TYPES.contains(&found))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_normalized() {
        let cases = [
            ("/fleet/v1//units", Some("/fleet/v1/units")),
            ("//", Some("/")),
            ("/a/./b/../c", Some("/a/c")),
            ("/..", Some("/")),
            ("/a//", Some("/a/")),
            ("/a/b", None),
            ("/a/b/", None),
            ("/", None),
        ];
        for (path, expected) in cases {
            assert_eq!(cleaned(path).as_deref(), expected, "{path}");
        }
    }
}
