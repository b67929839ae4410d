//! The line of a text file on which a record begins, as an editor counts. The csv reader takes its position before it
//! skips the line breaks in front of a record, so its own line numbers are too low there.

use std::io::{BufRead, Result};

/// Reads a text in parallel with the csv reader.
pub(super) struct LineCounter<R> {
    text: R,
    passed: u64,
    line: u64,
    last: u8,
}

impl<R: BufRead> LineCounter<R> {
    pub fn new(text: R) -> Self {
        Self { text, passed: 0, line: 1, last: 0 }
    }

    /// The line of the record that the reader found from this byte on; bytes must not decrease from call to call.
    pub fn line_at(&mut self, byte: u64) -> Result<u64> {
        loop {
            let bytes = self.text.fill_buf()?;
            let before = bytes.iter().zip(self.passed..).take_while(|(next, place)| *place < byte || is_break(**next));
            let count = before.count();
            let ended = count < bytes.len() || bytes.is_empty();
            for &next in &bytes[..count] {
                // A carriage return and a line feed are one break.
                self.line += u64::from(is_break(next) && !(next == b'\n' && self.last == b'\r'));
                self.last = next;
            }
            self.text.consume(count);
            self.passed += count as u64;
            if ended {
                return Ok(self.line);
            }
        }
    }
}

fn is_break(byte: u8) -> bool {
    matches!(byte, b'\r' | b'\n')
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufReader;

    #[test]
    fn line_breaks_of_all_kinds_are_counted_once() {
        // The same five lines: the third is empty.
        for text in ["a\nb\n\nc\nd", "a\r\nb\r\n\r\nc\r\nd", "a\rb\r\rc\rd"] {
            let place = |letter: char| text.find(letter).unwrap() as u64;
            // However little is read at once, and wherever before the record the reader stands.
            for (capacity, early) in [(1, 0), (2, 1), (64, 1)] {
                let mut counter = LineCounter::new(BufReader::with_capacity(capacity, text.as_bytes()));
                let lines =
                    ['a', 'b', 'c', 'd'].map(|letter| counter.line_at(place(letter).saturating_sub(early)).unwrap());
                assert_eq!(lines, [1, 2, 4, 5], "{text:?}");
            }
        }
    }
}
