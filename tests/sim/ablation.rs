//! The rules that keep a limit, each of which the simulation can do without. None is switched off in the code that is tested: what
//! goes in and comes out of it is bent until it behaves as if the rule were not there.

use std::{fmt, str::FromStr};

macro_rules! rules {
    ($($(#[$doc:meta])* $rule:ident = $name:literal,)*) => {
        /// A rule, by what happens without it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Rule {
            $($(#[$doc])* $rule,)*
        }

        impl Rule {
            /// All rules.
            pub const ALL: &[Self] = &[$(Self::$rule),*];

            fn name(self) -> &'static str {
                match self {
                    $(Self::$rule => $name,)*
                }
            }
        }
    };
}

rules! {
    /// A holder counts its lease from the sending of the request. Without: from the receipt of the answer.
    CountingFromSending = "counting-from-sending",
    /// The books keep what a holder said it has beside what it was granted. Without: they forget the old grant when they write the new.
    Booking = "booking",
    /// Nobody is granted more than it holds or is free. Without: everybody is granted their share at once.
    Granting = "granting",
    /// Late and doubled requests change nothing. Without: requests carry no number.
    SeqOfRequests = "seq-of-requests",
    /// Late and doubled releases change nothing. Without: releases carry no number.
    SeqOfReleases = "seq-of-releases",
    /// A lease that is stated again ends when it would have. Without: it is stated in full length.
    Restating = "restating",
    /// Reigns are told apart by their epoch. Without: answers of all reigns look alike, and a node's masters too.
    Epoch = "epoch",
    /// A master refuses once its election lease may be over. Without: it serves until it hears of another master.
    SelfFencing = "self-fencing",
    /// The books keep a lease 1.05 times as long as it lasts. Without: as long as it lasts.
    Drift = "drift",
    /// A server that may have a predecessor learns before it grants. Without: it starts with empty books.
    Learning = "learning",
    /// Learning lasts as long as anything granted before may. Without: as long as leases are under the document now in force.
    LearningBound = "learning-bound",
    /// After a cut everybody keeps a part. Without: a holder gets what the others leave, which is nothing.
    Cuts = "cuts",
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// There is no such rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownRule;

impl fmt::Display for UnknownRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("there is no such rule; there are:")?;
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
