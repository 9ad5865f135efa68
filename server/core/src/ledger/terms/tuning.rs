//! Constants of the ledger that were chosen by simulation: `docs/TUNING.md` has the tables.

/// Constants of the ledger that simulations vary. A server uses [`Tuning::DEFAULT`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tuning {
    /// A surplus is left alone while it differs from the right one by at most this part of it.
    pub surplus_tolerance: f64,
    /// The time until the next hint of a holder, in seconds: the first, and the most. It doubles.
    pub hint_spacing: (f64, f64),
    /// The same for a node. There are few, and each level of a tree adds its time.
    pub hint_spacing_of_nodes: (f64, f64),
    /// The most hints of a resource per tenth of a second, beside those for changed terms.
    pub hints_per_window: u32,
    /// The most holders that are hinted at once because their demand may have fallen.
    pub probes: usize,
    /// Seconds until the second round of such hints, and the age of a report that is not doubted.
    pub probe_gap: f64,
    /// The longest refresh interval in seconds while others wait for a holder, or it for others.
    pub awaited_interval: f64,
}

impl Tuning {
    /// The constants of the product.
    pub const DEFAULT: Self = Self {
        surplus_tolerance: 0.25,
        hint_spacing: (0.05, 0.25),
        hint_spacing_of_nodes: (0.02, 0.05),
        hints_per_window: 64,
        probes: 8,
        probe_gap: 0.1,
        awaited_interval: 1.0,
    };
}
