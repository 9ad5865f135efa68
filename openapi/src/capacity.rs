//! `POST /v1/capacity` and its release: leases of clients.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

use crate::{
    Balance, Capacity, ClientId, Epoch, HeldLease, Lease, NodeId, Outcomes, Probability,
    ResourceId, Run, SafeCapacity, Seconds, Seen, Seq, Unit,
    algorithm::{deserialize_known_unit, deserialize_unit},
    deserialize_priority,
    number::{deserialize_burst, deserialize_period},
    outcomes::deserialize_pause,
};

/// Requests leases of several resources. Unknown fields are ignored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct CapacityRequest {
    /// The client.
    pub client_id: ClientId,
    /// The run of the client's process. Another run of the same client is another holder, with
    /// leases of its own. Without it all processes that use a `client_id` are one holder, which is
    /// safe only for a single process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Run>,
    /// The sequence number of this transmission. A client without one must have at most one request
    /// in flight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<Seq>,
    /// The highest epoch of this node in a response to a lease request of the client. Absent before
    /// the first one. Other responses, such as hints and discovery, do not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heard_epoch: Option<Epoch>,
    /// Whether the client has a poll for hints under way. A client without leases then counts as
    /// polling before its poll arrives. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub polls: bool,
    /// Clients known to be dead, such as the last process of the same pod; at most 8. Their
    /// leases on the requested resources end when they have no open poll and have been silent, by
    /// default for 8 s after a poll and for 13 s after a lease request. The request needs
    /// `heard_epoch` and a new `seq`. All processes of a pod may give the same name, which need not
    /// be the id of a client: a client also replaces older ones that gave this name. Its own
    /// `client_id` names the older runs of the client.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schema(max_items = 8))]
    pub replaces: Vec<ClientId>,
    /// The resources, each at most once; at most 10,000.
    #[cfg_attr(feature = "schema", schema(max_items = 10000))]
    pub resources: Vec<ResourceRequest>,
}

/// The request of a client for one resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ResourceRequest {
    /// The resource.
    pub resource_id: ResourceId,
    /// The demand, in the unit of the resource.
    pub wants: Capacity,
    /// The priority for PRIORITY_SHARE; larger is more important. Default: 0. With `bands`:
    /// absent, or the highest of them.
    #[serde(
        default,
        deserialize_with = "deserialize_some_priority",
        skip_serializing_if = "Option::is_none"
    )]
    pub priority: Option<i32>,
    /// The demand by priority, if there are several. `wants` is the sum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(min_items = 1, max_items = 32))]
    pub bands: Option<Vec<ClientBand>>,
    /// The current lease; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub has: Option<HeldLease>,
    /// The capacity in use that cannot be released immediately.
    #[serde(default, skip_serializing_if = "is_default")]
    pub outstanding: Capacity,
    /// The total cost admitted since the first request for this resource: a running total, not a
    /// delta.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<Capacity>,
    /// The outcomes of the admitted requests, and the cost of those refused. Absent: not known, and
    /// the server shows it so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcomes: Option<Box<Outcomes>>,
    /// The seconds that the target asks to wait, from when the request was sent, by the latest
    /// `Retry-After` of an overloaded response; at most 3,600. Absent: none.
    #[serde(
        default,
        deserialize_with = "deserialize_pause",
        skip_serializing_if = "Option::is_none"
    )]
    #[cfg_attr(feature = "schema", schema(value_type = Option<f64>, minimum = 0.0, maximum = 3_600))]
    pub pause: Option<Seconds>,
    /// The target's own limit, as it last told. Absent: nothing new.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<Box<Seen>>,
    /// The unit of all amounts of this entry but `used` and `outcomes`, as in the last response.
    /// Leave it out where that has null, which is invalid here. Default: a rate if `per` is given;
    /// else the unit that the server last told the holder for this resource or, if it does not know
    /// the holder, that of its predecessor or its own.
    #[serde(
        default,
        deserialize_with = "deserialize_unit",
        skip_serializing_if = "Option::is_none"
    )]
    pub unit: Option<Unit>,
    /// The unit in which the client limits the resource, if that is not the unit of the last
    /// response: the client can use nothing of it. The server logs that.
    #[serde(
        default,
        deserialize_with = "deserialize_known_unit",
        skip_serializing_if = "Option::is_none"
    )]
    pub limited_as: Option<Unit>,
    /// The period of a rate, in seconds. Leave it out where the last response has null. Default: 1
    /// if `unit` is given.
    #[serde(
        default,
        deserialize_with = "deserialize_period",
        skip_serializing_if = "Option::is_none"
    )]
    #[cfg_attr(feature = "schema", schema(value_type = Option<f64>, minimum = 0.001, maximum = 31_536_000))]
    pub per: Option<Seconds>,
    /// The client's token bucket on this resource, if it saves up for more than ten seconds, or a
    /// token takes that long at the whole capacity, or that is unknown. The
    /// server keeps what is spent of it when the lease shrinks or ends, and answers with `tokens`
    /// when it grows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bucket: Option<Bucket>,
}

/// The token bucket of a client on one resource.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Bucket {
    /// The seconds of its rate that it can hold; at most a day.
    #[serde(deserialize_with = "deserialize_burst")]
    #[cfg_attr(feature = "schema", schema(value_type = f64, minimum = 0.0, maximum = 86_400))]
    pub burst: Seconds,
    /// The tokens in it, negative after overuse; absent before the first rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<Balance>,
}

/// The demand of a client at one priority.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ClientBand {
    /// The priority for PRIORITY_SHARE, which no other entry has; larger is more important.
    #[serde(deserialize_with = "deserialize_priority")]
    pub priority: i32,
    /// The demand at this priority.
    pub wants: Capacity,
}

/// The response to a client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct CapacityResponse {
    /// The node of the server.
    pub node: NodeId,
    /// The epoch of its master. Discard a response with a lower epoch from the same node.
    pub epoch: Epoch,
    /// A problem of the server, for people: `parent unreachable for 12 s`. Absent if nothing
    /// is, and if the holder has all that it wants.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// One entry per resource, in the order of the request.
    pub resources: Vec<ResourceResponse>,
}

/// The lease and the terms of one resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ResourceResponse {
    /// The resource.
    pub resource_id: ResourceId,
    /// The lease.
    pub gets: Lease,
    /// The reason for the capacity.
    pub reason: Reason,
    /// The `identifier_glob` of the matching template; null if there is none.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub template: Option<String>,
    /// The capacity of the template; null without a template.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub limit: Option<Capacity>,
    /// The unit; null without a template.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub unit: Option<Unit>,
    /// The period of a rate, in seconds; null without a template.
    #[cfg_attr(feature = "schema", schema(required = true, value_type = Option<f64>, minimum = 0.001, maximum = 31_536_000))]
    pub per: Option<Seconds>,
    /// The capacity that the holder may use without a lease; −1 is unlimited.
    #[cfg_attr(feature = "schema", schema(value_type = f64, minimum = -1.0, maximum = 1e15, example = 2.0))]
    pub safe_capacity: SafeCapacity,
    /// The probability with which the holder admits each request; SUPPRESSION only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admission_probability: Option<Probability>,
    /// The tokens left in the shared bucket, by the reports of all holders; negative after overuse.
    /// SHARED_BUCKET only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub balance: Option<Balance>,
    /// The tokens to add to the client's bucket for a lease that is new or has grown, in place of a
    /// full bucket for the first one; negative if it has more than is left. Only after a request
    /// with `bucket`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<Balance>,
    /// Whether to report overloaded outcomes early: within 0.1 s of the first one since the last
    /// request, then every 0.5 s until a request had no new one.
    #[serde(default, skip_serializing_if = "is_default")]
    pub report: bool,
}

/// The reason for the capacity of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// As wanted.
    Granted,
    /// More will follow: the server is in learning mode, or other holders still have the capacity.
    /// Nothing yet is a lease of 0, or in learning mode no lease (`lease_length` 0).
    Pending,
    /// The capacity is 0.
    Blocked,
    /// The server has reached its maximum number of leases, or the tenant that of its leases or
    /// clients.
    Full,
    /// Less than wanted: the holder's share. Read an unknown reason as this one.
    #[serde(other)]
    Share,
}

/// Releases leases of a client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ReleaseRequest {
    /// The client.
    pub client_id: ClientId,
    /// The run of the client's process, as in its requests: only leases of this run are released.
    /// Without it, but with `seq` or `tokens`: those of a client that states no run. Without all
    /// three: those of all runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Run>,
    /// The sequence number of this transmission, from the same counter as requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<Seq>,
    /// The highest epoch of this node in a response to a lease request of the client. Absent before
    /// the first one. Other responses, such as hints and discovery, do not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heard_epoch: Option<Epoch>,
    /// The resources. Default: all of the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(max_items = 10000))]
    pub resource_ids: Option<Vec<ResourceId>>,
    /// By resource, the tokens in the client's bucket, if its requests had a `bucket`. Default: as
    /// last reported, and refilled since.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tokens: BTreeMap<ResourceId, Balance>,
}

/// The result of a release, which is idempotent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ReleaseResponse {
    /// The number of leases that the holder had and that were released, including those of
    /// capacity 0.
    pub released: usize,
}

fn deserialize_some_priority<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<i32>, D::Error> {
    deserialize_priority(deserializer).map(Some)
}

pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn unknown_reason_is_a_share_and_voids_no_lease() {
        let gets = json!({"capacity": 5, "lease_length": 60, "refresh_interval": 5,
            "expiry_time": 1});
        let response = json!({"node": "a", "epoch": 1, "resources": [{"resource_id": "db",
            "gets": gets, "reason": "weather", "template": null, "limit": null, "unit": null,
            "per": null, "safe_capacity": -1}]});
        let response: CapacityResponse = serde_json::from_value(response).unwrap();
        let resource = &response.resources[0];
        assert_eq!(
            (resource.reason, resource.gets.capacity.get()),
            (Reason::Share, 5.0)
        );
        for (reason, name) in [(Reason::Share, "share"), (Reason::Granted, "granted")] {
            assert_eq!(serde_json::to_value(reason).unwrap(), name);
            assert_eq!(
                serde_json::from_value::<Reason>(json!(name)).unwrap(),
                reason
            );
        }
    }

    #[test]
    fn unit_of_a_later_release_voids_no_request() {
        let request = |limited_as| {
            json!({"client_id": "c", "resources": [
                {"resource_id": "db", "wants": 5, "limited_as": limited_as}]})
        };
        let read = serde_json::from_value::<CapacityRequest>;
        let known = read(request(json!("gauge"))).unwrap().resources[0].limited_as;
        assert_eq!(known, Some(Unit::Gauge));
        let unknown = read(request(json!("burst"))).unwrap().resources[0].limited_as;
        assert_eq!(unknown, None);
        read(request(json!(7))).unwrap_err();
    }
}
