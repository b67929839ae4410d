//! Dropout: in training some numbers become 0, the others grow to keep the mean.

use super::*;

#[derive(Debug, Clone)]
pub(super) struct Dropout {
    /// The chance of each to become 0.
    pub(super) chance: f64,
}

impl Dropout {
    /// Without a generator nothing is dropped.
    pub(super) fn forward<T: Real>(&self, x: &[T], rng: Option<&mut Rng>, memory: &mut Memory<T>) {
        let Memory { out, kept, .. } = memory;
        kept.clear();
        match rng {
            Some(rng) => {
                let grown = T::of(1.0 / (1.0 - self.chance));
                kept.extend(x.iter().map(|_| if rng.random_bool(self.chance) { T::ZERO } else { grown }));
            }
            None => kept.resize(x.len(), T::ONE),
        }
        out.clear();
        out.extend(x.iter().zip(&*kept).map(|(&x, &factor)| x * factor));
    }

    pub(super) fn backward<T: Real>(&self, slopes: &[T], memory: &Memory<T>, down: &mut [T]) {
        for ((down, &slope), &factor) in down.iter_mut().zip(slopes).zip(&memory.kept) {
            *down = slope * factor;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Key;

    #[test]
    fn a_quarter_is_dropped_and_the_rest_grows() {
        let (dropout, x) = (Dropout { chance: 0.25 }, vec![3.0; 10_000]);
        let mut memory = Memory::default();
        dropout.forward(&x, Some(&mut Key::new(1).rng()), &mut memory);
        let dropped = memory.out.iter().filter(|&&value| value == 0.0).count();
        assert!((2350..2650).contains(&dropped), "{dropped}");
        assert_eq!(memory.out.iter().filter(|&&value| value == 4.0).count(), 10_000 - dropped);
        let mut down = vec![0.0; x.len()];
        dropout.backward(&x, &memory, &mut down);
        assert_eq!(down, memory.out);
        dropout.forward(&x, None, &mut memory);
        assert_eq!(memory.out, x);
    }
}
