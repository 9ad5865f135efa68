//! Lists that change between two pages.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::json;

use super::*;

/// Arrivals and departures between two pages.
type Change = (u32, bool);

fn changes() -> impl Strategy<Value = Vec<Change>> {
    prop::collection::vec((0u32..60, any::<bool>()), 0..120)
}

fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build();
    runtime.unwrap().block_on(future)
}

async fn ask(router: &Router, client: &str, resource: &str) {
    let body = json!({"client_id": client, "resources": [{"resource_id": resource, "wants": 1}]});
    let reply = post(router, "/v1/capacity", body.to_string()).await;
    assert_eq!(reply.status, 200);
}

async fn release(router: &Router, client: &str, resource: &str) {
    let body = json!({"client_id": client, "resource_ids": [resource]});
    let reply = post(router, "/v1/capacity/release", body.to_string()).await;
    assert_eq!(reply.status, 200);
}

/// How often each element appeared from the first page to the last; `happens` runs after each page.
async fn met(
    router: &Router,
    uri: &str,
    list: &str,
    name: &str,
    mut happens: impl AsyncFnMut(),
) -> BTreeMap<String, usize> {
    let mut met = BTreeMap::new();
    let mut cursor = String::new();
    loop {
        let page = get(router, &format!("{uri}&cursor={cursor}")).await.json();
        for element in page[list].as_array().unwrap() {
            let name = element[name].as_str().unwrap().to_owned();
            *met.entry(name).or_default() += 1;
        }
        let Some(next) = page.get("next_cursor") else {
            return met;
        };
        cursor = next.as_str().unwrap().to_owned();
        happens().await;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn resources_that_stay_appear_exactly_once(
        stay in prop::collection::btree_set(0u32..60, 1..20), changes in changes(), limit in 1usize..9
    ) {
        let name = |number: u32| format!("t/{number}");
        let met = run(async {
            let router = router();
            for number in &stay {
                ask(&router, "stays", &name(*number)).await;
            }
            let mut changes = changes.iter();
            let uri = format!("/v1/resources?prefix=t/&limit={limit}");
            met(&router, &uri, "resources", "resource_id", async || {
                for (number, comes) in changes.by_ref().take(6) {
                    if *comes {
                        ask(&router, "comes", &name(*number)).await;
                    } else {
                        release(&router, "comes", &name(*number)).await;
                    }
                }
            })
            .await
        });
        for number in stay {
            prop_assert_eq!(met.get(&name(number)), Some(&1), "{} in {:?}", number, met);
        }
    }

    #[test]
    fn holders_that_stay_appear_exactly_once(
        stay in prop::collection::btree_set(0u32..60, 1..20), before in changes(), changes in changes(), limit in 1usize..9
    ) {
        let name = |number: u32| format!("c{number}");
        let met = run(async {
            let router = router();
            let change = async |(number, comes): &Change| {
                if *comes {
                    ask(&router, &name(*number), "db").await;
                } else if !stay.contains(number) {
                    release(&router, &name(*number), "db").await;
                }
            };
            let mut before = before.iter();
            for number in &stay {
                ask(&router, &name(*number), "db").await;
                for it in before.by_ref().take(3) {
                    change(it).await;
                }
            }
            let mut changes = changes.iter();
            let uri = format!("/v1/resources/db/leases?limit={limit}");
            met(&router, &uri, "leases", "client_id", async || {
                for it in changes.by_ref().take(6) {
                    change(it).await;
                }
            })
            .await
        });
        for number in &stay {
            prop_assert_eq!(met.get(&name(*number)), Some(&1), "{} in {:?}", number, met);
        }
    }
}

async fn first_cursor(router: &Router, uri: &str) -> String {
    let page = get(router, uri).await.json();
    page["next_cursor"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn lease_cursor_expires_with_the_resource_and_the_process() {
    const LEASES: &str = "/v1/resources/db/leases?limit=1";
    let (server, next_start) = (router(), router());
    for router in [&server, &next_start] {
        for client in ["a", "b"] {
            ask(router, client, "db").await;
        }
    }
    let cursor = first_cursor(&server, LEASES).await;
    let onward = format!("{LEASES}&cursor={cursor}");
    assert_eq!(
        get(&server, &onward).await.json()["leases"][0]["client_id"],
        "b"
    );

    let detail = get(&next_start, &onward).await.problem(400).detail;
    assert!(detail.contains("start again"), "{detail}");

    for client in ["a", "b"] {
        release(&server, client, "db").await;
    }
    get(&server, &onward).await.problem(404);
    for client in ["b", "a"] {
        ask(&server, client, "db").await;
    }
    let detail = get(&server, &onward).await.problem(400).detail;
    assert!(detail.contains("start again"), "{detail}");
}

#[tokio::test]
async fn resource_cursor_survives_the_resource_and_a_restart() {
    let (server, next_start) = (router(), router());
    for resource in ["a", "b", "c"] {
        ask(&server, "c", resource).await;
    }
    let cursor = first_cursor(&server, "/v1/resources?limit=2").await;
    ask(&next_start, "c", "b2").await;
    for (router, expected) in [(&server, "c"), (&next_start, "b2")] {
        let uri = format!("/v1/resources?limit=2&cursor={cursor}");
        let page = get(router, &uri).await.json();
        assert_eq!(page["resources"][0]["resource_id"], expected);
    }
}

#[tokio::test]
async fn lease_cursor_hides_the_position() {
    let router = router();
    for client in ["a", "b"] {
        ask(&router, client, "db").await;
    }
    let uri = "/v1/resources/db/leases?limit=1";
    let (one, other) = (
        first_cursor(&router, uri).await,
        first_cursor(&router, uri).await,
    );
    assert_ne!(one, other, "the same place, sealed twice");
}
