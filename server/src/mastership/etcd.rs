//! Calls of an election in etcd.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use super::driver::Execute;
use crate::etcd::EtcdClient;
use doorman_core::election::EtcdElection;

/// Sends calls to etcd, each of which may take as long as `timeout`.
pub(super) fn execute(client: EtcdClient, timeout: Duration) -> Execute<EtcdElection> {
    let is_failing = Arc::new(AtomicBool::new(false));
    Box::new(move |call| {
        let (client, is_failing) = (client.clone(), Arc::clone(&is_failing));
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
    })
}
