//! Paginated lists: each item exactly once, at one revision, during concurrent changes.

use std::sync::Arc;

use crate::harness::{Server, running};

fn names(from: usize, to: usize) -> Vec<String> {
    (from..to).map(|number| format!("u{number:04}.service")).collect()
}

fn unit_names(page: &serde_json::Value) -> Vec<String> {
    let units = page["units"].as_array().expect("no units");
    units.iter().map(|unit| unit["name"].as_str().unwrap().to_owned()).collect()
}

fn next(page: &serde_json::Value) -> Option<String> {
    page["nextPageToken"].as_str().map(|token| format!("/fleet/v1/units?nextPageToken={token}"))
}

// Holds: I-16
#[tokio::test]
async fn every_unit_is_listed_exactly_once() {
    let server = Server::start().await;
    let expected = names(0, 1000);
    server.sleepers(&expected.iter().map(String::as_str).collect::<Vec<_>>(), "inactive").await;
    let (mut found, mut pages) = (Vec::new(), 0);
    let mut target = Some("/fleet/v1/units".to_owned());
    while let Some(path) = target {
        let page = server.get(&path).await.json();
        pages += 1;
        found.extend(unit_names(&page));
        target = next(&page);
    }
    assert_eq!((found, pages), (expected, 10));
}

/// Each line of such a unit file takes ten times its size in the response.
#[tokio::test]
async fn page_of_large_units_is_bounded_by_its_size() {
    let server = Server::start().await;
    let lines = "A=b\\n".repeat(40_000);
    let body = format!(r#"{{"source":"[Service]\nExecStart=/bin/true\n{lines}"}}"#);
    for name in names(0, 8) {
        assert_eq!(server.put(&format!("/fleet/v1/units/{name}"), &body).await.status, 201);
    }
    let (mut found, mut pages) = (Vec::new(), 0);
    let mut target = Some("/fleet/v1/units".to_owned());
    while let Some(path) = target {
        let page = server.get(&path).await;
        assert!(page.body.len() < 8 << 20, "{} bytes", page.body.len());
        pages += 1;
        found.extend(unit_names(&page.json()));
        target = next(&page.json());
    }
    assert_eq!(found, names(0, 8));
    assert!(pages > 1);
}

// Holds: I-16, D-11
#[tokio::test]
async fn all_pages_show_one_revision() {
    let server = Server::start_with(|api| api.with_page_size(3)).await;
    let before = names(0, 10);
    server.sleepers(&before.iter().map(String::as_str).collect::<Vec<_>>(), "inactive").await;
    let mut page = server.get("/fleet/v1/units").await.json();
    let mut found = unit_names(&page);
    let mut change = 0;
    while let Some(target) = next(&page) {
        // Between two pages a listed unit is removed, an unlisted one is removed, and one is added.
        let removed = [before[change].as_str(), before[9 - change].as_str()];
        for name in removed {
            server.call("DELETE", &format!("/fleet/v1/units/{name}"), "").await;
        }
        server.sleepers(&[&format!("u{change:04}x.service")], "launched").await;
        change += 1;
        page = server.get(&target).await.json();
        found.extend(unit_names(&page));
    }
    assert_eq!(found, before);
    assert_eq!(change, 3);
}

/// At each revision, `a`, `z` or both exist. A list that mixed several revisions could contain
/// neither.
// Holds: D-11
#[tokio::test]
async fn lists_are_consistent_during_writes() {
    let server = Arc::new(Server::start_with(|api| api.with_page_size(3)).await);
    let still = names(0, 10);
    server.sleepers(&still.iter().map(String::as_str).collect::<Vec<_>>(), "inactive").await;
    server.sleepers(&["a.service"], "inactive").await;
    let busy = server.clone();
    let writer = tokio::spawn(async move {
        loop {
            for (comes, goes) in [("z.service", "a.service"), ("a.service", "z.service")] {
                busy.sleepers(&[comes], "inactive").await;
                busy.call("DELETE", &format!("/fleet/v1/units/{goes}"), "").await;
            }
        }
    });
    let client = server.client();
    let (mut seen_a, mut seen_z) = (0, 0);
    while seen_a.min(seen_z) < 10 {
        assert!(!writer.is_finished(), "the writer has ended");
        let listed = client.units().await.unwrap();
        let listed: Vec<String> = listed.into_iter().map(|unit| unit.name).collect();
        assert!(listed.is_sorted_by(|a, b| a < b), "{listed:?}");
        let (a, z) = (listed[0] == "a.service", listed[listed.len() - 1] == "z.service");
        assert!(a || z, "{listed:?}");
        assert_eq!(listed.len(), 10 + usize::from(a) + usize::from(z));
        (seen_a, seen_z) = (seen_a + u32::from(a), seen_z + u32::from(z));
    }
    writer.abort();
}

#[tokio::test]
async fn expired_list_must_be_restarted() {
    let server = Server::start_with(|api| api.with_page_size(1)).await;
    server.sleepers(&["a.service", "b.service"], "inactive").await;
    let first = next(&server.get("/fleet/v1/units").await.json()).unwrap();
    // Each of these lists is at its own revision, and there is room for 64.
    for number in 0..64 {
        assert_eq!(server.get(&first).await.status, 200);
        server.sleepers(&[&format!("c{number}.service")], "inactive").await;
        server.get("/fleet/v1/units").await;
    }
    assert_eq!(server.get(&first).await.status, 200, "it was used continuously");
    for number in 0..64 {
        server.sleepers(&[&format!("d{number}.service")], "inactive").await;
        server.get("/fleet/v1/units").await;
    }
    let response = server.get(&first).await;
    assert_eq!(response.status, 400);
    assert!(response.message().ends_with("restart the list from its first page"), "{response}");
}

#[tokio::test]
async fn version_1_tokens_use_the_current_snapshot() {
    let server = Server::start_with(|api| api.with_page_size(2)).await;
    server.sleepers(&["a.service", "b.service", "c.service"], "inactive").await;
    let page = server.get("/fleet/v1/units?nextPageToken=AgACAA==").await.json();
    assert_eq!(unit_names(&page), ["c.service"]);
    server.call("DELETE", "/fleet/v1/units/a.service", "").await;
    let response = server.get("/fleet/v1/units?nextPageToken=AgACAA==").await;
    assert_eq!(response.to_string(), "200 {}");
}

#[tokio::test]
async fn tokens_begin_like_version_1() {
    use base64::Engine as _;
    let server = Server::start_with(|api| api.with_page_size(2)).await;
    server.sleepers(&["a.service", "b.service", "c.service"], "inactive").await;
    let page = server.get("/fleet/v1/units").await.json();
    let token = page["nextPageToken"].as_str().unwrap();
    let bytes = base64::engine::general_purpose::URL_SAFE.decode(token).unwrap();
    assert_eq!(bytes[..4], [2, 0, 2, 0]);
}

/// The server finds a page by the reference to its first item, without iterating over the preceding
/// pages. If there is no valid reference, it uses the page number.
// Holds: D-11
#[tokio::test]
async fn unit_pages_are_found_by_item_and_number() {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE;
    let server = Server::start_with(|api| api.with_page_size(2)).await;
    let names = ["a.service", "b.service", "c.service", "d.service", "e.service"];
    server.sleepers(&names, "inactive").await;
    server.damage("c.service").await;
    let page = server.get("/fleet/v1/units").await.json();
    let bytes = URL_SAFE.decode(page["nextPageToken"].as_str().unwrap()).unwrap();
    assert_eq!(&bytes[20..], b"c.service");
    let far = [&[2, 0, 9, 0, 9, 0, 0, 0, 0, 0, 0, 0], &bytes[12..]].concat();
    let foreign = [&bytes[..20], b"nonsense"].concat();
    for token in [&bytes, &bytes[..20], &far, &foreign] {
        let target = format!("/fleet/v1/units?nextPageToken={}", URL_SAFE.encode(token));
        assert_eq!(unit_names(&server.get(&target).await.json()), ["c.service", "d.service"]);
    }
}

/// Returns all pages of a list. For each page, returns the values of the fields `of` of its items,
/// and the reference in the token to the next page.
async fn pages(server: &Server, target: &str, field: &str, of: &[&str]) -> Vec<(String, String)> {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE;
    let (mut result, mut token) = (Vec::new(), String::new());
    loop {
        let page = server.get(&format!("{target}{token}")).await.json();
        let items = page[field].as_array().expect("no items").iter();
        let text = |item: &serde_json::Value| -> String {
            of.iter().filter_map(|name| item[name].as_str()).collect::<Vec<_>>().join("@")
        };
        let items: Vec<String> = items.map(text).collect();
        let Some(next) = page["nextPageToken"].as_str() else {
            result.push((items.join(" "), String::new()));
            return result;
        };
        let bytes = URL_SAFE.decode(next).unwrap();
        result.push((items.join(" "), String::from_utf8_lossy(&bytes[20..]).into_owned()));
        let sign = if target.contains('?') { '&' } else { '?' };
        token = format!("{sign}nextPageToken={next}");
    }
}

#[tokio::test]
async fn invalid_tokens_are_refused() {
    let server = Server::start().await;
    let cases = [
        ("nextPageToken=ZAACAA==&nextPageToken=ZAACAA==", "too many values for page token"),
        ("nextPageToken=", "invalid value of nextPageToken query parameter: it is incomplete"),
        ("nextPageToken=ZAAC", "invalid value of nextPageToken query parameter: it is incomplete"),
        ("nextPageToken=AgACAA==", "token limit must be 100"),
        ("nextPageToken=ZAAAAA==", "token page must be greater than zero"),
    ];
    for resource in ["units", "state", "machines"] {
        for (query, message) in cases {
            let response = server.get(&format!("/fleet/v1/{resource}?{query}")).await;
            assert_eq!((response.status, response.message().as_str()), (400, message), "{query}");
        }
    }
}

#[tokio::test]
async fn filters_apply_to_pages_that_repeat_them() {
    let server = Server::start_with(|api| api.with_page_size(1)).await;
    let presence = server.machine("m1", &[]).await;
    for unit in ["a.service", "b.service", "c.service"] {
        server.publish(&presence, running(unit, "m1")).await;
    }
    let page = server.get("/fleet/v1/state?machineID=m1").await.json();
    let token = page["nextPageToken"].as_str().unwrap();
    let page = server.get(&format!("/fleet/v1/state?machineID=m1&nextPageToken={token}")).await;
    assert_eq!(page.json()["states"][0]["name"], "b.service");
    let page = server.get(&format!("/fleet/v1/state?machineID=m2&nextPageToken={token}")).await;
    assert_eq!(page.to_string(), "200 {}");
}

// Holds: D-11
#[tokio::test]
async fn state_pages_are_found_by_first_item() {
    let server = Server::start_with(|api| api.with_page_size(2)).await;
    let (one, two) = (server.machine("m1", &[]).await, server.machine("m2", &[]).await);
    let three = server.machine("m3", &[]).await;
    for (presence, machine) in [(&one, "m1"), (&two, "m2"), (&three, "m3")] {
        server.publish(presence, running("b.service", machine)).await;
    }
    server.publish(&one, running("a.service", "m1")).await;
    server.publish(&two, running("c.service", "m2")).await;
    let all = pages(&server, "/fleet/v1/state", "states", &["name", "machineID"]).await;
    let page = |page: &str, next: &str| (page.to_owned(), next.to_owned());
    assert_eq!(
        all,
        [
            page("a.service@m1 b.service@m1", "b.service/m2"),
            page("b.service@m2 b.service@m3", "c.service/m2"),
            page("c.service@m2", ""),
        ]
    );
    let of_one = "/fleet/v1/state?unitName=b.service";
    assert_eq!(
        pages(&server, of_one, "states", &["name", "machineID"]).await,
        [page("b.service@m1 b.service@m2", "b.service/m3"), page("b.service@m3", "")]
    );
}

// Holds: D-11
#[tokio::test]
async fn machine_pages_are_found_by_first_item() {
    let server = Server::start_with(|api| api.with_page_size(2)).await;
    let mut present = Vec::new();
    for id in ["m1", "m2", "m3", "m4", "m5"] {
        present.push(server.machine(id, &[("even", if id == "m2" { "1" } else { "0" })]).await);
    }
    let page = |page: &str, next: &str| (page.to_owned(), next.to_owned());
    assert_eq!(
        pages(&server, "/fleet/v1/machines", "machines", &["id"]).await,
        [page("m1 m2", "m3"), page("m3 m4", "m5"), page("m5", "")]
    );
    assert_eq!(
        pages(&server, "/fleet/v1/machines?metadata=even%3D0", "machines", &["id"]).await,
        [page("m1 m3", "m4"), page("m4 m5", "")]
    );
}
