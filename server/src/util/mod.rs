//! Small helpers without a home of their own.

pub(crate) mod clock;
pub(crate) mod guarded_body;
pub(crate) mod rounded;
pub(crate) mod small_file;
pub(crate) mod watch;
