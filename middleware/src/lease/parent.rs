//! Client of the servers of a parent node, for control planes below the root of a tree.

use std::{fmt, time::Duration};

use doorman_holder::{Failure, GRACE, WAIT};
use doorman_openapi::{
    Discovery, HintsResponse, NodeId, ServerCapacityRequest, ServerCapacityResponse,
    ServerReleaseRequest, ServerUrl,
};
use http::HeaderValue;

use super::client::{ControlPlaneClient, FetchedHints, FetchedRules, Outcome, Transport};
use crate::credentials::Credentials;

/// The servers of a parent node, by their position in the list.
pub struct ParentClient<T> {
    client: ControlPlaneClient<T>,
}

/// The response to a poll for hints.
#[derive(Debug, Clone, PartialEq)]
pub enum Hints {
    /// The response, which may have no hints.
    Received(HintsResponse),
    /// The server gives no hints.
    Unsupported,
}

impl<T: Transport> ParentClient<T> {
    /// Sends requests over `transport`.
    #[must_use]
    pub fn new(transport: T, servers: Vec<ServerUrl>, credentials: Option<Credentials>) -> Self {
        Self {
            client: ControlPlaneClient {
                transport,
                servers: servers.into(),
                credentials,
            },
        }
    }

    /// Requests leases for a node.
    ///
    /// # Errors
    /// The failure for the state machine, and its reason for the log. A timeout is a failure.
    pub fn request_leases(
        &self,
        endpoint: usize,
        request: &ServerCapacityRequest,
        time: Duration,
    ) -> impl Future<Output = Result<ServerCapacityResponse, (Failure, String)>> + Send + use<T>
    {
        result(self.client.request_server_leases(endpoint, request, time))
    }

    /// Releases leases of a node. If this fails, they expire.
    ///
    /// # Errors
    /// As [`request_leases`](Self::request_leases).
    pub fn release(
        &self,
        endpoint: usize,
        request: &ServerReleaseRequest,
        time: Duration,
    ) -> impl Future<Output = Result<(), (Failure, String)>> + Send + use<T> {
        result(self.client.release_server_leases(endpoint, request, time))
    }

    /// Polls for hints to a node. The server responds within [`WAIT`].
    ///
    /// # Errors
    /// As [`request_leases`](Self::request_leases).
    pub fn poll_hints(
        &self,
        endpoint: usize,
        node: &NodeId,
        after: u64,
    ) -> impl Future<Output = Result<Hints, (Failure, String)>> + Send + use<T> {
        let holder = ("node_id", node.as_str());
        let polled = self
            .client
            .poll_hints(endpoint, holder, after, WAIT, WAIT + GRACE);
        let polled = result(polled);
        async move {
            Ok(match polled.await? {
                FetchedHints::Hints(hints) => Hints::Received(hints),
                FetchedHints::Unsupported => Hints::Unsupported,
            })
        }
    }

    /// Fetches all rules, unless they have this `ETag`. Resolves within `time`.
    ///
    /// # Errors
    /// As [`request_leases`](Self::request_leases).
    pub fn fetch_rules(
        &self,
        endpoint: usize,
        etag: Option<HeaderValue>,
        time: Duration,
    ) -> impl Future<Output = Result<FetchedRules, (Failure, String)>> + Send + use<T> {
        result(self.client.fetch_rules(endpoint, None, etag, time))
    }

    /// Fetches the discovery of a server: its node, epoch and level.
    ///
    /// # Errors
    /// As [`request_leases`](Self::request_leases).
    pub fn discover(
        &self,
        endpoint: usize,
        time: Duration,
    ) -> impl Future<Output = Result<Discovery, (Failure, String)>> + Send + use<T> {
        result(self.client.discover(endpoint, time))
    }

    /// The address of a server, for the log.
    #[must_use]
    pub fn address(&self, endpoint: usize) -> String {
        self.client.address(endpoint)
    }
}

async fn result<R>(outcome: impl Future<Output = Outcome<R>>) -> Result<R, (Failure, String)> {
    outcome
        .await
        .result
        .map_err(|error| (error.failure, error.reason))
}

impl<T> fmt::Debug for ParentClient<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ParentClient").finish_non_exhaustive()
    }
}
