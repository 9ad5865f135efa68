//! Safety rules that a run can disable.
//!
//! The tested code has no such switch. The simulation changes its inputs and outputs so that it
//! behaves as if the rule were missing.

mod lease;
mod node;

use std::{collections::BTreeMap, fmt, str::FromStr};

use doorman_core::{
    election::CallId, election::Event, etcd::EtcdAnswer, etcd::EtcdCall, etcd::EtcdReply,
    etcd::LeaseId, etcd::Op, etcd::Txn, ledger::FeedbackRule, ledger::Tuning,
};
use doorman_openapi::{CLOCK_DRIFT, Moment};

pub use self::{
    lease::{
        change_client_request, change_client_response, change_grants, change_node_request,
        release_others_of_its_name,
    },
    node::NodeAblation,
};

macro_rules! rules {
    ($($(#[$doc:meta])* $rule:ident = $name:literal,)*) => {
        /// A safety rule, and the behaviour without it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Rule {
            $($(#[$doc])* $rule,)*
        }

        impl Rule {
            /// All rules.
            pub const ALL: &[Self] = &[$(Self::$rule),*];

            /// Its name.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$rule => $name,)*
                }
            }
        }
    };
}

rules! {
    /// A lease starts when its request is sent. Without: when the response arrives.
    LeaseFromSendTime = "lease-from-send-time",
    /// The ledger books the larger of a holder's old and new grant. Without: only the new one.
    CombinedBooking = "combined-booking",
    /// A grant is at most what the holder has or what is free. Without: it is the full share.
    GrantCap = "grant-cap",
    /// The ledger ignores late and duplicate requests. Without: requests carry no `seq`.
    RequestSeq = "request-seq",
    /// The ledger ignores late and duplicate releases. Without: releases carry no `seq`.
    ReleaseSeq = "release-seq",
    /// A lease sent again keeps its expiry. Without: it starts anew.
    RestatedExpiry = "restated-expiry",
    /// Epochs order the masters of a node. Without: all masters have the same epoch.
    Epoch = "epoch",
    /// A master rejects requests once its election lease may have expired. Without: it serves until
    /// it learns of another master.
    SelfFencing = "self-fencing",
    /// The deadline of a reign counts from the sending of a renewal. Without: from its answer.
    DeadlineFromSend = "deadline-from-send",
    /// Each reign has its own key for the end of its leases. Without: all replace the same.
    LeaseKeyPerReign = "lease-key-per-reign",
    /// The writes of a master depend on its key. Without: they are executed later, too.
    GuardedWrites = "guarded-writes",
    /// No lease is reported beyond the durable bound. Without: no response waits for it.
    Bound = "bound",
    /// A renewal of the bound counts if it is answered before the deadline. Without: whenever it
    /// is.
    BoundAnswerInTime = "bound-answer-in-time",
    /// The ledger books a lease for 1.05 times its length. Without: for its length.
    ClockDrift = "clock-drift",
    /// A new master learns the leases of earlier masters before it grants. Without: it starts with
    /// an empty ledger.
    LearningMode = "learning-mode",
    /// A claim is confirmed by the epoch of the new master. Without: every claim is.
    EpochEcho = "epoch-echo",
    /// Learning mode lasts until every earlier lease has expired. Without: for the lease length of
    /// the active document.
    LearningDuration = "learning-duration",
    /// A server remembers the longest lease of its node. Without: one that knows no bound learns
    /// for the longest lease of the active document.
    LongestLease = "longest-lease",
    /// A new master knows the units in which earlier leases were granted. Without: holders that
    /// state no unit count in that of the active document.
    EarlierTerms = "earlier-terms",
    /// A node's lease counts from when its request was sent. Without: from the parent's response.
    ParentLeaseFromSendTime = "parent-lease-from-send-time",
    /// Leases that a node grants end with the parent's lease that covers them. Without: later.
    ParentLeaseEnd = "parent-lease-end",
    /// A total above the parent's newest lease ends with an older, larger one. Without: with the
    /// newest.
    OlderParentLease = "older-parent-lease",
    /// A new master of a node asks the parent before it answers. Without: it begins with nothing.
    AskParentFirst = "ask-parent-first",
    /// A node's new master learns for 1.05² times the length that the parent states. Without: for
    /// that length.
    StatedDuration = "stated-duration",
    /// While a node's new master learns, its `outstanding` includes what the parent stated and no
    /// holder has confirmed. Without: only the claims that it knows.
    StatedOutstanding = "stated-outstanding",
    /// A node asserts only its own leases. Without: its new master claims what its holders claim.
    OwnLeasesOnly = "own-leases-only",
    /// A node ignores an answer when the lease that its request named has ended. Without: it takes
    /// the answer.
    LateClaim = "late-claim",
    /// In learning mode `outstanding` counts only up to what this reign has leased. Without: it
    /// counts as `has`.
    OutstandingWhileLearning = "outstanding-while-learning",
    /// A node judges which older lease it needs by what holders may have that are not heard yet,
    /// too. Without: by what is booked.
    UnheardCover = "unheard-cover",
    /// A claim that is not confirmed, and that no lease of the node covers, gets no lease. Without:
    /// it gets one until the node's lease ends.
    StrictCover = "strict-cover",
    /// The lease that a parent states to a node's new master is within the durable bound. Without:
    /// the statement does not count.
    StatedWithinBound = "stated-within-bound",
    /// Answers of a deposed leader of etcd count for nothing. Without: as all others.
    DeposedLeader = "deposed-leader",
    /// Operations in flight are booked as a claim. Without: they are not reported.
    Outstanding = "outstanding",
    /// A claim counts up to what is booked for the holder, or else what the others leave. Without:
    /// up to the holder's share.
    ClaimLimit = "claim-limit",
    /// The runs of a client are holders of their own. Without: all are one.
    ClientRun = "client-run",
    /// A client replaces older ones of its name that are silent. Without: all others of its name.
    DeadPredecessor = "dead-predecessor",
    /// A STATIC lease is at most the capacity. Without: it is what the holder wants.
    StaticLimit = "static-limit",
    /// After a capacity cut every holder keeps a part. Without: a holder gets what the others
    /// leave.
    GradualCut = "gradual-cut",
    /// The effective capacity is at most that of the document. Without: what was effective before,
    /// and any step above it.
    EffectiveCeiling = "effective-ceiling",
    /// Overloads leave the floor of the capacity. Without: almost nothing.
    EffectiveFloor = "effective-floor",
    /// A document without `feedback` ends what was held back. Without: it stays.
    FeedbackEnd = "feedback-end",
}

impl Rule {
    /// The constants of a ledger without the rule.
    pub(super) fn tuning(self) -> &'static Tuning {
        const fn without(rule: FeedbackRule) -> Tuning {
            Tuning {
                feedback_without: Some(rule),
                ..Tuning::DEFAULT
            }
        }
        static CEILING: Tuning = without(FeedbackRule::Ceiling);
        static FLOOR: Tuning = without(FeedbackRule::Floor);
        static END: Tuning = without(FeedbackRule::EndsWithTemplate);
        match self {
            Self::EffectiveCeiling => &CEILING,
            Self::EffectiveFloor => &FLOOR,
            Self::FeedbackEnd => &END,
            _ => &Tuning::DEFAULT,
        }
    }
}

/// The part of an election lease that a master counts on.
const DEADLINE: f64 = 0.95;

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No rule has this name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownRule;

impl fmt::Display for UnknownRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unknown rule; must be one of:")?;
        Rule::ALL.iter().try_for_each(|rule| write!(f, " {rule}"))
    }
}

impl std::error::Error for UnknownRule {}

impl FromStr for Rule {
    type Err = UnknownRule;

    fn from_str(text: &str) -> Result<Self, UnknownRule> {
        let found = Self::ALL.iter().find(|rule| rule.name() == text);
        found.copied().ok_or(UnknownRule)
    }
}

/// The names of keys in etcd, of which the rules change some.
const MASTER_KEY: &str = "/master";
const LEASES_KEY: &str = "/leases/";

/// Renewals of an election that wait for an answer, to change the answers where a rule is missing.
#[derive(Debug)]
pub(super) struct EtcdCalls {
    without: Option<Rule>,
    election_lease: Option<LeaseId>,
    renewals: BTreeMap<CallId, (LeaseId, Moment)>,
}

/// The part of a reign that a reply extends.
#[derive(Debug, Clone, Copy)]
pub(super) enum Extended {
    Deadline(Moment),
    Bound(Moment),
}

impl EtcdCalls {
    pub(super) fn new(without: Option<Rule>) -> Self {
        Self {
            without,
            election_lease: None,
            renewals: BTreeMap::new(),
        }
    }

    /// Changes a call to what it would be without the rule.
    pub(super) fn on_call(&mut self, id: CallId, call: &mut EtcdCall, now: Moment) {
        match call {
            EtcdCall::KeepAlive(lease) => {
                self.renewals.insert(id, (*lease, now));
            }
            EtcdCall::Txn(txn) => {
                let puts = |it: &Op| match it {
                    Op::Put { key, lease, .. } if key.ends_with(MASTER_KEY) => *lease,
                    _ => None,
                };
                let campaign = txn.success.iter().find_map(puts);
                self.election_lease = campaign.or(self.election_lease);
                match self.without {
                    Some(Rule::LeaseKeyPerReign) => share_lease_key(txn),
                    Some(Rule::GuardedWrites) if campaign.is_none() => txn.compare.clear(),
                    _ => {}
                }
            }
            _ => {}
        }
    }

    /// The part of a reign that a reply extends without the rule.
    pub(super) fn on_reply(&mut self, event: &Event<EtcdAnswer>, now: Moment) -> Option<Extended> {
        let Event::Reply { call, result } = event else {
            return None;
        };
        let (lease, sent) = self.renewals.remove(call)?;
        let Some(EtcdReply::KeptAlive(Some(ttl))) = result.as_ref().map(|it| &it.reply) else {
            return None;
        };
        let is_election = Some(lease) == self.election_lease;
        match self.without {
            Some(Rule::DeadlineFromSend) if is_election => Some(Extended::Deadline(
                now.after_seconds(DEADLINE * f64::from(*ttl)),
            )),
            Some(Rule::BoundAnswerInTime) if !is_election => Some(Extended::Bound(
                sent.after_seconds(f64::from(*ttl) / CLOCK_DRIFT),
            )),
            _ => None,
        }
    }
}

fn share_lease_key(txn: &mut Txn) {
    for op in &mut txn.success {
        if let Op::Put { key, .. } = op
            && let Some(at) = key.find(LEASES_KEY)
        {
            key.truncate(at + LEASES_KEY.len());
        }
    }
}
