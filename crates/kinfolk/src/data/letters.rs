//! The letters of a text as numbers: LEAF's alphabet of 80 characters, in its order. It is fixed, never taken from the
//! data, so that a number means the same in models of different runs. As in LEAF, any other character is read as the
//! last symbol, a closing brace that no play contains.

/// The characters, in the order of their numbers.
pub const ALPHABET: &[u8; 80] = b"\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}";

/// What every other character is read as.
pub const UNKNOWN: u8 = ALPHABET.len() as u8 - 1;

static NUMBERS: [u8; 128] = {
    let mut numbers = [UNKNOWN; 128];
    let mut number = 0;
    while number < ALPHABET.len() {
        numbers[ALPHABET[number] as usize] = number as u8;
        number += 1;
    }
    numbers
};

pub fn number(letter: char) -> u8 {
    NUMBERS.get(letter as usize).copied().unwrap_or(UNKNOWN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_have_their_places_and_the_rest_is_unknown() {
        assert!(ALPHABET.iter().zip(0..).all(|(letter, place)| number(char::from(*letter)) == place));
        assert_eq!(['\n', ' ', '0', 'A', 'a', 'z', '}'].map(number), [0, 1, 11, 25, 53, 78, 79]);
        assert_eq!(['{', '\t', 'é', '\u{7f}', '\u{10ffff}'].map(number), [UNKNOWN; 5]);
    }
}
