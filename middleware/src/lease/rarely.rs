//! What should be said when it happens, but not more than once a minute, and how often it was not said.

use std::time::Duration;

use doorman_openapi::Moment;

const PAUSE: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct Rarely {
    last: Option<Moment>,
    said: bool,
}

impl Rarely {
    /// Whether to say it now.
    pub(super) fn now(&mut self, now: Moment) -> bool {
        let speak = self.last.is_none_or(|last| last.after(PAUSE) <= now);
        if speak {
            self.last = Some(now);
            self.said = true;
        }
        speak
    }

    /// It is over. Whether it was said, so that its end is worth saying.
    pub(super) fn over(&mut self) -> bool {
        std::mem::take(&mut self.said)
    }
}

/// For what happens to many at once: one is named, and the others are counted.
#[derive(Debug, Default)]
pub(super) struct Counted {
    rarely: Rarely,
    left_out: u64,
}

impl Counted {
    /// Whether to say it now, and how many times it was not said since the last time.
    pub(super) fn now(&mut self, now: Moment) -> Option<u64> {
        if self.rarely.now(now) {
            return Some(std::mem::take(&mut self.left_out));
        }
        self.left_out = self.left_out.saturating_add(1);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_one_is_said_and_the_others_are_counted() {
        let mut counted = Counted::default();
        let start = Moment::ORIGIN;
        assert_eq!(counted.now(start), Some(0));
        for _ in 0..1000 {
            assert_eq!(counted.now(start.after_seconds(59.0)), None);
        }
        assert_eq!(counted.now(start.after(PAUSE)), Some(1000));
        assert_eq!(counted.now(start.after(2 * PAUSE)), Some(0));
    }
}
