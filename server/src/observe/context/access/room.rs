//! How many lines somebody could read.

use std::time::Duration;

use doorman_openapi::Moment;

/// How many lines of one kind are written in one second.
const LINES: u32 = 20;

const SECOND: Duration = Duration::from_secs(1);

/// How many lines were written in this second, and how many since the last one was not.
#[derive(Debug, Default)]
pub(super) struct Room {
    since: Moment,
    lines: u32,
    left_out: u64,
}

impl Room {
    /// Room for another line: how many were left out before it. `None`: it is left out, too.
    pub(super) fn for_another(&mut self, now: Moment) -> Option<u64> {
        if now >= self.since.after(SECOND) {
            self.since = now;
            self.lines = 0;
        }
        if self.lines >= LINES {
            self.left_out = self.left_out.saturating_add(1);
            return None;
        }
        self.lines = self.lines.saturating_add(1);
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twenty_lines_a_second_are_written_and_the_next_one_says_how_many_were_not() {
        let mut room = Room::default();
        let start = Moment::ORIGIN.after(Duration::from_secs(3600));
        for _ in 0..LINES {
            assert_eq!(room.for_another(start), Some(0));
        }
        for _ in 0..1000 {
            assert_eq!(room.for_another(start.after(SECOND / 2)), None);
        }
        let next = start.after(SECOND);
        assert_eq!(room.for_another(next), Some(1000));
        assert_eq!(room.for_another(next), Some(0));
    }
}
