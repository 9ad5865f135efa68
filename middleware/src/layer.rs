//! The layer.

use std::sync::Arc;

use tower_layer::Layer;

use crate::{Limit, LimitService, admission::Admission, limiter::Registry};

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
    pub(crate) fn new(registry: Arc<Registry>, limits: impl IntoIterator<Item = Limit>) -> Self {
        Self {
            admission: Arc::new(Admission::new(registry, limits)),
        }
    }
}

impl<S> Layer<S> for LimitLayer {
    type Service = LimitService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        LimitService::new(inner, Arc::clone(&self.admission))
    }
}
