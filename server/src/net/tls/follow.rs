//! The files are followed as they change.
//!
//! They are taken when they have held still for a moment. Certificate and key may be written one after the other, so that they do not go
//! together in between: what was good stays, whatever is wrong is tried again and again, and told when it has been so for a while.

use std::{sync::Arc, sync::atomic::Ordering::Relaxed, time::Duration};

use doorman_openapi::Moment;
use tokio::{task, time::sleep};

use super::{Certificate, Files, Tls, TlsError, files::CERTIFICATE, validity::Within};
use crate::util::{clock, watch::Watch};

/// How often it looks by itself: not every file system tells of changes, and a link may point to where nobody watches.
const LOOK: Duration = Duration::from_secs(5);

/// How long the files must hold still.
const STILL: Duration = Duration::from_millis(250);

/// How long something must be wrong before it is told: as long as who writes one file after the other may take.
const GRACE: Duration = Duration::from_secs(10);

/// What is wrong with the files.
#[derive(Debug)]
struct Trouble {
    error: TlsError,
    /// Since when anything has been.
    since: Moment,
    is_told: bool,
}

/// What a look at the files has come to.
enum Seen {
    /// They are those of the certificate in force.
    InForce,
    /// They are being written.
    Unsettled,
    /// They are new, and good.
    Good(Box<Certificate>),
    Wrong(TlsError),
}

impl Tls {
    /// Follows the files. Connections that stand go on; handshakes that begin go by what is in force then.
    ///
    /// # Cancel safety
    /// What was good last stays.
    pub(crate) async fn follow(self: Arc<Self>) {
        let mut watch = Watch::of(self.settings.directories());
        let mut trouble = None;
        loop {
            let again = match self.look().await {
                Seen::Unsettled => STILL,
                seen => {
                    self.consider(seen, &mut trouble, clock::now());
                    LOOK
                }
            };
            tokio::select! {
                // Others may write to the folder without end: a look now and then is enough.
                () = watch.changed() => sleep(STILL).await,
                () = sleep(again) => {}
            }
        }
    }

    /// Looks at the files, twice if they have changed.
    async fn look(self: &Arc<Self>) -> Seen {
        let first = match self.read().await {
            Ok(files) if files.digest() == self.certificate.load().digest => return Seen::InForce,
            first => first,
        };
        sleep(STILL).await;
        let second = self.read().await;
        if first != second {
            return Seen::Unsettled;
        }
        match second.and_then(|files| self.certificate_of(&files)) {
            Ok(certificate) => Seen::Good(Box::new(certificate)),
            Err(error) => Seen::Wrong(error),
        }
    }

    async fn read(self: &Arc<Self>) -> Result<Files, TlsError> {
        let tls = Arc::clone(self);
        let read = task::spawn_blocking(move || Files::read(&tls.settings)).await;
        read.unwrap_or_else(|error| Err(self.wrong(error.to_string())))
    }

    /// The certificate of new files, if it is better than the one in force: it counts now, or that one does not either.
    fn certificate_of(&self, files: &Files) -> Result<Certificate, TlsError> {
        let new = Certificate::new(files, &self.settings)?;
        let now = clock::unix_seconds();
        let is_worse = match new.validity.at(now) {
            Within::Valid => return Ok(new),
            Within::Before => "is not valid yet",
            Within::Expired => "has expired",
        };
        match self.certificate.load().validity.at(now) {
            Within::Valid => Err(self.wrong(format!("{is_worse}, and the one before is valid"))),
            Within::Before | Within::Expired => Ok(new),
        }
    }

    fn wrong(&self, why: String) -> TlsError {
        TlsError::new(CERTIFICATE, &self.settings.certificate, why)
    }

    /// Takes what is good, and tells what has been wrong for a while.
    fn consider(&self, seen: Seen, trouble: &mut Option<Trouble>, now: Moment) {
        let error = match seen {
            Seen::Unsettled => return,
            Seen::InForce => {
                *trouble = None;
                self.is_behind.store(false, Relaxed);
                return;
            }
            Seen::Good(new) => {
                *trouble = None;
                tracing::info!(
                    not_after = new.validity.not_after,
                    "a new certificate is in force: {}",
                    self.settings.certificate.display()
                );
                self.certificate.store(Arc::new(*new));
                self.applied.fetch_add(1, Relaxed);
                self.is_behind.store(false, Relaxed);
                return;
            }
            Seen::Wrong(error) => error,
        };
        let mut known = match trouble.take() {
            Some(known) if known.error == error => known,
            before => Trouble {
                error,
                since: before.map_or(now, |it| it.since),
                is_told: false,
            },
        };
        if !known.is_told && now >= known.since.after(GRACE) {
            known.is_told = true;
            tracing::error!("the certificate of before stays in force: {}", known.error);
            self.refused.fetch_add(1, Relaxed);
            self.is_behind.store(true, Relaxed);
        }
        *trouble = Some(known);
    }
}
