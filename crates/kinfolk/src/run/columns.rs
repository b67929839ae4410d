//! What is odd about the columns of the data, in words.

use crate::data::Client;
use crate::data::schema::ExtremeCell;
use crate::evaluate::Served;
use crate::federation::ClientInfo;

/// So many extreme cells are told one by one.
const MOST_TOLD: usize = 5;

/// One sentence for every extreme cell, or for the first of many.
pub(super) fn extreme_cell_notes(clients: &[ClientInfo], cells: &[ExtremeCell]) -> Vec<String> {
    let tell = |cell: &ExtremeCell| {
        let column = cell.column.as_ref().map_or("its target".to_string(), |name| format!("column `{name}`"));
        let (id, value, ratio) = (&clients[cell.client].id, cell.value, cell.ratio);
        let counts = if cell.column.is_some() {
            ", and where it is nearly all of the spread it has no say in the scale"
        } else {
            ""
        };
        format!(
            "client {id}: {column} reaches {value:e}, {ratio:.1e} deviations away from the other clients' numbers{counts}"
        )
    };
    let mut notes: Vec<String> = cells.iter().take(MOST_TOLD).map(tell).collect();
    if cells.len() > MOST_TOLD {
        notes.push(format!("{} more columns of clients reach such numbers", cells.len() - MOST_TOLD));
    }
    notes
}

/// A sentence about a client whose metric is nearly all of the mean, as an extreme cell among its test rows makes it.
pub(super) fn lone_metric_note(clients: &[Client], served: &[Served], outliers: &[bool]) -> Option<String> {
    /// So many times what is usual.
    const LONE: f64 = 1000.0;
    let mean = |served: &Served| served.score.and_then(|score| score.mean()).filter(|mean| mean.is_finite());
    // Planted outliers are in no average.
    let averaged = clients.iter().zip(served).enumerate().filter(|(place, _)| outliers.get(*place) != Some(&true));
    let mut metrics: Vec<(f64, &str)> =
        averaged.filter_map(|(_, (client, served))| Some((mean(served)?.abs(), &*client.id))).collect();
    metrics.sort_by(|one, other| one.0.total_cmp(&other.0));
    let (usual, (largest, id)) = (metrics.get(metrics.len() / 2)?.0, *metrics.last()?);
    let is_alone = metrics.len() > 2 && usual > 0.0 && largest / LONE > usual * metrics.len() as f64;
    is_alone.then(|| {
        format!("client {id} has a metric of {largest:.1e}, where {usual:.1e} is usual: it is nearly all of the mean")
    })
}

/// A sentence about classes that are in test rows alone.
pub(super) fn unknown_classes_note(mut classes: Vec<String>) -> Option<String> {
    classes.sort();
    classes.dedup();
    let names: Vec<&str> = classes.iter().take(MOST_TOLD).map(String::as_str).collect();
    let more =
        if classes.len() > MOST_TOLD { format!(" and {} more", classes.len() - MOST_TOLD) } else { String::new() };
    let said = format!(
        "in test rows alone, so that no model can predict them: {}{more}; they count as wrong",
        names.join(", ")
    );
    (!classes.is_empty()).then(|| format!("classes {said}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_many_cells_are_told() {
        let clients = [ClientInfo { id: "lyon".into() }];
        let cell = |column: Option<&str>| ExtremeCell {
            client: 0,
            column: column.map(str::to_string),
            value: 1e9,
            ratio: 2.34e7,
        };
        assert_eq!(
            extreme_cell_notes(&clients, &[cell(Some("age"))]),
            [
                "client lyon: column `age` reaches 1e9, 2.3e7 deviations away from the other clients' numbers, and where it is \
              nearly all of the spread it has no say in the scale"
            ]
        );
        let many = extreme_cell_notes(&clients, &vec![cell(None); 8]);
        assert!(many.len() == 6 && many[0].starts_with("client lyon: its target reaches 1e9"), "{many:?}");
        assert_eq!(many[5], "3 more columns of clients reach such numbers");
    }

    #[test]
    fn a_metric_that_is_nearly_all_of_the_mean_is_told() {
        use crate::data::{Features, Shard, Targets};
        use crate::report::summary::ClientScore;
        let nothing = || Shard::new(Features::F64 { columns: 1, values: Vec::new() }, Targets::None).unwrap();
        let client = |id: &str| Client { id: id.into(), train: nothing(), test: nothing(), group: None, truth: None };
        let clients = ["a", "b", "c"].map(client);
        let note = |sums: [f64; 3]| {
            let served = sums
                .map(|sum| Served { score: Some(ClientScore { sum, rows: 2, cluster: None }), ..Served::default() });
            lone_metric_note(&clients, &served, &[])
        };
        assert_eq!(note([4.0, 2.0, 500.0]), None);
        let wanted = "client c has a metric of 1.0e12, where 2.0e0 is usual: it is nearly all of the mean";
        assert_eq!(note([4.0, 2.0, 2e12]).as_deref(), Some(wanted));
    }

    #[test]
    fn classes_of_test_rows_alone_are_named() {
        assert_eq!(unknown_classes_note(Vec::new()), None);
        let note = unknown_classes_note(["b", "a", "b"].map(str::to_string).to_vec()).unwrap();
        assert_eq!(note, "classes in test rows alone, so that no model can predict them: a, b; they count as wrong");
    }
}
