//! Which method on which path is answered by whom.

use std::sync::LazyLock;

use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::http::header::{ALLOW, IF_MATCH, LOCATION, ORIGIN, SERVER};
use axum::http::{HeaderValue, Method, StatusCode, Uri};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::MethodRouter;
use fleet_store::MirrorStatus;
use utoipa::OpenApi as _;
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouterExt as _};
use utoipa_axum::routes;

use super::api::Shared;

use super::failure::Failure;
use super::limits::Door;
use super::tokens::Rights;
use super::{
    discovery, events, explain, export, gauges, health, host, import, intents, journal, machines,
    openapi, put, rebalance, states, status, units, whatif,
};
use crate::BEHIND;
use crate::clock::Stopwatch;

/// Where version 1 lives, and its other name.
const PREFIXES: [&str; 2] = ["/fleet/v1", "/v1-alpha"];

/// The whole API.
pub(super) fn router(api: Shared) -> Router {
    let server = HeaderValue::try_from(format!("fleetd/{}", api.version))
        .unwrap_or_else(|_| HeaderValue::from_static("fleetd"));
    let root = Router::from(daemon()).route("/", nothing());
    PREFIXES
        .into_iter()
        .fold(root, |router, prefix| router.merge(version_1(prefix, &api)))
        .fallback(elsewhere)
        .layer(from_fn_with_state((server, api.clone()), frame))
        .layer(super::compression::layer())
        .with_state(api)
}

/// What the routes say of themselves, as OpenAPI in JSON.
pub(super) fn described() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let version_1 = cluster().merge(about());
        let all = OpenApiRouter::with_openapi(openapi::Frame::openapi()).merge(daemon());
        let api = all.nest(PREFIXES[0], version_1).into_openapi();
        api.to_json().expect("a description holds nothing but text and numbers")
    });
    &TEXT
}

/// How the daemon itself is.
fn daemon() -> OpenApiRouter<Shared> {
    OpenApiRouter::new()
        .routes(routes!(health::alive).map(only_get))
        .routes(routes!(gauges::metrics).map(only_get))
        .routes(routes!(health::ready).map(only_get))
}

fn version_1(prefix: &str, api: &Shared) -> Router<Shared> {
    let waiting = from_fn_with_state(api.clone(), begin);
    let all = Router::from(cluster()).route_layer(waiting).merge(Router::from(about()));
    Router::new().route(prefix, nothing()).nest(prefix, all)
}

/// What needs no look at the store.
fn about() -> OpenApiRouter<Shared> {
    OpenApiRouter::new()
        .routes(routes!(health::version).map(only_get))
        .routes(routes!(openapi::document).map(only_get))
        .routes(routes!(discovery::document).map(discovery_only))
}

/// Units, states, machines, and what happens to them.
fn cluster() -> OpenApiRouter<Shared> {
    OpenApiRouter::new()
        .merge(units())
        .routes(routes!(states::list).map(only_get))
        .routes(routes!(states::get).map(only_get))
        .merge(machines())
        .routes(routes!(events::events).map(only_get))
        .routes(routes!(export::export).map(only_get))
        .routes(routes!(import::import).map(only_post))
        .routes(routes!(rebalance::rebalance, rebalance::progress, rebalance::end).map(rebalancing))
        .routes(routes!(whatif::plan).map(only_post))
}

fn rebalancing(methods: MethodRouter<Shared>) -> MethodRouter<Shared> {
    let message = "only GET, POST and DELETE supported against this resource";
    only(methods, "GET, HEAD, POST, DELETE, OPTIONS", message)
}

fn units() -> OpenApiRouter<Shared> {
    let unit = |methods| {
        let message = "only GET, PUT and DELETE supported against this resource";
        only(methods, "GET, HEAD, PUT, DELETE, OPTIONS", message)
    };
    OpenApiRouter::new()
        .routes(routes!(units::list).map(only_get))
        .routes(routes!(put::put, units::get, units::delete).map(unit))
        .routes(routes!(explain::explain).map(only_get))
        .routes(routes!(units::restart).map(only_post))
        .routes(routes!(journal::journal).map(only_get))
        .routes(routes!(status::status).map(only_get))
}

fn machines() -> OpenApiRouter<Shared> {
    let all = |methods| {
        let message = "only GET and PATCH supported against this resource";
        only(methods, "GET, HEAD, PATCH, OPTIONS", message)
    };
    let drain = |methods| {
        let message = "only GET and POST supported against this resource";
        only(methods, "GET, HEAD, POST, OPTIONS", message)
    };
    OpenApiRouter::new()
        .routes(routes!(machines::list, machines::patch).map(all))
        .routes(routes!(machines::get).map(only_get))
        .routes(routes!(intents::cordon).map(only_post))
        .routes(routes!(intents::uncordon).map(only_post))
        .routes(routes!(intents::drain, intents::progress).map(drain))
}

const GET: &str = "GET, HEAD, OPTIONS";

/// A resource that can only be looked at.
fn only_get(methods: MethodRouter<Shared>) -> MethodRouter<Shared> {
    only(methods, GET, "only GET supported against this resource")
}

/// A resource that can only be asked to do something.
fn only_post(methods: MethodRouter<Shared>) -> MethodRouter<Shared> {
    only(methods, "POST, OPTIONS", "only POST supported against this resource")
}

/// A place above resources.
fn nothing() -> MethodRouter<Shared> {
    only(MethodRouter::new(), "", "nothing is here: see /fleet/v1/discovery")
}

/// A resource that answers `OPTIONS`, and refuses other methods with `message`.
fn only(
    methods: MethodRouter<Shared>,
    allowed: &'static str,
    message: &'static str,
) -> MethodRouter<Shared> {
    refusing(methods, allowed, StatusCode::METHOD_NOT_ALLOWED, message)
}

/// The discovery document refuses other methods as it always did.
fn discovery_only(methods: MethodRouter<Shared>) -> MethodRouter<Shared> {
    let message = "only HTTP GET supported against this resource";
    refusing(methods, GET, StatusCode::BAD_REQUEST, message)
}

fn refusing(
    methods: MethodRouter<Shared>,
    allowed: &'static str,
    status: StatusCode,
    message: &'static str,
) -> MethodRouter<Shared> {
    methods.fallback(async move |method: Method| {
        let mut response = match method {
            Method::OPTIONS if !allowed.is_empty() => StatusCode::NO_CONTENT.into_response(),
            _ => Failure::new(status, message).into_response(),
        };
        response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
        response
    })
}

/// A path that is spelled with empty or dotted segments is sent to its clean spelling.
async fn elsewhere(uri: Uri) -> Response {
    let Some(path) = cleaned(uri.path()) else {
        return no_resource().into_response();
    };
    let query = uri.query().map_or_else(String::new, |query| format!("?{query}"));
    match HeaderValue::try_from(format!("{path}{query}")) {
        Ok(location) => (StatusCode::MOVED_PERMANENTLY, [(LOCATION, location)]).into_response(),
        Err(_) => no_resource().into_response(),
    }
}

/// The failure of a path that leads nowhere.
pub(super) fn no_resource() -> Failure {
    Failure::not_found("no such resource: see /fleet/v1/discovery")
}

/// The path without empty, `.` and `..` segments, if that changes it.
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

/// Lets a request wait that comes before anything is known.
async fn begin(State(api): State<Shared>, request: Request, next: Next) -> Response {
    api.begin().await;
    next.run(request).await
}

/// What holds for every request and answer, whichever resource it is about.
async fn frame(
    State((server, api)): State<(HeaderValue, Shared)>,
    request: Request,
    next: Next,
) -> Response {
    let watch = Stopwatch::start();
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let route = route(&request);
    let mut response = match unwelcome(&request) {
        Some(failure) => failure.into_response(),
        None => next.run(request).await,
    };
    tracing::debug!(%method, path, status = response.status().as_u16(), "answered");
    let status = response.status().as_u16();
    api.metrics.request(&route, known(&method), status, watch.elapsed());
    response.headers_mut().insert(SERVER, server);
    if let MirrorStatus::Behind { lasting } = api.mirror.status()
        && lasting.as_secs() > 0
    {
        response.headers_mut().insert(BEHIND, lasting.as_secs().into());
    }
    response
}

/// The pattern of the path, of which there are few, by the name that it has today.
fn route(request: &Request) -> String {
    let pattern = request.extensions().get::<MatchedPath>().map_or("other", MatchedPath::as_str);
    let [today, before] = PREFIXES;
    match pattern.strip_prefix(before) {
        Some(rest) => format!("{today}{rest}"),
        None => pattern.to_owned(),
    }
}

/// The method, if it is one that anything here answers.
fn known(method: &Method) -> &'static str {
    let methods = ["DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"];
    methods.into_iter().find(|known| *known == method.as_str()).unwrap_or("other")
}

/// Why a request is not even looked at, if it is not.
fn unwelcome(request: &Request) -> Option<Failure> {
    if let Some(door) = request.extensions().get::<Door>() {
        if let Some(message) = door.may_be_mistaken().then(|| host::stray(request)).flatten() {
            return Some(Failure::new(StatusCode::MISDIRECTED_REQUEST, message));
        }
        match door.rights(request.headers()) {
            Err(message) => return Some(Failure::new(StatusCode::UNAUTHORIZED, message)),
            Ok(Rights::Read) if !request.method().is_safe() => {
                let message = "the token may only read: show one that stands without read:";
                return Some(Failure::new(StatusCode::FORBIDDEN, message));
            }
            Ok(_) => {}
        }
    }
    if writes_for_a_web_page(request) {
        let message = "web pages may not change anything: leave out the header Origin";
        return Some(Failure::new(StatusCode::FORBIDDEN, message));
    }
    writes_on_a_condition(request)
        .then(|| Failure::bad("If-Match cannot be kept: only units have entity tags, leave it out"))
}

/// Whether a browser sends the request for a page of someone else, or says that it might. Any page
/// that a person on this host looks at could write to a loopback address otherwise.
fn writes_for_a_web_page(request: &Request) -> bool {
    !request.method().is_safe() && request.headers().contains_key(ORIGIN)
}

/// Whether the request must not be carried out on a condition that nobody here looks at.
fn writes_on_a_condition(request: &Request) -> bool {
    let is_kept = route(request) == format!("{}/units/{{name}}", PREFIXES[0]);
    !request.method().is_safe() && !is_kept && request.headers().contains_key(IF_MATCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_cleaned() {
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
