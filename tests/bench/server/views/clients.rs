//! Clients that refresh their leases at fixed times, whether the server responds quickly or not.

use std::{
    io,
    net::SocketAddr,
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

use serde_json::json;

use crate::connection::Connection;

/// Holders per resource.
pub(crate) const HOLDERS: usize = 3;
/// Resources per request.
const BATCH: usize = 100;
const CONNECTIONS: usize = 4;
const REFRESH_INTERVAL: Duration = Duration::from_secs(5);

/// The id of a resource.
pub(crate) fn resource_id(number: usize) -> String {
    format!("tenant/{:04}/per-second/{number:07}", number / 100)
}

#[derive(Debug)]
pub(crate) struct Clients {
    server: SocketAddr,
    token: String,
    /// The request body of each client.
    bodies: Vec<Vec<u8>>,
}

impl Clients {
    pub(crate) fn new(server: SocketAddr, token: &str, resources: usize) -> Self {
        let body = |request: usize| {
            let (first, holder) = (request / HOLDERS * BATCH, request % HOLDERS);
            let resources = (first..resources.min(first + BATCH)).map(|number| {
                let wants = 20 + (number * 7 + holder * 31) % 60;
                json!({"resource_id": resource_id(number), "wants": wants, "has": {"capacity": 10}})
            });
            let client = format!("orders-{:04}-{holder}", first / BATCH);
            let body = json!({"client_id": client, "resources": resources.collect::<Vec<_>>()});
            body.to_string().into_bytes()
        };
        Self {
            server,
            token: token.to_owned(),
            bodies: (0..resources.div_ceil(BATCH) * HOLDERS).map(body).collect(),
        }
    }

    /// Sends every request once, without pauses.
    pub(crate) fn join(&self) -> io::Result<()> {
        let mut connection = Connection::open(self.server, &self.token)?;
        for body in &self.bodies {
            connection.post("/v1/capacity", body)?;
        }
        Ok(())
    }

    /// Refreshes for this long. Returns the latency of each request in milliseconds.
    ///
    /// Latency counts from the time at which a request is due, so a slow response also delays the
    /// requests behind it.
    pub(crate) fn refresh_for(&self, duration: Duration) -> io::Result<Vec<f64>> {
        let step = REFRESH_INTERVAL.div_f64(self.bodies.len() as f64);
        let start = &Barrier::new(CONNECTIONS);
        let latencies = thread::scope(|scope| {
            let refresh =
                |number| scope.spawn(move || self.refresh_on(number, step, duration, start));
            let threads: Vec<_> = (0..CONNECTIONS).map(refresh).collect();
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
    fn refresh_on(
        &self,
        number: usize,
        step: Duration,
        duration: Duration,
        start: &Barrier,
    ) -> io::Result<Vec<f64>> {
        // The server closes idle connections, so every round opens new ones.
        let connection = Connection::open(self.server, &self.token);
        start.wait();
        let mut connection = connection?;
        let mut latencies = Vec::new();
        let bodies = self.bodies.iter().skip(number).step_by(CONNECTIONS).cycle();
        let started = Instant::now();
        for (slot, body) in (number..).step_by(CONNECTIONS).zip(bodies) {
            let due = started + step.mul_f64(slot as f64);
            if due >= started + duration {
                break;
            }
            thread::sleep(due.saturating_duration_since(Instant::now()));
            connection.post("/v1/capacity", body)?;
            latencies.push(due.elapsed().as_secs_f64() * 1e3);
        }
        Ok(latencies)
    }
}
