//! How large a difference between two rates may be: intervals, and the chance that one is larger.
//!
//! For people who want a size beside the p of a test. The intervals are approximations and claim too much with a few
//! trials (they exclude 0 for 4/4 against 0/1), and the chance looks strong on one trial each: none of them decides.

use std::f64::consts::FRAC_PI_4;

use super::interval::{Interval, wilson};
use super::special::{bisect, ln_beta, normal_quantile, regularised_beta};
use super::two_arms::Arms;
use super::{Confidence, Counts};

/// Points of the Gauss-Legendre rule; with so many the chance agrees with adaptive quadrature to 1e-7.
const QUADRATURE_POINTS: u32 = 200;

/// Newcombe's hybrid interval for the first rate less the second: from the Wilson intervals of both (Newcombe 1998,
/// method 10). Without a trial on either side it is everything from -1 to 1.
pub fn newcombe(arms: Arms, confidence: Confidence) -> Interval {
    let (Some(pa), Some(pb)) = (arms.a.observed(), arms.b.observed()) else { return EVERYTHING };
    let (a, b) = (wilson(arms.a, confidence), wilson(arms.b, confidence));
    let difference = pa - pb;
    Interval { low: difference - (pa - a.low).hypot(b.high - pb), high: difference + (a.high - pa).hypot(pb - b.low) }
}

/// The score interval of Miettinen and Nurminen (1985) for the first rate less the second. Without a trial on either
/// side it is everything from -1 to 1.
pub fn miettinen_nurminen(arms: Arms, confidence: Confidence) -> Interval {
    let (Some(pa), Some(pb)) = (arms.a.observed(), arms.b.observed()) else { return EVERYTHING };
    let z = normal_quantile(0.5 + confidence.level() / 2.0);
    let is_excluded = |difference: f64| score_square(arms, difference) >= z * z;
    let observed = pa - pb;
    let below = observed + 1.0;
    let above = 1.0 - observed;
    Interval {
        low: -1.0 + below * bisect(|share| is_excluded(-1.0 + below * share)),
        high: observed + above * bisect(|share| !is_excluded(observed + above * share)),
    }
}

/// Nothing is known of a difference.
const EVERYTHING: Interval = Interval { low: -1.0, high: 1.0 };

/// The squared score of the difference `d`, with both rates at their likeliest values under it (closed form of the
/// restricted maximum likelihood) and the factor N / (N - 1).
fn score_square(arms: Arms, d: f64) -> f64 {
    let float = |counts: Counts| (counts.faults as f64, counts.counted() as f64);
    let ((xa, na), (xb, nb)) = (float(arms.a), float(arms.b));
    let n = na + nb;
    // The cubic l3 r^3 + l2 r^2 + l1 r + l0 = 0, whose root is the second rate.
    let l3 = n;
    let l2 = (na + 2.0 * nb) * d - n - (xa + xb);
    let l1 = (nb * d - n - 2.0 * xb) * d + xa + xb;
    let l0 = xb * d * (1.0 - d);
    let third = l2 / (3.0 * l3);
    let q = third.powi(3) - l1 * l2 / (6.0 * l3 * l3) + l0 / (2.0 * l3);
    let p = (third * third - l1 / (3.0 * l3)).max(0.0).sqrt() * if q > 0.0 { 1.0 } else { -1.0 };
    let cosine = if p == 0.0 { 0.0 } else { (q / p.powi(3)).clamp(-1.0, 1.0) };
    let angle = (std::f64::consts::PI + cosine.acos()) / 3.0;
    let rb = (2.0 * p * angle.cos() - third).clamp(0.0, 1.0);
    let ra = (rb + d).clamp(0.0, 1.0);
    let variance = (ra * (1.0 - ra) / na + rb * (1.0 - rb) / nb) * n / (n - 1.0);
    let off = xa / na - xb / nb - d;
    match variance > 0.0 {
        true => off * off / variance,
        false if off.abs() < 1e-15 => 0.0,
        false => f64::INFINITY,
    }
}

/// The chance that the first rate is larger, if nothing was known of either before (Jeffreys priors). One fault against
/// one pass gives 0.905: information, never a verdict.
///
/// With p = sin² t, over t from 0 to π/2: the density of the first rate times the chance that the second is below it.
pub fn chance_first_is_larger(arms: Arms) -> f64 {
    let shapes = |counts: Counts| (counts.faults as f64 + 0.5, counts.clean as f64 + 0.5);
    let ((a1, b1), (a2, b2)) = (shapes(arms.a), shapes(arms.b));
    let norm = ln_beta(a1, b1);
    let term = |(node, weight): (f64, f64)| {
        let t = (node + 1.0) * FRAC_PI_4;
        let (sine, cosine) = t.sin_cos();
        let density = 2.0 * ((2.0 * a1 - 1.0) * sine.ln() + (2.0 * b1 - 1.0) * cosine.ln() - norm).exp();
        weight * FRAC_PI_4 * density * regularised_beta(sine * sine, a2, b2)
    };
    gauss_legendre(QUADRATURE_POINTS).map(term).sum()
}

/// Nodes and weights of the Gauss-Legendre rule on -1 to 1: the roots of the Legendre polynomial by Newton's method from
/// cos(π (i - ¼) / (n + ½)) (Abramowitz and Stegun 25.4.29 and 22.16.6).
fn gauss_legendre(points: u32) -> impl Iterator<Item = (f64, f64)> {
    /// Newton's method doubles the digits at each step; it starts with three.
    const STEPS: u32 = 8;
    let n = f64::from(points);
    (1..=points).map(move |index| {
        let mut x = (std::f64::consts::PI * (f64::from(index) - 0.25) / (n + 0.5)).cos();
        let mut slope = 0.0;
        for _ in 0..STEPS {
            let (mut before, mut value) = (1.0, x);
            for k in 2..=points {
                let k = f64::from(k);
                (before, value) = (value, ((2.0 * k - 1.0) * x * value - (k - 1.0) * before) / k);
            }
            slope = n * (x * value - before) / (x * x - 1.0);
            x -= value / slope;
        }
        (x, 2.0 / ((1.0 - x * x) * slope * slope))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quadrature_is_exact_for_polynomials() {
        for power in 0..40 {
            let got: f64 = gauss_legendre(20).map(|(node, weight)| weight * node.powi(power)).sum();
            let want = if power % 2 == 0 { 2.0 / f64::from(power + 1) } else { 0.0 };
            assert!((got - want).abs() < 1e-13, "x^{power}: {got}, expected {want}");
        }
    }

    #[test]
    fn published_intervals_come_out() {
        // Newcombe, Statistics in Medicine 17 (1998) 873, table II, rows Miettinen-Nurminen.
        for ((xa, na, xb, nb), (low, high)) in
            [((56, 70, 48, 80), (0.0528, 0.3382)), ((9, 10, 3, 10), (0.1700, 0.8406))]
        {
            let interval = miettinen_nurminen(Arms::of(xa, na, xb, nb).unwrap(), Confidence::P95);
            assert!((interval.low - low).abs() < 6e-5 && (interval.high - high).abs() < 6e-5, "{interval:?}");
        }
    }

    #[test]
    fn the_chances_of_both_directions_make_one() {
        for (xa, na, xb, nb) in [(7, 9, 0, 3), (1, 1, 0, 1), (3, 5, 2, 4)] {
            let arms = Arms::of(xa, na, xb, nb).unwrap();
            let sum = chance_first_is_larger(arms) + chance_first_is_larger(arms.swapped());
            assert!((sum - 1.0).abs() < 1e-7, "{arms:?}: {sum}");
        }
    }
}
