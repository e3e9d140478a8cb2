//! Text of others, shown on a terminal.

use std::borrow::Cow;

/// `text` with the escapes of control characters in their place, such as `\\u{1b}`: what others chose does not move a terminal's cursor, and is one
/// line.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(char::is_control) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if c.is_control() { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    shown.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn told_9_control_characters_are_shown_as_escapes() {
        assert!(matches!(printable("größe 5 µs"), Cow::Borrowed("größe 5 µs")));
        assert_eq!(printable("a\u{1b}[2J\nb\r\u{7f}\u{9b}"), "a\\u{1b}[2J\\nb\\r\\u{7f}\\u{9b}");
    }
}
