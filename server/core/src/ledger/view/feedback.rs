//! View of a resource with `feedback`.

use doorman_openapi::{Capacity, FeedbackState, FeedbackView, Moment, Probability, Seconds};

use crate::ledger::{
    feedback::{control::ControlState, control::FeedbackControl, status::ControlStatus},
    terms::Role,
};

pub(in crate::ledger) fn feedback_view(
    law: &FeedbackControl,
    role: Role,
    now: Moment,
) -> FeedbackView {
    let status = law.status(now);
    let state = match status.state {
        _ if role != Role::Act => FeedbackState::Observing,
        ControlState::Open => FeedbackState::Open,
        ControlState::Held => FeedbackState::Held,
        ControlState::Probing => FeedbackState::Probing,
        ControlState::Paused => FeedbackState::Paused,
    };
    let left = |until: Moment| Seconds::saturating(until.seconds_since(now));
    FeedbackView {
        state: Some(state),
        lasts: Seconds::saturating(now.seconds_since(status.since)),
        since: None,
        plateau: status.plateau.map(Capacity::saturating),
        overloaded_share: Probability::saturating(status.overloaded_share),
        ends_in: status.until.map(left),
        until: None,
        base: status.base.map(Probability::saturating),
        reason: if is_by_headers(law, now) {
            "the target's own limit lasts at this rate until it resets".to_owned()
        } else {
            reason(&status, now)
        },
    }
}

/// Whether the target's own limit holds the resource back, and nothing else does.
fn is_by_headers(law: &FeedbackControl, now: Moment) -> bool {
    let effective = law.effective(now);
    effective > 0.0 && effective < law.level()
}

fn reason(status: &ControlStatus, now: Moment) -> String {
    let left = status.until.map(|until| until.seconds_since(now).ceil());
    let for_now = left.map_or(String::new(), |left| {
        format!("; more is tried in {left} s at the earliest")
    });
    let accepts = status.plateau.map_or(String::new(), |plateau| {
        format!(", and accepts about {}", (plateau * 100.0).round() / 100.0)
    });
    let refuses = |share: f64| format!("the target refused {:.1} % of the requests", share * 100.0);
    let base = status.base.map_or(String::new(), |base| {
        format!("; it refuses {:.1} % at any load", base * 100.0)
    });
    match status.state {
        ControlState::Open if status.base.is_some() => {
            format!("less load did not help{base}")
        }
        ControlState::Open => "the target accepts the capacity, or the demand is lower".to_owned(),
        ControlState::Held if status.is_inherited => {
            format!("the previous master held this level{for_now}")
        }
        ControlState::Held if status.is_slow => {
            format!("the target took longer than `latency`{accepts}{for_now}")
        }
        ControlState::Held => {
            format!(
                "{}{accepts}{base}{for_now}",
                refuses(status.overloaded_share)
            )
        }
        ControlState::Probing => {
            format!("raised in steps since the last cut{accepts}{base}")
        }
        ControlState::Paused => match left {
            Some(left) => {
                format!("the target accepts nothing, and asks to wait: {left} s are left")
            }
            None => "the target accepts nothing".to_owned(),
        },
    }
}
