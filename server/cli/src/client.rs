//! HTTP client for commands that call a running server.

use std::{
    cell::Cell,
    error::Error,
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use axum::http::Uri;
use bytes::Bytes;
use doorman_openapi::{Problem, ServerUrl, SpanId, TraceContext, TraceId, headers};
use doorman_server::DecodedToken;
use reqwest::{
    Certificate, ClientBuilder, Identity, Method, StatusCode,
    header::{self, HeaderMap, HeaderValue},
    redirect,
};
use rustls::{AlertDescription, CertificateError, InvalidMessage};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use tower_doorman::{Builder, Credentials, Doorman};

use super::{
    certificate::{self, ShownCertificate},
    failure::Failure,
};

/// The environment variable with a token. A flag would show it to other users of the machine.
const TOKEN_VARIABLE: &str = "DOORMAN_TOKEN";

const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Shorter, so that the next server is asked soon.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

const MAX_RETRIES: usize = 3;

/// The longest `Retry-After` that is waited for.
const MAX_RETRY_WAIT: Duration = Duration::from_secs(10);

/// The most entries that the server returns in one page.
pub(super) const MAX_PAGE: usize = 1_000;

const DEFAULT_SERVER: &str = "http://127.0.0.1:7300";

#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Server")]
pub(super) struct ServerArguments {
    /// URLs of the node's servers, separated by commas, with the path prefix of a proxy if there is
    /// one. The first to answer is asked, beginning at random. A redirect to the master is followed
    /// if it is named here; default: http://127.0.0.1:7300
    #[arg(long, value_name = "URL[,URL…]", value_delimiter = ',')]
    server: Vec<ServerUrl>,
    /// File with a token; default: the token in DOORMAN_TOKEN
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Trust the certificate authorities in this file (PEM) instead of those of the system
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// Client certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "client_key")]
    client_cert: Option<PathBuf>,
    /// Private key of the client certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "client_cert")]
    client_key: Option<PathBuf>,
}

impl ServerArguments {
    /// The layer of the agent, with the same servers and credentials. Files are read again when
    /// they change.
    pub(super) fn layer(&self) -> Builder {
        let mut servers = self.server.iter().map(ToString::to_string);
        let first = servers.next().unwrap_or_else(|| DEFAULT_SERVER.to_owned());
        let mut builder = servers.fold(Doorman::builder(first), Builder::server);
        let token = std::env::var(TOKEN_VARIABLE).ok();
        let credentials = match &self.token_file {
            Some(path) => Some(Credentials::file(path)),
            None => token.map(|token| Credentials::token(token.trim())),
        };
        if let Some(credentials) = credentials {
            builder = builder.credentials(credentials);
        }
        if let Some(path) = &self.ca_file {
            builder = builder.certificate_authority_file(path);
        }
        if let (Some(certificate), Some(key)) = (&self.client_cert, &self.client_key) {
            builder = builder.client_identity_files(certificate, key);
        }
        builder
    }

    pub(super) fn has_server(&self) -> bool {
        !self.server.is_empty()
    }

    fn authorization(&self) -> Result<Option<HeaderValue>, Failure> {
        let token = match &self.token_file {
            Some(path) => read("--token-file", path)?,
            None => match std::env::var(TOKEN_VARIABLE) {
                Ok(token) => token.into_bytes(),
                Err(_) => return Ok(None),
            },
        };
        let token = token.trim_ascii();
        // A secret or a key in the wrong place must not be sent.
        let invalid = || {
            Failure::new(match &self.token_file {
                Some(path) => format!("--token-file {} does not contain a JWT", path.display()),
                None => format!("{TOKEN_VARIABLE} is not a JWT"),
            })
        };
        let is_token = str::from_utf8(token).is_ok_and(|it| DecodedToken::parse(it).is_some());
        if !is_token {
            return Err(invalid());
        }
        let mut value =
            HeaderValue::try_from([b"Bearer ", token].concat()).map_err(|_| invalid())?;
        value.set_sensitive(true);
        Ok(Some(value))
    }

    /// Applies `--ca-file`, `--client-cert` and `--client-key`.
    fn configure_tls(&self, mut builder: ClientBuilder) -> Result<ClientBuilder, Failure> {
        if let Some(path) = &self.ca_file {
            let invalid = |cause: &dyn Error| {
                Failure::new(format!("--ca-file {}", path.display())).with_cause(cause)
            };
            let pem = read("--ca-file", path)?;
            let certificates = Certificate::from_pem_bundle(&pem).map_err(|it| invalid(&it))?;
            if certificates.is_empty() {
                return Err(invalid(&io::Error::other("contains no PEM certificate")));
            }
            builder = builder.tls_certs_only(certificates);
        }
        if let (Some(certificate), Some(key)) = (&self.client_cert, &self.client_key) {
            let mut pem = read("--client-cert", certificate)?;
            pem.push(b'\n');
            pem.append(&mut read("--client-key", key)?);
            let identity = Identity::from_pem(&pem).map_err(|error| {
                Failure::new("--client-cert and --client-key are invalid").with_cause(&error)
            })?;
            builder = builder.identity(identity);
        }
        Ok(builder)
    }
}

fn read(flag: &str, path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path).map_err(|error| {
        Failure::new(format!("cannot read {flag} {}", path.display())).with_cause(&error)
    })
}

#[derive(Debug)]
pub(super) struct Client {
    http: reqwest::Client,
    /// At least one.
    servers: Vec<ServerUrl>,
    /// The server to ask next.
    current: Cell<usize>,
    authorization: Option<HeaderValue>,
}

impl Client {
    pub(super) fn new(arguments: &ServerArguments) -> Result<Self, Failure> {
        let authorization = arguments.authorization()?;
        let servers = if arguments.server.is_empty() {
            vec![DEFAULT_SERVER.parse()?]
        } else {
            arguments.server.clone()
        };
        let is_encrypted = servers.iter().any(ServerUrl::is_encrypted);
        let http = if is_encrypted {
            arguments.configure_tls(builder())?
        } else {
            // The system's certificate authorities are not needed, and may be missing.
            builder().tls_certs_only([])
        };
        let uses_system = is_encrypted && arguments.ca_file.is_none();
        let http = http.build().map_err(|error| {
            // A container may have no certificate authorities at all.
            let hint = "name the authority of the server's certificate with --ca-file";
            Failure::from(error).with_hint(uses_system.then_some(hint))
        })?;
        Ok(Self {
            http,
            current: Cell::new(fastrand::usize(..servers.len())),
            servers,
            authorization,
        })
    }

    /// Client of the server on this machine. It does not verify the certificate, which is for the
    /// server's public name, and sends no token.
    pub(super) fn local(arguments: &ServerArguments, server: ServerUrl) -> Result<Self, Failure> {
        let mut http = builder();
        if server.is_encrypted() {
            http = arguments
                .configure_tls(http)?
                .tls_danger_accept_invalid_certs(true);
        }
        Ok(Self {
            http: http.tls_certs_only([]).build()?,
            current: Cell::new(0),
            servers: vec![server],
            authorization: None,
        })
    }

    /// Client of a server that a response names. The caller decides whether it may get the token.
    pub(super) fn of_node(arguments: &ServerArguments, server: ServerUrl) -> Result<Self, Failure> {
        let arguments = ServerArguments {
            server: vec![server],
            ..arguments.clone()
        };
        Self::new(&arguments)
    }

    /// Whether requests have a token.
    pub(super) fn sends_token(&self) -> bool {
        self.authorization.is_some()
    }

    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        self.parse(&self.send(&Outgoing::get(path)).await?)
    }

    /// Also returns the server's `ETag`. One of another release may compute it differently.
    pub(super) async fn get_with_etag<T: DeserializeOwned>(
        &self,
        path: &str,
    ) -> Result<(T, Option<HeaderValue>), Failure> {
        let response = self.send(&Outgoing::get(path)).await?;
        let etag = response.headers.get(header::ETAG).cloned();
        Ok((self.parse(&response)?, etag))
    }

    /// Reads up to `max` entries of a paged list.
    pub(super) async fn list<P: DeserializeOwned, T>(
        &self,
        path: &str,
        max: usize,
        into_parts: impl Fn(P) -> (Vec<T>, Option<String>),
    ) -> Result<Vec<T>, Failure> {
        let mut entries = Vec::new();
        let mut cursor = Some(String::new());
        while let Some(from) = cursor.filter(|_| entries.len() < max) {
            let limit = max.saturating_sub(entries.len()).min(MAX_PAGE);
            let separator = if path.contains('?') { '&' } else { '?' };
            let path = format!("{path}{separator}limit={limit}&cursor={from}");
            let (page, next) = into_parts(self.get(&path).await?);
            entries.extend(page);
            cursor = next;
        }
        Ok(entries)
    }

    /// The text of a response with a 2xx status.
    pub(super) async fn probe(&self, path: &str) -> Result<String, Failure> {
        let response = self.send(&Outgoing::get(path)).await?;
        Ok(String::from_utf8_lossy(&response.body).into_owned())
    }

    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, Failure> {
        let call = Outgoing {
            method: Method::POST,
            path: path.to_owned(),
            headers: content_type("application/json"),
            body: serde_json::to_vec(body)?.into(),
        };
        self.parse(&self.send(&call).await?)
    }

    /// Puts JSON, if the resource still has this `ETag`. `None` overwrites any.
    pub(super) async fn put<T: DeserializeOwned>(
        &self,
        path: &str,
        etag: Option<&HeaderValue>,
        json: String,
    ) -> Result<T, Failure> {
        self.change(Method::PUT, path, etag, "application/json", json)
            .await
    }

    /// Sends a JSON merge patch, if the resource still has this `ETag`. `None` patches any.
    pub(super) async fn patch<T: DeserializeOwned>(
        &self,
        path: &str,
        etag: Option<&HeaderValue>,
        json: String,
    ) -> Result<T, Failure> {
        let media_type = "application/merge-patch+json";
        self.change(Method::PATCH, path, etag, media_type, json)
            .await
    }

    async fn change<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        etag: Option<&HeaderValue>,
        media_type: &'static str,
        json: String,
    ) -> Result<T, Failure> {
        let mut headers = content_type(media_type);
        headers.extend(etag.map(|etag| (header::IF_MATCH, etag.clone())));
        let call = Outgoing {
            method,
            path: path.to_owned(),
            headers,
            body: json.into(),
        };
        self.parse(&self.send(&call).await?)
    }

    /// The servers of the command line.
    pub(super) fn servers(&self) -> &[ServerUrl] {
        &self.servers
    }

    /// Gets from one server only.
    pub(super) async fn get_from<T: DeserializeOwned>(
        &self,
        server: usize,
        path: &str,
    ) -> Result<T, Failure> {
        self.current.set(server);
        let response = self.attempt(&Outgoing::get(path)).await?;
        self.parse(&self.accepted(response)?)
    }

    #[expect(clippy::indexing_slicing, reason = "it is the position of a server")]
    fn server(&self) -> &ServerUrl {
        &self.servers[self.current.get()]
    }

    /// Goes to the next server. A request that may have been handled is not sent again.
    fn advance(&self) {
        self.current
            .set((self.current.get() + 1) % self.servers.len());
    }

    /// Sends a request. Asks the next server when one does not answer or is unavailable, follows
    /// one redirect to a server of the command line, and repeats the request after a 429. Fails
    /// unless the status is 2xx.
    async fn send(&self, call: &Outgoing) -> Result<Response, Failure> {
        let (mut others, mut redirects) = (self.servers.len() - 1, 1);
        let mut retries = MAX_RETRIES;
        loop {
            let response = match self.attempt(call).await {
                Ok(response) => response,
                Err(failure) if others > 0 && (failure.is_not_sent() || call.is_repeatable()) => {
                    others -= 1;
                    self.advance();
                    continue;
                }
                Err(failure) => return Err(failure),
            };
            if response.status.is_redirection() {
                let master = response.master();
                let position = master.as_deref().and_then(|it| self.position(it));
                match position {
                    Some(position) if redirects > 0 && position != self.current.get() => {
                        redirects -= 1;
                        self.current.set(position);
                        continue;
                    }
                    _ => return Err(self.redirected(&response, master.as_deref(), position)),
                }
            }
            if let Some(wait) = response.retry_after().filter(|_| retries > 0) {
                retries -= 1;
                tokio::time::sleep(wait).await;
                continue;
            }
            // After another 503 a change may have been made.
            let may_repeat = call.is_repeatable() || response.is_not_master();
            if response.status == StatusCode::SERVICE_UNAVAILABLE && may_repeat && others > 0 {
                others -= 1;
                self.advance();
                continue;
            }
            return self.accepted(response);
        }
    }

    fn position(&self, address: &str) -> Option<usize> {
        self.servers.iter().position(|it| it.serves(address))
    }

    /// No token is sent to a server that the user has not named.
    fn redirected(
        &self,
        response: &Response,
        master: Option<&str>,
        position: Option<usize>,
    ) -> Failure {
        let Some(master) = master else {
            return self.unexpected();
        };
        let server = self.server();
        let master: String = master.chars().filter(|it| !it.is_control()).collect();
        let failure = match position {
            None => Failure::new(format!(
                "{server} is not the master, which is at {master}: pass --server {master}, or all \
                 servers of the node as --server URL,URL,…"
            )),
            Some(_) => Failure::new(format!(
                "{server} names {master} as the master, and no server accepts the request"
            )),
        };
        failure.with_request_id(response.header(headers::REQUEST_ID))
    }

    fn accepted(&self, response: Response) -> Result<Response, Failure> {
        if response.status.is_success() {
            return Ok(response);
        }
        let failure = match serde_json::from_slice::<Problem>(&response.body) {
            Ok(_)
                if response.status == StatusCode::UNAUTHORIZED && self.authorization.is_none() =>
            {
                Failure::new(format!(
                    "{} requires a token: pass --token-file FILE, or set {TOKEN_VARIABLE}",
                    self.server()
                ))
            }
            Ok(problem) => Failure::new(problem.detail).with_status(response.status),
            Err(_) => self.unexpected(),
        };
        Err(failure.with_request_id(response.header(headers::REQUEST_ID)))
    }

    async fn attempt(&self, call: &Outgoing) -> Result<Response, Failure> {
        // Starts a trace, for proxies in front of the server.
        let trace = TraceId::from_bits(fastrand::u128(..));
        let trace = TraceContext::root(trace, SpanId::from_bits(fastrand::u64(..)));
        let authorization = self
            .authorization
            .iter()
            .map(|value| (header::AUTHORIZATION, value.clone()));
        let request = self
            .http
            .request(
                call.method.clone(),
                format!("{}{}", self.server(), call.path),
            )
            .headers(call.headers.clone())
            .header(headers::TRACEPARENT, trace.to_string())
            .headers(authorization.collect::<HeaderMap>())
            .body(call.body.clone());
        let mut response = match request.send().await {
            Ok(response) => response,
            Err(error) => return Err(self.no_response(&error).await),
        };
        Ok(Response {
            status: response.status(),
            headers: std::mem::take(response.headers_mut()),
            body: match response.bytes().await {
                Ok(body) => body,
                Err(error) => return Err(self.no_response(&error).await),
            },
        })
    }

    async fn no_response(&self, error: &reqwest::Error) -> Failure {
        // The error itself repeats the URL; its source has the reason.
        let cause: &dyn Error = error.source().unwrap_or(error);
        let certificate = match tls_error(error) {
            Some(rustls::Error::InvalidCertificate(_)) => {
                certificate::of_server(self.server()).await
            }
            _ => None,
        };
        Failure::no_response(
            format!("no response from {}", self.server()),
            error.is_connect(),
        )
        .with_cause(cause)
        .with_hint(certificate.as_ref().map(|it| it.names.as_str()))
        .with_hint(tls_hint(error, certificate.as_ref()))
    }

    pub(super) fn decode<T: DeserializeOwned>(&self, json: &Value) -> Result<T, Failure> {
        T::deserialize(json).map_err(|error| self.unexpected().with_cause(&error))
    }

    fn parse<T: DeserializeOwned>(&self, response: &Response) -> Result<T, Failure> {
        serde_json::from_slice(&response.body).map_err(|error| self.unexpected().with_cause(&error))
    }

    fn unexpected(&self) -> Failure {
        Failure::new(format!(
            "{} does not respond like a Doorman server",
            self.server()
        ))
    }
}

/// A request, to any of the servers.
struct Outgoing {
    method: Method,
    path: String,
    headers: HeaderMap,
    body: Bytes,
}

impl Outgoing {
    fn get(path: &str) -> Self {
        Self {
            method: Method::GET,
            path: path.to_owned(),
            headers: HeaderMap::new(),
            body: Bytes::new(),
        }
    }

    /// Whether a server may get it that another one may have handled.
    fn is_repeatable(&self) -> bool {
        self.method.is_safe()
    }
}

fn content_type(media_type: &'static str) -> HeaderMap {
    HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static(media_type))])
}

struct Response {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl Response {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The address that a redirect names.
    fn master(&self) -> Option<String> {
        let problem: Option<Problem> = serde_json::from_slice(&self.body).ok();
        problem
            .and_then(|problem| problem.mastership?.master_address)
            .or_else(|| self.header(header::LOCATION.as_str()).map(str::to_owned))
            .filter(|address| address.parse::<Uri>().is_ok_and(|it| it.host().is_some()))
    }

    /// Whether the server refused because it is not master.
    fn is_not_master(&self) -> bool {
        let problem: Option<Problem> = serde_json::from_slice(&self.body).ok();
        problem.is_some_and(|problem| problem.mastership.is_some())
    }

    /// The wait that a 429 asks for, unless it is too long.
    fn retry_after(&self) -> Option<Duration> {
        let wait = Duration::from_secs(self.header(header::RETRY_AFTER.as_str())?.parse().ok()?);
        (self.status == StatusCode::TOO_MANY_REQUESTS && wait <= MAX_RETRY_WAIT).then_some(wait)
    }
}

fn builder() -> ClientBuilder {
    reqwest::Client::builder()
        .redirect(redirect::Policy::none())
        .timeout(REQUEST_TIMEOUT)
        .connect_timeout(CONNECT_TIMEOUT)
        .no_proxy()
        .user_agent(concat!("doorman/", env!("CARGO_PKG_VERSION")))
}

/// Suggests how to fix a TLS error.
fn tls_hint(
    error: &(dyn Error + 'static),
    certificate: Option<&ShownCertificate>,
) -> Option<&'static str> {
    use rustls::Error::{AlertReceived, InvalidCertificate, InvalidMessage as Invalid};
    match tls_error(error)? {
        InvalidCertificate(CertificateError::Other(_))
            if certificate.is_some_and(|it| it.is_authority) =>
        {
            Some("it is that of an authority; a server needs one with basicConstraints=CA:FALSE")
        }
        // An authority of the same name fails with other errors than `UnknownIssuer`.
        InvalidCertificate(
            CertificateError::UnknownIssuer
            | CertificateError::BadSignature
            | CertificateError::UnsupportedSignatureAlgorithmContext { .. }
            | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. },
        ) if certificate.is_some_and(|it| it.is_self_signed) => {
            Some("to trust it, pass the certificate itself as --ca-file")
        }
        InvalidCertificate(CertificateError::UnknownIssuer) => {
            Some("name the authority that issued its certificate with --ca-file")
        }
        InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => Some("use an address that its certificate is valid for"),
        Invalid(InvalidMessage::InvalidContentType) => {
            Some("it does not use TLS: use an http:// address")
        }
        AlertReceived(AlertDescription::CertificateRequired) => {
            Some("it requires a client certificate: pass --client-cert and --client-key")
        }
        _ => None,
    }
}

fn tls_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        // An `io::Error` skips the error that it wraps in its `source`.
        let wrapped = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref)
            .map(|it| it as &(dyn Error + 'static));
        if let Some(tls) = wrapped.unwrap_or(error).downcast_ref() {
            return Some(tls);
        }
        next = wrapped.or_else(|| error.source());
    }
    None
}

pub(super) fn host_name() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}
