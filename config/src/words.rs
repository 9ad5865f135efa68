//! The words that stand for values of an enumeration, as serde reads and writes them.

use serde::{
    Serialize,
    de::{DeserializeOwned, IntoDeserializer, value::Error},
};

/// The value that a word stands for.
pub(crate) fn value_of<T: DeserializeOwned>(word: &str) -> Option<T> {
    T::deserialize(IntoDeserializer::<Error>::into_deserializer(word)).ok()
}

/// The word for a value.
pub(crate) fn word_for(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    }
}
