//! The layer.

mod body;
mod future;
mod grpc;
mod refusal_log;
mod response;
mod response_policy;
mod service;

use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use tower_layer::Layer;

use self::response_policy::Manner;
pub use self::{body::LimitBody, future::ResponseFuture, service::LimitService};

use crate::{
    Callers, Limit, Refusal, RequestHead,
    admission::{Admission, DynamicAdmission, Telling, Verdict},
    limiter::Registry,
    rules::Rules,
};

/// Holds a service to limits: made by [`Doorman::layer`](crate::Doorman::layer).
///
/// Every clone of the layer, every service it makes and every clone of those share one state; and limits on one resource, in
/// whatever layer of the process, share one limiter.
#[derive(Debug, Clone)]
#[must_use = "a layer does nothing until a service wears it"]
pub struct LimitLayer {
    decider: Decider,
    rules: Arc<Rules>,
    manner: Arc<Manner>,
}

/// By what a layer decides.
#[derive(Debug, Clone)]
pub(crate) enum Decider {
    InCode(Arc<Admission>),
    DynamicAdmission(Arc<DynamicAdmission>),
}

impl LimitLayer {
    pub(crate) fn new(
        registry: Arc<Registry>,
        callers: Callers,
        limits: impl IntoIterator<Item = Limit>,
    ) -> Self {
        let manner = Arc::new(Manner::new(callers.clone()));
        let admission = Admission::new(registry, callers, limits);
        Self {
            decider: Decider::InCode(Arc::new(admission)),
            rules: Arc::default(),
            manner,
        }
    }

    /// The same layer; these are the rules that it may follow.
    pub(crate) fn with_rules(self, rules: Arc<Rules>) -> Self {
        Self { rules, ..self }
    }

    /// The same layer, which also follows the rules that the control plane has for this [service](crate::Builder::service): they are
    /// fetched in the background from now on, and followed as they change.
    ///
    /// Every rule that matches a request applies, behind the limits in code and in the order of the document, all or nothing with
    /// them. A rule that exempts spares what it matches the rules behind it, but neither those before it nor the limits in code. Where a
    /// rule and a limit in code, or two rules, have one resource, they share its tokens: the burst and fallback of the first of them
    /// count, and the highest priority. A rule's path is compared with that of the whole request, also where the layer is worn by
    /// a nested router. A rule by claims of tokens finds them where the process [verifies](crate::Callers) tokens or a layer further out
    /// does; elsewhere every request lacks its key, and the log says so.
    ///
    /// Until the first rules are known there are none; [`ready`](crate::Doorman::ready) waits for them. The last good rules stay while the
    /// control plane is away, or tells what is not understood whole. A rule that is understood, but that this layer cannot follow, as it
    /// limits no gauges, is not applied: it limits nothing here, and the log and the [snapshot](crate::Doorman::snapshot) say so.
    ///
    /// Let one layer follow the rules on the way of a request: it would spend twice at two of them.
    /// [`Doorman::unlimited`](crate::Doorman::unlimited) and [`Doorman::fixed`](crate::Doorman::fixed) have no rules.
    pub fn and_rules(self) -> Self {
        let Self {
            decider,
            rules,
            manner,
        } = self;
        let following = match decider {
            Decider::InCode(admission) => DynamicAdmission::new(admission),
            Decider::DynamicAdmission(following) => following,
        };
        rules.follow(&following);
        Self {
            decider: Decider::DynamicAdmission(following),
            rules,
            manner,
        }
    }

    /// The same layer, which tells its limits in the fields `RateLimit` and `RateLimit-Policy` of every response, or does not: it does
    /// unless it is told otherwise. A refusal still says when to come back, and which limit refused.
    pub fn headers(mut self, tell: bool) -> Self {
        Arc::make_mut(&mut self.manner).tell_limits(tell);
        self
    }

    /// The same layer, which answers what it refuses by a closure: it sees why, and the head of the request, and gives the whole response,
    /// to requests of gRPC, too. The layer adds the [fields](Self::headers) of its limits, and [`Refusal`] to the extensions.
    ///
    /// [`Refusal::to_response`] is what the layer would answer, to begin with.
    ///
    /// ```
    /// use http::{Response, StatusCode, header::RETRY_AFTER};
    /// use tower_doorman::{Doorman, Limit, RefusalReason};
    ///
    /// let limits = Doorman::unlimited().layer([Limit::rate("api")]).on_refusal(|refusal, head| {
    ///     if refusal.reason() != RefusalReason::Spent {
    ///         return refusal.to_response(head);
    ///     }
    ///     let mut response = Response::new("slow down".into());
    ///     *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    ///     response.headers_mut().insert(RETRY_AFTER, refusal.retry_after_seconds().into());
    ///     response
    /// });
    /// ```
    pub fn on_refusal<F, T>(mut self, answer: F) -> Self
    where
        F: for<'a> Fn(&Refusal, &RequestHead<'a>) -> Response<T> + Send + Sync + 'static,
        T: Into<Bytes>,
    {
        Arc::make_mut(&mut self.manner).answer_by(answer);
        self
    }

    /// Decides on a request at once, for code that has requests but no tower service. What is admitted is spent, of every limit.
    ///
    /// Nothing waits here: a request that would have to, for its turn or for a first lease, is decided by what there is now.
    ///
    /// # Errors
    /// [`Refusal`] when one of the limits does not let it pass; then nothing is spent.
    pub fn try_admit(&self, head: &RequestHead<'_>) -> Result<(), Refusal> {
        let decided = match &self.decider {
            Decider::InCode(admission) => admission.decide_now(head),
            Decider::DynamicAdmission(following) => following.decide_now(head),
        };
        decided.inspect_err(|refusal| refusal.log(head))
    }
}

impl Decider {
    pub(crate) fn decide(&self, head: &RequestHead<'_>, telling: Telling) -> Verdict {
        match self {
            Self::InCode(admission) => admission.decide(head, telling),
            Self::DynamicAdmission(following) => following.decide(head, telling),
        }
    }
}

impl<S> Layer<S> for LimitLayer {
    type Service = LimitService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        LimitService::new(inner, self.decider.clone(), Arc::clone(&self.manner))
    }
}
