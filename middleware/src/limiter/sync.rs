//! What the parts are made of that many threads share without a lock. A test runs the same files in every order that their steps can
//! take (`tests/interleavings`): for it there is another module in the place of this one.

pub(super) use std::{
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
};
