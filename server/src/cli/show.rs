//! `doorman show`: the live resources, or one of them and who holds it.

use doorman_openapi::{
    ClientId, HolderView, LeasePage, ResourceId, ResourcePage, ResourceView, SafeCapacity, paths,
};
use doorman_server::rounded;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::json;

use super::{
    client::{Client, ServerArgument},
    failure::Failure,
    lease::word,
    table::Table,
};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  doorman show\n  doorman show tenant/acme\n  doorman show tenant/acme --client orders-7\n  doorman show --json | jq ."
)]
pub(super) struct Arguments {
    /// One resource, with its holders, and why each has no more; absent: all live resources
    resource: Option<ResourceId>,
    /// Of the holders only this one
    #[arg(
        long,
        env = "DOORMAN_SHOW_CLIENT",
        value_name = "CLIENT",
        requires = "resource"
    )]
    client: Option<ClientId>,
    /// Print JSON
    #[arg(long, env = "DOORMAN_JSON", value_parser = clap::builder::FalseyValueParser::new(), action = clap::ArgAction::SetTrue)]
    json: bool,
    #[command(flatten)]
    server: ServerArgument,
}

/// The most elements that a page has.
const LIMIT: usize = 1_000;

pub(super) async fn run(arguments: Arguments) -> Result<String, Failure> {
    let client = Client::new(arguments.server)?;
    Ok(match (&arguments.resource, arguments.json) {
        (None, true) => format!("{:#}\n", json!({"resources": resources(&client).await?})),
        (None, false) => table_of_resources(&resources(&client).await?)?,
        (Some(id), json) => {
            let path = path_of(paths::RESOURCE, id);
            let resource: ResourceView = client.get(&path).await?;
            let leases = holders(&client, id, arguments.client.as_ref()).await?;
            if json {
                format!("{:#}\n", json!({"resource": resource, "leases": leases}))
            } else {
                format!(
                    "{}\n{}\n{}",
                    table_of_resources(std::slice::from_ref(&resource))?,
                    account(&resource),
                    table_of_holders(&leases)?
                )
            }
        }
    })
}

async fn resources(client: &Client) -> Result<Vec<ResourceView>, Failure> {
    let mut all = Vec::new();
    let mut cursor = Some(String::new());
    while let Some(from) = cursor {
        let path = format!("{}?limit={LIMIT}&cursor={from}", paths::RESOURCES);
        let page: ResourcePage = client.get(&path).await?;
        all.extend(page.resources);
        cursor = page.next_cursor;
    }
    Ok(all)
}

async fn holders(
    client: &Client,
    id: &ResourceId,
    name: Option<&ClientId>,
) -> Result<Vec<HolderView>, Failure> {
    let path = path_of(paths::RESOURCE_LEASES, id);
    if let Some(name) = name {
        let path = format!("{path}?client_id={}", encoded(name.as_str()));
        let page: LeasePage = client.get(&path).await?;
        return Ok(page.leases);
    }
    let mut all = Vec::new();
    let mut cursor = Some(String::new());
    while let Some(from) = cursor {
        let page: LeasePage = client
            .get(&format!("{path}?limit={LIMIT}&cursor={from}"))
            .await?;
        all.extend(page.leases);
        cursor = page.next_cursor;
    }
    Ok(all)
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

fn path_of(template: &str, id: &ResourceId) -> String {
    template.replace("{resource_id}", &encoded(id.as_str()))
}

fn table_of_resources(resources: &[ResourceView]) -> Result<String, Failure> {
    let mut table = Table::new([
        "RESOURCE",
        "CAPACITY",
        "HAS",
        "WANTS",
        "CLIENTS",
        "LEARNING",
        "TEMPLATE",
        "ALGORITHM",
    ]);
    for view in resources {
        table.row([
            view.resource_id.to_string(),
            view.capacity
                .map_or("-".to_owned(), |capacity| capacity.to_string()),
            rounded(view.sum_has),
            rounded(view.sum_wants),
            view.clients.to_string(),
            if view.in_learning_mode { "yes" } else { "no" }.to_owned(),
            view.template.clone().unwrap_or_else(|| "-".to_owned()),
            word(&view.algorithm)?,
        ]);
    }
    Ok(table.to_string())
}

/// What holds for all holders alike, a line each.
fn account(view: &ResourceView) -> String {
    let mut lines = vec![format!(
        "leases of {} s, refreshed every {} s; without one a holder may use {}",
        rounded(view.lease_length.get()),
        rounded(view.refresh_interval.get()),
        match view.safe_capacity {
            SafeCapacity::Unlimited => "as much as it likes".to_owned(),
            SafeCapacity::AtMost(most) => rounded(most.get()),
        },
    )];
    if let Some(free) = view.free {
        lines.push(format!("free: {}", rounded(free)));
    }
    if let Some(level) = view.fill_level {
        lines.push(format!(
            "more is wanted than there is: a client gets {} at most",
            rounded(level)
        ));
    }
    if let Some(left) = view.learning_ends_in {
        lines.push(format!(
            "learning for {} s what the last server leased",
            rounded(left.get())
        ));
    }
    if let Some(balance) = view.balance {
        lines.push(format!(
            "left in the bucket that all share: {}",
            rounded(balance.get())
        ));
    }
    if let Some(probability) = view.admission_probability {
        lines.push(format!(
            "each request is admitted with a probability of {}",
            rounded(probability.get())
        ));
    }
    lines.extend(view.warning.clone());
    lines.into_iter().map(|line| line + "\n").collect()
}

fn table_of_holders(holders: &[HolderView]) -> Result<String, Failure> {
    let mut table = Table::new([
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
    ]);
    for view in holders {
        table.row([
            view.client_id.clone(),
            word(&view.kind)?,
            view.priority.to_string(),
            rounded(view.wants.get()),
            rounded(view.share.get()),
            rounded(view.has.get()),
            rounded(view.booked),
            rounded(view.outstanding.get()),
            view.used.map_or("-".to_owned(), |used| rounded(used.get())),
            view.refreshed_ago
                .map_or("-".to_owned(), |ago| rounded(ago.get())),
            rounded(view.expires_in.get()),
            view.held_back_by
                .as_ref()
                .map_or(Ok("-".to_owned()), word)?,
            view.why.clone(),
        ]);
    }
    Ok(table.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slashes_in_a_name_are_encoded() {
        let id = ResourceId::new("tenant/acme").unwrap();
        assert_eq!(
            path_of(paths::RESOURCE_LEASES, &id),
            "/v1/resources/tenant%2Facme/leases"
        );
    }
}
