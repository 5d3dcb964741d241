//! Explanations and dry runs.

use fleet_http::client::UnitUpload;
use fleet_http::wire::{MachineVerdict, PlanStep};
use fleet_unitfile::UnitFile;

use crate::harness::{Server, name};

async fn cluster() -> Server {
    let server = Server::start().await;
    // The leases outlive the test.
    let _away = server.machine("m1", &[("disk", "ssd")]).await;
    let _away = server.machine("m2", &[]).await;
    server
}

async fn state(server: &Server) -> Vec<String> {
    let units = server.get("/fleet/v1/units").await;
    vec![units.to_string(), server.mirror.snapshot().revision.to_string()]
}

#[tokio::test]
async fn explain_returns_each_machines_verdict() {
    let server = cluster().await;
    let source = r"[Service]\nExecStart=/bin/true\n[X-Fleet]\nMachineMetadata=disk=ssd\n";
    let body = format!(r#"{{"desiredState":"launched","source":"{source}"}}"#);
    assert_eq!(server.put("/fleet/v1/units/a.service", &body).await.status, 201);
    let response = server.get("/fleet/v1/units/a.service/explain").await.json();
    let expected = serde_json::json!({ "load": 0, "machineID": "m1", "verdict": "eligible" });
    assert_eq!(response["machines"][0], expected);
    let explanation = server.client().explain(&name("a.service")).await.unwrap().unwrap();
    let lines = explanation.machines.iter().map(|machine| {
        let MachineVerdict { machine_id, verdict, rule, text, .. } = machine;
        format!("{machine_id} {verdict} {rule} {text}\n")
    });
    insta::assert_snapshot!(lines.collect::<String>(), @r"
    m1 eligible  
    m2 refused MachineMetadata the unit requires disk=ssd, the machine has no disk
    ");
    // A unit that all machines refuse has a reason, although the engine has not considered it yet.
    server.put("/fleet/v1/units/b.service", &body.replace("ssd", "tape")).await;
    let explanation = server.client().explain(&name("b.service")).await.unwrap().unwrap();
    assert_eq!(explanation.reason_detail.unwrap().kind, "noMachineFits");
    assert!(explanation.machines.iter().all(|machine| machine.verdict == "refused"));
}

#[tokio::test]
async fn explain_refuses_missing_and_faulty_units() {
    let server = cluster().await;
    server.sleepers(&["a.service"], "launched").await;
    server.damage("a.service").await;
    for (unit, status) in [("b.service", 404), ("nonsense", 404), ("a.service", 409)] {
        let response = server.get(&format!("/fleet/v1/units/{unit}/explain")).await;
        assert_eq!(response.status, status, "{response}");
        assert!(!response.message().is_empty());
    }
    assert_eq!(server.client().explain(&name("b.service")).await.unwrap(), None);
}

#[tokio::test]
async fn dry_run_changes_nothing() {
    let server = cluster().await;
    server.sleepers(&["a.service", "b.service"], "launched").await;
    server.decide(&[("a.service", "m1"), ("b.service", "m2")], &[]).await;
    let before = state(&server).await;
    let options = r#"[{"section":"Service","name":"ExecStart","value":"/bin/sleep 1d"}]"#;
    let wanted = format!(r#"{{"desiredState":"launched","options":{options}}}"#);
    let tape = r#"{"desiredState":"launched","source":"[X-Fleet]\nMachineMetadata=disk=tape\n"}"#;
    let place = r#"{"steps":[{"cause":"it is wanted","to":"m1","unit":"c.service"}]}"#;
    let remove = |cause: &str| {
        format!(r#"{{"steps":[{{"cause":"{cause}","from":"m1","unit":"a.service"}}]}}"#)
    };
    for (unit, body, expected) in [
        ("c.service", wanted.as_str(), place.to_owned()),
        ("a.service", r#"{"desiredState":"inactive"}"#, remove("it is inactive")),
        ("a.service", r#"{"desiredState":"loaded"}"#, "{}".to_owned()),
    ] {
        let response = server.put(&format!("/fleet/v1/units/{unit}?dryRun=1"), body).await;
        assert_eq!(response.to_string(), format!("200 {expected}"));
        assert_eq!(state(&server).await, before, "{body}");
    }
    let response = server.put("/fleet/v1/units/c.service?dryRun=1", tape).await.json();
    assert_eq!(response["unplaced"][0]["reasonDetail"]["kind"], "noMachineFits");
    let response = server.call("DELETE", "/fleet/v1/units/a.service?dryRun=1", "").await;
    assert_eq!(response.to_string(), format!("200 {}", remove("it was destroyed")));
    assert_eq!(state(&server).await, before);
}

#[tokio::test]
async fn dry_run_of_state_change_requires_a_readable_unit() {
    let server = cluster().await;
    let source = r#"{"source":"[Service]\nExecStart=/bin/true\n"}"#;
    assert_eq!(server.put("/fleet/v1/units/b.service", source).await.status, 201);
    server.damage("b.service").await;
    let unreadable =
        "unit b.service cannot be read from the store: include its unit file in the request";
    for (unit, message) in [
        ("missing.service", "unit does not exist and options field empty"),
        ("b.service", unreadable),
    ] {
        let path = format!("/fleet/v1/units/{unit}?dryRun=1");
        let response = server.put(&path, r#"{"desiredState":"launched"}"#).await;
        assert_eq!((response.status, response.message().as_str()), (409, message));
    }
}

/// No request with `dryRun` may write anything.
#[tokio::test]
async fn every_write_supports_dry_run() {
    let server = cluster().await;
    let json = [("Content-Type", "application/json")];
    let tape = r#"{"desiredState":"launched","source":"[X-Fleet]\nMachineMetadata=disk=tape\n"}"#;
    assert_eq!(server.put("/fleet/v1/units/a.service", tape).await.status, 201);
    let place = r#"200 {"steps":[{"cause":"it is wanted","to":"m2","unit":"a.service"}]}"#;
    let patch = r#"[{"op":"add","path":"/m2/metadata/disk","value":"tape"}]"#;
    let before = state(&server).await;
    for (method, target, body, expected) in [
        ("PATCH", "machines", patch, place),
        ("POST", "machines/m1/cordon", "", "200 "),
        ("POST", "machines/m1/uncordon", "", "200 "),
        ("POST", "machines/m3/uncordon", "", "200 "),
        ("POST", "machines/m3/cordon", "", "404 "),
        ("POST", "machines/m1/drain", "", "200 "),
        ("POST", "units/a.service/restart", "", "200 "),
        ("POST", "units/b.service/restart", "", "404 "),
        ("POST", "units/b.service/stop", "", "404 "),
        ("POST", "import", "{}", "400 "),
    ] {
        let ask = async |query: &str| {
            let target = format!("/fleet/v1/{target}?{query}");
            crate::http::request(&server.at, method, &target, &json, body).await
        };
        let response = ask("dryRun=1").await;
        assert!(response.to_string().starts_with(expected), "{method} {target}: {response}");
        for slip in ["dryrun=1", "dry_run=1", "dry-run"] {
            let response = ask(slip).await;
            assert_eq!(response.status, 400, "{method} {target}?{slip}");
            assert!(response.message().ends_with("use dryRun=1"), "{response}");
        }
        assert_eq!(state(&server).await, before, "{method} {target}");
    }
    server.call("POST", "/fleet/v1/machines/m1/cordon", "").await;
    assert_ne!(state(&server).await, before);
}

#[tokio::test]
async fn dry_run_fails_like_the_write() {
    let server = cluster().await;
    server.sleepers(&["a.service"], "launched").await;
    let before = state(&server).await;
    let bad = r#"{"source":"[X-Fleet]\nGlobbal=true\n"}"#;
    for (method, target, body, status) in [
        ("PUT", "a.service?dryRun=1", bad, 400),
        ("PUT", "b.service?dryRun=1", r#"{"desiredState":"loaded"}"#, 409),
        ("PUT", "a.service?dryRun=yes", r#"{"desiredState":"loaded"}"#, 400),
        ("DELETE", "b.service?dryRun=1", "", 404),
        ("DELETE", "a.service?dryRun=maybe", "", 400),
    ] {
        let json = [("Content-Type", "application/json")];
        let target = format!("/fleet/v1/units/{target}");
        let response = crate::http::request(&server.at, method, &target, &json, body).await;
        assert_eq!(response.status, status, "{method} {target}");
    }
    assert_eq!(state(&server).await, before);
}

#[tokio::test]
async fn client_dry_runs_match_the_api() {
    let server = cluster().await;
    let file = UnitFile::parse("[Service]\nExecStart=/bin/true\n").unwrap();
    let desired = Some(fleet_core::TargetState::Launched);
    let upload = UnitUpload::new(file).with_desired(desired).with_create_only(true);
    let client = server.client();
    let plan = client.dry_run_put_unit(&name("a.service"), &upload).await.unwrap();
    let [PlanStep { cause, from, to, unit, .. }] = &plan.steps[..] else {
        panic!("one step, not {:?}", plan.steps)
    };
    assert_eq!([cause, from, to, unit], ["it is wanted", "", "m1", "a.service"]);
    assert_eq!(client.unit(&name("a.service")).await.unwrap(), None);
    client.put_unit(&name("a.service"), &upload).await.unwrap();
    assert!(client.dry_run_destroy(&name("a.service")).await.unwrap().is_some());
    assert!(client.unit(&name("a.service")).await.unwrap().is_some());
    assert!(client.dry_run_destroy(&name("b.service")).await.unwrap().is_none());
    let machine: fleet_core::MachineId = "m1".parse().unwrap();
    let (cordoned, freed) =
        (client.dry_run_cordon(&machine).await, client.dry_run_uncordon(&machine).await);
    // The unit is not placed yet, and a cordoned machine does not get it.
    let to = |plan: fleet_http::wire::PlanReport| plan.steps[0].to.clone();
    assert_eq!((to(cordoned.unwrap()), to(freed.unwrap())), ("m2".to_owned(), "m1".to_owned()));
    let key = "disk".to_owned();
    let change = fleet_store::registry::MetadataChange::Remove { machine, key };
    assert_eq!(to(client.dry_run_patch_machines(&[change]).await.unwrap()), "m1");
    let known = server.mirror.snapshot().machine("m1").cloned().unwrap();
    assert_eq!((known.cordoned, known.metadata["disk"].as_str()), (false, "ssd"));
}

#[tokio::test]
async fn plan_combines_several_writes() {
    let server = cluster().await;
    server.sleepers(&["a.service"], "launched").await;
    server.decide(&[("a.service", "m1")], &[]).await;
    let before = state(&server).await;
    let plan = async |body: &str| server.call("POST", "/fleet/v1/plan", body).await;
    // Each of the two alone would be placed on m2, which is empty.
    let unit = |name: &str, more: &str| {
        let source = format!(r"[Service]\nExecStart=/bin/true\n{more}");
        format!(r#"{{"name":"{name}","desiredState":"launched","source":"{source}"}}"#)
    };
    let (b, c) = (unit("b.service", ""), unit("c.service", ""));
    let response = plan(&format!(r#"{{"units":[{b},{c}],"destroy":["a.service"]}}"#)).await.json();
    let steps = response["steps"].as_array().unwrap().iter();
    let steps = steps.map(|it| format!("{} {} {}\n", it["unit"], it["from"], it["to"]));
    insta::assert_snapshot!(steps.collect::<String>().replace('"', ""), @r"
    a.service m1 null
    b.service null m1
    c.service null m2
    ");
    let stop = r#"{"units":[{"name":"a.service","desiredState":"inactive"}]}"#;
    assert_eq!(plan(stop).await.json()["steps"][0]["cause"], "it is inactive");
    assert_eq!((plan("").await.to_string(), plan("{}").await.to_string()), {
        let nothing = format!("200 {{\"revision\":\"{}\"}}", server.mirror.snapshot().revision);
        (nothing.clone(), nothing)
    });
    let ring = [
        unit("x.service", r"[X-Fleet]\nMachineOf=y.service\n"),
        unit("y.service", r"[X-Fleet]\nMachineOf=x.service\n"),
    ];
    let order = [
        unit("x.service", r"[X-Fleet]\nStartAfter=y.service\n"),
        unit("y.service", r"[X-Fleet]\nStartAfter=x.service\n"),
    ];
    for (body, status, begins) in [
        (format!(r#"{{"units":[{}]}}"#, order.join(",")), 400, "StartAfter forms a dependency"),
        (format!(r#"{{"units":[{}]}}"#, ring.join(",")), 400, "y.service: "),
        (r#"{"units":[{"name":"d.service","desiredState":"loaded"}]}"#.into(), 404, "d.service: "),
        (r#"{"destroy":["d.service"]}"#.into(), 404, "d.service: "),
        (r#"{"units":[{"source":"[A]\n"}]}"#.into(), 400, ": unit name"),
        (r#"{"unit":[]}"#.into(), 400, "unable to decode body: unknown field `unit`"),
    ] {
        let response = plan(&body).await;
        assert_eq!(response.status, status, "{body}: {response}");
        assert!(response.message().starts_with(begins), "{response}");
    }
    assert_eq!(state(&server).await, before);
}

#[tokio::test]
async fn client_plans_several_writes() {
    let server = cluster().await;
    server.sleepers(&["a.service"], "launched").await;
    let file = UnitFile::parse("[Service]\nExecStart=/bin/true\n").unwrap();
    let desired = Some(fleet_core::TargetState::Launched);
    let put = (name("b.service"), UnitUpload::new(file).with_desired(desired));
    let plan = server.client().plan(&[put], &[name("a.service")]).await.unwrap();
    let steps: Vec<_> = plan.steps.iter().map(|it| (it.unit.as_str(), it.to.as_str())).collect();
    assert_eq!(steps, [("b.service", "m1")]);
}
