//! What leads where: the links of the OpenAPI document, by which a reader, or a program that tries the API out, finds the calls that make
//! sense after another, and what of the first they need.
//!
//! They stand here and not beside the handlers, as each is about two of them.

use serde_json::{Value, json};
use utoipa::openapi::{
    OpenApi, RefOr,
    link::{Link, LinkBuilder},
    path::{Operation, PathItem},
};

/// Where an answer leads.
pub(super) struct Leads {
    /// The operation that was answered, and with what.
    pub(super) from: (&'static str, &'static [&'static str]),
    /// The operation that it leads to.
    to: &'static str,
    /// The parameters of that, with the expressions for their values.
    parameters: &'static [(&'static str, &'static str)],
    /// Its body.
    body: fn() -> Option<Value>,
    description: &'static str,
}

const PUT: &[&str] = &["200", "201"];
const READ: &[&str] = &["200"];

const TEMPLATE: &[(&str, &str)] = &[("identifier_glob", "$request.path.identifier_glob")];
const RULE: &[(&str, &str)] = &[("name", "$request.path.name")];
const RESOURCE: &[(&str, &str)] = &[("resource_id", "$request.path.resource_id")];
const LEASED: &[(&str, &str)] = &[("resource_id", "$request.body#/resources/0/resource_id")];
const FIRST_LISTED: &[(&str, &str)] = &[("resource_id", "$response.body#/resources/0/resource_id")];
const NEXT_PAGE: &[(&str, &str)] = &[("cursor", "$response.body#/next_cursor")];

const NEXT_OF_RESOURCE: &[(&str, &str)] = &[
    ("resource_id", "$request.path.resource_id"),
    ("cursor", "$response.body#/next_cursor"),
];

pub(super) const LEADS: &[Leads] = &[
    Leads::new(
        "lease_capacity",
        READ,
        "get_resource",
        LEASED,
        "How the first resource stands now",
    ),
    Leads::new(
        "lease_capacity",
        READ,
        "list_leases",
        LEASED,
        "Who holds the first resource",
    ),
    Leads::new(
        "lease_capacity",
        READ,
        "release_capacity",
        &[],
        "Gives back all leases of the client",
    )
    .with(|| Some(json!({"client_id": "$request.body#/client_id"}))),
    Leads::new(
        "lease_server_capacity",
        READ,
        "list_leases",
        LEASED,
        "Who holds the first resource",
    ),
    Leads::new(
        "lease_server_capacity",
        READ,
        "release_server_capacity",
        &[],
        "Gives back all leases of the node",
    )
    .with(|| Some(json!({"node_id": "$request.body#/node_id"}))),
    Leads::new(
        "list_resources",
        READ,
        "get_resource",
        FIRST_LISTED,
        "The first of the page by itself",
    ),
    Leads::new(
        "list_resources",
        READ,
        "list_leases",
        FIRST_LISTED,
        "Who holds the first of the page",
    ),
    Leads::new(
        "list_resources",
        READ,
        "list_resources",
        NEXT_PAGE,
        "The next page, with the same `prefix`",
    ),
    Leads::new(
        "get_resource",
        READ,
        "list_leases",
        RESOURCE,
        "Who holds it",
    ),
    Leads::new(
        "list_leases",
        READ,
        "list_leases",
        NEXT_OF_RESOURCE,
        "The next page",
    ),
    Leads::new(
        "list_history",
        READ,
        "list_history",
        NEXT_PAGE,
        "The next page",
    ),
    Leads::new(
        "put_template",
        PUT,
        "get_template",
        TEMPLATE,
        "The template as it is now",
    ),
    Leads::new(
        "put_template",
        PUT,
        "delete_template",
        TEMPLATE,
        "Takes it out again",
    ),
    Leads::new(
        "get_template",
        READ,
        "delete_template",
        TEMPLATE,
        "Takes it out",
    ),
    Leads::new(
        "delete_template",
        &["204"],
        "get_template",
        TEMPLATE,
        "It is not there any more",
    ),
    Leads::new("put_rule", PUT, "get_rule", RULE, "The rule as it is now"),
    Leads::new("put_rule", PUT, "delete_rule", RULE, "Takes it out again"),
    Leads::new("get_rule", READ, "delete_rule", RULE, "Takes it out"),
    Leads::new(
        "delete_rule",
        &["204"],
        "get_rule",
        RULE,
        "It is not there any more",
    ),
];

impl Leads {
    const fn new(
        from: &'static str,
        answered: &'static [&'static str],
        to: &'static str,
        parameters: &'static [(&'static str, &'static str)],
        description: &'static str,
    ) -> Self {
        Self {
            from: (from, answered),
            to,
            parameters,
            body: || None,
            description,
        }
    }

    const fn with(mut self, body: fn() -> Option<Value>) -> Self {
        self.body = body;
        self
    }

    fn link(&self) -> Link {
        let mut link = LinkBuilder::new()
            .operation_id(self.to)
            .description(self.description)
            .request_body((self.body)());
        for (name, value) in self.parameters {
            link = link.parameter(*name, *value);
        }
        link.build()
    }
}

/// The document with its links.
pub(super) fn linked(mut document: OpenApi) -> OpenApi {
    let paths = document.paths.paths.values_mut();
    for operation in paths.flat_map(operations) {
        for leads in LEADS {
            let (from, answered) = leads.from;
            if operation.operation_id.as_deref() != Some(from) {
                continue;
            }
            for status in answered {
                if let Some(RefOr::T(response)) = operation.responses.responses.get_mut(*status) {
                    response
                        .links
                        .insert(leads.to.to_owned(), RefOr::T(leads.link()));
                }
            }
        }
    }
    document
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    [
        &mut item.get,
        &mut item.put,
        &mut item.post,
        &mut item.delete,
    ]
    .into_iter()
    .flatten()
}
