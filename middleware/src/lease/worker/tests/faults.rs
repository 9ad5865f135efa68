//! Failures between worker and control plane.

use super::*;

#[tokio::test(start_paused = true)]
async fn worker_stays_at_the_server_that_answers() {
    let plane = Plane::new(|call| match &*call.host {
        "a" => Reply::Disconnect,
        _ => grants(10.0)(call),
    });
    let (doorman, _worker) = run(builder(), &plane);
    let _rate = doorman.rate("db");
    doorman.ready(SECOND).await.unwrap();
    sleep(5 * SECOND).await;
    let hosts: Vec<_> = plane.calls().into_iter().map(|call| call.host).collect();
    assert_eq!(hosts[0], "a");
    assert!(hosts[1..].iter().all(|host| host == "b"), "{hosts:?}");
}

#[tokio::test(start_paused = true)]
async fn hanging_server_is_skipped() {
    let plane = Plane::new(|call| match &*call.host {
        "a" => Reply::Hang,
        _ => grants(10.0)(call),
    });
    let (doorman, _worker) = run(builder(), &plane);
    let _rate = doorman.rate("db");
    doorman.ready(3 * SECOND).await.unwrap();
    assert_eq!(held(&doorman, "db"), Some(10.0));
}

#[tokio::test(start_paused = true)]
async fn redirect_is_followed_to_configured_servers_only() {
    let redirect = |address: &'static str| {
        move |call: &Call| {
            if call.host != "a" {
                return grants(10.0)(call);
            }
            let mut problem = Problem::new(ProblemType::Unavailable, "not the master");
            let master_address = Some(address.to_owned());
            problem.mastership = Some(Mastership { master_address });
            Reply::json(307, &problem)
        }
    };
    let plane = Plane::new(redirect("http://b"));
    let (doorman, _worker) = run(builder(), &plane);
    let _rate = doorman.rate("db");
    doorman.ready(SECOND).await.unwrap();
    let hosts: Vec<_> = plane.calls().into_iter().map(|call| call.host).collect();
    assert_eq!(hosts[..2], ["a", "b"]);

    let plane = Plane::new(redirect("http://evil"));
    let (doorman, _worker) = run(Doorman::builder("http://a"), &plane);
    let _rate = doorman.rate("db");
    sleep(60 * SECOND).await;
    assert!(plane.calls().iter().all(|call| call.host == "a"));
    assert!(plane.calls().len() < 60, "and not in a hot loop");
}

#[tokio::test(start_paused = true)]
async fn rejected_resource_does_not_affect_others() {
    let plane = Plane::new(
        |call| match call.names().iter().position(|name| name == "secret") {
            None => grants(10.0)(call),
            Some(position) => {
                let mut problem = Problem::new(ProblemType::InvalidRequest, "not yours");
                problem.errors.push(FieldError {
                    pointer: format!("/resources/{position}/resource_id"),
                    detail: String::new(),
                });
                Reply::json(403, &problem)
            }
        },
    );
    let (doorman, _worker) = run(builder(), &plane);
    let _rates = ["db", "secret", "api"].map(|resource| doorman.rate(resource));
    assert_eq!(doorman.ready(SECOND).await, Err(NotReady::TimedOut));
    sleep(30 * SECOND).await;
    assert_eq!(held(&doorman, "db"), Some(10.0));
    assert_eq!(held(&doorman, "api"), Some(10.0));
    assert_eq!(held(&doorman, "secret"), None);
    let calls = plane.calls();
    let asked = calls
        .iter()
        .filter(|call| call.names().contains(&"secret".to_owned()));
    assert_eq!(asked.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn foreign_node_and_stale_epoch_are_ignored() {
    let plane = Plane::new(grants(10.0));
    let (doorman, _worker) = run(builder(), &plane);
    let _rate = doorman.rate("db");
    doorman.ready(SECOND).await.unwrap();
    plane.set(|call| {
        let request = call.capacity().unwrap();
        let response = grant_all(&request, 99.0);
        let (node, epoch) = match &*call.host {
            "a" => ("other", 9),
            _ => ("root", 6),
        };
        CapacityResponse {
            node: NodeId::new(node).unwrap(),
            epoch: Epoch::new(epoch).unwrap(),
            ..response
        }
        .into()
    });
    for _ in 0..19 {
        sleep(SECOND).await;
        assert_eq!(held(&doorman, "db"), Some(10.0));
    }
    sleep(8 * SECOND).await;
    assert_eq!(
        held(&doorman, "db"),
        Some(99.0),
        "all earlier leases have expired"
    );
}

#[tokio::test(start_paused = true)]
async fn lease_lasts_through_outage_until_it_expires() {
    let plane = Plane::new(grants(10.0));
    let (doorman, _worker) = run(builder(), &plane);
    let rate = doorman.rate("db");
    doorman.ready(SECOND).await.unwrap();
    let sent = plane.calls()[0].at;
    plane.set(|_| Reply::Disconnect);
    while clock::now() < sent.after_seconds(19.9) {
        sleep(SECOND / 10).await;
        assert_eq!(take(&rate, 1), 1);
    }
    sleep(SECOND / 10).await;
    assert_eq!(take(&rate, 1), 0);
    plane.set(grants(10.0));
    sleep(4 * SECOND).await;
    assert_eq!(take(&rate, 1), 1, "renewed within four seconds");
}

#[tokio::test(start_paused = true)]
async fn worker_starts_without_server_and_recovers() {
    let plane = Plane::new(|_| Reply::Disconnect);
    let (doorman, _worker) = run(builder(), &plane);
    let rate = doorman.rate("db");
    assert_eq!(doorman.ready(60 * SECOND).await, Err(NotReady::TimedOut));
    let tries = plane.calls().len();
    assert!(
        (30..=60).contains(&tries),
        "two servers, at most 4 s apart: {tries}"
    );
    plane.set(grants(10.0));
    sleep(4 * SECOND).await;
    assert_eq!(take(&rate, 1), 1);
}
