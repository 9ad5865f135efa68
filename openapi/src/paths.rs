//! The paths of the control plane, and of the agent.

/// Lease capacity as a client.
pub const CAPACITY: &str = "/v1/capacity";
/// Release leases of a client.
pub const CAPACITY_RELEASE: &str = "/v1/capacity/release";
/// Lease capacity as a node of the server tree.
pub const SERVER_CAPACITY: &str = "/v1/server-capacity";
/// Release leases of a node.
pub const SERVER_CAPACITY_RELEASE: &str = "/v1/server-capacity/release";
/// Long poll for the leases to refresh now.
pub const HINTS: &str = "/v1/hints";
/// The master of the node.
pub const DISCOVERY: &str = "/v1/discovery";
/// Hand-over of the ledger to the next master of the node.
pub const HANDOVER: &str = "/v1/handover";
/// Live resources.
pub const RESOURCES: &str = "/v1/resources";
/// One live resource.
pub const RESOURCE: &str = "/v1/resources/{resource_id}";
/// The holders of a live resource.
pub const RESOURCE_LEASES: &str = "/v1/resources/{resource_id}/leases";
/// The leases of a client.
pub const LEASES: &str = "/v1/leases";
/// The document.
pub const TEMPLATES: &str = "/v1/templates";
/// One template of the document.
pub const TEMPLATE: &str = "/v1/templates/{identifier_glob}";
/// The rules of a service.
pub const RULES: &str = "/v1/rules";
/// One rule of the document.
pub const RULE: &str = "/v1/rules/{name}";
/// The history of the document.
pub const HISTORY: &str = "/v1/history";
/// The document of a past revision.
pub const REVISION: &str = "/v1/history/{revision}";
/// The status of the server.
pub const STATUS: &str = "/v1/status";
/// Liveness.
pub const LIVEZ: &str = "/livez";
/// Readiness.
pub const READYZ: &str = "/readyz";
/// Metrics.
pub const METRICS: &str = "/metrics";
/// The OpenAPI document.
pub const OPENAPI: &str = "/openapi.json";
/// The documentation page.
pub const DOCS: &str = "/docs";
/// A check of several resources, at the agent.
pub const CHECK: &str = "/v1/check";
/// Release of permits, at the agent.
pub const CHECK_RELEASE: &str = "/v1/check/release";
/// Outcomes of operations that checks admitted, at the agent.
pub const CHECK_OUTCOME: &str = "/v1/check/outcome";
/// Renewal of a permit, at the agent.
pub const CHECK_RENEW: &str = "/v1/check/renew";
/// The decision on a request that a proxy forwards, at the agent.
pub const FORWARD_AUTH: &str = "/v1/forward-auth";
