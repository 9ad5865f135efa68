//! Files that change while the server runs.

use tokio::time::sleep;

use super::*;

const BOUND: &str = "grants:\n- {iss: '*', sub: alice, scope: [capacity], resources: db}\n";
const WHOLE: &str = "grants:\n- iss: '*'\n  sub: alice\n  scope: [capacity]\n  resources: cache\n";

/// Whether Alice's token is good for each of the two resources.
async fn alice(auth: &Auth) -> (bool, bool) {
    let token = Issuer::rs256().sign(&claims(&json!({})));
    let caller = caller(auth, &token).await.unwrap();
    let bounds = caller.bounds();
    (bounds.allow_resource("db"), bounds.allow_resource("cache"))
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
