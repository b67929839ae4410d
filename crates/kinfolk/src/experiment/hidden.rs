//! What stands against hiding clients or their rows: methods, settings and models whose answers tell of them.

use super::*;
use crate::aggregate::Weight;
use crate::methods::AutoStep;
use crate::models::{Ability, most_components};
use crate::privacy::protection::{Level, Protection};
use crate::privacy::rows::{Exposure, RowPrivacy};

/// All that an experiment asks for and that cannot be had with its protection.
pub(super) fn shown(
    protection: &Protection,
    (source, data): (&Source, &Settings),
    model: Option<(&ModelKind, &Settings)>,
    methods: &[MethodEntry],
    known: &Registry,
) -> Vec<Error> {
    if protection.level == Level::None {
        return Vec::new();
    }
    let is = format!("privacy.level = \"{}\"", protection.level);
    let mut faults = Vec::new();
    // Tables have columns of which nothing is known before clients describe them.
    let is_described = source.settings.iter().any(|setting| setting.name == "standardise");
    if is_described && data.get("standardise").is_some() && !protection.public_schema {
        let message =
            format!("data.source: {} has clients describe their columns, which {is} does not cover", source.name);
        let hint = "set privacy.public_schema = true if scales, words and classes of the columns are public knowledge";
        faults.push(Error::settings(message).hint(hint));
    }
    let of_rows = protection.level == Level::Record;
    if let Some((model, _)) = model.filter(|(model, _)| of_rows && !model.row_gradients) {
        let able: Vec<&str> = known.models.iter().filter(|kind| kind.row_gradients).map(|kind| kind.name).collect();
        let message =
            format!("model.kind: {is} cuts the gradient of every row, which {} does not have one by one", model.name);
        faults.push(Error::settings(message).hint(format!("models that do: {}", able.join(", "))));
    }
    if model.is_some_and(|(_, settings)| most_components(settings).is_some()) {
        let message =
            format!("model.components: \"auto\" is found by what clients fit to their rows, which {is} hides");
        faults.push(Error::settings(message).hint("give a number"));
    }
    let pass = RowPrivacy::steps_of_a_pass(protection.rate);
    let ability = model.map_or(Ability::Descent, |(kind, settings)| (kind.ability)(settings));
    let exposed = |kind: &MethodKind, settings: &Settings| match (kind.exposure)(settings, pass, ability) {
        Ok(Exposure { sums: 0, answers: 0, .. }) if !of_rows => Err("its clients send more than one update to a sum"),
        Ok(Exposure { sums: 0, .. }) | Err(_) if !of_rows => Err("its clients send more than sums of updates"),
        exposure => exposure.map(|_| ()),
    };
    let works =
        |kind: &&&MethodKind| ability.suffices(kind.wants) && exposed(kind, &Settings::defaults(kind.settings)).is_ok();
    let able: Vec<&str> = known.methods.iter().filter(works).map(|kind| kind.name).collect();
    for MethodEntry { label, kind, settings } in methods {
        if let Err(why) = exposed(kind, settings) {
            let hides = if of_rows { "single rows" } else { "single clients" };
            let message = format!("method.{label}: {why}; {is} hides {hides}");
            let fault = Error::settings(message);
            let hint = format!("methods that can: {}", able.join(", "));
            faults.push(if able.is_empty() { fault } else { fault.hint(hint) });
            continue;
        }
        let takes_steps = |auto: &AutoStep| !(auto.only_without_minimiser && ability.solves_exactly());
        if (kind.needs)(settings).auto_step.filter(takes_steps).is_some() {
            let message = format!("method.{label}.step: \"auto\" looks at the rows, which {is} hides");
            faults.push(Error::settings(message).hint("give a number"));
        }
        if !of_rows && Weight::find(settings, "weight") == Some(Weight::Rows) {
            let message = format!(
                "method.{label}.weight: \"rows\" lets one client weigh as much as many, and {is} hides any one"
            );
            faults.push(Error::settings(message).hint("set weight = \"uniform\""));
        }
        if of_rows && settings.get("batch").is_some() {
            let message =
                format!("method.{label}.batch: a batch of a fixed size is no sample in which a row is by chance");
            faults.push(
                Error::settings(message)
                    .hint("leave batch out, and set privacy.rate, the chance of a row to be in a step"),
            );
        }
    }
    faults
}
