//! Measures the page with 1,000 units on 50 machines. Times are printed without a limit, because
//! they depend on the load of the host.

use std::io::Write as _;

use serde_json::Value;

use crate::large::LargeCluster;
use crate::webdriver::Browser;

const UNITS: usize = 1000;
const MACHINES: usize = 50;

/// Pages that are open at the same time.
const PAGES: usize = 10;

/// Limit of the memory of the server, which includes the store and the tests in its program.
const MAX_MEMORY: u64 = 40 << 20;

/// Number of changes whose way to the screen is measured.
const CHANGES: usize = 20;

fn figure(text: &str) {
    let mut output = std::io::stdout();
    writeln!(output, "figure: {text}").unwrap();
}

/// Records the longest time between two frames.
const WATCH_FRAMES: &str = "
    window.longest = 0;
    let before = performance.now();
    const frame = (now) => {
        window.longest = Math.max(window.longest, now - before);
        before = now;
        requestAnimationFrame(frame);
    };
    requestAnimationFrame((now) => { before = now; requestAnimationFrame(frame); });";

#[test]
#[ignore = "needs chromium: run by scripts/test --full"]
fn thousand_units_on_fifty_machines() {
    let mut cluster = LargeCluster::start(UNITS, MACHINES);
    let browser = Browser::start(1200, 900);
    browser.open(&cluster.url);
    browser.wait_text("#connection", "Live");
    assert_eq!(browser.run("return document.querySelectorAll('tbody tr').length"), UNITS);
    // The second visit has the files of the page in the cache, as every later one.
    let first = paint(&browser);
    browser.open(&cluster.url);
    browser.wait_text("#connection", "Live");
    figure(&format!("first paint: {first:.0} ms, later {:.0} ms", paint(&browser)));
    browser.run(WATCH_FRAMES);
    measure_changes(&mut cluster, &browser);
    measure_frames(&mut cluster, &browser);
    let pages: Vec<_> = (0..PAGES).map(|_| cluster.open_page()).collect();
    for unit in 0..100 {
        cluster.publish(unit, "active");
    }
    let memory = cluster.memory();
    figure(&format!("memory of the server with {PAGES} pages: {} MiB", memory >> 20));
    assert!(memory < MAX_MEMORY, "{memory} bytes");
    drop(pages);
    assert_eq!(browser.console(), Vec::<String>::new());
}

fn paint(browser: &Browser) -> f64 {
    let script = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime";
    browser.wait_for(script).as_f64().unwrap()
}

/// Measures the time from just before a state is published until its row is on the screen.
fn measure_changes(cluster: &mut LargeCluster, browser: &Browser) {
    browser.run(
        "window.seen = [];
         new MutationObserver(() => requestAnimationFrame(() => setTimeout(() => {
             window.seen.push(performance.timeOrigin + performance.now());
         }))).observe(document.querySelector('tbody'), { childList: true });",
    );
    let mut times: Vec<f64> = (0..CHANGES)
        .map(|number| {
            browser.run("window.seen = []");
            let active = if number % 2 == 0 { "failed" } else { "active" };
            let published = cluster.publish(1, active);
            browser.wait_for("window.seen[0]").as_f64().unwrap() - published
        })
        .collect();
    times.sort_by(f64::total_cmp);
    let (median, longest) = (times[CHANGES / 2], times[CHANGES - 1]);
    figure(&format!("from a state to the screen: median {median:.0} ms, longest {longest:.0} ms"));
}

/// Measures frames while states change, the filter is used, and the list is scrolled.
fn measure_frames(cluster: &mut LargeCluster, browser: &Browser) {
    let longest = |what: &str| {
        let found = browser.run("const l = window.longest; window.longest = 0; return l");
        figure(&format!("longest frame while {what}: {:.0} ms", found.as_f64().unwrap()));
    };
    longest("single states change");
    for unit in 0..300 {
        cluster.publish(unit, if unit % 2 == 0 { "failed" } else { "activating" });
    }
    browser.wait_for("document.querySelector('#count-failed').innerText === '150'");
    longest("300 states change");
    browser.press("/worker");
    browser.wait_text("#matches", "125 of 1000");
    longest("filtering");
    browser.run("document.querySelector('#filter').value = ''");
    browser.run("document.querySelector('#filter').dispatchEvent(new Event('input'))");
    let scrolled = browser.run_async(
        "const done = arguments[arguments.length - 1];
         const step = () => {
             window.scrollBy(0, 400);
             const end = document.body.scrollHeight - innerHeight;
             if (scrollY >= end - 1) done(true); else requestAnimationFrame(step);
         };
         step();",
    );
    assert_eq!(scrolled, Value::Bool(true));
    longest("scrolling");
}
