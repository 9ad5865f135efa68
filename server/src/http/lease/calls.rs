//! Calls of clients and nodes: charged, decided and answered.

use std::sync::Arc;

use axum::{extract::FromRequestParts, http::request::Parts};
use doorman_openapi::{FieldError, ReleaseResponse, ResourceId};

use super::{charge::QuotaCharge, response};
use crate::{
    auth::Caller, http::error::ApiError, http::response::Json, http::response::JsonText,
    http::state::AppState, http::state::ServerInfo, leasing::SharedLedger, quota::Quotas,
    util::clock,
};
use doorman_core::{ledger::HolderId, ledger::LeaseCall, ledger::ReleaseCall};

/// The parts of the server behind the calls of one caller.
#[derive(Debug)]
pub(super) struct LeaseCalls {
    ledger: Arc<SharedLedger>,
    quotas: Arc<Quotas>,
    server: Arc<ServerInfo>,
    caller: Caller,
    charge: QuotaCharge,
}

impl FromRequestParts<AppState> for LeaseCalls {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, ApiError> {
        Ok(Self {
            ledger: Arc::clone(&state.ledger),
            quotas: Arc::clone(&state.quotas),
            server: Arc::clone(&state.server),
            caller: Caller::from_request_parts(parts, state).await?,
            charge: QuotaCharge::from_request_parts(parts, state).await?,
        })
    }
}

impl LeaseCalls {
    /// # Errors
    /// 422 for a node with the name of this one, 429 if the quota is spent, and 503 or a redirect
    /// if this server cannot lease.
    ///
    /// # Cancel safety
    /// As [`SharedLedger::lease`].
    pub(super) async fn lease(self, call: LeaseCall) -> Result<JsonText, ApiError> {
        let Self {
            ledger,
            quotas,
            server,
            ..
        } = &self;
        if matches!(call.holder(), HolderId::Node(node) if *node == server.node) {
            return Err(own_name());
        }
        let call = call.of_tenant(self.caller.tenant());
        let _decisions = self.charge.leases(quotas, ledger, &call).await?;
        let kind = call.holder().kind();
        let granted = ledger.lease(call).await??;
        Ok(JsonText(response::write(
            &server.node,
            &granted,
            kind,
            server.level(),
            clock::unix_seconds(),
        )))
    }

    /// # Errors
    /// As [`QuotaCharge::release`].
    ///
    /// # Cancel safety
    /// Some leases may remain; they expire.
    pub(super) async fn release(
        self,
        call: ReleaseCall,
    ) -> Result<Json<ReleaseResponse>, ApiError> {
        let restrictions = self.caller.restrictions();
        let allowed = |id: &ResourceId| restrictions.allows_resource(id.as_str());
        let released = self
            .charge
            .release(&self.quotas, &self.ledger, &call, &allowed);
        Ok(Json(ReleaseResponse {
            released: Some(released.await?),
        }))
    }
}

fn own_name() -> ApiError {
    ApiError::invalid(vec![FieldError {
        pointer: "/node_id".to_owned(),
        detail: "is the name of the parent: each node of a tree must have a name of its own \
                 (--node)"
            .to_owned(),
    }])
}
