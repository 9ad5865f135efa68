//! Reload of the certificate when its files change.
//!
//! A file that cannot be used never replaces the active certificate. It is tried again at each poll
//! and reported after some time: certificate and key may be written one after the other.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use doorman_openapi::Moment;

use super::{
    Tls,
    certificate::{CERTIFICATE, Certificate, Files},
};
use crate::util::{clock, follow::FileFollower, small_file::FileError};

/// How long files may be unusable before it is reported.
const REPORT_AFTER: Duration = Duration::from_secs(10);

/// Files that cannot be used.
#[derive(Debug)]
struct Rejected {
    error: FileError,
    /// When the files became unusable, with this or another error.
    since: Moment,
    is_reported: bool,
}

impl Tls {
    /// Reloads the certificate whenever its files change. Open connections are not affected.
    ///
    /// # Cancel safety
    /// The active certificate stays active.
    pub(crate) async fn follow(self: Arc<Self>) {
        let settings = self.settings.clone();
        let read = move || Files::read(&settings);
        let mut follower = FileFollower::new(self.settings.directories(), read);
        let mut rejected = None;
        loop {
            let is_active = |files: &Result<Files, FileError>| {
                let files = files.as_ref();
                files.is_ok_and(|files| files.digest() == self.active.load().digest)
            };
            let files = follower.next(is_active).await;
            if is_active(&files) {
                if rejected.take().is_some_and(|it: Rejected| it.is_reported) {
                    tracing::info!(
                        "TLS files are valid again; the active certificate is theirs: {}",
                        self.settings.certificate.display()
                    );
                }
                self.is_stale.store(false, Relaxed);
                continue;
            }
            match files.and_then(|files| self.acceptable(&files)) {
                Ok(certificate) => {
                    let was_reported = rejected.take().is_some_and(|it| it.is_reported);
                    self.activate(certificate, was_reported);
                }
                Err(error) => self.reject(error, &mut rejected, clock::now()),
            }
        }
    }

    /// The certificate of new files, if it is valid now or the active one is not valid either.
    fn acceptable(&self, files: &Files) -> Result<Certificate, FileError> {
        let new = Certificate::new(files, &self.settings)?;
        let now = clock::unix_seconds();
        match new.validity.problem(now) {
            Some(problem) if self.active.load().validity.problem(now).is_none() => {
                Err(FileError::new(
                    CERTIFICATE,
                    &self.settings.certificate,
                    format!("{problem}, and the active certificate is valid"),
                ))
            }
            _ => Ok(new),
        }
    }

    fn activate(&self, certificate: Certificate, was_reported: bool) {
        let again = if was_reported {
            "; TLS files are valid again"
        } else {
            ""
        };
        tracing::info!(
            not_after = certificate.validity.not_after,
            "certificate reloaded{again}: {}",
            self.settings.certificate.display()
        );
        self.active.store(Arc::new(certificate));
        self.reloads.count("applied");
        self.is_stale.store(false, Relaxed);
    }

    /// Reports each error once, when the files have been unusable for [`REPORT_AFTER`].
    fn reject(&self, error: FileError, rejected: &mut Option<Rejected>, now: Moment) {
        let current = match rejected.take() {
            Some(same) if same.error == error => same,
            other => Rejected {
                error,
                since: other.map_or(now, |it| it.since),
                is_reported: false,
            },
        };
        let current = rejected.insert(current);
        if !current.is_reported && now >= current.since.after(REPORT_AFTER) {
            current.is_reported = true;
            tracing::error!(
                "certificate reload rejected; the active certificate stays: {}",
                current.error
            );
            self.reloads.count("refused");
            self.is_stale.store(true, Relaxed);
        }
    }
}
