//! Effects of a unit on other units, through the connection of fleetd.

use fleet_agent::ServiceManager as _;
use fleet_core::{Epoch, Generation};
use fleet_unitfile::{UnitFile, UnitName};

use super::Init;
use crate::daemon::wait_for;

#[test]
fn reload_reaches_the_units_to_which_it_is_propagated() {
    let init = Init::start();
    let reloaded = init.home.path().join("reloaded");
    let name = |unit: &str| UnitName::parse(&format!("{unit}.service")).unwrap();
    let units = [
        ("web", "PropagatesReloadTo=worker.service"),
        ("worker", ""),
        ("other", "ReloadPropagatedFrom=worker.service"),
    ];
    init.with_manager(async |manager| {
        for (unit, options) in units {
            let reload = format!("/bin/sh -c 'echo {unit} >> {}'", reloaded.display());
            let text = format!(
                "[Unit]\n{options}\n[Service]\nExecStart=/bin/sleep infinity\nExecReload={reload}\n"
            );
            let file = UnitFile::parse(text).unwrap();
            manager.load(&name(unit), &file, Epoch(1)).await.unwrap();
            manager.start(&name(unit), Generation(1)).await.unwrap();
        }
        manager.reload_unit(&name("web")).await.unwrap();
    });
    let lines = wait_for("all three reload", || {
        let text = std::fs::read_to_string(&reloaded).unwrap_or_default();
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        (text.matches('\n').count() == units.len()).then_some(lines)
    });
    assert_eq!(lines, ["other", "web", "worker"]);
}
