//! Seeds on all cores.

use std::{
    num::NonZero,
    ops::Range,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

/// Calls `run` with each seed, on all cores, until a call fails. The results are in no order.
///
/// # Errors
/// The first error of `run`.
pub fn on_all_cores<T: Send, E: Send>(
    seeds: Range<u64>,
    run: impl Fn(u64) -> Result<T, E> + Sync,
) -> Result<Vec<T>, E> {
    let next = AtomicU64::new(seeds.start);
    let results = Mutex::new(Ok(Vec::new()));
    let lock = || results.lock().unwrap_or_else(PoisonError::into_inner);
    let run_some = || {
        while lock().is_ok() {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return;
            }
            let result = run(seed);
            let mut results = lock();
            match (result, &mut *results) {
                (Ok(result), Ok(all)) => all.push(result),
                (Err(error), Ok(_)) => *results = Err(error),
                (_, Err(_)) => {}
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, NonZero::get) {
            scope.spawn(run_some);
        }
    });
    results.into_inner().unwrap_or_else(PoisonError::into_inner)
}
