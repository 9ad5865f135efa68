//! Processes to test with. Each is killed when it is dropped.

mod alone;
mod certificates;
mod control_plane;
mod curl;
mod process;
mod programs;
mod relay;
mod service;
mod small_disk;
mod tools;
mod wait;

pub(crate) use alone::alone;
pub(crate) use certificates::Authority;
pub(crate) use control_plane::{ControlPlane, DOCUMENT};
pub(crate) use curl::{Answer, curl};
pub(crate) use process::Process;
pub(crate) use programs::{doorman, example};
pub(crate) use relay::Relay;
pub(crate) use service::Service;
pub(crate) use small_disk::SmallDisk;
pub(crate) use tools::{repository, tool};
pub(crate) use wait::{PATIENCE, now, until};
