//! Schemas that say more than the derives can.

use utoipa::{
    PartialSchema, ToSchema,
    openapi::{
        Array, ArrayBuilder, ObjectBuilder, OneOfBuilder, RefOr, Type,
        schema::{AdditionalProperties, AnyOfBuilder, Object, Schema},
    },
};

use crate::{Capacity, OnLimit, ProblemType, Seconds};

/// A method as RFC 9110 has it, a token, without lower case.
const METHOD: &str = "^[!#$%&'*+.^_`|~0-9A-Z-]+$";

/// Numbers from 0 to 1e15, as text; those that need more digits, or exponents, can be written as numbers.
const NUMBER: &str = r"^[0-9]{1,15}(\.[0-9]{1,15})?$";

/// The methods of a rule.
pub(crate) fn methods() -> Array {
    let method = ObjectBuilder::new()
        .schema_type(Type::String)
        .pattern(Some(METHOD))
        .examples(["GET"]);
    ArrayBuilder::new()
        .description(Some(
            "The methods that it is for, in upper case; absent: any. `GET` means `HEAD`, too, as servers answer it by the same handler.",
        ))
        .items(method)
        .unique_items(true)
        .min_items(Some(1))
        .build()
}

/// The safe capacity of a template.
pub(crate) fn safe_capacity() -> Schema {
    let unlimited = ObjectBuilder::new()
        .schema_type(Type::Number)
        .enum_values(Some([-1.0]));
    let so_much = ObjectBuilder::new()
        .schema_type(Type::Number)
        .minimum(Some(0))
        .maximum(Some(Capacity::MAX.get()));
    let either = AnyOfBuilder::new()
        .description(Some(
            "What a holder without a lease may use: -1 is unlimited, 0 nothing; absent: the capacity divided by the number of clients.",
        ))
        .item(unlimited)
        .item(so_much)
        .build();
    Schema::AnyOf(either)
}

/// The name of a parameter of an algorithm.
pub(crate) fn parameter_name() -> Object {
    ObjectBuilder::new()
        .schema_type(Type::String)
        .description(Some("Its name."))
        .enum_values(Some(["surplus", "granularity"]))
        .build()
}

/// The value of a parameter of an algorithm.
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
            "Its value: a number from 0 to 1e15, as text; a plain number is taken, too, and answered as text.",
        ))
        .item(text)
        .item(number)
        .build();
    Schema::AnyOf(either)
}

/// What the derive would make of it, but closed: a reader refuses what belongs to another action.
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
            .description(Some("How long at most, in seconds."))
            .minimum(Some(0.001))
            .maximum(Some(Seconds::MAX.get()));
        let delay = action("delay", "It waits for its turn.")
            .property("max_delay", max_delay)
            .required("max_delay");
        OneOfBuilder::new()
            .description(Some("What becomes of a request for which nothing is left."))
            .item(action("reject", "It is refused at once."))
            .item(delay)
            .item(action("shadow", "It is counted, and passes."))
            .item(action(
                "exempt",
                "It passes, and nothing is spent: what stands behind this rule does not apply to it.",
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
            .description(Some("The kinds of problem: a stable name each."))
            .enum_values(Some(names))
            .build();
        schema.into()
    }
}

impl ToSchema for ProblemType {}
