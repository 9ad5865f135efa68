//! Constants of the ledger that were chosen by simulation: `docs/TUNING.md` has the tables.

use crate::ledger::feedback::rules::FeedbackRule;

/// Constants of the ledger that simulations vary. A server uses [`Tuning::DEFAULT`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tuning {
    /// The time until the next hint of a holder, in seconds: the first, and the most. It doubles.
    pub hint_spacing: (f64, f64),
    /// The same for a node. There are few, and each level of a tree adds its time.
    pub hint_spacing_of_nodes: (f64, f64),
    /// Seconds between the first two hints to holders whose demand may have fallen, and the age of
    /// a report that is not doubted.
    pub probe_gap: f64,
    /// The longest refresh interval in seconds while others wait for a holder, or it for others.
    pub awaited_interval: f64,
    /// The longest refresh interval in seconds while capacity follows the time of requests: only
    /// reports tell it.
    pub followed_interval: f64,
    /// A rule of feedback to leave out.
    pub feedback_without: Option<FeedbackRule>,
}

impl Tuning {
    /// The constants of the product.
    pub const DEFAULT: Self = Self {
        hint_spacing: (0.05, 0.25),
        hint_spacing_of_nodes: (0.02, 0.05),
        probe_gap: 0.1,
        awaited_interval: 1.0,
        followed_interval: 0.5,
        feedback_without: None,
    };

    /// Whether a rule of feedback is left out.
    pub(in crate::ledger) fn is_without(&self, rule: FeedbackRule) -> bool {
        self.feedback_without == Some(rule)
    }
}
