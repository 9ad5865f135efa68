//! The parent node of this server: the task around the machine
//! [`Upstream`](doorman_core::upstream::Upstream), and the state of the parent for views and
//! metrics.

mod parent_node;
mod task;

pub use self::task::ParentSettings;
pub(crate) use self::{parent_node::ParentNode, task::UpstreamTask};
