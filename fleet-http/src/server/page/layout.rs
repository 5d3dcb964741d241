//! The frame of all pages, the headers of their responses, and small elements.

use std::convert::Infallible;

use axum::body::Body;
use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue,
    REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use fleet_store::mirror::MirrorStatus;
use maud::{DOCTYPE, Markup, html};

use super::ASSETS;
use crate::client::query::escape;
use crate::server::api::SharedApi;
use crate::server::auth::tokens::Rights;
use crate::server::handlers::extract::tag_of;
use crate::wire::Time;

/// Scripts, styles and requests only of this server, and no frame around the page.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
     connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
);

const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");

/// Adds the security headers of the page to a response.
pub(in crate::server) fn secure(response: &mut Response) {
    let headers = response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, POLICY);
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    // With no-referrer, browsers would send "Origin: null" with forms, which any site can cause.
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    headers.insert(OPENER_POLICY, HeaderValue::from_static("same-origin"));
}

/// Replaces the body of an error response by a page with its message.
pub(in crate::server) fn failure_page(
    api: &SharedApi,
    response: Response,
    message: &str,
) -> Response {
    let status = response.status();
    let is_refused = status == StatusCode::UNAUTHORIZED;
    // Without credentials, not even the style can be loaded.
    let frame = Frame::new(api, Rights::Read, "Error", Section::None);
    let main = html! {
        h1 { (status.canonical_reason().unwrap_or("Error")) }
        p.message role="alert" { (message) }
        @if is_refused {
            p { "Run " code { "fleetctl ui" } " to open the page with the credentials of fleetctl, \
                or install a client certificate in the browser." }
        } @else {
            p { a href="/" { "Back to the units" } }
        }
    };
    let (mut parts, _) = response.into_parts();
    parts.headers.remove(CONTENT_LENGTH);
    parts.headers.insert(CONTENT_TYPE, HTML);
    parts.headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let text = match is_refused {
        true => bare(&main),
        false => frame.render(&main),
    };
    Response::from_parts(parts, Body::from(text.into_string()))
}

/// A page without style, script and links.
fn bare(main: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head { meta charset="utf-8"; title { "fleet" } }
            body { main { (main) } }
        }
    }
}

const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");

/// Returns the response with a page. Browsers must ask again before they show it again.
pub(super) fn page(body: impl Into<Body>) -> Response {
    let headers = [(CONTENT_TYPE, HTML), (CACHE_CONTROL, HeaderValue::from_static("no-cache"))];
    (headers, body.into()).into_response()
}

/// Whether the caller may write.
#[derive(Debug, Clone, Copy)]
pub(super) struct Access(pub(super) Rights);

impl<S: Send + Sync> FromRequestParts<S> for Access {
    type Rejection = Infallible;

    /// Without authentication, for example in a router without a server, the caller may write.
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self(parts.extensions.get().copied().unwrap_or(Rights::Write)))
    }
}

/// The part of the navigation that a page belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Section {
    Units,
    Machines,
    Apply,
    None,
}

/// The frame of a page.
pub(super) struct Frame<'a> {
    api: &'a SharedApi,
    title: &'a str,
    section: Section,
    /// Query of the stream of changes, without the position; empty for a page without changes.
    live: String,
    /// Revision that the page shows.
    revision: String,
    /// Result of the action before.
    notice: Option<&'static str>,
    can_write: bool,
}

impl<'a> Frame<'a> {
    pub(super) fn new(
        api: &'a SharedApi,
        rights: Rights,
        title: &'a str,
        section: Section,
    ) -> Self {
        let revision = tag_of(&api.mirror, api.mirror.snapshot().revision);
        let can_write = rights == Rights::Write;
        Self { api, title, section, live: String::new(), revision, notice: None, can_write }
    }

    /// Sets the stream of changes of the page, from the revision that the page shows.
    pub(super) fn following(self, live: String, revision: fleet_core::Revision) -> Self {
        Self { live, revision: tag_of(&self.api.mirror, revision), ..self }
    }

    /// Sets the result of the action before.
    pub(super) fn with_notice(self, notice: Option<&'static str>) -> Self {
        Self { notice, ..self }
    }

    /// Returns the whole page.
    pub(super) fn render(&self, main: &Markup) -> Markup {
        let live = Some(&self.live).filter(|live| !live.is_empty());
        html! {
            (DOCTYPE)
            html lang="en" {
                (self.head())
                body data-live=[live] data-since=(self.revision) {
                    a.skip href="#main" { "Skip to the content" }
                    (self.header())
                    main #main tabindex="-1" {
                        (self.warnings())
                        @if let Some(notice) = self.notice {
                            p.notice role="status" { (notice) }
                        }
                        (main)
                    }
                    (self.footer())
                }
            }
        }
    }

    fn head(&self) -> Markup {
        let assets = &*ASSETS;
        html! {
            head {
                meta charset="utf-8";
                title { (self.title) " – fleet" }
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                link rel="icon" href=(assets.icon.url());
                link rel="stylesheet" href=(assets.style.url());
                script src=(assets.script.url()) defer {}
            }
        }
    }

    fn header(&self) -> Markup {
        let item = |section: Section, href: &str, text: &str| {
            let current = (self.section == section).then_some("page");
            html! { a href=(href) aria-current=[current] { (text) } }
        };
        html! {
            header.top {
                span.brand { "fleet" }
                nav aria-label="Pages" {
                    (item(Section::Units, "/", "Units"))
                    (item(Section::Machines, "/ui/machines", "Machines"))
                    @if self.can_write { (item(Section::Apply, "/ui/apply", "Apply")) }
                }
                p #connection role="status" {}
            }
        }
    }

    /// Problems of the daemon that make the page incomplete or old.
    fn warnings(&self) -> Markup {
        let behind = match self.api.mirror.status() {
            MirrorStatus::Behind { duration } if duration.as_secs() > 0 => Some(duration.as_secs()),
            _ => None,
        };
        let join_problem = (self.api.join_problem)();
        html! {
            @if let Some(seconds) = behind {
                p.warning role="alert" {
                    "fleetd lost its store " (seconds) " s ago. This page may be outdated."
                }
            }
            @if let Some(problem) = join_problem {
                p.warning role="alert" { "A machine could not join the cluster: " (problem) }
            }
        }
    }

    fn footer(&self) -> Markup {
        html! {
            footer {
                span { "fleetd " (self.api.version) }
                @if !self.can_write { span { "Read-only access" } }
                details.keys {
                    summary { "Keys" }
                    dl {
                        dt { kbd { "/" } } dd { "Filter the list" }
                        dt { kbd { "j" } " " kbd { "k" } } dd { "Next and previous row" }
                        dt { kbd { "Enter" } } dd { "Open the row" }
                        dt { kbd { "u" } " " kbd { "m" } } dd { "Units and machines" }
                        dt { kbd { "?" } } dd { "Show these keys" }
                    }
                }
            }
        }
    }
}

/// Appearance of a state. The text of the state accompanies each colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tone {
    Good,
    Busy,
    Bad,
    Idle,
    Unknown,
}

impl Tone {
    pub(super) fn of_active(active: &str) -> Self {
        match active {
            "active" => Self::Good,
            "failed" => Self::Bad,
            "inactive" => Self::Idle,
            "unknown" | "" => Self::Unknown,
            _ => Self::Busy,
        }
    }

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Busy => "busy",
            Self::Bad => "bad",
            Self::Idle => "idle",
            Self::Unknown => "unknown",
        }
    }
}

/// A state with a symbol.
pub(super) fn badge(tone: Tone, text: &str, detail: &str) -> Markup {
    html! {
        span.badge data-tone=(tone.as_str()) { (text) }
        @if !detail.is_empty() { " " span.sub { (detail) } }
    }
}

/// A time. The script adds its age.
pub(super) fn time(at: Time) -> Markup {
    html! { time datetime=(at) { (at) } }
}

pub(super) fn unit_url(unit: &str) -> String {
    format!("/ui/units/{}", escape(unit))
}

pub(super) fn machine_url(machine: &str) -> String {
    format!("/ui/machines/{}", escape(machine))
}

/// A link to a machine, by the first digits of its ID.
pub(super) fn machine_link(machine: &str) -> Markup {
    html! { a href=(machine_url(machine)) title=(machine) { (short(machine)) } }
}

/// Returns the first digits of a machine ID, or all of a short one.
pub(super) fn short(machine: &str) -> &str {
    const LENGTH: usize = 8;
    match machine.char_indices().nth(LENGTH) {
        Some((end, _)) if machine.len() == 32 => &machine[..end],
        _ => machine,
    }
}

/// The place for the resources that a machine uses, or one unit on it. The script fills it.
pub(super) fn usage(machine: &str, unit: &str) -> Markup {
    let url = format!("/fleet/v1/machines/{}/usage", escape(machine));
    html! { p #usage.sub data-url=(url) data-unit=(unit) hidden {} }
}

/// A button that sends a form with one action.
pub(super) fn action(url: &str, name: &str, label: &str, tone: &str) -> Markup {
    html! {
        form method="post" action=(url) {
            button class=(tone) id={ "do-" (name) } name="action" value=(name) { (label) }
        }
    }
}

/// A line of a description list; nothing for an empty value.
pub(super) fn line(label: &str, value: &Markup) -> Markup {
    html! {
        @if !value.0.is_empty() { dt { (label) } dd { (value) } }
    }
}

/// Escapes text.
pub(super) fn text(text: &str) -> Markup {
    html! { (text) }
}
