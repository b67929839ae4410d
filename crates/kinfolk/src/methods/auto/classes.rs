//! Classes: the linear case, iterated. The log-likelihood of every client is expanded at a model, and what linear models are learned from is
//! learned from the expansions; then again at the personal models, until these stay where they are.
//!
//! ```text
//! at the model for everybody   Newton's method; score test of no difference; columns and covariance
//! at each personal model       until it hardly moves; families, the four models of every client by folds
//! held-out rows                losses of the four and of their stack, whose weights take Newton's steps; who deviates
//! held-out rows once more      how often classes came true, beside their probabilities
//! ```

use super::study::{Begun, FamilyModel, Study};
use crate::error::Result;
use crate::families::{
    Beforehand, Draft, Evidence, FoldLosses, Learned, Reliability, StackLosses, best_stack, constant_model, differ,
    newton_step, personal,
};
use crate::federation::work::{CountProbabilities, FoldProducts, HeldOutLosses, TargetScale};
use crate::federation::{Ask, Gather, Phase, Recipients};
use crate::methods::room::{Room, nobody_answered};
use crate::num::{distance, norm};

/// Steps towards the model for everybody, the longest of them, and the change below which it has arrived.
const COMMON_STEPS: usize = 12;
const LONGEST_STEP: f64 = 5.0;
const ARRIVED: f64 = 1e-4;
/// Expansions at personal models, those that are followed all the way, and the change below which they stay.
const EXPANSIONS: usize = 8;
const WHOLE_STEPS: usize = 3;
const STAYS: f64 = 0.01;
/// Weights of the stack that are tried, and the change below which they are kept.
const STACKS: usize = 5;
const SAME_STACK: f64 = 0.01;

/// Learns from likelihoods that are expanded at the model for everybody, and asks for all the rest.
pub(super) fn finish(study: &Study, room: &mut Room, begun: Begun) -> Result<FamilyModel> {
    let mut everybody = begun;
    let mut options = study.options(&everybody.clients);
    let difference = differ(&everybody.common, &options)?;
    let shape = everybody.shape.clone();
    let mut points = personal(&everybody.common, &shape)?;
    let mut expanded = expand(study, room, &mut everybody, &mut points)?;
    for round in 1..EXPANSIONS {
        let next = personal(&expanded, &shape)?;
        let share = if round <= WHOLE_STEPS { 1.0 } else { 0.5 };
        let mut moved = 0.0_f64;
        for (point, next) in points.iter_mut().zip(next) {
            moved = moved.max(distance(point, &next) / (1.0 + norm(point)));
            point.iter_mut().zip(next).for_each(|(from, to)| *from += share * (to - *from));
        }
        if moved < STAYS {
            break;
        }
        expanded = expand(study, room, &mut everybody, &mut points)?;
    }
    options = study.options(&everybody.clients);
    let beforehand = Beforehand { difference: Some(difference), shape, common: Some(&everybody.common) };
    let draft = Draft::new(&expanded, beforehand, &options)?;
    let (stack, losses) = stack(study, room, &everybody.clients, &draft)?;
    let mut learned = draft.finish(stack, &losses);
    let reliability = reliability(study, room, &everybody.clients, &learned)?;
    learned.left_out.clear();
    Ok(FamilyModel {
        learned,
        constant: everybody.constant,
        form: study.form,
        target: TargetScale::PLAIN,
        clients: everybody.clients,
        intervals: None,
        reliability: Some(reliability),
    })
}

/// Finds the model for everybody, from one to begin with, and the likelihoods expanded at it.
pub(super) fn at_common_model(study: &Study, room: &mut Room, begin: Vec<f64>) -> Result<Begun> {
    let mut at = begin;
    let mut constant = None;
    for _ in 0..COMMON_STEPS {
        let mut found = study.ask_all(room, &at)?;
        let constant = constant.get_or_insert_with(|| constant_model(&found.common));
        found.constant.clone_from(constant);
        let next = newton_step(&found.common)?;
        let length = distance(&at, &next);
        if length <= ARRIVED * (1.0 + norm(&at)) {
            return Ok(found);
        }
        let share = (LONGEST_STEP / length).min(1.0);
        at.iter_mut().zip(next).for_each(|(from, to)| *from += share * (to - *from));
    }
    let found = study.ask_all(room, &at)?;
    Ok(Begun { constant: constant.unwrap_or_default(), ..found })
}

/// Expands every client's likelihood at a model of its own; who does not answer is left out from here on.
fn expand(study: &Study, room: &mut Room, everybody: &mut Begun, points: &mut Vec<Vec<f64>>) -> Result<Evidence> {
    let mut ask = Ask::new(Phase::Train, Vec::new(), Gather::Each);
    let mut orders = Vec::new();
    for (&client, at) in everybody.clients.iter().zip(&*points) {
        let work = FoldProducts { folds: study.folds, target: TargetScale::PLAIN, at: at.clone() };
        orders.push(ask.order(Recipients::list(vec![client]), work));
    }
    let answers = room.ask(&ask)?;
    let found: Vec<Option<Vec<_>>> =
        orders.into_iter().map(|order| answers.of(order).each().next().map(|(_, by)| by.0)).collect();
    if found.iter().all(Option::is_none) {
        return Err(nobody_answered());
    }
    let mut there = found.iter().map(Option::is_some);
    everybody.clients.retain(|_| there.next().unwrap_or(false));
    let mut there = found.iter().map(Option::is_some);
    points.retain(|_| there.next().unwrap_or(false));
    let mut there = found.iter().map(Option::is_some);
    everybody.common.clients.retain(|_| there.next().unwrap_or(false));
    Ok(study.evidence(found.into_iter().flatten().collect()))
}

/// The weights of the four models by which their stack loses least on held-out rows, and the losses with them.
fn stack(study: &Study, room: &mut Room, clients: &[u32], draft: &Draft) -> Result<([f64; 4], Vec<Vec<FoldLosses>>)> {
    let tried: Vec<_> = draft.tried().collect();
    let mut weights = [0.0, 0.0, 1.0, 0.0];
    let mut best: Option<(f64, [f64; 4], Vec<Vec<StackLosses>>)> = None;
    for _ in 0..STACKS {
        let mut ask = Ask::new(Phase::Train, Vec::new(), Gather::Each);
        let mut orders = Vec::new();
        for (place, &client) in clients.iter().enumerate() {
            let models = tried.iter().map(|(fold, models)| (*fold as u32, models[place].clone())).collect();
            let work = HeldOutLosses { folds: study.folds, models, stack: weights };
            orders.push(ask.order(Recipients::list(vec![client]), work));
        }
        let answers = room.ask_for_any(&ask)?;
        let losses: Vec<Vec<StackLosses>> = orders
            .into_iter()
            .map(|order| answers.of(order).each().next().map_or_else(Vec::new, |(_, by)| by.0))
            .collect();
        // In the order of time, later folds are predicted more as the future will be.
        let fold_weights = tried.iter().map(|(fold, _)| if study.is_rolling() { *fold as f64 } else { 1.0 });
        let (loss, next) = best_stack(weights, &losses, &fold_weights.collect::<Vec<f64>>());
        let is_better = best.as_ref().is_none_or(|(least, ..)| loss < *least);
        let is_same = next.iter().zip(weights).all(|(next, own)| (next - own).abs() < SAME_STACK);
        if is_better {
            best = Some((loss, weights, losses));
        }
        if is_same || !is_better {
            break;
        }
        weights = next;
    }
    let (_, weights, losses) = best.ok_or_else(nobody_answered)?;
    let seen = |folds: Vec<StackLosses>| {
        folds.into_iter().map(|fold| fold.losses).filter(|losses| losses.rows > 0.0).collect()
    };
    Ok((weights, losses.into_iter().map(seen).collect()))
}

fn reliability(study: &Study, room: &mut Room, clients: &[u32], learned: &Learned) -> Result<Reliability> {
    let mut ask = Ask::new(Phase::Train, Vec::new(), Gather::Each);
    let mut orders = Vec::new();
    for (place, &client) in clients.iter().enumerate() {
        let coefficients = learned.held_out.iter().map(|held| (held.fold as u32, held.served[place].clone())).collect();
        orders.push(ask.order(Recipients::list(vec![client]), CountProbabilities { folds: study.folds, coefficients }));
    }
    let answers = room.ask_for_any(&ask)?;
    let mut all = Reliability::default();
    for order in orders {
        answers.of(order).each().for_each(|(_, found)| all.merge(&found));
    }
    Ok(all)
}
