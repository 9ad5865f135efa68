//! What the parts are made of that many threads share. A test runs the same files in every order that their steps can
//! take (`tests/interleavings`): for it there is another module in the place of this one.

pub(super) use std::{
    hint::spin_loop,
    sync::{
        MutexGuard,
        atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    },
};

pub(super) use tokio::sync::Notify;
