//! Hand-over of the ledger by a server that has resigned, to the bearer of a secret that is valid
//! once.
//!
//! The ledger is written while the next master reads it, in parts, so that its text is never whole
//! in memory. Once it was asked for, nobody else gets it: if the transfer breaks off, the next
//! master learns the leases from their holders.

use std::{
    convert::Infallible,
    io::{self, BufWriter, Write},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, ready},
    time::Duration,
};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use bytes::Bytes;
use doorman_openapi::Epoch;
use futures_util::Stream;
use tokio::{
    sync::{mpsc, watch},
    task::spawn_blocking,
    time::timeout,
};

use crate::{durability, durability::Boot, util::clock};
use doorman_core::{ledger::Ledger, reign::Reign};

/// How long a server that has resigned waits for the next master to ask for the ledger.
const ASK_TIME: Duration = Duration::from_secs(3);
/// The longest time without progress of a transfer, on either side.
pub(super) const STALL: Duration = Duration::from_secs(2);
const SECRET_BYTES: usize = 32;
/// The size of a part of the text, and how many may wait for the connection.
const PART_BYTES: usize = 64 * 1024;
const PARTS: usize = 2;

/// The ledger that a server offers after its resignation.
#[derive(Debug)]
pub(crate) struct HandoverOffer {
    pub(crate) secret: String,
    /// `None`: the server has not resigned, or the ledger was taken.
    offered: Mutex<Option<Box<Reign>>>,
    transfer: watch::Sender<Transfer>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Transfer {
    NotBegun,
    /// Each part that the connection takes is a change.
    Sending,
    Ended,
}

impl Default for HandoverOffer {
    fn default() -> Self {
        let mut secret = [0; SECRET_BYTES];
        // Without randomness there is no secret, and no hand-over.
        let is_random = aws_lc_rs::rand::fill(&mut secret).is_ok();
        Self {
            secret: if is_random {
                BASE64_URL_SAFE_NO_PAD.encode(secret)
            } else {
                String::new()
            },
            offered: Mutex::default(),
            transfer: watch::Sender::new(Transfer::NotBegun),
        }
    }
}

impl HandoverOffer {
    pub(crate) fn set(&self, reign: Reign) {
        *self.offered() = Some(Box::new(reign));
    }

    /// The ledger that nobody has taken, with its epoch.
    pub(crate) fn take_rest(&self) -> Option<(Ledger, Epoch)> {
        let reign = self.offered().take()?;
        let epoch = reign.epoch();
        Some((reign.into_ledger(), epoch))
    }

    /// The text of the ledger of this epoch, to the bearer of the secret, once. A blocking thread
    /// writes it as it is read.
    pub(crate) fn take(self: &Arc<Self>, asked: Epoch, secret: &[u8]) -> Option<LedgerText> {
        let is_valid = !self.secret.is_empty()
            && verify_slices_are_equal(self.secret.as_bytes(), secret).is_ok();
        let is_this = |reign: &mut Box<Reign>| is_valid && reign.epoch() == asked;
        let reign = self.offered().take_if(is_this)?;
        // Safety rule: all lengths count from one time, before the first byte is sent.
        let now = clock::now();
        let (sender, parts) = mpsc::channel(PARTS);
        self.transfer.send_replace(Transfer::Sending);
        spawn_blocking(move || {
            let (epoch, ledger) = (reign.epoch(), reign.into_ledger());
            let out = BufWriter::with_capacity(PART_BYTES, PartWriter(sender));
            // It fails if nobody reads on.
            durability::write_text(&ledger, epoch, Boot::current(), now, out).ok();
        });
        Some(LedgerText {
            parts,
            is_sent: false,
            offer: Arc::clone(self),
        })
    }

    /// Waits until the ledger was sent; at most 3 s until it is asked for, then as long as the
    /// next master reads some of it every 2 s.
    ///
    /// # Cancel safety
    /// Nothing is lost when it is dropped.
    pub(crate) async fn sent(&self) {
        let mut transfer = self.transfer.subscribe();
        loop {
            let limit = match *transfer.borrow_and_update() {
                Transfer::NotBegun => ASK_TIME,
                Transfer::Sending => STALL,
                Transfer::Ended => return,
            };
            // The sender is this value, so it does not end.
            if timeout(limit, transfer.changed()).await.is_err() {
                return;
            }
        }
    }

    fn offered(&self) -> MutexGuard<'_, Option<Box<Reign>>> {
        // Every statement leaves it consistent.
        self.offered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The text of a ledger that is handed over, in parts. The writer waits for the reader; it gives up
/// when this is dropped.
#[derive(Debug)]
pub(crate) struct LedgerText {
    parts: mpsc::Receiver<Bytes>,
    is_sent: bool,
    offer: Arc<HandoverOffer>,
}

impl Stream for LedgerText {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let part = ready!(self.parts.poll_recv(cx));
        self.is_sent = part.is_none();
        if part.is_some() {
            self.offer.transfer.send_modify(|_| {});
        }
        Poll::Ready(part.map(Ok))
    }
}

impl Drop for LedgerText {
    fn drop(&mut self) {
        self.offer.transfer.send_replace(Transfer::Ended);
        if !self.is_sent {
            tracing::warn!(
                "hand-over of the ledger broke off; the next master learns the leases from their \
                 holders"
            );
        }
    }
}

/// Sends what is written to it in parts. Blocks while too many wait.
struct PartWriter(mpsc::Sender<Bytes>);

impl Write for PartWriter {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let part = text.get(..PART_BYTES).unwrap_or(text);
        let sent = self.0.blocking_send(Bytes::copy_from_slice(part));
        sent.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        Ok(part.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use doorman_config::Document;
    use doorman_openapi::{CapacityRequest, Moment};
    use futures_util::StreamExt;
    use tokio::{task::yield_now, time::advance};

    use super::*;
    use crate::util::testing::Log;
    use doorman_core::{
        ledger::Predecessor, ledger::Settings, ledger::UnmatchedPolicy, reign::DurableBound,
    };

    const EPOCH: u64 = 7;

    /// An offer of a ledger whose text has several parts.
    fn offer() -> Arc<HandoverOffer> {
        let settings = Settings {
            max_leases: 10_000,
            unmatched: UnmatchedPolicy::Grant,
            predecessor: Predecessor::None,
            epoch: Epoch::ZERO,
        };
        let mut ledger = Ledger::new(Arc::new(Document::built_in()), settings, clock::now());
        for client in 0..3000 {
            let request = format!(
                r#"{{"client_id":"c{client}","seq":1,"resources":[{{"resource_id":"db","wants":4}}]}}"#
            );
            let request: CapacityRequest = serde_json::from_str(&request).unwrap();
            ledger.refresh(&request.clone().into(), clock::now());
        }
        let bound = DurableBound::new(Moment::NEVER, 0);
        let epoch = Epoch::new(EPOCH).unwrap();
        let offer = Arc::<HandoverOffer>::default();
        offer.set(Reign::new(epoch, Moment::NEVER, ledger, bound));
        offer
    }

    fn take(offer: &Arc<HandoverOffer>) -> Option<LedgerText> {
        let secret = offer.secret.clone();
        offer.take(Epoch::new(EPOCH).unwrap(), secret.as_bytes())
    }

    /// Whether the server has stopped waiting for the next master.
    async fn has_stopped(waiting: &tokio::task::JoinHandle<()>) -> bool {
        for _ in 0..10 {
            yield_now().await;
        }
        waiting.is_finished()
    }

    #[tokio::test(start_paused = true)]
    async fn server_waits_three_seconds_for_the_next_master() {
        let offer = offer();
        let began = clock::now();
        offer.sent().await;
        assert_eq!(clock::now(), began.after(ASK_TIME));
        assert!(offer.take_rest().is_some());
        assert!(take(&offer).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn server_waits_as_long_as_the_next_master_reads() {
        let offer = offer();
        let waiting = tokio::spawn({
            let offer = Arc::clone(&offer);
            async move { offer.sent().await }
        });
        let mut text = take(&offer).unwrap();
        assert!(take(&offer).is_none(), "once");
        let mut parts: u64 = 0;
        while let Some(part) = text.next().await {
            assert!(part.unwrap().len() <= PART_BYTES);
            parts += 1;
            advance(Duration::from_millis(1900)).await;
            assert!(!has_stopped(&waiting).await, "after {parts} parts");
        }
        assert!(parts > 5, "{parts}");
        drop(text);
        waiting.await.unwrap();
        assert!(offer.take_rest().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn server_stops_two_seconds_after_the_last_progress() {
        let (log, _guard) = Log::capture();
        let offer = offer();
        let waiting = tokio::spawn({
            let offer = Arc::clone(&offer);
            async move { offer.sent().await }
        });
        let mut text = take(&offer).unwrap();
        text.next().await.unwrap().unwrap();
        assert!(!has_stopped(&waiting).await);
        advance(Duration::from_millis(1999)).await;
        assert!(!has_stopped(&waiting).await);
        advance(Duration::from_millis(2)).await;
        assert!(has_stopped(&waiting).await);
        // Its connection is closed. Nobody gets the ledger any more.
        drop(text);
        assert_eq!(log.count("hand-over of the ledger broke off"), 1);
        assert!(take(&offer).is_none() && offer.take_rest().is_none());
    }
}
