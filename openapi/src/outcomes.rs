//! Outcomes of a holder's requests to the target of a resource.

use serde::{Deserialize, Deserializer, Serialize, de};

use crate::{Capacity, RequestCount, Seconds};

/// The longest [`pause`](crate::ResourceRequest::pause), in seconds.
pub const MAX_PAUSE: Seconds = Seconds::from_whole(3600);

/// The longest time until a target's own limit is whole again, in seconds.
const MAX_RESET: f64 = 86_400.0;

/// The outcomes of a holder's requests: running totals since its first request for the resource,
/// not deltas. Requests under way, canceled ones and unclassified ones have none.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Outcomes {
    /// The cost of requests that the holder did not admit.
    #[serde(default)]
    pub refused: Capacity,
    /// Requests that the target served.
    #[serde(default)]
    pub ok: RequestCount,
    /// Requests that the target refused for its load.
    #[serde(default)]
    pub overloaded: RequestCount,
    /// Requests that failed for another reason.
    #[serde(default)]
    pub failed: RequestCount,
    /// Units times the seconds from admission to the end, summed over `ok` requests. Gauges only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ok_seconds: Option<Capacity>,
}

/// The target's own limit, by its last response that told it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Seen {
    /// The amount left, in the unit of the resource.
    pub remaining: Capacity,
    /// The seconds until it is whole again, from when the request was sent: above 0, at most a day.
    #[serde(deserialize_with = "deserialize_reset")]
    #[cfg_attr(feature = "schema", schema(value_type = f64, exclusive_minimum = 0.0, maximum = 86_400))]
    pub reset: Seconds,
}

impl Seen {
    /// Returns `None` unless `reset` is above 0 and at most a day.
    #[must_use]
    pub fn new(remaining: Capacity, reset: Seconds) -> Option<Self> {
        is_reset(reset).then_some(Self { remaining, reset })
    }
}

fn is_reset(seconds: Seconds) -> bool {
    seconds > Seconds::ZERO && seconds.get() <= MAX_RESET
}

fn deserialize_reset<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Seconds, D::Error> {
    let reset = Seconds::new(f64::deserialize(deserializer)?).ok();
    let reset = reset.filter(|it| is_reset(*it));
    reset.ok_or_else(|| de::Error::custom("must be a number of seconds above 0, up to 86400"))
}

/// Deserializes a pause: up to an hour.
pub(crate) fn deserialize_pause<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Seconds>, D::Error> {
    let pause = Seconds::new(f64::deserialize(deserializer)?).ok();
    let pause = pause.filter(|it| *it <= MAX_PAUSE);
    let out_of_range = || de::Error::custom("must be a number of seconds from 0 to 3600");
    pause.map(Some).ok_or_else(out_of_range)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::CapacityRequest;

    fn read(field: &str, value: &serde_json::Value) -> Result<CapacityRequest, String> {
        let mut request = json!({"client_id": "c", "resources": [{"resource_id": "db",
            "wants": 5}]});
        request["resources"][0][field] = value.clone();
        serde_json::from_value(request).map_err(|error| error.to_string())
    }

    #[test]
    fn outcomes_out_of_range_are_rejected() {
        let valid = read(
            "outcomes",
            &json!({"refused": 1.5, "ok": 9_007_199_254_740_991_u64}),
        );
        let resources = valid.expect("it is valid").resources;
        let outcomes = resources[0].outcomes.as_ref().expect("it is there");
        assert_eq!(
            (outcomes.refused.get(), outcomes.overloaded.get()),
            (1.5, 0)
        );
        for (field, value, error) in [
            (
                "outcomes",
                json!({"refused": -1}),
                "a number from 0 to 1e15",
            ),
            ("outcomes", json!({"ok": 1.5}), "a whole number"),
            (
                "outcomes",
                json!({"failed": -1}),
                "must be a whole number from 0 on",
            ),
            (
                "outcomes",
                json!({"ok": 9_007_199_254_740_992_u64}),
                "from 0 to 9007199254740991",
            ),
            ("pause", json!(3600.5), "from 0 to 3600"),
            ("pause", json!(-1), "from 0 to 3600"),
            (
                "seen",
                json!({"remaining": -1, "reset": 1}),
                "from 0 to 1e15",
            ),
            (
                "seen",
                json!({"remaining": 1, "reset": 0}),
                "above 0, up to 86400",
            ),
            (
                "seen",
                json!({"remaining": 1, "reset": 86_401}),
                "above 0, up to 86400",
            ),
            ("seen", json!({"remaining": 1}), "missing field `reset`"),
        ] {
            let message = read(field, &value).expect_err("it is invalid");
            assert!(message.contains(error), "{field}: {value}: {message}");
        }
    }
}
