//! CPU affinity and CPU time of processes. Linux only.

#[cfg(target_os = "linux")]
use std::fs;
use std::io;

#[cfg(target_os = "linux")]
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The number of a core.
pub(crate) type Core = usize;

/// The first and the last core on which this process may run.
#[cfg(target_os = "linux")]
pub(crate) fn two_cores() -> io::Result<(Core, Core)> {
    let allowed = sched_getaffinity(None)?;
    let mut cores = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core));
    cores
        .next()
        .zip(cores.next_back())
        .ok_or_else(|| io::Error::other("two cores required: one for the server, one for the load"))
}

/// Pins this thread, and the threads that it starts, to one core.
#[cfg(target_os = "linux")]
pub(crate) fn pin(core: Core) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(core);
    Ok(sched_setaffinity(None, &set)?)
}

/// The CPU time of all threads of a process, in nanoseconds.
#[cfg(target_os = "linux")]
pub(crate) fn cpu_nanos(process: u32) -> io::Result<u64> {
    let mut sum = 0;
    for task in fs::read_dir(format!("/proc/{process}/task"))? {
        // The first of three numbers is the time on the CPU
        // (Documentation/scheduler/sched-stats.rst).
        let text = fs::read_to_string(task?.path().join("schedstat"))?;
        let nanos: Option<u64> = text.split(' ').next().and_then(|nanos| nanos.parse().ok());
        sum += nanos.ok_or_else(|| io::Error::other("schedstat does not begin with a number"))?;
    }
    Ok(sum)
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn two_cores() -> io::Result<(Core, Core)> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn pin(_: Core) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn cpu_nanos(_: u32) -> io::Result<u64> {
    Err(io::ErrorKind::Unsupported.into())
}
