//! `POST /v1/capacity`, beside a bare axum handler that reads the same body and writes the same answer without deciding anything.
//!
//! Both are processes of their own, pinned to one core; the load comes from another core, over connections that stay open. So that a
//! busy machine does not decide the comparison, it is made by the CPU time of a request as well.

#[cfg(target_os = "linux")]
mod bare;
#[cfg(target_os = "linux")]
mod compare;
#[cfg(target_os = "linux")]
mod cores;
#[cfg(target_os = "linux")]
mod doorman;
#[cfg(target_os = "linux")]
mod load;
#[cfg(target_os = "linux")]
mod process;
#[cfg(target_os = "linux")]
mod requests;
#[cfg(target_os = "linux")]
mod tokens;

use std::error::Error;

#[cfg(target_os = "linux")]
fn main() -> Result<(), Box<dyn Error>> {
    match process::Role::of_this_process() {
        Some(role) => process::serve(role),
        None => compare::run(doorman_bench::Effort::asked()),
    }
}

#[cfg(not(target_os = "linux"))]
fn main() -> Result<(), Box<dyn Error>> {
    Err("this benchmark pins processes to cores and reads their CPU time from /proc: it needs Linux".into())
}
