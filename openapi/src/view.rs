//! Views for operators: live resources, their holders, and the status of the server.

use serde::{Deserialize, Deserializer, Serialize};

use crate::{
    AlgorithmKind, Balance, Band, Capacity, Epoch, NodeId, Outcomes, Probability, ResourceId, Run,
    SafeCapacity, Seconds, ServerId, Unit, algorithm::deserialize_known,
};

/// The order of a sorted list, largest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum SortBy {
    /// The demand.
    Wants,
    /// The capacity that is leased.
    Has,
    /// The number of clients; of a holder, those behind it.
    Clients,
    /// The demand beyond what may be leased; of a holder, beyond its lease.
    Unmet,
    /// The cost of requests that holders do not admit, per second; of a holder, in total.
    Refused,
    /// The requests that the target refuses for its load, per second; of a holder, in total.
    Overloaded,
    /// The part of the capacity that feedback holds back; of a holder, whether it suffers alone.
    HeldBack,
}

impl SortBy {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Wants,
        Self::Has,
        Self::Clients,
        Self::Unmet,
        Self::Refused,
        Self::Overloaded,
        Self::HeldBack,
    ];

    /// The name in a query.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Wants => "wants",
            Self::Has => "has",
            Self::Clients => "clients",
            Self::Unmet => "unmet",
            Self::Refused => "refused",
            Self::Overloaded => "overloaded",
            Self::HeldBack => "held_back",
        }
    }

    /// The order of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.name() == name)
    }
}

/// A page of live resources, by identifier unless it is sorted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ResourcePage {
    /// The resources; a page may be empty although more follow.
    pub resources: Vec<ResourceView>,
    /// The number of resources that the whole list has; only with `sort`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// The `cursor` of the next page; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// A live resource: a holder has it, waits for it, or released it less than a lease length ago.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ResourceView {
    /// The resource.
    pub resource_id: ResourceId,
    /// The capacity that the server divides: at a node below the root what its parent leases to
    /// it. Null without a template.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub capacity: Option<Capacity>,
    /// The lease from the parent node; absent at the root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<ParentLease>,
    /// The unit of all amounts; null without a template.
    #[serde(default, deserialize_with = "deserialize_known")]
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub unit: Option<Unit>,
    /// The period of a rate, in seconds: amounts are per so many; null without a template.
    #[cfg_attr(feature = "schema", schema(required = true, value_type = Option<f64>, minimum = 0.001, maximum = 31_536_000))]
    pub per: Option<Seconds>,
    /// The sum of all bookings: the most that the holders may be using now.
    pub sum_has: f64,
    /// The sum of all demands. If every client has a long bucket (`bucket`), it is that of the last
    /// `per` seconds, or of the time of the largest bucket if that is longer.
    pub sum_wants: f64,
    /// The demand beyond what may be leased: beyond the capacity, with STATIC beyond the capacity
    /// for each client, with NO_ALGORITHM nothing.
    #[serde(default)]
    pub unmet: f64,
    /// Seconds since the demand is unmet, as far as this master knows, with pauses of less than
    /// half a minute; absent while it is met.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unmet_for: Option<Seconds>,
    /// Since when, in Unix seconds, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unmet_since: Option<u64>,
    /// The capacity that is not booked; absent if the algorithm does not divide the capacity, and
    /// in learning mode until all leases of the previous master are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free: Option<f64>,
    /// The largest share of a client with FAIR_SHARE in overload. With a `granularity` shares
    /// differ from it by less than a step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fill_level: Option<f64>,
    /// The number of clients, those behind nodes included.
    pub clients: u64,
    /// Whether the server is learning the leases of the previous master.
    pub in_learning_mode: bool,
    /// Seconds until learning mode ends; absent outside it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learning_ends_in: Option<Seconds>,
    /// The matching template; null if there is none.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub template: Option<String>,
    /// The algorithm; `None` is one of a later release.
    #[serde(deserialize_with = "deserialize_known")]
    #[cfg_attr(feature = "schema", schema(required = true, value_type = AlgorithmKind))]
    pub algorithm: Option<AlgorithmKind>,
    /// The length of a lease, in seconds.
    pub lease_length: Seconds,
    /// The refresh interval, in seconds; at most 1 for a holder that waits for more.
    pub refresh_interval: Seconds,
    /// The capacity that a holder may use without a lease; −1 is unlimited.
    #[cfg_attr(feature = "schema", schema(value_type = f64, minimum = -1.0, maximum = 1e15))]
    pub safe_capacity: SafeCapacity,
    /// The tokens left in the shared bucket, by the reports of all holders; SHARED_BUCKET only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub balance: Option<Balance>,
    /// The probability with which holders admit each request; SUPPRESSION only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admission_probability: Option<Probability>,
    /// The outcomes of the requests; null if no holder reported any.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub outcomes: Option<ResourceOutcomes>,
    /// The capacity that the target bears by the outcomes, at most the configured one: the server
    /// divides it instead, unless it only observes. Absent without `feedback` in the template, and
    /// before the first report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effective: Option<Capacity>,
    /// Why `effective` is what it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feedback: Option<FeedbackView>,
    /// Advice for the operator; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
}

/// The state of a resource with `feedback`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct FeedbackView {
    /// The state; `None` is one of a later release.
    #[serde(deserialize_with = "deserialize_known")]
    #[cfg_attr(feature = "schema", schema(required = true, value_type = FeedbackState))]
    pub state: Option<FeedbackState>,
    /// Seconds for which it has lasted.
    pub lasts: Seconds,
    /// Since when, in Unix seconds, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<u64>,
    /// The amount that the target accepted by the last measurement; absent while nothing is held
    /// back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plateau: Option<Capacity>,
    /// The part of the requests that the target refused for its load, by the last verdict.
    pub overloaded_share: Probability,
    /// Seconds until a pause ends, or until more is tried; absent if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_in: Option<Seconds>,
    /// That time, in Unix seconds, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<u64>,
    /// The part of the requests that the target refuses at any load; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<Probability>,
    /// The explanation in a sentence, with numbers.
    pub reason: String,
}

impl FeedbackView {
    fn dated(self, unix_now: u64) -> Self {
        let seconds = |seconds: Seconds| seconds.get() as u64;
        Self {
            since: Some(unix_now.saturating_sub(seconds(self.lasts))),
            until: self
                .ends_in
                .map(|left| unix_now.saturating_add(seconds(left))),
            ..self
        }
    }
}

/// Whether feedback holds a resource back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum FeedbackState {
    /// The whole capacity is divided.
    Open,
    /// The effective capacity is just below what the target accepts.
    Held,
    /// More is tried, since there is demand.
    Probing,
    /// Nothing is leased: the target accepts nothing, and has said until when.
    Paused,
    /// The effective capacity is computed and shown, and not divided (`mode: observe`).
    Observing,
}

/// Outcomes of the requests of all holders of a resource.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ResourceOutcomes {
    /// Since holders began to report, as far as this master and those that handed over to it know.
    /// It includes holders that have ended, and begins anew with the resource.
    pub total: Outcomes,
    /// A mean over ten seconds.
    pub per_second: OutcomeRates,
}

/// Outcomes per second.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct OutcomeRates {
    /// The cost of requests that the holders did not admit.
    pub refused: f64,
    /// Requests that the target served.
    pub ok: f64,
    /// Requests that the target refused for its load.
    pub overloaded: f64,
    /// Requests that failed for another reason.
    pub failed: f64,
}

/// The lease that a node has from its parent on a resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ParentLease {
    /// The capacity of the whole tree, by the root's template; null without a template.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub limit: Option<Capacity>,
    /// The capacity of the current lease: the newest one, or an older one that outlasts it; 0
    /// without one.
    pub has: Capacity,
    /// Seconds until that lease ends; 0 without one.
    pub expires_in: Seconds,
    /// The capacity of an older, larger lease, which covers what holders have not returned yet;
    /// absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub older: Option<Capacity>,
    /// Why the lease is not renewed: `parent unreachable for 12 s`; absent while it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// A page of the holders of a resource, in a stable order unless it is sorted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct LeasePage {
    /// The holders; a page may be empty although more follow.
    pub leases: Vec<HolderView>,
    /// The number of holders that the whole list has; only with `sort`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// The `cursor` of the next page; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// A page of the leases of one client, over all resources, in a stable order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ClientLeasePage {
    /// The leases; a page may be empty although more follow.
    pub leases: Vec<ClientLease>,
    /// The `cursor` of the next page; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// A lease of a client, and its resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ClientLease {
    /// The resource.
    pub resource: ResourceView,
    /// The client as its holder.
    pub lease: HolderView,
}

/// The kind of a holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum HolderKind {
    /// A process that uses its lease.
    Client,
    /// A node of the server tree that leases to its clients.
    Node,
}

/// Why a holder has less than it wants.
///
/// The `reason` of a response is `pending` for `learning` and `others`. A holder rejected as `full`
/// is not listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum HeldBackBy {
    /// It has its share.
    Share,
    /// It has its share, which is smaller because of the demand of higher priorities.
    HigherPriorities,
    /// Other holders still have a part of its share.
    Others,
    /// The server is in learning mode.
    Learning,
    /// The capacity is 0.
    Blocked,
    /// It would get more at its next refresh.
    NotRefreshed,
    /// The shared bucket is empty.
    Balance,
    /// All holders suppress a part of their requests.
    Suppressed,
    /// The server waits for its data directory before it grants a longer lease.
    Bound,
    /// The node has no lease from its parent.
    Parent,
}

/// A holder of a resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct HolderView {
    /// The client, or the node.
    pub client_id: String,
    /// The run of the client's process; absent for a node, and if the client states none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Run>,
    /// Whether another run of the same client has a lease of some resource, or asks for one: two
    /// processes use this `client_id`, or one was restarted and its last lease has not ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub duplicate_client: bool,
    /// The kind of the holder.
    #[serde(deserialize_with = "deserialize_kind")]
    pub kind: HolderKind,
    /// The number of clients of a node, with those of the nodes below it; absent for a client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clients: Option<u64>,
    /// The base URL of a node's master, as the node states it, unverified; absent for a client, and
    /// if the node states none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The highest priority of its demand.
    pub priority: i32,
    /// The demand, over all priorities.
    pub wants: Capacity,
    /// The share by the current demands: its part of a divided capacity, else the limit of each
    /// holder or its demand.
    pub share: Capacity,
    /// The capacity of its unexpired lease.
    pub has: Capacity,
    /// Why it has less than it wants; absent if it does not.
    #[serde(
        default,
        deserialize_with = "deserialize_known",
        skip_serializing_if = "Option::is_none"
    )]
    pub held_back_by: Option<HeldBackBy>,
    /// The explanation in a sentence, with numbers.
    pub why: String,
    /// The booking: the most that it may be using now, by this lease or an older, larger one.
    pub booked: f64,
    /// The reported capacity that it cannot release immediately.
    pub outstanding: Capacity,
    /// The reported total cost; null if it never reported.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub used: Option<Capacity>,
    /// The reported outcomes of its requests, in total; null if it never reported any.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub outcomes: Option<Outcomes>,
    /// Seconds for which each of its reports has told of requests that it did not admit; absent if
    /// the last one told of none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused_for: Option<Seconds>,
    /// Since when, in Unix seconds, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused_since: Option<u64>,
    /// The part that the target refused for its load, of the requests in the last report with any;
    /// absent if it never reported any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overloaded_share: Option<Probability>,
    /// Whether the target refuses much more of it than of the others (`feedback`): its demand
    /// counts as about what the target accepts of it, and its outcomes move no capacity.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suffers_alone: bool,
    /// Seconds since its last decided request; absent if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refreshed_ago: Option<Seconds>,
    /// Seconds until its last booking expires.
    pub expires_in: Seconds,
    /// That time in Unix seconds, for people.
    pub expiry_time: u64,
    /// The demand by priority, the highest first; absent for a client with one priority.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bands: Vec<Band>,
}

/// A kind of a later release is shown as a client.
fn deserialize_kind<'de, D: Deserializer<'de>>(deserializer: D) -> Result<HolderKind, D::Error> {
    Ok(deserialize_known(deserializer)?.unwrap_or(HolderKind::Client))
}

impl ResourceView {
    /// The number by which the resource is sorted; of a rate, per second.
    #[must_use]
    pub fn amount(&self, sort: SortBy) -> f64 {
        match sort {
            SortBy::Wants => self.sum_wants / self.period(),
            SortBy::Has => self.sum_has / self.period(),
            SortBy::Clients => self.clients as f64,
            SortBy::Unmet => self.unmet / self.period(),
            SortBy::Refused => self.outcomes.map_or(0.0, |it| it.per_second.refused),
            SortBy::Overloaded => self.outcomes.map_or(0.0, |it| it.per_second.overloaded),
            SortBy::HeldBack => self.held_back(),
        }
    }

    /// The same view with the times of day.
    #[must_use]
    pub fn dated(self, unix_now: u64) -> Self {
        let since = |seconds: Seconds| unix_now.saturating_sub(seconds.get() as u64);
        Self {
            unmet_since: self.unmet_for.map(since),
            feedback: self.feedback.map(|feedback| feedback.dated(unix_now)),
            ..self
        }
    }

    /// The part of the capacity that feedback holds back.
    fn held_back(&self) -> f64 {
        match (self.effective, self.capacity) {
            (Some(effective), Some(capacity)) if capacity > Capacity::ZERO => {
                (1.0 - effective.get() / capacity.get()).max(0.0)
            }
            _ => 0.0,
        }
    }

    /// The seconds that all amounts are per; 1 unless it is a rate.
    #[must_use]
    pub fn period(&self) -> f64 {
        match (self.unit, self.per) {
            (Some(Unit::Rate), Some(per)) => per.get(),
            _ => 1.0,
        }
    }
}

impl HolderView {
    /// The number by which the holder is sorted.
    #[must_use]
    pub fn amount(&self, sort: SortBy) -> f64 {
        match sort {
            SortBy::Wants => self.wants.get(),
            SortBy::Has => self.has.get(),
            SortBy::Clients => self.clients.unwrap_or(1) as f64,
            SortBy::Unmet => (self.wants.get() - self.has.get()).max(0.0),
            SortBy::Refused => self.outcomes.map_or(0.0, |it| it.refused.get()),
            SortBy::Overloaded => self.outcomes.map_or(0.0, |it| it.overloaded.get() as f64),
            SortBy::HeldBack => f64::from(u8::from(self.suffers_alone)),
        }
    }
}

/// The status of a server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Status {
    /// This server.
    pub server_id: ServerId,
    /// Its node.
    pub node: NodeId,
    /// Its level in the server tree: 0 is the root.
    pub level: u32,
    /// Whether it is the master of its node.
    pub is_master: bool,
    /// The epoch of the node's master; at a server that is not master, the last one that it knows
    /// to have begun, and 0 if it knows none.
    pub epoch: Epoch,
    /// The base URL of the master; null if unknown.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub master: Option<String>,
    /// Seconds for which the server could not read the election, so that the master may be another
    /// one unless it is this server; absent while it can, and without an election.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub election_unread_for: Option<Seconds>,
    /// The servers of the parent node; empty at the root.
    pub parents: Vec<String>,
    /// The parent node as this server sees it; absent at the root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<ParentStatus>,
    /// The uptime, in seconds.
    pub uptime: Seconds,
    /// The version of the program.
    pub version: String,
    /// The configuration source, such as `file:limits.yaml`, or `built-in`.
    pub config_source: String,
    /// The version of the active document.
    pub config_version: String,
    /// Why the active document is not that of the source, or why the source cannot be changed, one
    /// line per error; absent if neither applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_error: Option<String>,
    /// The warnings of the active document: valid content that is probably a mistake or a risk. At
    /// most 100; absent if there is none, and for a restricted token.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub config_warnings: Vec<String>,
    /// The number of live resources; absent for a restricted token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<usize>,
    /// The number of leases; absent for a restricted token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leases: Option<usize>,
    /// Seconds until learning mode ends for the last resource; absent outside it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learning_ends_in: Option<Seconds>,
    /// The number of live resources in learning mode; absent outside it, and for a restricted
    /// token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources_learning: Option<usize>,
    /// The number of resources whose demand has been unmet for at least a minute; absent for a
    /// restricted token, and at a server that is not master.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources_unmet: Option<usize>,
    /// Since when the demand for the first of them is unmet, in Unix seconds, for people; absent if
    /// there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unmet_since: Option<u64>,
    /// The maximum number of leases; beyond it new holders get nothing (`full`).
    pub max_leases: usize,
}

/// A parent node as its child sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ParentStatus {
    /// The parent node; absent before its first successful response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeId>,
    /// The epoch of its master; absent before its first successful response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<Epoch>,
    /// Seconds since its last successful response to this server; absent before the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_ago: Option<Seconds>,
    /// Seconds until the last lease from it ends, unless it is renewed; absent without a lease, and
    /// at a server that is not master.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leases_end_in: Option<Seconds>,
    /// Why leases are not renewed: `parent unreachable for 12 s`, or what the parent reports of
    /// its own parent; absent while they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Why the last request for leases or rules failed; absent after a success, and for a
    /// restricted token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_of_a_later_release_void_no_view() {
        let resource = json!({"resource_id": "db", "capacity": 10, "unit": "burst", "per": 1,
            "sum_has": 4, "sum_wants": 4, "clients": 1, "in_learning_mode": false,
            "template": "db", "algorithm": "LOTTERY", "lease_length": 60, "refresh_interval": 5,
            "safe_capacity": 1});
        let resource: ResourceView = serde_json::from_value(resource).unwrap();
        assert_eq!((resource.algorithm, resource.unit), (None, None));
        let lease = json!({"client_id": "c", "kind": "shard", "priority": 0, "wants": 4,
            "share": 4, "has": 4, "held_back_by": "weather", "why": "it rains", "booked": 4,
            "outstanding": 0, "used": null, "expires_in": 60, "expiry_time": 1});
        let lease: HolderView = serde_json::from_value(lease).unwrap();
        assert_eq!((lease.kind, lease.held_back_by), (HolderKind::Client, None));
        assert_eq!(lease.why, "it rains");
    }
}
