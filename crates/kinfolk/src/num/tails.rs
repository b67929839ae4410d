//! Tails of the normal and the chi-square distribution, by the incomplete gamma function.

/// Relative precision at which series and fractions end.
const PRECISION: f64 = 1e-15;
const TERMS: usize = 10_000;

/// The probability that a standard normal number is above this.
pub(crate) fn normal_tail(value: f64) -> f64 {
    let tail = 0.5 * gamma_tail(0.5, 0.5 * value * value);
    if value < 0.0 { 1.0 - tail } else { tail }
}

/// The logarithm of the probability that a standard normal number is above this.
pub(crate) fn log_normal_tail(value: f64) -> f64 {
    const FAR: f64 = 5.0;
    if value < 0.0 {
        return (-normal_tail(-value)).ln_1p();
    }
    if value < FAR {
        return normal_tail(value).ln();
    }
    // The density over Mills' continued fraction x + 1/(x + 2/(x + …)), from its end.
    let fraction = (1..=50).rev().fold(value, |fraction, n| value + f64::from(n) / fraction);
    -0.5 * value * value - 0.5 * (2.0 * std::f64::consts::PI).ln() - fraction.ln()
}

/// The probability that a chi-square number with these degrees of freedom is above this.
pub(crate) fn chi_square_tail(freedom: f64, value: f64) -> f64 {
    gamma_tail(0.5 * freedom, 0.5 * value)
}

/// `Γ(a, x)/Γ(a)`.
fn gamma_tail(a: f64, x: f64) -> f64 {
    if x <= 0.0 || a <= 0.0 {
        return if a <= 0.0 { 0.0 } else { 1.0 };
    }
    let front = (a * x.ln() - x - log_gamma(a)).exp();
    if x < a + 1.0 {
        // The lower part as a power series.
        let (mut term, mut sum) = (1.0 / a, 1.0 / a);
        for n in 1..TERMS {
            term *= x / (a + n as f64);
            sum += term;
            if term < PRECISION * sum {
                break;
            }
        }
        return (1.0 - front * sum).clamp(0.0, 1.0);
    }
    // The upper part as a continued fraction, from its front (Lentz).
    let mut b = x + 1.0 - a;
    let (mut c, mut d) = (f64::MAX, 1.0 / b);
    let mut fraction = d;
    for n in 1..TERMS {
        let numerator = -(n as f64) * (n as f64 - a);
        b += 2.0;
        d = 1.0 / (numerator * d + b);
        c = b + numerator / c;
        fraction *= c * d;
        if (c * d - 1.0).abs() < PRECISION {
            break;
        }
    }
    (front * fraction).clamp(0.0, 1.0)
}

/// `log Γ(x)` for positive `x`: Stirling's series where it is good, reached by the recurrence.
fn log_gamma(x: f64) -> f64 {
    let (mut x, mut shift) = (x, 0.0);
    while x < 15.0 {
        shift -= x.ln();
        x += 1.0;
    }
    let inverse = 1.0 / (x * x);
    let series = (1.0 / 12.0 - inverse * (1.0 / 360.0 - inverse * (1.0 / 1260.0 - inverse / 1680.0))) / x;
    shift + (x - 0.5) * x.ln() - x + 0.5 * (2.0 * std::f64::consts::PI).ln() + series
}

/// The largest p-value that counts as a discovery, by Benjamini and Hochberg with 5 % of them wrong on average; below 0 if none does.
pub(crate) fn largest_discovery(mut values: Vec<f64>) -> f64 {
    const FALSE_DISCOVERIES: f64 = 0.05;
    values.sort_by(f64::total_cmp);
    let count = values.len() as f64;
    let found =
        values.iter().enumerate().rev().find(|(place, p)| **p <= FALSE_DISCOVERIES * (*place as f64 + 1.0) / count);
    found.map_or(-1.0, |(_, p)| *p)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tails_by_tables() {
        for (value, wanted) in
            [(0.0, 0.5), (1.0, 0.158_655_253_931_457), (1.959_963_984_540_054, 0.025), (-1.0, 0.841_344_746_068_543)]
        {
            assert!((normal_tail(value) - wanted).abs() < 1e-14, "{value}");
        }
        for value in [-9.0, -1.0, 0.0, 2.0, 4.999, 5.0, 12.0, 30.0] {
            assert!((log_normal_tail(value) - normal_tail(value).ln()).abs() < 1e-12 * value.abs().max(1.0).powi(2));
        }
        // −x²/2 − log(x·√2π) − 1/x², up to 2.5/x⁴.
        assert!((log_normal_tail(100.0) + 5000.0 + (100.0 * 2.506_628_274_631_000_5f64).ln() + 1e-4).abs() < 1e-7);
        // Two degrees of freedom: e^(−x/2); one: twice the normal tail; ten at its 95 % point.
        assert!((chi_square_tail(2.0, 3.0) - (-1.5_f64).exp()).abs() < 1e-13);
        assert!((chi_square_tail(1.0, 4.0) - 2.0 * normal_tail(2.0)).abs() < 1e-13);
        assert!((chi_square_tail(10.0, 18.307_038_053_275_15) - 0.05).abs() < 1e-13);
        assert!((chi_square_tail(400.0, 400.0) - 0.490_6).abs() < 1e-4);
        assert_eq!((chi_square_tail(3.0, 0.0), chi_square_tail(0.0, 1.0)), (1.0, 0.0));
    }

    #[test]
    fn discoveries_by_hand() {
        // Sorted .001 .02 .03 .9 against .0125 .025 .0375 .05: the third is the last below.
        assert_eq!(largest_discovery(vec![0.9, 0.03, 0.001, 0.02]), 0.03);
        assert!(largest_discovery(vec![0.2, 0.06]) < 0.0);
    }
}
