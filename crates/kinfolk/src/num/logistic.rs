//! The logistic function, its loss, and its curvature.

use super::matrix::Real;

/// Log odds, and e^−|odds|, of which everything else is made: it neither overflows nor loses digits on either side.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Odds<T> {
    value: T,
    power: T,
}

impl<T: Real> Odds<T> {
    #[inline(always)]
    pub(crate) fn of(value: T) -> Self {
        Self { value, power: (-distance_from_zero(value)).exp() }
    }

    /// With e^−|odds| as it was found already.
    #[inline(always)]
    pub(crate) fn with_power(value: T, power: T) -> Self {
        Self { value, power }
    }

    /// The power to raise e to, for [`Odds::with_power`].
    #[inline(always)]
    pub(crate) fn exponent(value: T) -> T {
        -distance_from_zero(value)
    }

    /// 1/(1 + e^−odds).
    #[inline(always)]
    pub(crate) fn chance(self) -> T {
        (if self.value > T::ZERO { T::ONE } else { self.power }) / (T::ONE + self.power)
    }

    /// The loss −log(chance) of a row that these odds are in favour of; negated odds are against it.
    #[inline(always)]
    pub(crate) fn loss(self) -> T {
        let small = self.power.ln_1p();
        if self.value > T::ZERO { small } else { small - self.value }
    }

    /// The loss's second derivative, chance·(1 − chance).
    #[inline(always)]
    pub(crate) fn curvature(self) -> T {
        let whole = T::ONE + self.power;
        self.power / (whole * whole)
    }

    /// The derivative of the curvature.
    #[inline(always)]
    pub(crate) fn skew(self) -> T {
        self.curvature() * (T::ONE - self.chance() - self.chance())
    }
}

impl<T: Real> std::ops::Neg for Odds<T> {
    type Output = Self;
    #[inline(always)]
    fn neg(self) -> Self {
        Self { value: -self.value, ..self }
    }
}

#[inline(always)]
fn distance_from_zero<T: Real>(value: T) -> T {
    if value > T::ZERO { value } else { -value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand() {
        let even = Odds::of(0.0);
        assert_eq!((even.chance(), even.loss(), even.curvature(), even.skew()), (0.5, 2f64.ln(), 0.25, 0.0));
        // Odds of 3 to 1.
        let likely = Odds::of(3f64.ln());
        let close = |found: f64, wanted: f64| assert!((found - wanted).abs() < 1e-15, "{found}, want {wanted}");
        close(likely.chance(), 0.75);
        close((-likely).chance(), 0.25);
        close(likely.loss(), -(0.75f64.ln()));
        close((-likely).loss(), 4f64.ln());
        close(likely.curvature(), 0.1875);
        close(likely.skew(), 0.1875 * -0.5);
    }

    #[test]
    fn both_sides_keep_their_digits() {
        for odds in [40.0, 300.0, 700.0f64] {
            let (for_it, against) = (Odds::of(odds), Odds::of(-odds));
            let tail: f64 = (-odds).exp();
            for found in [for_it.curvature(), against.curvature(), for_it.loss(), against.chance()] {
                assert!((found / tail - 1.0).abs() < 1e-12, "{odds}: {found}, want {tail}");
            }
            assert_eq!((for_it.chance(), against.loss()), (1.0, odds));
        }
        assert!(Odds::of(f64::NAN).loss().is_nan() && Odds::of(f64::NAN).chance().is_nan());
    }
}
