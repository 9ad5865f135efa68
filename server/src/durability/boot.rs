//! Which run of the machine this is: the clock that runs through a suspend begins anew with each.

use std::fs;

const PATH: &str = "/proc/sys/kernel/random/boot_id";

/// Names a boot of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Boot(pub(super) u128);

impl Boot {
    /// The boot that is running. Where the system does not name it, a name that no other start has: then the end of a lease is
    /// not compared with a clock that it was not read from.
    pub(super) fn current() -> Self {
        fs::read_to_string(PATH)
            .ok()
            .and_then(|text| Self::parse(&text))
            .unwrap_or_else(|| Self(fastrand::u128(..)))
    }

    fn parse(text: &str) -> Option<Self> {
        u128::from_str_radix(&text.trim().replace('-', ""), 16)
            .ok()
            .map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_systems_name_of_it() {
        assert_eq!(
            Boot::parse("e576988e-cf3b-4712-8d52-65abc43a6ed4\n"),
            Some(Boot(0xe576_988e_cf3b_4712_8d52_65ab_c43a_6ed4))
        );
        assert_eq!(Boot::parse("none"), None);
        if cfg!(target_os = "linux") {
            assert_eq!(Boot::current(), Boot::current());
        }
    }
}
