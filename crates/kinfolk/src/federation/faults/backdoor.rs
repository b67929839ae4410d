//! A backdoor (Bagdasaryan, Veit, Hua, Estrin, Shmatikov 2020): attackers train on rows of which every other one has a pattern of
//! pixels and a class of their choice, and send so much of their update that their model takes the place of a mean.

use super::Rates;
use crate::data::{Client, Features, Form, Population, Shard};
use crate::error::{Error, Result};

/// What is planted: a square in the first corner of an image, as bright as any pixel there is, and its class.
pub(super) struct Backdoor {
    pixels: Vec<usize>,
    brightest: f64,
    class: u32,
}

impl Backdoor {
    pub fn new(rates: &Rates, population: &Population) -> Result<Self> {
        let Form::Image { channels, height, width, .. } = population.shape.form else {
            let fault = "faults.attack: \"backdoor\" puts a pattern on images, and the data has none";
            return Err(Error::settings(fault).hint("use another attack"));
        };
        let (classes, class) = (population.shape.classes, rates.target_class);
        if class >= classes {
            return Err(Error::settings(format!(
                "faults.target_class: got {class}, want a class, 0 to {}",
                classes.saturating_sub(1)
            )));
        }
        let least = height.min(width);
        let side = rates.pattern.unwrap_or((least / 4).max(1));
        if side > least {
            return Err(Error::settings(format!(
                "faults.pattern: got {side}, want at most the {least} pixels from side to side"
            )));
        }
        let plane =
            |channel: usize| (0..side).flat_map(move |y| (0..side).map(move |x| (channel * height + y) * width + x));
        Ok(Self {
            pixels: (0..channels).flat_map(plane).collect(),
            brightest: population.clients.iter().map(|client| brightest(&client.train)).fold(0.0, f64::max),
            class: class as u32,
        })
    }

    /// Every other row with the pattern and the class.
    pub fn plant(&self, rows: &Shard) -> Shard {
        rows.marked(|row| row % 2 == 0, &self.pixels, self.brightest, self.class)
    }

    /// These clients with those test rows alone that are of another class, all with the pattern and the class: what is predicted right there
    /// is what the backdoor has won.
    pub fn try_on(&self, clients: &[Client]) -> Vec<Client> {
        let try_on = |client: &Client| {
            let classes = client.test.classes().unwrap_or_default();
            let others: Vec<usize> = (0..classes.len()).filter(|&row| classes[row] != self.class).collect();
            let test = client.test.pick(&others).marked(|_| true, &self.pixels, self.brightest, self.class);
            Client { test, ..client.clone() }
        };
        clients.iter().map(try_on).collect()
    }
}

fn brightest(rows: &Shard) -> f64 {
    let of = |columns: usize| rows.rows().start * columns..rows.rows().end * columns;
    match &**rows.features() {
        Features::Bytes { .. } => f64::from(u8::MAX),
        Features::F32 { columns, values } => values[of(*columns)].iter().copied().map(f64::from).fold(0.0, f64::max),
        Features::F64 { columns, values } => values[of(*columns)].iter().copied().fold(0.0, f64::max),
        _ => 0.0,
    }
}
