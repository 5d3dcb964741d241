//! Checks of unit files by the service managers of the machines.

use std::sync::Arc;

use fleet_core::manager::{ManagerFinding, ManagerInfo, ManagerVerdict, NativeInfo};
use fleet_http::client::UnitUpload;
use fleet_http::wire::UnitFinding;
use fleet_store::registry::MachineRecord;
use fleet_unitfile::{UnitFile, UnitName};

use crate::harness::{Server, TTL, name};

/// Refuses option `Odd`, unless the manager accepts it.
fn check(manager: &ManagerInfo, _: &UnitName, file: &UnitFile) -> ManagerVerdict {
    let ManagerInfo::Native(native) = manager else { return ManagerVerdict::default() };
    if file.get("Service", "Odd").is_none() {
        return ManagerVerdict::default();
    }
    let finding = |text: &str| ManagerFinding { line: 2, text: text.to_owned() };
    match native.accept.is_empty() {
        true => ManagerVerdict { refusal: Some(finding("Odd= is refused")), ..Default::default() },
        false => ManagerVerdict { refusal: None, warnings: vec![finding("runs without Odd=")] },
    }
}

async fn server() -> Server {
    Server::start_with(|api| api.with_unit_checker(Arc::new(check))).await
}

async fn join(server: &Server, id: &str, version: &str, manager: Option<ManagerInfo>) {
    let record = MachineRecord {
        version: version.to_owned(),
        metadata: [("name".to_owned(), id.to_owned())].into(),
        manager: manager.map(Arc::new),
        ..MachineRecord::new(id.parse().unwrap())
    };
    // The lease outlives the test.
    let _presence = server.registry.join(record, "token", TTL).await.unwrap();
    server.wait_until(|mirror| mirror.snapshot().machine(id).is_some()).await;
}

fn native(accept: &[&str]) -> Option<ManagerInfo> {
    let accept = accept.iter().map(|&name| name.to_owned()).collect();
    Some(ManagerInfo::Native(NativeInfo { root: true, accept, ..NativeInfo::default() }))
}

fn upload(text: &str) -> Option<UnitUpload> {
    Some(UnitUpload::new(UnitFile::parse(text).unwrap()))
}

const ODD: &str = "[Service]\nOdd=yes\n";

#[tokio::test]
async fn findings_are_counted_by_machine() {
    let server = server().await;
    join(&server, "m1", "1.2.3", native(&[])).await;
    join(&server, "m2", "1.2.3", native(&[])).await;
    join(&server, "m3", "1.2.3", native(&["Odd"])).await;
    let units = [
        (name("odd.service"), upload(ODD)),
        (name("plain.service"), upload("[Service]\nExecStart=/bin/true\n")),
        (name("lenient.service"), upload(&format!("{ODD}[X-Fleet]\nMachineID=m3\n"))),
        (name("strict.service"), upload(&format!("{ODD}[X-Fleet]\nMachineMetadata=name=m1\n"))),
        (name("lost.service"), upload(&format!("{ODD}[X-Fleet]\nMachineMetadata=name=m9\n"))),
    ];
    let report = server.client().check(&units).await.unwrap().unwrap();
    let lines = report.units.iter().map(|unit| {
        let finding = |it: &UnitFinding| {
            let UnitFinding { severity, line, message, machines, .. } = it;
            format!("\n  {severity} in line {line} on {machines}: {message}")
        };
        let findings: String = unit.findings.iter().map(finding).collect();
        let everywhere = unit.is_refused_everywhere();
        format!("{} {}/{} {everywhere}{findings}\n", unit.name, unit.refused_by, unit.machines)
    });
    insta::assert_snapshot!(lines.collect::<String>(), @r"
    odd.service 2/3 false
      error in line 2 on 2: Odd= is refused
      warning in line 2 on 1: runs without Odd=
    plain.service 0/3 false
    lenient.service 0/1 false
      warning in line 2 on 1: runs without Odd=
    strict.service 1/1 true
      error in line 2 on 1: Odd= is refused
    lost.service 0/0 false
    ");
}

#[tokio::test]
async fn machines_that_cannot_be_asked_refuse_nothing() {
    let server = server().await;
    join(&server, "m1", "1.2.3", Some(ManagerInfo::Systemd)).await;
    join(&server, "m2", "1.2.3", None).await;
    join(&server, "m3", "1.2.2", native(&[])).await;
    join(&server, "m4", "1.2.3", native(&[])).await;
    let units = [(name("odd.service"), upload(ODD))];
    let report = server.client().check(&units).await.unwrap().unwrap();
    let unit = &report.units[0];
    assert_eq!((unit.refused_by, unit.machines), (1, 4));
    assert!(!unit.is_refused_everywhere());
}

#[tokio::test]
async fn file_of_an_existing_unit_is_checked() {
    let server = server().await;
    join(&server, "m1", "1.2.3", native(&[])).await;
    let body = serde_json::json!({ "source": ODD }).to_string();
    assert_eq!(server.put("/fleet/v1/units/odd.service", &body).await.status, 201);
    let report = server.client().check(&[(name("odd.service"), None)]).await.unwrap().unwrap();
    assert!(report.units[0].is_refused_everywhere());
    let missing = server.client().check(&[(name("none.service"), None)]).await.unwrap_err();
    assert!(missing.to_string().contains("none.service"), "{missing}");
    let bad = server.call("POST", "/fleet/v1/check", r#"{"unit":[]}"#).await;
    assert_eq!(bad.status, 400, "{bad}");
}

#[tokio::test]
async fn machine_shows_its_service_manager() {
    let server = server().await;
    join(&server, "m1", "1.2.3", native(&["sandboxing"])).await;
    join(&server, "m2", "1.2.3", Some(ManagerInfo::Systemd)).await;
    join(&server, "m3", "1.2.3", None).await;
    let manager = async |id: &str| {
        let machine = server.get(&format!("/fleet/v1/machines/{id}")).await.json();
        machine["serviceManager"].to_string()
    };
    let expected = r#"{"accept":["sandboxing"],"kind":"native","root":true}"#;
    assert_eq!(manager("m1").await, expected);
    assert_eq!(manager("m2").await, r#"{"kind":"systemd"}"#);
    assert_eq!(manager("m3").await, "null");
}
