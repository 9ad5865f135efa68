//! What should be said when it happens, but not more than once a minute.

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
