//! Kinds of faults and holders that a plan adds to the usual ones.
//!
//! A run without them draws no random numbers for them: a seed means the same as ever.

use std::{fmt, str::FromStr};

use fastrand::Rng;

macro_rules! extras {
    ($($(#[$doc:meta])* $extra:ident = $name:literal,)*) => {
        /// A kind of faults or holders that a plan can add.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Extra {
            $($(#[$doc])* $extra,)*
        }

        impl Extra {
            /// All kinds.
            pub const ALL: &[Self] = &[$(Self::$extra),*];

            fn name(self) -> &'static str {
                match self {
                    $(Self::$extra => $name,)*
                }
            }
        }
    };
}

extras! {
    /// Some resources are gauges. Operations in flight outlive a smaller lease.
    Gauges = "gauges",
    /// The document changes while servers are down, and servers of a node have different ones:
    /// another period or unit of the same capacity, another template or lease length.
    Documents = "documents",
    /// A node runs with one server, then with several that share etcd, and with one again.
    ServerCount = "server-count",
    /// Some clients claim more than they have, echo epochs without a response, and repeat old
    /// numbers.
    Liars = "liars",
    /// One more resource has an algorithm that does not divide the capacity. It changes.
    Algorithms = "algorithms",
    /// A leader of etcd that was deposed answers for a while.
    DeposedLeader = "deposed-leader",
    /// Pairs of clients of a node use one client id, which they keep over restarts.
    Clones = "clones",
    /// Capacities follow targets, whose limits change. Some clients say other things of their
    /// requests than the truth. Templates lose `feedback`, and have it again.
    Feedback = "feedback",
}

impl Extra {
    const fn bit(self) -> u8 {
        1 << self as u8
    }

    /// In how many of a hundred runs it is, if it is one of several. The mistakes that liars cause
    /// by right would hide others.
    fn percent(self) -> u8 {
        match self {
            Self::Liars => 25,
            _ => 50,
        }
    }
}

/// A set of kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Extras(u8);

impl Extras {
    /// The usual faults and holders alone.
    pub const NONE: Self = Self(0);

    /// All kinds.
    #[must_use]
    pub const fn all() -> Self {
        Self(u8::MAX >> (u8::BITS as usize - Extra::ALL.len()))
    }

    /// Whether a kind is among them.
    #[must_use]
    pub fn contains(self, extra: Extra) -> bool {
        self.0 & extra.bit() != 0
    }

    /// Those of one run. A single one is in each.
    pub(super) fn of_run(self, rng: &mut Rng) -> Self {
        if self.0.count_ones() == 1 {
            return self;
        }
        let kinds = Extra::ALL.iter().copied();
        let kinds = kinds.filter(|it| rng.u8(..100) < it.percent() && self.contains(*it));
        kinds.collect()
    }

    fn iter(self) -> impl Iterator<Item = Extra> {
        let kinds = Extra::ALL.iter().copied();
        kinds.filter(move |it| self.contains(*it))
    }
}

impl FromIterator<Extra> for Extras {
    fn from_iter<I: IntoIterator<Item = Extra>>(kinds: I) -> Self {
        Self(kinds.into_iter().fold(0, |bits, it| bits | it.bit()))
    }
}

impl From<Extra> for Extras {
    fn from(extra: Extra) -> Self {
        Self(extra.bit())
    }
}

/// The names, with commas between them.
impl fmt::Display for Extras {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.iter().map(Extra::name).collect();
        f.write_str(&names.join(","))
    }
}

/// No kind has this name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownExtra(String);

impl fmt::Display for UnknownExtra {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = Extras::all();
        write!(f, "must be all, or some of {all}, not {:?}", self.0)
    }
}

impl std::error::Error for UnknownExtra {}

impl FromStr for Extras {
    type Err = UnknownExtra;

    fn from_str(text: &str) -> Result<Self, UnknownExtra> {
        if text == "all" {
            return Ok(Self::all());
        }
        let kinds = text.split(',').map(|name| {
            let found = Extra::ALL.iter().find(|it| it.name() == name);
            found.copied().ok_or_else(|| UnknownExtra(name.to_owned()))
        });
        kinds.collect()
    }
}
