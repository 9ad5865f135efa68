//! The layer.

use std::sync::Arc;

use tower_layer::Layer;

use crate::{
    Callers, Limit, LimitService, Refusal, RequestHead, admission::Admission, limiter::Registry,
};

/// Holds a service to limits: made by [`Doorman::layer`](crate::Doorman::layer).
///
/// Every clone of the layer, every service it makes and every clone of those share one state; and limits on one resource, in
/// whatever layer of the process, share one limiter.
#[derive(Debug, Clone)]
#[must_use = "a layer does nothing until a service wears it"]
pub struct LimitLayer {
    admission: Arc<Admission>,
}

impl LimitLayer {
    pub(crate) fn new(
        registry: Arc<Registry>,
        callers: Callers,
        limits: impl IntoIterator<Item = Limit>,
    ) -> Self {
        Self {
            admission: Arc::new(Admission::new(registry, callers, limits)),
        }
    }

    /// Decides on a request at once, for code that has requests but no tower service. What is admitted is spent, of every limit.
    ///
    /// Nothing waits here: a request that would have to, for its turn or for a first lease, is decided by what there is now.
    ///
    /// # Errors
    /// [`Refusal`] when one of the limits does not let it pass; then nothing is spent.
    pub fn try_admit(&self, head: &RequestHead<'_>) -> Result<(), Refusal> {
        self.admission.decide_now(head)
    }
}

impl<S> Layer<S> for LimitLayer {
    type Service = LimitService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        LimitService::new(inner, Arc::clone(&self.admission))
    }
}
