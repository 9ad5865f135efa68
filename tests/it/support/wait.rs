//! Time that passes, and what is waited for meanwhile.

use std::{thread, time::Duration};

use rustix::time::{ClockId, clock_gettime};

/// How long a process may take to say what it is waited for, or to end; only a broken one takes so long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// How often it is looked whether what is waited for has come.
const LOOK: Duration = Duration::from_millis(50);

/// Since some moment.
pub(crate) fn now() -> Duration {
    let time = clock_gettime(ClockId::Monotonic);
    Duration::try_from(time).expect("it has begun")
}

/// Looks until something is so.
pub(crate) fn until(what: &str, is: impl Fn() -> bool) {
    for _ in 0..PATIENCE.as_millis() / LOOK.as_millis() {
        if is() {
            return;
        }
        thread::sleep(LOOK);
    }
    panic!("never: {what}");
}
