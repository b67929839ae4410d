//! Every random draw is keyed by what it is for, and so independent of other draws, of threads, and of what ran before.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use sha2::{Digest, Sha256};

/// The generator all draws come from.
pub type Rng = ChaCha8Rng;

/// A path of words and numbers that names one stream of random numbers.
///
/// ```
/// use kinfolk::rng::Key;
/// let a = Key::new(7).word("participation").number(3);
/// assert_eq!(a.seed(), Key::new(7).word("participation").number(3).seed());
/// assert_ne!(a.seed(), Key::new(7).word("participation").number(4).seed());
/// ```
#[derive(Clone)]
pub struct Key(Sha256);

impl Key {
    /// Begins a key with the run's seed.
    pub fn new(seed: u64) -> Self {
        Key(Sha256::new()).number(seed)
    }

    /// Adds a purpose, a label or an id.
    pub fn word(mut self, word: &str) -> Self {
        self.0.update(b"w");
        self.0.update((word.len() as u64).to_le_bytes());
        self.0.update(word.as_bytes());
        self
    }

    /// Adds a round, a restart or an index.
    pub fn number(mut self, number: u64) -> Self {
        self.0.update(b"n");
        self.0.update(number.to_le_bytes());
        self
    }

    /// The generator this key names.
    pub fn rng(&self) -> Rng {
        ChaCha8Rng::from_seed(self.0.clone().finalize().into())
    }

    /// A seed derived from this key, to hand on where only a number travels.
    pub fn seed(&self) -> u64 {
        let digest: [u8; 32] = self.0.clone().finalize().into();
        u64::from_le_bytes(std::array::from_fn(|i| digest[i]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::RngExt;

    #[test]
    fn words_do_not_run_into_each_other() {
        assert_ne!(Key::new(0).word("ab").word("c").seed(), Key::new(0).word("a").word("bc").seed());
        assert_ne!(Key::new(0).number(1).seed(), Key::new(1).number(0).seed());
    }

    #[test]
    fn a_key_always_names_the_same_stream() {
        let mut first = Key::new(1).word("x").rng();
        let mut second = Key::new(1).word("x").rng();
        for _ in 0..5 {
            assert_eq!(first.random::<u64>(), second.random::<u64>());
        }
    }
}
