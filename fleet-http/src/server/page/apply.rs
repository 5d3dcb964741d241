//! The upload of unit files: a form, the preview of the plan with the differences, and the write.

use axum::extract::{Request, State};
use axum::response::Response;
use fleet_core::Snapshot;
use maud::{Markup, html};
use similar::{ChangeTag, TextDiff};

use super::actions::{fields, see};
use super::layout::{Access, Frame, Section, machine_link, page, unit_url};
use crate::server::api::SharedApi;
use crate::server::auth::tokens::Rights;
use crate::server::failure::Failure;
use crate::server::handlers::bulk;
use crate::server::handlers::extract::Params;
use crate::wire::{BulkRequest, PlanReport, PutUnit};

/// A unit file of the form.
struct UnitText {
    name: String,
    source: String,
}

pub(super) async fn form(State(api): State<SharedApi>, Access(rights): Access) -> Response {
    let main = html! {
        h1 { "Apply unit files" }
        @if rights == Rights::Write {
            (upload_form(&[UnitText { name: String::new(), source: String::new() }], "launched"))
        } @else {
            p { "Read-only access cannot apply unit files." }
        }
    };
    page(frame(&api, rights).render(&main).into_string())
}

fn frame(api: &SharedApi, rights: Rights) -> Frame<'_> {
    Frame::new(api, rights, "Apply", Section::Apply)
}

/// Previews the form, or carries it out if it was previewed.
pub(super) async fn submit(
    State(api): State<SharedApi>,
    Access(rights): Access,
    request: Request,
) -> Result<Response, Failure> {
    let form = fields(request).await?;
    let (texts, request) = read(&form)?;
    if form.first("action") == Some("apply") {
        bulk::carry_out(&api, request).await?;
        return Ok(match &texts[..] {
            [one] => see(&unit_url(&one.name), "apply"),
            _ => see("/", "apply"),
        });
    }
    let snapshot = api.view()?;
    let desired = form.first("desired").unwrap_or_default();
    // An error must not lose the text that was typed.
    let plan = bulk::preview(&api, &request).await.map_err(|failure| failure.message().to_owned());
    let main = html! {
        h1 { "Apply unit files" }
        @match &plan {
            Ok(plan) => (preview(&snapshot, &texts, desired, plan)),
            Err(message) => p.message role="alert" { (message) },
        }
        (upload_form(&texts, desired))
    };
    Ok(page(frame(&api, rights).render(&main).into_string()))
}

/// Reads the form. Fields without a name and a text are ignored.
fn read(form: &Params) -> Result<(Vec<UnitText>, BulkRequest), Failure> {
    let pairs = form.all("name").zip(form.all("file"));
    // Browsers send the lines of a text with CRLF.
    let texts = pairs.map(|(name, source)| UnitText {
        name: name.trim().to_owned(),
        source: source.replace("\r\n", "\n"),
    });
    let texts: Vec<UnitText> =
        texts.filter(|it| !it.name.is_empty() || !it.source.trim().is_empty()).collect();
    if texts.is_empty() {
        return Err(Failure::bad_request("there is no unit file: give a name and its text"));
    }
    let desired = form.non_empty("desired").map(str::to_owned);
    let units = texts.iter().map(|it| PutUnit {
        name: Some(it.name.clone()),
        source: Some(it.source.clone()),
        desired_state: desired.clone(),
        ..PutUnit::default()
    });
    let units = units.collect();
    let if_unchanged_since = form.non_empty("revision").map(str::to_owned);
    Ok((texts, BulkRequest { units, if_unchanged_since, ..BulkRequest::default() }))
}

fn upload_form(texts: &[UnitText], desired: &str) -> Markup {
    let states = [
        ("launched", "Start the units"),
        ("loaded", "Load the units without starting them"),
        ("inactive", "Only store the files"),
        ("", "Keep the desired state"),
    ];
    html! {
        form #apply method="post" action="/ui/apply" {
            p #choose hidden {
                label for="files" { "Choose unit files" }
                input #files type="file" multiple;
            }
            @for text in texts { (file_fields(text)) }
            p {
                label for="desired" { "Then" }
                select #desired name="desired" {
                    @for (value, label) in states {
                        option value=(value) selected[value == desired] { (label) }
                    }
                }
            }
            button.main name="action" value="preview" { "Preview" }
        }
    }
}

fn file_fields(text: &UnitText) -> Markup {
    html! {
        fieldset.file {
            legend { "Unit file" }
            label {
                "Name"
                input name="name" value=(text.name) required placeholder="web.service"
                    autocomplete="off" spellcheck="false";
            }
            label {
                "Text"
                textarea name="file" rows="10" required spellcheck="false" { "\n" (text.source) }
            }
        }
    }
}

/// The differences and the plan, with the button that carries it out.
fn preview(snapshot: &Snapshot, texts: &[UnitText], desired: &str, plan: &PlanReport) -> Markup {
    html! {
        section #preview aria-label="Preview" {
            @for text in texts { (difference(snapshot, text)) }
            (plan_table(plan))
            form method="post" action="/ui/apply" {
                @for text in texts {
                    input type="hidden" name="name" value=(text.name);
                    input type="hidden" name="file" value=(text.source);
                }
                input type="hidden" name="desired" value=(desired);
                input type="hidden" name="revision" value=(plan.revision);
                button.main #do-apply name="action" value="apply" { "Apply" }
            }
        }
    }
}

fn difference(snapshot: &Snapshot, text: &UnitText) -> Markup {
    let known = snapshot.unit(&text.name).map(|unit| unit.file.source());
    let before = String::from_utf8_lossy(known.unwrap_or_default());
    let diff = TextDiff::from_lines(&*before, &text.source);
    let title = match known {
        None => "new",
        Some(_) if before == text.source => "unchanged",
        Some(_) => "changed",
    };
    html! {
        h2 { (text.name) " " span.sub { (title) } }
        @if title != "unchanged" {
            pre.diff tabindex="0" role="region" aria-label={ "Differences of " (text.name) } {
                @for change in diff.iter_all_changes() {
                    @let text = change.value().trim_end_matches('\n');
                    @match change.tag() {
                        ChangeTag::Delete => { del { "- " (text) } "\n" },
                        ChangeTag::Insert => { ins { "+ " (text) } "\n" },
                        ChangeTag::Equal => { span { "  " (text) } "\n" },
                    }
                }
            }
        }
    }
}

/// Steps of a plan, and units without a machine.
fn plan_table(plan: &PlanReport) -> Markup {
    html! {
        h2 { "Plan" }
        @if plan.steps.is_empty() && plan.unplaced.is_empty() { p { "No unit moves." } }
        @if !plan.steps.is_empty() {
            table #plan {
                thead { tr { th { "Unit" } th { "From" } th { "To" } th { "Cause" } } }
                tbody {
                    @for step in &plan.steps {
                        tr {
                            th scope="row" { (step.unit) }
                            td { @if !step.from.is_empty() { (machine_link(&step.from)) } }
                            td { @if !step.to.is_empty() { (machine_link(&step.to)) } }
                            td { (step.cause) }
                        }
                    }
                }
            }
        }
        @if !plan.unplaced.is_empty() {
            h3 { "On no machine" }
            ul {
                @for unit in &plan.unplaced { li { b { (unit.unit) } ": " (unit.reason) } }
            }
        }
    }
}
