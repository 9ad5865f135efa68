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

pub(crate) use alone::alone;
pub(crate) use certificates::Authority;
pub(crate) use control_plane::ControlPlane;
pub(crate) use curl::{Answer, curl};
pub(crate) use process::{PATIENCE, Process};
pub(crate) use programs::{doorman, example};
pub(crate) use relay::Relay;
pub(crate) use service::Service;
pub(crate) use small_disk::SmallDisk;
pub(crate) use tools::{repository, tool};
