//! Calls of an election in etcd.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use futures_util::future::BoxFuture;

use super::Executor;
use crate::etcd::EtcdClient;
use doorman_core::{etcd::EtcdAnswer, etcd::EtcdCall};

/// Sends calls to etcd.
#[derive(Debug)]
pub(crate) struct Etcd {
    client: EtcdClient,
    /// The longest wait for an answer.
    timeout: Duration,
    is_failing: Arc<AtomicBool>,
}

impl Etcd {
    pub(crate) fn new(client: EtcdClient, timeout: Duration) -> Self {
        Self {
            client,
            timeout,
            is_failing: Arc::default(),
        }
    }
}

impl Executor for Etcd {
    type Call = EtcdCall;
    type Reply = EtcdAnswer;

    fn execute(&self, call: EtcdCall) -> BoxFuture<'static, Option<EtcdAnswer>> {
        let (client, timeout) = (self.client.clone(), self.timeout);
        let is_failing = Arc::clone(&self.is_failing);
        Box::pin(async move {
            match client.answer(call, timeout).await {
                Ok(answer) => {
                    if is_failing.swap(false, Relaxed) {
                        tracing::info!("etcd answers again");
                    }
                    Some(answer)
                }
                Err(error) => {
                    if !is_failing.swap(true, Relaxed) {
                        tracing::warn!(%error, "etcd call failed; a master that cannot renew ends");
                    }
                    None
                }
            }
        })
    }
}
