//! The latest model of every client, for methods whose server mixes or compares them one by one.

use super::super::*;
use crate::num::{Matrix, multiply, squared_distance};
use rayon::prelude::*;

/// What every client sent last, `None` before its first usable answer; and the stamp of what it keeps.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ClientModels {
    pub models: Vec<Option<Params>>,
    pub stamps: Vec<u64>,
}

impl ClientModels {
    pub fn new(clients: usize) -> Self {
        Self { models: vec![None; clients], stamps: vec![0; clients] }
    }

    /// Takes over what clients sent, one vector each.
    pub fn take(&mut self, answers: &Answers) {
        for order in &answers.orders {
            for (place, vector) in finite_vectors(order) {
                self.models[order.clients[place] as usize] = Some(Arc::new(vector.to_vec()));
            }
        }
        super::cluster_models::note_stamps(answers, &mut self.stamps);
    }

    /// The clients that have sent a model, with it.
    pub fn known(&self) -> impl Iterator<Item = (u32, &Params)> {
        (0u32..).zip(&self.models).filter_map(|(client, model)| Some((client, model.as_ref()?)))
    }

    /// The mean of all that are known.
    pub fn mean(&self) -> Option<Params> {
        let mut known = self.known().map(|(_, model)| model).peekable();
        known.peek().is_some().then(|| super::averaging::plain_mean(known))
    }

    /// Squared distances between models, row-major; 0 where one is unknown.
    pub fn squared_distances(&self) -> Vec<f64> {
        let count = self.models.len();
        let between = |place: usize| match (&self.models[place / count], &self.models[place % count]) {
            (Some(one), Some(other)) if place / count < place % count => squared_distance(one, other),
            _ => 0.0,
        };
        let upper: Vec<f64> = (0..count * count).into_par_iter().map(between).collect();
        (0..count * count).map(|place| upper[place] + upper[place % count * count + place / count]).collect()
    }
}

/// Scalar products of `count` vectors, row-major.
pub fn gram(vectors: &[f64], count: usize) -> Vec<f64> {
    let rows = Matrix::new(vectors, count, vectors.len() / count.max(1));
    let mut products = vec![0.0; count * count];
    multiply(&mut products, 1.0, rows, rows.transpose());
    products
}

/// The cosine of the angle between vectors `i` and `j` with these scalar products; 0 where one has no length.
pub fn cosine(gram: &[f64], count: usize, i: usize, j: usize) -> f64 {
    let length = (gram[i * count + i] * gram[j * count + j]).sqrt();
    if length > 0.0 { (gram[i * count + j] / length).clamp(-1.0, 1.0) } else { 0.0 }
}
