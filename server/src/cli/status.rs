//! `doorman show`, `doorman master` and `doorman ready`: the state of a server.

use std::{net::SocketAddr, path::PathBuf};

use doorman_openapi::{
    ClientId, Discovery, HolderView, LeasePage, ResourceId, ResourcePage, ResourceView,
    SafeCapacity, paths,
};
use doorman_server::rounded;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::json;

use super::{
    banner::reachable,
    client::{Client, ServerArguments},
    failure::Failure,
    output::{self, JsonFlag, cell, variant_name},
    serve_flags::socket_address,
};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  doorman show\n  doorman show tenant/acme\n  doorman show tenant/acme --client orders-7\n  doorman show --json | jq ."
)]
pub(super) struct ShowArguments {
    /// One resource, with its holders and why each has no more; default: all live resources
    resource: Option<ResourceId>,
    /// Show only this holder
    #[arg(
        long,
        env = "DOORMAN_SHOW_CLIENT",
        value_name = "CLIENT",
        requires = "resource"
    )]
    client: Option<ClientId>,
    #[command(flatten)]
    output: JsonFlag,
    #[command(flatten)]
    server: ServerArguments,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  doorman master\n  doorman master --server http://10.0.0.5:7300 --json"
)]
pub(super) struct MasterArguments {
    #[command(flatten)]
    output: JsonFlag,
    #[command(flatten)]
    server: ServerArguments,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  doorman ready --server http://10.0.0.5:7300 || echo not ready")]
pub(super) struct ReadyArguments {
    /// Listen address of the local server, which is probed without --server
    #[arg(long, env = "DOORMAN_LISTEN", value_name = "HOST:PORT", default_value = "127.0.0.1:7300", value_parser = socket_address)]
    listen: SocketAddr,
    /// The local server uses TLS. Its certificate is not verified
    #[arg(long, env = "DOORMAN_TLS_CERT", value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    #[command(flatten)]
    server: ServerArguments,
}

pub(super) async fn show(arguments: ShowArguments) -> Result<String, Failure> {
    let client = Client::new(&arguments.server)?;
    let Some(id) = &arguments.resource else {
        let resources = client
            .list(paths::RESOURCES, usize::MAX, |page: ResourcePage| {
                (page.resources, page.next_cursor)
            })
            .await?;
        return if arguments.output.json {
            output::pretty_json(&json!({"resources": resources}))
        } else {
            resource_table(&resources)
        };
    };
    let resource: ResourceView = client.get(&resource_path(paths::RESOURCE, id)).await?;
    let leases = holders(&client, id, arguments.client.as_ref()).await?;
    if arguments.output.json {
        return output::pretty_json(&json!({"resource": resource, "leases": leases}));
    }
    Ok(format!(
        "{}\n{}\n{}",
        resource_table(std::slice::from_ref(&resource))?,
        details(&resource),
        holder_table(&leases)?
    ))
}

async fn holders(
    client: &Client,
    id: &ResourceId,
    only: Option<&ClientId>,
) -> Result<Vec<HolderView>, Failure> {
    let path = resource_path(paths::RESOURCE_LEASES, id);
    if let Some(only) = only {
        let path = format!("{path}?client_id={}", encoded(only.as_str()));
        let page: LeasePage = client.get(&path).await?;
        return Ok(page.leases);
    }
    let into_parts = |page: LeasePage| (page.leases, page.next_cursor);
    client.list(&path, usize::MAX, into_parts).await
}

fn resource_path(template: &str, id: &ResourceId) -> String {
    template.replace("{resource_id}", &encoded(id.as_str()))
}

/// Percent-encodes a name for a path or a query.
pub(super) fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

fn resource_table(resources: &[ResourceView]) -> Result<String, Failure> {
    let rows = resources.iter().map(|view| {
        Ok([
            view.resource_id.to_string(),
            cell(view.capacity),
            rounded(view.sum_has),
            rounded(view.sum_wants),
            view.clients.to_string(),
            if view.in_learning_mode { "yes" } else { "no" }.to_owned(),
            cell(view.template.as_ref()),
            variant_name(&view.algorithm)?,
        ])
    });
    Ok(output::table(
        [
            "RESOURCE",
            "CAPACITY",
            "HAS",
            "WANTS",
            "CLIENTS",
            "LEARNING",
            "TEMPLATE",
            "ALGORITHM",
        ],
        &rows.collect::<Result<Vec<_>, Failure>>()?,
    ))
}

/// Facts that apply to all holders, one line each.
fn details(view: &ResourceView) -> String {
    let safe_capacity = match view.safe_capacity {
        SafeCapacity::Unlimited => "unlimited".to_owned(),
        SafeCapacity::AtMost(most) => rounded(most.get()),
    };
    let lines = [
        Some(format!(
            "leases of {} s, refreshed every {} s; safe capacity without a lease: {safe_capacity}",
            rounded(view.lease_length.get()),
            rounded(view.refresh_interval.get()),
        )),
        view.free.map(|free| format!("free: {}", rounded(free))),
        view.fill_level.map(|level| {
            format!(
                "demand exceeds capacity: each client gets at most {}",
                rounded(level)
            )
        }),
        view.learning_ends_in
            .map(|left| format!("learning mode for another {} s", rounded(left.get()))),
        view.balance.map(|balance| {
            format!(
                "balance of the shared token bucket: {}",
                rounded(balance.get())
            )
        }),
        view.admission_probability.map(|probability| {
            format!(
                "admission probability of each request: {}",
                rounded(probability.get())
            )
        }),
        view.warning.clone(),
    ];
    lines
        .into_iter()
        .flatten()
        .map(|line| line + "\n")
        .collect()
}

fn holder_table(holders: &[HolderView]) -> Result<String, Failure> {
    let rows = holders.iter().map(|view| {
        Ok([
            view.client_id.clone(),
            variant_name(&view.kind)?,
            view.priority.to_string(),
            rounded(view.wants.get()),
            rounded(view.share.get()),
            rounded(view.has.get()),
            rounded(view.booked),
            rounded(view.outstanding.get()),
            cell(view.used.map(|used| rounded(used.get()))),
            cell(view.refreshed_ago.map(|ago| rounded(ago.get()))),
            rounded(view.expires_in.get()),
            cell(view.held_back_by.as_ref().map(variant_name).transpose()?),
            view.why.clone(),
        ])
    });
    Ok(output::table(
        [
            "HOLDER",
            "KIND",
            "PRIORITY",
            "WANTS",
            "SHARE",
            "HAS",
            "BOOKED",
            "OUTSTANDING",
            "USED",
            "REFRESHED",
            "SECONDS",
            "HELD BACK BY",
            "WHY",
        ],
        &rows.collect::<Result<Vec<_>, Failure>>()?,
    ))
}

pub(super) async fn master(arguments: MasterArguments) -> Result<String, Failure> {
    let client = Client::new(&arguments.server)?;
    let response: serde_json::Value = client.get(paths::DISCOVERY).await?;
    if arguments.output.json {
        return output::pretty_json(&response);
    }
    let discovery: Discovery = client.decode(&response)?;
    let Some(master) = discovery.mastership.master_address else {
        return Err(Failure::new(format!(
            "{} knows no master of {}",
            discovery.server_id, discovery.node
        )));
    };
    Ok(output::table(
        ["MASTER", "NODE", "EPOCH", "LEVEL", "SOURCE"],
        &[[
            master,
            discovery.node.to_string(),
            discovery.epoch.get().to_string(),
            discovery.level.to_string(),
            discovery.server_id.to_string(),
        ]],
    ))
}

pub(super) async fn ready(arguments: ReadyArguments) -> Result<String, Failure> {
    let client = if arguments.server.has_server() {
        Client::new(&arguments.server)?
    } else {
        let scheme = arguments.tls_cert.map_or("http", |_| "https");
        let url = format!("{scheme}://{}", reachable(arguments.listen)).parse()?;
        Client::local(&arguments.server, url)?
    };
    client.probe(paths::READYZ).await?;
    Ok("ready\n".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slashes_in_resource_ids_are_encoded() {
        let id = ResourceId::new("tenant/acme").unwrap();
        assert_eq!(
            resource_path(paths::RESOURCE_LEASES, &id),
            "/v1/resources/tenant%2Facme/leases"
        );
    }
}
