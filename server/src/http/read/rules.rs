//! What the bodies of the lease calls may be: the tables for the walk, and the rules that no type can hold.

use std::{
    collections::{HashMap, HashSet, hash_map::Entry},
    hash::Hash,
};

use doorman_openapi::{
    Band, Capacity, CapacityRequest, ClientCount, ClientId, Epoch, MAX_RESOURCES, NodeId,
    ReleaseRequest, ResourceId, Seq, ServerCapacityRequest, ServerReleaseRequest,
    deserialize_priority,
};
use foldhash::fast::RandomState;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    Body, exactly,
    fault::{Faults, Place},
    walk::{Field, Scalar, array, object, scalar},
};

const ID: &str = "must be a text of 1 to 256 bytes of UTF-8 without control characters";

/// A priority, which has no type of its own elsewhere: every number of its kind is one.
#[derive(Deserialize)]
struct Priority(
    #[serde(deserialize_with = "deserialize_priority")]
    #[expect(dead_code, reason = "read only to see whether it can be")]
    i32,
);

macro_rules! scalars {
    ($($type:ty: $rule:expr;)+) => { $(impl Scalar for $type { const RULE: &'static str = $rule; })+ };
}

scalars! {
    ClientId: ID;
    NodeId: ID;
    ResourceId: ID;
    Capacity: "must be a number from 0 to 1e15";
    Seq: "must be an integer from 0 to 9007199254740991";
    Epoch: "must be an integer from 0 to 9007199254740991";
    ClientCount: "must be an integer from 1 to 1e15";
    Priority: "must be an integer from -2147483648 to 2147483647";
}

impl Body for CapacityRequest {
    const FIELDS: &'static [Field] = &[
        Field::required("client_id", scalar::<ClientId>),
        Field::optional("seq", scalar::<Seq>),
        Field::required("resources", |value, place, faults| {
            resources(value, RESOURCE_REQUEST, place, faults);
        }),
    ];

    fn keeps_the_rules(&self) -> bool {
        all_fit(self.resources.iter().map(|asked| &asked.resource_id))
    }
}

impl Body for ServerCapacityRequest {
    const FIELDS: &'static [Field] = &[
        Field::required("node_id", scalar::<NodeId>),
        Field::optional("epoch", scalar::<Epoch>),
        Field::optional("seq", scalar::<Seq>),
        Field::required("resources", |value, place, faults| {
            resources(value, SERVER_RESOURCE_REQUEST, place, faults);
        }),
    ];

    fn keeps_the_rules(&self) -> bool {
        all_fit(self.resources.iter().map(|asked| &asked.resource_id))
            && self.resources.iter().all(|asked| {
                !asked.wants.is_empty()
                    && sums_up(&asked.wants)
                    && !has_repeated(asked.wants.iter().map(|band| band.priority))
            })
    }
}

impl Body for ReleaseRequest {
    const FIELDS: &'static [Field] = &[
        Field::required("client_id", scalar::<ClientId>),
        Field::optional("seq", scalar::<Seq>),
        Field::optional("resource_ids", resource_ids),
    ];

    fn keeps_the_rules(&self) -> bool {
        all_fit(self.resource_ids.as_deref().unwrap_or_default().iter())
    }
}

impl Body for ServerReleaseRequest {
    const FIELDS: &'static [Field] = &[
        Field::required("node_id", scalar::<NodeId>),
        Field::optional("epoch", scalar::<Epoch>),
        Field::optional("seq", scalar::<Seq>),
        Field::optional("resource_ids", resource_ids),
    ];

    fn keeps_the_rules(&self) -> bool {
        all_fit(self.resource_ids.as_deref().unwrap_or_default().iter())
    }
}

const RESOURCE_REQUEST: &[Field] = &[
    Field::required("resource_id", scalar::<ResourceId>),
    Field::required("wants", scalar::<Capacity>),
    Field::optional("priority", scalar::<Priority>),
    HAS,
    OUTSTANDING,
    USED,
];

const SERVER_RESOURCE_REQUEST: &[Field] = &[
    Field::required("resource_id", scalar::<ResourceId>),
    Field::required("wants", bands),
    HAS,
    OUTSTANDING,
    USED,
];

const HAS: Field = Field::optional("has", |value, place, faults| {
    object(value, HELD, place, faults);
});
const HELD: &[Field] = &[Field::required("capacity", scalar::<Capacity>)];
const OUTSTANDING: Field = Field::optional("outstanding", scalar::<Capacity>);
const USED: Field = Field::optional("used", scalar::<Capacity>);

const BAND: &[Field] = &[
    Field::required("priority", scalar::<Priority>),
    Field::required("num_clients", scalar::<ClientCount>),
    Field::required("wants", scalar::<Capacity>),
];

/// The resources of a request: objects with these fields, each resource once.
fn resources(value: &RawValue, fields: &[Field], place: Place<'_>, faults: &mut Faults) {
    #[derive(Deserialize)]
    struct Named {
        resource_id: ResourceId,
    }

    let mut seen = Seen::default();
    array(
        value,
        MAX_RESOURCES,
        place,
        faults,
        |index, asked, faults| {
            let place = place.element(index);
            object(asked, fields, place, faults);
            if let Ok(Named { resource_id }) = exactly(asked.get()) {
                seen.once(resource_id, index, place.member("resource_id"), faults);
            }
        },
    );
}

/// The resources of a release, each once.
fn resource_ids(value: &RawValue, place: Place<'_>, faults: &mut Faults) {
    let mut seen: Seen<ResourceId> = Seen::default();
    array(value, MAX_RESOURCES, place, faults, |index, id, faults| {
        let place = place.element(index);
        scalar::<ResourceId>(id, place, faults);
        if let Ok(id) = exactly::<ResourceId>(id.get()) {
            seen.once(id, index, place, faults);
        }
    });
}

/// The demand of a node: at least one band, each priority once, together no more than can be spoken of.
fn bands(value: &RawValue, place: Place<'_>, faults: &mut Faults) {
    let mut seen = Seen::default();
    let mut sound = Vec::new();
    let mut count = 0;
    array(value, usize::MAX, place, faults, |index, band, faults| {
        let place = place.element(index);
        object(band, BAND, place, faults);
        if let Ok(band) = exactly::<Band>(band.get()) {
            seen.once(band.priority, index, place.member("priority"), faults);
            sound.push(band);
        }
        count = index.saturating_add(1);
    });
    if count == 0 && value.get().starts_with('[') {
        faults.add(place, "must have at least one element");
    }
    if !sums_up(&sound) {
        faults.add(place, "must want no more than 1e15 together");
    }
}

fn sums_up(bands: &[Band]) -> bool {
    bands.iter().map(|band| band.wants.get()).sum::<f64>() <= Capacity::MAX.get()
}

/// Whether these are no more resources than a request may carry, and none of them twice.
fn all_fit<'a>(ids: impl ExactSizeIterator<Item = &'a ResourceId>) -> bool {
    ids.len() <= MAX_RESOURCES && !has_repeated(ids)
}

/// Whether something stands here twice.
fn has_repeated<T: Eq + Hash>(mut things: impl ExactSizeIterator<Item = T>) -> bool {
    // The usual request has one.
    if things.len() <= 1 {
        return false;
    }
    let mut seen = HashSet::with_capacity_and_hasher(things.len(), RandomState::default());
    !things.all(|thing| seen.insert(thing))
}

/// What stood before, and where.
struct Seen<T>(HashMap<T, usize, RandomState>);

impl<T> Default for Seen<T> {
    fn default() -> Self {
        Self(HashMap::default())
    }
}

impl<T: Eq + Hash> Seen<T> {
    /// Adds a fault unless the thing stands here for the first time.
    fn once(&mut self, thing: T, index: usize, place: Place<'_>, faults: &mut Faults) {
        match self.0.entry(thing) {
            Entry::Vacant(vacant) => {
                vacant.insert(index);
            }
            Entry::Occupied(first) => {
                faults.add(
                    place,
                    format!(
                        "must stand only once, but element {} has it already",
                        first.get()
                    ),
                );
            }
        }
    }
}
