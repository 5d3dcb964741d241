//! OpenAPI description of the API, generated from the routes, and the discovery document.

use std::collections::BTreeMap;

use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{ContentBuilder, Ref, RefOr, Response, ResponseBuilder};
use utoipa::{IntoParams, IntoResponses, Modify, OpenApi};

use crate::server::router::described;
use crate::wire::{ErrorBody, PlanReport};

/// General part of the description.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "fleet",
        version = "v1",
        description = "Units, unit states and machines of a cluster. \
            /v1-alpha is an alias of /fleet/v1. HEAD is supported wherever GET is.",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0"),
    ),
    components(schemas(ErrorBody)),
    modifiers(&SecuritySchemes),
    security((), ("token" = []), ("certificate" = [])),
)]
pub(crate) struct ApiDoc;

/// Adds the authentication schemes to the OpenAPI description. All of them are optional there: a
/// unix socket requires no authentication, and the requirements of a TCP port depend on its policy.
struct SecuritySchemes;

impl Modify for SecuritySchemes {
    fn modify(&self, api: &mut utoipa::openapi::OpenApi) {
        let token = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some("A token of the daemon, at a port that requires it"))
            .build();
        let certificate = SecurityScheme::MutualTls {
            description: Some("A certificate signed by the CA that the port accepts".to_owned()),
            deprecated: None,
            extensions: None,
        };
        let components = api.components.get_or_insert_default();
        components.add_security_scheme("token", SecurityScheme::Http(token));
        components.add_security_scheme("certificate", certificate);
    }
}

/// OpenAPI 3.1 description of the API.
#[utoipa::path(
    get,
    path = "/openapi.json",
    operation_id = "getDescription",
    tag = "daemon",
    responses((status = 200, body = Object, description = "This document")),
)]
pub(crate) async fn document() -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json")], described())
}

/// Path parameter: unit name.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(
    dead_code,
    reason = "only describes the parameter; an extractor reads it and returns plain errors"
)]
pub(crate) struct UnitName {
    /// Name of the unit.
    #[param(
        max_length = 255,
        example = "hello.service",
        pattern = "^[a-zA-Z0-9:_.\\\\@-]+\\.(automount|busname|container|device|mount|\
            path|scope|service|slice|snapshot|socket|swap|target|timer)$"
    )]
    name: String,
}

/// Path parameter: machine ID.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(
    dead_code,
    reason = "only describes the parameter; an extractor reads it and returns plain errors"
)]
pub(crate) struct Machine {
    /// ID of the machine.
    #[param(pattern = "^[a-zA-Z0-9_.-]+$")]
    id: String,
}

/// Path parameter: number of a rollout.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(
    dead_code,
    reason = "only describes the parameter; an extractor reads it and returns plain errors"
)]
pub(crate) struct Rollout {
    /// Number of the rollout.
    #[param(minimum = 1)]
    id: u64,
}

/// Query parameter: page token.
#[derive(IntoParams)]
#[into_params(parameter_in = Query, rename_all = "camelCase")]
#[expect(
    dead_code,
    reason = "only describes the parameter; an extractor reads it and returns plain errors"
)]
pub(crate) struct Page {
    /// `nextPageToken` from the previous page; omitted for the first page. All pages of a list show
    /// one revision.
    #[param(nullable = false)]
    next_page_token: Option<String>,
}

/// Query parameter: dry run.
#[derive(IntoParams)]
#[into_params(parameter_in = Query, rename_all = "camelCase")]
#[expect(
    dead_code,
    reason = "only describes the parameter; an extractor reads it and returns plain errors"
)]
pub(crate) struct DryRun {
    /// With 1, nothing is changed, and the response is the resulting plan with status 200.
    #[param(nullable = false)]
    dry_run: Option<bool>,
}

/// Response to a dry run.
#[derive(IntoResponses)]
#[response(status = 200, description = "The resulting plan; nothing was changed")]
#[expect(dead_code, reason = "only describes the response; the handlers build it")]
pub(crate) struct DryRunResult(PlanReport);

/// Error responses of all operations.
pub(crate) struct Failures;

impl IntoResponses for Failures {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        let because = |text: &str| {
            let schema = Ref::from_schema_name("ErrorBody");
            let content = ContentBuilder::new().schema(Some(schema)).build();
            let response = ResponseBuilder::new().description(text);
            RefOr::T(response.content("application/json", content).build())
        };
        [
            ("4XX", "The request is invalid, or conflicts with the current state"),
            ("5XX", "The daemon failed; with 503 the failure is temporary"),
        ]
        .map(|(status, text)| (status.to_owned(), because(text)))
        .into()
    }
}

/// Description of the API in the format of Google's discovery service. The `rootUrl` is a
/// placeholder that clients replace with the API's URL.
const DOCUMENT: &str = include_str!("../../discovery.json");

/// Discovery document.
#[utoipa::path(
    get,
    path = "/discovery",
    operation_id = "getDiscovery",
    tag = "daemon",
    responses(
        (
            status = 200, body = Object,
            description = "The API in the format of Google's discovery service",
        ),
        Failures,
    ),
)]
pub(crate) async fn discovery_document() -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json")], DOCUMENT)
}
