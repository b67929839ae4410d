//! Valid inputs, spoiled: as bytes, as binary fields, as text. What is done follows from the key alone.

use kinfolk::rng::{Key, Rng};
use rand::RngExt;

/// No input grows beyond this.
const LONGEST: usize = 1 << 16;

const WHOLE: [u64; 12] =
    [0, 1, 0x7f, 0xff, 0x7fff, 0xffff, 0x7fff_ffff, 0xffff_ffff, 0x1_0000_0000, 1 << 48, i64::MAX as u64, u64::MAX];
const REAL: [f64; 10] =
    [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, f64::MIN, 5e-324, -0.0, 1e140, -1e30, 1e9];
const NUMBERS: [&str; 16] = [
    "0",
    "-1",
    "-0",
    "1e9",
    "-1e140",
    "1e999",
    "5e-324",
    "NaN",
    "inf",
    "255",
    "65536",
    "4294967296",
    "9223372036854775807",
    "18446744073709551616",
    "0.30000000000000004",
    "",
];
const WORDS: [&str; 26] = [
    ",",
    ";",
    "\"",
    "\"\"",
    "'",
    "\n",
    "\r\n",
    "\n\n",
    "\t",
    "{",
    "}",
    "[",
    "]",
    "[[",
    "=",
    "#",
    ":",
    "\\",
    "\0",
    "\u{feff}",
    "é",
    "\u{1b}[31m",
    "true",
    "null",
    "../",
    "x",
];

/// A spoiled copy of one of the inputs. The first cases are the inputs themselves.
pub fn input(corpus: &[Vec<u8>], key: &Key, case: u64) -> Vec<u8> {
    if let Some(whole) = usize::try_from(case).ok().and_then(|case| corpus.get(case)) {
        return whole.clone();
    }
    let mut random = key.clone().number(case).rng();
    let mut bytes = corpus[random.random_range(0..corpus.len())].clone();
    for _ in 0..random.random_range(1..5) {
        spoil(&mut bytes, corpus, &mut random);
    }
    bytes.truncate(LONGEST);
    bytes
}

fn spoil(bytes: &mut Vec<u8>, corpus: &[Vec<u8>], random: &mut Rng) {
    let at = random.random_range(0..bytes.len() + 1);
    let rest = bytes.len() - at;
    let few = random.random_range(0..17).min(rest);
    let many = random.random_range(0..rest + 1);
    match random.random_range(0..14) {
        0 if rest > 0 => bytes[at] ^= 1 << random.random_range(0..8),
        1 if rest > 0 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff, random.random()][random.random_range(0..6)],
        2 => bytes.truncate(at),
        3 => drop(bytes.drain(at..at + few)),
        4 => drop(bytes.drain(at..at + many)),
        5 => {
            let copied = bytes[at..at + many].to_vec();
            insert(bytes, random.random_range(0..bytes.len() + 1), &copied);
        }
        6 => {
            let other = &corpus[random.random_range(0..corpus.len())];
            let from = random.random_range(0..other.len() + 1);
            bytes.truncate(at);
            bytes.extend_from_slice(&other[from..]);
        }
        7 => {
            let drawn: Vec<u8> = (0..random.random_range(1..9)).map(|_| random.random()).collect();
            insert(bytes, at, &drawn);
        }
        8 => overwrite(bytes, at, &whole(random)),
        9 => overwrite(bytes, at, &real(random)),
        // The largest numbers of variable length, as lengths are written.
        10 => {
            let length = random.random_range(0..10);
            overwrite(bytes, at, &[&vec![0xff; length][..], &[random.random_range(0..128)]].concat());
        }
        11 => replace_number(bytes, at, NUMBERS[random.random_range(0..NUMBERS.len())]),
        12 => insert(bytes, at, WORDS[random.random_range(0..WORDS.len())].as_bytes()),
        _ => {
            let piece = bytes[at..at + few].to_vec();
            let times = random.random_range(1..200);
            insert(bytes, at, &piece.repeat(times));
        }
    }
}

fn insert(bytes: &mut Vec<u8>, at: usize, new: &[u8]) {
    bytes.splice(at..at, new.iter().copied());
    bytes.truncate(LONGEST);
}

fn overwrite(bytes: &mut [u8], at: usize, new: &[u8]) {
    bytes[at..].iter_mut().zip(new).for_each(|(byte, new)| *byte = *new);
}

/// An extreme whole number of 2, 4 or 8 bytes, either end first.
fn whole(random: &mut Rng) -> Vec<u8> {
    let number = WHOLE[random.random_range(0..WHOLE.len())].to_le_bytes();
    let mut bytes = number[..[2, 4, 8][random.random_range(0..3)]].to_vec();
    if random.random() {
        bytes.reverse();
    }
    bytes
}

/// An extreme real number of 4 or 8 bytes.
fn real(random: &mut Rng) -> Vec<u8> {
    let number = REAL[random.random_range(0..REAL.len())];
    if random.random() { number.to_le_bytes().to_vec() } else { (number as f32).to_le_bytes().to_vec() }
}

/// Puts another number in the place of the next one that is written in digits.
fn replace_number(bytes: &mut Vec<u8>, at: usize, new: &str) {
    let Some(begin) = bytes[at..].iter().position(u8::is_ascii_digit).map(|place| at + place) else { return };
    let is_part = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'-' | b'+');
    let length = bytes[begin..].iter().take_while(|byte| is_part(byte)).count();
    bytes.splice(begin..begin + length, new.bytes());
}
