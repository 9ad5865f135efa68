//! `doorman show`: the live resources, or one of them and who holds it.

use doorman_openapi::{HolderView, LeasePage, ResourceId, ResourcePage, ResourceView, paths};
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
    after_help = "Examples:\n  doorman show\n  doorman show tenant/acme\n  doorman show --json | jq ."
)]
pub(super) struct Arguments {
    /// One resource, with its holders; absent: all live resources
    resource: Option<ResourceId>,
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
            let leases = holders(&client, id).await?;
            if json {
                format!("{:#}\n", json!({"resource": resource, "leases": leases}))
            } else {
                format!(
                    "{}\n{}",
                    table_of_resources(&[resource])?,
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

async fn holders(client: &Client, id: &ResourceId) -> Result<Vec<HolderView>, Failure> {
    let mut all = Vec::new();
    let mut cursor = Some(String::new());
    while let Some(from) = cursor {
        let path = path_of(paths::RESOURCE_LEASES, id);
        let page: LeasePage = client
            .get(&format!("{path}?limit={LIMIT}&cursor={from}"))
            .await?;
        all.extend(page.leases);
        cursor = page.next_cursor;
    }
    Ok(all)
}

fn path_of(template: &str, id: &ResourceId) -> String {
    let encoded = utf8_percent_encode(id.as_str(), NON_ALPHANUMERIC).to_string();
    template.replace("{resource_id}", &encoded)
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
            rounded(view.clients),
            if view.in_learning_mode { "yes" } else { "no" }.to_owned(),
            view.template.clone().unwrap_or_else(|| "-".to_owned()),
            word(&view.algorithm)?,
        ]);
    }
    Ok(table.to_string())
}

fn table_of_holders(holders: &[HolderView]) -> Result<String, Failure> {
    let mut table = Table::new([
        "HOLDER",
        "KIND",
        "PRIORITY",
        "WANTS",
        "HAS",
        "BOOKED",
        "OUTSTANDING",
        "USED",
        "SECONDS",
    ]);
    for view in holders {
        table.row([
            view.client_id.clone(),
            word(&view.kind)?,
            view.priority.to_string(),
            rounded(view.wants.get()),
            rounded(view.has.get()),
            rounded(view.booked),
            rounded(view.outstanding.get()),
            view.used.map_or("-".to_owned(), |used| rounded(used.get())),
            rounded(view.expires_in.get()),
        ]);
    }
    Ok(table.to_string())
}

/// A number as people read it: at most three digits after the point.
fn rounded(number: f64) -> String {
    let text = format!("{number:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (number, text) in [
            (0.0, "0"),
            (60.0, "60"),
            (69.690_721_65, "69.691"),
            (0.5, "0.5"),
        ] {
            assert_eq!(rounded(number), text);
        }
    }

    #[test]
    fn slashes_in_a_name_are_encoded() {
        let id = ResourceId::new("tenant/acme").unwrap();
        assert_eq!(
            path_of(paths::RESOURCE_LEASES, &id),
            "/v1/resources/tenant%2Facme/leases"
        );
    }
}
