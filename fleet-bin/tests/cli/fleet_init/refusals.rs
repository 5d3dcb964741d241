//! What is not done, and the words for it.

use super::{folder, run};

#[test]
fn a_folder_of_systemd_units_is_told_apart_where_a_goal_is_missing_or_unknown() {
    let folder = folder();
    let of_systemd = folder.path().join("etc");
    std::fs::create_dir(&of_systemd).unwrap();
    for name in ["web.service", "db.service", "c.target", "d.service", "e.timer", "README"] {
        std::fs::write(of_systemd.join(name), "[Unit]\n").unwrap();
    }
    let told = run(folder.path(), "run etc --state-dir d --socket s");
    let told = told.replace(&format!("{}/", folder.path().display()), "");
    insta::assert_snapshot!(told, @"
    exit 2
    ---
    fleet-init: there is no goal to run
    help: name one by --goal TARGET, or write `goal: TARGET` in init.conf
    help: passed over units of systemd: etc/c.target, etc/d.service, etc/db.service, etc/e.timer and 1 more
    help: `fleet-init convert --from systemd etc` writes them as stanzas
    ");
    let convert = "help: `fleet-init convert --from systemd etc` writes them as stanzas\n";
    for line in ["plan etc", "plan etc --goal a", "run etc --goal a --state-dir d --socket s"] {
        let told = run(folder.path(), line).replace(&format!("{}/", folder.path().display()), "");
        assert!(told.starts_with("exit 2\n") && told.contains(convert), "{line}: {told}");
    }
    let told = run(folder.path(), "plan home --goal nobody");
    assert!(told.starts_with("exit 2\n") && !told.contains("passed over"), "{told}");
    let empty = folder.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    std::fs::write(empty.join("web.units"), "").unwrap();
    let told = run(folder.path(), "plan empty --goal a");
    assert!(told.contains("passed over: empty/web.units\n"), "{told}");
}
