//! Schemas of bodies and parameters that have no type of their own.

use std::{borrow::Cow, marker::PhantomData};

use doorman_openapi::{Deleted, Document, DryRun, Rule, Template, TemplateAlgorithm};
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{
        ObjectBuilder, OneOfBuilder, Ref, RefOr, Schema, Type,
        schema::{AnyOfBuilder, ArrayBuilder, Object},
    },
};

// utoipa's macro cannot handle generic types without an alias.
pub(in crate::http) type PutTemplate = PutBody<Template>;
pub(in crate::http) type PutRule = PutBody<Rule>;
pub(in crate::http) type PatchTemplate = PatchBody<Template>;
pub(in crate::http) type PatchRule = PatchBody<Rule>;
pub(in crate::http) type ChangedDocument = WithWarnings<Document>;
pub(in crate::http) type ChangedTemplate = WithWarnings<Template>;
pub(in crate::http) type ChangedRule = WithWarnings<Rule>;
pub(in crate::http) type DeletedOrDryRun = OneOf<Deleted, DryRun>;
pub(in crate::http) type DocumentOrDryRun = OneOf<ChangedDocument, DryRun>;
pub(in crate::http) type TemplateOrDryRun = OneOf<ChangedTemplate, DryRun>;
pub(in crate::http) type RuleOrDryRun = OneOf<ChangedRule, DryRun>;

/// A page size. There is no maximum: larger values are lowered.
#[derive(Debug)]
pub(in crate::http) struct Limit;

impl PartialSchema for Limit {
    fn schema() -> RefOr<Schema> {
        let number = ObjectBuilder::new().schema_type(Type::Integer);
        number.minimum(Some(1)).into()
    }
}

impl ToSchema for Limit {}

/// The number of a change of the document.
#[derive(Debug)]
pub(in crate::http) struct Revision;

impl Revision {
    /// The largest integer that every JSON parser reads exactly.
    pub(in crate::http) const MAX: u64 = (1 << 53) - 1;
}

impl PartialSchema for Revision {
    fn schema() -> RefOr<Schema> {
        let number = ObjectBuilder::new().schema_type(Type::Integer);
        number.minimum(Some(1)).maximum(Some(Self::MAX)).into()
    }
}

impl ToSchema for Revision {}

/// An entity whose name is in the path, and optional in the body.
#[derive(Debug)]
pub(in crate::http) struct PutBody<T>(PhantomData<T>);

/// An entity of the document.
pub(in crate::http) trait Entity: ToSchema {
    const NAME_FIELD: &'static str;
}

impl Entity for Template {
    const NAME_FIELD: &'static str = "identifier_glob";
}

impl Entity for Rule {
    const NAME_FIELD: &'static str = "name";
}

impl<T: Entity> PartialSchema for PutBody<T> {
    fn schema() -> RefOr<Schema> {
        edited::<T>(|object| object.required.retain(|field| field != T::NAME_FIELD))
    }
}

impl<T: Entity> ToSchema for PutBody<T> {
    fn name() -> Cow<'static, str> {
        format!("Put{}", T::name()).into()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        T::schemas(schemas);
    }
}

/// A JSON merge patch of an entity: no field is required, and `null` removes an optional one.
#[derive(Debug)]
pub(in crate::http) struct PatchBody<T>(PhantomData<T>);

impl<T: Entity> PartialSchema for PatchBody<T> {
    fn schema() -> RefOr<Schema> {
        edited::<T>(|object| {
            let algorithm = edited::<TemplateAlgorithm>(patched);
            if let Some(section) = object.properties.get_mut("algorithm") {
                *section = algorithm;
            }
            patched(object);
        })
    }
}

impl<T: Entity> ToSchema for PatchBody<T> {
    fn name() -> Cow<'static, str> {
        format!("Patch{}", T::name()).into()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        T::schemas(schemas);
    }
}

fn patched(object: &mut Object) {
    let required = std::mem::take(&mut object.required);
    for (name, property) in &mut object.properties {
        if !required.contains(name) {
            let null = ObjectBuilder::new().schema_type(Type::Null);
            *property = AnyOfBuilder::new().item(property.clone()).item(null).into();
        }
    }
}

/// The new entity, and the warnings about it.
#[derive(Debug)]
pub(in crate::http) struct WithWarnings<T>(PhantomData<T>);

impl<T: ToSchema> PartialSchema for WithWarnings<T> {
    fn schema() -> RefOr<Schema> {
        let text = ObjectBuilder::new().schema_type(Type::String);
        let warnings = ArrayBuilder::new().items(text).description(Some(
            "Valid content that is probably a mistake or a risk; absent if there is none",
        ));
        edited::<T>(|object| {
            let warnings = Schema::Array(warnings.build());
            object
                .properties
                .insert("warnings".to_owned(), RefOr::T(warnings));
        })
    }
}

impl<T: ToSchema> ToSchema for WithWarnings<T> {
    fn name() -> Cow<'static, str> {
        format!("Changed{}", T::name()).into()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        T::schemas(schemas);
    }
}

/// The schema of `T`, an object, with a change.
fn edited<T: PartialSchema>(edit: impl FnOnce(&mut Object)) -> RefOr<Schema> {
    let mut schema = T::schema();
    if let RefOr::T(Schema::Object(object)) = &mut schema {
        edit(object);
    }
    schema
}

#[derive(Debug)]
pub(in crate::http) struct OneOf<A, B>(PhantomData<(A, B)>);

impl<A: ToSchema, B: ToSchema> PartialSchema for OneOf<A, B> {
    fn schema() -> RefOr<Schema> {
        OneOfBuilder::new()
            .item(Ref::from_schema_name(A::name()))
            .item(Ref::from_schema_name(B::name()))
            .into()
    }
}

impl<A: ToSchema, B: ToSchema> ToSchema for OneOf<A, B> {
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
