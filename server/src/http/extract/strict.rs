//! `Strict`: a deserializer that rejects an array for a struct, and `null` for an absent field,
//! unlike derived implementations. With `DIAGNOSE` its errors name no Rust type and quote no string
//! of the body.

use std::fmt;

use serde::{
    Deserializer,
    de::{self, DeserializeSeed, MapAccess, SeqAccess, Unexpected, Visitor},
    forward_to_deserialize_any,
};

/// Wraps a deserializer and everything nested in it. `DIAGNOSE` does not change what is accepted.
/// It is slower, because it lets the input determine the type of each value, to describe a wrong
/// one.
pub(super) struct Strict<T, const DIAGNOSE: bool>(pub(super) T);

macro_rules! forward {
    ($($method:ident)+) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
            self.0.$method(visitor)
        })+
    };
}

macro_rules! number {
    ($expected:literal: $($method:ident)+) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
            let expected = $expected;
            if DIAGNOSE {
                self.0.deserialize_any(NumberVisitor { visitor, expected })
            } else {
                self.0.$method(visitor)
            }
        })+
    };
}

impl<'de, D: Deserializer<'de>, const DIAGNOSE: bool> Deserializer<'de> for Strict<D, DIAGNOSE> {
    type Error = D::Error;

    forward! {
        deserialize_bool deserialize_char deserialize_str deserialize_string deserialize_bytes
        deserialize_byte_buf deserialize_unit deserialize_identifier deserialize_ignored_any
        deserialize_any
    }

    number! {
        "a whole number": deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
        deserialize_i128 deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64
        deserialize_u128
    }

    number! { "a number": deserialize_f32 deserialize_f64 }

    /// Only an absent field is `None`.
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        visitor.visit_some(self)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.deserialize_map(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        let visitor = ObjectVisitor::<_, DIAGNOSE>(visitor);
        if DIAGNOSE {
            self.0.deserialize_any(visitor)
        } else {
            self.0.deserialize_map(visitor)
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        let visitor = ArrayVisitor::<_, DIAGNOSE>(visitor);
        if DIAGNOSE {
            self.0.deserialize_any(visitor)
        } else {
            self.0.deserialize_seq(visitor)
        }
    }

    /// A variant without content: nothing is nested in it.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_enum(name, variants, visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        visitor.visit_newtype_struct(self)
    }

    forward_to_deserialize_any! { tuple tuple_struct unit_struct }
}

struct ObjectVisitor<V, const DIAGNOSE: bool>(V);

impl<'de, V: Visitor<'de>, const DIAGNOSE: bool> Visitor<'de> for ObjectVisitor<V, DIAGNOSE> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        self.0.visit_map(Strict::<_, DIAGNOSE>(map))
    }

    fn visit_str<E: de::Error>(self, _: &str) -> Result<V::Value, E> {
        Err(E::invalid_type(Unexpected::Other("string"), &self))
    }
}

struct ArrayVisitor<V, const DIAGNOSE: bool>(V);

impl<'de, V: Visitor<'de>, const DIAGNOSE: bool> Visitor<'de> for ArrayVisitor<V, DIAGNOSE> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<V::Value, A::Error> {
        self.0.visit_seq(Strict::<_, DIAGNOSE>(seq))
    }

    fn visit_str<E: de::Error>(self, _: &str) -> Result<V::Value, E> {
        Err(E::invalid_type(Unexpected::Other("string"), &self))
    }
}

struct NumberVisitor<V> {
    visitor: V,
    expected: &'static str,
}

impl<'de, V: Visitor<'de>> Visitor<'de> for NumberVisitor<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<V::Value, E> {
        self.visitor.visit_i64(number)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<V::Value, E> {
        self.visitor.visit_u64(number)
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<V::Value, E> {
        self.visitor.visit_f64(number)
    }

    fn visit_str<E: de::Error>(self, _: &str) -> Result<V::Value, E> {
        Err(E::invalid_type(Unexpected::Other("string"), &self))
    }
}

impl<'de, A: MapAccess<'de>, const DIAGNOSE: bool> MapAccess<'de> for Strict<A, DIAGNOSE> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        self.0.next_key_seed(seed)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.0.next_value_seed(Strict::<_, DIAGNOSE>(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint()
    }
}

impl<'de, A: SeqAccess<'de>, const DIAGNOSE: bool> SeqAccess<'de> for Strict<A, DIAGNOSE> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        self.0.next_element_seed(Strict::<_, DIAGNOSE>(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint()
    }
}

impl<'de, S: DeserializeSeed<'de>, const DIAGNOSE: bool> DeserializeSeed<'de>
    for Strict<S, DIAGNOSE>
{
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<S::Value, D::Error> {
        self.0.deserialize(Strict::<_, DIAGNOSE>(deserializer))
    }
}
