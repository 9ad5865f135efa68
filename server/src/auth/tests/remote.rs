//! Keys at an address: when they are asked for, and what stays when they cannot be had.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use axum::{Router, http::StatusCode, routing::get};
use tokio::{net::TcpListener, task::JoinSet};

use super::*;
use crate::auth::remote::PAUSE;

/// What happens elsewhere.
type Event = Box<dyn FnOnce() + Send>;

/// A publisher of keys.
#[derive(Clone, Default)]
struct Publisher {
    says: Arc<Mutex<Option<String>>>,
    asked: Arc<AtomicUsize>,
    /// What it was asked with last.
    headers: Arc<Mutex<HeaderMap>>,
    /// Happens while it is asked, once.
    meanwhile: Arc<Mutex<Option<Event>>>,
}

impl Publisher {
    /// Starts one; its tasks end with the test's runtime.
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

    /// A header that it was asked with last.
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

/// Time goes on, though nothing waits for it: real sockets are in use.
async fn later(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

#[tokio::test]
async fn a_new_key_is_learned_by_asking_once_however_many_need_it() {
    let publisher = Publisher::default();
    let (old, new) = (Issuer::rs256().naming("old"), Issuer::es256().naming("new"));
    publisher.publish(&[&old]);
    let auth = auth(&publisher).await;
    let alice = claims(&json!({}));
    assert!(counts(&auth, &old.sign(&alice)).await);
    assert_eq!(publisher.asked(), 1);

    publisher.publish(&[&old, &new]);
    later(PAUSE).await;
    let token = new.sign(&alice);
    let mut many = JoinSet::new();
    for _ in 0..20 {
        let (auth, token) = (Arc::clone(&auth), token.clone());
        many.spawn(async move { counts(&auth, &token).await });
    }
    assert!(many.join_all().await.into_iter().all(|counts| counts));
    assert_eq!(publisher.asked(), 2);
}

#[tokio::test]
async fn a_file_that_changes_while_the_issuer_is_asked_costs_no_key() {
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
    *publisher.meanwhile.lock().unwrap() = Some(Box::new(move || changing.learn(0, other.into())));

    assert!(counts(&auth, &issuer.sign(&claims(&json!({})))).await);
    let own = claims(&json!({"iss": "doorman"}));
    assert!(counts(&auth, &Issuer::of_secret(other).sign(&own)).await);
    assert_eq!(publisher.asked(), 1);
}

#[tokio::test]
async fn tokens_with_made_up_keys_are_no_load_on_the_issuer() {
    let publisher = Publisher::default();
    let known = Issuer::rs256().naming("known");
    publisher.publish(&[&known]);
    let auth = auth(&publisher).await;
    for number in 0..50 {
        let made_up = Issuer::rs256().naming(&number.to_string());
        assert!(!counts(&auth, &made_up.sign(&claims(&json!({})))).await);
    }
    assert_eq!(publisher.asked(), 1);
    assert!(counts(&auth, &known.sign(&claims(&json!({})))).await);
}

#[tokio::test]
async fn what_was_published_last_stays_while_the_issuer_is_away_or_talks_nonsense() {
    let publisher = Publisher::default();
    let known = Issuer::rs256().naming("known");
    publisher.publish(&[&known]);
    let auth = auth(&publisher).await;
    let token = known.sign(&claims(&json!({})));
    assert!(counts(&auth, &token).await);
    let other = Issuer::rs256().naming("other");
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
        later(PAUSE).await;
        let asked = publisher.asked();
        assert!(!counts(&auth, &other.sign(&claims(&json!({})))).await);
        assert_eq!(publisher.asked(), asked + 1);
        assert!(counts(&auth, &token).await);
    }
}

#[tokio::test]
async fn until_the_keys_have_come_nobody_is_told_that_a_token_is_bad() {
    let publisher = Publisher::default();
    let auth = auth(&publisher).await;
    let issuer = Issuer::rs256();
    let token = issuer.sign(&claims(&json!({})));
    assert_eq!(
        caller(&auth, &token).await.unwrap_err(),
        Unauthenticated::KeysUnavailable
    );
    publisher.publish(&[&issuer]);
    later(PAUSE).await;
    assert!(counts(&auth, &token).await);
}

#[tokio::test]
async fn keys_that_the_issuer_takes_back_count_no_more_though_it_has_no_others() {
    let publisher = Publisher::default();
    let (known, other) = (
        Issuer::rs256().naming("known"),
        Issuer::rs256().naming("other"),
    );
    publisher.publish(&[]);
    let auth = auth(&publisher).await;
    let alice = claims(&json!({}));
    let token = known.sign(&alice);
    // None to begin with are no answer yet.
    assert_eq!(
        caller(&auth, &token).await.unwrap_err(),
        Unauthenticated::KeysUnavailable
    );
    publisher.publish(&[&known]);
    later(PAUSE).await;
    assert!(counts(&auth, &token).await);

    publisher.publish(&[]);
    later(PAUSE).await;
    assert!(
        !counts(&auth, &other.sign(&alice)).await,
        "it is asked by that"
    );
    assert_eq!(
        caller(&auth, &token).await.unwrap_err(),
        Unauthenticated::Invalid
    );
    publisher.publish(&[&known]);
    later(PAUSE).await;
    assert!(counts(&auth, &token).await);
}

#[tokio::test]
async fn keys_that_the_issuer_takes_back_count_no_more_though_it_has_others_that_are_of_no_use() {
    let publisher = Publisher::default();
    let known = Issuer::rs256().naming("known");
    publisher.publish(&[&known]);
    let auth = auth(&publisher).await;
    let alice = claims(&json!({}));
    let token = known.sign(&alice);
    assert!(counts(&auth, &token).await);

    // A key for encryption is none for signatures: RFC 7517, section 4.2.
    let mut other = Issuer::rs256().naming("other").jwk();
    other["use"] = "enc".into();
    publisher.say(Some(json!({"keys": [other]}).to_string()));
    later(PAUSE).await;
    let unknown = Issuer::rs256().naming("unknown").sign(&alice);
    assert!(!counts(&auth, &unknown).await, "it is asked by that");
    assert_eq!(
        caller(&auth, &token).await.unwrap_err(),
        Unauthenticated::Invalid
    );
}

#[tokio::test]
async fn an_issuer_that_wants_a_token_is_asked_with_the_one_that_is_in_the_file_then() {
    let publisher = Publisher::default();
    let issuer = Issuer::rs256().naming("known");
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
    assert!(counts(&auth, &issuer.sign(&alice)).await);
    assert_eq!(publisher.heard("authorization").unwrap(), "Bearer first");

    let made_up = Issuer::rs256().naming("made up").sign(&alice);
    for (text, asked, heard) in [
        ("second", 2, "Bearer second"),
        // It is not asked without one; the keys of before stay.
        ("", 2, "Bearer second"),
        ("third", 3, "Bearer third"),
    ] {
        home.write("token", text);
        later(PAUSE).await;
        assert!(!counts(&auth, &made_up).await);
        assert_eq!(publisher.asked(), asked, "{text}");
        assert_eq!(publisher.heard("authorization").unwrap(), heard);
        assert!(counts(&auth, &issuer.sign(&alice)).await);
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
    assert!(counts(&auth, &issuer.sign(&claims(&json!({})))).await);
    assert_eq!(publisher.heard("traceparent").unwrap(), "a");
    assert_eq!(publisher.heard("tracestate").unwrap(), "b");
}
