//! μ, the strong convexity of the whole objective, pulls included.

use super::super::*;
use super::Class;
use crate::federation::work::ResponseParts;
use crate::hierarchy::response::Response;
use crate::num::{Matrix, Spectrum, extreme_eigenvalues, multiply, solve_positive};

/// μ within a fifth: at least that of the losses by themselves, which is `least`, and beyond that as much curvature as can be
/// taken from every client before the objective stops being convex.
pub fn convexity(problem: &Problem, strengths: &Strengths, least: f64, room: &mut Room) -> Result<f64> {
    const NEAR: f64 = 1.2;
    const NOTHING: f64 = 1e-6;
    let families = &problem.families;
    // Clients that are pulled more only make it curve more.
    let weakest = |classes: &Vec<Class>| classes.iter().map(|class| class.gamma).fold(f64::INFINITY, f64::min);
    let weakest: Vec<f64> = strengths.classes.iter().map(weakest).collect();
    let bound = weakest.iter().copied().fold(f64::INFINITY, f64::min);
    if least >= bound || bound == 0.0 {
        return Ok(least.max(NOTHING * strengths.gamma.iter().copied().fold(0.0, f64::max)));
    }
    let round = problem.response_round(Phase::Start, strengths.noise);
    let centres = vec![problem.start.to_vec(); families.count()];
    let size = problem.start.len();
    let mut respond = |left: &[f64]| -> Result<Vec<Response>> {
        let asked = Strengths::by_cluster(families, left, 0.0, strengths.noise);
        Ok(round.run(&centres, &asked, (ResponseParts::Response, false), room)?.responses)
    };
    // Directions that show nowhere in the data are never left nor entered, however flat they are.
    let mut everything = vec![0.0; size * size];
    respond(&weakest)?.iter().for_each(|response| add_scaled(&mut everything, 1.0, &response.curvature));
    let Some(shown) = Spectrum::new(&everything, size) else { return Ok(least) };
    let shown = shown.map(|_| 1.0);
    let mut is_convex_without = |taken: f64| -> Result<bool> {
        let left: Vec<f64> = weakest.iter().map(|gamma| gamma - taken).collect();
        let mut of_all = vec![0.0; size * size];
        for (cluster, response) in respond(&left)?.iter().enumerate() {
            // Σ γI − γ²(A − taken + γ)⁻¹, from the responses at γ − taken.
            let ratio = (weakest[cluster] / left[cluster]).powi(2);
            let mut curvature: Vec<f64> = response.curvature.iter().map(|value| ratio * value).collect();
            let clients = families.members[cluster].len() as f64;
            (0..size).for_each(|i| curvature[i * (size + 1)] += clients * (weakest[cluster] - ratio * left[cluster]));
            curvature = where_shown(&shown, &curvature, size);
            let lambda = strengths.lambda[cluster];
            if lambda.is_infinite() {
                add_scaled(&mut of_all, 1.0, &curvature);
                continue;
            }
            let mut held = curvature.clone();
            (0..size).for_each(|i| held[i * (size + 1)] += lambda);
            curvature.iter_mut().for_each(|value| *value *= lambda);
            match solve_positive(&held, &curvature, size, size) {
                Some(upward) => add_scaled(&mut of_all, 1.0, &upward),
                None => return Ok(false),
            }
        }
        let tied = strengths.lambda.iter().any(|&lambda| lambda > 0.0);
        Ok(!tied || extreme_eigenvalues(&of_all, size).0 > 0.0)
    };
    let (mut low, mut high) = (least.max(NOTHING * bound), bound);
    if !is_convex_without(low)? {
        return Ok(low);
    }
    while high > NEAR * low {
        let middle = (low * high).sqrt();
        match is_convex_without(middle)? {
            true => low = middle,
            false => high = middle,
        }
    }
    Ok(low)
}

/// A matrix along the directions of a projection, and 1 along the others.
fn where_shown(projection: &[f64], matrix: &[f64], size: usize) -> Vec<f64> {
    let square = |values| Matrix::new(values, size, size);
    let (mut half, mut whole) = (vec![0.0; size * size], vec![0.0; size * size]);
    multiply(&mut half, 1.0, square(projection), square(matrix));
    multiply(&mut whole, 1.0, square(&half), square(projection));
    add_scaled(&mut whole, -1.0, projection);
    (0..size).for_each(|i| whole[i * (size + 1)] += 1.0);
    whole
}
