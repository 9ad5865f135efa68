//! The worker fetches the rules, and says in the log what becomes of them.

use doorman_openapi::Moment;

use super::Worker;
use crate::{
    clock,
    lease::{
        Failure, Transport,
        call::Called,
        carrier::RulesOutcome,
        reply::Failed,
        rules::{ANSWER_TIME, News},
    },
    rules::Change,
};

impl<T: Transport> Worker<T> {
    /// Asks for the rules, if it is time.
    pub(super) fn fetch_rules(&mut self, now: Moment) {
        if let Some((endpoint, tag)) = self.polling.ask(now) {
            let service = &self.parts.service;
            let fetching = self
                .parts
                .carrier
                .rules(endpoint, service, tag, ANSWER_TIME);
            self.fetching.push(Box::pin(fetching));
        }
    }

    /// An answer to the question for the rules, or none.
    pub(super) fn rules_came_out(&mut self, outcome: RulesOutcome) {
        let RulesOutcome {
            endpoint,
            called,
            result,
        } = outcome;
        let now = clock::now();
        let limited = match &result {
            Err(Failed {
                failure: Failure::Limited { retry_after },
                ..
            }) => Some(*retry_after),
            Ok(_) | Err(_) => None,
        };
        let followed = match result {
            Ok(News::Unchanged) => {
                self.parts.rules.are_current();
                Ok(None)
            }
            Ok(News::Rules(told, tag)) => match self.parts.registry.upgrade() {
                None => return,
                Some(registry) => match self.parts.rules.take_up(told, &registry) {
                    Ok(change) => {
                        if let Some(change) = change {
                            say(&change);
                        }
                        Ok(Some(tag))
                    }
                    Err(why) => Err(format!("answers what is not understood as rules: {why}")),
                },
            },
            Err(failed) => Err(failed.reason),
        };
        match followed {
            Ok(news) => {
                let first = news.is_some();
                self.polling.followed(endpoint, news, now);
                if self.polling.unreachable.over() {
                    tracing::info!("the control plane tells the rules again");
                }
                // The limiters of the rules are to be waited for, too.
                if first && self.take_nudges().is_some() {
                    self.waiters.rules_came(&self.limiters);
                }
            }
            Err(reason) => {
                match limited {
                    Some(retry_after) => self.polling.limited(retry_after, now),
                    None => self.polling.failed(endpoint, now),
                }
                let reason = format!("{}: {reason}", self.parts.carrier.name(endpoint));
                if self.polling.unreachable.now(now) {
                    let Called {
                        trace_id,
                        request_id,
                    } = called;
                    tracing::warn!(
                        reason,
                        %trace_id,
                        request_id,
                        "the rules cannot be learned: the last good ones stay"
                    );
                }
                self.parts.rules.are_missed(reason);
            }
        }
    }
}

fn say(change: &Change) {
    let Change {
        version,
        applied,
        not_applied,
    } = change;
    tracing::info!(version, limits = applied, "new rules are followed");
    for left_out in not_applied {
        tracing::error!(
            rule = left_out.rule,
            reason = left_out.reason,
            "a rule cannot be followed by this process, and is not applied"
        );
    }
}
