//! Characters of identifiers and claims that are invisible, or change the order or the lines of a
//! text around them.

use std::{borrow::Cow, fmt::Write};

/// Whether a text with this character may look like another one: it is invisible, changes the
/// direction of the text, or ends a line outside ASCII.
///
/// These are the characters with the property [Default_Ignorable_Code_Point], the bidirectional
/// controls, the separators of lines and paragraphs, interlinear annotations, and the blank Braille
/// pattern. Control characters such as line feed are not among them.
///
/// [Default_Ignorable_Code_Point]: https://www.unicode.org/reports/tr44/#Default_Ignorable_Code_Point
#[must_use]
pub const fn is_hidden(character: char) -> bool {
    matches!(
        character,
        '\u{ad}'
            | '\u{34f}'
            | '\u{61c}'
            | '\u{115f}'
            | '\u{1160}'
            | '\u{17b4}'
            | '\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{2800}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

/// Escapes [hidden](is_hidden) and control characters as JSON does, such as `\u202e`, so that
/// no character of a line remains unseen.
///
/// ```
/// assert_eq!(doorman_openapi::escape_hidden("admin\u{202e}\n"), r"admin\u202e\u000a");
/// ```
#[must_use]
pub fn escape_hidden(text: &str) -> Cow<'_, str> {
    escape(text, |it| it.is_control() || is_hidden(it))
}

/// The same for a text of several lines: line feeds and tabs stay. JSON stays the same value.
#[must_use]
pub fn escape_hidden_in_lines(text: &str) -> Cow<'_, str> {
    let stays = |it| matches!(it, '\n' | '\t');
    escape(text, |it| is_hidden(it) || it.is_control() && !stays(it))
}

/// Escapes the characters of a text that `is_escaped` selects, as JSON does.
#[must_use]
pub fn escape(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if is_escaped(character) {
            for unit in character.encode_utf16(&mut [0; 2]) {
                // Writing to a string cannot fail.
                let _written = write!(escaped, "\\u{unit:04x}");
            }
        } else {
            escaped.push(character);
        }
    }
    Cow::Owned(escaped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_deceive_are_escaped_and_others_are_not() {
        for hidden in [
            '\u{ad}',
            '\u{34f}',
            '\u{61c}',
            '\u{17b4}',
            '\u{200b}',
            '\u{200e}',
            '\u{2028}',
            '\u{2029}',
            '\u{202e}',
            '\u{2066}',
            '\u{2800}',
            '\u{fe0f}',
            '\u{feff}',
            '\u{e0041}',
            '\u{e01ef}',
            '\u{7}',
            '\u{85}',
        ] {
            let shown = escape_hidden(&format!("a{hidden}b")).into_owned();
            assert!(shown.is_ascii(), "{hidden:?}: {shown}");
        }
        for plain in ["orders-1", "žluťoučký kůň", "注文", "שלום", "😀", "a b"] {
            assert!(matches!(escape_hidden(plain), Cow::Borrowed(_)), "{plain}");
        }
    }

    #[test]
    fn escaped_json_is_the_same_value() {
        let value = serde_json::json!({"id": "a\u{202e}b\u{e0041}\u{9b}\n"});
        let text = format!("{value:#}");
        let escaped = escape_hidden_in_lines(&text);
        assert!(escaped.is_ascii() && escaped.contains('\n'), "{escaped}");
        let read: serde_json::Value = serde_json::from_str(&escaped).unwrap();
        assert_eq!(read, value);
    }
}
