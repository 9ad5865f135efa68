//! Fetches the ledger of the last master, and restores it while it arrives.

use std::{error::Error, pin::pin, time::Duration};

use bytes::Bytes;
use doorman_openapi::{Epoch, Moment};
use futures_util::{Stream, StreamExt};
use tokio::{task::spawn_blocking, time::timeout};

use super::handover::STALL;
use crate::{
    durability::LedgerReader, durability::LedgerTextError, observe::metrics::Outcomes, util::clock,
};
use doorman_core::{election::Handover, ledger::Ledger};

type BoxError = Box<dyn Error + Send + Sync>;

/// The ledger of the last master, and the end of its latest lease.
pub(super) type InheritedLedger = (Ledger, Moment);

/// Why the ledger of the last master cannot be used.
#[derive(Debug, thiserror::Error)]
enum FetchError {
    #[error(transparent)]
    Refused(BoxError),
    #[error("no byte arrived for {} s", STALL.as_secs())]
    Stalled,
    /// Meanwhile nobody renews a lease. In learning mode the holders could.
    #[error("it took longer than half of the shortest lease")]
    TooSlow,
    #[error("the transfer broke off")]
    Broken(#[source] BoxError),
    #[error(transparent)]
    Text(#[from] LedgerTextError),
}

impl FetchError {
    /// The label of the metric.
    fn outcome(&self) -> &'static str {
        match self {
            Self::Refused(_) => "unreachable",
            Self::Stalled | Self::TooSlow => "stalled",
            Self::Broken(_) | Self::Text(_) => "broken",
        }
    }
}

/// Counts ledgers that this server fetched, or could not fetch.
pub(crate) fn handover_counts() -> Outcomes {
    Outcomes::new(["received", "unreachable", "stalled", "broken"])
}

/// Fetches the ledger that the last master offers, into an empty one. `None` if that fails, or
/// takes longer than `limit`. `response` is that of the last master.
pub(super) async fn take_over<E: Error + Send + Sync + 'static>(
    response: impl Future<Output = Result<impl Stream<Item = Result<Bytes, E>>, BoxError>>,
    handover: &Handover,
    ledger: Ledger,
    counts: &Outcomes,
    limit: Duration,
) -> Option<InheritedLedger> {
    let requested = clock::now();
    let fetched = async {
        match timeout(STALL, response).await {
            Ok(Ok(text)) => receive(text, handover.epoch, requested, ledger).await,
            Ok(Err(error)) => Err(FetchError::Refused(error)),
            Err(_) => Err(FetchError::Stalled),
        }
    };
    let fetched = timeout(limit, fetched).await;
    let fetched = fetched.unwrap_or(Err(FetchError::TooSlow));
    counts.count(
        fetched
            .as_ref()
            .map_or_else(FetchError::outcome, |_| "received"),
    );
    let address = &*handover.address;
    match fetched {
        Ok((ledger, until)) => {
            let leases = ledger.stats().leases;
            tracing::info!(leases, address, "ledger of the last master taken over");
            Some((ledger, until))
        }
        Err(error) => {
            tracing::warn!(
                error = &error as &(dyn Error + 'static),
                address,
                "cannot fetch the ledger of the last master; its leases are learned from their \
                 holders"
            );
            None
        }
    }
}

/// Restores the ledger of epoch `last` from the parts of its text, which was requested at
/// `requested`. The sender waits while a blocking thread reads a part.
async fn receive<E: Error + Send + Sync + 'static>(
    text: impl Stream<Item = Result<Bytes, E>>,
    last: Epoch,
    requested: Moment,
    mut ledger: Ledger,
) -> Result<InheritedLedger, FetchError> {
    let mut text = pin!(text);
    let mut reader = None;
    let end = loop {
        let part = match timeout(STALL, text.next()).await {
            Ok(Some(Ok(part))) => part,
            Ok(Some(Err(error))) => break Err(FetchError::Broken(error.into())),
            Ok(None) => break finish(reader),
            Err(_) => break Err(FetchError::Stalled),
        };
        // Safety rule: leases count from the first byte, which was sent after their lengths were
        // computed. The last one may arrive much later.
        let first = || LedgerReader::of_handover(last, requested, clock::now());
        let mut current = reader.unwrap_or_else(first);
        let pushed = spawn_blocking(move || {
            current.push(&part, &mut ledger)?;
            Ok::<_, LedgerTextError>((current, ledger))
        });
        let pushed = pushed.await;
        let (current, restored) = pushed.map_err(|error| FetchError::Broken(error.into()))??;
        (reader, ledger) = (Some(current), restored);
    };
    match end {
        Ok(until) => Ok((ledger, until)),
        Err(error) => {
            drop_elsewhere(Some(ledger));
            Err(error)
        }
    }
}

/// The end of the latest lease in a ledger that has arrived.
fn finish(reader: Option<LedgerReader>) -> Result<Moment, FetchError> {
    let corrupted = |reason: &str| LedgerTextError::Corrupted(reason.to_owned());
    let reader = reader.ok_or_else(|| corrupted("it is empty"))?;
    let until = reader.finish()?;
    until.ok_or_else(|| corrupted("its epoch is another").into())
}

/// Frees a large ledger without holding up the election.
pub(super) fn drop_elsewhere<T: Send + 'static>(ledger: Option<T>) {
    if ledger.is_some() {
        spawn_blocking(|| drop(ledger));
    }
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, io, sync::Arc};

    use doorman_config::Document;
    use doorman_openapi::{CapacityRequest, ResourceId};
    use futures_util::stream;
    use tokio::time::sleep;

    use super::*;
    use crate::{durability, durability::Boot, util::testing::Log};
    use doorman_core::{ledger::Predecessor, ledger::Settings, ledger::UnmatchedPolicy};

    const LIMIT: Duration = Duration::from_secs(30);

    fn ledger() -> Ledger {
        let settings = Settings {
            max_leases: 1000,
            unmatched: UnmatchedPolicy::Grant,
            predecessor: Predecessor::None,
            epoch: Epoch::ZERO,
        };
        Ledger::new(Arc::new(Document::built_in()), settings, clock::now())
    }

    fn handover() -> Handover {
        Handover {
            address: "http://a".to_owned(),
            secret: "secret".to_owned(),
            epoch: Epoch::new(7).unwrap(),
        }
    }

    /// The text of a ledger in which a hundred clients have `db`, booked for 63 s.
    fn text() -> Vec<u8> {
        let mut last = ledger();
        for client in 0..100 {
            let request = format!(
                r#"{{"client_id":"c{client}","seq":1,"resources":[{{"resource_id":"db","wants":4}}]}}"#
            );
            let request: CapacityRequest = serde_json::from_str(&request).unwrap();
            last.refresh(&request.clone().into(), clock::now());
        }
        let mut text = Vec::new();
        durability::write_text(
            &last,
            handover().epoch,
            Boot::current(),
            clock::now(),
            &mut text,
        )
        .unwrap();
        text
    }

    /// Sends these parts, each after a pause.
    fn paced(parts: Vec<Vec<u8>>, pause: Duration) -> impl Stream<Item = Result<Bytes, io::Error>> {
        stream::iter(parts).then(move |part| async move {
            sleep(pause).await;
            Ok(part.into())
        })
    }

    async fn respond<S>(text: S) -> Result<S, BoxError> {
        Ok(text)
    }

    /// The amount that is leased at a time.
    fn has(ledger: &mut Ledger, now: Moment) -> f64 {
        ledger.sweep(now, usize::MAX);
        let db = ledger.resource(&ResourceId::new("db").unwrap(), now);
        db.map_or(0.0, |it| it.sum_has)
    }

    #[tokio::test(start_paused = true)]
    async fn slow_but_steady_ledger_is_taken_over() {
        let text = text();
        let parts: Vec<_> = text.chunks(text.len() / 8).map(<[u8]>::to_vec).collect();
        let pause = Duration::from_millis(1900);
        let began = clock::now();
        let counts = handover_counts();
        let text = respond(paced(parts, pause));
        let (mut taken, until) = take_over(text, &handover(), ledger(), &counts, LIMIT)
            .await
            .unwrap();
        assert!(clock::now() > began.after_seconds(10.0));
        assert_eq!(counts.get("received"), 1);
        // Its leases count from the first byte.
        let first = began.after(pause);
        assert_eq!(has(&mut taken, first.after_seconds(62.999)), 400.0);
        assert_eq!(has(&mut taken, first.after_seconds(63.0)), 0.0);
        assert_eq!(until, first.after_seconds(63.0));
    }

    #[tokio::test(start_paused = true)]
    async fn ledger_that_takes_too_long_is_learned() {
        let (log, _guard) = Log::capture();
        let text = text();
        let parts: Vec<_> = text.chunks(text.len() / 20).map(<[u8]>::to_vec).collect();
        let text = respond(paced(parts, Duration::from_millis(1900)));
        let began = clock::now();
        let counts = handover_counts();
        let taken = take_over(text, &handover(), ledger(), &counts, LIMIT).await;
        assert!(taken.is_none());
        assert_eq!(clock::now(), began.after(LIMIT));
        assert_eq!(counts.get("stalled"), 1);
        assert_eq!(log.count("half of the shortest lease"), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn ledger_is_learned_after_two_seconds_without_a_byte() {
        let (log, _guard) = Log::capture();
        let text = text();
        let counts = handover_counts();
        let pause = Duration::from_millis(2001);
        for at in [0, text.len() / 2] {
            let parts = [&text[..at], &text[at..]].map(<[u8]>::to_vec);
            let [before, after] =
                parts.map(|part| stream::iter([Ok::<_, io::Error>(Bytes::from(part))]));
            let late = stream::once(sleep(pause)).flat_map(|()| stream::empty());
            let text = respond(before.chain(late).chain(after));
            let taken = take_over(text, &handover(), ledger(), &counts, LIMIT).await;
            assert!(taken.is_none());
        }
        // The last master accepts the connection, and is silent.
        let silent = async {
            sleep(pause).await;
            Ok(stream::empty::<Result<_, Infallible>>())
        };
        assert!(
            take_over(silent, &handover(), ledger(), &counts, LIMIT)
                .await
                .is_none()
        );
        assert_eq!(counts.get("stalled"), 3);
        assert_eq!(log.count("WARN"), 3);
        assert_eq!(log.count("its leases are learned from their holders"), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn incomplete_ledger_counts_for_nothing() {
        let (log, _guard) = Log::capture();
        let text = text();
        let counts = handover_counts();
        let lines: Vec<_> = text.split_inclusive(|byte| *byte == b'\n').collect();
        let before_footer = text.len() - lines.last().unwrap().len();
        let lengths = [
            0,
            1,
            lines[0].len(),
            text.len() / 2,
            before_footer,
            before_footer + 5,
        ];
        for length in lengths {
            let part = Ok::<_, io::Error>(Bytes::copy_from_slice(&text[..length]));
            let ended = respond(stream::iter([part]));
            assert!(
                take_over(ended, &handover(), ledger(), &counts, LIMIT)
                    .await
                    .is_none()
            );
            let part = Ok(Bytes::copy_from_slice(&text[..length]));
            let reset = Err(io::Error::from(io::ErrorKind::ConnectionReset));
            let reset = respond(stream::iter([part, reset]));
            assert!(
                take_over(reset, &handover(), ledger(), &counts, LIMIT)
                    .await
                    .is_none()
            );
        }
        let mut corrupted = text.clone();
        corrupted[text.len() / 2] ^= 1;
        let other_epoch = Handover {
            epoch: Epoch::new(8).unwrap(),
            ..handover()
        };
        for (text, handover) in [(corrupted, handover()), (text, other_epoch)] {
            let part = Ok::<_, io::Error>(Bytes::from(text));
            let whole = respond(stream::iter([part]));
            assert!(
                take_over(whole, &handover, ledger(), &counts, LIMIT)
                    .await
                    .is_none()
            );
        }
        assert_eq!(counts.get("broken"), 14);
        assert_eq!(log.count("its leases are learned from their holders"), 14);
    }

    #[tokio::test(start_paused = true)]
    async fn refused_ledger_is_learned() {
        let counts = handover_counts();
        let refused = async {
            let text: Result<stream::Empty<Result<_, Infallible>>, _> = Err("403".into());
            text
        };
        assert!(
            take_over(refused, &handover(), ledger(), &counts, LIMIT)
                .await
                .is_none()
        );
        assert_eq!(counts.get("unreachable"), 1);
    }
}
