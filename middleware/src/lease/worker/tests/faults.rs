//! What goes wrong between worker and control plane.

use super::*;

#[tokio::test(start_paused = true)]
async fn goes_to_the_next_server_and_stays_there() {
    let plane = Plane::new(|call| match &*call.host {
        "a" => Reply::Breaks,
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
async fn goes_on_when_a_server_hangs() {
    let plane = Plane::new(|call| match &*call.host {
        "a" => Reply::Hangs,
        _ => grants(10.0)(call),
    });
    let (doorman, _worker) = run(builder(), &plane);
    let _rate = doorman.rate("db");
    doorman.ready(3 * SECOND).await.unwrap();
    assert_eq!(held(&doorman, "db"), Some(10.0));
}

#[tokio::test(start_paused = true)]
async fn follows_the_name_of_the_master_if_it_is_configured() {
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
async fn renews_the_others_without_a_refused_resource() {
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
async fn answers_of_another_node_or_an_older_reign_do_not_count() {
    let plane = Plane::new(grants(10.0));
    let (doorman, _worker) = run(builder(), &plane);
    let _rate = doorman.rate("db");
    doorman.ready(SECOND).await.unwrap();
    plane.now(|call| {
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
    assert_eq!(held(&doorman, "db"), Some(99.0), "nothing else is left");
}

#[tokio::test(start_paused = true)]
async fn a_lease_lasts_through_an_outage_to_its_end_and_no_longer() {
    let plane = Plane::new(grants(10.0));
    let (doorman, _worker) = run(builder(), &plane);
    let rate = doorman.rate("db");
    doorman.ready(SECOND).await.unwrap();
    let sent = plane.calls()[0].at;
    plane.now(|_| Reply::Breaks);
    while clock::now() < sent.after_seconds(19.9) {
        sleep(SECOND / 10).await;
        assert_eq!(take(&rate, 1), 1);
    }
    sleep(SECOND / 10).await;
    assert_eq!(take(&rate, 1), 0);
    plane.now(grants(10.0));
    sleep(4 * SECOND).await;
    assert_eq!(take(&rate, 1), 1, "it comes back within four seconds");
}

#[tokio::test(start_paused = true)]
async fn needs_no_server_to_be_built_and_recovers_when_one_comes() {
    let plane = Plane::new(|_| Reply::Breaks);
    let (doorman, _worker) = run(builder(), &plane);
    let rate = doorman.rate("db");
    assert_eq!(doorman.ready(60 * SECOND).await, Err(NotReady::TimedOut));
    let tries = plane.calls().len();
    assert!(
        (30..=60).contains(&tries),
        "two servers, at most 4 s apart: {tries}"
    );
    plane.now(grants(10.0));
    sleep(4 * SECOND).await;
    assert_eq!(take(&rate, 1), 1);
}
