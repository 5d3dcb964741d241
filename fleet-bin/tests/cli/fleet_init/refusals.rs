//! Refused command lines and their messages.

use super::{folder, run};

#[test]
fn run_refuses_fleetd_options_for_files() {
    let folder = folder();
    for wrong in ["--max-starting 3", "--accept PrivateTmp", "--external a.service=up"] {
        let option = wrong.split(' ').next().unwrap();
        let printed = run(folder.path(), &format!("run home --state-dir d --socket s {wrong}"));
        assert!(printed.starts_with("exit 2\n"), "{wrong}: {printed}");
        assert!(
            printed.contains(&format!("{option} applies only with --fleet, not to unit files")),
            "{printed}"
        );
        assert!(!folder.path().join("d").exists(), "no state directory was created");
    }
    insta::assert_snapshot!(run(folder.path(), "run home --max-starting 3"), @"
    exit 2
    ---
    fleet-init: --max-starting applies only with --fleet, not to unit files
    help: write `max-starting: N` in init.conf instead
    help: or replace the paths by --fleet, to run the units of fleetd
    ");
}

#[test]
fn missing_goal_lists_skipped_systemd_units() {
    let folder = folder();
    let units = folder.path().join("s");
    std::fs::create_dir(&units).unwrap();
    for name in ["a.service", "b.service", "c.target", "d.timer", "e.service", "README"] {
        std::fs::write(units.join(name), "[Unit]\n").unwrap();
    }
    let printed = run(folder.path(), "run s --state-dir d --socket k");
    let printed = printed.replace(&format!("{}/", folder.path().display()), "");
    insta::assert_snapshot!(printed, @"
    exit 2
    ---
    fleet-init: no goal is set, so there is nothing to run
    help: give a goal with --goal TARGET, or write `goal: TARGET` in init.conf
    help: skipped these systemd units: s/a.service, s/b.service, s/c.target, s/d.timer and 1 more
    help: convert these units with `fleet-init convert --from systemd s`
    ");
    let convert = "help: convert these units with `fleet-init convert --from systemd s`\n";
    for line in ["plan s", "plan s --goal a", "run s --goal a --state-dir d --socket k"] {
        let printed =
            run(folder.path(), line).replace(&format!("{}/", folder.path().display()), "");
        assert!(printed.starts_with("exit 2\n") && printed.contains(convert), "{line}: {printed}");
    }
    let printed = run(folder.path(), "plan home --goal none");
    assert!(printed.starts_with("exit 2\n") && !printed.contains("skipped"), "{printed}");
    let empty = folder.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    std::fs::write(empty.join("web.units"), "").unwrap();
    let printed = run(folder.path(), "plan empty --goal a");
    assert!(printed.contains("skipped these files: empty/web.units\n"), "{printed}");
}
