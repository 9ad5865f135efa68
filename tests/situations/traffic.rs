//! Counts over the requests of several services.

use std::{collections::BTreeMap, fmt};

use super::plan::{Report, Request};

/// Requests of one or more services.
#[derive(Debug, Clone, Default)]
pub(super) struct Traffic<'a> {
    requests: Vec<&'a Request>,
}

impl<'a> Traffic<'a> {
    pub(super) fn of(reports: impl IntoIterator<Item = &'a Report>) -> Self {
        let requests = reports.into_iter().flat_map(|report| &report.requests);
        Self {
            requests: requests.collect(),
        }
    }

    /// The requests sent in `from..until`.
    pub(super) fn sent(&self, from: f64, until: f64) -> Self {
        self.filter(|request| (from..until).contains(&request.sent))
    }

    /// The requests of one tenant.
    pub(super) fn tenant(&self, tenant: &str) -> Self {
        self.filter(|request| request.tenant == tenant)
    }

    fn filter(&self, keep: impl Fn(&Request) -> bool) -> Self {
        let requests = self.requests.iter().copied();
        Self {
            requests: requests.filter(|request| keep(request)).collect(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.requests.len()
    }

    pub(super) fn admitted(&self) -> usize {
        self.filter(Request::is_admitted).len()
    }

    /// Requests admitted in each second of `from..until`; a second in part does not count.
    pub(super) fn admitted_per_second(&self, from: f64, until: f64) -> Vec<usize> {
        let mut seconds = vec![0; (until - from + 1e-9) as usize];
        for request in self.requests.iter().filter(|it| it.is_admitted()) {
            let second = (request.answered - from).floor();
            if second >= 0.0
                && let Some(count) = seconds.get_mut(second as usize)
            {
                *count += 1;
            }
        }
        seconds
    }

    /// The most requests admitted in any `seconds`.
    pub(super) fn most_admitted(&self, seconds: f64) -> usize {
        let admitted = self.requests.iter().filter(|it| it.is_admitted());
        let mut times: Vec<f64> = admitted.map(|request| request.answered).collect();
        times.sort_by(f64::total_cmp);
        let mut begin = times.iter().peekable();
        let counts = times.iter().enumerate().map(|(index, at)| {
            while begin.next_if(|first| **first <= at - seconds).is_some() {}
            index + begin.len() + 1 - times.len()
        });
        counts.max().unwrap_or_default()
    }

    /// The smallest bucket with which a limiter of `rate` per second could have admitted this:
    /// what was admitted beyond the rate, in any window.
    pub(super) fn bucket(&self, rate: f64) -> f64 {
        let admitted = self.requests.iter().filter(|it| it.is_admitted());
        let mut times: Vec<f64> = admitted.map(|request| request.answered).collect();
        times.sort_by(f64::total_cmp);
        let (mut level, mut highest, mut last) = (0.0_f64, 0.0_f64, f64::NEG_INFINITY);
        for at in times {
            level = (level - (at - last) * rate).max(0.0) + 1.0;
            last = at;
            highest = highest.max(level);
        }
        highest
    }

    /// Requests that were not admitted, by status and reason.
    pub(super) fn refused(&self) -> Refused {
        let mut refused = BTreeMap::new();
        for request in self.requests.iter().filter(|it| !it.is_admitted()) {
            let reason = request.reason.clone().unwrap_or_default();
            *refused.entry((request.status, reason)).or_insert(0) += 1;
        }
        Refused(refused)
    }

    /// The longest `Retry-After`.
    pub(super) fn retry_after(&self) -> u64 {
        let seconds = self.requests.iter().filter_map(|it| it.retry_after);
        seconds.max().unwrap_or_default()
    }

    /// The tokens left by the field `RateLimit` of the first response.
    pub(super) fn first_remaining(&self) -> Option<u64> {
        let first = self.requests.iter();
        first
            .min_by(|a, b| a.answered.total_cmp(&b.answered))?
            .remaining
    }
}

impl Request {
    fn is_admitted(&self) -> bool {
        self.status == 200
    }
}

/// Numbers of refused requests, by status and reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refused(BTreeMap<(u16, String), usize>);

impl Refused {
    pub(super) fn total(&self) -> usize {
        self.0.values().sum()
    }

    /// Whether each of them has this status.
    pub(super) fn all_have(&self, status: u16) -> bool {
        self.0.keys().all(|(other, _)| *other == status)
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none refused");
        }
        f.write_str("refused ")?;
        for (index, ((status, reason), count)) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(f, "{separator}{count} × {status} {reason}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(at: f64, status: u16) -> Request {
        Request {
            tenant: String::new(),
            sent: at,
            answered: at,
            status,
            reason: (status != 200).then(|| "Spent".to_owned()),
            retry_after: None,
            remaining: None,
        }
    }

    fn report(requests: impl IntoIterator<Item = Request>) -> Report {
        Report {
            requests: requests.into_iter().collect(),
            ..Report::default()
        }
    }

    #[test]
    fn seconds_count_admitted_requests_of_all_services() {
        let reports = [
            report([request(0.0, 200), request(0.9, 429), request(1.0, 200)]),
            report([request(1.5, 200), request(2.5, 200)]),
        ];
        let traffic = Traffic::of(&reports);
        assert_eq!(traffic.admitted_per_second(0.0, 2.5), [1, 2]);
        assert_eq!(traffic.admitted_per_second(1.0, 3.0), [2, 1]);
        assert_eq!(traffic.sent(0.9, 1.5).admitted(), 1);
    }

    #[test]
    fn bucket_is_the_largest_excess_of_any_window() {
        let steady = (0..100).map(|index| request(f64::from(index) * 0.1, 200));
        let burst = (0..20).map(|_| request(5.05, 200));
        let reports = [report(steady.chain(burst))];
        let bucket = Traffic::of(&reports).bucket(10.0);
        assert!((bucket - 20.5).abs() < 1.0, "{bucket}");
    }

    #[test]
    fn most_admitted_counts_every_window() {
        let steady = (0..100).map(|index| request(f64::from(index) * 0.1, 200));
        let burst = (0..20).map(|_| request(5.05, 200));
        let refused = (0..20).map(|_| request(5.06, 429));
        let reports = [report(steady.chain(burst).chain(refused))];
        let traffic = Traffic::of(&reports);
        assert_eq!(traffic.most_admitted(1.0), 30);
        assert_eq!(traffic.most_admitted(100.0), 120);
        assert_eq!(Traffic::default().most_admitted(1.0), 0);
    }

    #[test]
    fn refusals_are_listed_by_status_and_reason() {
        let reports = [report([
            request(0.0, 200),
            request(0.0, 429),
            request(0.0, 429),
            request(0.0, 503),
        ])];
        let refused = Traffic::of(&reports).refused();
        assert_eq!(refused.to_string(), "refused 2 × 429 Spent, 1 × 503 Spent");
        assert_eq!(refused.total(), 3);
        assert!(!refused.all_have(429));
        assert!(Refused(BTreeMap::new()).all_have(429));
    }
}
