//! Accelerated steps down a client's loss, with gradients of reduced variance.

use super::*;

/// How accelerated steps mix the vectors y, z, x and h, where h is the whole gradient at the anchor x.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Acceleration {
    /// The places of y, z, x and h among a client's vectors.
    pub vectors: [u32; 4],
    /// θ = a₁z + a₂x + (1 − a₁ − a₂)y.
    pub a: [f64; 2],
    /// z ← b₁z + (1 − b₁)θ + (b₂/step)·(y − θ).
    pub b: [f64; 2],
    /// How likely a local step is: its change of gradient is divided by it.
    pub chance: f64,
}

/// So many accelerated steps of this size for the scaled loss. Returns the loss at the first point looked at.
pub(crate) fn accelerate(
    worker: &mut dyn Worker,
    seat: &Seat,
    sample: &Sample,
    (steps, step_size, scale): (u32, f64, f64),
    pace: &Acceleration,
    vectors: &mut [f64],
) -> f64 {
    let width = worker.width();
    let rows = seat.client.train.len();
    let batch = sample.batch.map(|batch| batch as usize).filter(|&batch| batch < rows);
    let mut rng = batch.map(|_| Key::new(sample.seed).word("rows").word(&seat.client.id).rng());
    let mut picked: Vec<u32> = Vec::new();
    let [mut point, mut at_point, mut at_anchor] = [(); 3].map(|()| vec![0.0; width]);
    let mut all: Vec<&mut [f64]> = vectors.chunks_exact_mut(width).collect();
    let Ok([y, z, anchor, whole]) = all.get_disjoint_mut(pace.vectors.map(|place| place as usize)) else {
        return f64::NAN;
    };
    let (y, z, anchor, whole) = (&mut **y, &mut **z, &**anchor, &**whole);
    if batch.is_none() {
        worker.slope(anchor, seat, None, &mut at_anchor);
    }
    let [a1, a2] = pace.a;
    let [b1, b2] = pace.b;
    let mut first_loss = f64::NAN;
    for step in 0..steps {
        for (((point, y), z), x) in point.iter_mut().zip(&*y).zip(&*z).zip(anchor) {
            *point = a1 * z + a2 * x + (1.0 - a1 - a2) * y;
        }
        let chosen = match (&mut rng, batch) {
            (Some(rng), Some(batch)) => {
                picked.clear();
                picked.extend((0..batch).map(|_| rng.random_range(0..rows as u32)));
                worker.slope(anchor, seat, Some(&picked), &mut at_anchor);
                Some(picked.as_slice())
            }
            _ => None,
        };
        let loss = worker.slope(&point, seat, chosen, &mut at_point);
        if step == 0 {
            first_loss = loss;
        }
        let factor = scale / pace.chance;
        for place in 0..width {
            let gradient = whole[place] + factor * (at_point[place] - at_anchor[place]);
            y[place] = point[place] - step_size * gradient;
            z[place] = b1 * z[place] + (1.0 - b1) * point[place] - b2 * gradient;
        }
    }
    first_loss
}
