//! Notes about suspicious columns of the data.

use crate::data::schema::ExtremeCell;
use crate::federation::ClientInfo;
use crate::federation::server::ledger::few_of;

const MOST_TOLD: usize = 5;

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

pub(super) fn unknown_classes_note(mut classes: Vec<String>) -> Option<String> {
    classes.sort();
    classes.dedup();
    let names = few_of(&classes.iter().map(String::as_str).collect::<Vec<_>>());
    let said = format!("classes in test rows alone, so that no model can predict them: {names}; they count as wrong");
    (!classes.is_empty()).then_some(said)
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
    fn classes_of_test_rows_alone_are_named() {
        assert_eq!(unknown_classes_note(Vec::new()), None);
        let note = unknown_classes_note(["b", "a", "b"].map(str::to_string).to_vec()).unwrap();
        assert_eq!(note, "classes in test rows alone, so that no model can predict them: a, b; they count as wrong");
    }
}
