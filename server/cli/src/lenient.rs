//! Responses of servers of other releases.
//!
//! A response is read strictly first. Otherwise whole numbers may be written as `1.0`, and absent
//! numbers, texts and bools are zero, empty and false. Unknown fields are always ignored.

use std::{cell::RefCell, collections::BTreeSet};

use serde::{
    Deserializer,
    de::{
        DeserializeOwned, Error as _, IntoDeserializer, Visitor,
        value::{MapDeserializer, SeqDeserializer},
    },
    forward_to_deserialize_any,
};
use serde_json::{Error, Number, Value};

/// A response, and the fields that it lacks.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Response<T> {
    pub(super) value: T,
    pub(super) absent: BTreeSet<&'static str>,
}

pub(super) fn from_slice<T: DeserializeOwned>(json: &[u8]) -> Result<Response<T>, Error> {
    match serde_json::from_slice(json) {
        Ok(value) => Ok(Response {
            value,
            absent: BTreeSet::new(),
        }),
        Err(_) => from_value(&serde_json::from_slice(json)?),
    }
}

pub(super) fn from_value<T: DeserializeOwned>(json: &Value) -> Result<Response<T>, Error> {
    if let Ok(value) = T::deserialize(json) {
        return Ok(Response {
            value,
            absent: BTreeSet::new(),
        });
    }
    let absent = RefCell::default();
    let value = T::deserialize(Field {
        name: "",
        value: Some(json),
        absent: &absent,
    })?;
    Ok(Response {
        value,
        absent: absent.into_inner(),
    })
}

/// The value of a field; `None` if it is absent.
#[derive(Clone, Copy)]
struct Field<'de> {
    name: &'static str,
    value: Option<&'de Value>,
    absent: &'de RefCell<BTreeSet<&'static str>>,
}

impl<'de> Field<'de> {
    /// A value inside of this one.
    fn inner(self, value: &'de Value) -> Self {
        Self {
            value: Some(value),
            ..self
        }
    }

    fn missing(self) -> Error {
        Error::missing_field(self.name)
    }
}

/// The value of an integer that is written with a fraction.
fn whole(number: &Number) -> Option<i64> {
    /// 2⁵³: all whole numbers up to here are exact.
    const EXACT: f64 = 9_007_199_254_740_992.0;

    let float = number.as_f64().filter(|_| number.is_f64())?;
    (float.fract() == 0.0 && float.abs() <= EXACT).then_some(float as i64)
}

macro_rules! or_default {
    ($($method:ident => $visit:ident($default:expr);)+) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            if self.value.is_some() {
                return self.deserialize_any(visitor);
            }
            self.absent.borrow_mut().insert(self.name);
            visitor.$visit($default)
        }
    )+};
}

impl<'de> Deserializer<'de> for Field<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value.ok_or_else(|| self.missing())? {
            Value::Number(number) => match whole(number) {
                Some(whole) => match u64::try_from(whole) {
                    Ok(whole) => visitor.visit_u64(whole),
                    Err(_) => visitor.visit_i64(whole),
                },
                None => number.deserialize_any(visitor),
            },
            Value::Array(elements) => {
                let elements = elements.iter().map(|element| self.inner(element));
                SeqDeserializer::new(elements).deserialize_any(visitor)
            }
            Value::Object(members) => {
                let members = members.iter();
                let members = members.map(|(name, value)| (name.as_str(), self.inner(value)));
                MapDeserializer::new(members).deserialize_any(visitor)
            }
            value @ (Value::Null | Value::Bool(_) | Value::String(_)) => {
                value.deserialize_any(visitor)
            }
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let Some(Value::Object(members)) = self.value else {
            return self.deserialize_any(visitor);
        };
        if !fields.iter().any(|name| members.contains_key(*name)) {
            // Another kind of response, or an object without required fields.
            return self.deserialize_any(visitor);
        }
        let fields = fields.iter().map(|name| {
            let value = Self {
                name,
                value: members.get(*name),
                absent: self.absent,
            };
            (*name, value)
        });
        MapDeserializer::new(fields).deserialize_any(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            None | Some(Value::Null) => visitor.visit_none(),
            Some(_) => visitor.visit_some(self),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            None => visitor.visit_seq(SeqDeserializer::<_, Error>::new(std::iter::empty::<Self>())),
            Some(_) => self.deserialize_any(visitor),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let value = self.value.ok_or_else(|| self.missing())?;
        value.deserialize_enum(name, variants, visitor)
    }

    or_default! {
        deserialize_bool => visit_bool(false);
        deserialize_i8 => visit_i8(0);
        deserialize_i16 => visit_i16(0);
        deserialize_i32 => visit_i32(0);
        deserialize_i64 => visit_i64(0);
        deserialize_u8 => visit_u8(0);
        deserialize_u16 => visit_u16(0);
        deserialize_u32 => visit_u32(0);
        deserialize_u64 => visit_u64(0);
        deserialize_f32 => visit_f32(0.0);
        deserialize_f64 => visit_f64(0.0);
        deserialize_str => visit_borrowed_str("");
        deserialize_string => visit_borrowed_str("");
    }

    forward_to_deserialize_any! {
        i128 u128 char bytes byte_buf unit unit_struct tuple tuple_struct map identifier ignored_any
    }
}

impl<'de> IntoDeserializer<'de, Error> for Field<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

#[cfg(test)]
mod tests {
    use doorman_openapi::{Discovery, LeasePage, ResourcePage};
    use serde_json::json;

    use super::*;

    fn read<T: DeserializeOwned>(json: &Value) -> Result<Response<T>, Error> {
        let response = from_slice(json.to_string().as_bytes());
        let value = from_value::<T>(json);
        assert_eq!(response.is_ok(), value.is_ok());
        response
    }

    fn resource() -> Value {
        json!({
            "resource_id": "db", "capacity": 10, "sum_has": 4, "sum_wants": 4.5, "clients": 1,
            "in_learning_mode": false, "template": null, "algorithm": "STATIC", "lease_length": 60,
            "refresh_interval": 5, "safe_capacity": -1
        })
    }

    #[test]
    fn integers_may_have_a_fraction_of_zero() {
        let mut older = resource();
        older["clients"] = json!(1.0);
        let [older, newer] = [older, resource()].map(|it| json!({"resources": [it]}));
        assert_eq!(
            read::<ResourcePage>(&older).unwrap(),
            read::<ResourcePage>(&newer).unwrap()
        );
        for wrong in [json!(1.5), json!("1"), json!(-1), json!(null)] {
            let mut view = resource();
            view["clients"] = wrong;
            let page = json!({"resources": [view]});
            assert!(read::<ResourcePage>(&page).is_err(), "{page}");
        }
    }

    #[test]
    fn absent_fields_are_empty_and_named() {
        let page = json!({
            "leases": [{
                "client_id": "c", "kind": "client", "priority": 0.0, "wants": 5.0, "has": 5.0,
                "booked": 5.0, "outstanding": 0.0, "used": null, "expires_in": 60.0,
                "expiry_time": 1795123456.0, "unknown": [1]
            }],
            "unknown": {}
        });
        let Response { value, absent } = read::<LeasePage>(&page).unwrap();
        let holder = &value.leases[0];
        assert_eq!(
            (holder.wants.get(), holder.expiry_time),
            (5.0, 1_795_123_456)
        );
        assert_eq!((holder.share.get(), &*holder.why), (0.0, ""));
        assert!(holder.bands.is_empty() && holder.refreshed_ago.is_none());
        assert_eq!(absent, ["share", "why"].into());
    }

    #[test]
    fn other_responses_are_rejected() {
        for other in [
            json!({}),
            json!({"status": "ok"}),
            json!([]),
            json!("ok"),
            json!({"is_master": true}),
            json!({"node": "", "is_master": true, "mastership": {}, "server_id": "s"}),
        ] {
            assert!(read::<Discovery>(&other).is_err(), "{other}");
        }
    }
}
