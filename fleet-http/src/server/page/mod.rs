//! The web page: HTML of the cluster, rendered from the shared snapshot.
//!
//! Every page works as a plain document with links and forms. The script `page.js` only adds live
//! changes, filtering while typing, keys, and the journal. The `live` module renders changes with
//! the functions that render the pages.
//!
//! | file | contents |
//! |---|---|
//! | `layout` | the frame of all pages, response headers, and small elements |
//! | `units`, `unit` | the list of units; one unit |
//! | `machines` | the list of machines; one machine; the preview of a drain |
//! | `apply` | the upload of unit files, with a preview |
//! | `actions` | the writes that forms request |
//! | `live` | changes for open pages |

mod actions;
mod apply;
mod layout;
pub(super) mod live;
mod machines;
mod unit;
mod units;

use std::sync::LazyLock;

use axum::Router;
use axum::extract::Path;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, LOCATION};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use sha2::{Digest as _, Sha256};

use super::api::SharedApi;
use super::failure::Failure;
use super::router::{get_or_post, only_get};

pub(super) use layout::{failure_page, secure};

/// Returns the routes of the page.
pub(super) fn routes() -> Router<SharedApi> {
    let reads = |handler: MethodRouter<SharedApi>| only_get(handler);
    Router::new()
        .route("/", reads(get(units::list)))
        .route("/ui", reads(get(async || (StatusCode::SEE_OTHER, [(LOCATION, "/")]))))
        .route("/ui/units/{name}", get_or_post(get(unit::show).post(actions::unit)))
        .route("/ui/machines", reads(get(machines::list)))
        .route("/ui/machines/{id}", get_or_post(get(machines::show).post(actions::machine)))
        .route("/ui/machines/{id}/drain", get_or_post(get(machines::drain).post(actions::drain)))
        .route("/ui/apply", get_or_post(get(apply::form).post(apply::submit)))
        .route("/ui/live", reads(get(live::follow)))
        .route("/ui/assets/{file}", reads(get(asset)))
        .route("/ui/{*rest}", MethodRouter::new().fallback(async || no_page()))
}

/// Returns whether a path belongs to the page rather than to the API.
pub(crate) fn is_page(path: &str) -> bool {
    path == "/" || path == "/ui" || path.starts_with("/ui/")
}

fn no_page() -> Failure {
    Failure::not_found("no such page: the list of units is at /")
}

/// A file that the pages load.
struct Asset {
    /// Name in the URL. It contains a hash of the content, so browsers may keep the file forever.
    name: String,
    content_type: &'static str,
    content: &'static str,
}

/// Files of the page.
struct Assets {
    style: Asset,
    script: Asset,
    icon: Asset,
}

static ASSETS: LazyLock<Assets> = LazyLock::new(|| {
    let script = include_str!("../../../assets/page.js");
    Assets {
        style: Asset::new("css", "text/css", include_str!("../../../assets/page.css")),
        script: Asset::new("js", "text/javascript", script),
        icon: Asset::new("svg", "image/svg+xml", include_str!("../../../assets/icon.svg")),
    }
});

impl Asset {
    fn new(extension: &str, content_type: &'static str, content: &'static str) -> Self {
        let hash = Sha256::digest(content);
        let hash: String = hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        Self { name: format!("page-{hash}.{extension}"), content_type, content }
    }

    fn url(&self) -> String {
        format!("/ui/assets/{}", self.name)
    }
}

async fn asset(Path(file): Path<String>, _: HeaderMap) -> Result<Response, Failure> {
    let Assets { style, script, icon } = &*ASSETS;
    let found = [style, script, icon].into_iter().find(|asset| asset.name == file);
    let asset = found.ok_or_else(no_page)?;
    let headers = [
        (CONTENT_TYPE, format!("{}; charset=utf-8", asset.content_type)),
        (CACHE_CONTROL, "public, max-age=31536000, immutable".to_owned()),
    ];
    Ok((headers, asset.content).into_response())
}
