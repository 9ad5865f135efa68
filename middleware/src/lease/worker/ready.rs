//! Who waits for the first answers.

use std::collections::HashSet;

use doorman_openapi::ResourceId;
use tokio::sync::oneshot;

use crate::lease::tracked::Limiters;

/// Each waits for the fixed limiters that there were when it asked, and if there were no rules yet, for the first rules and theirs.
#[derive(Debug, Default)]
pub(super) struct Waiters(Vec<Waiter>);

#[derive(Debug)]
struct Waiter {
    unanswered: HashSet<ResourceId>,
    /// Whether it waits for the first rules.
    rules: bool,
    reply: oneshot::Sender<()>,
}

impl Waiters {
    pub(super) fn add(&mut self, reply: oneshot::Sender<()>, limiters: &Limiters, rules: bool) {
        self.0.push(Waiter {
            unanswered: unanswered(limiters).collect(),
            rules,
            reply,
        });
        self.reply();
    }

    /// There are rules, and these are the limiters now.
    pub(super) fn rules_came(&mut self, limiters: &Limiters) {
        for waiter in self.0.iter_mut().filter(|waiter| waiter.rules) {
            waiter.rules = false;
            waiter.unanswered.extend(unanswered(limiters));
        }
        self.reply();
    }

    pub(super) fn answered(&mut self, id: &ResourceId) {
        if self.0.is_empty() {
            return;
        }
        for waiter in &mut self.0 {
            waiter.unanswered.remove(id);
        }
        self.reply();
    }

    /// Replies to those who have nothing to wait for any more, and drops those who have gone away.
    fn reply(&mut self) {
        let done = |waiter: &mut Waiter| {
            (waiter.unanswered.is_empty() && !waiter.rules) || waiter.reply.is_closed()
        };
        for waiter in self.0.extract_if(.., done) {
            waiter.reply.send(()).ok();
        }
    }
}

fn unanswered(limiters: &Limiters) -> impl Iterator<Item = ResourceId> {
    limiters
        .iter()
        .filter(|tracked| tracked.limiter.is_permanent() && !tracked.answered)
        .map(|tracked| tracked.limiter.resource().clone())
}
