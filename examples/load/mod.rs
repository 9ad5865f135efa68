//! Open-loop load generator for services on this machine.
//!
//! Requests are sent when they are due, however fast responses arrive. They are due at an even
//! pace, and the connections of a target take them in turn. A [`History`] samples the totals ten
//! times per second, so that the rates of any window can be read afterwards.
//!
//! ```no_run
//! # async fn demonstrate() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use doorman_examples::load::{Load, Target};
//!
//! let load = Load::start([Target::new("127.0.0.1:8080".parse()?)?], 16);
//! load.offer([500.0]);
//! tokio::time::sleep(Duration::from_secs(10)).await;
//! println!("{:?}", load.totals());
//! # Ok(())
//! # }
//! ```

mod connection;
mod history;
mod target;

use std::{
    array,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::watch, task::JoinSet, time};

use self::{
    connection::Connection,
    target::{Pace, Queue},
};
pub use self::{
    history::{History, Totals, Window},
    target::{NotLoopback, Target},
};

/// How often requests become due.
const TICK: Duration = Duration::from_millis(5);
/// How often the totals are sampled.
const SAMPLE: Duration = Duration::from_millis(100);

/// A load on `N` targets. It ends when it is dropped.
#[derive(Debug)]
pub struct Load<const N: usize> {
    rates: watch::Sender<[f64; N]>,
    queues: [Arc<Queue>; N],
    history: Arc<Mutex<History<N>>>,
    /// Aborts every task of the load when it is dropped.
    _tasks: JoinSet<()>,
}

impl<const N: usize> Load<N> {
    /// Starts a load of 0 requests per second, with `connections` keep-alive connections per
    /// target.
    ///
    /// A connection carries one request at a time. Where responses are delayed, use as many
    /// connections as there are delayed requests.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    #[must_use]
    pub fn start(targets: [Target; N], connections: usize) -> Self {
        let rates = watch::Sender::new([0.0; N]);
        let queues: [_; N] = array::from_fn(|_| Arc::new(Queue::new(connections)));
        let history = Arc::new(Mutex::new(History::default()));
        let mut tasks = JoinSet::new();
        for (target, queue) in targets.iter().zip(&queues) {
            for _ in 0..connections {
                tasks.spawn(send_due(Connection::new(*target), queue.clone()));
            }
        }
        tasks.spawn(make_due(rates.subscribe(), queues.clone()));
        tasks.spawn(sample(queues.clone(), history.clone()));
        Self {
            rates,
            queues,
            history,
            _tasks: tasks,
        }
    }

    /// Sets the requests per second of each target. A rate that is not positive and finite is 0.
    pub fn offer(&self, rates: [f64; N]) {
        self.rates.send_replace(rates);
    }

    /// Running totals per target.
    #[must_use]
    pub fn totals(&self) -> [Totals; N] {
        totals(&self.queues)
    }

    /// The samples so far. Sampling waits while the guard is held.
    pub fn history(&self) -> MutexGuard<'_, History<N>> {
        lock(&self.history)
    }
}

/// Makes requests due. Missed ticks are made up for, so that the offered rate is exact.
async fn make_due<const N: usize>(rates: watch::Receiver<[f64; N]>, queues: [Arc<Queue>; N]) {
    let mut paces: [Pace; N] = array::from_fn(|_| Pace::default());
    let mut ticks = time::interval(TICK);
    loop {
        ticks.tick().await;
        let now: [f64; N] = *rates.borrow();
        for ((pace, rate), queue) in paces.iter_mut().zip(now).zip(&queues) {
            queue.push(pace.due(rate, TICK), rate);
        }
    }
}

/// Sends one due request after the other over a connection, and counts the responses.
async fn send_due(mut connection: Connection, queue: Arc<Queue>) {
    loop {
        queue.pop().await;
        queue.counters.add_response(connection.get().await.ok());
    }
}

async fn sample<const N: usize>(queues: [Arc<Queue>; N], history: Arc<Mutex<History<N>>>) {
    let mut ticks = time::interval(SAMPLE);
    ticks.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
    let start = ticks.tick().await;
    loop {
        let (at, totals) = (start.elapsed(), totals(&queues));
        lock(&history).record(at, totals);
        ticks.tick().await;
    }
}

fn totals<const N: usize>(queues: &[Arc<Queue>; N]) -> [Totals; N] {
    queues.each_ref().map(|queue| queue.counters.totals())
}

/// A history is consistent after every statement, so a panic elsewhere does not invalidate it.
fn lock<const N: usize>(history: &Mutex<History<N>>) -> MutexGuard<'_, History<N>> {
    history.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
