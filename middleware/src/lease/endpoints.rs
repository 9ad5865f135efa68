//! Which server to ask: stay with the one that answers, go on to the next when it fails, follow a master's name once.

/// Whether to try again at once or to pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    Now,
    Later,
}

/// Positions in the list of servers. Every way through here ends in a pause after at most one try of each and one hop, so that
/// servers which name each other, or themselves, cannot be circled without rest.
#[derive(Debug)]
pub(super) struct Endpoints {
    count: usize,
    current: usize,
    failed: usize,
    hopped: bool,
}

impl Endpoints {
    pub(super) fn new(count: usize) -> Self {
        Self {
            count: count.max(1),
            current: 0,
            failed: 0,
            hopped: false,
        }
    }

    pub(super) fn current(&self) -> usize {
        self.current
    }

    /// Goes on to the next, whatever the current one did.
    pub(super) fn skip(&mut self) {
        self.current = (self.current + 1) % self.count;
    }

    /// It gave leases.
    pub(super) fn answered(&mut self, endpoint: usize) {
        self.current = endpoint;
        self.failed = 0;
        self.hopped = false;
    }

    /// It did not serve.
    pub(super) fn failed(&mut self, endpoint: usize) -> Next {
        if endpoint != self.current {
            // Another request has found this out before.
            return Next::Now;
        }
        self.skip();
        self.failed += 1;
        if self.failed < self.count {
            return Next::Now;
        }
        self.failed = 0;
        self.hopped = false;
        Next::Later
    }

    /// It named another as the master.
    pub(super) fn redirected(&mut self, endpoint: usize, to: Option<usize>) -> Next {
        let Some(to) = to.filter(|to| *to < self.count && *to != endpoint) else {
            return self.failed(endpoint);
        };
        if endpoint != self.current {
            return Next::Now;
        }
        if self.hopped {
            return self.failed(endpoint);
        }
        self.hopped = true;
        self.current = to;
        Next::Now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tries_each_once_and_then_pauses() {
        let mut endpoints = Endpoints::new(3);
        assert_eq!(endpoints.failed(0), Next::Now);
        assert_eq!(endpoints.failed(1), Next::Now);
        assert_eq!(endpoints.failed(2), Next::Later);
        assert_eq!(endpoints.current(), 0);
        assert_eq!(Endpoints::new(1).failed(0), Next::Later);
    }

    #[test]
    fn stays_with_the_one_that_answers() {
        let mut endpoints = Endpoints::new(3);
        assert_eq!(endpoints.failed(0), Next::Now);
        endpoints.answered(1);
        assert_eq!(endpoints.current(), 1);
        assert_eq!(
            endpoints.failed(0),
            Next::Now,
            "a late failure of the one left"
        );
        assert_eq!(endpoints.current(), 1);
    }

    #[test]
    fn follows_a_name_once() {
        let mut endpoints = Endpoints::new(2);
        assert_eq!(endpoints.redirected(0, Some(1)), Next::Now);
        assert_eq!(endpoints.current(), 1);
        // They name each other.
        assert_eq!(endpoints.redirected(1, Some(0)), Next::Now);
        assert_eq!(endpoints.redirected(0, Some(1)), Next::Later);
        // After the pause a hop is allowed again.
        let current = endpoints.current();
        assert_eq!(endpoints.redirected(current, Some(1 - current)), Next::Now);
    }

    #[test]
    fn takes_a_name_that_leads_nowhere_for_a_failure() {
        for to in [None, Some(0), Some(9)] {
            assert_eq!(Endpoints::new(1).redirected(0, to), Next::Later, "{to:?}");
        }
    }
}
