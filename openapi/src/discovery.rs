//! `GET /v1/discovery`: the master of the node.

use serde::{Deserialize, Serialize};

use crate::{Epoch, NodeId, Seconds, ServerId};

/// The master, as far as the server knows.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Mastership {
    /// The base URL of the master; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(example = "http://127.0.0.1:7300"))]
    pub master_address: Option<String>,
}

/// A server, and the master of its node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Discovery {
    /// Whether this server is the master of its node.
    pub is_master: bool,
    /// The master.
    pub mastership: Mastership,
    /// This server.
    pub server_id: ServerId,
    /// Its node.
    pub node: NodeId,
    /// Its level in the server tree: 0 is the root.
    pub level: u32,
    /// The base URL of a server of the root, which has the document; absent while a server below
    /// the root does not know it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(example = "http://127.0.0.1:7300"))]
    pub root: Option<String>,
    /// The epoch of the node's master; at a server that is not master, the last one that it knows
    /// to have begun, and 0 if it knows none. Never the `heard_epoch` of a request.
    pub epoch: Epoch,
    /// Seconds for which the server could not read the election, so that the master may be another
    /// one unless it is this server; absent while it can, and without an election.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub election_unread_for: Option<Seconds>,
}
