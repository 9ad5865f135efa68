//! Background tasks, none of which ends before the server stops.

use std::{collections::HashMap, future::Future};

use futures_util::future::BoxFuture;
use tokio::task::{Id, JoinSet};

/// The background tasks of a server, by name. They are aborted when this is dropped.
#[derive(Default)]
pub(crate) struct Tasks {
    waiting: Vec<(&'static str, BoxFuture<'static, ()>)>,
    running: JoinSet<()>,
    names: HashMap<Id, &'static str>,
}

impl Tasks {
    /// Adds a task that begins with [`start`](Self::start).
    pub(crate) fn add(
        &mut self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        self.waiting.push((name, Box::pin(task)));
    }

    /// Begins a task now.
    pub(crate) fn spawn(
        &mut self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        let task = self.running.spawn(task);
        self.names.insert(task.id(), name);
    }

    /// Begins the tasks that were added.
    pub(crate) fn start(&mut self) {
        for (name, task) in std::mem::take(&mut self.waiting) {
            self.spawn(name, task);
        }
    }

    /// Waits until a task ends or panics, which none should, logs that, and returns its name.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn failed(&mut self) -> &'static str {
        let (id, error) = match self.running.join_next_with_id().await {
            Some(Ok((id, ()))) => (id, None),
            Some(Err(error)) => (error.id(), Some(error)),
            None => std::future::pending().await,
        };
        let task = self.names.get(&id).copied().unwrap_or("unknown");
        match error {
            Some(error) => tracing::error!(task, %error, "background task panicked"),
            None => tracing::error!(task, "background task ended"),
        }
        task
    }

    /// Aborts all tasks, and waits for their end.
    pub(crate) async fn shutdown(mut self) {
        self.running.shutdown().await;
    }
}

impl std::fmt::Debug for Tasks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.names.values()).finish()
    }
}

#[cfg(test)]
impl Tasks {
    /// The names of all tasks.
    pub(crate) fn names(&self) -> Vec<&'static str> {
        let waiting = self.waiting.iter().map(|(name, _)| *name);
        self.names.values().copied().chain(waiting).collect()
    }

    /// Runs another task in place of one that has not begun.
    pub(crate) fn replace(
        &mut self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        self.waiting.retain(|(other, _)| *other != name);
        self.add(name, task);
    }
}
