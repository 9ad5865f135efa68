//! A target with fixed windows, as providers of models have them.

use super::{OwnLimit, TargetResponse, whole_seconds};
use crate::scenario::RateLimit;

/// Accepts the requests of a window as fast as they come, then none until the next window.
pub(super) struct Window {
    settings: RateLimit,
    /// Seconds.
    length: f64,
    /// The number of the current window.
    number: Option<f64>,
    left: f64,
    /// The second up to which requests of others are counted.
    counted: f64,
}

impl Window {
    pub(super) fn new(settings: RateLimit, length: f64) -> Self {
        Self {
            settings,
            length,
            number: None,
            left: 0.0,
            counted: 0.0,
        }
    }

    pub(super) fn request(&mut self, now: f64, latency: f64) -> TargetResponse {
        let number = (now / self.length).floor();
        if self.number != Some(number) {
            self.number = Some(number);
            self.left = self.settings.rate.at(now) * self.length;
            self.counted = number * self.length;
        }
        let foreign = self.settings.foreign.at(now) * (now - self.counted);
        self.left = (self.left - foreign).max(0.0);
        self.counted = now;
        let is_accepted = self.left >= 1.0;
        if is_accepted {
            self.left -= 1.0;
        }
        let reset = (number + 1.0) * self.length - now;
        let seen = self.settings.headers.then_some(OwnLimit {
            remaining: self.left,
            reset,
        });
        let response = if is_accepted {
            TargetResponse::served(latency)
        } else {
            TargetResponse {
                retry_after: self.settings.retry_after.then(|| whole_seconds(reset)),
                ..TargetResponse::refused()
            }
        };
        TargetResponse { seen, ..response }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        scenario::Steps,
        target::{TargetResult, tests::steps},
    };

    fn window(foreign: Steps) -> Window {
        let settings = RateLimit {
            rate: steps(&[(0.0, 2.0), (60.0, 3.0)]),
            foreign,
            headers: true,
            retry_after: true,
        };
        Window::new(settings, 10.0)
    }

    /// The requests served of so many at once.
    fn served(window: &mut Window, count: usize, now: f64) -> usize {
        let results = (0..count).map(|_| window.request(now, 0.3).result);
        results.filter(|it| *it == TargetResult::Served).count()
    }

    #[test]
    fn each_window_has_its_requests() {
        let mut window = window(Steps::default());
        assert_eq!(served(&mut window, 15, 1.0), 15);
        assert_eq!(served(&mut window, 15, 9.0), 5);
        assert_eq!(served(&mut window, 30, 10.0), 20);
        assert_eq!(served(&mut window, 50, 69.0), 30);
    }

    #[test]
    fn responses_state_what_is_left_and_the_end() {
        let mut window = window(Steps::default());
        let first = window.request(4.0, 0.3);
        let seen = OwnLimit {
            remaining: 19.0,
            reset: 6.0,
        };
        assert_eq!((first.after, first.seen), (0.3, Some(seen)));
        served(&mut window, 19, 4.0);
        let refused = window.request(4.5, 0.3);
        assert_eq!(refused.result, TargetResult::Refused);
        assert_eq!(refused.retry_after, Some(6.0));
        assert_eq!(refused.seen.map(|it| it.reset), Some(5.5));
    }

    #[test]
    fn others_use_up_the_window() {
        let mut window = window(steps(&[(0.0, 1.0)]));
        assert_eq!(served(&mut window, 30, 5.0), 15);
        assert_eq!(served(&mut window, 30, 9.0), 0);
    }
}
