//! A member of etcd with scripted replies, for tests.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, Uri},
};
use doorman_core::etcd::{EtcdCall, ReplyHeader};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
};

use super::{EtcdClient, EtcdSettings};

/// The replies of a member to all calls of a path, as status and JSON.
type Answer = dyn Fn(&str) -> (u16, String) + Send + Sync;

/// A scripted member.
#[derive(Clone)]
pub(crate) struct Member {
    url: String,
    script: Arc<Mutex<Script>>,
}

struct Script {
    answer: Arc<Answer>,
    /// The paths of the calls, with their bodies.
    calls: Vec<(String, String)>,
}

impl Member {
    /// Listens on a free port, and answers calls by their path.
    pub(crate) async fn start(
        answer: impl Fn(&str) -> (u16, String) + Send + Sync + 'static,
    ) -> Self {
        let script = Arc::new(Mutex::new(Script {
            answer: Arc::new(answer),
            calls: Vec::new(),
        }));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new()
            .fallback(reply)
            .with_state(Arc::clone(&script));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, script }
    }

    /// A member that replies to reads with this header: the key that is read has its newest value,
    /// or does not exist.
    pub(crate) async fn with_header(header: ReplyHeader) -> Self {
        Self::start(move |path| (200, reply_to(path, header))).await
    }

    /// An address where connections are never answered.
    pub(crate) fn silent() -> (Self, std::net::TcpListener) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let script = Arc::new(Mutex::new(Script {
            answer: Arc::new(|_| (500, String::new())),
            calls: Vec::new(),
        }));
        (Self { url, script }, listener)
    }

    /// A balancer: its first connection leads to this member, the next ones to another.
    pub(crate) async fn before(&self, next: &Self) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let address = |url: &str| url.replace("http://", "");
        let (mut member, next) = (address(&self.url), address(&next.url));
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let mut server = TcpStream::connect(&member).await.unwrap();
                tokio::spawn(async move { copy_bidirectional(&mut client, &mut server).await });
                member.clone_from(&next);
            }
        });
        let script = Arc::clone(&self.script);
        Self { url, script }
    }

    /// The calls up to now.
    pub(crate) fn calls(&self) -> Vec<(String, String)> {
        self.script.lock().unwrap().calls.clone()
    }

    /// Changes the text of successful replies.
    pub(crate) fn edit(&self, edit: impl Fn(String) -> String + Send + Sync + 'static) {
        let before = Arc::clone(&self.script.lock().unwrap().answer);
        self.answer(move |path| {
            let (status, text) = before(path);
            (status, edit(text))
        });
    }

    /// Replaces the replies.
    pub(crate) fn answer(&self, answer: impl Fn(&str) -> (u16, String) + Send + Sync + 'static) {
        self.script.lock().unwrap().answer = Arc::new(answer);
    }
}

async fn reply(
    State(script): State<Arc<Mutex<Script>>>,
    uri: Uri,
    body: String,
) -> (StatusCode, String) {
    let mut script = script.lock().unwrap();
    script.calls.push((uri.path().to_owned(), body));
    let (status, body) = (script.answer)(uri.path());
    (StatusCode::from_u16(status).unwrap(), body)
}

/// A successful reply that changes nothing. A transaction reads one key, which does not exist.
pub(crate) fn reply_to(path: &str, header: ReplyHeader) -> String {
    let ReplyHeader {
        cluster,
        raft_term,
        revision,
    } = header;
    let header = format!(
        r#""header":{{"cluster_id":"{cluster}","raft_term":"{raft_term}","revision":"{revision}"}}"#
    );
    match path {
        "/v3/kv/txn" => format!(r#"{{{header},"responses":[{{"response_range":{{}}}}]}}"#),
        "/v3/lease/keepalive" => format!(r#"{{"result":{{{header},"ID":"1","TTL":"5"}}}}"#),
        _ => format!(r#"{{{header},"ID":"1","TTL":"5","grantedTTL":"5"}}"#),
    }
}

/// The reply of a member without space for writes.
pub(crate) fn no_space() -> (u16, String) {
    let message = "etcdserver: mvcc: database space exceeded";
    let body = format!(r#"{{"error":"{message}","message":"{message}","code":8}}"#);
    (429, body)
}

/// A client of a member that is out of space, which has noticed that.
pub(crate) async fn client_without_space() -> EtcdClient {
    let member = Member::start(|_| no_space()).await;
    let client = client(&[&member]);
    let grant = EtcdCall::GrantLease { ttl: 5 };
    let refused = client.call(grant, Duration::from_secs(10)).await;
    refused.unwrap_err();
    client
}

/// A client of these members, which begins with the first.
pub(crate) fn client(members: &[&Member]) -> EtcdClient {
    let settings = EtcdSettings {
        endpoints: members.iter().map(|it| it.url.parse().unwrap()).collect(),
        user: None,
        ca_file: None,
        certificate: None,
    };
    let client = EtcdClient::new(&settings).unwrap();
    client.begin_with(0);
    client
}
