//! Streams of numbers that hide others: ChaCha20 with 20 rounds, keyed, as whole numbers that wrap around.

use super::Seed;
use rand::Rng as _;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng;

/// Numbers of the stream that are drawn at once.
const BLOCK: usize = 256;
const WIDTH: usize = size_of::<i128>();

/// Adds a key's stream to these numbers, or takes it off.
pub(crate) fn mask(numbers: &mut [i128], key: &Seed, adds: bool) {
    let mut stream = ChaCha20Rng::from_seed(*key);
    let mut bytes = [0; BLOCK * WIDTH];
    for numbers in numbers.chunks_mut(BLOCK) {
        let bytes = &mut bytes[..numbers.len() * WIDTH];
        stream.fill_bytes(bytes);
        let (stream, _) = bytes.as_chunks::<WIDTH>();
        for (number, bytes) in numbers.iter_mut().zip(stream) {
            let mask = i128::from_le_bytes(*bytes);
            *number = if adds { number.wrapping_add(mask) } else { number.wrapping_sub(mask) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_is_taken_off_to_the_bit() {
        let plain: Vec<i128> = (0..600).map(|number| (number - 300) * i128::from(i64::MAX)).collect();
        let mut numbers = plain.clone();
        mask(&mut numbers, &[7; 32], true);
        assert!(numbers.iter().zip(&plain).all(|(masked, plain)| masked != plain));
        let mut other = plain.clone();
        mask(&mut other, &[8; 32], true);
        assert_ne!(numbers, other);
        mask(&mut numbers, &[7; 32], false);
        assert_eq!(numbers, plain);
    }

    #[test]
    fn the_stream_is_that_of_chacha20() {
        // RFC 8439's block function with an all-zero key, nonce and counter: test vector 1 of its appendix A.1.
        let mut numbers = [0];
        mask(&mut numbers, &[0; 32], true);
        let wanted = [0x76, 0xb8, 0xe0, 0xad, 0xa0, 0xf1, 0x3d, 0x90, 0x40, 0x5d, 0x6a, 0xe5, 0x53, 0x86, 0xbd, 0x28];
        assert_eq!(numbers[0].to_le_bytes(), wanted);
    }
}
