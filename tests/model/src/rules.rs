//! The safety rules, and how a test finds that each of them is needed.

use doorman_sim::Rule;

use crate::model::{ALL_AT_NODE, OLDER_LEASE, Scope};

/// How a missing rule is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finding {
    /// The model has a violation within this scope, of so many steps after its prelude.
    Model(Scope, usize),
    /// The model does not contain the rule, or its violation is too deep. This test finds it: a
    /// file and a function.
    Test(&'static str, &'static str),
}

const SIM: &str = "tests/sim/tests.rs";
const PARENTS: &str = "server/core/src/ledger/tests/parents.rs";

const CALM: Scope = Scope::CALM;
const GREEDY: Scope = Scope::GREEDY;
const LATE: Scope = Scope {
    delays_answers: true,
    ..GREEDY
};
const COPIES: Scope = Scope {
    client_messages: 1,
    ..CALM
};
const CRASH: Scope = Scope {
    crashes: 1,
    ..GREEDY
};
const FAIL_OVER: Scope = Scope {
    fail_overs: 1,
    ..GREEDY
};
const BOTH: Scope = Scope {
    crashes: 1,
    ..FAIL_OVER
};

/// How it is found that a rule is missing.
#[must_use]
pub const fn finding(rule: Rule) -> Finding {
    use Finding::Test;
    match rule {
        Rule::LeaseFromSendTime
        | Rule::CombinedBooking
        | Rule::GrantCap
        | Rule::RequestSeq
        | Rule::ReleaseSeq
        | Rule::RestatedExpiry
        | Rule::Epoch
        | Rule::Bound
        | Rule::LearningMode
        | Rule::EpochEcho
        | Rule::ClaimLimit => of_holders(rule),
        Rule::ParentLeaseFromSendTime
        | Rule::ParentLeaseEnd
        | Rule::OlderParentLease
        | Rule::AskParentFirst
        | Rule::StatedOutstanding
        | Rule::OwnLeasesOnly
        | Rule::LateClaim
        | Rule::OutstandingWhileLearning
        | Rule::UnheardCover
        | Rule::StatedWithinBound => of_nodes(rule),
        Rule::StrictCover => Test(
            PARENTS,
            "claim_that_no_lease_covers_gets_none_while_learning",
        ),
        Rule::StatedDuration => Test(PARENTS, "new_master_of_a_node_learns_longer_than_stated"),
        Rule::SelfFencing => Test(SIM, "capacity_needs_self_fencing_masters"),
        Rule::DeadlineFromSend => {
            Test(SIM, "bookings_of_nodes_need_deadlines_counted_from_sending")
        }
        Rule::LeaseKeyPerReign => Test(SIM, "capacity_needs_lease_key_per_reign"),
        Rule::GuardedWrites => Test(SIM, "capacity_needs_writes_guarded_by_the_key"),
        Rule::BoundAnswerInTime => Test(SIM, "capacity_needs_bounds_answered_in_time"),
        Rule::ClockDrift => Test(SIM, "capacity_needs_clock_drift_margin"),
        Rule::LearningDuration => Test(SIM, "capacity_needs_full_learning_duration"),
        Rule::LongestLease => Test(SIM, "capacity_needs_longest_lease_of_earlier_reigns"),
        Rule::EarlierTerms => Test(SIM, "capacity_needs_units_of_earlier_leases"),
        Rule::DeposedLeader => Test(SIM, "capacity_needs_answers_of_deposed_leaders_ignored"),
        Rule::Outstanding => Test(SIM, "capacity_needs_operations_in_flight_booked"),
        Rule::ClientRun => Test(SIM, "capacity_needs_runs_of_clients_told_apart"),
        Rule::DeadPredecessor => Test(SIM, "capacity_needs_dead_predecessors"),
        Rule::StaticLimit => Test(SIM, "holders_of_static_leases_need_their_limit"),
        Rule::EffectiveCeiling => Test(SIM, "effective_capacities_need_their_ceiling"),
        Rule::EffectiveFloor => Test(SIM, "effective_capacities_need_their_floor"),
        Rule::FeedbackEnd => Test(SIM, "removed_feedback_needs_to_end_what_it_held_back"),
        Rule::GradualCut => Test(SIM, "partial_grants_after_cut_need_gradual_cut"),
    }
}

const fn of_holders(rule: Rule) -> Finding {
    let (scope, depth) = match rule {
        Rule::LeaseFromSendTime => (LATE, 6),
        Rule::CombinedBooking => (
            Scope {
                loses_answers: true,
                ..CALM
            },
            4,
        ),
        Rule::GrantCap => (GREEDY, 3),
        Rule::RequestSeq => (COPIES, 5),
        Rule::ReleaseSeq => (
            Scope {
                releases: true,
                ..COPIES
            },
            6,
        ),
        Rule::RestatedExpiry => (COPIES, 6),
        Rule::Epoch => (
            Scope {
                node_messages: 1,
                ..FAIL_OVER
            },
            11,
        ),
        Rule::EpochEcho => (
            Scope {
                crashes: 1,
                ..COPIES
            },
            6,
        ),
        Rule::ClaimLimit => (
            Scope {
                crashes: 1,
                fail_overs: 1,
                ..CALM
            },
            9,
        ),
        _ => (CRASH, 4),
    };
    Finding::Model(scope, depth)
}

const fn of_nodes(rule: Rule) -> Finding {
    let (scope, depth) = match rule {
        Rule::ParentLeaseFromSendTime => (LATE, 6),
        Rule::ParentLeaseEnd => (GREEDY, 5),
        Rule::OlderParentLease => (CALM, 8),
        Rule::AskParentFirst => (
            Scope {
                loses_answers: true,
                ..FAIL_OVER
            },
            9,
        ),
        Rule::StatedOutstanding => (FAIL_OVER, 9),
        Rule::UnheardCover => (
            Scope {
                prelude: ALL_AT_NODE,
                root_clients: 2,
                ..FAIL_OVER
            },
            7,
        ),
        Rule::LateClaim => (
            Scope {
                prelude: OLDER_LEASE,
                node_wants: CALM.node_wants,
                node_messages: 1,
                crashes: 2,
                ..GREEDY
            },
            8,
        ),
        Rule::StatedWithinBound => (CRASH, 4),
        Rule::OutstandingWhileLearning => (BOTH, 10),
        _ => (BOTH, 9),
    };
    Finding::Model(scope, depth)
}
