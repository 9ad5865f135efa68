//! Files that change while the server runs.

use tokio::time::sleep;

use super::*;

const BOUND: &str = "grants:\n- {iss: '*', sub: alice, scope: [capacity], resources: db}\n";
const WHOLE: &str = "grants:\n- iss: '*'\n  sub: alice\n  scope: [capacity]\n  resources: cache\n";

/// Whether the token allows `db`, and `cache`.
async fn alice(auth: &Auth) -> (bool, bool) {
    let token = Issuer::rs256().sign(&claims(&json!({})));
    let caller = caller(auth, &token).await.unwrap();
    let restrictions = caller.restrictions();
    (
        restrictions.allows_resource("db"),
        restrictions.allows_resource("cache"),
    )
}

#[tokio::test(start_paused = true)]
async fn half_written_grants_are_not_applied() {
    let home = Home::new().key(RSA_PUBLIC).grants(BOUND);
    let auth = Arc::new(home.load().unwrap());
    assert_eq!(alice(&auth).await, (true, false));

    let (half, _) = WHOLE.split_once("  resources").unwrap();
    home.write("grants.yaml", half);
    let written = async {
        sleep(Duration::from_millis(100)).await;
        home.write("grants.yaml", WHOLE);
    };
    let observed = async {
        for _ in 0..8 {
            sleep(Duration::from_millis(100)).await;
            let (db, cache) = alice(&auth).await;
            assert!(db != cache, "half of the file is active");
        }
    };
    tokio::join!(follow_once(&auth), written, observed);
    assert_eq!(alice(&auth).await, (false, true));
}

#[tokio::test(start_paused = true)]
async fn replaced_secret_revokes_old_tokens() {
    let home = Home::new().secret(SECRET);
    let auth = Arc::new(home.load().unwrap());
    let own = claims(&json!({"iss": "doorman"}));
    let other = "another secret of thirty-two bytes";
    let (before, after) = (
        Issuer::of_secret(SECRET).sign(&own),
        Issuer::of_secret(other).sign(&own),
    );
    assert!(is_valid(&auth, &before).await && !is_valid(&auth, &after).await);

    // An invalid secret changes nothing.
    for wrong in ["short", "", RSA_PUBLIC] {
        home.write("secret", wrong);
        follow_once(&auth).await;
        assert!(is_valid(&auth, &before).await, "{wrong}");
    }
    home.write("secret", other);
    follow_once(&auth).await;
    assert!(!is_valid(&auth, &before).await, "though it was cached");
    assert!(is_valid(&auth, &after).await);
}

#[tokio::test(start_paused = true)]
async fn removed_grant_leaves_no_permission() {
    let home = Home::new().key(RSA_PUBLIC).secret(SECRET).grants(BOUND);
    let auth = Arc::new(home.load().unwrap());
    let by_key = Issuer::rs256().sign(&claims(&json!({})));
    let by_secret = Issuer::of_secret(SECRET).sign(&claims(&json!({"iss": "doorman"})));
    for token in [&by_key, &by_secret] {
        let bound = caller(&auth, token).await.unwrap();
        assert!(bound.may(&[Scope::Capacity]) && !bound.restrictions().allows_resource("cache"));
    }

    home.write("grants.yaml", "grants: []");
    follow_once(&auth).await;
    let nobody = caller(&auth, &by_key).await.unwrap();
    assert!(!nobody.may(Scope::ALL), "though the token claims a scope");
    // Grants do not restrict the holder of the secret.
    assert!(
        caller(&auth, &by_secret)
            .await
            .unwrap()
            .may(&[Scope::Capacity])
    );
}

#[tokio::test]
async fn concurrent_changes_are_both_applied() {
    let home = Home::new().key(RSA_PUBLIC).secret(SECRET).grants(BOUND);
    let auth = home.load().unwrap();
    for round in 0..50 {
        let secret = format!("secret of more than thirty-two bytes, {round}");
        let grants =
            format!("grants: [{{iss: '*', sub: '*', scope: [server], max_priority: {round}}}]");
        std::thread::scope(|threads| {
            threads.spawn(|| auth.update(0, secret.clone().into_bytes()));
            threads.spawn(|| auth.update(2, grants.into_bytes()));
        });
        let token = Issuer::of_secret(&secret).sign(&claims(&json!({"iss": "doorman"})));
        let bearer = caller(&auth, &token).await.unwrap();
        assert!(
            bearer.restrictions().allows_priority(round)
                && !bearer.restrictions().allows_priority(round + 1)
        );
    }
}
