//! Text from files and clients, made fit to be shown: what a terminal would obey is spelt out instead.

use std::borrow::Cow;

/// Whether a terminal would do something else with a character than show it: control characters, which begin escape
/// sequences, and marks that turn the direction of what follows.
fn is_obeyed(character: char) -> bool {
    let turns = matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns || character.is_control()
}

/// A text with everything that a terminal would obey spelt out, but for line breaks and tabs.
pub fn printable(text: &str) -> Cow<'_, str> {
    let spell_out = |character: char| is_obeyed(character) && !matches!(character, '\n' | '\t');
    if !text.contains(spell_out) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match spell_out(character) {
            true => shown.extend(character.escape_default()),
            false => shown.push(character),
        }
    }
    Cow::Owned(shown)
}

/// A JSON document with everything that a terminal would obey as escapes of JSON, which mean the same.
pub fn escaped_json(document: &str) -> String {
    let mut shown = String::with_capacity(document.len());
    for character in document.chars() {
        match is_obeyed(character) && !matches!(character, '\n' | '\t') {
            true => shown.push_str(&format!("\\u{:04x}", u32::from(character))),
            false => shown.push(character),
        }
    }
    shown
}

/// So many things of a kind, named by its word for one.
pub(crate) fn counted(count: usize, word: &str) -> String {
    format!("{count} {word}{}", if count == 1 { "" } else { "s" })
}

/// A number in so many significant digits, without zeros that say nothing.
pub fn significant(value: f64, digits: usize) -> String {
    let rounded: f64 = format!("{value:.*e}", digits.max(1) - 1).parse().unwrap_or(value);
    match rounded.abs() {
        0.0 => "0".to_string(),
        size if size.is_infinite() => if value > 0.0 { "∞" } else { "−∞" }.to_string(),
        size if (1e-4..1e7).contains(&size) => rounded.to_string(),
        _ => format!("{rounded:e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_do_not_reach_the_terminal() {
        let hostile = "a\x1b[31mred\x07\u{9b}2J\u{202e}txt\r\x7f";
        assert_eq!(printable(hostile), "a\\u{1b}[31mred\\u{7}\\u{9b}2J\\u{202e}txt\\r\\u{7f}");
        assert_eq!(printable("two\nlines\tö 漢 👍"), "two\nlines\tö 漢 👍");
    }

    #[test]
    fn escaped_json_means_the_same() {
        let value = serde_json::json!({ "id": "\u{9b}2J\u{7f}\x1b[31m\u{202e}\n" });
        let text = escaped_json(&serde_json::to_string_pretty(&value).unwrap());
        assert!(!text.contains(['\u{9b}', '\u{7f}', '\x1b', '\u{202e}']));
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
    }

    #[test]
    fn significant_digits() {
        let texts =
            [0.0, -0.0, 1.0 / 3.0, 1234.56, 0.00012349, -3.21e-7, 12e6, f64::INFINITY].map(|v| significant(v, 3));
        assert_eq!(texts, ["0", "0", "0.333", "1230", "0.000123", "-3.21e-7", "1.2e7", "∞"]);
    }
}
