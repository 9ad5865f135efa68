//! Those who lease: instances that renew a hundred leases a request, as often as a fleet does, whether they are answered soon or late.

use std::{
    io,
    net::SocketAddr,
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

use serde_json::json;

use crate::connection::Connection;

/// How many holders each resource has.
pub(crate) const HOLDERS: usize = 3;
/// How many leases one request renews.
const A_REQUEST: usize = 100;
/// How many connections they come on.
const CONNECTIONS: usize = 4;
/// A lease is renewed once in so long.
const REFRESH_INTERVAL: Duration = Duration::from_secs(5);

/// The identifier of a resource by its number.
pub(crate) fn resource(number: usize) -> String {
    format!("tenant/{:04}/per-second/{number:07}", number / 100)
}

/// All requests of the fleet, one after the other.
#[derive(Debug)]
pub(crate) struct Fleet {
    server: SocketAddr,
    token: String,
    bodies: Vec<Vec<u8>>,
}

impl Fleet {
    pub(crate) fn new(server: SocketAddr, token: &str, resources: usize) -> Self {
        let body = |request: usize| {
            let (first, holder) = (request / HOLDERS * A_REQUEST, request % HOLDERS);
            let asked = (first..resources.min(first + A_REQUEST)).map(|number| {
                let wants = 20 + (number * 7 + holder * 31) % 60;
                json!({"resource_id": resource(number), "wants": wants, "has": {"capacity": 10}})
            });
            let client = format!("orders-{:04}-{holder}", first / A_REQUEST);
            let body = json!({"client_id": client, "resources": asked.collect::<Vec<_>>()});
            body.to_string().into_bytes()
        };
        Self {
            server,
            token: token.to_owned(),
            bodies: (0..resources.div_ceil(A_REQUEST) * HOLDERS)
                .map(body)
                .collect(),
        }
    }

    /// Sends every request once, as fast as they are answered.
    pub(crate) fn join(&self) -> io::Result<()> {
        let mut connection = Connection::open(self.server, &self.token)?;
        for body in &self.bodies {
            connection.post("/v1/capacity", body)?;
        }
        Ok(())
    }

    /// Renews for so long; returns how long each request took, in milliseconds, counted from when it was due: who has to wait with it
    /// because the one before is not answered yet has waited all the same.
    pub(crate) fn renew_for(&self, length: Duration) -> io::Result<Vec<f64>> {
        let apart = REFRESH_INTERVAL.div_f64(self.bodies.len() as f64);
        let start = &Barrier::new(CONNECTIONS);
        let took = thread::scope(|scope| {
            let renew = |which| scope.spawn(move || self.renew(which, apart, length, start));
            let threads: Vec<_> = (0..CONNECTIONS).map(renew).collect();
            let ended = threads.into_iter().map(|thread| {
                let failed = |_| io::Error::other("a thread that leases has failed");
                thread.join().map_err(failed)?
            });
            ended.collect::<io::Result<Vec<_>>>()
        })?;
        Ok(took.concat())
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "a stretch of work is measured, not the length of a lease"
    )]
    fn renew(
        &self,
        which: usize,
        apart: Duration,
        length: Duration,
        start: &Barrier,
    ) -> io::Result<Vec<f64>> {
        // New ones each time: the server closes those that have long been idle.
        let connection = Connection::open(self.server, &self.token);
        start.wait();
        let mut connection = connection?;
        let mut took = Vec::new();
        let of_this = self.bodies.iter().skip(which).step_by(CONNECTIONS).cycle();
        let began = Instant::now();
        for (number, body) in (which..).step_by(CONNECTIONS).zip(of_this) {
            let due = began + apart.mul_f64(number as f64);
            if due >= began + length {
                break;
            }
            thread::sleep(due.saturating_duration_since(Instant::now()));
            connection.post("/v1/capacity", body)?;
            took.push(due.elapsed().as_secs_f64() * 1e3);
        }
        Ok(took)
    }
}
