//! Held-out rows counted by component and class.

use super::*;
use crate::mixture::classify;

/// Count held-out rows by component (rows) and class (columns).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tally {
    /// The client's own mixture, or one of the ask.
    pub with: Subject,
    /// Number of components.
    pub components: u32,
    /// Number of classes.
    pub classes: u32,
}

const MOST_CLASSES: u32 = 1 << 24;

impl Telling for Tally {
    const TELLS: Tells = Tells::NOTHING.with_vector("its held-out rows counted by component and class");
}

impl Kind for Tally {
    fn needs(&self) -> Needs<'_> {
        Needs::new(self.with.models(), Capability::Mixture).stamp(self.with.stamp())
    }

    fn sends(&self, _: usize) -> Sends {
        let length = self.components as usize * self.classes as usize;
        Sends { content: Content::Statistics, length, ..Sends::numbers(0) }
    }

    fn cost(&self, load: &Load) -> Cost {
        Cost { numbers: f64::from(self.components) * f64::from(self.classes), ..load.looks(1.0, 0) }
    }

    fn carry_out(&self, context: &mut ClientContext) -> Result<Reply> {
        let shape = context.shape()?;
        let params = match &self.with {
            Subject::Own { stamp } => context.own_model(*stamp)?,
            Subject::Completed { model, stamp } => context.completed_model(*model, *stamp)?,
            Subject::Models(of) if of.len() == 1 => context.models.get(of[0]).cloned().unwrap_or_default(),
            other => return Err(Error::federation(format!("rows cannot be counted with {other:?}"))),
        };
        let fits = params.len() == shape.len() && self.components as usize == shape.components;
        if !fits || self.classes > MOST_CLASSES {
            return Err(context.unsound("a count of rows"));
        }
        let classes = self.classes as usize;
        let mut counts = vec![0.0; shape.components * classes];
        let test = &context.client().test;
        if let (Some(of_rows), Some(scratch), false) = (test.classes(), context.worker.scratch(), test.is_empty()) {
            let mut labels = Vec::new();
            classify(&shape, &params, &Rows::of(&shape, test), scratch, &mut labels);
            for (&label, &class) in labels.iter().zip(of_rows).filter(|(_, class)| **class < self.classes) {
                counts[label as usize * classes + class as usize] += 1.0;
            }
        }
        Ok(context.reply((), Some(counts)))
    }

    fn implausible(&self, reply: &Reply, _: f64) -> Option<String> {
        reply.vector.iter().flatten().any(|&count| count < 0.0).then(|| "a count below 0".into())
    }

    fn scores(&self) -> bool {
        true
    }
}
