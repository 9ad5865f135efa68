//! How many connections the system lets the server have.

use std::num::NonZeroUsize;

use rustix::process::{Resource, getrlimit};

/// The files that the server has open beside its connections, with some to spare: the document and its watch, the data directory,
/// the outputs, the runtime's own.
const OTHER_FILES: u64 = 64;

/// How many connections there is room for, if there should be at most `wished`.
pub(super) fn places(wished: NonZeroUsize) -> usize {
    let open_files = getrlimit(Resource::Nofile).current;
    let places = within(wished, open_files);
    if places < wished.get() {
        tracing::warn!(
            wished,
            places,
            "the system's limit of open files leaves room for fewer connections"
        );
    }
    places
}

/// `open_files` is the limit of all open files, if there is any.
fn within(wished: NonZeroUsize, open_files: Option<u64>) -> usize {
    let room = open_files.map_or(u64::MAX, |files| files.saturating_sub(OTHER_FILES));
    let room = usize::try_from(room).unwrap_or(usize::MAX);
    wished.get().min(room).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_files_for_everything_else() {
        for (wished, open_files, places) in [
            (10_000, None, 10_000),
            (10_000, Some(1_000_000), 10_000),
            (10_000, Some(10_000), 9_936),
            (10_000, Some(1024), 960),
            (10, Some(20), 1),
        ] {
            let wished = NonZeroUsize::new(wished).unwrap();
            assert_eq!(
                within(wished, open_files),
                places,
                "{wished} {open_files:?}"
            );
        }
    }
}
