//! `doorman get` and `doorman release`: leases by hand.

use std::collections::BTreeMap;
use std::io;

use clap::builder::NonEmptyStringValueParser;
use doorman_openapi::{
    Capacity, CapacityRequest, CapacityResponse, ClientId, ReleaseRequest, ReleaseResponse,
    ResourceId, ResourceRequest, Unit, paths,
};

use super::{
    client::{Client, ServerArguments, host_name},
    failure::Failure,
    output::{self, JsonFlag, cell, per_period},
};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  doorman get db --wants 50\n  doorman get tenant/acme --wants 5 --client shop-1 --json"
)]
pub(super) struct GetArguments {
    /// The resource
    resource: ResourceId,
    /// Capacity to request, in the unit of the resource
    #[arg(long, value_name = "N", value_parser = capacity, allow_negative_numbers = true)]
    wants: Capacity,
    /// Client ID; must be unique for each process
    #[arg(long, value_name = "ID", default_value_t = default_client_id(), value_parser = NonEmptyStringValueParser::new())]
    client: String,
    #[command(flatten)]
    output: JsonFlag,
    #[command(flatten)]
    server: ServerArguments,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "A client that still runs is not told: until its next refresh it uses its lease beside those that get\n\
    the capacity.\n\nExamples:\n  doorman release db\n  doorman release --client shop-1"
)]
pub(super) struct ReleaseArguments {
    /// The resources; default: all of the client
    #[arg(value_name = "RESOURCE")]
    resources: Vec<ResourceId>,
    /// ID of the client that holds the leases; those of all its processes are released
    #[arg(long, value_name = "ID", default_value_t = default_client_id(), value_parser = NonEmptyStringValueParser::new())]
    client: String,
    #[command(flatten)]
    output: JsonFlag,
    #[command(flatten)]
    server: ServerArguments,
}

pub(super) fn capacity(text: &str) -> Result<Capacity, String> {
    let number: f64 = text.parse().map_err(|_| "must be a number".to_owned())?;
    Capacity::new(number).map_err(|error| error.to_string())
}

/// The client ID shared by all commands on a machine.
fn default_client_id() -> String {
    format!("doorman-cli@{}", host_name())
}

pub(super) async fn get(arguments: GetArguments) -> Result<String, Failure> {
    let client = Client::new(&arguments.server)?;
    let request = CapacityRequest {
        client_id: ClientId::new(&arguments.client)?,
        run: None,
        seq: None,
        heard_epoch: None,
        polls: false,
        replaces: Vec::new(),
        resources: vec![ResourceRequest {
            resource_id: arguments.resource,
            wants: arguments.wants,
            priority: None,
            bands: None,
            has: None,
            outstanding: Capacity::ZERO,
            used: None,
            unit: None,
            limited_as: None,
            bucket: None,
            per: None,
            outcomes: None,
            pause: None,
            seen: None,
        }],
    };
    let response: serde_json::Value = client.post(paths::CAPACITY, &request).await?;
    if arguments.output.json {
        return output::pretty_json(&response);
    }
    let response: CapacityResponse = client.decode(&response)?;
    for warning in &response.warnings {
        output::note(&mut io::stderr(), warning);
    }
    let rows = response.resources.iter().map(|resource| {
        let lease = &resource.gets;
        let period = match (resource.unit, resource.per) {
            (Some(Unit::Rate), Some(per)) => per.get(),
            _ => 1.0,
        };
        [
            resource.resource_id.to_string(),
            per_period(lease.capacity, period),
            cell(resource.limit.map(|it| per_period(it, period))),
            lease.lease_length.to_string(),
            lease.refresh_interval.to_string(),
            output::variant_name(&resource.reason),
        ]
    });
    Ok(output::table(
        [
            "RESOURCE", "CAPACITY", "LIMIT", "SECONDS", "REFRESH", "REASON",
        ],
        rows,
    ))
}

pub(super) async fn release(arguments: ReleaseArguments) -> Result<String, Failure> {
    let client = Client::new(&arguments.server)?;
    let all = arguments.resources.is_empty();
    let request = ReleaseRequest {
        client_id: ClientId::new(&arguments.client)?,
        run: None,
        seq: None,
        heard_epoch: None,
        resource_ids: (!all).then_some(arguments.resources),
        tokens: BTreeMap::new(),
    };
    let response: serde_json::Value = client.post(paths::CAPACITY_RELEASE, &request).await?;
    if arguments.output.json {
        return output::pretty_json(&response);
    }
    let ReleaseResponse { released } = client.decode(&response)?;
    Ok(match released {
        0 => {
            let note = format!(
                "nothing to release: {} holds none of these leases",
                arguments.client
            );
            output::note(&mut io::stderr(), &note);
            String::new()
        }
        1 => format!("released 1 lease of {}\n", arguments.client),
        count => format!("released {count} leases of {}\n", arguments.client),
    })
}
