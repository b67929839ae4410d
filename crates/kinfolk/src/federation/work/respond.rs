//! How a client's best model responds to a centre that pulls at it.

use super::*;
use crate::hierarchy::response::Response;
use crate::models::pulled::{mean_loss, minimise_near, no_minimiser, quadratic, quadratic_everywhere};
use crate::num::{add_scaled, dot, norm, squared_distance};

/// The best model of a client under the pull of a centre, and how it responds to other centres.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Respond {
    /// The centre, and how strongly it pulls.
    pub pull: Pull,
    /// Which rows the loss is about.
    pub on: Portion,
    /// What is sent.
    pub send: ResponseParts,
    /// Whether the client keeps the model as its own.
    pub keep: bool,
    /// How the client's loss enters the method's objective.
    pub scale: Scale,
}

/// What a client sends about its loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ResponseParts {
    /// Its value and the squared distance of the client's model from the centre only.
    Nothing,
    /// Its minimum as a quadratic in the centre.
    Response,
    /// The same, and its derivative in the strength.
    ResponseAndSlope,
    /// The loss itself as a quadratic at the centre, without any pull.
    Quadratic,
}

/// A client's model under a pull.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Responded {
    /// Its mean loss.
    pub(crate) loss: f64,
    /// Squared distance from the centre.
    pub(crate) squared_distance: f64,
}

impl Answer for Responded {
    fn read(_: &[u32], numbers: &[f64]) -> Self {
        Self { loss: numbers[0], squared_distance: numbers[1] }
    }

    fn write(self, _: &mut Vec<u32>, numbers: &mut Vec<f64>) {
        numbers.extend([self.loss, self.squared_distance]);
    }
}

impl HasLoss for Responded {}

impl Telling for Respond {
    const TELLS: Tells = Tells::numbers("its loss, and how far its own model is from the centre")
        .with_vector("its smallest loss as a quadratic of the centre");
}

impl Kind for Respond {
    fn needs(&self) -> Needs<'_> {
        Needs::new(std::slice::from_ref(&self.pull.centre), Capability::Descent).on(self.on).keeping(self.keep)
    }

    fn sends(&self, width: usize) -> Sends {
        let length = match self.send {
            ResponseParts::Nothing => return Sends::numbers(2),
            ResponseParts::Response | ResponseParts::Quadratic => Response::packed_len(width),
            ResponseParts::ResponseAndSlope => 2 * Response::packed_len(width),
        };
        Sends { content: Content::Statistics, length, ..Sends::numbers(2) }
    }

    fn cost(&self, load: &Load) -> Cost {
        load.solves(1.0)
    }

    fn carry_out(&self, context: &mut ClientContext) -> Result<Reply> {
        let rows = context.rows(self.on)?;
        let model = context.model();
        let at = context.naming();
        let Respond { pull, send, scale, .. } = *self;
        let centre = context.models[pull.centre].as_slice();
        let known = quadratic_everywhere(model, &rows, scale).map_err(&at)?;
        let own = match send {
            ResponseParts::Quadratic => centre.to_vec(),
            _ => minimise_near(model, context.worker, &rows, scale, (pull.strength, centre), known.as_ref())
                .map_err(&at)?,
        };
        let loss = mean_loss(context.worker, &own, &rows);
        let mut sent = Vec::new();
        if send != ResponseParts::Nothing {
            let quadratic = match known {
                Some(quadratic) => quadratic,
                None => quadratic(model, &rows, &own, scale).map_err(&at)?,
            };
            let singular = || at(no_minimiser());
            match send {
                ResponseParts::Response => quadratic.respond(pull.strength).ok_or_else(singular)?.pack(&mut sent),
                ResponseParts::ResponseAndSlope => {
                    let (mut response, mut slope) = quadratic.respond_with_slope(pull.strength).ok_or_else(singular)?;
                    if !model.is_quadratic() && !rows.is_empty() {
                        // The volume depends on the curvature at the client's model, which moves with centre and strength.
                        let spread = quadratic.covariance(pull.strength).ok_or_else(singular)?;
                        let towards = |vector: &[f64]| -> Vec<f64> {
                            spread.chunks_exact(own.len()).map(|row| dot(row, vector)).collect()
                        };
                        let scale = scale.of(rows.len());
                        let gradient = model.want_convex()?.curvature_gradient(&rows, &own, scale, &spread);
                        let away: Vec<f64> = centre.iter().zip(&own).map(|(centre, own)| centre - own).collect();
                        slope.volume += 0.5 * dot(&gradient, &towards(&away));
                        let with_centre = towards(&gradient);
                        add_scaled(&mut response.moment, -0.5 * pull.strength, &with_centre);
                        response.energy -= 0.5 * pull.strength * dot(&with_centre, centre);
                    }
                    response.pack(&mut sent);
                    slope.pack(&mut sent);
                }
                ResponseParts::Quadratic => quadratic.respond(f64::INFINITY).ok_or_else(singular)?.pack(&mut sent),
                ResponseParts::Nothing => {}
            }
        }
        let reply = context.reply(
            Responded { loss, squared_distance: squared_distance(&own, centre) },
            (!sent.is_empty()).then_some(sent),
        );
        if self.keep {
            context.keep(&reply.numbers, own)?;
        }
        Ok(reply)
    }

    fn implausible(&self, reply: &Reply, least_loss: f64) -> Option<String> {
        // The first number is a curvature, which is not negative.
        let curvature = reply.vector.as_ref().filter(|vector| vector[0] < -reply::ROUNDING * norm(vector));
        reply::below(&reply.numbers, least_loss)
            .or_else(|| curvature.map(|vector| format!("{:.1e} for a curvature, which cannot be", vector[0])))
    }
}
