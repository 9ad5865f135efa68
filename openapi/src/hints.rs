//! `GET /v1/hints`: a long poll for the leases that a holder should refresh now.

use serde::{Deserialize, Serialize};

use crate::{Epoch, NodeId, ResourceId, Seq};

/// The most resources of one response. Beyond it the holder should refresh all.
pub const MAX_HINTS: usize = 256;

/// The longest `wait` of a poll, in seconds.
pub const MAX_HINT_WAIT: f64 = 60.0;

/// The `wait` of a poll that states none, in seconds.
pub const DEFAULT_HINT_WAIT: f64 = 25.0;

/// The response to a poll. A hint grants nothing: it may be lost, late, duplicate or wrong.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct HintsResponse {
    /// The node of the server.
    pub node: NodeId,
    /// The epoch of its master; at a server that is not master, the last one that it knows to have
    /// begun, and 0 if it knows none. Never the `heard_epoch` of a request.
    pub epoch: Epoch,
    /// The `after` of the next poll, which confirms these hints. Unconfirmed hints are repeated.
    #[cfg_attr(feature = "schema", schema(maximum = 9007199254740991i64, example = 7))]
    pub after: u64,
    /// The resources to refresh now; at most 256.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(max_items = 256))]
    pub refresh: Vec<Hint>,
    /// Whether to refresh all resources, because too many changed to list them.
    #[serde(default)]
    pub all: bool,
    /// Whether the rules of the document have changed.
    #[serde(default)]
    pub rules: bool,
    /// Whether the master is shutting down: refresh all resources at another server.
    #[serde(default)]
    pub leaving: bool,
}

/// A lease to refresh.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Hint {
    /// The resource.
    pub resource_id: ResourceId,
    /// The last transmission for this resource that the server had received from the holder. The
    /// hint is void once the holder has sent a later one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<Seq>,
}

impl HintsResponse {
    /// The response without hints.
    #[must_use]
    pub fn none(node: NodeId, epoch: Epoch, after: u64) -> Self {
        Self {
            node,
            epoch,
            after,
            refresh: Vec::new(),
            all: false,
            rules: false,
            leaving: false,
        }
    }
}
