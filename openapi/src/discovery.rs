//! `GET /v1/discovery`: who is master.

use serde::{Deserialize, Serialize};

use crate::{Epoch, NodeId, ServerId};

/// Where the master is, as far as the server knows.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Mastership {
    /// The base address of the master; absent when it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schema(nullable = false, example = "http://127.0.0.1:7300")
    )]
    pub master_address: Option<String>,
}

/// What a server says of itself and of its node's master.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Discovery {
    /// Whether the server that answers is the master of its node.
    pub is_master: bool,
    /// Where the master is.
    pub mastership: Mastership,
    /// The server that answers.
    pub server_id: ServerId,
    /// Its node.
    pub node: NodeId,
    /// Its level in the server tree: 0 is the root.
    pub level: u32,
    /// The reign of the node's master.
    pub epoch: Epoch,
}
