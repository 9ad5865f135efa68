//! What is shown of one second.

use std::{fmt, net::SocketAddr, time::Duration};

use doorman_examples::load::{Totals, Window};
use doorman_openapi::{Capacity, ResourceView};

use crate::plan::{INSTANCES, Split};

/// One second of the fleet.
#[derive(Debug)]
pub(crate) struct Table<'a> {
    /// Since the load began.
    pub(crate) elapsed: Duration,
    /// How the load was split.
    pub(crate) split: &'a Split,
    /// What all instances together may admit.
    pub(crate) limit: f64,
    /// Where the instances listen.
    pub(crate) services: [SocketAddr; INSTANCES],
    /// What was offered to them, and what they answered.
    pub(crate) second: &'a Window<INSTANCES>,
    /// What each has leased.
    pub(crate) leases: [Option<f64>; INSTANCES],
    /// What the control plane says.
    pub(crate) books: Option<&'a ResourceView>,
}

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, split, limit) = (self.elapsed.as_secs(), self.split, self.limit);
        writeln!(f, "{seconds:>4} s, load split {split}")?;
        let rate = "per second";
        writeln!(
            f,
            "  {rate:<18}{:>10}{:>10}{:>10}{:>10}{:>10}",
            "offered", "admitted", "refused", "failed", "lease"
        )?;
        let rows = self
            .services
            .iter()
            .zip(self.second.targets)
            .zip(self.leases);
        for ((service, totals), lease) in rows {
            self.row(f, &service.to_string(), totals, lease)?;
        }
        let leased = self
            .leases
            .into_iter()
            .flatten()
            .reduce(|sum, lease| sum + lease);
        self.row(f, "in total", self.second.total(), leased)?;
        writeln!(f, "  {:<18}{:>20.0}{limit:>30.1}", "limit", limit)?;
        match self.books {
            Some(books) => writeln!(
                f,
                "  control plane: capacity {}, sum_has {:.1}, sum_wants {:.1}, clients {}",
                books.capacity.map_or(f64::INFINITY, Capacity::get),
                books.sum_has,
                books.sum_wants,
                books.clients,
            ),
            None => writeln!(f, "  control plane: knows nothing of the resource"),
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
        // The layer refuses with 503 while there is no lease to speak of, as in the first moments.
        let refused = totals.refused.saturating_add(totals.unavailable);
        let lease = lease.map_or_else(|| "none".to_owned(), |lease| format!("{lease:.1}"));
        writeln!(
            f,
            "  {name:<18}{:>10.0}{:>10.0}{:>10.0}{:>10.0}{lease:>10}",
            rate(totals.offered),
            rate(totals.admitted),
            rate(refused),
            rate(totals.failed),
        )
    }
}
