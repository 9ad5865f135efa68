//! How a worker ends: it gives back what it holds.

use std::time::Duration;

use tokio::time::timeout;

use super::Worker;
use crate::{
    clock,
    lease::{Effect, Event, Transport},
};

/// Giving the leases back must not hold up a process that ends.
const RELEASE_TIME: Duration = Duration::from_millis(500);

impl<T: Transport> Worker<T> {
    /// Gives every lease back: to one server after the other, each of which has its part of the time.
    pub(super) async fn give_back(&mut self) -> Result<(), String> {
        // What is under way is for leases that are no longer wanted.
        self.asking.clear();
        let mut failure = String::from("no answer in time");
        let servers = self.parts.carrier.servers.len();
        let each = RELEASE_TIME.div_f64(servers.max(1) as f64);
        let giving = async {
            for _ in 0..servers {
                let now = clock::now();
                let effects = self.parts.holder.handle(Event::Stop, now);
                let mut release = None;
                for effect in effects {
                    match effect {
                        Effect::Changed { resource, holding } => {
                            self.changed(&resource, &holding, now);
                        }
                        Effect::SendRelease {
                            endpoint, request, ..
                        } => release = Some((endpoint, request)),
                        Effect::Send { .. } | Effect::Warn(_) => {}
                    }
                }
                let Some((endpoint, request)) = release else {
                    return Ok(());
                };
                let carrier = &self.parts.carrier;
                match carrier.give_back(endpoint, &request, each).await {
                    Ok(()) => return Ok(()),
                    Err(reason) => failure = format!("{}: {reason}", carrier.name(endpoint)),
                }
            }
            Err(())
        };
        match timeout(RELEASE_TIME, giving).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(())) | Err(_) => Err(failure),
        }
    }
}
