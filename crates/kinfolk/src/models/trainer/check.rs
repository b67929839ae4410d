//! What every trained model refuses in a client's rows.

use super::*;
use crate::data::{Features, Targets};

/// Refuses rows of another shape, targets that are not of the output's kind, and whatever else `fault` finds wrong.
pub(super) fn check(
    output: Output,
    client: &Client,
    wanted: DataShape,
    fault: impl Fn(&Shard) -> Option<String>,
) -> Result<()> {
    // A class that nobody trained on may show in test rows, where it is wrong, whatever is predicted.
    for (part, rows, spared) in [("training", &client.train, None), ("test", &client.test, Some(UNKNOWN_CLASS))] {
        if rows.is_empty() {
            continue;
        }
        if let Some(message) = fault_of(output, rows, wanted, spared).or_else(|| fault(rows)) {
            return Err(Error::data(format!("client {}: {part} rows {message}", client.id)));
        }
    }
    Ok(())
}

fn fault_of(output: Output, rows: &Shard, wanted: DataShape, spared: Option<u32>) -> Option<String> {
    if matches!(**rows.features(), Features::Columns(_)) {
        return Some("are not encoded yet".into());
    }
    if matches!(**rows.features(), Features::Own(_)) {
        return Some("are known to the client's own code alone".into());
    }
    if rows.columns() != wanted.columns {
        return Some(format!("have {} columns, want {}", rows.columns(), wanted.columns));
    }
    match (output, &**rows.targets()) {
        (Output::Squared, Targets::Values(_)) => None,
        (Output::Squared, _) => Some("have no numbers to predict".into()),
        (_, Targets::Classes(_)) => {
            let outside = |class: &&u32| **class as usize >= wanted.classes && Some(**class) != spared;
            let class = rows.classes().unwrap_or_default().iter().find(outside)?;
            Some(format!("have class {class}, want 0 to {}", wanted.classes - 1))
        }
        _ => Some("have no classes to predict".into()),
    }
}
