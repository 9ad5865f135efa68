//! Keys that an issuer rotates.

use std::fs;

use jsonwebtoken::jwk::Jwk;
use tempfile::TempDir;
use tokio::time::sleep;

use super::*;

/// Longer than the shortest time between two reads of a key set.
const NEXT_READ: Duration = Duration::from_secs(11);

fn es256() -> Issuer {
    install_provider();
    Issuer {
        algorithm: Algorithm::ES256,
        key: EncodingKey::from_ec_pem(include_bytes!("../test_keys/ec.pem")).unwrap(),
    }
}

fn rs256() -> Issuer {
    install_provider();
    Issuer::rs256()
}

fn jwk(issuer: &Issuer, id: &str) -> Value {
    let mut jwk = Jwk::from_encoding_key(&issuer.key, issuer.algorithm).unwrap();
    jwk.common.key_id = Some(id.to_owned());
    serde_json::to_value(jwk).unwrap()
}

/// A valid token that names its key.
fn token(issuer: &Issuer, id: &str) -> String {
    let mut header = Header::new(issuer.algorithm);
    header.kid = Some(id.to_owned());
    encode(&header, &claims(&json!({})), &issuer.key).unwrap()
}

fn set(keys: &[Value]) -> String {
    json!({"keys": keys}).to_string()
}

struct KeyFile(TempDir);

impl KeyFile {
    fn new(text: &str) -> Self {
        let file = Self(TempDir::new().unwrap());
        file.write(text);
        file
    }

    fn jwks(&self) -> Jwks {
        Jwks::file(self.0.path().join("jwks.json"))
    }

    fn write(&self, text: &str) {
        fs::write(self.0.path().join("jwks.json"), text).unwrap();
    }

    async fn verifier(&self) -> Result<JwtVerifier, InvalidJwks> {
        JwtVerifier::jwks(self.jwks(), ISSUER, "orders").await
    }
}

#[tokio::test(start_paused = true)]
async fn keys_of_a_changed_file_replace_the_former() {
    let (old, new) = (token(&rs256(), "old"), token(&es256(), "new"));
    let file = KeyFile::new(&set(&[jwk(&rs256(), "old")]));
    let verifier = file.verifier().await.unwrap();
    check_valid(&verifier, &old);
    check_invalid(&verifier, "unknown key", &new);

    file.write(&set(&[jwk(&rs256(), "old"), jwk(&es256(), "new")]));
    sleep(NEXT_READ).await;
    check_valid(&verifier, &old);
    check_valid(&verifier, &new);

    file.write(&set(&[jwk(&es256(), "new")]));
    sleep(NEXT_READ).await;
    check_invalid(&verifier, "revoked key, cached token", &old);
    check_valid(&verifier, &new);
}

#[tokio::test(start_paused = true)]
async fn invalid_file_keeps_the_former_keys() {
    let good = token(&rs256(), "a");
    let file = KeyFile::new(&set(&[jwk(&rs256(), "a")]));
    let verifier = file.verifier().await.unwrap();
    for broken in [
        "",
        "{}",
        "nonsense",
        &set(&[]),
        &set(&[json!({"kty": "x"})]),
    ] {
        file.write(broken);
        sleep(NEXT_READ).await;
        check_valid(&verifier, &good);
    }
}

#[tokio::test(start_paused = true)]
async fn key_determines_the_algorithm() {
    let file = KeyFile::new(&set(&[jwk(&rs256(), "a"), jwk(&es256(), "b")]));
    let verifier = file.verifier().await.unwrap();
    let public = include_str!("../test_keys/rsa.pub.pem");
    let forger = Issuer {
        algorithm: Algorithm::HS256,
        key: EncodingKey::from_secret(public.as_bytes()),
    };
    for id in ["a", "b", "c"] {
        check_invalid(&verifier, id, &token(&forger, id));
    }
    check_invalid(&verifier, "other key's id", &token(&es256(), "a"));
    let other_algorithm = Issuer {
        algorithm: Algorithm::PS256,
        ..rs256()
    };
    check_invalid(&verifier, "PS256", &token(&other_algorithm, "a"));
    check_valid(&verifier, &rs256().sign(&claims(&json!({}))));
    let strict = verifier.leeway(Duration::ZERO);
    let late = claims(&json!({"exp": unix_now() - 5}));
    check_invalid(&strict, "leeway", &rs256().sign(&late));
}

#[tokio::test(start_paused = true)]
async fn secrets_and_other_keys_of_a_set_are_skipped() {
    let mut other_use = jwk(&rs256(), "a");
    other_use["use"] = "enc".into();
    let mut other_algorithm = jwk(&rs256(), "b");
    other_algorithm["alg"] = "RS512".into();
    let secret = json!({"kty": "oct", "k": "c2VjcmV0", "kid": "c"});
    let keys = [other_use, other_algorithm, secret, jwk(&es256(), "d")];
    let file = KeyFile::new(&set(&keys));
    let verifier = file.verifier().await.unwrap();
    check_valid(&verifier, &token(&es256(), "d"));
    check_invalid(&verifier, "none is left", &token(&rs256(), "a"));
    check_invalid(&verifier, "none is left", &token(&rs256(), "b"));
}

#[tokio::test]
async fn unusable_key_sets_are_rejected() {
    let error = async |jwks: Jwks| {
        let verifier = JwtVerifier::jwks(jwks, ISSUER, "orders").await;
        verifier.unwrap_err().to_string()
    };
    let missing = error(Jwks::file("/missing/jwks.json")).await;
    assert!(
        missing.starts_with("key set /missing/jwks.json: "),
        "{missing}"
    );
    let many: Vec<_> = (0..65).map(|_| jwk(&rs256(), "a")).collect();
    for (text, reason) in [
        ("{}", "JSON Web Key Set"),
        (&*set(&[]), "has no public key"),
        (&set(&many), "at most 64 keys, not 65"),
        (&"x".repeat(1024 * 1024 + 1), "larger than 1 MiB"),
    ] {
        let error = error(KeyFile::new(text).jwks()).await;
        assert!(error.contains(reason), "{error}");
    }
    #[cfg(feature = "reqwest")]
    for url in ["issuer.example", "ftp://a/jwks", "http://me:secret@a/jwks"] {
        let error = error(Jwks::url(url)).await;
        assert!(error.contains("must be a URL like"), "{error}");
        assert!(!error.contains("secret"), "{error}");
    }
}

#[cfg(all(feature = "axum", feature = "reqwest"))]
mod url {
    use std::{
        future::IntoFuture,
        sync::{
            Mutex,
            atomic::{AtomicUsize, Ordering::SeqCst},
        },
    };

    use axum::{Router, http::StatusCode, routing::get};
    use tokio::{net::TcpListener, sync::Notify};

    use super::*;

    /// A server of keys.
    #[derive(Default)]
    struct Publisher {
        /// `None` fails.
        text: Mutex<Option<String>>,
        requests: AtomicUsize,
        requested: Notify,
    }

    impl Publisher {
        async fn start(self: Arc<Self>) -> JwtVerifier {
            let publisher = Arc::clone(&self);
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url = format!("http://{}/jwks", listener.local_addr().unwrap());
            let answer = get(move || async move {
                self.requests.fetch_add(1, SeqCst);
                let text = self.text.lock().unwrap().clone();
                self.requested.notify_one();
                text.ok_or(StatusCode::BAD_GATEWAY)
            });
            let app = Router::new().route("/jwks", answer);
            tokio::spawn(axum::serve(listener, app).into_future());
            let verifier = JwtVerifier::jwks(Jwks::url(url), ISSUER, "orders").await;
            publisher.requested.notified().await;
            verifier.unwrap()
        }

        fn publish(&self, text: Option<String>) {
            *self.text.lock().unwrap() = text;
        }

        /// Lets time pass until the keys are requested again. Small steps, because a request must
        /// not time out.
        async fn next_request(&self) {
            let step = async || {
                for _ in 0..20 {
                    tokio::task::yield_now().await;
                }
                tokio::time::pause();
                tokio::time::advance(Duration::from_millis(100)).await;
                tokio::time::resume();
            };
            loop {
                tokio::select! {
                    biased;
                    () = self.requested.notified() => return,
                    () = step() => {}
                }
            }
        }
    }

    /// Waits until the keys are in use. Reading them is not observable otherwise.
    async fn until_valid(verifier: &JwtVerifier, token: &str) {
        while sub_of(verifier, &format!("Bearer {token}")).1.is_err() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn unknown_key_is_fetched_at_a_bounded_pace() {
        let publisher = Arc::new(Publisher::default());
        publisher.publish(Some(set(&[jwk(&rs256(), "old")])));
        let verifier = Arc::clone(&publisher).start().await;
        check_valid(&verifier, &token(&rs256(), "old"));
        publisher.publish(Some(set(&[jwk(&es256(), "new")])));
        for number in 0..100 {
            let invented = token(&es256(), &format!("invented-{number}"));
            check_invalid(&verifier, "unknown key", &invented);
        }
        assert_eq!(publisher.requests.load(SeqCst), 1);
        publisher.next_request().await;
        until_valid(&verifier, &token(&es256(), "new")).await;
        check_invalid(&verifier, "revoked", &token(&rs256(), "old"));
        assert_eq!(publisher.requests.load(SeqCst), 2);
    }

    #[tokio::test]
    async fn unreachable_issuer_does_not_stop_the_start() {
        let publisher = Arc::new(Publisher::default());
        let verifier = Arc::clone(&publisher).start().await;
        check_invalid(&verifier, "no keys", &token(&rs256(), "a"));
        publisher.publish(Some(set(&[jwk(&rs256(), "a")])));
        publisher.next_request().await;
        until_valid(&verifier, &token(&rs256(), "a")).await;
    }

    #[tokio::test]
    async fn failing_issuer_keeps_the_keys_and_an_empty_set_revokes_them() {
        let publisher = Arc::new(Publisher::default());
        publisher.publish(Some(set(&[jwk(&rs256(), "a")])));
        let verifier = Arc::clone(&publisher).start().await;
        let good = token(&rs256(), "a");
        publisher.publish(None);
        check_invalid(&verifier, "unknown key", &token(&es256(), "b"));
        publisher.next_request().await;
        check_valid(&verifier, &good);

        publisher.publish(Some(set(&[])));
        publisher.next_request().await;
        while sub_of(&verifier, &format!("Bearer {good}")).1.is_ok() {
            tokio::task::yield_now().await;
        }
    }
}
