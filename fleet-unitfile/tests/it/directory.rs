//! Walks over unit directories.

use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

use fleet_unitfile::tree::Place;
use fleet_unitfile::{UnitName, UnitTree};

/// Returns what stands at a path below a root.
#[expect(clippy::disallowed_methods, reason = "the test reads the files that it writes")]
fn look(root: &Path, path: &str) -> io::Result<Place> {
    let place = root.join(path.trim_start_matches('/'));
    let Ok(kind) = place.symlink_metadata() else { return Ok(Place::Nothing) };
    Ok(if kind.is_symlink() {
        Place::Link(place.read_link()?.to_str().unwrap().to_owned())
    } else if kind.is_dir() {
        let names = std::fs::read_dir(place)?.map(|entry| entry.unwrap().file_name());
        Place::Directory(names.map(|name| name.into_string().unwrap()).collect())
    } else {
        Place::File(std::fs::read(place)?)
    })
}

#[expect(clippy::disallowed_methods, reason = "the test writes the files that it reads")]
fn write(root: &Path, path: &str, text: &[u8]) {
    let place = root.join(path);
    std::fs::create_dir_all(place.parent().unwrap()).unwrap();
    std::fs::write(place, text).unwrap();
}

#[test]
fn unit_tree_is_read_from_its_directories() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    write(root, "lib/web.service", b"[Service]\nExecStart=/bin/web\n");
    write(root, "lib/db.service", b"[Service]\nExecStart=/bin/db\n");
    write(root, "lib/latin.service", b"# \xe9\n[Service]\nExecStart=/bin/latin\n");
    write(root, "lib/sub/other.service", b"[Service]\n");
    write(root, "etc/web.service.d/nice.conf", b"[Service]\nNice=5\n");
    write(root, "opt/far.service", b"[Service]\nExecStart=/bin/far\n");
    write(root, "etc/web.service.wants/x", b"");
    symlink("../../lib/db.service", root.join("etc/web.service.wants/db.service")).unwrap();
    symlink("/lib/web.service", root.join("etc/www.service")).unwrap();
    symlink("/opt/far.service", root.join("etc/far.service")).unwrap();
    symlink("/dev/null", root.join("etc/db.service")).unwrap();
    symlink("/nowhere", root.join("etc/lost.service")).unwrap();

    let tree = UnitTree::gather(&["/etc", "/none", "/lib/"], |path| look(root, path)).unwrap();
    let unit = |name: &str| tree.unit(&UnitName::parse(name).unwrap());
    let web = unit("www.service");
    assert_eq!(web.name(), "web.service");
    assert_eq!(web.get("Service", "Nice").unwrap().option.value(), "5");
    assert_eq!(web.dependencies()[0].unit, "db.service");
    assert!(unit("db.service").is_masked());
    let far = unit("far.service");
    assert_eq!(far.get("Service", "ExecStart").unwrap().option.value(), "/bin/far");
    let latin = unit("latin.service");
    assert_eq!(latin.get("Service", "ExecStart").unwrap().option.value(), "/bin/latin");
    assert!(unit("other.service").main().is_none());
}

#[test]
fn error_of_the_caller_ends_the_walk() {
    let tree = UnitTree::gather(&["/etc"], |path| Err::<Place, _>(path.to_owned()));
    assert_eq!(tree.unwrap_err(), "/etc");
}
