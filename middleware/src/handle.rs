//! The handle: one for the whole process, as cheap to clone as a pointer.

use std::{collections::HashMap, sync::Arc, time::Duration};

use doorman_openapi::{Capacity, ResourceId};
use tokio::{
    sync::{mpsc::UnboundedSender, oneshot},
    time::timeout,
};

use crate::{
    Builder, Callers, Limit, LimitLayer, LimitSnapshot, Rate, Snapshot, WorkerState,
    builder::MAX_KEYS,
    clock,
    key::to_resource_id,
    lease::Command,
    limiter::{LeaseState, Registry, Source},
    rules::Rules,
    status::Status,
};

/// The process's one handle to its limits.
///
/// Layers and direct rates are made from it. All of them, and all clones of the handle, share one state and one worker, and when the
/// last of them is dropped the worker gives the leases back and ends.
#[derive(Debug, Clone)]
pub struct Doorman {
    registry: Arc<Registry>,
    /// To the worker; `None` when none is needed.
    commands: Option<UnboundedSender<Command>>,
    status: Arc<Status>,
    callers: Callers,
    rules: Arc<Rules>,
}

/// Why the limits are not ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotReady {
    /// Not every resource was answered for in time. What came since counts all the same.
    #[error("not every resource was answered for in time")]
    TimedOut,
    /// Nobody asks.
    #[error("the worker is not there to ask ({0:?})")]
    NoWorker(WorkerState),
}

/// Why the leases were not given back. They end by themselves.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotReleased {
    /// No server took them back in time.
    #[error("no server took the leases back: {0}")]
    Failed(String),
    /// There was nobody to give them back.
    #[error("the worker is not there to give the leases back ({0:?})")]
    NoWorker(WorkerState),
}

/// What the worker needs to be told, and more, so that a handle never waits for one that hangs.
const SHUTDOWN_TIME: Duration = Duration::from_millis(600);

impl Doorman {
    /// Begins with the address of a server of the control plane, such as `http://127.0.0.1:7300`.
    pub fn builder(server: impl Into<String>) -> Builder {
        Builder::new(server.into())
    }

    /// Limits that admit everything, without a server, a worker or a runtime: for tests of what wears them. Those that are
    /// [local](Limit::local) count all the same.
    #[must_use]
    pub fn unlimited() -> Self {
        Self::without_worker(|_| LeaseState::Unlimited)
    }

    /// Limits on resources as if this process were alone, in cost per second, without a server, a worker or a runtime: for tests of what wears them.
    ///
    /// A resource that is not named is blocked, so that a forgotten name shows. A rate that is negative or not a number is 0.
    ///
    /// ```
    /// use tower_doorman::{Cost, Doorman};
    ///
    /// let doorman = Doorman::fixed([("db", 10.0)]);
    /// assert!(doorman.rate("db").try_acquire(Cost::ONE).is_ok());
    /// assert!(doorman.rate("other").try_acquire(Cost::ONE).is_err());
    /// ```
    #[must_use]
    pub fn fixed(rates: impl IntoIterator<Item = (impl AsRef<str>, f64)>) -> Self {
        let rates: HashMap<ResourceId, f64> = rates
            .into_iter()
            .map(|(resource, rate)| {
                (
                    to_resource_id(resource.as_ref()),
                    Capacity::saturating(rate).get(),
                )
            })
            .collect();
        Self::without_worker(move |resource| LeaseState::Fixed {
            rate: rates.get(resource).copied().unwrap_or_default(),
        })
    }

    fn without_worker(state: impl Fn(&ResourceId) -> LeaseState + Send + Sync + 'static) -> Self {
        let source = Source::Static(Box::new(state));
        Self {
            registry: Registry::new(MAX_KEYS, source),
            commands: None,
            status: Arc::new(Status::new(WorkerState::NotNeeded)),
            callers: Callers::new(),
            rules: Arc::default(),
        }
    }

    pub(crate) fn new(
        registry: Arc<Registry>,
        commands: UnboundedSender<Command>,
        status: Arc<Status>,
        callers: Callers,
        rules: Arc<Rules>,
    ) -> Self {
        Self {
            registry,
            commands: Some(commands),
            status,
            callers,
            rules,
        }
    }

    /// The handle, with another way to tell callers apart in the layers that are made of it from now on. For
    /// [`unlimited`](Self::unlimited) and [`fixed`](Self::fixed), which have no [builder](Builder::callers).
    #[must_use]
    pub fn with_callers(mut self, callers: Callers) -> Self {
        self.callers = callers;
        self
    }

    /// A layer that holds services to these limits, all or nothing. The resources with constant keys are leased from now on.
    ///
    /// The keys of a request are all made before any limit is asked, so that one which an earlier limit refuses still takes the
    /// [room](Builder::max_keys) of its later keys. Where callers choose those, limit them by address in a layer further out.
    pub fn layer(&self, limits: impl IntoIterator<Item = Limit>) -> LimitLayer {
        LimitLayer::new(Arc::clone(&self.registry), self.callers.clone(), limits)
            .with_rules(Arc::clone(&self.rules))
    }

    /// A layer that holds services to the rules of the control plane for this [service](Builder::service), and to nothing else. See
    /// [`LimitLayer::and_rules`].
    pub fn rules(&self) -> LimitLayer {
        self.layer([]).and_rules()
    }

    /// The rate of one resource, to be used directly. It is leased from now on.
    #[must_use]
    pub fn rate(&self, resource: &str) -> Rate {
        Rate::new(Arc::clone(&self.registry), resource)
    }

    /// Waits until the control plane has answered for every limit with a constant key, and every direct rate, that there is now; and
    /// where a layer follows the rules, until they are known, and answered for as well.
    ///
    /// Nothing needs to wait for this: until then the fallbacks count. A service may use it to come up with its leases in hand.
    ///
    /// # Errors
    /// [`NotReady`] when the time is over, or there is no worker that asks. It is safe to go on all the same.
    ///
    /// # Cancel safety
    /// Safe: it changes nothing.
    pub async fn ready(&self, within: Duration) -> Result<(), NotReady> {
        let Some(commands) = &self.commands else {
            return Ok(());
        };
        let (reply, ready) = oneshot::channel();
        if commands.send(Command::Ready(reply)).is_err() {
            return Err(NotReady::NoWorker(self.worker_state()));
        }
        match timeout(within, ready).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(NotReady::NoWorker(self.worker_state())),
            Err(_) => Err(match self.worker_state() {
                WorkerState::NotStarted => NotReady::NoWorker(WorkerState::NotStarted),
                WorkerState::NotNeeded
                | WorkerState::Running
                | WorkerState::Stopped
                | WorkerState::Died => NotReady::TimedOut,
            }),
        }
    }

    /// Gives every lease back and ends the worker, in half a second at most. Whatever still wears the limits lives by the fallbacks.
    ///
    /// Dropping every handle, layer and rate does the same without waiting for it.
    ///
    /// # Errors
    /// [`NotReleased`] says why not; there is no need to try again.
    ///
    /// # Cancel safety
    /// The worker carries on with it.
    pub async fn shutdown(self) -> Result<(), NotReleased> {
        let Some(commands) = &self.commands else {
            return Ok(());
        };
        let (reply, released) = oneshot::channel();
        if commands.send(Command::Shutdown(reply)).is_err() {
            return Err(NotReleased::NoWorker(self.worker_state()));
        }
        match timeout(SHUTDOWN_TIME, released).await {
            Ok(Ok(result)) => result.map_err(NotReleased::Failed),
            Ok(Err(_)) => Err(NotReleased::NoWorker(self.worker_state())),
            Err(_) => Err(match self.worker_state() {
                WorkerState::NotStarted => NotReleased::NoWorker(WorkerState::NotStarted),
                WorkerState::NotNeeded
                | WorkerState::Running
                | WorkerState::Stopped
                | WorkerState::Died => NotReleased::Failed("the worker is busy".to_owned()),
            }),
        }
    }

    /// Every limit at this moment, for debugging: sorted by resource, and as long as there are keys.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let now = clock::now();
        let leased = self.registry.limiters();
        let local = self.registry.local_limiters();
        let leased = leased
            .iter()
            .map(|limiter| LimitSnapshot::new(limiter, false, now));
        let local = local
            .iter()
            .map(|limiter| LimitSnapshot::new(limiter, true, now));
        let mut limits: Vec<_> = leased.chain(local).collect();
        limits.sort_unstable_by(|one, other| one.resource.cmp(&other.resource));
        Snapshot {
            worker: self.worker_state(),
            limits,
            rules: self.rules.snapshot(),
        }
    }

    /// Whether leases can come. Where the worker was not run though requests need it, the log says so, too.
    #[must_use]
    pub fn worker_state(&self) -> WorkerState {
        self.status.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limiter::LimiterSettings;

    #[test]
    fn limits_without_a_server_are_bounded_too() {
        let settings = Arc::new(LimiterSettings::default());
        for doorman in [Doorman::unlimited(), Doorman::fixed([("db", 10.0)])] {
            let keys = 0..=MAX_KEYS;
            let made = keys.filter_map(|key| doorman.registry.key(&key.to_string(), &settings));
            assert_eq!(made.count(), MAX_KEYS);
        }
    }
}
