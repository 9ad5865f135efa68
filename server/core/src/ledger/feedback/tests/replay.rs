//! Replay of the calls of a model of the law, of which the levels are known.
//!
//! `replay.txt` has a line per call, with the time in milliseconds: `N configured holders` begins
//! anew, `R` is a report and `T` a tick. A tick has the bookings, the wants, the expected level and
//! effective capacity (`=`: the same), and the bookings of each holder while a window is open.

use doorman_openapi::Moment;

use super::fleet::terms;
use crate::ledger::feedback::{
    control::FeedbackControl,
    holder::HolderEvidence,
    report::{Bookings, OutcomeReport},
    terms::ControlTerms,
};

/// The largest difference, as a part of the level.
const TOLERANCE: f64 = 1e-9;

struct Replay {
    control: FeedbackControl,
    holders: Vec<HolderEvidence>,
}

impl Replay {
    fn new(configured: f64, holders: usize) -> Self {
        let terms = ControlTerms {
            configured,
            ..terms(None)
        };
        Self {
            control: FeedbackControl::new(terms, None, Moment::ORIGIN),
            holders: vec![HolderEvidence::default(); holders],
        }
    }

    fn report(&mut self, fields: &[&str], now: Moment) {
        let holder: usize = fields[2].parse().expect("a number");
        let count = |index: usize| fields[index].parse().expect("a count");
        let seen = fields[12].split_once(',');
        let report = OutcomeReport {
            elapsed: number(fields[3]),
            used: number(fields[4]),
            ok: count(5),
            overloaded: count(6),
            failed: count(7),
            ok_seconds: number(fields[8]),
            wants: number(fields[9]),
            has: number(fields[10]),
            pause: fields[11].parse().ok(),
            seen: seen.map(|(left, reset)| (number(left), number(reset))),
        };
        let evidence = &mut self.holders[holder];
        self.control.report(holder, evidence, &report, now);
    }

    fn tick(&mut self, fields: &[&str], now: Moment) -> Result<(), String> {
        let bookings = Bookings {
            booked: number(fields[2]),
            wants: number(fields[3]),
        };
        let booked = fields[6..].iter().map(|it| number(it));
        let holders = self.holders.iter().copied().zip(booked);
        self.control.tick(bookings, holders, now);
        let level = number(fields[4]);
        let effective = match fields[5] {
            "=" => level,
            other => number(other),
        };
        compare("level", self.control.level.capacity(), level)?;
        compare("effective", self.control.effective(now), effective)
    }
}

fn number(text: &str) -> f64 {
    text.parse().expect("a number")
}

fn compare(name: &str, is: f64, expected: f64) -> Result<(), String> {
    if (is - expected).abs() <= TOLERANCE * expected.max(1.0) {
        Ok(())
    } else {
        Err(format!("{name} {is} instead of {expected}"))
    }
}

#[test]
fn levels_are_those_of_the_model() {
    let mut replay = Replay::new(0.0, 0);
    for (index, line) in include_str!("replay.txt").lines().enumerate() {
        let fields: Vec<&str> = line.split(' ').collect();
        let now = || Moment::from_nanos(1_000_000 * fields[1].parse::<u64>().expect("a time"));
        let result = match fields[0] {
            "N" => {
                replay = Replay::new(number(fields[1]), fields[2].parse().expect("a count"));
                Ok(())
            }
            "R" => {
                replay.report(&fields, now());
                Ok(())
            }
            "T" => replay.tick(&fields, now()),
            _ => Ok(()),
        };
        if let Err(error) = result {
            panic!("line {}: {error}: {line}", index + 1);
        }
    }
}
