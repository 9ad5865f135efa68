//! A steady load of `GET /` on services of this machine, whose rate can be changed while it runs.
//!
//! It is open: what is due is sent when it is due, however fast the answers come. A timer makes requests due, at an even pace
//! and exactly as many over a second as were asked for; the connections of a target take them in turn. Ten times a second the
//! totals are written into a [`History`], so that the rates of any stretch of time can be read off afterwards.
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

mod answer;
mod connection;
mod history;
mod pace;
mod target;
mod totals;

use std::{
    array,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::watch, task::JoinSet, time};

use self::{connection::Connection, pace::Pace, target::Queue};
pub use self::{
    history::{History, Window},
    target::{NotLoopback, Target},
    totals::Totals,
};

/// How often requests are made due.
const TICK: Duration = Duration::from_millis(5);
/// How often the totals are written into the history.
const SAMPLE: Duration = Duration::from_millis(100);

/// A load on `N` targets. It ends when it is dropped.
#[derive(Debug)]
pub struct Load<const N: usize> {
    rates: watch::Sender<[f64; N]>,
    queues: [Arc<Queue>; N],
    history: Arc<Mutex<History<N>>>,
    /// Owns every task of the load: dropping it ends them.
    _tasks: JoinSet<()>,
}

impl<const N: usize> Load<N> {
    /// Starts a load that offers nothing yet, with so many keep-alive connections to each target.
    ///
    /// A connection carries one request at a time: where answers are delayed, there must be as many connections as requests wait.
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
                tasks.spawn(answer_what_is_due(Connection::new(*target), queue.clone()));
            }
        }
        tasks.spawn(make_due(rates.subscribe(), queues.clone()));
        tasks.spawn(record(queues.clone(), history.clone()));
        Self {
            rates,
            queues,
            history,
            _tasks: tasks,
        }
    }

    /// Offers each target so many requests a second from now on; anything but a positive, finite number is none.
    pub fn offer(&self, rates: [f64; N]) {
        self.rates.send_replace(rates);
    }

    /// What has been offered and answered so far, target by target.
    #[must_use]
    pub fn totals(&self) -> [Totals; N] {
        totals(&self.queues)
    }

    /// What has been recorded so far. Whoever holds it too long delays the next sample.
    pub fn history(&self) -> MutexGuard<'_, History<N>> {
        lock(&self.history)
    }
}

/// Makes requests due, tick by tick. Missed ticks are made up for, so that nothing of the offered rate is lost.
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

/// One connection's work: take the next request that is due, send it, count the answer.
async fn answer_what_is_due(mut connection: Connection, queue: Arc<Queue>) {
    loop {
        queue.pop().await;
        queue.counters.answered(connection.get().await.ok());
    }
}

/// Writes the totals into the history, with the time that has really passed.
async fn record<const N: usize>(queues: [Arc<Queue>; N], history: Arc<Mutex<History<N>>>) {
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

/// A history is whole after every statement that changes it, so a panic elsewhere does no harm to it.
fn lock<const N: usize>(history: &Mutex<History<N>>) -> MutexGuard<'_, History<N>> {
    history.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
