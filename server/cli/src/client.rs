//! Client of a running server for commands: the layer's client, and messages for people.

use std::{
    cell::Cell,
    error::Error,
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use axum::http::{
    HeaderValue, Method, Response, StatusCode, Uri,
    header::{CACHE_CONTROL, ETAG, IF_MATCH, IF_NONE_MATCH, WARNING},
};
use bytes::Bytes;
use doorman_openapi::{FieldError, Problem, ServerUrl, escape_hidden, headers};
use doorman_server::DecodedToken;
use rustls::{AlertDescription, CertificateError, InvalidMessage};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use tower_doorman::{
    Builder, Credentials, Doorman,
    lease::{
        Certificates, ControlPlaneClient, HttpTransport, Outgoing, Pem, TransportError,
        named_master, retry_after,
    },
};

use super::{
    certificate::{self, ShownCertificate},
    failure::Failure,
    output::warn,
};

/// The environment variable with a token. A flag would show it to other users of the machine.
const TOKEN_VARIABLE: &str = "DOORMAN_TOKEN";

const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

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

    fn credentials(&self) -> Result<Option<Credentials>, Failure> {
        let token = match &self.token_file {
            Some(path) => read("--token-file", path)?,
            None => match std::env::var(TOKEN_VARIABLE) {
                Ok(token) => token.into_bytes(),
                Err(_) => return Ok(None),
            },
        };
        // A secret or a key in the wrong place must not be sent.
        let is_token = |it: &&str| {
            it.bytes().all(|byte| byte.is_ascii_graphic()) && DecodedToken::parse(it).is_some()
        };
        let token = str::from_utf8(token.trim_ascii()).ok().filter(is_token);
        token.map(Credentials::token).map(Some).ok_or_else(|| {
            Failure::new(match &self.token_file {
                Some(path) => format!("--token-file {} does not contain a JWT", path.display()),
                None => format!("{TOKEN_VARIABLE} is not a JWT"),
            })
        })
    }

    /// The flags of files for TLS that are given.
    fn tls_files(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        let files = [
            ("--ca-file", &self.ca_file),
            ("--client-cert", &self.client_cert),
            ("--client-key", &self.client_key),
        ];
        let given = files.into_iter();
        given.filter_map(|(flag, file)| Some((flag, file.as_deref()?)))
    }

    /// Reads each file once: it may be a pipe.
    fn transport(&self, accepts_any_server: bool) -> Result<HttpTransport, Failure> {
        let mut certificates = Certificates {
            accepts_any_server,
            ..Certificates::default()
        };
        for (flag, path) in self.tls_files() {
            let text = read(flag, path)?;
            let pem = match flag {
                "--ca-file" => &mut certificates.authority,
                _ => &mut certificates.identity,
            };
            match pem {
                // The certificate may lack its last line end.
                Some(Pem::Text(certificate)) => certificate.extend([b"\n", &*text].concat()),
                Some(Pem::Files(_)) | None => *pem = Some(Pem::Text(text)),
            }
        }
        HttpTransport::new(certificates, true).map_err(|error| {
            let files = self.tls_files();
            let files = files.map(|(flag, path)| format!("{flag} {}", path.display()));
            let files: Vec<_> = files.collect();
            let failure = match &*files {
                [] => Failure::new("cannot set up TLS"),
                _ => Failure::new(format!("cannot set up TLS with {}", files.join(" "))),
            };
            // A container may have no certificate authorities at all.
            failure.with_cause(&*error).with_hint(
                files
                    .is_empty()
                    .then_some("name the authority of the server's certificate with --ca-file"),
            )
        })
    }
}

fn read(flag: &str, path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path).map_err(|error| {
        Failure::new(format!("cannot read {flag} {}", path.display())).with_cause(&error)
    })
}

#[derive(Debug)]
pub(super) struct Client {
    /// Of at least one server.
    plane: ControlPlaneClient<HttpTransport>,
    /// The server to ask next.
    current: Cell<usize>,
}

impl Client {
    pub(super) fn new(arguments: &ServerArguments) -> Result<Self, Failure> {
        let credentials = arguments.credentials()?;
        let servers = if arguments.server.is_empty() {
            vec![DEFAULT_SERVER.parse()?]
        } else {
            arguments.server.clone()
        };
        Self::of(servers, arguments, credentials, false)
    }

    /// Client of the server on this machine. It does not verify the certificate, which is for the
    /// server's public name, and sends no token.
    pub(super) fn local(arguments: &ServerArguments, server: ServerUrl) -> Result<Self, Failure> {
        Self::of(vec![server], arguments, None, true)
    }

    fn of(
        servers: Vec<ServerUrl>,
        arguments: &ServerArguments,
        credentials: Option<Credentials>,
        accepts_any_server: bool,
    ) -> Result<Self, Failure> {
        // Without TLS no certificates are needed, and a file may be missing.
        let transport = if servers.iter().any(ServerUrl::is_encrypted) {
            arguments.transport(accepts_any_server)?
        } else {
            HttpTransport::new(Certificates::default(), false)
                .map_err(|error| Failure::new("cannot set up HTTP").with_cause(&*error))?
        };
        Ok(Self {
            current: Cell::new(fastrand::usize(..servers.len())),
            plane: ControlPlaneClient {
                transport,
                servers: servers.into(),
                credentials,
            },
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
        self.plane.credentials.is_some()
    }

    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        self.parse(&self.send(&Outgoing::new(Method::GET, path)).await?)
    }

    /// Reads the newest version of a part of the document, also from a server that has not seen it
    /// yet. Warns if the server cannot read it. Also returns the server's `ETag`. One of another
    /// release may compute it differently.
    pub(super) async fn get_with_etag<T: DeserializeOwned>(
        &self,
        path: &str,
    ) -> Result<(T, Option<HeaderValue>), Failure> {
        let mut call = Outgoing::new(Method::GET, path);
        call.headers
            .insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        let response = self.send(&call).await?;
        let warning = response.headers().get(WARNING);
        if warning.is_some_and(|it| it.as_bytes().starts_with(b"111 ")) {
            let server = self.server();
            let text = format!("{server} cannot read the newest document; this one may be old");
            warn(&mut io::stderr(), &text);
        }
        let etag = response.headers().get(ETAG).cloned();
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
        let response = self.send(&Outgoing::new(Method::GET, path)).await?;
        Ok(String::from_utf8_lossy(response.body()).into_owned())
    }

    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, Failure> {
        let call = Outgoing::new(Method::POST, path);
        let call = call.with_body("application/json", serde_json::to_vec(body)?);
        self.parse(&self.send(&call).await?)
    }

    /// Puts JSON, or sends a JSON merge patch, if the resource still has this `ETag`. `None`
    /// changes any.
    pub(super) async fn change<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        etag: Option<&HeaderValue>,
        json: String,
    ) -> Result<T, Failure> {
        let media_type = match method {
            Method::PATCH => "application/merge-patch+json",
            _ => "application/json",
        };
        let mut call = Outgoing::new(method, path).with_body(media_type, json);
        call.headers
            .extend(etag.map(|etag| (IF_MATCH, etag.clone())));
        self.parse(&self.send(&call).await?)
    }

    /// Puts JSON, if there is nothing yet.
    pub(super) async fn create<T: DeserializeOwned>(
        &self,
        path: &str,
        json: String,
    ) -> Result<T, Failure> {
        let mut call = Outgoing::new(Method::PUT, path).with_body("application/json", json);
        call.headers
            .insert(IF_NONE_MATCH, HeaderValue::from_static("*"));
        self.parse(&self.send(&call).await?)
    }

    /// The servers of the command line.
    pub(super) fn servers(&self) -> &[ServerUrl] {
        &self.plane.servers
    }

    /// Gets from one server only.
    pub(super) async fn get_from<T: DeserializeOwned>(
        &self,
        server: usize,
        path: &str,
    ) -> Result<T, Failure> {
        self.current.set(server);
        let response = self.attempt(&Outgoing::new(Method::GET, path)).await?;
        self.parse(&self.accepted(response)?)
    }

    #[expect(clippy::indexing_slicing, reason = "it is the position of a server")]
    fn server(&self) -> &ServerUrl {
        &self.plane.servers[self.current.get()]
    }

    /// Goes to the next server. A request that may have been handled is not sent again.
    fn advance(&self) {
        let next = self.current.get() + 1;
        self.current.set(next % self.servers().len());
    }

    /// Sends a request. Asks the next server when one does not answer or is unavailable, follows
    /// one redirect to a server of the command line, and repeats the request after a 429. Fails
    /// unless the status is 2xx.
    async fn send(&self, call: &Outgoing) -> Result<Response<Bytes>, Failure> {
        let (mut others, mut redirects) = (self.servers().len() - 1, 1);
        // A server may get it that another one may have handled.
        let is_repeatable = call.method.is_safe();
        let mut retries = MAX_RETRIES;
        loop {
            let response = match self.attempt(call).await {
                Ok(response) => response,
                Err(failure) if others > 0 && (failure.is_not_sent() || is_repeatable) => {
                    others -= 1;
                    self.advance();
                    continue;
                }
                Err(failure) => return Err(failure),
            };
            if response.status().is_success() {
                return Ok(response);
            }
            let problem: Option<Problem> = serde_json::from_slice(response.body()).ok();
            if response.status().is_redirection() {
                let master = named_master(&response, problem.as_ref());
                let master =
                    master.filter(|it| it.parse::<Uri>().is_ok_and(|it| it.host().is_some()));
                let position = master
                    .and_then(|it| self.servers().iter().position(|server| server.serves(it)));
                match position {
                    Some(position) if redirects > 0 && position != self.current.get() => {
                        redirects -= 1;
                        self.current.set(position);
                        continue;
                    }
                    _ => return Err(self.redirected(&response, master, position)),
                }
            }
            if response.status() == StatusCode::TOO_MANY_REQUESTS
                && retries > 0
                && let Some(wait) = retry_after(&response).filter(|it| *it <= MAX_RETRY_WAIT)
            {
                retries -= 1;
                tokio::time::sleep(wait).await;
                continue;
            }
            // After another 503 a change may have been made.
            let is_not_master = problem.is_some_and(|it| it.mastership.is_some());
            let may_repeat = is_repeatable || is_not_master;
            if response.status() == StatusCode::SERVICE_UNAVAILABLE && may_repeat && others > 0 {
                others -= 1;
                self.advance();
                continue;
            }
            return self.accepted(response);
        }
    }

    /// No token is sent to a server that the user has not named.
    fn redirected(
        &self,
        response: &Response<Bytes>,
        master: Option<&str>,
        position: Option<usize>,
    ) -> Failure {
        let Some(master) = master else {
            return self.unexpected();
        };
        let server = self.server();
        let master = escape_hidden(master);
        let failure = match position {
            None => Failure::new(format!(
                "{server} is not the master, which is at {master}: pass --server {master}, or all \
                 servers of the node as --server URL,URL,…"
            )),
            Some(_) => Failure::new(format!(
                "{server} names {master} as the master, and no server accepts the request"
            )),
        };
        failure.with_request_id(request_id(response))
    }

    fn accepted(&self, response: Response<Bytes>) -> Result<Response<Bytes>, Failure> {
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let failure = match serde_json::from_slice::<Problem>(response.body()) {
            Ok(_) if status == StatusCode::UNAUTHORIZED && !self.sends_token() => {
                Failure::new(format!(
                    "{} requires a token: pass --token-file FILE, or set {TOKEN_VARIABLE}",
                    self.server()
                ))
            }
            Ok(problem) => {
                let errors = further_errors(&problem);
                let failure = Failure::new(problem.detail).with_status(status);
                failure.with_errors(errors)
            }
            Err(_) => self.unexpected(),
        };
        Err(failure.with_request_id(request_id(&response)))
    }

    async fn attempt(&self, call: &Outgoing) -> Result<Response<Bytes>, Failure> {
        let server = self.current.get();
        match self.plane.send(server, call.clone(), REQUEST_TIMEOUT).await {
            Ok(response) => Ok(response),
            Err((_, error)) => Err(self.no_response(error).await),
        }
    }

    async fn no_response(&self, error: TransportError) -> Failure {
        let is_connect = |it: &reqwest::Error| it.is_connect();
        let is_not_sent = error.downcast_ref().is_some_and(is_connect);
        let error: &(dyn Error + 'static) = &*error;
        // The first text only says that there was an error.
        let cause = error.source().unwrap_or(error);
        let certificate = match tls_error(error) {
            Some(rustls::Error::InvalidCertificate(_)) => {
                certificate::of_server(self.server()).await
            }
            _ => None,
        };
        let message = format!("no response from {}", self.server());
        Failure::no_response(message, is_not_sent)
            .with_cause(cause)
            .with_hint(certificate.as_ref().map(|it| it.names.as_str()))
            .with_hint(tls_hint(error, certificate.as_ref()))
    }

    pub(super) fn decode<T: DeserializeOwned>(&self, json: &Value) -> Result<T, Failure> {
        T::deserialize(json).map_err(|error| self.unexpected().with_cause(&error))
    }

    fn parse<T: DeserializeOwned>(&self, response: &Response<Bytes>) -> Result<T, Failure> {
        let parsed = serde_json::from_slice(response.body());
        parsed.map_err(|error| self.unexpected().with_cause(&error))
    }

    fn unexpected(&self) -> Failure {
        Failure::new(format!(
            "{} does not respond like a Doorman server",
            self.server()
        ))
    }
}

/// The errors of a problem beside that of its detail.
fn further_errors(problem: &Problem) -> Vec<String> {
    let is_first = |index, detail: &str| index == 0 && problem.detail.contains(detail);
    let errors = problem.errors.iter().enumerate();
    let errors = errors.filter(|(index, it)| !is_first(*index, &it.detail));
    let errors = errors.map(
        |(_, FieldError { pointer, detail })| match pointer.as_str() {
            "" => format!("the body {detail}"),
            pointer => format!("{pointer} {detail}"),
        },
    );
    // Any server may have sent it, and it is shown on a terminal.
    errors.map(|it| escape_hidden(&it).into_owned()).collect()
}

fn request_id(response: &Response<Bytes>) -> Option<&str> {
    response.headers().get(headers::REQUEST_ID)?.to_str().ok()
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
