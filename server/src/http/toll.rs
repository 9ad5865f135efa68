//! What calls cost, and on whose account they go. Which they are is one table of all routes, as for `access`.

use std::sync::Arc;

use axum::{
    extract::FromRequestParts,
    http::{Extensions, Method, request::Parts},
};
use doorman_openapi::{Moment, ProblemType, paths};

use super::refusal::Refusal;
use crate::{
    app::{App, BooksInDoubt},
    auth::Caller,
    clock,
    core::{Core, Renews},
    limits::{Asks, Counted, Limited, Limits, Operation, Payer, Peer, Whose},
};

/// What a call costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Toll {
    /// Nothing: it is always answered.
    Free,
    /// As many decisions as it has resources: that is paid when they have been counted.
    Leases,
    /// What a request costs: it asks for nothing more.
    Request,
    Operation(Operation),
    /// What an answer to anybody costs.
    Open,
}

/// What a call costs; `path` as routes are written, `None` when none matches.
pub(super) fn of(method: &Method, path: Option<&str>) -> Toll {
    let reads = *method == Method::GET || *method == Method::HEAD;
    let Some(path) = path else {
        return Toll::Open;
    };
    match path {
        paths::LIVEZ | paths::READYZ if reads => Toll::Free,
        paths::CAPACITY
        | paths::CAPACITY_RELEASE
        | paths::SERVER_CAPACITY
        | paths::SERVER_CAPACITY_RELEASE => Toll::Leases,
        paths::RULES | paths::DISCOVERY => Toll::Request,
        paths::METRICS => Toll::Operation(Operation::Change),
        paths::RESOURCES
        | paths::RESOURCE
        | paths::RESOURCE_LEASES
        | paths::STATUS
        | paths::HISTORY => Toll::Operation(Operation::View),
        paths::TEMPLATES | paths::TEMPLATE | paths::RULE if reads => {
            Toll::Operation(Operation::View)
        }
        paths::TEMPLATES | paths::TEMPLATE | paths::RULE => Toll::Operation(Operation::Change),
        _ => Toll::Open,
    }
}

impl Toll {
    /// Pays what is to be paid before the call is looked at.
    ///
    /// # Errors
    /// 429 when there is not so much on the account.
    pub(super) fn pay(self, limits: &Limits, payer: Option<Payer>) -> Result<(), Refusal> {
        let now = match payer {
            Some(_) => clock::now(),
            None => return Ok(()),
        };
        match self {
            Self::Free => Ok(()),
            Self::Leases => limits.is_read(payer, now),
            Self::Request => limits.request(payer, now),
            Self::Operation(operation) => limits.operation(payer, operation, now),
            Self::Open => limits.unverified(payer, now),
        }
        .map_err(Refusal::from)
    }
}

/// On whose account a request goes: that of whom its token speaks, or, where nobody is asked, of whoever is at its address.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Paying(Option<Payer>);

/// On whose account a request with these extensions goes: of its caller, when that is known.
pub(super) fn payer(extensions: &Extensions, app: &App) -> Option<Payer> {
    match extensions.get::<Caller>() {
        Some(caller) => caller.payer(),
        None => app.limits().payer_at(extensions.get::<Peer>().copied()),
    }
}

impl FromRequestParts<Arc<App>> for Paying {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Refusal> {
        Ok(Self(payer(&parts.extensions, app)))
    }
}

impl Paying {
    /// Pays for leases on so many resources. When there is not so much on the account for new leases, or the server has too much to do,
    /// the books are asked whether all of them are held already: `renews` looks at the next few from a position on.
    ///
    /// The whole request counts as new when one resource is: else who holds one lease could ask for ten thousand others as if they were
    /// renewals.
    ///
    /// # Errors
    /// 429 when that is not enough, 503 when the books are in doubt.
    ///
    /// # Cancel safety
    /// When it is dropped, what is paid is gone.
    pub(super) async fn leases<'a>(
        self,
        app: &'a App,
        resources: usize,
        renews: impl Fn(&Core, usize, Moment) -> Renews,
    ) -> Result<Counted<'a>, Refusal> {
        let (limits, now) = (app.limits(), self.now());
        let limited = match limits.decisions(self.0, resources, Asks::New, now) {
            Ok(counted) => return Ok(counted),
            Err(limited) => limited,
        };
        if all_are_held(app, renews).await? {
            self.decisions(app, resources, Asks::Renewal, now)
        } else {
            Err(self.refused(app, resources, Asks::New, limited, now))
        }
    }

    /// Pays for so many leases that come back.
    ///
    /// # Errors
    /// 429 when there is not so much even in the reserve.
    pub(super) fn releases(self, app: &App, leases: usize) -> Result<Counted<'_>, Refusal> {
        self.decisions(app, leases, Asks::Renewal, self.now())
    }

    fn decisions(
        self,
        app: &App,
        resources: usize,
        asks: Asks,
        now: Moment,
    ) -> Result<Counted<'_>, Refusal> {
        app.limits()
            .decisions(self.0, resources, asks, now)
            .map_err(|limited| self.refused(app, resources, asks, limited, now))
    }

    fn refused(
        self,
        app: &App,
        resources: usize,
        asks: Asks,
        limited: Limited,
        now: Moment,
    ) -> Refusal {
        app.limits().refuses(self.0, resources, asks, limited, now);
        match asks {
            Asks::Renewal => limited.into(),
            Asks::New => {
                let detail = format!(
                    "{}; what is leased is renewed, when nothing new is asked for along with it",
                    whose(limited)
                );
                Refusal::new(ProblemType::TooManyRequests, detail).after(limited.wait)
            }
        }
    }

    /// Who pays nothing need not know the time.
    fn now(self) -> Moment {
        self.0.map_or(Moment::ORIGIN, |_| clock::now())
    }
}

/// Whether the books know a lease of the holder on each resource that it asks for. They are free for others between two parts.
async fn all_are_held(
    app: &App,
    renews: impl Fn(&Core, usize, Moment) -> Renews,
) -> Result<bool, BooksInDoubt> {
    let mut from = 0;
    loop {
        match app.books(|core, now| renews(core, from, now))? {
            Renews::All => return Ok(true),
            Renews::NotAll => return Ok(false),
            Renews::SoFar(next) => from = next,
        }
        tokio::task::yield_now().await;
    }
}

fn whose(limited: Limited) -> &'static str {
    match limited.whose {
        Whose::Callers => "the caller asks for more than the server does for one",
        Whose::Servers => "the server has too much to do",
    }
}

impl From<Limited> for Refusal {
    fn from(limited: Limited) -> Self {
        Self::new(ProblemType::TooManyRequests, whose(limited)).after(limited.wait)
    }
}
