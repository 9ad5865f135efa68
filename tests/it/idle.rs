//! A service that nobody has asked for a while.

use std::time::Duration;

use tokio::time::sleep;

use crate::support::{ControlPlane, DOCUMENT, Service, curl, exclusive_load};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_request_after_a_lull_is_admitted() {
    let _exclusive = exclusive_load().await;
    let server = ControlPlane::start(DOCUMENT);
    let service = Service::start(server.address(), &[]);
    // Before its first request it wants nothing, and so its lease is one on nothing, which is none yet.
    while service.limit("api").is_none() {
        sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(curl(&[service.address()]).status, 200);
    // Afterwards what it wants fades.
    while service.wants("api") > 0.3 {
        sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(curl(&[service.address()]).status, 200);
}
