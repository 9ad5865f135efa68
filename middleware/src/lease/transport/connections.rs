//! The connections to the control plane, and how they come by new certificates while the process runs.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use doorman_openapi::Moment;
use reqwest::{Certificate, Client, Identity, redirect};
use tokio::task::spawn_blocking;

use super::{
    TransportError,
    certificates::{Certificates, Fingerprint, Texts},
};
use crate::{clock, lease::rarely::Rarely};

/// A connection that cannot be made by then is a failure of its own; the request's own deadline may come first.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// How long something must be wrong with the files before it is told: certificate and key may be written one after the other, and do not
/// go together meanwhile.
const GRACE: Duration = Duration::from_secs(10);

/// A client whose certificates are followed. Requests that are under way end by those they began with.
pub(super) struct Connections {
    certificates: Certificates,
    encrypted: bool,
    current: Mutex<Current>,
}

struct Current {
    client: Client,
    fingerprint: Fingerprint,
    /// Since when anything has been wrong with the files.
    wrong_since: Option<Moment>,
    complaint: Rarely,
}

type Seen = Result<Option<(Client, Fingerprint)>, TransportError>;

impl Connections {
    /// Without TLS no authorities are loaded at all.
    pub(super) fn new(certificates: Certificates, encrypted: bool) -> Result<Self, TransportError> {
        let texts = certificates.read()?;
        let current = Current {
            client: client(&texts, encrypted)?,
            fingerprint: texts.fingerprint(),
            wrong_since: None,
            complaint: Rarely::default(),
        };
        Ok(Self {
            certificates,
            encrypted,
            current: Mutex::new(current),
        })
    }

    /// By which to ask now. Files are read every time, as that of a token is; and whatever is wrong with them, what was good last stays.
    pub(super) async fn client(self: &Arc<Self>) -> Client {
        if self.certificates.change() {
            let connections = Arc::clone(self);
            let seen = spawn_blocking(move || connections.look()).await;
            let seen = seen.unwrap_or_else(|error| Err(error.into()));
            self.consider(seen, clock::now());
        }
        self.current().client.clone()
    }

    /// The client of other certificates than those in use, if there are any.
    fn look(&self) -> Seen {
        let texts = self.certificates.read()?;
        let fingerprint = texts.fingerprint();
        if fingerprint == self.current().fingerprint {
            return Ok(None);
        }
        let client = client(&texts, self.encrypted)?;
        Ok(Some((client, fingerprint)))
    }

    fn consider(&self, seen: Seen, now: Moment) {
        let mut current = self.current();
        let error = match seen {
            Ok(new) => {
                current.wrong_since = None;
                if let Some((client, fingerprint)) = new {
                    current.client = client;
                    current.fingerprint = fingerprint;
                    tracing::info!("new certificates are used with the control plane");
                }
                return;
            }
            Err(error) => error,
        };
        let since = *current.wrong_since.get_or_insert(now);
        if since.after(GRACE) <= now && current.complaint.now(now) {
            tracing::error!(
                error = &*error,
                "the certificates of before stay in use with the control plane: the new ones are of no use"
            );
        }
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        // It is whole after every statement that changes it.
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn client(texts: &Texts, encrypted: bool) -> Result<Client, TransportError> {
    let builder = Client::builder()
        .redirect(redirect::Policy::none())
        .referer(false)
        .no_proxy()
        .retry(reqwest::retry::never())
        .connect_timeout(CONNECT_TIMEOUT)
        .user_agent(concat!("tower-doorman/", env!("CARGO_PKG_VERSION")));
    let builder = match &texts.authority {
        Some(pem) => {
            let certificates = Certificate::from_pem_bundle(pem)?;
            if certificates.is_empty() {
                return Err("there is no certificate in the authority's PEM".into());
            }
            builder.tls_certs_only(certificates)
        }
        None if encrypted => builder,
        None => builder.tls_certs_only([]),
    };
    let builder = match &texts.identity {
        Some(pem) => builder.identity(Identity::from_pem(pem)?),
        None => builder,
    };
    Ok(builder.build()?)
}
