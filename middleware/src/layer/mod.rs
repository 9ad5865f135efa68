//! The tower layer.

mod body;
mod future;
mod grpc;
mod response;
mod service;

use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use tower_layer::Layer;

use self::response::ResponsePolicy;
pub use self::{body::LimitBody, future::ResponseFuture, service::LimitService};
use crate::{
    admission::{Admission, AdmissionSource, CannotWait, DynamicAdmission, HeaderPolicy},
    key::{Callers, RequestHead},
    limit::Limit,
    limiter::Registry,
    permit::Permit,
    refusal::Refusal,
    rules::Rules,
};

/// Applies limits to a service: made by [`Doorman::layer`](crate::Doorman::layer). Clones share one
/// state. Limits on the same resource share one limiter, in all layers of the process.
#[derive(Debug, Clone)]
#[must_use = "a layer does nothing until it wraps a service"]
pub struct LimitLayer {
    admission: AdmissionSource,
    rules: Arc<Rules>,
    responses: Arc<ResponsePolicy>,
}

impl LimitLayer {
    pub(crate) fn new(
        registry: Arc<Registry>,
        callers: Callers,
        limits: impl IntoIterator<Item = Limit>,
    ) -> Self {
        let responses = Arc::new(ResponsePolicy::new(callers.clone()));
        let admission = Admission::new(registry, callers, limits);
        Self {
            admission: AdmissionSource::Code(Arc::new(admission)),
            rules: Arc::default(),
            responses,
        }
    }

    pub(crate) fn with_rules(self, rules: Arc<Rules>) -> Self {
        Self { rules, ..self }
    }

    /// Also follows the rules of the control plane for this [service](crate::Builder::service),
    /// fetched and updated in the background.
    ///
    /// Every matching rule applies, after the limits in code and in the order of the document, all
    /// or nothing with them. A rule that exempts affects only the rules after it. Limits and rules
    /// on one resource share its tokens: the burst and fallback of the first apply, and the highest
    /// priority. Paths are those of the whole request, also in a nested router. Rules by token
    /// claims need tokens [verified](crate::Callers) here or by an outer layer.
    ///
    /// There are no rules until the first are fetched; [`ready`](crate::Doorman::ready) waits for
    /// them. The last valid rules stay while the control plane is unreachable or sends invalid
    /// ones. Only one layer on the path of
    /// a request should follow the rules: each spends.
    /// [`Doorman::unlimited`](crate::Doorman::unlimited) and
    /// [`Doorman::fixed`](crate::Doorman::fixed) have none.
    pub fn and_rules(self) -> Self {
        let dynamic = match self.admission {
            AdmissionSource::Code(admission) => DynamicAdmission::new(admission),
            AdmissionSource::WithRules(dynamic) => dynamic,
        };
        self.rules.follow(&dynamic);
        Self {
            admission: AdmissionSource::WithRules(dynamic),
            ..self
        }
    }

    /// Whether responses have the headers `RateLimit` and `RateLimit-Policy`: true by default.
    /// Refusals have `Retry-After` and the name of the limit in any case.
    pub fn headers(mut self, send: bool) -> Self {
        let policy = if send {
            HeaderPolicy::Send
        } else {
            HeaderPolicy::Omit
        };
        Arc::make_mut(&mut self.responses).set_headers(policy);
        self
    }

    /// For the requests of this process to others. A request waits for the first lease of its
    /// resource, for at most five seconds unless [`Limit::wait_for_lease`] says otherwise; then the
    /// fallback applies. [`try_admit`](Self::try_admit) does not wait. Responses have no
    /// [headers](Self::headers) of the layer. A
    #[cfg_attr(feature = "reqwest", doc = "[`LimitedClient`](crate::LimitedClient)")]
    #[cfg_attr(not(feature = "reqwest"), doc = "`LimitedClient`")]
    /// does the same.
    pub fn outbound(self) -> Self {
        let admission = match self.admission {
            AdmissionSource::Code(admission) => {
                AdmissionSource::Code(Arc::new(admission.outbound()))
            }
            AdmissionSource::WithRules(dynamic) => {
                let dynamic = dynamic.outbound();
                self.rules.follow(&dynamic);
                AdmissionSource::WithRules(dynamic)
            }
        };
        Self { admission, ..self }.headers(false)
    }

    /// Builds the responses to refused requests, including those of gRPC; by default
    /// [`Refusal::to_response`]. The layer adds its [headers](Self::headers), and the [`Refusal`]
    /// to the extensions.
    ///
    /// ```
    /// use http::{Response, StatusCode, header::RETRY_AFTER};
    /// use tower_doorman::{Doorman, Limit, RefusalReason};
    ///
    /// let limits = Doorman::unlimited().layer(Limit::rate("api"))?.on_refusal(|refusal, head| {
    ///     if refusal.reason() != RefusalReason::Spent {
    ///         return refusal.to_response(head);
    ///     }
    ///     let mut response = Response::new("slow down".into());
    ///     *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    ///     response.headers_mut().insert(RETRY_AFTER, refusal.retry_after_seconds().into());
    ///     response
    /// });
    /// # Ok::<(), tower_doorman::InvalidLimit>(())
    /// ```
    pub fn on_refusal<F, T>(mut self, respond: F) -> Self
    where
        F: for<'a> Fn(&Refusal, &RequestHead<'a>) -> Response<T> + Send + Sync + 'static,
        T: Into<Bytes>,
    {
        Arc::make_mut(&mut self.responses).set_refusal(respond);
        self
    }

    /// Decides on a request immediately, for code without a tower service, and spends it at every
    /// limit. A request that would wait is decided by the present state. The request uses its units
    /// of gauges until the [`Permit`] is dropped.
    ///
    /// # Errors
    /// [`Refusal`] when a limit does not admit the request. Nothing is spent then.
    pub fn try_admit(&self, head: &RequestHead<'_>) -> Result<Permit, Refusal> {
        let decided = self.admission.decide(head, CannotWait);
        decided.inspect_err(|refusal| response::log(refusal, head))
    }
}

impl<S> Layer<S> for LimitLayer {
    type Service = LimitService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        LimitService::new(inner, self.admission.clone(), Arc::clone(&self.responses))
    }
}
