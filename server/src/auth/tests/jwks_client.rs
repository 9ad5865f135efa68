//! Keys at a URL: when they are fetched, and which stay active when that fails.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use axum::{Router, http::StatusCode, routing::get};
use doorman_jwt::MIN_INTERVAL;
use tokio::{
    io::AsyncReadExt,
    net::TcpListener,
    task::{JoinSet, spawn_blocking},
};

use super::*;

type Event = Box<dyn FnOnce() + Send>;

/// An HTTP server that publishes keys.
#[derive(Clone, Default)]
struct Publisher {
    says: Arc<Mutex<Option<String>>>,
    asked: Arc<AtomicUsize>,
    /// Headers of the last request.
    headers: Arc<Mutex<HeaderMap>>,
    /// Runs during the next request.
    meanwhile: Arc<Mutex<Option<Event>>>,
}

impl Publisher {
    /// Its tasks end with the test's runtime.
    async fn start(self) -> JwksSource {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/jwks", listener.local_addr().unwrap());
        let says = get(move |headers: HeaderMap| async move {
            self.asked.fetch_add(1, SeqCst);
            *self.headers.lock().unwrap() = headers;
            if let Some(event) = self.meanwhile.lock().unwrap().take() {
                event();
            }
            self.says
                .lock()
                .unwrap()
                .clone()
                .ok_or(StatusCode::BAD_GATEWAY)
        });
        tokio::spawn(axum::serve(listener, Router::new().route("/jwks", says)).into_future());
        JwksSource::Url(url)
    }

    fn publish(&self, keys: &[&Issuer]) {
        let keys: Vec<_> = keys.iter().map(|issuer| issuer.jwk()).collect();
        self.say(Some(json!({"keys": keys}).to_string()));
    }

    fn say(&self, text: Option<String>) {
        *self.says.lock().unwrap() = text;
    }

    /// A header of the last request.
    fn heard(&self, name: &str) -> Option<String> {
        let headers = self.headers.lock().unwrap();
        Some(headers.get(name)?.to_str().unwrap().to_owned())
    }

    fn asked(&self) -> usize {
        self.asked.load(SeqCst)
    }
}

async fn auth(publisher: &Publisher) -> Arc<Auth> {
    let jwks = publisher.clone().start().await;
    Arc::new(
        Auth::load(AuthSettings {
            jwks: Some(jwks),
            issuer: Some(ISSUER.to_owned()),
            ..AuthSettings::default()
        })
        .unwrap(),
    )
}

/// Advances time although real sockets are in use.
async fn later(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

#[tokio::test]
async fn concurrent_callers_share_one_fetch_of_a_new_key() {
    let publisher = Publisher::default();
    let (old, new) = (
        Issuer::rs256().with_kid("old"),
        Issuer::es256().with_kid("new"),
    );
    publisher.publish(&[&old]);
    let auth = auth(&publisher).await;
    let alice = claims(&json!({}));
    assert!(is_valid(&auth, &old.sign(&alice)).await);
    assert_eq!(publisher.asked(), 1);

    publisher.publish(&[&old, &new]);
    later(MIN_INTERVAL).await;
    let token = new.sign(&alice);
    let mut many = JoinSet::new();
    for _ in 0..20 {
        let (auth, token) = (Arc::clone(&auth), token.clone());
        many.spawn(async move { is_valid(&auth, &token).await });
    }
    assert!(many.join_all().await.into_iter().all(|valid| valid));
    assert_eq!(publisher.asked(), 2);
}

#[tokio::test]
async fn file_change_during_a_fetch_loses_no_key() {
    let publisher = Publisher::default();
    let issuer = Issuer::rs256();
    publisher.publish(&[&issuer]);
    let home = Home::new().secret(SECRET);
    let mut settings = home.settings.clone();
    settings.jwks = Some(publisher.clone().start().await);
    settings.issuer = Some(ISSUER.to_owned());
    let auth = Arc::new(Auth::load(settings).unwrap());
    let other = "another secret of thirty-two bytes";
    let changing = Arc::clone(&auth);
    *publisher.meanwhile.lock().unwrap() = Some(Box::new(move || changing.update(0, other.into())));

    assert!(is_valid(&auth, &issuer.sign(&claims(&json!({})))).await);
    let own = claims(&json!({"iss": "doorman"}));
    assert!(is_valid(&auth, &Issuer::of_secret(other).sign(&own)).await);
    assert_eq!(publisher.asked(), 1);
}

#[tokio::test]
async fn invented_key_ids_cause_no_load_on_the_issuer() {
    let publisher = Publisher::default();
    let known = Issuer::rs256().with_kid("known");
    publisher.publish(&[&known]);
    let auth = auth(&publisher).await;
    for number in 0..50 {
        let made_up = Issuer::rs256().with_kid(&number.to_string());
        assert!(!is_valid(&auth, &made_up.sign(&claims(&json!({})))).await);
    }
    assert_eq!(publisher.asked(), 1);
    assert!(is_valid(&auth, &known.sign(&claims(&json!({})))).await);
}

#[tokio::test]
async fn last_keys_stay_active_while_the_issuer_fails() {
    let publisher = Publisher::default();
    let known = Issuer::rs256().with_kid("known");
    publisher.publish(&[&known]);
    let auth = auth(&publisher).await;
    let token = known.sign(&claims(&json!({})));
    assert!(is_valid(&auth, &token).await);
    let other = Issuer::rs256().with_kid("other");
    for nonsense in [
        None,
        Some(String::new()),
        Some(r#"{"keys":5}"#.to_owned()),
        Some(format!(
            r#"{{"keys":[],"padding":"{}"}}"#,
            "x".repeat(2 << 20)
        )),
    ] {
        publisher.say(nonsense);
        later(MIN_INTERVAL).await;
        let asked = publisher.asked();
        assert!(!is_valid(&auth, &other.sign(&claims(&json!({})))).await);
        assert_eq!(publisher.asked(), asked + 1);
        assert!(is_valid(&auth, &token).await);
    }
}

#[tokio::test]
async fn no_token_is_invalid_before_keys_are_fetched() {
    let publisher = Publisher::default();
    let auth = auth(&publisher).await;
    let issuer = Issuer::rs256();
    let token = issuer.sign(&claims(&json!({})));
    assert_eq!(
        caller(&auth, &token).await.unwrap_err(),
        Unauthenticated::KeysUnavailable
    );
    publisher.publish(&[&issuer]);
    later(MIN_INTERVAL).await;
    assert!(is_valid(&auth, &token).await);
}

#[tokio::test]
async fn empty_set_revokes_all_keys() {
    let publisher = Publisher::default();
    let (known, other) = (
        Issuer::rs256().with_kid("known"),
        Issuer::rs256().with_kid("other"),
    );
    publisher.publish(&[]);
    let auth = auth(&publisher).await;
    let alice = claims(&json!({}));
    let token = known.sign(&alice);
    // An empty first set is invalid.
    assert_eq!(
        caller(&auth, &token).await.unwrap_err(),
        Unauthenticated::KeysUnavailable
    );
    publisher.publish(&[&known]);
    later(MIN_INTERVAL).await;
    assert!(is_valid(&auth, &token).await);

    publisher.publish(&[]);
    later(MIN_INTERVAL).await;
    assert!(
        !is_valid(&auth, &other.sign(&alice)).await,
        "causes a fetch"
    );
    assert_eq!(
        caller(&auth, &token).await.unwrap_err(),
        Unauthenticated::Invalid(FailedCheck::UnknownKey)
    );
    publisher.publish(&[&known]);
    later(MIN_INTERVAL).await;
    assert!(is_valid(&auth, &token).await);
}

#[tokio::test]
async fn set_of_useless_keys_revokes_all_keys() {
    let publisher = Publisher::default();
    let known = Issuer::rs256().with_kid("known");
    publisher.publish(&[&known]);
    let auth = auth(&publisher).await;
    let alice = claims(&json!({}));
    let token = known.sign(&alice);
    assert!(is_valid(&auth, &token).await);

    // A key for encryption cannot verify signatures (RFC 7517, section 4.2).
    let mut other = Issuer::rs256().with_kid("other").jwk();
    other["use"] = "enc".into();
    publisher.say(Some(json!({"keys": [other]}).to_string()));
    later(MIN_INTERVAL).await;
    let unknown = Issuer::rs256().with_kid("unknown").sign(&alice);
    assert!(!is_valid(&auth, &unknown).await, "causes a fetch");
    assert_eq!(
        caller(&auth, &token).await.unwrap_err(),
        Unauthenticated::Invalid(FailedCheck::UnknownKey)
    );
}

#[tokio::test]
async fn fetch_sends_the_current_token_of_the_file() {
    let publisher = Publisher::default();
    let issuer = Issuer::rs256().with_kid("known");
    publisher.publish(&[&issuer]);
    let home = Home::new();
    let file = home.write("token", " first\n");
    let settings = AuthSettings {
        jwks: Some(publisher.clone().start().await),
        issuer: Some(ISSUER.to_owned()),
        jwks_token_file: Some(file.clone()),
        ..AuthSettings::default()
    };
    let auth = Auth::load(settings.clone()).unwrap();
    let alice = claims(&json!({}));
    assert!(is_valid(&auth, &issuer.sign(&alice)).await);
    assert_eq!(publisher.heard("authorization").unwrap(), "Bearer first");

    let made_up = Issuer::rs256().with_kid("made up").sign(&alice);
    for (text, asked, heard) in [
        ("second", 2, "Bearer second"),
        // No request without a token; the previous keys stay active.
        ("", 2, "Bearer second"),
        ("third", 3, "Bearer third"),
    ] {
        home.write("token", text);
        later(MIN_INTERVAL).await;
        assert!(!is_valid(&auth, &made_up).await);
        assert_eq!(publisher.asked(), asked, "{text}");
        assert_eq!(publisher.heard("authorization").unwrap(), heard);
        assert!(is_valid(&auth, &issuer.sign(&alice)).await);
    }

    for wrong in ["", "two\nlines"] {
        home.write("token", wrong);
        let error = Auth::load(settings.clone()).unwrap_err().to_string();
        assert!(error.starts_with("--auth-jwks-token-file "), "{error}");
        assert!(!error.contains("lines"), "{error}");
    }
    let mut of_a_file = home.jwks(&[issuer.jwk()]).settings.clone();
    of_a_file.jwks_token_file = Some(file);
    let error = Auth::load(of_a_file).unwrap_err().to_string();
    assert!(error.contains("address"), "{error}");
}

#[tokio::test]
async fn key_requests_carry_the_outgoing_headers() {
    fn trace() -> HeaderMap {
        [("traceparent", "a"), ("tracestate", "b")]
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
            .into_iter()
            .collect()
    }

    let publisher = Publisher::default();
    let issuer = Issuer::rs256();
    publisher.publish(&[&issuer]);
    let auth = Arc::into_inner(auth(&publisher).await).unwrap();
    let auth = auth.with_outgoing_headers(trace);
    assert!(is_valid(&auth, &issuer.sign(&claims(&json!({})))).await);
    assert_eq!(publisher.heard("traceparent").unwrap(), "a");
    assert_eq!(publisher.heard("tracestate").unwrap(), "b");
}

#[tokio::test]
async fn keys_are_fetched_through_a_proxy() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let auth = Auth::load(AuthSettings {
        jwks: Some("https://issuer.invalid/jwks".parse().unwrap()),
        jwks_proxy: Some(format!("http://{}", listener.local_addr().unwrap())),
        issuer: Some(ISSUER.to_owned()),
        ..AuthSettings::default()
    });
    let (auth, token) = (
        Arc::new(auth.unwrap()),
        Issuer::rs256().sign(&claims(&json!({}))),
    );
    let asked = tokio::spawn(async move { is_valid(&auth, &token).await });
    assert_eq!(
        first_line(&listener).await,
        "CONNECT issuer.invalid:443 HTTP/1.1"
    );
    drop(listener);
    assert!(!asked.await.unwrap());
}

/// Accepts a connection, and returns the beginning of its request.
async fn first_line(listener: &TcpListener) -> String {
    let (mut connection, _) = listener.accept().await.unwrap();
    let mut head = [0; 64];
    let length = connection.read(&mut head).await.unwrap();
    let head = String::from_utf8_lossy(&head[..length]).into_owned();
    head.lines().next().unwrap().to_owned()
}

#[test]
fn invalid_proxy_is_rejected_without_its_password() {
    let mut home = Home::new();
    home.settings.issuer = Some(ISSUER.to_owned());
    home.settings.jwks = Some("https://issuer.invalid/jwks".parse().unwrap());
    home.settings.jwks_proxy = Some("user:hidden@proxy".to_owned());
    let shown = home.load().unwrap_err().to_string();
    assert_eq!(
        shown,
        "--auth-jwks-proxy: must be the URL of a proxy, like http://proxy.example:3128"
    );
    for (jwks, because) in [
        ("keys.json", "requires an --auth-jwks that is an address"),
        (
            "http://127.0.0.1/jwks",
            "requires an --auth-jwks with https://",
        ),
    ] {
        home.settings.jwks = Some(jwks.parse().unwrap());
        let shown = home.load().unwrap_err().to_string();
        assert_eq!(shown, format!("--auth-jwks-proxy: {because}"));
    }
}

/// Environment variables are those of a process, so another one reads them.
#[tokio::test]
async fn environment_names_the_proxy() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = format!("http://{}", listener.local_addr().unwrap());
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "auth::tests::jwks_client::fetches_in_a_child",
            "--ignored",
        ])
        .env("HTTPS_PROXY", proxy)
        .env_remove("https_proxy")
        .env_remove("NO_PROXY")
        .env_remove("no_proxy")
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut ended = spawn_blocking(move || child.wait());
    let line = tokio::select! {
        line = first_line(&listener) => line,
        ended = &mut ended => panic!("it asks no proxy: {ended:?}"),
    };
    assert_eq!(line, "CONNECT issuer.invalid:443 HTTP/1.1");
    drop(listener);
    assert!(ended.await.unwrap().unwrap().success());
}

#[tokio::test]
#[ignore = "run by environment_names_the_proxy"]
async fn fetches_in_a_child() {
    let auth = Auth::load(AuthSettings {
        jwks: Some("https://issuer.invalid/jwks".parse().unwrap()),
        issuer: Some(ISSUER.to_owned()),
        ..AuthSettings::default()
    });
    let token = Issuer::rs256().sign(&claims(&json!({})));
    assert!(!is_valid(&Arc::new(auth.unwrap()), &token).await);
}
