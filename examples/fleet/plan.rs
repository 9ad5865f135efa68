//! How the load shifts between the services.

use std::{fmt, time::Duration};

/// Number of services.
pub(crate) const INSTANCES: usize = 3;

/// Duration of a split: time for the leases to follow, and for a ten-second average.
const TURN: Duration = Duration::from_secs(20);

/// A distribution of the load.
#[derive(Debug, PartialEq)]
pub(crate) struct Split {
    name: &'static str,
    /// Fraction of the full load.
    offered: f64,
    /// Fraction of that per service.
    parts: [f64; INSTANCES],
}

const SPLITS: [Split; 4] = [
    Split {
        name: "even",
        offered: 1.0,
        parts: [1.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0],
    },
    Split {
        name: "90/9/1",
        offered: 1.0,
        parts: [0.90, 0.09, 0.01],
    },
    Split {
        name: "80/15/5",
        offered: 0.3,
        parts: [0.80, 0.15, 0.05],
    },
    Split {
        name: "1/9/90",
        offered: 1.0,
        parts: [0.01, 0.09, 0.90],
    },
];

impl Split {
    /// The split at a time since the load started; they repeat.
    pub(crate) fn at(elapsed: Duration) -> &'static Self {
        let turn = elapsed.as_secs() / TURN.as_secs();
        let [first, ..] = &SPLITS;
        SPLITS.get(turn as usize % SPLITS.len()).unwrap_or(first)
    }

    /// Requests per second for each service.
    pub(crate) fn rates(&self, load: f64) -> [f64; INSTANCES] {
        self.parts.map(|part| part * self.offered * load)
    }

    /// Whether it offers more than the limit.
    pub(crate) fn overloads(&self, load: f64, limit: f64) -> bool {
        self.rates(load).iter().sum::<f64>() > limit
    }
}

impl fmt::Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_offers_its_fraction_of_the_load() {
        for split in &SPLITS {
            let total: f64 = split.rates(3000.0).iter().sum();
            assert!((total - 3000.0 * split.offered).abs() < 1e-9, "{split}");
        }
    }

    #[test]
    fn splits_repeat_in_order() {
        let names: Vec<_> = [0, 19, 20, 40, 79, 80]
            .map(|second| Split::at(Duration::from_secs(second)).name)
            .into();
        assert_eq!(
            names,
            ["even", "even", "90/9/1", "80/15/5", "1/9/90", "even"]
        );
    }
}
