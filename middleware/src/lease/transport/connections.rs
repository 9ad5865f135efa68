//! The connections to the control plane, and how they come by new certificates while the process runs.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use doorman_openapi::Moment;
use reqwest::{Certificate, Client, Identity, redirect};
use tokio::{task::spawn_blocking, time::timeout};

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

/// A request waits so long for the files, and is then sent by what was good last: a file system that does not answer costs no lease.
const LOOK_TIME: Duration = Duration::from_millis(500);

/// The files are not read more often than this: there may be hundreds of requests a second.
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);

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
    look: Look,
}

/// When the files are read next. No two look at once: one that is stuck takes one thread, not one with every request, and none puts back
/// what a later one has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    NotBefore(Moment),
    UnderWay { since: Moment },
}

/// A look under way. It is over when this is dropped, whatever became of it.
struct Looking(Arc<Connections>);

impl Drop for Looking {
    fn drop(&mut self) {
        self.0.current().look = Look::NotBefore(clock::now().after(BETWEEN_LOOKS));
    }
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
            look: Look::NotBefore(Moment::ORIGIN),
        };
        Ok(Self {
            certificates,
            encrypted,
            current: Mutex::new(current),
        })
    }

    /// By which to ask now: whatever is wrong with the files, what was good last stays.
    ///
    /// # Cancel safety
    /// A look that has begun comes to its end without whoever began it.
    pub(super) async fn client(self: &Arc<Self>) -> Client {
        if self.certificates.change()
            && let Some(looking) = self.begin(clock::now())
        {
            let look = spawn_blocking(move || {
                let seen = looking.0.look();
                looking.0.consider(seen, clock::now());
            });
            // What it has found is in its place, or will be for those who come later.
            drop(timeout(LOOK_TIME, look).await);
        }
        self.current().client.clone()
    }

    /// Begins to look, if it is time and nobody does.
    fn begin(self: &Arc<Self>, now: Moment) -> Option<Looking> {
        let mut current = self.current();
        match current.look {
            Look::NotBefore(moment) if moment <= now => {
                current.look = Look::UnderWay { since: now };
                Some(Looking(Arc::clone(self)))
            }
            Look::NotBefore(_) => None,
            Look::UnderWay { since } => {
                if since.after(GRACE) <= now && current.complaint.now(now) {
                    tracing::error!(
                        "the certificates of before stay in use with the control plane: their files cannot be read to their end"
                    );
                }
                None
            }
        }
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

#[cfg(test)]
mod tests;
