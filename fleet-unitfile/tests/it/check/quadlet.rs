//! `.container` files of podman's Quadlet.

use fleet_unitfile::Finding;
use fleet_unitfile::check::FindingCode::{
    self, Choice, ForeignSection, Install, MisplacedKey, NoImage, ServiceName, UnitName,
    UnknownKey, UnknownSection,
};

use super::findings;

const IMAGE: &str = "[Container]\nImage=localhost/web:1\n";

#[test]
fn container_files_are_checked_as_podman_reads_them() {
    let rows: [(&str, &[(FindingCode, &str)]); 17] = [
        ("Exec=sleep 9\nPublishPort=80:80\nEnvironment=A=1\nEnvironment=B=2", &[]),
        ("[Quadlet]\nDefaultDependencies=false", &[]),
        ("[Unit]\nAfter=db.service\n[Service]\nRestart=always\nTimeoutStartSec=900", &[]),
        ("[Install]\nWantedBy=multi-user.target\nAlias=www.service", &[]),
        ("[X-Fleet]\nGlobal=true\n[X-Other]\nA=1", &[]),
        ("Enviroment=A=1", &[(UnknownKey, "write Environment")]),
        ("Restart=always", &[(MisplacedKey, "move it to [Service]")]),
        ("Before=db.service", &[(MisplacedKey, "move it to [Unit]")]),
        ("[Quadlet]\nDefaultDependency=no", &[(UnknownKey, "write DefaultDependencies")]),
        ("[Service]\nRestart=sometimes", &[(Choice, "write no, on-success")]),
        ("[Service]\nPublishPort=80:80", &[(MisplacedKey, "move it to [Container]")]),
        ("[Contianer]\nExec=a", &[(UnknownSection, "write [Container]")]),
        ("[Socket]\nListenStream=80", &[(ForeignSection, "a unit of type socket")]),
        ("[Install]\nAlias=www.container", &[(UnitName, "www.service"), (Install, "www.service")]),
        ("[Unit]\nRequires=db.container", &[(UnitName, "write db.service")]),
        ("Rootfs=/srv/web", &[(NoImage, "remove Rootfs= or Image=")]),
        ("ServiceName=www", &[(ServiceName, "remove ServiceName=")]),
    ];
    for (text, expected) in rows {
        let (_, found) = findings("web.container", format!("{IMAGE}{text}\n").as_bytes());
        let found: Vec<_> = found.iter().map(|it| (it.code(), it.help())).collect();
        let is_same = found.len() == expected.len()
            && found
                .iter()
                .zip(expected)
                .all(|(it, (code, help))| it.0 == *code && it.1.contains(help));
        assert!(is_same, "{text}: {found:?}");
    }
}

#[test]
fn container_needs_an_image_and_services_have_none() {
    let codes = |name, text: &str| {
        let (_, found) = findings(name, text.as_bytes());
        found.iter().map(Finding::code).collect::<Vec<_>>()
    };
    assert_eq!(codes("web@1.container", "[Container]\nExec=a\n"), [NoImage]);
    assert_eq!(codes("web@.container", "[Container]\nImage=a\nImage=\n"), [NoImage]);
    assert_eq!(codes("web@.container", "[Container]\nRootfs=/srv/%i\n"), []);
    let service = "[Service]\nExecStart=/bin/a\nImage=a\n[Container]\nImage=a\n";
    assert_eq!(codes("web.service", service), [MisplacedKey, ForeignSection]);
}
