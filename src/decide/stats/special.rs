//! The special functions behind the intervals: gamma, beta, their inverses.
//!
//! Written here, because they are small and the figures of the tool rest on them. Formulas: Abramowitz and Stegun
//! 6.1.40 (Stirling's series), 26.5.8 (continued fraction of the incomplete beta), 7.1.6 (series of the error function).

use std::f64::consts::{PI, SQRT_2};

/// From here on Stirling's series with seven terms is exact to a double: the first term left out is below 2e-17 at 15.
const STIRLING_FROM: f64 = 15.0;

/// The most steps of the continued fraction. It needs about sqrt(max(a, b)); a plan has at most a million trials.
const FRACTION_STEPS_MAX: u32 = 20_000;

/// What Stirling's formula leaves of ln Γ(x), for x of at least [`STIRLING_FROM`]:
/// ln Γ(x) = (x - ½) ln x - x + ½ ln 2π + rest.
fn stirling_rest(x: f64) -> f64 {
    // B(2k) / (2k (2k - 1)) for k = 1 to 7.
    const TERMS: [f64; 7] =
        [1.0 / 12.0, -1.0 / 360.0, 1.0 / 1260.0, -1.0 / 1680.0, 1.0 / 1188.0, -691.0 / 360_360.0, 1.0 / 156.0];
    let inverse_square = 1.0 / (x * x);
    TERMS.iter().rev().fold(0.0, |sum, term| sum * inverse_square + term) / x
}

/// ln Γ(x) for x > 0.
pub fn ln_gamma(x: f64) -> f64 {
    debug_assert!(x > 0.0, "ln_gamma of {x}");
    // Γ(x) = Γ(x + k) / (x (x + 1) … (x + k - 1)); the product of 15 factors cannot overflow.
    let mut shifted = x;
    let mut product = 1.0;
    while shifted < STIRLING_FROM {
        product *= shifted;
        shifted += 1.0;
    }
    (shifted - 0.5) * shifted.ln() - shifted + 0.5 * (2.0 * PI).ln() + stirling_rest(shifted) - product.ln()
}

/// ln B(a, b) = ln Γ(a) + ln Γ(b) - ln Γ(a + b) for a, b > 0.
///
/// For large arguments the three terms are near 1e7 and their sum is not: it is rearranged so that nothing cancels.
pub fn ln_beta(a: f64, b: f64) -> f64 {
    let (small, large) = if a <= b { (a, b) } else { (b, a) };
    if large < STIRLING_FROM {
        return ln_gamma(small) + ln_gamma(large) - ln_gamma(small + large);
    }
    let sum = small + large;
    let share = (-small / sum).ln_1p();
    let rest = stirling_rest(large) - stirling_rest(sum);
    if small < STIRLING_FROM {
        return ln_gamma(small) + rest + small - small * sum.ln() + (large - 0.5) * share;
    }
    0.5 * (2.0 * PI / large).ln() + stirling_rest(small) + rest + (small - 0.5) * (small / sum).ln() + large * share
}

/// ln of the binomial coefficient "n over k", for k of at most n: C(n, k) = 1 / ((n + 1) B(n - k + 1, k + 1)).
pub fn ln_choose(n: u64, k: u64) -> f64 {
    debug_assert!(k <= n, "ln_choose of {n} over {k}");
    -((n + 1) as f64).ln() - ln_beta((n - k + 1) as f64, (k + 1) as f64)
}

/// The regularised incomplete beta function I(x; a, b): the chance that a Beta(a, b) variable is at most `x`.
///
/// `x` from 0 to 1, `a` and `b` above 0. Relative error below 1e-11 for a, b up to 1000.
pub fn regularised_beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    let front = (a * x.ln() + b * (-x).ln_1p() - ln_beta(a, b)).exp();
    // The fraction converges fast below the mean; above it the mirrored one does.
    if x < (a + 1.0) / (a + b + 2.0) {
        front * beta_fraction(x, a, b) / a
    } else {
        1.0 - front * beta_fraction(1.0 - x, b, a) / b
    }
}

/// The continued fraction of I(x; a, b), by Lentz's method.
fn beta_fraction(x: f64, a: f64, b: f64) -> f64 {
    // Stands in for a vanishing denominator, as Lentz's method asks.
    const TINY: f64 = 1e-300;
    let guard = |value: f64| if value.abs() < TINY { TINY } else { value };
    let mut c = 1.0;
    let mut d = 1.0 / guard(1.0 - (a + b) * x / (a + 1.0));
    let mut fraction = d;
    for step in 1..=FRACTION_STEPS_MAX {
        let m = f64::from(step);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut factor = 1.0;
        for term in [even, odd] {
            d = 1.0 / guard(1.0 + term * d);
            c = guard(1.0 + term / c);
            factor = c * d;
            fraction *= factor;
        }
        if (factor - 1.0).abs() <= f64::EPSILON {
            break;
        }
    }
    fraction
}

/// The x at which I(x; a, b) is `probability` (0 to 1), to the last bits of a double.
///
/// By bisection: the function is monotonic, so nothing can diverge, and a report asks for few of them.
pub fn regularised_beta_inverse(probability: f64, a: f64, b: f64) -> f64 {
    bisect(|x| regularised_beta(x, a, b) < probability)
}

/// The point between 0 and 1 below which `is_below` holds.
pub(super) fn bisect(is_below: impl Fn(f64) -> bool) -> f64 {
    let (mut low, mut high) = (0.0_f64, 1.0_f64);
    // Each step halves the interval; it ends when no double lies between, or far below anything a rate can mean.
    while high > 1e-30 {
        let middle = low + (high - low) / 2.0;
        if middle <= low || middle >= high {
            break;
        }
        if is_below(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    low + (high - low) / 2.0
}

/// The z below which a standard normal variable lies with chance `probability` (above 0, below 1).
pub fn normal_quantile(probability: f64) -> f64 {
    // Beyond 9 standard deviations the chance is not distinguishable from 0 or 1 in a double.
    const LIMIT: f64 = 9.0;
    let upper = probability.max(1.0 - probability);
    let share = bisect(|share| (1.0 + error_function(share * LIMIT / SQRT_2)) / 2.0 < upper);
    (share * LIMIT).copysign(probability - 0.5)
}

/// The chance that a standard normal variable is above `z` (at least 0): absolute error below 1e-15.
pub fn normal_upper_tail(z: f64) -> f64 {
    // Beyond 9 standard deviations nothing is left of it in a double beside 1.
    if z > 9.0 { 0.0 } else { (1.0 - error_function(z / SQRT_2)) / 2.0 }
}

/// erf(x) for x ≥ 0, by the series whose terms are all positive: nothing cancels.
fn error_function(x: f64) -> f64 {
    let mut term = x;
    let mut sum = x;
    let mut odd = 1.0;
    while term > sum * f64::EPSILON / 4.0 {
        odd += 2.0;
        term *= 2.0 * x * x / odd;
        sum += term;
    }
    2.0 / PI.sqrt() * (-x * x).exp() * sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(got: f64, want: f64, relative: f64) {
        assert!((got - want).abs() <= relative * want.abs(), "{got:e}, expected {want:e}");
    }

    /// I(x; a, b) for whole a and b: the chance of at least `a` faults in a + b - 1 trials, summed term by term.
    fn binomial_tail(x: f64, a: u32, b: u32) -> f64 {
        let n = a + b - 1;
        let mut coefficient = 1.0;
        let mut sum = 0.0;
        for k in 0..=n {
            if k >= a {
                sum += coefficient * x.powi(k as i32) * (1.0 - x).powi((n - k) as i32);
            }
            coefficient = coefficient * f64::from(n - k) / f64::from(k + 1);
        }
        sum
    }

    #[test]
    fn the_gamma_function_of_whole_numbers_is_a_factorial() {
        let mut factorial = 1.0_f64;
        for n in 1..=100 {
            near(ln_gamma(f64::from(n) + 1.0).exp(), factorial * f64::from(n), 1e-12);
            factorial *= f64::from(n);
        }
        near(ln_gamma(0.5), PI.sqrt().ln(), 1e-14);
    }

    #[test]
    fn a_row_of_binomial_coefficients_is_that_of_pascal() {
        let mut row = vec![1.0_f64];
        for n in 0..=40 {
            for (k, want) in (0..).zip(&row) {
                near(ln_choose(n, k).exp(), *want, 1e-12);
            }
            let inner = row.windows(2).map(|pair| pair[0] + pair[1]);
            row = [1.0].into_iter().chain(inner).chain([1.0]).collect();
        }
    }

    #[test]
    fn the_incomplete_beta_of_whole_numbers_is_a_binomial_tail() {
        for a in 1..=30 {
            for b in 1..=30 {
                for x in [0.001, 0.05, 0.3, 0.5, 0.78, 0.95, 0.999] {
                    let want = binomial_tail(x, a, b);
                    near(regularised_beta(x, f64::from(a), f64::from(b)), want, 1e-11);
                }
            }
        }
    }

    #[test]
    fn the_inverse_takes_the_incomplete_beta_back() {
        for a in [0.5, 1.0, 3.0, 29.5, 1000.0, 400_000.0] {
            for b in [0.5, 1.0, 7.0, 500.5, 1e6] {
                for probability in [0.001, 0.025, 0.5, 0.975, 0.999] {
                    let x = regularised_beta_inverse(probability, a, b);
                    // Near 1 the doubles themselves are too coarse: the answer lies between the neighbours of x.
                    let below = regularised_beta(x.next_down().next_down(), a, b);
                    let above = regularised_beta(x.next_up().next_up(), a, b);
                    assert!(
                        below * (1.0 - 1e-10) <= probability && probability <= above * (1.0 + 1e-10),
                        "{a} {b} {probability}: {below} to {above}"
                    );
                }
            }
        }
    }

    #[test]
    fn the_normal_quantile_is_the_familiar_one() {
        near(normal_quantile(0.975), 1.959_963_984_540_054, 1e-14);
        near(normal_quantile(0.05), -1.644_853_626_951_472_6, 1e-14);
        assert!(normal_quantile(0.5).abs() < 1e-15);
        near(normal_upper_tail(1.959_963_984_540_054), 0.025, 1e-13);
        near(normal_upper_tail(0.0), 0.5, 1e-15);
    }

    #[test]
    fn the_beta_function_agrees_with_itself_across_its_three_forms() {
        // B(a + 1, b) = B(a, b) a / (a + b), stepped from one form into the next.
        for b in [0.5, 3.0, 14.5, 15.0, 2000.0] {
            for step in 0..60 {
                let a = 0.5 + f64::from(step);
                near(ln_beta(a + 1.0, b) - ln_beta(a, b), (a / (a + b)).ln(), 1e-10);
            }
        }
    }
}
