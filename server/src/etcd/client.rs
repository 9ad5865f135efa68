//! Client of etcd's JSON gateway.

mod space;

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use doorman_core::etcd::{EtcdAnswer, EtcdCall, EtcdReply, ReplyHeader};
use doorman_openapi::{Moment, ServerUrl};
use reqwest::{
    Client, Response, StatusCode,
    header::{self, HeaderValue},
};
use serde_json::json;
use tokio::{sync::Mutex, task, time};

use self::space::Space;
use super::{
    EtcdSettings,
    error::{EtcdError, Kind, chain},
    gateway::{self, Failure},
    newest::{NewestSeen, Reply},
    tls_files::TlsFiles,
};
use crate::util::{clock, log_throttle::LogThrottle};

/// Size limit of a reply.
const MAX_BYTES: usize = 8 * 1024 * 1024;

/// Calls etcd at one of its endpoints: at the next one after each failure, so that an endpoint that
/// does not answer costs one call. Clones share connections and token.
#[derive(Debug, Clone)]
pub struct EtcdClient(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    settings: EtcdSettings,
    /// Replaced when the certificates have changed.
    http: ArcSwap<(Client, TlsFiles)>,
    invalid_files: LogThrottle,
    /// Index of the endpoint in use, modulo their number.
    current: AtomicUsize,
    newest: NewestSeen,
    space: Space,
    /// Locked during an authentication, so that concurrent calls share it.
    token: Mutex<Option<HeaderValue>>,
}

/// Why a call failed at an endpoint.
enum CallError {
    Answered(StatusCode, Failure),
    Other(EtcdError),
}

impl EtcdClient {
    /// Reads the certificates, and begins with a random endpoint, so that several servers do not
    /// all use the same. Blocks on the file system.
    ///
    /// # Errors
    /// [`EtcdError`] if a file that the settings name cannot be used.
    pub fn new(settings: &EtcdSettings) -> Result<Self, EtcdError> {
        if settings.endpoints.is_empty() {
            let reason = "must have at least one endpoint";
            return Err(EtcdError::new("--etcd-endpoints", reason, Kind::Refused));
        }
        if let Some(user) = &settings.user {
            let flag = "--etcd-password-file";
            (user.password())
                .map_err(|error| EtcdError::in_file(flag, &user.password_file, error))?;
        }
        let files = TlsFiles::read(settings)?;
        Ok(Self(Arc::new(Inner {
            http: ArcSwap::from_pointee((files.client(settings)?, files)),
            current: AtomicUsize::new(fastrand::usize(..settings.endpoints.len())),
            settings: settings.clone(),
            invalid_files: LogThrottle::per_minute(),
            newest: NewestSeen::default(),
            space: Space::default(),
            token: Mutex::new(None),
        })))
    }

    /// Executes a call at one endpoint within a time, in which it also authenticates if necessary.
    /// A reply that knows less of etcd's history than an earlier one is an error.
    ///
    /// # Errors
    /// [`EtcdError`]; see [`is_ambiguous`](EtcdError::is_ambiguous).
    ///
    /// # Cancel safety
    /// A call that is dropped may have been executed, and the next one uses the same endpoint.
    pub async fn call(&self, call: EtcdCall, time: Duration) -> Result<EtcdReply, EtcdError> {
        Ok(self.answer(call, time).await?.reply)
    }

    /// The same, with the header of the reply.
    ///
    /// # Errors
    /// As [`call`](Self::call).
    ///
    /// # Cancel safety
    /// As [`call`](Self::call).
    pub async fn answer(&self, call: EtcdCall, time: Duration) -> Result<EtcdAnswer, EtcdError> {
        let result = self.0.call(&call, time).await;
        if result.as_ref().is_err_and(EtcdError::is_of_endpoint) && self.0.settings.has_tls_files()
        {
            // The endpoint or this client may need a new certificate.
            let inner = Arc::clone(&self.0);
            drop(task::spawn_blocking(move || inner.reload_files()));
        }
        result
    }

    /// For how long all endpoints that execute calls have known less than this server has seen.
    pub(crate) fn behind_for(&self, now: Moment) -> Option<Duration> {
        self.0.newest.behind_for(now)
    }

    /// Uses the endpoint of this index next.
    #[cfg(test)]
    pub(crate) fn begin_with(&self, endpoint: usize) {
        self.0.current.store(endpoint, Ordering::Relaxed);
    }
}

impl Inner {
    /// Uses the certificates that the files have now. Invalid ones never replace valid ones. Blocks
    /// on the file system.
    fn reload_files(&self) {
        let changed = || {
            let files = TlsFiles::read(&self.settings)?;
            if self.http.load().1 == files {
                return Ok(None);
            }
            Ok(Some((files.client(&self.settings)?, files)))
        };
        match changed() {
            Ok(None) => {}
            Ok(Some(new)) => {
                self.http.store(new.into());
                tracing::info!("certificates for etcd reloaded");
            }
            Err::<_, EtcdError>(error) => {
                if self.invalid_files.admit(clock::now()).is_some() {
                    tracing::warn!(%error, "invalid certificates for etcd; the previous ones stay");
                }
            }
        }
    }

    async fn call(&self, call: &EtcdCall, time: Duration) -> Result<EtcdAnswer, EtcdError> {
        let current = self.current.load(Ordering::Relaxed);
        let at = self.endpoint(current)?;
        let sent = self.newest.get();
        let result = within(time, at.1, self.call_at(at.1, call)).await;
        let result = result.and_then(|answer| match call {
            // Its reply has no header, and tells nothing.
            EtcdCall::RevokeLease(_) => Ok(answer),
            EtcdCall::KeepAlive(_) | EtcdCall::TimeToLive(_) => {
                self.admit(sent, at, answer.header, false).map(|()| answer)
            }
            EtcdCall::GrantLease { .. } | EtcdCall::Txn(_) => {
                self.admit(sent, at, answer.header, true).map(|()| answer)
            }
        });
        match &result {
            Ok(_) if call.needs_space() => self.space.set(false),
            Err(error) if error.is_out_of_space() => self.space.set(true),
            _ => {}
        }
        // Of several calls that fail together, one selects the next endpoint.
        if let Err(error) = &result
            && error.is_of_endpoint()
            && self.current.load(Ordering::Relaxed) == current
        {
            (self.current).store(current.wrapping_add(1), Ordering::Relaxed);
        }
        result
    }

    /// An endpoint with its index. `number` may be larger than the number of endpoints.
    fn endpoint(&self, number: usize) -> Result<(usize, &ServerUrl), EtcdError> {
        let endpoints = &self.settings.endpoints;
        let index = number.checked_rem(endpoints.len());
        index
            .and_then(|index| Some((index, endpoints.get(index)?)))
            .ok_or_else(|| EtcdError::new("etcd", "no endpoint", Kind::Refused))
    }

    /// An error if the reply knows less than an earlier one. `sent` is what was known when the call
    /// was sent; `is_executed` whether a quorum has executed the call.
    fn admit(
        &self,
        sent: Option<ReplyHeader>,
        (index, endpoint): (usize, &ServerUrl),
        header: ReplyHeader,
        is_executed: bool,
    ) -> Result<(), EtcdError> {
        let reply = Reply {
            header,
            is_executed,
            endpoint: (index, self.settings.endpoints.len()),
        };
        if self.newest.admit(sent, reply, clock::now()) {
            return Ok(());
        }
        let reason = "stale reply: this member knows less than another one did before";
        Err(EtcdError::new(endpoint, reason, Kind::Unknown))
    }

    /// Whether etcd is out of space, by the first endpoint that answers, each within a time.
    async fn has_space_alarm(&self, time: Duration) -> Result<bool, EtcdError> {
        let first = self.current.load(Ordering::Relaxed);
        let mut tried = 0;
        loop {
            let at = self.endpoint(first.wrapping_add(tried))?;
            let asked = within(time, at.1, self.space_alarm_at(at)).await;
            tried += 1;
            if asked.is_ok() || tried >= self.settings.endpoints.len() {
                return asked;
            }
        }
    }

    async fn space_alarm_at(&self, at: (usize, &ServerUrl)) -> Result<bool, EtcdError> {
        let (endpoint, sent) = (at.1, self.newest.get());
        let (path, body) = gateway::alarms();
        let answered = self.post_with_token(endpoint, path, body.to_string());
        let body = answered.await?.map_err(|error| error.at(endpoint))?;
        let (has_alarm, header) =
            gateway::has_space_alarm(&body).map_err(|reason| unexpected(endpoint, &reason))?;
        // A quorum executes this call, too.
        let admitted = header.map_or(Ok(()), |header| self.admit(sent, at, header, true));
        admitted.map(|()| has_alarm)
    }

    async fn call_at(
        &self,
        endpoint: &ServerUrl,
        call: &EtcdCall,
    ) -> Result<EtcdAnswer, EtcdError> {
        let (path, body) = gateway::request(call);
        match self
            .post_with_token(endpoint, path, body.to_string())
            .await?
        {
            Ok(body) => gateway::reply(call, &body).map_err(|reason| unexpected(endpoint, &reason)),
            Err(CallError::Answered(_, failure)) if failure.is_not_found() => {
                gateway::reply_without_lease(call)
                    .ok_or_else(|| EtcdError::new(endpoint, failure.message, Kind::Refused))
            }
            Err(error) => Err(error.at(endpoint)),
        }
    }

    /// The body of a successful response, with a new token if etcd wants one.
    async fn post_with_token(
        &self,
        endpoint: &ServerUrl,
        path: &str,
        body: String,
    ) -> Result<Result<Vec<u8>, CallError>, EtcdError> {
        let mut token = self.token(endpoint, None).await?;
        let mut answered = self
            .post(endpoint, path, body.clone(), token.as_ref())
            .await;
        if let Err(CallError::Answered(_, failure)) = &answered
            && failure.is_of_token()
            && self.settings.user.is_some()
        {
            token = self.token(endpoint, Some(token.as_ref())).await?;
            answered = self.post(endpoint, path, body, token.as_ref()).await;
        }
        Ok(answered)
    }

    /// The token of the user. `refused` is the one that etcd no longer accepts.
    async fn token(
        &self,
        endpoint: &ServerUrl,
        refused: Option<Option<&HeaderValue>>,
    ) -> Result<Option<HeaderValue>, EtcdError> {
        let Some(user) = self.settings.user.clone() else {
            return Ok(None);
        };
        let mut token = self.token.lock().await;
        if token.is_some() && refused != Some(token.as_ref()) {
            return Ok(token.clone());
        }
        let (name, file) = (user.name.clone(), user.password_file.clone());
        let password = task::spawn_blocking(move || user.password()).await;
        let password = password
            .map_err(io::Error::from)
            .flatten()
            .map_err(|error| EtcdError::in_file("--etcd-password-file", &file, error))?;
        let body = json!({ "name": name, "password": password }).to_string();
        let body = match self
            .post(endpoint, "/v3/auth/authenticate", body, None)
            .await
        {
            Ok(body) => body,
            // It is enabled later perhaps; then etcd refuses calls without a token.
            Err(CallError::Answered(_, failure)) if failure.is_without_authentication() => {
                *token = None;
                return Ok(None);
            }
            Err(error) => return Err(error.at(endpoint)),
        };
        let new = gateway::token(&body).ok();
        let new = new.and_then(|new| HeaderValue::from_str(&new).ok());
        let Some(mut new) = new else {
            let reason = "unexpected reply to the authentication";
            return Err(EtcdError::new(endpoint, reason, Kind::Unknown));
        };
        new.set_sensitive(true);
        *token = Some(new.clone());
        Ok(Some(new))
    }

    /// The body of a successful response.
    async fn post(
        &self,
        endpoint: &ServerUrl,
        path: &str,
        body: String,
        token: Option<&HeaderValue>,
    ) -> Result<Vec<u8>, CallError> {
        let failed = |error: reqwest::Error| {
            let kind = if error.is_connect() {
                Kind::Unreachable
            } else {
                Kind::Unknown
            };
            CallError::Other(EtcdError::new(endpoint, chain(&error.without_url()), kind))
        };
        let client = self.http.load().0.clone();
        let mut request = client
            .post(format!("{endpoint}{path}"))
            .header(header::CONTENT_TYPE, "application/json")
            .body(body);
        if let Some(token) = token {
            request = request.header(header::AUTHORIZATION, token);
        }
        if self.newest.is_behind() {
            // The next connection to a balancer may lead to another member.
            request = request.header(header::CONNECTION, "close");
        }
        let response = request.send().await.map_err(failed)?;
        let status = response.status();
        let body = read(response).await.map_err(failed)?;
        let unknown =
            |reason: &str| CallError::Other(EtcdError::new(endpoint, reason, Kind::Unknown));
        let body = body.ok_or_else(|| unknown("the reply is larger than 8 MiB"))?;
        if status.is_success() {
            return Ok(body);
        }
        Err(match Failure::parse(&body) {
            Some(failure) => CallError::Answered(status, failure),
            None => unknown(&format!("status {status}; is its JSON gateway enabled?")),
        })
    }
}

impl CallError {
    fn at(self, endpoint: &ServerUrl) -> EtcdError {
        match self {
            Self::Other(error) => error,
            Self::Answered(status, failure) => {
                if failure.is_of_space() {
                    let reason = format_args!("{}; {}", failure.message, space::ADVICE);
                    return EtcdError::new(endpoint, reason, Kind::OutOfSpace);
                }
                let kind = if failure.is_of_size() {
                    Kind::TooLarge
                } else if status.is_server_error() {
                    // Such as a change of etcd's leader.
                    Kind::Unknown
                } else {
                    Kind::Refused
                };
                EtcdError::new(endpoint, failure.message, kind)
            }
        }
    }
}

/// The result of a call at an endpoint, or an error after a time.
async fn within<T>(
    time: Duration,
    endpoint: &ServerUrl,
    call: impl Future<Output = Result<T, EtcdError>>,
) -> Result<T, EtcdError> {
    time::timeout(time, call).await.unwrap_or_else(|_| {
        let reason = format!("no answer within {} ms", time.as_millis());
        Err(EtcdError::new(endpoint, reason, Kind::Unknown))
    })
}

fn unexpected(endpoint: &ServerUrl, reason: &str) -> EtcdError {
    let reason = format_args!("unexpected reply: {reason}");
    EtcdError::new(endpoint, reason, Kind::Unknown)
}

/// The body; `None` if it is too large.
async fn read(mut response: Response) -> Result<Option<Vec<u8>>, reqwest::Error> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        if body.len().saturating_add(chunk.len()) > MAX_BYTES {
            return Ok(None);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Some(body))
}

#[cfg(test)]
mod tests;
