//! What a process wants of a resource, measured: attempts, admitted or not, over the last few seconds, with a little headroom.

use doorman_openapi::{Capacity, Moment};

/// A window is this many sub-intervals long.
const SUB_INTERVALS: f64 = 4.0;
/// Looks come at any time, so that a window may be cut into a few more.
const SLOTS: usize = 6;
/// While there are attempts, looks come so often in a window, so that a demand which outgrows its lease shows soon.
const LOOKS: f64 = 8.0;
/// Where nothing is attempted, less is enough: the limiter itself says when it runs low again.
const LOOKS_WHILE_QUIET: f64 = 2.0;
/// No mean is taken over less time than this, in seconds: one request after a pause is no rate of thousands.
const SHORTEST: f64 = 1.0;
const LONGEST: f64 = 10.0;
/// No report stands for less time than this, in seconds.
const SHORTEST_REPORT: f64 = 0.1;
/// What came between two looks tells nothing of a rate when they lie closer together than this, in seconds; but for what is lost in
/// counting them by single precision.
const SHORTEST_STRETCH: f64 = 0.1;
const ALMOST: f64 = 0.999;
/// What is asked for beyond what was attempted, as a part of it.
const HEADROOM: f64 = 0.1;

/// How long a window is, in seconds: about two refresh intervals, so that what is asked for is neither stale nor jumpy.
pub(crate) fn window_length(refresh_interval: f64) -> f64 {
    (2.0 * refresh_interval).clamp(SHORTEST, LONGEST)
}

/// Attempts over the last few seconds, taken from their running total.
#[derive(Debug, Clone)]
pub(crate) struct Window {
    /// `None` while nothing was attempted in the window, as with most of very many keys.
    busy: Option<Box<Busy>>,
    /// The running total at the last look, and when that was.
    total: f64,
    at: Moment,
}

/// What came in the window.
#[derive(Debug, Clone, Default)]
struct Busy {
    /// The newest first.
    slots: [Slot; SLOTS],
    /// The last two stretches between looks, the newer first, before one that is still too short to count: what tells of a sudden rise.
    stretches: [Slot; 2],
    begun: Slot,
}

/// Single precision is enough for a part of a second and what was attempted in it.
#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    seconds: f32,
    attempts: f32,
}

impl Window {
    /// Begins at `now`; what was attempted before the total was first seen counts as attempted just now.
    pub(crate) fn new(now: Moment) -> Self {
        Self {
            busy: None,
            total: 0.0,
            at: now,
        }
    }

    /// Takes down the running total of attempts. Whether there were any since the last look.
    pub(crate) fn look(&mut self, total: f64, length: f64, now: Moment) -> bool {
        let attempts = (total - self.total).max(0.0);
        let mut seconds = now.seconds_since(self.at);
        self.total = self.total.max(total);
        self.at = self.at.max(now);

        if attempts > 0.0 && self.busy.is_none() {
            // The time since the last look was quiet too: a limiter that has begun to run low is looked at at once.
            seconds = 0.0;
            self.busy = Some(Box::default());
        }
        let Some(busy) = &mut self.busy else {
            return false;
        };
        busy.add(attempts, seconds, length);
        if busy.slots.iter().all(|slot| slot.attempts <= 0.0) {
            self.busy = None;
        }
        attempts > 0.0
    }

    /// How many seconds after a look the next one should come.
    pub(crate) fn next_look(&self, length: f64) -> f64 {
        let looks = if self.is_quiet() {
            LOOKS_WHILE_QUIET
        } else {
            LOOKS
        };
        length / looks
    }

    /// Whether nothing was attempted in the window.
    fn is_quiet(&self) -> bool {
        self.busy.is_none()
    }

    /// The demand, in attempts a second: finite, not negative, and 0 when nothing was attempted.
    pub(crate) fn wants(&self) -> f64 {
        let busy = self.busy.as_ref();
        busy.map_or(0.0, |busy| busy.mean().max(busy.rise()))
    }
}

impl Busy {
    fn add(&mut self, attempts: f64, seconds: f64, length: f64) {
        let Self {
            slots,
            stretches,
            begun,
        } = self;
        begin_anew(slots, seconds, length / SUB_INTERVALS);
        let [newest, ..] = slots;
        newest.add(attempts, seconds);
        cut(slots, length);

        begun.add(attempts, seconds);
        if f64::from(begun.seconds) >= SHORTEST_STRETCH * ALMOST {
            let [newer, older] = stretches;
            *older = std::mem::replace(newer, std::mem::take(begun));
        }
    }

    /// What came in the window on the average, and a little more.
    fn mean(&self) -> f64 {
        // A demand that has just begun is not watered down by the quiet before it.
        let active = self.slots.iter().rposition(|slot| slot.attempts > 0.0);
        let Some(oldest) = active else {
            return 0.0;
        };
        let slots = self.slots.iter().take(oldest.saturating_add(1));
        let (seconds, attempts) = slots.fold((0.0, 0.0), |(seconds, attempts), slot| {
            (
                seconds + f64::from(slot.seconds),
                attempts + f64::from(slot.attempts),
            )
        });
        let headroom = f64::max(HEADROOM * attempts, attempts.sqrt());
        (attempts + headroom) / f64::max(seconds, SHORTEST)
    }

    /// What both of the last two stretches bear out, however short they were. A mean over seconds would see only little by little that
    /// many times as much is attempted as before; and a handful that come at one moment, and then no more, are no rate.
    fn rise(&self) -> f64 {
        let [newer, older] = self.stretches;
        newer.at_least().min(older.at_least()) * (1.0 + HEADROOM)
    }
}

impl Slot {
    fn add(&mut self, attempts: f64, seconds: f64) {
        self.seconds += seconds as f32;
        self.attempts += attempts as f32;
    }

    /// The rate that is borne out, in attempts a second: less than what was counted by what chance adds to it, so that it is less than the
    /// mean of a demand that stays the same.
    fn at_least(self) -> f64 {
        let (attempts, seconds) = (f64::from(self.attempts), f64::from(self.seconds));
        (attempts - attempts.sqrt()).max(0.0) / seconds.max(SHORTEST_STRETCH)
    }
}

/// Begins a new slot, if with so many seconds more the newest would be longer than `longest`.
fn begin_anew(slots: &mut [Slot; SLOTS], seconds: f64, longest: f64) {
    let [newest, ..] = slots;
    if f64::from(newest.seconds) + seconds > longest {
        slots.rotate_right(1);
        let [newest, ..] = slots;
        *newest = Slot::default();
    }
}

/// Drops what lies before the window.
fn cut(slots: &mut [Slot; SLOTS], length: f64) {
    let mut span = 0.0;
    for slot in slots {
        if span >= length {
            *slot = Slot::default();
        }
        span += f64::from(slot.seconds);
    }
}

/// The demand of a process that has been quiet for longer than a window, in attempts a second: one in as long as it has been quiet.
///
/// It fades to nothing, and on its way brings back the token that the last request took. So the next request, whenever it comes,
/// finds one and does not have to wait for a lease.
pub(crate) fn fading(quiet_seconds: f64) -> f64 {
    1.0 / quiet_seconds.max(SHORTEST)
}

/// Attempts since they were last reported, where what all holders want is added up and decides how much of it may be done: each
/// attempt counts in one report, at its time, without headroom. More than the truth would suppress who keeps to the limit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SinceReport {
    /// The running total at the last report, and when that was.
    total: f64,
    at: Moment,
}

impl SinceReport {
    /// Nothing was attempted, or reported, before `now`.
    pub(crate) fn new(now: Moment) -> Self {
        Self {
            total: 0.0,
            at: now,
        }
    }

    /// The demand in attempts a second, for a report that stands for `interval` seconds: an early one counts for as long.
    pub(crate) fn wants(&self, total: f64, interval: f64, now: Moment) -> f64 {
        let seconds = now
            .seconds_since(self.at)
            .max(interval)
            .max(SHORTEST_REPORT);
        (total - self.total).max(0.0) / seconds
    }

    /// The total is reported.
    pub(crate) fn reported(&mut self, total: f64, now: Moment) {
        *self = Self { total, at: now };
    }
}

/// A demand of so many tokens a second, in the unit of a resource that is counted over `per` seconds.
pub(crate) fn in_unit(per_second: f64, per: f64) -> Capacity {
    Capacity::saturating(per_second * per)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Looks eight times a window, and tells what was wanted after each look; attempts come as `rate` says.
    fn watch(length: f64, seconds: f64, rate: impl Fn(f64) -> f64) -> Vec<(f64, f64)> {
        let step = length / 8.0;
        let start = Moment::ORIGIN;
        let mut window = Window::new(start);
        let mut total = 0.0;
        let mut wants = Vec::new();
        let looks = (seconds / step) as u32;
        for look in 1..=looks {
            let time = f64::from(look) * step;
            // Fine enough that a change of the rate between two looks counts in part.
            for part in 0..100 {
                total += rate(time - step * (1.0 - f64::from(part) / 100.0)) * step / 100.0;
            }
            window.look(total, length, start.after_seconds(time));
            wants.push((time, window.wants()));
        }
        wants
    }

    #[test]
    fn asks_for_what_is_attempted_and_a_little_more() {
        for rate in [1.0, 10.0, 45.0, 720.0, 1e6] {
            for (time, wants) in watch(2.0, 10.0, |_| rate) {
                assert!(time < 3.0 || wants >= rate, "{time} {rate} {wants}");
                // In two seconds, the square root of what was attempted.
                let most = rate + f64::max(0.1 * rate, (rate / 2.0).sqrt());
                assert!(time < 3.0 || wants <= most * 1.001, "{time} {rate} {wants}");
            }
        }
    }

    #[test]
    fn a_step_is_seen_within_two_refresh_intervals() {
        for (before, after) in [(30.0, 2700.0), (2700.0, 30.0), (0.0, 100.0), (100.0, 0.0)] {
            let rate = |time| if time < 10.3 { before } else { after };
            for (time, wants) in watch(2.0, 20.0, rate) {
                if time >= 10.3 + 2.5 {
                    assert!(wants >= after, "{before} {after}: {wants} at {time}");
                    assert!(wants <= after * 1.25, "{before} {after}: {wants} at {time}");
                }
            }
        }
    }

    #[test]
    fn a_beginning_is_not_watered_down_by_the_quiet_before_it() {
        let rate = |time| if time < 5.0 { 0.0 } else { 100.0 };
        let wants = watch(2.0, 6.1, rate);
        let (time, wants) = wants.last().unwrap();
        assert!(*wants >= 100.0, "{wants} at {time}");
    }

    /// Looks at these seconds, each with so many attempts since the one before; what is wanted after the last.
    fn wants_after(window: &mut Window, looks: &[(f64, f64)]) -> f64 {
        let start = window.at;
        for (seconds, attempts) in looks {
            window.look(
                window.total + attempts,
                LONGEST,
                start.after_seconds(*seconds),
            );
        }
        window.wants()
    }

    #[test]
    fn a_sudden_rise_is_known_in_a_fraction_of_a_second() {
        for rate in [100.0, 1_000.0, 10_000.0] {
            let rise = [
                (0.0, 1.0),
                (0.1, 0.1 * rate),
                (0.3, 0.2 * rate),
                (0.7, 0.4 * rate),
            ];
            let quiet = Window::new(Moment::ORIGIN);
            let mut trickling = quiet.clone();
            let trickle = (1..=30).map(|second| (f64::from(second), 1.0));
            wants_after(&mut trickling, &trickle.collect::<Vec<_>>());
            for mut window in [quiet, trickling] {
                let wants = wants_after(&mut window, &rise);
                assert!((0.75..=1.2).contains(&(wants / rate)), "{rate}: {wants}");
            }
        }
    }

    #[test]
    fn what_comes_at_one_moment_is_no_rate() {
        let burst = [(0.0, 1.0), (0.1, 29.0), (0.3, 0.0), (0.7, 0.0)];
        for looks in 1..=burst.len() {
            let mut window = Window::new(Moment::ORIGIN);
            let wants = wants_after(&mut window, &burst[..looks]);
            assert!(wants <= 36.0, "{looks}: {wants}");
        }
    }

    #[test]
    fn looks_that_are_late_or_too_many_do_no_harm() {
        let mut window = Window::new(Moment::ORIGIN);
        let mut total = 0.0;
        for look in 1..10_000 {
            total += 0.1;
            window.look(
                total,
                2.0,
                Moment::ORIGIN.after_seconds(f64::from(look) / 1000.0),
            );
        }
        assert!((100.0..=115.0).contains(&window.wants()), "{window:?}");
        // An hour without a look is one long sub-interval.
        let much_later = Moment::ORIGIN.after_seconds(3610.0);
        window.look(total + 7200.0, 2.0, much_later);
        assert!((2.0..=2.3).contains(&window.wants()), "{window:?}");
    }

    proptest! {
        #[test]
        fn is_finite_and_never_negative_and_an_idle_process_wants_nothing(
            looks in prop::collection::vec((0.0..20.0_f64, -1e15..1e15_f64), 1..50),
            refresh in 0.0..1000.0_f64,
        ) {
            let length = window_length(refresh);
            prop_assert!((SHORTEST..=LONGEST).contains(&length));
            let mut window = Window::new(Moment::ORIGIN);
            let mut now = Moment::ORIGIN;
            let mut last = 0.0;
            for (seconds, total) in looks {
                now = now.after_seconds(seconds);
                window.look(total, length, now);
                let wants = window.wants();
                prop_assert!(wants.is_finite() && wants >= 0.0, "{}", wants);
                last = total;
            }
            for _ in 0..=SLOTS {
                now = now.after_seconds(length / SUB_INTERVALS);
                window.look(last, length, now);
            }
            prop_assert_eq!(window.wants(), 0.0);
        }
    }
}
