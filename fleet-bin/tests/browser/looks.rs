//! Accessibility by axe-core, requests and messages of the pages, and the pictures of the guide.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::daemon::Daemon;
use crate::large::LargeCluster;
use crate::webdriver::Browser;

/// Variable with the path of `axe.min.js`.
const AXE: &str = "FLEET_AXE";

/// Variable with the folder for the pictures. Without it, they are taken but not kept.
const PICTURES: &str = "FLEET_PICTURES";

const FILE: &str = "[Service]\nExecStart=/bin/sh -c 'echo ready; exec sleep infinity'\n";

/// Opens every kind of page.
fn visit(daemon: &Daemon, browser: &Browser, mut look: impl FnMut(&str)) {
    browser.open(&daemon.url);
    browser
        .wait_for("!!document.querySelector('tr[data-unit=\"web.service\"][data-state=active]')");
    let machine = browser.run("return document.querySelector('td:nth-child(6) a').pathname");
    let machine = machine.as_str().unwrap().to_owned();
    for path in [
        "/",
        "/?q=no-such-unit",
        "/ui/units/web.service?explain=1&done=start",
        "/ui/units/lost.service",
        "/ui/machines",
        &machine,
        &format!("{machine}/drain"),
        "/ui/apply",
        "/ui/nothing",
    ] {
        browser.open(&format!("{}{path}", daemon.url));
        look(path);
    }
    browser.open(&format!("{}/ui/apply", daemon.url));
    browser.run(&format!(
        "document.querySelector('[name=name]').value = 'web.service';
         document.querySelector('[name=file]').value = {:?};",
        FILE.replace("ready", "changed")
    ));
    browser.click("#apply button");
    browser.wait_for("!!document.querySelector('#preview')");
    look("the preview of an upload");
}

fn start() -> Daemon {
    let lost = "[Service]\nExecStart=/bin/true\n[X-Fleet]\nMachineMetadata=zone=mars\n";
    Daemon::start(&[("web.service", FILE), ("lost.service", lost)])
}

#[test]
#[ignore = "needs chromium and axe-core: run by scripts/test --full"]
fn axe_finds_no_violation() {
    let path = std::env::var(AXE).unwrap_or_else(|_| panic!("{AXE} is not set"));
    let axe = std::fs::read_to_string(path).unwrap();
    let check = format!(
        "{axe}; const done = arguments[arguments.length - 1];
         axe.run().then((found) => done(found.violations.map((it) =>
             it.id + ': ' + it.nodes.map((node) => node.html).join(' ; ')
         )), (error) => done([String(error)]));"
    );
    let (daemon, browser) = (start(), Browser::start(1200, 900));
    let mut found: Vec<String> = Vec::new();
    for scheme in ["light", "dark", "phone"] {
        match scheme {
            "phone" => browser.become_phone(390, 844),
            scheme => browser.prefer(scheme),
        }
        visit(&daemon, &browser, |page| {
            let violations = browser.run_async(&check);
            let violations = violations.as_array().unwrap().iter();
            found.extend(violations.map(|violation| format!("{page} ({scheme}): {violation}")));
        });
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
#[ignore = "needs chromium: run by scripts/test --full"]
fn pages_obey_their_policy_and_ask_no_other_host() {
    let (daemon, browser) = (start(), Browser::start(1200, 900));
    visit(&daemon, &browser, |page| {
        let foreign = browser.run(
            "return performance.getEntriesByType('resource').map((entry) => entry.name)
                 .filter((name) => !name.startsWith(location.origin + '/'))",
        );
        assert_eq!(foreign, Value::Array(Vec::new()), "{page}");
        let mut messages = browser.console();
        messages.retain(|message| !message.contains("/ui/nothing - Failed to load resource"));
        assert!(messages.is_empty(), "{page}: {messages:?}");
        let wide = "return document.documentElement.scrollWidth > innerWidth";
        assert_eq!(browser.run(wide), false, "{page} is wider than the window");
    });
    // Foreign code in the page would not run.
    let ran = browser.run_async(
        "const done = arguments[arguments.length - 1];
         const script = document.createElement('script');
         script.textContent = 'window.ran = true';
         document.body.append(script);
         setTimeout(() => done(window.ran === true))",
    );
    assert_eq!(ran, false);
}

/// Takes the pictures of the guide, in dark colours and on a phone.
#[test]
#[ignore = "needs chromium: run by scripts/test --full"]
fn pictures_are_taken() {
    let folder = std::env::var_os(PICTURES).map(PathBuf::from);
    let cluster = LargeCluster::start(18, 5);
    let browser = Browser::start(1200, 800);
    browser.prefer("dark");
    browser.open(&cluster.url);
    browser.wait_text("#connection", "Live");
    browser.run("document.querySelectorAll('.changed').forEach((it) => it.className = '')");
    keep(&browser, folder.as_deref(), "page-dark.png");
    browser.prefer("light");
    browser.become_phone(390, 780);
    browser.open(&cluster.url);
    browser.wait_text("#connection", "Live");
    keep(&browser, folder.as_deref(), "page-phone.png");
}

fn keep(browser: &Browser, folder: Option<&Path>, name: &str) {
    let picture = STANDARD.decode(browser.picture()).unwrap();
    assert!(picture.starts_with(b"\x89PNG"));
    if let Some(folder) = folder {
        std::fs::write(folder.join(name), picture).unwrap();
    }
}
