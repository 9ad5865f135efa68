//! Shapes of bodies that no single type has, for the documentation: what is sent or answered is read and written elsewhere.

use std::{borrow::Cow, marker::PhantomData};

use doorman_openapi::{Document, DryRun, Rule, Template};
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{ObjectBuilder, OneOfBuilder, Ref, RefOr, Schema, Type},
};

// The macro that documents a call takes generics apart by itself, unless they have a name.
pub(super) type PutTemplate = Put<Template>;
pub(super) type PutRule = Put<Rule>;
pub(super) type DocumentOrDryRun = Either<Document, DryRun>;
pub(super) type TemplateOrDryRun = Either<Template, DryRun>;
pub(super) type RuleOrDryRun = Either<Rule, DryRun>;

/// How many elements a page may have: a whole number above 0 however large, as what is too large is lowered.
#[derive(Debug)]
pub(super) struct Limit;

impl PartialSchema for Limit {
    fn schema() -> RefOr<Schema> {
        let number = ObjectBuilder::new().schema_type(Type::Integer);
        number.minimum(Some(1)).into()
    }
}

impl ToSchema for Limit {}

/// What is put at a path: its name is that of the path, and need not be said again.
#[derive(Debug)]
pub(super) struct Put<T>(PhantomData<T>);

/// What has a name by which it is put.
pub(super) trait Entry: ToSchema {
    /// The field with the name.
    const NAME: &'static str;
}

impl Entry for Template {
    const NAME: &'static str = "identifier_glob";
}

impl Entry for Rule {
    const NAME: &'static str = "name";
}

impl<T: Entry> PartialSchema for Put<T> {
    fn schema() -> RefOr<Schema> {
        let mut schema = T::schema();
        if let RefOr::T(Schema::Object(object)) = &mut schema {
            object.required.retain(|field| field != T::NAME);
        }
        schema
    }
}

impl<T: Entry> ToSchema for Put<T> {
    fn name() -> Cow<'static, str> {
        format!("Put{}", T::name()).into()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        T::schemas(schemas);
    }
}

/// One or the other, as the request asks.
#[derive(Debug)]
pub(super) struct Either<A, B>(PhantomData<(A, B)>);

impl<A: ToSchema, B: ToSchema> PartialSchema for Either<A, B> {
    fn schema() -> RefOr<Schema> {
        OneOfBuilder::new()
            .item(Ref::from_schema_name(A::name()))
            .item(Ref::from_schema_name(B::name()))
            .into()
    }
}

impl<A: ToSchema, B: ToSchema> ToSchema for Either<A, B> {
    fn name() -> Cow<'static, str> {
        format!("{}Or{}", A::name(), B::name()).into()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        schemas.push((A::name().into(), A::schema()));
        schemas.push((B::name().into(), B::schema()));
        A::schemas(schemas);
        B::schemas(schemas);
    }
}
