//! Route policy: the scopes that each route needs and the cost of a request to it. The OpenAPI
//! document uses it too. A route that is missing here is closed.

use axum::http::Method;
use doorman_openapi::{Scope, paths};

use crate::quota::Operation;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Policy {
    pub(super) access: Access,
    pub(super) cost: RequestCost,
    /// Whether only the master can answer.
    pub(super) needs_master: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// No token needed.
    Public,
    /// The token needs one of these scopes.
    AnyOf(&'static [Scope]),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestCost {
    /// Never rate limited.
    Free,
    /// The length of the body before it is read, and its resources after that.
    Lease,
    /// That of a request without resources.
    Request,
    /// That of an operator's request.
    Operation(Operation),
    /// That of a request without a token.
    Public,
}

/// The policy of a route; `path` is the matched path. `None` if there is no such route.
pub(super) fn of(method: &Method, path: &str) -> Option<Policy> {
    use Access::{AnyOf, Public};
    use RequestCost::{Free, Lease, Request};

    const VIEW: RequestCost = RequestCost::Operation(Operation::View);
    const CHANGE: RequestCost = RequestCost::Operation(Operation::Change);

    let reads = *method == Method::GET || *method == Method::HEAD;
    let posts = *method == Method::POST;
    let puts = *method == Method::PUT;
    let edits = puts || *method == Method::PATCH || *method == Method::DELETE;
    let (access, cost, needs_master) = match path {
        paths::CAPACITY | paths::CAPACITY_RELEASE if posts => {
            (AnyOf(&[Scope::Capacity]), Lease, true)
        }
        paths::SERVER_CAPACITY | paths::SERVER_CAPACITY_RELEASE if posts => {
            (AnyOf(&[Scope::Server]), Lease, true)
        }
        // The handler asks for the scope of a client or of a node.
        paths::HINTS if reads => (AnyOf(&[Scope::Capacity, Scope::Server]), Request, false),
        paths::DISCOVERY if reads => (AnyOf(Scope::ALL), Request, false),
        // A layer and a node poll the rules with the token that they lease with.
        paths::RULES if reads => (
            AnyOf(&[Scope::Capacity, Scope::Server, Scope::TemplatesRead]),
            Request,
            false,
        ),
        paths::TEMPLATES | paths::TEMPLATE | paths::RULE | paths::HISTORY | paths::REVISION
            if reads =>
        {
            (AnyOf(&[Scope::TemplatesRead]), VIEW, false)
        }
        paths::TEMPLATES if puts => (AnyOf(&[Scope::TemplatesWrite]), CHANGE, false),
        paths::TEMPLATE | paths::RULE if edits => (AnyOf(&[Scope::TemplatesWrite]), CHANGE, false),
        paths::RESOURCES | paths::RESOURCE | paths::RESOURCE_LEASES | paths::LEASES if reads => {
            (AnyOf(&[Scope::StatusRead]), VIEW, true)
        }
        paths::STATUS | paths::METRICS if reads => (AnyOf(&[Scope::StatusRead]), VIEW, false),
        // The body has a secret of its own.
        paths::HANDOVER if posts => (Public, RequestCost::Public, false),
        // Orchestrators send no token.
        paths::LIVEZ | paths::READYZ if reads => (Public, Free, false),
        // The same for every server of this version.
        paths::OPENAPI | paths::DOCS | "/docs/" | "/docs/{file}" | "/" if reads => {
            (Public, RequestCost::Public, false)
        }
        _ => return None,
    };
    Some(Policy {
        access,
        cost,
        needs_master,
    })
}

impl Access {
    pub(super) fn scopes(self) -> Option<&'static [Scope]> {
        match self {
            Self::Public => None,
            Self::AnyOf(scopes) => Some(scopes),
        }
    }
}
