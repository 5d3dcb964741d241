//! What is not done, and the words for it.

use super::{folder, run};

#[test]
fn what_is_for_units_of_a_fleetd_is_not_passed_over_with_files() {
    let folder = folder();
    for wrong in ["--max-starting 3", "--accept PrivateTmp", "--external a.service=up"] {
        let option = wrong.split(' ').next().unwrap();
        let told = run(folder.path(), &format!("run home --state-dir d --socket s {wrong}"));
        assert!(told.starts_with("exit 2\n"), "{wrong}: {told}");
        assert!(told.contains(&format!("{option} does not apply to units of files")), "{told}");
        assert!(!folder.path().join("d").exists(), "nothing was begun");
    }
    insta::assert_snapshot!(run(folder.path(), "run home --max-starting 3"), @"
    exit 2
    ---
    fleet-init: --max-starting says nothing of units of files
    help: write `max-starting: N` in init.conf
    help: use it with --fleet
    ");
}

#[test]
fn a_folder_of_systemd_units_is_told_apart_where_a_goal_is_missing_or_unknown() {
    let folder = folder();
    let of_systemd = folder.path().join("s");
    std::fs::create_dir(&of_systemd).unwrap();
    for name in ["a.service", "b.service", "c.target", "d.timer", "e.service", "README"] {
        std::fs::write(of_systemd.join(name), "[Unit]\n").unwrap();
    }
    let told = run(folder.path(), "run s --state-dir d --socket k");
    let told = told.replace(&format!("{}/", folder.path().display()), "");
    insta::assert_snapshot!(told, @"
    exit 2
    ---
    fleet-init: there is no goal to run
    help: name one with --goal TARGET, or write `goal: TARGET` in init.conf
    help: skipped systemd units: s/a.service, s/b.service, s/c.target, s/d.timer and 1 more
    help: `fleet-init convert --from systemd s` writes them as stanzas
    ");
    let convert = "help: `fleet-init convert --from systemd s` writes them as stanzas\n";
    for line in ["plan s", "plan s --goal a", "run s --goal a --state-dir d --socket k"] {
        let told = run(folder.path(), line).replace(&format!("{}/", folder.path().display()), "");
        assert!(told.starts_with("exit 2\n") && told.contains(convert), "{line}: {told}");
    }
    let told = run(folder.path(), "plan home --goal nobody");
    assert!(told.starts_with("exit 2\n") && !told.contains("skipped"), "{told}");
    let empty = folder.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    std::fs::write(empty.join("web.units"), "").unwrap();
    let told = run(folder.path(), "plan empty --goal a");
    assert!(told.contains("skipped: empty/web.units\n"), "{told}");
}
