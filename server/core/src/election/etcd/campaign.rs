//! A campaign for mastership, until the reign begins.

use doorman_openapi::{CLOCK_DRIFT, Epoch, Moment};

use super::{
    Campaign, EPOCH, Elected, ElectionLease, EtcdElection, Fetch, HANDOVER, LEASES, LONGEST,
    LongestLease, MASTER, Mastership, NODE, Phase, Purpose, ROUNDING, Stored, TERMS, UNKNOWN, Won,
    longest_of, next_epoch, terms::StoredTerms,
};
use crate::{
    election::{Effect, EndReason, Handover, Learn, LedgerSource, ReignEffect, Term, Time},
    etcd::{Compare, EtcdCall, KeyValue, LeaseId, Op, Txn, TxnReply},
    reign::TermsGeneration,
};

impl EtcdElection {
    pub(super) fn campaign(&mut self, last: Stored, lease: ElectionLease, time: Time) {
        let Phase::Campaigning(own) = &mut self.state else {
            return;
        };
        *own = Some(lease);
        let known = self.last_epoch.max(last.epoch);
        let Some(epoch) = next_epoch(known, time.unix) else {
            return self.step_down(EndReason::Deposed, time.now);
        };
        let campaign = Campaign {
            last,
            epoch,
            has_unknown_leases: self.has_unknown_leases(last.epoch),
        };
        let txn = self.campaign_txn(&campaign, lease.id, time.now);
        self.call(Purpose::Campaign(campaign), EtcdCall::Txn(txn), time.now);
    }

    /// The transaction by which this server becomes master, if nobody else has.
    fn campaign_txn(&self, campaign: &Campaign, lease: LeaseId, now: Moment) -> Txn {
        let epoch = campaign.epoch;
        // Cannot fail: it has only text and numbers.
        let value = serde_json::to_vec(&self.record(epoch)).unwrap_or_default();
        let keys = &self.keys;
        let node = self.options.node.as_str().as_bytes().to_vec();
        let mut txn = Txn {
            compare: vec![
                Compare::Created {
                    key: keys.of(MASTER),
                    revision: 0,
                },
                Compare::Modified {
                    key: keys.of(EPOCH),
                    revision: campaign.last.revision,
                },
            ],
            success: vec![
                Op::put(keys.of(MASTER), value, Some(lease)),
                Op::put(keys.of(EPOCH), epoch.to_string().into_bytes(), None),
                Op::GetPrefix(keys.of(LEASES)),
                Op::DeletePrefix(keys.of(HANDOVER)),
                // etcd may have lost it.
                Op::put(keys.of(NODE), node, None),
                Op::GetPrefix(keys.of(LONGEST)),
                Op::GetPrefix(keys.of(TERMS)),
            ],
            ..Txn::default()
        };
        if campaign.has_unknown_leases || self.earlier_leases(now).is_some() {
            // The epoch hides them from the next master, which may come before this one has a
            // bound. It may know less of their length.
            let length = self.longest.map(|nanos| keys.longest_of(epoch, nanos));
            let keys = [Some(keys.of(UNKNOWN)), length].into_iter().flatten();
            txn.success
                .extend(keys.map(|key| Op::put(key, Vec::new(), None)));
        }
        txn
    }

    /// Whether leases may be outstanding of which etcd has no trace: it has lost its data, or is
    /// new to this server. `last` is the last epoch in etcd.
    pub(super) fn has_unknown_leases(&self, last: Option<Epoch>) -> bool {
        let is_new = last.is_none()
            && self.stored_ledger(last).is_none()
            && self.options.earlier_leases.is_none()
            && !self.options.is_first;
        is_new || last < self.elected_epoch
    }

    pub(super) fn on_campaign(&mut self, campaign: Campaign, reply: &TxnReply, now: Moment) {
        let (last, epoch) = (campaign.last, campaign.epoch);
        let Phase::Campaigning(Some(lease)) = self.state else {
            return;
        };
        self.lost_campaigns = 0;
        if !reply.succeeded {
            self.step_down(EndReason::Deposed, now);
            self.poll_at = now;
            return;
        }
        // A poll that is under way may have been executed before.
        self.calls.clear();
        let found = |at: usize| reply.results.get(at).map_or(&[][..], Vec::as_slice);
        let (leases, handovers, lengths) = (found(2), found(3), found(5));
        let terms = StoredTerms::find(found(6), &self.keys.of(TERMS));
        let has_unknown_leases =
            campaign.has_unknown_leases || leases.iter().any(|it| it.key == self.keys.of(UNKNOWN));
        (self.last_epoch, self.elected_epoch) = (Some(epoch), Some(epoch));
        self.master = Some(self.record(epoch));
        // This server may remember what etcd has lost.
        self.longest = self.longest.max(longest_of(lengths));
        let earlier_leases = self.earlier_leases(now);
        let has_other_terms = has_unknown_leases || earlier_leases.is_some();
        let other_terms = self.take_terms(&terms, has_other_terms);
        let (learn, ledger) = if has_unknown_leases {
            let until = earlier_leases.unwrap_or(Moment::ORIGIN);
            (Learn::LongestLease(until), None)
        } else {
            let learn = earlier_leases.map_or(Learn::Nothing, Learn::Until);
            (
                learn,
                self.ledger_source(last.epoch, handovers, earlier_leases),
            )
        };
        let fetch = match ledger {
            // The driver ends a transfer without progress, or that takes longer than learning may.
            Some(_) => Fetch::Until(Moment::NEVER),
            // A master that etcd has forgotten serves until its deadline.
            None if has_unknown_leases => Fetch::Until(now.after_seconds(lease.ttl.into())),
            None => Fetch::Failed,
        };
        self.state = Phase::Elected(Elected {
            won: Won {
                lease,
                epoch,
                created: reply.revision,
                longest: LongestLease {
                    written: 0,
                    earlier: lengths.iter().map(|it| it.key.clone()).collect(),
                },
            },
            unread: leases.iter().filter_map(|it| it.lease).collect(),
            read_at: now,
            learn,
            uncovered: learn,
            ledger: fetch,
            terms,
            other_terms,
        });
        self.effects
            .extend(ledger.map(|source| Effect::FetchLedger { source, epoch }));
        self.read_bounds(now);
        self.begin_if_ready();
    }

    /// Returns the terms that only this server knows, if they count.
    fn take_terms(&mut self, terms: &StoredTerms, has_others: bool) -> Vec<TermsGeneration> {
        let others = if has_others {
            self.terms.clone()
        } else {
            Vec::new()
        };
        if !terms.generations.is_empty() {
            self.terms_version.clone_from(&terms.version);
            self.hear_terms(terms.generations.clone(), others.clone());
        }
        others
    }

    /// Where the ledger of the last master is. A server that has earlier leases of its own learns
    /// instead of taking it over from another one.
    pub(super) fn ledger_source(
        &self,
        last: Option<Epoch>,
        offers: &[KeyValue],
        earlier_leases: Option<Moment>,
    ) -> Option<LedgerSource> {
        if let Some(epoch) = self.stored_ledger(last) {
            return Some(LedgerSource::DataDir { epoch });
        }
        let last = last.filter(|_| earlier_leases.is_none())?;
        self.handover(last, offers).map(LedgerSource::Peer)
    }

    /// The epoch of the ledger in the data directory, if no server was master since.
    pub(super) fn stored_ledger(&self, last: Option<Epoch>) -> Option<Epoch> {
        let (epoch, had_election) = self.options.stored_ledger?;
        let expected = had_election.then_some(epoch);
        (last == expected).then_some(epoch)
    }

    /// Until when leases from a time without election may be outstanding.
    pub(super) fn earlier_leases(&self, now: Moment) -> Option<Moment> {
        self.options.earlier_leases.filter(|until| now < *until)
    }

    /// The offer of the last master.
    pub(super) fn handover(&self, last: Epoch, offers: &[KeyValue]) -> Option<Handover> {
        let key = self.keys.handover_of(last);
        let offer = offers.iter().find(|it| it.key == key)?;
        let offer: Handover = serde_json::from_slice(&offer.value).ok()?;
        (offer.epoch == last).then_some(offer)
    }

    pub(super) fn on_bound_read(&mut self, lease: LeaseId, left: Option<u32>, now: Moment) {
        let Phase::Elected(elected) = &mut self.state else {
            return;
        };
        elected.unread.remove(&lease);
        if let Some(left) = left {
            let until = now.after_seconds(CLOCK_DRIFT * (f64::from(left) + ROUNDING));
            elected.learn = elected.learn.and_until(until);
        }
        self.begin_if_ready();
    }

    pub(super) fn begin_if_ready(&mut self) {
        let Phase::Elected(Elected {
            won,
            unread,
            learn,
            uncovered,
            ledger,
            terms,
            other_terms,
            ..
        }) = &self.state
        else {
            return;
        };
        let (inherits, learn) = match ledger {
            Fetch::Received => (true, Learn::Nothing),
            Fetch::Failed if unread.is_empty() => (false, *learn),
            Fetch::Failed | Fetch::Until(_) => return,
        };
        let (won, uncovered, other_terms) = (won.clone(), *uncovered, other_terms.clone());
        let StoredTerms {
            generations,
            prefixes,
            ..
        } = terms.clone();
        let (epoch, deadline) = (won.epoch, won.lease.deadline());
        let lacks_terms = other_terms.iter().any(|it| !generations.contains(it));
        self.begun_epoch = self.begun_epoch.max(Some(epoch));
        self.state = Phase::Master(Mastership {
            won,
            bound: None,
            bound_at: Moment::ORIGIN,
            old_terms: prefixes,
            terms: None,
            terms_at: Moment::ORIGIN,
            lacks_terms,
        });
        self.affect(ReignEffect::Begin(Term {
            epoch,
            deadline,
            inherits,
            learn,
            uncovered,
            longest: self.longest,
            bound: (Moment::ORIGIN, 0),
            terms: generations,
            other_terms,
        }));
    }
}
