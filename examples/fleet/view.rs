//! The table of one second: views fetched over HTTP, and the screen it is drawn on.

use std::{
    fmt,
    io::{self, IsTerminal, Stdout, Write},
    net::SocketAddr,
    time::Duration,
};

use doorman_examples::load::{Totals, Window};
use doorman_openapi::{Capacity, ResourceView};
use serde::{Deserialize, de::DeserializeOwned};

use crate::plan::{INSTANCES, Split};

/// Client of the control plane's view and of the services' snapshots.
#[derive(Debug)]
pub(crate) struct Views {
    client: reqwest::Client,
    ledger: String,
    snapshots: [String; INSTANCES],
}

/// The part of `GET /doorman` that is shown.
#[derive(Debug, Deserialize)]
struct Snapshot {
    limits: Vec<Limit>,
}

#[derive(Debug, Deserialize)]
struct Limit {
    lease: Option<Lease>,
}

#[derive(Debug, Deserialize)]
struct Lease {
    capacity: f64,
}

impl Views {
    pub(crate) fn new(
        control_plane: SocketAddr,
        services: [SocketAddr; INSTANCES],
    ) -> reqwest::Result<Self> {
        Ok(Self {
            client: reqwest::Client::builder()
                .no_proxy()
                // Plain HTTP: works on a machine without certificates.
                .tls_certs_only([])
                .timeout(Duration::from_millis(500))
                .build()?,
            ledger: format!("http://{control_plane}/v1/resources/api"),
            snapshots: services.map(|service| format!("http://{service}/doorman")),
        })
    }

    /// The control plane's view of the resource; `None` when it has none.
    pub(crate) async fn ledger(&self) -> Option<ResourceView> {
        self.get(&self.ledger).await
    }

    /// The leased capacity of each service; `None` without a lease or a response.
    pub(crate) async fn leases(&self) -> [Option<f64>; INSTANCES] {
        let [first, second, third] = self.snapshots.each_ref().map(|url| self.lease(url));
        tokio::join!(first, second, third).into()
    }

    async fn lease(&self, url: &str) -> Option<f64> {
        let snapshot: Snapshot = self.get(url).await?;
        Some(snapshot.limits.into_iter().next()?.lease?.capacity)
    }

    async fn get<T: DeserializeOwned>(&self, url: &str) -> Option<T> {
        let response = self.client.get(url).send().await.ok()?;
        let body = response.error_for_status().ok()?.bytes().await.ok()?;
        serde_json::from_slice(&body).ok()
    }
}

/// One second of the fleet.
#[derive(Debug)]
pub(crate) struct Table<'a> {
    /// Since the load started.
    pub(crate) elapsed: Duration,
    pub(crate) split: &'a Split,
    pub(crate) limit: f64,
    pub(crate) services: [SocketAddr; INSTANCES],
    pub(crate) second: &'a Window<INSTANCES>,
    pub(crate) leases: [Option<f64>; INSTANCES],
    pub(crate) ledger: Option<&'a ResourceView>,
}

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, split, limit) = (self.elapsed.as_secs(), self.split, self.limit);
        writeln!(f, "{seconds:>4} s, load split {split}")?;
        let rate = "per second";
        writeln!(
            f,
            "  {rate:<18}{:>10}{:>10}{:>10}{:>10}{:>10}",
            "offered", "admitted", "rejected", "failed", "lease"
        )?;
        let rows = self
            .services
            .iter()
            .zip(self.second.targets)
            .zip(self.leases);
        for ((service, totals), lease) in rows {
            self.row(f, &service.to_string(), totals, lease)?;
        }
        let leased = self.leases.into_iter().flatten();
        let leased = leased.reduce(|sum, lease| sum + lease);
        self.row(f, "total", self.second.total(), leased)?;
        writeln!(f, "  {:<18}{:>20.0}{limit:>30.1}", "limit", limit)?;
        match self.ledger {
            Some(view) => writeln!(
                f,
                "  control plane: capacity {}, sum_has {:.1}, sum_wants {:.1}, clients {}",
                view.capacity.map_or(f64::INFINITY, Capacity::get),
                view.sum_has,
                view.sum_wants,
                view.clients,
            ),
            None => writeln!(f, "  control plane: resource not found"),
        }
    }
}

impl Table<'_> {
    fn row(
        &self,
        f: &mut fmt::Formatter<'_>,
        name: &str,
        totals: Totals,
        lease: Option<f64>,
    ) -> fmt::Result {
        let rate = |count| self.second.per_second(count);
        // 503 while there is no lease, as in the first moments.
        let rejected = totals.rejected.saturating_add(totals.unavailable);
        let lease = lease.map_or_else(|| "none".to_owned(), |lease| format!("{lease:.1}"));
        writeln!(
            f,
            "  {name:<18}{:>10.0}{:>10.0}{:>10.0}{:>10.0}{lease:>10}",
            rate(totals.offered),
            rate(totals.admitted),
            rate(rejected),
            rate(totals.failed),
        )
    }
}

/// Standard output: redrawn in place on a terminal, appended to in a pipe.
#[derive(Debug)]
pub(crate) struct Screen {
    out: Stdout,
    /// Lines of the last table.
    lines: usize,
}

impl Screen {
    pub(crate) fn new() -> Self {
        Self {
            out: io::stdout(),
            lines: 0,
        }
    }

    /// Draws a table, on a terminal over the previous one.
    pub(crate) fn draw(&mut self, table: &str) -> io::Result<()> {
        if self.lines > 0 && self.out.is_terminal() {
            // Move to the start of the previous table, and clear everything below.
            write!(self.out, "\x1b[{}F\x1b[J", self.lines)?;
        }
        // The table and an empty line.
        self.lines = table.lines().count().saturating_add(1);
        writeln!(self.out, "{table}")
    }

    /// Prints text below the table.
    pub(crate) fn print(&mut self, text: &str) -> io::Result<()> {
        self.lines = 0;
        self.out.write_all(text.as_bytes())
    }
}
