//! What commands ask of a daemon: for one unit, never for all of them.

use crate::cluster::Cluster;

/// The requests of a run, in order, without what is the same in all of them.
async fn requests(cluster: &Cluster, line: &str) -> String {
    let run = cluster.run(&format!("{line} --debug")).await;
    let asked = run.stderr.lines().filter(|line| line.contains(": asked "));
    let mut asked: Vec<String> = asked
        .map(|line| {
            let field = |name: &str| {
                let rest = line.split_once(&format!("{name}=")).map_or("", |(_, rest)| rest);
                rest.split(' ').next().unwrap_or_default().to_owned()
            };
            let uri = field("uri").replace("http://localhost/fleet/v1", "");
            format!("{} {uri}", field("method"))
        })
        .collect();
    assert!(!asked.is_empty(), "{line}: {run}");
    asked.sort();
    asked.dedup();
    format!("{line}: {}\n", asked.join(", "))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn for_one_unit_nobody_asks_for_the_whole_cluster() {
    let cluster = Cluster::start(&["m1"]).await;
    cluster.write_sleepers(&["web.service", "db.service", "job@.service"]);
    cluster.run("start web db").await.ok();
    cluster.run("submit job@.service").await.ok();
    let mut all = String::new();
    for line in [
        "status web",
        "cat web",
        "explain web",
        "journal web",
        "logs web",
        "diff web.service",
        "apply web.service",
        "stop web",
        "start web",
        "restart web",
        "scale job@ 0",
        "plan --destroy web",
        "destroy web",
    ] {
        all += &requests(&cluster, line).await;
    }
    assert!(!all.contains("/units?nextPageToken") && !all.contains("GET /units,"), "{all}");
    insta::assert_snapshot!("requests", all);
    // A pattern takes the list.
    let pattern = requests(&cluster, "cat d*").await;
    assert_eq!(pattern, "cat d*: GET /units, GET /units/db.service\n");
}
