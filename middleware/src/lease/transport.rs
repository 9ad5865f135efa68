//! HTTP transport over reqwest, whose certificate files are reloaded while the process runs.

mod certificates;

#[cfg(test)]
mod tests;

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use doorman_holder::LogThrottle;
use doorman_openapi::Moment;
use http::{Request, Response, header::AUTHORIZATION};
use reqwest::{Certificate, Client, Identity, redirect};
use tokio::{task::spawn_blocking, time::timeout};
use tower_service::Service;

pub use self::certificates::{Certificates, Pem};
use self::certificates::{Fingerprint, PemTexts};
use super::TransportError;
use crate::clock;

/// The longest response body in bytes. A thousand leases take a third of a megabyte.
const MAX_BODY: usize = 16 * 1024 * 1024;
/// The connect timeout. The request's own deadline may come first.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// A peer that has frozen holds no HTTP/2 connection for longer than both together: a request that
/// times out does not close it, and another server may stand behind the same address.
const PING_INTERVAL: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(5);
/// How long reloading must fail before it is logged: files may be replaced one by one.
const RELOAD_GRACE: Duration = Duration::from_secs(10);
/// How long a request waits for a reload, so that a hanging file system costs no lease.
const RELOAD_WAIT: Duration = Duration::from_millis(500);
/// The shortest time between reloads: there may be hundreds of requests a second.
const RELOAD_INTERVAL: Duration = Duration::from_secs(1);

/// Carries requests to the control plane over HTTP, with pooled connections and TLS by rustls. It
/// follows no redirects, because the holder does so itself and only to configured servers. It uses
/// no proxies from the environment and retries nothing: every transmission has its own sequence
/// number.
#[derive(Clone)]
pub struct HttpTransport {
    client: Arc<ReloadingClient>,
}

impl HttpTransport {
    /// A transport with these certificates. Those of files are read again when they change.
    /// `encrypted`: whether any server is reached by TLS. Otherwise no trust roots are loaded.
    ///
    /// # Errors
    /// A file cannot be read, or a certificate is missing or invalid.
    pub fn new(certificates: Certificates, encrypted: bool) -> Result<Self, TransportError> {
        Ok(Self {
            client: Arc::new(ReloadingClient::new(certificates, encrypted)?),
        })
    }
}

impl fmt::Debug for HttpTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpTransport").finish_non_exhaustive()
    }
}

impl Service<Request<Bytes>> for HttpTransport {
    type Response = Response<Bytes>;
    type Error = TransportError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Bytes>, TransportError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let client = Arc::clone(&self.client);
        Box::pin(async move {
            if client.certificates.accepts_any_server
                && request.headers().contains_key(AUTHORIZATION)
            {
                return Err(
                    "credentials are sent only to servers with verified certificates".into(),
                );
            }
            let client = client.current().await;
            let sent = client.execute(request.try_into()?).await;
            // The caller logs the address itself.
            let mut received = sent.map_err(reqwest::Error::without_url)?;
            let mut response = Response::new(Bytes::new());
            *response.status_mut() = received.status();
            *response.headers_mut() = std::mem::take(received.headers_mut());
            let mut body = BytesMut::new();
            while let Some(chunk) = received.chunk().await? {
                if body.len().saturating_add(chunk.len()) > MAX_BODY {
                    return Err(format!("response body exceeds {MAX_BODY} bytes").into());
                }
                body.extend_from_slice(&chunk);
            }
            *response.body_mut() = body.freeze();
            Ok(response)
        })
    }
}

/// An HTTP client that is replaced when its certificate files change.
struct ReloadingClient {
    certificates: Certificates,
    encrypted: bool,
    state: Mutex<ReloadState>,
}

struct ReloadState {
    client: Client,
    fingerprint: Fingerprint,
    failing_since: Option<Moment>,
    failure_log: LogThrottle,
    reload: Reload,
}

/// `NotBefore → Running` when a request finds the files due, and back when the reload ends. Only
/// one runs: a hanging one blocks one thread, and none overwrites a newer result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reload {
    NotBefore(Moment),
    Running { since: Moment },
}

/// Ends the running reload when dropped, whatever became of it.
struct ReloadGuard(Arc<ReloadingClient>);

impl Drop for ReloadGuard {
    fn drop(&mut self) {
        self.0.state().reload = Reload::NotBefore(clock::now().after(RELOAD_INTERVAL));
    }
}

impl ReloadingClient {
    fn new(certificates: Certificates, encrypted: bool) -> Result<Self, TransportError> {
        let texts = certificates.read()?;
        let state = ReloadState {
            client: certificates.build_client(&texts, encrypted)?,
            fingerprint: texts.fingerprint(),
            failing_since: None,
            failure_log: LogThrottle::default(),
            reload: Reload::NotBefore(Moment::ORIGIN),
        };
        Ok(Self {
            certificates,
            encrypted,
            state: Mutex::new(state),
        })
    }

    /// The client to use now, after a reload if one is due; the previous one if that fails. Cancel
    /// safe: a reload that has begun runs to its end.
    async fn current(self: &Arc<Self>) -> Client {
        if self.certificates.are_files()
            && let Some(guard) = self.begin_reload(clock::now())
        {
            let reload = spawn_blocking(move || {
                let loaded = guard.0.load();
                guard.0.apply(loaded, clock::now());
            });
            drop(timeout(RELOAD_WAIT, reload).await);
        }
        self.state().client.clone()
    }

    fn begin_reload(self: &Arc<Self>, now: Moment) -> Option<ReloadGuard> {
        let mut state = self.state();
        match state.reload {
            Reload::NotBefore(time) if time <= now => {
                state.reload = Reload::Running { since: now };
                Some(ReloadGuard(Arc::clone(self)))
            }
            Reload::NotBefore(_) => None,
            Reload::Running { since } => {
                if since.after(RELOAD_GRACE) <= now && state.failure_log.try_log(now).is_some() {
                    tracing::error!(
                        "reading certificate files hangs; the previous certificates stay in use"
                    );
                }
                None
            }
        }
    }

    /// A client for the files as they are now; `None` when they have not changed.
    fn load(&self) -> Result<Option<(Client, Fingerprint)>, TransportError> {
        let texts = self.certificates.read()?;
        let fingerprint = texts.fingerprint();
        if fingerprint == self.state().fingerprint {
            return Ok(None);
        }
        let client = self.certificates.build_client(&texts, self.encrypted)?;
        Ok(Some((client, fingerprint)))
    }

    fn apply(&self, loaded: Result<Option<(Client, Fingerprint)>, TransportError>, now: Moment) {
        let mut state = self.state();
        match loaded {
            Ok(loaded) => {
                state.failing_since = None;
                if let Some((client, fingerprint)) = loaded {
                    state.client = client;
                    state.fingerprint = fingerprint;
                    tracing::info!("certificates for the control plane reloaded");
                }
            }
            Err(error) => {
                let since = *state.failing_since.get_or_insert(now);
                if since.after(RELOAD_GRACE) <= now && state.failure_log.try_log(now).is_some() {
                    tracing::error!(
                        error = &*error,
                        "cannot reload certificates; the previous ones stay in use"
                    );
                }
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, ReloadState> {
        // Every statement leaves the state consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Certificates {
    fn build_client(&self, texts: &PemTexts, encrypted: bool) -> Result<Client, TransportError> {
        let builder = Client::builder()
            .redirect(redirect::Policy::none())
            .referer(false)
            .no_proxy()
            .retry(reqwest::retry::never())
            .connect_timeout(CONNECT_TIMEOUT)
            .http2_keep_alive_interval(PING_INTERVAL)
            .http2_keep_alive_timeout(PING_TIMEOUT)
            .http2_keep_alive_while_idle(true)
            .tls_danger_accept_invalid_certs(self.accepts_any_server)
            .user_agent(concat!("tower-doorman/", env!("CARGO_PKG_VERSION")));
        let builder = match &texts.authority {
            Some(pem) => {
                let invalid = |cause| format!("invalid certificate authority: {cause}");
                let certificates = Certificate::from_pem_bundle(pem)
                    .map_err(|error| invalid(error.to_string()))?;
                if certificates.is_empty() {
                    return Err(invalid("no PEM certificate".to_owned()).into());
                }
                builder.tls_certs_only(certificates)
            }
            None if encrypted && !self.accepts_any_server => builder,
            None => builder.tls_certs_only([]),
        };
        let builder = match &texts.identity {
            Some(pem) => builder.identity(
                Identity::from_pem(pem)
                    .map_err(|error| format!("invalid client identity: {error}"))?,
            ),
            None => builder,
        };
        Ok(builder.build()?)
    }
}
