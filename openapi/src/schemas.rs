//! Schemas that `derive(ToSchema)` cannot express.

use utoipa::{
    PartialSchema, ToSchema,
    openapi::{
        Array, ArrayBuilder, ObjectBuilder, OneOfBuilder, RefOr, Type,
        schema::{AdditionalProperties, AnyOfBuilder, Object, Schema},
    },
};

use crate::{Capacity, OnLimit, ProblemType, Seconds};

/// A token of RFC 9110 without lower case.
const METHOD: &str = "^[!#$%&'*+.^_`|~0-9A-Z-]+$";

/// Numbers from 0 to 1e15 as text, without exponents.
const NUMBER: &str = r"^[0-9]{1,15}(\.[0-9]{1,15})?$";

pub(crate) fn methods() -> Array {
    let method = ObjectBuilder::new()
        .schema_type(Type::String)
        .pattern(Some(METHOD))
        .examples(["GET"]);
    ArrayBuilder::new()
        .description(Some(
            "The methods, in upper case. Default: any. `GET` includes `HEAD`.",
        ))
        .items(method)
        .unique_items(true)
        .min_items(Some(1))
        .build()
}

pub(crate) fn safe_capacity() -> Schema {
    let unlimited = ObjectBuilder::new()
        .schema_type(Type::Number)
        .enum_values(Some([-1.0]));
    let at_most = ObjectBuilder::new()
        .schema_type(Type::Number)
        .minimum(Some(0))
        .maximum(Some(Capacity::MAX.get()));
    let either = AnyOfBuilder::new()
        .description(Some(
            "The capacity that a holder may use without a lease: -1 is unlimited, 0 is none. Default: the capacity divided by the number of clients.",
        ))
        .item(unlimited)
        .item(at_most)
        .build();
    Schema::AnyOf(either)
}

pub(crate) fn parameter_name() -> Object {
    ObjectBuilder::new()
        .schema_type(Type::String)
        .description(Some("The name."))
        .enum_values(Some(["surplus", "granularity", "floor", "decay_factor"]))
        .build()
}

pub(crate) fn parameter_value() -> Schema {
    let text = ObjectBuilder::new()
        .schema_type(Type::String)
        .pattern(Some(NUMBER))
        .examples(["0.2"]);
    let number = ObjectBuilder::new()
        .schema_type(Type::Number)
        .minimum(Some(0))
        .maximum(Some(Capacity::MAX.get()));
    let either = AnyOfBuilder::new()
        .description(Some(
            "A number from 0 to 1e15, as text or as a number; returned as text.",
        ))
        .item(text)
        .item(number)
        .build();
    Schema::AnyOf(either)
}

/// Unlike the derived schema, closed: the parser rejects a field of another action.
impl PartialSchema for OnLimit {
    fn schema() -> RefOr<Schema> {
        let action = |name: &str, description: &str| {
            let action = ObjectBuilder::new()
                .schema_type(Type::String)
                .enum_values(Some([name]));
            ObjectBuilder::new()
                .description(Some(description))
                .property("action", action)
                .required("action")
                .additional_properties(Some(AdditionalProperties::FreeForm(false)))
        };
        let max_delay = ObjectBuilder::new()
            .schema_type(Type::Number)
            .description(Some("The longest delay, in seconds."))
            .minimum(Some(0.001))
            .maximum(Some(Seconds::MAX.get()));
        let delay = action("delay", "The request waits.")
            .property("max_delay", max_delay)
            .required("max_delay");
        OneOfBuilder::new()
            .description(Some("What happens to a request beyond the limit."))
            .item(action("reject", "The request is rejected."))
            .item(delay)
            .item(action("shadow", "The request passes and is counted."))
            .item(action(
                "exempt",
                "The request passes at no cost, and later rules do not apply to it.",
            ))
            .into()
    }
}

impl ToSchema for OnLimit {}

impl PartialSchema for ProblemType {
    fn schema() -> RefOr<Schema> {
        let names = Self::ALL.iter().map(|kind| kind.name());
        let schema: Object = ObjectBuilder::new()
            .schema_type(Type::String)
            .description(Some(problem_types()))
            .enum_values(Some(names))
            .build();
        schema.into()
    }
}

impl ToSchema for ProblemType {}

fn problem_types() -> String {
    let rows = ProblemType::ALL.iter().map(|kind| {
        let (name, status, title) = (kind.name(), kind.status(), kind.title());
        format!("| `{name}` | {status} | {title} |\n")
    });
    format!(
        "The problem types.\n\n| type | status | |\n|---|---|---|\n{}",
        rows.collect::<String>()
    )
}
