//! Files that change while the server runs.

use tokio::time::sleep;

use super::*;

const BOUND: &str = "grants:\n- {iss: '*', sub: alice, scope: [capacity], resources: db}\n";
const WHOLE: &str = "grants:\n- iss: '*'\n  sub: alice\n  scope: [capacity]\n  resources: cache\n";

/// Whether Alice's token is good for each of the two resources.
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
async fn half_a_file_is_not_taken_though_it_is_a_good_one() {
    let home = Home::new().key(RSA_PUBLIC).grants(BOUND);
    let auth = Arc::new(home.load().unwrap());
    assert_eq!(alice(&auth).await, (true, false));

    let (half, _) = WHOLE.split_once("  resources").unwrap();
    home.write("grants.yaml", half);
    let written = async {
        sleep(Duration::from_millis(100)).await;
        home.write("grants.yaml", WHOLE);
    };
    tokio::join!(auth.look(), written);
    assert_eq!(alice(&auth).await, (true, false), "it has not held still");
    auth.look().await;
    assert_eq!(alice(&auth).await, (false, true));
}

#[tokio::test(start_paused = true)]
async fn a_secret_is_replaced_without_a_restart_and_the_old_one_counts_no_more() {
    let home = Home::new().secret(SECRET);
    let auth = Arc::new(home.load().unwrap());
    let own = claims(&json!({"iss": "doorman"}));
    let other = "another secret of thirty-two bytes";
    let (before, after) = (
        Issuer::of_secret(SECRET).sign(&own),
        Issuer::of_secret(other).sign(&own),
    );
    assert!(counts(&auth, &before).await && !counts(&auth, &after).await);

    // What is no secret changes nothing.
    for wrong in ["short", "", RSA_PUBLIC] {
        home.write("secret", wrong);
        auth.look().await;
        assert!(counts(&auth, &before).await, "{wrong}");
    }
    home.write("secret", other);
    auth.look().await;
    assert!(!counts(&auth, &before).await, "though it was known");
    assert!(counts(&auth, &after).await);
}

#[tokio::test(start_paused = true)]
async fn to_take_a_grant_away_widens_no_token_by_a_key() {
    let home = Home::new().key(RSA_PUBLIC).secret(SECRET).grants(BOUND);
    let auth = Arc::new(home.load().unwrap());
    let by_key = Issuer::rs256().sign(&claims(&json!({})));
    let by_secret = Issuer::of_secret(SECRET).sign(&claims(&json!({"iss": "doorman"})));
    for token in [&by_key, &by_secret] {
        let bound = caller(&auth, token).await.unwrap();
        assert!(bound.may(&[Scope::Capacity]) && !bound.restrictions().allows_resource("cache"));
    }

    home.write("grants.yaml", "grants: []");
    auth.look().await;
    let nobody = caller(&auth, &by_key).await.unwrap();
    assert!(!nobody.may(Scope::ALL), "though the token says otherwise");
    // Who has the secret makes whatever token it likes, and grants do not hinder it.
    assert!(
        caller(&auth, &by_secret)
            .await
            .unwrap()
            .may(&[Scope::Capacity])
    );
}

#[tokio::test]
async fn of_two_changes_at_one_time_neither_is_lost() {
    let home = Home::new().key(RSA_PUBLIC).secret(SECRET).grants(BOUND);
    let auth = home.load().unwrap();
    for round in 0..50 {
        let secret = format!("secret of more than thirty-two bytes, {round}");
        let grants =
            format!("grants: [{{iss: '*', sub: '*', scope: [server], max_priority: {round}}}]");
        std::thread::scope(|threads| {
            threads.spawn(|| auth.learn(0, secret.clone().into_bytes()));
            threads.spawn(|| auth.learn(2, grants.into_bytes()));
        });
        let token = Issuer::of_secret(&secret).sign(&claims(&json!({"iss": "doorman"})));
        let bearer = caller(&auth, &token).await.unwrap();
        assert!(
            bearer.restrictions().allows_priority(round)
                && !bearer.restrictions().allows_priority(round + 1)
        );
    }
}
