//! What one holder has of a resource, and what keeps it from more, as operators are shown it.

use doorman_openapi::{
    Band, Capacity, HeldBackBy, HolderKind, HolderView, Moment, ResourceView, Seconds,
};

use super::why;

/// What one holder has of a resource: all of its view but the words and the time of day, which need no books.
#[derive(Debug, Clone, PartialEq)]
pub struct HolderStatus {
    /// Whether it leases for itself.
    pub kind: HolderKind,
    /// Its identifier.
    pub id: String,
    /// What it wants, by priority.
    pub bands: Vec<Band>,
    /// The same, of all priorities together.
    pub wants: f64,
    /// What it should have, by what all want now.
    pub share: f64,
    /// The same if shares came in any size; absent where they do.
    pub exact_share: Option<f64>,
    /// The lease last granted, while it lasts.
    pub has: f64,
    /// What it would be granted if it came back now.
    pub within_reach: f64,
    /// The most that it may be using now.
    pub booked: f64,
    /// The most that all others together may be using now.
    pub others: f64,
    /// What keeps it from having what it wants.
    pub held_back_by: Option<HeldBackBy>,
    /// What it said that it cannot give back at once.
    pub outstanding: Capacity,
    /// The total cost it said that it has admitted.
    pub used: Option<Capacity>,
    /// When a request of it was last decided, in seconds before now.
    pub refreshed_ago: Option<f64>,
    /// In how many seconds it should have come back at the latest, by what it was last told; negative when it has not.
    pub due_in: Option<f64>,
    /// Until when the books keep the lease last granted.
    pub lease_end: Option<Moment>,
    /// Seconds until the books take the last of it back.
    pub expires_in: Seconds,
}

impl HolderStatus {
    /// The same where holders are told of no lease that ends after `bound`.
    #[must_use]
    pub fn capped_at(self, bound: Moment) -> Self {
        if self.has > 0.0 && self.lease_end.is_some_and(|end| end > bound) {
            Self {
                held_back_by: Some(HeldBackBy::Bound),
                ..self
            }
        } else {
            self
        }
    }

    /// The view as it goes over the wire, of a holder of this resource. `unix_now` is the wall clock in Unix seconds: the end it gives
    /// is for people only.
    #[must_use]
    pub fn into_view(self, resource: &ResourceView, unix_now: u64) -> HolderView {
        HolderView {
            why: why::why(resource, &self),
            client_id: self.id,
            kind: self.kind,
            priority: self.bands.first().map_or(0, |band| band.priority),
            wants: Capacity::saturating(self.wants),
            share: Capacity::saturating(self.share),
            has: Capacity::saturating(self.has),
            held_back_by: self.held_back_by,
            booked: self.booked,
            outstanding: self.outstanding,
            used: self.used,
            refreshed_ago: self.refreshed_ago.map(Seconds::saturating),
            expires_in: self.expires_in,
            expiry_time: unix_now.saturating_add(self.expires_in.get() as u64),
            bands: match self.kind {
                HolderKind::Client => Vec::new(),
                HolderKind::Node => self.bands,
            },
        }
    }
}
