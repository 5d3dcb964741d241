//! Cost of the store and the mirror, as one JSON line for each figure.
//!
//! `cargo bench -p fleet-store --bench store` runs everything; `-- mirror`, `-- watches`, `--
//! writes` or `-- transfer` runs a part. Where redb alone can do the same durable write, the run
//! also measures redb as a lower bound.

mod heap;
mod mirror;
mod transfer;
mod watches;
mod writes;

use std::io::Write as _;
use std::time::Duration;

use fleet_core::TargetState;
use fleet_store::registry::NewUnit;
use fleet_unitfile::UnitFile;

fn main() {
    // cargo also runs this as a test, which only has to build.
    if std::env::args().any(|arg| arg == "--test") {
        return;
    }
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build().expect("a runtime");
    let parts: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let is_wanted = |part: &str| parts.is_empty() || parts.iter().any(|wanted| wanted == part);
    if is_wanted("writes") {
        runtime.block_on(writes::measure());
    }
    if is_wanted("watches") {
        runtime.block_on(watches::measure());
    }
    if is_wanted("mirror") {
        runtime.block_on(mirror::measure());
    }
    if is_wanted("transfer") {
        runtime.block_on(transfer::measure());
    }
}

/// A unit of a few hundred bytes with its own content.
fn unit(number: usize) -> NewUnit {
    unit_of(number, number)
}

/// Unit `number` with content `content`.
fn unit_of(number: usize, content: usize) -> NewUnit {
    let text = format!(
        "[Unit]\nDescription=Unit {content} of many\nAfter=network.target\n\n[Service]\n\
         ExecStart=/usr/bin/serve --port {content} --data /var/lib/serve\nRestart=on-failure\n\
         Environment=A=1 B=2\n\n[X-Fleet]\nMachineMetadata=region=eu\n"
    );
    NewUnit {
        name: format!("unit-{number:06}.service").parse().expect("a name"),
        file: UnitFile::parse(text).expect("a unit file"),
        desired: TargetState::Launched,
    }
}

fn report(figure: &str, value: f64) {
    print(&serde_json::json!({ "figure": figure, "value": round(value) }));
}

fn report_beside(figure: &str, value: f64, floor: f64) {
    let (value, floor) = (round(value), round(floor));
    print(&serde_json::json!({ "figure": figure, "value": value, "floor": floor }));
}

fn print(line: &serde_json::Value) {
    // A closed pipe is no reason to stop.
    let _unread = writeln!(std::io::stdout(), "{line}").is_err();
}

fn round(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Returns the median and the 99th percentile.
fn spread(mut times: Vec<Duration>) -> (Duration, Duration) {
    times.sort();
    (times[times.len() / 2], times[times.len() * 99 / 100])
}
