//! Requests that are sent at fixed times, whether the server responds quickly or not.

use std::{
    io::{self, Write},
    net::{SocketAddr, TcpStream},
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

use crate::{
    read_response,
    samples::Samples,
    table::{Row, Table, Target},
};

const CONNECTIONS: usize = 4;

/// A persistent connection with one request in flight.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    response: Vec<u8>,
}

impl Connection {
    /// Connects to a server.
    ///
    /// # Errors
    /// If it does not accept the connection.
    pub fn open(server: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(server)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        Ok(Self {
            stream,
            response: vec![0; 4 * 1024 * 1024],
        })
    }

    /// Sends a request. Returns the body of a successful response.
    ///
    /// # Errors
    /// If the connection fails, or the status is not 200.
    pub fn exchange(&mut self, request: &[u8]) -> io::Result<&[u8]> {
        self.stream.write_all(request)?;
        let body = read_response(&mut self.stream, &mut self.response)?;
        Ok(self.response.get(body).unwrap_or_default())
    }
}

/// Requests to repeat in order, one after each interval, over several connections.
#[derive(Debug)]
pub struct PacedRequests {
    /// Heads with their bodies.
    pub requests: Vec<Vec<u8>>,
    /// The time from one request to the next.
    pub interval: Duration,
}

impl PacedRequests {
    /// Sends every request once, without pauses.
    ///
    /// # Errors
    /// As [`Connection::exchange`].
    pub fn send_once(&self, server: SocketAddr) -> io::Result<()> {
        let mut connection = Connection::open(server)?;
        for request in &self.requests {
            connection.exchange(request)?;
        }
        Ok(())
    }

    /// Sends the requests for this long. Returns the latency of each in milliseconds.
    ///
    /// Latency counts from the time at which a request is due, so a slow response also delays the
    /// requests behind it.
    ///
    /// # Errors
    /// As [`Connection::exchange`].
    pub fn send_for(&self, server: SocketAddr, duration: Duration) -> io::Result<Vec<f64>> {
        let start = &Barrier::new(CONNECTIONS);
        let latencies = thread::scope(|scope| {
            let send = |number| scope.spawn(move || self.send_on(server, number, duration, start));
            let threads: Vec<_> = (0..CONNECTIONS).map(send).collect();
            let results = threads.into_iter().map(|thread| {
                let panicked = |_| io::Error::other("a client thread panicked");
                thread.join().map_err(panicked)?
            });
            results.collect::<io::Result<Vec<_>>>()
        })?;
        Ok(latencies.concat())
    }

    /// Sends the requests of one connection.
    #[expect(
        clippy::disallowed_methods,
        reason = "measures elapsed time, not a lease"
    )]
    fn send_on(
        &self,
        server: SocketAddr,
        number: usize,
        duration: Duration,
        start: &Barrier,
    ) -> io::Result<Vec<f64>> {
        // The server closes idle connections, so every round opens new ones.
        let connection = Connection::open(server);
        start.wait();
        let mut connection = connection?;
        let mut latencies = Vec::new();
        let requests = self.requests.iter().skip(number).step_by(CONNECTIONS);
        let started = Instant::now();
        for (slot, request) in (number..).step_by(CONNECTIONS).zip(requests.cycle()) {
            let due = started + self.interval.mul_f64(slot as f64);
            if due >= started + duration {
                break;
            }
            thread::sleep(due.saturating_duration_since(Instant::now()));
            connection.exchange(request)?;
            latencies.push(due.elapsed().as_secs_f64() * 1e3);
        }
        Ok(latencies)
    }
}

impl Table {
    /// Compares the latencies of two sides: a list for each round. The target is that of the 99th
    /// percentile.
    pub fn add_latencies(
        &mut self,
        with: &[Vec<f64>],
        baseline: &str,
        without: &[Vec<f64>],
        target: Target,
    ) {
        for (subject, fraction, target) in [
            ("median", 0.5, Target::None),
            ("99th percentile", 0.99, target),
            ("maximum", 1.0, Target::None),
        ] {
            let [with, without] = [with, without].map(|rounds| -> Samples {
                let quantiles = rounds.iter().map(|latencies| quantile(latencies, fraction));
                quantiles.collect()
            });
            self.add(Row::ratio(subject, &with, baseline, &without, target));
        }
    }
}

fn quantile(latencies: &[f64], fraction: f64) -> f64 {
    let mut sorted = latencies.to_vec();
    sorted.sort_by(f64::total_cmp);
    let index = (sorted.len() as f64 * fraction) as usize;
    let last = sorted.len().saturating_sub(1);
    sorted.get(index.min(last)).copied().unwrap_or(f64::NAN)
}
