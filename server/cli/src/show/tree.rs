//! `doorman show RESOURCE --tree`: the holders of a resource at a server and at the nodes below it.
//!
//! A node states its own address, which nobody verifies. So the token is sent only to hosts that
//! the user names, and not without TLS if any of `--server` has TLS.

use std::{cell::Cell, pin::Pin};

use doorman_core::rounded;
use doorman_openapi::{
    Discovery, HolderKind, HolderView, NodeId, ResourceId, ResourceView, ServerUrl, paths,
};
use futures_util::{StreamExt, stream};
use serde::Serialize;
use serde_json::json;

use super::{Listed, ShowArguments, details, holder_name, holders, resource_path, resource_table};
use crate::{
    client::Client,
    failure::Failure,
    output::{self, cell, per_period, variant_name},
};

/// The most levels of nodes below the first server.
const MAX_DEPTH: usize = 10;

/// The most nodes that are asked.
const MAX_NODES: usize = 1_000;

/// The most nodes of one parent that are asked at a time.
const CONCURRENT: usize = 16;

/// The holders of a resource at one node.
#[derive(Debug, Serialize)]
struct Level {
    node: NodeId,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource: Option<ResourceView>,
    leases: Vec<Branch>,
    total: u64,
}

/// A holder, with the holders at it if it is a node.
#[derive(Debug, Serialize)]
struct Branch {
    #[serde(flatten)]
    lease: HolderView,
    /// The holders at a node.
    #[serde(skip_serializing_if = "Option::is_none")]
    below: Option<Level>,
    /// Why the holders at a node are not shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_shown: Option<String>,
}

/// The state of one walk through the tree.
struct Walk<'a> {
    arguments: &'a ShowArguments,
    first: &'a Client,
    id: &'a ResourceId,
    /// How many nodes may still be asked.
    left: Cell<usize>,
}

pub(super) async fn show(
    client: &Client,
    arguments: &ShowArguments,
    id: &ResourceId,
) -> Result<String, Failure> {
    let walk = Walk {
        arguments,
        first: client,
        id,
        left: Cell::new(MAX_NODES),
    };
    let discovery: Discovery = client.get(paths::DISCOVERY).await?;
    let resource: ResourceView = client.get(&resource_path(paths::RESOURCE, id)).await?;
    let leases = holders(client, arguments, id).await?;
    let level = walk
        .level(discovery.node, Some(resource), leases, &[])
        .await;
    if arguments.output.json {
        return output::pretty_json(&json!(level));
    }
    let Some(resource) = &level.resource else {
        return Ok(String::new());
    };
    let mut rows = Vec::new();
    add_rows(&level, resource.period(), 0, &mut rows);
    Ok(format!(
        "{}\n{}{}\n{}",
        resource_table(std::slice::from_ref(resource)),
        details(resource),
        summary(&level).map_or(String::new(), |text| text + "\n"),
        output::table(
            [
                "HOLDER",
                "KIND",
                "CLIENTS",
                "WANTS",
                "SHARE",
                "HAS",
                "BOOKED",
                "SECONDS",
                "HELD BACK BY",
                "ADDRESS",
            ],
            rows,
        )
    ))
}

impl Walk<'_> {
    /// Reads the nodes among the holders of a node, whose ancestors are `above`.
    async fn level(
        &self,
        node: NodeId,
        resource: Option<ResourceView>,
        holders: Listed<HolderView>,
        above: &[NodeId],
    ) -> Level {
        let path: Vec<_> = above.iter().chain([&node]).cloned().collect();
        let branches = holders.entries.into_iter().map(|lease| async {
            let (below, not_shown) = match lease.kind {
                HolderKind::Client => (None, None),
                HolderKind::Node => match self.below(&lease, &path).await {
                    Ok(level) => (Some(level), None),
                    Err(reason) => (None, Some(reason)),
                },
            };
            Branch {
                lease,
                below,
                not_shown,
            }
        });
        Level {
            leases: stream::iter(branches).buffered(CONCURRENT).collect().await,
            node,
            resource,
            total: holders.total,
        }
    }

    /// The holders at a node, or why they are not shown.
    fn below<'s>(
        &'s self,
        lease: &'s HolderView,
        path: &'s [NodeId],
    ) -> Pin<Box<dyn Future<Output = Result<Level, String>> + 's>> {
        Box::pin(async move {
            let address = lease
                .address
                .as_ref()
                .ok_or("the node reports no address")?;
            let address = self.allowed(address)?;
            if path.len() > MAX_DEPTH {
                return Err(format!("not asked: more than {MAX_DEPTH} levels"));
            }
            let left = self.left.get().checked_sub(1);
            let left = left.ok_or_else(|| format!("not asked: more than {MAX_NODES} nodes"))?;
            self.left.set(left);
            let client = Client::of_node(&self.arguments.server, address);
            let client = client.map_err(|failure| failure.reason().to_owned())?;
            self.read(&client, lease, path).await
        })
    }

    async fn read(
        &self,
        client: &Client,
        lease: &HolderView,
        path: &[NodeId],
    ) -> Result<Level, String> {
        let reason = |failure: Failure| failure.reason().to_owned();
        let discovery: Discovery = client.get(paths::DISCOVERY).await.map_err(reason)?;
        let node = discovery.node;
        if node.as_str() != lease.client_id {
            return Err(format!("another node answers at its address: {node}"));
        }
        if path.contains(&node) {
            return Err("cycle: the node is its own ancestor".to_owned());
        }
        let resource = resource_path(paths::RESOURCE, self.id);
        let resource: ResourceView = match client.get(&resource).await {
            Ok(resource) => resource,
            // The node has no holders any more, which its parent does not know yet.
            Err(failure) if failure.is_not_found() => {
                let none = Listed::all(Vec::new());
                return Ok(self.level(node, None, none, path).await);
            }
            Err(failure) => return Err(reason(failure)),
        };
        let holders = holders(client, self.arguments, self.id).await;
        let holders = holders.map_err(reason)?;
        Ok(self.level(node, Some(resource), holders, path).await)
    }

    /// The address of a node, if it may get the token of this command.
    fn allowed(&self, address: &str) -> Result<ServerUrl, String> {
        let invalid = |_| "its address is not the URL of a server".to_owned();
        let url: ServerUrl = address.parse().map_err(invalid)?;
        let named = self.first.servers();
        if !self.first.sends_token() || named.iter().any(|it| it.serves(address)) {
            return Ok(url);
        }
        let host = url.host().to_ascii_lowercase();
        let hosts = &self.arguments.token_hosts;
        if !hosts.iter().any(|glob| glob.matches(&host)) {
            return Err("not asked: --token-hosts does not match its host".to_owned());
        }
        if !url.is_encrypted() && named.iter().any(ServerUrl::is_encrypted) {
            return Err("not asked: its address has no TLS, but --server has".to_owned());
        }
        Ok(url)
    }
}

fn add_rows(level: &Level, period: f64, depth: usize, rows: &mut Vec<[String; 10]>) {
    for branch in &level.leases {
        let Branch {
            lease,
            below,
            not_shown,
        } = branch;
        let amount = |amount: f64| per_period(rounded(amount), period);
        let mut address = vec![cell(lease.address.as_ref())];
        address.extend(below.as_ref().and_then(summary));
        address.extend(not_shown.clone());
        rows.push([
            format!("{}{}", "  ".repeat(depth), holder_name(lease)),
            variant_name(&lease.kind),
            match lease.kind {
                HolderKind::Client => "1".to_owned(),
                HolderKind::Node => cell(lease.clients),
            },
            amount(lease.wants.get()),
            amount(lease.share.get()),
            amount(lease.has.get()),
            amount(lease.booked),
            rounded(lease.expires_in.get()),
            cell(lease.held_back_by.as_ref().map(variant_name)),
            address.join("; "),
        ]);
        if let Some(below) = below {
            add_rows(below, period, depth.saturating_add(1), rows);
        }
    }
}

/// A note if not all holders of a node are shown.
fn summary(level: &Level) -> Option<String> {
    let (shown, total) = (level.leases.len() as u64, level.total);
    (shown < total).then(|| format!("{shown} of {total} holders; --all shows all"))
}
