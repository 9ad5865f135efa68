use proptest::prelude::*;

use super::*;
use crate::tuning::Tuning;

/// Samples a demand of `rate(time)` eight times a window and returns (time, measured demand).
fn measure(length: f64, seconds: f64, rate: impl Fn(f64) -> f64) -> Vec<(f64, f64)> {
    let step = length / 8.0;
    let start = Moment::ORIGIN;
    let mut window = Window::new(start);
    let mut total = 0.0;
    let mut wants = Vec::new();
    let samples = (seconds / step) as u32;
    for sample in 1..=samples {
        let time = f64::from(sample) * step;
        for part in 0..100 {
            total += rate(time - step * (1.0 - f64::from(part) / 100.0)) * step / 100.0;
        }
        window.record(total, length, start.after_seconds(time));
        wants.push((time, window.per_second()));
    }
    wants
}

const INTERVAL: f64 = 5.0;

#[test]
fn early_reports_of_few_attempts_show_the_rate() {
    let per_second = 18.0;
    let mut demand = ReportedDemand::new(0.0, 0.0, INTERVAL, Moment::ORIGIN);
    for quarter in 1..=40 {
        let time = f64::from(quarter) / 4.0;
        let (total, now) = (
            (per_second * time).floor(),
            Moment::ORIGIN.after_seconds(time),
        );
        let reported = demand.per_second(total, now);
        assert!(reported <= 1.1 * per_second, "{reported} after {time} s");
        demand.report(total, now);
        // Ten attempts take more than two reports.
        if quarter % 3 == 0 {
            assert!(reported >= 0.9 * per_second, "{reported} after {time} s");
        }
    }
}

#[test]
fn hinted_report_soon_after_another_keeps_the_rate() {
    for (per_second, pause) in [(100.0, 0.02), (100.0, 0.1), (100.0, 0.2), (20.0, 0.3)] {
        let mut demand = ReportedDemand::new(0.0, 0.0, INTERVAL, Moment::ORIGIN);
        for time in [5.0, 5.0 + pause, 5.0 + 3.0 * pause, 7.0] {
            let now = Moment::ORIGIN.after_seconds(time);
            let reported = demand.per_second(per_second * time, now);
            assert!(
                (reported / per_second - 1.0).abs() < 1e-6,
                "{reported} at {time} s"
            );
            demand.report(per_second * time, now);
        }
    }
}

#[test]
fn early_reports_of_one_attempt_count_it_once() {
    let mut demand = ReportedDemand::new(0.0, 0.0, INTERVAL, Moment::ORIGIN);
    let mut counted = 0.0;
    let reports = [0.1, 0.35, 0.6, 5.4, 10.2, 15.0];
    for (time, until) in reports.into_iter().zip(reports.into_iter().skip(1)) {
        let now = Moment::ORIGIN.after_seconds(time);
        counted += demand.per_second(1.0, now) * (until - time);
        demand.report(1.0, now);
    }
    assert!((0.9..=1.1).contains(&counted), "{counted}");
}

#[test]
fn steady_demand_is_measured_without_headroom() {
    for rate in [1.0, 10.0, 45.0, 720.0, 1e6] {
        for (time, wants) in measure(2.0, 10.0, |_| rate) {
            let ratio = wants / rate;
            assert!(
                time < 3.0 || (0.999..=1.001).contains(&ratio),
                "{time} {rate} {wants}"
            );
        }
    }
}

#[test]
fn step_is_measured_within_two_refresh_intervals() {
    for (before, after) in [(30.0, 2700.0), (2700.0, 30.0), (0.0, 100.0), (100.0, 0.0)] {
        let rate = |time| if time < 10.3 { before } else { after };
        for (time, wants) in measure(2.0, 20.0, rate) {
            if time >= 10.3 + 2.5 {
                assert!(
                    wants >= after * 0.999,
                    "{before} {after}: {wants} at {time}"
                );
                assert!(
                    wants <= after * 1.001,
                    "{before} {after}: {wants} at {time}"
                );
            }
        }
    }
}

impl Window {
    /// The demand as reported for a hint.
    fn current(&self) -> f64 {
        let mut window = self.clone();
        window.accept_fall();
        window.per_second()
    }
}

#[test]
fn stretch_begun_by_a_hint_shows_a_fall() {
    let mut window = Window::new(Moment::ORIGIN);
    let (mut now, mut total) = (Moment::ORIGIN, 0.0);
    for _ in 0..20 {
        now = now.after_seconds(0.25);
        total += 0.25 * 800.0;
        window.record(total, 2.0, now);
    }
    // The demand falls after the last sample, just before the hint.
    now = now.after_seconds(0.1);
    total += 0.09 * 800.0;
    window.record(total, 2.0, now);
    assert!(window.current() > 700.0, "{}", window.current());

    let seconds = window.begin_stretch().unwrap();
    assert!(seconds < 0.05, "{seconds}");
    now = now.after_seconds(seconds);
    window.record(total + 1.0, 2.0, now);
    assert!(window.current() < 250.0, "{}", window.current());

    let mut slow = Window::new(Moment::ORIGIN);
    for second in 1..10 {
        slow.record(
            f64::from(second),
            2.0,
            Moment::ORIGIN.after_seconds(second.into()),
        );
    }
    assert_eq!(slow.begin_stretch(), None);
}

#[test]
fn quiet_before_a_demand_does_not_count() {
    let rate = |time| if time < 5.0 { 0.0 } else { 100.0 };
    let wants = measure(2.0, 6.1, rate);
    let (time, wants) = wants.last().unwrap();
    assert!(*wants >= 99.9, "{wants} at {time}");
}

/// Samples at these seconds, each with attempts since the one before; returns the last demand.
fn wants_after(window: &mut Window, samples: &[(f64, f64)]) -> f64 {
    let start = window.sampled_at;
    for (seconds, attempts) in samples {
        window.record(
            window.total + attempts,
            Tuning::DEFAULT.max_window,
            start.after_seconds(*seconds),
        );
    }
    window.per_second()
}

#[test]
fn sudden_rise_is_measured_within_a_second() {
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
fn sudden_fall_shows_within_one_stretch() {
    for rate in [100.0, 1_000.0] {
        let mut window = Window::new(Moment::ORIGIN);
        let steady = (1..=30).map(|second| (f64::from(second), rate));
        wants_after(&mut window, &steady.collect::<Vec<_>>());
        wants_after(&mut window, &[(0.5, 0.05 * rate)]);
        assert!(window.per_second() > 0.9 * rate, "not yet confirmed");
        assert!(window.current() <= 0.2 * rate, "{}", window.current());
        wants_after(&mut window, &[(0.5, 0.05 * rate)]);
        let wants = window.per_second();
        assert!((0.1..=0.2).contains(&(wants / rate)), "{rate}: {wants}");
    }
    let mut trickle = Window::new(Moment::ORIGIN);
    let steady = (1..=30).map(|second| (f64::from(second), 5.0));
    wants_after(&mut trickle, &steady.collect::<Vec<_>>());
    wants_after(&mut trickle, &[(0.1, 0.0)]);
    assert_eq!(trickle.current(), trickle.per_second(), "too short to tell");
}

#[test]
fn burst_at_one_moment_is_no_rate() {
    let burst = [(0.0, 1.0), (0.1, 29.0), (0.3, 0.0), (0.7, 0.0)];
    for samples in 1..=burst.len() {
        let mut window = Window::new(Moment::ORIGIN);
        let wants = wants_after(&mut window, &burst[..samples]);
        assert!(wants <= 36.0, "{samples}: {wants}");
    }
}

#[test]
fn late_or_frequent_samples_do_not_distort() {
    let mut window = Window::new(Moment::ORIGIN);
    let mut total = 0.0;
    for sample in 1..10_000 {
        total += 0.1;
        window.record(
            total,
            2.0,
            Moment::ORIGIN.after_seconds(f64::from(sample) / 1000.0),
        );
    }
    assert!((99.9..=100.1).contains(&window.per_second()), "{window:?}");
    // An hour without a sample is one long sub-interval.
    let much_later = Moment::ORIGIN.after_seconds(3610.0);
    window.record(total + 7200.0, 2.0, much_later);
    assert!((1.99..=2.01).contains(&window.per_second()), "{window:?}");
}

proptest! {
    #[test]
    fn demand_is_finite_and_zero_when_idle(
        samples in prop::collection::vec((0.0..20.0_f64, -1e15..1e15_f64), 1..50),
        refresh in 0.0..1000.0_f64,
    ) {
        let length = window_length(refresh);
        prop_assert!((MIN_WINDOW..=Tuning::DEFAULT.max_window).contains(&length));
        let mut window = Window::new(Moment::ORIGIN);
        let mut now = Moment::ORIGIN;
        let mut last = 0.0;
        for (seconds, total) in samples {
            now = now.after_seconds(seconds);
            window.record(total, length, now);
            let wants = window.per_second();
            prop_assert!(wants.is_finite() && wants >= 0.0, "{}", wants);
            last = total;
        }
        for _ in 0..=SLOTS {
            now = now.after_seconds(length / SUB_INTERVALS);
            window.record(last, length, now);
        }
        prop_assert_eq!(window.per_second(), 0.0);
    }
}
