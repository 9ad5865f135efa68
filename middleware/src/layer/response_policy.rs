//! How a layer speaks to callers: whether it tells its limits, and what it says when it refuses.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use http::Response;

use crate::{
    Callers, Refusal, RequestHead,
    admission::{Denial, Fields, Telling},
};

type Answering = dyn for<'a> Fn(&Refusal, &RequestHead<'a>) -> Response<Bytes> + Send + Sync;

/// What a layer says, whatever it decides.
#[derive(Clone)]
pub(crate) struct Manner {
    /// Who callers are, for whoever answers them.
    callers: Callers,
    telling: Telling,
    /// What answers instead of the refusal itself.
    on_refusal: Option<Arc<Answering>>,
}

impl Manner {
    pub(crate) fn new(callers: Callers) -> Self {
        Self {
            callers,
            telling: Telling::Limits,
            on_refusal: None,
        }
    }

    pub(crate) fn tell_limits(&mut self, tells: bool) {
        self.telling = if tells {
            Telling::Limits
        } else {
            Telling::Nothing
        };
    }

    /// Whether responses tell the limits.
    pub(crate) fn telling(&self) -> Telling {
        self.telling
    }

    pub(crate) fn answer_by<F, T>(&mut self, answer: F)
    where
        F: for<'a> Fn(&Refusal, &RequestHead<'a>) -> Response<T> + Send + Sync + 'static,
        T: Into<Bytes>,
    {
        self.on_refusal = Some(Arc::new(move |refusal, head| {
            answer(refusal, head).map(Into::into)
        }));
    }

    /// What the response of the service is given along.
    pub(crate) fn of_admitted(&self, fields: Fields) -> Fields {
        match self.telling {
            Telling::Limits => fields,
            Telling::Nothing => Fields::default(),
        }
    }

    /// The response to a request that is refused.
    pub(crate) fn of_refused(&self, denial: Denial, head: &RequestHead<'_>) -> Response<Bytes> {
        let Denial { refusal, fields } = denial;
        refusal.log(head);
        let mut response = match &self.on_refusal {
            Some(answer) => answer(&refusal, &head.seen_by(&self.callers)),
            None => refusal.to_response(head),
        };
        self.of_admitted(fields).append_to(response.headers_mut());
        response.extensions_mut().insert(refusal);
        response
    }
}

impl fmt::Debug for Manner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Manner")
            .field("telling", &self.telling)
            .field("answers_itself", &self.on_refusal.is_none())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
