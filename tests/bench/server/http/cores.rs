//! One core for the server, another for the load.

use std::{fs, io};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The number of a core.
pub(crate) type Core = usize;

/// Two of the cores that this process may use: the first and the last.
pub(crate) fn two() -> io::Result<(Core, Core)> {
    let allowed = sched_getaffinity(None)?;
    let mut cores = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core));
    cores
        .next()
        .zip(cores.next_back())
        .ok_or_else(|| io::Error::other("the server and its load need a core each"))
}

/// From now on this thread, and those that it starts, run on this core alone.
pub(crate) fn pin(core: Core) -> io::Result<()> {
    let mut only = CpuSet::new();
    only.set(core);
    Ok(sched_setaffinity(None, &only)?)
}

/// How long a process has run on a core, in nanoseconds: all its threads together.
pub(crate) fn cpu_nanos(process: u32) -> io::Result<u64> {
    let mut sum = 0;
    for task in fs::read_dir(format!("/proc/{process}/task"))? {
        // Documentation/scheduler/sched-stats.rst: the first of three numbers is the time on the CPU.
        let text = fs::read_to_string(task?.path().join("schedstat"))?;
        let nanos: Option<u64> = text.split(' ').next().and_then(|nanos| nanos.parse().ok());
        sum += nanos.ok_or_else(|| io::Error::other("schedstat does not begin with a number"))?;
    }
    Ok(sum)
}
