//! What should be said when it begins, and then once a minute.

use std::time::Duration;

use doorman_openapi::Moment;

const PAUSE: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct Rarely {
    last: Option<Moment>,
}

impl Rarely {
    /// Whether to say it now.
    pub(super) fn now(&mut self, now: Moment) -> bool {
        let speak = self.last.is_none_or(|last| last.after(PAUSE) <= now);
        if speak {
            self.last = Some(now);
        }
        speak
    }

    /// It is over. Whether it was ever said.
    pub(super) fn reset(&mut self) -> bool {
        self.last.take().is_some()
    }
}
