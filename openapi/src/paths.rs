//! The paths of the control plane.

/// Lease capacity for a client.
pub const CAPACITY: &str = "/v1/capacity";
/// Give a client's leases back.
pub const CAPACITY_RELEASE: &str = "/v1/capacity/release";
/// Lease capacity for a node of the server tree.
pub const SERVER_CAPACITY: &str = "/v1/server-capacity";
/// Give a node's leases back.
pub const SERVER_CAPACITY_RELEASE: &str = "/v1/server-capacity/release";
/// Who is master.
pub const DISCOVERY: &str = "/v1/discovery";
/// Live resources.
pub const RESOURCES: &str = "/v1/resources";
/// One live resource.
pub const RESOURCE: &str = "/v1/resources/{resource_id}";
/// The holders of a live resource.
pub const RESOURCE_LEASES: &str = "/v1/resources/{resource_id}/leases";
/// The document.
pub const TEMPLATES: &str = "/v1/templates";
/// One template of the document.
pub const TEMPLATE: &str = "/v1/templates/{identifier_glob}";
/// The rules for a service.
pub const RULES: &str = "/v1/rules";
/// One rule of the document.
pub const RULE: &str = "/v1/rules/{name}";
/// Past changes of the document.
pub const HISTORY: &str = "/v1/history";
/// The server itself.
pub const STATUS: &str = "/v1/status";
/// Whether the process lives.
pub const LIVEZ: &str = "/livez";
/// Whether the server takes requests.
pub const READYZ: &str = "/readyz";
/// What is counted and measured.
pub const METRICS: &str = "/metrics";
/// The OpenAPI document.
pub const OPENAPI: &str = "/openapi.json";
/// The documentation page.
pub const DOCS: &str = "/docs";
