//! Requests of commands for single units, which must not fetch whole lists.

use crate::cluster::Cluster;
use crate::fleetctl::{DEADLINE, Fleetctl, command};

/// Returns the requests of a run, sorted and without the common part of the URL.
async fn requests(cluster: &Cluster, line: &str) -> String {
    let mut command = command(cluster.folder(), &cluster.endpoint(), &format!("--debug {line}"));
    // The PATH has no ssh, which would try to connect to the fake machines.
    let output = command.env("PATH", "/none").output();
    let output = tokio::time::timeout(DEADLINE, output).await;
    let run = Fleetctl::from(output.unwrap_or_else(|_| panic!("{line}: timeout")).unwrap());
    let requests = run.stderr.lines().filter(|line| line.contains(": sent a request "));
    let mut requests: Vec<String> = requests
        .map(|line| {
            let field = |name: &str| {
                let rest = line.split_once(&format!("{name}=")).map_or("", |(_, rest)| rest);
                rest.split(' ').next().unwrap_or_default().to_owned()
            };
            let uri = field("uri").replace("http://localhost/fleet/v1", "");
            format!("{} {uri}", field("method"))
        })
        .collect();
    assert!(!requests.is_empty(), "{line}: {run}");
    requests.sort();
    requests.dedup();
    format!("{line}: {}\n", requests.join(", "))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn single_unit_commands_do_not_list_the_cluster() {
    let cluster = Cluster::start(&["m1"]).await;
    cluster.write_sleepers(&["web.service", "db.service", "job@.service"]);
    cluster.run("start web db").await.ok();
    cluster.run("submit job@.service").await.ok();
    cluster.write_sleepers(&["new.service"]);
    let first = cluster.run("events -n 1 -o jsonl").await.ok().stdout;
    let first: serde_json::Value = serde_json::from_str(&first).unwrap();
    let id = first["id"].as_str().unwrap();
    let mut all = String::new();
    for line in [
        "status web",
        "cat web",
        "explain web",
        "journal web",
        "logs web",
        "diff web.service",
        "diff web.service@1",
        "history web",
        "rollback --to 1 web",
        "apply web.service",
        "stop web",
        "start web",
        "restart web",
        "scale job@ 1",
        "scale job@ 0",
        "plan --destroy web",
        "events --unit web -n 1 --since {id}",
        "ssh --unit web true",
        "submit new",
        "load new",
        "unload new",
        "destroy web",
    ] {
        all += &requests(&cluster, &line.replace("{id}", id)).await.replace(id, "ID");
    }
    for list in ["units", "machines", "state"] {
        let list = format!("GET /{list}");
        let asks = |line: &str| line.split(": ").nth(1).unwrap().split(", ").any(|it| it == list);
        assert!(!all.lines().any(asks), "{list} in {all}");
    }
    insta::assert_snapshot!("requests", all);
    // The eligible machines of a global unit follow from the list.
    cluster.write("all.service", "[Service]\nExecStart=/bin/true\n[X-Fleet]\nGlobal=true\n");
    assert!(requests(&cluster, "start all").await.contains("GET /machines,"));
    assert!(!requests(&cluster, "stop all").await.contains("GET /machines,"));
    // A pattern needs the list of units.
    let pattern = requests(&cluster, "cat d*").await;
    assert_eq!(pattern, "cat d*: GET /units, GET /units/db.service\n");
}
