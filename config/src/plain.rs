//! A tree written out for people: a whole number without `.0`.

use serde::{Serialize, Serializer};

use crate::node::{Node, Value};

/// Beyond it not every whole number can be told from the next.
const LARGEST_WHOLE: f64 = (1_u64 << 53) as f64;

/// A value, as somebody would write it.
pub(crate) struct Plain<'t>(pub(crate) &'t Node);

impl Serialize for Plain<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0.value {
            Value::Nothing => serializer.serialize_none(),
            Value::Bool(written) => serializer.serialize_bool(written == "true"),
            Value::Number { value, .. } if value.fract() == 0.0 && value.abs() < LARGEST_WHOLE => {
                serializer.serialize_i64(*value as i64)
            }
            Value::Number { value, .. } => serializer.serialize_f64(*value),
            Value::Text(text) => serializer.serialize_str(text),
            Value::List(entries) => serializer.collect_seq(entries.iter().map(Plain)),
            Value::Map(fields) => {
                let fields = fields.iter();
                serializer.collect_map(fields.map(|(key, value)| (Plain(key), Plain(value))))
            }
        }
    }
}
