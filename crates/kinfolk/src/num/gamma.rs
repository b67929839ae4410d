//! The logarithm of the gamma function, and its derivative.

/// Arguments from which the asymptotic series have all digits that matter.
const FAR: f64 = 8.0;

/// log Γ(x) of a positive number.
pub(crate) fn ln_gamma(x: f64) -> f64 {
    const HALF_LOG_TWO_PI: f64 = 0.918_938_533_204_672_7;
    let (mut x, mut product) = (x, 1.0);
    while x < FAR {
        product *= x;
        x += 1.0;
    }
    let inverse = 1.0 / x;
    let square = inverse * inverse;
    let series = inverse * (1.0 / 12.0 - square * (1.0 / 360.0 - square * (1.0 / 1260.0 - square / 1680.0)));
    (x - 0.5) * x.ln() - x + HALF_LOG_TWO_PI + series - product.ln()
}

/// The derivative of log Γ at a positive number.
pub(crate) fn digamma(x: f64) -> f64 {
    let (mut x, mut sum) = (x, 0.0);
    while x < FAR {
        sum -= 1.0 / x;
        x += 1.0;
    }
    let square = 1.0 / (x * x);
    sum + x.ln() - 0.5 / x - square * (1.0 / 12.0 - square * (1.0 / 120.0 - square * (1.0 / 252.0 - square / 240.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_are_known() {
        assert!(ln_gamma(1.0).abs() < 1e-10 && ln_gamma(2.0).abs() < 1e-10);
        assert!((ln_gamma(0.5) - 0.5 * std::f64::consts::PI.ln()).abs() < 1e-10);
        assert!((ln_gamma(11.0) - 3_628_800f64.ln()).abs() < 1e-10);
        // −γ, and ψ(x + 1) = ψ(x) + 1/x.
        assert!((digamma(1.0) + 0.577_215_664_901_532_9).abs() < 1e-10);
        assert!((digamma(20.3) - digamma(19.3) - 1.0 / 19.3).abs() < 1e-10);
    }
}
