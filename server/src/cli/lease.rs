//! `doorman get` and `doorman release`: lease and give back by hand.

use doorman_openapi::{
    Capacity, CapacityRequest, CapacityResponse, ClientId, ReleaseRequest, ReleaseResponse,
    ResourceId, ResourceRequest, paths,
};

use super::{
    client::{Client, ServerArgument, default_client_id},
    failure::Failure,
    table::Table,
};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  doorman get db --wants 50\n  doorman get tenant/acme --wants 5 --client shop-1 --json"
)]
pub(super) struct GetArguments {
    /// The resource
    resource: ResourceId,
    /// How much of it, in its own unit
    #[arg(long, env = "DOORMAN_WANTS", value_name = "N", value_parser = capacity, allow_negative_numbers = true)]
    wants: Capacity,
    /// For whom; two processes never share a name
    #[arg(long, env = "DOORMAN_CLIENT", value_name = "ID", default_value_t = default_client_id())]
    client: String,
    /// Print the server's answer as it came
    #[arg(long, env = "DOORMAN_JSON", value_parser = clap::builder::FalseyValueParser::new(), action = clap::ArgAction::SetTrue)]
    json: bool,
    #[command(flatten)]
    server: ServerArgument,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  doorman release db\n  doorman release --client shop-1")]
pub(super) struct ReleaseArguments {
    /// The resources; none: all that the client holds
    #[arg(value_name = "RESOURCE")]
    resources: Vec<ResourceId>,
    /// Whose leases
    #[arg(long, env = "DOORMAN_CLIENT", value_name = "ID", default_value_t = default_client_id())]
    client: String,
    /// Print the server's answer as it came; else nothing is printed
    #[arg(long, env = "DOORMAN_JSON", value_parser = clap::builder::FalseyValueParser::new(), action = clap::ArgAction::SetTrue)]
    json: bool,
    #[command(flatten)]
    server: ServerArgument,
}

fn capacity(text: &str) -> Result<Capacity, String> {
    let number: f64 = text.parse().map_err(|_| "must be a number".to_owned())?;
    Capacity::new(number).map_err(|rule| rule.to_string())
}

pub(super) async fn get(arguments: GetArguments) -> Result<String, Failure> {
    let client = Client::new(arguments.server)?;
    let request = CapacityRequest {
        client_id: ClientId::new(&arguments.client)?,
        seq: None,
        resources: vec![ResourceRequest {
            resource_id: arguments.resource,
            wants: arguments.wants,
            priority: 0,
            has: None,
            outstanding: Capacity::ZERO,
            used: None,
        }],
    };
    if arguments.json {
        let answer: serde_json::Value = client.post(paths::CAPACITY, &request).await?;
        return Ok(format!("{answer:#}\n"));
    }
    let answer: CapacityResponse = client.post(paths::CAPACITY, &request).await?;
    let mut table = Table::new([
        "RESOURCE", "CAPACITY", "LIMIT", "SECONDS", "REFRESH", "REASON",
    ]);
    for answer in &answer.resources {
        let lease = &answer.gets;
        table.row([
            answer.resource_id.to_string(),
            lease.capacity.to_string(),
            answer
                .limit
                .map_or("-".to_owned(), |limit| limit.to_string()),
            lease.lease_length.to_string(),
            lease.refresh_interval.to_string(),
            word(&answer.reason)?,
        ]);
    }
    Ok(table.to_string())
}

pub(super) async fn release(arguments: ReleaseArguments) -> Result<String, Failure> {
    let client = Client::new(arguments.server)?;
    let all = arguments.resources.is_empty();
    let request = ReleaseRequest {
        client_id: ClientId::new(&arguments.client)?,
        seq: None,
        resource_ids: (!all).then_some(arguments.resources),
    };
    if arguments.json {
        let answer: serde_json::Value = client.post(paths::CAPACITY_RELEASE, &request).await?;
        return Ok(format!("{answer:#}\n"));
    }
    let ReleaseResponse {} = client.post(paths::CAPACITY_RELEASE, &request).await?;
    Ok(String::new())
}

/// The word that stands for a value on the wire.
pub(super) fn word(value: &impl serde::Serialize) -> Result<String, Failure> {
    let value = serde_json::to_value(value)?;
    Ok(value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned))
}
