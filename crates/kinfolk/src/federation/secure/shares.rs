//! A secret in shares: any so many of them give it back, and fewer say nothing (Shamir 1979), byte by byte over the field of 256 elements.
//!
//! Our own, for thirty lines: `vsss-rs` is fifteen thousand, most of them about verifiable shares on elliptic curves; `blahaj`, the mended
//! `sharks` (RUSTSEC-2024-0398), looks secrets up in tables, and turns on features of `hashbrown` and `rand` that nothing here wants.

use super::Seed;
use rand::Rng;

/// A product in the field, modulo x⁸ + x⁴ + x³ + x + 1; as long for any factors.
fn times(mut one: u8, mut other: u8) -> u8 {
    let mut product = 0;
    for _ in 0..8 {
        product ^= one & (other & 1).wrapping_neg();
        one = (one << 1) ^ (0x1b & (one >> 7).wrapping_neg());
        other >>= 1;
    }
    product
}

/// The inverse of an element that is not zero: its 254th power.
fn inverse(of: u8) -> u8 {
    let mut power = 1;
    for bit in (0..8).rev() {
        power = times(power, power);
        if 254 & (1 << bit) != 0 {
            power = times(power, of);
        }
    }
    power
}

/// The point of a holder. None is at zero, where the secret is.
fn point(holder: u8) -> u8 {
    holder + 1
}

/// Shares of a secret for so many holders, at most 255, of which `threshold` give it back.
pub(crate) fn split(secret: &Seed, threshold: usize, holders: usize, random: &mut impl Rng) -> Vec<Seed> {
    // The coefficients above the secret, of every byte's polynomial.
    let mut coefficients = vec![Seed::default(); threshold.saturating_sub(1)];
    coefficients.iter_mut().for_each(|coefficients| random.fill_bytes(coefficients));
    let share = |holder: u8| {
        let value = |byte: usize| {
            let higher = coefficients.iter().rev();
            higher.fold(0, |value, coefficients| times(value ^ coefficients[byte], point(holder))) ^ secret[byte]
        };
        std::array::from_fn(value)
    };
    (0..holders.min(255) as u8).map(share).collect()
}

/// The secret, from the shares of these holders; `None` where they are too few.
pub(crate) fn join(shares: &[(u8, Seed)], threshold: usize) -> Option<Seed> {
    let shares = shares.get(..threshold)?;
    let mut secret = Seed::default();
    for (place, (holder, share)) in shares.iter().enumerate() {
        // The value at zero of the polynomial that is one at this holder's point, and zero at the others'.
        let mut weight = 1;
        for (other, _) in shares.iter().enumerate().filter(|(it, _)| *it != place).map(|(_, share)| share) {
            if other == holder {
                return None;
            }
            weight = times(weight, times(point(*other), inverse(point(*other) ^ point(*holder))));
        }
        secret.iter_mut().zip(share).for_each(|(sum, value)| *sum ^= times(weight, *value));
    }
    Some(secret)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_chacha::ChaCha20Rng;
    use rand_chacha::rand_core::SeedableRng;

    #[test]
    fn any_so_many_shares_give_the_secret_back_and_fewer_do_not() {
        let secret: Seed = std::array::from_fn(|place| place as u8 * 7);
        let mut random = ChaCha20Rng::from_seed([3; 32]);
        let shares = split(&secret, 4, 5, &mut random);
        assert_eq!(shares.len(), 5);
        for left_out in 0..5u8 {
            let some: Vec<(u8, Seed)> = (0..5).zip(shares.clone()).filter(|(place, _)| *place != left_out).collect();
            assert_eq!(join(&some, 4), Some(secret));
            assert_eq!(join(&some[1..], 4), None);
            // As if three were enough.
            assert_ne!(join(&some[1..], 3), Some(secret));
        }
        let mut wrong: Vec<(u8, Seed)> = (0..4).zip(shares).collect();
        wrong[2].1[5] ^= 1;
        assert_ne!(join(&wrong, 4), Some(secret));
        wrong[2].0 = 1;
        assert_eq!(join(&wrong, 4), None, "one of them twice");
        assert_eq!(join(&[], 1), None);
    }

    #[test]
    fn the_field_is_that_of_aes() {
        // FIPS 197: {57} • {83} = {c1}, {57} • {13} = {fe}; and the inverse of {53} is {ca}.
        assert_eq!((times(0x57, 0x83), times(0x57, 0x13), inverse(0x53)), (0xc1, 0xfe, 0xca));
        assert!((1..=255).all(|element| times(element, inverse(element)) == 1));
    }

    #[test]
    fn shares_are_points_of_a_line_for_two() {
        // f(x) = s + a·x: with f(1) = s + a, f(2) = s + 2a.
        let shares = split(&[5; 32], 2, 2, &mut ChaCha20Rng::from_seed([1; 32]));
        for (one, two) in shares[0].iter().zip(shares[1]) {
            assert_eq!(two, 5 ^ times(2, one ^ 5));
        }
    }

    #[test]
    fn fewer_shares_than_wanted_are_uniform() {
        // Of two secrets, what two of three holders see together of a byte: each of 256 sums about as often.
        for secret in [[0; 32], [255; 32]] {
            let mut random = ChaCha20Rng::from_seed([2; 32]);
            let mut counts = [0f64; 256];
            for _ in 0..800 {
                let shares = split(&secret, 3, 3, &mut random);
                shares[0]
                    .iter()
                    .zip(&shares[2])
                    .for_each(|(one, other)| counts[usize::from(one ^ times(7, *other))] += 1.0);
            }
            let chi: f64 = counts.iter().map(|count| (count - 100.0).powi(2) / 100.0).sum();
            assert!((120.0..391.0).contains(&chi), "{chi}");
        }
    }
}
