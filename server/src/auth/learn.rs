//! What a source has now comes into force, or what was in force stays.

use std::sync::{
    Arc, PoisonError,
    atomic::Ordering::{Acquire, Release},
};

use super::{
    Auth,
    remote::Asked,
    source::{Place, Source},
    verifier,
};
use crate::util::clock;

impl Auth {
    /// Asks the issuer for its keys, unless it was asked just now, and learns whatever it answers.
    pub(super) async fn learn_keys(&self) {
        let Some(remote) = &self.remote else { return };
        remote
            .ask(clock::now, |asked| match asked {
                Asked::Answer(bytes) => {
                    if let Some(index) = self.index_of_remote() {
                        self.learn(index, bytes);
                    }
                }
                Asked::Nothing(why) => {
                    tracing::warn!(
                        url = remote.url,
                        why,
                        "the issuer's keys cannot be had; those of before stay"
                    );
                }
                Asked::TooSoon => {}
            })
            .await;
    }

    /// The sources as they are now.
    pub(super) fn sources(&self) -> Arc<Vec<Source>> {
        let sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&sources)
    }

    fn index_of_remote(&self) -> Option<usize> {
        let is_remote = |source: &Source| matches!(source.place, Place::Remote(_));
        self.sources().iter().position(is_remote)
    }

    /// Whether the keys at the address have ever come; a verifier that is loaded after that has had them.
    pub(super) fn has_come(&self) -> bool {
        self.has_come.load(Acquire)
    }

    /// Takes what a source has now, if it is good and not what it had.
    pub(super) fn learn(&self, index: usize, bytes: Vec<u8>) {
        loop {
            let before = self.sources();
            let mut after = Vec::clone(&before);
            let Some(source) = after.get_mut(index) else {
                return;
            };
            if source.has_had(&bytes) {
                return;
            }
            source.take(bytes.clone());
            let (flag, name) = (source.purpose.flag(), source.name());
            // A large file takes its time, for which nobody has to wait.
            let built = verifier(&self.settings, &after);

            let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
            if !Arc::ptr_eq(&sources, &before) {
                // Another source has changed meanwhile, and this verifier knows nothing of it.
                continue;
            }
            match built {
                Ok(mut verifier) => {
                    verifier.known = self.verifier.load().known.to_verify_anew();
                    let all_have_come = after.iter().all(|source| source.good.is_some());
                    *sources = Arc::new(after);
                    self.verifier.store(Arc::new(verifier));
                    self.has_come.store(all_have_come, Release);
                    tracing::info!(from = name, "{flag} has changed and is in force");
                }
                Err(error) => {
                    let mut after = Vec::clone(&before);
                    if let Some(source) = after.get_mut(index) {
                        source.refused = Some(bytes);
                    }
                    *sources = Arc::new(after);
                    tracing::error!("what was in force stays: {error}");
                }
            }
            return;
        }
    }
}
