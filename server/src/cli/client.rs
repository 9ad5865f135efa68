//! The client's side of the API, for commands that ask a running server.

use std::{
    error::Error,
    future::Future,
    path::{Path, PathBuf},
    time::Duration,
};

use bytes::Bytes;
use doorman_openapi::{Problem, SpanId, TraceContext, TraceId, headers};
use doorman_server::BaseUrl;
use reqwest::{
    ClientBuilder, Method, RequestBuilder, StatusCode,
    header::{self, HeaderMap, HeaderValue},
};
use serde::{Serialize, de::DeserializeOwned};

use super::{
    failure::Failure,
    trust::{self, TrustArguments},
};

/// The variable with a token. There is no flag for one: others on the machine could read it.
const TOKEN: &str = "DOORMAN_TOKEN";

/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// How often a server that has too much to do is asked again.
const MOST_WAITS: usize = 3;

/// How long it is waited for at a time.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// Where the server is when nothing is said.
const DEFAULT_SERVER: &str = "http://127.0.0.1:7300";

/// Where the server is.
#[derive(Debug, clap::Args)]
pub(super) struct ServerArgument {
    /// The address of the server. Absent: http://127.0.0.1:7300
    #[arg(long, env = "DOORMAN_SERVER", value_name = "URL")]
    server: Option<BaseUrl>,
    /// A file with a token, for a server that asks for one. Absent: the token in DOORMAN_TOKEN, if there is any
    #[arg(long, env = "DOORMAN_TOKEN_FILE", value_name = "FILE")]
    token_file: Option<PathBuf>,
    #[command(flatten)]
    trust: TrustArguments,
}

impl ServerArgument {
    /// Whether it says where the server is.
    pub(super) fn is_named(&self) -> bool {
        self.server.is_some()
    }
}

/// A connection to a server.
#[derive(Debug)]
pub(super) struct Client {
    http: reqwest::Client,
    server: BaseUrl,
    /// Marked as secret, so that it does not show in debug output.
    authorization: Option<HeaderValue>,
}

impl Client {
    pub(super) fn new(argument: ServerArgument) -> Result<Self, Failure> {
        let ServerArgument {
            server,
            token_file,
            trust,
        } = argument;
        let server = server.map_or_else(|| DEFAULT_SERVER.parse(), Ok)?;
        let authorization = token(token_file.as_deref())?
            .map(|it| bearer(&it))
            .transpose()?;
        let http = if server.is_encrypted() {
            trust.apply(builder())?
        } else {
            builder().tls_certs_only([])
        };
        Ok(Self {
            http: http.build()?,
            server,
            authorization,
        })
    }

    /// The server of this machine, which nobody else can pose as without being here: its certificate, which is for the names that
    /// others know it by, is not looked at, and it is shown no token.
    pub(super) fn of_this_machine(
        argument: &ServerArgument,
        server: BaseUrl,
    ) -> Result<Self, Failure> {
        let http = if server.is_encrypted() {
            argument
                .trust
                .apply(builder())?
                .tls_certs_only([])
                .tls_danger_accept_invalid_certs(true)
        } else {
            builder().tls_certs_only([])
        };
        Ok(Self {
            http: http.build()?,
            server,
            authorization: None,
        })
    }

    /// Asks for what is at a path, which may have a query.
    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        self.answer(self.request(Method::GET, path)).await
    }

    /// The same, with the `ETag` of what is there: that of the server, which may be of another release and have other versions.
    pub(super) async fn get_tagged<T: DeserializeOwned>(
        &self,
        path: &str,
    ) -> Result<(T, Option<HeaderValue>), Failure> {
        let answer = self.success(self.request(Method::GET, path)).await?;
        Ok((self.read(&answer)?, answer.tag))
    }

    /// Asks a probe, which answers by its status.
    pub(super) async fn probe(&self, path: &str) -> Result<(), Failure> {
        self.success(self.request(Method::GET, path)).await?;
        Ok(())
    }

    /// Sends a body to a path.
    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, Failure> {
        let request = self
            .request(Method::POST, path)
            .header("content-type", "application/json")
            .body(serde_json::to_vec(body)?);
        self.answer(request).await
    }

    /// Puts a text, which is JSON, at a path, if what is there still has this `ETag`; whatever is there, when none was told.
    pub(super) async fn put<T: DeserializeOwned>(
        &self,
        path: &str,
        tag: Option<&HeaderValue>,
        text: String,
    ) -> Result<T, Failure> {
        let mut request = self
            .request(Method::PUT, path)
            .header("content-type", "application/json")
            .body(text);
        if let Some(tag) = tag {
            request = request.header(header::IF_MATCH, tag);
        }
        self.answer(request).await
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        // Each request begins a trace: in front of the server there may be others who keep them.
        let trace = TraceId::from_bits(fastrand::u128(..));
        let trace = TraceContext::root(trace, SpanId::from_bits(fastrand::u64(..)));
        let request = self
            .http
            .request(method, format!("{}{path}", self.server))
            .header(headers::TRACEPARENT, trace.to_string());
        match &self.authorization {
            Some(authorization) => request.header(header::AUTHORIZATION, authorization),
            None => request,
        }
    }

    async fn answer<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, Failure> {
        self.read(&self.success(request).await?)
    }

    fn read<T: DeserializeOwned>(&self, answer: &Answer) -> Result<T, Failure> {
        serde_json::from_slice(&answer.body)
            .map_err(|error| self.strange(answer.status).because(&error))
    }

    /// What the server answers when it does not refuse. One that has too much to do is asked again when it says, a few times.
    async fn success(&self, request: RequestBuilder) -> Result<Answer, Failure> {
        for _ in 0..MOST_WAITS {
            let Some(again) = request.try_clone() else {
                break;
            };
            match self.once(again).await? {
                Told::Answer(answer) => return Ok(answer),
                Told::Wait(wait, _) => tokio::time::sleep(wait).await,
            }
        }
        match self.once(request).await? {
            Told::Answer(answer) => Ok(answer),
            Told::Wait(_, failure) => Err(failure),
        }
    }

    async fn once(&self, request: RequestBuilder) -> Result<Told, Failure> {
        let no_answer = |error: reqwest::Error| {
            // The library's own words name the address again; what it was caused by is what matters.
            let cause: &dyn Error = error.source().unwrap_or(&error);
            let failure =
                Failure::no_answer(format!("no answer from {}", self.server)).because(cause);
            match trust::hint(&error) {
                Some(hint) => failure.adding(hint),
                None => failure,
            }
        };
        let response = request.send().await.map_err(no_answer)?;
        let status = response.status();
        let request = request_id(response.headers());
        let wait = retry_after(response.headers());
        let tag = response.headers().get(header::ETAG).cloned();
        let body = response.bytes().await.map_err(no_answer)?;
        if status.is_success() {
            return Ok(Told::Answer(Answer { status, tag, body }));
        }
        let failure = match serde_json::from_slice::<Problem>(&body) {
            Ok(problem) => Failure::new(problem.detail),
            Err(_) => self.strange(status),
        };
        let failure = failure.of_request(request.as_deref());
        match wait {
            Some(wait) if status == StatusCode::TOO_MANY_REQUESTS => Ok(Told::Wait(wait, failure)),
            Some(_) | None => Err(failure),
        }
    }

    fn strange(&self, status: StatusCode) -> Failure {
        let server = &self.server;
        Failure::new(format!(
            "{server} answers {status}, but not as a control plane does"
        ))
    }
}

/// What a server answers when it does not refuse.
struct Answer {
    status: StatusCode,
    /// The `ETag`.
    tag: Option<HeaderValue>,
    body: Bytes,
}

/// What a server tells.
enum Told {
    Answer(Answer),
    /// To come again after so long; what it was refused with.
    Wait(Duration, Failure),
}

/// How long the server asks to wait; `None` when that is longer than a person would.
fn retry_after(answered: &HeaderMap) -> Option<Duration> {
    let seconds = answered.get(header::RETRY_AFTER)?.to_str().ok()?;
    let wait = Duration::from_secs(seconds.parse().ok()?);
    (wait <= LONGEST_WAIT).then_some(wait)
}

/// The name by which the server's log knows a request.
fn request_id(answered: &HeaderMap) -> Option<String> {
    let id = answered.get(headers::REQUEST_ID)?.to_str().ok()?;
    // A server that makes more of it is none of ours.
    (id.len() <= 128).then(|| id.to_owned())
}

/// What all clients have in common. Authorities that nobody is asked for need not be installed: without TLS say that there are none.
fn builder() -> ClientBuilder {
    reqwest::Client::builder()
        .timeout(TIMEOUT)
        .no_proxy()
        .user_agent(concat!("doorman/", env!("CARGO_PKG_VERSION")))
}

/// The token to show, from a file or from the environment.
fn token(file: Option<&Path>) -> Result<Option<String>, Failure> {
    match file {
        Some(file) => match std::fs::read_to_string(file) {
            Ok(text) => Ok(Some(text)),
            Err(error) => {
                let message = format!("--token-file {} cannot be read", file.display());
                Err(Failure::new(message).because(&error))
            }
        },
        None => Ok(std::env::var(TOKEN).ok()),
    }
}

fn bearer(token: &str) -> Result<HeaderValue, Failure> {
    let wrong = || Failure::new("the token is empty, or has characters that no token has");
    let token = token.trim();
    if token.is_empty() {
        return Err(wrong());
    }
    let mut value = HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| wrong())?;
    value.set_sensitive(true);
    Ok(value)
}

/// Runs a command that asks a server.
pub(super) fn block_on(
    command: impl Future<Output = Result<String, Failure>>,
) -> Result<String, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(command)
}

/// The name under which a person leases by hand: the same for all commands on a machine.
pub(super) fn default_client_id() -> String {
    let name = rustix::system::uname();
    format!("doorman-cli@{}", name.nodename().to_string_lossy())
}
