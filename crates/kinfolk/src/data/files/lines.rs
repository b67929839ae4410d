//! The line of a text file on which a record begins, as an editor counts. The csv reader takes its position before it
//! skips the line breaks in front of a record, so its own line numbers are too low there.

use std::collections::VecDeque;
use std::io::{Error, Read, Result};

/// Most bytes without a line break: what is longer is no table, and must not fill the memory.
const LONGEST_LINE: u64 = 1 << 28;

/// A text that remembers where its lines end, until it is asked.
pub(super) struct Counted<R> {
    text: R,
    passed: u64,
    /// Where breaks are, and whether a line ends there: a carriage return and a line feed are one end.
    breaks: VecDeque<(u64, bool)>,
    last: (u64, u8),
    line: u64,
}

impl<R: Read> Counted<R> {
    pub fn new(text: R) -> Self {
        Self { text, passed: 0, breaks: VecDeque::new(), last: (0, 0), line: 1 }
    }

    /// The line of the record that the reader found from this byte on; bytes must not decrease from call to call.
    pub fn line_at(&mut self, byte: u64) -> u64 {
        let mut begin = byte;
        while let Some((place, ends)) = self.breaks.front().copied().filter(|(place, _)| *place <= begin) {
            self.line += u64::from(ends);
            begin = begin.max(place + 1);
            self.breaks.pop_front();
        }
        self.line
    }
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let count = self.text.read(buffer)?;
        let is_break = |byte: u8| (byte == b'\r') | (byte == b'\n');
        // Most stretches have no break, which is quickly seen of all their bytes at once.
        const STRETCH: usize = 32;
        let stretches = buffer[..count].chunks(STRETCH).zip((self.passed..).step_by(STRETCH));
        for (stretch, begin) in stretches {
            if !stretch.iter().fold(false, |any, &byte| any | is_break(byte)) {
                continue;
            }
            for (&byte, place) in stretch.iter().zip(begin..).filter(|(byte, _)| is_break(**byte)) {
                let is_pair = byte == b'\n' && self.last == (place.wrapping_sub(1), b'\r');
                self.breaks.push_back((place, !is_pair));
                self.last = (place, byte);
            }
        }
        self.passed += count as u64;
        if self.passed - self.last.0 > LONGEST_LINE {
            return Err(Error::other(format!("a line of more than {LONGEST_LINE} bytes")));
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_breaks_of_all_kinds_are_counted_once() {
        // The same five lines: the third is empty.
        for text in ["a\nb\n\nc\nd", "a\r\nb\r\n\r\nc\r\nd", "a\rb\r\rc\rd"] {
            let place = |letter: char| text.find(letter).unwrap() as u64;
            // However little is read at once, and wherever before the record the reader stands.
            for (size, early) in [(1, 0), (2, 1), (64, 1)] {
                let mut counted = Counted::new(text.as_bytes());
                let mut buffer = vec![0; size];
                while counted.read(&mut buffer).unwrap() > 0 {}
                let lines = ['a', 'b', 'c', 'd'].map(|letter| counted.line_at(place(letter).saturating_sub(early)));
                assert_eq!(lines, [1, 2, 4, 5], "{text:?}");
            }
        }
    }
}
