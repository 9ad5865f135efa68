//! The synchronization primitives of this folder. `middleware/tests/interleavings` replaces them by
//! loom's.

pub(super) use std::{
    hint::spin_loop,
    sync::atomic::{
        AtomicI32, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    },
};

pub(super) use tokio::sync::Notify;
