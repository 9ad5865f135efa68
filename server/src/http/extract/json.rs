//! Typed JSON bodies, parsed strictly. The first error is reported, with a JSON Pointer to its
//! place.

use serde::de::DeserializeOwned;
use serde_path_to_error::Segment;

use super::{body, strict::Strict};
use crate::http::error::ApiError;

/// The most characters of an error's text and place, which may name an unknown field.
const MAX_TEXT: usize = 256;

/// Parses a body.
///
/// # Errors
/// 400 unless it is JSON in UTF-8; 422 with the first invalid field.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    let text = body::utf8(bytes)?;
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let parsed = T::deserialize(Strict::<_, false>(&mut deserializer));
    let parsed = parsed.and_then(|request| deserializer.end().map(|()| request));
    parsed.map_err(|_| diagnose::<T>(text))
}

/// Parses again, with the position of the error: too slow for valid bodies.
fn diagnose<T: DeserializeOwned>(text: &str) -> ApiError {
    if let Err(error) = body::check_syntax(text) {
        return error;
    }
    let mut deserializer = serde_json::Deserializer::from_str(text);
    match serde_path_to_error::deserialize::<_, T>(Strict::<_, true>(&mut deserializer)) {
        Err(error) => {
            let detail = start(&error.inner().to_string());
            let mut pointer = start(&pointer(error.path()));
            if let Some(field) = field_of_object(&detail) {
                pointer = format!("{pointer}/{field}");
            }
            ApiError::invalid_field(pointer, detail)
        }
        // The same text failed before.
        Ok(_) => ApiError::internal(),
    }
}

fn start(text: &str) -> String {
    text.chars().take(MAX_TEXT).collect()
}

/// A path as a JSON Pointer.
fn pointer(path: &serde_path_to_error::Path) -> String {
    path.iter()
        .map(|segment| match segment {
            Segment::Seq { index } => format!("/{index}"),
            Segment::Map { key } => format!("/{}", key.replace('~', "~0").replace('/', "~1")),
            Segment::Enum { .. } | Segment::Unknown => String::new(),
        })
        .collect()
}

/// The field of an error that serde reports for the whole object.
fn field_of_object(detail: &str) -> Option<&str> {
    let rest = detail
        .strip_prefix("missing field `")
        .or_else(|| detail.strip_prefix("duplicate field `"))?;
    Some(rest.split_once('`')?.0)
}
