//! Identifiers from text and JSON, compared with a simple definition.

use doorman_openapi::{ClientId, InvalidId, NodeId, ResourceId, ServerId};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde::{Serialize, de::DeserializeOwned};

/// Reads the bytes as text and as JSON.
///
/// # Panics
/// When a type accepts an invalid identifier, rejects a valid one, or changes it.
pub fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    check_type(ResourceId::new, ResourceId::as_str, &text);
    check_type(ClientId::new, ClientId::as_str, &text);
    check_type(NodeId::new, NodeId::as_str, &text);
    check_type(ServerId::new, ServerId::as_str, &text);
}

/// 1 to 256 bytes, and none of the 65 control characters of Unicode.
fn is_identifier(text: &str) -> bool {
    let controls = |c: char| matches!(u32::from(c), 0..=0x1f | 0x7f..=0x9f);
    !text.is_empty() && text.len() <= 256 && !text.contains(controls)
}

fn check_type<T: DeserializeOwned + Serialize + PartialEq + std::fmt::Debug>(
    new: fn(String) -> Result<T, InvalidId>,
    as_str: fn(&T) -> &str,
    text: &str,
) {
    let parsed = new(text.to_owned());
    assert_eq!(parsed.is_ok(), is_identifier(text), "{text:?}");
    if let Ok(id) = &parsed {
        assert_eq!(as_str(id), text);
        let json = serde_json::to_string(id).expect("it can be serialized");
        let back: T = serde_json::from_str(&json).expect("it can be parsed");
        assert_eq!(&back, id);
        // As in a URL path.
        let encoded = utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let decoded = percent_decode_str(&encoded).decode_utf8_lossy();
        assert_eq!(decoded, text);
    }

    // Any JSON spelling of a string is accepted, and nothing but a string.
    let read = serde_json::from_str::<T>(text).ok();
    let string = serde_json::from_str::<String>(text).ok();
    let expected = string.and_then(|string| new(string).ok());
    assert_eq!(read, expected, "{text:?}");
}
