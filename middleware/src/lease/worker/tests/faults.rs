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
        move |call: &Received| {
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
    assert!(plane.calls().len() < 200, "and not in a hot loop");
}

#[tokio::test(start_paused = true)]
async fn single_address_is_asked_again_until_it_leads_to_the_master() {
    // Three servers behind a balancer that takes turns; the third is the master.
    let not_master = |status, master_address: Option<&str>| {
        let mut problem = Problem::new(ProblemType::Unavailable, "not the master");
        problem.mastership = Some(Mastership {
            master_address: master_address.map(str::to_owned),
        });
        move || Reply::json(status, &problem)
    };
    for not_master in [
        not_master(503, None),
        not_master(307, Some("http://pod-3:7300")),
    ] {
        let mut connections = 0;
        let plane = Plane::new(move |call| {
            connections += 1;
            match connections % 3 {
                0 => grants(10.0)(call),
                _ => not_master(),
            }
        });
        let (doorman, _worker) = run(Doorman::builder("http://a"), &plane);
        let _rate = doorman.rate("db");
        doorman.ready(SECOND / 2).await.unwrap();
        assert_eq!(plane.calls().len(), 3);
    }
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
    let timed_out = doorman.ready(SECOND).await.unwrap_err().to_string();
    let failure = "; last failure: http://a: responded 403 Forbidden: not yours";
    assert!(timed_out.ends_with(failure), "{timed_out}");
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
async fn every_rejected_constant_key_is_logged() {
    let (warnings, _guard) = Logged::at(tracing::Level::WARN);
    let plane = Plane::new(|call| {
        let mut problem = Problem::new(ProblemType::InvalidRequest, "not yours");
        problem.errors = (0..call.names().len())
            .map(|position| FieldError {
                pointer: format!("/resources/{position}/resource_id"),
                detail: String::new(),
            })
            .collect();
        Reply::json(403, &problem)
    });
    let (doorman, _worker) = run(builder(), &plane);
    let _rates = ["db", "secret"].map(|resource| doorman.rate(resource));
    sleep(5 * SECOND).await;
    let warnings = warnings.lines();
    for resource in ["resource=db", "resource=secret"] {
        let logged = warnings.iter().filter(|line| line.contains(resource));
        assert_eq!(logged.count(), 1, "{resource}: {warnings:?}");
    }
}

/// The one warning of a worker without leases, and what `ready` reports.
async fn warning_without_leases(builder: Builder, plane: &Plane) -> (String, String) {
    let (warnings, _guard) = Logged::at(tracing::Level::WARN);
    let (doorman, _worker) = run(builder, plane);
    let _rate = doorman.rate("db");
    let ready = doorman.ready(5 * SECOND).await.unwrap_err().to_string();
    let mut warnings = warnings.lines();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    (warnings.remove(0), ready)
}

#[tokio::test(start_paused = true)]
async fn rejected_caller_is_not_an_unreachable_server() {
    let plane = Plane::new(|_| {
        let problem = Problem::new(ProblemType::Unauthorized, "invalid token");
        Reply::json(401, &problem)
    });
    let (warning, ready) = warning_without_leases(builder(), &plane).await;
    let event = "message=control plane grants no leases; fallbacks apply ";
    assert!(warning.contains(event), "{warning}");
    let reason = "responded 401 Unauthorized: invalid token";
    assert!(warning.contains(reason), "{warning}");
    assert!(ready.ends_with(reason), "{ready}");
}

#[tokio::test(start_paused = true)]
async fn unreadable_token_file_is_named_and_not_the_server() {
    let builder = builder().credentials(Credentials::file("/missing/a.token"));
    let plane = Plane::new(grants(10.0));
    let (warning, ready) = warning_without_leases(builder, &plane).await;
    let event = "message=cannot send lease requests; fallbacks apply ";
    assert!(warning.contains(event), "{warning}");
    let reason = "cannot read token file `/missing/a.token`: No such file or directory";
    assert!(warning.contains(&format!("reason=\"{reason}")), "{warning}");
    assert!(ready.contains(reason), "{ready}");
    assert!(plane.calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn unreachable_server_is_a_threat_to_leases_only_where_there_are_some() {
    let (warnings, _guard) = Logged::at(tracing::Level::WARN);
    let plane = Plane::new(grants(10.0));
    let (doorman, _worker) = run(builder(), &plane);
    let _rate = doorman.rate("db");
    doorman.ready(SECOND).await.unwrap();
    plane.set(|_| Reply::Disconnect);
    sleep(5 * SECOND).await;
    let warnings = warnings.lines();
    let event = "control plane unreachable; leases will expire, then fallbacks apply";
    assert!(warnings[0].contains(event), "{warnings:?}");
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
            warnings: Vec::new(),
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
    let ready = doorman.ready(60 * SECOND).await;
    assert!(matches!(ready, Err(NotReady::TimedOut { .. })), "{ready:?}");
    let tries = plane.calls().len();
    assert!(
        (30..=120).contains(&tries),
        "two servers, at most 4 s apart: {tries}"
    );
    plane.set(grants(10.0));
    sleep(4 * SECOND).await;
    assert_eq!(take(&rate, 1), 1);
}
