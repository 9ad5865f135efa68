//! Identifiers, from text and from JSON: what is one is said here a second time, in plain words.

use doorman_openapi::{ClientId, InvalidId, NodeId, ResourceId, ServerId};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde::{Serialize, de::DeserializeOwned};

/// Takes the bytes for a text, and for a piece of JSON.
///
/// # Panics
/// When a type of identifier takes what is none, refuses what is one, or changes it.
pub fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    of_type(ResourceId::new, ResourceId::as_str, &text);
    of_type(ClientId::new, ClientId::as_str, &text);
    of_type(NodeId::new, NodeId::as_str, &text);
    of_type(ServerId::new, ServerId::as_str, &text);
}

/// 1 to 256 bytes, and none of the 65 control characters of Unicode.
fn is_identifier(text: &str) -> bool {
    let controls = |c: char| matches!(u32::from(c), 0..=0x1f | 0x7f..=0x9f);
    !text.is_empty() && text.len() <= 256 && !text.contains(controls)
}

fn of_type<T: DeserializeOwned + Serialize + PartialEq + std::fmt::Debug>(
    new: fn(String) -> Result<T, InvalidId>,
    as_str: fn(&T) -> &str,
    text: &str,
) {
    let made = new(text.to_owned());
    assert_eq!(made.is_ok(), is_identifier(text), "{text:?}");
    if let Ok(id) = &made {
        assert_eq!(as_str(id), text);
        let json = serde_json::to_string(id).expect("a text can be written");
        let back: T = serde_json::from_str(&json).expect("what was written can be read");
        assert_eq!(&back, id);
        // As it stands in a path.
        let encoded = utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let decoded = percent_decode_str(&encoded).decode_utf8_lossy();
        assert_eq!(decoded, text);
    }

    // Whatever way JSON spells a text; and nothing but a text.
    let read = serde_json::from_str::<T>(text).ok();
    let spelled = serde_json::from_str::<String>(text).ok();
    let expected = spelled.and_then(|spelled| new(spelled).ok());
    assert_eq!(read, expected, "{text:?}");
}
