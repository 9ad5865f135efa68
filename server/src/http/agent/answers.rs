//! The last answers to forwarded requests, by the id of the request.
//!
//! nginx asks again for the same request after each internal redirect.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::{
    body::Bytes,
    http::{HeaderName, HeaderValue, Request, Response, header},
};
use doorman_openapi::Moment;
use sha2::{Digest as _, Sha256};

use crate::util::clock;

/// How long an answer is repeated.
const LIFETIME: Duration = Duration::from_secs(1);

/// Beyond it the oldest answer is forgotten.
const MAX_ANSWERS: usize = 4096;

/// The answers of the last second, at most [`MAX_ANSWERS`].
#[derive(Debug)]
pub(crate) struct RecentAnswers {
    header: HeaderName,
    state: Mutex<AnswersById>,
}

#[derive(Debug, Default)]
struct AnswersById {
    answers: HashMap<RequestId, Response<Bytes>>,
    by_age: VecDeque<(Moment, RequestId)>,
}

/// The id of a request, which only its proxy chooses.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct RequestId(Arc<[u8]>);

impl RequestId {
    const MAX_LENGTH: usize = 128;

    /// `None` if it is empty or too long.
    pub(super) fn new(value: &HeaderValue) -> Option<Self> {
        let is_valid = (1..=Self::MAX_LENGTH).contains(&value.len());
        // A copy: the value keeps the buffer of the connection.
        is_valid.then(|| Self(value.as_bytes().into()))
    }

    /// With the method, host and path, so that another request with this id is another one.
    pub(super) fn of(&self, request: &Request<()>) -> Self {
        let mut hasher = Sha256::new();
        let host = request.headers().get(header::HOST);
        for part in [
            self.0.as_ref(),
            request.method().as_str().as_bytes(),
            host.map_or(&[][..], HeaderValue::as_bytes),
            request.uri().to_string().as_bytes(),
        ] {
            hasher.update(part.len().to_le_bytes());
            hasher.update(part);
        }
        Self(hasher.finalize().as_slice().into())
    }
}

impl RecentAnswers {
    /// For requests with their id in this header.
    pub(crate) fn new(header: HeaderName) -> Self {
        Self {
            header,
            state: Mutex::default(),
        }
    }

    pub(super) fn header(&self) -> &HeaderName {
        &self.header
    }

    pub(super) fn find(&self, id: &RequestId) -> Option<Response<Bytes>> {
        let mut state = self.state();
        state.forget_old(clock::now());
        state.answers.get(id).cloned()
    }

    /// The first answer to a request counts.
    pub(super) fn insert(&self, id: RequestId, answer: Response<Bytes>) {
        let now = clock::now();
        let mut state = self.state();
        state.forget_old(now);
        if state.answers.contains_key(&id) {
            return;
        }
        if state.by_age.len() >= MAX_ANSWERS {
            state.forget_oldest();
        }
        state.by_age.push_back((now, id.clone()));
        state.answers.insert(id, answer);
    }

    fn state(&self) -> MutexGuard<'_, AnswersById> {
        // An answer without an age, or an age without an answer, does no harm.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AnswersById {
    fn forget_old(&mut self, now: Moment) {
        while let Some((at, _)) = self.by_age.front()
            && now >= at.after(LIFETIME)
        {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some((_, id)) = self.by_age.pop_front() {
            self.answers.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn answers_are_bounded() {
        let recent = RecentAnswers::new(HeaderName::from_static("x-request-id"));
        let id = |it: usize| RequestId::new(&HeaderValue::from(it)).unwrap();
        for it in 0..=MAX_ANSWERS {
            recent.insert(id(it), Response::default());
            recent.insert(id(it), Response::default());
        }
        assert_eq!(recent.state().answers.len(), MAX_ANSWERS);
        assert!(recent.find(&id(0)).is_none());
        assert!(recent.find(&id(1)).is_some());
        tokio::time::advance(LIFETIME).await;
        assert!(recent.find(&id(1)).is_none());
        assert_eq!(recent.state().answers.len(), 0);
    }
}
